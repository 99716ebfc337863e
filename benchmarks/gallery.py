"""The pictures of the gallery, each with the line of Python that makes it.

The lines are run where ``blur``, ``mm`` and so on are the programs below; what they give is drawn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tcomp import define
from tcomp.pictures.canvas import Picture
from tcomp.pictures.rates import Work, draw_roofline

CPU_RESULTS = Path(__file__).parent / "results" / "cpu-zen5-2026-11-24.json"

BLUR = """
def blur(float(H,W) I) -> (O) {
  B(y,x) = (I(y,x) + I(y,x+1) + I(y,x+2)) / 3
  O(y,x) = (B(y,x) + B(y+1,x) + B(y+2,x)) / 3
}"""
PROGRAMS = (
    BLUR,
    "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
    "def chain(float(N) A) -> (D) { B(i) = A(i) + A(i+1)  C(i) = B(i) * B(i+1)  D(i) = C(i) - C(i+1) }",
    "def transpose(float(N,M) A) -> (B) { B(i,j) = A(j,i) where i in 0:M, j in 0:N }",
)
SCHEDULES = """
tiled = blur.schedule(sizes={"H": 14, "W": 18}, target="cpu")["O"].tile("y", "x", 6, 8)["B"].compute_at("O", "x_o")
step = chain.schedule(sizes={"N": 27}, target="cpu")["C"].compute_at("D", "i", shift=-1)
step = step["B"].compute_at("D", "i", shift=-2)
product = mm.schedule(sizes={"M": 64, "N": 64, "K": 32}, target="cuda:sm_90")["C"].tile("m", "n", 32, 32)
product = product.threads(8, 8).split("k", 8)
turned = transpose.schedule(sizes={"N": 64, "M": 64}, target="cuda:sm_90")
"""


@dataclass(frozen=True, slots=True)
class Caption:
    """A picture of the gallery: what it is called, what it shows, and the expression that makes it, if one does."""

    title: str
    words: str
    code: str = ""


CAPTIONS: dict[str, Caption] = {
    "blur-domain.svg": Caption(
        "Tiles and what one iteration needs",
        "The iterations of both stages of a blur; colours and numbers are tiles. Neighbouring tiles compute some "
        "elements of the first stage again.",
        'tiled.draw("domain")',
    ),
    "blur-order.svg": Caption(
        "The order as a film", "Each square takes its colour when it runs.", 'tiled.draw("order")'
    ),
    "blur-dates.svg": Caption("The order as one picture", "The darker, the later.", 'tiled.draw("dates")'),
    "blur-tree.svg": Caption(
        "A schedule tree",
        "Bands of loops, sequences, and the marks at which something is declared, copied or spelled as a whole.",
        'tiled.draw("tree")',
    ),
    "blur-footprint.svg": Caption(
        "What one tile touches",
        "The boxes that a tile in the middle reads and writes, to scale.",
        'tiled.draw("footprint")',
    ),
    "blur-memory.svg": Caption(
        "What lies in which memory",
        "From the first statement that writes it to the last that reads it.",
        'tiled.draw("memory")',
    ),
    "blur-loops.svg": Caption(
        "Loops with their share", "The share of all operations that runs in each loop.", 'tiled.draw("loops")'
    ),
    "chain-dates.svg": Caption(
        "Three loops in step",
        "Each reads what the one before it has just written, one iteration later.",
        'step.draw("dates")',
    ),
    "product-threads.svg": Caption(
        "Threads of a block",
        "Which thread computes which element of a matrix product; the numbers stand in the first tile.",
        'product.draw("threads")',
    ),
    "product-memory.svg": Caption(
        "Memories of a GPU",
        "When the sums of a matrix product on a GPU are in registers, and what of its operands is in shared memory.",
        'product.draw("memory")',
    ),
    "product-banks.svg": Caption(
        "Sectors and banks",
        "What each access of a warp costs in a matrix product: sectors of global memory and passes over the banks of "
        "shared memory; the line is the fewest that are possible. Counted by the simulator.",
        'product.draw("banks")',
    ),
    "transpose-banks.svg": Caption(
        "A transposition without conflicts",
        "Rows of shared memory are padded, so that a column lies in different banks.",
        'turned.draw("banks")',
    ),
    "roofline.svg": Caption(
        "The 18 workloads on a roofline",
        "What a processor can do at most for each byte that is moved, and what kernels reach, from the "
        "[results](site:performance/index.md).",
    ),
    "speed.svg": Caption("Beside others on an H100", "How many times as fast as the fastest of the others."),
    "passes.svg": Caption(
        "Which pass of networks pays", "How many times as long networks of six classes take without each of the passes."
    ),
    "rooms.svg": Caption("The rooms of the code", "Each box is a folder."),
}
"""The pictures of the gallery by the names of their files, in the order in which they are shown."""


def pictures() -> Iterator[tuple[str, Picture]]:
    """The pictures that this module draws, with the names of their files."""
    names: dict[str, object] = {}
    for text in PROGRAMS:
        module = define(text)
        names |= {name: module[name] for name in module}
    exec(SCHEDULES, names)
    for name, caption in CAPTIONS.items():
        if caption.code:
            picture = eval(caption.code, names)
            assert isinstance(picture, Picture)
            yield name, picture
    yield "roofline.svg", roofline(CPU_RESULTS)


def roofline(path: Path) -> Picture:
    """The rows of a run of ``benchmarks/cpu.py`` that count floats, on the roofline of their machine."""
    found = json.loads(path.read_text(encoding="utf-8"))
    limits = found["limits"]
    works = [
        Work(row["key"], row["flops"], row["least_bytes"], row["entries"]["tcomp"]["times"]["median_ms"] / 1e3)
        for row in found["rows"]
        if row["flops"] and "int8" not in row["title"]
    ]
    source = f"{found['processor']}, {found['threads']} threads, fp32, {found['date'][:10]}"
    return draw_roofline(works, limits["flops"], limits["bandwidth"], source)
