// Counts what a warp's accesses cost.  The accesses of a warp's lanes are taken together as one request if they have the
// same place in the text and are each lane's n-th there in the barrier interval.
#pragma once

#include "threads.hpp"

struct Site {  // as in ffi.py
  u32 site;
  i32 buffer;
  u32 size;
  u32 access;
  u64 requests;
  u64 lanes;
  u64 sectors;           // global: pieces of 32 bytes touched, summed over requests
  u64 ideal_sectors;     // the fewest that could hold the distinct bytes
  u64 wavefronts;        // shared: passes over the banks
  u64 ideal_wavefronts;  // one for 128 bytes worth of lanes
};

static const u32 SECTOR = 32, BANKS = 32, WORD = 4;

static Vector<Site> sites;
static Vector<i32> site_table;  // open addressing; the length is a power of two

static u64 site_hash(const TraceEntry &e) {
  u64 h = ((u64)e.site << 24) ^ ((u64)e.buffer << 8) ^ ((u64)e.size << 2) ^ e.access;
  h *= 0x9e3779b97f4a7c15ull;
  return h ^ (h >> 32);
}

static i32 buffer_of(const TraceEntry &e) { return (i32)(i16)e.buffer; }

static void fill_site_table(u64 length) {
  site_table.count = 0;
  for (u64 i = 0; i < length; i++) site_table.push(-1);
  for (u64 s = 0; s < sites.count; s++) {
    const Site &site = sites[s];
    TraceEntry e = {0, site.site, (u16)(i16)site.buffer, (u8)site.size, (u8)site.access};
    u64 at = site_hash(e) & (length - 1);
    while (site_table[at] >= 0) at = (at + 1) & (length - 1);
    site_table[at] = (i32)s;
  }
}

static u32 site_of(const TraceEntry &e) {
  if (2 * (sites.count + 1) > site_table.count) fill_site_table(site_table.count ? 2 * site_table.count : 256);
  u64 mask = site_table.count - 1;
  for (u64 at = site_hash(e) & mask;; at = (at + 1) & mask) {
    i32 number = site_table[at];
    if (number < 0) {
      Site site = {};
      site.site = e.site;
      site.buffer = buffer_of(e);
      site.size = e.size;
      site.access = e.access;
      site_table[at] = (i32)sites.count;
      sites.push(site);
      return (u32)sites.count - 1;
    }
    const Site &site = sites[(u64)number];
    if (site.site == e.site && site.buffer == buffer_of(e) && site.size == e.size && site.access == e.access)
      return (u32)number;
  }
}

static void trace_access(const Buffer *buffer, address_t at, u32 size, u32 access, u32 site) {
  run.self->trace.push({at, site, (u16)(i16)number_of(buffer), (u8)size, (u8)access});
}

// Sorts a few numbers and drops repetitions; returns how many are left.
static u32 distinct(u64 *values, u32 count) {
  bool sorted = true;
  for (u32 i = 1; i < count && sorted; i++) sorted = values[i - 1] <= values[i];
  for (u32 i = 1; i < count && !sorted; i++) {
    u64 value = values[i];
    u32 j = i;
    for (; j > 0 && values[j - 1] > value; j--) values[j] = values[j - 1];
    values[j] = value;
  }
  u32 kept = 0;
  for (u32 i = 0; i < count; i++)
    if (!kept || values[kept - 1] != values[i]) values[kept++] = values[i];
  return kept;
}

static void count_global(Site &site, u64 *at, u32 count) {
  u64 sectors[2 * LANES], bytes = 0, end = 0;
  u32 touched = 0;
  count = distinct(at, count);
  for (u32 i = 0; i < count; i++) {
    u64 first = at[i] / SECTOR, last = (at[i] + site.size - 1) / SECTOR;
    if (!touched || sectors[touched - 1] != first) sectors[touched++] = first;
    if (last != first) sectors[touched++] = last;
    u64 from = at[i] > end ? at[i] : end;
    end = at[i] + site.size;
    bytes += end - from;
  }
  site.sectors += touched;
  site.ideal_sectors += (bytes + SECTOR - 1) / SECTOR;
}

// 8-byte accesses are served for half a warp at a time and 16-byte accesses for a quarter.
static void count_shared(Site &site, const u64 *at, const u8 *lane, u32 count) {
  u32 share = site.size <= WORD ? LANES : LANES * WORD / site.size, words = site.size <= WORD ? 1 : site.size / WORD;
  for (u32 i = 0; i < count;) {
    u64 touched[LANES * 4];
    u32 filled = 0, part = lane[i] / share;
    for (; i < count && lane[i] / share == part; i++)
      for (u32 w = 0; w < words; w++) touched[filled++] = at[i] / WORD + w;
    filled = distinct(touched, filled);
    u32 used[BANKS] = {}, most = 0;
    for (u32 w = 0; w < filled; w++) {
      u32 depth = ++used[touched[w] % BANKS];
      most = depth > most ? depth : most;
    }
    site.wavefronts += most;
    site.ideal_wavefronts++;
  }
}

static void count_request(u32 number, u64 *at, const u8 *lane, u32 count) {
  Site &site = sites[number];
  site.requests++;
  site.lanes += count;
  if (site.buffer >= 0) count_global(site, at, count);
  else count_shared(site, at, lane, count);
}

struct Grouped {
  u64 key;  // site, then occurrence, then lane
  u64 address;
};

static int compare_grouped(const void *a, const void *b) {
  u64 x = ((const Grouped *)a)->key, y = ((const Grouped *)b)->key;
  return x < y ? -1 : x > y;
}

static Vector<Grouped> grouped;
static Vector<u32> occurrences;

// Lanes that went different ways.
static void flush_diverged(u32 first, u32 end) {
  grouped.count = 0;
  for (u32 t = first; t < end; t++) {
    Thread &thread = run.threads[t];
    occurrences.count = 0;
    for (u64 i = 0; i < thread.trace.count; i++) {
      u32 site = site_of(thread.trace[i]);
      while (occurrences.count <= site) occurrences.push(0);
      u64 key = (u64)site << 40 | (u64)occurrences[site]++ << 5 | thread.lane;
      grouped.push({key, thread.trace[i].address});
    }
  }
  qsort(grouped.items, grouped.count, sizeof(Grouped), compare_grouped);
  for (u64 i = 0; i < grouped.count;) {
    u64 at[LANES], group = grouped[i].key >> 5;
    u8 lane[LANES];
    u32 count = 0;
    for (; i < grouped.count && grouped[i].key >> 5 == group; i++) {
      lane[count] = (u8)(grouped[i].key & 31);
      at[count++] = grouped[i].address;
    }
    count_request((u32)(group >> 35), at, lane, count);
  }
}

static bool same_way(const Vector<TraceEntry> &a, const Vector<TraceEntry> &b) {
  if (a.count != b.count) return false;
  for (u64 i = 0; i < a.count; i++) {
    const TraceEntry &x = a.items[i], &y = b.items[i];
    if (x.site != y.site || x.buffer != y.buffer || x.size != y.size || x.access != y.access) return false;
  }
  return true;
}

static void flush_warp(u32 first, u32 end) {
  const Thread *leader = nullptr;
  bool together = true;
  u8 lane[LANES];
  u32 count = 0;
  for (u32 t = first; t < end && together; t++) {
    const Thread &thread = run.threads[t];
    if (!thread.trace.count) continue;
    if (!leader) leader = &thread;
    together = same_way(leader->trace, thread.trace);
    lane[count++] = (u8)thread.lane;
  }
  if (!together) {
    flush_diverged(first, end);
  } else if (leader) {
    for (u64 i = 0; i < leader->trace.count; i++) {
      u64 at[LANES];
      for (u32 c = 0; c < count; c++) at[c] = run.threads[first + lane[c]].trace[i].address;
      count_request(site_of(leader->trace[i]), at, lane, count);
    }
  }
  for (u32 t = first; t < end; t++) run.threads[t].trace.count = 0;
}

static void flush_traces() {
  for (u32 first = 0; first < run.thread_count; first += LANES)
    flush_warp(first, first + LANES < run.thread_count ? first + LANES : run.thread_count);
}
