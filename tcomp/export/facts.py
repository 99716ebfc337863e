"""``NAME.json``: all that whoever loads the machine code or the text of a folder has to know."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from tcomp.backends.source import ALIGNMENT, REPORT, Argument, Launch, Source
from tcomp.export.interface import ABI, REPORT_WORDS, Interface, Variant, demanded
from tcomp.export.turns import Turns, turns_of

Facts = dict[str, object]

SCRATCH = "*"
"""What values of a launch call the scratch memory of CUDA, which no array can be called."""

_ROOM_ALIGNMENT = 256
"""Where parts of the scratch memory begin: as CUDA's allocators do."""


def room_of(source: Source) -> tuple[int, int]:
    """Bytes of scratch memory, and where in it the report lies."""
    report = -(-source.scratch_bytes // _ROOM_ALIGNMENT) * _ROOM_ALIGNMENT
    return (report + 8 * REPORT_WORDS, report) if source.checks else (source.scratch_bytes, 0)


def kernels_of(source: Source) -> list[str]:
    """The kernels that are launched, each once."""
    return list(dict.fromkeys(launch.kernel for launch in source.launches if 0 not in launch.grid))


def shared_by(source: Source, kernel: str) -> int:
    """The most dynamic shared memory that a kernel is launched with."""
    return max(launch.shared_bytes for launch in source.launches if launch.kernel == kernel)


def cuda_facts(interface: Interface, architectures: Sequence[str]) -> str:
    """Of machine code for GPUs.

    ``code`` are the files of each kernel as major and minor number of devices, newest first; at last PTX for all.
    ``kernels`` are their names and their dynamic shared memory.  ``turns`` are what is launched, as in
    ``tcomp/export/turns.py``: a kernel's number; three extents of the grid, three of a block, and the shared memory;
    then for each value that it takes what lies where it begins (an array, ``SCRATCH``, or nothing: a number), what is
    added the first time, and how much more with each time.
    """
    numbers = sorted((int(a.removeprefix("sm_")) for a in architectures), reverse=True)

    def of(variant: Variant) -> Facts:
        symbol, source = interface.symbol(variant), variant.source
        code = [[*divmod(n, 10), f"{symbol}_sm_{n}.cubin"] for n in numbers]
        room, report = room_of(source)
        kernels = kernels_of(source)
        return {
            "code": [*code, [0, 0, f"{symbol}.ptx"]],
            "scratch_bytes": room,
            "report": report,
            "kernels": [[kernel, shared_by(source, kernel)] for kernel in kernels],
            "turns": _listed(turns_of(source), lambda launch, turn: _launched(source, kernels, launch, turn)),
        }

    return _as_json(interface, of)


def _launched(source: Source, kernels: Sequence[str], launch: Launch, turn: Sequence[tuple[int, int]]) -> list[object]:
    offsets = {t.name: t.offset for t in source.temporaries} | {REPORT: room_of(source)[1]}
    places = [*launch.arguments, *launch.steps]
    values = []
    for number, (name, (first, move)) in enumerate(zip(places, turn, strict=True)):
        if number >= len(launch.arguments):
            values.append(["", first, move])
        elif name in offsets:
            values.append([SCRATCH, offsets[name] + first, move])
        else:
            values.append([name, first, move])
    return [kernels.index(launch.kernel), [*launch.grid, *launch.block, launch.shared_bytes], values]


def opencl_facts(interface: Interface, flags: Mapping[str, Sequence[str]]) -> str:
    """Of texts for OpenCL, built with ``flags`` by their symbols.

    ``temporaries`` are bytes of buffers by their names.  ``turns`` are what is launched: a kernel's number, all work
    items, those of a group, the names of buffers, and for each number behind them its first value and how much it
    grows with each time.
    """

    def of(variant: Variant) -> Facts:
        source = variant.source
        kernels = kernels_of(source)

        def launched(launch: Launch, turn: Sequence[tuple[int, int]]) -> list[object]:
            items = [g * b for g, b in zip(launch.grid, launch.block, strict=True)]
            numbers = opencl_numbers(source, launch, turn)
            return [kernels.index(launch.kernel), items, launch.block, launch.arguments, numbers]

        temporaries = {t.name: max(1, t.bytes) for t in source.temporaries}
        return {
            "flags": flags[interface.symbol(variant)],
            "temporaries": temporaries | ({REPORT: 8 * REPORT_WORDS} if source.checks else {}),
            "kernels": kernels,
            "turns": _listed(turns_of(source), launched),
        }

    return _as_json(interface, of)


def opencl_numbers(source: Source, launch: Launch, turn: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """What a kernel takes behind its buffers where the program runs step by step: steps, and where slices are."""
    if source.turns is None:
        return []
    low = {a.name: a.before * a.dtype.itemsize for a in source.arguments}
    slices = zip(launch.arguments, turn, strict=False)
    behind = [(first + low.get(name, 0), move) for name, (first, move) in slices if name != REPORT]
    return [*turn[len(launch.arguments) :], *behind]


def _listed(turns: Turns, launched: Callable[[Launch, Sequence[tuple[int, int]]], list[object]]) -> list[object]:
    return [[count, [launched(launch, values) for launch, values in body]] for count, body in turns]


def _as_json(interface: Interface, of: Callable[[Variant], Facts]) -> str:
    """One fact a line, and what is launched one line each."""
    variants = [_common(interface, variant) | of(variant) for variant in interface.variants]
    texts = [
        ",\n  ".join(f"{json.dumps(what)}: {_lines(value)}" for what, value in facts.items()) for facts in variants
    ]
    inner = ",\n ".join(f"{{{text}}}" for text in texts)
    return f'{{"name": {json.dumps(interface.name)}, "abi": {ABI}, "variants": [\n {inner}\n]}}\n'


def _lines(value: object) -> str:
    if not isinstance(value, list) or len(value) < 2:
        return json.dumps(value)
    return "[\n   " + ",\n   ".join(json.dumps(each) for each in value) + "]"


def _common(interface: Interface, variant: Variant) -> Facts:
    source = variant.source
    return {
        "file": interface.symbol(variant),
        "sizes": variant.sizes,
        "arrays": [_argument(source, a) for a in source.called],
        "checks": [demanded(check) for check in source.checks],
    }


def _argument(source: Source, argument: Argument) -> Facts:
    """Strides are those of dimensions that have not one element only."""
    strides = [s for n, s in zip(argument.shape, argument.strides, strict=True) if n != 1]
    return {
        "name": argument.name,
        "dtype": argument.dtype.name,
        "shape": argument.shape,
        "strides": strides,
        "role": argument.role,
        "alignment": ALIGNMENT if argument.name in source.aligned else argument.dtype.itemsize,
    }
