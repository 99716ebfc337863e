"""The device on which this process runs OpenCL: pyopencl's choice, which the variable ``PYOPENCL_CTX`` decides."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tcomp.errors import Diagnostic, TargetError
from tcomp.storage.memo import Memo

_HINT = "`pip install 'tcomp[opencl]'` brings pyopencl, and PoCL, which makes a device of the processor"


@dataclass(frozen=True, slots=True, eq=False)
class Here:
    """The device of a ``process``, and what commands go to; ``allocate`` gives so many bytes of its memory."""

    process: int
    device: Any
    context: Any
    queue: Any
    allocate: Callable[[int], Any]


_HERE: Memo[None, Here] = Memo()


def opencl_module() -> Any:
    """pyopencl.  Raises TargetError where it is not installed or does not work."""
    try:
        import pyopencl  # noqa: PLC0415  (optional, and slow to load)
        import pyopencl.array  # noqa: PLC0415
        import pyopencl.tools  # noqa: PLC0415
    except ImportError as error:
        raise TargetError(Diagnostic(f"the target opencl needs pyopencl: {error}", hint=_HINT)) from None
    return pyopencl


def current() -> Here:
    """The device of this process.

    Raises TargetError where there is none, and in a process forked from one that has used it: drivers have threads of
    their own, which are not there, and calls would wait for them for ever.
    """
    here = _HERE.get(None, _open)
    if here.process != os.getpid():
        what = "this process was forked from one that had used OpenCL, whose driver does not work here"
        raise TargetError(Diagnostic(what, hint="multiprocessing.get_context('spawn') starts processes where it does"))
    return here


def _open() -> Here:
    opencl = opencl_module()
    try:
        context = opencl.create_some_context(interactive=False)
        queue = opencl.CommandQueue(context)
        pool = opencl.tools.MemoryPool(opencl.tools.ImmediateAllocator(queue))
    except (opencl.Error, RuntimeError, ValueError) as error:
        raise TargetError(Diagnostic(f"there is no OpenCL device: {error}", hint=_HINT)) from None
    return Here(os.getpid(), context.devices[0], context, queue, pool.allocate)


def kind_of_device() -> str:
    """What the device of this process is compiled for: a row of ``mapping/machines/opencl.py``.  Raises TargetError."""
    device, opencl = current().device, opencl_module()
    if device.type & opencl.device_type.CPU and device.double_fp_config:
        return "cpu"
    return "gpu" if device.double_fp_config else "gpu-single"


def opencl_model() -> str:
    """The model of the device, in words that are the same on machines of one kind."""
    try:
        device = current().device
    except TargetError:
        return "no device"
    return f"{device.name.strip()}, {device.max_compute_units} units, {device.platform.name.strip()}"


def describe_device() -> str:
    """The device in one line.  Raises TargetError."""
    device = current().device
    facts = f"{device.name.strip()} ({device.platform.name.strip()}, {device.version.strip()})"
    return f"{facts}, compiled for opencl:{kind_of_device()}; pyopencl {opencl_module().VERSION_TEXT}"
