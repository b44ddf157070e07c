# make           builds build/replay
# make replay    replays the traces of bench/traces, or TRACES: memory and driver time of each
#                allocator
# make bench     measures what an allocation costs the processor, in each allocator
# make offload   plans and runs the graphs of bench/graphs in less memory, on a mock clock, by
#                TENSILE, by TURNIP and under sessions
# make offload-gpu  runs some of them on a GPU; without one it says so and succeeds
# make papers    writes bench/offload/PAPERS.md, the papers' tables beside ours: ten minutes
# make help      prints this
# make quick     the gate of a minute: the traces, and the tests that find most
# make test      builds and runs all tests; TEST_JOBS at a time, each for TEST_TIMEOUT seconds at most
#                (3600; 0: no limit)
# make gpu-test  the tests that need a GPU; without one it says so and succeeds
# make doctor    says what this machine's driver and devices allow, and what of gmlake works here
# make gpu-bench measures the driver, the lake and its peers on a GPU; likewise
# make soak      for SOAK_SECONDS each, from SOAK_SEED on: random lakes against the model, and under
#                clocks of their own, the traces over and over through one lake, threads under the
#                thread sanitizer
# make fuzz      looks for inputs that break a target of tests/fuzz, FUZZ_SECONDS in each
# make nightly   all that there is to prove, whole: hours; tests/nightly.txt says when that last passed
# make exhaustive  every fault in every scenario: minutes
# make mutate    plants MUTANTS small defects, drawn by SEED, and counts those that no test notices:
#                hours; JOBS at a time, MUTATE has further options of tests/tools/mutate.py
# make planted   plants the defects of tests/tools/planted.txt, made up by hand, one at a time; names
#                of some, or further options of tests/tools/planted.py, in PLANTED
# make proof     what machines prove of the headers' real source, within the bounds that SOUNDNESS.md
#                tells: at most 20 minutes; names of some of it in PROOF
# make coverage  lines and branches of the headers that the tests reach: minutes
# make install   copies the headers, and files for pkg-config and find_package, below DESTDIR PREFIX
#                (/usr/local); make uninstall removes them. CMakeLists.txt does so for CMake
# make dist      writes a release of the commit: an archive, the headers, SHA256SUMS into build/dist
# make deb       writes build/libgmlake-dev_VERSION_all.deb, the Debian package of what is installed
# make manual    writes the headers' and examples' comments as one page, build/manual.html
# make examples  builds the examples into build/examples
# make torch     builds build/gmlake_pluggable.so, for examples/torch_pool and others
# make cupy      builds build/gmlake_cupy.so, for examples/cupy/gmlake_cupy.py
# make preload   builds build/libgmlake_preload.so: see examples/preload
# make plots     draws memory over time into build/plots, with the figures of README.md and bench
# make sweep     replays the traces by a grid of policies and knobs: table and picture, build/sweep.
#                PUBLISH=yes: both also replace the pictures that git has
# make format    formats the sources; make check-format says what it would change
# make programs, make test-programs  build what make test runs, and the examples
# replay, bench, offload, test, fuzz, mutate, planted, coverage, torch, cupy, preload, plots and sweep
# first install what they need, on Debian and Ubuntu, and name it before; INSTALL_PACKAGES=no only
# names it.
# BUILD=FOLDER builds there in place of build, and writes nothing beside the sources.

BUILD = build
CC ?= cc
WARNINGS = -Wall -Wextra -Werror
DEPENDENCIES = -MMD -MP -MF $@.d -MT $@
LIBS = -lpthread -ldl
TEST_PROGRAMS = $(addprefix $(BUILD)/,$(basename $(notdir $(wildcard tests/*/test_*.c))))
TEST_SCRIPTS = $(wildcard tests/*/test_*.sh)
vpath test_%.c $(sort $(dir $(wildcard tests/*/test_*.c)))
PUBLIC = gmlake.h gmlake_bfc.h gmlake_offload.h gmlake_turnip.h
INSTALLED = $(PUBLIC) examples/gmlake.hpp
EXAMPLES = $(addprefix $(BUILD)/,$(basename $(wildcard examples/*.c examples/*_*.cpp)) \
  examples/kv_server_cuda examples/two_models_cuda examples/weights_cuda examples/experts_cuda \
  examples/offload_optimizer_cuda examples/share_cuda examples/three_servers_cuda)
SOURCES = $(wildcard *.h bench/*.[ch] bench/*/*.[ch] bench/*.cpp tests/*.h tests/*/*.[ch] \
  tests/*/*.cpp tests/port/windows/*.h tests/clients/ggml_stub/*.h examples/*.[ch] \
  examples/*.hpp examples/*_*.cpp examples/*/*.[ch] examples/*/*.[ch]pp)
HEADERS = $(PUBLIC:%.h=$(BUILD)/%.o)
FUZZ = $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
YARDSTICK = $(BUILD)/peer_bfc_set.so
POLICY = $(BUILD)/policy_worst_fit.so
CLIENTS = $(addprefix $(BUILD)/,gmlake_pluggable.so gmlake_cupy.so libgmlake_preload.so \
  client_torch_allocator client_torch_allocator_old client_ggml client_ggml_cuda client_adapters \
  client_preload)
FAKE = $(BUILD)/fake/libcuda.so.1
PROGRAMS = $(addprefix $(BUILD)/,replay streams lend lend_cuda offload offload_gpu offload_session \
  turnip bench gpu_test gpu_play gpu_bench doctor) \
  $(POLICY) $(FAKE) $(YARDSTICK) $(CLIENTS)
# The GPU's programs need declarations only: the toolkit's where it is installed, else our own.
CUDA_HOME ?= /usr/local/cuda
CUDA_INCLUDE = $(firstword $(patsubst %/cuda.h,-isystem%,$(wildcard $(CUDA_HOME)/include/cuda.h)) \
  -Itests/cuda_stub)
# What calls the driver by its functions' names finds them late, and says so where there is no driver.
LATE = bench/late_driver.c
# As many at once as there are processors, unless the caller has said how many.
# It says of each file which of how many it is.
SAY =
SUBMAKE = +@MAKE='$(MAKE)' sh tests/tools/build.sh $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))

# The programs and scripts that look for what is built.
BUILD_DEFINE = -DBUILD='"$(BUILD)"'
export CC CXX BUILD

ifneq ($(words $(BUILD)),1)
  $(error BUILD is '$(BUILD)': make cannot build into a folder whose name has a space)
endif

all: $(BUILD)/replay

replay: deps-replay
	$(SUBMAKE) $(BUILD)/replay
	@$(BUILD)/replay $(TRACES)

bench: deps-bench
	$(SUBMAKE) $(BUILD)/bench $(YARDSTICK)
	@$(BUILD)/bench

offload: deps-replay
	$(SUBMAKE) $(BUILD)/offload $(BUILD)/turnip $(BUILD)/offload_session
	@$(BUILD)/offload
	@$(BUILD)/turnip
	@$(BUILD)/offload_session --mock

offload-gpu: deps-replay
	$(SUBMAKE) $(BUILD)/offload_gpu $(BUILD)/offload_session
	@$(BUILD)/offload_gpu
	@$(BUILD)/offload_session --gpu

PAPERS = bench/offload/PAPERS.md
papers: deps-manual
	$(SUBMAKE) $(BUILD)/offload $(BUILD)/turnip
	@python3 -B bench/offload/papers.py --build $(BUILD) >$(PAPERS).new && mv $(PAPERS).new $(PAPERS)

test: test-build
	@sh tests/tools/run.sh $(TEST_SCRIPTS) $(TEST_PROGRAMS)

test-build: deps-test
	$(SUBMAKE) FAST=$(TESTED) $(PROGRAMS) $(EXAMPLES) test-programs

QUICK = $(addprefix $(BUILD)/test_,rows judge faults random lake streams misuse buffers bfc turnip)
quick: deps-test
	$(SUBMAKE) FAST=$(TESTED) $(BUILD)/replay $(POLICY) $(QUICK)
	@sh tests/tools/run.sh tests/tools/test_replay.sh $(QUICK)

help:
	@sed -n 's/^# \{0,1\}//; T; p; /BUILD=FOLDER/q' Makefile

programs: $(PROGRAMS) $(EXAMPLES)
test-programs: $(TEST_PROGRAMS) $(FUZZ) $(FAKE)
headers: $(HEADERS)

SOAK_SECONDS ?= 600
SOAK_SEED ?= $(shell date +%s)
soak: deps-test
	$(SUBMAKE) $(addprefix $(BUILD)/test_,random soak threads.tsan)
	@$(BUILD)/test_random --seconds $(SOAK_SECONDS) --seed $(SOAK_SEED)
	@$(BUILD)/test_soak --seconds $(SOAK_SECONDS) --seed $(SOAK_SEED)
	@$(BUILD)/test_threads.tsan --seconds $(SOAK_SECONDS)

FUZZ_SECONDS ?= 1800
fuzz: deps-fuzz
	@BUILD='$(BUILD)' sh tests/fuzz/search.sh all $(FUZZ_SECONDS)

nightly:
	@bash .ci/run nightly

exhaustive: deps-test
	$(SUBMAKE) $(BUILD)/test_faults
	@$(BUILD)/test_faults --full

MUTANTS ?= 500
SEED ?= 1
JOBS ?= 2
mutate: deps-mutate
	@python3 -B tests/tools/mutate.py --mutants $(MUTANTS) --seed $(SEED) --jobs $(JOBS) $(MUTATE)

proof: deps-proof
	@python3 -B tests/proof/proof.py $(PROOF)

planted: deps-mutate
	@python3 -B tests/tools/planted.py --jobs $(JOBS) $(PLANTED)

coverage: deps-mutate
	@python3 -B tests/tools/coverage.py --jobs $(JOBS)

gpu-test: deps-replay
	$(SUBMAKE) $(FAKE) $(BUILD)/gpu_test $(BUILD)/gpu_play $(BUILD)/lend_cuda \
	  $(addprefix $(BUILD)/examples/,share_cuda three_servers_cuda experts_cuda)
	@$(BUILD)/gpu_play
	@$(BUILD)/gpu_test
	@sh tests/gpu/sanitizer.sh
	@if nvidia-smi -L >/dev/null 2>&1; then $(BUILD)/lend_cuda && \
	  $(BUILD)/examples/share_cuda 1000 100 && $(BUILD)/examples/three_servers_cuda && \
	  $(BUILD)/examples/experts_cuda; fi

doctor: deps-replay
	$(SUBMAKE) $(BUILD)/doctor
	@$(BUILD)/doctor

gpu-bench: deps-replay
	$(SUBMAKE) $(BUILD)/gpu_bench
	@$(BUILD)/gpu_bench

manual: deps-manual
	@python3 -B bench/manual.py $(BUILD)/manual.html
	@echo $(BUILD)/manual.html

PREFIX ?= /usr/local
INSTALL_INCLUDE = $(PREFIX)/include
INSTALL_PKGCONFIG = $(PREFIX)/lib/pkgconfig
INSTALL_CMAKE = $(PREFIX)/lib/cmake/gmlake
VERSION = $(shell awk '$$1 ~ /define/ && $$2 == "GMLAKE_VERSION" { \
  printf "%d.%d.%d", $$3 / 10000, $$3 / 100 % 100, $$3 % 100 }' gmlake.h)
# CMake writes what find_package reads. Without it the rest is installed all the same.
install:
	@if ! command -v cmake >/dev/null; then \
	  echo 'there is no cmake here: find_package(gmlake) will not find what is installed'; \
	else \
	  work=$$(mktemp -d) && trap 'rm -rf "$$work"' EXIT && include="$(INSTALL_INCLUDE)" && \
	  cmake -S . -B "$$work" "-DCMAKE_INSTALL_PREFIX=$(PREFIX)" -DCMAKE_INSTALL_LIBDIR=lib \
	    "-DCMAKE_INSTALL_INCLUDEDIR=$${include#"$(PREFIX)"/}" >/dev/null && \
	  DESTDIR="$(DESTDIR)" cmake --install "$$work" >/dev/null && echo "$(DESTDIR)$(INSTALL_CMAKE)"; \
	fi
	install -d "$(DESTDIR)$(INSTALL_INCLUDE)" "$(DESTDIR)$(INSTALL_PKGCONFIG)"
	install -m 644 $(INSTALLED) "$(DESTDIR)$(INSTALL_INCLUDE)"
	@plain() { printf '%s' "$$1" | sed 's/[\\&|]/\\&/g'; } && \
	sed -e "s|@prefix@|$$(plain "$(PREFIX)")|" -e "s|@includedir@|$$(plain "$(INSTALL_INCLUDE)")|" \
	  -e 's|@version@|$(VERSION)|' packaging/gmlake.pc.in >"$(DESTDIR)$(INSTALL_PKGCONFIG)/gmlake.pc"

uninstall:
	cd "$(DESTDIR)$(INSTALL_INCLUDE)" && rm -f $(notdir $(INSTALLED))
	rm -f "$(DESTDIR)$(INSTALL_PKGCONFIG)/gmlake.pc"
	rm -rf "$(DESTDIR)$(INSTALL_CMAKE)"

dist:
	@sh packaging/dist.sh '$(BUILD)/dist' $(VERSION) $(INSTALLED)

deb:
	@MAKE='$(MAKE)' sh packaging/deb.sh '$(BUILD)' $(VERSION)

examples: $(EXAMPLES)

torch: deps-replay
	$(SUBMAKE) $(BUILD)/gmlake_pluggable.so

cupy: deps-replay
	$(SUBMAKE) $(BUILD)/gmlake_cupy.so

preload: deps-replay
	$(SUBMAKE) $(BUILD)/libgmlake_preload.so

plots: deps-plots
	$(SUBMAKE) $(BUILD)/replay
	@sh bench/plots.sh bench/traces/*.gmtrace.gz
	@python3 bench/torch/report.py --plot $(BUILD)/plots/torch.png bench/torch/h200.json \
	  bench/torch/h200x2.json | gnuplot
	@python3 bench/torch/batches.py --plot $(BUILD)/plots/batches.png bench/torch/batches.json | gnuplot
	@[ '$(PUBLISH)' != yes ] || { cp $(BUILD)/plots/gpt2-xl-R-dyn.png bench/figure.png && \
	  cp $(BUILD)/plots/torch.png bench/torch/figure.png && \
	  cp $(BUILD)/plots/batches.png bench/torch/batches.png; }

sweep: deps-plots
	$(SUBMAKE) $(BUILD)/replay $(POLICY)
	@sh bench/sweep.sh
	@[ '$(PUBLISH)' != yes ] || cp $(BUILD)/sweep/sweep.png bench/sweep.png

deps-%:
	@sh tests/tools/deps.sh $*

format:
	clang-format -i $(SOURCES)

check-format:
	clang-format --dry-run -Werror $(SOURCES)

clean:
	rm -rf $(BUILD)

$(BUILD) $(BUILD)/examples $(BUILD)/fake $(BUILD)/fuzz $(BUILD)/impl:
	mkdir -p $@

# A header as a file of its own, with all that it implements.
IMPLEMENTATIONS = $(addprefix -DGMLAKE_,IMPLEMENTATION BACKEND_MOCK BACKEND_CUDA \
  BFC_IMPLEMENTATION OFFLOAD_IMPLEMENTATION OFFLOAD_BACKEND_MOCK OFFLOAD_BACKEND_CUDA \
  TURNIP_IMPLEMENTATION)
$(BUILD)/%.o: %.h Makefile | $(BUILD)
	$(SAY)
	$(CC) -std=c99 -O1 $(WARNINGS) $(DEPENDENCIES) $(IMPLEMENTATIONS) -I. -Itests/cuda_stub \
	  $(CPPFLAGS) $(CFLAGS) -x c -c $< -o $@

# What is measured is optimised. `make test` takes TESTED, as do the sanitizers' builds: -O0
# compiles in a fifth of the time, and clang, if there, in a third of that: it takes cc's place. What
# was compiled at another level is then compiled anew.
FAST = -O2
TESTED = -O0
LEVEL_IS = $(BUILD)/impl/level
$(LEVEL_IS): FORCE
	+@mkdir -p $(@D) && echo '$(FAST)' | cmp -s - $@ || echo '$(FAST)' >$@
FORCE:
# What plans runs longer than it is compiled.
PLANS = $(if $(filter -O0,$(FAST)),$(LONG),$(FAST))

unoptimised = $(if $(filter -O0,$(1)),$(2),$(3))
HAS_CLANG := $(shell command -v clang++)
C_AT = $(call unoptimised,$(1),$(if $(HAS_CLANG),$(patsubst cc,clang,$(CC)),$(CC)),$(CC))
CXX_AT = $(call unoptimised,$(1),$(if $(HAS_CLANG),$(patsubst g++,clang++,$(CXX)),$(CXX)),$(CXX))

# Lines in what debuggers and sanitizers show, in the form that Debian 12's valgrind reads; with
# DEBUG=-g variables too.
DEBUG = -g1 -gdwarf-4

# ---- Implementations that are compiled once, for what knows the public interface alone ----
# DONE tells a source that what it asks for is elsewhere. MOCK is the lake on the mock alone, where a
# description without a backend means the mock; BOTH, with the CUDA backend, where it means CUDA;
# BFC; OFFLOAD with TURNIP, on the mock; OFFLOAD_LAKE for sessions, too; OFFLOAD_BOTH with BOTH, on
# whose CUDA backend offload's stands; and TEST, MOCK whose assertions end a case.
DONE = -D_GNU_SOURCE -DGMLAKE_IMPLEMENTATION_DONE -DGMLAKE_BFC_IMPLEMENTATION_DONE \
  -DGMLAKE_OFFLOAD_IMPLEMENTATION_DONE -DGMLAKE_TURNIP_IMPLEMENTATION_DONE
MOCK = $(BUILD)/impl/mock.o
BOTH = $(BUILD)/impl/both.o
BFC = $(BUILD)/impl/bfc.o
OFFLOAD = $(BUILD)/impl/offload.o
OFFLOAD_LAKE = $(BUILD)/impl/offload_lake.o
OFFLOAD_BOTH = $(BUILD)/impl/offload_both.o
TEST = $(BUILD)/impl/test.o

$(MOCK) $(BOTH) $(TEST): private SOURCE = gmlake.h
$(BFC): private SOURCE = gmlake_bfc.h
$(OFFLOAD) $(OFFLOAD_LAKE) $(OFFLOAD_BOTH): private SOURCE = gmlake_turnip.h
$(MOCK): private DEFINES = -DGMLAKE_IMPLEMENTATION -DGMLAKE_BACKEND_MOCK
$(BOTH): private DEFINES = -DGMLAKE_IMPLEMENTATION -DGMLAKE_BACKEND_MOCK -DGMLAKE_BACKEND_CUDA
$(TEST): private DEFINES = -DGMLAKE_IMPLEMENTATION -DGMLAKE_BACKEND_MOCK -include tests/every_test.h
IMPLEMENTED = $(FAST)
$(TEST): private IMPLEMENTED = -O0
$(OFFLOAD): private IMPLEMENTED = $(PLANS)
$(BFC): private DEFINES = -DGMLAKE_BFC_IMPLEMENTATION
$(OFFLOAD) $(OFFLOAD_LAKE): private DEFINES = $(addprefix -DGMLAKE_,TURNIP_IMPLEMENTATION \
  $(addprefix OFFLOAD_,IMPLEMENTATION BACKEND_MOCK $(if $(findstring lake,$@),LAKE)))
$(OFFLOAD_BOTH): private DEFINES = $(filter-out %_BFC_IMPLEMENTATION,$(IMPLEMENTATIONS))
$(MOCK) $(BOTH) $(BFC) $(OFFLOAD) $(OFFLOAD_LAKE) $(OFFLOAD_BOTH): $(LEVEL_IS)
$(TEST): tests/every_test.h
$(MOCK) $(BOTH) $(BFC) $(OFFLOAD) $(OFFLOAD_LAKE) $(OFFLOAD_BOTH) $(TEST): $(PUBLIC) Makefile \
  | $(BUILD)/impl
	$(SAY)
	$(call C_AT,$(IMPLEMENTED)) -std=gnu99 $(IMPLEMENTED) $(DEBUG) $(WARNINGS) -I. -Itests/cuda_stub $(DEFINES) $(CPPFLAGS) \
	  $(CFLAGS) -x c -c $(SOURCE) -o $@

# ---- Programs and libraries ----
# Each is made of the sources, objects and libraries among its prerequisites, by LINK; but a source
# that another includes stands there by a path with `..`. What differs:
# LEVEL, STANDARD and CXX_STANDARD, DEFINES, what is found before other headers (STUBS), what is
# linked (LIBRARIES) and how (SHARED).
LEVEL = -O0
STANDARD = c99
CXX_STANDARD = c++11
LIBRARIES = -lz -lm
LINK = $(if $(filter %.cpp,$^),$(call CXX_AT,$(LEVEL)) -std=$(CXX_STANDARD), \
  $(call C_AT,$(LEVEL)) -std=$(STANDARD)) $(LEVEL) $(DEBUG) $(WARNINGS) $(DEPENDENCIES) $(BUILD_DEFINE) $(if $(filter $(BUILD)/impl/%.o,$^),$(DONE)) $(DEFINES) \
  -I. $(STUBS) -Ibench -Itests $(CUDA_INCLUDE) $(SHARED) $(CPPFLAGS) \
  $(if $(filter %.cpp,$^),$(CXXFLAGS),$(CFLAGS)) \
  $(foreach f,$(filter %.c %.cpp %.o %.so.1,$^),$(if $(findstring /../,$f),,$f)) -o $@ $(LDFLAGS) \
  $(LIBRARIES) $(LIBS) $(LDLIBS)
OF_BUILD = replay streams lend lend_cuda offload turnip offload_gpu doctor bench gpu_bench \
  offload_session gpu_test gpu_play

$(BUILD)/replay: bench/replay.c $(MOCK) $(BFC)
$(BUILD)/streams: bench/streams.c $(MOCK)
$(BUILD)/lend: bench/lend.c $(MOCK)
$(BUILD)/lend_cuda: bench/lend.c $(LATE) $(BOTH)
$(BUILD)/lend_cuda: private DEFINES = -DLEND_CUDA
$(BUILD)/offload: bench/offload/plan.c $(OFFLOAD)
$(BUILD)/turnip: bench/offload/turnip.c $(OFFLOAD)
$(BUILD)/offload_gpu: bench/offload/gpu.c $(OFFLOAD_BOTH)
$(BUILD)/doctor: bench/doctor.c $(BOTH)
$(BUILD)/bench: bench/bench.c $(LEVEL_IS)
$(BUILD)/gpu_bench: bench/gpu_bench.c $(LEVEL_IS)
$(BUILD)/offload_session: bench/offload/session.c $(LEVEL_IS)
$(BUILD)/bench $(BUILD)/offload_session: private STANDARD = gnu99
$(BUILD)/gpu_test: tests/gpu/gpu_test.c
$(BUILD)/gpu_play: tests/gpu/gpu_play.c $(LEVEL_IS)
$(addprefix $(BUILD)/,$(filter-out gpu_test,$(OF_BUILD))): private LEVEL = $(FAST)
$(addprefix $(BUILD)/,offload turnip offload_session): private LEVEL = $(PLANS)

# What other programs load.
$(YARDSTICK): bench/bfc_set.cpp
$(POLICY): bench/policy_worst_fit.c
$(FAKE): tests/gpu/fake_cuda.c | $(BUILD)/fake
$(BUILD)/gmlake_pluggable.so: examples/torch/gmlake_pluggable.c $(LEVEL_IS)
$(BUILD)/gmlake_cupy.so: examples/cupy/gmlake_cupy.c $(LEVEL_IS)
$(BUILD)/libgmlake_preload.so: examples/preload/preload.c $(LEVEL_IS)
HIDING = $(addprefix $(BUILD)/,gmlake_pluggable.so gmlake_cupy.so libgmlake_preload.so)
LOADED = $(HIDING) $(YARDSTICK) $(POLICY) $(FAKE)
$(LOADED): private LIBRARIES =
$(LOADED): private LEVEL = -O2
$(HIDING): private LEVEL = $(FAST)
$(FAKE): private LEVEL = -O1
$(YARDSTICK) $(POLICY): private SHARED = -shared -fPIC
$(HIDING): private SHARED = -shared -fPIC -fvisibility=hidden -fexceptions
$(FAKE): private SHARED = -shared -fPIC -fvisibility=hidden -Wl,-soname,libcuda.so.1
$(FAKE): private CUDA_INCLUDE = -Itests/cuda_stub

# Programs around those, and adapters. The allocator goes through a stub of torch's interface, in the
# newest form and in the oldest. What only the newest has cannot say `override`. The adapters have
# CCCL's resources where the toolkit's headers are.
CCCL_INCLUDE = $(patsubst %/cuda/memory_resource,%,$(firstword $(wildcard \
  $(CUDA_HOME)/include/cccl/cuda/memory_resource)))
$(BUILD)/client_torch_allocator $(BUILD)/client_torch_allocator_old: \
  tests/clients/torch_allocator.cpp $(FAKE)
$(BUILD)/client_torch_allocator_old: private DEFINES = -DTORCH_STUB_MINOR=11
$(BUILD)/client_torch_allocator $(BUILD)/client_torch_allocator_old: private STUBS = \
  -Wno-inconsistent-missing-override -Itests/clients/torch_stub
$(BUILD)/client_ggml: tests/clients/ggml.cpp
$(BUILD)/client_ggml_cuda: tests/clients/ggml_cuda.cpp $(FAKE)
$(BUILD)/client_ggml $(BUILD)/client_ggml_cuda: private STUBS = -Itests/clients/ggml_stub -Iexamples
$(BUILD)/client_ggml: private LIBRARIES = -lcmocka
$(BUILD)/client_adapters: tests/clients/adapters.cpp
$(BUILD)/client_adapters: private STUBS = $(if $(CCCL_INCLUDE),-DWITH_CCCL \
  -isystem $(CUDA_HOME)/include -isystem $(CCCL_INCLUDE))
$(BUILD)/client_preload: tests/clients/preload.c $(FAKE)
PROGRAM_CLIENTS = $(filter $(BUILD)/client_%,$(CLIENTS))
$(filter-out %_adapters %_ggml,$(PROGRAM_CLIENTS)): private CXX_STANDARD = c++17
$(BUILD)/client_adapters: private CXX_STANDARD = $(if $(CCCL_INCLUDE),c++17,c++11)
$(PROGRAM_CLIENTS): private CUDA_INCLUDE = -Itests/cuda_stub

$(addprefix $(BUILD)/,$(OF_BUILD)) $(LOADED) $(PROGRAM_CLIENTS): Makefile | $(BUILD)
	$(SAY)
	$(LINK)

# Another peer for build/bench --peer, from a checkout of sebbbi's OffsetAllocator.
$(BUILD)/peer_offset_allocator.so: bench/offset_allocator.cpp Makefile | $(BUILD)
	@[ -f '$(OFFSET_ALLOCATOR)/offsetAllocator.cpp' ] || { \
	  echo 'set OFFSET_ALLOCATOR to a checkout of https://github.com/sebbbi/OffsetAllocator'; exit 1; }
	$(CXX) -std=c++14 -O2 -DNDEBUG -fPIC -shared -Ibench -I'$(OFFSET_ALLOCATOR)' $(CPPFLAGS) \
	  $(CXXFLAGS) $< '$(OFFSET_ALLOCATOR)/offsetAllocator.cpp' -o $@ $(LDFLAGS)

# The examples that have a device of their own to choose are built twice.
CUDA_EXAMPLES = $(addprefix $(BUILD)/examples/,kv_server_cuda two_models_cuda weights_cuda experts_cuda \
  share_cuda three_servers_cuda offload_optimizer_cuda)
$(BUILD)/examples/three_servers_cuda: private DEFINES = -DSERVERS_CUDA
$(BUILD)/examples/offload_optimizer_cuda: private DEFINES = -DOFFLOAD_CUDA
$(BUILD)/examples/kv_server_cuda: private DEFINES = -DKV_SERVER_CUDA
$(BUILD)/examples/two_models_cuda: private DEFINES = -DTWO_MODELS_CUDA
$(BUILD)/examples/weights_cuda: private DEFINES = -DWEIGHTS_CUDA
$(BUILD)/examples/experts_cuda: private DEFINES = -DEXPERTS_CUDA
$(BUILD)/examples/share_cuda: private DEFINES = -DSHARE_CUDA
$(CUDA_EXAMPLES): $(BUILD)/examples/%_cuda: examples/%.c $(LATE) $(OFFLOAD_BOTH) $(BFC) Makefile \
  | $(BUILD)/examples
	$(SAY)
	$(LINK)

$(BUILD)/examples/fragmentation: examples/fragmentation.c $(LATE) $(BOTH) $(BFC) Makefile \
  | $(BUILD)/examples
	$(SAY)
	$(LINK)

$(BUILD)/examples/offload_session: examples/offload_session.c $(MOCK) $(OFFLOAD_LAKE) Makefile \
  | $(BUILD)/examples
	$(SAY)
	$(LINK)

$(BUILD)/examples/%: examples/%.c $(MOCK) $(BFC) $(OFFLOAD) Makefile | $(BUILD)/examples
	$(SAY)
	$(LINK)

$(BUILD)/examples/%: examples/%.cpp $(MOCK) $(BFC) Makefile | $(BUILD)/examples
	$(SAY)
	$(LINK)

# ---- Tests ----

# It has extents and crumbs of its own.
$(BUILD)/fuzz/fuzz_play: tests/fuzz/fuzz_play.c tests/fuzz/replay_main.c gmlake.h \
  $(wildcard tests/play/*.h) Makefile | $(BUILD)/fuzz
	$(SAY)
	$(LINK)

$(BUILD)/fuzz/fuzz_session: tests/fuzz/fuzz_session.c tests/fuzz/replay_main.c $(MOCK) \
  $(OFFLOAD_LAKE) Makefile | $(BUILD)/fuzz
	$(SAY)
	$(LINK)

$(BUILD)/fuzz/%: tests/fuzz/%.c tests/fuzz/replay_main.c $(MOCK) $(BFC) $(OFFLOAD) Makefile \
  | $(BUILD)/fuzz
	$(SAY)
	$(LINK)

# What every test begins with.
$(TEST_PROGRAMS): private DEFINES = -include tests/every_test.h
$(TEST_PROGRAMS): private CUDA_INCLUDE = -Itests/cuda_stub
$(TEST_PROGRAMS): private LIBRARIES = -lcmocka -lz -lm

# Compiling takes longer than running, but for these, and for what plans.
LONG = -O1
$(BUILD)/test_offload_session $(BUILD)/test_worlds: private LEVEL = $(LONG)

# These know the public interface alone.
LINKED_TESTS = $(addprefix $(BUILD)/test_,debug hard ledger lend metrics nvtx record snapshot \
  threads)
$(LINKED_TESTS): $(BUILD)/test_%: test_%.c $(TEST) Makefile | $(BUILD)
	$(SAY)
	$(LINK)

# These count steps. Only what is tested is compiled so that it can be counted; clang wants to be
# told where.
comma = ,
STEPS = -fsanitize-coverage=$(if $(findstring clang,$(call C_AT,-O0)),bb$(comma))trace-pc
$(BUILD)/step_count.o: tests/unit/step_count.c Makefile | $(BUILD)
	$(SAY)
	$(CC) -std=c99 -O1 -c $< -o $@
$(BUILD)/test_cost $(BUILD)/test_steps: private LEVEL = -O0 $(STEPS)
$(BUILD)/test_cost $(BUILD)/test_steps: $(BUILD)/step_count.o

$(addprefix $(BUILD)/test_,cuda cuda_faults cuda_rows offload_cuda): | $(FAKE)

$(BUILD)/test_%: test_%.c Makefile | $(BUILD)
	$(SAY)
	$(LINK)

$(BUILD)/test_%.tsan: test_%.c Makefile | $(BUILD)
	$(SAY)
	$(CC) -std=c99 -O1 -g -fsanitize=thread $(WARNINGS) $(DEPENDENCIES) -I. -Ibench -Itests \
	  $(CPPFLAGS) $(CFLAGS) $< -o $@ $(LDFLAGS) -lcmocka $(LIBS) $(LDLIBS)

-include $(wildcard $(BUILD)/*.d $(BUILD)/examples/*.d $(BUILD)/fuzz/*.d)

.PHONY: all help quick replay bench offload offload-gpu papers test test-build fuzz nightly programs test-programs headers soak exhaustive \
  mutate proof planted coverage gpu-test doctor gpu-bench manual install uninstall dist deb examples torch cupy \
  preload plots sweep format check-format clean
