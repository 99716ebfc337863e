"""Files given to ``tcomp run --inputs`` that NumPy did not write."""

from __future__ import annotations

from pathlib import Path

import pytest

import tcomp as tc
from tcomp.commands.inputs.arrays import load_arguments

HEADERS = {
    "too large a number": "{'descr': '<f4', 'fortran_order': False, 'shape': (1" + "0" * 30 + ",), }",
    "too much room": "{'descr': '<f4', 'fortran_order': False, 'shape': (1" + "0" * 15 + ",), }",
    "a flag for a number": "{'descr': '<f4', 'fortran_order': False, 'shape': (True,), }",
    "no key": "{[]: 1}",
    "keys of two kinds": "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 3: 4}",
    "no end": "(" * 3000,
    "depth": "-" * 5000 + "1",
    "no type": "{'descr': '<x9', 'fortran_order': False, 'shape': (1,), }",
    "too little": "{'descr': '<f4', 'fortran_order': False, 'shape': (100,), }",
}


def content(header: str) -> bytes:
    """A file as numpy.save writes it, with this header and 16 elements."""
    padded = header + " " * (63 - (10 + len(header)) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded.encode() + bytes(64)


FILES = {name: content(header) for name, header in HEADERS.items()} | {
    "an archive without an end": b"PK\x03\x04" + b"junk" * 9,
    "nothing": b"",
    "an object": b"\x80\x04cos\nsystem\n",
}


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_told(name: str, tmp_path: Path) -> None:
    file = tmp_path / "a.npy"
    file.write_bytes(FILES[name])
    function = tc.define("def f(float(N) A) -> (B) { B(n) = A(n) }").f.function
    with pytest.raises(tc.TcompError, match=r"cannot read .*a\.npy: "):
        load_arguments(function, [str(file)], {})
