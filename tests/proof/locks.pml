/* The two locks, reserved memory and callbacks.

   What is checked:
   - gmlake.h, THE DATA MODEL: "state_lock guards everything above but what only the holder of
     driver_lock uses." "One that does takes driver_lock, plans and reserves under state_lock,
     releases that, calls the driver, takes it again, and commits. If a call failed it unmaps what
     it mapped, by one call, and then gives up what it reserved".
   - gmlake.h, THREADS: the driver lock "is for the one thread that plans and calls the driver";
     frees, and allocations that need no driver, take the state lock "alone and never wait for the
     driver".
   - SECURITY.md, Ownership: "No byte of physical memory belongs to two live blocks."
   - SECURITY.md, Failures: live blocks and the accounting "are then as they were before the
     call". Sleep: "A pool that cannot be put to sleep stays awake".
   - SECURITY.md, Threads: "Every function except destroy may be called from any thread at any
     time."
   - gmlake.h, >>entry [Y1]: "The user's logger and out-of-memory handler run with no lock held";
     >>lake [K1]; that no call waits for a lock for ever.

   Bounds: three slots of one arena, two with a chunk, and a window over these; two threads, with
   OPS calls together; in each call's handler one more call; two driver calls of a run may fail,
   so also one and its undoing. Lock and unlock are single steps: that the spin lock is one is not
   checked.

   Not in it: streams and tags (fences.pml); splits inside a chunk; a child of fork; a lake of one
   thread; buffers. */

#ifndef OPS
#define OPS 3
#endif
#define NOBODY 0
#define SLOTS 3

#define FREE 0
#define LIVE 1
#define PIECE 2
#define RESERVED 3
#define UNBACKED 4
#define QUARANTINED 5
#define EMPTY 6
#define IDLE 7
#define DYING 8 /* an alias that nobody finds: it is being made or dropped */

#define AWAKE 0
#define CHANGING 1
#define ASLEEP 2

#define OOM 1
#define POLICY 2

byte state_lock, driver_lock, turn;

/* What state_lock guards. */
byte state[SLOTS], owner[SLOTS]; /* of a live block: the thread that has it */
byte window, window_owner;
byte sleep, changer; /* who makes it CHANGING: no field of the lake's */
byte callback[3]; /* by thread: the callback that it runs */
bool asks_pool[3]; /* it is a handler for a request of the pool */
bool messages;    /* there are some for the logger */
/* What driver_lock guards; of the driver. */
bool is_backed[SLOTS], is_home[SLOTS], is_marked[SLOTS], is_quarantined[SLOTS], window_mapped;

bool pool_is_gone;
byte calls, failures;

#define IS_RESTRICTED (callback[1] || callback[2])
#define HOLDS_STATE assert(state_lock == me)
#define HOLDS_BOTH assert(state_lock == me && driver_lock == me)
/* Who holds driver_lock alone calls the driver, and nobody waits for state_lock meanwhile. */
#define DRIVES assert(driver_lock == me && state_lock != me)

inline lock_state() {
  atomic { state_lock == NOBODY -> state_lock = me }
}
inline unlock_state() {
  atomic { assert(state_lock == me); state_lock = NOBODY }
}
/* gmlk_lock_driver */
inline lock_driver() {
  unlock_state();
  atomic { turn == NOBODY -> turn = me }
  atomic {
    driver_lock == NOBODY ->
    assert(turn == NOBODY || turn == me); /* who has waited comes first */
    driver_lock = me
  }
  turn = NOBODY;
  lock_state()
}
inline unlock_driver() {
  atomic { assert(driver_lock == me); driver_lock = NOBODY }
}
inline call_driver() { /* it may refuse, twice in a run: a call, and its undoing */
  DRIVES;
  if
  :: ok = true
  :: failures < 2 -> failures++; ok = false
  fi
}
inline run_users_code() {
  assert(state_lock != me && driver_lock != me && turn != me)
}

inline take(s) {
  assert(state[s] == FREE && is_backed[s] && is_home[s]);
  assert(owner[s] == NOBODY);
  state[s] = LIVE;
  owner[s] = me
}
inline take_window() {
  assert(window_mapped && is_backed[0] && is_backed[1]);
  assert(owner[0] == NOBODY && owner[1] == NOBODY);
  window = LIVE; window_owner = me;
  state[0] = PIECE; owner[0] = me;
  state[1] = PIECE; owner[1] = me
}
/* gmlk_fast: a range, or the window. */
inline try_fast() {
  HOLDS_STATE;
  assert(!pool_is_gone);
  is_served = true;
  if
  :: !is_large && state[0] == FREE -> take(0)
  :: !is_large && state[0] != FREE && state[1] == FREE -> take(1)
  :: !is_large && state[0] != FREE && state[1] != FREE && state[2] == FREE -> take(2)
  :: is_large && window == IDLE && state[0] == FREE && state[1] == FREE -> take_window()
  :: else -> is_served = false
  fi
}
inline give_window() {
  state[0] = FREE; owner[0] = NOBODY;
  state[1] = FREE; owner[1] = NOBODY;
  window = IDLE; window_owner = NOBODY
}
/* What is backed and live, or lost, in a sleep. */
inline unmap_home(s) {
  assert(state[s] == RESERVED || sleep == ASLEEP || (state[s] == UNBACKED && !owner[s]));
  assert(!window_mapped || s == 2);
  is_home[s] = false
}

proctype thread(byte me) {
  byte i, tries;
  bool ok, is_served, is_large, is_short, is_nested, may_drive;

next_call:
  atomic {
    i = 0; tries = 0; ok = true; is_served = false; is_large = false; is_short = false;
    is_nested = false; may_drive = false;
    if
    :: calls < OPS -> calls++
    :: else -> goto over
    fi
  }
  if
  :: is_large = true; goto alloc
  :: goto alloc
  :: goto free
  :: goto trim
  :: goto question
  :: goto pool_sleep
  :: goto pool_wake
  :: goto over
  fi;

alloc:
  lock_state();
  atomic {
    HOLDS_STATE;
    assert(!pool_is_gone);
    if
    :: callback[me] -> goto leave /* gmlk_forbid_in_callback */
    :: sleep -> goto leave
    :: else -> try_fast()
    fi;
    if
    :: is_served -> goto leave
    :: else
    fi
  }
  lock_driver();
  atomic { /* gmlk_serve_slowly opens the request again */
    HOLDS_BOTH;
    assert(!pool_is_gone);
    if
    :: sleep -> goto leave_driver
    :: else
    fi;
    callback[me] = POLICY /* gmlk_callback_begin */
  }
  messages = true;
  unlock_state();
  /* the policy's function: a call of the lake is turned away, and hands no messages over */
  lock_state();
  atomic {
    HOLDS_STATE;
    if
    :: callback[me] == POLICY -> skip /* gmlk_enter_restricted: refused */
    :: else -> assert(false)
    fi;
    ok = (callback[me] == POLICY)
  }
  unlock_state();
  if
  :: !ok -> assert(driver_lock != me); messages = false /* the logger */
  :: else
  fi;
  lock_state(); /* gmlk_callback_end */
  atomic {
    HOLDS_BOTH;
    callback[me] = 0;
    try_fast();
    if
    :: is_served -> goto leave_driver
    :: !is_served && is_large && state[0] == FREE && state[1] == FREE && window == EMPTY ->
      state[0] = RESERVED;
      state[1] = RESERVED;
      window = DYING
    :: else -> goto grow
    fi
  }
  /* gmlk_stitch */
  unlock_state();
  atomic {
    call_driver();
    if
    :: ok -> window_mapped = true
    :: !ok -> call_driver(); window_mapped = !ok; ok = false /* what it has mapped is unmapped */
    fi
  }
  lock_state();
  atomic {
    HOLDS_BOTH;
    if
    :: ok ->
      state[0] = FREE; state[1] = FREE;
      take_window();
      goto leave_driver
    :: else ->
      state[0] = FREE; state[1] = FREE; /* gmlk_pieces_unreserve */
      window = (window_mapped -> QUARANTINED : EMPTY);
      is_short = true;
      goto leave_driver
    fi
  }

grow:
  atomic {
    HOLDS_BOTH;
    i = 0;
    do
    :: i < SLOTS && state[i] != UNBACKED -> i++
    :: else -> break
    od;
    if
    :: i == SLOTS || is_large -> i = 0; is_short = true; goto leave_driver
    :: else -> skip /* nobody else finds a slot without a chunk: only a planner does */
    fi
  }
  unlock_state();
  atomic {
    assert(state[i] == UNBACKED && is_backed[i] == is_quarantined[i]);
    if
    :: is_quarantined[i] -> ok = true; is_quarantined[i] = false /* it serves again */
    :: else -> call_driver(); is_backed[i] = ok /* create */
    fi
  }
  if
  :: ok ->
    atomic {
      call_driver(); /* map, set_access */
      is_home[i] = ok
    }
    if
    :: !ok -> /* undone in reverse: it is released */
      atomic { call_driver(); is_backed[i] = !ok; is_quarantined[i] = !ok; ok = false }
    :: else
    fi
  :: else
  fi;
  lock_state();
  atomic {
    HOLDS_BOTH;
    if
    :: is_backed[i] && !is_quarantined[i] ->
      state[i] = FREE;
      i = 0;
      try_fast()
    :: else -> i = 0
    fi;
    is_short = !is_served;
    goto leave_driver
  }

free:
  lock_state();
  atomic {
    HOLDS_STATE;
    if
    :: state[0] == LIVE && owner[0] == me -> state[0] = FREE; owner[0] = NOBODY
    :: state[1] == LIVE && owner[1] == me -> state[1] = FREE; owner[1] = NOBODY
    :: state[2] == LIVE && owner[2] == me -> state[2] = FREE; owner[2] = NOBODY
    :: window == LIVE && window_owner == me -> give_window()
    :: else
    fi;
    goto leave
  }

trim:
  lock_state();
  lock_driver();
  atomic { /* gmlk_trim_arena */
    HOLDS_BOTH;
    if
    :: sleep >= ASLEEP || pool_is_gone -> goto leave_driver
    :: else
    fi;
    if
    :: state[0] == FREE -> state[0] = RESERVED; is_marked[0] = true
    :: else
    fi;
    if
    :: state[2] == FREE -> state[2] = RESERVED; is_marked[2] = true
    :: else
    fi;
    if
    :: is_marked[0] && window == IDLE -> window = DYING
    :: else
    fi
  }
  unlock_state();
  if
  :: window == DYING ->
    atomic {
      call_driver(); /* unmap */
      if
      :: ok -> window_mapped = false
      :: else
      fi
    }
  :: else
  fi;
  lock_state();
  atomic {
    HOLDS_BOTH;
    if
    :: window == DYING && !window_mapped -> window = EMPTY
    :: window == DYING && window_mapped -> window = QUARANTINED
    :: else
    fi
  }
  unlock_state();
  i = 0;
  do
  :: i < SLOTS ->
    if
    :: is_marked[i] && (i == 2 || !window_mapped) ->
      atomic {
        call_driver(); /* unmap, release */
        if
        :: ok -> unmap_home(i); is_backed[i] = false
        :: else
        fi
      }
    :: else
    fi;
    i++
  :: else -> break
  od;
  lock_state();
  atomic { /* gmlk_trim_commit */
    HOLDS_BOTH;
    i = 0;
    do
    :: i < SLOTS && is_marked[i] ->
      is_marked[i] = false;
      state[i] = (is_backed[i] -> FREE : UNBACKED);
      i++
    :: i < SLOTS && !is_marked[i] -> i++
    :: else -> break
    od;
    i = 0;
    goto leave_driver
  }

question: /* gmlk_enter_to_ask: gmlake_check, gmlake_get_map */
  lock_state();
  lock_driver();
  atomic {
    HOLDS_BOTH;
    i = 0;
    do
    :: i < SLOTS ->
      assert(state[i] != RESERVED && !is_marked[i]);
      assert(sleep == ASLEEP || is_quarantined[i] || (state[i] == UNBACKED) == !is_backed[i]);
      assert(!is_backed[i] || is_home[i] || sleep == ASLEEP || is_quarantined[i]);
      assert(state[i] != FREE || owner[i] == NOBODY);
      i++
    :: else -> break
    od;
    i = 0;
    assert(window_mapped <= (window != EMPTY));
    assert(window != DYING);
    assert((window == LIVE || window == IDLE) <= (window_mapped || sleep == ASLEEP));
    goto leave_driver
  }

pool_sleep:
  lock_state();
  lock_driver();
  atomic {
    HOLDS_BOTH;
    if
    :: sleep || pool_is_gone -> goto leave_driver
    :: else -> sleep = CHANGING; changer = me
    fi
  }
  unlock_state(); /* gmlk_pool_settle waits */
  lock_state();
  atomic {
    HOLDS_BOTH;
    if
    :: window == IDLE -> window = DYING /* gmlk_pool_settle: gmlk_aliases_unmap */
    :: else
    fi;
    if
    :: window == DYING -> window_mapped = false; window = EMPTY
    :: else
    fi;
    assert(sleep == CHANGING);
    sleep = ASLEEP
  }
  unlock_state();
  atomic {
    call_driver(); /* unmaps all, or has mapped all again */
    if
    :: ok ->
      window_mapped = false;
      i = 0;
      do
      :: i < SLOTS -> is_home[i] = false; is_backed[i] = is_quarantined[i]; i++
      :: else -> break
      od;
      i = 0
    :: else
    fi
  }
  lock_state();
  atomic {
    HOLDS_BOTH;
    if
    :: !ok -> sleep = AWAKE
    :: ok && (window == IDLE || window == QUARANTINED) ->
      window = EMPTY /* it was freed meanwhile, or the driver takes it now: gmlk_aliases_forget */
    :: else
    fi;
    goto leave_driver
  }

pool_wake:
  lock_state();
  lock_driver();
  atomic {
    HOLDS_BOTH;
    if
    :: sleep != ASLEEP || pool_is_gone -> goto leave_driver
    :: sleep == ASLEEP && callback[me] -> goto leave_driver /* gmlk_forbid_in_callback */
    :: else
    fi;
    /* what was freed in its sleep: gmlk_aliases_forget, gmlk_slots_forget */
    if
    :: window == IDLE -> window = EMPTY
    :: else
    fi;
    i = 0;
    do
    :: i < SLOTS && state[i] == FREE -> state[i] = UNBACKED; i++
    :: i < SLOTS && state[i] != FREE -> is_marked[i] = (state[i] != UNBACKED); i++
    :: else -> break
    od;
    i = 0;
    may_drive = (window == LIVE) /* it is to be mapped again */
  }
  unlock_state();
  atomic {
    call_driver();
    if
    :: ok ->
      i = 0;
      do
      :: i < SLOTS ->
        is_backed[i] = is_marked[i] || is_quarantined[i];
        is_home[i] = is_marked[i];
        i++
      :: else -> break
      od;
      window_mapped = may_drive
    :: else
    fi;
    i = 0;
    do
    :: i < SLOTS -> is_marked[i] = false; i++
    :: else -> break
    od;
    i = 0
  }
  lock_state();
  atomic {
    HOLDS_BOTH;
    if
    :: ok ->
      assert((window == LIVE || window == IDLE) <= window_mapped);
      sleep = AWAKE
    :: else
    fi;
    goto leave_driver
  }

pool_destroy: /* called from a handler */
  lock_state();
  lock_driver();
  atomic {
    HOLDS_BOTH;
    if
    :: asks_pool[1] || asks_pool[2] -> goto leave_driver
    :: owner[0] || owner[1] || owner[2] -> goto leave_driver
    :: else -> pool_is_gone = true
    fi;
    goto leave_driver
  }

leave_driver:
  assert(sleep != CHANGING || changer != me);
  unlock_driver();
leave:
  atomic { ok = messages; messages = false }
  unlock_state();
  if
  :: ok -> run_users_code() /* the logger */
  :: else
  fi;
  if
  :: is_nested -> goto handled
  :: !is_nested && is_short && tries < 1 ->
    tries++;
    is_short = false;
    is_nested = true;
    lock_state(); /* gmlk_leave_short */
    atomic { HOLDS_STATE; callback[me] = OOM; asks_pool[me] = true }
    unlock_state();
    run_users_code();
    if
    :: goto alloc /* refused */
    :: goto free
    :: goto trim
    :: goto pool_destroy
    fi
  :: else -> goto next_call
  fi;
handled:
  lock_state();
  atomic { HOLDS_STATE; callback[me] = 0; asks_pool[me] = false }
  unlock_state();
  is_nested = false;
  assert(!pool_is_gone);
  goto alloc;
over:
  skip
}

init {
  atomic {
    is_backed[0] = true; is_home[0] = true;
    is_backed[1] = true; is_home[1] = true;
    state[2] = UNBACKED;
    window = EMPTY;
    run thread(1);
    run thread(2)
  }
}
