/* A pool for the temporaries of ggml's kernels on devices that cannot map memory (older GPUs, many
   AMD ones), in place of ggml_cuda_pool_leg. That one gives a cached buffer to a request that is
   not larger, and takes a new one else. A flash attention that asks for a little more with each
   token leaves a trail of buffers behind it, which serve no later request.

   This one is gmlake_bfc.h, which divides buffers and joins what is free. Requests are rounded up,
   so that many steps of growth ask for the same size. Where nothing cached is large enough, the
   buffers that are wholly free go back to the driver before a new one is taken; as the driver
   frees, it waits for the device. Where graphs keep addresses (CUDA graphs, from Volta on) nothing
   goes back: sizes are then rounded to powers of two, and all that is left behind is less than the
   buffer in use.

   Include it behind ggml's own common.cuh, which declares ggml_cuda_pool. */
#if !defined(GMLAKE_BFC_POOL_H)
#define GMLAKE_BFC_POOL_H

#include "gmlake_bfc.h"

#if !defined(GMLAKE_GGML_ABORT)
#include <stdio.h>
#include <stdlib.h>
#define GMLAKE_GGML_ABORT(text) (fprintf(stderr, "gmlake: %s\n", text), abort())
#endif

/* Where the pool's memory comes from. take: NULL where it is refused. give waits for the device. */
struct gmlake_bfc_source {
  int device;
  void *(*take)(int device, size_t bytes);
  void (*give)(int device, void *ptr);
};

class gmlake_bfc_pool : public ggml_cuda_pool {
 public:
  /* keeps: graphs may have the pool's addresses. */
  gmlake_bfc_pool(const gmlake_bfc_source &source, bool keeps);
  gmlake_bfc_pool(const gmlake_bfc_pool &) = delete;
  gmlake_bfc_pool &operator=(const gmlake_bfc_pool &) = delete;
  ~gmlake_bfc_pool() override { (void)gmlake_bfc_destroy(bfc_); }

  void *alloc(size_t size, size_t *actual_size) override;
  void free(void *ptr, size_t size) override;

 private:
  static void *take(void *user, size_t bytes);
  static void give(void *user, void *segment, size_t bytes);
  size_t rounded(size_t size) const;

  gmlake_bfc_source source_;
  bool keeps_, has_given_back_ = false;
  gmlake_bfc *bfc_ = nullptr;
};

inline gmlake_bfc_pool::gmlake_bfc_pool(const gmlake_bfc_source &source, bool keeps)
    : source_(source), keeps_(keeps) {
  gmlake_bfc_desc desc = gmlake_bfc_desc();
  desc.segment_alloc = take;
  desc.segment_free = give;
  desc.user = this;
  if (gmlake_bfc_create(&desc, &bfc_) != GMLAKE_BFC_OK) GMLAKE_GGML_ABORT("a pool: no host memory");
}

/* By the first refusal gmlake_bfc gives back what is wholly free, and asks once more. */
inline void *gmlake_bfc_pool::take(void *user, size_t bytes) {
  gmlake_bfc_pool *const pool = static_cast<gmlake_bfc_pool *>(user);
  if (!pool->keeps_ && !pool->has_given_back_) {
    pool->has_given_back_ = true;
    return nullptr;
  }
  return pool->source_.take(pool->source_.device, bytes);
}

inline void gmlake_bfc_pool::give(void *user, void *segment, size_t) {
  const gmlake_bfc_pool *const pool = static_cast<gmlake_bfc_pool *>(user);
  pool->source_.give(pool->source_.device, segment);
}

/* To an eighth of the power of two below, or to that power itself. */
inline size_t gmlake_bfc_pool::rounded(size_t size) const {
  size_t step = 256;
  while (step <= size / (keeps_ ? 2 : 16)) step *= 2;
  return (size + step - 1) / step * step;
}

inline void *gmlake_bfc_pool::alloc(size_t size, size_t *actual_size) {
  void *ptr = nullptr;
  if (!size) size = 1;
  if (size > SIZE_MAX / 4) GMLAKE_GGML_ABORT("a pool: a request has more bytes than there are");
  has_given_back_ = false;
  *actual_size = rounded(size);
  if (gmlake_bfc_alloc(bfc_, *actual_size, nullptr, &ptr) != GMLAKE_BFC_OK)
    GMLAKE_GGML_ABORT("a pool: the device has no memory left for the temporaries of a kernel");
  return ptr;
}

inline void gmlake_bfc_pool::free(void *ptr, size_t) {
  if (gmlake_bfc_free(bfc_, ptr) != GMLAKE_BFC_OK)
    GMLAKE_GGML_ABORT("a pool: what is freed is no block of it");
}

#endif
