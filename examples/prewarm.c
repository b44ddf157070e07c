/* Shows the first step with and without a profile: a program runs some steps, and what it learnt is
   kept as a text of some lines. The next run creates that memory ahead, in few large handles. It
   runs on the mock, whose clock tells what the calls of the driver would cost.

   Compile and run it in the directory of gmlake.h:
     cc -I. examples/prewarm.c -o prewarm -lpthread -ldl && ./prewarm */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include <stdio.h>
#include <string.h>

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
  printf("  %-12s %4llu calls, %5.1f ms; %zu MiB held in %llu handles\n", what,
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

/* One run of the program. It is prewarmed by the text, if there is one; then it writes its own. */
static int run(gmlake *lake, char *text) {
  gmlake_profile profile = {0};
  void *weights[LAYERS];
  int i, status;
  if (text[0]) {
    if (failed("load", gmlake_profile_load(text, strlen(text), &profile))) return 1;
    if (failed("prewarm", gmlake_prewarm(lake, &profile, NULL))) return 1;
    tell(lake, "prewarming");
  }
  status = load(lake, weights);
  tell(lake, "loading");
  for (i = 0; i < 2 && !status; i++) {
    status = step(lake);
    tell(lake, i ? "second step" : "first step");
  }
  status |= failed("take", gmlake_profile_take(lake, &profile)); /* between two steps */
  profile.large_percent = 100; /* of this program's own memory all that stays may be large */
  status |= failed("save", gmlake_profile_save(&profile, text, GMLAKE_PROFILE_TEXT_BYTES));
  for (i = 0; i < LAYERS; i++) status |= failed("free", gmlake_free(lake, weights[i], NULL));
  return status;
}

int main(void) {
  char text[GMLAKE_PROFILE_TEXT_BYTES] = ""; /* a program keeps it in a file of its own */
  gmlake_mock_desc mock = {0};
  gmlake_desc desc = {0};
  gmlake_backend *backend;
  gmlake *lake;
  int again, status = 0;
  mock.bookkeeping_only = 1;
  if (failed("mock_create", gmlake_mock_create(&mock, &backend))) return 1;
  desc.backend = backend;
  desc.chunk_bytes = 16 * MIB;
  for (again = 0; again < 2 && !status; again++) {
    printf(again ? "with a profile\n" : "without a profile\n");
    status = failed("create", gmlake_create(&desc, &lake));
    if (status) break;
    status = run(lake, text);
    status |= failed("destroy", gmlake_destroy(lake));
  }
  gmlake_mock_destroy(backend); /* after the lake, which uses it */
  return status;
}
