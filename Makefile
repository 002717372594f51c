# `make run` and `make test` do everything on a fresh machine, set-up included. With another Python than the newest that
# is found: make test PYTHON=python3.12
.PHONY: run test quick lint proofs faults setup doctor benchmark clean
VENV_PYTHON := .venv/bin/python
PYTEST := $(VENV_PYTHON) -m pytest -m "not slow" --numprocesses=auto --maxprocesses=8 --dist=worksteal
# Those that compile no learner and start no run.
QUICK_TESTS := tests/test_layers.py tests/config tests/replay tests/models/test_normalizer.py tests/safety \
  tests/policies tests/planners tests/training/test_environment_loop.py tests/training/test_facts.py tests/logs \
  tests/analysis/metrics
FLAGS ?=
export PYTHON

run: setup  ## PointGoal1 in its quick profile: table, learning curve and video in runs/
	$(VENV_PYTHON) launchers/run.py --task=pointgoal1 --size=quick $(FLAGS)

test: lint  ## on all cores, at most 8; 8 minutes on two
	$(PYTEST) $(FLAGS)

quick: lint  ## between edits: 90 seconds on two cores
	$(PYTEST) $(QUICK_TESTS) $(FLAGS)

lint: setup  ## format, likely faults, types
	$(VENV_PYTHON) -m ruff format --check .
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m mypy

proofs: setup  ## the slow tests
	$(VENV_PYTHON) -m pytest -m slow $(FLAGS)

faults: setup  ## over a thousand kills, full disks, damaged files, and what becomes of runs
	$(VENV_PYTHON) -m tests.faults $(FLAGS)

setup:
	@./setup.sh

doctor: setup
	$(VENV_PYTHON) launchers/doctor.py $(FLAGS)

benchmark: setup
	$(VENV_PYTHON) launchers/benchmark.py $(FLAGS)

clean:
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
