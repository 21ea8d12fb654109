# What people do with this tree. Needs Rust 1.95 or later, make and a C compiler; `make test` asks for more and
# says what.

CARGO ?= cargo
BINARY := target/release/mainstem

SIM := $(CARGO) run --release -q -p sim --

.PHONY: help run build test test-rust test-sim test-clients acceptance lint clean

help:
	@echo "make run           build a release binary and start a broker with the defaults"
	@echo "make build         leave $(BINARY)"
	@echo "make test          all tests: Rust, simulated crashes, then real clients against the release binary"
	@echo "make acceptance    the long runs: 500 seeds, 100,000 records a client and codec, 40 kills"
	@echo "make lint          clippy, warnings are errors"

run: build
	$(BINARY) serve

build:
	$(CARGO) build --release -p mainstem

test: test-rust test-sim test-clients

test-rust:
	$(CARGO) test --workspace --exclude sim

# The journal on a simulated disk: random operations, faults and crashes; then defects that must be found.
test-sim:
	$(SIM) --seeds 200
	$(SIM) --seeds 200 --planted all

test-clients: build
	conformance/run test

acceptance: build
	$(SIM) --seeds 500
	$(SIM) --seeds 500 --planted all
	conformance/run full

lint:
	$(CARGO) clippy --workspace --all-targets -- -D warnings

clean:
	$(CARGO) clean
