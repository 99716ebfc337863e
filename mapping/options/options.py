"""Sets of mapping options: copies with some of them changed, texts, and the sets of Tensor Comprehensions."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar

from tcomp.errors import Diagnostic, TcompError
from tcomp.mapping.options.declarations import OfParts, Option, declaration, declare
from tcomp.mapping.options.declared import DeclaredOptions
from tcomp.mapping.options.texts import as_source, as_text, hint_for


@dataclass(frozen=True, slots=True)
class MappingOptions(DeclaredOptions):
    """How a program is laid on the machine; every legal value gives the same results.

    Methods give changed copies, under the names that Tensor Comprehensions has for them; ``dataclasses.replace`` sets
    any field.  ``str`` is source to paste.
    """

    __signature__: ClassVar[inspect.Signature]

    parts: Mapping[str, MappingOptions] | tuple[tuple[str, MappingOptions], ...] = declare(
        OfParts(lambda name, given: _part(name, given)),
        (),
        "options of single parts, by the name of a tensor that the part makes; such a part has tiles of its own",
        planted=True,
    )

    def __new__(cls, *_: object, **named: object) -> MappingOptions:
        for name in named:
            _known_option(name)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        for option in fields(self):
            value = declaration(option.metadata).check(option.name, getattr(self, option.name))
            object.__setattr__(self, option.name, value)

    def tile(self, *sizes: int) -> MappingOptions:
        """These options with tile sizes for the outer band, outermost first."""
        return replace(self, tile_sizes=sizes)

    def map_to_threads(self, *threads: int) -> MappingOptions:
        """These options with a shape for the threads of a block, in x, y, z."""
        return replace(self, threads=threads)

    def map_to_blocks(self, *blocks: int) -> MappingOptions:
        """These options with a largest grid, in x, y, z."""
        return replace(self, blocks=blocks)

    def fuse(self, strategy: str) -> MappingOptions:
        """The short name of ``outer_schedule_fusion_strategy``."""
        return self.outer_schedule_fusion_strategy(strategy)

    def schedule_fusion_strategy(self, strategy: str) -> MappingOptions:
        """These options with another fusion strategy, both between clusters and within each."""
        return self.outer_schedule_fusion_strategy(strategy).intra_tile_schedule_fusion_strategy(strategy)

    def outer_schedule_fusion_strategy(self, strategy: str) -> MappingOptions:
        """These options with another strategy for fusing clusters."""
        return replace(self, fusion_strategy=strategy)

    def intra_tile_schedule_fusion_strategy(self, strategy: str) -> MappingOptions:
        """These options with another way to order the statements of a tile.

        The statements of a cluster share all coincident loops, so that ``preserve3coincident`` is ``max`` here.
        """
        return replace(self, point_fusion="max" if strategy == "preserve3coincident" else strategy)

    def match_library_calls(self, match: bool) -> MappingOptions:
        """These options with reductions shared by threads, or not."""
        return replace(self, match_reductions=match)

    def with_unroll(self, copies: int) -> MappingOptions:
        """These options with at most so many copies of a loop body."""
        return replace(self, unroll=copies)

    def with_shared_memory(self, use: bool) -> MappingOptions:
        """These options with operands fetched into shared memory, or not."""
        return replace(self, use_shared_memory=use)

    def with_private_memory(self, use: bool) -> MappingOptions:
        """These options with elements kept in registers, or not."""
        return replace(self, use_private_memory=use)

    def with_max_shared_memory(self, count: int) -> MappingOptions:
        """These options with at most so many bytes of shared memory for a block."""
        return replace(self, max_shared_memory=count)

    @property
    def of_parts(self) -> dict[str, MappingOptions]:
        """The options of single parts, by name."""
        return dict(self.parts)

    def of_part(self, made: Iterable[str]) -> MappingOptions:
        """The options of the part that makes some tensors: those of its own before those of the whole.

        Raises TcompError if two of these tensors have different ones.
        """
        own = {name: options for name, options in self.of_parts.items() if name in {*made}}
        if len(set(own.values())) > 1:
            raise TcompError(f"one part makes {' and '.join(own)}, so their options must be the same")
        changed = next(iter(own.values()))._changed() if own else {}
        return replace(self, parts=(), **changed) if self.parts else self

    @property
    def counts_loops(self) -> bool:
        """Whether tile sizes are given somewhere, for loops as they stand in the program."""
        return self.tile_sizes is not None or any(part.tile_sizes is not None for part in self.of_parts.values())

    def unfused(self) -> MappingOptions:
        """These options with nothing fused anywhere."""
        parts = {name: replace(part, fusion_strategy="min") for name, part in self.of_parts.items()}
        return replace(self, fusion_strategy="min", parts=parts)

    def _changed(self) -> dict[str, Any]:
        """The options that differ from their defaults."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}

    def to_json(self) -> str:
        """All options as a JSON object with sorted keys; those of parts that differ from their defaults."""
        parts = {name: options._changed() for name, options in self.of_parts.items()}
        return json.dumps(asdict(replace(self, parts=())) | {"parts": parts}, sort_keys=True)

    def to_source(self) -> str:
        """The Python expression that makes equal options: those that differ from their defaults."""
        told = {name: as_source(value) for name, value in self._changed().items() if name != "parts"}
        if self.parts:
            told["parts"] = f"{{{', '.join(f'{name!r}: {part.to_source()}' for name, part in self.of_parts.items())}}}"
        return f"MappingOptions({', '.join(f'{name}={value}' for name, value in told.items())})"

    def to_text(self) -> str:
        """The text that ``from_text`` reads as equal options: those that differ from their defaults."""
        told = {name: value for name, value in self._changed().items() if name != "parts"}
        for name, part in self.of_parts.items():
            own = part._changed() or {"tile_sizes": None}
            told |= {f"{name}.{option}": value for option, value in own.items()}
        return ",".join(f"{name}={as_text(value)}" for name, value in told.items())

    def __str__(self) -> str:
        return self.to_source()

    @classmethod
    def of(cls, given: object) -> MappingOptions:
        """Options as callers give them: options, a text as for ``from_text``, or a mapping from names to values.

        Raises TcompError.
        """
        if isinstance(given, MappingOptions):
            return given
        if isinstance(given, str):
            return cls.from_text(given)
        if isinstance(given, Mapping):
            named = {str(name): value for name, value in given.items()}
            own = {name: value for name, value in named.items() if name not in OPTIONS and _says_options(value)}
            whole = {name: value for name, value in named.items() if name not in own}
            return cls(**(whole | {"parts": dict(whole.get("parts", ())) | own} if own else whole))
        message = f"options must be MappingOptions, text or a mapping, not {type(given).__name__}"
        raise TcompError(Diagnostic(message, hint='write options="tile=32x32", say; `tcomp options` lists them'))

    @classmethod
    def from_json(cls, text: str) -> MappingOptions:
        """The inverse of ``to_json``; options left out have their defaults.

        Raises TcompError for text that is not an object of known options.
        """
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise TcompError(f"mapping options are not JSON: {error}") from None
        if not isinstance(values, dict):
            raise TcompError(f"mapping options must be a JSON object with keys among {', '.join(sorted(OPTIONS))}")
        return cls(**values)

    @classmethod
    def from_text(cls, text: str) -> MappingOptions:
        """Options from a text such as ``mlp,tile=32x32,use_shared_memory=false``.

        It may start with the name of a set; ``tile``, ``map_to_threads`` and the like stand for the options that these
        methods set, and ``model`` for leaving the choice to the model.  Raises TcompError.
        """
        first, *rest = (part.strip() for part in text.split(","))
        result = cls()
        if "=" in first or not first:
            rest = [first, *rest]
        else:
            result = cls.named(first)
        for part in filter(None, rest):
            name, equals, value = (word.strip() for word in part.partition("="))
            if not equals:
                raise TcompError(f"{part!r} is not OPTION=VALUE, as in tile=32x32")
            if not value:
                raise TcompError(Diagnostic(f"{part!r} has no value", hint="`model` leaves the choice to the model"))
            part_name, dot, name = name.rpartition(".")
            name = _METHODS.get(name, name)
            _known_option(name)
            read: dict[str, Any] = {name: OPTIONS[name].read(name, value)}
            if dot:
                own = replace(result.of_parts.get(part_name, cls()), **read)
                read = {"parts": result.of_parts | {part_name: own}}
            result = replace(result, **read)
        return result

    @classmethod
    def named(cls, name: str) -> MappingOptions:
        """One of the sets that Tensor Comprehensions ships, which serve to compare with it.

        Those who only want a good start leave the options out: the model then chooses.  Raises TcompError.
        """
        found = NAMED.get(name)
        if found is None:
            raise TcompError(
                Diagnostic(f"there is no set of options {name!r}", hint=hint_for(name, NAMED, "the sets are"))
            )
        return found


OPTIONS: Mapping[str, Option] = {f.name: declaration(f.metadata) for f in fields(MappingOptions)}
"""Every option by name, in order."""

_SELF, *_FIELDS = inspect.signature(MappingOptions.__init__).parameters.values()
MappingOptions.__signature__ = inspect.Signature(_FIELDS)

MappingOptions.__doc__ = "\n".join(
    [
        f"{MappingOptions.__doc__}",
        "    Attributes:",
        *(
            f"        {name}: {text}.  Default: {default.strip('`')}.  Matters: {where}."
            for name, (default, text, where) in ((n, o.describe()) for n, o in OPTIONS.items())
        ),
    ]
)

_METHODS = {option.method: name for name, option in OPTIONS.items() if option.method} | {"fuse": "fusion_strategy"}


_OF_PARTS = ("tile_sizes", "fusion_strategy", "register_tile", "recompute_limit")
"""What parts of one program may have differently."""


def _says_options(value: object) -> bool:
    """Whether a value is options, and not one of an option."""
    return isinstance(value, Mapping | MappingOptions) or (isinstance(value, str) and "=" in value)


def _part(name: str, given: object) -> MappingOptions:
    """The options of a part.  Raises TcompError."""
    options = MappingOptions.of(given)
    for option in options._changed():
        if option not in _OF_PARTS:
            hint = f"a part may have its own {', '.join(_OF_PARTS)}"
            raise TcompError(Diagnostic(f"{option} is an option of the whole program, not of {name}", hint=hint))
    return options


def _known_option(name: str) -> None:
    if name not in OPTIONS:
        hint = hint_for(name, OPTIONS, "the options are")
        raise TcompError(Diagnostic(f"there is no mapping option {name!r}", hint=hint))


_BASE = MappingOptions(
    fusion_strategy="preserve3coincident",
    match_reductions=False,
    unroll=1,
    use_shared_memory=False,
    use_private_memory=False,
)

NAMED: Mapping[str, MappingOptions] = {
    "naive": _BASE.tile(32, 32, 32).map_to_threads(32, 8).map_to_blocks(256, 256),
    "pointwise": _BASE.tile(32, 32, 32).map_to_threads(32, 4, 4).map_to_blocks(100, 100, 100).with_unroll(128),
    "mlp": _BASE.fuse("max").tile(1).map_to_threads(128).map_to_blocks(128),
    "conv": _BASE.tile(4, 8, 8, 8).map_to_threads(4, 16, 4).map_to_blocks(256, 256, 256),
    "group_conv": _BASE.tile(1, 1).map_to_threads(4, 16, 4).map_to_blocks(256, 256),
}
"""The sets of Tensor Comprehensions, by name, with the values that they have there."""
