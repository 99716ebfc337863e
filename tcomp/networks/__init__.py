"""Whole networks: read from PyTorch, printed as program text, run as a chain of kernels::

    net = tcomp.compile_network(module, x)
    y = net(x)

``from_torch`` gives the network itself, which prints as a program.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tcomp.errors import NetworkError
from tcomp.networks import aten, atenparts  # noqa: F401  (they fill the table of rules)
from tcomp.networks.importing import RULES
from tcomp.networks.network import Call, Definition, Network, Value
from tcomp.networks.profile import Profile
from tcomp.networks.program import CompiledNetwork

__all__ = [
    "Call",
    "CompiledNetwork",
    "Definition",
    "Network",
    "Profile",
    "Value",
    "compile_network",
    "from_torch",
    "operators",
    "read_exported",
]


def from_torch(module: Any, example: Any, name: str = "network") -> Network:
    """The network that a ``torch.nn.Module`` in evaluation mode computes for inputs like the example.

    Args:
        module: what to read, or what ``torch.export.export`` made of it; its parameters become weights.
        example: a tensor, or a tuple with one tensor for each input; only shapes and types matter.
        name: what the def is called.

    Raises:
        NetworkError: torch.export cannot read the module, or an operator has no rule; the message names it.
    """
    from tcomp.networks.exporting import network_of  # noqa: PLC0415  (it imports torch)

    return network_of(module, tuple(example) if isinstance(example, (tuple, list)) else (example,), name)


def read_exported(path: str | os.PathLike[str], name: str = "network") -> Network:
    """The network of a file that ``torch.export.save`` wrote.  Raises NetworkError."""
    from tcomp.networks.exporting import read  # noqa: PLC0415  (it imports torch)

    return read(Path(path), name)


def operators() -> tuple[str, ...]:
    """The operators that have a rule, sorted."""
    return tuple(sorted(RULES))


def compile_network(model: Any, *example: Any) -> CompiledNetwork:
    """Compile a network for the CPU: ``net = compile_network(module, x)``, then ``y = net(x)``.

    Args:
        model: a ``Network``, or a ``torch.nn.Module`` in evaluation mode.
        example: for a module, one tensor for each input; only shapes and types matter.

    Raises:
        NetworkError: it cannot be read.
    """
    if isinstance(model, Network):
        return CompiledNetwork(model.checked())
    if not hasattr(model, "state_dict"):  # a module, or an exported program, without importing torch
        raise NetworkError(f"a network is a Network or a module of PyTorch, not {type(model).__name__}")
    return CompiledNetwork(from_torch(model, example))
