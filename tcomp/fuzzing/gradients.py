"""Derivatives of random programs: reverse mode against forward mode, and that against finite differences.

Floats become doubles.  For a random direction ``v`` and random cotangents ``w``, ``<w, J v>`` from the tangent must be
``<J^T w, v>`` from the gradient; where a program has no jumps, both must be the central difference of ``<w, f>``, too.
The gradient itself is differentiated in the same way.
"""

from __future__ import annotations

import itertools
import multiprocessing
import random
import re
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tcomp.derivatives.content import with_content_as_inputs
from tcomp.engine import define
from tcomp.errors import DerivativeError, TcompError
from tcomp.fuzzing.programs.choices import Choices
from tcomp.fuzzing.programs.generation import Scale, generate
from tcomp.fuzzing.programs.programs import Program
from tcomp.grammar.ranges.ranges import infer
from tcomp.grammar.tree.function import Binary, Call, Cast, Expr, Function, Select, walk
from tcomp.model.evaluation import numpy_dtype
from tcomp.operation import Operation
from tcomp.storage.forks import ISL

Array = np.ndarray[Any, np.dtype[Any]]

AGREEMENT = 1e-6
"""Of the sum of the magnitudes that are added up."""

STEP, DIFFERENCES = 1e-6, 1e-4

SCALE = Scale(points=400, large_points=2_000, product_points=4_000, floats=True)
"""Nothing of a derivative depends on how large a program is, but the interpreter's time does."""

LONGEST = 1_200
"""Characters of a gradient's text up to which it is differentiated again."""

_JUMPS = frozenset({"floor", "ceil", "trunc", "round", "sign", "fmod", "remainder"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """``kind`` is "passed", "refused", "not finite" or "failed"; ``detail`` says why."""

    kind: str
    detail: str = ""


@dataclass(slots=True)
class Tally:
    """What became of programs."""

    verdicts: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str, str]] = field(default_factory=list)
    """Seed, text and reason."""

    def add(self, seed: int, text: str, verdict: Verdict) -> None:
        self.verdicts[verdict.kind] += 1
        if verdict.kind == "refused":
            self.refusals[verdict.detail] += 1
        if verdict.kind == "failed":
            self.failures.append((seed, text, verdict.detail))

    def __str__(self) -> str:
        return ", ".join(f"{count} {kind}" for kind, count in self.verdicts.most_common()) or "no programs"


def try_many(seed: int, seconds: float, programs: int | None, jobs: int) -> Tally:
    """Try programs of a seed in some processes until the time is over, or so many were tried."""
    tally, end = Tally(), time.monotonic() + seconds
    numbers = itertools.count() if programs is None else iter(range(programs))
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        running: dict[Future[tuple[str, Verdict]], int] = {}
        while True:
            while len(running) < 2 * jobs and time.monotonic() < end:
                number = next(numbers, None)
                if number is None:
                    break
                own = seed * 1_000_000 + number
                running[pool.submit(try_seed, own)] = own
            if not running:
                return tally
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                tally.add(running.pop(future), *future.result())


def try_seed(seed: int) -> tuple[str, Verdict]:
    """A random program, with doubles for floats, and what became of it."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        program, text = _drawn(seed)
        try:
            operation = _only(text, seed)
            if operation.function.needs_content:
                # Nearly half of all programs go on from what the caller passes, which is an input here.
                text = with_content_as_inputs(operation.function)
                operation = _only(text, seed)
            return text, check(operation, program.sizes, seed)
        except TcompError as error:
            kind = "" if isinstance(error, DerivativeError) else f"{type(error).__name__}: "
            return text, Verdict("refused", f"{kind}{_kind(error.diagnostics[0].message)}")
        except Exception:  # noqa: BLE001 - whatever is raised is what is looked for
            return text, Verdict("failed", traceback.format_exc(limit=-6))


def _drawn(seed: int) -> tuple[Program, str]:
    """The first program of a seed that is one in doubles, too, and has an input of them."""
    for number in itertools.count():
        program = generate(Choices(random.Random(1000 * seed + number).randint), scale=SCALE)
        text = in_doubles(str(program.definition))
        try:
            function = _only(text, seed).function
        except TcompError:
            continue
        if any(t.dtype.is_float for t in function.inputs):
            return program, text
    raise AssertionError("programs never end")


def _only(text: str, seed: int) -> Operation:
    operations = define(text, f"<seed {seed}>")
    return operations[next(iter(operations))]


def in_doubles(text: str) -> str:
    return re.sub(r"\b(b?float16|half|float32|float)\b", "double", text)


def check(operation: Operation, sizes: Mapping[str, int], seed: int, depth: int = 2) -> Verdict:
    """Compare the derivatives of a def of doubles, and those of its gradient to so many orders in all.

    Raises DerivativeError where there is none, and TcompError where derived programs do not suit the sizes.
    """
    with ISL.value:
        arguments = arguments_for(operation.function, sizes, seed)
    rng = np.random.default_rng(seed + 1)
    gradient, tangent = operation.gradient(save=()), operation.tangent()
    names = [t.name for t in operation.function.inputs]
    given = dict(zip(names, arguments, strict=True))
    outputs = _floats(operation.function, _tuple(operation.reference(*arguments)))
    if not all(np.isfinite(o).all() for o in outputs):
        return Verdict("not finite")
    types = [numpy_dtype(t.dtype) for t in operation.function.outputs if t.dtype.is_float]
    cotangents = [np.asarray(rng.uniform(-1, 1, o.shape), t) for o, t in zip(outputs, types, strict=True)]
    moves = {n: np.asarray(rng.uniform(-1, 1, np.shape(given[n])), given[n].dtype) for n in gradient.wrt}
    moved = _tuple(tangent.reference(*arguments, *moves.values()))
    taken = gradient.arguments(given, dict(sizes), cotangents)
    gradients = _tuple(gradient.backward.reference(*taken))
    forward, forward_size = _dot(cotangents, moved)
    reverse, reverse_size = _dot(list(moves.values()), gradients)
    if not np.isfinite([forward, reverse]).all():
        return Verdict("not finite")
    scale = forward_size + reverse_size
    if abs(forward - reverse) > AGREEMENT * scale + 1e-12:
        return Verdict("failed", f"<w, J v> is {forward}, <J^T w, v> is {reverse}\n{gradient.text}\n{tangent}")
    if is_smooth(operation.function) and is_exact(operation.function):
        for step in (STEP, STEP / 10, STEP / 100):
            sides = []
            for sign in (1, -1):
                there = [a + sign * step * moves[n] if n in moves else a for n, a in given.items()]
                sides.append(_dot(cotangents, _floats(operation.function, _tuple(operation.reference(*there)))))
            (high, size), (low, _) = sides
            difference = (high - low) / (2 * step)
            if abs(difference - forward) <= DIFFERENCES * scale + 1e-14 / step * size + 1e-6:
                break
        else:
            return Verdict("failed", f"<w, J v> is {forward}, the difference {difference}\n{tangent}")
    if depth > 1 and len(gradient.text) <= LONGEST:
        try:
            function = gradient.backward.function
            known = {n: dict(sizes).get(n, 1) for n in _names_of_sizes(function)}
            second = check(gradient.backward, known, seed + 2, depth - 1)
        except TcompError:
            return Verdict("passed")
        if second.kind == "failed":
            return Verdict("failed", f"second derivative: {second.detail}")
    return Verdict("passed")


def arguments_for(function: Function, sizes: Mapping[str, int], seed: int) -> list[Any]:
    """Doubles away from 0, so that few are at a kink; 0 and 1 for other types."""
    rng, boxes = np.random.default_rng(seed), infer(function, sizes).boxes
    result: list[Any] = []
    for tensor in function.inputs:
        if tensor.role == "const":
            result.append(sizes[tensor.name])
        elif tensor.dtype.is_float:
            result.append(rng.uniform(0.3, 1, boxes[tensor.name].extent).astype(numpy_dtype(tensor.dtype)))
        else:
            result.append(rng.integers(0, 2, boxes[tensor.name].extent).astype(numpy_dtype(tensor.dtype)))
    return result


def is_smooth(function: Function) -> bool:
    """Whether no value jumps where another one moves; kinks, as of ``max``, are not hit by each length of step."""
    return not any(_jumps(e) for s in function.statements for x in s.expressions() for e in walk(x))


def is_exact(function: Function) -> bool:
    """Whether all floats are doubles: numbers without doubles beside them are not."""
    return all(t.dtype.bits == 64 for t in function.tensors.values() if t.dtype.is_float)


def _jumps(expr: Expr) -> bool:
    match expr:
        case Cast():
            return expr.operand.dtype.is_float and not expr.dtype.is_float
        case Call():
            return expr.intrinsic in _JUMPS
        case Binary(op="%"):
            return expr.dtype.is_float
        case Select():
            return any(_compares_floats(e) for e in walk(expr.condition))
    return False


def _compares_floats(expr: Expr) -> bool:
    return isinstance(expr, Binary) and expr.lhs.dtype.is_float


def _names_of_sizes(function: Function) -> Iterator[str]:
    yield from function.sizes
    yield from (t.name for t in function.inputs if t.role == "const")


def _floats(function: Function, results: Sequence[Array]) -> list[Array]:
    return [r.astype(float) for r, t in zip(results, function.outputs, strict=True) if t.dtype.is_float]


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _dot(first: Sequence[Any], second: Sequence[Any]) -> tuple[float, float]:
    """The sum of products, and of their magnitudes."""
    products = [a * b for a, b in zip(first, second, strict=True)]
    return float(sum(p.sum() for p in products)), float(sum(np.abs(p).sum() for p in products))


def _kind(message: str) -> str:
    """A message without the names in it."""
    return re.sub(r"\b([A-Z]\w*|[a-z]\d\w*|held\d|z)\b", "_", message)[:80]
