/* What a server exports of a lake, as the text that Prometheus reads. It is for copying into your
   program:

     static char text[16384];
     gmlake_metrics_pool pools[2] = {{tenant_a, "a"}, {tenant_b, "b"}};
     size_t bytes = gmlake_metrics_write(lake, "gpu0", pools, 2, text, sizeof text);
     if (bytes && bytes <= sizeof text) ... answer /metrics with text, which has bytes - 1 ...

   Memory is told by pool, and of all that is in no pool: for pool="", or for the name of a pool
   NULL in the list; the lake's is their sum. All names begin with gmlake_ and have the label
   `lake`. Sizes are bytes, times seconds. What ends in _total only grows.

   Cost: O(blocks) in all, with the lake's locks held (gmlake_pool_get_stats of each pool), and what
   gmlake_get_budget asks of the driver. That is for a scrape each few seconds. Call it from any
   thread; a pool in the list must not be destroyed meanwhile. */
#if !defined(GMLAKE_METRICS_H)
#define GMLAKE_METRICS_H

#include "gmlake.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct gmlake_metrics_pool {
  gmlake_pool *pool;  /* NULL: what is in no pool */
  const char *name;   /* the label's value */
  gmlake_stats stats; /* of the last call: gmlake_metrics_write writes them */
} gmlake_metrics_pool;

/* ---- Private -------------------------------------------------------------------------------- */

typedef struct gmlake_metrics {
  const char *lake; /* its name */
  gmlake_metrics_pool *pools;
  size_t pool_count;
  gmlake_stats outside; /* of all that is in no pool */
  char *out;
  size_t capacity, used; /* used: goes on counting behind the capacity */
} gmlake_metrics;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static inline void
gmlake_metrics_put(gmlake_metrics *m, const char *format, ...) {
  const size_t left = m->used < m->capacity ? m->capacity - m->used : 0;
  va_list arguments;
  int length;
  va_start(arguments, format);
  length = vsnprintf(left ? m->out + m->used : NULL, left, format, arguments);
  va_end(arguments);
  if (length > 0) m->used += (size_t)length;
}

/* A label: a backslash stands before backslashes and quotes, and a new line is \n. */
static inline void gmlake_metrics_label(gmlake_metrics *m, const char *name, const char *value) {
  gmlake_metrics_put(m, "%s=\"", name);
  for (; *value; value++) {
    if (*value == '\n')
      gmlake_metrics_put(m, "\\n");
    else
      gmlake_metrics_put(m, *value == '"' || *value == '\\' ? "\\%c" : "%c", *value);
  }
  gmlake_metrics_put(m, "\"");
}

static inline void gmlake_metrics_head(gmlake_metrics *m, const char *name, const char *type,
                                       const char *help) {
  gmlake_metrics_put(m, "# HELP gmlake_%s %s\n# TYPE gmlake_%s %s\n", name, help, name, type);
}

/* A number with a point, whatever the program's locale writes there, in one byte or more. */
static inline void gmlake_metrics_number(gmlake_metrics *m, double number) {
  char text[64];
  const char *at = text;
  (void)snprintf(text, sizeof text, "%.15g", number);
  while (*at) {
    const size_t digits = strspn(at, "0123456789+-e");
    gmlake_metrics_put(m, "%.*s", (int)digits, at);
    at += digits;
    if (*at) gmlake_metrics_put(m, ".");
    at += strcspn(at, "0123456789+-e");
  }
}

/* A line; key NULL: without a second label. */
static inline void gmlake_metrics_line(gmlake_metrics *m, const char *name, const char *key,
                                       const char *value, double number) {
  gmlake_metrics_put(m, "gmlake_%s{", name);
  gmlake_metrics_label(m, "lake", m->lake);
  if (key) gmlake_metrics_put(m, ",");
  if (key) gmlake_metrics_label(m, key, value);
  gmlake_metrics_put(m, "} ");
  gmlake_metrics_number(m, number);
  gmlake_metrics_put(m, "\n");
}

static inline void gmlake_metrics_one(gmlake_metrics *m, const char *name, const char *type,
                                      const char *help, double number) {
  gmlake_metrics_head(m, name, type, help);
  gmlake_metrics_line(m, name, NULL, NULL, number);
}

/* What a pool's statistics tell, by the figure's number; NULL: there are no more. */
static inline const char *gmlake_metrics_of_pool(const gmlake_stats *s, unsigned figure,
                                                 const char **out_help, double *out) {
  static const char *const names[] = {"live_bytes",     "requested_bytes", "reserved_bytes",
                                      "pending_bytes",  "buffer_bytes",    "window_bytes",
                                      "sleeping_bytes", "blocks",          "buffers",
                                      "windows",        "chunks"};
  static const char *const help[] = {"Live blocks and buffers, rounded up.",
                                     "Live blocks and buffers, as asked for.",
                                     "Physical memory held.",
                                     "Freed, and still used by recorded streams.",
                                     "Committed in growing buffers, a part of live_bytes.",
                                     "Addresses mapped in windows, live and idle.",
                                     "Given back by what sleeps, and needed to wake it.",
                                     "Held, and open to other processes.",
                                     "Other processes' memory that is mapped here, held, too.",
                                     "Live blocks.",
                                     "Growing buffers.",
                                     "Windows, live and idle.",
                                     "Chunks held."};
  const double values[] = {
      (double)s->active_bytes,   (double)s->requested_bytes, (double)s->reserved_bytes,
      (double)s->pending_bytes,  (double)s->buffer_bytes,    (double)s->stitched_bytes,
      (double)s->sleeping_bytes, (double)s->exported_bytes,  (double)s->imported_bytes,
      (double)s->live_count,     (double)s->buffer_count,    (double)s->window_count,
      (double)s->chunk_count};
  if (figure >= sizeof names / sizeof names[0]) return NULL;
  *out_help = help[figure];
  *out = values[figure];
  return names[figure];
}

/* Asks each pool once. Returns 0 if one does not answer. */
static inline int gmlake_metrics_ask(gmlake_metrics *m, gmlake *lake) {
  size_t i;
  if (gmlake_pool_get_stats(lake, NULL, &m->outside)) return 0;
  for (i = 0; i < m->pool_count; i++) {
    if (gmlake_pool_get_stats(lake, m->pools[i].pool, &m->pools[i].stats)) return 0;
  }
  return 1;
}

/* All lines of a figure stand together. What is in no pool has one, under whichever name. */
static inline void gmlake_metrics_pools(gmlake_metrics *m) {
  const char *name, *help, *outside = "";
  char unnamed[32]; /* the label "" is of what is in no pool */
  unsigned figure = 0;
  double value;
  size_t i;
  for (i = m->pool_count; i-- > 0;)
    if (!m->pools[i].pool) outside = m->pools[i].name;
  while ((name = gmlake_metrics_of_pool(&m->outside, figure, &help, &value)) != NULL) {
    gmlake_metrics_head(m, name, "gauge", help);
    gmlake_metrics_line(m, name, "pool", outside, value);
    for (i = 0; i < m->pool_count; i++) {
      if (!m->pools[i].pool) continue;
      (void)gmlake_metrics_of_pool(&m->pools[i].stats, figure, &help, &value);
      (void)snprintf(unnamed, sizeof unnamed, "pool %u", (unsigned)i + 1);
      gmlake_metrics_line(m, name, "pool", *m->pools[i].name ? m->pools[i].name : unnamed, value);
    }
    figure++;
  }
}

static inline void gmlake_metrics_counters(gmlake_metrics *m, const gmlake_stats *s) {
  static const char *const states[] = {"exact", "split", "stitched", "grown", "failed"};
  const char *const counter = "counter";
  unsigned i;
  gmlake_metrics_one(m, "allocations_total", counter, "Allocations.", (double)s->allocation_count);
  gmlake_metrics_one(m, "frees_total", counter, "Frees.", (double)s->free_count);
  gmlake_metrics_head(m, "attempts_total", counter,
                      "Attempts to serve a request, by how they end.");
  for (i = 0; i < 5; i++)
    gmlake_metrics_line(m, "attempts_total", "end", states[i], (double)s->state_count[i]);
  gmlake_metrics_one(m, "out_of_memory_total", counter, "Attempts that failed for want of memory.",
                     (double)s->oom_count);
  gmlake_metrics_one(m, "stitches_total", counter, "Windows made.", (double)s->stitch_count);
  gmlake_metrics_one(m, "reuses_total", counter, "Windows taken again.",
                     (double)s->stitch_reuse_count);
  gmlake_metrics_one(m, "evictions_total", counter, "Windows dropped.",
                     (double)s->stitch_evict_count);
  gmlake_metrics_head(m, "waits_total", counter, "Waits for memory that streams still use.");
  gmlake_metrics_line(m, "waits_total", "who", "stream", (double)s->stream_wait_count);
  gmlake_metrics_line(m, "waits_total", "who", "host", (double)s->host_wait_count);
  gmlake_metrics_one(m, "driver_calls_total", counter, "Calls of the driver.",
                     (double)s->driver_call_count);
  gmlake_metrics_one(m, "driver_seconds_total", counter, "Time in them.",
                     (double)s->driver_ns / 1e9);
  gmlake_metrics_one(m, "quarantined_bytes", "gauge", "Given up: the driver did not take it back.",
                     (double)s->quarantined_bytes);
  gmlake_metrics_one(m, "metadata_bytes", "gauge", "Host memory of the lake.",
                     (double)s->metadata_bytes);
  gmlake_metrics_one(m, "live_bytes_peak", "gauge", "The most that was live.",
                     (double)s->active_bytes_peak);
  gmlake_metrics_one(m, "reserved_bytes_peak", "gauge", "The most that was held.",
                     (double)s->reserved_bytes_peak);
}

static inline void gmlake_metrics_budget(gmlake_metrics *m, const gmlake_budget *b,
                                         const gmlake_desc *d) {
  gmlake_metrics_one(m, "device_bytes", "gauge", "Memory of the device.", (double)b->total_bytes);
  gmlake_metrics_one(m, "device_free_bytes", "gauge", "Of it free, as the driver says.",
                     (double)b->driver_free_bytes);
  gmlake_metrics_one(m, "idle_bytes", "gauge", "Held, free, and used by no work.",
                     (double)b->idle_bytes);
  gmlake_metrics_one(m, "allocatable_bytes", "gauge", "The largest block that could be had.",
                     (double)b->allocatable_bytes);
  gmlake_metrics_one(m, "limit_bytes", "gauge", "desc.limit_bytes; 0 is no limit.",
                     (double)d->limit_bytes);
}

/* ---- The metrics ---------------------------------------------------------------------------- */

/* Writes the text, which ends with a 0 byte if it fits. lake_name is the value of the label `lake`.
   Returns how many bytes it has with that 0: if they are more than capacity, a part was written.
   Returns 0 if the lake does not answer: gmlake_get_last_error says why. The figures of the budget
   are left out if the driver does not answer. */
static inline size_t gmlake_metrics_write(gmlake *lake, const char *lake_name,
                                          gmlake_metrics_pool *pools, size_t pool_count, char *out,
                                          size_t capacity) {
  gmlake_metrics m;
  gmlake_stats stats;
  gmlake_budget budget;
  gmlake_desc desc;
  memset(&m, 0, sizeof m);
  memset(&stats, 0, sizeof stats);
  memset(&desc, 0, sizeof desc);
  m.lake = lake_name;
  m.pools = pools;
  m.pool_count = pool_count;
  m.out = out;
  m.capacity = capacity;
  if (gmlake_get_stats(lake, &stats) || gmlake_get_desc(lake, &desc)) return 0;
  if (!gmlake_metrics_ask(&m, lake)) return 0;
  gmlake_metrics_pools(&m);
  gmlake_metrics_counters(&m, &stats);
  if (!gmlake_get_budget(lake, &budget)) gmlake_metrics_budget(&m, &budget, &desc);
  return m.used + 1;
}

#endif
