"""What compiled programs make use of, to see whether random programs reach all of the compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tcomp.backends.c.contractions.registertiles import TORN
from tcomp.backends.gpu.overhang import WHOLE
from tcomp.driver import Compilation
from tcomp.grammar.tree.dataranges import ranges_of
from tcomp.mapping.plan.values import Plan

Test = Callable[[Compilation], bool]


def _in_text(*marks: str) -> Test:
    return lambda made: all(mark in made.source.text for mark in marks)


def _has_edges(text: str) -> bool:
    return "tc_rows ==" in text or TORN in text


_CPU: Mapping[str, Test] = {
    "contraction": lambda made: any(o.kind == "contract" for o in made.plan.operations.values()),
    "register tile": _in_text("tc_c0_0"),
    "edges of register tiles": lambda made: "tc_c0_0" in made.source.text and _has_edges(made.source.text),
    "packed panel": lambda made: bool(made.plan.copies),
    "panel packed ahead": lambda made: any(c.ahead for c in made.plan.copies),
    "panel transposed in registers": _in_text("tc_transpose_"),
    "dot product instructions": _in_text("tc_dot_"),
    "reduction in vectors": _in_text(" part0 ="),
    "several threads": _in_text("#pragma omp parallel"),
    "streamed output": _in_text("tc_stream_"),
    "fused tiles that recompute": lambda made: any(g.expanded for g in made.plan.groups),
    "memory of a thread's own": _in_text("omp_get_thread_num() *"),
    "steps along rows": _in_text("tc_first"),
}

_GPU: Mapping[str, Test] = {
    "several kernels": lambda made: len(made.source.launches) > 1,
    "fetched into shared memory": lambda made: bool(made.plan.copies),
    "torn tiles computed whole": _in_text(WHOLE),
    "fetched in vectors": lambda made: any(c.vector > 1 for c in made.plan.copies),
    "temporary in shared memory": lambda made: any(b.space == "shared" for b in made.plan.buffers.values()),
    "temporary in registers": lambda made: any(b.space == "private" for b in made.plan.buffers.values()),
    "reduction shared by threads": lambda made: any(d.form == "shared" for d in made.plan.dealt.values()),
    "range from data shared by threads": lambda made: any(_shares_range(made.plan, n) for n in made.plan.dealt),
    "matrices by warps": _in_text("tc_mma_"),
    "matrices by warpgroups": _in_text("tc_wgmma_fence"),
    "copies in stages": lambda made: bool(made.plan.pipelines),
    "copies of boxes": _in_text("tc_tensor_copy"),
    "blocks that take tiles in turn": lambda made: bool(made.plan.persistent),
    "reduction split between blocks": lambda made: bool(made.plan.stored),
    "barrier of a block": lambda made: "block" in made.plan.barriers.values(),
    "barrier of a warp": lambda made: "warp" in made.plan.barriers.values(),
}


def _shares_range(plan: Plan, number: int) -> bool:
    """Whether threads share a reduction of a cluster over a range that data give."""
    statements = (plan.scop.by_name[name] for name in plan.clusters[number].statements)
    return plan.dealt[number].form == "shared" and any(ranges_of(s.value) for s in statements if s.kind == "update")


MACHINERY: Mapping[str, Mapping[str, Test]] = {"cpu": _CPU, "simulator": _GPU, "cuda": _GPU, "opencl": _GPU}
"""For each target what is looked for, in the order in which it is shown."""


def machinery(made: Compilation, target: str) -> frozenset[str]:
    """What a compilation for a target such as ``simulator:sm_80`` made use of."""
    return frozenset(name for name, test in MACHINERY[target.partition(":")[0]].items() if test(made))
