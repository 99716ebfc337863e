"""Lesson 12: a small convolutional network out of defs that call each other and the library.

Each layer is a def. The network is one, too: its calls are inlined, so it is a single kernel, its gradient is derived
from the whole, and every size in it follows from the sizes of the arrays.
"""

from __future__ import annotations

import numpy as np
from pictures import picture

import tcomp as tc

PROGRAM = """
use library:conv2d
use library:softmax

def network(float(N,1,H,W) I, float(F,1,3,3) K, float(F) a, float(G,F,3,3) L, float(G) b, float(G,C) D) -> (P) {
    A = conv2d_bias_relu_pool(I, K, a)
    B = conv2d_bias_relu_pool(A, L, b)
    P = softmax(head(B, D))
}
def head(float(N,G,H,W) X, float(G,C) D) -> (Y) {
    mean(n,g) +=! X(n,g,h,w) / (H * W)
    Y(n,c) +=! mean(n,g) * D(g,c)
}
"""


def main() -> None:
    ops = tc.define(PROGRAM)
    print("The network without its calls:\n")
    print(ops.network)

    rng = np.random.default_rng(0)
    shapes = ((4, 1, 28, 28), (8, 1, 3, 3), (8,), (16, 8, 3, 3), (16,), (16, 10))
    arrays = [0.3 * rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
    image, k, a, weights, b, dense = arrays
    result = ops.network(*arrays)

    # The same, one call from Python after another.
    library = tc.library
    middle = library.conv2d_bias_relu_pool(library.conv2d_bias_relu_pool(image, k, a), weights, b)
    expected = library.softmax(ops.head(middle, dense))
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-6)
    print(f"\nprobabilities of {result.shape[1]} classes, which sum to", result.sum(axis=1).round(4))

    # One kernel: what the layers hand to each other lies in tiles of a thread.
    picture("network_memory", ops.network.compile(*arrays).draw, "memory")

    gradients = ops.network.gradient()(*arrays, np.ones_like(result))
    print("gradients of", ", ".join(str(g.shape) for g in gradients))

    try:
        ops.network(image, k, a, weights[:, :5], b, dense)
    except tc.TcompError as error:
        print("\nA kernel for 5 channels does not fit a layer of 8:\n")
        print(error)


if __name__ == "__main__":
    main()
