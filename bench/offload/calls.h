/* Plays a session's calls as examples/torch/session.hpp writes them down, on the mock's clock: what
   a real program did, and what the session would do under another limit. Part of session.c. */
#if !defined(CALLS_H_INCLUDED)
#define CALLS_H_INCLUDED

#include "../lines.h"

enum { /* what a call is */
       CALL_LIMIT,
       CALL_ALLOC,
       CALL_FREE,
       CALL_BEGIN,
       CALL_END,
       CALL_MARK,
       CALL_PIN,
       CALL_UNPIN,
       CALL_HOLD,
       CALL_ROOM,
       CALL_REGION,
       CALL_AGAIN,
       CALL_REGION_END,
       CALL_OTHERS,
       CALL_TIME,
       CALLS
};
static const struct {
  const char *name;
  size_t count; /* of its numbers, after the time; a begin's lists come behind them */
} call_rows[CALLS] = {{"limit", 1},  {"alloc", 3}, {"free", 2},       {"begin", 3},  {"end", 0},
                      {"mark", 0},   {"pin", 2},   {"unpin", 2},      {"hold", 1},   {"room", 1},
                      {"region", 0}, {"again", 1}, {"region_end", 1}, {"others", 1}, {"time", 1}};

#define CALL_STREAMS 64u
#define CALL_LINE ((size_t)1 << 20)

typedef struct one_call {
  unsigned what;
  uint64_t us;           /* when the program made it, since its first one */
  size_t numbers, count; /* from there on, so many */
} one_call;

typedef struct calls {
  one_call *calls;
  uint64_t *numbers;
  size_t count, capacity, number_count, number_capacity;
  size_t most_numbers;          /* of a call */
  uint64_t tensors;             /* numbers are below it */
  uint64_t *step_ns;            /* by call: of a begin */
  size_t time_from;             /* the first call of the last row of times; */
  size_t step_from, step_count; /* that iteration begins there, and has so many steps */
  lines in;
} calls;

static int calls_add_number(calls *c, uint64_t number) {
  uint64_t *numbers = (uint64_t *)lines_grow(&c->in, c->numbers, c->number_count,
                                             &c->number_capacity, sizeof *numbers);
  if (!numbers) return 0;
  c->numbers = numbers;
  numbers[c->number_count++] = number;
  return 1;
}

static int calls_read_call(calls *c) {
  const char *word = lines_word(&c->in);
  one_call *all =
               (one_call *)lines_grow(&c->in, c->calls, c->count, &c->capacity, sizeof *c->calls),
           *call;
  uint64_t number;
  if (!all) return 0;
  c->calls = all;
  call = &all[c->count++];
  for (call->what = 0; word && call->what < CALLS; call->what++)
    if (!strcmp(word, call_rows[call->what].name)) break;
  if (!word || call->what == CALLS)
    return lines_fail(&c->in, "'%.40s' is no call", word ? word : "");
  call->numbers = c->number_count;
  if (!lines_number(&c->in, "the time", UINT64_MAX, &call->us)) return 0;
  while ((word = lines_word(&c->in)) != NULL)
    if (!lines_parse(&c->in, word, "a number", UINT64_MAX, &number) || !calls_add_number(c, number))
      return 0;
  call->count = c->number_count - call->numbers;
  if (call->count > c->most_numbers) c->most_numbers = call->count;
  if (call->count < call_rows[call->what].count ||
      (call->what != CALL_BEGIN && call->count > call_rows[call->what].count))
    return lines_fail(&c->in, "%s takes %lu numbers", call_rows[call->what].name,
                      (unsigned long)call_rows[call->what].count);
  return 1;
}

/* Numbers of tensors and streams are below the bounds; a begin's list of reads lies in its line. */
static int calls_check(calls *c) {
  const one_call *call = &c->calls[c->count - 1];
  const uint64_t *n = c->numbers + call->numbers;
  size_t i;
  int has_tensor = call->what == CALL_ALLOC || call->what == CALL_FREE || call->what == CALL_PIN ||
                   call->what == CALL_UNPIN;
  if (call->what == CALL_ALLOC && n[0] < UINT32_MAX && n[0] >= c->tensors) c->tensors = n[0] + 1;
  if (has_tensor && n[0] >= c->tensors) return lines_fail(&c->in, "no such tensor");
  if ((has_tensor || call->what == CALL_BEGIN) &&
      n[call->what == CALL_ALLOC ? 2 : 1] >= CALL_STREAMS)
    return lines_fail(&c->in, "more than %u streams", CALL_STREAMS);
  if (call->what != CALL_BEGIN) return 1;
  if (n[2] > call->count - 3) return lines_fail(&c->in, "fewer tensors than it reads");
  for (i = 3; i < call->count; i++)
    if (n[i] >= c->tensors) return lines_fail(&c->in, "no such tensor");
  return 1;
}

static int calls_read(calls *c, const char *path, char *error, size_t error_bytes) {
  unsigned version;
  int more;
  memset(c, 0, sizeof *c);
  if (!lines_open(&c->in, path, CALL_LINE, error, error_bytes) ||
      !lines_read_head(&c->in, "gmcalls", 1, "recording of a session's calls", &version))
    return 0;
  while ((more = lines_next(&c->in)) > 0)
    if (!calls_read_call(c) || !calls_check(c)) return 0;
  return more == 0;
}

static void calls_close(calls *c) {
  lines_close(&c->in);
  free(c->calls);
  free(c->numbers);
  free(c->step_ns);
}

/* ---- How long steps take ---- */

static uint64_t key_of(const calls *c, size_t i) { return c->numbers[c->calls[i].numbers]; }

/* Finds the last row of times, and the last iteration before it that has as many steps. */
static void calls_find_timed(calls *c) {
  size_t i, times = 0, steps = 0, from = 0;
  for (i = 0; i < c->count; i++) {
    if (c->calls[i].what != CALL_TIME) continue;
    if (i == 0 || c->calls[i - 1].what != CALL_TIME) c->time_from = i, times = 0;
    times++;
  }
  for (i = 0; i < c->time_from; i++) {
    if (c->calls[i].what == CALL_BEGIN) steps++;
    if (c->calls[i].what != CALL_MARK) continue;
    if (steps == times) c->step_from = from, c->step_count = times;
    steps = 0;
    from = i;
  }
}

static int by_key(const void *a, const void *b) {
  const uint64_t *x = (const uint64_t *)a, *y = (const uint64_t *)b;
  return (x[0] > y[0]) - (x[0] < y[0]);
}

#define CALL_UNNAMED ((uint64_t)8 << 20)

/* What a step uses, in bytes. Tensors below a chunk are not named. Those of a step are assumed to
   have CALL_UNNAMED bytes: else a step that names none would have its whole time for one byte. */
static uint64_t step_bytes(const calls *c, const one_call *step, const uint64_t *bytes) {
  const uint64_t *n = c->numbers + step->numbers;
  uint64_t sum = CALL_UNNAMED;
  size_t i;
  for (i = 3; i < step->count; i++) sum += bytes[n[i]];
  return sum;
}

/* A step takes as long for a byte of what it uses as those of its key did; one of another key as
   long as all. rows: key, ns, bytes; `*out_count` of them. */
static uint64_t *calls_speeds(const calls *c, uint64_t *bytes, size_t *out_count) {
  uint64_t *rows = (uint64_t *)calloc(c->step_count + 1, 3 * sizeof *rows);
  size_t i, steps = 0, times = 0, kept = 0;
  for (i = 0; rows && i < c->count; i++) {
    const one_call *call = &c->calls[i];
    const uint64_t *n = c->numbers + call->numbers;
    if (call->what == CALL_ALLOC) bytes[n[0]] = n[1];
    if (call->what == CALL_BEGIN && i >= c->step_from && steps < c->step_count) {
      rows[3 * steps] = n[0];
      rows[3 * steps++ + 2] = step_bytes(c, call, bytes);
    }
    if (call->what == CALL_TIME && i >= c->time_from && times < c->step_count)
      rows[3 * times++ + 1] = n[0];
  }
  if (!rows) return rows;
  qsort(rows, steps, 3 * sizeof *rows, by_key);
  for (i = 0; i < steps; i++) {
    if (kept && rows[3 * (kept - 1)] == rows[3 * i]) {
      rows[3 * (kept - 1) + 1] += rows[3 * i + 1];
      rows[3 * (kept - 1) + 2] += rows[3 * i + 2];
    } else {
      memmove(rows + 3 * kept++, rows + 3 * i, 3 * sizeof *rows);
    }
  }
  *out_count = kept;
  return rows;
}

static int calls_time_steps(calls *c) {
  uint64_t *bytes = (uint64_t *)calloc(c->tensors + 1, sizeof *bytes), *rows = NULL;
  double ns = 0, all = 1;
  size_t i, count = 0;
  c->step_ns = (uint64_t *)calloc(c->count + 1, sizeof *c->step_ns);
  calls_find_timed(c);
  if (bytes && c->step_ns) rows = calls_speeds(c, bytes, &count);
  for (i = 0; i < count; i++) ns += (double)rows[3 * i + 1], all += (double)rows[3 * i + 2];
  for (i = 0; rows && i < c->count; i++) {
    const one_call *call = &c->calls[i];
    const uint64_t *n = c->numbers + call->numbers, *row;
    uint64_t key[3] = {0, 0, 0};
    if (call->what == CALL_ALLOC) bytes[n[0]] = n[1];
    if (call->what != CALL_BEGIN) continue;
    key[0] = key_of(c, i);
    row = (const uint64_t *)bsearch(key, rows, count, sizeof key, by_key);
    c->step_ns[i] = (uint64_t)((double)step_bytes(c, call, bytes) *
                               (row ? (double)row[1] / (double)row[2] : ns / all));
  }
  free(bytes);
  free(rows);
  return rows != NULL;
}

/* ---- Which iteration can be played again ---- */

typedef struct lived { /* a tensor at some moment */
  uint64_t bytes, pins;
  int lives;
} lived;

/* What lives before that call is made. NULL: out of memory. */
static lived *calls_lives(const calls *c, size_t end) {
  lived *all = (lived *)calloc(c->tensors + 1, sizeof *all);
  size_t i;
  for (i = 0; all && i < end; i++) {
    const uint64_t *n = c->numbers + c->calls[i].numbers;
    switch (c->calls[i].what) {
    case CALL_ALLOC:
      all[n[0]].bytes = n[1];
      all[n[0]].pins = 0;
      all[n[0]].lives = 1;
      break;
    case CALL_FREE:
      all[n[0]].lives = 0;
      break;
    case CALL_PIN:
      all[n[0]].pins++;
      break;
    case CALL_UNPIN:
      all[n[0]].pins--;
      break;
    default:
      break;
    }
  }
  return all;
}

/* The last iteration, from one mark to the next one. */
typedef struct again {
  size_t from, to;   /* the calls that are these marks */
  size_t regions;    /* before it */
  uint32_t *partner; /* by tensor: which one behind it stands for it when it is played again */
} again;

/* Each tensor that lives at the begin finds one like it that lives at the end: of its own number,
   or the first. 0: one finds none. */
static int again_pair(const calls *c, again *a, const lived *begin, lived *end) {
  size_t i, k;
  for (i = 0; i < c->tensors; i++) {
    a->partner[i] = UINT32_MAX;
    if (!begin[i].lives || !end[i].lives || begin[i].bytes != end[i].bytes ||
        begin[i].pins != end[i].pins)
      continue;
    a->partner[i] = (uint32_t)i;
    end[i].lives = 0;
  }
  for (i = 0; i < c->tensors; i++) {
    if (!begin[i].lives || a->partner[i] != UINT32_MAX) continue;
    for (k = 0; k < c->tensors; k++)
      if (end[k].lives && end[k].bytes == begin[i].bytes && end[k].pins == begin[i].pins) break;
    if (k == c->tensors) return 0;
    a->partner[i] = (uint32_t)k;
    end[k].lives = 0;
  }
  return 1;
}

/* NULL, or why no iteration can be played again. The partners are to be freed. */
static const char *calls_again(const calls *c, again *a) {
  lived *begin, *end;
  size_t i, marks = 0;
  int is_like;
  memset(a, 0, sizeof *a);
  for (i = 0; i < c->count; i++) {
    if (c->calls[i].what != CALL_MARK) continue;
    a->from = a->to;
    a->to = i;
    marks++;
  }
  if (marks < 2) return "it has no whole iteration, which is one from a mark to the next";
  for (i = 0; i < a->from; i++) a->regions += c->calls[i].what == CALL_REGION;
  begin = calls_lives(c, a->from);
  end = calls_lives(c, a->to);
  a->partner = (uint32_t *)calloc(c->tensors + 1, sizeof *a->partner);
  is_like = begin && end && a->partner && again_pair(c, a, begin, end);
  free(begin);
  free(end);
  return is_like ? NULL
                 : "its last iteration does not end with the tensors with which it begins: record "
                   "more iterations, until two are alike";
}

#endif
