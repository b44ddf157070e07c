/* The form of a policy for `build/replay --policy`. replay has two policies of its own
   (bench/policy_builtin.h), and can load others from shared libraries. Such a library defines

      const policy_plugin gmlake_replay_policy = { ... };

   Nothing else that it exports is used. bench/policy_worst_fit.c is an example. Build it with

      cc -std=c99 -shared -fPIC -I. -Ibench policy.c -o policy.so

   and run `build/replay --policy ./policy.so --set key=value`. The library uses only the types of
   gmlake.h: a lake calls the policy, the policy never calls a lake. */
#if !defined(POLICY_H)
#define POLICY_H

#include "gmlake.h"

#include <errno.h>
#include <stdlib.h>

#if defined(__cplusplus)
extern "C" {
#endif

#define POLICY_SYMBOL "gmlake_replay_policy"

typedef struct policy_key { /* a setting, for --set and --help */
  const char *name, *value; /* value: its default, as text */
  const char *help;
} policy_key;

typedef struct policy_plugin {
  size_t struct_bytes; /* sizeof(policy_plugin) when the library was compiled */
  size_t policy_bytes; /* sizeof(gmlake_policy) then */
  const char *name, *help;
  const policy_key *keys;
  size_t key_count;
  /* Changes a setting. It is called before any lake is made. Returns 0 if the value does not
     fit. */
  int (*set)(const char *key, const char *value);
  /* Is called before each lake is made. It writes desc->policy, and every other field that must
     differ from its default, for example chunk_bytes. Options of the command line may change fields
     after that. What desc points to must stay valid; several lakes are made one after the other. */
  void (*describe)(gmlake_desc *desc);
} policy_plugin;

extern const policy_plugin gmlake_replay_policy; /* so that C++ exports a library's */

/* Reads a number from 0 to max in decimal digits. Returns 0 if the text is anything else. */
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
