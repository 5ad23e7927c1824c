# Two commands do everything on a machine with Python, Java 17 and a network for packages: `make demo` and `make test`.
#   SPARK=3.5   the second Spark line this project is tested with (default 4.0)
#   PYTHON=...  the Python to build the environment with (3.9 or newer; 3.11 is what is used here)
#   TESTS="tests/unit"   `make test` runs these alone
#   KEEP=1      `make demo` leaves both clusters running and prints their addresses
#   PORTS="9092 9192"   `make clusters` starts them there; its screen says how to use them at others
#   ROUNDS=5    `make bench-mm2` copies each topic so often with each engine
#   CASES="far small"         ... these topics alone
#   ENGINES="mirror tuned"    ... with these engines alone
#   BIG=1                     ... and 10 GB too

SHELL := bash
SPARK ?= 4.0
TESTS ?=
KEEP ?=
PORTS ?= 9092 9192
VENV := $(if $(filter 4.0,$(SPARK)),.venv,.venv-spark$(SPARK))
PY := $(VENV)/bin/python

# What is started from here uses this environment, whatever the caller's shell points at.
export SPARK VENV KEEP PORTS
export MIRROR_VENV := $(CURDIR)/$(VENV)
unexport PYTHONPATH PYTHONHOME SPARK_HOME SPARK_CONF_DIR PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON

.PHONY: help setup demo clusters test check bench bench-groups bench-latency bench-ledger bench-mm2 bench-scale clean

help:
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/make \1	\2/p' Makefile

setup: ## the Python environment, Spark's connectors and Kafka brokers, all inside the checkout
	@bash tests/lab/setup.sh

demo: setup ## two real clusters, a hard data set, one mirror run, a proof that the copy is exact
	@$(PY) -m tests.lab.demo

clusters: setup ## two clusters to try things on, where conf/mirror.yaml looks for them, until Ctrl-C (PORTS="19092 19192" for others)
	@$(PY) -m tests.lab.two_clusters

check: setup ## lint, types, import rules, syntax floor
	@$(PY) -m ruff check .
	@$(PY) -m mypy
	@$(PY) -m pytest -q tests/test_architecture.py

# Three at once on two cores, because tests wait for brokers a part of their time.
test: check ## everything, against real brokers
	@$(PY) -m pytest -n 3 --dist loadfile --no-loadscope-reorder --durations=25 $(TESTS)

bench: setup ## records/s and MB/s on this machine, beside a Java loop
	@ROUNDS=1 ENGINES="mirror loop" CASES="bytes100 bytes1000 json.zstd" RESULTS=.cache/bench/quick.json $(PY) -m tests.bench.mm2

bench-mm2: setup ## the same topics through this mirror, MirrorMaker 2 and a Java loop: ROUNDS=, CASES=, ENGINES=, BIG=1
	@$(PY) -m tests.bench.mm2

bench-groups: setup ## how long it takes to translate many groups, and how stale they are
	@$(PY) -m tests.bench.groups

bench-scale: setup ## what a driver costs with 10 000 partitions, and with a long backlog
	@$(PY) -m tests.bench.scale

bench-ledger: setup ## what reading the ledger and committing to it cost, up to ten million rows
	@$(PY) -m tests.bench.ledger

bench-latency: setup ## from acknowledged on the source to read on the target, beside MirrorMaker 2: RATES=, SECONDS=
	@$(PY) -m tests.bench.latency

clean: ## remove what the other targets made
	rm -rf .venv .venv-spark* .cache build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse artifacts
