"""HIP, as it differs from CUDA: waves of 32 or 64 threads, shuffles without masks, and no instructions of NVIDIA's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tcomp.backends.cuda.dialect import CUDA_C, CudaDialect
from tcomp.backends.cuda.prelude import device_prelude
from tcomp.backends.dialect import C_VALUE_TYPES
from tcomp.values.operators import DType

_INCLUDE = "#ifndef __HIPCC_RTC__\n#include <hip/hip_runtime.h>\n#endif\n"

_OWN = {
    "tc_wave_barrier": """// The threads of a wave run in step; nothing may move past this.
$D void tc_wave_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}""",
    "tc_min_float32": "$D float tc_min_float32(float a, float b) { return a < b || a != a ? a : b; }",
    "tc_max_float32": "$D float tc_max_float32(float a, float b) { return a > b || a != a ? a : b; }",
    "tc_from_float16": "$D float tc_from_float16(unsigned short bits) "
    "{ return (float)__builtin_bit_cast(_Float16, bits); }",
    "tc_to_float16": """$D unsigned short tc_to_float16(float value) {
  return __builtin_bit_cast(unsigned short, (_Float16)value);
}
$D unsigned short tc_to_float16(double value) {
  return __builtin_bit_cast(unsigned short, (_Float16)value);
}""",
}
"""Functions that CUDA spells with instructions of PTX."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HipDialect(CudaDialect):
    """HIP (see ``DeviceDialect``)."""

    def barrier(self, level: str, everywhere: bool) -> str:
        """See ``DeviceDialect``."""
        return "__syncthreads();" if level == "block" else "tc_wave_barrier();"

    def head(self, block: Sequence[int], resident: int) -> str:
        """See ``DeviceDialect``.  The second number of launch bounds means something else than in CUDA."""
        x, y, z = block
        return f'extern "C" __global__ void __launch_bounds__({x * y * z})'

    def shuffled(self, part: str, dtype: DType, width: int, threads: int) -> str:
        """See ``DeviceDialect``."""
        if dtype.is_float or dtype.bits >= 32:
            return f"__shfl_xor({part}, lane, {width})"
        return f"(({C_VALUE_TYPES[dtype.name]})__shfl_xor((int){part}, lane, {width}))"

    def names_thread(self, width: int, threads: int) -> bool:
        """See ``DeviceDialect``."""
        return False

    def prelude(self, text: str) -> str:
        """See ``DeviceDialect``."""
        return _INCLUDE + device_prelude(text, self.index, _OWN)


def hip_dialect(wave: int) -> HipDialect:
    """HIP for devices whose waves have so many threads."""
    return HipDialect(
        index=CUDA_C.index,
        wide=CUDA_C.wide,
        suffix=CUDA_C.suffix,
        float16_load=CUDA_C.float16_load,
        float16_store=CUDA_C.float16_store,
        float16_round=CUDA_C.float16_round,
        infinity=CUDA_C.infinity,
        nan=CUDA_C.nan,
        hides_truths=False,
        lanes=wave,
        multiplies=False,
        asks_ahead=False,
        most_declared=CUDA_C.most_declared,
        zeros=CUDA_C.zeros,
        global_space="",
        from_lowest=False,
        meets_first=False,
    )
