/* Fuzz target: the input is a program of tests/play, its options and operations in bytes. The judge
   there says whether a rule is broken. The program is told as a line of tests/play/language.h, as
   `build/test_random --play` plays it. */
#include "../play/small_lake.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static program p;
  const char *rule;
  program_from_bytes(&p, data, size);
  rule = play(&p, NULL);
  if (!rule) return 0;
  (void)fprintf(stderr, "operation %zu: %s\n", verdict.at, rule);
  p.count = verdict.at + 1 < p.count ? verdict.at + 1 : p.count;
  program_write(stderr, &p);
  (void)fputc('\n', stderr);
  abort();
}
