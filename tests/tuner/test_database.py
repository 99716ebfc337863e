"""The file that tuned results are kept in: many processes, damage, other users, moving between machines."""

from __future__ import annotations

import json
import math
import multiprocessing
import sqlite3
import stat
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tcomp.cli import main
from tcomp.errors import TcompError
from tcomp.mapping.options.options import MappingOptions
from tcomp.tuner.database.database import Counts, Database, TuningWarning
from tcomp.tuner.database.exchange import export_to, import_from
from tcomp.tuner.database.file import database_path, look_up, open_database
from tcomp.tuner.database.identity import Identity, identity_of
from tcomp.tuner.database.records import Tuned, trial_from_plain, trial_to_plain, tuned_from_plain, tuned_to_plain
from tcomp.tuner.database.trials import Candidate, Compiled, Outcome, Trial
from tests.tuner.problems import MM, SCALE, problem, tiled, trial


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "tuned.sqlite3"
    monkeypatch.setenv("TCOMP_TUNED", str(path))
    return path


def identity(text: str = MM, device: str = "a device", **sizes: int) -> Identity:
    return identity_of(problem(text, device, **sizes).specialisation, device)


def tuned(of: Identity | None = None, options: MappingOptions | None = None, seconds: float = 1.0) -> Tuned:
    return Tuned(of or identity(), "mm(M=16)", options or tiled(8, 8), (seconds,), (2.0,), True, 7, 1000.0, "here")


def test_what_is_kept_is_found_by_every_process(file: Path) -> None:
    with Database(file) as database:
        database.keep(tuned())
    found = look_up(identity())
    assert found == tuned()
    assert found is not None and found.speedup == 2.0
    assert look_up(identity(M=8, K=16, N=16)) is None


def test_a_file_is_named_by_its_text_as_well(file: Path) -> None:
    with Database(str(file)) as database:
        database.add(identity(), "mm", trial(tiled(8)))
        assert database.path == file
    with Database(file) as database:
        assert [t.options for t in database.trials(identity())] == [tiled(8)]


def test_a_later_result_takes_the_place_of_an_earlier_one(file: Path) -> None:
    with Database(file) as database:
        database.keep(tuned(options=tiled(4)))
        database.keep(tuned(options=tiled(16)))
        assert [t.options for t in database.tuned()] == [tiled(16)]


def test_trials_come_back_as_they_were_in_order(file: Path) -> None:
    trials = [
        trial(tiled(4)),
        trial(MappingOptions(recompute_limit=math.inf), outcome=Outcome.CRASHED),
        trial(tiled(8)),
    ]
    with Database(file) as database:
        for t in trials:
            database.add(identity(), "mm", t)
        assert database.trials(identity()) == trials
        assert database.trials(identity(device="another")) == []


def test_other_problems_on_the_same_device_are_related(file: Path) -> None:
    with Database(file) as database:
        database.add(identity(), "mm", trial(tiled(4)))
        database.add(identity(M=8, K=8, N=8), "mm", trial(tiled(2)))
        database.add(identity(SCALE), "scale", trial(tiled(1)))
        database.add(identity(SCALE, "another"), "scale", trial(tiled(3)))
        related = database.related(identity(), 10, 10)
        assert [(i, [t.options for t in ts]) for i, ts in related] == [
            (identity(SCALE), [tiled(1)]),
            (identity(M=8, K=8, N=8), [tiled(2)]),
        ]
        assert len(database.related(identity(), 1, 10)) == 1


def test_of_related_problems_the_latest_that_ran_are_taken(file: Path) -> None:
    with Database(file) as database:
        for n in range(6):
            database.add(identity(SCALE), "scale", trial(tiled(n)))
            database.add(identity(SCALE), "scale", trial(tiled(n, n), outcome=Outcome.CRASHED))
        ((_, trials),) = database.related(identity(), 10, 3)
    assert [t.options for t in trials] == [tiled(3), tiled(4), tiled(5)]


def test_the_nearest_sizes_come_first_and_only_the_same_program(file: Path) -> None:
    with Database(file) as database:
        for m in (16, 32, 1024, 64):
            database.keep(tuned(identity(M=m, K=16, N=16), tiled(m)))
        database.keep(tuned(identity(device="another", M=33, K=16, N=16), tiled(33)))
        database.keep(tuned(identity(SCALE), tiled(1)))
        near = database.near(identity(M=32, K=16, N=16), 4)
    assert [t.options.tile_sizes for t in near] == [(16,), (64,), (1024,), (33,)]


def test_a_run_is_found_again_until_it_has_ended(file: Path) -> None:
    with Database(file) as database:
        run = database.begin(identity(), "mm", "60 s")
        database.note(run, 12.5)
        assert database.unfinished(identity(), "60 s") == (run, 12.5)
        assert database.unfinished(identity(), "10 s") is None
        database.note(run, 60.0, ended=True)
        assert database.unfinished(identity(), "60 s") is None


def test_a_file_that_is_being_written_is_waited_for(file: Path) -> None:
    """Whoever comes second while the first makes the tables: SQLite gives up at once there."""
    other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    end = threading.Timer(0.2, other.execute, ("COMMIT",))
    end.start()
    with Database(file) as database:
        assert database.counts() == Counts()
    end.join()
    other.close()


def _add_many(path: Path, number: int) -> None:
    with Database(path) as database:
        for step in range(25):
            database.add(identity(), "mm", trial(tiled(number, step)))
            database.keep(tuned(identity(M=number, K=step + 1, N=1)))


@pytest.mark.long
def test_processes_write_at_the_same_time(file: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_add_many, args=(file, number)) for number in (1, 2, 3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [p.exitcode for p in processes] == [0, 0, 0]
    with Database(file) as database:
        assert database.counts() == Counts(75, 75)
        assert {t.options.tile_sizes for t in database.trials(identity())} == {
            (number, step) for number in (1, 2, 3) for step in range(25)
        }


def test_a_damaged_file_is_moved_aside_and_a_new_one_begun(file: Path) -> None:
    with Database(file) as database:
        database.keep(tuned())
    file.write_bytes(b"this is no database, whatever its name says" * 100)
    with pytest.warns(TuningWarning, match="cannot look for tuned options"):
        assert look_up(identity()) is None
    with pytest.warns(TuningWarning, match="is damaged"), open_database() as database:
        database.keep(tuned())
    assert look_up(identity()) == tuned()
    assert len(list(file.parent.glob("tuned-damaged-*.sqlite3"))) == 1


def test_pages_overwritten_in_the_middle_are_noticed(file: Path) -> None:
    with Database(file) as database:
        for step in range(300):
            database.add(identity(), "mm", trial(tiled(step)))
    content = bytearray(file.read_bytes())
    content[4096 * 3 : 4096 * 8] = b"\xff" * (4096 * 5)
    file.write_bytes(content)
    with pytest.warns(TuningWarning, match="is damaged"), open_database() as database:
        assert database.counts() == Counts(0, 0)


def test_a_file_that_others_may_write_is_not_believed(file: Path) -> None:
    with Database(file) as database:
        database.keep(tuned())
    file.chmod(0o666)
    with pytest.warns(TuningWarning, match="others may have written it"):
        assert look_up(identity()) is None
    with pytest.warns(TuningWarning, match="others may have written it"), open_database() as database:
        assert database.path is None
    file.chmod(0o600)
    assert look_up(identity()) == tuned()


def test_a_link_is_not_followed(file: Path, tmp_path: Path) -> None:
    with Database(tmp_path / "other.sqlite3") as database:
        database.keep(tuned())
    file.symlink_to(tmp_path / "other.sqlite3")
    with pytest.warns(TuningWarning, match="not a regular file"):
        assert look_up(identity()) is None


def test_the_file_is_the_users_own(file: Path) -> None:
    with open_database():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_file_of_a_later_format_is_left_alone(file: Path) -> None:
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    file.chmod(0o600)
    before = file.read_bytes()
    with pytest.warns(TuningWarning, match="format 99"), open_database() as database:
        assert database.path is None
    assert file.read_bytes() == before


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TCOMP_TUNED", raising=False)
    monkeypatch.setenv("TCOMP_CACHE", str(tmp_path / "cache"))
    path = database_path()
    assert path is not None and path.parent == tmp_path / "cache"
    monkeypatch.setenv("TCOMP_CACHE", "0")
    assert database_path() is None
    with open_database() as database:
        database.keep(tuned())
        assert database.best(identity()) == tuned()
    monkeypatch.setenv("TCOMP_TUNED", str(tmp_path / "mine"))
    assert database_path() == tmp_path / "mine"
    monkeypatch.setenv("TCOMP_TUNED", "0")
    assert database_path() is None


def _fill(database: Database) -> None:
    for step in range(200):
        database.add(identity(), "mm", trial(tiled(step)))


def test_a_full_disk_gives_a_warning_and_the_run_goes_on(file: Path) -> None:
    with Database(file) as database:
        database._connection.execute("PRAGMA max_page_count = 1")
        with pytest.warns(TuningWarning, match="full"):
            _fill(database)


def test_a_file_that_others_write_all_the_time_gives_a_warning_and_the_run_goes_on(file: Path) -> None:
    with Database(file) as database:
        database._connection.execute("PRAGMA busy_timeout = 10")
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.warns(TuningWarning, match="locked"):
            run = database.begin(identity(), "mm", "60 s")
        database.add(identity(), "mm", trial(tiled(4)), run, 1.0)
        database.keep(tuned())
        database.note(run, 2.0, ended=True)
        assert database.tuned() == [] and database.trials(identity()) == []
        other.execute("ROLLBACK")
        other.close()
        database.add(identity(), "mm", trial(tiled(4)), run, 3.0)
        assert len(database.trials(identity())) == 1


def test_a_file_that_is_damaged_meanwhile_gives_a_warning_and_the_run_goes_on(file: Path) -> None:
    with Database(file) as database:
        database.keep(tuned())
        database._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        file.write_bytes(b"\xff" * file.stat().st_size)
        database._connection.execute("PRAGMA shrink_memory")
        with pytest.warns(TuningWarning, match="cannot keep what tuning finds in .*file is not a database"):
            assert database.known(identity()) is None
        database.keep(tuned())


class Interrupting:
    """A connection on which an interrupt comes as soon as a statement is done."""

    def __init__(self, connection: sqlite3.Connection, statement: str) -> None:
        self._connection = connection
        self._statement = statement

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        done = self._connection.execute(statement, *values)
        if statement.startswith(self._statement):
            raise KeyboardInterrupt
        return done


@pytest.mark.parametrize("statement", ["BEGIN", "INSERT", "COMMIT"])
def test_a_transaction_that_is_interrupted_is_over(
    statement: str, file: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    with Database(file) as database:
        with monkeypatch.context() as patch:
            patch.setattr(database, "_connection", Interrupting(database._connection, statement))
            with pytest.raises(KeyboardInterrupt):
                database.add(identity(), "mm", trial(tiled(4)))
        database.add(identity(), "mm", trial(tiled(8)))
        assert database.trials(identity())[-1].options == tiled(8)
        assert len(database.trials(identity())) == (2 if statement == "COMMIT" else 1) and not recwarn


def test_export_and_import_move_everything(file: Path, tmp_path: Path) -> None:
    with Database(file) as database, Database() as other:
        database.keep(tuned())
        database.add(identity(), "mm", trial(MappingOptions(recompute_limit=math.inf)))
        assert export_to(database, tmp_path / "plain.json") == Counts(1, 0)
        assert export_to(database, tmp_path / "all.json", trials=True) == Counts(1, 1)
        assert import_from(other, tmp_path / "all.json") == Counts(1, 1)
        assert other.tuned() == database.tuned()
        assert other.trials(identity()) == database.trials(identity())
        assert import_from(other, tmp_path / "all.json") == Counts(0, 0)
        assert other.counts() == Counts(1, 1)


def test_merging_keeps_the_faster_and_the_confirmed(tmp_path: Path) -> None:
    fast, slow = tuned(options=tiled(1), seconds=1.0), tuned(options=tiled(2), seconds=1.5)
    unconfirmed = replace(tuned(options=tiled(3), seconds=0.1), confirmed=False)
    for there, comes, stays in (
        (slow, fast, fast),
        (fast, slow, fast),
        (slow, unconfirmed, slow),
        (unconfirmed, slow, slow),
    ):
        with Database() as one, Database() as other:
            one.keep(comes)
            export_to(one, tmp_path / "file.json")
            other.keep(there)
            import_from(other, tmp_path / "file.json")
            assert other.tuned() == [stays]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "it is not JSON"),
        ("[]", "no export"),
        ('{"tcomp-tuned": 99, "tuned": []}', "no export"),
        ('{"tcomp-tuned": 1}', "tuned"),
        ('{"tcomp-tuned": 1, "tuned": [{}]}', "not a tuned result"),
        ('{"tcomp-tuned": 1, "tuned": 5}', "cannot import"),
        ("[" * 100_000, "it is not JSON"),
    ],
)
def test_what_is_no_export_is_an_error(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "file.json"
    path.write_text(content)
    with Database() as database, pytest.raises(TcompError, match=message):
        import_from(database, path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("options", {"tile_sizes": "many"}),
        ("options", {"no_such_option": 1}),
        ("times", [0.0]),
        ("times", [math.nan]),
        ("times", 1.0),
        ("sizes", {"s0": "4"}),
        ("strides", {"t0": [1.5]}),
        ("when", True),
        ("when", 10**400),
        ("when", math.nan),
        ("times", [10**400]),
        ("trials", 1 << 63),
        ("sizes", {"s0": 1 << 63}),
        ("label", "\ud800"),
        ("program", 4),
    ],
)
def test_a_result_with_a_wrong_part_is_refused(name: str, value: object) -> None:
    plain = tuned_to_plain(tuned())
    assert tuned_from_plain(plain) == tuned()
    with pytest.raises(TcompError):
        tuned_from_plain(plain | {name: value})


def test_a_trial_survives_json() -> None:
    refused = Compiled(Candidate(tiled(4), "random"), "", (), 0.5, "no memory", Outcome.OUT_OF_MEMORY)
    for t in (
        replace(trial(tiled(4)), baseline=2.0),
        trial(tiled(4), outcome=Outcome.HUNG),
        Trial(refused, Outcome.OUT_OF_MEMORY, message="no memory"),
    ):
        assert trial_from_plain(json.loads(json.dumps(trial_to_plain(t)))) == t
    with pytest.raises(TcompError):
        trial_from_plain(trial_to_plain(trial(tiled(4))) | {"outcome": "lost"})


def test_pruning(file: Path) -> None:
    old = replace(identity(), version="0.0")
    with Database(file) as database:
        for of in (identity(), old):
            database.keep(tuned(of))
            database.add(of, "mm", trial(tiled(4)))
        assert database.prune() == Counts(1, 1)
        assert [t.identity for t in database.tuned()] == [identity()]
        assert database.prune(trials=True) == Counts(0, 1)
        assert database.counts() == Counts(1, 0)
        assert database.prune(everything=True) == Counts(1, 0)


def test_the_number_of_a_run_that_was_pruned_is_not_given_again(file: Path) -> None:
    with Database(file) as database:
        pruned = database.begin(identity(), "mm", "60 s")
        database.prune(trials=True)
        run = database.begin(identity(), "mm", "60 s")
        database.add(identity(), "mm", trial(tiled(4)), pruned, 59.0)
        database.note(pruned, 60.0, ended=True)
        assert database.unfinished(identity(), "60 s") == (run, 0.0)


def test_a_result_with_an_option_that_is_no_more_is_as_good_as_none(file: Path) -> None:
    with Database(file) as database:
        database.keep(tuned())
        database._connection.execute("UPDATE tuned SET options = '{\"gone\": 1}'")
        assert database.best(identity()) is None
        assert database.tuned() == []


DEEP = "[" * 100_000
PLANTED: list[tuple[str, str, object]] = [
    *[("tuned", column, value) for column in ("times", "baseline") for value in ('{"a": 1}', "[0]", '["x"]', DEEP)],
    *[("tuned", "times", f"[1{'0' * digits}]") for digits in (400, 5000)],
    *[("tuned", "options", value) for value in (DEEP, f'{{"tile_sizes": {DEEP}', "null")],
    *[("tuned", column, value) for column in ("at", "trials", "worker") for value in (b"\xff", math.inf)],
    *[("problems", column, value) for column in ("sizes", "strides") for value in ("null", '{"s0": null}', DEEP, b"x")],
    *[("problems", column, b"\xff") for column in ("program", "target", "device", "version", "label")],
    ("trials", "record", DEEP),
    ("trials", "record", "[]"),
    ("runs", "spent", "x"),
]


@pytest.mark.parametrize("number", range(len(PLANTED)))
def test_rows_that_nobody_wrote_are_as_good_as_none(number: int, file: Path, tmp_path: Path) -> None:
    table, column, value = PLANTED[number]
    other, sound = identity(M=8, K=16, N=16), identity(M=4, K=16, N=16)
    with Database(file) as database:
        for kept in (identity(), sound):
            database.keep(tuned(kept))
            database.add(kept, "mm", trial(tiled(4)))
            database.begin(kept, "mm", "60 s")
        number_of = "id" if table == "problems" else "problem"
        database._connection.execute(f"UPDATE {table} SET {column} = ? WHERE {number_of} = 1", (value,))
        assert {t.identity for t in database.near(other, 5)} >= {sound}
        assert database.related(other, 5, 5)[0] == (sound, database.trials(sound))
        assert database.trials(identity()) in ([], database.trials(sound))
        assert all(spent == 0.0 for _, spent in filter(None, [database.unfinished(identity(), "60 s")]))
        found = database.best(identity())
        assert found is None or (found.speedup, found.when) == (2.0, 1000.0)
        assert export_to(database, tmp_path / "export.json", trials=True).tuned >= 1
    with Database() as fresh:
        assert import_from(fresh, tmp_path / "export.json").tuned >= 1
    assert main(["tuned", "ls"]) == 0
