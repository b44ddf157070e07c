"""A plugin of pytest (-p cupy_async): CuPy takes its memory by cudaMallocAsync."""

import cupy

cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
