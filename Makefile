# One command each, from a fresh clone: make demo · make test · make check · make bench
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Workers of the test run: one more than there are processors, for many tests wait for real processes.
WORKERS ?= $(shell expr $$(nproc 2>/dev/null || echo 1) + 1)

.PHONY: prices dashboards-check lives nightly help demo quick test gpu-test container-test lint check mutate bench docs site shiv release package-test lock audit audit-if-reachable clean

help:
	@echo "make demo    a simulated fleet, live: watch an idle host go from notice to stopped"
	@echo "make quick   the quick unit tests: no real component, some 40 seconds"
	@echo "make test    set up everything and run the tests (installs real components where it may)"
	@echo "make gpu-test  the agent on this machine's own NVIDIA driver, at rest and under load"
	@echo "make container-test  both images, built and run with buildah, podman and runc (root; some minutes)"
	@echo "make check   format, lint, types, import rules, generated pages, plain English, tests"
	@echo "make mutate  break the guard on purpose, place by place: a test must fail each time"
	@echo "make lives   days of GPU hosts, in use and forgotten: which would each profile stop (tests/lives)"
	@echo "make bench   measure the agent and the controller, print a table"
	@echo "make shiv    one executable file for GPU hosts: dist/gpuwatch.pyz"
	@echo "make release  dist/: wheel, sdist, pyz, deb, rpm, sums and bills of materials of the last commit (minutes)"
	@echo "make package-test  what make release wrote, installed into a booted Debian (root; minutes)"
	@echo "make docs    write the pages that are generated from the code"
	@echo "make site    the documentation as a site with search: build/site/index.html; with ARGS=\"v1.0.0 …\" also of these tags"
	@echo "make prices  renew the built-in prices from the clouds' public catalogues (network)"
	@echo "make lock    renew requirements/*.lock: every package of agent and controller, with its hashes"
	@echo "make audit   look up the locked packages in the advisories (network)"

$(VENV)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "gpuwatch needs Python 3.11 or newer; $(PYTHON) is older. Try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@echo "Making a Python environment in $(VENV)" >&2
	@$(PYTHON) -m venv $(VENV) || { echo "Python's venv module is missing; on Debian: apt install python3-venv"; exit 1; }
	@sh tools/install.sh $(BIN)/python "pip itself" --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/demo: $(VENV)/python pyproject.toml
	@sh tools/install.sh $(BIN)/python "the controller and the demo" --editable '.[demo]'
	@touch $@

$(VENV)/dev: $(VENV)/demo pyproject.toml
	@sh tools/install.sh $(BIN)/python "what the tests need" --editable '.[alibaba,aws,azure,gcp,kubernetes,tencent]' --group dev
	@sh tools/install.sh $(BIN)/python "Tencent Cloud's description of its APIs" --no-compile --no-deps 'tccli>=3.1'
	@touch $@

demo: $(VENV)/demo
	@$(BIN)/gpuwatch demo $(ARGS)

# After each change of the code. ARGS="-k NAME" picks some of them.
quick: $(VENV)/dev
	$(BIN)/pytest --numprocesses $(WORKERS) --dist worksteal --hypothesis-profile quick -m 'not component and not slow' tests/unit $(ARGS)

test: $(VENV)/dev
	@PYTHON=$(BIN)/python sh tests/support/components.sh
	$(BIN)/python -m tests.support.contained $(BIN)/pytest --numprocesses $(WORKERS) --dist worksteal $(ARGS)

gpu-test: $(VENV)/dev
	GPUWATCH_GPU=real $(BIN)/pytest --numprocesses 0 tests/gpu $(ARGS)

container-test: $(VENV)/dev
	GPUWATCH_CONTAINERS=real $(BIN)/pytest --numprocesses 0 tests/integration/containers/test_container_images.py $(ARGS)

lint: $(VENV)/dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.docs --check
	$(BIN)/python -m tools.docs.prose

check: lint test

mutate: $(VENV)/dev
	@$(BIN)/python -m tests.mutation.mutate_guard $(ARGS)

# Each life through the real agent and the real rounds: minutes. ARGS="F16 docker" plays some, ARGS=--why says more.
lives: $(VENV)/dev
	@$(BIN)/python -m tests.lives --jobs 2 $(ARGS)

# Thousands of generated lives of fleets (P1 to P25), each call of each cloud under each fault, each power cut, and all
# else that `make test` plays in part, on all processors: hours. ARGS="FIRST LAST" plays some parts.
nightly: $(VENV)/dev
	@$(BIN)/python -m tests.properties.nightly $(ARGS)

bench: $(VENV)/dev
	@$(BIN)/python -m benchmarks $(ARGS)

docs: $(VENV)/demo
	$(BIN)/python -m tools.docs
	$(BIN)/python -m dashboards.source

# The built-in prices from the clouds' public catalogues; what is doubtful needs ARGS="--accept PATTERN".
$(VENV)/site/ready: $(VENV)/python requirements/site.lock
	@$(PYTHON) -m venv $(VENV)/site
	@sh tools/install.sh $(VENV)/site/bin/python "what the site is built with" --require-hashes --requirement requirements/site.lock
	@touch $@

# A link that leads nowhere, and a page that docs/README.md does not name, fail it.
site: $(VENV)/site/ready
	@PYTHONPATH=$(CURDIR) $(VENV)/site/bin/python -m tools.docs.site.versions $(ARGS)

prices: $(VENV)/demo
	@$(BIN)/python -m tools.prices $(ARGS)

# Types and pictures of the dashboards by Grafana's own packages, which npm downloads: docs/dashboards.md.
dashboards-check: $(VENV)/dev
	@PYTHON=$(BIN)/python sh tests/integration/grafana/check.sh $(ARGS)

# One file for a GPU host: probe, agent and keep. It fits the Python and the machine that made it.
shiv: $(VENV)/dev
	@mkdir -p dist
	@git rev-parse HEAD >gpuwatch/revision.txt 2>/dev/null || rm -f gpuwatch/revision.txt
	$(BIN)/shiv --compressed --reproducible --console-script gpuwatch --python '/usr/bin/env python3' --output-file dist/gpuwatch.pyz .
	@rm -f gpuwatch/revision.txt

# Everything that is handed out, of the last commit. ARGS=--draft builds before the changelog is cut.
release: $(VENV)/dev $(VENV)/tools/ready
	$(BIN)/python -m tools.release --tools $(VENV)/tools/bin $(ARGS)

# What `make release` wrote, in a booted Debian.
package-test: $(VENV)/dev
	GPUWATCH_PACKAGES=$(CURDIR)/dist $(BIN)/pytest --numprocesses 0 tests/integration/packages/test_installed_packages.py $(ARGS)

# Tools of their own environments: they come with packages that are no business of ours.
$(VENV)/tools/ready: $(VENV)/python requirements/tools.lock
	@$(PYTHON) -m venv $(VENV)/tools
	@$(VENV)/tools/bin/python -m pip install --quiet --require-hashes --requirement requirements/tools.lock
	@touch $@

# Wheels alone: `make release` and the hosts build nothing of others.
LOCK := $(VENV)/tools/bin/uv pip compile --only-binary :all: --quiet --upgrade --universal --generate-hashes --no-header
lock: $(VENV)/tools/ready
	$(LOCK) pyproject.toml --extra auth --extra join --output-file requirements/agent.lock
	$(LOCK) pyproject.toml --extra auth --extra join --extra alibaba --extra aws --extra azure --extra gcp --extra kubernetes --extra tencent --extra postgres \
	  --extra notify --output-file requirements/controller.lock
	$(LOCK) --group build --output-file requirements/build.lock
	$(LOCK) --group tools --output-file requirements/tools.lock
	$(LOCK) --group site --output-file requirements/site.lock

# --strict: a package that could not be looked up is a failure, not a clean bill.
audit: $(VENV)/tools/ready
	$(VENV)/tools/bin/pip-audit --strict --disable-pip --require-hashes --vulnerability-service osv \
	  $(foreach lock,agent controller build site tools,--requirement requirements/$(lock).lock)

audit-if-reachable:
	@if $(PYTHON) tools/advisories.py; then $(MAKE) --no-print-directory audit; fi

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
