# make demo and make test each do all the set-up: a virtual environment in .venv, everything pinned by constraints.txt.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Every pip call, also those inside isolated builds, takes its versions from this file.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Two test processes on two cores: one thread each.
TEST_ENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

.PHONY: demo results-quick test test-oldest coverage lint browser docs notebooks figures bench fuzz kills sanitize test-large test-wheel clean

# The editable install compiles the native operators, and says so.
$(VENV)/.lab: pyproject.toml constraints.txt hatch_build.py $(wildcard src/mollifier/ops/csrc/*) src/mollifier/ops/_build.py
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet torch
	@echo 'compiling the native operators: half a minute or so'
	$(BIN)/pip install --quiet --editable '.[lab]'
	@$(BIN)/python -c 'import mollifier; print("mollifier:", str(mollifier.ops.info()).splitlines()[0])'
	touch $@

$(VENV)/.ready: $(VENV)/.lab
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

demo: $(VENV)/.lab
	$(BIN)/mollifier compare parity --preset quick --methods plain mollified mollified:schedule=adaptive plain:gain=4,lr=0.1 --seeds 3 --workers 2 --out out/parity

# A smoke version of every study of the reproduction; those whose data are not there are skipped, and it says so.
# One at a time: runs this short take less than the start of a process for them.
results-quick: $(VENV)/.lab
	$(BIN)/mollifier reproduce all --smoke --quiet --workers 1 --out out/smoke

# The tests of the report's page need Debian's Chromium. It is installed under CI or when asked for (make test BROWSER=1), never unasked.
browser:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || { \
	  if [ -n "$(CI)$(BROWSER)" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null || true; \
	  else echo "SKIPPED: the tests of the report's page, because Chromium is not installed. To install it: apt-get install chromium chromium-driver, or as root: make test BROWSER=1"; fi; }

test: lint browser
	$(TEST_ENV) $(BIN)/python -m pytest -n 2 --dist worksteal

# The library's tests on the oldest torch that pyproject.toml allows, in an environment that is thrown away afterwards.
# It downloads that release with its CUDA packages, gigabytes of them, and so is no part of make test.
# The laboratory and the integrations are left out: their own dependencies choose the torch they want.
OLDEST ?= 2.8.0
OLD := build/oldest
test-oldest:
	rm -rf $(OLD)
	$(PYTHON) -m venv $(OLD)
	sed '/^torch==/d' constraints.txt > $(OLD)/constraints.txt
	PIP_CONSTRAINT=$(CURDIR)/$(OLD)/constraints.txt $(OLD)/bin/pip install --quiet torch==$(OLDEST) \
	  hatchling hypothesis matplotlib psutil pytest pytest-xdist rich scipy sybil transformers
	$(TEST_ENV) PYTHONPATH=src $(OLD)/bin/python -m pytest -q -n 2 --dist worksteal -p no:cacheprovider tests --ignore tests/lab \
	  --ignore tests/integrations --ignore tests/docs
	rm -rf $(OLD)

# The same with a look at what the tests reach; slower.
coverage: $(VENV)/.ready browser
	$(TEST_ENV) $(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=term

lint: $(VENV)/.ready
	$(BIN)/ruff format --check src tests examples benchmarks docs/.hooks conftest.py hatch_build.py
	$(BIN)/ruff check src tests examples benchmarks docs/.hooks conftest.py hatch_build.py
	$(BIN)/mypy
	$(BIN)/lint-imports

# Damages files and command lines at random for so many seconds; ends with 1 if anything but a plain sentence came of it.
SECONDS ?= 60
fuzz: $(VENV)/.ready
	$(TEST_ENV) $(BIN)/python -m tests.lab.fuzz --seconds $(SECONDS)

# Kills train, compare and search of a whole quick preset so many times, and compares the bytes that come out; takes half an hour.
KILLS ?= 100
kills: $(VENV)/.ready
	$(TEST_ENV) $(BIN)/python -m tests.lab.kills --times $(KILLS)

bench: $(VENV)/.ready
	$(BIN)/python -m benchmarks

# The native code under gcc's sanitizers: the operators' tests under AddressSanitizer and UBSan, a driver under ThreadSanitizer.
SANITIZED := g++ -g -fsanitize=address,undefined -fno-sanitize-recover=undefined
CSRC := src/mollifier/ops/csrc
THREADED := tests/ops/sanitize/threads.cpp $(filter-out %/operators.cpp,$(wildcard $(CSRC)/*.cpp))
sanitize: $(VENV)/.ready
	mkdir -p build
	cd build && g++ -g -O2 -std=c++17 -march=native -fopenmp -fsanitize=thread -I$(CURDIR)/$(CSRC) -c $(addprefix $(CURDIR)/,$(THREADED))
	g++ -fsanitize=thread $(addprefix build/,$(notdir $(THREADED:.cpp=.o))) -o build/threads -lpthread
	TSAN_OPTIONS=halt_on_error=1 build/threads
	CXX="$(SANITIZED)" $(BIN)/python src/mollifier/ops/_build.py --out build/sanitized
	LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libubsan.so) $$(g++ -print-file-name=libstdc++.so)" \
	ASAN_OPTIONS=detect_leaks=0 MOLLIFIER_LIBRARY=build/sanitized/default.so $(TEST_ENV) \
	$(BIN)/python -m pytest -q -p no:cacheprovider tests/ops --deselect tests/ops/test_build.py --deselect tests/ops/test_backend.py

# Sizes whose products do not fit into 32 bits; takes up to 9 GiB of memory.
test-large: $(VENV)/.ready
	$(BIN)/python -m tests.ops.large

# The wheel and the source distribution, as strangers install them: in empty environments, with a compiler and without one.
test-wheel: $(VENV)/.ready
	$(BIN)/python -m tests.ops.installed

docs: $(VENV)/.ready
	$(BIN)/pip install --quiet --editable '.[docs]'
	$(BIN)/mkdocs build --strict

# Makes the notebooks of examples/ from the scripts, runs them and records their figures; a few minutes.
notebooks: $(VENV)/.ready
	$(BIN)/pip install --quiet --editable '.[notebooks]'
	$(BIN)/python examples/notebooks.py

figures: $(VENV)/.ready
	$(BIN)/python examples/figures.py

clean:
	rm -rf $(VENV) site build dist .pytest_cache .mypy_cache .ruff_cache .coverage* .import_linter_cache
