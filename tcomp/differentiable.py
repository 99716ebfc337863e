"""What is derived from a def as program text, each an operation like the def: gradients, tangents, batches."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any, Self

from tcomp.arrays.arrays import KINDS, kind_of
from tcomp.derivatives.batch import batched_text
from tcomp.derivatives.gradient import Gradient, is_program_for
from tcomp.derivatives.restating.constants import with_numbers
from tcomp.derivatives.restating.content import with_content_as_inputs
from tcomp.derivatives.restating.forsizes import for_sizes
from tcomp.derivatives.reverse import gradient_text
from tcomp.derivatives.saving import Save
from tcomp.derivatives.tangent import tangent_text
from tcomp.derivatives.wish import Wish
from tcomp.errors import CompileError, DerivativeError, UnsaidError
from tcomp.grammar import define
from tcomp.grammar.ranges.sizes import check_sizes
from tcomp.grammar.tree.function import Function
from tcomp.storage.forks import ISL
from tcomp.storage.memo import MOST_KEPT, Memo

_Numbers = tuple[tuple[str, int], ...]


class Differentiable(ABC):
    """An operation, of which others can be derived."""

    function: Function

    @property
    def name(self) -> str:
        """The name after ``def``."""
        return self.function.name

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self.function))}</pre>"

    @abstractmethod
    def beside(self, function: Function) -> Self:
        """An operation of another def, which chooses its options in the same way."""

    @staticmethod
    def results_like(arrays: Sequence[Any]) -> dict[str, Any]:
        """``out=`` for calls that take none of some arrays but give such; empty where one is of no known kind."""
        if any(KINDS[type(array)] is None for array in arrays):
            return {}
        made = []
        for array in arrays:
            kind = kind_of(array)
            view = kind.view(array)
            made.append(kind.maker(view.shape, view.dtype, view.place)())
        return {"out": made[0] if len(made) == 1 else tuple(made)}

    def gradient(
        self,
        wrt: str | Sequence[str] | None = None,
        save: Save = "statistics",
        ties: str = "even",
        name: str | None = None,
        *,
        sizes: Mapping[str, int] | None = None,
    ) -> Gradient:
        """The gradients with respect to some inputs, derived from the program text.

        Content that the def expects in an output ``O``, as ``out=``, is an input ``O_in`` behind the others here.

        Args:
            wrt: names of inputs of floats; None means all of them.
            save: what the backward pass takes of the forward pass, if it reads it: ``"statistics"``, outputs and
                temporaries with some of an output's dimensions; ``"all"``, results of reductions, too; or names of
                tensors, with ``()`` for none.  ``"auto"`` decides by ``sizes``: it saves results of long sums, too,
                if they are no larger than inputs and outputs together.  All else is computed again.
            ties: of several values that are all the largest or smallest, ``"even"`` gives each the same share, and
                ``"first"`` all to the first, as pooling in PyTorch does.
            name: what the derived def is called; by default ``NAME_grad``.
            sizes: the value of every size symbol and ``const`` parameter, for ``"auto"``.  Where no formula says the
                extents of the def for all sizes, the gradient is derived for these alone.  Values of ``const``
                parameters alone, such as strides, stand as numbers in the text, which is for these alone.

        Raises:
            DerivativeError: ``wrt`` names no input of floats, ``save`` nothing that can be saved, or a statement has
                no derivative here.
        """
        constants = {t.name for t in self.function.inputs if t.role == "const"}
        if sizes and self.function.sizes and constants.issuperset(sizes) and not self.function.recurs:
            found = self._with_numbers(sizes)._gradient(Wish(wrt, save, ties, name))
            return replace(found, only=dict(sizes))
        if sizes is not None:
            check_sizes(self.function, sizes)
            sizes = {**self.function.defaults, **sizes}
        return self._gradient(Wish(wrt, save, ties, name, sizes))

    def _gradient(self, wish: Wish) -> Gradient:
        """Raises DerivativeError."""
        try:
            found = self.gradient_for_all(wish)
        except UnsaidError as error:
            return self._gradient_for(wish.sizes, wish, error)
        if wish.sizes is None or self.function.recurs or found.suits(wish.sizes):
            return found
        return found.for_sizes(wish.sizes)

    def _gradient_for(self, sizes: Mapping[str, int] | None, wish: Wish, error: CompileError) -> Gradient:
        """For some sizes alone; raises the error where that cannot be."""
        wish = replace(wish, sizes=sizes)
        return replace(self._for_sizes(sizes, error).gradient_for_all(wish), only=sizes or {})

    def gradient_for_all(self, wish: Wish) -> Gradient:
        """The one for all sizes; raises DerivativeError, and UnsaidError where there is none."""
        if self.function.needs_content:
            return self._with_content().gradient_for_all(wish)
        derivative = gradient_text(self.function, wish)
        backward = self._derived(derivative.text, derivative.name, f"<gradient of {self.name}>")
        forward = self
        if derivative.forward is not None:
            forward = self._derived(derivative.text, derivative.forward, f"<gradient of {self.name}>")
        derive = functools.cache(lambda without: self._gradient(replace(wish, without=without)))
        known: Memo[_Numbers, Gradient] = Memo(MOST_KEPT)
        at: Memo[_Numbers, Gradient] = Memo(MOST_KEPT)

        def anew(sizes: Mapping[str, int]) -> Gradient:
            unsuited = _unsuited(derivative.name)
            return known.get(tuple(sizes.items()), lambda: self._gradient_for(sizes, wish, unsuited))

        def strided(constants: Mapping[str, int]) -> Gradient:
            return at.get(tuple(constants.items()), lambda: self._with_numbers(constants).gradient_for_all(wish))

        return Gradient(self.function, derivative, self, forward, backward, {}, derive, anew, strided, wish)

    def value_and_grad(
        self, wrt: str | Sequence[str] | None = None, save: Save = "statistics"
    ) -> Callable[..., tuple[Any, Any]]:
        """A function of the inputs that gives the outputs and the gradients, as ``jax.value_and_grad`` does.

        ``cotangents=`` of its calls is needed unless the def gives one number.  Takes and raises what ``gradient``
        does.
        """
        return self.gradient(wrt, save).with_value

    def tangent(
        self,
        wrt: str | Sequence[str] | None = None,
        ties: str = "even",
        *,
        sizes: Mapping[str, int] | None = None,
    ) -> Self:
        """Forward mode: the operation ``NAME_jvp``, which takes inputs and tangents and gives those of the outputs.

        It takes all inputs, then ``t_X`` for each ``X`` in ``wrt``, by default all inputs of floats; ``str`` of it is
        its text.  ``sizes`` are for defs whose extents no formula says for all sizes: it is derived for these alone.

        Raises:
            DerivativeError: ``wrt`` names no input of floats, or a statement has no derivative here.
        """
        try:
            found = self._tangent(wrt, ties)
        except UnsaidError as error:
            return self._for_sizes(sizes, error)._tangent(wrt, ties)
        if sizes is None or self.function.recurs or is_program_for(found.function, sizes):
            return found
        return self._for_sizes(sizes, _unsuited(self.name))._tangent(wrt, ties)

    def _tangent(self, wrt: str | Sequence[str] | None, ties: str) -> Self:
        if self.function.needs_content:
            return self._with_content()._tangent(wrt, ties)
        derivative = tangent_text(self.function, wrt, ties)
        return self._derived(derivative.text, derivative.name, f"<tangent of {self.name}>")

    def batched(self, axes: Sequence[int | None]) -> Self:
        """The operation over many inputs at once, ``NAME_batched``.

        Args:
            axes: for each input, 0 where dimension 0 of what is passed is the batch, None where all of the batch
                share it.

        Raises:
            ShapeError: the entries do not fit the inputs.
        """
        return self._derived(*batched_text(self.function, tuple(axes)), f"<batch of {self.name}>")

    def _for_sizes(self, sizes: Mapping[str, int] | None, error: CompileError) -> Self:
        """The same def for some sizes alone.  Raises the error where there are none, and for blocks of steps."""
        if sizes is None or self.function.recurs:
            raise error
        with ISL.value:
            text = for_sizes(self.function, sizes)
        return self._derived(text, self.name, f"<{self.name} for some sizes>")

    def _with_numbers(self, constants: Mapping[str, int]) -> Self:
        """The same def with numbers for constants in its subscripts; it takes them still."""
        return self._derived(with_numbers(self.function, constants), self.name, f"<{self.name} with numbers>")

    def _with_content(self) -> Self:
        """The same def, which takes what an output held before as an input."""
        return self._derived(with_content_as_inputs(self.function), self.name, f"<{self.name} with its content>")

    def _derived(self, text: str, name: str, source: str) -> Self:
        try:
            return self.beside(define(text, source)[name])
        except CompileError as error:
            raise DerivativeError(*error.diagnostics) from error


def _unsuited(name: str) -> DerivativeError:
    return DerivativeError(f"{name} does not suit these sizes, and cannot be derived for them alone")
