// What the parts of the runtime share: the structures that Python fills in, the threads of a block, and the findings.
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef int16_t i16;
typedef uint32_t u32;
typedef int32_t i32;
typedef uint64_t u64;
typedef int64_t i64;
typedef uintptr_t address_t;

#define TC_HOT inline __attribute__((always_inline))
#define TC_COLD __attribute__((noinline, cold))
#define TC_LIKELY(x) __builtin_expect(!!(x), 1)
#define TC_UNLIKELY(x) __builtin_expect(!!(x), 0)

enum Kind : u32 {  // the order of FindingKind in report.py
  OUT_OF_BOUNDS,
  MISALIGNED,
  UNINITIALISED,
  RACE,
  BLOCK_RACE,
  WRITE_TO_INPUT,
  DIVERGENT_BARRIER,
  DIVERGENT_WARP,
  DIVISION_BY_ZERO,
  UNWRITTEN_OUTPUT,  // found by Python
  UNFENCED_REGISTERS,
  REGISTERS_IN_FLIGHT,
  UNFENCED_MEMORY,
  BAD_DESCRIPTOR,
  DEADLOCK,
  COPY_LEFT,
};

// What an uninitialised read is, as in findings.py: one before a copy is waited for, or of what nobody wrote and a copy
// brought there, asynchronously or through registers; or it is none if it is such a copy itself.
enum Unwritten : u32 { UNWRITTEN_OR_PENDING, BROUGHT_UNWRITTEN, COPIED_UNWRITTEN, UNWRITTEN_UNLESS_COPY };

enum Access : u32 { LOAD, STORE, ATOMIC };

enum Role : u32 { INPUT, UNWRITTEN, WRITTEN, SHARED, OUTSIDE };

// The last accesses to one granule of memory.  Times are numbers of barrier intervals, unique within a run: 0 is never,
// 1 is before the first kernel.
struct Cell {
  u32 write_time;
  u32 write_clock;
  u32 write_site;
  u32 read_time;
  u32 read_clock;
  u32 read_site;
  u32 read_lanes;
  u32 write_fences;  // how many proxy fences the writer had passed
  u16 writer;
  u16 reader;
};

struct Buffer {  // a tensor, a temporary, the report or a shared variable; as in ffi.py
  address_t start;
  u64 size;
  Cell *cells;      // one per granule; null for inputs
  const u8 *valid;  // one per byte, null where all bytes are elements
  u32 shift;        // log2 of the granule's bytes
  u32 role;
  u32 first_valid;  // what was written earlier than this is not there
  u32 scope_first;  // what was accessed earlier than this came before: the kernel's start, or a shared variable's block
  u32 touched;      // shared: written since it was last poisoned
};

struct Settings {  // as in ffi.py
  address_t arena;
  u64 arena_bytes;
  Buffer *buffers;
  u32 buffer_count;
  u32 chunk_shift;
  address_t shared;
  u64 shared_bytes;
  Buffer *variables;  // the last is the dynamic shared memory
  u32 variable_count;
  u32 order;  // 0 forward, 1 reverse, 2 random
  u64 seed;
  u64 stack_bytes;
  u32 counted_blocks;
  u32 line_count;
  u32 most_blocks;  // of a kernel; the others do not run
};

struct Launch {  // as in ffi.py
  address_t kernel;
  const u64 *arguments;
  u32 argument_count;
  u32 grid[3];
  u32 block[3];
  u32 shared_bytes;
};

struct Place {
  u32 block[3];
  u32 thread[3];
};

struct Finding {  // as in ffi.py
  u32 kind;
  u32 access;
  i32 buffer;  // number of a buffer, -1 - number of a shared variable, or NO_BUFFER
  u32 size;
  i64 offset;
  u32 site;
  u32 line;  // where known without the site, else 0
  u32 column;
  u32 other_site;
  Place place;
  Place other;
  u32 detail;
  u32 mask;
  u64 count;
};

static const i32 NO_BUFFER = INT32_MIN;
static const u32 MOST_FINDINGS = 64;
static const u64 MOST_COUNTED = 1 << 16;
static const u32 ALL_BLOCKS = ~0u;
static const u32 LANES = 32;
static const u32 MOST_THREADS = 1024;

struct Copy {  // an asynchronous copy on its way
  address_t shared;
  u8 bytes[16];
  u32 size;
  u32 group;
  u32 site;
  u32 missing;  // a bit for each byte that nobody wrote
};

struct TraceEntry {
  u64 address;
  u32 site;
  u16 buffer;
  u8 size;
  u8 access;
};

template <class T>
struct Vector {
  T *items = nullptr;
  u64 count = 0;
  u64 room = 0;
  T &operator[](u64 i) const { return items[i]; }
  TC_HOT void push(const T &item) {
    if (TC_UNLIKELY(count == room)) grow();
    items[count++] = item;
  }
  TC_COLD void grow() {
    room = room ? 2 * room : 64;
    items = (T *)realloc((void *)items, room * sizeof(T));
    if (!items) abort();
  }
  void release() {
    free((void *)items);
    items = nullptr;
    count = room = 0;
  }
};

struct Registers {  // of a thread, that products under way read and write
  address_t start;
  u64 bytes;
  u32 group;
  u32 site;
};

enum ThreadState : u32 { FRESH, READY, AT_BARRIER, AT_COLLECTIVE, AT_ACTIVE_MASK, AT_ARRIVALS, FINISHED };

struct Thread {
  void *stack_pointer;
  u8 *stack;
  u32 index;
  u32 x, y, z;
  u32 state;
  u32 lane;
  u32 warp;
  u32 site;         // of the barrier or collective that it waits at
  u32 return_site;
  u32 kind;
  u32 mask;
  i32 operand;
  i32 width;
  u64 bits;
  u32 clock;        // warp barriers passed in this interval
  u32 seen[LANES];  // the clocks of the warp's lanes up to which their accesses come before this thread's
  u32 copy_group;
  Vector<Copy> copies;
  Vector<TraceEntry> trace;
  u32 registers_fenced;  // when this thread last fenced its registers, 0 for never
  u32 proxy_fences;      // how many proxy fences it has passed, and how many of them before the last barrier
  u32 proxy_settled;
  u32 product_group;     // groups of products that it has closed
  Vector<Registers> busy;
};

struct Run {
  Settings settings;
  Launch launch;
  Buffer **chunks;     // which buffer a chunk of the arena belongs to, never null
  Buffer **words;      // which variable each four bytes of the shared section belong to, never null
  Buffer outside;
  address_t dynamic_start;
  u64 dynamic_bytes;
  u32 now;             // the barrier interval
  u32 block_first;     // the first interval of this block
  u32 launch_first;    // the first interval of this kernel
  u32 counting;        // this block's accesses are traced
  u32 stopped;         // this block is given up
  u32 synced;          // a warp barrier was passed in this interval
  u32 block[3];
  u32 thread_count;
  Thread *threads;
  Thread *self;
  void *scheduler;
  u32 finding_count;
  u64 total_findings;
  Finding findings[MOST_FINDINGS];
  Vector<u32> block_starts;  // first intervals of the blocks of this kernel, in the order of running
  Vector<u32> block_numbers;
  u64 random;
  u32 register_fences;   // of all threads; times for registers
  u32 products_under_way;
  u32 barrier_count;     // of this block, in shared memory
  u32 chunks_filled;     // whether a tensor copy filled some of its memory
  address_t copied_from; // while a copy to shared memory reads: from here, else 0
  u32 missing;           // a bit for each byte that it found, and nobody wrote
  u32 marked;            // bytes of the smallest element that was marked as never written, 0 for none
  u64 barriers;
  u64 collectives;
  u64 counted;
  u64 *line_counts;
};

static Run run;
static u8 *stack_area;  // of all threads

extern "C" const char __ehdr_start __attribute__((visibility("hidden")));

#define TC_CALLER ((u32)((address_t)__builtin_return_address(0) - (address_t)&__ehdr_start))

static u64 next_random() {
  u64 z = run.random += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

static Place place_of(const Thread &thread) {
  return {{run.block[0], run.block[1], run.block[2]}, {thread.x, thread.y, thread.z}};
}

static i32 number_of(const Buffer *buffer) {
  if (buffer >= run.settings.buffers && buffer < run.settings.buffers + run.settings.buffer_count)
    return (i32)(buffer - run.settings.buffers);
  if (buffer >= run.settings.variables && buffer < run.settings.variables + run.settings.variable_count)
    return -1 - (i32)(buffer - run.settings.variables);
  return NO_BUFFER;
}

// Keeps the first finding of a kind at a place of the text, and counts the others.
static TC_COLD void add_finding(const Finding &finding) {
  run.total_findings++;
  for (u32 i = 0; i < run.finding_count; i++) {
    Finding &known = run.findings[i];
    if (known.kind == finding.kind && known.site == finding.site && known.buffer == finding.buffer &&
        known.line == finding.line) {
      known.count++;
      return;
    }
  }
  if (run.finding_count == MOST_FINDINGS) return;
  run.findings[run.finding_count] = finding;
  run.findings[run.finding_count++].count = 1;
}
