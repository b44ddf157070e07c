/* C++ that frees by itself: lakes, blocks, buffers and pools as std::unique_ptr, and allocations
   that throw. It is C++11, and nothing but names: every pointer in it is the one that gmlake.h
   uses.

     gmlake_unique lake = gmlake_make();                      // throws gmlake_error
     gmlake_block<float> x = gmlake_make_block<float>(lake, 1 << 20, stream);
     launch(x.get(), stream);
     x.get_deleter().stream = other;                          // if another stream uses it last
   x is freed on that stream when it goes out of scope: no wait, it serves others behind the work.

   A lake has to outlive what is of it: declare it first. A deleter cannot throw: what it is refused
   it gives to gmlake_on_refusal, which prints by default. */
#if !defined(GMLAKE_HPP)
#define GMLAKE_HPP

#include "gmlake.h"

#include <cstdio>
#include <memory>
#include <new>
#include <string>

/* A call's result, and the lake's text for it. */
class gmlake_error : public std::bad_alloc {
 public:
  gmlake_error(gmlake_result result, std::string text)
      : result_(result), text_(std::make_shared<const std::string>(std::move(text))) {}
  gmlake_result result() const noexcept { return result_; }
  const char *what() const noexcept override { return text_->c_str(); }

 private:
  gmlake_result result_;
  std::shared_ptr<const std::string> text_; /* copies of an exception may not throw */
};

/* Throws what a call was refused. lake NULL: there is none that could say more. */
inline void gmlake_require(gmlake_result result, gmlake *lake = nullptr) {
  gmlake_error_info error;
  if (result == GMLAKE_OK) return;
  if (lake && gmlake_get_last_error(lake, &error) == GMLAKE_OK && error.result == result)
    throw gmlake_error(result, std::string(error.call) + ": " + error.text);
  throw gmlake_error(result, gmlake_result_name(result));
}

/* Of a deleter: set it to log elsewhere. */
inline void (*&gmlake_on_refusal())(const char *call, gmlake_result result) {
  static void (*handler)(const char *, gmlake_result) = [](const char *call, gmlake_result result) {
    std::fprintf(stderr, "%s: %s\n", call, gmlake_result_name(result));
  };
  return handler;
}

inline void gmlake_note(const char *call, gmlake_result result) {
  if (result != GMLAKE_OK) gmlake_on_refusal()(call, result);
}

struct gmlake_deleter {
  void operator()(gmlake *lake) const { gmlake_note("gmlake_destroy", gmlake_destroy(lake)); }
};
using gmlake_unique = std::unique_ptr<gmlake, gmlake_deleter>;

inline gmlake_unique gmlake_make(const gmlake_desc &desc = gmlake_desc()) {
  gmlake *lake = nullptr;
  gmlake_require(gmlake_create(&desc, &lake));
  return gmlake_unique(lake);
}

/* ---- Blocks ---- */

struct gmlake_block_deleter {
  gmlake *lake;
  gmlake_stream stream; /* whose queued work is the last that uses the block */
  void operator()(void *ptr) const { gmlake_note("gmlake_free", gmlake_free(lake, ptr, stream)); }
};
template <class T>
using gmlake_block = std::unique_ptr<T[], gmlake_block_deleter>;

/* Device memory for `count` objects, which are not constructed. */
template <class T>
gmlake_block<T> gmlake_make_block(const gmlake_unique &lake, std::size_t count,
                                  gmlake_stream stream,
                                  gmlake_alloc_desc desc = gmlake_alloc_desc()) {
  void *ptr = nullptr;
  if (count > static_cast<std::size_t>(-1) / sizeof(T))
    gmlake_require(GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY);
  desc.bytes = count * sizeof(T);
  gmlake_require(gmlake_alloc_with(lake.get(), &desc, stream, &ptr), lake.get());
  return gmlake_block<T>(static_cast<T *>(ptr), gmlake_block_deleter{lake.get(), stream});
}

/* ---- Pools and growing buffers ---- */

struct gmlake_pool_deleter {
  gmlake *lake;
  void operator()(gmlake_pool *pool) const {
    gmlake_note("gmlake_pool_destroy", gmlake_pool_destroy(lake, pool));
  }
};
using gmlake_unique_pool = std::unique_ptr<gmlake_pool, gmlake_pool_deleter>;

inline gmlake_unique_pool gmlake_make_pool(const gmlake_unique &lake,
                                           const gmlake_pool_desc &desc = gmlake_pool_desc()) {
  gmlake_pool *pool = nullptr;
  gmlake_require(gmlake_pool_create(lake.get(), &desc, &pool), lake.get());
  return gmlake_unique_pool(pool, gmlake_pool_deleter{lake.get()});
}

struct gmlake_buffer_deleter {
  gmlake *lake;
  gmlake_stream stream;
  void operator()(gmlake_buffer *buffer) const {
    gmlake_note("gmlake_buffer_destroy", gmlake_buffer_destroy(lake, buffer, stream));
  }
};
using gmlake_unique_buffer = std::unique_ptr<gmlake_buffer, gmlake_buffer_deleter>;

inline gmlake_unique_buffer gmlake_make_buffer(const gmlake_unique &lake,
                                               const gmlake_buffer_desc &desc,
                                               gmlake_stream stream) {
  gmlake_buffer *buffer = nullptr;
  gmlake_require(gmlake_buffer_create(lake.get(), &desc, &buffer), lake.get());
  return gmlake_unique_buffer(buffer, gmlake_buffer_deleter{lake.get(), stream});
}

#endif
