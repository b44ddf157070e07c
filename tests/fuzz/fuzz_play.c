/* Fuzz target: the input is a program of tests/play, its options and operations in bytes. The judge
   there says whether a rule is broken. The program is told as a line of tests/play/language.h, as
   `build/test_random --play` plays it. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#define GMLK_CRUMB_PART 4u /* small lakes have crumbs, too */
#define GMLK_CRUMBS_PART 4u
#define GMLK_CRUMBS_FROM 6u
static unsigned unit_chunks; /* each lake has its own, which player.h sets */
#define GMLK_UNIT_CHUNKS unit_chunks
#include "gmlake.h"

#include "fuzz.h"

#include "../play/player.h"

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
