/* Export and import: what another process may have and what not, that it lies at one address with
   its contents, that what was exported is released when it is freed and never serves again, and
   that a failure anywhere leaves neither memory nor descriptors behind. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

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

static void write_to(void *ptr, size_t bytes, unsigned seed) {
  size_t i;
  for (i = 0; i < bytes; i += 512) ((unsigned char *)ptr)[i] = (unsigned char)(seed + i / 512);
}

static void assert_written(const void *ptr, size_t bytes, unsigned seed) {
  size_t i;
  for (i = 0; i < bytes; i += 512)
    assert_int_equal(((const unsigned char *)ptr)[i], (unsigned char)(seed + i / 512));
}

static void a_block_is_shared(void **state) {
  gmlake_allocation_info info;
  gmlake_stats none;
  char *block, *other;
  size_t i;
  (void)state;
  start_sharing(16);
  memset(handles, 0x5A, sizeof(handles));
  block = (char *)take_flags(3 * C - 100, GMLAKE_EXCLUSIVE);
  write_to(block, 3 * C, 1);
  export_now(block, 3);
  assert_int_equal(handles[0].bytes, C);
  for (i = 0; i < sizeof(handles[0].fabric); i++) assert_int_equal(handles[0].fabric[i], 0);
  other = (char *)import_now();
  assert_true(other != block);
  assert_written(other, 3 * C, 1);
  write_to(other, 3 * C, 2);
  assert_written(block, 3 * C, 2);
  assert_ok(gmlake_get_allocation(lake, other, &info));
  assert_int_equal(info.bytes, 3 * C);
  assert_int_equal(info.flags, GMLAKE_EXCLUSIVE);
  assert_null(info.pool);
  assert_int_equal(stats().exported_bytes, 3 * C);
  assert_int_equal(stats().imported_bytes, 3 * C);
  assert_int_equal(stats().reserved_bytes, 6 * C);
  none.struct_bytes = 0;
  assert_ok(gmlake_pool_get_stats(lake, NULL, &none)); /* both are in no pool */
  assert_int_equal(none.live_count, 2);
  assert_int_equal(none.reserved_bytes, 6 * C);
  assert_int_equal(none.exported_bytes, 3 * C);
  assert_int_equal(none.imported_bytes, 3 * C);
  assert_int_equal(census().reserved_address_bytes - 3 * C,
                   (census().reserved_address_bytes - 3 * C) / C * C);
  close_handles();
  drop(block); /* the importer keeps the memory */
  assert_int_equal(stats().exported_bytes, 0);
  assert_written(other, 3 * C, 2);
  drop(other);
  assert_int_equal(stats().imported_bytes, 0);
  assert_int_equal(stats().reserved_bytes, 0);
  assert_int_equal(census().physical_bytes, 0);
  finish();
}

static void a_buffer_is_shared(void **state) {
  gmlake_buffer_desc wanted = buffer_desc(8 * C);
  gmlake_buffer_info info;
  gmlake_buffer *buffer;
  size_t chunk;
  (void)state;
  for (chunk = C; chunk <= 4 * C; chunk *= 4) {
    void *other;
    start_sharing(16);
    wanted.chunk_bytes = chunk;
    step(gmlake_buffer_create(lake, &wanted, &buffer));
    assert_ok(gmlake_buffer_get_info(lake, buffer, &info));
    step_error(gmlake_export(lake, info.ptr, FD, handles, 8, &handle_count), INVALID_ARGUMENT);
    step(gmlake_buffer_commit(lake, buffer, chunk, chunk, LEGACY));
    step_error(gmlake_export(lake, info.ptr, FD, handles, 8, &handle_count), INVALID_ARGUMENT);
    assert_non_null(strstr(last_error().text, "holes"));
    step(gmlake_buffer_resize(lake, buffer, 0, LEGACY));
    step(gmlake_buffer_resize(lake, buffer, 4 * C, LEGACY));
    write_to(info.ptr, 4 * C, 1);
    export_now(info.ptr, 4 * C / chunk);
    export_now((close_handles(), info.ptr), 4 * C / chunk); /* once more */
    other = import_now();
    close_handles();
    assert_written(other, 4 * C, 1);
    assert_int_equal(stats().exported_bytes, 4 * C);
    step(gmlake_buffer_discard(lake, buffer, 0, chunk, LEGACY));
    step(gmlake_buffer_commit(lake, buffer, 0, chunk, LEGACY)); /* other memory */
    write_to(info.ptr, chunk, 7);
    assert_written(other, 4 * C, 1);
    step(gmlake_buffer_destroy(lake, buffer, LEGACY));
    (void)trim_to(0);
    assert_int_equal(stats().exported_bytes, 0);
    assert_written(other, 4 * C, 1);
    drop(other);
    finish();
  }
}

/* What a buffer gave up is returned by frees of such memory, and by trim. The free of any block
   that came next did it, and waited for the driver. */
static void only_frees_of_shared_memory_return_it(void **state) {
  gmlake_buffer_desc wanted = buffer_desc(C);
  gmlake_buffer *buffer;
  gmlake_buffer_info info;
  void *block, *whole;
  (void)state;
  start_sharing(8);
  block = take(C);
  whole = take_flags(C, GMLAKE_EXCLUSIVE);
  export_now(whole, 1);
  close_handles();
  step(gmlake_buffer_create(lake, &wanted, &buffer));
  step(gmlake_buffer_resize(lake, buffer, C, LEGACY));
  step(gmlake_buffer_get_info(lake, buffer, &info));
  export_now(info.ptr, 1);
  close_handles();
  step(gmlake_buffer_resize(lake, buffer, 0, LEGACY));
  assert_int_equal(stats().exported_bytes, 2 * C);
  drop(block);
  assert_int_equal(stats().exported_bytes, 2 * C);
  drop(whole);
  assert_int_equal(stats().exported_bytes, 0);
  finish();
}

/* The lake that ends has them all: blocks, buffers, imports. */
static void what_was_shared_may_be_live_at_the_end(void **state) {
  const size_t before = open_descriptors();
  gmlake_buffer_info info;
  gmlake_buffer *buffer;
  (void)state;
  start_sharing(16);
  buffer = open_buffer(4);
  step(gmlake_buffer_resize(lake, buffer, 2 * C, LEGACY));
  assert_ok(gmlake_buffer_get_info(lake, buffer, &info));
  export_now(info.ptr, 2 * C / info.chunk_bytes);
  (void)import_now();
  close_handles();
  export_now(take_flags(C, GMLAKE_EXCLUSIVE), 1);
  close_handles();
  assert_ok(gmlake_destroy(lake));
  close_mock(); /* which finds what is left */
  assert_int_equal(open_descriptors(), before);
}

static void refused(gmlake_result result, const char *text) {
  assert_error(result, INVALID_ARGUMENT);
  if (!strstr(last_error().text, text)) fail_msg("%s", last_error().text);
  assert_ok(gmlake_check(lake));
}

static void wrong_arguments_are_refused(void **state) {
  const size_t before = open_descriptors();
  gmlake_handle wrong[2];
  size_t count = 77;
  void *small, *block, *other, *ptr = &ptr;
  (void)state;
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

static void too_many_handles_are_refused(void **state) {
  const size_t most = GMLK_GRAINS_MAX / (GMLK_CHUNK_BYTES_MAX / GMLK_GRAIN);
  gmlake_handle *many = (gmlake_handle *)calloc(most + 1, sizeof(*many));
  void *ptr = &ptr;
  size_t i;
  (void)state;
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
static void a_backend_may_not_share(void **state) {
  void *ptr = &ptr;
  (void)state;
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
static void the_limit_on_descriptors_is_named(void **state) {
  struct rlimit limit, small;
  gmlake_result result;
  size_t count;
  void *block, *ptr = NULL;
  (void)state;
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

/* What a program shares of a buffer, with any call that may fail failing; of blocks test_faults
   has it. */
static void share_a_little(void) {
  gmlake_buffer_desc of = buffer_desc(4 * C);
  gmlake_buffer *buffer = NULL;
  gmlake_buffer_info info;
  void *other = NULL;
  of.chunk_bytes = 2 * C;
  if (!gmlake_buffer_create(lake, &of, &buffer) &&
      !gmlake_buffer_resize(lake, buffer, 4 * C, LEGACY) &&
      !gmlake_buffer_get_info(lake, buffer, &info) &&
      !gmlake_export(lake, info.ptr, FD, handles, 8, &handle_count)) {
    (void)gmlake_import(lake, handles, handle_count, &other);
    close_handles();
  }
  assert_ok(gmlake_check(lake));
  while (other && gmlake_free(lake, other, LEGACY) == GMLAKE_ERROR_OUT_OF_HOST_MEMORY) continue;
  assert_ok(gmlake_check(lake));
  while (buffer && gmlake_buffer_destroy(lake, buffer, LEGACY) == GMLAKE_ERROR_OUT_OF_HOST_MEMORY)
    continue;
  (void)gmlake_trim(lake, 0, NULL);
  assert_ok(gmlake_check(lake));
}

static void every_call_may_fail(void **state) {
  static const gmlake_result results[] = {GMLAKE_ERROR_DRIVER, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY,
                                          GMLAKE_ERROR_DEVICE_LOST};
  const size_t before = open_descriptors();
  size_t i;
  long at;
  int stays;
  (void)state;
  for (i = 0; i < 3; i++)
    for (stays = 0; stays < 2; stays++)
      for (at = 1;; at++) {
        uint64_t calls;
        start_sharing(32);
        calls = census().call_count;
        gmlake_mock_fail_at(mock, calls + (uint64_t)at, results[i], stays);
        share_a_little();
        calls = census().call_count - calls;
        gmlake_mock_fail_at(mock, 0, GMLAKE_OK, 0);
        if (results[i] == GMLAKE_ERROR_DRIVER) share_a_little(); /* it goes on */
        (void)gmlake_destroy(lake);
        close_mock();
        if (calls < (uint64_t)at) break;
      }
  for (at = 1; at < 200; at++) {
    long left;
    start_sharing(32);
    host_fail_in = at;
    share_a_little();
    left = host_fail_in;
    host_fail_in = 0;
    share_a_little();
    assert_int_equal(stats().exported_bytes + stats().imported_bytes, 0);
    finish();
    if (left) break;
  }
  assert_true(at > 10 && at < 200);
  assert_int_equal(open_descriptors(), before);
}

/* ---- Processes ------------------------------------------------------------------------------- */

static void send_handles(int to) {
  char control[CMSG_SPACE(8 * sizeof(int))];
  struct iovec part = {handles, handle_count * sizeof(gmlake_handle)};
  struct msghdr message;
  struct cmsghdr *head;
  size_t i;
  memset(&message, 0, sizeof(message));
  memset(control, 0, sizeof(control));
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(handle_count * sizeof(int));
  head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(handle_count * sizeof(int));
  for (i = 0; i < handle_count; i++)
    memcpy(CMSG_DATA(head) + i * sizeof(int), &handles[i].fd, sizeof(int));
  assert_int_equal(sendmsg(to, &message, 0), part.iov_len);
}

static int receive_handles(int from) {
  char control[CMSG_SPACE(8 * sizeof(int))];
  struct iovec part = {handles, sizeof(handles)};
  struct msghdr message;
  ssize_t bytes;
  size_t i;
  memset(&message, 0, sizeof(message));
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  bytes = recvmsg(from, &message, 0);
  if (bytes <= 0) return 0;
  handle_count = (size_t)bytes / sizeof(gmlake_handle);
  for (i = 0; i < handle_count; i++)
    memcpy(&handles[i].fd, CMSG_DATA(CMSG_FIRSTHDR(&message)) + i * sizeof(int), sizeof(int));
  return 1;
}

/* The other process: has what it gets, writes to it, and gives it back, until it is killed. */
static void import_for_ever(int from) {
  gmlake_backend *own;
  gmlake_desc own_desc;
  gmlake *own_lake;
  void *ptr;
  memset(&own_desc, 0, sizeof(own_desc));
  if (gmlake_mock_create(NULL, &own)) _exit(1);
  own_desc.backend = own;
  if (gmlake_create(&own_desc, &own_lake)) _exit(2);
  while (receive_handles(from)) {
    if (gmlake_import(own_lake, handles, handle_count, &ptr)) _exit(3);
    while (handle_count) (void)close(handles[--handle_count].fd);
    *(volatile char *)ptr = 42;
    if (write(from, "x", 1) != 1) _exit(4);
    if (gmlake_free(own_lake, ptr, NULL)) _exit(5);
  }
  _exit(0);
}

static void importers_may_be_killed(void **state) {
  size_t before = open_descriptors(), metadata = 0;
  unsigned round;
  (void)state;
  prepare(64);
  desc.chunk_bytes = 0;
  gmlake_mock_destroy(mock);
  assert_ok(gmlake_mock_create(NULL, &mock));
  desc.backend = mock;
  desc.handle_types = FD;
  open_lake();
  before = open_descriptors();
  for (round = 0; round < 20; round++) {
    int pair[2], status;
    unsigned i, dies_at = round % 5 ? round % 5 : 9;
    pid_t child;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    child = fork();
    assert_true(child >= 0);
    if (!child) {
      (void)close(pair[0]);
      import_for_ever(pair[1]);
    }
    (void)close(pair[1]);
    for (i = 0; i < 9; i++) {
      char *block = (char *)take_flags(4 << 20, GMLAKE_EXCLUSIVE), answer;
      block[0] = 1;
      export_now(block, 2);
      if (i == dies_at) assert_int_equal(kill(child, SIGKILL), 0);
      if (i < dies_at) {
        send_handles(pair[0]);
        assert_int_equal(read(pair[0], &answer, 1), 1);
        assert_int_equal(block[0], 42);
      }
      close_handles();
      drop(block);
    }
    (void)close(pair[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    if (!round) metadata = stats().metadata_bytes;
    assert_int_equal(stats().metadata_bytes, metadata);
    assert_int_equal(stats().reserved_bytes, 0);
    assert_int_equal(census().handle_count, 0);
    assert_int_equal(open_descriptors(), before);
  }
  finish();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_block_is_shared),
      cmocka_unit_test(a_buffer_is_shared),
      cmocka_unit_test(only_frees_of_shared_memory_return_it),
      cmocka_unit_test(what_was_shared_may_be_live_at_the_end),
      cmocka_unit_test(wrong_arguments_are_refused),
      cmocka_unit_test(too_many_handles_are_refused),
      cmocka_unit_test(a_backend_may_not_share),
      cmocka_unit_test(the_limit_on_descriptors_is_named),
      cmocka_unit_test(every_call_may_fail),
      cmocka_unit_test(importers_may_be_killed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
