"""The cases that the package ``onnx`` has for its operators, and small models of our own."""

from __future__ import annotations

import importlib
import importlib.util
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tcomp as tc
from tcomp.networks.importing import RULES

SLOW = ("averagepool", "lppool", "maxpool")
"""Modules that take seconds to make their cases."""

KNOWN = {"float16", "float32", "float64", "bool", *(f"{s}int{w}" for s in ("", "u") for w in (8, 16, 32, 64))}


REFUSED = (
    r"without elements|has no elements|drops elements|is no tensor|has indices of float32|more than it reaches"
    r"|statistics of the batch|outside the region|channels by CRD|reads volumes|dimension|multiplies by a vector"
)
"""What is said of the cases that are not known."""


@dataclass(frozen=True)
class Case:
    """A model, what goes in, and what comes out; inputs that say sizes have become weights."""

    name: str
    model: Any
    inputs: Sequence[Any]
    expected: Sequence[Any]

    def network(self) -> tc.networks.Network | None:
        """What is read of it; None if it is one of those that are refused for a reason that is known."""
        names = [info.name for info in self.model.graph.input]
        try:
            return tc.from_onnx(self.model, sizes=dict(zip(names, (np.shape(x) for x in self.inputs), strict=False)))
        except tc.NetworkError as error:
            if re.search(REFUSED, str(error)):
                return None
            raise


def operators(room: str) -> list[str]:
    """The names of the operators whose rules stand in a module."""
    found = {name for name, rule in RULES.items() if rule.__module__ == f"tcomp.networks.onnx.{room}"}
    return sorted(name.removeprefix("onnx.") for name in found)


def cases_of(names: Sequence[str], slow: bool = False) -> Iterator[Case]:
    """Those of operators, of opset 13 and newer, with elements of known types."""
    node = importlib.import_module("onnx.backend.test.case.node")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            if (name.lower() in SLOW) == slow:
                _imported(f"{node.__name__}.{name.lower()}")
    for case in node._NodeTestCases:
        first = case.model.graph.node[0]
        if len(case.model.graph.node) != 1 or first.op_type not in names or not _modern(case.model):
            continue
        if (first.op_type.lower() in SLOW) != slow:
            continue
        for inputs, expected in case.data_sets:
            arrays = [*inputs, *expected]
            if all(isinstance(x, (np.ndarray, np.generic)) and x.dtype.name in KNOWN for x in arrays):
                yield _with_weights(Case(case.name, case.model, inputs, expected))


def _modern(model: Any) -> bool:
    """Whether opset 13 or a newer one is meant; an operator that has not changed up to it is taken for one of it."""
    entry = next((entry for entry in model.opset_import if entry.domain == ""), None)
    kind = model.graph.node[0].op_type
    if entry is None:
        return False
    if entry.version < 13 and onnx.defs.get_schema(kind, 13).since_version <= entry.version:
        entry.version = 13
    return bool(entry.version >= 13)


def _imported(name: str) -> ModuleType | None:
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


_SIZES = {
    "AffineGrid": 1,
    "Expand": 1,
    "Pad": 1,
    "OneHot": 1,
    "CumSum": 1,
    "CumProd": 1,
    "Trilu": 1,
    "Dropout": 1,
    "Tile": 1,
    "Slice": 1,
}
_SIZES |= {"Reshape": 1, "Split": 1, "Squeeze": 1, "Unsqueeze": 1, "Resize": 1, "CenterCropPad": 1, "TopK": 1}
_SIZES |= {"Col2Im": 1, "Compress": 1, "DFT": 1, "STFT": 1}
_SIZES |= {"QuantizeLinear": 1, "DequantizeLinear": 1, "QLinearMatMul": 1, "QLinearConv": 1, "ConvInteger": 1}


def _with_weights(case: Case) -> Case:
    """Operands that say sizes as weights, for sizes must be known."""
    kind = case.model.graph.node[0].op_type
    first = 1 if kind.startswith("Reduce") else _SIZES.get(kind)
    if first is None:
        return case
    model = type(case.model)()
    model.CopyFrom(case.model)
    kept = []
    for position, (info, array) in enumerate(zip(case.model.graph.input, case.inputs, strict=True)):
        if position < first:
            kept.append(array)
        else:
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), info.name))
    return Case(case.name, model, kept, case.expected)


def mismatch(found: Any, expected: Sequence[Any]) -> str | None:
    """How results differ from those that are right, if they do."""
    results = found if isinstance(found, tuple) else (found,)
    for mine, theirs in zip(results, expected, strict=True):
        if np.shape(mine) != np.shape(theirs):
            return f"shape {np.shape(mine)}, not {np.shape(theirs)}"
        close = 4e-3 if np.asarray(theirs).dtype == np.float16 else 2e-5
        a, b = (np.asarray(x, np.float64) for x in (mine, theirs))
        if not np.allclose(a, b, rtol=50 * close, atol=close, equal_nan=True):
            return f"differs by {np.nanmax(abs(a - b))}"
    return None


def model_of(
    nodes: Sequence[Any],
    inputs: dict[str, tuple[Any, ...]],
    outputs: Sequence[str],
    weights: dict[str, np.ndarray[Any, Any]] | None = None,
    opset: int = 20,
    kinds: dict[str, int] | None = None,
) -> Any:
    """A model of some nodes; inputs are of float32 where ``kinds`` says nothing else."""
    kinds = kinds or {}
    given = [helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), s) for n, s in inputs.items()]
    made = [helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), None) for n in outputs]
    known = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "model", given, made, known)
    return onnx.helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
