"""Strips of rows that several passes over a matrix share: what was measured, and what was chosen."""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.mapping.machines.fitted.declaring import fitted


@dataclass(frozen=True, eq=False, repr=False)
class Strips:
    """When passes over a matrix run together, strip by strip."""

    rows: int = fitted(
        12,
        "rows",
        "Those of a strip: few enough to stay near, and several register tiles.",
        machine="Zen 3, two threads",
        how="2026-11-29: A'(Ax) by hand, 1900x2100 doubles, takes 0.53 ms with 4 or 8, 0.55 with 16, 0.57 with 32",
    )
    kept_share: float = fitted(
        1.0,
        "of the second cache",
        "What a strip reads of the matrix is no more: wider rows fetch it again from farther away.",
        machine="Zen 3, two threads",
        how="2026-11-29: A'(Ax), 4000x4000 doubles, strips of 0.75: 4.2 to 6.1 ms, before 7.9; wider: not tried",
    )
    least: float = fitted(
        4.0,
        "second caches",
        "A matrix that is smaller is near enough for a second pass, which then has no parts of sums to combine.",
        machine="Zen 3, two threads",
        how=(
            "2026-11-29: A'(Ax) of 2.9 MB (600x600) 0.052 ms, before 0.053 to 0.075; of 1.3 MB 0.034, before 0.027; "
            "A'r and Ap of 2.3 MB (540x540) 0.047, before 0.049, of 2.2 MB (520x520) 0.053, before 0.049"
        ),
    )
    of_a_part: int = fitted(
        2,
        "strips",
        "A part of the rows has so many at least: its own sums are written and read for them.",
        machine="Zen 3, two threads",
        how=(
            "2026-11-29: A'r and Ap, doubles, one strip: 193x3001 0.089 ms, before 0.080, 380x700 0.050, before 0.045; "
            "two: 390x1500 0.079, before 0.086, 450x600 0.040, before 0.049"
        ),
    )


STRIPS = Strips()
