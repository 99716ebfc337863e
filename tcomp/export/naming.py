"""Names of defs, tensors and sizes as names that C and C++ allow, and that no header claims."""

from __future__ import annotations

from collections.abc import Iterable

_C = """
    alignas alignof auto bool break case char const constexpr continue default do double else enum extern false
    float for goto if inline int long nullptr register restrict return short signed sizeof static static_assert
    struct switch thread_local true typedef typeof typeof_unqual union unsigned void volatile while asm fortran
"""
_CPP = """
    and and_eq bitand bitor catch char8_t char16_t char32_t class co_await co_return co_yield compl concept
    const_cast consteval constinit decltype delete dynamic_cast explicit export friend mutable namespace new
    noexcept not not_eq operator or or_eq private protected public reinterpret_cast requires static_cast
    template this throw try typeid typename using virtual wchar_t xor xor_eq
"""
_MACROS = """
    NULL EOF I errno stdin stdout stderr assert linux unix i386 sun complex imaginary signbit isnan isinf
    isfinite offsetof NAN INFINITY HUGE_VAL M_PI M_E RAND_MAX BUFSIZ CHAR_BIT INT_MAX INT_MIN LONG_MAX LONG_MIN
    DOMAIN OVERFLOW UNDERFLOW major minor makedev
"""
_LIBC = """
    abort abs acos acosh alarm aligned_alloc asin asinh atan atan2 atanh atexit atof atoi atol bcmp bcopy brk
    bsearch bzero cabs calloc cbrt ceil clock clone close connect copysign cos cosh ctime div dprintf dup
    environ erf erfc exec exit exp exp2 expm1 fabs fclose fdim feof ferror ffs fflush fgets floor fma fmax fmin
    fmod fopen fork fprintf fputs fread free frexp fscanf fseek ftell fwrite gamma getc getenv getline gets
    gettimeofday hypot ilogb index ioctl isalnum isalpha isdigit islower isspace isupper j0 j1 jn kill labs
    ldexp ldiv lgamma link listen llabs log log10 log1p log2 logb longjmp lrint lround lseek main malloc memchr
    memcmp memcpy memmove memset mkdir mktime mmap modf munmap nan nearbyint nextafter nice open pause perror
    pipe poll pow printf putc puts qsort raise rand random read realloc recv remainder remove remquo rename
    rewind rindex rint round scalb scalbn scanf select send setjmp sigaction signal significand sin sincos sinh
    sleep snprintf socket sprintf sqrt srand sscanf stat strcat strchr strcmp strcpy strdup strerror strlen
    strncat strncmp strncpy strrchr strstr strtod strtol swab sync system tan tanh tgamma time tmpfile tolower
    toupper trunc truncate umask ungetc unlink usleep utime wait write y0 y1 yn
"""
RESERVED = frozenset(f"{_C} {_CPP} {_MACROS} {_LIBC}".split())
"""Keywords of C and C++, macros that headers or compilers define, and functions of libc and libm."""

_FLOATS = frozenset(f"{name}{suffix}" for name in _LIBC.split() for suffix in ("f", "l"))


def identifier(name: str, taken: Iterable[str] = ()) -> str:
    """A name itself, or, where C or a header claims it or it is taken, the name with ``_`` behind it."""
    found = f"t{name}" if name.startswith("_") else name
    claimed = {*taken}
    while found in RESERVED or found in _FLOATS or found in claimed or found.startswith(("tc_", "tcomp_", "omp_")):
        found = f"t{found}" if found.startswith(("tc_", "tcomp_", "omp_")) else f"{found}_"
    return found


def identifiers(names: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """Different identifiers for different names."""
    found: dict[str, str] = {}
    for name in names:
        found[name] = identifier(name, {*taken, *found.values()})
    return found
