// What llama.cpp computes, how fast, and in how much memory: one JSON object a line.
//   measure check MODEL OUT          logits of all that moves keys and values, to the file OUT
//   measure speed MODEL              tokens a second, and memory for a short prompt
//   measure lanes MODEL GIB MAX      contexts of 64K with 3,000 tokens each that fit into GIB
#include "ggml-backend.h"
#include "llama.h"

#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#if defined(MEASURE_MOCK)
#include "growing_cpu.h"
static const int scale = 4; // prompts are shorter by this: a CPU is slow
#else
static const int scale = 1;
#endif

typedef std::vector<llama_token> tokens;

static int (*mem_get_info)(size_t *, size_t *);
static int (*mem_alloc)(unsigned long long *, size_t);
static double first_free_mib;

static double free_mib() {
  size_t free_bytes = 0, total = 0;
  return mem_get_info && !mem_get_info(&free_bytes, &total) ? (double)free_bytes / 1048576 : 0;
}

static double used_mib() {
#if defined(MEASURE_MOCK)
  if (growing_device.lake) return growing_mib();
#endif
  return first_free_mib - free_mib();
}

static double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct options {
  uint32_t n_ctx, n_seq;
  bool unified, flash;
  ggml_type type;
};

static llama_context *make(llama_model *model, const options &o) {
  llama_context_params p = llama_context_default_params();
  p.n_ctx = o.n_ctx;
  p.n_batch = 2048;
  p.n_seq_max = o.n_seq;
  p.kv_unified = o.unified;
  p.flash_attn_type = o.flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  p.type_k = o.type;
  p.type_v = o.flash ? o.type : GGML_TYPE_F16;
  p.n_threads = p.n_threads_batch = 4;
  return llama_init_from_model(model, p);
}

static tokens some(llama_model *model, uint64_t seed, int n) {
  const uint64_t count = (uint64_t)llama_vocab_n_tokens(llama_model_get_vocab(model)) - 3;
  tokens out;
  for (int i = 0; i < n; i++) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    out.push_back((llama_token)(3 + (seed >> 33) % count));
  }
  return out;
}

// Sequences side by side: one batch has the same number of tokens for each.
struct runner {
  llama_model *model;
  llama_context *ctx;
  FILE *out; // NULL: logits are not written
  int vocab;
  std::vector<llama_pos> pos;
  std::vector<llama_token> next;

  runner(llama_model *m, llama_context *c, FILE *f, int n_seq)
      : model(m),
        ctx(c),
        out(f),
        vocab(llama_vocab_n_tokens(llama_model_get_vocab(m))),
        pos((size_t)n_seq, 0),
        next((size_t)n_seq, 0) {}

  bool decode(const std::vector<int> &seqs, const std::vector<tokens> &what) {
    const size_t most = 2048 / seqs.size();
    for (size_t at = 0; at < what[0].size(); at += most) {
      const size_t n = what[0].size() - at < most ? what[0].size() - at : most;
      llama_batch batch = llama_batch_init((int)(n * seqs.size()), 0, 1);
      for (size_t s = 0; s < seqs.size(); s++)
        for (size_t i = 0; i < n; i++) {
          const int k = batch.n_tokens++;
          batch.token[k] = what[s][at + i];
          batch.pos[k] = pos[(size_t)seqs[s]]++;
          batch.n_seq_id[k] = 1;
          batch.seq_id[k][0] = seqs[s];
          batch.logits[k] = i + 1 == n;
        }
      const int rc = llama_decode(ctx, batch);
      for (size_t s = 0; rc == 0 && s < seqs.size(); s++) take(seqs[s], (int)((s + 1) * n - 1));
      llama_batch_free(batch);
      if (rc != 0) return false;
    }
    return true;
  }

  void take(int seq, int row) {
    const float *const l = llama_get_logits_ith(ctx, row);
    int best = 0;
    for (int i = 1; i < vocab; i++)
      if (l[i] > l[best]) best = i;
    next[(size_t)seq] = best;
    if (out) fwrite(l, sizeof *l, (size_t)vocab, out);
  }

  bool prompt(const std::vector<int> &seqs, uint64_t seed, int n) {
    std::vector<tokens> what;
    for (size_t s = 0; s < seqs.size(); s++) what.push_back(some(model, seed + s, n));
    return decode(seqs, what);
  }

  bool generate(const std::vector<int> &seqs, int n) {
    while (n-- > 0) {
      std::vector<tokens> what;
      for (int s : seqs) what.push_back(tokens(1, next[(size_t)s]));
      if (!decode(seqs, what)) return false;
    }
    return true;
  }

  void cut(int seq, llama_pos from, llama_pos to) {
    llama_memory_seq_rm(llama_get_memory(ctx), seq, from, to);
  }
};

static void say_memory(const char *what, const char *where) {
  printf("{\"what\":\"memory\",\"case\":\"%s\",\"at\":\"%s\",\"used_mib\":%.0f}\n", what, where,
         used_mib());
  fflush(stdout);
}

// One sequence: prompts of two lengths, the end cut off, the beginning shifted out.
static bool check_one(llama_model *model, const options &o, const char *name, FILE *out) {
  llama_context *const ctx = make(model, o);
  if (!ctx) return false;
  runner r(model, ctx, out, 1);
  llama_memory_t memory = llama_get_memory(ctx);
  bool ok = r.prompt({0}, 1, 700 / scale) && r.generate({0}, 24);
  say_memory(name, "a short prompt");
  llama_memory_clear(memory, true);
  r.pos[0] = 0;
  ok = ok && r.prompt({0}, 2, 6000 / scale) && r.generate({0}, 8);
  say_memory(name, "6,000 tokens");
  r.cut(0, 1200 / scale, -1);
  r.pos[0] = 1200 / scale;
  say_memory(name, "the end cut off at 1,200");
  ok = ok && r.prompt({0}, 3, 300) && r.generate({0}, 8);
  if (llama_memory_can_shift(memory)) {
    r.cut(0, 100, 600);
    llama_memory_seq_add(memory, 0, 600, -1, -500);
    r.pos[0] -= 500;
    ok = ok && r.generate({0}, 8);
  }
  llama_memory_clear(memory, true);
  say_memory(name, "cleared");
  llama_free(ctx);
  return ok;
}

// Four sequences, each in a stream of its own or all in one: they grow, end and are copied.
static bool check_many(llama_model *model, const options &o, const char *name, FILE *out) {
  llama_context *const ctx = make(model, o);
  if (!ctx) return false;
  runner r(model, ctx, out, 4);
  llama_memory_t memory = llama_get_memory(ctx);
  bool ok = r.prompt({0}, 1, 3000 / scale);
  say_memory(name, "3,000 tokens in one of four");
  ok = ok && r.prompt({1, 2}, 2, 500 / scale) && r.generate({0, 1, 2}, 12);
  llama_memory_seq_cp(memory, 0, 3, -1, -1);
  r.pos[3] = r.pos[0];
  r.next[3] = r.next[0];
  ok = ok && r.generate({0, 1, 2, 3}, 12);
  say_memory(name, "and copied to the fourth");
  r.cut(0, -1, -1);
  r.pos[0] = 0;
  say_memory(name, "the first one removed");
  ok = ok && r.generate({1, 2, 3}, 6) && r.prompt({0}, 5, 900 / scale) &&
       r.generate({0, 1, 2, 3}, 6);
  llama_free(ctx);
  return ok;
}

// What one context saved goes on in another: the whole of it, then one sequence.
static bool check_states(llama_model *model, const options &o, FILE *out) {
  llama_context *const from = make(model, o), *const to = make(model, o);
  if (!from || !to) return false;
  runner a(model, from, nullptr, 4), b(model, to, out, 4);
  bool ok = a.prompt({0, 1}, 7, 1500 / scale) && a.generate({0, 1}, 2);
  std::vector<uint8_t> all(llama_state_get_size(from));
  all.resize(llama_state_get_data(from, all.data(), all.size()));
  ok = ok && llama_state_set_data(to, all.data(), all.size()) == all.size();
  b.pos = a.pos;
  b.next = a.next;
  ok = ok && b.generate({0, 1}, 8);
  std::vector<uint8_t> one(llama_state_seq_get_size(from, 1));
  one.resize(llama_state_seq_get_data(from, one.data(), one.size(), 1));
  ok = ok && llama_state_seq_set_data(to, one.data(), one.size(), 2) != 0;
  b.pos[2] = a.pos[1];
  b.next[2] = a.next[1];
  ok = ok && b.generate({2}, 8);
  llama_free(from);
  llama_free(to);
  return ok;
}

static int check(llama_model *model, const char *path) {
  FILE *const out = fopen(path, "wb");
  const options one = {16384, 1, true, true, GGML_TYPE_F16},
                apart = {32768, 4, false, true, GGML_TYPE_F16};
  options other = one;
  bool ok = out && check_one(model, one, "one", out);
  other.flash = false;
  ok = ok && check_one(model, other, "no flash", out);
  other = one;
  other.type = GGML_TYPE_Q8_0;
  ok = ok && check_one(model, other, "q8_0", out) && check_many(model, apart, "apart", out);
  other = apart;
  other.flash = false;
  ok = ok && check_many(model, other, "apart, no flash", out) && check_states(model, other, out);
  other = apart;
  other.unified = true;
  ok = ok && check_many(model, other, "unified", out) && check_states(model, apart, out);
  if (out) fclose(out);
  printf("{\"what\":\"check\",\"ok\":%s,\"left_mib\":%.0f}\n", ok ? "true" : "false", used_mib());
  return !ok;
}

static int speed(llama_model *model) {
  const options o = {32768, 1, true, true, GGML_TYPE_F16};
  llama_context *const ctx = make(model, o);
  const int n = 8192, m = 128;
  double begin, prompt_s, generate_s, short_mib;
  if (!ctx) return 1;
  runner r(model, ctx, nullptr, 1);
  if (!r.prompt({0}, 1, 512) || !r.generate({0}, 8)) return 1;
  short_mib = used_mib();
  llama_memory_clear(llama_get_memory(ctx), false);
  r.pos[0] = 0;
  llama_synchronize(ctx);
  begin = now();
  if (!r.prompt({0}, 2, n)) return 1;
  llama_synchronize(ctx);
  prompt_s = now() - begin;
  begin = now();
  if (!r.generate({0}, m)) return 1;
  llama_synchronize(ctx);
  generate_s = now() - begin;
  printf(
      "{\"what\":\"speed\",\"prompt_tps\":%.1f,\"generate_tps\":%.2f,\"short_mib\":%.0f,"
      "\"used_mib\":%.0f}\n",
      n / prompt_s, m / generate_s, short_mib, used_mib());
  llama_free(ctx);
  return 0;
}

static int lanes(llama_model *model, int max) {
  const options o = {65536, 1, true, true, GGML_TYPE_F16};
  std::vector<llama_context *> all;
  size_t ggml_free = 0, total = 0;
  while ((int)all.size() < max) {
    llama_context *const ctx = make(model, o);
    if (!ctx) break;
    runner r(model, ctx, nullptr, 1);
    all.push_back(ctx);
    if (!r.prompt({0}, all.size(), 3000) || !r.generate({0}, 8)) {
      llama_free(ctx);
      all.pop_back();
      break;
    }
  }
  printf("{\"what\":\"lanes\",\"contexts\":%d,\"tried\":%d,\"used_mib\":%.0f", (int)all.size(), max,
         used_mib());
  for (llama_context *ctx : all) llama_free(ctx);
  if (ggml_backend_dev_t dev = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_GPU))
    ggml_backend_dev_memory(dev, &ggml_free, &total);
  printf(",\"freed_mib\":%.0f,\"ggml_says_free_mib\":%zu,\"driver_says_free_mib\":%.0f}\n",
         used_mib(), ggml_free >> 20, free_mib());
  return 0;
}

static void open_driver(double leave_gib) {
  void *const lib = dlopen("libcuda.so.1", RTLD_NOW);
  ggml_backend_dev_t dev = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_GPU);
  unsigned long long ballast;
  size_t free_bytes = 0, total = 0;
  double more;
  if (!lib || !dev) return;
  ggml_backend_dev_memory(dev, &free_bytes, &total); /* makes the device's context current */
  *(void **)&mem_get_info = dlsym(lib, "cuMemGetInfo_v2");
  *(void **)&mem_alloc = dlsym(lib, "cuMemAlloc_v2");
  more = free_mib() - leave_gib * 1024;
  if (leave_gib > 0 && more > 0 && mem_alloc(&ballast, (size_t)(more * 1048576)))
    fprintf(stderr, "the driver does not give %.0f MiB as ballast\n", more);
  first_free_mib = free_mib();
  if (first_free_mib == 0) fprintf(stderr, "the driver does not say how much memory is free\n");
}

int main(int argc, char **argv) {
  const std::string what = argc > 2 ? argv[1] : "";
  llama_model_params p = llama_model_default_params();
  llama_model *model;
  int rc = 2;
  llama_log_set(
      [](ggml_log_level level, const char *text, void *) {
        if (level >= GGML_LOG_LEVEL_WARN || !strncmp(text, "gmlake: ", 8)) fputs(text, stderr);
      },
      nullptr);
  ggml_backend_load_all();
  llama_backend_init();
#if defined(MEASURE_MOCK)
  if (getenv("GROWING") && !growing_offer()) return 2;
#endif
  open_driver(what == "lanes" && argc == 5 ? atof(argv[3]) : 0);
  p.n_gpu_layers = 999;
  model = argc > 2 ? llama_model_load_from_file(argv[2], p) : nullptr;
  if (!model) return 2;
  if (what == "check" && argc == 4) rc = check(model, argv[3]);
  if (what == "speed" && argc == 3) rc = speed(model);
  if (what == "lanes" && argc == 5) rc = lanes(model, atoi(argv[4]));
  llama_model_free(model);
  return rc;
}
