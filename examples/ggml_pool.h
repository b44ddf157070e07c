/* Gives ggml's CUDA backend its memory from a lake. It has two parts: the pool from which kernels
   take temporaries, and the buffers that hold weights, KV cache and compute graphs. It is C++11.

   Inside ggml, include it from ggml-cuda.cu, after ggml's own headers, with GMLAKE_GGML_DECLARED
   defined. Elsewhere it declares what it needs of ggml itself. In ggml-cuda.cu, change three
   places:

   - new_pool_for_device returns
       std::unique_ptr<ggml_cuda_pool>(new gmlake_ggml_pool(lake, stream));
   - alloc_buffer of the buffer type returns
       gmlake_ggml_alloc_buffer(&memory, buft, size, ggml_backend_cuda_buffer_interface);
   - call pool->capture_begin() before a graph is captured on the pool's stream, and
     pool->capture_end() after it.

   A context of ggml destroys its streams before its pools. So create the lake with
   GMLAKE_STREAMS_MAY_END in desc.flags: then it does not touch a stream that no longer exists. With
   driver 580 touching one ends the process.

   What the pool or a buffer frees serves the next request of any size, in any order. gmlake_trim()
   returns it to the driver. ggml's own pool keeps the memory of its peak. */
#if !defined(GMLAKE_GGML_POOL_H)
#define GMLAKE_GGML_POOL_H

#include "gmlake.h"

#include <stdio.h>
#include <stdlib.h>

#include <vector>

/* In ggml's interfaces only alloc_buffer can report a failure. Any other failure ends the program,
   as in ggml's own code. */
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

/* Follows the rules of ggml_cuda_pool_vmm: sizes are rounded up to 128 bytes; free gets the size
   that alloc wrote to *actual_size; blocks are freed in the reverse order of their allocation. As
   in ggml, it serves one stream. Its memory comes from a pool of the lake, because graphs keep the
   addresses. */
struct gmlake_ggml_pool : public ggml_cuda_pool {
  gmlake_ggml_pool(gmlake *lake, gmlake_stream stream);
  gmlake_ggml_pool(const gmlake_ggml_pool &) = delete;
  gmlake_ggml_pool &operator=(const gmlake_ggml_pool &) = delete;
  /* Waits for work that uses the pool. pre: graphs that use its memory are destroyed. */
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
  if (!blocks_.empty())
    GMLAKE_GGML_ABORT("the pool is destroyed while blocks of it are live: free them first");
  must(gmlake_pool_destroy(lake_, pool_), "gmlake_pool_destroy");
}

inline void *gmlake_ggml_pool::alloc(size_t size, size_t *actual_size) {
  const size_t alignment = 128;
  gmlake_alloc_desc desc = gmlake_alloc_desc();
  block b = {nullptr, 0};
  if (size > SIZE_MAX - alignment)
    GMLAKE_GGML_ABORT("alloc: the size is too large to be rounded up to 128 bytes");
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

/* One for each device. It must live longer than its buffers. */
struct gmlake_ggml_memory {
  gmlake *lake;
  int device;
  /* Calls cudaDeviceSynchronize. cudaFree waits for the device, and ggml relies on that. */
  void (*synchronize)(int device);
};

/* Its first members are those of ggml_backend_cuda_buffer_context: ggml's functions for tensors
   read them. */
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

/* iface is the function table of ggml's CUDA buffers. Only free_buffer and get_base are replaced.
   Returns NULL if memory has run out. */
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
