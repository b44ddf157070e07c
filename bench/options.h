/* Reads the options of a program from a table. `--name value` and `--name=value` mean the same.
   `-h` and `--help` print the help. A word after `--` is not an option. Options and other words may
   come in any order. An error names the wrong value and says what would be right. pre: the file
   defines _GNU_SOURCE or is compiled as gnu99 (getopt_long). */
#if !defined(OPTIONS_H_INCLUDED)
#define OPTIONS_H_INCLUDED

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum option_kind {
  OPTION_FLAG = 0, /* int: 1 if it is given */
  OPTION_COUNT,    /* uint64_t from min to max */
  OPTION_POWER,    /* uint64_t, a power of two from min to max */
  OPTION_NUMBER,   /* double from min to max */
  OPTION_TEXT,     /* const char *, not empty */
  OPTION_LIST,     /* option_list: each text that is given */
  OPTION_WORD      /* int: which of the words of `value`, "this|that|other", counted from 0 */
} option_kind;

#define OPTION_LIST_MAX 64

typedef struct option_list {
  const char *values[OPTION_LIST_MAX];
  size_t count;
} option_list;

typedef struct option_row {
  const char *name; /* without the two dashes */
  option_kind kind;
  void *out;          /* of the type that kind says; unchanged if the option is not given */
  double min, max;    /* of counts, powers and numbers; of a list max: how many values fit */
  const char *value;  /* what the help calls the value; NULL for flags */
  const char *effect; /* for the help: one or more lines, beginning with a small letter */
} option_row;

typedef struct option_reader {
  const char *program;  /* its name, for errors */
  const char *synopsis; /* the usage after the name: "[OPTION]... [GRAPH]..." */
  const char *about;    /* for the help: lines above the options */
  const char *more;     /* for the help: lines below them; may be "" */
  const option_row *rows;
  size_t row_count;
} option_reader;

#define OPTIONS_MAX 64
#define OPTIONS_FIRST 256 /* getopt_long's number of the first row, above all letters */
#define OPTIONS_COLUMN 24 /* where the help says what an option does */

static inline void options_help(const option_reader *r) {
  size_t i;
  printf("usage: %s %s\n%s\n", r->program, r->synopsis, r->about);
  for (i = 0; i < r->row_count; i++) {
    const option_row *row = &r->rows[i];
    const char *line = row->effect, *end;
    int width =
        printf("  --%s%s%s", row->name, row->value ? " " : "", row->value ? row->value : "");
    if (width >= OPTIONS_COLUMN) width = printf("\n") - 1;
    for (; line; line = *end ? end + 1 : NULL) {
      end = line + strcspn(line, "\n");
      printf("%*s%.*s\n", OPTIONS_COLUMN - width, "", (int)(end - line), line);
      width = 0;
    }
  }
  printf("  %-*s%s\n%s", OPTIONS_COLUMN - 2, "-h, --help", "print this help", r->more);
}

/* What the option takes, in words. */
static inline void options_wanted(const option_row *row, char *out, size_t room) {
  if (row->kind == OPTION_LIST) {
    (void)snprintf(out, room, "%s, at most %.0f times", row->value, row->max);
  } else if (row->kind == OPTION_NUMBER) {
    (void)snprintf(out, room, "a number from %.12g to %.12g", row->min, row->max);
  } else if (row->kind == OPTION_COUNT || row->kind == OPTION_POWER) {
    (void)snprintf(out, room, "a %s from %.0f to %.0f",
                   row->kind == OPTION_COUNT ? "whole number" : "power of two", row->min, row->max);
  } else {
    (void)snprintf(out, room, "%s", row->value ? row->value : "no value");
  }
}

/* Prints what is wrong with the value of an option, and exits with 2. A program calls it for checks
   that the rows cannot express. */
static inline void options_wrong(const option_reader *r, const char *option, const char *wanted,
                                 const char *value) {
  fprintf(stderr, "%s: --%s takes %s, not '%s'; %s --help explains the options\n", r->program,
          option, wanted, value, r->program);
  exit(2);
}

/* The same for a row. row NULL: there is no such option. */
static inline void options_refuse(const option_reader *r, const option_row *row,
                                  const char *value) {
  char wanted[200];
  if (row) {
    options_wanted(row, wanted, sizeof wanted);
    options_wrong(r, row->name, wanted, value);
  }
  fprintf(stderr, "%s: %s: no such option; %s --help explains the options\n", r->program, value,
          r->program);
  exit(2);
}

/* These functions store the value. They return 0 if the row does not take it. */
static inline int options_store_count(const option_row *row, const char *value) {
  char *end = NULL;
  uint64_t number;
  errno = 0;
  number = strtoull(value, &end, 10);
  if (!isdigit((unsigned char)*value) || *end || errno || (double)number < row->min ||
      (double)number > row->max || (row->kind == OPTION_POWER && (number & (number - 1)))) {
    return 0;
  }
  *(uint64_t *)row->out = number;
  return 1;
}

static inline int options_store_number(const option_row *row, const char *value) {
  char *end = NULL;
  const double number = strtod(value, &end);
  if (end == value || *end || !(number >= row->min && number <= row->max)) return 0;
  *(double *)row->out = number;
  return 1;
}

static inline int options_store_word(const option_row *row, const char *value) {
  const char *word = row->value;
  int i;
  for (i = 0; word; i++) {
    const size_t length = strcspn(word, "|");
    if (strlen(value) == length && !strncmp(word, value, length)) {
      *(int *)row->out = i;
      return 1;
    }
    word = word[length] ? word + length + 1 : NULL;
  }
  return 0;
}

static inline int options_store_text(const option_row *row, const char *value) {
  option_list *list = (option_list *)row->out;
  if (!*value) return 0;
  if (row->kind == OPTION_TEXT) {
    *(const char **)row->out = value;
  } else {
    if (list->count == OPTION_LIST_MAX || (double)list->count >= row->max) return 0;
    list->values[list->count++] = value;
  }
  return 1;
}

static inline void options_store(const option_reader *r, const option_row *row, const char *value) {
  int fits = 1;
  if (row->kind == OPTION_FLAG) {
    *(int *)row->out = 1;
  } else if (row->kind == OPTION_NUMBER) {
    fits = options_store_number(row, value);
  } else if (row->kind == OPTION_WORD) {
    fits = options_store_word(row, value);
  } else if (row->kind == OPTION_TEXT || row->kind == OPTION_LIST) {
    fits = options_store_text(row, value);
  } else {
    fits = options_store_count(row, value);
  }
  if (!fits) options_refuse(r, row, value);
}

/* Reports what getopt_long refused: the value of a row, or a letter or name that no row has. */
static inline void options_unknown(const option_reader *r, int found, const char *word) {
  const int i = optopt - OPTIONS_FIRST;
  const char letter[3] = {'-', (char)optopt, 0};
  if (i >= 0 && (size_t)i < r->row_count) options_refuse(r, &r->rows[i], found == ':' ? "" : word);
  options_refuse(r, NULL, optopt ? letter : word);
}

/* Reads all options, and moves the other words to the end of argv. Returns the index of the first
   of them. Sets *out_help to 1 if the help was asked for. Exits with 2 if an option is wrong. */
static inline int options_parse(const option_reader *r, int argc, char **argv, int *out_help) {
  struct option table[OPTIONS_MAX + 2];
  size_t i, count = r->row_count < OPTIONS_MAX ? r->row_count : OPTIONS_MAX;
  int found;
  memset(table, 0, sizeof table);
  for (i = 0; i < count; i++) {
    table[i].name = r->rows[i].name;
    table[i].has_arg = r->rows[i].kind == OPTION_FLAG ? no_argument : required_argument;
    table[i].val = OPTIONS_FIRST + (int)i;
  }
  table[count].name = "help";
  table[count].val = 'h';
  *out_help = 0;
  opterr = 0;
  while ((found = getopt_long(argc, argv, ":h", table, NULL)) != -1) {
    if (found == ':' || found == '?') options_unknown(r, found, argv[optind - 1]);
    if (found == 'h') *out_help = 1;
    if (found >= OPTIONS_FIRST) {
      options_store(r, &r->rows[found - OPTIONS_FIRST], optarg ? optarg : "");
    }
  }
  return optind;
}

/* The same, but if the help was asked for, it prints the help and exits with 0. */
static inline int options_read(const option_reader *r, int argc, char **argv) {
  int help, first = options_parse(r, argc, argv, &help);
  if (!help) return first;
  options_help(r);
  exit(0);
}

/* The same for a program that takes only options. */
static inline void options_alone(const option_reader *r, int argc, char **argv) {
  const int first = options_read(r, argc, argv);
  if (first == argc) return;
  fprintf(stderr, "%s: %s: it takes options only; %s --help explains them\n", r->program,
          argv[first], r->program);
  exit(2);
}

#endif
