/* Shows when memory that one stream freed can serve again. The same stream gets it at once. Another
   stream gets it when the first stream's work has completed. Until then the lake does what
   desc.cross_stream says: it takes new memory (GMLAKE_GROW_FIRST), or makes the other stream wait
   on the device (GMLAKE_WAIT_FIRST). The program does both and prints how much memory the lake
   holds.

   Compile and run it in the directory of gmlake.h:
     cc -I. examples/two_streams.c -o two_streams -lpthread -ldl && ./two_streams */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include <stdio.h>

#define MIB ((size_t)1 << 20)

static int failed(const char *what, gmlake_result result) {
  if (result == GMLAKE_OK) return 0;
  fprintf(stderr, "%s: %s\n", what, gmlake_result_name(result));
  return 1;
}

static int print_stats(gmlake *lake, const char *when) {
  gmlake_stats stats = {0};
  if (failed("get_stats", gmlake_get_stats(lake, &stats))) return 1;
  printf("  %s: reserved %zu MiB, stream waits %llu\n", when, stats.reserved_bytes / MIB,
         (unsigned long long)stats.stream_wait_count);
  return 0;
}

static int reuse(gmlake *lake, gmlake_stream first, gmlake_stream second) {
  void *a, *b, *c;
  /* The same stream: what is queued there later runs after what used the memory, so b is a. */
  if (failed("alloc", gmlake_alloc(lake, 32 * MIB, first, &a))) return 1;
  if (failed("free", gmlake_free(lake, a, first))) return 1;
  if (failed("alloc", gmlake_alloc(lake, 32 * MIB, first, &b))) return 1;
  if (b != a || print_stats(lake, "own stream, same memory")) return 1;
  /* Another stream: the first one still has work that may use the memory. */
  if (failed("free", gmlake_free(lake, b, first))) return 1;
  if (failed("alloc", gmlake_alloc(lake, 32 * MIB, second, &c))) return 1;
  if (print_stats(lake, "other stream")) return 1;
  return failed("free", gmlake_free(lake, c, second));
}

static int run(gmlake_backend *backend, gmlake_cross_stream mode) {
  gmlake_stream first, second;
  gmlake_desc desc = {0};
  gmlake *lake;
  int status;
  desc.backend = backend;
  desc.cross_stream = mode;
  if (failed("stream_create", gmlake_mock_stream_create(backend, &first))) return 1;
  if (failed("stream_create", gmlake_mock_stream_create(backend, &second))) return 1;
  gmlake_mock_stream_hold(backend, first); /* its work does not end by itself */
  if (failed("create", gmlake_create(&desc, &lake))) return 1;
  status = reuse(lake, first, second);
  gmlake_mock_stream_finish(backend, first); /* now it ends; destroy waits for it */
  return status | failed("destroy", gmlake_destroy(lake));
}

int main(void) {
  gmlake_mock_desc mock = {0};
  gmlake_backend *backend;
  int status;
  mock.capacity_bytes = 128 * MIB;
  if (failed("mock_create", gmlake_mock_create(&mock, &backend))) return 1;
  printf("GMLAKE_GROW_FIRST\n");
  status = run(backend, GMLAKE_GROW_FIRST);
  printf("GMLAKE_WAIT_FIRST\n");
  status |= run(backend, GMLAKE_WAIT_FIRST);
  gmlake_mock_destroy(backend);
  return status;
}
