/* Gives CuPy its memory from the lakes of gmlake_pluggable.c, in the form that CuPy's
   CFunctionAllocator calls. CuPy passes the first argument through. Here that is a stream, or a
   *lane*: a stream together with the object that owns it, for streams that may be destroyed. To
   install it, run `python3 -m pip install --no-build-isolation ./examples/cupy`. To build it alone,
   run `make cupy`, which needs no CUDA toolkit, or in the directory of gmlake.h:

   cc -std=c99 -O2 -shared -fPIC -fvisibility=hidden -I. -I/usr/local/cuda/include \
     examples/cupy/gmlake_cupy.c -o gmlake_cupy.so -lpthread -ldl

   gmlake_cupy.py beside this file gives it to CuPy. Python's lock is held in every call: it
   protects the list of lanes and the limits. */
#include "../torch/gmlake_pluggable.c"

/* A stream that may be destroyed. The lane keeps it alive until the lane is closed as often as it
   was opened, and its last block is freed. Then the lakes forget the stream, and the lane lets its
   owner go, which may destroy it. A stream has one lane at most. */
typedef struct cupy_lane {
  struct cupy_lane *next;
  void *stream;
  void *owner; /* the object that keeps the stream alive */
  void (*let_go)(void *owner);
  size_t users; /* how often it is open, and its blocks */
  int stays;    /* nobody else destroys the stream: lakes need not ask whether it is still there */
  char told[DEVICES_MAX]; /* the device's lake knows that */
} cupy_lane;

static cupy_lane *lanes;
static size_t limits[DEVICES_MAX]; /* bytes that a lake may hold; 0: no limit */

API void *gmlake_cupy_malloc(void *stream, size_t bytes, int device);
API void gmlake_cupy_free(void *stream, void *ptr, int device);
API void *gmlake_cupy_lane_open(void *stream, void *owner, void (*keep)(void *owner),
                                void (*let_go)(void *owner), int stays);
API void gmlake_cupy_lane_close(void *lane);
API void *gmlake_cupy_lane_malloc(void *lane, size_t bytes, int device);
API void gmlake_cupy_lane_free(void *lane, void *ptr, int device);
API void gmlake_cupy_set_limit(int device, size_t bytes);
API int gmlake_cupy_usage(int device, size_t *out_used, size_t *out_held);
API size_t gmlake_cupy_free_block_count(int device);
API void *gmlake_cupy_pool_open(int device);
API int gmlake_cupy_pool_close(int device, void *pool);
API int gmlake_cupy_capture_begin(int device, void *stream, void *pool);
API int gmlake_cupy_capture_end(int device, void *stream);

/* ---- Memory --------------------------------------------------------------------------------- */

/* Whether the lake keeps to its limit if it serves the request. */
static int fits(gmlake *lake, int device, size_t bytes, void *stream) {
  gmlake_alloc_desc desc;
  gmlake_query_info info;
  gmlake_stats stats;
  memset(&desc, 0, sizeof desc);
  memset(&stats, 0, sizeof stats);
  desc.bytes = bytes;
  if (gmlake_query(lake, &desc, stream, &info) != GMLAKE_OK || info.result != GMLAKE_OK) return 1;
  return gmlake_get_stats(lake, &stats) == GMLAKE_OK &&
         stats.reserved_bytes + info.new_bytes <= limits[device];
}

/* Returns NULL if memory has run out, or the limit is reached. */
API void *gmlake_cupy_malloc(void *stream, size_t bytes, int device) {
  gmlake *const lake = bytes ? lake_for(device) : NULL;
  if (!lake) return NULL;
  if (limits[device] && !fits(lake, device, bytes, stream)) {
    tell("gmlake_trim", device, gmlake_trim(lake, 0, NULL));
    if (!fits(lake, device, bytes, stream)) return NULL;
  }
  return gmlake_torch_malloc(bytes, device, stream);
}

API void gmlake_cupy_free(void *stream, void *ptr, int device) {
  gmlake_torch_free(ptr, 0, device, stream);
}

/* The stream's lane. If it is new, `keep` is called, and `let_go` when the lane ends; `stays`: the
   stream is destroyed no sooner. Returns NULL if host memory has run out. */
API void *gmlake_cupy_lane_open(void *stream, void *owner, void (*keep)(void *owner),
                                void (*let_go)(void *owner), int stays) {
  cupy_lane *lane = lanes;
  while (lane && lane->stream != stream) lane = lane->next;
  if (lane) {
    lane->users++;
    return lane;
  }
  lane = (cupy_lane *)calloc(1, sizeof(cupy_lane));
  if (!lane) return NULL;
  lane->next = lanes;
  lane->stream = stream;
  lane->owner = owner;
  lane->let_go = let_go;
  lane->users = 1;
  lane->stays = stays;
  lanes = lane;
  keep(owner);
  return lane;
}

/* Call it once for each lane_open. Like lane_free, it lets the owner go if it was the last user. */
API void gmlake_cupy_lane_close(void *user) {
  cupy_lane *const lane = (cupy_lane *)user;
  cupy_lane **link = &lanes;
  if (--lane->users) return;
  while (*link != lane) link = &(*link)->next;
  *link = lane->next;
  gmlake_torch_forget_stream(lane->stream);
  lane->let_go(lane->owner);
  free(lane);
}

API void *gmlake_cupy_lane_malloc(void *user, size_t bytes, int device) {
  cupy_lane *const lane = (cupy_lane *)user;
  void *ptr;
  if (lane->stays && bytes && lake_for(device) && !lane->told[device]) { /* lake_for knows it */
    lane->told[device] = 1;
    tell("gmlake_mark_stream", device,
         gmlake_mark_stream(lake_of(device), lane->stream, GMLAKE_STREAM_STAYS));
  }
  ptr = gmlake_cupy_malloc(lane->stream, bytes, device);
  if (ptr) lane->users++;
  return ptr;
}

API void gmlake_cupy_lane_free(void *user, void *ptr, int device) {
  gmlake_torch_free(ptr, 0, device, ((cupy_lane *)user)->stream);
  gmlake_cupy_lane_close(user);
}

/* ---- Figures -------------------------------------------------------------------------------- */

API void gmlake_cupy_set_limit(int device, size_t bytes) {
  if (device >= 0 && device < DEVICES_MAX) limits[device] = bytes;
}

/* Returns 0, or -1 if the device has no lake. */
API int gmlake_cupy_usage(int device, size_t *out_used, size_t *out_held) {
  gmlake *const lake = lake_of(device);
  gmlake_stats stats;
  memset(&stats, 0, sizeof stats);
  if (!lake || gmlake_get_stats(lake, &stats) != GMLAKE_OK) return -1;
  *out_used = stats.active_bytes;
  *out_held = stats.reserved_bytes;
  return 0;
}

/* Free ranges between blocks. 0 also if there is no lake or no host memory. */
API size_t gmlake_cupy_free_block_count(int device) {
  gmlake *const lake = lake_of(device);
  gmlake_map_entry *entries = NULL;
  size_t capacity = 256, count = 0, free_count = 0, i;
  while (lake) {
    void *const grown = realloc(entries, capacity * sizeof *entries);
    if (!grown) break;
    entries = (gmlake_map_entry *)grown;
    if (gmlake_get_map(lake, entries, capacity, &count) != GMLAKE_OK) break;
    if (count <= capacity) {
      for (i = 0; i < count; i++) free_count += entries[i].kind == GMLAKE_KIND_HOLE;
      break;
    }
    capacity = 2 * count;
  }
  free(entries);
  return free_count;
}

/* ---- Graphs --------------------------------------------------------------------------------- */

/* What a graph's capture takes its memory from. NULL: standard error says why. */
API void *gmlake_cupy_pool_open(int device) {
  gmlake *const lake = lake_for(device);
  gmlake_pool *pool = NULL;
  gmlake_pool_desc desc;
  memset(&desc, 0, sizeof desc);
  desc.chunk_bytes = (size_t)2 << 20;
  desc.label = "a graph of CuPy";
  if (lake) tell("gmlake_pool_create", device, gmlake_pool_create(lake, &desc, &pool));
  return pool;
}

/* pre: the graph has run and is destroyed. Returns 0, or another number if the pool has to stay:
   memory of it is live, or a capture is under way. */
API int gmlake_cupy_pool_close(int device, void *pool) {
  gmlake *const lake = lake_of(device);
  return lake ? (int)gmlake_pool_destroy(lake, (gmlake_pool *)pool) : 0;
}

/* Call it before the stream's capture begins, or before the first request on a stream that joined
   one. Returns 0, or another number, and standard error says why. */
API int gmlake_cupy_capture_begin(int device, void *stream, void *pool) {
  gmlake *const lake = lake_of(device);
  const gmlake_result result = gmlake_capture_begin(lake, stream, (gmlake_pool *)pool);
  tell("gmlake_capture_begin", device, result);
  return (int)result;
}

/* Call it after the capture has ended. */
API int gmlake_cupy_capture_end(int device, void *stream) {
  const gmlake_result result = gmlake_capture_end(lake_of(device), stream);
  tell("gmlake_capture_end", device, result);
  return (int)result;
}
