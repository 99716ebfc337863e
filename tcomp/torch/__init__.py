"""Tensor comprehensions at home in PyTorch::

    import tcomp.torch as tct

    ops = tct.define("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }", namespace="mylib")
    C = ops.mm(A, B)                    # or torch.ops.mylib.mm(A, B)
    C = tct.einsum("m k, k n -> m n", A, B)

Operations of ``tcomp.define`` take tensors that require gradients, too.  What is here names operators, makes layers of
them, and writes small texts by itself.
"""

from tcomp.torch.define import define, function, gradient
from tcomp.torch.layers import Layer
from tcomp.torch.patterns import einsum, reduce

__all__ = ["Layer", "define", "einsum", "function", "gradient", "reduce"]
