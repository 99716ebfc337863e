"""Kernels one after another in one call of C: nothing but machine code between them.

A chain is a table of steps: a kernel, and where its arrays lie, each as one of some addresses that a call gives and a
distance from it.  Kernels have been compiled for these arrays; nobody looks at them any more.  Steps form runs, which
are done so many times; from turn to turn arrays advance by so many bytes.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tcomp import debug
from tcomp.backends.host import images, toolchain
from tcomp.backends.host.runtime import workspace
from tcomp.errors import TcompError
from tcomp.storage.cache import store
from tcomp.storage.memo import Memo

MOST_ARRAYS = 24
"""Arrays that a step may have."""

_TEXT = (
    """
#define _POSIX_C_SOURCE 199309L
#include <time.h>
typedef long long fact;
static fact now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}
int tc_chain(const fact *f, char *const *bases, void *scratch, void *report, fact *failed, fact *times)
{
  fact runs = *f++, done = 0;
  for (; runs > 0; runs--) {
    const fact turns = *f++, steps = *f++, *const first = f;
    for (fact number = 0; number < turns * steps; number++) {
      char *at[MOST];
      int status = 0;
      const fact turn = number / steps, step = done + number % steps;
      if (step == done) f = first;
      const fact kernel = *f++, arrays = *f++, start = times ? now() : 0;
      for (fact n = 0; n < arrays; n++, f += 3) at[n] = bases[f[0]] + f[1] + turn * f[2];
      switch (arrays) {
"""
    + "".join(
        f"      case {n}: status = ((int (*)({', '.join(['char *'] * n)}, void *, void *))kernel)"
        f"({', '.join(f'at[{i}]' for i in range(n))}, scratch, report); break;\n"
        for n in range(1, MOST_ARRAYS + 1)
    )
    + """      }
      if (times) times[step] += now() - start;
      if (status) {
        *failed = step;
        return status;
      }
    }
    done += steps;
  }
  return 0;
}
"""
)


@dataclass(frozen=True, slots=True)
class Link:
    """A kernel's function, which takes so many bytes of scratch memory."""

    function: Any
    scratch_bytes: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Which step ended with which status, and what its kernel reported."""

    step: int
    status: int
    report: tuple[int, ...]


Steps = Sequence[tuple[Link, Sequence[tuple[int, int, int]]]]
"""Each link with the base, the distance and the advance of its arrays."""


class Chain:
    """Runs of steps in their order: how many turns each takes, and its steps."""

    def __init__(self, runs: Sequence[tuple[int, Steps]], bases: int) -> None:
        """``bases`` is how many addresses a call gives.  Raises TcompError where chains cannot be."""
        self._enter = _ENTRIES.get("tc_chain", _made)
        numbers: list[int] = [len(runs)]
        for turns, own in runs:
            numbers += [turns, len(own)]
            for link, arrays in own:
                address = ctypes.cast(link.function, ctypes.c_void_p).value
                if address is None or not 0 < len(arrays) <= MOST_ARRAYS:
                    raise TcompError(f"a step has {len(arrays)} arrays, at most {MOST_ARRAYS} are known")
                numbers += [address, len(arrays), *(number for place in arrays for number in place)]
        steps = [step for _, own in runs for step in own]
        self._kept = [link.function for link, _ in steps]
        self._facts = (ctypes.c_int64 * len(numbers))(*numbers)
        self._address = ctypes.addressof(self._facts)
        self._bases = ctypes.c_int64 * bases
        self._scratch = max((link.scratch_bytes for link, _ in steps), default=0)
        self._steps = len(steps)

    def run(self, bases: Sequence[int]) -> Failure | None:
        """Run all steps, without the interpreter's lock."""
        return self._run(bases, None)

    def timed(self, bases: Sequence[int]) -> tuple[Failure | None, list[int]]:
        """The same, and the nanoseconds of each step, in all turns."""
        times = (ctypes.c_int64 * max(1, self._steps))()
        return self._run(bases, times), list(times)[: self._steps]

    def _run(self, bases: Sequence[int], times: Any) -> Failure | None:
        scratch, kept, report, address = workspace(self._scratch)
        failed = ctypes.c_int64(0)
        status = self._enter(self._address, self._bases(*bases), scratch, address, ctypes.byref(failed), times)
        del kept
        return None if status == 0 else Failure(failed.value, status, tuple(report))


_ENTRIES: Memo[str, Any] = Memo()


def _made() -> Any:
    """The C function, from the cache on disk or the compiler.  Raises TcompError."""
    compiler = toolchain.find()
    text = _TEXT.replace("MOST", str(MOST_ARRAYS))
    key = hashlib.sha256("\n".join((text, compiler.identity)).encode()).hexdigest()
    with store().turn("chain", key):
        image = store().get("chain", key)
        if image is None:
            image = toolchain.compile_shared(compiler, text, (), "tc_chain")
            store().put("chain", key, "calls of kernels in a row", image)
    try:
        library = images.open_image(image)
    except OSError as error:
        debug.log(1, f"no chains of kernels: {error}")
        raise TcompError(f"the calls of kernels in a row cannot be loaded: {error}") from error
    function = library.tc_chain
    function.argtypes = (ctypes.c_void_p,) * 6
    function.restype = ctypes.c_int
    return function
