"""Derivatives of derivatives of blocks of steps, whose texts have many statements."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import tcomp.torch as tct

_LSTM = Path(__file__).parents[2] / "examples" / "recurrences" / "lstm.tc"


@pytest.mark.long
def test_hessian_of_a_layer_with_memory() -> None:
    lstm = tct.define(_LSTM.read_text()).lstm
    torch.manual_seed(0)
    X, W, R = torch.randn(3, 2, 2), torch.randn(4, 2, 2), torch.randn(4, 2, 2) / 2
    bias, h0, c0 = torch.randn(4, 2), torch.randn(2, 2), torch.randn(2, 2)

    def ours(R: torch.Tensor) -> torch.Tensor:
        return lstm(X, W, R, bias, h0, c0)[0].pow(2).sum()

    def theirs(R: torch.Tensor) -> torch.Tensor:
        h, c, total = h0, c0, torch.zeros(())
        for x in X:
            gates = torch.einsum("be,gde->gbd", x, W) + torch.einsum("bk,gdk->gbd", h, R) + bias[:, None]
            c = torch.sigmoid(gates[1]) * c + torch.sigmoid(gates[0]) * torch.tanh(gates[2])
            h = torch.sigmoid(gates[3]) * torch.tanh(c)
            total = total + h.pow(2).sum()
        return total

    torch.testing.assert_close(torch.func.hessian(ours)(R), torch.func.hessian(theirs)(R))
