/* A model of torch's expandable segments (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True), for
   replay. What it holds is exact as far as torch's rules go; no memory is behind it.

   Each stream has two segments, one for requests up to 1 MiB, one for larger ones. A segment is
   addresses for 9/8 of the device. It is mapped page by page: 2 MiB the small one, 20 MiB the large
   one. Requests are rounded to 512 bytes. The best free block is the smallest that is large enough,
   of equals the one at the lowest address; but of a free block with unmapped addresses behind it
   the addresses count as its size. If no free block fits, the pages are mapped that lack at the
   lowest place where the request finds addresses, a free block in front of it included. What is
   left of a block is split off. If the device has no page left, all pages that are wholly free are
   unmapped, of each stream, and it is tried once more. Not modelled: captures, max_split_size, the
   garbage collection threshold. Of blocks that recorded streams use held.h knows. */
#if !defined(EXPANDABLE_H)
#define EXPANDABLE_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPANDABLE_MIB ((size_t)1 << 20)
#define EXPANDABLE_SMALL_MAX EXPANDABLE_MIB
#define EXPANDABLE_SMALL_PAGE (2 * EXPANDABLE_MIB)
#define EXPANDABLE_LARGE_PAGE (20 * EXPANDABLE_MIB)
#define EXPANDABLE_PAGE_NS 28000 /* about what it costs to create and map one */

typedef struct expandable_block {
  struct expandable_pool *pool;
  struct expandable_block *previous, *next; /* neighbours in the segment; next spare */
  struct expandable_block *made_before;     /* of all that exist, spare ones included */
  uint64_t address;
  size_t bytes;
  int is_live, is_mapped;
} expandable_block;

typedef struct expandable_set { /* sorted; room for all blocks of its pool */
  expandable_block **items;
  size_t count;
  int is_by_bytes; /* by bytes, then by address; else by address */
} expandable_set;

typedef struct expandable_pool { /* of a stream, of small or large requests */
  struct expandable_pool *next;
  size_t stream, page_bytes;
  expandable_set free_blocks, unmapped;
  size_t block_count, capacity;
} expandable_pool;

typedef struct expandable {
  expandable_pool *pools;
  expandable_block *spare, *made;
  size_t spare_count;
  size_t device_bytes, reserved_bytes, reserved_bytes_peak;
  uint64_t next_address, call_count, ns;
} expandable;

/* The index of the first item that is not before the key. */
static size_t expandable_find(const expandable_set *set, size_t bytes, uint64_t address) {
  size_t low = 0, high = set->count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const expandable_block *item = set->items[middle];
    const int is_before =
        set->is_by_bytes && item->bytes != bytes ? item->bytes < bytes : item->address < address;
    if (is_before)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static expandable_set *expandable_set_of(expandable_block *block) {
  return block->is_mapped ? &block->pool->free_blocks : &block->pool->unmapped;
}

static void expandable_insert(expandable_block *block) {
  expandable_set *set = expandable_set_of(block);
  const size_t at = expandable_find(set, block->bytes, block->address);
  memmove(set->items + at + 1, set->items + at, (set->count++ - at) * sizeof *set->items);
  set->items[at] = block;
}

static void expandable_remove(expandable_block *block) {
  expandable_set *set = expandable_set_of(block);
  const size_t at = expandable_find(set, block->bytes, block->address);
  memmove(set->items + at, set->items + at + 1, (--set->count - at) * sizeof *set->items);
}

static int expandable_widen(expandable_set *set, size_t capacity) {
  expandable_block **items =
      (expandable_block **)realloc(set->items, capacity * sizeof *set->items);
  if (items) set->items = items;
  return items != NULL;
}

/* Makes sure that so many blocks can be made in the pool. Returns 0 if host memory ran out. */
static int expandable_prepare(expandable *e, expandable_pool *pool, size_t count) {
  const size_t capacity = 2 * (pool->block_count + count);
  if (pool->block_count + count > pool->capacity) {
    if (!expandable_widen(&pool->free_blocks, capacity)) return 0;
    if (!expandable_widen(&pool->unmapped, capacity)) return 0;
    pool->capacity = capacity;
  }
  for (; e->spare_count < count; e->spare_count++) {
    expandable_block *block = (expandable_block *)calloc(1, sizeof *block);
    if (!block) return 0;
    block->made_before = e->made;
    block->next = e->spare;
    e->made = e->spare = block;
  }
  return 1;
}

/* pre: expandable_prepare. The block lies behind `previous`, if there is one; it is in no set. */
static expandable_block *expandable_make(expandable *e, expandable_pool *pool,
                                         expandable_block *previous, uint64_t address, size_t bytes,
                                         int is_mapped) {
  expandable_block *block = e->spare;
  e->spare = block->next;
  e->spare_count--;
  pool->block_count++;
  block->pool = pool;
  block->address = address;
  block->bytes = bytes;
  block->is_live = 0;
  block->is_mapped = is_mapped;
  block->previous = previous;
  block->next = previous ? previous->next : NULL;
  if (block->next) block->next->previous = block;
  if (previous) previous->next = block;
  return block;
}

/* Makes a block, which is in no set, and a neighbour one, if both are free or both unmapped. */
static void expandable_merge(expandable *e, expandable_block *block, expandable_block *other) {
  if (!other || other->is_live || other->is_mapped != block->is_mapped) return;
  expandable_remove(other);
  if (other == block->previous) {
    block->address = other->address;
    block->previous = other->previous;
    if (block->previous) block->previous->next = block;
  } else {
    block->next = other->next;
    if (block->next) block->next->previous = block;
  }
  block->bytes += other->bytes;
  block->pool->block_count--;
  other->next = e->spare;
  e->spare = other;
  e->spare_count++;
}

static void expandable_settle(expandable *e, expandable_block *block) {
  expandable_merge(e, block, block->previous);
  expandable_merge(e, block, block->next);
  expandable_insert(block);
}

/* Maps the pages of the first `bytes` of an unmapped block, which becomes free and may have become
   part of the block before it. Returns 0 if the device has no more memory. */
static int expandable_map(expandable *e, expandable_block *block, size_t bytes) {
  const size_t page = block->pool->page_bytes, pages = (bytes + page - 1) / page;
  if (pages > (e->device_bytes - e->reserved_bytes) / page) return 0;
  expandable_remove(block);
  if (pages * page < block->bytes)
    expandable_insert(expandable_make(e, block->pool, block, block->address + pages * page,
                                      block->bytes - pages * page, 0));
  block->bytes = pages * page;
  block->is_mapped = 1;
  expandable_settle(e, block);
  e->reserved_bytes += pages * page;
  if (e->reserved_bytes > e->reserved_bytes_peak) e->reserved_bytes_peak = e->reserved_bytes;
  e->call_count += 2 * pages + 1;
  e->ns += pages * EXPANDABLE_PAGE_NS;
  return 1;
}

/* Unmaps the pages that lie wholly in a free block. pre: expandable_prepare for two blocks. */
static void expandable_unmap(expandable *e, expandable_block *block) {
  const uint64_t page = block->pool->page_bytes, end = block->address + block->bytes;
  const uint64_t first = (block->address + page - 1) / page * page, last = end / page * page;
  if (first >= last) return;
  expandable_remove(block);
  if (last < end)
    expandable_insert(expandable_make(e, block->pool, block, last, (size_t)(end - last), 1));
  block->bytes = (size_t)(last - block->address);
  if (block->address < first) {
    expandable_block *rest =
        expandable_make(e, block->pool, block, first, (size_t)(last - first), 1);
    block->bytes = (size_t)(first - block->address);
    expandable_insert(block);
    block = rest;
  }
  block->is_mapped = 0;
  expandable_settle(e, block);
  e->reserved_bytes -= (size_t)(last - first);
  e->call_count += 2 * (last - first) / page;
}

/* Unmaps all that is wholly free. Returns 0 if host memory ran out. */
static int expandable_trim(expandable *e) {
  expandable_pool *pool;
  for (pool = e->pools; pool; pool = pool->next) {
    const size_t count = pool->free_blocks.count;
    expandable_block **blocks = (expandable_block **)malloc((count + 1) * sizeof *blocks);
    size_t i;
    if (!blocks) return 0;
    memcpy(blocks, pool->free_blocks.items, count * sizeof *blocks);
    for (i = 0; i < count && expandable_prepare(e, pool, 2); i++) expandable_unmap(e, blocks[i]);
    free(blocks);
    if (i < count) return 0;
  }
  return 1;
}

/* NULL if host memory ran out. */
static expandable_pool *expandable_pool_for(expandable *e, size_t bytes, size_t stream) {
  const size_t page = bytes <= EXPANDABLE_SMALL_MAX ? EXPANDABLE_SMALL_PAGE : EXPANDABLE_LARGE_PAGE;
  expandable_pool *pool;
  for (pool = e->pools; pool; pool = pool->next)
    if (pool->stream == stream && pool->page_bytes == page) return pool;
  pool = (expandable_pool *)calloc(1, sizeof *pool);
  if (!pool) return NULL;
  pool->stream = stream;
  pool->page_bytes = page;
  pool->free_blocks.is_by_bytes = 1;
  pool->next = e->pools;
  e->pools = pool;
  return pool;
}

/* As large as it can become. */
static size_t expandable_room(const expandable_block *block) {
  return block->bytes + (block->next && !block->next->is_mapped ? block->next->bytes : 0);
}

/* The free block that a request gets; NULL: none fits. */
static expandable_block *expandable_best(expandable_pool *pool, size_t bytes) {
  const expandable_set *set = &pool->free_blocks;
  size_t at = expandable_find(set, bytes, 0);
  if (at == set->count) return NULL;
  while (at + 1 < set->count &&
         expandable_room(set->items[at + 1]) < expandable_room(set->items[at]))
    at++;
  return set->items[at];
}

/* Whether free and unmapped blocks from this one on have so many addresses. */
static int expandable_has_room(const expandable_block *block, size_t bytes) {
  size_t found = 0;
  for (; block && !block->is_live && found < bytes; block = block->next) found += block->bytes;
  return found >= bytes;
}

/* The lowest place where free and unmapped addresses suffice; if none does, a new segment. */
static expandable_block *expandable_place(expandable *e, expandable_pool *pool, size_t bytes) {
  const size_t page = pool->page_bytes;
  expandable_block *block;
  size_t i, room;
  for (i = 0; i < pool->unmapped.count; i++) {
    block = pool->unmapped.items[i];
    if (block->previous && !block->previous->is_live) block = block->previous;
    if (expandable_has_room(block, bytes)) return block;
  }
  room = (e->device_bytes / 8 * 9 + page - 1) / page * page;
  if (room < bytes) return NULL;
  e->next_address = (e->next_address + page - 1) / page * page;
  block = expandable_make(e, pool, NULL, e->next_address, room, 0);
  e->next_address += room;
  expandable_insert(block);
  return block;
}

/* Maps what a request lacks. Returns the block, which is large enough; NULL: there is no memory. */
static expandable_block *expandable_grow(expandable *e, expandable_pool *pool, size_t bytes) {
  expandable_block *block = expandable_place(e, pool, bytes);
  if (!block) return NULL;
  if (!block->is_mapped && !expandable_map(e, block, bytes < block->bytes ? bytes : block->bytes))
    return NULL;
  while (block->bytes < bytes) { /* it is free, and what is next is unmapped */
    expandable_block *next = block->next;
    const size_t lacks = bytes - block->bytes;
    if (!expandable_map(e, next, lacks < next->bytes ? lacks : next->bytes)) return NULL;
    block = next;
  }
  return block;
}

static expandable *expandable_create(size_t device_bytes) {
  expandable *e = (expandable *)calloc(1, sizeof *e);
  if (!e) return NULL;
  e->device_bytes = device_bytes;
  e->next_address = (uint64_t)1 << 46;
  return e;
}

static void expandable_destroy(expandable *e) {
  while (e->pools) {
    expandable_pool *pool = e->pools;
    e->pools = pool->next;
    free(pool->free_blocks.items);
    free(pool->unmapped.items);
    free(pool);
  }
  while (e->made) {
    expandable_block *block = e->made;
    e->made = block->made_before;
    free(block);
  }
  free(e);
}

/* Sets *out_block; NULL if the memory of the device ran out. Returns 0 if that of the host did. */
static int expandable_alloc(expandable *e, size_t asked_bytes, size_t stream,
                            expandable_block **out_block) {
  const size_t bytes = (asked_bytes + 511) & ~(size_t)511;
  expandable_pool *pool = expandable_pool_for(e, bytes, stream);
  expandable_block *block;
  *out_block = NULL;
  if (!pool || !expandable_prepare(e, pool, 3)) return 0;
  block = expandable_best(pool, bytes);
  if (!block) block = expandable_grow(e, pool, bytes);
  if (!block) {
    if (!expandable_trim(e) || !expandable_prepare(e, pool, 3)) return 0;
    block = expandable_grow(e, pool, bytes);
  }
  if (!block) return 1;
  expandable_remove(block);
  if (block->bytes > bytes)
    expandable_insert(
        expandable_make(e, pool, block, block->address + bytes, block->bytes - bytes, 1));
  block->bytes = bytes;
  block->is_live = 1;
  *out_block = block;
  return 1;
}

static void expandable_free(expandable *e, expandable_block *block) {
  block->is_live = 0;
  expandable_settle(e, block);
}

#endif
