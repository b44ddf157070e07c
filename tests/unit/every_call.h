/* Every public function that takes the state lock, called with arguments that are right: for tests
   of who may call at all. Include after fixture.h. */
#if !defined(EVERY_CALL_H)
#define EVERY_CALL_H

static struct every { /* of the lake; what is live stays so where the calls are refused */
  void *live;
  gmlake_pool *pool;
  gmlake_buffer *buffer;
} every;

static inline void every_open(void) {
  every.live = take(C);
  every.pool = open_pool(0);
  every.buffer = open_buffer(2);
}

static inline void every_close(void) {
  step(gmlake_buffer_destroy(lake, every.buffer, LEGACY));
  step(gmlake_pool_destroy(lake, every.pool));
  drop(every.live);
}

static gmlake_result every_alloc(void) {
  void *ptr = &ptr;
  gmlake_result result = gmlake_alloc(lake, C, LEGACY, &ptr);
  assert_null(ptr);
  return result;
}
static gmlake_result every_free(void) { return gmlake_free(lake, every.live, LEGACY); }
static gmlake_result every_record(void) {
  return gmlake_record_stream(lake, every.live, (gmlake_stream)(uintptr_t)77);
}
static gmlake_result every_mark(void) {
  return gmlake_mark_stream(lake, LEGACY, GMLAKE_STREAM_URGENT);
}
static gmlake_result every_forget(void) { return gmlake_forget_stream(lake, LEGACY); }
static gmlake_result every_get_allocation(void) {
  gmlake_allocation_info info;
  return gmlake_get_allocation(lake, every.live, &info);
}
static gmlake_result every_get_pieces(void) {
  size_t count;
  return gmlake_get_pieces(lake, every.live, NULL, 0, &count);
}
static gmlake_result every_query(void) {
  const gmlake_alloc_desc wanted = request(C, 0, NULL);
  gmlake_query_info info;
  return gmlake_query(lake, &wanted, LEGACY, &info);
}
static gmlake_result every_find(void) {
  gmlake_allocation_info info;
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
static gmlake_result every_reserve(void) { return gmlake_reserve(lake, NULL, 2 * C, LEGACY); }
static gmlake_result every_admit(void) {
  const gmlake_alloc_desc wanted = request(C, 0, NULL);
  size_t lacking = 1;
  const gmlake_result result = gmlake_admit(lake, &wanted, 1, LEGACY, &lacking);
  assert_int_equal(lacking, 0);
  return result;
}
static gmlake_result every_pool_get_stats(void) {
  gmlake_stats now;
  now.struct_bytes = 0;
  return gmlake_pool_get_stats(lake, every.pool, &now);
}
static gmlake_result every_pool_create(void) {
  gmlake_pool *pool;
  return gmlake_pool_create(lake, NULL, &pool);
}
static gmlake_result every_pool_destroy(void) { return gmlake_pool_destroy(lake, every.pool); }
static gmlake_result every_capture_begin(void) {
  return gmlake_capture_begin(lake, (gmlake_stream)(uintptr_t)77, every.pool);
}
static gmlake_result every_capture_end(void) {
  return gmlake_capture_end(lake, (gmlake_stream)(uintptr_t)77);
}
static gmlake_result every_buffer_create(void) {
  gmlake_buffer_desc wanted = buffer_desc(C);
  gmlake_buffer *buffer;
  return gmlake_buffer_create(lake, &wanted, &buffer);
}
static gmlake_result every_buffer_destroy(void) {
  return gmlake_buffer_destroy(lake, every.buffer, LEGACY);
}
static gmlake_result every_buffer_resize(void) {
  return gmlake_buffer_resize(lake, every.buffer, C, LEGACY);
}
static gmlake_result every_buffer_commit(void) {
  return gmlake_buffer_commit(lake, every.buffer, C, C, LEGACY);
}
static gmlake_result every_buffer_commit_chunks(void) {
  uint32_t chunk = GMLAKE_ANY_CHUNK;
  return gmlake_buffer_commit_chunks(lake, every.buffer, C, C, &chunk, LEGACY);
}
static gmlake_result every_buffer_discard(void) {
  return gmlake_buffer_discard(lake, every.buffer, C, C, LEGACY);
}
static gmlake_result every_buffer_get_info(void) {
  gmlake_buffer_info info;
  return gmlake_buffer_get_info(lake, every.buffer, &info);
}
static gmlake_result every_trim(void) { return gmlake_trim(lake, 0, NULL); }
static gmlake_result every_get_stats(void) {
  gmlake_stats now;
  now.struct_bytes = 0;
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
                  {"get_allocation", every_get_allocation},
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
                  {"capture_begin", every_capture_begin},
                  {"capture_end", every_capture_end},
                  {"buffer_create", every_buffer_create},
                  {"buffer_destroy", every_buffer_destroy},
                  {"buffer_resize", every_buffer_resize},
                  {"buffer_commit", every_buffer_commit},
                  {"buffer_commit_chunks", every_buffer_commit_chunks},
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
