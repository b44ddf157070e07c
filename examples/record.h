/* Records what a lake is asked for, as a trace that `build/replay` and bench/trace.h read:

     gmlake_recorder *recorder = gmlake_recorder_open("run.gmtrace");
     if (!recorder) ... errno says why ...
     desc.observer = gmlake_recorder_observer(recorder);
     ... gmlake_create, and the program, with gmlake_recorder_mark where an iteration begins ...
     gmlake_destroy(lake);
     if (gmlake_recorder_close(recorder)) ... the recording is not complete ...

   then `gzip run.gmtrace` if you like, and `build/replay run.gmtrace.gz`. Written are the
   allocations that were served, with the bytes asked for, and the frees; the legacy stream is 0,
   others count from 1 on as they appear, GMLAKE_STREAM_NONE as one of them. Alignment, flags, pools
   and growing buffers are not in a trace. One recorder for each lake. A process that ends by exit()
   may leave it open; a child of fork has to end by _exit(), since it has a copy of what is not yet
   written. Strict C99: include gmlake.h's implementation first, or define _GNU_SOURCE. */
#if !defined(GMLAKE_RECORD_H)
#define GMLAKE_RECORD_H

#include "gmlake.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define GMLAKE_RECORDER_STREAMS 1024 /* as many as a trace may have */

typedef struct gmlake_recorded { /* a live block */
  uint64_t address;              /* 0: the slot is empty */
  uint64_t id;
} gmlake_recorded;

typedef struct gmlake_recorder {
  pthread_mutex_t mutex; /* a mark comes without the lake's lock */
  FILE *file;
  int error;        /* the first one; nothing is written from then on */
  uint64_t time_us; /* of the last record */
  uint64_t next_id;
  gmlake_stream streams[GMLAKE_RECORDER_STREAMS]; /* by number; the first is the legacy one */
  size_t stream_count;
  gmlake_recorded *blocks; /* open addressing, never more than half full */
  size_t block_count, capacity;
} gmlake_recorder;

/* ---- Private -------------------------------------------------------------------------------- */

static inline uint64_t gmlake_recorder_now_us(void) {
  struct timespec now = {0, 0};
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static inline uint64_t gmlake_recorder_step_us(gmlake_recorder *r) {
  const uint64_t before = r->time_us;
  r->time_us = gmlake_recorder_now_us();
  return r->time_us - before;
}

static inline void gmlake_recorder_fail(gmlake_recorder *r, int error) {
  if (!r->error) r->error = error ? error : EIO;
}

/* Where the search for an address begins, and where it ends: at its block or an empty slot. */
static inline size_t gmlake_recorder_home(const gmlake_recorder *r, uint64_t address) {
  return (size_t)(address * UINT64_C(0xD6E8FEB86659FD93) >> 32) & (r->capacity - 1);
}

static inline gmlake_recorded *gmlake_recorder_find(const gmlake_recorder *r, uint64_t address) {
  size_t i = gmlake_recorder_home(r, address);
  while (r->blocks[i].address && r->blocks[i].address != address) i = (i + 1) & (r->capacity - 1);
  return &r->blocks[i];
}

/* 0: out of memory, nothing changed. */
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

/* Blocks behind the hole move up, each no further than to where its search begins. */
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

static inline void gmlake_recorder_alloc(gmlake_recorder *r, const gmlake_event *event) {
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
  if (fprintf(r->file, "a %llu %llu %llu %llu\n", (unsigned long long)block->id,
              (unsigned long long)event->asked_bytes, (unsigned long long)stream,
              (unsigned long long)gmlake_recorder_step_us(r)) < 0)
    gmlake_recorder_fail(r, errno);
}

static inline void gmlake_recorder_free(gmlake_recorder *r, const gmlake_event *event) {
  gmlake_recorded *const block = r->capacity ? gmlake_recorder_find(r, event->address) : NULL;
  if (!block || !block->address) return;
  if (fprintf(r->file, "f %llu %llu\n", (unsigned long long)block->id,
              (unsigned long long)gmlake_recorder_step_us(r)) < 0)
    gmlake_recorder_fail(r, errno);
  gmlake_recorder_remove(r, block);
}

static inline void gmlake_recorder_observe(void *user, const gmlake_event *event) {
  gmlake_recorder *const r = (gmlake_recorder *)user;
  const int is_alloc = event->kind == GMLAKE_EVENT_ALLOC && event->state != 5;
  if (!is_alloc && event->kind != GMLAKE_EVENT_FREE) return;
  (void)pthread_mutex_lock(&r->mutex);
  if (!r->error && is_alloc) gmlake_recorder_alloc(r, event);
  if (!r->error && !is_alloc) gmlake_recorder_free(r, event);
  (void)pthread_mutex_unlock(&r->mutex);
}

/* ---- The recorder --------------------------------------------------------------------------- */

/* NULL: errno says why. The file is written anew. */
static inline gmlake_recorder *gmlake_recorder_open(const char *path) {
  gmlake_recorder *const r = (gmlake_recorder *)calloc(1, sizeof(gmlake_recorder));
  if (!r) return NULL;
  r->stream_count = 1;
  r->file = fopen(path, "w");
  if (!r->file) {
    const int error = errno;
    free(r);
    errno = error;
    return NULL;
  }
  (void)pthread_mutex_init(&r->mutex, NULL);
  r->time_us = gmlake_recorder_now_us();
  if (fprintf(r->file, "gmtrace 1\n# recorder: gmlake\n") < 0) gmlake_recorder_fail(r, errno);
  return r;
}

/* For desc.observer; the recorder has to outlive the lake. */
static inline gmlake_observer gmlake_recorder_observer(gmlake_recorder *r) {
  gmlake_observer observer;
  observer.fn = r ? gmlake_recorder_observe : NULL; /* could not be opened: nobody listens */
  observer.user = r;
  return observer;
}

/* An iteration begins. Any thread; the label is cut after 200 bytes, control characters become
   spaces. */
static inline void gmlake_recorder_mark(gmlake_recorder *r, const char *label) {
  char text[201];
  size_t i;
  for (i = 0; i + 1 < sizeof text && label[i]; i++)
    text[i] = (unsigned char)label[i] < ' ' ? ' ' : label[i];
  text[i] = '\0';
  (void)pthread_mutex_lock(&r->mutex);
  if (!r->error && fprintf(r->file, "m %s\n", text) < 0) gmlake_recorder_fail(r, errno);
  (void)pthread_mutex_unlock(&r->mutex);
}

/* Hands what was recorded so far to the system. 0, or the error that ended the recording: of the
   file, ENOMEM, ERANGE for too many streams. */
static inline int gmlake_recorder_flush(gmlake_recorder *r) {
  int error;
  (void)pthread_mutex_lock(&r->mutex);
  if (fflush(r->file)) gmlake_recorder_fail(r, errno);
  error = r->error;
  (void)pthread_mutex_unlock(&r->mutex);
  return error;
}

/* As flush. pre: the lake is destroyed. */
static inline int gmlake_recorder_close(gmlake_recorder *r) {
  int error;
  if (!r) return 0;
  error = gmlake_recorder_flush(r);
  if (fclose(r->file) && !error) error = errno ? errno : EIO;
  (void)pthread_mutex_destroy(&r->mutex);
  free(r->blocks);
  free(r);
  return error;
}

#endif
