/* Makes a program that breaks a rule as short as it goes: it takes parts away, then options, then
   makes numbers smaller, as long as the same rule breaks. Include after player.h. */
#if !defined(PLAY_SHRINK_H)
#define PLAY_SHRINK_H

#include "player.h"

#include "shorten.h"

#define SHRINK_PLAYS 6000

static struct shrinker {
  char rule[sizeof(verdict.rule)];
  size_t plays;
} shrinker;

static int breaks_too(program *p) {
  if (++shrinker.plays > SHRINK_PLAYS) return 0;
  return play(p, NULL) && !strncmp(verdict.rule, shrinker.rule, 24);
}

static int breaks_so_far(void *of) {
  program *p = (program *)of;
  if (!breaks_too(p)) return 0;
  if (verdict.at + 1 < p->count) p->count = verdict.at + 1;
  return 1;
}

static int shrink_ops(program *p) {
  return shorten(p->ops, sizeof(op), &p->count, breaks_so_far, p);
}

static int tries(program *p, size_t *field, size_t value) {
  const size_t before = *field;
  if (before == value) return 0;
  *field = value;
  if (breaks_too(p)) return 1;
  *field = before;
  return 0;
}

static int shrink_fields(program *p) {
  int has_shrunk = 0;
  size_t i;
  for (i = 0; i < OPT_COUNT; i++)
    if (i != OPT_EXACT) has_shrunk |= tries(p, &p->options[i], 0);
  for (i = 0; i < p->count; i++) {
    op *o = &p->ops[i], before = *o;
    has_shrunk |= o->align && tries(p, &o->align, 0);
    if (o->bytes > w.chunk && o->verb == '+')
      has_shrunk |=
          tries(p, &o->bytes, w.chunk) || tries(p, &o->bytes, o->bytes / w.chunk * w.chunk);
    if (o->flags && o->verb == '+') {
      o->flags = 0;
      if (breaks_too(p))
        has_shrunk = 1;
      else
        *o = before;
    }
  }
  return has_shrunk;
}

static void shrink(program *p) {
  const int was_traced = is_traced;
  is_traced = 0;
  shrinker.plays = 0;
  memcpy(shrinker.rule, verdict.rule, sizeof(shrinker.rule));
  if (breaks_too(p))
    while ((shrink_ops(p) | shrink_fields(p)) && shrinker.plays < SHRINK_PLAYS) continue;
  else
    (void)fprintf(stderr, "it does not break again in this order\n");
  is_traced = was_traced;
  memcpy(verdict.rule, shrinker.rule, sizeof(shrinker.rule));
}

#endif /* PLAY_SHRINK_H */
