"""Lesson 9: train a network whose every layer, loss and optimiser step is a line of mathematics.

``value_and_grad`` derives the gradients of the loss from its text.  NumPy alone is needed; where torch is installed,
the same network in torch takes the same steps and must arrive at the same parameters.
"""

from __future__ import annotations

import importlib.util

import numpy as np
from pictures import picture
from sklearn.datasets import load_digits

import tcomp as tc

PROGRAM = """
def loss(float(N,C,H,W) X, float(F,C,KH,KW) K, float(F) b, float(G,F,H/2,W/2) V, float(G) v, int64(N) label)
    -> (L, score) {
    conv(n,f,h,w) +=! constant_exterior(X, 0)(n,c,h+kh-1,w+kw-1) * K(f,c,kh,kw) where n in 0:N, h in 0:H, w in 0:W
    act(n,f,h,w) = relu(conv(n,f,h,w) + b(f))
    pool(n,f,p,q) +=! act(n,f,2*p+i,2*q+j) where i in 0:2, j in 0:2
    score(n,g) +=! pool(n,f,p,q) * V(g,f,p,q)
    score(n,g) = score(n,g) / 4.0 + v(g)
    largest(n) max=! score(n,g)
    total(n) +=! exp(score(n,g) - largest(n))
    L +=! log(total(n)) + largest(n) - score(n,label(n))
    L = L / N
}
def sgd(float(N) W, float(N) M, float(N) d_W, float rate, float momentum) -> (W_new, M_new) {
    M_new(n) = momentum * M(n) + d_W(n)
    W_new(n) = W(n) - rate * M_new(n)
}
"""

PARAMETERS = ("K", "b", "V", "v")
RATE, MOMENTUM = np.float32(0.1), np.float32(0.9)
BATCH, STEPS, COMPARED = 64, 200, 20

Arrays = list[np.ndarray]


def batches(images: np.ndarray, labels: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """The same for everybody."""
    rng = np.random.default_rng(1)
    return [(images[chosen], labels[chosen]) for chosen in (rng.choice(len(images), BATCH) for _ in range(STEPS))]


def train(parameters: Arrays, data: list[tuple[np.ndarray, np.ndarray]]) -> tuple[list[float], Arrays, Arrays]:
    """The losses, the parameters after the compared steps, and those at the end."""
    ops = tc.define(PROGRAM)
    loss_and_gradients = ops.loss.value_and_grad(PARAMETERS)
    momenta = [np.zeros_like(p) for p in parameters]
    losses, compared = [], parameters
    for step, (images, labels) in enumerate(data, start=1):
        zero = np.zeros((len(labels), 10), "f4")
        (value, _), gradients = loss_and_gradients(images, *parameters, labels, cotangents=(np.float32(1), zero))
        losses.append(float(value))
        for place, gradient in enumerate(gradients):
            shape = parameters[place].shape
            flat = (array.reshape(-1) for array in (parameters[place], momenta[place], gradient))
            moved = ops.sgd(*flat, RATE, MOMENTUM)
            parameters[place], momenta[place] = (array.reshape(shape) for array in moved)
        if step == COMPARED:
            compared = list(parameters)
    return losses, compared, parameters


def train_in_torch(parameters: Arrays, data: list[tuple[np.ndarray, np.ndarray]]) -> tuple[Arrays, Arrays]:
    """The same in torch: the parameters after the compared steps, and those at the end."""
    import torch  # noqa: PLC0415  (optional)
    from torch.nn import functional  # noqa: PLC0415

    K, b, V, v = tensors = [torch.tensor(p, requires_grad=True) for p in parameters]
    optimizer = torch.optim.SGD(tensors, lr=float(RATE), momentum=float(MOMENTUM))
    compared: Arrays = []
    for step, (images, labels) in enumerate(data, start=1):
        act = functional.relu(functional.conv2d(torch.from_numpy(images), K, b, padding=1))
        score = functional.linear(functional.avg_pool2d(act, 2).flatten(1), V.flatten(1), v)
        optimizer.zero_grad()
        functional.cross_entropy(score, torch.from_numpy(labels)).backward()
        optimizer.step()
        if step == COMPARED:
            compared = [t.detach().numpy().copy() for t in tensors]
    return compared, [t.detach().numpy() for t in tensors]


def curve(losses: list[float]) -> str:
    """The losses as a line of blocks, each the mean of some steps."""
    means = [float(np.mean(part)) for part in np.array_split(losses, 50)]
    return "".join("▁▂▃▄▅▆▇█"[min(7, int(8 * mean / means[0]))] for mean in means)


def main() -> None:
    digits = load_digits()
    images = (digits.images[:, None] / 16).astype("f4")
    labels = digits.target.astype("i8")
    rng = np.random.default_rng(0)
    shapes = [(16, 1, 3, 3), (16,), (10, 16, 4, 4), (10,)]
    begin = [(rng.standard_normal(s) * (0.3 if len(s) == 4 else 0)).astype("f4") for s in shapes]
    begin[2] /= 4
    held_out = slice(1500, None)
    data = batches(images[:1500], labels[:1500])

    losses, compared, trained = train(list(begin), data)
    print(f"loss {losses[0]:.3f} {curve(losses)} {losses[-1]:.3f}")

    ops = tc.define(PROGRAM)
    _, score = ops.loss(images[held_out], *trained, labels[held_out])
    picture("loss_memory", ops.loss.compile(images[held_out], *trained, labels[held_out]).draw, "memory")
    accuracy = float((score.argmax(1) == labels[held_out]).mean())
    print(f"accuracy on digits that it has not seen: {accuracy:.3f}")
    assert accuracy > 0.85

    if importlib.util.find_spec("torch"):
        theirs, trained_there = train_in_torch(begin, data)
        _, score = ops.loss(images[held_out], *trained_there, labels[held_out])
        there = float((score.argmax(1) == labels[held_out]).mean())
        print(f"accuracy of the same network trained in torch: {there:.3f}")
        assert abs(accuracy - there) < 0.02
        error = max(float(np.abs(a - b).max()) for a, b in zip(compared, theirs, strict=True))
        print(f"after {COMPARED} steps the parameters differ from torch's by {error:.1e} at most")
        assert error < 1e-5
    print(f"the gradient is a program, too:\n{ops.loss.gradient('V').text}")


if __name__ == "__main__":
    main()
