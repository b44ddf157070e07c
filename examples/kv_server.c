/* Shows the memory of an inference server. It has four kinds:
   - weights, which stay;
   - temporaries of a prefill, which are allocated and freed in each layer;
   - a decode step that is captured once as a graph, with temporaries from the graph's pool;
   - for each running sequence a cache of keys and values, which grows by one token a step.

   A cache is a growing buffer. It never moves, and holds memory for the tokens that it has, in
   steps of 2 MiB, or 64 tokens. A long sequence keeps its first 64 tokens, and its last 2,048 or a
   few more: what lies between is forgotten, 64 tokens at a time, and the buffer gives that memory
   back in its middle. When a sequence ends, its buffer is emptied and kept for the next sequence.

   Memory is limited. A sequence whose prompt does not fit waits. A sequence whose cache cannot grow
   gives its memory to the others and comes again later. A sequence that does not fit even alone is
   refused.

   The model is Llama 3.2 1B in bfloat16. No kernel runs: fills take their place. The mock has
   memory on Linux alone. Elsewhere it keeps the books alone, and the figures are the same. Compile
   it in the directory of gmlake.h. On the mock:
     cc -I. examples/kv_server.c -o kv_server -lpthread -ldl
   On a GPU:
     cc -I. -I/usr/local/cuda/include -DKV_SERVER_CUDA examples/kv_server.c -o kv_server \
       -lcuda -lpthread -ldl */
#define GMLAKE_IMPLEMENTATION
#if !defined(KV_SERVER_CUDA)
#define GMLAKE_BACKEND_MOCK
#endif
#include "gmlake.h"

#include <stdio.h>
#include <string.h>
#if defined(KV_SERVER_CUDA)
#include <cuda.h>
#endif

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define LAYERS 16
#define HIDDEN_BYTES (4 * KIB) /* of a token: 2,048 values */
#define QKV_BYTES (6 * KIB)
#define FFN_BYTES (16 * KIB)
#define VOCABULARY_BYTES ((size_t)128256 * 2)
#define TOKEN_BYTES (LAYERS * 2 * KIB) /* a token's keys and values: 8 heads of 64, all layers */
#define TOKENS_MAX 4096                /* of a sequence */
#define PIECE_TOKENS 512               /* of a prompt that one prefill takes */
#define CHUNK_TOKENS (2 * MIB / TOKEN_BYTES) /* whose memory comes and goes together */
#define SINK_TOKENS CHUNK_TOKENS             /* the first ones, which attention always looks at, */
#define WINDOW_TOKENS 2048                   /* and the last ones: no others are looked at */
#define SLOTS 16                             /* sequences that can run at the same time */
#define LIMIT (3 * 1024 * MIB)

/* The requests that the server gets: the batches of bench/traces/llama-1b-serve.gmtrace.gz. In that
   trace the first allocation after each mark of an iteration holds the token numbers of the batch's
   prompts, 8 bytes each. Every decode step allocates the logits of one token for each sequence,
   256,512 bytes each. The prefill makes the first new token. */
static const struct batch {
  unsigned sequences, prompt_tokens, new_tokens;
} batches[] = {{8, 567, 16},  {12, 2724, 38}, {3, 604, 38}, {9, 463, 20},
               {16, 441, 38}, {13, 710, 17},  {8, 696, 32}, {1, 831, 12}};
#define BATCHES (sizeof(batches) / sizeof(batches[0]))

typedef struct sequence {
  unsigned prompt_tokens, new_tokens; /* still to come */
} sequence;

typedef struct slot {
  gmlake_buffer *cache;
  char *address; /* of the cache; it never changes */
  sequence what;
  size_t tokens; /* so far; 0: no sequence runs in this slot */
  size_t from;   /* tokens from SINK_TOKENS up to this one are forgotten */
  unsigned age;  /* the number of the sequence, counted as they come in */
} slot;

static struct server {
  gmlake_backend *backend;
  gmlake *lake;
  gmlake_stream stream;
  gmlake_pool *graph_pool;
  void *weights[1 + LAYERS * 7];
  slot slots[SLOTS];
  sequence queue[128];
  unsigned queued, step, age, finished, refused, waits, growths, silent_growths;
  size_t forgotten;                   /* tokens, of all sequences */
  double live_bytes, committed_bytes; /* of the caches, summed up over the steps */
} s;

static int failed(const char *what, gmlake_result result) {
  if (result == GMLAKE_OK) return 0;
  fprintf(stderr, "%s: %s\n", what, gmlake_result_name(result));
  return 1;
}

/* ---- The device: the mock or CUDA ---- */

static int has_memory = 1; /* 0: nothing can be written to what the lake gives */

#if defined(KV_SERVER_CUDA)
static CUdevice device;
static CUgraph graph;
static CUgraphExec decode;

static int device_open(void) {
  CUcontext context;
  CUstream stream;
  if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) ||
      cuCtxSetCurrent(context) || cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))
    return 1;
  s.stream = (gmlake_stream)stream;
  return failed("cuda_create", gmlake_cuda_create(0, &s.backend));
}
/* pre: the lake has forgotten the stream. A call for a destroyed stream ends the process. */
static int device_close(void) {
  gmlake_cuda_destroy(s.backend);
  if (cuStreamDestroy((CUstream)s.stream)) return 1;
  return cuDevicePrimaryCtxRelease(device) != CUDA_SUCCESS;
}
static int capture_begin(void) {
  return cuStreamBeginCapture((CUstream)s.stream, CU_STREAM_CAPTURE_MODE_GLOBAL) != CUDA_SUCCESS;
}
static int capture_end(void) {
  return cuStreamEndCapture((CUstream)s.stream, &graph) ||
         cuGraphInstantiateWithFlags(&decode, graph, 0);
}
static int launch_decode(void) { return cuGraphLaunch(decode, (CUstream)s.stream) != CUDA_SUCCESS; }
static int drop_decode(void) {
  return cuStreamSynchronize((CUstream)s.stream) || cuGraphExecDestroy(decode) ||
         cuGraphDestroy(graph);
}
static int fill(void *at, unsigned value, size_t words) {
  return cuMemsetD32Async((CUdeviceptr)(uintptr_t)at, value, words, (CUstream)s.stream) !=
         CUDA_SUCCESS;
}
static unsigned read_word(const void *at) {
  unsigned word = 0;
  (void)cuStreamSynchronize((CUstream)s.stream);
  (void)cuMemcpyDtoH(&word, (CUdeviceptr)(uintptr_t)at, sizeof(word));
  return word;
}
#else
static int device_open(void) {
  const gmlake_mock_desc books = {.bookkeeping_only = 1};
  has_memory = !gmlake_mock_create(NULL, &s.backend);
  if (!has_memory) printf("the mock has no memory on this system: nothing is written to it\n");
  return (!has_memory && failed("mock_create", gmlake_mock_create(&books, &s.backend))) ||
         failed("stream_create", gmlake_mock_stream_create(s.backend, &s.stream));
}
static int device_close(void) {
  gmlake_mock_stream_destroy(s.backend, s.stream);
  gmlake_mock_destroy(s.backend);
  return 0;
}
static int capture_begin(void) {
  return failed("begin", gmlake_mock_capture_begin(s.backend, s.stream));
}
static int capture_end(void) { return failed("end", gmlake_mock_capture_end(s.backend, s.stream)); }
static int launch_decode(void) { return 0; } /* the graph has only fills that nobody reads */
static int drop_decode(void) { return 0; }
static int fill(void *at, unsigned value, size_t words) {
  while (has_memory && words--) ((unsigned *)at)[words] = value;
  return 0;
}
static unsigned read_word(const void *at) { return *(const unsigned *)at; }
#endif

/* ---- Weights and temporaries: plain allocations ---- */

static int is_shortage(gmlake_result result) {
  return result == GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY || result == GMLAKE_ERROR_LIMIT_REACHED;
}

static int load_weights(void) {
  static const size_t layer[7] = {8 * MIB, 2 * MIB, 2 * MIB, 8 * MIB, 32 * MIB, 32 * MIB, 32 * MIB};
  size_t i, bytes = 2048 * VOCABULARY_BYTES; /* the embedding, then the layers */
  for (i = 0; i <= LAYERS * 7; i++) {
    if (i) bytes = layer[(i - 1) % 7];
    if (failed("weights", gmlake_alloc(s.lake, bytes, s.stream, &s.weights[i]))) return 1;
  }
  return 0;
}

static int drop_weights(void) {
  int status = 0;
  size_t i;
  for (i = 0; i <= LAYERS * 7; i++)
    status |= failed("free", gmlake_free(s.lake, s.weights[i], s.stream));
  return status;
}

/* A pass over this many tokens. Each layer frees its temporaries before the next one allocates. */
static gmlake_result run_layers(size_t tokens) {
  static const size_t widths[] = {HIDDEN_BYTES, QKV_BYTES, HIDDEN_BYTES, FFN_BYTES, FFN_BYTES};
  const size_t width_count = sizeof(widths) / sizeof(widths[0]);
  void *parts[sizeof(widths) / sizeof(widths[0])];
  gmlake_result result = GMLAKE_OK, freed;
  size_t layer, i, made;
  for (layer = 0; layer < LAYERS && !result; layer++) {
    for (made = 0; made < width_count && !result; made += !result)
      result = gmlake_alloc(s.lake, tokens * widths[made], s.stream, &parts[made]);
    for (i = 0; i < made; i++) {
      if (!result && fill(parts[i], (unsigned)layer, 16)) result = GMLAKE_ERROR_DRIVER;
      freed = gmlake_free(s.lake, parts[i], s.stream);
      if (!result) result = freed;
    }
  }
  return result;
}

/* Captures the decode step once, for all steps. That works because the graph's temporaries come
   from a pool that belongs to it, and because the caches do not move. */
static int capture_decode(void) {
  int status = failed("pool_create", gmlake_pool_create(s.lake, NULL, &s.graph_pool));
  if (status || failed("capture", gmlake_capture_begin(s.lake, s.stream, s.graph_pool))) return 1;
  status = capture_begin();
  if (!status) {
    status = failed("layers", run_layers(SLOTS));
    status |= capture_end();
  }
  return status | failed("capture_end", gmlake_capture_end(s.lake, s.stream));
}

/* ---- Sequences and their caches ---- */

static gmlake_stats figures(void) {
  gmlake_stats stats = {0};
  (void)failed("get_stats", gmlake_get_stats(s.lake, &stats));
  return stats;
}

/* Changes the size of a cache. Counts how often it takes memory, and how often that needs no driver
   call, because the buffer finds memory that it or another one had before. */
static gmlake_result resize(slot *at, size_t tokens) {
  gmlake_stats before = figures(), after;
  gmlake_result result = gmlake_buffer_resize(s.lake, at->cache, tokens * TOKEN_BYTES, s.stream);
  after = figures();
  if (after.buffer_bytes <= before.buffer_bytes) return result;
  s.growths++;
  s.silent_growths += after.driver_call_count == before.driver_call_count;
  return result;
}

static int open_slots(void) {
  gmlake_buffer_desc desc = {0};
  gmlake_buffer_info info;
  int i;
  desc.max_bytes = TOKENS_MAX * TOKEN_BYTES;
  desc.label = "keys and values";
  for (i = 0; i < SLOTS; i++) {
    slot *at = &s.slots[i];
    if (failed("buffer", gmlake_buffer_create(s.lake, &desc, &at->cache)) ||
        failed("info", gmlake_buffer_get_info(s.lake, at->cache, &info)))
      return 1;
    at->address = (char *)info.ptr;
  }
  return 0;
}

/* The first word of a token's row names the sequence and the token, so that a row which somebody
   else overwrites is noticed. */
static unsigned word_of(const slot *at, size_t token) { return at->age << 16 | (unsigned)token; }

static size_t live_tokens(const slot *at) {
  return at->tokens - (at->from > SINK_TOKENS ? at->from - SINK_TOKENS : 0);
}

/* Gives back the memory of tokens that nobody looks at any more. */
static int forget(slot *at) {
  for (; at->tokens >= at->from + WINDOW_TOKENS + CHUNK_TOKENS; at->from += CHUNK_TOKENS) {
    if (failed("discard", gmlake_buffer_discard(s.lake, at->cache, at->from * TOKEN_BYTES,
                                                CHUNK_TOKENS * TOKEN_BYTES, s.stream)))
      return 1;
    s.forgotten += CHUNK_TOKENS;
  }
  return 0;
}

/* Writes the rows of new tokens. pre: the cache has memory for them. */
static int append(slot *at, size_t tokens) {
  for (; tokens; tokens--, at->tokens++)
    if (fill(at->address + at->tokens * TOKEN_BYTES, word_of(at, at->tokens), 1)) return 1;
  return forget(at);
}

/* The sequence leaves the slot. Checks that what it wrote is still there, and empties the cache, so
   that its memory can serve the others. */
static int leave(slot *at) {
  size_t token;
  for (token = 0; has_memory && token < at->tokens; token += 61) {
    if (token >= SINK_TOKENS && token < at->from) continue;
    if (read_word(at->address + token * TOKEN_BYTES) != word_of(at, token)) {
      fprintf(stderr, "a token was overwritten\n");
      return 1;
    }
  }
  at->tokens = 0;
  return failed("resize", resize(at, 0));
}

static unsigned running(void) {
  unsigned i, count = 0;
  for (i = 0; i < SLOTS; i++) count += s.slots[i].tokens != 0;
  return count;
}

static void remove_first(void) { memmove(s.queue, s.queue + 1, --s.queued * sizeof(s.queue[0])); }

/* There is no memory for the slot's sequence, which is also the first one in the queue. It stays in
   the queue until another sequence ends. If no other one runs, waiting would not help, so it is
   refused. */
static int turn_away(slot *at) {
  const unsigned others = running() - (at->tokens != 0);
  if (leave(at)) return 1;
  if (others) {
    s.waits++;
    return 0;
  }
  fprintf(stderr, "refused: %u tokens, and %u to come, do not fit into the memory\n",
          s.queue[0].prompt_tokens, s.queue[0].new_tokens);
  s.refused++;
  remove_first();
  return 0;
}

/* The slot's sequence goes back to the front of the queue. What it has generated so far becomes the
   end of its prompt. */
static int give_way(slot *at) {
  memmove(s.queue + 1, s.queue, s.queued++ * sizeof(s.queue[0]));
  s.queue[0].prompt_tokens = (unsigned)at->tokens;
  s.queue[0].new_tokens = at->what.new_tokens;
  return turn_away(at);
}

static int finish(slot *at) {
  s.finished++;
  return leave(at);
}

/* Starts the first sequence of the queue, if a slot is free and there is memory for its prompt. The
   prefill takes the prompt in pieces. */
static int admit(void) {
  slot *at = s.slots;
  gmlake_result result = GMLAKE_OK;
  size_t left, piece;
  while (at < s.slots + SLOTS && at->tokens) at++;
  if (!s.queued || at == s.slots + SLOTS) return 0;
  left = s.queue[0].prompt_tokens;
  at->what = s.queue[0];
  at->age = ++s.age;
  at->from = SINK_TOKENS;
  for (; left && !result; left -= piece) {
    piece = left < PIECE_TOKENS ? left : PIECE_TOKENS;
    result = resize(at, at->tokens + piece);
    if (!result) result = run_layers(piece);
    if (!result && append(at, piece)) return 1;
  }
  if (is_shortage(result)) return turn_away(at);
  if (failed("prefill", result)) return 1;
  remove_first();
  return --at->what.new_tokens ? 0 : finish(at); /* the prefill made the first token */
}

/* Makes one token for every running sequence. First every cache grows, because the graph writes the
   new token there. Then the graph runs. */
static int step(void) {
  gmlake_result result;
  slot *at;
  for (at = s.slots; at < s.slots + SLOTS; at++) {
    if (!at->tokens) continue;
    result = resize(at, at->tokens + 1);
    if (is_shortage(result) ? give_way(at) : failed("resize", result)) return 1;
  }
  if (launch_decode()) return 1;
  for (at = s.slots; at < s.slots + SLOTS; at++) {
    if (!at->tokens) continue;
    if (append(at, 1)) return 1;
    if (!--at->what.new_tokens && finish(at)) return 1;
  }
  for (at = s.slots; at < s.slots + SLOTS; at++)
    s.live_bytes += (double)(at->tokens ? live_tokens(at) * TOKEN_BYTES : 0);
  s.committed_bytes += (double)figures().buffer_bytes;
  return 0;
}

/* ---- The server ---- */

static void report(void) {
  gmlake_stats stats = figures();
  size_t tokens = 0;
  int i;
  for (i = 0; i < SLOTS; i++) tokens += s.slots[i].tokens ? live_tokens(&s.slots[i]) : 0;
  printf("step %3u: %2u running, %2u waiting; caches %4zu MiB, committed %4zu; lake %4zu MiB\n",
         s.step, running(), s.queued, tokens * TOKEN_BYTES / MIB, stats.buffer_bytes / MIB,
         stats.reserved_bytes / MIB);
}

static int serve(void) {
  size_t i;
  unsigned n, asked = 0;
  for (i = 0; i < BATCHES; i++)
    for (n = 0; n < batches[i].sequences; n++, s.queued++) {
      s.queue[s.queued].prompt_tokens = batches[i].prompt_tokens;
      s.queue[s.queued].new_tokens = batches[i].new_tokens;
    }
  asked = s.queued;
  for (; s.finished + s.refused < asked; s.step++) {
    if (s.step % 16 == 0) report();
    if (admit() || step()) return 1;
  }
  report();
  return 0;
}

static void sum_up(void) {
  gmlake_stats stats = figures();
  printf("%u sequences served; %u times one waited for memory\n", s.finished, s.waits);
  if (s.refused) printf("%u refused, which do not fit into it\n", s.refused);
  printf("caches: %zu MiB at most; the longest sequence for each slot would take %zu\n",
         stats.buffer_bytes_peak / MIB, SLOTS * TOKENS_MAX * TOKEN_BYTES / MIB);
  printf("%zu tokens were forgotten, and their memory given back in the middle of caches\n",
         s.forgotten);
  printf("memory of the caches, averaged over the steps: %.3f times the live keys and values\n",
         s.committed_bytes / s.live_bytes);
  printf("%u times a cache took memory, %u without a driver call; in the driver for all %.1f ms\n",
         s.growths, s.silent_growths, (double)stats.driver_ns / 1e6);
}

static int run(void) {
  gmlake_desc desc = {0};
  int status, i;
  desc.backend = s.backend;
  desc.limit_bytes = LIMIT;
  if (failed("create", gmlake_create(&desc, &s.lake))) return 1;
  status = load_weights() || open_slots() || capture_decode() || serve();
  if (!status) {
    sum_up();
    status = drop_decode();
    status |= failed("pool", gmlake_pool_destroy(s.lake, s.graph_pool));
    for (i = 0; i < SLOTS; i++)
      status |= failed("buffer", gmlake_buffer_destroy(s.lake, s.slots[i].cache, s.stream));
    status |= drop_weights();
  }
  status |= failed("forget_stream", gmlake_forget_stream(s.lake, s.stream));
  return status | failed("destroy", gmlake_destroy(s.lake));
}

int main(void) {
  int status;
  if (device_open()) return 1;
  status = run();
  return device_close() | status;
}
