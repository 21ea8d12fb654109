# What people do with this tree. Needs Rust 1.95 or later, make and a C compiler; `make test` and `make bench` ask
# for more and say what.

CARGO ?= cargo
BINARY := target/release/mainstem

# Tests build all with one profile (see Cargo.toml), so that nothing is compiled twice, and look at this binary: a release with assertions.
# The simulator is built for itself, as the defects that are planted in what it has of the journal are in no other build.
TESTED := target/tested/mainstem
TESTS := $(CARGO) test --profile tested --workspace --exclude sim $$(command -v protoc >/dev/null || echo --exclude mainstem-bench)

SIM := $(CARGO) run --profile tested -q -p sim --

# Where the scripts that install and start a real Kafka and a real RabbitMQ are; only `record-peers` needs them. RabbitMQ's needs root, and
# where it is not there `record-peers` records Kafka alone.
KAFKA_PEER ?= ../shared/peers/kafka.sh
KAFKA_VERSION ?= 4.3.1
KAFKA_PORT ?= 19092
KAFKA_LOGIN_PORT ?= 19192
KAFKA_LOGINS = 127.0.0.1:$(KAFKA_LOGIN_PORT) 127.0.0.1:$$(($(KAFKA_LOGIN_PORT) + 2)) 127.0.0.1:$$(($(KAFKA_LOGIN_PORT) + 3))
KAFKA_LOGIN_KEYS = $(CURDIR)/target/kafka-logins/keys.json
KAFKA_OAUTH = -Dorg.apache.kafka.sasl.oauthbearer.allowed
KAFKA_LOGIN_JAVA = -Xms1g -Xmx1g $(KAFKA_OAUTH).urls=file://$(KAFKA_LOGIN_KEYS) $(KAFKA_OAUTH).files=$(KAFKA_LOGIN_KEYS)
KAFKA_ACL_PORT ?= 19292
KAFKA_ACLS = 127.0.0.1:$(KAFKA_ACL_PORT) 127.0.0.1:$$(($(KAFKA_ACL_PORT)+2))
# Of two, which differ in what they say of resources without entries.
KAFKA_DECISION_PORT ?= 19392
RABBITMQ_PEER ?= ../shared/peers/rabbitmq4.sh
RABBITMQ_SUITE ?= testing
RABBITMQ_PORT ?= 27672
# With the management API.
RABBITMQ_DECISION_PORT ?= 27772

BENCH := target/release/mainstem-bench

.PHONY: help run build test test-format test-build test-rust test-sim test-clients test-peers test-bench acceptance lint clean
.PHONY: console test-console record-peers record-kafka record-rabbitmq bench bench-full bench-build bench-gate

help:
	@echo "make run           build a release binary and start a broker with the defaults"
	@echo "make build         leave $(BINARY)"
	@echo "make test          all tests: Rust, simulated crashes, then real clients against a release with assertions"
	@echo "make acceptance    the long runs: 5,000 seeds, 100,000 records a client and codec, 40 kills"
	@echo "make bench         compare with the real peers, 90 minutes; the report is target/bench/quick/report.html"
	@echo "make bench-full    the same at length; what is there already is not run again"
	@echo "make bench-gate    instructions per record, CPU per GB and the ratio to Kafka against bench/baseline.json"
	@echo "make test-peers    ask the broker what a real Kafka and a real RabbitMQ were asked, and compare the answers"
	@echo "make record-peers  record the answers of a real Kafka and, as root, of a real RabbitMQ again"
	@echo "make console       build the console's files anew, after a change in console/; needs Node.js"
	@echo "make test-console  the console in a headless browser; screenshots are in target/console"
	@echo "make lint          rustfmt and clippy, warnings are errors"

run: build
	$(BINARY) serve

build:
	$(CARGO) build --release -p mainstem

# The simulator computes with what the others leave, as long as these wait for much of their time; what the clients need is brought beside the tests in Rust.
test:
	@failed=0; mkdir -p target; \
	$(MAKE) -k test-format test-build || failed=1; \
	nice -n 19 $(MAKE) -k test-sim >target/test-sim.log 2>&1 & sim=$$!; \
	nice -n 19 conformance/run install >target/test-install.log 2>&1 & install=$$!; \
	$(MAKE) -k test-rust || failed=1; \
	wait $$install; \
	conformance/run beside --binary $(CURDIR)/$(TESTED) || failed=1; \
	wait $$sim || failed=1; \
	cat target/test-sim.log; \
	conformance/run alone --binary $(CURDIR)/$(TESTED) || failed=1; \
	$(MAKE) -k test-peers test-console test-bench || failed=1; \
	exit $$failed

# Where rustfmt is there, as it is with each usual toolchain.
test-format:
	if $(CARGO) fmt --version >/dev/null 2>&1; then $(CARGO) fmt --all --check; fi

test-rust: test-format test-build
	$(TESTS) --no-fail-fast

# The journal on a simulated disk: random operations, faults and crashes; then defects that must be found. Seeds 1670 and 1970 have found that retention by
# size counted records that were deleted, seed 22426 that it counted those of segments that were just rewritten twice, seed 64010 that `journal verify` took a chunk that a
# start had cut off for one that goes on behind a damage, seed 300 that data waited beside short segments of which nothing was live,
# seed 1710 that after refusals the archiver looked at so few segments that nothing in them could be archived, for good, seed 203249 that
# `journal verify` missed a checkpoint that could not be replaced, and for which another file stands, seed 301016 that records in a rewritten segment were not found after
# a restart beside the file of one that had been dead between those it was made of, and could not be removed.
test-sim:
	$(SIM) --seeds 1 --start 300
	$(SIM) --seeds 1 --start 203249
	$(SIM) --seeds 1 --start 301016
	$(SIM) --seeds 400 --start 1600
	$(SIM) --seeds 100 --start 22400
	$(SIM) --seeds 100 --start 63950
	$(SIM) --seeds 500 --planted all

# The benchmark needs more than a compiler, and is left out without it: `test-bench` fails then.
test-build:
	-bench/prepare --browser
	$(TESTS) --no-run
	$(CARGO) build --profile tested -p sim

test-clients: test-build
	conformance/run test --binary $(CURDIR)/$(TESTED)

test-peers: test-build
	conformance/peers/test $(TESTED)
	conformance/amqp/peers/test $(TESTED)
	conformance/amqp/random/test $(TESTED)

# The benchmark's own tests are among those in Rust (null brokers, client libraries, a comparison of our broker with itself); here its report in a browser.
test-bench:
	bench/prepare --browser
	cd bench/report && npm test --silent && npm run --silent check

# The console: its files are what its sources build to, and every page in a headless browser against the broker.
test-console: test-build
	console/prepare
	console/check-built
	cd console && npm test --silent && npm run --silent check -- ../$(TESTED) ../target/console

# Builds the files of the console that the binary carries.
console:
	console/prepare
	cd console && npm run --silent build

bench-build: build
	bench/prepare
	$(CARGO) build --release -p mainstem-bench

bench: bench-build
	$(BENCH) suite

bench-full: bench-build
	$(BENCH) suite --scale full

# Needs valgrind. `$(BENCH) gate --update` writes a new baseline.
bench-gate: bench-build
	$(BENCH) gate

record-peers: record-kafka $(if $(wildcard $(RABBITMQ_PEER)),record-rabbitmq)

record-kafka:
	@test -x $(KAFKA_PEER) || { echo "record-kafka: no $(KAFKA_PEER); set KAFKA_PEER to a script that takes start and stop, \
	or start Kafka $(KAFKA_VERSION) and run conformance/peers/record --bootstrap HOST:PORT --version $(KAFKA_VERSION)"; exit 1; }
	KAFKA_VERSION=$(KAFKA_VERSION) PORT=$(KAFKA_PORT) $(KAFKA_PEER) start
	conformance/peers/record --bootstrap 127.0.0.1:$(KAFKA_PORT) --version $(KAFKA_VERSION); \
		status=$$?; PORT=$(KAFKA_PORT) $(KAFKA_PEER) stop; exit $$status
	conformance/peers/logins.py properties $(KAFKA_LOGINS) >target/kafka-logins.properties
	HEAP="$(KAFKA_LOGIN_JAVA)" PORT=$(KAFKA_LOGIN_PORT) EXTRA_PROPS=target/kafka-logins.properties $(KAFKA_PEER) start
	conformance/peers/logins.py record $(KAFKA_LOGINS); \
		status=$$?; PORT=$(KAFKA_LOGIN_PORT) $(KAFKA_PEER) stop; exit $$status
	conformance/peers/acls.py properties $(KAFKA_ACLS) >target/kafka-acls.properties
	PORT=$(KAFKA_ACL_PORT) EXTRA_PROPS=target/kafka-acls.properties $(KAFKA_PEER) start
	conformance/peers/acls.py record $(lastword $(KAFKA_ACLS)); \
		status=$$?; PORT=$(KAFKA_ACL_PORT) $(KAFKA_PEER) stop; exit $$status
	port=$(KAFKA_DECISION_PORT); for open in false true; do \
		sasl=127.0.0.1:$$((port + 2)); \
		conformance/decisions/recordings.py properties 127.0.0.1:$$port $$sasl $$open >target/kafka-decisions.properties && \
		PORT=$$port EXTRA_PROPS=target/kafka-decisions.properties $(KAFKA_PEER) start || exit 1; \
		conformance/decisions/recordings.py kafka $$sasl $$open; \
		status=$$?; PORT=$$port $(KAFKA_PEER) stop; test $$status = 0 || exit $$status; port=$$((port + 10)); \
	done

# RabbitMQ says its version itself; a record of another one than before is a new file, to be named in conformance/amqp/peers/table.py.
record-rabbitmq:
	@test -x $(RABBITMQ_PEER) || { echo "record-rabbitmq: no $(RABBITMQ_PEER); set RABBITMQ_PEER to a script that takes start and stop, \
	or start RabbitMQ and run conformance/amqp/peers/record --broker HOST:PORT"; exit 1; }
	@test "$$(id -u)" = 0 || { echo "record-rabbitmq: $(RABBITMQ_PEER) needs root"; exit 1; }
	SUITE=$(RABBITMQ_SUITE) PORT=$(RABBITMQ_PORT) $(RABBITMQ_PEER) start
	conformance/amqp/peers/record --broker 127.0.0.1:$(RABBITMQ_PORT) && \
		conformance/amqp/random/record --broker 127.0.0.1:$(RABBITMQ_PORT); \
		status=$$?; SUITE=$(RABBITMQ_SUITE) PORT=$(RABBITMQ_PORT) $(RABBITMQ_PEER) stop; exit $$status
	SUITE=$(RABBITMQ_SUITE) PORT=$(RABBITMQ_DECISION_PORT) PLUGINS=rabbitmq_management $(RABBITMQ_PEER) start
	conformance/decisions/recordings.py rabbitmq 127.0.0.1:$(RABBITMQ_DECISION_PORT) 127.0.0.1:$$(($(RABBITMQ_DECISION_PORT) + 3)); \
		status=$$?; SUITE=$(RABBITMQ_SUITE) PORT=$(RABBITMQ_DECISION_PORT) $(RABBITMQ_PEER) stop; exit $$status

acceptance: build
	$(SIM) --seeds 5000
	$(SIM) --seeds 500 --planted all
	DAMAGES=all $(CARGO) test -p mainstem --test it damages
	conformance/run full
	conformance/acceptance/run

lint: test-format
	$(CARGO) clippy --workspace --all-targets -- -D warnings

clean:
	$(CARGO) clean
