// Loads and stores: bounds, alignment, initialisation and races.
//
// Two accesses of one kernel are ordered if a block barrier lies between them (their intervals differ), or, within one
// warp, a warp barrier of both lanes (vector clocks, as warp barriers may name any lanes).  Blocks are never ordered.
// A cell keeps the last write and enough of the last reads to tell any conflict of the next access.
#pragma once

#include "registers.hpp"

// Flags beside the thread's number, which is below 1024.
enum : u32 {
  THREAD_BITS = 0x3ff,
  IS_ATOMIC = 0x8000,
  IS_PENDING = 0x4000,     // an asynchronous copy that was not waited for
  MANY_THREADS = 0x2000,   // atomics of several threads of the block; reads of several lanes of one warp
  MANY_BLOCKS = 0x1000,
  MANY_WARPS = 0x0800,     // those several threads are not all of one warp
  NEVER_WRITTEN = 0x0400,  // brought by an asynchronous copy from where nobody wrote
  IS_LANDING = 0x10000,    // the end of an asynchronous copy; a cell keeps no such flag
};

static void leave_block();
static void wait_for_turn();
static bool known_before(u32 thread, u32 clock);
static bool read_filled(address_t at, u32 size, u32 site);
static void store_over_filled(address_t at, u32 site);
static void check_operands(const Buffer *buffer, address_t at, u32 size, u32 access, u32 site);
static void trace_access(const Buffer *buffer, address_t at, u32 size, u32 access, u32 site);

// Which block ran during an interval of this kernel, and was not the one that runs now.
static TC_COLD void set_block_at(u32 time, u32 *block) {
  u64 low = 0, high = run.block_starts.count;
  while (high - low > 1) {
    u64 middle = (low + high) / 2;
    if (run.block_starts[middle] <= time) low = middle;
    else high = middle;
  }
  u32 number = run.block_numbers[low];
  block[0] = number % run.launch.grid[0];
  block[1] = number / run.launch.grid[0] % run.launch.grid[1];
  block[2] = number / run.launch.grid[0] / run.launch.grid[1];
}

static TC_COLD void report_race(bool blocks, const Buffer *buffer, const Cell *cell, u32 size, u32 access, u32 site,
                                bool with_write) {
  u64 offset = (u64)(cell - buffer->cells) << buffer->shift;
  Finding finding = describe_access(blocks ? BLOCK_RACE : RACE, buffer, (i64)offset, size, access, site);
  u32 thread = (with_write ? cell->writer : cell->reader) & THREAD_BITS;
  finding.other_site = with_write ? cell->write_site : cell->read_site;
  finding.detail = with_write ? (cell->writer & IS_ATOMIC ? ATOMIC : STORE) : LOAD;
  set_block_at(with_write ? cell->write_time : cell->read_time, finding.other.block);
  const u32 *extent = run.launch.block;
  finding.other.thread[0] = thread % extent[0];
  finding.other.thread[1] = thread / extent[0] % extent[1];
  finding.other.thread[2] = thread / extent[0] / extent[1];
  add_finding(finding);
}

// Whether an access of this interval by another thread comes before whatever the running thread does now.
static inline bool ordered(u32 thread, u32 clock) {
  const Thread &self = *run.self;
  return (thread / LANES == self.warp && self.seen[thread % LANES] > clock) || known_before(thread, clock);
}

static inline bool other_block(const Buffer *buffer, u32 time, u16 who) {
  return time >= buffer->scope_first && (time < run.block_first || (who & MANY_BLOCKS));
}

// Whether the writes of this interval that a cell remembers come before whatever the running thread does now.
static bool writes_before(const Cell *cell) {
  u32 thread = cell->writer & THREAD_BITS;
  if (!(cell->writer & MANY_THREADS)) return thread == run.self->index || ordered(thread, cell->write_clock);
  if (cell->writer & MANY_WARPS) return false;
  // Which lanes they were of is not known, so all of them must have come by.
  u32 first = thread / LANES * LANES;
  for (u32 writer = first; writer < first + LANES && writer < run.thread_count; writer++)
    if (writer != run.self->index && !ordered(writer, cell->write_clock)) return false;
  return true;
}

// What a copy brings may lack a value, as in rows that are shorter than others: who reads the copy is to blame.
static bool noted_as_missing(const Buffer *buffer, const Cell *cell) {
  if (!run.copied_from) return false;
  u64 from = run.copied_from - buffer->start, at = (u64)(cell - buffer->cells) << buffer->shift;
  for (u64 end = at + (1ull << buffer->shift); at < end; at++)
    if (at - from < sizeof(Copy::bytes)) run.missing |= 1u << (at - from);
  return true;
}

// A copy through registers is an ordinary read and a store.  So what nobody wrote gets a pattern that values do not have
// (a NaN of its own), by which it is known wherever it was copied to; whoever reads it there is to blame.  Python drops
// the finding of a read that is a copy.  Elements of fewer bytes have no such pattern.
static const u32 MARK = 0x7fe5c3a1;

static TC_COLD void mark_as_unwritten(const Buffer *buffer, const Cell *cell) {
  u32 bytes = 1u << buffer->shift;
  address_t at = buffer->start + ((address_t)(cell - buffer->cells) << buffer->shift);
  for (u32 i = 0; i < bytes; i += (u32)sizeof MARK) memcpy((void *)(at + i), &MARK, sizeof MARK);
  if (!run.marked || bytes < run.marked) run.marked = bytes;
}

static TC_COLD void check_mark(const Buffer *buffer, address_t at, u32 size, u32 site) {
  for (address_t element = at; element + run.marked <= at + size; element += run.marked) {
    bool marked = buffer->cells[(element - buffer->start) >> buffer->shift].write_time >= buffer->first_valid;
    for (u32 i = 0; i < run.marked && marked; i += (u32)sizeof MARK)
      marked = !memcmp((void *)(element + i), &MARK, sizeof MARK);
    if (!marked) continue;
    Finding finding = describe_access(UNINITIALISED, buffer, (i64)(element - buffer->start), size, LOAD, site);
    finding.detail = COPIED_UNWRITTEN;
    add_finding(finding);
  }
}

static TC_COLD void check_read_slowly(const Buffer *buffer, Cell *cell, u32 size, u32 site) {
  bool written = cell->write_time >= buffer->first_valid;
  if (!written && noted_as_missing(buffer, cell)) return;
  if (!written || (cell->writer & (IS_PENDING | NEVER_WRITTEN))) {
    u64 offset = (u64)(cell - buffer->cells) << buffer->shift;
    Finding finding = describe_access(UNINITIALISED, buffer, (i64)offset, size, LOAD, site);
    if (written) finding.other_site = cell->write_site;
    finding.other = place_of(run.threads[cell->writer & THREAD_BITS]);
    if (written && !(cell->writer & IS_PENDING)) finding.detail = BROUGHT_UNWRITTEN;
    bool marked = !written && finding.buffer >= 0 && (1u << buffer->shift) >= sizeof MARK;
    if (marked) finding.detail = UNWRITTEN_UNLESS_COPY;
    add_finding(finding);
    if (!marked) return;
    mark_as_unwritten(buffer, cell);
    run.total_findings--;  // until Python knows whether it is a copy
    return;
  }
  if (other_block(buffer, cell->write_time, cell->writer)) {
    report_race(true, buffer, cell, size, LOAD, site, true);
  } else if (cell->write_time == run.now && !writes_before(cell)) {
    report_race(false, buffer, cell, size, LOAD, site, true);
  }
}

// Whether the reads of this interval that a cell remembers come before whatever the running thread does now.
static bool reads_before(const Cell *cell) {
  if (cell->reader & MANY_WARPS) return false;
  u32 thread = cell->reader & THREAD_BITS;
  if (!(cell->reader & MANY_THREADS)) return thread == run.self->index || ordered(thread, cell->read_clock);
  for (u32 lane = 0; lane < LANES; lane++) {
    u32 reader = thread / LANES * LANES + lane;
    if (cell->read_lanes >> lane & 1 && reader != run.self->index && !ordered(reader, cell->read_clock)) return false;
  }
  return true;
}

static TC_HOT void read_cell(const Buffer *buffer, Cell *cell, u32 size, u32 site) {
  const Thread &self = *run.self;
  u32 written = cell->write_time;
  bool settled = written >= buffer->first_valid && written < run.now &&
                 !(cell->writer & (IS_PENDING | NEVER_WRITTEN | MANY_BLOCKS)) &&
                 (written >= run.block_first || written < buffer->scope_first);
  if (TC_UNLIKELY(!settled) && !(written == run.now && cell->writer == self.index))
    check_read_slowly(buffer, cell, size, site);
  if (cell->read_time != run.now) {
    bool others = other_block(buffer, cell->read_time, cell->reader);
    cell->reader = (u16)(self.index | (others ? MANY_BLOCKS : 0));
    cell->read_time = run.now;
  } else {
    u32 thread = cell->reader & THREAD_BITS;
    if (thread != self.index || (cell->reader & MANY_THREADS)) {
      if (thread / LANES != self.warp) {
        cell->reader |= MANY_WARPS;
      } else if (run.synced && reads_before(cell)) {
        cell->reader = (u16)(self.index | (cell->reader & MANY_BLOCKS));
      } else {
        if (!(cell->reader & MANY_THREADS)) cell->read_lanes = 1u << thread % LANES;
        cell->read_lanes |= 1u << self.lane;
        cell->reader |= MANY_THREADS;
        if (cell->read_clock > self.clock) return;
      }
    }
  }
  cell->read_clock = self.clock;
  cell->read_site = site;
}

static TC_COLD void check_write_slowly(const Buffer *buffer, Cell *cell, u32 size, u32 access, u32 site) {
  bool both_atomic = access == ATOMIC && (cell->writer & IS_ATOMIC);
  if (cell->write_time >= buffer->scope_first && !both_atomic) {
    if (other_block(buffer, cell->write_time, cell->writer))
      report_race(true, buffer, cell, size, access, site, true);
    else if (cell->write_time == run.now && !writes_before(cell))
      report_race(false, buffer, cell, size, access, site, true);
  }
  if (cell->read_time >= buffer->scope_first) {
    if (other_block(buffer, cell->read_time, cell->reader))
      report_race(true, buffer, cell, size, access, site, false);
    else if (cell->read_time == run.now && !reads_before(cell))
      report_race(false, buffer, cell, size, access, site, false);
  }
}

// What is on its way may land before or after another write, whoever makes that, until its thread has waited.
static TC_COLD void check_pending(const Buffer *buffer, Cell *cell, u32 size, u32 access, u32 flags, u32 site) {
  bool own = (cell->writer & THREAD_BITS) == run.self->index;
  if (!(own && (flags & IS_LANDING)) && cell->write_time >= run.block_first)
    report_race(false, buffer, cell, size, access, site, true);
}

static TC_HOT void write_cell(const Buffer *buffer, Cell *cell, u32 size, u32 access, u32 flags, u32 site) {
  const Thread &self = *run.self;
  u32 who = self.index | (flags & ~IS_LANDING), clock = self.clock;
  if (TC_UNLIKELY(cell->writer & IS_PENDING) && cell->write_time >= buffer->scope_first)
    check_pending(buffer, cell, size, access, flags, site);
  if (TC_UNLIKELY(cell->write_time >= buffer->scope_first || cell->read_time >= buffer->scope_first)) {
    bool before = cell->write_time >= run.block_first && cell->write_time < run.now &&
                  (cell->read_time < buffer->scope_first ||
                   (cell->read_time >= run.block_first && cell->read_time < run.now)) &&
                  !((cell->writer | cell->reader) & MANY_BLOCKS);
    if (!before) check_write_slowly(buffer, cell, size, access, site);
    if (access == ATOMIC && (cell->writer & IS_ATOMIC)) {
      if (other_block(buffer, cell->write_time, cell->writer)) who |= MANY_BLOCKS;
      if (cell->write_time == run.now && ((cell->writer & (THREAD_BITS | MANY_THREADS)) != self.index)) {
        who |= MANY_THREADS | (cell->writer & MANY_WARPS);
        if ((cell->writer & THREAD_BITS) / LANES != self.warp) who |= MANY_WARPS;
        if (clock < cell->write_clock) clock = cell->write_clock;
      }
    }
  }
  if (access == ATOMIC && (cell->write_time < buffer->first_valid || (cell->writer & NEVER_WRITTEN)))
    check_read_slowly(buffer, cell, size, site);
  cell->write_time = run.now;
  cell->writer = (u16)who;
  cell->write_clock = clock;
  cell->write_fences = self.proxy_fences;
  cell->write_site = site;
}

// Reports an access that may not be carried out, and gives the block up.
static TC_COLD void refuse(u32 kind, const Buffer *buffer, address_t at, u32 size, u32 access, u32 site) {
  if (buffer == &run.outside) {
    // Name the tensor or variable that is nearest, if one is near.
    u64 best = 1ull << 20;
    for (u32 i = 0; i < run.settings.buffer_count + run.settings.variable_count; i++) {
      const Buffer *other = i < run.settings.buffer_count ? &run.settings.buffers[i]
                                                          : &run.settings.variables[i - run.settings.buffer_count];
      u64 distance = at < other->start ? other->start - at : at - (other->start + other->size);
      if (other->size && distance < best) {
        best = distance;
        buffer = other;
      }
    }
  }
  i64 offset = buffer == &run.outside ? (i64)at : (i64)(at - buffer->start);
  add_finding(describe_access(kind, buffer, offset, size, access, site));
  leave_block();
}

static TC_HOT bool on_stack(address_t at) { return at - (address_t)run.self->stack < run.settings.stack_bytes; }

static TC_HOT Buffer *find_buffer(address_t at) {
  u64 in_arena = at - run.settings.arena;
  if (TC_LIKELY(in_arena < run.settings.arena_bytes)) return run.chunks[in_arena >> run.settings.chunk_shift];
  u64 in_shared = at - run.settings.shared;
  if (TC_LIKELY(in_shared < run.settings.shared_bytes)) return run.words[in_shared >> 2];
  if (at - run.dynamic_start < run.dynamic_bytes) return &run.settings.variables[run.settings.variable_count - 1];
  return &run.outside;
}

static TC_COLD bool all_valid(const Buffer *buffer, u64 offset, u32 size) {
  for (u32 i = 0; i < size; i++)
    if (!buffer->valid[offset + i]) return false;
  return true;
}

// Checks one access; does not come back if it may not be carried out.  Null for what is not watched.
static TC_HOT Buffer *admit(address_t at, u32 size, u32 access, u32 site) {
  Buffer *buffer = find_buffer(at);
  u64 offset = at - buffer->start;
  if (TC_UNLIKELY(offset + size > buffer->size || offset >= buffer->size)) {
    if (on_stack(at)) {
      touch_registers(at, size, access, site);
      return nullptr;
    }
    refuse(OUT_OF_BOUNDS, buffer, at, size, access, site);
  }
  if (TC_UNLIKELY(at & (size - 1))) refuse(MISALIGNED, buffer, at, size, access, site);
  if (TC_UNLIKELY(buffer->valid != nullptr) && !all_valid(buffer, offset, size))
    refuse(OUT_OF_BOUNDS, buffer, at, size, access, site);
  if (TC_UNLIKELY(access != LOAD && buffer->role == INPUT))
    refuse(WRITE_TO_INPUT, buffer, at, size, access, site);
  if (TC_UNLIKELY(run.counting)) trace_access(buffer, at, size, access, site);
  return buffer;
}

static TC_HOT void load(address_t at, u32 size, u32 site) {
  const Buffer *buffer = admit(at, size, LOAD, site);
  if (!buffer || !buffer->cells) return;
  if (TC_UNLIKELY(run.chunks_filled) && read_filled(at, size, site)) return;
  if (TC_UNLIKELY(run.marked)) check_mark(buffer, at, size, site);
  Cell *cell = buffer->cells + ((at - buffer->start) >> buffer->shift);
  Cell *end = cell + (((size - 1) >> buffer->shift) + 1);
  for (; cell != end; cell++) read_cell(buffer, cell, size, site);
}

static TC_HOT void store(address_t at, u32 size, u32 access, u32 flags, u32 site) {
  Buffer *buffer = admit(at, size, access, site);
  if (!buffer) return;
  buffer->touched = 1;
  if (TC_UNLIKELY(run.chunks_filled)) store_over_filled(at, site);
  if (TC_UNLIKELY(run.products_under_way)) check_operands(buffer, at, size, access, site);
  Cell *cell = buffer->cells + ((at - buffer->start) >> buffer->shift);
  Cell *end = cell + (((size - 1) >> buffer->shift) + 1);
  for (; cell != end; cell++) write_cell(buffer, cell, size, access, flags, site);
}

// A struct that is no power of two long is taken word by word.
static void range(address_t at, u64 size, bool write, u32 site) {
  for (u64 done = 0; done < size;) {
    u32 step = (size - done) % 4 || at % 4 ? 1 : 4;
    if (write) store(at + done, step, STORE, 0, site);
    else load(at + done, step, site);
    done += step;
  }
}

// What of it nobody wrote, a bit for each byte, of 16 bytes at most that a copy to shared memory reads.
static u32 load_for_copy(address_t at, u32 size, u32 site) {
  run.copied_from = at;
  run.missing = 0;
  if (size & (size - 1)) range(at, size, false, site);
  else load(at, size, site);
  run.copied_from = 0;
  return run.missing & ((1u << size) - 1);
}

// The bytes of a copy that landed, of which some were never written.
static TC_COLD void mark_as_missing(const Copy &copy) {
  const Buffer *buffer = find_buffer(copy.shared);
  for (u32 i = 0; copy.missing >> i; i++) {
    if (!(copy.missing >> i & 1)) continue;
    Cell &cell = buffer->cells[(copy.shared + i - buffer->start) >> buffer->shift];
    cell.writer |= NEVER_WRITTEN;
    cell.write_site = copy.site;
  }
}

extern "C" {
#define TC_ACCESS(size)                                                                                  \
  void __tsan_read##size(void *at) { load((address_t)at, size, TC_CALLER); }                             \
  void __tsan_write##size(void *at) { store((address_t)at, size, STORE, 0, TC_CALLER); }
#define TC_UNALIGNED_ACCESS(size)                                                                        \
  void __tsan_unaligned_read##size(void *at) { load((address_t)at, size, TC_CALLER); }                   \
  void __tsan_unaligned_write##size(void *at) { store((address_t)at, size, STORE, 0, TC_CALLER); }
TC_ACCESS(1)
TC_ACCESS(2)
TC_ACCESS(4)
TC_ACCESS(8)
TC_ACCESS(16)
TC_UNALIGNED_ACCESS(2)
TC_UNALIGNED_ACCESS(4)
TC_UNALIGNED_ACCESS(8)
TC_UNALIGNED_ACCESS(16)
void __tsan_read_range(void *at, u64 size) { range((address_t)at, size, false, TC_CALLER); }
void __tsan_write_range(void *at, u64 size) { range((address_t)at, size, true, TC_CALLER); }
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}

// Subscripts of arrays of known size, shared or local: -fsanitize=bounds-strict.
struct UbsanPlace {
  const char *file;
  u32 line, column;
};
static TC_COLD void refuse_at(u32 kind, const UbsanPlace *where, i64 value, u32 site) {
  Finding finding = describe_access(kind, nullptr, value, 0, LOAD, site);
  finding.line = where->line;
  finding.column = where->column;
  add_finding(finding);
  leave_block();
}
void __ubsan_handle_out_of_bounds(void *data, address_t index) {
  refuse_at(OUT_OF_BOUNDS, (const UbsanPlace *)data, (i64)index, TC_CALLER);
}
void __ubsan_handle_divrem_overflow(void *data, address_t, address_t) {
  refuse_at(DIVISION_BY_ZERO, (const UbsanPlace *)data, 0, TC_CALLER);
}
}
