/* What the programs of bench/offload share: a clock, a link, figures that may not exist, names of
   files. */
#if !defined(FIGURES_H_INCLUDED)
#define FIGURES_H_INCLUDED

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define BOTH_PART (101. / 55) /* both directions of an H200's link carry, of what one does */

/* Milliseconds of processor time since the program began. */
static inline double processor_ms(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* a / b; 1 where both are 0. Not finite where b alone is 0: then there is no such figure. */
static inline double ratio(double a, double b) { return b > 0 ? a / b : a > 0 ? INFINITY : 1; }

/* The part of b that a is; none of nothing. */
static inline double part(double a, double b) { return b > 0 ? a / b : 0; }

typedef struct figure {
  char text[32];
} figure;

/* The number, by `format`; in its place `none` where it is not finite. */
static inline figure figure_of(double value, const char *format, const char *none) {
  figure f;
  if (isfinite(value)) {
    (void)snprintf(f.text, sizeof f.text, format, value);
  } else {
    (void)snprintf(f.text, sizeof f.text, "%s", none);
  }
  return f;
}

/* The file's name without folders and without what follows its first dot. */
static inline void graph_name(const char *path, char *out, size_t room) {
  const char *slash = strrchr(path, '/');
  (void)snprintf(out, room, "%s", slash ? slash + 1 : path);
  out[strcspn(out, ".")] = '\0';
}

#endif
