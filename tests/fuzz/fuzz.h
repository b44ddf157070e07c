/* What the fuzz targets share: the input as a stream of bytes, host memory that is counted and can
   be made to fail, and REQUIRE. A target is one LLVMFuzzerTestOneInput: link it with clang's
   -fsanitize=fuzzer to search, or with replay_main.c to run files through it. */
#if !defined(FUZZ_H)
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(condition)                                                    \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                                \
    }                                                                         \
  } while (0)

/* ---- Input: behind its end there are zeros --------------------------------------------------- */

typedef struct fuzz_input {
  const uint8_t *at;
  size_t left;
} fuzz_input;

static inline unsigned fuzz_byte(fuzz_input *in) {
  if (!in->left) return 0;
  in->left--;
  return *in->at++;
}

/* A value around which mistakes are made, or any. */
static inline uint64_t fuzz_value(fuzz_input *in) {
  unsigned pick = fuzz_byte(in), i;
  uint64_t value = 0;
  if (pick == 0) return 0;
  if (pick < 65) return (uint64_t)1 << (pick - 1);
  if (pick < 129) return ((uint64_t)1 << (pick - 65)) - 1;
  if (pick < 193) return ((uint64_t)1 << (pick - 129)) + 1;
  if (pick < 200) return UINT64_MAX - (pick - 193);
  for (i = 0; i < 8; i++) value = value << 8 | fuzz_byte(in);
  return value;
}

/* ---- Host memory ----------------------------------------------------------------------------- */

static struct fuzz_host {
  size_t bytes;
  long fail_in; /* 1: the next allocation fails; 0: none does */
  int stays;    /* and all behind it */
  size_t refused;
} fuzz_host;

static inline void *fuzz_malloc(void *user, size_t bytes) {
  char *ptr;
  (void)user;
  if (fuzz_host.fail_in && !--fuzz_host.fail_in) {
    fuzz_host.fail_in = fuzz_host.stays;
    fuzz_host.refused++;
    return NULL;
  }
  if (bytes > (size_t)1 << 30) return NULL;
  ptr = (char *)malloc(bytes + 16);
  REQUIRE(ptr);
  memcpy(ptr, &bytes, sizeof bytes);
  fuzz_host.bytes += bytes;
  return ptr + 16;
}

static inline void fuzz_free(void *user, void *ptr) {
  size_t bytes;
  (void)user;
  memcpy(&bytes, (char *)ptr - 16, sizeof bytes);
  fuzz_host.bytes -= bytes;
  free((char *)ptr - 16);
}

#endif
