# Five words: make demo | test | check | format | docs. Each does its own set-up and is safe to run twice.
# Settings: PYTHON=python3.12 (the interpreter), VENV=.venv, SMOKE=1 and DATA=path (demo), ARGS="-k name" (test),
# OUT=folder (pretrained).
# macOS is written for and untested; EGL is set on Linux only.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=

ifeq ($(shell uname -s),Linux)
export MUJOCO_GL ?= egl
endif
export PYTHONUNBUFFERED := 1

.PHONY: help demo test check format docs size bench pretrained lerobot-check clean set-up-demo set-up-dev

help:
	@echo "make demo           train a world model on a table-top scene and see it predict (SMOKE=1: under a minute, DATA=path: your data)"
	@echo "make test           the whole test suite on the CPU (ARGS=... goes to pytest)"
	@echo "make check          format, lint, types, layers, documents, sizes"
	@echo "make format         rewrite the sources in the house format"
	@echo "make docs           links and code names in the documents"
	@echo "make bench          speed, as ratios measured in one run"
	@echo "make pretrained     train the model that comes with the package and write it, in about an hour (OUT=folder for data and runs)"
	@echo "make lerobot-check  open what we write with LeRobot itself, in an environment of its own"

set-up-demo set-up-dev: set-up-%:
	@command -v $(PYTHON) >/dev/null || { echo "set-up: there is no $(PYTHON). Install it: apt-get update && apt-get install -y python3 python3-venv"; exit 1; }
	@$(PYTHON) scripts/set_up.py $* --venv $(VENV)

demo: set-up-demo
	@$(BIN)/simforcing demo $(if $(SMOKE),--smoke) $(if $(DATA),--data "$(DATA)") $(ARGS)

test: set-up-dev
	@OMP_NUM_THREADS=1 PATH="$(abspath $(BIN)):$$PATH" bash scripts/run_tests.sh $(ARGS)

check: set-up-dev docs size
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check
	@PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --pythonpath $(BIN)/python
	@$(BIN)/lint-imports

format: set-up-dev
	@$(BIN)/ruff check --fix-only --quiet
	@$(BIN)/ruff format

docs: set-up-dev
	@$(BIN)/python scripts/check_documents.py

size: set-up-dev
	@$(BIN)/python scripts/size_report.py

bench: set-up-dev
	@for script in benchmarks/*.py; do echo "== $$script"; OMP_NUM_THREADS=1 $(BIN)/python $$script || exit 1; done

pretrained: set-up-demo
	@$(BIN)/python scripts/train_pretrained.py "$(or $(OUT),runs/pretrained)" $(ARGS)

lerobot-check:
	@PYTHON=$(PYTHON) bash tests/lerobot_check/run.sh $(ARGS)

clean:
	rm -rf $(VENV) .venv-lerobot build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis
