/* The mock behind a gate: calls of chosen kinds fail, once or for good. Include after gmlake.h,
   the implementation with the mock, and fuzz.h. */
#if !defined(FUZZ_BACKEND_H)
#define FUZZ_BACKEND_H

enum { /* kinds of calls, bits of a mask */
       ON_PROPERTIES = 1,
       ON_MEMORY_INFO = 1 << 1,
       ON_RESERVE = 1 << 2,
       ON_UNRESERVE = 1 << 3,
       ON_CREATE = 1 << 4,
       ON_RELEASE = 1 << 5,
       ON_MAP = 1 << 6,
       ON_UNMAP = 1 << 7,
       ON_ACCESS = 1 << 8,
       ON_EVENT_CREATE = 1 << 9,
       ON_EVENT_DESTROY = 1 << 10,
       ON_RECORD = 1 << 11,
       ON_QUERY = 1 << 12,
       ON_HOST_WAIT = 1 << 13,
       ON_STREAM_WAIT = 1 << 14,
       ON_EXCHANGE = 1 << 15,
       ON_EXPORT = 1 << 16,
       ON_IMPORT = 1 << 17,
       ON_ALL = (1 << 18) - 1,
       ON_GIVING_BACK = ON_UNRESERVE | ON_RELEASE | ON_UNMAP | ON_EVENT_DESTROY
};

static struct gate {
  gmlake_backend *mock;
  gmlake_backend table;
  unsigned kinds; /* that fail */
  unsigned in;    /* 1: the next of them; 0: none does */
  int stays;
  gmlake_result result;
  size_t hits;
  unsigned hit_results; /* bits of the results that were injected */
  unsigned hit_kinds;
} gate;

static inline gmlake_result gate_at(unsigned kind, int *out_code) {
  if (!(gate.kinds & kind) || !gate.in || --gate.in) return GMLAKE_OK;
  gate.in = gate.stays ? 1 : 0;
  gate.hits++;
  gate.hit_results |= 1u << gate.result;
  gate.hit_kinds |= kind;
  *out_code = 1234;
  return gate.result;
}

static inline gmlake_result gate_properties(void *user, gmlake_device_properties *out, int *code) {
  gmlake_result result = gate_at(ON_PROPERTIES, code);
  return result ? result : gate.mock->get_properties(user, out, code);
}
static inline gmlake_result gate_memory_info(void *user, size_t *out_free, size_t *out_total,
                                             int *code) {
  gmlake_result result = gate_at(ON_MEMORY_INFO, code);
  return result ? result : gate.mock->get_memory_info(user, out_free, out_total, code);
}
static inline gmlake_result gate_reserve(void *user, size_t bytes, size_t alignment, uint64_t *out,
                                         int *code) {
  gmlake_result result = gate_at(ON_RESERVE, code);
  return result ? result : gate.mock->reserve(user, bytes, alignment, out, code);
}
static inline gmlake_result gate_unreserve(void *user, uint64_t address, size_t bytes, int *code) {
  gmlake_result result = gate_at(ON_UNRESERVE, code);
  return result ? result : gate.mock->unreserve(user, address, bytes, code);
}
static inline gmlake_result gate_create(void *user, size_t bytes, unsigned types, uint64_t *out,
                                        int *code) {
  gmlake_result result = gate_at(ON_CREATE, code);
  return result ? result : gate.mock->create(user, bytes, types, out, code);
}
static inline gmlake_result gate_release(void *user, uint64_t handle, int *code) {
  gmlake_result result = gate_at(ON_RELEASE, code);
  return result ? result : gate.mock->release(user, handle, code);
}
static inline gmlake_result gate_map(void *user, uint64_t address, size_t bytes, uint64_t handle,
                                     int *code) {
  gmlake_result result = gate_at(ON_MAP, code);
  return result ? result : gate.mock->map(user, address, bytes, handle, code);
}
static inline gmlake_result gate_unmap(void *user, uint64_t address, size_t bytes, int *code) {
  gmlake_result result = gate_at(ON_UNMAP, code);
  return result ? result : gate.mock->unmap(user, address, bytes, code);
}
static inline gmlake_result gate_access(void *user, uint64_t address, size_t bytes,
                                        const int *peers, size_t peer_count, int *code) {
  gmlake_result result = gate_at(ON_ACCESS, code);
  return result ? result : gate.mock->set_access(user, address, bytes, peers, peer_count, code);
}
static inline gmlake_result gate_event_create(void *user, void **out, int *code) {
  gmlake_result result = gate_at(ON_EVENT_CREATE, code);
  return result ? result : gate.mock->event_create(user, out, code);
}
static inline gmlake_result gate_event_destroy(void *user, void *event, int *code) {
  gmlake_result result = gate_at(ON_EVENT_DESTROY, code);
  return result ? result : gate.mock->event_destroy(user, event, code);
}
static inline gmlake_result gate_record(void *user, void *event, gmlake_stream stream, int *code) {
  gmlake_result result = gate_at(ON_RECORD, code);
  return result ? result : gate.mock->event_record(user, event, stream, code);
}
static inline gmlake_result gate_query(void *user, void *event, int *out_done, int *code) {
  gmlake_result result = gate_at(ON_QUERY, code);
  return result ? result : gate.mock->event_query(user, event, out_done, code);
}
static inline gmlake_result gate_host_wait(void *user, void *event, int *code) {
  gmlake_result result = gate_at(ON_HOST_WAIT, code);
  return result ? result : gate.mock->event_wait(user, event, code);
}
static inline gmlake_result gate_stream_wait(void *user, gmlake_stream stream, void *event,
                                             int *code) {
  gmlake_result result = gate_at(ON_STREAM_WAIT, code);
  return result ? result : gate.mock->stream_wait(user, stream, event, code);
}
static inline gmlake_result gate_exchange(void *user, int *mode, int *code) {
  gmlake_result result = gate_at(ON_EXCHANGE, code);
  return result ? result : gate.mock->capture_exchange(user, mode, code);
}

static inline gmlake_result gate_export(void *user, uint64_t handle, gmlake_handle *out,
                                        int *code) {
  gmlake_result result = gate_at(ON_EXPORT, code);
  return result ? result : gate.mock->export_handle(user, handle, out, code);
}
static inline gmlake_result gate_import(void *user, const gmlake_handle *in, uint64_t *out,
                                        int *code) {
  gmlake_result result = gate_at(ON_IMPORT, code);
  return result ? result : gate.mock->import_handle(user, in, out, code);
}

static inline void gate_open(gmlake_backend *mock) {
  memset(&gate, 0, sizeof gate);
  gate.mock = mock;
  gate.table = *mock;
  gate.table.get_properties = gate_properties;
  gate.table.get_memory_info = gate_memory_info;
  gate.table.reserve = gate_reserve;
  gate.table.unreserve = gate_unreserve;
  gate.table.create = gate_create;
  gate.table.release = gate_release;
  gate.table.map = gate_map;
  gate.table.unmap = gate_unmap;
  gate.table.set_access = gate_access;
  gate.table.event_create = gate_event_create;
  gate.table.event_destroy = gate_event_destroy;
  gate.table.event_record = gate_record;
  gate.table.event_query = gate_query;
  gate.table.event_wait = gate_host_wait;
  gate.table.event_wait_any = NULL; /* so the lake calls event_wait for every wait */
  gate.table.stream_wait = gate_stream_wait;
  gate.table.capture_exchange = gate_exchange;
  gate.table.export_handle = gate_export;
  gate.table.import_handle = gate_import;
}

static inline gmlake_mock_census gate_census(void) {
  gmlake_mock_census census;
  gmlake_mock_get_census(gate.mock, &census);
  return census;
}

/* Nothing is left on the device, but for what the kinds of calls that failed explain. */
static inline void gate_require_empty(unsigned failed_kinds) {
  gmlake_mock_census left = gate_census();
  if (!(failed_kinds & ON_UNMAP)) REQUIRE(left.mapping_count == 0);
  if (!(failed_kinds & ON_RELEASE)) REQUIRE(left.handle_count == 0);
  if (!(failed_kinds & (ON_UNMAP | ON_RELEASE))) REQUIRE(left.physical_bytes == 0);
  if (!(failed_kinds & (ON_UNMAP | ON_UNRESERVE))) REQUIRE(left.reservation_count == 0);
  if (!(failed_kinds & ON_EVENT_DESTROY)) REQUIRE(left.event_count == 0);
}

#endif
