"""Functions that kernels share: which they are, that each is compiled once, and that kernels are linked with them."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.host import linking, sharedfunctions, toolchain
from tcomp.backends.host.images import open_image
from tcomp.backends.host.sharedfunctions import functions_of
from tcomp.storage.cache import store

NAME = "tc_transpose_32_x4"
TYPES = "typedef int tc_int32_x4 __attribute__((vector_size(16), aligned(4), may_alias));\n"
OTHERS = "typedef int tc_int32_x8 __attribute__((vector_size(32), aligned(4), may_alias));\n"
DOUBLED = """static void tc_transpose_32_x4(const int *source, int *target)
{
  if (source)
    for (long i = 0; i < 4; i += 4) *(tc_int32_x4 *)(target + i) = 2 * *(const tc_int32_x4 *)(source + i);
}
"""
KERNEL = "int f(const int *a, int *b)\n{\n  tc_transpose_32_x4(a, b);\n  return 0;\n}\n"
TEXT = TYPES + OTHERS + DOUBLED + KERNEL

linked = pytest.mark.skipif(
    linking.linker() is None or toolchain.find().family is not toolchain.GCC, reason="about gcc on Linux for x86-64"
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCOMP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sharedfunctions, "_KNOWN", type(sharedfunctions._KNOWN)(8))


def result(text: str) -> list[int]:
    given, made = (ctypes.c_int32 * 4)(1, 2, 3, 4), (ctypes.c_int32 * 4)()
    open_image(toolchain.compile_shared(toolchain.find(), text, (), "f")).f(given, made)
    return list(made)


def test_a_function_takes_its_own_types_along() -> None:
    (found,) = functions_of(TEXT)
    assert found.name == NAME and found.definition == DOUBLED
    assert TYPES in found.text and OTHERS not in found.text and "static" not in found.text


def test_lines_of_a_kernel_keep_their_numbers_and_its_table_has_all_of_them() -> None:
    (found,) = functions_of(TEXT)
    assert found.declaration.count("\n") == found.definition.count("\n")
    assert linking.may_do_alone(TEXT, ("-O2",)) and not linking.may_do_alone(TEXT, ("-O2", "-g1"))


def test_what_may_depend_on_flags_is_not_shared() -> None:
    assert functions_of(TEXT.replace(NAME, "tc_doubled")) == ()
    assert functions_of(TEXT.replace("static void", "static inline void")) == ()


@linked
def test_it_is_compiled_once_and_linked_with_every_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = list[str]()
    begin = sharedfunctions._Begun.begin

    def counted(begun: sharedfunctions._Begun, key: str) -> bool:
        compiled.append(key)
        return begin(begun, key)

    monkeypatch.setattr(sharedfunctions._Begun, "begin", counted)
    assert result(TEXT) == [2, 4, 6, 8] and len(compiled) == 1
    assert result(f"/* another kernel */\n{TEXT}") == [2, 4, 6, 8] and len(compiled) == 1
    # Another process finds it in the cache, and links what is there.
    monkeypatch.setattr(sharedfunctions, "_KNOWN", type(sharedfunctions._KNOWN)(8))
    assert result(f"/* a third one */\n{TEXT}") == [2, 4, 6, 8] and len(compiled) == 1
    # One of the same name that does something else is another one.
    assert result(TEXT.replace("2 *", "3 *")) == [3, 6, 9, 12] and len(compiled) == 2


@linked
def test_while_it_is_compiled_for_one_kernel_others_compile_their_own() -> None:
    with toolchain.compiling(toolchain.find(), TEXT, (), "f") as image:
        assert result(f"/* another kernel */\n{TEXT}") == [2, 4, 6, 8]
        image()
    assert sharedfunctions._BEGUN.value._keys == set()


@linked
def test_a_failed_compilation_leaves_its_turn_to_others() -> None:
    with pytest.raises(tc.TargetError, match="failed on kernel f"):
        toolchain.compile_shared(toolchain.find(), f"{TEXT} rubbish", (), "f")
    assert sharedfunctions._BEGUN.value._keys == set()
    assert result(TEXT) == [2, 4, 6, 8]


@linked
def test_a_linker_that_fails_leaves_the_object_to_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "ld"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(linking, "linker", lambda: str(fake))
    assert result(TEXT) == [2, 4, 6, 8]


@linked
def test_kernels_that_transpose_panels_share_it() -> None:
    f = tc.define("def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }", tune="off")
    for m, k, n in ((33, 64, 32), (17, 40, 48), (5, 8, 16)):
        a, b = np.random.rand(m, k).astype("f4"), np.random.rand(n, k).astype("f4")
        np.testing.assert_allclose(f["f"](a, b), a @ b.T, rtol=1e-4)
    kept = [entry.label for entry in store().entries() if entry.kind == "object"]
    assert kept and len(kept) == len(set(kept)), kept
