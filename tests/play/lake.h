/* The lake under the player. It comes first in a program of tests/play, and in one that builds its
   lakes by a line. small_lake.h has it smaller. */
#if !defined(PLAY_LAKE_H)
#define PLAY_LAKE_H

#include "locks.h"

#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
static unsigned unit_chunks; /* each lake has its own, which player.h sets */
#define GMLK_UNIT_CHUNKS unit_chunks
#include "gmlake.h"

#if defined(PLAY_DEVICE)
#include PLAY_DEVICE /* in the mock's place */
#endif
#include "player.h"

#endif /* PLAY_LAKE_H */
