"""Which candidates have the same code, told early: by the plan whose tree no later pass makes anew.

Among the candidates that a model ranks best more than half are alike.
"""

from __future__ import annotations

import json
from dataclasses import asdict

from tcomp.driver import Begun
from tcomp.mapping.options.options import OPTIONS, MappingOptions
from tcomp.mapping.text.writer import plan_text
from tcomp.tuner.database.trials import digest


def likeness(begun: Begun, options: MappingOptions, target: str) -> str:
    """A digest that candidates of one problem for a target share only if their code is the same."""
    values = asdict(options)
    left = {name: values[name] for name, option in OPTIONS.items() if not option.is_planted(target)}
    return digest(json.dumps([plan_text(begun.plan, ""), left]))
