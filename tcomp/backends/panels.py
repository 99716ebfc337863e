"""Packed panels on a CPU: how they are filled, and where an element of one lies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tcomp.backends.arena import panel_name
from tcomp.backends.dialect import C_STORAGE_TYPES, constant_text, mangle, store
from tcomp.mapping.columns import border_of
from tcomp.mapping.plan import Copy
from tcomp.scop import Storage, contiguous_strides

_TURNED = {4: "unsigned int", 8: "unsigned long long"}
"""Elements that are transposed in registers: the C type of their bits, by their bytes."""

_CALLED = re.compile(r"\btc_transpose_(\d+)_x(\d+)\b")


@dataclass(frozen=True, slots=True)
class Panel:
    """The copy of a box of a tensor."""

    copy: Copy
    storage: Storage

    @property
    def name(self) -> str:
        """Its name in C."""
        return mangle(panel_name(self.copy))

    @property
    def strides(self) -> tuple[int, ...]:
        """How far apart neighbours along each dimension of the tensor lie in the panel."""
        by_order = contiguous_strides(self.copy.room)
        return tuple(by_order[self.copy.order.index(d)] for d in range(len(self.copy.shape)))

    def element(self, subscripts: Sequence[str]) -> str:
        """The C text of an element, from that of its subscripts in the tensor."""
        terms = [
            f"({text} - {self._corner(d)}) * {stride}L"
            for d, (text, stride, extent) in enumerate(zip(subscripts, self.strides, self.copy.shape, strict=True))
            if extent > 1
        ]
        return f"{self.name}[{' + '.join(terms) or '0'}]"

    def filled(self, memory: str, corner: Sequence[str], source: str, vector_bytes: int) -> list[str]:
        """The lines that declare the panel at some ``memory`` and fill it; ``corner`` is the text of its first element.

        What of the box is outside the tensor gets the value that reads have there; where they have none, nobody reads.
        """
        c = C_STORAGE_TYPES[self.copy.dtype.name]
        lines = [f"{c} *const {self.name} = ({c} *)({memory});"]
        border = border_of(self.copy.reads[0])
        if border is not None:
            value = store(constant_text(border, self.copy.dtype), self.copy.dtype)
            count = self.copy.bytes // self.copy.dtype.itemsize
            lines.append(f"for (long o = 0; o < {count}; o++) {self.name}[o] = {value};")
        box = self.storage.box
        for d, text in enumerate(corner):
            lines.append(f"const long {self._corner(d)} = {text};")
            lines.append(f"const long {self._low(d)} = tc_max(0, {box.origin[d]} - {self._corner(d)});")
            end = f"{box.origin[d] + box.extent[d]} - {self._corner(d)}"
            lines.append(f"const long {self._high(d)} = tc_min({self.copy.shape[d]}, {end});")
        *outer, column = self.copy.order
        lanes = vector_bytes // self.copy.dtype.itemsize
        run = next((d for d in outer if self.storage.strides[d] == 1 and self.copy.shape[d] >= lanes), None)
        turned = run is not None and self.storage.strides[column] != 1 and self.copy.shape[column] >= lanes
        if turned and self.copy.dtype.itemsize in _TURNED and lanes in (4, 8, 16):
            assert run is not None
            return lines + self._turned(source, [d for d in outer if d != run], run, column, lanes)
        depth = 0
        for d in outer:
            lines.append("  " * depth + f"for (long o{d} = {self._low(d)}; o{d} < {self._high(d)}; o{d}++)")
            depth += 1
        whole = self.copy.shape[column]
        move = f"{self._target()} = {self._source(source)};"
        low, high = self._low(column), self._high(column)
        indent = "  " * depth
        lines.append(f"{indent}if ({high} - {low} == {whole})")
        lines.append(f"{indent}  for (long o{column} = 0; o{column} < {whole}; o{column}++) {move}")
        lines.append(f"{indent}else")
        lines.append(f"{indent}  for (long o{column} = {low}; o{column} < {high}; o{column}++) {move}")
        return lines

    def _turned(self, source: str, outer: list[int], run: int, column: int, lanes: int) -> list[str]:
        """Fill by square blocks that are transposed in registers; what is left of them element by element."""
        function = f"tc_transpose_{8 * self.copy.dtype.itemsize}_x{lanes}"
        move = f"{self._target()} = {self._source(source)};"
        pair = f"&{self._source(source)}, {self.storage.strides[column]}L, &{self._target()}, {self.strides[run]}L"
        loops = [f"for (long o{d} = {self._low(d)}; o{d} < {self._high(d)}; o{d}++)" for d in outer]
        high, across = self._high(run), self._high(column)
        whole = f"o{run} + {lanes} <= {high} && o{column} + {lanes} <= {across}"
        blocks = (
            f"for (long o{run} = {self._low(run)}; o{run} < {high}; o{run} += {lanes})",
            f"  for (long o{column} = {self._low(column)}; o{column} < {across}; o{column} += {lanes})",
            f"    if ({whole}) {function}({pair});",
            "    else {",
            f"      const long from{run} = o{run}, to{run} = tc_min(o{run} + {lanes}, {high});",
            f"      const long from{column} = o{column}, to{column} = tc_min(o{column} + {lanes}, {across});",
            f"      for (long o{run} = from{run}; o{run} < to{run}; o{run}++)",
            f"        for (long o{column} = from{column}; o{column} < to{column}; o{column}++) {move}",
            "    }",
        )
        return ["  " * n + loop for n, loop in enumerate(loops)] + ["  " * len(loops) + line for line in blocks]

    def _target(self) -> str:
        return f"{self.name}[{' + '.join(f'o{d} * {s}L' for d, s in enumerate(self.strides)) or '0'}]"

    def _source(self, source: str) -> str:
        box, strides = self.storage.box, self.storage.strides
        terms = [f"({self._corner(d)} + o{d} - {box.origin[d]}) * {strides[d]}L" for d in range(len(strides))]
        return f"{source}[{' + '.join(terms) or '0'}]"

    def _corner(self, d: int) -> str:
        return f"{self.name}_at{d}"

    def _low(self, d: int) -> str:
        return f"{self.name}_low{d}"

    def _high(self, d: int) -> str:
        return f"{self.name}_high{d}"


def transpositions(text: str) -> str:
    """The functions that transpose square blocks, for those that a text calls."""
    return "".join(_transposition(int(bits), int(lanes)) for bits, lanes in sorted(set(_CALLED.findall(text))))


def _transposition(bits: int, lanes: int) -> str:
    """Rows are interleaved with those half a block away, as often as the number of rows can be halved."""
    vector = f"tc_uint{bits}_x{lanes}"
    zipped = [(n // 2 + (lanes if n % 2 else 0)) for n in range(lanes)]
    low, high = (", ".join(str(n + shift) for n in zipped) for shift in (0, lanes // 2))
    lines = [
        f"static void tc_transpose_{bits}_x{lanes}(const void *source, long stride, void *target, long step)",
        "{",
        f"  const {_TURNED[bits // 8]} *s = source;",
        f"  {_TURNED[bits // 8]} *t = target;",
    ]
    names = [f"r0_{n}" for n in range(lanes)]
    lines += [f"  {vector} {name} = *(const {vector} *)(s + {n} * stride);" for n, name in enumerate(names)]
    for stage in range(1, lanes.bit_length()):
        after = [f"r{stage}_{n}" for n in range(lanes)]
        for n in range(lanes // 2):
            pair = f"{names[n]}, {names[n + lanes // 2]}"
            lines.append(f"  {vector} {after[2 * n]} = __builtin_shufflevector({pair}, {low});")
            lines.append(f"  {vector} {after[2 * n + 1]} = __builtin_shufflevector({pair}, {high});")
        names = after
    lines += [f"  *({vector} *)(t + {n} * step) = {name};" for n, name in enumerate(names)]
    return "\n".join([*lines, "}"]) + "\n"
