/* Reads text, plain or gzipped, by lines and words, and reports errors with their line. The readers
   of traces (trace.h) and graphs (graph.h) use it. Link with -lz. */
#if !defined(LINES_H_INCLUDED)
#define LINES_H_INCLUDED

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* The most bytes that the arrays of a reader may hold. Without a limit, a gzipped file of a few KiB
   could need any amount of memory. For larger files compile with -DLINES_MEMORY_MAX=BYTES. */
#if !defined(LINES_MEMORY_MAX)
#define LINES_MEMORY_MAX ((size_t)1 << 30)
#endif

typedef struct lines {
  const char *path;
  char *error;
  size_t error_bytes;
  gzFile file;
  size_t number; /* of the line */
  char *text;
  size_t capacity;
  char *cursor;  /* the rest of the line, which is still to be read */
  size_t memory; /* bytes of all arrays that lines_grow has made */
} lines;

/* Writes `file:line: reason`, or `file: reason` if no line was read yet. Always returns 0. */
static inline int lines_fail(lines *in, const char *format, ...) {
  int written = in->number ? snprintf(in->error, in->error_bytes, "%s:%lu: ", in->path,
                                      (unsigned long)in->number)
                           : snprintf(in->error, in->error_bytes, "%s: ", in->path);
  if (written > 0 && (size_t)written < in->error_bytes) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(in->error + written, in->error_bytes - (size_t)written, format, arguments);
    va_end(arguments);
  }
  return 0;
}

/* Makes room for one more item and returns the items. If that fails it returns NULL, does not
   change the old items, and writes the error text. */
static inline void *lines_grow(lines *in, void *items, size_t count, size_t *capacity,
                               size_t item_bytes) {
  size_t more = *capacity ? *capacity : 1024;
  void *grown;
  if (count < *capacity) return items;
  if (more > (LINES_MEMORY_MAX - in->memory) / item_bytes || more > UINT32_MAX - *capacity) {
    lines_fail(in, "more than %lu MiB would be held (-DLINES_MEMORY_MAX=BYTES allows more)",
               (unsigned long)(LINES_MEMORY_MAX >> 20));
    return NULL;
  }
  grown = realloc(items, (*capacity + more) * item_bytes);
  if (!grown) {
    lines_fail(in, "out of memory");
    return NULL;
  }
  *capacity += more;
  in->memory += more * item_bytes;
  return grown;
}

/* Returns the next word of the line and moves behind it; NULL at the end of the line. */
static inline char *lines_word(lines *in) {
  char *word = in->cursor + strspn(in->cursor, " \t");
  if (!*word) return NULL;
  in->cursor = word + strcspn(word, " \t");
  if (*in->cursor) *in->cursor++ = '\0';
  return word;
}

static inline int lines_parse(lines *in, const char *word, const char *what, uint64_t max,
                              uint64_t *out) {
  const char *digit;
  uint64_t value = 0;
  *out = 0;
  if (!word) return lines_fail(in, "%s is missing", what);
  for (digit = word; *digit; digit++) {
    unsigned d = (unsigned)(*digit - '0');
    if (*digit < '0' || *digit > '9') {
      return lines_fail(in, "%s is not a number: '%.40s'", what, word);
    }
    if (d > max || value > (max - d) / 10) {
      return lines_fail(in, "%s is too large: %.40s", what, word);
    }
    value = value * 10 + d;
  }
  *out = value;
  return 1;
}

static inline int lines_number(lines *in, const char *what, uint64_t max, uint64_t *out) {
  return lines_parse(in, lines_word(in), what, max, out);
}

static inline int lines_end_of_record(lines *in) {
  const char *word = lines_word(in);
  return word ? lines_fail(in, "text after the record: '%.40s'", word) : 1;
}

/* Reads the next line. Returns 1, 0 at the end of the file, -1 after it has written the error
   text. */
static inline int lines_next(lines *in) {
  const char *got = gzgets(in->file, in->text, (int)in->capacity);
  size_t length = got ? strlen(in->text) : 0;
  int code = Z_OK;
  const char *text;
  if (length && in->text[length - 1] == '\n') {
    in->text[length - 1] = '\0';
    if (length > 1 && in->text[length - 2] == '\r') in->text[length - 2] = '\0';
    in->cursor = in->text;
    in->number++;
    return 1;
  }
  text = gzerror(in->file, &code);
  if (!got && (code == Z_OK || code == Z_STREAM_END)) return 0;
  in->number += code != Z_ERRNO;
  if (code == Z_ERRNO) {
    lines_fail(in, "%s", strerror(errno));
  } else if (code == Z_BUF_ERROR) {
    lines_fail(in, "the compressed data is truncated");
  } else if (code != Z_OK && code != Z_STREAM_END) {
    lines_fail(in, "%s", text);
  } else if (length == in->capacity - 1) {
    lines_fail(in, "the line is too long");
  } else {
    lines_fail(in, gzeof(in->file) ? "the last line is truncated" : "not a line of text");
  }
  return -1;
}

static inline void lines_close(lines *in) {
  if (in->file) gzclose_r(in->file);
  free(in->text);
}

/* Opens a file whose lines are shorter than `capacity` bytes. Close it also if this fails.
   pre: `in` is zeroed. */
static inline int lines_open(lines *in, const char *path, size_t capacity, char *error,
                             size_t error_bytes) {
  in->path = path;
  in->error = error;
  in->error_bytes = error_bytes;
  in->capacity = capacity;
  errno = 0;
  in->text = (char *)malloc(capacity);
  in->file = in->text ? gzopen(path, "rb") : NULL;
  if (!in->file) return lines_fail(in, "%s", strerror(errno ? errno : ENOMEM));
  gzbuffer(in->file, 1u << 17);
  return 1;
}

/* Checks that the first line is `head N`, of a version from 1 to `versions`. */
static inline int lines_read_head(lines *in, const char *head, unsigned versions, const char *kind,
                                  unsigned *out_version) {
  const size_t length = strlen(head);
  int more = lines_next(in);
  if (more < 0) return 0;
  in->number = 1;
  if (!more) return lines_fail(in, "the file is empty");
  for (*out_version = 1; *out_version <= versions; (*out_version)++)
    if (!strncmp(in->text, head, length) && in->text[length] == ' ' &&
        in->text[length + 1] == (char)('0' + *out_version) && !in->text[length + 2])
      return 1;
  return lines_fail(in, "not a %s: '%s %u' expected", kind, head, versions);
}

#endif
