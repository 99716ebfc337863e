"""Rules of rewriting: each is proved, wrong ones are refuted, and networks compute the same after them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.networks import Call, Network, Value
from tcomp.networks.lowering.rebuilding import Parts
from tcomp.networks.rewriting.applying import rewrite
from tcomp.networks.rewriting.proving import pairs, prove
from tcomp.networks.rewriting.rules import Rule
from tcomp.networks.rewriting.table import RULES, VIEWS
from tcomp.networks.texts import elements

torch = pytest.importorskip("torch")
nn = torch.nn
ROWS = {rule.name: rule for rule in RULES}


def test_names_are_told_apart() -> None:
    assert len(ROWS) == len(RULES)
    assert "where y = 1" in str(ROWS["times_one"]) and "rounded otherwise" in str(ROWS["two_scales"])


@pytest.mark.parametrize("name", ROWS)
def test_a_rule_holds(name: str) -> None:
    """Exactly, by proof, and in floats for numbers at random."""
    rule = ROWS[name]
    proof = prove(rule)
    assert proof.instances and (proof.how == "moves") == (name.startswith(("permute", "reshape")))
    pair, random = pairs(rule)[-1], np.random.default_rng(1)
    before, after = (tc.define(text)[side] for text, side in ((pair.before, "before"), (pair.after, "after")))
    given = []
    for tensor, shape in zip(before.function.inputs, pair.shapes, strict=True):
        given.append(np.float32(rule.when.get(tensor.name, 0)) if tensor.name in rule.when
                     else random.random(shape) < 0.5 if tensor.dtype.name == "bool"
                     else random.uniform(0.5, 2, shape).astype("f4"))  # fmt: skip
    np.testing.assert_allclose(after.reference(*given), before.reference(*given), rtol=1e-5, atol=1e-6)
    if not rule.reassociates:
        for given in specials(rule, pair.shapes, [t.name for t in before.function.inputs]):
            with np.errstate(all="ignore"):
                one, two = (np.asarray(side.reference(*given)) for side in (before, after))
            np.testing.assert_allclose(two, one, rtol=1e-6)  # the interpreter rounds what is stored
            assert ((np.signbit(one) == np.signbit(two)) | np.isnan(one)).all(), (given, one, two)


def specials(rule: Rule, shapes: Any, names: list[str]) -> Any:
    """Arguments with zeros of both signs, infinities and NaN; zeros of both signs for what is 0, too."""
    random = np.random.default_rng(2)
    numbers = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.5, 7.0], np.float32)
    for sign in (1, -1):
        for _ in range(5):
            yield [
                np.float32(rule.when[n] or sign * 0.0) if n in rule.when else random.choice(numbers, shape)
                for n, shape in zip(names, shapes, strict=True)
            ]


WRONG = {
    "the bias is not scaled": replace(ROWS["scale_into_convolution_with_bias"],
        after="L(f,j) = Z(f,j) * s(f)\nd(f) = b(f)\nY = $layer(X, L, d)"),
    "another function": replace(ROWS["silu"], after="Y(i) = X(i) * tanh(X(i))"),
    "a negative argument": replace(ROWS["abs_of_relu"], after="Y(i) = X(i)"),
    "the other order": replace(ROWS["permute_of_permute"],
        derived={"both": lambda choice, _: choice["first"]}),
    "a factor too much": replace(ROWS["attention"], after=ROWS["attention"].after.replace("scale=y", "scale=1")),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_rule_is_refuted(what: str) -> None:
    with pytest.raises(tc.NetworkError, match=r"the two sides of the rule .* differ"):
        prove(WRONG[what])


class Written(nn.Module):  # type: ignore[misc]
    """What exporters write as many operators, and what does nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.l, self.norm, self.c = nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Conv2d(3, 4, 3, padding=1)
        self.k = nn.Linear(16, 16, bias=False)
        self.channels, self.q = nn.Parameter(torch.rand(4, 1, 1)), nn.Parameter(torch.rand(16))

    def forward(self, x: Any, y: Any) -> Any:
        a = torch.neg(torch.neg(self.norm(self.l(x)) * 0.5))
        b = self.k(a * self.q)
        b = b * torch.sigmoid(b)
        c = torch.relu(torch.relu(self.c(y) * self.channels + self.channels)) * 1.0
        q = a.view(4, 1, 8, 2).permute(0, 2, 1, 3).permute(0, 2, 1, 3)
        k = b.view(4, 1, 8, 2)
        mixed = torch.softmax(q @ k.transpose(-1, -2) / 4, -1) @ (k + k * k)
        d = b - b.mean(-1, keepdim=True)
        normed = d / torch.sqrt((d * d).mean(-1, keepdim=True) + 1e-5) * self.q + self.q
        return c, mixed, b * ((b / 1.4142135).erf() + 1) * 0.5, normed


@pytest.fixture(scope="module")
def network() -> tc.networks.Network:
    torch.manual_seed(0)
    module = Written().eval()
    module.norm.running_var.uniform_(0.5, 2)
    return tc.networks.from_torch(module, X)


X = (torch.randn(4, 16, generator=torch.Generator().manual_seed(1)), torch.rand(1, 3, 5, 6))


def test_networks_compute_the_same_in_fewer_calls(network: tc.networks.Network) -> None:
    net = tc.compile_network(network)
    made = [call.function for call in net.stages["rewrite"].calls]
    assert made.count("linear_2d") == 1 and {"silu_2d", "attention_4d", "gelu_2d", "layer_norm_2d"} <= {*made}
    assert len(made) == 12 < len(network.calls)
    plain, arrays = tc.compile_network(network, options={"rewrite": False}), [x.numpy() for x in X]
    for expected, found, exact in zip(plain(*X), net(*X), net.stages["rewrite"].reference(*arrays), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(exact, expected, rtol=1e-4, atol=1e-5)
    assert len(net.steps) < len(plain.steps)
    saved = sum(one.bytes for one in net.rewrites if one.rule == "silu")
    assert f"rewritten by silu: 1 times, {saved:,} bytes less" in net.explain()


def test_rules_are_left_out(network: tc.networks.Network) -> None:
    _, every = rewrite(network)
    _, without = rewrite(network, leave={"gelu"})
    assert {one.rule for one in every} - {one.rule for one in without} == {"gelu"}
    _, exact = rewrite(network, exact=True)
    assert {"silu", "gelu", "relu_of_relu"} <= {one.rule for one in exact}
    assert not any(ROWS[one.rule].reassociates for one in exact)
    net = tc.compile_network(nn.SiLU().eval(), X[0], options={"leave_rules": "silu", "exact": True})
    assert net.options.exact and net.options.leave_rules == {"silu"}
    with pytest.raises(tc.NetworkError, match="nothing is no rule of rewriting"):
        tc.compile_network(network, options={"leave_rules": ["nothing"]})


class Shared(nn.Module):  # type: ignore[misc]
    """What a rule would take, though something else reads it, or it is an output."""

    def forward(self, x: Any) -> Any:
        a = torch.relu(x)
        return torch.relu(a) + a, torch.neg(torch.neg(x)), x * 1.0


def test_what_others_read_stays() -> None:
    x = X[0]
    network = tc.networks.from_torch(Shared().eval(), x)
    after, made = rewrite(network)
    assert [one.rule for one in made] == []
    for found, expected in zip(after.reference(x.numpy()), Shared()(x), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_laws_of_functions_are_not_assumed() -> None:
    rule = Rule("tanh_of_negated", "float(I) X", "T(i) = -X(i)\nY(i) = tanh(T(i))", "Y(i) = -tanh(X(i))")
    with pytest.raises(tc.NetworkError, match="differ"):
        prove(rule)
    assert prove(Rule("doubled", "float(I) X", "Y(i) = X(i) + X(i)", "Y(i) = 2.0 * X(i)")).how == "algebra"


class Twice(nn.Module):  # type: ignore[misc]
    """Two outputs that are one value, and an output that is the input."""

    def forward(self, x: Any) -> Any:
        q = torch.tanh(x)
        return q * 1.0, q + 0.0, torch.neg(torch.neg(x)) * 1.0


def test_outputs_that_are_one_value_stay_two() -> None:
    """Rules applied at once gave one value two names, and an output was lost."""
    network = tc.networks.from_torch(Twice().eval(), X[0])
    found = rewrite(network)[0].reference(X[0].numpy())
    for mine, theirs in zip(found, Twice()(X[0]), strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("others", [False, True])
def test_turns_of_turns_are_one_or_none(others: bool) -> None:
    """Also where something else reads what is turned first."""
    there, back, negated = elements.permute((0, 3, 1, 2)), elements.permute((0, 2, 3, 1)), elements.unary("neg", 4)
    shapes = {"x": (1, 2, 3, 4), "a": (1, 4, 2, 3), "b": (1, 2, 3, 4), "c": (1, 2, 3, 4), "d": (1, 3, 4, 2)}
    roles = {"x": "input", "a": "temporary", "b": "temporary", "c": "output", "d": "output"}
    calls = [(there, "x", "a"), (back, "a", "b"), (negated, "b", "c"), (there, "a", "d")]
    if others:
        shapes["e"], roles["e"] = (1, 4, 2, 3), "output"
        calls.append((negated, "a", "e"))
    values = tuple(Value(name, "float32", shapes[name], roles[name]) for name in shapes)
    made = tuple(Call(d.name, (given,), (), (result,)) for d, given, result in calls)
    network = Network("turns", values, made, {d.name: d for d, _, _ in calls}).checked()
    shorter, _ = rewrite(network, rules=VIEWS)
    assert [(call.function, call.arguments) for call in shorter.calls if call.results[0] in "cd"] == [
        ("neg_4d", ("x",)),
        ("permute_0312", ("a",)) if others else ("permute_0231", ("x",)),
    ]
    assert any(call.results == ("a",) for call in shorter.calls) == others
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    for one, other in zip(network.reference(x), shorter.reference(x), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "forward",
    [lambda x: (x * 1e30) * 1e30, lambda x: nn.functional.linear(x, torch.eye(4), torch.ones(4)) / 0.0],
    ids=["scales", "weights"],
)
def test_finite_numbers_do_not_become_infinite(forward: Any) -> None:
    class Module(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return forward(x)

    x = torch.tensor([[0.0, -1.0, 2.0, 0.0]])
    network = tc.networks.from_torch(Module().eval(), x)
    found = rewrite(network)[0].reference(x.numpy())
    np.testing.assert_array_equal(found, Module()(x).numpy())


def test_an_output_that_nothing_makes_is_an_error() -> None:
    parts = Parts(tc.networks.from_torch(nn.Tanh().eval(), X[0]))
    with pytest.raises(tc.NetworkError, match="no call makes the output"):
        parts.network()


class Masked(nn.Module):  # type: ignore[misc]
    """Attention as it is written by hand, with masks of all kinds."""

    def forward(self, q: Any, keys: Any, each: Any, heads: Any) -> Any:
        scores = q @ q.transpose(-1, -2)
        causal = torch.full((5, 5), -1e9).triu(1)
        found = [scores * 0.5 + keys, scores / 2.0 + each, scores * 0.5 + causal, scores + heads, scores / 2.0 + keys]
        return tuple(torch.softmax(one, -1) @ q for one in found)


def test_attention_with_a_mask_is_seen() -> None:
    rng = torch.Generator().manual_seed(2)
    given = tuple(torch.randn(shape, generator=rng) for shape in ((2, 3, 5, 4), (2, 1, 1, 5), (2, 1, 5, 5), (3, 5, 5)))
    network = tc.networks.from_torch(Masked().eval(), given)
    made, done = rewrite(network)
    kinds = ["masked_by_keys", "divided_masked_by_each", "masked_by_all", "plain_masked_by_heads"]
    kinds.append("divided_masked_by_keys")
    assert {one.rule for one in done if one.rule.startswith("att")} == {f"attention_{kind}" for kind in kinds}
    assert not any(call.function.startswith("softmax") for call in made.calls)
    for mine, right in zip(made.reference(*given), Masked()(*given), strict=True):
        np.testing.assert_allclose(mine, right, rtol=1e-5, atol=1e-6)


class Hidden(nn.Module):  # type: ignore[misc]
    """Attention as it is written by hand, where a condition takes a number instead of a score."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.tril(torch.ones(5, 5)).view(1, 1, 5, 5))

    def forward(self, q: Any, keys: Any, each: Any) -> Any:
        scores = q @ q.transpose(-1, -2)
        later = torch.ones(5, 5, dtype=torch.bool).triu(1)
        least = torch.full([], torch.finfo(q.dtype).min)
        found = [
            (scores * 0.5).masked_fill(self.seen[:, :, :5, :5] == 0, float("-inf")),
            torch.where(self.seen.bool(), scores / 2.0, least),
            (scores / 2.0).masked_fill(keys == 0, -1e9),
            scores.masked_fill(each, -1e4),
            (scores * 0.5).masked_fill(later, float("-inf")),
        ]
        return tuple(torch.softmax(one, -1) @ q for one in found)


def test_attention_that_a_condition_hides_is_seen() -> None:
    rng = torch.Generator().manual_seed(3)
    q = torch.randn((2, 3, 5, 4), generator=rng)
    keys, each = (torch.rand(shape, generator=rng) < 0.5 for shape in ((2, 1, 1, 5), (2, 1, 5, 5)))
    given = (q, keys.to(torch.int32), each)
    network = tc.networks.from_torch(Hidden().eval(), given)
    made, done = rewrite(network)
    kinds = ["hidden_by_all", "divided_shown_by_all", "divided_hidden_by_keys", "plain_hidden_by_each"]
    assert {one.rule for one in done if one.rule.startswith("att")} == {f"attention_{kind}" for kind in kinds}
    assert not any(call.function.startswith("softmax") for call in made.calls)
    for mine, right in zip(made.reference(*given), Hidden()(*given), strict=True):
        np.testing.assert_allclose(mine, right, rtol=1e-5, atol=1e-6)
