/* usage: test_rows [--play LINE] [--trace 1]
   What has to come of what is done to a lake: a row is a line of language.h, with the option
   `exact`, and a comment that says why. The judge judges it beside what the line itself compares.
   To add one: find its section, write what is done, and behind it what it has to come to; --play
   tries a line. */
#include "locks.h"

#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
static unsigned unit_chunks; /* each lake has its own, which player.h sets */
#define GMLK_UNIT_CHUNKS unit_chunks
#include "gmlake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#if defined(PLAY_DEVICE)
#include PLAY_DEVICE /* in the mock's place */
#endif
#include "player.h"
#include "meanwhile_rows.h"
#include "misuse_rows.h"
#include "question_rows.h"
#include "observer_rows.h"
#include "rows.h"
#include "sleep_rows.h"
#include "policy_rows.h"
#include "paper_rows.h"

/* Chunks are the unit of a row's words. */
static const char *play_row(const char *words, int how) {
  static program p;
  const char *wrong;
  size_t i;
  memset(p.options, 0, sizeof(p.options));
  p.count = 0;
  reading_unit = UNIT;
  wrong = program_read(&p, words);
  if (wrong) {
    (void)fprintf(stderr, "not of the language: %s\n", wrong);
    w.program = NULL;
    return "not of the language";
  }
  if (p.options[OPT_GRANULE]) p.options[OPT_EXACT] = 1;
  if (how == APART) p.options[OPT_CHUNK] = 2 * p.options[OPT_GRANULE];
  for (i = 0; i < p.count; i++)
    if (p.ops[i].verb == 'N' && !p.ops[i].more)
      p.ops[i].more = (how == WIDE ? 2 : 1) * p.options[OPT_GRANULE];
  return play(&p, NULL);
}

static void tell_row(const char *rule) {
  if (!w.program) return; /* it could not be read */
  program_write(stderr, w.program);
  (void)fprintf(stderr, "\nword %zu", verdict.at + 1);
  if (verdict.at < w.program->count)
    (void)fputs(", ", stderr), op_write(stderr, &w.program->ops[verdict.at]);
  (void)fprintf(stderr, ": %s\n", rule);
}

static void a_row(void **state) {
  const row *r = (const row *)*state;
  int how;
  for (how = TOGETHER; how <= WIDE; how *= 2) {
    const char *rule = r->how & how ? play_row(r->line, how) : NULL;
    if (!rule) continue;
    tell_row(rule);
    fail_msg("%s%s", rule,
             how == APART  ? ", with blocks of chunks of two"
             : how == WIDE ? ", with buffers of chunks of two"
                           : "");
  }
}

static void changes_cost_so_many_calls(void **state) {
  size_t i;
  int how;
  (void)state;
  for (i = 0; i < COSTS; i++)
    for (how = TOGETHER; how <= APART; how++) {
      const struct cost *c = &costs[i];
      char words[256];
      const char *rule;
      (void)snprintf(words, sizeof(words), "{granule:16 cap:32} %s mark %s calls=%u", c->before,
                     c->change, how == APART ? c->apart : c->together);
      rule = play_row(words, how);
      if (rule) tell_row(rule);
      if (rule) fail_msg("%s", rule);
    }
}

static void wrong_answers_change_nothing(void **state) {
  size_t i;
  (void)state;
  for (i = 0; i < WRONGS; i++) {
    const struct wrong *row = &wrongs[i];
    char words[1024];
    const char *rule;
    (void)snprintf(words, sizeof(words), "%s note mark %s +z=%s!I %s asked=1 same", WORLD,
                   row->answer, row->request, row->error);
    rule = play_row(words, TOGETHER);
    if (rule) tell_row(rule);
    if (rule) fail_msg("%s: %s", row->answer, rule);
  }
}

static const struct table {
  const row *rows;
  size_t count;
} tables[] = {{rows, ROWS},
              {misuse_rows, MISUSE_ROWS},
              {question_rows, QUESTION_ROWS},
              {sleep_rows, SLEEP_ROWS},
              {observer_rows, OBSERVER_ROWS},
              {meanwhile_rows, MEANWHILE_ROWS},
              {policy_rows, POLICY_ROWS},
              {paper_rows, PAPER_ROWS}};
#define TABLES (sizeof(tables) / sizeof(tables[0]))
#define CASES                                                                         \
  (ROWS + MISUSE_ROWS + QUESTION_ROWS + SLEEP_ROWS + OBSERVER_ROWS + MEANWHILE_ROWS + \
   POLICY_ROWS + PAPER_ROWS + 2)

int main(int argc, char **argv) {
  static struct CMUnitTest tests[CASES];
  struct CMUnitTest *test = tests;
  const char *wanted = NULL;
  size_t i, t;
  int n;
  is_strict = 1;
  for (n = 1; n + 1 < argc; n += 2) {
    if (strcmp(argv[n], "--trace") == 0)
      is_traced = strtol(argv[n + 1], NULL, 10) != 0;
    else if (strcmp(argv[n], "--play") == 0)
      wanted = argv[n + 1];
    else
      break;
  }
  if (n < argc) {
    (void)fprintf(stderr, "usage: %s [--trace 1] [--play LINE]\n", argv[0]);
    return 2;
  }
  if (wanted) {
    const char *rule = play_row(wanted, TOGETHER);
    if (rule) tell_row(rule);
    (void)printf("%s\n", rule ? rule : "nothing is found");
    return rule != NULL;
  }
  for (t = 0; t < TABLES; t++)
    for (i = 0; i < tables[t].count; i++) {
      if (!is_playable(tables[t].rows[i].line)) continue;
      test->name = tables[t].rows[i].name;
      test->test_func = a_row;
      test++->initial_state = (void *)(uintptr_t)&tables[t].rows[i];
    }
  test->name = "changes_cost_so_many_calls";
  test++->test_func = changes_cost_so_many_calls;
  test->name = "wrong_answers_change_nothing";
  test++->test_func = wrong_answers_change_nothing;
  return _cmocka_run_group_tests("rows", tests, (size_t)(test - tests), NULL, NULL);
}
