/* Every public function that takes the state lock, called with arguments that are right, but for
   the address where `live` is none: for tests of who may call at all. Behind fixture.h it makes
   what they are called with. */
#if !defined(EVERY_CALL_H)
#define EVERY_CALL_H

static struct every { /* of the lake; what is live stays so where the calls are refused */
  size_t chunk;
  gmlake_stream stream;
  void *live;
  gmlake_pool *pool, *made_pool;
  gmlake_buffer *buffer, *made_buffer;
} every;

#if defined(FIXTURE_H)
static inline void every_open(void) {
  memset(&every, 0, sizeof(every));
  every.chunk = C;
  every.stream = (gmlake_stream)(uintptr_t)77;
  every.live = take(C);
  every.pool = open_pool(0);
  every.buffer = open_buffer(2);
}

static inline void every_close(void) {
  step(gmlake_buffer_destroy(lake, every.buffer, LEGACY));
  step(gmlake_pool_destroy(lake, every.pool));
  drop(every.live);
}
#endif

static struct every_out { /* what the calls below write to */
  gmlake_query_info query;
  gmlake_map_entry entry;
  gmlake_stats stats;
  gmlake_buffer_info buffer;
  gmlake_budget budget;
  size_t count;
  void *ptr;
} every_out;

static gmlake_result every_alloc(void) {
  void *ptr = &ptr;
  const gmlake_result result = gmlake_alloc(lake, 0, NULL, &ptr);
  assert_null(ptr);
  return result;
}
static const gmlake_alloc_desc every_wish; /* for nothing */
static gmlake_result every_admit(void) {
  size_t lacking = 1;
  const gmlake_result result = gmlake_admit(lake, &every_wish, 1, NULL, &lacking);
  assert_int_equal(lacking, 0);
  return result;
}
static gmlake_result every_import(void) {
  gmlake_handle handle;
  memset(&handle, 0, sizeof(handle));
  return gmlake_import(lake, &handle, 1, &every_out.ptr);
}
static gmlake_result every_buffer_create(void) {
  gmlake_buffer_desc wanted;
  memset(&wanted, 0, sizeof(wanted));
  wanted.max_bytes = wanted.chunk_bytes = every.chunk;
  return gmlake_buffer_create(lake, &wanted, &every.made_buffer);
}
static gmlake_result every_buffer_commit(void) {
  uint32_t chunk = GMLAKE_ANY_CHUNK;
  return gmlake_buffer_commit(lake, every.buffer, every.chunk, every.chunk, &chunk, NULL);
}

#define EVERY_CALL(X)                                                                           \
  X(alloc, every_alloc())                                                                       \
  X(free, gmlake_free(lake, every.live, NULL))                                                  \
  X(record_stream, gmlake_record_stream(lake, every.live, every.stream))                        \
  X(mark_stream, gmlake_mark_stream(lake, NULL, GMLAKE_STREAM_PLAIN))                           \
  X(forget_stream, gmlake_forget_stream(lake, NULL))                                            \
  X(get_pieces, gmlake_get_pieces(lake, every.live, NULL, 0, &every_out.count))                 \
  X(query, gmlake_query(lake, &every_wish, NULL, &every_out.query))                             \
  X(find, gmlake_find(lake, every.live, &every_out.entry))                                      \
  X(get_chunks, gmlake_get_chunks(lake, every.live, NULL, 0, &every_out.count))                 \
  X(get_map, gmlake_get_map(lake, NULL, 0, &every_out.count))                                   \
  X(reserve, gmlake_reserve(lake, NULL, 0, NULL))                                               \
  X(admit, every_admit())                                                                       \
  X(pool_get_stats, gmlake_pool_get_stats(lake, every.pool, &every_out.stats))                  \
  X(pool_create, gmlake_pool_create(lake, NULL, &every.made_pool))                              \
  X(pool_destroy, gmlake_pool_destroy(lake, every.made_pool ? every.made_pool : every.pool))    \
  X(pool_lend, gmlake_pool_lend(lake, every.pool, NULL))                                        \
  X(pool_recall, gmlake_pool_recall(lake, every.pool, NULL))                                    \
  X(pool_sleep, gmlake_pool_sleep(lake, every.pool, GMLAKE_SLEEP_DROP, NULL))                   \
  X(pool_wake, gmlake_pool_wake(lake, every.pool))                                              \
  X(export, gmlake_export(lake, every.live, GMLAKE_HANDLE_POSIX_FD, NULL, 0, &every_out.count)) \
  X(import, every_import())                                                                     \
  X(capture_begin, gmlake_capture_begin(lake, every.stream, every.pool))                        \
  X(capture_end, gmlake_capture_end(lake, every.stream))                                        \
  X(buffer_create, every_buffer_create())                                                       \
  X(buffer_destroy,                                                                             \
    gmlake_buffer_destroy(lake, every.made_buffer ? every.made_buffer : every.buffer, NULL))    \
  X(buffer_resize, gmlake_buffer_resize(lake, every.buffer, every.chunk, NULL))                 \
  X(buffer_commit, every_buffer_commit())                                                       \
  X(buffer_discard, gmlake_buffer_discard(lake, every.buffer, every.chunk, every.chunk, NULL))  \
  X(buffer_get_info, gmlake_buffer_get_info(lake, every.buffer, &every_out.buffer))             \
  X(trim, gmlake_trim(lake, 0, NULL))                                                           \
  X(get_stats, gmlake_get_stats(lake, &every_out.stats))                                        \
  X(reset_peaks, gmlake_reset_peaks(lake))                                                      \
  X(get_budget, gmlake_get_budget(lake, &every_out.budget))                                     \
  X(check, gmlake_check(lake))                                                                  \
  X(destroy, gmlake_destroy(lake))

#define AS_CALL(name, call) \
  static gmlake_result call_##name(void) { return call; }
#define AS_CALL_ROW(name, call) {#name, call_##name},
EVERY_CALL(AS_CALL)

static const struct every_row {
  const char *name;
  gmlake_result (*call)(void);
} every_rows[] = {EVERY_CALL(AS_CALL_ROW)};

#define EVERY_ROWS (sizeof(every_rows) / sizeof(every_rows[0]))

#endif /* EVERY_CALL_H */
