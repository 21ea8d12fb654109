# What people do with this tree. Needs Rust 1.95 or later, make and a C compiler; `make test` asks for more and
# says what.

CARGO ?= cargo
BINARY := target/release/mainstem

.PHONY: help run build test test-rust test-clients acceptance record-peers lint clean

help:
	@echo "make run           build a release binary and start a broker with the defaults"
	@echo "make build         leave $(BINARY)"
	@echo "make test          all tests: Rust, then real clients against the release binary"
	@echo "make acceptance    the full figures, written to docs/acceptance.md"
	@echo "make record-peers  ask a real Kafka what it answers to bad input"
	@echo "make lint          clippy, warnings are errors"

run: build
	$(BINARY) serve

build:
	$(CARGO) build --release -p mainstem

test: test-rust test-clients

test-rust:
	$(CARGO) test --workspace

test-clients: build
	conformance/run test

acceptance: build
	conformance/run full

record-peers:
	conformance/run record-peers

lint:
	$(CARGO) clippy --workspace --all-targets -- -D warnings

clean:
	$(CARGO) clean
