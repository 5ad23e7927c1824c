# Two commands do everything on a machine with Python, Java 17 and a network for packages: `make demo` and `make test`.
#   SPARK=3.5   another Spark line: 3.3 (with Python 3.8), 3.4, 3.5, 4.1 or 4.2 (default 4.0)
#   PYTHON=...  the Python to build the environment with (tests/lab/setup.sh lists those of each line)
#   TESTS="tests/unit"   `make test` runs these alone, long ones too
#   SHARD=1/3   `make test-long` runs this part of the test files
#   PORTS="9092 9192"   `make clusters` starts them there; its screen says how to use them at others
#   ROUNDS=5    `make bench-mm2` copies each topic so often with each engine
#   CASES="far small"         ... these topics alone
#   ENGINES="mirror tuned"    ... with these engines alone
#   BIG=1                     ... and 10 GB too
#   SEED=7      `make faults` and `make soak` draw with this seed
#   HOURS=1     `make soak` runs so long
#   OFFLINE=1   `make audit` passes where no advisory service can be reached
#   ROWS="2.4.1->3.2.0,hdinsight"   `make compat` runs these alone

SHELL := bash
SPARK ?= 4.0
TESTS ?=
ROWS ?=
PORTS ?= 9092 9192
SHARD ?=
OFFLINE ?=
VENV := $(if $(filter 4.0,$(SPARK)),.venv,.venv-spark$(SPARK))
PY := $(VENV)/bin/python

# What is started from here uses this environment, whatever the caller's shell points at.
export SPARK VENV PORTS
export MIRROR_VENV := $(CURDIR)/$(VENV)
unexport PYTHONPATH PYTHONHOME SPARK_HOME SPARK_CONF_DIR PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON

.PHONY: help setup demo clusters test test-long test-lines test-all check bench bench-kill bench-latency bench-mm2 bench-scale bench-verify clean
.PHONY: faults soak compat compat-brokers compat-clusters compat-spark lock sbom audit

help:
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/make \1	\2/p' Makefile

setup: ## the Python environment, Spark's connectors and Kafka brokers, all inside the checkout
	@bash tests/lab/setup.sh

demo: setup ## two real clusters, a hard data set, one mirror run, a proof that the copy is exact
	@$(PY) -m tests.lab.demo demo

clusters: setup ## two clusters to try things on, where conf/mirror.yaml looks for them, until Ctrl-C (PORTS="19092 19192" for others)
	@$(PY) -m tests.lab.demo clusters

# The tests that need no broker and no Spark. `check` takes less than three minutes on two cores.
FAST := tests/test_architecture.py tests/test_readme.py tests/unit tests/mutation

check: setup ## lint, types, the house rules, the pages, unit tests: no broker, no Spark
	@$(PY) -m ruff check .
	@$(PY) -m mypy & types=$$!; $(PY) -m pytest -q -n 2 --durations=5 $(FAST); tests=$$?; wait $$types && exit $$tests

# Three at once on two cores, because tests wait for brokers a part of their time. All use one pair of clusters.
BROKERS := $(PY) -m pytest -n 3 --dist loadfile --no-loadscope-reorder --durations=50

# `check` runs on the first Spark line alone. On another line this target runs the unit tests too.
test: $(if $(or $(TESTS),$(filter-out 4.0,$(SPARK))),setup,check) ## check, then the tests of what the README promises, against real brokers
	@$(BROKERS) $(if $(TESTS),-m "" $(TESTS),$(if $(filter 4.0,$(SPARK)),tests/integration tests/compat tests/faults))

test-long: setup ## the tests marked long: crash matrices, cases that few users meet, mutants of the tests (SHARD=1/3)
	@LONG_SHARD=$(SHARD) $(BROKERS) -m long

# A few tests of each kind on the oldest Spark with the oldest Python and packages, which is skipped where the machine
# has no Python 3.8, and on the last Spark 3.
test-lines: setup ## a quick row on Spark 3.3 and on Spark 3.5 (LINES="3.3")
	@CHECKS= QUICK=1 $(PY) -m tests.compat.spark_lines $(or $(LINES),3.3 3.5)

test-all: ## everything: test, test-long, test-lines
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory test-long
	@$(MAKE) --no-print-directory test-lines

compat: compat-brokers compat-clusters compat-spark ## every Kafka release, cluster and Spark line that docs/deploy/compatibility.md lists

# One process: a row's brokers are enough for one machine.
compat-brokers: setup ## Kafka releases from 2.4 to 4.3 as source and as target, real brokers of each: ROWS=
	@COMPAT_ROWS="$(if $(ROWS),$(ROWS),all)" $(PY) -m pytest -v -m "" tests/compat

compat-clusters: setup ## YARN with HDFS, and a standalone Spark, over kills: TESTS="tests/clusters/test_yarn.py"
	@CLUSTERS=1 $(PY) -m pytest -q -m "" --durations=0 $(if $(TESTS),$(TESTS),tests/clusters)

compat-spark: setup ## the same tests on each Spark line: LINES="3.3 4.1", CHECKS="copy state", QUICK=1
	@CHECKS="$(CHECKS)" QUICK="$(QUICK)" $(PY) -m tests.compat.spark_lines $(LINES)

faults: setup ## broken input, and a replicator between clusters of three brokers under faults: CASES=, ENGINES=, SEED=, SHARD=1/3
	@$(if $(CASES),,MIRROR_EXAMPLES=3000 $(PY) -m pytest -q -n 2 -p no:warnings tests/unit/test_any_bytes.py)
	@$(PY) -m pytest -q -s -m "" -p no:warnings tests/faults

soak: setup ## random faults under load for HOURS=1 (SEED=), then the verdict over all that was copied
	@CASES=soak $(PY) -m pytest -q -s -m "" -p no:warnings tests/faults/test_faults.py -k after_faults

bench: setup ## records/s on this machine, beside MirrorMaker 2: one round of three topics
	@ROUNDS=1 CASES="bytes100 bytes1000 json.zstd" $(PY) -m tests.bench.mm2

bench-mm2: setup ## the same topics through this mirror and MirrorMaker 2: ROUNDS=, CASES=, ENGINES=, BIG=1
	@$(PY) -m tests.bench.mm2

bench-verify: setup ## how fast a copy is verified, beside the copy itself: CASES=
	@$(PY) -m tests.bench.verify

bench-scale: setup ## what a driver costs with 10,000 partitions, and with a long backlog
	@$(PY) -m tests.bench.scale

bench-latency: setup ## from acknowledged on the source to read on the target, beside MirrorMaker 2: RATES=, SECONDS=
	@$(PY) -m tests.bench.latency

bench-kill: setup ## what three kills of the process leave on the target: this mirror, MirrorMaker 2, and MirrorMaker 2 with exactly-once
	@CASES=process-killed ENGINES="mirror mm2 mm2-exactly-once" $(PY) -m pytest -q -s -m "" -p no:warnings tests/faults/test_faults.py -k after_faults

# Tools that no test needs, in an environment of their own.
TOOLS := .venv-tools/bin/python

.venv-tools/.ready: locks/tools.txt | setup
	@.venv/bin/python -m venv .venv-tools
	@$(TOOLS) -m pip install -q --require-hashes --only-binary :all: -r $<
	@touch $@

lock: .venv-tools/.ready ## write the files in locks/ again: the newest packages that setup.py allows, jars of each Spark line
	@for line in 3.3 3.4 3.5 4.0 4.1 4.2; do SPARK=$$line LOCK=1 bash tests/lab/setup.sh || exit; done

sbom: .venv-tools/.ready ## what runs with a mirror, packages and jars, as CycloneDX: dist/sbom.cdx.json
	@$(TOOLS) -m tools.supply sbom

audit: .venv-tools/.ready ## known vulnerabilities of the locked packages, and licences of all that runs (OFFLINE=1: the licences alone will do)
	@$(TOOLS) -m tools.supply audit $(if $(OFFLINE),--offline)

clean: ## remove what the other targets made
	rm -rf .venv .venv-spark* .venv-tools .cache build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse artifacts
