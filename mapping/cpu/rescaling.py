"""Pass: compute long rows of weights in parts, so that no row has to stay in memory."""

from __future__ import annotations

from dataclasses import replace

from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.cpufusion import RESCALING
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.operations import recognise_contraction
from tcomp.mapping.plan.schedule import scheduled_anew
from tcomp.mapping.plan.values import Plan, Rescaled
from tcomp.mapping.rescaling.parts import rescaled
from tcomp.mapping.rescaling.weights import Weights, scores_of, weights_of
from tcomp.mapping.tiles.splitting import PART_MULTIPLE
from tcomp.model.scop import Scop


def rescale_weights(machine: Machine, plan: Plan, options: MappingOptions) -> Plan:
    """Rescale the weights of long rows whose scores are products, which only weights and their maximum need."""
    if options.counts_loops or options.fusion_strategy == "min":
        return plan
    scop, done = plan.scop, list[Rescaled]()
    for name in plan.scop.by_name:
        weights = long_weights(machine, scop, name)
        if weights is not None and _is_computed(plan.scop, weights):
            steps = steps_of_a_part(weights.steps[1])
            scop, storages = rescaled(scop, weights, steps)
            done.append(Rescaled(name, steps, storages))
    return plan if not done else replace(scheduled_anew(plan, scop), rescaled=tuple(done))


def long_weights(machine: Machine, scop: Scop, name: str) -> Weights | None:
    """What is known of a statement of weights whose rows are too long to stay in a cache; None if it is none."""
    weights = weights_of(scop, name)
    if weights is None or weights.rounded:
        return None
    least = min(RESCALING.least_steps, machine.middle_cache // RESCALING.bytes_of_a_weight)
    if weights.lowered and weights.hides:
        least = min(least, RESCALING.least_hidden_steps)
    return weights if weights.steps[1] >= least else None


def steps_of_a_part(steps: int) -> int:
    """How many of the steps a part has, all but the last as many."""
    least = max(RESCALING.part, -(-steps // RESCALING.most_parts))
    return least + -least % PART_MULTIPLE


def _is_computed(scop: Scop, weights: Weights) -> bool:
    """Whether scores are made of results of products that nothing else needs."""
    return any(
        s.target == storage and s.kind == "update" and recognise_contraction(s) is not None
        for storage in scores_of(scop, weights)
        for s in scop.users[storage]
    )
