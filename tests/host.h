/* Host memory for tests: counted, listed, full of anything, with edges that nobody may write; a
   request can be made to fail. Several threads may ask for some. An includer may say by macros of
   these names whether the next request is refused, and what comes of an edge that was written. */
#if !defined(HOST_H)
#define HOST_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct host_block { /* stands before what is handed out */
  struct host_block *next, *prev;
  size_t bytes;
  char edge[32 - 3 * sizeof(size_t)];
} host_block;

static const char host_edge[32] = "nobody may write these 32 bytes";
static host_block *host_blocks; /* that are handed out */
static unsigned char host_lock; /* of the list and the counts */
static size_t host_bytes, host_calls;

#if !defined(HOST_REFUSES)
static long host_fail_in; /* 1: the next allocation fails; 0: none does */
static int host_fails_on; /* 1: and all behind it */

static inline int host_refuses(void) {
  if (!host_fail_in || --host_fail_in) return 0;
  host_fail_in = host_fails_on;
  return 1;
}
#define HOST_REFUSES() host_refuses()
#define HOST_BROKEN(text) ((void)fprintf(stderr, "%s\n", text), abort())
#endif

static inline void host_enter(void) {
  while (__atomic_test_and_set(&host_lock, __ATOMIC_ACQUIRE)) continue;
}

static inline void *host_malloc(void *user, size_t bytes) {
  host_block *b;
  char *ptr;
  (void)user;
  if (HOST_REFUSES() || bytes > (size_t)1 << 31) return NULL;
  b = (host_block *)malloc(sizeof(*b) + bytes + sizeof(host_edge));
  if (!b) abort();
  ptr = (char *)(b + 1);
  b->bytes = bytes;
  memcpy(b->edge, host_edge, sizeof(b->edge));
  memset(ptr, 0xA5, bytes);
  memcpy(ptr + bytes, host_edge, sizeof(host_edge));
  host_enter();
  b->next = host_blocks;
  b->prev = NULL;
  if (b->next) b->next->prev = b;
  host_blocks = b;
  host_bytes += bytes;
  host_calls++;
  __atomic_clear(&host_lock, __ATOMIC_RELEASE);
  return ptr;
}

static inline void host_leave(host_block *b) {
  host_enter();
  if (b->next) b->next->prev = b->prev;
  *(b->prev ? &b->prev->next : &host_blocks) = b->next;
  host_bytes -= b->bytes;
  __atomic_clear(&host_lock, __ATOMIC_RELEASE);
  free(b);
}

static inline void host_free(void *user, void *ptr) {
  host_block *b;
  (void)user;
  if (!ptr) return;
  b = (host_block *)ptr - 1;
  if (memcmp(b->edge, host_edge, sizeof(b->edge)) != 0 ||
      memcmp((char *)ptr + b->bytes, host_edge, sizeof(host_edge)) != 0)
    HOST_BROKEN("host memory was written around");
  memset(ptr, 0x5A, b->bytes);
  host_leave(b);
}

#if defined(GMLAKE_OFFLOAD_H_INCLUDED)
static const gmlake_offload_host counted = {host_malloc, host_free, NULL};
#endif

#endif
