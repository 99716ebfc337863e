"""How a command line that cannot be read is answered: what is wrong first, then what was probably meant."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Iterable, Sequence
from typing import NoReturn

_CHOICE = re.compile(r"argument (?P<what>.+): invalid choice: '(?P<given>.*)' \(choose from (?P<choices>.*)\)", re.S)
_SIZE = re.compile(r"\w+=\d+,?")


class Parser(argparse.ArgumentParser):
    """A parser of one command, or of all; its subcommands are of this class, too."""

    def parse_args(self, args: Sequence[str] | None = None, namespace: object = None) -> argparse.Namespace:  # type: ignore[override]
        """The arguments; exits with 2 where they cannot be read, and says so on stderr."""
        given = sys.argv[1:] if args is None else list(args)
        values, left = self.parse_known_args(given)
        if left:
            self._command_of(given).refuse(left)
        return values

    def refuse(self, words: Sequence[str]) -> NoReturn:
        """Exit for words that are no arguments of this command."""
        message = f"there is no argument {' '.join(words)}"
        if all(map(_SIZE.fullmatch, words)):
            self.error(f"{message}; sizes are separated by commas: --sizes M=4,N=4")
        word = next((word for word in words if word.startswith("-")), words[0])
        self.error(f"{message}{_meant(word.partition('=')[0], self._option_string_actions)}")

    def error(self, message: str) -> NoReturn:
        """What is wrong, and where to read more; exits with 2."""
        choice = _CHOICE.fullmatch(message)
        if choice is not None:
            choices = re.findall(r"[^,'\s]+", choice["choices"])
            what = "command" if choice["what"] == "COMMAND" else f"{choice['what']}"
            known = _meant(choice["given"], choices) or f"; there are {', '.join(choices)}"
            message = f"there is no {what} {choice['given']}{known}"
        self.exit(2, f"error: {message}\n  help: {self.prog} --help\n")

    def _command_of(self, words: Iterable[str]) -> Parser:
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for word in words:
                    if word in action.choices:
                        found = action.choices[word]
                        assert isinstance(found, Parser)
                        return found._command_of(words)
        return self


def _meant(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""
