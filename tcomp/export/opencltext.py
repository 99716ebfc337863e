"""The files of an exported OpenCL kernel: a launcher in C on OpenCL's interface, and a loader for pyopencl."""

from __future__ import annotations

import json

from tcomp.backends.source import ALIGNMENT, ANYWHERE, REPORT, Launch, Source
from tcomp.export.cudatext import as_json, facts_of
from tcomp.export.interface import ABI, REPORT_WORDS, Interface, Variant, demanded, described, title

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
        rooms = len(source.temporaries) + bool(source.checks)
        lines += ["typedef struct {", "  cl_program program;", f"  cl_kernel kernels[{max(1, len(source.launches))}];"]
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
    launches = [launch for launch in source.launches if 0 not in launch.grid]
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
    for number, launch in enumerate(launches):
        lines += ["  if (status == CL_SUCCESS)"]
        lines += [f'    module->kernels[{number}] = clCreateKernel(module->program, "{launch.kernel}", &status);']
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
    for number, launch in enumerate(launches):
        lines += _launch(launch, number, places)
    unused = [p for name, p in interface.parameters.items() if not any(name in launch.arguments for launch in launches)]
    lines += [f"  (void){name};" for name in (unused if launches else [*unused, "module", "queue"])]
    return [*lines, "  return status;", "}", "", *(_check(symbol, source) if source.checks else ())]


def _launch(launch: Launch, number: int, places: dict[str, str]) -> list[str]:
    every = ", ".join(str(g * b) for g, b in zip(launch.grid, launch.block, strict=True))
    kernel = f"module->kernels[{number}]"
    lines = []
    for position, name in enumerate(launch.arguments):
        lines += ["  if (status == CL_SUCCESS)"]
        lines += [f"    status = clSetKernelArg({kernel}, {position}, sizeof(cl_mem), {places[name]});"]
    return [
        *lines,
        "  if (status == CL_SUCCESS) {",
        f"    const size_t items[] = {{{every}}}, group[] = {{{', '.join(map(str, launch.block))}}};",
        f"    status = clEnqueueNDRangeKernel(queue, {kernel}, 3, NULL, items, group, 0, NULL, NULL);",
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


def facts(interface: Interface) -> str:
    """``NAME.json``: all that whoever builds the texts has to know."""
    variants = []
    for variant in interface.variants:
        temporaries = {t.name: max(1, t.bytes) for t in variant.source.temporaries}
        if variant.source.checks:
            temporaries[REPORT] = 8 * REPORT_WORDS
        known = {"flags": flags_of(variant.source), "temporaries": temporaries}
        variants.append(facts_of(interface, variant) | known)
    return as_json(interface, variants)


_LOADER = '''\
"""{name} through pyopencl: Kernel(context) builds it, then call it with a queue, and inputs and outputs in the order of
the def: arrays of pyopencl, whose buffers begin with their lowest elements."""
import json
from pathlib import Path

import numpy
import pyopencl as cl

HERE = Path(__file__).parent
FACTS = json.loads((HERE / "{name}.json").read_text())


class Kernel:
    def __init__(self, context, number=0):
        self.facts = FACTS["variants"][number]
        text = (HERE / (self.facts["file"] + ".cl")).read_text()
        program = cl.Program(context, text).build(self.facts["flags"])
        self.kernels = [cl.Kernel(program, launch["kernel"]) for launch in self.facts["launches"]]
        sizes = self.facts["temporaries"].items()
        self.memory = {{name: cl.Buffer(context, cl.mem_flags.READ_WRITE, size) for name, size in sizes}}

    def __call__(self, queue, *arrays):
        places = dict(self.memory)
        for a, wanted in zip(arrays, self.facts["arguments"], strict=True):
            strides = [s // a.dtype.itemsize for s in a.strides]
            fits = all(n == 1 or s == w for n, s, w in zip(wanted["shape"], strides, wanted["strides"]))
            if list(a.shape) != wanted["shape"] or str(a.dtype) != wanted["dtype"] or not fits or a.offset:
                raise ValueError(f"{{wanted['name']}} must be {{wanted}}, not {{a.shape}}, {{strides}}")
            places[wanted["name"]] = a.base_data
        if self.facts["checks"]:
            cl.enqueue_fill_buffer(queue, places["*report"], numpy.int64(0), 0, {report})
        for kernel, launch in zip(self.kernels, self.facts["launches"]):
            kernel.set_args(*(places[name] for name in launch["arguments"]))
            items = [g * b for g, b in zip(launch["grid"], launch["block"])]
            cl.enqueue_nd_range_kernel(queue, kernel, items, launch["block"])
        if self.facts["checks"]:
            found = numpy.zeros({words}, numpy.int64)
            cl.enqueue_copy(queue, found, places["*report"])
            if found[2]:
                raise IndexError(f"{{self.facts['checks'][found[0]]}}, but is {{found[1]}}")
'''


def loader(interface: Interface) -> str:
    """``NAME_pyopencl.py``."""
    return _LOADER.format(name=interface.name, report=8 * REPORT_WORDS, words=REPORT_WORDS)
