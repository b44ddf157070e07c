/* A mock whose operators are watched: how many are under way, on which streams, and where their
   tensors are. One at a time. */
#if !defined(OFFLOAD_WATCH_H)
#define OFFLOAD_WATCH_H

#define WATCHED 64

static struct watch {
  gmlake_offload_backend table; /* the mock's but for launch and wait */
  const gmlake_offload_backend *mock;
  uint64_t tokens[WATCHED], last; /* of what is under way; 0: nothing */
  uint32_t streams[WATCHED], devices[WATCHED];
  uint64_t under_way, most_under_way, most_stream;
  size_t clashes;    /* launches on a device and a stream that had one */
  void *at[WATCHED]; /* by tensor, of the first job: where an operator used it last */
  size_t moves;      /* uses elsewhere than before */
  int lie;           /* what wait says instead of the truth */
} watch;

static void watch_place(uint32_t id, void *ptr) {
  if (id >= WATCHED) return;
  watch.moves += watch.at[id] != NULL && watch.at[id] != ptr;
  watch.at[id] = ptr;
}

static int watch_launch(void *user, const gmlake_offload_launch *launch, uint64_t token) {
  size_t i, room = WATCHED;
  for (i = 0; i < WATCHED; i++) {
    if (!watch.tokens[i]) room = i;
    watch.clashes += watch.tokens[i] && watch.streams[i] == launch->stream &&
                     watch.devices[i] == launch->desc.device;
  }
  if (room == WATCHED) abort();
  watch.tokens[room] = token + 1;
  watch.streams[room] = launch->stream;
  watch.devices[room] = launch->desc.device;
  if (launch->stream > watch.most_stream) watch.most_stream = launch->stream;
  if (++watch.under_way > watch.most_under_way) watch.most_under_way = watch.under_way;
  for (i = 0; launch->job == 0 && i < launch->desc.read_count; i++)
    watch_place(launch->desc.reads[i], launch->reads[i]);
  for (i = 0; launch->job == 0 && i < launch->desc.write_count; i++)
    watch_place(launch->desc.writes[i], launch->writes[i]);
  return watch.mock->launch(user, launch, token);
}

static int watch_wait(void *user, uint64_t *out_token) {
  const uint64_t last = watch.last;
  const int failed = watch.mock->wait(user, out_token);
  size_t i;
  for (i = 0; !failed && i < WATCHED; i++) {
    if (watch.tokens[i] != *out_token + 1) continue;
    watch.tokens[i] = 0;
    watch.under_way--;
  }
  watch.last = *out_token;
  if (watch.lie == 1) *out_token = last;               /* it has ended before */
  if (watch.lie == 2) *out_token ^= (uint64_t)1 << 32; /* on another stream */
  if (watch.lie == 3) *out_token = 5;                  /* it has not begun */
  if (watch.lie == 4) *out_token = UINT64_MAX;         /* no node */
  if (watch.lie == 5) *out_token |= (uint64_t)7 << 60; /* no stream */
  return failed;
}

/* The backend to be used instead of the mock. */
static const gmlake_offload_backend *watched(const gmlake_offload_backend *mock) {
  memset(&watch, 0, sizeof watch);
  watch.mock = mock;
  watch.table = *mock;
  watch.table.launch = watch_launch;
  watch.table.wait = watch_wait;
  return &watch.table;
}

#endif /* OFFLOAD_WATCH_H */
