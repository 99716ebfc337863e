"""The built-in functions of the language in OpenCL C: most are built in there, too; others come with their text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from string import Template

from tcomp.errors import Diagnostic, TargetError
from tcomp.values.intrinsics import INTRINSICS
from tcomp.values.vectormath.cfunctions import SUPPORT, CFunction, defined_name

_BUILT_IN = frozenset(
    name
    for line in (
        "acos acosh asin asinh atan atanh cbrt ceil cos cosh cospi erf erfc exp exp10 exp2 expm1 fabs floor lgamma",
        "log log10 log1p log2 logb round rsqrt sin sinh sinpi sqrt tan tanh tgamma trunc atan2 copysign fdim fmax",
        "fmin fmod hypot nextafter pow remainder fma rint",
    )
    for name in line.split()
)
"""What OpenCL C has for both float types, under one name."""


_RESPELLED = tuple(
    (re.compile(pattern), respelled)
    for pattern, respelled in (
        (r"\bstatic const ", "const "),
        (r"\bhalf\b", "half_"),
        (r"__builtin_inf\(\)", "INFINITY"),
    )
)
"""Words of C that mean something else in OpenCL, or nothing."""


def opencl_name(intrinsic: str, c_type: str) -> str:
    """What a kernel calls for arguments of ``c_type``.  Raises TargetError where there is no such function."""
    if intrinsic in _BUILT_IN:
        return intrinsic
    definition = INTRINSICS[intrinsic].definition
    missing = intrinsic if definition is None else _missing(definition)
    if missing is not None:
        hint = "the targets cpu, cuda and simulator have it"
        raise TargetError(Diagnostic(f"OpenCL has no function {missing}, which {intrinsic} needs", hint=hint))
    return defined_name(intrinsic, c_type)


def _missing(function: CFunction) -> str | None:
    """A function that neither OpenCL has nor comes with its text."""
    own = {name for name, _ in function.uses}
    for name in function.calls:
        if name not in own and name not in _BUILT_IN:
            found = _missing(SUPPORT[name]) if name in SUPPORT else name
            if found is not None:
                return found
    return next((m for _, used in function.uses if (m := _missing(used)) is not None), None)


def opencl_definitions(calls: Iterable[tuple[str, str]]) -> str:
    """The text of those called functions, given as (intrinsic, C type), that OpenCL lacks, behind what they call."""
    texts: dict[str, str] = {}
    for intrinsic, c_type in calls:
        definition = INTRINSICS[intrinsic].definition
        if intrinsic not in _BUILT_IN and definition is not None:
            _define(intrinsic, definition, c_type, texts)
    return "".join(texts.values())


def _define(name: str, function: CFunction, c_type: str, texts: dict[str, str]) -> str:
    """Add a function to the texts; its name there is returned."""
    own = defined_name(name, c_type)
    if own in texts:
        return own
    if function.only_double and c_type != "double":
        wide = _define(name, function, "double", texts)
        parameters = ", ".join(f"{c_type} x{i}" for i in range(function.arity))
        arguments = ", ".join(f"x{i}" for i in range(function.arity))
        body = f"{c_type} {own}({parameters}) {{ return ({c_type}){wide}({arguments}); }}"
    else:
        for called in function.calls:
            if called in SUPPORT:
                _define(called, SUPPORT[called], c_type, texts)
        for called, used in function.uses:
            _define(called, used, c_type, texts)
        # Names of functions are those of both float types, and there is no memory but a thread's own in a function.
        body = Template(function.text.strip()).substitute(T=c_type, f="", name=own)
        for pattern, respelled in _RESPELLED:
            body = pattern.sub(respelled, body)
    texts[own] = f"static inline {body}\n"
    return own
