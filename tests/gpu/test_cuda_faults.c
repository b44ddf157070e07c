/* Every fault of the driver under the CUDA backend. */
#include "fake_play.h"

#include "../play/test_faults.c"
