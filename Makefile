# make           builds build/replay
# make replay    replays the traces of bench/traces: memory and driver time of each allocator
# make test      builds and runs all tests
# make examples  builds the examples into build/examples
# make plots     draws memory over time into build/plots, and bench/figure.png
# make format    formats the sources
# replay, test and plots first install what they need, on Debian and Ubuntu.

CC ?= cc
WARNINGS = -Wall -Wextra -Werror
DEPENDENCIES = -MMD -MP -MF $@.d -MT $@
LIBS = -lpthread -ldl
TEST_PROGRAMS = $(patsubst tests/%.c,build/%,$(sort $(wildcard tests/test_*.c)))
TEST_SCRIPTS = $(sort $(wildcard tests/test_*.sh))
EXAMPLES = $(addprefix build/,$(basename $(wildcard examples/*.c examples/*.cpp)))
SOURCES = $(wildcard *.h bench/*.[ch] tests/*.[ch] tests/*/*.[ch] examples/*.c examples/*.cpp)
SUBMAKE = +@$(MAKE) --no-print-directory

export CC CXX

all: build/replay

replay: deps-replay
	$(SUBMAKE) build/replay
	@build/replay

test: deps-test
	$(SUBMAKE) build/replay $(TEST_PROGRAMS)
	@sh tests/run.sh $(TEST_PROGRAMS) $(TEST_SCRIPTS)

examples: $(EXAMPLES)

plots: deps-plots
	$(SUBMAKE) build/replay
	@sh bench/plots.sh bench/traces/*.gmtrace.gz
	@cp build/plots/gpt2-xl-R-dyn.png bench/figure.png

deps-%:
	@sh tests/deps.sh $*

format:
	clang-format -i $(SOURCES)

clean:
	rm -rf build

build build/examples:
	mkdir -p $@

build/replay: bench/replay.c Makefile | build
	$(CC) -std=c99 -O2 -g $(WARNINGS) $(DEPENDENCIES) -I. $(CPPFLAGS) $(CFLAGS) $< -o $@ \
	  $(LDFLAGS) -lz $(LIBS) $(LDLIBS)

build/test_%: tests/test_%.c Makefile | build
	$(CC) -std=c99 -O1 -g $(WARNINGS) $(DEPENDENCIES) -I. -Ibench $(CPPFLAGS) $(CFLAGS) $< -o $@ \
	  $(LDFLAGS) -lcmocka -lz $(LIBS) $(LDLIBS)

build/examples/%: examples/%.c Makefile | build/examples
	$(CC) -std=c99 -g $(WARNINGS) $(DEPENDENCIES) -I. $(CPPFLAGS) $(CFLAGS) $< -o $@ \
	  $(LDFLAGS) $(LIBS) $(LDLIBS)

build/examples/%: examples/%.cpp Makefile | build/examples
	$(CXX) -std=c++11 -g $(WARNINGS) $(DEPENDENCIES) -I. $(CPPFLAGS) $(CXXFLAGS) $< -o $@ \
	  $(LDFLAGS) $(LIBS) $(LDLIBS)

-include $(wildcard build/*.d build/examples/*.d)

.PHONY: all replay test examples plots format clean
