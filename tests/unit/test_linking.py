"""Kernels that the linker makes by itself, and those that need libraries after all."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from tcomp.backends.host import directcalls, linking, toolchain
from tcomp.backends.host.images import open_image

PLAIN = "float f(float x) { return 2 * x; }\n"
MATHS = "float erff(float);\nfloat f(float x) { return erff(x); }\n"
COPIED = "void f(char *a, const char *b, long n) { for (long i = 0; i < n; i++) a[i] = b[i]; }\n"
NEEDED = b"libm.so"

pytestmark = pytest.mark.skipif(
    linking.linker() is None or toolchain.find().family is not toolchain.GCC, reason="about gcc on Linux for x86-64"
)


def made(text: str, flags: tuple[str, ...] = ()) -> bytes:
    return toolchain.compile_shared(toolchain.find(), text, flags, "f")


def twice(image: bytes) -> float:
    f = open_image(image).f
    f.argtypes, f.restype = (ctypes.c_float,), ctypes.c_float
    result: float = f(1.5)
    return result


def test_what_calls_nothing_is_linked_by_the_linker_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linking.Link, "again", ("false",))
    assert twice(made(PLAIN)) == 3


@pytest.mark.parametrize("flags", [(), ("-ffast-math",)])
def test_what_calls_libm_is_linked_with_it(flags: tuple[str, ...]) -> None:
    image = made(MATHS, flags)
    assert NEEDED in image and set(linking.missing(image)) == {"erff"}
    assert twice(image) == pytest.approx(0.9661, abs=1e-4)


def test_what_compilers_call_by_themselves_is_there() -> None:
    image = made(COPIED, ("-O3",))
    assert linking.is_complete(image)
    open_image(image)


def test_direct_calls_are_linked_once() -> None:
    assert linking.is_complete(made(directcalls._text()))


def test_a_header_or_a_flag_of_links_leaves_it_to_the_compiler() -> None:
    assert not linking.may_do_alone("#include <math.h>\n", ())
    assert not linking.may_do_alone(PLAIN, ("-Wl,-z,defs",))
    assert linking.may_do_alone(PLAIN, ("-ffast-math",))


def test_a_linker_that_fails_leaves_it_to_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "ld"
    fake.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(linking, "linker", lambda: str(fake))
    assert twice(made(PLAIN)) == 3


def test_nothing_is_said_of_what_is_no_shared_object() -> None:
    image = made(MATHS)
    assert list(linking.missing(b"rubbish")) == []
    for end in range(0, len(image), 997):
        list(linking.missing(image[:end]))


def test_objects_that_are_none_for_a_linker_are_linked_by_the_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert twice(made(PLAIN, ("-flto", "-fno-fat-lto-objects"))) == 3
    fake = tmp_path / "ld"
    fake.write_text('#!/bin/sh\nwhile [ $# -gt 1 ]; do if [ "$1" = -o ]; then : > "$2"; fi; shift; done\n')
    fake.chmod(0o755)
    monkeypatch.setattr(linking, "linker", lambda: str(fake))
    assert twice(made(PLAIN)) == 3


@pytest.mark.parametrize(
    ("code", "ending"),
    [(1, "exit status 1"), (255, "exit status 255"), (137, "killed by SIGKILL"), (-9, "killed by SIGKILL")],
)
def test_how_a_compiler_ended_is_told(code: int, ending: str) -> None:
    assert toolchain._ending(code) == ending
