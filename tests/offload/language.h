/* What is done to gmlake_offload.h, in a line of words. An operation is one word and one struct
   operation; each becomes the other here. player.h performs them on a stage: graphs.h has graphs,
   plans, runs and memgraphs, sessions.h a session and its program.

   Tensors are a to z, a0 to z99, ... Sizes are in units: MiB on graphs.h's stage, chunks on the
   other; with b in bytes, with k and m in KiB and MiB; and may be sums: 4+64b. Times are in
   microseconds, or say ns, us, ms. `none` and `max` are numbers, too.

     {limit:4 paper}   options, from here on, also as what is compared below; a run ends here
     a=4  w=4p         tensor a of 4 units; p PERSISTENT, i INPUT, o OUTPUT
     a,w>b=2,w:50/7    an operator, or a step: reads a and w, makes b, writes w in place, takes 50
                       us; 7 is its key. Behind a name ? says: where it lives. Of a step each tensor
                       that it writes is read as well
     -a,b              [session] they are given up
     [4 a#+1=2 -a~ ]   four times; # counts up from 0, ~ down to it, each of the innermost loop
     given3:-a         only where region 3 was given up; kept3:-a where it was kept
     out:a,2,1,5       the event: a leaves 5 us behind operator 2; its last use is operator 1. in,
     =out:a,2,1,5      drop, remake likewise. With = it is the plan's next one
     plans<=2          compares sums, products, quotients of figures and numbers: = ! < > <= >=
     +out=9*plan_out   with + figures are those since `note`
     recorded:vgg16,1  the graph of bench/graphs, of iteration 1
     says:the_limit    that is in the last error's text, with _ for spaces
     run:3!D           behind a word: it fails. D out of device memory, H of host memory, I invalid
                       argument, U unknown id, B backend, N not sealed, S sealed, C cycle, R read
                       before write, W wrong device, V size overflow, P wrong plan, L duplicate,
                       T written input

   The tables below have the other words, the options and what stands behind their colon: a names, z
   a size, t a time, n a number. Without `free` each word is done and has the result that stands
   behind it. With it a word that cannot be done is passed over, and may fail if a call was made to
   fail, if memory lacks, or while the session is held. */
#if !defined(OFFLOAD_LANGUAGE_H)
#define OFFLOAD_LANGUAGE_H

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES 1024 /* of tensors in a line */
#define OPERANDS 8 /* of an operator */
#define ARGS 4
#define REGIONS 64
#define ANY 4294967295.0 /* none */
#define MOST 1.8446744073709552e19

typedef struct operand {
  uint16_t name;     /* the place in program.names */
  char kind, device; /* p i o, or 0 */
  char is_made;      /* it has a size */
  char is_loose;     /* its name has a ? */
  size_t bytes;
} operand;

typedef struct op {
  char verb;            /* words[] below; + a tensor, > an operator, = comparison, { option */
  char result;          /* that it has to have, a letter; 0: it succeeds */
  char given;           /* G: only where `region` was given up, K: where it was kept, 0: always */
  char is_expected;     /* an event or a node that has to be there */
  unsigned char option; /* [{] */
  unsigned char region, read_count, write_count, arg_count;
  operand operands[OPERANDS]; /* read, then written */
  double args[ARGS];
  uint64_t time_ns, key;
  const char *text; /* [= q @ {] in the program's lines */
} operation;

static const struct word {
  char verb;
  const char *name, *form;
} words[] = {
    {'M', "mark", ""},        /* [session] an iteration begins */
    {'S', "sync", ""},        /* the host waits for the device */
    {'p', "pin", "a"},        /* a stays on the device, */
    {'u', "unpin", "a"},      /* and may leave again */
    {'r', "room", "z"},       /* make_room; the figure `roomed` is what was given up */
    {'l', "limit", "z"},      /* another limit */
    {'h', "hold", "n"},       /* 1: the session is held, 0: no longer */
    {'t', "spend", "t"},      /* the host takes so long */
    {'(', "begin", "n"},      /* a region begins, */
    {')', "end", "n"},        /* it or its repetition ends; so many bytes are unseen */
    {'A', "again", "n"},      /* it is executed again */
    {'R', "redo", "aznn"},    /* a region that makes a, or makes it again: size, key, unseen */
    {'F', "fail-call", "n"},  /* the n-th call of the device from here fails; 0: none does */
    {'H', "fail-host", "n"},  /* the n-th request for host memory does */
    {'X', "unmappable", "n"}, /* the lake's driver maps nothing, and says that number */
    {'w', "touch", "a"},      /* work outside of steps writes a, which is pinned */
    {'V', "view", ""},        /* [session] what is planned is what the figures view_... tell of */
    {'N', "note", ""},        /* notes the figures */
    {'m', "same", ""},        /* all but the time are as noted */
    {'|', "faults", ""},      /* calls fail between here and the next one, in every case */
    {'s', "seal", ""},        /* [graph] it is whole; else by the first word that needs it */
    {'Z', "order", "nnnn"},   /* its first operators are these */
    {'W', "random", "nnn"},   /* the graph of that seed, with so many operators; tensors t0 on;
                                 on up to so many devices, with small tensors */
    {'P', "plan", ""},        /* a planner plans for the options' jobs; the first one's plan */
    {'o', "out", "annt"},     /* events of a plan: tensor, trigger, last use, delay */
    {'i', "in", "annt"},       {'x', "drop", "annt"},
    {'y', "remake", "annt"},   {'B', "by-hand", ""}, /* the plan of the events so far */
    {'J', "job", ""},         /* the run gets one more; else the first word that runs adds them */
    {'L', "leave", "n"},      /* a job leaves */
    {'K', "take", "n"},       /* the job takes the plan; */
    {'k', "unplan", "n"},     /* or none */
    {'U', "run", "n"},        /* so many iterations */
    {'T', "write", "an"},     /* the caller fills the first job's input a with that byte */
    {'C', "compile", "z"},    /* the memgraph for so much memory, checked and run in all orders */
    {'E', "execute", "n"},    /* it runs so often */
    {'Q', "odd", "n"},        /* the device is odd, in way n (cuda_machine.h) */
    {'n', "node-op", "nznn"}, /* its next node: operator, offset, a node before, 1: for memory */
    {'O', "node-out", "aznn"}, {'I', "node-in", "aznn"},
};
#define WORDS (sizeof(words) / sizeof(words[0]))

/* Name, word, form; 0: it is 1 where it stands. */
#define OPTIONS(X)                                                                    \
  X(FREE, "free", 0)           /* a program that takes what comes */                  \
  X(CHUNK, "chunk", 'z')       /* the unit */                                         \
  X(LIMIT, "limit", 'z')       /* of the session or the run; 0: none */               \
  X(DEVICE, "device", 'z')     /* what the device has; else the limit */              \
  X(LINK, "link", 'n')         /* bytes a second in each direction */                 \
  X(JITTER, "jitter", 'n')     /* of operators and copies */                          \
  X(MIN, "min", 'z')           /* smaller tensors stay */                             \
  X(TRIES, "tries", 'n')       /* of the planner */                                   \
  X(PAPER, "paper", 0)         /* plans in paper mode */                              \
  X(TOLD, "told", 0)           /* [session] it knows the link's speed */              \
  X(MAP, "map", 't')           /* the lake takes so long to map a chunk */            \
  X(CHECKED, "checked", 0)     /* what is away is not mapped */                       \
  X(HOST_MAX, "host-max", 'z') /* of pinned memory */                                 \
  X(THREADS, "threads", 'n')   /* [session] that plan: see sessions.h */              \
  X(TIME, "time", 't')         /* of a step that does not say */                      \
  X(UNORDERED, "unordered", 0) /* [graph] operators may be in any order */            \
  X(TARGET, "target", 'z')     /* the planner's */                                    \
  X(OVERHEAD, "overhead", 'n')                                                        \
  X(RATIO, "ratio", 'n')                                                              \
  X(JOBS, "jobs", 'n')                                                                \
  X(BOTH, "both", 'n')           /* bytes a second in both directions together */     \
  X(UNPLANNED, "unplanned", 'n') /* 1: the run's jobs get no plan */                  \
  X(LRU, "lru", 0)                                                                    \
  X(AHEAD, "ahead", 'n')                                                              \
  X(DIVISOR, "divisor", 'n') /* of its mock */                                        \
  X(ALIGN, "align", 'z')     /* the memgraph's */                                     \
  X(ALLOC, "alloc", 'n')     /* memory is taken so many ns ahead, and 1 more */       \
  X(RELOAD, "reload", 'n')   /* the same of reloads */                                \
  X(TIGHT, "tight", 0)       /* devices have what their largest operators take, */    \
  X(SPARE, "spare", 'n')     /* and that share of the rest */                         \
  X(COPY, "copy", 't')       /* what a copy is thought to take beside its bytes */    \
  X(ORDER, "order", 'n')     /* of nodes: 0 any, 1 fixed_ops, 2 fixed, 3 simulated */ \
  X(STREAMS, "streams", 'n') /* that it has; 0: 1 */

#define OPTION_NAME(name, word, form) OPT_##name,
#define OPTION_WORD(name, word, form) {word, form},

enum { OPTIONS(OPTION_NAME) OPT_COUNT };

static const struct option_word {
  const char *name;
  char form;
} option_words[OPT_COUNT] = {OPTIONS(OPTION_WORD)};

static const char *const results = "DHIUBNSCRWVPLT";

typedef struct program {
  operation *ops;
  size_t count, room;
  uint16_t names[NAMES]; /* letter, number + 1 */
  size_t name_count, unit;
  char *lines[64]; /* that were read; texts of comparisons are in them */
  size_t line_count;
} program;

/* ---- Programs -------------------------------------------------------------------------------- */

static operation *program_add(program *p) {
  operation *o;
  if (p->count == p->room) {
    p->room = p->room ? 2 * p->room : 64;
    p->ops = (operation *)realloc(p->ops, p->room * sizeof(operation));
    if (!p->ops) abort();
  }
  o = &p->ops[p->count++];
  memset(o, 0, sizeof *o);
  return o;
}

static void program_free(program *p) {
  free(p->ops);
  while (p->line_count) free(p->lines[--p->line_count]);
  memset(p, 0, sizeof *p);
}

static uint16_t program_name(program *p, int letter, long number) {
  const uint16_t code = (uint16_t)((letter - 'a') * 1000 + number + 1);
  size_t i;
  for (i = 0; i < p->name_count; i++)
    if (p->names[i] == code) return (uint16_t)i;
  if (p->name_count == NAMES) abort();
  p->names[p->name_count] = code;
  return (uint16_t)p->name_count++;
}

/* ---- Loops become text ----------------------------------------------------------------------- */

typedef struct text {
  char *chars;
  size_t count, room;
} text;

static void text_add(text *t, const char *chars, size_t count) {
  if (t->count + count + 1 > t->room) {
    t->room = 2 * (t->count + count + 1);
    t->chars = (char *)realloc(t->chars, t->room);
    if (!t->chars) abort();
  }
  memcpy(t->chars + t->count, chars, count);
  t->count += count;
  t->chars[t->count] = '\0';
}

/* The bracket that closes the one at `open`, or NULL. */
static const char *closing(const char *open) {
  int depth = 0;
  for (; *open; open++) {
    depth += (*open == '[') - (*open == ']');
    if (depth == 0) return open;
  }
  return NULL;
}

/* What is between, with the counters of this loop; those of inner loops stay. */
static void add_turn(text *t, const char *at, const char *end, long i, long count) {
  int depth = 0;
  while (at < end) {
    const int is_count = depth == 1 && at[-1] == '['; /* of an inner loop's turns */
    depth += (*at == '[') - (*at == ']');
    if ((depth == 0 || is_count) && (*at == '#' || *at == '~')) {
      long number = *at == '#' ? i : count - 1 - i;
      char digits[24];
      at++;
      if ((*at == '+' || *at == '-') && isdigit((unsigned char)at[1])) {
        char *behind;
        number += strtol(at, &behind, 10);
        at = behind;
      }
      (void)snprintf(digits, sizeof digits, "%ld", number);
      text_add(t, digits, strlen(digits));
    } else {
      text_add(t, at++, 1);
    }
  }
}

static const char *expand(text *out, const char *line) {
  while (*line) {
    const char *open = strchr(line, '['), *close = open ? closing(open) : NULL;
    char *body;
    long count, i;
    if (!open) break;
    text_add(out, line, (size_t)(open - line));
    count = strtol(open + 1, &body, 10);
    if (!close || body == open + 1) return "a loop without a count or an end";
    for (i = 0; i < count; i++) {
      text turn = {NULL, 0, 0};
      const char *wrong;
      text_add(&turn, " ", 1);
      add_turn(&turn, body, close, i, count);
      wrong = expand(out, turn.chars);
      free(turn.chars);
      if (wrong) return wrong;
    }
    line = close + 1;
  }
  text_add(out, line, strlen(line));
  return NULL;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* One of what a row says as (a|b|c), the n-th; what stands alone is for all. How many there are. */
static inline size_t choose(text *out, const char *line, size_t n) {
  size_t count = 1;
  while (*line) {
    size_t i = 0;
    if (*line != '(') {
      text_add(out, line++, 1);
      continue;
    }
    for (line++; *line && *line != ')'; line++) {
      i += *line == '|';
      if (i == n && *line != '|') text_add(out, line, 1);
    }
    count = i + 1;
    line += *line == ')';
  }
  return count;
}

static double unit_of(const program *p, char form) {
  return form == 'z' ? (double)p->unit : form == 't' ? 1e3 : 1;
}

/* A sum of numbers; those without a letter count as `unit`. Nothing moves where there is none. */
static int read_number(const program *p, const char **at, double unit, double *out) {
  static const struct suffix {
    const char *name;
    double value;
  } suffixes[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"b", 1}, {"k", 1024}, {"m", 1048576}};
  size_t i;
  *out = 0;
  if (!strncmp(*at, "none", 4) || !strncmp(*at, "max", 3)) {
    *out = **at == 'n' ? ANY : MOST;
    *at += **at == 'n' ? 4 : 3;
    return 1;
  }
  if (!isdigit((unsigned char)**at) && **at != '.') return 0;
  for (;;) {
    char *end;
    double value = strtod(*at, &end), by = unit;
    for (i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
      if (strncmp(end, suffixes[i].name, strlen(suffixes[i].name)) != 0) continue;
      by = suffixes[i].value;
      end += strlen(suffixes[i].name);
      break;
    }
    if (i == sizeof suffixes / sizeof *suffixes && *end == 'u') by = (double)p->unit, end++;
    *out += value * by;
    *at = end;
    if (*end != '+' || !isdigit((unsigned char)end[1])) return 1;
    *at = end + 1;
  }
}

static int read_name(program *p, const char **at, operand *out) {
  long number = -1;
  const int letter = **at;
  if (!islower((unsigned char)letter)) return 0;
  ++*at;
  if (isdigit((unsigned char)**at)) {
    char *end;
    number = strtol(*at, &end, 10);
    *at = end;
  }
  if (number >= 999) return 0;
  memset(out, 0, sizeof *out);
  out->name = program_name(p, letter, number);
  if (**at == '?') out->is_loose = 1, ++*at;
  return 1;
}

/* Names with a comma between; `sizes`: each may have one, a kind and a device. */
static unsigned char read_operands(program *p, const char **at, operation *o, int sizes) {
  unsigned char count = 0;
  while (o->read_count + count < OPERANDS) {
    operand *one = &o->operands[o->read_count + count];
    if (!read_name(p, at, one)) break;
    count++;
    if (sizes && **at == '=') {
      double bytes;
      ++*at;
      one->is_made = 1;
      if (!read_number(p, at, (double)p->unit, &bytes)) return OPERANDS + 1;
      one->bytes = bytes >= MOST ? SIZE_MAX : (size_t)bytes;
      if (**at && strchr("pio", **at)) one->kind = *(*at)++;
      if (**at == '@') one->device = (char)(at[0][1] - '0'), *at += 2;
    }
    if (**at != ',') break;
    ++*at;
  }
  return count;
}

static int read_operator(program *p, const char **at, operation *o) {
  double number;
  o->verb = '>';
  o->read_count = read_operands(p, at, o, 0);
  if (*(*at)++ != '>') return 0;
  o->write_count = read_operands(p, at, o, 1);
  if (o->read_count > OPERANDS || o->write_count > OPERANDS) return 0;
  o->key = 1 + o->read_count + 16 * (uint64_t)o->write_count;
  o->time_ns = UINT64_MAX;
  while (**at == '/' || **at == ':') {
    const int is_key = *(*at)++ == '/';
    if (!read_number(p, at, is_key ? 1 : 1e3, &number)) return 0;
    if (is_key) o->key = (uint64_t)number;
    if (!is_key) o->time_ns = number >= MOST ? UINT64_MAX - 1 : (uint64_t)number;
  }
  return 1;
}

static int read_args(program *p, const char **at, operation *o, const char *form) {
  size_t i;
  for (i = 0; form[i] && (i == 0 ? **at == ':' : **at == ','); i++) {
    ++*at;
    if (form[i] == 'a') {
      if (!read_name(p, at, &o->operands[0])) return 0;
      o->read_count = 1;
    } else if (read_number(p, at, unit_of(p, form[i]), &o->args[o->arg_count])) {
      o->arg_count++;
    } else {
      return 0;
    }
  }
  return 1;
}

static int read_word(program *p, const char **at, operation *o) {
  size_t i, length = strcspn(*at, ":! \n");
  for (i = 0; i < WORDS; i++) {
    if (strlen(words[i].name) != length || strncmp(*at, words[i].name, length) != 0) continue;
    o->verb = words[i].verb;
    *at += length;
    return read_args(p, at, o, words[i].form);
  }
  return 0;
}

static int read_option(program *p, const char **at, operation *o) {
  size_t i, length = strcspn(*at, ": }\n");
  for (i = 0; i < OPT_COUNT; i++) {
    const char form[2] = {option_words[i].form, '\0'};
    if (strlen(option_words[i].name) != length || strncmp(*at, option_words[i].name, length) != 0)
      continue;
    o->verb = '{';
    o->option = (unsigned char)i;
    o->args[0] = 1;
    *at += length;
    if (form[0] && **at == ':' && islower((unsigned char)at[0][1])) {
      o->text = ++*at;
      *at += strcspn(*at, " }\n");
    } else if (form[0] && !read_args(p, at, o, form)) {
      return 0;
    }
    if (i == OPT_CHUNK) p->unit = (size_t)o->args[0];
    return 1;
  }
  return 0;
}

/* A name of a letter and digits, and what is behind it. */
static int is_name(const char *at, const char *behind) {
  if (!islower((unsigned char)*at++)) return 0;
  while (isdigit((unsigned char)*at)) at++;
  return *at && strchr(behind, *at);
}

static int read_op(program *p, const char **at, operation *o) {
  const char *begin = *at, *end = begin + strcspn(begin, " \n}");
  const char *given = !strncmp(begin, "given", 5) ? begin + 5 : begin + 4;
  if ((given == begin + 5 || !strncmp(begin, "kept", 4)) && isdigit((unsigned char)*given)) {
    char *behind;
    o->given = given == begin + 5 ? 'G' : 'K';
    o->region = (unsigned char)strtol(given, &behind, 10);
    if (*behind != ':' || o->region >= REGIONS) return 0;
    *at = begin = behind + 1;
  }
  if (!strncmp(begin, "says:", 5) || !strncmp(begin, "recorded:", 9)) {
    o->verb = *begin == 's' ? 'q' : '@';
    o->text = strchr(begin, ':') + 1;
    *at = end;
    return 1;
  }
  if (*begin == '=') o->is_expected = 1, *at = ++begin;
  if (*begin == '-' && is_name(begin + 1, " ,?\n!")) {
    o->verb = '-';
    ++*at;
    o->read_count = read_operands(p, at, o, 0);
  } else if (is_name(begin, "=")) {
    o->verb = '+';
    o->write_count = read_operands(p, at, o, 1);
  } else if (*begin == '>' || is_name(begin, ",>?")) {
    if (!read_operator(p, at, o)) return 0;
  } else if (begin + strcspn(begin, "=<>") < end) {
    o->verb = '=';
    o->text = begin;
    *at = end;
    return 1;
  } else if (!read_word(p, at, o)) {
    return 0;
  }
  if (**at == '!') o->result = at[0][1], *at += 2;
  return *at == end && (!o->result || strchr(results, o->result));
}

/* NULL, or what is wrong. The words are added to the program, whose unit is set. */
static inline const char *program_read(program *p, const char *line) {
  static char wrong[80];
  text all = {NULL, 0, 0};
  const char *at, *why;
  int is_option = 0;
  if (p->line_count == sizeof p->lines / sizeof *p->lines) return "too many lines";
  why = expand(&all, line);
  p->lines[p->line_count++] = all.chars;
  if (why) return why;
  for (at = all.chars; *at;) {
    operation *o;
    if (strchr(" \n{}", *at)) {
      is_option = *at == '{' || (is_option && *at != '}');
      at++;
      continue;
    }
    (void)snprintf(wrong, sizeof wrong, "%.*s", (int)strcspn(at, " \n"), at);
    o = program_add(p);
    if (is_option ? !read_option(p, &at, o) : !read_op(p, &at, o)) return wrong;
  }
  return NULL;
}

/* ---- Writing --------------------------------------------------------------------------------- */

static void write_number(FILE *out, const program *p, double value, char form) {
  const double unit = unit_of(p, form);
  if (value == ANY) {
    (void)fputs("none", out);
  } else if (value == MOST) {
    (void)fputs("max", out);
  } else if (form == 'n' || value / unit == (double)(uint64_t)(value / unit)) {
    (void)fprintf(out, "%.12g", value / unit);
  } else {
    (void)fprintf(out, "%.0f%s", value, form == 'z' ? "b" : "ns");
  }
}

static void write_operands(FILE *out, const program *p, const operand *first, size_t count) {
  size_t i;
  for (i = 0; i < count; i++) {
    const operand *one = &first[i];
    const int number = p->names[one->name] % 1000 - 1;
    (void)fprintf(out, "%s%c", i ? "," : "", 'a' + p->names[one->name] / 1000);
    if (number >= 0) (void)fprintf(out, "%d", number);
    if (one->is_loose) (void)fputc('?', out);
    if (!one->is_made) continue;
    (void)fputc('=', out);
    write_number(out, p, one->bytes == SIZE_MAX ? MOST : (double)one->bytes, 'z');
    if (one->kind) (void)fputc(one->kind, out);
    if (one->device) (void)fprintf(out, "@%d", one->device);
  }
}

static void write_args(FILE *out, const program *p, const operation *o, const char *form) {
  size_t i, next = 0;
  for (i = 0; form[i] && (form[i] == 'a' || next < o->arg_count); i++) {
    (void)fputc(i ? ',' : ':', out);
    if (form[i] == 'a')
      write_operands(out, p, o->operands, 1);
    else
      write_number(out, p, o->args[next++], form[i]);
  }
}

static void op_write(FILE *out, const program *p, const operation *o) {
  size_t i;
  if (o->given) (void)fprintf(out, "%s%u:", o->given == 'G' ? "given" : "kept", o->region);
  if (o->is_expected) (void)fputc('=', out);
  if (o->verb == '=' || o->verb == 'q' || o->verb == '@') {
    (void)fprintf(out, "%s%.*s",
                  o->verb == 'q'   ? "says:"
                  : o->verb == '@' ? "recorded:"
                                   : "",
                  (int)strcspn(o->text, " \n"), o->text);
  } else if (o->verb == '{') {
    const char form[2] = {option_words[o->option].form, '\0'};
    (void)fprintf(out, "{%s", option_words[o->option].name);
    if (o->text)
      (void)fprintf(out, ":%.*s", (int)strcspn(o->text, " }\n"), o->text);
    else
      write_args(out, p, o, form);
    (void)fputc('}', out);
  } else if (o->verb == '>') {
    write_operands(out, p, o->operands, o->read_count);
    (void)fputc('>', out);
    write_operands(out, p, o->operands + o->read_count, o->write_count);
    if (o->key != 1 + o->read_count + 16 * (uint64_t)o->write_count)
      (void)fprintf(out, "/%llu", (unsigned long long)o->key);
    if (o->time_ns != UINT64_MAX)
      (void)fputc(':', out), write_number(out, p, (double)o->time_ns, 't');
  } else if (o->verb == '-' || o->verb == '+') {
    if (o->verb == '-') (void)fputc('-', out);
    write_operands(out, p, o->operands, (size_t)o->read_count + o->write_count);
  } else {
    for (i = 0; words[i].verb != o->verb; i++) continue;
    (void)fputs(words[i].name, out);
    write_args(out, p, o, words[i].form);
  }
  if (o->result) (void)fprintf(out, "!%c", o->result);
}

static inline void program_write(FILE *out, const program *p) {
  size_t i;
  for (i = 0; i < p->count; i++) {
    if (i) (void)fputc(' ', out);
    op_write(out, p, &p->ops[i]);
  }
  (void)fputc('\n', out);
}

#endif /* OFFLOAD_LANGUAGE_H */
