"""In what order groups run, and whether there is one."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping

from tcomp.mapping.plan.values import Group


class Waiting:
    """Groups that have yet to run, some of which are ready to: all that they need has run."""

    def __init__(self, groups: Iterable[Group], successors: Mapping[int, set[int]]) -> None:
        self._groups = {group.root: group for group in groups}
        home = {c: root for root, group in self._groups.items() for c in group.clusters}
        self._needs: dict[int, set[int]] = {root: set() for root in self._groups}
        self._after: dict[int, set[int]] = {root: set() for root in self._groups}
        for cluster, consumers in successors.items():
            for consumer in consumers:
                if home[consumer] != home[cluster]:
                    self._needs[home[consumer]].add(home[cluster])
                    self._after[home[cluster]].add(home[consumer])
        self._ready = sorted(root for root, needed in self._needs.items() if not needed)

    @property
    def ready(self) -> tuple[Group, ...]:
        """The groups that may run next, in textual order; none once all have run."""
        assert self._ready or not any(self._needs.values()), "groups wait for each other"
        return tuple(self._groups[root] for root in self._ready)

    def run(self, group: Group) -> None:
        """Take away one of those that are ready; others may become so."""
        self._ready.remove(group.root)
        for root in self._after[group.root]:
            self._needs[root].discard(group.root)
            if not self._needs[root]:
                bisect.insort(self._ready, root)


def in_order(groups: Iterable[Group], successors: Mapping[int, set[int]]) -> list[Group]:
    """Groups so that producers come before consumers; where nothing decides, in textual order."""
    waiting = Waiting(groups, successors)
    ordered: list[Group] = []
    while ready := waiting.ready:
        waiting.run(ready[0])
        ordered.append(ready[0])
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


def are_apart(some: set[int], others: set[int], formed: Iterable[Group], successors: Mapping[int, set[int]]) -> bool:
    """Whether some clusters need nothing of others, and these only what they are handed at once."""
    outside = set[int]().union(*(successors[c] for c in some)) - others - some
    behind = set[int]().union(*(successors[c] for c in others)) - others
    return not leads_into(outside, others, formed, successors) and not leads_into(behind, some, formed, successors)
