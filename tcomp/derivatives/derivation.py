"""A def under differentiation: its statements by version, free names, and the text that its derivative becomes."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from tcomp.derivatives.expressions import ChainRule, chosen
from tcomp.derivatives.gathering.gathers import Place, dependent_ranges, range_of
from tcomp.derivatives.restating.choices import whole_numbers, with_settled_choices
from tcomp.derivatives.steps.blocks import Group, Steps, with_blocks
from tcomp.derivatives.text import (
    SPELLINGS,
    ZERO,
    Expr,
    constant,
    element,
    is_double_as_text,
    name,
    names_in,
    on_the_left,
    range_text,
    to_syntax,
)
from tcomp.derivatives.tidy import with_repetitions_named, without_inferred_ranges
from tcomp.derivatives.versions import Version, tensors_read, versions_of
from tcomp.errors import DerivativeError, Diagnostic, UnsaidError
from tcomp.grammar import define
from tcomp.grammar.ranges.linear import linear
from tcomp.grammar.ranges.symbolic import Span, symbolic_ranges
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.dataranges import inside_ranges, ranges_of
from tcomp.grammar.tree.function import (
    Function,
    Index,
    Read,
    Tensor,
    depends_on_data,
    is_indirect,
    walk,
)
from tcomp.values.operators import REDUCTIONS


@dataclass(frozen=True, slots=True)
class Derivative:
    """A derived def and what it takes, in order: inputs, sizes as constants, saved values, cotangents or tangents.

    Some of the constants are ``positive``: taken for at least 1.  With numbers for ``strides``, constants that are
    strides or dilations of what is read, there may be a better text.  ``forward`` is the def, in the same text, that
    hands out those saved values which the def itself does not; None if it hands out all.
    """

    text: str
    name: str
    inputs: tuple[str, ...]
    sizes: tuple[str, ...]
    saved: tuple[str, ...]
    cotangents: tuple[str, ...]
    wrt: tuple[str, ...]
    positive: tuple[str, ...]
    strides: tuple[str, ...] = ()
    forward: str | None = None


def checked(derivative: Derivative) -> Derivative:
    """The same.  Raises CompileError where the text is no program."""
    define(derivative.text)
    return derivative


class Derivation:
    """What reverse and forward mode share."""

    def __init__(self, function: Function, wrt: tuple[str, ...], ties: str) -> None:
        if ties not in ("even", "first"):
            raise DerivativeError(f"ties are shared as 'even' or 'first', not {ties!r}")
        self.function = function
        self.first_wins = ties == "first"
        self.wrt = wrt
        self.symbolic = symbolic_ranges(function)
        self.versions = versions_of(function, self.symbolic)
        used = set(function.tensors) | set(function.sizes) | {v.name for v in self.versions}
        self.taken = used | {i for s in function.statements for i in s.indices}
        self.groups: list[Group] = []
        finals = {v.tensor: v.name for v in self.versions}
        self.outputs = {finals[t.name]: t for t in function.outputs if t.dtype.is_float and t.name in finals}
        self.inputs = {t.name: t for t in function.inputs if t.role == "input"}
        self.active = self._active()
        self.positive: set[str] = set()

    def _active(self) -> set[str]:
        """The versions of tensors of floats that depend on what gradients are wanted for."""
        active = set(self.wrt)
        while True:
            before = len(active)
            for version, statement in zip(self.versions, self.function.statements, strict=True):
                if not self.function.tensors[version.tensor].dtype.is_float:
                    continue
                if version.base in active or any(version.reads[read] in active for read in tensors_read(statement)):
                    active.add(version.name)
            if len(active) == before or not self.function.recurs:
                return active

    def steps_of(self, position: int, *, backwards: bool = False) -> tuple[Steps, int] | None:
        """The block in which a statement stands, and the dimension of its target that the step subscripts."""
        statement = self.function.statements[position]
        if not statement.steps:
            return None
        step = statement.steps[0]
        time = next(d for d, s in enumerate(statement.subscripts) if isinstance(s, Index) and s.name == step.index)
        return Steps(step.index, self.symbolic.ranges[position][step.index], step.number, backwards), time

    def rule(self, position: int, version: Version) -> ChainRule:
        statement = self.function.statements[position]
        known = None
        if statement.reduction is None and version.is_only_write:
            subscripts = tuple(to_syntax(s, version.reads) for s in statement.subscripts)
            known = (chosen(statement.value), element(version.name, subscripts))
        return ChainRule(self.function.source, version.reads, self.box, known)

    def bounds(self, position: int) -> tuple[syntax.Range, ...]:
        """The ranges of a statement's indices, as far as they are known for all sizes or the statement says them."""
        statement, reads = self.function.statements[position], self.versions[position].reads
        place = Place(
            statement.indices, frozenset(), self.symbolic.ranges[position], dependent_ranges(statement), ZERO, {}
        )
        written = {r.index: r for r in statement.ranges if not any(map(depends_on_data, (r.lower, r.upper)))}
        return tuple(
            range_of(index, place, {})
            if index in place.ranges
            else syntax.Range(
                name(index), to_syntax(written[index].lower, reads), to_syntax(written[index].upper, reads)
            )
            for index in statement.indices
            if index in place.ranges or index in written
        )

    def unsaid(self, position: int) -> tuple[syntax.Exists, ...]:
        """The reads that bound indices of a statement whose ranges are not known for all sizes."""
        statement, version = self.function.statements[position], self.versions[position]
        missing = set(statement.indices) - set(self.symbolic.ranges[position])
        reads = (e for expr in statement.expressions() for e in walk(expr) if isinstance(e, Read))
        bounding = [
            read
            for read in reads
            if read.boundary is None
            and not any(map(depends_on_data, read.subscripts))
            and any(isinstance(e, Index) and e.name in missing for s in read.subscripts for e in walk(s))
        ]
        return tuple(syntax.Exists(to_syntax(read, version.reads)) for read in dict.fromkeys(bounding))

    def reduced(
        self, position: int, own: str, subscripts: tuple[Expr, ...], operator: str, value: Expr, neutral: Expr
    ) -> list[syntax.Statement]:
        """A tensor reduced as a statement does; where data choose its elements, all that they may be begin before."""
        statement = self.function.statements[position]
        subscripts = tuple(on_the_left(s, statement.indices) for s in subscripts)
        if not (statement.scatters and operator.endswith("!")):
            return [statement_of(own, subscripts, operator, value, self.bounds(position))]
        update = statement_of(own, subscripts, operator.removesuffix("!"), value, self.bounds(position))
        return [self._begun(position, own, subscripts, operator, neutral), update]

    def _begun(
        self, position: int, own: str, subscripts: tuple[Expr, ...], operator: str, neutral: Expr
    ) -> syntax.Statement:
        """The neutral element wherever data may choose; the other subscripts are those of the statement."""
        statement = self.function.statements[position]
        indices, ranges = self.whole(statement.target)
        chosen = [is_indirect(subscript) for subscript in statement.subscripts]
        others = [
            s.name for s, free in zip(statement.subscripts, chosen, strict=True) if isinstance(s, Index) and not free
        ]
        if len(set(others)) == len(chosen) - sum(chosen):
            operator = "="
        named = {
            e.name
            for s, free in zip(statement.subscripts, chosen, strict=True)
            if not free
            for e in walk(s)
            if isinstance(e, Index)
        }
        kept = [r for r in self.bounds(position) if r.index.name in named]
        places = tuple(i if free else s for i, s, free in zip(indices, subscripts, chosen, strict=True))
        spans = (*kept, *(r for r, free in zip(ranges, chosen, strict=True) if free))
        return statement_of(own, places, operator, neutral, spans)

    def box(self, tensor: str) -> tuple[Span, ...]:
        box = self.symbolic.boxes.get(tensor)
        if box is None:
            found = self.function.tensors[tensor]
            message = f"the extents of {tensor} cannot be said for all sizes, so there is no derivative"
            hint = "with sizes=, it is derived for these alone"
            raise UnsaidError(Diagnostic(message, self.function.source, found.span, hint))
        return box

    def fresh(self, wanted: str, keep: bool = True) -> str:
        while wanted in self.taken:
            wanted += "_"
        if keep:
            self.taken.add(wanted)
        return wanted

    def forward(self, saved: Collection[str] = ()) -> list[Group]:
        """The statements whose values the adjoints read, and what those read, but for versions that are saved."""
        wanted = {n for g in self.groups for s in g.statements for n in names_of(s)}
        kept: dict[int, Group] = {}
        again = True
        while again:
            again = False
            for position in reversed(range(len(self.versions))):
                version = self.versions[position]
                if version.name not in wanted or version.name in saved or position in kept:
                    continue
                statements = self.statements_of(position)
                wanted = wanted.union(*map(names_of, statements))
                steps, time = self.steps_of(position) or (None, 0)
                kept[position] = Group("", statements, steps=steps, time=time)
                again = self.function.recurs
        return [kept[position] for position in sorted(kept)]

    def statements_of(self, position: int) -> list[syntax.Statement]:
        """A statement of the forward pass, behind a copy of what it leaves as it was."""
        version = self.versions[position]
        first = all(earlier.name != version.name for earlier in self.versions[:position])
        copied = [self.copied(version, version.name, version.base)] if version.base and first else []
        own, *others = self.renamed(position, version)
        if first and version.gaps is not None:
            copied = [self.empty(version, version.name), *copied]
        declared = list(syntax.statements(self.function.definition.body))[position].declared
        if declared is not None and first and not copied and self.function.tensors[version.tensor].role == "temporary":
            own = replace(own, declared=syntax.Declared(declared.type))
        return [*copied, own, *others]

    def empty(self, version: Version, own: str) -> syntax.Statement:
        """Zeros in a box of a version, which it does not fill."""
        assert version.gaps is not None
        indices, ranges = self.whole(version.tensor, version.gaps)
        tensor = self.function.tensors[version.tensor]
        zero: Expr = ZERO
        if tensor.dtype.name != "float32":
            zero = syntax.Cast(spelling(tensor), ZERO if tensor.dtype.is_float else syntax.Number("0"))
        return statement_of(own, indices, "=", zero, ranges)

    def copied(self, version: Version, own: str, source: str) -> syntax.Statement:
        """What was written before a version, which overwrites a part of it, from one tensor in another."""
        indices, ranges = self.whole(version.tensor, version.before)
        return statement_of(own, indices, "=", element(source, indices), ranges)

    def whole(
        self, tensor: str, box: tuple[Span, ...] | None = None
    ) -> tuple[tuple[Expr, ...], tuple[syntax.Range, ...]]:
        """Indices for all elements of a tensor, or of a part, and their ranges."""
        box = box or self.box(tensor)
        indices = [self.fresh(letter, keep=False) for letter in "ijklmnopqrstuvw"[: len(box)]]
        return tuple(map(name, indices)), tuple(range_text(i, span) for i, span in zip(indices, box, strict=True))

    def renamed(self, position: int, version: Version) -> list[syntax.Statement]:
        """A statement of the forward pass, with its ranges written out and its tensors by version."""
        statement = self.function.statements[position]
        operator = f"{statement.reduction or ''}={'!' if statement.initialise and statement.reduction else ''}"
        subscripts = tuple(to_syntax(s, version.reads) for s in statement.subscripts)
        computed = inside_ranges(statement.value)
        value = to_syntax(computed, version.reads)
        if computed.dtype.name == "float64" and not is_double_as_text(computed):
            value = syntax.Cast("double", value)
        tensor = self.function.tensors[version.tensor]
        neutral: Expr = ZERO
        if statement.reduction is not None:
            identity = REDUCTIONS[statement.reduction].identity(tensor.dtype)
            neutral = constant(identity, tensor.dtype)
            if tensor.dtype.name not in ("float32", "int32"):
                neutral = syntax.Cast(spelling(tensor), neutral)
        *begun, update = self.reduced(position, version.name, subscripts, operator, value, neutral)
        ranges = tuple(
            syntax.Range(name(w.index.name), to_syntax(w.lower, version.reads), to_syntax(w.upper, version.reads))
            for w in ranges_of(statement.value)
            if isinstance(w.index, Index)
        )
        exists = self.unsaid(position) if statement.exists else ()
        return [*begun, replace(update, clauses=(*ranges, *update.clauses, *exists))]

    def assemble(
        self,
        wanted: str,
        results: Sequence[syntax.Parameter],
        cotangents: Sequence[syntax.Parameter],
        may_save: Collection[str] = (),
        *,
        takes_all: bool = False,
    ) -> Derivative:
        """The text of the def ``wanted``, which takes inputs, all or what it reads, saved versions, and cotangents."""
        forward = self.forward(may_save)
        read = {n for g in (*forward, *self.groups) for s in g.statements for n in names_of(s)}
        saved = [name for name in dict.fromkeys(v.name for v in self.versions) if name in may_save and name in read]
        tensors = {v.name: self.function.tensors[v.tensor] for v in self.versions}
        given = [*(self.parameter(tensors[name], name) for name in saved), *cotangents]
        mentioned = {n for g in (*forward, *self.groups) for s in g.statements for n in names_of(s)}
        mentioned |= {n for p in (*results, *given) for d in p.dims or () for n in names_in(d)}
        taken = [t.name for t in self.function.inputs if takes_all or t.name in mentioned]
        inputs = [p for p in self.function.definition.inputs if p.name.name in taken]
        sizes = self._unsaid(mentioned, inputs, given)
        constants = [syntax.Parameter(name(size), "int", const=True) for size in sizes]
        head = syntax.Definition(name(wanted), (*inputs, *constants, *given), tuple(results), ())
        body = with_blocks((*forward, *self.groups))
        types = {own: tensor.dtype.name for own, tensor in {**self.function.tensors, **tensors}.items()}
        settled = (with_settled_choices(item, whole_numbers(self.function), types) for _, item in body)
        tidy = iter(without_inferred_ranges(replace(head, body=tuple(settled))).body)
        lines = [str(head).removesuffix("\n}")]
        for comments, _ in body:
            lines += [f"{syntax.INDENT}# {comment}" for comment in comments]
            named = with_repetitions_named(next(tidy), self.taken)
            lines.append(textwrap.indent(str(named), syntax.INDENT))
        text = "\n".join([*lines, "}"]) + "\n"
        return Derivative(
            text=text,
            name=wanted,
            inputs=tuple(taken),
            sizes=sizes,
            saved=tuple(saved),
            cotangents=tuple(p.name.name for p in cotangents),
            wrt=self.wrt,
            positive=self._constants(self.positive),
            strides=() if self.function.recurs else self._constants(self._strides()),
        )

    def saving(self, own: str, extra: Sequence[str]) -> str:
        """The def itself, which hands out some of its temporaries, too."""
        definition = self.function.definition
        groups: list[Group] = []
        for position in range(len(self.versions)):
            steps, time = self.steps_of(position) or (None, 0)
            groups.append(Group("", self.statements_of(position), steps=steps, time=time))
        statements = [item for _, item in with_blocks(groups)]
        outputs = (*definition.outputs, *(syntax.Parameter(name(e)) for e in extra))
        whole = syntax.Definition(name(own), definition.inputs, outputs, tuple(statements))
        return f"{without_inferred_ranges(whole)}\n"

    def _strides(self) -> set[str]:
        """What indices are multiplied by in subscripts that hold several, unless these can be solved as they are."""
        found: set[str] = set()
        for statement in self.function.statements:
            outer = {i for i in statement.indices if i not in statement.reduction_indices}
            reads = (e for e in walk(statement.value) if isinstance(e, Read))
            for form in [linear(s) for read in reads for s in read.subscripts]:
                terms = () if form is None or len(form.terms) < 2 else form.terms
                as_it_is = any(t in outer and c.constant in (1, -1) for t, c in terms)
                found |= set() if as_it_is else {str(atom) for _, c in terms for m, _ in c.terms for atom in m}
        return found

    def _constants(self, names: Collection[str]) -> tuple[str, ...]:
        return tuple(t.name for t in self.function.inputs if t.role == "const" and t.name in names)

    def _unsaid(
        self, mentioned: set[str], inputs: Sequence[syntax.Parameter], given: Sequence[syntax.Parameter]
    ) -> tuple[str, ...]:
        """The sizes that a text mentions and no parameter has as a dimension.

        They become constants: nobody should keep a tensor alive for its shape.
        """
        dims = [d for p in (*inputs, *given) for d in p.dims or ()]
        said = {d.name for d in dims if isinstance(d, syntax.Name)}
        wanted = mentioned | {n for d in dims for n in names_in(d)}
        return tuple(size for size in self.function.sizes if size in wanted - said)

    def parameter(self, tensor: Tensor, own: str) -> syntax.Parameter:
        dims = tuple((last - first + 1).syntax() for first, last in self.box(tensor.name))
        return syntax.Parameter(name(own), spelling(tensor), dims or None)


def spelling(tensor: Tensor) -> str:
    return SPELLINGS.get(tensor.dtype.name, tensor.dtype.name)


def statement_of(
    target: str, subscripts: tuple[Expr, ...], operator: str, value: Expr, ranges: tuple[syntax.Range, ...]
) -> syntax.Statement:
    return syntax.Statement(name(target), subscripts or None, operator, value, None, ranges)


def names_of(statement: syntax.Statement) -> set[str]:
    own = names_in(statement.value).union(*(names_in(s) for s in statement.subscripts or ()))
    bounds = [
        e for clause in statement.clauses if isinstance(clause, syntax.Range) for e in (clause.lower, clause.upper)
    ]
    bounds += [clause.read for clause in statement.clauses if isinstance(clause, syntax.Exists)]
    return own.union(*map(names_in, bounds))
