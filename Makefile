# Every target sets up what it needs in .venv (once; the second run starts at once) and touches nothing outside the checkout.
# Variables: ARGS (passed on to the command), PYTHON (interpreter for the environment), TESTS (paths for make test),
# JOBS (processes that make test uses; auto is one a core and one for what waits, 0 is none but its own).
SHELL := /bin/bash
VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.ready
TESTS ?= tests
ARGS  ?=
JOBS  ?= auto

# Images of containers forbid Python to keep bytecode; then each of the thousands of processes of a test run compiles all
# that it imports: 0.5 s a broker.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test further check format docker-image docker-demo docker-test interop jepsen chaos fuzz bench relock clean

help: ## Print this list
	@echo "LedgerMQ: a Raft-replicated message broker that speaks RocketMQ's protocol."
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "Options go in ARGS:  make demo ARGS=--break=ack-before-quorum   make test ARGS='-k raft -x'"

$(STAMP): pyproject.toml constraints.txt scripts/setup.sh
	@bash scripts/setup.sh $(VENV)

setup: $(STAMP) ## Create .venv with the ledgermq command (the other targets do this themselves)

demo: $(STAMP) ## Three brokers under faults, then Spark's verdict on what happened (about three minutes)
	@$(BIN)/ledgermq demo $(ARGS)

test: $(STAMP) ## The tests that need neither a Docker engine nor Maven
	@$(BIN)/pytest -n $(JOBS) -m "not docker and not interop and not jepsen and not further" $(TESTS) $(ARGS)

further: $(STAMP) ## More of what these tests show: all planted bugs of the simulator, more histories for Spark (a quarter of an hour)
	@$(BIN)/pytest -n $(JOBS) -m further $(TESTS) $(ARGS)

check: $(STAMP) ## Formatting, lint, types and import layers
	@failed=0; \
	for tool in "ruff check ." "ruff format --check ." "mypy" "lint-imports --no-cache --no-logo"; do \
		echo "-- $$tool"; $(BIN)/$$tool || failed=1; \
	done; exit $$failed

format: $(STAMP) ## Apply what make check would ask for, as far as a tool can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docker-image: $(STAMP) ## Build the image ledgermq:latest (starts an engine if it may, makes a base if none can be pulled)
	@bash docker/engine.sh start
	@bash docker/build.sh
	@echo "An engine that this started goes on running, for compose; to stop it: bash docker/engine.sh stop"

docker-demo: $(STAMP) ## The same job as make demo against a cluster of containers (stops an engine that it started)
	@bash docker/engine.sh run bash -c 'bash docker/build.sh && exec "$$0" demo --backend docker "$$@"' $(BIN)/ledgermq $(ARGS)

docker-test: $(STAMP) ## Tests of the image and of the compose cluster (stops an engine that it started)
	@bash docker/engine.sh run bash -c 'bash docker/build.sh && exec "$$0" -m docker tests/docker "$$@"' $(BIN)/pytest $(ARGS)

interop: $(STAMP) ## Published clients on our cluster, our client on real brokers (needs Java, Maven, Go and Cargo)
	@$(BIN)/pytest -m interop -s tests/interop $(ARGS)

jepsen: export JEPSEN_CLASSPATH := $(JEPSEN_CLASSPATH)
jepsen: $(STAMP) ## Jepsen's own checkers on histories that we export (needs Java and JEPSEN_CLASSPATH)
	@$(BIN)/pytest -m jepsen tests/jepsen $(ARGS)

chaos: $(STAMP) ## Ten scenarios of faults on processes, three in containers, one verdict page
	@bash scripts/chaos.sh $(BIN)/ledgermq $(ARGS)

fuzz: $(STAMP) ## Hostile frames against a real group and real name servers (three minutes)
	@$(BIN)/ledgermq fuzz $(ARGS)

bench: $(STAMP) ## Measure throughput and latency against PySyncObj and a loopback echo
	@$(BIN)/ledgermq bench $(ARGS)

relock: ## Write constraints.txt anew from the ranges in pyproject.toml
	@bash scripts/relock.sh

clean: ## Remove .venv, caches, wheels and runs
	rm -rf $(VENV) build dist wheels docker/wheels runs *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
