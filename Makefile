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

.PHONY: help demo test check bench bench-tables bench-pipelines soak setup prepare clean

help: ## what there is to make
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name what; do printf '  make %-16s %s\n' "$$name" "$$what"; done

demo: prepare ## tables that move while you watch
	@$(BIN)/velo demo

test: prepare ## all tests
	@$(BIN)/pytest -q $(SIDE_BY_SIDE)

check: setup ## format, lint, types, import contracts, and the tests that need no Java: under a minute
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
