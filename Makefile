# `make help` lists the targets. Nothing has to be installed first but Python 3.11 or later (or uv).

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PREPARED := $(VENV)/.prepared
# Two processes, each with a Spark of its own. A file's tests stay together, in the order of their names: those on a
# cluster replace their process's Spark, and come last.
SIDE_BY_SIDE := -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: help demo test test-bad-rows test-cli test-cluster test-contract test-derived test-docs test-files test-formats test-kafka test-restart test-runtime test-sql test-tables test-trials test-windows check bench bench-tables bench-pipelines soak setup prepare clean

help: ## what there is to make
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name what; do printf '  make %-16s %s\n' "$$name" "$$what"; done

demo: prepare ## tables that move while you watch
	@$(BIN)/velo demo

test: prepare ## all tests
	@$(BIN)/pytest -q $(SIDE_BY_SIDE)

AREA = @$(BIN)/pytest -q $(SIDE_BY_SIDE)

test-bad-rows: prepare ## rows that cannot be used: dead letters, replay
	$(AREA) tests/bad_rows

test-cli: prepare ## the command line
	$(AREA) tests/cli tests/unit/cli

test-cluster: prepare ## a standalone cluster
	$(AREA) tests/cluster

test-contract: prepare ## what every source, sink and table must do
	$(AREA) tests/contract tests/kafka/test_kafka_contract.py

test-derived: prepare ## tables over tables, in memory and in Delta Lake
	$(AREA) tests/derived

test-docs: prepare ## guides, reference and examples, as they are written
	$(AREA) tests/docs

test-files: prepare ## the file source and sink
	$(AREA) tests/files tests/unit/connectors

test-formats: prepare ## JSON, CSV, Avro, Protobuf, Debezium
	$(AREA) tests/formats

test-kafka: prepare ## Kafka, on a real broker
	$(AREA) tests/kafka

test-restart: prepare ## kill -9 at every interesting moment
	$(AREA) tests/restart

test-sql: prepare ## the SQL front end and the planner
	$(AREA) tests/sql tests/unit/sql tests/unit/plan

test-runtime: prepare ## databases, statements, jobs
	$(AREA) tests/runtime tests/unit/runtime tests/unit/spark

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

bench: prepare ## speed, beside hand-written PySpark
	@$(BIN)/python -m benchmarks

bench-tables: prepare ## lookups and questions, beside a plain dict, DuckDB, SQLite and polars
	@$(BIN)/python -m benchmarks.tables

bench-pipelines: prepare ## from Kafka into tables and topics, beside hand-written PySpark and PyFlink: 40 minutes
	@$(BIN)/python -m benchmarks.pipelines

soak: prepare ## the long random tests with full counts; the result goes to benchmarks/soak.txt
	@{ git log -1 --format='commit %h of %cs' && VELOSTREAM_SOAK=1 $(BIN)/pytest -q -n 2 --durations=0 --durations-min=1 --timeout=7200; } | tee benchmarks/soak.txt

setup: $(READY) ## the virtual environment, and Java where there is none

$(READY): uv.lock pyproject.toml scripts/setup
	@scripts/setup $(VENV)
	@touch $@

prepare: $(PREPARED) ## what makes Spark start faster, once per machine

$(PREPARED): $(READY)
	@$(BIN)/python -m velostream.spark.prepare
	@touch $@

clean: ## remove what the other targets made here
	@rm -rf $(VENV) $(VENV)-tools .venv-flink .mypy_cache .ruff_cache .hypothesis .import_linter_cache
