"""The text of a plan reads back as the plan, and changes by hand are taken or refused with their reason."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pytest

import tcomp as tc
from tcomp.driver import Backend, Compilation, lower
from tcomp.grammar import define
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.strategy import resume
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime.registry import backend_of
from tests.golden.test_plans import PROGRAMS

pytestmark = pytest.mark.sweep(5)

TARGETS = ("cpu", "cuda:sm_90")
MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,kk) * B(kk,n) }"
SIZES = {"M": 20, "N": 24, "K": 9}
SOFTMAX = PROGRAMS["softmax"].text


def readable(backend: Backend) -> list[str]:
    """The passes after which a plan can be read."""
    found = []
    for step in backend.passes:
        try:
            resume(step.name, backend.passes)
        except tc.PlanError:
            continue
        found.append(step.name)
    return found


def compiled(
    text: str,
    sizes: Mapping[str, int],
    target: str,
    plan: str | None = None,
    options: tc.MappingOptions | None = None,
) -> Compilation:
    return lower(define(text)["f"], Sizes(sizes), options or tc.MappingOptions(), backend_of(target), True, plan)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_plan_reads_back_after_every_pass_that_keeps_the_tree(name: str, target: str) -> None:
    program = PROGRAMS[name]
    made = compiled(program.text, program.sizes, target)
    stages = readable(backend_of(target))
    assert len(stages) >= 2
    for stage in stages:
        again = compiled(program.text, program.sizes, target, made.stages[stage])
        assert again.source == made.source, stage
        assert next(iter(again.plans)) == stage


@pytest.mark.parametrize("parts", [2, 5])
def test_a_split_reduction_reads_back(parts: int) -> None:
    options = tc.MappingOptions(split_reduction=parts)
    made = compiled(MATMUL, SIZES, "cuda:sm_90", options=options)
    assert "[[split]]" in made.stages["barriers"]
    again = compiled(MATMUL, SIZES, "cuda:sm_90", made.stages["barriers"])
    assert again.source == made.source
    assert len(again.source.launches) == 2


LEAVING = "def f(float(M,K) A) -> (T, C) { s(m,n) +=! A(m,k) * A(n,k)\n T(m) +=! s(m,n)\n C(n) max=! s(m,n) }"


def test_a_reduction_that_accumulates_apart_reads_back() -> None:
    sizes = {"M": 40, "K": 24}
    made = compiled(LEAVING, sizes, "cuda:sm_90")
    for stage in readable(backend_of("cuda:sm_90")):
        assert '[[apart]]\nstatement = "S0"' in made.stages[stage]
        assert compiled(LEAVING, sizes, "cuda:sm_90", made.stages[stage]).source == made.source


@pytest.mark.parametrize("name", ["S1", "S0i", "S9"])
def test_only_reductions_into_temporaries_accumulate_apart(name: str) -> None:
    sizes = {"M": 40, "K": 24}
    text = compiled(LEAVING, sizes, "cuda:sm_90").stages["barriers"]
    with pytest.raises(tc.PlanError, match=f"apart 0: {name} cannot accumulate in a storage of its own"):
        compiled(
            LEAVING,
            sizes,
            "cuda:sm_90",
            text.replace('[[apart]]\nstatement = "S0"', f'[[apart]]\nstatement = "{name}"'),
        )


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("def f(float(X) A, float(K,F) B) -> (O) { O(x+k,f) +=! A(x) * B(k,f) }", {"X": 14, "K": 3, "F": 13}),
        ("def f(float(N,M) A) -> (O) { O(n/8) +=! A(n,m) }", {"N": 32, "M": 20}),
    ],
    ids=["steps of several elements alone", "and steps of one"],
)
def test_a_reduction_that_scatters_reads_back(text: str, sizes: dict[str, int]) -> None:
    made = compiled(text, sizes, "cpu")
    for stage in readable(backend_of("cpu")):
        assert compiled(text, sizes, "cpu", made.stages[stage]).source == made.source, stage


def test_a_reduction_of_elements_along_a_constant_index_reads_back() -> None:
    """The start and the finish of an element have loops of their own, too, where isl found an index constant."""
    text = "def f(float(M,K) A, float(K,L) B, float(L,N) C) -> (O) { O(m,n) +=! A(m,k) * (B(k,l) * C(l,n)) }"
    sizes = {"M": 8, "K": 16, "L": 3, "N": 1}
    made = compiled(text, sizes, "cpu")
    for stage in readable(backend_of("cpu")):
        assert compiled(text, sizes, "cpu", made.stages[stage]).source == made.source, stage


def test_interchanged_loops_run() -> None:
    operation = tc.define("def f(float(N,M) A) -> (B) { B(i,j) = 2 * A(i,j) }")["f"]
    made = operation.compile(sizes={"N": 6, "M": 5}, options="tile=4x3")
    rows = "{ S0[i0, i1] -> [(i0)] }, { S0[i0, i1] -> [(i1)] }"
    text = made.stages["nest"].replace(rows, "{ S0[i0, i1] -> [(i1)] }, { S0[i0, i1] -> [(i0)] }")
    kernel = operation.compile(sizes={"N": 6, "M": 5}, options="tile=4x3", plan=text)
    assert kernel.source != made.source
    A = np.arange(30, dtype=np.float32).reshape(6, 5)
    assert (kernel(A) == 2 * A).all()


def test_other_tiles_run_and_their_buffers_follow() -> None:
    operation = tc.define(MATMUL)["f"]
    options = tc.MappingOptions(tile_sizes=(4, 24), register_tile=(2, 8))
    made = operation.compile(sizes=SIZES, options=options)
    text = made.stages["nest"].replace("floor((i0)/2)", "floor((i0)/3)").replace("floor((i0)/4)", "floor((i0)/6)")
    kernel = operation.compile(sizes=SIZES, options=options, plan=text)
    assert "shape = [2, 8]" in made.stages["place"] and "shape = [3, 8]" in kernel.stages["place"]
    rng = np.random.default_rng(0)
    A, B = rng.integers(-3, 4, (20, 9)).astype(np.float32), rng.integers(-3, 4, (9, 24)).astype(np.float32)
    assert (kernel(A, B) == A @ B).all()


def test_a_loop_that_hands_values_on_is_not_said_to_run_side_by_side() -> None:
    """A producer and its consumer in one loop, of which an iteration reads what the one before wrote."""
    text = "def f(float(N) A) -> (B, T) { T(i) = A(i) * 2  B(i) = i > 0 ? T(i-1) : 0.0 where i in 0:N }"
    operation = tc.define(text)["f"]
    sizes = {"N": 64}
    made = operation.compile(sizes=sizes)
    assert "omp simd" in made.source
    head, points = made.stages["nest"].partition("tree =")[0], "[{ S0[i0] -> [(i0)]; S1[i0] -> [(i0)] }]"
    tables = """[[cluster]]
statements = { S0 = [0], S1 = [0] }

[[group]]
clusters = [0]
members = [0]
sizes = [64]
"""
    tree = f"""tree = '''
domain: "{{ S0[i] : 0 <= i <= 63; S1[i] : 0 <= i <= 63 }}"
child:
  mark: "parallel0"
  child:
    schedule: "{points.replace("(i0)", "(floor((i0)/64))")}"
    permutable: 1
    coincident: [ 1 ]
    child:
      mark: "group0"
      child:
        schedule: "{points}"
        permutable: 1
        child:
          sequence:
          - filter: "{{ S0[i] }}"
          - filter: "{{ S1[i] }}"
'''

"""
    kernel = operation.compile(sizes=sizes, plan=head + tree + tables)
    assert "omp simd" not in kernel.source
    A = np.arange(1, 65, dtype=np.float32)
    B, T = kernel(A)
    assert (T == 2 * A).all() and (np.append(0, 2 * A[:-1]) == B).all()


def test_two_plans_of_one_program_are_two_kernels() -> None:
    operation = tc.define(MATMUL)["f"]
    made = operation.compile(sizes=SIZES)
    assert operation.compile(sizes=SIZES, plan=made.stages["nest"]) is not made


EDITS = {
    "no TOML": ('stage = "place"', "stage = ", tc.PlanError, "is not TOML: .*line 1"),
    "no stage": ('stage = "place"\n', "", tc.PlanError, "the plan lacks 'stage'"),
    "a stage of a GPU": ('"place"', '"barriers"', tc.PlanError, "after the pass nest or .* overhang, not 'barriers'"),
    "too early a stage": ('"place"', '"fuse"', tc.PlanError, "not 'fuse'"),
    "no tree": ("child:", "chidl:", tc.PlanError, "line 2 of tree: 'chidl:' is no entry"),
    "an unknown entry": ("[[buffer]]", "[[bufer]]", tc.PlanError, "the plan has no entry 'bufer'"),
    "an unknown field": ("space =", "spice =", tc.PlanError, "buffer 0 lacks 'space'"),
    "a text for a list": ("shape = [4]", 'shape = "4"', tc.PlanError, "buffer 0: shape must be a list"),
    "a mark twice": ('mark: "point1"', 'mark: "point0"', tc.PlanError, "the tree has 2 marks point0"),
    "a mark gone": ('mark: "group0"', 'mark: "grope0"', tc.PlanError, "below no mark that is named group"),
    "a statement in two clusters": ("statements = { S1 =", "statements = { S3 =", tc.PlanError, "belongs to"),
    "a memory of a GPU": ('space = "tile"', 'space = "shared"', tc.PlanError, "this is no GPU"),
    "a buffer that is not there": ('storage = "e_1"', 'storage = "e_2"', tc.PlanError, "the program has no e_2"),
    "a buffer at the wrong mark": ('mark = "group0"', 'mark = "point1"', tc.PlanError, "uses it elsewhere"),
    "points too many": ("0 <= d <= 199;", "0 <= d <= 200;", tc.PlanError, "which the program does not have"),
    "points left out": ("n <= 99", "n <= 98", tc.LegalityError, "S"),
    "a buffer too small": ("shape = [4, 200]", "shape = [4, 199]", tc.LegalityError, "is outside"),
    "a buffer elsewhere": ("[(4i0)", "[(4i0 + 1)", tc.LegalityError, "is outside"),
    "a statement too early": ("S1[i0, i1] -> [(fl", "S1[i0, i1] -> [(-1 + fl", tc.LegalityError, "S1"),
    "a parallel reduction": (
        "S0[i0, i1] -> [(floor((i0)/4))]", "S0[i0, i1] -> [(floor((i1)/4))]", tc.LegalityError, r"depend|values of",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_a_wrong_plan_is_refused_with_its_reason(name: str) -> None:
    old, new, kind, reason = EDITS[name]
    sizes, options = PROGRAMS["softmax"].sizes, tc.MappingOptions(tile_sizes=(4,))
    text = compiled(SOFTMAX, sizes, "cpu", options=options).stages["place"]
    changed = text.replace(old, new) if name == "points left out" else text.replace(old, new, 1)
    assert changed != text
    with pytest.raises(kind, match=reason):
        compiled(SOFTMAX, sizes, "cpu", changed, options)


def test_a_plan_of_another_program_is_refused() -> None:
    with pytest.raises(tc.PlanError, match=r"which the program does not have|indices"):
        compiled(MATMUL, SIZES, "cpu", compiled(SOFTMAX, {"N": 9, "D": 9}, "cpu").stages["place"])


def test_a_missing_barrier_is_told() -> None:
    text = compiled(MATMUL, {"M": 64, "N": 64, "K": 64}, "cuda:sm_90").stages["barriers"]
    less = re.sub(r'\n\[\[barrier\]\]\nbefore = "\w+:copied"\nlevel = "block"\n', "", text)
    assert less != text
    with pytest.raises(tc.LegalityError, match="before all of it is fetched at"):
        compiled(MATMUL, {"M": 64, "N": 64, "K": 64}, "cuda:sm_90", less)


@pytest.mark.parametrize("stage", ["threads", "memories", "promotion", "barriers"])
def test_threads_that_are_not_there_are_told_without_a_buffer(stage: str) -> None:
    """The rows of the threads' band interchanged: the longer one runs along the shorter side of the block."""
    text, sizes = "def f(float(N,M) A) -> (B) { B(i,j) = 2 * A(i,j) }", {"N": 3, "M": 150}
    options = tc.MappingOptions(tile_sizes=(4, 8), threads=(8, 4))
    plan = compiled(text, sizes, "cuda:sm_90", options=options).stages[stage]
    (line,) = (line for line in plan.splitlines() if "mod 8" in line)
    first, second = re.findall(r"\{[^{}]*\}", line)
    changed = plan.replace(line, line.replace(f"{first}, {second}", f"{second}, {first}"))
    assert changed != plan
    with pytest.raises(tc.LegalityError, match="deals S0 to threads that do not exist"):
        compiled(text, sizes, "cuda:sm_90", changed, options)


@pytest.mark.parametrize("text", ["", "\n", 'stage = "place"\ntree = ""\n'])
def test_an_empty_text_is_no_plan(text: str) -> None:
    with pytest.raises(tc.PlanError):
        compiled(MATMUL, SIZES, "cpu", text)


SUM = "def f(float(N) A, float(N,K) X) -> (B) { t(n) +=! X(n,k)  B(n) = A(n) + t(n) }"


@pytest.mark.parametrize("again", ["n <= 5 and 0 <= k <= 6", "n <= 5 and k = 3"])
def test_instances_that_run_twice_are_told(again: str) -> None:
    text = compiled(SUM, {"N": 6, "K": 7}, "cpu").stages["pack"]
    plain = re.sub(r"\n\[\[operation\]\]\n.*\n.*\n.*\n", "", text)
    own = "n <= 5 and 0 <= k <= 6"
    steps = re.search(r'( *)schedule: "\[\{ S0\[i0, i1\] -> \[\(i1\)\] \}\]"\n.*permutable: 1\n', plain)
    assert steps is not None
    children = [f'{steps[1]}  - filter: "{{ S0[n, k] : 0 <= {bounds} }}"\n' for bounds in (own, again)]
    twice = f"{steps[0]}{steps[1]}child:\n{steps[1]}  sequence:\n{''.join(children)}"
    with pytest.raises(tc.LegalityError, match=r"runs .*S0.* more than once"):
        compiled(SUM, {"N": 6, "K": 7}, "cpu", plain.replace(steps[0], twice))


def test_refusals_tell_two_instances_and_the_statements() -> None:
    lines = ["Y(i) = X(i) + X(i+1)", "Z(i) = Y(i) + Y(i+1) + Y(i+2)"]
    blur = tc.define("def blur(float(N) X) -> (Z) {\n  " + "\n  ".join(lines) + "\n}").blur
    options = MappingOptions(tile_sizes=(16,), recompute_limit=3)
    text = blur.compile(sizes={"N": 400}, options=options).stages["nest"]
    assert "i0 <= 17 + 16i0'" in text
    narrower = text.replace("i0 <= 17 + 16i0'", "i0 <= 16 + 16i0'")
    with pytest.raises(tc.LegalityError) as refusal:
        blur.compile(sizes={"N": 400}, options=options, plan=narrower)
    said = "lets S1 read other values of S0 than the program does: { [S0[17] -> S1[15]] } is missing"
    assert refusal.value.message == f"pass 'nest, as given' {said}"
    for name, number in (("S0", 2), ("S1", 3)):
        assert f"<string>:{number}:3: note: this is {name}\n    {lines[number - 2]}\n" in f"{refusal.value}\n"


FORMS = {
    "notes": ('stage = "nest"', 'stage = "nest"\nnotes = 5', "notes must be a list of strings"),
    "a ratio": ("sizes = [6]", 'sizes = [6]\nrecompute = { "0" = "abc" }', "recompute: 0 must be a number"),
    "a cluster that is not there": ("sizes = [6]", 'sizes = [6]\nrecompute = { "1" = 1 }', "recompute has no entry"),
    "digits": ("sizes = [6]", f"sizes = [{'9' * 5000}]", "is not TOML"),
    "what has no name": ('<= 5 }"\n', '<= 5; [n] : n = 0 }"\n', "without a name"),
    "two of one name": ('<= 5 }"\n', '<= 5; S0i[n, m] : n = 0 and m = 0 }"\n', "two things of one name"),
    "a parameter": ('"[{ S0[i0, i1] -> [(i1)] }]"', '"[p] -> [{ S0[i0, i1] -> [(i1 + p)] }]"', "has no parameters"),
    "64 bits": ("S0[i0, i1] -> [(i1)]", f"S0[i0, i1] -> [({1 << 40}i1)]", "counts beyond"),
    "32 bits": ("S0[i0, i1] -> [(i1)]", f"S0[i0, i1] -> [({1 << 31} + i1)]", "counts beyond 2147418112"),
}


@pytest.mark.parametrize("name", FORMS)
def test_what_no_plan_may_hold_is_told(name: str) -> None:
    old, new, reason = FORMS[name]
    text = compiled(SUM, {"N": 6, "K": 7}, "cpu").stages["nest"]
    assert old in text
    with pytest.raises(tc.PlanError, match=reason):
        compiled(SUM, {"N": 6, "K": 7}, "cpu", text.replace(old, new, 1))


@pytest.mark.parametrize("target", TARGETS)
def test_what_every_tile_computes_for_itself_is_not_kept_for_all(target: str) -> None:
    text = "def f(float(N) X) -> (Z) { Y(i) +=! X(i+k) where k in 0:3  Z(i) = Y(i) + Y(i+1) + Y(i+2) }"
    options = tc.MappingOptions(tile_sizes=(4,), recompute_limit=10.0)
    made = compiled(text, {"N": 40}, target, options=options)
    plan = list(made.stages.values())[-3]
    changed = re.sub(r'(storage = "Y_acc0"\n)(.+\n)+', r'\1space = "global"\nshape = [40]\norigin = [0]\n', plan)
    assert changed != plan
    with pytest.raises(tc.LegalityError, match="tiles that have a Y_acc0 of their own share one"):
        compiled(text, {"N": 40}, target, changed, options)


ROWS = "def f(float(N,K) A) -> (B) { B(n) +=! A(n,k) }"
SHARED = tc.MappingOptions(tile_sizes=(16,), threads=(8, 4), use_private_memory=False)
START = """        sequence:
        - filter: "{ S0i[n] }"
          child:
            schedule: "[{ S0i[i0] -> [(floor((i0)/4))] }]"
            child:
              mark: "phase0_0"
              child:
                schedule: "[{ S0i[i0] -> [((i0) mod 4)] }]"
                child:
                  mark: "lanes0_0"
        - filter: "{ S0[n, k]; S0f[n] }"
          child:
            schedule: "[{ S0[i0, i1] -> [(floor((i0)/4))]; S0f[i0] -> [(floor((i0)/4))] }]"
            child:
              mark: "round0"
              child:
                sequence:
"""


def rows_shared() -> str:
    """Eight threads reduce a row of four, in four rounds; accumulators lie in shared memory."""
    return compiled(ROWS, {"N": 16, "K": 64}, "cuda:sm_90", options=SHARED).stages["barriers"]


def refused_rows(changed: str, reason: str) -> None:
    with pytest.raises(tc.LegalityError, match=reason):
        compiled(ROWS, {"N": 16, "K": 64}, "cuda:sm_90", changed, SHARED)


def test_a_shared_reduction_is_started_by_the_thread_that_has_it() -> None:
    changed = rows_shared().replace("S0i[i0] -> [((i0) mod 4)]", "S0i[i0] -> [(3 - (i0) mod 4)]")
    refused_rows(changed, r"starts B_acc0 in other threads than reduce it: .*B_acc0")


def test_threads_reduce_one_element_at_a_time() -> None:
    text = rows_shared().replace("(4i1)", "(0)").replace("shape = [4]\nlower", "shape = [16]\nlower")
    text = text.replace("[(floor((i0)/4))]", "[(0)]")
    text = text.replace("{ S0[n, k] -> [(floor((k)/32))]", "{ S0[n, k] -> [(n)] }, { S0[n, k] -> [(floor((k)/32))]")
    for mark, row in {"lanes0_0": "S0i[n] -> [(n)]", "point0": "S0f[n] -> [(n)]"}.items():
        text = re.sub(rf'( *)mark: "{mark}"\n', rf'\g<0>\1child:\n\1  schedule: "[{{ {row} }}]"\n', text)
    refused_rows(text, "threads of reduce0 have several elements of B_acc0 at a time")


def test_a_shared_reduction_starts_in_the_loops_around_it() -> None:
    lines = rows_shared().splitlines(keepends=True)
    first = next(n for n, line in enumerate(lines) if "S0f[i0] -> [(floor((i0)/4))]" in line)
    second = next(n for n, line in enumerate(lines) if '- filter: "{ S0[n, k]' in line)
    last = lines.index("'''\n")
    text = "".join([*lines[:first], START, *("    " + line for line in lines[second:last]), *lines[last:]])
    text = text.replace('"round0"\nshape = [4]\nlower = "{ [i0, i1] -> [(4i1)] }"',
                        '"group0"\nshape = [16]\nlower = "{ [i0] -> [(0)] }"')  # fmt: skip
    refused_rows(text, "starts B_acc0 in other loops than reduce0")


def test_threads_wait_before_the_next_round_overwrites_what_they_read() -> None:
    changed = rows_shared().replace("S0f[i0] -> [((i0) mod 4)]", "S0f[i0] -> [(3 - (i0) mod 4)]")
    assert compiled(ROWS, {"N": 16, "K": 64}, "cuda:sm_90", changed, SHARED)
    less = changed.replace('[[barrier]]\nbefore = "phase0_0"\nlevel = "block"\n', "")
    assert less != changed
    refused_rows(less, r"exchange a value without a barrier: .*S0f\[0\] -> S0i\[4\]")


NT = "def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }"
NT_SIZES = {"M": 64, "N": 64, "K": 192}
PANEL = """[[copy]]
storage = "B"
mark = "panel0"
statement = "S0"
reads = [0]
shape = [16, 192]
lower = "{ [i0, i1, i2] -> [(16i2), (0)] }"
order = [1, 0]
padding = 0
vector = 1
"""
COPIES = {
    "twice": (PANEL, f"{PANEL}\n{PANEL}", tc.PlanError, "is not the only one of what S0 reads"),
    "in an operation": ('"panel0"\nstatement', '"contract0"\nstatement', tc.PlanError, "inside an operation"),
    "outside": ('"panel0"\nstatement', '"parallel0"\nstatement', tc.PlanError, "outside all tiles"),
    "wider": ("padding = 0\n", 'padding = 0\ndtype = "float64"\n', tc.LegalityError, "its steps lie in no groups"),
}


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_that_the_backend_would_not_make_is_told(name: str) -> None:
    old, new, kind, reason = COPIES[name]
    options = tc.MappingOptions(tile_sizes=(32, 32), register_tile=(4, 16))
    text = compiled(NT, NT_SIZES, "cpu", options=options).stages["pack"]
    text = re.sub(r"\[\[copy\]\]\n(.+\n)+", PANEL, text)
    assert compiled(NT, NT_SIZES, "cpu", text, options)
    with pytest.raises(kind, match=reason):
        compiled(NT, NT_SIZES, "cpu", text.replace(old, new), options)


BORDERED = """def f(float(N,M) X) -> (O) {
  O(m,n) +=! constant_exterior(X,1)(m,k-1) * constant_exterior(X,5)(n,k-1) where m in 0:N, n in 0:N, k in 0:M+2 }"""


@pytest.mark.parametrize(
    ("reads", "kind", "reason"),
    [
        ("[0, 1]", tc.LegalityError, "with one border for several"),
        ("[0]", tc.PlanError, "2 copies X_of_S0 would have one name"),
    ],
)
def test_one_copy_at_a_mark_has_one_border(reads: str, kind: type[Exception], reason: str) -> None:
    options = tc.MappingOptions(tile_sizes=(0, 0))
    plan = compiled(BORDERED, {"N": 24, "M": 20}, "cpu", options=options).stages["pack"]
    start, panel, _ = plan.split("[[copy]]\n")
    assert "reads = [1]" in panel
    changed = panel.replace("reads = [1]", f"reads = {reads}")
    copies = [changed] if reads == "[0, 1]" else [panel, changed]
    with pytest.raises(kind, match=reason):
        compiled(BORDERED, {"N": 24, "M": 20}, "cpu", "[[copy]]\n".join([start, *copies]), options)


@pytest.mark.parametrize(
    ("old", "new", "kind", "reason"),
    [
        ("vector = 4\n", "vector = 8\n", tc.LegalityError, "half outside"),
        ('"phase0_1"\nstatement', '"group0"\nstatement', tc.PlanError, "must depend on the 2 rows around its mark"),
    ],
    ids=["two vectors", "at no phase"],
)
def test_a_copy_that_threads_would_not_make_is_told(old: str, new: str, kind: type[Exception], reason: str) -> None:
    options = tc.MappingOptions(tile_sizes=(16, 16), threads=(8, 8))
    sizes = {"M": 32, "N": 32, "K": 48}
    text = compiled(MATMUL, sizes, "cuda:sm_90", options=options).stages["barriers"]
    changed = text.replace(old, new)
    assert changed != text
    with pytest.raises(kind, match=reason):
        compiled(MATMUL, sizes, "cuda:sm_90", changed, options)


@pytest.mark.parametrize(("target", "mark"), [("cpu", "group0"), ("cuda:sm_90", "phase0_0")])
def test_a_single_number_is_not_copied(target: str, mark: str) -> None:
    program = "def f(float(N) A, float() s) -> (B) { B(i) = A(i) * s() }"
    copy = f"""
[[copy]]
storage = "s"
mark = "{mark}"
statement = "S0"
reads = [0]
shape = []
lower = "{{ [i0] -> [] }}"
order = []
padding = 0
vector = 1
"""
    text = list(compiled(program, {"N": 40}, target).stages.values())[-3]
    with pytest.raises(tc.PlanError, match="s is a single number, of which there are no copies"):
        compiled(program, {"N": 40}, target, text + copy)
