"""Arrays that begin at no multiple of 16 bytes run a program of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import tcomp as tc
from tcomp.arrays.devices import MAIN
from tcomp.backends.alignment import ProgramForAddresses
from tcomp.backends.runtime import CallLayout, QuickRun, Site
from tcomp.backends.simulator.simulation import load
from tcomp.backends.source import ANYWHERE, Source
from tcomp.errors import TcompError
from tests.cuda.machine_code import loops_of
from tests.cuda.simulated import NEEDS_COMPILER

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
SITE = Site(MAIN, lambda: 0, lambda _: (0, None), lambda _: TcompError("no report"))


class Noted:
    """A program that notes its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, ...]] = []

    def at(self, site: Site) -> Noted:
        return self

    def __call__(self, addresses: Sequence[int]) -> Sequence[int] | None:
        self.calls.append(tuple(addresses))
        return None

    def direct(self, layout: CallLayout) -> QuickRun | None:
        return None

    def keep(self, objects: object) -> bool:
        return True

    def failure(self, error: Exception) -> TcompError:
        return TcompError(str(error))


def source(options: tc.MappingOptions | None = None, **sizes: int) -> Source:
    return tc.define(MM).mm.compile(sizes=sizes, target="cuda:sm_90", options=options).compilation.source


def test_what_is_read_in_vectors_must_be_aligned() -> None:
    assert source(tc.MappingOptions(stages=1), M=4096, N=4096, K=64).aligned == ("A", "B", "C")
    assert source(tc.MappingOptions(stages=1), M=128, N=127, K=128).aligned == ("A",)
    assert source(M=127, N=127, K=127).aligned == ()


def test_a_call_with_an_array_elsewhere_makes_the_other_program_once() -> None:
    first, second, made = Noted(), Noted(), []

    def other() -> Noted:
        made.append(second)
        return second

    run = ProgramForAddresses(source(M=128, N=127, K=128), first, other).at(SITE)
    run((16, 4, 4))
    assert made == []
    run((20, 16, 16))
    run((8, 32, 32))
    run((48, 8, 8))
    assert first.calls == [(16, 4, 4), (48, 8, 8)] and second.calls == [(20, 16, 16), (8, 32, 32)]
    assert made == [second] and run.keep(None)


def test_the_source_for_any_address() -> None:
    plain = source(M=4096, N=4096, K=64)
    other = plain.anywhere
    assert other.flags == (ANYWHERE,) and other.fits((1, 2, 3)) and not plain.fits((16, 16, 8))
    assert replace(other, flags=(), aligned=plain.aligned) == plain


def test_machine_code_has_one_way_to_memory() -> None:
    sizes, options = {"M": 512, "N": 512, "K": 512}, tc.MappingOptions(stages=1)
    (loop,) = loops_of(source(options, **sizes))["mm_0"]
    assert loop.count("LDG") == loop.count("LDG.E.128") == 4
    (narrow,) = loops_of(source(options, **sizes).anywhere)["mm_0"]
    assert narrow.count("LDG.E.128") == 0


@NEEDS_COMPILER
@pytest.mark.parametrize("moved", ["A", "B", "C"])
def test_each_array_may_begin_anywhere(moved: str) -> None:
    rng, shapes = np.random.default_rng(0), {"A": (64, 32), "B": (32, 64), "C": (64, 64)}
    arrays = {}
    for name, shape in shapes.items():
        room = rng.integers(-3, 4, np.prod(shape) + 1).astype(np.float32)
        arrays[name] = room[int(name == moved) :][: np.prod(shape)].reshape(shape)
    options = tc.MappingOptions(tile_sizes=(64, 64), threads=(16, 16))
    a, b, c = arrays.values()
    tc.define(MM).mm(a, b, out=c, target="simulator", options=options)
    np.testing.assert_array_equal(c, a @ b)


@NEEDS_COMPILER
def test_the_image_for_aligned_arrays_is_wrong_for_others() -> None:
    """The simulator tells when a vector is read where none begins, so the tests above would see the wrong image."""
    options = tc.MappingOptions(tile_sizes=(64, 64), threads=(16, 16))
    made = tc.define(MM).mm.compile(sizes={"M": 64, "N": 64, "K": 32}, target="simulator", options=options)
    careless = replace(made.compilation.source, aligned=())
    a, b, c = np.zeros(64 * 32 + 1, np.float32)[1:], np.zeros(32 * 64, np.float32), np.zeros(64 * 64, np.float32)
    report = load(careless).run([x.__array_interface__["data"][0] for x in (a, b, c)])
    assert report.findings and "A" in str(report)
