"""The files of an exported GPU kernel: a launcher in C on CUDA's driver interface, and loaders for CuPy and PyTorch."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tcomp.backends.source import ALIGNMENT, REPORT, Launch, Source
from tcomp.export.interface import ABI, REPORT_WORDS, Interface, Variant, demanded, described, title
from tcomp.export.turns import launched_in_turn

_ROOM_ALIGNMENT = 256
"""Where parts of the scratch memory begin: as CUDA's allocators do."""


def room_of(source: Source) -> tuple[int, int]:
    """Bytes of scratch memory, and where in it the report lies."""
    report = -(-source.scratch_bytes // _ROOM_ALIGNMENT) * _ROOM_ALIGNMENT
    return (report + 8 * REPORT_WORDS, report) if source.checks else (source.scratch_bytes, 0)


def header(interface: Interface) -> str:
    """``NAME.h``: what callers include behind ``cuda.h``."""
    name = interface.name
    guard = f"{name.upper()}_H"
    lines = [
        *title(interface),
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#include <stddef.h>",
        "#include <cuda.h>",
        "",
    ]
    lines += [f"#define {name.upper()}_ABI {ABI}", "", "#ifdef __cplusplus", 'extern "C" {', "#endif", ""]
    for variant in interface.variants:
        symbol, room = interface.symbol(variant), room_of(variant.source)[0]
        sizes = ", ".join(f"{n} = {v}" for n, v in variant.sizes.items())
        kernels = dict.fromkeys(launch.kernel for launch in variant.source.launches)
        lines += [f"/* {sizes or 'No sizes'}."]
        lines += [f"   {interface.parameters[a.name]}: {described(a)}{_aligned(variant.source, a.name)}"
                  for a in variant.source.called]  # fmt: skip
        lines += ["   Strides count elements; pointers address the element whose index is zero throughout. */"]
        lines += ["typedef struct {", "  CUmodule module;", f"  CUfunction functions[{max(1, len(kernels))}];"]
        lines += [f"}} {symbol}_module;", "", f"#define {symbol.upper()}_SCRATCH_BYTES {room}", ""]
        lines += ["/* Load the machine code for the current context's device from the files in a folder. */"]
        lines += [f"CUresult {symbol}_load({symbol}_module *module, const char *folder);"]
        lines += [f"CUresult {symbol}_unload({symbol}_module *module);"]
        lines += ["/* Start the kernels; `scratch` has so many bytes of the device, and is 0 where none are needed. */"]
        lines += [f"CUresult {symbol}({', '.join(_parameters(interface, symbol))});"]
        if variant.source.checks:
            lines += ["/* Wait for the stream; 1 where a subscript was outside its tensor, which the message tells. */"]
            lines += [f"int {symbol}_check(CUdeviceptr scratch, CUstream stream, char *message, size_t size);"]
        lines.append("")
    return "\n".join([*lines, "#ifdef __cplusplus", "}", "#endif", "#endif", ""])


def _aligned(source: Source, name: str) -> str:
    return f", begins at a multiple of {ALIGNMENT} bytes" if name in source.aligned else ""


def _parameters(interface: Interface, symbol: str) -> list[str]:
    arrays = [f"CUdeviceptr {p}" for p in interface.parameters.values()]
    return [f"const {symbol}_module *module", *arrays, "CUdeviceptr scratch", "CUstream stream"]


def launcher(interface: Interface, architectures: Sequence[str]) -> str:
    """``NAME.c``: loads machine code, and launches kernels in order."""
    lines = [*title(interface), f'#include "{interface.name}.h"', "", "#include <stdio.h>", "#include <string.h>", ""]
    numbers = sorted((int(a.removeprefix("sm_")) for a in architectures), reverse=True)
    lines += [f"static const int architectures[] = {{{', '.join(map(str, [*numbers, 0]))}}};", ""]
    lines += _FIND.splitlines()
    for variant in interface.variants:
        lines += _functions(interface, variant)
    return "\n".join([*lines, ""])


_FIND = """\
/* The file with machine code that the current device runs: of its major number, and of no newer one; else PTX. */
static CUresult load(CUmodule *module, const char *folder, const char *name) {
  char file[4096];
  int major = 0, minor = 0;
  CUdevice device;
  CUresult status = cuCtxGetDevice(&device);
  if (status == CUDA_SUCCESS)
    status = cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  if (status == CUDA_SUCCESS)
    status = cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  if (status != CUDA_SUCCESS) return status;
  for (const int *a = architectures; *a; a++)
    if (*a / 10 == major && *a % 10 <= minor) {
      snprintf(file, sizeof file, "%s/%s_sm_%d.cubin", folder, name, *a);
      return cuModuleLoad(module, file);
    }
  snprintf(file, sizeof file, "%s/%s.ptx", folder, name);
  return cuModuleLoad(module, file);
}
"""


def _functions(interface: Interface, variant: Variant) -> list[str]:
    source, symbol = variant.source, interface.symbol(variant)
    kernels = list(dict.fromkeys(launch.kernel for launch in source.launches))
    lines = [f"CUresult {symbol}_load({symbol}_module *module, const char *folder) {{"]
    lines += [f'  CUresult status = load(&module->module, folder, "{symbol}");']
    for number, kernel in enumerate(kernels):
        lines += ["  if (status == CUDA_SUCCESS)"]
        lines += [f'    status = cuModuleGetFunction(&module->functions[{number}], module->module, "{kernel}");']
        shared = max(launch.shared_bytes for launch in source.launches if launch.kernel == kernel)
        if shared:
            attribute = "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
            lines += ["  if (status == CUDA_SUCCESS)"]
            lines += [f"    status = cuFuncSetAttribute(module->functions[{number}], {attribute}, {shared});"]
    lines += ["  return status;", "}", "", f"CUresult {symbol}_unload({symbol}_module *module) {{"]
    lines += ["  return cuModuleUnload(module->module);", "}", ""]
    lines += [f"CUresult {symbol}({', '.join(_parameters(interface, symbol))}) {{"]
    lines += ["  CUresult status = CUDA_SUCCESS;"]
    for name in source.aligned:
        lines += [f"  if ({interface.parameters[name]} % {ALIGNMENT}) return CUDA_ERROR_INVALID_VALUE;"]
    room, report = room_of(source)
    lines += [f"  {'if (!scratch) return CUDA_ERROR_INVALID_VALUE' if room else '(void)scratch'};"]
    places = {a.name: interface.parameters[a.name] for a in source.called}
    for number, temporary in enumerate(source.temporaries):
        places[temporary.name] = f"tc_temporary{number}"
        lines += [f"  CUdeviceptr tc_temporary{number} = scratch + {temporary.offset};"]
    if source.checks:
        places[REPORT] = "tc_report"
        lines += [f"  CUdeviceptr tc_report = scratch + {report};"]
        lines += [f"  status = cuMemsetD8Async(tc_report, 0, {8 * REPORT_WORDS}, stream);"]
    if source.turns is not None:
        lines += launched_in_turn(source, kernels, places)
    for launch in source.launches if source.turns is None else ():
        if 0 not in launch.grid:
            lines += _launch(launch, kernels.index(launch.kernel), places)
    return [*lines, "  return status;", "}", "", *(_check(symbol, source) if source.checks else ())]


def _launch(launch: Launch, number: int, places: dict[str, str]) -> list[str]:
    passed = ", ".join(f"&{places[name]}" for name in launch.arguments)
    extents = ", ".join(map(str, (*launch.grid, *launch.block)))
    return [
        "  if (status == CUDA_SUCCESS) {",
        f"    void *const passed[] = {{{passed}}};",
        f"    status = cuLaunchKernel(module->functions[{number}], {extents}, {launch.shared_bytes}, stream,",
        "                            (void **)passed, NULL);",
        "  }",
    ]


def _check(symbol: str, source: Source) -> list[str]:
    texts = [json.dumps(demanded(source.checks[n])) for n in range(len(source.checks))]
    return [
        f"int {symbol}_check(CUdeviceptr scratch, CUstream stream, char *message, size_t size) {{",
        "  static const char *const checks[] = {",
        *(f"    {text}," for text in texts),
        "  };",
        f"  long long report[{REPORT_WORDS}] = {{0}};",
        "  if (cuStreamSynchronize(stream) != CUDA_SUCCESS ||",
        f"      cuMemcpyDtoH(report, scratch + {room_of(source)[1]}, sizeof report) != CUDA_SUCCESS) {{",
        '    snprintf(message, size, "CUDA failed");',
        "    return 2;",
        "  }",
        "  if (!report[2]) return 0;",
        '  snprintf(message, size, "%s, but is %lld", checks[report[0]], report[1]);',
        "  return 1;",
        "}",
        "",
    ]


def facts(interface: Interface, architectures: Sequence[str]) -> str:
    """``NAME.json``: all that whoever loads machine code has to know.

    ``code`` are the files of each kernel as major and minor number of devices, newest first; at last PTX for all.
    """
    numbers = sorted((int(a.removeprefix("sm_")) for a in architectures), reverse=True)
    variants = []
    for variant in interface.variants:
        symbol, source = interface.symbol(variant), variant.source
        code = [[*divmod(n, 10), f"{symbol}_sm_{n}.cubin"] for n in numbers]
        offsets = {t.name: t.offset for t in source.temporaries}
        if source.checks:
            offsets[REPORT] = room_of(source)[1]
        known = {"code": [*code, [0, 0, f"{symbol}.ptx"]], "temporaries": offsets}
        variants.append(facts_of(interface, variant) | known)
    return as_json(interface, variants)


def as_json(interface: Interface, variants: Sequence[dict[str, object]]) -> str:
    """What is to be known of all kernels."""
    return json.dumps({"name": interface.name, "abi": ABI, "variants": variants}, indent=1) + "\n"


def facts_of(interface: Interface, variant: Variant) -> dict[str, object]:
    """What is to be known of one kernel, whatever loads it."""
    source = variant.source
    return {
        "file": interface.symbol(variant),
        "sizes": variant.sizes,
        "arguments": [
            {
                "name": a.name,
                "dtype": a.dtype.name,
                "shape": a.shape,
                "strides": a.strides,
                "role": a.role,
                "alignment": ALIGNMENT if a.name in source.aligned else a.dtype.itemsize,
            }
            for a in source.called
        ],
        "scratch_bytes": room_of(source)[0],
        "checks": [demanded(source.checks[n]) for n in range(len(source.checks))],
        "launches": [
            {
                "kernel": launch.kernel,
                "grid": launch.grid,
                "block": launch.block,
                "shared_bytes": launch.shared_bytes,
                "arguments": launch.arguments,
            }
            for launch in source.launches
            if 0 not in launch.grid
        ],
    }


_LOADER = '''\
"""{name} on arrays of {library}: make a Kernel once, then call it with inputs and outputs in the order of the def."""
import json
{imports}

HERE = Path(__file__).parent


class Kernel:
    def __init__(self, number=0):
        self.facts = json.loads((HERE / "{name}.json").read_text())["variants"][number]
        major, minor = {capability}
        path = HERE / next(f for m, n, f in self.facts["code"] if m in (0, major) and (m, n) <= (major, minor))
        {load}

    def __call__(self, *arrays):
        {room}
        places = {{name: {base} + offset for name, offset in self.facts["temporaries"].items()}}
        for a, w in zip(arrays, self.facts["arguments"], strict=True):
            strides = [t if n == 1 else {stride} for n, s, t in zip(a.shape, {strides}, w["strides"])]
            found = [list(a.shape), str(a.dtype).split(".")[-1], strides, {address} % w["alignment"]]
            if found != [w["shape"], w["dtype"], w["strides"], 0]:
                raise ValueError(f"{{w['name']}} must be {{w}}, not {{found}}")
            places[w["name"]] = {address}
        for launch in self.facts["launches"]:
            {launch}
        if self.facts["checks"]:
            report = {report}
            if report[2]:
                raise IndexError(f"{{self.facts['checks'][report[0]]}}, but is {{report[1]}}")
'''


def cupy_loader(interface: Interface) -> str:
    """``NAME_cupy.py``."""
    return _LOADER.format(
        name=interface.name,
        library="CuPy",
        imports="from pathlib import Path\n\nimport cupy",
        capability="divmod(int(cupy.cuda.Device().compute_capability), 10)",
        load="self.module = cupy.RawModule(path=str(path))",
        strides="a.strides",
        stride="s // a.itemsize",
        address="a.data.ptr",
        base="room.data.ptr",
        room='room = cupy.zeros(max(1, self.facts["scratch_bytes"]), "u1")',
        launch='kernel = self.module.get_function(launch["kernel"])\n'
        '            kernel.max_dynamic_shared_size_bytes = launch["shared_bytes"]\n'
        '            passed = tuple(cupy.uint64(places[name]) for name in launch["arguments"])\n'
        '            kernel(tuple(launch["grid"]), tuple(launch["block"]), passed, shared_mem=launch["shared_bytes"])',
        report='room[self.facts["temporaries"]["*report"]:].view("i8").get()',
    )


def torch_loader(interface: Interface) -> str:
    """``NAME_torch.py``, which calls the driver itself."""
    return _LOADER.format(
        name=interface.name,
        library="PyTorch",
        imports="from ctypes import CDLL, addressof, byref, c_uint64, c_void_p\nfrom pathlib import Path\n\n"
        'import torch\n\nCUDA = CDLL("libcuda.so.1")',
        capability="torch.cuda.get_device_capability()",
        load="torch.cuda.current_stream().synchronize()  # makes the context\n"
        "        module, self.functions = c_void_p(), {}\n"
        "        self.check(CUDA.cuModuleLoad(byref(module), str(path).encode()))\n"
        '        for launch in self.facts["launches"]:\n'
        '            function = self.functions[launch["kernel"]] = c_void_p()\n'
        '            self.check(CUDA.cuModuleGetFunction(byref(function), module, launch["kernel"].encode()))\n'
        '            self.check(CUDA.cuFuncSetAttribute(function, 8, launch["shared_bytes"]))\n\n'
        "    def check(self, status):\n"
        "        if status:\n"
        '            raise RuntimeError(f"CUDA fails with {status}")',
        strides="a.stride()",
        stride="s",
        address="a.data_ptr()",
        base="room.data_ptr()",
        room='room = torch.zeros(max(1, self.facts["scratch_bytes"]), dtype=torch.uint8, device=arrays[0].device)',
        launch='values = [c_uint64(places[name]) for name in launch["arguments"]]\n'
        "            passed = (c_void_p * len(values))(*map(addressof, values))\n"
        '            extents = (*launch["grid"], *launch["block"], launch["shared_bytes"])\n'
        "            stream = c_void_p(torch.cuda.current_stream().cuda_stream)\n"
        '            self.check(CUDA.cuLaunchKernel(self.functions[launch["kernel"]], *extents, stream, passed, None))',
        report='room[self.facts["temporaries"]["*report"]:].view(torch.int64).tolist()',
    )
