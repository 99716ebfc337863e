"""CUDA text becomes PTX, machine code, SASS and a table of what kernels take, without a GPU."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tcomp.backends.cuda.tools import images, nvrtc, sass
from tcomp.backends.cuda.tools.cubin import KernelResources, kernel_resources
from tcomp.backends.cuda.tools.images import Image, compile_image
from tcomp.backends.cuda.tools.nvrtc import CudaTextError
from tcomp.backends.cuda.tools.resources import resource_table
from tcomp.backends.source import Launch, Source
from tcomp.errors import TargetError
from tcomp.mapping.machines.gpu import GPUS, gpu_of
from tcomp.storage.cache import store

pytestmark = pytest.mark.sweep(3)

MATMUL = """\
extern "C" __global__ void __launch_bounds__(256) mm_0(
    const float *__restrict__ A, const float *__restrict__ B, float *__restrict__ C) {
  __shared__ float A_tile[64][17];
  __shared__ float B_tile[16][64];
  float acc[4][4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) acc[i][j] = 0.0f;
  for (int k = 0; k < 256; k += 16) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      A_tile[threadIdx.y + 16 * i][threadIdx.x] = A[(64 * blockIdx.y + threadIdx.y + 16 * i) * 256 + k + threadIdx.x];
      B_tile[threadIdx.y][threadIdx.x + 16 * i] = B[(k + threadIdx.y) * 256 + 64 * blockIdx.x + threadIdx.x + 16 * i];
    }
    __syncthreads();
#pragma unroll
    for (int kk = 0; kk < 16; ++kk)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) acc[i][j] += A_tile[threadIdx.y + 16 * i][kk] * B_tile[kk][threadIdx.x + 16 * j];
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
      C[(64 * blockIdx.y + threadIdx.y + 16 * i) * 256 + 64 * blockIdx.x + threadIdx.x + 16 * j] = acc[i][j];
}

extern "C" __global__ void bias_1(const float *__restrict__ b, float *__restrict__ C) {
  extern __shared__ __align__(16) unsigned char tc_dynamic[];
  float *row = reinterpret_cast<float *>(tc_dynamic);
  row[threadIdx.x] = b[threadIdx.x];
  __syncthreads();
  C[blockIdx.x * 256 + threadIdx.x] += row[255 - threadIdx.x];
}
"""
MATMUL_SHARED_BYTES = (64 * 17 + 16 * 64) * 4

MANY_VALUES = """\
extern "C" __global__ void __launch_bounds__({threads}) rotate(float *C) {{
  float values[96];
#pragma unroll
  for (int i = 0; i < 96; ++i) values[i] = C[i * {threads} + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 96; ++i) C[i * {threads} + {threads} - 1 - threadIdx.x] = values[(i + 48) % 96];
}}
"""
"""Keeps 96 values over a barrier: a block of 1024 threads has 64 registers for each, one of 128 has enough."""

INDEXED = """\
extern "C" __global__ void pick(const int *__restrict__ where, float *__restrict__ C) {
  float values[64];
  for (int i = 0; i < 64; ++i) values[i] = 0.0f;
  for (int i = 0; i < 999; ++i) values[where[i] & 63] += C[i];
  for (int i = 0; i < 64; ++i) C[i * 64 + threadIdx.x] = values[i];
}
"""

EXPONENTIAL = """\
extern "C" __global__ void exponential(float *C) { C[threadIdx.x] = expf(C[threadIdx.x]) / C[0]; }
"""

ENDLESS_WORK = """\
extern "C" __global__ void __launch_bounds__(1024) slow(const float *__restrict__ A, float *__restrict__ C, int n) {
  float v[70];
#pragma unroll
  for (int i = 0; i < 70; i++) v[i] = A[i * n + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 70; i++)
#pragma unroll
    for (int j = 0; j < 70; j++) v[i] += v[j] * A[j + i];
#pragma unroll
  for (int i = 0; i < 70; i++) C[i * n + threadIdx.x] = v[i];
}
"""
"""Takes NVRTC seconds, the third power of the length in all; a process that ends waits for them."""


def cuda(text: str, *flags: str) -> Source:
    return Source(text, "kernels", (), 0, (), flags)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCOMP_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def compiler() -> nvrtc.Nvrtc:
    try:
        return nvrtc.find()
    except TargetError as error:
        pytest.skip(error.message)


@pytest.fixture
def matmul(compiler: nvrtc.Nvrtc) -> Image:
    return compile_image(cuda(MATMUL), "sm_90")


def use_only(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    """Let nothing but these folders hold wheels, toolkits or libraries."""
    monkeypatch.setattr(nvrtc, "wheel_folders", lambda: iter(folders))
    monkeypatch.setattr(nvrtc, "toolkit_folders", lambda: iter(()))
    monkeypatch.setattr(nvrtc, "_system", lambda: iter(()))


@pytest.mark.parametrize("architecture", [*GPUS, "sm_90a"])
def test_every_architecture(compiler: nvrtc.Nvrtc, architecture: str) -> None:
    if compiler.version < (13,) and architecture in ("sm_100", "sm_120"):
        pytest.skip("only the last releases of CUDA 12 know it")
    image = compile_image(cuda(MATMUL), architecture)
    assert f".target {architecture}\n" in image.ptx.replace(", debug", "")
    assert image.cubin.startswith(b"\x7fELF")
    product, bias = image.kernels
    assert (product.name, bias.name) == ("mm_0", "bias_1")
    assert (product.max_threads, bias.max_threads) == (256, None)
    assert (product.shared_bytes, bias.shared_bytes) == (MATMUL_SHARED_BYTES, 0)
    assert (product.spill_stores, product.spill_loads, product.stack_bytes) == (0, 0, 0)
    assert 32 <= product.registers <= 255
    assert bias.registers < product.registers
    assert product.constant_bytes - bias.constant_bytes >= 8, "three pointers against two"


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_resources_are_those_that_cuobjdump_reads(compiler: nvrtc.Nvrtc, architecture: str, tmp_path: Path) -> None:
    program = next((p for p in sass._places("cuobjdump") if p.is_file()), None)
    if program is None:
        pytest.skip("there is no cuobjdump")
    image = compile_image(cuda(MATMUL + INDEXED + MANY_VALUES.format(threads=1024)), architecture)
    path = tmp_path / "image.cubin"
    path.write_bytes(image.cubin)
    run = subprocess.run((str(program), "--dump-resource-usage", str(path)), capture_output=True, text=True, check=True)
    reserved = 1024 if architecture == "sm_90" else 0
    for kernel in image.kernels:
        found = re.search(rf"Function {kernel.name}:\s+(.*)", run.stdout)
        assert found is not None
        usage = {name: int(value) for name, value in re.findall(r"(\S+):(\d+)", found[1])}
        shared = kernel.shared_bytes and kernel.shared_bytes + reserved
        assert usage["REG"] == kernel.registers
        assert usage["STACK"] == kernel.stack_bytes
        assert usage["SHARED"] in (shared, shared + reserved), "a kernel without shared arrays may have them reserved"
        assert sum(size for name, size in usage.items() if name.startswith("CONSTANT")) == kernel.constant_bytes


@pytest.mark.usefixtures("compiler")
def test_spills_are_counted() -> None:
    (spilling,) = compile_image(cuda(MANY_VALUES.format(threads=1024)), "sm_80").kernels
    assert spilling.registers == 64
    assert spilling.spill_stores > 0
    assert spilling.spill_loads > 0
    (roomy,) = compile_image(cuda(MANY_VALUES.format(threads=128)), "sm_80").kernels
    assert roomy.registers > 96
    assert (roomy.spill_stores, roomy.spill_loads) == (0, 0)


@pytest.mark.usefixtures("compiler")
def test_a_limit_on_registers_is_a_flag() -> None:
    text = MANY_VALUES.format(threads=128).replace("__launch_bounds__(128)", "")  # which would go first
    (free,) = compile_image(cuda(text), "sm_90").kernels
    (bound,) = compile_image(cuda(text, "--maxrregcount=32"), "sm_90").kernels
    assert free.registers > bound.registers == 32
    assert bound.spill_stores > free.spill_stores == 0


@pytest.mark.usefixtures("compiler")
def test_an_array_indexed_by_data_is_stack_but_no_spill() -> None:
    (kernel,) = compile_image(cuda(INDEXED), "sm_80").kernels
    assert kernel.stack_bytes >= 64 * 4
    assert (kernel.spill_stores, kernel.spill_loads) == (0, 0)


def test_spills_of_called_functions_count(matmul: Image) -> None:
    called = (
        "\nptxas info    : Function properties for _Z4slowf"
        "\nptxas         .     0 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads"
    )
    kernels = kernel_resources(matmul.ptx, matmul.cubin, matmul.log + called)
    assert sum(kernel.spill_stores for kernel in kernels) == 12
    assert sum(kernel.spill_loads for kernel in kernels) == 20


def test_what_does_not_belong_together_is_refused(matmul: Image) -> None:
    with pytest.raises(ValueError, match="kernel mm_0"):
        kernel_resources(matmul.ptx, matmul.cubin, "")
    for cubin in (b"", b"not an ELF file", matmul.cubin[:64], matmul.cubin[: len(matmul.cubin) // 2]):
        with pytest.raises(ValueError, match=r"ELF|damaged"):
            kernel_resources(matmul.ptx, cubin, matmul.log)


@pytest.mark.usefixtures("compiler")
def test_wrong_text_names_its_lines() -> None:
    wrong = MATMUL.replace("acc[i][j] += A_tile", "akk[i][j] += A_tile").replace("= row[255", "= column[255")
    with pytest.raises(CudaTextError) as caught:
        compile_image(cuda(wrong), "sm_90")
    first, second = caught.value.diagnostics
    assert first.message == 'identifier "akk" is undefined'
    lines = wrong.splitlines()
    assert caught.value.line is not None and caught.value.column is not None
    assert lines[caught.value.line - 1][caught.value.column - 1 :].startswith("akk[i][j] +=")
    assert second.source is not None and second.span is not None
    assert second.source.text[second.span.start :].startswith("column[255")
    assert f"kernels.cu:{caught.value.line}:{caught.value.column}: error" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("\n#error this way not\n", "#error directive: this way not", 2),
        ('extern "C" __global__ void k(int *a) { a[0] = 1\n}\n', 'expected a ";"', 2),
        ('extern "C" __global__ void k(int *a) {\n', 'kernels.cu: expected a "}"', None),
        (
            'extern "C" __global__ void k(float *a) { asm volatile("bogus;"); }\n',
            "kernels.cu: Not a name of any known instruction: 'bogus'",
            None,
        ),
    ],
    ids=["directive", "syntax", "end", "assembly"],
)
@pytest.mark.usefixtures("compiler")
def test_errors_of_every_stage(text: str, message: str, line: int | None) -> None:
    with pytest.raises(CudaTextError) as caught:
        compile_image(cuda(text), "sm_90")
    assert (caught.value.message, caught.value.line) == (message, line)


@pytest.mark.usefixtures("compiler")
def test_a_warning_is_only_logged() -> None:
    image = compile_image(cuda(INDEXED.replace("float values", "int unused; float values")), "sm_80")
    assert '"unused" was declared but never referenced' in image.log


@pytest.mark.usefixtures("compiler")
def test_fast_math_is_a_flag() -> None:
    exact = compile_image(cuda(EXPONENTIAL), "sm_80")
    fast = compile_image(cuda(EXPONENTIAL, "-ffast-math"), "sm_80")
    assert "div.rn.f32" in exact.ptx
    assert "div.approx.ftz.f32" in fast.ptx


def test_what_nvrtc_does_not_know(compiler: nvrtc.Nvrtc) -> None:
    with pytest.raises(TargetError, match="no GPU architecture 'sm_42'"):
        compile_image(cuda(MATMUL), "sm_42")
    with pytest.raises(TargetError, match=r"does not compile for sm_42\n  help: it knows .*sm_80"):
        compiler.compile(MATMUL, "mm.cu", "sm_42", ())
    with pytest.raises(TargetError, match="--nonsense"):
        compile_image(cuda(MATMUL, "--nonsense"), "sm_80")


def test_without_nvrtc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_only(monkeypatch, tmp_path)
    with pytest.raises(TargetError, match="there is no NVRTC on this machine\n  help: `pip install nvidia-cuda-nvrtc"):
        compile_image(cuda(MATMUL), "sm_90")


@pytest.fixture
def several(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Folders of wheels with three versions of NVRTC, all broken."""
    for wheel, names in {
        "cuda_nvrtc": ("libnvrtc.so.11.2", "libnvrtc.so.12", "libnvrtc.alt.so.12", "libnvrtc-builtins.so.12.9"),
        "cu13": ("libnvrtc.so.13", "libnvrtc-builtins.so.13.0"),
    }.items():
        (tmp_path / wheel / "lib").mkdir(parents=True)
        for name in names:
            (tmp_path / wheel / "lib" / name).write_text(name)
    use_only(monkeypatch, tmp_path / "cuda_nvrtc", tmp_path / "cu13")
    return tmp_path


def test_the_newest_that_suits_the_driver_is_found(several: Path) -> None:
    assert nvrtc.find().path == several / "cu13/lib/libnvrtc.so.13"
    assert nvrtc.find(13).version == (13,)
    assert nvrtc.find(12).path == several / "cuda_nvrtc/lib/libnvrtc.so.12"
    assert nvrtc.find(12).identity != nvrtc.find(13).identity
    with pytest.raises(TargetError, match="whose code a driver for CUDA 11 loads"):
        nvrtc.find(11)


@pytest.mark.usefixtures("several")
def test_a_library_that_does_not_load() -> None:
    with pytest.raises(TargetError, match="cannot load NVRTC"):
        compile_image(cuda(MATMUL), "sm_90")


def test_the_environment_names_a_toolkit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(nvrtc, "wheel_folders", lambda: iter(()))
    (tmp_path / "lib64").mkdir()
    library = tmp_path / "lib64" / "libnvrtc.so.12.8.93"
    library.write_bytes(b"")
    monkeypatch.setenv("CUDA_PATH", str(tmp_path))
    assert (nvrtc.find().path, nvrtc.find().version) == (library, (12, 8, 93))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, compiler: nvrtc.Nvrtc) -> list[str]:
    """The architectures that NVRTC was called for."""
    calls: list[str] = []
    original = nvrtc.Nvrtc.compile

    def spy(self: nvrtc.Nvrtc, text: str, name: str, architecture: str, options: tuple[str, ...]) -> nvrtc.Output:
        calls.append(architecture)
        return original(self, text, name, architecture, options)

    monkeypatch.setattr(nvrtc.Nvrtc, "compile", spy)
    return calls


def test_images_are_kept_on_disk(compiled: list[str]) -> None:
    first = compile_image(cuda(EXPONENTIAL), "sm_80")
    assert compile_image(cuda(EXPONENTIAL), "sm_80") == first
    assert compiled == ["sm_80"]
    (entry,) = store().entries()
    assert (entry.kind, "sm_80" in entry.label) == ("image", True)
    compile_image(cuda(EXPONENTIAL), "sm_90")
    compile_image(cuda(EXPONENTIAL, "-ffast-math"), "sm_90")
    compile_image(cuda(EXPONENTIAL + " "), "sm_90")
    assert compiled == ["sm_80", "sm_90", "sm_90", "sm_90"]


def test_a_damaged_entry_is_compiled_anew(compiled: list[str], compiler: nvrtc.Nvrtc) -> None:
    source = cuda(EXPONENTIAL)
    first = compile_image(source, "sm_80")
    (path,) = store()._files()
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert compile_image(source, "sm_80") == first
    key = images.image_key(source, "sm_80", compiler)
    for junk in (b"", b"[]\n", b'["", ""]\n', b"\xff\n\xff", b'[".entry k() {", ""]\n' + first.cubin):
        assert store().put("image", key, "junk", junk)
        compiled.clear()
        assert compile_image(source, "sm_80").kernels == first.kernels
        assert compiled == ["sm_80"]


def test_without_a_cache(compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCOMP_CACHE", "0")
    assert compile_image(cuda(EXPONENTIAL), "sm_80") == compile_image(cuda(EXPONENTIAL), "sm_80")
    assert compiled == ["sm_80", "sm_80"]


def test_another_nvrtc_has_images_of_its_own(compiler: nvrtc.Nvrtc) -> None:
    other = nvrtc.Nvrtc(compiler.path, compiler.version, compiler.identity + " patched")
    source = cuda(EXPONENTIAL)
    assert images.image_key(source, "sm_80", compiler) != images.image_key(source, "sm_80", other)


def test_the_cache_of_the_driver_is_not_asked(compiler: nvrtc.Nvrtc, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes from there has no log, and so no resources; older libraries do not know the option."""
    said: list[str] = []
    real = nvrtc._release(ctypes.CDLL(str(compiler.path)))
    monkeypatch.setattr(nvrtc.debug, "log", lambda at, message: said.append(message))
    for release, asked in (((12, 8), False), ((12, 9), True), ((13, 0), True)):
        monkeypatch.setattr(nvrtc, "_release", lambda library, release=release: release)
        text = f'extern "C" __global__ void nothing_{release[1]}() {{}}'
        if asked and real < nvrtc.CACHING:
            continue
        assert "ptxas info" in compiler.compile(text, "nothing.cu", "sm_80", ("--ptxas-options=-v",)).log
        assert ("--no-cache" in said[-1]) == asked


def test_many_threads_compile_at_a_time(compiler: nvrtc.Nvrtc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCOMP_CACHE", "0")

    def registers(count: int) -> str:
        text = EXPONENTIAL.replace("exponential", f"exponential_{count}").replace("C[0]", f"C[{count}]")
        image = compile_image(cuda(text if count % 4 else text + "wrong"), "sm_80")
        return image.kernels[0].name

    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(registers, count) for count in range(24)]
    for count, future in enumerate(futures):
        if count % 4:
            assert future.result() == f"exponential_{count}"
        else:
            assert isinstance(future.exception(), CudaTextError)


def test_a_compilation_that_takes_too_long_is_ended(compiler: nvrtc.Nvrtc, monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(ctypes.CDLL(str(compiler.path)), "nvrtcSetFlowCallback"):
        pytest.skip("this NVRTC cannot be stopped")
    monkeypatch.setattr(nvrtc, "COMPILE_SECONDS", 0.0)
    with pytest.raises(TargetError, match=r"did not finish kernels\.cu within 0 seconds"):
        compile_image(cuda(MATMUL), "sm_80")


@pytest.mark.usefixtures("compiler")
def test_an_interrupt_is_heard_while_nvrtc_works() -> None:
    program = f"""
import os, signal, threading
from tcomp.backends.cuda.tools import nvrtc
text = {ENDLESS_WORK!r}
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    nvrtc.find().compile(text, "slow.cu", "sm_90", ())
except KeyboardInterrupt:
    print("interrupted")
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert (run.stdout, run.stderr) == ("interrupted\n", "")


@pytest.mark.parametrize("program", ["nvdisasm", "cuobjdump"])
def test_machine_code_as_text(matmul: Image, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sass, "_PROGRAMS", {program: sass._PROGRAMS[program]})
    try:
        sass.find()
    except TargetError as error:
        pytest.skip(error.message)
    text = sass.disassemble(matmul)
    assert "mm_0" in text
    assert "bias_1" in text
    assert len(re.findall(r"\bFFMA\b", text)) == 16 * 16
    assert text.count("BAR.SYNC") == 3


def test_without_a_disassembler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sass, "wheel_folders", lambda: iter((tmp_path,)))
    monkeypatch.setattr(sass, "toolkit_folders", lambda: iter(()))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TargetError, match=r"no disassembler.*\n  help: `pip install nvidia-cuda-nvdisasm`"):
        sass.disassemble(Image("sm_90", "", b"", "", ()))


def test_code_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        sass.find()
    except TargetError as error:
        pytest.skip(error.message)
    with pytest.raises(TargetError, match="fails on code for sm_90"):
        sass.disassemble(Image("sm_90", "", b"no code", "", ()))


def test_the_table_of_resources() -> None:
    kernels = (
        KernelResources("mm_0", 128, 0, 0, 0, 8448, 376, 256),
        KernelResources("reduce_1", 64, 320, 480, 400, 0, 368),
        KernelResources("large_2", 40, 0, 0, 0, 1024, 368),
    )
    image = Image("sm_90a", "", b"", "", kernels)
    launches = (
        Launch("mm_0", (16, 16, 1), (256, 1, 1), 0, ()),
        Launch("reduce_1", (1, 64, 1), (32, 32, 1), 4096, ()),
        Launch("large_2", (2, 3, 4), (64, 2, 2), 200_000, ()),
        Launch("large_2", (1, 1, 1), (1, 1, 1), 240_000, ()),
    )
    assert resource_table(image, launches, gpu_of("sm_90a")) == TABLE
    with pytest.raises(TargetError, match="no kernel gone in the image; its kernels: mm_0, reduce_1, large_2"):
        resource_table(image, (Launch("gone", (1, 1, 1), (1, 1, 1), 0, ()),), gpu_of("sm_90"))


TABLE = """\
sm_90a (H100, 132 multiprocessors)
kernel     grid   block  registers  spilled  stack       shared  blocks/SM  warps/SM  occupancy  limited by
mm_0      16x16     256        128      0+0      0       8448+0          2        16        25%  registers
reduce_1   1x64   32x32         64  320+480    400       0+4096          1        32        50%  registers
large_2   2x3x4  64x2x2         40      0+0      0  1024+200000          1         8        12%  shared memory
large_2       1       1         40      0+0      0  1024+240000          0         0         0%  shared memory
"""
