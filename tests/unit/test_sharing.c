/* Export and import, beside the rows of tests/play: wrong arguments, backends that cannot share,
   and too many descriptors. */
#include "fixture.h"

#include <fcntl.h>
#include <sys/resource.h>

#define FD GMLAKE_HANDLE_POSIX_FD

static gmlake_handle handles[8];
static size_t handle_count;

static void start_sharing(size_t chunks) {
  prepare(chunks);
  desc.handle_types = FD;
  open_lake();
}

static size_t open_descriptors(void) {
  size_t count = 0;
  int fd;
  for (fd = 0; fd < 1024; fd++) count += fcntl(fd, F_GETFD) >= 0;
  return count;
}

static void close_handles(void) {
  while (handle_count) assert_int_equal(close(handles[--handle_count].fd), 0);
}

static void export_now(const void *ptr, size_t count) {
  step(gmlake_export(lake, ptr, FD, handles, 8, &handle_count));
  assert_int_equal(handle_count, count);
}

static void *import_now(void) {
  void *ptr = NULL;
  step(gmlake_import(lake, handles, handle_count, &ptr));
  assert_non_null(ptr);
  return ptr;
}

static void refused(gmlake_result result, const char *text) {
  assert_error(result, INVALID_ARGUMENT);
  if (!strstr(last_error().text, text)) fail_msg("%s", last_error().text);
  assert_ok(gmlake_check(lake));
}

CASE(wrong_arguments_are_refused) {
  const size_t before = open_descriptors();
  gmlake_handle wrong[2];
  size_t count = 77;
  void *small, *block, *other, *ptr = &ptr;
  start_sharing(16);
  small = take(C / 2);
  block = take_flags(2 * C, GMLAKE_EXCLUSIVE);
  refused(gmlake_export(lake, small, FD, handles, 8, &count), "GMLAKE_EXCLUSIVE");
  refused(gmlake_export(lake, block, GMLAKE_HANDLE_FABRIC, handles, 8, &count), "handle_types");
  refused(gmlake_export(lake, block, 4, handles, 8, &count), "handle_type is 4");
  step_error(gmlake_export(lake, block, GMLAKE_HANDLE_WIN32, handles, 8, &count), UNSUPPORTED);
  step_error(gmlake_export(lake, (char *)block + C, FD, handles, 8, &count), UNKNOWN_POINTER);
  assert_int_equal(count, 77);
  step(gmlake_export(lake, block, FD, handles, 1, &count)); /* too small an array: only asks */
  assert_int_equal(count, 2);
  assert_int_equal(stats().exported_bytes, 0);
  export_now(block, 2);
  other = import_now();
  refused(gmlake_export(lake, other, FD, wrong, 2, &count), "another process's");
  memcpy(wrong, handles, sizeof(wrong));
  wrong[1].bytes = 2 * C;
  refused(gmlake_import(lake, wrong, 2, &ptr), "handles[1]");
  assert_null(ptr);
  wrong[0].bytes = wrong[1].bytes = 3 * C;
  refused(gmlake_import(lake, wrong, 2, &ptr), "power of two");
  wrong[0].bytes = wrong[1].bytes = 2 * C;
  step_error(gmlake_import(lake, wrong, 2, &ptr), DRIVER); /* the handle has C */
  wrong[0].bytes = wrong[1].bytes = C;
  wrong[1].type = 3;
  refused(gmlake_import(lake, wrong, 2, &ptr), "handles[1] has type 3");
  wrong[1].type = FD;
  wrong[1].fd = -1;
  step_error(gmlake_import(lake, wrong, 2, &ptr), DRIVER);
  assert_non_null(strstr(last_error().text, "handles[1] (type 1, descriptor -1)"));
  assert_string_equal(last_error().call, "import_handle");
  assert_int_not_equal(last_error().driver_code, 0);
  refused(gmlake_import(lake, wrong, 0, &ptr), "count is 0");
  assert_int_equal(stats().quarantined_bytes, 0);
  drop_these(small, block, other);
  close_handles();
  finish();
  assert_int_equal(open_descriptors(), before);
}

CASE(too_many_handles_are_refused) {
  const size_t most = GMLK_GRAINS_MAX / (GMLK_CHUNK_BYTES_MAX / GMLK_GRAIN);
  gmlake_handle *many = (gmlake_handle *)calloc(most + 1, sizeof(*many));
  void *ptr = &ptr;
  size_t i;
  assert_non_null(many);
  start_sharing(4);
  for (i = 0; i <= most; i++) {
    many[i].type = FD;
    many[i].bytes = GMLK_CHUNK_BYTES_MAX;
  }
  refused(gmlake_import(lake, many, most + 1, &ptr), "so many handles");
  assert_null(ptr);
  free(many);
  finish();
}

/* A backend's table may end before the functions, or have none there. */
CASE(a_backend_may_not_share) {
  void *ptr = &ptr;
  prepare(8);
  use_hooks();
  hooked.import_handle = NULL;
  hooked.export_handle = NULL;
  desc.handle_types = FD;
  open_lake();
  memset(handles, 0, sizeof(handles));
  handles[0].type = FD;
  handles[0].bytes = C;
  step_error(gmlake_import(lake, handles, 1, &ptr), UNSUPPORTED);
  assert_null(ptr);
  step_error(gmlake_export(lake, take_flags(C, GMLAKE_EXCLUSIVE), FD, handles, 8, &handle_count),
             UNSUPPORTED);
  assert_ok(gmlake_destroy(lake));
  close_mock();
}

/* The text names what is too much, and the number. The mock has a descriptor for each chunk that
   can be exported: where none is left, that is told, and not taken for a lack of memory. */
CASE(the_limit_on_descriptors_is_named) {
  struct rlimit limit, small;
  gmlake_result result;
  size_t count;
  void *block, *ptr = NULL;
  start_sharing(8);
  block = take_flags(2 * C, GMLAKE_EXCLUSIVE);
  export_now(block, 2);
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
  small = limit;
  small.rlim_cur = (rlim_t)handles[1].fd + 2; /* one more fits */
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
  step_error(gmlake_export(lake, block, FD, handles + 2, 6, &count), DRIVER);
  assert_non_null(strstr(last_error().text, "descriptors"));
  step_error(gmlake_import(lake, handles, 2, &ptr), DRIVER);
  assert_non_null(strstr(last_error().text, "descriptors"));
  result = gmlake_alloc(lake, 3 * C, LEGACY, &ptr);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
  assert_int_equal(result, GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
  assert_int_equal(last_error().driver_code, 304);
  assert_non_null(strstr(last_error().text, "ulimit -n"));
  drop(import_now());
  close_handles();
  drop(block);
  finish();
}

int main(void) { return run_cases("sharing"); }
