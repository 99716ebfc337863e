"""What threads share on a CPU: tiles, parts of rows that are searched, strips for several passes over a matrix."""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.mapping.machines.fitted.declaring import NOT_RECORDED, fitted


@dataclass(frozen=True, eq=False, repr=False)
class Sharing:
    """What threads share."""

    tiles: int = fitted(
        16,
        "tiles",
        "Tiles that a group should have, so that threads which are slowed down can be made up for.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    least_work: int = fitted(
        1 << 18,
        "instances",
        (
            "Instances of an update from which on a second loop over parts costs less than idle threads: some "
            "microseconds."
        ),
        machine="two threads; processor not recorded",
        how=(
            "2026-11-21, with shared reductions as a whole: the sum of 4096x2048 floats takes 0.36 ms, before "
            "0.69; how the number was found: not recorded"
        ),
    )
    least_steps: int = fitted(
        4096,
        "steps",
        ("Steps that a part has at least. Results depend on it, so it must not depend on the threads of a machine."),
        machine="two threads; processor not recorded",
        how="as least_work",
    )
    least_rows: int = fitted(
        64,
        "steps",
        "The same for a part that runs along rows of elements.",
        machine="Zen 3, two threads",
        how="2026-11-23: sums down columns, 3000x1000 takes 133 us, before 1,660; 100000x64 780, before 1,260",
    )
    least_part: int = fitted(
        1 << 16,
        "instances",
        ("Instances of such a part: threads that sum 1,000 columns of some of the rows each read memory in one piece."),
        machine="Zen 3, two threads",
        how="as least_rows",
    )
    most_parts: int = fitted(
        32,
        "parts",
        (
            "So many parts run along rows at most, though fewer would give threads enough to do: what one reads is "
            "then in a cache for others that read the same rows."
        ),
        machine="Zen 4, two threads",
        how=(
            "2026-11-25: the gradient of layer norm takes 0.8 of the time with 2048x768, 0.7 with 8192x256, 1.0 with "
            "300x4096; sums down columns alone take as long as before"
        ),
    )
    scan_part: int = fitted(
        2048,
        "elements",
        "Elements of a part of a cumulative reduction at most: a tile of those by which parts are combined.",
        machine="none",
        how="2026-11-26: chosen, not measured; parts of 8192 begin each of their four tiles anew",
    )


SHARING = Sharing()


@dataclass(frozen=True, eq=False, repr=False)
class Seeking:
    """When the place of an extremum is sought in one part of a row."""

    steps: int = fitted(
        32768,
        "steps",
        "Those of a part, which is read a second time.",
        machine=NOT_RECORDED,
        how="chosen, not measured",
    )
    least_parts: int = fitted(
        8,
        "parts",
        "Shorter rows are read again up to the place, while they are near.",
        machine=NOT_RECORDED,
        how="chosen, not measured",
    )


SEEKING = Seeking()


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
