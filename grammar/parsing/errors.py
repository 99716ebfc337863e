"""The wording of syntax errors: what was expected, what was found, what was probably meant."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence

from lark import Token

from tcomp.grammar.parsing.lexer import KEYWORDS, MAX_WORD, PUNCTUATION
from tcomp.grammar.tree.diagnostics import did_you_mean
from tcomp.grammar.tree.syntax import PRECEDENCE
from tcomp.values.operators import REDUCTIONS, TYPE_KEYWORDS

_OPERATORS = frozenset(PUNCTUATION[op] for op in PRECEDENCE)
_SPELLING = {kind: mark for mark, kind in PUNCTUATION.items()} | {
    "DEF": "'def'", "WHERE": "'where'", "IN": "'in'", "EXISTS": "'exists'", "WORD": "an identifier",
    "TYPE": "a scalar type", "NUMBER": "a number", "$END": "the end of the statement", "FOR": "'for'",
    "STRING": "a file in quotes",
}  # fmt: skip

_CHARACTERS = {
    "\N{MULTIPLICATION SIGN}": "*", "\N{MIDDLE DOT}": "*", "\N{DOT OPERATOR}": "*", "\N{DIVISION SIGN}": "/",
    "\N{MINUS SIGN}": "-", "\N{EN DASH}": "-", "\N{LESS-THAN OR EQUAL TO}": "<=", "\N{NOT EQUAL TO}": "!=",
    "\N{GREATER-THAN OR EQUAL TO}": ">=", "\N{RIGHTWARDS ARROW}": "->", "\N{ELEMENT OF}": "in",
}  # fmt: skip

_WORDS = {
    "and": "did you mean `&&`?",
    "or": "did you mean `||`?",
    "not": "did you mean `!`?",
    "let": "there is no `let`: write `where name = value` after the expression",
    "return": "nothing is returned: assign to one of the outputs",
    "for": "there are no loops over indices: an index on the right-hand side alone is summed by `+=!`",
    "if": "write `condition ? a : b`",
    "else": "write `condition ? a : b`",
    "when": "a condition stands in the value: write `condition ? a : b`",
    "while": "there is no `while`: `for t in a:b { ... }` repeats statements, so often as its range says",
    "parallel": "nothing says what runs in parallel: tcomp finds that out",
    "over": "a sum is written `S(i) +=! A(i, j)`, over the indices that stand on the right alone",
}

_OUTSIDE = {
    "import": 'write `use "file.tc"`, or `use library:softmax`',
    "include": 'write `use "file.tc"`, or `use library:softmax`',
    "fn": "did you mean `def`?",
    "func": "did you mean `def`?",
    "function": "did you mean `def`?",
    "kernel": "did you mean `def`?",
}

_FOREIGN_TYPES = frozenset({"string", "complex", "complex64", "complex128", "char", "long", "short", "auto", "void"})


_AFTER_A_TARGET = {
    "LPAR": "an element has one list of subscripts",
    "COMMA": "targets of `argmax=!` have one list of subscripts, behind the last: `I, J(n) argmax=! A(n, i, j)`; "
    "a call gives whole tensors: `P, Q = f(X)`",
}


def expected(accepted: Collection[str]) -> str:
    """What may stand here, in words, from the types of the tokens that the parser would take."""
    kinds = set(accepted) or {"$END"}
    if kinds == {"LESS", "LPAR"}:
        return "("
    if "ACCUMULATE" in kinds:
        return "a valid assignment operator"
    if "NUMBER" in kinds:
        return "an expression or )" if "RPAR" in kinds else "an expression"
    if {"WORD", "RBRACE"} <= kinds:
        return "a statement or }"
    if "TYPE" in kinds:
        return "an output" if "WORD" in kinds else "a scalar type"
    if kinds & _OPERATORS or "EQUIVALENT" in kinds:
        kinds -= _OPERATORS | {"QMARK", "LPAR", "EQUIVALENT", "WHERE", "WORD", "FOR", "BANG", "TYPE", "EQUAL"}
        kinds = kinds or {"$END"}
    kinds -= {"CONST", "ORDER", "$END", "USE"} if len(kinds) > 1 else set()
    spelled = sorted(_SPELLING.get(kind, kind) for kind in kinds)
    return " or ".join([", ".join(spelled[:-1]), spelled[-1]]) if len(spelled) > 1 else spelled[0]


def quoted(token: Token | None) -> str:
    """A token as a message shows it."""
    if token is None or token.type == "$END":
        return "the end of the text"
    text = token.value if len(token.value) <= 40 else token.value[:40] + "..."
    return "'" + "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text) + "'"


def hint(tokens: Sequence[Token], k: int, accepted: Collection[str]) -> str | None:
    """What was probably meant where the parser refused token ``k``; None where nothing comes to mind."""
    found = tokens[k] if k < len(tokens) else None
    before = tokens[k - 1] if k > 0 else None
    after = tokens[k + 1] if k + 1 < len(tokens) else None
    if found is None:
        return None
    if any(token.type == "USE" for token in tokens[max(0, k - 2) : k]):
        return 'write `use "file.tc"`, or `use library:softmax`'
    if found.type == "INVALID":
        return _invalid_hint(found, before)
    for token in (found, before):
        if token is not None and token.type == "WORD" and token.value in _WORDS:
            return _WORDS[token.value]
    if _begins_comment(before, found, after):
        return "a comment starts with `#`"
    return (
        _assignment_hint(found, before, after, accepted)
        or _header_hint(found, before, after, accepted)
        or _range_hint(tokens, k, accepted)
        or _clause_hint(tokens, k, accepted)
        or _expression_hint(found, before, accepted)
    )


def _begins_comment(before: Token | None, found: Token, after: Token | None) -> bool:
    """Whether a comment of C begins with the token that was refused, or the one before it."""
    pairs = ((before, found), (found, after))
    return any(a and b and a.type == "SLASH" and b.type in ("SLASH", "STAR") for a, b in pairs)


def _invalid_hint(found: Token, before: Token | None) -> str | None:
    text = found.value
    if len(text) > MAX_WORD:
        return f"names and numbers have at most {MAX_WORD} characters"
    if text[0] in _CHARACTERS:
        return f"did you mean `{_CHARACTERS[text[0]]}`?"
    if ".." in text and text.strip("."):
        lower, upper = text.split("..")[:2]
        return f"a range is written with a colon: did you mean `{lower}:{upper}`?"
    if text.startswith("..."):
        return "write the statements out"
    if text in ("[", "]"):
        if before is not None and before.type == "WORD" and before.end_pos == found.start_pos:
            return "subscripts stand in parentheses: did you mean `(`?"
        if before is not None and before.type == "TYPE":
            return "dimensions stand in parentheses, as in `float(N) A`"
        return "a half-open range is written `i in 0:2`"
    match text[0]:
        case ";":
            return "statements need no separator: remove the `;`"
        case "@":
            return "a matrix product is written `C(m, n) +=! A(m, k) * B(k, n)`"
        case "$":
            return "fill in the template before compiling it"
        case "'" | '"':
            return "`use` stands outside of defs" if before and before.value == "use" else "there are no strings"
        case ".":
            return "sizes have names of their own: give the dimension a name, as in `float(N) A`"
        case _:
            return _foreign_character(text[0])


def _foreign_character(character: str) -> str | None:
    """The name of a character that looks like another one, or like none."""
    if character.isascii() and character.isprintable():
        return None
    known = f"U+{ord(character):04X} {unicodedata.name(character, '')}".rstrip()
    return f"this is {known}; but for comments, a program is ASCII"


def _assignment_hint(found: Token, before: Token | None, after: Token | None, accepted: Collection[str]) -> str | None:
    if "ACCUMULATE" in accepted:
        if found.type in ("PLUS", "STAR", "MIN", "MAX") and after is not None and after.value[-1] in "=!":
            return f"did you mean `{found.value}=!`?"
        if found.type in ("MINUS", "SLASH") and after is not None and after.type == "EQUAL":
            return f"there is no `{found.value}=`: use `{'+=' if found.type == 'MINUS' else '*='}` on the changed value"
        if found.value in ("argmin", "argmax") and after is not None and after.type == "EQUAL":
            return f"the place of an extremum has no value to go on from: did you mean `{found.value}=!`?"
        if found.value in ("argmin", "argmax"):
            return f"did you mean `{found.value}=!`, as in `B(n) {found.value}=! A(n, k)`?"
        if found.type in ("AMPERSAND", "PIPE", "CARET") and after is not None and after.type == "EQUAL":
            known = [f"{symbol}=!" for symbol in REDUCTIONS]
            return f"there is no reduction by `{found.value}`: the reductions are {', '.join(known)}"
        if found.type == "WORD" and after is not None and after.type == "EQUAL" and found.end_pos == after.start_pos:
            known = [*(f"{r}=!" for r in REDUCTIONS), "argmin=!", "argmax=!"]
            return did_you_mean(f"{found.value}=!", known) or f"the reductions are {', '.join(known)}"
        if found.type == "EQUALS" or (found.type == "COLON" and after is not None and after.type == "EQUAL"):
            return "did you mean `=`?"
        if found.type == "IN":
            return "separate the clauses of `where` by `,`"
        if found.type in _AFTER_A_TARGET:
            return _AFTER_A_TARGET[found.type]
    if before is None:
        return None
    if found.type == "EQUAL" and before.type in ("ACCUMULATE", "EQUAL"):
        return f"did you mean `{before.value}`?"
    if before.type == "EQUAL" and found.type in ("LESS", "GREATER"):
        return f"did you mean `{found.value}=`?"
    return None


def _header_hint(found: Token, before: Token | None, after: Token | None, accepted: Collection[str]) -> str | None:
    if found.type == "EQUAL" and set(accepted) == {"RPAR", "COMMA"} and before is not None and before.type == "WORD":
        return "only `const` parameters have a default, as in `const int S = 1`"
    if {"GREATER", "COMMA"} == set(accepted):
        return "element types as parameters stand in `<...>`, as in `def f<T>(T(N) X) -> (Y)`"
    if set(accepted) == {"ARROW"}:
        return "did you mean `->`?" if found.type == "EQUAL" else "outputs follow, as in `def f(...) -> (Y) { ... }`"
    if before is not None and before.type == "ARROW":
        return f"outputs stand in parentheses: did you mean `-> ({found.value})`?" if found.type == "WORD" else None
    if "TYPE" in accepted and "NUMBER" not in accepted and found.type == "WORD":
        if found.value in _FOREIGN_TYPES:
            return f"there is no element type `{found.value}`; there are {', '.join(TYPE_KEYWORDS)}"
        near = did_you_mean(found.value, TYPE_KEYWORDS)
        if near is None and after is not None and after.type in ("LPAR", "WORD"):
            return f"an element type that arrays choose stands behind the name: `def f<{found.value}>(...)`"
        return near or f"an input needs a type, as in `float(N) {found.value}`"
    if set(accepted) == {"WORD"} and found.type in ("COMMA", "RPAR") and before is not None:
        return "the parameter needs a name"
    if found.type in KEYWORDS.values() and "WORD" in accepted and found.value in KEYWORDS:
        return f"`{found.value}` is a keyword and cannot be a name"
    if found.type == "TYPE" and "WORD" in accepted:
        return f"`{found.value}` is an element type in this def and cannot be a name"
    if found.type == "LPAR" and "COMMA" in accepted and before is not None and before.type == "WORD":
        return "dimensions stand after the type, as in `float(N) A`"
    if "DEF" in accepted:
        return (
            _OUTSIDE.get(found.value)
            or did_you_mean(found.value, ["def"])
            or "a program is a list of `def name(inputs) -> (outputs) { statements }`"
        )
    return None


def _range_hint(tokens: Sequence[Token], k: int, accepted: Collection[str]) -> str | None:
    """Ranges in other languages: ``range(N)``, slices, and ``for`` behind a value or with parentheses."""
    found, nearby = tokens[k], [token.value for token in tokens[max(0, k - 8) : k]]
    if "COLON" in accepted and "range" in nearby:
        return "a range is written with a colon, as in `i in 0:N`"
    if found.type == "COLON" and "RPAR" not in accepted and "where" in nearby and ":" in nearby:
        return "a range has no step: of every second element, write `A(2*i)` and `i in 0:N/2`"
    if found.type == "COLON" and "RPAR" in accepted and "where" not in nearby:
        return "there are no slices: write an index, and give its range by `where i in 0:N`"
    if "LBRACE" in accepted and found.type == "COLON" and "for" in nearby:
        return "steps are written `for t in a:b { ... }`"
    if "LBRACE" in accepted and found.type == "RBRACE" and "for" in nearby:
        return "the range of an index is written `where i in 0:N`; `for` begins a block of steps"
    if "for" in nearby[-3:] and "IN" not in accepted:
        return "steps are written `for t in a:b { ... }`"
    if "IN" in accepted and found.type in ("LESS", "LESSEQUAL", "GREATER", "GREATEREQUAL"):
        return "a range is written `where i in lower:upper`, half-open"
    return None


def _clause_hint(tokens: Sequence[Token], k: int, accepted: Collection[str]) -> str | None:
    found, before = tokens[k], tokens[k - 1] if k > 0 else None
    if before is not None and before.type == "COMMA" and found.type in ("RPAR", "RBRACE"):
        return "remove the `,`"
    after = tokens[k + 1] if k + 1 < len(tokens) else None
    if found.type == "WORD" and after is not None and after.type == "IN":
        return "separate the clauses of `where` by `,`"
    if before is not None and before.type in ("WHERE", "COMMA") and "EXISTS" in accepted:
        return "a range is written `i in lower:upper`, half-open"
    in_clause = k >= 2 and tokens[k - 2].type in ("WHERE", "COMMA")
    if found.type == "EXISTS" or (in_clause and any(token.type == "EXISTS" for token in tokens[k : k + 12])):
        return "`exists` stands before the access, as in `exists A(i)`"
    if found.type == "WHERE" and "COMMA" in accepted and "RPAR" not in accepted:
        return "a statement has one `where`; separate its clauses by `,`"
    return None


def _expression_hint(found: Token, before: Token | None, accepted: Collection[str]) -> str | None:
    if before is None:
        return None
    if before.type in ("MIN", "MAX"):
        return f"`{before.value}` is a function of two arguments and cannot be a name"
    adjacent = before.end_pos == found.start_pos
    if before.type == "NUMBER" and found.type in ("WORD", "NUMBER", "LPAR") and adjacent:
        return f"did you mean `{before.value} * {found.value}`?"
    if before.type == "STAR" and found.type == "STAR":
        return "a power is written `pow(x, y)`"
    if found.type == "RPAR" and not accepted:
        return "this `)` closes nothing"
    return None
