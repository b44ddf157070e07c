/* A load with several streams whose completion times are known: sharded training with varying
   lengths, on a compute and a communication stream. Each layer's weights are gathered into a buffer
   that is allocated on the communication stream, used on the compute stream and freed behind that
   recorded use; gradients go the other way. A made-up device runs what the host queues, so it is
   known when each event completes, what a wait costs, and how long a step takes. */
#define _GNU_SOURCE 1 /* options.h */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "options.h"

#define MIB ((size_t)1 << 20)
#define LAYERS_MAX 256
#define EVENTS_MAX 4096
#define AHEAD_MAX 64

enum { COMPUTE, COMMUNICATION, STREAMS };

typedef struct options {
  uint64_t layers, steps, weight_mib, activation_mib, host_us, ahead, seed;
  double varying; /* lengths: from 1 - varying to 1 + varying */
  double link;    /* time of a gather, by that of computing a layer of mean length */
  int help;
} options;

/* ---- The device: it runs what is queued on each stream, in order ----------------------------- */

static struct device {
  gmlake_backend table, *mock;
  gmlake_stream streams[STREAMS];
  double host_us, done_us[STREAMS]; /* now; when all that is queued is done */
  struct {
    void *event;
    double done_us;
  } events[EVENTS_MAX];
  size_t event_count;
  uint64_t query_count;
  double waited_us[STREAMS]; /* that the streams stood still for waits of the lake */
} device;

static int stream_of(gmlake_stream stream) {
  return stream == device.streams[COMPUTE] ? COMPUTE : COMMUNICATION;
}

static double *done_of(void *event) {
  size_t i = 0;
  while (i < device.event_count && device.events[i].event != event) i++;
  if (i == EVENTS_MAX) abort();
  if (i == device.event_count) device.events[device.event_count++].event = event;
  return &device.events[i].done_us;
}

static gmlake_result on_record(void *user, void *event, gmlake_stream stream, int *code) {
  *done_of(event) = device.done_us[stream_of(stream)];
  return device.mock->event_record(user, event, stream, code);
}
static gmlake_result on_query(void *user, void *event, int *out_done, int *code) {
  gmlake_result result = device.mock->event_query(user, event, out_done, code);
  device.query_count++;
  *out_done = *done_of(event) <= device.host_us;
  return result;
}
static gmlake_result on_event_wait(void *user, void *event, int *code) {
  if (*done_of(event) > device.host_us) device.host_us = *done_of(event);
  return device.mock->event_wait(user, event, code);
}
static gmlake_result on_stream_wait(void *user, gmlake_stream stream, void *event, int *code) {
  const int s = stream_of(stream);
  const double from = device.done_us[s] > device.host_us ? device.done_us[s] : device.host_us;
  if (*done_of(event) > from) {
    device.waited_us[s] += *done_of(event) - from;
    device.done_us[s] = *done_of(event);
  }
  return device.mock->stream_wait(user, stream, event, code);
}
static uint64_t on_clock(void *user) {
  (void)user;
  return (uint64_t)(device.host_us * 1000);
}

/* Work of the program: it starts behind what `after` says, too. Returns when it is done. */
static double queue_work(int s, double us, double after_us) {
  double from = device.done_us[s] > device.host_us ? device.done_us[s] : device.host_us;
  if (after_us > from) from = after_us;
  return device.done_us[s] = from + us;
}

static void open_device(void) {
  gmlake_mock_desc desc;
  memset(&device, 0, sizeof device);
  memset(&desc, 0, sizeof desc);
  desc.bookkeeping_only = 1;
  desc.capacity_bytes = (size_t)140 << 30;
  if (gmlake_mock_create(&desc, &device.mock)) abort();
  if (gmlake_mock_stream_create(device.mock, &device.streams[COMPUTE])) abort();
  if (gmlake_mock_stream_create(device.mock, &device.streams[COMMUNICATION])) abort();
  device.table = *device.mock;
  device.table.event_record = on_record;
  device.table.event_query = on_query;
  device.table.event_wait = on_event_wait;
  device.table.stream_wait = on_stream_wait;
  device.table.clock_ns = on_clock;
}

/* ---- The program ----------------------------------------------------------------------------- */

static struct run {
  const options *o;
  gmlake *lake;
  uint64_t random;
  size_t active_peak; /* as torch counts: what recorded streams still use is active */
  void *activations[LAYERS_MAX], *shards[LAYERS_MAX];
  double gathered_us[AHEAD_MAX]; /* when the computation that used these gathers is done */
  unsigned gather;
} run;

static double random_unit(void) {
  run.random = run.random * 6364136223846793005u + 1442695040888963407u;
  return (double)(run.random >> 40) / (double)(1 << 24);
}

static void *take(size_t bytes, int s) {
  gmlake_stats stats;
  void *ptr;
  device.host_us += (double)run.o->host_us;
  if (gmlake_alloc(run.lake, bytes, device.streams[s], &ptr)) abort();
  if (gmlake_get_stats(run.lake, &stats)) abort();
  if (stats.active_bytes + stats.pending_bytes > run.active_peak)
    run.active_peak = stats.active_bytes + stats.pending_bytes;
  return ptr;
}

/* Frees on the block's stream s; with `used` it was recorded on the other one. */
static void drop(void *ptr, int s, int is_used) {
  if (is_used && gmlake_record_stream(run.lake, ptr, device.streams[!s])) abort();
  if (gmlake_free(run.lake, ptr, device.streams[s])) abort();
}

static size_t weight_bytes(uint64_t layer) {
  size_t bytes = run.o->weight_mib * MIB;
  return layer ? bytes : bytes * 2; /* the embedding */
}

/* The gather of a layer's weights. The host waits if too many are under way. */
static void *gather(uint64_t layer, double *out_done_us) {
  const double limit_us = run.gathered_us[run.gather % run.o->ahead];
  void *buffer;
  if (limit_us > device.host_us) device.host_us = limit_us;
  buffer = take(weight_bytes(layer), COMMUNICATION);
  *out_done_us = queue_work(COMMUNICATION, 1000 * run.o->link, 0);
  return buffer;
}

static void computed(void) {
  run.gathered_us[run.gather++ % run.o->ahead] = device.done_us[COMPUTE];
}

static void forward(double length) {
  double ready_us, next_us = 0;
  void *weights = gather(0, &ready_us), *next = NULL;
  uint64_t i;
  for (i = 0; i < run.o->layers; i++) {
    const size_t bytes = (size_t)((double)(run.o->activation_mib * MIB) * length);
    void *scratch;
    if (i + 1 < run.o->layers) next = gather(i + 1, &next_us);
    run.activations[i] = take(bytes, COMPUTE);
    scratch = take(bytes * 3 / 2, COMPUTE);
    (void)queue_work(COMPUTE, 1000 * length, ready_us);
    drop(scratch, COMPUTE, 0);
    drop(weights, COMMUNICATION, 1);
    computed();
    weights = next;
    ready_us = next_us;
  }
}

static void backward(double length) {
  double ready_us, next_us = 0;
  void *weights = gather(run.o->layers - 1, &ready_us), *next = NULL;
  uint64_t i = run.o->layers;
  while (i--) {
    const size_t bytes = (size_t)((double)(run.o->activation_mib * MIB) * length);
    void *gradient, *scratch;
    if (i) next = gather(i - 1, &next_us);
    scratch = take(bytes * 2, COMPUTE);
    gradient = take(weight_bytes(i), COMPUTE);
    ready_us = queue_work(COMPUTE, 2000 * length, ready_us);
    drop(scratch, COMPUTE, 0);
    drop(run.activations[i], COMPUTE, 0);
    drop(weights, COMMUNICATION, 1);
    computed();
    run.shards[i] = take(weight_bytes(i) / 8, COMMUNICATION);
    (void)queue_work(COMMUNICATION, 1000 * run.o->link, ready_us);
    drop(gradient, COMPUTE, 1);
    weights = next;
    ready_us = next_us;
  }
}

/* The host waits for the end, as a program does that reads the loss. */
static void step(void) {
  const double length = 1 + run.o->varying * (2 * random_unit() - 1);
  uint64_t i;
  forward(length);
  backward(length);
  (void)queue_work(COMPUTE, 500, device.done_us[COMMUNICATION]);
  for (i = 0; i < run.o->layers; i++) drop(run.shards[i], COMMUNICATION, 1);
  device.host_us = device.done_us[COMPUTE];
}

typedef struct order {
  const char *name;
  gmlake_cross_stream cross_stream;
  int is_marked;
} order;

static void play(const options *o, const order *with) {
  gmlake_stats stats, third;
  gmlake_desc desc;
  uint64_t queries = 0;
  double third_us = 0, compute_us = 0, link_us = 0;
  uint64_t i;
  open_device();
  memset(&run, 0, sizeof run);
  memset(&desc, 0, sizeof desc);
  run.o = o;
  run.random = o->seed;
  desc.backend = &device.table;
  desc.cross_stream = with->cross_stream;
  if (gmlake_create(&desc, &run.lake)) abort();
  if (with->is_marked &&
      gmlake_mark_stream(run.lake, device.streams[COMMUNICATION], GMLAKE_STREAM_COMMUNICATION))
    abort();
  for (i = 0; i < o->steps; i++) {
    if (i == 3) {
      if (gmlake_get_stats(run.lake, &third)) abort();
      third_us = device.host_us;
      queries = device.query_count;
      compute_us = device.waited_us[COMPUTE];
      link_us = device.waited_us[COMMUNICATION];
    }
    step();
  }
  if (gmlake_get_stats(run.lake, &stats)) abort();
  printf("%-18s %6.2f %6.2f %8.2f %6.3f %6.3f %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f\n",
         with->name, (double)stats.active_bytes_peak / (double)(1 << 30),
         (double)run.active_peak / (double)(1 << 30),
         (double)stats.reserved_bytes_peak / (double)(1 << 30),
         (double)stats.active_bytes_peak / (double)stats.reserved_bytes_peak,
         (double)run.active_peak / (double)stats.reserved_bytes_peak,
         (double)(stats.driver_call_count - third.driver_call_count -
                  (stats.event_count - third.event_count) - (device.query_count - queries) -
                  (stats.stream_wait_count - third.stream_wait_count)) /
             (double)(o->steps - 3),
         (double)(device.query_count - queries) / (double)(o->steps - 3),
         (double)(stats.event_count - third.event_count) / (double)(o->steps - 3),
         (double)(stats.stream_wait_count - third.stream_wait_count) / (double)(o->steps - 3),
         (device.host_us - third_us) / 1e3 / (double)(o->steps - 3),
         (device.waited_us[COMPUTE] - compute_us) / 1e3 / (double)(o->steps - 3),
         (device.waited_us[COMMUNICATION] - link_us) / 1e3 / (double)(o->steps - 3));
  if (gmlake_check(run.lake) || gmlake_destroy(run.lake)) abort();
  gmlake_mock_destroy(device.mock);
}

int main(int argc, char **argv) {
  static const order orders[] = {{"growing first", GMLAKE_GROW_FIRST, 0},
                                 {"waiting first", GMLAKE_WAIT_FIRST, 0},
                                 {"  marked", GMLAKE_WAIT_FIRST, 1}};
  options o = {32, 20, 96, 64, 20, 2, 1, .6, .7, 0};
  const option_row rows[] = {
      {"layers", OPTION_COUNT, &o.layers, 2, LAYERS_MAX, "N", "layers of the model (default 32)"},
      {"steps", OPTION_COUNT, &o.steps, 4, 10000, "N", "of the training (default 20)"},
      {"weight-mib", OPTION_COUNT, &o.weight_mib, 1, 4096, "N", "of a layer (default 96)"},
      {"activation-mib", OPTION_COUNT, &o.activation_mib, 1, 4096, "N",
       "of a layer, kept for the way back, at mean length (default 64)"},
      {"host-us", OPTION_COUNT, &o.host_us, 0, 10000, "N",
       "the host's time for an allocation and the work behind it (default 20)"},
      {"ahead", OPTION_COUNT, &o.ahead, 1, AHEAD_MAX, "N",
       "gathers that may be under way before the host waits (default 2)"},
      {"varying", OPTION_NUMBER, &o.varying, 0, .9, "X",
       "the lengths vary from 1 - X to 1 + X (default 0.6)"},
      {"link", OPTION_NUMBER, &o.link, 0, 100, "X",
       "time of a gather, by that of a layer of mean length (default 0.7)"},
      {"seed", OPTION_COUNT, &o.seed, 0, 1e9, "N", "of the lengths (default 1)"}};
  const option_reader reader = {
      "streams",
      "[OPTION]...",
      "Trains a made-up sharded model on two streams of a made-up device, and prints the memory,\n"
      "the calls of the driver in a step after the third, and what waits cost.",
      "\nlive: in the host's order; counted: as torch counts, with what recorded streams still\n"
      "use. Calls, events, waits and milliseconds are those of a step, after the third. Waiting:\n"
      "how long the streams stood still because the lake made them wait.\n",
      rows,
      sizeof rows / sizeof rows[0]};
  size_t i;
  options_alone(&reader, argc, argv);
  printf("%-18s %6s %6s %8s %6s %6s %8s %8s %8s %8s %8s %8s %8s\n", "", "live", "count", "reserved",
         "util", "util", "memory", "asked", "recorded", "waits", "ms", "waiting", "waiting");
  printf("%-18s %6s %6s %8s %6s %6s %8s %8s %8s %8s %8s %8s %8s\n", "", "GiB", "GiB", "GiB", "live",
         "count", "calls", "", "", "", "", "compute", "link");
  for (i = 0; i < sizeof orders / sizeof orders[0]; i++) play(&o, &orders[i]);
  return 0;
}
