from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tcomp as tc
from tcomp.backends.c.target import CpuBackend
from tcomp.backends.cuda.target import CudaBackend
from tcomp.driver import lower
from tcomp.errors import TcompError
from tcomp.grammar import define
from tcomp.mapping.machines.gpu import gpu_of
from tcomp.mapping.options.declarations import BlockShape, Choice, Flag, Integer, Integers, OfParts, Option, Ratio
from tcomp.mapping.options.effects import matters, without_effect
from tcomp.mapping.options.options import NAMED, OPTIONS, MappingOptions
from tcomp.model.terms.sizes import Sizes
from tests.targets import CPU

pytestmark = pytest.mark.sweep(3)

PAGE = Path(__file__).parents[2] / "docs" / "options.md"

HEAD = "| option | default | what it is | where it matters |\n|---|---|---|---|\n"


def values(option: Option) -> st.SearchStrategy[object]:
    """Legal values of an option, from its declaration alone."""
    match option.kind:
        case Flag():
            found: st.SearchStrategy[object] = st.booleans()
        case Choice(names=names):
            found = st.sampled_from(names)
        case Integer(least=least):
            found = st.integers(least, 2**40)
        case Ratio(least=least):
            found = st.floats(least, allow_nan=False) | st.integers(least, 2**2000)
        case Integers(least=least, fewest=fewest, longest=longest):
            found = st.lists(st.integers(least, 2**40), min_size=fewest, max_size=7 if longest is None else longest)
        case OfParts():
            found = st.just({})
        case BlockShape(most=most):
            found = st.lists(st.integers(1, 10), min_size=1, max_size=len(most))
    return found | st.none() if option.default is None else found


EVERY_OPTION = st.fixed_dictionaries({}, optional={name: values(option) for name, option in OPTIONS.items()}).map(
    lambda chosen: MappingOptions(**chosen)  # type: ignore[arg-type]
)


class TestDeclarations:
    def test_every_field_is_declared_and_its_default_is_legal(self) -> None:
        assert list(OPTIONS) == [field.name for field in fields(MappingOptions)]
        for name, option in OPTIONS.items():
            assert option.check(name, option.default) == option.default == getattr(MappingOptions(), name)
            assert option.help

    def test_conditions_are_on_values_that_there_are(self) -> None:
        for option in OPTIONS.values():
            for condition in option.when:
                given = OPTIONS[condition.option]
                assert given.kind.choices is not None
                assert set(condition.values) < {*given.kind.choices, given.default}

    @pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option.method])
    def test_a_method_sets_its_option_and_no_other(self, name: str) -> None:
        example = {Flag: False, Choice: "min", Integer: 3}.get(type(OPTIONS[name].kind), (4, 2))
        arguments = example if isinstance(example, tuple) else (example,)
        changed = getattr(MappingOptions(), OPTIONS[name].method)(*arguments)
        assert changed == replace(MappingOptions(), **{name: example})  # type: ignore[arg-type]
        assert changed != MappingOptions()

    def test_choices_are_listed_where_there_are_few(self) -> None:
        assert OPTIONS["parallel"].kind.choices == (True, False)
        assert OPTIONS["fusion_strategy"].kind.choices == ("max", "preserve3coincident", "min")
        assert OPTIONS["unroll"].kind.choices is None


class TestBadValues:
    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("tile_sizes", 32, "tile_sizes is 32; it must be a list of integers of at least 0"),
            ("tile_sizes", (32, -1), "tile_sizes is (32, -1); it must be a list of integers of at least 0"),
            ("tile_sizes", (32, True), "tile_sizes is (32, True); it must be a list of integers of at least 0"),
            (
                "tile_sizes",
                (np.int64(-3),),
                "tile_sizes is (np.int64(-3),); it must be a list of integers of at least 0",
            ),
            ("fusion_strategy", "most", "it must be one of max, preserve3coincident, min"),
            ("fusion_strategy", None, "it must be one of max, preserve3coincident, min"),
            ("fusion_strategy", ["max"], "it must be one of max, preserve3coincident, min"),
            ("register_tile", (4,), "register_tile is (4,); it must be rows and vector extent"),
            ("register_tile", (0, 16), "register_tile is (0, 16); it must be a list of integers of at least 1"),
            ("recompute_limit", 0.5, "recompute_limit is 0.5; it must be a number of at least 1"),
            ("recompute_limit", float("nan"), "recompute_limit is nan; it must be a number of at least 1"),
            ("recompute_limit", True, "recompute_limit is True; it must be a number of at least 1"),
            ("recompute_limit", None, "recompute_limit is None; it must be a number of at least 1"),
            ("threads", (), "threads is (); it must have 1 to 3 values"),
            ("threads", (2, 2, 2, 2), "threads is (2, 2, 2, 2); it must have 1 to 3 values"),
            ("threads", (0, 4), "threads is (0, 4); it must be a list of integers of at least 1"),
            ("threads", (64, 32), "it must be at most 1024, 1024, 64 in x, y, z and 1024 in all"),
            ("threads", (1, 1, 65), "it must be at most 1024, 1024, 64 in x, y, z and 1024 in all"),
            ("blocks", (1, 2, 3, 4), "blocks is (1, 2, 3, 4); it must have 1 to 3 values"),
            ("blocks", "8", "blocks is '8'; it must be a list of integers of at least 1"),
            ("reduction_tile", 0, "reduction_tile is 0; it must be an integer of at least 1"),
            ("distribution", "random", "distribution is 'random'; it must be one of vectors, cyclic, blocked"),
            ("point_fusion", "preserve3coincident", "it must be one of max, min"),
            ("match_reductions", 1, "match_reductions is 1; it must be true or false"),
            ("split_reduction", 0, "split_reduction is 0; it must be an integer of at least 1"),
            ("unroll", 2.0, "unroll is 2.0; it must be an integer of at least 1"),
            ("unroll", 0, "unroll is 0; it must be an integer of at least 1"),
            ("use_shared_memory", "yes", "use_shared_memory is 'yes'; it must be true or false"),
            ("use_private_memory", None, "use_private_memory is None; it must be true or false"),
            ("max_shared_memory", -1, "max_shared_memory is -1; it must be an integer of at least 0"),
            ("parallel", 0, "parallel is 0; it must be true or false"),
            ("fast_math", "", "fast_math is ''; it must be true or false"),
        ],
    )
    def test_each_has_its_message(self, name: str, value: object, message: str) -> None:
        with pytest.raises(TcompError) as caught:
            MappingOptions(**{name: value})  # type: ignore[arg-type]
        assert message in caught.value.message

    @pytest.mark.parametrize(
        ("text", "message", "hint"),
        [
            ("[1]", "must be a JSON object with keys among atomics,", None),
            ("{", "mapping options are not JSON:", None),
            ("[" * 100_000, "mapping options are not JSON:", None),
            ('{"tile": 3}', "there is no mapping option 'tile'", "did you mean `tile_sizes`?"),
            ('{"unrol": 3}', "there is no mapping option 'unrol'", "did you mean `unroll`?"),
            ('{"parallel": 1}', "parallel is 1; it must be true or false", None),
        ],
    )
    def test_json(self, text: str, message: str, hint: str | None) -> None:
        with pytest.raises(TcompError) as caught:
            MappingOptions.from_json(text)
        assert message in caught.value.message
        assert caught.value.diagnostics[0].hint == hint

    @pytest.mark.parametrize(
        ("text", "message", "hint"),
        [
            ("mpl", "there is no set of options 'mpl'", "did you mean `mlp`?"),
            ("best", "there is no set of options 'best'", f"the sets are {', '.join(NAMED)}"),
            ("mlp,naive", "'naive' is not OPTION=VALUE, as in tile=32x32", None),
            ("distribution_=3", "there is no mapping option 'distribution_'", "did you mean `distribution`?"),
            ("tile=", "'tile=' has no value", "`model` leaves the choice to the model"),
            ("mlp,C.tile= ", "'C.tile=' has no value", "`model` leaves the choice to the model"),
            ("tile=3x", "tile_sizes is '3x'; it must be a list of integers of at least 0", None),
            ("unroll=many", "unroll is 'many'; it must be an integer of at least 1", None),
            ("recompute_limit=model", "recompute_limit is 'model'; it must be a number of at least 1", None),
            ("parallel=maybe", "parallel is 'maybe'; it must be true or false", None),
            ("recompute_limit=x", "recompute_limit is 'x'; it must be a number of at least 1", None),
        ],
    )
    def test_text(self, text: str, message: str, hint: str | None) -> None:
        with pytest.raises(TcompError) as caught:
            MappingOptions.from_text(text)
        assert caught.value.message == message
        assert caught.value.diagnostics[0].hint == hint


class TestSpellings:
    @given(EVERY_OPTION)
    def test_json_is_read_again(self, options: MappingOptions) -> None:
        again = MappingOptions.from_json(options.to_json())
        assert again == options
        assert hash(again) == hash(options)
        assert again.to_json() == options.to_json()

    @given(EVERY_OPTION)
    def test_source_evaluates_to_the_options_and_says_no_more_than_needed(self, options: MappingOptions) -> None:
        source = str(options)
        assert eval(source, {"MappingOptions": MappingOptions}) == options
        changed = [name for name, option in OPTIONS.items() if getattr(options, name) != option.default]
        assert re.findall(r"(\w+)=", source) == changed

    @given(EVERY_OPTION)
    def test_text_is_read_again(self, options: MappingOptions) -> None:
        parts = [f"{name}={spelled(getattr(options, name))}" for name in OPTIONS]
        assert MappingOptions.from_text(",".join(parts)) == options
        assert MappingOptions.from_text(options.to_text()) == options
        assert set(re.findall(r"(\w+)=", options.to_text())) == set(re.findall(r"(\w+)=", str(options)))

    def test_defaults_are_not_printed(self) -> None:
        assert str(MappingOptions()) == "MappingOptions()"
        assert str(MappingOptions().tile(8, 0).fuse("min")) == (
            "MappingOptions(tile_sizes=(8, 0), fusion_strategy='min')"
        )

    def test_text_may_use_names_of_methods_and_sets(self) -> None:
        found = MappingOptions.from_text("mlp, tile=8x4, map_to_threads=32*2, fuse=min,threads=64,recompute_limit=2")
        assert found == replace(NAMED["mlp"].tile(8, 4).fuse("min").map_to_threads(64), recompute_limit=2.0)
        assert MappingOptions.from_text("") == MappingOptions.from_text(" , ") == MappingOptions()
        assert MappingOptions.from_text("naive,tile=model").tile_sizes is None
        assert MappingOptions.from_text("tile=()").tile_sizes == ()

    def test_both_fusion_strategies_at_once(self) -> None:
        both = MappingOptions().schedule_fusion_strategy("min")
        assert (both.fusion_strategy, both.point_fusion) == ("min", "min")
        both = MappingOptions().schedule_fusion_strategy("preserve3coincident")
        assert (both.fusion_strategy, both.point_fusion) == ("preserve3coincident", "max")


def spelled(value: object) -> str:
    if value is None:
        return "model"
    return "x".join(map(str, value)) or "()" if isinstance(value, tuple) else str(value)


class TestNamedSets:
    def test_values_are_those_of_tensor_comprehensions(self) -> None:
        """The table of section 4 of its reference: tile, threads, blocks, unroll, fusion between clusters."""
        found = {n: (o.tile_sizes, o.threads, o.blocks, o.unroll, o.fusion_strategy) for n, o in NAMED.items()}
        three = "preserve3coincident"
        assert found == {
            "naive": ((32, 32, 32), (32, 8), (256, 256), 1, three),
            "pointwise": ((32, 32, 32), (32, 4, 4), (100, 100, 100), 128, three),
            "mlp": ((1,), (128,), (128,), 1, "max"),
            "conv": ((4, 8, 8, 8), (4, 16, 4), (256, 256, 256), 1, three),
            "group_conv": ((1, 1), (4, 16, 4), (256, 256), 1, three),
        }
        for options in NAMED.values():
            assert not (options.use_shared_memory or options.use_private_memory or options.match_reductions)

    def test_by_name(self) -> None:
        assert tc.MappingOptions.named("conv") is NAMED["conv"]
        with pytest.raises(TcompError, match="there is no set of options 'group_con'") as caught:
            tc.MappingOptions.named("group_con")
        assert caught.value.diagnostics[0].hint == "did you mean `group_conv`?"


LAYER = """
def f(float(M,K) A, float(K,N) B, float(N) c) -> (C) {
  C(m,n) +=! A(m,k) * B(k,n)
  C(m,n) = C(m,n) + c(n)
  C(m,n) = fmax(C(m,n), 0)
}"""
CONV = "def f(float(N,C,H,W) I, float(F,C,KH,KW) K) -> (O) { O(n,f,h,w) +=! I(n,c,h+kh,w+kw) * K(f,c,kh,kw) }"
PROGRAMS = {
    "rows": ("def f(float(N,D) X) -> (Y) { s(n) +=! X(n,d)  Y(n,d) = X(n,d) / s(n) }", {"N": 9, "D": 300}),
    "layer": (LAYER, {"M": 100, "N": 64, "K": 150}),
    "window": (CONV, {"N": 1, "C": 2, "H": 20, "W": 20, "F": 4, "KH": 3, "KW": 3}),
    "halves": (
        "def f(float16(M,K) A, float16(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
        {"M": 2048, "N": 2048, "K": 512},
    ),
    "many tiles": (LAYER, {"M": 2000, "N": 2000, "K": 8}),
    "blur": ("def f(float(N) X) -> (Z) { Y(i) = X(i) + X(i+1)  Z(i) = Y(i) * Y(i+1) }", {"N": 2000}),
    "bins": ("def f(int32(N) I, float(N) V) -> (float(50) O) { O(I(i)) +=! V(i) }", {"N": 90}),
}
"""A reduction that threads share, a contraction and what follows it, a short reduction, overlapping tiles, bins."""


OTHERS: dict[str, tuple[object, ...]] = {
    "tile_sizes": ((8, 8), (16,)),
    "fusion_strategy": ("min", "preserve3coincident"),
    "register_tile": ((2, 8),),
    "recompute_limit": (1.0, 4.0),
    "threads": ((8, 4), (1,)),
    "blocks": ((2,),),
    "reduction_tile": (4,),
    "prefetch": (False,),
    "stages": (1, 2),
    "route": ("async",),
    "order": (1, 2),
    "persistent": (0, 3),
    "matrix_units": (False,),
    "warpgroups": (False,),
    "math": ("tf32", "tf32x3"),
    "distribution": ("blocked",),
    "point_fusion": ("min",),
    "match_reductions": (False,),
    "split_reduction": (2,),
    "unroll": (1,),
    "use_shared_memory": (False,),
    "use_private_memory": (False,),
    "max_shared_memory": (0,),
    "atomics": (True,),
    "parallel": (False,),
    "fast_math": (True,),
    "parts": ({name: {"tile_sizes": (4,)} for name in ("Y", "C", "O", "Z")},),
}
"""For each option, values that are not its default."""

BACKENDS = {"cpu": CpuBackend(replace(CPU.machine, threads=16)), "cuda": CudaBackend(gpu_of("sm_90a"))}


def code(program: str, target: str, options: MappingOptions) -> tuple[str, Sequence[str], object]:
    text, sizes = PROGRAMS[program]
    source = lower(define(text)["f"], Sizes(sizes), options, BACKENDS[target]).source
    return source.text, source.flags, [(launch.grid, launch.block) for launch in source.launches]


class TestMatters:
    @pytest.mark.parametrize(
        ("name", "options", "target", "expected"),
        [
            ("tile_sizes", MappingOptions(), "cpu", True),
            ("threads", MappingOptions(), "cpu", True),
            ("threads", MappingOptions(), "cuda:sm_80", True),
            ("threads", MappingOptions(), "simulator", True),
            ("register_tile", MappingOptions(), "cuda:sm_90", False),
            ("parallel", MappingOptions(), "cuda", False),
            ("reduction_tile", MappingOptions(), "cuda", True),
            ("reduction_tile", MappingOptions(use_shared_memory=False), "cuda", False),
            ("reduction_tile", MappingOptions(), "cpu", False),
            ("recompute_limit", MappingOptions(), "cpu", True),
            ("recompute_limit", MappingOptions().fuse("min"), "cpu", False),
        ],
    )
    def test_where(self, name: str, options: MappingOptions, target: str, expected: bool) -> None:
        assert matters(options, name, target) is expected

    @pytest.mark.parametrize("program", PROGRAMS)
    @pytest.mark.parametrize("target", BACKENDS)
    @pytest.mark.parametrize("base", [{}, {"use_shared_memory": False, "fusion_strategy": "min"}], ids=["", "plain"])
    def test_what_does_not_matter_changes_nothing(self, program: str, target: str, base: dict[str, object]) -> None:
        options = MappingOptions(**base)  # type: ignore[arg-type]
        changes = {
            name: others[0]
            for name, others in OTHERS.items()
            if name not in base and not matters(options, name, target)
        }
        assert changes
        assert code(program, target, replace(options, **changes)) == code(program, target, options)  # type: ignore[arg-type]

    @pytest.mark.parametrize("target", BACKENDS)
    @pytest.mark.parametrize("name", list(OPTIONS))
    def test_what_matters_changes_some_program(self, name: str, target: str) -> None:
        small = MappingOptions(tile_sizes=(16,)) if name == "recompute_limit" else MappingOptions()
        if not matters(small, name, target):
            return
        pairs = [(program, other) for program in PROGRAMS for other in OTHERS[name]]
        changed = (replace(small, **{name: other}) for _, other in pairs)  # type: ignore[arg-type]
        assert any(
            code(program, target, options) != code(program, target, small)
            for (program, _), options in zip(pairs, changed, strict=True)
        )


class TestPage:
    def test_the_table_is_what_is_declared(self, golden: Callable[[Path, str], None]) -> None:
        rows = [f"| `{name}` | {' | '.join(option.describe())} |\n" for name, option in OPTIONS.items()]
        before, head, after = PAGE.read_text(encoding="utf-8").partition(HEAD)
        assert head
        golden(PAGE, before + head + "".join(rows) + re.sub(r"\A(\|.*\n)*", "", after))

    def test_the_sets_are_shown(self) -> None:
        found = re.findall(r"^\| `(\w+)` \| `(MappingOptions\(.*\))` \|$", PAGE.read_text(encoding="utf-8"), re.M)
        assert found == [(name, str(options)) for name, options in NAMED.items()]

    def test_every_option_of_tensor_comprehensions_has_its_row(self) -> None:
        text = PAGE.read_text(encoding="utf-8")
        for option in OPTIONS.values():
            if option.original:
                assert re.search(rf"^\| `{option.original}` \| `{option.method}`", text, re.MULTILINE), option.original


@pytest.mark.parametrize(
    ("options", "target", "expected"),
    [
        ("tile=4x4,recompute_limit=3", "cpu", []),
        ("tile=4x4x4", "cpu", ["tile_sizes has 3 sizes, of which the first 2 have loops to tile"]),
        ("threads=4x2", "cpu", ["threads says on cpu only how many may run at most: 8"]),
        ("threads=4", "cpu", []),
        ("threads=4x2,parallel=false", "cuda:sm_90", ["without effect on cuda:sm_90: parallel"]),
        ("unroll=8,blocks=4", "cpu", ["without effect on cpu: blocks, unroll"]),
        (
            "fuse=min,recompute_limit=3",
            "simulator",
            ["recompute_limit has no effect: it matters only if fusion_strategy"],
        ),
    ],
)
def test_options_without_effect_are_named(options: str, target: str, expected: list[str]) -> None:
    found = list(without_effect(MappingOptions.from_text(options), target, 2))
    assert len(found) == len(expected)
    assert all(f.startswith(e) for f, e in zip(found, expected, strict=True))
