/* Shows the first step with and without a profile: a program runs some steps, and the most that it
   held is kept in a file. The next run has that memory created ahead. It runs on the mock, whose
   clock tells what the calls of the driver would cost.

   Compile and run it in the directory of gmlake.h:
     cc -I. examples/prewarm.c -o prewarm -lpthread -ldl && ./prewarm */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "profile.h"

#define MIB ((size_t)1 << 20)
#define LAYERS 48

static int failed(const char *what, gmlake_result result) {
  if (result == GMLAKE_OK) return 0;
  fprintf(stderr, "%s: %s\n", what, gmlake_result_name(result));
  return 1;
}

/* The driver's calls since the last time that this was called. */
static void tell(gmlake *lake, const char *what) {
  static unsigned long long calls, ns;
  gmlake_stats stats = {0};
  if (gmlake_get_stats(lake, &stats)) return;
  if (stats.driver_call_count < calls) calls = ns = 0; /* another lake */
  printf("  %-12s %4llu calls, %5.1f ms; %zu MiB held in %llu chunks\n", what,
         stats.driver_call_count - calls, (double)(stats.driver_ns - ns) / 1e6,
         stats.reserved_bytes / MIB, (unsigned long long)stats.chunk_count);
  calls = stats.driver_call_count;
  ns = stats.driver_ns;
}

/* Weights that stay. */
static int load(gmlake *lake, void **weights) {
  int i, status = 0;
  for (i = 0; i < LAYERS; i++)
    status |= failed("alloc", gmlake_alloc(lake, 90 * MIB, NULL, &weights[i]));
  return status;
}

/* Activations that come and go. */
static int step(gmlake *lake) {
  void *activations[LAYERS];
  int i, status = 0;
  for (i = 0; i < LAYERS; i++)
    status |= failed("alloc", gmlake_alloc(lake, 50 * MIB, NULL, &activations[i]));
  for (i = LAYERS; i--;) status |= failed("free", gmlake_free(lake, activations[i], NULL));
  return status;
}

/* One run of the program. It begins with what the file tells of; then it writes its own. */
static int run(gmlake *lake, const char *path) {
  void *weights[LAYERS];
  size_t bytes;
  int i, status;
  if (profile_read(path, &bytes)) {
    if (failed("reserve", gmlake_reserve(lake, NULL, bytes, NULL))) return 1;
    tell(lake, "prewarming");
  }
  status = load(lake, weights);
  tell(lake, "loading");
  for (i = 0; i < 2 && !status; i++) {
    status = step(lake);
    tell(lake, i ? "second step" : "first step");
  }
  status |= !profile_write(path, lake);
  for (i = 0; i < LAYERS; i++) status |= failed("free", gmlake_free(lake, weights[i], NULL));
  return status;
}

int main(void) {
  const char *const path = "prewarm.profile";
  gmlake_mock_desc mock = {0};
  gmlake_desc desc = {0};
  gmlake_backend *backend;
  gmlake *lake;
  int again, status = 0;
  mock.bookkeeping_only = 1;
  if (failed("mock_create", gmlake_mock_create(&mock, &backend))) return 1;
  desc.backend = backend;
  desc.chunk_bytes = 16 * MIB;
  (void)remove(path);
  for (again = 0; again < 2 && !status; again++) {
    printf(again ? "with a profile\n" : "without a profile\n");
    status = failed("create", gmlake_create(&desc, &lake));
    if (status) break;
    status = run(lake, path);
    status |= failed("destroy", gmlake_destroy(lake));
  }
  (void)remove(path);
  gmlake_mock_destroy(backend); /* after the lake, which uses it */
  return status;
}
