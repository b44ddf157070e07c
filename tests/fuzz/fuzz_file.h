/* What the targets share that read files: the input as a file, plain and gzipped. */
#if !defined(FUZZ_FILE_H)
#define FUZZ_FILE_H

#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "fuzz.h"

/* A file in memory that is named by *path; for the caller to close. */
static inline int open_memory(const uint8_t *data, size_t size, char *path, size_t path_bytes) {
  int file = memfd_create("fuzz", MFD_CLOEXEC);
  REQUIRE(file >= 0 && write(file, data, size) == (ssize_t)size);
  (void)snprintf(path, path_bytes, "/proc/self/fd/%d", file);
  return file;
}

/* The same bytes gzipped, not compressed: the reader's side is what matters. */
static inline size_t gzip(const uint8_t *data, size_t size, uint8_t *out, size_t capacity) {
  z_stream stream;
  size_t bytes;
  memset(&stream, 0, sizeof stream);
  REQUIRE(deflateInit2(&stream, 0, Z_DEFLATED, 16 + 9, 1, Z_DEFAULT_STRATEGY) == Z_OK);
  stream.next_in = (Bytef *)(uintptr_t)data;
  stream.avail_in = (uInt)size;
  stream.next_out = out;
  stream.avail_out = (uInt)capacity;
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  bytes = capacity - stream.avail_out;
  REQUIRE(deflateEnd(&stream) == Z_OK);
  return bytes;
}

#endif
