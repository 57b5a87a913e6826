# The front door; meson and ninja do the work. `make help` lists the targets.
PYTHON  = /usr/bin/python3
PREFIX ?= /usr/local
SOAK_MINUTES ?= 60
# Of a virtual environment with transformers, timm, diffusers and torch_geometric: see doc/zoo.md.
ZOO_PYTHON ?= $(PYTHON)
BUILD ?= build

# Command lines set these too; tools/configure reads them.
export PREFIX

.PHONY: all python demo test test-gpu check bench bench-gpu soak replay install golden format format-check clean help

all:
	@tools/configure build
	@ninja -C build --quiet

python:
	@tools/install-packages build
	@tools/configure build
	@ninja -C build --quiet
	@PYTHONPATH=build/python $(PYTHON) -c 'import poptorch'

demo:
	@tools/install-packages build demo
	@$(MAKE) --no-print-directory all
	@mkdir -p build/demo
	@build/tessera train fashion-mnist --overwrite --output build/demo/classifier.pth

test:
	@tools/install-packages
	@$(PYTHON) tools/run-tests

check:
	@$(PYTHON) tools/run-tests build

bench:
	@tools/install-packages
	@$(MAKE) --no-print-directory all
	@$(PYTHON) bench/run.py
	@$(PYTHON) bench/zoo.py
	@$(PYTHON) bench/zoo.py --products
	@$(PYTHON) bench/zoo.py --compile
	@$(PYTHON) bench/ops.py

# On a machine with a GPU. With build-gpu/ there (tools/gpu-bundle) nothing is built; python3 is the one that has PyTorch.
test-gpu:
	@[ -d build-gpu ] || { tools/install-packages && $(MAKE) --no-print-directory all; }
	@python3 tools/test-gpu

bench-gpu:
	@[ -d build-gpu ] || { tools/install-packages && $(MAKE) --no-print-directory all; }
	@python3 bench/gpu.py

soak:
	@tools/install-packages
	@$(PYTHON) tools/run-tests --minutes $(SOAK_MINUTES) build build-asan build-tsan build-clang python
	@PYTHONPATH=build/python $(ZOO_PYTHON) test/zoo/models.py

install:
	@tools/install-packages build
	@$(MAKE) --no-print-directory all
	@meson install -C build --quiet --no-rebuild $(if $(DESTDIR),--destdir '$(abspath $(DESTDIR))')
	@if [ -z '$(DESTDIR)' ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi

# One random graph of test/run/random_graphs.c, in every way to compile it.
replay:
	@[ -n '$(SEED)' ] || { echo 'make replay SEED=17 [BUILD=build-asan] [BACKEND=portable]' >&2; exit 2; }
	@tools/install-packages build test
	@tools/configure $(BUILD)
	@ninja -C $(BUILD) --quiet test/run_random_graphs
	@FUZZ_SEED='$(SEED)' FUZZ_REPLAY='$(BACKEND)' TS_BUILD_ROOT='$(abspath $(BUILD))' \
		TESSERA_CACHE_DIR= $(BUILD)/test/run_random_graphs

golden:
	@TS_GOLDEN_UPDATE=1 $(PYTHON) tools/run-tests build python
	@git --no-pager diff --stat

format:
	@tools/format

format-check:
	@tools/format --check

clean:
	@rm -rf build build-asan build-tsan build-clang build-wheel build-ci build-gpu

help:
	@echo 'make                build the command, the library and the examples in build/'
	@echo 'make demo           train a classifier on Fashion-MNIST; accuracy, model and plots in build/demo'
	@echo 'make python         the poptorch package, in build/python'
	@echo 'make check          the C tests, one build'
	@echo 'make test           everything: format, both compilers, sanitizers, Python'
	@echo 'make bench          measure against PyTorch'
	@echo 'make test-gpu       every op, random graphs and the seeds'"'"' nets on a GPU; make bench-gpu measures there'
	@echo 'make soak           repeat the tests with other inputs, sanitizers included, for SOAK_MINUTES (60)'
	@echo 'make replay SEED=n  one random graph, in every way to compile it: which differ, and how; takes BUILD and BACKEND'
	@echo 'make install        command, library, header, manual pages, completions, Python package; takes PREFIX and DESTDIR'
	@echo 'make golden         rewrite the golden files from what the code does now; review the diff'
	@echo 'make format         lay out all C files; format-check only looks'
	@echo 'make clean          remove the build folders'
