// Memory of a KV cache that follows use: its tensors lie in buffers that have addresses for all
// cells, and memory for the first cells of each stream. The CUDA backend offers such buffers if
// GGML_CUDA_GMLAKE=kv; elsewhere nothing grows and every cell always has memory.
#pragma once

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml.h"

#include <algorithm>
#include <utility>
#include <vector>

class llama_kv_grow {
 public:
  // A buffer for the tensors of ctx that begins without memory; NULL: the backend has none. Then
  // the caller allocates as ever.
  ggml_backend_buffer_t alloc(ggml_context *ctx, ggml_backend_buffer_type_t buft) {
    ggml_backend_dev_t dev = ggml_backend_buft_get_device(buft);
    ggml_backend_reg_t reg = dev ? ggml_backend_dev_backend_reg(dev) : nullptr;
    if (!reg) {
      return nullptr;
    }
    auto *make = (ggml_backend_buffer_t(*)(ggml_backend_buffer_type_t, size_t))
        ggml_backend_reg_get_proc_address(reg, "ggml_backend_cuda_growing_alloc");
    auto *fn = (keep_t)ggml_backend_reg_get_proc_address(reg, "ggml_backend_cuda_growing_keep");
    if (!make || !fn) {
      return nullptr;
    }
    ggml_backend_buffer_t buf =
        make(buft, ggml_backend_alloc_ctx_tensors_from_buft_size(ctx, buft));
    if (!buf) {
      return nullptr;
    }
    ggml_tallocr place = ggml_tallocr_new(buf);
    for (ggml_tensor *t = ggml_get_first_tensor(ctx); t; t = ggml_get_next_tensor(ctx, t)) {
      const ggml_status status =
          t->view_src ? ggml_backend_view_init(t) : ggml_tallocr_alloc(&place, t);
      GGML_ASSERT(status == GGML_STATUS_SUCCESS);
    }
    keep_fn = fn;
    bufs.push_back({buf, {}});
    return buf;
  }

  // The tensor of one layer, if it lies in a buffer that grows. whole: its streams have memory for
  // all cells or none (values without flash attention, whose cells lie side by side).
  void add(const ggml_tensor *t, bool whole) {
    for (auto &b : bufs) {
      if (t && t->buffer == b.buf) {
        b.tensors.push_back({t, whole});
      }
    }
  }

  bool empty() const { return bufs.empty(); }

  // how many cells of a stream have memory
  uint32_t get(uint32_t stream) const { return stream < cells.size() ? cells[stream] : 0; }

  // Gives memory to the first n cells of the streams s0 to s1. false: there is none to be had, and
  // nothing has changed.
  bool grow(uint32_t s0, uint32_t s1, uint32_t n) {
    std::vector<uint32_t> want = cells;
    want.resize(std::max<size_t>(want.size(), s1 + 1), 0);
    for (uint32_t s = s0; s <= s1; ++s) {
      want[s] = std::max(want[s], n);
    }
    return bufs.empty() || keep(want);
  }

  // Takes memory behind the first n[s] cells of each stream, where that is an eighth of it or more:
  // what comes and goes a few cells at a time is left alone. Waits for the device.
  void shrink(const std::vector<uint32_t> &n) {
    std::vector<uint32_t> want = cells;
    for (size_t s = 0; s < want.size() && s < n.size(); ++s) {
      if (n[s] < want[s] && want[s] - n[s] >= std::max(256u, want[s] / 8)) {
        want[s] = n[s];
      }
    }
    keep(want);
  }

 private:
  struct range {
    size_t offset, bytes;
  }; // gmlake_ggml_range
  struct part {
    const ggml_tensor *tensor;
    bool whole;
  };
  struct place {
    ggml_backend_buffer_t buf;
    std::vector<part> tensors;
  };
  typedef bool (*keep_t)(ggml_backend_buffer_t buf, const range *ranges, size_t n);

  static void ranges_of(const place &b, const std::vector<uint32_t> &want,
                        std::vector<range> &out) {
    char *base = (char *)ggml_backend_buffer_get_base(b.buf);
    const size_t end = ggml_backend_buffer_get_size(b.buf);
    out.clear();
    for (const part &p : b.tensors) {
      for (size_t s = 0; s < want.size(); ++s) {
        if (want[s] == 0) {
          continue;
        }
        const size_t at = (char *)p.tensor->data - base + s * p.tensor->nb[2];
        // kernels read a quantized row in blocks of 512 values: a little behind the last one
        const size_t n = p.whole ? p.tensor->nb[2]
                                 : want[s] * p.tensor->nb[1] + ggml_row_size(p.tensor->type, 512);
        out.push_back({at, std::min(n, end - at)});
      }
    }
  }

  bool keep(const std::vector<uint32_t> &want) {
    std::vector<range> ranges;
    if (want == cells) {
      return true;
    }
    for (size_t i = 0; i < bufs.size(); ++i) {
      ranges_of(bufs[i], want, ranges);
      if (!keep_fn(bufs[i].buf, ranges.data(), ranges.size())) {
        for (size_t j = 0; j < i; ++j) { // back to what was; that takes no new memory
          ranges_of(bufs[j], cells, ranges);
          keep_fn(bufs[j].buf, ranges.data(), ranges.size());
        }
        return false;
      }
    }
    cells = want;
    return true;
  }

  std::vector<uint32_t> cells; // by stream: have memory
  std::vector<place> bufs;
  keep_t keep_fn = nullptr;
};
