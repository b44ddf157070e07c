"""python3 -m gmlake_pool script.py arguments...    or    python3 -m gmlake_pool -m module ..."""
import os
import runpy
import sys

import gmlake_pool

if len(sys.argv) < 2 or sys.argv[1] == "--help" or sys.argv[1:] == ["-m"]:
    sys.exit(__doc__)
gmlake_pool.enable()
if sys.argv[1] == "-m":
    del sys.argv[:2]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
else:
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")
