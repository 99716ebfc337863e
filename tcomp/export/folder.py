"""A folder with everything that a kernel needs to be compiled, linked and called without tcomp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tcomp.backends.cuda.tools.images import compile_image
from tcomp.backends.cuda.tools.nvrtc import CudaTextError
from tcomp.backends.source import ANYWHERE, Source
from tcomp.errors import TargetError, TcompError
from tcomp.export import ctext, cudatext, facts, loaders, opencltext
from tcomp.export.building import GCC_FLAGS, OTHER_FLAGS, build
from tcomp.export.interface import Interface, Variant, described, interface_of
from tcomp.grammar.tree.function import Function
from tcomp.mapping.machines.gpu import GPUS, STATIC_SHARED_BYTES, generation_of, gpu_of, is_of_one_generation
from tcomp.mapping.machines.processors import processor_of
from tcomp.storage.wholefiles import write_whole

CPU, CUDA, OPENCL = "cpu", "cuda", "opencl"


def export(
    function: Function,
    variants: Sequence[Variant],
    target: str,
    folder: Path,
    name: str | None = None,
    architectures: Sequence[str] | None = None,
) -> tuple[Path, ...]:
    """Write the folder of one or several kernels of a def, made for one target; the files that were written.

    ``name`` is what its function is called instead of as the def; ``architectures`` are those of the GPUs to make
    machine code for, None for all that run the kernels.  Raises TcompError where the kernels cannot be exported, and
    TargetError where a compiler is missing or fails.
    """
    kind, _, architecture = target.partition(":")
    if kind not in (CPU, CUDA, OPENCL):
        raise TcompError(f"kernels for the target {target} are not exported; those for cpu, cuda and opencl are")
    if architectures is not None and kind != CUDA:
        raise TcompError("architectures are for kernels of a GPU")
    # A launcher makes no maps of tensors: threads fetch by themselves.
    variants = [replace(v, source=v.source.otherwise or v.source) for v in variants]
    interface = interface_of(function, variants, name, opencltext.OWN if kind == OPENCL else ())
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TcompError(f"cannot make the folder {folder}: {error.strerror}") from None
    if kind == CPU:
        made, notes = _cpu(interface, folder, architecture)
    elif kind == OPENCL:
        made, notes = _opencl(interface)
    else:
        made, notes = _cuda(interface, architecture, architectures)
    made["README.md"] = _readme(interface, target, sorted(made), notes).encode()
    written = []
    for file, content in made.items():
        path = folder / file
        try:
            write_whole(path, content)
        except OSError as error:
            raise TcompError(f"cannot write {path}: {error.strerror}") from None
        written.append(path)
    return tuple(written)


def _cpu(interface: Interface, folder: Path, architecture: str) -> tuple[dict[str, bytes], list[str]]:
    processor = processor_of(architecture) if architecture else None
    name, sources = interface.name, ctext.sources(interface)
    texts = {**sources, f"{name}.h": ctext.header(interface), "main.c": ctext.example(interface)}
    extra = tuple(dict.fromkeys(flag for v in interface.variants for flag in v.source.flags))
    texts["CMakeLists.txt"] = ctext.cmake(
        name, list(sources), (*GCC_FLAGS, *extra), (*OTHER_FLAGS, *extra), None if processor else "native"
    )
    made = {file: text.encode() for file, text in texts.items()}
    write_whole(folder / f"{name}.h", made[f"{name}.h"])  # what the sources include
    made |= build(name, sources, extra, folder, processor)
    flags = " ".join((*GCC_FLAGS, *extra))
    where = f" With gcc on Linux the kernels run on the threads of `{name}_threads.c`, elsewhere on OpenMP's."
    notes = [
        (
            f"The libraries were compiled for {architecture or 'the processor of this machine'}. On another one: "
            "`cmake -B build && cmake --build build`, or "
            f"`gcc -fopenmp {'' if processor else '-march=native '}{flags} *.c -lm -lpthread -o {name}_example`."
        ),
        "The C needs vectors of GNU C: gcc 12 or later, or clang."
        + (where if ctext.threaded(interface) else " The kernels run on one thread."),
        (
            f"`./{name}_example` runs the first kernel on made-up numbers. Given a raw file for each array that is "
            "read, it writes NAME.raw for each that is written."
        ),
    ]
    return made, notes


def _number(architecture: str) -> str:
    """An architecture without the letter of its generation alone: its code is for devices of that number, too."""
    return architecture.rstrip("af")


def _cuda(interface: Interface, own: str, architectures: Sequence[str] | None) -> tuple[dict[str, bytes], list[str]]:
    name = interface.name
    made: dict[str, bytes] = {}
    # The code of one generation alone is made where the text is for that.
    numbered = (a for a in GPUS if a == own or (a[-1].isdigit() and a != _number(own)))
    chosen = tuple(numbered) if architectures is None else tuple(dict.fromkeys(architectures))
    if len({*map(_number, chosen)}) < len(chosen):
        raise TcompError(f"{', '.join(chosen)}: only one of architectures with one number can be in a folder")
    done, notes = [], []
    for architecture in chosen:
        try:
            for variant in interface.variants:
                _room(variant.source, architecture)
                image = compile_image(variant.source, architecture)
                made[f"{interface.symbol(variant)}_{_number(architecture)}.cubin"] = image.cubin
                if architecture == own:
                    made[f"{interface.symbol(variant)}.ptx"] = image.ptx.encode()
        except (TargetError, CudaTextError) as error:
            if architectures is not None:
                raise
            notes.append(f"There is no machine code for {architecture}: {error.diagnostics[0].message}.")
        else:
            done.append(_number(architecture))
    if not done:
        raise TargetError("; ".join(notes))
    for variant in interface.variants:
        symbol = interface.symbol(variant)
        made[f"{symbol}.cu"] = variant.source.text.encode()
        if f"{symbol}.ptx" not in made:
            made[f"{symbol}.ptx"] = compile_image(variant.source, own).ptx.encode()
    made[f"{name}.h"] = cudatext.header(interface).encode()
    made[f"{name}.c"] = cudatext.launcher(interface, done).encode()
    made[f"{name}.json"] = facts.cuda_facts(interface, done).encode()
    made[f"{name}_cupy.py"] = loaders.cupy_loader(interface).encode()
    made[f"{name}_torch.py"] = loaders.torch_loader(interface).encode()
    flags = " ".join(f for v in interface.variants[:1] for f in v.source.flags if f != ANYWHERE)
    general = not any(is_of_one_generation(v.source.text) for v in interface.variants)
    made_for = max(generation_of(own, v.source.text) for v in interface.variants)
    newer = "Newer devices compile the PTX." if general else "No other device runs it: that takes `warpgroups=false`."
    notes += [
        f"The kernels were laid out for {own}. Machine code is there for {', '.join(done)}. {newer}",
        (
            f"The launcher `{name}.c` needs `cuda.h` and the driver's library: `cc -c {name}.c`, link with `-lcuda`. "
            f"`{name}_cupy.py` and `{name}_torch.py` load the same machine code into Python."
        ),
        f"To compile a kernel again: `nvcc -std=c++17 {flags + ' ' if flags else ''}-cubin -arch={made_for} FILE.cu`.",
    ]
    return made, notes


def _opencl(interface: Interface) -> tuple[dict[str, bytes], list[str]]:
    name = interface.name
    made = {f"{interface.symbol(v)}.cl": v.source.text for v in interface.variants}
    made |= {f"{name}.h": opencltext.header(interface), f"{name}.c": opencltext.launcher(interface)}
    flags = {interface.symbol(v): opencltext.flags_of(v.source) for v in interface.variants}
    made |= {
        f"{name}.json": facts.opencl_facts(interface, flags),
        f"{name}_pyopencl.py": loaders.pyopencl_loader(interface),
    }
    notes = [
        (
            f"The launcher `{name}.c` has the texts in it. It needs the headers of OpenCL 1.2 or later: "
            f"`cc -c {name}.c`, link with `-lOpenCL`. `{name}_pyopencl.py` builds the same texts in Python."
        ),
        f"The texts are built with `{' '.join(opencltext.flags_of(interface.variants[0].source))}`.",
    ]
    return {file: text.encode() for file, text in made.items()}, notes


def _room(source: Source, architecture: str) -> None:
    """Raises TargetError where a block needs more shared memory than there is."""
    most = gpu_of(architecture).shared_per_block
    for launch in source.launches:
        if launch.shared_bytes > max(most, STATIC_SHARED_BYTES):
            raise TargetError(
                f"a block of {launch.kernel} needs {launch.shared_bytes} bytes of shared memory, not {most}"
            )


def _readme(interface: Interface, target: str, files: Sequence[str], notes: Sequence[str]) -> str:
    name = interface.name
    lines = [f"# {name}", "", f"Kernels for {target}, made by tcomp from", "", "```"]
    lines += [*str(interface.function).splitlines(), "```", ""]
    renamed = {n: p for n, p in (*interface.parameters.items(), (interface.function.name, name)) if n != p}
    for variant in interface.variants:
        sizes = ", ".join(f"{n} = {v}" for n, v in variant.sizes.items())
        lines += [f"`{interface.symbol(variant)}`: {sizes or 'no sizes'}", ""]
        lines += ["| array | what it is | begins at a multiple of |", "|---|---|---|"]
        for a in variant.source.called:
            alignment = 16 if a.name in variant.source.aligned else a.dtype.itemsize
            lines.append(f"| `{interface.parameters[a.name]}` | {described(a)} | {alignment} bytes |")
        lines += ["", f"Scratch memory: {variant.source.scratch_bytes} bytes.", ""]
    lines += ["Strides count elements. Arrays that are written overlap no others.", ""]
    if renamed:
        pairs = ", ".join(f"`{a}` is `{b}`" for a, b in renamed.items())
        lines += [f"Names that C or its headers have already were changed: {pairs}.", ""]
    if interface.several and target.partition(":")[0] == CPU:
        lines += [_choice(interface), ""]
    lines += [f"- {note}" for note in notes]
    lines += ["", f"Files: {', '.join(f'`{f}`' for f in files)}.", ""]
    own = "functions whose names begin with `tc_`, the threads, the launcher"
    lines += [
        "The text of your program is yours.",
        f"What comes from tcomp ({own}) is under the Apache License 2.0.",
        "",
    ]
    return "\n".join(lines)


def _choice(interface: Interface) -> str:
    sizes = ", ".join(interface.size_names.values())
    return f"`{interface.name}` takes the sizes {sizes} before the arrays, and calls the kernel that fits."
