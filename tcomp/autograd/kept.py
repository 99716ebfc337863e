"""Keys of compiled graphs that torch keeps on disk: they tell by which defs, and by which tcomp, a graph was made.

Torch knows an operator in a graph by its name.  ``torch.ops.mylib.softmax`` is one name for any text, and a graph of it
calls what was derived of that text: ``tcomp::softmax_grad_DIGEST``, or the backward pass with names of what is saved.
A process with another text, or with a tcomp that derives another one, must not find that graph.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from tcomp.autograd.registration import Registration
from tcomp.runtime.specialisation import build_identity
from tcomp.version import __version__


class Tag:
    """What tcomp adds to ``torch.compiler.config.cache_key_tag``, behind what somebody else wrote there.

    It does not depend on the order of defs.
    """

    def __init__(self) -> None:
        self._sum = 0
        self._text = ""

    def add(self, *facts: object) -> None:
        """Let keys depend on some facts, whose ``repr`` is the same in all processes, and on this tcomp in any case."""
        for fact in facts:
            self._sum += int.from_bytes(hashlib.sha256(repr(fact).encode()).digest()[:16], "big")
        config: Any = getattr(torch.compiler, "config", None)
        if not hasattr(config, "cache_key_tag"):
            return  # an older torch has no such tag
        others = config.cache_key_tag.replace(self._text, "") if self._text else config.cache_key_tag
        digest = hashlib.sha256(repr((__version__, build_identity(), self._sum)).encode()).hexdigest()[:16]
        self._text = f"tcomp:{digest}"
        config.cache_key_tag = others + self._text


def facts_of(definition: str, settings: Registration) -> tuple[object, ...]:
    """What graphs depend on beside the name of an operator; an own backward function by its name."""
    own = settings.backward
    if own is not None:
        own = str(own.function.definition) if hasattr(own, "function") else getattr(own, "__qualname__", type(own))
    return definition, own, settings.differentiable, settings.autocast, settings.save, settings.ties
