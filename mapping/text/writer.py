"""A ``Plan`` as text that people read, change and give back (``reader.py``).

The text is TOML.  ``tree`` is the schedule as isl writes schedule trees, one node a line; tables of clusters, groups,
buffers and so on follow, one for each fact that the tree does not hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import islpy as isl

from tcomp.mapping.memory.references import references
from tcomp.mapping.plan.deals import Deal, Dealt, Phase
from tcomp.mapping.plan.layouts import StepGroups, Swizzle
from tcomp.mapping.plan.operations import TileOperation
from tcomp.mapping.plan.values import Buffer, Copy, Group, Pipeline, Plan, Rescaled
from tcomp.mapping.tiles.splitting import accumulates_apart, split_statement

Value = str | int | float | Sequence["Value"] | Mapping[str, "Value"]


def plan_text(plan: Plan, stage: str) -> str:
    """The plan after the pass ``stage``."""
    lines = [f"stage = {_toml(stage)}"]
    if plan.notes:
        lines.append(f"notes = {_toml(plan.notes)}")
    lines += ["tree = '''", tree_text(plan.tree).rstrip("\n"), "'''"]
    for name, rows in _tables(plan).items():
        for row in rows:
            lines += ["", f"[[{name}]]", *(f"{key} = {_toml(value)}" for key, value in row.items())]
    return "\n".join(lines) + "\n"


def tree_text(tree: isl.Schedule) -> str:
    """A schedule tree as isl prints it, one node a line, without what tells its code generator how to print loops."""
    printer = isl.Printer.to_str(isl.DEFAULT_CONTEXT).set_yaml_style(isl.yaml_style.BLOCK)
    text: str = printer.print_schedule(tree).get_str()
    return "".join(line for line in text.splitlines(keepends=True) if not line.lstrip().startswith("options:"))


def _tables(plan: Plan) -> dict[str, list[dict[str, Value]]]:
    return {
        "atomic": [{"statement": name} for name in plan.atomic],
        "swept": [{"statement": one.statement, "count": one.count} for one in plan.swept],
        "distributed": [{"statement": name} for name in plan.distributed],
        "unfolded": [{"statement": name, "place": place, "order": order} for name, place, order in plan.unfolded],
        "quotients": [{"statement": name, "index": i, "number": number} for name, i, number in plan.quotients],
        "merged": [{"statement": name, "outer": outer, "inner": inner} for name, outer, inner in plan.merged],
        "mirrored": [{"statement": name, "first": first, "second": second} for name, first, second in plan.mirrored],
        "outlined": [{"statement": name, "place": place} for name, place in plan.outlined],
        "inlined": [{"statement": name} for name in plan.inlined],
        "rescaled": [_rescaled(r) for r in plan.rescaled],
        "sought": [{"statement": one.statement, "parts": one.parts} for one in plan.sought],
        "parted": [{"statement": p.statement, "steps": p.steps} for p in plan.parted],
        "split": [_split(plan, storage) for storage in sorted(plan.stored - plan.searched)],
        "apart": [{"statement": name} for name in plan.apart],
        "kept": [{"storage": storage, "statements": names} for storage, names in plan.kept],
        "cluster": [{"statements": {s: c.coordinates[s] for s in c.statements}} for c in plan.clusters],
        "group": [_group(group) for group in plan.groups],
        "buffer": [_buffer(buffer) for buffer in plan.buffers.values()],
        "operation": [_operation(o) for o in plan.operations.values()],
        "phase": [_phase(phase) for phase in plan.phases.values()],
        "dealt": [_dealt(cluster, dealt) for cluster, dealt in sorted(plan.dealt.items())],
        "copy": [_copy(plan, copy) for copy in plan.copies],
        "pipeline": [_pipeline(mark, pipeline) for mark, pipeline in plan.pipelines.items()],
        "order": [{"group": number, "rows": rows} for number, rows in plan.orders.items()],
        "persistent": [{"group": number, "blocks": blocks} for number, blocks in plan.persistent.items()],
        "barrier": [{"before": place, "level": level} for place, level in plan.barriers.items()],
    }


def _rescaled(done: Rescaled) -> dict[str, Value]:
    row: dict[str, Value] = {"statement": done.weights, "steps": done.steps}
    if done.shared:
        row["shared"] = done.shared
    return row | {"summed" if done.summed else "running": 1, "row": done.row} if done.inside else row


def _split(plan: Plan, storage: str) -> dict[str, Value]:
    row: dict[str, Value] = {
        "statement": split_statement(plan.program, storage),
        "parts": plan.program.storages[storage].box.extent[0],
    }
    return row | {"apart": 1} if accumulates_apart(plan.program, storage) else row


def _operation(operation: TileOperation) -> dict[str, Value]:
    row: dict[str, Value] = {"mark": operation.mark, "kind": operation.kind, "statement": operation.statement}
    if operation.overhang:
        row["overhang"] = 1
    if operation.shifted:
        row["shifted"] = 1
    return row | {"atom": operation.atom} if operation.atom else row


def _group(group: Group) -> dict[str, Value]:
    row: dict[str, Value] = {"clusters": group.clusters, "members": group.members, "sizes": group.sizes}
    if group.shared:
        row["shared"] = group.shared
    if group.together:
        row["together"] = group.together
    if group.turns:
        row["turns"] = group.turns
    if group.seen is not None:
        row["seen"] = str(group.seen)
    if group.first is not None:
        row["first"] = str(group.first)
    if group.backwards:
        row["backwards"] = 1
    if group.expanded:
        row["recompute"] = {str(c): group.footprints[c].ratio for c in group.expanded}
    return row


def _buffer(buffer: Buffer) -> dict[str, Value]:
    row: dict[str, Value] = {"storage": buffer.storage, "space": buffer.space}
    if buffer.mark:
        row["mark"] = buffer.mark
    if buffer.space != "register":
        row["shape"] = buffer.shape
    if buffer.order:
        row["order"] = buffer.order
    if buffer.lower is not None:
        row["lower"] = str(buffer.lower)
    elif buffer.origin:
        row["origin"] = buffer.origin
    if buffer.folded:
        row["folded"] = buffer.folded
    if buffer.deals:
        row["deals"] = _deals(buffer.deals)
    return row


def _phase(phase: Phase) -> dict[str, Value]:
    row: dict[str, Value] = {
        "mark": phase.mark,
        "lanes": phase.lanes,
        "cluster": phase.cluster,
        "shape": phase.shape,
        "dimensions": phase.dimensions,
    }
    return row | {"everywhere": 1} if phase.everywhere else row


def _dealt(cluster: int, dealt: Dealt) -> dict[str, Value]:
    shares = [
        {"position": s.position, "threads": s.threads, "dimension": s.dimension}
        | ({} if s.vector == 1 else {"vector": s.vector})
        for s in dealt.shares
    ]
    row: dict[str, Value] = {"cluster": cluster, "form": dealt.form, "shape": dealt.shape}
    return row | {"deals": _deals(dealt.deals), "shares": shares}


def _deals(deals: Iterable[Deal]) -> list[Value]:
    return [
        {"extent": d.extent, "threads": d.threads, "vector": d.vector}
        | ({} if d.dimension is None else {"dimension": d.dimension})
        for d in deals
    ]


def _copy(plan: Plan, copy: Copy) -> dict[str, Value]:
    known = references(plan.scop.by_name[copy.statement], copy.storage)
    row: dict[str, Value] = {
        "storage": copy.storage,
        "mark": copy.mark,
        "statement": copy.statement,
        "reads": [known.index(read) for read in copy.reads],
        "shape": copy.shape,
        "lower": str(copy.lower),
        "order": copy.order,
        "padding": copy.padding,
        "vector": copy.vector,
    }
    if copy.step != 1:
        row["step"] = copy.step
    if copy.dtype != plan.scop.storages[copy.storage].dtype:
        row["dtype"] = copy.dtype.name
    if copy.ahead:
        row["ahead"] = 1
    if copy.groups is not None:
        row["groups"] = _groups(copy.groups)
    if copy.swizzle is not None:
        row["swizzle"] = _swizzle(copy.swizzle)
    if copy.route:
        row["route"] = copy.route
    return row


def _swizzle(swizzle: Swizzle) -> dict[str, Value]:
    row: dict[str, Value] = {"side": swizzle.side, "step": swizzle.step}
    row |= {"warps": swizzle.warps} if swizzle.warps else {}
    return row | {"around": list(swizzle.around)} if swizzle.around else row


def _pipeline(mark: str, pipeline: Pipeline) -> dict[str, Value]:
    row: dict[str, Value] = {"phase": mark, "stages": pipeline.stages, "distance": pipeline.distance}
    if pipeline.flight:
        row["flight"] = pipeline.flight
    return row | {"kind": pipeline.kind} if pipeline.kind else row


def _groups(groups: StepGroups) -> dict[str, Value]:
    row: dict[str, Value] = {"dimension": groups.dimension, "size": groups.size, "step": groups.step}
    if groups.flipped:
        row["flipped"] = 1
    if groups.depth:
        row["depth"] = groups.depth
    return row if groups.summed is None else row | {"summed": groups.summed}


def _toml(value: Value) -> str:
    """A value as TOML on one line; JSON's escapes in strings are TOML's."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        inside = ", ".join(f"{key} = {_toml(item)}" for key, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, Sequence):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return repr(value)
