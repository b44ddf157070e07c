/* Who waits for one of the lake's locks gets it, also where another thread gives it back and takes
   it again at once. The waits are told by waiters.h, and by sleeps that stand in for nanosleep's:
   no case depends on how long anything takes. */
#define nanosleep own_sleep
#include "waiters.h"
#include "fixture.h"

static pthread_t main_thread;
static int sleeps_of_waiter, sleeps_of_main, is_served; /* read and written atomically */

static int read_of(const int *at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }

/* Who lets others in sleeps; here until the waiter is served. */
int own_sleep(const struct timespec *wanted, struct timespec *left) {
  (void)left;
  if (!pthread_equal(pthread_self(), main_thread)) {
    (void)__atomic_add_fetch(&sleeps_of_waiter, 1, __ATOMIC_RELEASE);
    (void)sched_yield();
    return 0;
  }
  sleeps_of_main += wanted->tv_nsec > 0;
  while (!read_of(&is_served)) (void)sched_yield();
  return 0;
}

static void *alloc_one(void *out_ptr) {
  gmlake_result result = gmlake_alloc(lake, 512, LEGACY, (void **)out_ptr);
  __atomic_store_n(&is_served, 1, __ATOMIC_RELEASE);
  return result ? NULL : out_ptr;
}

/* A thread that has waited for the state lock for so long that it sleeps is let in before the
   holder goes on. */
CASE(test_books_are_passed_on) {
  pthread_t thread;
  void *ptr = NULL, *served = NULL;
  main_thread = pthread_self();
  sleeps_of_waiter = sleeps_of_main = is_served = 0;
  start(4);
  drop(take(512));
  gmlk_spinlock_lock(&lake->state_lock, lake->has_locks);
  assert_int_equal(pthread_create(&thread, NULL, alloc_one, &ptr), 0);
  while (read_of(&sleeps_of_waiter) < 3) (void)sched_yield();
  gmlk_spinlock_unlock(&lake->state_lock, lake->has_locks);
  assert_int_equal(sleeps_of_main, 1);
  assert_true(is_served);
  /* Nobody waits now: nothing is waited for. */
  gmlk_spinlock_lock(&lake->state_lock, lake->has_locks);
  gmlk_spinlock_unlock(&lake->state_lock, lake->has_locks);
  assert_int_equal(sleeps_of_main, 1);
  assert_int_equal(pthread_join(thread, &served), 0);
  assert_ptr_equal(served, &ptr);
  drop(ptr);
  finish();
}

static int place; /* of the last planner; guarded by the driver lock */

static void *plan_one(void *out_place) {
  gmlk_spinlock_lock(&lake->state_lock, lake->has_locks);
  gmlk_lock_driver(lake);
  *(int *)out_place = ++place;
  gmlk_unlock_driver(lake);
  gmlk_spinlock_unlock(&lake->state_lock, lake->has_locks);
  return NULL;
}

/* The planner who gives the driver lock back and wants it again comes behind the one who waits. */
CASE(test_planners_take_turns) {
  pthread_t thread;
  int round, others, own;
  start(4);
  for (round = 0; round < 100; round++) {
    place = 0;
    gmlk_spinlock_lock(&lake->state_lock, lake->has_locks);
    gmlk_lock_driver(lake);
    gmlk_spinlock_unlock(&lake->state_lock, lake->has_locks); /* as while the driver is at work */
    assert_int_equal(start_waiter(&thread, plan_one, &others), 0);
    gmlk_unlock_driver(lake);
    (void)plan_one(&own);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(others, 1);
    assert_int_equal(own, 2);
  }
  finish();
}

int main(void) { return run_cases("fairness"); }
