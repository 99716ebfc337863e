"""torch.compile with its default back end, inductor."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.cpu_case import Array, Case
from benchmarks.cpu_peer import Implementation, returning
from benchmarks.cpu_peer_torch import NAMED, in_torch
from benchmarks.gpu_peers import FUSIBLE

_FUSIBLE = NAMED | {"lut": FUSIBLE["lut1"]}


class Inductor:
    """Functions specialised for the shapes of a case."""

    version = torch.__version__

    def __init__(self) -> None:
        torch.compile(lambda x: x + 1)(torch.zeros(4))

    def build(self, case: Case, inputs: list[Array]) -> Implementation | None:
        """Compiled by the first call."""
        torch._dynamo.reset()
        formula = in_torch(case, _FUSIBLE)
        function = torch.compile(lambda *tensors: formula(*tensors), dynamic=False)
        tensors = [torch.from_numpy(a) for a in inputs]

        @torch.no_grad()
        def call() -> Any:
            return function(*tensors)

        return returning(call, lambda result: result.numpy())


def peer() -> Inductor:
    """torch.compile, warm."""
    return Inductor()
