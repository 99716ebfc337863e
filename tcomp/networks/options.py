"""What is done to a network before it runs: the passes that can be left out, and options of single kernels."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from tcomp.errors import Diagnostic, NetworkError
from tcomp.grammar.tree.diagnostics import did_you_mean
from tcomp.mapping.options.options import NAMED, MappingOptions
from tcomp.networks.rewriting.table import RULES


@dataclass(frozen=True)
class NetworkOptions:
    """Every pass is on; ``NetworkOptions(views=False)`` leaves one out, and results stay the same."""

    share_calls: bool = field(default=True, metadata={"help": "equal calls are made once"})
    integer_layers: bool = field(
        default=True, metadata={"help": "rounded images and kernels are multiplied as they are"}
    )
    fold_weights: bool = field(default=True, metadata={"help": "what depends on weights alone is computed at once"})
    one_bit: bool = field(default=True, metadata={"help": "layers of signs are computed in bits"})
    fold_norms: bool = field(default=True, metadata={"help": "batch norms go into the convolutions before them"})
    rewrite: bool = field(default=True, metadata={"help": "rules of the table are applied where that saves something"})
    point_convolutions: bool = field(default=True, metadata={"help": "convolutions by one pixel become products"})
    choose_algorithms: bool = field(default=True, metadata={"help": "each layer by the cheapest algorithm"})
    choose_layouts: bool = field(default=True, metadata={"help": "images have channels innermost where that pays"})
    skip_zeros: bool = field(default=True, metadata={"help": "weights of zero are left out where that pays"})
    join_followers: bool = field(default=True, metadata={"help": "functions of elements join the kernel before them"})
    views: bool = field(default=True, metadata={"help": "permutations and slices are read where they lie"})
    split_batch: bool = field(
        default=True, metadata={"help": "runs of kernels go over a few images at a time where that pays"}
    )
    share_memory: bool = field(default=True, metadata={"help": "results lie in one block, one over another"})
    pack_weights: bool = field(default=True, metadata={"help": "panels of weights are packed once and kept"})
    one_call: bool = field(default=True, metadata={"help": "all kernels run in one call of C"})
    accuracy: float = 1e-5
    """The largest relative error that an algorithm may add to the results of a layer."""
    leave_rules: frozenset[str] = frozenset()
    """Names of rewrites that are not applied."""
    exact: bool = False
    """Whether rewrites, layers in bits and pruned weights by which results may be rounded otherwise are left out."""
    algorithms: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Algorithms of single layers, whatever they cost, by the names that ``explain`` has for layers."""
    jobs: int = 0
    """Kernels that are compiled at once; 0 for as many as there are processors, at most 8."""
    kernels: Mapping[str, MappingOptions] = field(default_factory=lambda: MappingProxyType({}))
    """Mapping options of single kernels, by the name of a value that the kernel makes."""

    def __post_init__(self) -> None:
        """Raises NetworkError for values that an option cannot have, and TcompError for wrong mapping options."""
        for name in (*self.passes(), "exact"):
            _check(name, getattr(self, name), isinstance(getattr(self, name), bool), "True or False")
        number = isinstance(self.accuracy, int | float) and not isinstance(self.accuracy, bool)
        _check("accuracy", self.accuracy, number and self.accuracy >= 0, "a number that is not negative")
        number = isinstance(self.jobs, int) and not isinstance(self.jobs, bool)
        _check("jobs", self.jobs, number and self.jobs >= 0, "a whole number that is not negative")
        _check("leave_rules", self.leave_rules, isinstance(self.leave_rules, Iterable), "names of rules")
        algorithms = isinstance(self.algorithms, Mapping) and all(
            isinstance(one, str) for pair in self.algorithms.items() for one in pair
        )
        _check("algorithms", self.algorithms, algorithms, "a mapping from names of layers to names of algorithms")
        _check("kernels", self.kernels, isinstance(self.kernels, Mapping), "a mapping from names to mapping options")
        kernels = {name: MappingOptions.of(value) for name, value in self.kernels.items()}
        object.__setattr__(self, "leave_rules", _rules(self.leave_rules))
        object.__setattr__(self, "kernels", MappingProxyType(kernels))

    @classmethod
    def of(cls, given: NetworkOptions | Mapping[str, Any] | None) -> NetworkOptions:
        """Options as such, from what else a caller may give.  Raises NetworkError for what is no option."""
        if given is None or isinstance(given, cls):
            return given or cls()
        if not isinstance(given, Mapping):
            raise NetworkError(f"options are NetworkOptions or a mapping, not {type(given).__name__}")
        known = [one.name for one in fields(cls)]
        plain = {name: value for name, value in given.items() if name in known}
        kernels = {name: value for name, value in given.items() if name not in known}
        for name, value in kernels.items():
            if isinstance(value, bool):
                hint = did_you_mean(str(name), cls.passes()) or f"passes are {', '.join(cls.passes())}"
                raise NetworkError(Diagnostic(f"{name} is no pass", hint=hint))
            if not _says_options(value):
                hint = did_you_mean(str(name), known) or f"options are {', '.join(known)}; those of a kernel a mapping"
                raise NetworkError(Diagnostic(f"there is no option {name}", hint=hint))
        if kernels and isinstance(plain.get("kernels", {}), Mapping):
            plain["kernels"] = {**plain.get("kernels", {}), **kernels}
        return cls(**plain)

    @classmethod
    def passes(cls) -> tuple[str, ...]:
        """The names of the passes, in the order in which they are done."""
        return tuple(one.name for one in fields(cls) if "help" in one.metadata)

    @property
    def told(self) -> str:
        """All of it that decides what is computed, the same in every process."""
        named = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "jobs"}
        kernels = {name: options.to_json() for name, options in self.kernels.items()}
        return repr(
            named | {"leave_rules": sorted(self.leave_rules), "algorithms": dict(self.algorithms), "kernels": kernels}
        )

    @property
    def workers(self) -> int:
        """How many kernels are compiled at once."""
        return self.jobs or min(8, os.cpu_count() or 1)


def _check(name: str, value: object, fits: bool, expected: str) -> None:
    """Raises NetworkError unless the value of an option fits."""
    if not fits:
        raise NetworkError(f"{name} is {expected}, not {value!r}")


def _rules(names: str | Iterable[str]) -> frozenset[str]:
    """Names of rewrites.  Raises NetworkError for one that there is not."""
    told = [names] if isinstance(names, str) else list(names)
    _check("leave_rules", told, all(isinstance(name, str) for name in told), "names of rules")
    given = frozenset(told)
    unknown = given - {rule.name for rule in RULES}
    if unknown:
        hint = f"rules are {', '.join(rule.name for rule in RULES)}"
        raise NetworkError(Diagnostic(f"{min(unknown)} is no rule of rewriting", hint=hint))
    return given


def _says_options(value: object) -> bool:
    """Whether a value is mapping options, as of a kernel: such, a mapping, or a text as ``MappingOptions`` reads."""
    if isinstance(value, str):
        return "=" in value or value.partition(",")[0].strip() in {"", *NAMED}
    return isinstance(value, Mapping | MappingOptions)
