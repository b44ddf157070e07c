/* A backend that stands between the lake and another backend. It counts every call, and measures
   its time with the other backend's clock. It can also watch how much memory of the device is free,
   and choose which memory the lake gets. Include it after gmlake.h. It is for one thread only. */
#if !defined(PROBE_H)
#define PROBE_H

#include <stdint.h>
#include <string.h>

/* clang-format off */
#define PROBE_ENTRIES(X) \
  X(get_properties) X(get_memory_info) X(reserve) X(unreserve) X(create) X(release) X(map) \
  X(unmap) X(set_access) X(event_create) X(event_destroy) X(event_record) X(event_query) \
  X(event_wait) X(stream_wait) X(capture_exchange)
/* clang-format on */

#define PROBE_NUMBER(name) PROBE_##name,
enum { PROBE_ENTRIES(PROBE_NUMBER) PROBE_COUNT };
#undef PROBE_NUMBER

#define PROBE_NAME(name) #name,
static const char *const probe_names[] = {PROBE_ENTRIES(PROBE_NAME)};
#undef PROBE_NAME

typedef struct probe_entry {
  uint64_t calls;
  uint64_t mappings; /* that the calls changed; for other calls the number of calls */
  uint64_t ns;
} probe_entry;

typedef struct probe {
  gmlake_backend table; /* the backend for the lake */
  const gmlake_backend *real;
  probe_entry entries[PROBE_COUNT];
  size_t mapping_bytes; /* the size of every mapping; known after the first one */
  size_t held_bytes, held_bytes_peak;
  int watches_memory;    /* at each new peak it asks for the free memory; this is not timed */
  size_t free_bytes_min; /* the least of the answers */
  uint64_t *handles;     /* created in advance; the last one is given out first */
  size_t handle_count;
} probe;

static uint64_t probe_clock_ns(void *user) {
  const gmlake_backend *real = ((probe *)user)->real;
  return real->clock_ns(real->user);
}

static void probe_note(probe *p, int number, size_t mappings, uint64_t start_ns) {
  p->entries[number].ns += probe_clock_ns(p) - start_ns;
  p->entries[number].calls++;
  p->entries[number].mappings += mappings;
}

/* The body of a function: it makes the same call to the other backend, and times it. */
#define PROBE_CALL(name, mappings, ...)                                   \
  probe *p = (probe *)user;                                               \
  const uint64_t start_ns = probe_clock_ns(p);                            \
  const gmlake_result result = p->real->name(p->real->user, __VA_ARGS__); \
  probe_note(p, PROBE_##name, mappings, start_ns)

static gmlake_result probe_get_properties(void *user, gmlake_device_properties *out, int *code) {
  PROBE_CALL(get_properties, 1, out, code);
  return result;
}

static gmlake_result probe_get_memory_info(void *user, size_t *free_bytes, size_t *total_bytes,
                                           int *code) {
  PROBE_CALL(get_memory_info, 1, free_bytes, total_bytes, code);
  return result;
}

static gmlake_result probe_reserve(void *user, size_t bytes, size_t alignment, uint64_t *address,
                                   int *code) {
  PROBE_CALL(reserve, 1, bytes, alignment, address, code);
  return result;
}

static gmlake_result probe_unreserve(void *user, uint64_t address, size_t bytes, int *code) {
  PROBE_CALL(unreserve, 1, address, bytes, code);
  return result;
}

static void probe_hold(probe *p, size_t bytes) {
  size_t free_bytes, total_bytes;
  int code;
  p->held_bytes += bytes;
  if (p->held_bytes <= p->held_bytes_peak) return;
  p->held_bytes_peak = p->held_bytes;
  if (p->watches_memory &&
      p->real->get_memory_info(p->real->user, &free_bytes, &total_bytes, &code) == GMLAKE_OK &&
      free_bytes < p->free_bytes_min)
    p->free_bytes_min = free_bytes;
}

static gmlake_result probe_create_new(void *user, size_t bytes, unsigned handle_types,
                                      uint64_t *handle, int *code) {
  PROBE_CALL(create, 1, bytes, handle_types, handle, code);
  if (result == GMLAKE_OK) probe_hold(p, bytes);
  return result;
}

static gmlake_result probe_create(void *user, size_t bytes, unsigned handle_types, uint64_t *handle,
                                  int *code) {
  probe *p = (probe *)user;
  if (!p->handle_count) return probe_create_new(user, bytes, handle_types, handle, code);
  *handle = p->handles[--p->handle_count];
  *code = 0;
  return GMLAKE_OK;
}

static gmlake_result probe_release(void *user, uint64_t handle, int *code) {
  PROBE_CALL(release, 1, handle, code);
  if (result == GMLAKE_OK) p->held_bytes -= p->mapping_bytes;
  return result;
}

static gmlake_result probe_map(void *user, uint64_t address, size_t bytes, uint64_t handle,
                               int *code) {
  PROBE_CALL(map, 1, address, bytes, handle, code);
  p->mapping_bytes = bytes;
  return result;
}

static gmlake_result probe_unmap(void *user, uint64_t address, size_t bytes, int *code) {
  PROBE_CALL(unmap, bytes / p->mapping_bytes, address, bytes, code);
  return result;
}

static gmlake_result probe_set_access(void *user, uint64_t address, size_t bytes, const int *peers,
                                      size_t peer_count, int *code) {
  PROBE_CALL(set_access, bytes / p->mapping_bytes, address, bytes, peers, peer_count, code);
  return result;
}

static gmlake_result probe_event_create(void *user, void **event, int *code) {
  PROBE_CALL(event_create, 1, event, code);
  return result;
}

static gmlake_result probe_event_destroy(void *user, void *event, int *code) {
  PROBE_CALL(event_destroy, 1, event, code);
  return result;
}

static gmlake_result probe_event_record(void *user, void *event, gmlake_stream stream, int *code) {
  PROBE_CALL(event_record, 1, event, stream, code);
  return result;
}

static gmlake_result probe_event_query(void *user, void *event, int *done, int *code) {
  PROBE_CALL(event_query, 1, event, done, code);
  return result;
}

static gmlake_result probe_event_wait(void *user, void *event, int *code) {
  PROBE_CALL(event_wait, 1, event, code);
  return result;
}

static gmlake_result probe_stream_wait(void *user, gmlake_stream stream, void *event, int *code) {
  PROBE_CALL(stream_wait, 1, stream, event, code);
  return result;
}

static gmlake_result probe_capture_exchange(void *user, int *mode, int *code) {
  PROBE_CALL(capture_exchange, 1, mode, code);
  return result;
}

#define PROBE_ENTER(name) p->table.name = probe_##name;
static void probe_init(probe *p, const gmlake_backend *real) {
  memset(p, 0, sizeof(*p));
  p->real = real;
  p->free_bytes_min = SIZE_MAX;
  p->table.struct_bytes = sizeof(p->table);
  p->table.abi_version = GMLAKE_BACKEND_ABI;
  p->table.user = p;
  p->table.clock_ns = probe_clock_ns;
  PROBE_ENTRIES(PROBE_ENTER)
}
#undef PROBE_ENTER

static void probe_sum(probe_entry *to, const probe_entry *from) {
  size_t i;
  for (i = 0; i < PROBE_COUNT; i++) {
    to[i].calls += from[i].calls;
    to[i].mappings += from[i].mappings;
    to[i].ns += from[i].ns;
  }
}

#endif
