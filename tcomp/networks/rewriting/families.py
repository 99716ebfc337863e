"""What words of rules stand for: layers by a kernel, and views."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import product

from tcomp.networks.network import Definition
from tcomp.networks.rewriting.rules import Sample, Word
from tcomp.networks.texts import elements, layers


@cache
def convolutions() -> Mapping[str, Definition]:
    """All convolutions of images without a bias, by name."""
    made = {}
    for strided, padded, dilated in product((False, True), repeat=3):
        for groups in ("one", "depthwise", "grouped"):
            one = layers.conv2d(bias=False, strided=strided, padded=padded, dilated=dilated, groups=groups)
            made[one.name] = one
    return made


@cache
def linears() -> Mapping[str, Definition]:
    """Products by the transposed weight, without a bias, by name."""
    return {f"linear_{rank}d": layers.linear(rank, False) for rank in range(1, 6)}


def biased(layer: Definition) -> Definition:
    """The layer with a bias."""
    if layer.biased is not None:
        return layer.biased
    return layers.linear(int(layer.name.removeprefix("linear_")[0]), True)


def _samples(made: Mapping[str, Definition], kinds: Sequence[str], bias: bool) -> list[Sample]:
    found = []
    for kind in kinds:
        words = kind.split("_")
        numbers = {f"{letter}{axis}": k for letter, k, flag in (("S", 2, "strided"), ("P", 1, "padded"),
                   ("D", 2, "dilated")) for axis in "HW" if flag in words}  # fmt: skip
        numbers |= {"G": 2} if "grouped" in words else {}
        sizes = {"N": 1, "H": 4, "W": 4, "F": 4 if "grouped" in words else 2} if words[0] == "conv2d" else {}
        found.append(Sample(biased(made[kind]) if bias else made[kind], numbers, sizes))
    return found


def _word(made: Callable[[], Mapping[str, Definition]], kinds: Sequence[str], bias: bool) -> Word:
    @cache
    def known() -> Mapping[str, str]:
        every = (biased(one) if bias else one for one in made().values())
        return {one.name: one.text for one in every}

    return Word(
        lambda definition: known().get(definition.name) == definition.text,
        lambda: _samples(made(), kinds, bias),
    )


CONVOLUTION = _word(convolutions, ("conv2d_strided_padded", "conv2d_dilated_depthwise"), False)
CONVOLUTION_BIAS = _word(convolutions, ("conv2d_padded_depthwise", "conv2d_strided_grouped"), True)
LINEAR, LINEAR_BIAS = (_word(linears, ("linear_1d", "linear_3d"), bias) for bias in (False, True))


def _views(kind: str, *samples: Definition) -> Word:
    return Word(lambda definition: definition.view[:1] == (kind,), lambda: [Sample(one) for one in samples])


PERMUTE = _views("permute", elements.permute((0, 2, 1)), elements.permute((2, 0, 1)), elements.permute((1, 2, 0)))
FIRST_RESHAPE = _views("reshape", elements.reshape((2, 6), (3, 4)), elements.reshape((4, 3), (3, 4)))
SECOND_RESHAPE = _views("reshape", elements.reshape((3, 4), (2, 2, 3)), elements.reshape((3, 4), (12,)))


def one(definition: Definition) -> Word:
    """A word for a single def."""
    return Word(lambda other: other.name == definition.name and other.text == definition.text,
                lambda: [Sample(definition)])  # fmt: skip


def ranked(make: Callable[[int], Definition], ranks: Sequence[int], sample: int) -> Word:
    """A word for the defs of some ranks."""

    @cache
    def known() -> Mapping[str, str]:
        return {one.name: one.text for one in map(make, ranks)}

    return Word(lambda other: known().get(other.name) == other.text, lambda: [Sample(make(sample), axes=sample - 1)])


def permuted(first: Definition, second: Definition) -> Definition:
    """One permutation for two."""
    before, after = ([int(k) for k in one.view[1:]] for one in (first, second))
    return elements.permute([before[k] for k in after])


def _is_idle(definition: Definition) -> bool:
    order = definition.view[1:]
    return definition.view[:1] == ("permute",) and list(order) == sorted(int(k) for k in order)


def _keeps(definition: Definition) -> bool:
    """Whether a reshape gives what it takes."""
    before, to, after = definition.name.removeprefix("reshape_").partition("_to_")
    return definition.view == ("reshape",) and bool(to) and before == after


def is_nothing(definition: Definition) -> bool:
    """Whether a view gives what it takes."""
    return _is_idle(definition) or _keeps(definition)


IDLE_PERMUTE = Word(_is_idle, lambda: [Sample(elements.permute((0, 1, 2)), axes=3)])
IDLE_RESHAPE = Word(_keeps, lambda: [Sample(elements.reshape((2, 3), (2, 3)), axes=2)])
PRODUCT = one(layers.matmul((2, 2, 2, 2), (2, 2, 2, 2)))
SOFTMAX = one(layers.softmax(4, 3))
LAST_MEAN = ranked(lambda rank: elements.mean(rank, [rank - 1], True), range(2, 6), 2)
PLAIN_LINEAR = one(layers.linear(2, True))
