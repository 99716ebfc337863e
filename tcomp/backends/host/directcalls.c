/* Calls of kernels with no Python between the caller's arrays and the kernel: see directcalls.py, which gives these
   structures their content, and the functions of Python that are called here. */
typedef long long fact;
typedef struct { fact references; void *type; } object;
typedef struct {
  object head; char *data; int rank; fact *shape; fact *strides; void *base; void *dtype; int flags;
} array;
typedef struct { const char *name; void *function; int flags; const char *text; } method;

struct python {
  object *(*call)(object *, object *const *, unsigned long, object *);
  object *(*attribute)(object *, object *);
  int (*set_attribute)(object *, object *, object *);
  object *(*tuple)(fact);
  int (*put)(object *, fact, object *);
  object *(*item)(object *, fact);
  object *(*slice)(object *, fact, fact);
  fact (*length)(object *);
  object *(*known)(object *, object *);
  void *(*pointer)(object *);
  object *(*number)(fact);
  object *(*error)(void);
  int (*is_error)(object *);
  void (*clear)(void);
  void *(*release)(void);
  void (*acquire)(void *);
  void (*keep)(object *);
  void (*drop)(object *);
  object *(*function)(method *, object *, object *);
  object *none, *yes, *no, *exception, *tuple_type, *array_type, *nested;
};
struct operand { fact position, kind, mask, low, high, rank, copied; const fact *sides; };
struct constant { fact position; object *value; };
struct answer { object *asked, *expected; };
struct maker { fact count; object *const *parts; };
struct source { fact cotangent, place; };
struct setting { object *name, *value; fact count; const fact *places; };
struct call {
  void *kernel;
  fact arguments, inputs, outputs, constants, fixed, answers, settings, given, taken, tensors;
  fact saved, cotangents, returned;
  object *fail, *scratch, *note, *guard, *address, *levels, *level_name, *level, *apply, *otherwise;
  const struct operand *operand;
  const struct constant *constant;
  char *const *bound;
  const struct answer *answer;
  const struct maker *maker;
  const struct setting *setting;
  const struct source *source;
  const fact *used, *returns;
};

char *getenv(const char *);
static struct python py;

static object *kept(object *o) { py.keep(o); return o; }

/* NULL, with no error but one that is no Exception, such as KeyboardInterrupt. */
static void *quietly(void) { if (py.error() && py.is_error(py.exception)) py.clear(); return 0; }

/* Whether a call without an error has given this very object. */
static int is(object *found, object *expected)
{
  if (!found) quietly(); else py.drop(found);
  return found == expected;
}

static int address(const struct call *c, object *o, char **at)
{
  if (!c->tensors) { *at = ((const array *)o)->data; return 1; }
  object *found = py.call(c->address, &o, 1, 0);
  if (!found) return quietly() != 0;
  *at = py.pointer(found);
  py.drop(found);
  return 1;
}

static int as_an_array(const struct operand *f, const array *a, int written)
{
  if (a->head.type != (void *)py.array_type || (fact)a->dtype != f->kind || a->rank != f->rank) return 0;
  for (fact d = 0; d < f->rank; d++)
    if (a->shape[d] != f->sides[2 * d] || (f->sides[2 * d] != 1 && a->strides[d] != f->sides[2 * d + 1])) return 0;
  return !written || (a->flags & WRITEABLE);
}

/* Nested tensors have no shape: asking the guard for it ends the process. */
static int as_tensors(const struct call *c, object *const *tensors, fact count)
{
  for (fact n = 0; n < count; n++)
    if ((fact)tensors[n]->type != c->operand[n].kind || !is(py.attribute(tensors[n], py.nested), py.no)) return 0;
  if (!is(py.call(c->guard, tensors, count, 0), py.yes)) return 0;
  for (fact n = 0; n < c->answers; n++)
    if (!is(py.call(c->answer[n].asked, 0, 0, 0), c->answer[n].expected)) return 0;
  return py.known(c->levels, c->level_name) == c->level;
}

/* The address of an argument, whether it is aligned, and has memory unless it needs none. */
static int placed(const struct call *c, const struct operand *f, object *o, char **at)
{
  return address(c, o, at) && !((fact)*at & f->mask) && (*at || f->low == f->high);
}

/* Whether a call fits, whose arguments, and results behind them if these are given, are there; their addresses. */
static int fits(const struct call *c, object *const *objects, int given, char **at)
{
  object *arrays[MOST_ARRAYS];
  const fact count = c->inputs + (given ? c->outputs : 0);
  for (fact n = 0; n < c->constants; n++)
    if (objects[c->constant[n].position] != c->constant[n].value) return 0;
  for (fact n = 0; n < count; n++) {
    arrays[n] = objects[c->operand[n].position];
    if (!c->tensors && !as_an_array(c->operand + n, (const array *)arrays[n], n >= c->inputs)) return 0;
  }
  if (c->tensors && !as_tensors(c, arrays, count)) return 0;
  for (fact n = 0; n < count; n++) {
    const struct operand *f = c->operand + n;
    if (!placed(c, f, arrays[n], at + n)) return 0;
    for (fact m = 0; n >= c->inputs && m < n; m++)
      if (at[n] + f->low < at[m] + c->operand[m].high && at[m] + c->operand[m].low < at[n] + f->high) return 0;
  }
  return 1;
}

static int launched(const struct call *c, char **at, void *scratch, void *report)
{
  int status = 0;
  void *state = py.release();
  switch (c->inputs + c->outputs + c->fixed) {
CASES
  }
  py.acquire(state);
  return status;
}

static void raise(const struct call *c, int status, const fact *report)
{
  object *words[REPORT + 1], *raised = 0;
  fact count = 0;
  while (count <= REPORT && (words[count] = py.number(count ? report[count - 1] : status))) count++;
  if (count > REPORT) raised = py.call(c->fail, words, count, 0);
  if (raised) py.drop(raised);
  while (count--) py.drop(words[count]);
}

static object *as_results(object *const *made, fact count)
{
  object *several;
  if (count == 1) return made[0];
  several = py.tuple(count);
  for (fact n = 0; n < count; n++) {
    if (several) py.put(several, n, made[n]); else py.drop(made[n]);
  }
  return several;
}

/* Run on arguments at some addresses.  The results: new ones, or `out` with those in `outs`.  NULL with an error, or
   with none if nothing was done. */
static object *run(const struct call *c, char **at, object *out, object *const *outs)
{
  object *made[MOST_ARRAYS], *scratch = 0, *result = 0;
  fact report[REPORT] = {0}, count = 0;
  int status = 0, ready = 1;
  for (; !out && ready && count < c->outputs; count++) {
    const struct maker *m = c->maker + count;
    object *o = made[count] = py.call(m->parts[0], m->parts + 1, m->count - 1, 0);
    if (!o) break;
    ready = (c->tensors || o->type == (void *)py.array_type) && address(c, o, at + c->inputs + count);
  }
  if (!out && count < c->outputs) ready = 0;
  if (ready && c->scratch && !(scratch = py.call(c->scratch, 0, 0, 0))) ready = 0;
  if (ready) {
    for (fact n = 0; n < c->fixed; n++) at[c->inputs + c->outputs + n] = c->bound[n];
    status = launched(c, at, scratch ? py.pointer(py.item(scratch, 0)) : 0, report);
    for (fact n = 0; out && c->note && n < c->outputs; n++) {
      object *noted = py.call(c->note, outs + n, 1, 0);
      if (!noted) ready = 0; else py.drop(noted);
    }
  } else {
    quietly();
  }
  if (scratch) py.drop(scratch);
  if (ready && status) raise(c, status, report);
  if (ready && !status) result = out ? kept(out) : as_results(made, count);
  else while (count--) py.drop(made[count]);
  return result;
}

static const struct call *of(object *self) { return py.pointer(py.item(self, 0)); }

static object *or_none(object *result) { return result || py.error() ? result : kept(py.none); }

/* call(arguments, out): what the call returns, or None if nothing was done. */
static object *direct(object *self, object *const *args, fact count)
{
  const struct call *c = of(self);
  object *objects[MOST_ARGUMENTS + MOST_ARRAYS], *out, *result, *part;
  char *at[MOST_ARRAYS];
  if (count != 2 || (void *)py.tuple_type != args[0]->type || py.length(args[0]) != c->arguments || getenv(INTERPRET))
    return kept(py.none);
  out = args[1] == py.none ? 0 : args[1];
  if (c->given != EITHER && (c->given == GIVEN) != (out != 0)) return kept(py.none);
  for (fact n = 0; n < c->arguments; n++) objects[n] = py.item(args[0], n);
  if (out && c->outputs > 1 && (out->type != (void *)py.tuple_type || py.length(out) != c->outputs))
    return kept(py.none);
  for (fact n = 0; out && n < c->outputs; n++)
    objects[c->arguments + n] = c->outputs > 1 ? py.item(out, n) : out;
  if (!fits(c, objects, out != 0, at)) return or_none(0);
  if (!c->apply) return or_none(run(c, at, out, objects + c->arguments));
  result = py.call(c->apply, objects, c->arguments, 0);
  if (!result || !c->taken) return result;
  part = c->taken == 1 ? kept(py.item(result, 0)) : py.slice(result, 0, c->taken);
  py.drop(result);
  return part;
}

static object *chosen(const struct setting *s, object *const *arguments, fact count, object *results)
{
  object *values = py.tuple(s->count);
  for (fact n = 0; values && n < s->count; n++) {
    const fact place = s->places[n];
    object *o = place < count ? arguments[place] : results;
    if (place >= count && results->type == (void *)py.tuple_type) o = py.item(results, place - count);
    py.put(values, n, kept(o));
  }
  return values;
}

/* forward(ctx, *arguments) of a node of autograd, for arguments that fit: the results, after some attributes were set. */
static object *forward(object *self, object *const *args, fact count)
{
  const struct call *c = of(self);
  object *const *arguments = args + 1, *results = 0;
  char *at[MOST_ARRAYS];
  fact ready = 0;
  count--;
  while (count == c->arguments && ready < c->inputs
         && placed(c, c->operand + ready, arguments[c->operand[ready].position], at + ready)) ready++;
  if (ready == c->inputs) results = run(c, at, 0, 0);
  if (!results && !py.error()) results = py.call(c->otherwise, arguments, count, 0);
  for (fact n = 0; results && n < c->settings; n++) {
    const struct setting *s = c->setting + n;
    object *value = s->value ? kept(s->value) : chosen(s, arguments, count, results);
    const int failed = !value || py.set_attribute(args[0], s->name, value) < 0;
    if (value) py.drop(value);
    if (failed) { py.drop(results); results = 0; }
  }
  return results;
}

/* The elements of an array, in C order, and where they end. */
static char *copied(fact rank, const fact *sides, fact size, const char *from, char *to)
{
  if (rank == 0) { __builtin_memcpy(to, from, size); return to + size; }
  for (fact n = 0; n < sides[0]; n++, from += sides[1])
    if (rank == 1 && size == 4) __builtin_memcpy(to, from, 4), to += 4;
    else if (rank == 1 && size == 8) __builtin_memcpy(to, from, 8), to += 8;
    else to = copied(rank - 1, sides + 2, size, from, to);
  return to;
}

static object *arranged(const struct call *c, object *results)
{
  object *gradients = results ? py.tuple(c->returned) : 0;
  for (fact n = 0; gradients && n < c->returned; n++) {
    const fact place = c->returns[n];
    object *o = place < 0 ? py.none : c->outputs == 1 ? results : py.item(results, place);
    py.put(gradients, n, kept(o));
  }
  if (results) py.drop(results);
  return gradients;
}

/* backward(saved, *cotangents) of a node of autograd: the gradients, or None if something does not fit. */
static object *backward(object *self, object *const *args, fact count)
{
  const struct call *c = of(self);
  object *objects[MOST_ARGUMENTS], *saved = args[0], *results = 0;
  char *at[MOST_ARRAYS], room[MOST_COPIED + ALIGNMENT] __attribute__((aligned(ALIGNMENT))), *to = room;
  if (count != 1 + c->cotangents || getenv(INTERPRET)) return kept(py.none);
  for (fact n = 0; n < c->cotangents; n++)
    if ((args[1 + n] != py.none) != c->used[n]) return kept(py.none);
  if (py.length(saved) == c->saved) {
    for (fact n = 0; n < c->arguments; n++)
      objects[n] = c->source[n].cotangent ? args[1 + c->source[n].place] : py.item(saved, c->source[n].place);
    for (fact n = 0; n < c->constants; n++) objects[c->constant[n].position] = c->constant[n].value;
    if (fits(c, objects, 0, at)) {
      for (fact n = 0; n < c->inputs; n++) {
        const struct operand *f = c->operand + n;
        if (!f->copied) continue;
        const char *from = at[n];
        at[n] = to;
        to += (copied(f->rank, f->sides, f->mask + 1, from, to) - to + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
      }
      results = run(c, at, 0, 0);
    }
  }
  return or_none(arranged(c, results));
}

static method direct_method = {"call", (void *)direct, FASTCALL, 0};
static method forward_method = {"forward", (void *)forward, FASTCALL, 0};
static method backward_method = {"backward", (void *)backward, FASTCALL, 0};

void tc_prepare(const struct python *given) { py = *given; }
object *tc_direct(object *self) { return py.function(&direct_method, self, 0); }
object *tc_forward(object *self) { return py.function(&forward_method, self, 0); }
object *tc_backward(object *self) { return py.function(&backward_method, self, 0); }
