# Two commands matter: `make demo` and `make test`. Each installs what it needs, once, into .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
WORKERS ?= auto

.PHONY: setup system demo test check audit bench figures wheel lock clean help
.DEFAULT_GOAL := help

help:  ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 10

setup: $(STAMP)  ## create .venv and install the locked dependencies

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Tallystick needs Python 3.11 or newer; set PYTHON=python3.x") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

# A program (or file) that tests use, and the package it is in.
SYSTEM := systemd-analyze=systemd java=default-jre-headless pg_ctl=postgresql \
	/usr/share/java/postgresql.jar=libpostgresql-jdbc-java

system:  ## system packages that tests use (systemd, Java, PostgreSQL and its driver): as root, where apt-get is; without them tests are skipped
	@for pair in $(SYSTEM); do tool=$${pair%%=*}; package=$${pair##*=}; \
		command -v $$tool >/dev/null || test -e $$tool || ls /usr/lib/postgresql/*/bin/$$tool >/dev/null 2>&1 \
		|| { test "$$(id -u)" = 0 && apt-get -qq update \
			&& DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends $$package >/dev/null; } \
		|| echo "$$tool is not here and could not be installed: the tests that run it are skipped"; done

demo: setup  ## nine processes over mutual TLS train a private model; one is killed and rejoins
	$(BIN)/tallystick demo

check: setup  ## format, lint, types, import rule
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports

# PySpark is large (half a gigabyte): it is installed for the tests where there is a Java to run it.
$(VENV)/.spark: $(STAMP) requirements-spark.lock
	@command -v java >/dev/null && $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		-r requirements-spark.lock || echo "no Java, or PySpark could not be installed: tests of Spark are skipped"
	@touch $@

test: check $(VENV)/.spark  ## everything CI runs: check, then the tests
	$(BIN)/pytest -m "not audit" -n $(WORKERS) --dist worksteal

audit: setup $(VENV)/.spark  ## the slow statistical audits and soaks
	$(BIN)/pytest -m audit -n $(WORKERS) --dist worksteal
	TALLYSTICK_SIM_COUNT=10000 $(BIN)/pytest tests/simulation/test_secure_sum_schedules.py

bench: setup  ## the measurements of this machine
	$(BIN)/tallystick bench secure-sum
	$(BIN)/tallystick bench noise

figures: setup  ## the papers' figures into docs/results, as far as they are missing (ARGS="--quick --out DIR")
	$(BIN)/python -m benchmarks.pem_figures $(ARGS)
	$(BIN)/python -m benchmarks.median_figures $(ARGS)
	$(BIN)/python -m benchmarks.pca_figures $(ARGS)
	$(BIN)/python -m benchmarks.svm_figures $(ARGS)
	$(BIN)/python -m benchmarks.gossip_figures $(ARGS)
	$(BIN)/python -m benchmarks.svm_vertical_figures $(ARGS)

wheel: setup  ## build the wheel into dist/, with the locked tools and without the network
	$(BIN)/python -m hatchling build --target wheel --directory dist

lock:  ## renew requirements.lock (needs uv)
	uv pip compile pyproject.toml --extra dev --generate-hashes --universal --python-version 3.11 -o requirements.lock
	echo "pyspark>=4.0" | uv pip compile - --constraint requirements.lock --generate-hashes --universal \
		--python-version 3.11 --no-header -o requirements-spark.lock

clean:  ## remove .venv and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache out dist
