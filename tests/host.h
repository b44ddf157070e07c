/* Host memory for tests: counted, full of anything, with edges that nobody may write; a request can
   be made to fail. Several threads may ask for some. */
#if !defined(HOST_H)
#define HOST_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOST_EDGE 16 /* bytes before and behind each allocation */

static size_t host_bytes, host_calls;
static long host_fail_in; /* 1: the next allocation fails; 0: none does */
static int host_fails_on; /* 1: and all behind it */

static inline int host_refuses(void) {
  if (!host_fail_in || --host_fail_in) return 0;
  host_fail_in = host_fails_on;
  return 1;
}

static inline void *host_malloc(void *user, size_t bytes) {
  char *ptr;
  (void)user;
  (void)__atomic_add_fetch(&host_calls, 1, __ATOMIC_RELAXED);
  if (host_refuses() || bytes > (size_t)1 << 31) return NULL;
  ptr = (char *)malloc(bytes + 2 * HOST_EDGE);
  if (!ptr) abort();
  memset(ptr, 0x5A, HOST_EDGE);
  memcpy(ptr, &bytes, sizeof(bytes));
  memset(ptr + HOST_EDGE, 0xA5, bytes);
  memset(ptr + HOST_EDGE + bytes, 0x5A, HOST_EDGE);
  (void)__atomic_add_fetch(&host_bytes, bytes, __ATOMIC_RELAXED);
  return ptr + HOST_EDGE;
}

static inline void host_free(void *user, void *ptr) {
  char *begin = (char *)ptr - HOST_EDGE, edge[HOST_EDGE];
  size_t bytes;
  (void)user;
  if (!ptr) return;
  memcpy(&bytes, begin, sizeof(bytes));
  memset(edge, 0x5A, sizeof(edge));
  if (memcmp(begin + sizeof(bytes), edge, HOST_EDGE - sizeof(bytes)) != 0 ||
      memcmp(begin + HOST_EDGE + bytes, edge, HOST_EDGE) != 0) {
    (void)fprintf(stderr, "bytes around an allocation of %zu bytes were written\n", bytes);
    abort();
  }
  memset(ptr, 0x5A, bytes);
  (void)__atomic_sub_fetch(&host_bytes, bytes, __ATOMIC_RELAXED);
  free(begin);
}

#if defined(GMLAKE_OFFLOAD_H_INCLUDED)
static const gmlake_offload_host counted = {host_malloc, host_free, NULL};
#endif

#endif
