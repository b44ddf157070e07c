/* What comes behind what, as the device sees it; the models include this. A line is a stream of the
   program from its creation to its end, also where the driver gives its value to another one. The
   lake reads nothing of this: it is what its steps are judged by. */

typedef struct { /* of each line so many works; 0: none */
  unsigned char at[LINES];
} Clock;

typedef struct {
  unsigned char queued[LINES]; /* how much work each line has been given */
  Clock seen[LINES];           /* its new work comes behind so much work of each other line */
  Clock host;                  /* what the host knows to be complete; what it queues comes behind */
} Device;

#define CLEAN 0
#define NO_STREAM 0

typedef struct { /* what the lake has written down of a stream, by number */
  unsigned char is_used, is_capture, is_forgotten, is_dirty;
  unsigned char value, line; /* the line: also what stream_id tells, which no other stream has */
  unsigned char born, epoch, done, fence_count, capture, uses;
  unsigned char fence[FENCES];   /* their epochs, */
  Clock event[FENCES];           /* and what they stand for */
  unsigned char waited[NUMBERS]; /* the last epoch of each that it was made to wait for */
} Stream;

static void join(Clock *to, const Clock *from) {
  int t;
  for (t = 0; t < LINES; t++)
    if (to->at[t] < from->at[t]) to->at[t] = from->at[t];
}

/* All that a line has been given so far: what an event that is recorded on it now stands for. */
static Clock now_of(const Device *d, int line) {
  Clock all = d->seen[line];
  all.at[line] = d->queued[line];
  return all;
}

/* Whether all these uses are complete, and the host knows it. */
static int is_over(const Device *d, const Clock *uses) {
  int t;
  for (t = 0; t < LINES; t++)
    if (uses->at[t] > d->host.at[t]) return 0;
  return 1;
}

/* Whether new work of the line comes behind all these uses. */
static int is_behind(const Device *d, const Clock *uses, int line) {
  int t;
  for (t = 0; t < LINES; t++)
    if (t != line && uses->at[t] > d->seen[line].at[t] && uses->at[t] > d->host.at[t]) return 0;
  return 1;
}

/* The line's last work uses memory, and comes behind all former uses, so these need not be kept. */
static void use_next(const Device *d, Clock *uses, int line) {
  memset(uses, 0, sizeof(*uses));
  uses->at[line] = d->queued[line];
}

static void must(int is_so, const char *rule) {
  if (!is_so) Uerror((char *)rule);
}
