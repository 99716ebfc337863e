"""GPUs: which loops of a kernel's text are unrolled."""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.mapping.machines.fitted.declaring import NOT_RECORDED, fitted
from tcomp.mapping.machines.fitted.gpu import WIDE


@dataclass(frozen=True, eq=False, repr=False)
class Unrolling:
    """Which loops of a kernel's text are unrolled."""

    longest: int = fitted(
        64,
        "iterations",
        (
            "Loops over the elements of a thread are unrolled up to this length, so that what they index stays "
            "in registers."
        ),
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    most_copies: int = fitted(
        128,
        "copies of a body",
        "Copies of a loop body where the user does not say.",
        machine="NVIDIA H100",
        how=WIDE,
    )
    most_wide_copies: int = fitted(
        1024,
        "copies of a body",
        "The same where few threads have many elements, which need several steps at a time.",
        machine="NVIDIA H100",
        how=WIDE,
    )
    few_trips: int = fitted(
        8,
        "iterations",
        "Loops of so few are unrolled whatever they do: their loads go out together.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    extrema_together: int = fitted(
        16,
        "iterations",
        (
            "Steps of a shared max or min that are written out: as many as NVRTC chooses for a sum. It takes "
            "an instruction that it has as text for a large one, and would write out four."
        ),
        machine="none: machine code for sm_90 by NVRTC 13",
        how="2026-11-25: counted in the loop of softmax over 12,672 columns",
    )
    image_lines: int = fitted(
        8,
        "lines of an image",
        "Boxes that the thread which fetches asks for without a loop: with more it keeps their coordinates in memory.",
        machine="none: machine code for sm_90 by NVRTC 13",
        how="2026-11-28: 32 of them spilled 72 bytes in a convolution of 8 x 64 x 64 x 320 halves, 8 none",
    )


UNROLLING = Unrolling()
