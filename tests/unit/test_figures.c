/* The questions of what lies where, of pools' figures, and of why memory ran out. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fixture.h"

#include "judge_map.h"

static void judge(gmlake_pool *pool) {
  const char *wrong = map_wrong(lake, &pool, 1);
  if (wrong) fail_msg("%s", wrong);
}

static gmlake_allocation_info found(const void *address) {
  gmlake_allocation_info info;
  memset(&info, 0x5A, sizeof(info));
  step(gmlake_find(lake, address, &info));
  return info;
}

static void assert_found(const void *address, gmlake_kind kind, gmlake_state state, const void *ptr,
                         size_t bytes) {
  const gmlake_allocation_info info = found(address);
  assert_int_equal(info.kind, kind);
  assert_int_equal(info.state, state);
  assert_ptr_equal(info.ptr, ptr);
  assert_int_equal(info.bytes, bytes);
}

static void assert_nothing_at(const void *address) {
  gmlake_allocation_info info;
  char text[64];
  step_error(gmlake_find(lake, address, &info), UNKNOWN_POINTER);
  (void)snprintf(text, sizeof(text), "address is 0x%llx: no memory of this lake",
                 (unsigned long long)(uintptr_t)address);
  assert_non_null(strstr(last_error().text, text));
  assert_string_equal(last_error().call, "gmlake_find");
}

static void any_address_of_a_block_finds_it(void **state) {
  gmlake_alloc_desc wanted = request(C + 700, GMLAKE_NO_STITCH, NULL);
  gmlake_allocation_info info;
  char *p, *q;
  (void)state;
  start(16);
  wanted.label = "weights";
  wanted.user_data = 42;
  p = (char *)take(100);
  q = (char *)take_with(&wanted, LEGACY);
  assert_ptr_equal(q, p + 512);
  assert_found(p, GMLAKE_KIND_BLOCK, GMLAKE_STATE_LIVE, p, 512);
  assert_found(p + 511, GMLAKE_KIND_BLOCK, GMLAKE_STATE_LIVE, p, 512);
  info = found(q + C + 1023);
  assert_ptr_equal(info.ptr, q);
  assert_int_equal(info.bytes, C + 1024);
  assert_int_equal(info.requested_bytes, C + 700);
  assert_int_equal(info.piece_count, 1);
  assert_int_equal(info.flags, GMLAKE_NO_STITCH);
  assert_int_equal(info.user_data, 42);
  assert_string_equal(info.label, "weights");
  assert_null(info.stream);
  assert_null(info.pool);
  assert_found(q + C + 1024, GMLAKE_KIND_HOLE, GMLAKE_STATE_FREE, q + C + 1024, C - 1536);
  assert_nothing_at(p - 1);
  assert_nothing_at(p + 2 * C);
  assert_nothing_at(NULL);
  assert_nothing_at(&info);
  assert_nothing_at((const void *)UINTPTR_MAX);
  judge(NULL);
  finish();
}

static void windows_are_found_at_both_addresses(void **state) {
  void *b[8];
  char *w;
  (void)state;
  prepare(16);
  desc.flags = GMLAKE_GUARD;
  open_lake();
  lay(b, 8);
  drop(b[1]);
  drop(b[3]);
  drop(b[5]);
  w = (char *)take(3 * C);
  assert_int_equal(piece_count(w), 3);
  assert_found(w + 3 * C - 1, GMLAKE_KIND_BLOCK, GMLAKE_STATE_LIVE, w, 3 * C);
  assert_int_equal(found(w + C).piece_count, 3);
  assert_found((char *)b[3] + 5, GMLAKE_KIND_BLOCK, GMLAKE_STATE_LIVE, w, 3 * C);
  assert_nothing_at(w + 3 * C); /* the guard */
  assert_nothing_at(w - 1);
  judge(NULL);
  drop(w);
  assert_found(w + 2 * C, GMLAKE_KIND_WINDOW, GMLAKE_STATE_TAGGED, w, 3 * C);
  assert_null(found(w).stream);
  assert_found((char *)b[3] + 5, GMLAKE_KIND_HOLE, GMLAKE_STATE_TAGGED, b[3], C);
  judge(NULL);
  (void)trim_to(0);
  assert_nothing_at(w);
  assert_nothing_at(b[3]); /* a gap by now */
  judge(NULL);
  finish();
}

/* Of the parts of chunks at a window's ends that are not the window's, nothing is told. */
static void what_a_window_maps_beside_itself_is_not_its_own(void **state) {
  void *b[12];
  char *w;
  size_t i;
  (void)state;
  start(16);
  flood(6);
  for (i = 0; i < 12; i++) b[i] = take(C / 2);
  drop(b[3]);
  drop(b[6]);
  w = (char *)take(C);
  assert_int_equal(piece_count(w), 2);
  assert_int_equal((uintptr_t)w % C, C / 2);
  assert_found(w, GMLAKE_KIND_BLOCK, GMLAKE_STATE_LIVE, w, C);
  assert_nothing_at(w - 1);
  assert_nothing_at(w + C);
  judge(NULL);
  finish();
}

static void the_state_says_who_may_have_free_memory(void **state) {
  gmlake_stream one, two;
  gmlake_budget budget;
  gmlake_pool *pool;
  char *p, *q, *r;
  (void)state;
  start(32);
  one = open_stream();
  two = open_stream();
  pool = open_pool(0);
  p = (char *)take_on(C, one);
  q = (char *)take_on(C, one);
  assert_ptr_equal(found(p).stream, one);
  (void)take_on(512, two);
  gmlake_mock_stream_hold(mock, one);
  gmlake_mock_stream_hold(mock, two);
  drop_on(p, one);
  assert_found(p + 9, GMLAKE_KIND_HOLE, GMLAKE_STATE_TAGGED, p, C);
  assert_ptr_equal(found(p).stream, one);
  step(gmlake_record_stream(lake, q, two));
  drop_on(q, one);
  assert_found(q + 9, GMLAKE_KIND_BLOCK, GMLAKE_STATE_PENDING, q, C);
  step(gmlake_capture_begin(lake, two, pool));
  r = (char *)take_on(C, two);
  drop_on(r, two);
  assert_found(r, GMLAKE_KIND_HOLE, GMLAKE_STATE_GRAPH, r, C);
  step(gmlake_capture_end(lake, two));
  assert_found(r, GMLAKE_KIND_HOLE, GMLAKE_STATE_GRAPH, r, C);
  assert_ptr_equal(found(r).pool, pool);
  judge(pool);
  step(gmlake_forget_stream(lake, one));
  assert_found(p, GMLAKE_KIND_HOLE, GMLAKE_STATE_TAGGED, p, C);
  assert_ptr_equal(found(p).stream, NONE);
  gmlake_mock_stream_finish(mock, one);
  gmlake_mock_stream_finish(mock, two);
  step(gmlake_get_budget(lake, &budget)); /* asks what is complete */
  assert_int_equal(found(p).state, GMLAKE_STATE_FREE);
  judge(pool);
  finish();
}

static void buffers_are_found_up_to_where_they_may_grow(void **state) {
  gmlake_buffer_desc wanted = buffer_desc(4 * C);
  gmlake_buffer_info info;
  gmlake_buffer *buffer, *second = NULL;
  char *p;
  (void)state;
  prepare(16);
  desc.flags = GMLAKE_GUARD;
  open_lake();
  wanted.label = "keys";
  wanted.user_data = 7;
  step(gmlake_buffer_create(lake, &wanted, &buffer));
  step(gmlake_buffer_create(lake, &wanted, &second));
  assert_ok(gmlake_buffer_get_info(lake, buffer, &info));
  p = (char *)info.ptr;
  assert_found(p, GMLAKE_KIND_BUFFER, GMLAKE_STATE_LIVE, p, 0);
  judge(NULL);
  step(gmlake_buffer_resize(lake, buffer, C + 1, LEGACY));
  assert_found(p + 2 * C - 1, GMLAKE_KIND_BUFFER, GMLAKE_STATE_LIVE, p, 2 * C);
  assert_found(p + 4 * C - 1, GMLAKE_KIND_BUFFER, GMLAKE_STATE_LIVE, p, 2 * C);
  assert_int_equal(found(p + C).requested_bytes, C + 1);
  assert_int_equal(found(p + C).user_data, 7);
  assert_string_equal(found(p + C).label, "keys");
  assert_nothing_at(p + 4 * C); /* the guard */
  step(gmlake_buffer_resize(lake, second, 3 * C, LEGACY));
  judge(NULL);
  step(gmlake_buffer_resize(lake, second, 0, LEGACY));
  step(gmlake_buffer_destroy(lake, buffer, LEGACY));
  assert_nothing_at(p);
  judge(NULL);
  finish();
}

/* ---- What backs a block ---------------------------------------------------------------------- */

/* The bytes of a block, read through its handles where the test maps them. */
static void assert_backed(const unsigned char *ptr, size_t bytes, size_t parts) {
  gmlake_chunk_info chunks[8];
  size_t count = 99, at = 0, i;
  uint64_t base;
  int code;
  assert_ok(gmlake_get_chunks(lake, ptr + bytes - 1, chunks, 8, &count));
  assert_int_equal(count, parts);
  assert_ok(mock->reserve(mock->user, C, C, &base, &code));
  for (i = 0; i < count; i++) {
    const unsigned char *seen = (const unsigned char *)(uintptr_t)base + chunks[i].offset_bytes;
    assert_int_equal(chunks[i].address, (uintptr_t)ptr + at);
    assert_true(chunks[i].offset_bytes + chunks[i].bytes <= C);
    assert_ok(mock->map(mock->user, base, C, chunks[i].handle, &code));
    assert_ok(mock->set_access(mock->user, base, C, NULL, 0, &code));
    assert_memory_equal(seen, ptr + at, chunks[i].bytes);
    assert_ok(mock->unmap(mock->user, base, C, &code));
    at += chunks[i].bytes;
  }
  assert_int_equal(at, bytes);
  assert_ok(mock->unreserve(mock->user, base, C, &code));
}

static void write_numbers(unsigned char *ptr, size_t bytes) {
  size_t i;
  for (i = 0; i < bytes; i++) ptr[i] = (unsigned char)(i * 7 + i / 251);
}

static void chunks_hold_the_bytes_of_blocks_and_buffers(void **state) {
  gmlake_buffer_info info;
  unsigned char *p, *w;
  gmlake_buffer *buffer;
  void *b[8];
  (void)state;
  start(16);
  lay(b, 8);
  drop(b[1]);
  drop(b[2]);
  p = (unsigned char *)take(C + C / 2);
  write_numbers(p, C + C / 2);
  assert_backed(p, C + C / 2, 2);
  drop(b[4]);
  drop(b[6]);
  w = (unsigned char *)take(2 * C + C / 4);
  assert_int_equal(piece_count(w), 3);
  write_numbers(w, 2 * C + C / 4);
  assert_backed(w, 2 * C + C / 4, 3);
  buffer = open_buffer(4);
  step(gmlake_buffer_resize(lake, buffer, 3 * C, LEGACY));
  assert_ok(gmlake_buffer_get_info(lake, buffer, &info));
  write_numbers((unsigned char *)info.ptr, 3 * C);
  assert_backed((unsigned char *)info.ptr, 3 * C, 3);
  judge(NULL);
  finish();
}

static void chunks_of_what_is_not_live_are_refused(void **state) {
  gmlake_chunk_info chunks[2], untouched;
  size_t count = 99;
  char *p;
  (void)state;
  start(16);
  p = (char *)take(2 * C);
  memset(chunks, 0x5A, sizeof(chunks));
  untouched = chunks[1];
  assert_ok(gmlake_get_chunks(lake, p, chunks, 1, &count));
  assert_int_equal(count, 2);
  assert_int_equal(chunks[0].bytes, C);
  assert_memory_equal(&chunks[1], &untouched, sizeof(untouched));
  count = 99;
  assert_error(gmlake_get_chunks(lake, p + 2 * C, chunks, 2, &count), UNKNOWN_POINTER);
  assert_non_null(strstr(last_error().text, "lies in no live block and in no buffer"));
  drop(p);
  assert_error(gmlake_get_chunks(lake, p, chunks, 2, &count), UNKNOWN_POINTER);
  assert_int_equal(count, 99);
  finish();
}

/* ---- The map --------------------------------------------------------------------------------- */

static void a_map_tells_every_kind(void **state) {
  size_t kinds[GMLAKE_KIND_SPAN + 1], count, i;
  gmlake_map_entry map[64];
  gmlake_buffer *buffer;
  gmlake_pool *pool;
  void *b[8];
  (void)state;
  start(32);
  lay(b, 8);
  drop(b[1]);
  drop(b[3]);
  drop(take(2 * C));
  (void)take(512 + C);
  drop(b[5]);
  drop(take(C + C / 2));
  pool = open_pool(0);
  (void)take_from(pool, 3 * 512, LEGACY);
  buffer = open_buffer(4);
  step(gmlake_buffer_resize(lake, buffer, 2 * C, LEGACY));
  step(gmlake_buffer_resize(lake, buffer, C, LEGACY));
  assert_ok(gmlake_get_map(lake, map, 64, &count));
  memset(kinds, 0, sizeof(kinds));
  for (i = 0; i < count; i++) kinds[map[i].kind]++;
  for (i = GMLAKE_KIND_BLOCK; i <= GMLAKE_KIND_SPAN; i++) assert_true(kinds[i]);
  assert_int_equal(kinds[GMLAKE_KIND_CHUNK], stats().chunk_count);
  judge(pool);
  finish();
}

/* The entry of that kind at that address. */
static const gmlake_map_entry *entry_at(const gmlake_map_entry *map, size_t count, gmlake_kind kind,
                                        const void *address) {
  size_t i = 0;
  while (i < count && (map[i].kind != kind || map[i].address != (uintptr_t)address)) i++;
  assert_true(i < count);
  return &map[i];
}

static void a_map_tells_ages_and_what_windows_join(void **state) {
  const gmlake_map_entry *window;
  gmlake_map_entry map[64];
  size_t count;
  char *w;
  void *b[6];
  (void)state;
  start(32);
  lay(b, 6);
  drop(b[1]);
  drop(b[3]);
  w = (char *)take(2 * C);
  assert_ok(gmlake_get_map(lake, map, 64, &count));
  assert_int_equal(entry_at(map, count, GMLAKE_KIND_BLOCK, w)->age, 0);
  assert_int_equal(entry_at(map, count, GMLAKE_KIND_BLOCK, b[5])->age, 3); /* and its two pieces */
  assert_int_equal(entry_at(map, count, GMLAKE_KIND_BLOCK, b[0])->age, 8);
  drop(w);
  assert_ok(gmlake_get_map(lake, map, 64, &count));
  window = entry_at(map, count, GMLAKE_KIND_WINDOW, w);
  assert_int_equal(window[1].kind, GMLAKE_KIND_SPAN);
  assert_int_equal(window[1].address, (uintptr_t)b[1]);
  assert_int_equal(window[2].address, (uintptr_t)b[3]);
  assert_int_equal(window[1].bytes + window[2].bytes, 2 * C);
  assert_int_equal(window[2].owner, (uintptr_t)w);
  assert_ptr_equal(window + 3, map + count);
  judge(NULL);
  finish();
}

static void a_map_tells_arenas_and_pools(void **state) {
  const gmlake_map_entry *in, *out;
  gmlake_map_entry map[64];
  gmlake_pool_desc desc = {0};
  gmlake_pool *pool;
  size_t count;
  void *p, *q;
  (void)state;
  start(32);
  desc.limit_bytes = 4 * C;
  desc.label = "tenant";
  assert_ok(gmlake_pool_create(lake, &desc, &pool));
  p = take(512);
  q = take_from(pool, 512, LEGACY);
  assert_ok(gmlake_get_map(lake, map, 64, &count));
  out = entry_at(map, count, GMLAKE_KIND_BLOCK, p);
  in = entry_at(map, count, GMLAKE_KIND_BLOCK, q);
  assert_string_equal(in->pool_label, "tenant");
  assert_int_equal(in->pool_limit_bytes, 4 * C);
  assert_null(out->pool_label);
  assert_int_equal(out->pool_limit_bytes, 0);
  assert_int_not_equal(in->arena, out->arena);
  assert_int_equal(entry_at(map, count, GMLAKE_KIND_CHUNK, q)->arena, in->arena);
  finish();
}

static void a_map_tells_each_chunk_of_a_buffer(void **state) {
  const gmlake_map_entry *whole;
  gmlake_map_entry map[64];
  gmlake_buffer_info info;
  gmlake_buffer *buffer;
  size_t count, i, pieces = 0;
  (void)state;
  start(8);
  buffer = open_buffer(4);
  step(gmlake_buffer_resize(lake, buffer, 4 * C, LEGACY));
  step(gmlake_buffer_discard(lake, buffer, 2 * C, C, LEGACY));
  assert_ok(gmlake_buffer_get_info(lake, buffer, &info));
  assert_ok(gmlake_get_map(lake, map, 64, &count));
  whole = entry_at(map, count, GMLAKE_KIND_BUFFER, info.ptr);
  for (i = 0; i < 4; i++) {
    const gmlake_map_entry *e;
    if (i == 2) continue;
    e = entry_at(map, count, GMLAKE_KIND_PIECE, (char *)info.ptr + i * C);
    assert_int_equal(e->owner, whole->address);
    assert_int_equal(e->bytes, C);
    assert_true(e->handle != 0);
  }
  for (i = 0; i < count; i++) pieces += map[i].kind == GMLAKE_KIND_PIECE;
  assert_int_equal(pieces, 3);
  finish();
}

/* A chunk with an address of its own is nobody's: the hole there says who may have it. */
static void a_map_tells_streams_of_holes(void **state) {
  gmlake_map_entry map[64];
  gmlake_stream one;
  size_t count;
  void *p;
  (void)state;
  start(8);
  one = open_stream();
  p = take_on(2 * C, one);
  drop_on(p, one);
  assert_ok(gmlake_get_map(lake, map, 64, &count));
  assert_ptr_equal(entry_at(map, count, GMLAKE_KIND_HOLE, p)->stream, one);
  assert_ptr_equal(entry_at(map, count, GMLAKE_KIND_CHUNK, p)->stream, NONE);
  assert_int_equal(entry_at(map, count, GMLAKE_KIND_CHUNK, p)->state, GMLAKE_STATE_LIVE);
  finish();
}

static void a_map_that_does_not_fit_tells_the_count(void **state) {
  gmlake_map_entry map[8], untouched;
  size_t count, capacity;
  (void)state;
  start(8);
  (void)take(512);
  memset(&untouched, 0x5A, sizeof(untouched));
  for (capacity = 0; capacity < 8; capacity++) {
    memset(map, 0x5A, sizeof(map));
    assert_ok(gmlake_get_map(lake, map, capacity, &count));
    assert_int_equal(count, 3); /* a chunk, a block, a hole */
    for (count = 0; count < 8; count++)
      assert_int_equal(memcmp(&map[count], &untouched, sizeof(untouched)) == 0,
                       count >= capacity || count >= 3);
  }
  assert_ok(gmlake_get_map(lake, NULL, 0, &count));
  assert_int_equal(count, 3);
  finish();
}

/* Chunks and windows that the driver refuses to take back stay on the map. */
static void a_map_tells_what_is_quarantined(void **state) {
  gmlake_map_entry map[64];
  size_t count, i, chunks = 0, windows = 0;
  void *b[8];
  (void)state;
  start_with_faults(16);
  lay(b, 8);
  drop(b[1]);
  drop(b[3]);
  drop(take(2 * C));
  fail_call(ON_UNMAP, 1, GMLAKE_ERROR_DRIVER, 0);
  (void)gmlake_trim(lake, 0, NULL);
  drop(b[7]);
  fail_call(ON_RELEASE, 1, GMLAKE_ERROR_DRIVER, 1);
  (void)gmlake_trim(lake, 0, NULL);
  fail_call(ON_RELEASE, 0, GMLAKE_OK, 0);
  assert_ok(gmlake_get_map(lake, map, 64, &count));
  for (i = 0; i < count; i++) {
    if (map[i].state != GMLAKE_STATE_QUARANTINED) continue;
    chunks += map[i].kind == GMLAKE_KIND_CHUNK;
    windows += map[i].kind == GMLAKE_KIND_WINDOW;
  }
  assert_int_equal(chunks, 1);
  assert_int_equal(windows, 1);
  judge(NULL);
  finish();
}

/* ---- Pools ----------------------------------------------------------------------------------- */

static gmlake_stats of_pool(gmlake_pool *pool) {
  gmlake_stats now;
  memset(&now, 0x5A, sizeof(now));
  now.struct_bytes = sizeof(now);
  assert_ok(gmlake_pool_get_stats(lake, pool, &now));
  return now;
}

static void a_pools_figures_are_its_own(void **state) {
  gmlake_pool *pool;
  gmlake_buffer *buffer;
  void *p;
  (void)state;
  start(32);
  pool = open_pool(0);
  assert_int_equal(of_pool(pool).reserved_bytes, 0);
  (void)take(100);
  p = take_from(pool, C + 100, LEGACY);
  buffer = open_buffer(4);
  step(gmlake_buffer_resize(lake, buffer, 2 * C - 1, LEGACY));
  assert_int_equal(of_pool(pool).live_count, 1);
  assert_int_equal(of_pool(pool).requested_bytes, C + 100);
  assert_int_equal(of_pool(pool).active_bytes, C + 512);
  assert_int_equal(of_pool(pool).reserved_bytes, 2 * C);
  assert_int_equal(of_pool(pool).chunk_count, 2);
  assert_int_equal(of_pool(pool).buffer_count, 0);
  assert_int_equal(of_pool(NULL).live_count, 1);
  assert_int_equal(of_pool(NULL).reserved_bytes, 3 * C);
  assert_int_equal(of_pool(NULL).active_bytes, 512 + 2 * C);
  assert_int_equal(of_pool(NULL).requested_bytes, 100 + 2 * C - 1);
  assert_int_equal(of_pool(NULL).buffer_bytes, 2 * C);
  judge(pool);
  drop(p);
  assert_int_equal(of_pool(pool).live_count, 0);
  assert_int_equal(of_pool(pool).reserved_bytes, 2 * C);
  judge(pool);
  finish();
}

/* With chunks of a size that no block has: an arena of its own. */
static gmlake_buffer *open_buffer_of(size_t chunk_bytes) {
  gmlake_buffer_desc wanted = buffer_desc(8 * C);
  gmlake_buffer *buffer = NULL;
  wanted.chunk_bytes = chunk_bytes;
  step(gmlake_buffer_create(lake, &wanted, &buffer));
  return buffer;
}

/* ---- Why memory ran out ---------------------------------------------------------------------- */

static void assert_adds_up(const gmlake_error_info *info) {
  assert_int_equal(info->reserved_bytes, info->live_here_bytes + info->free_bytes +
                                             info->pending_bytes + info->elsewhere_bytes);
  assert_true(info->largest_bytes <= info->free_bytes && info->hole_bytes <= info->free_bytes);
}

static void the_report_says_whose_the_memory_is(void **state) {
  gmlake_stream one, two;
  gmlake_error_info info;
  gmlake_buffer *buffer;
  gmlake_pool *pool;
  void *b[8], *p;
  size_t i;
  (void)state;
  start(16);
  one = open_stream();
  two = open_stream();
  pool = open_pool(0);
  for (i = 0; i < 8; i++) b[i] = take_on(C / 2, one); /* two to a chunk: its holes are no ends */
  p = take_on(2 * C, one);
  (void)take_from(pool, 3 * C, one);
  buffer = open_buffer_of(2 * C);
  step(gmlake_buffer_resize(lake, buffer, 2 * C, one));
  (void)take_on(5 * C, one);
  assert_int_equal(stats().reserved_bytes, 16 * C);
  for (i = 0; i < 8; i += 2) drop_on(b[i], NONE);
  (void)take_on(512, one);
  (void)take_on(512, two);
  gmlake_mock_stream_hold(mock, two);
  step(gmlake_record_stream(lake, p, two));
  step(gmlake_capture_begin(lake, two, pool)); /* so that nobody can wait for it */
  drop_on(p, one);
  step_error(try_on(9 * C, one), OUT_OF_DEVICE_MEMORY);
  info = last_error();
  assert_adds_up(&info);
  assert_int_equal(info.elsewhere_bytes, 5 * C);
  assert_int_equal(info.live_here_bytes, 4 * (C / 2) + 5 * C + 1024);
  assert_int_equal(info.pending_bytes, 2 * C);
  assert_int_equal(info.free_bytes, 4 * (C / 2) - 1024);
  assert_int_equal(info.largest_bytes, C / 2);
  gmlake_mock_stream_finish(mock, two);
  step(gmlake_capture_end(lake, two));
  finish();
}

static void the_report_tells_holes_from_what_can_be_stitched(void **state) {
  gmlake_error_info info;
  char *b[16];
  size_t i;
  (void)state;
  start(4);
  flood(4);
  for (i = 0; i < 16; i++) b[i] = (char *)take(C / 4);
  drop(b[1]); /* inside a chunk */
  drop(b[5]);
  drop(b[6]);
  drop(b[11]); /* a chunk's end, and the next one's beginning */
  drop(b[12]);
  step_error(try_on(2 * C, LEGACY), OUT_OF_DEVICE_MEMORY);
  info = last_error();
  assert_adds_up(&info);
  assert_int_equal(info.free_bytes, 5 * (C / 4));
  assert_int_equal(info.largest_bytes, C / 2);
  assert_int_equal(info.stitchable_bytes, 2 * (C / 4));
  assert_int_equal(info.hole_bytes, 3 * (C / 4));
  assert_int_equal(info.live_here_bytes, 11 * (C / 4));
  assert_int_equal(info.elsewhere_bytes, 0);
  finish();
}

static void the_report_tells_what_sleeps(void **state) {
  gmlake_error_info info;
  gmlake_pool *pool;
  size_t released;
  (void)state;
  start(8);
  pool = open_pool(0);
  (void)take_from(pool, 3 * C, LEGACY);
  (void)take(2 * C);
  step(gmlake_pool_sleep(lake, pool, GMLAKE_SLEEP_DROP, &released));
  step_error(try_on(7 * C, LEGACY), OUT_OF_DEVICE_MEMORY);
  info = last_error();
  assert_adds_up(&info);
  assert_int_equal(info.sleeping_bytes, 3 * C);
  assert_int_equal(info.reserved_bytes, 2 * C);
  assert_int_equal(info.elsewhere_bytes, 0);
  step(gmlake_pool_wake(lake, pool));
  finish();
}

static void the_report_counts_a_freed_window_as_pending(void **state) {
  gmlake_stream one, two;
  gmlake_error_info info;
  gmlake_pool *pool;
  void *b[8], *w;
  (void)state;
  start(8);
  one = open_stream();
  two = open_stream();
  pool = open_pool(0);
  lay(b, 8);
  drop_on(b[1], NONE);
  drop_on(b[3], NONE);
  drop_on(b[5], NONE);
  (void)take_on(C, two);
  w = take_on(2 * C, one);
  assert_int_equal(piece_count(w), 2);
  gmlake_mock_stream_hold(mock, two);
  step(gmlake_record_stream(lake, w, two));
  step(gmlake_capture_begin(lake, two, pool));
  drop_on(w, one);
  step_error(try_on(C, one), OUT_OF_DEVICE_MEMORY);
  info = last_error();
  assert_adds_up(&info);
  assert_int_equal(info.pending_bytes, 2 * C);
  assert_int_equal(info.live_here_bytes, 6 * C);
  gmlake_mock_stream_finish(mock, two);
  step(gmlake_capture_end(lake, two));
  finish();
}

/* ---- How an allocation would end ------------------------------------------------------------- */

static gmlake_query_info asked(const gmlake_alloc_desc *wanted, gmlake_stream stream) {
  gmlake_query_info info;
  memset(&info, 0x5A, sizeof(info));
  step(gmlake_query(lake, wanted, stream, &info));
  return info;
}

/* Asks, compares, allocates and compares. Returns the block, NULL: the request is refused. */
static void *foretold(const gmlake_alloc_desc *wanted, gmlake_stream stream, gmlake_result result,
                      gmlake_wait wait, size_t new_bytes) {
  const gmlake_query_info info = asked(wanted, stream);
  const gmlake_stats before = stats();
  gmlake_wait waited = GMLAKE_NO_WAIT;
  void *ptr = NULL;
  assert_int_equal(info.result, result);
  assert_int_equal(info.wait, wait);
  assert_int_equal(info.new_bytes, new_bytes);
  assert_int_equal(gmlake_alloc_with(lake, wanted, stream, &ptr), result);
  if (stats().stream_wait_count > before.stream_wait_count) waited = GMLAKE_DEVICE_WAIT;
  if (stats().host_wait_count > before.host_wait_count) waited = GMLAKE_HOST_WAIT;
  if (!result) assert_int_equal(waited, wait);
  if (!result) assert_int_equal(stats().state_count[3] > before.state_count[3], new_bytes != 0);
  return ptr;
}

static void *foretold_of(size_t bytes, gmlake_stream stream, gmlake_result result, gmlake_wait wait,
                         size_t new_bytes) {
  const gmlake_alloc_desc wanted = request(bytes, 0, NULL);
  return foretold(&wanted, stream, result, wait, new_bytes);
}

static void a_question_needs_no_driver_where_the_answer_is_known(void **state) {
  const gmlake_alloc_desc nothing = request(0, 0, NULL), page = request(512, 0, NULL);
  uint64_t calls;
  (void)state;
  start(8);
  (void)take(512);
  calls = census().call_count;
  assert_int_equal(asked(&page, LEGACY).result, GMLAKE_OK);
  assert_int_equal(asked(&nothing, LEGACY).result, GMLAKE_OK);
  assert_int_equal(asked(&nothing, LEGACY).new_bytes, 0);
  assert_int_equal(census().call_count, calls);
  (void)foretold_of(512, LEGACY, GMLAKE_OK, GMLAKE_NO_WAIT, 0);
  finish();
}

static void growth_is_foretold_to_the_chunk(void **state) {
  gmlake_alloc_desc wanted = request(3 * C, GMLAKE_NO_GROW, NULL);
  gmlake_pool *pool;
  void *b[4];
  (void)state;
  prepare(16);
  desc.limit_bytes = 12 * C;
  open_lake();
  pool = open_pool(3 * C);
  (void)foretold_of(3 * C, LEGACY, GMLAKE_OK, GMLAKE_NO_WAIT, 3 * C);
  assert_null(foretold(&wanted, LEGACY, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, GMLAKE_NO_WAIT, 0));
  wanted = request(2 * C + 1, 0, pool);
  b[0] = foretold(&wanted, LEGACY, GMLAKE_OK, GMLAKE_NO_WAIT, 3 * C);
  assert_non_null(b[0]);
  assert_null(foretold(&wanted, LEGACY, GMLAKE_ERROR_LIMIT_REACHED, GMLAKE_NO_WAIT, 0));
  (void)foretold_of(6 * C, LEGACY, GMLAKE_OK, GMLAKE_NO_WAIT, 6 * C);
  (void)foretold_of(C, LEGACY, GMLAKE_ERROR_LIMIT_REACHED, GMLAKE_NO_WAIT, 0);
  gmlake_mock_stream_hold(mock, LEGACY);
  drop(b[0]); /* the pool's chunks serve the default pool once they are returned */
  (void)foretold_of(3 * C, LEGACY, GMLAKE_OK, GMLAKE_HOST_WAIT, 3 * C);
  finish();
}

static void a_window_is_foretold_with_what_it_lacks(void **state) {
  void *b[8];
  (void)state;
  start(10);
  lay(b, 8);
  drop(b[0]);
  drop(b[2]);
  drop(b[4]);
  drop(foretold_of(3 * C, LEGACY, GMLAKE_OK, GMLAKE_NO_WAIT, 0));
  (void)foretold_of(5 * C, LEGACY, GMLAKE_OK, GMLAKE_NO_WAIT, 2 * C);
  (void)foretold_of(C, LEGACY, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, GMLAKE_NO_WAIT, 0);
  finish();
}

/* One chunk more than a window lacks makes a range. */
static void a_range_is_foretold_that_takes_one_chunk_more(void **state) {
  void *b[4];
  (void)state;
  start(10);
  lay(b, 4);
  drop(b[0]);
  (void)foretold_of(2 * C, LEGACY, GMLAKE_OK, GMLAKE_NO_WAIT, 2 * C);
  finish();
}

/* Where limits are no multiples of a chunk. */
static void limits_between_chunks_are_foretold(void **state) {
  gmlake_alloc_desc wanted = request(C, 0, NULL);
  gmlake_budget budget;
  gmlake_pool *pool;
  void *p;
  (void)state;
  prepare(32);
  desc.limit_bytes = 8 * C - 1;
  open_lake();
  step(gmlake_get_budget(lake, &budget));
  assert_int_equal(budget.allocatable_bytes, 7 * C);
  pool = open_pool(2 * C);
  (void)take(3 * C);
  p = take_from(pool, 2 * C, LEGACY);
  drop_on(p, NONE); /* to be returned */
  (void)foretold_of(5 * C, LEGACY, GMLAKE_ERROR_LIMIT_REACHED, GMLAKE_NO_WAIT, 0);
  p = foretold_of(4 * C, LEGACY, GMLAKE_OK, GMLAKE_NO_WAIT, 4 * C);
  assert_non_null(p);
  drop_on(p, NONE); /* home has memory to return */
  wanted.pool = open_pool(2 * C - 1);
  (void)foretold(&wanted, LEGACY, GMLAKE_OK, GMLAKE_NO_WAIT, C);
  (void)foretold(&wanted, LEGACY, GMLAKE_ERROR_LIMIT_REACHED, GMLAKE_NO_WAIT, 0);
  finish();
}

/* A pool may replace what it can return, and no more. */
static void a_pools_limit_holds_for_what_replaces_its_memory(void **state) {
  gmlake_alloc_desc wanted = request(3 * C, GMLAKE_NO_STITCH, NULL);
  void *b[4];
  size_t i;
  (void)state;
  start(32);
  wanted.pool = open_pool(4 * C);
  for (i = 0; i < 4; i++) b[i] = take_from(wanted.pool, C, LEGACY);
  drop(b[0]);
  drop(b[2]);
  (void)foretold(&wanted, LEGACY, GMLAKE_ERROR_LIMIT_REACHED, GMLAKE_NO_WAIT, 0);
  wanted.bytes = 2 * C;
  (void)foretold(&wanted, LEGACY, GMLAKE_OK, GMLAKE_NO_WAIT, 2 * C);
  finish();
}

/* A home that has no buffers gives its chunks to a pool's blocks only where all is returned. What
   cannot be counted, for want of host memory, is not taken for nothing. */
static void what_home_returns_is_counted_on_by_a_pool(void **state) {
  gmlake_alloc_desc wanted = request(4 * C, 0, NULL);
  gmlake_query_info info;
  long left = 0;
  int failed = 0;
  (void)state;
  start(8);
  wanted.pool = open_pool(0);
  drop(take(6 * C));
  while (!left) { /* what could be had stays for the next time */
    gmlake_result result;
    host_fail_in = 1;
    assert_false(gmlk_scratch_reserve(&lake->home, 1000)); /* as where a growth failed */
    host_fail_in = 2;
    result = gmlake_query(lake, &wanted, LEGACY, &info);
    left = host_fail_in;
    host_fail_in = 0;
    failed += result == GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
    assert_true(result == GMLAKE_ERROR_OUT_OF_HOST_MEMORY || (!result && !info.result));
  }
  assert_true(failed >= 2);
  gmlake_mock_stream_hold(mock, LEGACY);
  (void)foretold(&wanted, LEGACY, GMLAKE_OK, GMLAKE_HOST_WAIT, 4 * C);
  finish();
}

/* After the host's wait it would be what has to be left to others that forbids to grow. */
static void a_limit_that_only_waiting_meets_is_told(void **state) {
  gmlake_stream one;
  void *p;
  (void)state;
  prepare(8);
  desc.driver_free_bytes_min = 2 * C;
  open_lake();
  one = open_stream();
  p = take_on(3 * C, one);
  (void)take_on(2 * C, one);
  gmlake_mock_stream_hold(mock, one);
  drop_on(p, one);
  (void)foretold_of(6 * C, NONE, GMLAKE_ERROR_LIMIT_REACHED, GMLAKE_NO_WAIT, 0);
  finish();
}

/* What is free begins inside a chunk, and the request is aligned to chunks. */
static void alignment_is_foretold(void **state) {
  gmlake_alloc_desc wanted = request(C + 512, GMLAKE_NO_STITCH, NULL);
  void *rest;
  (void)state;
  start(3);
  (void)take(C + 512);
  rest = take(2 * C - 512);
  drop(rest);
  wanted.alignment = C;
  (void)foretold(&wanted, LEGACY, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, GMLAKE_NO_WAIT, 0);
  wanted.bytes = C; /* what was free has been returned */
  (void)foretold(&wanted, LEGACY, GMLAKE_OK, GMLAKE_NO_WAIT, C);
  finish();
}

/* The legacy stream has work that nobody waits for: it can have no event in a capture. */
static void a_capture_leaves_no_wait_to_be_foretold(void **state) {
  gmlake_stream one;
  gmlake_pool *pool;
  void *p, *q;
  (void)state;
  start(10);
  one = open_stream();
  pool = open_pool(0);
  p = take_from(pool, 4 * C, LEGACY);
  drop_on(p, NONE); /* to be returned */
  (void)take(4 * C);
  q = take(512);
  step(gmlake_capture_begin(lake, one, open_pool(0)));
  drop(q);
  (void)foretold_of(5 * C, LEGACY, GMLAKE_OK, GMLAKE_NO_WAIT, 4 * C);
  step(gmlake_capture_end(lake, one));
  finish();
}

/* The window's use has an event from before the capture; the last block's can have none. */
static void what_has_its_event_is_counted_on_in_a_capture(void **state) {
  gmlake_stream one, two;
  gmlake_pool *pool;
  void *b[6], *w;
  (void)state;
  start(6);
  one = open_stream();
  two = open_stream();
  pool = open_pool(0);
  lay(b, 6);
  drop_on(b[1], NONE);
  drop_on(b[3], NONE);
  w = take_on(2 * C, one);
  assert_int_equal(piece_count(w), 2);
  gmlake_mock_stream_hold(mock, two);
  step(gmlake_record_stream(lake, w, two));
  drop_on(w, one);
  step(gmlake_record_stream(lake, b[5], two));
  step(gmlake_capture_begin(lake, two, pool));
  drop_on(b[5], one);
  w = foretold_of(2 * C, one, GMLAKE_OK, GMLAKE_DEVICE_WAIT, 0);
  drop_on(w, one);
  (void)foretold_of(3 * C, one, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, GMLAKE_NO_WAIT, 0);
  gmlake_mock_stream_finish(mock, two);
  step(gmlake_capture_end(lake, two));
  (void)foretold_of(3 * C, one, GMLAKE_OK, GMLAKE_NO_WAIT, 0);
  finish();
}

/* A buffer's place that could neither be given access nor be unmapped again. */
static void a_pools_figures_tell_what_is_quarantined(void **state) {
  gmlake_buffer *buffer;
  (void)state;
  start_with_faults(16);
  buffer = open_buffer_of(2 * C);
  fail_call(ON_ACCESS, 2, GMLAKE_ERROR_DRIVER, 0); /* behind that at home, if there is one */
  fail_call(ON_UNMAP, 1, GMLAKE_ERROR_DRIVER, 1);
  if (!gmlake_buffer_resize(lake, buffer, 4 * C, LEGACY))
    step_error(gmlake_buffer_resize(lake, buffer, 8 * C, LEGACY), DRIVER);
  fail_call(ON_ACCESS, 0, GMLAKE_OK, 0);
  fail_call(ON_UNMAP, 0, GMLAKE_OK, 0);
  assert_ok(gmlake_check(lake));
  assert_true(stats().quarantined_bytes > 0);
  assert_int_equal(of_pool(NULL).quarantined_bytes, stats().quarantined_bytes);
  finish();
}

static void a_window_without_addresses_is_not_foretold(void **state) {
  const gmlake_alloc_desc wanted = request(2 * C, GMLAKE_NO_GROW, NULL);
  void *b[8];
  (void)state;
  prepare(8);
  desc.window_bytes = C;
  open_lake();
  lay(b, 8);
  drop(b[0]);
  drop(b[2]);
  (void)foretold(&wanted, LEGACY, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, GMLAKE_NO_WAIT, 0);
  gmlake_mock_stream_hold(mock, LEGACY);
  /* New chunks side by side, for those that are returned once the host has waited. */
  (void)foretold_of(2 * C, LEGACY, GMLAKE_OK, GMLAKE_HOST_WAIT, 2 * C);
  drop(b[1]);
  (void)foretold_of(C, LEGACY, GMLAKE_OK, GMLAKE_NO_WAIT, 0);
  finish();
}

static void waits_are_foretold(void **state) {
  gmlake_stream one, two;
  void *p;
  (void)state;
  start(8);
  one = open_stream();
  two = open_stream();
  p = take_on(6 * C, one);
  (void)take_on(512, two);
  gmlake_mock_stream_hold(mock, one);
  drop_on(p, one);
  (void)foretold_of(C, two, GMLAKE_OK, GMLAKE_NO_WAIT, C);
  (void)foretold_of(3 * C, two, GMLAKE_OK, GMLAKE_DEVICE_WAIT, 0);
  (void)foretold_of(2 * C, NONE, GMLAKE_OK, GMLAKE_HOST_WAIT, 0);
  finish();
}

/* A free chunk is clean, but a buffer that had it before still maps it for work that is not done:
   it is not returned before the host has waited. */
static void a_chunk_that_a_buffer_may_still_use_is_not_counted_on(void **state) {
  gmlake_stream one, two;
  gmlake_buffer *first, *second;
  (void)state;
  start(2);
  one = open_stream();
  two = open_stream();
  first = open_buffer_of(2 * C);
  second = open_buffer_of(2 * C);
  step(gmlake_buffer_resize(lake, first, C, one));
  gmlake_mock_stream_hold(mock, one);
  step(gmlake_buffer_resize(lake, first, 0, one));
  step(gmlake_buffer_resize(lake, second, C, two)); /* behind a wait on the device */
  step(gmlake_buffer_resize(lake, second, 0, NONE));
  assert_int_equal(census().handle_count, 1);
  (void)foretold_of(C, two, GMLAKE_OK, GMLAKE_HOST_WAIT, C);
  finish();
}

/* The window is idle, but the legacy stream, which used it last, can have no event in a capture. */
static void a_window_that_a_capture_keeps_is_not_counted_on(void **state) {
  const gmlake_alloc_desc wanted = request(C + 512, GMLAKE_NO_GROW, NULL);
  gmlake_stream one;
  gmlake_pool *pool;
  void *b[6], *w;
  (void)state;
  prepare(6);
  desc.window_bytes = 2 * C;
  open_lake();
  one = open_stream();
  pool = open_pool(0);
  lay(b, 6);
  drop(b[0]);
  drop(b[2]);
  drop(b[4]);
  w = take(2 * C);
  step(gmlake_capture_begin(lake, one, pool));
  drop(w);
  (void)foretold_of(C + 512, LEGACY, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, GMLAKE_NO_WAIT, 0);
  drop(foretold_of(2 * C, LEGACY, GMLAKE_OK, GMLAKE_NO_WAIT, 0));
  step(gmlake_capture_end(lake, one));
  (void)foretold(&wanted, LEGACY, GMLAKE_OK, GMLAKE_NO_WAIT, 0);
  finish();
}

/* A window that waits for a recorded stream is dropped once the host has waited. */
static void pending_windows_are_counted_on(void **state) {
  gmlake_stream one;
  void *b[6], *w;
  (void)state;
  prepare(6);
  desc.window_bytes = 2 * C;
  open_lake();
  one = open_stream();
  lay(b, 6);
  drop(b[0]);
  drop(b[2]);
  w = take(2 * C);
  step(gmlake_record_stream(lake, w, one));
  gmlake_mock_stream_hold(mock, one);
  drop(w);
  (void)foretold_of(C + 512, LEGACY, GMLAKE_OK, GMLAKE_HOST_WAIT, 0);
  finish();
}

/* A pool's memory that waits for a recorded stream is free, and returned, once the host has
   waited. */
static void pending_memory_of_pools_is_counted_on(void **state) {
  gmlake_alloc_desc wanted = request(2 * C, 0, NULL);
  gmlake_stream one, two;
  void *p;
  (void)state;
  start(4);
  one = open_stream();
  two = open_stream();
  wanted.pool = open_pool(0);
  p = take_with(&wanted, one);
  step(gmlake_record_stream(lake, p, two));
  (void)take_on(2 * C, one);
  gmlake_mock_stream_hold(mock, two);
  drop_on(p, one);
  (void)foretold_of(2 * C, one, GMLAKE_OK, GMLAKE_HOST_WAIT, 2 * C);
  finish();
}

/* | live | live | in use | in use |: what another stream uses and a new chunk serve. */
static void what_others_use_and_a_new_chunk_are_foretold(void **state) {
  gmlake_stream one, two;
  void *p;
  (void)state;
  start(5);
  one = open_stream();
  two = open_stream();
  (void)take_on(2 * C, two);
  p = take_on(2 * C, one);
  gmlake_mock_stream_hold(mock, one);
  drop_on(p, one);
  (void)foretold_of(3 * C, two, GMLAKE_OK, GMLAKE_DEVICE_WAIT, C);
  finish();
}

/* An idle window is all that fits, and there are no addresses for another one. */
static void a_window_that_another_stream_used_is_foretold(void **state) {
  const gmlake_alloc_desc wanted = request(2 * C, 0, NULL);
  gmlake_stream one, two;
  void *b[4], *window;
  (void)state;
  prepare(4);
  desc.window_bytes = 2 * C;
  open_lake();
  one = open_stream();
  two = open_stream();
  lay(b, 4);
  drop(b[0]);
  drop(b[2]);
  window = take_on(2 * C, one);
  assert_int_equal(piece_count(window), 2);
  gmlake_mock_stream_hold(mock, one);
  drop_on(window, one);
  (void)foretold(&wanted, two, GMLAKE_OK, GMLAKE_DEVICE_WAIT, 0);
  finish();
}

/* No addresses for a window, so chunks are created behind what the host has waited for. */
static void growth_behind_what_others_use_is_foretold(void **state) {
  gmlake_stream one, two;
  void *p;
  (void)state;
  prepare(8);
  desc.window_bytes = C;
  open_lake();
  one = open_stream();
  two = open_stream();
  p = take_on(5 * C, one);
  gmlake_mock_stream_hold(mock, one);
  drop_on(p, one);
  (void)foretold_of(7 * C, two, GMLAKE_OK, GMLAKE_HOST_WAIT, 2 * C);
  finish();
}

/* | live | gap | free | gap | live |: what is free stays, as a capture forbids to fence it. One
   growth fills one gap. */
static void two_gaps_are_not_filled_at_once(void **state) {
  gmlake_alloc_desc wanted = request(3 * C, GMLAKE_NO_STITCH, NULL);
  gmlake_stream one;
  gmlake_pool *pool;
  void *b[5];
  (void)state;
  start(5);
  one = open_stream();
  pool = open_pool(0);
  lay(b, 5);
  drop(b[1]);
  drop(b[3]);
  assert_int_equal(trim_to(0), 2 * C);
  step(gmlake_capture_begin(lake, one, pool));
  drop(b[2]);
  (void)foretold(&wanted, LEGACY, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, GMLAKE_NO_WAIT, 0);
  wanted.bytes = 2 * C;
  (void)foretold(&wanted, LEGACY, GMLAKE_OK, GMLAKE_NO_WAIT, C);
  step(gmlake_capture_end(lake, one));
  finish();
}

static void a_question_changes_no_memory(void **state) {
  const gmlake_alloc_desc wanted = request(4 * C, 0, NULL);
  gmlake_map_entry before[64], after[64];
  gmlake_mock_census was, now;
  size_t count, again;
  gmlake_stats figures;
  gmlake_buffer *buffer;
  void *b[8];
  (void)state;
  start(12);
  lay(b, 8);
  buffer = open_buffer_of(2 * C);
  step(gmlake_buffer_resize(lake, buffer, 2 * C, LEGACY));
  step(gmlake_buffer_resize(lake, buffer, 0, LEGACY));
  drop(b[0]);
  drop(b[2]);
  (void)asked(&wanted, LEGACY); /* asks what has completed: what was tagged is clean from here on */
  memset(before, 0, sizeof(before));
  memset(after, 0, sizeof(after));
  assert_ok(gmlake_get_map(lake, before, 64, &count));
  figures = stats();
  was = census();
  assert_int_equal(asked(&wanted, LEGACY).new_bytes, 2 * C);
  assert_ok(gmlake_get_map(lake, after, 64, &again));
  now = census();
  assert_int_equal(count, again);
  assert_memory_equal(before, after, sizeof(after));
  assert_int_equal(now.handle_count, was.handle_count);
  assert_int_equal(now.mapping_count, was.mapping_count);
  assert_int_equal(stats().allocation_count, figures.allocation_count);
  assert_int_equal(stats().state_count[4], figures.state_count[4]);
  assert_int_equal(stats().oom_count, figures.oom_count);
  finish();
}

/* A trim returns what it is asked for, and nothing else that a question had in mind: the places of
   the chunks that stay are mapped still. */
static void what_a_question_would_return_stays(void **state) {
  const gmlake_alloc_desc wanted = request(12 * C, 0, NULL);
  gmlake_buffer *buffer;
  uint64_t mapped;
  (void)state;
  start(12);
  (void)take(4 * C - 512);
  (void)take_on(512, open_stream()); /* the host may wait for two streams */
  buffer = open_buffer_of(2 * C);
  step(gmlake_buffer_resize(lake, buffer, 8 * C, LEGACY));
  step(gmlake_buffer_resize(lake, buffer, 0, LEGACY));
  mapped = census().mapping_count;
  (void)asked(&wanted, LEGACY);
  assert_int_equal(census().mapping_count, mapped);
  assert_int_equal(trim_to(10 * C), 2 * C);
  assert_int_equal(census().mapping_count, mapped - 1);
  finish();
}

static void a_driver_that_does_not_answer_is_an_error(void **state) {
  const gmlake_alloc_desc wanted = request(C, 0, NULL);
  gmlake_query_info info, untouched;
  (void)state;
  start_with_faults(8);
  memset(&info, 0x5A, sizeof(info));
  untouched = info;
  fail_call(ON_MEMORY_INFO, 1, GMLAKE_ERROR_DRIVER, 0);
  step_error(gmlake_query(lake, &wanted, LEGACY, &info), DRIVER);
  assert_memory_equal(&info, &untouched, sizeof(info));
  host_fail_in = 1;
  step_error(gmlake_query(lake, &wanted, open_stream(), &info), OUT_OF_HOST_MEMORY);
  assert_memory_equal(&info, &untouched, sizeof(info));
  finish();
}

/* A budget where no window can be made counts what can be created behind the last block. */
static void the_budget_counts_new_memory_where_nothing_is_stitched(void **state) {
  gmlake_budget budget;
  (void)state;
  prepare(8);
  desc.stitch_bytes_min = 64 * C;
  open_lake();
  step(gmlake_get_budget(lake, &budget));
  assert_int_equal(budget.allocatable_bytes, 8 * C);
  (void)take(C + 512);
  step(gmlake_get_budget(lake, &budget));
  assert_int_equal(budget.allocatable_bytes, 7 * C - 512);
  (void)take(budget.allocatable_bytes);
  finish();
}

/* | live, free | live | free, live |: the free halves make a window, if it is not too small. */
static void the_budget_counts_the_smallest_window(void **state) {
  gmlake_budget budget;
  void *b[5];
  size_t i;
  (void)state;
  prepare(3);
  desc.stitch_bytes_min = C;
  open_lake();
  for (i = 0; i < 5; i++) b[i] = take(i == 2 ? C : C / 2);
  drop(b[1]);
  drop(b[3]);
  step(gmlake_get_budget(lake, &budget));
  assert_int_equal(budget.allocatable_bytes, C);
  (void)take(C);
  finish();
}

/* What is set aside for small blocks ended at a question: the next large block lay behind each. */
static void a_question_leaves_what_is_set_aside(void **state) {
  int asks;
  (void)state;
  for (asks = 0; asks < 4; asks++) {
    gmlake_alloc_desc wanted = request(10000 * C, 0, NULL);
    gmlake_query_info answer;
    gmlake_budget budget;
    char *small, *large;
    start(128);
    (void)take(40 * C);
    small = (char *)take(512);
    if (asks == 1) step(gmlake_get_budget(lake, &budget));
    if (asks == 2) step(gmlake_query(lake, &wanted, LEGACY, &answer));
    if (asks == 3) step(gmlake_query(lake, &wanted, NONE, &answer));
    large = (char *)take(C / 4);
    assert_ptr_equal(take(512), small + 512);
    assert_true(large > small + 512);
    finish();
  }
}

/* Whoever asked for memory on GMLAKE_STREAM_NONE once made an only stream record events for good.
   */
static void a_question_on_no_stream_ends_with_it(void **state) {
  gmlake_alloc_desc wanted = request(C, 0, NULL);
  gmlake_query_info answer;
  uint64_t events;
  int i;
  (void)state;
  start(16);
  (void)take(C);
  drop(take(4 * C));
  step(gmlake_query(lake, &wanted, NONE, &answer));
  assert_int_equal(answer.result, GMLAKE_OK);
  events = stats().event_count;
  for (i = 0; i < 20; i++) drop(take(2 * C));
  assert_int_equal(stats().event_count, events);
  finish();
}

/* The budget told the sum of all free pieces, also where no window of them has addresses; and a
   request that no window has addresses for was refused although new chunks in place of free ones
   hold it. */
static void the_budget_is_served(void **state) {
  static const struct {
    size_t windows, limit, free_chunks, told;
  } rows[] = {
      {4, 16, 8, 8}, /* no window is as long, but chunks created side by side are */
      {4, 0, 8, 8},  /* the device has 16 */
      {8, 16, 8, 8}, /* a window */
      {3, 16, 4, 4}, /* one chunk more than windows have */
      {1, 16, 2, 2},
  };
  size_t row, i;
  (void)state;
  for (row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
    gmlake_alloc_desc wanted;
    gmlake_query_info answer;
    gmlake_budget budget;
    void *blocks[16];
    prepare(16);
    desc.window_bytes = rows[row].windows * C;
    desc.limit_bytes = rows[row].limit * C;
    open_lake();
    lay(blocks, 16);
    for (i = 0; i < rows[row].free_chunks; i++) drop(blocks[2 * i]);
    step(gmlake_get_budget(lake, &budget));
    assert_int_equal(budget.allocatable_bytes, rows[row].told * C);
    wanted = request(budget.allocatable_bytes, 0, NULL);
    step(gmlake_query(lake, &wanted, LEGACY, &answer));
    assert_int_equal(answer.result, GMLAKE_OK);
    (void)take(budget.allocatable_bytes);
    finish();
  }
}

static void the_version_is_the_headers(void **state) {
  (void)state;
  assert_int_equal(gmlake_version(), GMLAKE_VERSION);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(any_address_of_a_block_finds_it),
      cmocka_unit_test(windows_are_found_at_both_addresses),
      cmocka_unit_test(what_a_window_maps_beside_itself_is_not_its_own),
      cmocka_unit_test(the_state_says_who_may_have_free_memory),
      cmocka_unit_test(buffers_are_found_up_to_where_they_may_grow),
      cmocka_unit_test(chunks_hold_the_bytes_of_blocks_and_buffers),
      cmocka_unit_test(chunks_of_what_is_not_live_are_refused),
      cmocka_unit_test(a_map_tells_every_kind),
      cmocka_unit_test(a_map_tells_ages_and_what_windows_join),
      cmocka_unit_test(a_map_tells_arenas_and_pools),
      cmocka_unit_test(a_map_tells_each_chunk_of_a_buffer),
      cmocka_unit_test(a_map_tells_streams_of_holes),
      cmocka_unit_test(a_map_that_does_not_fit_tells_the_count),
      cmocka_unit_test(a_map_tells_what_is_quarantined),
      cmocka_unit_test(a_pools_figures_are_its_own),
      cmocka_unit_test(the_report_says_whose_the_memory_is),
      cmocka_unit_test(the_report_tells_holes_from_what_can_be_stitched),
      cmocka_unit_test(the_report_tells_what_sleeps),
      cmocka_unit_test(the_report_counts_a_freed_window_as_pending),
      cmocka_unit_test(a_question_needs_no_driver_where_the_answer_is_known),
      cmocka_unit_test(growth_is_foretold_to_the_chunk),
      cmocka_unit_test(a_window_is_foretold_with_what_it_lacks),
      cmocka_unit_test(a_range_is_foretold_that_takes_one_chunk_more),
      cmocka_unit_test(limits_between_chunks_are_foretold),
      cmocka_unit_test(a_pools_limit_holds_for_what_replaces_its_memory),
      cmocka_unit_test(what_home_returns_is_counted_on_by_a_pool),
      cmocka_unit_test(a_limit_that_only_waiting_meets_is_told),
      cmocka_unit_test(alignment_is_foretold),
      cmocka_unit_test(a_capture_leaves_no_wait_to_be_foretold),
      cmocka_unit_test(what_has_its_event_is_counted_on_in_a_capture),
      cmocka_unit_test(a_pools_figures_tell_what_is_quarantined),
      cmocka_unit_test(a_window_without_addresses_is_not_foretold),
      cmocka_unit_test(waits_are_foretold),
      cmocka_unit_test(a_chunk_that_a_buffer_may_still_use_is_not_counted_on),
      cmocka_unit_test(a_window_that_a_capture_keeps_is_not_counted_on),
      cmocka_unit_test(pending_windows_are_counted_on),
      cmocka_unit_test(pending_memory_of_pools_is_counted_on),
      cmocka_unit_test(what_others_use_and_a_new_chunk_are_foretold),
      cmocka_unit_test(a_window_that_another_stream_used_is_foretold),
      cmocka_unit_test(growth_behind_what_others_use_is_foretold),
      cmocka_unit_test(two_gaps_are_not_filled_at_once),
      cmocka_unit_test(a_question_changes_no_memory),
      cmocka_unit_test(what_a_question_would_return_stays),
      cmocka_unit_test(a_driver_that_does_not_answer_is_an_error),
      cmocka_unit_test(the_budget_counts_new_memory_where_nothing_is_stitched),
      cmocka_unit_test(the_budget_counts_the_smallest_window),
      cmocka_unit_test(a_question_leaves_what_is_set_aside),
      cmocka_unit_test(a_question_on_no_stream_ends_with_it),
      cmocka_unit_test(the_budget_is_served),
      cmocka_unit_test(the_version_is_the_headers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
