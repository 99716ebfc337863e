"""Homes, directories, limits and compilers in whatever state: kernels work, or the error says what is wrong."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.host import processes, toolchain
from tests.hostile.subprocesses import PRELUDE, ROOT, environment, run

pytestmark = pytest.mark.sweep(8, rest=4)

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
A = np.arange(12, dtype=np.float32).reshape(3, 4)
B = np.arange(20, dtype=np.float32).reshape(4, 5)

WORKING = (
    PRELUDE
    + """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for text in (MM, MM.replace("* B", "+ B")):
        try: assert tc.define(text).mm(A, B).shape == (3, 5)
        except tc.TcompError as error: print("refused", error)
    check()
print(len(caught), *(w.message for w in caught))
"""
)

LISTING = """
import tcomp_command
errors = os.memfd_create("errors")
child = os.fork()
if child == 0:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(errors, 2)
    sys.argv = ["tcomp", "cache", "ls"]
    status = 1
    try: status = tcomp_command.main()
    finally: os._exit(status)
_, status = os.waitpid(child, 0)
said = os.pread(errors, 10000, 0)
assert status == 0 and b"Traceback" not in said, said
"""
"""`tcomp cache ls` in a process that has done nothing yet but import tcomp."""

CACHES: dict[str, tuple[str, int]] = {
    "a file": ("{file}", 1),
    "below a file": ("{file}/cache", 1),
    "a device": ("/dev/null", 1),
    "a pipe": ("{pipe}", 1),
    "a link to nothing": ("{link}", 1),
    "a link to itself": ("{loop}/x", 1),
    "blanks": ("{folder}/with blanks ", 0),
    "quotes": ('{folder}/it\'s "quoted" `$HOME` $(ls)', 0),
    "a line break": ("{folder}/two\nlines", 0),
    "letters of the world": ("{folder}/Füße 编译器 🙂", 0),
    "bytes that are no text": ("{folder}/\udcff\udcfe", 0),
    "braces": ("{folder}/{{}}%s%n", 0),
    "a long name": ("{folder}/" + "x" * 300, 1),
    "a long path": ("{folder}" + "/xxxxxxxxx" * 600, 1),
    "a relative path": ("cache/../cache", 0),
    "a tilde": ("~/cache", 1),
    "a dash": ("-rf", 0),
    "off": ("0", 0),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with things that are no directories."""
    (tmp_path / "file").write_text("mine")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "nothing" / "there")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "folder").mkdir()
    return tmp_path


def _named(text: str, folder: Path) -> str:
    return text.format(**{name: folder / name for name in ("file", "pipe", "link", "loop", "folder")})


def _in_folder(folder: Path) -> str:
    return f"import os; os.chdir({str(folder)!r})\n"


@pytest.mark.parametrize("name", CACHES)
def test_directories_for_the_cache(name: str, folder: Path) -> None:
    text, warned = CACHES[name]
    program = _in_folder(folder / "folder") + PRELUDE + LISTING + WORKING
    output = run(program, {"TCOMP_CACHE": _named(text, folder)})
    assert output.startswith(f"{warned} ") or output == f"{warned}\n", output
    assert (folder / "file").read_text() == "mine"


HOMES: dict[str, dict[str, str | None]] = {
    "none that exists": {"HOME": "/dev/null/home", "XDG_CACHE_HOME": None},
    "a file": {"HOME": "{file}", "XDG_CACHE_HOME": None},
    "relative": {"HOME": ".", "XDG_CACHE_HOME": None},
    "XDG_CACHE_HOME relative": {"HOME": "{folder}", "XDG_CACHE_HOME": "somewhere"},
    "XDG_CACHE_HOME empty": {"HOME": "{folder}", "XDG_CACHE_HOME": ""},
    "XDG_CACHE_HOME blank": {"HOME": "{folder}", "XDG_CACHE_HOME": " "},
    "XDG_CACHE_HOME a file": {"HOME": "{folder}", "XDG_CACHE_HOME": "{file}"},
    "XDG_CACHE_HOME a device": {"HOME": "{folder}", "XDG_CACHE_HOME": "/dev/null"},
}


@pytest.mark.parametrize("name", HOMES)
def test_homes(name: str, folder: Path) -> None:
    changes = {key: None if value is None else _named(value, folder) for key, value in HOMES[name].items()}
    output = run(_in_folder(folder / "folder") + WORKING, changes | {"TCOMP_CACHE": None})
    assert output[:2] in ("0\n", "1 "), output


def test_no_home_and_an_unknown_user(tmp_path: Path) -> None:
    program = "import pwd\ndef unknown(number): raise KeyError(number)\npwd.getpwuid = unknown\n" + WORKING
    changes = {"HOME": None, "XDG_CACHE_HOME": None, "TCOMP_CACHE": None}
    output = run(_in_folder(tmp_path) + program, changes)
    assert output.startswith("1 no cache"), output
    assert not list(tmp_path.iterdir())


TEMPORARY = ["{file}", "{folder}/nothing", "/dev/null", "/proc", "{pipe}", "", "relative"]


@pytest.mark.parametrize("text", TEMPORARY)
def test_directories_for_temporary_files(text: str, folder: Path) -> None:
    changes = {"TMPDIR": _named(text, folder), "TCOMP_CACHE": str(folder / "cache")}
    assert run(_in_folder(folder / "folder") + WORKING, changes) == "0\n"


@pytest.mark.long
def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    """With a cache that is named relative to it."""
    (tmp_path / "gone").mkdir()
    program = _in_folder(tmp_path / "gone") + f"os.rmdir({str(tmp_path / 'gone')!r})\n" + WORKING
    assert run(program, {"TCOMP_CACHE": str(tmp_path / "cache")}) == "0\n"
    relative = program.replace("import os;", "import os; os.environ['TCOMP_CACHE'] = 'cache';", 1)
    (tmp_path / "gone").mkdir()
    assert run(relative, {}).startswith("1 no cache: No such file")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("mode", [0o555, 0o000])
def test_a_read_only_home(mode: int, tmp_path: Path) -> None:
    """Root may write everywhere, so the process becomes nobody, who may not be let into the folder of the sources."""
    home = Path(tempfile.mkdtemp(prefix="tcomp-test-", dir="/tmp"))
    try:
        (home / "scratch").mkdir()
        (home / "scratch").chmod(0o1777)
        home.chmod(0o755)
        (home / "home").mkdir(mode=mode)
        become = "import islpy, tempfile; os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        for top in ("tcomp", "grammar", "mapping"):
            shutil.copytree(ROOT / top, home / "source" / top, symlinks=True)
        readable = f"import sys; sys.path.insert(0, {str(home / 'source')!r})\n"
        begin, _, rest = WORKING.partition("with warnings")
        changes = {
            "HOME": str(home / "home"),
            "TMPDIR": str(home / "scratch"),
            "XDG_CACHE_HOME": None,
        }
        output = run(f"{readable}{begin}check\n{become}with warnings{rest}", changes | {"TCOMP_CACHE": None})
        assert output.startswith("1 no cache in") and "ermission" in output, output
    finally:
        shutil.rmtree(home)


def _mounted(options: str, folder: Path, program: str) -> subprocess.CompletedProcess[bytes]:
    """Run a program that sees a small file system of its own at a folder; skips where nobody may mount one."""
    namespace = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    mount = f"mount -t tmpfs -o {options} none {folder}"
    if (
        shutil.which("unshare") is None
        or subprocess.run([*namespace, "sh", "-c", mount], capture_output=True, check=False).returncode
    ):
        pytest.skip("file systems cannot be mounted here")
    command = f'{mount} && exec {sys.executable} -c "$PROGRAM"'
    changes = {"PROGRAM": program, "TCOMP_CACHE": str(folder / "cache"), "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*namespace, "sh", "-c", command], env=environment(changes), capture_output=True, timeout=100, check=False
    )


@pytest.mark.parametrize("kilobytes", [8, 16, 24, 32, 48, 64])
def test_a_disk_that_gets_full(kilobytes: int, tmp_path: Path) -> None:
    """The compiler fails and says so, or the kernel runs; nothing wrong is kept."""
    done = _mounted(f"size={kilobytes}k", tmp_path, WORKING.replace("    check()\n", ""))
    assert done.returncode == 0, done.stderr
    assert b"No space left" in done.stdout or done.stdout in (b"0\n",), done.stdout


def test_a_disk_from_which_nothing_may_be_executed(tmp_path: Path) -> None:
    done = _mounted("size=8m,noexec", tmp_path, WORKING)
    assert (done.returncode, done.stdout) == (0, b"0\n"), done.stderr


def test_few_descriptors(tmp_path: Path) -> None:
    """With none left up to some: a TcompError or the right result, and no descriptor is lost."""
    program = (
        PRELUDE
        + """
import resource
check()
used = max(map(int, os.listdir("/proc/self/fd")))
count = len(os.listdir("/proc/self/fd"))
outcomes = []
for spare in range(0, 14):
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + spare, 4096))
    try:
        result = tc.define(MM).mm(np.ones((spare + 4, 4), np.float32), B)
        assert result.shape == (spare + 4, 5)
        outcomes.append("right")
    except tc.TcompError: outcomes.append("refused")
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
assert len(os.listdir("/proc/self/fd")) <= count
check()
assert tc.define(MM).mm(np.ones((4, 4), np.float32), B).shape == (4, 5)
print(len(set(outcomes)))
"""
    )
    changes = {"TCOMP_CACHE": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    assert run(program, changes) == "2\n"


STATES = {
    "children are not waited for": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "no standard streams": "saved = os.dup(1); [os.close(n) for n in range(3)]",
    "streams set to None": "sys.stdin = sys.stderr = None",
    "files for nobody": "os.umask(0o777)",
    "files for all": "os.umask(0)",
    "blocked signals": "signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))",
    "a timer that ticks": "signal.signal(signal.SIGALRM, lambda *_: None); signal.setitimer(0, 0.001, 0.001)",
    "a handler from C": "import faulthandler; faulthandler.register(signal.SIGTERM)",
    "a small stack of threads": "threading.stack_size(64 * 1024)",
    "little room for recursion": "sys.setrecursionlimit(300)",
    "asserts off": "",
    "no locale": "import locale; locale.setlocale(locale.LC_ALL, 'C')",
    "C-contiguous by tracing": "sys.settrace(lambda *_: None)",
    "a profiler": "sys.setprofile(lambda *_: None)",
}


AFTER = """
signal.setitimer(signal.ITIMER_REAL, 0)
if "saved" in globals(): os.dup2(saved, 1)
os.write(1, b"right")
"""


@pytest.mark.parametrize("name", STATES)
def test_states_of_a_process(name: str, tmp_path: Path) -> None:
    """Whatever the program has done to its process, kernels are compiled and right."""
    begin, _, rest = WORKING.partition("with warnings")
    rest = rest.replace("print(len", "assert len(caught) <= 1, (len")
    program = f"{begin}{STATES[name]}\nwith warnings{rest}{AFTER}"
    changes = {"TCOMP_CACHE": str(tmp_path / "cache"), "PYTHONOPTIMIZE": "2" if name == "asserts off" else None}
    assert run(program, changes).endswith("right")


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where to put a compiler for the test; the cache is off."""
    monkeypatch.setenv("TCOMP_CACHE", "0")
    path = tmp_path / "the-cc"
    monkeypatch.setenv("CC", str(path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    return path


def _write(path: Path, body: str) -> None:
    """A compiler that knows its version and else does as ``body`` says."""
    path.write_text(f'#!/bin/sh\ncase "$1" in --version) exec gcc "$@";; esac\n{body}\n')
    path.chmod(0o755)


FAILING = {
    "says a lot": ('head -c 100000000 /dev/zero | tr "\\0" "x" >&2; exit 1', "exit status 1"),
    "says many lines": ("yes error | head -n 5000000 >&2; exit 1", "exit status 1"),
    "says what is no text": ("head -c 5000 /dev/urandom >&2; exit 1", "exit status 1"),
    "says nothing": ("exit 1", "exit status 1"),
    "never stops talking": ("exec yes error >&2", "did not finish"),
    "does not listen": ("exec <&-; sleep 0.1; exit 4", "exit status 4"),
    "kills itself": ("kill -KILL $$", "killed by SIGKILL"),
    "runs out of time": ("kill -XCPU $$", "killed by SIGXCPU"),
    "stops itself": ("kill -STOP $$", "did not finish"),
    "ignores signals": ("trap '' TERM INT HUP; while :; do sleep 0.1; done", "did not finish"),
    "closes its streams and sleeps": ("exec 0<&- 1>&- 2>&-; sleep 600", "did not finish"),
    "makes a directory": ('for word in "$@"; do o=$word; done; cat > /dev/null; mkdir "$o"', "gave no shared object"),
    "makes a link to nothing": ('for word in "$@"; do o=$word; done; ln -s /nothing "$o"', "gave no shared object"),
    "makes an empty file": ('for word in "$@"; do o=$word; done; : > "$o"', "cannot be loaded"),
    "removes what it made": ('gcc "$@"; for word in "$@"; do o=$word; done; rm "$o"', "gave no shared object"),
    "removes its directory": ('for word in "$@"; do o=$word; done; rm -r "${o%/*}"', "gave no shared object"),
    "makes another library": (
        'for word in "$@"; do o=$word; done; echo "int x;" | gcc -shared -x c - -o "$o"',
        "cannot be loaded",
    ),
    "makes a program": ('for word in "$@"; do o=$word; done; cp /bin/sh "$o"', "cannot be loaded"),
}


@pytest.mark.parametrize("name", FAILING)
def test_compilers_that_fail(name: str, compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the compiler and is short; nothing is left; another compiler then serves."""
    body, expected = FAILING[name]
    _write(compiler, body)
    monkeypatch.setattr(toolchain, "COMPILE_SECONDS", 2.0 if "finish" in expected else 60.0)
    before, children = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, _children()
    operation = tc.define(MM).mm
    with pytest.raises(tc.TargetError, match=expected) as caught:
        operation(A, B)
    assert len(str(caught.value)) < 100_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # in KiB
    assert not list((compiler.parent / "scratch").iterdir())
    assert _children() <= children
    monkeypatch.delenv("CC")
    np.testing.assert_array_equal(operation(A, B), A @ B)


def _children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_compilers_that_leave_something_running(compiler: Path) -> None:
    """As those that start a server for the next compilation: it is neither waited for nor killed."""
    _write(compiler, f'sleep 30 & echo $! > {compiler.parent}/server; exec gcc "$@"')
    begin = time.monotonic()
    np.testing.assert_array_equal(tc.define(MM.replace("mm", "left")).left(A, B), A @ B)
    assert time.monotonic() - begin < 25
    os.kill(int((compiler.parent / "server").read_text()), signal.SIGKILL)


def test_slow_compilers(compiler: Path) -> None:
    _write(compiler, 'sleep 2; exec gcc "$@"')
    np.testing.assert_array_equal(tc.define(MM.replace("mm", "slow")).slow(A, B), A @ B)


CUT = (
    PRELUDE
    + """
from collections import Counter
from tcomp.backends.host import native
made, open_image = [], native.open_image
def opening(image):
    made.append(image)
    return open_image(image)
native.open_image = opening
check()
image, outcomes = made[0], Counter()
for length in [0, 1, 4, 5, 16, 31, 63, 64, 65, 119, *range(128, len(image), 97)]:
    if not (child := os.fork()):
        try: open_image(image[:length])
        except OSError: os._exit(3)
        except BaseException: os._exit(1)
        os._exit(0)
    outcomes[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])] += 1
assert set(outcomes) <= {0, 3} and outcomes[3] > outcomes.total() // 2, outcomes
print("refused")
"""
)


def test_compilers_that_cut_their_output_short() -> None:
    """The dynamic linker would map what is not there, and the process would die."""
    assert run(CUT, {"TCOMP_CACHE": "0"}) == "refused\n"


@pytest.mark.parametrize("flag", ["--no-such-flag", "-fno-such-thing"])
def test_arguments_of_the_compiler_that_are_wrong(flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCOMP_CACHE", "0")
    monkeypatch.setenv("CC", f"gcc {flag}")
    with pytest.raises(tc.TargetError, match="gcc"):
        tc.define(MM).mm(A, B)


@pytest.mark.parametrize("words", ["true", "sh -c 'exit 0'", "cat", "echo", "sleep 0"])
def test_programs_that_are_no_compilers(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCOMP_CACHE", "0")
    monkeypatch.setenv("CC", words)
    with pytest.raises(tc.TargetError):
        tc.define(MM).mm(A, B)


def test_a_compiler_that_goes_away(compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(compiler, 'exec gcc "$@"')
    operation = tc.define(MM.replace("mm", "gone")).gone
    np.testing.assert_array_equal(operation(A, B), A @ B)
    compiler.unlink()
    np.testing.assert_array_equal(operation(A, B), A @ B)
    with pytest.raises(tc.TargetError, match="not a program"):
        operation(A[:2], B)
    _write(compiler, 'exec gcc "$@"')
    np.testing.assert_array_equal(operation(A[:2], B), A[:2] @ B)


def test_processes_hear_and_say_all(tmp_path: Path) -> None:
    """A text larger than any pipe goes in while messages come out."""
    text = "x" * 3_000_000
    status, heard = processes.run(
        ("sh", "-c", "echo begin; cat | wc -c; exit 7"), text, 60.0, dict(os.environ), output=True
    )
    assert (status, heard.split()) == (7, ["begin", "3000000"])
