"""What a piece of a program sees of tensors that other pieces touch: the slices that its steps name, where it can."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tcomp.grammar.ranges.accesses import accesses
from tcomp.grammar.ranges.domains import Box
from tcomp.grammar.tree.forms import Form, Interval, combine, interval, to_form
from tcomp.grammar.tree.function import Expr, Index, Read, Statement, Tensor, map_children, walk
from tcomp.model.terms.storages import Storage, contiguous_strides


@dataclass(frozen=True, slots=True)
class Slice:
    """What a piece sees of a tensor: the elements whose coordinates in the dimensions ``at`` are forms over steps."""

    tensor: str
    at: tuple[tuple[int, Form], ...] = ()


@dataclass(frozen=True, slots=True)
class Whole:
    """The program that pieces are of: its tensors, where they live, the values of sizes, and outermost dimensions."""

    tensors: Mapping[str, Tensor]
    boxes: Mapping[str, Box]
    storages: Mapping[str, Storage]
    sizes: Mapping[str, int]
    outermost: Mapping[str, tuple[int, ...]]

    def strides(self, name: str) -> tuple[int, ...]:
        """The strides of a tensor, in elements."""
        storage = self.storages.get(name)
        if storage is not None:
            return storage.strides
        return contiguous_strides(self.boxes[name].extent, self.outermost.get(name, ()))


class Views:
    """What the statements of one piece see of the tensors they touch."""

    def __init__(
        self, whole: Whole, statements: Sequence[Statement], steps: frozenset[str],
        hull: Mapping[str, Interval], own: frozenset[str],
    ) -> None:  # fmt: skip
        self.values = whole.sizes
        self.steps = steps
        self.hull = hull
        self.taken = {*whole.tensors, *whole.sizes}
        self.tensors: dict[str, Tensor] = {}
        self.slices: dict[str, Slice] = {}
        self.boxes: dict[str, Box] = {}
        self.strides: dict[str, tuple[int, ...]] = {}
        self.named: dict[Slice, str] = {}
        touched: dict[str, list[tuple[Expr, ...]]] = {}
        written = {s.target for s in statements}
        bounded = set()
        for statement in statements:
            touched.setdefault(statement.target, []).append(statement.subscripts)
            for access in (a for a in accesses(statement, self.values) if a.emitted):
                touched.setdefault(access.read.tensor, []).append(access.read.subscripts)
                if access.read.boundary is not None:
                    bounded.add(access.read.tensor)
        self.fixed = {
            name: () if name in bounded else self._fixed(subscripts, name in written)
            for name, subscripts in touched.items()
        }
        for name, subscripts in touched.items():
            tensor, box = whole.tensors[name], whole.boxes[name]
            strides = whole.strides(name)
            for each in subscripts:
                cut = self._slice(name, each)
                if cut in self.named:
                    continue
                view = self._name(cut)
                dims = tuple(d for d in range(tensor.rank) if d not in self.fixed[name])
                self.named[cut], self.slices[view] = view, cut
                self.boxes[view] = Box(tuple(box.origin[d] for d in dims), tuple(box.extent[d] for d in dims))
                self.tensors[view] = replace(tensor, name=view, rank=len(dims), dims=None)
                if name not in own:
                    self.strides[view] = tuple(strides[d] for d in dims)

    def _fixed(self, subscripts: Sequence[tuple[Expr, ...]], is_written: bool) -> tuple[int, ...]:
        """The dimensions in which all subscripts are made of steps, if what they name is the same or apart."""
        forms = [tuple(to_form(s, self.values) for s in each) for each in subscripts]
        named = [tuple(_indices(s) <= self.steps for s in each) for each in subscripts]
        fixed = tuple(
            d
            for d in range(len(subscripts[0]))
            if all(self._is_of_steps(each[d]) for each in forms) and all(each[d] for each in named)
        )
        at = list(dict.fromkeys(tuple(each[d] for d in fixed) for each in forms))
        if is_written:
            for number, one in enumerate(at):
                for other in at[number + 1 :]:
                    if not any(self._differ(a, b) for a, b in zip(one, other, strict=True)):
                        return ()
        return fixed

    def _is_of_steps(self, form: Form | None) -> bool:
        return form is not None and all(isinstance(term, str) and term in self.steps for term, _ in form.terms)

    def _differ(self, one: Form | None, other: Form | None) -> bool:
        assert one is not None and other is not None
        low, high = interval(combine([(one, 1), (other, -1)], 0), self.hull)
        return low > 0 or high < 0

    def _slice(self, name: str, subscripts: tuple[Expr, ...]) -> Slice:
        forms = [(d, to_form(subscripts[d], self.values)) for d in self.fixed[name]]
        return Slice(name, tuple((d, form) for d, form in forms if form is not None))

    def _name(self, cut: Slice) -> str:
        if not cut.at:
            return cut.tensor
        name = "_".join([cut.tensor, "at", *(_word(form) for _, form in cut.at)])
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def of_write(self, statement: Statement) -> str:
        """The view that a statement writes."""
        return self.named[self._slice(statement.target, statement.subscripts)]

    def of_reads(self, statement: Statement) -> Iterator[str]:
        """The views that a statement reads, or goes on from."""
        for expression in (statement.value, *statement.subscripts):
            for read in walk(expression):
                if isinstance(read, Read):
                    yield self.named[self._slice(read.tensor, read.subscripts)]
        if statement.reduction is not None and not statement.initialise:
            yield self.of_write(statement)

    def statement(self, statement: Statement) -> Statement:
        """A statement on views; steps are no indices of it any more."""
        return replace(
            statement,
            target=self.of_write(statement),
            subscripts=self._left(statement.target, tuple(map(self._expr, statement.subscripts))),
            value=self._expr(statement.value),
            ranges=tuple(r for r in statement.ranges if r.index not in self.steps),
            exists=(),
            indices=tuple(i for i in statement.indices if i not in self.steps),
            steps=(),
        )

    def _left(self, tensor: str, subscripts: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(s for d, s in enumerate(subscripts) if d not in self.fixed[tensor])

    def _expr(self, expr: Expr) -> Expr:
        changed = map_children(expr, self._expr)
        if isinstance(expr, Read) and isinstance(changed, Read):
            view = self.named[self._slice(expr.tensor, expr.subscripts)]
            return replace(changed, tensor=view, subscripts=self._left(expr.tensor, changed.subscripts))
        return changed


def _indices(expr: Expr) -> set[str]:
    """The indices that an expression names, though it may not depend on them, as ``i % 1`` does not."""
    return {node.name for node in walk(expr) if isinstance(node, Index)}


def _word(form: Form) -> str:
    """A form in letters: ``t``, ``t_less_1``."""
    words = [str(term) if factor == 1 else f"{abs(factor)}{term}" for term, factor in form.terms]
    if form.constant or not words:
        words += ["less"] * bool(words and form.constant < 0) + [str(abs(form.constant))]
    return "_".join(words)
