/* Makes a program that breaks a rule as short as it goes: it takes parts away, then options, then
   makes numbers smaller, as long as the same rule breaks. Include after player.h. */
#if !defined(PLAY_SHRINK_H)
#define PLAY_SHRINK_H

#include "player.h"

#define SHRINK_PLAYS 6000

static struct shrinker {
  char rule[sizeof(verdict.rule)];
  size_t plays;
} shrinker;

static int breaks_too(program *p) {
  if (++shrinker.plays > SHRINK_PLAYS) return 0;
  return play(p, NULL) && !strncmp(verdict.rule, shrinker.rule, 24);
}

/* Takes `count` operations away from `at` on, if the rest breaks the rule too. */
static int takes_away(program *p, size_t at, size_t count) {
  program rest = *p;
  rest.ops = (op *)malloc((p->count + 1) * sizeof(op));
  if (!rest.ops) abort();
  memcpy(rest.ops, p->ops, at * sizeof(op));
  memcpy(rest.ops + at, p->ops + at + count, (p->count - at - count) * sizeof(op));
  rest.count = p->count - count;
  if (breaks_too(&rest)) {
    memcpy(p->ops, rest.ops, rest.count * sizeof(op));
    p->count = verdict.at + 1 < rest.count ? verdict.at + 1 : rest.count;
    free(rest.ops);
    return 1;
  }
  free(rest.ops);
  return 0;
}

static int shrink_ops(program *p) {
  size_t part;
  int has_shrunk = 0;
  for (part = p->count / 2 + 1; part; part /= 2) {
    size_t at = p->count;
    while (at) {
      const size_t count = part < at ? part : at;
      at -= count;
      if (at + count <= p->count && takes_away(p, at, count)) has_shrunk = 1;
      if (at > p->count) at = p->count;
    }
  }
  return has_shrunk;
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
