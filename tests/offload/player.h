/* Plays programs of language.h: performs operations one by one on a stage, compares what a line
   says, and ends with a verdict. A stage is graphs.h or sessions.h. An includer has both of these
   include this, and gmlake_offload.h before. */
#if !defined(OFFLOAD_PLAYER_H)
#define OFFLOAD_PLAYER_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include "host.h"
#include "language.h"
#include "part.h"

/* ---- Verdicts -------------------------------------------------------------------------------- */

static struct verdict {
  jmp_buf out;
  char rule[240];
  size_t at; /* the operation that broke it */
} verdict;

static void broken(const char *format, ...) {
  va_list list;
  va_start(list, format);
  (void)vsnprintf(verdict.rule, sizeof verdict.rule, format, list);
  va_end(list);
  longjmp(verdict.out, 1);
}

#define JUDGE(condition)                                                       \
  do {                                                                         \
    if (!(condition)) broken("%s:%d: not %s", __FILE__, __LINE__, #condition); \
  } while (0)

#define JUDGE_OK(call)                                                       \
  do {                                                                       \
    gmlake_offload_result judged = call;                                     \
    if (judged) broken("%s: %s", gmlake_offload_result_name(judged), #call); \
  } while (0)

/* ---- Stages ---------------------------------------------------------------------------------- */

typedef struct figure {
  const char *name;
  int from;      /* a struct that the stage loads; its number there */
  size_t offset; /* of 8 bytes */
} figure;

typedef struct stage {
  size_t unit;
  const figure *figures;
  size_t figure_count;
  /* The struct of that number, of up to 512 bytes. */
  const void *(*load)(int from);
  void (*begin)(void);
  void (*perform)(const operation *o);
  void (*end)(void);
} stage;

#define FIGURES 80
#define TENSOR_NONE UINT32_MAX

static struct player {
  const program *program;
  const stage *stage;
  double options[OPT_COUNT];
  double noted[FIGURES];
  int reached; /* the last fault came to pass */
} player;

static size_t option_bytes(int option) {
  const double value = player.options[option];
  return value >= MOST ? SIZE_MAX : (size_t)value;
}
static int option_is_set(int option) { return player.options[option] != 0; }

static size_t size_arg(const operation *o, size_t n) {
  return o->args[n] >= MOST ? SIZE_MAX : (size_t)o->args[n];
}

/* Whether it succeeded. A line says how else it ends. */
static int ends_as_said(const operation *o, gmlake_offload_result result) {
  static const gmlake_offload_result of[] = {GMLAKE_OFFLOAD_ERROR_OUT_OF_DEVICE_MEMORY,
                                             GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY,
                                             GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT,
                                             GMLAKE_OFFLOAD_ERROR_UNKNOWN_ID,
                                             GMLAKE_OFFLOAD_ERROR_BACKEND,
                                             GMLAKE_OFFLOAD_ERROR_NOT_SEALED,
                                             GMLAKE_OFFLOAD_ERROR_SEALED,
                                             GMLAKE_OFFLOAD_ERROR_CYCLE,
                                             GMLAKE_OFFLOAD_ERROR_READ_BEFORE_WRITE,
                                             GMLAKE_OFFLOAD_ERROR_WRONG_DEVICE,
                                             GMLAKE_OFFLOAD_ERROR_SIZE_OVERFLOW,
                                             GMLAKE_OFFLOAD_ERROR_WRONG_PLAN,
                                             GMLAKE_OFFLOAD_ERROR_DUPLICATE_ID,
                                             GMLAKE_OFFLOAD_ERROR_WRITTEN_INPUT};
  const gmlake_offload_result wanted =
      o->result ? of[strchr(results, o->result) - results] : GMLAKE_OFFLOAD_OK;
  if (result != wanted)
    broken("ends with %s, not %s", gmlake_offload_result_name(result),
           gmlake_offload_result_name(wanted));
  return result == GMLAKE_OFFLOAD_OK;
}

/* ---- Figures and comparisons ----------------------------------------------------------------- */

static double figure_value(size_t i) {
  const figure *f = &player.stage->figures[i];
  const char *from = (const char *)player.stage->load(f->from);
  uint64_t value = 0;
  if (from) memcpy(&value, from + f->offset, sizeof value);
  return (double)value;
}

static void note_figures(void) {
  size_t i;
  JUDGE(player.stage->figure_count <= FIGURES);
  for (i = 0; i < player.stage->figure_count; i++) player.noted[i] = figure_value(i);
}

static void compare_notes(void) {
  size_t i;
  for (i = 0; i < player.stage->figure_count; i++) {
    const char *name = player.stage->figures[i].name;
    if (strcmp(name, "time") != 0 && figure_value(i) != player.noted[i])
      broken("%s was %.12g and is %.12g", name, player.noted[i], figure_value(i));
  }
}

static double read_sum(const char **at);

/* A number, a figure, or an option; what any of them is times or by others. */
static double read_product(const char **at) {
  double product = 1, value;
  char by = '*';
  for (;;) {
    const int is_since = **at == '+';
    size_t i, length;
    *at += is_since;
    if (!read_number(player.program, at, 1, &value)) {
      length = strspn(*at, "abcdefghijklmnopqrstuvwxyz_");
      for (i = 0; i < player.stage->figure_count; i++)
        if (strlen(player.stage->figures[i].name) == length &&
            !strncmp(player.stage->figures[i].name, *at, length))
          break;
      if (i == player.stage->figure_count) broken("no figure: %.30s", *at);
      value = figure_value(i) - (is_since ? player.noted[i] : 0);
      *at += length;
    }
    product = by == '*' ? product * value : product / value;
    if (**at != '*' && **at != '/') return product;
    by = *(*at)++;
  }
}

static double read_sum(const char **at) {
  double sum = read_product(at);
  while (**at == '+' || **at == '-') {
    const int sign = *(*at)++ == '+' ? 1 : -1;
    sum += sign * read_product(at);
  }
  return sum;
}

static void compare(const operation *o) {
  const char *at = o->text;
  const double left = read_sum(&at);
  const char by = *at++;
  const int or_same = *at == '=';
  double right;
  int holds;
  at += or_same;
  right = read_sum(&at);
  holds = by == '='   ? left == right
          : by == '!' ? left != right
          : by == '<' ? left < right
                      : left > right;
  if (or_same && left == right) holds = 1;
  if (!holds) broken("%.*s: %.12g and %.12g", (int)strcspn(o->text, " \n"), o->text, left, right);
}

/* ---- Playing --------------------------------------------------------------------------------- */

static int is_traced;

static void perform_op(const operation *o) {
  if (is_traced) {
    op_write(stderr, player.program, o);
    (void)fputc('\n', stderr);
  }
  if (o->verb == '{') {
    const char *at = o->text;
    player.options[o->option] = at ? read_sum(&at) : o->args[0];
  }
  if (o->verb == '=')
    compare(o);
  else if (o->verb == 'N')
    note_figures();
  else if (o->verb == 'm')
    compare_notes();
  else
    player.stage->perform(o);
}

/* What a stage does where it can go on no more, since a call was made to fail. */
#define GIVE_UP 2

/* NULL, or the rule that is broken. What is broken stays open. */
static const char *play(const program *p, const stage *on) {
  int how;
  memset(&player, 0, sizeof player);
  player.program = p;
  player.stage = on;
  verdict.at = 0;
  host_fail_in = 0;
  host_bytes = 0;
  how = setjmp(verdict.out);
  if (how == 1) return verdict.rule;
  if (how == 0) {
    on->begin();
    for (; verdict.at < p->count; verdict.at++) perform_op(&p->ops[verdict.at]);
  }
  on->end();
  JUDGE(host_bytes == 0);
  return NULL;
}

/* Plays it with the n-th call, or request for host memory, failing between the words `faults`. */
static inline const char *play_fault(program *p, const stage *on, char verb, long n) {
  operation *first = NULL, *last = NULL;
  size_t i;
  for (i = 0; i < p->count; i++) {
    if (!strchr("|FH", p->ops[i].verb)) continue;
    last = first ? &p->ops[i] : NULL;
    if (!first) first = &p->ops[i];
  }
  if (!first) return "there is no word `faults`";
  first->verb = verb;
  first->arg_count = 1;
  first->args[0] = (double)n;
  if (last) last->verb = verb, last->arg_count = 1, last->args[0] = 0;
  return play(p, on);
}

/* One after the other; of many some, at a distance that falls on every phase of what repeats. */
static inline const char *play_faults(program *p, const stage *on) {
  static const char verbs[] = {'F', 'H'};
  const long part = (long)test_part();
  long n, count = 0;
  size_t i;
  for (i = 0; i < 2; i++) {
    player.reached = 1;
    for (n = 1; player.reached; n += n < 16 ? 1 : n < 300 ? part : 36 * part + 1) {
      const char *rule = play_fault(p, on, verbs[i], n);
      count += player.reached;
      if (!rule) continue;
      (void)fprintf(stderr, "where call %ld fails: ", n);
      return rule;
    }
  }
  return count > 4 ? NULL : "nothing failed";
}

/* ---- Rows ------------------------------------------------------------------------------------ */

typedef struct row {
  const char *name, *line;
} row;

/* Tells what is broken, and where. */
static inline void tell(const program *p, const char *rule) {
  (void)fprintf(stderr, "word %zu", verdict.at + 1);
  if (verdict.at < p->count) (void)fputs(", ", stderr), op_write(stderr, p, &p->ops[verdict.at]);
  (void)fprintf(stderr, ": %s\n", rule);
}

/* Plays each of what the line says as (a|b); by `how`, if it is not NULL. */
static inline const char *play_line(const char *line, const stage *on,
                                    const char *(*how)(program *, const stage *)) {
  static program p;
  size_t n, count = 1;
  for (n = 0; n < count; n++) {
    text chosen = {NULL, 0, 0};
    const char *wrong;
    program_free(&p);
    p.unit = on->unit;
    count = choose(&chosen, line, n);
    wrong = chosen.chars ? program_read(&p, chosen.chars) : "there is no word";
    free(chosen.chars);
    if (wrong) {
      (void)fprintf(stderr, "not of the language: %s\n", wrong);
      return "not of the language";
    }
    wrong = how ? how(&p, on) : play(&p, on);
    if (!wrong) continue;
    tell(&p, wrong);
    return wrong;
  }
  return NULL;
}

/* Plays the row of a case; faults: play_faults, or NULL. */
#define play_row(state, on, faults)                                                   \
  do {                                                                                \
    const char *const rule_of = play_line(((const row *)*(state))->line, on, faults); \
    if (rule_of) fail_msg("%s", rule_of);                                             \
  } while (0)

#endif /* OFFLOAD_PLAYER_H */
