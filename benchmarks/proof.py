"""What proving plans costs: its share of a whole compilation, over the operators that ship with tcomp.

    python benchmarks/proof.py

Whole compilations are timed without caches: parsing, scheduling, the proof of the last plan, code generation, and the C
compiler, or NVIDIA's where it is installed (for a GPU no driver is needed).
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources

from tcomp import grammar
from tcomp.backends.cuda.tools import nvrtc
from tcomp.backends.cuda.tools.images import compile_image
from tcomp.backends.host import native
from tcomp.errors import TargetError, TcompError
from tcomp.grammar.tree.function import Function
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime.registry import DEFAULT_TARGET
from tcomp.runtime.specialisation import Specialisation

_EXTENT = 48
_WINDOW = 3


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one compilation."""

    name: str
    proof: float
    mapping: float
    whole: float


def operators() -> Iterator[tuple[str, Function, dict[str, int]]]:
    """Every def of the library that compiles at sizes without a meaning: windows of 3, everything else 48."""
    for path in sorted((resources.files("tcomp") / "library").iterdir(), key=lambda p: p.name):
        if not path.name.endswith(".tc"):
            continue
        for name, function in grammar.define(path.read_text(encoding="utf-8"), path.name).items():
            names = (*function.sizes, *(t.name for t in function.inputs if t.role == "const"))
            sizes = {n: _WINDOW if n in ("KH", "KW", "KD", "K") else 1 if n.startswith(("S", "P", "D")) and len(n) < 3
                     else _EXTENT for n in names}  # fmt: skip
            yield f"{path.name.removesuffix('.tc')}.{name}", function, sizes


def cost(name: str, function: Function, sizes: Mapping[str, int], target: str) -> Cost:
    """Compile for a target, the machine's compiler included.  Raises TcompError."""
    begin = time.perf_counter()
    grammar.define(function.source.text)
    made = Specialisation(function, Sizes(sizes), MappingOptions(), target, False).lower()
    mapped = time.perf_counter()
    if target == DEFAULT_TARGET:
        native.load(made.source)
    else:
        compile_image(made.source, target.partition(":")[2])
    end = time.perf_counter()
    return Cost(name, made.seconds["proof"], mapped - begin, end - begin)


def survey(target: str) -> tuple[list[Cost], list[str]]:
    """The cost of every operator, and the names of those that refuse the sizes."""
    costs, refused = [], []
    for name, function, sizes in operators():
        try:
            costs.append(cost(name, function, sizes, target))
        except TcompError:
            refused.append(name)
    return costs, refused


def main() -> None:
    """Run as a command."""
    os.environ["TCOMP_CACHE"] = "0"
    targets = [DEFAULT_TARGET]
    try:
        nvrtc.find()
        targets.append("cuda:sm_90")
    except TargetError as error:
        sys.stdout.write(f"no GPU target: {error.message}\n")
    for target in targets:
        costs, refused = survey(target)
        proof, mapping, whole = (sum(getattr(c, part) for c in costs) for part in ("proof", "mapping", "whole"))
        worst = max(costs, key=lambda c: c.proof / c.whole)
        shares = [c.proof / c.whole for c in costs]
        sys.stdout.write(
            f"{target}: {len(costs)} operators, {len(refused)} more refuse these sizes; the proof takes\n"
            f"  {proof / whole:.1%} of all compile time, {proof / mapping:.1%} of it without the compiler,\n"
            f"  in the median {statistics.median(shares):.1%}, most {max(shares):.1%} ({worst.name})\n"
        )


if __name__ == "__main__":
    main()
