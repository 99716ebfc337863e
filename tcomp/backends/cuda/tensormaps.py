"""Maps of tensors, which the driver writes down for copies of their boxes (``cuTensorMapEncodeTiled``, CUDA 12).

CuPy has no binding for it; the driver's library is asked itself.  What is called here is in the CUDA driver API's
"Tensor Map Object Management".
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Sequence
from typing import Any

from tcomp.backends.source import TensorMap
from tcomp.errors import Diagnostic, TargetError

MAP_BYTES, MAP_ALIGNMENT = 128, 64
"""Size of a map, and what its address is a multiple of."""

_TYPES = {"float16": 6, "bfloat16": 9, **dict.fromkeys(("int8", "uint8", "float8_e4m3fn", "float8_e5m2"), 0)}
"""CUtensorMapDataType: bytes are copied as they are."""

_SWIZZLE_128, _PROMOTION_256 = 3, 3
_MOST_KEPT = 64


@functools.cache
def _function() -> Any:
    """The driver's function; None where there is no driver, or an older one."""
    try:
        library = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
        function = library.cuTensorMapEncodeTiled
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_int
    return function


def are_made() -> bool:
    """Whether the driver makes maps."""
    return _function() is not None


def encode(own: TensorMap, address: int) -> bytes:
    """The 128 bytes of a map.  Raises TargetError where the driver refuses it."""
    rank = len(own.box)
    room = (ctypes.c_uint64 * ((MAP_BYTES + MAP_ALIGNMENT) // 8))()
    start = -(-ctypes.addressof(room) // MAP_ALIGNMENT) * MAP_ALIGNMENT
    strides = (ctypes.c_uint64 * (rank - 1))(*(s * own.dtype.itemsize for s in own.strides[1:]))
    status = _function()(
        ctypes.c_void_p(start), ctypes.c_int(_TYPES[own.dtype.name]), ctypes.c_uint32(rank), ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*own.extents), strides, (ctypes.c_uint32 * rank)(*own.box),
        (ctypes.c_uint32 * rank)(*(1,) * rank), ctypes.c_int(0), ctypes.c_int(_SWIZZLE_128),
        ctypes.c_int(_PROMOTION_256), ctypes.c_int(0),
    )  # fmt: skip
    if status:
        what = f"the driver makes no map of {own.storage}: cuTensorMapEncodeTiled gave error {status}"
        raise TargetError(Diagnostic(what, hint="with route='async' threads fetch operands themselves"))
    return ctypes.string_at(start, MAP_BYTES)


class Maps:
    """The maps of the launches of a kernel, one behind another in what a thread hands to the driver.

    They hold addresses, so each is made anew where its tensor lies elsewhere than in the call before; some are kept.
    """

    def __init__(self, maps: Sequence[tuple[int, TensorMap]]) -> None:
        """``maps`` come with the positions of their addresses among the values of a call."""
        self._maps = tuple(maps)
        self._kept: dict[tuple[int, int], bytes] = {}

    def room(self) -> tuple[Any, int]:
        """Memory for all of them, and the address of the first."""
        memory = (ctypes.c_uint64 * ((len(self._maps) * MAP_BYTES + MAP_ALIGNMENT) // 8))()
        return memory, -(-ctypes.addressof(memory) // MAP_ALIGNMENT) * MAP_ALIGNMENT

    def fill(self, start: int, values: Sequence[int], written: list[int]) -> None:
        """Write the maps whose addresses are not those ``written`` there before.  Raises TargetError."""
        for number, (position, own) in enumerate(self._maps):
            address = values[position]
            if written[number] == address:
                continue
            found = self._kept.get((number, address))
            if found is None:
                found = encode(own, address)
                if len(self._kept) >= _MOST_KEPT:
                    self._kept.clear()
                self._kept[number, address] = found
            ctypes.memmove(start + MAP_BYTES * number, found, MAP_BYTES)
            written[number] = address
