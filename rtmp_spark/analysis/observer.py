"""What is called while captures are analysed: the screen, the extraction of streams, slices.

A module of its own, because its subclasses could not inherit from a compiled class (setup.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from rtmp_spark.analysis.row_sink import Batch

Analysis = TypeVar("Analysis")  # of one connection


class Observer(Generic[Analysis]):
    """Is called for each connection of an analysis. Subclasses override the methods that they need."""

    live = False  # whether `settled` is called

    def closed(self, connection: Analysis) -> None:
        """A connection that gave rows is over."""
        self.noted(self.note(connection))

    def note(self, connection: Analysis) -> object:
        """What to keep of a connection that is over; it may be called in another process than `noted`."""

    def first_commands_wanted(self) -> bool:
        """Whether `note` needs the first commands of another connection; called once for each that is RTMP and
        wanted as far as its addresses and uid show."""
        return False

    def noted(self, note: object) -> None:
        """Keep the result of `note`."""

    def settled(self, batches: Sequence[Batch]) -> None:
        """Both sides of a connection ended while the capture is still being written. These are its rows if no more
        packets of it come; `closed` follows later."""
