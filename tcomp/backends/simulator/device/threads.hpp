// The threads of a block: fibers of one system thread, switched only at barriers and warp collectives.
#pragma once

#include "arrivals.hpp"
#include "matrices.hpp"

#if defined(__x86_64__) && !defined(TC_PORTABLE_SWITCH)
extern "C" void tc_sim_switch(void **from, void *to) __attribute__((visibility("hidden")));
// Saves the registers that a call must keep, on the old stack, and takes them from the new one.
__asm__(
    ".text\n.hidden tc_sim_switch\n.globl tc_sim_switch\n.type tc_sim_switch,@function\ntc_sim_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n  ret\n"
    ".size tc_sim_switch,.-tc_sim_switch\n");

static void *first_frame(u8 *stack, u64 bytes, void (*entry)()) {
  void **top = (void **)(stack + bytes) - 3;  // so that the stack is aligned as after a call
  *--top = (void *)entry;
  top -= 6;
  memset((void *)top, 0, 6 * sizeof(void *));
  return (void *)top;
}
#else
#include <ucontext.h>

static void tc_sim_switch(void **from, void *to) {
  ucontext_t here;
  *from = &here;
  swapcontext(&here, (ucontext_t *)to);
}

static void *first_frame(u8 *stack, u64 bytes, void (*entry)()) {
  ucontext_t *context = (ucontext_t *)stack;  // lives at the far end of the stack that it describes
  getcontext(context);
  context->uc_stack.ss_sp = stack + sizeof(ucontext_t);
  context->uc_stack.ss_size = bytes - sizeof(ucontext_t);
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
  return context;
}
#endif

static const u64 STAGGER = 1088;  // bytes between the tops of stacks, so that they do not share cache sets
static Vector<u32> free_stacks;

static void call_kernel() {
  const u64 *a = run.launch.arguments;  // as many as there are, and zeros up to 64
  typedef u64 V;
#define TC_4(i) a[i], a[i + 1], a[i + 2], a[i + 3]
#define TC_V4 V, V, V, V
  if (run.launch.argument_count <= 6)
    ((void (*)(V, V, V, V, V, V))run.launch.kernel)(a[0], a[1], a[2], a[3], a[4], a[5]);
  else if (run.launch.argument_count <= 16)
    ((void (*)(TC_V4, TC_V4, TC_V4, TC_V4))run.launch.kernel)(TC_4(0), TC_4(4), TC_4(8), TC_4(12));
  else
    ((void (*)(TC_V4, TC_V4, TC_V4, TC_V4, TC_V4, TC_V4, TC_V4, TC_V4, TC_V4, TC_V4, TC_V4, TC_V4, TC_V4, TC_V4, TC_V4,
               TC_V4))run.launch.kernel)(TC_4(0), TC_4(4), TC_4(8), TC_4(12), TC_4(16), TC_4(20), TC_4(24), TC_4(28),
                                         TC_4(32), TC_4(36), TC_4(40), TC_4(44), TC_4(48), TC_4(52), TC_4(56),
                                         TC_4(60));
#undef TC_4
#undef TC_V4
}

static void wait_for_turn() { tc_sim_switch(&run.self->stack_pointer, run.scheduler); }

static void leave_block() {
  run.stopped = 1;
  wait_for_turn();
  __builtin_unreachable();
}

static void thread_main() {
  call_kernel();
  run.self->state = FINISHED;
  wait_for_turn();
}

static TC_COLD void report_thread(u32 kind, const Thread &thread, u32 detail, u32 mask, const Thread *other) {
  Finding finding = {};
  finding.kind = kind;
  finding.buffer = NO_BUFFER;
  finding.site = thread.return_site;
  finding.place = place_of(thread);
  finding.detail = detail;
  finding.mask = mask;
  if (other) {
    finding.other = place_of(*other);
    finding.other_site = other->state == FINISHED ? 0 : other->return_site;
  }
  add_finding(finding);
}

// Warp collectives -----------------------------------------------------------------------------------------------

enum Collective : u32 {  // as in cuda.hpp
  SYNC, SHUFFLE, SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_XOR, BALLOT, LDMATRIX, LDMATRIX_TURNED, MMA, WARPGROUP = 64
};

enum WarpFault : u32 { NOT_IN_MASK, LANE_RETURNED, LANE_ELSEWHERE, MASKS_DIFFER, SOURCE_ABSENT };  // as in report.py

static Thread *lane_of(u32 warp, u32 lane) {
  u32 index = warp * LANES + lane;
  return index < run.thread_count ? &run.threads[index] : nullptr;
}

static u32 existing_lanes(u32 warp) {
  u32 left = run.thread_count - warp * LANES;
  return left >= LANES ? 0xffffffffu : (1u << left) - 1;
}

// The lane that a shuffle reads, as the PTX manual defines it for a warp in segments of `width` lanes.
static u32 source_lane(const Thread &t) {
  i32 lane = (i32)t.lane, width = t.width, first = lane & -width, last = first | (width - 1), source = lane;
  switch (t.kind) {
    case SHUFFLE: return (u32)(first | (t.operand & (width - 1)));
    case SHUFFLE_UP: source = lane - t.operand; return (u32)(source < first ? lane : source);
    case SHUFFLE_DOWN: source = lane + t.operand; return (u32)(source > last ? lane : source);
    default: source = lane ^ t.operand; return (u32)(source > last ? lane : source);
  }
}

static void join_clocks(u32 warp, u32 lanes) {
  u32 joint[LANES] = {};
  for (u32 l = 0; l < LANES; l++)
    if (lanes >> l & 1) {
      Thread &t = *lane_of(warp, l);
      t.seen[l] = ++t.clock;
      for (u32 i = 0; i < LANES; i++) joint[i] = joint[i] > t.seen[i] ? joint[i] : t.seen[i];
    }
  for (u32 l = 0; l < LANES; l++)
    if (lanes >> l & 1) memcpy(lane_of(warp, l)->seen, joint, sizeof joint);
  share_knowledge(warp, lanes);
  run.synced = 1;
}

// Carries out what all lanes of a warp do with matrices.  False if the warp is not whole.
static bool carry_out_matrices(u32 warp, u32 lanes, u32 kind) {
  if (lanes != 0xffffffffu) {
    report_thread(DIVERGENT_WARP, *lane_of(warp, (u32)__builtin_ctz(lanes)), LANE_RETURNED, lanes, nullptr);
    return false;
  }
  Parts of[LANES];
  for (u32 l = 0; l < LANES; l++) of[l] = *(const Parts *)lane_of(warp, l)->bits;
  if (kind == LDMATRIX || kind == LDMATRIX_TURNED)
    fetch_matrices(of, kind == LDMATRIX_TURNED);
  else
    multiply_matrices(of, (MatrixKind)(kind - MMA));
  for (u32 l = 0; l < LANES; l++) lane_of(warp, l)->state = READY;
  if (run.counting) run.collectives++;
  return true;
}

// Carries out the collective that all of `lanes` have come to.  False if it is not a proper one.
static bool carry_out(u32 warp, u32 lanes) {
  u64 values[LANES] = {};
  u32 votes = 0;
  for (u32 l = 0; l < LANES; l++)
    if (lanes >> l & 1) {
      values[l] = lane_of(warp, l)->bits;
      votes |= values[l] ? 1u << l : 0;
    }
  const Thread &first = *lane_of(warp, (u32)__builtin_ctz(lanes));
  if (first.kind >= LDMATRIX) return carry_out_matrices(warp, lanes, first.kind);
  if (first.kind == SYNC) join_clocks(warp, lanes);
  for (u32 l = 0; l < LANES; l++) {
    if (!(lanes >> l & 1)) continue;
    Thread &t = *lane_of(warp, l);
    if (t.kind == BALLOT) {
      t.bits = votes;
    } else if (t.kind != SYNC) {
      u32 source = source_lane(t);
      if (!(lanes >> source & 1)) {
        report_thread(DIVERGENT_WARP, t, SOURCE_ABSENT, 1u << source, nullptr);
        return false;
      }
      t.bits = values[source];
    }
    t.state = READY;
  }
  if (run.counting) run.collectives++;
  return true;
}

extern "C" u64 tc_sim_collective(int kind, u32 mask, u64 bits, int operand, int width, int site) {
  Thread &self = *run.self;
  self.return_site = TC_CALLER;
  self.site = (u32)site;
  self.kind = (u32)kind;
  self.mask = mask;
  self.bits = bits;
  self.operand = operand;
  self.width = width;
  if (!(mask >> self.lane & 1)) {
    report_thread(DIVERGENT_WARP, self, NOT_IN_MASK, mask, nullptr);
    leave_block();
  }
  self.state = AT_COLLECTIVE;
  u32 wanted = mask & existing_lanes(self.warp);
  for (u32 left = wanted; left; left &= left - 1) {
    const Thread &t = *lane_of(self.warp, (u32)__builtin_ctz(left));
    if (t.state != AT_COLLECTIVE || t.kind != self.kind || t.site != self.site || t.mask != mask) {
      wait_for_turn();
      return self.bits;
    }
  }
  if (!carry_out(self.warp, wanted)) leave_block();
  return self.bits;
}

extern "C" u32 tc_sim_active_lanes(int site) {
  Thread &self = *run.self;
  self.return_site = TC_CALLER;
  self.site = (u32)site;
  self.state = AT_ACTIVE_MASK;
  wait_for_turn();
  return (u32)self.bits;
}

// Lanes that ask which lanes are active are those of the warp that ask at the same place once nobody can go on.
static bool answer_active_lanes() {
  bool any = false;
  for (u32 i = 0; i < run.thread_count; i++) {
    Thread &t = run.threads[i];
    if (t.state != AT_ACTIVE_MASK) continue;
    any = true;
    u32 lanes = 0;
    for (u32 l = 0; l < LANES; l++) {
      const Thread *other = lane_of(t.warp, l);
      if (other && other->state == AT_ACTIVE_MASK && other->site == t.site) lanes |= 1u << l;
    }
    for (u32 l = 0; l < LANES; l++)
      if (lanes >> l & 1) {
        lane_of(t.warp, l)->bits = lanes;
        lane_of(t.warp, l)->state = READY;
      }
  }
  return any;
}

// Block barriers -------------------------------------------------------------------------------------------------

extern "C" void tc_sim_barrier(int site) {
  Thread &self = *run.self;
  self.return_site = TC_CALLER;
  self.site = (u32)site;
  self.state = AT_BARRIER;
  wait_for_turn();
}

static void flush_traces();
static void settle_fences();
static void report_stuck_warpgroup(const Thread &t);
static void forget_products();

static void next_interval() {
  if (run.counting) flush_traces();
  run.now++;
  if (run.synced)
    for (u32 i = 0; i < run.thread_count; i++) {
      run.threads[i].clock = 0;
      memset(run.threads[i].seen, 0, sizeof run.threads[i].seen);
    }
  run.synced = 0;
  meet_in_block();
  settle_fences();
}

// Says why a lane waits at a collective for ever.
static void report_stuck_lane(const Thread &t) {
  if (t.kind == WARPGROUP) return report_stuck_warpgroup(t);
  for (u32 left = t.mask & existing_lanes(t.warp); left; left &= left - 1) {
    const Thread &other = *lane_of(t.warp, (u32)__builtin_ctz(left));
    if (other.state == FINISHED) return report_thread(DIVERGENT_WARP, t, LANE_RETURNED, t.mask, &other);
    if (other.state != AT_COLLECTIVE || other.kind != t.kind || other.site != t.site)
      return report_thread(DIVERGENT_WARP, t, LANE_ELSEWHERE, t.mask, &other);
    if (other.mask != t.mask) return report_thread(DIVERGENT_WARP, t, MASKS_DIFFER, t.mask, &other);
  }
}

// Nobody can go on: lets all through the barrier that all are at, or says what keeps them apart.  False at the end.
static bool release() {
  if (land_one() || answer_active_lanes()) return true;
  const Thread *waiting = nullptr, *stuck = nullptr, *apart = nullptr, *late = nullptr;
  for (u32 i = 0; i < run.thread_count; i++) {
    const Thread &t = run.threads[i];
    if (t.state == AT_BARRIER && !waiting) waiting = &t;
    if (t.state == AT_COLLECTIVE && !stuck) stuck = &t;
    if (t.state == AT_ARRIVALS && !late) late = &t;
  }
  if (stuck) {
    report_stuck_lane(*stuck);
    run.stopped = 1;
    return false;
  }
  if (late) {
    report_deadlock(*late);
    run.stopped = 1;
    return false;
  }
  if (!waiting) return false;
  for (u32 i = 0; i < run.thread_count && !apart; i++) {
    const Thread &t = run.threads[i];
    if (t.state != AT_BARRIER || t.site != waiting->site) apart = &t;
  }
  if (apart) {
    report_thread(DIVERGENT_BARRIER, *waiting, apart->state == FINISHED, 0, apart);
    run.stopped = 1;
    return false;
  }
  next_interval();
  if (run.counting) run.barriers++;
  for (u32 i = 0; i < run.thread_count; i++) run.threads[i].state = READY;
  return true;
}

// The block ------------------------------------------------------------------------------------------------------

static Vector<u32> turns;

static void arrange(Vector<u32> &order, u32 count) {
  order.count = 0;
  for (u32 i = 0; i < count; i++) order.push(run.settings.order == 1 ? count - 1 - i : i);
  if (run.settings.order == 2)
    for (u32 i = count; i > 1; i--) {
      u32 j = (u32)(next_random() % i), kept = order[i - 1];
      order[i - 1] = order[j];
      order[j] = kept;
    }
}

static void give_turn(Thread &t) {
  run.self = &t;
  if (t.state == FRESH) {
    u32 number = free_stacks[--free_stacks.count];
    t.stack = stack_area + number * run.settings.stack_bytes;
    u64 lowered = (number * STAGGER) % 16384 & ~63ull;
    t.stack_pointer = first_frame(t.stack, run.settings.stack_bytes - lowered, thread_main);
    t.state = READY;
  }
  tc_sim_switch(&run.scheduler, t.stack_pointer);
  if (t.state == FINISHED) {
    free_stacks.push((u32)((t.stack - stack_area) / run.settings.stack_bytes));
    t.stack = nullptr;
  }
}

static void prepare_threads() {
  for (u32 i = 0; i < run.thread_count; i++) {
    Thread &t = run.threads[i];
    t.state = FRESH;
    t.clock = 0;
    t.copies.count = 0;
    t.copy_group = 0;
    memset(t.seen, 0, sizeof t.seen);
    t.registers_fenced = t.proxy_fences = t.proxy_settled = t.product_group = 0;
    t.busy.count = 0;
  }
  forget_products();
  forget_arrivals();
  free_stacks.count = 0;
  for (u32 i = run.thread_count; i > 0; i--) free_stacks.push(i - 1);
}

static void run_block() {
  prepare_threads();
  arrange(turns, run.thread_count);
  for (;;) {
    u32 moved = 0;
    for (u32 i = 0; i < run.thread_count; i++) {
      Thread &t = run.threads[turns[i]];
      if (t.state > READY) continue;
      moved++;
      give_turn(t);
      if (run.stopped) return;
    }
    if (moved) continue;
    u32 before = run.now;
    if (!release()) break;
    if (run.settings.order == 2 && run.now != before) arrange(turns, run.thread_count);
  }
  if (run.stopped) return;
  report_copies_left();
  next_interval();
}
