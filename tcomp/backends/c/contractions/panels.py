"""Packed panels on a CPU: how they are filled, and where an element of one lies."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tcomp.backends.c.vectors.transposition import transposed_rows
from tcomp.backends.dialect import C_STORAGE_TYPES, called, constant_text, store
from tcomp.backends.openextents import end_text, extent_text, stride_text
from tcomp.mapping.contraction.borders import border_of
from tcomp.mapping.machines.cpu import LINE_BYTES
from tcomp.mapping.machines.fitted.cpupanels import PANEL_COPIES
from tcomp.mapping.plan.values import Copy
from tcomp.model.terms.storages import Storage, contiguous_strides

_TURNED = {4: "unsigned int", 8: "unsigned long long"}
"""Elements that are transposed in registers: the C type of their bits, by their bytes."""

_CALLED = called(r"transpose_(\d+)_x(\d+)\b")


@dataclass(frozen=True, slots=True)
class Panel:
    """The copy of a box of a tensor."""

    copy: Copy
    storage: Storage

    @property
    def name(self) -> str:
        """Its name in C, to which names of what belongs to it are appended: no tensor has such names."""
        return f"p_{self.copy.panel}"

    @property
    def strides(self) -> tuple[int, ...]:
        """How far apart neighbours along each dimension of the tensor lie in the panel; see ``steps``.

        Along the dimension of groups only those do that begin a group, unless it is innermost.
        """
        by_order = list(contiguous_strides(self.copy.room))
        if self.copy.groups is not None:
            inside = self.copy.order.index(self.copy.groups.dimension) + 1
            by_order[inside:] = [stride * self.copy.groups.size for stride in by_order[inside:]]
        return tuple(by_order[self.copy.order.index(d)] for d in range(len(self.copy.shape)))

    @property
    def steps(self) -> tuple[int, ...]:
        """How far apart in the tensor the neighbours are."""
        return tuple(self.copy.step if d == self.copy.order[-1] else 1 for d in range(len(self.copy.shape)))

    def stride(self, coefficients: Sequence[int | None]) -> int | None:
        """Elements of the panel between those of an index with such coefficients in the subscripts, if constant."""
        total = 0
        for coefficient, step, stride in zip(coefficients, self.steps, self.strides, strict=True):
            if coefficient is None or coefficient % step:
                return None
            total += coefficient // step * stride
        return total

    def element(self, subscripts: Sequence[str]) -> str:
        """The C text of an element, from that of its subscripts in the tensor."""
        terms = [
            self._offset(d, f"({text} - {self.corner(d)})")
            for d, (text, extent) in enumerate(zip(subscripts, self.copy.shape, strict=True))
            if extent > 1
        ]
        return f"{self.name}[{' + '.join(terms) or '0'}]"

    def _offset(self, d: int, distance: str) -> str:
        """Where in the panel what is at some distance from its corner along a dimension lies."""
        if self.steps[d] == 1:
            return f"{distance} * {self.strides[d]}L"
        step = f"{self.steps[d]}UL"
        place = f"((unsigned long){distance} % {step} * {self.copy.run}L + (unsigned long){distance} / {step})"
        return place if self.strides[d] == 1 else f"{place} * {self.strides[d]}L"

    def declared(self, memory: str, corner: Sequence[str]) -> list[str]:
        """The lines that declare the panel at some ``memory``; ``corner`` is the text of its first element."""
        c = C_STORAGE_TYPES[self.copy.dtype.name]
        lines = [f"{c} *const {self.name} = ({c} *)({memory});"]
        for d, text in enumerate(corner):
            extent = self.copy.shape[d]
            lines.append(f"const long {self.corner(d)} = {text};")
            low = f"{self.storage.box.origin[d]} - {self.corner(d)}"
            high = f"{end_text(self.storage, d)} - {self.corner(d)}"
            lines.append(f"const long {self.low(d)} = tc_min({extent}, tc_max(0, {low}));")
            lines.append(f"const long {self.high(d)} = tc_max({self.low(d)}, tc_min({extent}, {high}));")
        return lines

    def facts(self) -> list[str]:
        """The lines that declare what is known of the elements once they are there: of these nothing."""
        return []

    def bordered(self) -> list[str]:
        """The lines that set the whole panel to what reads of its tensor have outside of it, if they have something."""
        border = border_of(self.copy.reads[0])
        if border is None:
            return []
        value = store(constant_text(border, self.copy.dtype), self.copy.dtype)
        flip = f" ^ {1 << (self.copy.dtype.bits - 1)}" if self.copy.groups and self.copy.groups.flipped else ""
        *outer, column = self.copy.order
        long_rows = self.copy.shape[column] * self.copy.dtype.itemsize >= PANEL_COPIES.edged_row
        if long_rows and self.copy.step == 1 and self.copy.groups is None:
            return self._edged(value, outer, column)
        count = self.copy.box_bytes // self.copy.dtype.itemsize
        return [f"for (long o = 0; o < {count}; o++) {self.name}[o] = {value}{flip};"]

    def _edged(self, value: str, outer: Sequence[int], column: int) -> list[str]:
        """The lines that set to a value those elements of the panel that are outside the tensor."""
        whole, left, right = self.copy.shape[column], self.low(column), self.high(column)
        short = [f"{self.high(d)} - {self.low(d)} < {self.copy.shape[d]}" for d in (*outer, column)]
        alone, outer = ([d for d in outer if (self.copy.shape[d] == 1) == is_one] for is_one in (True, False))
        checks = [f"{self.low(d)} < {self.high(d)}" for d in alone]
        checks += [f"{self.low(d)} <= o{d} && o{d} < {self.high(d)}" for d in outer]
        inside = " && ".join(checks)
        element = self.target({d: "0" for d in range(len(self.copy.shape)) if d not in (*outer, column)})
        row = [
            "{",
            f"  const long left = {f'{inside} ? {left} : {whole}' if inside else left};",
            f"  for (long o{column} = 0; o{column} < left; o{column}++) {element} = {value};",
            f"  for (long o{column} = tc_max(left, {right}); o{column} < {whole}; o{column}++) {element} = {value};",
            "}",
        ]
        lines = [f"if ({' || '.join(short)})"]
        for depth, d in enumerate(outer):
            lines.append("  " * (depth + 1) + f"for (long o{d} = 0; o{d} < {self.copy.shape[d]}; o{d}++)")
        lines += ["  " * (len(outer) + 1) + line for line in row]
        return lines

    def filled(self, source: str, vector_bytes: int) -> list[str]:
        """The lines that fill the panel from the tensor ``source``."""
        lines: list[str] = []
        read = self.copy.reads[0]
        border = border_of(read)
        *outer, column = self.copy.order
        if read.boundary is not None and border is None:
            return lines + self._folded(source, read.boundary.kind, outer, column)
        lanes = vector_bytes // self.copy.dtype.itemsize
        run = self._run(outer)
        turned = math.prod(self.copy.shape[d] for d in run) >= lanes <= self.copy.shape[column]
        turned = turned and self.storage.known_strides[column] != 1 and self.copy.step == 1
        if turned and self.copy.dtype.itemsize in _TURNED and lanes in (4, 8, 16):
            return lines + self._turned(source, [d for d in outer if d not in run], run, column, lanes)
        for depth, d in enumerate(outer):
            lines.append("  " * depth + f"for (long o{d} = {self.low(d)}; o{d} < {self.high(d)}; o{d}++)")
        row = self._row(source, column)
        ahead = self._fetched_ahead(source, outer, column)
        if ahead:
            row = ["{", *("  " + line for line in (*ahead, *row)), "}"]
        return lines + ["  " * len(outer) + line for line in row]

    def _fetched_ahead(self, source: str, outer: Sequence[int], column: int) -> list[str]:
        """The lines that fetch a row to come, where rows lie too far apart for the processor to do so by itself."""
        size = self.copy.dtype.itemsize
        moved = [d for d in outer if self.copy.shape[d] > 1]
        if not moved or self.copy.step != 1 or self.storage.known_strides[column] != 1:
            return []
        d, length = moved[-1], self.copy.shape[column] * size
        if (
            self.copy.shape[d] <= PANEL_COPIES.ahead
            or abs(self.storage.strides[d]) * size < PANEL_COPIES.far_row
            or length > PANEL_COPIES.long_row
        ):
            return []
        there = f"tc_min(o{d} + {PANEL_COPIES.ahead}, {self.high(d)} - 1)"
        elements = range(0, self.copy.shape[column], LINE_BYTES // size)
        return [f"__builtin_prefetch(&{self.source(source, {d: there, column: str(e)})});" for e in elements]

    def _row(self, source: str, column: int) -> list[str]:
        """What lies inside the tensor of one row, where rows of whole boxes have loops of a constant length."""
        low, high, whole = self.low(column), self.high(column), self.copy.shape[column]
        if self.copy.step == 1:
            move = f"{self.target()} = {self.source(source)};"
            part = f"for (long o{column} = {low}; o{column} < {high}; o{column}++) {move}"
            if self.storage.known_strides[column] == 1:
                first = {column: low}
                there = f"&{self.target(first)}, &{self.source(source, first)}"
                part = f"tc_copied({there}, ({high} - {low}) * {self.copy.dtype.itemsize}L);"
            return [
                f"if ({high} - {low} == {whole})",
                f"  for (long o{column} = 0; o{column} < {whole}; o{column}++) {move}",
                "else",
                f"  {part}",
            ]
        step, run = self.copy.step, self.copy.run
        apart = self.source(source, {column: f"r + l * {step}"})
        move = f"{self.target({column: f'r * {run}L + l'})} = {apart};"
        return [
            f"for (long r = 0; r < {step}; r++)",
            f"  for (long l = ({low} - r + {step - 1}) / {step}; r + l * {step} < {high}; l++) {move}",
        ]

    def _folded(self, source: str, kind: str, outer: Sequence[int], column: int) -> list[str]:
        """The lines that fill a panel whose elements outside the tensor are elements of it, by their kind."""
        lines, box, depth = list[str](), self.storage.box, 0
        inside: dict[int, str] = {}
        for d in outer:
            lines.append("  " * depth + f"for (long o{d} = 0; o{d} < {self.copy.shape[d]}; o{d}++) {{")
            depth += 1
            there = f"tc_{kind}({self.corner(d)} + o{d}, {box.origin[d]}L, {extent_text(self.storage, d)})"
            lines.append("  " * depth + f"const long from{d} = {there} - {self.corner(d)};")
            inside[d] = f"from{d}"
        low, high, whole = self.low(column), self.high(column), self.copy.shape[column]
        room = f"{box.origin[column]}L, {extent_text(self.storage, column)}"
        there = f"tc_{kind}({self.corner(column)} + o{column}, {room})"
        edge = self.source(source, inside | {column: f"{there} - {self.corner(column)}"})
        target = self.target({column: self._offset(column, f"o{column}")})
        for start, end, value in (
            ("0", low, edge), (low, high, self.source(source, inside)), (high, str(whole), edge)
        ):  # fmt: skip
            loop = f"for (long o{column} = {start}; o{column} < {end}; o{column}++)"
            lines.append("  " * depth + f"{loop} {target} = {value};")
        return lines + ["  " * d + "}" for d in range(depth - 1, -1, -1)]

    def _run(self, outer: Sequence[int]) -> list[int]:
        """Dimensions, outermost first, whose elements follow one another in the tensor, and evenly in the panel.

        All but the first are as long as the tensor's.
        """
        found: list[int] = []
        length = 1
        for d in sorted((d for d in outer if self.copy.shape[d] > 1), key=lambda d: abs(self.storage.strides[d])):
            apart = self.strides[found[-1]] * length if found else self.strides[d]
            if self.storage.known_strides[d] != length or self.strides[d] != apart:
                break
            found.insert(0, d)
            length *= self.copy.shape[d]
            if self.copy.shape[d] != self.storage.box.extent[d] or self.storage.is_open(d):
                break
        return found

    def _turned(self, source: str, outer: list[int], run: list[int], column: int, lanes: int) -> list[str]:
        """Fill by square blocks that are transposed in registers; the last ones overlap those before them.

        Blocks follow the tensor's own rows, which the processor fetches ahead.
        """
        function = f"tc_transpose_{8 * self.copy.dtype.itemsize}_x{lanes}"
        first, step = run[0], self.strides[run[-1]]
        inner = math.prod(self.copy.shape[d] for d in run[1:])
        read, written = (at(dict.fromkeys(run, "0")) for at in (functools.partial(self.source, source), self.target))
        pair = f"&{read} + run, {stride_text(self.storage, column)}, &{written} + run * {step}L, {step}L"
        loops = [f"for (long o{d} = {self.low(d)}; o{d} < {self.high(d)}; o{d}++)" for d in outer]
        low, high, left, right = self.low(first), self.high(first), self.low(column), self.high(column)
        if inner > 1:
            low, high = f"{low} * {inner}", f"{high} * {inner}"
        conditions = [f"{high} - {low} >= {lanes}", f"{right} - {left} >= {lanes}"]
        conditions += [f"{self.high(d)} - {self.low(d)} == {self.copy.shape[d]}" for d in run[1:]]
        plain = [f"for (long o{d} = {self.low(d)}; o{d} < {self.high(d)}; o{d}++)" for d in (*run, column)]
        blocks = (
            f"if ({' && '.join(conditions)})",
            f"  for (long next{column} = {left}; next{column} < {right}; next{column} += {lanes})",
            f"    for (long next = {low}; next < {high}; next += {lanes}) {{",
            f"      const long run = tc_min(next, {high} - {lanes});",
            f"      const long o{column} = tc_min(next{column}, {right} - {lanes});",
            f"      {function}({pair});",
            "    }",
            "else",
            *("  " * (depth + 1) + loop for depth, loop in enumerate(plain)),
            "  " * (len(plain) + 1) + f"{self.target()} = {self.source(source)};",
        )
        return ["  " * n + loop for n, loop in enumerate(loops)] + ["  " * len(loops) + line for line in blocks]

    def target(self, offsets: Mapping[int, str] | None = None) -> str:
        """The C text of an element of the panel; ``offsets`` gives those along some dimensions, in elements of it."""
        known = offsets or {}
        terms = [known.get(d, f"o{d} * {s}L") for d, s in enumerate(self.strides)]
        return f"{self.name}[{' + '.join(terms) or '0'}]"

    def source(self, source: str, distances: Mapping[int, str] | None = None) -> str:
        """The C text of an element of the tensor; ``distances`` gives those from the corner along some dimensions."""
        origin, known = self.storage.box.origin, distances or {}
        terms = [
            f"({self.corner(d)} + {known.get(d, f'o{d}')} - {first}) * {stride_text(self.storage, d)}"
            for d, first in enumerate(origin)
        ]
        return f"{source}[{' + '.join(terms) or '0'}]"

    def corner(self, d: int) -> str:
        """The C name of the first subscript along a dimension."""
        return f"{self.name}_at{d}"

    def low(self, d: int) -> str:
        """The C name of the first offset along a dimension at which there is an element of the tensor."""
        return f"{self.name}_low{d}"

    def high(self, d: int) -> str:
        """The C name of what follows the last such offset."""
        return f"{self.name}_high{d}"


def fill_functions(text: str) -> str:
    """The functions that fill panels, for those that a text calls."""
    transposed = "".join(_transposition(int(bits), int(lanes)) for bits, lanes in sorted(set(_CALLED.findall(text))))
    return transposed + (_copied() if "tc_copied(" in text else "")


def _copied() -> str:
    """Copies so many bytes: those that do not fill a vector with two that overlap."""
    lines = [
        "static inline void tc_copied(void *target, const void *source, long count)",
        "{",
        "  const char *s = source;",
        "  char *t = target;",
        "  if (count >= 64) {",
        "    for (long o = 0; o < count - 64; o += 64) *(tc_uint8_x64 *)(t + o) = *(const tc_uint8_x64 *)(s + o);",
        "    *(tc_uint8_x64 *)(t + count - 64) = *(const tc_uint8_x64 *)(s + count - 64);",
    ]
    for size in (32, 16, 8, 4):
        vector = f"tc_uint8_x{size}"
        lines += [
            f"  }} else if (count >= {size}) {{",
            f"    const {vector} last = *(const {vector} *)(s + count - {size});",
            f"    *({vector} *)t = *(const {vector} *)s;",
            f"    *({vector} *)(t + count - {size}) = last;",
        ]
    lines += ["  } else {", "    for (long o = 0; o < count; o++) t[o] = s[o];", "  }", "}"]
    return "\n".join(lines) + "\n"


def _transposition(bits: int, lanes: int) -> str:
    vector = f"tc_uint{bits}_x{lanes}"
    lines = [
        f"static void tc_transpose_{bits}_x{lanes}(const void *source, long stride, void *target, long step)",
        "{",
        f"  const {_TURNED[bits // 8]} *s = source;",
        f"  {_TURNED[bits // 8]} *t = target;",
    ]
    lines += [f"  {vector} r0_{n} = *(const {vector} *)(s + {n} * stride);" for n in range(lanes)]
    turned, names = transposed_rows(vector, lanes, bits // 8)
    lines += [f"  {line}" for line in turned]
    lines += [f"  *({vector} *)(t + {n} * step) = {name};" for n, name in enumerate(names)]
    return "\n".join([*lines, "}"]) + "\n"
