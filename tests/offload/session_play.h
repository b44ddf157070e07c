/* A program under a session: every step's work checks each word that it reads against what the
   order of the calls says, and writes others. What includes it has a device: play_launch. */
#if !defined(SESSION_PLAY_H)
#define SESSION_PLAY_H

#include "offload_fixture.h"

#define KIB ((size_t)1 << 10)
#define PLAY_TENSORS 96
#define PLAY_NAMED 8

typedef struct play_tensor {
  uint32_t id; /* NONE: it does not live */
  char *ptr;
  size_t bytes;
  uint64_t value; /* of its words, by the order of the calls; 0: undefined */
} play_tensor;

typedef struct play {
  gmlake_offload_session *session;
  void *device; /* for play_launch */
  void *stream;
  play_tensor tensors[PLAY_TENSORS];
  uint64_t random, launched;
  uint64_t time_ns;                 /* of each step */
  size_t native_bytes, native_peak; /* if nothing moved, in whole chunks */
  size_t chunk;
  int tolerant; /* calls of the session may fail */
  int unmarked; /* it does not say where its iterations begin */
} play;

/* What a step's work is to find, and to write. */
typedef struct play_work {
  size_t read_count, write_count;
  play_tensor reads[PLAY_NAMED], writes[PLAY_NAMED];
} play_work;

static size_t play_wrong; /* words that were wrong */

static uint64_t play_mix(uint64_t x) {
  x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
  return x ^ (x >> 31);
}

static inline uint64_t play_random(play *p) { return play_mix(p->random += 0x9E3779B97F4A7C15u); }

static void play_fill(const play_tensor *t) {
  size_t i;
  for (i = 0; i + 8 <= t->bytes; i += 8) {
    uint64_t word = t->value + i;
    memcpy(t->ptr + i, &word, 8);
  }
}

static void play_check(const play_tensor *t) {
  size_t i;
  for (i = 0; t->value != 0 && i + 8 <= t->bytes; i += 8) {
    uint64_t word;
    memcpy(&word, t->ptr + i, 8);
    play_wrong += word != t->value + i;
  }
}

static void play_execute(void *user) {
  play_work *work = (play_work *)user;
  size_t i;
  for (i = 0; i < work->read_count; i++) play_check(&work->reads[i]);
  for (i = 0; i < work->write_count; i++) play_fill(&work->writes[i]);
  free(work);
}

/* Queues the work on the stream; it is freed by play_execute. */
static void play_launch(play *p, play_work *work);

static inline gmlake_offload_result play_alloc(play *p, size_t which, size_t bytes) {
  play_tensor *t = &p->tensors[which];
  void *ptr = NULL;
  gmlake_offload_result result =
      gmlake_offload_session_alloc(p->session, bytes, p->stream, &t->id, &ptr);
  if (result != GMLAKE_OFFLOAD_OK) {
    assert_true(t->id == NONE && ptr == NULL);
    assert_true(p->tolerant);
    return result;
  }
  t->ptr = (char *)ptr;
  t->bytes = bytes;
  t->value = 0;
  p->native_bytes += (bytes + p->chunk - 1) / p->chunk * p->chunk;
  if (p->native_bytes > p->native_peak) p->native_peak = p->native_bytes;
  return result;
}

static inline void play_free(play *p, size_t which) {
  play_tensor *t = &p->tensors[which];
  gmlake_offload_result result;
  int tries = 0;
  do {
    result = gmlake_offload_session_free(p->session, t->id, p->stream);
  } while (result != GMLAKE_OFFLOAD_OK && p->tolerant && ++tries < 5);
  assert_ok(result);
  p->native_bytes -= (t->bytes + p->chunk - 1) / p->chunk * p->chunk;
  t->id = NONE;
}

/* A step that reads and writes what is listed (-1 ends a list) and, if `makes` is not -1, makes a
   tensor of so many bytes meanwhile. */
static inline gmlake_offload_result play_step(play *p, uint64_t key, const int *reads,
                                              const int *writes, int makes, size_t bytes) {
  uint32_t read_ids[PLAY_NAMED], write_ids[PLAY_NAMED];
  gmlake_offload_step step;
  gmlake_offload_result result;
  play_work *work = (play_work *)calloc(1, sizeof *work);
  uint64_t value = play_mix(key + 1);
  size_t i;
  assert_non_null(work);
  memset(&step, 0, sizeof step);
  step.stream = p->stream;
  step.key = key;
  step.reads = read_ids;
  step.writes = write_ids;
  for (i = 0; reads != NULL && reads[i] >= 0; i++) {
    work->reads[work->read_count++] = p->tensors[reads[i]];
    value = play_mix(value ^ p->tensors[reads[i]].value);
    read_ids[step.read_count++] = p->tensors[reads[i]].id;
  }
  for (i = 0; writes != NULL && writes[i] >= 0; i++) {
    /* Its old bytes count, too. */
    work->reads[work->read_count++] = p->tensors[writes[i]];
    value = play_mix(value ^ p->tensors[writes[i]].value);
    write_ids[step.write_count++] = p->tensors[writes[i]].id;
  }
  result = gmlake_offload_session_begin(p->session, &step);
  if (result == GMLAKE_OFFLOAD_OK && makes >= 0) {
    result = play_alloc(p, (size_t)makes, bytes);
    if (result != GMLAKE_OFFLOAD_OK) {
      (void)gmlake_offload_session_end(p->session);
    }
  }
  if (result != GMLAKE_OFFLOAD_OK) {
    assert_true(p->tolerant);
    free(work);
    return result;
  }
  for (i = 0; i < step.write_count; i++) {
    p->tensors[writes[i]].value = play_mix(value + i) | 1;
    work->writes[work->write_count++] = p->tensors[writes[i]];
  }
  if (makes >= 0) {
    p->tensors[makes].value = play_mix(value + 99) | 1;
    work->writes[work->write_count++] = p->tensors[makes];
  }
  p->launched++;
  play_launch(p, work);
  result = gmlake_offload_session_end(p->session);
  assert_true(result == GMLAKE_OFFLOAD_OK || p->tolerant);
  return GMLAKE_OFFLOAD_OK;
}

static inline gmlake_offload_session_stats play_stats(const play *p) {
  gmlake_offload_session_stats stats;
  stats.struct_bytes = 0;
  assert_ok(gmlake_offload_session_get_stats(p->session, &stats));
  return stats;
}

#define PLAY_W 0  /* weights, */
#define PLAY_M 16 /* states, */
#define PLAY_A 32 /* activations and */
#define PLAY_G 48 /* gradients, by layer */
#define PLAY_X 64 /* a gradient on its way, twice */

static inline void play_mark(const play *p) {
  if (!p->unmarked) assert_ok(gmlake_offload_session_mark(p->session));
}

/* An iteration of training; layers whose bit is set in `odd` do one step more. pre: PLAY_W and
   PLAY_M live. */
static inline void play_train(play *p, int layers, size_t bytes, unsigned odd) {
  int i;
  play_mark(p);
  for (i = 0; i < layers; i++) {
    int reads[] = {PLAY_W + i, i != 0 ? PLAY_A + i - 1 : -1, -1}, again[] = {PLAY_A + i, -1};
    assert_ok(play_step(p, 100, reads, NULL, PLAY_A + i, bytes + (size_t)i * 64));
    if ((odd >> i & 1) != 0) assert_ok(play_step(p, 101, NULL, again, -1, 0));
  }
  assert_ok(play_step(p, 102, NULL, NULL, PLAY_X + layers % 2, bytes));
  for (i = layers; i-- > 0;) {
    int now = PLAY_X + (i + 1) % 2, next = PLAY_X + i % 2;
    int reads[] = {PLAY_W + i, PLAY_A + i, now, -1}, writes[] = {next, -1};
    assert_ok(play_step(p, 103, reads, NULL, next, bytes));
    play_free(p, (size_t)now);
    assert_ok(play_step(p, 104, writes, NULL, PLAY_G + i, bytes / 2));
    play_free(p, (size_t)(PLAY_A + i));
  }
  play_free(p, PLAY_X);
  for (i = 0; i < layers; i++) {
    int reads[] = {PLAY_G + i, -1}, writes[] = {PLAY_M + i, PLAY_W + i, -1};
    assert_ok(play_step(p, 105, reads, writes, -1, 0));
    play_free(p, (size_t)(PLAY_G + i));
  }
}

#define PLAY_Y 16 /* [regions] what a layer hands on, */
#define PLAY_H 32 /* what it makes on the way, */
#define PLAY_U 48
#define PLAY_D 72 /* and the gradients of its weights */

/* The first steps of a layer, which make what its backward steps need, too. */
static inline void play_layer(play *p, int i, uint64_t key, size_t bytes) {
  int reads[] = {PLAY_W + i, i != 0 ? PLAY_Y + i - 1 : -1, -1}, middle[] = {PLAY_H + i, -1};
  assert_ok(play_step(p, key, reads, NULL, PLAY_H + i, bytes));
  assert_ok(play_step(p, 201, middle, NULL, PLAY_U + i, 2 * bytes));
}

/* An iteration of training in which each layer is a region: unless the session says that it is kept
   its first steps are executed again in the backward pass. Layers whose bit is set in `odd` do
   something else then; those in `more` begin with a step more, and make another one if they are
   kept. Returns how many were kept. pre: PLAY_W live. */
static inline int play_train_regions(play *p, int layers, size_t bytes, unsigned odd,
                                     unsigned more) {
  uint64_t regions[16];
  int i, kept[16], count = 0;
  play_mark(p);
  for (i = 0; i < layers; i++) {
    int out[] = {PLAY_U + i, -1};
    assert_ok(gmlake_offload_session_region(p->session, &regions[i], &kept[i]));
    if ((more >> i & 1) != 0) assert_ok(play_step(p, 209, NULL, NULL, -1, 0));
    play_layer(p, i, 200, bytes);
    assert_ok(play_step(p, 202, out, NULL, PLAY_Y + i, bytes));
    assert_ok(gmlake_offload_session_region_end(p->session, 0));
    count += kept[i];
    if (kept[i]) continue;
    play_free(p, (size_t)(PLAY_H + i));
    play_free(p, (size_t)(PLAY_U + i));
  }
  assert_ok(play_step(p, 203, NULL, NULL, PLAY_X + layers % 2, bytes));
  for (i = layers; i-- > 0;) {
    int now = PLAY_X + (i + 1) % 2, next = PLAY_X + i % 2;
    int reads[] = {PLAY_U + i, now, -1}, writes[] = {next, -1};
    int last[] = {PLAY_H + i, PLAY_W + i, next, -1};
    if (!kept[i]) {
      assert_ok(gmlake_offload_session_recompute(p->session, regions[i]));
      play_layer(p, i, (odd >> i & 1) != 0 ? 208 : 200, bytes);
      assert_ok(gmlake_offload_session_region_end(p->session, 0));
    } else if ((more >> i & 1) != 0) {
      assert_ok(play_step(p, 207, NULL, NULL, -1, 0));
    }
    assert_ok(play_step(p, 204, reads, NULL, next, bytes));
    play_free(p, (size_t)now);
    play_free(p, (size_t)(PLAY_U + i));
    assert_ok(play_step(p, 205, last, writes, PLAY_D + i, bytes));
    play_free(p, (size_t)(PLAY_H + i));
    play_free(p, (size_t)(PLAY_Y + i));
  }
  play_free(p, PLAY_X);
  for (i = 0; i < layers; i++) {
    int reads[] = {PLAY_D + i, -1}, writes[] = {PLAY_W + i, -1};
    assert_ok(play_step(p, 206, reads, writes, -1, 0));
    play_free(p, (size_t)(PLAY_D + i));
  }
  return count;
}

/* Makes the weights and states, before the first iteration. */
static inline void play_setup(play *p, int layers, size_t bytes) {
  int i;
  for (i = 0; i < layers; i++) {
    assert_ok(play_step(p, 106, NULL, NULL, PLAY_W + i, bytes));
    assert_ok(play_step(p, 107, NULL, NULL, PLAY_M + i, bytes * 2));
  }
}

#endif
