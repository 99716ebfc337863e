"""CUDA C++, as it differs from the other languages of GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tcomp.backends.cuda.prelude import device_prelude
from tcomp.backends.dialect import C_VALUE_TYPES
from tcomp.backends.gpu.words.dialect import DeviceDialect, SharedArray
from tcomp.mapping.machines.gpu import STATIC_SHARED_BYTES, WARP
from tcomp.values.intrinsics import INTRINSICS, cuda_definitions
from tcomp.values.operators import DType

FULL_MASK = "0xffffffffu"


@dataclass(frozen=True, slots=True)
class CudaDialect(DeviceDialect):
    """CUDA C++ (see ``DeviceDialect``)."""

    def thread(self, axis: int) -> str:
        """See ``DeviceDialect``."""
        return f"threadIdx.{'xyz'[axis]}"

    def block(self, axis: int) -> str:
        """See ``DeviceDialect``."""
        return f"blockIdx.{'xyz'[axis]}"

    def blocks(self, axis: int) -> str:
        """See ``DeviceDialect``."""
        return f"gridDim.{'xyz'[axis]}"

    def barrier(self, level: str, everywhere: bool) -> str:
        """See ``DeviceDialect``."""
        return "__syncthreads();" if level == "block" else "__syncwarp();"

    def head(self, block: Sequence[int], resident: int) -> str:
        """See ``DeviceDialect``."""
        x, y, z = block
        return f'extern "C" __global__ void __launch_bounds__({x * y * z}, {resident})'

    def parameter(self, element: str, name: str, written: bool, restricted: bool) -> str:
        """See ``DeviceDialect``."""
        return f"{'' if written else 'const '}{element} {'*__restrict__ ' if restricted else '*'}{name}"

    def shared(self, arrays: Sequence[SharedArray], dynamic: bool) -> list[str]:
        """See ``DeviceDialect``."""
        if not dynamic:
            return [f"__shared__ {'__align__(16) ' if a.wide else ''}{a.element} {a.name}{a.extents};" for a in arrays]
        alignment = max(16, *(a.alignment for a in arrays))
        lines = [f"extern __shared__ __align__({alignment}) unsigned char tc_dynamic[];"]
        offset = 0
        for a in sorted(arrays, key=lambda a: not a.swizzled):
            cut = f"*reinterpret_cast<{a.element} (*){a.extents}>(tc_dynamic + {offset})"
            lines.append(f"{a.element} (&{a.name}){a.extents} = {cut};")
            offset += a.bytes
        return lines

    def aligned(self, element: str, name: str, count: int, alignment: int) -> str:
        """See ``DeviceDialect``."""
        return f"__align__({alignment}) {element} {name}[{count}];"

    def typed(self, function: str, element: str) -> str:
        """See ``DeviceDialect``: they are templates."""
        return function

    def shuffled(self, part: str, dtype: DType, width: int, threads: int) -> str:
        """See ``DeviceDialect``.  A lane of its own block's last warp may be missing: it is not waited for."""
        mask = FULL_MASK
        if self.names_thread(width, threads):
            mask = f"0x{(1 << width) - 1:x}u << (thread % {WARP} / {width} * {width})"
        if dtype.is_float or dtype.bits >= 32:
            return f"__shfl_xor_sync({mask}, {part}, lane)"
        return f"(({C_VALUE_TYPES[dtype.name]})__shfl_xor_sync({mask}, (int){part}, lane))"

    def names_thread(self, width: int, threads: int) -> bool:
        """See ``DeviceDialect``."""
        return bool(threads % WARP) and width != WARP

    def check(self, arguments: str, reported: Sequence[str]) -> str:
        """See ``DeviceDialect``."""
        return f"tc_check({', '.join((arguments, *reported))})"

    def function(self, intrinsic: str, c_type: str) -> str:
        """See ``DeviceDialect``."""
        return INTRINSICS[intrinsic].cuda_name(c_type)

    def definitions(self, calls: Iterable[tuple[str, str]]) -> str:
        """See ``DeviceDialect``."""
        return "".join(d.rstrip() + "\n" for d in cuda_definitions(calls))

    def prelude(self, text: str) -> str:
        """See ``DeviceDialect``."""
        return device_prelude(text, self.index)

    def finished(self, text: str) -> str:
        """See ``DeviceDialect``."""
        return text

    @property
    def reserved(self) -> frozenset[str]:
        """See ``DeviceDialect``."""
        return frozenset()


CUDA_C = CudaDialect(
    index="int",
    wide="long long",
    suffix="",
    float16_load="tc_from_float16({})",
    float16_store="tc_to_float16({})",
    float16_round="tc_from_float16(tc_to_float16({}))",
    infinity=("__int_as_float(0x7f800000)", "__longlong_as_double(0x7ff0000000000000LL)"),
    nan=("__int_as_float(0x7fc00000)", "__longlong_as_double(0x7ff8000000000000LL)"),
    hides_truths=False,
    lanes=WARP,
    multiplies=True,
    asks_ahead=True,
    most_declared=STATIC_SHARED_BYTES,
    zeros="uint4{}",
    global_space="",
    from_lowest=False,
    meets_first=False,
)
"""CUDA C++ with 32-bit indices; the identifiers are those of each program."""
