/* Tests of the mock backend. Most are rows: a line of calls, each with the answer that it has to
   get. Each call of a row fails first for all reasons that there are: as gmlake_mock_fail_at says,
   by the system, and for want of host memory at each of its allocations. Then nothing may have
   changed. The rest is C: descriptions, limits of the process, threads. The implementation is
   included, with host allocations and system calls that can be made to fail. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1
#endif
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host.h"

static int refused; /* calls of the system from now on: the next that many are refused */
static int refuses(void) { return refused && refused--; }
static int try_ftruncate(int file, off_t bytes) { return refuses() ? -1 : ftruncate(file, bytes); }
static int try_munmap(void *at, size_t bytes) { return refuses() ? -1 : munmap(at, bytes); }
static int try_mprotect(void *at, size_t bytes, int access) {
  return refuses() ? -1 : mprotect(at, bytes, access);
}
static void *try_mmap(void *at, size_t bytes, int access, int flags, int file, off_t offset) {
  return refuses() ? MAP_FAILED : mmap(at, bytes, access, flags, file, offset);
}
#define ftruncate(file, bytes) try_ftruncate(file, bytes)
#define munmap(at, bytes) try_munmap(at, bytes)
#define mprotect(at, bytes, access) try_mprotect(at, bytes, access)
#define mmap(at, bytes, access, flags, file, offset) \
  try_mmap(at, bytes, access, flags, file, offset)
#define GMLAKE_MALLOC(bytes) host_malloc(NULL, bytes)
#define GMLAKE_FREE(ptr) host_free(NULL, ptr)
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pthread.h>

#include "cases.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define TIB ((size_t)1 << 40)
#define G (2 * MIB) /* the granularity of all mocks here */

#if !defined(__has_feature)
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define LARGE (64 * GIB) /* the sanitizer leaves little address space to the program */
#else
#define LARGE TIB
#endif

#define assert_ok(call) assert_int_equal(call, GMLAKE_OK)
#define assert_error(call, name) assert_int_equal(call, GMLAKE_ERROR_##name)

/* One mock at a time; code is the driver's number for the thread's last call. */

static gmlake_backend *mock;
static __thread int code;

static gmlk_mock *inside(void) { return (gmlk_mock *)mock->user; }

static void open_mock_of(size_t capacity_bytes, int bookkeeping_only, gmlake_mock_costs costs) {
  gmlake_mock_desc desc;
  memset(&desc, 0, sizeof(desc));
  desc.capacity_bytes = capacity_bytes;
  desc.bookkeeping_only = bookkeeping_only;
  desc.costs = costs;
  host_bytes = host_fail_in = 0;
  assert_ok(gmlake_mock_create(&desc, &mock));
}

static void open_mock(size_t capacity_bytes, int bookkeeping_only) {
  open_mock_of(capacity_bytes, bookkeeping_only, GMLAKE_MOCK_COSTS_ALONE);
}

static void close_mock(void) {
  gmlake_mock_destroy(mock);
  mock = NULL;
  assert_int_equal(host_bytes, 0);
}

static gmlake_mock_census census(void) {
  gmlake_mock_census now;
  gmlake_mock_get_census(mock, &now);
  return now;
}

static unsigned char *bytes_at(uint64_t address) { return (unsigned char *)(uintptr_t)address; }

/* ---- The words of a line --------------------------------------------------------------------- */

static __thread struct player {
  const char *call; /* the one that is played */
  uint64_t x[8];    /* its arguments */
  size_t count;     /* of them */
  uint64_t named[26], answer, since_ns;
  unsigned round; /* of a part that is repeated */
  int is_bare;    /* no call is made to fail: all would fail, or other threads call too */
  int is_guest;   /* a thread of which cmocka does not know: wrong answers are counted */
  int wrong;      /* so many */
  size_t process_bytes;
  gmlake *lake;
  gmlake_pool *pool, *other_pool; /* of which launches are */
} p;

#define UNANSWERED 0x7777777777777777u
#define NAMED(letter) p.named[(letter) - 'a']

static void expect(const char *what, uint64_t is, uint64_t wanted) {
  if (is != wanted && p.is_guest) p.wrong++;
  if (is != wanted && !p.is_guest)
    fail_msg("%s: %s is %llu, not %llu", p.call, what, GMLK_ULL(is), GMLK_ULL(wanted));
}

/* Of the arguments n is a name that gets the answer, s a size or an address, v another value; the
   last holds for what follows. A call of the table counts; what may fail is tried with failures. */
typedef struct word {
  const char *name, *arguments;
  gmlake_result (*run)(void);
  int is_call, may_fail;
} word;

#define WORDS 64 /* at most */
static word words[WORDS];
static size_t word_count;

#define WORD(name, arguments, is_call, may_fail)                                    \
  static gmlake_result do_##name(void);                                             \
  __attribute__((constructor(100 + __LINE__))) static void name##_is_a_word(void) { \
    const word added = {#name, arguments, do_##name, is_call, may_fail};            \
    words[word_count++] = added;                                                    \
  }                                                                                 \
  static gmlake_result do_##name(void)
#define CALL(name, arguments) WORD(name, arguments, 1, 1)
#define NEEDY(name, arguments) WORD(name, arguments, 0, 1)
#define OTHER(name, arguments) WORD(name, arguments, 0, 0)
#define STREAM(i) (gmlake_stream)(uintptr_t) p.x[i]
#define POINTER(i) (void *)(uintptr_t)p.x[i]

CALL(reserve, "ns") {
  return mock->reserve(mock->user, p.x[1], p.count > 2 ? p.x[2] : G, &p.answer, &code);
}
CALL(unreserve, "s") { return mock->unreserve(mock->user, p.x[0], p.x[1], &code); }
CALL(create, "nsv") {
  return mock->create(mock->user, p.x[1], p.count > 2 ? (unsigned)p.x[2] : 0, &p.answer, &code);
}
CALL(release, "v") { return mock->release(mock->user, p.x[0], &code); }
CALL(map, "ssv") { return mock->map(mock->user, p.x[0], p.x[1], p.x[2], &code); }
CALL(unmap, "s") { return mock->unmap(mock->user, p.x[0], p.x[1], &code); }
CALL(access, "ssv") {
  int peers[4];
  size_t i;
  for (i = 2; i < p.count; i++) peers[i - 2] = (int)p.x[i];
  return mock->set_access(mock->user, p.x[0], p.x[1], peers, p.count - 2, &code);
}
CALL(peerless, "s") { return mock->set_access(mock->user, p.x[0], p.x[1], NULL, 1, &code); }
CALL(event, "n") {
  void *event = (void *)UNANSWERED;
  gmlake_result result = mock->event_create(mock->user, &event, &code);
  p.answer = (uint64_t)(uintptr_t)event;
  return result;
}
CALL(destroy, "v") { return mock->event_destroy(mock->user, POINTER(0), &code); }
CALL(record, "v") { return mock->event_record(mock->user, POINTER(0), STREAM(1), &code); }
OTHER(mark, "nv") { /* records a new event */
  assert_ok(do_event());
  p.x[0] = p.answer;
  return do_record();
}
CALL(query, "v") {
  int done = 7;
  gmlake_result result = mock->event_query(mock->user, POINTER(0), &done, &code);
  if (done != 7) p.answer = (uint64_t)done;
  return result;
}
CALL(wait, "v") { return mock->event_wait(mock->user, POINTER(0), &code); }
CALL(any, "v") {
  void *events[4];
  unsigned place = 7;
  gmlake_result result;
  size_t i;
  for (i = 0; i < p.count; i++) events[i] = POINTER(i);
  result = mock->event_wait_any(mock->user, events, (unsigned)p.count, &place, &code);
  if (!result) p.answer = place;
  return result;
}
CALL(swait, "v") { return mock->stream_wait(mock->user, STREAM(0), POINTER(1), &code); }
CALL(mode, "v") {
  int mode = (int)p.x[0];
  gmlake_result result = mock->capture_exchange(mock->user, &mode, &code);
  if (result) expect("the mode", (uint64_t)mode, p.x[0]);
  if (!result) p.answer = (uint64_t)mode;
  return result;
}
CALL(id, "v") { return mock->stream_id(mock->user, STREAM(0), &p.answer, &code); }
CALL(capturing, "v") {
  int is = 7;
  gmlake_result result = mock->is_capturing(mock->user, STREAM(0), &is, &code);
  if (is != 7) p.answer = (uint64_t)is;
  return result;
}
CALL(devwait, "v") { return mock->device_wait(mock->user, &code); }
CALL(memory, "v") {
  size_t left = (size_t)UNANSWERED, all;
  gmlake_result result = mock->get_memory_info(mock->user, &left, &all, &code);
  p.answer = left == (size_t)UNANSWERED ? UNANSWERED : left / G;
  return result;
}
CALL(properties, "v") {
  gmlake_device_properties properties;
  return mock->get_properties(mock->user, &properties, &code);
}

/* What is no call of the table. */
OTHER(open, "sv") {
  const int bookkeeping_only = inside()->file < 0;
  close_mock();
  open_mock_of(p.x[0], bookkeeping_only, (gmlake_mock_costs)(p.count > 1 ? p.x[1] : 0));
  return GMLAKE_OK;
}
OTHER(lost, "v") { /* every call fails, or with 0 none */
  p.is_bare = !p.count;
  gmlake_mock_fail_at(mock, p.count ? 0 : 1, GMLAKE_ERROR_DEVICE_LOST, 1);
  return GMLAKE_OK;
}
NEEDY(stream, "n") {
  gmlake_stream stream = (gmlake_stream)UNANSWERED;
  gmlake_result result = gmlake_mock_stream_create(mock, &stream);
  p.answer = (uint64_t)(uintptr_t)stream;
  return result;
}
OTHER(end, "v") { return gmlake_mock_stream_destroy(mock, STREAM(0)), GMLAKE_OK; }
OTHER(hold, "v") { return gmlake_mock_stream_hold(mock, STREAM(0)), GMLAKE_OK; }
OTHER(finish, "v") { return gmlake_mock_stream_finish(mock, STREAM(0)), GMLAKE_OK; }
OTHER(lag, "v") { return gmlake_mock_stream_set_lag(mock, STREAM(0), p.x[1]), GMLAKE_OK; }
OTHER(clock, "v") { return gmlake_mock_set_clock(mock, p.x[0]), GMLAKE_OK; }
OTHER(begin, "v") { return gmlake_mock_capture_begin(mock, STREAM(0)); }
OTHER(done, "v") { return gmlake_mock_capture_end(mock, STREAM(0)); }
OTHER(lake, "v") {
  gmlake_desc desc;
  memset(&desc, 0, sizeof(desc));
  desc.backend = mock;
  assert_ok(gmlake_create(&desc, &p.lake));
  assert_ok(gmlake_pool_create(p.lake, NULL, &p.other_pool));
  return gmlake_pool_create(p.lake, NULL, &p.pool);
}
NEEDY(launch, "v") { return gmlake_mock_launch(mock, p.pool, p.x[0], STREAM(1)); }
NEEDY(other, "v") { return gmlake_mock_launch(mock, p.other_pool, p.x[0], STREAM(1)); }

typedef struct visitor { /* a thread that queries in a mode of its own */
  void *event;
  int mode;
  gmlake_result result;
} visitor;

static void *visit(void *user) {
  visitor *v = (visitor *)user;
  int mode = v->mode, done, unused;
  (void)mock->capture_exchange(mock->user, &mode, &unused);
  v->result = mock->event_query(mock->user, v->event, &done, &unused);
  (void)mock->capture_exchange(mock->user, &mode, &unused);
  return NULL;
}

OTHER(visit, "v") {
  visitor v = {POINTER(0), (int)p.x[1], GMLAKE_OK};
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, visit, &v), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  return v.result;
}

/* What is compared. */
OTHER(ns, "v") { /* since the word stood last */
  const uint64_t now = mock->clock_ns(mock->user);
  expect("the clock", census().modelled_ns, now);
  expect("what the calls cost", now - p.since_ns, p.x[0]);
  p.since_ns = now;
  return GMLAKE_OK;
}
OTHER(counts, "v") {
  const gmlake_mock_census now = census();
  expect("the number of handles", now.handle_count, p.x[0]);
  expect("the number of mappings", now.mapping_count, p.x[1]);
  expect("the number of reservations", now.reservation_count, p.x[2]);
  expect("physical memory", now.physical_bytes, p.x[3] * G);
  return GMLAKE_OK;
}
OTHER(addresses, "v") { return p.answer = census().reserved_address_bytes / G, 0; }
OTHER(events, "v") { return p.answer = census().event_count, GMLAKE_OK; }
OTHER(waits, "v") { return p.answer = census().host_wait_count, GMLAKE_OK; }
OTHER(queues, "v") { return p.answer = inside()->queue_count, GMLAKE_OK; }
OTHER(same, "v") { return p.answer = p.x[0] == p.x[1], GMLAKE_OK; }
OTHER(even, "s") { return p.answer = p.x[0] % p.x[1] == 0, GMLAKE_OK; }
OTHER(apart, "s") {
  return p.answer = p.x[0] + p.x[1] <= p.x[2] || p.x[2] + p.x[3] <= p.x[0], GMLAKE_OK;
}
OTHER(reach, "ssv") {
  p.answer = (uint64_t)gmlake_mock_has_access(mock, POINTER(0), p.x[1], (int)p.x[2]);
  return GMLAKE_OK;
}
OTHER(fill, "ssv") { return memset(POINTER(0), (int)p.x[2], p.x[1]), GMLAKE_OK; }
OTHER(read, "s") { return p.answer = *bytes_at(p.x[0]), GMLAKE_OK; }
OTHER(resident, "s") { /* pages of the host, in granules */
  struct stat file;
  assert_int_equal(fstat(inside()->file, &file), 0);
  p.answer = (uint64_t)file.st_blocks * 512 / G;
  return GMLAKE_OK;
}

OTHER(dies, "s") { /* 1: who writes there dies of a signal */
  int status = 0;
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    (void)signal(SIGSEGV, SIG_DFL); /* sanitizers have handlers of their own */
    *(volatile unsigned char *)bytes_at(p.x[0]) = 1;
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) expect("the signal", (uint64_t)WTERMSIG(status), SIGSEGV);
  p.answer = WIFSIGNALED(status);
  return GMLAKE_OK;
}

OTHER(process, "s") { /* at most so much address space more than where the word stood first */
  unsigned long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  assert_non_null(file);
  assert_int_equal(fscanf(file, "%lu", &pages), 1);
  assert_int_equal(fclose(file), 0);
  pages *= (unsigned long)sysconf(_SC_PAGESIZE);
  if (!p.process_bytes) p.process_bytes = pages;
  expect("the process too large", (uint64_t)p.count && pages > p.process_bytes + p.x[0], 0);
  return GMLAKE_OK;
}

static unsigned lacked[WORDS]; /* how often the word's call had no host memory */

/* ---- Playing a line -------------------------------------------------------------------------- */

/* The driver's numbers. */
static const int numbers[][2] = {{GMLAKE_OK, 0},
                                 {GMLAKE_ERROR_INVALID_ARGUMENT, 1},
                                 {GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, 2},
                                 {GMLAKE_ERROR_SHUTTING_DOWN, 4},
                                 {GMLAKE_ERROR_INVALID_ARGUMENT, 400},
                                 {GMLAKE_ERROR_DEVICE_LOST, 719},
                                 {GMLAKE_ERROR_UNSUPPORTED, 801},
                                 {GMLAKE_ERROR_CAPTURING, 900},
                                 {GMLAKE_ERROR_CAPTURING, 901},
                                 {GMLAKE_ERROR_CAPTURING, 905},
                                 {GMLAKE_ERROR_CAPTURING, 906},
                                 {GMLAKE_ERROR_DRIVER, 999}};
#define NUMBERS (sizeof(numbers) / sizeof(numbers[0]))

static gmlake_result result_of(int number) {
  size_t i = 0;
  while (i < NUMBERS && numbers[i][1] != number) i++;
  if (i == NUMBERS) fail_msg("%s: there is no error %d", p.call, number);
  return (gmlake_result)numbers[i][0];
}

/* A sum of a name and numbers: of units, or b bytes, k, M, g, T, L; # is the round. */
static uint64_t value_of(const char *t, uint64_t unit) {
  static const char units[] = "bkMgTL";
  const uint64_t sizes[] = {1, KIB, MIB, GIB, TIB, LARGE};
  uint64_t sum = 0, n;
  if (*t >= 'a' && *t <= 'z') sum = NAMED(*t++);
  while (*t) {
    const int minus = *t == '-';
    const char *at;
    char *end;
    t += minus || *t == '+';
    if (*t != '#' && (*t < '0' || *t > '9')) fail_msg("%s: \"%s\" is no value", p.call, t);
    n = *t == '#' ? p.round : strtoull(t, &end, 10);
    t = *t == '#' ? t + 1 : end;
    at = *t ? strchr(units, *t) : NULL;
    n *= at ? sizes[at - units] : unit;
    t += at != NULL;
    sum += minus ? 0 - n : n;
  }
  return sum;
}

/* What failed has written nothing, and changed nothing but the counts of calls. */
static void expect_unchanged(const word *w, gmlake_mock_census before) {
  gmlake_mock_census now = census();
  expect("the answer", p.answer, UNANSWERED);
  before.call_count += (unsigned)w->is_call;
  before.failed_count += (unsigned)w->is_call;
  if (memcmp(&before, &now, sizeof(now)) != 0) fail_msg("%s: has changed something", p.call);
}

static gmlake_result run_once(const word *w) {
  const gmlake_mock_census before = census();
  gmlake_result result;
  p.answer = UNANSWERED;
  code = -1;
  result = w->run();
  if (result && !p.is_guest && (w->is_call || w->may_fail)) expect_unchanged(w, before);
  return result;
}

/* Fails as it was told, and the call before does not. */
static void run_injected(const word *w) {
  static size_t turn;
  const int *pair = numbers[1 + turn++ % (NUMBERS - 1)];
  gmlake_device_properties properties;
  gmlake_mock_fail_at(mock, census().call_count + 2, (gmlake_result)pair[0], 0);
  assert_ok(mock->get_properties(mock->user, &properties, &code));
  expect("what was injected", (uint64_t)run_once(w), (uint64_t)pair[0]);
  expect("its number's error", (uint64_t)result_of(code), (uint64_t)pair[0]);
}

/* The result, once nothing that it needs fails any more. */
static gmlake_result run_word(const word *w) {
  gmlake_result result;
  long nth = 1;
  int is_system_next = 1;
  if (!w->may_fail || p.is_bare) return run_once(w);
  if (w->is_call) run_injected(w);
  for (;;) {
    host_fail_in = nth;
    refused = is_system_next;
    result = run_once(w);
    if (!host_fail_in) {
      expect("the lack of memory", (uint64_t)result, GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
      lacked[w - words]++;
      nth++;
    } else if (is_system_next && !refused) {
      const int is_reserve = w->run == do_reserve;
      expect("the system's refusal", (uint64_t)result,
             is_reserve ? GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY : GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
      expect("its number", (uint64_t)code, is_reserve ? 2 : 304);
      is_system_next = 0;
    } else {
      host_fail_in = refused = 0;
      return result;
    }
  }
}

static void play_call(const char *text, size_t length) {
  char whole[256], parts[256];
  char *rest, *t;
  const char *answer = NULL;
  const word *w = words;
  uint64_t *named = NULL;
  gmlake_result result;
  int number = 0;
  (void)snprintf(whole, sizeof(whole), "%.*s", (int)length, text);
  memcpy(parts, whole, sizeof(parts));
  p.call = whole;
  p.count = 0;
  t = strtok_r(parts, " ", &rest);
  if (!t) return;
  while (w < words + word_count && strcmp(w->name, t) != 0) w++;
  if (w == words + word_count) fail_msg("%s: \"%s\" is no word", whole, t);
  while ((t = strtok_r(NULL, " ", &rest)) != NULL) {
    const size_t last = strlen(w->arguments) - 1;
    const char kind = w->arguments[p.count < last ? p.count : last];
    if (*t == '!') number = atoi(t + 1);
    if (*t == '=') answer = t + 1;
    if (*t == '!' || *t == '=') continue;
    if (kind == 'n') named = &NAMED(*t);
    if (kind != 'n') p.x[p.count] = value_of(t, kind == 's' ? G : 1);
    p.count++;
  }
  result = run_word(w);
  expect("the result", (uint64_t)result, (uint64_t)result_of(number));
  if (w->is_call) expect("the driver's number", (uint64_t)code, (uint64_t)number);
  if (answer) expect("the answer", p.answer, value_of(answer, 1));
  if (named && !result) *named = p.answer;
}

/* Calls are parted by ; and parts of the line by |. A part behind Nx is played N times. */
static void play_line(const char *line) {
  while (*line) {
    const char *end = line + strcspn(line, "|"), *at;
    char *behind;
    unsigned long times = strtoul(line, &behind, 10);
    if (*behind == 'x') line = behind + 1;
    if (*behind != 'x') times = 1;
    for (p.round = 0; p.round < times; p.round++)
      for (at = line; at < end; at += at < end) {
        const size_t length = strcspn(at, ";|");
        play_call(at, length);
        at += length;
      }
    line = end + (*end == '|');
  }
}

/* ---- Rows ------------------------------------------------------------------------------------ */

#define REAL 1
#define MADE 2 /* up addresses: bookkeeping only */
#define BOTH 3

typedef struct row {
  const char *what;
  int where;
  const char *line;
} row;

#define MISUSED BOTH, "reserve a 32; reserve o 4; create h 2;"
#define BAD_STREAM(s)                                                                         \
  "record e " s " !400; swait " s " e !400; begin " s " !1; end " s "; hold " s "; finish " s \
  "; lag " s " 1;"
#define LEGAL /* in every mode */                                                                 \
  "reserve a 1; create h 1; event f; map a 1 h; access a 1; unmap a 1; release h; unreserve a 1;" \
  "destroy f; memory;"
#define SPOILT "done s !900; mode 0; query e =1; record e s; begin s; done s;"
#define THREE "stream s; stream t; stream u;"

static const row rows[] = {
    /* What tests/gpu/gpu_misuse.h has not: more than the driver refuses, values that the driver
       without a device refuses by itself, what is legal. */
    {"unmap reserved, never mapped", MISUSED "unmap a 1 !1"},
    {"map with size > handle", MISUSED "map a 3 h !801"},
    {"map half granules", MISUSED "map a 3M h !1"},
    {"map past the reservation's end", MISUSED "map o+3 2 h !1"},
    {"overlapping map", MISUSED "create g 2; map a 2 h; map a+1 2 g !1"},
    {"one handle twice in a reservation", MISUSED "map a 2 h; map a+2 2 h"},
    {"map between two mappings",
     MISUSED "map a+4 2 h; map a 2 h; map a+2 2 h; map a+1 2 h !1; counts 1 3 2 2"},
    {"set_access on the second half", MISUSED "map a 2 h; access a+1 1 !1"},
    {"set_access on half granules", MISUSED "map a 2 h; access a 5M !1; access a 3M !1"},
    {"set_access on unmapped", MISUSED "access a 1 !1"},
    {"set_access twice", MISUSED "map a 2 h; access a 2; access a 2"},
    {"set_access for peer -1", MISUSED "map a 2 h; access a 2 -1 !1"},
    {"set_access for peers that are not there",
     MISUSED "map a 2 h; access a 2 8 !1; access a 2 0 !1; access a 2 3 3 !1; peerless a 2 !1"},
    {"unmap half granules", MISUSED "map a 2 h; unmap a 5M !1; unmap a+1M 3M !1; unmap a 2"},
    {"unmap mapping and hole", MISUSED "map a 2 h; unmap a 4 !1"},
    {"unmap a hole between mappings", MISUSED "map a 2 h; map a+3 2 h; unmap a 5 !1"},
    {"unmap two adjacent mappings at once", MISUSED "map a 2 h; map a+2 2 h; unmap a 4"},
    {"unmap twice", MISUSED "map a 2 h; unmap a 2; unmap a 2 !1"},
    {"unmap nothing", MISUSED "map a 2 h; unmap a 0 !1"},
    {"unmap past the reservation's end", MISUSED "map o+2 2 h; unmap o+2 4 !1"},
    {"release while mapped", MISUSED "map a 2 h; release h"},
    {"map a released handle", MISUSED "map a 2 h; release h; map a+2 2 h !1"},
    {"release twice", MISUSED "release h; release h !1"},
    {"release twice while mapped", MISUSED "map a 2 h; release h; release h !1"},
    {"release a value of the past", MISUSED "release h; create g 2; release h !1"},
    {"reserve with alignment 3", MISUSED "reserve z 1 3b !1"},
    {"reserve with alignment 0", MISUSED "reserve z 1 0 !1"},
    {"reserve with alignment 1 TiB", MISUSED "reserve z 1 1L; even z 1L =1"},
    {"map handle 0", MISUSED "map a 2 0 !1"},
    {"map an unknown handle", MISUSED "map a 2 h+77 !1"},
    {"release handle 0", MISUSED "release 0 !1"},
    {"create 3 MiB", MISUSED "create z 3M !1"},
    {"create 0", MISUSED "create z 0 !1"},
    {"create beyond capacity", MISUSED "create z 64g !2"},
    {"create exportable as Win32 handle", MISUSED "create z 1 2 !801"},
    {"numbers that wrap",
     MISUSED "reserve z -1+1b !1; reserve z -1 !2; reserve z -1b !1; reserve z 1 8388608T !2;"
             "reserve z 1 -1b !1; create z -1b !1; create z 8388608T !2; create z 16g !2;"
             "create z 1 4294967295 !801; release -1 !1; release h+1 !1; unreserve a 33 !1;"
             "unreserve a 0 !1; unreserve a -1b !1; unreserve -1b 1 !1; map a -2 h !1;"
             "map -2 2 h !1; map 0 2 h !1; unmap a+1 -1 !1; access a 0 !1; map a 2 h;"
             "access a 2; unmap a 2"},
    /* Values of another kind, of the past, of nothing; numbers as the driver's for bad handles. */
    {"misuse of events", BOTH,
     "mark e 0; mark g 0; destroy g; stream s; end s; event f; same f g =0; destroy g !400;"
     "destroy 0 !400; record g 0 !400; query g !400; wait g !400; swait 0 g !400; query f !1;"
     "wait f !1; swait 0 f !1; any e f !1; any !1;" BAD_STREAM("s") BAD_STREAM("2") BAD_STREAM("-1")
         BAD_STREAM("s+6400") "capturing s !400; id s !400; query e =1"},

    /* Memory. */
    {"what is written through one mapping is read through the others", REAL,
     "reserve a 8; reserve w 8; create h 1; create g 2; map a 1 h; map a+1 2 g; map w 2 g;"
     "map w+2 1 h; map w+4 1 h; access a 3; access w 3; access w+4 1; fill a 1 17; fill w 2 34;"
     "read w+2 =17; read w+5-1b =17; read a+1-1b =17; read a+1 =34; read a+3-1b =34;"
     "fill w+4+5b 1b 51; read a+5b =51; read w+2+5b =51; unmap a 3; release h;"
     "read w+2+5b =51; read w+2+6b =17; map a+4 2 g; access a+4 2; read a+5 =34"},
    /* And the capacity is not fragmented by what came before. */
    {"pages of dead memory go back to the host", REAL,
     "open 8; reserve a 8; create c 2; create d 2; create e 2; create f 2; map a 2 c;"
     "map a+2 2 d; map a+4 2 e; map a+6 2 f; access a 8; fill a 8 1; resident =8; release c;"
     "resident =8; unmap a 2; resident =6; release e; resident =6; unmap a+4 2; resident =4;"
     "read a+2 =1; create g 4; unmap a+2 2; map a 4 g"},
    {"memory without access", REAL,
     "reserve a 4; create h 1; dies a =1; map a 1 h; map a+1 1 h; dies a =1; access a 1;"
     "dies a =0; dies a+1-1b =0; dies a+1 =1; unmap a 1; dies a =1; map a 1 h; dies a =1;"
     "unmap a 2; unreserve a 4; dies a =1"},
    {"who has access", BOTH,
     "reserve a 8; create h 2; map a+1 2 h; reach a+1 2 0 =0; access a+1 2; reach a+1 2 0 =1;"
     "reach a+1+5b 1b 0 =1; reach a+3-1b 1b 0 =1; reach a 1 0 =0; reach a 2 0 =0;"
     "reach a+3-1b 2b 0 =0; reach a+4 1 0 =0; map a+3 2 h; reach a+1 4 0 =0; access a+3 2 3;"
     "reach a+1 4 0 =1; reach a+2+7b 1 0 =1; reach a+1 4 3 =0; reach a+3 2 3 =1;"
     "reach a+3 2 8 =0; reach a+3 2 -1 =0; reach a+6 2 0 =0; reach a+5 8 0 =0; reach 512 1 0 =0;"
     "unmap a+1 2; map a+1 2 h; reach a+1 2 0 =0"},
    /* What alignment passes over is given back. */
    {"large reservations", REAL,
     "process; reserve a 1g 16g; process 1088M; unreserve a 1g; process 64M; reserve l 4L;"
     "reserve b 3 64; even b 64 =1; create h 1; map l+4L-1 1 h; access l+4L-1 1;"
     "fill l+4L-1b 1b 9; unmap l+4L-1 1; unreserve l 4L"},
    {"addresses are made up", MADE,
     "open 140g; reserve l 64T; reserve r 36T-1; reserve s 1; reserve z 1 !2;"
     "apart r 36T-1 l 64T =1; apart s 1 l 64T =1; unreserve l 64T; reserve z 120T !2;"
     "reserve n 64T; same n l =1; unreserve s 1; reserve o 1 1T; even o 1T =1; unreserve o 1;"
     "reserve z 1 4194304T !2; create h 128g; map l+60T 128g h; access l+60T 128g;"
     "unmap l+60T 128g"},

    /* Counting. Memory counts as physical until its last unmap. */
    {"the census", BOTH,
     "counts 0 0 0 0; reserve a 8; counts 0 0 1 0; addresses =8; create h 1; create g 3;"
     "counts 2 0 1 4; map a 1 h; map a+1 3 g; map a+4 3 g; counts 2 3 1 4; release g;"
     "counts 1 3 1 4; unmap a+1 3; counts 1 2 1 4; unmap a+4 3; counts 1 1 1 1; unmap a 1;"
     "counts 1 0 1 1; release h; unreserve a 8; counts 0 0 0 0; addresses =0; event e;"
     "events =1; record e 0; query e =1; wait e; swait 0 e; destroy e; events =0; waits =0"},
    {"the capacity", BOTH,
     "open 4; memory =4; create h 1; memory =3; create g 3; create z 1 !2; reserve a 4;"
     "map a 3 g; release g; create z 1 !2; unmap a 3; create z 2; release h; create y 2"},
    {"what calls cost", MADE,
     "reserve a 4g; ns 2000; create h 1; ns 7500; create g 2g; ns 18252; map a 1 h; ns 500;"
     "map a+1 1 h; ns 500; map a+2 2g g; ns 500; access a 2 3; ns 40000; access a 2+2g;"
     "ns 60000; unmap a+1 1+2g; ns 26000; release g; ns 448000; release h; ns 8429;"
     "unmap a 1; ns 13000; unmap a 1 !1; ns 0; unreserve a 4g; ns 5000; event e; ns 150;"
     "record e 0; ns 150; query e; ns 100; swait 0 e; ns 100; wait e; ns 1000; destroy e;"
     "ns 100; memory; ns 4000; properties; ns 0; mode 0; ns 50; clock 1000000; ns 0"},
    {"what calls cost among others", MADE,
     "open 0 1; reserve a 4g; ns 11000; create h 1; ns 9500; map a 1 h; ns 2600; access a 1;"
     "ns 21600; unmap a 1; ns 17200; release h; ns 11229; unreserve a 4g; ns 73600;"
     "create g 2g; ns 20252; release g; ns 450800; event e; ns 580; record e 0; ns 350;"
     "query e; ns 325; swait 0 e; ns 100; wait e; ns 1600; destroy e; ns 570; memory;"
     "ns 4000; mode 0; ns 200"},
    /* What eight programs paid for a chunk that is created and mapped, a mapping, a query. */
    {"what calls cost in programs", MADE,
     "open 0 2; reserve a 4g; mark e 0; ns 26300; create h 1; map a 1 h; access a 1; ns 58600;"
     "map a+1 1 h; access a+1 1; ns 48500; query e; ns 1500"},

    /* Failures. */
    {"every call fails", BOTH,
     "reserve a 2; create h 1; map a 1 h; mark e 0; stream s; lost; properties !719;"
     "memory !719; reserve z 1 !719; create z 1 !719; map a+1 1 h !719; access a 1 !719;"
     "unmap a 1 !719; unreserve a 2 !719; release h !719; event z !719; record e 0 !719;"
     "query e !719; wait e !719; any e !719; swait 0 e !719; destroy e !719; mode 0 !719;"
     "id s !719; capturing s !719; devwait !719; lost 0; unmap a 1; unreserve a 2; release h;"
     "destroy e; mode 0 =0; devwait; counts 0 0 0 0; events =0"},
    {"lists grow", BOTH,
     "hold 0; mark e 0 | 200x reserve a 1; create h 1; map a 1 h; event f; record f 0;"
     "swait 0 e; stream s | 40x reserve a 40; map a+# 1 h | finish 0; query f =1"},
    /* In front of others, and in the end all at once. */
    {"mappings come from above", BOTH,
     "reserve a 8; create h 1; create g 1 | 4x map a+7-#-# 1 h; map a+6-#-# 1 g |"
     "access a 8; release h; release g; counts 0 8 1 2; unmap a 8; counts 0 0 1 0"},
    {"a reservation's list grows", BOTH, "reserve a 99; create h 1 | 99x map a+# 1 h | unmap a 99"},
    {"waits of one stream grow", MADE,
     "stream s; stream t; hold s; mark e s | 20x swait t e | mark f t; query f =0; finish s;"
     "query f =1"},
    /* Each is behind the former one, and the first behind itself. */
    {"launches grow", MADE,
     "lake; stream s; stream t | 39x launch # s | finish s; launch 39 t; launch 39 s; finish t;"
     "finish s"},

    /* Launches of a pool's graphs, which the mock refuses where a driver would let them pass. */
    {"no launch of no pool", MADE, "stream s; launch 1 s !1"},
    /* e is before the launch; g is behind it by way of a third stream. What is complete needs no
       event. */
    {"graphs of a pool need an order", MADE,
     "lake;" THREE "hold s; hold t; mark e s; launch 1 s;"
     "launch 2 t !1; swait t e; launch 2 t !1; mark f s; swait u f; launch 2 t !1; mark g u;"
     "swait t g; launch 2 t; launch 2 t; launch 1 s !1; launch 3 u !1; finish s; launch 1 s !1;"
     "finish t; launch 1 s; launch 2 t !1; finish s; finish t"},
    /* The second launch may still run. */
    {"what the host waited for is before", MADE,
     "lake; stream s; stream t; launch 1 s; mark e s; launch 1 s; wait e;"
     "launch 2 t !1; devwait; launch 2 t; finish t"},
    /* The driver orders the launches of one graph by itself; another one is behind both. What
       stands behind the launch on s still waits. */
    {"a graph is behind itself", MADE,
     "lake; stream s; stream t; launch 1 s; launch 1 t; launch 2 t; launch 2 s !1;"
     "mark e t; finish t; query e =0; finish s; query e =1"},
    {"pools have nothing to do with each other", MADE,
     "lake; stream s; stream t; launch 1 s; other 2 t; other 2 t; launch 2 t !1; finish t; finish "
     "s"},
    /* It is spoilt. */
    {"no launch on a captured stream", MADE,
     "lake; stream s; stream t; begin t; launch 1 t !900; done t !900; begin t;"
     "launch 1 s; done t; begin t; launch 1 0 !900; done t !900; launch 1 0; launch 1 -1 !1;"
     "finish 0; finish s"},

    /* Streams. Time alone does not finish held work, and each stream is its own. The new record of
       an event is forgotten by the old stream. 1 is the legacy stream, too. */
    {"hold and finish", MADE,
     "stream s; mark e s; query e =1; hold s; query e =1; mark h s; query h =0; clock -1;"
     "query h =0; mark o 0; query o =1; finish s; query h =1; mark l s; query l =1; hold 0;"
     "mark m 1; query m =0; record m s; query m =1"},
    /* b is behind a, though due at once. The clock never goes back, and no sum overflows. */
    {"lag and clock", MADE,
     "stream s; clock 1000; lag s 100; mark a s; clock 1099; query a =0; lag s 0; mark b s;"
     "query b =0; clock 5; lag 0 1; mark c 0; clock 1099; query c =0; clock 1100; query c =1;"
     "lag 0 -6; mark c 0; query c =0; query a =1; query b =1; lag s -1; mark n s; clock -1;"
     "query c =1; query n =0; finish s; query n =1"},
    /* The end of u's own work is not that of what it waits for; t's wait meant e's former
       record. */
    {"waits between streams", MADE,
     THREE "hold s; mark e s; mark p t; swait t e; mark f t; swait u f; mark g u; query p =1;"
           "query f =0; query g =0; finish u; query g =0; record e u; finish s; query f =1;"
           "query g =1; query e =1"},
    /* All that the event waits for, and no more: s is held still. What is complete does not
       count. */
    {"a wait of the host", MADE,
     THREE "hold s; lag t -1; mark e s; mark l s; mark m t; swait t e; mark f t; swait u f;"
           "mark g u; swait u l; mark b u; wait g; waits =1; query g =1; query f =1; query m =1;"
           "query e =1; query l =0; query b =0; mark x s; query x =0; mark y t; query y =0;"
           "wait g; waits =1; finish s; query b =1"},
    {"a wait for what the legacy stream waits for", MADE,
     "stream s; hold s; hold 0; mark e s; swait 0 e; mark f 0; wait f; query f =1; query e =1"},
    /* The soonest; what is complete; the one that is held, if there is no other. */
    {"a wait for any", MADE,
     THREE "hold s; lag t 2000000000; lag u 1000000000; mark e s; mark f t; mark g u;"
           "any e f g =2; query g =1; query f =0; query e =0; any e f g =2; query f =0; waits =1;"
           "any e f =1; any e =0; query e =1; waits =3"},
    {"a wait for the device", MADE,
     "stream s; stream t; hold s; mark e s; swait t e; mark f t; devwait; waits =1; query e =1;"
     "query f =1; devwait; waits =1"},
    {"two streams wait for each other's last event, and the host for them", MADE,
     "stream s; stream t; hold s; mark a s; mark e s; event f; hold t | 2500x swait t e;"
     "record f t; swait s f; record e s | query f =0; wait e; query a =1; query e =1; query f =1"},
    {"two streams wait for each other's last event, and are finished", MADE,
     "stream s; stream t; hold s; mark a s; mark e s; event f; hold t | 2500x swait t e;"
     "record f t; swait s f; record e s | query f =0; finish t; query e =0; finish s; query a =1;"
     "query e =1; query f =1"},
    /* Last in, first out; a new one is idle and does not reach what the former owner of the value
       has pending, nor inherits its hold and lag. The legacy stream stays. */
    {"values of streams", MADE,
     "stream a; stream b; same a b =0; hold a; mark p a; lag b 50; mark l b; end b; end a; end 0;"
     "stream c; same c a =1; stream d; same d b =1; mark q c; query q =1; query p =0; query l =0;"
     "finish c; query p =0; clock 50; query l =1; swait c p; mark w c; query w =0; wait w;"
     "query p =1; mark z 0; query z =1; hold c; lag c 50; end c | 4x stream x; mark y x;"
     "query y =1"},
    {"ids of streams", MADE,
     "stream a; id a; id 0; id a =2; id 0 =1; end a; stream b; same a b =1; id b =3"},
    {"what was a stream's serves the next one", MADE,
     "stream s; end s; queues =2 | 1000x stream s; end s | queues =2"},

    /* Captures. */
    {"captures of no stream", MADE,
     "stream s; done s !1; end s; done s !1; done 12345 !1; begin 0 !1; begin s !1"},
    /* Questions that the driver answers, or the CUDA backend refuses, without spoiling a capture.
       The legacy stream may not be used meanwhile. */
    {"questions about captures", BOTH,
     "stream s; stream t; stream g; end g; capturing s =0; capturing 0 =0; begin s;"
     "capturing s =1; capturing 0 =1; capturing t =0; capturing g !400; id s !900; id t =3;"
     "done s; capturing s =0; capturing 0 =0; begin s; devwait !900; capturing s =1; done s !900;"
     "capturing s =0"},
    {"what a capture allows", BOTH,
     "stream s; stream t; mark e t; begin s; begin s !1;" LEGAL "record e t; swait t e;"
     "mode 2 =0; query e =1; wait e;" LEGAL "mode 0 =2; visit e 1; visit e 2; done s; query e =1;"
     "done s !1"},
    /* With the numbers an H200 gave. To queue work spoils in every mode; the next begins clean. */
    {"what spoils a capture", MADE,
     "stream s; stream t; mark e t; begin s; query e !900;" SPOILT "begin s; wait e !900;" SPOILT
     "begin s; any e !900;" SPOILT "begin s; visit e 0 !900;" SPOILT
     "begin s; mode 1; query e !900;" SPOILT "begin s; record e s !900; record e s !901;" SPOILT
     "begin s; swait s e !905; record e s !901;" SPOILT
     "begin s; record e 0 !906; record e s !901;" SPOILT
     "begin s; swait 0 e !906; record e s !901;" SPOILT
     "mode 2; begin s; record e s !900; record e s !901;" SPOILT
     "mode 2; begin s; swait s e !905; record e s !901;" SPOILT
     "mode 2; begin s; record e 0 !906; record e s !901;" SPOILT
     "mode 2; begin s; swait 0 e !906; record e s !901;" SPOILT
     "mode 2; begin s; devwait !900; record e s !901;" SPOILT},
    {"a stream takes its capture along", MADE, "stream s; mark e 0; begin s; end s; query e =1"},
    /* To queue on one spoils that one alone, on the legacy stream both. */
    {"two captures", MADE,
     "stream s; stream t; mark e 0; begin s; begin t; record e s !900; done s !900; begin s;"
     "done t; begin t; record e 0 !906; done s !900; done t !900; record e 0"},
    {"capture modes", BOTH,
     "mode 1 =0; mode 2 =1; mode 2 =2; mode -1 !1; mode 3 !1; mode 0 =2; mode 0 =0"}};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static size_t played;

static void test_row(void **state) {
  const row *r = (const row *)*state;
  int made;
  for (made = 0; made < 2; made++) {
    if (!(r->where & (made ? MADE : REAL))) continue;
    memset(&p, 0, sizeof(p));
    open_mock(0, made);
    play_line(r->line);
    if (p.lake) assert_ok(gmlake_destroy(p.lake));
    close_mock();
  }
  played++;
}

/* Of all words that need host memory. */
static void test_memory_was_lacking(void **state) {
  size_t i;
  (void)state;
  if (played < ROWS) skip();
  for (i = 0; i < word_count; i++) {
    static const char needs[] = " reserve create map event record swait mode stream launch other ";
    char name[32];
    (void)snprintf(name, sizeof(name), " %s ", words[i].name);
    assert_int_equal(strstr(needs, name) != NULL, lacked[i] > 0);
  }
}

/* ---- Creating a mock ------------------------------------------------------------------------- */

#define HALF ((size_t)1 << 63)

CASE(test_description) {
  static const size_t odd[] = {1,        3,       512,      2048,    64 * KIB + 1,
                               96 * KIB, 3 * MIB, SIZE_MAX, HALF + 1};
  gmlake_device_properties properties, ones;
  gmlake_mock_desc desc;
  size_t i;
  memset(&desc, 0, sizeof(desc));
  host_bytes = host_fail_in = 0;
  assert_error(gmlake_mock_create(NULL, NULL), INVALID_ARGUMENT);
  assert_error(gmlake_mock_create(&desc, NULL), INVALID_ARGUMENT);
  mock = NULL;
  desc.costs = (gmlake_mock_costs)3;
  assert_error(gmlake_mock_create(&desc, &mock), INVALID_ARGUMENT);
  desc.costs = GMLAKE_MOCK_COSTS_ALONE;
  for (i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
    desc.granularity_bytes = odd[i];
    assert_error(gmlake_mock_create(&desc, &mock), INVALID_ARGUMENT);
  }
  assert_null(mock);
  desc.granularity_bytes = HALF;
  assert_ok(gmlake_mock_create(&desc, &mock));
  close_mock();
  desc.granularity_bytes = 64 * KIB;
  for (i = 0; i < 2; i++) {
    desc.capacity_bytes = i ? SIZE_MAX : 1;
    assert_ok(gmlake_mock_create(&desc, &mock));
    close_mock();
  }
  gmlake_mock_destroy(NULL);
  memset(&desc, 0, sizeof(desc));
  desc.available_bytes = ((size_t)16 << 30) + 1; /* more than there is */
  assert_error(gmlake_mock_create(&desc, &mock), INVALID_ARGUMENT);
  assert_ok(gmlake_mock_create(NULL, &mock)); /* as if all zero */
  assert_int_equal(mock->struct_bytes, sizeof(gmlake_backend));
  assert_int_equal(mock->abi_version, GMLAKE_BACKEND_ABI);
  memset(&properties, 0, sizeof(properties)); /* every byte is written, whatever was there */
  memset(&ones, 0xFF, sizeof(ones));
  assert_ok(mock->get_properties(mock->user, &properties, &code));
  assert_ok(mock->get_properties(mock->user, &ones, &code));
  assert_memory_equal(&properties, &ones, sizeof(ones));
  assert_int_equal(properties.device_bytes, 16 * GIB);
  assert_int_equal(properties.granularity_bytes, G);
  assert_int_equal(properties.handle_types, GMLAKE_HANDLE_POSIX_FD);
  assert_true(properties.name[0] != 0);
  close_mock();
}

static gmlake_result call(gmlake_result (*run)(void), uint64_t a, uint64_t b, uint64_t c) {
  p.x[0] = a;
  p.x[1] = b;
  p.x[2] = c;
  p.count = 3;
  return run();
}

static uint64_t reserve(size_t bytes) {
  assert_ok(call(do_reserve, 0, bytes, G));
  return p.answer;
}

static uint64_t create(size_t bytes) {
  assert_ok(call(do_create, 0, bytes, 0));
  return p.answer;
}

/* A program that has closed its standard input: the mock's file has that number. */
CASE(test_file_zero) {
  const int input = dup(0);
  unsigned char resident;
  uint64_t left;
  (void)close(0);
  open_mock(0, 0);
  assert_true(fcntl(0, F_GETFD) >= 0);
  left = reserve(G);
  assert_ok(call(do_map, left, G, create(G)));
  assert_ok(mock->set_access(mock->user, left, G, NULL, 0, &code));
  bytes_at(left)[G - 1] = 7;
  close_mock(); /* with all of it */
  assert_int_equal(mincore(bytes_at(left), 1, &resident), -1);
  assert_int_equal(fcntl(0, F_GETFD), -1);
  if (input >= 0) assert_int_equal(dup2(input, 0), 0);
  if (input >= 0) (void)close(input);
}

/* Neither memory, nor a file, nor as many files or as large ones as the process needs. */
CASE(test_nothing_to_make_a_mock_of) {
  static const int limits[] = {RLIMIT_NOFILE, RLIMIT_FSIZE};
  long nth;
  size_t i;
  host_bytes = 0;
  for (nth = 1, mock = NULL; !mock; nth++) {
    host_fail_in = nth;
    if (gmlake_mock_create(NULL, &mock)) assert_int_equal(host_bytes, 0);
  }
  host_fail_in = 0;
  assert_true(nth > 3);
  close_mock();
  refused = 1; /* the file's size */
  assert_error(gmlake_mock_create(NULL, &mock), OUT_OF_HOST_MEMORY);
  for (i = 0; i < 2; i++) {
    struct rlimit limit, none;
    gmlake_result result;
    assert_int_equal(getrlimit(limits[i], &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(limits[i], &none), 0);
    result = gmlake_mock_create(NULL, &mock);
    assert_int_equal(setrlimit(limits[i], &limit), 0);
    assert_int_equal(result, GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
    assert_int_equal(host_bytes, 0);
    open_mock(0, 0);
    close_mock();
  }
}

/* Tables end before their numbers do, and before the file does. */
CASE(test_tables_end) {
  gmlk_mock_table table;
  gmlk_mock_slot item;
  memset(&table, 0, sizeof(table));
  table.items = &item;
  table.item_bytes = sizeof(gmlk_mock_slot);
  table.count = GMLK_MOCK_SLOT_MASK;
  table.capacity = table.count + 1;
  assert_null(gmlk_mock_take(&table));
  assert_int_equal(table.count, GMLK_MOCK_SLOT_MASK);
  open_mock(8 * G, 1);
  inside()->file_end = GMLK_MOCK_FILE_MAX;
  assert_error(call(do_create, 0, G, 0), OUT_OF_DEVICE_MEMORY);
  close_mock();
}

/* ---- Threads -------------------------------------------------------------------------------- */

/* On a stream of its own, which ends its work in every other round, and on one that both use. */
static void *play_along(void *user) {
  memcpy(p.named, user, sizeof(p.named));
  p.is_bare = p.is_guest = 1;
  play_line(
      "1500x reserve a 4; create h 1; map a+1 1 h; access a+1 1; release h; fill a+1 1b s;"
      "mode 2 =0; event e; hold s; record e s; swait t e; record e t; wait e; query e =1;"
      "destroy e; mode 0 =2; read a+1 =s; unmap a+1 1; unreserve a 4;"
      "reserve a 4; create h 1; map a+1 1 h; access a+1 1; release h; fill a+1 1b s;"
      "mode 2 =0; event e; hold s; record e s; swait t e; record e t; finish s; wait e;"
      "query e =1; destroy e; mode 0 =2; read a+1 =s; unmap a+1 1; unreserve a 4");
  return (void *)(intptr_t)p.wrong;
}

CASE(test_threads) {
  pthread_t threads[2];
  uint64_t named[2][26] = {{0}};
  void *wrong;
  size_t i;
  open_mock(0, 0);
  memset(&p, 0, sizeof(p));
  play_line("stream s; stream t; stream u");
  for (i = 0; i < 2; i++) {
    memcpy(named[i], p.named, sizeof(p.named));
    named[i]['s' - 'a'] = i ? NAMED('u') : NAMED('s');
    assert_int_equal(pthread_create(&threads[i], NULL, play_along, named[i]), 0);
  }
  for (i = 0; i < 2; i++) {
    assert_int_equal(pthread_join(threads[i], &wrong), 0);
    assert_int_equal((intptr_t)wrong, 0);
  }
  play_line("counts 0 0 0 0; events =0");
  assert_int_equal(census().call_count, 2 * 3000 * 16);
  close_mock();
}

int main(void) {
  size_t i;
  for (i = 0; i < ROWS; i++) add_case(rows[i].what, test_row, &rows[i]);
  add_case("test_memory_was_lacking", test_memory_was_lacking, NULL);
  return run_cases("mock");
}
