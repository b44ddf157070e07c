/* Export and import, beside the rows of tests/play: wrong arguments, backends that cannot share,
   too many descriptors, and other processes, which may be killed. */
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

CASE(importers_may_be_killed) {
  size_t before = open_descriptors(), metadata = 0;
  unsigned round;
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

int main(void) { return run_cases("sharing"); }
