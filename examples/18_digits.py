"""Lesson 18: a small network trained on handwritten digits says the same after every pass and in every precision.

scikit-learn brings 1,797 digits of 8 x 8 pixels. A network with two convolutions learns most of them in two seconds;
then it is read, rewritten and compiled, and weights and images are kept in 16 and in 8 bits. What counts is whether a
digit is told to be another one.
"""

from __future__ import annotations

from typing import Any

from pictures import picture

import tcomp as tc
from tcomp.networks import NetworkOptions

try:
    import torch
    from sklearn.datasets import load_digits
    from torch import nn
except ImportError:
    torch = None

KEPT = 97
"""Digits that are not learnt from, but asked for."""


def digits() -> tuple[Any, Any]:
    """Images between 0 and 1, and which digit each is."""
    given = load_digits()
    images = torch.tensor(given.images, dtype=torch.float32)[:, None] / 16
    return images, torch.tensor(given.target)


def trained(images: Any, classes: Any) -> Any:
    """Two convolutions with their norms, a pool, and a layer for ten digits."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # two would wait for each other more than they compute
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.SiLU(),
        nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip
    optimiser = torch.optim.Adam(model.parameters(), lr=0.005)
    for _ in range(4):
        for part in torch.randperm(len(images)).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(images[part]), classes[part]).backward()
            optimiser.step()
    return model.eval()


def main() -> None:
    images, classes = digits()
    model = trained(images[:-KEPT], classes[:-KEPT])
    x, right = images[-KEPT:], classes[-KEPT:].numpy()
    with torch.no_grad():
        said = model(x).numpy().argmax(1)
    print(f"PyTorch tells {(said == right).sum()} of {KEPT} digits that it has not seen")

    network = tc.networks.from_torch(model, x)
    whole = tc.compile_network(network)
    for name, stage in whole.stages.items():
        assert (stage.reference(x.numpy()).argmax(1) == said).all(), name
    plain = tc.compile_network(network, options=dict.fromkeys(NetworkOptions.passes(), False))
    for net in (whole, plain):
        assert (net(x).numpy().argmax(1) == said).all()
    print(f"after each pass, with all ({whole.kernels} kernels) and with none ({plain.kernels}), all are told the same")

    picture("digits_kernels", whole.picture)

    for precision in ("float16", "int8"):
        net = tc.compile_network(network, precision=precision, calibrate=[images[:KEPT]])
        assert net.agreement is not None
        told = net(x).numpy().argmax(1)
        print(f"{precision}: {(told != said).sum()} digits are told otherwise, {(told == right).sum()} are right")
        assert (told != said).sum() <= 1


if __name__ == "__main__" and torch is not None:
    main()
elif __name__ == "__main__":
    print("this lesson needs PyTorch and scikit-learn: pip install torch scikit-learn")
