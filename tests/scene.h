/* Scenes: what is done to a lake, and what has to come of it, in a line of words. Tests that need
   nothing else are rows of a table. gmlake_check follows each call of the lake. The words are those
   of fault/scenarios.h, as far as they go. Include after fixture.h.

   A to F are streams, 0 is the legacy stream (also where none is named), n is STREAM_NONE. Small
   letters are blocks, digits are pools or buffers. Sizes are in chunks; with k in KiB, with b in
   bytes; and may be sums and differences: 8-512b.

     +p=2@A/0xsg^4k  allocate block p, from pool 0, EXCLUSIVE, NO_STITCH, NO_GROW, aligned to 4 KiB;
                     all of it is written to
     +a-d=1@A        blocks a to d, one after the other; +*=1@A a block that is not named again
     +q=2@B==p+1     it lies one chunk behind the begin of p; <>p elsewhere; >p+1 there or behind
     -pq@A           free blocks p and q; -pq is on the legacy stream
     ~p=2@A          allocate p and free it at once, on that stream
     rp@A  fA        record stream A on block p; forget stream A
     kA  vA          stream A is destroyed; and another one has its value from then on
     hA  eA          work is pending on A; is done
     gA:9  t:9       work on A takes 9 ns; the clock says 9 ns
     P0  P0:4  D0    create pool 0, with a limit of 4 chunks; destroy it
     BA:0  EA        begin a capture on A into pool 0, for the lake and the driver; end it
     N0:8  z0:3@A  K0@A   create buffer 0 of at most 8 chunks; resize it to 3; destroy it
     N0:8/1^2        in pool 1, with chunks of 2 chunks
     c0:2,3@A d0:2,3@A   commit, discard 3 chunks of buffer 0 from its chunk 2 on
     put:0,2,3=7  page:0,2,3=7   write 7, 8 and 9 to those chunks; they hold that
     S0:k=5 Sn:d  W0 pool 0 falls asleep and keeps its contents, 5 chunks are given back; what is in
                     no pool does and drops them; pool 0 wakes
     T:1=2  Q        trim to 1 chunk, which returns 2; ask for the budget
     [9 steps ]      nine times
     X               the lake is destroyed; else it is at the end, with the blocks that it has
     !O              behind a step: it fails. O out of memory, L limit, I invalid argument,
                     C capturing, U unknown pointer, D double free, R driver, G device lost,
                     A asleep, B busy
     fail:record=2R  the second call from here of that kind fails so; R* and all behind it; 0 none

   A word with = compares: waits=1 (scene_figure has the names), behind:A=1 (new work on A has to
   wait), pieces:w=2, home:w1=p (piece 1 of w lies where p does), size:w1=1, pool:p=0 or n,
   holds:p=1 (all of p is as `+` wrote it), map:0=m..m (of buffer 0's chunks two are memory),
   end:0=4 (of buffer 0), inside:0=4 (what pool 0 holds).

   `mark` notes the figures: state, splits, stitches, reuses, evictions, calls and grown are those
   since. told- is the last error.

   The options of a row: wait-first (desc.cross_stream), may-end (GMLAKE_STREAMS_MAY_END),
   limit:SIZE (limit_bytes), smax:SIZE (stitched_bytes_max), smin:SIZE (stitch_bytes_min),
   window:SIZE, arena:SIZE, keep:SIZE (driver_free_bytes_min), handle:SIZE (handle_bytes),
   chunk:SIZE (chunk_bytes; a chunk of the steps stays what it is). */
#if !defined(SCENE_H)
#define SCENE_H

#include <stddef.h>

typedef struct scene {
  const char *name;
  size_t chunks;
  const char *options, *steps;
} scene;

static struct {
  const char *at, *word; /* what is read next; the step that is under way, NULL: none */
  char *blocks[26];
  gmlake_stream streams[6];
  gmlake_pool *pools[4];
  gmlake_buffer *buffers[4];
  gmlake_budget budget; /* as it was asked for last */
  gmlake_stats mark;
} played;

/* ---- Reading --------------------------------------------------------------------------------- */

static int scene_reads(char c) {
  if (*played.at != c) return 0;
  played.at++;
  return 1;
}

static void scene_needs(char c) { assert_true(scene_reads(c)); }

static size_t scene_number(void) {
  char *end;
  size_t number = (size_t)strtoull(played.at, &end, 10);
  assert_true(end != played.at);
  played.at = end;
  return number;
}

static size_t scene_size(void) {
  size_t bytes = 0;
  int is_less = 0;
  do {
    size_t term = scene_number();
    term *= scene_reads('b') ? 1 : scene_reads('k') ? K : C;
    bytes = is_less ? bytes - term : bytes + term;
    is_less = *played.at == '-';
  } while (scene_reads('+') || scene_reads('-'));
  return bytes;
}

static size_t scene_digit(void) {
  assert_in_range(*played.at, '0', '3');
  return (size_t)(*played.at++ - '0');
}

static char **scene_block(void) {
  static char *unnamed;
  if (scene_reads('*')) return &unnamed;
  assert_in_range(*played.at, 'a', 'z');
  return &played.blocks[*played.at++ - 'a'];
}

static gmlake_stream scene_stream(void) {
  if (scene_reads('0')) return LEGACY;
  if (scene_reads('n')) return NONE;
  assert_in_range(*played.at, 'A', 'F');
  return played.streams[*played.at++ - 'A'];
}

static gmlake_stream scene_at_stream(void) { return scene_reads('@') ? scene_stream() : LEGACY; }

static gmlake_result scene_result(void) {
  static const char letters[] = "OLICUDRGAB";
  static const gmlake_result results[] = {
      GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY,
      GMLAKE_ERROR_LIMIT_REACHED,
      GMLAKE_ERROR_INVALID_ARGUMENT,
      GMLAKE_ERROR_CAPTURING,
      GMLAKE_ERROR_UNKNOWN_POINTER,
      GMLAKE_ERROR_DOUBLE_FREE,
      GMLAKE_ERROR_DRIVER,
      GMLAKE_ERROR_DEVICE_LOST,
      GMLAKE_ERROR_ASLEEP,
      GMLAKE_ERROR_BUSY,
  };
  const char *letter = strchr(letters, *played.at);
  assert_true(*played.at && letter);
  played.at++;
  return results[letter - letters];
}

/* A call of the lake gave this: what the step says it does. */
static void scene_gave(gmlake_result result) {
  gmlake_result expected = scene_reads('!') ? scene_result() : GMLAKE_OK;
  assert_int_equal(result, expected);
  if (lake) assert_ok(gmlake_check(lake));
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static gmlake_alloc_desc scene_request(size_t bytes) {
  gmlake_alloc_desc wanted = request(bytes, 0, NULL);
  if (!scene_reads('/')) return wanted;
  if (*played.at >= '0' && *played.at <= '9') wanted.pool = played.pools[scene_digit()];
  if (scene_reads('x')) wanted.flags |= GMLAKE_EXCLUSIVE;
  if (scene_reads('s')) wanted.flags |= GMLAKE_NO_STITCH;
  if (scene_reads('g')) wanted.flags |= GMLAKE_NO_GROW;
  if (scene_reads('^')) wanted.alignment = scene_size();
  return wanted;
}

/* Where the block has to lie, if the step says so. */
static void scene_lies(const char *block) {
  const char relation = *played.at;
  const char *place;
  if (!relation || relation == ' ') return;
  played.at += relation == '>' ? 1 : 2;
  place = *scene_block();
  if (scene_reads('+')) place += scene_size();
  if (relation == '=') assert_ptr_equal(block, place);
  if (relation == '<') assert_ptr_not_equal(block, place);
  if (relation == '>') assert_true(block >= place);
}

static void scene_alloc(int is_freed) {
  char **block = scene_block(), **last = scene_reads('-') ? scene_block() : block;
  size_t bytes;
  gmlake_stream stream;
  gmlake_alloc_desc wanted;
  scene_needs('=');
  bytes = scene_size();
  stream = scene_at_stream();
  wanted = scene_request(bytes);
  if (*played.at == '!') {
    scene_gave(try_with(&wanted, stream));
    return;
  }
  for (; block <= last; block++) {
    *block = (char *)take_with(&wanted, stream);
    memset(*block, 0xA5, bytes);
    if (wanted.alignment) assert_int_equal((uintptr_t)*block % wanted.alignment, 0);
    if (wanted.flags & GMLAKE_EXCLUSIVE) assert_int_equal((uintptr_t)*block % C, 0);
  }
  scene_lies(*last);
  if (is_freed) drop_on(*last, stream);
}

static void scene_free(void) {
  char *blocks[26];
  size_t count = 0, i;
  gmlake_stream stream;
  while (*played.at >= 'a' && *played.at <= 'z') blocks[count++] = *scene_block();
  stream = scene_at_stream();
  for (i = 0; i < count; i++) scene_gave(gmlake_free(lake, blocks[i], stream));
}

static void scene_capture(int begins) {
  gmlake_stream stream = scene_stream();
  if (begins) {
    gmlake_result result;
    scene_needs(':');
    result = gmlake_capture_begin(lake, stream, played.pools[scene_digit()]);
    scene_gave(result);
    if (!result) assert_ok(gmlake_mock_capture_begin(mock, stream));
  } else {
    assert_ok(gmlake_mock_capture_end(mock, stream)); /* nothing has spoilt it */
    scene_gave(gmlake_capture_end(lake, stream));
  }
}

static void scene_pool(int is_opened) {
  gmlake_pool **pool = &played.pools[scene_digit()];
  if (is_opened)
    *pool = open_pool(scene_reads(':') ? scene_size() : 0);
  else
    scene_gave(gmlake_pool_destroy(lake, *pool));
}

static void scene_buffer_opens(void) {
  gmlake_buffer **buffer = &played.buffers[scene_digit()];
  gmlake_buffer_desc wanted;
  scene_needs(':');
  wanted = buffer_desc(scene_size());
  if (scene_reads('/')) wanted.pool = played.pools[scene_digit()];
  if (scene_reads('^')) wanted.chunk_bytes = scene_size();
  scene_gave(gmlake_buffer_create(lake, &wanted, buffer));
}

static void scene_buffer(char what) {
  gmlake_buffer **buffer = &played.buffers[scene_digit()];
  size_t bytes = scene_reads(':') ? scene_size() : 0;
  const size_t count = scene_reads(',') ? scene_size() : 0;
  gmlake_stream stream = scene_at_stream();
  if (what == 'c') scene_gave(gmlake_buffer_commit(lake, *buffer, bytes, count, stream));
  if (what == 'd') scene_gave(gmlake_buffer_discard(lake, *buffer, bytes, count, stream));
  if (what == 'z') scene_gave(gmlake_buffer_resize(lake, *buffer, bytes, stream));
  if (what == 'K') scene_gave(gmlake_buffer_destroy(lake, *buffer, stream));
}

static void scene_trim(void) {
  size_t keep, released;
  scene_needs(':');
  keep = scene_size();
  released = trim_to(keep);
  if (scene_reads('=')) assert_int_equal(released, scene_size());
}

static void scene_of_stream(char step) {
  gmlake_stream stream = scene_stream();
  if (step == 'f') scene_gave(gmlake_forget_stream(lake, stream));
  if (step == 'h') gmlake_mock_stream_hold(mock, stream);
  if (step == 'e') gmlake_mock_stream_finish(mock, stream);
  if (step == 'g') gmlake_mock_stream_set_lag(mock, stream, (scene_needs(':'), scene_number()));
  if (step == 'k' || step == 'v') gmlake_mock_stream_destroy(mock, stream);
  if (step == 'v') assert_ptr_equal(open_stream(), stream);
}

static void scene_sleep(void) {
  gmlake_pool *pool = scene_reads('n') ? NULL : played.pools[scene_digit()];
  gmlake_result result;
  size_t released = 1;
  int keeps;
  scene_needs(':');
  keeps = scene_reads('k');
  if (!keeps) scene_needs('d');
  result = gmlake_pool_sleep(lake, pool, keeps ? GMLAKE_SLEEP_KEEP : GMLAKE_SLEEP_DROP, &released);
  if (scene_reads('=')) assert_int_equal(released, scene_size());
  scene_gave(result);
}

static void scene_wake(void) {
  gmlake_pool *pool = scene_reads('n') ? NULL : played.pools[scene_digit()];
  scene_gave(gmlake_pool_wake(lake, pool));
}

static void scene_record(void) {
  char *block = *scene_block();
  scene_gave(gmlake_record_stream(lake, block, scene_at_stream()));
}

static void scene_destroy(void) {
  gmlake_result result = gmlake_destroy(lake);
  lake = NULL;
  scene_gave(result);
}

/* ---- What is compared ------------------------------------------------------------------------ */

/* Whether work queued on the stream now would have to wait for something. */
static int is_behind(gmlake_stream stream) {
  void *event = NULL;
  int code, done = 0;
  assert_ok(mock->event_create(mock->user, &event, &code));
  assert_ok(mock->event_record(mock->user, event, stream, &code));
  assert_ok(mock->event_query(mock->user, event, &done, &code));
  assert_ok(mock->event_destroy(mock->user, event, &code));
  return !done;
}

/* The word and its name are one. */
static int scene_is(const char *word, const char *name, size_t length) {
  return strlen(word) == length && !strncmp(word, name, length);
}

/* The state that served the only attempt since the mark; else 0. */
static uint64_t scene_state(const gmlake_stats *now) {
  uint64_t sum = 0, state = 0, i;
  for (i = 0; i < 5; i++) {
    const uint64_t count = now->state_count[i] - played.mark.state_count[i];
    sum += count;
    if (count) state = i + 1;
  }
  return sum == 1 ? state : 0;
}

typedef struct scene_row {
  const char *name;
  uint64_t value;
  int is_size; /* in bytes */
} scene_row;

/* The figure of that name; *is_size where it is in bytes. */
static gmlake_error_info scene_error(void) {
  static const gmlake_error_info none;
  return lake ? last_error() : none;
}

static uint64_t scene_figure(const char *name, size_t length, int *is_size) {
  static const gmlake_stats none;
  const gmlake_stats now = lake ? stats() : none;
  const gmlake_mock_census driver = census();
  const gmlake_error_info error = scene_error();
  const scene_row figures[] = {
      {"reserved", now.reserved_bytes, 1},
      {"reserved-peak", now.reserved_bytes_peak, 1},
      {"active", now.active_bytes, 1},
      {"requested", now.requested_bytes, 1},
      {"requested-peak", now.requested_bytes_peak, 1},
      {"pending", now.pending_bytes, 1},
      {"pending-peak", now.pending_bytes_peak, 1},
      {"stitched", now.stitched_bytes, 1},
      {"stitched-peak", now.stitched_bytes_peak, 1},
      {"quarantined", now.quarantined_bytes, 1},
      {"grown", now.reserved_bytes - played.mark.reserved_bytes, 1},
      {"live", now.live_count, 0},
      {"failures", now.oom_count, 0},
      {"chunks", now.chunk_count, 0},
      {"windows", now.window_count, 0},
      {"buffers", now.buffer_count, 0},
      {"buffer-bytes", now.buffer_bytes, 1},
      {"buffer-bytes-peak", now.buffer_bytes_peak, 1},
      {"sleeping", now.sleeping_bytes, 1},
      {"state", scene_state(&now), 0},
      {"splits", now.split_count - played.mark.split_count, 0},
      {"stitches", now.stitch_count - played.mark.stitch_count, 0},
      {"reuses", now.stitch_reuse_count - played.mark.stitch_reuse_count, 0},
      {"evictions", now.stitch_evict_count - played.mark.stitch_evict_count, 0},
      {"calls", now.driver_call_count - played.mark.driver_call_count, 0},
      {"events", now.event_count, 0},
      {"waits", now.stream_wait_count, 0},
      {"host-waits", now.host_wait_count, 0},
      {"lost-streams", lake ? lake->streams.lost_count : 0, 0},
      {"idle", played.budget.idle_bytes, 1},
      {"at-work", played.budget.pending_bytes, 1},
      {"allocatable", played.budget.allocatable_bytes, 1},
      {"told-asked", error.asked_bytes, 1},
      {"told-limit", error.limit_bytes, 1},
      {"told-free", error.free_bytes, 1},
      {"told-pending", error.pending_bytes, 1},
      {"told-driver-free", error.driver_free_bytes, 1},
      {"driver-events", driver.event_count, 0},
      {"driver-host-waits", driver.host_wait_count, 0},
      {"driver-bytes", driver.physical_bytes, 1},
      {"handles", driver.handle_count, 0},
      {"mappings", driver.mapping_count, 0},
      {"mapped", mapped_count(), 0}, /* but at home */
      {"reservations", driver.reservation_count, 0},
      {"host-ranges", driver.host_count, 0}, /* that the driver gave on the host */
  };
  size_t i;
  for (i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
    *is_size = figures[i].is_size;
    if (scene_is(figures[i].name, name, length)) return figures[i].value;
  }
  fail_msg("no figure has this name: %.*s", (int)length, name);
  return 0;
}

static int scene_fault_kind(void) {
  static const char *const names[ON_KINDS] = {
      "reserve", "create", "release",     "map",      "unmap",     "access",        "record",
      "query",   "wait",   "stream-wait", "exchange", "unreserve", "event-destroy", "memory-info",
  };
  int kind;
  for (kind = 0; kind < ON_KINDS; kind++) {
    size_t length = strlen(names[kind]);
    if (strncmp(played.at, names[kind], length) || played.at[length] != '=') continue;
    played.at += length + 1;
    return kind;
  }
  fail_msg("no such call of the driver");
  return 0;
}

static void scene_fault(void) {
  int kind = scene_fault_kind();
  size_t in = scene_number();
  gmlake_result result = in ? scene_result() : GMLAKE_OK;
  fail_call(kind, (long)in, result, scene_reads('*'));
}

/* Whether a block is as it was written when it was allocated. */
static uint64_t scene_holds(const char *block) {
  gmlake_allocation_info info;
  size_t i = 0;
  assert_ok(gmlake_get_allocation(lake, block, &info));
  while (i < info.requested_bytes && (unsigned char)block[i] == 0xA5) i++;
  return i == info.requested_bytes;
}

/* Writes a byte to chunks of a buffer, or compares. */
static void scene_pages(int is_written) {
  gmlake_buffer *buffer = played.buffers[scene_digit()];
  gmlake_buffer_info info;
  unsigned char *at;
  size_t bytes, i;
  int byte;
  assert_ok(gmlake_buffer_get_info(lake, buffer, &info));
  scene_needs(',');
  at = (unsigned char *)info.ptr + scene_size();
  scene_needs(',');
  bytes = scene_size();
  scene_needs('=');
  byte = (int)scene_number();
  for (i = 0; i < bytes && !is_written; i++) assert_int_equal(at[i], byte + (int)(i / C));
  for (i = 0; i < bytes && is_written; i += C) memset(at + i, byte++, C);
}

static uint64_t scene_pool_holds(const gmlake_pool *pool) {
  gmlake_stats now;
  now.struct_bytes = 0;
  assert_ok(gmlake_pool_get_stats(lake, (gmlake_pool *)(uintptr_t)pool, &now));
  return now.reserved_bytes;
}

/* A word about a buffer. */
static void scene_compare_buffer(int is_map) {
  gmlake_buffer *buffer = played.buffers[scene_digit()];
  gmlake_buffer_info info;
  uint32_t i = 0, count = 0;
  scene_needs('=');
  assert_ok(gmlake_buffer_get_info(lake, buffer, &info));
  if (!is_map) assert_int_equal(info.bytes, scene_size());
  for (; is_map && strchr("m.", *played.at) && *played.at; i++) {
    count += *played.at == 'm';
    assert_int_equal(*played.at++ == 'm', gmlk_is_committed(buffer, i));
  }
  if (is_map) assert_int_equal(info.committed_bytes, count * info.chunk_bytes);
  for (; is_map && i < buffer->place_count; i++) assert_false(gmlk_is_committed(buffer, i));
}

/* A word about a block, a stream or a buffer. */
static void scene_compare_one(const char *name, size_t length) {
  if (scene_is("map", name, length) || scene_is("end", name, length)) {
    scene_compare_buffer(*name == 'm');
  } else if (scene_is("put", name, length) || scene_is("page", name, length)) {
    scene_pages(length == 3);
  } else if (scene_is("inside", name, length)) {
    const gmlake_pool *pool = played.pools[scene_digit()];
    scene_needs('=');
    assert_int_equal(scene_pool_holds(pool), scene_size());
  } else if (scene_is("behind", name, length)) {
    gmlake_stream stream = scene_stream();
    scene_needs('=');
    assert_int_equal(is_behind(stream), scene_number());
  } else {
    char *block = *scene_block();
    size_t number = *played.at == '=' ? 0 : scene_digit();
    scene_needs('=');
    if (scene_is("pieces", name, length)) {
      assert_int_equal(piece_count(block), scene_number());
    } else if (scene_is("home", name, length)) {
      char *home = *scene_block();
      assert_ptr_equal(piece(block, number).home, scene_reads('+') ? home + scene_size() : home);
    } else if (scene_is("size", name, length)) {
      assert_int_equal(piece(block, number).bytes, scene_size());
    } else if (scene_is("holds", name, length)) {
      assert_int_equal(scene_holds(block), scene_number());
    } else {
      gmlake_allocation_info info;
      assert_true(scene_is("pool", name, length));
      assert_ok(gmlake_get_allocation(lake, block, &info));
      assert_ptr_equal(info.pool, scene_reads('n') ? NULL : played.pools[scene_digit()]);
    }
  }
}

static void scene_compare(size_t length) {
  const char *name = played.at;
  int is_size;
  uint64_t value;
  played.at += length;
  if (scene_reads(':')) {
    if (scene_is("fail", name, length))
      scene_fault();
    else
      scene_compare_one(name, length);
    return;
  }
  if (scene_is("mark", name, length)) {
    played.mark = stats();
    return;
  }
  scene_needs('=');
  value = scene_figure(name, length, &is_size);
  assert_int_equal(value, is_size ? scene_size() : scene_number());
}

/* ---- Playing --------------------------------------------------------------------------------- */

static void scene_clock(void) {
  scene_needs(':');
  gmlake_mock_set_clock(mock, scene_number());
}

static void scene_step(void) {
  size_t letters = strspn(played.at, "abcdefghijklmnopqrstuvwxyz-");
  const char what = *played.at;
  if (letters > 2 && what != '-') {
    scene_compare(letters);
    return;
  }
  assert_non_null(strchr("+~-rBEPDNzcdKSWTtQXfhegkv", what));
  played.at++;
  if (what == '+' || what == '~') scene_alloc(what == '~');
  if (what == '-') scene_free();
  if (what == 'r') scene_record();
  if (what == 'B' || what == 'E') scene_capture(what == 'B');
  if (what == 'P' || what == 'D') scene_pool(what == 'P');
  if (what == 'N') scene_buffer_opens();
  if (strchr("zcdK", what)) scene_buffer(what);
  if (what == 'S') scene_sleep();
  if (what == 'W') scene_wake();
  if (what == 'T') scene_trim();
  if (what == 't') scene_clock();
  if (what == 'Q') step(gmlake_get_budget(lake, &played.budget));
  if (what == 'X') scene_destroy();
  if (strchr("fhegkv", what)) scene_of_stream(what);
}

static void scene_steps(void) {
  while (*played.at && *played.at != ']') {
    const char *first;
    size_t times;
    played.word = played.at;
    if (scene_reads(' ')) continue;
    if (!scene_reads('[')) {
      scene_step();
      assert_true(!*played.at || *played.at == ' '); /* no word is left in part */
      continue;
    }
    for (times = scene_number(), first = played.at; times; times--) {
      played.at = first;
      scene_steps();
    }
    scene_needs(']');
  }
}

/* The lake of a scene, and its streams. */
static void scene_open(const scene *s) {
  const struct {
    const char *name;
    size_t *bytes;
  } sizes[] = {
      {"handle:", &desc.handle_bytes},        {"limit:", &desc.limit_bytes},
      {"smax:", &desc.stitched_bytes_max},    {"smin:", &desc.stitch_bytes_min},
      {"window:", &desc.window_bytes},        {"arena:", &desc.arena_bytes},
      {"keep:", &desc.driver_free_bytes_min}, {"chunk:", &desc.chunk_bytes},
  };
  size_t i;
  memset(&played, 0, sizeof(played));
  prepare(s->chunks);
  for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
    const char *found = strstr(s->options, sizes[i].name);
    if (!found) continue;
    played.at = found + strlen(sizes[i].name);
    *sizes[i].bytes = scene_size();
  }
  if (strstr(s->options, "wait-first")) desc.cross_stream = GMLAKE_WAIT_FIRST;
  if (strstr(s->options, "may-end")) desc.flags = GMLAKE_STREAMS_MAY_END;
  use_faults();
  open_lake();
  for (i = 0; i < sizeof(played.streams) / sizeof(played.streams[0]); i++)
    played.streams[i] = open_stream();
  played.at = s->steps;
}

static void play_one(const scene *s) {
  scene_open(s);
  scene_steps();
  assert_true(!*played.at);
  if (lake) assert_ok(gmlake_destroy(lake));
  close_mock();
  played.word = NULL;
}

static void play_scene(void **state) { play_one((const scene *)*state); }

/* How many calls of the driver a change takes, behind what was done before: where buffers have
   chunks of their own, and where blocks may have them, too. */
typedef struct scene_cost {
  const char *before, *change;
  unsigned calls[2];
} scene_cost;

static inline void play_costs(const scene_cost *costs, size_t count, int column) {
  scene s = {"costs", 32, "", NULL};
  char steps[256];
  size_t i;
  for (i = 0; i < count; i++) {
    (void)snprintf(steps, sizeof(steps), "%s mark %s calls=%u", costs[i].before, costs[i].change,
                   costs[i].calls[column]);
    s.steps = steps;
    print_message("%s | %s\n", costs[i].before, costs[i].change);
    play_one(&s);
  }
}

/* After each scene: where it failed. */
static int tell_scene(void **state) {
  if (played.word) print_error("%s: at `%s`\n", ((const scene *)*state)->name, played.word);
  return 0;
}

/* Runs the tests and the scenes as one group. */
static int run_with_scenes(const struct CMUnitTest *tests, size_t test_count, const scene *scenes,
                           size_t scene_count) {
  struct CMUnitTest *all = (struct CMUnitTest *)calloc(test_count + scene_count, sizeof(*all));
  size_t i;
  int failed;
  if (!all) return 1;
  memcpy(all, tests, test_count * sizeof(*all));
  for (i = 0; i < scene_count; i++) {
    all[test_count + i].name = scenes[i].name;
    all[test_count + i].test_func = play_scene;
    all[test_count + i].teardown_func = tell_scene;
    all[test_count + i].initial_state = (void *)(uintptr_t)&scenes[i];
  }
  failed = _cmocka_run_group_tests("tests", all, test_count + scene_count, NULL, NULL);
  free(all);
  return failed;
}

#endif /* SCENE_H */
