"""Errors about URLs and the titles of reports show no stream name, user or query."""

from __future__ import annotations

import pytest

from rtmp_relay.rtmp_url import parse_url, without_name
from rtmp_spark.codec.errors import UserError


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("rtmp://h:1935/live/name?key=k", "rtmp://h:1935/live/***?***"),
        ("rtmp://bob:pw@h/live/a/b", "rtmp://h/live/***"),
        ("rtmp://h/live", "rtmp://h/live"),
        ("clip.flv", "clip.flv"),
    ],
)
def test_what_is_shown_of_a_url(url: str, shown: str) -> None:
    assert without_name(url) == shown


@pytest.mark.parametrize("url", ["rtm://h/live/NAME?k=NAME", "rtmp://bob:NAME@h:99999/live/NAME", "rtmp:///live/NAME"])
def test_an_error_about_a_url_does_not_show_the_name(url: str) -> None:
    with pytest.raises(UserError) as error:
        parse_url(url)
    assert "NAME" not in str(error.value)
