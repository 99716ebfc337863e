// Registers of a thread that products of its warpgroup use: arrays on its stack whose address the text gave away, so that
// accesses to them are seen.
#pragma once

#include "state.hpp"

static u32 *register_times;  // for each word of all stacks: how many fences of registers there were when it was touched

static TC_COLD Finding describe_access(u32 kind, const Buffer *buffer, i64 offset, u32 size, u32 access, u32 site) {
  Finding finding = {};
  finding.kind = kind;
  finding.access = access;
  finding.buffer = number_of(buffer);
  finding.size = size;
  finding.offset = offset;
  finding.site = site;
  finding.place = place_of(*run.self);
  return finding;
}

static TC_COLD void check_busy(address_t at, u32 size, u32 access, u32 site) {
  const Thread &self = *run.self;
  for (u64 i = 0; i < self.busy.count; i++) {
    const Registers &used = self.busy[i];
    if (at >= used.start + used.bytes || used.start >= at + size) continue;
    Finding finding = describe_access(REGISTERS_IN_FLIGHT, nullptr, (i64)(at - used.start), size, access, site);
    finding.other = finding.place;
    finding.other_site = used.site;
    return add_finding(finding);
  }
}

static TC_HOT u32 *times_of(address_t at) { return register_times + ((at - (address_t)stack_area) >> 2); }

static TC_HOT void touch_registers(address_t at, u32 size, u32 access, u32 site) {
  for (u32 *time = times_of(at), *end = times_of(at + size - 1); time <= end; time++) *time = run.register_fences;
  if (TC_UNLIKELY(run.self->busy.count)) check_busy(at, size, access, site);
}
