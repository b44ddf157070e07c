/* Fuzz target: the input is a program that a session of gmlake_offload.h serves, while calls of the
   device and host memory fail; in bytes what tests/offload/language.h has in words. The stage in
   sessions.h says what is wrong. The program is told as a line, as
   `build/test_offload_session --play` plays it.

   Input: three bytes of options, then records of five bytes: a word and its arguments. What is
   short is filled up with zeros. The program so read is run four times, so that the session learns
   it, plans it, and notices that the last run leaves a word out; or seven times, if it has to find
   the iterations, too; or ten times, so that it decides which regions are kept. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#define GMLAKE_OFFLOAD_IMPLEMENTATION
#define GMLAKE_OFFLOAD_BACKEND_MOCK
#define GMLAKE_OFFLOAD_LAKE
#include "gmlake_offload.h"

#include "fuzz.h"
#include "../offload/sessions.h"

#define CHUNK ((size_t)4096)
#define TENSORS 12
#define NAMED 4
#define RECORDS_MAX 120

typedef struct reader {
  program *p;
  size_t limit; /* in chunks */
} reader;

static operation *add(reader *r, char verb, size_t args, double first) {
  operation *o = program_add(r->p);
  o->verb = verb;
  o->arg_count = (unsigned char)args;
  o->args[0] = first;
  return o;
}

static void add_option(reader *r, int option, double value) {
  add(r, '{', 1, value)->option = (unsigned char)option;
}

static void name(operation *o, unsigned which, int is_written) {
  operand *of = &o->operands[o->read_count + o->write_count];
  of->name = (uint16_t)(which % TENSORS);
  o->read_count += is_written == 0;
  o->write_count += is_written != 0;
}

/* A step that reads the tensors in the bits of a and b, and writes those of c. */
static void add_step(reader *r, unsigned a, unsigned b, unsigned c, unsigned d) {
  const unsigned sets[] = {a | (b & 15) << 8, c | (b >> 4) << 8};
  operation *o = add(r, '>', 0, 0);
  unsigned i, n, count;
  for (n = 0; n < 2; n++)
    for (i = count = 0; i < TENSORS && count < NAMED; i++)
      if (sets[n] >> i & 1) name(o, i, n != 0), count++;
  o->key = d % 16;
  o->time_ns = 1000 * (uint64_t)(d + 1);
}

static double bytes_of(unsigned b, unsigned c) {
  return (double)(CHUNK * (b % 5) + (c % 3 == 0 ? 8 * (size_t)c : 0));
}

static void add_limit(reader *r, unsigned a) {
  if (a % 4)
    add(r, 'r', 1, (double)(CHUNK * (a % 16)));
  else if (r->limit != 0) /* never above what the device has */
    add(r, 'l', 1, (double)(CHUNK * (r->limit > a / 4 % 4 ? r->limit - a / 4 % 4 : 1)));
}

static void add_record(reader *r, const uint8_t *b) {
  operation *o;
  switch (b[0] % 12) {
  case 0:
  case 1:
    o = add(r, '+', 0, 0);
    name(o, b[1], 1);
    o->operands[0].is_made = 1;
    o->operands[0].bytes = (size_t)bytes_of(b[2], b[3]);
    break;
  case 2:
    name(add(r, '-', 0, 0), b[1], 0);
    break;
  case 3:
    name(add(r, b[2] % 2 == 0 ? 'p' : 'u', 0, 0), b[1], 0);
    break;
  case 4:
    add_limit(r, b[1]);
    break;
  case 5:
    if (b[1] % 8 == 0) add(r, 'h', 1, b[2] & 1);
    break;
  case 6:
    if (b[1] % 8 == 0) add(r, 'H', 1, 1 + b[2]);
    if (b[1] % 8 < 4) break;
    o = add(r, 'R', 3, bytes_of(b[3], b[4]));
    o->args[1] = b[1] / 8;
    o->args[2] = b[3];
    name(o, b[2], 0);
    break;
  default:
    add_step(r, b[1], b[2], b[3], b[4]);
  }
}

static void add_run(reader *r, const fuzz_input *of, int is_marked, unsigned skip) {
  fuzz_input in = *of;
  uint8_t record[5];
  size_t i, n;
  if (is_marked) add(r, 'M', 0, 0);
  for (i = 0; i < RECORDS_MAX && in.left; i++) {
    for (n = 0; n < 5; n++) record[n] = (uint8_t)fuzz_byte(&in);
    if (i + 1 != skip) add_record(r, record);
  }
}

static void program_from_bytes(program *p, const uint8_t *data, size_t size) {
  fuzz_input in = {data, size};
  const unsigned how = fuzz_byte(&in), chunks = fuzz_byte(&in), flags = fuzz_byte(&in);
  const int is_marked = (how & 32) == 0;
  const unsigned last = how & 64 ? 9 : is_marked ? 3 : 6;
  reader r = {p, chunks % 24};
  unsigned i;
  for (i = 0; i < TENSORS; i++) (void)program_name(p, 'a' + (int)i, -1);
  p->unit = CHUNK;
  add_option(&r, OPT_FREE, 1);
  add_option(&r, OPT_CHUNK, (double)CHUNK);
  add_option(&r, OPT_LIMIT, (double)(CHUNK * r.limit));
  add_option(&r, OPT_LINK, how & 4 ? 1e9 : 2e7);
  add_option(&r, OPT_MIN, (double)(1 + (flags & 1) * CHUNK));
  add_option(&r, OPT_TRIES, 4);
  if (how & 1) add_option(&r, OPT_MAP, 1e5);
  if (flags & 2) add_option(&r, OPT_HOST_MAX, (double)(16 * CHUNK));
  if (how & 16) add(&r, 'F', 1, 1 + flags * 4.);
  for (i = 0; i <= last; i++) { /* what is complete when the next run begins is planned */
    add_run(&r, &in, is_marked, i == last ? flags / 4 : 0);
    if (how & 8) add(&r, 'S', 0, 0);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static program p;
  const char *rule;
  program_free(&p);
  program_from_bytes(&p, data, size);
  rule = play(&p, &sessions);
  if (!rule) return 0;
  p.count = verdict.at + 1 < p.count ? verdict.at + 1 : p.count;
  program_write(stderr, &p);
  tell(&p, rule);
  abort();
}
