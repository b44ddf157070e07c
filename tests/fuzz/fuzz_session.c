/* Fuzz target: the input is a program that a session of gmlake_offload.h serves, while calls of the
   device and host memory fail. Every step's work checks each word that it reads against what the
   order of the calls says; the device keeps the limit; what fails says why; addresses stay. At the
   end nothing is left.

   Input: three bytes of description, then records of five bytes: operation and arguments a to d.
   What is short is filled up with zeros. The program so read is run four times, so that the session
   learns it, plans it, and notices that the last run leaves an operation out; or seven times, if it
   has to find the iterations, too; or ten times, so that it decides which regions are kept. Memory
   has numbers for its chunks, or none. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#define GMLAKE_OFFLOAD_IMPLEMENTATION
#define GMLAKE_OFFLOAD_BACKEND_MOCK
#include "gmlake_offload.h"

#include "fuzz.h"
#include "../offload/numbered.h"

#define CHUNK ((size_t)4096)
#define TENSORS 12
#define NAMED 4
#define OPERATIONS_MAX 120
#define NONE GMLAKE_OFFLOAD_NONE

typedef struct tensor {
  uint32_t id; /* NONE: it does not live */
  char *ptr;
  size_t bytes;
  unsigned pins;
  uint64_t value; /* of its words; 0: undefined */
} tensor;

typedef struct region { /* that makes a tensor, and its arguments */
  uint64_t number;      /* 0: there is none */
  int is_kept;
  unsigned b, c, d;
} region;

typedef struct work { /* what a step is to find, and to write */
  size_t read_count, write_count;
  tensor reads[2 * NAMED], writes[NAMED + 1];
} work;

static struct world {
  gmlake_offload_backend *mock;
  gmlake_offload_queues queues;
  gmlake_offload_memory memory;
  gmlake_offload_session *session;
  numbered chunks;
  tensor tensors[TENSORS];
  region regions[TENSORS];
  size_t limit;
  uint64_t serial, wrong;
  int may_fail, is_held, is_marked;
} w;

static char stream;

static void execute(void *user) {
  work *todo = (work *)user;
  size_t i, n;
  for (n = 0; n < todo->read_count; n++) {
    const tensor *t = &todo->reads[n];
    for (i = 0; t->value != 0 && i + 8 <= t->bytes; i += 8) {
      uint64_t word;
      memcpy(&word, t->ptr + i, 8);
      w.wrong += word != t->value + i;
    }
  }
  for (n = 0; n < todo->write_count; n++) {
    const tensor *t = &todo->writes[n];
    for (i = 0; i + 8 <= t->bytes; i += 8) {
      uint64_t word = t->value + i;
      memcpy(t->ptr + i, &word, 8);
    }
  }
  free(todo);
}

/* Whether a call succeeded. It may have failed if something was made to, if the limit is too low
   for what has to be there at once, or, `also`, for a reason of its own. */
static int judge(gmlake_offload_result result, int also) {
  gmlake_offload_error_info info;
  if (result == GMLAKE_OFFLOAD_OK) return 1;
  REQUIRE(gmlake_offload_session_get_error(w.session, &info) == GMLAKE_OFFLOAD_OK);
  REQUIRE(info.result == result && info.text[0]);
  REQUIRE(also || w.may_fail || result == GMLAKE_OFFLOAD_ERROR_OUT_OF_DEVICE_MEMORY);
  return 0;
}

static void check(void) {
  gmlake_offload_session_stats stats;
  gmlake_offload_mock_census census;
  size_t i, count = 0, bytes = 0;
  stats.struct_bytes = 0;
  REQUIRE(gmlake_offload_session_get_stats(w.session, &stats) == GMLAKE_OFFLOAD_OK);
  gmlake_offload_mock_get_census(w.mock, &census);
  for (i = 0; i < TENSORS; i++) {
    const tensor *t = &w.tensors[i];
    uint32_t found;
    size_t offset;
    if (t->id == NONE) continue;
    count++;
    bytes += t->bytes;
    REQUIRE(gmlake_offload_session_find(w.session, t->ptr, &found, &offset) == GMLAKE_OFFLOAD_OK);
    REQUIRE(found == t->id && offset == 0);
  }
  REQUIRE(stats.tensor_count == count && stats.tensor_bytes == bytes);
  REQUIRE(stats.device_bytes <= stats.device_bytes_peak && stats.host_bytes == census.host_bytes);
  REQUIRE(w.limit == 0 || census.device_bytes_peak <= w.limit);
  REQUIRE(w.wrong == 0);
  REQUIRE(census.race_count == 0);
}

/* ---- Operations ---- */

static void do_alloc(unsigned a, unsigned b, unsigned c) {
  tensor *t = &w.tensors[a % TENSORS];
  size_t bytes = CHUNK * (b % 5) + (c % 3 == 0 ? 8 * (size_t)c : 0);
  void *ptr;
  if (t->id != NONE) return;
  if (!judge(gmlake_offload_session_alloc(w.session, bytes, &stream, &t->id, &ptr), w.is_held)) {
    REQUIRE(t->id == NONE && ptr == NULL);
    return;
  }
  t->ptr = (char *)ptr;
  t->bytes = bytes;
  t->value = t->pins = 0;
}

static void do_free(unsigned a, unsigned b) {
  tensor *t = &w.tensors[a % TENSORS];
  (void)b;
  if (t->id == NONE) {
    REQUIRE(!judge(gmlake_offload_session_free(w.session, 77777, &stream), 1));
  } else if (judge(gmlake_offload_session_free(w.session, t->id, &stream), 0)) {
    t->id = NONE;
  }
}

/* A step that reads the tensors in the bits of a and b, and writes those of c. */
static void do_step(unsigned a, unsigned b, unsigned c, unsigned d) {
  uint32_t reads[NAMED], writes[NAMED];
  work *todo = (work *)calloc(1, sizeof *todo);
  gmlake_offload_step step;
  unsigned i, named = a | (b & 15) << 8, written = c | (b >> 4) << 8;
  int ok;
  REQUIRE(todo);
  memset(&step, 0, sizeof step);
  step.stream = &stream;
  step.key = d % 16;
  step.reads = reads;
  step.writes = writes;
  for (i = 0; i < TENSORS; i++) {
    tensor *t = &w.tensors[i];
    if (t->id == NONE) continue;
    if (named >> i & 1 && step.read_count < NAMED) {
      todo->reads[todo->read_count++] = *t;
      reads[step.read_count++] = t->id;
    }
    if (written >> i & 1 && step.write_count < NAMED) {
      todo->reads[todo->read_count++] = *t; /* its old bytes count, too */
      writes[step.write_count++] = t->id;
    }
  }
  ok = judge(gmlake_offload_session_begin(w.session, &step), w.is_held);
  for (i = 0; ok && i < TENSORS; i++) {
    size_t n;
    for (n = 0; n < step.write_count && writes[n] != w.tensors[i].id; n++) continue;
    if (n == step.write_count || w.tensors[i].id == NONE) continue;
    w.tensors[i].value = ++w.serial << 32 | 1;
    todo->writes[todo->write_count++] = w.tensors[i];
  }
  if (!ok || gmlake_offload_mock_work(w.mock, &stream, 1000 * (uint64_t)(d + 1), execute, todo)) {
    for (i = 0; ok && i < TENSORS; i++) w.tensors[i].value = 0; /* what was to be written is not */
    free(todo);
  }
  if (ok) (void)judge(gmlake_offload_session_end(w.session), 0);
}

static void do_pin(unsigned a, unsigned b) {
  tensor *t = &w.tensors[a % TENSORS];
  if (t->id == NONE) return;
  if (b % 2 == 0) {
    t->pins += (unsigned)judge(gmlake_offload_session_pin(w.session, t->id, &stream), w.is_held);
  } else {
    int ok = judge(gmlake_offload_session_unpin(w.session, t->id, &stream), t->pins == 0);
    REQUIRE(!ok || t->pins != 0);
    t->pins -= (unsigned)ok;
  }
}

/* Makes a tensor and writes it. */
static void make(unsigned which, const region *how) {
  do_alloc(which, how->b, how->c);
  do_step(0, which < 8 ? 0 : 16u << (which - 8), which < 8 ? 1u << which : 0, how->d);
}

/* A region makes a tensor, which is given up unless it is kept. The next time it is made again. */
static void do_region(unsigned a, unsigned b, unsigned c, unsigned d) {
  unsigned which = a % TENSORS;
  region *r = &w.regions[which];
  if (r->number != 0) {
    if (!r->is_kept && w.tensors[which].id == NONE) {
      (void)judge(gmlake_offload_session_recompute(w.session, r->number), 0);
      r->d += d == 31; /* seldom it does something else */
      make(which, r);
      (void)judge(gmlake_offload_session_region_end(w.session, b), 0);
    }
    r->number = 0;
    return;
  }
  if (w.tensors[which].id != NONE) return;
  r->b = b;
  r->c = c;
  r->d = d;
  REQUIRE(judge(gmlake_offload_session_region(w.session, &r->number, &r->is_kept), 0));
  make(which, r);
  REQUIRE(judge(gmlake_offload_session_region_end(w.session, 0), 0));
  if (!r->is_kept && w.tensors[which].id != NONE) do_free(which, 0);
}

static void do_limit(unsigned a) {
  size_t bytes;
  if (a % 4) {
    (void)judge(gmlake_offload_session_make_room(w.session, CHUNK * (a % 16), &bytes), 0);
  } else if (w.limit != 0) { /* never above what the device has */
    (void)judge(gmlake_offload_session_set_limit(w.session, w.limit - CHUNK * (a / 4 % 4)), 0);
  }
}

static void do_hold(unsigned a) {
  if (judge(gmlake_offload_session_hold(w.session, a & 1), 0)) w.is_held = a & 1;
}

static void operate(const uint8_t *r) {
  switch (r[0] % 12) {
  case 0:
  case 1:
    do_alloc(r[1], r[2], r[3]);
    break;
  case 2:
    do_free(r[1], r[2]);
    break;
  case 3:
    do_pin(r[1], r[2]);
    break;
  case 4:
    do_limit(r[1]);
    break;
  case 5:
    if (r[1] % 8 == 0) do_hold(r[2]);
    break;
  case 6:
    if (r[1] % 8 > 3) do_region(r[2], r[3], r[4], r[1] / 8);
    if (r[1] % 8 != 0) break;
    fuzz_host.fail_in = 1 + r[2];
    w.may_fail = 1;
    break;
  default:
    do_step(r[1], r[2], r[3], r[4]);
  }
}

static void run(const uint8_t *data, size_t size, unsigned skip) {
  uint8_t record[5];
  size_t i, n;
  if (w.is_marked && !w.is_held) (void)judge(gmlake_offload_session_mark(w.session), 0);
  for (i = 0; i < OPERATIONS_MAX && i * 5 < size; i++) {
    for (n = 0; n < 5; n++) record[n] = i * 5 + n < size ? data[i * 5 + n] : 0;
    if (i + 1 != skip) operate(record);
    check();
  }
}

static void open_world(unsigned how, unsigned chunks, unsigned flags) {
  gmlake_offload_mock_desc mock_desc;
  gmlake_offload_session_desc desc;
  size_t i;
  memset(&w, 0, sizeof w);
  memset(&mock_desc, 0, sizeof mock_desc);
  memset(&desc, 0, sizeof desc);
  w.limit = CHUNK * (chunks % 24);
  mock_desc.device_bytes = w.limit;
  mock_desc.out_bytes_per_s = mock_desc.in_bytes_per_s = how & 4 ? 1e9 : 2e7;
  mock_desc.host.malloc_fn = desc.host.malloc_fn = fuzz_malloc;
  mock_desc.host.free_fn = desc.host.free_fn = fuzz_free;
  REQUIRE(!gmlake_offload_mock_create(&mock_desc, &w.mock));
  REQUIRE(!gmlake_offload_mock_get_queues(w.mock, &w.queues));
  REQUIRE(!gmlake_offload_mock_get_memory(w.mock, CHUNK, &w.memory));
  if (how & 1) numbered_wrap(&w.chunks, &w.memory);
  desc.queues = &w.queues;
  desc.memory = &w.memory;
  desc.flags = how & 2 ? GMLAKE_OFFLOAD_LETTER : 0;
  desc.limit_bytes = w.limit;
  desc.tensor_bytes_min = 1 + (flags & 1) * CHUNK;
  desc.host_bytes_max = flags & 2 ? 16 * CHUNK : 0;
  w.may_fail = desc.host_bytes_max != 0;
  desc.try_count_max = 4;
  REQUIRE(!gmlake_offload_session_create(&desc, &w.session));
  for (i = 0; i < TENSORS; i++) w.tensors[i].id = NONE;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_input in = {data, size};
  unsigned how = fuzz_byte(&in), chunks = fuzz_byte(&in), flags = fuzz_byte(&in), i, last;
  gmlake_offload_mock_census census;
  memset(&fuzz_host, 0, sizeof fuzz_host);
  open_world(how, chunks, flags);
  if (how & 16) gmlake_offload_mock_fail_at(w.mock, 1 + (uint64_t)flags * 4);
  w.may_fail |= (how & 16) != 0;
  w.is_marked = (how & 32) == 0;
  last = how & 64 ? 9 : w.is_marked ? 3 : 6;
  for (i = 0; i <= last; i++) { /* what is complete when the next run begins is planned */
    run(in.at, in.left, i == last ? flags / 4 : 0);
    if (how & 8) REQUIRE(w.queues.stream_sync(w.queues.user, &stream) == 0 || w.may_fail);
  }
  fuzz_host.fail_in = 0;
  gmlake_offload_mock_fail_at(w.mock, 0);
  REQUIRE(w.queues.stream_sync(w.queues.user, &stream) == 0);
  check();
  gmlake_offload_session_destroy(w.session);
  gmlake_offload_mock_get_census(w.mock, &census);
  REQUIRE(census.host_bytes == 0 && census.event_count == 0);
  gmlake_offload_mock_destroy(w.mock);
  REQUIRE(fuzz_host.bytes == 0);
  return 0;
}
