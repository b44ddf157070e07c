/* Every fault, and every pair. The rows of fault_rows.h are played by player.h with every call of
   the driver and every allocation of host memory made to fail in turn, once and from then on, and
   with pairs of failing calls behind `|`, so that undoing fails too. The judge looks on; beside it,
   what the lake's books say it holds is compared with what the mock holds. A finding is shrunk and
   printed as a line of language.h, which --play plays again. */
#define GMLK_SMALL_PART 2u
#define GMLK_SMALL_RESERVE_PART 2u
#define GMLK_SMALL_RESERVE_FROM 1u
#include "small_lake.h"

#include <fcntl.h>
#include <fnmatch.h>

#include "cases.h"
#include "options.h"
#include "progress.h"

#include "fault_rows.h"
#include "shrink.h"

#define SHRUNK 3        /* findings, of many */
#define SAMPLE 10       /* faults of a scenario where not all are asked for */
#define PAIR_WINDOW 40u /* calls whose pairs are tried */
#define BASE 3          /* the pool that serves for the default one */
#define CREATED 4       /* the slot of the stream that serves for the legacy one */

typedef struct scenario {
  const struct row *row;
  const struct variant *variant;
  char name[80];
} scenario;

typedef struct injection {
  unsigned char result; /* a letter of language.h; H: of host memory */
  int stays;
  size_t first, second; /* numbers of calls, or of an allocation; second 0: none */
} injection;

static const char fault_letters[] = "OINRGWH";

static struct {
  uint64_t singles, pairs, findings;
  uint64_t hits[ON_KINDS]; /* plays whose last failing call was of the kind */
} done;

/* ---- A scenario: a row as a variant has it --------------------------------------------------- */

static void insert(program *p, size_t at, const op *o) {
  program_add(p, o);
  memmove(&p->ops[at + 1], &p->ops[at], (p->count - 1 - at) * sizeof(op));
  p->ops[at] = *o;
}

/* Blocks go into a pool of their own. */
static void put_into_a_pool(program *p, size_t limit) {
  op o;
  size_t i;
  for (i = 0; i < p->count; i++) {
    if (strchr("+q", p->ops[i].verb) && !p->ops[i].two) p->ops[i].two = BASE + 1;
    if (p->ops[i].verb == 'Y' && p->ops[i].one && !p->ops[i].two) p->ops[i].two = BASE + 1;
    if (strchr("SW", p->ops[i].verb) && !p->ops[i].one) p->ops[i].one = BASE + 1;
  }
  memset(&o, 0, sizeof(o));
  o.verb = 'P';
  o.one = BASE;
  o.bytes = limit;
  insert(p, 0, &o);
  p->mark++;
}

static void vary(program *p, char letter) {
  size_t *o = p->options, i;
  for (i = 0; i < p->count; i++) {
    op *word = &p->ops[i];
    if (letter == 'a' && word->verb == 'N' && !word->more) word->more = UNIT;
    if (strchr("om", letter) && !word->stream && strpbrk(word_of(word->verb)->form, "S@"))
      word->stream = CREATED;
  }
  o[OPT_WAIT_FIRST] |= letter == 'w' || letter == 'm';
  o[OPT_SINGLE] |= letter == '1';
  o[OPT_FILL] |= letter == 'f';
  if (letter == 'a' || letter == 'c') o[OPT_CHUNK] = 2 * UNIT;
  if (letter == 'e') o[OPT_SMAX] = 6 * UNIT;
  if (letter == 'm') o[OPT_SMAX] = 8 * UNIT, o[OPT_PEERS] = 2;
  if (letter == 'l') o[OPT_LIMIT] = o[OPT_CAP];
  if (letter == 'k' || letter == 'm') o[OPT_KEEP] = o[OPT_CAP];
  if (letter == 'p') put_into_a_pool(p, 0);
  if (letter == 'q') put_into_a_pool(p, o[OPT_CAP]);
  if (strchr("lkqm", letter)) o[OPT_CAP] *= 2;
}

/* Work uses what is recorded and, until then, what is freed, discarded or destroyed on a stream.
 */
static void add_uses(program *p) {
  int is_captured[ON_NONE + 1] = {0};
  size_t i;
  for (i = 0; i < p->count; i++) {
    op o = p->ops[i];
    const size_t at = i + (o.verb == 'r');
    if (strchr("BE", o.verb)) is_captured[o.stream] = o.verb == 'B';
    if (!strchr("r-dzK", o.verb) || o.stream == ON_NONE || is_captured[o.stream]) continue;
    if (o.result) continue;
    o.verb = strchr("r-", o.verb) ? 'u' : 'U';
    o.bytes = o.more = 0;
    insert(p, at, &o);
    p->mark += at < p->mark;
    i++;
  }
}

static void make(program *p, const scenario *s) {
  const char *wrong;
  memset(p->options, 0, sizeof(p->options));
  p->count = 0;
  reading_unit = s->variant->letter == 'c' ? 2 * UNIT : UNIT;
  wrong = program_read(p, s->row->line);
  if (wrong) fail_msg("%s: not of the language: %s", s->name, wrong);
  p->options[OPT_EXACT] = p->options[OPT_OBSERVED] = 1;
  p->options[OPT_STREAMS] = CREATED;
  if (!p->options[OPT_CAP]) p->options[OPT_CAP] = 64 * reading_unit;
  vary(p, s->variant->letter);
  add_uses(p);
}

/* ---- The lake's books beside the mock -------------------------------------------------------- */

typedef struct holdings { /* what the lake's books say it holds of the mock's */
  size_t handles, mappings, reservations, events, quarantined;
  size_t blocks; /* records of them */
} holdings;

static void count_arena(const gmlk_arena *a, int is_dead, holdings *h) {
  const gmlk_block *va = a->window_space.begin.next, *b = a->begin.next;
  gmlk_walk walk = gmlk_walk_of(a);
  const gmlk_alias *x;
  uint32_t slot;
  while ((x = gmlk_walk_next(&walk)) != NULL) {
    h->mappings += x->mapped;
    if (x->state == GMLK_ALIAS_QUARANTINED && !is_dead)
      h->quarantined += x->chunk_count * a->chunk_bytes;
  }
  for (slot = 0; slot < a->chunks.capacity; slot++) {
    const gmlk_chunk *chunk = &a->chunks.items[slot];
    if (!chunk->handle) continue;
    h->handles++;
    h->mappings += chunk->is_home;
    h->quarantined +=
        chunk->is_quarantined || is_dead || a->sleep == GMLK_ASLEEP ? a->chunk_bytes : 0;
  }
  for (; b && b != &a->end; b = b->next) h->blocks++;
  for (; va && va != &a->window_space.end; va = va->next) h->blocks++;
  for (va = a->buffer_space.begin.next; va && va != &a->buffer_space.end; va = va->next)
    h->blocks++;
  h->reservations += a->area.count + a->window_space.area.count + a->buffer_space.area.count;
}

/* The mock holds what the lake has written down, no more and no less; no record is lost, and no
   number of a capture. */
static void judge_books(void) {
  const gmlake_mock_census have = census();
  const gmlk_slab *page = lake->records.slabs;
  const gmlake_pool *dead;
  size_t i, captures_known = 0;
  holdings h;
  memset(&h, 0, sizeof(h));
  for (i = 0; i < lake->arena_count; i++)
    if (lake->arenas[i]) count_arena(lake->arenas[i], 0, &h);
  for (dead = lake->released_pools; dead; dead = dead->next_released)
    count_arena(&dead->arena, 1, &h);
  h.events = lake->streams.event_count + own_events();
  for (i = GMLK_FIRST_STREAM; i < lake->streams.count; i++) {
    h.events += lake->streams.items[i]->fence_count;
    captures_known += lake->streams.items[i]->is_used && lake->streams.items[i]->is_capture;
  }
  for (; page; page = page->next) h.blocks -= GMLK_SLAB_BLOCKS;
  judge(have.handle_count == h.handles, "handles that the lake does not know");
  judge(have.mapping_count == h.mappings, "mappings that the lake does not know");
  judge(have.reservation_count == h.reservations, "addresses that the lake does not know");
  judge(have.event_count == h.events, "events that the lake does not know");
  judge(stats().quarantined_bytes == h.quarantined, "quarantined_bytes");
  judge(h.blocks + lake->records.unused_count == 0, "a record is lost");
  judge(captures_known == lake->streams.capture_count + lake->loan_count,
        "the number of a capture is lost");
  judge(lake->lost == w.lost, "the lake does not know that the device is lost");
}

/* ---- A play without faults ------------------------------------------------------------------- */

static struct extent {
  size_t calls[OPS], mallocs[OPS]; /* before each operation, and in all */
  int reached[128];
} extent;

static void reaches(int condition, char letter) { extent.reached[(int)letter] |= condition; }

/* How an allocation was served, a buffer got memory. */
static void note_step(const op *o, const gmlake_stats *was, const gmlake_stats *is, int trims) {
  const char *reason = o->verb == '+' && told.reason ? told.reason : "";
  const int is_buffer = is->buffer_bytes > was->buffer_bytes;
  const int grows = is->state_count[3] > was->state_count[3];
  reaches(strstr(reason, "has completed") != NULL, 'c');
  reaches(strstr(reason, "stitched") != NULL, 's');
  reaches(grows, 'g');
  reaches(w.called[ON_STREAM_WAIT] != 0, 'b');
  reaches(is->host_wait_count > was->host_wait_count, 'w');
  reaches(((is_buffer || o->verb == '+') && trims) || strstr(reason, "returned chunks"), 'r');
  reaches(is_buffer && !w.calls, 'F');
  reaches(is_buffer && w.called[ON_MAP] && !grows, 'A');
  reaches(is_buffer && w.called[ON_UNMAP] && !w.called[ON_RELEASE], 'Y');
}

static void note(void) {
  static gmlake_stats was;
  static uint64_t trims;
  const gmlake_stats s = stats();
  int i;
  extent.calls[w.at] = w.all_calls;
  extent.mallocs[w.at] = w.all_mallocs;
  if (w.at) note_step(&w.program->ops[w.at - 1], &was, &s, told.count[GMLAKE_STEP_TRIM] > trims);
  was = s;
  trims = told.count[GMLAKE_STEP_TRIM];
  for (i = 0; i < 5; i++) reaches(s.state_count[i] != 0, (char)('1' + i));
  reaches(s.split_count != 0, 'X');
  reaches(s.stitch_count != 0, 'Z');
  reaches(s.stitch_reuse_count != 0, 'R');
  reaches(s.stitch_evict_count != 0, 'E');
  reaches(s.event_count != 0, 'V');
  reaches(s.pending_bytes_peak != 0, 'P');
  reaches(trims != 0, 'T');
  reaches(w.handler_calls != 0, 'h');
  judge_books();
}

static void look(void) {
  if (w.hits && w.has_called) judge_books();
  judge(!w.lost || w.errors_told == 1, "a device that is lost is not told, or told again");
}

static void tell(program *p, const char *rule, const scenario *s) {
  char text[sizeof(verdict.rule)];
  (void)snprintf(text, sizeof(text), "%s", rule);
  p->count = verdict.at + 1 < p->count ? verdict.at + 1 : p->count;
  if (++done.findings <= SHRUNK) shrink(p);
  program_write(stderr, p);
  fail_msg("\nscenario %s: %s", s->name, text);
}

static void play_clean(program *p, const scenario *s) {
  const char *rule, *letter;
  memset(&extent, 0, sizeof(extent));
  if (p->count + 1 >= OPS) fail_msg("%s is too long", s->name);
  beside = note;
  rule = play(p, NULL);
  extent.calls[p->count + 1] = w.all_calls;
  extent.mallocs[p->count + 1] = w.all_mallocs;
  beside = look;
  if (rule) fail_msg("scenario %s, word %zu: %s", s->name, verdict.at, rule);
  for (letter = s->row->reach; *letter; letter++)
    if (!extent.reached[(int)*letter])
      fail_msg("scenario %s does not reach '%c' any more", s->name, *letter);
}

/* ---- A play with a fault --------------------------------------------------------------------- */

static int is_ending;

static void add(program *p, char verb, unsigned one, unsigned char stream, unsigned char kind) {
  op o;
  memset(&o, 0, sizeof(o));
  o.verb = (unsigned char)verb;
  o.one = (unsigned char)one;
  o.stream = stream;
  o.two = kind;
  if (verb == 'F' && kind != ON_HOST) o.result = 'O';
  if (verb == '+') o.bytes = GRAIN, o.result = 'O';
  program_add(p, &o);
}

/* No call fails any more: the lake wakes, serves, and takes blocks back. */
static int end(program *p, size_t at) {
  unsigned i;
  (void)at;
  if (is_ending || !w.hits || w.lost) return 0;
  is_ending = 1;
  if (w.is_lasting) add(p, 'F', 0, 0, ON_ANY), add(p, 'F', 0, 0, ON_HOST);
  for (i = 0; i <= POOLS; i++)
    if (w.pools[i].asleep) add(p, 'W', i, 0, 0);
  add(p, '+', NAMES - 1, 0, 0);
  for (i = 0; i < NAMES; i += 2)
    if (w.blocks[i].id) add(p, '-', i, ON_NONE, 0);
  add(p, '+', NAMES - 2, 0, 0);
  return 1;
}

/* Where in the row the call is made; *number becomes what it is from there on. */
static size_t place_of(size_t count, const size_t *before, size_t *number) {
  size_t at = 0;
  while (at < count && before[at + 1] < *number) at++;
  if (at) *number -= before[at];
  return at;
}

/* Returns whether the calls have been made, and failed. */
static int play_fault(const program *row, const injection *f, const scenario *s) {
  static program p;
  const int in_host = f->result == 'H';
  size_t number = f->first;
  const size_t at = place_of(row->count, in_host ? extent.mallocs : extent.calls, &number);
  const char *rule;
  op o;
  memcpy(p.options, row->options, sizeof(p.options));
  p.count = 0;
  while (p.count < row->count) program_add(&p, &row->ops[p.count]);
  memset(&o, 0, sizeof(o));
  o.verb = 'F';
  o.two = in_host ? ON_HOST : ON_ANY;
  o.result = in_host ? 0 : f->result;
  o.flags = f->stays ? FLAG_STAYS : 0;
  o.bytes = number;
  insert(&p, at, &o);
  o.bytes += f->second - f->first;
  if (f->second) insert(&p, at, &o);
  is_ending = 0;
  rule = play(&p, end);
  if (rule) tell(&p, rule, s);
  done.hits[w.hit_kind] += w.hits != 0;
  if (f->second ? w.hits < 2 : !w.hits) return 0;
  done.pairs += f->second != 0;
  done.singles += !f->second;
  return 1;
}

typedef struct pairs { /* the first calls of them: [from, to) */
  size_t from, to;
} pairs;

/* Those behind `|` and of the destruction, or without it, or none where they are many. */
static pairs pairs_of(const program *p) {
  pairs all;
  all.from = extent.calls[p->mark] + 1;
  all.to = extent.calls[p->count + 1] + 1;
  if (all.to - all.from > PAIR_WINDOW) all.to = extent.calls[p->count] + 1;
  if (all.to - all.from > PAIR_WINDOW) all.to = all.from;
  return all;
}

static void play_all(const program *p, const scenario *s) {
  const pairs all = pairs_of(p);
  const char *letter;
  injection f;
  memset(&f, 0, sizeof(f));
  for (letter = fault_letters; *letter; letter++) {
    const size_t count = (*letter == 'H' ? extent.mallocs : extent.calls)[p->count + 1];
    f.result = (unsigned char)*letter;
    for (f.first = 1; f.first <= count; f.first++)
      for (f.stays = 0; f.stays < 2; f.stays++) (void)play_fault(p, &f, s);
  }
  f.stays = 0;
  for (letter = "ON"; *letter; letter++) {
    f.result = (unsigned char)*letter;
    for (f.first = all.from; f.first < all.to; f.first++) {
      f.second = f.first + 1;
      while (f.second <= f.first + PAIR_WINDOW && play_fault(p, &f, s)) f.second++;
    }
    f.second = 0;
  }
}

static size_t random_below(uint64_t *state, size_t bound) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return (size_t)(*state % bound);
}

static void play_sample(const program *p, const scenario *s) {
  const pairs all = pairs_of(p);
  uint64_t state = 0x9E3779B97F4A7C15u;
  const char *c;
  int i;
  for (c = s->name; *c; c++) state = (state ^ (unsigned char)*c) * 0x100000001B3u;
  for (i = 0; i < SAMPLE; i++) {
    const size_t kind = random_below(&state, sizeof(fault_letters) - 1);
    injection f;
    f.result = (unsigned char)fault_letters[kind];
    f.stays = (int)random_below(&state, 2);
    f.first =
        1 + random_below(&state, (f.result == 'H' ? extent.mallocs : extent.calls)[p->count + 1]);
    f.second = 0;
    if (all.to > all.from && i % 3 == 0) {
      f.result = kind % 2 ? 'O' : 'N';
      f.stays = 0;
      f.first = all.from + random_below(&state, all.to - all.from);
      f.second = f.first + 1 + random_below(&state, PAIR_WINDOW / 4);
    }
    (void)play_fault(p, &f, s);
  }
}

/* ---- The program's own arguments ------------------------------------------------------------- */

static struct {
  int is_full;
  unsigned long shard, shards;
  const char *scenario, *line;
} wanted = {0, 0, 1, NULL, NULL};

static progress shown; /* of all faults, which take long */

static void a_scenario(void **state) {
  const scenario *s = (const scenario *)*state;
  static program p;
  make(&p, s);
  play_clean(&p, s);
  if (wanted.is_full || wanted.scenario || strchr(s->row->variants, '*'))
    play_all(&p, s);
  else
    play_sample(&p, s);
  if (wanted.is_full) progress_step(&shown, s->name);
}

static size_t make_scenarios(scenario *all) {
  size_t i, v, count = 0, kept = 0;
  for (i = 0; i < ROWS; i++) {
    for (v = 0; v < VARIANTS; v++) {
      scenario *s = &all[kept];
      if (!strchr(rows[i].variants, variants[v].letter)) continue;
      if (!is_playable(rows[i].line) || !is_playable(variants[v].name)) continue;
      s->row = &rows[i];
      s->variant = &variants[v];
      (void)snprintf(s->name, sizeof(s->name), "%s/%s", rows[i].name, variants[v].name);
      if (wanted.scenario ? !fnmatch(wanted.scenario, s->name, 0)
                          : count % wanted.shards == wanted.shard)
        kept++;
      count++;
    }
  }
  return kept;
}

static void print_counts(size_t count) {
  size_t i;
  printf("%lu scenarios, %llu faults, %llu pairs; of", (unsigned long)count,
         (unsigned long long)done.singles, (unsigned long long)done.pairs);
  for (i = 0; i < ON_TURN; i++) printf(" %s %llu", kinds[i], (unsigned long long)done.hits[i]);
  printf("\n");
}

static void parse_arguments(int argc, char **argv) {
  const char *shard = NULL;
  const option_row table[] = {
      {"full", OPTION_FLAG, &wanted.is_full, 0, 0, NULL, "all faults, not a sample: minutes"},
      {"shard", OPTION_TEXT, &shard, 0, 0, "I/N", "of N parts of the scenarios part I, from 0"},
      {"scenario", OPTION_TEXT, &wanted.scenario, 0, 0, "NAMES",
       "these with all faults, as in 'record-*/plain'"},
      {"play", OPTION_TEXT, &wanted.line, 0, 0, "LINE", "plays a line of language.h"},
      {"trace", OPTION_FLAG, &is_traced, 0, 0, NULL, "says what is done"},
  };
  const option_reader reader = {
      "test_faults", "[OPTION]...", "", "", table, sizeof(table) / sizeof(table[0])};
  int length = 0;
  options_alone(&reader, argc, argv);
  if (shard && (sscanf(shard, "%lu/%lu%n", &wanted.shard, &wanted.shards, &length) != 2 ||
                shard[length] || wanted.shard >= wanted.shards))
    options_wrong(&reader, "shard", "I/N with I below N", shard);
}

/* Without cmocka's lines of what passes: the progress says more. What fails it tells on standard
   error. */
static int run_quietly(size_t count) {
  const int nowhere = open("/dev/null", O_WRONLY), kept = dup(STDOUT_FILENO);
  int failed;
  (void)fflush(stdout);
  (void)dup2(nowhere, STDOUT_FILENO);
  failed = run_cases("faults");
  progress_clear();
  (void)fflush(stdout);
  (void)dup2(kept, STDOUT_FILENO);
  (void)close(nowhere);
  (void)close(kept);
  printf("%lu scenarios passed, %d failed\n", (unsigned long)(count - (size_t)failed), failed);
  return failed;
}

int main(int argc, char **argv) {
  static scenario all[ROWS * VARIANTS];
  size_t count, i;
  int failed;
  parse_arguments(argc, argv);
  beside = look;
  if (wanted.line) return play_line(wanted.line);
  count = make_scenarios(all);
  for (i = 0; i < count; i++) add_case(all[i].name, a_scenario, &all[i]);
  progress_open(&shown, count);
  failed = wanted.is_full ? run_quietly(count) : run_cases("faults");
  print_counts(count);
  return failed || !count;
}
