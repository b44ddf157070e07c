/* What tests/play uses of POSIX, on Windows: included before it. There are no descriptors to be
   counted. */
#include <setjmp.h>
#include <signal.h>

#define sigjmp_buf jmp_buf
#define sigsetjmp(buffer, mask) setjmp(buffer)
#define siglongjmp longjmp
#define SIGBUS SIGSEGV
#define F_GETFD 1
#define fcntl(file, command) (-1)
#define _SC_PAGESIZE 1
#define sysconf(name) 4096
