"""Where buffers and panels of a tile lie in C: in registers, on the stack of a thread, or in its slice of memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tcomp.backends.arena import ALIGNMENT
from tcomp.backends.c.contractions.keptpanels import KeptBoxes, KeptPanel
from tcomp.backends.c.contractions.panels import Panel
from tcomp.backends.c.frame import KernelFrame
from tcomp.backends.dialect import C_STORAGE_TYPES, mangle
from tcomp.backends.spelling import buffer_corner, loop_text
from tcomp.loops.codegen import affine_expressions
from tcomp.loops.ir import LoopExpr
from tcomp.mapping.plan.values import Buffer


@dataclass(slots=True)
class TileMemory:
    """The memory of tiles in a kernel with some frame.

    A thread keeps panels between them: ``kept`` those that have one box, ``boxes`` those of which all boxes stay, in
    so much ``room`` behind all slices.  ``asks`` tells whether a place of something depends on the thread.
    """

    frame: KernelFrame
    kept: dict[str, KeptPanel] = field(default_factory=dict)
    boxes: dict[str, KeptBoxes] = field(default_factory=dict)
    room: int = 0
    asks: bool = False

    def keep(self, kept: Sequence[KeptPanel], boxes: Sequence[KeptBoxes]) -> list[str]:
        """Keep some panels and boxes from now on; the lines in front of all tiles of a thread."""
        self.kept, self.boxes = {k.panel.name: k for k in kept}, {k.panel.name: k for k in boxes}
        self.room = max(self.room, self.frame.threads * _room(boxes))
        return [*(line for k in kept for line in k.declared()), *(line for b in boxes for line in b.declared())]

    @property
    def bytes(self) -> int:
        """The scratch memory that is needed."""
        return self.frame.scratch_bytes + self.room

    def panel(self, panel: Panel, corner: Sequence[str]) -> list[str]:
        """The lines that declare a panel with some corner and fill it, unless that is done ahead."""
        ahead = self.frame.ahead.by_name.get(panel.name)
        if ahead is not None:
            return panel.declared(ahead.address(corner), corner)
        lines = [*panel.bordered(), *panel.filled(mangle(panel.copy.storage), self.frame.machine.vector_bytes)]
        boxes = self.boxes.get(panel.name)
        if boxes is not None:
            thread = self._of_thread(_room(self.boxes.values()))
            address = f"scratch + {self.frame.scratch_bytes}L{thread} + {boxes.address(corner)}"
            return [*panel.declared(address, corner), *boxes.unless_kept(corner, lines)]
        kept = self.kept.get(panel.name)
        lines = [*panel.facts(), *lines] if kept is None else kept.unless_kept(lines)
        return [*panel.declared(self._slice(panel.copy.panel), corner), *lines]

    def declared(self, buffer: Buffer, around: tuple[LoopExpr, ...]) -> Iterator[str]:
        """The lines that declare a buffer of a tile, which has some iterators."""
        c, name = C_STORAGE_TYPES[buffer.dtype.name], mangle(buffer.storage)
        if buffer.space == "register":
            yield f"{c} {name};"
            return
        assert buffer.lower is not None
        names = buffer_corner(buffer)
        for d, corner in enumerate(affine_expressions(buffer.lower, around)):
            if buffer.shape[d] > 1 and names[d].startswith("at"):
                yield f"const long {names[d]} = {loop_text(corner)};"
        if buffer.storage in self.frame.arena.private:
            yield f"{c} {self.frame.pointer(buffer.storage)} = ({c} *)({self._slice(buffer.storage)});"
        else:
            count = max(1, buffer.bytes // buffer.dtype.itemsize)
            yield f"{c} {name}[{count}] __attribute__((aligned({ALIGNMENT})));"

    def _slice(self, name: str) -> str:
        """The C text of an address in the memory of a thread's own."""
        arena = self.frame.arena
        return f"scratch + {arena.shared_bytes + arena.private[name]}L{self._of_thread(arena.slice_bytes)}"

    def _of_thread(self, room: int) -> str:
        """What is to be added to the address of something for the first thread; each has so much ``room``."""
        if self.frame.threads == 1:
            return ""
        self.asks = True
        return f" + omp_get_thread_num() * {room}L"


def _room(boxes: Iterable[KeptBoxes]) -> int:
    """Bytes that a thread needs for some boxes."""
    return max((b.end for b in boxes), default=0)
