/* usage: PROGRAM FILE...
   Runs the files through a fuzz target, for compilers that have no fuzzer. */
#include "fuzz.h"

static void run(const char *path) {
  FILE *file = fopen(path, "rb");
  uint8_t *data = NULL;
  long size = 0;
  if (!file || fseek(file, 0, SEEK_END) || (size = ftell(file)) < 0 || fseek(file, 0, SEEK_SET) ||
      !(data = (uint8_t *)malloc((size_t)size + !size)) ||
      fread(data, 1, (size_t)size, file) != (size_t)size) {
    fprintf(stderr, "%s: cannot be read\n", path);
    exit(2);
  }
  (void)fclose(file);
  (void)LLVMFuzzerTestOneInput(data, (size_t)size);
  free(data);
}

int main(int argc, char **argv) {
  int i;
  for (i = 1; i < argc; i++) {
    fprintf(stderr, "%s\n", argv[i]); /* the last one named is the one that failed */
    run(argv[i]);
  }
  printf("%d inputs\n", argc - 1);
  return 0;
}
