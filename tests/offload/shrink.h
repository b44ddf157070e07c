/* Makes a program that breaks a rule shorter: takes parts away as long as the same rule breaks. */
#if !defined(OFFLOAD_SHRINK_H)
#define OFFLOAD_SHRINK_H

#include "player.h"

#include "shorten.h"

#define SHRINK_PLAYS 3000

static struct shrinker {
  char rule[48]; /* as far as it has to be the same */
  size_t plays;
  const stage *on;
} shrinker;

static int breaks_so_far(void *of) {
  program *p = (program *)of;
  if (shrinker.plays == SHRINK_PLAYS) return 0;
  shrinker.plays++;
  if (!play(p, shrinker.on) || strncmp(verdict.rule, shrinker.rule, sizeof shrinker.rule - 1) != 0)
    return 0;
  if (verdict.at + 1 < p->count) p->count = verdict.at + 1;
  return 1;
}

/* Plays a program; where a rule breaks it is shrunk and told as a line. NULL, or the rule. */
static const char *play_and_shrink(program *p, const stage *on) {
  const char *rule = play(p, on);
  if (!rule) return NULL;
  shrinker.plays = 0;
  shrinker.on = on;
  (void)snprintf(shrinker.rule, sizeof shrinker.rule, "%.*s", (int)sizeof shrinker.rule - 1, rule);
  if (verdict.at + 1 < p->count) p->count = verdict.at + 1;
  while (shorten(p->ops, sizeof(operation), &p->count, breaks_so_far, p)) continue;
  rule = play(p, on);
  program_write(stderr, p);
  tell(p, rule ? rule : "it does not break again");
  return shrinker.rule;
}

#endif /* OFFLOAD_SHRINK_H */
