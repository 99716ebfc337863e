"""Whatever text, options, sizes or arguments come in, what goes out is a result or an error that says what is wrong."""

from __future__ import annotations

import argparse
import io
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tcomp import cli
from tcomp.commands.inputs.programs import parse_sizes, read_options
from tcomp.errors import CompileError, TcompError
from tcomp.grammar import define
from tcomp.mapping.options.options import NAMED, OPTIONS, MappingOptions
from tests.hostile.fuzz_parser import Coverage, fuzz
from tests.hostile.texts import WORDS, check_error, judge, mutated, seeds, soup

pytestmark = pytest.mark.sweep(3)

MEBI = 1 << 20
HEAD = "def f(float(N) A) -> (O) { "


def assigned(value: str) -> str:
    return f"{HEAD}O(i) = {value} }}"


def message_of(text: str) -> str:
    with pytest.raises(CompileError) as caught:
        define(text)
    check_error(caught.value, text)
    return caught.value.message


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(), st.binary().map(lambda b: b.decode("utf-8", "surrogateescape"))))
def test_any_characters(text: str) -> None:
    judge(text, random.Random(0))
    judge(assigned(text), random.Random(0))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join))
def test_any_words(text: str) -> None:
    judge(text, random.Random(0))
    judge(assigned(text), random.Random(0))


def test_changed_programs() -> None:
    rng, start, outcomes = random.Random(0), seeds(), Counter[str]()
    for _ in range(700):
        outcomes[judge(mutated(rng, rng.choice(start), start), rng)] += 1
    for _ in range(150):
        outcomes[judge(soup(rng), rng)] += 1
    assert outcomes["defined"] > 10 and outcomes["refused"] > 250


def test_the_fuzzer_is_guided_by_coverage() -> None:
    start = [assigned("A(i)"), assigned("A(i, j) * 2 where j in 0:3")]
    campaign = fuzz(start, seed=1, texts=400)
    assert campaign.failures == []
    assert campaign.tried == 400 and campaign.coverage.lines() > 500
    assert 0 < len(campaign.pool) < campaign.tried, "texts that reach nothing new are not kept"
    assert f"{campaign.tried} texts" in str(campaign)


def test_coverage_tells_new_steps_from_known_ones() -> None:
    coverage = Coverage()
    assert coverage.is_new(lambda: define(assigned("A(i)")))
    assert not coverage.is_new(lambda: define(assigned("A(i)")))
    assert coverage.is_new(lambda: define(assigned("A(i) * 2 where i in 0:N/2")))


def test_the_judge_finds_what_it_looks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error without a place, one that points elsewhere, and an exception of another kind."""
    text = assigned("Z(i)")
    wrong = define.__globals__
    monkeypatch.setitem(wrong, "compile_error", lambda errors: CompileError("no place"))
    with pytest.raises(AssertionError, match="without a place"):
        judge(text, random.Random(0))
    monkeypatch.setitem(wrong, "compile_error", lambda errors: ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        judge(text, random.Random(0))
    monkeypatch.undo()
    with pytest.raises(CompileError) as caught:
        define(text)
    with pytest.raises(AssertionError):
        check_error(caught.value, text.replace("O(i)", "O (i)"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (assigned("(" * 10_000 + "A(i)" + ")" * 10_000), None),
        (assigned(" + ".join(["A(i)"] * 10_000)), "parts, more than"),
        (assigned("-" * 10_000 + "A(i)"), "levels deep"),
        (assigned("exp(" * 10_000 + "A(i)" + ")" * 10_000), "levels deep"),
        (assigned("A(" * 10_000 + "i" + ")" * 10_000), "levels deep"),
        (assigned("A(i)>0?1:" * 10_000 + "2"), "levels deep"),
        (assigned("x30 where x0 = A(i)" + "".join(f", x{k + 1} = x{k}+x{k}" for k in range(30))), "parts"),
        (f"{HEAD}{'for t in 0:2 {' * 100}", "braces nest"),
        (assigned("A(i)+" * (2 * MEBI) + "1"), "too long"),
        (f"{HEAD}{'O(i) = A(i) ' * MEBI}}}", "too long"),
        (f"#{'x' * 10 * MEBI}\n{assigned('A(i)')}", None),
        ("#\n" * (5 * MEBI), "defines nothing"),
        ("\n" * (10 * MEBI) + assigned("Z(i)"), "undefined variable Z"),
        (assigned("x" * 10 * MEBI), "expected a valid token"),
        (assigned("1" * 10 * MEBI), "expected a valid token"),
        ("\0" * 10 * MEBI, "expected a valid token"),
        ("(" * 10 * MEBI, "too long"),
        (f"def f({'float A, ' * MEBI}float B) -> (O) {{ O = B }}", "too long"),
    ],
    ids=[
        *("parentheses", "sum", "minus", "calls", "subscripts", "choices", "lets", "braces", "expression"),
        *("statements", "comment", "comments", "lines", "name", "number", "nul", "open", "parameters"),
    ],
)  # fmt: skip
def test_deep_and_long_texts(text: str, message: str | None) -> None:
    if message is None:
        assert list(define(text)) == ["f"]
    else:
        assert message in message_of(text)


def test_comments_take_time_and_memory_in_proportion() -> None:
    """The pattern for what lies between tokens must not remember where it could have stopped."""

    def seconds(count: int) -> float:
        begin = time.process_time()
        message_of("#\n" * count)
        return time.process_time() - begin

    small = min(seconds(100_000) for _ in range(3))
    assert min(seconds(1_600_000) for _ in range(2)) < 64 * small


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("\N{CYRILLIC CAPITAL LETTER A}(i)", "U+0410 CYRILLIC CAPITAL LETTER A"),
        ("A\N{FULLWIDTH LEFT PARENTHESIS}i)", "U+FF08 FULLWIDTH LEFT PARENTHESIS"),
        ("A(i)\N{NO-BREAK SPACE}+ 1", "U+00A0 NO-BREAK SPACE"),
        ("A(i) \N{MINUS SIGN} 1", "did you mean `-`?"),
        ("A(i)\N{ZERO WIDTH NO-BREAK SPACE}", "U+FEFF ZERO WIDTH NO-BREAK SPACE"),
        ("A(i)\0", "U+0000; but"),
        ("A(i)\ud800", "U+D800; but"),
    ],
)
def test_characters_that_look_like_others_are_named(text: str, hint: str) -> None:
    with pytest.raises(CompileError) as caught:
        define(assigned(text))
    assert hint in str(caught.value)
    check_error(caught.value, assigned(text))


def test_line_ends_and_byte_order_marks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for end in ("\r\n", "\r", "\n", "\f", "\v"):
        define(assigned("A(i)").replace(" ", end))
    assert message_of("") == message_of("# nothing") == "the text defines nothing: expected 'def'"
    file = tmp_path / "marked.tc"
    file.write_bytes(b"\xef\xbb\xbf" + assigned("A(i)").encode())
    assert cli.main(["compile", str(file), "--sizes", "N=4", "--emit", "function"]) == 0
    assert "O(i) = A(i)" in capsys.readouterr().out


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 1000, b"\x7fELF\x02\x01\x01" + bytes(range(256)), b"\xff\xfe" + "def".encode("utf-16-le"), b"\x80"],
    ids=["empty", "nul", "elf", "utf-16", "not utf-8"],
)
def test_files_that_are_no_programs(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "f.tc"
    file.write_bytes(content)
    for command in ("run", "compile", "simulate"):
        assert cli.main([command, str(file)]) == 1
        said = capsys.readouterr().err
        assert "Traceback" not in said and "f.tc" in said


OPTION_PIECES = (
    *OPTIONS, *NAMED, "tile", "fuse", "=", ",", "x", "8", "32x32", "true", "model", "none", "-1", "1e9", "9" * 5000,
    "0", "inf", "nan", "max", "{", "}", "[", "]", '"', ":", "null", "\0", "\u0660", " ", "=" * 9, "1_0", "+1", ".5",
)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(st.one_of(st.text(), st.lists(st.sampled_from(OPTION_PIECES), max_size=12).map("".join)))
def test_option_texts(text: str) -> None:
    for read in (MappingOptions.from_text, MappingOptions.from_json, read_options):
        with suppress(TcompError):
            found = read(text)
            assert found is not None and MappingOptions.from_json(found.to_json()) == found


SIZE_PIECES = ("N", "M", "=", ",", "3", "-1", "9" * 30, " ", "\0", "+", "1.5", "\u0663")

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just(10**400)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from([*OPTIONS, ""]), inner)),
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from([*OPTIONS]), JSON, max_size=4))
def test_option_values(values: dict[str, object]) -> None:
    with suppress(TcompError):
        MappingOptions(**values)  # type: ignore[arg-type]


@settings(max_examples=500, deadline=None)
@given(st.one_of(st.text(), st.lists(st.sampled_from(SIZE_PIECES)).map("".join)))
def test_size_texts(text: str) -> None:
    with suppress(argparse.ArgumentTypeError):
        assert all(type(value) is int for value in parse_sizes(text).values())


ARGUMENTS = (
    *("run", "compile", "simulate", "cache", "debug", "doctor", "--sizes", "N=3", "N=-1", "N=99999999999999999999"),
    *("M=2,N=3", "--options", "tile=8", "tile=0x-1", "{}", "--target", "cpu", "cuda:sm_90", "cuda:sm_0", "simulator"),
    *("--def", "f", "matmul", "--emit", "list", "nothing", "--until", "fuse", "--seed", "1", "-1", "library:softmax"),
    *("library:", "library:../errors", "/dev/null", "/", "\0", "", "-", "--", "--help", "--version", "\ud800", "@"),
    *("--order", "random", "--json", "--check", "--inputs", "a.npy", "N=3,", "=", "--sizes=N=1", "x" * 300),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(arguments=st.lists(st.sampled_from(ARGUMENTS), max_size=6))
def test_command_lines(arguments: list[str]) -> None:
    if arguments[:1] == ["cache"]:
        arguments = ["cache", "list"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
        try:
            status: object = cli.main(arguments)
        except SystemExit as leaving:
            status = leaving.code
    assert status in (0, 1, 2, 3)


def test_the_fuzzer_runs_from_the_command_line() -> None:
    command = [sys.executable, "-m", "tests.hostile.fuzz_parser", "--seconds", "0", "--seed", "1"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert found.returncode == 0, found.stdout + found.stderr
    assert "0 failures" in found.stdout
