/* Misuse in abort mode: a program that ends itself by abort() at the first result that is an error,
   at the first message of the logger and at the first word of gmlake_check, and that has windows
   guarded. Each row is a program with one mistake, in a child of its own. It has to end by SIGABRT
   where the mistake is made: not by a fault, not later, not well. Programs without a mistake end
   well in the same mode. Of mistakes that show as a result there are a few of each kind: all are in
   test_misuse.c. `build/test_hardening --table` prints the rows. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"
#define GMLAKE_BFC_IMPLEMENTATION
#include "gmlake_bfc.h"

#include "fixture.h"
#include "options.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Abort mode ------------------------------------------------------------------------------ */

static volatile struct shared { /* with the parent */
  int is_made;                  /* the mistake is the next call */
  char error[64];               /* the name of the result at which the program ended */
} * shared;

static void must_be(int is_ok, const char *name) {
  size_t i;
  if (is_ok) return;
  for (i = 0; name[i] && i + 1 < sizeof(shared->error); i++) shared->error[i] = name[i];
  abort();
}

static void must(gmlake_result result) { must_be(!result, gmlake_result_name(result)); }
static void must_bfc(gmlake_bfc_result result) { must_be(!result, gmlake_bfc_result_name(result)); }

static void must_be_sound(void) { must(gmlake_check(lake)); }

static void on_message(void *user, int level, const gmlake_error_info *info) {
  (void)user, (void)level, (void)info;
  abort();
}

static char *guard; /* of a window; GMLAKE_GUARD catches a write there by a fault */

static void on_fault(int number, siginfo_t *info, void *context) {
  (void)context;
  if (guard && (char *)info->si_addr >= guard && (char *)info->si_addr < guard + C) abort();
  (void)signal(number, SIG_DFL);
}

static void enter_abort_mode(void) {
  const struct rlimit none = {0, 0};
  struct sigaction action;
  (void)setrlimit(RLIMIT_CORE, &none);
  memset(&action, 0, sizeof(action));
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  (void)sigaction(SIGSEGV, &action, NULL);
  (void)sigaction(SIGBUS, &action, NULL);
  (void)signal(SIGABRT, SIG_DFL);
}

static void open_hard(size_t chunks) {
  gmlake_mock_desc mock_desc;
  memset(&mock_desc, 0, sizeof(mock_desc));
  memset(&desc, 0, sizeof(desc));
  mock_desc.capacity_bytes = chunks * C;
  mock_desc.granularity_bytes = C;
  must(gmlake_mock_create(&mock_desc, &mock));
  desc.backend = mock;
  desc.chunk_bytes = C;
  desc.flags = GMLAKE_GUARD | GMLAKE_FILL;
  desc.logger.fn = on_message;
  must(gmlake_create(&desc, &lake));
}

static void close_hard(void) {
  must_be_sound();
  must(gmlake_destroy(lake));
  gmlake_mock_destroy(mock);
}

static void *got(size_t bytes) {
  void *ptr = NULL;
  must(gmlake_alloc(lake, bytes, LEGACY, &ptr));
  must_be_sound();
  return ptr;
}

static void given(void *ptr) {
  must(gmlake_free(lake, ptr, LEGACY));
  must_be_sound();
}

static gmlake_stream stream_of_mock(void) {
  gmlake_stream stream = NULL;
  must(gmlake_mock_stream_create(mock, &stream));
  return stream;
}

static gmlake_pool *pool_of_lake(void) {
  gmlake_pool *pool = NULL;
  must(gmlake_pool_create(lake, NULL, &pool));
  return pool;
}

static gmlake_buffer *buffer_of_lake(void) {
  gmlake_buffer_desc wanted = buffer_desc(4 * C);
  gmlake_buffer *buffer = NULL;
  must(gmlake_buffer_create(lake, &wanted, &buffer));
  return buffer;
}

/* A window of the first and the third of three chunks. */
static char *window_of_two(void) {
  void *all = got(3 * C), *b[3];
  size_t i;
  given(all);
  for (i = 0; i < 3; i++) b[i] = got(C);
  given(b[0]);
  given(b[2]);
  return (char *)got(2 * C);
}

static void mistake(void) { shared->is_made = 1; }

/* ---- Mistakes -------------------------------------------------------------------------------- */

static void frees_twice(void) {
  void *ptr = got(C);
  given(ptr);
  mistake();
  given(ptr);
}

static void frees_the_inside(void) {
  char *ptr = (char *)got(C);
  mistake();
  given(ptr + 512);
}

static void frees_the_stack(void) {
  char local = 0;
  mistake();
  given(&local);
}

static void grows_a_destroyed_buffer(void) {
  gmlake_buffer *buffer = buffer_of_lake();
  must(gmlake_buffer_destroy(lake, buffer, LEGACY));
  mistake();
  must(gmlake_buffer_resize(lake, buffer, C, LEGACY));
}

static void destroys_a_buffer_twice(void) {
  gmlake_buffer *buffer = buffer_of_lake();
  must(gmlake_buffer_destroy(lake, buffer, LEGACY));
  mistake();
  must(gmlake_buffer_destroy(lake, buffer, LEGACY));
}

/* The driver refuses to take the pool's addresses back, so that its record is kept. */
static void uses_a_destroyed_pool(void) {
  gmlake_pool *pool = pool_of_lake();
  gmlake_mock_census counted;
  gmlake_alloc_desc wanted;
  void *ptr = NULL;
  memset(&wanted, 0, sizeof(wanted));
  wanted.bytes = C;
  wanted.pool = pool;
  lake->desc.logger.fn = NULL; /* the message comes first, and is an end too */
  gmlake_mock_get_census(mock, &counted);
  gmlake_mock_fail_at(mock, counted.call_count + 3, GMLAKE_ERROR_DRIVER, 0);
  must(gmlake_pool_destroy(lake, pool));
  must_be(lake->released_pools == pool, "the pool's record is not kept");
  mistake();
  must(gmlake_alloc_with(lake, &wanted, LEGACY, &ptr));
}

static void uses_the_lake_after_fork(void) {
  void *ptr = NULL;
  pid_t child = fork();
  int status = 0;
  if (!child) {
    lake->desc.logger.fn = NULL; /* the message comes first, and is an end too */
    mistake();
    must(gmlake_alloc(lake, 8 * C, LEGACY, &ptr));
    _exit(0);
  }
  (void)waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) (void)raise(WTERMSIG(status));
}

static void leaks_a_block(void) {
  (void)got(C);
  mistake();
  must(gmlake_destroy(lake));
}

static void leaks_a_buffer(void) {
  must(gmlake_buffer_resize(lake, buffer_of_lake(), C, LEGACY));
  mistake();
  must(gmlake_destroy(lake));
}

static void writes_behind_a_window(void) {
  char *window = window_of_two();
  guard = window + 2 * C;
  mistake();
  *(volatile char *)guard = 1;
}

static void overwrites_a_blocks_record(void) {
  void *ptr = got(C);
  gmlk_block *b = gmlk_index_get(&lake->index, (uint64_t)(uintptr_t)ptr);
  memset(&b->at, 0x5A, sizeof(b->at));
  mistake();
  must_be_sound();
}

static void overwrites_a_link(void) {
  void *ptr = got(C);
  gmlk_block *b = gmlk_index_get(&lake->index, (uint64_t)(uintptr_t)ptr);
  b->next = NULL;
  mistake();
  must_be_sound();
}

static gmlake_bfc *bfc;

static void *take_segment(void *user, size_t bytes) {
  (void)user;
  return aligned_alloc(512, bytes);
}

static void give_segment(void *user, void *segment, size_t bytes) {
  (void)user, (void)bytes;
  free(segment);
}

static char *got_of_bfc(void) {
  gmlake_bfc_desc with;
  void *ptr = NULL;
  memset(&with, 0, sizeof(with));
  with.segment_alloc = take_segment;
  with.segment_free = give_segment;
  must_bfc(gmlake_bfc_create(&with, &bfc));
  must_bfc(gmlake_bfc_alloc(bfc, 1000, NULL, &ptr));
  must_bfc(gmlake_bfc_check(bfc));
  return (char *)ptr;
}

static void frees_twice_in_bfc(void) {
  char *ptr = got_of_bfc();
  must_bfc(gmlake_bfc_free(bfc, ptr));
  mistake();
  must_bfc(gmlake_bfc_free(bfc, ptr));
}

static void overwrites_a_block_in_bfc(void) {
  (void)got_of_bfc();
  bfc->segments->first->bytes += 512;
  mistake();
  must_bfc(gmlake_bfc_check(bfc));
}

typedef struct row {
  const char *misuse, *caught_by;
  void (*program)(void);
} row;

static const row rows[] = {
    {"a block freed twice", "gmlake_free: DOUBLE_FREE", frees_twice},
    {"a pointer into a block freed", "gmlake_free: UNKNOWN_POINTER", frees_the_inside},
    {"a pointer to the stack freed", "gmlake_free: UNKNOWN_POINTER", frees_the_stack},
    {"a destroyed buffer grown", "an assertion, unless NDEBUG is defined",
     grows_a_destroyed_buffer},
    {"a buffer destroyed twice", "an assertion, unless NDEBUG is defined", destroys_a_buffer_twice},
    {"a destroyed pool used", "an assertion, unless NDEBUG is defined", uses_a_destroyed_pool},
    {"a lake used after fork", "gmlake_alloc: FORKED", uses_the_lake_after_fork},
    {"a block never freed", "the logger, at destroy", leaks_a_block},
    {"a buffer never destroyed", "the logger, at destroy", leaks_a_buffer},
    {"a write behind a window", "GMLAKE_GUARD, whose fault the program takes",
     writes_behind_a_window},
    {"a record overwritten", "gmlake_check: CORRUPT", overwrites_a_blocks_record},
    {"a link overwritten", "gmlake_check: CORRUPT", overwrites_a_link},
    {"bfc: a block freed twice", "gmlake_bfc_free: DOUBLE_FREE", frees_twice_in_bfc},
    {"bfc: a record overwritten", "gmlake_bfc_check: CORRUPT", overwrites_a_block_in_bfc},
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* The child's status; shared->is_made is 0 where it ended before its mistake. */
static int run_in_child(void (*program)(void)) {
  int status = 0;
  pid_t child;
  memset((void *)(uintptr_t)shared, 0, sizeof(*shared));
  (void)fflush(stdout);
  child = fork();
  if (!child) {
    enter_abort_mode();
    open_hard(96);
    program();
    _exit(0);
  }
  assert_true(child > 0);
  assert_int_equal(waitpid(child, &status, 0), child);
  return status;
}

/* By what it says, as far as that is a result. */
static int is_caught(const row *r, int status) {
  const char *error = strstr(r->caught_by, ": ");
  const char *got_error = (const char *)(uintptr_t)shared->error;
  if (!shared->is_made || !WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT) return 0;
  return error ? strstr(got_error, error + 2) != NULL : !*got_error;
}

#if defined(NDEBUG)
#define HAS_ASSERTIONS 0
#else
#define HAS_ASSERTIONS 1
#endif

static void misuse_is_caught(void **state) {
  const row *r = (const row *)*state;
  if (!HAS_ASSERTIONS && strstr(r->caught_by, "NDEBUG")) skip();
  assert_true(is_caught(r, run_in_child(r->program)));
}

/* ---- Programs without a mistake -------------------------------------------------------------- */

#define OPERATIONS 3000

static uint32_t random_state;

static uint32_t below(uint32_t count) {
  random_state = random_state * 1664525u + 1013904223u;
  return (random_state >> 8) % count;
}

/* Blocks and buffers of all sizes on three streams, written in full; what is taken is given. */
static void works_well(void) {
  gmlake_stream streams[3];
  gmlake_buffer *buffer = buffer_of_lake();
  gmlake_buffer_info info;
  char *live[16];
  size_t bytes[16], i, n;
  memset(live, 0, sizeof(live));
  streams[0] = LEGACY;
  for (i = 1; i < 3; i++) streams[i] = stream_of_mock();
  for (n = 0; n < OPERATIONS; n++) {
    gmlake_stream stream = streams[below(3)];
    i = below(16);
    if (below(16) == 0) {
      must(gmlake_buffer_resize(lake, buffer, below(4 * C), LEGACY));
      must(gmlake_buffer_get_info(lake, buffer, &info));
      memset(info.ptr, 1, info.bytes);
    } else if (live[i]) {
      if (below(4) == 0) must(gmlake_record_stream(lake, live[i], streams[below(3)]));
      must(gmlake_free(lake, live[i], stream));
      live[i] = NULL;
    } else {
      bytes[i] = 1 + below(below(4) ? C / 2 : 5 * C / 2);
      must(gmlake_alloc(lake, bytes[i], stream, (void **)&live[i]));
      memset(live[i], 1, bytes[i]);
    }
    must_be_sound();
    if (below(64) == 0) must(gmlake_trim(lake, 4 * C, NULL));
  }
  for (i = 0; i < 16; i++)
    if (live[i]) given(live[i]);
  must(gmlake_buffer_destroy(lake, buffer, LEGACY));
  mistake(); /* none: the parent is told that all was done */
  close_hard();
}

static void clean_programs_raise_no_alarm(void **state) {
  (void)state;
  for (random_state = 1; random_state <= 8; random_state++) {
    const uint32_t seed = random_state;
    int status = run_in_child(works_well);
    assert_int_equal(shared->is_made, 1);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    random_state = seed;
  }
}

/* ---- Report ---------------------------------------------------------------------------------- */

static void print_table(void) {
  size_t i, caught = 0;
  printf("| misuse | caught by | how the program ended |\n|---|---|---|\n");
  for (i = 0; i < ROWS; i++) {
    int ends = is_caught(&rows[i], run_in_child(rows[i].program));
    caught += (size_t)ends;
    printf("| %s | %s | %s |\n", rows[i].misuse, rows[i].caught_by, ends ? "SIGABRT" : "otherwise");
  }
  printf("%u of %u caught\n", (unsigned)caught, (unsigned)ROWS);
}

int main(int argc, char **argv) {
  int wants_table = 0;
  const option_row option[] = {{"table", OPTION_FLAG, &wants_table, 0, 0, NULL,
                                "print the rows as a table, and how each ended"}};
  const option_reader reader = {"test_hardening", "[OPTION]...", "", "", option, 1};
  struct CMUnitTest tests[ROWS + 1];
  size_t i;
  void *memory =
      mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  shared = (volatile struct shared *)memory;
  options_alone(&reader, argc, argv);
  if (wants_table) {
    print_table();
    return 0;
  }
  memset(tests, 0, sizeof(tests));
  for (i = 0; i < ROWS; i++) {
    tests[i].name = rows[i].misuse;
    tests[i].test_func = misuse_is_caught;
    tests[i].initial_state = (void *)(uintptr_t)&rows[i];
  }
  tests[ROWS].name = "clean_programs_raise_no_alarm";
  tests[ROWS].test_func = clean_programs_raise_no_alarm;
  return _cmocka_run_group_tests("tests", tests, ROWS + 1, NULL, NULL);
}
