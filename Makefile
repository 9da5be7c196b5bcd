# Needs CPython 3.11 or newer; everything else is set up in .venv, at the versions of constraints.txt.
# PYTHON=… chooses the interpreter, PYTEST_ARGS=… what pytest gets, SERVER_ARGS=… what the served model's server gets,
# MARKS=slow runs the slow tests and MARKS= all, SOAK_SECONDS=… how long the soak lasts, BENCH_ARGS=… what the benchmarks get,
# NOX_ARGS=… what nox gets.

.DEFAULT_GOAL := help
.PHONY: help demo serve test soak check format coverage matrix bench docs tables stubs pins wheel image sbom clean
.DELETE_ON_ERROR:

MODEL  ?= models/zh-en
DEVICE ?= cpu
SOAK_SECONDS ?= 1800
MARKS ?= not slow
ENGINE ?= $(firstword $(notdir $(shell command -v docker podman 2>/dev/null)) docker)

# Builds of ONNX Runtime report their use to their vendor unless this is set.
export ORT_DISABLE_TELEMETRY := 1

BIN := .venv/bin
PIP := scripts/install $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt --build-constraint constraints.txt
CUDA_PIP := scripts/install .venv-cuda/bin/python -m pip install --disable-pip-version-check --build-constraint constraints.txt
# Tests that share something form a group, which one process runs: see tests/helpers/groups.py.
PYTEST := $(BIN)/python -m pytest --numprocesses auto --dist loadgroup --no-loadscope-reorder
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

help:  ## what can be made
	@sed -n 's/^\([a-z]*\):.*##\(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

demo: .venv/.server  ## set up, start the server on the bundled model, translate over gRPC, show metrics, stop
	@$(BIN)/python scripts/demo $(MODEL)

serve: .venv/.server  ## serve the bundled model (MODEL=… another) until Ctrl-C
	@exec $(BIN)/translane serve $(MODEL) $(SERVER_ARGS)

test: .venv/.everything .venv/.system examples/node/node_modules  ## set up everything, PyTorch included, and run all tests but the slow ones
	$(PYTEST) -m '$(MARKS)' $(PYTEST_ARGS)

soak: .venv/.everything  ## load, kill and reload a server for SOAK_SECONDS, then the long forms of tests of reliability and of batch
	@PYTHONPATH=tests:$(PYTHONPATH) $(BIN)/python -m reliability.soak --seconds $(SOAK_SECONDS)
	RELIABILITY=long $(BIN)/python -m pytest tests/reliability tests/integration/batch -k "reliability or kills" $(PYTEST_ARGS)

check: .venv/.everything  ## lint, format, types, imports, generated code, policies of deployments
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy scripts/demo
	$(BIN)/lint-imports
	scripts/generate-stubs --check
	scripts/build-kernels --check
	scripts/set-version --check
	$(BIN)/python scripts/generate-chart --check
	$(BIN)/python scripts/generate-docs --check
	@if command -v checkov >/dev/null; then rm -rf build/policies && mkdir -p build/policies && cp Dockerfile deploy/kubernetes.yaml build/policies \
	    && $(BIN)/python scripts/generate-chart --examples build/policies \
	    && checkov --directory build/policies --config-file deploy/helm/checkov.yaml --skip-download; \
	else echo 'checkov: skipped, checkov is not installed'; fi
	$(BIN)/buf lint
	$(BIN)/buf format --diff --exit-code
	$(BIN)/buf breaking --against protos/released.binpb
	@$(BIN)/python scripts/weigh
	@$(BIN)/python scripts/count-calls

format: .venv/.everything  ## let ruff fix and format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

coverage: .venv/.everything  ## run the unit tests, and hold client and server to the floor of branch coverage in pyproject.toml
	$(PYTEST) --cov --cov-report= --cov-fail-under=0 tests/unit $(PYTEST_ARGS)
	$(BIN)/coverage report --skip-covered --skip-empty --sort=cover --fail-under=0
	$(BIN)/coverage report --include='client/*,server/*' --format=total

matrix: .venv/.matrix  ## run the tests on each CPython from 3.11 that is installed, and on the lowest versions; NOX_ARGS=…
	$(BIN)/nox $(NOX_ARGS)

bench: $(if $(filter-out cuda,$(DEVICE)),.venv/.bench)  ## measure against CTranslate2, write docs/benchmarks.md; BENCH_ARGS=--quick, DEVICE=cuda
ifneq ($(DEVICE),cuda)
	@$(BIN)/python -m benchmarks.runs.suite $(BENCH_ARGS)
else
	@if ! nvidia-smi >/dev/null 2>&1; then echo 'skipped: nvidia-smi finds no NVIDIA GPU on this machine'; \
	else $(MAKE) --no-print-directory .venv-cuda/.bench \
	    && .venv-cuda/bin/python -m benchmarks.runs.suite --device cuda $(BENCH_ARGS); fi
endif

docs: .venv/.docs  ## make the site of the documents in build/site; a broken link fails
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -c docs -d build/site-cache . build/site

tables:  ## write the lists of the documents that follow from code
	$(BIN)/python scripts/generate-docs

stubs:  ## generate the gRPC stubs from the .proto file
	scripts/generate-stubs

pins:  ## resolve constraints.txt and constraints-cuda.txt anew
	scripts/update-pins

wheel: .venv/.made  ## build the files of a release in dist: the wheel, the sdist, and an archive of the bundled model
	@$(PIP) hatchling
	@scripts/build-release dist

image:  ## build the container image; DEVICE=cuda for GPUs
	$(ENGINE) build $(if $(findstring podman,$(ENGINE)),--format docker) --build-arg DEVICE=$(DEVICE) --build-arg VERSION=$(VERSION) \
	    --build-arg REVISION=$(shell git rev-parse HEAD 2>/dev/null) --tag translane:$(VERSION)-$(DEVICE) .

sbom:  ## copy the image's bill of materials and its licences into build; DEVICE=cuda for that image
	@mkdir -p build
	@for file in sbom.cdx.json NOTICE; do $(ENGINE) run --rm --entrypoint cat translane:$(VERSION)-$(DEVICE) \
	    /opt/translane/share/translane/$$file >build/$$file && echo build/$$file; done

clean:  ## remove what these commands made
	rm -rf .venv .venv-stubs .venv-cuda examples/node/node_modules .nox .coverage* build dist .import_linter_cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.made: scripts/make-venv
	@echo 'setting up .venv …'
	@scripts/make-venv .venv
	@touch $@

.venv/.server: .venv/.made constraints.txt pyproject.toml
	@echo 'installing the server and the client …'
	@$(PIP) -e '.[server]'
	@touch $@

.venv/.everything: .venv/.made constraints.txt pyproject.toml
	@echo 'installing everything, PyTorch included …'
	@$(PIP) -e '.[all]' --group dev
	@touch $@ .venv/.server

# The test of examples/node is skipped where these are missing.
examples/node/node_modules: examples/node/package-lock.json
	@if command -v npm >/dev/null; then echo 'installing what examples/node needs …'; \
	    npm ci --prefix examples/node --silent --no-audit --no-fund || echo 'npm cannot install it'; fi

.venv/.system: .venv/.made scripts/install-system-packages
	@scripts/install-system-packages
	@touch $@

.venv/.bench: .venv/.everything
	@echo 'installing what benchmarks compare with …'
	@$(PIP) --group bench
	@touch $@

.venv/.docs: .venv/.server
	@echo 'installing what makes the site …'
	@$(PIP) --group docs
	@touch $@

.venv/.matrix: .venv/.made constraints.txt pyproject.toml
	@echo 'installing nox …'
	@$(PIP) --group matrix
	@touch $@

# onnxruntime-gpu takes the place of onnxruntime, so what runs on a GPU has an environment of its own. CTranslate2 is
# built for CUDA 12.
.venv-cuda/.bench: constraints.txt constraints-cuda.txt pyproject.toml
	@echo 'setting up .venv-cuda, with PyTorch and the libraries of CUDA …'
	@scripts/make-venv .venv-cuda
	@$(CUDA_PIP) -c constraints.txt -e '.[export,batch,language-id,otel,ray,s3,tensorboard]' --group dev --group bench
	@$(CUDA_PIP) -c constraints-cuda.txt -e '.[server-cuda]' nvidia-cublas-cu12
	@touch $@
