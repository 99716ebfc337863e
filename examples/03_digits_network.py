"""Lesson 3: a trained network as one fused program.

scikit-learn trains a perceptron with two hidden layers on its 8x8 images of handwritten digits.  The weights go, as
they are, into one tcomp program: three layers and the choice of the largest output.  It becomes one loop nest: each
tile of images passes through all layers before the next one starts, and hidden layers only exist for the tile at hand.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from pictures import picture
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import tcomp as tc

PROGRAM = """
def classify(float(B,M) image, float(M,N) W1, float(N) b1, float(N,O) W2, float(O) b2, float(O,P) W3, float(P) b3)
    -> (digit, score) {
  h1(b,n)    +=!   image(b,m) * W1(m,n)
  h1(b,n)     =    relu(h1(b,n) + b1(n))
  h2(b,o)    +=!   h1(b,n) * W2(n,o)
  h2(b,o)     =    relu(h2(b,o) + b2(o))
  score(b,p) +=!   h2(b,o) * W3(o,p)
  score(b,p)  =    score(b,p) + b3(p)
  best(b)    max=! score(b,p)
  digit(b)   min=! score(b,p) == best(b) ? p : P
}
"""


Array = np.ndarray[Any, np.dtype[Any]]


def train() -> tuple[MLPClassifier, Array, Array, Array]:
    """The network, all images (float32, 0 to 1), their digits, and which of them it was trained on."""
    images, digits = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    seen = np.arange(len(images)) % 3 != 0
    network = MLPClassifier((64, 32), activation="relu", tol=1e-3, random_state=0)
    network.fit(images[seen], digits[seen])
    return network, images, digits, seen


def main() -> None:
    network, images, digits, seen = train()
    expected = network.predict(images)

    (W1, W2, W3), (b1, b2, b3) = network.coefs_, network.intercepts_
    classify = tc.define(PROGRAM).classify
    digit, score = classify(images, W1, b1, W2, b2, W3, b3)

    assert np.array_equal(network.classes_[digit], expected)
    print(f"predictions equal scikit-learn's on all {len(expected):,} images")
    right = digit == digits
    print(f"accuracy: {right[seen].mean():.1%} of the images seen in training, {right[~seen].mean():.1%} of the others")
    first, second = np.sort(score, axis=1)[:, :-3:-1].T
    print(f"closest decision: {np.min(first - second):.1e} between the best and the second score")

    kernel = classify.compile(images, W1, b1, W2, b2, W3, b3)
    plan = kernel.compilation.plan
    print()
    print(kernel.explain())
    assert len(plan.groups) == 1, "the program is one fused loop nest"
    assert all(buffer.space != "global" for buffer in plan.buffers.values()), "nothing is stored but the outputs"

    picture("digits_loops", kernel.draw, "loops")

    begin = time.perf_counter()
    classify(images, W1, b1, W2, b2, W3, b3)
    ours = time.perf_counter() - begin
    begin = time.perf_counter()
    network.predict(images)
    theirs = time.perf_counter() - begin
    print(f"{len(images):,} images: {1e3 * ours:.1f} ms, with scikit-learn {1e3 * theirs:.1f} ms")


if __name__ == "__main__":
    main()
