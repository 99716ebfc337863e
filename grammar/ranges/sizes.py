"""Sizes: binding symbols to the shapes of arrays, and evaluating dimension expressions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from numbers import Integral

from tcomp.errors import Diagnostic, ShapeError, Span
from tcomp.grammar.ranges.wording import text_of
from tcomp.grammar.tree.forms import to_form
from tcomp.grammar.tree.function import Constant, Expr, Function, Size, Tensor, walk

LARGEST = 1 << 62
"""Sizes, extents and element counts stay below this, so that 64-bit index arithmetic never overflows."""

Shape = tuple[int, ...]


def bind_sizes(function: Function, shapes: Mapping[str, Shape], constants: Mapping[str, int]) -> dict[str, int]:
    """Unify the declared dimensions of the inputs with the shapes of arrays.

    A dimension that is a size symbol determines it; literals and expressions are checked.

    Args:
        function: the program.
        shapes: the shape of every input array by parameter name.
        constants: the values of the const parameters.

    Returns:
        The value of every size symbol and const parameter.

    Raises:
        ShapeError: with every mismatch found: rank, size, literal, expression.
    """
    binding = _Binding(function)
    binding.bind_constants(constants)
    binding.bind_shapes(shapes)
    if not binding.problems:
        binding.problems.extend(_disagreements(function, binding.sizes))
    if binding.problems:
        raise ShapeError(*binding.problems)
    return binding.sizes


def check_sizes(function: Function, sizes: Mapping[str, int]) -> None:
    """Refuse sizes that lack a symbol or const parameter, or hold a value that is negative or too large.

    A parameter that has a default need not be there.
    """
    sizes = {**function.defaults, **sizes}
    problems = [
        Diagnostic(f"the size {name} is not given", function.source, _first_mention(function, name))
        for name in function.sizes
        if name not in sizes
    ]
    problems += [
        Diagnostic(f"the const parameter {tensor.name} is not given", function.source, tensor.span)
        for tensor in function.inputs
        if tensor.role == "const" and tensor.name not in sizes and tensor.default is None
    ]
    for name, value in sizes.items():
        low = 0 if name in function.sizes else -LARGEST + 1
        if not _is_integer(value) or not low <= value < LARGEST:
            problems.append(Diagnostic(_bad_value(name, value, low), function.source, _first_mention(function, name)))
    if not problems:
        problems.extend(_disagreements(function, sizes))
    if problems:
        raise ShapeError(*problems)


def _disagreements(function: Function, sizes: Mapping[str, int]) -> Iterator[Diagnostic]:
    """Sizes that do not fit the defs that are called."""
    for agreement in function.agreements:
        first, second = to_form(agreement.first, sizes), to_form(agreement.second, sizes)
        if first is None or second is None or first.constant == second.constant:
            continue
        values = f"{first.constant} by {agreement.first_text}, {second.constant} by {agreement.second_text}"
        message = f"Mismatched sizes for dimension {agreement.what}: {values}"
        note = Diagnostic("the parameter is here", function.source, agreement.parameter, severity="note")
        yield Diagnostic(message, function.source, agreement.span, notes=(note,))


def extents(function: Function, tensor: Tensor, sizes: Mapping[str, int]) -> Shape:
    """The declared extents of a tensor; ``ShapeError`` where one is negative, undefined or too large."""
    assert tensor.dims is not None
    result: list[int] = []
    for dimension, expr in enumerate(tensor.dims):
        form = to_form(expr, sizes)
        what = f"dimension {dimension} of {tensor.name}, {text_of(function, expr.span)},"
        if form is None or form.terms:
            raise ShapeError(Diagnostic(f"{what} has no value for these sizes", function.source, expr.span))
        if not 0 <= form.constant < LARGEST:
            problem = "negative" if form.constant < 0 else "too large"
            raise ShapeError(Diagnostic(f"{what} is {problem}: {form.constant}", function.source, expr.span))
        result.append(form.constant)
    return tuple(result)


class _Binding:
    def __init__(self, function: Function) -> None:
        self.function = function
        self.sizes: dict[str, int] = {}
        self.origins: dict[str, str] = {}
        self.problems: list[Diagnostic] = []

    def report(self, message: str, span: Span) -> None:
        self.problems.append(Diagnostic(message, self.function.source, span))

    def bind_constants(self, constants: Mapping[str, int]) -> None:
        for tensor in self.function.inputs:
            if tensor.role != "const":
                continue
            value = constants.get(tensor.name, tensor.default)
            if value is None:
                self.report(f"the const parameter {tensor.name} is not given", tensor.span)
            elif not _is_integer(value) or not -LARGEST < value < LARGEST:
                self.report(_bad_value(tensor.name, value, -LARGEST + 1), tensor.span)
            else:
                self.sizes[tensor.name] = int(value)

    def bind_shapes(self, shapes: Mapping[str, Shape]) -> None:
        fitting: list[tuple[Tensor, int, Expr, int]] = []
        for tensor in self.function.inputs:
            if tensor.role == "const" or tensor.dims is None:
                continue
            shape = shapes.get(tensor.name)
            if shape is None:
                self.report(f"the input {tensor.name} is not given", tensor.span)
            elif len(shape) != tensor.rank:
                found = f"expected {tensor.rank} dimensions but found tensor with {len(shape)} dimensions"
                self.report(f"{tensor.name}: {found}", tensor.span)
            else:
                fitting += [(tensor, d, tensor.dims[d], shape[d]) for d in range(tensor.rank)]
        for tensor, dimension, expr, found_size in fitting:
            if isinstance(expr, Size) and expr.name not in self.sizes:
                self.sizes[expr.name] = found_size
                self.origins[expr.name] = f"dimension {dimension} of {tensor.name} {_shape_text(shapes[tensor.name])}"
        for tensor, dimension, expr, found_size in fitting:
            self.check(tensor, dimension, expr, found_size, f"{tensor.name} {_shape_text(shapes[tensor.name])}")

    def check(self, tensor: Tensor, dimension: int, expr: Expr, found: int, array: str) -> None:
        """Compare one dimension with its expression, unless a symbol in it has no value because of another problem."""
        if any(isinstance(node, Size) and node.name not in self.sizes for node in walk(expr)):
            return
        form = to_form(expr, self.sizes)
        where = f"(dimension {dimension} of {tensor.name})"
        if form is None:
            self.report(f"{text_of(self.function, expr.span)} has no value for these sizes {where}", expr.span)
        elif form.constant == found:
            return
        elif isinstance(expr, Constant):
            self.report(f"Constant dimension expected size {form.constant} but found {found} {where}", expr.span)
        else:
            name = text_of(self.function, expr.span)
            values = f"{form.constant} by {self._origin(expr)}, {found} by dimension {dimension} of {array}"
            self.report(f"Mismatched sizes for dimension {name}: {values}", expr.span)

    def _origin(self, expr: Expr) -> str:
        """What gave the sizes in an expression their values."""
        names = dict.fromkeys(node.name for node in walk(expr) if isinstance(node, Size))
        if isinstance(expr, Size):
            return self.origins.get(expr.name, "the const parameter")
        return " and ".join(
            f"{name} = {self.sizes[name]}" + (f" of {self.origins[name]}" if name in self.origins else "")
            for name in names
        )


def _first_mention(function: Function, name: str) -> Span | None:
    for tensor in (*function.inputs, *function.outputs):
        if tensor.name == name:
            return tensor.span
        for expr in tensor.dims or ():
            for node in walk(expr):
                if isinstance(node, Size) and node.name == name:
                    return node.span
    return None


def _shape_text(shape: Shape) -> str:
    """The extents as Python writes them, whatever integers they are."""
    return str(tuple(int(extent) for extent in shape))


def _is_integer(value: object) -> bool:
    """Python and NumPy integers are; booleans and floats are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _bad_value(name: str, value: int, low: int) -> str:
    """What is wrong with a value that is no integer, below ``low`` or too large."""
    if not _is_integer(value):
        return f"{name} must be an integer, not {value!r}"
    return f"{name} is {'too large' if value >= low else 'too small' if low else 'negative'}: {value}"
