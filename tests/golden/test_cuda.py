"""The CUDA text of ten representative programs at default options, reviewed for reading pleasure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tcomp.backends.cuda.target import CudaBackend
from tcomp.driver import lower
from tcomp.grammar import define
from tcomp.mapping.machines.gpu import gpu_of
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.terms.sizes import Sizes
from tests.cuda.texts import EXAMPLES, Text

PROGRAMS = {
    "matmul": Text(EXAMPLES["matmul"].text, {"M": 1024, "K": 1024, "N": 1024}),
    "ragged_matmul": Text(EXAMPLES["matmul"].text, {"M": 250, "K": 77, "N": 201}),
    "tmm": Text(EXAMPLES["tmm"].text, {"M": 128, "K": 256, "N": 1024}),
    "batched_matmul": Text(EXAMPLES["batched_matmul"].text, {"B": 64, "M": 72, "K": 26, "N": 26}),
    "convolution": Text(EXAMPLES["convolution"].text, {"N": 4, "C": 16, "H": 30, "W": 30, "F": 32, "KH": 3, "KW": 3}),
    "softmax": Text(EXAMPLES["softmax"].text, {"N": 256, "D": 1024}),
    "layer_norm": Text(EXAMPLES["layer_norm"].text, {"N": 256, "D": 1024}),
    "attention": Text(EXAMPLES["attention"].text, {"B": 4, "Q": 64, "K": 96, "D": 64}),
    "attention_in_turns": Text(EXAMPLES["attention"].text, {"B": 4, "Q": 256, "K": 512, "D": 64}),
    "blur": Text(EXAMPLES["blur"].text, {"H": 302, "W": 1102}),
    "product_of_halves": Text(
        """def f(float16(M,K) A, float16(K,N) B, float16(N) bias) -> (float16(M,N) D) {
            C(m,n) +=! A(m,k) * B(k,n)
            D(m,n) = float16(float(C(m,n)) + float(bias(n))) }""",
        {"M": 4000, "N": 4096, "K": 1024},
    ),
    "lookup": Text(EXAMPLES["lookup"].text, {"E": 1000, "D": 64, "B": 128, "L": 50}),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_golden_cuda(name: str, golden: Callable[[Path, str], None]) -> None:
    program = PROGRAMS[name]
    function = define(program.text)["f"]
    source = lower(function, Sizes(program.sizes), MappingOptions(), CudaBackend(gpu_of("sm_90"))).source
    launches = "".join(
        f"// {n.kernel}<<<{n.grid}, {n.block}, {n.shared_bytes}>>>({', '.join(n.arguments)})\n" for n in source.launches
    )
    temporaries = "".join(f"// temporary {t.name}: {t.dtype}{list(t.shape)}\n" for t in source.temporaries)
    golden(Path(__file__).parent / "cuda" / f"{name}.cu", f"{source.text}\n{launches}{temporaries}")
