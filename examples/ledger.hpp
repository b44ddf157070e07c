/* A lake that shares its device with those of other processes, under one ledger (ledger.h, which
   is for Linux), in a program that has no steps of its own: step may be called as often as it
   likes, by any thread. Include it after gmlake.h. */
#if !defined(GMLAKE_LEDGER_HPP)
#define GMLAKE_LEDGER_HPP

#if defined(__linux__)
#include "ledger.h"
#endif

#include <atomic>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>

#if defined(__linux__)

/* All functions may be called by any thread. In a child of fork they do nothing: the entry in the
   ledger is the parent's. */
class gmlake_share {
 public:
  /* own gives memory back; see ledger_open, also for the others. Throws std::runtime_error. */
  gmlake_share(const std::string &path, size_t device_bytes, size_t floor_bytes, unsigned weight,
               gmlake_oom_handler own) {
    const int error = ledger_open(&ledger_, path.c_str(), device_bytes, floor_bytes, weight, own);
    if (error)
      throw std::runtime_error("the ledger " + path + " cannot be opened: " + std::strerror(error));
  }
  ~gmlake_share() {
    if (!is_inherited()) ledger_close(&ledger_);
  }
  gmlake_share(const gmlake_share &) = delete;
  gmlake_share &operator=(const gmlake_share &) = delete;

  /* Whether the handler is asked for other processes. */
  static bool is_for_others(const gmlake_error_info &info) {
    return info.call && std::strcmp(info.call, "ledger") == 0;
  }

  /* The lake's handler: asks those who hold too much, or the process's own one. */
  int on_shortage(gmlake *lake, const gmlake_error_info *info) {
    return is_inherited() ? 0 : ledger_on_shortage(&ledger_, lake, info);
  }

  /* Tells the others what the lake holds, and gives back what they asked for: once in a
     millisecond at most, in some 10 us. Else it costs a look at the clock. The wish is the most
     that was ever in use. pre: no lock is held. */
  void step(gmlake *lake) {
    const int64_t now = std::chrono::duration_cast<std::chrono::milliseconds>(
                            std::chrono::steady_clock::now().time_since_epoch())
                            .count();
    if (now == last_.load(std::memory_order_relaxed) || is_inherited()) return;
    if (is_stepping_.test_and_set()) return;
    gmlake_stats stats{};
    last_.store(now, std::memory_order_relaxed);
    if (gmlake_get_stats(lake, &stats) == GMLAKE_OK)
      ledger_step(&ledger_, lake, stats.active_bytes_peak);
    is_stepping_.clear();
  }

 private:
  bool is_inherited() const { return getpid() != owner_; }

  ledger ledger_;
  const pid_t owner_ = getpid();
  std::atomic<int64_t> last_{0};
  std::atomic_flag is_stepping_ = ATOMIC_FLAG_INIT;
};

#else

class gmlake_share {
 public:
  gmlake_share(const std::string &, size_t, size_t, unsigned, gmlake_oom_handler) {
    throw std::runtime_error("a ledger needs Linux");
  }
  static bool is_for_others(const gmlake_error_info &) { return false; }
  int on_shortage(gmlake *, const gmlake_error_info *) { return 0; }
  void step(gmlake *) {}
};

#endif

#endif
