"""The C text of a program in pieces: a function for each piece, and one that runs them step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tcomp.backends.arguments import arguments_of
from tcomp.backends.c.frame import parameter, parameters, with_helpers
from tcomp.backends.c.lanes import LaneTiles
from tcomp.backends.c.parallel import shared_out
from tcomp.backends.c.strips import Strip
from tcomp.backends.c.sweeps import LaneSweeps
from tcomp.backends.c.walks import END, FIRST, Walk
from tcomp.backends.dialect import C_STORAGE_TYPES, mangle
from tcomp.backends.source import Source
from tcomp.backends.spelling import Needs
from tcomp.grammar.ranges.affine import step_parameter
from tcomp.grammar.tree.forms import Atom, Condition, Form
from tcomp.grammar.tree.function import Function
from tcomp.loops.ir import Block, For, Number, Variable
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.cputext import THREADS
from tcomp.model.scop import Scop
from tcomp.model.stepwise.pieces import Item, OwnStrip, Piece, Pieces, Sweeps, TimeTiles
from tcomp.model.stepwise.tiling import blocks_of
from tcomp.model.stepwise.together import runs_of
from tcomp.model.stepwise.views import Slice

_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class PieceText:
    """The lines of a piece, the bytes that it needs for itself, and whether it asks for threads.

    One that has a ``walk`` runs all steps of its block.
    """

    lines: Sequence[str]
    scratch_bytes: int
    uses_threads: bool
    walk: Walk | Strip | None = None


def pieces_source(
    function: Function, pieces: Pieces, texts: Sequence[PieceText], needs: Needs, machine: Machine,
    flags: Sequence[str], threads: int,
) -> Source:  # fmt: skip
    """The kernel of a whole program; ``texts`` has one entry for each piece, in order, and all have those ``needs``."""
    return _Text(function, pieces, texts, needs, machine, threads).source(tuple(flags))


class _Text:
    def __init__(
        self, function: Function, pieces: Pieces, texts: Sequence[PieceText], needs: Needs, machine: Machine,
        threads: int,
    ) -> None:  # fmt: skip
        self.function = function
        self.needs = needs
        self.machine = machine
        self.threads = threads
        self.pieces = pieces
        self.texts = texts
        self.numbers = {id(piece): number for number, piece in enumerate(pieces.pieces)}
        self.offsets: dict[str, int] = {}
        self.shared_bytes = 0
        tiled = [item for item in blocks_of(pieces.body) if isinstance(item, TimeTiles)]
        self.runs = {id(tiles): run for run in runs_of(tiled) for tiles in run}
        in_strips = {own.name for tiles in tiled for own in tiles.own}
        for storage in pieces.storages.values():
            if storage.role == "temporary" and storage.name not in in_strips:
                self.offsets[storage.name] = self.shared_bytes
                self.shared_bytes += -(-max(1, storage.bytes) // _ALIGNMENT) * _ALIGNMENT

    def source(self, flags: tuple[str, ...]) -> Source:
        needs, machine = self.needs, self.machine
        whole = Scop(self.pieces.storages, (), self.pieces.sizes)
        arguments = arguments_of(self.function, whole)
        entry = f"tcomp_{self.function.name}"
        lines: list[str] = []
        tiled = [item for item in blocks_of(self.pieces.body) if isinstance(item, TimeTiles)]
        together = [self._together(tiles) for tiles in tiled if tiles.lanes is not None]
        swept = [self._swept(item) for item in blocks_of(self.pieces.body) if isinstance(item, Sweeps)]
        in_lanes = {id(piece) for each in together for piece in each.tiles.pieces}
        in_lanes |= {id(each.sweeps.piece) for each in swept}
        in_vectors: list[LaneTiles | LaneSweeps] = [*together, *swept]
        for lanes in in_vectors:
            head = f"static __attribute__((noinline)) void {self._name_of(lanes)}({', '.join(lanes.parameters())})"
            lines += [head, "{", *("  " + line for line in lanes.lines()), "}"]
        for piece, text in zip(self.pieces.pieces, self.texts, strict=True):
            if id(piece) in in_lanes:
                continue
            lines += [f"{self._kind(piece)} {self._name(piece)}({', '.join(self._parameters(piece))})", "{"]
            lines += [*text.lines, "}"]
        lines += [f"int {entry}({', '.join(parameters(arguments))})", "{"]
        for name, offset in self.offsets.items():
            c = C_STORAGE_TYPES[self.pieces.storages[name].dtype.name]
            lines.append(f"  {c} *{mangle(name)} = ({c} *)(scratch + {offset}L);")
        lines += ["  report[2] = 0;"] * bool(needs.checks)
        lines += self._body(self.pieces.body, 1)
        lines += ["  return report[2] != 0;" if needs.checks else "  return 0;", "}"]
        uses_threads = any(t.uses_threads for t in self.texts) or (bool(tiled or swept) and self.threads > 1)
        body = with_helpers("\n".join(lines) + "\n", needs, uses_threads, machine)
        sizes = ", ".join(f"{name} = {value}" for name, value in self.pieces.sizes.items())
        scratch = self.shared_bytes + max((t.scratch_bytes for t in self.texts), default=0)
        own = [*map(self._own_bytes, tiled), *(each.own_bytes() for each in swept)]
        scratch = max([scratch, *(self.shared_bytes + self.threads * size for size in own)])
        title = f"/* {self.function.name}, specialised to {sizes or 'no sizes'} */\n"
        notes = tuple(text.walk.note for text in self.texts if text.walk is not None)
        notes += tuple(each.note for each in in_vectors)
        return Source(
            title + body, entry, arguments, scratch, tuple(needs.checks), flags, warnings=self.pieces.warnings,
            notes=notes,
        )  # fmt: skip

    def _together(self, tiles: TimeTiles) -> LaneTiles:
        return LaneTiles(tiles, self.pieces, self.needs, self.machine, self._pointer, _form)

    def _swept(self, sweeps: Sweeps) -> LaneSweeps:
        return LaneSweeps(sweeps, self.pieces, self.needs)

    def _name_of(self, tiles: LaneTiles | LaneSweeps) -> str:
        """The name of the function for tiles in lanes."""
        piece = tiles.sweeps.piece if isinstance(tiles, LaneSweeps) else tiles.tiles.pieces[0]
        return f"tcomp_{self.function.name}_tiles{self.numbers[id(piece)]}"

    def _name(self, piece: Piece) -> str:
        return f"tcomp_{self.function.name}_piece{self.numbers[id(piece)]}"

    def _kind(self, piece: Piece) -> str:
        """How a piece is declared.

        Where it says of arrays that they are apart, that holds for one call: gcc, which would keep it in mind where it
        has copied the calls of a loop into one another, must not copy them.
        """
        return "static __attribute__((noinline)) void" if _has_arrays(piece) else "static void"

    def _parameters(self, piece: Piece) -> list[str]:
        """What the function of a piece takes; nothing is ``restrict`` where there are single elements only."""
        arguments = arguments_of(piece.function, piece.scop)
        steps = [f"const long {name}" for step in piece.steps for name in self._of_step(piece, step)]
        shared = self._shared_views(piece)
        own = [
            parameter(a) if a.shape and a.name not in shared else parameter(a).replace("restrict ", "")
            for a in arguments
        ]  # fmt: skip
        all_of_them = [*own, *steps, "char *restrict scratch", "long long *restrict report"]
        return all_of_them if _has_arrays(piece) else [text.replace("restrict ", "") for text in all_of_them]

    def _shared_views(self, piece: Piece) -> set[str]:
        """The views in which a function that runs several steps finds what it has written by another one."""
        strip = self._walk(piece)
        if not isinstance(strip, Strip):
            return set()
        tensor = piece.slices[strip.rows.statement.target].tensor
        return {view for view, cut in piece.slices.items() if cut.tensor == tensor}

    def _of_step(self, piece: Piece, step: str) -> tuple[str, ...]:
        """The parameters of a piece that stand for a step around it."""
        walk = self._walk(piece)
        return (FIRST, END) if walk is not None and walk.step == step else (step_parameter(step),)

    def _walk(self, piece: Piece) -> Walk | Strip | None:
        return self.texts[self.numbers[id(piece)]].walk

    def _body(self, body: Sequence[Item], depth: int) -> list[str]:
        lines: list[str] = []
        for item in body:
            if isinstance(item, Piece):
                lines.append("  " * depth + self._call(item))
                continue
            if isinstance(item, TimeTiles):
                run = self.runs[id(item)]
                if item is run[0]:
                    text = self._tiles(item) if len(run) == 1 else self._run(run)
                    lines += ["  " * depth + line for line in text]
                continue
            if isinstance(item, Sweeps):
                lines += ["  " * depth + line for line in self._fronts(self._swept(item))]
                continue
            step = step_parameter(item.index)
            only = item.body[0] if len(item.body) == 1 else None
            if isinstance(only, Piece) and self._walk(only) is not None:
                around = [*map(step_parameter, only.steps), _form(item.upper)]
                lines += ["  " * depth + f"{{ const long {step} = {_form(item.lower)}; {self._call(only, around)} }}"]
                continue
            head = f"for (long {step} = {_form(item.lower)}; {step} < {_form(item.upper)}; {step}++) {{"
            lines += ["  " * depth + head, *self._body(item.body, depth + 1), "  " * depth + "}"]
        return lines

    def _tiles(self, tiles: TimeTiles) -> list[str]:
        """A block in tiles: all those that run at the same time, then the next ones."""
        first, last = _form(tiles.repeat.lower), _form(tiles.repeat.upper)
        height, (low, high) = tiles.height, tiles.rows
        if not tiles.leans:
            lines = [f"for (long block = {first}; block < {last}; block += {height}) {{"]
            lines.append(f"  const long until = tc_min(block + {height}, {last});")
            return [*lines, *("  " + line for line in self._side_by_side(tiles, -(-(high - low) // tiles.width))), "}"]
        count = (high - low + 2 * tiles.width - 2) // tiles.width
        count = count if tiles.lanes is None else self._together(tiles).groups
        # Tiles grow during the steps before ``block + height``, and shrink during those from there on.
        return [
            f"for (long wave = 0, block = {first} - {height}; block < {last}; wave++, block += {height}) {{",
            f"  const long from = tc_max(block, {first}), until = tc_min(block + {2 * height}, {last});",
            f"  const long moved = wave * {tiles.line}L % {tiles.width};",
            *("  " + line for line in self._side_by_side(tiles, count)),
            "}",
        ]

    def _side_by_side(self, tiles: TimeTiles, count: int) -> list[str]:
        """Tiles that run at the same time."""
        if tiles.lanes is not None:
            together = self._together(tiles)
            mine = f"scratch + {self.shared_bytes}L + own * {self._own_bytes(tiles)}L"
            return self._shared([together.call(self._name_of(together), mine)], count)
        return self._shared(self._one_after_another(tiles), count)

    def _run(self, run: Sequence[TimeTiles]) -> list[str]:
        """Blocks that run strip by strip: in each all of them, with what the strip has of its own."""
        first, (low, high) = run[0], run[0].rows
        inner = [f"const long at = {low} + strip * {first.width}L;", *self._kept(first)]
        for tiles in run:
            begin, end = _form(tiles.repeat.lower), _form(tiles.repeat.upper)
            inner += ["{", f"  const long block = {begin}, until = {end};"]
            inner += [*("  " + line for line in self._one_after_another(tiles)), "}"]
        return self._shared(inner, -(-(high - low) // first.width))

    def _kept(self, tiles: TimeTiles) -> Iterator[str]:
        """What a strip has of its own, with the slices that are copied there."""
        place = 0
        for own in tiles.own:
            storage, there = self.pieces.storages[own.name], self.pieces.storages[own.tensor]
            c, row = C_STORAGE_TYPES[storage.dtype.name], own.dimension
            origin, end = storage.box.origin[row], storage.box.origin[row] + storage.box.extent[row]
            mine = f"scratch + {self.shared_bytes + place}L + own * {self._own_bytes(tiles)}L"
            yield f"{c} *const {mangle(own.name)} = ({c} *)({mine}) - (at - ({origin}));"
            place += self._kept_bytes(own, tiles.width)
            others = [d for d in range(len(storage.strides)) if d != row]
            for coordinates in own.copied:
                apart = [(d, at - storage.box.origin[d]) for d, at in zip(others, coordinates, strict=True)]
                to, of = (sum(n * s.strides[d] for d, n in apart) for s in (storage, there))
                yield f"for (long r = tc_max(at, {origin}); r < tc_min(at + {tiles.width}, {end}); r++)"
                source = f"{mangle(own.tensor)}[(r - ({origin})) * {there.strides[row]}L + {of}L]"
                yield f"  {mangle(own.name)}[r - ({origin}) + {to}L] = {source};"

    def _kept_bytes(self, own: OwnStrip, width: int) -> int:
        """The bytes of what a strip of so many rows has of its own."""
        storage = self.pieces.storages[own.name]
        size = storage.bytes // storage.box.extent[own.dimension] * width
        return -(-size // _ALIGNMENT) * _ALIGNMENT

    def _one_after_another(self, tiles: TimeTiles) -> list[str]:
        """The steps of a tile."""
        step, own = step_parameter(tiles.repeat.index), self._own_bytes(tiles)
        first = self.runs[id(tiles)][0]
        behind = self.shared_bytes + sum(self._kept_bytes(each, first.width) for each in first.own)
        begin = "from" if tiles.leans else "block"
        inner = [f"for (long {step} = {begin}; {step} < until; {step}++) {{", f"  const long past = {step} - block;"]
        if tiles.leans:
            inner.append(f"  const long at = {tiles.rows[0]} + strip * {tiles.width}L - moved;")
        columns = tiles.columns
        for number, piece in enumerate(tiles.pieces):
            ends = self._leaning(tiles, number)
            if not tiles.leans:
                at = f"{tiles.rows[0]} + strip * {tiles.width}L"
                ends = [at, f"{at} + {tiles.width}"]
            if columns is not None:
                lean = f"{columns.band.slope} * past + {columns.band.shifts[number]}"
                left = f"{columns.range[0]} + part * {columns.width}L - ({lean})"
                ends += [left, f"{left} + {columns.width}"]
            around = [step_parameter(name) for name in piece.steps[: -len(ends)]]
            if self._walk(piece) is not None:
                inner[0], around = f"{{ const long {step} = block;", [*around, "until"]
            inner.append("  " + self._call(piece, [*around, *ends], f"scratch + {behind}L + own * {own}L"))
        inner.append("}")
        if columns is not None:
            steps = 2 * tiles.height if tiles.leans else tiles.height
            reach = columns.range[1] - columns.range[0] + columns.band.reach(steps)
            parts = f"for (long part = 0; part < {-(-reach // columns.width)}; part++) {{"
            inner = [parts, *("  " + line for line in inner), "}"]
        return inner

    def _fronts(self, swept: LaneSweeps) -> list[str]:
        """Sweeps in lanes: the tiles of a front at the same time, then those of the next one."""
        mine = f"scratch + {self.shared_bytes}L + own * {swept.own_bytes()}L"
        repeat, inner = swept.sweeps.repeat, swept.call(self._name_of(swept), mine)
        shared = self._shared(inner, "tiles", alone=not swept.is_shared)
        lines = swept.fronts(_form(repeat.lower), _form(repeat.upper))
        return ["{", *("  " + line for line in (*lines, *("  " + line for line in shared), "}")), "}"]

    def _shared(self, inner: Sequence[str], count: int | str, alone: bool = False) -> list[str]:
        """So many strips, or as many as a variable tells, which threads share unless one runs them ``alone``."""
        if self.threads == 1 or count == 1 or alone:
            head = f"for (long strip = 0; strip < {count}; strip++) {{"
            return ["{", "  const long own = 0;", f"  {head}", *("    " + line for line in inner), "  }", "}"]
        end, least = (Variable(count), 1) if isinstance(count, str) else (Number(count), count)
        loop = For("strip", Number(0), end, 1, Block(()))
        return shared_out([loop], inner, [], THREADS.chunk_instances * least, self.threads)

    def _leaning(self, tiles: TimeTiles, number: int) -> list[str]:
        """The first row of a statement in a tile, and the one behind the last, as the tile grows or shrinks."""
        height, lower, upper = tiles.height, tiles.lower, tiles.upper
        line = f"at + {tiles.line}"
        grows = [
            f"{line} - ({upper.slope} * past + {upper.shifts[number]})",
            f"{line} + {lower.slope} * past + {lower.shifts[number]}",
        ]
        shrinks = [
            f"at + {lower.slope} * (past - {height}) + {lower.shifts[number]}",
            f"at + {tiles.width} - ({upper.slope} * (past - {height}) + {upper.shifts[number]})",
        ]
        return [f"past < {height} ? {a} : {b}" for a, b in zip(grows, shrinks, strict=True)]

    def _own_bytes(self, tiles: TimeTiles) -> int:
        """What each thread needs for itself at most."""
        if tiles.lanes is not None:
            return self._together(tiles).own_bytes()
        run = self.runs[id(tiles)]
        texts = (self.texts[self.numbers[id(piece)]] for each in run for piece in each.pieces)
        kept = sum(self._kept_bytes(own, run[0].width) for own in run[0].own)
        return kept + max(-(-text.scratch_bytes // _ALIGNMENT) * _ALIGNMENT for text in texts)

    def _call(self, piece: Piece, steps: Sequence[str] | None = None, scratch: str | None = None) -> str:
        """The call of a piece at the steps around it, with memory of its own."""
        given = [self._pointer(piece.slices[a.name]) for a in arguments_of(piece.function, piece.scop)]
        usual = f"scratch + {self.shared_bytes}L" if self.shared_bytes else "scratch"
        steps = list(map(step_parameter, piece.steps)) if steps is None else steps
        return f"{self._name(piece)}({', '.join([*given, *steps, scratch or usual, 'report'])});"

    def _pointer(self, cut: Slice) -> str:
        storage = self.pieces.storages[cut.tensor]
        folded, kept = self.pieces.folds.get(cut.tensor, (-1, 1))
        terms = []
        for d, form in cut.at:
            text = _form(Form(form.terms, form.constant - storage.box.origin[d]))
            if d == folded:
                text = f"({text}) % {kept}L" if kept > 1 else "0"
            terms += [_scaled(text, storage.strides[d])] * bool(storage.strides[d])
        return " + ".join([mangle(cut.tensor), *(t for t in terms if t != "0")])


def _has_arrays(piece: Piece) -> bool:
    return any(a.shape for a in arguments_of(piece.function, piece.scop))


def _scaled(text: str, stride: int) -> str:
    return text if stride == 1 or text == "0" else f"({text}) * {stride}L"


def _form(form: Form) -> str:
    """The C text of a form over steps."""
    terms = [
        _term(_atom(term) if isinstance(term, Atom) else step_parameter(term), factor) for term, factor in form.terms
    ]
    if form.constant or not terms:
        terms.append(f"{form.constant}L" if abs(form.constant) >= 1 << 31 else str(form.constant))
    return " + ".join(terms).replace("+ -", "- ")


def _term(name: str, factor: int) -> str:
    return name if factor == 1 else f"-{name}" if factor == -1 else f"{factor}L * {name}"


def _atom(atom: Atom) -> str:
    operands = [_form(operand) for operand in atom.operands]
    match atom.op:
        case "/":
            return f"tc_floordiv({operands[0]}, {atom.divisor}L)"
        case "%":
            return f"tc_mod({operands[0]}, {atom.divisor}L)"
        case "select":
            assert atom.condition is not None
            return f"({_condition(atom.condition)} ? {operands[0]} : {operands[1]})"
        case _:
            return f"tc_{atom.op}({operands[0]}, {operands[1]})"


def _condition(condition: Condition) -> str:
    if condition.form is not None:
        relation = {"==": "== 0", "!=": "!= 0"}.get(condition.op, ">= 0")
        return f"({_form(condition.form)} {relation})"
    operands = [_condition(operand) for operand in condition.operands] or [str(int(condition.op == "&&"))]
    return f"(!{operands[0]})" if condition.op == "!" else f"({f' {condition.op} '.join(operands)})"
