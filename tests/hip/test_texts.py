"""HIP: what clang makes of the texts, and what they compute, on the simulator with CUDA's words for HIP's."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import tcomp as tc
from tcomp.backends.gpu.words.dialect import DeviceDialect
from tcomp.backends.hip.compiler import assemble, find, kernels_in
from tcomp.backends.hip.dialect import hip_dialect
from tcomp.backends.hip.target import HipBackend
from tcomp.backends.source import Source
from tcomp.cli import main
from tcomp.driver import lower
from tcomp.errors import TargetError
from tcomp.grammar import define
from tcomp.mapping.machines.amd import amd_gpu
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.terms.sizes import Sizes
from tests.agreement import OF_FLOATS, assert_agrees
from tests.cuda.compiled import compiled_text, data_for, run
from tests.cuda.simulated import NEEDS_COMPILER
from tests.cuda.texts import EXAMPLES, Text


def _why_no_clang() -> str | None:
    try:
        find()
    except TargetError as error:
        return error.message
    return None


NEEDS_CLANG = pytest.mark.skipif(_why_no_clang() is not None, reason=str(_why_no_clang()))

KINDS = Text(
    """def f(float16(N,M) H, bfloat16(N,M) B, double(N,M) D, int32(N) I, int8(N,M) J) -> (S, T, U, V, W) {
      S(n) +=! H(n,m) * B(n,m)
      T(n,m) = D(I(n),m) + float16(D(n,m))
      U(n) max=! D(n,m)
      V(n,m) = bfloat16(B(n,m) * 3)
      W(n) +=! J(n,m)
    }""",
    {"N": 12, "M": 200},
    {"I": 12},
)
"""All conversions, a subscript that is checked, reductions of 1, 4 and 8 bytes."""


def text_of(text: Text, architecture: str, options: MappingOptions | None = None) -> Source:
    backend = HipBackend(amd_gpu(architecture))
    return lower(define(text.text)["f"], Sizes(text.sizes), options or MappingOptions(), backend).source


@NEEDS_CLANG
@pytest.mark.parametrize("architecture", ["gfx90a", "gfx1100"])
@pytest.mark.parametrize("name", ["convolution", "softmax", "lookup"])
def test_clang_takes_the_texts(name: str, architecture: str) -> None:
    kernels = kernels_in(assemble(text_of(EXAMPLES[name], architecture), architecture))
    assert [k.name for k in kernels] == ["f_0"]
    assert not any(k.spilled or k.scratch_bytes for k in kernels)
    assert all(0 < k.vector_registers <= 256 for k in kernels)


@NEEDS_CLANG
@pytest.mark.parametrize("architecture", ["gfx906", "gfx1030"])
def test_clang_takes_all_types(architecture: str) -> None:
    assembly = assemble(text_of(KINDS, architecture, MappingOptions(fast_math=True)), architecture)
    assert f'"{architecture}"' in assembly or f"--{architecture}" in assembly
    assert "v_cvt_f32_f16" in assembly


@NEEDS_CLANG
def test_clang_takes_atomic_operations() -> None:
    lines = [f"S{n}(I(i)) {o} {v}(i)" for n, (o, v) in enumerate((o, v) for o in ("+=!", "max=!", "*=!") for v in "FL")]
    outputs = ", ".join(f"{'float' if n % 2 == 0 else 'int64'}(50) S{n}" for n in range(6))
    text = f"def f(int32(N) I, float(N) F, int64(N) L) -> ({outputs}) {{ {' '.join(lines)} }}"
    source = text_of(Text(text, {"N": 900}, {"I": 12}), "gfx90a", MappingOptions(atomics=True))
    assert source.text.count("tc_atomic_") >= 6
    assert "atomic_cmpswap" in assemble(source, "gfx90a")


@NEEDS_CLANG
@pytest.mark.long
@pytest.mark.parametrize("architecture", ["gfx906", "gfx1030"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_clang_takes_all_texts(name: str, architecture: str) -> None:
    assert kernels_in(assemble(text_of(EXAMPLES[name], architecture), architecture))


@NEEDS_CLANG
def test_all_functions_are_declared() -> None:
    """Each is called once, in single and in double precision."""
    dialect = hip_dialect(64)
    calls = [(name, c_type) for name in sorted(OF_FLOATS) for c_type in ("float", "double")]
    body = "".join(_calling(dialect, n, *call) for n, call in enumerate(calls))
    text = dialect.prelude("") + dialect.definitions(calls) + body
    assert "s_endpgm" in assemble(Source(text, "f", (), 0, (), ()), "gfx90a")


def _calling(dialect: DeviceDialect, number: int, name: str, c_type: str) -> str:
    arguments = ", ".join(f"x[{n}]" for n in range(OF_FLOATS[name].arity))
    call = f"x[threadIdx.x] = {dialect.function(name, c_type)}({arguments});"
    return f'extern "C" __global__ void f{number}({c_type} *x) {{ {call} }}\n'


@NEEDS_CLANG
def test_an_error_of_clang_is_told() -> None:
    with pytest.raises(TargetError, match=r"clang .* refuses f.* for gfx90a: .*error: "):
        assemble(Source("no text", "f", (), 0, (), ()), "gfx90a")


def test_waves_have_their_width() -> None:
    """With 64 threads, a row of 1000 elements needs two partial sums less than with 32."""
    softmax = Text(EXAMPLES["softmax"].text, {"N": 4, "D": 1000})
    for architecture, wave in (("gfx90a", 64), ("gfx1100", 32)):
        text = text_of(softmax, architecture).text
        assert f", lane, {wave})" in text
        assert f"_of_warp[{256 // wave}];" in text
        assert f"for (int lane = {wave // 2}; lane > 0; lane /= 2)" in text


@NEEDS_COMPILER
@pytest.mark.parametrize("name", ["matmul", "softmax", "attention", "lookup"])
def test_texts_compute_what_they_should(name: str) -> None:
    """A text for waves of 32, with CUDA's words for the four of HIP that CUDA lacks."""
    text = EXAMPLES[name]
    source, function = text_of(text, "gfx1100"), define(text.text)["f"]
    cuda = re.sub(r"#ifndef __HIPCC_RTC__\n.*\n#endif\n", "\n\n\n", source.text)
    cuda = re.sub(r"void tc_wave_barrier\(\) \{[^}]*\}", "void tc_wave_barrier() { __syncwarp();\n\n\n\n}", cuda)
    cuda = re.sub(r"__shfl_xor\((\w+), lane, \d+\)", r"__shfl_xor_sync(0xffffffffu, \1, lane)", cuda)
    assert cuda.count("\n") == source.text.count("\n")
    data = data_for(text, compiled_text(text))
    report, found = run(replace(source, text=cuda), data)
    assert not report.findings, str(report)
    assert_agrees(function, data.inputs, found)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mm.tc"
    file.write_text("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }", encoding="utf-8")
    command = ["compile", str(file), "--sizes", "M=64,K=32,N=48", "--target"]
    assert main([*command, "hip:gfx1100"]) == 0
    assert "#include <hip/hip_runtime.h>" in capsys.readouterr().out
    assert main([*command, "hip", "--emit", "list"]) == 0
    assert capsys.readouterr().out.split()[-2:] == ["isa", "resources"]
    assert main([*command, "hip:gfx1"]) != 0
    assert "architectures: gfx906, gfx908, gfx90a" in capsys.readouterr().err
    assert main([*command, "opencl:gpu", "--emit", "sass"]) != 0
    assert "there is no sass for the target opencl:gpu" in capsys.readouterr().err
    assert main(["compare", *command[1:], "hip", "--options", "naive", "--options", "tile=8x8"]) == 0
    assert "mm_0: threads of a block" in capsys.readouterr().out
    assert main(["run", *command[1:], "hip"]) != 0
    assert "are not run by tcomp" in capsys.readouterr().err
    assert not tc.targets()["hip"]
