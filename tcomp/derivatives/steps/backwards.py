"""Reverse mode of blocks as they stand: the same blocks with their steps and statements from the last to the first.

What a derivative reads and a statement overwrites is kept by the forward pass, an element for each that is written, and
put back on the way: each derivative sees the values that the statement saw.  Where outputs are all that derivatives
read, and as they are handed out, there is no forward pass.

The method is that of stores and restores in Griewank and Walther, "Evaluating Derivatives" (2008), chapter 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tcomp.derivatives.derivation import Derivative
from tcomp.derivatives.saving import check_save
from tcomp.derivatives.steps.inplace import moved_by
from tcomp.derivatives.steps.keeping import Keeping
from tcomp.derivatives.steps.nests import Item, mentioned, statements_in
from tcomp.derivatives.text import ZERO, Expr, element, name, names_in
from tcomp.derivatives.versions import writes_all
from tcomp.derivatives.wish import Wish, chosen_inputs
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.function import Binary, Function, walk


def gradient_in_place(function: Function, wish: Wish) -> Derivative:
    """The def that computes the gradients of a def with blocks, whatever stands in them.

    Raises:
        DerivativeError: ``wrt`` names no input of floats, ``save`` nothing that can be saved, or a statement has no
            derivative here.
    """
    chosen = chosen_inputs(function, wish.wrt)
    check_save(function, {s.target for s in function.statements}, wish.save)
    return _Backwards(function, chosen, wish).run(wish.name or f"{function.name}_grad")


class _Backwards(Keeping):
    def __init__(self, function: Function, wrt: tuple[str, ...], wish: Wish) -> None:
        super().__init__(function, wrt, wish.ties)
        self.save = wish.save
        self.results = {t.name: t for t in function.outputs if t.dtype.is_float}
        given = [t for t in self.results if t not in wish.without]
        self.cotangents = {t: self.fresh(f"d_{t}") for t in given}
        self.gradients = {t: self.fresh(f"d_{t}") for t in wrt}
        useful = self._useful(given)
        for tensor in function.tensors:
            if tensor in self.moving & useful:
                self.adjoints[tensor] = self._adjoint(tensor)
        self.decide()

    def _useful(self, outputs: Iterable[str]) -> set[str]:
        """The tensors on which outputs depend."""
        found, grew = set(outputs), True
        while grew:
            grew = False
            for statement in self.function.statements:
                if statement.target in found:
                    more = {t for t in self.function.tensors if moved_by({t}, statement.value)}
                    grew = grew or not more <= found
                    found |= more
        return found

    def _adjoint(self, tensor: str) -> str:
        """The name of the adjoint while it is added up, which is not that of what is taken or handed out."""
        kind = self.wide(tensor)
        if tensor in self.gradients:
            own = self.gradients[tensor]
            return own if kind == self.types[tensor] else self.new(f"wide_{own}", kind)
        return self.new(f"all_d_{tensor}" if tensor in self.results else f"d_{tensor}", kind)

    def run(self, wanted: str) -> Derivative:
        back = self.nest(self.backwards, backwards=True)
        begun = [*(self._first(tensor) for tensor in self.adjoints), *self.nothing_given]
        ended = [self._ended(tensor) for tensor in self.wrt if self.adjoints.get(tensor) != self.gradients[tensor]]
        saved, forward = self._forward({n for s in statements_in((*begun, *back, *ended)) for n in mentioned(s)})
        results = [self.parameter(self.inputs[n], self.gradients[n]) for n in self.wrt]
        cotangents = [self.parameter(self.results[t], own) for t, own in self.cotangents.items()]
        given = [*(self.parameter(self.function.tensors[t], t) for t in saved), *cotangents]
        everything = {n for s in statements_in((*forward, *begun, *back, *ended)) for n in mentioned(s)}
        everything |= {n for p in (*results, *given) for d in p.dims or () for n in names_in(d)}
        everything |= {n for item in (*forward, *back) for n in _names_of_steps(item)}
        dims = [d for s in statements_in(forward) for d in self.dims.get(s.target.name) or ()]
        everything |= {n for d in dims for n in names_in(d)}
        taken = [t.name for t in self.function.inputs if t.name in everything]
        inputs = [p for p in self.function.definition.inputs if p.name.name in taken]
        sizes = self._unsaid(everything, inputs, given)
        constants = [syntax.Parameter(name(size), "int", const=True) for size in sizes]
        parts = [
            ("the forward pass, which keeps what it overwrites" if self.kept else "the forward pass", forward),
            ("adjoints, and the same statements from the last to the first", [*begun, *back, *ended]),
        ]
        text = self.written_out(wanted, (*inputs, *constants, *given), results, parts)
        return Derivative(
            text=text,
            name=wanted,
            inputs=tuple(taken),
            sizes=sizes,
            saved=saved,
            cotangents=tuple(self.cotangents.values()),
            wrt=self.wrt,
            positive=self._constants(self.positive),
        )

    def _first(self, tensor: str) -> syntax.Statement:
        """An adjoint before anything is added: the cotangent, or 0."""
        own, given = self.adjoints[tensor], self.cotangents.get(tensor)
        if given is None:
            return self.all_of(tensor, own, lambda indices: self.zero(tensor))
        return self.all_of(tensor, own, lambda indices: element(given, self.from_zero(tensor, indices)))

    def _ended(self, tensor: str) -> syntax.Statement:
        """The gradient of an input on which nothing depends, or that is narrower than what was added up."""
        own = self.adjoints.get(tensor)
        cast = self.types[tensor]

        def value(indices: tuple[Expr, ...]) -> Expr:
            return syntax.Cast(cast, ZERO if own is None else element(own, indices))

        return self.all_of(tensor, self.gradients[tensor], value)

    def _forward(self, read: set[str]) -> tuple[tuple[str, ...], list[Item]]:
        """Outputs that are taken as they are, and statements with the other values that are read and what is kept."""
        saved = self._outputs_to_save() & read
        while True:
            wanted = read - saved
            grew = True
            while grew:
                before = len(wanted)
                for position, statement in enumerate(self.function.statements):
                    if statement.target in wanted:
                        wanted |= mentioned(self.as_written(position))
                grew = len(wanted) > before
            if not saved & wanted:
                break
            saved -= wanted
        positions = [p for p, s in enumerate(self.function.statements) if s.target in wanted]
        filled: list[str] = []
        for position in self.kept:
            target = self.function.statements[position].target
            first = self.writers(target)[0]
            in_block = bool(self.function.statements[first].steps)
            whole = not in_block and writes_all(first, self.function, self.symbolic, self.box(target))
            if target not in filled and not whole:
                filled.append(target)

        def written(position: int) -> Iterator[syntax.Statement]:
            if position in positions:
                if position in self.kept:
                    yield self.keep(position)
                yield self.as_written(position)

        zeros = [self.filled(tensor) for tensor in filled]
        return tuple(t.name for t in self.function.outputs if t.name in saved), [*zeros, *self.nest(written)]

    def _outputs_to_save(self) -> set[str]:
        """Outputs that begin at 0 and are read as they are at the end.

        None where values are compared: those that are computed again may be rounded otherwise than what is saved.
        """
        statements = self.function.statements
        compared = any(s.reduction in ("max", "min") for s in statements) or any(
            isinstance(e, Binary) and e.op in ("==", "!=") and e.lhs.dtype.is_float
            for s in statements
            for expr in s.expressions()
            for e in walk(expr)
        )
        kept = {statements[p].target for p in self.kept}
        return {
            t.name
            for t in self.function.outputs
            if not compared
            and t.name not in kept
            and (isinstance(self.save, str) or t.name in self.save)
            and all(not first.terms for first, _ in self.box(t.name))
        }


def _names_of_steps(item: Item) -> set[str]:
    """What the bounds of blocks mention."""
    if isinstance(item, syntax.Statement):
        return set()
    bounds = [names_in(e) for e in (item.lower, item.upper) if e is not None]
    return set().union(*bounds, *map(_names_of_steps, item.body))
