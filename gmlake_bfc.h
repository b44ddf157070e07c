/* gmlake_bfc.h 0.2.0: best fit with coalescing, the classic caching allocator of GPU frameworks.

RECIPE
  One C or C++ file of the program says
      #define GMLAKE_BFC_IMPLEMENTATION
      #include "gmlake_bfc.h"
  and every other file includes the header alone. It needs the C library and a mutex (pthreads or
  Windows, or GMLAKE_BFC_MUTEX_*), no CUDA: segments of device memory come from two callbacks.

EXAMPLE
      static void *take(void *user, size_t bytes) {
        CUdeviceptr address = 0;
        (void)user;
        return cuMemAlloc(&address, bytes) == CUDA_SUCCESS ? (void *)address : NULL;
      }
      static void give(void *user, void *segment, size_t bytes) {
        (void)user, (void)bytes;
        cuMemFree((CUdeviceptr)segment);
      }
      gmlake_bfc_desc desc;
      gmlake_bfc *bfc;
      void *tensor;
      memset(&desc, 0, sizeof desc);
      desc.segment_alloc = take;
      desc.segment_free = give;
      if (gmlake_bfc_create(&desc, &bfc) != GMLAKE_BFC_OK) return 1;
      if (gmlake_bfc_alloc(bfc, 3 << 20, stream, &tensor) == GMLAKE_BFC_OK)
        gmlake_bfc_free(bfc, tensor);
      gmlake_bfc_destroy(bfc);

WHAT IT DOES NOT DO
  It moves and stitches nothing: memory is lost where no free block is large enough, which is what
  gmlake.h is for. Memory freed on one stream never serves another. No record_stream, no events, no
  graph capture, no expandable segments, no max_split_size, no garbage collection threshold. It
  never touches the memory it hands out, which is not promised to be zero.

HOW AN ALLOCATION IS SERVED
  The rules of torch's native allocator (CUDACachingAllocator, neither expandable segments nor any
  other option of PYTORCH_CUDA_ALLOC_CONF set); the numbers are fields of the description.
  1. The request is rounded up to 512 bytes. What is then at most 1 MiB is small, else large; small
     and large requests never share a segment, nor do requests of different streams.
  2. The best free block is taken: of the same stream and kind the smallest that is large enough,
     of equals the one at the lowest address.
  3. If there is none, a segment is asked of segment_alloc: 2 MiB for small requests, 20 MiB for
     large ones below 10 MiB, from there on a segment of the request's own, rounded up to 2 MiB.
  4. If that is refused, or would pass limit_bytes, all cached segments (those wholly free, of every
     stream) go back through segment_free and segment_alloc is asked once more.
  5. A block larger than the request is split, its lower part handed out, if at least 512 bytes
     (small) or more than 1 MiB (large) remain; else the request gets the whole block.
  A free merges the block with its free neighbours in the segment and returns it to the pool of the
  stream it was allocated on. Segments are kept until step 4, gmlake_bfc_trim or destroy.

MACROS, all for the implementation file only unless it says otherwise
  GMLAKE_BFC_IMPLEMENTATION  compiles the implementation
  GMLAKE_BFC_STATIC          every file: all functions static, each file has its own copy
  GMLAKE_BFC_DEF             every file: linkage of the functions, instead of extern
  GMLAKE_BFC_ASSERT(x)       instead of assert
  GMLAKE_BFC_MALLOC(bytes)   instead of malloc and free where the description names no functions;
  GMLAKE_BFC_FREE(ptr)       both or neither
  GMLAKE_BFC_MUTEX_TYPE      instead of pthread_mutex_t or SRWLOCK; all five or none. The others
  GMLAKE_BFC_MUTEX_INIT(m)   take a pointer to it; INIT is an expression, 0 where it succeeded.
  GMLAKE_BFC_MUTEX_DESTROY(m), GMLAKE_BFC_MUTEX_LOCK(m), GMLAKE_BFC_MUTEX_UNLOCK(m)

THREADING
  Any thread may call any function at any time, but destroy must be the last call of all. One mutex
  an allocator, taken in the public functions only and held while callbacks run: segment_alloc,
  segment_free, malloc_fn and free_fn must not call the same allocator.

STREAMS
  A stream is any value; it is compared, never used. A block may be used on its stream, in work
  ordered after the call. Freed memory is handed out again at once on that stream, so work on other
  streams that uses a block must have been waited for, by the host or by that stream, before the
  free. A stream's free blocks stay usable only through that value.

ERRORS
  Every failure is a result, and leaves live blocks and statistics as they were (cached segments
  may have gone back, oom_count and retry_count tell so). Nothing is printed, nothing exits.

COSTS
  n: free blocks. Allocation and free: O(log n) expected and one hash look-up, no callback unless a
  segment is needed. Host memory: about 90 bytes a block, two pointers a live block at most and
  50 bytes a segment; it is kept for reuse until destroy.

Licence: MIT, at the end of this file. */
#if !defined(GMLAKE_BFC_H_INCLUDED)
#define GMLAKE_BFC_H_INCLUDED

#include <stddef.h>
#include <stdint.h>

#define GMLAKE_BFC_VERSION 200 /* major * 10000 + minor * 100 + patch */

#if !defined(GMLAKE_BFC_DEF)
#if defined(GMLAKE_BFC_STATIC) && defined(__GNUC__)
#define GMLAKE_BFC_DEF __attribute__((unused)) static
#elif defined(GMLAKE_BFC_STATIC)
#define GMLAKE_BFC_DEF static
#else
#define GMLAKE_BFC_DEF extern
#endif
#endif

#if defined(__cplusplus)
extern "C" {
#endif

typedef enum gmlake_bfc_result {
  GMLAKE_BFC_OK = 0,
  GMLAKE_BFC_ERROR_INVALID_ARGUMENT,
  GMLAKE_BFC_ERROR_OUT_OF_HOST_MEMORY,   /* nothing has changed */
  GMLAKE_BFC_ERROR_OUT_OF_DEVICE_MEMORY, /* refused, also after cached segments were released */
  GMLAKE_BFC_ERROR_LIMIT_REACHED,        /* the same, because of limit_bytes */
  GMLAKE_BFC_ERROR_UNKNOWN_POINTER,      /* not the start of a live block */
  GMLAKE_BFC_ERROR_DOUBLE_FREE,          /* the byte is free memory */
  GMLAKE_BFC_ERROR_CORRUPT               /* gmlake_bfc_check found a broken invariant */
} gmlake_bfc_result;

typedef struct gmlake_bfc gmlake_bfc;

#define GMLAKE_BFC_SINGLE_THREADED 1u /* desc.flags: no mutex; one thread at a time calls */

/* What an allocator is made of. All zero but the two segment callbacks: torch's native allocator,
   rule for rule. Sizes are in bytes; 0 stands for the default given. */
typedef struct gmlake_bfc_desc {
  /* Required. Device memory, NULL where it is refused; blocks are aligned as the segment is, to
     round_bytes at most. Called with the mutex held. */
  void *(*segment_alloc)(void *user, size_t bytes);
  /* Required. Gives back what segment_alloc returned, with the same bytes; waits for work that
     still uses the segment, as cuMemFree does. Called with the mutex held. */
  void (*segment_free)(void *user, void *segment, size_t bytes);
  void *user;                 /* first argument of both */
  unsigned flags;             /* GMLAKE_BFC_SINGLE_THREADED */
  size_t round_bytes;         /* 512: requests are rounded to it; a power of two */
  size_t small_bytes_max;     /* 1 MiB: larger rounded requests are large */
  size_t small_segment_bytes; /* 2 MiB: at least small_bytes_max, a multiple of round_bytes */
  size_t large_segment_bytes; /* 20 MiB: at least large_request_min, a multiple of round_bytes */
  size_t large_request_min;   /* 10 MiB: from here on a rounded request gets its own segment, */
  size_t large_round_bytes;   /* 2 MiB: rounded up to this power of two, at least round_bytes */
  size_t small_remainder_min; /* 512: a small block is split where at least this much remains, */
  size_t large_remainder_min; /* 1 MiB: a large one where more than this remains */
  size_t limit_bytes;         /* what all segments together may take; 0: no limit */
  /* Host memory for metadata, aligned as malloc's; both or neither (GMLAKE_BFC_MALLOC and FREE).
     Called with the mutex held. */
  void *(*malloc_fn)(void *user, size_t bytes);
  void (*free_fn)(void *user, void *ptr);
  void *malloc_user; /* first argument of both */
} gmlake_bfc_desc;

/* Peaks are since creation. The struct grows at its end only. */
typedef struct gmlake_bfc_stats {
  size_t struct_bytes; /* set by the caller, or 0: this header's size; returned: bytes filled in */
  size_t requested_bytes, requested_bytes_peak; /* live blocks, as asked for */
  size_t active_bytes, active_bytes_peak;       /* live blocks, as handed out: rounded, not split */
  size_t reserved_bytes, reserved_bytes_peak;   /* all segments */
  uint64_t allocation_count;    /* allocations that succeeded, those of 0 bytes left out */
  uint64_t free_count;          /* frees that succeeded, those of NULL left out */
  uint64_t split_count;         /* blocks split in two */
  uint64_t coalesce_count;      /* pairs of neighbours merged */
  uint64_t segment_count;       /* segments now */
  uint64_t segment_alloc_count; /* segments taken so far */
  uint64_t segment_free_count;  /* segments given back so far */
  uint64_t retry_count;         /* refusals after which cached segments were released */
  uint64_t oom_count;           /* allocations that failed for want of device memory or limit */
  uint64_t live_count;          /* live blocks now */
  size_t metadata_bytes, metadata_bytes_peak; /* host memory of the allocator */
} gmlake_bfc_stats;

/* Makes an allocator; *desc is copied. No segment is taken yet.
   Errors: INVALID_ARGUMENT (a pointer that is NULL, a missing callback, an unknown flag, sizes that
   break a rule stated at their field), OUT_OF_HOST_MEMORY; *out_bfc is then NULL. */
GMLAKE_BFC_DEF gmlake_bfc_result gmlake_bfc_create(const gmlake_bfc_desc *desc,
                                                   gmlake_bfc **out_bfc);

/* Gives back every segment, those with live blocks too, and the allocator itself. NULL is fine.
   Always OK. Thread: no other call is running or comes later. Cost: a segment_free a segment. */
GMLAKE_BFC_DEF gmlake_bfc_result gmlake_bfc_destroy(gmlake_bfc *bfc);

/* Hands out at least `bytes` bytes for use on `stream`. 0 bytes succeed with NULL.
   Errors: INVALID_ARGUMENT, OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY, LIMIT_REACHED; *out_ptr is
   then NULL. Cost: O(log n); a segment_alloc where nothing cached fits. */
GMLAKE_BFC_DEF gmlake_bfc_result gmlake_bfc_alloc(gmlake_bfc *bfc, size_t bytes, void *stream,
                                                  void **out_ptr);

/* Takes a block back, to the pool of the stream it was allocated on. NULL is fine.
   pre: work on other streams that uses the block has been waited for.
   Errors, with nothing changed: INVALID_ARGUMENT, UNKNOWN_POINTER, DOUBLE_FREE. A stale pointer
   whose address is a live block again cannot be told. Cost: O(log n); linear for a wrong pointer */
GMLAKE_BFC_DEF gmlake_bfc_result gmlake_bfc_free(gmlake_bfc *bfc, void *ptr);

/* Gives back all cached segments (wholly free, of every stream). out_released_bytes may be NULL.
   Errors: INVALID_ARGUMENT. Cost: linear in the segments, a segment_free each. */
GMLAKE_BFC_DEF gmlake_bfc_result gmlake_bfc_trim(gmlake_bfc *bfc, size_t *out_released_bytes);

/* Copies the statistics, as many bytes as out_stats->struct_bytes says and the allocator knows.
   Errors: INVALID_ARGUMENT (a pointer is NULL, struct_bytes is too small to hold itself). */
GMLAKE_BFC_DEF gmlake_bfc_result gmlake_bfc_get_stats(gmlake_bfc *bfc, gmlake_bfc_stats *out_stats);

/* Verifies every invariant and recounts the statistics; changes nothing, never aborts.
   Errors: INVALID_ARGUMENT, CORRUPT. Cost: O(b log b) for b blocks, quadratic in the segments. */
GMLAKE_BFC_DEF gmlake_bfc_result gmlake_bfc_check(gmlake_bfc *bfc);

/* The result's spelling in this header, a constant string; never NULL. */
GMLAKE_BFC_DEF const char *gmlake_bfc_result_name(gmlake_bfc_result result);

#if defined(__cplusplus)
}
#endif

#endif /* GMLAKE_BFC_H_INCLUDED */

/* ---- Users can stop here; the implementation is below ---------------------------------------- */

#if defined(GMLAKE_BFC_IMPLEMENTATION) && !defined(GMLAKE_BFC_IMPLEMENTATION_DONE)
#define GMLAKE_BFC_IMPLEMENTATION_DONE

/* ---- >>base: configuration, structures, host memory --------------------------------------------
   A segment is what segment_alloc returned; blocks tile it. Sections below call those above them
   only and assume that the mutex is held. Invariants, verified by >>check:
   [B1] The blocks of a segment, linked in address order, tile it without gap or overlap, and all
        belong to one stream; their sizes are multiples of round_bytes.
   [B2] Neighbours in a segment are never both free.
   [B3] A free block is in the tree of its segment's kind, and nothing else is.
   [B4] A live block is in the index under its address, and nothing else is.
   [B5] Every block carved out of a slab is in a segment or on the spare list.
   [B6] block_count == segment_count + split_count - coalesce_count
   [B7] Segments do not overlap. */

#include <string.h>

#if !defined(GMLAKE_BFC_ASSERT)
#include <assert.h>
#define GMLAKE_BFC_ASSERT(x) assert(x)
#endif

#if defined(GMLAKE_BFC_MALLOC) != defined(GMLAKE_BFC_FREE)
#error "define both GMLAKE_BFC_MALLOC and GMLAKE_BFC_FREE, or neither"
#elif !defined(GMLAKE_BFC_MALLOC)
#include <stdlib.h>
#define GMLAKE_BFC_MALLOC(bytes) malloc(bytes)
#define GMLAKE_BFC_FREE(ptr) free(ptr)
#endif

#if defined(GMLAKE_BFC_MUTEX_TYPE) != defined(GMLAKE_BFC_MUTEX_INIT) ||    \
    defined(GMLAKE_BFC_MUTEX_TYPE) != defined(GMLAKE_BFC_MUTEX_DESTROY) || \
    defined(GMLAKE_BFC_MUTEX_TYPE) != defined(GMLAKE_BFC_MUTEX_LOCK) ||    \
    defined(GMLAKE_BFC_MUTEX_TYPE) != defined(GMLAKE_BFC_MUTEX_UNLOCK)
#error "define all of GMLAKE_BFC_MUTEX_TYPE, INIT, DESTROY, LOCK and UNLOCK, or none"
#elif !defined(GMLAKE_BFC_MUTEX_TYPE) && defined(_WIN32)
#include <windows.h>
#define GMLAKE_BFC_MUTEX_TYPE SRWLOCK
#define GMLAKE_BFC_MUTEX_INIT(m) (InitializeSRWLock(m), 0)
#define GMLAKE_BFC_MUTEX_DESTROY(m) ((void)(m))
#define GMLAKE_BFC_MUTEX_LOCK(m) AcquireSRWLockExclusive(m)
#define GMLAKE_BFC_MUTEX_UNLOCK(m) ReleaseSRWLockExclusive(m)
#elif !defined(GMLAKE_BFC_MUTEX_TYPE)
#include <pthread.h>
#define GMLAKE_BFC_MUTEX_TYPE pthread_mutex_t
#define GMLAKE_BFC_MUTEX_INIT(m) pthread_mutex_init(m, NULL)
#define GMLAKE_BFC_MUTEX_DESTROY(m) pthread_mutex_destroy(m)
#define GMLAKE_BFC_MUTEX_LOCK(m) pthread_mutex_lock(m)
#define GMLAKE_BFC_MUTEX_UNLOCK(m) pthread_mutex_unlock(m)
#endif

#define GMLKB_SLAB_BLOCKS 64
#define GMLKB_FIRST_BUCKETS 64 /* a power of two, as every later count */

typedef struct gmlkb_block gmlkb_block;

typedef struct gmlkb_segment {
  struct gmlkb_segment *previous, *next; /* all segments, newest first */
  gmlkb_block *first;                    /* never changes: splits and merges keep the lower block */
  uintptr_t address;
  size_t bytes;
  int small; /* kind of request it serves: 1 small, 0 large */
} gmlkb_segment;

struct gmlkb_block {
  uintptr_t address, stream;
  size_t bytes;
  size_t requested_bytes; /* 0: the block is free */
  gmlkb_segment *segment;
  gmlkb_block *previous, *next; /* neighbours in the segment; NULL at its ends */
  gmlkb_block *left, *right;    /* children in the tree, while free */
  gmlkb_block *chain;           /* next in the bucket, while live; next spare */
  uint32_t priority;            /* in the tree; random, drawn once for the block's whole life */
};

typedef struct gmlkb_slab {
  struct gmlkb_slab *next;
  gmlkb_block blocks[GMLKB_SLAB_BLOCKS];
} gmlkb_slab;

struct gmlake_bfc {
  gmlake_bfc_desc desc; /* defaults filled in */
  gmlake_bfc_stats stats;
  gmlkb_segment *segments;
  gmlkb_block *free_root[2]; /* trees of free blocks: [0] large, [1] small */
  gmlkb_block **buckets;     /* the index of live blocks */
  size_t bucket_count;
  gmlkb_slab *slabs;
  gmlkb_block *spare;
  size_t spare_count;
  uint32_t random; /* never 0 */
  GMLAKE_BFC_MUTEX_TYPE mutex;
};

static void *gmlkb_raw_malloc(const gmlake_bfc_desc *desc, size_t bytes) {
  return desc->malloc_fn != NULL ? desc->malloc_fn(desc->malloc_user, bytes)
                                 : GMLAKE_BFC_MALLOC(bytes);
}

static void gmlkb_raw_free(const gmlake_bfc_desc *desc, void *ptr) {
  if (desc->free_fn != NULL)
    desc->free_fn(desc->malloc_user, ptr);
  else
    GMLAKE_BFC_FREE(ptr);
}

static void gmlkb_add_peak(size_t *value, size_t *peak, size_t bytes) {
  *value += bytes;
  if (*value > *peak) *peak = *value;
}

static void *gmlkb_host_alloc(gmlake_bfc *bfc, size_t bytes) {
  void *ptr = gmlkb_raw_malloc(&bfc->desc, bytes);
  if (ptr != NULL)
    gmlkb_add_peak(&bfc->stats.metadata_bytes, &bfc->stats.metadata_bytes_peak, bytes);
  return ptr;
}

static void gmlkb_host_free(gmlake_bfc *bfc, void *ptr, size_t bytes) {
  if (ptr == NULL) return;
  bfc->stats.metadata_bytes -= bytes;
  gmlkb_raw_free(&bfc->desc, ptr);
}

/* The one place where sizes are rounded. 0 where the sum overflows; unit is a power of two. */
static int gmlkb_round_up(size_t bytes, size_t unit, size_t *out_bytes) {
  if (bytes > SIZE_MAX - (unit - 1)) return 0;
  *out_bytes = (bytes + (unit - 1)) & ~(unit - 1);
  return 1;
}

/* ---- >>spare: block structures -----------------------------------------------------------------
   Owns the slabs and the spare list [B5]. Constant time. Only adding a slab can fail, and it is
   done ahead of need: gmlkb_spare_take cannot fail after a gmlkb_spare_reserve. */

static uint32_t gmlkb_random(gmlake_bfc *bfc) {
  bfc->random ^= bfc->random << 13;
  bfc->random ^= bfc->random >> 17;
  bfc->random ^= bfc->random << 5;
  return bfc->random;
}

static void gmlkb_spare_give(gmlake_bfc *bfc, gmlkb_block *block) {
  block->chain = bfc->spare;
  bfc->spare = block;
  bfc->spare_count++;
}

static gmlkb_block *gmlkb_spare_take(gmlake_bfc *bfc) {
  gmlkb_block *block = bfc->spare;
  GMLAKE_BFC_ASSERT(block != NULL);
  bfc->spare = block->chain;
  bfc->spare_count--;
  return block;
}

/* 0 where host memory is out. */
static int gmlkb_spare_reserve(gmlake_bfc *bfc, size_t count) {
  gmlkb_slab *slab;
  size_t i;
  GMLAKE_BFC_ASSERT(count <= GMLKB_SLAB_BLOCKS);
  if (bfc->spare_count >= count) return 1;
  slab = (gmlkb_slab *)gmlkb_host_alloc(bfc, sizeof *slab);
  if (slab == NULL) return 0;
  memset(slab, 0, sizeof *slab);
  slab->next = bfc->slabs;
  bfc->slabs = slab;
  for (i = 0; i < GMLKB_SLAB_BLOCKS; i++) {
    slab->blocks[i].priority = gmlkb_random(bfc);
    gmlkb_spare_give(bfc, &slab->blocks[i]);
  }
  return 1;
}

/* ---- >>tree: free blocks in order --------------------------------------------------------------
   A treap: in order of (stream, bytes, address) from left to right, and no block's priority is
   above its parent's. Since priorities are random the depth is O(log n) expected, whatever the
   order of insertions. Nothing can fail. */

static int gmlkb_less(const gmlkb_block *a, const gmlkb_block *b) {
  if (a->stream != b->stream) return a->stream < b->stream;
  if (a->bytes != b->bytes) return a->bytes < b->bytes;
  return a->address < b->address;
}

/* Goes down to where the block's priority puts it and deals what hangs there to its two sides. */
static void gmlkb_tree_insert(gmlkb_block **link, gmlkb_block *block) {
  gmlkb_block *rest, **lower = &block->left, **upper = &block->right;
  while (*link != NULL && (*link)->priority >= block->priority)
    link = gmlkb_less(block, *link) ? &(*link)->left : &(*link)->right;
  rest = *link;
  *link = block;
  while (rest != NULL) {
    if (gmlkb_less(rest, block)) {
      *lower = rest;
      lower = &rest->right;
      rest = rest->right;
    } else {
      *upper = rest;
      upper = &rest->left;
      rest = rest->left;
    }
  }
  *lower = NULL;
  *upper = NULL;
}

/* pre: the block is in the tree. Its two subtrees are merged into its place. */
static void gmlkb_tree_remove(gmlkb_block **link, const gmlkb_block *block) {
  gmlkb_block *left = block->left, *right = block->right;
  while (*link != block) {
    GMLAKE_BFC_ASSERT(*link != NULL); /* [B3] */
    link = gmlkb_less(block, *link) ? &(*link)->left : &(*link)->right;
  }
  while (left != NULL && right != NULL) {
    if (left->priority >= right->priority) {
      *link = left;
      link = &left->right;
      left = left->right;
    } else {
      *link = right;
      link = &right->left;
      right = right->left;
    }
  }
  *link = left != NULL ? left : right;
}

/* The stream's smallest block of at least `bytes`, of equals that at the lowest address. */
static gmlkb_block *gmlkb_tree_fit(gmlkb_block *node, uintptr_t stream, size_t bytes) {
  gmlkb_block *best = NULL;
  while (node != NULL) {
    if (node->stream < stream || (node->stream == stream && node->bytes < bytes)) {
      node = node->right;
    } else {
      best = node;
      node = node->left;
    }
  }
  return best != NULL && best->stream == stream ? best : NULL;
}

/* ---- >>index: live blocks by address -----------------------------------------------------------
   A chained hash table through the blocks themselves [B4]. Constant time expected. Only growing can
   fail, and it is done ahead of need. */

static gmlkb_block **gmlkb_index_bucket(const gmlake_bfc *bfc, uintptr_t address) {
  uint64_t hash = (uint64_t)address * UINT64_C(0x9E3779B97F4A7C15);
  hash ^= hash >> 32;
  return &bfc->buckets[(size_t)hash & (bfc->bucket_count - 1)];
}

static void gmlkb_index_insert(gmlake_bfc *bfc, gmlkb_block *block) {
  gmlkb_block **bucket = gmlkb_index_bucket(bfc, block->address);
  block->chain = *bucket;
  *bucket = block;
}

/* The link that points to the block at the address, or the NULL that ends its chain. */
static gmlkb_block **gmlkb_index_find(const gmlake_bfc *bfc, uintptr_t address) {
  gmlkb_block **link = gmlkb_index_bucket(bfc, address);
  while (*link != NULL && (*link)->address != address) link = &(*link)->chain;
  return link;
}

/* 0 where host memory is out, with nothing changed. The sizes cannot overflow: a table is a small
   part of the memory of the blocks that filled its predecessor. */
static int gmlkb_index_resize(gmlake_bfc *bfc, size_t bucket_count) {
  gmlkb_block **old = bfc->buckets, *block, *chain;
  size_t i, old_count = bfc->bucket_count, bytes = bucket_count * sizeof *old;
  gmlkb_block **buckets = (gmlkb_block **)gmlkb_host_alloc(bfc, bytes);
  if (buckets == NULL) return 0;
  memset(buckets, 0, bytes);
  bfc->buckets = buckets;
  bfc->bucket_count = bucket_count;
  for (i = 0; i < old_count; i++) {
    for (block = old[i]; block != NULL; block = chain) {
      chain = block->chain;
      gmlkb_index_insert(bfc, block);
    }
  }
  gmlkb_host_free(bfc, old, old_count * sizeof *old);
  return 1;
}

/* Room for one more block. 0 where host memory is out. */
static int gmlkb_index_reserve(gmlake_bfc *bfc) {
  return bfc->stats.live_count < bfc->bucket_count ||
         gmlkb_index_resize(bfc, bfc->bucket_count * 2);
}

/* ---- >>segment: device memory in large pieces --------------------------------------------------
   The only callers of segment_alloc and segment_free. Taking one is O(1), releasing the cached ones
   linear in the segments. */

/* Bytes of a new segment for a rounded request; 0 on overflow. */
static size_t gmlkb_segment_size(const gmlake_bfc_desc *desc, size_t bytes) {
  size_t segment_bytes;
  if (bytes <= desc->small_bytes_max) return desc->small_segment_bytes;
  if (bytes < desc->large_request_min) return desc->large_segment_bytes;
  return gmlkb_round_up(bytes, desc->large_round_bytes, &segment_bytes) ? segment_bytes : 0;
}

static gmlake_bfc_result gmlkb_segment_ask(const gmlake_bfc *bfc, size_t bytes, void **out_memory) {
  size_t reserved_bytes = bfc->stats.reserved_bytes, limit_bytes = bfc->desc.limit_bytes;
  if (bytes == 0 || bytes > SIZE_MAX - reserved_bytes) return GMLAKE_BFC_ERROR_OUT_OF_DEVICE_MEMORY;
  if (limit_bytes != 0 && reserved_bytes + bytes > limit_bytes)
    return GMLAKE_BFC_ERROR_LIMIT_REACHED;
  *out_memory = bfc->desc.segment_alloc(bfc->desc.user, bytes);
  return *out_memory != NULL ? GMLAKE_BFC_OK : GMLAKE_BFC_ERROR_OUT_OF_DEVICE_MEMORY;
}

/* Gives the memory back and forgets the segment, but not its blocks. */
static void gmlkb_segment_release(gmlake_bfc *bfc, gmlkb_segment *segment) {
  if (segment->previous != NULL)
    segment->previous->next = segment->next;
  else
    bfc->segments = segment->next;
  if (segment->next != NULL) segment->next->previous = segment->previous;
  bfc->stats.reserved_bytes -= segment->bytes;
  bfc->stats.segment_count--;
  bfc->stats.segment_free_count++;
  bfc->desc.segment_free(bfc->desc.user, (void *)segment->address, segment->bytes);
  gmlkb_host_free(bfc, segment, sizeof *segment);
}

/* Releases every segment that is one free block. Returns their bytes. */
static size_t gmlkb_segment_release_cached(gmlake_bfc *bfc) {
  gmlkb_segment *segment, *next;
  size_t released_bytes = 0;
  for (segment = bfc->segments; segment != NULL; segment = next) {
    gmlkb_block *block = segment->first;
    next = segment->next;
    if (block->next != NULL || block->requested_bytes != 0) continue;
    released_bytes += segment->bytes;
    gmlkb_tree_remove(&bfc->free_root[segment->small], block);
    gmlkb_spare_give(bfc, block);
    gmlkb_segment_release(bfc, segment);
  }
  return released_bytes;
}

/* Links a new segment that is one block, in no tree yet. pre: a spare block is reserved. */
static gmlkb_block *gmlkb_segment_link(gmlake_bfc *bfc, gmlkb_segment *segment, uintptr_t stream) {
  gmlkb_block *block = gmlkb_spare_take(bfc);
  block->address = segment->address;
  block->bytes = segment->bytes;
  block->requested_bytes = 0;
  block->stream = stream;
  block->segment = segment;
  block->previous = block->next = NULL;
  segment->first = block;
  segment->previous = NULL;
  segment->next = bfc->segments;
  if (bfc->segments != NULL) bfc->segments->previous = segment;
  bfc->segments = segment;
  gmlkb_add_peak(&bfc->stats.reserved_bytes, &bfc->stats.reserved_bytes_peak, segment->bytes);
  bfc->stats.segment_count++;
  bfc->stats.segment_alloc_count++;
  return block;
}

/* Takes a segment for a rounded request of the stream; steps 3 and 4 of the manual. */
static gmlake_bfc_result gmlkb_segment_take(gmlake_bfc *bfc, size_t bytes, uintptr_t stream,
                                            gmlkb_block **out_block) {
  void *memory = NULL;
  gmlake_bfc_result result;
  gmlkb_segment *segment = (gmlkb_segment *)gmlkb_host_alloc(bfc, sizeof *segment);
  if (segment == NULL) return GMLAKE_BFC_ERROR_OUT_OF_HOST_MEMORY;
  segment->small = bytes <= bfc->desc.small_bytes_max;
  segment->bytes = gmlkb_segment_size(&bfc->desc, bytes);
  result = gmlkb_segment_ask(bfc, segment->bytes, &memory);
  if (result != GMLAKE_BFC_OK) {
    bfc->stats.retry_count++;
    gmlkb_segment_release_cached(bfc);
    result = gmlkb_segment_ask(bfc, segment->bytes, &memory);
  }
  if (result != GMLAKE_BFC_OK) {
    bfc->stats.oom_count++;
    gmlkb_host_free(bfc, segment, sizeof *segment);
    return result;
  }
  segment->address = (uintptr_t)memory;
  GMLAKE_BFC_ASSERT(segment->address <= UINTPTR_MAX - segment->bytes);
  *out_block = gmlkb_segment_link(bfc, segment, stream);
  return GMLAKE_BFC_OK;
}

/* ---- >>block: split, merge, alloc, free --------------------------------------------------------
   Keeps [B1] to [B4]. gmlkb_alloc reserves all host memory first; past that only the device can
   refuse, and nothing has to be undone. */

static int gmlkb_splits(const gmlake_bfc *bfc, const gmlkb_block *block, size_t bytes) {
  size_t remaining_bytes = block->bytes - bytes;
  return block->segment->small ? remaining_bytes >= bfc->desc.small_remainder_min
                               : remaining_bytes > bfc->desc.large_remainder_min;
}

/* Cuts the block to `bytes`; the rest becomes a free block. pre: a spare block is reserved. */
static void gmlkb_split(gmlake_bfc *bfc, gmlkb_block *block, size_t bytes) {
  gmlkb_block *rest = gmlkb_spare_take(bfc);
  rest->address = block->address + bytes;
  rest->bytes = block->bytes - bytes;
  rest->requested_bytes = 0;
  rest->stream = block->stream;
  rest->segment = block->segment;
  rest->previous = block;
  rest->next = block->next;
  if (rest->next != NULL) rest->next->previous = rest;
  block->next = rest;
  block->bytes = bytes;
  gmlkb_tree_insert(&bfc->free_root[block->segment->small], rest);
  bfc->stats.split_count++;
}

/* Makes the block and its upper neighbour one. pre: neither is in the tree or the index. */
static void gmlkb_merge(gmlake_bfc *bfc, gmlkb_block *block) {
  gmlkb_block *upper = block->next;
  block->bytes += upper->bytes;
  block->next = upper->next;
  if (block->next != NULL) block->next->previous = block;
  gmlkb_spare_give(bfc, upper);
  bfc->stats.coalesce_count++;
}

static gmlake_bfc_result gmlkb_alloc(gmlake_bfc *bfc, size_t bytes, uintptr_t stream,
                                     gmlkb_block **out_block) {
  gmlake_bfc_stats *stats = &bfc->stats;
  gmlkb_block *block, **root;
  size_t rounded_bytes;
  if (!gmlkb_round_up(bytes, bfc->desc.round_bytes, &rounded_bytes)) {
    stats->oom_count++;
    return GMLAKE_BFC_ERROR_OUT_OF_DEVICE_MEMORY;
  }
  if (!gmlkb_index_reserve(bfc) || !gmlkb_spare_reserve(bfc, 2)) /* a segment, a remainder */
    return GMLAKE_BFC_ERROR_OUT_OF_HOST_MEMORY;
  root = &bfc->free_root[rounded_bytes <= bfc->desc.small_bytes_max];
  block = gmlkb_tree_fit(*root, stream, rounded_bytes);
  if (block != NULL) {
    gmlkb_tree_remove(root, block);
  } else {
    gmlake_bfc_result result = gmlkb_segment_take(bfc, rounded_bytes, stream, &block);
    if (result != GMLAKE_BFC_OK) return result;
  }
  if (gmlkb_splits(bfc, block, rounded_bytes)) gmlkb_split(bfc, block, rounded_bytes);
  block->requested_bytes = bytes;
  gmlkb_index_insert(bfc, block);
  gmlkb_add_peak(&stats->requested_bytes, &stats->requested_bytes_peak, bytes);
  gmlkb_add_peak(&stats->active_bytes, &stats->active_bytes_peak, block->bytes);
  stats->allocation_count++;
  stats->live_count++;
  *out_block = block;
  return GMLAKE_BFC_OK;
}

/* What is wrong with an address that is not the start of a live block. */
static gmlake_bfc_result gmlkb_classify(const gmlake_bfc *bfc, uintptr_t address) {
  const gmlkb_segment *segment = bfc->segments;
  const gmlkb_block *block;
  while (segment != NULL && address - segment->address >= segment->bytes) segment = segment->next;
  if (segment == NULL) return GMLAKE_BFC_ERROR_UNKNOWN_POINTER;
  block = segment->first;
  while (address - block->address >= block->bytes) block = block->next;
  return block->requested_bytes == 0 ? GMLAKE_BFC_ERROR_DOUBLE_FREE
                                     : GMLAKE_BFC_ERROR_UNKNOWN_POINTER;
}

static gmlake_bfc_result gmlkb_free(gmlake_bfc *bfc, uintptr_t address) {
  gmlkb_block **link = gmlkb_index_find(bfc, address), *block = *link, **root;
  if (block == NULL) return gmlkb_classify(bfc, address);
  *link = block->chain;
  bfc->stats.requested_bytes -= block->requested_bytes;
  bfc->stats.active_bytes -= block->bytes;
  bfc->stats.live_count--;
  bfc->stats.free_count++;
  block->requested_bytes = 0;
  root = &bfc->free_root[block->segment->small];
  if (block->next != NULL && block->next->requested_bytes == 0) {
    gmlkb_tree_remove(root, block->next);
    gmlkb_merge(bfc, block);
  }
  if (block->previous != NULL && block->previous->requested_bytes == 0) {
    block = block->previous;
    gmlkb_tree_remove(root, block);
    gmlkb_merge(bfc, block);
  }
  gmlkb_tree_insert(root, block);
  return GMLAKE_BFC_OK;
}

/* ---- >>check: every invariant ------------------------------------------------------------------
   Functions return 0 where something is broken. The index, the trees and the spare list are walked
   first, with bounds that end the walk of a broken one, so that look-ups in them are then safe.
   They hold exactly the blocks that they should if they hold no more than there are and every block
   of a segment is found where it belongs. */

typedef struct gmlkb_census {
  size_t requested_bytes, active_bytes, reserved_bytes;
  uint64_t block_count, live_count, segment_count;
  uint64_t free_count[2]; /* as free_root */
  uint64_t slab_count;
} gmlkb_census;

/* [B4] No more entries than live blocks. */
static int gmlkb_check_index(const gmlake_bfc *bfc) {
  uint64_t count = 0;
  size_t i;
  for (i = 0; i < bfc->bucket_count; i++) {
    const gmlkb_block *block = bfc->buckets[i];
    for (; block != NULL; block = block->chain) {
      if (++count > bfc->stats.live_count) return 0;
    }
  }
  return 1;
}

/* [B3] Every block is strictly between its bounds (which also ends the walk of a broken tree) and
   not above its parent in priority. Counts the blocks. */
static int gmlkb_check_tree(const gmlkb_block *block, const gmlkb_block *lower,
                            const gmlkb_block *upper, uint64_t *count) {
  if (block == NULL) return 1;
  if (lower != NULL && !gmlkb_less(lower, block)) return 0;
  if (upper != NULL && !gmlkb_less(block, upper)) return 0;
  if (block->left != NULL && block->left->priority > block->priority) return 0;
  if (block->right != NULL && block->right->priority > block->priority) return 0;
  (*count)++;
  return gmlkb_check_tree(block->left, lower, block, count) &&
         gmlkb_check_tree(block->right, block, upper, count);
}

static int gmlkb_tree_has(const gmlkb_block *node, const gmlkb_block *block) {
  while (node != NULL && node != block) node = gmlkb_less(block, node) ? node->left : node->right;
  return node != NULL;
}

/* [B2] to [B4] for one block of a segment, whose lower neighbour is `previous`. */
static int gmlkb_check_block(const gmlake_bfc *bfc, const gmlkb_block *block,
                             const gmlkb_block *previous, gmlkb_census *census) {
  int small = block->segment->small;
  census->block_count++;
  if (block->requested_bytes == 0) {
    census->free_count[small]++;
    if (previous != NULL && previous->requested_bytes == 0) return 0;
    return gmlkb_tree_has(bfc->free_root[small], block);
  }
  census->requested_bytes += block->requested_bytes;
  census->active_bytes += block->bytes;
  census->live_count++;
  return block->requested_bytes <= block->bytes && *gmlkb_index_find(bfc, block->address) == block;
}

/* [B1] */
static int gmlkb_check_segment(const gmlake_bfc *bfc, const gmlkb_segment *segment,
                               gmlkb_census *census) {
  const gmlkb_block *block, *previous = NULL;
  size_t offset = 0;
  for (block = segment->first; block != NULL; block = block->next) {
    if (block->segment != segment || block->previous != previous) return 0;
    if (previous != NULL && block->stream != previous->stream) return 0;
    if (block->address != segment->address + offset || block->bytes == 0) return 0;
    if (block->bytes > segment->bytes - offset) return 0;
    if (block->bytes % bfc->desc.round_bytes != 0) return 0;
    if (!gmlkb_check_block(bfc, block, previous, census)) return 0;
    offset += block->bytes;
    previous = block;
  }
  census->segment_count++;
  census->reserved_bytes += segment->bytes;
  return offset == segment->bytes;
}

/* [B7] and the list of segments. */
static int gmlkb_check_segments(const gmlake_bfc *bfc, gmlkb_census *census) {
  const gmlkb_segment *segment, *other, *previous = NULL;
  for (segment = bfc->segments; segment != NULL; segment = segment->next) {
    if (segment->previous != previous) return 0;
    if (census->segment_count == bfc->stats.segment_count) return 0;
    for (other = bfc->segments; other != segment; other = other->next) {
      if (other->address - segment->address < segment->bytes) return 0;
      if (segment->address - other->address < other->bytes) return 0;
    }
    if (!gmlkb_check_segment(bfc, segment, census)) return 0;
    previous = segment;
  }
  return 1;
}

/* [B5] */
static int gmlkb_check_spare(const gmlake_bfc *bfc, gmlkb_census *census) {
  const gmlkb_slab *slab;
  const gmlkb_block *block = bfc->spare;
  size_t i;
  for (slab = bfc->slabs; slab != NULL; slab = slab->next) census->slab_count++;
  for (i = 0; i < bfc->spare_count; i++) {
    if (block == NULL) return 0;
    block = block->chain;
  }
  return block == NULL;
}

/* [B6] and what the statistics must be. */
static int gmlkb_check_stats(const gmlake_bfc *bfc, const gmlkb_census *census) {
  const gmlake_bfc_stats *stats = &bfc->stats;
  size_t metadata_bytes = sizeof *bfc + bfc->bucket_count * sizeof *bfc->buckets +
                          (size_t)census->slab_count * sizeof(gmlkb_slab) +
                          (size_t)census->segment_count * sizeof(gmlkb_segment);
  return census->requested_bytes == stats->requested_bytes &&
         census->active_bytes == stats->active_bytes &&
         census->reserved_bytes == stats->reserved_bytes &&
         metadata_bytes == stats->metadata_bytes &&
         stats->requested_bytes <= stats->requested_bytes_peak &&
         stats->active_bytes <= stats->active_bytes_peak &&
         stats->reserved_bytes <= stats->reserved_bytes_peak &&
         stats->metadata_bytes <= stats->metadata_bytes_peak &&
         census->live_count == stats->live_count &&
         census->live_count == stats->allocation_count - stats->free_count &&
         census->segment_count == stats->segment_count &&
         census->segment_count == stats->segment_alloc_count - stats->segment_free_count &&
         census->block_count == stats->segment_count + stats->split_count - stats->coalesce_count &&
         census->block_count + bfc->spare_count == census->slab_count * GMLKB_SLAB_BLOCKS;
}

static int gmlkb_check(const gmlake_bfc *bfc) {
  gmlkb_census census;
  uint64_t count[2] = {0, 0};
  memset(&census, 0, sizeof census);
  return gmlkb_check_index(bfc) && gmlkb_check_spare(bfc, &census) &&
         gmlkb_check_tree(bfc->free_root[0], NULL, NULL, &count[0]) &&
         gmlkb_check_tree(bfc->free_root[1], NULL, NULL, &count[1]) &&
         gmlkb_check_segments(bfc, &census) && count[0] == census.free_count[0] &&
         count[1] == census.free_count[1] && gmlkb_check_stats(bfc, &census);
}

/* ---- >>api: validate, lock, delegate, unlock ------------------------------------------------- */

static void gmlkb_default(size_t *value, size_t bytes) {
  if (*value == 0) *value = bytes;
}

static void gmlkb_desc_fill(gmlake_bfc_desc *desc) {
  size_t mib = (size_t)1 << 20;
  gmlkb_default(&desc->round_bytes, 512);
  gmlkb_default(&desc->small_bytes_max, mib);
  gmlkb_default(&desc->small_segment_bytes, 2 * mib);
  gmlkb_default(&desc->large_segment_bytes, 20 * mib);
  gmlkb_default(&desc->large_request_min, 10 * mib);
  gmlkb_default(&desc->large_round_bytes, 2 * mib);
  gmlkb_default(&desc->small_remainder_min, 512);
  gmlkb_default(&desc->large_remainder_min, mib);
}

/* pre: defaults are filled in. */
static int gmlkb_desc_valid(const gmlake_bfc_desc *desc) {
  return desc->segment_alloc != NULL && desc->segment_free != NULL &&
         (desc->malloc_fn == NULL) == (desc->free_fn == NULL) &&
         (desc->flags & ~GMLAKE_BFC_SINGLE_THREADED) == 0 &&
         (desc->round_bytes & (desc->round_bytes - 1)) == 0 &&
         (desc->large_round_bytes & (desc->large_round_bytes - 1)) == 0 &&
         desc->large_round_bytes >= desc->round_bytes &&
         desc->small_segment_bytes % desc->round_bytes == 0 &&
         desc->large_segment_bytes % desc->round_bytes == 0 &&
         desc->small_segment_bytes >= desc->small_bytes_max &&
         desc->large_segment_bytes >= desc->large_request_min;
}

static void gmlkb_lock(gmlake_bfc *bfc) {
  if ((bfc->desc.flags & GMLAKE_BFC_SINGLE_THREADED) == 0) GMLAKE_BFC_MUTEX_LOCK(&bfc->mutex);
}

static void gmlkb_unlock(gmlake_bfc *bfc) {
  if ((bfc->desc.flags & GMLAKE_BFC_SINGLE_THREADED) == 0) GMLAKE_BFC_MUTEX_UNLOCK(&bfc->mutex);
}

/* Index and mutex of a new allocator. 0 where either is refused, with nothing kept. */
static int gmlkb_init(gmlake_bfc *bfc, const gmlake_bfc_desc *desc) {
  memset(bfc, 0, sizeof *bfc);
  bfc->desc = *desc;
  bfc->random = 1;
  bfc->stats.struct_bytes = sizeof bfc->stats;
  gmlkb_add_peak(&bfc->stats.metadata_bytes, &bfc->stats.metadata_bytes_peak, sizeof *bfc);
  if (!gmlkb_index_resize(bfc, GMLKB_FIRST_BUCKETS)) return 0;
  if ((desc->flags & GMLAKE_BFC_SINGLE_THREADED) == 0 && GMLAKE_BFC_MUTEX_INIT(&bfc->mutex) != 0) {
    gmlkb_host_free(bfc, bfc->buckets, bfc->bucket_count * sizeof *bfc->buckets);
    return 0;
  }
  return 1;
}

GMLAKE_BFC_DEF gmlake_bfc_result gmlake_bfc_create(const gmlake_bfc_desc *desc,
                                                   gmlake_bfc **out_bfc) {
  gmlake_bfc_desc filled;
  gmlake_bfc *bfc;
  if (out_bfc == NULL) return GMLAKE_BFC_ERROR_INVALID_ARGUMENT;
  *out_bfc = NULL;
  if (desc == NULL) return GMLAKE_BFC_ERROR_INVALID_ARGUMENT;
  filled = *desc;
  gmlkb_desc_fill(&filled);
  if (!gmlkb_desc_valid(&filled)) return GMLAKE_BFC_ERROR_INVALID_ARGUMENT;
  bfc = (gmlake_bfc *)gmlkb_raw_malloc(&filled, sizeof *bfc);
  if (bfc == NULL) return GMLAKE_BFC_ERROR_OUT_OF_HOST_MEMORY;
  if (!gmlkb_init(bfc, &filled)) {
    gmlkb_raw_free(&filled, bfc);
    return GMLAKE_BFC_ERROR_OUT_OF_HOST_MEMORY;
  }
  *out_bfc = bfc;
  return GMLAKE_BFC_OK;
}

GMLAKE_BFC_DEF gmlake_bfc_result gmlake_bfc_destroy(gmlake_bfc *bfc) {
  gmlake_bfc_desc desc;
  if (bfc == NULL) return GMLAKE_BFC_OK;
  while (bfc->segments != NULL) {
    GMLAKE_BFC_ASSERT(bfc->segments->previous == NULL);
    gmlkb_segment_release(bfc, bfc->segments);
  }
  while (bfc->slabs != NULL) {
    gmlkb_slab *slab = bfc->slabs;
    bfc->slabs = slab->next;
    gmlkb_host_free(bfc, slab, sizeof *slab);
  }
  gmlkb_host_free(bfc, bfc->buckets, bfc->bucket_count * sizeof *bfc->buckets);
  if ((bfc->desc.flags & GMLAKE_BFC_SINGLE_THREADED) == 0) GMLAKE_BFC_MUTEX_DESTROY(&bfc->mutex);
  desc = bfc->desc;
  gmlkb_raw_free(&desc, bfc);
  return GMLAKE_BFC_OK;
}

GMLAKE_BFC_DEF gmlake_bfc_result gmlake_bfc_alloc(gmlake_bfc *bfc, size_t bytes, void *stream,
                                                  void **out_ptr) {
  gmlkb_block *block = NULL;
  gmlake_bfc_result result;
  if (out_ptr == NULL) return GMLAKE_BFC_ERROR_INVALID_ARGUMENT;
  *out_ptr = NULL;
  if (bfc == NULL) return GMLAKE_BFC_ERROR_INVALID_ARGUMENT;
  if (bytes == 0) return GMLAKE_BFC_OK;
  gmlkb_lock(bfc);
  result = gmlkb_alloc(bfc, bytes, (uintptr_t)stream, &block);
  if (result == GMLAKE_BFC_OK) *out_ptr = (void *)block->address;
  gmlkb_unlock(bfc);
  return result;
}

GMLAKE_BFC_DEF gmlake_bfc_result gmlake_bfc_free(gmlake_bfc *bfc, void *ptr) {
  gmlake_bfc_result result;
  if (bfc == NULL) return GMLAKE_BFC_ERROR_INVALID_ARGUMENT;
  if (ptr == NULL) return GMLAKE_BFC_OK;
  gmlkb_lock(bfc);
  result = gmlkb_free(bfc, (uintptr_t)ptr);
  gmlkb_unlock(bfc);
  return result;
}

GMLAKE_BFC_DEF gmlake_bfc_result gmlake_bfc_trim(gmlake_bfc *bfc, size_t *out_released_bytes) {
  size_t released_bytes;
  if (out_released_bytes != NULL) *out_released_bytes = 0;
  if (bfc == NULL) return GMLAKE_BFC_ERROR_INVALID_ARGUMENT;
  gmlkb_lock(bfc);
  released_bytes = gmlkb_segment_release_cached(bfc);
  gmlkb_unlock(bfc);
  if (out_released_bytes != NULL) *out_released_bytes = released_bytes;
  return GMLAKE_BFC_OK;
}

GMLAKE_BFC_DEF gmlake_bfc_result gmlake_bfc_get_stats(gmlake_bfc *bfc,
                                                      gmlake_bfc_stats *out_stats) {
  size_t bytes;
  if (bfc == NULL || out_stats == NULL) return GMLAKE_BFC_ERROR_INVALID_ARGUMENT;
  bytes = out_stats->struct_bytes;
  if (bytes == 0 || bytes > sizeof *out_stats) bytes = sizeof *out_stats;
  if (bytes < sizeof bytes) return GMLAKE_BFC_ERROR_INVALID_ARGUMENT;
  gmlkb_lock(bfc);
  memcpy(out_stats, &bfc->stats, bytes);
  gmlkb_unlock(bfc);
  out_stats->struct_bytes = bytes;
  return GMLAKE_BFC_OK;
}

GMLAKE_BFC_DEF gmlake_bfc_result gmlake_bfc_check(gmlake_bfc *bfc) {
  int sound;
  if (bfc == NULL) return GMLAKE_BFC_ERROR_INVALID_ARGUMENT;
  gmlkb_lock(bfc);
  sound = gmlkb_check(bfc);
  gmlkb_unlock(bfc);
  return sound ? GMLAKE_BFC_OK : GMLAKE_BFC_ERROR_CORRUPT;
}

GMLAKE_BFC_DEF const char *gmlake_bfc_result_name(gmlake_bfc_result result) {
  switch (result) {
  case GMLAKE_BFC_OK:
    return "GMLAKE_BFC_OK";
  case GMLAKE_BFC_ERROR_INVALID_ARGUMENT:
    return "GMLAKE_BFC_ERROR_INVALID_ARGUMENT";
  case GMLAKE_BFC_ERROR_OUT_OF_HOST_MEMORY:
    return "GMLAKE_BFC_ERROR_OUT_OF_HOST_MEMORY";
  case GMLAKE_BFC_ERROR_OUT_OF_DEVICE_MEMORY:
    return "GMLAKE_BFC_ERROR_OUT_OF_DEVICE_MEMORY";
  case GMLAKE_BFC_ERROR_LIMIT_REACHED:
    return "GMLAKE_BFC_ERROR_LIMIT_REACHED";
  case GMLAKE_BFC_ERROR_UNKNOWN_POINTER:
    return "GMLAKE_BFC_ERROR_UNKNOWN_POINTER";
  case GMLAKE_BFC_ERROR_DOUBLE_FREE:
    return "GMLAKE_BFC_ERROR_DOUBLE_FREE";
  case GMLAKE_BFC_ERROR_CORRUPT:
    return "GMLAKE_BFC_ERROR_CORRUPT";
  }
  return "GMLAKE_BFC_ERROR_?";
}

#endif /* GMLAKE_BFC_IMPLEMENTATION */

/* MIT License

Copyright (c) 2026 gmlake contributors

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
associated documentation files (the "Software"), to deal in the Software without restriction,
including without limitation the rights to use, copy, modify, merge, publish, distribute,
sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial
portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES
OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE. */
