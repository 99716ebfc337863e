"""The TextMate grammar of program text, which VS Code, Sublime Text, Zed, IntelliJ and GitHub's Linguist read."""

from __future__ import annotations

import json
from importlib import resources

from tcomp.highlighting.rules import FILES, RULES

SCOPE = "source.tc"
"""The name by which other grammars and themes refer to it."""

FILE = "tc.tmLanguage.json"


def grammar() -> str:
    """The grammar, as it is in the file that is shipped."""
    return (
        json.dumps(
            {
                "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
                "name": "tcomp",
                "scopeName": SCOPE,
                "fileTypes": [FILES.removeprefix("*.")],
                "patterns": [{"match": rule.pattern, "name": rule.scope} for rule in RULES],
            },
            indent=2,
        )
        + "\n"
    )


def shipped() -> str:
    """The file of the grammar that is installed."""
    return (resources.files("tcomp.highlighting") / FILE).read_text(encoding="utf-8")
