"""The rows of `commands`, without secrets."""

from __future__ import annotations

import json
from typing import NamedTuple

from rtmp_spark.capture.tcp.frame_numbers import FRAME_MASK
from rtmp_spark.codec.limits import FIRST_COMMANDS, REDACT_CACHE_SECRETS
from rtmp_spark.codec.shared_arguments import Arguments
from rtmp_spark.conversation.command_arguments import PLAIN_CODE, Status
from rtmp_spark.conversation.connection_secrets import ConnectionSecrets
from rtmp_spark.conversation.facts import CommandFact, Row
from rtmp_spark.conversation.session import Exchange


class Shown(NamedTuple):
    """What is shown of a command: its arguments as JSON, and its status."""

    args_json: str
    level: str | None
    code: str | None
    description: str | None


class CommandRows:
    """Commands of one connection. If the table is wanted, `take` returns their rows. Otherwise `seen` counts them, and
    the first ones are kept in `first`."""

    __slots__ = ("_rows", "_secrets", "_table_wanted", "first", "seen")

    def __init__(self, secrets: ConnectionSecrets, *, table_wanted: bool) -> None:
        self._secrets = secrets
        self._table_wanted = table_wanted
        self._rows: dict[str, list[Row]] = {}
        self.first: list[Exchange] = []
        self.seen = 0

    def add(self, exchange: Exchange) -> None:
        if self._table_wanted:
            self._rows.setdefault(exchange.direction, []).append(self.row(exchange))
        else:
            self.seen += 1
            if len(self.first) < FIRST_COMMANDS:
                self.first.append(exchange)

    def take(self) -> dict[str, list[Row]]:
        """Rows by direction since the last call."""
        rows, self._rows = self._rows, {}
        return rows

    def row(self, exchange: Exchange) -> Row:
        fact, request, given = exchange.fact, exchange.request, exchange.status
        shown = self._without_secrets(fact, given)
        return (
            fact.msg_no, fact.ts, fact.frame & FRAME_MASK, fact.stream_id, fact.type_id,
            self._secrets.command_name(fact.name), fact.transaction_id, fact.amf_version, shown.args_json,
            None if request is None else request.msg_no, exchange.response_ms,
            shown.level, shown.code, shown.description,
        )  # fmt: skip

    def _without_secrets(self, fact: CommandFact, given: Status) -> Shown:
        """Commands of the same bytes share what is shown of them if the same few secrets are known."""
        secrets, args = self._secrets, fact.args
        notes = args.notes if type(args) is Arguments else {}
        noted = notes.get(CommandRows)
        if noted is not None and noted[0] is secrets.redactor and noted[1] == secrets.known.tokens:
            known: Shown = noted[2]
            return known
        redacted = secrets.arguments(fact)
        description = given.description and secrets.hide(given.description)
        level, code = (
            text if not text or PLAIN_CODE.fullmatch(text) else secrets.hide(text) for text in (given.level, given.code)
        )
        args_json = json.dumps(redacted, ensure_ascii=False, separators=(",", ":"))
        shown = Shown(args_json, level, code, description)
        if len(secrets.known.tokens) <= REDACT_CACHE_SECRETS:  # of thousands, each note would have a copy
            notes[CommandRows] = secrets.redactor, frozenset(secrets.known.tokens), shown
        return shown
