# make demo: plan, train and guard a small speech model. make check: while you work. make test: before you push.
# make lint, make docs, make test-slow: the rest of what must pass. All start from nothing.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.12.0
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
OTHER_SYSTEMS := darwin/arm64 windows/amd64
SOURCES := go.mod go.sum setup.py pyproject.toml $(shell find capi core -name '*.go' -o -name '*.h' -o -name '*.json' -not -path '*/testdata/*')

# As in setup.py: go-nvml's wrappers call functions that newer NVML headers mark as deprecated.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations

# Where it is set, as in many containers, each process of the tests compiles torch and transformers anew: 8 of 13 seconds.
unexport PYTHONDONTWRITEBYTECODE

# Packages whose tests rarely train or trace.
QUICK := $(addprefix python/tests/,_core cli data)

# SHARD=2/4 takes each fourth file of Python tests, from the second on.
SHARD ?= 1/1
TESTS = $(shell find python/tests -name 'test_*.py' | sort | awk -v shard=$(SHARD) 'BEGIN { split(shard, of, "/") } NR % of[2] == of[1] % of[2]')

.PHONY: demo check format-check check-go check-python test test-go test-python test-slow test-slow-python test-all race generate lint docs docs-linkcheck notebooks coverage \
	bench bench-full install-check wheel wheel-check wheel-systems matrix clean

demo: $(VENV)/.train
	$(BIN)/asrconfig demo --resume

# A process for each core, of one thread each; all tests of a file in one process, which builds what they share once.
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile

check: format-check check-go check-python

# Formats and rules, as far as they need no other program than Go and what .venv has.
format-check: $(VENV)/.dev
	@unformatted=$$(gofmt -l benchmarks build capi core); test -z "$$unformatted" || { echo "gofmt: $$unformatted"; exit 1; }
	$(BIN)/ruff check -q .
	$(BIN)/ruff format -q --check .

check-go:
	go test -short ./core/...

check-python: $(VENV)/.dev
	$(PYTEST) -q -m "not slow" $(QUICK)

test: test-go test-python

test-go:
	go test -short -vet=off ./... # make lint vets

test-python: $(VENV)/.dev
	@$(PYTEST) -m "not slow" $(TESTS)

# What `make test` leaves out: the race detector, and Python's slow tests, the notebooks among them.
test-slow: race test-slow-python

test-all: test test-slow

race:
	go test -race ./...

test-slow-python: $(VENV)/.dev
	@$(PYTEST) -m slow $(TESTS)

# Figures for people; no test depends on them.
coverage: $(VENV)/.dev
	go test -short -coverpkg=./core/... -coverprofile=.coverage.go ./... > /dev/null
	go tool cover -func=.coverage.go | tail -1
	$(PYTEST) -q -m "not slow" --cov=asrconfig_go --cov-branch --cov-report=term:skip-covered

# All that README quotes is measured again, and written into the pages: 10 minutes on two quiet cores.
bench: $(VENV)/.train $(VENV)/.bench
	$(VENV)/bench/bin/python benchmarks/bench.py

# The same at full size, and what takes longer: hours.
bench-full: $(VENV)/.train $(VENV)/.bench
	$(VENV)/bench/bin/python benchmarks/bench.py --full

# What repeats the declarations in Go and the names of packages: C header, ctypes structures, stubs.
generate:
	go generate ./...

# The first time, this builds the linters of Go.
lint: format-check
	go vet ./...
	go run ./build/names core capi build
	$(BIN)/python build/vague_names.py python/asrconfig_go python/tests build
	GOLANGCI_LINT_CACHE=$(CURDIR)/build/out/golangci go run $(GOLANGCI) run ./... # a shared cache names files of other checkouts
	go run $(ACTIONLINT)
	@for system in $(OTHER_SYSTEMS); do echo "go build ./core/... for $$system"; \
		CGO_ENABLED=0 GOOS=$${system%/*} GOARCH=$${system#*/} go build ./core/... || exit 1; done
	$(BIN)/python build/licences.py --check
	go test ./build/generate
	$(BIN)/python build/stubs.py --check
	$(BIN)/mypy
	@# Of the benchmarks, names that the package no longer has: many run for too long to be tested.
	! $(BIN)/mypy --implicit-reexport benchmarks/*.py | grep -E '\[(attr-defined|call-arg|name-defined)\]'

# The site, in docs/_build/html: from docs/, docstrings and the commands' parsers. Warnings are errors.
docs: $(VENV)/.docs
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

# Links to other sites, which needs a network.
docs-linkcheck: $(VENV)/.docs
	$(BIN)/sphinx-build -q -b linkcheck docs docs/_build/linkcheck

# Editable installs: the library is rebuilt when the Go sources are newer. uv installs torch in a fourth of pip's time;
# pip installs where uv cannot, as behind an index that only pip is set up for.
define install
$(BIN)/uv pip install -q --python $(BIN)/python -e '.[$(EXTRAS)]' || \
	$(BIN)/pip install -q --no-compile -e '.[$(EXTRAS)]'
endef

$(VENV)/.train: EXTRAS = train
$(VENV)/.train: $(SOURCES) | $(BIN)/python
	$(install)
	@touch $@

$(VENV)/.dev: EXTRAS = train,plot,dev,docs
$(VENV)/.dev: $(SOURCES) | $(BIN)/python
	$(install)
	@$(BIN)/python -m compileall -q -j 0 $(VENV)/lib > /dev/null || true # some packages hold files of other versions
	@touch $@ $(VENV)/.train $(VENV)/.docs

$(VENV)/.docs: EXTRAS = docs
$(VENV)/.docs: $(SOURCES) | $(BIN)/python
	$(install)
	@touch $@

# Environments of their own on top of .venv: peers to compare with, and the transformers that memory_truth needs.
SITE = -c "import sysconfig; print(sysconfig.get_path('purelib'))"
define on_top
$(BIN)/python -m venv $(VENV)/$(1)
echo "import site; site.addsitedir('$$($(BIN)/python $(SITE))')" > $$($(VENV)/$(1)/bin/python $(SITE))/on_top.pth
$(VENV)/$(1)/bin/pip install -q $(2)
endef

$(VENV)/.bench: benchmarks/requirements.txt benchmarks/memory_truth/requirements.txt | $(VENV)/.train
	$(call on_top,bench,-r benchmarks/requirements.txt)
	$(call on_top,memory_truth,-r benchmarks/memory_truth/requirements.txt)
	@touch $@

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --upgrade pip uv

# Runs the notebooks without a network and keeps what they give.
notebooks: $(VENV)/.dev
	$(BIN)/python build/run_notebooks.py

# pip install, editable install, and sdist to wheel to install, each in a new environment.
install-check:
	bash build/install-check.sh

# The source distribution and the manylinux wheels of the last commit, into build/out.
wheel:
	bash build/wheel.sh

# Builds them again, compares, looks into them, installs one.
wheel-check:
	bash build/wheel-check.sh

# Uses them in other Debian systems, as root: debootstrap, and qemu-user-static for arm64.
SYSTEMS := bullseye:amd64 bookworm:amd64 trixie:amd64 sid:amd64 bullseye:arm64 trixie:arm64
wheel-systems:
	bash build/check-systems.sh $(SYSTEMS)

# The oldest, Colab's and the newest libraries, in environments of their own; writes benchmarks/matrix.md.
matrix:
	$(PYTHON) build/matrix.py $(ROWS)

clean:
	rm -rf $(VENV) .wheel-tools .systems .matrix .setuptools-build build/out dist python/*.egg-info demo-output docs/_build docs/_repository
	rm -f python/asrconfig_go/_core.* python/asrconfig_go/_core/_version.py
