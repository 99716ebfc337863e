"""Calls of kernels with no Python between the caller's arrays and the kernel.

A small C function, called as Python's own functions are (``PyCFunction_NewEx``), looks at the arrays of a call.  Those
of NumPy it reads itself, at the fields that NumPy's header publishes for its inline functions
(``PyArrayObject_fields`` in ``ndarraytypes.h``, the same since NumPy 1.7); about tensors it asks torch, as
``arrays/matching.py`` says.  If they are laid out as those of a call that was checked before, are aligned, may be
written and share no memory, it has the results made, and runs the kernel without the interpreter's lock; otherwise it
does nothing, and the call takes the long way, which says what is wrong.  Before the function is used, the fields are
compared with what Python says of two arrays; where they differ there are no direct calls.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import sys
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

import numpy as np

from tcomp import debug
from tcomp.arrays.kinds import NumpyArray
from tcomp.backends.arena import ALIGNMENT
from tcomp.backends.host import images, toolchain
from tcomp.backends.runtime import ArrayFacts, Attribute, CallLayout, DirectBinding, Pulled
from tcomp.errors import TcompError
from tcomp.grammar.tree.limits import MAX_INDICES
from tcomp.storage.cache import store
from tcomp.storage.memo import Memo

MOST_ARRAYS = 24
"""Arrays that a direct call may have, those that are bound among them."""

MOST_ARGUMENTS = 32

MOST_COPIED = 1 << 14
"""Bytes of what a call copies, on its stack, because a kernel wants it in C order."""

_REPORT_WORDS = 3 + MAX_INDICES
_WRITEABLE = 0x400
_FASTCALL = 0x80
_MADE, _GIVEN, _EITHER = range(3)

_FUNCTIONS = (
    "PyObject_Vectorcall", "PyObject_GetAttr", "PyObject_SetAttr", "PyTuple_New", "PyTuple_SetItem", "PyTuple_GetItem",
    "PyTuple_GetSlice", "PyTuple_Size", "PyDict_GetItem", "PyLong_AsVoidPtr", "PyLong_FromLongLong", "PyErr_Occurred",
    "PyErr_ExceptionMatches", "PyErr_Clear", "PyEval_SaveThread", "PyEval_RestoreThread", "Py_IncRef", "Py_DecRef",
    "PyCFunction_NewEx",
)  # fmt: skip
"""What the C function calls, in the order of its ``struct python``."""

_WORD = ctypes.c_int64
_NESTED = sys.intern("is_nested")


def _words(*names: str) -> Any:
    """A structure of words, as the C text has it."""
    return type("_Words", (ctypes.Structure,), {"_fields_": [(name, _WORD) for name in names]})


_Operand = _words("position", "kind", "mask", "low", "high", "rank", "copied", "sides")
_Constant = _words("position", "value")
_Answer = _words("asked", "expected")
_Maker = _words("count", "parts")
_Source = _words("cotangent", "place")
_Setting = _words("name", "value", "count", "places")
_Call = _words(
    *("kernel", "arguments", "inputs", "outputs", "constants", "fixed", "answers", "settings", "given", "taken"),
    *("tensors", "saved", "cotangents", "returned"),
    *("fail", "scratch", "note", "guard", "address", "levels", "level_name", "level", "apply", "otherwise"),
    *("operand", "constant", "bound", "answer", "maker", "setting", "source", "used", "returns"),
)


class _Fields(ctypes.Structure):
    _fields_ = (
        ("references", ctypes.c_int64),
        ("type", ctypes.c_int64),
        ("data", ctypes.c_int64),
        ("rank", ctypes.c_int),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("base", ctypes.c_int64),
        ("dtype", ctypes.c_int64),
        ("flags", ctypes.c_int),
    )


class _Facts:
    """A ``struct call``, and what keeps alive all that it points to."""

    def __init__(self) -> None:
        self._alive: list[Any] = []
        self.call = _Call()

    def object(self, value: Any) -> int:
        """The address of a Python object; of None there is none."""
        self._alive.append(value)
        return 0 if value is None else id(value)

    def array(self, values: Sequence[Any], kind: Any = _WORD) -> int:
        """The address of values in a row."""
        made = (kind * len(values))(*values)
        self._alive.append(made)
        return ctypes.addressof(made)

    def self_of_calls(self) -> tuple[int, _Facts]:
        """What the C functions get as their ``self``."""
        return ctypes.addressof(self.call), self


class DirectCall:
    """A kernel for calls of one layout; a ``QuickRun``.  ``scratch`` gives an address, and what keeps it."""

    def __init__(
        self, entry: Entry, function: Any, layout: CallLayout, scratch: Callable[[], tuple[int, Any]] | None
    ) -> None:
        self._entry = entry
        self._function = function
        self._layout = layout
        self._scratch = scratch

    def binding(self) -> DirectBinding:
        """See ``QuickRun``."""
        return self._entry.direct(self._facts().self_of_calls())

    def forward(self, attributes: Sequence[Attribute], otherwise: Callable[..., Any]) -> Callable[..., Any]:
        """See ``QuickRun``."""
        facts = self._facts()
        settings = [
            _Setting(facts.object(sys.intern(a.name)), facts.object(a.value), len(a.places), facts.array(a.places))
            for a in attributes
        ]
        facts.call.settings, facts.call.setting = len(settings), facts.array(settings, _Setting)
        facts.call.otherwise = facts.object(otherwise)
        return self._entry.forward(facts.self_of_calls())

    def recorded(self, apply: Callable[..., Any], taken: int) -> DirectBinding:
        """See ``QuickRun``."""
        facts = self._facts()
        facts.call.apply, facts.call.taken = facts.object(apply), taken
        return self._entry.direct(facts.self_of_calls())

    def backward(self, pulled: Pulled) -> Callable[..., Any] | None:
        """See ``QuickRun``."""
        if sum(-(-a.copied // ALIGNMENT) * ALIGNMENT for a in self._layout.inputs) > MOST_COPIED:
            return None
        facts = self._facts()
        facts.call.saved, facts.call.cotangents = pulled.saved, len(pulled.used)
        facts.call.returned = len(pulled.returns)
        sources = [_Source(from_cotangents, place) for from_cotangents, place in pulled.sources]
        facts.call.source, facts.call.used = facts.array(sources, _Source), facts.array(pulled.used)
        facts.call.returns = facts.array([-1 if place is None else place for place in pulled.returns])
        return self._entry.backward(facts.self_of_calls())

    def _facts(self) -> _Facts:
        layout, facts = self._layout, _Facts()
        call, signs = facts.call, layout.signs
        kernel = ctypes.cast(self._function, ctypes.c_void_p).value
        assert kernel is not None
        call.kernel, call.given = kernel, _EITHER if layout.given is None else _GIVEN if layout.given else _MADE
        call.arguments, call.inputs, call.outputs = layout.arguments, len(layout.inputs), len(layout.outputs)
        operands = [_operand(facts, a) for a in layout.inputs]
        operands += [_operand(facts, a, layout.arguments) for a in layout.outputs]
        call.operand = facts.array(operands, _Operand)
        constants = [_Constant(place, facts.object(value)) for place, value in layout.constants]
        call.constants, call.constant = len(constants), facts.array(constants, _Constant)
        call.fixed, call.bound = len(layout.fixed), facts.array(layout.fixed)
        call.maker = facts.array([_maker(facts, make) for make in layout.makers], _Maker)
        call.fail = facts.object(functools.partial(_raise, layout))
        call.scratch, call.note = facts.object(self._scratch), facts.object(layout.note)
        facts.object(self._function)
        if signs is not None:
            call.tensors, call.guard, call.address = 1, facts.object(signs.guard), facts.object(signs.address)
            answers = [_Answer(facts.object(asked), id(expected)) for asked, expected in signs.answers]
            call.answers, call.answer = len(answers), facts.array(answers, _Answer)
            facts.object([expected for _, expected in signs.answers])
            levels, name = signs.level
            call.levels, call.level_name, call.level = map(facts.object, (levels, sys.intern(name), levels[name]))
        return facts


def _operand(facts: _Facts, array: ArrayFacts, before: int = 0) -> Any:
    sides = [n for pair in zip(array.shape, array.strides, strict=True) for n in pair]
    kind, rank = facts.object(array.kind), len(array.shape)
    facing = (array.mask, array.low, array.high, rank, array.copied)
    return _Operand(before + array.position, kind, *facing, facts.array(sides))


def _maker(facts: _Facts, make: Callable[[], Any]) -> Any:
    """What makes an array, and the arguments that it takes."""
    parts = (make.func, *make.args) if isinstance(make, functools.partial) and not make.keywords else (make,)
    return _Maker(len(parts), facts.array([facts.object(part) or id(None) for part in parts]))


def _raise(layout: CallLayout, status: int, *report: int) -> None:
    raise layout.failure(report) if status == 1 else TcompError(f"the kernel ended with status {status}")


class Entry:
    """The C functions that make direct calls: each gives one of Python's functions for what that gets as ``self``."""

    def __init__(self, library: ctypes.CDLL) -> None:
        functions = [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in _FUNCTIONS]
        self._objects = (None, True, False, Exception, tuple, np.ndarray, _NESTED)
        words = [*functions, *map(id, self._objects)]
        table = (_WORD * len(words))(*words)
        library.tc_prepare(ctypes.byref(table))
        entries: Any = ctypes.PyDLL("", handle=library._handle)
        self.direct: Callable[[object], DirectBinding] = entries.tc_direct
        self.forward: Callable[[object], Callable[..., Any]] = entries.tc_forward
        self.backward: Callable[[object], Callable[..., Any]] = entries.tc_backward
        for made in (entries.tc_direct, entries.tc_forward, entries.tc_backward):
            made.argtypes, made.restype = (ctypes.py_object,), ctypes.py_object
        self._library = library


_ENTRIES: Memo[str, Entry | None] = Memo()


def entry() -> Entry | None:
    """The C functions that make direct calls, compiled once and kept on disk; None where there can be none."""
    return _ENTRIES.get("tc_direct", _made)


def _made() -> Entry | None:
    if sys.implementation.name != "cpython" or not _fields_are_known():
        return None
    try:
        return Entry(images.open_image(_image()))
    except (OSError, TcompError, AttributeError) as error:
        debug.log(1, f"no direct calls: {error}")
        return None


def _image() -> bytes:
    """The library with the C functions: from the cache on disk or the compiler.  Raises TcompError."""
    compiler = toolchain.find()
    text = _text()
    key = hashlib.sha256("\n".join((text, compiler.identity)).encode()).hexdigest()
    with store().turn("call", key):
        kept = store().get("call", key)
        if kept is not None:
            return kept
        image = toolchain.compile_shared(compiler, text, (), "tc_direct")
        store().put("call", key, "direct calls", image)
        return image


def _text() -> str:
    constants = {
        "MOST_ARRAYS": MOST_ARRAYS, "MOST_ARGUMENTS": MOST_ARGUMENTS, "REPORT": _REPORT_WORDS, "WRITEABLE": _WRITEABLE,
        "MOST_COPIED": MOST_COPIED, "ALIGNMENT": ALIGNMENT, "FASTCALL": _FASTCALL,
        "MADE": _MADE, "GIVEN": _GIVEN, "EITHER": _EITHER,
        "INTERPRET": f'"{debug.INTERPRET.name}"',
    }  # fmt: skip
    head = "".join(f"#define {name} {value}\n" for name, value in constants.items())
    cases = "".join(
        f"  case {n}: status = ((int (*)({', '.join(['char *'] * n)}, void *, void *))c->kernel)"
        f"({', '.join(f'at[{i}]' for i in range(n))}, scratch, report); break;\n"
        for n in range(1, MOST_ARRAYS + 1)
    )
    text = files("tcomp.backends.host").joinpath("directcalls.c").read_text(encoding="utf-8")
    return head + text.replace("CASES\n", cases)


def _fields_are_known() -> bool:
    """Whether NumPy's arrays have the fields that the C function reads."""
    arrays: list[NumpyArray] = [np.zeros((3, 5, 2), np.float32)[::2, 1:4], np.zeros((4, 7), np.int16)[:, ::-1]]
    arrays[1].setflags(write=False)
    return ctypes.sizeof(_Fields) <= np.ndarray.__basicsize__ and all(map(_agrees, arrays))


def _agrees(array: NumpyArray) -> bool:
    fields = _Fields.from_address(id(array))
    here = (fields.type, fields.data, fields.rank, fields.dtype, bool(fields.flags & _WRITEABLE))
    there = (id(np.ndarray), array.ctypes.data, array.ndim, id(array.dtype), array.flags.writeable)
    if here != there:
        return False
    return (tuple(fields.shape[: array.ndim]), tuple(fields.strides[: array.ndim])) == (array.shape, array.strides)
