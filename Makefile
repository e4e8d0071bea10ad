# `make help` lists the targets. Nothing has to be installed first but Python 3.11 or later (or uv).

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

# Every process that a test starts would compile our modules anew, which takes a second.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PREPARED := $(VENV)/.prepared
# The site's tools have an environment of their own: building it needs neither Spark nor Java.
DOCS_VENV := .venv-docs
DOCS_READY := $(DOCS_VENV)/.ready
# Two processes, each with a Spark of its own. A file's tests stay together, in the order of their names: those on a cluster
# replace their process's Spark, and come last.
SIDE_BY_SIDE := -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: help demo test test-all test-bad-rows test-cli test-cluster test-connectors test-contract test-databases test-derived test-docs test-files test-formats test-http test-kafka test-lakes test-objects test-restart test-runtime test-sql test-tables test-trials test-windows check bench bench-connectors bench-tables bench-databases bench-pipelines soak docs setup prepare clean

help: ## what there is to make
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name what; do printf '  make %-16s %s\n' "$$name" "$$what"; done

demo: prepare ## tables that move while you watch
	@$(BIN)/velo demo

test: prepare ## the tests; of those that cost much and vary little a part, by the seed of the run
	@scripts/databases
	@scripts/objectstore
	@$(BIN)/pytest -q $(SIDE_BY_SIDE) --durations=20 --durations-min=5

test-all: prepare ## all tests
	@scripts/databases
	@scripts/objectstore
	@VELOSTREAM_TEST_ALL=1 $(BIN)/pytest -q $(SIDE_BY_SIDE)

AREA = @$(BIN)/pytest -q $(SIDE_BY_SIDE)

test-bad-rows: prepare ## rows that cannot be used: dead letters, replay
	$(AREA) tests/bad_rows

test-cli: prepare ## the command line
	$(AREA) tests/cli tests/unit/cli

test-cluster: prepare ## a standalone cluster
	$(AREA) tests/cluster

test-connectors: prepare ## connectors of one's own: the interface, the package that velo makes
	$(AREA) tests/connectors

test-contract: prepare ## what every source, sink and table must do
	$(AREA) tests/contract tests/*/test_*_contract.py

test-databases: prepare ## PostgreSQL, MySQL and MariaDB, on real servers
	@scripts/databases
	$(AREA) tests/databases tests/unit/connectors/databases tests/unit/connectors/mysql

test-derived: prepare ## tables over tables, in memory and in Delta Lake
	$(AREA) tests/derived

test-docs: prepare ## guides, reference and examples, as they are written
	$(AREA) tests/docs

test-files: prepare ## the file source and sink
	$(AREA) tests/files tests/unit/connectors/files

test-formats: prepare ## JSON, CSV, Avro, Protobuf, Debezium
	$(AREA) tests/formats tests/unit/formats

test-http: prepare ## resources, events and webhooks, on a real web server
	$(AREA) tests/http

test-kafka: prepare ## Kafka, on a real broker
	$(AREA) tests/kafka tests/unit/connectors/kafka

test-lakes: prepare ## tables of Delta Lake and Iceberg, with a real catalogue
	$(AREA) tests/lakes tests/unit/connectors/lakes tests/unit/connectors/delta tests/unit/connectors/iceberg

test-objects: prepare ## S3, on a real object store
	@scripts/objectstore
	$(AREA) tests/objects

test-restart: prepare ## kill -9 at every interesting moment
	$(AREA) tests/restart

test-sql: prepare ## the SQL front end and the planner
	$(AREA) tests/sql tests/unit/sql tests/unit/plan

test-runtime: prepare ## databases, statements, jobs, the Python API
	$(AREA) tests/runtime tests/unit/api tests/unit/runtime tests/unit/engine tests/unit/spark tests/unit/devtools

test-tables: prepare ## tables: storage, lookups, SQL over them
	$(AREA) tests/serving tests/unit/serving

test-trials: prepare ## limits, bombs, full disks, hostile names
	$(AREA) tests/trials

test-windows: prepare ## event time, windows, OVER, stream joins: cases as text
	$(AREA) tests/velotest tests/windows tests/unit/testing

check: setup ## format, lint, types, import contracts, and the tests that need no Java
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/pytest -q -n 2 tests/unit -m "not spark"
	@$(BIN)/pytest --collect-only -qq >/dev/null # every test can be loaded

bench: prepare ## speed, beside hand-written PySpark
	@$(BIN)/python -m benchmarks

bench-connectors: prepare ## a connector of one's own beside Spark's data sources, S3 beside Spark's reader
	@scripts/objectstore
	@$(BIN)/python -m benchmarks.connectors

bench-tables: prepare ## lookups and questions, beside a plain dict, DuckDB, SQLite and polars
	@$(BIN)/python -m benchmarks.tables

bench-databases: prepare ## from and into PostgreSQL, beside Spark's JDBC reader and Debezium: 15 minutes
	@scripts/databases
	@$(BIN)/python -m benchmarks.databases

bench-pipelines: prepare ## from Kafka into tables and topics, beside hand-written PySpark and PyFlink: 40 minutes
	@$(BIN)/python -m benchmarks.pipelines

soak: prepare ## the long random tests with full counts; the result goes to benchmarks/soak.txt
	@{ git log -1 --format='commit %h of %cs' && VELOSTREAM_SOAK=1 $(BIN)/pytest -q -n 2 --durations=0 --durations-min=1 --timeout=7200; } | tee benchmarks/soak.txt

docs: $(DOCS_READY) ## the documentation as a site, in build/site; a link that leads nowhere fails it
	@NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict
	@echo "build/site/index.html"

$(DOCS_READY): uv.lock pyproject.toml scripts/setup
	@scripts/setup $(DOCS_VENV) docs
	@touch $@

setup: $(READY) ## the virtual environment, and Java where there is none

$(READY): uv.lock pyproject.toml scripts/setup
	@scripts/setup $(VENV)
	@touch $@

prepare: $(PREPARED) ## what makes Spark start faster, once per machine

$(PREPARED): $(READY)
	@$(BIN)/python -m velostream.spark.prepare
	@touch $@

clean: ## remove what the other targets made here
	@rm -rf $(VENV) .venv-tools $(DOCS_VENV) .venv-flink build .mypy_cache .ruff_cache .hypothesis .import_linter_cache
