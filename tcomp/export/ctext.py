"""The C files of an exported CPU kernel: header, kernels, the choice among them, threads, an example."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from tcomp.backends.host.toolchain import uses_threads
from tcomp.backends.source import Source
from tcomp.export.interface import ABI, REPORT_WORDS, Interface, Variant, declared, demanded, described, extent, title

NO_KERNEL, WRONG_SUBSCRIPT, NO_MEMORY = 3, 1, 2
"""What functions return beside 0."""

_ALIGNMENT = 64
"""Where scratch memory begins: at a multiple of so many bytes."""


def header(interface: Interface) -> str:
    """``NAME.h``: what callers include, in C or C++."""
    name = interface.name
    guard = f"{name.upper()}_H"
    lines = [
        *title(interface),
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#include <stddef.h>",
        "#include <stdint.h>",
    ]
    lines += ["", f"#define {name.upper()}_ABI {ABI}", "", "#ifdef __cplusplus", 'extern "C" {', "#endif", ""]
    lines += [
        "/* Pointers address the element whose index is zero throughout.  Strides count elements.  Arrays begin where"
    ]
    lines += ["   their element type may; no two that are written, or written and read, overlap."]
    lines += [f"   Results: 0 done, {WRONG_SUBSCRIPT} a subscript was outside its tensor, {NO_MEMORY} no memory,"]
    lines += [f"   {NO_KERNEL} no kernel for these sizes.  Any thread may call. */"]
    if interface.several:
        lines += ["", f"int {name}({', '.join([*interface.numbers(), *interface.pointers()])});"]
    for variant in interface.variants:
        symbol = interface.symbol(variant)
        sizes = ", ".join(f"{n} = {v}" for n, v in variant.sizes.items())
        lines += ["", f"/* {sizes or 'No sizes'}."]
        lines += [f"   {interface.parameters[a.name]}: {described(a)}" for a in variant.source.called]
        lines[-1] += " */"
        lines.append(f"int {symbol}({', '.join(interface.pointers())});")
        if variant.source.scratch_bytes:
            needed = variant.source.scratch_bytes
            lines += [
                "",
                f"/* The same in memory of the caller's: so many bytes, from a multiple of {_ALIGNMENT} on. */",
            ]
            lines += [f"#define {symbol.upper()}_SCRATCH_BYTES {needed}"]
            lines += [f"int {symbol}_in({', '.join([*interface.pointers(), 'void *scratch'])});"]
    lines += ["", "/* What the last call of this thread that returned 1 found. */", f"const char *{name}_error(void);"]
    if threaded(interface):
        lines += ["", "/* The most threads that a call may use from now on; 0 for all processors. */"]
        lines += [f"void {name}_threads(int most);"]
    return "\n".join([*lines, "", "#ifdef __cplusplus", "}", "#endif", "#endif", ""])


_NOT_TOLD = ("psabi", "pedantic", "shadow", "unused-parameter", "unused-variable", "unused-function",
             "unused-but-set-variable", "type-limits", "sign-conversion")  # fmt: skip
"""Warnings that the texts of kernels give: they use vectors of GNU C, name what they may not need, and take bits of
integers as they are."""

_NOT_TOLD_BY_CLANG = ("pass-failed", "parentheses-equality")
"""Those that only clang has."""


def kernel(interface: Interface, variant: Variant) -> str:
    """The file of one kernel."""
    source, symbol = variant.source, interface.symbol(variant)
    lines = [*title(interface), f'#include "{interface.name}.h"', "", "#include <stdlib.h>", ""]
    lines += ["#ifdef __GNUC__"]
    lines += [f'#pragma GCC diagnostic ignored "-W{name}"' for name in _NOT_TOLD]
    lines += ["#endif", "#ifdef __clang__"]
    lines += [f'#pragma clang diagnostic ignored "-W{name}"' for name in _NOT_TOLD_BY_CLANG]
    lines += ["#endif", ""]
    if uses_threads(source.text):
        lines += [*_regions(interface.name), ""]
    lines += _static(source).rstrip("\n").splitlines()
    return "\n".join([*lines, "", *_wrapper(interface, variant, symbol), ""])


def _static(source: Source) -> str:
    """The text of a kernel, whose entry no other file sees; it uses the C library's names as their headers do."""
    head = f"\nint {source.entry}("
    assert source.text.count(head) == 1
    return source.text.replace(head, f"\nstatic int {source.entry}(")


def _regions(name: str) -> list[str]:
    """Lets gcc's parallel regions run on the threads of this folder: its calls end in this file."""
    return [
        "#if defined __GNUC__ && !defined __clang__ && defined __linux__ && defined _OPENMP",
        f"void {name}_parallel(void (*)(void *), void *, unsigned, unsigned);",
        *(f"int {name}_{what}(void);" for what in ("thread_num", "num_threads", "max_threads")),
        "__attribute__((used)) static void GOMP_parallel(void (*f)(void *), void *data, unsigned n, unsigned flags) {",
        f"  {name}_parallel(f, data, n, flags);",
        "}",
        *(
            f"static inline int omp_get_{what}(void) {{ return {name}_{what}(); }}"
            for what in ("thread_num", "num_threads", "max_threads")
        ),
        "#elif !defined _OPENMP",
        "static inline int omp_get_thread_num(void) { return 0; }",
        "static inline int omp_get_num_threads(void) { return 1; }",
        "static inline int omp_get_max_threads(void) { return 1; }",
        "#endif",
    ]


def _wrapper(interface: Interface, variant: Variant, symbol: str) -> list[str]:
    """The function that callers see, and that with scratch memory of theirs where some is needed."""
    source = variant.source
    passed = [_passed(a.dtype.name, declared(a), interface.parameters[a.name]) for a in source.called]
    pointers = ", ".join(interface.pointers())
    names = ", ".join(interface.parameters[a.name] for a in source.called)
    inner = f"{symbol}_in" if source.scratch_bytes else symbol
    memory = "scratch" if source.scratch_bytes else "NULL"
    lines = []
    if source.checks:
        lines += [f"void {interface.name}_wrong(const char *, long long);", ""]
    lines += [f"int {inner}({pointers}{', void *scratch' if source.scratch_bytes else ''}) {{"]
    lines += [f"  long long report[{REPORT_WORDS}] = {{0}};"]
    lines += [f"  const int status = {source.entry}({', '.join([*passed, memory, 'report'])});"]
    if source.checks:
        texts = [_text(demanded(c)) for c in source.checks]
        lines += ["  static const char *const checks[] = {", *(f"    {text}," for text in texts), "  };"]
        lines += [f"  if (status) {interface.name}_wrong(checks[report[0]], report[1]);"]
    lines += ["  return status;", "}"]
    if source.scratch_bytes:
        room = -(-source.scratch_bytes // _ALIGNMENT) * _ALIGNMENT
        lines += ["", f"int {symbol}({pointers}) {{"]
        lines += [f"  void *const scratch = aligned_alloc({_ALIGNMENT}, {room});"]
        lines += [f"  if (!scratch) return {NO_MEMORY};"]
        lines += [f"  const int status = {inner}({names}, scratch);", "  free(scratch);", "  return status;", "}"]
    return lines


def _passed(dtype: str, own: str, name: str) -> str:
    """An array as the kernel takes it: half precision is the compiler's own type there."""
    return f"({own.replace('uint16_t', '_Float16')} *){name}" if dtype == "float16" else f"(void *){name}"


def _text(content: str) -> str:
    return '"' + content.replace("\\", "\\\\").replace('"', '\\"') + '"'


def common(interface: Interface) -> str:
    """``NAME_common.c``: what kernels of several sizes share, and the function that chooses one by its sizes."""
    name = interface.name
    lines = [*title(interface), f'#include "{name}.h"', "", "#include <stdio.h>", ""]
    lines += [
        "static _Thread_local char message[512];",
        "",
        f"const char *{name}_error(void) {{ return message; }}",
        "",
    ]
    if any(v.source.checks for v in interface.variants):
        lines += [
            f"void {name}_wrong(const char *, long long);",
            f"void {name}_wrong(const char *what, long long value) {{",
        ]
        lines += ['  snprintf(message, sizeof message, "%s, but is %lld", what, value);', "}", ""]
    if interface.several:
        given = ", ".join(interface.parameters[a.name] for a in interface.arguments)
        lines += [f"int {name}({', '.join([*interface.numbers(), *interface.pointers()])}) {{"]
        for variant in interface.variants:
            fits = " && ".join(f"{interface.size_names[n]} == {v}" for n, v in variant.sizes.items())
            lines.append(f"  if ({fits}) return {interface.symbol(variant)}({given});")
        lines += [f"  return {NO_KERNEL};", "}", ""]
    return "\n".join(lines)


def threaded(interface: Interface) -> bool:
    """Whether kernels run on several threads."""
    return any(uses_threads(v.source.text) for v in interface.variants)


def threads(interface: Interface) -> str:
    """``NAME_threads.c``: the threads that kernels run on where gcc compiles them for Linux."""
    name = interface.name
    text = files("tcomp.backends.host").joinpath("threads.c").read_text(encoding="utf-8")
    own = {"__wrap_GOMP_##name": f"{name}_own_##name", "__wrap_omp_##name": f"{name}_own_##name"}
    for wrapped, instead in own.items():
        assert text.count(wrapped) == 1
        text = text.replace(wrapped, instead)
    text = text.replace("tcomp_ask_openmp", f"{name}_ask").replace("tcomp_threads_begin", f"{name}_begin")
    parallel, limit = f"{name}_own_parallel", f"{name}_own_get_max_threads"
    prototypes = [
        f"void {parallel}(void (*)(void *), void *, unsigned, unsigned);",
        f"int {name}_own_get_thread_num(void), {name}_own_get_num_threads(void), {limit}(void), {name}_begin(void);",
        f"void {name}_ask(int (*)(void)), {name}_threads(int);",
        f"void {name}_parallel(void (*)(void *), void *, unsigned, unsigned);",
        f"int {name}_thread_num(void), {name}_num_threads(void), {name}_max_threads(void);",
    ]
    return "\n".join(
        [
            *title(interface),
            *("#if defined __GNUC__ && !defined __clang__ && defined __linux__ && defined _OPENMP", ""),
            *prototypes,
            *("", text.rstrip("\n"), ""),
            *("static int there;", "static _Atomic int most;", ""),
            f"__attribute__((constructor)) static void find_threads(void) {{ there = {name}_begin(); }}",
            "static int most_threads(void) { return atomic_load(&most) ? atomic_load(&most) : INT_MAX; }",
            "",
            f"void {name}_parallel(void (*f)(void *), void *data, unsigned count, unsigned flags) {{",
            f"  if (there) {parallel}(f, data, count, flags); else f(data);",
            "}",
            f"int {name}_thread_num(void) {{ return {name}_own_get_thread_num(); }}",
            f"int {name}_num_threads(void) {{ return {name}_own_get_num_threads(); }}",
            f"int {name}_max_threads(void) {{ return there ? {limit}() : 1; }}",
            "",
            f"void {name}_threads(int count) {{",
            "  atomic_store(&most, count < 0 ? 0 : count);",
            f"  {name}_ask(most_threads);",
            "}",
            "#else",
            "#ifdef _OPENMP",
            "#include <omp.h>",
            "#endif",
            f"void {name}_threads(int);",
            f"void {name}_threads(int count) {{",
            "#ifdef _OPENMP",
            "  omp_set_num_threads(count > 0 ? count : omp_get_num_procs());",
            "#else",
            "  (void)count;",
            "#endif",
            "}",
            "#endif",
            "",
        ]
    )


def example(interface: Interface) -> str:
    """``main.c``: calls the first kernel on made-up arrays, or on raw files, and tells what comes out."""
    variant = interface.variants[0]
    arguments, symbol = variant.source.called, interface.symbol(variant)
    given = [a for a in arguments if a.role != "output"]
    lines = [*title(interface), f'#include "{interface.name}.h"', "", "#include <stdio.h>", "#include <stdlib.h>", ""]
    lines += _FILL.splitlines()
    lines += [
        "/* Arguments: for each array that is read a file with its elements, from the lowest address on.  With them,"
    ]
    lines += ["   each array that is written goes into NAME.raw. */", "int main(int tc_count, char **tc_words) {"]
    lines += [f"  if (tc_count != 1 && tc_count != {1 + len(given)}) return 2;"]
    for number, a in enumerate(arguments):
        name, (elements, before) = interface.parameters[a.name], extent(a)
        kind = declared(a).removeprefix("const ")
        lines += [f"  {kind} *const tc_all_{name} = calloc({max(1, elements)}, sizeof *tc_all_{name});"]
        lines += [
            f"  {kind} *const {name} = tc_all_{name}{f' + {before}' if before else ''};",
            f"  if (!tc_all_{name}) return 2;",
        ]
        if a.role != "output":
            word = 1 + given.index(a)
            filled = "int32" if variant.source.checks else a.dtype.name
            made_up = _made_up(filled, f"tc_all_{name}", elements, number)
            size = elements * a.dtype.itemsize
            lines += [f"  if (tc_count > 1) {{ if (!tc_fill(tc_all_{name}, {size}UL, tc_words[{word}])) return 2; }}"]
            lines += [f"  else {made_up}"]
    sizes = [str(v) for v in variant.sizes.values()] if interface.several else []
    names = [interface.parameters[a.name] for a in arguments]
    lines += [f"  const int tc_status = {interface.name if sizes else symbol}({', '.join([*sizes, *names])});"]
    lines += [f'  if (tc_status) printf("status %d: %s\\n", tc_status, {interface.name}_error());']
    for a in arguments:
        name, (elements, _) = interface.parameters[a.name], extent(a)
        if a.role != "input" and elements:
            number = a.dtype.is_float and a.dtype.bits > 16
            shown = (
                f'"{name} begins with %g\\n", (double){name}[0]'
                if number
                else f'"{name} begins with %lld\\n", (long long){name}[0]'
            )
            lines += [f"  if (!tc_status) printf({shown});"]
        if a.role != "input":
            size = elements * a.dtype.itemsize
            lines += [f'  if (tc_count > 1 && !tc_keep(tc_all_{name}, {size}UL, "{name}.raw")) return 2;']
    lines += [f"  free(tc_all_{interface.parameters[a.name]});" for a in arguments]
    return "\n".join([*lines, "  return tc_status;", "}", ""])


_FILL = """\
static int tc_fill(void *memory, size_t size, const char *file) {
  FILE *const f = fopen(file, "rb");
  const int done = f && fread(memory, 1, size, f) == size;
  if (f) fclose(f);
  return done;
}

static int tc_keep(const void *memory, size_t size, const char *file) {
  FILE *const f = fopen(file, "wb");
  const int done = f && fwrite(memory, 1, size, f) == size;
  return f && !fclose(f) && done;
}
"""


def _made_up(dtype: str, array: str, elements: int, number: int) -> str:
    """The loop that fills an array of the example: small numbers; zeros where they may be subscripts or bits."""
    c_type = {"float32": "float", "float64": "double"}.get(dtype)
    value = "0" if c_type is None else f"({c_type})((tc_i + {number}) % 7 - 3)"
    return f"for (long tc_i = 0; tc_i < {elements}; tc_i++) {array}[tc_i] = {value};"


def sources(interface: Interface) -> dict[str, str]:
    """The C files to compile into a library, by name."""
    name = interface.name
    found = {f"{interface.symbol(v)}.c": kernel(interface, v) for v in interface.variants}
    found[f"{name}_common.c"] = common(interface)
    if threaded(interface):
        found[f"{name}_threads.c"] = threads(interface)
    return found


def cmake(
    name: str, sources: Sequence[str], gcc: Sequence[str], others: Sequence[str], architecture: str | None
) -> str:
    """``CMakeLists.txt``: the libraries with that name, of these sources, and the example ``main.c``.

    ``architecture`` is what they are compiled for unless the user says otherwise; None where the flags say it.
    """
    variable = f"{name.upper()}_ARCHITECTURE"
    asked = f'set({variable} {architecture} CACHE STRING "what the kernels are compiled for, as -march takes it")\n'
    march = f"-march=${{{variable}}} "
    return f"""\
cmake_minimum_required(VERSION 3.13)
project({name} C)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
{asked if architecture else ""}set(sources {" ".join(sources)})
if(CMAKE_C_COMPILER_ID STREQUAL GNU)
  set(flags {" ".join(gcc)})
else()
  set(flags {" ".join(others)})
endif()
find_package(OpenMP COMPONENTS C)
foreach(kind STATIC SHARED)
  string(TOLOWER ${{kind}} suffix)
  add_library({name}_${{suffix}} ${{kind}} ${{sources}})
  set_target_properties({name}_${{suffix}} PROPERTIES OUTPUT_NAME {name} POSITION_INDEPENDENT_CODE ON)
  target_include_directories({name}_${{suffix}} PUBLIC ${{CMAKE_CURRENT_SOURCE_DIR}})
  target_compile_options({name}_${{suffix}} PRIVATE {march if architecture else ""}${{flags}})
  if(OpenMP_C_FOUND)
    target_link_libraries({name}_${{suffix}} PRIVATE OpenMP::OpenMP_C)
  endif()
  target_link_libraries({name}_${{suffix}} PUBLIC m pthread)
endforeach()
add_executable({name}_example main.c)
target_link_libraries({name}_example {name}_static)
"""
