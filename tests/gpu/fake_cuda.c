/* libcuda.so.1 without a device: see fake_cuda.h for what it is for. One mock of gmlake.h serves
   all devices, so that an event of one device can be waited for on another and a mapping can be
   reached from several; what belongs to which device, contexts, captures and work are kept here.
   Everything runs under one lock.

   [F1] A handle's device and its references stand at the place of the mock's handle, in
        fake.handles: the mock knows how long its memory is there, and what is mapped where.
   [F2] Of the mock's devices n + 1 is our device n, and FAKE_COPIES is whoever copies what
        cuMemAlloc made, on whichever device. Number 0 has access wherever another one has.
   [F3] Pending work is kept in order of launch and looked through in that order. What a piece of
        work depends on was launched before it, so effects follow every dependency.
   [F4] Captures never reach the mock: its streams are not capturing, so that the fake alone says
        which call a capture forbids.
   [F5] No exported function is called or named in here: another library's function of that name
        may be what the dynamic linker would bind it to.

   Where the fake's own host memory runs out, the program ends. What the mock refuses is told. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_STATIC
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fake_cuda.h"

#include "bench/offload/standin_c.h"

#define FAKE_VERSION 12080
#define FAKE_DEVICES_MAX 8
#define FAKE_COPIES (FAKE_DEVICES_MAX + 1) /* [F2] */
#define FAKE_STACK_MAX 64
#define FAKE_MEMBERS_MAX 8 /* streams of one capture */
#define FAKE_USERS_MAX 8   /* that one graph keeps */
#define FAKE_BUCKETS 4096
#define FAKE_VALUE_MIN ((uint64_t)1 << 40) /* above the values of the mock's streams */
#define FAKE_STEP_NS 1000                  /* of the clock, at each call, on average */
#define FAKE_QUERIES_MAX 500u              /* questions for events under way, then one completes */
#define FAKE_LAG_NS 64000                  /* of a piece of work, at most */

/* ---- State ---------------------------------------------------------------------------------- */

typedef enum fake_kind {
  FAKE_STREAM,
  FAKE_EVENT,
  FAKE_MODULE, /* its functions' values follow the module's */
  FAKE_GRAPH,
  FAKE_EXEC,
  FAKE_ALLOCATION,
  FAKE_HOST, /* pinned */
  FAKE_KINDS
} fake_kind;

typedef struct fake_object { /* first member of all that a caller knows by a value */
  struct fake_object *next;  /* in its bucket */
  uint64_t value;
  fake_kind kind;
  int device;
  uint64_t context; /* serial number of the one it belongs to; 0: to none */
} fake_object;

typedef enum fake_work_kind { /* in the order of fake_deeds */
                              FAKE_FILL,
                              FAKE_VERIFY,
                              FAKE_SPIN,
                              FAKE_COPY,
                              FAKE_STANDIN_READ,
                              FAKE_STANDIN_WRITE,
                              FAKE_EXPERTS,
                              FAKE_KERNELS, /* no work: those before are kernels */
                              FAKE_MEMSET,
                              FAKE_MEMSET8,
                              FAKE_MEMCPY,
                              FAKE_FREE,
                              FAKE_DEEDS
} fake_work_kind;

typedef struct fake_work {
  fake_work_kind kind;
  int device;
  uint64_t to, from, wrong; /* addresses */
  uint64_t count;           /* of items; [spin] nanoseconds */
  uint64_t seed;            /* [memset] the word; [memset8] the byte */
  /* of stand-ins alone */
  standin_item items[STANDIN_ITEMS];
  uint32_t item_count, first;
  uint64_t slot, clear, ns, iteration, seen, total;
  uint64_t stride, table, numbers, rows, pitch; /* these and the next one: of experts alone */
  uint32_t classes;
} fake_work;

typedef struct fake_pending {
  struct fake_pending *next;
  void *event; /* the mock's: recorded behind the work */
  fake_work work;
} fake_pending;

typedef struct fake_user { /* what a graph keeps for its program */
  CUhostFn destroy;
  void *user;
  unsigned references; /* of the program and of graphs */
} fake_user;

typedef struct fake_graph { /* a graph or an executable one */
  fake_object object;
  fake_user *users[FAKE_USERS_MAX]; /* one reference each */
  size_t user_count;
  fake_work *nodes;
  size_t count, capacity;
  void *last; /* [exec] the mock's event behind the last launch; NULL: none */
} fake_graph;

typedef struct fake_thread {
  uint64_t epoch; /* of the state it belongs to */
  int mode;       /* of captures */
  size_t depth;
  CUcontext stack[FAKE_STACK_MAX];
} fake_thread;

/* Which of a capture's work precedes a point: so many pieces of each member's. */
typedef struct fake_seen {
  size_t count[FAKE_MEMBERS_MAX];
} fake_seen;

typedef struct fake_capture {
  struct fake_capture *next;
  uint64_t number;
  int mode, invalid;
  const fake_thread *thread; /* that began it */
  fake_graph *graph;
  struct fake_stream *members[FAKE_MEMBERS_MAX]; /* the origin first; NULL: destroyed */
  size_t member_count;
  fake_seen launched;
} fake_capture;

typedef struct fake_stream {
  fake_object object;
  struct fake_stream *next; /* of the device */
  gmlake_stream queue;      /* the mock's; also the value */
  uint64_t id;
  int is_legacy, is_blocking;
  fake_capture *capture; /* NULL: it is not being captured */
  size_t member;         /* [captured] */
  fake_seen seen;        /* [captured] what its next work comes after */
} fake_stream;

typedef struct fake_event {
  fake_object object;
  void *mock;
  int is_recorded, is_timed;
  uint64_t record;  /* the number of its last record, of all */
  uint64_t capture; /* number of the capture it was last recorded in; 0: in none */
  fake_seen seen;   /* [captured] */
} fake_event;

typedef struct fake_handle { /* [F1] */
  int device, is_backing;    /* is_backing: it is an allocation's */
  size_t references;
  unsigned types; /* that it may be exported as */
} fake_handle;

typedef struct fake_allocation {
  fake_object object; /* the value is the address */
  size_t bytes;
  int is_freed; /* a free is queued */
} fake_allocation;

typedef struct fake_host {
  fake_object object; /* the value is the address */
  struct fake_host *next;
  size_t bytes;
  int is_registered; /* it is the caller's own memory */
} fake_host;

typedef struct fake_device {
  CUresult lost;    /* sticky error of the context; CUDA_SUCCESS: it lives */
  size_t retains;   /* of the primary context, whose value is this struct's address */
  uint64_t context; /* its serial number */
  unsigned peers;   /* a bit for each device whose memory its context may reach */
  fake_stream legacy;
  fake_stream *streams;
} fake_device;

typedef struct fake_failure {
  char name[64]; /* "": any call */
  uint64_t nth;  /* calls until it fails; 0: none */
  CUresult code;
  int is_persistent;
} fake_failure;

static struct fake_state {
  uint64_t epoch; /* 0: never started; never comes back */
  fake_cuda_options options;
  gmlake_backend *mock; /* NULL: the host refused it */
  long process;         /* the one that called cuInit; 0: none has */
  fake_device devices[FAKE_DEVICES_MAX];
  fake_object *buckets[FAKE_BUCKETS];
  fake_handle *handles; /* [F1] */
  size_t handle_capacity;
  fake_host *hosts;
  fake_pending *pending, **pending_end;
  fake_capture *captures;
  uint64_t clock_ns, random, calls, next_serial;
  uint64_t next_value; /* never starts again, so that a stale value is never another's */
  fake_failure failure;
  const char *failed;
  CUmemAllocationProp last_create;
  size_t last_alignment;
  uint64_t record_count; /* of events */
  unsigned vain_queries; /* of events, in a row */
} fake;

static pthread_mutex_t fake_mutex = PTHREAD_MUTEX_INITIALIZER;
static __thread fake_thread fake_threads_own;

/* One call of the mock: the driver's number. What the host refuses is memory to a driver too. */
#define FAKE_MOCK(call, ...) \
  (fake_result = fake.mock->call(fake.mock->user, __VA_ARGS__, &fake_result_code), fake_mock_code())
static gmlake_result fake_result; /* of the last one, and its number */
static int fake_result_code;

static CUresult fake_mock_code(void) {
  if (fake_result == GMLAKE_ERROR_OUT_OF_HOST_MEMORY) return CUDA_ERROR_OUT_OF_MEMORY;
  return (CUresult)fake_result_code;
}

static fake_thread *fake_self(void) {
  fake_thread *self = &fake_threads_own;
  if (self->epoch != fake.epoch) {
    memset(self, 0, sizeof(*self));
    self->epoch = fake.epoch;
  }
  return self;
}

/* Below the limit. */
static uint64_t fake_random(uint64_t limit) {
  fake.random ^= fake.random << 13;
  fake.random ^= fake.random >> 7;
  fake.random ^= fake.random << 17;
  return fake.random % limit;
}

/* ---- Host memory ----------------------------------------------------------------------------- */

static void *fake_zeroed(size_t count, size_t bytes) {
  void *ptr = calloc(count, bytes);
  if (!ptr) abort();
  return ptr;
}

/* The array with room for one more. */
static void *fake_room(void *items, size_t count, size_t *capacity, size_t bytes) {
  if (count < *capacity) return items;
  *capacity = *capacity * 2 + 8;
  items = realloc(items, *capacity * bytes);
  if (!items) abort();
  return items;
}

/* ---- Objects -------------------------------------------------------------------------------- */

static fake_object **fake_bucket(uint64_t value) {
  return &fake.buckets[(value * 0x9E3779B97F4A7C15u) >> 52];
}

static void fake_insert(fake_object *object) {
  fake_object **bucket = fake_bucket(object->value);
  object->next = *bucket;
  *bucket = object;
}

/* One that no other object has had. */
static uint64_t fake_new_value(void) { return FAKE_VALUE_MIN + (fake.next_value += 16); }

/* Zero but for its head. Value 0: a new one. */
static void *fake_add(size_t bytes, fake_kind kind, uint64_t value, int device) {
  fake_object *object = (fake_object *)fake_zeroed(1, bytes);
  object->value = value ? value : fake_new_value();
  object->kind = kind;
  object->device = device;
  if (kind <= FAKE_MODULE) object->context = fake.devices[device].context;
  fake_insert(object);
  return object;
}

static void fake_remove(fake_object *object) {
  fake_object **link = fake_bucket(object->value);
  while (*link != object) link = &(*link)->next;
  *link = object->next;
}

/* NULL: there is none, or its context is gone. */
static void *fake_find(fake_kind kind, uint64_t value) {
  fake_object *object = *fake_bucket(value);
  while (object && (object->value != value || object->kind != kind)) object = object->next;
  if (object && object->context && object->context != fake.devices[object->device].context)
    return NULL;
  return object;
}

static int fake_device_exists(int device) {
  return device >= 0 && device < fake.options.device_count;
}

/* ---- Handles --------------------------------------------------------------------------------- */

static gmlk_mock *fake_inside(void) { return (gmlk_mock *)fake.mock->user; }

static gmlk_mock_handle *fake_mock_handle(uint64_t value) {
  return (gmlk_mock_handle *)gmlk_mock_find(&fake_inside()->handles, value);
}

/* NULL: there is none, or all references to it have been released. */
static fake_handle *fake_find_handle(uint64_t value) {
  const gmlk_mock_handle *handle = fake_mock_handle(value);
  return handle ? &fake.handles[handle->slot.index] : NULL;
}

/* The one that is mapped at the address; NULL: nothing is. */
static gmlk_mock_handle *fake_mapped_at(uint64_t address) {
  const gmlk_mock_run run = gmlk_mock_find_run(fake_inside(), address, 1);
  return run.count ? gmlk_mock_handle_of(fake_inside(), run.first) : NULL;
}

/* Of a device's handles, also of those that are released and mapped. */
static size_t fake_physical_bytes(int device) {
  const gmlk_mock_table *table = &fake_inside()->handles;
  size_t bytes = 0, i;
  for (i = 0; i < table->count; i++) {
    const gmlk_mock_handle *handle = (const gmlk_mock_handle *)gmlk_mock_at(table, i);
    if (handle->slot.live && !handle->is_foreign && fake.handles[i].device == device)
      bytes += handle->bytes;
  }
  return bytes;
}

/* A handle that the mock has made. */
static fake_handle *fake_add_handle(uint64_t value, int device) {
  const size_t at = fake_mock_handle(value)->slot.index;
  fake_handle added = {0, 0, 1, 0};
  fake.handles = (fake_handle *)fake_room(fake.handles, at, &fake.handle_capacity, sizeof(added));
  added.device = device;
  fake.handles[at] = added;
  return &fake.handles[at];
}

static CUresult fake_create(int device, size_t bytes, unsigned types, uint64_t *out_value) {
  CUresult code;
  if (bytes > fake.options.device_bytes - fake_physical_bytes(device))
    return CUDA_ERROR_OUT_OF_MEMORY;
  code = FAKE_MOCK(create, bytes, types ? GMLAKE_HANDLE_POSIX_FD : 0, out_value);
  if (!code) fake_add_handle(*out_value, device)->types = types;
  return code;
}

/* Whether the range is pinned, which every device reaches. */
static int fake_is_pinned(uint64_t address, uint64_t bytes) {
  const fake_host *host = fake.hosts;
  while (host && (address < host->object.value || address - host->object.value > host->bytes ||
                  bytes > host->bytes - (address - host->object.value)))
    host = host->next;
  return host != NULL;
}

/* Whether the device may use the range. What cuMemAlloc made is reached by copies from every
   device. */
static CUresult fake_reach(const fake_work *work, uint64_t address, uint64_t bytes,
                           unsigned alignment) {
  const gmlk_mock *mock = fake_inside();
  if (address % alignment) return CUDA_ERROR_MISALIGNED_ADDRESS;
  if (!bytes || fake_is_pinned(address, bytes) ||
      gmlk_mock_reaches(mock, address, bytes, work->device + 1) ||
      (work->kind > FAKE_KERNELS && gmlk_mock_reaches(mock, address, bytes, FAKE_COPIES)))
    return CUDA_SUCCESS;
  return CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* ---- Allocations ---------------------------------------------------------------------------- */

/* What the handle has at new addresses, for the device. */
static CUresult fake_back(uint64_t handle, size_t bytes, int device, uint64_t *out_address) {
  const int reach[] = {device + 1, FAKE_COPIES};
  CUresult code = FAKE_MOCK(reserve, bytes, fake.options.granularity_bytes, out_address);
  if (code) return code;
  code = FAKE_MOCK(map, *out_address, bytes, handle);
  if (!code) {
    code = FAKE_MOCK(set_access, *out_address, bytes, reach, 2);
    if (code) (void)FAKE_MOCK(unmap, *out_address, bytes);
  }
  if (code) (void)FAKE_MOCK(unreserve, *out_address, bytes);
  return code;
}

/* Takes whole granules, whatever is asked for. */
static CUresult fake_allocate(int device, size_t bytes, CUdeviceptr *out_address) {
  fake_allocation *allocation;
  uint64_t handle, address;
  CUresult code;
  if (!gmlk_size_round_up(bytes, fake.options.granularity_bytes, &bytes))
    return CUDA_ERROR_OUT_OF_MEMORY;
  code = fake_create(device, bytes, 0, &handle);
  if (code) return code;
  fake_find_handle(handle)->is_backing = 1;
  code = fake_back(handle, bytes, device, &address);
  (void)FAKE_MOCK(release, handle); /* its memory stays as long as it is mapped */
  if (code) return code;
  allocation = (fake_allocation *)fake_add(sizeof(*allocation), FAKE_ALLOCATION, address, device);
  allocation->bytes = bytes;
  *out_address = address;
  return CUDA_SUCCESS;
}

static void fake_deallocate(fake_allocation *allocation) {
  (void)FAKE_MOCK(unmap, allocation->object.value, allocation->bytes);
  (void)FAKE_MOCK(unreserve, allocation->object.value, allocation->bytes);
  fake_remove(&allocation->object);
  free(allocation);
}

/* ---- Work ----------------------------------------------------------------------------------- */

static void *fake_ptr(uint64_t address) { return (void *)(uintptr_t)address; }

static CUresult fake_run_fill(const fake_work *work) {
  uint32_t *words = (uint32_t *)fake_ptr(work->to);
  uint64_t i;
  for (i = 0; i < work->count; i++) words[i] = (uint32_t)i * 2654435761u + (uint32_t)work->seed;
  return CUDA_SUCCESS;
}

static CUresult fake_run_verify(const fake_work *work) {
  const uint32_t *words = (const uint32_t *)fake_ptr(work->from);
  uint64_t i, wrong = 0;
  CUresult code;
  for (i = 0; i < work->count; i++)
    wrong += words[i] != (uint32_t)i * 2654435761u + (uint32_t)work->seed;
  if (!wrong) return CUDA_SUCCESS;
  code = fake_reach(work, work->wrong, 8, 8);
  if (!code) *(uint64_t *)fake_ptr(work->wrong) += wrong;
  return code;
}

static CUresult fake_run_standin_read(const fake_work *work) {
  uint64_t *slot = (uint64_t *)fake_ptr(work->slot);
  uint32_t i;
  for (i = 0; i < work->item_count; i++) *slot += standin_read(&work->items[i], work->seed, i);
  return CUDA_SUCCESS;
}

static CUresult fake_run_standin_write(const fake_work *work) {
  const uint64_t digest = standin_mix(*(uint64_t *)fake_ptr(work->slot) + work->seed);
  uint64_t *seen = (uint64_t *)fake_ptr(work->seen);
  uint32_t i;
  for (i = 0; i < work->item_count; i++) standin_write(&work->items[i], digest, i);
  if (work->clear) memset(fake_ptr(work->clear), 0, 16);
  if (!work->seen) return CUDA_SUCCESS;
  if (work->first) {
    *seen = digest;
    *(uint64_t *)fake_ptr(work->total) += standin_mix(digest + work->iteration);
  } else if (*seen != digest) {
    ++*(uint64_t *)fake_ptr(work->wrong);
  }
  return CUDA_SUCCESS;
}

/* Where the row lies whose number is the index-th one. */
static uint64_t fake_expert(const fake_work *work, uint64_t index, uint32_t *out_number) {
  const uint32_t *table = (const uint32_t *)fake_ptr(work->table);
  uint32_t place;
  *out_number = ((const uint32_t *)fake_ptr(work->numbers))[index];
  place = work->table ? table[*out_number] : *out_number;
  return work->from + place * work->stride + place % work->classes * work->pitch;
}

/* A row is right if its first word is, and each word is as the one before. */
static CUresult fake_run_experts(const fake_work *work) {
  uint64_t i;
  for (i = 0; i < work->rows; i++) {
    uint32_t number;
    const char *row = (const char *)fake_ptr(fake_expert(work, i, &number));
    if (*(const uint32_t *)row != number + (uint32_t)work->seed ||
        memcmp(row, row + 4, work->count - 4) != 0)
      ++*(uint32_t *)fake_ptr(work->wrong);
  }
  return CUDA_SUCCESS;
}

static CUresult fake_run_memset(const fake_work *work) {
  uint32_t *words = (uint32_t *)fake_ptr(work->to);
  uint64_t i;
  for (i = 0; i < work->count; i++) words[i] = (uint32_t)work->seed;
  return CUDA_SUCCESS;
}

static CUresult fake_run_memset8(const fake_work *work) {
  memset(fake_ptr(work->to), (int)work->seed, (size_t)work->count);
  return CUDA_SUCCESS;
}

static CUresult fake_run_copy(const fake_work *work) {
  memmove(fake_ptr(work->to), fake_ptr(work->from),
          (size_t)(work->count * (work->kind == FAKE_COPY ? 16 : 1)));
  return CUDA_SUCCESS;
}

typedef struct fake_param { /* where it goes, and how many bytes */
  size_t at, bytes;
} fake_param;
#define FAKE_PARAM(field) \
  { offsetof(fake_work, field), sizeof(((fake_work *)NULL)->field) }
#define FAKE_SEED \
  { offsetof(fake_work, seed), 4 }

static const struct fake_deed {
  const char *kernel; /* its name, NULL: it is none */
  unsigned item;      /* bytes and alignment of an item, 0: it touches nothing, or is a stand-in */
  int reads, writes;  /* items from `from`, to `to` */
  CUresult (*run)(const fake_work *work); /* NULL: nothing is to be done */
  fake_param params[11];                  /* of the kernel */
} fake_deeds[FAKE_DEEDS] = {
    {"fill", 4, 0, 1, fake_run_fill, {FAKE_PARAM(to), FAKE_PARAM(count), FAKE_SEED}},
    {"verify",
     4,
     1,
     0,
     fake_run_verify,
     {FAKE_PARAM(from), FAKE_PARAM(count), FAKE_SEED, FAKE_PARAM(wrong)}},
    {"spin", 0, 0, 0, NULL, {FAKE_PARAM(count)}},
    {"copy", 16, 1, 1, fake_run_copy, {FAKE_PARAM(to), FAKE_PARAM(from), FAKE_PARAM(count)}},
    {"standin_read",
     0,
     0,
     0,
     fake_run_standin_read,
     {FAKE_PARAM(items), FAKE_PARAM(item_count), FAKE_PARAM(slot), FAKE_PARAM(seed)}},
    {"standin_write",
     0,
     0,
     0,
     fake_run_standin_write,
     {FAKE_PARAM(items), FAKE_PARAM(item_count), FAKE_PARAM(first), FAKE_PARAM(slot),
      FAKE_PARAM(clear), FAKE_PARAM(seed), FAKE_PARAM(ns), FAKE_PARAM(iteration), FAKE_PARAM(seen),
      FAKE_PARAM(total), FAKE_PARAM(wrong)}},
    {"experts",
     0,
     0,
     0,
     fake_run_experts,
     {FAKE_PARAM(from), FAKE_PARAM(stride), FAKE_PARAM(count), FAKE_PARAM(table),
      FAKE_PARAM(numbers), FAKE_SEED, FAKE_PARAM(wrong), FAKE_PARAM(pitch), FAKE_PARAM(classes)}},
    {NULL, 0, 0, 0, NULL, {{0, 0}}},
    {NULL, 4, 0, 1, fake_run_memset, {{0, 0}}},
    {NULL, 1, 0, 1, fake_run_memset8, {{0, 0}}},
    {NULL, 1, 1, 1, fake_run_copy, {{0, 0}}},
    {NULL, 0, 0, 0, NULL, {{0, 0}}}};

static int fake_is_standin(const fake_work *work) {
  return work->kind == FAKE_STANDIN_READ || work->kind == FAKE_STANDIN_WRITE;
}

static CUresult fake_check_standin(const fake_work *work) {
  const uint64_t words[] = {work->slot, work->clear, work->seen, work->total, work->wrong};
  CUresult code = work->slot ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
  uint32_t i;
  for (i = 0; !code && i < 5; i++) /* the first two are pairs */
    if (words[i]) code = fake_reach(work, words[i], i < 2 ? 16 : 8, 8);
  for (i = 0; !code && i < work->item_count; i++) {
    const uint64_t extent = standin_extent(&work->items[i]);
    if (extent) code = fake_reach(work, work->items[i].ptr, extent, 16);
  }
  return code;
}

static CUresult fake_check_experts(const fake_work *work) {
  CUresult code = fake_reach(work, work->numbers, work->rows * 4, 4);
  uint64_t i;
  for (i = 0; !code && !fake.options.bookkeeping_only && i < work->rows; i++) {
    uint32_t number = ((const uint32_t *)fake_ptr(work->numbers))[i];
    if (work->table) code = fake_reach(work, work->table + number * 4ull, 4, 4);
    if (!code) code = fake_reach(work, fake_expert(work, i, &number), work->count, 16);
  }
  return code ? code : fake_reach(work, work->wrong, 4, 4);
}

/* What the work would answer if it ran now. */
static CUresult fake_check_work(const fake_work *work) {
  const struct fake_deed *deed = &fake_deeds[work->kind];
  const uint64_t bytes = work->count * deed->item;
  CUresult code = CUDA_SUCCESS;
  if (fake_is_standin(work)) return fake_check_standin(work);
  if (work->kind == FAKE_EXPERTS) return fake_check_experts(work);
  if (!deed->item || !work->count) return CUDA_SUCCESS;
  if (work->count > UINT64_MAX / deed->item) return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (deed->reads) code = fake_reach(work, work->from, bytes, deed->item);
  if (!code && deed->writes) code = fake_reach(work, work->to, bytes, deed->item);
  return code;
}

static CUresult fake_do_reached(const fake_work *work) {
  const struct fake_deed *deed = &fake_deeds[work->kind];
  return fake.options.bookkeeping_only || !deed->run ? CUDA_SUCCESS : deed->run(work);
}

/* On a device that is lost nothing runs, but memory whose free is queued is given back. */
static void fake_do(const fake_work *work) {
  fake_device *device = &fake.devices[work->device];
  if (work->kind == FAKE_FREE) {
    fake_deallocate((fake_allocation *)fake_find(FAKE_ALLOCATION, work->to));
    return;
  }
  if (!device->lost) device->lost = fake_check_work(work);
  if (!device->lost) device->lost = fake_do_reached(work);
}

static int fake_is_done(void *event) {
  int done = 0;
  (void)FAKE_MOCK(event_query, event, &done);
  return done;
}

/* [F3] All that is complete takes effect. */
static void fake_run(void) {
  fake_pending **link = &fake.pending;
  while (*link) {
    fake_pending *pending = *link;
    if (!fake_is_done(pending->event)) {
      link = &pending->next;
      continue;
    }
    *link = pending->next;
    fake_do(&pending->work);
    (void)FAKE_MOCK(event_destroy, pending->event);
    free(pending);
  }
  fake.pending_end = link;
}

/* ---- Streams -------------------------------------------------------------------------------- */

static fake_device *fake_device_of(const fake_stream *stream) {
  return &fake.devices[stream->object.device];
}

/* A new event of the mock, recorded behind what is queued on the stream. */
static void *fake_mark(const fake_stream *stream) {
  void *event;
  if (FAKE_MOCK(event_create, &event) || FAKE_MOCK(event_record, event, stream->queue)) abort();
  return event;
}

/* What is queued on the stream from now on comes after what is queued on the other. */
static void fake_follow(const fake_stream *stream, const fake_stream *other) {
  void *event = fake_mark(other);
  (void)FAKE_MOCK(stream_wait, stream->queue, event);
  (void)FAKE_MOCK(event_destroy, event);
}

/* The legacy stream comes after all blocking streams of its device, and they after it. */
static void fake_order(const fake_stream *stream) {
  const fake_device *device = fake_device_of(stream);
  const fake_stream *other;
  if (stream->is_legacy) {
    for (other = device->streams; other; other = other->next)
      if (other->is_blocking) fake_follow(stream, other);
  } else if (stream->is_blocking) {
    fake_follow(stream, &device->legacy);
  }
}

/* A quarter of the work takes no time, a quarter a few calls, the rest some dozen calls. */
static uint64_t fake_lag(const fake_work *work) {
  const uint64_t least = work->kind == FAKE_SPIN            ? work->count
                         : work->kind == FAKE_STANDIN_WRITE ? work->ns
                                                            : 0;
  uint64_t lag = 0;
  if (fake.options.seed) {
    const uint64_t class = fake_random(4);
    if (class == 1) lag = fake_random(4 * FAKE_STEP_NS);
    if (class > 1) lag = fake_random(FAKE_LAG_NS);
  }
  return lag > UINT64_MAX - 1 - least ? UINT64_MAX - 1 : least + lag;
}

/* Work on a stream, whatever captures and contexts say. */
static void fake_launch(const fake_stream *stream, const fake_work *work) {
  fake_pending *pending = (fake_pending *)fake_zeroed(1, sizeof(*pending));
  gmlake_mock_stream_set_lag(fake.mock, stream->queue, fake_lag(work));
  pending->event = fake_mark(stream);
  gmlake_mock_stream_set_lag(fake.mock, stream->queue, 0);
  pending->work = *work;
  *fake.pending_end = pending;
  fake.pending_end = &pending->next;
}

/* The host waits for the mock's event, and what that completes takes effect. */
static void fake_wait(void *event) {
  (void)FAKE_MOCK(event_wait, event);
  fake_run();
}

/* The host waits for what is queued on the stream. */
static CUresult fake_finish(const fake_stream *stream) {
  void *event = fake_mark(stream);
  fake_wait(event);
  (void)FAKE_MOCK(event_destroy, event);
  return fake_device_of(stream)->lost;
}

/* The same for all of a device, streams that are destroyed included. */
static CUresult fake_finish_device(fake_device *device) {
  const fake_stream *stream;
  const fake_pending *pending;
  CUresult code = fake_finish(&device->legacy);
  for (stream = device->streams; stream; stream = stream->next) {
    const CUresult next = fake_finish(stream);
    if (!code) code = next;
  }
  for (pending = fake.pending; pending; pending = pending->next)
    if (&fake.devices[pending->work.device] == device) (void)FAKE_MOCK(event_wait, pending->event);
  fake_run();
  return code ? code : device->lost;
}

/* ---- Captures ------------------------------------------------------------------------------- */

static fake_capture *fake_find_capture(uint64_t number) {
  fake_capture *capture = fake.captures;
  while (capture && capture->number != number) capture = capture->next;
  return capture;
}

/* Whether a capture forbids this thread to look for finished work and the like. */
static int fake_forbids(const fake_capture *capture) {
  const fake_thread *self = fake_self();
  const int is_own = capture->thread == self;
  if (self->mode == 2) return 0;
  if (self->mode == 1) return is_own && capture->mode != 2;
  return capture->mode == 0 || (is_own && capture->mode == 1);
}

/* For calls that are unsafe during a capture: those concerned are spoilt. */
static CUresult fake_check_unsafe(void) {
  fake_capture *capture;
  CUresult code = CUDA_SUCCESS;
  for (capture = fake.captures; capture; capture = capture->next) {
    if (!fake_forbids(capture)) continue;
    capture->invalid = 1;
    code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return code;
}

/* The legacy stream would depend on blocking streams that are being captured. */
static CUresult fake_check_implicit(const fake_stream *stream) {
  const fake_stream *other;
  CUresult code = CUDA_SUCCESS;
  if (!stream->is_legacy) return CUDA_SUCCESS;
  for (other = fake_device_of(stream)->streams; other; other = other->next) {
    if (!other->is_blocking || !other->capture) continue;
    other->capture->invalid = 1;
    code = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return code;
}

static CUresult fake_spoil(fake_capture *capture, CUresult code) {
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  capture->invalid = 1;
  return code;
}

static void fake_append(fake_graph *graph, const fake_work *work) {
  graph->nodes =
      (fake_work *)fake_room(graph->nodes, graph->count, &graph->capacity, sizeof(*work));
  graph->nodes[graph->count++] = *work;
}

static CUresult fake_capture_work(fake_stream *stream, const fake_work *work) {
  fake_capture *capture = stream->capture;
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (work->kind == FAKE_FREE) return fake_spoil(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  fake_append(capture->graph, work);
  stream->seen.count[stream->member] = ++capture->launched.count[stream->member];
  return CUDA_SUCCESS;
}

static CUresult fake_join(fake_capture *capture, fake_stream *stream) {
  if (capture->member_count == FAKE_MEMBERS_MAX)
    return fake_spoil(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  memset(&stream->seen, 0, sizeof(stream->seen));
  stream->capture = capture;
  stream->member = capture->member_count;
  capture->members[capture->member_count++] = stream;
  return CUDA_SUCCESS;
}

/* A wait for an event that was recorded in a capture draws the stream into it. */
static CUresult fake_wait_captured(fake_stream *stream, const fake_event *event) {
  fake_capture *capture = fake_find_capture(event->capture);
  CUresult code = CUDA_SUCCESS;
  size_t i;
  if (!capture && stream->capture)
    return fake_spoil(stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  if (!capture) return CUDA_ERROR_CAPTURED_EVENT;
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream->is_legacy) return fake_spoil(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  if (stream->capture && stream->capture != capture) {
    stream->capture->invalid = 1;
    return fake_spoil(capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  if (!stream->capture) code = fake_join(capture, stream);
  for (i = 0; !code && i < FAKE_MEMBERS_MAX; i++)
    if (stream->seen.count[i] < event->seen.count[i]) stream->seen.count[i] = event->seen.count[i];
  return code;
}

/* Whether the origin comes after all that was captured. */
static int fake_is_joined(const fake_capture *capture) {
  return !memcmp(&capture->members[0]->seen, &capture->launched, sizeof(capture->launched));
}

static void fake_put_user(fake_user *user) {
  if (--user->references) return;
  user->destroy(user->user);
  free(user);
}

static void fake_free_graph(fake_graph *graph) {
  while (graph->user_count) fake_put_user(graph->users[--graph->user_count]);
  if (graph->last) (void)FAKE_MOCK(event_destroy, graph->last);
  free(graph->nodes);
  free(graph);
}

/* The graph is the caller's from now on. */
static fake_graph *fake_stop_capture(fake_capture *capture) {
  fake_capture **link = &fake.captures;
  fake_graph *graph = capture->graph;
  size_t i;
  while (*link != capture) link = &(*link)->next;
  *link = capture->next;
  for (i = 0; i < capture->member_count; i++)
    if (capture->members[i]) capture->members[i]->capture = NULL;
  free(capture);
  return graph;
}

/* A stream that is destroyed while it is captured. */
static void fake_leave_capture(const fake_stream *stream) {
  fake_capture *capture = stream->capture;
  if (!capture) return;
  if (stream->member) {
    capture->invalid = 1;
    capture->members[stream->member] = NULL;
  } else {
    fake_free_graph(fake_stop_capture(capture));
  }
}

/* ---- The frame of every call ---------------------------------------------------------------- */

static int fake_add_legacy(int device) {
  fake_stream *legacy = &fake.devices[device].legacy;
  legacy->object.device = device;
  legacy->is_legacy = 1;
  return gmlake_mock_stream_create(fake.mock, &legacy->queue) == GMLAKE_OK;
}

static void fake_clear(void) {
  size_t i;
  while (fake.captures) fake_free_graph(fake_stop_capture(fake.captures));
  while (fake.pending) {
    fake_pending *pending = fake.pending;
    fake.pending = pending->next;
    free(pending);
  }
  for (i = 0; i < FAKE_BUCKETS; i++) {
    while (fake.buckets[i]) {
      fake_object *object = fake.buckets[i];
      fake.buckets[i] = object->next;
      if (object->kind == FAKE_HOST)
        (void)munmap(fake_ptr(object->value), ((const fake_host *)object)->bytes);
      if (object->kind == FAKE_GRAPH || object->kind == FAKE_EXEC)
        fake_free_graph((fake_graph *)object);
      else
        free(object);
    }
  }
  free(fake.handles);
  gmlake_mock_destroy(fake.mock);
}

static void fake_start(const fake_cuda_options *options) {
  const uint64_t epoch = fake.epoch + 1, next_value = fake.next_value;
  gmlake_mock_desc desc;
  int i;
  memset(&fake, 0, sizeof(fake));
  memset(&desc, 0, sizeof(desc));
  fake.epoch = epoch;
  fake.next_value = next_value;
  fake.pending_end = &fake.pending;
  fake.options = *options;
  fake.random = 0x9E3779B97F4A7C15u * ((uint64_t)options->seed + 1);
  if (!options->device_count) fake.options.device_count = 1;
  if (options->device_count > FAKE_DEVICES_MAX) fake.options.device_count = FAKE_DEVICES_MAX;
  if (!options->device_bytes) fake.options.device_bytes = (size_t)16 << 30;
  if (!options->granularity_bytes) fake.options.granularity_bytes = 2 * GMLK_MIB;
  if (fake.options.device_count < 0) return;
  desc.capacity_bytes = fake.options.device_bytes * (size_t)fake.options.device_count;
  desc.granularity_bytes = fake.options.granularity_bytes;
  desc.bookkeeping_only = options->bookkeeping_only;
  desc.device_count = FAKE_COPIES + 1;
  if (gmlake_mock_create(&desc, &fake.mock)) return;
  for (i = 0; i < fake.options.device_count; i++) {
    if (fake_add_legacy(i)) continue;
    gmlake_mock_destroy(fake.mock);
    fake.mock = NULL;
    return;
  }
}

static long fake_variable(const char *name) {
  const char *text = getenv(name);
  return text ? strtol(text, NULL, 10) : 0;
}

static void fake_lock(void) {
  fake_cuda_options options;
  (void)pthread_mutex_lock(&fake_mutex);
  if (fake.epoch) return;
  memset(&options, 0, sizeof(options));
  options.seed = (unsigned)fake_variable("FAKE_CUDA_SEED");
  options.device_count = (int)fake_variable("FAKE_CUDA_DEVICES");
  options.device_bytes = (size_t)fake_variable("FAKE_CUDA_GIB") << 30;
  options.integrated = fake_variable("FAKE_CUDA_INTEGRATED") != 0;
  fake_start(&options);
}

static void fake_unlock(void) { (void)pthread_mutex_unlock(&fake_mutex); }

/* Whether this call is one that a test wants to fail. */
static CUresult fake_injected(const char *name) {
  fake_failure *f = &fake.failure;
  CUresult code = CUDA_SUCCESS;
  if (!f->nth || (f->name[0] && strcmp(name, f->name) != 0)) return code;
  if (f->nth == 1) code = f->code;
  if (f->nth > 1 || !f->is_persistent) f->nth--;
  if (code) fake.failed = name;
  return code;
}

static int fake_needs_init(const char *name) {
  return strcmp(name, "cuInit") != 0 && strcmp(name, "cuDriverGetVersion") != 0;
}

/* A step of time, after which some work may have completed. */
static void fake_step(void) {
  const uint64_t step = fake.options.seed ? fake_random(2 * FAKE_STEP_NS) : FAKE_STEP_NS;
  if (!fake.mock || !fake.process) return;
  fake.clock_ns += step;
  gmlake_mock_set_clock(fake.mock, fake.clock_ns);
  fake_run();
}

/* A child of fork is told by the process alone: the lock may be another thread's for good. On
   success the lock is held. */
static CUresult fake_enter(const char *name) {
  const long process = __atomic_load_n(&fake.process, __ATOMIC_ACQUIRE);
  CUresult code;
  const int is_child = process && process != gmlk_process_id();
  if (!is_child) fake_lock();
  (void)__atomic_add_fetch(&fake.calls, 1, __ATOMIC_RELAXED);
  if (is_child) return CUDA_ERROR_NOT_INITIALIZED;
  code = fake_injected(name);
  if (!code && !fake.process && fake_needs_init(name)) code = CUDA_ERROR_NOT_INITIALIZED;
  if (code)
    fake_unlock();
  else
    fake_step();
  return code;
}

static CUresult fake_leave(CUresult code) {
  if (fake.mock) fake_run(); /* what takes no time takes effect within the call */
  fake_unlock();
  return code;
}

#define FAKE_EXPORTED __attribute__((visibility("default")))
#define FAKE_TEXT_OF(name) #name
#define FAKE_TEXT(name) FAKE_TEXT_OF(name) /* of the name that cuda.h's macros stand for */

typedef void fake_function(void);
typedef struct fake_symbol {
  struct fake_symbol *next;
  const char *base;
  int version; /* of the driver that has it in this form */
  fake_function *function;
} fake_symbol;

static fake_symbol *fake_symbols;

/* Defines an exported function, a name for it that only this library can bind [F5], and its symbol:
   FAKE(name, version, parameters, their names) { what it does }. */
#define FAKE(name, version, params, args)                                                 \
  static CUresult fake_do_##name params;                                                  \
  FAKE_EXPORTED CUresult CUDAAPI name params {                                            \
    const CUresult code = fake_enter(FAKE_TEXT(name));                                    \
    return code ? code : fake_leave(fake_do_##name args);                                 \
  }                                                                                       \
  extern __typeof__(name) fake_own_##name                                                 \
      __attribute__((alias(FAKE_TEXT(name)), visibility("hidden")));                      \
  __attribute__((constructor)) static void fake_register_##name(void) {                   \
    static fake_symbol symbol = {NULL, #name, version, (fake_function *)fake_own_##name}; \
    symbol.next = fake_symbols;                                                           \
    fake_symbols = &symbol;                                                               \
  }                                                                                       \
  static CUresult fake_do_##name params

/* ---- Devices and contexts ------------------------------------------------------------------- */

FAKE(cuInit, 2000, (unsigned flags), (flags)) {
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  if (fake.options.device_count < 0) return CUDA_ERROR_NO_DEVICE;
  if (!fake.mock) return CUDA_ERROR_UNKNOWN;
  __atomic_store_n(&fake.process, gmlk_process_id(), __ATOMIC_RELEASE);
  return CUDA_SUCCESS;
}

FAKE(cuDriverGetVersion, 2020, (int *out), (out)) {
  *out = FAKE_VERSION;
  return CUDA_SUCCESS;
}

FAKE(cuDeviceGetCount, 2000, (int *out), (out)) {
  *out = fake.options.device_count;
  return CUDA_SUCCESS;
}

FAKE(cuDeviceGet, 2000, (CUdevice * out, int ordinal), (out, ordinal)) {
  if (!fake_device_exists(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *out = ordinal;
  return CUDA_SUCCESS;
}

FAKE(cuDeviceGetName, 2000, (char *out, int bytes, CUdevice device), (out, bytes, device)) {
  if (bytes <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (!fake_device_exists(device)) return CUDA_ERROR_INVALID_DEVICE;
  (void)snprintf(out, (size_t)bytes, "gmlake fake device %d", device);
  return CUDA_SUCCESS;
}

/* Those that somebody asks for, by number, since the header need not know them. */
FAKE(cuDeviceGetAttribute, 2000, (int *out, CUdevice_attribute attribute, CUdevice device),
     (out, attribute, device)) {
  const fake_cuda_options *o = &fake.options;
  if (!fake_device_exists(device)) return CUDA_ERROR_INVALID_DEVICE;
  switch ((int)attribute) {
  case 18:
    return *out = o->integrated, CUDA_SUCCESS;
  case 102:
    return *out = !o->no_vmm, CUDA_SUCCESS;
  case 103:
    return *out = !o->no_posix_fd, CUDA_SUCCESS;
  case 110:
    return *out = !o->no_rdma, CUDA_SUCCESS;
  case 128:
    return *out = o->fabric != 0, CUDA_SUCCESS;
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
}

FAKE(cuDeviceTotalMem, 3020, (size_t * out, CUdevice device), (out, device)) {
  if (!fake_device_exists(device)) return CUDA_ERROR_INVALID_DEVICE;
  *out = fake.options.device_bytes;
  return CUDA_SUCCESS;
}

FAKE(cuDeviceCanAccessPeer, 4000, (int *out, CUdevice device, CUdevice peer), (out, device, peer)) {
  if (!fake_device_exists(device) || !fake_device_exists(peer)) return CUDA_ERROR_INVALID_DEVICE;
  *out = device != peer;
  return CUDA_SUCCESS;
}

FAKE(cuDevicePrimaryCtxRetain, 7000, (CUcontext * out, CUdevice number), (out, number)) {
  fake_device *device;
  if (!fake_device_exists(number)) return CUDA_ERROR_INVALID_DEVICE;
  device = &fake.devices[number];
  if (!device->retains++) {
    device->lost = CUDA_SUCCESS;
    device->peers = 0;
    device->context = device->legacy.object.context = ++fake.next_serial;
  }
  *out = (CUcontext)device;
  return CUDA_SUCCESS;
}

/* With the last reference the context's streams, events and modules become invalid; they stay in
   the census, since their owner has leaked them. */
FAKE(cuDevicePrimaryCtxRelease, 11000, (CUdevice number), (number)) {
  fake_device *device;
  if (!fake_device_exists(number)) return CUDA_ERROR_INVALID_DEVICE;
  device = &fake.devices[number];
  if (!device->retains) return CUDA_ERROR_INVALID_CONTEXT;
  if (device->retains == 1) {
    (void)fake_finish_device(device);
    device->context = 0;
  }
  device->retains--;
  return CUDA_SUCCESS;
}

/* NULL: no such context, or nobody retains it. */
static fake_device *fake_find_context(CUcontext context) {
  int i;
  for (i = 0; i < fake.options.device_count; i++)
    if ((CUcontext)&fake.devices[i] == context && fake.devices[i].retains) return &fake.devices[i];
  return NULL;
}

/* The device of this thread's current context. */
static CUresult fake_current(fake_device **out) {
  const fake_thread *self = fake_self();
  if (!self->depth || !self->stack[self->depth - 1]) return CUDA_ERROR_INVALID_CONTEXT;
  *out = fake_find_context(self->stack[self->depth - 1]);
  return *out ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static int fake_number(const fake_device *device) { return (int)(device - fake.devices); }

FAKE(cuCtxEnablePeerAccess, 4000, (CUcontext context, unsigned flags), (context, flags)) {
  const fake_device *peer = fake_find_context(context);
  fake_device *device;
  CUresult code = fake_current(&device);
  if (!code && flags) code = CUDA_ERROR_INVALID_VALUE;
  if (!code && !peer) code = CUDA_ERROR_INVALID_CONTEXT;
  if (!code && peer == device) code = CUDA_ERROR_INVALID_DEVICE;
  if (!code && (device->peers & 1u << fake_number(peer)))
    code = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  if (!code) device->peers |= 1u << fake_number(peer);
  return code;
}

FAKE(cuCtxGetCurrent, 4000, (CUcontext * out), (out)) {
  const fake_thread *self = fake_self();
  *out = self->depth ? self->stack[self->depth - 1] : NULL;
  return CUDA_SUCCESS;
}

static CUresult fake_push(CUcontext context) {
  fake_thread *self = fake_self();
  if (!fake_find_context(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (self->depth == FAKE_STACK_MAX) return CUDA_ERROR_OUT_OF_MEMORY;
  self->stack[self->depth++] = context;
  return CUDA_SUCCESS;
}

FAKE(cuCtxPushCurrent, 4000, (CUcontext context), (context)) { return fake_push(context); }

FAKE(cuCtxPopCurrent, 4000, (CUcontext * out), (out)) {
  fake_thread *self = fake_self();
  if (!self->depth) return CUDA_ERROR_INVALID_CONTEXT;
  self->depth--;
  if (out) *out = self->stack[self->depth];
  return CUDA_SUCCESS;
}

/* Replaces the top of the stack; NULL takes it away. */
FAKE(cuCtxSetCurrent, 4000, (CUcontext context), (context)) {
  fake_thread *self = fake_self();
  if (context && !fake_find_context(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (self->depth) self->depth--;
  return context ? fake_push(context) : CUDA_SUCCESS;
}

FAKE(cuCtxSynchronize, 2000, (void), ()) {
  fake_device *device;
  CUresult code = fake_current(&device);
  if (!code) code = device->lost;
  if (!code) code = fake_check_unsafe();
  return code ? code : fake_finish_device(device);
}

/* ---- Streams and events --------------------------------------------------------------------- */

/* NULL and 1 are the legacy stream of the current context; the per-thread one is not there. */
static CUresult fake_find_stream(CUstream value, fake_stream **out) {
  fake_device *device;
  if ((uintptr_t)value <= 1) {
    const CUresult code = fake_current(&device);
    if (!code) *out = &device->legacy;
    return code;
  }
  *out = (fake_stream *)fake_find(FAKE_STREAM, (uintptr_t)value);
  return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* The same for calls that a lost device refuses. */
static CUresult fake_use_stream(CUstream value, fake_stream **out) {
  const CUresult code = fake_find_stream(value, out);
  return code ? code : fake_device_of(*out)->lost;
}

static CUresult fake_use_event(CUevent value, fake_event **out) {
  *out = (fake_event *)fake_find(FAKE_EVENT, (uintptr_t)value);
  if (!*out) return CUDA_ERROR_INVALID_HANDLE;
  return fake.devices[(*out)->object.device].lost;
}

FAKE(cuStreamCreate, 2000, (CUstream * out, unsigned flags), (out, flags)) {
  fake_device *device;
  fake_stream *stream;
  gmlake_stream queue;
  CUresult code = fake_current(&device);
  if (!code && flags > CU_STREAM_NON_BLOCKING) code = CUDA_ERROR_INVALID_VALUE;
  if (!code && gmlake_mock_stream_create(fake.mock, &queue)) code = CUDA_ERROR_OUT_OF_MEMORY;
  if (code) return code;
  stream =
      (fake_stream *)fake_add(sizeof(*stream), FAKE_STREAM, (uintptr_t)queue, fake_number(device));
  stream->queue = queue;
  stream->id = ++fake.next_serial;
  stream->is_blocking = flags == CU_STREAM_DEFAULT;
  stream->next = device->streams;
  device->streams = stream;
  *out = (CUstream)queue;
  return CUDA_SUCCESS;
}

/* What is pending goes on, and the legacy stream still comes after it. */
FAKE(cuStreamDestroy, 4000, (CUstream value), (value)) {
  fake_stream *stream, **link;
  CUresult code = fake_find_stream(value, &stream);
  if (!code && stream->is_legacy) code = CUDA_ERROR_INVALID_HANDLE;
  if (code) return code;
  if (stream->is_blocking) fake_follow(&fake_device_of(stream)->legacy, stream);
  fake_leave_capture(stream);
  for (link = &fake_device_of(stream)->streams; *link != stream;) link = &(*link)->next;
  *link = stream->next;
  gmlake_mock_stream_destroy(fake.mock, stream->queue);
  fake_remove(&stream->object);
  free(stream);
  return CUDA_SUCCESS;
}

/* For calls that look at a stream: query and synchronise. */
static CUresult fake_look(CUstream value, fake_stream **out) {
  CUresult code = fake_use_stream(value, out);
  if (!code) code = fake_check_unsafe();
  if (!code && (*out)->capture)
    code = fake_spoil((*out)->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  if (!code) code = fake_check_implicit(*out);
  return code;
}

/* Refused in a capture, though a driver might answer: nobody has to ask then. */
FAKE(cuStreamGetId, 12000, (CUstream value, unsigned long long *id), (value, id)) {
  fake_stream *stream;
  const CUresult code = fake_find_stream(value, &stream);
  if (code) return code;
  if (stream->capture) return fake_spoil(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  *id = stream->id;
  return CUDA_SUCCESS;
}

/* Of the legacy stream it answers that a blocking one's capture forbids it, and spoils nothing. */
FAKE(cuStreamIsCapturing, 10000, (CUstream value, CUstreamCaptureStatus *status), (value, status)) {
  const fake_stream *other;
  fake_stream *stream;
  const CUresult code = fake_find_stream(value, &stream);
  if (code) return code;
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  other = stream->is_legacy ? fake_device_of(stream)->streams : NULL;
  for (; other; other = other->next)
    if (other->is_blocking && other->capture) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (stream->capture)
    *status = stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                       : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return CUDA_SUCCESS;
}

FAKE(cuStreamSynchronize, 2000, (CUstream value), (value)) {
  fake_stream *stream;
  CUresult code = fake_look(value, &stream);
  if (code) return code;
  if (stream->is_legacy) fake_order(stream);
  return fake_finish(stream);
}

/* Of the legacy stream: not what it waits for. */
FAKE(cuStreamQuery, 2000, (CUstream value), (value)) {
  fake_stream *stream;
  CUresult code = fake_look(value, &stream);
  void *event;
  if (code) return code;
  event = fake_mark(stream);
  code = fake_is_done(event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  (void)FAKE_MOCK(event_destroy, event);
  return code;
}

FAKE(cuStreamWaitEvent, 3020, (CUstream value, CUevent event_value, unsigned flags),
     (value, event_value, flags)) {
  fake_stream *stream;
  fake_event *event;
  CUresult code = fake_use_stream(value, &stream);
  if (!code) code = fake_use_event(event_value, &event);
  if (!code && flags) code = CUDA_ERROR_INVALID_VALUE;
  if (code) return code;
  if (event->capture) return fake_wait_captured(stream, event);
  if (stream->capture && event->is_recorded)
    return fake_spoil(stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  code = fake_check_implicit(stream);
  if (code || !event->is_recorded) return code;
  return FAKE_MOCK(stream_wait, stream->queue, event->mock);
}

FAKE(cuEventCreate, 2000, (CUevent * out, unsigned flags), (out, flags)) {
  fake_device *device;
  fake_event *event;
  void *mock;
  CUresult code = fake_current(&device);
  if (!code && flags > 7) code = CUDA_ERROR_INVALID_VALUE;
  if (!code) code = FAKE_MOCK(event_create, &mock);
  if (code) return code;
  event = (fake_event *)fake_add(sizeof(*event), FAKE_EVENT, 0, fake_number(device));
  event->mock = mock;
  event->is_timed = !(flags & CU_EVENT_DISABLE_TIMING);
  *out = (CUevent)(uintptr_t)event->object.value;
  return CUDA_SUCCESS;
}

FAKE(cuEventDestroy, 4000, (CUevent value), (value)) {
  fake_event *event = (fake_event *)fake_find(FAKE_EVENT, (uintptr_t)value);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  (void)FAKE_MOCK(event_destroy, event->mock);
  fake_remove(&event->object);
  free(event);
  return CUDA_SUCCESS;
}

FAKE(cuEventRecord, 2000, (CUevent value, CUstream stream_value), (value, stream_value)) {
  fake_stream *stream;
  fake_event *event;
  CUresult code = fake_use_stream(stream_value, &stream);
  if (!code) code = fake_use_event(value, &event);
  if (!code && event->object.device != stream->object.device) code = CUDA_ERROR_INVALID_HANDLE;
  if (code) return code;
  if (stream->capture) {
    if (stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    event->capture = stream->capture->number;
    event->seen = stream->seen;
    return CUDA_SUCCESS;
  }
  code = fake_check_implicit(stream);
  if (code) return code;
  fake_order(stream);
  code = FAKE_MOCK(event_record, event->mock, stream->queue);
  if (code) return code;
  event->capture = 0;
  event->is_recorded = 1;
  event->record = ++fake.record_count;
  return CUDA_SUCCESS;
}

/* For query and synchronise. */
static CUresult fake_look_at_event(CUevent value, fake_event **out) {
  CUresult code = fake_use_event(value, out);
  if (!code) code = fake_check_unsafe();
  if (!code && (*out)->capture) code = CUDA_ERROR_CAPTURED_EVENT;
  return code;
}

/* Some work ends only when the host waits for it. So many questions in a row are such a wait. */
FAKE(cuEventQuery, 2000, (CUevent value), (value)) {
  fake_event *event;
  const CUresult code = fake_look_at_event(value, &event);
  if (code || !event->is_recorded) return code;
  if (!fake_is_done(event->mock) && ++fake.vain_queries < FAKE_QUERIES_MAX)
    return CUDA_ERROR_NOT_READY;
  if (fake.vain_queries == FAKE_QUERIES_MAX) fake_wait(event->mock);
  fake.vain_queries = 0;
  return CUDA_SUCCESS;
}

FAKE(cuEventSynchronize, 2000, (CUevent value), (value)) {
  fake_event *event;
  const CUresult code = fake_look_at_event(value, &event);
  if (code || !event->is_recorded) return code;
  fake_wait(event->mock);
  return fake.devices[event->object.device].lost;
}

/* Time passes by .01 ms with each record. */
static CUresult fake_elapsed(float *ms, CUevent from_value, CUevent to_value) {
  fake_event *from, *to;
  CUresult code = fake_look_at_event(from_value, &from);
  if (!code) code = fake_look_at_event(to_value, &to);
  if (code) return code;
  if (!from->is_timed || !to->is_timed || !from->is_recorded || !to->is_recorded)
    return CUDA_ERROR_INVALID_HANDLE;
  if (!fake_is_done(from->mock) || !fake_is_done(to->mock)) return CUDA_ERROR_NOT_READY;
  *ms = ((float)to->record - (float)from->record) * .01f;
  return CUDA_SUCCESS;
}

FAKE(cuEventElapsedTime, 2000, (float *ms, CUevent from, CUevent to), (ms, from, to)) {
  return fake_elapsed(ms, from, to);
}

/* Its name in cuda.h from 12.8 on. */
CUresult CUDAAPI cuEventElapsedTime_v2(float *ms, CUevent from, CUevent to);
FAKE(cuEventElapsedTime_v2, 12080, (float *ms, CUevent from, CUevent to), (ms, from, to)) {
  return fake_elapsed(ms, from, to);
}

/* ---- Kernels and copies --------------------------------------------------------------------- */

/* Work of the caller's: a node of a capture, or queued behind what its stream comes after. */
static CUresult fake_submit(fake_stream *stream, const fake_work *work) {
  CUresult code;
  if (stream->capture) return fake_capture_work(stream, work);
  code = fake_check_implicit(stream);
  if (code) return code;
  fake_order(stream);
  fake_launch(stream, work);
  return CUDA_SUCCESS;
}

/* Any PTX will do; its kernels are known by their names. */
FAKE(cuModuleLoadData, 2000, (CUmodule * out, const void *image), (out, image)) {
  fake_device *device;
  fake_object *module;
  CUresult code = fake_current(&device);
  if (!code) code = device->lost;
  if (!code && !image) code = CUDA_ERROR_INVALID_VALUE;
  if (!code && !strstr((const char *)image, ".version")) code = CUDA_ERROR_INVALID_IMAGE;
  if (code) return code;
  module = (fake_object *)fake_add(sizeof(*module), FAKE_MODULE, 0, fake_number(device));
  *out = (CUmodule)(uintptr_t)module->value;
  return CUDA_SUCCESS;
}

FAKE(cuModuleUnload, 2000, (CUmodule value), (value)) {
  fake_object *module = (fake_object *)fake_find(FAKE_MODULE, (uintptr_t)value);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  fake_remove(module);
  free(module);
  return CUDA_SUCCESS;
}

FAKE(cuModuleGetFunction, 2000, (CUfunction * out, CUmodule value, const char *name),
     (out, value, name)) {
  const fake_object *module = (const fake_object *)fake_find(FAKE_MODULE, (uintptr_t)value);
  uint64_t i;
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  for (i = 0; i < FAKE_KERNELS; i++) {
    if (strcmp(name, fake_deeds[i].kernel) != 0) continue;
    *out = (CUfunction)(uintptr_t)(module->value + 1 + i);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

/* Of a stand-in's items there are as many as it counts. */
static CUresult fake_read_params(fake_work *work, void *const *params) {
  const fake_param *to = fake_deeds[work->kind].params;
  const size_t first = (size_t)fake_is_standin(work);
  size_t i;
  for (i = 0; i < 11 && to[i].bytes; i++)
    if (!params[i]) return CUDA_ERROR_INVALID_VALUE;
  for (i = first; i < 11 && to[i].bytes; i++)
    memcpy((char *)work + to[i].at, params[i], to[i].bytes);
  if (work->item_count > STANDIN_ITEMS) work->item_count = STANDIN_ITEMS;
  if (first) memcpy(work->items, params[0], work->item_count * sizeof(work->items[0]));
  return CUDA_SUCCESS;
}

static CUresult fake_kernel(CUfunction function, const size_t *grid_and_block, CUstream value,
                            void **params, void **extra) {
  const uint64_t index = ((uintptr_t)function & 15) - 1;
  const fake_object *module =
      (const fake_object *)fake_find(FAKE_MODULE, (uintptr_t)function & ~(uintptr_t)15);
  fake_stream *stream;
  fake_device *device;
  fake_work work;
  size_t i;
  CUresult code = fake_current(&device);
  if (!code) code = fake_use_stream(value, &stream);
  if (code) return code;
  if (!module || index >= FAKE_KERNELS || module->device != stream->object.device)
    return CUDA_ERROR_INVALID_HANDLE;
  for (i = 0; i < 6; i++)
    if (!grid_and_block[i]) return CUDA_ERROR_INVALID_VALUE;
  if (grid_and_block[3] * grid_and_block[4] * grid_and_block[5] > 1024 || !params || extra)
    return CUDA_ERROR_INVALID_VALUE;
  memset(&work, 0, sizeof(work));
  work.kind = (fake_work_kind)index;
  work.device = module->device;
  work.rows = grid_and_block[1];
  code = fake_read_params(&work, params);
  return code ? code : fake_submit(stream, &work);
}

FAKE(cuLaunchKernel, 4000,
     (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
      unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **params,
      void **extra),
     (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params,
      extra)) {
  const size_t dims[6] = {grid_x, grid_y, grid_z, block_x, block_y, block_z};
  (void)shared_bytes;
  return fake_kernel(function, dims, stream, params, extra);
}

/* Memsets and copies are refused at once where the memory is not there; a kernel faults. */
static CUresult fake_submit_checked(CUstream value, fake_work *work) {
  fake_stream *stream;
  const CUresult code = fake_use_stream(value, &stream);
  if (code) return code;
  work->device = stream->object.device;
  if (fake_check_work(work)) return CUDA_ERROR_INVALID_VALUE;
  return work->count ? fake_submit(stream, work) : CUDA_SUCCESS;
}

static CUresult fake_memset(fake_work_kind kind, CUdeviceptr to, unsigned word, size_t count,
                            CUstream stream) {
  fake_work work;
  memset(&work, 0, sizeof(work));
  work.kind = kind;
  work.to = to;
  work.seed = word;
  work.count = count;
  return fake_submit_checked(stream, &work);
}

FAKE(cuMemsetD8Async, 3020, (CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream),
     (to, value, bytes, stream)) {
  return fake_memset(FAKE_MEMSET8, to, value, bytes, stream);
}

FAKE(cuMemsetD32Async, 3020, (CUdeviceptr to, unsigned value, size_t count, CUstream stream),
     (to, value, count, stream)) {
  return fake_memset(FAKE_MEMSET, to, value, count, stream);
}

static CUresult fake_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  fake_work work;
  memset(&work, 0, sizeof(work));
  work.kind = FAKE_MEMCPY;
  work.to = to;
  work.from = from;
  work.count = bytes;
  return fake_submit_checked(stream, &work);
}

FAKE(cuMemcpyDtoDAsync, 3020, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
     (to, from, bytes, stream)) {
  return fake_copy(to, from, bytes, stream);
}

/* Whether that many bytes lie in memory of the context's device. */
static int fake_is_of(CUcontext context, uint64_t address, size_t bytes) {
  const fake_device *device = fake_find_context(context);
  const gmlk_mock_run run = gmlk_mock_find_run(fake_inside(), address, bytes);
  size_t i = 0;
  while (i < run.count && &fake.devices[fake.handles[run.first[i].handle].device] == device) i++;
  return device && (!bytes || (run.count && i == run.count));
}

/* Stricter than the driver, which copies by way of the host where a device may not reach the
   other's mapping. */
FAKE(cuMemcpyPeerAsync, 4000,
     (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
      CUstream stream),
     (to, to_context, from, from_context, bytes, stream)) {
  if (!fake_find_context(to_context) || !fake_find_context(from_context))
    return CUDA_ERROR_INVALID_CONTEXT;
  if (!fake_is_of(to_context, to, bytes) || !fake_is_of(from_context, from, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  return fake_copy(to, from, bytes, stream);
}

/* Between the device and pinned memory; from other memory the driver copies in its own time. */
static CUresult fake_pinned_copy(CUdeviceptr address, const void *host, size_t bytes, int to_host,
                                 CUstream stream) {
  const uint64_t pinned = (uintptr_t)host;
  if (!fake_is_pinned(pinned, bytes)) return CUDA_ERROR_INVALID_VALUE;
  return to_host ? fake_copy(pinned, address, bytes, stream)
                 : fake_copy(address, pinned, bytes, stream);
}

FAKE(cuMemcpyDtoHAsync, 3020, (void *to, CUdeviceptr from, size_t bytes, CUstream stream),
     (to, from, bytes, stream)) {
  return fake_pinned_copy(from, to, bytes, 1, stream);
}

FAKE(cuMemcpyHtoDAsync, 3020, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream),
     (to, from, bytes, stream)) {
  return fake_pinned_copy(to, from, bytes, 0, stream);
}

/* A copy to or from the host comes after the legacy stream's work and ends within the call. */
static CUresult fake_host_copy(void *host, CUdeviceptr address, size_t bytes, int to_host) {
  fake_device *device;
  fake_work work;
  CUresult code = fake_current(&device);
  if (!code) code = device->lost;
  if (!code) code = fake_check_unsafe();
  if (!code) code = fake_check_implicit(&device->legacy);
  if (code) return code;
  if (!bytes) return CUDA_SUCCESS;
  memset(&work, 0, sizeof(work));
  work.kind = FAKE_MEMCPY;
  work.device = fake_number(device);
  if (!host || fake_reach(&work, address, bytes, 1)) return CUDA_ERROR_INVALID_VALUE;
  fake_order(&device->legacy);
  code = fake_finish(&device->legacy);
  if (code) return code;
  if (fake.options.bookkeeping_only) {
    if (to_host) memset(host, 0, bytes);
  } else if (to_host) {
    memcpy(host, fake_ptr(address), bytes);
  } else {
    memcpy(fake_ptr(address), host, bytes);
  }
  return CUDA_SUCCESS;
}

FAKE(cuMemcpyDtoH, 3020, (void *to, CUdeviceptr from, size_t bytes), (to, from, bytes)) {
  return fake_host_copy(to, from, bytes, 1);
}

FAKE(cuMemcpyHtoD, 3020, (CUdeviceptr to, const void *from, size_t bytes), (to, from, bytes)) {
  return fake_host_copy((void *)(uintptr_t)from, to, bytes, 0);
}

/* ---- Capture and graphs --------------------------------------------------------------------- */

FAKE(cuStreamBeginCapture, 10010, (CUstream value, CUstreamCaptureMode mode), (value, mode)) {
  fake_capture *capture;
  fake_stream *stream;
  CUresult code = fake_use_stream(value, &stream);
  if (!code && (unsigned)mode > 2) code = CUDA_ERROR_INVALID_VALUE;
  if (!code && stream->is_legacy) code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (!code && stream->capture) code = CUDA_ERROR_ILLEGAL_STATE;
  if (code) return code;
  capture = (fake_capture *)fake_zeroed(1, sizeof(*capture));
  capture->graph = (fake_graph *)fake_zeroed(1, sizeof(*capture->graph));
  capture->graph->object.value = fake_new_value();
  capture->number = ++fake.next_serial;
  capture->mode = (int)mode;
  capture->thread = fake_self();
  capture->next = fake.captures;
  fake.captures = capture;
  return fake_join(capture, stream);
}

/* A capture that failed has ended too. */
FAKE(cuStreamEndCapture, 10000, (CUstream value, CUgraph *out), (value, out)) {
  fake_stream *stream;
  fake_capture *capture;
  fake_graph *graph;
  CUresult code = fake_find_stream(value, &stream);
  if (code) return code;
  *out = NULL;
  capture = stream->capture;
  if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (stream->member) return fake_spoil(capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  if (capture->mode != 2 && capture->thread != fake_self())
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  if (capture->invalid)
    code = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  else if (!fake_is_joined(capture))
    code = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  graph = fake_stop_capture(capture);
  if (code) {
    fake_free_graph(graph);
    return code;
  }
  graph->object.kind = FAKE_GRAPH;
  fake_insert(&graph->object);
  *out = (CUgraph)(uintptr_t)graph->object.value;
  return CUDA_SUCCESS;
}

FAKE(cuStreamGetCaptureInfo_v2, 11030,
     (CUstream value, CUstreamCaptureStatus *out_status, cuuint64_t *id, CUgraph *out_graph,
      const CUgraphNode **nodes, size_t *count),
     (value, out_status, id, out_graph, nodes, count)) {
  fake_stream *stream;
  CUresult code = fake_find_stream(value, &stream);
  (void)id;
  (void)nodes;
  (void)count;
  if (code) return code;
  *out_status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (!stream->capture) return CUDA_SUCCESS;
  *out_status = stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                         : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (out_graph) *out_graph = (CUgraph)(uintptr_t)stream->capture->graph->object.value;
  return CUDA_SUCCESS;
}

/* Their values are addresses. */
FAKE(cuUserObjectCreate, 11030,
     (CUuserObject * out, void *user, CUhostFn destroy, unsigned count, unsigned flags),
     (out, user, destroy, count, flags)) {
  fake_user *made;
  if (!destroy || !count || flags != 1) return CUDA_ERROR_INVALID_VALUE;
  made = (fake_user *)fake_zeroed(1, sizeof(*made));
  made->destroy = destroy;
  made->user = user;
  made->references = count;
  *out = (CUuserObject)(void *)made;
  return CUDA_SUCCESS;
}

/* Also of a graph that is being captured. Only moving one reference is served. */
FAKE(cuGraphRetainUserObject, 11030,
     (CUgraph value, CUuserObject object, unsigned count, unsigned flags),
     (value, object, count, flags)) {
  fake_graph *graph = (fake_graph *)fake_find(FAKE_GRAPH, (uintptr_t)value);
  const fake_capture *capture;
  for (capture = fake.captures; capture && !graph; capture = capture->next)
    if (capture->graph->object.value == (uintptr_t)value) graph = capture->graph;
  if (!graph || !object || count != 1 || flags != 1) return CUDA_ERROR_INVALID_VALUE;
  if (graph->user_count == FAKE_USERS_MAX) return CUDA_ERROR_OUT_OF_MEMORY;
  graph->users[graph->user_count++] = (fake_user *)(void *)object;
  return CUDA_SUCCESS;
}

FAKE(cuThreadExchangeStreamCaptureMode, 10010, (CUstreamCaptureMode * mode), (mode)) {
  fake_thread *self = fake_self();
  const int former = self->mode;
  if (!mode || (int)*mode < 0 || (int)*mode > 2) return CUDA_ERROR_INVALID_VALUE;
  self->mode = (int)*mode;
  *mode = (CUstreamCaptureMode)former;
  return CUDA_SUCCESS;
}

FAKE(cuGraphInstantiateWithFlags, 11040,
     (CUgraphExec * out, CUgraph value, unsigned long long flags), (out, value, flags)) {
  const fake_graph *graph = (const fake_graph *)fake_find(FAKE_GRAPH, (uintptr_t)value);
  fake_graph *exec;
  size_t i;
  (void)flags;
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  exec = (fake_graph *)fake_add(sizeof(*exec), FAKE_EXEC, 0, 0);
  for (i = 0; i < graph->count; i++) fake_append(exec, &graph->nodes[i]);
  for (i = 0; i < graph->user_count; i++) {
    exec->users[exec->user_count++] = graph->users[i];
    graph->users[i]->references++;
  }
  *out = (CUgraphExec)(uintptr_t)exec->object.value;
  return CUDA_SUCCESS;
}

/* An executable graph runs once at a time: a launch comes after the one before. */
FAKE(cuGraphLaunch, 10000, (CUgraphExec value, CUstream stream_value), (value, stream_value)) {
  fake_graph *exec = (fake_graph *)fake_find(FAKE_EXEC, (uintptr_t)value);
  fake_stream *stream;
  size_t i;
  CUresult code = fake_use_stream(stream_value, &stream);
  if (!code && !exec) code = CUDA_ERROR_INVALID_VALUE;
  if (!code && exec->last && !stream->capture)
    code = FAKE_MOCK(stream_wait, stream->queue, exec->last);
  for (i = 0; !code && i < exec->count; i++) code = fake_submit(stream, &exec->nodes[i]);
  if (code || stream->capture) return code;
  if (exec->last) (void)FAKE_MOCK(event_destroy, exec->last);
  exec->last = fake_mark(stream);
  return CUDA_SUCCESS;
}

static CUresult fake_graph_destroy(fake_kind kind, uint64_t value) {
  fake_graph *graph = (fake_graph *)fake_find(kind, value);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  fake_remove(&graph->object);
  fake_free_graph(graph);
  return CUDA_SUCCESS;
}

FAKE(cuGraphExecDestroy, 10000, (CUgraphExec exec), (exec)) {
  return fake_graph_destroy(FAKE_EXEC, (uintptr_t)exec);
}

FAKE(cuGraphDestroy, 10000, (CUgraph graph), (graph)) {
  return fake_graph_destroy(FAKE_GRAPH, (uintptr_t)graph);
}

/* ---- Memory by cuMemAlloc ------------------------------------------------------------------- */

/* Legal during a capture, but spoils those that forbid it. */
FAKE(cuMemGetInfo, 3020, (size_t * out_free, size_t *out_total), (out_free, out_total)) {
  fake_device *device;
  CUresult code = fake_current(&device);
  if (!code) code = device->lost;
  if (code) return code;
  (void)fake_check_unsafe();
  *out_free = fake.options.device_bytes - fake_physical_bytes(fake_number(device));
  *out_total = fake.options.device_bytes;
  return CUDA_SUCCESS;
}

/* Where memory is short, frees that are queued may give some. */
static CUresult fake_allocate_patiently(fake_device *device, size_t bytes, CUdeviceptr *out) {
  CUresult code;
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  code = fake_allocate(fake_number(device), bytes, out);
  if (code != CUDA_ERROR_OUT_OF_MEMORY) return code;
  code = fake_finish_device(device);
  return code ? code : fake_allocate(fake_number(device), bytes, out);
}

FAKE(cuMemAlloc, 3020, (CUdeviceptr * out, size_t bytes), (out, bytes)) {
  fake_device *device;
  CUresult code = fake_current(&device);
  if (!code) code = device->lost;
  if (!code) code = fake_check_unsafe();
  return code ? code : fake_allocate_patiently(device, bytes, out);
}

static fake_allocation *fake_find_allocation(CUdeviceptr address) {
  fake_allocation *found = (fake_allocation *)fake_find(FAKE_ALLOCATION, address);
  return found && !found->is_freed ? found : NULL;
}

/* Waits for the device first. */
FAKE(cuMemFree, 3020, (CUdeviceptr address), (address)) {
  fake_allocation *allocation = fake_find_allocation(address);
  fake_device *device;
  CUresult code = fake_current(&device);
  if (!code) code = device->lost;
  if (!code) code = fake_check_unsafe();
  if (code || !address) return code;
  if (!allocation) return CUDA_ERROR_INVALID_VALUE;
  code = fake_finish_device(&fake.devices[allocation->object.device]);
  if (!code) fake_deallocate(allocation);
  return code;
}

FAKE(cuMemAllocAsync, 11020, (CUdeviceptr * out, size_t bytes, CUstream value),
     (out, bytes, value)) {
  fake_stream *stream;
  CUresult code = fake_use_stream(value, &stream);
  if (!code && stream->capture)
    code = fake_spoil(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  if (!code) code = fake_check_implicit(stream);
  return code ? code : fake_allocate_patiently(fake_device_of(stream), bytes, out);
}

FAKE(cuMemAllocFromPoolAsync, 11020,
     (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream),
     (address, bytes, pool, stream)) {
  return pool ? fake_do_cuMemAllocAsync(address, bytes, stream) : CUDA_ERROR_INVALID_VALUE;
}

FAKE(cuMemFreeAsync, 11020, (CUdeviceptr address, CUstream value), (address, value)) {
  fake_allocation *allocation = fake_find_allocation(address);
  fake_stream *stream;
  fake_work work;
  CUresult code = fake_use_stream(value, &stream);
  if (!code && !allocation) code = CUDA_ERROR_INVALID_VALUE;
  if (code) return code;
  memset(&work, 0, sizeof(work));
  work.kind = FAKE_FREE;
  work.device = stream->object.device;
  work.to = address;
  code = fake_submit(stream, &work);
  if (!code) allocation->is_freed = 1;
  return code;
}

/* Pools are numbers: their memory is that of cuMemAllocAsync, they count nothing, and remember a
   release threshold. */
FAKE(cuDeviceGetDefaultMemPool, 11020, (CUmemoryPool * out, CUdevice device), (out, device)) {
  if (!fake_device_exists(device)) return CUDA_ERROR_INVALID_DEVICE;
  *out = (CUmemoryPool)(uintptr_t)(1 + device);
  return CUDA_SUCCESS;
}

static CUmemoryPool fake_ended_pool; /* the last one: the next one has its value */

FAKE(cuMemPoolCreate, 11020, (CUmemoryPool * out, const CUmemPoolProps *props), (out, props)) {
  static uintptr_t made = FAKE_DEVICES_MAX;
  if (!props) return CUDA_ERROR_INVALID_VALUE;
  if (!fake_device_exists(props->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  *out = fake_ended_pool ? fake_ended_pool : (CUmemoryPool)++made;
  fake_ended_pool = NULL;
  return CUDA_SUCCESS;
}

FAKE(cuMemPoolDestroy, 11020, (CUmemoryPool pool), (pool)) {
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  fake_ended_pool = pool;
  return CUDA_SUCCESS;
}

static CUresult fake_pool_attribute(CUmemoryPool pool, int attribute, uint64_t *value, int sets) {
  static uint64_t threshold;
  if (!pool || !value || attribute < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD ||
      attribute > CU_MEMPOOL_ATTR_USED_MEM_HIGH)
    return CUDA_ERROR_INVALID_VALUE;
  if (sets && attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) threshold = *value;
  if (!sets) *value = attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD ? threshold : 0;
  return CUDA_SUCCESS;
}

FAKE(cuMemPoolGetAttribute, 11020, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value),
     (pool, attribute, value)) {
  return fake_pool_attribute(pool, (int)attribute, (uint64_t *)value, 0);
}

FAKE(cuMemPoolSetAttribute, 11020, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value),
     (pool, attribute, value)) {
  return fake_pool_attribute(pool, (int)attribute, (uint64_t *)value, 1);
}

FAKE(cuMemPoolSetAccess, 11020, (CUmemoryPool pool, const CUmemAccessDesc *descs, size_t count),
     (pool, descs, count)) {
  return pool && (descs || !count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FAKE(cuMemPoolTrimTo, 11020, (CUmemoryPool pool, size_t keep_bytes), (pool, keep_bytes)) {
  (void)keep_bytes;
  return pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FAKE(cuDeviceSetMemPool, 11020, (CUdevice device, CUmemoryPool pool), (device, pool)) {
  return fake_device_exists(device) && pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Of an allocation's first byte. */
static CUresult fake_address_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
  const fake_allocation *const allocation = fake_find_allocation(address);
  if (!allocation) return CUDA_ERROR_NOT_FOUND;
  if (base) *base = address;
  if (bytes) *bytes = allocation->bytes;
  return CUDA_SUCCESS;
}

FAKE(cuMemGetAddressRange, 3020, (CUdeviceptr * base, size_t *bytes, CUdeviceptr address),
     (base, bytes, address)) {
  return fake_address_range(base, bytes, address);
}

FAKE(cuPointerGetAttribute, 4000, (void *value, CUpointer_attribute attribute, CUdeviceptr address),
     (value, attribute, address)) {
  size_t bytes = 0;
  CUdeviceptr base = 0;
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  (void)fake_address_range(&base, &bytes, address);
  if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) memcpy(value, &base, sizeof(base));
  if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE) memcpy(value, &bytes, sizeof(bytes));
  if (attribute == CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES) {
    const unsigned long long types = fake_find(FAKE_ALLOCATION, base) ? 0 : 1; /* descriptors */
    memcpy(value, &types, sizeof(types));
  }
  return CUDA_SUCCESS;
}

FAKE(cuCtxGetDevice, 2000, (CUdevice * out), (out)) {
  fake_device *device;
  const CUresult code = fake_current(&device);
  if (!code) *out = fake_number(device);
  return code;
}

static void fake_add_host(void *ptr, size_t bytes, int is_registered) {
  fake_device *device = NULL;
  fake_host *host;
  (void)fake_current(&device);
  host = (fake_host *)fake_add(sizeof(*host), FAKE_HOST, (uintptr_t)ptr, fake_number(device));
  host->bytes = bytes;
  host->is_registered = is_registered;
  host->next = fake.hosts;
  fake.hosts = host;
}

FAKE(cuMemHostAlloc, 2020, (void **out, size_t bytes, unsigned flags), (out, bytes, flags)) {
  fake_device *device;
  void *ptr;
  CUresult code = fake_current(&device);
  if (!code) code = device->lost;
  if (!code && (!bytes || flags > 7)) code = CUDA_ERROR_INVALID_VALUE;
  if (code) return code;
  ptr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (ptr == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  fake_add_host(ptr, bytes, 0);
  *out = ptr;
  return CUDA_SUCCESS;
}

/* The caller's memory must be there. */
FAKE(cuMemHostRegister, 4000, (void *ptr, size_t bytes, unsigned flags), (ptr, bytes, flags)) {
  fake_device *device;
  unsigned char is_there = 0;
  CUresult code = fake_current(&device);
  if (!code) code = device->lost;
  if (!code && (!ptr || !bytes || flags > 15 || fake_is_pinned((uintptr_t)ptr, 1) ||
                mincore(ptr, 1, &is_there)))
    code = CUDA_ERROR_INVALID_VALUE;
  if (!code) fake_add_host(ptr, bytes, 1);
  return code;
}

/* Waits for the device first. */
static CUresult fake_remove_host(void *ptr, int is_registered) {
  fake_host *host = (fake_host *)fake_find(FAKE_HOST, (uintptr_t)ptr), **link = &fake.hosts;
  CUresult code;
  if (!host || host->is_registered != is_registered) return CUDA_ERROR_INVALID_VALUE;
  code = fake_finish_device(&fake.devices[host->object.device]);
  if (code) return code;
  while (*link != host) link = &(*link)->next;
  *link = host->next;
  fake_remove(&host->object);
  if (!is_registered) (void)munmap(ptr, host->bytes);
  free(host);
  return CUDA_SUCCESS;
}

FAKE(cuMemHostUnregister, 4000, (void *ptr), (ptr)) { return fake_remove_host(ptr, 1); }

FAKE(cuMemFreeHost, 2000, (void *ptr), (ptr)) { return fake_remove_host(ptr, 0); }

/* ---- Virtual memory ------------------------------------------------------------------------- */

static CUresult fake_check_vmm(void) {
  return fake.options.no_vmm ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

static CUresult fake_check_location(const CUmemLocation *location) {
  if (!location || location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  return fake_device_exists(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult fake_check_prop(const CUmemAllocationProp *prop) {
  unsigned types;
  CUresult code;
  if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  code = fake_check_location(&prop->location);
  if (code) return code;
  types = (unsigned)prop->requestedHandleTypes;
  if (types & ~(GMLAKE_HANDLE_POSIX_FD | GMLAKE_HANDLE_FABRIC)) return CUDA_ERROR_INVALID_VALUE;
  if ((types & GMLAKE_HANDLE_POSIX_FD && fake.options.no_posix_fd) ||
      (types & GMLAKE_HANDLE_FABRIC && !fake.options.fabric) ||
      (prop->allocFlags.gpuDirectRDMACapable && fake.options.no_rdma))
    return CUDA_ERROR_NOT_SUPPORTED;
  return CUDA_SUCCESS;
}

FAKE(cuMemGetAllocationGranularity, 10020,
     (size_t * out, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags flags),
     (out, prop, flags)) {
  CUresult code = fake_check_vmm();
  if (!code && (unsigned)flags > 1) code = CUDA_ERROR_INVALID_VALUE;
  if (!code) code = fake_check_prop(prop);
  if (!code) *out = fake.options.granularity_bytes;
  return code;
}

FAKE(cuMemCreate, 10020,
     (CUmemGenericAllocationHandle * out, size_t bytes, const CUmemAllocationProp *prop,
      unsigned long long flags),
     (out, bytes, prop, flags)) {
  uint64_t value;
  CUresult code = fake_check_vmm();
  if (!code && (flags || !bytes || bytes % fake.options.granularity_bytes))
    code = CUDA_ERROR_INVALID_VALUE;
  if (!code) code = fake_check_prop(prop);
  if (!code && (unsigned)prop->requestedHandleTypes & GMLAKE_HANDLE_FABRIC &&
      fake.options.fabric == 2)
    code = CUDA_ERROR_NOT_PERMITTED;
  if (!code)
    code = fake_create(prop->location.id, bytes, (unsigned)prop->requestedHandleTypes, &value);
  if (code) return code;
  fake.last_create = *prop;
  *out = value;
  return CUDA_SUCCESS;
}

FAKE(cuMemRelease, 10020, (CUmemGenericAllocationHandle value), (value)) {
  fake_handle *handle = fake_find_handle(value);
  const CUresult code = fake_check_vmm();
  if (code) return code;
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  return --handle->references ? CUDA_SUCCESS : FAKE_MOCK(release, value);
}

/* A fabric handle holds the handle's value: it is good in this process alone. */
FAKE(cuMemExportToShareableHandle, 10020,
     (void *out, CUmemGenericAllocationHandle value, CUmemAllocationHandleType types,
      unsigned long long flags),
     (out, value, types, flags)) {
  const fake_handle *handle = fake_find_handle(value);
  const unsigned type = (unsigned)types;
  gmlake_handle shared;
  CUresult code = fake_check_vmm();
  if (!code &&
      (flags || !handle || (type != GMLAKE_HANDLE_POSIX_FD && type != GMLAKE_HANDLE_FABRIC) ||
       !(handle->types & type)))
    code = CUDA_ERROR_INVALID_VALUE;
  if (code) return code;
  memset(&shared, 0, sizeof(shared));
  shared.type = type;
  shared.bytes = fake_mock_handle(value)->bytes;
  memcpy(shared.fabric, &value, sizeof(value));
  if (type == GMLAKE_HANDLE_POSIX_FD) code = FAKE_MOCK(export_handle, value, &shared);
  if (!code && type == GMLAKE_HANDLE_POSIX_FD)
    memcpy(out, &shared.fd, sizeof(shared.fd));
  else if (!code)
    memcpy(out, shared.fabric, sizeof(shared.fabric));
  return code;
}

static CUresult fake_import_fd(CUmemGenericAllocationHandle *out, int fd, int device) {
  gmlake_handle shared;
  struct stat stat;
  uint64_t value;
  CUresult code;
  memset(&shared, 0, sizeof(shared));
  if (fstat(fd, &stat)) return CUDA_ERROR_INVALID_VALUE;
  shared.type = GMLAKE_HANDLE_POSIX_FD;
  shared.fd = fd;
  shared.bytes = (size_t)stat.st_size;
  if (!shared.bytes || shared.bytes % fake.options.granularity_bytes)
    return CUDA_ERROR_INVALID_VALUE;
  code = FAKE_MOCK(import_handle, &shared, &value);
  if (code) return code;
  (void)fake_add_handle(value, device);
  *out = value;
  return CUDA_SUCCESS;
}

FAKE(cuMemImportFromShareableHandle, 10020,
     (CUmemGenericAllocationHandle * out, void *shared, CUmemAllocationHandleType types),
     (out, shared, types)) {
  const unsigned type = (unsigned)types;
  const gmlk_mock_handle *handle;
  fake_device *device;
  gmlake_handle exported;
  uint64_t value;
  CUresult code = fake_check_vmm();
  if (!code) code = fake_current(&device);
  if (!code && type == GMLAKE_HANDLE_FABRIC && !shared) code = CUDA_ERROR_INVALID_VALUE;
  if (code) return code;
  if (type == GMLAKE_HANDLE_POSIX_FD)
    return fake_import_fd(out, (int)(intptr_t)shared, (int)(device - fake.devices));
  if (type != GMLAKE_HANDLE_FABRIC) return CUDA_ERROR_INVALID_VALUE;
  if (!fake.options.fabric) return CUDA_ERROR_NOT_SUPPORTED;
  if (fake.options.fabric == 2) return CUDA_ERROR_NOT_PERMITTED;
  memcpy(&value, shared, sizeof(value));
  handle = fake_mock_handle(value);
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  memset(&exported, 0, sizeof(exported));
  exported.type = GMLAKE_HANDLE_POSIX_FD;
  exported.bytes = handle->bytes;
  code = FAKE_MOCK(export_handle, value, &exported);
  if (code) return code;
  code = fake_import_fd(out, exported.fd, fake_number(device));
  (void)close(exported.fd);
  return code;
}

FAKE(cuMemAddressReserve, 10020,
     (CUdeviceptr * out, size_t bytes, size_t alignment, CUdeviceptr hint,
      unsigned long long flags),
     (out, bytes, alignment, hint, flags)) {
  uint64_t address;
  CUresult code = fake_check_vmm();
  (void)hint;
  if (!code && (flags || (alignment && !gmlk_is_pow2(alignment)))) code = CUDA_ERROR_INVALID_VALUE;
  if (!code)
    code =
        FAKE_MOCK(reserve, bytes, alignment ? alignment : fake.options.granularity_bytes, &address);
  if (code) return code;
  *out = address;
  fake.last_alignment = alignment;
  return CUDA_SUCCESS;
}

/* What cuMemAlloc made is not for the calls of virtual memory. */
static CUresult fake_check_range(CUdeviceptr address) {
  const gmlk_mock_handle *found = fake_mapped_at(address);
  const CUresult code = fake_check_vmm();
  if (code) return code;
  return found && fake.handles[found->slot.index].is_backing ? CUDA_ERROR_INVALID_VALUE
                                                             : CUDA_SUCCESS;
}

FAKE(cuMemAddressFree, 10020, (CUdeviceptr address, size_t bytes), (address, bytes)) {
  const CUresult code = fake_check_range(address);
  return code ? code : FAKE_MOCK(unreserve, address, bytes);
}

FAKE(cuMemMap, 10020,
     (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle value,
      unsigned long long flags),
     (address, bytes, offset, value, flags)) {
  CUresult code = fake_check_range(address);
  if (!code && (flags || !fake_find_handle(value))) code = CUDA_ERROR_INVALID_VALUE;
  if (!code && offset) code = CUDA_ERROR_NOT_SUPPORTED;
  return code ? code : FAKE_MOCK(map, address, bytes, value);
}

FAKE(cuMemUnmap, 10020, (CUdeviceptr address, size_t bytes), (address, bytes)) {
  const CUresult code = fake_check_range(address);
  return code ? code : FAKE_MOCK(unmap, address, bytes);
}

/* Nobody asks to read alone, or takes access away. */
FAKE(cuMemSetAccess, 10020,
     (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *descs, size_t count),
     (address, bytes, descs, count)) {
  int devices[FAKE_DEVICES_MAX];
  size_t i;
  CUresult code = fake_check_range(address);
  if (!code && (!descs || !count || count > FAKE_DEVICES_MAX)) code = CUDA_ERROR_INVALID_VALUE;
  for (i = 0; !code && i < count; i++) {
    code = fake_check_location(&descs[i].location);
    if (!code && descs[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      code = CUDA_ERROR_NOT_SUPPORTED;
    devices[i] = descs[i].location.id + 1;
  }
  return code ? code : FAKE_MOCK(set_access, address, bytes, devices, count);
}

FAKE(cuMemGetAccess, 10020,
     (unsigned long long *out, const CUmemLocation *location, CUdeviceptr address),
     (out, location, address)) {
  CUresult code = fake_check_range(address);
  if (!code) code = fake_check_location(location);
  if (!code && !fake_mapped_at(address)) code = CUDA_ERROR_INVALID_VALUE;
  if (!code)
    *out = gmlk_mock_reaches(fake_inside(), address, 1, location->id + 1)
               ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
               : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return code;
}

/* What was released has another value now. */
FAKE(cuMemRetainAllocationHandle, 11000, (CUmemGenericAllocationHandle * out, void *address),
     (out, address)) {
  gmlk_mock_handle *handle = fake_mapped_at((uintptr_t)address);
  CUresult code = fake_check_range((uintptr_t)address);
  if (!code && !handle) code = CUDA_ERROR_INVALID_VALUE;
  if (code) return code;
  fake.handles[handle->slot.index].references++;
  fake_inside()->census.handle_count += (size_t)handle->released;
  handle->released = 0;
  *out = gmlk_mock_value(&handle->slot);
  return CUDA_SUCCESS;
}

/* ---- Finding functions ---------------------------------------------------------------------- */

enum { FAKE_SYMBOL_FOUND, FAKE_SYMBOL_MISSING, FAKE_SYMBOL_TOO_YOUNG };

/* The youngest form of the function that the version knows; NULL: *out_status tells why. */
static fake_function *fake_lookup(const char *base, int version, int *out_status);

/* Finding a function is no call of the driver: it is not counted and cannot be made to fail. */
static CUresult fake_find_function(const char *base, void **out, int version, cuuint64_t flags,
                                   int *out_status) {
  fake_function *function;
  if (!base || !out || flags > 1) return CUDA_ERROR_INVALID_VALUE;
  *out = NULL;
  function = fake_lookup(base, version, out_status);
  memcpy(out, &function, sizeof(function));
  return function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* The forms of CUDA 11.3 and 12.0. */
#undef cuGetProcAddress
CUresult CUDAAPI cuGetProcAddress(const char *base, void **out, int version, cuuint64_t flags);
CUresult CUDAAPI cuGetProcAddress_v2(const char *base, void **out, int version, cuuint64_t flags,
                                     int *out_status);

FAKE_EXPORTED CUresult CUDAAPI cuGetProcAddress(const char *base, void **out, int version,
                                                cuuint64_t flags) {
  int status;
  return fake_find_function(base, out, version, flags, &status);
}

FAKE_EXPORTED CUresult CUDAAPI cuGetProcAddress_v2(const char *base, void **out, int version,
                                                   cuuint64_t flags, int *out_status) {
  int status = FAKE_SYMBOL_MISSING;
  const CUresult code = fake_find_function(base, out, version, flags, &status);
  if (out_status) *out_status = status;
  return code;
}

extern __typeof__(cuGetProcAddress) fake_own_cuGetProcAddress
    __attribute__((alias("cuGetProcAddress"), visibility("hidden")));
extern __typeof__(cuGetProcAddress_v2) fake_own_cuGetProcAddress_v2
    __attribute__((alias("cuGetProcAddress_v2"), visibility("hidden")));

static fake_function *fake_lookup(const char *base, int version, int *out_status) {
  static fake_symbol own[] = {
      {NULL, "cuGetProcAddress", 12000, (fake_function *)fake_own_cuGetProcAddress_v2},
      {NULL, "cuGetProcAddress", 11030, (fake_function *)fake_own_cuGetProcAddress}};
  const fake_symbol *symbol;
  own[0].next = &own[1];
  own[1].next = fake_symbols;
  *out_status = FAKE_SYMBOL_MISSING;
  for (symbol = own; symbol; symbol = symbol->next) {
    if (strcmp(base, symbol->base) != 0) continue;
    *out_status = version < symbol->version ? FAKE_SYMBOL_TOO_YOUNG : FAKE_SYMBOL_FOUND;
    if (*out_status == FAKE_SYMBOL_FOUND) return symbol->function;
  }
  return NULL;
}

/* ---- Control -------------------------------------------------------------------------------- */

static void fake_control_reset(const fake_cuda_options *options) {
  fake_cuda_options zero;
  memset(&zero, 0, sizeof(zero));
  fake_lock();
  fake_clear();
  fake_start(options ? options : &zero);
  fake_unlock();
}

static uint64_t fake_control_calls(void) { return __atomic_load_n(&fake.calls, __ATOMIC_RELAXED); }

static void fake_control_fail_function(const char *name, uint64_t nth, CUresult code,
                                       int persistent) {
  fake_lock();
  (void)snprintf(fake.failure.name, sizeof(fake.failure.name), "%s", name ? name : "");
  fake.failure.nth = nth;
  fake.failure.code = code;
  fake.failure.is_persistent = persistent;
  fake_unlock();
}

static const char *fake_control_failed(void) {
  const char *name;
  fake_lock();
  name = fake.failed;
  fake_unlock();
  return name;
}

static void fake_control_lose(CUresult code) {
  fake_device *device;
  fake_lock();
  if (fake_current(&device)) device = &fake.devices[0];
  device->lost = code;
  fake_unlock();
}

static void fake_control_get_census(fake_cuda_census *out) {
  size_t counts[FAKE_KINDS] = {0}, i;
  const fake_object *object;
  const fake_pending *pending;
  gmlake_mock_census mock;
  memset(out, 0, sizeof(*out));
  memset(&mock, 0, sizeof(mock));
  fake_lock();
  for (i = 0; i < FAKE_BUCKETS; i++)
    for (object = fake.buckets[i]; object; object = object->next) counts[object->kind]++;
  out->allocations = counts[FAKE_ALLOCATION];
  out->events = counts[FAKE_EVENT];
  out->streams = counts[FAKE_STREAM];
  out->modules = counts[FAKE_MODULE];
  out->graphs = counts[FAKE_GRAPH] + counts[FAKE_EXEC];
  out->hosts = counts[FAKE_HOST];
  if (fake.mock) gmlake_mock_get_census(fake.mock, &mock);
  out->handles = mock.handle_count; /* an allocation has one of each of the next */
  out->mappings = mock.mapping_count - out->allocations;
  out->reservations = mock.reservation_count - out->allocations;
  for (pending = fake.pending; pending; pending = pending->next) out->pending++;
  if (fake.mock) out->physical_bytes = fake_physical_bytes(0);
  out->retains = fake.devices[0].retains;
  out->pushed = fake_self()->depth;
  out->last_create = fake.last_create;
  out->last_alignment = fake.last_alignment;
  fake_unlock();
}

/* The name is a type's in C. */
extern FAKE_EXPORTED const fake_cuda_control fake_control __asm__("fake_cuda_control");
const fake_cuda_control fake_control = {
    fake_control_reset, fake_control_calls,      fake_control_fail_function, fake_control_failed,
    fake_control_lose,  fake_control_get_census, sizeof(fake_cuda_census)};
