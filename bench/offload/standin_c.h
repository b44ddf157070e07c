/* What stand-in operators do to memory, in C: standin.h has the same as kernels, and the driver
   without a device (tests/gpu/fake_cuda.c) runs this in their place.

   A tensor is looked at in lines of 128 bytes, one of every 1 << shift; with shift 0 in all its
   bytes. Its digest is a sum over 8-byte words, each mixed with its place, so that any number of
   threads may add up parts of it, and no wrong word goes unnoticed. */
#if !defined(STANDIN_C_H)
#define STANDIN_C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define STANDIN_LINE 128
#define STANDIN_ITEMS 16 /* tensors in one launch */
#define STANDIN_ODD UINT64_C(0x9E3779B97F4A7C15)
#define STANDIN_PLACE UINT64_C(0xC2B2AE3D27D4EB4F)

typedef struct standin_item {
  uint64_t ptr;
  uint64_t units; /* of 16 bytes, 8 in a line */
  uint32_t tail;  /* bytes behind the units, below 16; shift 0 only */
  uint32_t shift;
} standin_item;

/* The last words of a tensor that is looked at in part may be left out. */
static inline standin_item standin_item_of(const void *ptr, size_t bytes, unsigned shift) {
  standin_item item;
  memset(&item, 0, sizeof item);
  item.ptr = (uint64_t)(uintptr_t)ptr;
  if (shift == 0 || bytes < STANDIN_LINE) {
    item.units = bytes / 16;
    item.tail = (uint32_t)(bytes % 16);
  } else {
    item.units = (((bytes - STANDIN_LINE) >> shift) / STANDIN_LINE + 1) * 8;
    item.shift = shift;
  }
  return item;
}

static inline uint64_t standin_offset(const standin_item *item, uint64_t unit) {
  return ((unit >> 3) << item->shift) * STANDIN_LINE + (unit & 7) * 16;
}

/* Bytes from the pointer to the last one that is looked at. */
static inline uint64_t standin_extent(const standin_item *item) {
  return (item->units ? standin_offset(item, item->units - 1) + 16 : 0) + item->tail;
}

static inline uint64_t standin_mix(uint64_t x) {
  x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
  return x ^ (x >> 31);
}

static inline uint64_t standin_word(uint64_t word, uint64_t offset, uint64_t key) {
  uint64_t x = (word ^ (offset * STANDIN_PLACE + key)) * STANDIN_ODD;
  return x ^ (x >> 32);
}

/* What item number `index` of a launch adds to a digest. */
static inline uint64_t standin_read(const standin_item *item, uint64_t seed, unsigned index) {
  const unsigned char *at = (const unsigned char *)(uintptr_t)item->ptr;
  uint64_t key = seed + index * STANDIN_ODD, sum = 0, unit, offset, words[2];
  for (unit = 0; unit < item->units; unit++) {
    offset = standin_offset(item, unit);
    memcpy(words, at + offset, 16);
    sum += standin_word(words[0], offset, key) + standin_word(words[1], offset + 8, key);
  }
  for (unit = 0; unit < item->tail; unit++) {
    offset = item->units * 16 + unit;
    sum += standin_word(at[offset] + UINT64_C(1), offset, key);
  }
  return sum;
}

/* Fills item number `index` with what follows from the digest. */
static inline void standin_write(const standin_item *item, uint64_t digest, unsigned index) {
  unsigned char *at = (unsigned char *)(uintptr_t)item->ptr;
  uint64_t key = digest + index * STANDIN_ODD, unit, offset, words[2];
  for (unit = 0; unit < item->units; unit++) {
    offset = standin_offset(item, unit);
    words[0] = standin_word(0, offset, key);
    words[1] = standin_word(0, offset + 8, key);
    memcpy(at + offset, words, 16);
  }
  for (unit = 0; unit < item->tail; unit++) {
    offset = item->units * 16 + unit;
    at[offset] = (unsigned char)standin_word(0, offset, key);
  }
}

#endif
