"""The argument parser of the command line: it lists its arguments, and its errors are a sentence with a remedy."""

from __future__ import annotations

import argparse
import re
from typing import Any, NoReturn

from rtmp_spark.codec.errors import UserError


class CommandParser(argparse.ArgumentParser):
    """An ArgumentParser with a public list of `arguments`, for documentation and completion.

    argparse keeps its list private, so this class records every argument that is added to the parser or to a group.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.arguments: list[argparse.Action] = []
        super().__init__(*args, **kwargs)

    def add_argument(self, *args: Any, **kwargs: Any) -> argparse.Action:
        action = super().add_argument(*args, **kwargs)
        self.arguments.append(action)
        return action

    def add_argument_group(self, *args: Any, **kwargs: Any) -> Any:
        return self._recording(super().add_argument_group(*args, **kwargs))

    def add_mutually_exclusive_group(self, **kwargs: Any) -> Any:
        return self._recording(super().add_mutually_exclusive_group(**kwargs))

    def _recording(self, group: Any) -> Any:
        add = group.add_argument

        def add_argument(*args: Any, **kwargs: Any) -> argparse.Action:
            action: argparse.Action = add(*args, **kwargs)
            self.arguments.append(action)
            return action

        group.add_argument = add_argument
        return group

    def error(self, message: str) -> NoReturn:
        raise _usage_error(self.prog, message)


def _usage_error(prog: str, message: str) -> UserError:
    """argparse's message, such as `argument --port: expected one argument`, as a sentence and a remedy."""
    see_help = f"See `{prog} --help`."
    needed = re.fullmatch(r"the following arguments are required: (.+)", message)
    if needed:
        return UserError(f"{prog.rpartition(' ')[2]} needs {needed[1].replace('/--', ' or --')}.", see_help)
    argument, separator, problem = message.removeprefix("argument ").partition(": ")
    if not separator:
        return UserError(f"{message}.", see_help)
    chosen = re.fullmatch(r"invalid choice: (.+?) \(choose from (.+)\)", problem)
    if chosen:
        known = chosen[2].replace("'", "")
        return UserError(f"Invalid value {chosen[1]} for {argument}.", f"Choose one of {known}.")
    if problem == "expected one argument":
        return UserError(f"{argument} needs a value.", see_help)
    sentence, separator, remedy = problem.rpartition("; ")
    if not separator or not remedy:
        return UserError(f"{argument}: {problem}.", see_help)
    return UserError(f"{_capital(sentence)} for {argument}.", f"{_capital(remedy)}.")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
