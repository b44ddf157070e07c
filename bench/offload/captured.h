/* An iteration of a memgraph of one device as one CUDA graph: the nodes are captured in the order
   in which the compiler's simulation starts them (`start` of gmlake_offload_node), on one stream
   for each queue, with an event for each edge that leads to another queue. pre: a context is
   current all along; standin.h is included already.

   The graph's kernels have the parameters of iteration 0 for ever: captured_create is given
   stand-ins that are frozen. */
#if !defined(CAPTURED_H)
#define CAPTURED_H

#define CAPTURED_LANES 3 /* operators, offloads, reloads */

typedef struct captured {
  const gpu_driver *gpu;
  const gmlake_offload_backend *backend; /* gives the memory and fills it */
  const gmlake_offload_graph *graph;
  const gmlake_offload_memgraph *memgraph;
  standin *operators;
  gmlake_offload_memgraph_info info;
  char *device, *host; /* the arenas; NULL: none */
  CUstream lanes[CAPTURED_LANES];
  CUevent *events; /* by node, then one for each lane */
  size_t event_count;
  uint32_t *nodes; /* by `start` */
  void **pointers; /* of one operator */
  CUgraph whole;
  CUgraphExec exec; /* NULL: nothing has been captured */
} captured;

static inline size_t captured_lane(gmlake_offload_node_kind kind) {
  return kind == GMLAKE_OFFLOAD_NODE_OP ? 0 : kind == GMLAKE_OFFLOAD_NODE_OFFLOAD ? 1 : 2;
}

/* Where the tensor is between iterations; NULL: it is not there. */
static inline void captured_locate(const captured *c, uint32_t tensor, void **out_device,
                                   void **out_host) {
  gmlake_offload_place begin, end;
  *out_device = *out_host = NULL;
  if (gmlake_offload_memgraph_get_place(c->memgraph, tensor, &begin, &end)) return;
  if (begin.device_offset != GMLAKE_OFFLOAD_NOWHERE) *out_device = c->device + begin.device_offset;
  if (begin.host_offset != GMLAKE_OFFLOAD_NOWHERE) *out_host = c->host + begin.host_offset;
}

static inline int captured_fill(const captured *c, size_t tensor_count) {
  const gmlake_offload_backend *backend = c->backend;
  uint32_t t;
  int ok = 1;
  for (t = 0; ok && t < tensor_count; t++) {
    size_t bytes = standin_bytes(c->operators, t);
    void *device, *host;
    captured_locate(c, t, &device, &host);
    if (!bytes) continue;
    if (device) ok = !backend->fill(backend->user, 0, 0, t, device, bytes, 0);
    if (ok && host) ok = !backend->fill(backend->user, 0, 0, t, host, bytes, 1);
  }
  return ok;
}

static inline int captured_launch(const captured *c, const gmlake_offload_node *node) {
  gmlake_offload_launch launch;
  size_t i;
  memset(&launch, 0, sizeof launch);
  launch.graph = c->graph;
  launch.op = node->op;
  (void)gmlake_offload_get_op(c->graph, node->op, &launch.desc);
  for (i = 0; i < launch.desc.read_count; i++) c->pointers[i] = c->device + node->read_offsets[i];
  launch.reads = c->pointers;
  launch.writes = c->pointers + i;
  for (i = 0; i < launch.desc.write_count; i++) {
    c->pointers[launch.desc.read_count + i] = c->device + node->write_offsets[i];
  }
  return !standin_launch(c->operators, &launch, c->lanes[0]);
}

static inline int captured_copy(const captured *c, const gmlake_offload_node *node, size_t lane) {
  CUdeviceptr device = (CUdeviceptr)(uintptr_t)(c->device + node->device_offset);
  size_t bytes = standin_bytes(c->operators, node->tensor);
  char *host = c->host + node->host_offset;
  if (!bytes) return 1;
  return lane == 1 ? !c->gpu->cuMemcpyDtoHAsync(host, device, bytes, c->lanes[lane])
                   : !c->gpu->cuMemcpyHtoDAsync(device, host, bytes, c->lanes[lane]);
}

/* One node, behind those of other lanes that it waits for. */
static inline int captured_node(const captured *c, uint32_t id) {
  gmlake_offload_node node, other;
  size_t i, lane;
  int ok = 1;
  if (gmlake_offload_memgraph_get_node(c->memgraph, id, &node)) return 0;
  lane = captured_lane(node.kind);
  for (i = 0; ok && i < node.before_count; i++) {
    (void)gmlake_offload_memgraph_get_node(c->memgraph, node.before[i], &other);
    if (other.kind == node.kind) continue;
    ok = !c->gpu->cuStreamWaitEvent(c->lanes[lane], c->events[node.before[i]], 0);
  }
  ok = ok && (lane ? captured_copy(c, &node, lane) : captured_launch(c, &node));
  return ok && !c->gpu->cuEventRecord(c->events[id], c->lanes[lane]);
}

/* All nodes between a fork of the lanes and their join. The stand-ins' two slots are zeroed at the
   end: the next launch of the graph begins with the first one again. */
static inline int captured_nodes(const captured *c) {
  const gpu_driver *gpu = c->gpu;
  CUevent *ends = c->events + c->info.node_count;
  size_t i;
  int ok = !gpu->cuEventRecord(ends[0], c->lanes[0]);
  for (i = 1; ok && i < CAPTURED_LANES; i++) {
    ok = !gpu->cuStreamWaitEvent(c->lanes[i], ends[0], 0);
  }
  for (i = 0; ok && i < c->info.node_count; i++) ok = captured_node(c, c->nodes[i]);
  for (i = 1; ok && i < CAPTURED_LANES; i++) {
    ok = !gpu->cuEventRecord(ends[i], c->lanes[i]) &&
         !gpu->cuStreamWaitEvent(c->lanes[0], ends[i], 0);
  }
  return ok && !gpu->cuMemsetD32Async(c->operators->memory, 0, STANDIN_ZERO / 4, c->lanes[0]);
}

/* In relaxed mode: other threads and the driver itself may do what they like meanwhile. */
static inline int captured_capture(captured *c) {
  int ok = !c->gpu->cuStreamBeginCapture(c->lanes[0], CU_STREAM_CAPTURE_MODE_RELAXED);
  if (!ok) return 0;
  ok = captured_nodes(c);
  if (c->gpu->cuStreamEndCapture(c->lanes[0], &c->whole)) return 0;
  return ok && !c->gpu->cuGraphInstantiateWithFlags(&c->exec, c->whole, 0);
}

static inline void captured_destroy(captured *c) {
  const gmlake_offload_backend *backend = c->backend;
  size_t i;
  if (!c->gpu) return;
  if (c->exec) (void)c->gpu->cuGraphExecDestroy(c->exec);
  if (c->whole) (void)c->gpu->cuGraphDestroy(c->whole);
  for (i = 0; i < c->event_count; i++) (void)c->gpu->cuEventDestroy(c->events[i]);
  for (i = 0; i < CAPTURED_LANES; i++) {
    if (c->lanes[i]) (void)c->gpu->cuStreamDestroy(c->lanes[i]);
  }
  if (c->device) backend->device_free(backend->user, 0, c->device, c->info.device_bytes);
  if (c->host) backend->host_free(backend->user, c->host, c->info.host_bytes);
  free(c->events);
  free(c->nodes);
  free(c->pointers);
  memset(c, 0, sizeof *c);
}

static inline int captured_arenas(captured *c) {
  const gmlake_offload_backend *backend = c->backend;
  void *ptr = NULL;
  if (backend->device_alloc(backend->user, 0, c->info.device_bytes, &ptr)) return 0;
  c->device = (char *)ptr;
  if (!c->info.host_bytes) return 1;
  if (backend->host_alloc(backend->user, c->info.host_bytes, &ptr)) return 0;
  c->host = (char *)ptr;
  return 1;
}

/* Streams and events, and the order of the nodes. */
static inline int captured_parts(captured *c, size_t refs_max) {
  size_t i, count = c->info.node_count + CAPTURED_LANES;
  int ok;
  c->events = (CUevent *)calloc(count, sizeof *c->events);
  c->nodes = (uint32_t *)calloc(count, sizeof *c->nodes);
  c->pointers = (void **)calloc(refs_max + 1, sizeof *c->pointers);
  ok = c->events && c->nodes && c->pointers;
  for (i = 0; ok && i < CAPTURED_LANES; i++) {
    ok = !c->gpu->cuStreamCreate(&c->lanes[i], CU_STREAM_NON_BLOCKING);
  }
  for (; ok && c->event_count < count; c->event_count++) {
    ok = !c->gpu->cuEventCreate(&c->events[c->event_count], CU_EVENT_DISABLE_TIMING);
    if (!ok) break;
  }
  for (i = 0; ok && i < c->info.node_count; i++) {
    gmlake_offload_node node;
    (void)gmlake_offload_memgraph_get_node(c->memgraph, (uint32_t)i, &node);
    c->nodes[node.start] = (uint32_t)i;
  }
  return ok;
}

/* 0: something is refused. pre: the operators are frozen, and outlive it. */
static inline int captured_create(captured *c, const gmlake_offload_backend *backend,
                                  const gmlake_offload_memgraph *memgraph, standin *operators) {
  gmlake_offload_graph_info info;
  memset(c, 0, sizeof *c);
  c->gpu = operators->gpu;
  c->backend = backend;
  c->graph = operators->graph;
  c->memgraph = memgraph;
  c->operators = operators;
  c->info.struct_bytes = 0;
  if (!gmlake_offload_graph_get_info(c->graph, &info) &&
      !gmlake_offload_memgraph_get_info(memgraph, &c->info) && captured_arenas(c) &&
      captured_fill(c, info.tensor_count) && captured_parts(c, info.access_count) &&
      captured_capture(c)) {
    return 1;
  }
  captured_destroy(c);
  return 0;
}

/* An iteration, from begin to end. The driver's answer. */
static inline CUresult captured_run(const captured *c) {
  CUresult code = c->gpu->cuGraphLaunch(c->exec, c->lanes[0]);
  return code ? code : c->gpu->cuStreamSynchronize(c->lanes[0]);
}

#endif
