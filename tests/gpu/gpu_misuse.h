/* Misuse of the driver, made to the machine's driver and to gmlake.h's mock alike: one table of
   rows, each with what an H200 answered (driver 580). The rule that the mock is held to: whatever
   the driver refuses, the mock refuses. Include after gpu_fixture.h. */
#if !defined(GPU_MISUSE_H)
#define GPU_MISUSE_H

#include "gpu_misuse_rows.h"

#include <signal.h>
#include <sys/wait.h>

/* ---- The table ------------------------------------------------------------------------------- */

enum { SHARED, ALONE, UNINITIALISED }; /* processes; the last without cuInit */

typedef struct row {
  const char *name;
  int recorded;
  int process;
  CUresult (*call)(stage *s);
} row;

static const row rows[] = {
    {"create before cuInit", 3, UNINITIALISED, create_before_init},
    {"reserve before cuInit", 3, UNINITIALISED, reserve_before_init},
    {"create in a forked child", 3, ALONE, create_forked},
    {"reserve in a forked child", 3, ALONE, reserve_forked},
    {"cuInit in a forked child", 3, ALONE, init_forked},
    {"unmap under a running kernel, synchronise", 700, ALONE, unmap_running},
    {"kernel writes to address 0, synchronise", 700, ALONE, fault},
    {"event query after a fault", 700, ALONE, query_after_fault},
    {"memory info after a fault", 700, ALONE, info_after_fault},
    {"create, reserve, map, unmap after a fault", 0, ALONE, memory_after_fault},
    {"record an event on a destroyed stream", DIED, ALONE, record_on_destroyed_stream},
    {"wait for an event on a destroyed stream", DIED, ALONE, wait_on_destroyed_stream},
    {"unmap what was never mapped", 0, SHARED, unmap_never_mapped},
    {"map less than the handle", 801, SHARED, map_part},
    {"map from an offset", 801, SHARED, map_offset},
    {"map with flags", 1, SHARED, map_flags},
    {"map at half a granule", 1, SHARED, map_unaligned},
    {"map past the reservation's end", 0, SHARED, map_past_end},
    {"map outside any reservation", 1, SHARED, map_outside},
    {"map twice at one address", 1, SHARED, map_twice},
    {"map over a mapping", 1, SHARED, map_overlapping},
    {"map one handle twice", 0, SHARED, map_alias},
    {"map handle 0", 1, SHARED, map_nothing},
    {"map a released handle that is mapped elsewhere", 0, SHARED, map_released},
    {"unmap half a mapping", 1, SHARED, unmap_half},
    {"unmap a mapping and a hole", 0, SHARED, unmap_with_hole},
    {"read what was unmapped with a hole", 1, SHARED, read_after_unmap_with_hole},
    {"unmap two mappings at once", 0, SHARED, unmap_two},
    {"unmap across two mappings", 1, SHARED, unmap_straddling},
    {"unmap twice", 0, SHARED, unmap_twice},
    {"read before access is set", 1, SHARED, read_without_access},
    {"memset before access is set", 1, SHARED, set_without_access},
    {"access to half a mapping", 1, SHARED, grant_half},
    {"read after that", 1, SHARED, read_after_grant_half},
    {"access to a mapping and a hole", 1, SHARED, grant_with_hole},
    {"read after that", 1, SHARED, read_after_grant_with_hole},
    {"access to what is not mapped", 1, SHARED, grant_unmapped},
    {"access set twice", 0, SHARED, grant_twice},
    {"access for nobody", 1, SHARED, grant_nobody},
    {"read what is not mapped", 1, SHARED, read_unmapped},
    {"free addresses that are mapped", 1, SHARED, unreserve_mapped},
    {"read after that", 0, SHARED, read_after_unreserve_mapped},
    {"free a part of a reservation", 1, SHARED, unreserve_part},
    {"free from the middle of a reservation", 1, SHARED, unreserve_interior},
    {"free addresses twice", 1, SHARED, unreserve_twice},
    {"reserve a granule and a byte", 1, SHARED, reserve_odd},
    {"reserve half a granule", 1, SHARED, reserve_half},
    {"reserve nothing", 1, SHARED, reserve_nothing},
    {"reserve aligned to 3", 1, SHARED, reserve_alignment_3},
    {"reserve aligned to 1 TiB", 0, SHARED, reserve_alignment_tib},
    {"reserve 120 TiB", 2, SHARED, reserve_too_much},
    {"reserve with flags", 1, SHARED, reserve_flags},
    {"release what is mapped", 0, SHARED, release_mapped},
    {"write to what was released mapped", 0, SHARED, write_released},
    {"retain the handle of what was released mapped", 0, SHARED, retain_released},
    {"retain the handle of what is not mapped", 1, SHARED, retain_unmapped},
    {"release twice", 1, SHARED, release_twice},
    {"create one granule and a half", 1, SHARED, create_odd},
    {"create nothing", 1, SHARED, create_nothing},
    {"create more than the device has", 2, SHARED, create_too_much},
    {"create with flags", 1, SHARED, create_flags},
    {"create without a type", 1, SHARED, create_untyped},
    {"create on device 1000", 101, SHARED, create_nowhere},
    {"create when the device is full", 2, SHARED, create_when_full},
    {"map and set access when the device is full", 0, SHARED, map_when_full},
    {"create, reserve, map, unmap without a context", 0, SHARED, use_without_context},
    {"query an event never recorded", 0, SHARED, query_unrecorded},
    {"await an event never recorded", 0, SHARED, await_unrecorded},
    {"wait on a stream for an event never recorded", 0, SHARED, wait_unrecorded},
    {"destroy an event that a stream waits for", 0, SHARED, destroy_pending_event},
    {"destroy a stream at work", 0, SHARED, destroy_busy_stream},
    {"await an event of a destroyed stream", 0, SHARED, query_event_of_destroyed_stream},
    {"memory calls in a global capture, end", 0, SHARED, memory_in_global},
    {"memory calls in a thread-local capture, end", 0, SHARED, memory_in_thread_local},
    {"memory calls in a relaxed capture, end", 0, SHARED, memory_in_relaxed},
    {"event query in a global capture", 900, SHARED, query_in_global},
    {"event query in a thread-local capture", 900, SHARED, query_in_thread_local},
    {"event query in a relaxed capture", 0, SHARED, query_in_relaxed},
    {"end of a capture after an event query", 901, SHARED, end_after_query},
    {"event query in it under the relaxed exchange, end", 0, SHARED, query_under_exchange},
    {"await an event in a global capture", 900, SHARED, await_event_in_global},
    {"cuMemAlloc in a global capture", 900, SHARED, alloc_in_global},
    {"cuMemAlloc in a thread-local capture", 900, SHARED, alloc_in_thread_local},
    {"cuMemAlloc in a relaxed capture", 0, SHARED, alloc_in_relaxed},
    {"event query on another thread, global", 900, SHARED, query_elsewhere_in_global},
    {"event query on another thread, thread-local", 0, SHARED, query_elsewhere_in_thread_local},
    {"memory calls on another thread, global, end", 0, SHARED, memory_elsewhere_in_global},
    {"memory calls on another thread, thread-local, end", 0, SHARED,
     memory_elsewhere_in_thread_local},
    {"begin a capture twice", 401, SHARED, begin_twice},
    {"capture the legacy stream", 900, SHARED, begin_legacy},
    {"end without a capture", 401, SHARED, end_without_begin},
    {"synchronise a captured stream", 900, SHARED, await_captured_stream},
    {"query a captured stream", 900, SHARED, query_captured_stream},
    {"query an event recorded in a capture", 907, SHARED, query_captured_event},
    {"wait in a capture for an event outside", 905, SHARED, wait_for_outside_in_capture},
    {"legacy stream while a blocking one is captured", 906, SHARED, use_legacy_in_capture},
    {"exchange to capture mode 7", 0, SHARED, exchange_mode_7},
};

/* ---- Running it ------------------------------------------------------------------------------ */

/* pre: s->gpu is open; on a failure the row cannot be run. */
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
  s->mapped_count = 0;
  s->broken_line = 0;
  PREPARE(s->gpu.cuMemAddressReserve(&s->base, RESERVED_GRANULES * s->granule, 0, 0, 0));
  PREPARE(create(s, s->granule, &s->a));
  PREPARE(create(s, s->granule, &s->b));
  PREPARE(create(s, 2 * s->granule, &s->wide));
  PREPARE(s->gpu.cuStreamCreate(&s->stream, CU_STREAM_NON_BLOCKING));
  PREPARE(s->gpu.cuStreamCreate(&s->other, CU_STREAM_NON_BLOCKING));
  return s->gpu.cuEventCreate(&s->event, CU_EVENT_DISABLE_TIMING);
}

/* Tidies up; what the row has already undone is refused, which is as well. */
static void stage_clear(stage *s) {
  (void)s->gpu.cuCtxSynchronize();
  while (s->mapped_count) {
    s->mapped_count--;
    (void)s->gpu.cuMemUnmap(s->mapped[s->mapped_count].address, s->mapped[s->mapped_count].bytes);
  }
  if (s->a) (void)s->gpu.cuMemRelease(s->a);
  (void)s->gpu.cuMemRelease(s->b);
  (void)s->gpu.cuMemRelease(s->wide);
  (void)s->gpu.cuMemAddressFree(s->base, RESERVED_GRANULES * s->granule);
  (void)s->gpu.cuStreamDestroy(s->stream);
  (void)s->gpu.cuStreamDestroy(s->other);
  (void)s->gpu.cuEventDestroy(s->event);
}

typedef struct answer { /* of one driver to one row */
  int code, broken_line;
} answer;

static answer answer_of(stage *s, const row *r) {
  answer given;
  given.code = (int)stage_set(s);
  require(given.code == 0, "%s: line %d answers %d", r->name, s->broken_line, given.code);
  given.code = (int)r->call(s);
  given.broken_line = s->broken_line;
  stage_clear(s);
  return given;
}

static void answer_alone(const char *path, const row *r, answer *out) {
  static stage s;
  (void)alarm(patience());
  out->code = NOT_RECORDED;
  if (!gpu_open(&s.gpu, path)) _exit(1);
  if (r->process != UNINITIALISED && (stage_start(&s) || stage_set(&s))) _exit(1);
  out->code = (int)r->call(&s);
  out->broken_line = s.broken_line;
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
  else if (driver->broken_line && !rig.is_fake)
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
  require(code == CUDA_SUCCESS, "%s, line %d answers %d", path, s->broken_line, (int)code);
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
