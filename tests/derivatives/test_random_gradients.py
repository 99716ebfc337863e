"""Derivatives of a few random programs, always the same; ``tcomp fuzz --gradients`` tries as many as one likes."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tcomp as tc
from tcomp import cli
from tcomp.derivatives.text import partials
from tcomp.fuzzing import gradients
from tcomp.values.operators import INTRINSICS

pytestmark = pytest.mark.sweep(3)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed: int) -> None:
    tally = gradients.Tally()
    for own in range(seed * 5, seed * 5 + 2):
        text, verdict = gradients.try_seed(own)
        tally.add(own, text, verdict)
    assert tally.failures == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("def f(double(N) X) -> (Y) { Y(n) = sin(X(n)) * X(n) }", "passed"),
        ("def f(double(N) X) -> (Y) { Y(n) = X(n) / (X(n) - X(n)) }", "not finite"),
    ],
)
def test_verdicts(text: str, kind: str) -> None:
    assert gradients.check(tc.define(text).f, {"N": 4}, 0).kind == kind


def test_a_wrong_derivative_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of sin(x) by a function that takes cos for its negative."""
    f = tc.define("def f(double(N) X) -> (Y) { Y(n) = sin(X(n)) }").f
    right = f.gradient(save=())
    wrong = tc.define(right.text.replace("cos", "-cos")).f_grad
    object.__setattr__(right, "backward", wrong)
    monkeypatch.setattr(tc.Operation, "gradient", lambda *_, **__: right)
    verdict = gradients.check(f, {"N": 4}, 0)
    assert verdict.kind == "failed" and "<J^T w, v>" in verdict.detail


def test_both_modes_wrong_are_found_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The derivative of relu at what it leaves as it is, half as large in both modes; no difference is asked for."""
    pytest.importorskip("torch")
    f = tc.define("def f(double(N) X) -> (Y) { Y(n) = relu(X(n)) }").f
    wrong = replace(INTRINSICS["relu"], partials=("y > 0.0 ? 0.5 : 0.0",))
    monkeypatch.setitem(INTRINSICS, "relu", wrong)
    partials.cache_clear()
    monkeypatch.setattr(gradients, "is_smooth", lambda _: False)
    try:
        verdict = gradients.check(f, {"N": 4}, 0)
    finally:
        partials.cache_clear()
    assert verdict.kind == "failed" and "by torch" in verdict.detail


@pytest.mark.parametrize(
    "text",
    [
        "def f(double(N) X) -> (Y) { Y *=! X(n) }",
        "def f(double(N) X) -> (Y) { Y(n) = n where n in 0:N }",
        "def f(double(N) X, int32(N) I) -> (Y) { Y(n) = X(n) > 0.5 ? 1.0 : 0.0 }",
    ],
)
def test_programs_that_nothing_moves_are_not_drawn(text: str) -> None:
    assert gradients.moves(tc.define(text).f.function) == ("*=!" in text)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fuzz", "--gradients", "--programs", "12", "--seconds", "60"]) == 0
    assert "passed" in capsys.readouterr().out
