"""A program with blocks of steps on a GPU: the kernels of its pieces, and which of them is launched when.

Sizes are known, so all launches are, too: each piece is launched for each value of the steps around it, on the slices
that these name.  A launch begins when the one before has ended, which is what keeps steps in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tcomp.backends.arena import ALIGNMENT as ROOM
from tcomp.backends.arguments import arguments_of
from tcomp.backends.gpu.program import FlagsOf, ProgramText, assembled, temporaries_of, write_kernels
from tcomp.backends.gpu.words.dialect import DeviceDialect
from tcomp.backends.indexwidth import index_type
from tcomp.backends.source import ALIGNMENT, ANYWHERE, Launch, Source, Temporary, Turn
from tcomp.backends.spelling import Needs
from tcomp.errors import CompileError, Diagnostic
from tcomp.grammar.tree.forms import value
from tcomp.grammar.tree.function import Function
from tcomp.loops.ir import LoopNode
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.values import Plan
from tcomp.model.scop import Scop
from tcomp.model.stepwise.pieces import Item, Piece, Pieces, Repeat

MOST_TURNS = 1 << 18


def write_pieces(
    dialect: DeviceDialect, function: Function, pieces: Pieces, made: Sequence[tuple[Plan, LoopNode]],
    options: MappingOptions, checked: bool, flags: FlagsOf,
) -> Source:  # fmt: skip
    """The kernels of a program in pieces, each with its plan and its loops.

    Raises CompileError for more than ``MOST_TURNS`` launches, TargetError as ``write_program`` does.
    """
    needs = Needs()
    texts = [
        write_kernels(
            dialect, piece.function, plan, loops, options, checked, needs, index_type(plan),
            f"{function.name}_piece{number}", piece.numbers,
        )
        for number, (piece, (plan, loops)) in enumerate(zip(pieces.pieces, made, strict=True))
    ]  # fmt: skip
    whole, launches = assembled(dialect, function.name, pieces.sizes, texts, needs)
    kept, begin = _kept(pieces)
    parts = _parts(pieces, [plan for plan, _ in made], texts, launches, begin)
    turns: list[Turn] = []
    for turn in _turns(pieces, parts, pieces.body, {}):
        if len(turns) == MOST_TURNS:
            raise _too_many(function)
        turns.append(turn)
    launched = tuple(launch for part in parts.values() for launch in part.launches)
    vectors = [part.vectors(n) for part in parts.values() for n in range(len(part.launches))]
    anywhere = any(own % ALIGNMENT for turn in turns for n, own in enumerate(turn[1:]) if n in vectors[turn[0]])
    wide = {launch.arguments[n] for launch, places in zip(launched, vectors, strict=True) for n in places}
    arguments = arguments_of(function, Scop(pieces.storages, (), pieces.sizes))
    own = tuple(t for part in parts.values() for t in part.temporaries)
    return Source(
        whole, function.name, arguments, max([begin, *(part.end for part in parts.values())]), tuple(needs.checks),
        (*flags(function, options), *((ANYWHERE,) if anywhere else ())), launched, (*kept, *own),
        () if anywhere else tuple(a.name for a in arguments if a.name in wide), None, pieces.warnings, tuple(turns),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece as it is launched: ``first`` is the number of its first launch, ``end`` the byte behind its scratch
    memory; its launches name their arguments as the whole program does."""

    piece: Piece
    text: ProgramText
    first: int
    launches: tuple[Launch, ...]
    temporaries: tuple[Temporary, ...]
    end: int

    def vectors(self, number: int) -> frozenset[int]:
        """Which arguments of a launch a kernel touches several elements of at a time, by their places."""
        kernel = self.text.kernels[number]
        return frozenset(n for n, name in enumerate(kernel.launch.arguments) if name in kernel.vectors)


def _kept(pieces: Pieces) -> tuple[tuple[Temporary, ...], int]:
    """The temporaries that outlive a piece, and the byte behind them in the scratch memory."""
    found, end = [], 0
    for storage in pieces.storages.values():
        if storage.role == "temporary":
            found.append(Temporary(storage.name, storage.dtype, storage.box.extent, end))
            end += -(-max(1, storage.bytes) // ROOM) * ROOM
    return tuple(found), end


def _parts(
    pieces: Pieces, plans: Sequence[Plan], texts: Sequence[ProgramText], launches: Sequence[Launch], begin: int
) -> dict[int, _Part]:
    """What each piece is launched as, by its identity; one runs at a time, so all share what is behind ``begin``."""
    found: dict[int, _Part] = {}
    first = 0
    for number, (piece, plan, text) in enumerate(zip(pieces.pieces, plans, texts, strict=True)):
        own, end = temporaries_of(plan, text.kernels, begin)
        names = {t.name: f"{t.name} of piece {number}" for t in own}
        names |= {name: cut.tensor for name, cut in piece.slices.items()}
        placed = tuple(
            replace(launch, arguments=tuple(names.get(a, a) for a in launch.arguments))
            for launch in launches[first : first + len(text.kernels)]
        )
        renamed = tuple(replace(t, name=names[t.name]) for t in own)
        found[id(piece)] = _Part(piece, text, first, placed, renamed, end)
        first += len(placed)
    return found


def _turns(pieces: Pieces, parts: Mapping[int, _Part], body: Sequence[Item], at: Mapping[str, int]) -> Iterator[Turn]:
    for item in body:
        match item:
            case Piece():
                part = parts[id(item)]
                for number, kernel in enumerate(part.text.kernels):
                    offsets = (_offset(pieces, item, name, at) for name in kernel.launch.arguments)
                    yield (part.first + number, *offsets, *(at[step] for step in kernel.launch.steps))
            case Repeat():
                for step in range(value(item.lower, at), value(item.upper, at)):
                    yield from _turns(pieces, parts, item.body, {**at, item.index: step})
            case _:
                raise AssertionError("tiles over time are those of processors")


def _offset(pieces: Pieces, piece: Piece, name: str, at: Mapping[str, int]) -> int:
    """By how many bytes the slice that a piece sees lies behind where its tensor begins."""
    cut = piece.slices.get(name)
    if cut is None:
        return 0
    storage = pieces.storages[cut.tensor]
    folded, kept = pieces.folds.get(cut.tensor, (-1, 1))
    elements = 0
    for d, form in cut.at:
        place = value(form, at) - storage.box.origin[d]
        elements += storage.strides[d] * (place % kept if d == folded else place)
    return elements * storage.dtype.itemsize


def _too_many(function: Function) -> CompileError:
    span = next(s.steps[0].span for s in function.statements if s.steps)
    message = f"{function.name} would take more than {MOST_TURNS} launches on a GPU: steps are launched one by one"
    return CompileError(Diagnostic(message, function.source, span, "compile it for the target 'cpu'"))
