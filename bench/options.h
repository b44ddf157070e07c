/* Reads the options of a program from a table. `--name value` and `--name=value` mean the same,
   `-h` and `--help` print the help, what stands behind `--` is no option. Options and other words
   may stand in any order. What is wrong is told together with what would be right.
   pre: the file defines _GNU_SOURCE or is compiled as gnu99 (getopt_long). */
#if !defined(OPTIONS_H_INCLUDED)
#define OPTIONS_H_INCLUDED

#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum option_kind {
  OPTION_FLAG = 0, /* int: 1 where it is given */
  OPTION_COUNT,    /* uint64_t from min to max */
  OPTION_NUMBER,   /* double from min to max */
  OPTION_TEXT      /* const char * */
} option_kind;

typedef struct option_row {
  const char *name; /* without the two dashes */
  option_kind kind;
  void *out;          /* what kind says; keeps its value where the option is not given */
  double min, max;    /* of counts and numbers */
  const char *value;  /* what the help calls the value; NULL for flags */
  const char *effect; /* for the help: lines, the first letter small */
} option_row;

typedef struct option_reader {
  const char *program;  /* its name, for errors */
  const char *synopsis; /* behind the name: "[OPTION]... [GRAPH]..." */
  const char *about;    /* for the help: lines above the options, */
  const char *more;     /* and below them; may be "" */
  const option_row *rows;
  size_t row_count;
} option_reader;

#define OPTIONS_MAX 64
#define OPTIONS_COLUMN 24 /* at which the help tells what an option does */

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
  if (row->kind == OPTION_FLAG || row->kind == OPTION_TEXT) {
    (void)snprintf(out, room, "%s", row->value ? row->value : "no value");
  } else {
    (void)snprintf(out, room, "a %s from %.12g to %.12g",
                   row->kind == OPTION_COUNT ? "whole number" : "number", row->min, row->max);
  }
}

/* Says what is wrong; row NULL: there is no such option. Exits with 2. */
static inline void options_refuse(const option_reader *r, const option_row *row,
                                  const char *value) {
  char wanted[100];
  if (!row) {
    fprintf(stderr, "%s: %s: no such option", r->program, value);
  } else {
    options_wanted(row, wanted, sizeof wanted);
    fprintf(stderr, "%s: --%s takes %s, not '%s'", r->program, row->name, wanted, value);
  }
  fprintf(stderr, "; %s --help explains the options\n", r->program);
  exit(2);
}

static inline void options_store(const option_reader *r, const option_row *row, const char *value) {
  char *end = NULL;
  double number;
  if (row->kind == OPTION_FLAG) *(int *)row->out = 1;
  if (row->kind == OPTION_TEXT) *(const char **)row->out = value;
  if (row->kind == OPTION_FLAG || row->kind == OPTION_TEXT) return;
  number = strtod(value, &end);
  if (end == value || *end || !(number >= row->min && number <= row->max) ||
      (row->kind == OPTION_COUNT && number != (double)(uint64_t)number)) {
    options_refuse(r, row, value);
  }
  if (row->kind == OPTION_COUNT) {
    *(uint64_t *)row->out = (uint64_t)number;
  } else {
    *(double *)row->out = number;
  }
}

/* The row that getopt_long complains about; NULL: none has that name. */
static inline const option_row *options_row(const option_reader *r, int value) {
  int i = value - OPTIONS_MAX;
  return i >= 0 && (size_t)i < r->row_count ? &r->rows[i] : NULL;
}

/* Reads all options. Returns the index of the first other word in argv, behind which only other
   words stand. Exits with 0 behind the help, with 2 where an option is wrong. */
static inline int options_read(const option_reader *r, int argc, char **argv) {
  struct option table[OPTIONS_MAX + 2];
  size_t i, count = r->row_count < OPTIONS_MAX ? r->row_count : OPTIONS_MAX;
  int found;
  memset(table, 0, sizeof table);
  for (i = 0; i < count; i++) {
    table[i].name = r->rows[i].name;
    table[i].has_arg = r->rows[i].kind == OPTION_FLAG ? no_argument : required_argument;
    table[i].val = OPTIONS_MAX + (int)i; /* no letter */
  }
  table[count].name = "help";
  table[count].val = 'h';
  opterr = 0;
  while ((found = getopt_long(argc, argv, ":h", table, NULL)) != -1) {
    if (found == 'h') {
      options_help(r);
      exit(0);
    }
    if (found == ':') options_refuse(r, options_row(r, optopt), "");
    if (found == '?') options_refuse(r, options_row(r, optopt), argv[optind - 1]);
    options_store(r, &r->rows[found - OPTIONS_MAX], optarg ? optarg : "");
  }
  return optind;
}

#endif
