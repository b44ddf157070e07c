/* Takes parts out of a list as long as what is left still breaks the same rule: halves first, then
   quarters, down to single items, from the end on. For the programs that tests choose by chance. */
#if !defined(SHORTEN_H_INCLUDED)
#define SHORTEN_H_INCLUDED

#include <stdlib.h>
#include <string.h>

/* Returns whether the list got shorter. `breaks` tries the list as it is; where that breaks the
   rule it may cut off what stands behind the item that did. */
static int shorten(void *items, size_t item_bytes, size_t *count, int (*breaks)(void *), void *of) {
  char *const list = (char *)items, *const all = (char *)malloc(*count * item_bytes + 1);
  int has_shrunk = 0;
  size_t part, at;
  if (!all) abort();
  for (part = *count / 2 + 1; part; part /= 2)
    for (at = *count; at;) {
      const size_t taken = part < at ? part : at, before = *count;
      at -= taken;
      memcpy(all, list, before * item_bytes);
      memmove(list + at * item_bytes, list + (at + taken) * item_bytes,
              (before - at - taken) * item_bytes);
      *count = before - taken;
      if (breaks(of)) {
        has_shrunk = 1;
      } else {
        memcpy(list, all, before * item_bytes);
        *count = before;
      }
      if (at > *count) at = *count;
    }
  free(all);
  return has_shrunk;
}

#endif /* SHORTEN_H_INCLUDED */
