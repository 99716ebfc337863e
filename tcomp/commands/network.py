"""``tcomp network import | explain | ops``: networks of PyTorch and ONNX, as program text and as kernels."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from pathlib import Path

from tcomp.commands.terminal.display import show_line, show_source
from tcomp.commands.terminal.exit_codes import DONE
from tcomp.errors import MissingPackageError, NetworkError
from tcomp.networks import Network, compile_network, from_onnx, operators, read_exported


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``tcomp network`` and of what it can do."""
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    for name, execute, summary in (
        ("import", import_network, "print the network as program text"),
        ("explain", explain, "compile it and tell which kernels run and where their results lie"),
    ):
        action = actions.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        action.add_argument("file", metavar="MODEL", help="a model of ONNX, or NAME.pt2, which torch.export.save wrote")
        action.add_argument(
            "--size", action="append", default=[], metavar="NAME=N", help="what a model of ONNX leaves open: batch=1"
        )
        action.set_defaults(execute=lambda values, execute=execute: execute(values.file, values.size))
    summary = "list the operators that have a rule"
    ops = actions.add_parser("ops", help=summary, description=summary, allow_abbrev=False)
    ops.set_defaults(execute=lambda _: list_operators())


def import_network(file: str, sizes: Sequence[str]) -> int:
    """Print the text.  Raises TcompError."""
    show_source(str(_read(file, sizes)), "tc")
    return DONE


def explain(file: str, sizes: Sequence[str]) -> int:
    """Compile and tell.  Raises TcompError."""
    show_line(compile_network(_read(file, sizes)).explain())
    return DONE


def list_operators() -> int:
    """One line an operator."""
    for name in operators():
        show_line(name)
    return DONE


def _read(file: str, sizes: Sequence[str]) -> Network:
    """Raises NetworkError, and MissingPackageError where there is no torch, or no onnx."""
    given: dict[str, int | tuple[int, ...]] = {}
    for size in sizes:
        name, _, numbers = size.rpartition("=")
        try:
            extents = tuple(int(n) for n in numbers.split(","))
        except ValueError:
            raise NetworkError(f"--size {size} is not NAME=N, nor NAME=N,N,...") from None
        given[name] = extents if "," in numbers else extents[0]
    if Path(file).suffix != ".pt2":
        return from_onnx(file, sizes=given)
    try:
        importlib.import_module("torch")
    except ImportError:
        raise MissingPackageError("networks are read by PyTorch: pip install 'tcomp[torch]'") from None
    return read_exported(Path(file))
