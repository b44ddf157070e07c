/* The lake's locks, and the mock's, where the judge sees them: each knows whether it is held. There
   is one thread, since a lock that its holder takes again would be a deadlock; what happens in the
   middle of a call is done by another one all the same: it has another number. Include before
   gmlake.h; what has to hold stands in judge.h. */
#if !defined(PLAY_LOCKS_H)
#define PLAY_LOCKS_H

#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* gmlake.h wants it, and is not the first header here */
#endif
#include <pthread.h>

static unsigned thread_number = 1; /* of who calls the lake */
#define pthread_self() ((pthread_t)thread_number)

#define GMLAKE_MUTEX watched_lock
#define GMLAKE_MUTEX_INIT(lock) lock_make(lock)
#define GMLAKE_MUTEX_DESTROY(lock) lock_end(lock)
#define GMLAKE_MUTEX_LOCK(lock) lock_take(lock)
#define GMLAKE_MUTEX_UNLOCK(lock) lock_give(lock)

typedef struct watched_lock {
  unsigned made; /* LOCK_MADE, or it is none */
  int is_held;
} watched_lock;

static void lock_make(watched_lock *lock);
static void lock_end(watched_lock *lock);
static void lock_take(watched_lock *lock);
static void lock_give(watched_lock *lock);

#endif /* PLAY_LOCKS_H */
