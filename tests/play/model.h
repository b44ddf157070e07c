/* What the lake has to answer: every second allocation that nothing disturbs ends as gmlake_query
   said just before, and gmlake_query says what gmlake_get_budget does. Include after judge.h. */
#if !defined(PLAY_MODEL_H)
#define PLAY_MODEL_H

#include "judge.h"

typedef struct forecast {
  int is_asked, is_loose; /* loose: the result alone is compared */
  gmlake_query_info said;
  gmlake_stats before;
} forecast;

static gmlake_mock_census census(void) {
  gmlake_mock_census now_there;
  gmlake_mock_get_census(mock, &now_there);
  return now_there;
}

static gmlake_stats stats(void) {
  gmlake_stats all;
  must(gmlake_get_stats(lake, &all), "gmlake_get_stats");
  return all;
}

/* A lake that has lost memory or lacks addresses, a handler, and exported memory make it a guess;
   on a device with a time of its own it may be complete by then. */
static int can_foretell(void) {
  const size_t *options = w.program->options;
  return !has_own_time() && !w.lacks_addresses && !w.fault_count && !w.host_in &&
         !options[OPT_OOM] && !options[OPT_SHARE] && !options[OPT_WINDOW] && !options[OPT_POLICY] &&
         !options[OPT_EXACT] && !stats().quarantined_bytes;
}

/* How borrowers wait, and whether anything grows behind a wait of the host, is not compared. */
static void foretell(forecast *f, const op *o, const gmlake_alloc_desc *wanted,
                     gmlake_stream stream) {
  memset(f, 0, sizeof(*f));
  if (o->one % 2 || !can_foretell()) return;
  f->before = stats();
  f->is_asked = 1;
  f->is_loose = (o->flags & FLAG_T) != 0;
  f->said.result =
      gmlake_query(lake, wanted, stream, &f->said) ? GMLAKE_ERROR_ASLEEP : f->said.result;
  judge(f->before.reserved_bytes == stats().reserved_bytes, "a question has changed memory");
  f->before = stats();
}

/* A block as large as the budget says would be served; none that is a chunk larger, where windows
   may be small and nothing is at work. */
static void judge_promise(const gmlake_budget *budget) {
  gmlake_alloc_desc wanted;
  gmlake_query_info said;
  memset(&wanted, 0, sizeof(wanted));
  if (captures() || !can_foretell()) return;
  wanted.bytes = budget->allocatable_bytes;
  judge(!wanted.bytes || (!gmlake_query(lake, &wanted, NULL, &said) && !said.result),
        "what the budget promises is not served");
  wanted.bytes += w.chunk;
  judge(desc.stitch_bytes_min || budget->pending_bytes ||
            gmlake_query(lake, &wanted, NULL, &said) || said.result,
        "the budget keeps memory back");
}

static void judge_forecast(const forecast *f, gmlake_result result) {
  gmlake_wait wait = GMLAKE_NO_WAIT;
  char rule[200];
  gmlake_stats all;
  int is_grown;
  if (!f->is_asked) return;
  all = stats();
  if (all.stream_wait_count > f->before.stream_wait_count) wait = GMLAKE_DEVICE_WAIT;
  if (all.host_wait_count > f->before.host_wait_count) wait = GMLAKE_HOST_WAIT;
  if (f->said.result && captures() && wait == GMLAKE_HOST_WAIT) return; /* it fears the worst */
  if (result && captures() && f->said.wait == GMLAKE_HOST_WAIT) return; /* the manual explains it */
  is_grown = all.state_count[3] > f->before.state_count[3];
  if (!f->said.result == !result &&
      (result || f->is_loose ||
       ((f->said.wait == wait || (is_grown && f->said.wait == GMLAKE_DEVICE_WAIT && !wait) ||
         (f->said.wait == GMLAKE_HOST_WAIT && !wait)) && /* enough is complete by now */
        (wait == GMLAKE_HOST_WAIT || !f->said.new_bytes == !is_grown))))
    return;
  (void)snprintf(rule, sizeof(rule), "foretold %s, wait %d, new %d, and it was %s, wait %d, new %d",
                 gmlake_result_name(f->said.result), (int)f->said.wait, f->said.new_bytes != 0,
                 gmlake_result_name(result), (int)wait, is_grown);
  judge(0, rule);
}

#endif /* PLAY_MODEL_H */
