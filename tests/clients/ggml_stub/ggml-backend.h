#pragma once

#include "ggml.h"

ggml_backend_dev_t ggml_backend_buft_get_device(ggml_backend_buffer_type_t buft);
ggml_backend_reg_t ggml_backend_dev_backend_reg(ggml_backend_dev_t device);
void *ggml_backend_reg_get_proc_address(ggml_backend_reg_t reg, const char *name);
void *ggml_backend_buffer_get_base(ggml_backend_buffer_t buffer);
size_t ggml_backend_buffer_get_size(ggml_backend_buffer_t buffer);
enum ggml_status ggml_backend_view_init(struct ggml_tensor *tensor);
