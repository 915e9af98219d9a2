# `make` lists the targets. A target that is up to date costs nothing: the files under .venv/ and .cache/ that
# start with "." + "done" say what was installed from which lock file.

PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2
SECONDS ?= 60
SEEDS ?= 1-10000
LISTENER ?= PLAINTEXT://127.0.0.1:9092

RUN := .venv/.done-run
TOOLS := .venv/.done-tools
SPARK := .venv/.done-spark
OLDER_SPARK := .cache/spark-3.5/.done
FUZZ := .venv/.done-fuzz
JARS := $(patsubst %,.cache/%/.done,kafka kafka-3.9.2 kafka-4.3.1 kafka-streams)
CLIENTS := .cache/clients/.done-go .cache/clients/.done-node .cache/clients/.done-kcat
PROGRAMS := compat_tests/clients/programs

PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --require-hashes --requirement
MAVEN := mvn -q -B -f compat_tests/pom.xml

.PHONY: help setup setup-tests run demo check test compat lint bench sim fuzz lock clean cluster cluster-local

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(RUN) ## what `make run` needs: .venv with the few runtime packages
setup-tests: $(TOOLS) $(SPARK) $(JARS) $(CLIENTS) ## what `make test` needs as well: tools, PySpark (400 MB), Kafka's jars, clients

run: $(RUN) ## start a broker on 127.0.0.1:9092 (LISTENER=PLAINTEXT://HOST:PORT)
	@exec $(BIN)/kbroker start --listener $(LISTENER)

demo: $(SPARK) ## sensors, Spark and controllers on a broker, live for a minute (SECONDS=60; needs Java 17)
	@$(BIN)/python spark_examples/demo.py --seconds $(SECONDS)

cluster-local: $(RUN) $(SPARK) ## ZooKeeper and three brokers as plain processes, until Ctrl-C (ARGS="--port 9092 --data DIR")
	@exec $(BIN)/python -m compat_tests.cluster.processes $(ARGS)

cluster: ## ZooKeeper, three brokers, Prometheus and Grafana in containers (docker/docker-compose.yml)
	@if ! docker info >/dev/null 2>&1; then echo "no Docker engine answers here: try make cluster-local"; exit 1; fi; \
	if docker compose version >/dev/null 2>&1; then compose="docker compose"; else compose=docker-compose; fi; \
	$$compose -f docker/docker-compose.yml up --build --detach && \
	echo "brokers at localhost:9092, 9093, 9094; Prometheus at :9090, Grafana at :3000" && \
	echo "to stop: $$compose -f docker/docker-compose.yml down (--volumes takes the data as well)"

check: lint ## format, lint, types, import rules and the fast tests, in under a minute
	$(BIN)/python -m pytest -m "not slow" -n $(WORKERS)

test: lint $(SPARK) $(JARS) $(CLIENTS) ## everything a change must pass; what CI runs
	$(BIN)/python -m pytest -n $(WORKERS)

compat: $(TOOLS) $(SPARK) $(OLDER_SPARK) $(JARS) $(CLIENTS) ## stock clients only, with long campaigns, Spark 3.5 too (400 MB); rewrites their table in docs/compatibility.md
	@KBROKER_KILLS=10 $(BIN)/python -m pytest compat_tests -m feature -n $(WORKERS) --junitxml=.cache/compat.xml; \
	status=$$?; \
	KBROKER_CRASH_STATES=1000 $(BIN)/python -m pytest -q compat_tests/storage/test_crash_states.py || status=$$?; \
	$(dir $(OLDER_SPARK))bin/python -m pytest compat_tests/spark --junitxml=.cache/compat-spark.xml || status=$$?; \
	$(BIN)/python -m compat_tests.features .cache/compat.xml .cache/compat-spark.xml && exit $$status

lint: $(TOOLS)
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: $(TOOLS) ## measure; most figures are ratios to something in the same run
	@for file in benchmarks/*.py; do $(BIN)/python -m benchmarks.$$(basename $$file .py) || exit 1; done

sim: $(TOOLS) ## clusters under seeded faults on virtual time: lists seeds that fail (SEEDS=1-10000; one, with ARGS=--verbose)
	@$(BIN)/python -m tests.sim $(SEEDS) $(ARGS)

fuzz: $(FUZZ) ## malformed bytes against every decoder (SECONDS=60)
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

lock: .cache/lock/bin/uv ## renew the lock files from pyproject.toml
	$(UV_COMPILE) --upgrade -o requirements.lock
	$(UV_COMPILE) --upgrade --extra test -c requirements.lock -o requirements-test.lock
	$(UV_COMPILE) --upgrade --extra spark -c requirements.lock -c compat_tests/spark/pyspark-4.0.txt -o requirements-spark.lock
	$(UV_COMPILE) --upgrade --extra spark -c requirements-test.lock -c compat_tests/spark/pyspark-3.5.txt \
		-o requirements-spark-3.5.lock
	$(UV_COMPILE) --upgrade --extra fuzz -c requirements.lock -o requirements-fuzz.lock

clean: ## remove everything that make made here
	rm -rf .venv .cache build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The project is used where it lies: a path file instead of an installation, so that nothing needs to be built.
PATH_FILE := -c 'import os, pathlib, sysconfig; \
	pathlib.Path(sysconfig.get_path("purelib"), "kbroker.pth").write_text(os.getcwd() + "\n")'
$(RUN): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kbroker needs Python 3.11 or newer: make PYTHON=...")'
	$(PYTHON) -m venv .venv
	$(PIP) requirements.lock
	@$(BIN)/python $(PATH_FILE)
	@printf '#!/bin/sh\nexec "%s" -m kbroker "$$@"\n' "$(CURDIR)/$(BIN)/python" > $(BIN)/kbroker
	@chmod +x $(BIN)/kbroker
	@touch $@

$(TOOLS): requirements-test.lock $(RUN)
	$(PIP) requirements-test.lock
	@touch $@

$(SPARK): requirements-spark.lock $(RUN)
	$(PIP) requirements-spark.lock
	@touch $@

# The same with an older PySpark, which needs a .venv of its own.
$(OLDER_SPARK): requirements-test.lock requirements-spark-3.5.lock
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes \
		--requirement requirements-test.lock --requirement requirements-spark-3.5.lock
	@$(@D)/bin/python $(PATH_FILE)
	@touch $@

# Where atheris has no wheel, the fuzzer does without it, and says so.
$(FUZZ): requirements-fuzz.lock $(TOOLS)
	-$(PIP) requirements-fuzz.lock --only-binary :all:
	@touch $@

# Without Maven the tests that compare with Apache Kafka skip, and say so.
.cache/kafka/.done: compat_tests/pom.xml
	@mkdir -p $(@D)
	@if command -v mvn >/dev/null; then $(MAVEN) dependency:copy -DoutputDirectory=$(CURDIR)/$(@D) && touch $@; \
	else echo "no Maven here: no jars in $(@D)"; fi

.cache/kafka-%/.done: compat_tests/pom.xml
	@mkdir -p $(@D)
	@if command -v mvn >/dev/null; then \
	$(MAVEN) -P kafka-$* dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/$(@D) && touch $@; \
	else echo "no Maven here: no jars in $(@D)"; fi

# Clients in other languages than Python. Where the tool is missing their tests skip, and say so.
.cache/clients/.done-go: $(wildcard $(PROGRAMS)/go.* $(PROGRAMS)/*/*.go)
	@mkdir -p $(@D)
	@if command -v go >/dev/null; then cd $(PROGRAMS) && go build -o $(CURDIR)/$(@D)/ ./... && touch $(CURDIR)/$@; \
	else echo "no Go here: franz-go and sarama are not tested"; fi

.cache/clients/.done-node: $(wildcard $(PROGRAMS)/package*.json)
	@mkdir -p $(@D) && cp $^ $(@D)/
	@if command -v npm >/dev/null; then npm ci --silent --prefix $(@D) && touch $@; \
	else echo "no npm here: kafkajs is not tested"; fi

# Debian's package, where that is a matter of a moment.
.cache/clients/.done-kcat:
	@mkdir -p $(@D)
	@if ! command -v kcat >/dev/null && command -v apt-get >/dev/null && test "$$(id -u)" = 0; then \
	apt-get install --yes --no-install-recommends kcat >/dev/null 2>&1; fi; \
	command -v kcat >/dev/null || echo "no kcat here: it is not tested"
	@touch $@

.cache/lock/bin/uv:
	$(PYTHON) -m venv .cache/lock
	.cache/lock/bin/pip install --quiet uv

# No index is named, and none is written: whoever installs uses their own.
UV_COMPILE := .cache/lock/bin/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate \
	--python-version 3.11 pyproject.toml
