"""The files of an exported GPU kernel: a launcher in C on CUDA's driver interface, and loaders for CuPy and PyTorch."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tcomp.backends.source import ALIGNMENT, REPORT, Launch, Source
from tcomp.export.interface import ABI, REPORT_WORDS, Interface, Variant, demanded, described, title

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
    for launch in source.launches:
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


def facts(interface: Interface) -> str:
    """``NAME.json``: all that whoever loads machine code has to know."""
    variants = [facts_of(interface, variant) for variant in interface.variants]
    return json.dumps({"name": interface.name, "abi": ABI, "variants": variants}, indent=1) + "\n"


def facts_of(interface: Interface, variant: Variant) -> dict[str, object]:
    """What is to be known of one kernel."""
    source = variant.source
    room, report = room_of(source)
    return {
        "file": interface.symbol(variant),
        "sizes": variant.sizes,
        "arguments": [
            {"name": a.name, "dtype": a.dtype.name, "shape": a.shape, "strides": a.strides, "role": a.role}
            for a in source.called
        ],
        "scratch_bytes": room,
        "report": report if source.checks else None,
        "checks": [demanded(source.checks[n]) for n in range(len(source.checks))],
        "temporaries": {t.name: t.offset for t in source.temporaries},
        "aligned": source.aligned,
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
import re
from pathlib import Path

{imports}

HERE = Path(__file__).parent
FACTS = json.loads((HERE / "{name}.json").read_text())


class Kernel:
    def __init__(self, number=0):
        self.facts = FACTS["variants"][number]
        major, minor = {capability}
        found = {{int(re.search(r"_sm_([0-9]+)", p.name)[1]): p for p in HERE.glob(self.facts["file"] + "_sm_*.cubin")}}
        fitting = [n for n in found if n // 10 == major and n % 10 <= minor]
        self.path = found[max(fitting)] if fitting else HERE / (self.facts["file"] + ".ptx")
        {load}

    def __call__(self, *arrays):
        for a, wanted in zip(arrays, self.facts["arguments"], strict=True):
            strides = {strides}
            ones = [n == 1 for n in wanted["shape"]]
            fits = all(one or s == w for one, s, w in zip(ones, strides, wanted["strides"]))
            if list(a.shape) != wanted["shape"] or str(a.dtype).split(".")[-1] != wanted["dtype"] or not fits:
                raise ValueError(f"{{wanted['name']}} must be {{wanted}}, not {{a.shape}}, {{strides}}")
            if wanted["name"] in self.facts["aligned"] and {address} % 16:
                raise ValueError(f"{{wanted['name']}} must begin at a multiple of 16 bytes")
        {room}
        places = {{w["name"]: {address} for a, w in zip(arrays, self.facts["arguments"])}}
        places |= {{name: base + offset for name, offset in self.facts["temporaries"].items()}}
        if self.facts["report"] is not None:
            places["*report"] = base + self.facts["report"]
        for launch in self.facts["launches"]:
            {launch}
        if self.facts["report"] is not None:
            report = {report}
            if report[2]:
                raise IndexError(f"{{self.facts['checks'][report[0]]}}, but is {{report[1]}}")
'''


def cupy_loader(interface: Interface) -> str:
    """``NAME_cupy.py``."""
    return _LOADER.format(
        name=interface.name,
        library="CuPy",
        imports="import cupy",
        capability="divmod(int(cupy.cuda.Device().compute_capability), 10)",
        load="self.module = cupy.RawModule(path=str(self.path))",
        strides="[s // a.itemsize for s in a.strides]",
        address="a.data.ptr",
        room='room = cupy.zeros(max(1, self.facts["scratch_bytes"]), "u1")\n        base = room.data.ptr',
        launch='kernel = self.module.get_function(launch["kernel"])\n'
        '            if launch["shared_bytes"]:\n'
        '                kernel.max_dynamic_shared_size_bytes = launch["shared_bytes"]\n'
        '            passed = tuple(cupy.uint64(places[name]) for name in launch["arguments"])\n'
        '            kernel(tuple(launch["grid"]), tuple(launch["block"]), passed, shared_mem=launch["shared_bytes"])',
        report='room[self.facts["report"]:].view("i8").get()',
    )


def torch_loader(interface: Interface) -> str:
    """``NAME_torch.py``, which calls the driver itself."""
    return _LOADER.format(
        name=interface.name,
        library="PyTorch",
        imports='import ctypes\n\nimport torch\n\nCUDA = ctypes.CDLL("libcuda.so.1")\n\n\n'
        'def check(status):\n    if status:\n        raise RuntimeError(f"CUDA fails with {status}")',
        capability="torch.cuda.get_device_capability()",
        load="torch.cuda.current_stream().synchronize()  # makes the context\n"
        "        self.module, self.functions = ctypes.c_void_p(), {}\n"
        "        check(CUDA.cuModuleLoad(ctypes.byref(self.module), str(self.path).encode()))\n"
        '        for launch in self.facts["launches"]:\n'
        '            function = self.functions[launch["kernel"]] = ctypes.c_void_p()\n'
        '            check(CUDA.cuModuleGetFunction(ctypes.byref(function), self.module, launch["kernel"].encode()))\n'
        '            check(CUDA.cuFuncSetAttribute(function, 8, launch["shared_bytes"]))',
        strides="list(a.stride())",
        address="a.data_ptr()",
        room="device = arrays[0].device\n"
        '        room = torch.zeros(max(1, self.facts["scratch_bytes"]), dtype=torch.uint8, device=device)\n'
        "        base = room.data_ptr()",
        launch='values = [ctypes.c_uint64(places[name]) for name in launch["arguments"]]\n'
        "            passed = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))\n"
        "            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)\n"
        '            function = self.functions[launch["kernel"]]\n'
        '            extents = (*launch["grid"], *launch["block"], launch["shared_bytes"])\n'
        "            check(CUDA.cuLaunchKernel(function, *extents, stream, passed, None))",
        report='room[self.facts["report"]:].view(torch.int64).tolist()',
    )
