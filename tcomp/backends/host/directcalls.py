"""Calls of kernels on NumPy arrays with no Python between the caller's arrays and the kernel.

A small C function looks at the arrays itself, at the fields that NumPy's header publishes for its inline functions
(``PyArrayObject_fields`` in ``ndarraytypes.h``, the same since NumPy 1.7).  If they are laid out as those of a call
that was checked before, are aligned, may be written and share no memory, it runs the kernel without the interpreter's
lock; otherwise it does nothing, and the call takes the long way, which says what is wrong.  Before the function is
used, the fields are compared with what Python says of two arrays; where they differ there are no direct calls.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tcomp import debug
from tcomp.arrays.kinds import NumpyArray
from tcomp.backends.host import images, toolchain
from tcomp.backends.runtime import CallLayout
from tcomp.errors import TcompError
from tcomp.storage.cache import store
from tcomp.storage.memo import Memo

MOST_ARRAYS = 8
"""Arrays that a direct call may have."""

Entry = Callable[[int, tuple[Any, ...], Any, int | None, int], int]
"""Takes the address of a ``DirectCall``, the arguments, the output or a tuple of several, the scratch memory and the
report; returns the kernel's status, or ``DOES_NOT_FIT`` if nothing was done."""

DOES_NOT_FIT = -1

_WRITEABLE = 0x400

_TEXT = (
    """
typedef long long fact;
typedef struct { fact references; void *type; } object;
typedef struct {
  object head; char *data; int rank; fact *shape; fact *strides; void *base; void *dtype; int flags;
} array;
char *getenv(const char *);
static object *(*item)(object *, fact);
static fact (*length)(object *);
static void *(*release)(void);
static void (*acquire)(void *);
static void *array_type, *tuple_type;
void tc_prepare(void *i, void *l, void *r, void *a, void *array_is, void *tuple_is)
{ item = i; length = l; release = r; acquire = a; array_type = array_is; tuple_type = tuple_is; }
int tc_call(const fact *f, object *arguments, object *out, void *scratch, void *report)
{
  const fact kernel = *f++, given = *f++, inputs = *f++, outputs = *f++, constants = *f++, fixed = *f++;
  char *at[MOST];
  fact low[MOST], high[MOST];
  if (getenv("INTERPRET") || length(arguments) != given) return DOES_NOT_FIT;
  if (outputs != 1 && (out->type != tuple_type || length(out) != outputs)) return DOES_NOT_FIT;
  for (fact n = 0; n < constants; n++, f += 2)
    if (item(arguments, f[0]) != (object *)f[1]) return DOES_NOT_FIT;
  for (fact n = 0; n < inputs + outputs; n++) {
    const fact position = *f++, dtype = *f++, mask = *f++, lowest = *f++, highest = *f++, rank = *f++;
    object *o = n < inputs ? item(arguments, position) : outputs == 1 ? out : item(out, position);
    if (o->type != array_type) return DOES_NOT_FIT;
    const array *a = (const array *)o;
    if ((fact)a->dtype != dtype || a->rank != rank || ((fact)a->data & mask)) return DOES_NOT_FIT;
    for (fact d = 0; d < rank; d++, f += 2)
      if (a->shape[d] != f[0] || (f[0] != 1 && a->strides[d] != f[1])) return DOES_NOT_FIT;
    at[n] = a->data, low[n] = (fact)a->data + lowest, high[n] = (fact)a->data + highest;
    if (n < inputs) continue;
    if (!(a->flags & WRITEABLE)) return DOES_NOT_FIT;
    for (fact m = 0; m < n; m++)
      if (low[n] < high[m] && low[m] < high[n]) return DOES_NOT_FIT;
  }
  for (fact n = 0; n < fixed; n++) at[inputs + outputs + n] = (char *)*f++;
  void *state = release();
  int status = 0;
  switch (inputs + outputs + fixed) {
"""
    + "".join(
        f"  case {n}: status = ((int (*)({', '.join(['char *'] * n)}, void *, void *))kernel)"
        f"({', '.join(f'at[{i}]' for i in range(n))}, scratch, report); break;\n"
        for n in range(1, MOST_ARRAYS + 1)
    )
    + """  }
  acquire(state);
  return status;
}
"""
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


class DirectCall:
    """A kernel for calls of one layout."""

    __slots__ = ("_facts", "_kept", "address")

    def __init__(self, function: Any, layout: CallLayout) -> None:
        kernel = ctypes.cast(function, ctypes.c_void_p).value
        arrays = (*layout.inputs, *layout.outputs)
        assert kernel is not None and 0 < len(arrays) + len(layout.fixed) <= MOST_ARRAYS
        counts = (layout.inputs, layout.outputs, layout.constants, layout.fixed)
        numbers = [kernel, layout.arguments, *map(len, counts)]
        numbers += [n for position, value in layout.constants for n in (position, id(value))]
        numbers += [n for array in arrays for n in array.numbers()]
        numbers += layout.fixed
        self._kept = (function, layout)
        self._facts = (ctypes.c_int64 * len(numbers))(*numbers)
        self.address = ctypes.addressof(self._facts)


_ENTRIES: Memo[str, Entry | None] = Memo()


def entry() -> Entry | None:
    """The C function that makes direct calls, compiled once and kept on disk; None where there can be none."""
    return _ENTRIES.get("tc_call", _made)


def _made() -> Entry | None:
    if sys.implementation.name != "cpython" or not _fields_are_known():
        return None
    try:
        library = images.open_image(_image())
    except (OSError, TcompError) as error:
        debug.log(1, f"no direct calls: {error}")
        return None
    api = ctypes.pythonapi
    functions = (api.PyTuple_GetItem, api.PyTuple_Size, api.PyEval_SaveThread, api.PyEval_RestoreThread)
    library.tc_prepare.argtypes = (ctypes.c_void_p,) * 6
    library.tc_prepare(*(ctypes.cast(f, ctypes.c_void_p) for f in functions), id(np.ndarray), id(tuple))
    found: Any = ctypes.PyDLL("", handle=library._handle).tc_call
    found.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p)
    found.restype = ctypes.c_int
    direct: Entry = found
    return direct


def _image() -> bytes:
    """The library with the C function: from the cache on disk or the compiler.  Raises TcompError."""
    compiler = toolchain.find()
    text = _TEXT.replace("MOST", str(MOST_ARRAYS)).replace("INTERPRET", debug.INTERPRET.name)
    text = text.replace("WRITEABLE", str(_WRITEABLE)).replace("DOES_NOT_FIT", str(DOES_NOT_FIT))
    key = hashlib.sha256("\n".join((text, compiler.identity)).encode()).hexdigest()
    with store().turn("call", key):
        kept = store().get("call", key)
        if kept is not None:
            return kept
        image = toolchain.compile_shared(compiler, text, (), "tc_call")
        store().put("call", key, "direct calls", image)
        return image


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
