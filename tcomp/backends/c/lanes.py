"""The C text of blocks of steps whose tiles run side by side, each in a lane of vectors.

A tile's rows lie interleaved with those of the others in memory that a thread has for itself: row ``r`` of all in one
vector.  They are brought there before its first step and go back after its last.  Rows of which some lie outside of a
statement's domain keep what they had in those lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tcomp.backends.c.vectors.types import vector_type
from tcomp.backends.c.vectors.values import VectorSpeller
from tcomp.backends.dialect import C_STORAGE_TYPES, bare, load, mangle
from tcomp.backends.spelling import Needs, Speller
from tcomp.grammar.ranges.affine import step_parameter
from tcomp.grammar.tree.forms import Form, to_form
from tcomp.grammar.tree.function import Expr, Index, Read, Select, Statement, walk
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.timetiles import TIME_TILING
from tcomp.model.stepwise.pieces import Lanes, OwnRows, Piece, Pieces, TimeTiles
from tcomp.model.stepwise.views import Slice
from tcomp.values.operators import INT32, INT64, DType

_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class LaneTiles:
    """A block whose ``tiles`` run in lanes.

    ``pointer`` spells where a slice of a tensor begins, ``form`` a form over steps.
    """

    tiles: TimeTiles
    pieces: Pieces
    needs: Needs
    machine: Machine
    pointer: Callable[[Slice], str]
    form: Callable[[Form], str]

    @property
    def lanes(self) -> Lanes:
        """What each tile has for itself."""
        assert self.tiles.lanes is not None
        return self.tiles.lanes

    @property
    def piece(self) -> Piece:
        """The block as one piece, whose statements see rows."""
        (piece,) = self.tiles.repeat.body
        assert isinstance(piece, Piece)
        return piece

    @property
    def dtype(self) -> DType:
        """The type of all rows."""
        return self.pieces.storages[self.lanes.own[0].tensor].dtype

    @property
    def kind(self) -> str:
        """The vectors that hold a row."""
        return vector_type(self.dtype, self.lanes.count)

    @property
    def _truth(self) -> DType:
        """The type of lanes that say whether a row is inside."""
        return INT64 if self.dtype.itemsize == 8 else INT32

    @property
    def groups(self) -> int:
        """How often so many tiles as there are lanes run in each wave."""
        return self.tiles.around // (self.tiles.width * self.lanes.count)

    @property
    def base(self) -> int:
        """The first row that tiles touch."""
        return self.tiles.rows[0] - self.lanes.before

    @property
    def note(self) -> str:
        """What readers are told."""
        names = ", ".join(dict.fromkeys(own.tensor for own in self.lanes.own if own.written))
        return f"{names}: {self.lanes.count} tiles of steps over {self.tiles.repeat.index} run in the lanes of vectors"

    def own_bytes(self) -> int:
        """What a thread needs for itself."""
        return self._mask_place(len(self.lanes.spans))

    def _size(self, own: OwnRows) -> int:
        """The rows of one slice."""
        return own.before + self.tiles.width + own.behind

    def _place(self, number: int) -> int:
        """Where rows begin in the memory of a thread, in bytes."""
        vector = self.lanes.count * self.dtype.itemsize
        sizes = (own.slots * self._size(own) * vector for own in self.lanes.own[:number])
        return sum(-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes)

    def _mask_place(self, number: int) -> int:
        size = self.tiles.width * self.lanes.count * self.dtype.itemsize
        return self._place(len(self.lanes.own)) + number * -(-size // _ALIGNMENT) * _ALIGNMENT

    @property
    def tensors(self) -> list[str]:
        """All tensors that the block touches."""
        return list(dict.fromkeys(cut.tensor for cut in self.piece.slices.values()))

    def parameters(self) -> list[str]:
        """What the function of a wave's tiles takes."""
        written = {own.tensor for own in self.lanes.own if own.written}
        found = []
        for name in self.tensors:
            const = "" if name in written else "const "
            found.append(f"{const}{C_STORAGE_TYPES[self.pieces.storages[name].dtype.name]} *{mangle(name)}")
        steps = [f"const long {step_parameter(name)}" for name in self.piece.steps[:-1]]
        facts = [f"const long {name}" for name in ("group", "moved", "block", "from", "until")]
        return [*found, *steps, *facts, "char *const mine"]

    def call(self, name: str, own: str) -> str:
        """The call for a group of tiles."""
        steps = [step_parameter(step) for step in self.piece.steps[:-1]]
        given = [*map(mangle, self.tensors), *steps, "strip", "moved", "block", "from", "until", own]
        return f"{name}({', '.join(given)});"

    def lines(self) -> Iterator[str]:
        """The body of that function."""
        count, width, around = self.lanes.count, self.tiles.width, self.tiles.around
        yield f"long at[{count}];"
        yield f"for (long l = 0; l < {count}; l++) {{"
        yield f"  at[l] = (group * {count} + l) * {width}L - moved;"
        yield f"  at[l] += at[l] < 0 ? {around}L : 0;"
        yield "}"
        for number, own in enumerate(self.lanes.own):
            yield f"{self.kind} *const own{number} = ({self.kind} *)(mine + {self._place(number)}L) + {own.before};"
            yield from self._moved(number, own, inward=True)
        for number in range(len(self.statements)):
            yield from self._known(number)
        step = step_parameter(self.tiles.repeat.index)
        yield f"for (long {step} = from; {step} < until; {step}++) {{"
        yield f"  const long past = {step} - block;"
        for number in range(len(self.statements)):
            yield from ("  " + line for line in self._statement(number))
        yield "}"
        for number, own in enumerate(self.lanes.own):
            if own.written:
                yield from self._moved(number, own, inward=False)

    @property
    def statements(self) -> tuple[Statement, ...]:
        """Those of the block, as its piece sees them."""
        return self.piece.function.statements

    def _moved(self, number: int, own: OwnRows, inward: bool) -> Iterator[str]:
        """Rows brought to where they lie interleaved, or back: those that statements write."""
        storage, element = self.pieces.storages[own.tensor], C_STORAGE_TYPES[self.dtype.name]
        d, base, width, around = own.dimension, self.base, self.tiles.width, self.tiles.around
        origin, stride = storage.box.origin[d], storage.strides[d]
        low, high = (base, base + around) if inward else self.tiles.rows
        low, high = max(low, origin), min(high, origin + storage.box.extent[d])
        first, last = (-own.before, width + own.behind) if inward else (0, width)
        folded, _ = self.pieces.folds.get(own.tensor, (-1, 1))
        apart = storage.strides[folded] if own.slots > 1 else 0
        const = "const " if inward else ""
        yield f"for (long l = 0; l < {self.lanes.count}; l++) {{"
        yield f"  for (long turn = -{around}L; turn <= {around}L; turn += {around}L) {{"
        yield f"    const long row = at[l] - turn + {base};"
        yield f"    const long first = tc_max({first}, {low} - row), last = tc_min({last}, {high} - row);"
        for slot in range(own.slots):
            away = f" + {slot * apart}L" if slot * apart else ""
            mine = f"(({element} *)(own{number} + {slot * self._size(own)}L))[r * {self.lanes.count} + l]"
            there = f"there[(row + r - {origin}) * {stride}L]"
            pair = (mine, there) if inward else (there, mine)
            yield "    {"
            yield f"      {const}{element} *const there = {self.pointer(own.cut)}{away};"
            yield f"      for (long r = first; r < last; r++) {pair[0]} = {pair[1]};"
            yield "    }"
        yield "  }"
        yield "}"

    def _known(self, number: int) -> Iterator[str]:
        """What a statement knows in all steps: which lanes of which rows are outside, or where its only row is."""
        (low, high), width, around = self.lanes.spans[number], self.tiles.width, self.tiles.around
        count = self.lanes.count
        if not self._moves(number):
            yield f"long lane{number} = 0, only{number} = -1;"
            yield f"for (long l = 0; l < {count}; l++) {{"
            yield f"  const long r = {low - self.base} - at[l], q = r < 0 ? r + {around}L : r;"
            yield f"  if (q < {width}) only{number} = q, lane{number} = l;"
            yield "}"
            return
        element, gap, mask = C_STORAGE_TYPES[self._truth.name], around - (high - low), vector_type(self._truth, count)
        yield f"{mask} *const mask{number} = ({mask} *)(mine + {self._mask_place(number)}L);"
        if gap >= width:
            yield f"const long a{number} = {width}, b{number} = {width}, c{number} = {width};"
        else:
            yield f"const long b{number} = ({high - self.base} + moved) % {width};"
            yield f"const long a{number} = tc_max(0, b{number} + {gap - width});"
            yield f"const long c{number} = tc_min(b{number} + {gap}, {width});"
        yield f"for (long r = 0; r < {width}; r++) {{"
        yield f"  if (r >= a{number} && r < b{number}) r = b{number};"
        yield f"  if (r >= c{number}) break;"
        yield f"  for (long l = 0; l < {count}; l++) {{"
        yield f"    const long p = at[l] + r, row = {self.base} + (p >= {around}L ? p - {around}L : p);"
        yield f"    (({element} *)(mask{number} + r))[l] = -({element})(row >= {low} && row < {high});"
        yield "  }"
        yield "}"

    def _moves(self, number: int) -> bool:
        """Whether a statement goes over rows."""
        return isinstance(self._subscript(number), Index)

    def _subscript(self, number: int) -> Expr:
        (subscript,) = self.statements[number].subscripts
        return subscript

    def _statement(self, number: int) -> Iterator[str]:
        height, lower, upper = self.tiles.height, self.tiles.lower, self.tiles.upper
        line, width = self.tiles.line, self.tiles.width
        up, down = f"{lower.slope} * past + {lower.shifts[number]}", f"{upper.slope} * past + {upper.shifts[number]}"
        yield "{"
        yield f"  const long lo = past < {height} ? {line} - ({down}) : {up} - {lower.slope * height};"
        yield f"  const long hi = past < {height} ? {line} + {up} : {width + upper.slope * height} - ({down});"
        statement, names = self.statements[number], dict[str, str]()
        held: dict[Expr, str] = {}
        read = [e.tensor for e in walk(statement.value) if isinstance(e, Read)]
        for view in dict.fromkeys([statement.target, *read]):
            cut = self.piece.slices[view]
            if len(cut.at) == len(self.pieces.storages[cut.tensor].strides):
                dtype = self.pieces.storages[cut.tensor].dtype
                name, text = f"s{len(names)}", f"(*({self.pointer(cut)}))"
                asks = any(isinstance(e, Select) for e in walk(statement.value))
                # The program may ask before it reads what is not there.
                names[view] = text if asks else name
                if not asks:
                    yield f"  const {C_STORAGE_TYPES[dtype.name]} {name} = {text};"
                continue
            names[view] = f"x{len(names)}"
            const = "const " if view != statement.target else ""
            yield f"  {const}{self.kind} *const {names[view]} = {self._rows_of(cut)};"
        for each in walk(statement.value):
            if isinstance(each, Read) and not each.subscripts:
                held[each] = load(names[each.tensor], each.dtype)
        yield from ("  " + line for line in (self._rows if self._moves(number) else self._row)(number, names, held))
        yield "}"

    def _rows_of(self, cut: Slice) -> str:
        """Where the rows of a slice lie interleaved, the first one of the tiles."""
        folded, kept = self.pieces.folds.get(cut.tensor, (-1, 1))
        at = tuple((d, form) for d, form in cut.at if d != folded)
        own = [(rows.tensor, rows.cut.at) for rows in self.lanes.own].index((cut.tensor, at))
        if kept == 1:
            return f"own{own}"
        form = dict(cut.at)[folded].plus(-self.pieces.storages[cut.tensor].box.origin[folded])
        return f"own{own} + ({self.form(form)}) % {kept} * {self._size(self.lanes.own[own])}L"

    def _row(self, number: int, names: dict[str, str], held: dict[Expr, str]) -> Iterator[str]:
        """The only row that a statement writes, in its lane."""
        statement, element = self.statements[number], C_STORAGE_TYPES[self.dtype.name]
        for read in walk(statement.value):
            if isinstance(read, Read) and read.subscripts:
                distance = self._distance(number, read)
                held[read] = f"((const {element} *)({names[read.tensor]} + only{number} + {distance}))[lane{number}]"
        value = bare(self._speller(held).value(statement.value))
        target = f"(({element} *)({names[statement.target]} + only{number}))[lane{number}]"
        yield f"if (only{number} >= lo && only{number} < hi) {target} = {value};"

    def _distance(self, number: int, read: Read) -> int:
        """How many rows behind that of an instance a read is."""
        forms = [to_form(s, self.pieces.sizes) for s in (self._subscript(number), *read.subscripts)]
        assert forms[0] is not None and forms[1] is not None
        return forms[1].constant - forms[0].constant

    def _speller(self, held: dict[Expr, str]) -> Speller:
        return Speller(self.piece.scop, {}, {}, self.needs, False, self.piece.function.source, held=held)

    def _rows(self, number: int, names: dict[str, str], held: dict[Expr, str]) -> Iterator[str]:
        """Rows of which all lanes are inside, several at a time, between those of which some are not."""
        once, target = self._vectors(number, names, held, 1), names[self.statements[number].target]
        mask = vector_type(self._truth, self.lanes.count)
        yield "long r = lo;"
        yield "for (long part = 0; part < 2; part++) {"
        yield f"  const long some = tc_min(part ? c{number} : a{number}, hi);"
        yield f"  const long all = part ? hi : tc_min(b{number}, hi);"
        yield "  for (; r < some; r++) {"
        yield from ("    " + line for line in once[0])
        yield f"    const {mask} inside = mask{number}[r];"
        yield f"    {target}[r] = ({self.kind})((({mask})({once[1][0]}) & inside) | (({mask}){target}[r] & ~inside));"
        yield "  }"
        for count in dict.fromkeys([self._at_once(number), 1]):
            loads, values = self._vectors(number, names, held, count)
            yield f"  for (; r + {count} <= all; r += {count}) {{"
            yield from ("    " + line for line in loads)
            yield from (f"    {target}[r + {r}] = {value};" for r, value in enumerate(values))
            yield "  }"
        yield "}"

    def _at_once(self, number: int) -> int:
        """How many rows are computed together: what they load fits the registers."""
        count = TIME_TILING.rows_at_once
        reads = {(e.tensor, self._distance(number, e)) for e in self._reads(number)}
        while count > 1 and (
            len({(t, d + r) for t, d in reads for r in range(count)}) + TIME_TILING.registers_kept
            > self.machine.registers
        ):
            count //= 2
        return count

    def _reads(self, number: int) -> list[Read]:
        return [e for e in walk(self.statements[number].value) if isinstance(e, Read) and e.subscripts]

    def _vectors(
        self, number: int, names: dict[str, str], held: dict[Expr, str], count: int
    ) -> tuple[list[str], list[str]]:  # fmt: skip
        """The lines that load what so many rows read, and the vectors that they are."""
        statement, subscript = self.statements[number], self._subscript(number)
        assert isinstance(subscript, Index)
        plain = VectorSpeller(self._speller(held), subscript.name, self.lanes.count)
        known: dict[tuple[str, int], str] = {}
        values = []
        for r in range(count):
            loaded: dict[Expr, str] = {}
            for read in self._reads(number):
                place = names[read.tensor], self._distance(number, read) + r
                loaded[read] = known.setdefault(place, f"v{len(known)}")
            value = replace(plain, loaded=loaded).value(statement.value, self.dtype)
            if value is None:
                value = f"({plain.scalar.value(statement.value)}) - ({self.kind}){{}}"
            values.append(bare(value))
        loads = [f"const {self.kind} {name} = {tensor}[r + {d}];" for (tensor, d), name in known.items()]
        return loads, values
