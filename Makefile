# make demo: plan, train and guard a small speech model. make test: everything that must pass. Both start from nothing.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.7.0
SOURCES := go.mod go.sum setup.py pyproject.toml $(shell find capi core -name '*.go' -o -name '*.h' -o -name '*.json' -not -path '*/testdata/*')

# As in setup.py: go-nvml's wrappers call functions that newer NVML headers mark as deprecated.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations

.PHONY: demo test test-go test-python lint install-check wheel clean

demo: $(VENV)/.train
	$(BIN)/asrconfig demo

test: lint test-go test-python

test-go:
	go test -race ./...

test-python: $(VENV)/.dev
	$(BIN)/python -m pytest

lint: $(VENV)/.dev
	@unformatted=$$(gofmt -l capi core); test -z "$$unformatted" || { echo "gofmt: $$unformatted"; exit 1; }
	go vet ./...
	go run $(STATICCHECK) ./...
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Editable installs: the library is rebuilt when the Go sources are newer.
$(VENV)/.train: $(SOURCES) | $(BIN)/python
	$(BIN)/pip install -q -e '.[train]'
	@touch $@

$(VENV)/.dev: $(SOURCES) | $(BIN)/python
	$(BIN)/pip install -q -e '.[train,plot,dev]'
	@touch $@ $(VENV)/.train

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --upgrade pip

# pip install, editable install, and sdist to wheel to install, each in a new environment.
install-check:
	bash build/install-check.sh

wheel:
	bash build/wheel.sh

clean:
	rm -rf $(VENV) .setuptools-build build/out dist python/*.egg-info python/asrconfig_go/_core.* demo-output
