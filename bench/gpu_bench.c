/* Measures on a GPU what the mock's model and the README say: the driver's calls, the lake and its
   peers on recorded traces, and copies through windows. Needs no toolkit. */
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
#include "gpu_vmm.h"
#include "gpu_replay.h"
#include "gpu_copy.h"

#define DEFAULT_TRACES "bench/traces/*.gmtrace.gz"
#define NUMBER_MAX 1000000

static const char help_text[] =
    "usage: gpu_bench [OPTION]... [SECTION]... [TRACE]...\n"
    "Measures on the first GPU; without one it says so and succeeds. Without SECTION, all; "
    "without\n"
    "TRACE, those that match bench/traces/*.gmtrace.gz.\n"
    "\n"
    "sections:\n"
    "  vmm        what each call of the driver costs\n"
    "  traces     the lake on recorded traces, beside the mock's model and other allocators\n"
    "  bandwidth  copies between blocks: cuMemAlloc's, the home arena's, windows\n"
    "  operation  the lake's warm cost of an allocation or free, with locks and without\n"
    "  limit      the lake under a limit, as on a smaller card\n"
    "\n"
    "options:\n"
    "  --json FILE    writes every figure as one JSON document\n"
    "  --markdown     prints the tables in Markdown\n"
    "  --repeat N     times are medians of N (default 3)\n"
    "  --peer-ops N   operations of a trace for cuMemAlloc, at most (default 20000: each takes\n"
    "                 0.05 ms and more)\n"
    "  --chunk-mib N  the lake's chunk size; default: its own choice\n"
    "  --limit-gib N  of section limit; default: 8 and 24\n"
    "  --copy-mib N   what is copied in section bandwidth (default 4096)\n"
    "  --help\n"
    "\n"
    "Exit status: 0, 1 if a measurement failed, 2 if the arguments are bad.\n";

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
  int chosen[SECTION_COUNT]; /* all, where no section is named */
} options;

/* ---- Arguments ------------------------------------------------------------------------------- */

static int usage_error(const char *reason, const char *value) {
  fprintf(stderr, "gpu_bench: %s: %s (--help lists the options)\n", reason, value);
  return 2;
}

static int parse_number(const char *text, size_t max, size_t *out) {
  char *end;
  if (!isdigit((unsigned char)*text)) return 0;
  errno = 0;
  *out = strtoul(text, &end, 10);
  return !errno && !*end && *out && *out <= max;
}

/* Returns 1 where the value fits the option, 0 where it does not, -1 for an unknown option. */
static int parse_option(bench *b, options *o, const char *name, const char *value) {
  size_t *const number = !strcmp(name, "--repeat")      ? &b->repeat
                         : !strcmp(name, "--peer-ops")  ? &b->peer_op_count
                         : !strcmp(name, "--chunk-mib") ? &b->chunk_bytes
                         : !strcmp(name, "--limit-gib") ? &b->limit_bytes
                         : !strcmp(name, "--copy-mib")  ? &b->copy_bytes
                                                        : NULL;
  if (!strcmp(name, "--json")) {
    o->json_path = value;
    return *value != '\0';
  }
  if (!number) return -1;
  if (!parse_number(value, number == &b->repeat ? REPEAT_MAX : NUMBER_MAX, number)) return 0;
  if (number == &b->chunk_bytes && (*number & (*number - 1))) return 0;
  if (number == &b->copy_bytes && *number % 16) return 0;
  if (number == &b->chunk_bytes || number == &b->copy_bytes) *number *= MIB;
  if (number == &b->limit_bytes) *number *= 1024 * MIB;
  return 1;
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

/* Returns -1 to go on, or the exit status. The paths are moved to the front of argv. */
static int parse_arguments(int argc, char **argv, bench *b, options *o) {
  int i, fits;
  memset(b, 0, sizeof *b);
  memset(o, 0, sizeof *o);
  b->repeat = 3;
  b->peer_op_count = 20000;
  b->copy_bytes = 4096 * MIB;
  b->paths = argv + 1;
  for (i = 1; i < argc; i++) {
    const char *name = argv[i];
    if (name[0] != '-') {
      if (!parse_section(o, name)) b->paths[b->path_count++] = argv[i];
    } else if (!strcmp(name, "--help")) {
      fputs(help_text, stdout);
      return 0;
    } else if (!strcmp(name, "--markdown")) {
      b->is_markdown = 1;
    } else {
      fits = parse_option(b, o, name, i + 1 < argc ? argv[i + 1] : "");
      if (fits < 0) return usage_error("unknown option", name);
      if (++i == argc) return usage_error("a value is missing after", name);
      if (!fits) return usage_error(name, argv[i]);
    }
  }
  choose_all_if_none(o);
  return -1;
}

/* ---- The device ------------------------------------------------------------------------------ */

/* The kernel module's version, which the driver's library does not tell: the first word of the
   first line that is a number. */
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

/* Returns 0 where there is no device. */
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
  int status = parse_arguments(argc, argv, &b, &o);
  if (status >= 0) return status;
  if (b.path_count || !needs_traces(&o)) return run(&b, &o);
  if (glob(DEFAULT_TRACES, 0, NULL, &found))
    return usage_error("no trace found as", DEFAULT_TRACES);
  b.paths = found.gl_pathv;
  b.path_count = found.gl_pathc;
  status = run(&b, &o);
  globfree(&found);
  return status;
}
