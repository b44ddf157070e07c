/* Tests of gmlake.h on a GPU, through the machine's own driver: kernels fill and verify what the
   lake hands out while work is in flight, streams are captured, the device is filled, lost and
   left. Each case runs in a process of its own, so that none takes another down. With
   build/fake/libcuda.so.1 as the driver the same cases run, smaller, without a device. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_CUDA
#include "gmlake.h"

#include "gpu.h"
#include "gpu_fixture.h"
#include "gpu_traffic.h"
#include "gpu_capture.h"
#include "gpu_sleep.h"
#include "gpu_costs.h"
#include "gpu_misuse.h"
#include "options.h"

#define ENOUGH_DISTINCT 64 /* streams that are kept while a value is awaited */

/* ---- Stream values that come back ------------------------------------------------------------ */

/* Creates streams until the value comes back; the others are destroyed. NULL: it did not. */
static CUstream await_value(CUstream value) {
  CUstream others[ENOUGH_DISTINCT], found = NULL;
  size_t count = 0;
  while (!found && count < ENOUGH_DISTINCT) {
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    if (stream == value)
      found = stream;
    else
      others[count++] = stream;
  }
  while (count) cu(rig.gpu.cuStreamDestroy(others[--count]));
  return found;
}

typedef struct reuses {
  size_t busy, idle, tries; /* values that came back with work pending, and later */
} reuses;

/* The former stream's kernels still use the block when a new stream of that value gets memory. */
static void reuse_value(gmlake *lake, size_t bytes, reuses *count) {
  CUstream former = new_stream(CU_STREAM_NON_BLOCKING), stream;
  char *ptr = (char *)take(lake, bytes, former);
  fill_on(former, ptr, bytes, 1);
  spin_on(former, 20 * MS_NS);
  verify_on(former, ptr, bytes, 1);
  ok(gmlake_free(lake, ptr, former));
  ok(gmlake_forget_stream(lake, former));
  cu(rig.gpu.cuStreamDestroy(former));
  count->tries++;
  stream = await_value(former);
  count->busy += stream != NULL;
  if (!stream) { /* a driver may keep the value until the work is done */
    cu(rig.gpu.cuCtxSynchronize());
    stream = await_value(former);
    count->idle += stream != NULL;
  }
  if (!stream) stream = new_stream(CU_STREAM_NON_BLOCKING);
  ptr = (char *)take(lake, bytes, stream);
  fill_on(stream, ptr, bytes, 2);
  verify_on(stream, ptr, bytes, 2);
  ok(gmlake_free(lake, ptr, stream));
  ok(gmlake_check(lake));
  await_stream(stream);
  ok(gmlake_forget_stream(lake, stream));
  cu(rig.gpu.cuStreamDestroy(stream));
}

static void case_stream_reuse(void) {
  const size_t bytes = scale(16 * MIB, 2 * MIB);
  reuses count = {0, 0, 0};
  size_t i, is_limited;
  for (is_limited = 0; is_limited < 2; is_limited++) {
    const gmlake_desc desc = small_chunks(is_limited ? bytes : 0);
    gmlake *lake = new_lake(&desc);
    for (i = 0; i < 20; i++) reuse_value(lake, bytes, &count);
    require_no_wrong_words("a stream's value came back");
    close_lake(lake);
  }
  tell("of %zu values %zu came back with work pending, %zu later", count.tries, count.busy,
       count.idle);
}

/* ---- A full device --------------------------------------------------------------------------- */

#define HOGS_MAX 256
#define FULL_BLOCKS 2048

/* Takes memory past the lake until about so much is left. */
static size_t hog_all_but(size_t left_bytes, CUmemGenericAllocationHandle *hogs) {
  CUmemAllocationProp prop;
  size_t bytes = 2 * GIB, count = 0;
  memset(&prop, 0, sizeof(prop));
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = rig.device;
  for (; bytes >= 16 * MIB; bytes /= 2) {
    while (count < HOGS_MAX && free_memory() >= left_bytes + bytes)
      cu(rig.gpu.cuMemCreate(&hogs[count++], bytes, &prop, 0));
  }
  return count;
}

/* Blocks of one size, all filled, until the lake has no more. Answers how many. */
static size_t fill_lake(gmlake *lake, CUstream *streams, size_t bytes, void **blocks) {
  gmlake_error_info info;
  gmlake_result result = GMLAKE_OK;
  size_t count = 0;
  while (count < FULL_BLOCKS) {
    CUstream stream = streams[count % 2];
    result = gmlake_alloc(lake, bytes, stream, &blocks[count]);
    if (result) break;
    fill_on(stream, blocks[count], bytes, (uint32_t)count);
    count++;
  }
  require(result == GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, "a full device is %s",
          gmlake_result_name(result));
  ok(gmlake_get_last_error(lake, &info));
  require(info.result == result && info.asked_bytes == bytes && info.limit_bytes == 0 &&
              info.live_bytes == count * bytes && info.reserved_bytes >= info.live_bytes &&
              info.free_bytes < bytes && info.driver_free_bytes < bytes + 128 * MIB,
          "the report: asked %zu live %zu reserved %zu free %zu driver-free %zu, %zu blocks",
          info.asked_bytes, info.live_bytes, info.reserved_bytes, info.free_bytes,
          info.driver_free_bytes, count);
  return count;
}

static void drop_at_work(gmlake *lake, CUstream stream, void *ptr, size_t bytes, size_t seed) {
  spin_on(stream, 5 * MS_NS);
  verify_on(stream, ptr, bytes, (uint32_t)seed);
  ok(gmlake_free(lake, ptr, stream));
}

/* Half of the blocks are freed with work pending on them; a third stream gets all that memory, in
   blocks of four times the size. The last must be one piece, for which chunks have to be given
   back and created anew. */
static void climb_ladder(gmlake *lake, CUstream *streams, size_t bytes, void **blocks,
                         size_t count) {
  void *large[FULL_BLOCKS / 8];
  size_t i;
  require(count >= 8, "only %zu blocks fit the device", count);
  for (i = 0; i < count; i++)
    if (i / 2 % 2 == 0) drop_at_work(lake, streams[i % 2], blocks[i], bytes, i);
  for (i = 0; i < count / 8; i++) {
    large[i] = take_with(lake, 4 * bytes, i + 1 < count / 8 ? 0 : GMLAKE_NO_STITCH, streams[2]);
    fill_on(streams[2], large[i], 4 * bytes, 77);
    ok(gmlake_check(lake));
  }
  for (i = 0; i < count / 8; i++) drop_at_work(lake, streams[2], large[i], 4 * bytes, 77);
  for (i = 0; i < count; i++)
    if (i / 2 % 2 == 1) drop_at_work(lake, streams[i % 2], blocks[i], bytes, i);
}

static void case_full(void) {
  static CUmemGenericAllocationHandle hogs[HOGS_MAX];
  static void *blocks[FULL_BLOCKS];
  const size_t left = scale(4 * GIB, 256 * MIB), bytes = scale(32 * MIB, 4 * MIB);
  const gmlake_desc desc = small_chunks(0);
  CUstream streams[3];
  gmlake_stats stats;
  gmlake *lake;
  size_t i, count, hog_count;
  for (i = 0; i < 3; i++) streams[i] = new_stream(CU_STREAM_NON_BLOCKING);
  hog_count = hog_all_but(left, hogs);
  lake = new_lake(&desc);
  count = fill_lake(lake, streams, bytes, blocks);
  climb_ladder(lake, streams, bytes, blocks, count);
  stats = stats_of(lake);
  tell("%zu blocks of %zu MiB, %llu stitches, %llu stream and %llu host waits", count, bytes / MIB,
       (unsigned long long)stats.stitch_count, (unsigned long long)stats.stream_wait_count,
       (unsigned long long)stats.host_wait_count);
  require(stats.stream_wait_count + stats.host_wait_count > 0, "nothing was waited for");
  require_no_wrong_words("a full device");
  ok(gmlake_trim(lake, 0, NULL));
  for (i = 0; i < 64; i++) { /* life goes on */
    void *ptr = take(lake, bytes, streams[i % 3]);
    fill_on(streams[i % 3], ptr, bytes, (uint32_t)i);
    drop_at_work(lake, streams[i % 3], ptr, bytes, i);
  }
  require_no_wrong_words("after a full device");
  close_lake(lake);
  while (hog_count) cu(rig.gpu.cuMemRelease(hogs[--hog_count]));
  for (i = 0; i < 3; i++) cu(rig.gpu.cuStreamDestroy(streams[i]));
}

/* ---- Trim, destroy --------------------------------------------------------------------------- */

static void case_trim(void) {
  enum { COUNT = 8 };
  const size_t bytes = scale(64 * MIB, 2 * MIB);
  const gmlake_desc desc = small_chunks(0);
  gmlake *lake = new_lake(&desc);
  CUstream busy = new_stream(CU_STREAM_NON_BLOCKING), idle = new_stream(CU_STREAM_NON_BLOCKING);
  void *blocks[COUNT], *complete;
  size_t i, released;
  uint64_t start;
  complete = take_exclusive(lake, bytes, idle);
  fill_on(idle, complete, bytes, 5);
  for (i = 0; i < COUNT; i++) blocks[i] = take_exclusive(lake, bytes, busy);
  spin_on(busy, 1000 * MS_NS);
  for (i = 0; i < COUNT; i++) {
    fill_on(busy, blocks[i], bytes, (uint32_t)i);
    verify_on(busy, blocks[i], bytes, (uint32_t)i);
    ok(gmlake_free(lake, blocks[i], busy));
  }
  await_stream(idle);
  ok(gmlake_free(lake, complete, idle));
  start = now_ns();
  released = trim_until(lake, bytes);
  start = now_ns() - start;
  if (!options.is_slow) {
    require(rig.gpu.cuStreamQuery(busy) == CUDA_ERROR_NOT_READY, "the kernels ended too soon");
    require(released >= bytes && released < 2 * bytes, "%zu bytes returned, %zu were complete",
            released, bytes);
  }
  await_stream(busy);
  require_no_wrong_words("trim under kernels");
  released += trim_until(lake, (COUNT + 1) * bytes - released);
  require(released == (COUNT + 1) * bytes, "%zu bytes returned in the end", released);
  tell("trim under kernels took %.2f ms", (double)start / 1e6);
  close_lake(lake);
  cu(rig.gpu.cuStreamDestroy(busy));
  cu(rig.gpu.cuStreamDestroy(idle));
}

/* ---- Buffers --------------------------------------------------------------------------------- */

#define BUFFERS 6
#define PAGES 32 /* chunks of a buffer, at most */

typedef struct paged {
  gmlake_buffer *handle;
  CUstream stream;
  unsigned char *ptr;
  size_t chunks;         /* up to which it was resized */
  uint32_t seeds[PAGES]; /* of each chunk; 0: no memory */
} paged;

static void paged_open(gmlake *lake, paged *p, size_t chunks_max, CUstream stream) {
  gmlake_buffer_desc desc;
  gmlake_buffer_info info;
  memset(&desc, 0, sizeof(desc));
  memset(p, 0, sizeof(*p));
  desc.max_bytes = chunks_max * CHUNK;
  desc.chunk_bytes = CHUNK;
  p->stream = stream;
  ok(gmlake_buffer_create(lake, &desc, &p->handle));
  ok(gmlake_buffer_get_info(lake, p->handle, &info));
  p->ptr = (unsigned char *)info.ptr;
}

enum { COMMIT, DISCARD, RESIZE };

static gmlake_result paged_call(gmlake *lake, const paged *p, int how, size_t at, size_t count,
                                int is_more) {
  if (how == RESIZE)
    return gmlake_buffer_resize(lake, p->handle, (is_more ? at + count : at) * CHUNK, p->stream);
  return (is_more ? gmlake_buffer_commit : gmlake_buffer_discard)(lake, p->handle, at * CHUNK,
                                                                  count * CHUNK, p->stream);
}

/* Kernels read what is taken away before it goes, and fill what is new, at once. 0: no room. */
static int paged_change(gmlake *lake, paged *p, int how, size_t at, size_t count, uint32_t *seed) {
  const int is_more = how == COMMIT || (how == RESIZE && at == p->chunks);
  gmlake_result result;
  size_t i;
  for (i = at; i < at + count && !is_more; i++) {
    if (p->seeds[i]) verify_on(p->stream, p->ptr + i * CHUNK, CHUNK, p->seeds[i]);
    p->seeds[i] = 0;
  }
  result = paged_call(lake, p, how, at, count, is_more);
  if (is_more && result == GMLAKE_ERROR_LIMIT_REACHED) return 0;
  ok(result);
  for (i = at; i < at + count && is_more; i++) {
    if (p->seeds[i]) continue;
    p->seeds[i] = ++*seed;
    fill_on(p->stream, p->ptr + i * CHUNK, CHUNK, p->seeds[i]);
  }
  if (how == RESIZE) p->chunks = is_more ? at + count : at;
  return 1;
}

static int paged_resize(gmlake *lake, paged *p, size_t chunks, uint32_t *seed) {
  return chunks < p->chunks ? paged_change(lake, p, RESIZE, chunks, p->chunks - chunks, seed)
                            : paged_change(lake, p, RESIZE, p->chunks, chunks - p->chunks, seed);
}

static int paged_step(gmlake *lake, paged *p, size_t pages, int is_resized, uint64_t *state,
                      uint32_t *seed) {
  const size_t at = below(state, pages);
  if (is_resized) return paged_resize(lake, p, at, seed);
  return paged_change(lake, p, below(state, 2) ? COMMIT : DISCARD, at, 1 + below(state, pages - at),
                      seed);
}

static double grow_by_chunks_us(gmlake *lake, const paged *p, size_t chunks) {
  const uint64_t start = now_ns();
  size_t i;
  for (i = 1; i <= chunks; i++) ok(gmlake_buffer_resize(lake, p->handle, i * CHUNK, p->stream));
  return (double)(now_ns() - start) / 1e3 / (double)chunks;
}

static void time_growth(gmlake *lake, CUstream stream, size_t chunks) {
  double first_us, again_us;
  paged p;
  paged_open(lake, &p, chunks, stream);
  first_us = grow_by_chunks_us(lake, &p, chunks);
  ok(gmlake_buffer_resize(lake, p.handle, 0, stream));
  again_us = grow_by_chunks_us(lake, &p, chunks);
  ok(gmlake_buffer_destroy(lake, p.handle, stream));
  tell("2 MiB more take %.1f us, again %.2f us; ", first_us, again_us);
}

/* More buffers than their lake's limit has chunks for, on streams with work pending: they grow and
   shrink, or memory comes and goes in the middle of them. */
static void change_buffers(int is_resized) {
  const size_t pages = scale(24, 6), steps = scale(3000, 100);
  const gmlake_desc desc = small_chunks(3 * pages * CHUNK);
  paged buffers[BUFFERS];
  CUstream streams[3];
  gmlake *lake = new_lake(&desc);
  uint64_t state = options.seed;
  uint32_t seed = 0;
  size_t i, refused = 0;
  for (i = 0; i < 3; i++) streams[i] = new_stream(CU_STREAM_NON_BLOCKING);
  if (is_resized) time_growth(lake, streams[0], pages);
  for (i = 0; i < BUFFERS; i++) paged_open(lake, &buffers[i], pages, streams[i % 3]);
  for (i = 0; i < steps; i++)
    refused +=
        !paged_step(lake, &buffers[below(&state, BUFFERS)], pages, is_resized, &state, &seed);
  for (i = 0; i < BUFFERS; i++) {
    if (is_resized)
      require(paged_resize(lake, &buffers[i], 0, &seed), "no way to shrink");
    else
      (void)paged_change(lake, &buffers[i], DISCARD, 0, pages, &seed);
  }
  for (i = 0; i < 3; i++) await_stream(streams[i]);
  require_no_wrong_words("buffers");
  require(refused > 0 && refused < steps / 2, "%zu of %zu refused", refused, steps);
  for (i = 0; i < BUFFERS; i++) ok(gmlake_buffer_destroy(lake, buffers[i].handle, streams[i % 3]));
  tell("%zu changes, %zu refused by the limit", steps, refused);
  close_lake(lake);
  for (i = 0; i < 3; i++) cu(rig.gpu.cuStreamDestroy(streams[i]));
}

static void case_buffers(void) { change_buffers(1); }
static void case_pages(void) { change_buffers(0); }

static void count_warning(void *user, int level, const gmlake_error_info *info) {
  (void)info;
  *(size_t *)user += level == GMLAKE_LOG_WARNING;
}

static void case_destroy(void) {
  enum { COUNT = 12 };
  const size_t bytes = scale(32 * MIB, 2 * MIB), slack = 64 * MIB;
  size_t i, before = 0, after, told = 0, round;
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  for (round = 0; round < 4; round++) {
    gmlake_desc desc = small_chunks(0);
    void *blocks[COUNT], *keep[2], *window;
    gmlake *lake;
    desc.logger.fn = count_warning;
    desc.logger.user = &told;
    lake = new_lake(&desc);
    window = take_window(lake, stream, keep, 2);
    for (i = 0; i < COUNT; i++) blocks[i] = take(lake, bytes, stream);
    spin_on(stream, 30 * MS_NS);
    fill_on(stream, window, 2 * CHUNK, 3);
    for (i = 0; i < COUNT; i++) fill_on(stream, blocks[i], bytes, (uint32_t)i);
    for (i = 0; i < COUNT; i += 2) ok(gmlake_free(lake, blocks[i], stream));
    if (round % 2) ok(gmlake_free(lake, window, stream));
    told = 0;
    ok(gmlake_destroy(lake));
    cu(rig.gpu.cuCtxSynchronize());
    require(told == COUNT / 2 + 2 + (round + 1) % 2, "%zu live blocks were listed", told);
    after = free_memory();
    if (round == 0) before = after; /* the driver has taken what it needs for itself */
    require(after + slack > before, "%zu bytes free after, %zu before", after, before);
  }
  tell("memory is back within %zu MiB", (before > after ? before - after : 0) / MIB);
  cu(rig.gpu.cuStreamDestroy(stream));
}

/* ---- Two lakes ------------------------------------------------------------------------------- */

static void start_small(traffic *t, gmlake_backend *backend, uint64_t number) {
  gmlake_desc desc;
  memset(t, 0, sizeof(*t));
  t->live_max = scale(256 * MIB, 24 * MIB);
  t->bytes_max = scale(16 * MIB, 4 * MIB);
  t->alignment_max = CHUNK;
  desc = small_chunks(t->live_max + t->live_max / 4);
  desc.backend = backend;
  desc.cross_stream = number % 2 ? GMLAKE_WAIT_FIRST : GMLAKE_GROW_FIRST;
  t->lake = new_lake(&desc);
  traffic_seed(t, number);
}

static void two_lakes(gmlake_backend *backend) {
  static traffic both[2];
  size_t i;
  for (i = 0; i < 2; i++) start_small(&both[i], backend, 300 + i);
  traffic_new_streams(&both[0]);
  memcpy(both[1].streams, both[0].streams, sizeof(both[0].streams));
  for (i = 0; i < options.operations / 4; i++) traffic_step(&both[i % 2]);
  for (i = 0; i < 2; i++) traffic_drain(&both[i]);
  require_no_wrong_words("two lakes");
  for (i = 0; i < 3; i++) ok(gmlake_forget_stream(both[1].lake, both[1].streams[i]));
  traffic_drop_streams(&both[0]);
  for (i = 0; i < 2; i++) close_lake(both[i].lake);
}

static void case_two_lakes(void) {
  gmlake_backend *backend = NULL;
  two_lakes(NULL);
  ok(gmlake_cuda_create(0, &backend));
  two_lakes(backend);
  gmlake_cuda_destroy(backend);
  tell("%zu operations on two backends, as many on one", options.operations / 4);
}

/* ---- Lost devices, forks, contexts ----------------------------------------------------------- */

static void case_fault(void) {
  const gmlake_desc desc = small_chunks(2 * CHUNK);
  gmlake *lake = new_lake(&desc);
  CUstream first = new_stream(CU_STREAM_NON_BLOCKING), second = new_stream(CU_STREAM_NON_BLOCKING);
  void *ptr = take(lake, 2 * CHUNK, first), *other = NULL, *small = NULL;
  gmlake_error_info info;
  gmlake_result result;
  fill_on(first, NULL, 64, 1);            /* address 0 */
  result = gmlake_free(lake, ptr, first); /* may see it already */
  require(result == GMLAKE_OK || result == GMLAKE_ERROR_DEVICE_LOST, "free is %s",
          gmlake_result_name(result));
  require(rig.gpu.cuStreamSynchronize(first) != CUDA_SUCCESS, "a write to address 0 succeeded");
  result = gmlake_alloc(lake, 2 * CHUNK, second, &other); /* has to look for completed work */
  require(result == GMLAKE_ERROR_DEVICE_LOST && !other, "after a fault alloc is %s",
          gmlake_result_name(result));
  ok(gmlake_get_last_error(lake, &info));
  require(info.result == GMLAKE_ERROR_DEVICE_LOST && info.driver_code, "driver code %d",
          info.driver_code);
  error(gmlake_alloc(lake, 512, first, &small), DEVICE_LOST);
  error(gmlake_trim(lake, 0, NULL), DEVICE_LOST);
  ok(gmlake_check(lake));
  result = gmlake_destroy(lake);
  tell("driver code %d in %s; destroy is %s", info.driver_code, info.call,
       gmlake_result_name(result));
}

/* What the child of a fork gets: 0 where all is as it should be. */
static int call_forked(gmlake *lake) {
  gmlake_budget budget;
  void *ptr = NULL;
  if (gmlake_alloc(lake, 64 * MIB, NULL, &ptr) != GMLAKE_ERROR_FORKED || ptr) return 1;
  if (gmlake_get_budget(lake, &budget) != GMLAKE_ERROR_FORKED) return 2;
  return 0;
}

static void case_fork(void) {
  const gmlake_desc desc = small_chunks(0);
  gmlake *lake = new_lake(&desc);
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  void *ptr = take(lake, MIB, stream);
  int status = 0;
  pid_t child;
  fill_on(stream, ptr, MIB, 9);
  child = fork();
  if (child == 0) {
    (void)alarm(patience());
    _exit(call_forked(lake));
  }
  require(child > 0 && waitpid(child, &status, 0) == child, "no child");
  require(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child got another answer: %d",
          status);
  verify_on(stream, ptr, MIB, 9);
  ok(gmlake_free(lake, ptr, stream));
  ptr = take(lake, 64 * MIB, stream);
  fill_on(stream, ptr, 64 * MIB, 10);
  verify_on(stream, ptr, 64 * MIB, 10);
  ok(gmlake_free(lake, ptr, stream));
  require_no_wrong_words("the parent of a fork");
  close_lake(lake);
  cu(rig.gpu.cuStreamDestroy(stream));
}

static void require_current(CUcontext expected, const char *after) {
  CUcontext current = NULL;
  cu(rig.gpu.cuCtxGetCurrent(&current));
  require(current == expected, "another context is current after %s", after);
}

/* Every call that drives the device, with this context current. */
static void call_in(CUcontext context, CUstream first, CUstream second) {
  const gmlake_desc desc = small_chunks(4 * CHUNK);
  gmlake *lake;
  gmlake_budget budget;
  void *keep[2], *ptr;
  cu(rig.gpu.cuCtxSetCurrent(context));
  lake = new_lake(&desc);
  require_current(context, "create");
  ptr = take_window(lake, first, keep, 2);
  require_current(context, "a stitch");
  ok(gmlake_record_stream(lake, ptr, second));
  ok(gmlake_free(lake, ptr, first));
  require_current(context, "free");
  ptr = take(lake, 2 * CHUNK, second);
  require_current(context, "a wait");
  ok(gmlake_free(lake, ptr, second));
  ok(gmlake_free(lake, keep[0], first));
  ok(gmlake_free(lake, keep[1], first));
  ok(gmlake_trim(lake, 0, NULL));
  require_current(context, "trim");
  ok(gmlake_get_budget(lake, &budget));
  ok(gmlake_forget_stream(lake, second));
  require_current(context, "forget_stream");
  ok(gmlake_destroy(lake));
  require_current(context, "destroy");
}

static void case_contexts(void) {
  CUstream first = new_stream(CU_STREAM_NON_BLOCKING), second = new_stream(CU_STREAM_NON_BLOCKING);
  CUcontext other = NULL;
  CUdevice device;
  call_in(rig.context, first, second);
  call_in(NULL, first, second);
  if (rig.device_count > 1) {
    cu(rig.gpu.cuDeviceGet(&device, 1));
    cu(rig.gpu.cuDevicePrimaryCtxRetain(&other, device));
    call_in(other, first, second);
    cu(rig.gpu.cuCtxSetCurrent(rig.context));
    cu(rig.gpu.cuDevicePrimaryCtxRelease(device));
  }
  tell("current: its own, none%s", other ? ", another device's" : "");
  cu(rig.gpu.cuCtxSetCurrent(rig.context));
  cu(rig.gpu.cuStreamDestroy(first));
  cu(rig.gpu.cuStreamDestroy(second));
}

/* ---- Peers, handle types --------------------------------------------------------------------- */

typedef struct peer {
  CUdevice device;
  CUcontext context;
  gpu_kernels kernels;
  CUdeviceptr wrong;
} peer;

/* Each device writes the whole block and the other one reads it. */
static void exchange_words(const peer *p, const void *ptr, size_t bytes) {
  const CUdeviceptr words = (CUdeviceptr)(uintptr_t)ptr;
  cu(rig.gpu.cuCtxSetCurrent(p->context));
  cu(gpu_fill(&rig.gpu, &p->kernels, NULL, words, bytes / 4, 21));
  cu(rig.gpu.cuCtxSynchronize());
  cu(rig.gpu.cuCtxSetCurrent(rig.context));
  verify_on(NULL, ptr, bytes, 21);
  fill_on(NULL, ptr, bytes, 22);
  cu(rig.gpu.cuCtxSynchronize());
  cu(rig.gpu.cuCtxSetCurrent(p->context));
  cu(gpu_verify(&rig.gpu, &p->kernels, NULL, words, bytes / 4, 22, p->wrong));
  cu(rig.gpu.cuCtxSynchronize());
  cu(rig.gpu.cuCtxSetCurrent(rig.context));
}

static void peer_open(peer *p) {
  const uint64_t zero = 0;
  cu(rig.gpu.cuDevicePrimaryCtxRetain(&p->context, p->device));
  cu(rig.gpu.cuCtxSetCurrent(p->context));
  cu(gpu_load_kernels(&rig.gpu, &p->kernels));
  cu(rig.gpu.cuMemAlloc(&p->wrong, sizeof(zero)));
  cu(rig.gpu.cuMemcpyHtoD(p->wrong, &zero, sizeof(zero)));
  cu(rig.gpu.cuCtxSetCurrent(rig.context));
}

static void peer_close(const peer *p) {
  uint64_t wrong = 1;
  cu(rig.gpu.cuCtxSetCurrent(p->context));
  cu(rig.gpu.cuMemcpyDtoH(&wrong, p->wrong, sizeof(wrong)));
  cu(rig.gpu.cuMemFree(p->wrong));
  cu(rig.gpu.cuModuleUnload(p->kernels.module));
  cu(rig.gpu.cuCtxSetCurrent(rig.context));
  cu(rig.gpu.cuDevicePrimaryCtxRelease(p->device));
  require(wrong == 0, "%llu words wrong on the peer", (unsigned long long)wrong);
}

static void case_peers(void) {
  const int peer_devices[] = {1};
  gmlake_desc desc = small_chunks(0);
  gmlake *lake;
  void *keep[3], *window, *block;
  int can = 0;
  peer p;
  size_t round, i;
  memset(&p, 0, sizeof(p));
  if (rig.device_count < 2) skip("one device");
  cu(rig.gpu.cuDeviceGet(&p.device, 1));
  cu(rig.gpu.cuDeviceCanAccessPeer(&can, p.device, rig.device));
  if (!can) skip("the devices cannot access each other");
  peer_open(&p);
  desc.peer_devices = peer_devices;
  desc.peer_count = 1;
  lake = new_lake(&desc);
  for (round = 0; round < 3; round++) { /* anew after each trim */
    block = take(lake, 5 * MIB, NULL);
    window = take_window(lake, NULL, keep, 3);
    exchange_words(&p, block, 5 * MIB);
    exchange_words(&p, window, 3 * CHUNK);
    for (i = 0; i < 3; i++) exchange_words(&p, keep[i], CHUNK);
    ok(gmlake_free(lake, window, NULL));
    ok(gmlake_free(lake, block, NULL));
    for (i = 0; i < 3; i++) ok(gmlake_free(lake, keep[i], NULL));
    ok(gmlake_trim(lake, round == 1 ? 2 * CHUNK : 0, NULL));
  }
  require_no_wrong_words("a peer");
  peer_close(&p);
  close_lake(lake);
}

static int handle_types_of(unsigned types) {
  gmlake_desc desc = small_chunks(0);
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp prop;
  gmlake *lake;
  void *ptr;
  desc.handle_types = types;
  lake = new_lake(&desc);
  ptr = take_exclusive(lake, CHUNK, NULL);
  memset(&prop, 0, sizeof(prop));
  cu(rig.gpu.cuMemRetainAllocationHandle(&handle, ptr));
  cu(rig.gpu.cuMemGetAllocationPropertiesFromHandle(&prop, handle));
  cu(rig.gpu.cuMemRelease(handle));
  require(prop.location.id == rig.device, "the chunk is on device %d", prop.location.id);
  ok(gmlake_free(lake, ptr, NULL));
  close_lake(lake);
  return (int)prop.requestedHandleTypes;
}

static void case_handle_types(void) {
  int has_fd = 0;
  cu(rig.gpu.cuDeviceGetAttribute(&has_fd, ATTRIBUTE_POSIX_FD, rig.device));
  require(handle_types_of(0) == 0, "a type that nobody asked for");
  if (!has_fd) skip("no POSIX file descriptors");
  require(handle_types_of(GMLAKE_HANDLE_POSIX_FD) == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
          "another type than asked for");
}

/* ---- Running the cases ----------------------------------------------------------------------- */

typedef struct test_case {
  const char *name;
  void (*run)(void);
  int opens_rig;
  int ends_process; /* nothing else can be run in its process */
} test_case;

static const test_case cases[] = {
    {"misuse", case_misuse, 0, 0},
    {"traffic", case_traffic, 1, 0},
    {"capture", case_capture, 1, 0},
    {"busy-capture", case_busy_capture, 1, 0},
    {"other-thread", case_other_thread, 1, 0},
    {"recapture", case_recapture, 1, 0},
    {"stream-reuse", case_stream_reuse, 1, 0},
    {"full", case_full, 1, 0},
    {"trim", case_trim, 1, 0},
    {"two-lakes", case_two_lakes, 1, 0},
    {"destroy", case_destroy, 1, 0},
    {"fork", case_fork, 1, 0},
    {"contexts", case_contexts, 1, 0},
    {"buffers", case_buffers, 1, 0},
    {"pages", case_pages, 1, 0},
    {"commit-costs", case_commit_costs, 1, 0},
    {"sleep", case_sleep, 1, 0},
    {"sleep-costs", case_sleep_costs, 1, 0},
    {"peers", case_peers, 1, 0},
    {"handle-types", case_handle_types, 1, 0},
    {"fault", case_fault, 1, 1},
};

static void run_here(const test_case *c) {
  case_thread = pthread_self();
  if (options.no_fork && c->ends_process) {
    result_of_case->state = SKIPPED;
    tell("needs a process of its own");
    return;
  }
  if (setjmp(case_end)) return;
  if (c->opens_rig) rig_open();
  c->run();
  result_of_case->state = PASSED;
}

static void run_in_child(const test_case *c) {
  int status = 0;
  pid_t child;
  (void)fflush(stdout);
  child = fork();
  if (child == 0) {
    (void)alarm(patience() ? patience() + (unsigned)options.seconds : 0);
    run_here(c);
    (void)fflush(stdout);
    _exit(0);
  }
  if (child < 0 || waitpid(child, &status, 0) != child) {
    result_of_case->state = FAILED;
    tell("no child");
  } else if (WIFSIGNALED(status)) {
    result_of_case->state = FAILED;
    tell("%sended by signal %d%s", result_of_case->text[0] ? ", then " : "", WTERMSIG(status),
         WTERMSIG(status) == SIGALRM ? ": it hangs; " PATIENCE_TEXT : "");
  }
}

/* One line. Answers the state. */
static int run_case(const test_case *c) {
  static const char *const words[] = {"FAILED", "ok", "FAILED", "skipped"};
  const uint64_t start = now_ns();
  memset(result_of_case, 0, sizeof(*result_of_case));
  if (options.no_fork)
    run_here(c);
  else
    run_in_child(c);
  if (result_of_case->state == RUNNING) tell("%sno end", result_of_case->text[0] ? ", " : "");
  printf("%s: %s (%.1f s)%s%s\n", c->name, words[result_of_case->state],
         (double)(now_ns() - start) / 1e9, result_of_case->text[0] ? " " : "",
         result_of_case->text);
  (void)fflush(stdout);
  return result_of_case->state;
}

/* Fills in what is known of the device. The parent never calls the driver: a child of fork could
   not. */
static int find_device(void) {
  struct rig *found = (struct rig *)mmap(NULL, sizeof(rig), PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int has = 0;
  if (options.no_fork) {
    has = rig_find();
    if (has) rig_describe();
  } else if ((void *)found != MAP_FAILED) {
    pid_t child = fork();
    if (child == 0) {
      (void)alarm(patience());
      if (!rig_find()) _exit(1);
      rig_describe();
      *found = rig;
      _exit(0);
    }
    has = child > 0 && waitpid(child, NULL, 0) == child && found->device_bytes;
    if (has) rig = *found;
  }
  if ((void *)found != MAP_FAILED) (void)munmap(found, sizeof(rig));
  return has;
}

/* ---- Options --------------------------------------------------------------------------------- */

static int parse_arguments(int argc, char **argv) {
  static const char about[] =
      "Tests the CUDA backend on the first GPU; without one it says so and succeeds. Without\n"
      "CASE, all of them.\n";
  const option_row rows[] = {
      {"operations", OPTION_COUNT, &options.operations, 1, 1e12, "N",
       "operations of the traffic case; default 100000"},
      {"rounds", OPTION_COUNT, &options.rounds, 1, 1e12, "N",
       "rounds of the traffic case, each with another seed; default 1"},
      {"seconds", OPTION_COUNT, &options.seconds, 1, 1e6, "N", "more of them, until that is over"},
      {"replays", OPTION_COUNT, &options.replays, 1, 1e9, "N",
       "replays of each graph; default 1000"},
      {"recaptures", OPTION_COUNT, &options.recaptures, 1, 1e9, "N",
       "captures into one pool; default 1000"},
      {"seed", OPTION_COUNT, &options.seed, 1, 1e18, "N", "of all that is random; default 1"},
      {"fake", OPTION_TEXT, &options.fake_path, 0, 0, "FILE",
       "the driver without a device; default " BUILD "/fake/libcuda.so.1"},
      {"table", OPTION_FLAG, &options.prints_table, 0, 0, NULL,
       "print every row of the misuse case"},
      {"no-fork", OPTION_FLAG, &options.no_fork, 0, 0, NULL,
       "all cases in this process, for debuggers"},
      {"slow", OPTION_FLAG, &options.is_slow, 0, 0, NULL,
       "for compute-sanitizer, under which hardly a kernel runs behind the\n"
       "host: what only pending work shows is not required"},
  };
  const option_reader reader = {
      "gpu_test", "[OPTION]... [CASE]...", about, "\ncases:", rows, count_of(rows)};
  int help, first = options_parse(&reader, argc, argv, &help);
  size_t i;
  if (!help) return first;
  options_help(&reader);
  for (i = 0; i < count_of(cases); i++) printf(" %s", cases[i].name);
  printf("\n");
  exit(0);
}

static const test_case *find_case(const char *name) {
  size_t i;
  for (i = 0; i < count_of(cases); i++)
    if (!strcmp(cases[i].name, name)) return &cases[i];
  fprintf(stderr, "gpu_test: %s: no such case; gpu_test --help names them\n", name);
  exit(2);
}

int main(int argc, char **argv) {
  const test_case *chosen[count_of(cases)];
  const int first = parse_arguments(argc, argv);
  size_t i, count = (size_t)(argc - first), states[4] = {0, 0, 0, 0};
  if (count > count_of(cases)) {
    fprintf(stderr, "gpu_test: %zu cases are named, there are %zu\n", count, count_of(cases));
    return 2;
  }
  for (i = 0; i < count; i++) chosen[i] = find_case(argv[(size_t)first + i]);
  for (i = 0; !count && i < count_of(cases); i++) chosen[i] = &cases[i];
  if (!count) count = count_of(cases);
  result_of_case = (outcome *)mmap(NULL, sizeof(outcome), PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if ((void *)result_of_case == MAP_FAILED) return 1;
  if (!find_device()) {
    printf("skipped: no GPU\n");
    return 0;
  }
  printf("%s, %.1f GiB, driver %d, seed %llu\n", rig.name, (double)rig.device_bytes / (double)GIB,
         rig.version, (unsigned long long)options.seed);
  for (i = 0; i < count; i++) states[run_case(chosen[i])]++;
  printf("%zu passed, %zu failed\n", states[PASSED], states[FAILED] + states[RUNNING]);
  return states[FAILED] + states[RUNNING] ? 1 : 0;
}
