// The CPU backend with a growing KV cache on gmlake's mock, to check llama.cpp's side without a
// GPU: cells without memory cannot be touched there. Included by measure.cpp for check_cpu.sh.
#pragma once

#include "ggml-backend-impl.h"
#include "ggml-cpu.h"

#include <cstring>
#include <map>

struct ggml_cuda_pool { // of ggml's common.cuh; not used here
  virtual ~ggml_cuda_pool() = default;
  virtual void *alloc(size_t size, size_t *actual_size) = 0;
  virtual void free(void *ptr, size_t size) = 0;
};

#include "gmlake_ggml.h"

static gmlake_ggml_device growing_device;
static std::map<ggml_backend_buffer_t, gmlake_ggml_growing *> growing_of;
static void *(*former_proc)(ggml_backend_reg_t, const char *);

static void growing_wait(int) {}

static void growing_zero(int, void *base, const gmlake_ggml_range *ranges, size_t count) {
  for (size_t i = 0; i < count; i++) memset((char *)base + ranges[i].offset, 0, ranges[i].bytes);
}

static void growing_clear(ggml_backend_buffer_t buffer, uint8_t value) {
  gmlake_ggml_growing *const g = growing_of[buffer];
  for (const gmlake_ggml_range &r : g->committed())
    memset((char *)g->base() + r.offset, value, r.bytes);
}

static void growing_free(ggml_backend_buffer_t buffer) {
  delete growing_of[buffer];
  growing_of.erase(buffer);
}

static ggml_backend_buffer_t growing_alloc(ggml_backend_buffer_type_t buft, size_t size) {
  gmlake_ggml_growing *const g = gmlake_ggml_growing::create(&growing_device, size);
  ggml_backend_buffer_t buffer = g ? ggml_backend_cpu_buffer_from_ptr(g->base(), size) : nullptr;
  if (!buffer) return nullptr;
  buffer->buft = buft;
  buffer->iface.clear = growing_clear;
  buffer->iface.free_buffer = growing_free;
  growing_of[buffer] = g;
  return buffer;
}

static bool growing_keep(ggml_backend_buffer_t buffer, const gmlake_ggml_range *ranges, size_t n) {
  return growing_of[buffer]->keep(ranges, n);
}

static void *growing_proc(ggml_backend_reg_t reg, const char *name) {
  if (!strcmp(name, "ggml_backend_cuda_growing_alloc")) return (void *)growing_alloc;
  if (!strcmp(name, "ggml_backend_cuda_growing_keep")) return (void *)growing_keep;
  return former_proc(reg, name);
}

// Makes the CPU backend offer such buffers. false: there is no mock.
static bool growing_offer() {
  ggml_backend_dev_t dev = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  gmlake_backend *mock;
  gmlake_desc desc = gmlake_desc();
  if (gmlake_mock_create(nullptr, &mock)) return false;
  desc.backend = mock;
  if (gmlake_create(&desc, &growing_device.lake)) return false;
  growing_device.wait = growing_wait;
  growing_device.zero = growing_zero;
  former_proc = dev->reg->iface.get_proc_address;
  dev->reg->iface.get_proc_address = growing_proc;
  ggml_backend_cpu_buffer_type()->device = dev;
  return true;
}

static double growing_mib() {
  gmlake_stats stats = gmlake_stats();
  (void)gmlake_get_stats(growing_device.lake, &stats);
  return (double)stats.buffer_bytes / 1048576;
}
