/* The Makefile includes this before each test program. An assertion of a header that fails ends its
   case, and the cases behind it run; a program with an assertion of its own undefines it first.
   TEST=PATTERN in the environment runs the cases alone whose names fit. */
#if !defined(EVERY_TEST_H) && !defined(__cplusplus)
#define EVERY_TEST_H

/* cmocka's and the C library's: gmlake.h wants to be the first header of a file. */
extern void mock_assert(const int result, const char *const expression, const char *const file,
                        const int line);
extern void cmocka_set_test_filter(const char *pattern);
extern char *getenv(const char *name);

#define GMLAKE_ASSERT(condition) mock_assert((condition) ? 1 : 0, #condition, __FILE__, __LINE__)
#define GMLAKE_BFC_ASSERT(condition) GMLAKE_ASSERT(condition)
#define GMLAKE_OFFLOAD_ASSERT(condition) GMLAKE_ASSERT(condition)

__attribute__((constructor)) static void every_test_chooses(void) {
  cmocka_set_test_filter(getenv("TEST"));
}

#endif
