/* Misuse of the driver, made to the machine's driver and to gmlake.h's mock alike: one table of
   rows, each with what an H200 answered (driver 580). The rule that the mock is held to: whatever
   the driver refuses, the mock refuses, by the same number. Include after gpu_fixture.h.

   A row is a line of calls, in a process of its own: behind `;` comes one that the calls before
   prepare, and where one of those is refused, that is the row's answer. The last one's answer is
   the row's; `&` joins calls that are decisive together: the first refusal answers. In front of a
   call `~` says that its answer is of no interest, `@` that another thread makes it, `%` that a
   forked child does; in front of a line `!` that nobody has called cuInit.

   Granules count places of the reservation and bytes: `1`, `.5`; `1+` is a granule and a byte,
   `64b` bytes, `2T` TiB, `all` more than the device has. Handles are a, b and w, of 1, 1 and 2
   granules. Places are also `gone`, addresses that were given back (by `lose`), and `null`. Streams
   are s and o, which ignore the legacy stream l, and t, which `open` makes. */
#if !defined(GPU_MISUSE_H)
#define GPU_MISUSE_H

#define RESERVED_GRANULES 8
#define ARGUMENTS_MAX 5
#define NO_ANSWER (-1)
#define DIED (-2) /* the call ended its process */

/* ---- The table ------------------------------------------------------------------------------- */

typedef struct row {
  const char *name;
  int recorded;
  const char *line;
} row;

#define MEMORY "create 1 & reserve 1 & map 0 a & grant 0 1 & unmap 0 1"
#define MEMORY_ELSEWHERE "@create 1 & @reserve 1 & @map 0 a & @grant 0 1 & @unmap 0 1"

static const row rows[] = {
    {"create before cuInit", 3, "!create 1"},
    {"reserve before cuInit", 3, "!reserve 1"},
    {"create in a forked child", 3, "%create 1"},
    {"reserve in a forked child", 3, "%reserve 1"},
    {"cuInit in a forked child", 3, "%init"},
    {"unmap under a running kernel, synchronise", 700,
     "map 0 w; grant 0 2; spin s 50; kernel 0 2; unmap 0 2; await s"},
    {"kernel writes to address 0, synchronise", 700, "kernel null 64b; await s"},
    {"event query after a fault", 700, "record o; ~kernel null 64b; ~await s; query"},
    {"memory info after a fault", 700, "~kernel null 64b; ~await s; info"},
    {"create, reserve, map, unmap after a fault", 0, "~kernel null 64b; ~await s; " MEMORY},
    {"record an event on a destroyed stream", DIED, "open 1; close; record t"},
    {"wait for an event on a destroyed stream", DIED, "open 1; record o; close; wait t"},
    {"unmap what was never mapped", 0, "unmap 0 1"},
    {"map less than the handle", 801, "map 0 w 1"},
    {"map from an offset", 801, "map 0 w 1 1"},
    {"map with flags", 1, "map 0 a 1 0 1"},
    {"map at half a granule", 1, "map .5 a"},
    {"map past the reservation's end", 0, "map 7 w"},
    {"map outside any reservation", 1, "lose 1; map gone a"},
    {"map twice at one address", 1, "map 0 a; map 0 b"},
    {"map over a mapping", 1, "map 1 a; map 0 w"},
    {"map one handle twice", 0, "map 0 a; map 1 a"},
    {"map handle 0", 1, "map 0 0"},
    {"map a released handle that is mapped elsewhere", 0, "map 0 a; release a; map 1 a"},
    {"unmap half a mapping", 1, "map 0 w; unmap 0 1"},
    {"unmap a mapping and a hole", 0, "map 0 a; unmap 0 2"},
    {"read what was unmapped with a hole", 1, "map 0 a; grant 0 1; unmap 0 2; read 0"},
    {"unmap two mappings at once", 0, "map 0 a; map 1 b; unmap 0 2"},
    {"unmap across two mappings", 1, "map 0 w; map 2 a; unmap 1 2"},
    {"unmap twice", 0, "map 0 a; unmap 0 1; unmap 0 1"},
    {"read before access is set", 1, "map 0 a; read 0"},
    {"memset before access is set", 1, "map 0 a; set 0"},
    {"access to half a mapping", 1, "map 0 w; grant 0 1"},
    {"read after that", 1, "map 0 w; ~grant 0 1; read 0"},
    {"access to a mapping and a hole", 1, "map 0 a; grant 0 2"},
    {"read after that", 1, "map 0 a; ~grant 0 2; read 0"},
    {"access to what is not mapped", 1, "grant 0 1"},
    {"access set twice", 0, "map 0 a; grant 0 1; grant 0 1"},
    {"access for nobody", 1, "map 0 a; grant 0 1 nobody"},
    {"read what is not mapped", 1, "read 0"},
    {"free addresses that are mapped", 1, "map 0 a; free 0 8"},
    {"read after that", 0, "map 0 a; grant 0 1; ~free 0 8; read 0"},
    {"free a part of a reservation", 1, "free 0 1"},
    {"free from the middle of a reservation", 1, "free 1 7"},
    {"free addresses twice", 1, "lose 1; free gone 1"},
    {"reserve a granule and a byte", 1, "reserve 1+"},
    {"reserve half a granule", 1, "reserve .5"},
    {"reserve nothing", 1, "reserve 0"},
    {"reserve aligned to 3", 1, "reserve 1 3b"},
    {"reserve aligned to 1 TiB", 0, "reserve 1 1T"},
    {"reserve 120 TiB", 2, "reserve 120T"},
    {"reserve with flags", 1, "reserve 1 0 1"},
    {"release what is mapped", 0, "map 0 a; grant 0 1; release a"},
    {"write to what was released mapped", 0, "map 0 a; grant 0 1; release a; write 0"},
    {"retain the handle of what was released mapped", 0, "map 0 a; grant 0 1; release a; retain 0"},
    {"retain the handle of what is not mapped", 1, "retain 0"},
    {"release twice", 1, "release a; release a"},
    {"create one granule and a half", 1, "create 1.5"},
    {"create nothing", 1, "create 0"},
    {"create more than the device has", 2, "create all"},
    {"create with flags", 1, "create 1 1"},
    {"create without a type", 1, "create 1 0 0"},
    {"create on device 1000", 101, "create 1 0 1 1000"},
    {"create when the device is full", 2, "fill"},
    {"map and set access when the device is full", 0, "~fill; map 0 a & grant 0 1"},
    {"create, reserve, map, unmap without a context", 0, "leave; " MEMORY},
    {"query an event never recorded", 0, "query"},
    {"await an event never recorded", 0, "await"},
    {"wait on a stream for an event never recorded", 0, "wait s"},
    {"destroy an event that a stream waits for", 0, "spin s 2; record s; wait o; destroy"},
    {"destroy a stream at work", 0, "open 1; spin t 2; close"},
    {"await an event of a destroyed stream", 0, "open 1; spin t 2; record t; close; await"},
    {"memory calls in a global capture, end", 0, "begin 0; " MEMORY " & end"},
    {"memory calls in a thread-local capture, end", 0, "begin 1; " MEMORY " & end"},
    {"memory calls in a relaxed capture, end", 0, "begin 2; " MEMORY " & end"},
    {"event query in a global capture", 900, "record o; begin 0; query"},
    {"event query in a thread-local capture", 900, "record o; begin 1; query"},
    {"event query in a relaxed capture", 0, "record o; begin 2; query"},
    {"end of a capture after an event query", 901, "record o; begin 0; ~query; end"},
    {"event query in it under the relaxed exchange, end", 0,
     "record o; begin 0; exchange 2 & query & exchange & end"},
    {"await an event in a global capture", 900, "record o; begin 0; await"},
    {"cuMemAlloc in a global capture", 900, "begin 0; alloc"},
    {"cuMemAlloc in a thread-local capture", 900, "begin 1; alloc"},
    {"cuMemAlloc in a relaxed capture", 0, "begin 2; alloc"},
    {"event query on another thread, global", 900, "record o; begin 0; @query"},
    {"event query on another thread, thread-local", 0, "record o; begin 1; @query"},
    {"memory calls on another thread, global, end", 0, "begin 0; " MEMORY_ELSEWHERE " & end"},
    {"memory calls on another thread, thread-local, end", 0, "begin 1; " MEMORY_ELSEWHERE " & end"},
    {"begin a capture twice", 401, "begin 2; begin 2"},
    {"capture the legacy stream", 900, "begin 2 l"},
    {"end without a capture", 401, "end"},
    {"synchronise a captured stream", 900, "begin 2; await s"},
    {"query a captured stream", 900, "begin 2; query s"},
    {"query an event recorded in a capture", 907, "begin 2; ~record s; query"},
    {"wait in a capture for an event outside", 905, "record o; begin 2; wait s"},
    {"legacy stream while a blocking one is captured", 906, "open 0; begin 2 t & record l"},
    {"exchange to capture mode 7", 0, "exchange 7"},
};

/* What every row finds: a reservation, three handles, two streams, an event. */
typedef struct stage {
  gpu_driver gpu;
  gpu_kernels kernels;
  CUdevice device;
  CUcontext context;
  CUmemAllocationProp prop;
  size_t granule;
  CUdeviceptr base, gone;
  CUmemGenericAllocationHandle handles[3];
  CUstream streams[4]; /* s, o, l and t */
  CUevent event;
  CUstream captured;        /* the stream that is, or would be, captured */
  CUstreamCaptureMode mode; /* that the last exchange gave */
  int is_broken;            /* a call that only prepares was refused */
} stage;

typedef struct words { /* of one call */
  char text[80];
  const char *of[ARGUMENTS_MAX + 1]; /* its name, and the arguments; "" behind the last */
} words;

/* ---- Arguments ------------------------------------------------------------------------------- */

static size_t bytes_of(stage *s, const char *word) {
  char *end;
  const double count = strtod(word, &end);
  size_t total = 0;
  if (strcmp(word, "all") == 0) {
    (void)s->gpu.cuDeviceTotalMem(&total, s->device);
    return (total / s->granule + 16) * s->granule;
  }
  if (*end == 'b') return (size_t)count;
  if (*end == 'T') return (size_t)count * 1024 * GIB;
  return (size_t)(count * (double)s->granule) + (*end == '+');
}

static CUdeviceptr place_of(stage *s, const char *word) {
  if (strcmp(word, "gone") == 0) return s->gone;
  return strcmp(word, "null") == 0 ? 0 : s->base + bytes_of(s, word);
}

static int index_of(const char *letters, const char *word) {
  const char *found = *word ? strchr(letters, *word) : NULL;
  require(found != NULL, "%s: not one of %s", word, letters);
  return (int)(found - letters);
}

static CUstream stream_of(const stage *s, const char *word) {
  return s->streams[index_of("solt", word)];
}

static CUmemGenericAllocationHandle handle_of(const stage *s, const char *word) {
  return *word == '0' ? 0 : s->handles[index_of("abw", word)];
}

static unsigned number_of(const char *word) { return (unsigned)strtoul(word, NULL, 10); }

/* ---- Calls ----------------------------------------------------------------------------------- */

/* grant AT BYTES [nobody] */
static CUresult do_grant(stage *s, const words *w) {
  CUmemAccessDesc access;
  memset(&access, 0, sizeof(access));
  access.location = s->prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return s->gpu.cuMemSetAccess(place_of(s, w->of[1]), bytes_of(s, w->of[2]), &access, !*w->of[3]);
}

/* Addresses that nobody needs: given back where the driver had them. reserve BYTES [ALIGNMENT
   [FLAGS]] */
static CUresult do_reserve(stage *s, const words *w) {
  const size_t bytes = bytes_of(s, w->of[1]);
  CUdeviceptr address = 0;
  const CUresult code =
      s->gpu.cuMemAddressReserve(&address, bytes, bytes_of(s, w->of[2]), 0, number_of(w->of[3]));
  s->gone = address;
  return code == CUDA_SUCCESS ? s->gpu.cuMemAddressFree(address, bytes) : code;
}

/* A handle that nobody needs. create BYTES [FLAGS [TYPE DEVICE]] */
static CUresult do_create(stage *s, const words *w) {
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp prop = s->prop;
  CUresult code;
  if (*w->of[3]) prop.type = (CUmemAllocationType)number_of(w->of[3]);
  if (*w->of[4]) prop.location.id = (int)number_of(w->of[4]);
  code = s->gpu.cuMemCreate(&handle, bytes_of(s, w->of[1]), &prop, number_of(w->of[2]));
  if (code == CUDA_SUCCESS) (void)s->gpu.cuMemRelease(handle);
  return code;
}

static CUresult do_retain(stage *s, const words *w) {
  CUmemGenericAllocationHandle handle = 0;
  const CUresult code =
      s->gpu.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)place_of(s, w->of[1]));
  if (code == CUDA_SUCCESS) (void)s->gpu.cuMemRelease(handle);
  return code;
}

/* Fills the device by ever smaller handles; the answer is the refusal of the smallest. */
static CUresult do_fill(stage *s) {
  CUmemGenericAllocationHandle handle;
  CUresult code = CUDA_SUCCESS;
  size_t bytes = 2 * GIB;
  while (bytes >= s->granule) {
    code = s->gpu.cuMemCreate(&handle, bytes, &s->prop, 0);
    if (code != CUDA_SUCCESS) bytes /= 2;
  }
  return code;
}

/* begin MODE [STREAM]: 0 global, 1 thread-local, 2 relaxed */
static CUresult do_begin(stage *s, const words *w) {
  s->captured = stream_of(s, *w->of[2] ? w->of[2] : "s");
  return s->gpu.cuStreamBeginCapture(s->captured, (CUstreamCaptureMode)number_of(w->of[1]));
}

#define IS(name) (strcmp(w->of[0], name) == 0)
#define AT place_of(s, w->of[1])
#define BYTES bytes_of(s, w->of[2])
#define STREAM stream_of(s, w->of[1])

/* Of memory: map AT HANDLE [BYTES [OFFSET [FLAGS]]]; unmap, free, kernel AT BYTES. */
static CUresult call_on_memory(stage *s, const words *w) {
  uint32_t word = 1;
  size_t free_bytes, total_bytes;
  CUdeviceptr allocated;
  if (IS("map"))
    return s->gpu.cuMemMap(AT,
                           bytes_of(s, *w->of[3]          ? w->of[3]
                                       : *w->of[2] == 'w' ? "2"
                                                          : "1"),
                           bytes_of(s, w->of[4]), handle_of(s, w->of[2]), number_of(w->of[5]));
  if (IS("unmap")) return s->gpu.cuMemUnmap(AT, BYTES);
  if (IS("free")) return s->gpu.cuMemAddressFree(AT, BYTES);
  if (IS("grant")) return do_grant(s, w);
  if (IS("read")) return s->gpu.cuMemcpyDtoH(&word, AT, sizeof(word));
  if (IS("write")) return s->gpu.cuMemcpyHtoD(AT, &word, sizeof(word));
  if (IS("set")) return s->gpu.cuMemsetD32Async(AT, 1, 16, s->streams[0]);
  if (IS("kernel")) return gpu_fill(&s->gpu, &s->kernels, s->streams[0], AT, BYTES / 4, 1);
  if (IS("reserve") || IS("lose")) return do_reserve(s, w);
  if (IS("create")) return do_create(s, w);
  if (IS("release")) return s->gpu.cuMemRelease(handle_of(s, w->of[1]));
  if (IS("retain")) return do_retain(s, w);
  if (IS("fill")) return do_fill(s);
  if (IS("alloc")) return s->gpu.cuMemAlloc(&allocated, 1024);
  if (IS("info")) return s->gpu.cuMemGetInfo(&free_bytes, &total_bytes);
  fail("%s: no such call", w->of[0]);
}

/* Of streams, events, captures: spin STREAM MILLISECONDS, exchange [MODE], without one back. */
static CUresult call_one(stage *s, const words *w) {
  CUgraph graph;
  if (IS("init")) return s->gpu.cuInit(0);
  if (IS("leave")) return s->gpu.cuCtxSetCurrent(NULL);
  if (IS("open")) return s->gpu.cuStreamCreate(&s->streams[3], number_of(w->of[1]));
  if (IS("close")) return s->gpu.cuStreamDestroy(s->streams[3]);
  if (IS("spin")) return gpu_spin(&s->gpu, &s->kernels, STREAM, number_of(w->of[2]) * MS_NS);
  if (IS("record")) return s->gpu.cuEventRecord(s->event, STREAM);
  if (IS("wait")) return s->gpu.cuStreamWaitEvent(STREAM, s->event, 0);
  if (IS("query")) return *w->of[1] ? s->gpu.cuStreamQuery(STREAM) : s->gpu.cuEventQuery(s->event);
  if (IS("await"))
    return *w->of[1] ? s->gpu.cuStreamSynchronize(STREAM) : s->gpu.cuEventSynchronize(s->event);
  if (IS("destroy")) return s->gpu.cuEventDestroy(s->event);
  if (IS("begin")) return do_begin(s, w);
  if (IS("end")) return s->gpu.cuStreamEndCapture(s->captured, &graph);
  if (!IS("exchange")) return call_on_memory(s, w);
  if (*w->of[1]) s->mode = (CUstreamCaptureMode)number_of(w->of[1]);
  return s->gpu.cuThreadExchangeStreamCaptureMode(&s->mode);
}
#undef IS
#undef AT
#undef BYTES
#undef STREAM

/* ---- A row ----------------------------------------------------------------------------------- */

typedef struct elsewhere { /* a call of another thread, or of a child */
  stage *s;
  const words *w;
  CUresult code;
} elsewhere;

static void *run_on_thread(void *user) {
  elsewhere *e = (elsewhere *)user;
  e->code = e->s->gpu.cuCtxSetCurrent(e->s->context);
  if (e->code == CUDA_SUCCESS) e->code = call_one(e->s, e->w);
  return NULL;
}

static void run_in_fork(void *user) {
  elsewhere *e = (elsewhere *)user;
  e->code = call_one(e->s, e->w);
}

static CUresult call_elsewhere(stage *s, const words *w, char how) {
  elsewhere *e = (elsewhere *)shared_bytes(sizeof(*e));
  CUresult code;
  pthread_t thread;
  e->s = s;
  e->w = w;
  e->code = CUDA_ERROR_UNKNOWN;
  if (how == '%')
    (void)run_apart(run_in_fork, e);
  else if (pthread_create(&thread, NULL, run_on_thread, e) == 0)
    (void)pthread_join(thread, NULL);
  code = e->code;
  (void)munmap(e, sizeof(*e));
  return code;
}

/* One call, without what stands in front of it. */
static CUresult call(stage *s, const char *text, size_t length, char how) {
  words w;
  char *rest = NULL;
  size_t i;
  require(length < sizeof(w.text), "%s: too long a call", text);
  memcpy(w.text, text, length);
  w.text[length] = '\0';
  for (i = 0; i <= ARGUMENTS_MAX; i++) {
    const char *word = strtok_r(i ? NULL : w.text, " ", &rest);
    w.of[i] = word ? word : "";
  }
  return how == '@' || how == '%' ? call_elsewhere(s, &w, how) : call_one(s, &w);
}

/* The row's answer. */
static CUresult play(stage *s, const char *line) {
  CUresult code = CUDA_SUCCESS;
  while (*line) {
    const char how = strchr("~@%", *line) ? *line++ : ' ';
    const size_t length = strcspn(line, ";&");
    code = call(s, line, length, how);
    if (how == '~') code = CUDA_SUCCESS;
    s->is_broken = code != CUDA_SUCCESS && line[length] == ';';
    if (code != CUDA_SUCCESS) return code;
    line += length;
    line += strspn(line, ";& ");
  }
  return code;
}

/* ---- Running it ------------------------------------------------------------------------------ */

/* What is not there for a row makes no answer. */
#define PREPARE(call)                   \
  do {                                  \
    if ((call) != CUDA_SUCCESS) return; \
  } while (0)

typedef struct answer { /* of one driver to one row */
  const char *path;
  const row *r;
  int code, is_broken;
} answer;

static void play_row(stage *s, answer *a, const char *line) {
  a->code = (int)play(s, line);
  a->is_broken = s->is_broken;
}

/* pre: this process has called no driver yet. */
static void answer_here(void *user) {
  static stage s;
  answer *a = (answer *)user;
  size_t i;
  if (!gpu_open(&s.gpu, a->path)) return;
  s.granule = CHUNK;
  if (*a->r->line == '!') {
    play_row(&s, a, a->r->line + 1);
    return;
  }
  PREPARE(s.gpu.cuInit(0));
  PREPARE(s.gpu.cuDeviceGet(&s.device, 0));
  PREPARE(s.gpu.cuDevicePrimaryCtxRetain(&s.context, s.device));
  PREPARE(s.gpu.cuCtxSetCurrent(s.context));
  PREPARE(gpu_load_kernels(&s.gpu, &s.kernels));
  s.prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  s.prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  s.prop.location.id = s.device;
  PREPARE(
      s.gpu.cuMemGetAllocationGranularity(&s.granule, &s.prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  PREPARE(s.gpu.cuMemAddressReserve(&s.base, RESERVED_GRANULES * s.granule, 0, 0, 0));
  for (i = 0; i < 3; i++)
    PREPARE(s.gpu.cuMemCreate(&s.handles[i], (1 + i / 2) * s.granule, &s.prop, 0));
  for (i = 0; i < 2; i++) PREPARE(s.gpu.cuStreamCreate(&s.streams[i], CU_STREAM_NON_BLOCKING));
  PREPARE(s.gpu.cuEventCreate(&s.event, CU_EVENT_DISABLE_TIMING));
  s.captured = s.streams[0];
  play_row(&s, a, a->r->line);
}

static answer answer_of(const char *path, const row *r) {
  answer *a = (answer *)shared_bytes(sizeof(*a));
  answer given;
  int status;
  a->path = path;
  a->r = r;
  a->code = NO_ANSWER;
  status = run_apart(answer_here, a);
  given = *a;
  (void)munmap(a, sizeof(*a));
  if (given.code == NO_ANSWER && WIFSIGNALED(status) && WTERMSIG(status) != SIGALRM)
    given.code = DIED;
  require(given.code != NO_ANSWER, "%s: no answer of %s", r->name, path);
  return given;
}

/* Whether the row is as it should be; says why not. Prints it where it is of interest. */
static int row_holds(const row *r, const answer *driver, const answer *mock, int is_recorded_device,
                     size_t *notes) {
  const int differs = r->recorded != driver->code && !rig.is_fake;
  const int refused = driver->code > 0 || driver->code == DIED || r->recorded > 0;
  const char *verdict = "";
  if (refused && mock->code == 0)
    verdict = "FAILED: the mock accepts it";
  else if (r->recorded > 0 && mock->code != r->recorded)
    verdict = "FAILED: the mock refuses it by another number";
  else if (driver->is_broken && !rig.is_fake)
    verdict = "FAILED: refused before the decisive call";
  else if (differs)
    verdict = is_recorded_device ? "FAILED: not as recorded" : "note: not as recorded";
  *notes += verdict[0] == 'n';
  if (options.prints_table || verdict[0])
    printf("  %-50s %4d %4d %4d%s%s\n", r->name, r->recorded, driver->code, mock->code,
           verdict[0] ? "  " : "", verdict);
  return verdict[0] != 'F';
}

static void case_misuse(void) {
  size_t i, notes = 0, failures = 0;
  const int is_recorded = strstr(rig.name, "H200") != NULL;
  (void)setenv("FAKE_CUDA_SEED", "1", 0); /* without one all its work completes at once */
  if (options.prints_table) printf("  %-50s %4s %4s %4s\n", "", "H200", "here", "mock");
  for (i = 0; i < count_of(rows); i++) {
    const answer driver = answer_of("libcuda.so.1", &rows[i]);
    const answer mock = answer_of(options.fake_path, &rows[i]);
    failures += !row_holds(&rows[i], &driver, &mock, is_recorded, &notes);
  }
  (void)fflush(stdout);
  require(failures == 0, "%zu of %zu rows", failures, count_of(rows));
  tell("%zu rows, %zu notes", count_of(rows), notes);
}

#endif
