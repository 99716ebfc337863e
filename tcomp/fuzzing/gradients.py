"""Derivatives of random programs: reverse mode against forward mode, against finite differences, and against torch.

Floats become doubles, half of the integers, too, and some functions smooth ones.  For a random direction ``v`` and
random cotangents ``w``, ``<w, J v>`` from the tangent must be ``<J^T w, v>`` from the gradient; where a program has no
jumps, both must be the central difference of ``<w, f>``, too.  Where torch is installed, each element of a gradient
must be that of ``torch.autograd`` over the same program in operations of torch.  The gradient itself is differentiated
in the same way.
"""

from __future__ import annotations

import importlib
import importlib.util
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

from tcomp.derivatives.restating.content import with_content_as_inputs
from tcomp.derivatives.restating.forsizes import for_sizes
from tcomp.engine import define
from tcomp.errors import DerivativeError, TcompError, UnsaidError
from tcomp.fuzzing.programs.choices import Choices
from tcomp.fuzzing.programs.generation import Scale, generate
from tcomp.fuzzing.programs.programs import Program
from tcomp.grammar.ranges.ranges import infer
from tcomp.grammar.tree.function import Binary, Call, Cast, Expr, Function, Read, Select, children, walk
from tcomp.model.evaluation import numpy_dtype
from tcomp.operation import Operation
from tcomp.storage.forks import ISL

Array = np.ndarray[Any, np.dtype[Any]]

AGREEMENT = 1e-6
"""Of the sum of the magnitudes that are added up."""

EQUALITY = 1e-8
"""Of the largest element of a gradient, beside torch."""

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
                text = _with_content(operation.function, program.sizes)
                operation = _only(text, seed)
            return text, check(operation, program.sizes, seed)
        except TcompError as error:
            kind = "" if isinstance(error, DerivativeError) else f"{type(error).__name__}: "
            return text, Verdict("refused", f"{kind}{_kind(error.diagnostics[0].message)}")
        except Exception:  # noqa: BLE001 - whatever is raised is what is looked for
            return text, Verdict("failed", traceback.format_exc(limit=-6))


def _drawn(seed: int) -> tuple[Program, str]:
    """The first program of a seed that is one in doubles, too, and has an output that inputs of them move."""
    for number in itertools.count():
        rng = random.Random(1000 * seed + number)
        program = generate(Choices(rng.randint), scale=SCALE)
        text = in_doubles(str(program.definition))
        for changed in (smoother(text, rng), text):
            try:
                function = _only(changed, seed).function
                infer(function, program.sizes)
            except TcompError:
                continue
            if moves(function):
                return program, changed
    raise AssertionError("programs never end")


def moves(function: Function) -> bool:
    """Whether an output of floats depends on inputs of floats other than by conditions and integers."""
    active = {t.name for t in function.inputs if t.dtype.is_float}
    active |= {n for n in function.needs_content if function.tensors[n].dtype.is_float}
    grew = True
    while grew:
        grew = False
        for statement in function.statements:
            is_float = function.tensors[statement.target].dtype.is_float
            if is_float and statement.target not in active and _moved_by(active, statement.value):
                active.add(statement.target)
                grew = True
    written = {s.target for s in function.statements if _moved_by(active, s.value)}
    return any(t.name in written for t in function.outputs if t.dtype.is_float)


def _moved_by(active: set[str], value: Expr) -> bool:
    match value:
        case _ if not value.dtype.is_float:
            return False
        case Read():
            inside = value.boundary.value if value.boundary is not None else None
            return value.tensor in active or (inside is not None and _moved_by(active, inside))
        case Select():
            return _moved_by(active, value.then) or _moved_by(active, value.otherwise)
        case _:
            return any(_moved_by(active, child) for child in children(value))


def _with_content(function: Function, sizes: Mapping[str, int]) -> str:
    try:
        return with_content_as_inputs(function)
    except UnsaidError:
        return with_content_as_inputs(_only(for_sizes(function, sizes), 0).function)


def _only(text: str, seed: int) -> Operation:
    operations = define(text, f"<seed {seed}>")
    return operations[next(iter(operations))]


def in_doubles(text: str) -> str:
    return re.sub(r"\b(float8_e4m3fn|float8_e5m2|b?float16|half|float32|float)\b", "double", text)


_SMOOTH = ("sin", "cos", "tanh", "sigmoid", "atan", "erf", "expm1", "asinh", "fabs", "relu")
"""Functions that are defined everywhere."""


def smoother(text: str, rng: random.Random) -> str:
    """A text that may be no program, in which steps have become smooth functions, and often integers doubles."""
    text = re.sub(r"\b(floor|ceil|trunc|round|sign|abs)\(", lambda found: f"{rng.choice(_SMOOTH)}(", text)
    return re.sub(r"\bu?int(8|16|64)\b", "double", text) if rng.random() < 0.7 else text


def check(operation: Operation, sizes: Mapping[str, int], seed: int, depth: int = 2) -> Verdict:
    """Compare the derivatives of a def of doubles, and those of its gradient to so many orders in all.

    Raises DerivativeError where there is none, and TcompError where derived programs do not suit the sizes.
    """
    with ISL.value:
        arguments = arguments_for(operation.function, sizes, seed)
    rng = np.random.default_rng(seed + 1)
    gradient, tangent = operation.gradient(save=(), sizes=sizes), operation.tangent(sizes=sizes)
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
    other = _from_torch(operation.function, given, gradient.wrt, cotangents, gradients)
    if other:
        return Verdict("failed", f"{other}\n{gradient.text}")
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


def _from_torch(
    function: Function,
    given: Mapping[str, Any],
    wrt: Sequence[str],
    cotangents: Sequence[Array],
    gradients: Sequence[Array],
) -> str:
    """Where gradients are not those of torch; nothing where they are, or torch has no say."""
    if importlib.util.find_spec("torch") is None:
        return ""
    values = importlib.import_module("tcomp.fuzzing.torchvalues")
    try:
        expected = values.gradients(function, given, wrt, cotangents)
    except values.NoEquivalentError:
        return ""
    size = max((float(np.abs(a).max(initial=0)) for pair in (gradients, expected) for a in pair), default=0.0)
    allowed = (EQUALITY if is_exact(function) else DIFFERENCES) * (1 + size)
    for name, own, other in zip(wrt, gradients, expected, strict=True):
        own = np.asarray(own, float)
        if np.isfinite(other).all() and not np.abs(own - other).max(initial=0) <= allowed:
            return f"the gradient by {name} is\n{own}\nbut by torch\n{other}"
    return ""


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
