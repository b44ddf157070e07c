/* Memory for sessions of gmlake_offload.h where there is no GPU: a lake on gmlake.h's mock, whose
   events are those of the mock of gmlake_offload.h. So a chunk that one tensor gave up is another
   one's when the first one's copies and operators have ended on that mock's clock. gmlake.h's mock
   maps real memory; that needs Linux.

   Include it behind both headers. One lake at a time: the table's `user` is the lake mock's. */
#if !defined(MOCK_LAKE_H)
#define MOCK_LAKE_H

#include <string.h>

/* Whose events the lake's are: the mock's table, or a copy of it with other functions. */
static gmlake_offload_backend *mock_lake_events;

static gmlake_result mock_lake_answer(int code, int *out_code) {
  *out_code = code;
  return code ? GMLAKE_ERROR_DRIVER : GMLAKE_OK;
}
static gmlake_result mock_lake_event_create(void *user, void **out_event, int *out_code) {
  gmlake_offload_backend *of = mock_lake_events;
  (void)user;
  return mock_lake_answer(of->event_create(of->user, 0, 0, out_event), out_code);
}
static gmlake_result mock_lake_event_destroy(void *user, void *event, int *out_code) {
  (void)user;
  mock_lake_events->event_destroy(mock_lake_events->user, event);
  return mock_lake_answer(0, out_code);
}
static gmlake_result mock_lake_event_record(void *user, void *event, gmlake_stream stream,
                                            int *out_code) {
  gmlake_offload_backend *of = mock_lake_events;
  (void)user;
  return mock_lake_answer(of->event_record(of->user, event, stream), out_code);
}
static gmlake_result mock_lake_event_query(void *user, void *event, int *out_done, int *out_code) {
  gmlake_offload_backend *of = mock_lake_events;
  (void)user;
  return mock_lake_answer(of->event_done(of->user, event, out_done), out_code);
}
/* The device runs while the host waits. */
static gmlake_result mock_lake_event_wait(void *user, void *event, int *out_code) {
  gmlake_offload_backend *of = mock_lake_events;
  int done = 0, code = 0;
  (void)user;
  while (!code && !done) {
    code = of->event_done(of->user, event, &done);
    if (!done) gmlake_offload_mock_spend(of, 1000);
  }
  return mock_lake_answer(code, out_code);
}
static gmlake_result mock_lake_stream_wait(void *user, gmlake_stream stream, void *event,
                                           int *out_code) {
  gmlake_offload_backend *of = mock_lake_events;
  (void)user;
  return mock_lake_answer(of->stream_wait(of->user, stream, event), out_code);
}

/* The table for a lake: `lake_mock` with the events of `events`, which both outlive the lake. */
static gmlake_backend mock_lake_table(const gmlake_backend *lake_mock,
                                      gmlake_offload_backend *events) {
  gmlake_backend table = *lake_mock;
  mock_lake_events = events;
  table.event_create = mock_lake_event_create;
  table.event_destroy = mock_lake_event_destroy;
  table.event_record = mock_lake_event_record;
  table.event_query = mock_lake_event_query;
  table.event_wait = mock_lake_event_wait;
  table.stream_wait = mock_lake_stream_wait;
  table.struct_bytes = offsetof(gmlake_backend, device_wait); /* whose device is another one */
  return table;
}

/* Makes lake->lake, of chunks of lake->chunk_bytes, with its own mock. 0, or what has failed. */
static inline int mock_lake_open(gmlake_offload_lake *lake, gmlake_offload_backend *events,
                                 gmlake_backend **out_mock) {
  static gmlake_backend table;
  gmlake_mock_desc mock;
  gmlake_desc desc;
  gmlake_result result;
  memset(&mock, 0, sizeof mock);
  memset(&desc, 0, sizeof desc);
  mock.granularity_bytes = desc.chunk_bytes = lake->chunk_bytes;
  result = gmlake_mock_create(&mock, out_mock);
  if (result != GMLAKE_OK) return (int)result;
  table = mock_lake_table(*out_mock, events);
  desc.backend = &table;
  desc.cross_stream = GMLAKE_WAIT_FIRST;
  return (int)gmlake_create(&desc, &lake->lake);
}
#endif /* MOCK_LAKE_H */
