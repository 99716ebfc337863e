"""Texts that use other texts: where these are found, which defs they bring, and which file an error points into."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import tcomp as tc
from tcomp import cli
from tcomp.errors import CompileError, ShapeError, SourceText, TcompError
from tcomp.grammar.parsing.parser import parse_recovering

LAYERS = """# Layers.
use "parts/bias.tc"
def dense(float(N,D) X, float(D,E) W, float(E) b) -> (Y) {
    T(n,e) +=! X(n,d) * W(d,e)
    Y = with_bias(T, b)
}
"""
BIAS = "def with_bias(float(N,D) X, float(D) b) -> (Y) { Y(n,d) = X(n,d) + b(d) }\n"
MAIN = """use "layers.tc"
use library:pointwise
def net(float(N,D) X, float(D,D) W, float(D) b) -> (Y) {
    A = dense(X, W, b)
    Y = with_bias(A, b)
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "parts").mkdir()
    (tmp_path / "main.tc").write_text(MAIN)
    (tmp_path / "layers.tc").write_text(LAYERS)
    (tmp_path / "parts" / "bias.tc").write_text(BIAS)
    return tmp_path


def error(source: str | Path) -> str:
    with pytest.raises(TcompError) as found:
        tc.define(source)
    return str(found.value)


def test_files_beside_the_one_that_uses_them(folder: Path) -> None:
    x, w, b = np.ones((2, 3), np.float32), np.eye(3, dtype=np.float32), np.arange(3, dtype=np.float32)
    ops = tc.define(folder / "main.tc")
    assert list(ops) == ["net"]
    np.testing.assert_array_equal(ops.net(x, w, b), x + 2 * b)
    np.testing.assert_array_equal(ops.net.reference(x, w, b), x + 2 * b)


def test_texts_use_files_of_the_working_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert str(tc.define(MAIN).net) == str(tc.define("main.tc").net)
    monkeypatch.chdir(folder / "parts")
    assert "there is no file layers.tc" in error(MAIN)


def test_the_library() -> None:
    ops = tc.define(
        """use library:softmax use library:conv2d
        def f(float(N,C,H,W) I, float(F,C,KH,KW) K, float(A,B) X) -> (Y, Z) { Y = conv2d(I, K) Z = softmax(X) }"""
    )
    rng = np.random.default_rng(0)
    i, k, x = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, 2, 6, 6), (3, 2, 3, 3), (4, 5)))
    y, z = ops.f(i, k, x)
    np.testing.assert_allclose(y, tc.library.conv2d(i, k), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(z, tc.library.softmax(x), rtol=1e-5, atol=1e-6)


def test_one_file_by_several_ways(folder: Path) -> None:
    """A file that two others use, files that use each other, and one def of the library by two names."""
    (folder / "parts" / "bias.tc").write_text('use "../main.tc"\nuse "../layers.tc"\n' + BIAS)
    (folder / "link.tc").symlink_to(folder / "layers.tc")
    more = 'use "parts/bias.tc"\nuse "./parts/../parts/bias.tc"\nuse "link.tc"\nuse library:relu\n'
    (folder / "main.tc").write_text(more + MAIN)
    assert list(tc.define(folder / "main.tc")) == ["net"]


def test_clashes_show_both_places(folder: Path) -> None:
    (folder / "main.tc").write_text(MAIN.replace("def net", "def with_bias"))
    name = os.fspath(folder)
    assert error(folder / "main.tc").replace(name + "/", "").split("\n") == [
        'main.tc:1:1: error: `use "layers.tc"` brings in another def with_bias than the one that is there already',
        '  use "layers.tc"',
        "  ^^^^^^^^^^^^^^^",
        "  help: give one of them another name, or use only one of the files",
        "main.tc:3:5: note: one with_bias is defined here",
        "  def with_bias(float(N,D) X, float(D,D) W, float(D) b) -> (Y) {",
        "      ^^^^^^^^^",
        "parts/bias.tc:1:5: note: one with_bias is defined here",
        "  def with_bias(float(N,D) X, float(D) b) -> (Y) { Y(n,d) = X(n,d) + b(d) }",
        "      ^^^^^^^^^",
    ]


def test_errors_point_into_the_right_file(folder: Path) -> None:
    (folder / "layers.tc").write_text(LAYERS.replace("W(d,e)", "W(d)"))
    found = error(folder / "main.tc")
    assert found.startswith(f"{folder}/layers.tc:4:25: error: expected 2 dimensions but found 1 dimensions.\n")
    assert found.count(" error: ") == 1
    (folder / "layers.tc").write_text(LAYERS.replace("+=!", "+=! +"))
    assert f"{folder}/layers.tc:4:16: error: expected an expression" in error(folder / "main.tc")
    (folder / "layers.tc").write_text(LAYERS.replace("with_bias(T", "with_bias(X, T"))
    found = error(folder / "main.tc")
    assert f"{folder}/layers.tc:5:9: error: `with_bias` takes 2 arguments but 3 are given" in found
    assert f"{folder}/parts/bias.tc:1:5: note: `with_bias` is defined here" in found


def test_errors_for_sizes_point_into_the_right_file(folder: Path) -> None:
    (folder / "parts" / "bias.tc").write_text(BIAS.replace("b(d)", "b(d+1)").replace("}", "where d in 0:D }"))
    ops = tc.define(folder / "main.tc")
    with pytest.raises(ShapeError) as found:
        ops.net(np.ones((2, 3), np.float32), np.eye(3, dtype=np.float32), np.ones(3, np.float32))
    assert found.value.diagnostics[0].source is not None
    assert f"{folder}/parts/bias.tc:1:" in str(found.value)
    assert f"{folder}/layers.tc:5:9: note: with_bias is called here" in str(found.value)
    assert f"{folder}/main.tc:4:9: note: dense is called here" in str(found.value)


def test_files_that_cannot_be_read(folder: Path) -> None:
    (folder / "binary.tc").write_bytes(b"def f\xff")
    (folder / "main.tc").write_text(
        f'use "layer.tc"\nuse "parts"\nuse "binary.tc"\nuse "/dev/zero"\nuse library:softmx\nuse "{"x" * 300}"\n' + MAIN
    )
    found = error(folder / "main.tc").replace(f"{folder}/", "")
    for expected in [
        "main.tc:1:1: error: there is no file layer.tc",
        "did you mean `layers.tc`?",
        "main.tc:2:1: error: cannot read parts: it is not a file",
        "main.tc:3:1: error: binary.tc is not UTF-8 text: byte 5 is 0xff",
        "main.tc:4:1: error: cannot read /dev/zero: it is not a file",
        "main.tc:5:1: error: the library has no softmx",
        "did you mean `softmax`?",
        "main.tc:6:1: error: cannot read xxx",
    ]:
        assert expected in found
    assert "undefined" not in found


def test_unused_defs_may_be_wrong(folder: Path) -> None:
    (folder / "layers.tc").write_text(LAYERS + "def wrong(float(N) X) -> (Y) { Y(i) = Z(i) }\n")
    assert list(tc.define(folder / "main.tc")) == ["net"]


def test_a_text_that_only_uses_defines_nothing() -> None:
    with pytest.raises(CompileError, match="the text defines nothing"):
        tc.define("use library:softmax")


def test_many_files_end(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"f{number}.tc").write_text(f'use "f{number + 1}.tc"\ndef g{number}(float X) -> (Y) {{ Y = X }}\n')
    assert "more than 256 files are used" in error(tmp_path / "f0.tc")


def test_the_key_of_the_cache_follows_the_texts(folder: Path) -> None:
    def key() -> str:
        return tc.define(folder / "main.tc").net.compile(sizes={"N": 2, "D": 3}).specialisation.key()

    before = key()
    assert key() == before
    (folder / "parts" / "bias.tc").write_text(BIAS.replace("+ b(d)", "- b(d)"))
    assert key() != before


def test_printing_and_parsing() -> None:
    text = 'use "a/b c.tc"\nuse library:softmax\ndef f(float(N) use) -> (Y) { Y(i) = use(i) }'
    parsed = parse_recovering(SourceText(text))
    assert [str(use) for use in parsed.uses] == ['use "a/b c.tc"', "use library:softmax"]
    again = parse_recovering(SourceText("\n".join(map(str, (*parsed.uses, *parsed.definitions)))))
    assert (again.uses, again.definitions) == (parsed.uses, parsed.definitions)
    assert not parsed.errors


def test_stages_stand_alone(folder: Path) -> None:
    """What a dump keeps as the input is a program without the files that were used."""
    made = tc.define(folder / "main.tc").net.compile(sizes={"N": 2, "D": 3})
    assert str(tc.define(made.stages["input"]).net) == str(tc.define(folder / "main.tc").net)


def test_commands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command line reads what a file uses, beside the file."""
    file = str(folder / "main.tc")
    assert cli.main(["compile", file, "--sizes", "N=2,D=3", "--emit", "function"]) == 0
    assert "dense_T(n, e) +=! X(n, d) * W(d, e)" in capsys.readouterr().out
    assert cli.main(["gradient", file]) == 0
    assert "def net_grad(" in capsys.readouterr().out
    assert cli.main(["run", file, "--sizes", "N=2,D=3"]) == 0
    (folder / "layers.tc").unlink()
    assert cli.main(["gradient", file]) == 1
    assert "main.tc:1:1: error: there is no file" in "".join(capsys.readouterr().err.split("\n"))
