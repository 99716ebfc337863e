"""Finding and running a C compiler, whatever state it is in, and loading what it makes."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tcomp.backends.host import images, native, toolchain
from tcomp.backends.source import Argument, Source
from tcomp.errors import TargetError
from tcomp.values.operators import INT32

ROOT = Path(__file__).parents[2]
DOUBLE = "int tcomp_double(const int *a, int *b, char *s, long long *r) { b[0] = 2 * a[0]; return 0; }\n"
PARALLEL = """
int omp_get_thread_num(void);
int omp_get_max_threads(void);
int tcomp_threads(int *b, char *s, long long *r) {
#pragma omp parallel for num_threads(2)
  for (int i = 0; i < 2; i++) b[i] = omp_get_thread_num();
  return 0;
}
"""


def source(text: str = DOUBLE, entry: str = "tcomp_double", flags: tuple[str, ...] = ()) -> Source:
    arguments = (Argument("a", INT32, (1,), (1,), "input"), Argument("b", INT32, (1,), (1,), "output"))
    return Source(text, entry, arguments, 0, (), flags)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCOMP_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files, empty."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def fake_compiler(folder: Path, body: str) -> str:
    """A program that calls itself gcc and then does as ``body`` says when it is to compile."""
    path = folder / "fake-cc"
    version = 'echo "fake 1.0"; echo "Copyright Free Software Foundation"; exit 0'
    path.write_text(f'#!/bin/sh\ncase "$1" in --version) {version};; esac\n{body}\n')
    path.chmod(0o755)
    return str(path)


def double(function: native.NativeFunction, value: int) -> int:
    given, made = ctypes.c_int32(value), ctypes.c_int32()
    assert function(ctypes.addressof(given), ctypes.addressof(made), None, None) == 0
    return made.value


def test_a_kernel_compiles_and_runs() -> None:
    assert double(native.load(source()), 21) == 42


@pytest.mark.parametrize("name", ["gcc", "clang", "zig"])
def test_every_compiler_of_this_machine(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Header-free text, threads or not, loads and runs; the process' arithmetic stays as it was."""
    command = shutil.which(name)
    if name == "zig" and (found := toolchain._zig()):
        command = f"{found} cc"
    if command is None:
        pytest.skip(f"there is no {name}")
    monkeypatch.setenv("CC", command)
    assert double(native.load(source(flags=("-ffast-math",))), 21) == 42
    function = native.load(Source(PARALLEL, "tcomp_threads", (Argument("b", INT32, (2,), (1,), "output"),), 0, (), ()))
    made = (ctypes.c_int32 * 2)(7, 7)
    function(ctypes.addressof(made), None, None)
    assert list(made) == ([0, 1] if toolchain.find().openmp else [0, 0])
    assert 5e-324 * 1.0 > 0


def test_the_compiler_says_who_it_is() -> None:
    compiler = toolchain.find()
    assert Path(compiler.command[0]).is_absolute()
    assert any(c.isdigit() for c in compiler.version)
    assert toolchain.find() is compiler


def test_cc_may_have_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = toolchain.find()
    monkeypatch.setenv("CC", f"{plain.command[0]} -DNOTHING")
    chosen = toolchain.find()
    assert chosen.command == (plain.command[0], "-DNOTHING")
    assert chosen.identity != plain.identity
    assert native.kernel_key(source(), chosen) != native.kernel_key(source(), plain)


@pytest.mark.parametrize("value", ["/no/such/compiler", "no-such-compiler -O9", "'unbalanced"])
def test_a_wrong_cc_is_an_error_not_a_fallback(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", value)
    with pytest.raises(TargetError, match="CC is"):
        toolchain.find()


def test_no_compiler_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(TargetError, match="no C compiler on this machine; install gcc or clang, or `pip install zig"):
        toolchain.find()


def test_the_wheel_is_used_where_nothing_else_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zig = tmp_path / "ziglang" / "zig"
    zig.parent.mkdir()
    zig.write_text("#!/bin/sh\necho 'clang version 99'\n")
    zig.chmod(0o755)
    (zig.parent / "__init__.py").write_text("")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin/nothing-here")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    toolchain.importlib.invalidate_caches()
    shell_path = {"PATH": "/usr/bin:/bin"}
    monkeypatch.setattr(toolchain.shutil, "which", lambda name: None)
    monkeypatch.setattr(toolchain.os, "environ", dict(os.environ) | shell_path)
    found = toolchain.find()
    assert found.command == (str(zig), "cc") and found.family is toolchain.ZIG and not found.openmp


def test_a_failing_compiler_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scratch: Path) -> None:
    monkeypatch.setenv("CC", fake_compiler(tmp_path, 'echo "fatal: no space" >&2; exit 3'))
    with pytest.raises(TargetError, match=r"(?s)fake-cc failed on kernel tcomp_double \(exit status 3\).*no space"):
        native.load(source())
    assert list(scratch.iterdir()) == []


def test_a_crashing_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", fake_compiler(tmp_path, "kill -SEGV $$"))
    with pytest.raises(TargetError, match="killed by SIGSEGV"):
        native.load(source())


def test_a_compiler_that_gives_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", fake_compiler(tmp_path, "exit 0"))
    with pytest.raises(TargetError, match="gave no shared object"):
        native.load(source())


def test_a_compiler_that_gives_rubbish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = 'while [ "$1" != "-o" ]; do shift; done; echo rubbish > "$2"'
    monkeypatch.setenv("CC", fake_compiler(tmp_path, body))
    with pytest.raises(TargetError, match="cannot be loaded"):
        native.load(source())


def test_a_compiler_that_is_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cc"
    path.write_bytes(b"\x7fELF rubbish")
    path.chmod(0o755)
    monkeypatch.setenv("CC", str(path))
    with pytest.raises(TargetError, match="cannot start"):
        toolchain.find()


def test_a_hanging_compiler_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scratch: Path
) -> None:
    children = tmp_path / "children"
    monkeypatch.setenv("CC", fake_compiler(tmp_path, f"sleep 600 & echo $! > {children}; wait"))
    monkeypatch.setattr(toolchain, "COMPILE_SECONDS", 0.5)
    with pytest.raises(TargetError, match="did not finish within"):
        native.load(source())
    assert not _is_running(int(children.read_text()))
    assert list(scratch.iterdir()) == []


def test_a_compiler_that_hangs_when_asked_for_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cc"
    path.write_text("#!/bin/sh\nsleep 600\n")
    path.chmod(0o755)
    monkeypatch.setenv("CC", str(path))
    monkeypatch.setattr(toolchain, "_IDENTIFY_SECONDS", 0.3)
    with pytest.raises(TargetError, match="did not finish"):
        toolchain.find()


INTERRUPTED = """
import os, signal, sys, tempfile, threading, time
from pathlib import Path
from tests.unit.test_toolchain import double, source
from tcomp.backends.host import native

started, tempfile.tempdir = Path(sys.argv[1]), sys.argv[2]

def interrupt():
    while not (started.exists() and started.read_text().strip()):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    native.load(source())
except KeyboardInterrupt:
    print("interrupted", os.listdir(tempfile.tempdir))
del os.environ["CC"]
print(double(native.load(source()), 4))
"""
"""In a process of its own: what other tests load may have taken SIGINT for itself."""


def test_an_interrupt_stops_the_compiler(tmp_path: Path, scratch: Path) -> None:
    started = tmp_path / "started"
    compiler = fake_compiler(tmp_path, f"echo $$ > {started}; sleep 600")
    environment = os.environ | {
        "CC": compiler,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }
    command = [sys.executable, "-c", INTERRUPTED, str(started), str(scratch)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert done.stdout.splitlines() == ["interrupted []", "8"], done.stderr
    assert not _is_running(int(started.read_text()))


def _is_running(process: int) -> bool:
    """Whether a process exists and is not one that merely waits to be reaped."""
    time.sleep(0.1)
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_without_openmp_loops_run_on_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler without OpenMP: it refuses -fopenmp, and calls itself clang, which may or may not have it."""
    real = toolchain.find().command[0]
    path = tmp_path / "cc"
    path.write_text(
        '#!/bin/sh\nif [ "$1" = --version ]; then echo "clang version 99"; exit 0; fi\n'
        'for word in "$@"; do if [ "$word" = -fopenmp ]; then echo "no omp.h" >&2; exit 1; fi; done\n'
        f'exec {real} "$@"\n'
    )
    path.chmod(0o755)
    monkeypatch.setenv("CC", str(path))
    assert not toolchain.find().openmp
    function = native.load(Source(PARALLEL, "tcomp_threads", (Argument("b", INT32, (2,), (1,), "output"),), 0, (), ()))
    made = (ctypes.c_int32 * 2)(7, 7)
    function(ctypes.addressof(made), None, None)
    assert list(made) == [0, 0]


def test_flags_of_the_source_come_last_and_are_part_of_the_key() -> None:
    compiler = toolchain.find()
    plain, fast = source(), source(flags=("-ffast-math",))
    assert native.kernel_key(plain, compiler) != native.kernel_key(fast, compiler)
    arguments = compiler.arguments(DOUBLE, ("-ffast-math",))
    assert arguments.index("-ffast-math") > arguments.index("-fno-math-errno")
    assert "-ffast-math" not in compiler.arguments(DOUBLE, ())


def test_arithmetic_is_ieee() -> None:
    """NaN and infinity compare as IEEE 754 says, and -0.0 stays negative."""
    text = (
        "int tcomp_double(const int *a, int *b, char *s, long long *r) { volatile double z = a[0];"
        " double n = z / z, i = 1 / z; b[0] = (n != n) + 2 * (i > 1e308) + 4 * (1 / -z < 0); return 0; }"
    )
    assert double(native.load(source(text)), 0) == 7


def test_every_loaded_kernel_is_its_own() -> None:
    """Descriptors are used again at once; the linker must not take one kernel for another."""
    functions = []
    for number in range(20):
        text = DOUBLE.replace("2 *", f"{number} *")
        functions.append(native.load(source(text)))
    assert [double(f, 3) for f in functions] == [3 * n for n in range(20)]
    paths = {images._unique_path(7) for _ in range(200)}
    assert len(paths) == 200 and all(os.path.normpath(p) == "/proc/self/fd/7" for p in paths)


def test_loading_leaves_no_descriptors() -> None:
    native.load(source())
    before = len(os.listdir("/proc/self/fd"))
    for number in range(10):
        native.load(source(DOUBLE.replace("2 *", f"{number + 100} *")))
    assert len(os.listdir("/proc/self/fd")) == before


def test_loading_without_anonymous_files(monkeypatch: pytest.MonkeyPatch, scratch: Path) -> None:
    monkeypatch.delattr(os, "memfd_create")
    assert double(native.load(source(DOUBLE.replace("2 *", "500 *"))), 3) == 1500
    assert list(scratch.iterdir()) == []


def test_no_place_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(TargetError, match="no directory for temporary files: No space left"):
        native.load(source(DOUBLE.replace("2 *", "700 *")))


FORKING = """
import ctypes, os, signal, sys
from tcomp.backends.host import native
from tcomp.backends.source import Argument, Source
from tcomp.values.operators import INT32
text = sys.stdin.read()
f = native.load(Source(text, "tcomp_threads", (Argument("b", INT32, (2,), (1,), "output"),), 0, (), ()))
b = (ctypes.c_int32 * 2)()
f(ctypes.addressof(b), None, None)
child = os.fork()
signal.alarm(20)
f(ctypes.addressof(b), None, None)
if child == 0:
    os._exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_parallel_kernels_run_in_forked_children() -> None:
    done = subprocess.run([sys.executable, "-c", FORKING], input=PARALLEL, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "3", done.stderr
