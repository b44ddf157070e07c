/* Every row of tests/play over the CUDA backend. */
#include "fake_play.h"

#include "../play/test_rows.c"
