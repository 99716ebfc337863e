"""All kernels of a call recorded as one CUDA graph, which a replay hands to the device at once.

A program of several contractions is several launches, each of which costs the host some microseconds.  A graph of them
is launched as one.  What is called of CuPy is ``Stream.begin_capture``, ``end_capture`` and ``Graph.launch``, in CuPy's
documentation of ``cupy.cuda``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tcomp.arrays.devices import Memory, Place, cuda_device, cupy_module
from tcomp.arrays.late import raise_found
from tcomp.errors import Diagnostic, TargetError, TcompError


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """A call that was recorded: ``captured()`` computes its outputs anew from what its arguments hold by then.

    ``arguments`` and ``outputs`` are the arrays that it reads and writes each time; ``launches`` is how many kernels it
    runs.
    """

    arguments: tuple[Any, ...]
    outputs: Any
    launches: int
    device: int
    _graph: Any

    def __call__(self) -> Any:
        """Run the graph on CuPy's current stream of its device, and give the outputs, which are the same arrays.

        Raises TcompError where CUDA does not launch it, and what checks of kernels that ran before have found.
        """
        raise_found()
        cuda = cupy_module().cuda
        try:
            with cuda.Device(self.device):
                self._graph.launch(cuda.get_current_stream(self.device))
        except RuntimeError as error:
            raise TcompError(f"CUDA failed to launch a graph of {self.launches} kernels: {error}") from None
        return self.outputs

    def __repr__(self) -> str:
        return f"<CUDA graph of {self.launches} kernels on cuda:{self.device}>"


def capture(call: Callable[..., Any], place: Place, arguments: tuple[Any, ...], out: Any, launches: int) -> Captured:
    """Record a call of a kernel with CuPy arrays at a place; it runs once before, so that all is loaded.

    Raises TargetError for arrays elsewhere, and TcompError where CUDA records nothing.
    """
    if place.memory is not Memory.CUDA:
        raise TargetError(Diagnostic("only calls with arrays on a CUDA device can be recorded", hint=_HINT))
    cupy = cupy_module()
    arrays = [*arguments, *(() if out is None else out if isinstance(out, tuple) else (out,))]
    foreign = [type(a).__name__ for a in arrays if not isinstance(a, cupy.ndarray | int | float)]
    if foreign:
        hint = "for tensors of PyTorch, call the kernel in `with torch.cuda.graph(...)`"
        raise TargetError(Diagnostic(f"only calls with CuPy arrays can be recorded, not with {foreign[0]}", hint=hint))
    device = cuda_device(place.device).number
    with cupy.cuda.Device(device):
        outputs = call(*arguments, out=out)
        stream = cupy.cuda.Stream(non_blocking=True)
        # What ran so far is on another stream.
        cupy.cuda.Device(device).synchronize()
        raise_found()
        try:
            with stream:
                stream.begin_capture()
                try:
                    call(*arguments, out=outputs)
                except TcompError:
                    # CUDA complains of a recording that failed; why it did is what the call says.
                    with suppress(RuntimeError):
                        stream.end_capture()
                    raise
                graph = stream.end_capture()
        except RuntimeError as error:
            raise TcompError(f"CUDA cannot record the call on cuda:{device}: {error}") from None
    return Captured(arguments, outputs, launches, device, graph)


_HINT = "give CuPy arrays, and compile for the target cuda"
