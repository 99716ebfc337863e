"""A network as C: its kernels, one function that calls them in order, the weights as a file, and an example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tcomp.errors import NetworkError, TcompError
from tcomp.export import ctext
from tcomp.export.building import GCC_FLAGS, OTHER_FLAGS, build
from tcomp.export.interface import ABI, TYPES, Interface, Variant, interface_of
from tcomp.export.naming import identifier
from tcomp.networks.kernels import Step
from tcomp.networks.program import CompiledNetwork
from tcomp.storage.wholefiles import write_whole

_ROOM = 64
"""Where weights and results begin: at a multiple of so many bytes."""


def export(net: CompiledNetwork, folder: Path, name: str) -> tuple[Path, ...]:
    """Write the folder; the files that were written.

    Raises NetworkError for a network that runs in part outside of tcomp, and a name that is none in C; TcompError if a
    file cannot be written, and TargetError if the compiler fails.
    """
    outside = next((step for step in net.steps if step.kernel is None), None)
    if outside is not None:
        raise NetworkError(f"{outside.group.results[0]} is made outside of tcomp, so the network cannot be exported")
    if not name.isidentifier() or not name.isascii():
        raise NetworkError(f"{name} is no name of a function in C")
    name = identifier(name)
    if any(step.weights for step in net.steps):
        # Kernels in C take weights as they lie.
        net = CompiledNetwork(net.network, replace(net.options, pack_weights=False), passed=True)
    first: dict[int, Step] = {}
    for step in net.steps:
        first.setdefault(step.number, step)
    interfaces = {number: _interface(step, f"{name}_kernel{number}") for number, step in first.items()}
    sources, headers = _kernels(interfaces, name)
    offsets, weights = _weights(net)
    results = _whole(net.places.bytes)
    block = results + _whole(max(one.variants[0].source.scratch_bytes for one in interfaces.values()))
    headers[f"{name}.h"] = _header(net, name, block)
    sources[f"{name}.c"] = _driver(net, name, interfaces, offsets, len(weights), results, block)
    extra = tuple(dict.fromkeys(flag for one in interfaces.values() for flag in one.variants[0].source.flags))
    made = {file: text.encode() for file, text in (headers | sources).items()}
    made |= {"main.c": _example(net, name).encode(), "weights.bin": weights}
    made["CMakeLists.txt"] = ctext.cmake(
        name, list(sources), (*GCC_FLAGS, *extra), (*OTHER_FLAGS, *extra), "native"
    ).encode()
    flags = " ".join(("-fopenmp", "-march=native", *GCC_FLAGS, *extra))
    made["README.md"] = _readme(net, name, flags).encode()
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in headers:
            write_whole(folder / file, made[file])
        made |= build(name, sources, extra, folder)
        for file, content in made.items():
            write_whole(folder / file, content)
            written.append(folder / file)
    except OSError as error:
        raise TcompError(f"cannot write into {folder}: {error.strerror}") from None
    return tuple(written)


def _interface(step: Step, name: str) -> Interface:
    assert step.kernel is not None
    specialisation = step.kernel.specialisation
    source, _ = specialisation.source()
    return interface_of(specialisation.function, (Variant(dict(specialisation.sizes.values), source),), name)


def _kernels(interfaces: dict[int, Interface], name: str) -> tuple[dict[str, str], dict[str, str]]:
    """C files and headers of the kernels, which share the threads of one file."""
    sources: dict[str, str] = {}
    headers: dict[str, str] = {}
    for one in interfaces.values():
        text = ctext.kernel(one, one.variants[0])
        for what in ("parallel", "thread_num", "num_threads", "max_threads"):
            text = text.replace(f"{one.name}_{what}(", f"{name}_{what}(")
        sources[f"{one.name}.c"] = text
        sources[f"{one.name}_common.c"] = ctext.common(one)
        headers[f"{one.name}.h"] = ctext.header(one)
        if ctext.threaded(one):
            sources[f"{name}_threads.c"] = ctext.threads(replace(one, name=name))
    return sources, headers


def _weights(net: CompiledNetwork) -> tuple[dict[str, int], bytes]:
    """Where each weight lies in the file, and the file."""
    offsets: dict[str, int] = {}
    content = bytearray()
    for value, array in net.network.weights.items():
        content += bytes(-len(content) % _ROOM)
        offsets[value] = len(content)
        content += np.ascontiguousarray(array).tobytes()
    return offsets, bytes(content)


def _ends(net: CompiledNetwork) -> list[str]:
    """The declarations of the network's inputs and outputs."""
    told = [f"const {TYPES[value.dtype]} *in{k}" for k, value in enumerate(net.network.inputs)]
    return told + [f"{TYPES[value.dtype]} *out{k}" for k, value in enumerate(net.network.outputs)]


def _title(net: CompiledNetwork) -> str:
    return f"/* {net.network.name}: made by tcomp.  Parts that come from tcomp: Apache License 2.0. */"


def _header(net: CompiledNetwork, name: str, block: int) -> str:
    lines = [_title(net), f"#ifndef {name.upper()}_H", f"#define {name.upper()}_H"]
    lines += [
        "",
        "#include <stdint.h>",
        "",
        f"#define {name.upper()}_ABI {ABI}",
        f"/* What {name}_with needs for results and for kernels: so many bytes, aligned to {_ROOM}. */",
        f"#define {name.upper()}_BYTES {block}",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
    ]
    lines += ["/* Read the file of weights, once, before the first call.  0: done. */"]
    lines += [f"int {name}_load(const char *file);", ""]
    for label, values in (("in", net.network.inputs), ("out", net.network.outputs)):
        for k, value in enumerate(values):
            lines.append(f"/* {label}{k}: {value}, in C order */")
    lines += ["/* 0: done, 1: a subscript that data choose was outside its tensor, 2: no memory, 4: no weights.  Any"]
    lines += ["   thread may call.  Outputs overlap nothing. */", f"int {name}({', '.join(_ends(net))});", ""]
    lines += [f"/* The same in memory that the caller gives, {name.upper()}_BYTES for each call that runs: for those"]
    lines += ["   who call often.  2: the memory is NULL, or not aligned. */"]
    lines += [f"int {name}_with({', '.join([*_ends(net), 'void *memory'])});", ""]
    return "\n".join([*lines, "#ifdef __cplusplus", "}", "#endif", "#endif", ""])


def _driver(
    net: CompiledNetwork,
    name: str,
    interfaces: dict[int, Interface],
    offsets: dict[str, int],
    size: int,
    results: int,
    block: int,
) -> str:
    """The function that calls the kernels; their memory lies behind the ``results`` in the ``block``."""
    lines = [_title(net), "#include <stdio.h>", "#include <stdlib.h>", ""]
    lines += [f'#include "{name}.h"', *(f'#include "{one.name}.h"' for one in interfaces.values()), ""]
    lines += ["static char *weights;", "", f"int {name}_load(const char *file) {{"]
    room = max(1, -(-size // _ROOM)) * _ROOM
    lines += [f"  char *const made = aligned_alloc({_ROOM}, {room});", '  FILE *const f = fopen(file, "rb");']
    lines += [f"  const int done = made && f && fread(made, 1, {size}, f) == {size} && fgetc(f) == EOF;"]
    lines += ["  if (f) fclose(f);"]
    lines += ["  if (!done) {", "    free(made);", "    return 4;", "  }", "  free(weights);", "  weights = made;"]
    lines += ["  return 0;", "}", "", f"int {name}_with({', '.join([*_ends(net), 'void *memory'])}) {{"]
    lines += ["  if (!weights) return 4;", f"  if (!memory || (uintptr_t)memory % {_ROOM}) return 2;"]
    lines += ["  char *const block = memory;", "  int status = 0;", "  (void)block;"]
    ends = {value.name: f"in{k}" for k, value in enumerate(net.network.inputs)}
    ends |= {value.name: f"out{k}" for k, value in enumerate(net.network.outputs)}
    for run in net.runs:
        in_turns = run.turns > 1
        lines += [f"  for (int turn = 0; turn < {run.turns}; turn++) {{"] if in_turns else []
        for step in net.steps[run.steps.start : run.steps.stop]:
            one = interfaces[step.number]
            arguments = _arguments(net, step, one, ends, offsets)
            own = one.variants[0].source.scratch_bytes
            arguments += [f"block + {results}"] * (own > 0)
            call = f"{one.name}{'_in' if own else ''}({', '.join(arguments)})"
            lines.append(f"{'    ' if in_turns else '  '}if (!status) status = {call};")
        lines += ["  }"] if in_turns else []
    lines += ["  return status;", "}", "", f"int {name}({', '.join(_ends(net))}) {{"]
    lines += [f"  void *const memory = aligned_alloc({_ROOM}, {block});", "  if (!memory) return 2;"]
    names = ", ".join([*ends.values(), "memory"])
    lines += [f"  const int status = {name}_with({names});", "  free(memory);"]
    return "\n".join([*lines, "  return status;", "}", ""])


def _arguments(
    net: CompiledNetwork, step: Step, one: Interface, ends: dict[str, str], offsets: dict[str, int]
) -> list[str]:
    """What a kernel is called with: addresses, which may advance from turn to turn."""
    arguments = []
    for value, argument in zip((*step.group.arguments, *step.group.results), one.arguments, strict=True):
        root, offset = net.place_of(value)
        if root in offsets:
            base, offset = "weights", offsets[root] + offset
        else:
            base = f"(char *){ends[root]}" if root in ends else "block"
        further = f" + (size_t)turn * {step.advances[value]}" if step.advances.get(value) else ""
        kind = "const void *" if argument.role == "input" else "void *"
        arguments.append(f"({kind})({base} + {offset}{further})")
    return arguments


def _whole(count: int) -> int:
    """So many bytes and what is left of the last line, at least one."""
    return max(1, -(-count // _ROOM)) * _ROOM


def _example(net: CompiledNetwork, name: str) -> str:
    """A program that runs the network on raw files, or on numbers of its own."""
    inputs, outputs = net.network.inputs, net.network.outputs
    lines = ["/* Arguments: weights.bin, then a raw file for each input; each output goes into outK.raw. */"]
    lines += ["#include <stdio.h>", "#include <stdlib.h>", "", f'#include "{name}.h"', ""]
    lines += ["static void *filled(size_t bytes, const char *file) {", "  char *const made = calloc(bytes, 1);"]
    lines += ['  FILE *const f = file ? fopen(file, "rb") : NULL;']
    lines += ["  if (!made || (file && (!f || fread(made, 1, bytes, f) != bytes || fgetc(f) != EOF))) exit(2);"]
    lines += ["  if (f) fclose(f);", "  return made;", "}", "", "int main(int count, char **words) {"]
    lines += [f"  if (count != 2 && count != {2 + len(inputs)}) return 2;"]
    for k, value in enumerate(inputs):
        lines.append(f"  void *const in{k} = filled({value.bytes}, count > 2 ? words[{2 + k}] : NULL);")
    lines += [f"  void *const out{k} = filled({value.bytes}, NULL);" for k, value in enumerate(outputs)]
    names = [*(f"in{k}" for k in range(len(inputs))), *(f"out{k}" for k in range(len(outputs)))]
    lines += [f"  int status = {name}_load(words[1]);", f"  if (!status) status = {name}({', '.join(names)});"]
    lines += ['  printf("status %d\\n", status);', "  if (status) return status;", "  FILE *f;"]
    for k, value in enumerate(outputs):
        lines.append(f'  if (!(f = fopen("out{k}.raw", "wb")) || fwrite(out{k}, {value.bytes}, 1, f) != 1) return 2;')
        lines.append("  if (fclose(f)) return 2;")
    return "\n".join([*lines, *(f"  free({one});" for one in names), "  return 0;", "}", ""])


def _readme(net: CompiledNetwork, name: str, flags: str) -> str:
    told: Sequence[str] = [
        f"# {name}",
        "",
        f"The network `{net.network.name}`: {len(net.steps)} steps, {net.kernels} kernels, made by tcomp.",
        "No tcomp and no Python are needed to use it.",
        "",
        f"`{name}.h` says what to call. `weights.bin` is read by `{name}_load`.",
        "The libraries are for the processor of this machine; on another one compile the C files, by",
        "`cmake -B build && cmake --build build` or by:",
        "",
        "```sh",
        f"gcc {flags} *.c -lm -lpthread -o {name}_example",
        f"./{name}_example weights.bin [in0.raw ...]",
        "```",
        "",
        "The network and its weights are yours.",
        "What comes from tcomp (functions whose names begin with `tc_`, the threads) is under the Apache License 2.0.",
        "",
    ]
    return "\n".join(told)
