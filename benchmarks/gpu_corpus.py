"""Corpus programs, at default options, on the device or the simulator against the reference interpreter."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

import tcomp as tc
from benchmarks.gpu_workers import ROOT, Settings
from tcomp import grammar
from tcomp.arrays.devices import cupy_module
from tcomp.errors import CompileError, ShapeError

if TYPE_CHECKING:
    from tests import corpus
    from tests.corpus import Program
else:
    # By its path: ``tests`` is the name of a package that other projects install, too.
    _spec = importlib.util.spec_from_file_location("corpus_of_tests", ROOT / "tests" / "corpus.py")
    corpus = sys.modules[_spec.name] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(corpus)

Array = np.ndarray[Any, np.dtype[Any]]

_SAMPLES = 10
_QUICK_PROGRAMS = 24
_RELATIVE, _ABSOLUTE = 2e-5, 1e-5


def names(quick: bool) -> tuple[str, ...]:
    """The programs to run, one of each family; if ``quick``, some of them.  None without the catalogue."""
    firsts = {program.family: program for program in reversed(corpus.programs())}
    every = sorted(firsts.values(), key=lambda program: program.number)
    return tuple(map(str, every[:: max(1, len(every) // _QUICK_PROGRAMS)] if quick else every))


def sample(quick: bool) -> tuple[str, ...]:
    """The programs to run under compute-sanitizer."""
    every = names(quick=False)
    count = 3 if quick else _SAMPLES
    return every[:: max(1, len(every) // count)][:count]


def prepare(settings: Settings) -> Callable[[str], dict[str, Any]]:
    """What checks the program of a name."""
    programs = {str(program): program for program in corpus.programs()}
    if settings.on_gpu and settings.plain_memory:
        cupy_module().cuda.set_allocator(None)
    return lambda name: check(programs[name], settings)


def check(program: Program, settings: Settings) -> dict[str, Any]:
    """How a program came out: ``equal``, ``close``, or ``refused`` where it is wrong for every target.

    Raises AssertionError where a result differs, TcompError where the program is right but cannot be run.
    """
    try:
        function = grammar.define(program.text)[program.name]
        case = corpus.make_case(program, function)
    except (CompileError, ShapeError) as error:
        return {"verdict": "refused", "why": error.message}
    on_device: Callable[[Any], Any] = cupy_module().asarray if settings.on_gpu else np.array
    constants = {tensor.name for tensor in function.inputs if tensor.role == "const"}
    inputs = [int(a) if name in constants else on_device(a) for name, a in case.inputs.items()]
    out = None
    if case.contents:
        out = tuple(on_device(case.contents.get(n, np.zeros_like(a))) for n, a in case.expected.items())
    found = tc.define(program.text, tune="off")[program.name](*inputs, out=out, target=settings.target)
    results = found if isinstance(found, tuple) else (found,)
    for (name, expected), result in zip(case.expected.items(), results, strict=True):
        compare(name, on_host(result, settings), expected, case.exact)
    return {"verdict": "equal" if case.exact else "close", "sizes": dict(case.sizes)}


def on_host(array: Any, settings: Settings) -> Array:
    """The array in main memory."""
    host: Array = cupy_module().asnumpy(array) if settings.on_gpu else array
    return host


def compare(name: str, found: Array, expected: Array, exact: bool) -> None:
    """Raises AssertionError if an output is not what it should be."""
    assert found.dtype == expected.dtype, f"{name} has type {found.dtype}, not {expected.dtype}"
    if exact:
        np.testing.assert_array_equal(found, expected, err_msg=name)
        return
    largest = float(np.max(np.abs(expected.astype(np.float64)), initial=0, where=np.isfinite(expected)))
    np.testing.assert_allclose(found, expected, _RELATIVE, _ABSOLUTE * max(1.0, largest), err_msg=name)
