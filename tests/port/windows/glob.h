/* glob of one folder by FindFirstFile, for programs of bench/ that are compiled for Windows. */
#if !defined(PORT_GLOB_H)
#define PORT_GLOB_H
#include <stdlib.h>
#include <string.h>
#include <windows.h>
#define GLOB_MAX 64
#define GLOB_APPEND 1
typedef struct glob_t {
  size_t gl_pathc;
  char *gl_pathv[GLOB_MAX];
} glob_t;
static inline int glob_compare(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}
static inline int glob(const char *pattern, int flags, void *unused, glob_t *out) {
  const char *name = strrchr(pattern, '/');
  const size_t folder = name ? (size_t)(name + 1 - pattern) : 0;
  WIN32_FIND_DATAA found;
  size_t begin;
  HANDLE search = FindFirstFileA(pattern, &found);
  (void)unused;
  if (!(flags & GLOB_APPEND)) out->gl_pathc = 0;
  if (search == INVALID_HANDLE_VALUE) return 1;
  begin = out->gl_pathc;
  do {
    char *path = (char *)malloc(folder + strlen(found.cFileName) + 1);
    if (!path) break;
    memcpy(path, pattern, folder);
    strcpy(path + folder, found.cFileName);
    out->gl_pathv[out->gl_pathc++] = path;
  } while (out->gl_pathc < GLOB_MAX && FindNextFileA(search, &found));
  FindClose(search);
  qsort(out->gl_pathv + begin, out->gl_pathc - begin, sizeof(char *), glob_compare);
  return 0;
}
static inline void globfree(glob_t *found) {
  while (found->gl_pathc) free(found->gl_pathv[--found->gl_pathc]);
}
#endif
