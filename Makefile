# demo      compile and run real models, read the text in a picture, and ask a language model a question
# test      run every test in the quick scope, on the software driver
# setup     install what the tests need; demo and test call it
#
# check     check format, lints, spelling, tidiness, licenses, advisories and sizes
# bless     rewrite the expected output of tests
# test-full run everything (DRIFT_TEST_SCOPE=full); takes hours
# drivers-test  compile models with all of these drivers, and compare probes and spills with the stored ones
# drivers   unpack drivers that compile shaders for other GPUs than this machine's, for `driftc audit`
# test-web  run every case of every kernel in browsers
# docs      build the site of the documents in target/book
# demo-web  serve a page with two models on this machine
#
# bench     run the benchmarks
# size      compare the sizes of small programs with the runtime, and of the C library, with their budgets
# library   install the C library for pkg-config and CMake below PREFIX (and DESTDIR)
# wheel     build the Python package and test it in a fresh environment
# release   make and check the files of a release in target/release-artifacts
# memcheck  run the C, C++ and Python interfaces under valgrind
# cross     check the runtime for Android, macOS, iOS and Windows

CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
ENV := . $(TARGET_DIR)/setup/env &&
PREFIX ?= $(TARGET_DIR)/prefix
DESTDIR ?=
# Maximum bytes of programs and of the C library without LIBRARY_FEATURES.
EMBED_BUDGET := 660000
GENERATE_BUDGET := 720000
LIBRARY_BUDGET := 760000
# Cargo optimizes across crates only if it builds one kind of library at a time.
BUILD_LIBRARY = $(CARGO) rustc --profile library -p drift-c --lib --no-default-features --features "$(LIBRARY_FEATURES)" --crate-type
SHARED = cdylib -- -C link-arg=-Wl,-soname,$$(runtime/c/version.sh soname)
DENY ?= advisories bans licenses sources
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup test test-full drivers drivers-test test-web demo demo-web docs check bless bench size library wheel release memcheck cross

help:
	@sed -n -e '/^$$/q' -e 's/^# //p' Makefile

setup:
	@tests/setup.sh $(TARGET_DIR)

test: setup
	$(ENV) $(CARGO) test --workspace $$DRIFT_TEST_FEATURES --no-fail-fast

test-full: setup
	$(ENV) DRIFT_TEST_SCOPE=full $(CARGO) test --workspace $$DRIFT_TEST_FEATURES --no-fail-fast

test-web: setup
	$(ENV) DRIFT_TEST_SCOPE=full $(CARGO) test -p drift-tests --test web -- --nocapture

drivers-test: setup
	@$(ENV) DRIFT_TEST_SCOPE=full $(CARGO) test --workspace $$DRIFT_TEST_FEATURES --test drivers
	@$(ENV) $(CARGO) test --workspace $$DRIFT_TEST_FEATURES --bin driftc drivers

drivers:
	@tests/drivers.sh $(TARGET_DIR)/drivers $(TARGET_DIR)/setup/mesa
	@$(TARGET_DIR)/drivers/run

bless: setup
	$(ENV) DRIFT_BLESS=1 $(CARGO) test --workspace $$DRIFT_TEST_FEATURES --no-fail-fast

demo:
	@tests/setup.sh $(TARGET_DIR) demo
	$(ENV) models/demo/run.sh

demo-web: setup
	$(CARGO) build -p driftc-cli --bin driftc
	$(ENV) runtime/web/demo/build.sh $(TARGET_DIR)/debug/driftc $(TARGET_DIR)/demo-web
	node runtime/web/demo/serve.mjs $(TARGET_DIR)/demo-web

check: setup
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(ENV) $(CARGO) test -p drift-tests --test tidy --test words --test links --test cycles
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny check $(DENY); \
	else echo "check: cargo-deny is not installed, so licenses and advisories were not checked (cargo install cargo-deny)"; fi
	@$(MAKE) --no-print-directory size

docs:
	@docs/book.sh $(TARGET_DIR)

bench: setup
	$(ENV) $(CARGO) bench -p drift-benches

size: override LIBRARY_FEATURES :=
size:
	$(CARGO) build --profile size -p drift-runtime --example embed --example generate
	$(BUILD_LIBRARY) $(SHARED)
	@tests/size.sh $(TARGET_DIR)/size/examples/embed $(EMBED_BUDGET) $(TARGET_DIR)/size/examples/generate $(GENERATE_BUDGET) \
		$(TARGET_DIR)/library/libdrift.so $(LIBRARY_BUDGET)

library:
	$(BUILD_LIBRARY) staticlib
	$(BUILD_LIBRARY) $(SHARED)
	@DESTDIR="$(DESTDIR)" runtime/c/install.sh "$(TARGET_DIR)/library" "$(PREFIX)"

wheel: setup
	$(ENV) runtime/python/wheel.sh $(TARGET_DIR) $$DRIFT_PYTHON

release: setup
	$(ENV) compiler/release/release.sh $(TARGET_DIR)

memcheck: setup
	$(CARGO) build -p driftc-cli -p drift-c --bin driftc --lib --example fuzz
	$(ENV) runtime/c/memcheck.sh $(TARGET_DIR)

cross:
	@runtime/cross.sh $(TARGET_DIR)
