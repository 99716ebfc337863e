"""Packed copies on a CPU in which several steps of a reduction lie in one lane, and the sums that belong to them.

A lane has 32 bits.  Where neighbouring columns are neighbours in memory, rows are interleaved; where the steps are, the
lanes of square blocks are transposed in registers; what lies otherwise is brought together element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tcomp.backends.c.contractions.dotinstructions import LANE_BYTES, flips, summed_up
from tcomp.backends.c.contractions.panels import Panel
from tcomp.backends.c.vectors.transposition import transposed_rows
from tcomp.backends.c.vectors.widening import widened
from tcomp.backends.dialect import C_STORAGE_TYPES, called
from tcomp.backends.openextents import stride_text
from tcomp.backends.prelude import INLINE
from tcomp.mapping.machines.fitted.cpupanels import GROUPED_PANELS
from tcomp.mapping.plan.layouts import OVERHANG, StepGroups
from tcomp.mapping.plan.values import Copy
from tcomp.model.terms.storages import Storage, contiguous_strides
from tcomp.values.operators import BFLOAT16, DTYPES, DType

_CALLED = called(r"(run|rows|turned|apart)_of_(\w+?)_in_(\w+?)_x(\d+)\b")

_LEAST_CALLED = called(r"least_x(\d+)\b")


@dataclass(frozen=True, slots=True)
class GroupedPanel(Panel):
    """The copy of a box of a tensor with groups of steps."""

    def declared(self, memory: str, corner: Sequence[str]) -> list[str]:
        """As for every panel, with the name of the sums behind it."""
        lines = Panel.declared(self, memory, corner)
        if _groups(self).summed is None:
            return lines
        return [*lines, f"int *const {self.name}_sums = (int *)((char *){self.name} + {self.copy.sums_offset}L);"]

    def facts(self) -> list[str]:
        """The lines that declare what is known of the elements once it is filled."""
        return [f"unsigned int {least_name(self)} = 0;"] if self.copy.dtype == BFLOAT16 else []

    def filled(self, source: str, vector_bytes: int) -> list[str]:
        """The lines that fill the copy from the tensor ``source``, and sum it where that is asked for."""
        return _filled(self, source, vector_bytes)


def panel_of(copy: Copy, storage: Storage) -> Panel:
    """The panel that a copy is."""
    return Panel(copy, storage) if copy.groups is None else GroupedPanel(copy, storage)


def _filled(panel: Panel, source: str, vector_bytes: int) -> list[str]:
    groups = _groups(panel)
    copy, strides = panel.copy, panel.storage.known_strides
    step, column = groups.dimension, copy.order[-1]
    outer = [d for d in copy.order if d not in (step, column)]
    lanes = max(vector_bytes, OVERHANG) // LANE_BYTES
    near = "apart"
    if column == step:
        near = "run" if strides[step] == 1 else near
    elif strides[column] == 1:
        near = "rows"
    elif strides[step] == 1 and copy.dtype == panel.storage.dtype:
        near = "turned"
    function = f"tc_{near if copy.step == 1 else 'apart'}_of_{panel.storage.dtype}_in_{copy.dtype}_x{lanes}"
    far, apart = strides[column], stride_text(panel.storage, step)
    along = f"{stride_text(panel.storage, column)} * {copy.step}" if far is None else f"{far * copy.step}L"
    along = "0L" if column == step else along
    low, high, first = panel.low(column), panel.high(column), f"o{column}"
    lines = [f"for (long o{d} = {panel.low(d)}; o{d} < {panel.high(d)}; o{d}++)" for d in outer]
    inside: list[str] = [f"const long o{step} = 0;"]
    target, count = panel.target(), "1"
    if copy.step > 1:
        lines.append(f"for (long r = 0; r < {copy.step}; r++)")
        begin = f"({low} - r + {copy.step - 1}) / {copy.step}"
        inside.append(f"const long l = {begin}, {first} = r + l * {copy.step};")
        target = panel.target({column: f"(r * {copy.run}L + l) * {groups.size}"})
        count = f"({high} - r + {copy.step - 1}) / {copy.step} - l"
    elif column != step:
        inside.append(f"const long {first} = {low};")
        count = f"{high} - {low}"
    flip = flips(copy.dtype) if groups.flipped else 0
    inside.append(
        f"{function}(&{panel.source(source)}, {apart}, {along}, {panel.high(step)}, {count}, &{target}, "
        f"{panel.strides[step] * groups.size}L, {flip}u);"
    )
    inside += _filled_up(panel, target, count)
    if copy.dtype == BFLOAT16:
        rows = "1" if column == step else f"({panel.high(step)} + {groups.size - 1}) / {groups.size}"
        length = f"({count}) * {groups.size}" if column != step else f"({panel.high(step)} + 1) / 2 * 2"
        inside.append(
            f"tc_lessen_x{lanes * groups.size}(&{least_name(panel)}s, &{target}, {rows}, "
            f"{panel.strides[step] * groups.size}L, {length});"
        )
    depth = "  " * len(lines)
    lines = ["  " * n + line for n, line in enumerate(lines)]
    lines += [f"{depth}{{", *(f"{depth}  {line}" for line in inside), f"{depth}}}"]
    if copy.dtype == BFLOAT16:
        wide, least = lanes * groups.size, least_name(panel)
        lines.insert(0, f"tc_uint16_x{wide} {least}s = (tc_uint16_x{wide}){{0}} - 1;")
        lines.append(f"{least} = tc_least_x{wide}({least}s);")
    if groups.summed is not None:
        lines += _sums(panel, groups.summed, lanes)
    return lines


def _filled_up(panel: Panel, target: str, columns: str) -> list[str]:
    """The lines that add groups of zeros behind the last steps, so that instructions for matrices find whole ones."""
    groups, copy = _groups(panel), panel.copy
    step, size = groups.dimension, groups.size
    if groups.depth <= 1:
        return []
    if copy.order[-1] == step:
        begin = f"({panel.high(step)} + {size - 1}) / {size} * {size}"
        return [f"for (long k = {begin}; k % {groups.whole}; k++) (&{target})[k] = 0;"]
    zero = f"(&{target})[k * {panel.strides[step] * size}L + c] = 0;"
    return [
        f"for (long k = ({panel.high(step)} + {size - 1}) / {size}; k % {groups.depth}; k++)",
        f"  for (long c = 0; c < ({columns}) * {size}; c++) {zero}",
    ]


def least_name(panel: Panel) -> str:
    """The C name of the bits, without its sign and less one, of the element of a copy that is nearest to zero.

    Zeros do not count.  The number is that of the exponent, which is 127 for 1.0, times 128, and more.
    """
    return f"{panel.name}_least"


def sums_strides(panel: Panel) -> tuple[int, ...]:
    """How far apart the sums of a copy lie for neighbours along each dimension of the tensor."""
    kept = _groups(panel).summed or ()
    by_order = contiguous_strides(tuple(panel.copy.shape[d] for d in kept))
    return tuple(by_order[kept.index(d)] if d in kept else 0 for d in range(len(panel.copy.shape)))


def sum_of(panel: Panel, offsets: Sequence[str]) -> str:
    """The C text of a sum of a copy, from the offsets of its elements from the corner."""
    strides = sums_strides(panel)
    terms = [f"({text}) * {stride}L" for text, stride in zip(offsets, strides, strict=True) if stride]
    return f"{panel.name}_sums[{' + '.join(terms) or '0'}]"


def _groups(panel: Panel) -> StepGroups:
    assert panel.copy.groups is not None
    return panel.copy.groups


def _sums(panel: Panel, kept: Sequence[int], lanes: int) -> list[str]:
    """The lines that sum a copy along all dimensions but those ``kept``, times what makes up for flipped bits."""
    groups, copy = _groups(panel), panel.copy
    column, step = copy.order[-1], groups.dimension
    loops = [f"for (long o{d} = 0; o{d} < {copy.shape[d]}; o{d}++)" for d in kept if d != column]
    over = [d for d in copy.order if d not in kept and d != step]
    inner = [f"for (long o{d} = {panel.low(d)}; o{d} < {panel.high(d)}; o{d}++)" for d in over]
    while lanes > copy.shape[column]:
        lanes //= 2
    if column in kept and lanes * LANE_BYTES >= OVERHANG:
        body = _sums_of_columns(panel, lanes, inner)
    else:
        if column in kept:
            loops.append(f"for (long o{column} = 0; o{column} < {copy.shape[column]}; o{column}++)")
        body = _sum_of_steps(panel, inner)
    if loops:
        loops[-1] += " {"
        body = [*(f"  {line}" for line in body), "}"]
    depth = "  " * max(0, len(loops) - 1)
    return ["  " * n + line for n, line in enumerate(loops)] + [depth + line for line in body]


def _sums_of_columns(panel: Panel, lanes: int, loops: list[str]) -> list[str]:
    """The sums of all columns, by vectors, of which the last may overlap the one before."""
    groups, copy = _groups(panel), panel.copy
    column, step = copy.order[-1], groups.dimension
    vector, last = f"tc_int32_x{lanes}", copy.shape[column] - lanes
    lines: list[str] = []
    for begin in range(0, -(-copy.shape[column] // lanes), GROUPED_PANELS.most_sums):
        numbers = range(begin, min(begin + GROUPED_PANELS.most_sums, -(-copy.shape[column] // lanes)))
        first = min(begin * lanes, last)
        lines += ["{", f"  const long o{column} = {first};"]
        lines += [f"  {vector} sum{n} = {{0}};" for n in numbers]
        lines += ["  " * (n + 1) + line for n, line in enumerate(loops)]
        inside = "  " * (len(loops) + 1)
        lines.append(f"{inside}for (long o{step} = 0; o{step} < {panel.high(step)}; o{step} += {groups.size}) {{")
        lines.append(f"{inside}  const {C_STORAGE_TYPES[copy.dtype.name]} *const p = &{panel.target()};")
        for n in numbers:
            place = f"*(const {vector} *)(p + {(min(n * lanes, last) - first) * groups.size})"
            lines.append(f"{inside}  sum{n} = {summed_up(f'sum{n}', place, copy.dtype, lanes)};")
        lines.append(f"{inside}}}")
        total = sum_of(panel, [f"o{d}" for d in range(len(copy.shape))])
        lines.append(f"  int *const q = &{total};")
        lines += [f"  *({vector} *)(q + {min(n * lanes, last) - first}) = -sum{n};" for n in numbers]
        lines.append("}")
    return lines


def _sum_of_steps(panel: Panel, loops: list[str]) -> list[str]:
    """One sum, element by element."""
    groups, copy = _groups(panel), panel.copy
    column, step = copy.order[-1], groups.dimension
    inside = "  " * len(loops)
    place = panel.target() if column == step else f"(&{panel.target()})[s % {groups.size}]"
    factor = -flips(copy.dtype) if copy.dtype.kind == "int" else flips(copy.dtype)
    return [
        "{",
        "  int sum = 0;",
        *("  " * (n + 1) + line for n, line in enumerate(loops)),
        f"  {inside}for (long s = 0; s < {panel.high(step)}; s++) {{",
        f"  {inside}  const long o{step} = s{'' if column == step else f' - s % {groups.size}'};",
        f"  {inside}  sum += {place};",
        f"  {inside}}}",
        f"  {sum_of(panel, [f'o{d}' for d in range(len(copy.shape))])} = {factor} * sum;",
        "}",
    ]


def group_functions(text: str) -> str:
    """The functions that bring groups together, for those that a text calls."""
    spelled: dict[str, Callable[[str, DType, DType, int], list[str]]] = {
        "run": _run, "rows": _rows, "turned": _turned, "apart": _apart,
    }  # fmt: skip
    functions = [_least(int(lanes)) for lanes in sorted(set(_LEAST_CALLED.findall(text)))]
    for kind, source, result, lanes in sorted(set(_CALLED.findall(text))):
        name = f"tc_{kind}_of_{source}_in_{result}_x{lanes}"
        functions.append("\n".join(spelled[kind](name, DTYPES[source], DTYPES[result], int(lanes))) + "\n")
    return "".join(functions)


def _least(lanes: int) -> str:
    """The functions that find the smallest of the bits of bfloat16 in rows of a copy, less one: in every lane, in all.

    What is nearest to zero, zeros left aside, is so for unsigned integers.
    """
    vector = f"tc_uint16_x{lanes}"
    return f"""{INLINE} void tc_lessen_x{lanes}(
    {vector} *least, const unsigned short *restrict p, long rows, long next, long count)
{{
  {vector} found = *least;
  unsigned short single = 0xffff;
  for (long r = 0; r < rows; r++, p += next)
    if (count >= {lanes})
      for (long c = 0;; c = tc_min(c + {lanes}, count - {lanes})) {{
        const {vector} bits = (*(const {vector} *)(p + c) & 0x7fff) - 1;
        __asm__("vpminuw %1, %0, %0" : "+v"(found) : "v"(bits));
        if (c + {lanes} >= count) break;
      }}
    else
      for (long c = 0; c < count; c++) {{
        const unsigned short bits = (unsigned short)((p[c] & 0x7fff) - 1);
        single = bits < single ? bits : single;
      }}
  found[0] = single < found[0] ? single : found[0];
  *least = found;
}}
static unsigned int tc_least_x{lanes}({vector} bits)
{{
  unsigned int least = 0xffff;
  for (int n = 0; n < {lanes}; n++) least = bits[n] < least ? bits[n] : least;
  return least;
}}
"""


def _head(name: str, source: DType, result: DType) -> list[str]:
    """The beginning of a function: loops over groups, of which the last may have fewer steps of its ``own``.

    ``step`` and ``column`` are elements between neighbours in ``s``, ``next`` those between groups in ``t``.
    """
    size = LANE_BYTES // result.itemsize
    return [
        f"static void {name}(",
        f"    const {C_STORAGE_TYPES[source.name]} *restrict s, long step, long column, long steps, long columns,",
        f"    {C_STORAGE_TYPES[result.name]} *restrict t, long next, unsigned int flip)",
        "{",
        f"  for (long k = 0; k < steps; k += {size}, s += {size} * step, t += next) {{",
        f"    const long own = tc_min(steps - k, {size});",
    ]


def _each(columns: str, result: DType) -> list[str]:
    """The lines that bring together a group of each of some columns, element by element."""
    size, c = LANE_BYTES // result.itemsize, C_STORAGE_TYPES[result.name]
    return [
        f"    for ({columns})",
        f"      for (long j = 0; j < {size}; j++)",
        f"        t[{size} * c + j] = j < own ? ({c})(s[j * step + c * column] ^ flip) : 0;",
    ]


def _apart(name: str, source: DType, result: DType, lanes: int) -> list[str]:
    """Elements that lie apart from each other."""
    return [*_head(name, source, result), *_each("long c = 0; c < columns; c++", result), "  }", "}"]


def _run(name: str, source: DType, result: DType, lanes: int) -> list[str]:
    """Steps that lie together in both places."""
    c = C_STORAGE_TYPES[result.name]
    return [
        *_head(name, source, result)[:4],
        f"  for (long k = 0; k < steps; k++) t[k] = ({c})(s[k] ^ flip);",
        f"  for (long k = steps; k % {LANE_BYTES // result.itemsize}; k++) t[k] = 0;",
        "}",
    ]


def _rows(name: str, source: DType, result: DType, lanes: int) -> list[str]:
    """Columns that lie together: rows of as many as there are lanes are shifted over each other."""
    size = LANE_BYTES // result.itemsize
    vector, bits = f"tc_uint32_x{lanes}", result.bits
    pattern = sum(1 << (bits * j) for j in range(size))

    loaded = DTYPES[f"uint{bits}"] if source.bits == bits else source

    def row(j: int) -> str:
        wide = f"({vector}){widened(f's + {j} * step + c', loaded, lanes)}"
        whole = wide if source.bits == bits else f"({wide} & {(1 << bits) - 1}u)"
        return f"({whole} << {bits * j})" if j else whole

    def loop(rows: list[str]) -> list[str]:
        return [
            f"      for (long c = 0;; c = tc_min(c + {lanes}, columns - {lanes})) {{",
            f"        {vector} u = {rows[0]};",
            *(f"        {line}" for line in rows[1:]),
            f"        *({vector} *)(t + {size} * c) = u ^ flip * {pattern}u;",
            f"        if (c + {lanes} >= columns) break;",
            "      }",
        ]

    return [
        *_head(name, source, result),
        f"    if (columns >= {lanes} && own == {size})",
        *loop([row(0), *(f"u |= {row(j)};" for j in range(1, size))]),
        f"    else if (columns >= {lanes})",
        *loop([row(0), *(f"if (own > {j}) u |= {row(j)};" for j in range(1, size))]),
        "    else",
        *_each("long c = 0; c < columns; c++", result),
        "  }",
        "}",
    ]


def _turned(name: str, source: DType, result: DType, lanes: int) -> list[str]:
    """Steps that lie together: square blocks of lanes are transposed, what is left is moved lane by lane."""
    size = LANE_BYTES // result.itemsize
    vector, pattern = f"tc_uint32_x{lanes}", sum(1 << (result.bits * j) for j in range(size))
    raw = f"tc_{result}_x{lanes * size}"
    turned, names = transposed_rows(vector, lanes, LANE_BYTES)
    loads = [f"{vector} r0_{n} = ({vector})*(const {raw} *)(p + {n} * column);" for n in range(lanes)]
    stores = [f"*({vector} *)(q + {n} * next) = {name} ^ flips;" for n, name in enumerate(names)]
    c = C_STORAGE_TYPES[result.name]
    head = _head(name, source, result)
    return [
        *head[:4],
        f"  const long whole = steps / {size};",
        f"  const unsigned int flips = flip * {pattern}u;",
        f"  if (whole >= {lanes} && columns >= {lanes})",
        f"    for (long g = 0;; g = tc_min(g + {lanes}, whole - {lanes})) {{",
        f"      for (long c = 0;; c = tc_min(c + {lanes}, columns - {lanes})) {{",
        f"        const {c} *const p = s + c * column + g * {size};",
        f"        {c} *const q = t + g * next + c * {size};",
        *(f"        {line}" for line in (*loads, *turned, *stores)),
        f"        if (c + {lanes} >= columns) break;",
        "      }",
        f"      if (g + {lanes} >= whole) break;",
        "    }",
        "  else",
        "    for (long g = 0; g < whole; g++)",
        "      for (long c = 0; c < columns; c++) {",
        "        unsigned int u;",
        f"        __builtin_memcpy(&u, s + c * column + g * {size}, {LANE_BYTES});",
        "        u ^= flips;",
        f"        __builtin_memcpy(t + g * next + c * {size}, &u, {LANE_BYTES});",
        "      }",
        f"  s += whole * {size} * step;",
        "  t += whole * next;",
        f"  const long own = steps - whole * {size};",
        "  if (own)",
        *_each("long c = 0; c < columns; c++", result),
        "}",
    ]
