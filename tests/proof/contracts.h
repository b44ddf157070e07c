/* Contracts of functions of gmlake_bfc.h, for Frama-C's WP: for arguments and heaps of any size, not
   within bounds. They stand here and not in the header, where a reader would meet two languages.
   proof.py includes them before the first function of a copy, and puts the invariants of LOOPS before
   their loops.

   LOOPS
   gmlkb_tree_fit: while (node != NULL) {
     loop invariant tree_of(node);
     loop invariant \forall gmlkb_block *x; in(x, node) ==> in(x, \at(node, Pre));
     loop invariant best == \null || (\valid_read(best) && in(best, \at(node, Pre)) && reaches(best, stream, bytes));
     loop invariant \forall gmlkb_block *x; in(x, \at(node, Pre)) && reaches(x, stream, bytes) ==> in(x, node) || (best != \null && !before(x, best));
     loop assigns node, best;
*/
/*@ // [B3] the order of a tree
    predicate before{L}(gmlkb_block *a, gmlkb_block *b) =
      a->stream < b->stream || (a->stream == b->stream && (a->bytes < b->bytes ||
      (a->bytes == b->bytes && a->address < b->address)));
    // what a search for `bytes` of a stream does not pass by
    predicate reaches{L}(gmlkb_block *x, integer stream, integer bytes) =
      x->stream > stream || (x->stream == stream && x->bytes >= bytes);
    predicate fits{L}(gmlkb_block *x, integer stream, integer bytes) =
      x->stream == stream && x->bytes >= bytes;

    axiomatic Tree {
      // definitions: what stands in a tree, and that all of it is in order and may be read
      predicate in{L}(gmlkb_block *x, gmlkb_block *tree)
        reads { b->left | gmlkb_block *b; \true }, { b->right | gmlkb_block *b; \true };
      axiom in_is{L}: \forall gmlkb_block *x, *tree;
        in(x, tree) <==> tree != \null && (x == tree || in(x, tree->left) || in(x, tree->right));
      predicate tree_of{L}(gmlkb_block *tree)
        reads { *b | gmlkb_block *b; \true };
      axiom tree_of_is{L}: \forall gmlkb_block *tree;
        tree_of(tree) <==> tree == \null || (\valid_read(tree) &&
          (\forall gmlkb_block *x; in(x, tree->left) ==> before(x, tree)) &&
          (\forall gmlkb_block *x; in(x, tree->right) ==> before(tree, x)) &&
          tree_of(tree->left) && tree_of(tree->right));
    }
*/

/*@ requires \valid_read(a) && \valid_read(b);
    assigns \nothing;
    ensures \result != 0 <==> before((gmlkb_block *)a, (gmlkb_block *)b); */
static int gmlkb_less(const gmlkb_block *a, const gmlkb_block *b);

/*@ requires tree_of(node);
    assigns \nothing;
    ensures \result == \null ==> \forall gmlkb_block *x; in(x, node) ==> !fits(x, stream, bytes);
    ensures \result != \null ==> in(\result, node) && fits(\result, stream, bytes);
    ensures \result != \null ==>
      \forall gmlkb_block *x; in(x, node) && fits(x, stream, bytes) ==> !before(x, \result); */
static gmlkb_block *gmlkb_tree_fit(gmlkb_block *node, uintptr_t stream, size_t bytes);

/*@ requires \valid(value) && \valid(peak) && \separated(value, peak);
    requires *value + bytes <= SIZE_MAX;
    assigns *value, *peak;
    ensures *value == \old(*value) + bytes && *peak == \max(\old(*peak), *value); */
static void gmlkb_add_peak(size_t *value, size_t *peak, size_t bytes);

/*@ requires \valid(out_bytes) && unit > 0;
    assigns *out_bytes;
    ensures \result != 0 <==> bytes + (unit - 1) <= SIZE_MAX;
    ensures \result == 0 ==> *out_bytes == \old(*out_bytes); */
static int gmlkb_round_up(size_t bytes, size_t unit, size_t *out_bytes);

/*@ requires \valid(bfc) && \valid(block) && \separated(bfc, block);
    assigns block->chain, bfc->spare, bfc->spare_count;
    ensures bfc->spare == block && block->chain == \old(bfc->spare);
    ensures \old(bfc->spare_count) < SIZE_MAX ==> bfc->spare_count == \old(bfc->spare_count) + 1; */
static void gmlkb_spare_give(gmlake_bfc *bfc, gmlkb_block *block);

/*@ requires \valid(bfc) && \valid(bfc->spare) && bfc->spare_count > 0;
    assigns bfc->spare, bfc->spare_count;
    ensures \result == \old(bfc->spare) && bfc->spare == \old(bfc->spare->chain);
    ensures bfc->spare_count == \old(bfc->spare_count) - 1; */
static gmlkb_block *gmlkb_spare_take(gmlake_bfc *bfc);

/*@ requires \valid_read(bfc) && \valid_read(block) && \valid_read(block->segment);
    requires bytes <= block->bytes;
    assigns \nothing;
    ensures block->segment->small ==>
      (\result != 0 <==> block->bytes - bytes >= bfc->desc.small_remainder_min);
    ensures !block->segment->small ==>
      (\result != 0 <==> block->bytes - bytes > bfc->desc.large_remainder_min); */
static int gmlkb_splits(const gmlake_bfc *bfc, const gmlkb_block *block, size_t bytes);

/*@ requires \valid(bfc) && \valid(block) && \valid(block->next);
    requires block->next->next == \null || \valid(block->next->next);
    requires \separated(bfc, block, block->next, block->next->next);
    requires block->address + block->bytes == block->next->address; // [B1]
    requires block->bytes + block->next->bytes <= SIZE_MAX;
    assigns block->bytes, block->next, block->next->next->previous, block->next->chain, bfc->spare,
      bfc->spare_count, bfc->stats.coalesce_count;
    ensures block->bytes == \old(block->bytes + block->next->bytes);
    ensures block->next == \old(block->next->next);
    ensures block->next != \null ==> block->next->previous == block;
    ensures block->address + block->bytes == \old(block->next->address + block->next->bytes);
    ensures bfc->spare == \old(block->next); */
static void gmlkb_merge(gmlake_bfc *bfc, gmlkb_block *block);

/*@ requires \valid_read(desc) && desc->large_round_bytes > 0;
    assigns \nothing;
    ensures bytes <= desc->small_bytes_max ==> \result == desc->small_segment_bytes;
    ensures desc->small_bytes_max < bytes < desc->large_request_min ==>
      \result == desc->large_segment_bytes; */
static size_t gmlkb_segment_size(const gmlake_bfc_desc *desc, size_t bytes);

/*@ requires \valid(value);
    assigns *value;
    ensures *value == (\old(*value) == 0 ? bytes : \old(*value)); */
static void gmlkb_default(size_t *value, size_t bytes);
