// The simulator's runtime, compiled once per machine and linked into every kernel.
#include "copies.hpp"
#include "counting.hpp"
#include "functions.hpp"
#include "warpgroups.hpp"

#define TC_API extern "C" __attribute__((visibility("default")))

extern "C" {
u32 tc_sim_thread_x() { return run.self->x; }
u32 tc_sim_thread_y() { return run.self->y; }
u32 tc_sim_thread_z() { return run.self->z; }
u32 tc_sim_block_x() { return run.block[0]; }
u32 tc_sim_block_y() { return run.block[1]; }
u32 tc_sim_block_z() { return run.block[2]; }
u32 tc_sim_block_extent(int axis) { return run.launch.block[axis]; }
u32 tc_sim_grid_extent(int axis) { return run.launch.grid[axis]; }
void tc_sim_executed(u32 line) {
  if (run.counting && line < run.settings.line_count) run.line_counts[line]++;
}
}

// Memory of zeros that costs nothing until it is touched; null if there is none.
static void *reserve(u64 bytes) {
  void *area = mmap(nullptr, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return area == MAP_FAILED ? nullptr : area;
}

static void give_up(void *area, u64 bytes) {
  if (area) munmap(area, bytes ? bytes : 1);
}

static u64 cell_bytes(const Buffer &b) { return ((b.size + (1ull << b.shift) - 1) >> b.shift) * sizeof(Cell); }
static u64 chunk_count() { return (run.settings.arena_bytes >> run.settings.chunk_shift) + 1; }
static u64 word_count() { return run.settings.shared_bytes / WORD + 1; }

static volatile u64 progress[2];

// Blocks of the kernel at work that have run, and how many there are to run; may be asked by another thread.
TC_API void tc_sim_progress(u64 *counts) {
  counts[0] = progress[0];
  counts[1] = progress[1];
}

TC_API void tc_sim_end() {
  for (u32 i = 0; i < run.settings.buffer_count; i++) {
    Buffer &b = run.settings.buffers[i];
    give_up(b.cells, cell_bytes(b));
    b.cells = nullptr;
  }
  for (u32 i = 0; i < run.settings.variable_count; i++) {
    Buffer &b = run.settings.variables[i];
    give_up(b.cells, cell_bytes(b));
    b.cells = nullptr;
  }
  give_up(run.chunks, chunk_count() * sizeof(Buffer *));
  give_up(run.words, word_count() * sizeof(Buffer *));
  give_up(stack_area, MOST_THREADS * run.settings.stack_bytes);
  give_up(register_times, MOST_THREADS * run.settings.stack_bytes);
  give_up(known_rows, MOST_THREADS * KNOWN * sizeof(u32));
  products.release();
  tensor_copies.release();
  readings.release();
  if (run.threads)
    for (u32 i = 0; i < MOST_THREADS; i++) {
      run.threads[i].copies.release();
      run.threads[i].busy.release();
      run.threads[i].trace.release();
    }
  give_up(run.threads, MOST_THREADS * sizeof(Thread));
  free(run.line_counts);
  run.block_starts.release();
  run.block_numbers.release();
  sites.release();
  site_table.release();
  grouped.release();
  occurrences.release();
  turns.release();
  free_stacks.release();
  stack_area = nullptr;
  register_times = nullptr;
  known_rows = nullptr;
  run = Run{};
}

// Gets ready for the kernels of one run.  False if there is not enough memory.
TC_API int tc_sim_begin(const Settings *settings) {
  run = Run{};
  run.settings = *settings;
  run.now = 1;
  run.random = settings->seed;
  run.chunks = (Buffer **)reserve(chunk_count() * sizeof(Buffer *));
  run.words = (Buffer **)reserve(word_count() * sizeof(Buffer *));
  stack_area = (u8 *)reserve(MOST_THREADS * settings->stack_bytes);
  register_times = (u32 *)reserve(MOST_THREADS * settings->stack_bytes);
  known_rows = (u32 *)reserve(MOST_THREADS * KNOWN * sizeof(u32));
  run.threads = (Thread *)reserve(MOST_THREADS * sizeof(Thread));
  run.line_counts = (u64 *)calloc(settings->line_count + 1, sizeof(u64));
  bool enough = run.chunks && run.words && stack_area && register_times && known_rows && run.threads && run.line_counts;
  run.outside.role = OUTSIDE;
  for (u64 i = 0; enough && i < chunk_count(); i++) run.chunks[i] = &run.outside;
  for (u64 i = 0; enough && i < word_count(); i++) run.words[i] = &run.outside;
  for (u32 i = 0; enough && i < settings->buffer_count; i++) {
    Buffer &b = settings->buffers[i];
    b.cells = b.role == INPUT ? nullptr : (Cell *)reserve(cell_bytes(b));
    enough = b.role == INPUT || b.cells;
    // Where blocks are left out, what they would have written is taken as there.
    b.first_valid = b.role == UNWRITTEN && settings->most_blocks == ALL_BLOCKS ? 1 : 0;
    u64 first = (b.start - settings->arena) >> settings->chunk_shift;
    u64 last = (b.start + (b.size ? b.size - 1 : 0) - settings->arena) >> settings->chunk_shift;
    for (u64 c = first; c <= last; c++) run.chunks[c] = &b;
  }
  for (u32 i = 0; enough && i < settings->variable_count; i++) {
    Buffer &b = settings->variables[i];
    bool dynamic = i + 1 == settings->variable_count;
    if (dynamic) b.start = (address_t)tc_sim_dynamic;
    u64 size = b.size;
    if (dynamic) b.size = DYNAMIC_BYTES;
    b.cells = (Cell *)reserve(cell_bytes(b));
    b.touched = 1;
    enough = b.cells != nullptr;
    if (dynamic) continue;
    b.size = size;
    for (u64 at = b.start; at < b.start + size; at += WORD) run.words[(at - settings->shared) / WORD] = &b;
  }
  if (!enough) tc_sim_end();
  return enough;
}

static void poison_shared() {
  for (u32 i = 0; i < run.settings.variable_count; i++) {
    Buffer &b = run.settings.variables[i];
    if (b.touched) memset((void *)b.start, 0xff, b.size);
    b.touched = 0;
    b.first_valid = b.scope_first = run.now;
  }
}

// Whether a block is one of so many that are spread evenly over the grid.
static bool chosen(u64 number, u64 wanted, u64 blocks) {
  return (number + 1) * wanted / blocks > number * wanted / blocks;
}

static u64 least(u64 a, u64 b) { return a < b ? a : b; }

static void set_up_threads() {
  const u32 *extent = run.launch.block;
  run.thread_count = extent[0] * extent[1] * extent[2];
  for (u32 i = 0; i < run.thread_count; i++) {
    Thread &t = run.threads[i];
    t.index = i;
    t.lane = i % LANES;
    t.warp = i / LANES;
    t.x = i % extent[0];
    t.y = i / extent[0] % extent[1];
    t.z = i / extent[0] / extent[1];
  }
}

// Runs one kernel, and not its remaining blocks once there is a finding that may make the others follow from it.
TC_API void tc_sim_launch(const Launch *launch) {
  run.launch = *launch;
  run.launch_first = run.now + 1;
  run.barriers = run.collectives = run.counted = 0;
  run.finding_count = 0;
  run.total_findings = 0;
  memset(run.line_counts, 0, (run.settings.line_count + 1) * sizeof(u64));
  run.block_starts.count = run.block_numbers.count = 0;
  for (u32 i = 0; i < run.settings.buffer_count; i++) run.settings.buffers[i].scope_first = run.launch_first;
  sites.count = 0;
  site_table.count = 0;
  set_up_threads();
  run.dynamic_start = (address_t)tc_sim_dynamic;
  run.dynamic_bytes = launch->shared_bytes;
  Buffer &dynamic = run.settings.variables[run.settings.variable_count - 1];
  dynamic.size = launch->shared_bytes;
  dynamic.touched = 1;
  u64 blocks = (u64)launch->grid[0] * launch->grid[1] * launch->grid[2];
  u64 wanted = least(run.settings.counted_blocks, blocks), simulated = least(run.settings.most_blocks, blocks);
  progress[1] = simulated;
  progress[0] = 0;
  Vector<u32> order;
  arrange(order, (u32)blocks);
  for (u64 i = 0; i < blocks && run.total_findings < MOST_COUNTED; i++) {
    u64 number = order[i];
    if (!chosen(number, simulated, blocks)) continue;
    run.block[0] = (u32)(number % launch->grid[0]);
    run.block[1] = (u32)(number / launch->grid[0] % launch->grid[1]);
    run.block[2] = (u32)(number / launch->grid[0] / launch->grid[1]);
    run.block_first = ++run.now;
    run.block_starts.push(run.now);
    run.block_numbers.push((u32)number);
    run.stopped = 0;
    run.counting = chosen(number, wanted, blocks);
    run.counted += run.counting;
    poison_shared();
    run_block();
    if (run.stopped && run.counting)
      for (u32 t = 0; t < run.thread_count; t++) run.threads[t].trace.count = 0;
    progress[0] = progress[0] + 1;
  }
  order.release();
}

TC_API u32 tc_sim_findings(const Finding **findings, u64 *total) {
  *findings = run.findings;
  *total = run.total_findings;
  return run.finding_count;
}

TC_API u32 tc_sim_counts(const Site **first, const u64 **lines, u64 *totals) {
  *first = sites.items;
  *lines = run.line_counts;
  totals[0] = run.counted;
  totals[1] = run.barriers;
  totals[2] = run.collectives;
  return (u32)sites.count;
}

// The first byte of a buffer that no kernel wrote, or -1.
TC_API i64 tc_sim_unwritten(u32 number) {
  const Buffer &b = run.settings.buffers[number];
  for (u64 at = 0; at < b.size; at += 1ull << b.shift)
    if (!b.cells[at >> b.shift].write_time && (!b.valid || b.valid[at])) return (i64)at;
  return -1;
}

// Where the image is loaded: sites count from here.
TC_API u64 tc_sim_base() { return (u64)(address_t)&__ehdr_start; }
