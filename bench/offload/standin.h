/* Stand-in operators for gmlake_offload_cuda_desc: they take the time that the graph says, and fill
   what they write with what follows from every byte that they read, so that a wrong byte, a missing
   copy or a wrong order anywhere changes all that comes later. Kernels are PTX text, which the
   driver compiles. pre: a context is current all along; <cuda.h> and gmlake_offload.h are included
   already, with the macros that the program wants for them.

   An operator is two kernels: one adds up the digest of what is read, the other writes, and ends
   when the operator's time has passed since the first began. An operator whose time is too short to
   touch all its bytes at BYTES_PER_NS looks at one line of 128 bytes in every 2, 4, ... of each
   tensor of 64 KiB or more, at least at one in 2 MiB. What an operator writes in part is read in
   that part only. */
#if !defined(STANDIN_H)
#define STANDIN_H

#include "../gpu.h"
#include "standin_c.h"

#define STANDIN_BYTES_PER_NS 2000.0 /* half of what an H200's memory does */
#define STANDIN_LAUNCH_NS 4000      /* what two kernels that do nothing take */
#define STANDIN_WHOLE_BYTES ((size_t)64 << 10)
#define STANDIN_SHIFT_MAX 14 /* 2 MiB */
#define STANDIN_BLOCKS 1056  /* 8 on each multiprocessor of an H200 */

/* A slot is {digest, time of the begin}, zero before its operator.
   standin_read(items, count, slot, seed)           adds the items' digest to the slot
   standin_write(items, count, first, slot, clear, seed, ns, iteration, seen, total, wrong)
     writes the items by the slot's digest and the seed; zeroes the slot `clear`; `seen` gets the
     digest, and `total` that and the iteration mixed, or if not `first`, `wrong` counts where it
     is another; ends when ns have passed */
/* clang-format off */
static const char standin_read_ptx[] =
    ".version 6.4\n"
    ".target sm_70\n"
    ".address_size 64\n"
    ".visible .entry standin_read(.param .align 8 .b8 items[384], .param .u32 count,\n"
    " .param .u64 slot, .param .u64 seed)\n"
    "{ .reg .pred %p<8>; .reg .b32 %r<24>; .reg .b64 %d<40>; .shared .align 8 .u64 sum;\n"
    "mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mov.u32 %r3, %nctaid.x;\n"
    "mul.wide.u32 %d0, %r0, %r1; cvt.u64.u32 %d2, %r2; add.u64 %d0, %d0, %d2;\n"
    "mul.wide.u32 %d1, %r3, %r1;\n"
    "ld.param.u32 %r4, [count]; ld.param.u64 %d3, [slot]; ld.param.u64 %d4, [seed];\n"
    "mov.u64 %d5, 0;\n"
    "setp.ne.u32 %p0, %r2, 0; @%p0 bra begin;\n"
    "st.shared.u64 [sum], %d5;\n"
    "setp.ne.u64 %p0, %d0, 0; @%p0 bra begin;\n"
    "ld.global.u64 %d6, [%d3+8]; setp.ne.u64 %p0, %d6, 0; @%p0 bra begin;\n"
    "mov.u64 %d6, %globaltimer; st.global.u64 [%d3+8], %d6;\n"
    "begin: bar.sync 0; mov.u64 %d7, items;\n"
    "item: setp.eq.u32 %p0, %r4, 0; @%p0 bra add;\n"
    "ld.param.u64 %d8, [%d7]; ld.param.u64 %d9, [%d7+8];\n"
    "ld.param.u32 %r5, [%d7+16]; ld.param.u32 %r6, [%d7+20];\n"
    "mov.u64 %d10, %d0;\n"
    "unit: setp.ge.u64 %p0, %d10, %d9; @%p0 bra tail;\n"
    "shr.u64 %d11, %d10, 3; shl.b64 %d11, %d11, %r6; shl.b64 %d11, %d11, 7;\n"
    "and.b64 %d12, %d10, 7; shl.b64 %d12, %d12, 4; add.u64 %d11, %d11, %d12;\n"
    "add.u64 %d12, %d8, %d11; ld.global.v2.u64 {%d13, %d14}, [%d12];\n"
    "mad.lo.u64 %d15, %d11, 0xC2B2AE3D27D4EB4F, %d4; add.u64 %d16, %d15, 0x159571E93EA75A78;\n"
    "xor.b64 %d13, %d13, %d15; mul.lo.u64 %d13, %d13, 0x9E3779B97F4A7C15;\n"
    "shr.u64 %d15, %d13, 32; xor.b64 %d13, %d13, %d15; add.u64 %d5, %d5, %d13;\n"
    "xor.b64 %d14, %d14, %d16; mul.lo.u64 %d14, %d14, 0x9E3779B97F4A7C15;\n"
    "shr.u64 %d15, %d14, 32; xor.b64 %d14, %d14, %d15; add.u64 %d5, %d5, %d14;\n"
    "add.u64 %d10, %d10, %d1; bra unit;\n"
    "tail: cvt.u64.u32 %d10, %r5; setp.ge.u64 %p0, %d0, %d10; @%p0 bra next;\n"
    "shl.b64 %d11, %d9, 4; add.u64 %d11, %d11, %d0; add.u64 %d12, %d8, %d11;\n"
    "ld.global.u8 %r7, [%d12]; cvt.u64.u32 %d13, %r7; add.u64 %d13, %d13, 1;\n"
    "mad.lo.u64 %d15, %d11, 0xC2B2AE3D27D4EB4F, %d4;\n"
    "xor.b64 %d13, %d13, %d15; mul.lo.u64 %d13, %d13, 0x9E3779B97F4A7C15;\n"
    "shr.u64 %d15, %d13, 32; xor.b64 %d13, %d13, %d15; add.u64 %d5, %d5, %d13;\n"
    "next: add.u64 %d7, %d7, 24; add.u64 %d4, %d4, 0x9E3779B97F4A7C15;\n"
    "sub.u32 %r4, %r4, 1; bra item;\n"
    "add: mov.u32 %r8, 16;\n"
    "lane: mov.b64 {%r9, %r10}, %d5;\n"
    "shfl.sync.bfly.b32 %r11, %r9, %r8, 31, -1; shfl.sync.bfly.b32 %r12, %r10, %r8, 31, -1;\n"
    "mov.b64 %d6, {%r11, %r12}; add.u64 %d5, %d5, %d6;\n"
    "shr.u32 %r8, %r8, 1; setp.ne.u32 %p0, %r8, 0; @%p0 bra lane;\n"
    "and.b32 %r9, %r2, 31; setp.eq.u32 %p0, %r9, 0; @%p0 red.shared.add.u64 [sum], %d5;\n"
    "bar.sync 0; setp.ne.u32 %p0, %r2, 0; @%p0 ret;\n"
    "ld.shared.u64 %d5, [sum]; red.global.add.u64 [%d3], %d5; ret; }\n";

static const char standin_write_ptx[] =
    ".version 6.4\n"
    ".target sm_70\n"
    ".address_size 64\n"
    ".visible .entry standin_write(.param .align 8 .b8 items[384], .param .u32 count,\n"
    " .param .u32 first, .param .u64 slot,\n"
    " .param .u64 clear, .param .u64 seed, .param .u64 ns, .param .u64 iteration,\n"
    " .param .u64 seen, .param .u64 total, .param .u64 wrong)\n"
    "{ .reg .pred %p<8>; .reg .b32 %r<24>; .reg .b64 %d<40>;\n"
    "mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mov.u32 %r3, %nctaid.x;\n"
    "mul.wide.u32 %d0, %r0, %r1; cvt.u64.u32 %d2, %r2; add.u64 %d0, %d0, %d2;\n"
    "mul.wide.u32 %d1, %r3, %r1;\n"
    "mov.u64 %d30, %globaltimer;\n"
    "ld.param.u32 %r4, [count]; ld.param.u64 %d3, [slot]; ld.param.u64 %d4, [seed];\n"
    "ld.global.u64 %d5, [%d3]; add.u64 %d4, %d4, %d5;\n"
    "shr.u64 %d5, %d4, 30; xor.b64 %d4, %d4, %d5; mul.lo.u64 %d4, %d4, 0xBF58476D1CE4E5B9;\n"
    "shr.u64 %d5, %d4, 27; xor.b64 %d4, %d4, %d5; mul.lo.u64 %d4, %d4, 0x94D049BB133111EB;\n"
    "shr.u64 %d5, %d4, 31; xor.b64 %d4, %d4, %d5; mov.u64 %d20, %d4;\n"
    "mov.u64 %d7, items;\n"
    "item: setp.eq.u32 %p0, %r4, 0; @%p0 bra end;\n"
    "ld.param.u64 %d8, [%d7]; ld.param.u64 %d9, [%d7+8];\n"
    "ld.param.u32 %r5, [%d7+16]; ld.param.u32 %r6, [%d7+20];\n"
    "mov.u64 %d10, %d0;\n"
    "unit: setp.ge.u64 %p0, %d10, %d9; @%p0 bra tail;\n"
    "shr.u64 %d11, %d10, 3; shl.b64 %d11, %d11, %r6; shl.b64 %d11, %d11, 7;\n"
    "and.b64 %d12, %d10, 7; shl.b64 %d12, %d12, 4; add.u64 %d11, %d11, %d12;\n"
    "add.u64 %d12, %d8, %d11;\n"
    "mad.lo.u64 %d13, %d11, 0xC2B2AE3D27D4EB4F, %d4; add.u64 %d14, %d13, 0x159571E93EA75A78;\n"
    "mul.lo.u64 %d13, %d13, 0x9E3779B97F4A7C15; shr.u64 %d15, %d13, 32; xor.b64 %d13, %d13, %d15;\n"
    "mul.lo.u64 %d14, %d14, 0x9E3779B97F4A7C15; shr.u64 %d15, %d14, 32; xor.b64 %d14, %d14, %d15;\n"
    "st.global.v2.u64 [%d12], {%d13, %d14};\n"
    "add.u64 %d10, %d10, %d1; bra unit;\n"
    "tail: cvt.u64.u32 %d10, %r5; setp.ge.u64 %p0, %d0, %d10; @%p0 bra next;\n"
    "shl.b64 %d11, %d9, 4; add.u64 %d11, %d11, %d0; add.u64 %d12, %d8, %d11;\n"
    "mad.lo.u64 %d13, %d11, 0xC2B2AE3D27D4EB4F, %d4;\n"
    "mul.lo.u64 %d13, %d13, 0x9E3779B97F4A7C15; shr.u64 %d15, %d13, 32; xor.b64 %d13, %d13, %d15;\n"
    "cvt.u32.u64 %r7, %d13; st.global.u8 [%d12], %r7;\n"
    "next: add.u64 %d7, %d7, 24; add.u64 %d4, %d4, 0x9E3779B97F4A7C15;\n"
    "sub.u32 %r4, %r4, 1; bra item;\n"
    "end: setp.ne.u64 %p0, %d0, 0; @%p0 ret;\n"
    "ld.param.u64 %d21, [clear]; mov.u64 %d22, 0; setp.eq.u64 %p0, %d21, 0; @%p0 bra book;\n"
    "st.global.u64 [%d21], %d22; st.global.u64 [%d21+8], %d22;\n"
    "book: ld.param.u64 %d23, [seen]; setp.eq.u64 %p0, %d23, 0; @%p0 bra clock;\n"
    "ld.param.u32 %r8, [first]; setp.eq.u32 %p0, %r8, 0; @%p0 bra again;\n"
    "st.global.u64 [%d23], %d20;\n"
    "ld.param.u64 %d24, [iteration]; add.u64 %d24, %d24, %d20;\n"
    "shr.u64 %d5, %d24, 30; xor.b64 %d24, %d24, %d5; mul.lo.u64 %d24, %d24, 0xBF58476D1CE4E5B9;\n"
    "shr.u64 %d5, %d24, 27; xor.b64 %d24, %d24, %d5; mul.lo.u64 %d24, %d24, 0x94D049BB133111EB;\n"
    "shr.u64 %d5, %d24, 31; xor.b64 %d24, %d24, %d5;\n"
    "ld.param.u64 %d25, [total]; red.global.add.u64 [%d25], %d24; bra clock;\n"
    "again: ld.global.u64 %d24, [%d23]; setp.eq.u64 %p0, %d24, %d20; @%p0 bra clock;\n"
    "ld.param.u64 %d25, [wrong]; mov.u64 %d24, 1; red.global.add.u64 [%d25], %d24;\n"
    "clock: ld.global.u64 %d26, [%d3+8]; setp.eq.u64 %p0, %d26, 0; @%p0 mov.u64 %d26, %d30;\n"
    "ld.param.u64 %d27, [ns]; add.u64 %d26, %d26, %d27;\n"
    "spin: mov.u64 %d28, %globaltimer; setp.lt.u64 %p0, %d28, %d26; @%p0 bra spin;\n"
    "ret; }\n";
/* clang-format on */

typedef struct standin {
  const gpu_driver *gpu;
  const gmlake_offload_graph *graph;
  CUmodule modules[2];
  CUfunction read, write;
  CUdeviceptr memory; /* NULL: none; two slots, one that stays zero, `wrong`, then totals, seen */
  uint64_t iteration_max;                 /* totals */
  uint64_t *ran;                          /* by operator: the last iteration + 1 */
  unsigned char *op_shift, *tensor_shift; /* tensor_shift: how it is written */
  unsigned turn;
  double jitter;           /* an operator takes 1 - jitter to 1 + jitter of its time */
  int is_frozen;           /* what follows from an iteration's number is as in iteration 0 */
  double bytes, looked_at; /* read in all launches, and that part of them */
} standin;

#define STANDIN_ZERO 32  /* bytes from `memory` */
#define STANDIN_WRONG 48 /* count of operators that wrote something else when they ran again */
#define STANDIN_TOTALS 64

static inline size_t standin_bytes(const standin *s, uint32_t tensor) {
  gmlake_offload_tensor_desc desc;
  memset(&desc, 0, sizeof desc);
  (void)gmlake_offload_get_tensor(s->graph, tensor, &desc);
  return desc.bytes;
}

static inline size_t standin_touched(const standin *s, const gmlake_offload_op_desc *op) {
  size_t i, bytes = 0;
  for (i = 0; i < op->read_count; i++) bytes += standin_bytes(s, op->reads[i]);
  for (i = 0; i < op->write_count; i++) bytes += standin_bytes(s, op->writes[i]);
  return bytes;
}

/* What transfers write holds what is in their source, so as little of it. */
static inline void standin_plan_transfers(standin *s, size_t op_count) {
  uint32_t o;
  for (o = 0; o < op_count; o++) {
    gmlake_offload_op_desc op;
    memset(&op, 0, sizeof op);
    (void)gmlake_offload_get_op(s->graph, o, &op);
    if (op.flags & GMLAKE_OFFLOAD_TRANSFER &&
        s->tensor_shift[op.writes[0]] < s->tensor_shift[op.reads[0]])
      s->tensor_shift[op.writes[0]] = s->tensor_shift[op.reads[0]];
  }
}

/* How much of its tensors each operator looks at, and how much of each tensor is written. */
static inline void standin_plan(standin *s, size_t op_count) {
  uint32_t o;
  size_t i;
  for (o = 0; o < op_count; o++) {
    gmlake_offload_op_desc op;
    double budget;
    unsigned shift = 0;
    memset(&op, 0, sizeof op);
    (void)gmlake_offload_get_op(s->graph, o, &op);
    budget = ((double)op.time_ns - STANDIN_LAUNCH_NS) * STANDIN_BYTES_PER_NS;
    while (shift < STANDIN_SHIFT_MAX && (double)(standin_touched(s, &op) >> shift) > budget) {
      shift++;
    }
    s->op_shift[o] = (unsigned char)shift;
    for (i = 0; i < op.write_count; i++) {
      unsigned char *tensor = &s->tensor_shift[op.writes[i]];
      if (*tensor < shift) *tensor = (unsigned char)shift;
    }
  }
  standin_plan_transfers(s, op_count);
}

static inline int standin_load(standin *s, size_t bytes) {
  const gpu_driver *gpu = s->gpu;
  return !gpu->cuModuleLoadData(&s->modules[0], standin_read_ptx) &&
         !gpu->cuModuleLoadData(&s->modules[1], standin_write_ptx) &&
         !gpu->cuModuleGetFunction(&s->read, s->modules[0], "standin_read") &&
         !gpu->cuModuleGetFunction(&s->write, s->modules[1], "standin_write") &&
         !gpu->cuMemAlloc(&s->memory, bytes) &&
         !gpu->cuMemsetD32Async(s->memory, 0, bytes / 4, NULL) && !gpu->cuCtxSynchronize();
}

static inline void standin_destroy(standin *s) {
  if (s->memory) (void)s->gpu->cuMemFree(s->memory);
  if (s->modules[0]) (void)s->gpu->cuModuleUnload(s->modules[0]);
  if (s->modules[1]) (void)s->gpu->cuModuleUnload(s->modules[1]);
  free(s->ran);
  free(s->op_shift);
  free(s->tensor_shift);
  memset(s, 0, sizeof *s);
}

/* For one job and so many iterations; 0: something is refused. */
static inline int standin_create(standin *s, const gpu_driver *gpu,
                                 const gmlake_offload_graph *graph, uint64_t iteration_max) {
  gmlake_offload_graph_info info;
  memset(s, 0, sizeof *s);
  s->gpu = gpu;
  s->graph = graph;
  s->iteration_max = iteration_max;
  if (gmlake_offload_graph_get_info(graph, &info)) return 0;
  s->ran = (uint64_t *)calloc(info.op_count, sizeof(uint64_t));
  s->op_shift = (unsigned char *)calloc(info.op_count, 1);
  s->tensor_shift = (unsigned char *)calloc(info.tensor_count, 1);
  if (s->ran && s->op_shift && s->tensor_shift &&
      standin_load(s, STANDIN_TOTALS + (iteration_max + info.op_count) * 8)) {
    standin_plan(s, info.op_count);
    return 1;
  }
  standin_destroy(s);
  return 0;
}

static inline CUresult standin_start(const standin *s, CUfunction kernel, const standin_item *items,
                                     uint32_t count, void **params, CUstream stream) {
  uint64_t units = 1;
  uint32_t i;
  for (i = 0; i < count; i++) {
    if (items[i].units > units) units = items[i].units;
  }
  return s->gpu->cuLaunchKernel(kernel, gpu_blocks(units, STANDIN_BLOCKS), 1, 1, 256, 1, 1, 0,
                                stream, params, NULL);
}

/* Adds the items' digest to the slot. */
static inline CUresult standin_start_read(const standin *s, standin_item *items, uint32_t count,
                                          CUdeviceptr slot, uint64_t seed, CUstream stream) {
  void *params[4];
  params[0] = items, params[1] = &count, params[2] = &slot, params[3] = &seed;
  return standin_start(s, s->read, items, count, params, stream);
}

/* Of a launch of standin_write, behind its items and their count. */
typedef struct standin_end {
  uint32_t first;
  CUdeviceptr slot, clear;
  uint64_t seed, ns, iteration;
  CUdeviceptr seen, total, wrong;
} standin_end;

static inline CUresult standin_start_write(const standin *s, standin_item *items, uint32_t count,
                                           standin_end *end, CUstream stream) {
  void *params[11];
  params[0] = items, params[1] = &count, params[2] = &end->first, params[3] = &end->slot;
  params[4] = &end->clear, params[5] = &end->seed, params[6] = &end->ns;
  params[7] = &end->iteration, params[8] = &end->seen, params[9] = &end->total;
  params[10] = &end->wrong;
  return standin_start(s, s->write, items, count, params, stream);
}

/* The tensor as the operator looks at it. */
static inline standin_item standin_use(const standin *s, uint32_t tensor, void *ptr,
                                       unsigned shift) {
  size_t bytes = standin_bytes(s, tensor);
  if (shift < s->tensor_shift[tensor]) shift = s->tensor_shift[tensor];
  return standin_item_of(ptr, bytes, bytes < STANDIN_WHOLE_BYTES ? 0 : shift);
}

static inline int standin_launch_reads(standin *s, const gmlake_offload_launch *launch,
                                       CUdeviceptr slot, uint64_t seed, CUstream stream) {
  standin_item items[STANDIN_ITEMS];
  size_t i;
  uint32_t count = 0;
  for (i = 0; i < launch->desc.read_count; i++) {
    uint32_t tensor = launch->desc.reads[i];
    items[count] = standin_use(s, tensor, launch->reads[i], s->op_shift[launch->op]);
    s->bytes += (double)standin_bytes(s, tensor);
    s->looked_at += (double)(items[count].units * 16 + items[count].tail);
    if (++count < STANDIN_ITEMS && i + 1 < launch->desc.read_count) continue;
    if (standin_start_read(s, items, count, slot, seed + standin_mix(i + 1), stream)) return 1;
    count = 0;
  }
  return 0;
}

/* How long the operator takes in that iteration. */
static inline uint64_t standin_ns(const standin *s, uint32_t op, uint64_t time_ns,
                                  uint64_t iteration) {
  double random = (double)(standin_mix(standin_mix(op + STANDIN_ODD) + iteration) >> 11) / 0x1p53;
  return (uint64_t)((double)time_ns * (1 + s->jitter * (2 * random - 1)));
}

/* launch_fn of the backend; user is a standin. An operator writes STANDIN_ITEMS tensors at most. */
static inline int standin_launch(void *user, const gmlake_offload_launch *launch, void *stream) {
  standin *s = (standin *)user;
  standin_item items[STANDIN_ITEMS];
  standin_end end;
  uint32_t i, count = (uint32_t)launch->desc.write_count;
  uint64_t iteration = s->is_frozen ? 0 : launch->iteration;
  if (launch->job || count > STANDIN_ITEMS || launch->iteration >= s->iteration_max) return 1;
  memset(&end, 0, sizeof end);
  end.slot = s->memory + 16 * s->turn;
  s->turn ^= 1;
  end.clear = s->memory + 16 * s->turn;
  end.seed = standin_mix(launch->op + UINT64_C(77));
  if (launch->desc.flags & GMLAKE_OFFLOAD_IMPURE) end.seed ^= standin_mix(iteration);
  end.ns = standin_ns(s, launch->op, launch->desc.time_ns, iteration);
  end.iteration = iteration;
  end.first = s->ran[launch->op] != launch->iteration + 1;
  s->ran[launch->op] = launch->iteration + 1;
  end.total = s->memory + STANDIN_TOTALS + 8 * iteration;
  end.seen = s->memory + STANDIN_TOTALS + 8 * (s->iteration_max + launch->op);
  end.wrong = s->memory + STANDIN_WRONG;
  if (standin_launch_reads(s, launch, end.slot, end.seed, (CUstream)stream)) return 1;
  for (i = 0; i < count; i++) {
    uint32_t tensor = launch->desc.writes[i];
    items[i] = standin_use(s, tensor, launch->writes[i], 0);
  }
  return standin_start_write(s, items, count, &end, (CUstream)stream) != CUDA_SUCCESS;
}

/* fill_fn of the backend: in full. */
static inline int standin_fill(void *user, uint32_t job, uint32_t tensor, void *ptr, size_t bytes,
                               int on_host, void *stream) {
  const standin *s = (const standin *)user;
  standin_item item = standin_item_of(ptr, bytes, 0);
  standin_end end;
  (void)on_host;
  memset(&end, 0, sizeof end);
  end.slot = s->memory + STANDIN_ZERO;
  end.seed = standin_mix(tensor + UINT64_C(1)) ^ job;
  return standin_start_write(s, &item, 1, &end, (CUstream)stream) != CUDA_SUCCESS;
}

/* The digest of all bytes at ptr, on the device or pinned. The driver's answer. */
static inline CUresult standin_digest(const standin *s, const void *ptr, size_t bytes,
                                      CUstream stream, uint64_t *out_digest) {
  standin_item item = standin_item_of(ptr, bytes, 0);
  CUdeviceptr slot = 0;
  uint64_t answer[2] = {0, 0};
  CUresult code = s->gpu->cuMemAlloc(&slot, sizeof answer), freed;
  if (code) return code;
  code = s->gpu->cuMemcpyHtoD(slot, answer, sizeof answer);
  if (!code) code = standin_start_read(s, &item, 1, slot, 0, stream);
  if (!code) code = s->gpu->cuStreamSynchronize(stream);
  if (!code) code = s->gpu->cuMemcpyDtoH(answer, slot, sizeof answer);
  freed = s->gpu->cuMemFree(slot);
  *out_digest = answer[0];
  return code ? code : freed;
}

/* What the operators of each iteration read, and how many wrote something else when they ran again.
   pre: nothing is under way. */
static inline CUresult standin_totals(const standin *s, uint64_t *out_totals, uint64_t count,
                                      uint64_t *out_wrong) {
  CUresult code = s->gpu->cuMemcpyDtoH(out_totals, s->memory + STANDIN_TOTALS, count * 8);
  return code ? code : s->gpu->cuMemcpyDtoH(out_wrong, s->memory + STANDIN_WRONG, 8);
}

#endif
