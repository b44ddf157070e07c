/* sebbbi's OffsetAllocator as a peer of bench.c: what a small allocator of ranges takes that has no
   index of addresses, no streams, no lock and no statistics. It is compiled from a checkout of
   https://github.com/sebbbi/OffsetAllocator, which is not part of this repository:
     make build/peer_offset_allocator.so OFFSET_ALLOCATOR=FOLDER
     build/bench --peer build/peer_offset_allocator.so loads
   It finds a block by its node, so a block's pointer names offset and node, and is no address. */
#include "peer.h"

#include <cstdint>

#include "offsetAllocator.hpp"

namespace {

const size_t grain = 512; /* it counts in 32 bits */

struct peer {
  OffsetAllocator::Allocator ranges;
  peer(size_t device_bytes, size_t nodes)
      : ranges(uint32_t(device_bytes / grain), uint32_t(nodes)) {}
};

} // namespace

extern "C" {

void *peer_open(size_t device_bytes, size_t blocks_max, size_t) {
  const size_t max = size_t(0xFFFFFFFEu) * grain;
  return new peer(device_bytes < max ? device_bytes : max, 2 * blocks_max + 16); /* and the holes */
}

void *peer_alloc(void *self, size_t bytes, size_t) {
  const OffsetAllocator::Allocation block =
      static_cast<peer *>(self)->ranges.allocate(uint32_t((bytes + grain - 1) / grain));
  if (block.offset == OffsetAllocator::Allocation::NO_SPACE) return nullptr;
  return reinterpret_cast<void *>(uintptr_t(block.offset) << 32 | (uintptr_t(block.metadata) + 1));
}

int peer_free(void *self, void *ptr) {
  OffsetAllocator::Allocation block;
  block.offset = uint32_t(reinterpret_cast<uintptr_t>(ptr) >> 32);
  block.metadata = uint32_t(reinterpret_cast<uintptr_t>(ptr)) - 1;
  static_cast<peer *>(self)->ranges.free(block);
  return 0;
}
}
