/* Every public function with arguments that it must refuse, and with the last ones that it must
   take: each row answers its own documented error and changes nothing: not the figures, not the
   live blocks and their contents, not what the backend holds. A row is a test of its name. */
#include "fixture.h"

#include <limits.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define HUGE ((size_t)1 << 63)
#define INVALID GMLAKE_ERROR_INVALID_ARGUMENT
#define DROPS GMLAKE_SLEEP_DROP
#define UNKNOWN GMLAKE_ERROR_UNKNOWN_POINTER
#define UNSUPPORTED GMLAKE_ERROR_UNSUPPORTED
#define TWICE GMLAKE_ERROR_DOUBLE_FREE
#define NO_MEMORY GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY
#define TWO ((gmlake_stream)(uintptr_t)2)
#define ONE ((gmlake_stream)(uintptr_t)1)
#define CHUNKS ((size_t)20)

/* ---- A lake with one of everything, and its neighbour ---------------------------------------- */

#define LIVE 6

static struct world {
  gmlake *other;
  gmlake_stream held, captured;
  gmlake_pool *pool, *graphs, *foreign_pool;
  gmlake_buffer *buffer, *foreign_buffer; /* of 3 chunks at most, 1 kept */
  unsigned char *grown;
  unsigned char *live[LIVE]; /* a home block, a window, an exclusive block, a pool's, two more */
  unsigned char *home, *window, *exclusive, *idle, *freed, *pending, *foreign;
  char on_stack;
} w;

static gmlake_buffer *make_buffer(gmlake *from) {
  gmlake_buffer_desc wanted = buffer_desc(3 * C);
  gmlake_buffer *buffer = NULL;
  assert_ok(gmlake_buffer_create(from, &wanted, &buffer));
  return buffer;
}

static void open_buffers(void) {
  gmlake_buffer_info info;
  w.buffer = make_buffer(lake);
  step(gmlake_buffer_resize(lake, w.buffer, 2 * C, LEGACY));
  step(gmlake_buffer_resize(lake, w.buffer, 1, LEGACY));
  assert_ok(gmlake_buffer_get_info(lake, w.buffer, &info));
  w.grown = (unsigned char *)info.ptr;
  *w.grown = 77;
}

/* On the same backend: what a lake does with it is nothing to another one. */
static void open_other(void) {
  gmlake_desc other_desc;
  memset(&other_desc, 0, sizeof(other_desc));
  other_desc.backend = mock;
  other_desc.chunk_bytes = C;
  assert_ok(gmlake_create(&other_desc, &w.other));
  assert_ok(gmlake_alloc(w.other, C, LEGACY, (void **)&w.foreign));
  memset(w.foreign, 99, C);
  assert_ok(gmlake_pool_create(w.other, NULL, &w.foreign_pool));
  w.foreign_buffer = make_buffer(w.other);
}

static void open_world(size_t limit_bytes) {
  void *blocks[10];
  size_t i;
  memset(&w, 0, sizeof(w));
  prepare(CHUNKS);
  desc.limit_bytes = limit_bytes;
  open_lake();
  w.held = open_stream();
  w.captured = open_stream();
  w.pool = open_pool(2 * C);
  w.graphs = open_pool(0);
  lay(blocks, 10);
  drop(blocks[1]);
  drop(blocks[3]);
  w.idle = (unsigned char *)take(2 * C);
  drop(w.idle);
  drop(blocks[5]);
  w.live[0] = w.home = (unsigned char *)blocks[0];
  w.live[1] = w.window = (unsigned char *)take(3 * C);
  w.live[2] = w.exclusive = (unsigned char *)take_flags(100, GMLAKE_EXCLUSIVE);
  w.live[3] = (unsigned char *)take_from(w.pool, C, LEGACY);
  w.live[4] = (unsigned char *)blocks[2];
  w.live[5] = (unsigned char *)blocks[4];
  assert_int_equal(piece_count(w.window), 3);
  w.pending = (unsigned char *)blocks[6];
  gmlake_mock_stream_hold(mock, w.held);
  step(gmlake_record_stream(lake, w.pending, w.held));
  drop(w.pending);
  open_buffers(); /* before there is a free chunk, which a buffer would have returned */
  w.freed = (unsigned char *)blocks[8];
  drop(w.freed);
  for (i = 0; i < LIVE; i++) memset(w.live[i], (int)i + 1, i == 2 ? 100 : C);
  open_other();
}

static void close_world(void) {
  assert_true(w.foreign[0] == 99 && w.foreign[C - 1] == 99);
  assert_ok(gmlake_check(w.other));
  assert_ok(gmlake_destroy(w.other));
  finish();
}

/* ---- What may not change --------------------------------------------------------------------- */

typedef struct picture {
  gmlake_stats stats;
  gmlake_mock_census census;
  gmlake_error_info error;
  gmlake_map_entry live[LIVE];
  gmlake_buffer_info buffer;
} picture;

static picture look(void) {
  picture now;
  size_t i;
  memset(&now, 0, sizeof(now));
  now.stats = stats();
  now.census = census();
  now.error = last_error();
  for (i = 0; i < LIVE; i++) {
    assert_ok(gmlake_find(lake, w.live[i], &now.live[i]));
    assert_int_equal(w.live[i][0], i + 1);
    assert_int_equal(w.live[i][i == 2 ? 99 : C - 1], i + 1);
  }
  assert_ok(gmlake_buffer_get_info(lake, w.buffer, &now.buffer));
  assert_int_equal(*w.grown, 77);
  return now;
}

/* How much a refusal may leave behind. */
enum {
  NOTHING,   /* there is no lake that could remember: no trace at all */
  LAST_ERROR /* the lake remembers the error */
};

/* pre: not for an error after a search for memory, which may drop caches and counts attempts. */
static void assert_same(const picture *before, gmlake_result result, int leaves) {
  picture now = look();
  gmlake_error_info info = now.error;
  if (leaves == LAST_ERROR) {
    assert_int_equal(info.result, result);
    assert_non_null(info.call);
    assert_true(info.text[0] != 0);
    now.error = before->error;
    now.census.call_count = before->census.call_count; /* it may have asked the backend, too */
    now.census.modelled_ns = before->census.modelled_ns;
  }
  now.stats.metadata_bytes_peak = before->stats.metadata_bytes_peak;
  assert_memory_equal(&now.stats, &before->stats, sizeof(now.stats));
  assert_memory_equal(&now.census, &before->census, sizeof(now.census));
  assert_memory_equal(&now.error, &before->error, sizeof(now.error));
  assert_memory_equal(now.live, before->live, sizeof(now.live));
  assert_memory_equal(&now.buffer, &before->buffer, sizeof(now.buffer));
  assert_ok(gmlake_check(lake));
}

/* ---- Pointers -------------------------------------------------------------------------------- */

/* X(name, what gmlake_free answers, what it is, pointer) */
#define POINTERS(X)                                                                             \
  X(at_null, GMLAKE_OK, "NULL", NULL)                                                           \
  X(at_one, UNKNOWN, "address 1", (void *)(uintptr_t)1)                                         \
  X(at_the_last_byte, UNKNOWN, "the last address", (void *)UINTPTR_MAX)                         \
  X(on_the_stack, UNKNOWN, "the host's memory", &w.on_stack)                                    \
  X(in_another_lake, UNKNOWN, "another lake's block", w.foreign)                                \
  X(one_byte_in, UNKNOWN, "a block, one byte in", w.home + 1)                                   \
  X(one_grain_in, UNKNOWN, "a block, one grain in", w.home + 512)                               \
  X(at_its_last_byte, UNKNOWN, "a block's last byte", w.home + C - 1)                           \
  X(in_a_window, UNKNOWN, "the inside of a window", w.window + C)                               \
  X(behind_a_window, UNKNOWN, "one past the end of a window", w.window + 3 * C)                 \
  X(at_home_of_a_piece, UNKNOWN, "the home of a window's first piece", piece(w.window, 0).home) \
  X(at_home_of_the_last_piece, UNKNOWN, "the home of a window's last piece",                    \
    piece(w.window, 2).home)                                                                    \
  X(in_an_exclusive_chunk, UNKNOWN, "the rest of an exclusive block", w.exclusive + 512)        \
  X(at_an_idle_window, TWICE, "an idle window", w.idle)                                         \
  X(in_an_idle_window, TWICE, "an idle window's last byte", w.idle + 2 * C - 1)                 \
  X(at_a_freed_block, TWICE, "a freed block", w.freed)                                          \
  X(in_a_freed_block, TWICE, "the inside of a freed block", w.freed + 12345)                    \
  X(at_a_pending_block, TWICE, "a pending block", w.pending)                                    \
  X(in_a_pending_block, TWICE, "a pending block's last byte", w.pending + C - 1)                \
  X(behind_the_arena, UNKNOWN, "address space behind what is backed", w.home + CHUNKS * C)      \
  X(before_the_arena, UNKNOWN, "the byte before the arena", w.home - 1)                         \
  X(at_a_buffer, UNKNOWN, "a growing buffer", w.grown)                                          \
  X(in_a_buffer, UNKNOWN, "a growing buffer's last byte", w.grown + C - 1)                      \
  X(behind_a_buffers_end, UNKNOWN, "what a buffer gave up", w.grown + C)                        \
  X(among_a_buffers_last_addresses, UNKNOWN, "where a buffer may grow to", w.grown + 3 * C - 1)

typedef struct pointer_row {
  const char *what;
  gmlake_result freed;
  void *(*pointer)(void);
} pointer_row;

#define AS_POINTER(name, freed, what, expression) \
  static void *name(void) { return expression; }
#define AS_POINTER_ROW(name, freed, what, expression) {what, freed, name},
POINTERS(AS_POINTER)
static const pointer_row pointers[] = {POINTERS(AS_POINTER_ROW)};

static gmlake_result free_it(void *ptr) { return gmlake_free(lake, ptr, LEGACY); }
static gmlake_result free_on_none(void *ptr) { return gmlake_free(lake, ptr, NONE); }
static gmlake_result record_it(void *ptr) { return gmlake_record_stream(lake, ptr, w.held); }

static gmlake_result get_pieces_of(void *ptr) {
  gmlake_piece pieces[2], before[2];
  size_t count = 77;
  gmlake_result result;
  memset(pieces, 0x5A, sizeof(pieces));
  memcpy(before, pieces, sizeof(before));
  result = gmlake_get_pieces(lake, ptr, pieces, 2, &count);
  assert_memory_equal(pieces, before, sizeof(before));
  assert_int_equal(count, 77);
  return result;
}

static const struct {
  const char *what;
  gmlake_result (*call)(void *ptr);
  int is_free; /* a question does not tell free memory from other, and NULL is no block */
} pointer_calls[] = {{"gmlake_free", free_it, 1},
                     {"gmlake_free on no stream", free_on_none, 1},
                     {"gmlake_record_stream", record_it, 0},
                     {"gmlake_get_pieces", get_pieces_of, 0}};

/* The last error names the function that was called. */
static void assert_names(const char *what) {
  const char *call = last_error().call;
  size_t length = strlen(call);
  if (strncmp(what, call, length) != 0 || (what[length] && what[length] != ' '))
    fail_msg("%s is told of %s", call, what);
}

/* And it says of a pointer that cannot be freed what is wrong with it. */
static void assert_tells(const void *ptr, gmlake_result result) {
  char text[160];
  (void)snprintf(text, sizeof(text), "ptr is 0x%llx: %s", (unsigned long long)(uintptr_t)ptr,
                 result == TWICE ? "this memory is free already" : "no live block starts there");
  assert_string_equal(last_error().text, text);
}

static void test_pointer(void **state) {
  const pointer_row *row = (const pointer_row *)*state;
  size_t i;
  open_world(0);
  for (i = 0; i < sizeof(pointer_calls) / sizeof(pointer_calls[0]); i++) {
    void *ptr = row->pointer();
    gmlake_result wanted = row->freed, result;
    picture before;
    if (!pointer_calls[i].is_free) wanted = ptr ? UNKNOWN : INVALID;
    before = look();
    result = pointer_calls[i].call(ptr);
    if (result != wanted)
      fail_msg("%s of %s: %s", pointer_calls[i].what, row->what, gmlake_result_name(result));
    assert_same(&before, result, result ? LAST_ERROR : NOTHING);
    if (ptr) assert_names(pointer_calls[i].what);
    if (result && pointer_calls[i].is_free) assert_tells(ptr, result);
  }
  close_world();
}

/* ---- Arguments of every function ------------------------------------------------------------- */

static struct outputs {
  gmlake *lake;
  void *ptr;
  gmlake_pool *pool;
  gmlake_buffer *buffer;
  gmlake_buffer_info buffer_info;
  gmlake_desc desc;
  gmlake_stats stats;
  gmlake_budget budget;
  gmlake_error_info error;
  gmlake_map_entry info;
  gmlake_piece pieces[2];
  gmlake_chunk_info chunks[2];
  gmlake_handle handles[2];
  gmlake_map_entry map[2];
  gmlake_query_info query;
  size_t count, released;
} out;

static gmlake_result allocate(const gmlake_alloc_desc *wanted, gmlake_stream stream) {
  gmlake_result result = gmlake_alloc_with(lake, wanted, stream, &out.ptr);
  if (result) assert_null(out.ptr);
  return result;
}

static gmlake_result allocate_for_nothing(void) {
  gmlake_alloc_desc wanted = request(1, 0, NULL);
  return gmlake_alloc_with(lake, &wanted, LEGACY, NULL);
}

static gmlake_result allocate_plainly(size_t bytes, gmlake_stream stream) {
  gmlake_result result = gmlake_alloc(lake, bytes, stream, &out.ptr);
  if (result) assert_null(out.ptr);
  return result;
}

static gmlake_result allocate_from(gmlake_pool *pool, gmlake_stream stream) {
  gmlake_alloc_desc wanted = request(1, 0, pool);
  return allocate(&wanted, stream);
}

static gmlake_result aligned_to(size_t alignment) {
  gmlake_alloc_desc wanted = request(1, 0, NULL);
  wanted.alignment = alignment;
  return allocate(&wanted, LEGACY);
}

static gmlake_result flagged(unsigned flags) {
  gmlake_alloc_desc wanted = request(1, flags, NULL);
  return allocate(&wanted, LEGACY);
}

static gmlake_result create_buffer(size_t max_bytes, size_t chunk_bytes) {
  gmlake_buffer_desc wanted = buffer_desc(max_bytes);
  wanted.chunk_bytes = chunk_bytes;
  return gmlake_buffer_create(lake, &wanted, &out.buffer);
}

static gmlake_result create_buffer_in(gmlake_pool *pool) {
  gmlake_buffer_desc wanted = buffer_desc(C);
  wanted.pool = pool;
  return gmlake_buffer_create(lake, &wanted, &out.buffer);
}

static gmlake_result create_buffer_for_nothing(void) {
  gmlake_buffer_desc wanted;
  memset(&wanted, 0, sizeof(wanted));
  wanted.max_bytes = C;
  return gmlake_buffer_create(lake, &wanted, NULL);
}

static gmlake_result resize_to(gmlake_buffer *buffer, size_t bytes, gmlake_stream stream) {
  return gmlake_buffer_resize(lake, buffer, bytes, stream);
}

static gmlake_result trim_without_lake(void) {
  gmlake_result result = gmlake_trim(NULL, 0, &out.released);
  assert_int_equal(out.released, 0); /* written in any case */
  return result;
}

static gmlake_result commit_of(gmlake_buffer *buffer, size_t offset, size_t bytes,
                               gmlake_stream stream) {
  return gmlake_buffer_commit(lake, buffer, offset, bytes, NULL, stream);
}

static gmlake_result commit_chunks_of(gmlake_buffer *buffer, size_t offset, size_t bytes) {
  uint32_t chunks[4] = {GMLAKE_ANY_CHUNK, 0, GMLAKE_ANY_CHUNK - 1, 7};
  return gmlake_buffer_commit(lake, buffer, offset, bytes, chunks, LEGACY);
}

static gmlake_result discard_of(gmlake_buffer *buffer, size_t offset, size_t bytes,
                                gmlake_stream stream) {
  return gmlake_buffer_discard(lake, buffer, offset, bytes, stream);
}

/* A buffer has 16 million chunks at most. */
CASE(test_buffer_max_bytes) {
  static const struct {
    size_t max_bytes;
    gmlake_result result;
  } rows[] = {
      {32 * CHUNKS * C, GMLAKE_OK},  {C << 24, GMLAKE_OK}, {(C << 24) - C + 1, GMLAKE_OK},
      {(C << 24) + 1, NO_MEMORY},    {HUGE, NO_MEMORY},    {((size_t)C << 32) + C, NO_MEMORY},
      {SIZE_MAX - C + 2, NO_MEMORY}, {SIZE_MAX, NO_MEMORY}};
  size_t i;
  for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
    prepare(CHUNKS);
    open_lake();
    assert_int_equal(create_buffer(rows[i].max_bytes, C), rows[i].result);
    if (rows[i].result) assert_string_equal(last_error().call, "gmlake_buffer_create");
    finish();
  }
}

static gmlake_result query_of(size_t alignment, gmlake_stream stream) {
  gmlake_alloc_desc wanted = request(1, 0, NULL);
  wanted.alignment = alignment;
  return gmlake_query(lake, &wanted, stream, &out.query);
}

/* With what is 0 by itself. */
static gmlake_result admit_of(size_t alignment, gmlake_pool *pool, gmlake_stream stream) {
  gmlake_alloc_desc wanted[2];
  wanted[0] = wanted[1] = request(0, 0, pool);
  wanted[1].alignment = alignment;
  return gmlake_admit(lake, wanted, 2, stream, NULL);
}

static gmlake_result query_for_nothing(void) {
  const gmlake_alloc_desc wanted = request(1, 0, NULL);
  return gmlake_query(lake, &wanted, LEGACY, NULL);
}

static gmlake_result export_of(const void *ptr, unsigned type) {
  return gmlake_export(lake, ptr, type, out.handles, 2, &out.count);
}

static gmlake_result import_of(unsigned type, size_t bytes, size_t count) {
  gmlake_handle handle;
  void *ptr = NULL;
  memset(&handle, 0, sizeof(handle));
  handle.type = type;
  handle.fd = -1;
  handle.bytes = bytes;
  return gmlake_import(lake, &handle, count, &ptr);
}

static gmlake_result import_of_nothing(void) {
  void *ptr = NULL;
  return gmlake_import(lake, NULL, 1, &ptr);
}

static gmlake_result import_for_nothing(void) {
  gmlake_handle handle;
  memset(&handle, 0, sizeof(handle));
  return gmlake_import(lake, &handle, 1, NULL);
}

static gmlake_result find_at(const void *address) { return gmlake_find(lake, address, &out.info); }

static gmlake_result chunks_at(const void *ptr) {
  return gmlake_get_chunks(lake, ptr, out.chunks, 2, &out.count);
}

/* X(name, result, text, call): what the last error says; NULL: nothing is left behind. Each is made
   without a lake, too. */
#define CALLS(X)                                                                                   \
  X(create_without_out, INVALID, NULL, gmlake_create(&desc, NULL))                                 \
  X(get_desc_without_out, INVALID, "out_desc is NULL", gmlake_get_desc(lake, NULL))                \
  X(alloc_without_out, INVALID, "out_ptr is NULL", gmlake_alloc(lake, 1, LEGACY, NULL))            \
  X(alloc_of_nothing_without_out, INVALID, "", gmlake_alloc(lake, 0, LEGACY, NULL))                \
  X(alloc_on_stream_2, INVALID, "stream is 2, the per-thread default stream",                      \
    allocate_plainly(1, TWO))                                                                      \
  X(alloc_of_nothing_on_stream_2, INVALID, "", allocate_plainly(0, TWO))                           \
  X(alloc_with_without_out, INVALID, "", allocate_for_nothing())                                   \
  X(alloc_with_no_description, INVALID, "desc is NULL", allocate(NULL, LEGACY))                    \
  X(alloc_from_another_lakes_pool, INVALID, "pool belongs to another lake, the one",               \
    allocate_from(w.foreign_pool, LEGACY))                                                         \
  X(alloc_from_another_lakes_pool_on_none, INVALID, "", allocate_from(w.foreign_pool, NONE))       \
  X(alignment_3, INVALID, "alignment is 3: it has to be a power of two, at most 65536",            \
    aligned_to(3))                                                                                 \
  X(alignment_of_two_chunks, INVALID, "alignment is 131072: it has to be", aligned_to(2 * C))      \
  X(flag_0x20, INVALID, "flags is 0x20: use only bits of 0x17", flagged(32))                       \
  X(flag_8, INVALID, "flags is 0x8: use only bits of 0x17", flagged(8))                            \
  X(flag_0x80_the_lakes_own, INVALID, "flags is 0x80", flagged(0x80))                              \
  X(flag_0x100, INVALID, "flags is 0x100", flagged(0x100))                                         \
  X(all_flags, INVALID, "flags is 0xffffff", flagged(~0u))                                         \
  X(free_on_stream_2, INVALID, "stream is 2, the per-thread", gmlake_free(lake, w.home, TWO))      \
  X(free_of_nothing_on_stream_2, INVALID, "", gmlake_free(lake, NULL, TWO))                        \
  X(record_nothing, INVALID, "ptr is NULL", gmlake_record_stream(lake, NULL, w.held))              \
  X(record_on_stream_2, INVALID, "", gmlake_record_stream(lake, w.home, TWO))                      \
  X(record_on_none, INVALID, "stream is GMLAKE_STREAM_NONE: pass",                                 \
    gmlake_record_stream(lake, w.home, NONE))                                                      \
  X(forget_stream_2, INVALID, "", gmlake_forget_stream(lake, TWO))                                 \
  X(forget_none, INVALID, "stream is GMLAKE_STREAM_NONE: pass", gmlake_forget_stream(lake, NONE))  \
  X(forget_stream_never_seen, GMLAKE_OK, NULL, gmlake_forget_stream(lake, w.captured))             \
  X(pieces_without_count, INVALID, "out_count is NULL",                                            \
    gmlake_get_pieces(lake, w.home, out.pieces, 2, NULL))                                          \
  X(pieces_without_array, INVALID, "out_pieces is NULL and capacity is 1844",                      \
    gmlake_get_pieces(lake, w.home, NULL, SIZE_MAX, &out.count))                                   \
  X(find_without_out, INVALID, "out_info is NULL", gmlake_find(lake, w.home, NULL))                \
  X(find_nothing, UNKNOWN, "", find_at(NULL))                                                      \
  X(find_anothers, UNKNOWN, "", find_at(w.foreign))                                                \
  X(find_what_is_on_the_stack, UNKNOWN, "", find_at(&w.on_stack))                                  \
  X(chunks_without_count, INVALID, "out_count is NULL",                                            \
    gmlake_get_chunks(lake, w.home, out.chunks, 2, NULL))                                          \
  X(chunks_without_array, INVALID, "out_chunks is NULL and capacity is 1844",                      \
    gmlake_get_chunks(lake, w.home, NULL, SIZE_MAX, &out.count))                                   \
  X(chunks_of_nothing, INVALID, "", chunks_at(NULL))                                               \
  X(chunks_of_freed_memory, UNKNOWN, "", chunks_at(w.freed))                                       \
  X(chunks_of_an_idle_window, UNKNOWN, "", chunks_at(w.idle))                                      \
  X(chunks_of_a_pending_block, UNKNOWN, "", chunks_at(w.pending))                                  \
  X(chunks_of_anothers, UNKNOWN, "", chunks_at(w.foreign))                                         \
  X(map_without_count, INVALID, "out_count is NULL", gmlake_get_map(lake, out.map, 2, NULL))       \
  X(map_without_array, INVALID, "out_entries is NULL and capacity is 1: pass",                     \
    gmlake_get_map(lake, NULL, 1, &out.count))                                                     \
  X(pool_stats_without_out, INVALID, "", gmlake_pool_get_stats(lake, w.pool, NULL))                \
  X(pool_stats_of_another_lakes, INVALID, "pool belongs to another lake",                          \
    gmlake_pool_get_stats(lake, w.foreign_pool, &out.stats))                                       \
  X(pool_create_without_out, INVALID, "out_pool is NULL", gmlake_pool_create(lake, NULL, NULL))    \
  X(pool_destroy_of_nothing, GMLAKE_OK, NULL, gmlake_pool_destroy(lake, NULL))                     \
  X(pool_destroy_of_another_lakes, INVALID, "pool belongs to another lake",                        \
    gmlake_pool_destroy(lake, w.foreign_pool))                                                     \
  X(lend_no_pool, INVALID, "", gmlake_pool_lend(lake, NULL, w.held))                               \
  X(lend_anothers, INVALID, "", gmlake_pool_lend(lake, w.foreign_pool, w.held))                    \
  X(lend_on_none, INVALID, "", gmlake_pool_lend(lake, w.pool, NONE))                               \
  X(lend_on_stream_2, INVALID, "", gmlake_pool_lend(lake, w.pool, TWO))                            \
  X(recall_no_pool, INVALID, "", gmlake_pool_recall(lake, NULL, w.held))                           \
  X(recall_anothers, INVALID, "", gmlake_pool_recall(lake, w.foreign_pool, w.held))                \
  X(recall_on_none, INVALID, "", gmlake_pool_recall(lake, w.pool, NONE))                           \
  X(recall_what_is_not_lent, INVALID, "", gmlake_pool_recall(lake, w.pool, w.held))                \
  X(export_of_nothing, INVALID, "", export_of(NULL, GMLAKE_HANDLE_POSIX_FD))                       \
  X(export_of_freed_memory, UNKNOWN, "", export_of(w.freed, GMLAKE_HANDLE_POSIX_FD))               \
  X(export_of_a_pending_block, UNKNOWN, "", export_of(w.pending, GMLAKE_HANDLE_POSIX_FD))          \
  X(export_of_anothers, UNKNOWN, "", export_of(w.foreign, GMLAKE_HANDLE_POSIX_FD))                 \
  X(export_from_a_lake_without_types, INVALID, "", export_of(w.home, GMLAKE_HANDLE_POSIX_FD))      \
  X(export_as_nothing, INVALID, "", export_of(w.home, 0))                                          \
  X(export_as_two_types, INVALID, "", export_of(w.home, 9))                                        \
  X(export_as_windows, UNSUPPORTED, "", export_of(w.home, GMLAKE_HANDLE_WIN32))                    \
  X(export_without_count, INVALID, "",                                                             \
    gmlake_export(lake, w.home, GMLAKE_HANDLE_POSIX_FD, out.handles, 2, NULL))                     \
  X(export_without_array, INVALID, "",                                                             \
    gmlake_export(lake, w.home, GMLAKE_HANDLE_POSIX_FD, NULL, 2, &out.count))                      \
  X(import_without_handles, INVALID, "", import_of_nothing())                                      \
  X(import_without_out, INVALID, "", import_for_nothing())                                         \
  X(import_of_no_handle, INVALID, "", import_of(1, C, 0))                                          \
  X(import_of_0_bytes, INVALID, "", import_of(1, 0, 1))                                            \
  X(import_of_3_chunks, INVALID, "", import_of(1, 3 * C, 1))                                       \
  X(import_of_half_a_chunk, INVALID, "", import_of(1, C / 2, 1))                                   \
  X(import_of_2_to_63, INVALID, "", import_of(1, HUGE, 1))                                         \
  X(import_of_no_type, INVALID, "", import_of(0, C, 1))                                            \
  X(import_of_windows, INVALID, "", import_of(GMLAKE_HANDLE_WIN32, C, 1))                          \
  X(sleep_of_another_lakes, INVALID, "pool belongs to another lake",                               \
    gmlake_pool_sleep(lake, w.foreign_pool, DROPS, NULL))                                          \
  X(sleep_in_no_mode, INVALID, "", gmlake_pool_sleep(lake, w.pool, (gmlake_sleep_mode)-1, NULL))   \
  X(sleep_in_mode_2, INVALID, "mode is 2: pass GMLAKE_SLEEP_DROP (0) or GMLAKE_SLEEP_KEEP (1)",    \
    gmlake_pool_sleep(lake, NULL, (gmlake_sleep_mode)2, NULL))                                     \
  X(wake_of_another_lakes, INVALID, "pool belongs to another lake",                                \
    gmlake_pool_wake(lake, w.foreign_pool))                                                        \
  X(wake_what_is_awake, GMLAKE_OK, NULL, gmlake_pool_wake(lake, w.pool))                           \
  X(capture_without_pool, INVALID, "pool is NULL", gmlake_capture_begin(lake, w.captured, NULL))   \
  X(capture_into_another_lakes_pool, INVALID, "",                                                  \
    gmlake_capture_begin(lake, w.captured, w.foreign_pool))                                        \
  X(capture_of_legacy, INVALID, "", gmlake_capture_begin(lake, LEGACY, w.graphs))                  \
  X(capture_of_legacy_as_1, INVALID, "the legacy stream, which no",                                \
    gmlake_capture_begin(lake, ONE, w.graphs))                                                     \
  X(capture_of_stream_2, INVALID, "", gmlake_capture_begin(lake, TWO, w.graphs))                   \
  X(capture_of_none, INVALID, "", gmlake_capture_begin(lake, NONE, w.graphs))                      \
  X(capture_end_of_legacy, INVALID, "", gmlake_capture_end(lake, LEGACY))                          \
  X(capture_end_of_stream_2, INVALID, "", gmlake_capture_end(lake, TWO))                           \
  X(capture_end_of_none, INVALID, "", gmlake_capture_end(lake, NONE))                              \
  X(capture_end_of_a_stream_not_captured, INVALID, "which is not being captured: see",             \
    gmlake_capture_end(lake, w.held))                                                              \
  X(capture_end_of_a_stream_never_seen, INVALID, "", gmlake_capture_end(lake, w.captured))         \
  X(buffer_create_without_description, INVALID, "desc is NULL",                                    \
    gmlake_buffer_create(lake, NULL, &out.buffer))                                                 \
  X(buffer_create_without_out, INVALID, "", create_buffer_for_nothing())                           \
  X(buffer_of_nothing, INVALID, "max_bytes is 0: set it to the most", create_buffer(0, C))         \
  X(buffer_of_another_lakes_pool, INVALID, "", create_buffer_in(w.foreign_pool))                   \
  X(buffer_chunk_2_to_63, INVALID, "", create_buffer(C, HUGE))                                     \
  X(buffer_resize_without_buffer, INVALID, "buffer is NULL", resize_to(NULL, 1, LEGACY))           \
  X(buffer_resize_of_another_lakes, INVALID, "buffer belongs to another lake",                     \
    resize_to(w.foreign_buffer, 1, LEGACY))                                                        \
  X(buffer_resize_on_stream_2, INVALID, "", resize_to(w.buffer, 1, TWO))                           \
  X(buffer_resize_to_its_size, GMLAKE_OK, NULL, resize_to(w.buffer, 1, LEGACY))                    \
  X(buffer_resize_to_max_and_1, INVALID,                                                           \
    "bytes is 196609, more than the buffer's max_bytes, 196608",                                   \
    resize_to(w.buffer, 3 * C + 1, LEGACY))                                                        \
  X(buffer_resize_to_2_to_63, INVALID, "", resize_to(w.buffer, HUGE, NONE))                        \
  X(buffer_resize_to_size_max, INVALID, "", resize_to(w.buffer, SIZE_MAX, LEGACY))                 \
  X(buffer_commit_without_buffer, INVALID, "", commit_of(NULL, 0, C, LEGACY))                      \
  X(buffer_commit_chunks_beyond_its_end, INVALID, "", commit_chunks_of(w.buffer, 0, 4 * C))        \
  X(buffer_commit_of_chunks_of_its_own, GMLAKE_OK, NULL, commit_chunks_of(w.buffer, 0, 0))         \
  X(buffer_commit_of_another_lakes, INVALID, "", commit_of(w.foreign_buffer, 0, C, LEGACY))        \
  X(buffer_commit_on_stream_2, INVALID, "", commit_of(w.buffer, 0, C, TWO))                        \
  X(buffer_commit_of_what_it_has, GMLAKE_OK, NULL, commit_of(w.buffer, 0, 0, LEGACY))              \
  X(buffer_discard_without_buffer, INVALID, "buffer is NULL", discard_of(NULL, 0, C, LEGACY))      \
  X(buffer_discard_of_another_lakes, INVALID, "", discard_of(w.foreign_buffer, 0, C, LEGACY))      \
  X(buffer_discard_on_stream_2, INVALID, "", discard_of(w.buffer, 0, C, TWO))                      \
  X(buffer_discard_of_nothing, GMLAKE_OK, NULL, discard_of(w.buffer, 0, 0, LEGACY))                \
  X(buffer_discard_of_a_hole, GMLAKE_OK, NULL, discard_of(w.buffer, C, 2 * C, LEGACY))             \
  X(buffer_destroy_of_nothing, GMLAKE_OK, NULL, gmlake_buffer_destroy(lake, NULL, LEGACY))         \
  X(buffer_destroy_of_nothing_on_stream_2, INVALID, "", gmlake_buffer_destroy(lake, NULL, TWO))    \
  X(buffer_destroy_of_another_lakes, INVALID, "",                                                  \
    gmlake_buffer_destroy(lake, w.foreign_buffer, LEGACY))                                         \
  X(buffer_destroy_on_stream_2, INVALID, "", gmlake_buffer_destroy(lake, w.buffer, TWO))           \
  X(buffer_info_without_buffer, INVALID, "", gmlake_buffer_get_info(lake, NULL, &out.buffer_info)) \
  X(buffer_info_without_out, INVALID, "", gmlake_buffer_get_info(lake, w.buffer, NULL))            \
  X(buffer_info_of_another_lakes, INVALID, "",                                                     \
    gmlake_buffer_get_info(lake, w.foreign_buffer, &out.buffer_info))                              \
  X(trim_without_lake, INVALID, NULL, trim_without_lake())                                         \
  X(stats_without_out, INVALID, "out_stats is NULL", gmlake_get_stats(lake, NULL))                 \
  X(reset_peaks_without_lake, INVALID, NULL, gmlake_reset_peaks(NULL))                             \
  X(mark_none, INVALID, "", gmlake_mark_stream(lake, NONE, GMLAKE_STREAM_PLAIN))                   \
  X(mark_stream_2, INVALID, "", gmlake_mark_stream(lake, TWO, GMLAKE_STREAM_PLAIN))                \
  X(mark_as_4, INVALID, "kind is 4: pass one of",                                                  \
    gmlake_mark_stream(lake, LEGACY, (gmlake_stream_kind)4))                                       \
  X(reserve_for_another_lakes_pool, INVALID, "pool",                                               \
    gmlake_reserve(lake, w.foreign_pool, C, LEGACY))                                               \
  X(reserve_on_stream_2, INVALID, "stream is 2", gmlake_reserve(lake, NULL, C, TWO))               \
  X(admit_without_requests, INVALID, "requests is NULL",                                           \
    gmlake_admit(lake, NULL, 1, LEGACY, NULL))                                                     \
  X(admit_on_stream_2, INVALID, "stream is 2", admit_of(0, NULL, TWO))                             \
  X(admit_to_another_lakes_pool, INVALID, "pool belongs to another lake",                          \
    admit_of(0, w.foreign_pool, LEGACY))                                                           \
  X(admit_with_alignment_3, INVALID, "alignment is 3: it has to be a power of two",                \
    admit_of(3, NULL, LEGACY))                                                                     \
  X(admit_of_nothing, GMLAKE_OK, NULL, admit_of(C, w.pool, NONE))                                  \
  X(query_without_description, INVALID, "", gmlake_query(lake, NULL, LEGACY, &out.query))          \
  X(query_without_out, INVALID, "out_info is NULL", query_for_nothing())                           \
  X(query_on_stream_2, INVALID, "stream is 2, the per-thread", query_of(8, TWO))                   \
  X(query_with_alignment_3, INVALID, "alignment is 3: it has to be a power of two",                \
    query_of(3, LEGACY))                                                                           \
  X(budget_without_out, INVALID, "out_budget is NULL", gmlake_get_budget(lake, NULL))              \
  X(last_error_without_out, INVALID, "out_info is NULL", gmlake_get_last_error(lake, NULL))        \
  X(check_without_lake, INVALID, NULL, gmlake_check(NULL))                                         \
  X(destroy_of_nothing, GMLAKE_OK, NULL, gmlake_destroy(NULL))

/* The same, while a stream is being captured into the pool of graphs. */
#define CAPTURING GMLAKE_ERROR_CAPTURING
#define CAPTURE_CALLS(X)                                                                           \
  X(capture_of_a_captured_stream, CAPTURING, "", gmlake_capture_begin(lake, w.captured, w.graphs)) \
  X(capture_of_a_captured_stream_elsewhere, CAPTURING, "",                                         \
    gmlake_capture_begin(lake, w.captured, w.pool))                                                \
  X(alloc_from_another_pool_in_a_capture, CAPTURING, "", allocate_from(w.pool, w.captured))        \
  X(alloc_from_another_lakes_pool_in_a_capture, INVALID, "",                                       \
    allocate_from(w.foreign_pool, w.captured))                                                     \
  X(forget_a_captured_stream, CAPTURING, "", gmlake_forget_stream(lake, w.captured))               \
  X(forget_the_legacy_stream_in_a_capture, CAPTURING, "", gmlake_forget_stream(lake, LEGACY))      \
  X(buffer_shrink_in_a_capture, CAPTURING, "", resize_to(w.buffer, 0, w.captured))                 \
  X(buffer_discard_in_a_capture, CAPTURING, "", discard_of(w.buffer, 0, C, w.captured))            \
  X(buffer_destroy_in_a_capture, CAPTURING, "", gmlake_buffer_destroy(lake, w.buffer, w.captured)) \
  X(sleep_in_a_capture_into_it, CAPTURING, "", gmlake_pool_sleep(lake, w.graphs, DROPS, NULL))     \
  X(lend_in_a_capture_into_it, CAPTURING, "", gmlake_pool_lend(lake, w.graphs, w.held))            \
  X(lend_on_a_captured_stream, CAPTURING, "", gmlake_pool_lend(lake, w.pool, w.captured))          \
  X(pool_destroy_in_a_capture_into_it, CAPTURING, "", gmlake_pool_destroy(lake, w.graphs))         \
  X(capture_end_of_another_stream, INVALID, "", gmlake_capture_end(lake, w.held))

typedef struct call_row {
  const char *what;
  gmlake_result result;
  const char *text;
  gmlake_result (*call)(void);
} call_row;

#define AS_FUNCTION(name, result, text, expression) \
  static gmlake_result call_##name(void) { return expression; }
#define AS_ROW(name, result, text, expression) {#name, result, text, call_##name},
CALLS(AS_FUNCTION)
CAPTURE_CALLS(AS_FUNCTION)
static const call_row calls[] = {CALLS(AS_ROW)};
static const call_row capture_calls[] = {CAPTURE_CALLS(AS_ROW)};

/* Nothing but what is written in any case has been written. */
static void assert_unwritten(void) {
  struct outputs fresh;
  memset(&fresh, 0x5A, sizeof(fresh));
  if (!out.ptr) out.ptr = fresh.ptr;
  if (!out.released) out.released = fresh.released;
  assert_memory_equal(&out, &fresh, sizeof(out));
}

static gmlake_result call_on(gmlake *called, const call_row *row) {
  gmlake *const there = lake;
  gmlake_result result;
  memset(&out, 0x5A, sizeof(out));
  lake = called;
  result = row->call();
  lake = there;
  assert_unwritten();
  return result;
}

/* Without a lake nothing else is wrong. */
static void run_call(const call_row *row) {
  picture before = look();
  gmlake_result result = call_on(NULL, row);
  if (result || strcmp(row->what, "destroy_of_nothing")) assert_error(result, INVALID_ARGUMENT);
  assert_same(&before, result, NOTHING);
  result = call_on(lake, row);
  assert_int_equal(result, row->result);
  assert_same(&before, result, row->text ? LAST_ERROR : NOTHING);
  if (row->text && !strstr(last_error().text, row->text)) fail_msg("\"%s\"", last_error().text);
}

static void test_call(void **state) {
  open_world(0);
  run_call((const call_row *)*state);
  close_world();
}

static void test_capture_call(void **state) {
  open_world(0);
  step(gmlake_capture_begin(lake, w.captured, w.graphs));
  assert_ok(gmlake_mock_capture_begin(mock, w.captured));
  run_call((const call_row *)*state);
  assert_ok(gmlake_mock_capture_end(mock, w.captured)); /* it was not spoilt */
  step(gmlake_capture_end(lake, w.captured));
  close_world();
}

/* ---- The last arguments that are taken ------------------------------------------------------- */

CASE(test_pieces_capacity) {
  gmlake_piece pieces[4], untouched;
  size_t count, capacity;
  open_world(0);
  memset(&untouched, 0x5A, sizeof(untouched));
  assert_ok(gmlake_get_pieces(lake, w.window, NULL, 0, &count));
  assert_int_equal(count, 3);
  for (capacity = 0; capacity <= 4; capacity++) {
    memset(pieces, 0x5A, sizeof(pieces));
    assert_ok(gmlake_get_pieces(lake, w.window, pieces, capacity, &count));
    assert_int_equal(count, 3);
    for (count = 0; count < 4; count++)
      assert_int_equal(memcmp(&pieces[count], &untouched, sizeof(untouched)) == 0,
                       count >= capacity || count >= 3);
  }
  assert_ok(gmlake_get_pieces(lake, w.window, pieces, SIZE_MAX, &count));
  close_world();
}

#define NAMED(result) \
  { result, #result }

CASE(test_result_names) {
  static const int beyond[] = {-1, 18, 19, 255, INT_MAX, INT_MIN};
  static const struct {
    gmlake_result result;
    const char *name;
  } names[] = {NAMED(GMLAKE_OK),
               NAMED(GMLAKE_ERROR_INVALID_ARGUMENT),
               NAMED(GMLAKE_ERROR_OUT_OF_HOST_MEMORY),
               NAMED(GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY),
               NAMED(GMLAKE_ERROR_LIMIT_REACHED),
               NAMED(GMLAKE_ERROR_UNKNOWN_POINTER),
               NAMED(GMLAKE_ERROR_DOUBLE_FREE),
               NAMED(GMLAKE_ERROR_UNSUPPORTED),
               NAMED(GMLAKE_ERROR_NO_DRIVER),
               NAMED(GMLAKE_ERROR_NO_DEVICE),
               NAMED(GMLAKE_ERROR_DRIVER),
               NAMED(GMLAKE_ERROR_DEVICE_LOST),
               NAMED(GMLAKE_ERROR_CAPTURING),
               NAMED(GMLAKE_ERROR_FORKED),
               NAMED(GMLAKE_ERROR_SHUTTING_DOWN),
               NAMED(GMLAKE_ERROR_CORRUPT),
               NAMED(GMLAKE_ERROR_ASLEEP),
               NAMED(GMLAKE_ERROR_BUSY)};
  size_t i;
  for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
    assert_string_equal(gmlake_result_name(names[i].result), names[i].name);
  for (i = 0; i < sizeof(beyond) / sizeof(beyond[0]); i++)
    assert_string_equal(gmlake_result_name((gmlake_result)beyond[i]), "unknown");
}

/* ---- Descriptions ---------------------------------------------------------------------------- */

static gmlake_backend altered; /* the mock, with other properties or another header */
static gmlake_device_properties properties;

static gmlake_result altered_properties(void *user, gmlake_device_properties *result, int *code) {
  (void)user;
  *code = 0;
  *result = properties;
  return GMLAKE_OK;
}

static gmlake_result lost_properties(void *user, gmlake_device_properties *result, int *code) {
  (void)user, (void)result;
  *code = 719;
  return GMLAKE_ERROR_DEVICE_LOST;
}

/* One to 65, but for what a row changes. */
static int peers[65];

static void number_peers(void) {
  int i;
  for (i = 0; i < 65; i++) peers[i] = i + 1;
}

static int *peers_with(int at, int value) {
  peers[at] = value;
  desc.peer_count = (size_t)at + 1;
  return peers;
}

#define LIES(field, value) \
  (altered.get_properties = altered_properties, properties.field = (value), desc.backend = &altered)
#define DESCRIPTIONS(X)                                                                            \
  X(flag_16, INVALID, desc.flags = 16)                                                             \
  X(fill, GMLAKE_OK, desc.flags = GMLAKE_FILL)                                                     \
  X(fill_of_what_the_host_cannot_reach, UNSUPPORTED,                                               \
    (desc.flags = GMLAKE_FILL, LIES(is_host_memory, 0)))                                           \
  X(all_flags, INVALID, desc.flags = ~0u)                                                          \
  X(single_threaded, GMLAKE_OK, desc.flags = GMLAKE_SINGLE_THREADED)                               \
  X(all_known_flags, GMLAKE_OK, desc.flags = 11)                                                   \
  X(wait_first, GMLAKE_OK, desc.cross_stream = GMLAKE_WAIT_FIRST)                                  \
  X(cross_stream_2, INVALID, desc.cross_stream = (gmlake_cross_stream)2)                           \
  X(cross_stream_less_1, INVALID, desc.cross_stream = (gmlake_cross_stream)-1)                     \
  X(chunk_1, INVALID, desc.chunk_bytes = 1)                                                        \
  X(chunk_less_1, INVALID, desc.chunk_bytes = C - 1)                                               \
  X(chunk_and_1, INVALID, desc.chunk_bytes = C + 1)                                                \
  X(chunk_below_granularity, INVALID, desc.chunk_bytes = C / 2)                                    \
  X(chunk_3, INVALID, desc.chunk_bytes = 3 * C)                                                    \
  X(chunk_of_16, GMLAKE_OK, desc.chunk_bytes = 16 * C)                                             \
  X(chunk_above_device, INVALID, desc.chunk_bytes = 32 * C)                                        \
  X(chunk_2_to_63, INVALID, desc.chunk_bytes = HUGE)                                               \
  X(chunk_size_max, INVALID, desc.chunk_bytes = SIZE_MAX)                                          \
  X(chunk_by_default_above_device, INVALID, desc.chunk_bytes = 0)                                  \
  X(stitch_min_size_max, GMLAKE_OK, desc.stitch_bytes_min = SIZE_MAX)                              \
  X(stitched_max_1, GMLAKE_OK, desc.stitched_bytes_max = 1)                                        \
  X(stitched_max_size_max, GMLAKE_OK, desc.stitched_bytes_max = SIZE_MAX)                          \
  X(limit_1, GMLAKE_OK, desc.limit_bytes = 1)                                                      \
  X(limit_size_max, GMLAKE_OK, desc.limit_bytes = SIZE_MAX)                                        \
  X(driver_free_size_max, GMLAKE_OK, desc.driver_free_bytes_min = SIZE_MAX)                        \
  X(arena_1, INVALID, desc.arena_bytes = 1)                                                        \
  X(arena_of_a_chunk_less_1, INVALID, desc.arena_bytes = C - 1)                                    \
  X(arena_of_a_chunk, GMLAKE_OK, desc.arena_bytes = C)                                             \
  X(arena_of_a_chunk_and_1, GMLAKE_OK, desc.arena_bytes = C + 1)                                   \
  X(arena_size_max, GMLAKE_OK, desc.arena_bytes = SIZE_MAX)                                        \
  X(windows_1, INVALID, desc.window_bytes = 1)                                                     \
  X(windows_of_a_chunk_less_1, INVALID, desc.window_bytes = C - 1)                                 \
  X(windows_of_a_chunk, GMLAKE_OK, desc.window_bytes = C)                                          \
  X(windows_size_max, GMLAKE_OK, desc.window_bytes = SIZE_MAX)                                     \
  X(peers_without_array, INVALID, desc.peer_count = 1)                                             \
  X(peers_without_count, INVALID, desc.peer_devices = peers)                                       \
  X(peers_64, GMLAKE_OK, (desc.peer_devices = peers, desc.peer_count = 64, LIES(device_count, 0))) \
  X(peer_that_is_the_device, INVALID, desc.peer_devices = peers_with(2, 0))                        \
  X(peer_that_is_another_device, INVALID, (desc.peer_devices = peers_with(2, 5), LIES(device, 5))) \
  X(peer_0_of_another_device, GMLAKE_OK, (desc.peer_devices = peers_with(2, 0), LIES(device, 5)))  \
  X(peer_twice, INVALID, desc.peer_devices = peers_with(3, 2))                                     \
  X(peer_less_1, INVALID, desc.peer_devices = peers_with(1, -1))                                   \
  X(peer_7, GMLAKE_OK, desc.peer_devices = peers_with(0, 7))                                       \
  X(peer_8, INVALID, desc.peer_devices = peers_with(0, 8))                                         \
  X(peer_8_of_none_known, GMLAKE_OK,                                                               \
    (desc.peer_devices = peers_with(0, 8), LIES(device_count, 0)))                                 \
  X(peer_less_1_of_none_known, INVALID,                                                            \
    (desc.peer_devices = peers_with(0, -1), LIES(device_count, 0)))                                \
  X(peers_65, INVALID, (desc.peer_devices = peers, desc.peer_count = 65))                          \
  X(peers_size_max, INVALID, (desc.peer_devices = peers, desc.peer_count = SIZE_MAX))              \
  X(handle_type_unknown, INVALID, desc.handle_types = 4)                                           \
  X(handle_types_all, INVALID, desc.handle_types = ~0u)                                            \
  X(handle_type_of_another_system, UNSUPPORTED, desc.handle_types = GMLAKE_HANDLE_WIN32)           \
  X(handle_type_fd, GMLAKE_OK, desc.handle_types = GMLAKE_HANDLE_POSIX_FD)                         \
  X(handle_types_all_known, UNSUPPORTED,                                                           \
    desc.handle_types = GMLAKE_HANDLE_POSIX_FD | GMLAKE_HANDLE_WIN32 | GMLAKE_HANDLE_FABRIC)       \
  X(host_without_memory, GMLAKE_ERROR_OUT_OF_HOST_MEMORY, host_fail_in = host_fails_on = 1)        \
  X(host_without_free, INVALID, desc.host.free_fn = NULL)                                          \
  X(host_without_malloc, INVALID, desc.host.malloc_fn = NULL)                                      \
  X(host_of_two_kinds, GMLAKE_OK, (desc.host.malloc_fn = NULL, desc.host.free_fn = NULL))          \
  X(no_backend_but_a_device, GMLAKE_ERROR_NO_DEVICE, (desc.backend = NULL, desc.device = 1))       \
  X(no_backend_but_device_less_1, GMLAKE_ERROR_NO_DEVICE, (desc.backend = NULL, desc.device = -1)) \
  X(backend_of_0_bytes, INVALID, (altered.struct_bytes = 0, desc.backend = &altered))              \
  X(backend_too_small, INVALID,                                                                    \
    (altered.struct_bytes = offsetof(gmlake_backend, stream_id) - 1, desc.backend = &altered))     \
  X(backend_without_ids, GMLAKE_OK,                                                                \
    (altered.struct_bytes = offsetof(gmlake_backend, stream_id), desc.backend = &altered))         \
  X(streams_may_end, GMLAKE_OK, desc.flags = GMLAKE_STREAMS_MAY_END)                               \
  X(streams_may_end_without_ids, UNSUPPORTED,                                                      \
    (altered.stream_id = NULL, desc.backend = &altered, desc.flags = GMLAKE_STREAMS_MAY_END))      \
  X(backend_larger, GMLAKE_OK, (altered.struct_bytes += 8, desc.backend = &altered))               \
  X(backend_of_abi_0, INVALID, (altered.abi_version = 0, desc.backend = &altered))                 \
  X(backend_of_a_later_abi, INVALID, (altered.abi_version++, desc.backend = &altered))             \
  X(device_without_granularity, INVALID, LIES(granularity_bytes, 0))                               \
  X(device_granularity_3, INVALID, LIES(granularity_bytes, 3 * C))                                 \
  X(device_granularity_256, INVALID, LIES(granularity_bytes, 256))                                 \
  X(device_granularity_512, GMLAKE_OK, LIES(granularity_bytes, 512))                               \
  X(device_granularity_of_a_chunk, GMLAKE_OK, LIES(granularity_bytes, C))                          \
  X(device_granularity_above_chunk, INVALID, LIES(granularity_bytes, 2 * C))                       \
  X(device_granularity_2_to_63, INVALID, LIES(granularity_bytes, HUGE))                            \
  X(device_without_memory, INVALID, LIES(device_bytes, 0))                                         \
  X(device_of_a_chunk_less_1, INVALID, LIES(device_bytes, C - 1))                                  \
  X(device_of_a_chunk, GMLAKE_OK, LIES(device_bytes, C))                                           \
  X(chunk_of_the_device, GMLAKE_OK, (desc.chunk_bytes = 16 * C, LIES(device_bytes, 16 * C)))       \
  X(chunk_of_the_device_and_1, INVALID,                                                            \
    (desc.chunk_bytes = 16 * C, LIES(device_bytes, 16 * C - 1)))                                   \
  X(device_of_size_max, GMLAKE_OK, LIES(device_bytes, SIZE_MAX))                                   \
  X(device_lost, GMLAKE_ERROR_DEVICE_LOST,                                                         \
    (altered.get_properties = lost_properties, desc.backend = &altered))

typedef struct description_row {
  const char *what;
  gmlake_result result;
  void (*alter)(void);
} description_row;

#define AS_ALTERATION(name, result, expression) \
  static void alter_##name(void) { (void)(expression); }
#define AS_DESCRIPTION(name, result, expression) {#name, result, alter_##name},
DESCRIPTIONS(AS_ALTERATION)
static const description_row descriptions[] = {DESCRIPTIONS(AS_DESCRIPTION)};

/* What is legal is said. */
static const char *const reasons[][2] = {
    {"flag_16", "flags is 16: use only bits of 11"},
    {"chunk_3", "chunk_bytes is 196608: it has to be a power of two from 65536 to 1310720"},
    {"peer_that_is_the_device", "peer_devices[2] is 0: name other devices than the lake's"},
    {"peer_8", "peer_devices[0] is 8: name other devices than the lake's, from 0 to 7"},
    {"peer_twice",
     "peer_devices[3] is 2: name other devices than the lake's, from 0 to 7, each once"},
    {"peers_without_array", "peer_count is 1: set peer_devices, too, or neither"},
    {"host_without_free", "host.free_fn is 0: set both functions, or neither"},
    {"windows_1", "window_bytes is 1: it has to hold a chunk at least, 65536"},
    {"handle_type_of_another_system", "handle_types is 0x2: this device exports 0x1"},
    {"no_backend_but_a_device", "device 1: there is no device of this number"},
    {"host_without_memory", "the host has no memory for the lake's records"},
};

static void assert_reason(const char *what, const gmlake_error_info *why) {
  size_t i;
  for (i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
    if (!strcmp(what, reasons[i][0]) && !strstr(why->text, reasons[i][1]))
      fail_msg("\"%s\", not \"%s\"", why->text, reasons[i][1]);
  assert_string_equal(why->call,
                      why->result == GMLAKE_ERROR_DEVICE_LOST ? "get_properties" : "gmlake_create");
  assert_int_equal(why->driver_code, why->result == GMLAKE_ERROR_DEVICE_LOST ? 719 : 0);
}

static void note_reason(void *user, int level, const gmlake_error_info *info) {
  if (level == GMLAKE_LOG_ERROR) *(gmlake_error_info *)user = *info;
}

/* A refused one leaves nothing but the reason; one that is taken makes a lake that works. */
static void test_description(void **state) {
  static gmlake_error_info why, told;
  const description_row *row = (const description_row *)*state;
  gmlake_result result, served;
  gmlake *untouched = (gmlake *)&w, *made = untouched;
  void *ptr;
  int unused;
  prepare(CHUNKS);
  altered = *mock;
  assert_ok(mock->get_properties(mock->user, &properties, &unused));
  number_peers();
  row->alter();
  desc.out_error = &why;
  desc.logger.fn = note_reason;
  desc.logger.user = &told;
  memset(&why, 0, sizeof(why));
  memset(&told, 0, sizeof(told));
  result = gmlake_create(&desc, &made);
  assert_int_equal(result, row->result);
  if (result) {
    assert_ptr_equal(made, untouched);
    assert_int_equal(why.result, result);
    assert_reason(row->what, &why);
    assert_true(strlen(why.text) > 10);
    assert_memory_equal(&told, &why, sizeof(why));
    close_mock();
    return;
  }
  assert_int_equal(why.result, GMLAKE_OK); /* nothing is written */
  assert_null(made->desc.out_error);
  served = gmlake_alloc(made, 1, LEGACY, &ptr);
  assert_ok(gmlake_check(made));
  if (!served)
    assert_ok(gmlake_free(made, ptr, LEGACY));
  else /* a limit that leaves room for nothing; peers that only the driver can refuse */
    assert_int_equal(served, desc.peer_count ? GMLAKE_ERROR_DRIVER : GMLAKE_ERROR_LIMIT_REACHED);
  assert_ok(gmlake_destroy(made));
  close_mock();
}

/* NULL is all zero: in a build without CUDA a mock of the lake's own. */
CASE(test_no_description) {
  gmlake_desc filled;
  void *ptr;
  memset(&filled, 0, sizeof(filled));
  assert_ok(gmlake_create(NULL, &lake));
  assert_ok(gmlake_get_desc(lake, &filled));
  assert_true(filled.chunk_bytes && filled.arena_bytes && filled.window_bytes);
  assert_non_null(filled.backend);
  step(gmlake_alloc(lake, SIZE_MAX / 4, LEGACY, &ptr) == NO_MEMORY ? GMLAKE_OK : INVALID);
  step(gmlake_alloc(lake, 1, LEGACY, &ptr));
  step(gmlake_free(lake, ptr, LEGACY));
  assert_ok(gmlake_destroy(lake));
}

/* ---- Callbacks that call the lake ------------------------------------------------------------ */

static struct heard {
  int calls, warnings;
  gmlake_result alloc_with;
} heard;

/* Asks, and tries to allocate, wherever it is told something. */
static void listen(void *user, int level, const gmlake_error_info *info) {
  gmlake_error_info last;
  void *ptr = &ptr;
  (void)user;
  heard.calls++;
  heard.warnings += level == GMLAKE_LOG_WARNING;
  if (level != GMLAKE_LOG_ERROR) return;
  assert_ok(gmlake_get_last_error(lake, &last));
  assert_int_equal(last.result, info->result);
  assert_ok(gmlake_check(lake));
  heard.alloc_with = gmlake_alloc(lake, 1, LEGACY, &ptr);
  assert_null(ptr);
}

CASE(test_logger_calls_the_lake) {
  void *ptr;
  prepare(4);
  memset(&heard, 0, sizeof(heard));
  desc.logger.fn = listen;
  open_lake();
  ptr = take(C);
  gmlake_mock_fail_at(mock, census().call_count + 2, GMLAKE_ERROR_DEVICE_LOST, 0);
  assert_error(gmlake_alloc(lake, 3 * C, LEGACY, &ptr), DEVICE_LOST);
  assert_int_equal(heard.calls, 1);
  assert_int_equal(heard.alloc_with, GMLAKE_ERROR_DEVICE_LOST);
  assert_error(gmlake_destroy(lake), DEVICE_LOST);
  assert_int_equal(heard.warnings, 1); /* the live block */
  close_mock();
}

/* ---- What is destroyed, and used ------------------------------------------------------------- */

static gmlake_buffer *destroyed_buffer(void) {
  gmlake_buffer_desc wanted = buffer_desc(4 * C);
  gmlake_buffer *buffer = NULL;
  assert_ok(gmlake_buffer_create(lake, &wanted, &buffer));
  assert_ok(gmlake_buffer_destroy(lake, buffer, LEGACY));
  return buffer;
}

static void grow_a_destroyed_buffer(void) {
  (void)gmlake_buffer_resize(lake, destroyed_buffer(), C, LEGACY);
}

static void destroy_a_buffer_twice(void) {
  (void)gmlake_buffer_destroy(lake, destroyed_buffer(), LEGACY);
}

/* The driver refuses to take the pool's addresses back, so that its record is kept. */
static void use_a_destroyed_pool(void) {
  gmlake_pool *pool = open_pool(0);
  gmlake_alloc_desc wanted = request(C, 0, pool);
  void *ptr;
  gmlake_mock_fail_at(mock, census().call_count + 3, GMLAKE_ERROR_DRIVER, 0);
  assert_ok(gmlake_pool_destroy(lake, pool));
  if (lake->released_pools == pool) (void)gmlake_alloc_with(lake, &wanted, LEGACY, &ptr);
}

/* Whether an assertion fails where a child does that to a lake of its own. */
static int asserts(void (*mistake)(void)) {
  int status = -1;
  const pid_t child = fork();
  if (!child) {
    global_expecting_assert = 1;
    if (setjmp(global_expect_assert_env)) _exit(0);
    prepare(CHUNKS);
    open_lake();
    mistake();
    _exit(1);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  return status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT); /* the C library's */
}

#if !defined(NDEBUG)
CASE(test_assertions_tell_what_is_destroyed) {
  assert_true(asserts(grow_a_destroyed_buffer));
  assert_true(asserts(destroy_a_buffer_twice));
  assert_true(asserts(use_a_destroyed_pool));
}
#endif

/* ---- Rows as tests --------------------------------------------------------------------------- */

#define ADD_ROWS(rows, function)                         \
  for (i = 0; i < sizeof(rows) / sizeof((rows)[0]); i++) \
  add_case((rows)[i].what, function, &(rows)[i])

int main(void) {
  size_t i;
  ADD_ROWS(pointers, test_pointer);
  ADD_ROWS(calls, test_call);
  ADD_ROWS(capture_calls, test_capture_call);
  ADD_ROWS(descriptions, test_description);
  return run_cases("misuse");
}
