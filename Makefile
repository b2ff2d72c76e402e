# Everything a fresh clone needs is Python >= 3.11 and make: each target sets up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PROJECT := $(shell sha256sum pyproject.toml | cut -c1-12)
unexport PYTHONDONTWRITEBYTECODE  # or each process of the tests compiles the package anew
STAMP := $(VENV)/installed-$(PROJECT)
USER_STAMP := $(VENV)/user-$(PROJECT)

.PHONY: help demo quick test sweep research chaos check golden ui bench gpu peers install
help:            ## what there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/  -/'

# A CPU build of torch is taken where pip finds one; the range is pyproject's own.
$(STAMP):
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Albor needs Python >= 3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo 'installing Albor, what it trains with and the tools of its developers into $(VENV): some minutes'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[train,dev,web]'
	rm -f $(VENV)/installed-* && touch $@ $(USER_STAMP)

# What the demo needs, without the developers' tools.
$(USER_STAMP):
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Albor needs Python >= 3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo 'installing Albor and what it trains with into $(VENV): 1.2 GB where pip finds a CPU build of torch,'
	@echo 'several GB more where torch brings CUDA; some minutes, most of them for torch'
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar on --editable '.[train]'
	@echo 'installed; the demo begins'
	rm -f $(VENV)/user-* && touch $@

install: $(STAMP)

demo: $(USER_STAMP)   ## two small models on real source code, compared, in minutes
	$(BIN)/albor demo

quick: $(STAMP)  ## FILE=path/to/module.py: types and tests of one module, in seconds
	$(BIN)/python tests/quick.py $(FILE)

# One process more than two cores have work for: a good part of the tests is waiting.
test: $(STAMP)   ## every behaviour, on a CPU: about 12 minutes on two cores
	$(BIN)/python -m pytest -n 3 --dist worksteal -m 'not gpu and not sweep'

sweep: $(STAMP)  ## what takes long: all kernels interpreted and compiled, hostile names on every screen, the commands of the docs; SHARE=N: one file in N, as the commit draws them
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'sweep and not gpu' $(if $(SHARE),--share $(SHARE)) $(if $(WITHIN),--within $(WITHIN) -rs)

research: $(STAMP)  ## tests of research/, which no other target runs, and of the speed gate
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not gpu' research/tests

chaos: $(STAMP)  ## 200 faults over the whole of a run, for two seeds: it must end where the undisturbed one does
	$(BIN)/python tests/chaos/soak.py --faults 200 --seeds 1 2

check: $(STAMP)  ## format, lint, types, import layers, fast tests: about a minute on two idle cores
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n 2 -m 'not gpu and not slow'

golden: $(STAMP) ## rewrite snapshots and generated documents; then read git diff
	$(BIN)/python -m pytest --snapshot-update $$(grep -rl snap_compare tests/tui --include=test_*.py) tests/tui/test_pictures.py
	$(BIN)/python -m albor_core.cli.reference docs/reference

# W&B, MLflow and the others in an environment of their own: none of them is a dependency of Albor.
PEERS := $(VENV)/peers
$(PEERS)/bin/python:
	$(PYTHON) -m venv $(PEERS)
	$@ -m pip install --quiet --disable-pip-version-check --requirement tests/core/integrations/peers/requirements.txt

peers: $(STAMP) $(PEERS)/bin/python  ## 200 random histories by each other tracker's own library, imported, checked and compared: some minutes
	rm -rf $(PEERS)/written
	$(PEERS)/bin/python tests/core/integrations/peers/write_all.py $(PEERS)/written --count 200
	$(PEERS)/bin/python tests/core/integrations/peers/write_all.py $(PEERS)/written --count 200 --alike
	ALBOR_PEERS=$(CURDIR)/$(PEERS)/written $(BIN)/python -m pytest -n 0 tests/core/integrations/test_peers.py

ui: $(STAMP)     ## the cockpit on a simulated live run
	$(BIN)/python tests/tui/sim_run.py --cockpit

bench: $(STAMP)  ## benchmarks of this machine
	$(BIN)/python benchmarks/cockpit/startup.py

gpu: $(STAMP)    ## tests that need a CUDA device
	$(BIN)/python -m pytest -m gpu
