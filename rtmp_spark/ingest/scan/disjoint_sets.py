"""Disjoint sets (union-find)."""

from __future__ import annotations

from collections.abc import Iterable


class DisjointSets:
    def __init__(self, members: Iterable[int]) -> None:
        self._parent = {member: member for member in members}

    def root(self, member: int) -> int:
        """The member that represents its set."""
        while self._parent[member] != member:
            self._parent[member] = self._parent[self._parent[member]]
            member = self._parent[member]
        return member

    def join(self, member: int, other: int) -> None:
        """Unite both sets; the root of `member` represents them."""
        self._parent[self.root(other)] = self.root(member)
