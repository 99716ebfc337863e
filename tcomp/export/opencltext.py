"""The launcher in C of exported OpenCL kernels, which has their texts in it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tcomp.backends.source import ALIGNMENT, ANYWHERE, REPORT, Launch, Source
from tcomp.export.facts import kernels_of, opencl_numbers
from tcomp.export.interface import ABI, REPORT_WORDS, Interface, Variant, demanded, described, title
from tcomp.export.turns import Values, c_value, turns_of

OWN = ("queue", "context", "device", "nothing", "items", "group", "count")
"""What the launcher calls things of its own, beside the usual ones."""

_STANDARD = "-cl-std=CL1.2"


def flags_of(source: Source) -> tuple[str, ...]:
    """What a text is built with: buffers begin at whole vectors, but an array's first element may lie further on."""
    aligned = [a for a in source.called if a.name in source.aligned]
    torn = any(a.before * a.dtype.itemsize % ALIGNMENT for a in aligned)
    return (_STANDARD, *source.flags, *((ANYWHERE,) if torn else ()))


def header(interface: Interface) -> str:
    """``NAME.h``: what callers include."""
    guard = f"{interface.name.upper()}_H"
    lines = [*title(interface), f"#ifndef {guard}", f"#define {guard}", ""]
    lines += ["#ifndef CL_TARGET_OPENCL_VERSION", "#define CL_TARGET_OPENCL_VERSION 120", "#endif"]
    lines += ["#include <CL/cl.h>", "", f"#define {interface.name.upper()}_ABI {ABI}", ""]
    lines += ["#ifdef __cplusplus", 'extern "C" {', "#endif", ""]
    for variant in interface.variants:
        symbol, source = interface.symbol(variant), variant.source
        sizes = ", ".join(f"{n} = {v}" for n, v in variant.sizes.items())
        lines += [f"/* {sizes or 'No sizes'}."]
        lines += [f"   {interface.parameters[a.name]}: {described(a)}" for a in source.called]
        lines += ["   Strides count elements; buffers begin with the lowest element. */"]
        rooms, kernels = len(source.temporaries) + bool(source.checks), kernels_of(source)
        lines += [
            "typedef struct {",
            "  cl_program program;",
            f"  cl_kernel kernels[{max(1, len(kernels))}];",
        ]
        lines += [f"  cl_mem memory[{max(1, rooms)}];", f"}} {symbol}_module;", ""]
        lines += ["/* Build the kernels for a device of a context, and set scratch memory aside. */"]
        lines += [f"cl_int {symbol}_load({symbol}_module *module, cl_context context, cl_device_id device);"]
        lines += [f"void {symbol}_unload({symbol}_module *module);"]
        lines += ["/* Start the kernels on a queue that runs them in order; a module serves one queue at a time. */"]
        lines += [f"cl_int {symbol}({', '.join(_parameters(interface, symbol))});"]
        if source.checks:
            lines += ["/* Wait for the queue; 1 where a subscript was outside its tensor, which the message tells. */"]
            lines += [f"int {symbol}_check(const {symbol}_module *module, cl_command_queue queue, char *message,"]
            lines += [f"{' ' * len(f'int {symbol}_check(')}size_t size);"]
        lines.append("")
    return "\n".join([*lines, "#ifdef __cplusplus", "}", "#endif", "#endif", ""])


def _parameters(interface: Interface, symbol: str) -> list[str]:
    arrays = [f"cl_mem {p}" for p in interface.parameters.values()]
    return [f"const {symbol}_module *module", "cl_command_queue queue", *arrays]


def launcher(interface: Interface) -> str:
    """``NAME.c``: has the texts in it, builds them, and launches kernels in order."""
    lines = [*title(interface), f'#include "{interface.name}.h"', "", "#include <stdio.h>", "#include <string.h>", ""]
    for variant in interface.variants:
        lines += _functions(interface, variant)
    return "\n".join([*lines, ""])


def _functions(interface: Interface, variant: Variant) -> list[str]:
    source, symbol = variant.source, interface.symbol(variant)
    kernels, turns = kernels_of(source), turns_of(source)
    sizes = [max(1, t.bytes) for t in source.temporaries] + [8 * REPORT_WORDS] * bool(source.checks)
    lines = [f"static const char *const {symbol}_text[] = {{"]
    lines += [f"  {json.dumps(line + chr(10))}," for line in source.text.splitlines()]
    lines += ["};", "", f"cl_int {symbol}_load({symbol}_module *module, cl_context context, cl_device_id device) {{"]
    lines += ["  cl_int status = CL_SUCCESS;", f"  const cl_uint count = sizeof {symbol}_text / sizeof *{symbol}_text;"]
    lines += ["  memset(module, 0, sizeof *module);"]
    lines += ["  module->program ="]
    lines += [f"      clCreateProgramWithSource(context, count, (const char **){symbol}_text, NULL, &status);"]
    lines += ["  if (status == CL_SUCCESS)"]
    lines += [f'    status = clBuildProgram(module->program, 1, &device, "{" ".join(flags_of(source))}", NULL, NULL);']
    for number, kernel in enumerate(kernels):
        lines += ["  if (status == CL_SUCCESS)"]
        lines += [f'    module->kernels[{number}] = clCreateKernel(module->program, "{kernel}", &status);']
    for number, size in enumerate(sizes):
        lines += ["  if (status == CL_SUCCESS)"]
        lines += [
            f"    module->memory[{number}] = clCreateBuffer(context, CL_MEM_READ_WRITE, (size_t){size}, NULL, &status);"
        ]
    lines += [f"  if (status != CL_SUCCESS) {symbol}_unload(module);", "  return status;", "}", ""]
    lines += [f"void {symbol}_unload({symbol}_module *module) {{"]
    for field, release in (("kernels", "Kernel"), ("memory", "MemObject")):
        lines += [f"  for (size_t n = 0; n < sizeof module->{field} / sizeof *module->{field}; n++)"]
        lines += [f"    if (module->{field}[n]) clRelease{release}(module->{field}[n]);"]
    lines += ["  if (module->program) clReleaseProgram(module->program);"]
    lines += ["  memset(module, 0, sizeof *module);", "}", ""]
    lines += [f"cl_int {symbol}({', '.join(_parameters(interface, symbol))}) {{", "  cl_int status = CL_SUCCESS;"]
    places = {a.name: f"&{interface.parameters[a.name]}" for a in source.called}
    places |= {t.name: f"&module->memory[{n}]" for n, t in enumerate(source.temporaries)}
    if source.checks:
        report = places[REPORT] = f"&module->memory[{len(source.temporaries)}]"
        lines += ["  const cl_long nothing = 0;"]
        filled = f"*{report}, &nothing, sizeof nothing, 0, {8 * REPORT_WORDS}, 0, NULL, NULL"
        lines += [f"  status = clEnqueueFillBuffer(queue, {filled});"]
    for count, body in turns:
        texts = [line for launch, values in body for line in _launch(source, launch, kernels, places, values)]
        if source.turns is None:
            lines += texts
        else:
            lines += [f"  for (cl_long tc_turn = 0; tc_turn < {count} && status == CL_SUCCESS; tc_turn++) {{"]
            lines += [*(f"  {line}" for line in texts), "  }"]
    taken = {name for _, body in turns for launch, _ in body for name in launch.arguments}
    unused = [p for name, p in interface.parameters.items() if name not in taken]
    lines += [f"  (void){name};" for name in (unused if turns else [*unused, "module", "queue"])]
    return [*lines, "  return status;", "}", "", *(_check(symbol, source) if source.checks else ())]


def _launch(
    source: Source, launch: Launch, kernels: Sequence[str], places: Mapping[str, str], values: Values
) -> list[str]:  # fmt: skip
    every = ", ".join(str(g * b) for g, b in zip(launch.grid, launch.block, strict=True))
    kernel = f"module->kernels[{kernels.index(launch.kernel)}]"
    numbers = [c_value(*value) for value in opencl_numbers(source, launch, values)]
    given = [f"sizeof(cl_mem), {places[name]}" for name in launch.arguments]
    given += [f"sizeof(cl_long), &tc_numbers[{n}]" for n in range(len(numbers))]
    return [
        "  if (status == CL_SUCCESS) {",
        f"    const size_t items[] = {{{every}}}, group[] = {{{', '.join(map(str, launch.block))}}};",
        *([f"    const cl_long tc_numbers[] = {{{', '.join(numbers)}}};"] if numbers else []),
        *(
            f"    {'' if not n else 'if (status == CL_SUCCESS) '}status = clSetKernelArg({kernel}, {n}, {text});"
            for n, text in enumerate(given)
        ),
        "    if (status == CL_SUCCESS)",
        f"      status = clEnqueueNDRangeKernel(queue, {kernel}, 3, NULL, items, group, 0, NULL, NULL);",
        "  }",
    ]


def _check(symbol: str, source: Source) -> list[str]:
    texts = [json.dumps(demanded(check)) for check in source.checks]
    read = f"module->memory[{len(source.temporaries)}], CL_TRUE, 0, sizeof report, report, 0, NULL, NULL"
    return [
        f"int {symbol}_check(const {symbol}_module *module, cl_command_queue queue, char *message, size_t size) {{",
        "  static const char *const checks[] = {",
        *(f"    {text}," for text in texts),
        "  };",
        f"  cl_long report[{REPORT_WORDS}] = {{0}};",
        f"  if (clEnqueueReadBuffer(queue, {read}) != CL_SUCCESS) {{",
        '    snprintf(message, size, "OpenCL failed");',
        "    return 2;",
        "  }",
        "  if (!report[2]) return 0;",
        '  snprintf(message, size, "%s, but is %lld", checks[report[0]], (long long)report[1]);',
        "  return 1;",
        "}",
        "",
    ]
