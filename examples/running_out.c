/* When memory runs out the lake asks a handler, which here gives up an inference engine's cache;
   a request that does not fit even then fails with a report of where the memory is. */
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

typedef struct cache {
  void *blocks[4];
  size_t count;
} cache;

/* Non-zero: something was freed, so the lake shall try again. */
static int trim_cache(void *user, gmlake *lake, const gmlake_error_info *info) {
  cache *c = (cache *)user;
  if (c->count == 0) return 0;
  c->count--;
  printf("asked for %zu MiB: dropping a cached block\n", info->asked_bytes / MIB);
  return gmlake_free(lake, c->blocks[c->count], NULL) == GMLAKE_OK;
}

static int print_report(gmlake *lake, gmlake_result result) {
  gmlake_error_info info;
  if (failed("get_last_error", gmlake_get_last_error(lake, &info))) return 1;
  printf(
      "%s: asked %zu, live %zu, free %zu, stitchable %zu, pending %zu, reserved %zu, limit %zu "
      "MiB\n",
      gmlake_result_name(result), info.asked_bytes / MIB, info.live_bytes / MIB,
      info.free_bytes / MIB, info.stitchable_bytes / MIB, info.pending_bytes / MIB,
      info.reserved_bytes / MIB, info.limit_bytes / MIB);
  return 0;
}

static int run(gmlake *lake, cache *c) {
  gmlake_result result;
  void *tensor, *larger;
  for (c->count = 0; c->count < 4; c->count++)
    if (failed("alloc", gmlake_alloc(lake, 8 * MIB, NULL, &c->blocks[c->count]))) return 1;
  if (failed("alloc", gmlake_alloc(lake, 20 * MIB, NULL, &tensor))) return 1;
  printf("got 20 MiB, %zu blocks are left in the cache\n", c->count);
  result = gmlake_alloc(lake, 40 * MIB, NULL, &larger);
  if (result != GMLAKE_ERROR_LIMIT_REACHED || larger) return 1;
  if (print_report(lake, result)) return 1; /* before another call has an error of its own */
  return failed("free", gmlake_free(lake, tensor, NULL));
}

int main(void) {
  gmlake_desc desc = {0}; /* no backend: a mock-only build makes a mock of its own */
  gmlake *lake;
  cache c = {0};
  int status;
  desc.limit_bytes = 40 * MIB;
  desc.chunk_bytes = 2 * MIB;
  desc.oom.fn = trim_cache;
  desc.oom.user = &c;
  if (failed("create", gmlake_create(&desc, &lake))) return 1;
  status = run(lake, &c);
  return status | failed("destroy", gmlake_destroy(lake));
}
