"""The parser lists all of its arguments, wherever they were added."""

from __future__ import annotations

import re

import pytest

from rtmp_spark import cli
from rtmp_spark.commands.options.command_parser import CommandParser


def test_arguments_of_groups_are_listed_in_order() -> None:
    parser = CommandParser(prog="program")
    parser.add_argument("file")
    group = parser.add_argument_group("group")
    group.add_argument("--in-group")
    exclusive = parser.add_mutually_exclusive_group()
    exclusive.add_argument("--one")
    exclusive.add_argument("--other")
    assert [action.dest for action in parser.arguments] == ["help", "file", "in_group", "one", "other"]


@pytest.mark.parametrize("name", cli.installed_commands())
def test_every_option_in_the_help_is_listed(name: str) -> None:
    parser = cli.command_parser(name)
    listed = {option for action in parser.arguments for option in action.option_strings}
    shown = set(re.findall(r"^  (?:-\w(?: \S+)?, )?(--[\w-]+)", parser.format_help(), re.MULTILINE))
    assert "--debug" in shown and shown <= listed
