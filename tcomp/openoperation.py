"""One ``def`` whose kernels serve many sizes: some size symbols are left open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tcomp.arrays.devices import Place
from tcomp.grammar.tree.function import Function
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.terms.sizes import SizeRange, Sizes
from tcomp.operation import Operation
from tcomp.runtime.openkernel import OpenKernel, check_open, open_sizes
from tcomp.runtime.registry import resolve
from tcomp.runtime.specialisation import Specialisation
from tcomp.tuner.policy import FROM_CACHE, Policy


class OpenOperation(Operation):
    """A ``def`` with open sizes: arrays of any of these sizes run one kernel, and only other sizes compile another.

    Options that tuning found are not used: they are those of kernels for one size.
    """

    def __init__(self, function: Function, ranges: Mapping[str, SizeRange], policy: Policy = FROM_CACHE) -> None:
        """Raises ShapeError for a name that is no size."""
        super().__init__(function, policy)
        self.open_sizes = open_sizes(function, ranges)

    def __reduce__(self) -> tuple[type[Operation], Any]:
        return OpenOperation, (self.function, self.open_sizes, self._policy)

    def _kernel(
        self,
        sizes: Sizes,
        target: str | None,
        place: Place,
        options: MappingOptions | None,
        unchecked: bool,
        plan: str | None = None,
    ) -> OpenKernel:
        check_open(self.function, self.open_sizes, sizes.values)
        values = {n: self.open_sizes[n].last if n in self.open_sizes else v for n, v in sizes.values.items()}
        opened = Sizes(values, sizes.strides, None, self.open_sizes)
        name = resolve(target, place)
        made = Specialisation(self.function, opened, options or MappingOptions(), name, bool(unchecked), plan)
        key = (tuple(values.items()), tuple(sorted(sizes.strides.items())), name, made.options, made.unchecked, plan)
        found = self._kernels.get(key, lambda: OpenKernel(made))
        assert isinstance(found, OpenKernel)
        return found
