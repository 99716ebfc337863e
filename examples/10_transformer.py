"""Lesson 10: a transformer in PyTorch whose layers are defs: attention, normalisation, gelu, loss.

Each def is a layer of torch with parameters from its tensors; autograd runs their derived gradients, and torch's own
optimiser takes the steps.  The network learns the documentation that ships with Python, a letter at a time.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from pydoc_data.topics import topics

if importlib.util.find_spec("torch") is None:
    print("lesson 10 needs PyTorch: pip install 'tcomp[torch]'")
    sys.exit(0)

import torch
from pictures import picture

import tcomp.torch as tct

PROGRAM = """
def embed(float(V,D) letters, float(P,D) places, int64(B,L) text) -> (X) {
    X(b,l,d) = letters(text(b,l),d) + places(l,d) where l in 0:L
}
def attend(float(B,L,D) X, float(D) g, float(D,H,K) Q, float(D,H,K) W, float(D,H,K) V, float(H,K,D) O) -> (Y) {
    square(b,l) +=! X(b,l,d) * X(b,l,d)
    N(b,l,d) = X(b,l,d) * rsqrt(square(b,l) / D + 0.00001) * g(d)
    q(b,h,l,k) +=! N(b,l,d) * Q(d,h,k)
    w(b,h,l,k) +=! N(b,l,d) * W(d,h,k)
    v(b,h,l,k) +=! N(b,l,d) * V(d,h,k)
    score(b,h,i,j) +=! q(b,h,i,k) * w(b,h,j,k)
    largest(b,h,i) max=! select(j <= i, score(b,h,i,j), -3.4028234e38)
    weight(b,h,i,j) = j <= i ? exp((score(b,h,i,j) - largest(b,h,i)) * rsqrt(float(K))) : 0.0
    total(b,h,i) +=! weight(b,h,i,j)
    mixed(b,i,h,k) +=! weight(b,h,i,j) * v(b,h,j,k)
    mixed(b,i,h,k) = mixed(b,i,h,k) / total(b,h,i)
    Y(b,l,d) +=! mixed(b,l,h,k) * O(h,k,d)
    Y(b,l,d) = Y(b,l,d) + X(b,l,d)
}
def think(float(B,L,D) X, float(D) g, float(D,F) up, float(F,D) down) -> (Y) {
    square(b,l) +=! X(b,l,d) * X(b,l,d)
    N(b,l,d) = X(b,l,d) * rsqrt(square(b,l) / D + 0.00001) * g(d)
    hidden(b,l,f) +=! N(b,l,d) * up(d,f)
    active(b,l,f) = hidden(b,l,f) * sigmoid(1.702 * hidden(b,l,f))
    Y(b,l,d) +=! active(b,l,f) * down(f,d)
    Y(b,l,d) = Y(b,l,d) + X(b,l,d)
}
def surprise(float(B,L,D) X, float(V,D) letters, int64(B,L) next) -> (loss) {
    logit(b,l,v) +=! X(b,l,d) * letters(v,d)
    largest(b,l) max=! logit(b,l,v)
    total(b,l) +=! exp(logit(b,l,v) - largest(b,l))
    loss +=! log(total(b,l)) + largest(b,l) - logit(b,l,next(b,l))
    loss = loss / (B * L)
}
"""

WIDTH, HEADS, LAYERS, CONTEXT, BATCH, STEPS = 64, 4, 2, 64, 16, 150


class Transformer(torch.nn.Module):
    """Letters in, the mean surprise at the next ones out."""

    def __init__(self, letters: int) -> None:
        super().__init__()
        self.ops = ops = tct.define(PROGRAM)
        one_head = (WIDTH, HEADS, WIDTH // HEADS)
        small = lambda tensor: torch.nn.init.normal_(tensor, std=0.08)  # noqa: E731
        self.embed = tct.Layer(ops.embed, init=small, letters=(letters, WIDTH), places=(CONTEXT, WIDTH))
        blocks: list[torch.nn.Module] = []
        for _ in range(LAYERS):
            heads = {"Q": one_head, "W": one_head, "V": one_head, "O": (*one_head[1:], WIDTH)}
            blocks.append(tct.Layer(ops.attend, init=small, g=torch.ones(WIDTH), **heads))
            blocks.append(
                tct.Layer(ops.think, init=small, g=torch.ones(WIDTH), up=(WIDTH, 4 * WIDTH), down=(4 * WIDTH, WIDTH))
            )
        self.blocks = torch.nn.Sequential(*blocks)

    def forward(self, text: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.ops.surprise(self.blocks(self.embed(text)), self.embed.letters, following)
        return loss


def main() -> None:
    torch.manual_seed(0)
    text = "\n".join(topics[name] for name in sorted(topics))
    alphabet = sorted(set(text))
    codes = torch.tensor([alphabet.index(letter) for letter in text[:200_000]])
    model = Transformer(len(alphabet))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(alphabet)} letters")

    begin, losses = time.perf_counter(), []
    for step in range(STEPS):
        starts = torch.randint(len(codes) - CONTEXT - 1, (BATCH,))
        window = torch.stack([codes[start : start + CONTEXT + 1] for start in starts])
        loss = model(window[:, :-1].contiguous(), window[:, 1:].contiguous())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 30 == 0 or step == STEPS - 1:
            print(f"step {step:3}: {losses[-1]:.2f} nats a letter")
    print(f"{1e3 * (time.perf_counter() - begin) / STEPS:.0f} ms a step, compiling included")
    sizes = {"B": BATCH, "L": CONTEXT, "D": WIDTH, "H": HEADS, "K": WIDTH // HEADS}
    picture("attend_memory", model.ops.attend.compile(sizes=sizes).draw, "memory")
    assert sum(losses[-10:]) / 10 < 2.75 < losses[0]


if __name__ == "__main__":
    main()
