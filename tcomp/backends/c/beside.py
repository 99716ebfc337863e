"""What a piece must be to run rows beside each other in vectors; see ``strips.py``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tcomp.backends.c.vectors.types import vector_type
from tcomp.backends.c.walks import decided, move_of, nest_of, straight, views_of
from tcomp.backends.dialect import C_VALUE_TYPES
from tcomp.grammar.ranges.affine import step_parameter
from tcomp.grammar.tree.forms import Form, to_form
from tcomp.grammar.tree.function import Expr, Index, Read, Select, depends_on_data, walk
from tcomp.loops.ir import Execute, For, LoopNode, Variable, variables
from tcomp.mapping.machines.cpu import PAGE, Machine
from tcomp.mapping.machines.fitted.timetiles import TIME_TILING
from tcomp.mapping.plan.values import Plan
from tcomp.model.scop import ScopStatement
from tcomp.model.stepwise.pieces import Piece, Pieces, TimeTiles


@dataclass(frozen=True, slots=True)
class Beside:
    """A piece whose rows run side by side: the rows are those of ``loop``, around one ``call``.

    ``moves`` has how many elements each view moves with a step.  ``value`` is what is computed behind the first
    ``peeled`` steps; it reads what was ``carried``, with how many steps it is ago.  ``vectors`` of ``lanes`` rows run
    together.
    """

    piece: Piece
    plan: Plan
    step: str
    loop: For
    call: Execute
    moves: Mapping[str, int]
    value: Expr
    peeled: int
    carried: Mapping[Read, int]
    lanes: int
    vectors: int

    @property
    def statement(self) -> ScopStatement:
        """What it computes."""
        return self.plan.scop.by_name[self.call.statement]

    @property
    def row(self) -> str:
        """The index that names the row."""
        (index,) = self.statement.indices
        return index

    @property
    def element(self) -> str:
        """The C type of a value."""
        return C_VALUE_TYPES[self.value.dtype.name]

    @property
    def kind(self) -> str:
        """The C type of a vector of values."""
        return vector_type(self.value.dtype, self.lanes)

    @property
    def ago(self) -> int:
        """How many steps back values are kept."""
        return max(self.carried.values(), default=0)

    @property
    def reads(self) -> list[Read]:
        """What is read in another place by each row, and not carried."""
        found = (e for e in walk(self.value) if isinstance(e, Read) and e not in self.carried)
        return list(dict.fromkeys(e for e in found if self.differs(e)))

    def differs(self, expr: Expr) -> bool:
        """Whether an expression names the row."""
        return any(isinstance(e, Index) and e.name == self.row for e in walk(expr))

    def stride(self, view: str) -> int:
        """How far apart rows lie in what a view sees, in elements."""
        return self.plan.scop.storages[view].strides[0]

    def bytes_of(self, pieces: Pieces) -> int:
        """The bytes of all tensors that it touches."""
        return sum(pieces.storages[name].bytes for name in {cut.tensor for cut in self.piece.slices.values()})

    @property
    def meets(self) -> bool:
        """Whether some rows lie pages apart, so that all of them meet in few sets of a cache."""
        views = [self.statement.target, *(r.tensor for r in self.reads)]
        bytes_apart = (self.stride(view) * self.value.dtype.itemsize for view in views)
        return any(apart and apart % PAGE == 0 for apart in bytes_apart)

    @property
    def turned(self) -> bool:
        """Whether some rows lie apart, so that steps are transposed."""
        return any(self.stride(view) != 1 for view in [self.statement.target, *(r.tensor for r in self.reads)])


def beside_of(pieces: Pieces, tiles: TimeTiles, plan: Plan, loops: LoopNode, machine: Machine) -> Beside | None:
    """How the only piece of tiles runs in vectors of rows; None where it is not of that form, or too narrow for one."""
    if len(tiles.pieces) != 1 or not straight(tiles) or tiles.repeat.lower.terms or tiles.repeat.upper.terms:
        return None
    (piece,), step, nest = tiles.pieces, tiles.repeat.index, nest_of(loops)
    if nest is None or len(nest[0]) != 1 or len(plan.scop.statements) != 1:
        return None
    ((loop,), call), (statement,) = nest, plan.scop.statements
    if plan.buffers or plan.copies or plan.operations or loop.step != 1 or len(statement.indices) != 1:
        return None
    named = variables(loop.lower) | variables(loop.upper)
    if call.arguments != (Variable(loop.iterator),) or step_parameter(step) in named:
        return None
    moves = {view: move_of(pieces, piece, view, step) for view in views_of(statement)}
    known = {view: move for view, move in moves.items() if move is not None}
    dtype = statement.value.dtype
    plain = statement.kind != "update" and not statement.scatters and dtype.name in ("float32", "float64")
    lanes = machine.vector_bytes // dtype.itemsize
    if len(known) < len(moves) or not plain or not 2 <= lanes <= tiles.width:
        return None
    peeled, value = _decided_behind(tiles, statement, plan, lanes)
    carried = _carried(pieces, piece, statement, value, step)
    if carried is None or not _lie_well(plan, statement, value, known, lanes):
        return None
    vectors = max(1, min(TIME_TILING.vectors_of_rows // max(1, len(carried)), tiles.width // lanes))
    return Beside(piece, plan, step, loop, call, known, value, peeled, carried, lanes, vectors)


def _decided_behind(tiles: TimeTiles, statement: ScopStatement, plan: Plan, most: int) -> tuple[int, Expr]:
    """How many first steps run by themselves, at most so many, and the value behind them, without choices by step."""
    first, last = tiles.repeat.lower.constant, tiles.repeat.upper.constant - 1
    found = statement.value
    for peeled in range(most + 1):
        found = decided(
            statement.value, tiles.repeat.index, (first + peeled, max(first + peeled, last)), plan.scop.sizes
        )
        if not any(isinstance(e, Select) for e in walk(found)):
            return peeled, found
    return 0, statement.value


def _carried(
    pieces: Pieces, piece: Piece, statement: ScopStatement, value: Expr, step: str
) -> dict[Read, int] | None:  # fmt: skip
    """What a value reads of its target from steps before; None where it reads something else that steps write."""
    cut = piece.slices[statement.target]
    along = [(d, form) for d, form in cut.at if step in dict(form.terms)]
    if len(along) != 1 or len(along[0][1].terms) != 1 or cut.tensor in pieces.folds:
        return None
    (dimension, own), found = along[0], dict[Read, int]()
    factor = dict(own.terms)[step]
    for read in (e for e in walk(value) if isinstance(e, Read)):
        if read.boundary is not None or any(map(depends_on_data, read.subscripts)):
            return None
        other = piece.slices[read.tensor]
        if other.tensor != cut.tensor:
            continue
        distance = dict(other.at).get(dimension, Form((), 0)).add(own, -1)
        moved = tuple((d, form.plus(distance.constant) if d == dimension else form) for d, form in cut.at)
        if distance.terms or other.at != moved or distance.constant % factor or read.subscripts != statement.subscripts:
            return None
        ago = -distance.constant // factor
        if ago > 0:
            found[read] = ago
    return found if sorted(found.values()) == [*range(1, len(found) + 1)] else None


def _lie_well(
    plan: Plan, statement: ScopStatement, value: Expr, moves: Mapping[str, int], lanes: int
) -> bool:  # fmt: skip
    """Whether neighbouring rows, or else neighbouring steps, lie beside each other in all that rows touch."""
    (row,) = statement.indices
    accesses = [(statement.target, statement.subscripts, statement.value.dtype)]
    for e in walk(value):
        if isinstance(e, Read) and any(isinstance(i, Index) and i.name == row for s in e.subscripts for i in walk(s)):
            accesses.append((e.tensor, e.subscripts, e.dtype))
    for view, subscripts, dtype in accesses:
        storage = plan.scop.storages[view]
        form = to_form(subscripts[0], plan.scop.sizes) if len(subscripts) == 1 else None
        if form is None or form.terms != ((row, 1),) or not dtype == storage.dtype == statement.value.dtype:
            return False
        if storage.opened is not None or (storage.known_strides[0] != 1 and abs(moves[view]) != 1):
            return False
    return lanes & (lanes - 1) == 0
