"""``tcomp compile``: print the source of a kernel, any stage on the way to it, or its machine code.  Nothing runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tcomp.commands.inputs.programs import Request, add_program_arguments, program_request, suggestion
from tcomp.commands.terminal.display import show_line, show_source
from tcomp.commands.terminal.exit_codes import DONE
from tcomp.commands.terminal.machinecode import FORMS, forms_of, machine_code, suffix_of
from tcomp.debug import stage_suffix
from tcomp.errors import TcompError
from tcomp.runtime.kernel import explain
from tcomp.storage.wholefiles import write_whole

_LIST = "list"
_EXPLAIN = "explain"
_SOURCE = "source"
_KERNEL = "kernel"


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """What the command line asks for; ``until`` is None unless all stages up to one are wanted."""

    program: Request
    emit: str
    until: str | None
    output: Path | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``tcomp compile``."""
    add_program_arguments(parser, purpose="what to compile for, such as cuda:sm_90; no GPU is needed")
    parser.add_argument(
        "--emit",
        default=_SOURCE,
        metavar="STAGE",
        help="the stage to print: source is the last one, explain says what was fused, tiled and parallelised, list "
        f"names them all; for GPUs also {', '.join(FORMS)}",
    )
    parser.add_argument("--until", metavar="PASS", help="print every stage up to this one")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write to FILE instead of printing")
    parser.set_defaults(execute=lambda values: execute(_request(values)))


def _request(values: argparse.Namespace) -> CompileRequest:
    return CompileRequest(program_request(values), values.emit, values.until, values.output)


def execute(request: CompileRequest) -> int:
    """Compile a program and print what is asked for.  Raises TcompError."""
    program, target = request.program.load(), request.program.target
    kernel_suffix = suffix_of(target)
    specialisation = program.specialised(request.program.sizes, target)
    compilation = specialisation.lower()
    stages = compilation.stages
    if request.until is not None:
        last = _stage(request.until, stages)
        names = list(stages)[: list(stages).index(last) + 1]
        if request.output is not None:
            _write(request.output, "".join(f"==== {name}\n{_ended(stages[name])}" for name in names))
            return DONE
        for name in names:
            show_line(f"==== {name}", "bold")
            show_source(stages[name], stage_suffix(name, kernel_suffix))
    elif request.emit == _LIST:
        for name in (*stages, _EXPLAIN, *forms_of(target)):
            show_line(name)
    elif request.emit == _EXPLAIN:
        _deliver(explain(specialisation, compilation), "txt", request.output)
    elif request.emit in FORMS:
        _deliver(machine_code(compilation.source, target, request.emit), request.emit, request.output)
    else:
        name = _stage(request.emit, stages)
        _deliver(stages[name], stage_suffix(name, kernel_suffix), request.output)
    return DONE


def _deliver(content: str | bytes, suffix: str, output: Path | None) -> None:
    """Write to a file or to stdout, to a terminal only what is text."""
    if output is not None:
        _write(output, content)
    elif isinstance(content, str):
        show_source(content, suffix)
    elif sys.stdout.isatty():
        raise TcompError(f"a {suffix} is not text: name a file with --output, or redirect stdout to one")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()


def _write(path: Path, content: str | bytes) -> None:
    try:
        write_whole(path, _ended(content).encode() if isinstance(content, str) else content)
    except (OSError, ValueError) as error:
        raise TcompError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None


def _ended(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


def _stage(name: str, stages: Mapping[str, str]) -> str:
    """A stage by name; ``source`` is the kernel.  Raises TcompError for a name that is none."""
    name = _KERNEL if name == _SOURCE else name
    if name not in stages:
        raise TcompError(f"there is no stage {name}; {suggestion(name, stages, 'the stages are')}")
    return name
