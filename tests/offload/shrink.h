/* Makes a program that breaks a rule shorter: takes parts away as long as the same rule breaks. */
#if !defined(OFFLOAD_SHRINK_H)
#define OFFLOAD_SHRINK_H

#include "player.h"

#define SHRINK_PLAYS 3000

static struct shrinker {
  char rule[48]; /* as far as it has to be the same */
  size_t plays;
} shrinker;

/* Without `count` operations from `at` on. */
static int breaks_without(program *p, const stage *on, size_t at, size_t count) {
  operation *all = (operation *)malloc((p->count + 1) * sizeof(operation));
  const size_t before = p->count;
  if (!all) abort();
  shrinker.plays++;
  memcpy(all, p->ops, p->count * sizeof(operation));
  memmove(p->ops + at, p->ops + at + count, (p->count - at - count) * sizeof(operation));
  p->count -= count;
  if (play(p, on) && !strncmp(verdict.rule, shrinker.rule, sizeof shrinker.rule - 1)) {
    if (verdict.at + 1 < p->count) p->count = verdict.at + 1;
    free(all);
    return 1;
  }
  memcpy(p->ops, all, before * sizeof(operation));
  p->count = before;
  free(all);
  return 0;
}

static int shrink_once(program *p, const stage *on) {
  size_t part, at;
  int has_shrunk = 0;
  for (part = p->count / 2 + 1; part != 0; part /= 2) {
    for (at = p->count; at != 0 && shrinker.plays < SHRINK_PLAYS;) {
      const size_t count = part < at ? part : at;
      at -= count;
      if (at + count <= p->count && breaks_without(p, on, at, count)) has_shrunk = 1;
      if (at > p->count) at = p->count;
    }
  }
  return has_shrunk;
}

/* Plays a program; where a rule breaks it is shrunk and told as a line. NULL, or the rule. */
static const char *play_and_shrink(program *p, const stage *on) {
  const char *rule = play(p, on);
  if (!rule) return NULL;
  shrinker.plays = 0;
  (void)snprintf(shrinker.rule, sizeof shrinker.rule, "%.*s", (int)sizeof shrinker.rule - 1, rule);
  if (verdict.at + 1 < p->count) p->count = verdict.at + 1;
  while (shrinker.plays < SHRINK_PLAYS && shrink_once(p, on)) continue;
  rule = play(p, on);
  program_write(stderr, p);
  tell(p, rule ? rule : "it does not break again");
  return shrinker.rule;
}

#endif /* OFFLOAD_SHRINK_H */
