"""In what order groups run, and whether there is one."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from tcomp.mapping.plan.values import Group


def in_order(groups: list[Group], successors: Mapping[int, set[int]]) -> list[Group]:
    """Groups so that producers come before consumers; where nothing decides, in textual order."""
    home = {c: position for position, g in enumerate(groups) for c in g.clusters}
    needs: dict[int, set[int]] = {position: set() for position in range(len(groups))}
    for cluster, consumers in successors.items():
        for consumer in consumers:
            if home[consumer] != home[cluster]:
                needs[home[consumer]].add(home[cluster])
    after: dict[int, list[int]] = {}
    for position, needed in needs.items():
        for other in needed:
            after.setdefault(other, []).append(position)
    ready = [(groups[p].root, p) for p, needed in needs.items() if not needed]
    heapq.heapify(ready)
    ordered: list[Group] = []
    while ready:
        _, first = heapq.heappop(ready)
        ordered.append(groups[first])
        for position in after.get(first, ()):
            needs[position].discard(first)
            if not needs[position]:
                heapq.heappush(ready, (groups[position].root, position))
    assert len(ordered) == len(groups)
    return ordered


def leads_into(
    starts: Iterable[int], inside: set[int], formed: Iterable[Group], successors: Mapping[int, set[int]]
) -> bool:
    """Whether what some clusters compute is needed ``inside`` a group, by whatever way.

    A way that enters one of the groups ``formed`` leaves it from any of its clusters, for these run together.
    """
    together = {c: g.clusters for g in formed for c in g.clusters}
    seen: set[int] = set()
    waiting = [*starts]
    while waiting:
        cluster = waiting.pop()
        if cluster in inside:
            return True
        if cluster not in seen:
            fellows = together.get(cluster, (cluster,))
            seen.update(fellows)
            waiting += [c for f in fellows for c in successors[f]]
    return False
