/* Several processes on one device: a ledger in shared memory that tells who holds how much, who
   wants more, and who is asked to give back. For Linux.

     ledger book;
     ledger_open(&book, "/dev/shm/gpu0", device_bytes, floor_bytes, 1, own_handler);
     desc.oom = ledger_handler(&book);
     gmlake_create(&desc, &lake);
     for each step: ledger_step(&book, lake, wish_bytes);

   Each process has a floor, which nobody asks it to go below, a weight, and a wish: what it would
   hold if it could. Its share is its floor, and of what all floors leave a part by its weight, but
   not more than its wish; what one does not wish for is the others'.

   When the lake of a process runs short of memory, its handler looks at the ledger. If the process
   holds more than its share, or nobody else does, its own handler gives memory back. Else it asks
   those who hold more than theirs, and waits a while for them. They are told in their next
   ledger_step, which calls their own out-of-memory handlers: with asked_bytes as much as they are
   to give back, result LIMIT_REACHED and call "ledger". So a handler is written once, and serves
   both.

   A process that must know beforehand whether a model, a graph or a request will fit calls
   ledger_admit with the list of what it will have at once. If the answer is yes, its lake holds the
   memory for it (gmlake_admit), and the others may not ask for what it holds. The sum of all that
   is admitted, and of the floors of the others, is never more than the device has.

   It is robust. All locks are the kernel's, on the file: they end with the process, however it
   dies, and with its children of fork that have not called exec. A process writes its own entry
   only, but for `asked`; the entry of one that is gone is cleared by the next who looks. There is
   nothing to repair. Processes with one file need not see each other otherwise: not by number, and
   not in one container. A process of another user is kept out by the file's mode.

   ledger_step and ledger_admit may be called by one thread at a time; the handler by any. A step
   and the handler cost some system calls, less than 10 us together, if nobody has to wait;
   ledger_admit about four times those of a step, and what gmlake_trim and gmlake_admit cost. */
#if !defined(GMLAKE_LEDGER_H)
#define GMLAKE_LEDGER_H

#if !defined(_GNU_SOURCE)
#error "ledger.h: include gmlake.h with its implementation before, or define _GNU_SOURCE"
#endif

#include "gmlake.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LEDGER_SLOTS 32u
#define LEDGER_VERSION 2u
#define LEDGER_TRIES 8u   /* times that a step asks the handler */
#define LEDGER_WAIT_MS 50 /* that a handler waits for others, each time that the lake asks it */

typedef struct ledger_entry {
  uint64_t is_used;
  uint64_t floor_bytes, weight, wish_bytes, held_bytes;
  uint64_t asked_bytes;    /* to give back; the only field that others write */
  uint64_t given_bytes;    /* since it came */
  uint64_t admitted_bytes; /* that it may hold whatever the others do; 0: its floor alone */
} ledger_entry;

typedef struct ledger_page {
  uint64_t version; /* 0: new */
  uint64_t device_bytes;
  ledger_entry entries[LEDGER_SLOTS];
} ledger_page;

typedef struct ledger {
  int fd; /* byte 0 is locked by who reads or writes the page, byte 1 + n by the owner of slot n */
  unsigned slot;
  ledger_page *page;
  gmlake_oom_handler own;
  pthread_mutex_t mutex; /* the file's locks do not tell threads of one process apart */
} ledger;

/* A lock on one byte of the file, which belongs to this opening of it. 0: somebody else has it. */
static inline int ledger_lock_byte(const ledger *l, unsigned byte, short type, int waits) {
  struct flock lock;
  memset(&lock, 0, sizeof(lock));
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return fcntl(l->fd, waits ? F_OFD_SETLKW : F_OFD_SETLK, &lock) == 0;
}

/* Locks the page, and drops the entries of processes that are gone. 0, or the errno of a file
   system without locks (ENOLCK, EINVAL): then nothing is locked. */
static inline int ledger_lock(ledger *l) {
  unsigned i;
  (void)pthread_mutex_lock(&l->mutex);
  while (!ledger_lock_byte(l, 0, F_WRLCK, 1)) {
    const int error = errno;
    if (error == EINTR) continue; /* a signal came */
    (void)pthread_mutex_unlock(&l->mutex);
    return error;
  }
  for (i = 0; i < LEDGER_SLOTS; i++) {
    if (!l->page->entries[i].is_used || i == l->slot) continue;
    if (!ledger_lock_byte(l, 1 + i, F_WRLCK, 0)) continue;
    memset(&l->page->entries[i], 0, sizeof(ledger_entry));
    (void)ledger_lock_byte(l, 1 + i, F_UNLCK, 0);
  }
  return 0;
}

static inline void ledger_unlock(ledger *l) {
  (void)ledger_lock_byte(l, 0, F_UNLCK, 0);
  (void)pthread_mutex_unlock(&l->mutex);
}

/* What nobody asks a process to go below. */
static inline uint64_t ledger_floor(const ledger_entry *e) {
  const uint64_t most = e->admitted_bytes > e->floor_bytes ? e->admitted_bytes : e->floor_bytes;
  return e->is_used ? most : 0;
}

/* What each process may hold. pre: the page is locked. O(slots * slots). */
static inline void ledger_shares(const ledger_page *page, uint64_t *out_shares) {
  uint64_t left = page->device_bytes, weights;
  int has_moved = 1;
  unsigned i;
  for (i = 0; i < LEDGER_SLOTS; i++) {
    out_shares[i] = ledger_floor(&page->entries[i]);
    left -= out_shares[i] < left ? out_shares[i] : left;
  }
  while (has_moved && left) { /* until all have what they wish, or nothing is left */
    uint64_t given = 0;
    has_moved = 0;
    for (i = 0, weights = 0; i < LEDGER_SLOTS; i++)
      if (page->entries[i].wish_bytes > out_shares[i]) weights += page->entries[i].weight;
    for (i = 0; i < LEDGER_SLOTS && weights; i++) {
      const ledger_entry *e = &page->entries[i];
      const uint64_t wanted = e->wish_bytes > out_shares[i] ? e->wish_bytes - out_shares[i] : 0;
      const uint64_t part = wanted ? left / weights * e->weight : 0;
      const uint64_t more = part < wanted ? part : wanted;
      out_shares[i] += more;
      given += more;
      has_moved |= more && more == wanted; /* the rest of its part is the others' */
    }
    left -= given;
  }
}

/* Takes a slot. 0, or an errno. pre: the page is locked. */
static inline int ledger_enter(ledger *l, size_t device_bytes, size_t floor_bytes,
                               unsigned weight) {
  ledger_entry *e;
  if (!l->page->version) {
    l->page->device_bytes = device_bytes;
    l->page->version = LEDGER_VERSION;
  }
  if (l->page->version != LEDGER_VERSION || l->page->device_bytes != device_bytes) return EINVAL;
  for (l->slot = 0; l->slot < LEDGER_SLOTS; l->slot++)
    if (!l->page->entries[l->slot].is_used && ledger_lock_byte(l, 1 + l->slot, F_WRLCK, 0)) break;
  if (l->slot == LEDGER_SLOTS) return ENOSPC;
  e = &l->page->entries[l->slot];
  memset(e, 0, sizeof(*e)); /* who died while it was cleared has left a part of it */
  e->floor_bytes = e->wish_bytes = floor_bytes;
  e->weight = weight ? weight : 1;
  e->is_used = 1;
  return 0;
}

/* Opens the ledger, or makes it, and takes a slot. 0, or an errno. ENOSPC: all slots are taken;
   EINVAL: another version, or another device's; ENOLCK: the file system has no locks, take a file
   of this machine's, as in /dev/shm. */
static inline int ledger_open(ledger *l, const char *path, size_t device_bytes, size_t floor_bytes,
                              unsigned weight, gmlake_oom_handler own) {
  void *page;
  int error = 0;
  memset(l, 0, sizeof(*l));
  l->own = own;
  l->slot = LEDGER_SLOTS;
  l->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (l->fd < 0) return errno;
  if (ftruncate(l->fd, sizeof(ledger_page))) error = errno; /* no longer and no shorter than it */
  page = mmap(NULL, sizeof(ledger_page), PROT_READ | PROT_WRITE, MAP_SHARED, l->fd, 0);
  if (!error && page == MAP_FAILED) error = errno;
  if (error) {
    (void)close(l->fd);
    return error;
  }
  l->page = (ledger_page *)page;
  (void)pthread_mutex_init(&l->mutex, NULL);
  error = ledger_lock(l);
  if (!error) {
    error = ledger_enter(l, device_bytes, floor_bytes, weight);
    ledger_unlock(l);
  }
  if (!error) return 0;
  (void)munmap(page, sizeof(ledger_page));
  (void)pthread_mutex_destroy(&l->mutex);
  (void)close(l->fd);
  return error;
}

static inline void ledger_close(ledger *l) {
  if (!ledger_lock(l)) {
    memset(&l->page->entries[l->slot], 0, sizeof(ledger_entry));
    ledger_unlock(l);
  }
  (void)munmap((void *)l->page, sizeof(ledger_page));
  (void)pthread_mutex_destroy(&l->mutex);
  (void)close(l->fd);
}

/* Writes what the lake holds, and returns how much of it this process is asked to give back. */
static inline uint64_t ledger_tell(ledger *l, gmlake *lake, size_t wish_bytes) {
  ledger_entry *e = &l->page->entries[l->slot];
  gmlake_stats stats;
  uint64_t asked;
  if (gmlake_get_stats(lake, &stats) || ledger_lock(l)) return 0;
  if (e->held_bytes > stats.reserved_bytes) {
    const uint64_t given = e->held_bytes - stats.reserved_bytes;
    e->asked_bytes -= given < e->asked_bytes ? given : e->asked_bytes;
    e->given_bytes += given;
  }
  e->held_bytes = stats.reserved_bytes;
  if (wish_bytes) e->wish_bytes = wish_bytes;
  if (e->held_bytes <= ledger_floor(e)) e->asked_bytes = 0;
  asked = e->asked_bytes;
  ledger_unlock(l);
  return asked;
}

/* Call it between steps: tells the others what this process holds and wishes, and gives back what
   they asked for, by the process's own handler, which is asked as often as a lake asks one. */
static inline void ledger_step(ledger *l, gmlake *lake, size_t wish_bytes) {
  gmlake_error_info info;
  gmlake_stats stats;
  int goes_on = 1;
  unsigned tries;
  uint64_t asked = ledger_tell(l, lake, wish_bytes);
  for (tries = 0; asked && goes_on && tries < LEDGER_TRIES; tries++) {
    memset(&info, 0, sizeof(info));
    info.result = GMLAKE_ERROR_LIMIT_REACHED;
    info.call = "ledger";
    info.asked_bytes = (size_t)asked;
    goes_on = l->own.fn && l->own.fn(l->own.user, lake, &info) &&
              gmlake_get_stats(lake, &stats) == GMLAKE_OK;
    if (goes_on)
      (void)gmlake_trim(lake,
                        stats.reserved_bytes -
                            (size_t)(asked < stats.reserved_bytes ? asked : stats.reserved_bytes),
                        NULL);
    asked = ledger_tell(l, lake, 0);
  }
  if (asked && !ledger_lock(l)) { /* it has nothing more to give */
    l->page->entries[l->slot].asked_bytes = 0;
    ledger_unlock(l);
  }
}

/* Asks those who hold more than their shares for so many bytes. Returns how many it asked for: by
   now, or before. 0: nobody holds too much, or this process does so itself. */
static inline uint64_t ledger_ask(ledger *l, uint64_t bytes) {
  uint64_t shares[LEDGER_SLOTS], asked = 0;
  unsigned i;
  if (ledger_lock(l)) return 0;
  ledger_shares(l->page, shares);
  if (l->page->entries[l->slot].held_bytes <= shares[l->slot])
    for (i = 0; i < LEDGER_SLOTS && asked < bytes; i++) {
      ledger_entry *e = &l->page->entries[i];
      uint64_t most = e->held_bytes > shares[i] ? e->held_bytes - shares[i] : 0;
      if (i == l->slot || !e->is_used || !most) continue;
      if (most > bytes - asked) most = bytes - asked;
      if (e->asked_bytes < most) e->asked_bytes = most;
      asked += most;
    }
  ledger_unlock(l);
  return asked;
}

/* Whether somebody is still to give back. */
static inline int ledger_is_waited_for(ledger *l) {
  int is = 0;
  unsigned i;
  if (ledger_lock(l)) return 0;
  for (i = 0; i < LEDGER_SLOTS; i++)
    is |= i != l->slot && l->page->entries[i].is_used && l->page->entries[i].asked_bytes;
  ledger_unlock(l);
  return is;
}

/* Notes that so many bytes are promised to this process, 0: none but its floor; at most what the
   floors of the others, and what is promised to them, leave. Returns how many are too many: then
   nothing has changed. */
static inline uint64_t ledger_promise(ledger *l, uint64_t bytes, int is_part_enough) {
  ledger_entry *e = &l->page->entries[l->slot];
  uint64_t left, lacking;
  unsigned i;
  if (ledger_lock(l)) return bytes;
  left = l->page->device_bytes;
  for (i = 0; i < LEDGER_SLOTS; i++) {
    const uint64_t floor_bytes = i == l->slot ? 0 : ledger_floor(&l->page->entries[i]);
    left -= floor_bytes < left ? floor_bytes : left;
  }
  lacking = bytes > left ? bytes - left : 0;
  if (!lacking || is_part_enough) e->admitted_bytes = bytes - lacking;
  ledger_unlock(l);
  return lacking;
}

/* Asks the others for so many bytes, and waits a while for them. 0: nobody has to give any; 2: not
   all have been given in time. */
static inline int ledger_wait_for(ledger *l, uint64_t bytes) {
  const struct timespec nap = {0, 1000000};
  int i;
  if (!ledger_ask(l, bytes)) return 0;
  for (i = 0; i < LEDGER_WAIT_MS && ledger_is_waited_for(l); i++) (void)nanosleep(&nap, NULL);
  return 1 + (i == LEDGER_WAIT_MS);
}

/* Whether a list of requests fits, as gmlake_admit says, whatever the other processes do. If so the
   lake holds what the list needs beside what lives there, having given back the rest of what it had
   free; no other process asks this one to go below it, nor is promised it. That is so until the
   next admission, whose list says again what is still to come, or one of a list of 0 bytes. If not,
   what was admitted before stays. LIMIT_REACHED: the others' floors, and what was admitted to them,
   leave too little. OUT_OF_DEVICE_MEMORY: those who hold more than their shares have not given it
   back in time, eight times LEDGER_WAIT_MS; or others use the device who are not in the ledger.
   *out_lacking_bytes (may be NULL): about how much is missing. The process's own handler is not
   asked. Costs some system calls, and what gmlake_trim and gmlake_admit cost. */
static inline gmlake_result ledger_admit(ledger *l, gmlake *lake, const gmlake_alloc_desc *requests,
                                         size_t count, gmlake_stream stream,
                                         size_t *out_lacking_bytes) {
  const uint64_t before = l->page->entries[l->slot].admitted_bytes; /* it alone writes it */
  uint64_t bytes = 0, lacking;
  size_t i, lacking_here = 0;
  unsigned tries;
  gmlake_stats stats;
  gmlake_result result;
  result = gmlake_get_stats(lake, &stats);
  if (result) return result;
  for (i = 0; i < count; i++) bytes += requests[i].bytes;
  lacking = bytes ? ledger_promise(l, stats.active_bytes + bytes, 0) : 0;
  if (out_lacking_bytes) *out_lacking_bytes = (size_t)lacking;
  if (lacking) return GMLAKE_ERROR_LIMIT_REACHED;
  if (bytes) (void)gmlake_trim(lake, stats.active_bytes + (size_t)bytes, NULL);
  for (tries = 0;; tries++) {
    result = gmlake_admit(lake, requests, count, stream, &lacking_here);
    (void)ledger_tell(l, lake, 0);
    if (!lacking_here || tries == LEDGER_TRIES || !ledger_wait_for(l, lacking_here)) break;
  }
  if (!result && bytes) result = gmlake_get_stats(lake, &stats);
  (void)ledger_promise(l, result ? before : bytes ? stats.reserved_bytes : 0, 1);
  if (out_lacking_bytes) *out_lacking_bytes = lacking_here;
  return result;
}

static inline int ledger_on_shortage(void *user, gmlake *lake, const gmlake_error_info *info) {
  ledger *l = (ledger *)user;
  int waited;
  (void)ledger_tell(l, lake, 0);
  waited = ledger_wait_for(l, info->asked_bytes);
  if (!waited) return l->own.fn ? l->own.fn(l->own.user, lake, info) : 0;
  if (waited > 1 && l->own.fn) (void)l->own.fn(l->own.user, lake, info);
  return 1; /* the lake tries again, a few times */
}

/* For desc.oom. The ledger outlives the lake. */
static inline gmlake_oom_handler ledger_handler(ledger *l) {
  gmlake_oom_handler handler;
  handler.fn = ledger_on_shortage;
  handler.user = l;
  return handler;
}

#endif /* GMLAKE_LEDGER_H */
