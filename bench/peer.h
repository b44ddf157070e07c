/* What a shared library exports to be measured by bench.c beside the lake (--peer FILE). The
   allocator's name is the file's, without a leading `peer_` and what follows the first dot. Any of
   its memory is made up: nobody touches it. Nothing is closed: the process ends. */
#if !defined(PEER_H)
#define PEER_H

#include <stddef.h>

#if defined(__cplusplus)
extern "C" {
#endif

/* An allocator over device_bytes of memory, or NULL. At most blocks_max blocks are live at a time,
   and streams are numbered below stream_count. */
void *peer_open(size_t device_bytes, size_t blocks_max, size_t stream_count);
/* A block, or NULL. bytes is not 0. Threads: one at a time, and so below. */
void *peer_alloc(void *self, size_t bytes, size_t stream);
/* Not 0 where that fails. */
int peer_free(void *self, void *ptr);
/* May be left out: the most memory it has held of the device, in bytes. */
size_t peer_reserved_peak(void *self);

#if defined(__cplusplus)
}
#endif

#endif
