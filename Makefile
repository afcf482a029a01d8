# Everything a clone needs. `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
STAMP := $(VENV)/.installed
BIN := $(VENV)/bin
# The newest of these that is 3.10 or later makes the environment; `make PYTHON=/path/to/python venv` chooses another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && { echo "$$p"; break; }; done)
PYTEST_ARGS ?=
DEMO_ARGS ?=
# With bytecode, for each process collects all tests: without, that takes twice as long.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -rs --durations=5 $(PYTEST_ARGS)
BENCH ?= artifacts/bench
CODE := rtmp_spark $(wildcard server)

.PHONY: help venv class-archive lint types test quick demo dist bench notebook clean

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## .venv with the package (editable) and every extra

$(STAMP): pyproject.toml
	@if [ -z "$(PYTHON)" ]; then \
		echo "No Python 3.10 or later was found. Install one, or name it: make PYTHON=/path/to/python3 venv" >&2; exit 3; fi
	@if [ ! -x $(BIN)/python ]; then "$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); \
		echo "$(PYTHON) could not make $(VENV). On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 3; }; fi
	@echo "Installing rtmp-spark and every extra into $(VENV) (1.6 GB on disk, once)"
	@[ -t 1 ] || quiet=-qq; $(BIN)/python -m pip install $${quiet:-} --disable-pip-version-check --editable '.[all]' || { \
		echo "pip could not install everything (see above). Behind a proxy set HTTPS_PROXY; without a network set PIP_FIND_LINKS to a directory of wheels." >&2; exit 3; }
	@$(BIN)/python -m compileall -q $(CODE)  # or every start compiles anew where Python may not write
	@touch $@

lint: $(STAMP) ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .

types: $(STAMP) ## mypy --strict
	$(BIN)/mypy --strict $(CODE)

class-archive: $(STAMP)
	@# Many tests start a Java; with the archive of its classes each starts in half the time.
	@$(BIN)/python -c 'from rtmp_spark.spark.class_archive import make_now; make_now()' > /dev/null 2>&1 &

test: $(STAMP) class-archive lint types ## everything: ruff, mypy --strict, every test; names what was skipped and why
	@# What starts Spark comes after the rest: two processes with a session each; tests of a file share lakes.
	status=0; $(PYTEST) -n auto --dist worksteal -m "not spark" || status=1; \
	$(PYTEST) -n 2 --dist loadfile -m spark || status=1; exit $$status

quick: $(STAMP) ## the one-minute loop: ruff and the tests without Spark, real peers and slow ones
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(PYTEST) -q -n auto --dist worksteal -m "not spark and not peers and not slow"

demo: $(STAMP) ## relay, a faulty stream, a tapped pcap, Delta tables, findings and a page, in artifacts/demo
	@$(BIN)/rtmp-spark demo --output artifacts/demo $(DEMO_ARGS)

dist: $(STAMP) ## dist/: wheel, sdist and rtmp_spark.zip for spark-submit --py-files
	rm -rf build dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -c 'import glob, shutil; shutil.copy(glob.glob("dist/*.whl")[0], "dist/rtmp_spark.zip")'
	@ls -l dist

bench: $(STAMP) ## speed of the codec and of the whole chain, printed, never asserted (BENCH=directory for the captures)
	$(BIN)/python bench/make_captures.py $(BENCH)
	$(BIN)/python bench/codec.py

notebook: $(STAMP) ## JupyterLab in notebooks/
	$(BIN)/jupyter lab --notebook-dir notebooks

clean: ## remove what was made, but not .venv
	rm -rf build dist artifacts .mypy_cache .ruff_cache .pytest_cache *.egg-info
