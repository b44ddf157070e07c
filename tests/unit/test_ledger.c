/* The ledger of examples/ledger.h: shares, who is asked for how much, what is admitted, and
   processes that die, also while they hold it. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include <errno.h>
#include <fcntl.h>

static int lock_error; /* that every lock answers; 0: the system's own answer */

static int faulty_fcntl(int fd, int command, struct flock *lock) {
  if (!lock_error) return fcntl(fd, command, lock);
  errno = lock_error;
  return -1;
}
#define fcntl(fd, command, lock) faulty_fcntl(fd, command, lock)
#include "examples/ledger.h"
#undef fcntl
#include "fixture.h"

#include <signal.h>
#include <sys/wait.h>

static char book[64];

static ledger books[3];
static gmlake_oom_handler nobody;

static void open_books(uint64_t floor_bytes) {
  int i;
  (void)unlink(book);
  for (i = 0; i < 3; i++)
    assert_int_equal(
        ledger_open(&books[i], book, 100, (size_t)floor_bytes, (unsigned)i + 1, nobody), 0);
}

static void close_books(void) {
  int i;
  for (i = 0; i < 3; i++) ledger_close(&books[i]);
  (void)unlink(book);
}

/* The entry of a process, as its owner and the others see it. */
static ledger_entry *entry(int i) { return &books[i].page->entries[books[i].slot]; }

static uint64_t share(int i) {
  uint64_t shares[LEDGER_SLOTS];
  ledger_shares(books[0].page, shares);
  return shares[books[i].slot];
}

static void wish(uint64_t a, uint64_t b, uint64_t c) {
  entry(0)->wish_bytes = a;
  entry(1)->wish_bytes = b;
  entry(2)->wish_bytes = c;
}

static void hold(uint64_t a, uint64_t b, uint64_t c) {
  entry(0)->held_bytes = a;
  entry(1)->held_bytes = b;
  entry(2)->held_bytes = c;
}

CASE(shares_follow_floors_weights_and_wishes) {
  open_books(10);
  wish(100, 100, 100); /* 70 are left behind the floors, by 1, 2 and 3 */
  assert_true(share(0) >= 20 && share(0) <= 22);
  assert_true(share(1) >= 32 && share(1) <= 34);
  assert_true(share(2) >= 43 && share(2) <= 46);
  wish(100, 10, 10); /* what the others do not want */
  assert_int_equal(share(0), 80);
  assert_int_equal(share(1), 10);
  wish(15, 15, 100);
  assert_int_equal(share(0), 15);
  assert_int_equal(share(2), 70);
  wish(0, 0, 0); /* floors stay */
  assert_int_equal(share(0), 10);
  close_books();
}

CASE(those_above_their_shares_are_asked) {
  open_books(10);
  wish(100, 100, 100);
  hold(15, 60, 25);
  assert_int_equal(ledger_ask(&books[0], 5), 5);
  assert_int_equal(entry(1)->asked_bytes, 5);
  assert_int_equal(entry(2)->asked_bytes, 0); /* it holds less than its share */
  assert_true(ledger_is_waited_for(&books[0]));
  assert_int_equal(ledger_ask(&books[0], 5), 5); /* the same 5 */
  assert_int_equal(entry(1)->asked_bytes, 5);
  assert_true(ledger_ask(&books[0], 1000) < 30); /* down to its share */
  assert_int_equal(ledger_ask(&books[1], 5), 0); /* who holds too much asks nobody */
  close_books();
}

/* A lake: what it gives back counts against what it is asked for, by its own handler. */
static void *live[4];
static unsigned handled;

static int on_shortage(void *user, gmlake *from, const gmlake_error_info *info) {
  (void)user;
  assert_string_equal(info->call, "ledger");
  assert_true(info->asked_bytes > 0);
  handled++;
  assert_true(handled <= 4);
  return gmlake_free(from, live[handled - 1], LEGACY) == GMLAKE_OK;
}

CASE(a_request_reaches_the_handler) {
  gmlake_oom_handler own;
  int i;
  open_books(0);
  ledger_close(&books[2]);
  own.fn = on_shortage;
  own.user = NULL;
  start(16);
  assert_int_equal(ledger_open(&books[2], book, 100, C, 1, own), 0);
  for (i = 0; i < 4; i++) live[i] = take(C);
  handled = 0;
  ledger_step(&books[2], lake, 4 * C);
  assert_int_equal(handled, 0);
  assert_int_equal(entry(2)->held_bytes, 4 * C);
  entry(2)->asked_bytes = 2 * C;
  ledger_step(&books[2], lake, 4 * C);
  assert_int_equal(handled, 2);
  assert_int_equal(stats().reserved_bytes, 2 * C);
  assert_int_equal(entry(2)->asked_bytes, 0);
  assert_int_equal(entry(2)->given_bytes, 2 * C);
  entry(2)->asked_bytes = 10 * C; /* not below its floor */
  ledger_step(&books[2], lake, 4 * C);
  assert_int_equal(stats().reserved_bytes, C);
  assert_int_equal(entry(2)->asked_bytes, 0);
  drop(live[3]);
  finish();
  close_books();
}

CASE(the_dead_are_struck_out) {
  int pipes[2], status;
  ledger held;
  char byte;
  pid_t child;
  open_books(10);
  assert_int_equal(pipe(pipes), 0);
  child = fork();
  if (!child) {
    if (ledger_open(&held, book, 100, 40, 1, nobody)) _exit(1);
    ledger_lock(&held);
    held.page->entries[held.slot].held_bytes = 40;
    if (write(pipes[1], "x", 1) != 1) _exit(2);
    (void)pause();
  }
  assert_int_equal(read(pipes[0], &byte, 1), 1); /* it holds the ledger now */
  assert_int_equal(books[0].page->entries[3].held_bytes, 40);
  assert_int_equal(kill(child, SIGKILL), 0);
  ledger_lock(&books[0]); /* waits for nobody who is dead */
  assert_int_equal(books[0].page->entries[3].is_used, 0);
  assert_int_equal(books[0].page->entries[3].held_bytes, 0);
  ledger_unlock(&books[0]);
  assert_int_equal(waitpid(child, &status, 0), child);
  (void)close(pipes[0]);
  (void)close(pipes[1]);
  close_books();
}

/* Killed between the first word of the entry and the others. */
CASE(a_slot_that_was_half_cleared_begins_anew) {
  open_books(10);
  hold(0, 0, 60);
  entry(2)->asked_bytes = 9;
  ledger_lock(&books[2]);
  entry(2)->is_used = 0;
  ledger_unlock(&books[2]);
  (void)close(books[2].fd);
  assert_int_equal(munmap((void *)books[2].page, sizeof(ledger_page)), 0);
  assert_int_equal(ledger_open(&books[2], book, 100, 10, 1, nobody), 0);
  assert_int_equal(books[2].slot, 2);
  assert_int_equal(entry(2)->held_bytes, 0);
  assert_int_equal(entry(2)->asked_bytes, 0);
  assert_int_equal(entry(2)->floor_bytes, 10);
  close_books();
}

CASE(wrong_ledgers_are_refused) {
  ledger more[LEDGER_SLOTS], other;
  unsigned i;
  open_books(1);
  assert_int_equal(ledger_open(&other, book, 200, 1, 1, nobody), EINVAL);
  for (i = 3; i < LEDGER_SLOTS; i++)
    assert_int_equal(ledger_open(&more[i], book, 100, 1, 1, nobody), 0);
  assert_int_equal(ledger_open(&other, book, 100, 1, 1, nobody), ENOSPC);
  while (--i >= 3) ledger_close(&more[i]);
  books[0].page->version = 7;
  assert_int_equal(ledger_open(&other, book, 100, 1, 1, nobody), EINVAL);
  assert_int_equal(ledger_open(&other, "/nowhere/at/all", 100, 1, 1, nobody), ENOENT);
  close_books();
}

static int never_done(void *user, gmlake *from, const gmlake_error_info *info) {
  (void)user, (void)from, (void)info;
  assert_true(++handled <= 100);
  return 1;
}

/* A handler that always wants another try gets as many as a lake gives it. */
CASE(a_step_ends_whatever_the_handler_says) {
  gmlake_oom_handler own;
  open_books(0);
  ledger_close(&books[2]);
  own.fn = never_done;
  own.user = NULL;
  start(16);
  assert_int_equal(ledger_open(&books[2], book, 100, C, 1, own), 0);
  live[0] = take(4 * C);
  ledger_step(&books[2], lake, 4 * C);
  entry(2)->asked_bytes = 2 * C;
  handled = 0;
  ledger_step(&books[2], lake, 4 * C);
  assert_int_equal(handled, 8);
  assert_int_equal(entry(2)->asked_bytes, 0); /* it has nothing to give */
  drop(live[0]);
  finish();
  close_books();
}

/* ---- Admission: two lakes on one device of 16 chunks, as of two processes -------------------- */

static gmlake *lakes[2];
static gmlake_alloc_desc list[16];

static int always(void *user, gmlake *from, const gmlake_error_info *info) {
  (void)from, (void)info;
  ++*(unsigned *)user;
  return 1;
}

static void open_device(void) {
  gmlake_oom_handler own;
  int i;
  (void)unlink(book);
  own.fn = always;
  own.user = &handled;
  handled = 0;
  start(16);
  lakes[0] = lake;
  assert_ok(gmlake_create(&desc, &lakes[1]));
  for (i = 0; i < 2; i++)
    assert_int_equal(ledger_open(&books[i], book, 16 * C, (size_t)2 * C, 1, own), 0);
  for (i = 0; i < 16; i++) list[i] = request(C, 0, NULL);
}

static void close_device(void) {
  ledger_close(&books[0]);
  ledger_close(&books[1]);
  (void)unlink(book);
  assert_ok(gmlake_destroy(lakes[1]));
  finish();
}

static gmlake_result admit(int i, size_t count, size_t *lacking) {
  return ledger_admit(&books[i], lakes[i], list, count, LEGACY, lacking);
}

static size_t held_by(int i) {
  gmlake_stats now;
  assert_ok(gmlake_get_stats(lakes[i], &now));
  return now.reserved_bytes;
}

CASE(what_is_admitted_is_nobody_elses) {
  size_t lacking = 0;
  void *block;
  open_device();
  assert_error(admit(0, 15, &lacking), LIMIT_REACHED); /* the other's floor */
  assert_int_equal(lacking, C);
  assert_int_equal(held_by(0), 0);
  assert_ok(admit(0, 8, &lacking));
  assert_int_equal(lacking, 0);
  assert_int_equal(entry(0)->admitted_bytes, 8 * C);
  assert_int_equal(entry(0)->held_bytes, 8 * C);
  assert_error(admit(1, 9, &lacking), LIMIT_REACHED);
  assert_int_equal(lacking, C);
  assert_int_equal(entry(1)->admitted_bytes, 0);
  assert_ok(admit(1, 8, NULL));
  assert_error(admit(0, 9, NULL), LIMIT_REACHED);
  assert_int_equal(entry(0)->admitted_bytes, 8 * C); /* what was admitted stays */
  wish(16 * C, 16 * C, 0);
  assert_int_equal(ledger_ask(&books[0], C), 0); /* nobody holds too much */
  entry(0)->asked_bytes = 3 * C;                 /* before it was admitted, perhaps */
  ledger_step(&books[0], lakes[0], 16 * C);
  assert_int_equal(handled, 0);
  assert_int_equal(entry(0)->asked_bytes, 0);
  assert_ok(gmlake_alloc(lakes[0], 2 * C, LEGACY, &block));
  assert_error(admit(0, 7, &lacking), LIMIT_REACHED); /* beside what lives */
  assert_ok(admit(0, 6, &lacking));
  assert_ok(gmlake_free(lakes[0], block, LEGACY));
  list[0].bytes = 0;
  assert_ok(admit(0, 1, &lacking)); /* it ends */
  assert_int_equal(entry(0)->admitted_bytes, 0);
  list[0].bytes = C;
  assert_true(ledger_ask(&books[1], 4 * C) > 0);
  assert_ok(gmlake_trim(lakes[0], 0, NULL));
  assert_ok(admit(1, 14, NULL));
  close_device();
}

CASE(what_is_not_needed_for_it_is_given_back) {
  void *block;
  open_device();
  assert_ok(gmlake_alloc(lakes[0], C, LEGACY, &block));
  assert_ok(gmlake_reserve(lakes[0], NULL, 12 * C, LEGACY));
  assert_ok(admit(0, 3, NULL));
  assert_int_equal(held_by(0), 4 * C);
  assert_int_equal(entry(0)->admitted_bytes, 4 * C);
  assert_ok(gmlake_free(lakes[0], block, LEGACY));
  close_device();
}

static volatile int goes_on;

static void *step_on(void *user) {
  while (goes_on) ledger_step(&books[1], lakes[1], 16 * C);
  return user;
}

/* They hold more than their shares, and give it back when they come by, or not. */
CASE(others_are_asked_for_what_is_admitted) {
  pthread_t other;
  size_t lacking = 0;
  open_device();
  assert_ok(gmlake_reserve(lakes[1], NULL, 14 * C, LEGACY));
  ledger_step(&books[1], lakes[1], 16 * C);
  entry(0)->wish_bytes = 16 * C;
  assert_error(admit(0, 8, &lacking), OUT_OF_DEVICE_MEMORY); /* nobody comes by */
  assert_int_equal(lacking, 6 * C);
  assert_int_equal(held_by(0), 0);
  assert_int_equal(entry(0)->admitted_bytes, 0);
  assert_int_equal(entry(1)->asked_bytes, 6 * C);
  goes_on = 1;
  assert_int_equal(pthread_create(&other, NULL, step_on, NULL), 0);
  assert_ok(admit(0, 8, &lacking));
  goes_on = 0;
  assert_int_equal(pthread_join(other, NULL), 0);
  assert_int_equal(lacking, 0);
  assert_int_equal(held_by(0), 8 * C);
  assert_int_equal(held_by(1), 8 * C);
  close_device();
}

/* Of a process that was killed nothing is admitted any more. */
CASE(admissions_end_with_their_process) {
  int pipes[2], status;
  ledger held;
  char byte;
  pid_t child;
  open_device();
  assert_int_equal(pipe(pipes), 0);
  child = fork();
  if (!child) {
    if (ledger_open(&held, book, 16 * C, C, 1, nobody) || ledger_promise(&held, 9 * C, 0)) _exit(1);
    if (write(pipes[1], "x", 1) != 1) _exit(2);
    (void)pause();
  }
  assert_int_equal(read(pipes[0], &byte, 1), 1);
  assert_error(admit(0, 6, NULL), LIMIT_REACHED); /* 9 are the child's, 2 the other's floor */
  assert_ok(admit(0, 5, NULL));
  assert_int_equal(kill(child, SIGKILL), 0);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_ok(admit(0, 14, NULL));
  (void)close(pipes[0]);
  (void)close(pipes[1]);
  close_device();
}

/* A file system without locks is told at the beginning, and later nobody waits for ever. */
CASE(a_file_without_locks_is_refused) {
  ledger other;
  open_books(1);
  start(4);
  lock_error = ENOLCK;
  assert_int_equal(ledger_open(&other, book, 100, 1, 1, nobody), ENOLCK);
  ledger_step(&books[0], lake, 4 * C);
  assert_int_equal(ledger_ask(&books[0], 5), 0);
  list[0] = request(C, 0, NULL);
  assert_error(ledger_admit(&books[0], lake, list, 1, LEGACY, NULL), LIMIT_REACHED);
  assert_int_equal(stats().reserved_bytes, 0);
  assert_false(ledger_is_waited_for(&books[0]));
  lock_error = 0;
  assert_int_equal(entry(0)->wish_bytes, 1);
  assert_int_equal(ledger_lock(&books[0]), 0);
  ledger_unlock(&books[0]);
  finish();
  close_books();
}

int main(void) {
  (void)snprintf(book, sizeof(book), "/tmp/test_ledger.%ld", (long)getpid());
  return run_cases("ledger");
}
