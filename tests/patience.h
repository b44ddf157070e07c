/* How long a test waits for what ends at once unless it hangs. Nothing else in a test may depend on
   the clock: the machine may be busy. */
#if !defined(PATIENCE_H_INCLUDED)
#define PATIENCE_H_INCLUDED

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PATIENCE_TEXT "TEST_TIMEOUT=SECONDS waits longer, TEST_TIMEOUT=0 for ever"

/* Seconds, 0: for ever. A quarter of what the runner gives a whole test, so that who waits inside
   can still tell for what. */
static inline unsigned patience(void) {
  const char *text = getenv("TEST_TIMEOUT");
  const unsigned long limit = text && *text ? strtoul(text, NULL, 10) : 3600;
  return limit ? (unsigned)(limit / 4 + 1) : 0;
}

#endif
