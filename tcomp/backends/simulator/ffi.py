"""The structures of ``device/state.hpp`` and ``device/counting.hpp``, and the runtime's functions, for ctypes."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_int32, c_int64, c_uint32, c_uint64, c_void_p

NO_BUFFER = -(2**31)
ALL_BLOCKS = 2**32 - 1


class BufferStructure(ctypes.Structure):
    """``Buffer``."""

    _fields_ = (
        ("start", c_uint64),
        ("size", c_uint64),
        ("cells", c_void_p),
        ("valid", c_void_p),
        ("shift", c_uint32),
        ("role", c_uint32),
        ("first_valid", c_uint32),
        ("scope_first", c_uint32),
        ("touched", c_uint32),
    )


class SettingsStructure(ctypes.Structure):
    """``Settings``."""

    _fields_ = (
        ("arena", c_uint64),
        ("arena_bytes", c_uint64),
        ("buffers", POINTER(BufferStructure)),
        ("buffer_count", c_uint32),
        ("chunk_shift", c_uint32),
        ("shared", c_uint64),
        ("shared_bytes", c_uint64),
        ("variables", POINTER(BufferStructure)),
        ("variable_count", c_uint32),
        ("order", c_uint32),
        ("seed", c_uint64),
        ("stack_bytes", c_uint64),
        ("counted_blocks", c_uint32),
        ("line_count", c_uint32),
        ("most_blocks", c_uint32),
    )


class LaunchStructure(ctypes.Structure):
    """``Launch``."""

    _fields_ = (
        ("kernel", c_uint64),
        ("arguments", POINTER(c_uint64)),
        ("argument_count", c_uint32),
        ("grid", c_uint32 * 3),
        ("block", c_uint32 * 3),
        ("shared_bytes", c_uint32),
    )


class TensorMapStructure(ctypes.Structure):
    """``TensorMap``."""

    _fields_ = (
        ("address", c_uint64),
        ("extents", c_uint64 * 5),
        ("strides", c_uint64 * 5),
        ("box", c_uint32 * 5),
        ("rank", c_uint32),
        ("itemsize", c_uint32),
    )


class PlaceStructure(ctypes.Structure):
    """``Place``."""

    _fields_ = (("block", c_uint32 * 3), ("thread", c_uint32 * 3))


class FindingStructure(ctypes.Structure):
    """``Finding``."""

    _fields_ = (
        ("kind", c_uint32),
        ("access", c_uint32),
        ("buffer", c_int32),
        ("size", c_uint32),
        ("offset", c_int64),
        ("site", c_uint32),
        ("line", c_uint32),
        ("column", c_uint32),
        ("other_site", c_uint32),
        ("place", PlaceStructure),
        ("other", PlaceStructure),
        ("detail", c_uint32),
        ("mask", c_uint32),
        ("count", c_uint64),
    )


class SiteStructure(ctypes.Structure):
    """``Site``."""

    _fields_ = (
        ("site", c_uint32),
        ("buffer", c_int32),
        ("size", c_uint32),
        ("access", c_uint32),
        ("requests", c_uint64),
        ("lanes", c_uint64),
        ("sectors", c_uint64),
        ("ideal_sectors", c_uint64),
        ("wavefronts", c_uint64),
        ("ideal_wavefronts", c_uint64),
    )


class Runtime:
    """The functions that every compiled kernel holds.  One run at a time."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.tc_sim_begin.argtypes = (POINTER(SettingsStructure),)
        library.tc_sim_launch.argtypes = (POINTER(LaunchStructure),)
        library.tc_sim_launch.restype = None
        library.tc_sim_end.argtypes = ()
        library.tc_sim_end.restype = None
        library.tc_sim_findings.argtypes = (POINTER(POINTER(FindingStructure)), POINTER(c_uint64))
        library.tc_sim_findings.restype = c_uint32
        library.tc_sim_counts.argtypes = (
            POINTER(POINTER(SiteStructure)),
            POINTER(POINTER(c_uint64)),
            POINTER(c_uint64),
        )
        library.tc_sim_counts.restype = c_uint32
        library.tc_sim_unwritten.argtypes = (c_uint32,)
        library.tc_sim_unwritten.restype = c_int64
        library.tc_sim_base.restype = c_uint64
        library.tc_sim_progress.argtypes = (POINTER(c_uint64),)
        library.tc_sim_progress.restype = None

    def base(self) -> int:
        """Where the image is loaded."""
        return int(self._library.tc_sim_base())

    def kernel(self, name: str) -> int:
        """The address of a kernel.  Raises AttributeError if there is none of that name."""
        address = ctypes.cast(getattr(self._library, name), c_void_p).value
        assert address is not None
        return address

    def begin(self, settings: SettingsStructure) -> bool:
        """Get ready for the kernels of one run; False if there is too little memory."""
        return bool(self._library.tc_sim_begin(byref(settings)))

    def launch(self, launch: LaunchStructure) -> None:
        """Run a kernel."""
        self._library.tc_sim_launch(byref(launch))

    def findings(self) -> tuple[list[FindingStructure], int]:
        """Copies of the distinct findings so far, and how many there were in all."""
        first, total = POINTER(FindingStructure)(), c_uint64()
        count = self._library.tc_sim_findings(byref(first), byref(total))
        return [FindingStructure.from_buffer_copy(first[n]) for n in range(count)], total.value

    def counts(self, line_count: int) -> tuple[list[SiteStructure], list[int], tuple[int, int, int]]:
        """What the last kernel's counted blocks did: accesses by place of the text, executions by line, and the
        numbers of counted blocks, barriers and warp collectives."""
        first, lines, totals = POINTER(SiteStructure)(), POINTER(c_uint64)(), (c_uint64 * 3)()
        count = self._library.tc_sim_counts(byref(first), byref(lines), totals)
        sites = [SiteStructure.from_buffer_copy(first[n]) for n in range(count)]
        return sites, [int(n) for n in lines[:line_count]], (totals[0], totals[1], totals[2])

    def unwritten(self, number: int) -> int:
        """The first byte of a buffer that nobody wrote, or -1."""
        return int(self._library.tc_sim_unwritten(number))

    def progress(self) -> tuple[int, int]:
        """Blocks of the kernel at work that have run, and how many are to run.  For any thread."""
        counts = (c_uint64 * 2)()
        self._library.tc_sim_progress(counts)
        return counts[0], counts[1]

    def end(self) -> None:
        """Give back the memory of the run."""
        self._library.tc_sim_end()
