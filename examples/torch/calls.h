/* Counts and times the calls of a backend, by kind and by step of the program: where a lake's
   driver time goes in a whole program. calls_wrap gives the lake a table that counts; calls_begin
   begins a step; calls_write writes what was counted. Any thread may call; gcc or clang. */
#if !defined(GMLAKE_CALLS_H)
#define GMLAKE_CALLS_H

#include "gmlake.h"

#include <stdio.h>
#include <string.h>

#define CALLS_STEPS_MAX 1000 /* of a program; what comes later counts to the last one */
#define CALLS_BACKENDS_MAX 64

#define CALLS_KINDS(X)                                                                         \
  X(create, (void *user, size_t a, unsigned b, uint64_t *c, int *code), (user, a, b, c, code)) \
  X(release, (void *user, uint64_t a, int *code), (user, a, code))                             \
  X(map, (void *user, uint64_t a, size_t b, uint64_t c, int *code), (user, a, b, c, code))     \
  X(unmap, (void *user, uint64_t a, size_t b, int *code), (user, a, b, code))                  \
  X(set_access, (void *user, uint64_t a, size_t b, const int *c, size_t d, int *code),         \
    (user, a, b, c, d, code))                                                                  \
  X(event_record, (void *user, void *a, gmlake_stream b, int *code), (user, a, b, code))       \
  X(event_query, (void *user, void *a, int *b, int *code), (user, a, b, code))                 \
  X(event_wait, (void *user, void *a, int *code), (user, a, code))                             \
  X(event_wait_any, (void *user, void *const *a, unsigned b, unsigned *c, int *code),          \
    (user, a, b, c, code))                                                                     \
  X(stream_wait, (void *user, gmlake_stream a, void *b, int *code), (user, a, b, code))        \
  X(stream_id, (void *user, gmlake_stream a, uint64_t *b, int *code), (user, a, b, code))      \
  X(capture_exchange, (void *user, int *a, int *code), (user, a, code))

#define CALLS_NAME(name, parameters, arguments) CALLS_##name,
enum { CALLS_KINDS(CALLS_NAME) CALLS_COUNT };
#undef CALLS_NAME

static struct {
  const gmlake_backend *inner[CALLS_BACKENDS_MAX]; /* by the order in which they were wrapped */
  gmlake_backend tables[CALLS_BACKENDS_MAX];       /* with the inner ones' users */
  unsigned backend_count;
  char labels[CALLS_STEPS_MAX][32];
  unsigned step; /* 0: before the first */
  uint64_t count[CALLS_STEPS_MAX][CALLS_COUNT], ns[CALLS_STEPS_MAX][CALLS_COUNT];
} calls;

/* The backend whose functions get this user. */
static const gmlake_backend *calls_inner(const void *user) {
  const unsigned count = __atomic_load_n(&calls.backend_count, __ATOMIC_ACQUIRE);
  unsigned i = 0;
  while (i + 1 < count && calls.tables[i].user != user) i++;
  return calls.inner[i];
}

static gmlake_result calls_note(const gmlake_backend *inner, int kind, uint64_t from_ns,
                                gmlake_result result) {
  const unsigned step = __atomic_load_n(&calls.step, __ATOMIC_RELAXED);
  const uint64_t ns = inner->clock_ns(inner->user) - from_ns;
  __atomic_fetch_add(&calls.count[step][kind], 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(&calls.ns[step][kind], ns, __ATOMIC_RELAXED);
  return result;
}

#define CALLS_FUNCTION(name, parameters, arguments)                    \
  static gmlake_result calls_##name parameters {                       \
    const gmlake_backend *const inner = calls_inner(user);             \
    const uint64_t ns = inner->clock_ns(user);                         \
    return calls_note(inner, CALLS_##name, ns, inner->name arguments); \
  }
CALLS_KINDS(CALLS_FUNCTION)
#undef CALLS_FUNCTION

/* A table that counts what is called of the inner one, which lives as long. NULL: there are too
   many. One call at a time. */
static const gmlake_backend *calls_wrap(const gmlake_backend *inner) {
  const unsigned i = calls.backend_count;
  gmlake_backend *table;
  if (i == CALLS_BACKENDS_MAX) return NULL;
  table = &calls.tables[i];
  *table = *inner;
  calls.inner[i] = inner;
#define CALLS_ENTRY(name, parameters, arguments) \
  if (inner->name) table->name = calls_##name;
  CALLS_KINDS(CALLS_ENTRY)
#undef CALLS_ENTRY
  __atomic_store_n(&calls.backend_count, i + 1, __ATOMIC_RELEASE);
  return table;
}

/* A step of the program begins. One call at a time. */
static void calls_begin(const char *label) {
  const unsigned step = calls.step + 1;
  if (step == CALLS_STEPS_MAX) return;
  snprintf(calls.labels[step], sizeof calls.labels[step], "%s", label);
  __atomic_store_n(&calls.step, step, __ATOMIC_RELAXED);
}

/* Writes a row for each step and kind of call: label, kind, calls, microseconds, with tabs between.
   The label of what was before the first step is empty. Returns 0 if the file cannot be written. */
static int calls_write(const char *path) {
#define CALLS_TEXT(name, parameters, arguments) #name,
  static const char *const names[] = {CALLS_KINDS(CALLS_TEXT)};
#undef CALLS_TEXT
  FILE *const file = fopen(path, "w");
  unsigned step, kind;
  int is_written;
  if (!file) return 0;
  fputs("step\tcall\tcount\tus\n", file);
  for (step = 0; step <= calls.step; step++)
    for (kind = 0; kind < CALLS_COUNT; kind++)
      if (calls.count[step][kind])
        fprintf(file, "%s\t%s\t%llu\t%.1f\n", calls.labels[step], names[kind],
                (unsigned long long)calls.count[step][kind], (double)calls.ns[step][kind] / 1e3);
  is_written = !ferror(file);
  return !fclose(file) && is_written;
}

#endif
