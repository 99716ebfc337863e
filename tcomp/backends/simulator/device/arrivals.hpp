// Barriers in shared memory that count arrivals and bytes (mbarrier), and copies of boxes of tensors that report to them
// (cp.async.bulk.tensor, sm_90).
//
// What comes before what is kept as clocks: an arrival gives all that its thread knows, a wait takes what arrivals of
// the phase gave.  So a missing wait is found whether or not the copy happens to land in time, which it does at random.
#pragma once

#include "memory.hpp"

static const u32 MOST_BARRIERS = 64, BOX_ROW = 128, BOX_CHUNK = 16, NEVER = ~0u;
static const u32 KNOWN = MOST_THREADS + MOST_BARRIERS;  // what a thread knows: clocks of threads, phases of barriers

struct Arrivals {  // a barrier: what the hardware keeps in its 64 bits
  address_t at;
  u32 expected, pending, phases;
  i64 bytes;
  u32 maker;     // the thread that initialised it
  u32 visible;   // to copies
  u32 given[KNOWN], taken[KNOWN];  // what arrivals of this phase know, and what those of the last one knew
};

struct TensorMap {  // as in ffi.py
  u64 address;
  u64 extents[5], strides[5];  // innermost first; strides in bytes
  u32 box[5];
  u32 rank, itemsize;
};

struct TensorCopy {  // under way
  u32 place;  // in dynamic shared memory
  const TensorMap *map;
  u32 barrier, site, thread;
  i32 at[5];
};

struct Filled {  // a chunk of 16 bytes of shared memory that a tensor copy fills
  u32 barrier, phase, site;
  u16 thread, landing;
  u32 missing;  // a bit for each byte that nobody wrote
};

struct Reading {  // of a warpgroup: when its threads waited for it
  u32 first, site;
  u32 times[128], clocks[128];
};

static u32 *known_rows;  // a row of KNOWN for each thread
static Arrivals arrivals[MOST_BARRIERS];
static Vector<TensorCopy> tensor_copies;
static Vector<Reading> readings;
static const u32 MOST_CHUNKS = 16 * 1024, MOST_GROUPS = MOST_THREADS / 128;
static Filled filled[MOST_CHUNKS];             // barrier + 1, or 0 for what no tensor copy fills
static u32 last_reading[MOST_GROUPS][MOST_CHUNKS];  // number + 1

static bool tables_written;  // since a block forgot them, perhaps of an earlier run

static u32 *knowledge_of(u32 thread) { return known_rows + (u64)thread * KNOWN; }

static void learn(u32 *row, const u32 *other) {
  for (u32 i = 0; i < run.thread_count; i++) row[i] = row[i] > other[i] ? row[i] : other[i];
  for (u32 i = MOST_THREADS; i < MOST_THREADS + run.barrier_count; i++) row[i] = row[i] > other[i] ? row[i] : other[i];
}

static bool known_before(u32 thread, u32 clock) {
  return run.barrier_count && knowledge_of(run.self->index)[thread] > clock;
}

// Lanes that met know what each of them knew.
static void share_knowledge(u32 warp, u32 lanes) {
  if (!run.barrier_count) return;
  u32 first = (u32)__builtin_ctz(lanes), *joint = knowledge_of(warp * LANES + first);
  for (u32 l = 0; l < LANES; l++)
    if (lanes >> l & 1) learn(joint, knowledge_of(warp * LANES + l));
  for (u32 l = 0; l < LANES; l++)
    if (lanes >> l & 1) learn(knowledge_of(warp * LANES + l), joint);
}

// A block barrier: phases that one thread knows to be over are over for all; clocks begin anew.
static void meet_in_block() {
  if (!run.barrier_count) return;
  for (u32 b = MOST_THREADS; b < MOST_THREADS + run.barrier_count; b++) {
    u32 most = 0;
    for (u32 t = 0; t < run.thread_count; t++) most = most > knowledge_of(t)[b] ? most : knowledge_of(t)[b];
    for (u32 t = 0; t < run.thread_count; t++) knowledge_of(t)[b] = most;
  }
  for (u32 t = 0; t < run.thread_count; t++) memset(knowledge_of(t), 0, run.thread_count * sizeof(u32));
  for (u32 b = 0; b < run.barrier_count; b++) {
    memset(arrivals[b].given, 0, run.thread_count * sizeof(u32));
    memset(arrivals[b].taken, 0, run.thread_count * sizeof(u32));
  }
}

static void forget_arrivals() {
  if (run.barrier_count) memset(known_rows, 0, MOST_THREADS * KNOWN * sizeof(u32));
  if (tables_written) {
    memset(filled, 0, sizeof filled);
    memset(last_reading, 0, sizeof last_reading);
  }
  tables_written = false;
  run.barrier_count = run.chunks_filled = 0;
  tensor_copies.count = readings.count = 0;
}

static u32 place_in_shared(address_t at) { return (u32)(at - run.dynamic_start); }

static Finding in_shared(u32 kind, u32 place, u32 size, u32 access, u32 site) {
  const Buffer &buffer = run.settings.variables[run.settings.variable_count - 1];
  return describe_access(kind, &buffer, place, size, access, site);
}

// The barrier at an address, which somebody initialised earlier; does not come back if nobody did.
static Arrivals &barrier_at(const void *at, u32 site) {
  u32 counting = run.counting;
  run.counting = 0;
  load((address_t)at, 8, site);
  run.counting = counting;
  for (u32 b = 0; b < run.barrier_count; b++)
    if (arrivals[b].at == (address_t)at) return arrivals[b];
  add_finding(in_shared(UNINITIALISED, place_in_shared((address_t)at), 8, LOAD, site));
  leave_block();
  __builtin_unreachable();
}

static void end_phase_if_complete(Arrivals &b) {
  if (b.pending || b.bytes) return;
  b.phases++;
  b.pending = b.expected;
  b.given[MOST_THREADS + (u32)(&b - arrivals)] = b.phases;
  memcpy(b.taken, b.given, sizeof b.taken);
  for (u32 i = 0; i < run.thread_count; i++) {
    Thread &t = run.threads[i];
    if (t.state == AT_ARRIVALS && t.bits == b.at) t.state = READY;
  }
}

static void arrive(Arrivals &b, i64 bytes) {
  Thread &self = *run.self;
  u32 *own = knowledge_of(self.index);
  own[self.index] = ++self.clock;
  self.seen[self.lane] = self.clock;
  for (u32 l = 0; l < LANES; l++) {
    u32 &lane = own[self.warp * LANES + l];
    lane = lane > self.seen[l] ? lane : self.seen[l];
  }
  run.synced = 1;
  learn(b.given, own);
  b.bytes += bytes;
  if (b.pending) b.pending--;
  end_phase_if_complete(b);
}

// Tensor copies --------------------------------------------------------------------------------------------------

static u32 swizzled_chunk(u32 place) { return (place ^ (place >> 7 & 7) << 4) / BOX_CHUNK; }

static u32 rows_of(const TensorMap &map) {
  u32 rows = 1;
  for (u32 d = 1; d < map.rank; d++) rows *= map.box[d];
  return rows;
}

// Where a row of a box is in the tensor; false if it is outside.
static bool row_in_tensor(const TensorCopy &c, u32 row, u64 *address) {
  const TensorMap &map = *c.map;
  *address = map.address;
  for (u32 d = 1; d < map.rank; d++) {
    i64 x = c.at[d] + (i64)(row % map.box[d]);
    row /= map.box[d];
    if (x < 0 || x >= (i64)map.extents[d]) return false;
    *address += (u64)x * map.strides[d];
  }
  return true;
}

static void land(const TensorCopy &c) {
  const TensorMap &map = *c.map;
  for (u32 row = 0; row < rows_of(map); row++) {
    u64 address;
    bool inside = row_in_tensor(c, row, &address);
    for (u32 i = 0; i < map.box[0]; i++) {
      u32 place = c.place + row * BOX_ROW + i * map.itemsize;
      u8 *to = (u8 *)run.dynamic_start + swizzled_chunk(place) * BOX_CHUNK + place % BOX_CHUNK;
      i64 x = c.at[0] + (i64)i;
      if (inside && x >= 0 && x < (i64)map.extents[0]) memcpy(to, (const u8 *)address + x * map.itemsize, map.itemsize);
      else memset(to, 0, map.itemsize);
    }
    for (u32 chunk = 0; chunk < BOX_ROW / BOX_CHUNK; chunk++)
      filled[swizzled_chunk(c.place + row * BOX_ROW + chunk * BOX_CHUNK)].landing--;
  }
  Arrivals &b = arrivals[c.barrier];
  b.bytes -= (i64)rows_of(map) * BOX_ROW;
  end_phase_if_complete(b);
}

// Nobody can go on: one of the copies under way lands.
static bool land_one() {
  if (!tensor_copies.count) return false;
  u64 n = run.settings.order == 2 ? next_random() % tensor_copies.count : 0;
  TensorCopy c = tensor_copies[n];
  for (u64 i = n + 1; i < tensor_copies.count; i++) tensor_copies[i - 1] = tensor_copies[i];
  tensor_copies.count--;
  land(c);
  return true;
}

static TC_COLD void report_chunk(u32 kind, u32 chunk, u32 access, u32 site, u32 other_thread, u32 other_site, u32 detail) {
  Finding finding = in_shared(kind, chunk * BOX_CHUNK, BOX_CHUNK, access, site);
  finding.other = place_of(run.threads[other_thread]);
  finding.other_site = other_site;
  finding.detail = detail;
  add_finding(finding);
}

static void note_wait(Reading &r, u32 thread) {
  if (r.clocks[thread] != NEVER) return;
  r.times[thread] = run.now;
  r.clocks[thread] = run.self->clock;
}

// Whether of each warp of a product a thread waited for it, and the running thread knows of that.
static bool reading_is_over(const Reading &r) {
  for (u32 warp = 0; warp < 4; warp++) {
    bool over = false;
    for (u32 l = 0; l < LANES && !over; l++) {
      u32 t = warp * LANES + l;
      over = r.clocks[t] != NEVER && (r.times[t] < run.now || r.first + t == run.self->index ||
                                      known_before(r.first + t, r.clocks[t]));
    }
    if (!over) return false;
  }
  return true;
}

// A chunk may be filled if nobody fills it, and all who used what was there are done.
static bool may_fill(u32 chunk, u32 site) {
  const Filled &before = filled[chunk];
  if (before.landing) {
    report_chunk(RACE, chunk, STORE, site, before.thread, before.site, STORE);
    return false;
  }
  for (u32 group = 0; group < MOST_GROUPS; group++) {
    u32 n = last_reading[group][chunk];
    if (!n || reading_is_over(readings[n - 1])) continue;
    report_chunk(RACE, chunk, STORE, site, readings[n - 1].first, readings[n - 1].site, LOAD);
    return false;
  }
  return true;
}

// What a thread reads of a chunk that a tensor copy fills is there if it knows that the phase is over.
static bool knows_filled(const Filled &f, u32 thread) {
  return !f.landing && knowledge_of(thread)[MOST_THREADS + f.barrier - 1] > f.phase;
}

static Filled *filled_at(address_t at) {
  u64 place = at - run.dynamic_start;
  if (!run.chunks_filled || place >= run.dynamic_bytes) return nullptr;
  Filled *f = &filled[place / BOX_CHUNK];
  return f->barrier ? f : nullptr;
}

// An ordinary read of what a tensor copy fills.  False where none does.
static bool read_filled(address_t at, u32 size, u32 site) {
  const Filled *f = filled_at(at);
  if (!f) return false;
  u32 missing = f->missing >> (at - run.dynamic_start) % BOX_CHUNK & ((1u << size) - 1);
  if (missing || !knows_filled(*f, run.self->index))
    report_chunk(UNINITIALISED, (u32)(f - filled), LOAD, site, f->thread, f->site, missing != 0);
  return true;
}

// An ordinary store there: from then on it is as other memory.
static void store_over_filled(address_t at, u32 site) {
  Filled *f = filled_at(at);
  if (!f) return;
  if (!knows_filled(*f, run.self->index) || !may_fill((u32)(f - filled), site))
    report_chunk(RACE, (u32)(f - filled), STORE, site, f->thread, f->site, STORE);
  f->barrier = 0;
}

static void report_deadlock(const Thread &t) {
  const Arrivals *b = nullptr;
  for (u32 n = 0; n < run.barrier_count; n++)
    if (arrivals[n].at == t.bits) b = &arrivals[n];
  Finding finding = in_shared(DEADLOCK, place_in_shared((address_t)t.bits), 8, LOAD, t.return_site);
  finding.place = place_of(t);
  finding.detail = b ? b->pending : 0;
  finding.mask = b ? (u32)b->bytes : 0;
  add_finding(finding);
}

// At the end of a block somebody must know that all copies have arrived.
static void report_copies_left() {
  if (!run.chunks_filled) return;
  u32 over[MOST_BARRIERS] = {};
  for (u32 b = 0; b < run.barrier_count; b++)
    for (u32 t = 0; t < run.thread_count; t++) {
      u32 known = knowledge_of(t)[MOST_THREADS + b];
      over[b] = over[b] > known ? over[b] : known;
    }
  for (u32 chunk = 0; chunk < run.dynamic_bytes / BOX_CHUNK; chunk++) {
    const Filled &f = filled[chunk];
    if (!f.barrier || (!f.landing && over[f.barrier - 1] > f.phase)) continue;
    Finding finding = in_shared(COPY_LEFT, chunk * BOX_CHUNK, BOX_CHUNK, STORE, f.site);
    finding.place = place_of(run.threads[f.thread]);
    return add_finding(finding);
  }
}

extern "C" {
void tc_sim_barrier_init(void *at, u32 count) {
  u32 site = TC_CALLER;
  store((address_t)at, 8, STORE, 0, site);
  u32 n = 0;
  while (n < run.barrier_count && arrivals[n].at != (address_t)at) n++;
  if (n == MOST_BARRIERS || (address_t)at - run.dynamic_start >= run.dynamic_bytes) {
    add_finding(in_shared(OUT_OF_BOUNDS, place_in_shared((address_t)at), 8, STORE, site));
    leave_block();
  }
  if (n == run.barrier_count) run.barrier_count++;
  Arrivals &b = arrivals[n];
  memset((void *)&b, 0, sizeof b);
  b.at = (address_t)at;
  b.expected = b.pending = count;
  b.maker = run.self->index;
}

void tc_sim_barriers_visible() {
  for (u32 b = 0; b < run.barrier_count; b++) arrivals[b].visible |= arrivals[b].maker == run.self->index;
}

void tc_sim_barrier_arrive(void *at, u32 bytes) { arrive(barrier_at(at, TC_CALLER), bytes); }

// Returns when the phase with this parity is over.
void tc_sim_barrier_wait(void *at, u32 parity) {
  u32 site = TC_CALLER;
  Arrivals &b = barrier_at(at, site);
  Thread &self = *run.self;
  while ((b.phases & 1) == parity) {
    self.return_site = site;
    self.bits = (u64)(address_t)at;
    self.state = AT_ARRIVALS;
    wait_for_turn();
  }
  learn(knowledge_of(self.index), b.taken);
}

void tc_sim_tensor_copy(void *shared, const void *description, void *barrier, u32 rank, const i32 *at) {
  u32 site = TC_CALLER;
  const TensorMap &map = *(const TensorMap *)description;
  Arrivals &b = barrier_at(barrier, site);
  if (!b.visible) {
    Finding finding = in_shared(UNFENCED_MEMORY, place_in_shared(b.at), 8, LOAD, site);
    finding.other = place_of(run.threads[b.maker]);
    add_finding(finding);
  }
  TensorCopy c = {place_in_shared((address_t)shared), &map, (u32)(&b - arrivals), site, run.self->index, {}};
  memcpy(c.at, at, rank * sizeof(i32));
  u64 bytes = (u64)rows_of(map) * BOX_ROW;
  u32 fault = c.place >= run.dynamic_bytes || c.place + bytes > run.dynamic_bytes ? OUT_OF_BOUNDS : MISALIGNED;
  if (fault == OUT_OF_BOUNDS || c.place % BOX_ROW || rank != map.rank || map.box[0] * map.itemsize != BOX_ROW) {
    add_finding(in_shared(fault, c.place, BOX_ROW, STORE, site));
    leave_block();
  }
  u32 counting = run.counting;
  run.counting = 0;
  for (u32 row = 0; row < rows_of(map); row++) {
    u64 address;
    u32 missing[BOX_ROW / BOX_CHUNK] = {};
    if (row_in_tensor(c, row, &address))
      for (u32 i = 0; i < map.box[0]; i++) {
        i64 x = c.at[0] + (i64)i;
        if (x < 0 || x >= (i64)map.extents[0]) continue;
        u32 place = i * map.itemsize, found = load_for_copy(address + (u64)x * map.itemsize, map.itemsize, site);
        missing[place / BOX_CHUNK] |= found << place % BOX_CHUNK;
      }
    for (u32 n = 0; n < BOX_ROW / BOX_CHUNK; n++) {
      u32 chunk = swizzled_chunk(c.place + row * BOX_ROW + n * BOX_CHUNK);
      if (!filled[chunk].barrier) store(run.dynamic_start + chunk * BOX_CHUNK, BOX_CHUNK, STORE, 0, site);
      may_fill(chunk, site);
      filled[chunk] = {c.barrier + 1, b.phases, site, (u16)c.thread, (u16)(filled[chunk].landing + 1), missing[n]};
    }
  }
  run.counting = counting;
  run.chunks_filled = 1;
  tables_written = true;
  tensor_copies.push(c);
  bool at_once = run.settings.order == 1 || (run.settings.order == 2 && (next_random() & 1));
  if (at_once) {
    tensor_copies.count--;
    land(c);
  }
}
}
