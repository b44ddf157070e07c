#!/bin/sh
# tests/tools/same_code.py: what it takes for the same, and what not.

. tests/tools/shell.sh
program='python3 -B tests/tools/same_code.py'

cat >"$dir/old.c" <<'END'
#include <string.h>
typedef struct pair { int low, high; } pair;
static int values[3] = {1, 2, 3};
static int choose(int i) {
  static const char *const names[] = {"one", "two"};
  switch (i) {
  case 0: return 5;
  case 1: return 7;
  case 2: return 9;
  case 3: return 11;
  case 4: return (int)strlen(names[i % 2]);
  default: return values[i % 3];
  }
}
static int twice(int i) { return 2 * choose(i); }
static int thrice(int i) { return 3 * choose(i); }
static void set(pair *p) { p->low = twice(1); p->high = thrice(2); }
int shown(int i) { pair p; set(&p); return p.low + p.high * i; }
END

# edit NAME STATUS SED: the file after that edit is, or is not, the same.
edit() {
  sed "$3" "$dir/old.c" >"$dir/new.c"
  ok "$1: edited" test -n "$(diff "$dir/old.c" "$dir/new.c")"
  ok "$1" run "$2" "$dir/old.c" "$dir/new.c"
}

cp "$dir/old.c" "$dir/new.c"
gives 'nothing changed' 'the same 5 functions' "$dir/old.c" "$dir/new.c"
edit 'a function renamed' 0 's/choose/pick/'
edit 'types, fields and data renamed' 0 's/pair/couple/g; s/low/first/g; s/values/figures/; s/names/texts/'
sed -n '/^static int twice/p' "$dir/old.c" >"$dir/line"
sed -e '/^static int twice/d' -e "/^static int thrice/r $dir/line" "$dir/old.c" >"$dir/new.c"
ok 'functions in another order' run 0 "$dir/old.c" "$dir/new.c"
edit 'a comment and an assertion' 0 '1a #include <assert.h>
s/^static void set(pair \*p) {/& assert(p);/'
edit 'a number' 1 's/return 7/return 8/'
ok 'a number: where' prints 'only in the new one: choose'
edit 'a table' 1 's/1, 2, 3/1, 2, 4/'
ok 'a table: where' prints 'uses other functions or data than before: choose'
edit 'a text' 1 's/"two"/"six"/'
edit 'another function called' 1 's/= twice(1)/= thrice(1)/'
edit 'another library function' 1 's/strlen/strlen(names[0]) + strlen/'
edit 'fields in another order' 1 's/int low, high/int high, low/'
edit 'a public name' 1 's/shown/seen/'
edit 'no C' 2 's/return/retrun/'
ok 'one file' run 2 "$dir/old.c"
headers=gmlake_bfc.h
if [ "$whole" = yes ]; then headers='gmlake.h gmlake_bfc.h gmlake_offload.h gmlake_turnip.h'; fi
for header in $headers; do
  ok "$header" run 0 "$header" "$header"
done

report
