"""The cheapest way to give each of some nodes one of two labels: a minimum cut of a graph (Dinic 1970)."""

from __future__ import annotations

from collections import deque

START, END = 0, 1
"""The nodes that always have the label 0, and 1."""


class Labels:
    """Costs of labels 0 and 1, as edges that a cut between both sides may have to cross; all are whole numbers."""

    def __init__(self) -> None:
        self._edges: list[list[int]] = [[], []]
        self._to: list[int] = []
        self._room: list[int] = []

    def node(self, first: int = 0, second: int = 0) -> int:
        """A node that costs so much with label 0, and with label 1."""
        self._edges.append([])
        number = len(self._edges) - 1
        self.edge(number, END, first)
        self.edge(START, number, second)
        return number

    def edge(self, before: int, after: int, cost: int) -> None:
        """What it costs that ``before`` has label 0 and ``after`` label 1."""
        if cost <= 0:
            return
        for source, target, room in ((before, after, cost), (after, before, 0)):
            self._edges[source].append(len(self._to))
            self._to.append(target)
            self._room.append(room)

    def ones(self) -> set[int]:
        """The nodes that have the label 1 in the cheapest labels; of equal ones, those with the fewest."""
        while (levels := self._levels())[END] >= 0:
            begun = [0] * len(self._edges)
            while self._push(levels, begun):
                pass
        # What cannot reach the end any more without a full edge costs nothing with label 0.
        reaching, waiting = {END}, [END]
        while waiting:
            for edge in self._edges[waiting.pop()]:
                node = self._to[edge]
                if node not in reaching and self._room[edge ^ 1] > 0:
                    reaching.add(node)
                    waiting.append(node)
        return reaching

    def _levels(self) -> list[int]:
        """How many edges with room lie between the start and each node."""
        levels = [-1] * len(self._edges)
        levels[START] = 0
        waiting = deque([START])
        while waiting:
            node = waiting.popleft()
            for edge in self._edges[node]:
                after = self._to[edge]
                if self._room[edge] > 0 and levels[after] < 0:
                    levels[after] = levels[node] + 1
                    waiting.append(after)
        return levels

    def _push(self, levels: list[int], begun: list[int]) -> bool:
        """Fill one path from the start to the end, if there is one with room."""
        path: list[int] = []
        node = START
        while node != END:
            edges = self._edges[node]
            while begun[node] < len(edges):
                edge = edges[begun[node]]
                if self._room[edge] > 0 and levels[self._to[edge]] == levels[node] + 1:
                    break
                begun[node] += 1
            if begun[node] < len(edges):
                path.append(edges[begun[node]])
                node = self._to[path[-1]]
            elif path:
                node = self._to[path.pop() ^ 1]
                begun[node] += 1
            else:
                return False
        amount = min(self._room[edge] for edge in path)
        for edge in path:
            self._room[edge] -= amount
            self._room[edge ^ 1] += amount
        return True
