"""Steps of sums that a condition on indices hides, and what only these need, are left out on a CPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tcomp as tc
from tcomp.driver import Compilation, lower
from tcomp.grammar import define
from tcomp.model.terms.sizes import Sizes
from tests.targets import CPU

ATTENTION = """def attention(float(L,D) Q, float(S,D) K, float(S,E) V) -> (O) {
    s(i,j) +=! Q(i,d) * K(j,d)
    m(i) max=! j <= i ? s(i,j) : -3.4e38
    p(i,j) = j <= i ? exp(s(i,j) - m(i)) : 0.0
    z(i) +=! p(i,j)
    O(i,e) +=! p(i,j) * V(j,e)
    O(i,e) = O(i,e) / z(i)
}"""
HEAD = "def f(float(L,D) Q, float(S,D) K, float(S,E) V) -> (O) {\n s(i,j) +=! Q(i,d) * K(j,d)\n"
WEIGHTS = HEAD + "p(i,j) = j <= i ? exp(s(i,j)) : 0.0\n O(i,e) +=! p(i,j) * V(j,e) }"
SIZES = {"L": 19, "S": 26, "D": 3, "E": 5}


def compiled(text: str, name: str = "f", **sizes: int) -> Compilation:
    return lower(define(text)[name], Sizes(SIZES | sizes), tc.MappingOptions(), CPU, True, None)


def counts(made: Compilation) -> dict[str, int]:
    """Instances of updates and of what is computed for each element, by statement."""
    return {s.name: s.domain.count_val().to_python() for s in made.plan.scop.statements if s.kind != "finish"}


def is_seen(i: np.ndarray, j: np.ndarray) -> np.ndarray:
    return j <= i


def test_a_gradient_takes_the_steps_that_are_seen() -> None:
    """Scores and the adjoints of weights are not computed for others either."""
    gradient = tc.define(ATTENTION).attention.gradient()
    made = compiled(gradient.text, "attention_grad")
    seen = sum(min(i + 1, 26) for i in range(19))
    found = counts(made)
    products = {s.name: s.extents for s in made.plan.scop.statements if s.kind == "update" and len(s.indices) == 3}
    assert len(products) == 5
    assert sorted(found[name] for name in products) == [3 * seen, 3 * seen, 3 * seen, 5 * seen, 5 * seen]
    assert sum(count == seen for count in found.values()) >= 4, "what begins and what makes weights and their adjoints"


@pytest.mark.parametrize(
    ("condition", "seen"),
    [
        ("j <= i", is_seen),
        ("(j <= i && j + 3 > i)", lambda i, j: (j <= i) & (j + 3 > i)),
    ],
)
def test_short_rows_take_the_steps_that_are_seen(
    condition: str, seen: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> None:
    text = WEIGHTS.replace("j <= i", condition)
    count = np.broadcast_to(seen(np.arange(19)[:, None], np.arange(26)), (19, 26)).sum()
    assert counts(compiled(text))["S2"] == 5 * count
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape).astype(np.float32) for shape in ((19, 3), (26, 3), (26, 5))]
    operation = tc.define(text).f
    np.testing.assert_allclose(operation(*given), operation.reference(*given), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        WEIGHTS.replace("j <= i", "(j <= i || j > i + 3)"),
        WEIGHTS.replace("j <= i", "j % 2 == 0"),
        WEIGHTS.replace("j <= i", "s(i,j) > 0.0"),
        WEIGHTS.replace(": 0.0", ": 7.0"),
        WEIGHTS.replace("j <= i", "j > i + 99"),
        WEIGHTS.replace("p(i,j) * V", "(p(i,j) + 1.0) * V"),
        WEIGHTS.replace("p(i,j) * V(j,e)", "V(j,e) / (p(i,j) + 1.0)"),
        WEIGHTS.replace("O(i,e) +=!", "p(i,j) = p(i,j) + 1.0\n O(i,e) +=!"),
        WEIGHTS.replace("exp(s(i,j))", "s(i,j)"),
    ],
    ids=[
        "two parts", "quotients", "data", "not 0", "nothing is seen", "a sum", "a divisor", "overwritten",
        "no exponential",
    ],
)  # fmt: skip
def test_other_sums_stay_whole(text: str) -> None:
    """Loops over some would need more than bounds, others add something, or what is 0 may meet what is infinite."""
    assert max(counts(compiled(text)).values()) == 19 * 26 * 5


def test_what_others_read_stays_whole() -> None:
    """Weights that are handed out are 0 where they are hidden; what they read elsewhere is not needed there."""
    text = WEIGHTS.replace("-> (O)", "-> (O, p)")
    found = counts(compiled(text))
    assert (found["S0"], found["S1"], found["S2"]) == (3 * 190, 19 * 26, 5 * 190)
    text = WEIGHTS.replace("-> (O)", "-> (O, m)").replace("O(i,e) +=!", "m(i) max=! s(i,j)\n O(i,e) +=!")
    found = counts(compiled(text))
    assert (found["S0"], found["S1"], found["S3"]) == (19 * 26 * 3, 190, 5 * 190)


@pytest.mark.parametrize(
    "steps",
    ["q(i,j) = p(i,j) / z(i)\n O(i,e) +=! q(i,j) * V(j,e)", "O(i,e) +=! p(i,j) / z(i) * V(j,e)"],
    ids=["weights", "terms"],
)
def test_a_row_of_which_nothing_is_seen_is_divided(steps: str) -> None:
    """Its weights are divided by a sum of nothing: NaN, here and in gradients that have that sum from outside."""
    text = HEAD + "p(i,j) = j < i ? exp(s(i,j)) : 0.0\n z(i) +=! p(i,j)\n"
    operation = tc.define(text + steps + "}").f
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape).astype(np.float32) for shape in ((6, 3), (7, 3), (7, 5))]
    found = operation(*given)
    assert np.isnan(found[0]).all()
    np.testing.assert_allclose(found, operation.reference(*given), rtol=1e-5, atol=1e-5)
    assert np.isnan(operation.gradient("V")(*given, np.ones((6, 5), np.float32))).all()


@pytest.mark.parametrize(
    ("condition", "divisor", "seen"),
    [("j <= i", "z(i)", 190), ("j <= i", "2.0", 190), ("j < i", "z(i)", 19 * 26), ("j <= i", "float(i - j)", 19 * 26)],
)
def test_rows_of_which_something_is_seen_are_divided_there(condition: str, divisor: str, seen: int) -> None:
    text = HEAD + f"p(i,j) = {condition} ? exp(s(i,j)) : 0.0\n z(i) +=! p(i,j)\n q(i,j) = p(i,j) / {divisor}\n"
    assert counts(compiled(text + "O(i,e) +=! q(i,j) * V(j,e) }"))["S4"] == 5 * seen
