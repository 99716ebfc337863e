"""Pass: let threads share the elements of a reduction that data choose, each of them looking through all instances.

All instances of ``H(b(i)) +=! v(i)`` may meet, so without an index of the elements they run one after another.  With
one, ``n``, of stretches of the elements, ``n*W <= b(i) < (n+1)*W ? H(b(i)) += v(i)``, the instances of one stretch do.
Those of an element stay in their order, so results are the same to the bit, however many stretches there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.grammar.tree.dataranges import ranges_of
from tcomp.grammar.tree.function import is_indirect
from tcomp.mapping.machines.cpu import LINE_BYTES, Machine
from tcomp.mapping.machines.fitted.cputext import THREADS
from tcomp.mapping.machines.fitted.sweeps import SWEEPS
from tcomp.mapping.machines.gpu import Gpu
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.schedule import scheduled_anew
from tcomp.mapping.plan.values import Plan, Swept
from tcomp.mapping.tiles.atomics import can_be_atomic
from tcomp.mapping.tiles.sizes import lane_position
from tcomp.model.scop import Scop, ScopStatement, Stretch


@dataclass(frozen=True, slots=True)
class Sweeping:
    """When it pays: from so many instances and bytes of elements on, where fewer ``elements`` lie side by side.

    There are as many stretches as make up for that.  Of a row, ``together`` bytes count as one element.
    """

    instances: int
    bytes: int
    elements: int
    together: int = 1

    def beside(self, plan: Plan, statement: ScopStatement) -> int:
        """How many elements threads may share out without that."""
        cluster = next(c for c in plan.clusters if statement.name in c.statements)
        itemsize, row = plan.scop.storages[statement.target].dtype.itemsize, lane_position(plan.scop, statement)
        count = 1
        for position in cluster.coordinates[statement.name]:
            each = max(1, self.together // itemsize) if position == row else 1
            count *= -(-statement.extents[position] // each)
        return count


def sweep_on_processor(machine: Machine, plan: Plan, options: MappingOptions) -> Plan:
    """Let a processor's threads share elements: those of rows fill vectors before threads look through rows.

    As everywhere, the plan is for all threads of the machine, however many of them a kernel may take.
    """
    threads = min(machine.threads, SWEEPS.most) if options.parallel else 1
    if threads < 2:
        return plan
    return _swept(Sweeping(THREADS.parallel_instances, SWEEPS.least_bytes, threads, LINE_BYTES), plan)


def sweep_on_gpu(gpu: Gpu, plan: Plan, options: MappingOptions) -> Plan:
    """Let a GPU's threads share elements: one thread waits for memory at each instance.  No option asks for others."""
    del options
    return _swept(Sweeping(SWEEPS.least_on_gpu, 0, gpu.all_threads // SWEEPS.threads_per_sweeper), plan)


def _swept(sweeping: Sweeping, plan: Plan) -> Plan:
    """Give reductions stretches of their elements that leave threads idle."""
    found: list[Swept] = []
    for statement in plan.scop.statements:
        if not can_be_swept(plan.scop, statement.name) or statement.domain.is_empty():
            continue
        beside, size = sweeping.beside(plan, statement), plan.scop.storages[statement.target].bytes
        many = math.prod(statement.extents) >= sweeping.instances and size >= sweeping.bytes
        if many and beside < sweeping.elements:
            count = stretches(plan.scop, statement, -(-sweeping.elements // max(1, beside)))
            if count > 1:
                found.append(Swept(statement.name, count))
    if not found:
        return plan
    scop = plan.scop
    for one in found:
        scop = swept(scop, one.statement, one.count)
    return replace(scheduled_anew(plan, scop), swept=tuple(found))


def can_be_swept(scop: Scop, name: str) -> bool:
    """Whether a statement is a reduction in whose elements instances may meet that data choose, one by one."""
    statement = scop.by_name[name]
    apart = not statement.atomic and statement.stretch is None and not ranges_of(statement.value)
    return can_be_atomic(scop, name) and apart


def stretches(scop: Scop, statement: ScopStatement, wanted: int) -> int:
    """How many stretches there are where so many are wanted: none is empty."""
    extent = scop.storages[statement.target].box.extent[_dimension(scop, statement)]
    return -(-extent // -(-extent // min(wanted, extent)))


def swept(scop: Scop, name: str, count: int) -> Scop:
    """The program in which an update has so many stretches of its elements."""
    statement = scop.by_name[name]
    dimension = _dimension(scop, statement)
    box = scop.storages[statement.target].box
    stretch = Stretch(_fresh(statement), dimension, box.origin[dimension], -(-box.extent[dimension] // count))
    made = _with_stretch(statement, stretch, count)
    statements = tuple(made if s is statement else s for s in scop.statements)
    return Scop(scop.storages, statements, scop.sizes, scop.warnings, scop.around)


def _dimension(scop: Scop, statement: ScopStatement) -> int:
    """The longest dimension along which data choose."""
    extent = scop.storages[statement.target].box.extent
    chosen = [d for d, subscript in enumerate(statement.subscripts) if is_indirect(subscript)]
    return max(chosen, key=lambda d: (extent[d], -d))


def _fresh(statement: ScopStatement) -> str:
    name = "stretch"
    while name in statement.indices:
        name += "_"
    return name


def _with_stretch(statement: ScopStatement, stretch: Stretch, count: int) -> ScopStatement:
    """The update with the stretch as its first index: it writes nothing outside of that."""
    own = [f"i{d}" for d in range(len(statement.indices))]
    every = isl.Set(f"{{ [n] : 0 <= n < {count} }}")
    domain = every.flat_product(statement.domain.reset_tuple_id()).set_tuple_name(statement.name)
    for position, index in enumerate((stretch.index, *statement.indices)):
        domain = domain.set_dim_name(isl.dim_type.set, position, index)
    back = isl.Map(
        f"{{ {statement.name}[{', '.join(['n', *own])}] -> {statement.name}[{', '.join(own)}] }}"
    ).intersect_domain(domain)
    rank = statement.write.dim(isl.dim_type.out)
    elements = [f"e{d}" for d in range(rank)]
    at = elements[stretch.dimension]
    first = f"{stretch.origin} + {stretch.width}*n"
    inside = isl.Map(
        f"{{ {statement.name}[{', '.join(['n', *own])}] -> {statement.target}[{', '.join(elements)}]"
        f" : {first} <= {at} < {first} + {stretch.width} }}"
    )
    return replace(
        statement,
        domain=domain,
        indices=(stretch.index, *statement.indices),
        write=back.apply_range(statement.write).intersect(inside),
        reads=tuple(back.apply_range(read) for read in statement.reads),
        renumbered=statement.reported,
        stretch=stretch,
    )
