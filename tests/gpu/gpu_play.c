/* Plays programs of tests/play on a GPU, through the machine's own driver: those below, and random
   ones, each with a seed and a lake of its own. Work is done by kernels and graphs, which tell when
   memory does not hold what they wrote; the judge looks on. What is found is printed as a line;
   --play plays such a line. With build/fake/libcuda.so.1 as the driver the same is played without a
   device. Without a GPU it says so and succeeds. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* gmlake.h wants it, and is not the first header here */
#endif
#include <cuda.h>
#include <dlfcn.h>
#include <time.h>

#include "fake_cuda.h"
#include "gpu.h"
#include "options.h"

#define DRIVER_PATH "libcuda.so.1"
#define GMLAKE_BACKEND_CUDA
#define PLAY_DEVICE "../gpu/cuda_device.h"
#include "../play/small_lake.h"

#include "../play/chance.h"
#include "../play/shrink.h"

/* Sizes are in granules of the device. What each line is about: */
static const char *const lines[] = {
    /* A stream is destroyed with work pending; another one, of its value perhaps, gets its memory,
       from a lake without limit and from one that has no other. */
    "{streams:1} [20 +a=8@A ua@A hA ua@A -a@A fA kA vA +b=8@A ub@A -b@A ]",
    "{streams:1 limit:8} [20 +a=8@A ua@A hA ua@A -a@A fA kA vA +b=8@A ub@A -b@A ]",
    /* All is freed with work pending, and nothing else is left: what another stream asks for is
       waited for, in pieces and as a whole. */
    "{cap:32 streams:3} [4 +a=1@A +b=1@B +c=1@A +d=1@B +e=1@A +f=1@B +g=1@A +h=1@B +i=24@A ua@A "
    "uc@A ue@A ug@A ui@A "
    "hA hB ua@A uc@A ue@A ug@A -a@A -c@A -e@A -g@A +z=4@C uz@C hA ui@A -i@A +y=24@C/s uy@C -z@C "
    "-y@C -b@B -d@B -f@B -h@B T:0 ]",
    /* What is complete is returned while kernels run on the rest. */
    "{} +a=8@A/x +b=8@B/x ua@A ub@B hA ua@A -a@A eB -b@B T:0 T:0 eA T:0",
    /* A capture in whose middle memory of before is freed, and memory is trimmed. */
    "{cap:64} P0 +a=4@A ua@A BA:0/0 +b=2@A ub@A -a@A +c=4@B uc@B -c@B T:0 +d=2@A ud@A -d@A EA "
    "[50 j0@A +e=8@B ue@B hB ue@B -e@B ] j0@B",
    /* The only memory is at work when a capture needs it: of its own stream, of the legacy one. */
    "{cap:8} P0 +x=512b@B -x@B +a=5@A +b=512b@A +c=512b@A ua@A hA ua@A -a@A BA:0/0 -c@A +d=4@A "
    "ud@A "
    "EA j0@A -b@A",
    "{cap:8} P0 +x=512b@B -x@B +a=5 +b=512b +c=512b ua hA ua -a BA:0/0 -c +d=4@A ud@A EA j0@A -b",
    /* The same is captured over and over into one pool. */
    "{} P0 [50 BA:0/0 +a=3@A ua@A +b=5@A ub@A -a@A +c=2@A uc@A -b@A -c@A EA j0@A J0 ] inside:0=8",
    /* A graph is replayed where its pool has slept. */
    "{} P0 +w=8@A/0 uw@A BA:0/0 +a=4@A ua@A uw@A +b=6@A ub@A -b@A EA j0@A [10 S0:k W0 uw@A j0@A "
    "S0:d W0 uw@A j0@A ]",
    /* Two models sleep and wake together, one with its contents, while their graphs stay: a hundred
       times, as an engine that trains and generates in turn does. */
    "{} P0 P1 +w=8@A/0 +v=8@A/1 uw@A uv@A BA:0/0 +a=3@A ua@A uw@A -a@A EA BA:1/1 +b=3@A ub@A uv@A "
    "-b@A EA j0@A j1@A [100 S0:k S1:d W0 W1 uv@A j0@A j1@A ]",
    /* Buffers grow and shrink at work, and memory comes and goes in their middle. */
    "{limit:12} N0:8 N1:8 N2:8 [9 z0:6@A U0@A z1:4@B U1@B hA U0@A z0:2@A c2:1,3@C U2@C z1:7@B U1@B "
    "hC U2@C d2:2,1@C z0:0@A z1:1@B d2:0,8@C ]",
    /* A lake ends with blocks and a window that kernels still use. */
    "{} [8 +*=1@A ] -b@A -d@A -f@A +w=3@A uw@A hA uw@A +x=16@A ux@A +y=16@A uy@A -x@A",
};
#define LINES_HERE (sizeof(lines) / sizeof(lines[0]))

static size_t granule;

/* Of granules of the device, which may have few: what the judge knows of each is large. Memory that
   is shared is for test_cuda_rows.c. */
static void fit(size_t *o) {
  const size_t chunk = o[OPT_CHUNK] > UNIT ? 2 * UNIT : UNIT;
  size_t i, chunks = o[OPT_CAP] / o[OPT_CHUNK];
  if (chunks > 64) chunks = 64;
  for (i = 0; i < OPT_SIZES; i++) o[i] = o[i] / o[OPT_CHUNK] * chunk / UNIT * granule;
  o[OPT_CHUNK] = chunk / UNIT * granule;
  o[OPT_CAP] = chunks * o[OPT_CHUNK];
  if (o[OPT_ARENA]) o[OPT_ARENA] = o[OPT_CAP] + o[OPT_CHUNK];
  if (o[OPT_WINDOW]) o[OPT_WINDOW] = 2 * o[OPT_CAP];
  o[OPT_GRANULE] = granule;
  o[OPT_SHARE] = o[OPT_FILL] = o[OPT_PEERS] = 0;
  o[OPT_BOOKS] = 1;
  if (!fake) o[OPT_MAY_END] = 0; /* driver 580 dies where a stream is named that is gone */
}

/* ---- Playing --------------------------------------------------------------------------------- */

static struct wishes {
  uint64_t lakes, seconds, seed;
  uint64_t mood;    /* MOODS: any */
  const char *line; /* NULL: those below, and random ones */
} wishes = {100, 0, 1, MOODS, NULL};

/* Whether there is a device that can do it. Nothing of a program is played yet. */
static int find_device(void) {
  CUmemAllocationProp prop;
  int count = 0, has = 0;
  memset(&prop, 0, sizeof(prop));
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  if (!open_driver() || gpu.cuInit(0) || gpu.cuDeviceGetCount(&count) || !count ||
      gpu.cuDeviceGetAttribute(&has, (CUdevice_attribute)102, 0) || !has ||
      gpu.cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM))
    return 0;
  if (fake) granule = UNIT; /* it has the granules that it is told */
  return 1;
}

static int tell(program *p, const char *rule) {
  if (!rule) return 0;
  (void)printf("operation %zu: %s\n", verdict.at + 1, rule);
  if (verdict.at + 1 < p->count) p->count = verdict.at + 1;
  if (fake) shrink(p); /* a device is in another order the next time */
  program_write(stdout, p);
  (void)printf("\n");
  return 1;
}

/* NULL: nothing is found. */
static int play_words(const char *line) {
  static program p;
  char words[1024];
  (void)snprintf(words, sizeof(words), "{granule:%zu books %s", granule / UNIT, line + 1);
  if (program_of(&p, strstr(line, "granule:") ? line : words)) {
    (void)printf("not of the language: %s\n", line);
    return 1;
  }
  return tell(&p, play(&p, NULL));
}

/* How many have found something. */
static int play_lakes(void) {
  const time_t end = time(NULL) + (time_t)wishes.seconds;
  static program p;
  uint64_t seed;
  int found = 0;
  for (seed = wishes.seed; seed < wishes.seed + wishes.lakes || time(NULL) < end; seed++) {
    prepare(&p, seed);
    fake_seed = (unsigned)seed;
    if (!tell(&p, play(&p, choose))) continue;
    (void)printf("seed %llu\n", (unsigned long long)seed);
    if (++found == (fake ? 1 : 3)) break;
  }
  (void)printf(
      "seeds %llu to %llu: %llu operations, %llu stitches, %llu evictions, %llu waits, "
      "%llu launches, %llu sleeps, %llu loans\n",
      (unsigned long long)wishes.seed, (unsigned long long)seed - 1,
      (unsigned long long)counts.steps, (unsigned long long)counts.stitches,
      (unsigned long long)counts.evictions, (unsigned long long)counts.waits,
      (unsigned long long)counts.launches, (unsigned long long)counts.sleeps,
      (unsigned long long)counts.lends);
  return found;
}

static size_t free_bytes(void) {
  size_t bytes = 0, total;
  CUcontext popped;
  if (!context || gpu.cuCtxPushCurrent(context)) return 0;
  (void)gpu.cuMemGetInfo(&bytes, &total);
  (void)gpu.cuCtxPopCurrent(&popped);
  return bytes;
}

/* What the device has free is what it had, but for what the driver keeps for itself. */
static int loses_memory(size_t before) {
  const size_t slack = (size_t)128 << 20, after = free_bytes();
  if (fake || (before && after + slack > before)) return 0;
  (void)printf("%zu bytes were free, and %zu are\n", before, after);
  return 1;
}

static int play_all(void) {
  size_t i, before = 0;
  int found = 0;
  for (i = 0; i < LINES_HERE && !(fake && found); i++) {
    found += play_words(lines[i]);
    if (!i) before = free_bytes();
  }
  found += play_lakes();
  found += loses_memory(before);
  (void)printf("%s\n", found ? "FAILED" : "passed");
  return found != 0;
}

static void parse_arguments(int argc, char **argv) {
  static const char about[] =
      "Plays programs of tests/play on a GPU, with kernels and graphs; without one it says so and\n"
      "succeeds.\n";
  const option_row rows[] = {
      {"lakes", OPTION_COUNT, &wishes.lakes, 0, 1e15, "N", "random programs; default 100"},
      {"seconds", OPTION_COUNT, &wishes.seconds, 0, 1e9, "N", "more of them, until then"},
      {"seed", OPTION_COUNT, &wishes.seed, 0, 1e15, "N", "of the first one; default 1"},
      {"mood", OPTION_COUNT, &wishes.mood, 0, MOODS - 1, "N", "of all of them (chance.h)"},
      {"trace", OPTION_FLAG, &is_traced, 0, 0, NULL, "says what is done"},
      {"play", OPTION_TEXT, &wishes.line, 0, 0, "LINE", "plays a line of language.h alone"},
  };
  const option_reader reader = {"gpu_play", "[OPTION]...", about,
                                "",         rows,          sizeof(rows) / sizeof(rows[0])};
  options_alone(&reader, argc, argv);
  if (wishes.mood < MOODS) only_mood = (long)wishes.mood;
}

int main(int argc, char **argv) {
  parse_arguments(argc, argv);
  fake_seed = (unsigned)wishes.seed;
  (void)setvbuf(stdout, NULL, _IOLBF, 0);
  has_kernels = 1;
  fit_options = fit;
  if (!find_device()) {
    (void)printf("skipped: no GPU\n");
    return 0;
  }
  return wishes.line ? play_words(wishes.line) : play_all();
}
