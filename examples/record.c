/* Records what a small program allocates, as a trace to be replayed: usage: record [TRACE]; that
   file must not be there yet. Copy record.h into a program of yours; here it runs on the mock. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"
#include "record.h"

#include <stdio.h>
#include <string.h>

#define MIB ((size_t)1 << 20)
#define STEPS 4
#define LAYERS 6

static const size_t lengths[STEPS] = {20, 28, 23, 36}; /* of the sequences in a step */

static int failed(const char *what, gmlake_result result) {
  if (result == GMLAKE_OK) return 0;
  fprintf(stderr, "%s: %s\n", what, gmlake_result_name(result));
  return 1;
}

/* Activations, as long as the sequences, freed in the order of a backward pass. */
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
  desc.observer = gmlake_recorder_observer(recorder);
  if (failed("create", gmlake_create(&desc, &lake))) return 1;
  for (step = 0; step < STEPS && !status; step++) {
    gmlake_recorder_mark(recorder, "step");
    status = run_step(lake, lengths[step]);
  }
  return failed("destroy", gmlake_destroy(lake)) || status;
}

int main(int argc, char **argv) {
  gmlake_backend *backend;
  gmlake_recorder *recorder;
  char path[1024];
  int status, error;
  snprintf(path, sizeof path, argc > 1 ? "%s" : "%s.gmtrace", argv[argc > 1]);
  if (argc == 1) (void)remove(path); /* this program's own, of its last run */
  recorder = gmlake_recorder_open(path);
  if (!recorder) {
    perror(path);
    return 1;
  }
  status = failed("mock_create", gmlake_mock_create(NULL, &backend));
  if (!status) {
    status = run(backend, recorder);
    gmlake_mock_destroy(backend);
  }
  error = gmlake_recorder_close(recorder);
  if (error) fprintf(stderr, "%s: %s\n", path, strerror(error));
  if (status || error) return 1;
  printf("recorded %d steps of %d allocations; to replay them: build/replay %s\n", STEPS, LAYERS,
         path);
  return 0;
}
