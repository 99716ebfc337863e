"""From the nodes of a graph of ONNX to calls: each with what is known of its operands, in order.

A node whose operands are all known is computed when the network is read.  One whose operator has no rule is
replaced by the function that ONNX defines it by, if it has one.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tcomp.errors import Diagnostic, NetworkError
from tcomp.networks.importing import RULES, Node, import_node, no_rule
from tcomp.networks.network import Network, Value
from tcomp.networks.onnx import loops
from tcomp.networks.onnx.operands import Constant, OnnxBuilder, OnnxNode, Operand, empty
from tcomp.networks.onnx.reading import Sizes, array_of, checked_shape, dtype_of, input_shape, opened, opset_of, package
from tcomp.networks.texts import general as texts

_MOST_KNOWN = 4096
"""Operands with more elements do not help to find shapes."""

_MOST_FOLDED = 1 << 28
"""Elements of the largest result that is computed when a network is read."""

_KERNELS = (1, 2, 4)
"""Axes of biases and of kernels: where these are rounded, layers may be computed in integers."""

_NEVER_FOLDED = ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial")

_READ_ERRORS = (ValueError, IndexError, TypeError, KeyError, OverflowError, AttributeError, RuntimeError)


def network_of(source: Any, name: str, sizes: Sizes, fallback: Iterable[str] = ()) -> Network:
    """The network of a path or a ``ModelProto``.  Raises NetworkError."""
    model, outside = opened(source), frozenset(fallback)
    for operator in sorted(outside):
        own = operator.removeprefix("onnx.")
        if own == operator or ("." not in own and not package().defs.has(own)):
            raise NetworkError(f"fallback names {operator}, which is no operator of ONNX")
    try:
        return _Reader(model, name, sizes, outside).network()
    except RecursionError as error:
        raise NetworkError("the model is nested too deeply") from error


class _Reader:
    """The walk over one model."""

    def __init__(self, model: Any, name: str, sizes: Sizes, fallback: frozenset[str]) -> None:
        self.onnx = package()
        self.fallback = fallback
        self.model = model
        self.builder = OnnxBuilder(name)
        self.sizes = sizes
        self.opset = opset_of(model)
        self.opsets = {entry.domain: int(entry.version) for entry in model.opset_import}
        self.inference = importlib.import_module("onnx.shape_inference")
        self.evaluator = importlib.import_module("onnx.reference").ReferenceEvaluator

    def network(self) -> Network:
        graph = self.model.graph
        known: dict[str, Operand] = {}
        for tensor in graph.initializer:
            _enter(known, tensor.name, Constant(tensor.name, array_of(self.onnx, tensor)))
        if graph.sparse_initializer:
            raise NetworkError("the model has sparse weights, which are not known")
        unused = dict(self.sizes)
        for info in graph.input:
            if info.name in known:
                continue
            dtype, shape = input_shape(self.onnx, info, self.sizes)
            _enter(known, info.name, self.builder.add(info.name, dtype, shape, "input"))
            unused.pop(info.name, None)
            for dim in info.type.tensor_type.shape.dim:
                unused.pop(dim.dim_param, None)
        if unused:
            raise NetworkError(f"sizes has {next(iter(unused))}, which is no input or dimension of the model")
        self.walk(graph.node, known)
        if not graph.output:
            raise NetworkError("the model has no output")
        outputs: list[Value] = []
        for info in graph.output:
            if info.name not in known:
                raise NetworkError(f"nothing computes the output {info.name}")
            found = known[info.name]
            if isinstance(found, Constant) or found.role != "temporary" or found in outputs:
                found = self._copied(found, info.name)
            outputs.append(found)
        return self.builder.network(outputs)

    def _copied(self, found: Operand, name: str) -> Value:
        """An operand as a result of its own."""
        if 0 in found.shape:
            raise NetworkError(f"the output {name} has no elements")
        node = Node(f"{name}_result", "output", {}, found.shape, found.dtype)
        same = texts.pointwise("copy", "{a}", [(found.shape, found.dtype)], found.shape, found.dtype)
        return self.builder.call(node, same, [found])

    def walk(self, nodes: Sequence[Any], known: dict[str, Operand]) -> None:
        """Enter what nodes make.  Raises NetworkError."""
        for proto in nodes:
            try:
                made = self._made(proto, known)
            except _READ_ERRORS as error:
                raise NetworkError(f"{proto.op_type} cannot be read ({_where(proto)}): {error}") from error
            for name, operand in zip(proto.output, made, strict=False):
                if name and operand is not None:
                    _enter(known, name, operand)

    def _made(self, proto: Any, known: Mapping[str, Operand]) -> Sequence[Operand | None]:
        """The results of a node."""
        for name in proto.input:
            if name and name not in known:
                hint = "nodes stand in an order that computes"
                raise NetworkError(
                    Diagnostic(
                        f"{proto.op_type} reads {name}, which nothing before it makes ({_where(proto)})", hint=hint
                    )
                )
        operands = [known[name] if name else None for name in proto.input]
        if proto.op_type == "Shape" and isinstance(operands[0], (Value, Constant)):
            bounds = {a.name: a.i for a in proto.attribute}
            return [
                Constant(
                    proto.output[0], np.array(operands[0].shape[bounds.get("start", 0) : bounds.get("end")], np.int64)
                )
            ]
        if proto.op_type == "Size" and isinstance(operands[0], (Value, Constant)):
            return [Constant(proto.output[0], np.array(np.prod(operands[0].shape, dtype=np.int64)))]
        if proto.op_type in ("If", "Loop", "Scan") and proto.domain in ("", "ai.onnx"):
            return list(self._controlled(proto, operands, known))
        results = self._results(proto, operands)
        if results and all(0 in result.shape for result in results):
            return [empty(result) for result in results]
        kept = proto.op_type == "DequantizeLinear" and len(results) == 1 and len(results[0].shape) in _KERNELS
        if not kept and all(operand is None or isinstance(operand, Constant) for operand in operands):
            folded = self._folded(proto, operands, results)
            if folded is not None:
                return folded
        if _operator(proto) in self.fallback:
            return self._outside(proto, operands, results)
        node = self._node(proto, operands, results)
        made = import_node(self.builder, node) if node.operator in RULES else NotImplemented
        if made is not NotImplemented:
            return made if isinstance(made, list) else [made]
        expanded = self._expanded(proto, operands)
        if expanded is None:
            raise node.refuse("is not known with these attributes") if node.operator in RULES else no_rule(node)
        return expanded

    def _outside(self, proto: Any, operands: Sequence[Operand | None], results: Sequence[Node]) -> list[Operand | None]:
        """A call of ONNX's own evaluator."""
        if any(min(result.shape, default=0) < 0 for result in results):
            raise NetworkError(f"{_operator(proto)} has a size that is not fixed ({_where(proto)})")
        named = [(name, x) for name, x in zip(proto.input, operands, strict=True) if x is not None]
        given = dict(named)
        evaluator = self.evaluator(proto, opsets=self.opsets)

        def run(*arrays: Any) -> Sequence[Any]:
            return list(evaluator.run(None, dict(zip(given, map(np.asarray, arrays), strict=True))))

        made = self.builder.outside(results, [self.builder.value(x) for x in given.values()], run)
        return list(made)

    def _controlled(
        self, proto: Any, operands: Sequence[Operand | None], known: Mapping[str, Operand]
    ) -> Sequence[Operand]:
        """The results of a node that has graphs of its own."""

        def body(graph: Any, given: Mapping[str, Operand]) -> list[Operand]:
            inner = {**known, **given}
            for tensor in graph.initializer:
                inner[tensor.name] = Constant(tensor.name, array_of(self.onnx, tensor))
            self.walk(graph.node, inner)
            return [inner[info.name] for info in graph.output]

        node = OnnxNode(proto.output[0], _operator(proto), {}, (), "float32", proto.name, (), self.opset)
        attributes = {a.name: self.onnx.helper.get_attribute_value(a) for a in proto.attribute}
        if proto.op_type == "Loop":
            return loops.loop(self.builder, node, operands, attributes, body)
        if proto.op_type == "Scan":
            return loops.scan(self.builder, node, operands, attributes, body)
        if operands[0] is None:
            raise node.refuse("has no condition")
        return loops.branches(self.builder, node, operands[0], attributes, body)

    def _schema(self, proto: Any) -> Any:
        try:
            return self.onnx.defs.get_schema(proto.op_type, self.opsets.get(proto.domain, self.opset), proto.domain)
        except self.onnx.defs.SchemaError:
            raise no_rule(
                Node(proto.output[0] if proto.output else "?", _operator(proto), {}, (), "", proto.name)
            ) from None

    def _results(self, proto: Any, operands: Sequence[Operand | None]) -> list[Node]:
        """Nodes with the names, types and shapes of the results."""
        types, data = self._types(proto, operands)
        try:
            found = self.inference.infer_node_outputs(
                self._schema(proto), proto, types, data, opset_imports=list(self.model.opset_import)
            )
        except (self.inference.InferenceError, self.onnx.checker.ValidationError) as error:
            told = str(error).strip().splitlines()[0]
            raise NetworkError(f"{proto.op_type} does not fit its operands ({_where(proto)}): {told}") from error
        results = []
        for name in proto.output:
            kind = found[name].tensor_type if name in found else None
            fixed = kind is not None and kind.HasField("shape") and all(d.HasField("dim_value") for d in kind.shape.dim)
            shape = tuple(d.dim_value for d in kind.shape.dim) if kind is not None and fixed else (-1,)
            dtype = dtype_of(self.onnx, kind.elem_type, name) if kind is not None and kind.elem_type else ""
            if fixed:
                checked_shape(name, shape, 1)
            results.append(Node(name, _operator(proto), {}, shape, dtype, proto.name))
        return results

    def _types(self, proto: Any, operands: Sequence[Operand | None]) -> tuple[dict[str, Any], dict[str, Any]]:
        """What is known of the operands, for ONNX."""
        types, data = {}, {}
        for name, operand in zip(proto.input, operands, strict=True):
            if operand is None:
                continue
            kind = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(operand.dtype))
            types[name] = self.onnx.helper.make_tensor_type_proto(kind, operand.shape)
            if isinstance(operand, Constant) and operand.array.size <= _MOST_KNOWN:
                data[name] = self.onnx.numpy_helper.from_array(operand.array, name)
        return types, data

    def _folded(
        self, proto: Any, operands: Sequence[Operand | None], results: Sequence[Node]
    ) -> list[Operand | None] | None:
        """The results of a node of which all is known, computed by ONNX's own evaluator."""
        if proto.op_type in _NEVER_FOLDED:
            return None
        if any(np.prod(result.shape, dtype=np.float64) > _MOST_FOLDED for result in results):
            raise NetworkError(f"{proto.op_type} makes too large a constant ({_where(proto)})")
        given = {
            name: operand.array
            for name, operand in zip(proto.input, operands, strict=True)
            if isinstance(operand, Constant)
        }
        try:
            with np.errstate(all="ignore"):
                found = self.evaluator(proto, opsets=self.opsets).run(None, given)
        except (*_READ_ERRORS, ArithmeticError, AssertionError, MemoryError):
            return None  # the rule says what is wrong, if there is one
        if not all(isinstance(array, (np.ndarray, np.generic)) for array in found):
            return None
        return [Constant(name, np.asarray(array)) for name, array in zip(proto.output, found, strict=False)]

    def _node(self, proto: Any, operands: Sequence[Operand | None], results: Sequence[Node]) -> OnnxNode:
        """The node with its operands and attributes by name."""
        schema = self._schema(proto)
        arguments: dict[str, Any] = {}
        variadic = self.onnx.defs.OpSchema.FormalParameterOption.Variadic
        for position, formal in enumerate(schema.inputs):
            if formal.option == variadic:
                arguments[formal.name] = list(operands[position:])
            else:
                arguments[formal.name] = operands[position] if position < len(operands) else None
        given = {attribute.name: attribute for attribute in proto.attribute}
        for name, attribute in schema.attributes.items():
            one = given.get(name, attribute.default_value)
            arguments[name] = _attribute(self.onnx, one) if one.type else None
        first = results[0]
        kinds = tuple(replace(result, arguments=arguments) for result in results)
        return OnnxNode(first.name, first.operator, arguments, first.shape, first.dtype, proto.name, kinds, self.opset)

    def _expanded(self, proto: Any, operands: Sequence[Operand | None]) -> list[Operand | None] | None:
        """The results of the function that defines the operator, if there is one."""
        schema = self._schema(proto)
        if schema.has_function:
            function = schema.function_body
        elif schema.has_context_dependent_function:
            types, _ = self._types(proto, operands)
            kinds = [types[name].SerializeToString() if name else b"" for name in proto.input]
            function = self.onnx.FunctionProto()
            function.ParseFromString(schema.get_context_dependent_function(proto.SerializeToString(), kinds))
        else:
            return None
        inner: dict[str, Operand] = {}
        for name, operand in zip(function.input, operands, strict=False):
            if operand is not None:
                inner[name] = operand
        given = {attribute.name: attribute for attribute in proto.attribute}
        for name, attribute in schema.attributes.items():
            if name not in given and attribute.default_value.type:
                given[name] = attribute.default_value
        opsets = self.opsets
        self.opsets = opsets | {entry.domain: int(entry.version) for entry in function.opset_import}
        try:
            self.walk([_bound(body, given, proto, set(inner), function) for body in function.node], inner)
        finally:
            self.opsets = opsets
        return [inner.get(name) for name in function.output]


def _bound(body: Any, given: Mapping[str, Any], outer: Any, known: set[str], function: Any) -> Any:
    """A node of a function, its attributes those of the node that calls it, its missing operands left out."""
    made = type(body)()
    made.CopyFrom(body)
    del made.attribute[:]
    for attribute in body.attribute:
        if not attribute.ref_attr_name:
            made.attribute.add().CopyFrom(attribute)
        elif attribute.ref_attr_name in given:
            one = made.attribute.add()
            one.CopyFrom(given[attribute.ref_attr_name])
            one.name = attribute.name
    for position, name in enumerate(made.input):
        if name in function.input and name not in known:
            made.input[position] = ""
    made.name = outer.name or outer.op_type
    return made


def _enter(known: dict[str, Operand], name: str, operand: Operand) -> None:
    if name in known:
        raise NetworkError(f"{name} is made twice")
    known[name] = operand


def _attribute(onnx: Any, attribute: Any) -> Any:
    """The value of an attribute, text as text."""
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (list, tuple)) or type(value).__name__.startswith("Repeated"):
        return [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in value]
    return value


def _operator(proto: Any) -> str:
    domain = "" if proto.domain in ("", "ai.onnx") else f"{proto.domain}."
    return f"onnx.{domain}{proto.op_type}"


def _where(proto: Any) -> str:
    told = f"node {proto.output[0] if proto.output else '?'}"
    return f"{told} of {proto.name}" if proto.name else told
