/* Shows how to record the allocations of a program, so that build/replay can show how much memory
   each allocator would have needed for them. The program trains a made-up model for four steps, on
   the mock. Usage: record [TRACE]. TRACE is the file to write; it must not exist yet. `record
   --cost` prints what an allocation or a free takes with and without the recorder, which then
   writes into /dev/null; compile it with -O2.

   Compile and run it in the directory of gmlake.h, then replay the trace (`make` builds
   build/replay):
     cc -I. -Iexamples examples/record.c -o record -lpthread -ldl
     ./record run.gmtrace && build/replay run.gmtrace

   To record your own program, copy record.h into it. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"
#include "record.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define MIB ((size_t)1 << 20)
#define STEPS 4
#define LAYERS 6

static const size_t lengths[STEPS] = {20, 28, 23, 36}; /* of each step's sequences */

static int failed(const char *what, gmlake_result result) {
  if (result == GMLAKE_OK) return 0;
  fprintf(stderr, "%s: %s\n", what, gmlake_result_name(result));
  return 1;
}

/* A forward pass allocates an activation for each layer, as long as the sequences. The backward
   pass frees them in reverse order. */
static int run_step(gmlake *lake, size_t length) {
  void *activations[LAYERS];
  size_t i;
  for (i = 0; i < LAYERS; i++)
    if (failed("alloc", gmlake_alloc(lake, length * MIB, NULL, &activations[i]))) return 1;
  while (i-- > 0)
    if (failed("free", gmlake_free(lake, activations[i], NULL))) return 1;
  return 0;
}

/* Nanoseconds of processor time of a call, as random blocks come and go; 0: it failed. */
static double cost_of(gmlake_backend *backend, gmlake_recorder *recorder) {
  const unsigned calls = 2000000;
  void *blocks[64] = {NULL};
  int is_live[64] = {0};
  gmlake_desc desc = {0};
  gmlake *lake;
  unsigned random = 1, i;
  clock_t begin;
  desc.backend = backend;
  gmlake_recorder_attach(recorder, &desc);
  if (failed("create", gmlake_create(&desc, &lake))) return 0;
  begin = clock();
  for (i = 0; i < calls; i++) {
    void **block = &blocks[(random = random * 1664525 + 1013904223) >> 26];
    const gmlake_result result = *block
                                     ? gmlake_free(lake, *block, NULL)
                                     : gmlake_alloc(lake, 512 + (random >> 8) % 65536, NULL, block);
    if (failed("a call", result)) return 0;
    if (is_live[block - blocks]) *block = NULL;
    is_live[block - blocks] = !is_live[block - blocks];
  }
  begin = clock() - begin;
  (void)gmlake_destroy(lake);
  return (double)begin / CLOCKS_PER_SEC * 1e9 / calls;
}

static int run(gmlake_backend *backend, gmlake_recorder *recorder) {
  gmlake_desc desc = {0};
  gmlake *lake;
  size_t step;
  int status = 0;
  desc.backend = backend;
  gmlake_recorder_attach(recorder, &desc); /* the lake tells it of every allocation */
  if (failed("create", gmlake_create(&desc, &lake))) return 1;
  for (step = 0; step < STEPS && !status; step++) {
    gmlake_recorder_mark(recorder, "step"); /* an iteration begins, for replay --iterations */
    status = run_step(lake, lengths[step]);
  }
  return failed("destroy", gmlake_destroy(lake)) || status;
}

/* The best of some runs each: other programs on the machine only add to it. */
static int print_cost(void) {
  gmlake_backend *backend = NULL;
  double plain = 0, recorded = 0;
  int i;
  if (failed("mock_create", gmlake_mock_create(NULL, &backend))) return 1;
  for (i = 0; i < 7; i++) {
    gmlake_recorder *const recorder = gmlake_recorder_open("/dev/null");
    double ns = cost_of(backend, NULL);
    if (!i || ns < plain) plain = ns;
    ns = cost_of(backend, recorder);
    if (!i || ns < recorded) recorded = ns;
    if (!recorder || gmlake_recorder_close(recorder)) return 1;
  }
  gmlake_mock_destroy(backend);
  printf("a call: %.1f ns, with the recorder %.1f ns\n", plain, recorded);
  return 0;
}

int main(int argc, char **argv) {
  gmlake_backend *backend = NULL;
  gmlake_recorder *recorder;
  char path[1024];
  int status, error;
  if (argc > 1 && !strcmp(argv[1], "--cost")) return print_cost();
  snprintf(path, sizeof path, argc > 1 ? "%s" : "%s.gmtrace", argv[argc > 1]);
  if (argc == 1) (void)remove(path); /* the program's own trace, from its last run */
  recorder = gmlake_recorder_open(path);
  if (!recorder) {
    perror(path);
    return 1;
  }
  status = failed("mock_create", gmlake_mock_create(NULL, &backend));
  if (!status) status = run(backend, recorder);
  error = gmlake_recorder_close(recorder); /* after the lake is destroyed, before the backend is */
  gmlake_mock_destroy(backend);
  if (error) fprintf(stderr, "%s: %s\n", path, strerror(error));
  if (status || error) return 1;
  printf("recorded %d steps of %d allocations; to replay them: build/replay %s\n", STEPS, LAYERS,
         path);
  return 0;
}
