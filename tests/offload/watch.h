/* A mock whose operators are watched: how many are under way. One at a time. */
#if !defined(OFFLOAD_WATCH_H)
#define OFFLOAD_WATCH_H

#define WATCHED 64

typedef struct watched_op { /* under way, if it has a stream */
  void *stream, *event;     /* event: behind it */
} watched_op;

static struct watch {
  gmlake_offload_backend table; /* the mock's but for launch, event_record and event_done */
  const gmlake_offload_backend *mock;
  watched_op ops[WATCHED];
  uint64_t under_way, most_under_way;
} watch;

static int watch_launch(void *user, const gmlake_offload_launch *launch, void *stream) {
  size_t i, room = WATCHED;
  for (i = 0; i < WATCHED; i++)
    if (!watch.ops[i].stream) room = i;
  if (room == WATCHED) abort();
  watch.ops[room].stream = stream;
  watch.ops[room].event = NULL;
  if (++watch.under_way > watch.most_under_way) watch.most_under_way = watch.under_way;
  return watch.mock->launch(user, launch, stream);
}

static int watch_record(void *user, void *event, void *stream) {
  size_t i;
  for (i = 0; i < WATCHED; i++)
    if (watch.ops[i].stream == stream && !watch.ops[i].event) watch.ops[i].event = event;
  return watch.mock->event_record(user, event, stream);
}

static int watch_done(void *user, void *event, int *out_done) {
  const int failed = watch.mock->event_done(user, event, out_done);
  size_t i;
  for (i = 0; !failed && *out_done && i < WATCHED; i++) {
    if (!watch.ops[i].stream || watch.ops[i].event != event) continue;
    watch.ops[i].stream = NULL;
    watch.under_way--;
  }
  return failed;
}

/* The backend to be used instead of the mock. */
static const gmlake_offload_backend *watched(const gmlake_offload_backend *mock) {
  memset(&watch, 0, sizeof watch);
  watch.mock = mock;
  watch.table = *mock;
  watch.table.launch = watch_launch;
  watch.table.event_record = watch_record;
  watch.table.event_done = watch_done;
  return &watch.table;
}

#endif /* OFFLOAD_WATCH_H */
