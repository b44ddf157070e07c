/* dlopen by LoadLibrary, for programs of bench/ that are compiled for Windows. */
#if !defined(PORT_DLFCN_H)
#define PORT_DLFCN_H
#include <windows.h>
#define RTLD_NOW 0
#define RTLD_LOCAL 0
static inline void *dlopen(const char *path, int mode) {
  (void)mode;
  return (void *)LoadLibraryA(path);
}
static inline void *dlsym(void *library, const char *name) {
  FARPROC found = GetProcAddress((HMODULE)library, name);
  void *symbol = NULL;
  memcpy(&symbol, &found, sizeof(found));
  return symbol;
}
static inline const char *dlerror(void) { return "the library cannot be loaded"; }
static inline int dlclose(void *library) { return !FreeLibrary((HMODULE)library); }
#endif
