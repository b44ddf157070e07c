/* The chooser of random programs: which operation comes next, by chance, in a lake that likes some
   more than others. Include after player.h. */
#if !defined(PLAY_CHANCE_H)
#define PLAY_CHANCE_H

#include "player.h"
#include "splitmix.h"

/* ---- Chance ---------------------------------------------------------------------------------- */

#define USUAL 5

static uint64_t chance_state;

static size_t below(size_t count) { return (size_t)(splitmix64(&chance_state) % count); }
static int chance(size_t percent) { return below(100) < percent; }

/* ---- The next operation ---------------------------------------------------------------------- */

static const struct deed {
  char verb;
  size_t weight;
} deeds[] = {{'+', 75}, {'-', 60}, {'u', 30}, {'U', 8},  {'r', 22}, {'h', 9}, {'e', 9},  {'g', 8},
             {'t', 9},  {'c', 8},  {'d', 8},  {'z', 10}, {'C', 3},  {'N', 8}, {'K', 4},  {'T', 7},
             {'Q', 5},  {'I', 4},  {'q', 8},  {'f', 3},  {'k', 6},  {'v', 9}, {'m', 3},  {'P', 8},
             {'D', 6},  {'B', 12}, {'E', 22}, {'j', 22}, {'J', 6},  {'S', 4}, {'W', 10}, {'l', 6},
             {'L', 8},  {'w', 6},  {'x', 12}, {'i', 12}, {'Y', 4},  {'a', 0}};
#define DEEDS (sizeof(deeds) / sizeof(deeds[0]))

/* A lake of a mood does those things alone, and often: rare meetings need that. */
static const struct mood {
  const char *verbs; /* each as often as it stands there; "": all, by their weights */
  size_t percent, chunks, streams, transient, none, faults;
} moods[] = {
    {"", 32, 100, 6, 25, 8, 1},
    {"++++----uugt", 8, 500, 2, 0, 2, 0},               /* many events are pending */
    {"++++----uurfkkvvhheT", 8, 40, 4, 0, 8, 0},        /* streams that end */
    {"++++----uurrhheQTq", 10, 24, 5, 0, 25, 1},        /* recorded blocks, host waits */
    {"++++----uuuBEjjlLLPrh", 12, 60, 4, 60, 4, 0},     /* pools that are lent */
    {"++++----uhheTIQ", 6, 60, 3, 0, 2, 1},             /* small blocks of several streams */
    {"+++---uPDSSWWWNcdzxiTUEBj", 10, 60, 3, 5, 10, 1}, /* sleep, with faults */
    {"+-NNNzzccdCUUUKKheT", 6, 60, 3, 0, 10, 1},        /* buffers that are used and end */
    {"+++--uuPDBBEEjJh", 8, 60, 3, 0, 4, 1}, /* pools end behind other uses of graphs' memory */
};

#define MOODS (sizeof(moods) / sizeof(moods[0]))

static long only_mood = -1; /* -1: any */

static struct chooser {
  uint64_t seed;
  size_t steps, weights[DEEDS], frees, largest, usual[USUAL], streams;
  size_t fault_percent, host_percent;
  const struct mood *mood;
  int never_ends;
} chooser;

static unsigned char any_slot(void) {
  unsigned char slot = (unsigned char)below(chooser.streams + 1);
  return slot ? slot : chance(20) ? ON_ONE : 0;
}

static unsigned char any_live(void) {
  size_t n = below(NAMES), i;
  for (i = 0; i < NAMES; i++, n = (n + 1) % NAMES)
    if (w.blocks[n].id) return (unsigned char)n;
  return 0;
}

static unsigned char any_free(void) {
  size_t n = below(NAMES), i;
  for (i = 0; i < NAMES && w.blocks[n].id; i++) n = (n + 1) % NAMES;
  return (unsigned char)n;
}

/* One of those that a word is for: most other draws would be passed over. */
static int is_for(char verb, size_t i) {
  switch (verb) {
  case 'v':
    return i <= chooser.streams && !w.lines[w.slots[i]].is_alive;
  case 'E':
    return i <= chooser.streams && w.lines[w.slots[i]].graph;
  case 'k':
    return i <= chooser.streams && w.lines[w.slots[i]].is_alive &&
           (w.lines[w.slots[i]].is_told || may_end());
  case 'W':
    return w.pools[i].asleep;
  case 'L':
    return i < POOLS && w.pools[i + 1].is_lent;
  case 'l':
  case 'D':
    return i < POOLS && w.pools[i + 1].value;
  case 'B':
    return !w.graphs[i].is_alive;
  case 'j':
  case 'J':
    return w.graphs[i].is_alive;
  case 'z':
  case 'c':
  case 'd':
  case 'C':
  case 'K':
  case 'U':
    return i < BUFFERS && w.buffers[i].value;
  case 'N':
    return i < BUFFERS && !w.buffers[i].value;
  case 'x':
    return w.blocks[i].id && w.blocks[i].is_exclusive;
  case 'i':
    return w.blocks[i].handle_count != 0;
  default:
    return 1;
  }
}

static unsigned char any_for(char verb, size_t count) {
  size_t n = below(count), i;
  if (chance(10)) return (unsigned char)n;
  for (i = 0; i < count && !is_for(verb, n); i++) n = (n + 1) % count;
  return (unsigned char)n;
}

static size_t any_size(void) {
  const size_t largest = w.chunk * (1 + below(chance(20) ? chooser.largest : 6));
  if (chooser.mood == moods + 1) return w.chunk;
  if (chance(25)) return chance(2) ? 0 : 1 + below(8 * GRAIN);
  if (chance(40)) return chooser.usual[below(USUAL)];
  return chance(50) ? largest : 1 + below(largest);
}

static void draw_request(op *o) {
  o->bytes = any_size();
  o->stream = chance(chooser.mood->none) ? ON_NONE : any_slot();
  if (chance(30)) o->two = (unsigned char)(1 + below(POOLS));
  if (chance(w.program->options[OPT_SHARE] ? 30 : 6)) o->flags |= FLAG_X;
  if (chance(6)) o->flags |= FLAG_S;
  if (chance(10)) o->flags |= FLAG_G;
  if (chance(chooser.mood->transient)) o->flags |= FLAG_T;
  if (chance(10)) o->align = chance(95) ? GRAIN << below(chance(70) ? 3 : 8) : 3 * GRAIN;
}

static void draw_range(op *o) {
  const buffer *b = &w.buffers[o->one];
  const size_t chunk = b->value ? b->chunk : w.chunk, count = b->value ? b->max / chunk : 1;
  o->bytes = below(count) * chunk;
  o->more = (1 + below(count - o->bytes / chunk)) * chunk;
  if (chance(2)) o->more += chance(50) ? UNIT / 2 : count * chunk;
}

/* Of a buffer: mostly whole chunks, seldom more than it may have. */
static void draw_end(op *o) {
  const buffer *b = &w.buffers[o->one];
  if (!b->value) return;
  o->bytes = below(1 + b->max / b->chunk) * b->chunk;
  if (chance(15)) o->bytes += below(b->chunk / 256) * 256;
}

static void draw_free(op *o) {
  const block *b;
  o->one = any_live();
  b = &w.blocks[o->one];
  o->stream = chance(12) || b->on < 0 ? any_slot() : slot_of(b->on);
  if (!o->stream && chance(20)) o->stream = ON_ONE;
  if (chance(chooser.never_ends ? 1 : 10)) o->stream = ON_NONE;
}

static void draw_use(op *o) {
  const block *b;
  o->one = any_live();
  b = &w.blocks[o->one];
  o->stream = b->on >= 0 && chance(60) ? slot_of(b->on) : any_slot();
}

static void draw_for_pools(op *o) {
  switch (o->verb) {
  case 'N':
    o->more = w.chunk << (chance(20) ? 1 : 0);
    if (chance(3)) o->more += UNIT * below(4);
    o->bytes = o->more * (1 + below(12));
    o->two = (unsigned char)(chance(40) ? 1 + below(POOLS) : 0);
    break;
  case 'P':
    o->more = chance(50) ? w.chunk << below(2) : 0;
    if (chance(5)) o->more += UNIT / 2;
    o->bytes = chance(30) ? w.chunk * (2 + below(16)) : 0;
    break;
  case 'B':
    o->one = any_for('D', POOLS);
    o->two = (unsigned char)(1 + any_for('B', GRAPHS));
    break;
  case 'j':
  case 'J':
    o->one = any_for((char)o->verb, GRAPHS);
    break;
  case 'S':
    o->flags = (unsigned char)below(2);
    o->one = (unsigned char)below(POOLS + 1);
    break;
  case 'W':
    o->one = any_for((char)o->verb, POOLS + 1);
    break;
  case 'T':
    o->bytes = chance(20) ? 0 : below(census().physical_bytes + 1);
    break;
  case 'Y':
    o->one = 0;
    o->bytes = w.chunk * below(16);
    if (chance(25)) break;
    draw_request(o);
    o->one = (unsigned char)(1 + below(5));
    if (chance(50)) o->more = any_size() / UNIT * UNIT;
    if (chance(15)) o->bytes = o->more = 0;
    break;
  default:
    break;
  }
}

/* Mostly by chance, seldom wrongly. */
static void draw_answers(op *o) {
  static const char letters[] = "pppprrrsssskkggbb459";
  size_t i;
  o->one = 0;
  o->two = 0;
  for (i = 0; i < ANSWERS && !chance(20); i++) {
    const char letter = chance(3) ? 'x' : letters[below(sizeof(letters) - 1)];
    add_answer(o, i, (unsigned char)(strchr(answer_letters, letter) - answer_letters + 1));
  }
  o->flags = (unsigned char)((size_t)chance(40) * ANSWER_APART | (size_t)chance(40) * ANSWER_EVICT |
                             (size_t)chance(3) * ANSWER_EVICT_WRONGLY);
  o->bytes = chance(90) ? 1 + below(65535) : 0;
}

static void draw_export(op *o) {
  if (chance(30)) o->two = (unsigned char)(1 + any_for('U', BUFFERS));
  o->one = o->two ? any_free() : any_for('x', NAMES);
}

static op draw(char verb) {
  op o;
  memset(&o, 0, sizeof(o));
  o.verb = (unsigned char)verb;
  o.stream = any_slot();
  o.one = any_for(verb, 4);
  if (strchr("vEk", verb)) o.stream = any_for(verb, SLOTS);
  switch (verb) {
  case '+':
    draw_request(&o);
    o.one = any_free();
    break;
  case 'q':
    draw_request(&o);
    break;
  case '-':
    draw_free(&o);
    break;
  case 'u':
  case 'r':
    draw_use(&o);
    break;
  case 'w':
    o.one = chance(50) ? any_live() : (unsigned char)below(NAMES);
    o.bytes = chance(40) ? w.blocks[o.one].bytes : chance(60) ? GRAIN * below(64) : below(70000);
    break;
  case 'x':
    draw_export(&o);
    break;
  case 'i':
    o.one = any_free();
    o.two = any_for(verb, NAMES);
    o.bytes = chance(50) ? below(8) : 0;
    break;
  case 'g':
    o.bytes = chooser.mood == moods + 1 ? 5000 + below(40000) : below(1000) * below(2);
    break;
  case 't':
    o.bytes = w.clock_ns + below(600);
    break;
  case 'm':
    o.bytes = below(4);
    break;
  case 'a':
    draw_answers(&o);
    break;
  case 'c':
  case 'd':
  case 'C':
    draw_range(&o);
    break;
  case 'z':
    draw_end(&o);
    break;
  default:
    draw_for_pools(&o);
  }
  if (strchr("cdCzK", verb) && chance(10)) o.stream = ON_NONE;
  return o;
}

static void draw_fault(program *p) {
  static const char results[] = "OORRHNCIGW";
  op o;
  memset(&o, 0, sizeof(o));
  o.verb = 'F';
  if (chance(chooser.fault_percent)) {
    const int is_last = chance(4);
    o.result = (unsigned char)results[is_last ? 8 + below(2) : below(8)];
    o.two = (unsigned char)(chance(50) ? ON_ANY : below(ON_ANY));
    o.bytes = 1 + below(o.two != ON_ANY ? 4 : chance(70) ? 5 : 40);
    o.flags = !is_last && chance(20) ? FLAG_STAYS : 0;
    program_add(p, &o);
    if (chance(20)) o.bytes += 1 + below(4), program_add(p, &o);
  }
  if (chance(chooser.host_percent)) {
    o.two = ON_HOST;
    o.result = 0;
    o.bytes = 1 + below(6);
    o.flags = chance(30) ? FLAG_STAYS : 0;
    program_add(p, &o);
  }
}

static void add_use(program *p, const op *before) {
  op o = *before;
  o.verb = 'u';
  program_add(p, &o);
}

/* A stream has used what is recorded there, more often than not; where work is done, what is freed
   is looked at; a pool is emptied, in a hurry, else it cannot be destroyed. */
static void add_before(program *p, const op *before) {
  unsigned char i;
  if (before->verb == 'r' && chance(50)) add_use(p, before);
  if (before->verb == '-' && has_own_time()) add_use(p, before);
  if (before->verb != 'D' || chance(30)) return;
  for (i = 0; i < NAMES; i++) {
    op o;
    if (!w.blocks[i].id || w.blocks[i].pool != 1 + before->one) continue;
    memset(&o, 0, sizeof(o));
    o.verb = '-';
    o.one = i;
    o.stream = any_slot();
    if (chance(50)) add_use(p, &o);
    program_add(p, &o);
  }
}

static int choose(program *p, size_t at) {
  size_t i, sum = 0, pick;
  static uint64_t refusals;
  op o;
  if (at >= chooser.steps || p->count > 2 * chooser.steps) return 0;
  if (!at) refusals = counts.refusals;
  if (counts.refusals != refusals) chooser.frees = below(6);
  refusals = counts.refusals;
  for (i = 0; i < DEEDS; i++) sum += chooser.weights[i];
  pick = below(sum);
  for (i = 0; pick >= chooser.weights[i]; i++) pick -= chooser.weights[i];
  if (chooser.frees && chooser.frees--) i = 1;
  o = draw(deeds[i].verb);
  add_before(p, &o);
  if (!strchr("uUhegtvkIjJw", o.verb)) draw_fault(p);
  program_add(p, &o);
  if ((o.verb == '+' && has_own_time()) || (o.verb == 'r' && chance(50))) add_use(p, &o);
  return 1;
}

/* ---- A lake ---------------------------------------------------------------------------------- */

static void (*fit_options)(size_t *o); /* NULL: all lakes can be had */

static void draw_options(size_t *o) {
  size_t chunk, cap;
  memset(o, 0, OPT_COUNT * sizeof(*o));
  chunk = o[OPT_CHUNK] = UNIT << (chance(15) ? 4 + below(2) : below(4));
  cap = o[OPT_CAP] = chunk * (8 + below(chooser.mood->chunks));
  o[OPT_WAIT_FIRST] = (size_t)chance(45);
  o[OPT_SINGLE] = (size_t)chance(40);
  o[OPT_FILL] = (size_t)chance(15);
  o[OPT_MAY_END] = (size_t)chance(35);
  o[OPT_NO_IDS] = (size_t)chance(20);
  o[OPT_SHARE] = (size_t)chance(25);
  o[OPT_BOOKS] = (size_t)(!o[OPT_SHARE] && chance(60));
  if (chance(30)) o[OPT_LIMIT] = (cap / 2 + below(cap / 2)) / UNIT * UNIT;
  if (chance(15)) o[OPT_KEEP] = below(cap / 4) / UNIT * UNIT;
  if (chance(40)) o[OPT_ARENA] = cap + chunk;
  if (chance(30)) o[OPT_WINDOW] = cap + below(cap) / chunk * chunk;
  if (chance(40)) o[OPT_SMAX] = chunk * (1 + below(24));
  if (chance(20)) o[OPT_SMIN] = below(4 * chunk) / UNIT * UNIT;
  if (chance(50)) o[OPT_EXTENT] = 2;
  o[OPT_OOM] = (size_t)chance(30);
  if (chance(25)) o[OPT_POLICY] = 1 + below(7);
  o[OPT_OBSERVED] = (size_t)chance(30);
  o[OPT_PEERS] = below(4);
  o[OPT_MODE] = below(3);
  o[OPT_STREAMS] = 1 + below(chooser.mood->streams);
  if (fit_options) fit_options(o);
}

/* Each lake does some things often and some never: rare meetings need that. */
static void prepare(program *p, uint64_t seed) {
  static const size_t times[] = {0, 1, 1, 1, 3};
  size_t i, pick;
  memset(&chooser, 0, sizeof(chooser));
  chooser.seed = chance_state = seed;
  pick = below(100);
  for (chooser.mood = moods; pick >= chooser.mood->percent; chooser.mood++)
    pick -= chooser.mood->percent;
  if (only_mood >= 0) chooser.mood = &moods[(size_t)only_mood % MOODS];
  p->count = 0;
  draw_options(p->options);
  chooser.streams = p->options[OPT_STREAMS];
  chooser.largest = 2 + p->options[OPT_CAP] / p->options[OPT_CHUNK] / (2 + below(4));
  chooser.steps = 100 + below(1400);
  for (i = 0; i < USUAL; i++) chooser.usual[i] = p->options[OPT_CHUNK] / 2 * (1 + below(12));
  for (i = 0; i < DEEDS; i++) {
    const char *verb = chooser.mood->verbs;
    chooser.weights[i] = *verb ? 0 : deeds[i].weight * (i < 3 ? 1 : times[below(5)]);
    for (; *verb; verb++) chooser.weights[i] += *verb == deeds[i].verb;
  }
  if (p->options[OPT_POLICY])
    for (i = 0; i < DEEDS; i++)
      if (deeds[i].verb == 'a') chooser.weights[i] = 25;
  chooser.never_ends = chance(20);
  for (i = 0; i < DEEDS && chooser.never_ends; i++)
    if (strchr("et", deeds[i].verb) && chooser.mood == moods) chooser.weights[i] = 0;
  if (!chooser.mood->faults || has_own_time()) return; /* what is lost would be missed later on */
  if (chance(50)) chooser.fault_percent = 1 + below(40);
  if (chance(30)) chooser.host_percent = 1 + below(20);
}

#endif /* PLAY_CHANCE_H */
