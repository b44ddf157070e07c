// The implementation of gmlake in ggml's CUDA backend.
#if !defined(GGML_USE_HIP) && !defined(GGML_USE_MUSA)
#define GMLAKE_IMPLEMENTATION
#include "gmlake.h"
#endif
