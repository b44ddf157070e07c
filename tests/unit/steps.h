/* Counts the steps that a test takes, which are the same on every machine (step_count.c). */
#if !defined(STEPS_H_INCLUDED)
#define STEPS_H_INCLUDED

#include <stdint.h>

volatile uint64_t step_count; /* so far; changes where no code here says so */

/* Skips the test where nothing is counted. Needs cmocka.h. */
static void need_steps(void) {
  const uint64_t before = step_count;
  volatile int branches = 3;
  while (branches) branches--;
  if (step_count == before) skip();
}

#endif
