"""Operators in graphs that inductor compiles: their code calls what runs a kernel, without torch's dispatcher.

Nothing is recorded, traced or transformed any more where such a graph runs; the dispatcher would enter Python anyway.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch


class FakeFor:
    """The fake implementation of an operator that is registered, which tells inductor what to call: ``run``.

    It is told when it first asks what results look like, for importing it takes seconds.  What it calls is an attribute
    of the operator's packet, ``torch.ops.mylib.mm.default_direct``, where graphs that torch keeps on disk find it, too.
    """

    def __init__(self, library: Any, qualified: str, fake: Callable[..., Any], run: Callable[..., Any]) -> None:
        namespace, name = qualified.partition(".")[0].split("::")
        variant = qualified.partition(".")[2] or "default"
        packet = getattr(getattr(torch.ops, namespace), name)
        self._fake = fake
        self._overload = getattr(packet, variant)
        self._is_told = False
        setattr(packet, f"{variant}_direct", run)
        torch.library.register_fake(qualified, self, lib=library)

    def __call__(self, *arguments: Any) -> Any:
        if not self._is_told and "torch._inductor.lowering" in sys.modules:
            self._is_told = True
            # Without this table inductor calls the operator, and so does what somebody else registered.
            lowerings = getattr(sys.modules["torch._inductor.lowering"], "user_lowerings", {})
            lowerings.setdefault(self._overload, functools.partial(_lowered, self._overload))
        return self._fake(*arguments)


def _lowered(overload: Any, *arguments: Any) -> Any:
    """What inductor makes of a call; None, which leaves it to inductor, in code that is not Python."""
    from torch._inductor.virtualized import V  # noqa: PLC0415  (whoever calls this has imported it)

    if V.graph.cpp_wrapper:
        return None
    made = _kernel().create(overload, *arguments)
    return torch.utils._pytree.tree_map(lambda node: node.wrap_for_lowering(), made)


@functools.cache
def _kernel() -> Any:
    from torch._inductor.ir import FallbackKernel  # noqa: PLC0415

    class DirectKernel(FallbackKernel):
        """Calls of an operator by what runs it."""

        def __init__(self, layout: Any, kernel: Any, *others: Any, **named: Any) -> None:
            super().__init__(layout, kernel, *others, **named)
            self.python_kernel_name = f"torch.ops.{kernel}_direct"

    return DirectKernel
