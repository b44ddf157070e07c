/* What has to come of what is done to a lake: a row is a line of language.h, with the option
   `exact`, and a comment that says why. The judge judges it beside what the line itself compares.
   To add one: find its section, write what is done, and behind it what it has to come to; --play
   tries a line. */
#include "lake.h"

#include "cases.h"
#include "options.h"

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
  const char *wrong = program_of(&p, words);
  size_t i;
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

CASE(changes_cost_so_many_calls) {
  size_t i;
  int how;
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

CASE(wrong_answers_change_nothing) {
  size_t i;
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
int main(int argc, char **argv) {
  const char *wanted = NULL;
  const option_row options[] = {
      {"play", OPTION_TEXT, &wanted, 0, 0, "LINE", "plays a line of language.h"},
      {"trace", OPTION_FLAG, &is_traced, 0, 0, NULL, "says what is done"}};
  const option_reader reader = {"test_rows", "[OPTION]...", "", "", options, 2};
  size_t i, t;
  options_alone(&reader, argc, argv);
  is_strict = 1;
  if (wanted) {
    const char *rule = play_row(wanted, TOGETHER);
    if (rule) tell_row(rule);
    (void)printf("%s\n", rule ? rule : "nothing is found");
    return rule != NULL;
  }
  for (t = 0; t < TABLES; t++)
    for (i = 0; i < tables[t].count; i++) {
      const row *r = &tables[t].rows[i];
      if (is_playable(r->line)) add_case(r->name, a_row, r);
    }
  return run_cases("rows");
}
