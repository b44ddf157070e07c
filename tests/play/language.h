/* What is done to a lake, in a line of words. An operation is one word, one row of a table, one
   struct op and a few bytes; each becomes the others here. judge.h sees what the lake asks of the
   driver, player.h performs operations, a chooser says which.

   A line is the lake's options in braces and operations: `{cap:8 may-end} +a=2@A rb@B -a`. Blocks
   are a to z, a.1 to z.1, ...; A to H are streams, 0 the legacy stream (also where none is named),
   1 its other value, n STREAM_NONE; digits are pools, buffers, graphs. Sizes are in units of 4 KiB;
   with k in KiB, with b in bytes; and may be sums: 2+512b.

     +a=2@A/0xsgt^1k   allocate block a on A, from pool 0, EXCLUSIVE, NO_STITCH, NO_GROW,
                       TRANSIENT, aligned to 1 KiB. +a-d=1 four blocks; * for a name is the
                       next one from a.1 on
     q=2@A/0xsgt       asks how that would end
     -ab@A  -a-d@A     free blocks a and b, a to d; on the legacy stream where none is named
     ua@A  U0@A        work on A uses block a; the memory of buffer 0
     ra@A              record stream A on block a
     wa:2+512b         the address so far behind the start of block a, or of what it was last, is
                       refused where it is no block's start
     xa  xa/0  ib=a*3  export block a, or buffer 0 under the name a; import that as block b, three
                       times behind one another
     fA  kA  vA        forget stream A; destroy it, told or untold (kA!U: though the manual forbids
                       that); the next one with its value
     mA:1              mark it: 1 COMMUNICATION, 2 URGENT, 3 STAYS, 0 PLAIN
     hA  eA  gA:9 t:9  work is pending on A; is done; takes 9 ns; the clock says 9 ns. What the
                       work of hA uses is said by u behind it: only then does the judge see that it
                       was handed over, unmapped or returned too early
     P0:8^2  D0        create pool 0, limited to 8, of chunks of 2; destroy it
     BA:0/3  EA        begin a capture on A into pool 0: graph 3; end it. Behind lake-alone the
                       driver does not hear of it, behind driver-alone the lake does not
     j3@A  J3          launch graph 3 on A, behind what has to be before it (!I: at once, beside
                       another graph of its pool); it is destroyed
     N0:8/1^2          create buffer 0 of at most 8, in pool 1, with chunks of 2
     z0:3@A  K0@A      resize it; destroy it
     c0:2,3@A d0:2,3@A C0:2,3@A   commit, discard 3 from 2 on; commit and say which chunks
     want:01*x         the next C wants chunks 0, 1, any, and one that there is not
     S0:k  Sn:d  W0    pool 0 sleeps and keeps its contents; what is in no pool does and drops
                       them; pool 0 wakes
     l0@A  L0@A        lend pool 0; recall it
     Y:8@A             reserve 8 for the default pool's blocks
     Y:8,2*3@A/0xsg    admit three requests of 8 and one of 2, for A from pool 0; Y:0*1/0 ends that
     T:3  Q  I         trim to 3; the budget; all questions, whose answers have to agree
     a:psg/ce*7        the policy answers with the first plan of these that can be made: p a piece,
                       k one whose former is kept, r a window, s a stitch, b one that grows, g
                       growth, 4 state 5 once, 5 twice, 9 always, x a wrong plan. c: what is freed
                       stays apart, e: windows are evicted, E: wrongly. *7: chosen by chance
     plan:3,a=1,b+1k=2 the policy answers the next word with state 3 and these pieces. G2: and what
                       is created, W1: window 1, K: the former is kept. plan:5;5;4,G1 the first
                       time and the second, and all behind. N9: of 9 pieces, E: which lie elsewhere
     drop:1,2          and names these windows to be evicted. N9: so many
     paper:L4,R1       the paper's policy (policy:8) has these settings, see policy.h
     fail:map=2R*      the second call of the kind from here fails so, and all behind it; `any` is
                       any kind; 0: no call fails any more. Without the option `exact` it counts in
                       the next operation alone
     host:2*           the same of host memory
     in:map=2( words )   in the middle of the second call of the kind from here, before the driver
                       is asked; turn: while a planner waits for its turn; choose, evict, coalesce,
                       handler: while that runs. It is another thread that does it
     [3 words ]        three times
     |                 what is behind it is looked at more closely (test_faults.c)
     destroy           the lake, with the blocks that it has; else at the end of the line
     !O                behind a word: it fails. O out of memory, L limit, I invalid argument, C
                       capturing, U unknown pointer, D double free, R driver, G device lost, A
                       asleep, B busy, H host memory, N unsupported, W shutting down

   A word with = compares: waits=1 (the table below has the names, expect.h what they are); at:q=p+1
   (q lies so far behind the begin of p), off:q=p (elsewhere), from:q=p+1 (there or behind);
   lies:p+1=live-block@A/q (what gmlake_find says of that address: its state and kind, its stream
   and where it begins, or nothing); heard:GROW@A,p+1=2:why (the next step that the observer was
   told since the mark: for A, at p+1, of 2, with that reason, or nothing; ~ behind its kind: it
   took time, and as much as the one before, if that was of its kind); pieces:w=2, size:w1=1,
   home:w1=p+1 (piece 1 of w lies there); holds:p=1 (all of p is as it was written, and so is what
   the lake tells of it); pool:p=0 or n; behind:A=1 (new work on A has to wait); number:A=0 (A is
   the first of the lake's streams); error!R (the last one); foretold!O (of the last q);
   says:no_room (in its text, with _ for spaces); inside:0=4 (what pool 0 holds); end:0=4,
   map:0=m..m (of buffer 0's chunks two are memory); came:012 (these chunks came with the last C);
   told-by:policy.choose (whom the last error names); shows@A/0:a=1,b+1k=2;1fc,3 (what a policy is
   shown on A of pool 0: these free blocks, and window 1, which is free and complete, and 3);
   shown:2:a=1 (what the second question showed). pending is what was freed and waits for streams
   that were recorded on it; at-work is all that is free and that work may still use. `note` notes
   all that there is, and after `same`
   it is the same. asked since the last plan, choose-asked, evict-asked and coalesce-asked since the
   last mark; evict-bytes is the last one's. `mark` notes the figures: state, splits, stitches,
   reuses, evictions, calls, all-calls, clock-reads, turns (of planners: so often the driver lock
   was taken), grown and metadata-grown are those since. released is what a trim or a sleep told
   last, idle, at-work, device-free and allocatable are of the last Q, lacking of the last Y,
   foretold- of the last q, told- is of the last error.

   The options: granule:16 is the driver's granule, cap what the device has, chunk a chunk (else a
   granule), in units; limit, keep, arena, window, smax, smin the fields of gmlake_desc that they
   sound like; streams so many; peers, mode (of captures), extent (slots that are reserved at once)
   and policy (its number) numbers; may-end, no-ids, wait-first, single, fill and
   share flags; integrated a device that is so, where the system has three quarters of cap; oom a
   handler, observed an observer, books no memory behind addresses. In a row
   (test_rows.c) granule makes chunks of that size the unit of the line, and turns `exact` on.

   Without the option `exact` a word without ! may have any result that a fault, a want of memory
   or the manual explains, and a word that the manual does not allow at that place is passed
   over. With it each word is done and has the result that stands behind it, in rows always,
   else as long as no call has been made to fail: then it is done again where a call failed once.
   And words follow a device that is lost. */
#if !defined(PLAY_LANGUAGE_H)
#define PLAY_LANGUAGE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNIT ((size_t)4096)
#define GRAIN ((size_t)512)
#define SLOTS 9 /* streams: the legacy one, A to H */
#define ON_ONE 9
#define ON_NONE 10
static const char slot_letters[] = "0ABCDEFGH1n";
#define NAMES 104 /* of blocks */
#define POOLS 4
#define BUFFERS 4
#define GRAPHS 10
#define OPS 4096 /* of a line */

#define ANSWERS 4 /* of a policy, at most */

enum { FLAG_X = 1, FLAG_S = 2, FLAG_G = 4, FLAG_T = 8, FLAG_KEEP = 1, FLAG_STAYS = 1 };
enum { ANSWER_APART = 1, ANSWER_EVICT = 2, ANSWER_EVICT_WRONGLY = 4 };

typedef struct op {
  unsigned char verb;   /* its letter; F: a fault */
  unsigned char one;    /* a block, a pool, a buffer, a graph; of S and W, and two below: + 1 */
  unsigned char two;    /* another block; a pool + 1, 0: none; a graph; of F the kind; of a, with
                           one, four letters */
  unsigned char stream; /* a slot, ON_ONE, ON_NONE */
  unsigned char flags;  /* FLAG_* */
  unsigned char result; /* that it has to have, a letter; 0: none was said; of F: that it injects */
  size_t bytes, more, align;
} op;

/* How the word goes on behind its letter. b c: block; S: stream; @: one, if not the legacy one; d
   e: digit; p: digit or n; z y: size; m: k or d; n: number; l: letters of answers; /: flags and
   pool; ?X: what follows X, if X stands there; of words that compare i: number of a piece, if one
   stands there; w: pool or n; k: a call's name; t: a text; M: a map. All else stands for itself. */
typedef struct word {
  unsigned char verb;
  const char *form;
} word;

static const word words[] = {
    {'+', "b=z@/"}, {'q', "=z@/"},   {'-', "b@"},      {'u', "b@"},         {'U', "d@"},
    {'r', "b@"},    {'w', "b:z"},    {'x', "b?/e"},    {'i', "b=c?*n"},     {'f', "S"},
    {'k', "S"},     {'v', "S"},      {'m', "S:n"},     {'h', "S"},          {'e', "S"},
    {'g', "S:n"},   {'t', ":n"},     {'P', "d?:z?^y"}, {'D', "d"},          {'B', "S:d/e"},
    {'E', "S"},     {'j', "d@"},     {'J', "d"},       {'N', "d:z?/e?^y"},  {'z', "d:z@"},
    {'K', "d@"},    {'c', "d:z,y@"}, {'d', "d:z,y@"},  {'C', "d:z,y@"},     {'S', "p:m"},
    {'W', "p"},     {'l', "d@"},     {'L', "d@"},      {'Y', ":z?,y?*d@/"}, {'T', ":z"},
    {'Q', ""},      {'I', ""},       {'a', ":l?*n"},
};
#define WORDS (sizeof(words) / sizeof(words[0]))

/* Figures that words compare: how they are written, and what they are in expect.h. The driver's,
   the streams', what calls have told, the lake's. */
#define FIGURES(X)                                                                \
  X("driver-bytes", "=z", driver.physical_bytes)                                  \
  X("addresses", "=z", driver.reserved_address_bytes)                             \
  X("driver-events", "=n", driver.event_count - own_events())                     \
  X("driver-host-waits", "=n", driver.host_wait_count)                            \
  X("handles", "=n", driver.handle_count)                                         \
  X("mappings", "=n", driver.mapping_count)                                       \
  X("mapped", "=n", driver.mapping_count - handles_at_home())                     \
  X("reservations", "=n", driver.reservation_count)                               \
  X("host-ranges", "=n", driver.host_count)                                       \
  X("released", "=z", compared.released)                                          \
  X("lacking", "=z", compared.lacking)                                            \
  X("device-free", "=z", compared.budget.driver_free_bytes)                       \
  X("idle", "=z", compared.budget.idle_bytes)                                     \
  X("at-work", "=z", compared.budget.pending_bytes)                               \
  X("allocatable", "=z", compared.budget.allocatable_bytes)                       \
  X("errors-told", "=n", w.errors_told)                                           \
  X("warnings-told", "=n", w.warnings_told)                                       \
  X("warned-call", "=k", w.warned_kind)                                           \
  X("foretold-wait", "=n", compared.foretold.wait)                                \
  X("foretold-new", "=z", compared.foretold.new_bytes)                            \
  X("told-asked", "=z", error.asked_bytes)                                        \
  X("told-limit", "=z", error.limit_bytes)                                        \
  X("told-live", "=z", error.live_bytes)                                          \
  X("told-reserved", "=z", error.reserved_bytes)                                  \
  X("told-stitchable", "=z", error.stitchable_bytes)                              \
  X("told-free", "=z", error.free_bytes)                                          \
  X("told-pending", "=z", error.pending_bytes)                                    \
  X("told-driver-free", "=z", error.driver_free_bytes)                            \
  X("told-here", "=z", error.live_here_bytes)                                     \
  X("told-elsewhere", "=z", error.elsewhere_bytes)                                \
  X("told-largest", "=z", error.largest_bytes)                                    \
  X("told-holes", "=z", error.hole_bytes)                                         \
  X("told-sleeping", "=z", error.sleeping_bytes)                                  \
  X("told-pool", "=n", pool_of_value(error.pool))                                 \
  X("told-code", "=n", error.driver_code)                                         \
  X("told-call", "=k", kind_of(error.call))                                       \
  X("asked", "=n", asked.plan_questions)                                          \
  X("choose-asked", "=n", asked.choose_count)                                     \
  X("evict-asked", "=n", asked.evict_count)                                       \
  X("coalesce-asked", "=n", asked.coalesce_count)                                 \
  X("evict-bytes", "=z", asked.evict_bytes)                                       \
  X("lost-streams", "=n", lost_streams())                                         \
  X("live-streams", "=n", streams->live_count)                                    \
  X("captures", "=n", streams->capture_count)                                     \
  X("numbers", "=n", streams->count - (lake ? GMLK_FIRST_STREAM : 0))             \
  X("numbers-used", "=n", streams->used_count)                                    \
  X("reserved", "=z", all.reserved_bytes)                                         \
  X("reserved-peak", "=z", all.reserved_bytes_peak)                               \
  X("active", "=z", all.active_bytes)                                             \
  X("requested", "=z", all.requested_bytes)                                       \
  X("requested-peak", "=z", all.requested_bytes_peak)                             \
  X("pending", "=z", all.pending_bytes)                                           \
  X("pending-peak", "=z", all.pending_bytes_peak)                                 \
  X("stitched", "=z", all.stitched_bytes)                                         \
  X("stitched-peak", "=z", all.stitched_bytes_peak)                               \
  X("quarantined", "=z", all.quarantined_bytes)                                   \
  X("sleeping", "=z", all.sleeping_bytes)                                         \
  X("exported", "=z", all.exported_bytes)                                         \
  X("imported", "=z", all.imported_bytes)                                         \
  X("buffer-bytes", "=z", all.buffer_bytes)                                       \
  X("buffer-bytes-peak", "=z", all.buffer_bytes_peak)                             \
  X("metadata-grown", "=z", all.metadata_bytes - compared.mark.metadata_bytes)    \
  X("grown", "=z", all.reserved_bytes - compared.mark.reserved_bytes)             \
  X("live", "=n", all.live_count)                                                 \
  X("failures", "=n", all.oom_count)                                              \
  X("chunks", "=n", all.chunk_count)                                              \
  X("windows", "=n", all.window_count)                                            \
  X("buffers", "=n", all.buffer_count)                                            \
  X("events", "=n", all.event_count)                                              \
  X("waits", "=n", all.stream_wait_count)                                         \
  X("host-waits", "=n", all.host_wait_count)                                      \
  X("state", "=n", state_since(&all))                                             \
  X("splits", "=n", all.split_count - compared.mark.split_count)                  \
  X("stitches", "=n", all.stitch_count - compared.mark.stitch_count)              \
  X("reuses", "=n", all.stitch_reuse_count - compared.mark.stitch_reuse_count)    \
  X("evictions", "=n", all.stitch_evict_count - compared.mark.stitch_evict_count) \
  X("calls", "=n", all.driver_call_count - compared.mark.driver_call_count)       \
  X("all-calls", "=n", w.all_calls - compared.all_calls)                          \
  X("turns", "=n", w.turns - compared.turns)                                      \
  X("clock-reads", "=n", w.clock_reads - compared.clock_reads)

#define AS_COMPARISON(name, form, value) {name, form},
/* Words that compare, and two that go with them: op.verb is =, op.align the place here + 1. */
static const struct comparison {
  const char *name, *form;
} comparisons[] = {
    {"want", ":t"},       {"came", ":t"},        {"mark", ""},        {"destroy", ""},
    {"error", ""},        {"foretold", ""},      {"reset-peaks", ""}, {"lake-alone", ""},
    {"driver-alone", ""}, {"note", ""},          {"same", ""},        {"plan", ":t"},
    {"drop", ":t"},       {"paper", ":t"},       {"shows", "@?/e:t"}, {"says", ":t"},
    {"told-by", ":t"},    {"shown", ":t"},       {"at", ":b=c?+y"},   {"off", ":b=c?+y"},
    {"from", ":b=c?+y"},  {"lies", ":t"},        {"heard", ":t"},     {"pieces", ":b=n"},
    {"home", ":bi=c?+y"}, {"size", ":bi=z"},     {"holds", ":b=n"},   {"pool", ":b=w"},
    {"behind", ":S=n"},   {"number", ":S=n"},    {"inside", ":d=z"},  {"end", ":d=z"},
    {"map", ":d=M"},      FIGURES(AS_COMPARISON)};
#define COMPARISONS (sizeof(comparisons) / sizeof(comparisons[0]))

/* Calls of the driver, in the order of the backend's table. */
enum {
  ON_PROPERTIES,
  ON_INFO,
  ON_RESERVE,
  ON_UNRESERVE,
  ON_CREATE,
  ON_RELEASE,
  ON_MAP,
  ON_UNMAP,
  ON_ACCESS,
  ON_EVENT_CREATE,
  ON_EVENT_DESTROY,
  ON_RECORD,
  ON_QUERY,
  ON_HOST_WAIT,
  ON_STREAM_WAIT,
  ON_EXCHANGE,
  ON_ID,
  ON_DEVICE_WAIT,
  ON_COPY,
  ON_HOST_ALLOC,
  ON_HOST_FREE,
  ON_EXPORT,
  ON_IMPORT,
  ON_ANY,
  ON_HOST,
  /* No calls, but in their middle something may happen: a planner waits for its turn, a function of
     the policy or the out-of-memory handler runs. */
  ON_TURN,
  ON_CHOOSE,
  ON_EVICT,
  ON_COALESCE,
  ON_HANDLER,
  ON_KINDS
};
static const char *const kinds[ON_KINDS] = {
    "properties",  "info",     "reserve",      "unreserve",     "create", "release",    "map",
    "unmap",       "access",   "event-create", "event-destroy", "record", "query",      "wait",
    "stream-wait", "exchange", "id",           "device-wait",   "copy",   "host-alloc", "host-free",
    "export",      "import",   "any",          "host",          "turn",   "choose",     "evict",
    "coalesce",    "handler"};

static const char result_letters[] = "OLICUDRGABHNW";
static const char answer_letters[] = "prskgb459x";

/* The answer at a place, as its place in answer_letters + 1; 0: there are no more. */
static unsigned char answer_of(const op *o, size_t place) {
  return (unsigned char)((place < 2 ? o->one : o->two) >> 4 * (place % 2) & 15);
}

static void add_answer(op *o, size_t place, unsigned char answer) {
  const unsigned char bits = (unsigned char)(answer << 4 * (place % 2));
  if (place < 2)
    o->one |= bits;
  else
    o->two |= bits;
}

/* ---- Options --------------------------------------------------------------------------------- */

enum {
  OPT_CHUNK,
  OPT_CAP,
  OPT_LIMIT,
  OPT_KEEP,
  OPT_ARENA,
  OPT_WINDOW,
  OPT_SMAX,
  OPT_SMIN,
  OPT_GRANULE,
  OPT_SIZES,
  OPT_STREAMS = OPT_SIZES,
  OPT_PEERS,
  OPT_MODE,
  OPT_EXTENT,
  OPT_POLICY,
  OPT_NUMBERS,
  OPT_OOM = OPT_NUMBERS,
  OPT_MAY_END,
  OPT_NO_IDS,
  OPT_WAIT_FIRST,
  OPT_SINGLE,
  OPT_FILL,
  OPT_BOOKS,
  OPT_SHARE,
  OPT_OBSERVED,
  OPT_EXACT,
  OPT_BYTES, /* what programs in bytes say */
  OPT_INTEGRATED = OPT_BYTES,
  OPT_COUNT
};
static const char *const option_names[OPT_COUNT] = {
    "chunk", "cap",      "limit",   "keep",       "arena",  "window", "smax",
    "smin",  "granule",  "streams", "peers",      "mode",   "extent", "policy",
    "oom",   "may-end",  "no-ids",  "wait-first", "single", "fill",   "books",
    "share", "observed", "exact",   "integrated"};

typedef struct program {
  size_t options[OPT_COUNT]; /* sizes in bytes; words that stand alone are 1 */
  op *ops;
  size_t count, capacity;
  size_t mark; /* of the words, how many stand before `|` */
} program;

/* What its sizes are multiples of. */
static size_t unit_of(const program *p) {
  return p->options[OPT_GRANULE] ? p->options[OPT_GRANULE] : UNIT;
}

static void program_add(program *p, const op *o) {
  if (p->count == p->capacity) {
    p->capacity = p->capacity ? 2 * p->capacity : 64;
    p->ops = (op *)realloc(p->ops, p->capacity * sizeof(op));
    if (!p->ops) abort();
  }
  p->ops[p->count++] = *o;
}

/* ---- From text ------------------------------------------------------------------------------- */

static size_t reading_unit = UNIT; /* that sizes are read in, */
static size_t writing_unit = UNIT; /* and written */

static struct reader {
  const char *at;
  int is_wrong;
  unsigned names; /* that stood as * */
} reader;

static int reads(char c) {
  if (*reader.at != c || !c) return 0;
  reader.at++;
  return 1;
}

static size_t read_number(void) {
  size_t n = 0;
  if (*reader.at < '0' || *reader.at > '9') reader.is_wrong = 1;
  while (*reader.at >= '0' && *reader.at <= '9') n = 10 * n + (size_t)(*reader.at++ - '0');
  return n;
}

static size_t read_size(void) {
  size_t sum = 0;
  int is_less = 0;
  do {
    size_t n = read_number();
    n *= reads('b') ? 1 : reads('k') ? 1024 : reading_unit;
    sum = is_less ? sum - n : sum + n;
    is_less = *reader.at == '-';
  } while (reads('+') || reads('-'));
  return sum;
}

static unsigned char read_one(const char *of, unsigned char base) {
  const char *found = *reader.at ? strchr(of, *reader.at) : NULL;
  if (!found) {
    reader.is_wrong = 1;
    return base;
  }
  reader.at++;
  return (unsigned char)(found - of + base);
}

static unsigned char read_block(void) {
  unsigned n;
  if (reads('*')) return (unsigned char)(26 + reader.names++ % (NAMES - 26));
  n = read_one("abcdefghijklmnopqrstuvwxyz", 0);
  if (reads('.')) n += 26 * read_one("0123", 0);
  return (unsigned char)n;
}

static unsigned char read_stream(void) { return read_one(slot_letters, 0); }
static unsigned char read_digit(void) { return read_one("0123456789", 0); }

static void read_flags(op *o) {
  static const char letters[] = "xsgt";
  if (!reads('/')) return;
  if (*reader.at >= '0' && *reader.at <= '9') o->two = (unsigned char)(read_digit() + 1);
  while (*reader.at && strchr(letters, *reader.at))
    o->flags |= (unsigned char)(1 << read_one(letters, 0));
  if (reads('^')) o->align = read_size();
}

static void read_answers(op *o) {
  static const char flags[] = "ceE";
  size_t count = 0;
  while (*reader.at && strchr(answer_letters, *reader.at) && count < ANSWERS)
    add_answer(o, count++, read_one(answer_letters, 1));
  if (!reads('/')) return;
  while (*reader.at && strchr(flags, *reader.at))
    o->flags |= (unsigned char)(1 << read_one(flags, 0));
}

/* The name of a kind from `first` on; `end`: it is none before that. */
static size_t read_kind(size_t first, size_t end) {
  const size_t length = strspn(reader.at, "abcdefghijklmnopqrstuvwxyz-");
  size_t i = first;
  while (i < end && (strlen(kinds[i]) != length || strncmp(reader.at, kinds[i], length))) i++;
  if (i < end) reader.at += length;
  return i;
}

static size_t read_call(void) {
  const size_t kind = read_kind(0, ON_HOST);
  reader.is_wrong |= kind == ON_HOST;
  return kind;
}

/* What few words have, and what stands for itself. */
static void read_rest(op *o, char form) {
  switch (form) {
  case 'm':
    o->flags = read_one("dk", 0);
    break;
  case 'l':
    read_answers(o);
    break;
  case 'i':
    if (*reader.at >= '0' && *reader.at <= '9') o->flags = read_digit();
    break;
  case 'w':
    o->two = reads('n') ? 0 : (unsigned char)(read_digit() + 1);
    break;
  case 'k':
    o->bytes = read_call();
    break;
  case 't': /* it stays where it stands */
    o->bytes = (size_t)reader.at;
    o->more = strcspn(reader.at, " ]");
    reader.at += o->more;
    break;
  case 'M':
    for (o->more = 0; *reader.at == 'm' || *reader.at == '.'; o->more++)
      o->bytes |= (size_t)(*reader.at++ == 'm') << o->more;
    break;
  default:
    reader.is_wrong |= !reads(form);
  }
}

/* The fields of a word by its form. */
static void read_form(op *o, const char *form) {
  for (; *form; form++) {
    if (*form == '?') {
      form++;
      if (*reader.at != *form)
        form++;
      else
        reader.at++;
      continue;
    }
    switch (*form) {
    case 'b':
      o->one = read_block();
      break;
    case 'c':
      o->two = read_block();
      break;
    case 'S':
      o->stream = read_stream();
      break;
    case '@':
      o->stream = reads('@') ? read_stream() : 0;
      break;
    case 'd':
      o->one = read_digit();
      break;
    case 'e':
      o->two = (unsigned char)(read_digit() + 1);
      break;
    case 'p':
      o->one = reads('n') ? 0 : (unsigned char)(read_digit() + 1);
      break;
    case 'z':
      o->bytes = read_size();
      break;
    case 'y':
      o->more = read_size();
      break;
    case 'n':
      o->bytes = read_number();
      break;
    case '/':
      if (form[1])
        reader.is_wrong |= !reads('/');
      else
        read_flags(o);
      break;
    default:
      read_rest(o, *form);
    }
  }
  if (reads('!')) o->result = (unsigned char)result_letters[read_one(result_letters, 0)];
}

static const word *word_of(unsigned char verb) {
  size_t i;
  for (i = 0; i < WORDS; i++)
    if (words[i].verb == verb) return &words[i];
  return NULL;
}

static void read_fault(op *o) {
  o->verb = 'F';
  o->two = ON_HOST;
  if (reads('f')) {
    reader.at += strlen("ail:");
    o->two = (unsigned char)read_call();
    reader.is_wrong |= !reads('=');
  } else
    reader.at += strlen("host:");
  o->bytes = read_number();
  if (o->two != ON_HOST) o->result = (unsigned char)result_letters[read_one(result_letters, 0)];
  o->flags = (unsigned char)reads('*');
}

/* A word that compares, if one stands there: its place + 1. */
static size_t read_name(void) {
  const size_t length = strspn(reader.at, "abcdefghijklmnopqrstuvwxyz-");
  size_t i;
  for (i = 0; i < COMPARISONS; i++) {
    const char *name = comparisons[i].name;
    if (strlen(name) != length || strncmp(name, reader.at, length)) continue;
    if (reader.at[length] && !strchr(" ]:=!@/", reader.at[length])) continue;
    reader.at += length;
    return i + 1;
  }
  return 0;
}

/* Of several blocks: an operation each. */
static void read_several(program *p, op *o, const word *form) {
  unsigned char names[NAMES];
  size_t count = 0, i;
  while (((*reader.at >= 'a' && *reader.at <= 'z') || *reader.at == '*') && count < NAMES)
    names[count++] = read_block();
  if (count == 1 && reads('-')) {
    const unsigned char last = read_block();
    while (names[count - 1] < last && count < NAMES) {
      names[count] = (unsigned char)(names[count - 1] + 1);
      count++;
    }
  }
  read_form(o, form->form + 1);
  for (i = 0; i < count; i++) {
    o->one = names[i];
    program_add(p, o);
  }
  reader.is_wrong |= !count;
}

static void read_words(program *p);

/* What happens in the middle of a call of the driver: `more` operations behind this one. */
static void read_inside(program *p) {
  const size_t at = p->count;
  op o;
  memset(&o, 0, sizeof(o));
  o.verb = 'M';
  reader.at += strlen("in:");
  o.two = (unsigned char)read_kind(ON_TURN, ON_KINDS);
  if (o.two == ON_KINDS) o.two = (unsigned char)read_call();
  reader.is_wrong |= !reads('=');
  o.bytes = read_number();
  reader.is_wrong |= !reads('(');
  program_add(p, &o);
  read_words(p);
  p->ops[at].more = p->count - at - 1;
  reader.is_wrong |= !reads(')');
}

static void read_words(program *p) {
  while (*reader.at && !strchr("])", *reader.at) && !reader.is_wrong) {
    const word *form;
    op o;
    memset(&o, 0, sizeof(o));
    if (reads(' ')) continue;
    if (reads('|')) {
      p->mark = p->count;
      continue;
    }
    if (reads('[')) {
      size_t times = read_number();
      const char *first = reader.at;
      for (; times && !reader.is_wrong; times--) {
        reader.at = first;
        read_words(p);
      }
      reader.is_wrong |= !reads(']');
      continue;
    }
    if (!strncmp(reader.at, "in:", 3)) {
      read_inside(p);
      continue;
    }
    if (!strncmp(reader.at, "fail:", 5) || !strncmp(reader.at, "host:", 5)) {
      read_fault(&o);
      program_add(p, &o);
      continue;
    }
    o.align = read_name();
    if (o.align) {
      o.verb = '=';
      read_form(&o, comparisons[o.align - 1].form);
      reader.is_wrong |= *reader.at && !strchr(" ]", *reader.at);
      program_add(p, &o);
      continue;
    }
    form = word_of((unsigned char)*reader.at);
    if (!form) {
      reader.is_wrong = 1;
      return;
    }
    o.verb = (unsigned char)*reader.at++;
    if (o.verb == '+' || o.verb == '-') {
      read_several(p, &o, form);
    } else {
      read_form(&o, form->form);
      program_add(p, &o);
    }
    reader.is_wrong |= *reader.at && *reader.at != ' ';
  }
}

static void read_options(program *p) {
  while (*reader.at && *reader.at != '}' && !reader.is_wrong) {
    size_t i, length = 0;
    if (reads(' ')) continue;
    for (i = 0; i < OPT_COUNT; i++) {
      length = strlen(option_names[i]);
      if (!strncmp(reader.at, option_names[i], length) && strchr(" :}", reader.at[length])) break;
    }
    if (i == OPT_COUNT) {
      reader.is_wrong = 1;
      return;
    }
    reader.at += length;
    p->options[i] = 1;
    if (i < OPT_NUMBERS) {
      reader.is_wrong |= !reads(':');
      p->options[i] = i < OPT_SIZES ? read_size() : read_number();
      if (i == OPT_GRANULE) reading_unit = p->options[i];
    }
  }
  reader.is_wrong |= !reads('}');
}

/* Appends the line's words; NULL, or where it is wrong. */
static inline const char *program_read(program *p, const char *line) {
  reader.at = line;
  reader.is_wrong = 0;
  reader.names = 0;
  p->mark = p->count;
  if (reads('{')) read_options(p);
  read_words(p);
  return reader.is_wrong || *reader.at ? reader.at : NULL;
}

/* The line is all of the program; NULL, or where it is wrong. */
static inline const char *program_of(program *p, const char *line) {
  memset(p->options, 0, sizeof(p->options));
  p->count = 0;
  reading_unit = UNIT;
  return program_read(p, line);
}

/* ---- To text --------------------------------------------------------------------------------- */

typedef struct size_text {
  char text[24];
} size_text;

static size_text text_of_size(size_t bytes) {
  size_text t;
  if (bytes % writing_unit == 0)
    (void)snprintf(t.text, sizeof(t.text), "%zu", bytes / writing_unit);
  else if (bytes % 1024 == 0)
    (void)snprintf(t.text, sizeof(t.text), "%zuk", bytes / 1024);
  else
    (void)snprintf(t.text, sizeof(t.text), "%zub", bytes);
  return t;
}

static void write_size(FILE *to, size_t bytes) { (void)fputs(text_of_size(bytes).text, to); }

static void write_block(FILE *to, unsigned name) {
  (void)fprintf(to, "%c", 'a' + name % 26);
  if (name >= 26) (void)fprintf(to, ".%u", name / 26);
}

static void write_flags(FILE *to, const op *o) {
  unsigned i;
  if (!o->two && !o->flags && !o->align) return;
  (void)fputc('/', to);
  if (o->two) (void)fprintf(to, "%d", o->two - 1);
  for (i = 0; i < 4; i++)
    if (o->flags >> i & 1) (void)fputc("xsgt"[i], to);
  if (o->align) (void)fputc('^', to), write_size(to, o->align);
}

static void write_answers(FILE *to, const op *o) {
  size_t i;
  for (i = 0; i < ANSWERS && answer_of(o, i); i++)
    (void)fputc(answer_letters[answer_of(o, i) - 1], to);
  if (o->flags) (void)fputc('/', to);
  for (i = 0; i < 3; i++)
    if (o->flags >> i & 1) (void)fputc("ceE"[i], to);
}

static void write_rest(FILE *to, const op *o, char form) {
  size_t i;
  switch (form) {
  case 'm':
    (void)fputc("dk"[o->flags & 1], to);
    break;
  case 'l':
    write_answers(to, o);
    break;
  case 'i':
    if (o->flags) (void)fprintf(to, "%d", o->flags);
    break;
  case 'w':
    (void)fputc(o->two ? '0' + o->two - 1 : 'n', to);
    break;
  case 'k':
    (void)fputs(kinds[o->bytes % ON_KINDS], to);
    break;
  case 't':
    (void)fwrite((const char *)o->bytes, 1, o->more, to);
    break;
  case 'M':
    for (i = 0; i < o->more; i++) (void)fputc(o->bytes >> i & 1 ? 'm' : '.', to);
    break;
  default:
    (void)fputc(form, to);
  }
}

/* What follows a letter that may be left out; 0: it is. */
static size_t optional_of(const op *o, char form) {
  return form == 'z' || form == 'n' ? o->bytes
         : form == 'y'              ? o->more
         : form == 'd'              ? o->one
                                    : o->two;
}

static void write_form(FILE *to, const op *o, const char *form) {
  for (; *form; form++) {
    if (*form == '?') {
      if (optional_of(o, form[2]))
        (void)fputc(form[1], to);
      else
        form++;
      form++;
      continue;
    }
    switch (*form) {
    case 'b':
      write_block(to, o->one);
      break;
    case 'c':
      write_block(to, o->two);
      break;
    case 'S':
      (void)fputc(slot_letters[o->stream], to);
      break;
    case '@':
      if (o->stream) (void)fprintf(to, "@%c", slot_letters[o->stream]);
      break;
    case 'd':
      (void)fprintf(to, "%d", o->one);
      break;
    case 'e':
      (void)fprintf(to, "%d", o->two - 1);
      break;
    case 'p':
      (void)fputc(o->one ? '0' + o->one - 1 : 'n', to);
      break;
    case 'z':
      write_size(to, o->bytes);
      break;
    case 'y':
      write_size(to, o->more);
      break;
    case 'n':
      (void)fprintf(to, "%zu", o->bytes);
      break;
    case '/':
      if (form[1])
        (void)fputc('/', to);
      else
        write_flags(to, o);
      break;
    default:
      write_rest(to, o, *form);
    }
  }
}

static void op_write(FILE *to, const op *o) {
  if (o->verb == 'F') {
    if (o->two == ON_HOST)
      (void)fprintf(to, "host:%zu", o->bytes);
    else
      (void)fprintf(to, "fail:%s=%zu%c", kinds[o->two], o->bytes, o->result);
    if (o->flags) (void)fputc('*', to);
    return;
  }
  if (o->verb == 'M') {
    (void)fprintf(to, "in:%s=%zu(", kinds[o->two], o->bytes);
    return;
  }
  if (o->verb == '=') {
    (void)fputs(comparisons[o->align - 1].name, to);
    write_form(to, o, comparisons[o->align - 1].form);
  } else {
    (void)fputc(o->verb, to);
    write_form(to, o, word_of(o->verb)->form);
  }
  if (o->result) (void)fprintf(to, "!%c", o->result);
}

static inline void program_write(FILE *to, const program *p) {
  size_t i, end = OPS; /* of what is inside of a call */
  const char *space = "";
  (void)fputc('{', to);
  if (p->options[OPT_GRANULE]) {
    writing_unit = UNIT;
    (void)fputs("granule:", to);
    write_size(to, p->options[OPT_GRANULE]);
    space = " ";
  }
  writing_unit = unit_of(p);
  for (i = 0; i < OPT_COUNT; i++) {
    if (!p->options[i] || i == OPT_GRANULE) continue;
    (void)fprintf(to, "%s%s", space, option_names[i]);
    space = " ";
    if (i >= OPT_NUMBERS) continue;
    (void)fputc(':', to);
    if (i < OPT_SIZES)
      write_size(to, p->options[i]);
    else
      (void)fprintf(to, "%zu", p->options[i]);
  }
  (void)fputc('}', to);
  for (i = 0; i < p->count; i++) {
    (void)fputc(' ', to), op_write(to, &p->ops[i]);
    if (p->ops[i].verb == 'M') end = i + p->ops[i].more;
    if (end == i) (void)fputs(" )", to);
  }
}

/* ---- From and to bytes ----------------------------------------------------------------------- */

#define OP_BYTES 8

/* Leaves letters that there are, without gaps. */
static void fit_answers(op *o, const op *was) {
  size_t i, count = 0;
  for (i = 0; i < ANSWERS; i++)
    if (answer_of(was, i) % 11) add_answer(o, count++, answer_of(was, i) % 11);
  o->flags = was->flags % 8;
}

/* Leaves what the word has, in its range. */
static void op_fit(op *o) {
  const op was = *o;
  const char *form = word_of(was.verb)->form;
  memset(o, 0, sizeof(*o));
  o->verb = was.verb;
  for (; *form; form++) {
    if (strchr("bdp", *form)) o->one = was.one % (*form == 'b' ? NAMES : 10);
    if (*form == 'c') o->two = was.two % NAMES;
    if (*form == 'e') o->two = (unsigned char)(was.two % 11 + !(was.two % 11 || form[-2] == '?'));
    if (*form == 'S' || *form == '@') o->stream = was.stream % (ON_NONE + 1);
    if (*form == 'm') o->flags = was.flags % 2;
    if (*form == 'l') fit_answers(o, &was);
    if (*form == 'z' || *form == 'n') o->bytes = was.bytes;
    if (*form == 'y') o->more = was.more;
    if (*form != '/' || form[1]) continue;
    o->two = was.two % 11;
    o->flags = was.flags % 16;
    o->align = was.align;
  }
}

/* Any bytes are an operation; those of op_to_bytes are the same one again, but for its result,
   sizes that are no multiple of half a grain, and those of 65,536 of these and more. */
static op op_from_bytes(const unsigned char *b) {
  op o;
  const size_t verbs = WORDS + 1;
  memset(&o, 0, sizeof(o));
  o.verb = b[0] % verbs < WORDS ? words[b[0] % verbs].verb : 'F';
  o.stream = (b[1] & 15) % (ON_NONE + 1);
  o.flags = b[1] >> 4;
  o.one = b[2];
  o.two = b[3];
  o.bytes = (b[4] | (size_t)b[5] << 8) * (GRAIN / 2);
  o.more = b[6] * UNIT;
  o.align = b[7] % 8 ? GRAIN << b[7] % 8 : 0;
  if (o.verb != 'F') {
    op_fit(&o);
  } else {
    memset(&o, 0, sizeof(o));
    o.verb = 'F';
    o.flags = b[1] >> 4 & 1;
    o.two = b[3] % ON_TURN;
    o.bytes = b[4] % 64 + 1u;
    if (o.two != ON_HOST)
      o.result = (unsigned char)result_letters[b[5] % (sizeof(result_letters) - 1)];
  }
  return o;
}

static void op_to_bytes(const op *o, unsigned char *b) {
  size_t verb = 0, align = 0;
  while (verb < WORDS && words[verb].verb != o->verb) verb++;
  while (o->align > GRAIN << align) align++;
  b[0] = (unsigned char)verb;
  b[1] = (unsigned char)(o->stream | o->flags << 4);
  b[2] = o->one;
  b[3] = o->two;
  b[4] = (unsigned char)(o->bytes / (GRAIN / 2));
  b[5] = (unsigned char)(o->bytes / (GRAIN / 2) >> 8);
  b[6] = (unsigned char)(o->more / UNIT);
  b[7] = (unsigned char)align;
  if (o->verb != 'F') return;
  b[4] = (unsigned char)(o->bytes - 1);
  b[5] = o->result ? (unsigned char)(strchr(result_letters, o->result) - result_letters) : 0;
}

/* Leaves options of a lake that can be made. */
static void options_fit(size_t *o) {
  const size_t least = 8;
  size_t chunk = UNIT;
  o[OPT_GRANULE] = 0;
  while (2 * chunk <= o[OPT_CHUNK] && chunk < 32 * UNIT) chunk *= 2;
  o[OPT_CHUNK] = chunk;
  if (o[OPT_CAP] < least * chunk) o[OPT_CAP] = least * chunk;
  if (o[OPT_ARENA]) o[OPT_ARENA] = o[OPT_CAP] + chunk;
  o[OPT_WINDOW] = o[OPT_WINDOW] / chunk * chunk;
  if (o[OPT_WINDOW] && o[OPT_WINDOW] < o[OPT_CAP]) o[OPT_WINDOW] = o[OPT_CAP];
  o[OPT_STREAMS] %= SLOTS;
  o[OPT_PEERS] %= 4;
  o[OPT_MODE] %= 3;
  o[OPT_EXTENT] = o[OPT_EXTENT] ? 2 : 0;
  o[OPT_POLICY] %= 8;
  if (o[OPT_SHARE]) o[OPT_BOOKS] = 0;
}

/* A byte an option, then OP_BYTES an operation; what is left over says nothing. */
static inline void program_from_bytes(program *p, const unsigned char *bytes, size_t count) {
  size_t i;
  for (i = 0; i < OPT_BYTES; i++) {
    const unsigned char b = i < count ? bytes[i] : 0;
    p->options[i] = i < OPT_SIZES ? b * UNIT : i < OPT_NUMBERS ? b : b & 1u;
  }
  p->options[OPT_EXACT] = p->options[OPT_INTEGRATED] = 0;
  options_fit(p->options);
  for (p->count = 0; i + OP_BYTES <= count && p->count < OPS; i += OP_BYTES) {
    const op o = op_from_bytes(bytes + i);
    program_add(p, &o);
  }
}

/* A size of more than 255 units becomes 255, so a program of a larger lake is read as one of a
   smaller lake. What program_from_bytes has made is the same again. */
static inline void program_to_bytes(const program *p, FILE *to) {
  unsigned char bytes[OP_BYTES];
  size_t i;
  for (i = 0; i < OPT_BYTES; i++) {
    const size_t value = i < OPT_SIZES ? p->options[i] / UNIT : p->options[i];
    (void)fputc((int)(value < 255 ? value : 255), to);
  }
  for (i = 0; i < p->count; i++) {
    op_to_bytes(&p->ops[i], bytes);
    (void)fwrite(bytes, 1, OP_BYTES, to);
  }
}

#endif /* PLAY_LANGUAGE_H */
