/* How far long work is, on standard error: on a terminal one line that changes, in a log a line for
   each tenth of it, where it has twenty parts or more; with the time that it took and about will
   take. */
#if !defined(PROGRESS_H)
#define PROGRESS_H

#include <stddef.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

typedef struct progress {
  size_t total, done;
  double start_s;
} progress;

static inline double progress_now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static inline void progress_open(progress *p, size_t total) {
  p->total = total;
  p->done = 0;
  p->start_s = progress_now_s();
}

/* Before something else is printed. */
static inline void progress_clear(void) {
  if (isatty(STDERR_FILENO)) fprintf(stderr, "\r\033[K");
}

/* One more is done, the one of that name. */
static inline void progress_step(progress *p, const char *name) {
  const double took_s = progress_now_s() - p->start_s;
  const int is_line = isatty(STDERR_FILENO);
  p->done++;
  if (p->total < p->done) p->total = p->done;
  if (!is_line && (p->total < 20 || p->done * 10 / p->total == (p->done - 1) * 10 / p->total))
    return;
  fprintf(stderr, "%s%lu of %lu: %s; %.0f s, about %.0f s left%s", is_line ? "\r\033[K" : "",
          (unsigned long)p->done, (unsigned long)p->total, name, took_s,
          took_s / (double)p->done * (double)(p->total - p->done), is_line ? "" : "\n");
}

#endif
