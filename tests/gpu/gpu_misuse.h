/* Misuse of the driver, made to the machine's driver and to gmlake.h's mock alike: one table of
   rows, each with what an H200 answered (driver 580). The rule that the mock is held to: whatever
   the driver refuses, the mock refuses. Include after gpu_fixture.h. */
#if !defined(GPU_MISUSE_H)
#define GPU_MISUSE_H

#include "gpu_misuse_words.h"

#include <signal.h>
#include <sys/wait.h>

/* ---- The table ------------------------------------------------------------------------------- */

enum { SHARED, ALONE, UNINITIALISED }; /* processes; the last without cuInit */

typedef struct row {
  const char *name;
  int recorded;
  int process;
  const char *line;
} row;

#define MEMORY "create 1 & reserve 1 & map 0 a & grant 0 1 & unmap 0 1"
#define MEMORY_ELSEWHERE "@create 1 & @reserve 1 & @map 0 a & @grant 0 1 & @unmap 0 1"

static const row rows[] = {
    {"create before cuInit", 3, UNINITIALISED, "create 1"},
    {"reserve before cuInit", 3, UNINITIALISED, "reserve 1"},
    {"create in a forked child", 3, ALONE, "%create 1"},
    {"reserve in a forked child", 3, ALONE, "%reserve 1"},
    {"cuInit in a forked child", 3, ALONE, "%init"},
    {"unmap under a running kernel, synchronise", 700, ALONE,
     "map 0 w; grant 0 2; spin s 50; kernel 0 2; unmap 0 2; await s"},
    {"kernel writes to address 0, synchronise", 700, ALONE, "kernel null 64b; await s"},
    {"event query after a fault", 700, ALONE, "record o; ~kernel null 64b; ~await s; query"},
    {"memory info after a fault", 700, ALONE, "~kernel null 64b; ~await s; info"},
    {"create, reserve, map, unmap after a fault", 0, ALONE, "~kernel null 64b; ~await s; " MEMORY},
    {"record an event on a destroyed stream", DIED, ALONE, "open 1; close; record t"},
    {"wait for an event on a destroyed stream", DIED, ALONE, "open 1; record o; close; wait t"},
    {"unmap what was never mapped", 0, SHARED, "unmap 0 1"},
    {"map less than the handle", 801, SHARED, "map 0 w 1"},
    {"map from an offset", 801, SHARED, "map 0 w 1 1"},
    {"map with flags", 1, SHARED, "map 0 a 1 0 1"},
    {"map at half a granule", 1, SHARED, "map .5 a"},
    {"map past the reservation's end", 0, SHARED, "map 7 w"},
    {"map outside any reservation", 1, SHARED, "lose 1; map gone a"},
    {"map twice at one address", 1, SHARED, "map 0 a; map 0 b"},
    {"map over a mapping", 1, SHARED, "map 1 a; map 0 w"},
    {"map one handle twice", 0, SHARED, "map 0 a; map 1 a"},
    {"map handle 0", 1, SHARED, "map 0 0"},
    {"map a released handle that is mapped elsewhere", 0, SHARED, "map 0 a; release a; map 1 a"},
    {"unmap half a mapping", 1, SHARED, "map 0 w; unmap 0 1"},
    {"unmap a mapping and a hole", 0, SHARED, "map 0 a; unmap 0 2"},
    {"read what was unmapped with a hole", 1, SHARED, "map 0 a; grant 0 1; unmap 0 2; read 0"},
    {"unmap two mappings at once", 0, SHARED, "map 0 a; map 1 b; unmap 0 2"},
    {"unmap across two mappings", 1, SHARED, "map 0 w; map 2 a; unmap 1 2"},
    {"unmap twice", 0, SHARED, "map 0 a; unmap 0 1; unmap 0 1"},
    {"read before access is set", 1, SHARED, "map 0 a; read 0"},
    {"memset before access is set", 1, SHARED, "map 0 a; set 0"},
    {"access to half a mapping", 1, SHARED, "map 0 w; grant 0 1"},
    {"read after that", 1, SHARED, "map 0 w; ~grant 0 1; read 0"},
    {"access to a mapping and a hole", 1, SHARED, "map 0 a; grant 0 2"},
    {"read after that", 1, SHARED, "map 0 a; ~grant 0 2; read 0"},
    {"access to what is not mapped", 1, SHARED, "grant 0 1"},
    {"access set twice", 0, SHARED, "map 0 a; grant 0 1; grant 0 1"},
    {"access for nobody", 1, SHARED, "map 0 a; grant 0 1 nobody"},
    {"read what is not mapped", 1, SHARED, "read 0"},
    {"free addresses that are mapped", 1, SHARED, "map 0 a; free 0 8"},
    {"read after that", 0, SHARED, "map 0 a; grant 0 1; ~free 0 8; read 0"},
    {"free a part of a reservation", 1, SHARED, "free 0 1"},
    {"free from the middle of a reservation", 1, SHARED, "free 1 7"},
    {"free addresses twice", 1, SHARED, "lose 1; free gone 1"},
    {"reserve a granule and a byte", 1, SHARED, "reserve 1+"},
    {"reserve half a granule", 1, SHARED, "reserve .5"},
    {"reserve nothing", 1, SHARED, "reserve 0"},
    {"reserve aligned to 3", 1, SHARED, "reserve 1 3b"},
    {"reserve aligned to 1 TiB", 0, SHARED, "reserve 1 1T"},
    {"reserve 120 TiB", 2, SHARED, "reserve 120T"},
    {"reserve with flags", 1, SHARED, "reserve 1 0 1"},
    {"release what is mapped", 0, SHARED, "map 0 a; grant 0 1; release a"},
    {"write to what was released mapped", 0, SHARED, "map 0 a; grant 0 1; release a; write 0"},
    {"retain the handle of what was released mapped", 0, SHARED,
     "map 0 a; grant 0 1; release a; retain 0"},
    {"retain the handle of what is not mapped", 1, SHARED, "retain 0"},
    {"release twice", 1, SHARED, "release a; release a"},
    {"create one granule and a half", 1, SHARED, "create 1.5"},
    {"create nothing", 1, SHARED, "create 0"},
    {"create more than the device has", 2, SHARED, "create all"},
    {"create with flags", 1, SHARED, "create 1 1"},
    {"create without a type", 1, SHARED, "create 1 0 0"},
    {"create on device 1000", 101, SHARED, "create 1 0 1 1000"},
    {"create when the device is full", 2, SHARED, "fill"},
    {"map and set access when the device is full", 0, SHARED, "~fill; map 0 a & grant 0 1"},
    {"create, reserve, map, unmap without a context", 0, SHARED, "leave; " MEMORY},
    {"query an event never recorded", 0, SHARED, "query"},
    {"await an event never recorded", 0, SHARED, "await"},
    {"wait on a stream for an event never recorded", 0, SHARED, "wait s"},
    {"destroy an event that a stream waits for", 0, SHARED, "spin s 2; record s; wait o; destroy"},
    {"destroy a stream at work", 0, SHARED, "open 1; spin t 2; close"},
    {"await an event of a destroyed stream", 0, SHARED, "open 1; spin t 2; record t; close; await"},
    {"memory calls in a global capture, end", 0, SHARED, "begin 0; " MEMORY " & end"},
    {"memory calls in a thread-local capture, end", 0, SHARED, "begin 1; " MEMORY " & end"},
    {"memory calls in a relaxed capture, end", 0, SHARED, "begin 2; " MEMORY " & end"},
    {"event query in a global capture", 900, SHARED, "record o; begin 0; query"},
    {"event query in a thread-local capture", 900, SHARED, "record o; begin 1; query"},
    {"event query in a relaxed capture", 0, SHARED, "record o; begin 2; query"},
    {"end of a capture after an event query", 901, SHARED, "record o; begin 0; ~query; end"},
    {"event query in it under the relaxed exchange, end", 0, SHARED,
     "record o; begin 0; exchange 2 & query & exchange & end"},
    {"await an event in a global capture", 900, SHARED, "record o; begin 0; await"},
    {"cuMemAlloc in a global capture", 900, SHARED, "begin 0; alloc"},
    {"cuMemAlloc in a thread-local capture", 900, SHARED, "begin 1; alloc"},
    {"cuMemAlloc in a relaxed capture", 0, SHARED, "begin 2; alloc"},
    {"event query on another thread, global", 900, SHARED, "record o; begin 0; @query"},
    {"event query on another thread, thread-local", 0, SHARED, "record o; begin 1; @query"},
    {"memory calls on another thread, global, end", 0, SHARED,
     "begin 0; " MEMORY_ELSEWHERE " & end"},
    {"memory calls on another thread, thread-local, end", 0, SHARED,
     "begin 1; " MEMORY_ELSEWHERE " & end"},
    {"begin a capture twice", 401, SHARED, "begin 2; begin 2"},
    {"capture the legacy stream", 900, SHARED, "begin 2 l"},
    {"end without a capture", 401, SHARED, "end"},
    {"synchronise a captured stream", 900, SHARED, "begin 2; await s"},
    {"query a captured stream", 900, SHARED, "begin 2; query s"},
    {"query an event recorded in a capture", 907, SHARED, "begin 2; ~record s; query"},
    {"wait in a capture for an event outside", 905, SHARED, "record o; begin 2; wait s"},
    {"legacy stream while a blocking one is captured", 906, SHARED, "open 0; begin 2 t & record l"},
    {"exchange to capture mode 7", 0, SHARED, "exchange 7"},
};

/* ---- Running it ------------------------------------------------------------------------------ */

/* A call that prepares the rows; where it is refused, none can be run. */
#define PREPARE(call)                 \
  do {                                \
    const CUresult prepared = (call); \
    if (prepared != CUDA_SUCCESS) {   \
      s->broken = #call;              \
      return prepared;                \
    }                                 \
  } while (0)

/* pre: s->gpu is open. */
static CUresult stage_start(stage *s) {
  PREPARE(s->gpu.cuInit(0));
  PREPARE(s->gpu.cuDeviceGet(&s->device, 0));
  PREPARE(s->gpu.cuDevicePrimaryCtxRetain(&s->context, s->device));
  PREPARE(s->gpu.cuCtxSetCurrent(s->context));
  PREPARE(gpu_load_kernels(&s->gpu, &s->kernels));
  s->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  s->prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  s->prop.location.id = s->device;
  return s->gpu.cuMemGetAllocationGranularity(&s->granule, &s->prop,
                                              CU_MEM_ALLOC_GRANULARITY_MINIMUM);
}

static CUresult stage_set(stage *s) {
  size_t i;
  s->broken = NULL;
  memset(s->is_released, 0, sizeof(s->is_released));
  PREPARE(s->gpu.cuMemAddressReserve(&s->base, RESERVED_GRANULES * s->granule, 0, 0, 0));
  for (i = 0; i < 3; i++)
    PREPARE(s->gpu.cuMemCreate(&s->handles[i], (1 + i / 2) * s->granule, &s->prop, 0));
  for (i = 0; i < 2; i++) PREPARE(s->gpu.cuStreamCreate(&s->streams[i], CU_STREAM_NON_BLOCKING));
  return s->gpu.cuEventCreate(&s->event, CU_EVENT_DISABLE_TIMING);
}

/* Tidies up; what the row has already undone is refused, which is as well. */
static void stage_clear(stage *s) {
  const words none = {"", {"end", "", "", "", "", ""}};
  size_t i;
  (void)s->gpu.cuCtxSetCurrent(s->context);
  if (s->is_capturing) (void)do_end(s, &none);
  if (s->allocated) (void)s->gpu.cuMemFree(s->allocated);
  s->allocated = 0;
  (void)s->gpu.cuCtxSynchronize();
  while (s->fill_count) (void)s->gpu.cuMemRelease(s->fill[--s->fill_count]);
  while (s->mapped_count) {
    s->mapped_count--;
    (void)s->gpu.cuMemUnmap(s->mapped[s->mapped_count].address, s->mapped[s->mapped_count].bytes);
  }
  for (i = 0; i < 3; i++)
    if (!s->is_released[i]) (void)s->gpu.cuMemRelease(s->handles[i]);
  (void)s->gpu.cuMemAddressFree(s->base, RESERVED_GRANULES * s->granule);
  for (i = 0; i < 2; i++) (void)s->gpu.cuStreamDestroy(s->streams[i]);
  if (s->is_open) (void)do_close(s, &none);
  if (s->event) (void)do_destroy(s, &none);
}

typedef struct answer { /* of one driver to one row */
  int code, is_broken;
} answer;

static answer answer_of(stage *s, const row *r) {
  answer given;
  given.code = (int)stage_set(s);
  require(given.code == 0, "%s: %s answers %d", r->name, s->broken ? s->broken : "the last call",
          given.code);
  given.code = (int)play(s, r->line);
  given.is_broken = s->broken != NULL;
  stage_clear(s);
  return given;
}

static void answer_alone(const char *path, const row *r, answer *out) {
  static stage s;
  (void)alarm(patience());
  out->code = NOT_RECORDED;
  if (!gpu_open(&s.gpu, path)) _exit(1);
  s.granule = CHUNK;
  if (r->process != UNINITIALISED && (stage_start(&s) || stage_set(&s))) _exit(1);
  out->code = (int)play(&s, r->line);
  out->is_broken = s.broken != NULL;
  _exit(0);
}

/* pre: this process has called no driver yet. */
static answer answer_in_child(const char *path, const row *r) {
  answer *shared = (answer *)mmap(NULL, sizeof(answer), PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  answer given;
  pid_t child;
  int status = 0;
  require((void *)shared != MAP_FAILED, "no memory");
  child = fork();
  if (child == 0) answer_alone(path, r, shared);
  require(child > 0 && waitpid(child, &status, 0) == child, "no child");
  given = *shared;
  (void)munmap(shared, sizeof(*shared));
  if (given.code == NOT_RECORDED && WIFSIGNALED(status) && WTERMSIG(status) != SIGALRM)
    given.code = DIED;
  require(given.code != NOT_RECORDED, "%s: no answer of %s", r->name, path);
  return given;
}

/* Whether the row is as it should be; says why not. Prints it where it is of interest. */
static int row_holds(const row *r, const answer *driver, const answer *mock, int is_recorded_device,
                     size_t *notes) {
  const int differs = r->recorded != NOT_RECORDED && r->recorded != driver->code && !rig.is_fake;
  const int refused = driver->code > 0 || driver->code == DIED || r->recorded > 0;
  const char *verdict = "";
  if (refused && mock->code == 0)
    verdict = "FAILED: the mock accepts it";
  else if (driver->is_broken && !rig.is_fake)
    verdict = "FAILED: refused before the decisive call";
  else if (differs)
    verdict = is_recorded_device ? "FAILED: not as recorded" : "note: not as recorded";
  *notes += verdict[0] == 'n';
  if (options.prints_table || verdict[0]) {
    char recorded[12] = "-";
    if (r->recorded != NOT_RECORDED) (void)snprintf(recorded, sizeof(recorded), "%d", r->recorded);
    printf("  %-50s %4s %4d %4d%s%s\n", r->name, recorded, driver->code, mock->code,
           verdict[0] ? "  " : "", verdict);
  }
  return verdict[0] != 'F';
}

static void open_stage(stage *s, const char *path) {
  CUresult code;
  require(gpu_open(&s->gpu, path), "%s cannot be opened", path);
  code = stage_start(s);
  require(code == CUDA_SUCCESS, "%s: %s answers %d", path, s->broken ? s->broken : "the last call",
          (int)code);
}

static answer answer_with(stage *s, const char *path, const row *r) {
  CUresult code;
  if (r->process != SHARED) return answer_in_child(path, r);
  if (!s->context) open_stage(s, path);
  code = s->gpu.cuCtxSetCurrent(s->context);
  require(code == CUDA_SUCCESS, "%s: cuCtxSetCurrent answers %d", path, (int)code);
  return answer_of(s, r);
}

/* The machine's driver is opened first: the other library has its name inside, by which it would
   be taken for the first. Rows that end their process come first in the table, so that this one
   has called no driver when it forks. */
static void case_misuse(void) {
  static stage driver_stage, mock_stage;
  size_t i, notes = 0, failures = 0, skipped = 0;
  const int is_recorded = strstr(rig.name, "H200") != NULL;
  (void)setenv("FAKE_CUDA_SEED", "1", 0); /* without one all its work completes at once */
  if (options.prints_table) printf("  %-50s %4s %4s %4s\n", "", "H200", "here", "mock");
  for (i = 0; i < count_of(rows); i++) {
    answer driver, mock;
    if (rows[i].process != SHARED && options.no_fork) {
      skipped++;
      continue;
    }
    driver = answer_with(&driver_stage, "libcuda.so.1", &rows[i]);
    mock = answer_with(&mock_stage, options.fake_path, &rows[i]);
    failures += !row_holds(&rows[i], &driver, &mock, is_recorded, &notes);
  }
  (void)fflush(stdout);
  require(failures == 0, "%zu of %zu rows", failures, count_of(rows));
  tell("%zu rows, %zu notes", count_of(rows) - skipped, notes);
}

#endif
