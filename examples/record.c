/* Shows how to record the allocations of a program, so that build/replay can show how much memory
   each allocator would have needed for them. The program trains a made-up model for four steps, on
   the mock. Usage: record [TRACE]. TRACE is the file to write; it must not exist yet.

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

int main(int argc, char **argv) {
  gmlake_backend *backend = NULL;
  gmlake_recorder *recorder;
  char path[1024];
  int status, error;
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
