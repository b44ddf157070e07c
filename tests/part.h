/* TEST_PART=N: one part in N of what a test repeats with other numbers, for a run in which all
   takes long: under valgrind, say. Each kind of step is still made. */
#if !defined(PART_H_INCLUDED)
#define PART_H_INCLUDED

#include <stdlib.h>

static inline unsigned test_part(void) {
  const char *text = getenv("TEST_PART");
  const unsigned long part = text ? strtoul(text, NULL, 10) : 1;
  return part > 1 && part < 1000 ? (unsigned)part : 1;
}

/* TEST_WHOLE=yes: what takes minutes, too. */
static inline int test_whole(void) {
  const char *text = getenv("TEST_WHOLE");
  return text && *text;
}

static inline unsigned part_of(unsigned times) { return (times - 1) / test_part() + 1; }

#endif
