/* Shows what happens when memory runs out. The lake may hold 40 MiB here. When a request does not
   fit, the lake calls the program's handler, which gives up a part of its cache, and tries again. A
   request that does not fit even without the cache returns an error, and a report of where the
   memory is. gmlake_query says beforehand how a request would end without the handler.

   Compile and run it in the directory of gmlake.h:
     cc -I. examples/running_out.c -o running_out -lpthread -ldl && ./running_out */
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

/* What the program can do without: blocks that it could compute again. */
typedef struct cache {
  void *blocks[4];
  size_t count;
} cache;

/* The handler. The lake calls it without a lock, so it may call the lake. It returns 1 if it has
   freed something, so that the lake tries again, and 0 if it has nothing left. */
static int trim_cache(void *user, gmlake *lake, const gmlake_error_info *info) {
  cache *c = (cache *)user;
  if (c->count == 0) return 0;
  c->count--;
  printf("asked for %zu MiB: dropping a cached block\n", info->asked_bytes / MIB);
  return gmlake_free(lake, c->blocks[c->count], NULL) == GMLAKE_OK;
}

/* All figures are of the moment when the request failed. */
static int print_report(gmlake *lake, gmlake_result result) {
  gmlake_error_info info;
  if (failed("get_last_error", gmlake_get_last_error(lake, &info))) return 1;
  printf(
      "%s: asked %zu, live %zu, free %zu (longest %zu, in holes %zu), stitchable %zu, pending %zu, "
      "elsewhere %zu, reserved %zu, limit %zu MiB\n",
      gmlake_result_name(result), info.asked_bytes / MIB, info.live_bytes / MIB,
      info.free_bytes / MIB, info.largest_bytes / MIB, info.hole_bytes / MIB,
      info.stitchable_bytes / MIB, info.pending_bytes / MIB, info.elsewhere_bytes / MIB,
      info.reserved_bytes / MIB, info.limit_bytes / MIB);
  return 0;
}

/* How a request would end now. Nothing is allocated, and the handler is not asked. */
static int foretell(gmlake *lake, size_t bytes) {
  gmlake_alloc_desc wanted = {0};
  gmlake_query_info answer;
  wanted.bytes = bytes;
  if (failed("query", gmlake_query(lake, &wanted, NULL, &answer))) return 1;
  printf("%zu MiB now: %s, %s, %zu MiB of new memory\n", bytes / MIB,
         gmlake_result_name(answer.result), answer.wait ? "behind a wait" : "at once",
         answer.new_bytes / MIB);
  return 0;
}

static int run(gmlake *lake, cache *c) {
  gmlake_result result;
  void *tensor, *larger;
  for (c->count = 0; c->count < 4; c->count++)
    if (failed("alloc", gmlake_alloc(lake, 8 * MIB, NULL, &c->blocks[c->count]))) return 1;
  if (foretell(lake, 8 * MIB) || foretell(lake, 20 * MIB)) return 1;
  /* 32 of 40 MiB are live. 20 MiB fit when the handler has freed two blocks of 8 MiB. */
  if (failed("alloc", gmlake_alloc(lake, 20 * MIB, NULL, &tensor))) return 1;
  printf("got 20 MiB, %zu blocks are left in the cache\n", c->count);
  /* 40 MiB cannot fit beside the tensor: the handler frees the rest, and then there is an error. */
  result = gmlake_alloc(lake, 40 * MIB, NULL, &larger);
  if (result != GMLAKE_ERROR_LIMIT_REACHED || larger) return 1;
  if (print_report(lake, result)) return 1; /* now: a later error replaces it */
  return failed("free", gmlake_free(lake, tensor, NULL));
}

int main(void) {
  gmlake_desc desc = {0}; /* no desc.backend: this build has only the mock, so the lake makes one */
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
