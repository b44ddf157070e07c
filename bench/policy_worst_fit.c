/* Shows how to write a policy as a shared library for `build/replay --policy`. The policy is worst
   fit: a request gets the front of the largest free block, or new chunks. It never stitches.

      make build/policy_worst_fit.so
      build/replay --policy build/policy_worst_fit.so --set chunk_mib=2 TRACE */
#include "policy.h"

#include <string.h>

static size_t chunk_bytes = (size_t)16 << 20;

/* If the largest block is too small, the plan keeps state 0. That leaves the request to the lake's
   own policy, which creates memory. */
static void choose(void *user, const gmlake_view *view, const gmlake_request *request,
                   gmlake_plan *plan) {
  size_t bytes = (request->bytes + 511) / 512 * 512, i;
  const gmlake_piece *worst = NULL;
  (void)user;
  if (request->alignment > 512 || request->flags) return;
  for (i = 0; i < view->block_count; i++)
    if (!worst || view->blocks[i].bytes > worst->bytes) worst = &view->blocks[i];
  if (!worst || worst->bytes < bytes) return;
  plan->state = worst->bytes == bytes ? 1 : 2;
  plan->pieces[0].home = worst->home;
  plan->pieces[0].bytes = bytes;
  plan->piece_count = 1;
  plan->reason = "largest block";
}

static gmlake_policy policy;

static int set(const char *key, const char *value) {
  uint64_t number;
  if (strcmp(key, "chunk_mib") != 0 || !policy_number(value, 1024, &number)) return 0;
  chunk_bytes = (size_t)number << 20;
  return number >= 2 && !(number & (number - 1));
}

static void describe(gmlake_desc *desc) {
  policy.struct_bytes = sizeof policy;
  policy.choose = choose;
  desc->policy = &policy;
  desc->chunk_bytes = chunk_bytes;
  desc->stitch_bytes_min = SIZE_MAX; /* so the lake's own policy stitches nothing */
}

static const policy_key keys[] = {{"chunk_mib", "16", "the chunk, a power of two, 2 to 1024"}};

const policy_plugin gmlake_replay_policy = {sizeof(policy_plugin),
                                            sizeof(gmlake_policy),
                                            "worst_fit",
                                            "the largest free block, nothing stitched",
                                            keys,
                                            1,
                                            set,
                                            describe};
