"""From CUDA text to machine code: compiled once by NVRTC, kept on disk.  No GPU is needed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from tcomp import debug
from tcomp.backends.cuda.tools import nvrtc
from tcomp.backends.cuda.tools.cubin import LOG_OPTION, KernelResources, kernel_resources
from tcomp.backends.cuda.tools.nvrtc import Nvrtc, Output
from tcomp.backends.equality import UNFUSED
from tcomp.backends.host.native import describe
from tcomp.backends.source import Source
from tcomp.errors import TargetError
from tcomp.mapping.machines.gpu import generation_of, gpu_of
from tcomp.storage.cache import store

FORMAT = 1
"""Changes when the options that are always given, or the layout of a kept image, do."""

_KIND = "image"
_OPTIONS = ("--std=c++17", LOG_OPTION)
_NO_TEXTURES = "--minimal"
"""Leaves out what NVRTC declares of textures, launches from kernels and CUDA's runtime before it reads a text, which
takes a tenth of the time of most kernels.  CUDA 12.0 does not know it."""

_SPELLINGS = {"-ffast-math": "--use_fast_math", UNFUSED: "--fmad=false"}
"""NVRTC's names for flags that other compilers call otherwise."""


@dataclass(frozen=True, slots=True)
class Image:
    """The kernels of one text, compiled for one architecture.

    ``cubin`` is what a driver loads; ``log`` what NVRTC has to say, warnings included; ``kernels`` are in the order of
    the text.
    """

    architecture: str
    ptx: str
    cubin: bytes
    log: str
    kernels: tuple[KernelResources, ...]

    def kernel(self, name: str) -> KernelResources:
        """The resources of a kernel.  Raises TargetError if the image has none of that name."""
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        names = ", ".join(kernel.name for kernel in self.kernels) or "none"
        raise TargetError(f"there is no kernel {name} in the image; its kernels: {names}")


def compile_image(source: Source, architecture: str, newest: int | None = None) -> Image:
    """The image of a CUDA text for ``architecture``, such as ``sm_90``: from the cache on disk, or else compiled.

    A text with instructions of ``sm_90a`` alone is compiled for that where ``sm_90`` is asked for.
    ``newest`` is the newest major version of CUDA whose machine code the driver takes; None where nothing is to run.
    Raises TargetError if there is no such architecture or no NVRTC that compiles for it, and CudaTextError, which
    names line and column, if the text is wrong.
    """
    gpu_of(architecture)
    architecture = generation_of(architecture, source.text)
    compiler = nvrtc.find(newest)
    key = image_key(source, architecture, compiler)
    kept = _kept(source, architecture, key)
    if kept is not None:
        return kept
    with store().turn(_KIND, key):
        return _kept(source, architecture, key) or _compiled(source, architecture, compiler, key)


def _kept(source: Source, architecture: str, key: str) -> Image | None:
    """What the cache has."""
    kept = store().get(_KIND, key)
    if kept is None:
        return None
    try:
        image = _image(architecture, _unpack(kept), source)
    except (ValueError, TargetError) as error:
        debug.log(1, f"image {source.entry}: what the cache has is not used: {error}")
        return None
    debug.log(1, f"image {source.entry} for {architecture}: from the cache")
    return image


def _compiled(source: Source, architecture: str, compiler: Nvrtc, key: str) -> Image:
    """What NVRTC makes.  Raises TargetError and CudaTextError."""
    output = compiler.compile(source.text, f"{source.entry}.cu", architecture, _options(source, compiler))
    image = _image(architecture, output, source)
    debug.log(1, f"image {source.entry} for {architecture}: compiled, {len(image.cubin)} bytes")
    store().put(_KIND, key, f"{describe(source)} for {architecture}", _pack(output))
    return image


def image_key(source: Source, architecture: str, compiler: Nvrtc) -> str:
    """The name of an image: a digest of everything on which its content depends."""
    facts = (FORMAT, source.entry, source.text, architecture, _options(source, compiler), compiler.identity)
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _options(source: Source, compiler: Nvrtc) -> tuple[str, ...]:
    minimal = (_NO_TEXTURES,) if compiler.version >= (13,) else ()
    return (*_OPTIONS, *minimal, *(_SPELLINGS.get(flag, flag) for flag in source.flags))


def _image(architecture: str, output: Output, source: Source) -> Image:
    try:
        kernels = kernel_resources(output.ptx, output.cubin, output.log)
    except ValueError as error:
        raise TargetError(f"NVRTC gives something unexpected for {source.entry}: {error}") from None
    return Image(architecture, output.ptx, output.cubin, output.log, kernels)


def _pack(output: Output) -> bytes:
    """A line of JSON, then the cubin."""
    return json.dumps([output.ptx, output.log]).encode() + b"\n" + output.cubin


def _unpack(content: bytes) -> Output:
    """Raises ValueError."""
    texts, _, cubin = content.partition(b"\n")
    match json.loads(texts):
        case [str(ptx), str(log)]:
            return Output(ptx, cubin, log)
    raise ValueError("it has no texts")
