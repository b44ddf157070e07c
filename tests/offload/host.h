/* Host memory for the tests of gmlake_offload.h: counted, and a request can be made to fail. */
#if !defined(OFFLOAD_HOST_H)
#define OFFLOAD_HOST_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOST_EDGE 16 /* bytes before and behind each allocation; nobody may write them */

static size_t host_bytes, host_calls;
static long host_fail_in; /* 1: the next allocation fails; 0: none does */

static void *host_malloc(void *user, size_t bytes) {
  char *ptr;
  (void)user;
  host_calls++;
  if (host_fail_in && !--host_fail_in) return NULL;
  if (bytes > (size_t)1 << 31) return NULL;
  ptr = (char *)malloc(bytes + 2 * HOST_EDGE);
  if (!ptr) abort();
  memset(ptr, 0x5A, HOST_EDGE);
  memcpy(ptr, &bytes, sizeof bytes);
  memset(ptr + HOST_EDGE + bytes, 0x5A, HOST_EDGE);
  host_bytes += bytes;
  return ptr + HOST_EDGE;
}

static void host_free(void *user, void *ptr) {
  char *begin = (char *)ptr - HOST_EDGE, edge[HOST_EDGE];
  size_t bytes;
  (void)user;
  memcpy(&bytes, begin, sizeof bytes);
  memset(edge, 0x5A, sizeof edge);
  if (memcmp(begin + sizeof bytes, edge, HOST_EDGE - sizeof bytes) != 0 ||
      memcmp(begin + HOST_EDGE + bytes, edge, HOST_EDGE) != 0) {
    (void)fprintf(stderr, "bytes around an allocation of %zu bytes were written\n", bytes);
    abort();
  }
  host_bytes -= bytes;
  free(begin);
}

static const gmlake_offload_host counted = {host_malloc, host_free, NULL};

#endif
