/* What `build/replay --policy` runs a lake with: one of its own (bench/policy_builtin.h), or that
   of a shared library. Such a library defines

      const policy_plugin gmlake_replay_policy = { ... };

   and nothing else that it exports is looked at; see bench/policy_worst_fit.c. Built with

      cc -std=c99 -shared -fPIC -I. -Ibench policy.c -o policy.so

   it runs as `build/replay --policy ./policy.so --set key=value`. It knows gmlake.h by its types
   alone: a lake calls it, it never calls a lake. */
#if !defined(POLICY_H)
#define POLICY_H

#include "gmlake.h"

#include <errno.h>
#include <stdlib.h>

#if defined(__cplusplus)
extern "C" {
#endif

#define POLICY_SYMBOL "gmlake_replay_policy"

typedef struct policy_key { /* a knob, for --set and --help */
  const char *name, *value; /* its default, as text */
  const char *help;
} policy_key;

typedef struct policy_plugin {
  size_t struct_bytes; /* sizeof(policy_plugin), and */
  size_t policy_bytes; /* sizeof(gmlake_policy): what it was compiled against */
  const char *name, *help;
  const policy_key *keys;
  size_t key_count;
  /* Sets one of the keys, before any lake is made. Returns 0 where the value does not fit. */
  int (*set)(const char *key, const char *value);
  /* Writes what it wants of a lake that is about to be made: desc->policy, and what else differs
     from the defaults, such as chunk_bytes. Options of the command line come after it. What it
     points to has to stay; several lakes are made one after the other. */
  void (*describe)(gmlake_desc *desc);
} policy_plugin;

extern const policy_plugin gmlake_replay_policy; /* a library's; C++ would keep it to itself */

/* A number up to max in decimal digits; 0 where the text is anything else. */
static inline int policy_number(const char *text, uint64_t max, uint64_t *out) {
  char *end;
  if (*text < '0' || *text > '9') return 0;
  errno = 0;
  *out = strtoull(text, &end, 10);
  return !errno && !*end && *out <= max;
}

#if defined(__cplusplus)
}
#endif

#endif
