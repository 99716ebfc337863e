"""The machine code of an image as text, by NVIDIA's disassembler."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tcomp.backends.cuda.tools.images import Image
from tcomp.backends.cuda.tools.nvrtc import toolkit_folders, wheel_folders
from tcomp.errors import Diagnostic, TargetError

_PROGRAMS = {"nvdisasm": "--print-code", "cuobjdump": "--dump-sass"}
"""Programs that disassemble, best first, each with the option that asks for it."""

_SECONDS = 60.0
_INSTALL_HINT = "`pip install nvidia-cuda-nvdisasm`"


def disassemble(image: Image) -> str:
    """SASS of every kernel of an image, with the labels and addresses that nvdisasm prints.

    Raises TargetError if there is no disassembler, or it does not know the architecture, or fails.
    """
    program = find()
    with tempfile.TemporaryDirectory(prefix="tcomp-") as directory:
        path = Path(directory, "image.cubin")
        path.write_bytes(image.cubin)
        try:
            run = subprocess.run(
                (str(program), _PROGRAMS[program.name], str(path)), capture_output=True, timeout=_SECONDS, check=False
            )
        except OSError as error:
            raise TargetError(f"cannot start {program}: {error.strerror or error}") from None
        except subprocess.TimeoutExpired:
            raise TargetError(f"{program} did not finish within {_SECONDS:.0f} seconds; it was stopped") from None
    if run.returncode != 0:
        complaint = run.stderr.decode(errors="replace").strip()
        raise TargetError(f"{program} fails on code for {image.architecture}: {complaint}")
    return run.stdout.decode(errors="replace")


def find() -> Path:
    """The disassembler: of a wheel, of a CUDA toolkit or on PATH.  Raises TargetError if there is none."""
    for name in _PROGRAMS:
        for path in _places(name):
            if path.is_file() and os.access(path, os.X_OK):
                return path
    raise TargetError(Diagnostic("there is no disassembler for CUDA machine code here", hint=_INSTALL_HINT))


def _places(name: str) -> Iterator[Path]:
    for folder in (*wheel_folders(), *toolkit_folders()):
        yield folder / "bin" / name
    on_path = shutil.which(name)
    if on_path is not None:
        yield Path(on_path)
