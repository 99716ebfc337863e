"""``tcomp network ACTION MODEL``: networks of PyTorch and ONNX, as program text and as kernels."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tcomp.commands.inputs.arrays import load_archive
from tcomp.commands.inputs.types import parse_seconds, parse_seed
from tcomp.commands.terminal.display import show_line, show_source
from tcomp.commands.terminal.exit_codes import DONE
from tcomp.errors import MissingPackageError, NetworkError
from tcomp.networks import Network, NetworkOptions, ablate, compile_network, load_network, operators, read
from tcomp.networks.program import CompiledNetwork
from tcomp.networks.rewriting.table import RULES

_TRUST = "PyTorch reads it, so it must be one that you trust"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``tcomp network`` and of what it can do."""
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    for name, (execute, summary) in _ACTIONS.items():
        action = actions.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        action.set_defaults(execute=execute)
        if execute in (list_operators, list_rewrites):
            continue
        what = f"a model of ONNX, NAME.tc, NAME.pt2 ({_TRUST}), or NAME.tcn, which was saved"
        action.add_argument("file", metavar="MODEL", help=what)
        size = "what a model of ONNX leaves open: batch=1, or x=1,3,224,224"
        action.add_argument("--size", action="append", default=[], metavar="NAME=N", help=size)
        arrays = "arrays for the weights of a text"
        action.add_argument("--weights", metavar="FILE.npz", help=arrays)
        leave = f"a pass to leave out: {', '.join(NetworkOptions.passes())}"
        leave += ", all (default: each in turn, then all)" if name == "ablate" else ""
        action.add_argument("--without", action="append", default=[], metavar="PASS", help=leave)
        if name == "show":
            action.add_argument("--stage", metavar="PASS", help="the text after this pass; source: as it was read")
        if name in ("run", "profile", "ablate", "tune", "picture"):
            given = "arrays by the names of the inputs (default: random numbers)"
            action.add_argument("--input", metavar="FILE.npz", help=given)
        if name in _OUTPUTS:
            action.add_argument(
                "--output", metavar="FILE", required=name in ("save", "export", "picture"), help=_OUTPUTS[name]
            )
        if name in ("profile", "ablate"):
            action.add_argument("--repeat", type=int, default=20, metavar="N", help="runs to take the median of (20)")
        if name == "tune":
            seconds = "for all kernels together, those that take most first (default: 60)"
            action.add_argument("--budget", type=parse_seconds, default=60.0, metavar="SECONDS", help=seconds)
            action.add_argument("--seed", type=parse_seed, default=0, metavar="N", help="draws other candidates (0)")
            action.add_argument("--again", action="store_true", help="search also for kernels that were tuned before")
        if name == "profile":
            action.add_argument("--as", dest="form", choices=("table", "json", "trace"), default="table")
        if name == "ablate":
            action.add_argument("--as", dest="form", choices=("table", "json"), default="table")


_OUTPUTS = {
    "run": "where to write the results: NAME.npz",
    "profile": "where to write it instead of printing it",
    "ablate": "where to write it instead of printing it",
    "save": "where to write it",
    "export": "the folder to write",
    "picture": "where to write it: NAME.svg or NAME.png",
}


def show(values: argparse.Namespace) -> int:
    """Print the text.  Raises TcompError."""
    saved = _compiled(values) if _is_saved(values) else None
    network = saved.network if saved else _read(values)
    if values.stage:
        stages = (saved or _compiled(values, network)).stages
        if values.stage not in stages:
            raise NetworkError(f"there is no stage {values.stage}; there are {', '.join(stages)}")
        network = stages[values.stage]
    show_source(str(network), "tc")
    return DONE


def explain(values: argparse.Namespace) -> int:
    """Compile and tell.  Raises TcompError."""
    show_line(_compiled(values).explain())
    return DONE


def run(values: argparse.Namespace) -> int:
    """Run once; the range of each result.  Raises TcompError."""
    net = _compiled(values)
    results = net(*_inputs(net.network, values.input))
    results = results if isinstance(results, tuple) else (results,)
    for value, array in zip(net.network.outputs, results, strict=True):
        shape = "x".join(map(str, array.shape)) or "a number"
        show_line(f"{value.name}: {value.dtype} {shape}, {array.min()} to {array.max()}")
    if values.output:
        with Path(values.output).open("wb") as file:  # NumPy would change the name
            np.savez(file, **{v.name: array for v, array in zip(net.network.outputs, results, strict=True)})
    return DONE


def profile(values: argparse.Namespace) -> int:
    """What each kernel takes.  Raises TcompError."""
    net = _compiled(values)
    found = net.profile(*_inputs(net.network, values.input), repeats=values.repeat)
    text = {"table": found.__str__, "json": found.to_json, "trace": found.to_trace}[values.form]()
    _write(text, values.output)
    return DONE


def ablation(values: argparse.Namespace) -> int:
    """What the network takes without each pass.  Raises TcompError."""
    if _is_saved(values):
        raise NetworkError(f"{values.file} was saved after its passes; ablate the model that it was made of")
    network = _read(values)
    found = ablate(network, _inputs(network, values.input), values.repeat, passes=values.without or None)
    _write(found.to_json() if values.form == "json" else str(found), values.output)
    return DONE


def _write(text: str, file: str | None) -> None:
    """Into a file, or else on the screen."""
    if file:
        Path(file).write_text(text + "\n", encoding="utf-8")
    else:
        show_line(text)


def tune(values: argparse.Namespace) -> int:
    """Search for faster options for its kernels, and keep them.  Raises TcompError."""
    net = _compiled(values)
    given = _inputs(net.network, values.input)
    show_line(str(net.tune(*given, budget=values.budget, again=values.again, seed=values.seed)))
    return DONE


def picture(values: argparse.Namespace) -> int:
    """Compile, run and draw.  Raises TcompError."""
    net = _compiled(values)
    net.picture(*_inputs(net.network, values.input)).save(values.output)
    return DONE


def save(values: argparse.Namespace) -> int:
    """Compile and write.  Raises TcompError."""
    _compiled(values).save(values.output)
    return DONE


def export(values: argparse.Namespace) -> int:
    """Compile and write C.  Raises TcompError."""
    for file in _compiled(values).export(values.output):
        show_line(str(file))
    return DONE


def list_operators(_: argparse.Namespace) -> int:
    """One line an operator."""
    for name in operators():
        show_line(name)
    return DONE


def list_rewrites(_: argparse.Namespace) -> int:
    """The table of rules."""
    for rule in RULES:
        show_line(str(rule))
    return DONE


_ACTIONS: dict[str, tuple[Callable[[argparse.Namespace], int], str]] = {
    "show": (show, "print the network as program text"),
    "explain": (explain, "compile it and tell which kernels run and where their results lie"),
    "run": (run, "run it once"),
    "profile": (profile, "tell what each kernel takes"),
    "ablate": (ablation, "tell what it takes with each pass left out"),
    "tune": (tune, "search for faster options for its kernels, and keep them for this and other networks"),
    "picture": (picture, "draw its kernels in order and where their results lie in memory"),
    "save": (save, "compile it and write it into a file that tcomp.load_network reads"),
    "export": (export, "write it as C, for use without tcomp"),
    "ops": (list_operators, "list the operators that have a rule"),
    "rewrites": (list_rewrites, "print the rules by which networks are rewritten"),
}


def _compiled(values: argparse.Namespace, network: Network | None = None) -> CompiledNetwork:
    """Raises TcompError."""
    for name in values.without:
        if name not in NetworkOptions.passes():
            raise NetworkError(f"{name} is no pass; passes are {', '.join(NetworkOptions.passes())}")
    if _is_saved(values):
        given = {"--size": values.size, "--weights": values.weights, "--without": values.without}
        useless = next((option for option, value in given.items() if value), None)
        if useless:
            raise NetworkError(f"{useless} is for models that are compiled now; {values.file} was compiled and saved")
        return load_network(values.file)
    return compile_network(network or _read(values), options=dict.fromkeys(values.without, False))


def _is_saved(values: argparse.Namespace) -> bool:
    return Path(values.file).suffix == ".tcn"


def _inputs(network: Network, file: str | None) -> list[Any]:
    """Arrays from a file, or random ones.  Raises TcompError."""
    if file is None:
        draw = np.random.default_rng(0)
        return [_random(draw, value.shape, value.dtype) for value in network.inputs]
    arrays = load_archive(file)
    missing = [value.name for value in network.inputs if value.name not in arrays]
    if missing:
        raise NetworkError(f"{file} has no array for the input {missing[0]}; it has {', '.join(arrays) or 'none'}")
    return [arrays[value.name] for value in network.inputs]


def _random(draw: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    if dtype.startswith("float"):
        return draw.standard_normal(shape).astype(dtype)
    return draw.integers(0, 2, shape).astype(dtype)


def _read(values: argparse.Namespace) -> Network:
    """Raises NetworkError, and MissingPackageError where there is no torch, or no onnx."""
    given: dict[str, int | tuple[int, ...]] = {}
    for size in values.size:
        name, _, numbers = size.rpartition("=")
        try:
            extents = tuple(int(n) for n in numbers.split(","))
        except ValueError:
            raise NetworkError(f"--size {size} is not NAME=N, nor NAME=N,N,...") from None
        given[name] = extents if "," in numbers else extents[0]
    if Path(values.file).suffix == ".pt2":
        try:
            importlib.import_module("torch")
        except ImportError:
            raise MissingPackageError("networks are read by PyTorch: pip install 'tcomp[torch]'") from None
    return read(values.file, sizes=given, weights=load_archive(values.weights) if values.weights else {})
