/* TEST_PART=N: one part in N of what a test repeats with other numbers. Without it a quarter, or
   all with TEST_WHOLE=yes, as each night. Each kind of step is still made. */
#if !defined(PART_H_INCLUDED)
#define PART_H_INCLUDED

#include <stdlib.h>

/* TEST_WHOLE=yes: what takes minutes, too. */
static inline int test_whole(void) {
  const char *text = getenv("TEST_WHOLE");
  return text && *text;
}

static inline unsigned test_part(void) {
  const char *text = getenv("TEST_PART");
  const unsigned long part = text ? strtoul(text, NULL, 10) : test_whole() ? 1 : 4;
  return part > 1 && part < 1000 ? (unsigned)part : 1;
}

static inline unsigned part_of(unsigned times) { return (times - 1) / test_part() + 1; }

#endif
