"""Cases on the device: every implementation verified against float64, then timed side by side in this process."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

import tcomp as tc
from benchmarks.gpu_cases import BY_NAME, COPY, Case, Sizes
from benchmarks.gpu_peers import EAGER, FUSIBLE, Outputs
from benchmarks.gpu_simulated import WrongResultError, operation_of
from benchmarks.gpu_stopwatch import Prepared, Timing, prepared, time_all
from benchmarks.gpu_workers import Settings
from tcomp.grammar.ranges.ranges import infer
from tcomp.mapping.machines.gpu import Gpu, gpu_of
from tcomp.operation import Operation

TOLERANCE = 1e-4
"""Most that a result may be away from float64's, as a share of its norm; what TF32 gives is further away."""

_COPY_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Implementation:
    """One way to compute a case: ``call`` returns its outputs.  It cannot be captured where it waits for the device."""

    call: Callable[[], Outputs]
    capturable: bool = True


Maker = Callable[[], Implementation]


def prepare(settings: Settings) -> Callable[[str], dict[str, Any]]:
    """What times the case of a name.  TF32 is off, here and in everything that torch calls."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    return lambda name: _copy(settings) if name == COPY else _run(BY_NAME[name], settings)


def _copy(settings: Settings) -> dict[str, Any]:
    """Bytes read and written count both."""
    source = torch.randn(_COPY_BYTES // 4, device="cuda")
    target = torch.empty_like(source)
    timing = time_all({COPY: prepared(lambda: target.copy_(source))}, settings.case_seconds)[COPY]
    return asdict(timing) | {"gb_per_s": 2 * _COPY_BYTES / timing.median_us / 1e3}


def _run(case: Case, settings: Settings) -> dict[str, Any]:
    torch._dynamo.reset()
    operation = operation_of(case)
    inputs = device_inputs(operation, case.sizes, "cuda")
    expected = _tuple(EAGER[case.formula](*map(_double, inputs)))
    tuning, best = _tuned(operation, inputs, settings)
    entries: dict[str, dict[str, Any]] = {}
    works: dict[str, Prepared] = {}
    for name, maker in _makers(case, operation, inputs, settings, best).items():
        entry = entries.setdefault(name, {})
        try:
            start = time.perf_counter()
            made = maker()
            found = _tuple(made.call())
            torch.cuda.synchronize()
            entry["first_call_seconds"] = round(time.perf_counter() - start, 3)
            entry["error"] = error = relative_error(found, expected)
            if not error <= TOLERANCE:
                raise WrongResultError(f"the result is {error:.2g} of its norm away from float64's")
            works[name] = prepared(made.call, made.capturable)
        except Exception as problem:  # noqa: BLE001  (recorded with the implementation; the others go on)
            entry["problem"] = f"{type(problem).__name__}: {problem}"[:3000]
    del expected
    for name, timing in (time_all(works, settings.case_seconds) if works else {}).items():
        entries[name] |= asdict(timing) | rates(case, timing, gpu_of(settings.architecture))
    return {
        "sizes": dict(case.sizes),
        "library": case.library,
        "flops": case.flops(case.sizes),
        "least_bytes": case.least_bytes(case.sizes),
        "implementations": entries,
        **tuning,
    }


def _tuned(
    operation: Operation, inputs: list[Tensor], settings: Settings
) -> tuple[dict[str, Any], tc.MappingOptions | None]:
    """What a search for better options found, for the JSON, and the options; nothing where none is asked for."""
    if not settings.tune_seconds:
        return {}, None
    result = operation.tune(*inputs, target=settings.target, budget=settings.tune_seconds)
    found = {"tuned": {"options": str(result.best), "candidates": len(result.history), "seconds": result.spent}}
    torch.cuda.empty_cache()
    return found, result.best


def _makers(
    case: Case, operation: Operation, inputs: list[Tensor], settings: Settings, best: tc.MappingOptions | None
) -> dict[str, Maker]:
    """By name: what makes each implementation; compiling is part of it.  ``best`` are options that tuning found."""
    checks = any(not tensor.dtype.is_float for tensor in operation.function.inputs)

    def ours(unchecked: bool, options: tc.MappingOptions | None = None) -> Implementation:
        kernel = operation.compile(*inputs, target=settings.target, unchecked=unchecked, options=options)
        shapes = [a.shape for a in kernel.compilation.source.arguments if a.role != "input"]
        out = tuple(torch.full(shape, torch.nan, device="cuda") for shape in shapes)
        return Implementation(lambda: kernel(*inputs, out=out), capturable=unchecked or not checks)

    def compiled() -> Implementation:
        function = torch.compile(FUSIBLE[case.formula], dynamic=False)
        return Implementation(lambda: function(*inputs))

    def handwritten() -> Implementation:
        kernel = importlib.import_module("benchmarks.gpu_triton").KERNELS[case.triton]
        return Implementation(lambda: kernel(*inputs))

    eager = f"torch eager ({case.library})" if case.library else "torch eager"
    makers: dict[str, Maker] = {"tcomp": lambda: ours(unchecked=False)}
    if checks:
        makers["tcomp unchecked"] = lambda: ours(unchecked=True)
    if best is not None:
        makers["tcomp tuned"] = lambda: ours(unchecked=checks, options=best)
    makers[eager] = lambda: Implementation(lambda: EAGER[case.formula](*inputs))
    makers["torch.compile"] = compiled
    if case.triton:
        makers["triton"] = handwritten
    return makers


def device_inputs(operation: Operation, sizes: Sizes, device: str) -> list[Tensor]:
    """Random tensors in parameter order; integers are rows of the table before them."""
    generator = torch.Generator(device).manual_seed(0)
    boxes = infer(operation.function, dict(sizes)).boxes
    tensors: list[Tensor] = []
    for tensor in operation.function.inputs:
        shape = boxes[tensor.name].extent
        if tensor.dtype.is_float:
            tensors.append(torch.randn(shape, generator=generator, device=device))
        else:
            rows = tensors[-1].shape[0]
            tensors.append(torch.randint(rows, shape, generator=generator, device=device, dtype=torch.int32))
    return tensors


def relative_error(found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> float:
    """The norm of the difference over that of what is expected, for all outputs together; nan where one has a nan."""
    difference = norm = 0.0
    for mine, wanted in zip(found, expected, strict=True):
        if mine.shape != wanted.shape:
            raise WrongResultError(f"an output has shape {tuple(mine.shape)}, not {tuple(wanted.shape)}")
        difference += float(torch.linalg.vector_norm(mine.double() - wanted)) ** 2
        norm += float(torch.linalg.vector_norm(wanted)) ** 2
    return float((difference / norm) ** 0.5)


def rates(case: Case, timing: Timing, gpu: Gpu) -> dict[str, float]:
    """What was reached, counting the definition's operations and each element once, and the shares of the peaks.

    ``share_of_roof`` is the least time that the peaks allow over the time taken.
    """
    flops, least, seconds = case.flops(case.sizes), case.least_bytes(case.sizes), timing.median_us / 1e6
    shares = flops / gpu.flops / seconds, least / gpu.bandwidth / seconds
    return {
        "tflop_per_s": flops / seconds / 1e12,
        "gb_per_s": least / seconds / 1e9,
        "share_of_flops": shares[0],
        "share_of_bandwidth": shares[1],
        "share_of_roof": max(shares),
    }


def _double(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _tuple(outputs: Outputs) -> tuple[Tensor, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)
