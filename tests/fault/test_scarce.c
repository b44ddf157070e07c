/* Host memory lacks in the middle of a call: a lake is left so many spare records of blocks and
   nothing else, for each number in turn. A call then succeeds or answers OUT_OF_HOST_MEMORY, and
   nothing is lost: the same call succeeds when there is memory again. What is done is said in the
   words of tests/play/language.h. */
#include "play/lake.h"

#include "cases.h"

#define MOST 24 /* spare records; more are enough for every call here */

/* One allocation fails, each in turn, not all behind it; or that of `from` spare records alone. The
   lake has no scratch, as a lack leaves it. */
enum { EACH_ALLOCATION = 1, ONCE = 2, NO_SCRATCH = 4 };

typedef struct scene {
  const char *name, *build, *call;
  const char *again; /* with memory, if not the same; where nothing has failed it is played, too */
  size_t from, to;   /* so many spare records, or with EACH_ALLOCATION that one fails */
  size_t failures;   /* at least */
  int how;
} scene;

#define USED_BY_A "+y=512b@A -y@A "
#define USED_BY_BOTH USED_BY_A "+y=512b@B -y@B "
/* A slot is given up: the first call has made all tables long enough. */
#define GIVEN_UP "+x=20@A -x@A T:0 fail:access=1R fail:unmap=1R "
/* All chunks are live, but for 24 that lie apart. */
#define APART_24                                                                      \
  "+z.3=48@n -z.3@n +a-z=1@A +a.1-v.1=1@A -acegikmoqsuwy@A -a.1c.1e.1g.1i.1k.1m.1@A " \
  "-o.1q.1s.1u.1@A "
#define WINDOW_OF_TWO                       \
  "{granule:16 cap:16 policy:1} " USED_BY_A \
  "+z.3=10@n -z.3@n +a-j=1@A -bd@A a:s +w=2@A pieces:w=2 -w@A a:r"

static const scene scenes[] = {
    /* New chunks, and one that the driver did not take. */
    {"growth",
     "{granule:16 cap:64} " USED_BY_BOTH "+x=20@A -x@A fail:release=1R T:0!R quarantined=1",
     "+p=4@A/s", NULL, 0, MOST, 1, 0},
    /* While the planner asks for memory in vain, another thread takes a record. */
    {"borrowing",
     "{granule:16 cap:8} " USED_BY_BOTH
     "+h=2@A +b=3@B +g=2@A -h@A hB -b@B in:create=1( +s=512b@A )",
     "fail:create=1O* +p=3@A/s", NULL, 0, MOST, 1, 0},
    {"planned_growth", "{granule:16 cap:64 policy:1} " USED_BY_A GIVEN_UP "+x=2@A!R a:g",
     "+p=4@A/s", NULL, 0, MOST, 1, 0},
    /* So much that the tables of slots have to grow: of the view, the slots, what lists them. */
    {"planned_large_growth", "{granule:16 cap:256 policy:1} " USED_BY_A "a:g", "+p=200@A/s", NULL,
     1, 99, 3, EACH_ALLOCATION},
    {"planned_reuse", WINDOW_OF_TWO, "+p=2@A", NULL, 0, MOST, 1, 0},
    /* The plan is not given up for another way when host memory was short for a moment. */
    {"planned_reuse_fails_as_a_whole", WINDOW_OF_TWO, "+p=2@A", NULL, 2, 3, 1, ONCE},
    /* A window of so many pieces that the tables of spans have to grow. */
    {"planned_stitch", "{granule:16 cap:48 policy:1} " APART_24 "a:s", "+p.2=24@A", "pieces:p.2=24",
     1, 99, 2, EACH_ALLOCATION | NO_SCRATCH},
    /* What a former is made of may all lack: then there is none, and the block is served. */
    {"planned_former", "{granule:16 cap:16 policy:1} " USED_BY_A "+a=4@A +y=512b@A -a@A a:k",
     "+p=1@A", "windows=1", 1, 99, 1, EACH_ALLOCATION | NO_SCRATCH},
    /* A policy that serves nothing: what is returned for it needs records, too. */
    {"planned_nothing", "{granule:16 cap:8 policy:1} " USED_BY_A "+x=2@A -x@A a:9", "+p=1@A",
     "+p=1@A!O", 3, 4, 1, 0},
    {"growing_again", "{granule:16 cap:16} " USED_BY_BOTH "N0:8^1 z0:4@A N1:8^1 z0:0@A", "z0:4@A",
     NULL, 0, MOST, 1, 0},
    /* The last record is for itself. */
    {"addresses", "{granule:16 cap:16} " USED_BY_BOTH "N0:8^1", "N1:8^1", NULL, 0, 2, 2, 0},
    {"a_fourth_pool", "{granule:16 cap:8} P0 P1 P2", "P3", NULL, 1, 99, 4, EACH_ALLOCATION},
};
#define SCENES (sizeof(scenes) / sizeof(scenes[0]))

static struct playing {
  const scene *of;
  uint64_t faults; /* before the call */
  int stage;
  size_t left, failed, met, aside;
} playing;

static void make_scarce(void) {
  const scene *s = playing.of;
  if (s->how & NO_SCRATCH) {
    gmlk_host_free(&lake->host, lake->home.scratch, gmlk_scratch_bytes(lake->home.scratch_slots));
    lake->home.scratch = NULL;
  }
  if (!(s->how & EACH_ALLOCATION)) {
    judge(gmlk_records_ensure(&lake->records, &lake->host, MOST), "no records");
    playing.aside = lake->records.unused_count - lake->records.set_aside - playing.left;
    lake->records.set_aside += playing.aside;
  }
  w.host_in = s->how & EACH_ALLOCATION ? playing.left : 1;
  w.host_stays = !(s->how & (ONCE | EACH_ALLOCATION));
  w.is_inside = 1;
}

static void make_plenty(void) {
  disarm();
  memset(w.meddlings, 0, sizeof(w.meddlings)); /* it may not have come so far */
  w.is_inside = 0;
  lake->records.set_aside -= playing.aside;
  playing.aside = 0;
  must(gmlake_check(lake), "gmlake_check");
}

/* The call, and the same one with memory: where one allocation alone fails the player itself makes
   it again. */
static int go_on(program *p, size_t at) {
  const scene *s = playing.of;
  const char *words = playing.stage == 0 ? s->call : NULL;
  (void)at;
  if (playing.stage == 0) {
    playing.faults = counts.faults;
    make_scarce();
  } else if (playing.stage == 1) {
    const int has_failed = counts.faults > playing.faults;
    playing.met = w.hits;
    make_plenty();
    playing.failed += has_failed;
    if (has_failed ? w.is_lasting : s->again && !w.hits) words = s->again ? s->again : s->call;
  }
  is_strict = playing.stage++ == 1;
  if (words && program_read(p, words)) judge(0, "not of the language");
  return words != NULL;
}

static void a_scene(void **state) {
  static program p;
  const scene *s = (const scene *)*state;
  size_t left;
  memset(&playing, 0, sizeof(playing));
  playing.of = s;
  for (left = s->from; left < s->to; left++) {
    const char *rule;
    is_strict = 1;
    if (program_of(&p, s->build)) fail_msg("not of the language: %s", s->build);
    p.options[OPT_EXACT] = 1;
    playing.left = left;
    playing.stage = 0;
    rule = play(&p, go_on);
    if (rule) fail_msg("%zu: word %zu: %s", left, verdict.at + 1, rule);
    if (s->how & EACH_ALLOCATION && !playing.met) break;
  }
  assert_true(playing.failed >= s->failures);
  assert_true(playing.failed < MOST);
}

int main(void) {
  size_t i;
  for (i = 0; i < SCENES; i++) add_case(scenes[i].name, a_scene, &scenes[i]);
  return run_cases("scarce");
}
