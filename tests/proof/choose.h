/* Choices and claims, for Eva. */
#if !defined(CHOOSE_H)
#define CHOOSE_H

static volatile int any; /* if (any) goes both ways */

/*@ requires claim: holds != 0; assigns \nothing; */
static inline void must(int holds) { (void)holds; }

/* An operation and its three arguments, as a number. */
static inline unsigned coded(unsigned operation, unsigned a, unsigned b, unsigned c) {
  return operation << 24 | a << 16 | b << 8 | c;
}

#endif
