# setup    what the tests need: a software Vulkan driver, a C++ compiler, Python packages, Node, a browser
# test     setup, then every test            demo    what it needs of these, then something to look at
# test-web every case of every kernel in browsers                demo-web  a page with two models, served here
# check    format, lints, tidiness, licences bless   rewrite the expected parts of tests
# bench    measurements                      size    bytes of the smallest program with the runtime in it
# library  the C library, its header and its pkg-config file below PREFIX
# wheel    the package for Python, with the program in it, tried in an environment of its own
# memcheck the interfaces for C, C++ and Python under valgrind
# cross    checks of the runtime for Android, macOS, iOS and Windows

CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
ENV := . $(TARGET_DIR)/setup/env &&
SIZE_BUDGET := 700000
LIBRARY_BUDGET := 900000
PREFIX ?= $(TARGET_DIR)/prefix
DENY ?= advisories bans licenses sources
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup test test-web demo demo-web check bless bench size library wheel memcheck cross

help:
	@sed -n 's/^# //p' Makefile

setup:
	@tests/setup.sh $(TARGET_DIR)

test: setup
	$(ENV) $(CARGO) test --workspace $$DRIFT_TEST_FEATURES --no-fail-fast

test-web: setup
	$(ENV) DRIFT_WEB_ALL=1 $(CARGO) test -p drift-tests --test web -- --nocapture

bless: setup
	$(ENV) DRIFT_BLESS=1 $(CARGO) test --workspace $$DRIFT_TEST_FEATURES --no-fail-fast

demo:
	@tests/setup.sh $(TARGET_DIR) demo
	$(ENV) models/demo/run.sh

demo-web: setup
	$(CARGO) build -p driftc-cli --bin driftc
	$(ENV) runtime/web/demo/build.sh $(TARGET_DIR)/debug/driftc $(TARGET_DIR)/demo-web
	node runtime/web/demo/serve.mjs $(TARGET_DIR)/demo-web

check:
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) test -p drift-tests --test tidy
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny check $(DENY); \
	else echo "check: cargo-deny is not installed, so licences and advisories were not checked (cargo install cargo-deny)"; fi

bench: setup
	$(ENV) $(CARGO) bench -p drift-benches

size:
	$(CARGO) build --profile size -p drift-runtime --example embed --example generate
	@tests/size.sh $(SIZE_BUDGET) $(TARGET_DIR)/size/examples/embed $(TARGET_DIR)/size/examples/generate

library:
	$(CARGO) build --profile library -p drift-c --no-default-features --features "$(LIBRARY_FEATURES)"
	@runtime/c/install.sh $(if $(LIBRARY_FEATURES),0,$(LIBRARY_BUDGET)) $(TARGET_DIR)/library $(PREFIX)

wheel: setup
	$(ENV) runtime/python/wheel.sh $(TARGET_DIR) $$DRIFT_PYTHON

memcheck: setup
	$(CARGO) build -p driftc-cli -p drift-c --bin driftc --lib --example fuzz
	$(ENV) runtime/c/memcheck.sh $(TARGET_DIR)

cross:
	@runtime/cross.sh $(TARGET_DIR)
