/* Measures on a GPU the figures of bench/RESULTS.md: what the driver's calls cost, what the lake
   and its peers need for recorded traces, and how fast copies through windows are. It compares them
   with the mock's model. It needs no CUDA toolkit. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_CUDA
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#define GMLAKE_BFC_IMPLEMENTATION
#include "gmlake_bfc.h"

#include <ctype.h>
#include <errno.h>
#include <glob.h>

#include "gpu_bench.h"
#include "options.h"
#include "gpu_vmm.h"
#include "gpu_replay.h"
#include "gpu_copy.h"

#define DEFAULT_TRACES "bench/traces/*.gmtrace.gz"
#define NUMBER_MAX 1000000

static const char about[] =
    "Measures on the first GPU. On a machine without a GPU it says so and succeeds. Without\n"
    "SECTION it measures all. Without TRACE it uses those that match bench/traces/*.gmtrace.gz.\n"
    "\n"
    "sections:\n"
    "  vmm        what each call of the driver costs\n"
    "  traces     the lake on recorded traces, compared with the mock's model and with other\n"
    "             allocators\n"
    "  bandwidth  speed of copies between blocks of cuMemAlloc, of the home arena, and windows\n"
    "  operation  time of an allocation or a free in later passes, with locks and without\n"
    "  limit      the lake with a limit, as on a smaller card\n"
    "\n"
    "options:";

static const char more[] =
    "\nExit status: 0, 1 if a measurement failed, 2 if the arguments are bad.\n";

static const struct {
  const char *name;
  void (*run)(bench *b);
  int needs_traces;
} sections[] = {{"vmm", run_vmm, 0},
                {"traces", run_traces, 1},
                {"bandwidth", run_bandwidth, 0},
                {"operation", run_operation, 1},
                {"limit", run_limit, 1}};

#define SECTION_COUNT (sizeof sections / sizeof sections[0])

typedef struct options {
  const char *json_path;
  int chosen[SECTION_COUNT]; /* all, if no section is named */
} options;

/* ---- Arguments ------------------------------------------------------------------------------- */

static int usage_error(const char *reason, const char *value) {
  fprintf(stderr, "gpu_bench: %s: %s (--help lists the options)\n", reason, value);
  return 2;
}

static int parse_section(options *o, const char *word) {
  size_t i;
  for (i = 0; i < SECTION_COUNT; i++) {
    if (strcmp(word, sections[i].name)) continue;
    o->chosen[i] = 1;
    return 1;
  }
  return 0;
}

static void choose_all_if_none(options *o) {
  size_t i;
  for (i = 0; i < SECTION_COUNT; i++)
    if (o->chosen[i]) return;
  for (i = 0; i < SECTION_COUNT; i++) o->chosen[i] = 1;
}

static int needs_traces(const options *o) {
  size_t i;
  for (i = 0; i < SECTION_COUNT; i++)
    if (o->chosen[i] && sections[i].needs_traces) return 1;
  return 0;
}

/* Takes the names of sections out of the words, and moves the paths of traces to the front. */
static void take_words(bench *b, options *o, char **words, size_t count) {
  size_t i;
  b->paths = words;
  for (i = 0; i < count; i++)
    if (!parse_section(o, words[i])) b->paths[b->path_count++] = words[i];
  choose_all_if_none(o);
}

static void parse_arguments(int argc, char **argv, bench *b, options *o) {
  uint64_t copy_mib = 4096, chunk_mib = 0, limit_gib = 0;
  const option_row rows[] = {
      {"json", OPTION_TEXT, &o->json_path, 0, 0, "FILE",
       "writes every figure as one JSON document"},
      {"markdown", OPTION_FLAG, &b->is_markdown, 0, 0, NULL, "prints the tables in Markdown"},
      {"repeat", OPTION_COUNT, &b->repeat, 1, REPEAT_MAX, "N",
       "measures N times; times are medians (default 3)"},
      {"peer-ops", OPTION_COUNT, &b->peer_op_count, 1, NUMBER_MAX, "N",
       "most operations of a trace for cuMemAlloc (default 20000: each takes\n"
       "0.05 ms and more)"},
      {"chunk-mib", OPTION_POWER, &chunk_mib, 1, NUMBER_MAX, "N",
       "size of the lake's chunks in MiB, a power of two; default: the lake\n"
       "chooses"},
      {"limit-gib", OPTION_COUNT, &limit_gib, 1, NUMBER_MAX, "N",
       "the limit of the section limit, in GiB; default: 8 and 24"},
      {"copy-mib", OPTION_COUNT, &copy_mib, 16, NUMBER_MAX, "N",
       "how much the section bandwidth copies, in MiB, a multiple of 16\n"
       "(default 4096)"},
  };
  const option_reader reader = {"gpu_bench", "[OPTION]... [SECTION]... [TRACE]...", about, more,
                                rows,        sizeof rows / sizeof rows[0]};
  char copied[24];
  int first;
  memset(b, 0, sizeof *b);
  memset(o, 0, sizeof *o);
  b->repeat = 3;
  b->peer_op_count = 20000;
  first = options_read(&reader, argc, argv);
  snprintf(copied, sizeof copied, "%lu", (unsigned long)copy_mib);
  if (copy_mib % 16) options_wrong(&reader, "copy-mib", "a multiple of 16", copied);
  b->chunk_bytes = (size_t)chunk_mib * MIB;
  b->limit_bytes = (size_t)limit_gib * 1024 * MIB;
  b->copy_bytes = (size_t)copy_mib * MIB;
  take_words(b, o, argv + first, (size_t)(argc - first));
}

/* ---- The device ------------------------------------------------------------------------------ */

/* Finds the version of the kernel module, which the driver's library does not tell. It is the first
   word of the first line that is a number. */
static void read_driver_version(char *out, size_t out_bytes) {
  char line[256] = "";
  char *word;
  FILE *file = fopen("/proc/driver/nvidia/version", "r");
  snprintf(out, out_bytes, "unknown");
  if (!file) return;
  if (fgets(line, sizeof line, file)) {
    for (word = strtok(line, " \t\n"); word; word = strtok(NULL, " \t\n")) {
      if (!isdigit((unsigned char)*word)) continue;
      snprintf(out, out_bytes, "%s", word);
      break;
    }
  }
  fclose(file);
}

/* Returns 0 if there is no device. */
static int open_device(bench *b) {
  const gpu_driver *gpu = &b->gpu;
  gmlake_backend *backend;
  CUcontext context;
  int count = 0, code;
  if (!gpu_open(&b->gpu, "libcuda.so.1") || gpu->cuInit(0) != CUDA_SUCCESS ||
      gpu->cuDeviceGetCount(&count) != CUDA_SUCCESS || !count)
    return 0;
  GPU(cuDeviceGet(&b->device, 0));
  GPU(cuDevicePrimaryCtxRetain(&context, b->device));
  GPU(cuCtxSetCurrent(context));
  LAKE(gmlake_cuda_create(0, &b->backend));
  backend = b->backend;
  LAKE(backend->get_properties(backend->user, &b->properties, &code));
  read_driver_version(b->driver_version, sizeof b->driver_version);
  return 1;
}

static void close_device(bench *b) {
  const gpu_driver *gpu = &b->gpu;
  gmlake_cuda_destroy(b->backend);
  GPU(cuCtxSetCurrent(NULL));
  GPU(cuDevicePrimaryCtxRelease(b->device));
}

static void print_head(bench *b) {
  const gpu_driver *gpu = &b->gpu;
  const time_t now = time(NULL);
  char date[32], cuda[32];
  int version;
  GPU(cuDriverGetVersion(&version));
  snprintf(cuda, sizeof cuda, "%d.%d", version / 1000, version % 1000 / 10);
  strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
  printf("%s, %.1f GiB, driver %s (CUDA %s), %s\n", b->properties.name,
         gib((double)b->properties.device_bytes), b->driver_version, cuda, date);
  json_text(b->json, "device", b->properties.name);
  json_count(b->json, "device_bytes", b->properties.device_bytes);
  json_count(b->json, "granularity_bytes", b->properties.granularity_bytes);
  json_text(b->json, "driver_version", b->driver_version);
  json_text(b->json, "cuda_version", cuda);
  json_text(b->json, "date", date);
  json_count(b->json, "repeat", b->repeat);
  json_real(b->json, "clock_ns", clock_cost_ns());
}

/* ---- The program ----------------------------------------------------------------------------- */

static void run_sections(bench *b, const options *o) {
  size_t i;
  json_begin(b->json, NULL, '{');
  print_head(b);
  for (i = 0; i < SECTION_COUNT; i++)
    if (o->chosen[i]) sections[i].run(b);
  json_end(b->json, '}');
}

static int run(bench *b, const options *o) {
  json document;
  int is_unwritten;
  memset(&document, 0, sizeof document);
  b->json = &document;
  if (!open_device(b)) {
    puts("skipped: no GPU");
    return 0;
  }
  if (o->json_path && !(document.file = fopen(o->json_path, "w"))) {
    fprintf(stderr, "%s: %s\n", o->json_path, strerror(errno));
    return 1;
  }
  run_sections(b, o);
  close_device(b);
  if (document.file) {
    is_unwritten = ferror(document.file);
    if (fclose(document.file) || is_unwritten) {
      fprintf(stderr, "%s: cannot be written\n", o->json_path);
      return 1;
    }
  }
  return b->failed;
}

int main(int argc, char **argv) {
  static bench b;
  options o;
  glob_t found;
  int status;
  parse_arguments(argc, argv, &b, &o);
  if (b.path_count || !needs_traces(&o)) return run(&b, &o);
  if (glob(DEFAULT_TRACES, 0, NULL, &found))
    return usage_error("no trace found as", DEFAULT_TRACES);
  b.paths = found.gl_pathv;
  b.path_count = found.gl_pathc;
  status = run(&b, &o);
  globfree(&found);
  return status;
}
