/* Exhaustive fault injection. Small programs, in scenarios.h, are run with every call of the
   backend and every allocation of host memory made to fail in turn, once and from then on, and
   with pairs of failing calls, so that undoing fails too. After each public call from the fault
   on: the live blocks, their contents and the accounting are those of a model that changes on
   success only; the mock holds what the lake's books say; what failed once works when it is called
   again; after a fatal error nothing reaches the backend. After destroy nothing is left but what
   a failing call of destroy explains.

   FAULT of --fault: oom@17 (call 17), lost@17+ (from it on), oom@17,23 (both), host@3 (host
   allocation 3), none. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#define GMLK_CRUMB_PART 2u /* small lakes have crumbs, too */
#define GMLK_CRUMBS_PART 2u
#define GMLK_CRUMBS_FROM 1u
#include "gmlake.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "judge_map.h"
#include "options.h"
#include "progress.h"
#include "scenarios.h"

#define UNIT ((size_t)4096) /* a chunk, where a scenario does not say otherwise */
#define GRAIN ((size_t)512)
#define SLOTS 52
#define STREAMS 4
#define BUFFERS 3
#define PLACES 130 /* chunks of a buffer's addresses, at most */
#define POOLS 3    /* two of the scenario's, one that serves for the default pool */
#define BASE_POOL 2
#define STREAM_UNNAMED (-1) /* numbers of streams beside those from 0 on */
#define STREAM_NONE (-2)
#define QUEUES 24       /* streams, each that follows a forgotten one counted anew */
#define USES 512        /* pieces freed in a scenario */
#define PIECES 64       /* of a block */
#define RECORDS 128     /* events */
#define SAMPLE 12       /* faults a scenario where not all are asked for */
#define PAIR_WINDOW 40u /* calls of a scenario whose pairs are tried */

/* ---- Scenarios and faults -------------------------------------------------------------------- */

typedef struct scenario {
  const program *program;
  const variant *variant;
  char name[80];
} scenario;

typedef struct fault {
  gmlake_result result; /* OUT_OF_HOST_MEMORY: of host memory; OK: none */
  int stays;
  uint64_t first, second; /* numbers of calls, or of a host allocation; second 0: none */
} fault;

#define FAULT_KINDS 6
static const struct {
  const char *name;
  gmlake_result result;
} fault_kinds[FAULT_KINDS] = {
    {"oom", GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY}, {"invalid", GMLAKE_ERROR_INVALID_ARGUMENT},
    {"unsupported", GMLAKE_ERROR_UNSUPPORTED},  {"lost", GMLAKE_ERROR_DEVICE_LOST},
    {"shutdown", GMLAKE_ERROR_SHUTTING_DOWN},   {"host", GMLAKE_ERROR_OUT_OF_HOST_MEMORY},
};
#define HOST_KIND (FAULT_KINDS - 1)

static void describe_fault(const fault *f, char *out, size_t size) {
  size_t kind = 0;
  if (!f->first) {
    (void)snprintf(out, size, "none");
    return;
  }
  while (fault_kinds[kind].result != f->result) kind++;
  (void)snprintf(out, size, f->second ? "%s@%llu%s,%llu" : "%s@%llu%s", fault_kinds[kind].name,
                 (unsigned long long)f->first, f->stays ? "+" : "", (unsigned long long)f->second);
}

static int parse_fault(const char *text, fault *f) {
  const char *at = strchr(text, '@');
  char *end;
  size_t kind;
  memset(f, 0, sizeof(*f));
  if (!strcmp(text, "none")) return 1;
  for (kind = 0; at && kind < FAULT_KINDS; kind++) {
    if (strlen(fault_kinds[kind].name) != (size_t)(at - text) ||
        strncmp(text, fault_kinds[kind].name, (size_t)(at - text)) != 0)
      continue;
    f->result = fault_kinds[kind].result;
    f->first = strtoull(at + 1, &end, 10);
    f->stays = *end == '+';
    if (*end == ',') f->second = strtoull(end + 1, NULL, 10);
    return f->first > 0;
  }
  return 0;
}

/* ---- The world a scenario runs in ------------------------------------------------------------ */

typedef struct block {
  unsigned char *ptr; /* of the last block of this name, also when it is not live any more */
  size_t bytes, rounded;
  gmlake_stream stream;
  int stream_number, is_live;
  unsigned recorded; /* a bit for each queue */
  int is_in_graph;
  unsigned flags, generation;
  gmlake_pool *pool;
  uint64_t user_data;
  const char *label;
} block;

typedef struct buffer {
  gmlake_buffer *handle; /* also when it is destroyed */
  int is_live;
  size_t max_bytes;
  gmlake_pool *pool;
  unsigned char *ptr;
  size_t bytes;         /* its end */
  unsigned has[PLACES]; /* what its chunks hold; 0: no memory */
  unsigned generation;  /* of the last chunk that it got */
  block page;           /* scratch: one of its chunks */
} buffer;

enum { /* calls of the backend */
       PROPERTIES,
       INFO,
       RESERVE,
       UNRESERVE,
       CREATE,
       RELEASE,
       MAP,
       UNMAP,
       ACCESS,
       EVENT_CREATE,
       EVENT_DESTROY,
       RECORD,
       QUERY,
       HOST_WAIT,
       STREAM_WAIT,
       EXCHANGE,
       DEVICE_WAIT,
       COPY,
       HOST_ALLOC,
       HOST_FREE,
       EXPORT,
       IMPORT,
       CAPTURING,
       CALLS
};

static const char *const call_names[CALLS] = {"get_properties",
                                              "get_memory_info",
                                              "reserve",
                                              "unreserve",
                                              "create",
                                              "release",
                                              "map",
                                              "unmap",
                                              "set_access",
                                              "event_create",
                                              "event_destroy",
                                              "event_record",
                                              "event_query",
                                              "event_wait",
                                              "stream_wait",
                                              "capture_exchange",
                                              "device_wait",
                                              "copy",
                                              "host_alloc",
                                              "host_free",
                                              "export_handle",
                                              "import_handle",
                                              "is_capturing"};

typedef struct use { /* of memory, by work that was queued on a stream before it was freed */
  uint64_t home;
  size_t bytes;
  int queue;
  uint64_t number; /* of the work, on its queue */
} use;

typedef struct moment { /* of a stream: how much work of each queue comes before it */
  uint64_t behind[QUEUES];
} moment;

typedef struct record { /* the last one of an event */
  void *event;
  moment then;
} record;

typedef struct tally { /* what may be told apart before and after a call */
  uint64_t calls, hits, silent_hits, counted[CALLS];
  uint64_t fresh, undone; /* chunks created by a growth under way, or that failed */
  gmlake_result lost;
  gmlake_stats stats;
} tally;

static struct world {
  const scenario *scenario;
  fault fault;
  size_t page_bytes; /* a buffer's chunk; while options are read 0 */
  int is_over;       /* the fault lasts no longer */
  int is_closing;    /* destroy is under way */
  int is_checked;    /* every step is, not only those from the fault on */
  gmlake_backend *mock, table;
  gmlake *lake;
  gmlake_desc desc;
  gmlake_stream streams[STREAMS];
  int captures[STREAMS]; /* 1: under way, 2: ended for the mock */
  int capture_pools[STREAMS];
  gmlake_pool *pools[POOLS];
  block blocks[SLOTS];
  buffer buffers[BUFFERS];
  int are_dropped[POOLS]; /* the pool sleeps without its contents */
  size_t live_count, requested, active;
  uint64_t allocation_count, free_count;
  tally now, before;
  int is_question;        /* the call under way serves and changes nothing */
  uint64_t failed[CALLS]; /* calls that answered an error, injected or the mock's own */
  uint64_t refused;       /* calls that the mock refused as misuse */
  int is_relaxed;         /* between the lake's two exchanges of the capture mode */
  uint64_t asked_in_vain; /* calls that want something of a device that is lost */
  uint64_t driver_calls;  /* as the statistics count them, of this lake */
  uint64_t mark, end;     /* calls before the step `|`, calls before destroy */
  uint64_t mallocs;
  size_t host_bytes;
  const char *asked;     /* the policy's letters, NULL: there is none */
  uint64_t asked_number; /* the last request that it was asked about, */
  unsigned asked_times;  /* so often */
  int handler_calls;
  char oom_slot; /* what the out-of-memory handler frees; '!': it trims, '?': it allocates */
  int errors_told, leaks_told;
  int queue_of[STREAMS], queue_count; /* a forgotten stream's work goes on under its own number */
  moment host, queues[QUEUES];        /* what the lake has seen complete, the queues' ends */
  use uses[USES];
  size_t use_count, record_count;
  record records[RECORDS];
  const char *hit_name; /* of the last call that was made to fail */
  const char *step;     /* in the program */
  char reached[128];
} w;

static int is_told; /* steps are printed */
static struct {     /* what the whole run did, for its last lines */
  uint64_t once[FAULT_KINDS], stays[FAULT_KINDS], pairs, hits[CALLS];
} done;

static void broken(const char *condition, int line) {
  char what[64];
  describe_fault(&w.fault, what, sizeof(what));
  fail_msg(
      "scenario %s, fault %s (%s), step \"%.24s\": %s (line %d)\n"
      "  repeat: build/test_exhaustive --scenario '%s' --fault %s",
      w.scenario->name, what, w.hit_name ? w.hit_name : "not reached", w.step ? w.step : "",
      condition, line, w.scenario->name, what);
}

#define CHECK(condition)                            \
  do {                                              \
    if (!(condition)) broken(#condition, __LINE__); \
  } while (0)

static int is_sticky(gmlake_result result) {
  return result == GMLAKE_ERROR_DEVICE_LOST || result == GMLAKE_ERROR_SHUTTING_DOWN;
}

static int is_memory(gmlake_result result) {
  return result == GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY || result == GMLAKE_ERROR_LIMIT_REACHED;
}

/* What the lake answers where a call of the backend answers this. */
static gmlake_result answer_to(gmlake_result injected) {
  return injected == GMLAKE_ERROR_INVALID_ARGUMENT ? GMLAKE_ERROR_DRIVER : injected;
}

/* ---- Hazards: memory is handed over in the order of streams only -----------------------------
   Work on a stream uses a block until it is freed there. Who gets the memory next must come behind
   that work: on the same stream, behind a wait for an event recorded since, or after the lake has
   seen such an event complete; and what an event comes behind, whoever waits for it does too. */

static int queue_of_stream(gmlake_stream stream) {
  int i = 0;
  while (i < STREAMS - 1 && w.streams[i] != stream) i++;
  return w.queue_of[i];
}

static void note_record(void *event, gmlake_stream stream) {
  size_t i = 0;
  while (i < w.record_count && w.records[i].event != event) i++;
  CHECK(i < RECORDS);
  if (i == w.record_count) w.record_count++;
  w.records[i].event = event;
  w.records[i].then = w.queues[queue_of_stream(stream)];
}

/* Nothing is unmapped that work may still use, unless destroy could not wait for it. */
static void verify_unmap(uint64_t address, size_t bytes) {
  int is_excused = !w.lake || w.lake->lost || (w.is_closing && w.now.hits);
  size_t n;
  for (n = 0; n < w.use_count && !is_excused; n++) {
    const use *u = &w.uses[n];
    if (u->home < address + bytes && address < u->home + u->bytes)
      CHECK(w.host.behind[u->queue] >= u->number);
  }
}

/* What comes next there comes behind the event too. */
static void note_behind(moment *m, const void *event) {
  size_t i = 0, n;
  while (i < w.record_count && w.records[i].event != event) i++;
  CHECK(i < w.record_count);
  for (n = 0; n < QUEUES; n++)
    if (w.records[i].then.behind[n] > m->behind[n]) m->behind[n] = w.records[i].then.behind[n];
}

static void add_work(int queue) { w.queues[queue].behind[queue]++; }

/* The stream's value serves for another from now on. */
static void note_forgotten(int number) {
  CHECK(w.queue_count < QUEUES);
  w.queue_of[number] = w.queue_count++;
}

/* The last work on the queue uses the pieces of a block. */
static void add_uses(const gmlake_piece *pieces, size_t count, int queue) {
  size_t i;
  for (i = 0; i < count; i++) {
    use *u = &w.uses[w.use_count++];
    CHECK(w.use_count < USES);
    u->home = (uint64_t)(uintptr_t)pieces[i].home;
    u->bytes = pieces[i].bytes;
    u->queue = queue;
    u->number = w.queues[queue].behind[queue];
  }
}

/* Whether work on the stream (STREAM_NONE: the host) comes behind the use. */
static int is_behind(const use *u, int stream) {
  if (w.host.behind[u->queue] >= u->number) return 1;
  return stream != STREAM_NONE && w.queues[w.queue_of[stream]].behind[u->queue] >= u->number;
}

static void verify_order(const gmlake_piece *pieces, size_t count, int stream) {
  size_t i, n;
  for (i = 0; i < count; i++) {
    uint64_t home = (uint64_t)(uintptr_t)pieces[i].home;
    for (n = 0; n < w.use_count; n++) {
      const use *u = &w.uses[n];
      if (u->home < home + pieces[i].bytes && home < u->home + u->bytes)
        CHECK(is_behind(u, stream));
    }
  }
}

/* ---- Faults: host memory and the backend's table --------------------------------------------- */

static int is_due(uint64_t number, int in_host) {
  const fault *f = &w.fault;
  if (!f->first || w.is_over || (f->result == GMLAKE_ERROR_OUT_OF_HOST_MEMORY) != in_host) return 0;
  return number == f->first || number == f->second || (f->stays && number > f->first);
}

static void *host_malloc(void *user, size_t bytes) {
  char *ptr;
  (void)user;
  if (is_due(++w.mallocs, 1)) {
    w.now.hits++;
    w.hit_name = "malloc";
    return NULL;
  }
  ptr = (char *)malloc(bytes + 16);
  assert_non_null(ptr);
  memcpy(ptr, &bytes, sizeof(bytes));
  w.host_bytes += bytes;
  return ptr + 16;
}

static void host_free(void *user, void *ptr) {
  size_t bytes;
  (void)user;
  memcpy(&bytes, (char *)ptr - 16, sizeof(bytes));
  w.host_bytes -= bytes;
  free((char *)ptr - 16);
}

static int is_giving_back(int call) {
  return call == UNMAP || call == RELEASE || call == UNRESERVE || call == EVENT_DESTROY ||
         call == EXCHANGE || call == HOST_FREE;
}

/* Before each call: counts it and makes the mock fail it if its turn has come. */
static int arm(int call) {
  int is_hit = is_due(++w.now.calls, 0);
  w.now.counted[call]++;
  w.driver_calls += call != EXCHANGE && call != PROPERTIES && call != CAPTURING;
  w.asked_in_vain += w.lake && w.lake->lost && !is_giving_back(call);
  if (!is_hit) return 0;
  gmlake_mock_fail_at(w.mock, w.now.calls, w.fault.result, 0);
  w.now.hits++;
  w.hit_name = call_names[call];
  done.hits[call]++;
  return 1;
}

static gmlake_result passed(int call, int is_hit, gmlake_result result) {
  w.failed[call] += result != GMLAKE_OK;
  w.refused += !is_hit && result == GMLAKE_ERROR_INVALID_ARGUMENT;
  if (call == CREATE && result) w.now.undone += w.now.fresh;
  if (call == CREATE || call == ACCESS)
    w.now.fresh = call == CREATE && !result ? w.now.fresh + 1 : 0;
  if (call == RECORD && is_hit) /* the stream is gone, says the mock: the lake goes on without it */
    w.now.silent_hits += w.fault.result == GMLAKE_ERROR_INVALID_ARGUMENT;
  if (call == EXCHANGE) { /* setting the mode back, the lake has nobody to tell */
    w.now.silent_hits += is_hit && w.is_relaxed;
    w.is_relaxed = !w.is_relaxed && !is_hit;
  }
  return result;
}

#define WATCH(call, name, parameters, arguments)         \
  static gmlake_result watch_##name parameters {         \
    int is_hit = arm(call);                              \
    return passed(call, is_hit, w.mock->name arguments); \
  }

WATCH(PROPERTIES, get_properties, (void *u, gmlake_device_properties *out, int *code),
      (u, out, code))
WATCH(INFO, get_memory_info, (void *u, size_t *left, size_t *total, int *code),
      (u, left, total, code))
WATCH(RESERVE, reserve, (void *u, size_t bytes, size_t alignment, uint64_t *out, int *code),
      (u, bytes, alignment, out, code))
WATCH(UNRESERVE, unreserve, (void *u, uint64_t at, size_t bytes, int *code), (u, at, bytes, code))
WATCH(CREATE, create, (void *u, size_t bytes, unsigned types, uint64_t *out, int *code),
      (u, bytes, types, out, code))
WATCH(RELEASE, release, (void *u, uint64_t handle, int *code), (u, handle, code))
WATCH(MAP, map, (void *u, uint64_t at, size_t bytes, uint64_t handle, int *code),
      (u, at, bytes, handle, code))
WATCH(ACCESS, set_access,
      (void *u, uint64_t at, size_t bytes, const int *peers, size_t count, int *code),
      (u, at, bytes, peers, count, code))
WATCH(EVENT_CREATE, event_create, (void *u, void **out, int *code), (u, out, code))
WATCH(EVENT_DESTROY, event_destroy, (void *u, void *event, int *code), (u, event, code))
WATCH(COPY, copy, (void *u, uint64_t at, void *host, size_t bytes, int to_host, int *code),
      (u, at, host, bytes, to_host, code))
WATCH(HOST_ALLOC, host_alloc, (void *u, size_t bytes, void **out, int *code), (u, bytes, out, code))
WATCH(HOST_FREE, host_free, (void *u, void *host, int *code), (u, host, code))
WATCH(EXPORT, export_handle, (void *u, uint64_t handle, gmlake_handle *out, int *code),
      (u, handle, out, code))
WATCH(IMPORT, import_handle, (void *u, const gmlake_handle *in, uint64_t *out, int *code),
      (u, in, out, code))
WATCH(EXCHANGE, capture_exchange, (void *u, int *mode, int *code), (u, mode, code))

static gmlake_result watch_unmap(void *u, uint64_t at, size_t bytes, int *code) {
  int is_hit = arm(UNMAP);
  verify_unmap(at, bytes);
  return passed(UNMAP, is_hit, w.mock->unmap(u, at, bytes, code));
}

static gmlake_result watch_event_record(void *u, void *event, gmlake_stream s, int *code) {
  int is_hit = arm(RECORD);
  gmlake_result result = passed(RECORD, is_hit, w.mock->event_record(u, event, s, code));
  if (!result) note_record(event, s);
  return result;
}

static gmlake_result watch_event_query(void *u, void *event, int *out_done, int *code) {
  int is_hit = arm(QUERY);
  gmlake_result result = passed(QUERY, is_hit, w.mock->event_query(u, event, out_done, code));
  if (!result && *out_done) note_behind(&w.host, event);
  return result;
}

static gmlake_result watch_event_wait(void *u, void *event, int *code) {
  int is_hit = arm(HOST_WAIT);
  gmlake_result result = passed(HOST_WAIT, is_hit, w.mock->event_wait(u, event, code));
  if (!result) note_behind(&w.host, event);
  return result;
}

static gmlake_result watch_stream_wait(void *u, gmlake_stream s, void *event, int *code) {
  int is_hit = arm(STREAM_WAIT);
  gmlake_result result = passed(STREAM_WAIT, is_hit, w.mock->stream_wait(u, s, event, code));
  if (!result) note_behind(&w.queues[queue_of_stream(s)], event);
  return result;
}

static gmlake_result watch_device_wait(void *u, int *code) {
  int is_hit = arm(DEVICE_WAIT), i;
  gmlake_result result = passed(DEVICE_WAIT, is_hit, w.mock->device_wait(u, code));
  for (i = 0; i < QUEUES && !result; i++)
    if (w.queues[i].behind[i] > w.host.behind[i]) w.host.behind[i] = w.queues[i].behind[i];
  return result;
}

/* A failure tells nothing; that there is no such stream would tell that the capture is over. */
static gmlake_result watch_is_capturing(void *u, gmlake_stream s, int *out_is, int *code) {
  int is_hit = arm(CAPTURING);
  gmlake_result result;
  if (is_hit && w.fault.result == GMLAKE_ERROR_INVALID_ARGUMENT)
    gmlake_mock_fail_at(w.mock, 0, GMLAKE_OK, 0);
  result = passed(CAPTURING, is_hit, w.mock->is_capturing(u, s, out_is, code));
  w.now.silent_hits += (uint64_t)is_hit;
  return result;
}

static void watch_mock(void) {
  gmlake_backend *t = &w.table;
  *t = *w.mock;
  t->get_properties = watch_get_properties;
  t->get_memory_info = watch_get_memory_info;
  t->reserve = watch_reserve;
  t->unreserve = watch_unreserve;
  t->create = watch_create;
  t->release = watch_release;
  t->map = watch_map;
  t->unmap = watch_unmap;
  t->set_access = watch_set_access;
  t->event_create = watch_event_create;
  t->event_destroy = watch_event_destroy;
  t->event_record = watch_event_record;
  t->event_query = watch_event_query;
  t->event_wait = watch_event_wait;
  t->event_wait_any = NULL; /* so the lake calls event_wait for every wait */
  t->stream_wait = watch_stream_wait;
  t->capture_exchange = watch_capture_exchange;
  t->device_wait = watch_device_wait;
  t->copy = watch_copy;
  t->host_alloc = watch_host_alloc;
  t->host_free = watch_host_free;
  t->export_handle = watch_export_handle;
  t->import_handle = watch_import_handle;
  t->is_capturing = watch_is_capturing;
}

static gmlake_mock_census census(void) {
  gmlake_mock_census now;
  gmlake_mock_get_census(w.mock, &now);
  return now;
}

/* ---- Contents: every grain of a block begins with a stamp of its own ------------------------- */

static uint64_t stamp_of(const block *b, size_t grain) {
  uint64_t offset = (uint64_t)((const char *)b - (const char *)&w);
  return offset << 40 | (uint64_t)b->generation << 24 | grain;
}

static void stamp(const block *b) {
  size_t at;
  for (at = 0; at < b->bytes; at += GRAIN) {
    uint64_t value = stamp_of(b, at / GRAIN);
    memcpy(b->ptr + at, &value, sizeof(value));
  }
}

static int is_stamped(const block *b) {
  size_t at;
  for (at = 0; at < b->bytes; at += GRAIN) {
    uint64_t value = stamp_of(b, at / GRAIN);
    if (memcmp(b->ptr + at, &value, sizeof(value)) != 0) return 0;
  }
  return 1;
}

/* ---- The state after a call ------------------------------------------------------------------ */

typedef struct holdings { /* what the lake's books say it holds of the mock's */
  size_t handles, mappings, reservations, events, quarantined;
  size_t blocks; /* records of them */
} holdings;

static void count_places(const gmlk_arena *a, holdings *h) {
  const gmlake_buffer *b;
  uint32_t i;
  for (b = a->buffers; b; b = b->next) {
    for (i = 0; i < b->place_count; i++) {
      h->mappings += b->places[i].state != GMLK_PLACE_EMPTY && !b->places[i].mark;
      h->quarantined += b->places[i].state == GMLK_PLACE_BLIND ? a->chunk_bytes : 0;
    }
  }
}

/* The handles that so many slots of a window map. */
static size_t handles_under(const gmlk_arena *a, const gmlk_window *window, uint32_t slots) {
  size_t handles = 0;
  uint32_t i, slot, end, next;
  for (i = 0; i < window->span_count; i++) {
    slot = gmlk_span_slot(a, &window->spans[i]);
    end = slot + gmlk_span_chunks(a, &window->spans[i]);
    for (; slot < end && slots; slot = next, handles++) {
      next = slot + 1;
      while (next < end && a->chunks.items[next].before) next++;
      slots -= next - slot;
    }
  }
  return handles;
}

static void count_arena(const gmlk_arena *a, int is_dead, holdings *h) {
  const gmlk_block *va = a->window_space.head.next, *b = a->head.next;
  const gmlk_window *window;
  uint32_t slot;
  count_places(a, h);
  for (slot = 0; slot < a->chunks.capacity; slot++) {
    const gmlk_chunk *chunk = &a->chunks.items[slot];
    if (!chunk->handle) continue;
    h->handles += !chunk->before;
    h->mappings += chunk->is_home && !chunk->before;
    h->quarantined += chunk->is_stuck || is_dead || a->sleep == GMLK_ASLEEP ? a->chunk_bytes : 0;
  }
  for (; b && b != &a->tail; b = b->next) h->blocks++;
  for (; va && va != &a->window_space.tail; va = va->next, h->blocks++)
    if (va->state == GMLK_LIVE) h->mappings += handles_under(a, gmlk_va_window(va), va->slack);
  for (va = a->buffer_space.head.next; va && va != &a->buffer_space.tail; va = va->next)
    h->blocks++;
  for (window = a->windows.quarantine; window && !is_dead; window = window->next)
    h->quarantined += window->chunk_count * a->chunk_bytes;
  h->reservations += a->area.count + a->window_space.area.count + a->buffer_space.area.count;
}

static holdings count_holdings(void) {
  const gmlake *l = w.lake;
  const gmlake_pool *dead;
  holdings h;
  size_t i;
  memset(&h, 0, sizeof(h));
  for (i = 0; i < l->arena_count; i++)
    if (l->arenas[i]) count_arena(l->arenas[i], 0, &h);
  for (dead = l->dead; dead; dead = dead->next_dead) count_arena(&dead->arena, 1, &h);
  h.events = l->streams.event_count;
  for (i = GMLK_FIRST_STREAM; i < l->streams.count; i++)
    h.events += l->streams.items[i]->fence_count;
  return h;
}

/* No record of a block and no number of a capture is lost. */
static void verify_records(size_t blocks) {
  const gmlake *l = w.lake;
  const gmlk_page *page = l->records.pages;
  size_t i, captures = 0;
  for (; page; page = page->next) blocks -= GMLK_PAGE_BLOCKS;
  CHECK(blocks + l->records.unused_count == 0);
  for (i = GMLK_FIRST_STREAM; i < l->streams.count; i++)
    captures += l->streams.items[i]->is_used && l->streams.items[i]->is_capture;
  CHECK(captures == l->streams.capture_count + l->loan_count);
}

/* The mock holds what the lake's books say, no more and no less. */
static void verify_census(void) {
  const gmlake_stats *s = &w.now.stats;
  gmlake_mock_census have = census();
  holdings books = count_holdings();
  CHECK(have.call_count == w.now.calls);
  CHECK(s->driver_call_count == w.driver_calls);
  CHECK(have.handle_count == books.handles);
  CHECK(have.handle_count == s->chunk_count);
  CHECK(have.mapping_count == books.mappings);
  CHECK(have.reservation_count == books.reservations);
  CHECK(have.physical_bytes == s->reserved_bytes - s->imported_bytes);
  CHECK(have.event_count == books.events);
  CHECK(s->quarantined_bytes == books.quarantined);
  CHECK(!w.refused);
  CHECK(s->metadata_bytes == w.host_bytes);
  verify_records(books.blocks);
}

static void verify_access(const block *b) {
  size_t i;
  if (!b->rounded) return;
  CHECK(gmlake_mock_has_access(w.mock, b->ptr, b->rounded, 0));
  for (i = 0; i < w.desc.peer_count; i++)
    CHECK(gmlake_mock_has_access(w.mock, b->ptr, b->rounded, w.desc.peer_devices[i]));
  CHECK(!gmlake_mock_has_access(w.mock, b->ptr, b->rounded, 7)); /* nobody's peer */
}

/* A lake that was told that a stream is gone has forgotten it. */
static int may_be_gone(void) {
  return w.failed[RECORD] && w.fault.result == GMLAKE_ERROR_INVALID_ARGUMENT;
}

static int is_asleep(const gmlake_pool *pool) {
  return (pool ? &pool->arena : &w.lake->home)->sleep == GMLK_ASLEEP;
}

static void verify_block(const block *b) {
  gmlake_allocation_info info;
  gmlake_result result = gmlake_get_allocation(w.lake, b->ptr, &info);
  CHECK(is_asleep(b->pool) || is_stamped(b));
  if (!is_asleep(b->pool)) verify_access(b);
  CHECK(result == GMLAKE_OK);
  CHECK(info.ptr == b->ptr);
  CHECK(info.requested_bytes == b->bytes);
  CHECK(info.stream == b->stream || (may_be_gone() && info.stream == GMLAKE_STREAM_NONE));
  CHECK(info.flags == b->flags);
  CHECK(info.pool == b->pool);
  CHECK(info.user_data == b->user_data);
  CHECK(info.label == b->label);
}

/* A chunk of a buffer, as a block with contents of its own. */
static const block *page_of(buffer *b, size_t i) {
  b->page.ptr = b->ptr + i * w.page_bytes;
  b->page.bytes = b->page.rounded = w.page_bytes;
  b->page.generation = b->has[i];
  return &b->page;
}

static void verify_buffer(buffer *b) {
  gmlake_buffer_info info;
  size_t i, committed = 0;
  CHECK(gmlake_buffer_get_info(w.lake, b->handle, &info) == GMLAKE_OK);
  for (i = 0; i < PLACES; i++) {
    CHECK(gmlk_is_committed(b->handle, (uint32_t)i) == (b->has[i] != 0));
    if (!b->has[i]) continue;
    CHECK(is_asleep(b->pool) || is_stamped(page_of(b, i)));
    if (!is_asleep(b->pool)) verify_access(page_of(b, i));
    committed += b->page.bytes;
  }
  CHECK(info.ptr == b->ptr);
  CHECK(info.bytes == b->bytes);
  CHECK(info.committed_bytes == committed);
  CHECK(info.pool == b->pool);
  CHECK(info.max_bytes == b->max_bytes);
}

static void take_stats(void) {
  w.now.stats.struct_bytes = 0;
  CHECK(gmlake_get_stats(w.lake, &w.now.stats) == GMLAKE_OK);
  w.now.lost = w.lake->lost;
}

/* The live blocks, their contents and the accounting are the model's. */
static void verify(void) {
  const gmlake_stats *s = &w.now.stats;
  size_t i, buffers = 0;
  CHECK(gmlake_check(w.lake) == GMLAKE_OK);
  for (i = 0; i < SLOTS; i++)
    if (w.blocks[i].is_live) verify_block(&w.blocks[i]);
  for (i = 0; i < BUFFERS; i++) {
    buffers += w.buffers[i].is_live != 0;
    if (w.buffers[i].is_live) verify_buffer(&w.buffers[i]);
  }
  CHECK(s->buffer_count == buffers);
  CHECK(s->live_count == w.live_count);
  CHECK(s->requested_bytes == w.requested);
  CHECK(s->active_bytes == w.active);
  CHECK(s->allocation_count == w.allocation_count);
  CHECK(s->free_count == w.free_count);
  verify_census();
}

/* ---- Judging a public call ------------------------------------------------------------------- */

/* Where a fault has cost memory or addresses, later requests may fail for it. */
static int is_crippled(void) {
  size_t i;
  if (w.now.stats.quarantined_bytes) return 1;
  for (i = 0; i < w.lake->arena_count; i++) {
    const gmlk_arena *a = w.lake->arenas[i];
    if (a &&
        (a->area.is_scarce || a->window_space.area.is_scarce || a->buffer_space.area.is_scarce))
      return 1;
  }
  return 0;
}

static int is_expected(gmlake_result result, gmlake_result expected) {
  return result == expected ||
         (expected == GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY && result == GMLAKE_ERROR_LIMIT_REACHED);
}

/* An answer that a fault explains: its own, and want of memory if that is what it said or did. */
static int is_plausible(gmlake_result result) {
  if (result == answer_to(w.fault.result)) return 1;
  return is_memory(result) && (is_memory(w.fault.result) || is_crippled() ||
                               w.now.hits == w.before.hits || (w.fault.stays && w.before.hits));
}

static void begin_call(void) {
  take_stats();
  w.before = w.now;
}

static void judge_result(gmlake_result result, gmlake_result expected) {
  uint64_t hits = w.now.hits - w.before.hits;
  if (w.before.lost) {
    CHECK(result == (w.is_question ? expected : w.before.lost));
    CHECK(w.now.calls == w.before.calls);
  } else if (!hits && !w.fault.stays) {
    if (is_expected(result, expected)) return;
    CHECK(w.now.hits && (!result || is_plausible(result)) && is_crippled());
  } else {
    CHECK(!result || is_expected(result, expected) || is_plausible(result));
  }
  if (!is_sticky(w.fault.result) || hits <= w.now.silent_hits - w.before.silent_hits) return;
  CHECK(w.lake->lost == w.fault.result);
  /* unless it was the handler that lost the device, on behalf of a request that had failed */
  CHECK(!result || result == w.fault.result || (w.handler_calls && is_memory(result)));
  CHECK(w.errors_told == 1);
}

/* Returns whether the call is to be made again: it failed of a fault that is over. */
static int judge(gmlake_result result, gmlake_result expected) {
  gmlake_error_info info;
  int is_hit = w.now.hits > w.before.hits;
  take_stats();
  if (is_told)
    printf("  %-24.24s %-34s calls %llu to %llu, allocations %llu\n", w.step,
           gmlake_result_name(result), (unsigned long long)w.before.calls + 1,
           (unsigned long long)w.now.calls, (unsigned long long)w.mallocs);
  CHECK(!w.is_relaxed);
  CHECK(!w.asked_in_vain);
  judge_result(result, expected);
  if (w.is_checked || w.now.hits) verify();
  if (!result) return 0;
  CHECK(gmlake_get_last_error(w.lake, &info) == GMLAKE_OK);
  CHECK(info.result == result || info.result == w.now.lost);
  if (w.now.hits == w.before.hits + 1 && w.now.silent_hits == w.before.silent_hits &&
      result == answer_to(w.fault.result) && !is_memory(result))
    CHECK(!strcmp(info.call, w.hit_name));
  return is_hit && !w.fault.stays && !w.now.lost && !is_expected(result, expected);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

typedef struct action {
  char verb;
  char slots[SLOTS + 1];
  int number, stream, pool; /* of a stream or a pool; behind @; behind /p and /q, -1: none */
  unsigned flags;
  int has_data;
  size_t sizes[2]; /* behind = or : */
  size_t alignment;
  gmlake_result expected;
} action;

static size_t slot_of(char name) { return (size_t)(name >= 'a' ? name - 'a' : name - 'A' + 26); }

static gmlake_stream stream_of(int number) {
  return number == STREAM_NONE ? GMLAKE_STREAM_NONE : w.streams[number];
}

static int stream_for(const action *a, int otherwise) {
  return a->stream == STREAM_UNNAMED ? otherwise : a->stream;
}

static void enter_block(block *b, const gmlake_alloc_desc *desc, int number, void *ptr) {
  const gmlake_pool *pool;
  size_t unit = GRAIN;
  b->ptr = (unsigned char *)ptr;
  b->bytes = desc->bytes;
  b->stream = stream_of(number);
  b->stream_number = number;
  b->flags = desc->flags;
  b->user_data = desc->user_data;
  b->label = desc->label;
  b->pool = desc->pool;
  b->is_in_graph = number >= 0 && w.captures[number];
  if (b->is_in_graph) b->pool = w.pools[w.capture_pools[number]];
  pool = b->pool;
  if (b->flags & GMLAKE_EXCLUSIVE) unit = pool ? pool->arena.chunk_bytes : w.desc.chunk_bytes;
  b->rounded = (b->bytes + unit - 1) / unit * unit;
  b->generation++;
  b->is_live = 1;
  b->recorded = 0;
  w.allocation_count++;
  w.live_count++;
  w.requested += b->bytes;
  w.active += b->rounded;
  stamp(b);
}

static gmlake_result do_alloc(const action *a, block *b) {
  int number = stream_for(a, 0);
  gmlake_piece pieces[PIECES];
  gmlake_alloc_desc desc;
  gmlake_result result;
  size_t count = 0;
  void *ptr = &desc;
  memset(&desc, 0, sizeof(desc));
  desc.bytes = a->sizes[0];
  desc.alignment = a->alignment;
  desc.flags = a->flags;
  desc.pool = w.pools[a->pool < 0 ? BASE_POOL : a->pool];
  desc.user_data = a->has_data ? (uint64_t)(b - w.blocks) + 1 : 0;
  desc.label = a->has_data ? "labelled" : NULL;
  result = gmlake_alloc_with(w.lake, &desc, stream_of(number), &ptr);
  CHECK((ptr != NULL) == (!result && desc.bytes));
  if (!ptr) return result;
  CHECK((uintptr_t)ptr % (desc.alignment ? desc.alignment : GRAIN) == 0);
  if (desc.flags & GMLAKE_TRANSIENT) { /* where it lies, the lake decides */
    gmlake_allocation_info info;
    CHECK(gmlake_get_allocation(w.lake, ptr, &info) == GMLAKE_OK);
    desc.pool = info.pool;
    desc.flags = info.flags;
  }
  enter_block(b, &desc, number, ptr);
  CHECK(gmlake_get_pieces(w.lake, ptr, pieces, PIECES, &count) == GMLAKE_OK && count <= PIECES);
  verify_order(pieces, count, number);
  return result;
}

static void leave_block(block *b) {
  b->is_live = 0;
  w.free_count++;
  w.live_count--;
  w.requested -= b->bytes;
  w.active -= b->rounded;
}

/* Work that uses the block is queued on its streams before it is freed. */
static void use_block(const block *b, int number) {
  gmlake_piece pieces[PIECES];
  size_t count = 0;
  int i;
  if (b->is_in_graph || number == STREAM_NONE) return; /* graphs of a pool do not run together */
  if (is_asleep(b->pool)) return;                      /* no work may use it */
  if (gmlake_get_pieces(w.lake, b->ptr, pieces, PIECES, &count)) return;
  add_work(w.queue_of[number]);
  add_uses(pieces, count, w.queue_of[number]);
  for (i = 0; i < QUEUES; i++)
    if (b->recorded & 1u << i) add_uses(pieces, count, i);
}

static gmlake_result do_free(block *b, int number) {
  gmlake_result result;
  if (b->is_live) use_block(b, number);
  result = gmlake_free(w.lake, b->ptr, stream_of(number));
  if (!result) leave_block(b);
  return result;
}

/* Work on that stream uses the block too. */
static gmlake_result do_record(block *b, int number) {
  gmlake_result result = gmlake_record_stream(w.lake, b->ptr, w.streams[number]);
  if (result) return result;
  b->recorded |= 1u << w.queue_of[number];
  add_work(w.queue_of[number]);
  return result;
}

static gmlake_result do_buffer_create(const action *a, buffer *b) {
  gmlake_buffer_desc desc;
  gmlake_buffer_info info;
  gmlake_buffer *handle = NULL;
  gmlake_result result;
  memset(&desc, 0, sizeof(desc));
  desc.max_bytes = a->sizes[0];
  desc.chunk_bytes = w.page_bytes;
  desc.pool = a->pool < 0 ? NULL : w.pools[a->pool];
  result = gmlake_buffer_create(w.lake, &desc, &handle);
  CHECK((handle != NULL) == !result);
  if (result) return result;
  CHECK(gmlake_buffer_get_info(w.lake, handle, &info) == GMLAKE_OK && !info.bytes);
  b->handle = handle;
  b->is_live = 1;
  b->max_bytes = desc.max_bytes;
  b->pool = desc.pool;
  b->ptr = (unsigned char *)info.ptr;
  b->bytes = 0;
  memset(b->has, 0, sizeof(b->has));
  return result;
}

/* What a step asks of a buffer: chunks [from, to) become memory or are given up; then the end. */
typedef struct change {
  int is_commit;
  size_t from, to, end;
} change;

static change change_of(const action *a, const buffer *b) {
  const size_t chunk = w.page_bytes, end = b->bytes;
  const size_t first = a->sizes[0], last = first + a->sizes[1];
  const int commits = a->verb == 'c' || a->verb == 'C', is_range = commits || a->verb == 'd';
  change to_do;
  to_do.is_commit = is_range ? commits : first > end;
  to_do.from = !is_range && to_do.is_commit ? end / chunk : (first + chunk - 1) / chunk;
  to_do.to = ((is_range ? last : first > end ? first : end) + chunk - 1) / chunk;
  to_do.end = is_range ? end : first;
  if (commits && first < last && last > end) to_do.end = last;
  return to_do;
}

/* Counts the model's buffer, or takes it out of the count. */
static void count_buffer(const buffer *b, int is_in) {
  const size_t chunk = w.page_bytes, tail = b->bytes % chunk;
  size_t i, active = 0, requested;
  for (i = 0; i < PLACES; i++) active += b->has[i] ? chunk : 0;
  requested = active - (tail && b->has[b->bytes / chunk] ? chunk - tail : 0);
  w.active = is_in ? w.active + active : w.active - active;
  w.requested = is_in ? w.requested + requested : w.requested - requested;
}

/* Memory of a buffer: where it lies at home, or the handle of a chunk that is not mapped there. */
static gmlake_piece chunk_of(const buffer *b, size_t i) {
  const gmlk_arena *a = b->handle->arena;
  const uint32_t slot = b->handle->places[i].slot;
  gmlake_piece piece;
  piece.home = (void *)(uintptr_t)gmlk_chunk_at(&a->chunks, slot)->handle;
  piece.bytes = 1;
  if (a->is_bare) return piece;
  piece.home = (void *)(uintptr_t)gmlk_slot_home(a, slot);
  piece.bytes = a->chunk_bytes;
  return piece;
}

static void use_pages(const buffer *b, const change *to_do, int number) {
  gmlake_piece piece;
  size_t i;
  if (!b->is_live || to_do->is_commit || number == STREAM_NONE || w.captures[number]) return;
  if (is_asleep(b->pool)) return;
  for (i = to_do->from; i < to_do->to; i++) {
    if (!b->has[i]) continue;
    add_work(w.queue_of[number]);
    piece = chunk_of(b, i);
    add_uses(&piece, 1, w.queue_of[number]);
    piece.home = b->ptr + i * w.page_bytes;
    piece.bytes = w.page_bytes;
    add_uses(&piece, 1, w.queue_of[number]);
  }
}

/* Work on the stream uses what is given up; what is new has to come behind its last use. */
static gmlake_result do_buffer_change(const action *a, buffer *b, int number) {
  const change to_do = change_of(a, b);
  const gmlake_stream s = stream_of(number);
  gmlake_result result;
  uint32_t chunks[PLACES];
  gmlake_piece piece;
  size_t i;
  use_pages(b, &to_do, number);
  switch (a->verb) {
  case 'K':
    result = gmlake_buffer_destroy(w.lake, b->handle, s);
    break;
  case 'c':
    result = gmlake_buffer_commit(w.lake, b->handle, a->sizes[0], a->sizes[1], s);
    break;
  case 'C': /* the first chunks, the last of them first */
    for (i = 0; i < sizeof chunks / sizeof *chunks; i++) chunks[i] = (uint32_t)(7 - i % 8);
    result = gmlake_buffer_commit_chunks(w.lake, b->handle, a->sizes[0], a->sizes[1], chunks, s);
    break;
  case 'd':
    result = gmlake_buffer_discard(w.lake, b->handle, a->sizes[0], a->sizes[1], s);
    break;
  default:
    result = gmlake_buffer_resize(w.lake, b->handle, a->sizes[0], s);
  }
  if (result) return result;
  count_buffer(b, 0);
  for (i = to_do.from; i < to_do.to; i++) {
    if (to_do.is_commit && !b->has[i]) {
      b->has[i] = ++b->generation;
      stamp(page_of(b, i));
      piece = chunk_of(b, i);
      verify_order(&piece, 1, number);
    }
    if (!to_do.is_commit) b->has[i] = 0;
  }
  b->bytes = to_do.end;
  count_buffer(b, 1);
  if (a->verb == 'K') b->is_live = 0;
  return result;
}

/* The stream is gone, and its value may come back as that of another. */
static gmlake_result do_forget(int number) {
  gmlake_result result = gmlake_forget_stream(w.lake, w.streams[number]);
  size_t i;
  if (result) return result;
  for (i = 0; i < SLOTS; i++)
    if (w.blocks[i].stream == w.streams[number]) w.blocks[i].stream = GMLAKE_STREAM_NONE;
  note_forgotten(number);
  if (number == 0) return result;
  gmlake_mock_stream_destroy(w.mock, w.streams[number]);
  CHECK(gmlake_mock_stream_create(w.mock, &w.streams[number]) == GMLAKE_OK);
  return result;
}

static gmlake_result do_pool_create(const action *a) {
  gmlake_pool_desc desc;
  gmlake_result result;
  memset(&desc, 0, sizeof(desc));
  desc.chunk_bytes = a->sizes[0];
  desc.limit_bytes = a->sizes[1];
  result = gmlake_pool_create(w.lake, &desc, &w.pools[a->number]);
  CHECK((w.pools[a->number] != NULL) == !result);
  return result;
}

/* Destroyed or as it was, and the answer says which; after a fatal error it does not matter. */
static gmlake_result do_pool_destroy(int number) {
  const gmlk_arena *arena = &w.pools[number]->arena;
  gmlake_result result = gmlake_pool_destroy(w.lake, w.pools[number]);
  size_t i;
  w.pools[number] = NULL;
  for (i = 0; i < w.lake->arena_count; i++)
    if (w.lake->arenas[i] == arena) w.pools[number] = arena->pool;
  CHECK((result == GMLAKE_OK) == !w.pools[number] || is_sticky(result));
  return result;
}

/* The caller waits for all work. */
static void synchronise(void) {
  int i;
  for (i = 0; i < STREAMS; i++) gmlake_mock_stream_finish(w.mock, w.streams[i]);
  for (i = 0; i < QUEUES; i++) w.host.behind[i] = w.queues[i].behind[i];
}

static gmlake_result do_sleep(const action *a) {
  const size_t held = w.before.stats.reserved_bytes;
  const int was_asleep = is_asleep(w.pools[a->number]);
  size_t released = 1;
  gmlake_result result;
  synchronise();
  result = gmlake_pool_sleep(w.lake, w.pools[a->number],
                             a->verb == 'k' ? GMLAKE_SLEEP_KEEP : GMLAKE_SLEEP_DROP, &released);
  take_stats();
  CHECK(result || held - released == w.now.stats.reserved_bytes);
  if (a->verb == 'o' && (!result || was_asleep)) w.are_dropped[a->number] = 1;
  if (!result) CHECK(is_asleep(w.pools[a->number]));
  return result;
}

/* What was dropped gets contents again; what was kept is verified. */
static gmlake_result do_wake(int number) {
  const gmlake_pool *pool = w.pools[number];
  const int was_asleep = is_asleep(pool);
  gmlake_result result = gmlake_pool_wake(w.lake, w.pools[number]);
  size_t i, n;
  CHECK(is_asleep(pool) == (result && was_asleep));
  if (result || !was_asleep || !w.are_dropped[number]) return result;
  w.are_dropped[number] = 0;
  for (i = 0; i < SLOTS; i++)
    if (w.blocks[i].is_live && w.blocks[i].pool == pool) stamp(&w.blocks[i]);
  for (i = 0; i < BUFFERS; i++)
    for (n = 0; n < PLACES; n++)
      if (w.buffers[i].is_live && w.buffers[i].pool == pool && w.buffers[i].has[n])
        stamp(page_of(&w.buffers[i], n));
  return result;
}

/* What the graphs of a pool know, and do not use as blocks. */
static size_t known_pieces(const gmlk_arena *a, gmlake_piece *out) {
  const gmlk_block *b = a->head.next;
  size_t count = 0;
  for (; b != &a->tail; b = b->next) {
    if (b->state != GMLK_FREE || b->stream != GMLK_PINNED) continue;
    CHECK(count < PIECES);
    out[count].home = (void *)(uintptr_t)gmlk_home(a, b->at);
    out[count++].bytes = gmlk_to_bytes(b->grains);
  }
  return count;
}

/* Graphs that use all of it are launched on the stream, before. */
static gmlake_result do_lend(int number, int stream) {
  gmlake_piece pieces[PIECES];
  const size_t count = known_pieces(&w.pools[number]->arena, pieces);
  gmlake_result result;
  add_work(w.queue_of[stream]);
  result = gmlake_pool_lend(w.lake, w.pools[number], stream_of(stream));
  if (!result) add_uses(pieces, count, w.queue_of[stream]);
  return result;
}

/* And behind. */
static gmlake_result do_recall(int number, int stream) {
  gmlake_piece pieces[PIECES];
  gmlake_result result = gmlake_pool_recall(w.lake, w.pools[number], stream_of(stream));
  if (!result) verify_order(pieces, known_pieces(&w.pools[number]->arena, pieces), stream);
  return result;
}

static gmlake_result do_capture_begin(const action *a) {
  gmlake_stream s = w.streams[a->number];
  int pool = (int)(a->sizes[0] / w.page_bytes);
  gmlake_result result = gmlake_capture_begin(w.lake, s, w.pools[pool]);
  if (result) return result;
  CHECK(gmlake_mock_capture_begin(w.mock, s) == GMLAKE_OK);
  w.captures[a->number] = 1;
  w.capture_pools[a->number] = pool;
  return result;
}

/* Nothing that the lake did has spoilt the capture. */
static gmlake_result do_capture_end(int number) {
  gmlake_result result;
  if (w.captures[number] == 1) {
    CHECK(gmlake_mock_capture_end(w.mock, w.streams[number]) == GMLAKE_OK);
    w.captures[number] = 2;
  }
  result = gmlake_capture_end(w.lake, w.streams[number]);
  if (!result) w.captures[number] = 0;
  return result;
}

static gmlake_result do_trim(size_t keep_bytes) {
  size_t released = 1, held = w.before.stats.reserved_bytes;
  gmlake_result result = gmlake_trim(w.lake, keep_bytes, &released);
  take_stats();
  CHECK(held - released == w.now.stats.reserved_bytes);
  if (released) w.reached['T'] = 1;
  return result;
}

/* After an error nothing is created, but for what the driver refused to take back. */
static gmlake_result do_prewarm(const action *a, gmlake_stream stream) {
  const gmlake_stats *was = &w.before.stats, *now = &w.now.stats;
  gmlake_profile profile;
  gmlake_result result;
  memset(&profile, 0, sizeof(profile));
  profile.resident_bytes = a->sizes[0];
  profile.peak_bytes = a->sizes[1];
  profile.handle_bytes = 4 * w.desc.chunk_bytes;
  profile.large_percent = 100;
  result = gmlake_prewarm(w.lake, &profile, stream);
  take_stats();
  CHECK(!result || now->reserved_bytes - was->reserved_bytes ==
                       now->quarantined_bytes - was->quarantined_bytes);
  return result;
}

static gmlake_result do_budget(void) {
  gmlake_budget budget;
  gmlake_result result = gmlake_get_budget(w.lake, &budget);
  if (result) return result;
  CHECK(budget.reserved_bytes == census().physical_bytes);
  CHECK(budget.driver_free_bytes + budget.reserved_bytes == budget.total_bytes);
  CHECK(budget.idle_bytes + budget.pending_bytes <= budget.reserved_bytes);
  return result;
}

/* Asks how allocations would end that need a range, a window, growth or a wait. */
static gmlake_result do_queries(void) {
  static const unsigned flags[] = {0, GMLAKE_NO_STITCH, GMLAKE_NO_GROW, GMLAKE_EXCLUSIVE};
  const size_t held = census().handle_count, mapped = census().mapping_count;
  gmlake_result result = GMLAKE_OK;
  gmlake_query_info info;
  gmlake_alloc_desc wanted;
  size_t i;
  for (i = 0; i < 16 && !result; i++) {
    memset(&wanted, 0, sizeof(wanted));
    wanted.bytes = (i % 4 * 5 + 1) * w.page_bytes - GRAIN;
    wanted.flags = flags[i / 4];
    result = gmlake_query(w.lake, &wanted, i % 3 ? w.streams[i % 3] : GMLAKE_STREAM_NONE, &info);
    if (!result)
      CHECK(!info.result || info.result == GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY ||
            info.result == GMLAKE_ERROR_LIMIT_REACHED);
  }
  CHECK(census().handle_count == held && census().mapping_count == mapped);
  return result;
}

/* The pieces of a block are its bytes. */
static gmlake_result do_pieces(const block *b) {
  gmlake_piece pieces[PIECES];
  size_t count = 0, bytes = 0, i;
  gmlake_result result = gmlake_get_pieces(w.lake, b->ptr, pieces, PIECES, &count);
  if (result) return result;
  for (i = 0; i < count; i++) {
    CHECK(memcmp(pieces[i].home, b->ptr + bytes, sizeof(uint64_t)) == 0);
    bytes += pieces[i].bytes;
  }
  CHECK(bytes == b->rounded);
  return result;
}

/* Exports a block, imports it, finds the same there, and gives the import up. Returns the first
   error; then no descriptor is left. */
static gmlake_result do_share(const block *b) {
  gmlake_handle handles[PIECES];
  size_t count = 0;
  void *ptr = NULL;
  gmlake_result result =
      gmlake_export(w.lake, b->ptr, GMLAKE_HANDLE_POSIX_FD, handles, PIECES, &count);
  if (result) return result;
  CHECK(count && count * handles[0].bytes == b->rounded);
  result = gmlake_import(w.lake, handles, count, &ptr);
  CHECK(!result == (ptr != NULL));
  while (count) CHECK(close(handles[--count].fd) == 0);
  if (result) return result;
  w.allocation_count++;
  CHECK(memcmp(ptr, b->ptr, b->rounded) == 0);
  result = gmlake_free(w.lake, ptr, GMLAKE_STREAM_NONE);
  if (!result) w.free_count++;
  return result;
}

/* What the lake answers without any call of the backend. */
static void do_questions(void) {
  gmlake_desc answer;
  gmlake_profile learnt;
  const char *wrong = map_wrong(w.lake, w.pools, POOLS);
  CHECK(!wrong);
  learnt.struct_bytes = 0;
  CHECK(gmlake_profile_take(w.lake, &learnt) == GMLAKE_OK);
  CHECK(learnt.resident_bytes <= learnt.peak_bytes);
  CHECK(gmlake_reset_peaks(w.lake) == GMLAKE_OK);
  take_stats();
  CHECK(w.now.stats.active_bytes_peak == w.active);
  CHECK(w.now.stats.reserved_bytes_peak == w.now.stats.reserved_bytes);
  CHECK(gmlake_get_desc(w.lake, &answer) == GMLAKE_OK);
  CHECK(answer.chunk_bytes == w.desc.chunk_bytes && answer.flags == w.desc.flags);
  CHECK(w.now.calls == w.before.calls);
}

/* Arguments that are refused before anything is looked at. */
static void do_refused(void) {
  const int told = w.errors_told;
  gmlake *l = w.lake;
  gmlake_alloc_desc wanted;
  void *ptr;
  memset(&wanted, 0, sizeof(wanted));
  wanted.bytes = GRAIN;
  CHECK(gmlake_create(&w.desc, NULL) == GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(w.errors_told-- == told + 1);
  CHECK(gmlake_alloc(l, GRAIN, w.streams[0], NULL) == GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(gmlake_alloc_with(l, NULL, w.streams[0], &ptr) == GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(gmlake_alloc(l, GRAIN, (gmlake_stream)2, &ptr) == GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(gmlake_free(l, &wanted, (gmlake_stream)2) == GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(gmlake_record_stream(l, NULL, w.streams[0]) == GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(gmlake_forget_stream(l, GMLAKE_STREAM_NONE) == GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(gmlake_mark_stream(l, (gmlake_stream)2, GMLAKE_STREAM_PLAIN) ==
        GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(gmlake_get_allocation(l, NULL, NULL) == GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(gmlake_get_pieces(l, &wanted, NULL, 1, NULL) == GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(gmlake_pool_create(l, NULL, NULL) == GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(gmlake_capture_begin(l, w.streams[1], NULL) == GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(gmlake_capture_begin(l, (gmlake_stream)1, w.pools[0]) == GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(gmlake_capture_end(l, GMLAKE_STREAM_NONE) == GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(gmlake_get_budget(l, NULL) == GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(gmlake_profile_take(l, NULL) == GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(gmlake_prewarm(l, NULL, w.streams[0]) == GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(gmlake_find(l, NULL, NULL) == GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(gmlake_query(l, NULL, w.streams[0], NULL) == GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(gmlake_get_chunks(l, &wanted, NULL, 1, NULL) == GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(gmlake_get_map(l, NULL, 0, NULL) == GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(gmlake_pool_get_stats(l, NULL, NULL) == GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(gmlake_buffer_create(l, NULL, NULL) == GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(gmlake_buffer_resize(l, NULL, 0, w.streams[0]) == GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(gmlake_buffer_commit(l, NULL, 0, 0, w.streams[0]) == GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(gmlake_buffer_discard(l, NULL, 0, 0, w.streams[0]) == GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(gmlake_buffer_destroy(l, NULL, w.streams[0]) == GMLAKE_OK);
  CHECK(gmlake_free(l, NULL, w.streams[0]) == GMLAKE_OK);
  CHECK(gmlake_pool_sleep(l, NULL, (gmlake_sleep_mode)2, NULL) == GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(gmlake_pool_wake(NULL, NULL) == GMLAKE_ERROR_INVALID_ARGUMENT);
  CHECK(gmlake_pool_destroy(l, NULL) == GMLAKE_OK);
  CHECK(w.now.calls == w.before.calls);
}

/* Whether a step makes sense: under a fault what it builds on may not have come about. */
static int is_possible(const action *a, const block *b) {
  size_t i;
  switch (a->verb) {
  case 'N':
    return !w.buffers[a->number].is_live && (a->pool < 0 || w.pools[a->pool]);
  case 'z':
  case 'c':
  case 'C':
  case 'd':
  case 'K':
    return w.buffers[a->number].is_live;
  case '+':
    return !b->is_live && (a->pool < 0 || w.pools[a->pool]);
  case '-':
  case 'r':
  case 'x':
  case 'I':
    if (b->is_live || !a->expected || !b->ptr) return b->is_live;
    for (i = 0; i < SLOTS; i++)
      if (w.blocks[i].is_live && w.blocks[i].ptr == b->ptr) return 0;
    return 1;
  case 'P':
    return !w.pools[a->number];
  case 'D':
    return w.pools[a->number] != NULL;
  case 'l':
    return w.pools[a->number] && (a->expected || !w.pools[a->number]->loan.number);
  case 'L':
    return w.pools[a->number] && w.pools[a->number]->loan.number;
  case 'k':
  case 'o':
  case 'w':
    return a->number == BASE_POOL || w.pools[a->number];
  case 'B':
    return w.pools[a->sizes[0] / w.page_bytes] && (a->expected || !w.captures[a->number]);
  case 'E':
    return a->expected || w.captures[a->number];
  default:
    return 1;
  }
}

/* The public call of a step. */
static gmlake_result perform(const action *a, block *b) {
  switch (a->verb) {
  case '+':
    return do_alloc(a, b);
  case '-':
    return do_free(b, stream_for(a, b->stream_number));
  case 'r':
    return do_record(b, a->stream);
  case 'I':
    return do_pieces(b);
  case 'x':
    return do_share(b);
  case 'f':
    return do_forget(a->number);
  case 'm':
    return gmlake_mark_stream(w.lake, stream_of(a->number),
                              (gmlake_stream_kind)(a->sizes[0] / w.desc.chunk_bytes));
  case 'P':
    return do_pool_create(a);
  case 'D':
    return do_pool_destroy(a->number);
  case 'B':
    return do_capture_begin(a);
  case 'E':
    return do_capture_end(a->number);
  case 'k':
  case 'o':
    return do_sleep(a);
  case 'w':
    return do_wake(a->number);
  case 'l':
    return do_lend(a->number, stream_for(a, 0));
  case 'L':
    return do_recall(a->number, stream_for(a, 0));
  case 'T':
    return do_trim(a->sizes[0]);
  case 'Y':
    return do_prewarm(a, stream_of(stream_for(a, 0)));
  case 'Q':
    return a->number ? do_queries() : do_budget();
  case 'N':
    return do_buffer_create(a, &w.buffers[a->number]);
  case 'z':
  case 'c':
  case 'C':
  case 'd':
  case 'K':
    return do_buffer_change(a, &w.buffers[a->number], stream_for(a, 0));
  default:
    fail_msg("scenario %s: no such step: %.20s", w.scenario->name, w.step);
    return GMLAKE_OK;
  }
}

/* Steps that are not the lake's; returns whether it was one. */
static int play_beside(const action *a) {
  switch (a->verb) {
  case '|':
    w.mark = w.now.calls;
    return 1;
  case 'h':
    gmlake_mock_stream_hold(w.mock, w.streams[a->number]);
    return 1;
  case 'e':
    gmlake_mock_stream_finish(w.mock, w.streams[a->number]);
    return 1;
  case 'g':
    gmlake_mock_stream_set_lag(w.mock, w.streams[a->number], a->sizes[0]);
    return 1;
  case 't':
    gmlake_mock_set_clock(w.mock, a->sizes[0]);
    return 1;
  case 'S':
    begin_call();
    do_questions();
    return 1;
  case 'X':
    begin_call();
    do_refused();
    return 1;
  default:
    return 0;
  }
}

/* ---- What a scenario reaches ----------------------------------------------------------------- */

/* The rung of the ladder that served an allocation, by what it has called. */
static void note_rung(void) {
  const tally *now = &w.now, *was = &w.before;
  uint64_t since[CALLS], undone = now->undone - was->undone;
  int i, grew = now->stats.state_count[3] > was->stats.state_count[3], reclaimed;
  for (i = 0; i < CALLS; i++) since[i] = now->counted[i] - was->counted[i];
  reclaimed = since[RELEASE] > undone || (since[UNMAP] > undone && !w.desc.stitched_bytes_max);
  if (reclaimed) w.reached['r'] = 1;
  if (since[HOST_WAIT] && !reclaimed) w.reached['w'] = 1;
  if (since[HOST_WAIT]) return;
  if (since[STREAM_WAIT]) w.reached['b'] = 1;
  if (since[STREAM_WAIT]) return;
  if (grew) w.reached['g'] = 1;
  if (now->stats.state_count[2] > was->stats.state_count[2]) w.reached['s'] = 1;
  if (since[QUERY] && !since[CREATE] && !since[MAP]) w.reached['c'] = 1;
}

/* The same of a buffer's growth. */
static void note_growth(void) {
  const tally *now = &w.now, *was = &w.before;
  uint64_t since[CALLS], undone = now->undone - was->undone;
  int i, grew = now->stats.state_count[3] > was->stats.state_count[3];
  for (i = 0; i < CALLS; i++) since[i] = now->counted[i] - was->counted[i];
  if (now->stats.buffer_bytes <= was->stats.buffer_bytes) return;
  if (now->calls == was->calls) w.reached['F'] = 1;
  if (grew) w.reached['g'] = 1;
  if (since[MAP] && !grew) w.reached['A'] = 1;
  if (since[HOST_WAIT]) w.reached['w'] = 1;
  if (since[STREAM_WAIT]) w.reached['b'] = 1;
  if (since[RELEASE] > undone) w.reached['r'] = 1;
  if (since[UNMAP] && !since[RELEASE]) w.reached['Y'] = 1;
}

static void note_blocks(void) {
  size_t i;
  for (i = 0; i < w.lake->arena_count; i++) {
    const gmlk_arena *a = w.lake->arenas[i];
    const gmlk_block *b = a ? a->head.next : NULL;
    for (; b && b != &a->tail; b = b->next) {
      if (b->state == GMLK_FREE && b->stream == GMLK_PINNED) w.reached['N'] = 1;
      if (b->state == GMLK_PIECE) w.reached['W'] = 1;
    }
  }
}

/* For the letters of program.reach. */
static void note_reached(const action *a, gmlake_result result) {
  const gmlake_stats *s = &w.now.stats;
  int i;
  if (a->verb == '+' && !result) note_rung();
  if (strchr("zc", a->verb) && !result) note_growth();
  note_blocks();
  for (i = 0; i < 5; i++)
    if (s->state_count[i]) w.reached['1' + i] = 1;
  if (s->split_count) w.reached['X'] = 1;
  if (s->stitch_count) w.reached['Z'] = 1;
  if (s->stitch_reuse_count) w.reached['R'] = 1;
  if (s->stitch_evict_count) w.reached['E'] = 1;
  if (s->event_count) w.reached['V'] = 1;
  if (s->pending_bytes_peak) w.reached['P'] = 1;
  if (w.handler_calls) w.reached['h'] = 1;
  if (result == GMLAKE_ERROR_LIMIT_REACHED) w.reached['L'] = 1;
  if (is_memory(result)) w.reached['O'] = 1;
  if (w.leaks_told) w.reached['D'] = 1;
}

static void expect_reached(void) {
  const char *letter;
  for (letter = w.scenario->program->reach; *letter; letter++)
    if (!w.reached[(int)*letter])
      fail_msg("scenario %s does not reach '%c' any more", w.scenario->name, *letter);
}

/* ---- Playing a program ----------------------------------------------------------------------- */

/* A sum or difference of chunks, KiB (k) and bytes (b). */
static const char *parse_size(const char *at, size_t *out) {
  size_t sum = 0;
  int is_less = 0;
  for (;;) {
    char *end;
    size_t value = strtoul(at, &end, 10), unit = w.page_bytes ? w.page_bytes : w.desc.chunk_bytes;
    at = end;
    if (*at == 'k' || *at == 'b') unit = *at++ == 'k' ? 1024 : 1;
    sum = is_less ? sum - value * unit : sum + value * unit;
    if (*at != '+' && *at != '-') break;
    is_less = *at++ == '-';
  }
  *out = sum;
  return at;
}

static int is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* Names of blocks: letters, or a range of them. */
static const char *parse_slots(const char *at, action *a) {
  size_t count = 0;
  char c;
  if (*at == '*') a->slots[0] = *at;
  if (*at == '*') return at + 1;
  while (is_letter(*at)) {
    a->slots[count++] = c = *at++;
    if (*at != '-' || !is_letter(at[1])) continue;
    for (at++; c < *at;) a->slots[count++] = ++c;
    at++;
  }
  return at;
}

static const char *parse_flags(const char *at, action *a) {
  for (; is_letter(*at); at++) {
    a->flags |= *at == 'x' ? GMLAKE_EXCLUSIVE : 0;
    a->flags |= *at == 's' ? GMLAKE_NO_STITCH : 0;
    a->flags |= *at == 'g' ? GMLAKE_NO_GROW : 0;
    a->flags |= *at == 't' ? GMLAKE_TRANSIENT : 0;
    if (*at == 'u') a->has_data = 1;
    if (*at == 'p' || *at == 'q') a->pool = *at - 'p';
  }
  return at;
}

static gmlake_result parse_error(char letter) {
  switch (letter) {
  case 'O':
    return GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
  case 'L':
    return GMLAKE_ERROR_LIMIT_REACHED;
  case 'I':
    return GMLAKE_ERROR_INVALID_ARGUMENT;
  case 'C':
    return GMLAKE_ERROR_CAPTURING;
  case 'U':
    return GMLAKE_ERROR_UNKNOWN_POINTER;
  case 'A':
    return GMLAKE_ERROR_ASLEEP;
  case 'B':
    return GMLAKE_ERROR_BUSY;
  default:
    return GMLAKE_ERROR_DOUBLE_FREE;
  }
}

static const char *parse_action(const char *at, action *a) {
  size_t sizes = 0;
  memset(a, 0, sizeof(*a));
  a->stream = STREAM_UNNAMED;
  a->pool = -1;
  a->verb = *at++;
  if (strchr("+-rIx", a->verb)) at = parse_slots(at, a);
  if (*at >= '0' && *at <= '9') a->number = *at++ - '0';
  while (*at && *at != ' ') {
    switch (*at++) {
    case '@':
      a->stream = *at == 'n' ? STREAM_NONE : *at - '0';
      at++;
      break;
    case '/':
      at = parse_flags(at, a);
      break;
    case '^':
      at = parse_size(at, &a->alignment);
      break;
    case '!':
      a->expected = parse_error(*at++);
      break;
    default: /* = and : */
      at = parse_size(at, &a->sizes[sizes++ % 2]);
    }
  }
  return at;
}

/* What a step answers where earlier ones may have failed: a block that could not be freed is still
   known, and its pool cannot be destroyed. */
static gmlake_result expected_of(const action *a, const block *b) {
  const gmlake_pool *pool = NULL;
  size_t i;
  if (strchr("-rIx", a->verb) && b->is_live) return GMLAKE_OK;
  if (strchr("lBD", a->verb))
    pool = w.pools[a->verb == 'B' ? (int)(a->sizes[0] / w.page_bytes) : a->number];
  if (strchr("lBD", a->verb) && pool && pool->loan.number) return GMLAKE_ERROR_BUSY;
  for (i = 0; a->verb == 'L' && i < SLOTS; i++)
    if (w.blocks[i].is_live && w.blocks[i].flags & GMLAKE_TRANSIENT) return GMLAKE_ERROR_BUSY;
  if (a->verb == 'L') return GMLAKE_OK;
  if (a->verb == '+') pool = w.pools[a->pool < 0 ? BASE_POOL : a->pool];
  if (strchr("czd", a->verb)) pool = w.buffers[a->number].pool;
  if (a->verb == 'B') pool = w.pools[a->sizes[0] / w.page_bytes];
  if (a->expected == GMLAKE_ERROR_ASLEEP && !is_asleep(pool)) return GMLAKE_OK;
  if (strchr("+cB", a->verb) && is_asleep(pool)) return GMLAKE_ERROR_ASLEEP;
  if (a->verb == 'Y' && is_asleep(NULL)) return GMLAKE_ERROR_ASLEEP;
  if (a->verb == 'z' && a->sizes[0] > w.buffers[a->number].bytes && is_asleep(pool))
    return GMLAKE_ERROR_ASLEEP;
  for (i = 0; a->verb == 'D' && i < SLOTS; i++)
    if (w.blocks[i].is_live && w.blocks[i].pool == w.pools[a->number])
      return GMLAKE_ERROR_INVALID_ARGUMENT;
  for (i = 0; a->verb == 'D' && i < BUFFERS; i++)
    if (w.buffers[i].is_live && w.buffers[i].pool == w.pools[a->number])
      return GMLAKE_ERROR_INVALID_ARGUMENT;
  return a->expected;
}

/* One public call, and again where it failed of a fault that is over. */
static void play_call(const action *a, block *b) {
  gmlake_result result, expected;
  int again;
  do {
    if (!is_possible(a, b)) {
      CHECK(w.now.hits);
      return;
    }
    begin_call();
    expected = w.now.hits ? expected_of(a, b) : a->expected;
    w.is_question = a->verb == 'I';
    result = perform(a, b);
    again = judge(result, expected);
    if (w.is_checked) note_reached(a, result);
  } while (again);
}

static void play_step(const action *a) {
  const char *slot;
  block *b = w.blocks + 26;
  if (play_beside(a)) return;
  while (a->slots[0] == '*' && b->is_live) b++;
  if (a->slots[0] == '*') {
    play_call(a, b);
    return;
  }
  if (!a->slots[0]) play_call(a, NULL);
  for (slot = a->slots; *slot; slot++) play_call(a, &w.blocks[slot_of(*slot)]);
}

/* Steps up to the end or `]`; [N STEPS ] is done N times. */
static const char *play(const char *at) {
  action a;
  while (*at && *at != ']') {
    if (*at == ' ') {
      at++;
    } else if (*at == '[') {
      char *from;
      unsigned long times = strtoul(at + 1, &from, 10);
      while (times--) at = play(from);
      at++;
    } else {
      w.step = at;
      at = parse_action(at, &a);
      play_step(&a);
    }
  }
  return at;
}

/* ---- The policy of ask: ---------------------------------------------------------------------- */

static void plan_piece(gmlake_plan *plan, const void *home, size_t bytes) {
  gmlake_piece *piece = &plan->pieces[plan->piece_count++];
  piece->home = (void *)(uintptr_t)home;
  piece->bytes = bytes;
}

/* The front of what lies side by side: the first that is large enough. */
static int plan_front(const gmlake_view *view, size_t bytes, gmlake_plan *plan) {
  size_t i, n, have;
  for (i = 0; i < view->block_count; i += n) {
    const gmlake_piece *b = &view->blocks[i];
    have = b->bytes;
    for (n = 1; i + n < view->block_count && b[n].home == (char *)b->home + have; n++)
      have += b[n].bytes;
    if (have < bytes) continue;
    plan_piece(plan, b->home, bytes);
    plan->state = have == bytes ? 1 : 2;
    return 1;
  }
  return 0;
}

static int plan_reuse(const gmlake_view *view, size_t bytes, gmlake_plan *plan) {
  size_t i;
  for (i = 0; i < view->window_count && !plan->window; i++)
    if (view->windows[i].is_free && view->windows[i].bytes == bytes)
      plan->window = view->windows[i].number;
  plan->state = plan->window ? 1 : 0;
  return plan->state != 0;
}

static int is_chunks(const gmlake_view *view, const gmlake_piece *b) {
  return !((uintptr_t)b->home % view->chunk_bytes || b->bytes % view->chunk_bytes);
}

static int plan_stitch(const gmlake_view *view, size_t bytes, gmlake_plan *plan) {
  size_t i, have = 0;
  for (i = view->block_count; i-- && have < bytes;) {
    size_t part = view->blocks[i].bytes < bytes - have ? view->blocks[i].bytes : bytes - have;
    if (!is_chunks(view, &view->blocks[i])) continue;
    plan_piece(plan, view->blocks[i].home, part);
    have += part;
  }
  plan->state = 3;
  return have == bytes && plan->piece_count > 1;
}

static int plan_former(const gmlake_view *view, size_t bytes, gmlake_plan *plan) {
  size_t i = 0;
  while (i < view->block_count &&
         (!is_chunks(view, &view->blocks[i]) || view->blocks[i].bytes <= bytes))
    i++;
  if (i == view->block_count) return 0;
  plan_piece(plan, view->blocks[i].home, bytes);
  plan->state = 2;
  plan->keeps_former = 1;
  return 1;
}

static int plan_growth(const gmlake_view *view, size_t bytes, gmlake_plan *plan, int is_behind) {
  const gmlake_piece *b = view->blocks;
  if (is_behind && !(view->block_count && is_chunks(view, b) && b->bytes < bytes)) return 0;
  if (is_behind) plan_piece(plan, b->home, b->bytes);
  plan->grow_bytes = bytes - (is_behind ? b->bytes : 0);
  plan->state = 4;
  return 1;
}

static int plan_letter(char letter, const gmlake_view *view, const gmlake_request *request,
                       gmlake_plan *plan) {
  const gmlk_arena *a = request->pool ? &request->pool->arena : &w.lake->home;
  size_t bytes = (request->bytes + GRAIN - 1) / GRAIN * GRAIN;
  if (letter == 'p') return plan_front(view, bytes, plan);
  if (letter == 'r') return plan_reuse(view, bytes, plan);
  if (bytes < 2 * view->chunk_bytes || bytes % view->chunk_bytes) return 0;
  plan->state = 5;
  switch (letter) {
  case '4':
    return w.asked_times < 2;
  case '5':
    return w.asked_times < 3;
  case '9':
    return 1;
  case 's':
    return a->window_space.holes && plan_stitch(view, bytes, plan);
  case 'k':
    return plan_former(view, bytes, plan);
  case 'g':
    return plan_growth(view, bytes, plan, 0);
  case 'b':
    return a->window_space.holes && plan_growth(view, bytes, plan, 1);
  default:
    return 0;
  }
}

static void on_choose(void *user, const gmlake_view *view, const gmlake_request *request,
                      gmlake_plan *plan) {
  gmlake_plan empty = *plan;
  const char *letter;
  (void)user;
  if (w.asked_number != request->number) w.asked_times = 0;
  w.asked_number = request->number;
  w.asked_times++;
  for (letter = w.asked; *letter && *letter != ' '; letter++) {
    if (plan_letter(*letter, view, request, plan)) return;
    *plan = empty;
  }
}

static size_t on_evict(void *user, const gmlake_view *view, size_t mapped_bytes,
                       uint64_t *out_windows) {
  size_t i, count = 0;
  (void)user;
  CHECK(mapped_bytes % view->chunk_bytes == 0 && mapped_bytes);
  for (i = 0; i < view->window_count; i++)
    if (view->windows[i].is_complete) out_windows[count++] = view->windows[i].number;
  return count;
}

static int on_coalesce(void *user, const gmlake_piece *block) {
  (void)user;
  CHECK(block->bytes % GRAIN == 0);
  return 0;
}

static const gmlake_policy *asked_policy(void) {
  static gmlake_policy policy;
  const char *end = strchr(w.asked, ' ');
  size_t length = end ? (size_t)(end - w.asked) : strlen(w.asked);
  memset(&policy, 0, sizeof(policy));
  policy.struct_bytes = sizeof(policy);
  if (strcspn(w.asked, "prskgb459") < length) policy.choose = on_choose;
  if (strcspn(w.asked, "e") < length) policy.evict = on_evict;
  if (strcspn(w.asked, "c") < length) policy.coalesce = on_coalesce;
  return &policy;
}

/* ---- A run ----------------------------------------------------------------------------------- */

static int on_oom(void *user, gmlake *l, const gmlake_error_info *info) {
  block *b = &w.blocks[slot_of(is_letter(w.oom_slot) ? w.oom_slot : 'a')];
  void *ptr = &ptr;
  (void)user;
  w.handler_calls++;
  CHECK(info->result == GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY ||
        info->result == GMLAKE_ERROR_LIMIT_REACHED);
  if (w.oom_slot == '!') return gmlake_trim(l, 0, NULL) == GMLAKE_OK;
  if (w.oom_slot == '?') {
    gmlake_result result = gmlake_alloc(l, GRAIN, w.streams[0], &ptr);
    CHECK(result == GMLAKE_ERROR_INVALID_ARGUMENT && !ptr);
    return 0;
  }
  return b->is_live && do_free(b, 0) == GMLAKE_OK;
}

static void on_log(void *user, int level, const gmlake_error_info *info) {
  (void)user;
  if (level == GMLAKE_LOG_ERROR) w.errors_told++;
  if (level == GMLAKE_LOG_WARNING && !strcmp(info->call, "gmlake_destroy")) w.leaks_told++;
}

typedef struct options { /* those that are not the description's */
  size_t capacity;
  int is_limited, is_kept;        /* the device has twice as much, and a limit forbids it */
  int has_pool, has_limited_pool; /* a pool serves for the default one */
  int is_created;                 /* stream 0 is not the legacy stream */
  int is_apart;                   /* blocks have chunks of 2 */
} options;

static const struct {
  const char *name;
  size_t offset;
} size_options[] = {
    {"chunk:", offsetof(gmlake_desc, chunk_bytes)},
    {"handle:", offsetof(gmlake_desc, handle_bytes)},
    {"smin:", offsetof(gmlake_desc, stitch_bytes_min)},
    {"smax:", offsetof(gmlake_desc, stitched_bytes_max)},
    {"limit:", offsetof(gmlake_desc, limit_bytes)},
    {"keep:", offsetof(gmlake_desc, driver_free_bytes_min)},
    {"arena:", offsetof(gmlake_desc, arena_bytes)},
    {"window:", offsetof(gmlake_desc, window_bytes)},
};

static void parse_option(const char *at, options *o) {
  static const int peers[2] = {1, 2};
  size_t i;
  for (i = 0; i < sizeof(size_options) / sizeof(size_options[0]); i++) {
    size_t length = strlen(size_options[i].name), value;
    if (strncmp(at, size_options[i].name, length) != 0) continue;
    (void)parse_size(at + length, &value);
    memcpy((char *)&w.desc + size_options[i].offset, &value, sizeof(value));
  }
  if (!strncmp(at, "cap:", 4)) (void)parse_size(at + 4, &o->capacity);
  if (!strncmp(at, "oom:", 4)) w.oom_slot = at[4];
  if (!strncmp(at, "ask:", 4)) w.asked = at + 4;
  if (!strncmp(at, "limited ", 8)) o->is_limited = 1;
  if (!strncmp(at, "kept", 4)) o->is_kept = 1;
  if (!strncmp(at, "apart", 5)) o->is_apart = 1;
  if (!strncmp(at, "pool", 4)) o->has_pool = 1;
  if (!strncmp(at, "limited-pool", 12)) o->has_pool = o->has_limited_pool = 1;
  if (!strncmp(at, "created", 7)) o->is_created = 1;
  if (!strncmp(at, "wait-first", 10)) w.desc.cross_stream = GMLAKE_WAIT_FIRST;
  if (!strncmp(at, "wait-soon", 9)) w.desc.cross_stream = GMLAKE_WAIT_IF_SOON;
  if (!strncmp(at, "single", 6)) w.desc.flags |= GMLAKE_SINGLE_THREADED;
  if (!strncmp(at, "guard", 5)) w.desc.flags |= GMLAKE_GUARD;
  if (!strncmp(at, "fill", 4)) w.desc.flags |= GMLAKE_FILL;
  if (!strncmp(at, "shared", 6)) w.desc.handle_types = GMLAKE_HANDLE_POSIX_FD;
  if (!strncmp(at, "peers", 5)) {
    w.desc.peer_devices = peers;
    w.desc.peer_count = 2;
  }
}

static void parse_options(const char *at, options *o) {
  while (*at) {
    parse_option(at, o);
    at += strcspn(at, " ");
    at += strspn(at, " ");
  }
}

static void open_mock(const options *o) {
  gmlake_mock_desc desc;
  int i;
  memset(&desc, 0, sizeof(desc));
  desc.capacity_bytes = o->capacity * (o->is_limited || o->is_kept || o->has_limited_pool ? 2 : 1);
  desc.granularity_bytes = UNIT;
  CHECK(gmlake_mock_create(&desc, &w.mock) == GMLAKE_OK);
  watch_mock();
  for (i = 0; i < STREAMS; i++) note_forgotten(i);
  for (i = !o->is_created; i < STREAMS; i++)
    CHECK(gmlake_mock_stream_create(w.mock, &w.streams[i]) == GMLAKE_OK);
}

/* What is left on the mock is what failing calls explain, of those counted since. */
static void expect_explained(void) {
  gmlake_mock_census left = census();
  CHECK(w.host_bytes == 0);
  CHECK(left.handle_count == w.failed[RELEASE]);
  CHECK(left.mapping_count == 0 || w.failed[UNMAP]);
  CHECK(left.reservation_count >= w.failed[UNRESERVE]); /* none is tried with mappings in it */
  CHECK(left.reservation_count <= w.failed[UNRESERVE] + w.failed[UNMAP]);
  CHECK(left.physical_bytes == 0 || left.handle_count || left.mapping_count);
  CHECK(left.event_count == w.failed[EVENT_DESTROY]);
}

/* Returns whether there is a lake. A create that failed once works the next time. */
static int create_lake(void) {
  gmlake_result result;
  for (;;) {
    uint64_t hits = w.now.hits;
    w.driver_calls = 0;
    memset(w.failed, 0, sizeof(w.failed));
    w.errors_told = 0;
    w.lake = NULL;
    result = gmlake_create(&w.desc, &w.lake);
    CHECK((w.lake != NULL) == !result);
    if (!result) return 1;
    CHECK(w.now.hits > hits);
    CHECK(result == answer_to(w.fault.result));
    expect_explained();
    if (w.failed[RELEASE] + w.failed[UNMAP] + w.failed[UNRESERVE]) return 0;
    if (w.fault.stays) w.is_over = 1;
  }
}

/* What sleeps still is woken. */
static void wake_all(void) {
  static const char *const steps[POOLS] = {"w0", "w1", "w2"};
  action a;
  int i;
  for (i = 0; i < POOLS; i++) {
    if ((i != BASE_POOL && !w.pools[i]) || !is_asleep(w.pools[i])) continue;
    w.step = steps[i];
    (void)parse_action(steps[i], &a);
    play_call(&a, NULL);
  }
}

/* The lake serves again: at once, or where memory is used up when a block has been freed. */
static void expect_served(void) {
  block *probe = &w.blocks[SLOTS - 1], *b = w.blocks;
  gmlake_result result;
  action a;
  wake_all();
  (void)parse_action("+=512b@0", &a);
  w.step = "(next allocation)";
  do {
    begin_call();
    result = do_alloc(&a, probe);
    (void)judge(result, is_memory(result) ? result : GMLAKE_OK);
  } while (result && w.now.hits > w.before.hits && !w.now.lost);
  if (!result || w.now.lost) return;
  while (b < probe && !(b->is_live && !b->recorded && b->pool == w.pools[BASE_POOL])) b++;
  if (b == probe) return;
  (void)parse_action("-@n", &a);
  play_call(&a, b);
  (void)parse_action("+=512b@0", &a);
  play_call(&a, probe);
  CHECK(probe->is_live || is_crippled() || w.now.lost);
}

/* And takes blocks back. */
static void expect_freed(void) {
  action a;
  size_t i;
  (void)parse_action("-@n", &a);
  w.step = "(next frees)";
  synchronise(); /* as a free on STREAM_NONE says */
  for (i = 0; i < SLOTS; i += 2)
    if (w.blocks[i].is_live) play_call(&a, &w.blocks[i]);
}

static void play_program(const options *o) {
  action a;
  (void)parse_action("P2", &a);
  if (o->has_limited_pool) a.sizes[1] = o->capacity;
  w.step = "P2";
  if (o->has_pool) play_call(&a, NULL);
  w.mark = w.now.calls;
  (void)play(w.scenario->program->steps);
  w.end = w.now.calls;
  if (!w.now.hits) return;
  if (!is_sticky(w.fault.result) && w.fault.stays) w.is_over = 1;
  if (w.now.lost) return;
  expect_served();
  expect_freed();
}

/* What is live can be freed, and everything goes back. */
static void close_lake(void) {
  uint64_t hits, silent;
  gmlake_result result, lost = w.lake->lost;
  w.step = "destroy";
  w.is_closing = 1;
  memset(w.failed, 0, sizeof(w.failed));
  hits = w.now.hits;
  silent = w.now.silent_hits;
  result = gmlake_destroy(w.lake);
  w.lake = NULL;
  hits = w.now.hits - hits;
  silent = w.now.silent_hits - silent;
  if (lost)
    CHECK(result == lost);
  else if (hits > silent && w.fault.result != GMLAKE_ERROR_OUT_OF_HOST_MEMORY)
    CHECK(result == answer_to(w.fault.result));
  else
    CHECK(result == GMLAKE_OK || (hits && result == answer_to(w.fault.result)));
  expect_explained();
  if (w.leaks_told) w.reached['D'] = 1;
}

/* Runs a scenario under a fault; what it was is left in w. */
static void run(const scenario *s, const fault *f) {
  options o;
  memset(&w, 0, sizeof(w));
  memset(&o, 0, sizeof(o));
  w.scenario = s;
  w.fault = *f;
  w.is_checked = !f->first;
  w.desc.chunk_bytes = UNIT;
  parse_options(s->variant->options, &o);
  o.capacity = 64 * w.desc.chunk_bytes;
  parse_options(s->program->options, &o);
  if (o.is_limited) w.desc.limit_bytes = o.capacity;
  if (o.is_kept) w.desc.driver_free_bytes_min = o.capacity;
  w.page_bytes = w.desc.chunk_bytes;
  if (o.is_apart) w.desc.chunk_bytes *= 2;
  open_mock(&o);
  w.desc.backend = &w.table;
  w.desc.host.malloc_fn = host_malloc;
  w.desc.host.free_fn = host_free;
  w.desc.logger.fn = on_log;
  if (w.oom_slot) w.desc.oom.fn = on_oom;
  if (w.asked) w.desc.policy = asked_policy();
  if (create_lake()) {
    play_program(&o);
    close_lake();
  }
  gmlake_mock_destroy(w.mock);
}

/* ---- All faults of a scenario, or a sample --------------------------------------------------- */

typedef struct extent { /* of a scenario's fault-free run */
  uint64_t calls, mallocs;
  uint64_t from, to; /* the calls whose pairs are tried: [from, to), empty where they are many */
} extent;

static extent run_clean(const scenario *s) {
  fault none;
  extent e;
  memset(&none, 0, sizeof(none));
  run(s, &none);
  expect_reached();
  e.calls = w.now.calls;
  e.mallocs = w.mallocs;
  e.from = w.mark + 1;
  e.to = e.calls + 1;
  if (e.to - e.from > PAIR_WINDOW) e.to = w.end + 1;
  if (e.to - e.from > PAIR_WINDOW) e.to = e.from;
  return e;
}

static void count_fault(const fault *f) {
  size_t kind = 0;
  while (fault_kinds[kind].result != f->result) kind++;
  if (f->second)
    done.pairs++;
  else if (f->stays)
    done.stays[kind]++;
  else
    done.once[kind]++;
}

/* Returns whether the second of a pair was reached. The first always is: up to it nothing differs
   from the fault-free run. */
static int run_fault(const scenario *s, const fault *f) {
  run(s, f);
  CHECK(w.now.hits > 0);
  if (f->second && w.now.hits < 2) return 0;
  count_fault(f);
  return 1;
}

static void run_singles(const scenario *s, size_t kind, uint64_t count) {
  fault f;
  memset(&f, 0, sizeof(f));
  f.result = fault_kinds[kind].result;
  for (f.first = 1; f.first <= count; f.first++) {
    for (f.stays = 0; f.stays < 2; f.stays++) (void)run_fault(s, &f);
  }
}

/* The second call is one of the run in which the first failed, so undoing fails too. */
static void run_pairs(const scenario *s, const extent *e, gmlake_result result) {
  fault f;
  memset(&f, 0, sizeof(f));
  f.result = result;
  for (f.first = e->from; f.first < e->to; f.first++) {
    f.second = f.first + 1;
    while (f.second <= f.first + PAIR_WINDOW && run_fault(s, &f)) f.second++;
  }
}

static void run_all(const scenario *s) {
  extent e = run_clean(s);
  size_t kind;
  for (kind = 0; kind < HOST_KIND; kind++) run_singles(s, kind, e.calls);
  run_singles(s, HOST_KIND, e.mallocs);
  run_pairs(s, &e, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY);
  run_pairs(s, &e, GMLAKE_ERROR_UNSUPPORTED);
}

static uint64_t random_below(uint64_t *state, uint64_t bound) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state % bound;
}

static void run_sample(const scenario *s) {
  extent e = run_clean(s);
  uint64_t state = 0x9E3779B97F4A7C15u;
  const char *c;
  int i;
  for (c = s->name; *c; c++) state = (state ^ (unsigned char)*c) * 0x100000001B3u;
  for (i = 0; i < SAMPLE; i++) {
    size_t kind = (size_t)random_below(&state, FAULT_KINDS);
    fault f;
    f.result = fault_kinds[kind].result;
    f.stays = (int)random_below(&state, 2);
    f.first = 1 + random_below(&state, kind == HOST_KIND ? e.mallocs : e.calls);
    f.second = 0;
    if (e.to > e.from && i % 3 == 0) {
      f.result = fault_kinds[kind % 2 * 2].result;
      f.stays = 0;
      f.first = e.from + random_below(&state, e.to - e.from);
      f.second = f.first + 1 + random_below(&state, PAIR_WINDOW / 4);
    }
    (void)run_fault(s, &f);
  }
}

/* ---- The program's own arguments ------------------------------------------------------------- */

#define PROGRAMS (sizeof(programs) / sizeof(programs[0]))
#define VARIANTS (sizeof(variants) / sizeof(variants[0]))

static struct {
  int is_full;
  unsigned long shard, shards;
  const char *scenario, *fault;
} wanted = {0, 0, 1, NULL, NULL};

static progress shown; /* of all faults, which take long */

static void test_scenario(void **state) {
  const scenario *s = (const scenario *)*state;
  fault f;
  if (wanted.fault) {
    is_told = 1;
    if (!parse_fault(wanted.fault, &f)) fail_msg("no such fault: %s", wanted.fault);
    run(s, &f);
    if (!f.first) expect_reached();
  } else if (wanted.is_full || wanted.scenario) {
    run_all(s);
    if (wanted.is_full) progress_step(&shown, s->name);
  } else {
    run_sample(s);
  }
}

static scenario *make_scenarios(size_t *out_count) {
  scenario *all = (scenario *)calloc(PROGRAMS * VARIANTS, sizeof(scenario));
  size_t i, v, count = 0, kept = 0;
  assert_non_null(all);
  for (i = 0; i < PROGRAMS; i++) {
    for (v = 0; v < VARIANTS; v++) {
      scenario *s = &all[kept];
      if (!strchr(programs[i].variants, variants[v].letter)) continue;
      s->program = &programs[i];
      s->variant = &variants[v];
      (void)snprintf(s->name, sizeof(s->name), "%s/%s", programs[i].name, variants[v].name);
      if (wanted.scenario ? !strcmp(s->name, wanted.scenario)
                          : count % wanted.shards == wanted.shard)
        kept++;
      count++;
    }
  }
  *out_count = kept;
  return all;
}

static void print_counts(size_t count) {
  uint64_t sum = done.pairs;
  size_t i;
  printf("%lu scenarios; faults, once and from then on:", (unsigned long)count);
  for (i = 0; i < FAULT_KINDS; i++) {
    sum += done.once[i] + done.stays[i];
    printf(" %s %llu + %llu,", fault_kinds[i].name, (unsigned long long)done.once[i],
           (unsigned long long)done.stays[i]);
  }
  printf(" pairs %llu; all %llu\ncalls made to fail:", (unsigned long long)done.pairs,
         (unsigned long long)sum);
  for (i = 0; i < CALLS; i++) printf(" %s %llu", call_names[i], (unsigned long long)done.hits[i]);
  printf("\n");
}

static void parse_arguments(int argc, char **argv) {
  const char *shard = NULL;
  const option_row rows[] = {
      {"full", OPTION_FLAG, &wanted.is_full, 0, 0, NULL, "all faults, not a sample: minutes"},
      {"shard", OPTION_TEXT, &shard, 0, 0, "I/N", "of N parts of the scenarios part I, from 0"},
      {"scenario", OPTION_TEXT, &wanted.scenario, 0, 0, "NAME", "this one with all faults"},
      {"fault", OPTION_TEXT, &wanted.fault, 0, 0, "FAULT",
       "this one alone: oom@17 (call 17), lost@17+ (from it on), oom@17,23\n"
       "(both), host@3 (host allocation 3), none"},
  };
  const option_reader reader = {
      "test_exhaustive", "[OPTION]...", "", "", rows, sizeof(rows) / sizeof(rows[0])};
  int end = 0;
  options_alone(&reader, argc, argv);
  if (shard && (sscanf(shard, "%lu/%lu%n", &wanted.shard, &wanted.shards, &end) != 2 ||
                shard[end] || wanted.shard >= wanted.shards))
    options_wrong(&reader, "shard", "I/N with I below N", shard);
}

/* Without cmocka's lines of what passes: the progress says more. What fails it tells on standard
   error. */
static int run_quietly(const struct CMUnitTest *tests, size_t count) {
  const int nowhere = open("/dev/null", O_WRONLY), kept = dup(STDOUT_FILENO);
  int failed;
  (void)fflush(stdout);
  (void)dup2(nowhere, STDOUT_FILENO);
  failed = _cmocka_run_group_tests("exhaustive", tests, count, NULL, NULL);
  progress_clear();
  (void)fflush(stdout);
  (void)dup2(kept, STDOUT_FILENO);
  (void)close(nowhere);
  (void)close(kept);
  printf("%lu scenarios passed, %d failed\n", (unsigned long)(count - (size_t)failed), failed);
  return failed;
}

int main(int argc, char **argv) {
  struct CMUnitTest *tests;
  scenario *all;
  size_t count, i;
  int failed;
  parse_arguments(argc, argv);
  all = make_scenarios(&count);
  tests = (struct CMUnitTest *)calloc(count + 1, sizeof(*tests));
  assert_non_null(tests);
  for (i = 0; i < count; i++) {
    tests[i].name = all[i].name;
    tests[i].test_func = test_scenario;
    tests[i].initial_state = &all[i];
  }
  progress_open(&shown, count);
  failed = wanted.is_full ? run_quietly(tests, count)
                          : _cmocka_run_group_tests("exhaustive", tests, count, NULL, NULL);
  print_counts(count);
  free(tests);
  free(all);
  return failed || !count;
}
