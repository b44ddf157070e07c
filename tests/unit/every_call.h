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

static gmlake_result every_alloc(void) {
  void *ptr = &ptr;
  gmlake_result result = gmlake_alloc(lake, 0, NULL, &ptr);
  assert_null(ptr);
  return result;
}
static gmlake_result every_free(void) { return gmlake_free(lake, every.live, NULL); }
static gmlake_result every_record(void) {
  return gmlake_record_stream(lake, every.live, every.stream);
}
static gmlake_result every_mark(void) {
  return gmlake_mark_stream(lake, NULL, GMLAKE_STREAM_PLAIN);
}
static gmlake_result every_forget(void) { return gmlake_forget_stream(lake, NULL); }
static gmlake_result every_get_pieces(void) {
  size_t count;
  return gmlake_get_pieces(lake, every.live, NULL, 0, &count);
}
static gmlake_alloc_desc nothing; /* is wanted */
static gmlake_result every_query(void) {
  gmlake_query_info info;
  return gmlake_query(lake, &nothing, NULL, &info);
}
static gmlake_result every_find(void) {
  gmlake_map_entry info;
  return gmlake_find(lake, every.live, &info);
}
static gmlake_result every_get_chunks(void) {
  size_t count;
  return gmlake_get_chunks(lake, every.live, NULL, 0, &count);
}
static gmlake_result every_get_map(void) {
  size_t count;
  return gmlake_get_map(lake, NULL, 0, &count);
}
static gmlake_result every_reserve(void) { return gmlake_reserve(lake, NULL, 0, NULL); }
static gmlake_result every_admit(void) {
  size_t lacking = 1;
  const gmlake_result result = gmlake_admit(lake, &nothing, 1, NULL, &lacking);
  assert_int_equal(lacking, 0);
  return result;
}
static gmlake_result every_pool_get_stats(void) {
  gmlake_stats now;
  return gmlake_pool_get_stats(lake, every.pool, &now);
}
static gmlake_result every_pool_create(void) {
  return gmlake_pool_create(lake, NULL, &every.made_pool);
}
static gmlake_result every_pool_destroy(void) {
  return gmlake_pool_destroy(lake, every.made_pool ? every.made_pool : every.pool);
}
static gmlake_result every_pool_lend(void) { return gmlake_pool_lend(lake, every.pool, NULL); }
static gmlake_result every_pool_recall(void) { return gmlake_pool_recall(lake, every.pool, NULL); }
static gmlake_result every_pool_sleep(void) {
  return gmlake_pool_sleep(lake, every.pool, GMLAKE_SLEEP_DROP, NULL);
}
static gmlake_result every_pool_wake(void) { return gmlake_pool_wake(lake, every.pool); }
static gmlake_result every_export(void) {
  size_t count;
  return gmlake_export(lake, every.live, GMLAKE_HANDLE_POSIX_FD, NULL, 0, &count);
}
static gmlake_result every_import(void) {
  gmlake_handle handle;
  void *ptr;
  memset(&handle, 0, sizeof(handle));
  return gmlake_import(lake, &handle, 1, &ptr);
}
static gmlake_result every_capture_begin(void) {
  return gmlake_capture_begin(lake, every.stream, every.pool);
}
static gmlake_result every_capture_end(void) { return gmlake_capture_end(lake, every.stream); }
static gmlake_result every_buffer_create(void) {
  gmlake_buffer_desc wanted;
  memset(&wanted, 0, sizeof(wanted));
  wanted.max_bytes = wanted.chunk_bytes = every.chunk;
  return gmlake_buffer_create(lake, &wanted, &every.made_buffer);
}
static gmlake_result every_buffer_destroy(void) {
  return gmlake_buffer_destroy(lake, every.made_buffer ? every.made_buffer : every.buffer, NULL);
}
static gmlake_result every_buffer_resize(void) {
  return gmlake_buffer_resize(lake, every.buffer, every.chunk, NULL);
}
static gmlake_result every_buffer_commit(void) {
  uint32_t chunk = GMLAKE_ANY_CHUNK;
  return gmlake_buffer_commit(lake, every.buffer, every.chunk, every.chunk, &chunk, NULL);
}
static gmlake_result every_buffer_discard(void) {
  return gmlake_buffer_discard(lake, every.buffer, every.chunk, every.chunk, NULL);
}
static gmlake_result every_buffer_get_info(void) {
  gmlake_buffer_info info;
  return gmlake_buffer_get_info(lake, every.buffer, &info);
}
static gmlake_result every_trim(void) { return gmlake_trim(lake, 0, NULL); }
static gmlake_result every_get_stats(void) {
  gmlake_stats now;
  return gmlake_get_stats(lake, &now);
}
static gmlake_result every_reset_peaks(void) { return gmlake_reset_peaks(lake); }
static gmlake_result every_get_budget(void) {
  gmlake_budget budget;
  return gmlake_get_budget(lake, &budget);
}
static gmlake_result every_check(void) { return gmlake_check(lake); }
static gmlake_result every_destroy(void) { return gmlake_destroy(lake); }

static const struct every_row {
  const char *name;
  gmlake_result (*call)(void);
} every_rows[] = {{"alloc", every_alloc},
                  {"free", every_free},
                  {"record_stream", every_record},
                  {"mark_stream", every_mark},
                  {"forget_stream", every_forget},
                  {"get_pieces", every_get_pieces},
                  {"query", every_query},
                  {"find", every_find},
                  {"get_chunks", every_get_chunks},
                  {"get_map", every_get_map},
                  {"reserve", every_reserve},
                  {"admit", every_admit},
                  {"pool_get_stats", every_pool_get_stats},
                  {"pool_create", every_pool_create},
                  {"pool_destroy", every_pool_destroy},
                  {"pool_lend", every_pool_lend},
                  {"pool_recall", every_pool_recall},
                  {"pool_sleep", every_pool_sleep},
                  {"pool_wake", every_pool_wake},
                  {"export", every_export},
                  {"import", every_import},
                  {"capture_begin", every_capture_begin},
                  {"capture_end", every_capture_end},
                  {"buffer_create", every_buffer_create},
                  {"buffer_destroy", every_buffer_destroy},
                  {"buffer_resize", every_buffer_resize},
                  {"buffer_commit", every_buffer_commit},
                  {"buffer_discard", every_buffer_discard},
                  {"buffer_get_info", every_buffer_get_info},
                  {"trim", every_trim},
                  {"get_stats", every_get_stats},
                  {"reset_peaks", every_reset_peaks},
                  {"get_budget", every_get_budget},
                  {"check", every_check},
                  {"destroy", every_destroy}};

#define EVERY_ROWS (sizeof(every_rows) / sizeof(every_rows[0]))

#endif /* EVERY_CALL_H */
