"""The command line: ``tcomp run | compile | simulate | tune | tuned | library | options | fuzz | ...``."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from typing import TextIO

from tcomp.commands import compile as compile_command
from tcomp.commands import (
    debug,
    doctor,
    draw,
    export,
    fmt,
    fuzz,
    gradient,
    library,
    network,
    options,
    run,
    simulate,
    tune,
)
from tcomp.commands.comparing import compare
from tcomp.commands.kept import cache, calibrate, tuned
from tcomp.commands.terminal.display import show_error
from tcomp.commands.terminal.exit_codes import DONE, INTERRUPTED, NOT_HERE, WRONG
from tcomp.commands.terminal.parser import Parser
from tcomp.errors import TargetError, TcompError
from tcomp.version import __version__

_EPILOG = "exit status: 0 done, 1 the program or an input is wrong, 2 wrong usage, 3 the target is not here"


def build_parser() -> argparse.ArgumentParser:
    """The parser; each command sets ``execute``, a function from the parsed arguments to an exit status."""
    parser = Parser(
        prog="tcomp", description="Compile and run tensor comprehensions.", epilog=_EPILOG, allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"tcomp {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command")
    for name, module, summary in (
        ("run", run, "compile a def, call it and describe the results"),
        ("compile", compile_command, "compile a def and print any stage of it; nothing runs"),
        ("simulate", simulate, "run a def's CUDA kernels on the CPU, look for faults and count what they cost"),
        ("tune", tune, "search for the mapping options that make a def fastest here, and keep them"),
        ("tuned", tuned, "look after what tuning found"),
        ("calibrate", calibrate, "fit to this machine what was fitted to others, in a minute; optional"),
        ("compare", compare, "show several mappings of a def beside each other: loops, text, traffic, time"),
        ("draw", draw, "draw a def's schedule, iterations, tiles, memories, loops or rates as SVG, PNG or GIF"),
        ("export", export, "write kernels to be used without tcomp: C or CUDA, libraries, an example"),
        ("gradient", gradient, "print the gradients of a def as program text"),
        ("fmt", fmt, "lay program text out in one way"),
        ("network", network, "read a network that PyTorch exported, print it or tell how it runs"),
        ("library", library, "list the operators that come with tcomp, or print one"),
        ("options", options, "list the mapping options"),
        ("fuzz", fuzz, "compile random programs under random options and compare them with the interpreter"),
        ("doctor", doctor, "tell what works on this machine, and why the rest does not"),
        ("debug", debug, "list the environment variables that show what happens"),
        ("cache", cache, "look after the compiled kernels kept on disk"),
    ):
        module.add_arguments(commands.add_parser(name, help=summary, description=summary, allow_abbrev=False))
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.  argparse exits by itself, with 2, on wrong usage."""
    try:
        parser = build_parser()
        arguments = parser.parse_args(argv)
        if arguments.command is None:
            parser.print_help()
            return DONE
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            status: int = arguments.execute(arguments)
        sys.stdout.flush()
    except TargetError as error:
        show_error(str(error))
        return NOT_HERE
    except TcompError as error:
        show_error(str(error))
        return WRONG
    except MemoryError as error:
        show_error(f"error: there is not enough memory: {error}")
        return WRONG
    except BrokenPipeError:
        _drop_output()
        return WRONG
    except OSError as error:
        _drop_output()
        show_error(f"error: the output cannot be written: {error}")
        return WRONG
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def _drop_output() -> None:
    """Nobody can read the output; what is still buffered must not raise again when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning as one line, without the place in tcomp's own code that gave it."""
    show_error(f"warning: {message}", "yellow")
