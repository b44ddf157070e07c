/* usage: play COUNT
   So many random programs of tests/play under its judge, for systems that the other tests do not
   run on: it needs the C library alone, and no memory behind addresses. Prints a line and exits
   with 0, or the rule that was broken and the program. */
#include "../play/small_lake.h"

#include "../play/chance.h"

static void fit(size_t *options) {
  options[OPT_BOOKS] = 1;
  options[OPT_SHARE] = options[OPT_FILL] = 0;
}

int main(int argc, char **argv) {
  static program p;
  const uint64_t count = argc > 1 ? (uint64_t)atol(argv[1]) : 0;
  uint64_t seed;
  fit_options = fit;
  for (seed = 1; seed <= count; seed++) {
    const char *rule;
    prepare(&p, seed);
    rule = play(&p, choose);
    if (!rule) continue;
    (void)printf("seed %u: %s\n", (unsigned)seed, rule);
    program_write(stdout, &p);
    return 1;
  }
  (void)puts("every program holds");
  return count == 0;
}
