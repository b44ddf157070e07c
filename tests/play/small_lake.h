/* The lake under the player in test_random, test_worlds, test_faults and fuzz_play. It is small and
   has a small-block reserve all the same, its extents are of few chunks, and an assertion of it
   that fails is a finding. A line that one of these programs prints means the same to the others,
   but for the size of that reserve: a program may define its own before it includes this file,
   which comes first. */
#if !defined(PLAY_SMALL_LAKE_H)
#define PLAY_SMALL_LAKE_H

#if !defined(GMLK_SMALL_PART)
#define GMLK_SMALL_PART 4u
#define GMLK_SMALL_RESERVE_PART 4u
#define GMLK_SMALL_RESERVE_FROM 6u
#endif
static void assertion_failed(const char *condition);
#undef GMLAKE_ASSERT
#define GMLAKE_ASSERT(condition) ((condition) ? (void)0 : assertion_failed(#condition))
#include "lake.h"

static void assertion_failed(const char *condition) { judge(0, condition); }

#endif /* PLAY_SMALL_LAKE_H */
