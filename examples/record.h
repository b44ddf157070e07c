/* Records the allocations of a program's lake as a trace, which `build/replay` and bench/trace.h
   read. It is for copying into your program:

     gmlake_recorder *recorder = gmlake_recorder_open("run.gmtrace");
     if (!recorder) ... errno says why ...
     gmlake_cuda_create(0, &backend);
     desc.backend = backend;
     gmlake_recorder_attach(recorder, &desc);
     ... gmlake_create, and the program, with gmlake_recorder_mark where an iteration begins ...
     gmlake_destroy(lake);
     if (gmlake_recorder_close(recorder)) ... the recording is not complete ...
     gmlake_cuda_destroy(backend);

   Then, `gzip run.gmtrace` if you like, and `build/replay run.gmtrace.gz`.

   The trace has every allocation that was served, with the bytes asked for, every stream that
   gmlake_record_stream named, every free with its stream, and what growing buffers commit and
   discard. The legacy stream has number 0. Other streams get the numbers 1, 2 and so on when they
   first appear. If the program uses several streams, or buffers, the trace also says when the
   device had completed what was queued on each: the recorder records an event behind each free, and
   behind other calls now and then, and asks for them every 50 us. It asks in the calls that it is
   told of, so it learns of what completed when the program next calls the lake. All that takes at
   most 1/200 of the time: where the driver's calls take long, there are fewer samples.
   gmlake_recorder_set_sampling sets another share, for a recording that is to tell this well.

   It also tells labels, pools and, if you ask for them, stacks, in remarks: bench/viewer.html and
   `build/replay --html` show labels; replay does not model pools. A label's address stands for its
   text, which is read when the address first comes. The trace has no alignments and flags, and does
   not tell what sleeps. A stream that is being captured is not sampled, and nothing is sampled or
   asked for while captures forbid the legacy stream, where the backend knows that (is_capturing).

   Without stacks it costs about 40 ns an allocation or free on x86-64, elsewhere also a call that
   reads the clock (`record --cost`, the program of examples/record.c, with -O2). That is at most
   .2 % of a step of the programs of bench/torch. With several streams, or buffers, the samples take
   their share besides.

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
#include <stddef.h>
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
#define GMLAKE_RECORDER_SAMPLES 256u /* of a stream; every second one is given up for more */
#define GMLAKE_RECORDER_POLL_US 50u  /* so often it asks what is complete */
#define GMLAKE_RECORDER_SHARE 200u   /* sampling takes at most 1/200 of the time */
#define GMLAKE_RECORDER_NAMES 4096u  /* labels, pools and stacks: fewer than half of it */
#define GMLAKE_RECORDER_STACK 3000u  /* a longer stack is cut */
#define GMLAKE_RECORDER_TICKS (UINT64_C(1) << 20) /* so long ticks stand for the clock: .3 ms */

/* Writes where an allocation comes from, as one line, into out; returns its length, at most
   capacity. It is called with locks of the lake held, and may not call the lake. */
typedef size_t (*gmlake_recorder_stack)(void *user, char *out, size_t capacity);

typedef struct gmlake_recorded_name { /* of a label, a pool or a stack */
  uint64_t key;                       /* 0: the slot is empty */
  unsigned number;
} gmlake_recorded_name;

typedef struct gmlake_recorded { /* a live block */
  uint64_t address;              /* 0: the slot is empty */
  uint64_t id;
  uint64_t uses; /* a bit for each stream below 64 that gmlake_record_stream named */
} gmlake_recorded;

typedef struct gmlake_recorded_buffer {
  uint64_t address, bytes; /* of the addresses that it may use */
  uint64_t id;
} gmlake_recorded_buffer;

typedef struct gmlake_sample { /* an event that is not seen to be complete yet */
  void *event;
  uint64_t queued_us; /* when it was recorded */
} gmlake_sample;

typedef struct gmlake_recorded_stream {
  gmlake_stream value;
  gmlake_sample *samples; /* in order; NULL: it was never sampled */
  size_t sample_count;
  uint64_t sampled_us; /* when it was last sampled */
} gmlake_recorded_stream;

typedef struct gmlake_recorder {
  struct gmlake_recorder *next;
  struct gmlake_recorder_set *set; /* the set that it is in */
  pthread_mutex_t mutex;           /* needed for marks: no lock of the lake protects them */
  pid_t process;                   /* the one that opened it */
  int file;
  int error;                           /* the first one; after it nothing is written */
  uint64_t time_us;                    /* of the last record; 0: there is none yet */
  uint64_t now_us, polled_us, poll_us; /* poll_us: GMLAKE_RECORDER_POLL_US */
  unsigned share;                      /* as gmlake_recorder_set_sampling says */
  uint64_t may_poll_ns, may_sample_ns; /* not before, because of the share */
  uint64_t clock_ns, clock_ticks;      /* of the same moment: the clock was read */
  double ns_per_tick;                  /* 0: not known */
  uint64_t next_id;
  gmlake_recorded_stream streams[GMLAKE_RECORDER_STREAMS]; /* number 0 is the legacy stream */
  size_t stream_count;
  unsigned named;                /* different streams that calls have named; 2: or more */
  gmlake_stream first_named;     /* [named] */
  const gmlake_backend *backend; /* that samples; NULL: there is none */
  int is_sampling;
  void **events; /* idle ones: a stack */
  size_t event_count, event_capacity;
  uint64_t peak_active_bytes, peak_reserved_bytes;
  uint64_t grow_ns, grown_bytes; /* what creating chunks took, and how many bytes they have */
  uint64_t written_sum;          /* of these four, when they were written last */
  gmlake_recorded *blocks;       /* open addressing, never more than half full */
  size_t block_count, capacity;
  gmlake_recorded_buffer *buffers;
  size_t buffer_count, buffer_capacity;
  gmlake_recorded_name names[GMLAKE_RECORDER_NAMES]; /* open addressing */
  size_t name_count;
  unsigned counts[3]; /* of labels, pools, stacks */
  gmlake_recorder_stack stack;
  void *stack_user;
  char stack_text[GMLAKE_RECORDER_STACK];
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
static inline uint64_t gmlake_recorder_clock_ns(void) {
#if defined(CLOCK_MONOTONIC)
  struct timespec now = {0, 0};
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
#else
  struct timeval now = {0, 0};
  (void)gettimeofday(&now, NULL);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_usec * 1000;
#endif
}

#if defined(__x86_64__) && defined(__GNUC__)
#define GMLAKE_RECORDER_HAS_TICKS 1
static inline uint64_t gmlake_recorder_ticks(void) { return __builtin_ia32_rdtsc(); }
#else
#define GMLAKE_RECORDER_HAS_TICKS 0
static inline uint64_t gmlake_recorder_ticks(void) { return 0; }
#endif

/* To read the clock takes longer than the rest. So the processor's ticks stand for it, until there
   were GMLAKE_RECORDER_TICKS of them; then the clock tells how long one is. A rate that differs
   much from the one before is of a counter that stood still or jumped: it is not used, and so is
   what was read while the thread did not run. */
static inline uint64_t gmlake_recorder_now_ns(gmlake_recorder *r) {
  const uint64_t ticks = gmlake_recorder_ticks(), since = ticks - r->clock_ticks;
  const double former = r->ns_per_tick;
  uint64_t now;
  if (former > 0 && since < GMLAKE_RECORDER_TICKS)
    return r->clock_ns + (uint64_t)((double)since * former);
  now = gmlake_recorder_clock_ns();
  if (!GMLAKE_RECORDER_HAS_TICKS || since < GMLAKE_RECORDER_TICKS ||
      gmlake_recorder_ticks() - ticks > GMLAKE_RECORDER_TICKS / 256)
    return now;
  r->ns_per_tick = 0;
  if (r->clock_ticks && now > r->clock_ns)
    r->ns_per_tick = (double)(now - r->clock_ns) / (double)since;
  if (former > 0 && (r->ns_per_tick > 1.1 * former || r->ns_per_tick < .9 * former))
    r->ns_per_tick = 0;
  r->clock_ns = now;
  r->clock_ticks = ticks;
  return now;
}

/* The time of a record that is written now: since the record before it. */
static inline uint64_t gmlake_recorder_step_us(gmlake_recorder *r) {
  const uint64_t before = r->time_us;
  r->time_us = r->now_us;
  return before ? r->now_us - before : 0;
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

/* Makes room for a line. */
static inline void gmlake_recorder_room(gmlake_recorder *r) {
  if (sizeof r->text - r->used < GMLAKE_RECORDER_LINE) gmlake_recorder_write(r);
}

/* Writes a line that is seldom written. */
static inline void gmlake_recorder_put(gmlake_recorder *r, const char *format, ...) {
  va_list arguments;
  int length;
  gmlake_recorder_room(r);
  va_start(arguments, format);
  length = vsnprintf(r->text + r->used, GMLAKE_RECORDER_LINE, format, arguments);
  va_end(arguments);
  if (length > 0 && length < GMLAKE_RECORDER_LINE)
    r->used += (size_t)length;
  else
    gmlake_recorder_fail(r, EIO);
}

/* The records of every call are written without printf, which would take longer than the call: a
   letter, the fields, and at the end the time since the record before. */
static inline void gmlake_recorder_begin(gmlake_recorder *r, char letter) {
  gmlake_recorder_room(r);
  r->text[r->used++] = letter;
}

static inline void gmlake_recorder_field(gmlake_recorder *r, uint64_t value) {
  static const char pairs[] = /* two digits at a time: that halves the divisions */
      "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
      "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
      "8081828384858687888990919293949596979899";
  char digits[20];
  size_t at = sizeof digits;
  for (; value >= 100; value /= 100) memcpy(digits + (at -= 2), pairs + 2 * (value % 100), 2);
  if (value >= 10)
    memcpy(digits + (at -= 2), pairs + 2 * value, 2);
  else
    digits[--at] = (char)('0' + value);
  r->text[r->used++] = ' ';
  memcpy(r->text + r->used, digits + at, sizeof digits - at);
  r->used += sizeof digits - at;
}

static inline void gmlake_recorder_end(gmlake_recorder *r) {
  gmlake_recorder_field(r, gmlake_recorder_step_us(r));
  r->text[r->used++] = '\n';
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

/* ---- When work is complete ---- */

/* An error of the backend ends the sampling, and the recording goes on. */
static inline void gmlake_recorder_end_samples(gmlake_recorder *r, const char *call, int code) {
  r->is_sampling = 0;
  gmlake_recorder_put(r, "# left out from here on: when work was complete (%s failed: %d)\n", call,
                      code);
}

#define GMLAKE_RECORDER_HAS(b, entry) \
  ((b)->struct_bytes >= offsetof(gmlake_backend, entry) + sizeof(b)->entry && (b)->entry)

/* Whether an event may be recorded on the stream: it is there, and no capture forbids it. While
   captures forbid the legacy stream, NULL, no stream and no event is touched. */
static inline int gmlake_recorder_may_sample(const gmlake_recorder *r, gmlake_stream stream) {
  const gmlake_backend *const b = r->backend;
  uint64_t id;
  int is_capturing = 0, code = 0;
  if (stream == GMLAKE_STREAM_NONE) return 0;
  if (GMLAKE_RECORDER_HAS(b, is_capturing))
    return b->is_capturing(b->user, stream, &is_capturing, &code) == GMLAKE_OK && !is_capturing;
  if (!stream || !GMLAKE_RECORDER_HAS(b, stream_id)) return 1;
  return b->stream_id(b->user, stream, &id, &code) == GMLAKE_OK;
}

/* Exchanges the thread's capture mode: in the relaxed one (2) no question about an event spoils a
   capture. 0: the driver refused. */
static inline int gmlake_recorder_exchange(const gmlake_recorder *r, int *mode) {
  int code = 0;
  return r->backend->capture_exchange(r->backend->user, mode, &code) == GMLAKE_OK;
}

/* Makes room for an event on the stack. 0: out of memory. */
static inline int gmlake_recorder_reserve_event(gmlake_recorder *r) {
  const size_t capacity = r->event_capacity ? 2 * r->event_capacity : 64;
  void **grown;
  if (r->event_count < r->event_capacity) return 1;
  grown = (void **)realloc(r->events, capacity * sizeof *grown);
  if (!grown) return 0;
  r->events = grown;
  r->event_capacity = capacity;
  return 1;
}

static inline void gmlake_recorder_drop_event(gmlake_recorder *r, void *event) {
  int code = 0;
  if (gmlake_recorder_reserve_event(r))
    r->events[r->event_count++] = event;
  else
    (void)r->backend->event_destroy(r->backend->user, event, &code);
}

/* Gives up every second sample, but for the newest. */
static inline void gmlake_recorder_thin(gmlake_recorder *r, gmlake_recorded_stream *s) {
  size_t i, kept = 0;
  for (i = 0; i < s->sample_count; i++)
    if (i & 1)
      s->samples[kept++] = s->samples[i];
    else
      gmlake_recorder_drop_event(r, s->samples[i].event);
  s->sample_count = kept;
}

/* When calls that began then, and end now, may be made again: half of the share is theirs. */
static inline uint64_t gmlake_recorder_next_ns(gmlake_recorder *r, uint64_t begun_ns) {
  const uint64_t now = gmlake_recorder_now_ns(r);
  return now > begun_ns ? now + 2 * r->share * (now - begun_ns) : now;
}

/* Records an event on the stream now. */
static inline void gmlake_recorder_sample(gmlake_recorder *r, gmlake_recorded_stream *s) {
  const gmlake_backend *const b = r->backend;
  gmlake_result result = GMLAKE_OK;
  void *event = NULL;
  int code = 0;
  if (!gmlake_recorder_may_sample(r, s->value)) return;
  if (!s->samples)
    s->samples = (gmlake_sample *)calloc(GMLAKE_RECORDER_SAMPLES, sizeof *s->samples);
  if (!s->samples) return;
  if (s->sample_count == GMLAKE_RECORDER_SAMPLES) gmlake_recorder_thin(r, s);
  if (r->event_count)
    event = r->events[--r->event_count];
  else
    result = b->event_create(b->user, &event, &code);
  if (result) {
    gmlake_recorder_end_samples(r, "event_create", code);
    return;
  }
  result = b->event_record(b->user, event, s->value, &code);
  if (result) {
    gmlake_recorder_drop_event(r, event);
    /* else the stream is gone */
    if (result != GMLAKE_ERROR_INVALID_ARGUMENT)
      gmlake_recorder_end_samples(r, "event_record", code);
    return;
  }
  s->samples[s->sample_count].event = event;
  s->samples[s->sample_count++].queued_us = s->sampled_us = r->time_us;
}

/* Gives up all samples of a stream, as the recording ends. */
static inline void gmlake_recorder_forget_samples(gmlake_recorder *r, gmlake_recorded_stream *s) {
  while (s->sample_count) gmlake_recorder_drop_event(r, s->samples[--s->sample_count].event);
  free(s->samples);
}

/* The same if several streams are used, or buffers are, and at least `gap_us` after the stream's
   last sample. */
static inline void gmlake_recorder_sample_if_due(gmlake_recorder *r, size_t stream,
                                                 uint64_t gap_us) {
  gmlake_recorded_stream *const s = &r->streams[stream];
  uint64_t now;
  int mode = 2;
  if (!r->is_sampling || (r->named < 2 && !r->buffers) || r->time_us - s->sampled_us < gap_us)
    return;
  now = gmlake_recorder_now_ns(r);
  if (now < r->may_sample_ns || !gmlake_recorder_may_sample(r, NULL)) return;
  if (!gmlake_recorder_exchange(r, &mode)) return;
  gmlake_recorder_sample(r, s);
  (void)gmlake_recorder_exchange(r, &mode);
  r->may_sample_ns = gmlake_recorder_next_ns(r, now);
}

/* How many of the stream's samples are complete, from the oldest on. */
static inline size_t gmlake_recorder_complete(gmlake_recorder *r, gmlake_recorded_stream *s) {
  const gmlake_backend *const b = r->backend;
  size_t i;
  for (i = 0; i < s->sample_count; i++) {
    int is_done = 0, code = 0;
    if (b->event_query(b->user, s->samples[i].event, &is_done, &code)) {
      gmlake_recorder_end_samples(r, "event_query", code);
      return i;
    }
    if (!is_done) return i;
  }
  return i;
}

/* Writes what has completed since it was asked last. */
static inline void gmlake_recorder_poll(gmlake_recorder *r) {
  size_t i, j, count;
  uint64_t now;
  int mode = 2;
  if (!r->is_sampling || r->now_us - r->polled_us < r->poll_us) return;
  now = gmlake_recorder_now_ns(r);
  if (now < r->may_poll_ns || !gmlake_recorder_may_sample(r, NULL)) return;
  if (!gmlake_recorder_exchange(r, &mode)) return;
  r->polled_us = r->now_us;
  for (i = 0; i < r->stream_count && r->is_sampling; i++) {
    gmlake_recorded_stream *const s = &r->streams[i];
    count = gmlake_recorder_complete(r, s);
    if (!count) continue;
    gmlake_recorder_begin(r, 'd');
    gmlake_recorder_field(r, i);
    gmlake_recorder_field(r, r->now_us - s->samples[count - 1].queued_us);
    gmlake_recorder_end(r);
    for (j = 0; j < count; j++) gmlake_recorder_drop_event(r, s->samples[j].event);
    s->sample_count -= count;
    memmove(s->samples, s->samples + count, s->sample_count * sizeof *s->samples);
  }
  (void)gmlake_recorder_exchange(r, &mode);
  r->may_poll_ns = gmlake_recorder_next_ns(r, now);
}

/* ---- Events ---- */

/* The number of a stream, or SIZE_MAX if there are too many. GMLAKE_STREAM_NONE has one too. */
static inline size_t gmlake_recorder_number(gmlake_recorder *r, gmlake_stream stream) {
  size_t i = 0;
  if (stream == (gmlake_stream)(uintptr_t)1) stream = NULL; /* the legacy stream's other value */
  if (!r->named || (r->named == 1 && stream != r->first_named)) r->named++;
  if (r->named == 1) r->first_named = stream;
  while (i < r->stream_count && r->streams[i].value != stream) i++;
  if (i == GMLAKE_RECORDER_STREAMS) {
    gmlake_recorder_fail(r, ERANGE);
    return SIZE_MAX;
  }
  if (i == r->stream_count) r->streams[r->stream_count++].value = stream;
  return i;
}

static inline void gmlake_recorder_stream_field(gmlake_recorder *r, size_t stream) {
  if (r->streams[stream].value == GMLAKE_STREAM_NONE) {
    r->text[r->used++] = ' ';
    r->text[r->used++] = '-';
  } else {
    gmlake_recorder_field(r, stream);
  }
}

/* ---- Labels, pools and stacks ---- */

enum { GMLAKE_RECORDER_LABEL, GMLAKE_RECORDER_POOL, GMLAKE_RECORDER_STACKS };

/* The name's number, counted from 1 on; 0: there are too many. *out_is_new: it has to be told. */
static inline unsigned gmlake_recorder_name(gmlake_recorder *r, unsigned kind, uint64_t key,
                                            int *out_is_new) {
  const uint64_t wanted = key * 3 + kind + 1;
  size_t i = (size_t)(wanted * UINT64_C(0xD6E8FEB86659FD93) >> 40) % GMLAKE_RECORDER_NAMES;
  while (r->names[i].key && r->names[i].key != wanted) i = (i + 1) % GMLAKE_RECORDER_NAMES;
  *out_is_new = !r->names[i].key;
  if (!*out_is_new) return r->names[i].number;
  if (2 * ++r->name_count >= GMLAKE_RECORDER_NAMES) {
    *out_is_new = 0;
    return 0;
  }
  r->names[i].key = wanted;
  return r->names[i].number = ++r->counts[kind];
}

/* A remark `# what: NUMBER TEXT`. The text is a word: what would end it becomes `other`. */
static inline void gmlake_recorder_tell(gmlake_recorder *r, const char *what, unsigned number,
                                        const char *text, size_t length, char other) {
  size_t i;
  gmlake_recorder_put(r, "# %s: %u ", what, number);
  for (i = 0; i < length; i++) {
    const char c = text[i];
    gmlake_recorder_room(r);
    r->text[r->used++] =
        (unsigned char)c < ' ' || c == 0x7F || (c == ' ' && other != ' ') ? other : c;
  }
  gmlake_recorder_put(r, "\n");
}

static inline unsigned gmlake_recorder_label(gmlake_recorder *r, const char *label) {
  size_t length = 0;
  int is_new;
  unsigned number;
  if (!label) return 0;
  number = gmlake_recorder_name(r, GMLAKE_RECORDER_LABEL, (uintptr_t)label, &is_new);
  while (length < 60 && label[length]) length++;
  if (is_new)
    gmlake_recorder_tell(r, "label", number, length ? label : "-", length ? length : 1, '_');
  return number;
}

static inline unsigned gmlake_recorder_pool(gmlake_recorder *r, const gmlake_pool *pool) {
  char text[32];
  int is_new;
  unsigned number;
  if (!pool) return 0;
  number = gmlake_recorder_name(r, GMLAKE_RECORDER_POOL, (uintptr_t)pool, &is_new);
  if (is_new) {
    const int length = sprintf(text, "%p", (const void *)pool);
    gmlake_recorder_tell(r, "pool", number, text, length > 0 ? (size_t)length : 0, '_');
  }
  return number;
}

static inline unsigned gmlake_recorder_ask_stack(gmlake_recorder *r) {
  uint64_t sum = UINT64_C(14695981039346656037);
  size_t length, i;
  int is_new;
  unsigned number;
  if (!r->stack) return 0;
  length = r->stack(r->stack_user, r->stack_text, sizeof r->stack_text);
  if (length > sizeof r->stack_text) length = sizeof r->stack_text;
  for (i = 0; i < length; i++)
    sum = (sum ^ (unsigned char)r->stack_text[i]) * UINT64_C(1099511628211);
  number = gmlake_recorder_name(r, GMLAKE_RECORDER_STACKS, sum, &is_new);
  if (is_new) gmlake_recorder_tell(r, "stack", number, r->stack_text, length, ' ');
  return number;
}

typedef struct gmlake_recorder_origin {
  unsigned numbers[3]; /* of label, pool, stack; 0: none */
} gmlake_recorder_origin;

/* Tells first what is new of it. */
static inline gmlake_recorder_origin gmlake_recorder_ask(gmlake_recorder *r,
                                                         const gmlake_step *event) {
  gmlake_recorder_origin origin;
  origin.numbers[0] = gmlake_recorder_label(r, event->label);
  origin.numbers[1] = gmlake_recorder_pool(r, event->pool);
  origin.numbers[2] = gmlake_recorder_ask_stack(r);
  return origin;
}

/* A remark on the record before: `# of: LABEL POOL STACK`, their numbers or 0. */
static inline void gmlake_recorder_put_origin(gmlake_recorder *r,
                                              const gmlake_recorder_origin *origin) {
  unsigned i;
  if (!(origin->numbers[0] | origin->numbers[1] | origin->numbers[2])) return;
  gmlake_recorder_room(r);
  memcpy(r->text + r->used, "# of:", 5);
  r->used += 5;
  for (i = 0; i < 3; i++) gmlake_recorder_field(r, origin->numbers[i]);
  r->text[r->used++] = '\n';
}

static inline void gmlake_recorder_alloc(gmlake_recorder *r, const gmlake_step *event) {
  const size_t stream = gmlake_recorder_number(r, event->stream);
  gmlake_recorder_origin origin;
  gmlake_recorded *block;
  if (stream == SIZE_MAX) return;
  if (r->block_count * 2 >= r->capacity && !gmlake_recorder_grow(r)) {
    gmlake_recorder_fail(r, ENOMEM);
    return;
  }
  block = gmlake_recorder_find(r, event->address);
  r->block_count += !block->address;
  block->address = event->address;
  block->id = r->next_id++;
  block->uses = 0;
  origin = gmlake_recorder_ask(r, event);
  gmlake_recorder_begin(r, 'a');
  gmlake_recorder_field(r, block->id);
  gmlake_recorder_field(r, event->asked_bytes);
  gmlake_recorder_stream_field(r, stream);
  gmlake_recorder_end(r);
  gmlake_recorder_put_origin(r, &origin);
  gmlake_recorder_sample_if_due(r, stream, r->poll_us);
}

static inline void gmlake_recorder_use(gmlake_recorder *r, const gmlake_step *event) {
  gmlake_recorded *const block = r->capacity ? gmlake_recorder_find(r, event->address) : NULL;
  size_t stream;
  if (!block || !block->address) return;
  stream = gmlake_recorder_number(r, event->stream);
  if (stream == SIZE_MAX) return;
  if (stream < 64) block->uses |= (uint64_t)1 << stream;
  gmlake_recorder_begin(r, 'u');
  gmlake_recorder_field(r, block->id);
  gmlake_recorder_stream_field(r, stream);
  gmlake_recorder_end(r);
  gmlake_recorder_sample_if_due(r, stream, r->poll_us);
}

/* Samples every stream that the block was used on: what is complete there decides when its memory
   may serve again. */
static inline void gmlake_recorder_free(gmlake_recorder *r, const gmlake_step *event) {
  gmlake_recorded *const block = r->capacity ? gmlake_recorder_find(r, event->address) : NULL;
  size_t stream, i;
  uint64_t uses;
  if (!block || !block->address) return;
  stream = gmlake_recorder_number(r, event->stream);
  if (stream == SIZE_MAX) return;
  gmlake_recorder_begin(r, 'f');
  gmlake_recorder_field(r, block->id);
  gmlake_recorder_stream_field(r, stream);
  gmlake_recorder_end(r);
  uses = block->uses;
  gmlake_recorder_remove(r, block);
  gmlake_recorder_sample_if_due(r, stream, 0);
  for (i = 0; uses; i++, uses >>= 1)
    if ((uses & 1) && i != stream) gmlake_recorder_sample_if_due(r, i, 0);
}

/* The buffer that an address lies in; buffer_count: none, for example one that there was before. */
static inline size_t gmlake_recorder_find_buffer(const gmlake_recorder *r, uint64_t address) {
  size_t i = 0;
  while (i < r->buffer_count && address - r->buffers[i].address >= r->buffers[i].bytes) i++;
  return i;
}

static inline void gmlake_recorder_buffer(gmlake_recorder *r, const gmlake_step *event) {
  const size_t capacity = r->buffer_capacity ? 2 * r->buffer_capacity : 64;
  const gmlake_recorder_origin origin = gmlake_recorder_ask(r, event);
  gmlake_recorded_buffer *buffer;
  if (r->buffer_count == r->buffer_capacity) {
    buffer = (gmlake_recorded_buffer *)realloc(r->buffers, capacity * sizeof *buffer);
    if (!buffer) {
      gmlake_recorder_fail(r, ENOMEM);
      return;
    }
    r->buffers = buffer;
    r->buffer_capacity = capacity;
  }
  buffer = &r->buffers[r->buffer_count++];
  buffer->address = event->address;
  buffer->bytes = event->asked_bytes;
  buffer->id = r->next_id++;
  gmlake_recorder_begin(r, 'b');
  gmlake_recorder_field(r, buffer->id);
  gmlake_recorder_field(r, event->asked_bytes);
  gmlake_recorder_field(r, event->bytes);
  gmlake_recorder_end(r);
  gmlake_recorder_put_origin(r, &origin);
}

/* A range of a buffer gets memory, or loses it, or the buffer ends. */
static inline void gmlake_recorder_change(gmlake_recorder *r, const gmlake_step *event) {
  const size_t i = gmlake_recorder_find_buffer(r, event->address);
  const int is_end = event->kind == GMLAKE_STEP_END;
  const char letter = (char)(is_end ? 'f' : event->kind == GMLAKE_STEP_COMMIT ? 'c' : 'x');
  size_t stream;
  if (i == r->buffer_count) return;
  stream = gmlake_recorder_number(r, event->stream);
  if (stream == SIZE_MAX) return;
  gmlake_recorder_begin(r, letter);
  gmlake_recorder_field(r, r->buffers[i].id);
  if (!is_end) gmlake_recorder_field(r, event->address - r->buffers[i].address);
  if (!is_end) gmlake_recorder_field(r, event->bytes);
  gmlake_recorder_stream_field(r, stream);
  gmlake_recorder_end(r);
  if (is_end) r->buffers[i] = r->buffers[--r->buffer_count];
  gmlake_recorder_sample_if_due(r, stream, letter == 'c' ? r->poll_us : 0);
}

static inline void gmlake_recorder_figures(gmlake_recorder *r, const gmlake_step *event) {
  if (event->active_bytes > r->peak_active_bytes) r->peak_active_bytes = event->active_bytes;
  if (event->reserved_bytes > r->peak_reserved_bytes)
    r->peak_reserved_bytes = event->reserved_bytes;
  if (event->kind != GMLAKE_STEP_GROW) return;
  r->grow_ns += event->driver_ns;
  r->grown_bytes += event->bytes;
}

/* Writes the figures so far, if they are not in the file yet. The last ones there count. */
static inline void gmlake_recorder_write_figures(gmlake_recorder *r) {
  const uint64_t sum = r->peak_active_bytes + r->peak_reserved_bytes + r->grow_ns + r->grown_bytes;
  if (sum == r->written_sum) return;
  r->written_sum = sum;
  gmlake_recorder_put(
      r, "# peak_active: %llu\n# peak_reserved: %llu\n# grow_ns: %llu\n# grown_bytes: %llu\n",
      (unsigned long long)r->peak_active_bytes, (unsigned long long)r->peak_reserved_bytes,
      (unsigned long long)r->grow_ns, (unsigned long long)r->grown_bytes);
}

static inline void gmlake_recorder_observe(void *user, const gmlake_step *event) {
  gmlake_recorder *const r = (gmlake_recorder *)user;
  const int is_alloc = event->kind == GMLAKE_STEP_ALLOC && event->state != 5;
  const int is_free = event->kind == GMLAKE_STEP_FREE, is_use = event->kind == GMLAKE_STEP_USE;
  const int is_buffer = event->kind >= GMLAKE_STEP_BUFFER && event->kind <= GMLAKE_STEP_END;
  const int is_grow = event->kind == GMLAKE_STEP_GROW;
  if (!is_alloc && !is_free && !is_use && !is_buffer && !is_grow) return;
  (void)pthread_mutex_lock(&r->mutex);
  gmlake_recorder_figures(r, event);
  r->now_us = gmlake_recorder_now_ns(r) / 1000;
  if (r->now_us < r->time_us) r->now_us = r->time_us; /* a clock that was set */
  if (!r->error) gmlake_recorder_poll(r);
  if (!r->error && is_alloc) gmlake_recorder_alloc(r, event);
  if (!r->error && is_use) gmlake_recorder_use(r, event);
  if (!r->error && is_free) gmlake_recorder_free(r, event);
  if (!r->error && event->kind == GMLAKE_STEP_BUFFER)
    gmlake_recorder_buffer(r, event);
  else if (!r->error && is_buffer)
    gmlake_recorder_change(r, event);
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
  r->poll_us = GMLAKE_RECORDER_POLL_US;
  r->share = GMLAKE_RECORDER_SHARE;
  r->process = getpid();
  r->file = gmlake_recorder_create(path);
  if (r->file < 0) {
    const int error = errno;
    free(r);
    errno = error;
    return NULL;
  }
  (void)pthread_mutex_init(&r->mutex, NULL);
  gmlake_recorder_put(r, "gmtrace 2\n# recorder: gmlake\n");
  gmlake_recorder_enter(r);
  return r;
}

/* The value for desc.observer, if it is not to be sampled when work is complete. The recorder must
   live longer than the lake. NULL is allowed: then nothing is recorded. */
static inline gmlake_observer gmlake_recorder_observer(gmlake_recorder *r) {
  gmlake_observer observer;
  observer.fn = r ? gmlake_recorder_observe : NULL; /* NULL: the lake calls nobody */
  observer.user = r;
  return observer;
}

/* Makes the lake that this describes record: sets desc->observer. On desc->backend, the recorder
   also samples when work is complete; NULL: the file says that it does not. The backend must live
   longer than the recorder. NULL is allowed for r: then nothing is recorded. */
static inline void gmlake_recorder_attach(gmlake_recorder *r, gmlake_desc *desc) {
  desc->observer = gmlake_recorder_observer(r);
  if (!r) return;
  r->backend = desc->backend;
  r->is_sampling = desc->backend != NULL;
  if (!desc->backend)
    gmlake_recorder_put(r, "# left out: when work was complete (desc.backend is NULL)\n");
  if (desc->flags & GMLAKE_STREAMS_MAY_END) gmlake_recorder_put(r, "# streams_may_end: 1\n");
}

/* Samples take at most 1/share of the time; 0: what they take. To be called before the lake is
   created. */
static inline void gmlake_recorder_set_sampling(gmlake_recorder *r, unsigned share) {
  if (r) r->share = share;
}

/* Also records where each allocation comes from: fn is asked in the thread that allocates. A stack
   is written once, and has a number. Call it before the lake is created. */
static inline void gmlake_recorder_set_stacks(gmlake_recorder *r, gmlake_recorder_stack fn,
                                              void *user) {
  if (!r) return;
  r->stack = fn;
  r->stack_user = user;
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
   child of fork. Any other value is the error that ended the recording: an error of the file,
   ENOMEM, or ERANGE for more than 1024 streams. */
static inline int gmlake_recorder_flush(gmlake_recorder *r) {
  int error;
  if (!gmlake_recorder_is_ours(r)) return 0;
  (void)pthread_mutex_lock(&r->mutex);
  gmlake_recorder_write_figures(r);
  gmlake_recorder_write(r);
  error = r->error;
  (void)pthread_mutex_unlock(&r->mutex);
  return error;
}

/* Flushes and closes; returns what flush returns. pre: the lake is destroyed. In a child of fork it
   does nothing. */
static inline int gmlake_recorder_close(gmlake_recorder *r) {
  int error, code = 0;
  size_t i;
  if (!r || !gmlake_recorder_is_ours(r)) return 0;
  error = gmlake_recorder_flush(r);
  if (close(r->file) && !error) error = errno ? errno : EIO;
  gmlake_recorder_leave(r);
  (void)pthread_mutex_destroy(&r->mutex);
  for (i = 0; i < r->stream_count; i++) gmlake_recorder_forget_samples(r, &r->streams[i]);
  while (r->event_count)
    (void)r->backend->event_destroy(r->backend->user, r->events[--r->event_count], &code);
  free(r->events);
  free(r->buffers);
  free(r->blocks);
  free(r);
  return error;
}

#endif
