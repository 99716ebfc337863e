from __future__ import annotations

import concurrent.futures
import io
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tcomp import debug
from tcomp.errors import TcompError

STAGES = {"input": "def f() {}", "scop": "[] -> {}", "schedule": "domain: 1", "tile": "domain: 1", "kernel": "int f;"}


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in debug.VARIABLES:
        monkeypatch.delenv(variable.name, raising=False)


def dump(directory: Path, stages: dict[str, str] = STAGES) -> Path | None:
    return debug.write_dump(directory, "f-1a2b", stages, '{"tile_sizes": null}', "print(1)\n")


def test_nothing_is_on_by_default() -> None:
    assert debug.level() == 0
    assert debug.dump_directory() is None
    assert not debug.check_every_pass()
    assert not debug.interpret()
    assert debug.cache_enabled()
    assert debug.cache_directory() is None
    assert not debug.print_tuning()


@pytest.mark.parametrize("stream", ["full", "closed", "none"])
def test_messages_that_nobody_can_read_stop_nothing(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCOMP_DEBUG", "1")
    with Path("/dev/full" if stream == "full" else os.devnull).open("wb", buffering=0) as file:
        text = io.TextIOWrapper(file, write_through=True)
        monkeypatch.setattr(sys, "stderr", None if stream == "none" else text)
        if stream == "closed":
            text.close()
        debug.log(1, "compiled")
        with suppress(OSError):
            text.close()


def test_variables_are_read_on_each_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TCOMP_DEBUG", "3")
    monkeypatch.setenv("TCOMP_DUMP", str(tmp_path))
    monkeypatch.setenv("TCOMP_CACHE", str(tmp_path / "c"))
    monkeypatch.setenv("TCOMP_INTERPRET", "1")
    assert (debug.level(), debug.dump_directory(), debug.cache_directory()) == (3, tmp_path, tmp_path / "c")
    assert debug.interpret()
    monkeypatch.setenv("TCOMP_INTERPRET", "0")
    assert not debug.interpret()


def test_cache_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCOMP_CACHE", "0")
    assert not debug.cache_enabled()
    assert debug.cache_directory() is None


@pytest.mark.parametrize(("name", "value"), [("TCOMP_DEBUG", "5"), ("TCOMP_DEBUG", "loud"), ("TCOMP_CHECK", "yes")])
def test_bad_values_name_the_variable(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(TcompError, match=name):
        debug.level() if name == "TCOMP_DEBUG" else debug.check_every_pass()


def test_messages_appear_from_their_level_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TCOMP_DEBUG", "2")
    debug.log(2, "tile: 1.0 ms")
    debug.log(3, "the tree")
    captured = capsys.readouterr()
    assert captured.err == "tcomp: tile: 1.0 ms\n"
    assert captured.out == ""


def test_a_dump_reads_in_pipeline_order(tmp_path: Path) -> None:
    folder = dump(tmp_path)
    assert folder == tmp_path / "f-1a2b"
    assert sorted(os.listdir(folder)) == [
        "00-input.tc", "01-scop.isl", "02-schedule.toml", "03-tile.toml", "04-kernel.c", "options.json", "repro.py",
    ]  # fmt: skip
    assert (folder / "02-schedule.toml").read_text() == "domain: 1\n"
    assert (folder / "03-tile.toml").read_text() == "(unchanged)\n"
    assert (folder / "repro.py").read_text() == "print(1)\n"


def test_the_kernel_has_the_suffix_of_its_language() -> None:
    assert list(debug.dump_files({"input": "", "kernel": "x"}, "cu")) == ["00-input.tc", "01-kernel.cu"]


def test_equal_dumps_share_a_folder_and_others_get_a_number(tmp_path: Path) -> None:
    assert dump(tmp_path) == dump(tmp_path)
    assert dump(tmp_path, STAGES | {"kernel": "int g;"}) == tmp_path / "f-1a2b-2"
    assert sorted(os.listdir(tmp_path)) == ["f-1a2b", "f-1a2b-2"]


def test_concurrent_dumps_are_each_whole(tmp_path: Path) -> None:
    programs = [STAGES | {"kernel": f"int f{n % 4};" * 1000} for n in range(24)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        folders = {folder for folder in pool.map(lambda stages: dump(tmp_path, stages), programs) if folder}
    kernels = {(folder / "04-kernel.c").read_text().strip() for folder in folders}
    assert kernels == {stages["kernel"] for stages in programs}
    assert {folder.name for folder in folders} == set(os.listdir(tmp_path))


def test_a_place_that_cannot_be_written_only_warns(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="no dump of f-1a2b in .*file"):
        assert dump(tmp_path / "file") is None


def test_names_cannot_leave_the_directory(tmp_path: Path) -> None:
    folder = debug.write_dump(tmp_path, "../../mm(M=64, K=3)", {"../x": "1"}, "{}", "")
    assert folder == tmp_path / "mm-M=64-K=3"
    assert sorted(os.listdir(folder)) == ["00-x.toml", "options.json", "repro.py"]
