"""Pages of the public functions and classes, which Sphinx fills from their docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import tcomp
import tcomp.networks
import tcomp.pictures.canvas
import tcomp.schedules.choices
import tcomp.torch

PARTS: dict[str, tuple[str, ModuleType, Sequence[str]]] = {
    "reference/tcomp.md": (
        "The package `tcomp`",
        tcomp,
        [n for n in tcomp.__all__ if n not in ("__version__", "networks")],
    ),
    "reference/schedules.md": ("Schedules", tcomp.schedules, tcomp.schedules.__all__),
    "reference/choices.md": ("Choices of a schedule", tcomp.schedules.choices, ("Choice", "Measured")),
    "reference/pictures.md": ("Pictures", tcomp.pictures.canvas, ("Picture",)),
    "reference/torch.md": ("PyTorch: `tcomp.torch`", tcomp.torch, tcomp.torch.__all__),
    "reference/networks.md": ("Networks: `tcomp.networks`", tcomp.networks, tcomp.networks.__all__),
}
"""The pages: title, module, and the public names of it."""

_OF_THE_ROOMS = {
    "Operation": ("beside", "run", "call_again", "run_again", "quick_run", "remember"),
    "Kernel": ("bind", "link", "kept"),
}
"""Methods that other rooms of tcomp call, and nobody else."""

_INTRODUCTION = "Made from the docstrings of what `{module}` offers."


def pages() -> Iterator[tuple[str, str]]:
    """Place and text of each page."""
    for place, (title, module, names) in PARTS.items():
        parts = [f"# {title}\n\n{_INTRODUCTION.format(module=module.__name__)}\n"]
        for name in sorted(names, key=str.lower):
            parts.append(f"## {name}\n\n" + _directive(module, name))
        yield place, "\n".join(parts)


def _directive(module: ModuleType, name: str) -> str:
    """What has Sphinx write about one name."""
    found: Any = getattr(module, name)
    kind, options = "autodata", [":no-value:"]
    if inspect.isclass(found):
        kind, options = "autoclass", [":members:", ":show-inheritance:"]
        if issubclass(found, Exception):
            kind = "autoexception"
        if "__call__" in vars(found):
            options.append(":special-members: __call__")
        if found is tcomp.Operation:
            options.append(":inherited-members:")
        if name in _OF_THE_ROOMS:
            options.append(f":exclude-members: {', '.join(_OF_THE_ROOMS[name])}")
    elif callable(found):
        kind, options = "autofunction", []
    lines = [f".. {kind}:: {module.__name__}.{name}", *(f"   {option}" for option in options)]
    return "\n".join(["```{eval-rst}", *lines, "```", ""])
