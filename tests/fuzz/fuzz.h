/* What the fuzz targets share: the input as a stream of bytes, and REQUIRE. A target is one
   LLVMFuzzerTestOneInput: link it with clang's -fsanitize=fuzzer to search, or with replay_main.c
   to run files through it. */
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

#endif
