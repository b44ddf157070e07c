/* Shows how to put code between the lake and the driver. A lake reaches the driver only through a
   backend, which is a table of functions. The backend here wraps the mock's: each function calls
   the mock's function, and prints its name, its result, and the time that the call would take on a
   GPU. The program prints the driver calls of one allocation in this way.

   Compile and run it in the directory of gmlake.h:
     cc -I. examples/custom_backend.c -o custom_backend -lpthread -ldl && ./custom_backend */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include <stdio.h>

/* The functions of the table that have one form: CALL(name, (parameters), (arguments for the
   mock)). `of` is the mock's own data. */
#define CALLS(CALL)                                                                                \
  CALL(get_properties, (void *user, gmlake_device_properties *out, int *code), (of, out, code))    \
  CALL(get_memory_info, (void *user, size_t *a, size_t *b, int *code), (of, a, b, code))           \
  CALL(reserve, (void *user, size_t bytes, size_t alignment, uint64_t *at, int *code),             \
       (of, bytes, alignment, at, code))                                                           \
  CALL(unreserve, (void *user, uint64_t at, size_t bytes, int *code), (of, at, bytes, code))       \
  CALL(create, (void *user, size_t bytes, unsigned types, uint64_t *handle, int *code),            \
       (of, bytes, types, handle, code))                                                           \
  CALL(release, (void *user, uint64_t handle, int *code), (of, handle, code))                      \
  CALL(map, (void *user, uint64_t at, size_t bytes, uint64_t handle, int *code),                   \
       (of, at, bytes, handle, code))                                                              \
  CALL(unmap, (void *user, uint64_t at, size_t bytes, int *code), (of, at, bytes, code))           \
  CALL(set_access, (void *user, uint64_t at, size_t bytes, const int *peers, size_t n, int *code), \
       (of, at, bytes, peers, n, code))                                                            \
  CALL(event_create, (void *user, void **event, int *code), (of, event, code))                     \
  CALL(event_destroy, (void *user, void *event, int *code), (of, event, code))                     \
  CALL(event_record, (void *user, void *event, gmlake_stream stream, int *code),                   \
       (of, event, stream, code))                                                                  \
  CALL(event_query, (void *user, void *event, int *done, int *code), (of, event, done, code))      \
  CALL(event_wait, (void *user, void *event, int *code), (of, event, code))                        \
  CALL(stream_wait, (void *user, gmlake_stream stream, void *event, int *code),                    \
       (of, stream, event, code))                                                                  \
  CALL(capture_exchange, (void *user, int *mode, int *code), (of, mode, code))

/* Makes one function of the table. The clock of the mock goes on by what a call costs. */
#define DEFINE(name, params, args)                                     \
  static gmlake_result log_##name params {                             \
    const gmlake_backend *mock = (const gmlake_backend *)user;         \
    void *of = mock->user;                                             \
    const uint64_t start = mock->clock_ns(of);                         \
    const gmlake_result result = mock->name args;                      \
    printf("  %-16s %s, %.1f us\n", #name, gmlake_result_name(result), \
           (double)(mock->clock_ns(of) - start) / 1000);               \
    return result;                                                     \
  }
CALLS(DEFINE)

static uint64_t log_clock_ns(void *user) {
  const gmlake_backend *mock = (const gmlake_backend *)user;
  return mock->clock_ns(mock->user);
}

/* The entry of that function in the table. */
#define ENTRY(name, params, args) .name = log_##name,

static int run(const gmlake_backend *backend) {
  gmlake_desc desc = {0};
  gmlake *lake;
  void *tensor;
  desc.backend = backend;
  puts("gmlake_create");
  if (gmlake_create(&desc, &lake) != GMLAKE_OK) return 1;
  puts("gmlake_alloc of 3 MiB");
  if (gmlake_alloc(lake, (size_t)3 << 20, NULL, &tensor) != GMLAKE_OK) return 1;
  puts("gmlake_free");
  if (gmlake_free(lake, tensor, NULL) != GMLAKE_OK) return 1;
  puts("gmlake_destroy");
  return gmlake_destroy(lake) != GMLAKE_OK;
}

int main(void) {
  gmlake_backend *mock = NULL;
  const int failed = gmlake_mock_create(NULL, &mock) != GMLAKE_OK;
  const gmlake_backend backend = {.struct_bytes = sizeof backend,
                                  .abi_version = GMLAKE_BACKEND_ABI,
                                  .user = mock,
                                  CALLS(ENTRY).clock_ns = log_clock_ns};
  const int status = failed || run(&backend);
  gmlake_mock_destroy(mock);
  return status;
}
