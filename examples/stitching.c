/* Shows what makes a lake different: it serves a request from several free pieces. The program
   makes holes that are each too small for the next request. The lake then stitches a window over
   them: a second range of addresses that maps the holes side by side. The program prints the pieces
   of the window, and shows that both addresses reach the same memory.

   Compile and run it in the directory of gmlake.h:
     cc -I. examples/stitching.c -o stitching -lpthread -ldl && ./stitching */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include <stdio.h>

#define MIB ((size_t)1 << 20)

static int failed(const char *what, gmlake_result result) {
  if (result == GMLAKE_OK) return 0;
  fprintf(stderr, "%s: %s\n", what, gmlake_result_name(result));
  return 1;
}

/* Allocates eight blocks of 4 MiB and frees every other one, so no two free blocks are
   neighbours. */
static int make_holes(gmlake *lake) {
  void *blocks[8];
  size_t i;
  for (i = 0; i < 8; i++)
    if (failed("alloc", gmlake_alloc(lake, 4 * MIB, NULL, &blocks[i]))) return 1;
  for (i = 0; i < 8; i += 2)
    if (failed("free", gmlake_free(lake, blocks[i], NULL))) return 1;
  return 0;
}

/* Writes one letter into each piece through the window, and reads it at the piece's own address.
   That address, `home`, is where the memory was before the window was made. */
static int look_at_pieces(gmlake *lake, char *window) {
  gmlake_piece pieces[8];
  size_t count, i, offset = 0;
  if (failed("get_pieces", gmlake_get_pieces(lake, window, pieces, 8, &count))) return 1;
  printf("the window has %zu pieces\n", count);
  for (i = 0; i < count && i < 8; i++) {
    char *home = (char *)pieces[i].home;
    window[offset] = (char)('a' + i);
    printf("  %zu MiB at offset %2zu MiB: wrote %c through the window, its home says %c\n",
           pieces[i].bytes / MIB, offset / MIB, window[offset], home[0]);
    if (home[0] != window[offset]) return 1;
    offset += pieces[i].bytes;
  }
  return 0;
}

static int stitch(gmlake *lake) {
  gmlake_stats stats = {0};
  void *window;
  if (make_holes(lake)) return 1;
  /* 16 MiB are free, in four holes. Three of them become the window; no memory is added. */
  if (failed("alloc", gmlake_alloc(lake, 12 * MIB, NULL, &window))) return 1;
  if (look_at_pieces(lake, (char *)window)) return 1;
  if (failed("get_stats", gmlake_get_stats(lake, &stats))) return 1;
  printf("%zu MiB live in %zu MiB of memory\n", stats.active_bytes / MIB,
         stats.reserved_bytes / MIB);
  return failed("free", gmlake_free(lake, window, NULL));
}

int main(void) {
  gmlake_mock_desc mock = {0};
  gmlake_desc desc = {0};
  gmlake_backend *backend;
  gmlake *lake;
  int status;
  mock.capacity_bytes = 64 * MIB;
  if (failed("mock_create", gmlake_mock_create(&mock, &backend))) return 1;
  desc.backend = backend;
  status = failed("create", gmlake_create(&desc, &lake));
  if (!status) {
    status = stitch(lake);
    status |= failed("destroy", gmlake_destroy(lake)); /* also frees the other four blocks */
  }
  gmlake_mock_destroy(backend);
  return status;
}
