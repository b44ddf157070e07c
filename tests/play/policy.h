/* With the option `policy` the lake asks a policy. The word `a` says what it answers from then on:
   the first plan of its letters that can be made, else the built-in policy decides. All plans can
   be carried out, but for those of x and E. The words `plan` and `drop` say an answer piece by
   piece. Every view that the lake shows is judged: what is in it has to be free, and served without
   a wait. Include after observe.h. */
#if !defined(PLAY_POLICY_H)
#define PLAY_POLICY_H

#include "observe.h"

#include "policy_paper.h"

/* Of the option: which functions there are, or that the policy is the one of the paper. */
enum { CHOOSES = 1, EVICTS = 2, COALESCES = 4, PAPER = 8 };

#define QUESTIONS 4 /* of which it is known what was shown */
#define SHOWN 48    /* blocks of a view, and windows, that are compared */

static struct asked {
  unsigned char letters[ANSWERS]; /* places in answer_letters + 1, 0: no more */
  unsigned flags;
  uint64_t random;   /* 0: always the first choice */
  uint64_t number;   /* the request that was asked about last, */
  unsigned times;    /* and how many times */
  int was_wrong;     /* an answer of this operation was, */
  int may_be_wrong;  /* or may have been: where two ranges of addresses touch */
  const char *plans; /* text of the word plan, and of drop; NULL: there was none */
  const char *drops;
  int is_looking;        /* the view alone is of interest: the request is to be refused */
  size_t plan_questions; /* since the last plan; the others since the last mark */
  size_t choose_count, evict_count, coalesce_count;
  size_t evict_bytes;   /* as evict was told last */
  gmlake_policy policy; /* the table */
} asked;

/* What the policy was shown last, and by each question since the last plan. */
static struct view {
  size_t block_count, window_count;
  gmlake_piece blocks[SHOWN];
  gmlake_window_info windows[SHOWN];
} views[1 + QUESTIONS];

static gmlake_paper paper; /* its settings */

typedef struct wish { /* what a plan is made from */
  const gmlake_view *view;
  const gmlake_request *request;
  gmlake_plan *plan;
  size_t bytes; /* rounded */
  int may_stitch, may_grow;
} wish;

static size_t pick(size_t count) {
  if (!asked.random || count < 2) return 0;
  asked.random = asked.random * 6364136223846793005u + 1442695040888963407u;
  return (size_t)(asked.random >> 33) % count;
}

static uint64_t up(uint64_t at, uint64_t unit) { return (at + unit - 1) / unit * unit; }
static uint64_t home_of(const gmlake_piece *p) { return (uint64_t)(uintptr_t)p->home; }
static uint64_t end_of(const gmlake_piece *p) { return home_of(p) + p->bytes; }

static void add_piece(wish *x, uint64_t home, size_t bytes) {
  gmlake_piece *p = &x->plan->pieces[x->plan->piece_count++];
  p->home = (void *)(uintptr_t)home;
  p->bytes = bytes;
}

/* ---- Plans ----------------------------------------------------------------------------------- */

/* A part of a block, or of several side by side. */
static int plan_piece(wish *x, int keeps_former) {
  const gmlake_piece *b = x->view->blocks;
  const size_t count = x->view->block_count, first = pick(count);
  const size_t unit = x->request->flags & GMLAKE_EXCLUSIVE ? x->view->chunk_bytes : GRAIN;
  const size_t align = x->request->alignment > unit ? x->request->alignment : unit;
  size_t i, n;
  for (n = 0; n < count; n++) {
    const size_t at = (first + n) % count;
    uint64_t home = up(home_of(&b[at]), align), end = end_of(&b[at]);
    size_t bytes = x->bytes;
    for (i = at + 1; !keeps_former && i < count && home_of(&b[i]) == end && !pick(4); i++) {
      end = end_of(&b[i]);
      asked.may_be_wrong = 1;
    }
    if (end < home || end - home < bytes) continue;
    home += pick((size_t)(end - home - bytes) / align + 1) * (keeps_former ? 0 : align);
    bytes += pick((size_t)(end - home - bytes) / unit + 1) / 2 * unit;
    if (keeps_former && (home != home_of(&b[at]) || (home + bytes) % x->view->chunk_bytes ||
                         home + bytes >= end_of(&b[at])))
      continue;
    add_piece(x, home, bytes);
    x->plan->state = 1 + (unsigned)pick(2);
    x->plan->keeps_former = keeps_former;
    return 1;
  }
  return 0;
}

static int plan_window(wish *x) {
  const size_t count = x->view->window_count, first = pick(count);
  size_t n;
  for (n = 0; n < count; n++) {
    const gmlake_window_info *window = &x->view->windows[(first + n) % count];
    if (!window->is_free || window->bytes < x->request->bytes) continue;
    x->plan->window = window->number;
    x->plan->state = 1 + (unsigned)pick(2);
    return 1;
  }
  return 0;
}

static int plan_growth(wish *x, size_t bytes) {
  if (!x->may_grow) return 0;
  x->plan->grow_bytes =
      (size_t)up(bytes, x->view->chunk_bytes) + pick(8) / 7 * x->view->chunk_bytes;
  x->plan->state = 4;
  return 1;
}

/* The last chunk's part of a block that begins inside it: what a window may begin with. */
static size_t add_tail(wish *x) {
  const gmlake_piece *b = &x->view->blocks[pick(x->view->block_count)];
  const uint64_t home = up(home_of(b), x->request->alignment);
  const uint64_t end = up(home_of(b), x->view->chunk_bytes);
  if (home >= end || end > end_of(b) || end - home >= x->bytes) return 0;
  add_piece(x, home, (size_t)(end - home));
  return (size_t)(end - home);
}

/* Whether a range ends in the chunk that the first piece lies in. */
static int collides(const wish *x, uint64_t end) {
  const size_t chunk = x->view->chunk_bytes;
  return x->plan->piece_count && (end - 1) / chunk == home_of(&x->plan->pieces[0]) / chunk;
}

/* Whole chunks of blocks, the last one first or any one, until there are enough; the last piece is
   cut. With `grows` what is missing is new. */
static int plan_stitch(wish *x, int grows) {
  const size_t count = x->view->block_count, chunk = x->view->chunk_bytes;
  const size_t first = asked.random ? pick(count) : count - 1, step = pick(2) ? 1 : count - 1;
  size_t have, at, n;
  if (!count || !x->may_stitch) return 0;
  have = x->request->flags & GMLAKE_EXCLUSIVE || !pick(2) ? 0 : add_tail(x);
  for (n = 0, at = first; n < count && have < x->bytes; n++, at = (at + step) % count) {
    const gmlake_piece *b = &x->view->blocks[at];
    const uint64_t home = up(home_of(b), chunk);
    size_t bytes = end_of(b) > home ? (size_t)(end_of(b) - home) : 0;
    if (bytes > x->bytes - have) bytes = x->bytes - have;
    if (bytes < x->bytes - have || collides(x, home + bytes)) bytes = bytes / chunk * chunk;
    if (!bytes) continue;
    add_piece(x, home, bytes);
    have += bytes;
    if (grows && have < x->bytes && !pick(3)) break;
  }
  if (have < x->bytes && (!grows || !plan_growth(x, x->bytes - have))) return 0;
  if (!x->plan->grow_bytes) x->plan->state = x->plan->piece_count > 1 ? 3 : 1;
  return x->plan->piece_count != 0;
}

/* Breaks a rule that a piece has to keep; 0: there is none to break. */
static int spoil_piece(wish *x, size_t how) {
  gmlake_plan *plan = x->plan;
  gmlake_piece *first = plan->pieces;
  if (!plan->piece_count) return 0;
  switch (how) {
  case 0:
    first->bytes++;
    return 1;
  case 1:
    first->bytes = 0;
    return 1;
  case 2:
    first->home = NULL;
    return 1;
  case 3: /* of a block that lives, or nowhere */
    first->home = (void *)(uintptr_t)(w.blocks[0].id ? w.blocks[0].at : GRAIN);
    return 1;
  case 4:
    first[plan->piece_count++] = *first;
    plan->state = plan->grow_bytes ? 4 : 3;
    return 1;
  default:
    if (plan->piece_count > 1 || plan->grow_bytes || x->request->bytes <= GRAIN) return 0;
    first->bytes = GRAIN;
    return 1;
  }
}

/* A plan that no lake may carry out, whatever it was before. */
static int plan_wrongly(wish *x) {
  gmlake_plan *plan = x->plan;
  const gmlake_piece *first = plan->pieces;
  size_t how, parts;
  if (!plan_piece(x, 0) && !plan_window(x)) (void)plan_growth(x, x->bytes);
  how = pick(12);
  parts = plan->piece_count + (plan->grow_bytes != 0);
  asked.was_wrong = 1;
  if (!plan->state) plan->state = 1;
  if (how < 6 && spoil_piece(x, how)) return 1;
  if (how == 6)
    plan->state = 6;
  else if (how == 7)
    plan->piece_count = plan->piece_capacity + 1;
  else if (how == 8)
    plan->grow_bytes = x->view->chunk_bytes + GRAIN;
  else if (how == 9)
    plan->piece_count = plan->grow_bytes = plan->window = 0;
  else if (how == 10 && (plan->window || plan->grow_bytes || parts > 1 || !parts ||
                         end_of(first) % x->view->chunk_bytes))
    plan->keeps_former = 1;
  else if (how == 11 && !plan->window)
    plan->pieces = (gmlake_piece *)(void *)plan;
  else
    plan->window = UINT64_MAX;
  return 1;
}

static int plan_by(unsigned char letter, wish *x) {
  switch (letter) {
  case 'p':
    return plan_piece(x, 0);
  case 'k':
    return plan_piece(x, 1);
  case 'r':
    return plan_window(x);
  case 's':
    return plan_stitch(x, 0) && x->plan->piece_count > 1;
  case 'b':
    return plan_stitch(x, 1) && x->plan->grow_bytes;
  case 'g':
    return plan_growth(x, x->bytes);
  case 'x':
    return plan_wrongly(x);
  default: /* once, twice, always */
    x->plan->state = 5;
    return asked.times < (letter == '4' ? 2u : letter == '5' ? 3u : UINT32_MAX);
  }
}

/* ---- Plans that a word says, piece by piece -------------------------------------------------- */

static void begin_text(const char *text) {
  reading_unit = unit_of(w.program);
  reader.at = text;
  reader.is_wrong = 0;
}

/* A text ends like a word; a plan, too, where the next one begins. */
static void end_text(void) {
  judge(!reader.is_wrong && strchr("; ]", *reader.at), "a text that cannot be read");
}

/* An address: so far from the begin of a block, or of what it was last; H is the host's, 0 none. */
static uint64_t read_home(void) {
  static char of_the_host;
  uint64_t home;
  if (reads('0')) return 0;
  home = reads('H') ? (uint64_t)(uintptr_t)&of_the_host / GRAIN * GRAIN : w.starts[read_block()];
  if (reads('+')) return home + read_size();
  return reads('-') ? home - read_size() : home;
}

/* What a part of a plan says, E last. Of pieces there is room for so many as the lake has asked
   for. */
static void read_part(gmlake_plan *plan, size_t *named) {
  gmlake_piece piece;
  if (reads('G')) {
    plan->grow_bytes = read_size();
  } else if (reads('W')) {
    plan->window = read_number();
  } else if (reads('N')) {
    plan->piece_count = read_number();
  } else if (reads('E')) {
    plan->pieces = (gmlake_piece *)(void *)plan;
  } else if (reads('K')) {
    plan->keeps_former = 1;
  } else {
    piece.home = (void *)(uintptr_t)read_home();
    reader.is_wrong |= !reads('=');
    piece.bytes = read_size();
    if (*named < plan->piece_capacity) plan->pieces[*named] = piece;
    plan->piece_count = ++*named;
  }
}

/* The answer to this question: the last plan is for all behind it, too. */
static void plan_as_said(gmlake_plan *plan) {
  const char *at = asked.plans, *end = at;
  size_t n, named = 0;
  for (n = 1; n < asked.plan_questions; n++) {
    while (!strchr("; ]", *end)) end++;
    if (*end == ';') at = ++end;
  }
  begin_text(at);
  plan->state = (unsigned)read_number();
  while (reads(',')) read_part(plan, &named);
  end_text();
}

/* Numbers of windows; N says how many there are, whatever is named. */
static size_t drop_as_said(size_t window_count, uint64_t *out_windows) {
  size_t named = 0, count = 0;
  begin_text(asked.drops);
  do {
    if (reads('N')) {
      count = read_number();
    } else {
      const uint64_t number = read_number();
      if (named < window_count) out_windows[named] = number;
      count = ++named;
    }
  } while (reads(','));
  end_text();
  return count;
}

/* The paper's settings: the limit and how it is read, StitchFree's threshold, what part of a
   request is reused, and what the authors' code does. */
static void set_paper(const char *text) {
  begin_text(text);
  do {
    if (reads('L')) paper.limit_bytes = read_size();
    if (reads('R')) paper.limit_reading = (gmlake_paper_limit)read_number();
    if (reads('M')) paper.stitched_bytes_max = read_size();
    if (reads('P')) paper.reuse_percent = (unsigned)read_number();
    if (reads('s')) paper.keeps_former = 0;
    if (reads('c')) paper.coalesces = 1;
    if (reads('b')) paper.takes_block_first = 1;
    if (reads('w')) paper.allocates_whole = 1;
    if (reads('l')) paper.stitches_late = 1;
  } while (reads(','));
  end_text();
}

/* ---- What the lake shows --------------------------------------------------------------------- */

/* As the word that compares it would say it. */
static void trace_view(const struct view *seen) {
  size_t i, n;
  if (!is_traced) return;
  trace("  the policy is shown");
  for (i = 0; i < seen->block_count && i < SHOWN; i++) {
    for (n = 0; n < NAMES && w.starts[n] != home_of(&seen->blocks[i]);) n++;
    trace("%c%c.%d=%zu", i ? ',' : ' ', (int)('a' + n % 26), (int)n / 26, seen->blocks[i].bytes);
  }
  for (i = 0; i < seen->window_count && i < SHOWN; i++)
    trace("%c%d%s%s", i ? ',' : ';', (int)seen->windows[i].number,
          seen->windows[i].is_free ? "f" : "", seen->windows[i].is_complete ? "c" : "");
  trace("\n");
}

static void note_view(const gmlake_view *view, struct view *to) {
  const size_t blocks = view->block_count < SHOWN ? view->block_count : SHOWN;
  const size_t windows = view->window_count < SHOWN ? view->window_count : SHOWN;
  memset(to, 0, sizeof(*to));
  to->block_count = view->block_count;
  to->window_count = view->window_count;
  memcpy(to->blocks, view->blocks, blocks * sizeof(gmlake_piece));
  memcpy(to->windows, view->windows, windows * sizeof(gmlake_window_info));
  trace_view(to);
}

/* NUMBER, f if it is free, c if it is complete, =BYTES/MAPPED/PIECES if they are said. */
static int is_window_so(const gmlake_window_info *window) {
  int is_so = window->number == read_number();
  is_so &= window->is_free == reads('f');
  is_so &= window->is_complete == reads('c');
  if (!reads('=')) return is_so;
  is_so &= window->bytes == read_size();
  reader.is_wrong |= !reads('/');
  is_so &= window->mapped_bytes == read_size();
  reader.is_wrong |= !reads('/');
  return is_so & (window->piece_count == read_number());
}

/* Whether the policy was shown these blocks, * any, and behind a ; these windows, in this order. 2:
   in front of them: by the second question since the plan. */
static int is_shown(const char *text) {
  const struct view *seen = views;
  int is_so = 1;
  size_t count = 0;
  begin_text(text);
  if (*reader.at >= '1' && *reader.at <= '0' + QUESTIONS) {
    seen += read_number();
    reader.is_wrong |= !reads(':');
  }
  if (reads('*'))
    count = seen->block_count;
  else
    while (!strchr("; ]", *reader.at) && is_so) {
      const gmlake_piece *piece = &seen->blocks[count];
      is_so = count < seen->block_count && count < SHOWN && home_of(piece) == read_home();
      count++;
      reader.is_wrong |= !reads('=');
      is_so = is_so && piece->bytes == read_size();
      (void)reads(',');
    }
  is_so = is_so && count == seen->block_count;
  if (is_so && reads(';')) {
    for (count = 0; !strchr(" ]", *reader.at) && is_so; (void)reads(',')) {
      is_so = count < seen->window_count && count < SHOWN && is_window_so(&seen->windows[count]);
      count++;
    }
    is_so = is_so && count == seen->window_count;
  }
  if (is_so) end_text();
  return is_so;
}

/* The request is the one that the program makes. */
static void judge_request(const gmlake_request *request, int from) {
  const op *o = &w.program->ops[w.at];
  size_t least = GRAIN;
  int wanted;
  if (w.at >= w.program->count || o->verb != '+') return;
  if (o->flags & FLAG_X) least = w.pools[from].chunk;
  judge(request->bytes == o->bytes, "a request's bytes");
  judge(!(request->flags & GMLAKE_EXCLUSIVE) == !(o->flags & FLAG_X) &&
            !(request->flags & GMLAKE_NO_STITCH) == !(o->flags & FLAG_S) &&
            !(request->flags & GMLAKE_NO_GROW) == !(o->flags & FLAG_G),
        "a request's flags");
  judge(request->stream == (w.named == NOBODY ? GMLAKE_STREAM_NONE : w.lines[w.named].value),
        "a request's stream");
  if (o->flags & FLAG_T) return; /* the lender's pool has chunks of its own */
  judge(request->alignment == (o->align > least ? o->align : least), "a request's alignment");
  wanted = o->two % (POOLS + 1);
  if (!w.pools[wanted].value) wanted = 0;
  if (w.named >= 0 && w.lines[w.named].graph) wanted = w.of_serial[w.lines[w.named].graph]->pool;
  judge(from == wanted, "a request's pool");
}

static void must_refuse(gmlake_result result, const char *rule) {
  judge(result == GMLAKE_ERROR_INVALID_ARGUMENT, rule);
}

/* Calls of a policy about one block, pool or buffer, where there is one. */
static void try_restricted_on(void *live, gmlake_pool *from, gmlake_buffer *of) {
  const gmlake_stream unknown = (gmlake_stream)(uintptr_t)8;
  if (live) {
    must_refuse(gmlake_free(lake, live, NULL), "gmlake_free in a policy");
    must_refuse(gmlake_record_stream(lake, live, NULL), "gmlake_record_stream in a policy");
  }
  if (from) {
    must_refuse(gmlake_pool_destroy(lake, from), "gmlake_pool_destroy in a policy");
    must_refuse(gmlake_capture_begin(lake, unknown, from), "gmlake_capture_begin in a policy");
  }
  if (!of) return;
  must_refuse(gmlake_buffer_resize(lake, of, UNIT, NULL), "gmlake_buffer_resize in a policy");
  must_refuse(gmlake_buffer_resize(lake, of, 0, NULL), "gmlake_buffer_resize in a policy");
  must_refuse(gmlake_buffer_destroy(lake, of, NULL), "gmlake_buffer_destroy in a policy");
}

/* Calls that a policy may not make. Questions it may ask; the judge does. */
static void try_restricted(void) {
  const int held = w.locks_held;
  gmlake_buffer_desc wanted;
  gmlake_buffer *buffer = NULL;
  gmlake_pool *pool = NULL;
  gmlake_budget budget;
  gmlake_error_info error;
  void *ptr = &ptr;
  size_t released = 1;
  block *b = live_next(NULL);
  if (w.fatal || w.is_lost) return;
  memset(&wanted, 0, sizeof(wanted));
  wanted.max_bytes = w.chunk;
  must_refuse(gmlake_alloc(lake, GRAIN, NULL, &ptr), "gmlake_alloc in a policy");
  must_refuse(gmlake_alloc(lake, 0, NULL, &ptr), "gmlake_alloc of nothing in a policy");
  must_refuse(gmlake_trim(lake, 0, &released), "gmlake_trim in a policy");
  must_refuse(gmlake_forget_stream(lake, NULL), "gmlake_forget_stream in a policy");
  must_refuse(gmlake_pool_create(lake, NULL, &pool), "gmlake_pool_create in a policy");
  must_refuse(gmlake_buffer_create(lake, &wanted, &buffer), "gmlake_buffer_create in a policy");
  must_refuse(gmlake_get_budget(lake, &budget), "gmlake_get_budget in a policy");
  must_refuse(gmlake_capture_end(lake, (gmlake_stream)(uintptr_t)8), "gmlake_capture_end there");
  must_refuse(gmlake_check(lake), "gmlake_check in a policy");
  must(gmlake_free(lake, NULL, NULL), "gmlake_free of nothing in a policy");
  must(gmlake_get_last_error(lake, &error), "gmlake_get_last_error in a policy");
  judge(!ptr && !released && !strcmp(error.text, GMLK_POLICY_CALLS), "a policy is told why");
  try_restricted_on(b && b < w.blocks + NAMES ? (void *)(uintptr_t)b->at : NULL, w.pools[1].value,
                    w.buffers[0].value);
  judge(w.locks_held == held, "a policy's call leaves other locks");
}

static void judge_view(const gmlake_view *view, const gmlake_request *request) {
  static const moment nothing;
  const int from = pool_of_value(request->pool), on = w.named;
  const int number = on >= 0 ? w.lines[on].graph : 0;
  const moment *own = number ? &w.pools[from].recalled : on >= 0 ? &w.lines[on].now : &nothing;
  size_t i;
  judge(view->chunk_bytes == w.pools[from].chunk, "a view's chunk_bytes");
  judge(request->bytes && request->alignment >= GRAIN, "a request's figures");
  judge_request(request, from);
  judge(!desc.observer.fn || is_next(request->number) || (told.has_admitted && !request->number),
        "a request's number");
  for (i = 0; i < view->block_count; i++) {
    range r;
    map *m = NULL;
    const grain *g;
    r.at = home_of(&view->blocks[i]);
    r.bytes = view->blocks[i].bytes;
    judge(r.bytes && (r.at | r.bytes) % GRAIN == 0, "a view's block is no grains");
    judge(!i || end_of(&view->blocks[i - 1]) <= r.at || w.capacity > unit_chunks * w.chunk / 2,
          "a view's blocks are not in order");
    while ((g = next_grain(&r, &m))) judge_grain(g, own, number, from, 0);
  }
  for (i = 0; i < view->window_count; i++) {
    const gmlake_window_info *info = &view->windows[i];
    judge(info->number && info->bytes && info->bytes <= info->mapped_bytes && info->piece_count,
          "a view's window");
  }
  judge(view->window_count <= stats().window_count, "a view has more windows than there are");
  judge(view->stitch_bytes_min == desc.stitch_bytes_min &&
            view->stitched_bytes_max == lake->desc.stitched_bytes_max &&
            view->reserved_bytes == stats().reserved_bytes &&
            view->stitched_bytes == stats().stitched_bytes,
        "a view's figures");
}

/* ---- The policy ------------------------------------------------------------------------------ */

static void on_choose(void *user, const gmlake_view *view, const gmlake_request *request,
                      gmlake_plan *plan) {
  const size_t most =
      desc.arena_bytes && desc.arena_bytes < w.capacity ? desc.arena_bytes : w.capacity;
  const gmlake_plan empty = *plan;
  gmlake_plan blank;
  wish x;
  size_t i;
  judge_locks(0, 1, "choose is not asked as a planner");
  memset(&blank, 0, sizeof(blank));
  blank.pieces = plan->pieces;
  blank.piece_capacity = view->block_count + 1;
  judge(user == &asked && !memcmp(&blank, &empty, sizeof(blank)), "a plan to be made is not blank");
  note_view(view, &views[0]);
  if (asked.is_looking) {
    plan->state = 3;
    return;
  }
  meddle_in(ON_CHOOSE);
  judge_view(view, request);
  if (w.at % 8 == 0) try_restricted();
  asked.choose_count++;
  asked.plan_questions++;
  if (asked.plan_questions <= QUESTIONS) views[asked.plan_questions] = views[0];
  if (asked.plans) {
    plan_as_said(plan);
    return;
  }
  if (asked.number != request->number) asked.times = 0;
  asked.number = request->number;
  asked.times++;
  x.view = view;
  x.request = request;
  x.plan = plan;
  x.bytes =
      (size_t)up(request->bytes, request->flags & GMLAKE_EXCLUSIVE ? view->chunk_bytes : GRAIN);
  x.may_stitch = !(request->flags & GMLAKE_NO_STITCH) && request->bytes >= view->stitch_bytes_min;
  x.may_grow = !(request->flags & GMLAKE_NO_GROW) && up(x.bytes, view->chunk_bytes) <= most;
  for (i = 0; i < ANSWERS && asked.letters[i]; i++) {
    if (plan_by((unsigned char)answer_letters[asked.letters[i] - 1], &x)) return;
    *plan = empty;
  }
}

/* Numbers that name no window whose work is complete, or one twice, or too many. */
static size_t evict_wrongly(const gmlake_view *view, size_t count, uint64_t *out_windows) {
  const size_t how = pick(4);
  size_t i = 0;
  asked.was_wrong = 1;
  while (i < view->window_count && view->windows[i].is_complete) i++;
  if (how == 1 && i < view->window_count) {
    out_windows[0] = view->windows[i].number;
    return count ? count : 1;
  }
  if (how == 2 && count > 1) {
    out_windows[count - 1] = out_windows[0];
    return count;
  }
  if (how == 3 && view->window_count) {
    out_windows[0] = UINT64_MAX;
    return count ? count : 1;
  }
  return view->window_count + 1;
}

static size_t on_evict(void *user, const gmlake_view *view, size_t mapped_bytes,
                       uint64_t *out_windows) {
  size_t i, count = 0;
  judge_locks(0, 1, "evict is not asked as a planner");
  judge(user == &asked && mapped_bytes && mapped_bytes % view->chunk_bytes == 0,
        "a policy is asked to evict for nothing");
  note_view(view, &views[0]);
  meddle_in(ON_EVICT);
  asked.evict_count++;
  asked.evict_bytes = mapped_bytes;
  if (asked.drops) return drop_as_said(view->window_count, out_windows);
  for (i = 0; i < view->window_count && asked.flags & ANSWER_EVICT; i++)
    if (view->windows[i].is_complete && !pick(2)) out_windows[count++] = view->windows[i].number;
  return asked.flags & ANSWER_EVICT_WRONGLY ? evict_wrongly(view, count, out_windows) : count;
}

static int on_coalesce(void *user, const gmlake_piece *block) {
  judge(!lake->has_locks || !lake->state_lock.is_held,
        "coalesce is asked with the state lock held");
  judge(user == &asked && w.leaving && home_of(block) == w.leaving->at &&
            block->bytes == w.leaving->bytes,
        "a policy is told of another block than the one that is freed");
  asked.coalesce_count++;
  meddle_in(ON_COALESCE);
  if (w.at % 8 == 0) try_restricted();
  return !(asked.flags & ANSWER_APART) || pick(2);
}

static const gmlake_policy *policy_of(size_t functions) {
  memset(&asked, 0, sizeof(asked));
  memset(views, 0, sizeof(views));
  if (!functions) return NULL;
  if (functions == PAPER) {
    gmlake_paper_init(&paper);
    paper.chunk_bytes = w.chunk;
    paper.limit_bytes = 0;
    asked.policy = gmlake_policy_paper(&paper);
    return &asked.policy;
  }
  asked.policy.struct_bytes = sizeof(asked.policy);
  asked.policy.user = &asked;
  if (functions & CHOOSES) asked.policy.choose = on_choose;
  if (functions & EVICTS) asked.policy.evict = on_evict;
  if (functions & COALESCES) asked.policy.coalesce = on_coalesce;
  return &asked.policy;
}

static void do_answer(int on) {
  const op *o = &w.program->ops[w.at];
  size_t i;
  (void)on;
  for (i = 0; i < ANSWERS; i++) asked.letters[i] = answer_of(o, i);
  asked.flags = o->flags;
  asked.random = o->bytes;
}

/* ---- Looking --------------------------------------------------------------------------------- */

/* Has the lake show what there is for a stream, by a request that is refused. */
static void show_view(gmlake_stream stream, const pool *from) {
  gmlake_alloc_desc wanted;
  void *ptr = &ptr;
  memset(&wanted, 0, sizeof(wanted));
  wanted.bytes = 1;
  wanted.pool = from->value;
  asked.is_looking = 1;
  judge(gmlake_alloc_with(lake, &wanted, stream, &ptr) == GMLAKE_ERROR_INVALID_ARGUMENT && !ptr,
        "a plan of nothing was not refused");
  asked.is_looking = 0;
}

/* What a refusal or a question may not change. */
static struct picture {
  gmlake_stats stats;
  gmlake_mock_census census;
  gmlake_map_entry map[256];
  size_t map_count;
  struct view shown; /* to a policy, if there is one */
} noted;

static void take_picture(struct picture *p) {
  memset(p, 0, sizeof(*p));
  if (desc.policy) {
    show_view(NULL, &w.pools[0]);
    p->shown = views[0];
  }
  must(gmlake_get_map(lake, p->map, sizeof(p->map) / sizeof(p->map[0]), &p->map_count),
       "gmlake_get_map");
  p->stats = stats();
  p->census = census();
  p->stats.state_count[4] = p->stats.driver_call_count = p->stats.driver_ns = 0;
  p->stats.metadata_bytes_peak = p->census.call_count = p->census.modelled_ns = 0;
}

static int is_same(void) {
  static struct picture again;
  take_picture(&again);
  return !memcmp(&again.shown, &noted.shown, sizeof(again.shown)) &&
         !memcmp(&again.stats, &noted.stats, sizeof(again.stats)) &&
         !memcmp(again.map, noted.map, sizeof(again.map)) && again.map_count == noted.map_count &&
         !memcmp(&again.census, &noted.census, sizeof(again.census));
}

/* A word of the policy's alone: whether it was one. What is said holds for the next call. */
static int do_say(const op *o, const char *name, gmlake_stream stream) {
  const char *text = (const char *)o->bytes;
  if (!strcmp(name, "plan")) {
    asked.plans = text;
    asked.plan_questions = 0;
  } else if (!strcmp(name, "drop")) {
    asked.drops = text;
  } else if (!strcmp(name, "paper")) {
    set_paper(text);
  } else if (!strcmp(name, "note")) {
    take_picture(&noted);
  } else if (!strcmp(name, "same")) {
    judge(is_same(), "something has changed");
  } else if (!strcmp(name, "shows")) {
    show_view(stream, &w.pools[o->two % (POOLS + 1)]);
    judge(is_shown(text), "the policy is shown something else");
  } else {
    return 0;
  }
  return 1;
}

#endif /* PLAY_POLICY_H */
