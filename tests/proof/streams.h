/* Steps of gmlake.h, >>tags and >>streams, that models share. A model defines World before, with
   the fields d, streams, used_count, capture_count, is_ending, answers, wait_for and wait_epoch,
   and `touch`, which judges a driver's call on a number's stream. A function here is that of
   gmlake.h whose name ends like its own. */

static int is_complete(const Stream *s) { return !s->is_dirty && s->done + 1 == s->epoch; }

static int tag_done(int stream, int epoch) {
  return stream == CLEAN || (stream < NUMBERS && w.streams[stream].done >= epoch);
}

/* Whether the stream may be destroyed without the lake being told. */
static int may_end(const Stream *s) { return w.is_ending; }

/* Whether only a wait for the whole device completes the open epoch. */
static int is_out(const Stream *s) {
  return s->is_dirty && !s->capture && (s->is_forgotten || may_end(s));
}

/* The first fence that covers the epoch; fence_count: none does. */
static int covering(const Stream *s, int epoch) {
  int i = 0;
  while (i < s->fence_count && s->fence[i] < epoch) i++;
  return i;
}

static void fences_move(Stream *s, int from, int to) {
  memmove(&s->fence[to], &s->fence[from], (size_t)(s->fence_count - from));
  memmove(&s->event[to], &s->event[from], (size_t)(s->fence_count - from) * sizeof(Clock));
  s->fence_count = (unsigned char)(s->fence_count - from + to);
  for (from = s->fence_count; from < FENCES; from++) { /* so that equal states look alike */
    s->fence[from] = 0;
    memset(&s->event[from], 0, sizeof(Clock));
  }
}

static void stream_complete(Stream *s, int epoch) {
  int i = 0;
  while (i < s->fence_count && s->fence[i] <= epoch) i++;
  fences_move(s, i, 0);
  if (s->done < epoch) s->done = (unsigned char)epoch;
  if (s->is_forgotten && is_complete(s)) w.used_count--;
}

/* The stream is gone. If it is dirty, it is lost; else its number will serve again. */
static void stream_forget(Stream *s) {
  must(!s->is_forgotten, "a stream is forgotten twice");
  s->is_forgotten = 1;
  if (is_complete(s)) w.used_count--;
}

static void stream_poll(int n) {
  Stream *s = &w.streams[n];
  for (; s->fence_count && w.answers[n]; w.answers[n]--) {
    join(&w.d.host, &s->event[0]);
    stream_complete(s, s->fence[0]);
  }
}

/* Gives up every second of the two fences. */
static void stream_thin(Stream *s) {
  s->fence[0] = s->fence[1];
  s->event[0] = s->event[1];
  fences_move(s, 2, 1);
}

/* Closes the open epoch by an event. 0: it stays open. */
static int stream_fence(int n) {
  Stream *s = &w.streams[n];
  if (!s->is_dirty || s->is_forgotten) return 1;
  if (s->capture) return 0;
  if (s->fence_count == FENCES) stream_poll(n);
  if (s->fence_count == FENCES) stream_thin(s);
  touch(n);
  s->event[s->fence_count] = now_of(&w.d, s->line);
  s->fence[s->fence_count++] = s->epoch++;
  s->is_dirty = 0;
  return 1;
}

/* The same for a call that does not name the stream [F8]. */
static int stream_close(int n) {
  const Stream *s = &w.streams[n];
  if (s->is_dirty && may_end(s)) return 0;
  return stream_fence(n);
}

/* Ends a wait for a fence that was taken off. */
static void stream_return_fence(Stream *s, int epoch, const Clock *event, int is_done) {
  int place = 0;
  if (is_done && s->done < epoch) stream_complete(s, epoch);
  if (s->done >= epoch) return;
  if (s->fence_count == FENCES) stream_thin(s);
  while (place < s->fence_count && s->fence[place] < epoch) place++;
  fences_move(s, place, place + 1);
  s->fence[place] = (unsigned char)epoch;
  s->event[place] = *event;
}

/* A number that may serve a new stream, or a capture or loan; 0: there is none. */
static int stream_idle(int is_capture) {
  int n;
  for (n = 1; n < NUMBERS; n++) {
    const Stream *s = &w.streams[n];
    if (!s->is_used || (!is_capture && s->is_forgotten && is_complete(s))) return n;
  }
  return 0;
}

static int stream_add(int value, int line, int is_capture) {
  const int n = stream_idle(is_capture);
  Stream *s = &w.streams[n];
  if (!n) return 0;
  if (!s->epoch) s->epoch = 1;
  s->is_dirty = s->is_forgotten = s->uses = s->capture =
      0; /* fences it has none; epochs go on [F5] */
  memset(s->waited, 0, NUMBERS);
  s->value = (unsigned char)value;
  s->line = (unsigned char)line;
  s->born++;
  s->is_used = 1;
  s->is_capture = (unsigned char)is_capture;
  w.used_count += !is_capture;
  return n;
}

/* Makes work queued on `waiter` from now on start after this work, if it has to. 0: it cannot. */
static int wait_for_work(int waiter, int stream, int epoch) {
  Stream *s = &w.streams[stream], *by = &w.streams[waiter];
  int i;
  if (stream == waiter || tag_done(stream, epoch) || by->waited[stream] >= epoch) return 1;
  if (by->capture || stream >= NUMBERS) return 0;
  if (covering(s, epoch) == s->fence_count) (void)stream_close(stream);
  i = covering(s, epoch);
  if (i == s->fence_count) return 0;
  touch(waiter);
  join(&w.d.seen[by->line], &s->event[i]);
  by->waited[stream] = s->fence[i];
  return 1;
}

/* What holds of the streams between two calls. */
static void check_streams(void) {
  int n, used = 0;
  for (n = 1; n < NUMBERS; n++) {
    const Stream *s = &w.streams[n];
    used += s->is_used && !s->is_capture && !(s->is_forgotten && is_complete(s));
    must(!s->is_used || s->done < s->epoch, "[F1] a stream's open epoch is complete");
    must(s->fence_count < 2 || s->fence[0] < s->fence[1], "[F2] fences are not in order");
    must(!s->fence_count || (s->done < s->fence[0] && s->fence[s->fence_count - 1] < s->epoch),
         "[F2] a fence is not between the epochs that are complete and the open one");
  }
  must(w.used_count == used, "used_count counts a stream twice, or not at all");
}

/* [F4] Whether work is complete, or something will tell when it is; the host's fence, too. */
static int is_covered(int stream, int epoch) {
  const Stream *s = &w.streams[stream];
  return tag_done(stream, epoch) || covering(s, epoch) < s->fence_count || s->is_dirty ||
         (w.wait_for == stream && w.wait_epoch >= epoch);
}
