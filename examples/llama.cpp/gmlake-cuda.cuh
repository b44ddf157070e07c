// The lakes of ggml's CUDA backend. Included by ggml-cuda.cu alone, behind common.cuh.
//   GGML_CUDA_GMLAKE=1   pools and buffers come from a lake
//   GGML_CUDA_GMLAKE=kv  and llama.cpp's KV cache takes memory as it fills
//   GGML_CUDA_GMLAKE_LEDGER=NAME[,FLOOR[,WEIGHT]]
//                        the lake of device 0 shares it with those of other processes that name the
//                        file NAME.0, as ledger.h says; FLOOR in MiB, 0; WEIGHT 1
// Without the variable, and where the device cannot map memory, ggml uses its own pools.
#pragma once

#include "common.cuh"

#define GMLAKE_GGML_ABORT(text) GGML_ABORT("gmlake: %s", text)
#include "gmlake_ggml.h"
#include "ledger.hpp"

#include <mutex>
#include <string.h>

static gmlake_ggml_device gmlake_ggml_devices[GGML_CUDA_MAX_DEVICES];  // by physical device

static bool gmlake_ggml_mode_is(const char *mode) {
  const char *const value = getenv("GGML_CUDA_GMLAKE");
  return value && strcmp(value, mode) == 0;
}

static bool gmlake_ggml_grows() {
  static const bool grows = gmlake_ggml_mode_is("kv");
  return grows;
}

static bool gmlake_ggml_is_used() {
  static const bool is_used = (gmlake_ggml_mode_is("1") || gmlake_ggml_grows()) &&
                              getenv("GGML_CUDA_ENABLE_UNIFIED_MEMORY") == nullptr;
  return is_used;
}

static void gmlake_ggml_wait(int device) {
  ggml_cuda_set_device(device);
  CUDA_CHECK(cudaDeviceSynchronize());
}

static void gmlake_ggml_zero(int device, void *base, const gmlake_ggml_range *ranges,
                             size_t count) {
  ggml_cuda_set_device(device);
  for (size_t i = 0; i < count; i++)
    CUDA_CHECK(cudaMemsetAsync((char *)base + ranges[i].offset, 0, ranges[i].bytes,
                               cudaStreamPerThread));
  CUDA_CHECK(cudaStreamSynchronize(cudaStreamPerThread));
}

// What each physical device shares with other processes. NULL: it is this process's alone. They end
// with the process, as the lakes do: other threads may use them until then.
static gmlake_share *gmlake_ggml_shares[GGML_CUDA_MAX_DEVICES];

static int gmlake_ggml_on_oom(void *user, gmlake *lake, const gmlake_error_info *info) {
  gmlake_share *const share = gmlake_ggml_shares[(gmlake_ggml_device *)user - gmlake_ggml_devices];
  return share ? share->on_shortage(lake, info) : 0;
}

// What nobody uses is all that there is to give.
static int gmlake_ggml_give_way(void *, gmlake *, const gmlake_error_info *info) {
  return gmlake_share::is_for_others(*info);
}

static void gmlake_ggml_step(int device) {
  const int physical_device = ggml_cuda_info().devices[device].physical_device;
  gmlake_ggml_shares[physical_device]->step(gmlake_ggml_devices[physical_device].lake);
}

static void gmlake_ggml_join(gmlake_ggml_device *d, int physical_device) {
  const char *const value = getenv("GGML_CUDA_GMLAKE_LEDGER");
  const unsigned long long most = 999999999;
  unsigned long long floor_mib = 0, weight = 1;
  int read = 0;
  gmlake_budget budget = gmlake_budget();
  gmlake_oom_handler own = gmlake_oom_handler();
  char name[256] = "";
  if (!value || !*value) return;
  (void)sscanf(value, "%255[^,]%n,%9llu%n,%9llu%n", name, &read, &floor_mib, &read, &weight, &read);
  if (!read || value[read] || !weight || floor_mib > most || weight > most)
    GMLAKE_GGML_ABORT("GGML_CUDA_GMLAKE_LEDGER has to be NAME[,FLOOR[,WEIGHT]]: a file of at most "
                      "255 letters, MiB, and a number from 1 to 999999999");
  own.fn = gmlake_ggml_give_way;
  if (gmlake_get_budget(d->lake, &budget) != GMLAKE_OK)
    GMLAKE_GGML_ABORT("GGML_CUDA_GMLAKE_LEDGER: the driver does not say how much memory there is");
  try {
    gmlake_ggml_shares[physical_device] =
        new gmlake_share(std::string(name) + "." + std::to_string(physical_device),
                         budget.total_bytes, (size_t)floor_mib << 20, (unsigned)weight, own);
  } catch (const std::runtime_error &error) {
    GMLAKE_GGML_ABORT(error.what());
  }
  d->step = gmlake_ggml_step;
}

// Only where the device cannot map memory there is no lake. Any other failure ends the program: who
// asked for a lake does not run without one unawares.
static bool gmlake_ggml_open(gmlake_ggml_device *out, int device, int physical_device) {
  gmlake_error_info why = gmlake_error_info();
  gmlake_desc desc = gmlake_desc();
  int peers[GGML_CUDA_MAX_DEVICES];
  gmlake_result result;
  desc.device = physical_device;
  desc.out_error = &why;
  desc.oom.fn = gmlake_ggml_on_oom;
  desc.oom.user = out;
  if (getenv("GGML_CUDA_P2P") != nullptr)
    for (int other = 0; other < ggml_cuda_info().physical_device_count; other++) {
      int can_access = 0;
      if (other == physical_device) continue;
      CUDA_CHECK(cudaDeviceCanAccessPeer(&can_access, other, physical_device));
      if (can_access) peers[desc.peer_count++] = other;
    }
  if (desc.peer_count) desc.peer_devices = peers;
  ggml_cuda_set_device(device);
  CUDA_CHECK(cudaFree(nullptr));  // makes the primary context
  result = gmlake_create(&desc, &out->lake);
  if (result == GMLAKE_ERROR_UNSUPPORTED) {
    GGML_LOG_WARN("gmlake: device %d: %s; ggml's own memory is used\n", device, why.text);
    return false;
  }
  if (result != GMLAKE_OK) GMLAKE_GGML_ABORT(why.text);
  GGML_LOG_INFO("gmlake: device %d: a lake serves\n", device);
  out->device = device;
  out->wait = gmlake_ggml_wait;
  out->zero = gmlake_ggml_zero;
  gmlake_ggml_join(out, physical_device);
  return true;
}

// The device with its lake, which lives as long as the process: one for each GPU, which virtual
// devices share. NULL: ggml's own memory is to be used.
static const gmlake_ggml_device *gmlake_ggml_get(int device) {
  static std::mutex mutex;
  static bool tried[GGML_CUDA_MAX_DEVICES];
  if (!gmlake_ggml_is_used()) return nullptr;
  const int physical_device = ggml_cuda_info().devices[device].physical_device;
  std::lock_guard<std::mutex> lock(mutex);
  gmlake_ggml_device *const d = &gmlake_ggml_devices[physical_device];
  if (!tried[physical_device]) {
    tried[physical_device] = true;
    (void)gmlake_ggml_open(d, device, physical_device);
  }
  return d->lake ? d : nullptr;
}

// What the lake holds and nobody uses: free for everything in this process.
static size_t gmlake_ggml_idle_bytes(int device) {
  const gmlake_ggml_device *const d = gmlake_ggml_get(device);
  gmlake_budget budget = gmlake_budget();
  if (!d || gmlake_get_budget(d->lake, &budget) != GMLAKE_OK) return 0;
  return budget.idle_bytes;
}
