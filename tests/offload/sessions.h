/* The stage of sessions: a program under a session, on the mock. Each step's work checks each word
   that it reads against what the order of the calls says, and writes others; the device keeps the
   limit; addresses stay; what fails says why; at the end nothing is left. Memory is a lake's, whose
   events are the session's backend's. What is given up is overwritten on the device. */
#if !defined(OFFLOAD_SESSIONS_H)
#define OFFLOAD_SESSIONS_H

#include <pthread.h>

#include "../../examples/mock_lake.h"
#include "player.h"

#define LINK 5e8 /* bytes a second, where a line does not say */

typedef struct live {
  uint32_t id; /* TENSOR_NONE: it does not live */
  char *ptr;
  size_t bytes;
  unsigned pins;
  uint64_t value; /* of its words, by the order of the calls; 0: undefined */
} live;

typedef struct region {
  uint64_t number;
  int is_kept;
  operand makes; /* [redo] */
  uint64_t key;
} region;

/* What a step's work is to find, and to write. */
typedef struct work {
  size_t read_count, write_count;
  live reads[OPERANDS], writes[OPERANDS];
} work;

/* Figures that nobody else keeps. */
typedef struct tally {
  uint64_t time, maps, roomed, kept, mode, mapped;
  size_t native, native_peak; /* if nothing moved, in whole chunks */
} tally;

/* What gmlake_offload_session_take_plan says. */
typedef struct view {
  size_t steps, tensors, moves, stays; /* stays: tensors that exist and do not move */
  size_t named;                        /* tensors that live now */
  size_t unplanned, planned, out, in;  /* bytes */
  uint64_t step, time, waits, again, out_busy, in_busy;
  uint64_t first_wait, first_in; /* steps: the first that is waited for; before the first copy in */
  uint64_t regions;              /* those of which steps are there, + 1 */
  uint64_t keys;                 /* the sum of the steps' */
  uint64_t tail;                 /* that copies out take behind the iteration's end */
} view;

static struct session_world {
  gmlake_offload_backend *mock;
  gmlake_offload_backend session_table; /* the mock's */
  gmlake_offload_memory memory;
  int (*discard)(void *user, void *range, size_t bytes, void *stream); /* the lake's */
  gmlake_offload_session *session;
  gmlake_offload_session_stats stats;
  gmlake_offload_mock_census census;
  view view;
  live tensors[NAMES];
  region regions[REGIONS];
  tally tally;
  size_t limit; /* when it began: no later one is above it */
  int may_fail, is_held;
  int is_made_to_fail; /* else only pinned memory may be short */
  int host_is_scarce;
  uint64_t fail_at;                 /* [device] at this call */
  uint64_t wrong;                   /* words that were */
  gmlake_backend *lake_mock, table; /* table: with the events of session_table */
  gmlake *lake;
  gmlake_offload_lake of;
  int map_code; /* with which the lake's driver refuses to map, or 0 */
} s;

static char program_stream;

/* ---- A lake whose events are the session's --------------------------------------------------- */

static gmlake_result lake_map(void *user, uint64_t address, size_t bytes, uint64_t handle,
                              int *out_code) {
  if (s.map_code != 0) return mock_lake_answer(s.map_code, out_code);
  s.tally.maps++;
  gmlake_offload_mock_spend(s.mock, (uint64_t)player.options[OPT_MAP]);
  return s.lake_mock->map(user, address, bytes, handle, out_code);
}

/* What a discard takes away is overwritten when the stream comes to it. */
typedef struct discarded {
  char *ptr;
  size_t bytes;
} discarded;

static void overwrite(void *user) {
  const discarded *gone = (const discarded *)user;
  memset(gone->ptr, 0xa5, gone->bytes);
  free(user);
}

static int lake_discard(void *user, void *range, size_t bytes, void *stream) {
  discarded *gone = (discarded *)malloc(sizeof *gone);
  gmlake_buffer_info info;
  if (!gone) abort();
  JUDGE(gmlake_buffer_get_info(s.lake, (gmlake_buffer *)range, &info) == GMLAKE_OK);
  gone->ptr = (char *)info.ptr;
  gone->bytes = bytes;
  if (gmlake_offload_mock_work(s.mock, stream, 0, overwrite, gone)) free(gone);
  return s.discard(user, range, bytes, stream);
}

static void open_lake(size_t limit) {
  gmlake_mock_desc mock_desc;
  gmlake_desc desc;
  memset(&mock_desc, 0, sizeof mock_desc);
  memset(&desc, 0, sizeof desc);
  mock_desc.capacity_bytes = (size_t)1 << 30;
  mock_desc.granularity_bytes = player.program->unit;
  JUDGE(gmlake_mock_create(&mock_desc, &s.lake_mock) == GMLAKE_OK);
  s.table = mock_lake_table(s.lake_mock, &s.session_table);
  s.table.map = lake_map;
  desc.backend = &s.table;
  desc.chunk_bytes = player.program->unit;
  desc.limit_bytes = limit;
  desc.cross_stream = GMLAKE_WAIT_FIRST;
  JUDGE(gmlake_create(&desc, &s.lake) == GMLAKE_OK);
  s.of.lake = s.lake;
  s.of.chunk_bytes = player.program->unit;
  JUDGE_OK(gmlake_offload_lake_memory(&s.of, &s.memory));
  s.memory.map_ns = (uint64_t)player.options[OPT_MAP];
  s.discard = s.memory.discard;
  s.memory.discard = lake_discard;
}

static void close_lake(void) {
  if (!s.lake) return;
  JUDGE(gmlake_check(s.lake) == GMLAKE_OK);
  JUDGE(gmlake_destroy(s.lake) == GMLAKE_OK);
  gmlake_mock_destroy(s.lake_mock);
}

static size_t lake_peak(void) {
  gmlake_stats stats;
  memset(&stats, 0, sizeof stats);
  JUDGE(gmlake_get_stats(s.lake, &stats) == GMLAKE_OK);
  return stats.reserved_bytes_peak;
}

static uint64_t count_mapped(void) {
  uint64_t count = 0;
  size_t i;
  for (i = 0; i < player.program->name_count; i++)
    count += s.tensors[i].id != TENSOR_NONE &&
             gmlake_mock_has_access(s.lake_mock, s.tensors[i].ptr, s.tensors[i].bytes, 0);
  return count;
}

/* ---- Threads that plan ----------------------------------------------------------------------- */

enum { NO_THREADS, AT_ONCE, THREADS, REFUSED_THREADS, UNJOINED_THREADS }; /* option `threads` */

typedef struct planning {
  pthread_t thread;
  void (*run)(void *arg);
  void *arg;
} planning;

static void *plan_in_thread(void *user) {
  const planning *p = (const planning *)user;
  p->run(p->arg);
  return NULL;
}

/* At once it has ended when start returns, so that rows can say what is planned when. */
static int thread_start(void *user, void (*run)(void *arg), void *arg, void **out_thread) {
  planning *p = (planning *)calloc(1, sizeof *p);
  (void)user;
  if (!p) abort();
  p->run = run;
  p->arg = arg;
  *out_thread = p;
  if (player.options[OPT_THREADS] == AT_ONCE) run(arg);
  if (player.options[OPT_THREADS] != THREADS) return 0;
  return pthread_create(&p->thread, NULL, plan_in_thread, p);
}
static int thread_refuse(void *user, void (*run)(void *arg), void *arg, void **out_thread) {
  (void)user, (void)run, (void)arg, (void)out_thread;
  return 1;
}
static void thread_join(void *user, void *thread) {
  planning *p = (planning *)thread;
  (void)user;
  if (player.options[OPT_THREADS] == THREADS) (void)pthread_join(p->thread, NULL);
  free(p);
}

/* ---- Opening, figures ------------------------------------------------------------------------ */

/* Memory from the options so far, without a session: what some tests look at by itself. */
static void open_memory(void) {
  gmlake_offload_mock_desc desc;
  memset(&desc, 0, sizeof desc);
  s.limit = option_bytes(OPT_LIMIT);
  desc.device_bytes = option_is_set(OPT_DEVICE) ? option_bytes(OPT_DEVICE) : s.limit;
  desc.out_bytes_per_s = player.options[OPT_LINK];
  if (desc.out_bytes_per_s == 0) desc.out_bytes_per_s = LINK;
  desc.in_bytes_per_s = desc.out_bytes_per_s;
  desc.both_bytes_per_s = desc.out_bytes_per_s * 1.8;
  desc.jitter = desc.copy_jitter = player.options[OPT_JITTER];
  desc.divisor = option_bytes(OPT_DIVISOR);
  desc.host = counted;
  JUDGE_OK(gmlake_offload_mock_create(&desc, &s.mock));
  s.session_table = *s.mock;
  if (option_is_set(OPT_THREADS)) {
    s.session_table.thread_start =
        player.options[OPT_THREADS] == REFUSED_THREADS ? thread_refuse : thread_start;
    if (player.options[OPT_THREADS] != UNJOINED_THREADS) s.session_table.thread_join = thread_join;
  }
  open_lake(desc.device_bytes);
}

static void open_session(void) {
  gmlake_offload_session_desc desc;
  const double link = player.options[OPT_LINK] != 0 ? player.options[OPT_LINK] : LINK;
  if (s.session) return;
  open_memory();
  memset(&desc, 0, sizeof desc);
  desc.flags = option_is_set(OPT_CHECKED) ? GMLAKE_OFFLOAD_CHECKED : 0;
  desc.backend = &s.session_table;
  desc.memory = &s.memory;
  desc.limit_bytes = s.limit;
  desc.tensor_bytes_min = option_is_set(OPT_MIN) ? option_bytes(OPT_MIN) : 1;
  desc.host_bytes_max = option_bytes(OPT_HOST_MAX);
  desc.try_count_max = option_bytes(OPT_TRIES);
  if (option_is_set(OPT_TOLD)) desc.out_bytes_per_s = desc.in_bytes_per_s = link;
  if (option_is_set(OPT_TOLD)) desc.both_bytes_per_s = link * 1.8;
  if (player.options[OPT_THREADS] != THREADS) desc.host = counted; /* by one thread at a time */
  s.may_fail = desc.host_bytes_max != 0;
  JUDGE_OK(gmlake_offload_session_create(&desc, &s.session));
}

enum { OF_STATS, OF_CENSUS, OF_TALLY, OF_VIEW };

#define STAT(name, field) \
  { name, OF_STATS, offsetof(gmlake_offload_session_stats, field) }
#define VIEW(field) \
  { "view_" #field, OF_VIEW, offsetof(view, field) }

static const figure session_figures[] = {
    STAT("tensors", tensor_count),
    STAT("device", device_bytes),
    STAT("peak", device_bytes_peak),
    STAT("out", out_bytes),
    STAT("in", in_bytes),
    STAT("outs", out_count),
    STAT("ins", in_count),
    STAT("drops", drop_count),
    STAT("demand_out", demand_out_count),
    STAT("demand_in", demand_in_count),
    STAT("iterations", iteration_count),
    STAT("drifts", drift_count),
    STAT("plans", plan_count),
    STAT("work_most", plan_work_max),
    STAT("syncs", sync_count),
    STAT("unplanned", unplanned_bytes),
    STAT("planned", planned_bytes),
    STAT("plan_out", plan_out_bytes),
    STAT("plan_in", plan_in_bytes),
    STAT("step", step_ns),
    STAT("added", plan_added_ns),
    STAT("link_bound", link_bound_ns),
    STAT("least", least_ns),
    STAT("regions", region_count),
    STAT("kept_regions", kept_region_count),
    {"calls", OF_CENSUS, offsetof(gmlake_offload_mock_census, call_count)},
    {"pinned_peak", OF_CENSUS, offsetof(gmlake_offload_mock_census, host_bytes_peak)},
    {"time", OF_TALLY, offsetof(tally, time)},
    {"maps", OF_TALLY, offsetof(tally, maps)},     /* by the lake's driver */
    {"roomed", OF_TALLY, offsetof(tally, roomed)}, /* by the last `room` */
    {"kept", OF_TALLY, offsetof(tally, kept)},     /* regions, since the last mark */
    {"mapped", OF_TALLY, offsetof(tally, mapped)}, /* tensors with access by the lake's driver */
    {"mode", OF_TALLY, offsetof(tally, mode)},     /* 0 it learns, 1 planned, 2 drifted */
    {"native_peak", OF_TALLY, offsetof(tally, native_peak)},
    VIEW(steps),
    VIEW(tensors),
    VIEW(moves),
    VIEW(stays),
    VIEW(named),
    VIEW(tail),
    VIEW(unplanned),
    VIEW(planned),
    VIEW(out),
    VIEW(in),
    VIEW(step),
    VIEW(time),
    VIEW(waits),
    VIEW(again),
    VIEW(out_busy),
    VIEW(in_busy),
    VIEW(first_wait),
    VIEW(first_in),
    VIEW(regions),
    VIEW(keys),
};
#define SESSION_FIGURES (sizeof(session_figures) / sizeof(session_figures[0]))

static const void *session_load(int from) {
  open_session();
  s.stats.struct_bytes = 0;
  JUDGE_OK(gmlake_offload_session_get_stats(s.session, &s.stats));
  gmlake_offload_mock_get_census(s.mock, &s.census);
  if (from == OF_STATS) return &s.stats;
  if (from == OF_CENSUS) return &s.census;
  if (from == OF_VIEW) return s.view.steps ? &s.view : NULL;
  s.tally.mode = (uint64_t)s.stats.mode;
  s.tally.mapped = count_mapped();
  JUDGE(s.mock->now(s.mock->user, &s.tally.time) == 0);
  return &s.tally;
}

/* ---- What is looked at ----------------------------------------------------------------------- */

static void look_at_limits(void) {
  (void)session_load(OF_STATS);
  JUDGE(s.wrong == 0);
  JUDGE(s.census.race_count == 0);
  JUDGE(s.stats.device_bytes <= s.stats.device_bytes_peak);
  JUDGE(s.stats.host_bytes == s.census.host_bytes);
  if (s.limit == 0) return;
  JUDGE(s.stats.device_bytes_peak <= s.limit);
  JUDGE(lake_peak() <= s.limit || option_is_set(OPT_DEVICE));
}

/* The tensors that the program has are those of the session, where they always were. */
static void look_at_tensors(void) {
  size_t i, count = 0, bytes = 0, offset;
  for (i = 0; i < player.program->name_count; i++) {
    const live *t = &s.tensors[i];
    const size_t behind = t->bytes > 77 ? 77 : 0;
    uint32_t found;
    if (t->id == TENSOR_NONE) continue;
    count++;
    bytes += t->bytes;
    JUDGE_OK(gmlake_offload_session_find(s.session, t->ptr + behind, &found, &offset));
    JUDGE(found == t->id && offset == behind);
  }
  JUDGE(s.stats.tensor_count == count && s.stats.tensor_bytes == bytes);
}

/* A call that failed says why. Whether it may have failed: if something was made to, if the limit
   is too low for what has to be there at once, or, `also`, for a reason of its own. */
static void look_at_failure(gmlake_offload_result result, int also) {
  gmlake_offload_error_info info;
  JUDGE_OK(gmlake_offload_session_get_error(s.session, &info));
  JUDGE(info.result == result && info.text[0]);
  if (!also && result != GMLAKE_OFFLOAD_ERROR_OUT_OF_DEVICE_MEMORY &&
      !(s.may_fail && (s.is_made_to_fail || result == GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY)))
    broken("%s: %s", gmlake_offload_result_name(result), info.text);
}

/* Whether a call succeeded, where it may or has to. */
static int succeeds(const operation *o, gmlake_offload_result result, int also) {
  if (!option_is_set(OPT_FREE) && !s.may_fail) return ends_as_said(o, result);
  if (result != GMLAKE_OFFLOAD_OK) look_at_failure(result, also);
  return result == GMLAKE_OFFLOAD_OK;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
  return x ^ (x >> 31);
}

static void do_work(void *user) {
  work *todo = (work *)user;
  size_t i, n;
  for (n = 0; n < todo->read_count; n++) {
    const live *t = &todo->reads[n];
    for (i = 0; t->value != 0 && i + 8 <= t->bytes; i += 8) {
      uint64_t word;
      memcpy(&word, t->ptr + i, 8);
      s.wrong += word != t->value + i;
    }
  }
  for (n = 0; n < todo->write_count; n++) {
    const live *t = &todo->writes[n];
    for (i = 0; i + 8 <= t->bytes; i += 8) {
      uint64_t word = t->value + i;
      memcpy(t->ptr + i, &word, 8);
    }
  }
  free(todo);
}

static gmlake_offload_result allocate(live *t, size_t bytes) {
  void *ptr = NULL;
  const size_t chunk = player.program->unit;
  gmlake_offload_result result =
      gmlake_offload_session_alloc(s.session, bytes, &program_stream, &t->id, &ptr);
  if (result != GMLAKE_OFFLOAD_OK) {
    JUDGE(t->id == TENSOR_NONE && ptr == NULL);
    return result;
  }
  t->ptr = (char *)ptr;
  t->bytes = bytes;
  t->value = t->pins = 0;
  s.tally.native += bytes / chunk * chunk + (bytes % chunk ? chunk : 0);
  if (s.tally.native > s.tally.native_peak) s.tally.native_peak = s.tally.native;
  return result;
}

/* A tensor that a word names; NULL if it does not live, which only a loose name and a program that
   is free may ask for. */
static live *living(const operand *of) {
  live *t = &s.tensors[of->name];
  if (t->id != TENSOR_NONE) return t;
  if (!of->is_loose && !option_is_set(OPT_FREE)) broken("it names a tensor that does not live");
  return NULL;
}

typedef struct named {
  uint32_t reads[OPERANDS], writes[OPERANDS];
  live *written[OPERANDS], *made[OPERANDS];
  size_t made_bytes[OPERANDS], made_count;
} named;

/* The step as the session is told it, and its work as it would be now. */
static gmlake_offload_step name_tensors(const operation *o, named *n, work *todo) {
  gmlake_offload_step step;
  size_t i;
  memset(&step, 0, sizeof step);
  step.stream = &program_stream;
  step.key = o->key;
  step.reads = n->reads;
  step.writes = n->writes;
  n->made_count = 0;
  for (i = 0; i < (size_t)o->read_count + o->write_count; i++) {
    const operand *of = &o->operands[i];
    live *t = &s.tensors[of->name];
    if (i >= o->read_count && of->is_made && t->id == TENSOR_NONE) {
      n->made_bytes[n->made_count] = of->bytes;
      n->made[n->made_count++] = t;
      continue;
    }
    if (!living(of)) continue;
    todo->reads[todo->read_count++] = *t;
    if (i < o->read_count) n->reads[step.read_count++] = t->id;
    if (i < o->read_count) continue;
    n->written[step.write_count] = t;
    n->writes[step.write_count++] = t->id;
  }
  return step;
}

static uint64_t step_time(const operation *o) {
  if (o->time_ns != UINT64_MAX) return o->time_ns;
  return option_is_set(OPT_TIME) ? (uint64_t)player.options[OPT_TIME] : 100000;
}

/* What the step writes gets new values, by what it read. */
static void write_values(const operation *o, const named *n, size_t written, work *todo) {
  uint64_t value = mix(o->key + 1);
  size_t i;
  for (i = 0; i < todo->read_count; i++) value = mix(value ^ todo->reads[i].value);
  for (i = 0; i < written + n->made_count; i++) {
    live *t = i < written ? n->written[i] : n->made[i - written];
    t->value = mix(value + i) | 1;
    todo->writes[todo->write_count++] = *t;
  }
}

static gmlake_offload_result try_step(const operation *o) {
  work *todo = (work *)calloc(1, sizeof *todo);
  gmlake_offload_result result;
  gmlake_offload_step step;
  named n;
  size_t i;
  if (!todo) abort();
  step = name_tensors(o, &n, todo);
  result = gmlake_offload_session_begin(s.session, &step);
  for (i = 0; result == GMLAKE_OFFLOAD_OK && i < n.made_count; i++) {
    result = allocate(n.made[i], n.made_bytes[i]);
    if (result == GMLAKE_OFFLOAD_OK) continue;
    look_at_failure(result, s.is_held || o->result);
    (void)gmlake_offload_session_end(s.session);
  }
  if (result != GMLAKE_OFFLOAD_OK) {
    free(todo);
    return result;
  }
  write_values(o, &n, step.write_count, todo);
  if (gmlake_offload_mock_work(s.mock, &program_stream, step_time(o), do_work, todo)) {
    JUDGE(s.may_fail); /* then what was to be written is not */
    for (i = 0; i < step.write_count; i++) n.written[i]->value = 0;
    for (i = 0; i < n.made_count; i++) n.made[i]->value = 0;
    free(todo);
  }
  result = gmlake_offload_session_end(s.session); /* the step has ended also if that fails */
  if (result != GMLAKE_OFFLOAD_OK) {
    look_at_failure(result, 0);
    JUDGE(s.may_fail || option_is_set(OPT_FREE));
  }
  return GMLAKE_OFFLOAD_OK;
}

/* A program that repeats what fails, where a call was made to; one that is free does without. */
static void do_step(const operation *o) {
  gmlake_offload_result result;
  int tries = 0;
  do {
    result = try_step(o);
  } while (result != GMLAKE_OFFLOAD_OK && s.may_fail && !option_is_set(OPT_FREE) && ++tries < 5);
  if (result != GMLAKE_OFFLOAD_OK || !s.may_fail) (void)succeeds(o, result, s.is_held);
  if (result != GMLAKE_OFFLOAD_OK && !option_is_set(OPT_FREE)) JUDGE(o->result);
}

/* ---- Other words ----------------------------------------------------------------------------- */

static void do_alloc(const operation *o) {
  live *t = &s.tensors[o->operands[0].name];
  if (t->id != TENSOR_NONE && option_is_set(OPT_FREE)) return;
  JUDGE(t->id == TENSOR_NONE);
  (void)succeeds(o, allocate(t, o->operands[0].bytes), s.is_held);
}

static void free_one(const operation *o, const operand *of) {
  const size_t chunk = player.program->unit;
  live *t = living(of);
  gmlake_offload_result result;
  int tries = 0;
  if (!t) {
    if (of->is_loose) return;
    JUDGE(gmlake_offload_session_free(s.session, 77777, &program_stream) != GMLAKE_OFFLOAD_OK);
    return;
  }
  do {
    result = gmlake_offload_session_free(s.session, t->id, &program_stream);
  } while (result != GMLAKE_OFFLOAD_OK && s.may_fail && ++tries < 5);
  if (!succeeds(o, result, 0)) return;
  s.tally.native -= t->bytes / chunk * chunk + (t->bytes % chunk ? chunk : 0);
  t->id = TENSOR_NONE;
}

static void do_pin(const operation *o) {
  live *t = living(&o->operands[0]);
  if (!t) return;
  if (o->verb == 'p') {
    t->pins += (unsigned)succeeds(o, gmlake_offload_session_pin(s.session, t->id, &program_stream),
                                  s.is_held);
  } else if (succeeds(o, gmlake_offload_session_unpin(s.session, t->id, &program_stream),
                      t->pins == 0)) {
    JUDGE(t->pins-- != 0);
  }
}

static void do_touch(const operation *o) {
  live *t = living(&o->operands[0]);
  work *todo = (work *)calloc(1, sizeof *todo);
  if (!todo) abort();
  JUDGE(t);
  t->value = mix(t->value) | 1;
  todo->writes[todo->write_count++] = *t;
  JUDGE_OK(gmlake_offload_mock_work(s.mock, &program_stream, 100000, do_work, todo));
}

/* The text of the last error has these words. */
static void hear(const operation *o) {
  gmlake_offload_error_info info;
  char wanted[120];
  size_t i;
  (void)snprintf(wanted, sizeof wanted, "%.*s", (int)strcspn(o->text, " \n"), o->text);
  for (i = 0; wanted[i]; i++)
    if (wanted[i] == '_') wanted[i] = ' ';
  JUDGE_OK(gmlake_offload_session_get_error(s.session, &info));
  if (!strstr(info.text, wanted)) broken("it says: %s", info.text);
}

static void do_mark(const operation *o) {
  if (s.is_held && option_is_set(OPT_FREE)) return;
  if (!succeeds(o, gmlake_offload_session_mark(s.session), 0)) return;
  s.tally.kept = 0;
}

static void do_room(const operation *o) {
  size_t bytes = 0;
  (void)succeeds(o, gmlake_offload_session_make_room(s.session, size_arg(o, 0), &bytes), 0);
  s.tally.roomed = bytes;
}

static void do_limit(const operation *o) {
  (void)succeeds(o, gmlake_offload_session_set_limit(s.session, size_arg(o, 0)), 0);
}

static void do_hold(const operation *o) {
  const int is_held = o->args[0] != 0;
  if (succeeds(o, gmlake_offload_session_hold(s.session, is_held), 0)) s.is_held = is_held;
}

static void do_region(const operation *o) {
  region *r = &s.regions[(size_t)o->args[0] % REGIONS];
  if (o->verb == '(') {
    if (succeeds(o, gmlake_offload_session_region(s.session, &r->number, &r->is_kept), 0))
      s.tally.kept += r->is_kept != 0;
  } else if (o->verb == 'A') {
    (void)succeeds(o, gmlake_offload_session_recompute(s.session, r->number), 0);
  } else {
    (void)succeeds(o, gmlake_offload_session_region_end(s.session, size_arg(o, 0)), 0);
  }
}

/* Makes a region's tensor and writes it. */
static void make(const operation *o, const region *r) {
  operation step = *o;
  step.verb = '>';
  step.read_count = 0;
  step.write_count = 1;
  step.operands[0] = r->makes;
  step.key = r->key % 16;
  step.time_ns = 1000 * (r->key + 1);
  if (succeeds(o, allocate(&s.tensors[r->makes.name], r->makes.bytes), s.is_held))
    step.operands[0].is_made = 0;
  do_step(&step);
}

/* [free] A region makes a tensor, which is given up unless it is kept. The next time it is made
   again, seldom by another step. */
static void do_redo(const operation *o) {
  region *r = &s.regions[o->operands[0].name % REGIONS];
  live *t = &s.tensors[o->operands[0].name];
  const int is_anew = r->number == 0;
  if (!is_anew && !r->is_kept && t->id == TENSOR_NONE) {
    (void)succeeds(o, gmlake_offload_session_recompute(s.session, r->number), 0);
    r->key += o->args[1] == 31;
    make(o, r);
    (void)succeeds(o, gmlake_offload_session_region_end(s.session, size_arg(o, 2)), 0);
  }
  if (!is_anew) r->number = 0;
  if (!is_anew || t->id != TENSOR_NONE) return;
  r->makes = o->operands[0];
  r->makes.bytes = size_arg(o, 0);
  r->key = (uint64_t)o->args[1];
  JUDGE_OK(gmlake_offload_session_region(s.session, &r->number, &r->is_kept));
  make(o, r);
  JUDGE_OK(gmlake_offload_session_region_end(s.session, 0));
  if (!r->is_kept && t->id != TENSOR_NONE) free_one(o, &o->operands[0]);
}

/* Whether what was made to fail has come to that. */
static void note_fault(void) {
  (void)session_load(OF_CENSUS);
  if (s.fail_at != 0) player.reached = s.census.call_count >= s.fail_at;
  if (s.host_is_scarce) player.reached = host_fail_in == 0;
}

static void do_fault(const operation *o) {
  note_fault();
  if (o->args[0] != 0) s.may_fail = s.is_made_to_fail = 1;
  if (o->verb == 'H') host_fail_in = (long)o->args[0];
  if (o->verb == 'H') s.host_is_scarce = o->args[0] != 0;
  if (o->verb == 'F') {
    s.fail_at = o->args[0] != 0 ? s.census.call_count + (uint64_t)o->args[0] : 0;
    gmlake_offload_mock_fail_at(s.mock, s.fail_at);
  }
  if (o->verb == 'X') s.map_code = (int)o->args[0], s.may_fail = 0;
}

static void view_steps(const gmlake_offload_session_plan *plan) {
  view *v = &s.view;
  size_t i;
  v->first_wait = UINT64_MAX;
  for (i = 0; i < plan->step_count; i++) {
    const gmlake_offload_planned_step *step = &plan->steps[i];
    uint64_t next = i + 1 < plan->step_count ? step[1].begin_ns : plan->time_ns;
    JUDGE(step->begin_ns + step->time_ns <= next);
    if (next > step->begin_ns + step->time_ns && i < v->first_wait) v->first_wait = i + 1;
    v->waits += next - step->begin_ns - step->time_ns;
    v->step += step->time_ns;
    v->keys += step->key;
    if (step->is_again) v->again += step->time_ns;
    if (step->region != TENSOR_NONE && step->region >= v->regions) v->regions = step->region + 1;
    if (step->unplanned_bytes > v->unplanned) v->unplanned = step->unplanned_bytes;
    if (step->planned_bytes > v->planned) v->planned = step->planned_bytes;
    JUDGE(step->planned_bytes <= step->unplanned_bytes);
  }
}

static void view_moves(const gmlake_offload_session_plan *plan) {
  view *v = &s.view;
  size_t i;
  v->first_in = UINT64_MAX;
  for (i = 0; i < plan->move_count; i++) {
    const gmlake_offload_planned_move *move = &plan->moves[i];
    const gmlake_offload_planned_tensor *tensor = &plan->tensors[move->tensor];
    const int is_in = move->is_in != 0;
    JUDGE(move->tensor < plan->tensor_count && move->step < plan->step_count);
    JUDGE(tensor->step_count != 0 && (i == 0 || move[-1].step <= move->step));
    JUDGE(move->is_copy ? move->end_ns > move->begin_ns : move->end_ns == move->begin_ns);
    JUDGE(move->end_ns < UINT64_MAX / 2);
    JUDGE(!move->stays || (move->is_copy && !is_in));
    if (is_in && v->first_in == UINT64_MAX) v->first_in = move->step;
    if (!move->is_copy) continue;
    *(is_in ? &v->in : &v->out) += tensor->copy_bytes;
    *(is_in ? &v->in_busy : &v->out_busy) += move->end_ns - move->begin_ns;
    if (!is_in && move->end_ns > plan->time_ns + v->tail) v->tail = move->end_ns - plan->time_ns;
  }
}

/* Whether a tensor of the program has that number. */
static int is_named(const gmlake_offload_planned_tensor *tensor) {
  size_t i;
  for (i = 0; i < player.program->name_count; i++)
    if (s.tensors[i].id == tensor->tensor && tensor->tensor != TENSOR_NONE) break;
  if (i == player.program->name_count) return 0;
  JUDGE(s.tensors[i].bytes <= tensor->copy_bytes || option_is_set(OPT_FREE));
  return 1;
}

static void view_tensors(const gmlake_offload_session_plan *plan) {
  size_t i, k;
  for (i = 0; i < plan->tensor_count; i++) {
    const gmlake_offload_planned_tensor *tensor = &plan->tensors[i];
    JUDGE(tensor->first_step < plan->step_count && tensor->step_count <= plan->step_count);
    for (k = 0; k < plan->move_count && plan->moves[k].tensor != i; k++) {
    }
    s.view.stays += k == plan->move_count && tensor->step_count != 0;
    s.view.named += is_named(tensor) != 0;
    JUDGE(is_named(tensor) || tensor->tensor == TENSOR_NONE);
  }
}

/* The plan agrees with the statistics; but where the iteration has changed since it was made, and
   in a program that takes what comes. */
static void do_view(const operation *o) {
  gmlake_offload_session_plan *plan;
  gmlake_offload_result result = gmlake_offload_session_take_plan(s.session, &plan);
  const view *v = &s.view;
  memset(&s.view, 0, sizeof s.view);
  (void)session_load(OF_STATS);
  JUDGE((result == GMLAKE_OFFLOAD_OK) == (plan != NULL));
  if (!succeeds(o, result, result == GMLAKE_OFFLOAD_ERROR_NOT_SEALED)) return;
  s.view.steps = plan->step_count;
  s.view.tensors = plan->tensor_count;
  s.view.moves = plan->move_count;
  s.view.time = plan->time_ns;
  view_steps(plan);
  view_moves(plan);
  view_tensors(plan);
  gmlake_offload_session_plan_destroy(plan);
  JUDGE(v->step + v->waits == v->time);
  if (option_is_set(OPT_FREE) || s.may_fail || v->unplanned != s.stats.unplanned_bytes) return;
  JUDGE(v->planned == s.stats.planned_bytes);
  JUDGE(v->out == s.stats.plan_out_bytes && v->in == s.stats.plan_in_bytes);
}

static void do_sync(void) {
  JUDGE(s.session_table.stream_sync(s.session_table.user, &program_stream) == 0 || s.may_fail);
  look_at_limits();
  look_at_tensors();
}

/* ---- The stage ------------------------------------------------------------------------------- */

static void session_begin(void) {
  size_t i;
  memset(&s, 0, sizeof s);
  for (i = 0; i < NAMES; i++) s.tensors[i].id = TENSOR_NONE;
}

static void session_perform(const operation *o) {
  size_t i;
  if (o->verb == '{' || o->verb == '|') return;
  open_session();
  if (o->given && (o->given == 'K') != (s.regions[o->region].is_kept != 0)) return;
  if (o->verb == '>') do_step(o);
  if (o->verb == '+') do_alloc(o);
  for (i = 0; o->verb == '-' && i < o->read_count; i++) free_one(o, &o->operands[i]);
  if (o->verb == 'M') do_mark(o);
  if (o->verb == 'S') do_sync();
  if (strchr("pu", o->verb)) do_pin(o);
  if (o->verb == 'r') do_room(o);
  if (o->verb == 'l') do_limit(o);
  if (o->verb == 'h') do_hold(o);
  if (o->verb == 't') gmlake_offload_mock_spend(s.mock, (uint64_t)o->args[0]);
  if (strchr("()A", o->verb)) do_region(o);
  if (o->verb == 'R') do_redo(o);
  if (strchr("FHX", o->verb)) do_fault(o);
  if (o->verb == 'V') do_view(o);
  if (o->verb == 'w') do_touch(o);
  if (o->verb == 'q') hear(o);
  if (!option_is_set(OPT_FREE)) return;
  look_at_limits();
  look_at_tensors();
}

static void session_end(void) {
  if (!s.mock) return;
  note_fault();
  host_fail_in = 0;
  gmlake_offload_mock_fail_at(s.mock, 0);
  JUDGE(s.session_table.stream_sync(s.session_table.user, &program_stream) == 0);
  look_at_limits();
  look_at_tensors();
  gmlake_offload_session_destroy(s.session);
  close_lake();
  gmlake_offload_mock_get_census(s.mock, &s.census);
  JUDGE(s.census.event_count == 0);
  JUDGE(s.census.host_bytes == 0);
  JUDGE(s.census.race_count == 0);
  JUDGE(s.wrong == 0);
  gmlake_offload_mock_destroy(s.mock);
}

static const stage sessions = {4096,          session_figures, SESSION_FIGURES, session_load,
                               session_begin, session_perform, session_end};

#endif /* OFFLOAD_SESSIONS_H */
