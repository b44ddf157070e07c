/* How bench.c measures. Each measurement runs in a process of its own, and measures processor time.
   A second pass measures each operation by itself. The section threads runs many threads. */
#if !defined(BENCH_RUN_H)
#define BENCH_RUN_H

#include <linux/perf_event.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__x86_64__) || defined(__i386__)
#include <x86intrin.h>
#endif

#include "bench_loads.h"
#include "measure.h"

#define REPEAT_MAX 99
#define THREADS_MAX 8

/* ---- Counting time and instructions ---------------------------------------------------------- */

static double processor_ns(void) { return measure_ns(CLOCK_THREAD_CPUTIME_ID); }

static uint64_t tick(void) {
#if defined(__x86_64__) || defined(__i386__)
  uint64_t now;
  _mm_lfence();
  now = __rdtsc();
  _mm_lfence();
  return now;
#else
  return (uint64_t)now_ns();
#endif
}

static double measure_tick_ns(void) {
  const double start_ns = now_ns();
  const uint64_t start = tick();
  while (now_ns() < start_ns + 2e7) continue;
  return (now_ns() - start_ns) / (double)(tick() - start);
}

/* A counter of this thread's instructions outside the kernel; negative if the system cannot
   count. */
static int open_instruction_counter(void) {
  struct perf_event_attr what;
  memset(&what, 0, sizeof what);
  what.size = sizeof what;
  what.type = PERF_TYPE_HARDWARE;
  what.config = PERF_COUNT_HW_INSTRUCTIONS;
  what.exclude_kernel = what.exclude_hv = 1;
  return (int)syscall(SYS_perf_event_open, &what, 0, -1, -1, 0);
}

static double read_counter(int counter) {
  uint64_t value;
  if (counter < 0 || read(counter, &value, sizeof value) != (ssize_t)sizeof value) return NAN;
  return (double)value;
}

/* The bucket of a time. It is exact below 256 ticks, and within 1/128 above. */
#define TICK_BUCKETS (26 * 128)

static size_t tick_bucket(uint32_t ticks) {
  size_t shift = 0;
  while (ticks >> shift > 255) shift++;
  return shift * 128 + (ticks >> shift);
}

static double bucket_ticks(size_t bucket) {
  const size_t shift = bucket < 256 ? 0 : bucket / 128 - 1;
  return (double)((uint64_t)(bucket - shift * 128) << shift);
}

/* ---- One measurement, in a process of its own ------------------------------------------------ */

typedef struct result {                            /* in memory that the processes share */
  size_t count;                                    /* measurements that succeeded */
  double ns[REPEAT_MAX], instructions[REPEAT_MAX]; /* of an operation, with those of the loop */
  double wall_ns[REPEAT_MAX];                      /* of an operation of several threads */
  counts counted;                                  /* driver calls: while time was measured */
  uint64_t ticks[2][TICK_BUCKETS];
  char error[96];
} result;

typedef struct runner {
  const workload *w;
  const allocator *with;
  void *self;
  void **blocks;
  const op *failed;
} runner;

static int run_range(runner *r, range span) {
  void *(*const alloc)(void *, const op *) = r->with->alloc;
  int (*const free_block)(void *, const op *, void *) = r->with->free_block;
  void **const blocks = r->blocks;
  const op *const begin = r->w->ops + span.begin, *const end = r->w->ops + span.end;
  const op *o = begin;
  for (; span.rounds; span.rounds--) {
    for (o = begin; o < end; o++) {
      if (o->is_free ? free_block(r->self, o, blocks[o->slot])
                     : !(blocks[o->slot] = alloc(r->self, o))) {
        r->failed = o;
        return 0;
      }
    }
  }
  return 1;
}

#define TICKS_DRIVEN UINT32_MAX /* stands for an operation that called the driver */

/* Runs one round, and reads the timer before and after each operation. */
static int run_inspected(runner *r, uint32_t *ticks) {
  const op *o = r->w->ops + r->w->inspected.begin, *const end = r->w->ops + r->w->inspected.end;
  uint64_t (*const driver_calls)(void *) = r->with->driver_calls;
  for (; o < end; o++) {
    const uint64_t calls = driver_calls ? driver_calls(r->self) : 0;
    void **block = &r->blocks[o->slot];
    int failed = 0;
    uint64_t start = tick(), taken;
    if (o->is_free)
      failed = r->with->free_block(r->self, o, *block);
    else
      *block = r->with->alloc(r->self, o);
    taken = tick() - start;
    *ticks++ = driver_calls && driver_calls(r->self) != calls ? TICKS_DRIVEN
               : taken < TICKS_DRIVEN                         ? (uint32_t)taken
                                                              : TICKS_DRIVEN - 1;
    if (!failed && *block) continue;
    r->failed = o;
    return 0;
  }
  return 1;
}

static int runner_open(runner *r, const workload *w, const allocator *with, result *out) {
  const char *error;
  memset(r, 0, sizeof *r);
  r->w = w;
  r->with = with;
  error = with->open(with, w, &r->self);
  if (error) snprintf(out->error, sizeof out->error, "cannot be opened: %s", error);
  r->blocks = (void **)calloc(w->slot_count, sizeof(void *));
  if (!r->blocks) abort();
  return !error;
}

static int runner_fail(const runner *r, result *out) {
  snprintf(out->error, sizeof out->error, "%s %lu failed (%lu bytes)",
           r->failed->is_free ? "free" : "allocation", (unsigned long)(r->failed - r->w->ops),
           (unsigned long)r->failed->bytes);
  return 0;
}

/* Profilers look for this function by its name, so it must not be inlined. */
__attribute__((noinline)) static int run_timed(runner *r, result *out) {
  const range span = r->w->timed;
  const double op_count = (double)((span.end - span.begin) * span.rounds);
  const int counter = open_instruction_counter();
  counts before = {NAN, NAN, NAN}, after = {NAN, NAN, NAN};
  double ns, instructions;
  if (r->with->count) r->with->count(r->self, &before);
  instructions = read_counter(counter);
  ns = processor_ns();
  if (!run_range(r, span)) return 0;
  out->ns[out->count] = (processor_ns() - ns) / op_count;
  out->instructions[out->count] = (read_counter(counter) - instructions) / op_count;
  if (r->with->count) r->with->count(r->self, &after);
  out->counted.driver_calls = (after.driver_calls - before.driver_calls) / op_count;
  out->counted.metadata_bytes = after.metadata_bytes / (double)r->w->slot_count;
  out->counted.reserved_bytes = after.reserved_bytes;
  return 1;
}

static void *idle(void *argument) {
  for (;;) pause();
  return argument;
}

/* Starts a thread that does nothing. In a process with one thread the C library skips locks, which
   would be too fast: programs have several threads. */
static void start_idle_thread(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, idle, NULL)) abort();
}

/* Opens the allocator, warms it up, and measures the timed operations together. */
static int measure_time(runner *r, const workload *w, const allocator *with, result *out) {
  start_idle_thread();
  if (!runner_open(r, w, with, out)) return 0;
  return (run_range(r, w->warm) && run_timed(r, out)) || runner_fail(r, out);
}

static int measure_one(const workload *w, const allocator *with, const void *context, result *out) {
  const range span = w->inspected;
  const size_t op_count = span.end - span.begin;
  uint32_t *ticks = (uint32_t *)malloc(op_count * sizeof(uint32_t));
  runner r;
  size_t i;
  (void)context;
  if (!ticks) abort();
  memset(ticks, 0, op_count * sizeof(uint32_t));
  if (!measure_time(&r, w, with, out)) return 0;
  if (!run_inspected(&r, ticks)) return runner_fail(&r, out);
  for (i = 0; i < op_count; i++)
    if (ticks[i] != TICKS_DRIVEN)
      out->ticks[w->ops[span.begin + i].is_free][tick_bucket(ticks[i])]++;
  out->count++;
  return 1;
}

typedef int (*measurement)(const workload *w, const allocator *with, const void *context,
                           result *out);

static void await_child(pid_t child, char *error, size_t error_bytes) {
  int status;
  if (child < 0 || waitpid(child, &status, 0) != child)
    snprintf(error, error_bytes, "no process: %s", strerror(errno));
  else if (WIFSIGNALED(status))
    snprintf(error, error_bytes, "killed by signal %d", WTERMSIG(status));
}

/* Measures in a child process. An allocator that has failed once is not measured again. */
static void measure_apart(measurement measure, const workload *w, const allocator *with,
                          const void *context, result *out) {
  pid_t child;
  if (out->error[0]) return;
  child = fork();
  if (!child) _exit(!measure(w, with, context, out));
  await_child(child, out->error, sizeof out->error);
}

/* ---- Many threads ---------------------------------------------------------------------------- */

typedef struct crowd {
  size_t thread_count;
  int is_shared; /* one allocator for all threads, not one for each */
} crowd;

typedef struct member {
  runner r;
  pthread_t thread;
  pthread_barrier_t *start;
  double processor_ns, begin_ns, end_ns;
} member;

static void *run_member(void *argument) {
  member *m = (member *)argument;
  const int is_warm = run_range(&m->r, m->r.w->warm);
  pthread_barrier_wait(m->start);
  m->begin_ns = now_ns();
  m->processor_ns = processor_ns();
  if (is_warm) run_range(&m->r, m->r.w->timed);
  m->processor_ns = processor_ns() - m->processor_ns;
  m->end_ns = now_ns();
  return NULL;
}

static int open_members(member *members, const workload *w, const allocator *with, const crowd *c,
                        pthread_barrier_t *start, result *out) {
  size_t i;
  for (i = 0; i < c->thread_count; i++) {
    runner *r = &members[i].r;
    members[i].start = start;
    if (!i || !c->is_shared) {
      if (!runner_open(r, w, with, out)) return 0;
      continue;
    }
    *r = members[0].r;
    r->blocks = (void **)calloc(w->slot_count, sizeof(void *));
    if (!r->blocks) abort();
  }
  return 1;
}

static int measure_crowd(const workload *w, const allocator *with, const void *context,
                         result *out) {
  const crowd *c = (const crowd *)context;
  const double op_count = (double)((w->timed.end - w->timed.begin) * c->thread_count);
  member members[THREADS_MAX];
  pthread_barrier_t start;
  double begin_ns = INFINITY, end_ns = 0, sum_ns = 0;
  size_t i;
  pthread_barrier_init(&start, NULL, (unsigned)c->thread_count);
  if (!open_members(members, w, with, c, &start, out)) return 0;
  for (i = 0; i < c->thread_count; i++)
    if (pthread_create(&members[i].thread, NULL, run_member, &members[i])) abort();
  for (i = 0; i < c->thread_count; i++) {
    pthread_join(members[i].thread, NULL);
    if (members[i].r.failed) return runner_fail(&members[i].r, out);
    begin_ns = fmin(begin_ns, members[i].begin_ns);
    end_ns = fmax(end_ns, members[i].end_ns);
    sum_ns += members[i].processor_ns;
  }
  out->ns[out->count] = sum_ns / op_count;
  out->wall_ns[out->count++] = (end_ns - begin_ns) / op_count;
  return 1;
}

#endif
