"""Mapping options, each declared once: default, choices, help.  The CLI, the cache key and the docs read this."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace

from tcomp.errors import TcompError

FUSION_STRATEGIES = ("max", "preserve3coincident", "min")


@dataclass(frozen=True, slots=True)
class MappingOptions:
    """How a program is laid on the machine; every legal value gives the same results."""

    tile_sizes: tuple[int, ...] | None = field(
        default=None,
        metadata={
            "help": "tile sizes of the outer band, outermost first; 0 leaves a loop untiled; None lets the model choose"
        },
    )
    fusion_strategy: str = field(
        default="max",
        metadata={
            "help": "what fusion by footprint may merge: everything, while three coincident loops stay, or nothing",
            "choices": FUSION_STRATEGIES,
        },
    )
    register_tile: tuple[int, int] | None = field(
        default=None,
        metadata={"help": "rows and vector extent of a reduction's register tile; None fits them to the registers"},
    )
    recompute_limit: float = field(
        default=1.5,
        metadata={"help": "largest ratio of recomputed to original instances that fusion accepts"},
    )
    parallel: bool = field(default=True, metadata={"help": "run the outer coincident loops on several threads"})
    fast_math: bool = field(default=False, metadata={"help": "let the compiler break IEEE rules beyond sums"})

    def __post_init__(self) -> None:
        if self.fusion_strategy not in FUSION_STRATEGIES:
            raise TcompError(
                f"fusion_strategy is {self.fusion_strategy!r}; it must be one of {', '.join(FUSION_STRATEGIES)}"
            )
        if self.tile_sizes is not None:
            object.__setattr__(self, "tile_sizes", _integers("tile_sizes", self.tile_sizes, 0))
        if self.register_tile is not None:
            object.__setattr__(self, "register_tile", _integers("register_tile", self.register_tile, 1))
            if len(self.register_tile) != 2:
                raise TcompError(f"register_tile is {self.register_tile!r}; it must be rows and vector extent")
        limit = self.recompute_limit
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not limit >= 1:
            raise TcompError(f"recompute_limit is {limit!r}; it must be a number of at least 1")
        for name in ("parallel", "fast_math"):
            if not isinstance(getattr(self, name), bool):
                raise TcompError(f"{name} is {getattr(self, name)!r}; it must be true or false")

    def tile(self, *sizes: int) -> MappingOptions:
        """These options with tile sizes for the outer band, outermost first."""
        return replace(self, tile_sizes=sizes)

    def fuse(self, strategy: str) -> MappingOptions:
        """These options with another fusion strategy."""
        return replace(self, fusion_strategy=strategy)

    def to_json(self) -> str:
        """All options as a JSON object with sorted keys."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> MappingOptions:
        """The inverse of ``to_json``.  Raises TcompError for text that is not an object of known options."""
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise TcompError(f"mapping options are not JSON: {error}") from None
        known = {f.name for f in fields(cls)}
        if not isinstance(values, dict) or not set(values) <= known:
            raise TcompError(f"mapping options must be a JSON object with keys among {', '.join(sorted(known))}")
        return cls(**values)


def _integers(name: str, value: object, least: int) -> tuple[int, ...]:
    """The value as a tuple of integers of at least ``least``; raises TcompError if it is anything else."""
    if not isinstance(value, tuple | list) or any(type(v) is not int or v < least for v in value):
        raise TcompError(f"{name} is {value!r}; it must be a list of integers of at least {least}")
    return tuple(value)
