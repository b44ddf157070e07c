# make           builds build/replay
# make replay    replays the traces of bench/traces: memory and driver time of each allocator
# make bench     measures what an allocation costs the processor, in each allocator
# make offload   plans and runs the graphs of bench/graphs in less memory, on a mock clock, by
#                TENSILE and by TURNIP
# make offload-gpu  runs some of them on a GPU; without one it says so and succeeds
# make test      builds and runs all tests; TEST_JOBS at a time, each for TEST_TIMEOUT seconds at most
#                (3600; 0: no limit)
# make gpu-test  the tests that need a GPU; without one it says so and succeeds
# make gpu-bench measures the driver, the lake and its peers on a GPU; likewise
# make soak      for SOAK_SECONDS each, from SOAK_SEED on: random lakes against the model, the traces
#                over and over through one lake, threads under the thread sanitizer
# make exhaustive  every fault in every scenario: minutes
# make mutate    plants MUTANTS small defects, drawn by SEED, and counts those that no test notices:
#                hours; JOBS at a time, MUTATE has further options of tests/mutate.py
# make coverage  lines, branches and MC/DC of the headers that the tests reach: half an hour
# make examples  builds the examples into build/examples
# make torch     builds build/gmlake_torch.so, for examples/torch/gmlake_torch.py
# make cupy      builds build/gmlake_cupy.so, for examples/cupy/gmlake_cupy.py
# make plots     draws memory over time into build/plots, and the figures of README.md
# make sweep     replays the traces by a grid of policies and knobs: table and picture, build/sweep
# make format    formats the sources
# replay, bench, offload, test, mutate, coverage, torch, cupy, plots and sweep first install what
# they need, on Debian and Ubuntu.

CC ?= cc
WARNINGS = -Wall -Wextra -Werror
DEPENDENCIES = -MMD -MP -MF $@.d -MT $@
LIBS = -lpthread -ldl
TEST_PROGRAMS = $(patsubst tests/%.c,build/%,$(sort $(wildcard tests/test_*.c)))
TEST_SCRIPTS = $(sort $(wildcard tests/test_*.sh))
EXAMPLES = $(addprefix build/,$(basename $(wildcard examples/*.c examples/*.cpp))) \
  build/examples/kv_server_cuda build/examples/offload_optimizer_cuda
SOURCES = $(wildcard *.h bench/*.[ch] bench/*/*.[ch] bench/*.cpp tests/*.[ch] tests/*/*.[ch] \
  tests/*/*.cpp examples/*.[ch] examples/*.cpp examples/*/*.c)
YARDSTICK = build/peer_bfc_set.so
POLICY = build/policy_worst_fit.so
CLIENTS = build/gmlake_torch.so build/gmlake_cupy.so build/client_torch build/client_ggml
FAKE = build/fake/libcuda.so.1
# The GPU's programs need declarations only: the toolkit's where it is installed, else our own.
CUDA_HOME ?= /usr/local/cuda
CUDA_INCLUDE = $(firstword $(patsubst %/cuda.h,-I%,$(wildcard $(CUDA_HOME)/include/cuda.h)) \
  -Itests/cuda_stub)
# As many at once as there are processors, unless the caller has said how many.
SUBMAKE = +@$(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))

export CC CXX

all: build/replay

replay: deps-replay
	$(SUBMAKE) build/replay
	@build/replay

bench: deps-bench
	$(SUBMAKE) build/bench $(YARDSTICK)
	@build/bench

offload: deps-replay
	$(SUBMAKE) build/offload build/turnip
	@build/offload
	@build/turnip

offload-gpu: deps-replay
	$(SUBMAKE) build/offload_gpu
	@build/offload_gpu

test: deps-test
	$(SUBMAKE) build/replay build/offload build/offload_gpu build/turnip $(POLICY) $(FAKE) build/bench \
	  $(YARDSTICK) build/gpu_test build/gpu_bench $(CLIENTS) $(TEST_PROGRAMS)
	@sh tests/run.sh $(TEST_SCRIPTS) $(TEST_PROGRAMS)

SOAK_SECONDS ?= 600
SOAK_SEED ?= $(shell date +%s)
soak: deps-test
	$(SUBMAKE) build/test_model build/test_soak build/test_threads.tsan
	@build/test_model --seconds $(SOAK_SECONDS) --seed $(SOAK_SEED)
	@build/test_soak --seconds $(SOAK_SECONDS) --seed $(SOAK_SEED)
	@build/test_threads.tsan --seconds $(SOAK_SECONDS)

exhaustive: deps-test
	$(SUBMAKE) build/test_exhaustive
	@build/test_exhaustive --full

MUTANTS ?= 500
SEED ?= 1
JOBS ?= 2
mutate: deps-mutate
	$(SUBMAKE) $(FAKE)
	@python3 -B tests/mutate.py --mutants $(MUTANTS) --seed $(SEED) --jobs $(JOBS) $(MUTATE)

coverage: deps-mutate
	$(SUBMAKE) $(FAKE)
	@python3 -B tests/coverage.py
	@python3 -B tests/mcdc.py

gpu-test: deps-replay
	$(SUBMAKE) $(FAKE) build/gpu_test
	@build/gpu_test

gpu-bench: deps-replay
	$(SUBMAKE) build/gpu_bench
	@build/gpu_bench

examples: $(EXAMPLES)

torch cupy: deps-replay
	$(SUBMAKE) build/gmlake_$@.so

plots: deps-plots
	$(SUBMAKE) build/replay
	@sh bench/plots.sh bench/traces/*.gmtrace.gz
	@cp build/plots/gpt2-xl-R-dyn.png bench/figure.png
	@python3 bench/torch/report.py --plot bench/torch/figure.png bench/torch/h200.json \
	  bench/torch/h200x2.json | gnuplot

sweep: deps-plots
	$(SUBMAKE) build/replay $(POLICY)
	@sh bench/sweep.sh
	@cp build/sweep/sweep.png bench/sweep.png

deps-%:
	@sh tests/deps.sh $*

format:
	clang-format -i $(SOURCES)

clean:
	rm -rf build

build build/examples build/fake:
	mkdir -p $@

build/replay: bench/replay.c Makefile | build
	$(CC) -std=c99 -O2 -g $(WARNINGS) $(DEPENDENCIES) -I. $(CPPFLAGS) $(CFLAGS) $< -o $@ \
	  $(LDFLAGS) -lz $(LIBS) $(LDLIBS)

# Compiling takes longer than running, but for these.
LEVEL = -O0
build/test_model build/test_offload build/test_soak build/test_turnip build/test_worlds: LEVEL = -O1

build/test_%: tests/test_%.c Makefile | build
	$(CC) -std=c99 $(LEVEL) -g $(WARNINGS) $(DEPENDENCIES) -I. -Ibench -Itests/cuda_stub $(CPPFLAGS) \
	  $(CFLAGS) $< -o $@ $(LDFLAGS) -lcmocka -lz $(LIBS) -lm $(LDLIBS)

# Counts steps. Only what is tested is compiled so that it can be counted.
build/test_steps: tests/test_steps.c tests/step_count.c Makefile | build
	$(CC) -std=c99 -O1 -c tests/step_count.c -o $@.count.o
	$(CC) -std=c99 -O1 -g -fsanitize-coverage=trace-pc $(WARNINGS) $(DEPENDENCIES) -I. -Ibench \
	  $(CPPFLAGS) $(CFLAGS) $< $@.count.o -o $@ $(LDFLAGS) -lcmocka -lz $(LIBS) -lm $(LDLIBS)

build/test_%.tsan: tests/test_%.c Makefile | build
	$(CC) -std=c99 -O1 -g -fsanitize=thread $(WARNINGS) $(DEPENDENCIES) -I. -Ibench $(CPPFLAGS) \
	  $(CFLAGS) $< -o $@ $(LDFLAGS) -lcmocka $(LIBS) $(LDLIBS)

$(FAKE): tests/fake_cuda.c Makefile | build/fake
	$(CC) -std=c99 -O1 -g $(WARNINGS) $(DEPENDENCIES) -shared -fPIC -fvisibility=hidden -I. \
	  -Itests/cuda_stub $(CPPFLAGS) $(CFLAGS) $< -o $@ $(LDFLAGS) -Wl,-soname,libcuda.so.1 $(LIBS)

build/bench: bench/bench.c Makefile | build
	$(CC) -std=gnu99 -O2 -g $(WARNINGS) $(DEPENDENCIES) -I. -Ibench $(CPPFLAGS) $(CFLAGS) $< -o $@ \
	  $(LDFLAGS) -lz $(LIBS) -lm $(LDLIBS)

build/offload: bench/offload/plan.c Makefile | build
	$(CC) -std=gnu99 -O2 -g $(WARNINGS) $(DEPENDENCIES) -I. $(CPPFLAGS) $(CFLAGS) $< -o $@ \
	  $(LDFLAGS) -lz $(LDLIBS)

build/offload_gpu: bench/offload/gpu.c Makefile | build
	$(CC) -std=gnu99 -O2 -g $(WARNINGS) $(DEPENDENCIES) -I. $(CUDA_INCLUDE) $(CPPFLAGS) $(CFLAGS) $< \
	  -o $@ $(LDFLAGS) -lz $(LIBS) $(LDLIBS)

build/turnip: bench/offload/turnip.c Makefile | build
	$(CC) -std=gnu99 -O2 -g $(WARNINGS) $(DEPENDENCIES) -I. $(CPPFLAGS) $(CFLAGS) $< -o $@ \
	  $(LDFLAGS) -lz $(LDLIBS)

$(YARDSTICK): bench/bfc_set.cpp Makefile | build
	$(CXX) -std=c++11 -O2 -g $(WARNINGS) $(DEPENDENCIES) -shared -fPIC $(CPPFLAGS) $(CXXFLAGS) $< \
	  -o $@ $(LDFLAGS)

build/policy_%.so: bench/policy_%.c Makefile | build
	$(CC) -std=c99 -O2 -g $(WARNINGS) $(DEPENDENCIES) -shared -fPIC -I. -Ibench $(CPPFLAGS) \
	  $(CFLAGS) $< -o $@ $(LDFLAGS)

build/gpu_test: tests/gpu_test.c Makefile | build
	$(CC) -std=c99 -O1 -g $(WARNINGS) $(DEPENDENCIES) -I. -Ibench $(CUDA_INCLUDE) $(CPPFLAGS) \
	  $(CFLAGS) $< -o $@ $(LDFLAGS) $(LIBS) $(LDLIBS)

build/gpu_bench: bench/gpu_bench.c Makefile | build
	$(CC) -std=c99 -O2 -g $(WARNINGS) $(DEPENDENCIES) -I. -Ibench $(CUDA_INCLUDE) $(CPPFLAGS) \
	  $(CFLAGS) $< -o $@ $(LDFLAGS) -lz $(LIBS) $(LDLIBS)

build/gmlake_%.so: Makefile | build
	$(CC) -std=c99 -O2 -g $(WARNINGS) $(DEPENDENCIES) -shared -fPIC -fvisibility=hidden -fexceptions \
	  -I. $(CUDA_INCLUDE) $(CPPFLAGS) $(CFLAGS) examples/$*/gmlake_$*.c -o $@ $(LDFLAGS) $(LIBS) \
	  $(LDLIBS)

build/gmlake_torch.so: examples/torch/gmlake_torch.c
build/gmlake_cupy.so: examples/cupy/gmlake_cupy.c

build/client_torch: tests/clients/torch.c Makefile | build
	$(CC) -std=c99 -O1 -g $(WARNINGS) $(DEPENDENCIES) -I. -Ibench -Itests -Itests/cuda_stub \
	  $(CPPFLAGS) $(CFLAGS) $< -o $@ $(LDFLAGS) $(LIBS) $(LDLIBS)

build/client_ggml: tests/clients/ggml.cpp Makefile | build
	$(CXX) -std=c++11 -O1 -g $(WARNINGS) $(DEPENDENCIES) -I. $(CPPFLAGS) $(CXXFLAGS) $< -o $@ \
	  $(LDFLAGS) -lcmocka $(LIBS) $(LDLIBS)

build/examples/%: examples/%.c Makefile | build/examples
	$(CC) -std=c99 -g $(WARNINGS) $(DEPENDENCIES) -I. $(CPPFLAGS) $(CFLAGS) $< -o $@ \
	  $(LDFLAGS) $(LIBS) $(LDLIBS)

# Links the driver's names: at run time they are the machine's driver's, where it has one.
build/examples/fragmentation: examples/fragmentation.c $(FAKE) Makefile | build/examples
	$(CC) -std=c99 -g $(WARNINGS) $(DEPENDENCIES) -I. $(CUDA_INCLUDE) $(CPPFLAGS) $(CFLAGS) $< \
	  -o $@ $(LDFLAGS) $(FAKE) $(LIBS) $(LDLIBS)

build/examples/kv_server_cuda: examples/kv_server.c $(FAKE) Makefile | build/examples
	$(CC) -std=c99 -g $(WARNINGS) $(DEPENDENCIES) -I. $(CUDA_INCLUDE) -DKV_SERVER_CUDA $(CPPFLAGS) \
	  $(CFLAGS) $< -o $@ $(LDFLAGS) $(FAKE) $(LIBS) $(LDLIBS)

build/examples/offload_optimizer_cuda: examples/offload_optimizer.c $(FAKE) Makefile | build/examples
	$(CC) -std=c99 -g $(WARNINGS) $(DEPENDENCIES) -I. $(CUDA_INCLUDE) -DOFFLOAD_CUDA $(CPPFLAGS) \
	  $(CFLAGS) $< -o $@ $(LDFLAGS) $(FAKE) $(LIBS) $(LDLIBS)

build/examples/%: examples/%.cpp Makefile | build/examples
	$(CXX) -std=c++11 -g $(WARNINGS) $(DEPENDENCIES) -I. $(CPPFLAGS) $(CXXFLAGS) $< -o $@ \
	  $(LDFLAGS) $(LIBS) $(LDLIBS)

-include $(wildcard build/*.d build/examples/*.d)

.PHONY: all replay bench offload offload-gpu test soak exhaustive mutate coverage gpu-test gpu-bench \
  examples torch cupy plots sweep format clean
