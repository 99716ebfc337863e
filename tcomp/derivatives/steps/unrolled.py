"""A def with blocks of steps, as one in which all that a block writes has the step as a subscript.

``h(b,d) = f(h(b,d))`` in a block of ``t`` becomes ``all_h(t,b,d) = f(t == 0 ? h(b,d) : all_h(t-1,b,d))``, and behind
the block ``h(b,d) = T > 0 ? all_h(T-1,b,d) : h(b,d)``.  Then each element is written once, so that adjoints are those
of a program without an order, and only their own order is that of the steps, backwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

from tcomp.derivatives.text import Expr, conjunction, element, name, target_subscripts, to_syntax
from tcomp.errors import CompileError, DerivativeError, Diagnostic, Span
from tcomp.grammar import define
from tcomp.grammar.ranges.linear import linear
from tcomp.grammar.ranges.polynomials import Polynomial
from tcomp.grammar.ranges.symbolic import Span as Coordinates
from tcomp.grammar.ranges.symbolic import Symbolic, symbolic_ranges
from tcomp.grammar.tree import function as tree
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.function import Binary, Constant, Function, Index, Read, Select, Statement, Step, walk
from tcomp.values.operators import BOOL, INT32, DType

_COMBINED = {"+": "+", "*": "*", "max": "max", "min": "min"}


def with_steps_as_subscripts(function: Function) -> Function:
    """The same program; each tensor that its blocks write is written by one statement, at the step.

    A program without blocks is given back.

    Raises DerivativeError for blocks in blocks, and for what has no such form.
    """
    if not function.recurs:
        return function
    text = _Unrolled(function).text()
    try:
        return define(text)[function.name]
    except CompileError as error:
        raise DerivativeError(*error.diagnostics) from error


@dataclass(slots=True)
class _Tensor:
    """A tensor that a block writes: the statements there, and what each of them writes instead.

    ``dimension`` is the one that the step subscripts already; None where there is none yet.
    """

    writes: list[int]
    names: list[str]
    dimension: int | None
    was_there: bool


class _Unrolled:
    def __init__(self, function: Function) -> None:
        self.function = function
        self.symbolic: Symbolic = symbolic_ranges(function)
        self.taken = {*function.tensors, *function.sizes}
        self.taken |= {i for s in function.statements for i in s.indices}

    def text(self) -> str:
        """The program."""
        body: list[syntax.Statement | syntax.Loop] = []
        position, statements = 0, self.function.statements
        while position < len(statements):
            steps = statements[position].steps
            if not steps:
                body.append(self._statement(position, statements[position]))
                position += 1
                continue
            end = position
            while (
                end < len(statements) and statements[end].steps and statements[end].steps[0].number == steps[0].number
            ):
                if len(statements[end].steps) > 1:
                    self._refuse(statements[end].steps[1].span, "blocks in blocks have no derivative here yet")
                end += 1
            body += self._block(steps[0], range(position, end))
            position = end
        return f"{replace(self.function.definition, body=tuple(body))}\n"

    def _block(self, step: Step, positions: range) -> Iterator[syntax.Statement | syntax.Loop]:
        tensors = self._tensors(step, positions)
        low, high = self._range(positions[0], step.index)
        first = step.lower
        if first is None:
            if low.constant is None:
                self._refuse(step.span, f"add a range, such as `for {step.index} in 0:N`")
            first = Constant(low.constant or 0, INT32, step.span)
        copies = dict(self._copies(step, positions, tensors))
        for target, own in copies.items():
            tensors[target].names[-1] = own
        inner: list[syntax.Statement | syntax.Loop] = []
        for position in positions:
            statement = self.function.statements[position]
            if statement.target in copies.values():
                continue
            inner += self._in_block(position, step, first, tensors)
        yield syntax.Loop(name(step.index), low.syntax(), (high + 1).syntax(), tuple(inner))
        for target, found in tensors.items():
            if found.names[-1] != target and self._is_read_after(target, positions.stop):
                yield self._left_behind(target, found, step, low, high)

    def _tensors(self, step: Step, positions: range) -> dict[str, _Tensor]:
        found: dict[str, _Tensor] = {}
        for position in positions:
            statement = self.function.statements[position]
            found.setdefault(statement.target, _Tensor([], [], None, False)).writes.append(position)
        for target, own in found.items():
            own.was_there = any(s.target == target for s in self.function.statements[: positions.start])
            own.was_there |= target in self.function.needs_content
            own.dimension = self._dimension(own, step)
            after = any(s.target == target for s in self.function.statements[positions.stop :])
            first = self.function.statements[own.writes[0]]
            if own.dimension is not None:
                if len(own.writes) > 1 or (first.reduction is not None and not first.initialise):
                    self._refuse(
                        first.span, f"{target} is written several times in a step, so it has no derivative here yet"
                    )
                left_out = own.dimension if own.was_there else None
                if (own.was_there or after) and not self._writes_all(own.writes[0], left_out):
                    self._refuse(first.span, "a part that a step leaves as it is has no derivative here yet")
                own.names = [target if not own.was_there and not after else self._fresh(f"all_{target}")]
                continue
            last = self._fresh(f"all_{target}")
            own.names = [self._fresh(f"{last}_{n + 1}") for n in range(len(own.writes) - 1)] + [last]
        return found

    def _dimension(self, own: _Tensor, step: Step) -> int | None:
        """The dimension of a tensor that the step subscripts in all statements of the block, if any mentions it."""
        places = set()
        for position in own.writes:
            statement = self.function.statements[position]
            plain = [isinstance(s, Index) and s.name == step.index for s in statement.subscripts]
            mentions = [
                any(isinstance(e, Index) and e.name == step.index for e in walk(s)) for s in statement.subscripts
            ]
            if mentions != plain or sum(plain) > 1:
                message = f"what a step writes is subscripted by a formula of `{step.index}`: no derivative yet"
                self._refuse(statement.span, message)
            places.add(plain.index(True) if any(plain) else None)
        if len(places) > 1:
            self._refuse(self.function.statements[own.writes[0]].span, "this has no derivative here yet")
        return places.pop()

    def _copies(self, step: Step, positions: range, tensors: Mapping[str, _Tensor]) -> Iterator[tuple[str, str]]:
        """States and the outputs that hand them out, ``H(t,b,d) = h(b,d)``: one tensor is enough."""
        for position in positions:
            statement = self.function.statements[position]
            own, value = tensors[statement.target], statement.value
            if own.names != [statement.target] or own.dimension != 0 or not isinstance(value, Read):
                continue
            state = tensors.get(value.tensor)
            if state is None or state.dimension is not None or statement.reduction is not None or value.boundary:
                continue
            same = value.subscripts == statement.subscripts[1:] and all(isinstance(s, Index) for s in value.subscripts)
            same = same and state.writes[-1] < position and self._dtype(value.tensor) == self._dtype(statement.target)
            if same and self._spans(position)[1:] == self._spans(state.writes[-1]):
                yield value.tensor, statement.target

    def _in_block(
        self, position: int, step: Step, first: tree.Expr, tensors: Mapping[str, _Tensor]
    ) -> Iterator[syntax.Statement]:
        statement = self.function.statements[position]
        own = tensors[statement.target]
        number = own.writes.index(position)
        target = own.names[number]
        value = self._read(statement.value, position, step, first, tensors)
        subscripts = tuple(self._read(s, position, step, first, tensors) for s in statement.subscripts)
        if own.dimension is not None:
            yield self._statement(position, replace(statement, value=value, subscripts=subscripts), target, step)
            return
        time = Index(step.index, INT32, statement.span)
        goes_on = statement.reduction is not None and not statement.initialise
        if not goes_on and self._writes_all(position):
            timed = replace(statement, value=value, subscripts=(time, *subscripts))
            yield self._statement(position, timed, target, step)
            return
        if not all(isinstance(s, Index) for s in statement.subscripts) or len(set(statement.subscripts)) < len(
            subscripts
        ):
            self._refuse(statement.span, "a part that a step leaves as it is has no derivative here yet")
        before = Read(statement.target, statement.subscripts, self._dtype(statement.target), statement.span)
        old = self._read(before, position, step, first, tensors)
        if goes_on:
            assert statement.reduction is not None
            part = self._fresh(f"part_{target}")
            summed = replace(statement, value=value, subscripts=(time, *subscripts), initialise=True)
            yield self._statement(position, summed, part, step)
            new: tree.Expr = Read(part, (time, *subscripts), self._dtype(statement.target), statement.span)
            new = Binary(_COMBINED[statement.reduction], old, new, self._dtype(statement.target), statement.span)
        elif statement.reduction is not None:
            self._refuse(statement.span, "a part that a step leaves as it is has no derivative here yet")
        else:
            new = value
        spans, whole = self._spans(position), self.symbolic.boxes.get(statement.target)
        if whole is None:
            self._refuse(statement.span, f"the extents of {statement.target} cannot be said for all sizes")
        tests = [
            test
            for index, own_span, all_of in zip(statement.subscripts, spans, whole, strict=True)
            for test in _tests(str(getattr(index, "name", "")), own_span, all_of)
        ]
        text = to_syntax(new, {})
        if tests:
            text = syntax.Conditional(conjunction(tests), text, to_syntax(old, {}))
        ranges = tuple(
            _range(str(getattr(index, "name", "")), span)
            for index, span in zip(statement.subscripts, whole, strict=True)
        )
        places = tuple(to_syntax(s, {}) for s in (time, *subscripts))
        yield syntax.Statement(name(target), places, "=", text, None, ranges)

    def _read(
        self, expr: tree.Expr, position: int, step: Step, first: tree.Expr, tensors: Mapping[str, _Tensor]
    ) -> tree.Expr:
        """An expression with reads of what the block writes as they are now."""
        changed = tree.map_children(expr, lambda child: self._read(child, position, step, first, tensors))
        if not isinstance(changed, Read) or changed.tensor not in tensors:
            return changed
        own, time = tensors[changed.tensor], Index(step.index, INT32, changed.span)
        if changed.boundary is not None:
            self._refuse(changed.span, "what a boundary reads of earlier steps has no derivative here yet")
        if own.dimension is not None:
            return self._at_a_step(changed, position, time, first, own)
        written = sum(p < position for p in own.writes)
        if written:
            return replace(changed, tensor=own.names[written - 1], subscripts=(time, *changed.subscripts))
        if not own.was_there:
            self._refuse(changed.span, f"{changed.tensor} is not there before the first step")
        one = Constant(1, INT32, changed.span)
        before = Binary("-", time, one, INT32, changed.span)
        state = replace(changed, tensor=own.names[-1], subscripts=(before, *changed.subscripts))
        return Select(Binary("==", time, first, BOOL, changed.span), changed, state, changed.dtype, changed.span)

    def _at_a_step(self, read: Read, position: int, time: Index, first: tree.Expr, own: _Tensor) -> tree.Expr:
        """A read of a tensor that the step subscripts: of what a step wrote, or of what was there before the block."""
        if own.names[0] == read.tensor:
            return read
        assert own.dimension is not None
        here, at = replace(read, tensor=own.names[0]), read.subscripts[own.dimension]
        was_written = own.writes[0] < position
        if not own.was_there:
            return here
        form = linear(at)
        if form is None:
            self._refuse(read.span, f"which step wrote what is read of {read.tensor} cannot be said: no derivative yet")
        lag = -form.constant if form.terms == ((time.name, Polynomial.of(1)),) else None
        if lag is not None and (-lag).is_nonnegative():
            return here if was_written and not lag.terms else read
        if lag is not None and (lag - 1).is_nonnegative():
            before = Binary("<", at, first, BOOL, read.span)
            return Select(before, read, here, read.dtype, read.span)
        since = Binary("<=", first, at, BOOL, read.span)
        by_now = Binary("<=" if was_written else "<", at, time, BOOL, read.span)
        return Select(Binary("&&", since, by_now, BOOL, read.span), here, read, read.dtype, read.span)

    def _left_behind(
        self, target: str, own: _Tensor, step: Step, low: Polynomial, high: Polynomial
    ) -> syntax.Statement:
        """What a tensor holds once the steps are over."""
        box = self.symbolic.boxes.get(target)
        if box is None:
            self._refuse(step.span, f"the extents of {target} cannot be said for all sizes")
        letters = [letter for letter in "ijklmnopqrstuvw" if letter not in self.taken][: len(box)]
        indices = tuple(map(name, letters))
        ranges = tuple(_range(letter, span) for letter, span in zip(letters, box, strict=True))
        value: Expr
        runs: Expr
        if own.dimension is None:
            value = element(own.names[-1], (high.syntax(), *indices))
            runs = syntax.Binary("<=", low.syntax(), high.syntax())
        else:
            value, at = element(own.names[0], indices), indices[own.dimension]
            runs = conjunction([syntax.Binary("<=", low.syntax(), at), syntax.Binary("<=", at, high.syntax())])
        if own.was_there:
            value = syntax.Conditional(runs, value, element(target, indices))
        return syntax.Statement(name(target), indices or None, "=", value, None, ranges)

    def _is_read_after(self, target: str, position: int) -> bool:
        if self.function.tensors[target].role == "output":
            return True
        later = self.function.statements[position:]
        return any(
            (isinstance(e, Read) and e.tensor == target) for s in later for x in s.expressions() for e in walk(x)
        ) or any(s.target == target for s in later)

    def _writes_all(self, position: int, dimension: int | None = None) -> bool:
        """Whether a statement writes all of each dimension, but one if that is given."""
        statement = self.function.statements[position]
        box = self.symbolic.boxes.get(statement.target)
        plain = [s.name for s in statement.subscripts if isinstance(s, Index)]
        if box is None or len(set(plain)) < len(statement.subscripts):
            return False
        own = self._spans(position)
        return all(own[d] == whole for d, whole in enumerate(box) if d != dimension)

    def _spans(self, position: int) -> tuple[Coordinates, ...]:
        """Of the indices that subscript what a statement writes."""
        statement = self.function.statements[position]
        return tuple(self._range(position, s.name) for s in statement.subscripts if isinstance(s, Index))

    def _range(self, position: int, index: str) -> Coordinates:
        statement, ranges = self.function.statements[position], self.symbolic.ranges[position]
        if index not in ranges:
            message = f"the range of {index} cannot be said for all sizes, so there is no derivative"
            hint = f"add a range, such as `where {index} in 0:3`"
            raise DerivativeError(Diagnostic(message, self.function.source, statement.span, hint))
        return ranges[index]

    def _statement(
        self, position: int, statement: Statement, target: str | None = None, step: Step | None = None
    ) -> syntax.Statement:
        """A statement with all its ranges written out."""
        operator = f"{statement.reduction or ''}={'!' if statement.initialise and statement.reduction else ''}"
        given = {r.index: r for r in statement.ranges}
        ranges: list[syntax.Range] = []
        for index in statement.indices:
            if step is not None and index == step.index:
                continue
            if index in given:
                own = given[index]
                ranges.append(syntax.Range(name(index), to_syntax(own.lower, {}), to_syntax(own.upper, {})))
            else:
                ranges.append(_range(index, self._range(position, index)))
        subscripts = target_subscripts(statement, {})
        written = list(syntax.statements(self.function.definition.body))[position]
        declared = written.declared if target is None else None
        value = to_syntax(statement.value, {})
        return syntax.Statement(
            name(target or statement.target),
            subscripts or None,
            operator,
            value,
            None,
            tuple(ranges),
            declared=declared,
        )

    def _dtype(self, tensor: str) -> DType:
        return self.function.tensors[tensor].dtype

    def _fresh(self, wanted: str) -> str:
        while wanted in self.taken:
            wanted += "_"
        self.taken.add(wanted)
        return wanted

    def _refuse(self, span: Span, message: str) -> NoReturn:
        raise DerivativeError(Diagnostic(message, self.function.source, span, "write the derivative as a def"))


def _range(index: str, span: Coordinates) -> syntax.Range:
    return syntax.Range(name(index), span[0].syntax(), (span[1] + 1).syntax())


def _tests(index: str, own: Coordinates, whole: Coordinates) -> Iterator[Expr]:
    """What tells the part of a dimension from all of it."""
    if own[0] != whole[0]:
        yield syntax.Binary("<=", own[0].syntax(), name(index))
    if own[1] != whole[1]:
        yield syntax.Binary("<", name(index), (own[1] + 1).syntax())
