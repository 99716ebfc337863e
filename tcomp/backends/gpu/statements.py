"""Statement instances as lines of a kernel."""

from __future__ import annotations

from tcomp.backends.dialect import bare, combine, load, store
from tcomp.backends.gpu.words.atomics import atomic_name
from tcomp.backends.gpu.words.spelling import DeviceSpeller, UsedIndices, expression_text
from tcomp.backends.gpu.writer import KernelWriter
from tcomp.backends.stretches import PLACE, sent
from tcomp.grammar.tree.dataranges import inside_ranges, ranges_of
from tcomp.grammar.tree.function import Cast, Expr, Select
from tcomp.loops.indexing import Ranges
from tcomp.loops.ir import Execute, LoopExpr, Number, Variable
from tcomp.values.operators import FLOAT32, DType


def speller(writer: KernelWriter, node: Execute, ranges: Ranges) -> DeviceSpeller:
    """What spells an instance where the writer stands."""
    statement = writer.statements[node.statement]
    own = statement.indices[statement.tile_rank :]
    arguments = dict(zip(statement.indices, node.arguments, strict=True)) | writer.firsts
    names = {i: _index_text(writer, i, arguments[i], ranges) for i in (*own, *writer.firsts)}
    program = writer.program
    return DeviceSpeller(
        writer.plan.scop, {}, UsedIndices(names), program.needs, program.checked, program.function.source,
        program.dialect, node.statement, arguments, ranges, writer.locals, writer.fetched, writer.used, writer.loaded,
        writer.rounded, reported=statement.reported,
    )  # fmt: skip


def _index_text(writer: KernelWriter, index: str, argument: LoopExpr, ranges: Ranges) -> str:
    """The C name of an index: that of the iterator that it is, its number, or a name of its own."""
    simple = ranges.simplify(argument)
    if (isinstance(simple, Number) and simple.value >= 0) or isinstance(simple, Variable):
        return expression_text(simple, ranges)
    return writer.program.indices[index]


def named_indices(writer: KernelWriter, own: DeviceSpeller) -> dict[str, LoopExpr]:
    """The values of those indices that a speller has named and that are no iterators."""
    indices = own.indices
    assert isinstance(indices, UsedIndices)
    fresh: dict[str, LoopExpr] = {}
    for index in indices.asked:
        name, argument = dict.__getitem__(indices, index), own.ranges.simplify(own.arguments[index])
        if name == writer.program.indices.get(index) and argument != Variable(name):
            fresh[name] = argument
    return fresh


def assign(writer: KernelWriter, depth: int, own: DeviceSpeller, target: str, value: str, statement: str) -> None:
    """An assignment behind the declarations of those indices that it names and that are not declared yet."""
    put_behind_indices(writer, depth, own, assignment(target, value), statement)


def put_behind_indices(writer: KernelWriter, depth: int, own: DeviceSpeller, line: str, statement: str) -> None:
    """A line behind the declarations of those indices that it names and that are not declared yet."""
    index_type = writer.program.dialect.index
    fresh = named_indices(writer, own)
    clash = any(writer.declared.get(name, argument) != argument for name, argument in fresh.items())
    if clash:
        writer.put(depth, "{")
        depth += 1
    for name, argument in fresh.items():
        if clash or name not in writer.declared:
            writer.put(depth, f"const {index_type} {name} = {expression_text(argument, own.ranges)};")
    if not clash:
        writer.declared |= fresh
    writer.put(depth, line)
    writer.at(statement)
    if clash:
        writer.put(depth - 1, "}")


def _before_memory_rounds(value: Expr, dtype: DType) -> Expr:
    """A value that is stored as a short float, without the same rounding in front of that."""
    rounded = isinstance(value, Cast) and value.dtype == dtype and dtype.is_short_float
    return value.operand if rounded and isinstance(value, Cast) and value.operand.dtype == FLOAT32 else value


def execute(writer: KernelWriter, node: Execute, depth: int, ranges: Ranges) -> None:
    """One instance of a statement."""
    statement = writer.statements[node.statement]
    own = speller(writer, node, ranges)
    dtype = writer.plan.scop.storages[statement.target].dtype
    way = sent(statement, own)
    own = own if way is None else way.speller
    target = writer.redirected.get(statement.name) or own.target(statement.target, statement.subscripts)
    rounded_anyhow = statement.kind != "update" and not statement.scatters
    value = own.value(_before_memory_rounds(statement.value, dtype) if rounded_anyhow else statement.value)
    if statement.name in writer.chosen and isinstance(statement.value, Select):
        choice = statement.value
        arms = (choice.condition, choice.then, choice.otherwise)
        value = f"tc_choose({', '.join(bare(own.value(arm)) for arm in arms)})"
    asked = ranges_of(statement.value) if statement.scatters else ()
    inside = way.inside if way is not None else " && ".join(map(own.value, asked))
    if inside:
        # What is outside of a range, or of a stretch, has no place to go to.
        value = own.value(inside_ranges(statement.value))
        writer.put(depth, "{")
        for name, argument in named_indices(writer, own).items():
            writer.put(depth + 1, f"const {writer.dialect.index} {name} = {expression_text(argument, ranges)};")
        if way is not None:
            writer.put(depth + 1, f"const {writer.dialect.index} {PLACE} = {bare(way.place)};")
        writer.put(depth + 1, f"if ({inside}) {{")
    if statement.kind == "update" and statement.atomic:
        assert statement.reduction is not None
        done = f"{atomic_name(statement.reduction, dtype)}(&{target}, {bare(value)});"
        _put_instance(writer, depth, own, done, statement.name, bool(inside))
        return
    if statement.kind == "update":
        assert statement.reduction is not None
        value = combine(statement.reduction, load(target, dtype, writer.dialect), value, dtype)
    stored = store(bare(value), dtype, writer.dialect)
    _put_instance(writer, depth, own, assignment(target, stored), statement.name, bool(inside))


def _put_instance(
    writer: KernelWriter, depth: int, own: DeviceSpeller, line: str, statement: str, asked: bool
) -> None:  # fmt: skip
    """The line of an instance, at the end of the block that ``asked`` opened for it, or behind its indices."""
    if not asked:
        put_behind_indices(writer, depth, own, line, statement)
        return
    writer.put(depth + 2, line)
    writer.at(statement)
    writer.put(depth + 1, "}")
    writer.put(depth, "}")


def assignment(target: str, value: str) -> str:
    """An assignment, with the operator in front of the equals sign where the value is the target plus something."""
    for operator in ("+", "*"):
        head = f"{target} {operator} "
        rest = value.removeprefix(head)
        if rest != value:
            return f"{target} {operator}= {bare(rest)};"
    return f"{target} = {value};"
