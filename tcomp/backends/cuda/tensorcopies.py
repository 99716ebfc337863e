"""Device functions of tensor copies (sm_90): barriers that count arrivals and bytes, boxes, registers given away."""

from __future__ import annotations

_BARRIER = '"r"(tc_shared_address(barrier))'
_MOST_RANK = 5


def _on_barrier(name: str, comment: str, parameter: str, instruction: str) -> str:
    """A function on a barrier, with one number more."""
    return f"""// {comment}
#ifdef __CUDACC__
$D void {name}(unsigned long long *barrier{", const unsigned int " + parameter if parameter else ""}) {{
  asm volatile("{instruction};" :: {_BARRIER}{f', "r"({parameter})' if parameter else ""} : "memory");
}}
#endif"""


def _copy(rank: int) -> str:
    """Asks for a box of a tensor with so many dimensions: where in shared memory, and its corner, innermost first."""
    names = [f"c{n}" for n in range(rank)]
    places = ", ".join(f"%{n + 2}" for n in range(rank))
    inputs = ", ".join(f'"r"({name})' for name in names)
    return f"""#ifdef __CUDACC__
$D void tc_tensor_copy{rank}(void *shared, const tc_tensor_map &map, unsigned long long *barrier,
    {", ".join(f"const int {name}" for name in names)}) {{
  asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {{{places}}}], [%{rank + 2}];" :: "r"(tc_shared_address(shared)), "l"(&map), {inputs},
      {_BARRIER} : "memory");
}}
#endif"""


def _registers(name: str, word: str) -> str:
    return f"""#ifdef __CUDACC__
template <int count>
$D void {name}() {{ asm volatile("setmaxnreg.{word}.sync.aligned.u32 %0;" :: "n"(count)); }}
#endif"""


TENSOR_COPIES: dict[str, str] = {
    "tc_tensor_map": """// How a tensor lies, as the driver writes it down.
#ifdef __CUDACC__
struct __align__(64) tc_tensor_map { unsigned long long words[16]; };
#endif""",
    "tc_barrier_init": _on_barrier(
        "tc_barrier_init", "So many arrivals end a phase.", "count", "mbarrier.init.shared::cta.b64 [%0], %1"
    ),
    "tc_barriers_visible": """// What a thread has initialised is there for copies, too.
#ifdef __CUDACC__
$D void tc_barriers_visible() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
#endif""",
    "tc_barrier_expect": _on_barrier(
        "tc_barrier_expect", "Arrives, and lets the phase last until so many bytes have come.", "bytes",
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1",
    ),
    "tc_barrier_arrive": _on_barrier(
        "tc_barrier_arrive", "Arrives.", "", "mbarrier.arrive.shared::cta.b64 _, [%0]"
    ),
    "tc_barrier_wait": f"""// Waits until the phase with a parity is over.
#ifdef __CUDACC__
$D void tc_barrier_wait(unsigned long long *barrier, const unsigned int parity) {{
  unsigned int over;
  do {{
    asm volatile("{{\\n.reg .pred p;\\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\\n"
        "selp.u32 %0, 1, 0, p;\\n}}" : "=r"(over) : {_BARRIER}, "r"(parity) : "memory");
  }} while (!over);
}}
#endif""",
    "tc_registers_down": _registers("tc_registers_down", "dec"),
    "tc_registers_up": _registers("tc_registers_up", "inc"),
    **{f"tc_tensor_copy{rank}": _copy(rank) for rank in range(2, _MOST_RANK + 1)},
}  # fmt: skip
"""Definitions by name, as in ``prelude.py``."""
