/* Words that compare: a figure of the lake or of the driver, where a block lies, what a buffer
   shows. language.h says how they are written. Include after figures.h. */
#if !defined(PLAY_EXPECT_H)
#define PLAY_EXPECT_H

#include "figures.h"

static struct compared { /* what words before have noted */
  gmlake_stats mark;
  size_t all_calls; /* as the judge had seen then */
  uint64_t turns, clock_reads;
  size_t released; /* as a trim or a sleep told last */
  gmlake_budget budget;
  gmlake_query_info foretold;
  size_t lacking; /* as an admission told last */
} compared;

/* The state that served the only attempt since the mark; else 0. */
static uint64_t state_since(const gmlake_stats *all) {
  uint64_t sum = 0, state = 0, i;
  for (i = 0; i < 5; i++) {
    const uint64_t count = all->state_count[i] - compared.mark.state_count[i];
    sum += count;
    if (count) state = i + 1;
  }
  return sum == 1 ? state : 0;
}

/* Mapped at home. After a commit of buffers apart has failed the lake may keep such a handle that
   is not mapped: "mapped" is then too small by it, and a row compares "mappings". */
static size_t handles_at_home(void) {
  size_t count = 0, i;
  for (i = 0; i < HANDLES; i++) count += w.handles[i].value && !w.handles[i].is_odd;
  return count;
}

/* Streams that are forgotten while work on them is not known to be complete. */
static size_t lost_streams(void) {
  size_t lost = 0, i;
  for (i = lake ? GMLK_FIRST_STREAM : 0; lake && i < lake->streams.count; i++)
    lost += lake->streams.items[i]->is_forgotten && lake->streams.items[i]->is_dirty;
  return lost;
}

#define AS_FIGURE(name, form, value) {name, (uint64_t)(value)},

/* Where the lake is gone, its figures are 0. */
static uint64_t figure_of(const char *name) {
  static const gmlk_streams no_streams;
  static const gmlake_stats no_stats;
  const gmlk_streams *streams = lake ? &lake->streams : &no_streams;
  const gmlake_stats all = lake ? stats() : no_stats;
  const gmlake_mock_census driver = census();
  gmlake_error_info error;
  memset(&error, 0, sizeof(error));
  if (lake) (void)gmlake_get_last_error(lake, &error);
  {
    const struct {
      const char *name;
      uint64_t value;
    } figures[] = {FIGURES(AS_FIGURE)};
    size_t i = 0;
    while (i < sizeof(figures) / sizeof(figures[0]) && strcmp(figures[i].name, name)) i++;
    judge(i < sizeof(figures) / sizeof(figures[0]), "a figure that there is not");
    return figures[i].value;
  }
}

/* Whether work that is queued on the line now has to wait for something. */
static int is_behind(int on) {
  void *event = program_event();
  int code = 0, done = 0;
  program_record(event, on);
  must(mock->event_query(mock->user, event, &done, &code), "the program's query");
  (void)mock->event_destroy(mock->user, event, &code);
  event_leave(event);
  return !done;
}

/* A piece of a block; its count of pieces is told. */
static gmlake_piece piece_of(const block *b, size_t number, size_t *count) {
  static gmlake_piece pieces[PIECES];
  must(gmlake_get_pieces(lake, (void *)(uintptr_t)b->at, pieces, PIECES, count),
       "gmlake_get_pieces");
  judge(number < *count, "a piece that there is not");
  return pieces[number];
}

static uint64_t home_of_piece(const block *b, size_t number) {
  size_t count;
  const gmlake_piece found = piece_of(b, number, &count);
  return home_of(&found);
}

static size_t held_in(gmlake_pool *pool) {
  gmlake_stats inside;
  must(gmlake_pool_get_stats(lake, pool, &inside), "gmlake_pool_get_stats");
  return inside.reserved_bytes;
}

/* Of which of a buffer's chunks there is memory, a bit each. */
static uint64_t map_of(const buffer *b) {
  uint64_t bits = 0;
  uint32_t i;
  for (i = 0; i < b->value->page_count; i++)
    if (gmlk_is_committed(b->value, i)) bits |= (uint64_t)1 << i;
  return bits;
}

/* What is told of a block is what it was. */
static void judge_kept(const block *b) {
  gmlake_map_entry info;
  must(gmlake_find(lake, (void *)(uintptr_t)b->at, &info), "gmlake_find");
  judge_for_block(info.address == b->at && info.bytes == b->bytes, "a block has moved", b);
  judge_for_block(info.requested_bytes == b->asked && info.flags == b->flags, "a block has changed",
                  b);
  judge_for_block(info.pool == w.pools[b->pool].value, "a block's pool has changed", b);
  judge_for_block(info.stream == (b->on >= 0 && !w.lines[b->on].is_told ? w.lines[b->on].value
                                                                        : GMLAKE_STREAM_NONE) ||
                      ((w.seems_gone || (b->on >= 0 && !w.lines[b->on].is_alive)) &&
                       info.stream == GMLAKE_STREAM_NONE),
                  "a block's stream has changed", b);
}

static gmlake_result last_result(void) {
  gmlake_error_info info;
  must(gmlake_get_last_error(lake, &info), "gmlake_get_last_error");
  return info.result;
}

/* Whether the last error's text has the words, with _ for spaces. */
static int says(const char *words, size_t length) {
  gmlake_error_info info;
  const char *at;
  size_t i;
  must(gmlake_get_last_error(lake, &info), "gmlake_get_last_error");
  for (at = info.text; *at; at++) {
    for (i = 0; i < length && (at[i] == words[i] || (at[i] == ' ' && words[i] == '_'));) i++;
    if (i == length) return 1;
  }
  return 0;
}

static int is_told_by(const char *name, size_t length) {
  gmlake_error_info info;
  must(gmlake_get_last_error(lake, &info), "gmlake_get_last_error");
  return strlen(info.call) == length && !strncmp(info.call, name, length);
}

static int lies_nowhere(uint64_t address, gmlake_result result) {
  char text[80];
  judge(result == GMLAKE_ERROR_UNKNOWN_POINTER, "gmlake_find");
  (void)snprintf(text, sizeof(text), "address is 0x%llx: no memory of this lake",
                 (unsigned long long)address);
  judge(says(text, strlen(text)) && is_told_by("gmlake_find", strlen("gmlake_find")),
        "gmlake_find names something else");
  return reads('n') && !strncmp(reader.at, "othing", strlen("othing"));
}

/* What lies at an address: "state-kind", behind @ the stream, behind / the block there. */
static int lies(const char *text) {
  static const char *const states[] = {"",     "live",  "pending",    "tagged",
                                       "free", "graph", "quarantined"};
  static const char *const there[] = {"",       "block", "hole",  "window",
                                      "buffer", "piece", "chunk", "span"};
  uint64_t address;
  char is[40];
  gmlake_map_entry info;
  gmlake_result result;
  begin_text(text);
  address = read_home();
  reader.is_wrong |= !reads('=');
  result = gmlake_find(lake, (const void *)(uintptr_t)address, &info);
  if (result) return lies_nowhere(address, result);
  (void)snprintf(is, sizeof(is), "%s-%s", states[info.state], there[info.kind]);
  if (strncmp(reader.at, is, strlen(is)) != 0) return 0;
  reader.at += strlen(is);
  if (reads('@') && info.stream != value_in(read_stream())) return 0;
  if (reads('/') && info.address != w.starts[read_block()]) return 0;
  end_text();
  return 1;
}

static int is_kind(gmlake_step_kind kind) {
  static const char *const names[] = {"",      "ALLOC",  "FREE",   "SPLIT",   "STITCH",
                                      "REUSE", "EVICT",  "GROW",   "WAIT",    "TRIM",
                                      "USE",   "BUFFER", "COMMIT", "DISCARD", "END"};
  const size_t length = strlen(names[kind]);
  if (strncmp(reader.at, names[kind], length) != 0) return 0;
  reader.at += length;
  return 1;
}

/* Whether the next step that was told is the one that the text says, as far as it says so. */
static int hears(const char *text) {
  const gmlake_step *e = &told.queue[told.count_heard];
  const char *why;
  begin_text(text);
  if (!strncmp(text, "nothing", strlen("nothing"))) return told.count_heard == told.count_queued;
  if (told.count_heard++ == told.count_queued || !is_kind(e->kind)) return 0;
  if (reads('~') && (!e->driver_ns || (told.count_heard > 1 && e[-1].kind == e->kind &&
                                       e[-1].driver_ns != e->driver_ns)))
    return 0;
  if (reads('@') && e->stream != value_in(read_stream())) return 0;
  if (reads(',') && e->address != read_home()) return 0;
  if (reads('=') && e->bytes != read_size()) return 0;
  if (!reads(':')) return !*reader.at || *reader.at == ' ';
  for (why = e->reason; *why && *reader.at == (*why == ' ' ? '_' : *why); why++) reader.at++;
  return !*why && (!*reader.at || *reader.at == ' ');
}

/* Whether these chunks came. */
static int came(const char *text, size_t count) {
  size_t i = 0;
  while (i < count && w.came[i] == (uint32_t)(text[i] - '0')) i++;
  return i == count;
}

/* Whether a word about one block, stream, pool or buffer is right. */
static int is_so(const op *o, const char *name, int on) {
  const block *b = &w.blocks[o->one % NAMES];
  const uint64_t place = w.starts[o->two % NAMES] + o->more;
  const buffer *of = &w.buffers[o->one % BUFFERS];
  size_t count = 0;
  gmlake_buffer_info info;
  if (!strcmp(name, "says")) return says((const char *)o->bytes, o->more);
  if (!strcmp(name, "told-by")) return is_told_by((const char *)o->bytes, o->more);
  if (!strcmp(name, "came")) return came((const char *)o->bytes, o->more);
  if (!strcmp(name, "shown")) return is_shown((const char *)o->bytes);
  if (!strcmp(name, "at")) return b->at == place;
  if (!strcmp(name, "off")) return b->at != place;
  if (!strcmp(name, "from")) return b->at >= place;
  if (!strcmp(name, "heard")) return hears((const char *)o->bytes);
  if (!strcmp(name, "lies")) return lies((const char *)o->bytes);
  if (!strcmp(name, "pieces")) return (void)piece_of(b, 0, &count), count == o->bytes;
  if (!strcmp(name, "home")) return home_of_piece(b, o->flags) == place;
  if (!strcmp(name, "size")) return piece_of(b, o->flags, &count).bytes == o->bytes;
  if (!strcmp(name, "holds")) return judge_kept(b), judge_stamps(b), o->bytes == 1;
  if (!strcmp(name, "pool")) return b->pool == o->two;
  if (!strcmp(name, "behind")) return is_behind(on) == (int)o->bytes;
  if (!strcmp(name, "number"))
    return gmlk_stream_find(&lake->streams, w.lines[on].value) == GMLK_FIRST_STREAM + o->bytes;
  if (!strcmp(name, "inside")) return held_in(w.pools[1 + o->one % POOLS].value) == o->bytes;
  if (!strcmp(name, "map")) return map_of(of) == o->bytes;
  must(gmlake_buffer_get_info(lake, of->value, &info), "gmlake_buffer_get_info");
  return info.bytes == o->bytes; /* end */
}

/* Where the word's block lies, from the other one's begin on. */
static void tell_place(const op *o, char *rule, size_t room) {
  const uint64_t is = w.blocks[o->one % NAMES].at, begin = w.starts[o->two % NAMES];
  (void)snprintf(rule, room, "at is not so: it lies %s %s the other one's begin",
                 text_of_size(is < begin ? begin - is : is - begin).text,
                 is < begin ? "before" : "behind");
}

/* What it compares is equal; else the rule says what it is, sizes as the line writes them. */
static int is_as_said(const op *o, const char *name, int on, char *rule, size_t room) {
  const char *form = comparisons[o->align - 1].form;
  uint64_t value;
  if (*form == ':') {
    (void)snprintf(rule, room, "%s is not so", name);
    if (!strcmp(name, "at")) tell_place(o, rule, room);
    return is_so(o, name, on);
  }
  value = figure_of(name);
  if (form[1] == 'z')
    (void)snprintf(rule, room, "%s is %s, not %s", name, text_of_size(value).text,
                   text_of_size(o->bytes).text);
  else
    (void)snprintf(rule, room, "%s is %llu, not %llu", name, (unsigned long long)value,
                   (unsigned long long)o->bytes);
  return value == o->bytes;
}

#endif /* PLAY_EXPECT_H */
