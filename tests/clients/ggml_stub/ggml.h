/* What llama-kv-grow.h uses of ggml's headers, as of llama.cpp b10361. tests/clients/ggml.cpp
   serves it. */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define GGML_ASSERT(condition) assert(condition)

enum ggml_type { GGML_TYPE_F16 = 1 };
enum ggml_status { GGML_STATUS_SUCCESS = 0 };

typedef struct ggml_backend_buffer *ggml_backend_buffer_t;
typedef struct ggml_backend_buffer_type *ggml_backend_buffer_type_t;
typedef struct ggml_backend_device *ggml_backend_dev_t;
typedef struct ggml_backend_reg *ggml_backend_reg_t;

struct ggml_tensor {
  enum ggml_type type;
  ggml_backend_buffer_t buffer;
  size_t nb[4]; /* bytes from one value, row, stream to the next */
  struct ggml_tensor *view_src;
  void *data;
};
struct ggml_context;

size_t ggml_row_size(enum ggml_type type, int64_t ne);
struct ggml_tensor *ggml_get_first_tensor(const struct ggml_context *ctx);
struct ggml_tensor *ggml_get_next_tensor(const struct ggml_context *ctx, struct ggml_tensor *t);
