# Each target installs what it needs (Debian 12 packages, models) and may be run again at any time.
# `make help` lists them.

MAKEFLAGS += --no-print-directory
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
BENCH_ROUNDS ?= 3
# A document that is on every Debian: about 7,600 tokens of the demo model's 8,192.
DEMO_DOCUMENT ?= /usr/share/common-licenses/GPL-3
demo_model := models/SmolLM2-135M-Instruct.Q4_1.gguf
# What `make lint` reads: the program's own sources (the tests, and what needs CUDA's headers, are held to
# the format alone).
LINT_FILES ?= $$(git ls-files 'src/*.cc' ':!*_cuda.cc'; git ls-files 'src/*_without_cuda.cc')
clang_format := git ls-files -z '*.cc' '*.h' '*.cu' '*.cuh' | xargs -0 clang-format-14

.PHONY: help build cuda test-gpu model models demo benchmarks accuracy oracle test test-night test-page test-asan test-tsan fuzz format check-format lint clean

help: ## list the targets
	@sed -nE 's/^([a-z -]+):[^#]*## (.*)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 24

# The presets configure the tests as well, so building the program asks for their packages too.
build: ## build the program: build/octet (Release)
	@tools/install_packages.sh build test
	cmake --preset release
	cmake --build build --target octet -j $(JOBS)
	@echo "build: build/octet is ready"

# Options of CMake for the CUDA build, say -DOCTET_CUDA_ARCHITECTURES= for Hopper's kernels alone.
CUDA_OPTIONS ?=
cuda: ## build the program with the CUDA backend, and the GPU's tests: build-cuda/octet
	@tools/install_packages.sh build test
	@tools/install_cuda.sh
	cmake --preset cuda $(CUDA_OPTIONS)
	cmake --build build-cuda --target octet octet_gpu_tests -j $(JOBS)
	@echo "cuda: build-cuda/octet is ready"

test-gpu: cuda ## run the GPU's tests on this machine's GPU, then a part of them under compute-sanitizer
	@tools/test_gpu.sh build-cuda

model: ## fetch the demo's model, SmolLM2-135M-Instruct (98 MB), into models/
	@tools/install_packages.sh build
	@python3 tools/fetch_models.py smollm2

models: ## fetch all the models that the tests use (0.84 GB) into models/
	@tools/install_packages.sh build
	@python3 tools/fetch_models.py smollm2 qwen2.5-coder gemma3
	@python3 tools/fetch_vocabularies.py

demo: build model ## a real model reads a long document from a bfloat16 and an fp8 cache
	@python3 tools/demo.py --octet build/octet --model $(demo_model) \
	  --document $(DEMO_DOCUMENT) --output build/demo.json

benchmarks: build model ## measure the cache formats (about 15 min); rewrites the tables of the docs
	@python3 tools/bench_cpu.py --octet build/octet --model $(demo_model) --repeats $(BENCH_ROUNDS)

accuracy: build models ## measure what each cache policy costs on three models (about 2 h); writes docs/accuracy.md
	@python3 tools/accuracy.py --octet build/octet

oracle: models ## make the tests' right answers anew (ORACLE="JOB ..." for some; downloads 3 GB of Python packages)
	@tools/install_packages.sh build
	@python3 -m venv .venv-oracle
	@.venv-oracle/bin/pip install --quiet -r tools/oracle/requirements.txt
	@.venv-oracle/bin/python tools/oracle/make_all.py $(ORACLE)

test: models ## build and run all the tests
	@tools/install_packages.sh build test
	@tools/setup_test_venv.sh
	cmake --preset release
	cmake --build build -j $(JOBS)
	ctest --test-dir build --output-on-failure --no-tests=error -j $(JOBS)

# What may take hours: for 600 and 400 prompts 10,000, and every answer under pressure also alone.
test-night: test ## the tests of memory and pressure again, with many more requests
	OCTET_NIGHT=1 ctest --test-dir build --output-on-failure --no-tests=error -V \
	  -R 'PressureTest|PrefixCacheTest|server.memory_test'

test-page: build model ## the chat page in a headless Chromium
	@tools/install_packages.sh browser
	@tools/setup_test_venv.sh
	@python3 -B tests/server/page_check.py

test-asan test-tsan: test-%: models ## the tests under sanitizers
	@tools/install_packages.sh build test
	@tools/setup_test_venv.sh
	cmake --preset $*
	cmake --build build-$* -j $(JOBS)
	ctest --test-dir build-$* --output-on-failure --no-tests=error -j $(JOBS)

fuzz: ## run each libFuzzer target for FUZZ_SECONDS (60)
	@tools/install_packages.sh build fuzz
	cmake --preset fuzz
	cmake --build build-fuzz -j $(JOBS)
	@tools/run_fuzzers.sh build-fuzz/tests/fuzz $(FUZZ_SECONDS)

format: ## rewrite the sources in the project's format
	@tools/install_packages.sh lint
	$(clang_format) -i

check-format: ## fail where a source is not in the project's format
	@tools/install_packages.sh lint
	$(clang_format) --dry-run -Werror

lint: check-format ## format, layers and clang-tidy (LINT_FILES=... for some files only)
	@tools/install_packages.sh build test lint
	@python3 tools/check_layers.py
	cmake --preset release
	@tools/run_clang_tidy.sh build $(JOBS) $(LINT_FILES)

clean: ## remove what was built (the models stay)
	rm -rf build build-*/
