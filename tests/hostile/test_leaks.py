"""Calls without end: neither memory nor descriptors nor threads grow.

``python -m tests.hostile.test_leaks --calls 100000`` makes so many calls of each kind and prints what grew.

Compilations are not among them: islpy 2026.2 keeps 32 bytes for each argument that a call of isl consumes
(``intersect`` 64, ``set_tuple_name`` 32, what only looks at its arguments none).  One of a matrix product leaves 66 KB
behind.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from tests.hostile.subprocesses import PRELUDE, run

pytestmark = pytest.mark.sweep(8)

KINDS = {
    "the same arrays": "mm = tc.define(MM).mm\ndef call(number): mm(A, B)",
    "new arrays": "mm = tc.define(MM).mm\ndef call(number): mm(A + number, B)",
    "out=": "mm, C = tc.define(MM).mm, np.zeros((3, 5), np.float32)\ndef call(number): mm(A, B, out=C)",
    "a kernel": "kernel = tc.define(MM).mm.compile(A, B)\ndef call(number): kernel(A, B)",
    "large results": """
mm, big = tc.define(MM).mm, np.ones((200, 4), np.float32)
wide = np.ones((4, 200), np.float32)
def call(number): mm(big, wide)
""",
    "shapes in turn": """
mm = tc.define(MM).mm
shapes = [np.ones((m, 4), np.float32) for m in range(1, 9)]
def call(number): mm(shapes[number % 8], B)
""",
    "strides in turn": """
mm, wide = tc.define(MM).mm, np.ones((30, 40), np.float32)
views = [wide[:: m, :: n][:3, :4] for m in (1, 2, 3) for n in (1, 2)] + [wide[::-1][:3, :4], wide.T[:3, :4]]
def call(number): mm(views[number % 8], B)
""",
    "defined anew": "def call(number):\n    if number % 50 == 0: check()",
    "scalars": """
scale = tc.define("def scale(float(N) X, float s) -> (Y) { Y(i) = s * X(i) }").scale
def call(number): scale(A[0], float(number))
""",
    "wrong ranks": """
mm = tc.define(MM).mm
def call(number):
    try: mm(A[0], B)
    except tc.ShapeError: return
    raise AssertionError
""",
    "wrong extents": """
mm = tc.define(MM).mm
def call(number):
    try: mm(A, A)
    except tc.ShapeError: return
    raise AssertionError
""",
    "shapes that are wrong, all different": """
mm = tc.define(MM).mm
def call(number):
    try: mm(np.broadcast_to(A[0, 0], (3, number + 5)), B)
    except tc.ShapeError: return
    raise AssertionError
""",
    "subscripts that are outside": """
take = tc.define("def take(float(N) X, int32(M) I) -> (Y) { Y(i) = X(I(i)) where i in 0:M }").take
index = np.array([1, 99], np.int32)
def call(number):
    try: take(A[0], index)
    except tc.ShapeError: return
    raise AssertionError
""",
    "outputs that overlap": """
mm = tc.define(MM).mm
square = np.ones((4, 4), np.float32)
def call(number):
    try: mm(square, square, out=square)
    except tc.ShapeError: return
    raise AssertionError
""",
    "wrong programs": """
def call(number):
    if number % 10: return
    try: tc.define("def f(float(N) X) -> (Y) { Y(i) = Z(i) }")
    except tc.CompileError: return
    raise AssertionError
""",
    "a parallel kernel": """
mm, big = tc.define(MM).mm, np.ones((64, 64), np.float32)
def call(number): mm(big, big)
""",
    "threads that come and go": """
mm, big = tc.define(MM).mm, np.ones((96, 96), np.float32)
def call(number):
    if number % 20: return
    worker = threading.Thread(target=mm, args=(big, big))
    worker.start()
    worker.join()
""",
    "forks": """
mm = tc.define(MM).mm
mm(A, B)
def call(number):
    if number % 200: return
    child = os.fork()
    if child == 0:
        mm(A, B)
        os._exit(0)
    os.waitpid(child, 0)
""",
    "the reference": """
mm = tc.define(MM).mm
def call(number):
    if number % 10 == 0: mm.reference(A, B)
""",
    "compilers that fail": """
os.environ["CC"] = sys.argv[4]
def call(number):
    if number % 500: return
    try: tc.define(MM).mm(A, B)
    except tc.TargetError: return
    raise AssertionError
""",
    "torch": """
import torch
mm = tc.define(MM).mm
ta, tb = torch.from_numpy(A), torch.from_numpy(B)
def call(number): mm(ta, tb)
""",
    "torch with out=": """
import torch
mm = tc.define(MM).mm
ta, tb, tc_ = torch.from_numpy(A), torch.from_numpy(B), torch.zeros(3, 5)
def call(number): mm(ta, tb, out=tc_)
""",
}
"""What a call is; the expensive ones work only now and then."""

MEASURING = """
import gc, resource
page = resource.getpagesize()
def measure():
    gc.collect()
    memory = int(open("/proc/self/statm").read().split()[1]) * page
    return memory, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), threading.active_count()
calls, parts = int(sys.argv[1]), int(sys.argv[2])
warm = int(sys.argv[3])
for number in range(warm): call(number)
found = [measure()]
for part in range(parts):
    for number in range(part * calls // parts, (part + 1) * calls // parts): call(number)
    found.append(measure())
for row in found: print(*row)
"""


@dataclass(frozen=True, slots=True)
class Growth:
    """What grew after the warm-up: ``memory``, in bytes, from one measurement to another, descriptors and threads."""

    memory: tuple[int, ...]
    descriptors: int
    threads: int

    @property
    def total(self) -> int:
        """Bytes from the first measurement to the last."""
        return sum(self.memory)

    @property
    def steady(self) -> int:
        """The least growth between two measurements, in bytes: what leaks grows each time."""
        return min(self.memory)


_PARTS = 5


def grown(kind: str, calls: int, warm: int, folder: Path) -> Growth:
    """What so many calls of a row of ``KINDS`` leave behind."""
    failing = folder / "failing-cc"
    failing.write_text('#!/bin/sh\ncase "$1" in --version) exec gcc "$@";; esac\nexit 1\n')
    failing.chmod(0o755)
    arguments = [str(calls), str(_PARTS), str(warm), str(failing)]
    changes = {"TCOMP_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "4", "MALLOC_ARENA_MAX": "2"}
    rows = [
        tuple(int(word) for word in line.split())
        for line in run(PRELUDE + KINDS[kind] + MEASURING, changes, arguments, seconds=3000).splitlines()
    ]
    memory = tuple(later[0] - earlier[0] for earlier, later in pairwise(rows))
    return Growth(memory, rows[-1][1] - rows[0][1], max(rows[-1][k] - rows[0][k] for k in (2, 3)))


def _assert_bounded(growth: Growth, calls: int) -> None:
    """One small object leaked by each call would be 50 bytes a call."""
    assert growth.descriptors <= 0 and growth.threads <= 0, growth
    assert growth.steady * _PARTS / calls < 20 or growth.total < 1 << 20, growth


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_grows(kind: str, tmp_path: Path) -> None:
    if "torch" in kind:
        pytest.importorskip("torch")
    _assert_bounded(grown(kind, 10_000, 2_000, tmp_path), 10_000)


@pytest.mark.long
def test_a_leak_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The measurement notices one small object a call, one descriptor and one thread."""
    leaks = {
        "an object": "kept = []\ndef call(number): kept.append([number] * 20)",
        "a descriptor": "def call(number):\n    if number == 4000: os.open('/dev/null', os.O_RDONLY)",
        "a thread": """
def call(number):
    if number == 4000: threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
""",
    }
    for name, program in leaks.items():
        monkeypatch.setitem(KINDS, name, program)
        with pytest.raises(AssertionError):
            _assert_bounded(grown(name, 10_000, 2_000, tmp_path), 10_000)


def main() -> None:
    """Make many calls of each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, default=Path("out/leaks"))
    parser.add_argument("--kind", choices=list(KINDS), action="append")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    for kind in chosen.kind or KINDS:
        growth = grown(kind, chosen.calls, chosen.calls // 5, chosen.folder.absolute())
        _assert_bounded(growth, chosen.calls)
        sys.stdout.write(
            f"{kind}: {chosen.calls} calls; {growth.total / 1024:.0f} KiB, {growth.descriptors} descriptors and "
            f"{growth.threads} threads more\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
