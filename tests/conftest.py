"""What all tests share.

Golden texts are expected output kept in files, rewritten by ``pytest --update-golden`` and reviewed like code.  Options
that somebody tuned on this machine, or numbers fitted to it, are not known to the tests, nor to what they start.
Threads of kernels sleep while there is no work, instead of taking the other tests' processor for a millisecond after
each call; and the heap, in which little is garbage, is searched for it every 50,000 objects, not every 700.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

os.environ["TCOMP_TUNED"] = os.environ["TCOMP_CALIBRATED"] = "0"
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
gc.set_threshold(50_000)


MOST_OF_A_SWEEP = 16
"""Cases of a test that `make test` runs."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the expected texts instead of comparing")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a sweep, of each test one case in so many is for everybody; the ``rest``-th of the others is long.

    Those left over are exhaustive: only those who ask for them run them.
    """
    swept = Counter(item.nodeid.partition("[")[0] for item in items if item.get_closest_marker("sweep") is not None)
    seen: Counter[str] = Counter()
    for item in items:
        sweep = item.get_closest_marker("sweep")
        if sweep is not None:
            test = item.nodeid.partition("[")[0]
            number, keep = seen[test], max(sweep.args[0], -(-swept[test] // MOST_OF_A_SWEEP))
            if number % keep:
                left_over = (number - number // keep) % sweep.kwargs.get("rest", 20)
                item.add_marker("exhaustive" if left_over else "long")
            seen[test] += 1


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """``golden(path, text)`` fails unless the file holds the text; with ``--update-golden`` it writes the file."""
    update = request.config.getoption("--update-golden")

    def check(path: Path, text: str) -> None:
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        assert path.exists(), f"{path.name} is missing: run pytest --update-golden and review it"
        assert text == path.read_text(encoding="utf-8")

    return check
