/* Blocks that go to other processes: the chunks under a block are exported as file descriptors, and
   the other process's lake imports them. Nothing is copied. For Linux 5.6 and later: the receiver
   takes the descriptors from the sender by pidfd_getfd. The sender asks the backend for them:
   gmlake_export would want blocks that have whole chunks for themselves, and release these chunks
   when they are freed.

   The receiver gets whole chunks, and so may read and write what else lies in them, as it may in
   the segments of torch's own allocator. A block that was sent has to stay live until the receiver
   has let go of it: torch counts references between processes for that. */
#pragma once

#include "lake.hpp"

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>

namespace gmlake_torch {

/* What Python raises. */
struct SharingError : std::runtime_error {
  explicit SharingError(const std::string &text)
      : std::runtime_error("gmlake: tensors of other processes: " + text) {}
};

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
    const int code = device.memory().share(parts[i].handle, chunk.fd, chunk.serial, chunk.bytes);
    if (code)
      throw SharingError{"a chunk cannot be exported, the driver's code is " +
                         std::to_string(code)};
    range.chunks.push_back(chunk);
  }
  const uint64_t before = reinterpret_cast<uint64_t>(ptr) - parts[0].address; /* in a slab */
  *out_offset = static_cast<ptrdiff_t>(parts[0].offset_bytes + before);
  return range;
}

/* Memory of another process, mapped here by the lake. */
class ImportedRange {
 public:
  /* Throws SharingError. */
  ImportedRange(Device &device, const SharedRange &range) : lake_(device.lake()) {
    Handles handles;
    for (const SharedRange::Chunk &chunk : range.chunks) {
      gmlake_handle handle{};
      handle.type = GMLAKE_HANDLE_POSIX_FD;
      handle.bytes = static_cast<size_t>(chunk.bytes);
      handle.fd = take(range.process, chunk.fd);
      handles.all.push_back(handle);
    }
    const gmlake_result result =
        gmlake_import(lake_, handles.all.data(), handles.all.size(), &ptr_);
    if (result == GMLAKE_OK) return;
    gmlake_error_info why{};
    (void)gmlake_get_last_error(lake_, &why);
    throw SharingError{std::string("gmlake_import: ") + gmlake_result_name(result) + ": " +
                       why.text};
  }
  /* pre: no work uses it. */
  ~ImportedRange() { (void)gmlake_free(lake_, ptr_, GMLAKE_STREAM_NONE); }
  ImportedRange(const ImportedRange &) = delete;
  ImportedRange &operator=(const ImportedRange &) = delete;

  void *ptr() const { return ptr_; }

 private:
  struct Handles { /* with descriptors that are closed at the end */
    std::vector<gmlake_handle> all;
    ~Handles() {
      for (const gmlake_handle &handle : all) (void)close(handle.fd);
    }
  };

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

  gmlake *lake_;
  void *ptr_ = nullptr;
};

} // namespace gmlake_torch
