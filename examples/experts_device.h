/* A part of experts.c, which includes it: its device, the mock or CUDA, with copies, kernels,
   graphs, events and a clock. On the mock time is modelled: each stream has a clock, and the host
   has one. A copy takes effect as late as the waits allow: when a stream or the host waits for an
   event behind it. So what is used without a wait has other words. */
#if !defined(EXPERTS_DEVICE_H)
#define EXPERTS_DEVICE_H

#if defined(EXPERTS_CUDA)
#include <cuda.h>
#include <time.h>
#endif

#if defined(EXPERTS_CUDA)
#define ROOM_MAX SIZE_MAX
static CUdevice device;
static CUfunction kernel;
static CUmodule module;
static CUevent *span_events; /* two for each layer */

/* One row of blocks for each number. Adds 1 to *wrong in each thread that finds another word. */
static const char ptx[] =
    ".version 6.4\n.target sm_70\n.address_size 64\n"
    ".visible .entry experts(.param .u64 base, .param .u64 stride, .param .u64 bytes,\n"
    "  .param .u64 table, .param .u64 numbers, .param .u32 salt, .param .u64 wrong,\n"
    "  .param .u64 pitch, .param .u32 classes)\n"
    "{ .reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %d<16>;\n"
    "mov.u32 %r0, %ctaid.y; ld.param.u64 %d0, [numbers]; mul.wide.u32 %d1, %r0, 4;\n"
    "add.u64 %d0, %d0, %d1; ld.global.u32 %r1, [%d0]; mov.u32 %r2, %r1;\n"
    "ld.param.u64 %d2, [table]; setp.eq.u64 %p0, %d2, 0; @%p0 bra direct;\n"
    "mul.wide.u32 %d3, %r1, 4; add.u64 %d3, %d2, %d3; ld.global.u32 %r2, [%d3];\n"
    "direct: ld.param.u64 %d4, [base]; ld.param.u64 %d5, [stride]; cvt.u64.u32 %d6, %r2;\n"
    "mad.lo.u64 %d4, %d6, %d5, %d4; ld.param.u32 %r14, [classes]; rem.u32 %r14, %r2, %r14;\n"
    "cvt.u64.u32 %d12, %r14; ld.param.u64 %d13, [pitch]; mad.lo.u64 %d4, %d12, %d13, %d4;\n"
    "ld.param.u32 %r3, [salt]; add.u32 %r1, %r1, %r3;\n"
    "mov.u32 %r11, %ctaid.x; mov.u32 %r12, %ntid.x; mov.u32 %r13, %tid.x;\n"
    "mad.lo.u32 %r11, %r11, %r12, %r13; mul.wide.u32 %d7, %r11, 16;\n"
    "mov.u32 %r13, %nctaid.x; mul.lo.u32 %r12, %r12, %r13; mul.wide.u32 %d8, %r12, 16;\n"
    "ld.param.u64 %d9, [bytes]; mov.u32 %r10, 0;\n"
    "loop: setp.ge.u64 %p1, %d7, %d9; @%p1 bra done; add.u64 %d10, %d4, %d7;\n"
    "ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%d10];\n"
    "xor.b32 %r4, %r4, %r1; xor.b32 %r5, %r5, %r1; xor.b32 %r6, %r6, %r1;\n"
    "xor.b32 %r7, %r7, %r1; or.b32 %r4, %r4, %r5; or.b32 %r6, %r6, %r7;\n"
    "or.b32 %r10, %r10, %r4; or.b32 %r10, %r10, %r6; add.u64 %d7, %d7, %d8; bra loop;\n"
    "done: setp.eq.u32 %p2, %r10, 0; @%p2 ret; ld.param.u64 %d11, [wrong];\n"
    "red.global.add.u32 [%d11], 1; ret; }\n";

static CUdeviceptr at(const void *ptr) { return (CUdeviceptr)(uintptr_t)ptr; }

static int code(const char *what, CUresult result) {
  if (result) fprintf(stderr, "%s: the driver answers %d\n", what, (int)result);
  return result != CUDA_SUCCESS;
}

static int device_open(void) {
  CUcontext context;
  CUstream streams[2];
  size_t i;
  span_events = (CUevent *)calloc((size_t)o.layers * 2, sizeof(CUevent));
  if (!span_events || code("cuInit", cuInit(0)) || code("device", cuDeviceGet(&device, 0)) ||
      code("context", cuDevicePrimaryCtxRetain(&context, device)) ||
      code("context", cuCtxSetCurrent(context)) ||
      code("stream", cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING)) ||
      code("stream", cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING)) ||
      code("module", cuModuleLoadData(&module, ptx)) ||
      code("kernel", cuModuleGetFunction(&kernel, module, "experts")))
    return 1;
  for (i = 0; i < (size_t)o.layers * 2; i++)
    if (code("event", cuEventCreate(&span_events[i], 0))) return 1;
  s.worker = (gmlake_stream)streams[0];
  s.copier = (gmlake_stream)streams[1];
  return failed("cuda_create", gmlake_cuda_create(0, &s.backend));
}
/* pre: the lake is gone. */
static int device_close(void) {
  int status = code("module", cuModuleUnload(module));
  size_t i;
  for (i = 0; i < (size_t)o.layers * 2; i++)
    status |= code("event", cuEventDestroy(span_events[i]));
  free(span_events);
  gmlake_cuda_destroy(s.backend);
  return status | code("stream", cuStreamDestroy((CUstream)s.worker)) |
         code("stream", cuStreamDestroy((CUstream)s.copier)) |
         code("context", cuDevicePrimaryCtxRelease(device));
}
static double now_us(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}
static int copy_in(void *to, const void *from, size_t bytes, gmlake_stream stream) {
  return code("copy", cuMemcpyHtoDAsync(at(to), from, bytes, (CUstream)stream));
}
static int copy_within(void *to, const void *from, size_t bytes) {
  return code("copy", cuMemcpyDtoDAsync(at(to), at(from), bytes, (CUstream)s.worker));
}
static int start(const work *w) {
  CUdeviceptr base = at(w->base), table = at(w->table), numbers = at(w->numbers),
              wrong = at(s.wrong);
  unsigned long long stride = w->stride, bytes = w->bytes, pitch = w->pitch;
  unsigned salt = w->salt, classes = w->classes;
  void *params[9];
  params[0] = &base, params[1] = &stride, params[2] = &bytes, params[3] = &table;
  params[4] = &numbers, params[5] = &salt, params[6] = &wrong;
  params[7] = &pitch, params[8] = &classes;
  return code("launch", cuLaunchKernel(kernel, bytes < MIB ? 1 : 128, w->count, 1, 256, 1, 1, 0,
                                       (CUstream)s.worker, params, NULL));
}
/* Queues what the graph has, kernel by kernel. */
static int queue(const graph *g) {
  work small = g->work;
  unsigned i;
  small.base = s.fixed;
  small.table = NULL;
  small.classes = 1;
  small.numbers = s.indexes;
  small.salt = EXPERT_SALT;
  small.count = 1;
  small.bytes = 16;
  for (i = 0; i < o.kernels; i++)
    if (start(&small)) return 1;
  if (start(&g->work)) return 1;
  return g->told &&
         code("copy", cuMemcpyDtoHAsync(g->told, at(s.chosen + g->at), o.chosen * sizeof(unsigned),
                                        (CUstream)s.worker));
}
static int capture(graph *g) {
  CUgraph made;
  CUgraphExec exec;
  if (code("begin", cuStreamBeginCapture((CUstream)s.worker, CU_STREAM_CAPTURE_MODE_GLOBAL)) ||
      queue(g) || code("end", cuStreamEndCapture((CUstream)s.worker, &made)) ||
      code("instantiate", cuGraphInstantiateWithFlags(&exec, made, 0)))
    return 1;
  g->exec = (void *)exec;
  return code("graph", cuGraphDestroy(made));
}
static int launch(const graph *g) {
  return code("graph", cuGraphLaunch((CUgraphExec)g->exec, (CUstream)s.worker));
}
static int drop(const graph *g) { return code("graph", cuGraphExecDestroy((CUgraphExec)g->exec)); }
static int read_word(const unsigned *from, unsigned *out) {
  return code("read", cuMemcpyDtoH(out, at(from), sizeof(*out)));
}
/* A span is from when the host knows a layer's misses to the end of their copies. */
static int span_mark(size_t layer, int is_end) {
  return code("event", cuEventRecord(span_events[2 * layer + (is_end != 0)], (CUstream)s.copier));
}
static int span_read(size_t layer, double *out_us) {
  float ms = 0;
  const int status =
      code("event", cuEventElapsedTime(&ms, span_events[2 * layer], span_events[2 * layer + 1]));
  *out_us = (double)ms * 1e3;
  return status;
}
#define model_record(f, stream) ((void)0)
#define model_wait(stream, f) ((void)0)
#define model_look(f) ((void)0)
#define model_settle() ((void)0)
#else
/* The model's figures: measured on an H200, */
#define ROOM_MAX (1024 * MIB) /* the mock has memory up to so much; beyond, it keeps books alone */
#define LINK_BYTES_US 55500.0 /* from pinned memory to the device */
#define READ_BYTES_US 4540000.0 /* a kernel reads; a copy within the device reads and writes */
/* and assumed: */
#define GRAPH_US 5.0            /* of the host, for a graph, */
#define LAUNCH_US 2.5           /* for a kernel without one, */
#define CALL_US 1.0             /* and for a copy */
#define SMALL_US 1.5            /* of the device, for a small kernel or copy */
#define LOOK_US 6.0             /* from the end of a stream's work until the host knows */

static struct model {
  double host_us, worker_us, copier_us; /* the host's time is this and what the driver took */
  struct {
    void *to;
    const void *from;
    size_t bytes;
  } copies[64]; /* that have not taken effect */
  unsigned queued, done;
  double *spans; /* two for each layer */
} m;

static double now_us(void) {
  gmlake_mock_census census;
  gmlake_mock_get_census(s.backend, &census);
  return m.host_us + (double)census.modelled_ns * 1e-3;
}
static double *time_of(gmlake_stream stream) {
  return stream == s.worker ? &m.worker_us : &m.copier_us;
}
/* The stream does something now, or after what it does before. */
static void spend(gmlake_stream stream, double us) {
  double *time = time_of(stream);
  const double now = now_us();
  *time = (*time < now ? now : *time) + us;
}
/* The first copies take effect. */
static void settle(unsigned upto) {
  for (; m.done < upto && m.done < m.queued; m.done++)
    memcpy(m.copies[m.done % 64].to, m.copies[m.done % 64].from, m.copies[m.done % 64].bytes);
}
static void model_settle(void) { settle(m.queued); }
static void model_record(fence *f, gmlake_stream stream) {
  const double now = now_us();
  f->at_us = *time_of(stream) < now ? now : *time_of(stream);
  f->copies = stream == s.copier ? m.queued : 0;
}
static void model_wait(gmlake_stream stream, const fence *f) {
  if (*time_of(stream) < f->at_us) *time_of(stream) = f->at_us;
  settle(f->copies);
}
static void model_look(const fence *f) {
  const double now = now_us();
  m.host_us += (now < f->at_us ? f->at_us - now : 0) + LOOK_US;
  settle(f->copies);
}

static int device_open(void) {
  gmlake_mock_desc desc = {0};
  const size_t experts = (size_t)o.layers * o.experts * o.expert_kib * KIB;
  desc.capacity_bytes = (size_t)o.limit_mib * MIB + 1024 * MIB;
  desc.bookkeeping_only = experts > ROOM_MAX || desc.capacity_bytes > 2 * ROOM_MAX;
  m.spans = (double *)calloc((size_t)o.layers * 2, sizeof(double));
  if (!m.spans) return refused("no host memory for %u layers", o.layers);
  if (!desc.bookkeeping_only && gmlake_mock_create(&desc, &s.backend)) desc.bookkeeping_only = 1;
  if (desc.bookkeeping_only) {
    printf("the mock has no memory here: nothing is written to it\n");
    if (failed("mock_create", gmlake_mock_create(&desc, &s.backend))) return 1;
  }
  has_memory = !desc.bookkeeping_only;
  return failed("stream", gmlake_mock_stream_create(s.backend, &s.worker)) ||
         failed("stream", gmlake_mock_stream_create(s.backend, &s.copier));
}
static int device_close(void) {
  free(m.spans);
  gmlake_mock_stream_destroy(s.backend, s.worker);
  gmlake_mock_stream_destroy(s.backend, s.copier);
  gmlake_mock_destroy(s.backend);
  return 0;
}
/* To the lake, a view's memory is what the view shows. */
static const char *shown(const char *ptr) {
  const size_t n = (size_t)(ptr - s.base) / (s.room ? s.room : 1);
  if (s.how != VIEWS || ptr < s.base || ptr >= s.region + s.total * s.room) return ptr;
  return ptr - address_of((uint32_t)n) + s.store_base + s.chunks[n] * s.part;
}
static int use(const char *ptr, size_t bytes, gmlake_stream stream) {
  return failed("use", gmlake_mock_use(s.backend, s.lake, shown(ptr), bytes, stream));
}
static int copy_in(void *to, const void *from, size_t bytes, gmlake_stream stream) {
  m.host_us += CALL_US;
  spend(stream, bytes < 64 * KIB ? SMALL_US : (double)bytes / LINK_BYTES_US);
  if (use((const char *)to, bytes, stream)) return 1;
  if (!has_memory) return 0;
  if (stream == s.worker) {
    memcpy(to, from, bytes);
    return 0;
  }
  if (m.queued - m.done == 64) settle(m.done + 1);
  m.copies[m.queued % 64].to = to;
  m.copies[m.queued % 64].from = from;
  m.copies[m.queued++ % 64].bytes = bytes;
  return 0;
}
static int copy_within(void *to, const void *from, size_t bytes) {
  m.host_us += CALL_US;
  spend(s.worker, 2 * (double)bytes / READ_BYTES_US);
  if (use((const char *)to, bytes, s.worker) || use((const char *)from, bytes, s.worker)) return 1;
  if (has_memory) memcpy(to, from, bytes);
  return 0;
}
/* Whether all words are the same as the first one, and that is `word`. */
static int is_right(const char *at, size_t bytes, unsigned word) {
  return *(const unsigned *)at == word && !memcmp(at, at + 4, bytes - 4);
}
static int play(const graph *g, double launch_us) {
  const work *w = &g->work;
  unsigned i;
  for (i = 0; i < o.kernels; i++) {
    m.host_us += launch_us;
    spend(s.worker, SMALL_US);
  }
  m.host_us += launch_us;
  spend(s.worker, (double)w->bytes * w->count / READ_BYTES_US);
  for (i = 0; i < w->count; i++) {
    const unsigned n = w->host_numbers[i], place = w->table ? w->host_table[n] : n;
    const char *from = w->base + place * w->stride + place % w->classes * w->pitch;
    if (use(from, w->bytes, s.worker)) return 1;
    if (has_memory && !is_right(from, w->bytes, n + w->salt)) ++*s.wrong;
  }
  if (!g->told) return 0;
  spend(s.worker, SMALL_US);
  memcpy(g->told, s.row + g->at, o.chosen * sizeof(unsigned));
  return 0;
}
/* Queues what the graph has, kernel by kernel. */
static int queue(const graph *g) { return play(g, LAUNCH_US); }
static int capture(graph *g) {
  g->exec = NULL;
  return failed("begin", gmlake_mock_capture_begin(s.backend, s.worker)) ||
         failed("end", gmlake_mock_capture_end(s.backend, s.worker));
}
static int launch(const graph *g) {
  m.host_us += GRAPH_US;
  return play(g, 0);
}
static int drop(const graph *g) { return g->exec != NULL; }
static int read_word(const unsigned *from, unsigned *out) {
  *out = has_memory ? *from : 0;
  return 0;
}
static int span_mark(size_t layer, int is_end) {
  spend(s.copier, 0);
  m.spans[2 * layer + (is_end != 0)] = m.copier_us;
  return 0;
}
static int span_read(size_t layer, double *out_us) {
  *out_us = m.spans[2 * layer + 1] - m.spans[2 * layer];
  return 0;
}
#endif

/* ---- Fences: events that one stream waits for, or the host ---- */

static int record(fence *f, gmlake_stream stream) {
  int number;
  model_record(f, stream);
  f->is_new = 1;
  return failed("record", s.backend->event_record(s.backend->user, f->event, stream, &number));
}
static int wait_for(gmlake_stream stream, fence *f) {
  int number;
  if (!f->is_new) return 0;
  f->is_new = 0;
  model_wait(stream, f);
  return failed("wait", s.backend->stream_wait(s.backend->user, stream, f->event, &number));
}
/* The host waits: for the router's choice, and at the end of what is measured. */
static int look(const fence *f) {
  int number;
  const int status = failed("look", s.backend->event_wait(s.backend->user, f->event, &number));
  model_look(f);
  return status;
}
static int finish(void) { return record(&s.seen, s.worker) || look(&s.seen); }

#endif
