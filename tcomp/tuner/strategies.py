"""The strategies by name: the modules of ``tcomp.tuner.searches``.

A module is a strategy by what it defines: its ``NAME``, and ``begin``, which makes it from a ``Background``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from types import ModuleType

from tcomp.errors import TcompError
from tcomp.grammar.tree.diagnostics import did_you_mean
from tcomp.tuner import searches
from tcomp.tuner.database.trials import Strategy
from tcomp.tuner.model.background import Background
from tcomp.tuner.settings import GUIDED_STRATEGY

Begin = Callable[[Background], Strategy]


def strategies_in(package: ModuleType) -> Mapping[str, Begin]:
    """What begins each strategy that is a module of a package, by its name; the usual default comes first."""
    names = [found.name for found in pkgutil.iter_modules(package.__path__)]
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    ordered = sorted(modules, key=lambda module: (module.NAME != GUIDED_STRATEGY, module.NAME))
    return {module.NAME: module.begin for module in ordered}


STRATEGIES = strategies_in(searches)


def strategy_named(name: str, background: Background) -> Strategy:
    """A strategy, ready to propose.  Raises TcompError if there is none of that name."""
    begin = STRATEGIES.get(name)
    if begin is None:
        hint = did_you_mean(str(name), STRATEGIES) or f"there are {', '.join(STRATEGIES)}"
        raise TcompError(f"there is no strategy {name!r}; {hint}")
    return begin(background)
