/* Records the allocations of a program's lake as a trace, which `build/replay` and bench/trace.h
   read. It is for copying into your program:

     gmlake_recorder *recorder = gmlake_recorder_open("run.gmtrace");
     if (!recorder) ... errno says why ...
     desc.observer = gmlake_recorder_observer(recorder);
     ... gmlake_create, and the program, with gmlake_recorder_mark where an iteration begins ...
     gmlake_destroy(lake);
     if (gmlake_recorder_close(recorder)) ... the recording is not complete ...

   Then, `gzip run.gmtrace` if you like, and `build/replay run.gmtrace.gz`.

   The trace has every allocation that was served, with the bytes asked for, and every free. The
   legacy stream has number 0. Other streams get the numbers 1, 2 and so on when they first appear;
   GMLAKE_STREAM_NONE is one of them. The trace has no alignments, flags, pools and growing buffers.
   If the program has growing buffers, the file says that they are left out, and flush and close
   return ENOTSUP.

   Use one recorder for each lake. A process that ends by exit() need not close it: what was
   recorded is written then. A child of fork records nothing, because what it frees is still live in
   its parent. */
#if !defined(GMLAKE_RECORD_H)
#define GMLAKE_RECORD_H

#include "gmlake.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define GMLAKE_RECORDER_STREAMS 1024 /* as many as a trace may have */
#define GMLAKE_RECORDER_LINE 256     /* every line is shorter */

typedef struct gmlake_recorded { /* a live block */
  uint64_t address;              /* 0: the slot is empty */
  uint64_t id;
} gmlake_recorded;

typedef struct gmlake_recorder {
  struct gmlake_recorder *next;
  struct gmlake_recorder_set *set; /* the set that it is in */
  pthread_mutex_t mutex;           /* needed for marks: no lock of the lake protects them */
  pid_t process;                   /* the one that opened it */
  int file;
  int error;        /* the first one; after it nothing is written */
  int has_buffers;  /* the program has growing buffers, which are not in the trace */
  uint64_t time_us; /* of the last record; 0: there is none yet */
  uint64_t next_id;
  gmlake_stream streams[GMLAKE_RECORDER_STREAMS]; /* by number; number 0 is the legacy stream */
  size_t stream_count;
  gmlake_recorded *blocks; /* open addressing, never more than half full */
  size_t block_count, capacity;
  size_t used; /* bytes of text that are not in the file yet */
  char text[1 << 16];
} gmlake_recorder;

typedef struct gmlake_recorder_set { /* the open recorders, to flush when the process ends */
  pthread_mutex_t mutex;
  gmlake_recorder *first;
  int is_armed; /* atexit was called */
} gmlake_recorder_set;

/* ---- Private -------------------------------------------------------------------------------- */

/* In strict C99 only the second clock is declared. */
static inline uint64_t gmlake_recorder_now_us(void) {
#if defined(CLOCK_MONOTONIC)
  struct timespec now = {0, 0};
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
#else
  struct timeval now = {0, 0};
  (void)gettimeofday(&now, NULL);
  return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_usec;
#endif
}

static inline uint64_t gmlake_recorder_step_us(gmlake_recorder *r) {
  const uint64_t before = r->time_us;
  r->time_us = gmlake_recorder_now_us();
  return before && r->time_us > before ? r->time_us - before : 0;
}

static inline void gmlake_recorder_fail(gmlake_recorder *r, int error) {
  if (!r->error) r->error = error ? error : EIO;
}

/* 0 in a child of fork. The child has a copy of the recorder, and of its lock, which a thread of
   the parent may have held. So it must not touch either. Its lake calls no observer. */
static inline int gmlake_recorder_is_ours(const gmlake_recorder *r) {
  return r->process == getpid();
}

/* ---- Its file ---- */

/* Creates the file. A file that exists already is refused, except a pipe or a device. -1: errno
   says why. */
static inline int gmlake_recorder_create(const char *path) {
  struct stat status;
  int file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (file >= 0 || errno != EEXIST) return file;
  file = open(path, O_WRONLY);
  if (file < 0 || (fstat(file, &status) == 0 && !S_ISREG(status.st_mode))) return file;
  (void)close(file);
  errno = EEXIST;
  return -1;
}

static inline void gmlake_recorder_write(gmlake_recorder *r) {
  size_t done = 0;
  while (done < r->used) {
    const ssize_t count = write(r->file, r->text + done, r->used - done);
    if (count < 0 && errno != EINTR) {
      gmlake_recorder_fail(r, errno);
      break;
    }
    if (count > 0) done += (size_t)count;
  }
  r->used = 0;
}

static inline void gmlake_recorder_put(gmlake_recorder *r, const char *format, ...) {
  va_list arguments;
  int length;
  if (sizeof r->text - r->used < GMLAKE_RECORDER_LINE) gmlake_recorder_write(r);
  va_start(arguments, format);
  length = vsnprintf(r->text + r->used, GMLAKE_RECORDER_LINE, format, arguments);
  va_end(arguments);
  if (length > 0 && length < GMLAKE_RECORDER_LINE)
    r->used += (size_t)length;
  else
    gmlake_recorder_fail(r, EIO);
}

/* ---- Live blocks ---- */

/* Where the search for an address begins, and where it ends: at its block or an empty slot. */
static inline size_t gmlake_recorder_home(const gmlake_recorder *r, uint64_t address) {
  return (size_t)(address * UINT64_C(0xD6E8FEB86659FD93) >> 32) & (r->capacity - 1);
}

static inline gmlake_recorded *gmlake_recorder_find(const gmlake_recorder *r, uint64_t address) {
  size_t i = gmlake_recorder_home(r, address);
  while (r->blocks[i].address && r->blocks[i].address != address) i = (i + 1) & (r->capacity - 1);
  return &r->blocks[i];
}

/* Doubles the table. 0: out of memory, and nothing has changed. */
static inline int gmlake_recorder_grow(gmlake_recorder *r) {
  gmlake_recorded *const old = r->blocks;
  const size_t old_capacity = r->capacity, capacity = old_capacity ? old_capacity * 2 : 1024;
  gmlake_recorded *const grown = (gmlake_recorded *)calloc(capacity, sizeof *grown);
  size_t i;
  if (!grown) return 0;
  r->blocks = grown;
  r->capacity = capacity;
  for (i = 0; i < old_capacity; i++)
    if (old[i].address) *gmlake_recorder_find(r, old[i].address) = old[i];
  free(old);
  return 1;
}

/* Empties the block's slot. Blocks in later slots move into the hole, so that every search still
   ends at its block; no block moves before the slot where its own search begins. */
static inline void gmlake_recorder_remove(gmlake_recorder *r, gmlake_recorded *block) {
  const size_t mask = r->capacity - 1;
  size_t hole = (size_t)(block - r->blocks), i = hole;
  while (r->blocks[i = (i + 1) & mask].address) {
    const size_t home = gmlake_recorder_home(r, r->blocks[i].address);
    if (((i - home) & mask) < ((i - hole) & mask)) continue;
    r->blocks[hole] = r->blocks[i];
    hole = i;
  }
  r->blocks[hole].address = 0;
  r->block_count--;
}

static inline void gmlake_recorder_alloc(gmlake_recorder *r, const gmlake_step *event) {
  gmlake_recorded *block;
  size_t stream = 0;
  while (stream < r->stream_count && r->streams[stream] != event->stream) stream++;
  if (stream == GMLAKE_RECORDER_STREAMS) {
    gmlake_recorder_fail(r, ERANGE);
    return;
  }
  if (r->block_count * 2 >= r->capacity && !gmlake_recorder_grow(r)) {
    gmlake_recorder_fail(r, ENOMEM);
    return;
  }
  if (stream == r->stream_count) r->streams[r->stream_count++] = event->stream;
  block = gmlake_recorder_find(r, event->address);
  r->block_count += !block->address;
  block->address = event->address;
  block->id = r->next_id++;
  gmlake_recorder_put(r, "a %llu %llu %llu %llu\n", (unsigned long long)block->id,
                      (unsigned long long)event->asked_bytes, (unsigned long long)stream,
                      (unsigned long long)gmlake_recorder_step_us(r));
}

static inline void gmlake_recorder_free(gmlake_recorder *r, const gmlake_step *event) {
  gmlake_recorded *const block = r->capacity ? gmlake_recorder_find(r, event->address) : NULL;
  if (!block || !block->address) return;
  gmlake_recorder_put(r, "f %llu %llu\n", (unsigned long long)block->id,
                      (unsigned long long)gmlake_recorder_step_us(r));
  gmlake_recorder_remove(r, block);
}

static inline void gmlake_recorder_buffer(gmlake_recorder *r) {
  if (!r->has_buffers) gmlake_recorder_put(r, "# left out: growing buffers\n");
  r->has_buffers = 1;
}

static inline void gmlake_recorder_observe(void *user, const gmlake_step *event) {
  gmlake_recorder *const r = (gmlake_recorder *)user;
  const int is_alloc = event->kind == GMLAKE_STEP_ALLOC && event->state != 5;
  const int is_free = event->kind == GMLAKE_STEP_FREE;
  const int is_buffer = event->kind == GMLAKE_STEP_GROW && !event->address && !event->request;
  if (!is_alloc && !is_free && !is_buffer) return;
  (void)pthread_mutex_lock(&r->mutex);
  if (!r->error && is_alloc) gmlake_recorder_alloc(r, event);
  if (!r->error && is_free) gmlake_recorder_free(r, event);
  if (!r->error && is_buffer) gmlake_recorder_buffer(r);
  (void)pthread_mutex_unlock(&r->mutex);
}

/* The recorders that this source file has opened. */
static inline gmlake_recorder_set *gmlake_recorder_own_set(void) {
  static gmlake_recorder_set set = {PTHREAD_MUTEX_INITIALIZER, NULL, 0};
  return &set;
}

static inline int gmlake_recorder_flush(gmlake_recorder *r);

/* Runs at exit. If another thread is changing the set, or was when this child was forked, nothing
   is flushed: waiting for the lock could last for ever. */
static inline void gmlake_recorder_at_exit(void) {
  gmlake_recorder_set *const set = gmlake_recorder_own_set();
  gmlake_recorder *r;
  if (pthread_mutex_trylock(&set->mutex)) return;
  for (r = set->first; r; r = r->next) (void)gmlake_recorder_flush(r);
  (void)pthread_mutex_unlock(&set->mutex);
}

static inline void gmlake_recorder_enter(gmlake_recorder *r) {
  gmlake_recorder_set *const set = gmlake_recorder_own_set();
  (void)pthread_mutex_lock(&set->mutex);
  if (!set->is_armed) set->is_armed = atexit(gmlake_recorder_at_exit) == 0;
  r->set = set;
  r->next = set->first;
  set->first = r;
  (void)pthread_mutex_unlock(&set->mutex);
}

static inline void gmlake_recorder_leave(gmlake_recorder *r) {
  gmlake_recorder **link = &r->set->first;
  (void)pthread_mutex_lock(&r->set->mutex);
  while (*link != r) link = &(*link)->next;
  *link = r->next;
  (void)pthread_mutex_unlock(&r->set->mutex);
}

/* ---- The recorder --------------------------------------------------------------------------- */

/* Opens a new recording. NULL: errno says why. EEXIST: a file of that name exists, for example the
   recording of another process. */
static inline gmlake_recorder *gmlake_recorder_open(const char *path) {
  gmlake_recorder *const r = (gmlake_recorder *)calloc(1, sizeof(gmlake_recorder));
  if (!r) return NULL;
  r->stream_count = 1;
  r->process = getpid();
  r->file = gmlake_recorder_create(path);
  if (r->file < 0) {
    const int error = errno;
    free(r);
    errno = error;
    return NULL;
  }
  (void)pthread_mutex_init(&r->mutex, NULL);
  gmlake_recorder_put(r, "gmtrace 1\n# recorder: gmlake\n");
  gmlake_recorder_enter(r);
  return r;
}

/* The value for desc.observer. The recorder must live longer than the lake. NULL is allowed: then
   nothing is recorded. */
static inline gmlake_observer gmlake_recorder_observer(gmlake_recorder *r) {
  gmlake_observer observer;
  observer.fn = r ? gmlake_recorder_observe : NULL; /* NULL: the lake calls nobody */
  observer.user = r;
  return observer;
}

/* Writes that an iteration begins. May be called from any thread. The label is cut after 200 bytes,
   and its control characters become spaces. */
static inline void gmlake_recorder_mark(gmlake_recorder *r, const char *label) {
  char text[201];
  size_t i;
  for (i = 0; i + 1 < sizeof text && label[i]; i++)
    text[i] = (unsigned char)label[i] < ' ' ? ' ' : label[i];
  text[i] = '\0';
  if (!gmlake_recorder_is_ours(r)) return;
  (void)pthread_mutex_lock(&r->mutex);
  if (!r->error) gmlake_recorder_put(r, "m %s\n", text);
  (void)pthread_mutex_unlock(&r->mutex);
}

/* Writes what was recorded so far to the file. Returns 0 if the recording is complete, or in a
   child of fork. ENOTSUP: the program's growing buffers are not in it, but it goes on. Any other
   value is the error that ended the recording: an error of the file, ENOMEM, or ERANGE for more
   than 1024 streams. */
static inline int gmlake_recorder_flush(gmlake_recorder *r) {
  int error;
  if (!gmlake_recorder_is_ours(r)) return 0;
  (void)pthread_mutex_lock(&r->mutex);
  gmlake_recorder_write(r);
  error = r->error || !r->has_buffers ? r->error : ENOTSUP;
  (void)pthread_mutex_unlock(&r->mutex);
  return error;
}

/* Flushes and closes; returns what flush returns. pre: the lake is destroyed. In a child of fork it
   does nothing. */
static inline int gmlake_recorder_close(gmlake_recorder *r) {
  int error;
  if (!r || !gmlake_recorder_is_ours(r)) return 0;
  error = gmlake_recorder_flush(r);
  if (close(r->file) && !error) error = errno ? errno : EIO;
  gmlake_recorder_leave(r);
  (void)pthread_mutex_destroy(&r->mutex);
  free(r->blocks);
  free(r);
  return error;
}

#endif
