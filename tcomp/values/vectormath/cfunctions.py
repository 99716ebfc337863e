"""C definitions, without headers, of the built-in functions that the C library lacks or calls out of line.

A definition is a template with the holes ``$T`` (the type of arguments and result), ``$f`` (the suffix of the C
library's functions of that type: ``f`` for float) and ``$name``.  One that is written in double throughout serves
float as well, by conversion.  All of them are within 5 ulp in double where the underlying library functions are
within 1 (``tests/unit/test_operators.py`` measures them against SciPy).
"""

from __future__ import annotations

from dataclasses import dataclass
from string import Template


@dataclass(frozen=True, slots=True)
class CFunction:
    """A definition (see the module) and the functions that it calls: names in ``SUPPORT`` or of the C library.

    ``uses`` are further definitions for the same type, under the names that it calls them by.  ``always_inline`` is
    for what a loop can only be vectorised with if no call is left.
    """

    text: str
    calls: tuple[str, ...] = ()
    uses: tuple[tuple[str, CFunction], ...] = ()
    always_inline: bool = False

    @property
    def only_double(self) -> bool:
        return "$T" not in self.text

    @property
    def arity(self) -> int:
        return self.text.partition(")")[0].count(",") + 1

    def define(self, name: str, c_type: str) -> str:
        """The text under the name ``name`` for one type."""
        suffix = "f" if c_type == "float" else ""
        return Template(self.text.strip()).substitute(T=c_type, f=suffix, name=name)


LIBRARY_ARITY: dict[str, int] = {
    "atan2": 2, "copysign": 2, "fma": 3, "fmod": 2, "hypot": 2, "nextafter": 2, "pow": 2, "remainder": 2,
}  # fmt: skip
"""Argument counts of the C library's functions that take more than one."""


def prototype(name: str, c_type: str) -> str:
    """The declaration of a C library function for ``float`` or ``double``."""
    suffix = "f" if c_type == "float" else ""
    return f"{c_type} {name}{suffix}({', '.join([c_type] * LIBRARY_ARITY.get(name, 1))});"


def defined_name(name: str, c_type: str) -> str:
    """What a function with a definition is called for one type: ``tc_abs_unsigned_char``."""
    return f"tc_{name}_{c_type.replace(' ', '_')}"


def declare(name: str, function: CFunction | None, c_type: str, into: dict[str, str]) -> str:
    """Add to ``into`` (C name -> text, in dependence order) what a call of ``name`` needs; the C name is returned.

    ``function`` is its definition, or None where it is the C library's.
    """
    if function is None:
        c_name = name + ("f" if c_type == "float" else "")
        into.setdefault(c_name, prototype(name, c_type))
        return c_name
    c_name = defined_name(name, c_type)
    if c_name in into:
        return c_name
    if function.only_double and c_type != "double":
        text = _narrowed(c_name, c_type, declare(name, function, "double", into), function.arity)
    else:
        for callee in function.calls:
            declare(callee, SUPPORT.get(callee), c_type, into)
        for callee, definition in function.uses:
            declare(callee, definition, c_type, into)
        text = function.define(c_name, c_type)
    attribute = "__attribute__((always_inline)) " if function.always_inline else ""
    into[c_name] = f"static inline {attribute}{text}"
    return c_name


def _narrowed(c_name: str, c_type: str, wide: str, arity: int) -> str:
    parameters = ", ".join(f"{c_type} x{i}" for i in range(arity))
    arguments = ", ".join(f"x{i}" for i in range(arity))
    return f"{c_type} {c_name}({parameters}) {{ return ({c_type}){wide}({arguments}); }}"


CHEBYSHEV = CFunction("""
double $name(double x, const double *c, int n) {
  double b0 = 0, b1 = 0, b2 = 0;
  for (int k = n - 1; k >= 0; --k) { b2 = b1; b1 = b0; b0 = 2 * x * b1 - b2 + c[k]; }
  return (b0 - b2) / 2;
}""")
"""Clenshaw's sum of c[0]/2 + sum of c[k] T_k(x)."""

NORMAL_QUANTILE = CFunction(
    """
double $name(double q, double tail) {
  if (q >= -0.425 && q <= 0.425) {
    double r = 0.180625 - q * q;
    return q * (((((((2.5090809287301226727e+3 * r + 3.3430575583588128105e+4) * r + 6.7265770927008700853e+4) * r
        + 4.5921953931549871457e+4) * r + 1.3731693765509461125e+4) * r + 1.9715909503065514427e+3) * r
        + 1.3314166789178437745e+2) * r + 3.3871328727963666080e+0)
        / (((((((5.2264952788528545610e+3 * r + 2.8729085735721942674e+4) * r + 3.9307895800092710610e+4) * r
        + 2.1213794301586595867e+4) * r + 5.3941960214247511077e+3) * r + 6.8718700749205790830e+2) * r
        + 4.2313330701600911252e+1) * r + 1.0);
  }
  double r = sqrt(-log(tail)), x;
  if (!(r <= 1.7976931348623157e308)) return r != r ? r : q < 0 ? -r : r;
  if (r <= 5) {
    r -= 1.6;
    x = (((((((7.74545014278341407640e-4 * r + 2.27238449892691845833e-2) * r + 2.41780725177450611770e-1) * r
        + 1.27045825245236838258e+0) * r + 3.64784832476320460504e+0) * r + 5.76949722146069140550e+0) * r
        + 4.63033784615654529590e+0) * r + 1.42343711074968357734e+0)
        / (((((((1.05075007164441684324e-9 * r + 5.47593808499534494600e-4) * r + 1.51986665636164571966e-2) * r
        + 1.48103976427480074590e-1) * r + 6.89767334985100004550e-1) * r + 1.67638483018380384940e+0) * r
        + 2.05319162663775882187e+0) * r + 1.0);
  } else {
    r -= 5;
    x = (((((((2.01033439929228813265e-7 * r + 2.71155556874348757815e-5) * r + 1.24266094738807843860e-3) * r
        + 2.65321895265761230930e-2) * r + 2.96560571828504891230e-1) * r + 1.78482653991729133580e+0) * r
        + 5.46378491116411436990e+0) * r + 6.65790464350110377720e+0)
        / (((((((2.04426310338993978564e-15 * r + 1.42151175831644588870e-7) * r + 1.84631831751005468180e-5) * r
        + 7.86869131145613259100e-4) * r + 1.48753612908506148525e-2) * r + 1.36929880922735805310e-1) * r
        + 5.99832206555887937690e-1) * r + 1.0);
  }
  return q < 0 ? -x : x;
}""",
    ("log", "sqrt"),
)
"""The normal quantile at p, given q = p - 1/2 and tail = min(p, 1 - p): M. J. Wichura, "Algorithm AS 241: The
Percentage Points of the Normal Distribution", Applied Statistics 37 (1988) 477-484, routine PPND16."""

SUPPORT: dict[str, CFunction] = {"chebyshev": CHEBYSHEV, "normal_quantile": NORMAL_QUANTILE}

DIGAMMA = CFunction(
    """
double $name(double x) {
  static const double c[] = {
      0.9676722454476212, -0.4427631689835921, 0.258499760955651, -0.16394270544240652, 0.10782405069126237,
      -0.07219956125645471, 0.04880428816414311, -0.03316112647484736, 0.022597648232218104,
      -0.01542476590494896, 0.010538791616612175, -0.007204534386356869, 0.004926781395729853,
      -0.003369801655439328, 0.002305126326734928, -0.0015769367714301972, 0.0010788252019162967,
      -0.0007380709389960052, 0.000504953265834602, -0.0003454680251063077, 0.00023635601564027053,
      -0.00016170622091974803, 0.0001106337276874741, -7.569179582195066e-05, 5.178575795222081e-05,
      -3.5430070947659604e-05, 2.424006611860132e-05, -1.6584242271854135e-05, 1.134638458466385e-05,
      -7.762817668462094e-06, 5.3110609208898636e-06, -3.6336507898010456e-06, 2.486022733129538e-06,
      -1.7008538854332607e-06, 1.1636675363548843e-06, -7.96142543124197e-07 };
  const double pi = 3.14159265358979323846;
  double sum = 0;
  if (x <= 0) {
    double rest = x > -0.5 ? x : x - floor(x);
    if (x == 0) return -1 / x;
    if (rest == 0 || rest != rest) return 0 * log(-1.0);
    sum = -pi / tan(pi * rest);
    x = 1 - x;
  }
  if (x < 1) { sum -= 1 / x; x += 1; }
  if (x < 10) {
    double value = 0;
    while (x > 2) { x -= 1; sum += 1 / x; }
    x = x - 1.4616321449683622 - 9.549995429965697e-17;
    for (int k = 35; k >= 0; --k) value = value * x + c[k];
    return sum + value * x;
  }
  double y = 1 / (x * x);
  return sum + log(x) - 0.5 / x - y * (1.0 / 12 - y * (1.0 / 120 - y * (1.0 / 252 - y * (1.0 / 240 - y * (1.0 / 132
      - y * (691.0 / 32760 - y / 12))))));
}""",
    ("floor", "log", "tan"),
)
"""The derivative of the logarithm of the gamma function: reflection below 0, steps to (1, 2), where the Taylor series
about the root has its relative accuracy, and the asymptotic series from 10 on."""

TRIGAMMA = CFunction(
    """
double $name(double x) {
  const double pi = 3.14159265358979323846;
  double sum = 0, sign = 1, y;
  if (x <= 0) {
    double rest = x > -0.5 ? x : x - floor(x);
    if (rest != rest) return -x;
    double sine = sin(pi * (rest < 0.5 ? rest : 1 - rest));
    sum = pi * pi / (sine * sine);
    sign = -1;
    x = 1 - x;
  }
  while (x < 10) { sum += sign / (x * x); x += 1; }
  y = 1 / (x * x);
  return sum + sign * ((1 + 0.5 / x) / x + y / x * (1.0 / 6 - y * (1.0 / 30 - y * (1.0 / 42 - y * (1.0 / 30
      - y * (5.0 / 66 - y * (691.0 / 2730 - y * 7 / 6)))))));
}""",
    ("floor", "sin"),
)
"""The derivative of ``DIGAMMA``: reflection below 0, steps to 10 and the asymptotic series from there."""

TETRAGAMMA = CFunction(
    """
double $name(double x) {
  const double pi = 3.14159265358979323846;
  double sum = -0.0, cubes = 0;
  if (x <= 0) {
    double rest = x > -0.5 ? x : x - floor(x);
    if (rest != rest || rest == 0) return x + log(0.0);
    if (rest > 0.5) rest -= 1;
    double s = sin(pi * rest);
    sum = -2 * pi * (pi / s) * (pi / s) * (sin(pi * (0.5 - (rest < 0 ? -rest : rest))) / s);
    x = 1 - x;
  }
  for (; x < 10; x += 1) { double r = 1 / x; cubes += r * r * r; }
  double r = 1 / x, y = r * r;
  double tail = 35.0 / 2 - y * (3617.0 / 30 - y * (43867.0 / 42));
  tail = 3.0 / 10 - y * (5.0 / 6 - y * (691.0 / 210 - y * tail));
  return sum - 2 * cubes - y * (1 + r + y * (0.5 - y * (1.0 / 6 - y * (1.0 / 6 - y * tail))));
}""",
    ("floor", "log", "sin"),
)
"""The derivative of ``TRIGAMMA``, in the same way."""

NORMCDFINV = CFunction(
    "double $name(double p) { return tc_normal_quantile_double(p - 0.5, p < 0.5 ? p : 1 - p); }", ("normal_quantile",)
)
ERFINV = CFunction(
    """
double $name(double x) {
  return 0.70710678118654752440 * tc_normal_quantile_double(x / 2, (1 - (x < 0 ? -x : x)) / 2);
}""",
    ("normal_quantile",),
)
ERFCINV = CFunction(
    """
double $name(double x) {
  return 0.70710678118654752440 * tc_normal_quantile_double((1 - x) / 2, (x < 1 ? x : 2 - x) / 2);
}""",
    ("normal_quantile",),
)

NORMCDF = CFunction(
    """
double $name(double x) {
  double t = -0.70710678118654752440 * x, low = fma(-0.70710678118654752440, x, -t) + 4.833646656726457e-17 * x;
  return 0.5 * (erfc(t) - (t > 0 && t < 28 ? 1.1283791670955125739 * low * exp(-t * t) : 0));
}""",
    ("erfc", "exp", "fma"),
)
"""Phi(x) = erfc(-x/sqrt(2))/2; ``low`` is the rounding error of the argument, which erfc magnifies x^2 times."""

ERFCX = CFunction(
    """
double $name(double x) {
  if (x < 25) {
    double square = x * x;
    if (square > 750) return __builtin_inf();
    double low = fma(x, x, -square), half = exp(square / 2);
    return half * (erfc(x) * (1 + low)) * half;
  }
  double r = 1 / (x * x), tail = 1.875 - r * (6.5625 - r * (29.53125 - r * 162.421875));
  return 0.56418958354775628695 / x * (1 - r * (0.5 - r * (0.75 - r * tail)));
}""",
    ("erfc", "exp", "fma"),
)
"""exp(x^2) erfc(x): below 25 as it stands, the square carried in two parts; above, the asymptotic series."""

SINPI = CFunction(
    """
double $name(double x) {
  double r = fmod(x, 2), n = rint(2 * r), t = 3.14159265358979323846 * (r - n / 2);
  double value = n == 0 || n == 2 || n == -2 || n == 4 || n == -4 ? sin(t) : cos(t);
  return value == 0 ? x * 0 : n == 2 || n == -2 || n == 3 || n == -1 ? -value : value;
}""",
    ("cos", "fmod", "rint", "sin"),
)
COSPI = CFunction(
    """
double $name(double x) {
  double r = fmod(x < 0 ? -x : x, 2), n = rint(2 * r), t = 3.14159265358979323846 * (r - n / 2);
  double value = n == 1 || n == 3 ? sin(t) : cos(t);
  return (n == 1 || n == 2 ? -value : value) + 0;
}""",
    ("cos", "fmod", "rint", "sin"),
)
"""The argument is reduced exactly to a quarter turn before it is multiplied by pi.  Zeros have the signs of IEEE 754:
the sine that of its argument, the cosine none."""


RCBRT = CFunction(
    """
double $name(double x) {
  double y = 1 / cbrt(x), e = x * y * (y * y) - 1;
  return e < 1 ? y - y * e / 3 : y;
}""",
    ("cbrt",),
)
"""A step of Newton's method takes most of the error of the cube root away; there is none where x is 0 or infinite."""


def _inverse_length(parameters: str, length: str) -> CFunction:
    """The inverse of a length, in which ``s`` stands before each component: that of one that overflows is a number."""
    whole, part = length.replace("s * ", ""), length.replace("s * ", "0.125 * ")
    return CFunction(
        f"double $name({parameters}) {{ double r = {whole}; return r <= 1e308 ? 1 / r : 0.125 / {part}; }}", ("hypot",)
    )


RHYPOT = _inverse_length("double x, double y", "hypot(s * x, s * y)")
RNORM3D = _inverse_length("double x, double y, double z", "hypot(hypot(s * x, s * y), s * z)")
RNORM4D = _inverse_length("double x, double y, double z, double w", "hypot(hypot(s * x, s * y), hypot(s * z, s * w))")


def _bessel(order: int, sign: str, coefficients: str) -> CFunction:
    """I0 or I1: the power series, all of whose terms are positive, up to 8; above, a Chebyshev series of
    exp(-x) sqrt(x) I(x), as in S. L. Moshier, "Methods and Programs for Mathematical Functions" (1989), with
    coefficients computed to 50 digits.
    """
    text = """
double $name(double x) {
  static const double c[] = {
COEFFICIENTS};
  double z = x < 0 ? -x : x;
  if (z <= 8) {
    double square = z * z / 4, sum = 1;
    for (int k = 26; k > 0; --k) sum = 1 + sum * (square / (k * (k + ORDER)));
    return SMALLsum;
  }
  if (z > 1000) z = 1000;
  double half = exp(z / 2), series = tc_chebyshev_double(16 / z - 1, c, sizeof c / sizeof *c) / sqrt(z);
  return SIGNhalf * series * half;
}"""
    for hole, value in (
        ("COEFFICIENTS", coefficients), ("ORDER", str(order)), ("SMALL", "x / 2 * " * order), ("SIGN", sign)
    ):  # fmt: skip
        text = text.replace(hole, value)
    return CFunction(text, ("chebyshev", "exp", "sqrt"))


CYL_BESSEL_I0 = _bessel(
    0,
    "",
    """\
    0.804490411014108832, 0.00336911647825569409, 0.0000688975834691682398, 2.89137052083475648e-6,
    2.04891858946906374e-7, 2.26666899049817806e-8, 3.39623202570838635e-9, 4.94060238822496959e-10,
    1.18891471078464383e-11, -3.14991652796324136e-11, -1.32158118404477131e-11, -1.79417853150680612e-12,
    7.18012445138366623e-13, 3.8527783827421427e-13, 1.54008621752140983e-14, -4.15056934728722209e-14,
    -9.55484669882830765e-15, 3.81168066935262242e-15, 1.77256013305652638e-15, -3.42548561967721913e-16,
    -2.82762398051658348e-16, 3.46122286769746109e-17, 4.46562142029676e-17, -4.83050448594418207e-18,
    -7.23318048787475395e-18""",
)
CYL_BESSEL_I1 = _bessel(
    1,
    "(x < 0 ? -1 : 1) * ",
    """\
    0.77857623501828012, -0.00976109749136146841, -0.000110588938762623716, -3.88256480887769039e-6,
    -2.51223623787020893e-7, -2.63146884688951951e-8, -3.83538038596423702e-9, -5.58974346219658381e-10,
    -1.89749581235054123e-11, 3.25260358301548824e-11, 1.41258074366137813e-11, 2.03562854414708951e-12,
    -7.19855177624590851e-13, -4.08355111109219732e-13, -2.10154184277266431e-14, 4.27244001671195135e-14,
    1.04202769841288028e-14, -3.8144030724370078e-15, -1.88035477551078245e-15, 3.30820231092092828e-16,
    2.96262899764595014e-16, -3.20952592199342396e-17, -4.65030536848935833e-17, 4.41434832307170795e-18,
    7.51729631084210481e-18""",
)
