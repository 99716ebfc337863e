"""Program text in Pygments, which finds the lexer by the name ``tc`` and for files ``*.tc``.  Needs Pygments."""

from __future__ import annotations

from pygments.lexer import RegexLexer
from pygments.token import Whitespace, string_to_tokentype

from tcomp.highlighting.rules import FILES, RULES


class TcLexer(RegexLexer):  # type: ignore[misc]  # Pygments has no types
    """Program text of tcomp."""

    name = "tcomp"
    aliases = ("tc",)
    filenames = (FILES,)
    mimetypes = ("text/x-tc",)
    tokens = {  # noqa: RUF012  (a class attribute of Pygments)
        "root": [(r"\s+", Whitespace), *((rule.pattern, string_to_tokentype(rule.token)) for rule in RULES)]
    }
