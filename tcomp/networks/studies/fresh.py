"""What the first answer of a network takes in a process of its own that knows no kernel: seconds, and memory."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tcomp import debug
from tcomp.errors import NetworkError
from tcomp.networks.network import Network
from tcomp.networks.program import CompiledNetwork
from tcomp.networks.weights import Weights
from tcomp.runtime.calibrated import calibrated_path
from tcomp.tuner.database.file import database_path

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_PROGRAM = f"""
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from {__name__} import answer
answer()
"""


@dataclass(frozen=True, slots=True)
class FirstAnswer:
    """Seconds to compile, and by how many bytes the process grew at most while it compiled and ran once.

    ``peak`` counts neither the network and the inputs, which were there before, nor the C compiler, which is another
    process; it is None where the system does not tell.
    """

    compiling: float
    peak: int | None


def first_answer(network: Network, options: Mapping[str, Any], inputs: Sequence[Any]) -> FirstAnswer | None:
    """Compile a network and run it once in a new process, with an empty cache and the options that were tuned.

    None for a network of which a part runs outside of tcomp: it cannot be sent there.  Raises NetworkError if the
    process fails.
    """
    if any(definition.outside is not None for definition in network.used_definitions()):
        return None
    plain = replace(network, definitions=dict(network.definitions), weights=Weights(network.weights))
    given = [np.asarray(one.detach() if hasattr(one, "detach") else one) for one in inputs]
    with tempfile.TemporaryDirectory(prefix="tcomp-") as folder, tempfile.TemporaryFile() as file:
        pickle.dump((plain, dict(options), given), file)
        file.seek(0)
        found = subprocess.run(
            (sys.executable, "-P", "-c", _PROGRAM, json.dumps([str(one) for one in sys.path])),
            stdin=file, capture_output=True, text=True, check=False, env=os.environ | _environment(folder),
        )  # fmt: skip
    if found.returncode:
        words = found.stderr.strip().splitlines()
        raise NetworkError(f"in a process of its own, {network.name} fails: {words[-1] if words else 'it is killed'}")
    return FirstAnswer(**json.loads(found.stdout.splitlines()[-1]))


def _environment(folder: str) -> dict[str, str]:
    """An empty cache, but the options that were tuned and the numbers that were measured for this machine."""
    kept = {debug.TUNED.name: database_path(), debug.CALIBRATED.name: calibrated_path()}
    return {debug.CACHE.name: folder} | {name: str(path or 0) for name, path in kept.items()}


def _here(network: Network, options: Mapping[str, Any], inputs: Iterable[Any]) -> FirstAnswer:
    """The same in this process."""
    before = _memory("VmRSS", reset=True)
    start = time.perf_counter()
    net = CompiledNetwork(network, options)
    seconds = time.perf_counter() - start
    net(*inputs)
    most = _memory("VmHWM")
    return FirstAnswer(seconds, None if most is None or before is None else max(0, most - before))


def _memory(name: str, *, reset: bool = False) -> int | None:
    """Bytes of this process by their name in Linux; from now on its most is that since ``reset``."""
    try:
        if reset:
            _RESET.write_text("5", encoding="ascii")
        lines = _STATUS.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)


def answer() -> None:
    """Print what the network on the input takes; for the new process."""
    found = _here(*pickle.load(sys.stdin.buffer))
    sys.stdout.write(json.dumps(asdict(found)) + "\n")
