/* Random traffic on a lake with work in flight: every block is filled by a kernel on its stream
   and verified by another before it is freed. Include after gpu_fixture.h. */
#if !defined(GPU_TRAFFIC_H)
#define GPU_TRAFFIC_H

#define TRAFFIC_STREAMS 4
#define TRAFFIC_BLOCKS 4096

typedef struct block {
  char *ptr;
  size_t bytes;
  uint32_t seed;
  unsigned stream; /* that it was filled on */
} block;

typedef struct traffic {
  gmlake *lake;
  uint64_t random;
  gmlake_stream streams[TRAFFIC_STREAMS];
  size_t live_max, bytes_max; /* of all blocks and of one */
  size_t alignment_max;
  int is_quiet; /* a capture is under way: the host waits for nothing */
  int is_draining;
  block blocks[TRAFFIC_BLOCKS];
  size_t count, live_bytes;
  size_t alloc_count, refused_count, window_count, trimmed_bytes;
} traffic;

/* pre: t->lake, streams and sizes are set, the rest is zero. */
static inline void traffic_seed(traffic *t, uint64_t number) {
  t->random = options.seed * 1000003u + number;
}

/* Two streams that ignore the legacy stream, one that does not, and the legacy stream itself. */
static inline void traffic_new_streams(traffic *t) {
  t->streams[0] = new_stream(CU_STREAM_NON_BLOCKING);
  t->streams[1] = new_stream(CU_STREAM_NON_BLOCKING);
  t->streams[2] = new_stream(CU_STREAM_DEFAULT);
  t->streams[3] = NULL;
}

static inline void traffic_drop_streams(traffic *t) {
  size_t i;
  for (i = 0; i < 3; i++) {
    ok(gmlake_forget_stream(t->lake, t->streams[i]));
    cu(rig.gpu.cuStreamDestroy((CUstream)t->streams[i]));
  }
}

/* The driver without a device takes a microsecond a call. */
static inline uint64_t spin_ns(traffic *t) {
  const uint64_t most = rig.is_fake ? MS_NS / 3 : 3 * MS_NS;
  return most / 60 + below(&t->random, most);
}

static inline CUstream traffic_stream(const traffic *t, unsigned stream) {
  return (CUstream)t->streams[stream];
}

/* A refusal is right only where memory is short: not while half of it is unused. */
static inline void traffic_refused(traffic *t, size_t bytes, gmlake_result result) {
  gmlake_error_info info;
  ok(gmlake_get_last_error(t->lake, &info));
  require(result == GMLAKE_ERROR_LIMIT_REACHED || result == GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY,
          "%zu bytes: %s, %s, driver code %d", bytes, gmlake_result_name(result), info.text,
          info.driver_code);
  require(t->live_bytes + bytes > t->live_max / 2, "%zu bytes refused with %zu of %zu live", bytes,
          t->live_bytes, t->live_max);
  t->refused_count++;
  t->is_draining = 1;
}

static inline void traffic_alloc(traffic *t) {
  gmlake_alloc_desc wanted;
  gmlake_result result;
  block *b = &t->blocks[t->count];
  const size_t dice = below(&t->random, 100);
  const int is_clean = dice < 3; /* memory that no work uses: any stream may have it */
  void *ptr = NULL;
  memset(&wanted, 0, sizeof(wanted));
  b->stream = (unsigned)below(&t->random, TRAFFIC_STREAMS);
  b->bytes = wanted.bytes = random_bytes(&t->random, 512, t->bytes_max);
  if (t->count == TRAFFIC_BLOCKS || t->live_bytes + b->bytes > t->live_max) {
    t->is_draining = 1;
    return;
  }
  if (dice >= 95) wanted.alignment = (size_t)1024 << below(&t->random, 11);
  if (wanted.alignment > t->alignment_max) wanted.alignment = t->alignment_max;
  if (dice >= 90 && dice < 93) wanted.flags = GMLAKE_EXCLUSIVE;
  result = gmlake_alloc_with(t->lake, &wanted, is_clean ? NONE : t->streams[b->stream], &ptr);
  t->alloc_count++;
  if (result != GMLAKE_OK) {
    traffic_refused(t, b->bytes, result);
    return;
  }
  require((uintptr_t)ptr % (wanted.alignment ? wanted.alignment : 512) == 0, "misaligned");
  b->ptr = (char *)ptr;
  b->seed = (uint32_t)random_next(&t->random);
  fill_on(traffic_stream(t, b->stream), ptr, b->bytes, b->seed);
  t->window_count += pieces_of(t->lake, ptr) > 1;
  t->live_bytes += b->bytes;
  t->count++;
}

/* Also used on a second stream, whose use the lake is told of; freed on its own. */
static inline void traffic_free_shared(traffic *t, const block *b, unsigned second) {
  order(traffic_stream(t, b->stream), traffic_stream(t, second));
  if (below(&t->random, 4) == 0) spin_on(traffic_stream(t, second), spin_ns(t));
  verify_on(traffic_stream(t, second), b->ptr, b->bytes, b->seed);
  ok(gmlake_record_stream(t->lake, b->ptr, t->streams[second]));
  verify_on(traffic_stream(t, b->stream), b->ptr, b->bytes, b->seed);
  ok(gmlake_free(t->lake, b->ptr, t->streams[b->stream]));
}

static inline void traffic_free(traffic *t, size_t index) {
  const block b = t->blocks[index];
  const unsigned second = (unsigned)below(&t->random, TRAFFIC_STREAMS);
  const size_t dice = below(&t->random, 100);
  t->blocks[index] = t->blocks[--t->count];
  t->live_bytes -= b.bytes;
  if (dice < 15) {
    traffic_free_shared(t, &b, second);
  } else if (dice < 25) { /* handed over to another stream, and freed there */
    verify_on(traffic_stream(t, b.stream), b.ptr, b.bytes, b.seed);
    order(traffic_stream(t, b.stream), traffic_stream(t, second));
    verify_on(traffic_stream(t, second), b.ptr, b.bytes, b.seed);
    ok(gmlake_free(t->lake, b.ptr, t->streams[second]));
  } else if (dice < 27 && !t->is_quiet) {
    verify_on(traffic_stream(t, b.stream), b.ptr, b.bytes, b.seed);
    await_stream(traffic_stream(t, b.stream));
    ok(gmlake_free(t->lake, b.ptr, NONE));
  } else {
    verify_on(traffic_stream(t, b.stream), b.ptr, b.bytes, b.seed);
    ok(gmlake_free(t->lake, b.ptr, t->streams[b.stream]));
  }
}

/* Fills up, drains to a third, and again, so that holes come and go in all sizes. */
static inline void traffic_step(traffic *t) {
  const size_t dice = below(&t->random, 1000);
  size_t released = 0;
  if (dice < 150) {
    const unsigned stream = (unsigned)below(&t->random, TRAFFIC_STREAMS);
    spin_on(traffic_stream(t, stream), spin_ns(t));
  }
  if (dice >= 992) {
    ok(gmlake_trim(t->lake, below(&t->random, t->live_max), &released));
    t->trimmed_bytes += released;
  }
  if (t->live_bytes < t->live_max / 3) t->is_draining = 0;
  if (!t->count || below(&t->random, 100) < (t->is_draining ? 35u : 70u))
    traffic_alloc(t);
  else
    traffic_free(t, below(&t->random, t->count));
}

static inline void traffic_drain(traffic *t) {
  while (t->count) traffic_free(t, t->count - 1);
}

/* ---- The case -------------------------------------------------------------------------------- */

typedef struct traffic_sums {
  size_t allocs, refusals, windows, trimmed_bytes;
  uint64_t stitches, evictions, stream_waits, host_waits;
} traffic_sums;

static void traffic_add(traffic_sums *sums, const traffic *t) {
  const gmlake_stats stats = stats_of(t->lake);
  sums->allocs += t->alloc_count;
  sums->refusals += t->refused_count;
  sums->windows += t->window_count;
  sums->trimmed_bytes += t->trimmed_bytes;
  sums->stitches += stats.stitch_count;
  sums->evictions += stats.stitch_evict_count;
  sums->stream_waits += stats.stream_wait_count;
  sums->host_waits += stats.host_wait_count;
}

/* Says what has happened, and that enough has. */
static void traffic_report(const traffic_sums *sums, uint64_t rounds) {
  const unsigned long long stitches = sums->stitches, evictions = sums->evictions;
  const unsigned long long waits = sums->stream_waits, host_waits = sums->host_waits;
  tell(
      "%llu rounds: %zu blocks, %zu refused, %llu stitches, %llu evictions, %llu stream and %llu "
      "host waits",
      (unsigned long long)rounds, sums->allocs, sums->refusals, stitches, evictions, waits,
      host_waits);
  require(stitches && evictions && (options.is_slow || waits + host_waits),
          "nothing was tested: %llu stitches, %llu evictions, %llu stream waits", stitches,
          evictions, waits);
  require(sums->windows && sums->trimmed_bytes, "no window was used or nothing was trimmed");
  require(sums->refusals * 20 < sums->allocs, "%zu of %zu requests refused", sums->refusals,
          sums->allocs);
}

static void traffic_run(gmlake_cross_stream cross_stream, size_t chunk_bytes, uint64_t round,
                        traffic_sums *sums) {
  const size_t operations = options.operations / 2;
  static traffic t;
  gmlake_desc desc;
  size_t i, released;
  memset(&t, 0, sizeof(t));
  t.live_max = scale(2 * GIB, 64 * MIB);
  if (t.live_max > rig.device_bytes / 8) t.live_max = rig.device_bytes / 8;
  desc = small_chunks(t.live_max + t.live_max / 8); /* so that the whole ladder is climbed */
  desc.chunk_bytes = t.alignment_max = chunk_bytes;
  desc.cross_stream = cross_stream;
  desc.stitched_bytes_max = t.live_max / 2;
  t.bytes_max = scale(64 * MIB, 8 * MIB);
  t.lake = new_lake(&desc);
  traffic_seed(&t, (uint64_t)cross_stream + 2 * round);
  traffic_new_streams(&t);
  for (i = 1; i <= operations; i++) {
    traffic_step(&t);
    if (i % 1000 == 0) ok(gmlake_check(t.lake));
    if (i % (operations / 4 + 1) == 0) {
      require_no_wrong_words("traffic");
      ok(gmlake_trim(t.lake, 0, &released));
      t.trimmed_bytes += released;
    }
  }
  traffic_drain(&t);
  require_no_wrong_words("traffic");
  traffic_add(sums, &t);
  traffic_drop_streams(&t);
  close_lake(t.lake);
}

/* As many rounds as --rounds says, and as fit into --seconds. */
static void case_traffic(void) {
  const uint64_t end = now_ns() + options.seconds * 1000 * MS_NS;
  uint64_t round = 0;
  traffic_sums sums;
  memset(&sums, 0, sizeof(sums));
  do {
    traffic_run(GMLAKE_GROW_FIRST, CHUNK, round, &sums);
    traffic_run(GMLAKE_WAIT_FIRST, scale(4 * CHUNK, CHUNK), round, &sums);
    round++;
  } while (round < options.rounds || now_ns() < end);
  traffic_report(&sums, round);
}

#endif
