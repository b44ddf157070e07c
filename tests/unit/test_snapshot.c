/* examples/snapshot.h: the document has every entry of the map; it is written in fixed memory, and
   in the out-of-memory handler; failures are clean errors. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "examples/snapshot.h"

#include "fixture.h"

#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static struct fixture {
  char *text; /* what the sink got */
  size_t bytes, capacity;
  size_t refuse_at; /* the sink ends the document at this many bytes; 0: never */
  int calls, in_handler;
  void *memory; /* for the handler */
  size_t memory_bytes;
} f;

static int sink(void *user, const char *text, size_t bytes) {
  assert_ptr_equal(user, &f);
  f.calls++;
  if (f.refuse_at && f.bytes + bytes >= f.refuse_at) return 1;
  if (f.bytes + bytes >= f.capacity) {
    f.capacity = 2 * (f.bytes + bytes);
    f.text = (char *)realloc(f.text, f.capacity);
    assert_non_null(f.text);
  }
  memcpy(f.text + f.bytes, text, bytes);
  f.bytes += bytes;
  f.text[f.bytes] = '\0';
  return 0;
}

static int on_oom(void *user, gmlake *lake, const gmlake_error_info *info) {
  gmlake_snapshot_desc desc = {0};
  (void)user;
  desc.error = info;
  desc.memory = f.memory;
  desc.memory_bytes = f.memory_bytes;
  assert_int_equal(gmlake_snapshot_write(lake, &desc, sink, &f), 0);
  f.in_handler++;
  return 0;
}

static int set_up(void **state) {
  (void)state;
  memset(&f, 0, sizeof f);
  prepare_books(512 * MIB, 0, GMLAKE_MOCK_COSTS_ALONE);
  desc.chunk_bytes = 2 * MIB;
  desc.limit_bytes = 64 * MIB;
  desc.oom.fn = on_oom;
  open_lake();
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  finish();
  free(f.memory);
  free(f.text);
  return 0;
}

static void *take_named(size_t bytes, const char *label) {
  gmlake_alloc_desc wanted = request(bytes, 0, NULL);
  wanted.label = label;
  wanted.user_data = label ? UINT64_C(0xFEDCBA9876543210) : 0;
  return take_with(&wanted, LEGACY);
}

static void reserve_memory(void) {
  f.memory_bytes = gmlake_snapshot_bytes(lake);
  assert_true(f.memory_bytes > GMLAKE_SNAPSHOT_TEXT);
  f.memory = malloc(f.memory_bytes);
  assert_non_null(f.memory);
}

/* How many rows the list of that name has. */
static size_t rows(const char *name) {
  char head[64];
  const char *at;
  size_t count = 0;
  snprintf(head, sizeof head, "\n\"%s\": [\n", name);
  at = strstr(f.text, head);
  if (!at) return 0;
  for (at += strlen(head); *at == '['; at = strchr(at, '\n') + 1) {
    count++;
    if (!strchr(at, '\n')) break;
  }
  return count;
}

CASE_BETWEEN(set_up, tear_down, every_entry_of_the_map_has_a_row) {
  static const char *const names[] = {"",        "blocks", "holes",  "windows",
                                      "buffers", "pieces", "chunks", "spans"};
  size_t counts[GMLAKE_KIND_IDLE_PIECE + 1], count, i;
  gmlake_buffer_desc desc;
  gmlake_map_entry map[64];
  gmlake_buffer *buffer;
  void *b[6];
  memset(&desc, 0, sizeof desc);
  memset(counts, 0, sizeof counts);
  for (i = 0; i < 6; i++) b[i] = take_named(2 * MIB, "b");
  for (i = 1; i < 6; i += 2) assert_ok(gmlake_free(lake, b[i], NULL));
  assert_ok(gmlake_free(lake, take_named(6 * MIB, NULL), NULL));
  (void)take_named(4 * MIB, NULL);
  (void)take_named(512, NULL);
  desc.max_bytes = 8 * MIB;
  assert_ok(gmlake_buffer_create(lake, &desc, &buffer));
  assert_ok(gmlake_buffer_resize(lake, buffer, 5 * MIB, NULL));
  assert_ok(gmlake_get_map(lake, map, 64, &count));
  for (i = 0; i < count; i++) counts[map[i].kind]++;
  assert_int_equal(gmlake_snapshot_write(lake, NULL, sink, &f), 0);
  for (i = GMLAKE_KIND_BLOCK; i <= GMLAKE_KIND_IDLE_PIECE; i++) {
    assert_true(counts[i]);
    assert_int_equal(rows(names[i]), counts[i]);
  }
  assert_non_null(strstr(f.text, "\"same_moment\": true"));
}

/* The rows are compared as text: address, bytes, requested, state, stream, arena, label, user data,
   age. */
CASE_BETWEEN(set_up, tear_down, a_block_is_told_with_its_label) {
  char row[256];
  const void *p;
  p = take_named(1000, "a \"label\" </script>\n\xC3\xA9\xFF");
  (void)take_named(512, NULL);
  assert_int_equal(gmlake_snapshot_write(lake, NULL, sink, &f), 0);
  snprintf(row, sizeof row,
           "\n[%llu,1024,1000,\"live\",0,0,\"a \\u0022label\\u0022 \\u003c/script>\\u000a\xC3\xA9"
           "\\ufffd\",\"0xfedcba9876543210\",1],\n",
           (unsigned long long)(uintptr_t)p);
  assert_non_null(strstr(f.text, row));
  snprintf(row, sizeof row, "[%llu,512,512,\"live\",0,0,null,0,0]",
           (unsigned long long)(uintptr_t)p + 1024);
  assert_non_null(strstr(f.text, row));
}

CASE_BETWEEN(set_up, tear_down, it_works_in_the_handler_in_fixed_memory) {
  void *ptr;
  (void)take_named(40 * MIB, NULL);
  reserve_memory();
  assert_int_equal(gmlake_alloc(lake, 40 * MIB, NULL, &ptr), GMLAKE_ERROR_LIMIT_REACHED);
  assert_int_equal(f.in_handler, 1);
  assert_non_null(strstr(f.text, "\"result\": \"GMLAKE_ERROR_LIMIT_REACHED\""));
  assert_non_null(strstr(f.text, "\"asked_bytes\": 41943040,"));
  assert_int_equal(rows("blocks"), 1);
  assert_ok(gmlake_check(lake));
}

CASE_BETWEEN(set_up, tear_down, memory_that_is_too_small_is_an_error) {
  gmlake_snapshot_desc desc;
  size_t count;
  memset(&desc, 0, sizeof desc);
  (void)take_named(512, NULL);
  reserve_memory();
  assert_ok(gmlake_get_map(lake, NULL, 0, &count));
  desc.memory = f.memory;
  desc.memory_bytes = GMLAKE_SNAPSHOT_TEXT - 1;
  assert_int_equal(gmlake_snapshot_write(lake, &desc, sink, &f), ENOMEM);
  desc.memory_bytes = GMLAKE_SNAPSHOT_TEXT + count * sizeof(gmlake_map_entry) - 1;
  assert_int_equal(gmlake_snapshot_write(lake, &desc, sink, &f), ENOMEM);
  assert_int_equal(f.calls, 0);
  desc.memory_bytes++;
  assert_int_equal(gmlake_snapshot_write(lake, &desc, sink, &f), 0);
  assert_int_equal(rows("blocks"), 1);
}

/* The parts that the sink gets join to the same text wherever they are cut. */
CASE_BETWEEN(set_up, tear_down, long_documents_come_in_parts) {
  size_t i, members = 0;
  const char *at;
  for (i = 0; i < 3000; i++) (void)take_named(512, "a label that makes the document longer");
  assert_int_equal(gmlake_snapshot_write(lake, NULL, sink, &f), 0);
  assert_true(f.calls > 10);
  assert_int_equal(rows("blocks"), 3000);
  for (at = strstr(f.text, "\"stats\": {"); *at != '}'; at++) members += *at == ':';
  assert_int_equal(members, 36); /* of stats, with its own */
}

CASE_BETWEEN(set_up, tear_down, a_sink_that_fails_ends_it) {
  size_t i;
  for (i = 0; i < 3000; i++) (void)take_named(512, NULL);
  f.refuse_at = 30000;
  assert_int_equal(gmlake_snapshot_write(lake, NULL, sink, &f), EIO);
  assert_true(f.calls == 2);
  assert_int_equal(gmlake_snapshot_save(lake, "/dev/full"), ENOSPC);
  assert_int_equal(gmlake_snapshot_save(lake, "/there/is/no/such/folder"), ENOENT);
}

CASE_BETWEEN(set_up, tear_down, a_child_of_fork_is_refused) {
  pid_t child;
  int status;
  (void)take_named(512, NULL);
  child = fork();
  if (!child) _exit(gmlake_snapshot_write(lake, NULL, sink, &f) == EINVAL ? 7 : 0);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

int main(void) { return run_cases("snapshot"); }
