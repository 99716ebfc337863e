// Products by four warps of operands in shared memory (wgmma, sm_90a): asynchronous, so each needs its fences and waits.
//
// A product is carried out when the first of its threads waits for it.  Until all have, nobody may touch its registers or
// store into its operands.  What ordinary instructions stored is seen by it behind a proxy fence of the thread that stored
// and a barrier.
#pragma once

#include "copies.hpp"

static const u64 DYNAMIC_BYTES = 256 * 1024;
extern "C" {
__attribute__((visibility("hidden"), aligned(1024))) u8 tc_sim_dynamic[DYNAMIC_BYTES];
}

static const u32 GROUP_THREADS = 128, GROUP_ROWS = 64, STEP_BYTES = 32, MOST_COLUMNS = 256, CHUNK = 16;

struct Descriptor {  // the PTX manual's matrix descriptor
  u32 start, leading, stride, base, layout;
};

struct Product {
  u32 *low[GROUP_THREADS];   // of each thread: sums of its first row, and of that 8 rows further
  u32 *high[GROUP_THREADS];
  Descriptor a, b;
  MatrixKind kind;
  u32 columns, first, group, site, reading;
  bool turned_a, turned_b, add, done;
  u64 waited[2];
};

struct Arrival {  // as TcWarpgroup in cuda.hpp: what a thread brings to a product
  u32 *low, *high;
  u64 a, b;
  u32 kind, columns, turned_a, turned_b, add;
};

static Vector<Product *> products;  // under way, in the order in which they began
static u16 operand_uses[DYNAMIC_BYTES / CHUNK];

static void forget_products() {
  for (u64 i = 0; i < products.count; i++) free(products[i]);
  if (products.count) memset(operand_uses, 0, sizeof operand_uses);
  products.count = 0;
  run.products_under_way = 0;
}

static void settle_fences() {
  for (u32 i = 0; i < run.thread_count; i++) run.threads[i].proxy_settled = run.threads[i].proxy_fences;
}

static Descriptor described(u64 bits) {
  return {(u32)(bits & 0x3fff) << 4, (u32)(bits >> 16 & 0x3fff) << 4, (u32)(bits >> 32 & 0x3fff) << 4,
          (u32)(bits >> 49 & 7), (u32)(bits >> 62)};
}

static u32 swizzled(u32 place) { return place ^ (place >> 7 & 7) << 4; }

// Where a chunk of 16 bytes begins: `across` counts rows or columns and `step` steps; one of them is the first of a chunk.
static u32 place_of_chunk(const Descriptor &d, bool turned, u32 across, u32 step, u32 size) {
  if (turned) return swizzled(d.start + 2 * (across % 64) + across / 64 * d.leading + step % 8 * 128 + step / 8 * d.stride);
  return swizzled(d.start + across % 8 * 128 + across / 8 * d.stride + size * step);
}

// Elements have 2 bytes or one; those of one byte lie along the steps.
static u32 size_of(MatrixKind kind) { return is_of_bytes(kind) ? 1 : 2; }

template <class Visit>
static void each_chunk(const Descriptor &d, bool turned, u32 extent, u32 size, const Visit &visit) {
  u32 across_by = turned ? CHUNK / size : 1, by = turned ? 1 : CHUNK / size;
  for (u32 across = 0; across < extent; across += across_by)
    for (u32 step = 0; step < STEP_BYTES / size; step += by) visit(place_of_chunk(d, turned, across, step, size), across, step);
}

template <class Visit>
static void each_chunk_of(const Product &p, const Visit &visit) {
  each_chunk(p.a, p.turned_a, GROUP_ROWS, size_of(p.kind), visit);
  each_chunk(p.b, p.turned_b, p.columns, size_of(p.kind), visit);
}

static TC_COLD void report_products(u32 kind, const Thread &thread, u32 detail, u32 site, u32 other_site) {
  Finding finding = {};
  finding.kind = kind;
  finding.buffer = NO_BUFFER;
  finding.site = site;
  finding.place = finding.other = place_of(thread);
  finding.detail = detail;
  finding.other_site = other_site;
  add_finding(finding);
}

// A chunk is read at once, by an instruction that sees what ordinary ones stored behind a fence alone.
static void read_operand(u32 place, u32 site) {
  address_t at = (address_t)tc_sim_dynamic + place;
  if (const Filled *f = filled_at(at)) {
    if (f->missing) report_chunk(UNINITIALISED, place / CHUNK, LOAD, site, f->thread, f->site, 1);
    return;
  }
  load(at, CHUNK, site);
  const Buffer &buffer = run.settings.variables[run.settings.variable_count - 1];
  Cell *cell = buffer.cells + (place >> buffer.shift), *end = cell + (((CHUNK - 1) >> buffer.shift) + 1);
  for (; cell != end; cell++) {
    cell->reader |= MANY_WARPS;
    if (cell->write_time < buffer.first_valid) continue;
    const Thread &writer = run.threads[cell->writer & THREAD_BITS];
    u32 passed = &writer == run.self ? writer.proxy_fences : writer.proxy_settled;
    if (passed > cell->write_fences) continue;
    Finding finding = describe_access(UNFENCED_MEMORY, &buffer, place, CHUNK, LOAD, site);
    finding.other_site = cell->write_site;
    finding.other = place_of(writer);
    add_finding(finding);
    return;
  }
}

static void use_operands(const Product &p, int by) {
  each_chunk_of(p, [&](u32 place, u32, u32) { operand_uses[place / CHUNK] += (u16)by; });
  run.products_under_way += (u32)by;
}

static void read_operands(const Product &p, u32 site) {
  u32 counting = run.counting;
  run.counting = 0;
  each_chunk_of(p, [&](u32 place, u32, u32) { read_operand(place, site); });
  run.counting = counting;
}

// What tensor copies filled is there if a thread of each warp waited for it.
static void read_filled_operands(Product &p, u32 site) {
  if (!run.chunks_filled) return;
  readings.push({});
  Reading &reading = readings[readings.count - 1];
  reading.first = p.first, reading.site = site;
  memset(reading.clocks, 0xff, sizeof reading.clocks);
  p.reading = (u32)readings.count;
  u32 sure = ~0u, sure_phase = 0;
  auto visit = [&](u32 place, u32, u32) {
    u32 chunk = place / CHUNK;
    const Filled &f = filled[chunk];
    last_reading[p.first / GROUP_THREADS][chunk] = p.reading;
    if (!f.barrier || (!f.landing && f.barrier == sure && f.phase == sure_phase)) return;
    for (u32 warp = 0; warp < GROUP_THREADS / LANES; warp++) {
      bool there = false;
      for (u32 l = 0; l < LANES && !there; l++) there = knows_filled(f, p.first + warp * LANES + l);
      if (!there) return report_chunk(UNINITIALISED, chunk, LOAD, site, f.thread, f.site, 0);
    }
    sure = f.barrier, sure_phase = f.phase;
  };
  each_chunk_of(p, visit);
}

static void check_operands(const Buffer *buffer, address_t at, u32 size, u32 access, u32 site) {
  if (buffer->start != (address_t)tc_sim_dynamic || !operand_uses[(at - buffer->start) / CHUNK]) return;
  Finding finding = describe_access(RACE, buffer, (i64)(at - buffer->start), size, access, site);
  const Product &oldest = *products[0];
  finding.other_site = oldest.site;
  finding.other = place_of(run.threads[oldest.first]);
  finding.detail = LOAD;
  add_finding(finding);
}

static bool well_formed(const Descriptor &d) { return d.layout == 1 && d.base == 0; }

// Sums that ordinary instructions touched since the last fence are not yet where a product looks for them.
static void check_registers(const Thread &t, const u32 *sums, u32 bytes, u32 site) {
  const u32 *time = times_of((address_t)sums);
  for (u32 i = 0; i < bytes / 4; i++)
    if (!t.registers_fenced || time[i] >= t.registers_fenced) return report_products(UNFENCED_REGISTERS, t, 0, site, 0);
}

static void keep_busy(Thread &t, const u32 *sums, u32 bytes, u32 site) {
  for (u64 i = 0; i < t.busy.count; i++)
    if (t.busy[i].start == (address_t)sums) {
      t.busy[i].group = t.product_group;
      return;
    }
  t.busy.push({(address_t)sums, bytes, t.product_group, site});
}

// Row 16 w + 8 h + g, column 8 j + 2 t + c of the result is sum 2 j + c of row h of lane 4 g + t of warp w.
static void multiply(const Product &p) {
  static float a[GROUP_ROWS][MOST_STEPS], b[MOST_STEPS][MOST_COLUMNS];
  const u32 size = size_of(p.kind), chunk = CHUNK / size;
  MatrixKind of_rows = kind_of_rows(p.kind), of_columns = kind_of_columns(p.kind);
  auto number = [&](u32 place, u32 n, MatrixKind kind) {
    return (float)element_of(tc_sim_dynamic + place, n / together_in(kind), n % together_in(kind), kind);
  };
  each_chunk(p.a, p.turned_a, GROUP_ROWS, size, [&](u32 place, u32 row, u32 step) {
    for (u32 n = 0; n < chunk; n++) a[row + (p.turned_a ? n : 0)][step + (p.turned_a ? 0 : n)] = number(place, n, of_rows);
  });
  each_chunk(p.b, p.turned_b, p.columns, size, [&](u32 place, u32 column, u32 step) {
    for (u32 n = 0; n < chunk; n++)
      b[step + (p.turned_b ? 0 : n)][column + (p.turned_b ? n : 0)] = number(place, n, of_columns);
  });
  for (u32 row = 0; row < GROUP_ROWS; row++) {
    static double sums[MOST_COLUMNS];
    for (u32 n = 0; n < p.columns; n++) sums[n] = 0;
    for (u32 k = 0; k < STEP_BYTES / size; k++)
      for (u32 n = 0; n < p.columns; n++) sums[n] += (double)a[row][k] * b[k][n];
    u32 lanes = row / 16 * LANES + row % 8 * 4;
    u32 *const *rows = row % 16 < 8 ? p.low : p.high;
    for (u32 n = 0; n < p.columns; n++) {
      u32 *own = rows[lanes + n % 8 / 2], which = n / 8 * 2 + n % 2;
      if (!p.add) own[which] = 0;
      add_to(own, which, sums[n], nullptr, 0, p.kind);
    }
  }
}

static void begin_product(u32 first, u32 site) {
  Product *p = (Product *)calloc(1, sizeof(Product));
  if (!p) abort();
  const Arrival &own = *(const Arrival *)run.self->bits;
  p->a = described(own.a), p->b = described(own.b);
  p->kind = (MatrixKind)own.kind, p->columns = own.columns, p->turned_a = own.turned_a, p->turned_b = own.turned_b, p->add = own.add;
  p->first = first, p->group = run.self->product_group, p->site = site;
  u32 bytes = p->columns / 4 * (u32)sizeof(u32);
  bool alike = true;
  for (u32 t = 0; t < GROUP_THREADS; t++) {
    Thread &thread = run.threads[first + t];
    const Arrival &arrival = *(const Arrival *)thread.bits;
    alike &= arrival.a == own.a && arrival.b == own.b && arrival.add == own.add && thread.product_group == p->group;
    p->low[t] = arrival.low, p->high[t] = arrival.high;
    check_registers(thread, arrival.low, bytes, site);
    check_registers(thread, arrival.high, bytes, site);
    keep_busy(thread, arrival.low, bytes, site);
    keep_busy(thread, arrival.high, bytes, site);
    thread.state = READY;
  }
  if (!alike || !well_formed(p->a) || !well_formed(p->b)) {
    report_products(BAD_DESCRIPTOR, *run.self, alike ? 1 : 0, site, 0);
    free(p);
    leave_block();
  }
  read_filled_operands(*p, site);
  read_operands(*p, site);
  use_operands(*p, 1);
  products.push(p);
  if (run.counting) run.collectives += GROUP_THREADS / LANES;
}

static void report_stuck_warpgroup(const Thread &t) {
  u32 first = t.index / GROUP_THREADS * GROUP_THREADS;
  for (u32 i = first; i < first + GROUP_THREADS; i++) {
    if (i >= run.thread_count) return report_thread(DIVERGENT_WARP, t, LANE_RETURNED, t.mask, &t);
    const Thread &other = run.threads[i];
    if (other.state != AT_COLLECTIVE || other.kind != WARPGROUP || other.site != t.site)
      return report_thread(DIVERGENT_WARP, t, other.state == FINISHED ? LANE_RETURNED : LANE_ELSEWHERE, t.mask, &other);
  }
}

extern "C" {
u32 tc_sim_shared_address(const void *at) { return (u32)((address_t)at - (address_t)tc_sim_dynamic); }

void tc_sim_fence_registers() { run.self->registers_fenced = ++run.register_fences; }

void tc_sim_fence_proxy() { run.self->proxy_fences++; }

// Products begin when all four warps have come.
void tc_sim_begin_product(const void *arrival, int line) {
  Thread &self = *run.self;
  self.return_site = TC_CALLER;
  self.site = (u32)line;
  self.kind = WARPGROUP;
  self.mask = 0xffffffffu;
  self.bits = (u64)(address_t)arrival;
  self.state = AT_COLLECTIVE;
  u32 first = self.index / GROUP_THREADS * GROUP_THREADS;
  for (u32 i = first; i < first + GROUP_THREADS; i++) {
    const Thread &t = run.threads[i];
    if (i >= run.thread_count || t.state != AT_COLLECTIVE || t.kind != WARPGROUP || t.site != self.site) {
      wait_for_turn();
      return;
    }
  }
  begin_product(first, self.return_site);
}

void tc_sim_close_products() { run.self->product_group++; }

// Waits for all groups of products of this thread but the newest.
void tc_sim_wait_products(int newest) {
  u32 site = TC_CALLER;
  Thread &self = *run.self;
  u64 kept = 0;
  for (u64 i = 0; i < self.busy.count; i++)
    if (self.busy[i].group + (u32)newest >= self.product_group) self.busy[kept++] = self.busy[i];
  self.busy.count = kept;
  u32 first = self.index / GROUP_THREADS * GROUP_THREADS, own = self.index - first;
  kept = 0;
  for (u64 i = 0; i < products.count; i++) {
    Product *p = products[i];
    if (p->first == first && p->group + (u32)newest < self.product_group) {
      if (!p->done) multiply(*p);
      p->done = true;
      p->waited[own / 64] |= 1ull << own % 64;
      if (p->reading) note_wait(readings[p->reading - 1], own);
      if (!(~p->waited[0] | ~p->waited[1])) {
        use_operands(*p, -1);
        read_operands(*p, site);
        free(p);
        continue;
      }
    }
    products[kept++] = p;
  }
  products.count = kept;
}
}
