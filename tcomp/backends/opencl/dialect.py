"""OpenCL C 1.2, as it differs from the other languages of GPUs.

Work groups are blocks, work items threads, local memory is shared memory.  Nothing is said of warps: what CUDA does by
shuffles goes through local memory.  ``long`` has 64 bits, and ``long long`` is reserved, so texts are respelled when
they are done.  A barrier at the end of a loop's body would crash PoCL 3.0, so it stands at the head.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tcomp.backends.gpu.words.dialect import DeviceDialect, SharedArray
from tcomp.backends.opencl.functions import opencl_definitions, opencl_name
from tcomp.backends.opencl.prelude import opencl_prelude
from tcomp.values.operators import DType

_RESERVED = frozenset(
    word
    for line in (
        "kernel global local constant private generic half quad complex imaginary bool pipe read_only write_only",
        "read_write image1d_t image2d_t image3d_t sampler_t event_t queue_t uchar ushort uint ulong uniform",
        "barrier get_local_id get_group_id get_num_groups get_global_id INFINITY NAN MAXFLOAT HUGE_VAL linux unix",
        "restrict inline typeof uintptr_t intptr_t cles_khr",
    )
    for word in line.split()
)
_VECTOR = re.compile(r"\blong long\b")
_LITERAL = re.compile(r"(?<![\w.])(0x[0-9a-fA-F]+|\d+)(U?)LL\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenClDialect(DeviceDialect):
    """OpenCL C (see ``DeviceDialect``); ``doubles`` says whether the device computes in double precision."""

    doubles: bool

    def thread(self, axis: int) -> str:
        """See ``DeviceDialect``."""
        return f"(int)get_local_id({axis})"

    def block(self, axis: int) -> str:
        """See ``DeviceDialect``."""
        return f"(int)get_group_id({axis})"

    def blocks(self, axis: int) -> str:
        """See ``DeviceDialect``."""
        return f"(int)get_num_groups({axis})"

    def barrier(self, level: str, everywhere: bool) -> str:
        """See ``DeviceDialect``.  There are no warps: all threads of a block wait, which they may at any barrier."""
        return f"barrier(CLK_LOCAL_MEM_FENCE{' | CLK_GLOBAL_MEM_FENCE' if everywhere else ''});"

    def head(self, block: Sequence[int], resident: int) -> str:
        """See ``DeviceDialect``."""
        return f"__kernel __attribute__((reqd_work_group_size({', '.join(map(str, block))}))) void"

    def parameter(self, element: str, name: str, written: bool, restricted: bool) -> str:
        """See ``DeviceDialect``."""
        return f"{'' if written else 'const '}__global {element} {'*restrict ' if restricted else '*'}{name}"

    def shared(self, arrays: Sequence[SharedArray], dynamic: bool) -> list[str]:
        """See ``DeviceDialect``."""
        wide = " __attribute__((aligned(16)))"
        return [f"__local {a.element} {a.name}{a.extents}{wide if a.wide else ''};" for a in arrays]

    def aligned(self, element: str, name: str, count: int, alignment: int) -> str:
        """See ``DeviceDialect``."""
        return f"{element} {name}[{count}] __attribute__((aligned({alignment})));"

    def typed(self, function: str, element: str) -> str:
        """See ``DeviceDialect``."""
        return f"{function}_{element.replace(' ', '_')}"

    def shuffled(self, part: str, dtype: DType, width: int, threads: int) -> str:
        """There are no shuffles: ``lanes`` is 0."""
        raise NotImplementedError

    def names_thread(self, width: int, threads: int) -> bool:
        """There are no shuffles: ``lanes`` is 0."""
        raise NotImplementedError

    def check(self, arguments: str, reported: Sequence[str]) -> str:
        """See ``DeviceDialect``.  There are no functions of any number of arguments."""
        return f"tc_check{len(reported)}({', '.join((arguments, *reported))})"

    def function(self, intrinsic: str, c_type: str) -> str:
        """See ``DeviceDialect``."""
        return opencl_name(intrinsic, c_type)

    def definitions(self, calls: Iterable[tuple[str, str]]) -> str:
        """See ``DeviceDialect``."""
        return opencl_definitions(calls)

    def prelude(self, text: str) -> str:
        """See ``DeviceDialect``."""
        return opencl_prelude(text, self.index, self.doubles)

    def finished(self, text: str) -> str:
        """See ``DeviceDialect``."""
        return _LITERAL.sub(r"\1\2L", _VECTOR.sub("long", text))

    @property
    def reserved(self) -> frozenset[str]:
        """See ``DeviceDialect``."""
        return _RESERVED


OPENCL_C = OpenClDialect(
    index="int",
    wide="long long",
    suffix="",
    float16_load="tc_from_float16({})",
    float16_store="tc_to_float16({})",
    float16_round="tc_from_float16(tc_to_float16({}))",
    float16_round_double="tc_from_float16(tc_to_float16_double({}))",
    infinity=("INFINITY", "as_double(0x7ff0000000000000LL)"),
    nan=("NAN", "as_double(0x7ff8000000000000LL)"),
    hides_truths=False,
    lanes=0,
    multiplies=False,
    asks_ahead=False,
    most_declared=1 << 62,
    zeros="(uint4)(0)",
    global_space="__global ",
    from_lowest=True,
    meets_first=True,
    doubles=True,
)
"""OpenCL C with 32-bit indices; the identifiers are those of each program."""
