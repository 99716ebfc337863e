"""The README and the pages in docs/ say what is so: their code runs, their tables equal the declarations."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path

import pytest

import tcomp
from benchmarks import pictures, ratios, results_page
from tcomp import cli, debug, grammar
from tcomp.backends.cuda.target import CudaBackend
from tcomp.backends.cuda.tools import nvrtc
from tcomp.driver import lower
from tcomp.errors import TargetError
from tcomp.mapping.machines.gpu import gpu_of
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime.registry import check_available
from tests.targets import CPU

pytestmark = pytest.mark.sweep(4)

ROOT = Path(__file__).parents[2]
MOST_FILES = 17
"""Modules of a folder, its ``__init__`` counted."""

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TCOMP_CACHE", str(tmp_path / "cache"))


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """The fenced blocks of a language, each with the number of its first line."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start()) + 2, match[1]) for match in found]


def all_blocks(language: str) -> list[object]:
    """Those of all pages, as parameters of tests; the page of constructs has tests of its own."""
    pages = [page for page in PAGES if page.name != "constructs.md"]
    return [pytest.param(code, id=f"{page.name}:{line}") for page in pages for line, code in blocks(page, language)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for line, code in blocks(page, "python"):
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), names)


@pytest.mark.parametrize("code", all_blocks("tc"))
def test_programs_compile(code: str) -> None:
    assert grammar.define(code, "<block>")
    assert tcomp.define(code)


def can_run(words: list[str]) -> bool:
    """Whether this machine has what a command needs: a compiler, an emulator, a minute without others."""
    if words == ["tcomp", "calibrate"]:
        return False
    if any(word.startswith("cpu:") for word in words):
        try:
            check_available(next(word for word in words if word.startswith("cpu:")))
        except TargetError:
            return False
    if words[1] == "simulate":
        return bool(tcomp.targets()["simulator"])
    if "opencl" in words:
        return bool(tcomp.targets()["opencl"])
    if any(word.startswith("hip:") for word in words) and "--emit" in words:
        return "checks texts" in tcomp.targets()["hip"].detail
    if "resources" in words:
        try:
            nvrtc.find()
        except TargetError:
            return False
    return True


@pytest.mark.parametrize("code", all_blocks("sh"))
def test_commands_succeed(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line in code.splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["tcomp"]:
            if can_run(words):
                assert cli.main(words[1:]) == 0, line
        elif words[:1] == ["make"]:
            makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
            assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE), line


def test_the_note_on_promotion_shows_what_its_commands_print(capsys: pytest.CaptureFixture[str]) -> None:
    page = ROOT / "docs" / "promotion.md"
    ((_, commands),) = blocks(page, "sh")
    for line in commands.splitlines():
        assert cli.main(shlex.split(line)[1:]) == 0
    printed = capsys.readouterr().out
    shown = blocks(page, "text") + blocks(page, "cuda")
    pieces = [piece for _, block in shown for piece in block.split("...\n")]
    assert len(pieces) > len(shown)
    for piece in pieces:
        assert piece in printed


def stages(target: str) -> dict[str, str]:
    """Those of the product that the page on the architecture follows, on machines that do not depend on this one."""
    function = grammar.define("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }")["mm"]
    backend = CPU if target == "cpu" else CudaBackend(gpu_of("sm_90"))
    return lower(function, Sizes({"M": 512, "N": 512, "K": 512}), MappingOptions(), backend).stages


def test_the_page_on_the_architecture_shows_what_the_stages_print() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```text (\w+):(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    printed = {target: stages(target) for target in ("cpu", "cuda")}
    assert {target for target, _, _ in shown} == {"cpu", "cuda"} and len(shown) > 10
    for target, stage, block in shown:
        rest = " ".join(printed[target][stage].split())
        for piece in re.split(r"^ *\.\.\.\n", block, flags=re.MULTILINE):
            before, found, rest = rest.partition(" ".join(piece.split()))
            assert found or not piece.strip(), f"{target}:{stage} does not print:\n{piece}\nafter:\n{before[:2000]}"


def test_the_readme_quotes_what_was_measured() -> None:
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    cases = ratios.gpu_ratios(json.loads(pictures.SPEED.read_text(encoding="utf-8")))
    ahead = sum(case.ratio >= 1 for case in cases)
    assert f"on {ahead} of {len(cases)} kernels" in readme
    assert f"{ratios.mean(cases):.2f} times as long" in readme
    latest = next(run for run in results_page.runs(ROOT / "benchmarks" / "results") if run.found.get("suite") == "w")
    assert f"tcomp is {latest.found['summary']['against_best']:.1f} times as fast as the best" in readme


def test_the_page_on_debugging_shows_the_debug_table() -> None:
    text = (ROOT / "docs" / "debugging.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(TCOMP_\w+)` \| (.*?) \| (.*) \|$", text, re.MULTILINE)
    assert rows == [(variable.name, variable.values, variable.help) for variable in debug.VARIABLES]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_pages_name_are_there(page: Path) -> None:
    named = re.findall(
        r"`((?:tcomp|mapping|grammar|tests|benchmarks|examples|docs)/[\w./-]+\.\w+)`", page.read_text("utf-8")
    )
    assert [name for name in named if "NAME" not in name and not (ROOT / name).exists()] == []


def test_every_folder_says_what_lives_there() -> None:
    folders = [path for top in ("tcomp", "mapping", "grammar") for path in (ROOT / top).rglob("__init__.py")]
    short = [str(path) for path in folders if len(ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "") < 60]
    assert short == []
    crowded = {str(path.parent): len(list(path.parent.glob("*.py"))) for path in folders}
    assert {folder: count for folder, count in crowded.items() if count > MOST_FILES} == {}
