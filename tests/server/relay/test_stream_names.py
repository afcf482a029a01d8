"""Which app and stream names and which keys the relay accepts."""

from __future__ import annotations

import pytest

from rtmp_relay.relay.stream_names import BadName, checked_name, has_valid_key


@pytest.mark.parametrize(
    "name", ["..", "../x", "a/../b", "/abs", "a//b", "a/", "", ".", "a\nb", "a\0", "x" * 256, None, 3]
)
def test_invalid_names_are_refused(name: object) -> None:
    with pytest.raises(BadName):
        checked_name(name, "name")


@pytest.mark.parametrize("name", ["cam", "a/b", "a.b", "...", "ünï", "x" * 255, "%2e%2e"])
def test_valid_names_are_accepted(name: str) -> None:
    assert checked_name(name, "name") == name


def test_which_queries_have_a_valid_key() -> None:
    assert has_valid_key((), "")
    assert has_valid_key(("a", "b"), "x=1&key=b")
    assert has_valid_key(("b", "a"), "x=1&key=b")
    assert has_valid_key(("a",), "", "key=a")
    assert not has_valid_key(("a",), "key=")
    assert not has_valid_key(("a",), "")
    assert not has_valid_key(("ä",), "key=%ff")
