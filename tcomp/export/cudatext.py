"""The launcher in C of exported GPU kernels, on CUDA's driver interface."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tcomp.backends.source import ALIGNMENT, REPORT, Launch, Source
from tcomp.export.facts import kernels_of, room_of, shared_by
from tcomp.export.interface import ABI, REPORT_WORDS, Interface, Variant, demanded, described, title
from tcomp.export.turns import Values, c_value, turns_of


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
        kernels = kernels_of(variant.source)
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
    kernels = kernels_of(source)
    lines = [f"CUresult {symbol}_load({symbol}_module *module, const char *folder) {{"]
    lines += [f'  CUresult status = load(&module->module, folder, "{symbol}");']
    for number, kernel in enumerate(kernels):
        lines += ["  if (status == CUDA_SUCCESS)"]
        lines += [f'    status = cuModuleGetFunction(&module->functions[{number}], module->module, "{kernel}");']
        if shared := shared_by(source, kernel):
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
    for count, body in turns_of(source):
        if source.turns is None:
            lines += [line for launch, _ in body for line in _launch(launch, kernels, places)]
        else:
            lines += [f"  for (long long tc_turn = 0; tc_turn < {count} && status == CUDA_SUCCESS; tc_turn++) {{"]
            lines += [f"  {line}" for launch, values in body for line in _launch(launch, kernels, places, values)]
            lines += ["  }"]
    return [*lines, "  return status;", "}", "", *(_check(symbol, source) if source.checks else ())]


def _launch(launch: Launch, kernels: Sequence[str], places: dict[str, str], values: Values | None = None) -> list[str]:
    """``values`` are what is added to pointers, and steps; None where there are none."""
    names, lines = [places[name] for name in launch.arguments], []
    if values is not None:
        given = [c_value(*value) for value in values]
        steps = given[len(names) :]
        lines += [
            f"    CUdeviceptr tc_at{n} = {name} + (CUdeviceptr)({value});"
            for n, (name, value) in enumerate(zip(names, given, strict=False))
        ]
        lines += [f"    long long tc_step{n} = {value};" for n, value in enumerate(steps)]
        names = [*(f"tc_at{n}" for n in range(len(names))), *(f"tc_step{n}" for n in range(len(steps)))]
    passed = ", ".join(f"&{name}" for name in names)
    extents = ", ".join(map(str, (*launch.grid, *launch.block)))
    return [
        "  if (status == CUDA_SUCCESS) {",
        *lines,
        f"    void *const passed[] = {{{passed}}};",
        f"    status = cuLaunchKernel(module->functions[{kernels.index(launch.kernel)}], {extents},",
        f"                            {launch.shared_bytes}, stream, (void **)passed, NULL);",
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
