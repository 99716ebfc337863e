"""opt_einsum, for contractions."""

from __future__ import annotations

import numpy as np
import opt_einsum

from benchmarks.cpu_case import Array, Case, Einsum
from benchmarks.cpu_peer import Implementation, returning


class OptEinsum:
    """Its expressions for fixed shapes."""

    version = opt_einsum.__version__

    def build(self, case: Case, inputs: list[Array]) -> Implementation | None:
        """Contractions of floats."""
        if not isinstance(case.formula, Einsum) or case.output_dtype != "float32":
            return None
        expression = opt_einsum.contract_expression(case.formula.subscripts, *(i.shape for i in inputs))
        return returning(lambda: expression(*inputs), np.asarray)


def peer() -> OptEinsum:
    """This process's opt_einsum."""
    return OptEinsum()
