"""What a program makes use of, to see whether random programs reach all of the language."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tcomp.fuzzing.programs.programs import Program
from tcomp.grammar.checking.bits import BITWISE
from tcomp.grammar.checking.places import PLACES
from tcomp.grammar.ranges.ranges import Ranges, infer
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.function import (
    Binary,
    Call,
    Cast,
    Constant,
    Expr,
    Function,
    Index,
    Read,
    Select,
    Statement,
    children,
    depends_on_data,
    walk,
)
from tcomp.mapping.plan.operations import bare

_SMALLEST_PRIME_SEEN = 5

_OF_BITS = {name: mark for mark, name in BITWISE.items()} | {"bit_not": "~", "popcount": "popcount", "clz": "clz"}
"""Functions of bits, with what stands for them in program text."""

FEATURES = (
    *(f"{count} statements" for count in range(1, 6)), "6 statements or more",
    *(f"rank {rank}" for rank in range(5)), "rank 5 or more",
    *(f"{operator}" for operator in ("=", "+=", "+=!", "*=", "*=!", "min=", "min=!", "max=", "max=!")),
    "argmin=!", "argmax=!", "place of several indices", "&", "|", "^", "~", "<<", ">>", "popcount", "clz",
    "reduction over 2 or more indices", "stride", "dilation", "offset", "division in a subscript",
    "remainder in a subscript", "difference divided in a subscript",
    "comparison of elements in a subscript", "extremum in a subscript", "choice in a subscript", "strided target",
    "scatter",
    "division in a target", "remainder in a target", "index twice in a subscript list", "triangular range",
    "inferred range", "guard", "condition on data", "let", "several lets", "let used twice", "exists",
    "constant_exterior", "repeat_edge", "repeat_image", "mirror_image", "mirror_interior", "indirect read",
    "indirect read twice", "const parameter", "const with a default", "temporary", "temporary of a temporary",
    "redefinition", "partial update", "read of its own target", "several outputs", "content of an output",
    "extents by expressions",
    "scalar input", "mixed types", "16-bit floats", "float64", "8-bit integers", "unsigned integers", "bool",
    "cast", "built-in function", "integer division of values", "remainder of values", "product of indices",
    "extent 0", "extent 1", "extents are large primes", "empty range",
    "more than 32768 points", "sum of products", "large sum of products",
    "product of three reads", "range from data", "rows of entries", "entry that looks up its row",
    "value where data choose", "last", "first", "block of steps", "block in a block", "step in a subscript",
)  # fmt: skip
"""Every feature that is looked for, in the order in which they are shown."""


def features(program: Program) -> frozenset[str]:
    """The features of a program.  Raises TcompError."""
    function = program.function
    ranges = infer(function, program.sizes)
    count = len(list(syntax.statements(program.definition.body)))
    found = {f"{count} statements" if count < 6 else "6 statements or more"}
    found.update(_of_tensors(function, ranges))
    found.update(_of_text(program.definition))
    for number, statement in enumerate(function.statements):
        found.update(_of_statement(function, number, statement))
        hull = ranges.domains[number].hull
        points = 1
        for low, high in hull.values():
            points *= max(0, high - low + 1)
        if not points:
            found.add("empty range")
        if points > 1 << 15:
            found.add("more than 32768 points")
        if _sums_products(statement):
            found.add("large sum of products" if points > 1 << 15 else "sum of products")
    return frozenset(found)


def _of_tensors(function: Function, ranges: Ranges) -> Iterator[str]:
    types = set()
    for tensor in function.tensors.values():
        dtype = tensor.dtype
        if tensor.role == "const":
            yield "const parameter"
            if tensor.default is not None:
                yield "const with a default"
            continue
        types.add(dtype)
        yield f"rank {tensor.rank}" if tensor.rank < 5 else "rank 5 or more"
        yield from _of_extents(ranges.boxes[tensor.name].extent)
        if tensor.role == "temporary":
            yield "temporary"
        if tensor.role == "input" and tensor.rank == 0:
            yield "scalar input"
        if any(isinstance(dim, Binary) for dim in tensor.dims or ()) and tensor.role == "input":
            yield "extents by expressions"
        if dtype.is_float and dtype.bits == 16:
            yield "16-bit floats"
        if dtype.kind in ("int", "uint") and dtype.bits == 8:
            yield "8-bit integers"
        yield from ({"uint": "unsigned integers", "bool": "bool"}[k] for k in ("uint", "bool") if dtype.kind == k)
        if dtype.is_float and dtype.bits == 64:
            yield "float64"
    if len(types) > 1:
        yield "mixed types"
    if len(function.outputs) > 1:
        yield "several outputs"
    if function.needs_content:
        yield "content of an output"


def _of_extents(extents: tuple[int, ...]) -> Iterator[str]:
    for extent in extents:
        if extent < 2:
            yield f"extent {extent}"
        elif extent >= _SMALLEST_PRIME_SEEN and all(extent % d for d in range(2, extent)):
            yield "extents are large primes"


def _of_text(definition: syntax.Definition) -> Iterator[str]:
    yield from _of_blocks(definition.body, frozenset())
    for statement in syntax.statements(definition.body):
        lets = [c for c in statement.clauses if isinstance(c, syntax.Let)]
        if lets:
            yield "let"
        if len(lets) > 1:
            yield "several lets"
        texts = [str(statement.value), *(str(let.value) for let in lets)]
        if any(" ".join(texts).count(let.name.name) > 1 for let in lets):
            yield "let used twice"
        if any(isinstance(c, syntax.Exists) for c in statement.clauses):
            yield "exists"
        yield from (clause.which for clause in statement.clauses if isinstance(clause, syntax.Order))
        yield from _of_data(statement)
        if statement.operator in PLACES:
            yield statement.operator
            if statement.others:
                yield "place of several indices"


def _of_data(statement: syntax.Statement) -> Iterator[str]:
    """Ranges and elements that data choose.  Calls of functions count as reads, but in ranges there are few."""
    for given in (c for c in statement.clauses if isinstance(c, syntax.Range)):
        reads = [e for bound in (given.lower, given.upper) for e in _applied(bound)]
        if not reads:
            continue
        yield "range from data"
        tensors = {read.function.name for read in reads}
        if isinstance(given.lower, syntax.Apply) and isinstance(given.upper, syntax.Apply) and len(tensors) == 1:
            yield "rows of entries"
            if given.index.name in map(str, statement.subscripts or ()):
                yield "entry that looks up its row"
    if statement.operator == "=" and any(True for s in statement.subscripts or () for _ in _applied(s)):
        yield "value where data choose"


def _applied(expr: syntax.Expr) -> Iterator[syntax.Apply]:
    """Reads of tensors, besides calls of `min` and `max`."""
    if isinstance(expr, syntax.Apply) and expr.function.name not in ("min", "max"):
        yield expr
    for part in syntax.children(expr):
        yield from _applied(part)


def _of_blocks(items: Sequence[syntax.Statement | syntax.Loop], steps: frozenset[str]) -> Iterator[str]:
    """What blocks of steps hold."""
    for item in items:
        if isinstance(item, syntax.Loop):
            yield "block in a block" if steps else "block of steps"
            yield from _of_blocks(item.body, steps | {item.index.name})
        elif steps & {str(s) for s in item.subscripts or ()}:
            yield "step in a subscript"


def _of_statement(function: Function, number: int, statement: Statement) -> Iterator[str]:
    reduction = statement.reduction
    yield f"{reduction or ''}={'!' if reduction and statement.initialise else ''}"
    if len(statement.reduction_indices) > 1:
        yield "reduction over 2 or more indices"
    if len({r.index for r in statement.ranges}) < len(statement.indices):
        yield "inferred range"
    if any(isinstance(e, Index) for r in statement.ranges for b in (r.lower, r.upper) for e in walk(b)):
        yield "triangular range"
    yield from _of_history(function, number, statement)
    if statement.scatters:
        yield "scatter"
    for subscript in statement.subscripts:
        for part in walk(subscript):
            match part:
                case Binary() if part.op == "/":
                    yield "division in a target"
                case Binary() if part.op == "%":
                    yield "remainder in a target"
                case Binary() if part.op == "*":
                    yield "strided target"
    for root in statement.expressions():
        for part in walk(root):
            yield from _of_expression(part)
    yield from _of_values(statement.value)


def _sums_products(statement: Statement) -> bool:
    value = statement.value
    if statement.reduction != "+" or not isinstance(value, Binary) or value.op != "*":
        return False
    return all(isinstance(bare(factor), Read) for factor in (value.lhs, value.rhs))


def _of_history(function: Function, number: int, statement: Statement) -> Iterator[str]:
    """What it has to do with earlier statements and with its target."""
    before = [s.target for s in function.statements[:number]]
    reads = {e.tensor for root in statement.expressions() for e in walk(root) if isinstance(e, Read)}
    temporaries = {t.name for t in function.temporaries}
    if statement.target in before:
        whole = statement.reduction is None and all(isinstance(s, Index) for s in statement.subscripts)
        yield "redefinition" if whole else "partial update"
    if statement.target in reads:
        yield "read of its own target"
    if statement.target in temporaries and reads & temporaries - {statement.target}:
        yield "temporary of a temporary"


def _of_expression(part: Expr) -> Iterator[str]:
    match part:
        case Read():
            if part.boundary is not None:
                yield part.boundary.kind
            yield from _of_subscripts(part)
        case Select():
            if any(isinstance(e, Read) for e in walk(part.condition)):
                yield "condition on data"
            if any(isinstance(e, Index) for e in walk(part.condition)):
                yield "guard"
        case Cast():
            yield "cast"
        case Call() if part.intrinsic in _OF_BITS:
            yield _OF_BITS[part.intrinsic]
        case Call():
            yield "built-in function"


def _of_subscripts(read: Read) -> Iterator[str]:
    names = [s.name for s in read.subscripts if isinstance(s, Index)]
    if len(set(names)) < len(names):
        yield "index twice in a subscript list"
    for subscript in read.subscripts:
        if depends_on_data(subscript):
            yield "indirect read"
            inner = [e for e in walk(subscript) if isinstance(e, Read)]
            if any(depends_on_data(s) for e in inner for s in e.subscripts):
                yield "indirect read twice"
        for part in walk(subscript):
            if isinstance(part, Binary):
                yield from _of_divided(part)
            match part:
                case Binary() if part.op == "/":
                    yield "division in a subscript"
                case Binary() if part.op == "%":
                    yield "remainder in a subscript"
                case Binary() if part.op in ("min", "max"):
                    yield "extremum in a subscript"
                case Binary() if part.op == "*":
                    yield "product of indices" if _has_index(part.lhs) and _has_index(part.rhs) else "stride"
                case Binary() if part.op in "+-":
                    yield from _of_sum(part)
                case Select():
                    yield "choice in a subscript"


def _of_divided(part: Binary) -> Iterator[str]:
    """Integers that compilers are tempted to take for truth values."""
    if part.op in "/%" and isinstance(part.lhs, Binary) and part.lhs.op == "-":
        yield "difference divided in a subscript"
    if part.dtype.kind == "bool" and any(isinstance(e, Read) for e in walk(part)):
        yield "comparison of elements in a subscript"


def _of_sum(part: Binary) -> Iterator[str]:
    sides = (part.lhs, part.rhs)
    if any(isinstance(side, Constant) for side in sides):
        yield "offset"
    if all(map(_has_index, sides)) and any(isinstance(e, Binary) and e.op == "*" for side in sides for e in walk(side)):
        yield "dilation"


def _has_index(expr: Expr) -> bool:
    return any(isinstance(e, Index) for e in walk(expr))


def _of_values(value: Expr) -> Iterator[str]:
    """Divisions outside of subscripts."""
    match value:
        case Read():
            return
        case Binary() if value.op == "*" and _factors(value) > 2:
            yield "product of three reads"
        case Binary() if value.op in "/%" and value.dtype.is_integer:
            yield "integer division of values" if value.op == "/" else "remainder of values"
    for part in children(value):
        yield from _of_values(part)


def _factors(value: Expr) -> int:
    """How many reads are multiplied."""
    if isinstance(value, Binary) and value.op == "*":
        return _factors(value.lhs) + _factors(value.rhs)
    return int(isinstance(bare(value), Read))
