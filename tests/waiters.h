/* Include first, before gmlake.h: tells when a thread waits for a mutex of the lake, so that a test
   needs not guess how long a thread takes to get there. */
#if !defined(WAITERS_H_INCLUDED)
#define WAITERS_H_INCLUDED

#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* gmlake.h wants it, and is not the first header here */
#endif
#include <pthread.h>
#include <sched.h>

static int waiter_count; /* calls that found their mutex taken */

static int lock_and_count(pthread_mutex_t *mutex) {
  if (pthread_mutex_trylock(mutex) == 0) return 0;
  (void)__atomic_fetch_add(&waiter_count, 1, __ATOMIC_RELEASE);
  return pthread_mutex_lock(mutex);
}
#define pthread_mutex_lock(mutex) lock_and_count(mutex)

/* Starts the thread and returns once it waits for a mutex, which the caller must hold. Answers what
   pthread_create does. */
static inline int start_waiter(pthread_t *thread, void *(*body)(void *), void *argument) {
  const int before = __atomic_load_n(&waiter_count, __ATOMIC_ACQUIRE);
  const int result = pthread_create(thread, NULL, body, argument);
  while (!result && __atomic_load_n(&waiter_count, __ATOMIC_ACQUIRE) == before) (void)sched_yield();
  return result;
}

#endif
