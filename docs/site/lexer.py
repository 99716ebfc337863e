"""How program text is coloured."""

from __future__ import annotations

from pygments.lexer import RegexLexer, words
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text

from tcomp.values.intrinsics import INTRINSICS
from tcomp.values.operators import TYPE_KEYWORDS


class TcLexer(RegexLexer):
    """Program text of tcomp."""

    name = "tcomp"
    aliases = ("tc",)

    tokens = {  # noqa: RUF012  (a class attribute of Pygments)
        "root": [
            (r"#.*", Comment.Single),
            (r"\s+", Text),
            (r'"[^"]*"', String),
            (words(("def", "where", "in", "exists", "for", "use", "const"), suffix=r"\b"), Keyword),
            (words(tuple(TYPE_KEYWORDS), suffix=r"\b"), Keyword.Type),
            (r"arg(min|max)=!|(min|max)=!?|[+*]=!?|->|<=>|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^~!<>=?:]", Operator),
            (words(tuple(INTRINSICS), suffix=r"(?=\s*\()"), Name.Builtin),
            (r"\d+(\.\d*)?([eE][-+]?\d+)?|\.\d+", Number),
            (r"\w+", Name),
            (r"[(){},;]", Punctuation),
        ]
    }
