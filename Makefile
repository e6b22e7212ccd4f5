# Everything runs in .venv, which the targets make themselves. PYTHON chooses the interpreter (3.11 or newer).
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
JOBS   ?= 2

.PHONY: demo test check format corpus accuracy generate clean

## Audit a real kernel of a real task: prints the audit and writes out/demo.html
demo: $(VENV)/.core
	@mkdir -p out
	$(BIN)/d2kc audit tasks/attn_prefill_gqa/expert.py --task attn_prefill_gqa --html out/demo.html
	@echo "the same as a page: out/demo.html"

## Lint, types and all tests that need no GPU
test: check corpus
	$(BIN)/python -m pytest -n $(JOBS) -m "not gpu"

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy -p d2k
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

## Real kernels of pinned packages, for the corpus tests
corpus: .corpus/.done

.corpus/.done: tests/corpus/packages.txt tests/corpus/download.py $(VENV)/.dev
	$(BIN)/python tests/corpus/download.py .corpus
	@touch $@

## Measure the detectors against the labels of real kernels
accuracy: corpus
	$(BIN)/python tests/corpus/accuracy.py --page > docs/accuracy.md.new
	mv docs/accuracy.md.new docs/accuracy.md

## Files that are made from others and committed
generate: $(VENV)/.dev
	$(BIN)/python -m d2k.compiler.tables
	$(BIN)/python -m d2k.compiler.vocabulary
	$(BIN)/python -m d2k.spec.schemas

$(VENV)/.core: pyproject.toml
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q -e .
	@touch $@

$(VENV)/.dev: pyproject.toml tests/requirements.txt $(VENV)/.core
	$(BIN)/python -m pip install -q -r tests/requirements.txt
	$(BIN)/python -m pip install -q -e ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) .corpus out build dist src/*.egg-info
