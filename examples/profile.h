/* Keeps what memory a program needed from one run to the next: the most that the blocks of no pool
   held, as a number in a file. The next run has it created before its first step, where nobody
   waits for it. A file of another program does no harm: gmlake_reserve creates no more than there
   is room for, and the lake returns what is created in vain where memory is short.

     size_t bytes;
     if (profile_read("train.profile", &bytes)) gmlake_reserve(lake, NULL, bytes, stream);
     ... the steps ...
     profile_write("train.profile", lake);

   Include it behind gmlake.h. */
#if !defined(GMLAKE_EXAMPLE_PROFILE_H)
#define GMLAKE_EXAMPLE_PROFILE_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Reads the bytes that an earlier run held at most. 0: there is no such file, or it is not one. */
static int profile_read(const char *path, size_t *out_bytes) {
  FILE *file = fopen(path, "r");
  unsigned long long bytes = 0;
  char end = 0;
  int is_one;
  if (!file) return 0;
  is_one = fscanf(file, "gmlake profile 2 peak %llu%c", &bytes, &end) == 2 && end == '\n' &&
           bytes <= SIZE_MAX && fgetc(file) == EOF;
  (void)fclose(file);
  *out_bytes = (size_t)bytes;
  return is_one;
}

/* Writes what this run held at most, since gmlake_reset_peaks if that was called. 0: it failed. */
static int profile_write(const char *path, gmlake *lake) {
  gmlake_stats stats;
  FILE *file;
  int is_written;
  memset(&stats, 0, sizeof stats);
  if (gmlake_pool_get_stats(lake, NULL, &stats) != GMLAKE_OK) return 0;
  file = fopen(path, "w");
  if (!file) return 0;
  is_written = fprintf(file, "gmlake profile 2 peak %llu\n",
                       (unsigned long long)stats.reserved_bytes_peak) > 0;
  return fclose(file) == 0 && is_written;
}

#endif /* GMLAKE_EXAMPLE_PROFILE_H */
