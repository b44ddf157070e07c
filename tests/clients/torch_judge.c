/* Loaded before torch on a CPU, it takes the place of the lake in gmlake_torch's sessions: large
   host memory has no access but for the operator that names it, and no writes but where it is said
   to write. So a storage that an operator uses and that the session did not see is a fault
   (SIGSEGV). What an operator is said to overwrite is filled before it runs. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define API __attribute__((visibility("default")))
#if !defined(LARGE)
#define LARGE ((size_t)1 << 16)
#endif
#define PAGE ((size_t)4096)
#define REGIONS_MAX 4096
#define STEPS_MAX 4096

typedef struct region {
  char *ptr; /* NULL: unused */
  size_t bytes;
  int is_named, is_kept;
  int is_open; /* it may be read now, and if this is 2, written */
  int use;     /* in the present step: 1 read, 2 written, 3 both */
} region;

static region regions[REGIONS_MAX];
static int is_on, live_count, moved_count, kept_count, step_count, step_log[STEPS_MAX][2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* protects all of that */
extern void __libc_free(void *ptr);
extern void *__libc_memalign(size_t alignment, size_t bytes);

static region *find(const void *ptr) {
  size_t i;
  for (i = 0; i < REGIONS_MAX; i++) {
    const char *const first = regions[i].ptr;
    if (first && (const char *)ptr >= first && (const char *)ptr < first + regions[i].bytes)
      return &regions[i];
  }
  return NULL;
}

static void set_open(region *r, int is_open) {
  const int access = (is_open > 0 ? PROT_READ : PROT_NONE) | (is_open > 1 ? PROT_WRITE : 0);
  if (r->is_open == is_open) return;
  if (mprotect(r->ptr, r->bytes, access)) abort();
  r->is_open = is_open;
  moved_count++;
}

API int posix_memalign(void **out_ptr, size_t alignment, size_t bytes) {
  size_t i;
  if (is_on && bytes >= LARGE && alignment <= PAGE) {
    pthread_mutex_lock(&mutex);
    for (i = 0; i < REGIONS_MAX && regions[i].ptr; i++) continue;
    if (i == REGIONS_MAX) abort();
    memset(&regions[i], 0, sizeof regions[i]);
    regions[i].bytes = (bytes + PAGE - 1) / PAGE * PAGE;
    regions[i].ptr = (char *)mmap(NULL, regions[i].bytes, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (regions[i].ptr == MAP_FAILED) abort();
    regions[i].is_open = 2;
    live_count++;
    *out_ptr = regions[i].ptr;
    pthread_mutex_unlock(&mutex);
    return 0;
  }
  *out_ptr = __libc_memalign(alignment, bytes);
  return *out_ptr ? 0 : ENOMEM;
}

API void free(void *ptr) {
  region *r = NULL;
  if (ptr && live_count) {
    pthread_mutex_lock(&mutex);
    if ((r = find(ptr)) != NULL) {
      munmap(r->ptr, r->bytes);
      r->ptr = NULL;
      live_count--;
    }
    pthread_mutex_unlock(&mutex);
  }
  if (!r) __libc_free(ptr);
}

/* ---- What session.py and operators.cpp call instead of the library --------------------------- */

#define TOLD(name) API const char *gmlake_torch_offload_##name

static const char *turn(int on) {
  size_t i;
  pthread_mutex_lock(&mutex);
  is_on = on;
  for (i = 0; i < REGIONS_MAX; i++)
    if (regions[i].ptr && !on) set_open(&regions[i], 2);
  pthread_mutex_unlock(&mutex);
  return NULL;
}
TOLD(open)(int device, size_t limit, size_t min, size_t max, size_t chunk, int checked) {
  return turn(1);
}
TOLD(close)(void) { return turn(0); }

/* Nothing is planned, recorded or captured. */
TOLD(mark)(void) { return NULL; }
TOLD(lasting)(int is_lasting) { return NULL; }
TOLD(region)(uint64_t *region, int *is_kept) { return *region = 0, *is_kept = 0, NULL; }
TOLD(recompute)(uint64_t region) { return NULL; }
TOLD(region_end)(void) { return NULL; }
TOLD(record)(const char *path) { return NULL; }
TOLD(plan_json)(int device, const char **json) { return *json = NULL, "nothing is planned"; }
TOLD(begin_capture)(void) { return NULL; }
TOLD(end_capture)(uint64_t *graph) { return *graph = 0, NULL; }
TOLD(replay)(uint64_t graph) { return NULL; }
API void gmlake_torch_offload_forget_graph(uint64_t graph) {}
API int gmlake_torch_offload_stats_json(int device, char *buffer, size_t size) {
  return snprintf(buffer, size, "{\"step_count\": 0, \"plan_count\": 0, \"in_bytes\": 0}");
}

TOLD(keep)(uint64_t address) {
  region *r;
  pthread_mutex_lock(&mutex);
  if ((r = find((void *)(uintptr_t)address)) != NULL) {
    r->is_kept = 1;
    kept_count++;
    set_open(r, 2);
  }
  pthread_mutex_unlock(&mutex);
  return NULL;
}

TOLD(made)(const uint64_t *addresses, size_t count) {
  region *r;
  size_t i;
  pthread_mutex_lock(&mutex);
  for (i = 0; i < count; i++)
    if ((r = find((void *)(uintptr_t)addresses[i])) != NULL) r->is_named = 1;
  pthread_mutex_unlock(&mutex);
  return NULL;
}

TOLD(step)(uint64_t key, const uint64_t *addresses, size_t reads, size_t writes) {
  region *r;
  size_t i;
  pthread_mutex_lock(&mutex);
  step_log[step_count % STEPS_MAX][0] = (int)reads;
  step_log[step_count % STEPS_MAX][1] = (int)writes;
  step_count++;
  for (i = 0; i < REGIONS_MAX; i++) regions[i].use = 0;
  for (i = 0; i < reads + writes; i++) {
    if ((r = find((void *)(uintptr_t)addresses[i])) == NULL) continue;
    r->is_named = 1;
    r->use |= i < reads ? 1 : 2;
  }
  for (i = 0; i < REGIONS_MAX; i++) {
    r = &regions[i];
    if (!r->ptr || !r->is_named) continue;
    set_open(r, r->is_kept || r->use > 1 ? 2 : r->use);
    if (r->use == 2) memset(r->ptr, 0xa5, r->bytes);
  }
  pthread_mutex_unlock(&mutex);
  return NULL;
}

API int judge_kept(void) { return kept_count; }
API int judge_steps(void) { return step_count; }
/* Reads and writes of the last STEPS_MAX steps. */
API int (*judge_log(void))[2] { return step_log; }
API int judge_moved(void) { return moved_count; }
API int judge_closed(void) {
  int count = 0;
  size_t i;
  for (i = 0; i < REGIONS_MAX; i++) count += regions[i].ptr && !regions[i].is_open;
  return count;
}
