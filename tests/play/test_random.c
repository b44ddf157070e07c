/* Random programs, judged by clocks (judge.h). Each seed is a lake of its own. A finding is shrunk
   and printed as one line of language.h; --play plays such a line, and so does a row of the table
   below. --help tells more. */
#include "small_lake.h"

#include <time.h>

#include "cases.h"
#include "chance.h"
#include "options.h"
#include "shrink.h"

#define LAKES 600 /* without --seconds */

/* ---- Lines ----------------------------------------------------------------------------------- */

/* What was found, as it was found: a line of language.h that has to break no rule. A comment says
   what was wrong. To add one: copy what a chooser printed. */
static const struct row {
  const char *name, *line;
} rows[] = {
    /* A free recorded an event on a recorded stream that may be gone. */
    {"a recorded stream is not touched", "{may-end} +a=1@A ra@B -a@A +b=1@A"},
    {"a recorded stream that is gone is not touched", "{may-end} +a=1@A ra@B ua@B hB kB -a@A"},
    /* Its value was another stream's by then, and the memory served at once. */
    {"a recorded stream is another one by now",
     "{may-end cap:2} +a=2@A ra@B hB ua@B kB vB -a@A +b=2@A"},
    /* A question did not see that a pool is lent while the one that was asked sleeps. */
    {"what a stream that is gone had waited for came before",
     "{may-end fill} +n=1@C un@A +i=1@A -i@C kC -n@C"},
    {"uses go on where a free lacks host memory",
     "{chunk:2 cap:98 limit:55 window:190 streams:1 peers:2 mode:2 policy:5 oom fill} +k=26@A/xt "
     "-k@A +n.3=8@A P1^2 un.3@A +v.2=3976b host:2* +k.3=10212b@A +t=4083b@n/1x ut@1 host:1 -t@1 "
     "ut@A"},
    {"a borrower is foretold while others sleep", "{} Sn:d P3:20 l3@C +i=1/t"},
    /* The slot between two extents of addresses was copied, as if it were memory. */
    {"a sleep copies no edge", "{} +a=20 +b=30@A +c=36 Sn:k Wn"},
    /* The reservation was halved below what was imported. */
    {"an import needs all its addresses", "{share cap:30} +a=20@A/x xa fail:reserve=1O ib=a*4"},
    /* A lent pool was tried first, and waited for: that request has a number of its own. */
    {"steps are of their own attempt",
     "{chunk:2 observed} N3:24^2 P3:4 +a.3=10@B/2 -a.3@n +a.1=2764b@A l3@D +n=10/xt"},
    /* What was freed of a graph's memory was lent without a wait for the stream of the free; what
       was borrowed, lent again without one for the borrower. */
    {"who borrows waits for frees", "{} P0 BA:0/0 +a=1@A/0 EA ua@A -a@A l0 +b=1@B/t"},
    {"who borrows waits for former borrowers",
     "{} P0 BA:0/0 +a=1@A -a@A EA l0 +b=1@B/t ub@B -b@B L0 l0@C +c=1@D/t"},
    /* DROP gave up what KEEP had kept, and answered an error. */
    {"contents stay where giving them up fails", "{} P0 +a=2/0 S0:k fail:host-free=1R S0:d W0 -a"},
    /* What a capture of which the lake does not know forbids to wait for is told of as such. */
    {"a pool does not end where no event may be recorded",
     "{} P0 BC:0/1 +a=1@C EC ua -a fail:record=1C* D0"},
    /* A wait of the host that failed was begun again, and again. */
    {"who wakes gives up where it cannot wait", "{} +a=1 +b=1 Sn:d +c=1@A -b fail:any=2O* Wn"},
    /* What a stream that is gone did with an exported block is complete: no news ends it. */
    {"an exported block outlives a stream that used it",
     "{share} +m.2=1/3 P0 +a=653b@A/0xt ra@A fA +f.3=1/0 -f.3 xa -a@n D0"},
    /* A stream used a graph's block, and a capture freed it: who borrows it waits for that use. */
    {"who borrows waits for uses before a capture",
     "{oom} P2:120 BC:2/7 +x.2=1@C EC ux.2@C BC:2/3 -x.2@C EC l2@D +q.2=1686b@D/t"},
    /* The device was lost while the borrower's stream was looked up, and was asked of it again. */
    {"a device that is lost is not asked who a stream is",
     "{may-end} +a=1@D fD fail:any=2G +b=1@C/t"},
    /* It was lost by the event that the look brought. */
    {"a device that is lost is asked for no event when a stream is forgotten",
     "{may-end} +a=1@D ra@A -a@D fail:any=2G fA"},
    /* It was lost while the stream was looked up, and was asked what is complete. */
    {"a device that is lost is not asked what is complete", "{} P1:96 l1 fail:any=2W q=16@C/t"},
    /* That no capture mode could be had was taken for a lack of addresses, by a forecast. */
    {"a driver that refuses to begin has addresses",
     "{chunk:2} +y=2@E +b=9@B -y@E -b@B +o=6@B fail:exchange=1O* +d=2@F +c=6@n/g"},
    /* A refusal to wait for the whole device was counted as a wait, and not told. */
    {"a wait that fails is told like it is counted",
     "{may-end observed} N2:40^4 c2:8,8 fail:any=2O z2:8@A fail:any=5C c2:8,8"},
    /* What the driver did not let the lake return stood for a live block of the pool. */
    {"a pool ends with shared memory that could not be returned",
     "{share} host:4* P3 P3 +n.2=4@n/3 l3@C -n.2@A +n=2053b@E/xt -n@E +x.3=5@A/3 -x.3@A L3@D "
     "+z.3=4895b@A/3x fail:unmap=1C S3:d xz.3 -z.3@A D3"},
    /* The judge's own mistake: without a capture mode no host memory can be given back. */
    {"contents stay where no call can be made",
     "{} P3 BA:3/8 +o.3=1@A -o.3@A EA S3:k fail:any=3R D3 xc"},
    /* Another one: it knew the last of several failures alone, and the first is told. */
    {"who grows is told why, though its undoing fails otherwise",
     "{} fail:map=1N fail:release=1R +a=1"},
    /* The judge's own mistake: one block was pending for another one that ended meanwhile. */
    {"a block is not filled while it waits for a stream that is gone",
     "{may-end fill} +m.3=1@B/3 +l=1@A/2 rm.3@C kA vA -m.3@B fC -l@A"},
    /* Of planted defects (tests/tools/planted.txt) that few random programs meet. */
    {"a window stays where nothing was tried",
     "{} +a=4@A +b=426b@B -a@A +c=26 -c fail:any=3C* T:0"},
    {"a buffer that ends waits for its uses", "{} N2:16^4 z2:12 U2@A hD K2@D N1:28^4"},
    {"a pool that ends waits for uses of graphs' memory",
     "{} P0 BA:0/0 +a=1@A/0 EA hB ua@B -a@B D0"},
    /* Faults in places that few random programs and few samples of faults meet. */
    {"who lends lacks host memory", "{} P0 +a=1@A host:1 l0@A host:2 l0@A host:3 l0@A"},
    {"who grows hears that the device is lost",
     "{chunk:2 cap:4} N0:8^1 z0:4 z0:2 fail:any=4G +a=2"},
    /* A list was tried once where it needed waits, not chunks: then its memory was the stream's,
       and served it in another way, which lacked a chunk. */
    {"what is admitted behind waits is tried again",
     "{chunk:4 cap:80 arena:84 smin:8 streams:6 peers:2 extent:2 oom may-end single fill books} "
     "t:485 gA:691 +j.1=2@B +a.3=3601b/t +u=2@B/3 Y:4,3*1@E/1 +f.2=3965b@A -f.2@A +q.2=4@D/3 "
     "hD +f=16@D/t hE +r=3428b@B -f@D +j=8@C/2 +s.3=8@E/2 rs.3@E +r.3=48506b@A -r.3@A "
     "+p.3=7450b@B/0 gC:9 t:1365 +f.2=44146b@C/3xt -q.2@n +b.3=8@F/g -j.1@E +c.2=32@C/t "
     "+m=24@E -p.3@B -j@B +c.1=32243b@D -c.1@D -c.2@C -f.2@n Y:59483b,20*3@B/2"},
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

static void a_line_breaks_no_rule(void **state) {
  static program p;
  const struct row *r = (const struct row *)*state;
  const char *wrong = program_of(&p, r->line), *rule;
  if (wrong) fail_msg("not of the language: %s", wrong);
  rule = play(&p, NULL);
  if (rule) fail_msg("%s", rule);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

/* What is written is read as the same; and any bytes are an operation, and that these bytes. */
CASE(text_and_bytes_are_operations) {
  unsigned char bytes[OP_BYTES], again[OP_BYTES];
  program p;
  size_t i, n;
  memset(&p, 0, sizeof(p));
  chance_state = 7;
  for (i = 0; i < 20000; i++) {
    char *text = NULL;
    size_t length;
    FILE *to = open_memstream(&text, &length);
    op first, second;
    for (n = 0; n < OP_BYTES; n++) bytes[n] = (unsigned char)splitmix64(&chance_state);
    first = op_from_bytes(bytes);
    op_to_bytes(&first, again);
    second = op_from_bytes(again);
    assert_memory_equal(&first, &second, sizeof(op));
    op_write(to, &first);
    (void)fclose(to);
    p.count = 0;
    if (program_read(&p, text)) fail_msg("cannot be read: %s", text);
    assert_int_equal(p.count, 1);
    free(text);
    text = NULL;
    to = open_memstream(&text, &length);
    op_write(to, &p.ops[0]);
    (void)fclose(to);
    n = p.count;
    if (program_read(&p, text)) fail_msg("cannot be read again: %s", text);
    assert_memory_equal(&p.ops[0], &p.ops[n], sizeof(op));
    free(text);
  }
  free(p.ops);
}

/* Any bytes are a program, and what is written of it is read as the same. */
CASE(bytes_are_programs) {
  unsigned char bytes[OPT_BYTES + 40 * OP_BYTES];
  program first, second;
  size_t i, n;
  memset(&first, 0, sizeof(first));
  memset(&second, 0, sizeof(second));
  chance_state = 11;
  for (i = 0; i < 2000; i++) {
    char *again = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&again, &length);
    for (n = 0; n < sizeof(bytes); n++) bytes[n] = (unsigned char)splitmix64(&chance_state);
    program_from_bytes(&first, bytes, sizeof(bytes) - i % OP_BYTES);
    program_to_bytes(&first, to);
    (void)fclose(to);
    program_from_bytes(&second, (const unsigned char *)again, length);
    free(again);
    assert_memory_equal(first.options, second.options, sizeof(first.options));
    assert_int_equal(first.count, i % OP_BYTES ? 39 : 40);
    assert_int_equal(first.count, second.count);
    assert_memory_equal(first.ops, second.ops, first.count * sizeof(op));
  }
  free(first.ops);
  free(second.ops);
}

static uint64_t seconds; /* 0: a few lakes */
static uint64_t first_seed = 1;
static int is_kept; /* as it was found */

static void tell(program *p, const char *rule, uint64_t seed) {
  (void)fprintf(stderr, "seed %llu, operation %zu: %s\n", (unsigned long long)seed, verdict.at,
                rule);
  p->count = verdict.at + 1 < p->count ? verdict.at + 1 : p->count;
  if (!is_kept) shrink(p);
  program_write(stderr, p);
  (void)fputc('\n', stderr);
}

static const char *bytes_to; /* a file's name, or NULL */

static void write_bytes(const program *p) {
  FILE *to = bytes_to ? fopen(bytes_to, "wb") : NULL;
  if (!to) return;
  program_to_bytes(p, to);
  (void)fclose(to);
}

/* Whether a long run goes on: a forecast may be wrong, in one program of so many (SECURITY.md). */
static int is_forgiven(const char *rule, uint64_t wrong, uint64_t lakes) {
  return seconds && strncmp(rule, "foretold", 8) == 0 && wrong <= 1 + lakes / 50000;
}

CASE(memory_is_handed_over_in_order) {
  const time_t begin = time(NULL);
  static program p;
  uint64_t seed = first_seed, wrong = 0;
  do {
    const char *rule;
    int is_over;
    prepare(&p, seed++);
    rule = play(&p, choose);
    write_bytes(&p);
    if (!rule) continue;
    is_over = !is_forgiven(rule, ++wrong, seed - first_seed);
    tell(&p, rule, seed - 1);
    if (is_over) fail_msg("%s", verdict.rule);
  } while (seconds ? time(NULL) < begin + (time_t)seconds : seed < first_seed + LAKES);
  printf(
      "seeds %llu to %llu: %llu operations, %llu stitches, %llu evictions, %llu waits, %llu "
      "launches, %llu sleeps, %llu loans, %llu imports, %llu faults, %llu refusals, %llu wrong "
      "forecasts, %ld s\n",
      (unsigned long long)first_seed, (unsigned long long)seed - 1,
      (unsigned long long)counts.steps, (unsigned long long)counts.stitches,
      (unsigned long long)counts.evictions, (unsigned long long)counts.waits,
      (unsigned long long)counts.launches, (unsigned long long)counts.sleeps,
      (unsigned long long)counts.lends, (unsigned long long)counts.imports,
      (unsigned long long)counts.faults, (unsigned long long)counts.refusals,
      (unsigned long long)wrong, (long)(time(NULL) - begin));
  if (only_mood < 0)
    assert_true(counts.stitches && counts.evictions && counts.waits && counts.launches &&
                counts.refusals && counts.sleeps && counts.lends && counts.imports);
}

int main(int argc, char **argv) {
  const char *line = NULL;
  uint64_t mood = MOODS;
  size_t i;
  const option_row options[] = {
      {"seconds", OPTION_COUNT, &seconds, 0, 1e9, "N", "lakes follow one another for so long"},
      {"seed", OPTION_COUNT, &first_seed, 0, 1e18, "S", "of the first one; default 1"},
      {"mood", OPTION_COUNT, &mood, 0, MOODS - 1, "M", "programs of this kind alone"},
      {"no-shrink", OPTION_FLAG, &is_kept, 0, 0, NULL, "tells a finding as it was found"},
      {"bytes", OPTION_TEXT, &bytes_to, 0, 0, "FILE",
       "writes what was played last as an input of tests/fuzz/fuzz_play.c"},
      {"play", OPTION_TEXT, &line, 0, 0, "LINE", "plays a line of language.h"},
      {"trace", OPTION_FLAG, &is_traced, 0, 0, NULL, "says what is done"},
  };
  const option_reader reader = {"test_random", "[OPTION]...", "", "", options, 7};
  options_alone(&reader, argc, argv);
  if (mood < MOODS) only_mood = (long)mood;
  if (line) {
    const int found = play_line(line);
    if (found != 2) write_bytes(w.program);
    return found;
  }
  for (i = 0; i < ROWS; i++) add_case(rows[i].name, a_line_breaks_no_rule, &rows[i]);
  return run_cases("random");
}
