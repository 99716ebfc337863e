"""One case: a program, how it is compiled, and what it is compared with; as values and as the text of a reproducer."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields, replace
from typing import Literal

from tcomp.errors import TcompError
from tcomp.fuzzing.programs.programs import Program
from tcomp.fuzzing.relations import RELATIONS
from tcomp.grammar import parse
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.options.options import MappingOptions

Order = Literal["forward", "reverse", "random"]
ORDERS: tuple[Order, ...] = ("forward", "reverse", "random")

_FACT = re.compile(r"# (\w+): (.*)")


@dataclass(frozen=True, slots=True)
class Case:
    """What is run.

    ``relation`` names the change of the program whose results must equal those of the interpreter for the program
    itself; ``variation`` seeds its choices.  ``order`` is that of simulated threads, and matters on the simulator only.
    ``machine`` is the processor for which a CPU kernel is laid out; None stands for the one that it runs on.
    """

    program: Program
    target: str
    options: MappingOptions
    relation: str = "same"
    variation: int = 0
    order: Order = "forward"
    machine: Machine | None = None

    @property
    def simulated(self) -> bool:
        """Whether it needs the simulator."""
        return self.target.partition(":")[0] == "simulator"

    @property
    def on_device(self) -> bool:
        """Whether it needs a CUDA device."""
        return self.target.partition(":")[0] == "cuda"

    def text(self, remarks: str = "") -> str:
        """The case as a program with comments before it; ``remarks`` are for people."""
        facts = {
            "target": self.target,
            "options": json.dumps(changed_options(self.options)),
            "relation": self.relation,
            "variation": self.variation,
            "order": self.order,
            "machine": json.dumps(None if self.machine is None else asdict(self.machine)),
            "sizes": json.dumps(dict(self.program.sizes)),
            "seed": self.program.seed,
            "bits": self.program.bits,
        }
        lines = [f"## {line}".rstrip() for line in remarks.splitlines()]
        lines += [f"# {name}: {value}" for name, value in facts.items()]
        return "\n".join([*lines, self.program.text])


def changed_options(options: MappingOptions) -> dict[str, object]:
    """The options that do not have their defaults."""
    return {f.name: getattr(options, f.name) for f in fields(options) if getattr(options, f.name) != f.default}


def read_case(text: str) -> Case:
    """The inverse of ``Case.text``.  Raises TcompError for what it did not write."""
    facts = {match[1]: match[2] for match in map(_FACT.fullmatch, text.splitlines()) if match}
    definitions = parse(text)
    try:
        sizes = {str(name): int(value) for name, value in json.loads(facts["sizes"]).items()}
        program = Program(definitions[0], sizes, int(facts["seed"]), int(facts.get("bits", "0")))
        order = next(o for o in ORDERS if o == facts["order"])
        facts_of_machine = json.loads(facts.get("machine", "null"))
        machine = None if facts_of_machine is None else Machine(**facts_of_machine)
        case = Case(program, facts["target"], MappingOptions.from_json(facts["options"]), machine=machine)
        if facts["relation"] not in RELATIONS:
            raise TcompError(f"there is no relation {facts['relation']}; there are {', '.join(RELATIONS)}")
        return replace(case, relation=facts["relation"], variation=int(facts["variation"]), order=order)
    except (KeyError, IndexError, ValueError, TypeError, StopIteration, AttributeError) as error:
        raise TcompError(f"this is not a reproducer that tcomp fuzz wrote: {error!r}") from None
