# make demo   train a network on digits and show what the compiler does      (under 3 minutes)
# make test   everything that guards a commit: ruff, mypy, the tests         (11 minutes)
# make site   build the documentation in build/site                        (under 3 minutes)
# make seeds  set the MagmaDNN papers' tables and figures beside ours       (10 seconds)
#
# All need Python >= 3.11, make and a package index, and make their own environment in .venv.
# Say PYTHON=python3.13 for another interpreter, ARGS="..." for arguments of the tool that is run.

PYTHON ?= python3
ARGS   ?=
VENV   := .venv
RUN    := $(VENV)/bin/python
PIP    := $(RUN) -m pip --disable-pip-version-check

# An environment that keeps Python from writing bytecode makes each of the processes that tests start
# four times as slow to start, and each worker compile all tests anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-gpu replay bench seeds docs site lint clean distclean
.DEFAULT_GOAL := demo

demo: $(VENV)/.core
	@$(RUN) -m magmagraph.data mnist; case $$? in \
	0) $(RUN) -m magmagraph demo $(ARGS);; \
	3) echo "The small digits of scikit-learn will stand in for MNIST"; \
	   $(RUN) -c "import sklearn" 2>/dev/null || $(PIP) install -e ".[digits]" || exit 1; \
	   $(RUN) -m magmagraph demo --offline $(ARGS);; \
	*) exit 1;; esac

test: lint
	$(RUN) -m pytest -n 2 --dist worksteal -m "not slow" $(ARGS)

test-all: lint
	$(RUN) -m pytest -n 2 --dist worksteal $(ARGS)

# On a machine with a GPU and cupy; elsewhere the tests say why they are skipped.
test-gpu: $(VENV)/.dev
	$(RUN) -m pytest tests/gpu -n 2 -rs $(ARGS)

# What this checkout compiles and computes beside what a commit did: make replay BASE=HEAD~1. A refactor
# changes nothing; a change of kernels shows which plans, sources and bits it changed.
replay: $(VENV)/.dev
	$(RUN) tests/replay/replay.py $(BASE) $(ARGS)

lint: $(VENV)/.dev
	$(RUN) -m ruff check .
	$(RUN) -m mypy

# What is not installed is left out, peers as well as benchmarks that need more than there is (the
# status 77): $(PIP) install -e ".[bench]" brings the peers. benchmarks/cpu_all.py runs those of the
# CPU within a budget of time, benchmarks/targets.py reads the results and says which limits they keep.
bench: $(VENV)/.core
	@for file in $$(grep -l '__name__ == "__main__"' benchmarks/*.py \
	        | grep -v -e cpu_all.py -e targets.py -e faults_program.py); do \
	    echo "== $$file"; $(RUN) $$file $(ARGS) || [ $$? = 77 ] || exit 1; done

# The tables and figures of the MagmaDNN papers beside ours: build/seeds.html. It measures nothing and
# needs no GPU: the numbers are those that the benchmarks recorded.
seeds: $(VENV)/.core
	$(RUN) benchmarks/seeds.py $(ARGS)

docs: $(VENV)/.dev
	$(RUN) docs/pictures.py
	$(RUN) docs/build.py

# The pages of docs/, a page for each public name, and the tutorials, executed: build/site/index.html.
# It ends with an error if a link, an anchor or a page of a name is missing.
site: $(VENV)/.core
	@$(RUN) -c "import sphinx, myst_nb, numpydoc, furo" 2>/dev/null || $(PIP) install -e ".[docs]"
	$(RUN) docs/site/build.py $(ARGS)

clean:
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find magmagraph tests examples docs benchmarks -name __pycache__ -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)

# One environment; each stamp says which extras of pyproject.toml it holds. A changed
# pyproject.toml installs anew, which takes some seconds where nothing is missing: most of them for
# the libraries of the CPU, which hatch_build.py builds.
$(VENV)/bin/python:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" \
	    || { echo "Python 3.11 or newer is needed; name it: make PYTHON=python3.13" >&2; exit 1; }
	@echo "Making the environment $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.core: pyproject.toml hatch_build.py | $(VENV)/bin/python
	$(PIP) install -e .
	@touch $@

$(VENV)/.dev: pyproject.toml hatch_build.py | $(VENV)/bin/python
	$(PIP) install -e ".[dev]"
	@$(RUN) -m playwright install chromium >$(VENV)/chromium.log 2>&1 \
	    || echo "No Chromium to be had: tests of pages use the system's, or are skipped"
	@touch $@ $(VENV)/.core
