"""Program text laid out in one way: what stays, that it means the same, and that a second time changes nothing."""

from __future__ import annotations

import io
import random
import sys
from pathlib import Path

import pytest

from tcomp import cli
from tcomp.errors import CompileError, SourceText
from tcomp.fuzzing.draws import Attempts, generate
from tcomp.fuzzing.programs.choices import Choices
from tcomp.grammar import parse
from tcomp.grammar.parsing.formatting import formatted
from tcomp.grammar.parsing.lexer import comments_of, tokenize
from tcomp.shipped import texts

pytestmark = pytest.mark.sweep(2)

UGLY = """\
# A file.

use   library:softmax
# about mm
def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k)*B(k,n) }
def two(float(N) A, const int S=2) -> (B) {   # header
  # first
  T(i)   =   A(i)*((2.0))   # behind


  B(i) = T(i) where i in 0:N,   # in the midst
        j in 0:3   # at the end
  # tail
}  # closing
# end"""

NEAT = """\
# A file.

use library:softmax
# about mm
def mm(float(M, K) A, float(K, N) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }

def two(float(N) A, const int S = 2) -> (B) {  # header
    # first
    T(i) = A(i) * 2.0  # behind

    # in the midst
    B(i) = T(i) where i in 0:N, j in 0:3  # at the end
    # tail
}  # closing

# end
"""


def test_an_example() -> None:
    assert formatted(UGLY) == NEAT
    assert formatted(NEAT) == NEAT


@pytest.mark.parametrize(
    ("text", "neat"),
    [
        ("", ""),
        ("# alone  ", "# alone\n"),
        ("\n\n# a\n\n\n# b\n", "# a\n\n# b\n"),
        ("def f(float(N) A)->(B){B(i)=A(i)}", "def f(float(N) A) -> (B) { B(i) = A(i) }\n"),
        ("def f(float(N) A)->(B){B(i)=A(i)\n}", "def f(float(N) A) -> (B) {\n    B(i) = A(i)\n}\n"),
        ("def f(float N)->(B){B=N} # b", "def f(float N) -> (B) { B = N }  # b\n"),
        ("def f(float N # n\n)->(B){B=N}", "# n\ndef f(float N) -> (B) {\n    B = N\n}\n"),
        ("def f(float N)->(B){# a\nB=N}", "def f(float N) -> (B) {  # a\n    B = N\n}\n"),
        ("def f(float N)->(A,B){A=N B=N # b\n}", "def f(float N) -> (A, B) {\n    A = N\n    B = N  # b\n}\n"),
    ],
)
def test_small_texts(text: str, neat: str) -> None:
    assert formatted(text) == neat
    assert formatted(neat) == neat


@pytest.mark.parametrize("name", texts())
def test_the_library(name: str) -> None:
    neat = formatted(texts()[name])
    assert formatted(neat) == neat
    assert parse(neat) == parse(texts()[name])


@pytest.mark.parametrize("seed", range(40))
def test_random_texts_with_comments_anywhere(seed: int) -> None:
    draws = random.Random(seed)
    program = generate(Choices(draws.randint), Attempts())
    tokens = tokenize(SourceText(program.text))
    spaces = [" ", " ", "\n", "\n\n\n", "\t", "  # one\n", "\n# two\n", "\n\n    # three\n\n"]
    torn = "".join(draws.choice(spaces) + str(token) for token in tokens)
    neat = formatted(torn)
    assert formatted(neat) == neat
    assert parse(neat) == (program.definition,)
    assert sorted(c for _, c in comments_of(neat)) == sorted(c for _, c in comments_of(torn))


def test_what_does_not_parse_is_an_error() -> None:
    with pytest.raises(CompileError, match=r"f\.tc:1:1"):
        formatted("definition f", "f.tc")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "f.tc"
    file.write_text(UGLY)
    assert cli.main(["fmt", "--check", str(file)]) == 1
    assert file.read_text() == UGLY
    assert cli.main(["fmt", str(file)]) == 0
    assert file.read_text() == NEAT
    assert capsys.readouterr().out.count("laid out anew") == 2
    assert cli.main(["fmt", "--check", str(file)]) == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(UGLY.encode())))
    assert cli.main(["fmt", "-"]) == 0
    assert capsys.readouterr().out == NEAT
    file.write_text("def f(")
    assert cli.main(["fmt", str(file)]) == 1
    assert file.read_text() == "def f("
    assert cli.main(["fmt", "library:softmax"]) == 1
