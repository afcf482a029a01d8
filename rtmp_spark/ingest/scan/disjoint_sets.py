"""Things that belong together because others do: disjoint sets, joined pair by pair."""

from __future__ import annotations

from collections.abc import Iterable


class Sets:
    def __init__(self, members: Iterable[int]) -> None:
        self._parent = {member: member for member in members}

    def root(self, member: int) -> int:
        """The member that stands for its set."""
        while self._parent[member] != member:
            self._parent[member] = self._parent[self._parent[member]]
            member = self._parent[member]
        return member

    def join(self, member: int, other: int) -> None:
        """The root of `member` stands for both."""
        self._parent[self.root(other)] = self.root(member)
