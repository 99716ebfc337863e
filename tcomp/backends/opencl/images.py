"""Programs as the driver of a device has built them, kept between processes."""

from __future__ import annotations

import hashlib
import os
import warnings
from typing import Any

from tcomp import debug
from tcomp.backends.host.native import describe
from tcomp.backends.opencl import devices
from tcomp.backends.source import Source
from tcomp.errors import TargetError
from tcomp.storage.cache import store

FAST = "-cl-fast-relaxed-math"
"""The flag with which results need not be exact."""

FLAGS = ("-cl-std=CL1.2", "-w")
"""What every text is built with, beside its own flags: the language, and no remarks on what is accepted."""


def build(source: Source) -> Any:
    """The program of pyopencl for the device of this process, from its text or from the cache.

    Raises TargetError if there is no device, or its compiler fails on the text.
    """
    opencl, here = devices.opencl_module(), devices.current()
    flags = [*FLAGS, *_precision(opencl, here.device, source), *source.flags]
    key = _key(here.device, source, flags)
    with store().turn("opencl", key):
        kept = store().get("opencl", key)
        if kept is not None:
            try:
                return opencl.Program(here.context, [here.device], [kept]).build(flags, cache_dir=False)
            except opencl.Error:
                debug.log(1, f"opencl {source.entry}: what was kept does not load any more")
        with warnings.catch_warnings():
            # Compilers have remarks on texts that they accept.
            warnings.simplefilter("ignore", opencl.CompilerWarning)
            try:
                built = opencl.Program(here.context, source.text).build(flags, cache_dir=False)
            except opencl.Error as error:
                first = next((line for line in str(error).splitlines() if "error" in line), str(error))
                message = f"OpenCL's compiler refuses {describe(source)}: {first.strip()}"
                raise TargetError(message) from None
        binary = built.get_info(opencl.program_info.BINARIES)[0]
        debug.log(1, f"opencl {source.entry}: compiled, {len(binary)} bytes")
        store().put("opencl", key, describe(source), binary)
        return built


def _precision(opencl: Any, device: Any, source: Source) -> tuple[str, ...]:
    """Quotients and roots that are rounded correctly, where a device has them: else they may be 2.5 to 3 ulp off."""
    rounds = device.single_fp_config & opencl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT
    return ("-cl-fp32-correctly-rounded-divide-sqrt",) if rounds and FAST not in source.flags else ()


def _key(device: Any, source: Source, flags: list[str]) -> str:
    """What a binary depends on."""
    # pyopencl adds what the variable holds.
    flags = [*flags, os.environ.get("PYOPENCL_BUILD_OPTIONS", "")]
    parts = [device.platform.version, device.name, device.version, device.driver_version, *flags, source.text]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
