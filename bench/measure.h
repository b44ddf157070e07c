/* What every benchmark needs: a clock, samples, tables as text or Markdown, and a JSON document. A
   figure that is not known is NAN; it is `-` in a table and null in JSON. */
#if !defined(MEASURE_H)
#define MEASURE_H

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- Time and samples ------------------------------------------------------------------------ */

static double measure_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static double now_ns(void) { return measure_ns(CLOCK_MONOTONIC); }

/* The time that it takes to read the clock once. */
static double clock_cost_ns(void) {
  const double start = now_ns();
  int i;
  for (i = 0; i < 9999; i++) (void)now_ns();
  return (now_ns() - start) / 10000;
}

#define SAMPLES_MAX 4096

/* The first sample is kept apart, because a first use costs more. */
typedef struct samples {
  double first, sum;
  size_t count; /* not counting the first */
  int started;
  double items[SAMPLES_MAX];
} samples;

static void samples_clear(samples *s) {
  s->started = 0;
  s->count = 0;
  s->first = NAN;
  s->sum = 0;
}

/* Adds a sample. After SAMPLES_MAX samples, further ones are dropped. */
static void samples_add(samples *s, double value) {
  if (!s->started) {
    s->started = 1;
    s->first = value;
  } else if (s->count < SAMPLES_MAX) {
    s->items[s->count++] = value;
    s->sum += value;
  }
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Sorts the values and returns the median; NAN if there are none. */
static double median(double *values, size_t count) {
  if (!count) return NAN;
  qsort(values, count, sizeof(double), compare_doubles);
  return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static double samples_mean(const samples *s) { return s->count ? s->sum / (double)s->count : NAN; }

/* ---- JSON ------------------------------------------------------------------------------------ */

#define JSON_DEPTH 8

typedef struct json {
  FILE *file; /* NULL: nothing is written */
  int depth;
  int filled[JSON_DEPTH]; /* whether this depth has an element already */
} json;

/* name is NULL for an element of an array. Each such element begins a new line. */
static void json_key(json *j, const char *name) {
  if (j->filled[j->depth]) fputs(name ? ", " : ",", j->file);
  j->filled[j->depth] = 1;
  if (name)
    fprintf(j->file, "\"%s\": ", name);
  else if (j->depth)
    fputc('\n', j->file);
}

static void json_begin(json *j, const char *name, char bracket) {
  if (!j->file) return;
  json_key(j, name);
  fputc(bracket, j->file);
  j->filled[++j->depth] = 0;
}

static void json_end(json *j, char bracket) {
  if (!j->file) return;
  fputc(bracket, j->file);
  if (!--j->depth) fputc('\n', j->file);
}

static void json_text(json *j, const char *name, const char *text) {
  if (!j->file) return;
  json_key(j, name);
  fputc('"', j->file);
  for (; *text; text++) {
    unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\') fputc('\\', j->file);
    if (c < 0x20)
      fprintf(j->file, "\\u%04x", (unsigned)c);
    else
      fputc(c, j->file);
  }
  fputc('"', j->file);
}

static void json_count(json *j, const char *name, uint64_t value) {
  if (!j->file) return;
  json_key(j, name);
  fprintf(j->file, "%llu", (unsigned long long)value);
}

/* Writes a whole number, or null if it is NAN. */
static void json_whole(json *j, const char *name, double value) {
  if (!j->file) return;
  json_key(j, name);
  if (isnan(value))
    fputs("null", j->file);
  else
    fprintf(j->file, "%.0f", value);
}

static void json_real(json *j, const char *name, double value) {
  if (!j->file) return;
  json_key(j, name);
  if (isnan(value))
    fputs("null", j->file);
  else
    fprintf(j->file, "%.6g", value);
}

/* ---- Tables ---------------------------------------------------------------------------------- */

#define TABLE_COLUMNS 16
#define TABLE_CELL 80

/* A table. Its cells are added one after the other, row by row. The first row is the head. */
typedef struct table {
  int is_markdown;
  char title[256];
  size_t columns, count, capacity;
  char (*cells)[TABLE_CELL];
} table;

static void table_cell(table *t, const char *format, ...) {
  va_list arguments;
  if (t->count == t->capacity) {
    size_t capacity = t->capacity ? t->capacity * 2 : 256;
    void *grown = realloc(t->cells, capacity * TABLE_CELL);
    if (!grown) abort();
    t->cells = (char(*)[TABLE_CELL])grown;
    t->capacity = capacity;
  }
  va_start(arguments, format);
  vsnprintf(t->cells[t->count++], TABLE_CELL, format, arguments);
  va_end(arguments);
}

static void table_real(table *t, int decimals, double value) {
  if (isnan(value))
    table_cell(t, "-");
  else
    table_cell(t, "%.*f", decimals, value);
}

/* heads has the heads of the columns, separated by '|'. The head of a column of text begins with
   '<'. */
static void table_open(table *t, int is_markdown, const char *title, const char *heads) {
  memset(t, 0, sizeof *t);
  t->is_markdown = is_markdown;
  snprintf(t->title, sizeof t->title, "%s", title);
  for (; *heads; heads += strspn(heads, "|")) {
    size_t length = strcspn(heads, "|");
    table_cell(t, "%.*s", (int)length, heads);
    heads += length;
  }
  t->columns = t->count;
}

static void table_print_row(const table *t, size_t row, const int *widths) {
  size_t i;
  for (i = 0; i < t->columns; i++) {
    const char *cell = t->cells[row * t->columns + i];
    int is_text = t->cells[i][0] == '<', is_last = i + 1 == t->columns;
    if (t->is_markdown)
      printf("| %s ", cell + (!row && is_text));
    else if (is_text)
      printf("%-*s%s", is_last ? 0 : widths[i], cell + !row, is_last ? "" : "  ");
    else
      printf("%*s%s", widths[i], cell, is_last ? "" : "  ");
  }
  puts(t->is_markdown ? "|" : "");
  if (row || !t->is_markdown) return;
  for (i = 0; i < t->columns; i++) printf(t->cells[i][0] == '<' ? "|---" : "|---:");
  puts("|");
}

/* Prints the table and frees it. */
static void table_close(table *t) {
  int widths[TABLE_COLUMNS] = {0};
  size_t i;
  for (i = 0; i < t->count; i++) {
    int length = (int)strlen(t->cells[i]);
    if (length > widths[i % t->columns]) widths[i % t->columns] = length;
  }
  printf(t->is_markdown ? "\n### %s\n\n" : "\n%s\n", t->title);
  for (i = 0; i < t->count / t->columns; i++) table_print_row(t, i, widths);
  free(t->cells);
  fflush(stdout);
}

#endif
