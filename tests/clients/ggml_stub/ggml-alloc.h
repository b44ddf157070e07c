#pragma once

#include "ggml.h"

struct ggml_tallocr {
  ggml_backend_buffer_t buffer;
  size_t offset;
};
struct ggml_tallocr ggml_tallocr_new(ggml_backend_buffer_t buffer);
enum ggml_status ggml_tallocr_alloc(struct ggml_tallocr *talloc, struct ggml_tensor *tensor);
size_t ggml_backend_alloc_ctx_tensors_from_buft_size(struct ggml_context *ctx,
                                                     ggml_backend_buffer_type_t buft);
