/* The rules of gmlake_bfc.h, built with the structures that torch's native allocator uses for them.
   bench.c measures it beside gmlake_bfc.h, to show what the structures cost: an ordered set of free
   blocks for each kind, a hash map from addresses to live blocks, a heap allocation for each block,
   a mutex, and three counters for each figure. Other things that torch does are left out: a second
   hash table of live blocks, a second mutex, events, traces. */
#include "peer.h"

#include <cstdint>
#include <mutex>
#include <set>
#include <unordered_map>

namespace {

const size_t mib = size_t(1) << 20;

struct block;

struct block_less { /* by stream, then size, then address */
  bool operator()(const block *a, const block *b) const;
};

typedef std::set<block *, block_less> pool; /* of free blocks */

struct block {
  size_t stream, bytes, requested_bytes;
  uintptr_t address;
  pool *home;
  bool is_live;
  block *previous, *next; /* neighbours in the segment; null at its ends */
};

bool block_less::operator()(const block *a, const block *b) const {
  if (a->stream != b->stream) return a->stream < b->stream;
  if (a->bytes != b->bytes) return a->bytes < b->bytes;
  return a->address < b->address;
}

struct counter {
  int64_t now, peak, added, taken;
  void add(int64_t amount) {
    now += amount;
    if (now > peak) peak = now;
    (amount > 0 ? added : taken) += amount > 0 ? amount : -amount;
  }
};

struct counters {
  counter blocks, bytes, requested_bytes, active_blocks, active_bytes;
  counter inactive_blocks, inactive_bytes, segments, reserved_bytes;
};

struct peer {
  std::mutex mutex;
  pool small, large;
  std::unordered_map<void *, block *> live;
  counters all, of_small, of_large;
  uintptr_t next_address;
};

/* Counts for all blocks, and for those of the pool's kind. */
template <typename F>
void count(peer *p, const pool *home, F change) {
  change(p->all);
  change(home == &p->small ? p->of_small : p->of_large);
}

void count_live(peer *p, const block *b, int64_t sign) {
  const int64_t bytes = sign * int64_t(b->bytes), requested = sign * int64_t(b->requested_bytes);
  count(p, b->home, [=](counters &c) {
    c.blocks.add(sign);
    c.bytes.add(bytes);
    c.requested_bytes.add(requested);
    c.active_blocks.add(sign);
    c.active_bytes.add(bytes);
  });
}

/* Free blocks that are a part of their segment. */
void count_inactive(peer *p, const block *b, int64_t sign) {
  const int64_t bytes = sign * int64_t(b->bytes);
  if (!b->previous && !b->next) return;
  count(p, b->home, [=](counters &c) {
    c.inactive_blocks.add(sign);
    c.inactive_bytes.add(bytes);
  });
}

block *take_free(peer *p, pool *home, size_t stream, size_t bytes) {
  block key = block();
  key.stream = stream;
  key.bytes = bytes;
  const pool::iterator found = home->lower_bound(&key);
  if (found == home->end() || (*found)->stream != stream) return nullptr;
  block *b = *found;
  home->erase(found);
  count_inactive(p, b, -1);
  return b;
}

size_t segment_bytes(bool is_small, size_t bytes) {
  if (is_small) return 2 * mib;
  if (bytes < 10 * mib) return 20 * mib;
  return (bytes + 2 * mib - 1) / (2 * mib) * (2 * mib);
}

block *take_segment(peer *p, pool *home, size_t stream, size_t bytes) {
  block *b = new block();
  b->stream = stream;
  b->bytes = segment_bytes(home == &p->small, bytes);
  b->address = p->next_address;
  b->home = home;
  p->next_address += b->bytes;
  const int64_t added = int64_t(b->bytes);
  count(p, home, [=](counters &c) {
    c.segments.add(1);
    c.reserved_bytes.add(added);
  });
  return b;
}

void split(peer *p, block *b, size_t bytes) {
  block *rest = new block(*b);
  rest->address += bytes;
  rest->bytes -= bytes;
  rest->previous = b;
  if (rest->next) rest->next->previous = rest;
  b->next = rest;
  b->bytes = bytes;
  rest->home->insert(rest);
  count_inactive(p, rest, 1);
}

/* The upper of two neighbours goes into the lower. pre: neither is in the pool. */
void merge(block *lower, block *upper) {
  lower->bytes += upper->bytes;
  lower->next = upper->next;
  if (lower->next) lower->next->previous = lower;
  delete upper;
}

bool take_neighbour(peer *p, block *b) {
  if (!b || b->is_live) return false;
  b->home->erase(b);
  count_inactive(p, b, -1);
  return true;
}

} /* namespace */

void *peer_open(size_t, size_t, size_t) {
  peer *p = new peer();
  p->next_address = uintptr_t(1) << 40;
  return p;
}

void *peer_alloc(void *self, size_t requested_bytes, size_t stream) {
  peer *p = static_cast<peer *>(self);
  const size_t bytes = (requested_bytes + 511) / 512 * 512;
  const bool is_small = bytes <= mib;
  pool *home = is_small ? &p->small : &p->large;
  std::lock_guard<std::mutex> guard(p->mutex);
  block *b = take_free(p, home, stream, bytes);
  if (!b) b = take_segment(p, home, stream, bytes);
  const size_t rest = b->bytes - bytes;
  if (is_small ? rest >= 512 : rest > mib) split(p, b, bytes);
  b->is_live = true;
  b->requested_bytes = requested_bytes;
  count_live(p, b, 1);
  void *ptr = reinterpret_cast<void *>(b->address);
  p->live[ptr] = b;
  return ptr;
}

int peer_free(void *self, void *ptr) {
  peer *p = static_cast<peer *>(self);
  std::lock_guard<std::mutex> guard(p->mutex);
  const std::unordered_map<void *, block *>::iterator found = p->live.find(ptr);
  if (found == p->live.end()) return 1;
  block *b = found->second;
  p->live.erase(found);
  count_live(p, b, -1);
  b->is_live = false;
  if (take_neighbour(p, b->next)) merge(b, b->next);
  if (take_neighbour(p, b->previous)) {
    b = b->previous;
    merge(b, b->next);
  }
  b->home->insert(b);
  count_inactive(p, b, 1);
  return 0;
}

size_t peer_reserved_peak(void *self) {
  return size_t(static_cast<peer *>(self)->all.reserved_bytes.peak);
}
