/* Blocks that go to other processes: the chunks under a block are exported as file descriptors, and
   the other process maps them at addresses of its own. Nothing is copied. For Linux 5.6 and later:
   the receiver takes the descriptors from the sender by pidfd_getfd.

   The receiver gets whole chunks, and so may read and write what else lies in them, as it may in
   the segments of torch's own allocator. A block that was sent has to stay live until the receiver
   has let go of it: torch counts references between processes for that. */
#pragma once

#include "lake.hpp"

#include <cuda.h>

#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>

namespace gmlake_torch {

/* What went wrong, for torch's error. */
struct SharingError {
  std::string text;
};

/* The driver's functions for that; the first use opens the driver, which torch has open already. */
struct SharingDriver {
  CUresult (*export_handle)(void *out, CUmemGenericAllocationHandle handle,
                            CUmemAllocationHandleType type, unsigned long long flags);
  CUresult (*import_handle)(CUmemGenericAllocationHandle *out, void *fd,
                            CUmemAllocationHandleType type);
  CUresult (*reserve)(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr hint,
                      unsigned long long flags);
  CUresult (*unreserve)(CUdeviceptr address, size_t bytes);
  CUresult (*map)(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags);
  CUresult (*unmap)(CUdeviceptr address, size_t bytes);
  CUresult (*release)(CUmemGenericAllocationHandle handle);
  CUresult (*set_access)(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc,
                         size_t count);

  static const SharingDriver &get() {
    static const SharingDriver driver = load();
    return driver;
  }

 private:
  template <class Function>
  static void find(void *library, const char *name, Function *out) {
    *out = reinterpret_cast<Function>(dlsym(library, name));
    if (!*out) throw SharingError{std::string("the driver has no ") + name};
  }
  static SharingDriver load() {
    SharingDriver d{};
    void *const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) throw SharingError{std::string("no driver: ") + dlerror()};
    find(library, "cuMemExportToShareableHandle", &d.export_handle);
    find(library, "cuMemImportFromShareableHandle", &d.import_handle);
    find(library, "cuMemAddressReserve", &d.reserve);
    find(library, "cuMemAddressFree", &d.unreserve);
    find(library, "cuMemMap", &d.map);
    find(library, "cuMemUnmap", &d.unmap);
    find(library, "cuMemRelease", &d.release);
    find(library, "cuMemSetAccess", &d.set_access);
    return d;
  }
};

inline void sharing_check(CUresult code, const char *call) {
  if (code != CUDA_SUCCESS)
    throw SharingError{std::string(call) + " answered " + std::to_string(static_cast<int>(code))};
}

/* What one process tells another: a process, and its descriptors of chunks in order of address. */
struct SharedRange {
  static constexpr char kMark[] = "gmlake1";
  struct Chunk {
    int32_t fd;
    uint64_t serial; /* of the export: numbers of descriptors are used again */
    uint64_t bytes;
  };
  int32_t process = 0;
  std::vector<Chunk> chunks;

  size_t bytes() const {
    size_t sum = 0;
    for (const Chunk &chunk : chunks) sum += static_cast<size_t>(chunk.bytes);
    return sum;
  }
  std::string text() const {
    std::string out(kMark);
    out += " " + std::to_string(process);
    for (const Chunk &chunk : chunks)
      out += " " + std::to_string(chunk.fd) + " " + std::to_string(chunk.serial) + " " +
             std::to_string(chunk.bytes);
    return out;
  }
  static bool is_one(const std::string &text) { return text.rfind(kMark, 0) == 0; }
  /* Throws SharingError for what text() did not write. */
  static SharedRange read(const std::string &text) {
    SharedRange range;
    const char *at = text.c_str() + std::strlen(kMark);
    unsigned long long value = 0;
    range.process = static_cast<int32_t>(next(at, value) ? value : 0);
    while (next(at, value)) {
      Chunk chunk{static_cast<int32_t>(value), 0, 0};
      if (!next(at, value)) break;
      chunk.serial = value;
      if (!next(at, value)) break;
      chunk.bytes = value;
      range.chunks.push_back(chunk);
    }
    if (!range.process || range.chunks.empty() || *at || !range.bytes())
      throw SharingError{"the handle of a tensor of another process cannot be read"};
    return range;
  }

 private:
  static bool next(const char *&at, unsigned long long &out) {
    char *end = nullptr;
    if (*at != ' ') return false;
    out = std::strtoull(at + 1, &end, 10);
    if (end == at + 1) return false;
    at = end;
    return true;
  }
};

/* Tells another process of the live block. *out_offset is where it begins in the range. Throws
   SharingError. */
inline SharedRange export_block(Device &device, const void *ptr, ptrdiff_t *out_offset) {
  std::vector<gmlake_chunk_info> parts(4);
  size_t count = 0;
  for (;;) {
    const gmlake_result result =
        gmlake_get_chunks(device.lake(), ptr, parts.data(), parts.size(), &count);
    if (result != GMLAKE_OK)
      throw SharingError{std::string("gmlake_get_chunks: ") + gmlake_result_name(result)};
    if (count <= parts.size()) break;
    parts.resize(count);
  }
  SharedRange range;
  range.process = static_cast<int32_t>(getpid());
  for (size_t i = 0; i < count; i++) {
    SharedRange::Chunk chunk{};
    const uint64_t handle = parts[i].handle;
    const bool is_done =
        device.memory().share(handle, chunk.fd, chunk.serial, chunk.bytes, [&](int *out_fd) {
          sharing_check(SharingDriver::get().export_handle(
                            out_fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                        "cuMemExportToShareableHandle");
        });
    if (!is_done) throw SharingError{"the block has a chunk that the lake does not know"};
    range.chunks.push_back(chunk);
  }
  *out_offset = static_cast<ptrdiff_t>(parts[0].offset_bytes);
  return range;
}

/* Memory of another process, mapped here. */
class ImportedRange {
 public:
  /* Throws SharingError. The device's primary context is current. */
  ImportedRange(const SharedRange &range, int device) : bytes_(range.bytes()) {
    const SharingDriver &driver = SharingDriver::get();
    size_t done = 0;
    try {
      sharing_check(driver.reserve(&address_, bytes_, 0, 0, 0), "cuMemAddressReserve");
      for (const SharedRange::Chunk &chunk : range.chunks) {
        map(take(range.process, chunk.fd), done, static_cast<size_t>(chunk.bytes));
        done += static_cast<size_t>(chunk.bytes);
      }
      CUmemAccessDesc access{};
      access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
      access.location.id = device;
      access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      sharing_check(driver.set_access(address_, bytes_, &access, 1), "cuMemSetAccess");
    } catch (const SharingError &) {
      clear(done);
      throw;
    }
  }
  /* pre: no work uses it. */
  ~ImportedRange() { clear(bytes_); }
  ImportedRange(const ImportedRange &) = delete;
  ImportedRange &operator=(const ImportedRange &) = delete;

  void *ptr() const { return reinterpret_cast<void *>(address_); }

 private:
  static int take(int32_t process, int32_t fd) {
    const long owner = syscall(SYS_pidfd_open, process, 0);
    const long own = owner < 0 ? -1 : syscall(SYS_pidfd_getfd, owner, fd, 0);
    const int error = errno;
    if (owner >= 0) (void)close(static_cast<int>(owner));
    if (own >= 0) return static_cast<int>(own);
    throw SharingError{"a descriptor of process " + std::to_string(process) +
                       " cannot be had: " + std::strerror(error) +
                       (error == EPERM ? ": the system does not let this process take it "
                                         "(pidfd_getfd; see ptrace_scope, or the container's "
                                         "capability SYS_PTRACE)"
                                       : "")};
  }
  void map(int fd, size_t offset, size_t bytes) {
    const SharingDriver &driver = SharingDriver::get();
    CUmemGenericAllocationHandle handle = 0;
    CUresult code =
        driver.import_handle(&handle, reinterpret_cast<void *>(static_cast<intptr_t>(fd)),
                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    (void)close(fd);
    sharing_check(code, "cuMemImportFromShareableHandle");
    code = driver.map(address_ + offset, bytes, 0, handle, 0);
    (void)driver.release(handle); /* the mapping keeps the memory */
    sharing_check(code, "cuMemMap");
  }
  void clear(size_t mapped_bytes) {
    const SharingDriver &driver = SharingDriver::get();
    if (mapped_bytes) (void)driver.unmap(address_, mapped_bytes);
    if (address_) (void)driver.unreserve(address_, bytes_);
    address_ = 0;
  }

  size_t bytes_;
  CUdeviceptr address_ = 0;
};

} // namespace gmlake_torch
