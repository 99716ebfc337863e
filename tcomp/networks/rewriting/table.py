"""The rewrites of networks: what is looked for, and what is written for it.

A rule stands in the order in which it is tried.  ``proving`` shows of each that both sides compute the same; add a row,
and the test that goes over the table proves it.
"""

from __future__ import annotations

from tcomp.networks.network import Definition
from tcomp.networks.rewriting import families
from tcomp.networks.rewriting.families import CONVOLUTION, CONVOLUTION_BIAS, LINEAR, LINEAR_BIAS
from tcomp.networks.rewriting.rules import Choice, Rule, Shapes, Word
from tcomp.networks.texts import elements, layers

_X = "float(I) X"

IDENTITIES = (
    Rule("times_one", f"{_X}, float y", "Y(i) = X(i) * y", "Y(i) = X(i)", when={"y": 1}),
    Rule("divided_by_one", f"{_X}, float y", "Y(i) = X(i) / y", "Y(i) = X(i)", when={"y": 1}),
    Rule("plus_zero", f"{_X}, float y", "Y(i) = X(i) + y", "Y(i) = X(i)", when={"y": 0}, reassociates=True),
    Rule("minus_zero", f"{_X}, float y", "Y(i) = X(i) - y", "Y(i) = X(i)", when={"y": 0}, reassociates=True),
    Rule("negated_twice", _X, "T(i) = -X(i)\nY(i) = -T(i)", "Y(i) = X(i)"),
    Rule("relu_of_relu", _X, "T(i) = relu(X(i))\nY(i) = relu(T(i))", "Y(i) = relu(X(i))"),
    Rule("abs_of_relu", _X, "T(i) = relu(X(i))\nY(i) = abs(T(i))", "Y(i) = relu(X(i))", reassociates=True),
    Rule("abs_of_negated", _X, "T(i) = -X(i)\nY(i) = abs(T(i))", "Y(i) = abs(X(i))"),
    Rule("relu_of_sigmoid", _X, "T(i) = sigmoid(X(i))\nY(i) = relu(T(i))", "Y(i) = sigmoid(X(i))"),
    Rule("relu6_of_relu", _X, "T(i) = relu(X(i))\nY(i) = clamp(T(i), 0, 6)", "Y(i) = clamp(X(i), 0, 6)"),
    Rule("relu_of_relu6", _X, "T(i) = clamp(X(i), 0, 6)\nY(i) = relu(T(i))", "Y(i) = clamp(X(i), 0, 6)"),
    Rule("two_scales", f"{_X}, float y, float z", "T(i) = X(i) * y\nY(i) = T(i) * z", "Y(i) = X(i) * (y * z)",
         reassociates=True),
    Rule("two_shifts", f"{_X}, float y, float z", "T(i) = X(i) + y\nY(i) = T(i) + z", "Y(i) = X(i) + (y + z)",
         reassociates=True),
)  # fmt: skip
"""Functions of elements that are nothing, or one."""

VIEWS = (
    Rule("permute_of_permute", _X, "T = $first(X)\nY = $second(T)", "Y = $both(X)",
         words={"first": families.PERMUTE, "second": families.PERMUTE},
         derived={"both": lambda choice, _: families.permuted(choice["first"], choice["second"])}),
    Rule("reshape_of_reshape", _X, "T = $first(X)\nY = $second(T)", "Y = $both(X)",
         words={"first": families.FIRST_RESHAPE, "second": families.SECOND_RESHAPE},
         derived={"both": lambda _, shapes: elements.reshape(shapes["X"], shapes["Y"])}),
    Rule("permute_of_nothing", _X, "Y = $one(X)", "Y(i) = X(i)", words={"one": families.IDLE_PERMUTE}),
    Rule("reshape_of_nothing", _X, "Y = $one(X)", "Y(i) = X(i)", words={"one": families.IDLE_RESHAPE}),
)  # fmt: skip
"""What moves elements, and moves them again or back."""

_HEADS = "float(B,H,M,E) Q, float(B,H,E,N) K, float(B,H,N,G) V"
_PARTS: dict[str, Word] = {"product": families.PRODUCT, "softmax": families.SOFTMAX}


def _attention(name: str, mask: str = "", scaled: str = "", chosen: bool | None = None) -> Rule:
    """softmax(Q K y + mask) V, where the mask has these axes and 1 for others, ``scaled`` by ``*`` or ``/`` or not.

    A ``chosen`` one says where a score is the number z instead.
    """
    score, lines = "S", ["S = $product(Q, K)"]
    if scaled:
        lines.append(f"T(b,h,m,n) = S(b,h,m,n) {scaled} y")
        score = "T"
    if mask:
        there = f"{score}(b,h,m,n)"
        values = {None: f"{there} + mask({mask})", True: f"mask({mask}) ? z : {there}",
                  False: f"mask({mask}) ? {there} : z"}  # fmt: skip
        lines.append(f"W(b,h,m,n) = {values[chosen]}")
        score = "W"
    lines += [f"P = $softmax({score})", "Y = $product(P, V)"]
    extents = mask.upper().replace("0", "1")
    factor = {"": "1.0", "*": "y", "/": "r"}[scaled]
    after = ["U = $turned(K)", *["r = 1.0 / y"] * (scaled == "/")]
    instead = "" if chosen is None else ", instead=z"
    after.append(f"Y = $attention(Q, U, V{', mask' if mask else ''}, scale={factor}{instead})")

    def attention(_: Choice, shapes: Shapes) -> Definition:
        lengths = (*shapes["Q"][:-1], shapes["K"][-1]) if mask else ()
        return layers.attention(4, False, shapes["mask"] if mask else None, lengths, chosen=chosen)

    parameters = [_HEADS, *["float y"] * (scaled != "")]
    if mask:
        parameters += [f"float({extents}) mask"] if chosen is None else ["float z", f"bool({extents}) mask"]
    return Rule(
        name, ", ".join(parameters), "\n".join(lines), "\n".join(after), words=_PARTS,
        derived={"turned": lambda *_: elements.permute((0, 1, 3, 2)), "attention": attention},
        numbers=frozenset([*["y"] * (scaled != ""), *["z"] * (chosen is not None)]), reassociates=True,
    )  # fmt: skip


MASKS = {"keys": "b,0,0,n", "all": "0,0,m,n", "each": "b,0,m,n", "heads": "0,h,m,n", "whole": "b,h,m,n"}
"""What has a mask of its own: the keys of a batch, each query, each of a batch, or of heads, or all of these."""

FORMS = (
    Rule("reciprocal_root", _X, "T(i) = sqrt(X(i))\nY(i) = 1.0 / T(i)", "Y(i) = rsqrt(X(i))", reassociates=True),
    Rule("silu", _X, "S(i) = sigmoid(X(i))\nY(i) = X(i) * S(i)", "Y(i) = X(i) * sigmoid(X(i))"),
    Rule("hardswish", f"{_X}, float y, float z", "S(i) = clamp(y * X(i) + z, 0, 1)\nY(i) = X(i) * S(i)",
         "Y(i) = X(i) * clamp(y * X(i) + z, 0, 1)"),
    Rule("hardswish_6", f"{_X}, float y, float z",
         "S(i) = X(i) + y\nT(i) = clamp(S(i), 0, 6)\nU(i) = X(i) * T(i)\nY(i) = U(i) / z",
         "Y(i) = X(i) * clamp(X(i) + y, 0, 6) / z"),
    Rule("gelu", f"{_X}, float y, float z",
         "S(i) = X(i) / y\nT(i) = erf(S(i))\nU(i) = T(i) + 1.0\nV(i) = X(i) * U(i)\nY(i) = V(i) * z",
         "Y(i) = X(i) * (erf(X(i) / y) + 1.0) * z"),
    Rule("gelu_halved_first", f"{_X}, float y, float z",
         "S(i) = X(i) / y\nT(i) = erf(S(i))\nU(i) = T(i) + 1.0\nV(i) = X(i) * z\nY(i) = V(i) * U(i)",
         "Y(i) = X(i) * z * (erf(X(i) / y) + 1.0)"),
    Rule("gelu_by_products", f"{_X}, float y, float z",
         "S(i) = X(i) * y\nT(i) = erf(S(i))\nU(i) = T(i) + 1.0\nV(i) = X(i) * z\nY(i) = V(i) * U(i)",
         "Y(i) = X(i) * z * (erf(X(i) * y) + 1.0)"),
    *(
        Rule(f"layer_norm_{square}", "float(I,K) X, float(K) g, float(K) e, float z",
             f"M = $mean(X)\nD(i,k) = X(i,k) - M(i,0)\nQ(i,k) = {body}\nV = $mean(Q)\nW(i,0) = V(i,0) + z\n"
             "R(i,0) = sqrt(W(i,0))\nN(i,k) = D(i,k) / R(i,0)\nP(i,k) = N(i,k) * g(k)\nY(i,k) = P(i,k) + e(k)",
             "Y = $norm(X, g, e, eps=z)",
             words={"mean": families.LAST_MEAN},
             derived={"norm": lambda _, shapes: layers.layer_norm(len(shapes["X"]), 1, True, True)},
             numbers=frozenset("z"), reassociates=True)
        for square, body in (("by_power", "pow(D(i,k), 2.0)"), ("by_product", "D(i,k) * D(i,k)"))
    ),
    _attention("attention", scaled="*"),
    _attention("attention_divided", scaled="/"),
    *(_attention(f"attention_masked_by_{what}", mask, "*") for what, mask in MASKS.items()),
    *(_attention(f"attention_divided_masked_by_{what}", MASKS[what], "/") for what in ("keys", "all", "each")),
    *(_attention(f"attention_plain_masked_by_{what}", MASKS[what]) for what in ("heads", "whole")),
    *(
        _attention(f"attention{form}_{word}_by_{what}", MASKS[what], scaled, chosen)
        for chosen, word in ((True, "hidden"), (False, "shown"))
        for form, scaled in (("", "*"), ("_divided", "/"), ("_plain", ""))
        for what in ("keys", "all", "each", "whole")
    ),
)  # fmt: skip
"""What exporters write as several operators though it is one."""


def _scaled(name: str, layer: Word, more: Word, where: str) -> tuple[Rule, ...]:
    """A layer whose results are scaled or shifted along its filters, by a layer with another kernel and bias."""
    known, kernel = frozenset("Zbs"), "L(f,j) = Z(f,j) * s(f)"
    out, alone = f"Y({where}) = T({where})", frozenset("Zs")
    biased = {"biased": lambda choice, _: families.biased(choice["layer"])}
    one, two = {"layer": layer}, {"layer": more}
    return (
        Rule(f"scale_into_{name}", "$layer, float($F) s", f"T = $layer(X, Z)\n{out} * s(f)",
             f"{kernel}\nY = $layer(X, L)", words=one, weights=alone, reassociates=True),
        Rule(f"scale_into_{name}_with_bias", "$layer, float($F) s", f"T = $layer(X, Z, b)\n{out} * s(f)",
             f"{kernel}\nd(f) = b(f) * s(f)\nY = $layer(X, L, d)", words=two, weights=known, reassociates=True),
        Rule(f"number_into_{name}", "$layer, float y", f"T = $layer(X, Z)\n{out} * y",
             "L(f,j) = Z(f,j) * y\nY = $layer(X, L)", words=one, weights=alone, numbers=frozenset("y"),
             reassociates=True),
        Rule(f"number_into_{name}_with_bias", "$layer, float y", f"T = $layer(X, Z, b)\n{out} * y",
             "L(f,j) = Z(f,j) * y\nd(f) = b(f) * y\nY = $layer(X, L, d)", words=two, weights=known,
             numbers=frozenset("y"), reassociates=True),
        Rule(f"division_into_{name}_with_bias", "$layer, float y", f"T = $layer(X, Z, b)\n{out} / y",
             "L(f,j) = Z(f,j) / y\nd(f) = b(f) / y\nY = $layer(X, L, d)", words=two, weights=known,
             numbers=frozenset("y"), reassociates=True),
        Rule(f"shift_into_{name}", "$layer, float($F) s", f"T = $layer(X, Z)\n{out} + s(f)",
             "d(f) = s(f)\nY = $biased(X, Z, d)", words=one, derived=biased, weights=alone),
        Rule(f"shift_into_{name}_with_bias", "$layer, float($F) s", f"T = $layer(X, Z, b)\n{out} + s(f)",
             "d(f) = b(f) + s(f)\nY = $layer(X, Z, d)", words=two, weights=known, reassociates=True),
    )  # fmt: skip


LAYERS = (
    *_scaled("convolution", CONVOLUTION, CONVOLUTION_BIAS, "n,f,i"),
    *_scaled("linear", LINEAR, LINEAR_BIAS, "i,f"),
    Rule("scale_before_linear", "$layer, float(K) s", "T(i,k) = X(i,k) * s(k)\nY = $layer(T, Z)",
         "L(f,k) = Z(f,k) * s(k)\nY = $layer(X, L)", words={"layer": LINEAR}, weights=frozenset("Zs"),
         reassociates=True),
    Rule("scale_before_linear_with_bias", "$layer, float(K) s", "T(i,k) = X(i,k) * s(k)\nY = $layer(T, Z, b)",
         "L(f,k) = Z(f,k) * s(k)\nY = $layer(X, L, b)", words={"layer": LINEAR_BIAS}, weights=frozenset("Zs"),
         reassociates=True),
    Rule("norm_into_linear", "$layer, float($F) m, float($F) v, float($F) g, float($F) e, float z",
         "T = $layer(X, Z, b)\nY = $norm(T, m, v, g, e, eps=z)",
         "q(f) = g(f) * rsqrt(v(f) + z)\nL(f,j) = Z(f,j) * q(f)\nd(f) = (b(f) - m(f)) * q(f) + e(f)\n"
         "Y = $layer(X, L, d)",
         words={"layer": families.PLAIN_LINEAR, "norm": families.one(layers.batch_norm(2, True, True))},
         weights=frozenset("Zbmvge"), numbers=frozenset("z"), reassociates=True),
)  # fmt: skip
"""What is done with the results of a layer along its filters, done with its weights."""

RULES = (*IDENTITIES, *VIEWS, *FORMS, *LAYERS)
