/* The functions of a shared library whose allocator bench.c measures beside the lake (`build/bench
   --peer FILE`). The allocator's name is that of the file, without a leading `peer_` and without
   what follows the first dot. Nobody reads or writes the memory, so its addresses may be made up.
   Nothing is closed at the end, because the process ends. */
#if !defined(PEER_H)
#define PEER_H

#include <stddef.h>

#if defined(__cplusplus)
extern "C" {
#endif

/* Makes an allocator for device_bytes of memory; NULL on failure. At most blocks_max blocks are
   live at the same time. The numbers of streams are below stream_count. */
void *peer_open(size_t device_bytes, size_t blocks_max, size_t stream_count);
/* Returns a block, or NULL on failure. bytes is not 0. This and the other functions are called by
   one thread at a time. */
void *peer_alloc(void *self, size_t bytes, size_t stream);
/* Returns 0 if the block was freed, else another number. */
int peer_free(void *self, void *ptr);
/* Returns the most memory of the device that it has held, in bytes. A library may leave it out. */
size_t peer_reserved_peak(void *self);

#if defined(__cplusplus)
}
#endif

#endif
