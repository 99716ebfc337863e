"""What compilers of GPUs make of a text, for ``tcomp compile``: PTX, machine code as bytes or text, resources."""

from __future__ import annotations

from tcomp.arrays.devices import MAIN
from tcomp.backends.cuda.tools.images import compile_image
from tcomp.backends.cuda.tools.resources import resource_table
from tcomp.backends.cuda.tools.sass import disassemble
from tcomp.backends.hip.compiler import assemble, kernels_in
from tcomp.backends.source import Source
from tcomp.errors import Diagnostic, TcompError
from tcomp.mapping.machines.gpu import gpu_of
from tcomp.mapping.options.choices import NVIDIA_TARGETS
from tcomp.runtime.registry import resolve

_SUFFIXES = {"cuda": "cu", "simulator": "cu", "hip": "hip", "opencl": "cl"}


def suffix_of(target: str) -> str:
    """What names of files with kernels for a target end in, and what tells a terminal their language."""
    return _SUFFIXES.get(target.partition(":")[0], "c")


FORMS = ("ptx", "cubin", "sass", "isa", "resources")
"""What can be printed besides the stages."""

_OF_TARGET = {"cuda": ("ptx", "cubin", "sass", "resources"), "simulator": ("ptx", "cubin", "sass", "resources"),
              "hip": ("isa", "resources")}  # fmt: skip


def forms_of(target: str) -> tuple[str, ...]:
    """Which of ``FORMS`` there are for a target."""
    return _OF_TARGET.get(target.partition(":")[0], ())


def architecture_of(target: str) -> str | None:
    """NVIDIA's architecture that a target compiles for, such as ``sm_90``; None for others.  Raises TargetError."""
    name, _, architecture = resolve(target, MAIN).partition(":")
    return architecture if name in NVIDIA_TARGETS else None


def machine_code(source: Source, target: str, form: str) -> str | bytes:
    """One of ``FORMS``; a cubin is bytes.  Raises TcompError where the target has none, TargetError without tools."""
    name, _, architecture = resolve(target, MAIN).partition(":")
    if form not in forms_of(name):
        hint = "name an architecture, as in --target cuda:sm_90"
        raise TcompError(Diagnostic(f"there is no {form} for the target {target}", hint=hint))
    if name == "hip":
        assembly = assemble(source, architecture)
        return assembly if form == "isa" else "\n".join(map(str, kernels_in(assembly)))
    image = compile_image(source, architecture)
    match form:
        case "ptx":
            return image.ptx
        case "cubin":
            return image.cubin
        case "sass":
            return disassemble(image)
        case _:
            return resource_table(image, source.launches, gpu_of(architecture))
