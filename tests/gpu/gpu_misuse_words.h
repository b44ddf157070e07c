/* The words of the rows of gpu_misuse.h. A row is a line of calls: behind `;` comes one that the
   calls before prepare, and where one of those is refused, that is the row's answer. The last one's
   answer is the row's; `&` joins calls that are decisive together: the first refusal answers. In
   front of a call `~` says that its answer is of no interest, `@` that another thread makes it, `%`
   that a forked child does. Include after gpu_fixture.h.

   Granules count places of the reservation and bytes: `1`, `.5`; `1+` is a granule and a byte,
   `64b` bytes, `2T` TiB, `all` more than the device has. Handles are a, b and w, of 1, 1 and 2
   granules. Places are also `gone`, addresses that were given back (by `lose`), and `null`. Streams
   are s and o, which ignore the legacy stream l, and t, which `open` makes. */
#if !defined(GPU_MISUSE_WORDS_H)
#define GPU_MISUSE_WORDS_H

#define RESERVED_GRANULES 8
#define MAPPINGS_MAX 8
#define ARGUMENTS_MAX 5
#define FULL_MAX 4096
#define NOT_RECORDED (-1)
#define DIED (-2) /* the call ended its process */

/* What every row finds: a reservation, three handles, two streams, an event. */
typedef struct stage {
  gpu_driver gpu;
  gpu_kernels kernels;
  CUdevice device;
  CUcontext context;
  CUmemAllocationProp prop;
  size_t granule;
  CUdeviceptr base, gone, allocated; /* allocated: by cuMemAlloc; 0: nothing */
  CUmemGenericAllocationHandle handles[3];
  int is_released[3];
  CUstream streams[4]; /* s, o, l and t */
  int is_open;         /* t is */
  CUevent event;
  CUstream captured; /* the stream that is being captured */
  int is_capturing;
  CUstreamCaptureMode mode; /* that the last exchange gave */
  CUmemGenericAllocationHandle fill[FULL_MAX];
  size_t fill_count;
  struct {
    CUdeviceptr address;
    size_t bytes;
  } mapped[MAPPINGS_MAX];
  size_t mapped_count;
  const char *broken; /* a call that only prepares was refused here; NULL: none was */
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

/* ---- Memory ---------------------------------------------------------------------------------- */

/* map AT HANDLE [BYTES [OFFSET [FLAGS]]] */
static CUresult do_map(stage *s, const words *w) {
  const size_t bytes = bytes_of(s, *w->of[3] ? w->of[3] : *w->of[2] == 'w' ? "2" : "1");
  const CUdeviceptr address = place_of(s, w->of[1]);
  const CUresult code = s->gpu.cuMemMap(address, bytes, bytes_of(s, w->of[4]),
                                        handle_of(s, w->of[2]), number_of(w->of[5]));
  if (code == CUDA_SUCCESS && s->mapped_count < MAPPINGS_MAX) {
    s->mapped[s->mapped_count].address = address;
    s->mapped[s->mapped_count++].bytes = bytes;
  }
  return code;
}

/* unmap AT BYTES */
static CUresult do_unmap(stage *s, const words *w) {
  return s->gpu.cuMemUnmap(place_of(s, w->of[1]), bytes_of(s, w->of[2]));
}

/* grant AT BYTES [nobody] */
static CUresult do_grant(stage *s, const words *w) {
  CUmemAccessDesc access;
  memset(&access, 0, sizeof(access));
  access.location = s->prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return s->gpu.cuMemSetAccess(place_of(s, w->of[1]), bytes_of(s, w->of[2]), &access, !*w->of[3]);
}

static CUresult do_read(stage *s, const words *w) {
  uint32_t word;
  return s->gpu.cuMemcpyDtoH(&word, place_of(s, w->of[1]), sizeof(word));
}

static CUresult do_write(stage *s, const words *w) {
  const uint32_t word = 1;
  return s->gpu.cuMemcpyHtoD(place_of(s, w->of[1]), &word, sizeof(word));
}

static CUresult do_set(stage *s, const words *w) {
  return s->gpu.cuMemsetD32Async(place_of(s, w->of[1]), 1, 16, s->streams[0]);
}

/* A kernel writes there: kernel AT BYTES */
static CUresult do_kernel(stage *s, const words *w) {
  return gpu_fill(&s->gpu, &s->kernels, s->streams[0], place_of(s, w->of[1]),
                  bytes_of(s, w->of[2]) / 4, 1);
}

/* free AT BYTES */
static CUresult do_free(stage *s, const words *w) {
  return s->gpu.cuMemAddressFree(place_of(s, w->of[1]), bytes_of(s, w->of[2]));
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

static CUresult do_release(stage *s, const words *w) {
  const CUresult code = s->gpu.cuMemRelease(handle_of(s, w->of[1]));
  if (code == CUDA_SUCCESS) s->is_released[index_of("abw", w->of[1])] = 1;
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
static CUresult do_fill(stage *s, const words *w) {
  CUresult code = CUDA_SUCCESS;
  size_t bytes = 2 * GIB;
  (void)w;
  while (s->fill_count < FULL_MAX && bytes >= s->granule) {
    code = s->gpu.cuMemCreate(&s->fill[s->fill_count], bytes, &s->prop, 0);
    if (code == CUDA_SUCCESS)
      s->fill_count++;
    else
      bytes /= 2;
  }
  return code;
}

static CUresult do_alloc(stage *s, const words *w) {
  (void)w;
  return s->gpu.cuMemAlloc(&s->allocated, 1024);
}

static CUresult do_info(stage *s, const words *w) {
  size_t free_bytes, total_bytes;
  (void)w;
  return s->gpu.cuMemGetInfo(&free_bytes, &total_bytes);
}

static CUresult do_init(stage *s, const words *w) {
  (void)w;
  return s->gpu.cuInit(0);
}

static CUresult do_leave(stage *s, const words *w) {
  (void)w;
  return s->gpu.cuCtxSetCurrent(NULL);
}

/* ---- Streams, events and captures ------------------------------------------------------------ */

static CUresult do_open(stage *s, const words *w) {
  const CUresult code = s->gpu.cuStreamCreate(&s->streams[3], number_of(w->of[1]));
  s->is_open = code == CUDA_SUCCESS;
  return code;
}

static CUresult do_close(stage *s, const words *w) {
  (void)w;
  s->is_open = 0;
  return s->gpu.cuStreamDestroy(s->streams[3]);
}

/* spin STREAM MILLISECONDS */
static CUresult do_spin(stage *s, const words *w) {
  return gpu_spin(&s->gpu, &s->kernels, stream_of(s, w->of[1]), number_of(w->of[2]) * MS_NS);
}

static CUresult do_record(stage *s, const words *w) {
  return s->gpu.cuEventRecord(s->event, stream_of(s, w->of[1]));
}

static CUresult do_wait(stage *s, const words *w) {
  return s->gpu.cuStreamWaitEvent(stream_of(s, w->of[1]), s->event, 0);
}

static CUresult do_query(stage *s, const words *w) {
  return *w->of[1] ? s->gpu.cuStreamQuery(stream_of(s, w->of[1])) : s->gpu.cuEventQuery(s->event);
}

static CUresult do_await(stage *s, const words *w) {
  return *w->of[1] ? s->gpu.cuStreamSynchronize(stream_of(s, w->of[1]))
                   : s->gpu.cuEventSynchronize(s->event);
}

static CUresult do_destroy(stage *s, const words *w) {
  const CUevent event = s->event;
  (void)w;
  s->event = NULL;
  return s->gpu.cuEventDestroy(event);
}

/* begin MODE [STREAM]: 0 global, 1 thread-local, 2 relaxed */
static CUresult do_begin(stage *s, const words *w) {
  const CUstream stream = stream_of(s, *w->of[2] ? w->of[2] : "s");
  const CUresult code =
      s->gpu.cuStreamBeginCapture(stream, (CUstreamCaptureMode)number_of(w->of[1]));
  if (code != CUDA_SUCCESS) return code;
  s->captured = stream;
  s->is_capturing = 1;
  return code;
}

/* The capture may be spoilt by then, or never have begun. */
static CUresult do_end(stage *s, const words *w) {
  CUgraph graph = NULL;
  const CUresult code =
      s->gpu.cuStreamEndCapture(s->is_capturing ? s->captured : s->streams[0], &graph);
  (void)w;
  if (graph) (void)s->gpu.cuGraphDestroy(graph);
  s->is_capturing = 0;
  return code;
}

/* exchange [MODE]: without one, back */
static CUresult do_exchange(stage *s, const words *w) {
  if (*w->of[1]) s->mode = (CUstreamCaptureMode)number_of(w->of[1]);
  return s->gpu.cuThreadExchangeStreamCaptureMode(&s->mode);
}

/* ---- A row ----------------------------------------------------------------------------------- */

static const struct {
  const char *name;
  CUresult (*call)(stage *s, const words *w);
} verbs[] = {
    {"map", do_map},           {"unmap", do_unmap},     {"grant", do_grant},
    {"read", do_read},         {"write", do_write},     {"set", do_set},
    {"kernel", do_kernel},     {"free", do_free},       {"reserve", do_reserve},
    {"lose", do_reserve},      {"create", do_create},   {"release", do_release},
    {"retain", do_retain},     {"fill", do_fill},       {"alloc", do_alloc},
    {"info", do_info},         {"init", do_init},       {"leave", do_leave},
    {"open", do_open},         {"close", do_close},     {"spin", do_spin},
    {"record", do_record},     {"wait", do_wait},       {"query", do_query},
    {"await", do_await},       {"begin", do_begin},     {"end", do_end},
    {"exchange", do_exchange}, {"destroy", do_destroy},
};

typedef struct elsewhere { /* a call of another thread */
  stage *s;
  const words *w;
  CUresult code;
} elsewhere;

static CUresult call_one(stage *s, const words *w) {
  size_t i = 0;
  while (i < count_of(verbs) && strcmp(verbs[i].name, w->of[0]) != 0) i++;
  require(i < count_of(verbs), "%s: no such call", w->of[0]);
  return verbs[i].call(s, w);
}

static void *run_elsewhere(void *user) {
  elsewhere *e = (elsewhere *)user;
  e->code = e->s->gpu.cuCtxSetCurrent(e->s->context);
  if (e->code == CUDA_SUCCESS) e->code = call_one(e->s, e->w);
  return NULL;
}

static CUresult call_on_thread(stage *s, const words *w) {
  elsewhere e;
  pthread_t thread;
  e.s = s;
  e.w = w;
  e.code = CUDA_ERROR_UNKNOWN;
  if (pthread_create(&thread, NULL, run_elsewhere, &e) == 0) (void)pthread_join(thread, NULL);
  return e.code;
}

static CUresult call_in_child(stage *s, const words *w) {
  int *answer =
      (int *)mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pid_t child;
  if ((void *)answer == MAP_FAILED) return CUDA_ERROR_UNKNOWN;
  *answer = CUDA_ERROR_UNKNOWN;
  child = fork();
  if (child == 0) {
    *answer = (int)call_one(s, w);
    _exit(0);
  }
  if (child > 0) (void)waitpid(child, NULL, 0);
  return (CUresult)*answer;
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
  if (how == '@') return call_on_thread(s, &w);
  return how == '%' ? call_in_child(s, &w) : call_one(s, &w);
}

/* The row's answer. */
static CUresult play(stage *s, const char *line) {
  CUresult code = CUDA_SUCCESS;
  while (*line) {
    const char how = strchr("~@%", *line) ? *line++ : ' ';
    const size_t length = strcspn(line, ";&");
    code = call(s, line, length, how);
    if (how == '~') code = CUDA_SUCCESS;
    if (code != CUDA_SUCCESS && line[length] == ';') s->broken = line;
    if (code != CUDA_SUCCESS) return code;
    line += length;
    line += strspn(line, ";& ");
  }
  return code;
}

#endif
