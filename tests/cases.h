/* What a test program consists of. CASE(name) { ... } is one of its cases, where it stands; others
   are added by add_case, as for the rows of a table. `return run_cases("program");` ends main.
   Include after gmlake.h, which wants to be the first header. */
#if !defined(CASES_H)
#define CASES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__cplusplus)
extern "C" { /* cmocka.h does not say so everywhere */
#endif
#include <cmocka.h>
#if defined(__cplusplus)
}
#endif

static struct CMUnitTest *cases;
static size_t case_count;

/* `state` is what the case finds in *state. */
static inline struct CMUnitTest *add_case(const char *name, CMUnitTestFunction run,
                                          const void *state) {
  struct CMUnitTest *added;
  cases = (struct CMUnitTest *)realloc(cases, (case_count + 1) * sizeof(*cases));
  if (!cases) abort();
  added = &cases[case_count++];
  memset(added, 0, sizeof(*added));
  added->name = name;
  added->test_func = run;
  added->initial_state = (void *)(uintptr_t)state;
  return added;
}

/* In the order of the file. What goes before each and behind it may be NULL. */
#define CASE_BETWEEN(set_up, tear_down, name)                                       \
  static void name(void **state);                                                   \
  __attribute__((constructor(100 + __LINE__))) static void name##_is_a_case(void) { \
    struct CMUnitTest *added = add_case(#name, name, NULL);                         \
    added->setup_func = set_up;                                                     \
    added->teardown_func = tear_down;                                               \
  }                                                                                 \
  static void name(void **state __attribute__((unused)))
#define CASE(name) CASE_BETWEEN(NULL, NULL, name)

/* A case that `run` plays: in *state it finds a `type`, which begins with the function whose
   parameters and body stand here, and goes on with what is said of it. */
#define CASE_OF(type, run, parameters, name, ...)                                   \
  static void name parameters;                                                      \
  __attribute__((constructor(100 + __LINE__))) static void name##_is_a_case(void) { \
    static const type said = {name, __VA_ARGS__};                                   \
    (void)add_case(#name, run, &said);                                              \
  }                                                                                 \
  static void name parameters

static inline int run_cases(const char *program) {
  return _cmocka_run_group_tests(program, cases, case_count, NULL, NULL);
}

#endif
