/* The library of the package gmlake_pool. setup.py says where the file is. */
#include "gmlake_pluggable.c"
