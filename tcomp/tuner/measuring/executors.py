"""Where the jobs of a tuning run are done: on threads of this process, each with a sandbox, or on Dask's workers."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager

from tcomp.errors import TcompError
from tcomp.tuner.measuring.sandboxes import Sandboxes, use

_DASK = "dask://"


@contextmanager
def local_executor(jobs: int | None = None) -> Iterator[Executor]:
    """An executor that does so many jobs at a time on this machine; None means one for each processor.

    The work is done in sandboxes, so that threads suffice, and nothing that happens there breaks the executor.  When
    the block ends, whatever is still being done is stopped.
    """
    own = Sandboxes()
    threads = jobs or len(os.sched_getaffinity(0))
    executor = ThreadPoolExecutor(threads, "tcomp-tuner", functools.partial(use, own))
    try:
        yield executor
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        own.close()
        executor.shutdown()


@contextmanager
def executor_at(address: str) -> Iterator[Executor]:
    """The executor that an address stands for: ``dask://HOST:PORT`` is a scheduler of Dask's distributed.

    Raises TcompError if there is none.
    """
    if not address.startswith(_DASK):
        raise TcompError(f"there is no executor at {address!r}; an address is dask://HOST:PORT")
    try:
        import distributed  # noqa: PLC0415  (optional, and slow to load)
    except ImportError:
        raise TcompError("an executor at dask:// needs Dask: `pip install 'tcomp[dask]'`") from None
    try:
        client = distributed.Client(f"tcp://{address.removeprefix(_DASK)}", set_as_default=False)
    except (OSError, ValueError) as error:
        raise TcompError(f"there is no scheduler at {address}: {error}") from None
    with client:
        yield client.get_executor(pure=False)
