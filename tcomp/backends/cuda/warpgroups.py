"""Device functions of warpgroups (sm_90a): descriptors of operands, and products that run while threads go on."""

from __future__ import annotations

import itertools

from tcomp.mapping.machines.atoms import GROUP_COLUMNS, MOST_GROUP_COLUMNS

_SYNCHRONISED = {
    "tc_wgmma_commit": ("Closes a group of products.", "wgmma.commit_group.sync.aligned"),
    "tc_proxy_fence": (
        "What threads stored in shared memory is there for products, too.",
        "fence.proxy.async.shared::cta",
    ),
}


def _instruction(name: str, comment: str, instruction: str) -> str:
    return f"""// {comment}
#ifdef __CUDACC__
$D void {name}() {{ asm volatile("{instruction};" ::: "memory"); }}
#endif"""


_BYTES, _EIGHTHS = ("s8", "u8"), ("e4m3", "e5m2")


def _name(first: str, second: str) -> str:
    return first if first == second else f"{first}_{second}"


def _product(first: str, second: str, columns: int) -> str:
    """Sums of a thread for two rows, 8 apart, of 64: the instruction has them two columns at a time, in turn.

    Halves may be turned; sums of floats of 8 bits may begin with a product.
    """
    halves, added = first not in (*_BYTES, *_EIGHTHS), first in _EIGHTHS
    element, letter, sums_of, steps = (
        ("int", "r", "s32", 32) if first in _BYTES else ("float", "f", "f32", 16 if halves else 32)
    )
    count = columns // 2
    registers = ",".join(f"%{n}" for n in range(count))
    lines = [registers[n : n + 90] for n in range(0, len(registers), 90)]
    text = "\n".join(f'      "{line}"' for line in lines)
    places = [f"{row}[{2 * j + p}]" for j in range(columns // 8) for row in ("low", "high") for p in (0, 1)]
    sums = [", ".join(f'"+{letter}"({place})' for place in places[n : n + 8]) for n in range(0, count, 8)]
    comment, head, parameter = "steps of both operands lie together", "", ""
    if halves:
        comment, head = (
            "an operand is turned if neighbours along its side lie together",
            "template <int turned_a, int turned_b>\n",
        )
    if added:
        comment, parameter = f"{comment}; the sums so far are left out unless to be added to", ", const int add"
    test = f"setp.ne.u32 all, %{count + 2}, 0" if added else "setp.eq.u32 all, 0, 0"
    scales = ", 1, 1" if first not in _BYTES else ""
    turns = f", %{count + 2}, %{count + 3}" if halves else ""
    inputs = ', "n"(turned_a), "n"(turned_b)' if halves else ', "r"(add)' if added else ""
    return f"""// 64 x {columns} x {steps}; {comment}.
#ifdef __CUDACC__
{head}$D void tc_wgmma_{_name(first, second)}_n{columns}(
    {element} (&low)[{columns // 4}], {element} (&high)[{columns // 4}],
    const unsigned long long a, const unsigned long long b{parameter}) {{
  asm volatile("{{\\n.reg .pred all;\\n{test};\\n"
      "wgmma.mma_async.sync.aligned.m64n{columns}k{steps}.{sums_of}.{first}.{second} {{"
{text}
      "}}, %{count}, %{count + 1}, all{scales}{turns};\\n}}"
      : {f",{chr(10)}        ".join(sums)}
      : "l"(a), "l"(b){inputs});
}}
#endif"""


WARPGROUPS: dict[str, str] = {
    "tc_swizzled": """// A place among elements of 2 bytes, in rows of 128 bytes, as the 128-byte swizzle has it.
$D $I tc_swizzled(const $I place) { return place ^ ((place >> 6 & 7) << 3); }""",
    "tc_swizzled_bytes": """// The same among elements of one byte.
$D $I tc_swizzled_bytes(const $I place) { return place ^ ((place >> 7 & 7) << 4); }""",
    "tc_shared_address": """#ifdef __CUDACC__
$D unsigned int tc_shared_address(const void *at) { return (unsigned int)__cvta_generic_to_shared(at); }
#endif""",
    "tc_descriptor": """// Of an operand in swizzled rows: bytes from panel to panel, and from 8 rows to the next.
$D unsigned long long tc_descriptor(const void *first, const unsigned int panel, const unsigned int rows) {
  const unsigned int low = (tc_shared_address(first) & 0x3ffff) >> 4 | panel >> 4 << 16;
  return (unsigned long long)(rows >> 4 | 1u << 30) << 32 | low;
}""",
    "tc_settle": """// The compiler takes sums to change here: it moves no instruction that uses them across.
#ifdef __CUDACC__
template <int rows, int columns>
$D void tc_settle(float (&sums)[rows][columns]) {
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < columns; j++) asm volatile("" : "+f"(sums[i][j]) :: "memory");
}
template <int rows, int columns>
$D void tc_settle(int (&sums)[rows][columns]) {
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < columns; j++) asm volatile("" : "+r"(sums[i][j]) :: "memory");
}
#endif""",
    "tc_wgmma_fence": """// Before a product uses sums that other instructions have used.
#ifdef __CUDACC__
template <class T, int rows, int columns>
$D void tc_wgmma_fence(T (&sums)[rows][columns]) {
  tc_settle(sums);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
#endif""",
    "tc_wgmma_wait": """// Waits for all groups of products of this thread but the newest.
#ifdef __CUDACC__
template <int newest, class T, int rows, int columns>
$D void tc_wgmma_wait(T (&sums)[rows][columns]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(newest) : "memory");
  tc_settle(sums);
}
#endif""",
    **{name: _instruction(name, *facts) for name, facts in _SYNCHRONISED.items()},
    **{
        f"tc_wgmma_{_name(first, second)}_n{columns}": _product(first, second, columns)
        for family in (("f16",), ("bf16",), _BYTES, _EIGHTHS)
        for first, second in itertools.product(family, repeat=2)
        for columns in range(GROUP_COLUMNS, MOST_GROUP_COLUMNS + 1, GROUP_COLUMNS)
    },
}
"""Definitions by name, as in ``prelude.py``."""
