/* What the harnesses of gmlake.h share. A harness is a program whose choices stand for all answers
   at once: Frama-C's Eva follows every one. It reads the whole header, as a compiler does. Here is
   what Eva does not know of the compiler and of threads. */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <stdint.h>

#define pthread_self() ((unsigned long)1) /* one thread */
#define __builtin_ia32_pause() ((void)0)
#define __atomic_load_n(at, order) (*(at))
#define __atomic_store_n(at, value, order) ((void)(*(at) = (value)))
#define __atomic_exchange_n(at, value, order) (*(at) = (value), 0)
#define __builtin_clzll(value) proof_clzll(value)
#define __builtin_ctzll(value) proof_ctzll(value)

/*@ requires value != 0; */
static int proof_clzll(uint64_t value) {
  int zeros = 0, step;
  for (step = 32; step; step /= 2) {
    if (value >> (64 - step)) continue;
    zeros += step;
    value <<= step;
  }
  return zeros;
}

/*@ requires value != 0; */
static int proof_ctzll(uint64_t value) { return 63 - proof_clzll(value & (~value + 1)); }

/* What malloc returns begins on a cache line: else Eva would have to know addresses. */
/*@ assigns \result \from ptr; ensures \result == ptr; */
static void *gmlk_line_from(void *ptr); /* granted */

#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "choose.h"
