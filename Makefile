# `make run` and `make test` do everything on a fresh machine, set-up included.
.PHONY: run test proofs faults setup doctor benchmark clean
PYTHON := .venv/bin/python
FLAGS ?=

run: setup  ## PointGoal1 in its quick profile: table, learning curve and video in runs/
	$(PYTHON) launchers/run.py --gin_file=gin/sg6_pointgoal1.gin --gin_file=gin/variants/quick.gin $(FLAGS)

test: setup  ## on all cores, at most 8
	$(PYTHON) -m pytest -m "not slow" --numprocesses=auto --maxprocesses=8 --dist=worksteal $(FLAGS)

proofs: setup  ## the slow tests
	$(PYTHON) -m pytest -m slow $(FLAGS)

faults: setup  ## kills, full disks, damaged files: what becomes of runs, and what a checkpoint costs
	$(PYTHON) -m tests.faults.harness $(FLAGS)

setup:
	@./setup.sh

doctor: setup
	$(PYTHON) launchers/doctor.py $(FLAGS)

benchmark: setup
	$(PYTHON) launchers/benchmark.py $(FLAGS)

clean:
	rm -rf .venv .cache .pytest_cache .hypothesis
