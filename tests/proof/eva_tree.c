/* >>tree: BLOCKS blocks, or with WINDOWS idle windows of few keys, go in and out in any order, any
   number of times. After each operation [T1] and [T2] hold, all that are in are found, and
   every search answers what a look at all of them does. */
#include "eva.h"

#if !defined(BLOCKS)
#define BLOCKS 5u
#define WINDOWS 0
#endif

static gmlk_window windows[BLOCKS];
static gmlk_block *root, edge;
static int is_in[BLOCKS];

static int is_before(unsigned i, uint64_t key, uint64_t number) {
  if (!WINDOWS) return windows[i].self.at < key;
  return windows[i].key < key || (windows[i].key == key && windows[i].number < number);
}

/* [T2] of what stands below b. Returns how many blocks do. */
static unsigned count(const gmlk_block *b) {
  const gmlk_block *less = b->as.children.less, *more = b->as.children.more;
  must(!less || gmlk_tree_rank(less) <= gmlk_tree_rank(b));
  must(!more || gmlk_tree_rank(more) <= gmlk_tree_rank(b));
  return 1 + (less ? count(less) : 0) + (more ? count(more) : 0);
}

/* What stands in order behind all before that key and number, and the last one up to it. */
static void check_search(uint64_t key, uint64_t number) {
  gmlk_block *behind = NULL, *upto = NULL;
  unsigned i;
  for (i = 0; i < BLOCKS; i++) {
    if (is_in[i] && (is_before(i, key, number) || windows[i].self.at == key))
      upto = &windows[i].self;
    if (is_in[i] && !is_before(i, key, number) && !behind) behind = &windows[i].self;
  }
  must(gmlk_tree_from(root, key, number) == behind);
  must(WINDOWS || gmlk_tree_upto(root, (uint32_t)key) == upto);
}

static void check(void) {
  unsigned i, in = 0;
  for (i = 0; i < BLOCKS; i++) {
    in += (unsigned)is_in[i];
    check_search(WINDOWS ? windows[i].key : windows[i].self.at, windows[i].number);
    check_search(WINDOWS ? windows[i].key : windows[i].self.at + 1, windows[i].number + 1);
  }
  check_search(0, 0);
  must(root ? count(root) == in : !in);
}

static unsigned choose(void) {
  unsigned i;
  for (i = 0; i < BLOCKS; i++)
    if (any) return i + 1;
  return 0;
}

int main(void) {
  unsigned i;
  for (i = 0; i < BLOCKS; i++) {     /* in order */
    windows[i].self.at = 37 * i + 2; /* neither in order of rank nor against it */
    windows[i].self.next = WINDOWS ? NULL : &edge;
    windows[i].key = i / 2;
    windows[i].number = 37 * i + 2;
  }
  for (;;) {
    const unsigned chosen = choose();
    gmlk_block *b = &windows[chosen - 1].self;
    if (!chosen) return 0;
    if (is_in[chosen - 1]) {
      gmlk_tree_remove(&root, b);
      memset(&b->as, 0, sizeof(b->as)); /* what is left over would be another state */
    } else {
      gmlk_tree_insert(&root, b);
    }
    is_in[chosen - 1] = !is_in[chosen - 1];
    check();
  }
}
