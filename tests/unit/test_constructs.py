"""The page with an example of every construct: each gives what it says, and no construct of the language is missing."""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lark
import numpy as np
import pytest

import tcomp as tc
from tcomp.errors import SourceText
from tcomp.grammar.checking.names import BOUNDARIES
from tcomp.grammar.parsing.lexer import ASSIGNMENTS, TokenList, tokenize
from tcomp.model.evaluation import numpy_dtype
from tcomp.values.operators import DTYPES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "constructs.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```tc\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
USE_FILE = "use_file"
"""What the page only mentions: an example would need a second text."""


@dataclass(frozen=True)
class Example:
    """A program, what it is called with, and what it must give, by name."""

    operation: tc.Operation
    inputs: dict[str, Any]
    results: dict[str, Any]

    def check(self, found: Any) -> None:
        names = [t.name for t in self.operation.function.outputs]
        for name, value in zip(names, found if isinstance(found, tuple) else (found,), strict=True):
            np.testing.assert_array_equal(value, self.results[name], err_msg=name)


def example(block: str) -> Example:
    """An example of the page; the last def of its text is called."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tc.ProgramWarning)
        module = tc.define(block)
    operation = module[list(module)[-1]]
    given = {m[1]: ast.literal_eval(m[2]) for m in re.finditer(r"^# (\w+) = (.*)$", block, re.MULTILINE)}
    inputs = {}
    for tensor in operation.function.inputs:
        value = given.pop(tensor.name, None)
        if tensor.role != "const":
            value = np.array(value, numpy_dtype(tensor.dtype))
        if value is not None:
            inputs[tensor.name] = value
    assert set(given) == {t.name for t in operation.function.outputs}, block
    return Example(operation, inputs, given)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_examples_give_what_the_page_says(number: int) -> None:
    made = example(BLOCKS[number])
    made.check(made.operation.reference(**made.inputs))


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_kernels_give_what_the_page_says(number: int) -> None:
    made = example(BLOCKS[number])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tc.ProgramWarning)
        made.check(made.operation(**made.inputs))


def test_no_construct_is_missing() -> None:
    grammar = lark.Lark(
        (ROOT / "grammar" / "tc.lark").read_text(encoding="utf-8"), parser="lalr", lexer=TokenList, start=["program"]
    )
    trees = [grammar.parse(tokenize(SourceText(block, "<page>")), "program") for block in BLOCKS]  # type: ignore[arg-type]
    used = {str(tree.data) for whole in trees for tree in whole.iter_subtrees()}
    words = {(t.type, str(t)) for whole in trees for t in whole.scan_values(lambda v: isinstance(v, lark.Token))}
    rules = {str(rule.alias or rule.origin.name) for rule in grammar.rules}
    rules = {name.lstrip("?") for name in rules if not name.startswith("_")} & declared(grammar)
    assert rules - used == {USE_FILE}
    told = {word for _, word in words}
    assert set(ASSIGNMENTS) | {"argmin=!", "argmax=!"} <= told
    assert set(BOUNDARIES) <= told
    operators = "+ - * / % ! ~ & | ^ << >> < <= > >= == != && || ? : <=> -> = min max"
    text = "\n".join(BLOCKS)
    assert [mark for mark in operators.split() if mark not in text] == []
    spelled = {{"float": "float32", "double": "float64", "half": "float16", "int": "int32"}.get(w, w) for w in told}
    assert {name for name in DTYPES if name not in spelled} == set()


def declared(grammar: lark.Lark) -> set[str]:
    """The names that subtrees can have: rules that are not inlined, and their alternatives' own names."""
    return {
        str(rule.alias) if rule.alias else str(rule.origin.name)
        for rule in grammar.rules
        if rule.alias or not (rule.options.expand1 or rule.options.keep_all_tokens)
    }
