"""Products of matrices by the warps of a block: fragments from shared memory, and the instructions that multiply."""

from __future__ import annotations

from tcomp.backends.cuda.text.spelling import Fetched
from tcomp.backends.cuda.text.writer import KernelWriter
from tcomp.loops.ir import Execute, LoopNode, walk
from tcomp.mapping.gpu.atoms import LANES_OF_ROWS, STEPS, Operand, Product, product_at
from tcomp.mapping.plan.values import Phase

MATRICES = ", matrices by warps"
"""What the comment on such a phase says."""

_MULTIPLY = {"float16": "tc_mma_f16", "bfloat16": "tc_mma_bf16"}


def multiplies(writer: KernelWriter, phase: Phase) -> bool:
    """Whether warps multiply matrices at a phase."""
    operation = writer.plan.operations.get(phase.mark)
    return operation is not None and operation.kind == "contract"


def multiply_matrices(writer: KernelWriter, node: LoopNode, phase: Phase, depth: int) -> None:
    """All steps of a tile: each warp fetches fragments of both operands, and multiplies each row by each column.

    Row ``8 W (2 i + h) + 8 w + g`` of a tile is row ``8 h + g`` of atom ``i`` of warp ``w`` of W.
    """
    product = product_at(writer.plan, phase, [c for c in writer.plan.copies if c.mark == phase.mark])
    assert product is not None
    (instance,) = {n.statement for n in walk(node) if isinstance(n, Execute)}
    writer.uses_thread = True
    step, i, j = (writer.fresh(name) for name in ("step", "i_atom", "j_atom"))
    rows, columns = (
        writer.fresh(f"{writer.program.dialect.name(o.copy.storage)}_part") for o in (product.row, product.column)
    )
    put = writer.put
    put(depth, "#pragma unroll")
    put(depth, f"for (int {step} = 0; {step} < {product.steps}; ++{step}) {{")
    put(depth + 1, f"unsigned int {rows}[{product.row_blocks}][4], {columns}[{product.column_blocks // 2}][4];")
    put(depth + 1, "#pragma unroll")
    put(depth + 1, f"for (int {i} = 0; {i} < {product.row_blocks}; ++{i}) {{")
    put(depth + 2, f"{_row_fragment(writer, product, f'{rows}[{i}]', i, step)};")
    writer.at(instance)
    put(depth + 1, "}")
    put(depth + 1, "#pragma unroll")
    put(depth + 1, f"for (int {j} = 0; {j} < {product.column_blocks // 2}; ++{j}) {{")
    put(depth + 2, f"{_column_fragment(writer, product, f'{columns}[{j}]', j, step)};")
    writer.at(instance)
    put(depth + 1, "}")
    put(depth + 1, "#pragma unroll")
    put(depth + 1, f"for (int {i} = 0; {i} < {product.row_blocks}; ++{i}) {{")
    put(depth + 2, "#pragma unroll")
    put(depth + 2, f"for (int {j} = 0; {j} < {product.column_blocks}; ++{j}) {{")
    second = f"{columns}[{j} / 2][{j} % 2 * 2], {columns}[{j} / 2][{j} % 2 * 2 + 1]"
    put(depth + 3, f"{_MULTIPLY[product.kind]}({_results(writer, product, i, j)}, {rows}[{i}], {second});")
    writer.at(instance)
    put(depth + 2, "}")
    put(depth + 1, "}")
    put(depth, "}")


def _row_fragment(writer: KernelWriter, product: Product, into: str, atom: str, step: str) -> str:
    """A fragment of 16 rows over 16 steps: lanes 8 q + r say where row r of its quarter q begins.

    Quarters are rows 0 to 7 and 8 to 15 of the first eight steps, and the same of the others.
    """
    apart = LANES_OF_ROWS * product.warps
    base = "" if product.warps == 1 else f"{LANES_OF_ROWS} * (thread / 32) + "
    if product.row.turned:
        row = f"{base}{apart} * (2 * {atom} + thread / 8 % 2)"
        return _fetch(writer, product.row, into, row, f"{STEPS} * {step} + thread % 8 + thread / 16 % 2 * 8")
    row = f"{base}{apart} * (2 * {atom} + thread / 8 % 2) + thread % 8"
    return _fetch(writer, product.row, into, row, f"{STEPS} * {step} + thread / 16 % 2 * 8")


def _column_fragment(writer: KernelWriter, product: Product, into: str, pair: str, step: str) -> str:
    """Two fragments of 8 columns over 16 steps: the quarters are the halves of the steps of one, then of the other."""
    if product.column.turned:
        column = f"16 * {pair} + thread / 16 % 2 * 8"
        return _fetch(writer, product.column, into, column, f"{STEPS} * {step} + thread % 16")
    column = f"16 * {pair} + thread % 8 + thread / 16 % 2 * 8"
    return _fetch(writer, product.column, into, column, f"{STEPS} * {step} + thread / 8 % 2 * 8")


def _fetch(writer: KernelWriter, operand: Operand, into: str, side: str, step: str) -> str:
    fetched: Fetched = next(f for f in writer.fetched if f.copy is operand.copy)
    room = dict(zip(operand.copy.order, operand.copy.room, strict=True))
    texts = {operand.side: side, operand.step: step}
    places = "".join(f"[{texts.get(d, '0')}]" for d in operand.copy.order if room[d] > 1)
    return f"tc_ldmatrix{'_turned' if operand.turned else ''}({into}, &{fetched.name}{places})"


def _results(writer: KernelWriter, product: Product, i: str, j: str) -> str:
    """The four results of a lane in an atom: two rows by two columns."""
    local, target = writer.locals[product.target.storage], product.target

    def place(row: str, column: str) -> str:
        by_dimension = {0: row, 1: column}
        own = (by_dimension.get(d.dimension) for d in target.deals)  # type: ignore[arg-type]  # None is none of them
        kept = zip(own, target.shape, strict=True)
        return local.name + "".join(f"[{text}]" for text, extent in kept if extent > 1)

    pairs = [(f"2 * {i}{h}", f"2 * {j}{p}") for h in ("", " + 1") for p in ("", " + 1")]
    return ", ".join(place(row, column) for row, column in pairs)
