/* Counts the steps (runs of instructions without a branch) that code takes which was compiled with
   -fsanitize-coverage=trace-pc; this file is compiled without. */
#include <stdint.h>

extern volatile uint64_t step_count;
void __sanitizer_cov_trace_pc(void);

void __sanitizer_cov_trace_pc(void) { step_count++; }
