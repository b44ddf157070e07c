/* ggml's CUDA memory from a lake: the pool that its kernels take temporaries from, and the buffers
   that hold weights, KV cache and compute graphs. C++11. Inside ggml include it from ggml-cuda.cu
   with GMLAKE_GGML_DECLARED defined, behind ggml's own headers; elsewhere it brings the
   declarations that it needs. In ggml-cuda.cu

     new_pool_for_device returns std::unique_ptr<ggml_cuda_pool>(
         new gmlake_ggml_pool(lake, stream));
     the buffer type's alloc_buffer returns
         gmlake_ggml_alloc_buffer(&memory, buft, size, ggml_backend_cuda_buffer_interface);
     and before a graph is captured on the pool's stream comes pool->capture_begin(), behind it
     pool->capture_end().

   A context of ggml's destroys its streams before its pools: the lake is created with
   GMLAKE_STREAMS_MAY_END in desc.flags, and touches no stream that is gone.

   Memory that either lets go of serves the next request of any size, in any order, and
   gmlake_trim() returns it to the driver: ggml's own pool keeps its peak. */
#if !defined(GMLAKE_GGML_POOL_H)
#define GMLAKE_GGML_POOL_H

#include "gmlake.h"

#include <stdio.h>
#include <stdlib.h>

#include <vector>

/* ggml's interfaces know no failure but of alloc_buffer: as ggml's own code does, this ends the
   program. */
#if !defined(GMLAKE_GGML_ABORT)
#define GMLAKE_GGML_ABORT(text) (fprintf(stderr, "gmlake_ggml: %s\n", text), abort())
#endif

#if !defined(GMLAKE_GGML_DECLARED)
struct ggml_cuda_pool {
  virtual ~ggml_cuda_pool() = default;
  virtual void *alloc(size_t size, size_t *actual_size) = 0;
  virtual void free(void *ptr, size_t size) = 0;
};

typedef struct ggml_backend_buffer_type *ggml_backend_buffer_type_t;
typedef struct ggml_backend_buffer *ggml_backend_buffer_t;
struct ggml_backend_buffer_i { /* the members that are used here */
  void (*free_buffer)(ggml_backend_buffer_t buffer);
  void *(*get_base)(ggml_backend_buffer_t buffer);
};
struct ggml_backend_buffer {
  struct ggml_backend_buffer_i iface;
  ggml_backend_buffer_type_t buft;
  void *context;
  size_t size;
};
ggml_backend_buffer_t ggml_backend_buffer_init(ggml_backend_buffer_type_t buft,
                                               struct ggml_backend_buffer_i iface, void *context,
                                               size_t size);
#endif

/* ---- The pool -------------------------------------------------------------------------------- */

/* What ggml_cuda_pool_vmm promises and asks: sizes are rounded up to 128 bytes, *actual_size is
   what free is given, and blocks are freed in the reverse order of their allocation. One stream, as
   in ggml; all memory is in a pool of the lake's, since graphs know its addresses. */
struct gmlake_ggml_pool : public ggml_cuda_pool {
  gmlake_ggml_pool(gmlake *lake, gmlake_stream stream);
  gmlake_ggml_pool(const gmlake_ggml_pool &) = delete;
  gmlake_ggml_pool &operator=(const gmlake_ggml_pool &) = delete;
  /* Waits for what uses the pool. pre: graphs that know its memory are destroyed. */
  ~gmlake_ggml_pool() override;

  void *alloc(size_t size, size_t *actual_size) override;
  void free(void *ptr, size_t size) override;
  void capture_begin();
  void capture_end();

 private:
  struct block {
    void *ptr;
    size_t size;
  };
  void must(gmlake_result result, const char *call);

  gmlake *lake_;
  gmlake_stream stream_;
  gmlake_pool *pool_;
  std::vector<block> blocks_;
};

inline gmlake_ggml_pool::gmlake_ggml_pool(gmlake *lake, gmlake_stream stream)
    : lake_(lake), stream_(stream), pool_(nullptr) {
  gmlake_pool_desc desc = gmlake_pool_desc();
  gmlake_desc of_lake = gmlake_desc();
  must(gmlake_get_desc(lake_, &of_lake), "gmlake_get_desc");
  if (!(of_lake.flags & GMLAKE_STREAMS_MAY_END))
    GMLAKE_GGML_ABORT("the lake needs GMLAKE_STREAMS_MAY_END: ggml destroys streams before pools");
  desc.label = "ggml";
  must(gmlake_pool_create(lake_, &desc, &pool_), "gmlake_pool_create");
}

inline gmlake_ggml_pool::~gmlake_ggml_pool() {
  if (!blocks_.empty()) GMLAKE_GGML_ABORT("the pool has live blocks");
  must(gmlake_pool_destroy(lake_, pool_), "gmlake_pool_destroy");
}

inline void *gmlake_ggml_pool::alloc(size_t size, size_t *actual_size) {
  const size_t alignment = 128;
  gmlake_alloc_desc desc = gmlake_alloc_desc();
  block b = {nullptr, 0};
  if (size > SIZE_MAX - alignment) GMLAKE_GGML_ABORT("no such size");
  b.size = (size + alignment - 1) / alignment * alignment;
  desc.bytes = b.size;
  desc.pool = pool_;
  must(gmlake_alloc_with(lake_, &desc, stream_, &b.ptr), "gmlake_alloc_with");
  blocks_.push_back(b);
  *actual_size = b.size;
  return b.ptr;
}

inline void gmlake_ggml_pool::free(void *ptr, size_t size) {
  if (blocks_.empty() || blocks_.back().ptr != ptr || blocks_.back().size != size)
    GMLAKE_GGML_ABORT("blocks are freed in the reverse order of their allocation");
  blocks_.pop_back();
  must(gmlake_free(lake_, ptr, stream_), "gmlake_free");
}

inline void gmlake_ggml_pool::capture_begin() {
  must(gmlake_capture_begin(lake_, stream_, pool_), "gmlake_capture_begin");
}

inline void gmlake_ggml_pool::capture_end() {
  must(gmlake_capture_end(lake_, stream_), "gmlake_capture_end");
}

inline void gmlake_ggml_pool::must(gmlake_result result, const char *call) {
  char text[256];
  gmlake_error_info info = gmlake_error_info();
  if (result == GMLAKE_OK) return;
  (void)gmlake_get_last_error(lake_, &info);
  snprintf(text, sizeof text, "%s: %s: %s", call, gmlake_result_name(result), info.text);
  GMLAKE_GGML_ABORT(text);
}

/* ---- Buffers --------------------------------------------------------------------------------- */

struct gmlake_ggml_memory { /* of one device; lives longer than its buffers */
  gmlake *lake;
  int device;
  void (*synchronize)(
      int device); /* cudaDeviceSynchronize: cudaFree waits, and ggml relies on it */
};

/* Begins as ggml_backend_cuda_buffer_context does, whose members ggml's functions for tensors
   read. */
struct gmlake_ggml_buffer {
  int device;
  void *dev_ptr;
  const gmlake_ggml_memory *memory;
};

static inline void gmlake_ggml_free_buffer(ggml_backend_buffer_t buffer) {
  gmlake_ggml_buffer *const b = (gmlake_ggml_buffer *)buffer->context;
  b->memory->synchronize(b->device);
  if (gmlake_free(b->memory->lake, b->dev_ptr, GMLAKE_STREAM_NONE) != GMLAKE_OK)
    GMLAKE_GGML_ABORT("gmlake_free");
  delete b;
}

static inline void *gmlake_ggml_get_base(ggml_backend_buffer_t buffer) {
  return ((gmlake_ggml_buffer *)buffer->context)->dev_ptr;
}

/* iface is the table of ggml's CUDA buffers; what it does with tensors stays. NULL: out of
   memory. */
static inline ggml_backend_buffer_t gmlake_ggml_alloc_buffer(const gmlake_ggml_memory *memory,
                                                             ggml_backend_buffer_type_t buft,
                                                             size_t size,
                                                             struct ggml_backend_buffer_i iface) {
  gmlake_ggml_buffer *b;
  void *ptr;
  if (gmlake_alloc(memory->lake, size ? size : 1, GMLAKE_STREAM_NONE, &ptr) != GMLAKE_OK)
    return nullptr;
  b = new gmlake_ggml_buffer;
  b->device = memory->device;
  b->dev_ptr = ptr;
  b->memory = memory;
  iface.free_buffer = gmlake_ggml_free_buffer;
  iface.get_base = gmlake_ggml_get_base;
  return ggml_backend_buffer_init(buft, iface, b, size);
}

#endif
