/* The two policies that build/replay has without a library: the lake's own and the paper's. */
#if !defined(POLICY_BUILTIN_H)
#define POLICY_BUILTIN_H

#include "policy.h"
#include "policy_paper.h"

#define POLICY_MIB ((size_t)1 << 20)
#define POLICY_MIB_MAX ((uint64_t)1 << 30)

/* ---- default --------------------------------------------------------------------------------- */

static gmlake_desc policy_default_desc; /* its settings */

static const policy_key policy_default_keys[] = {
    {"chunk_mib", "0", "the chunk, a power of two, 2 to 1024; 0: device memory / 8192, 2 to 32"},
    {"stitch_min_mib", "0", "a number: smaller requests are never stitched"},
    {"stitched_max_mib", "0", "a number, StitchFree's threshold; 0: 4 x device memory"},
    {"driver_free_min_mib", "0", "a number: growth leaves so much to others"}};

static int policy_is_power(uint64_t number) { return number && !(number & (number - 1)); }

static int policy_default_set(const char *key, const char *value) {
  gmlake_desc *desc = &policy_default_desc;
  uint64_t number;
  if (!policy_number(value, POLICY_MIB_MAX, &number)) return 0;
  if (!strcmp(key, "chunk_mib")) {
    desc->chunk_bytes = (size_t)number * POLICY_MIB;
    return !number || (policy_is_power(number) && number >= 2 && number <= 1024);
  }
  if (!strcmp(key, "stitch_min_mib")) desc->stitch_bytes_min = (size_t)number * POLICY_MIB;
  if (!strcmp(key, "stitched_max_mib")) desc->stitched_bytes_max = (size_t)number * POLICY_MIB;
  if (!strcmp(key, "driver_free_min_mib"))
    desc->driver_free_bytes_min = (size_t)number * POLICY_MIB;
  return 1;
}

static void policy_default_describe(gmlake_desc *desc) {
  desc->chunk_bytes = policy_default_desc.chunk_bytes;
  desc->stitch_bytes_min = policy_default_desc.stitch_bytes_min;
  desc->stitched_bytes_max = policy_default_desc.stitched_bytes_max;
  desc->driver_free_bytes_min = policy_default_desc.driver_free_bytes_min;
}

/* ---- paper ----------------------------------------------------------------------------------- */

static gmlake_paper policy_paper_settings;
static gmlake_policy policy_paper_table;
static int policy_paper_is_ready;

static const policy_key policy_paper_keys[] = {
    {"official", "0",
     "1: all settings as in the authors' code; a later --set still changes them; or 0"},
    {"chunk_mib", "2", "the chunk, a power of two, 2 to 1024; sizes are rounded up to it"},
    {"limit_mib", "128", "a number, the fragmentation limit"},
    {"limit_reading", "request",
     "what it limits: request, exact, block, whole; see policy_paper.h"},
    {"stitched_max_mib", "0", "a number, StitchFree's threshold; 0: 4 x device memory"},
    {"small_kib", "0",
     "a number: smaller requests live in slabs of a chunk; 0: those below a chunk"},
    {"keeps_former", "1", "1 or 0: S2 keeps the former block as an sBlock"},
    {"coalesces", "0", "1 or 0: a freed block joins its free neighbours"},
    {"takes_block_first", "0", "1 or 0: a larger pBlock goes before an exact sBlock"},
    {"allocates_whole", "0", "1 or 0: S4 creates all of the request and stitches nothing"},
    {"stitches_late", "0", "1 or 0: stitches only when creating all of the request has failed"},
    {"reuse_percent", "100",
     "100 to 10000: an sBlock of up to this part of the request is reused, whole"}};

static void policy_paper_prepare(void) {
  if (!policy_paper_is_ready) gmlake_paper_init(&policy_paper_settings);
  policy_paper_is_ready = 1;
}

static int policy_paper_set_reading(gmlake_paper *paper, const char *value) {
  static const char *const names[] = {"request", "exact", "block", "whole"};
  int i;
  for (i = 0; i < 4 && strcmp(value, names[i]) != 0; i++) continue;
  if (i < 4) paper->limit_reading = (gmlake_paper_limit)i;
  return i < 4;
}

static int policy_paper_set_switch(gmlake_paper *paper, const char *key, uint64_t number) {
  if (number > 1) return 0;
  if (!strcmp(key, "keeps_former")) paper->keeps_former = (int)number;
  if (!strcmp(key, "coalesces")) paper->coalesces = (int)number;
  if (!strcmp(key, "takes_block_first")) paper->takes_block_first = (int)number;
  if (!strcmp(key, "allocates_whole")) paper->allocates_whole = (int)number;
  if (!strcmp(key, "stitches_late")) paper->stitches_late = (int)number;
  if (!strcmp(key, "official") && number) gmlake_paper_init_official(paper);
  if (!strcmp(key, "official") && !number) gmlake_paper_init(paper);
  return 1;
}

static int policy_paper_set(const char *key, const char *value) {
  gmlake_paper *paper = &policy_paper_settings;
  uint64_t number;
  policy_paper_prepare();
  if (!strcmp(key, "limit_reading")) return policy_paper_set_reading(paper, value);
  if (!policy_number(value, POLICY_MIB_MAX, &number)) return 0;
  if (!strcmp(key, "chunk_mib")) {
    paper->chunk_bytes = (size_t)number * POLICY_MIB;
    return policy_is_power(number) && number >= 2 && number <= 1024;
  }
  if (!strcmp(key, "reuse_percent")) {
    paper->reuse_percent = (unsigned)number;
    return number >= 100 && number <= 10000;
  }
  if (!strcmp(key, "limit_mib"))
    paper->limit_bytes = (size_t)number * POLICY_MIB;
  else if (!strcmp(key, "stitched_max_mib"))
    paper->stitched_bytes_max = (size_t)number * POLICY_MIB;
  else if (!strcmp(key, "small_kib"))
    paper->small_bytes = (size_t)number << 10;
  else
    return policy_paper_set_switch(paper, key, number);
  return 1;
}

/* The built-in policy is only asked to create a slab. So it must never stitch. */
static void policy_paper_describe(gmlake_desc *desc) {
  policy_paper_prepare();
  policy_paper_table = gmlake_policy_paper(&policy_paper_settings);
  desc->policy = &policy_paper_table;
  desc->chunk_bytes = policy_paper_settings.chunk_bytes;
  desc->stitch_bytes_min = policy_paper_settings.chunk_bytes;
}

static const policy_plugin policy_builtins[] = {
    {sizeof(policy_plugin), sizeof(gmlake_policy), "default", "the lake's own", policy_default_keys,
     sizeof policy_default_keys / sizeof policy_default_keys[0], policy_default_set,
     policy_default_describe},
    {sizeof(policy_plugin), sizeof(gmlake_policy), "paper",
     "the GMLake paper's, see bench/policy_paper.h", policy_paper_keys,
     sizeof policy_paper_keys / sizeof policy_paper_keys[0], policy_paper_set,
     policy_paper_describe}};

#define POLICY_BUILTIN_COUNT (sizeof policy_builtins / sizeof policy_builtins[0])

/* ---- Any ------------------------------------------------------------------------------------- */

static const policy_key *policy_find_key(const policy_plugin *plugin, const char *key,
                                         size_t length) {
  size_t i;
  for (i = 0; i < plugin->key_count; i++) {
    const char *name = plugin->keys[i].name;
    if (strlen(name) == length && !strncmp(name, key, length)) return &plugin->keys[i];
  }
  return NULL;
}

#endif
