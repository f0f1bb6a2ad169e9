# Each target works as the first command on a fresh clone: it makes the virtual environment itself.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
AIRFLOW := build/airflow
OBJECTS := build/objects
KUBERNETES := build/kubernetes
HELM := helm.sh/helm/v3/cmd/helm@v3.19.4
API := k8s.io/kubernetes@v1.34.3
CERT_MANAGER := github.com/cert-manager/cert-manager@v1.19.2
PROMETHEUS_OPERATOR := github.com/prometheus-operator/prometheus-operator@v0.85.0
ADAPTER := sigs.k8s.io/prometheus-adapter@v0.12.0
OTLP := build/otlp
COLLECTOR_BUILDER := go.opentelemetry.io/collector/cmd/builder@v0.161.0
GATEWAY := github.com/versity/versitygw/cmd/versitygw@v1.8.0
N      ?= 60
SEEDS  ?= 15
HOURS  ?= 1
WORKERS ?= 2
LAYERS  ?= unit simulation integration

# The tests start hundreds of processes of three hundred modules each: compiled once, not by every one of them.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install venv docs test test-tools test-times test-pages java-classes test-unit test-sim test-integration test-full golden sim notice soak mutants demo chaos bench bench-full bench-counts bench-datacentres bench-registry service-level overload lint fmt proto audit sbom dist gate clean hbase hbase-down test-hbase test-kafka test-spark test-airflow test-objects test-kubernetes test-otlp up reload down smoke test-docker operate-test

help:            ## this list
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 18

$(BIN)/python:
	@$(PYTHON) -m venv $(VENV)

# Compiled is what is imported, when it is: that is a small part, and pip would compile all on one processor.
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile

# Photon (editable) and nothing that only developers need.
$(VENV)/.photon: pyproject.toml | $(BIN)/python
	@echo "installing Photon in $(VENV) ..."
	@$(BIN)/python $(PIP_INSTALL) -e .
	@touch $@

# Photon with one of its extras.
$(VENV)/.%: pyproject.toml | $(BIN)/python
	@echo "installing Photon in $(VENV) with what its developers use ($*), some minutes if nothing is cached ..."
	@$(BIN)/python $(PIP_INSTALL) -e '.[$*]'
	@touch $@ $(VENV)/.photon $(if $(filter dev,$*),$(VENV)/.docs $(VENV)/.lint)

install: $(VENV)/.dev    ## the virtual environment .venv: Photon (editable) and all that its developers use

venv: $(VENV)/.photon    ## the virtual environment .venv: Photon (editable) and nothing that only its developers use

# One run in more processes than processors: integration tests, which wait, come first.
test: WORKERS = 4
test: install            ## unit, simulation and integration tests
	$(SCHEDULES) $(BIN)/pytest tests/integration tests/simulation tests/unit tests/docs -n $(WORKERS)

# What the tests of Airflow, object storage, Kubernetes and OpenTelemetry run; each step makes its own where this was not.
test-tools: $(AIRFLOW)/.installed $(OBJECTS)/versitygw $(KUBERNETES)/helm $(OTLP)/collector

test-unit: install       ## seconds
	$(BIN)/pytest tests/unit tests/docs -n $(WORKERS) --dist loadfile

SCHEDULES = PHOTON_SIM_FRESH=$$((0x$$(git rev-parse --short=7 HEAD^{tree} 2> /dev/null || echo 0))) PHOTON_SIM_SEEDS=$(SEEDS)
test-sim: install        ## SEEDS of each simulation, those that found something, a few new ones for each commit
	$(SCHEDULES) $(BIN)/pytest tests/simulation -n $(WORKERS)

test-integration: WORKERS = 3
test-integration: install  ## real processes, real kills; it waits for most of the time
	$(BIN)/pytest tests/integration -n $(WORKERS)

test-pages: install      ## the status page in headless Chromium; PHOTON_PICTURES=DIR keeps its screenshots
	$(BIN)/pytest tests/pages

test-times: install      ## wall and processor time of each test file of LAYERS (unit simulation integration), longest first
	rm -rf build/times
	-PHOTON_TEST_TIMES=build/times $(BIN)/pytest $(addprefix tests/,$(LAYERS)) -n $(WORKERS) --dist loadfile
	$(BIN)/python -m tests.times build/times

docs: $(VENV)/.docs      ## the documentation as a site, in site/: open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

hbase:           ## a real HBase on this machine, from Maven artifacts; runs until hbase-down
	$(PYTHON) deploy/hbase/standalone.py up

hbase-down:      ## stop it; what it stored is kept
	$(PYTHON) deploy/hbase/standalone.py down

test-hbase: install      ## the tests that need a real HBase; they start one of their own
	$(BIN)/pytest tests/hbase --timeout 900

test-kafka: install      ## the tests that need a real Kafka; they start one of their own
	$(BIN)/pytest tests/kafka

# Tests run without it, too. Those of Airflow and object storage use it where it is.
java-classes: $(VENV)/spark.jsa
$(VENV)/spark.jsa: $(VENV)/.dev tests/spark/java_classes.py
	@echo "sharing Spark's Java classes, some seconds ..."
	-@$(BIN)/python -m tests.spark.java_classes $@ > /dev/null 2>&1

test-spark: install $(VENV)/spark.jsa  ## the tests that run Spark: sessions of their own, and a cluster of two workers (Java 17)
	$(BIN)/pytest tests/spark -n $(WORKERS) --dist loadgroup --no-loadscope-reorder --timeout 900

$(AIRFLOW)/.installed:
	@$(PYTHON) -m venv $(AIRFLOW)
	@echo "installing Airflow in $(AIRFLOW) ..."
	@$(AIRFLOW)/bin/python $(PIP_INSTALL) "apache-airflow-core>=3.3,<3.4" "apache-airflow-providers-standard>=1,<2"
	@touch $@

test-airflow: install $(AIRFLOW)/.installed  ## the DAG of deploy/airflow by a real Airflow, which has an environment of its own
	$(BIN)/pytest tests/airflow --timeout 900

$(OBJECTS)/versitygw:
	@command -v go > /dev/null || { echo "the tests of object storage need Go, which builds their S3 server" >&2; exit 1; }
	@echo "building the S3 server of the tests, some minutes if nothing is cached ..."
	@GOBIN=$(CURDIR)/$(OBJECTS) go install $(GATEWAY)

test-objects: install    ## logs by URL, on a real S3 server (built with Go) with faults before it
	@$(MAKE) --no-print-directory $(OBJECTS)/versitygw || test -z "$$CI"
	$(BIN)/pytest tests/objects

$(KUBERNETES)/helm:
	@command -v go > /dev/null || { echo "the tests of the chart need Go, which builds Helm" >&2; exit 1; }
	@echo "building Helm, some minutes if nothing is cached ..."
	@GOBIN=$(CURDIR)/$(KUBERNETES) go install $(HELM)

# What the APIs of Kubernetes, cert-manager and Prometheus' operator take, as their modules have it.
module = $$(go mod download -json $(1) | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
$(KUBERNETES)/swagger.json: | $(KUBERNETES)/helm
	@install -m 644 "$(call module,$(API))/api/openapi-spec/swagger.json" $@

$(KUBERNETES)/crds.yaml: | $(KUBERNETES)/helm
	@operator="$(call module,$(PROMETHEUS_OPERATOR))/example/prometheus-operator-crd/monitoring.coreos.com"; \
	cat "$(call module,$(CERT_MANAGER))/deploy/crds/cert-manager.io_certificates.yaml" \
	  "$${operator}_servicemonitors.yaml" "$${operator}_prometheusrules.yaml" > $@.part && mv $@.part $@

# A control plane, kubelet, kube-proxy and kubectl in one program, for the test with PHOTON_FULL=1.
$(KUBERNETES)/kubernetes: tests/kubernetes/cluster/main.go tests/kubernetes/cluster/go.mod
	@echo "building Kubernetes, some ten minutes of one core if nothing is cached ..."
	@mkdir -p $(KUBERNETES)/cluster && cp $^ $(KUBERNETES)/cluster
	@cd $(KUBERNETES)/cluster && go build -mod=mod -ldflags "-X k8s.io/component-base/version.gitVersion=$(lastword $(subst @, ,$(API))) -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=34" -o ../kubernetes .

# Gives Kubernetes' autoscalers figures of Prometheus.
$(KUBERNETES)/adapter: | $(KUBERNETES)/helm
	@go build -C "$(call module,$(ADAPTER))" -o $(CURDIR)/$@ ./cmd/adapter

test-kubernetes: install  ## the chart against the API's schemas by Helm (built with Go); PHOTON_FULL=1: on a real cluster of three nodes
	@$(MAKE) --no-print-directory $(KUBERNETES)/swagger.json $(KUBERNETES)/crds.yaml $(if $(PHOTON_FULL),$(KUBERNETES)/kubernetes $(KUBERNETES)/adapter) || test -z "$$CI"
	$(BIN)/pytest tests/kubernetes --timeout 3600

$(OTLP)/collector: tests/otlp/collector.yaml
	@command -v go > /dev/null || { echo "the tests of OpenTelemetry need Go, which builds their collector" >&2; exit 1; }
	@echo "building the collector of the tests, some minutes if nothing is cached ..."
	@mkdir -p build && go run $(COLLECTOR_BUILDER) --config $< > build/otlp.log 2>&1 || { cat build/otlp.log >&2; exit 1; }

test-otlp: install       ## traces, metrics and logs, sent to a real OpenTelemetry collector (built with Go)
	@$(MAKE) --no-print-directory $(OTLP)/collector || test -z "$$CI"
	$(BIN)/pytest tests/otlp

up:              ## three regions in containers: build, start, wait until joins flow in both datacentres
	$(PYTHON) deploy/docker/stack.py up


reload:          ## bring a changed deploy/compose/photon.toml to all containers; with DRY=1 only say to which
	$(PYTHON) deploy/docker/stack.py reload $(if $(DRY),--dry-run)

down:            ## end them; their volumes go as well
	$(PYTHON) deploy/docker/stack.py down

smoke:           ## up, traffic, a verdict on every event, down
	$(PYTHON) deploy/docker/stack.py smoke

test-docker: install     ## the deployment for real; in CI as root Docker is installed and started where it is missing
	$(BIN)/pytest tests/docker --timeout 1800

operate-test: install    ## the runbooks and an outsider's list in containers: a table of gaps and verdicts, half an hour; DOCS=1 writes it
	PHOTON_FULL=1 PHOTON_DOCS=$(DOCS) $(BIN)/pytest tests/docker/test_operating.py -s --timeout 7200
	$(BIN)/pytest tests/kafka/test_logs.py -k joined_once_whatever_is_killed

test-full: N = 300
test-full: LAYERS = unit docs simulation hbase kafka docker pages integration objects otlp spark
test-full: install       ## the long rounds, N seeds (300) of each simulation; hours, so LAYERS="unit docs" picks some
	@failed=; for layer in $(LAYERS); do echo "== $$layer"; \
	  case $$layer in unit|docs|simulation|integration) workers="-n $(WORKERS)";; \
	  spark) workers="-n $(WORKERS) --dist loadgroup --no-loadscope-reorder";; *) workers=;; esac; \
	  PHOTON_SIM_BASE=$$(date +%s) PHOTON_SIM_SEEDS=$(N) PHOTON_EXAMPLES=25 PHOTON_FULL=1 \
	  $(BIN)/pytest tests/$$layer $$workers --timeout 86400 || failed="$$failed $$layer"; \
	done; test -z "$$failed" || { echo "FAILED:$$failed" >&2; exit 1; }

golden: install          ## tests/golden and stories as what is shown now: review its diff
	PHOTON_GOLDEN=1 $(BIN)/pytest tests/unit

sim: install             ## N fresh seeds of each simulation: make sim N=5000 [BASE=first]; replay one: make sim SEED=123
ifdef SEED
	PHOTON_SIM_SEED=$(SEED) $(BIN)/pytest tests/simulation -s -p no:cacheprovider -m seeded
else
	@base=$(or $(BASE),$$(date +%s)); echo "seeds $$base to $$((base + $(N) - 1))"; \
	  PHOTON_SIM_BASE=$$base PHOTON_SIM_SEEDS=$(N) PHOTON_SIM_ALL=1 $(BIN)/pytest tests/simulation -n $(WORKERS) \
	  --timeout 86400 -m seeded
endif

notice: install          ## which schedule shows that a rule is missing: after a change of code, so that none is searched for
	PHOTON_SIM_NOTE=1 $(BIN)/pytest tests/simulation -n $(WORKERS) -m 'not seeded'

soak: install            ## fresh seeds for HOURS; what finds something is added to tests/simulation/found.json
	$(BIN)/python -m tests.simulation.soak $(HOURS) $(WORKERS) $(or $(BASE),$$(date +%s))

mutants: install         ## N random small mutants of the pure cores: which of them no test notices; FIRST=1 draws others
	$(BIN)/python -m tests.mutants $(N) --first $(or $(FIRST),1) --workers $(WORKERS)

chaos: install           ## the suite of faults over five replicas in three regions: each scenario with its figures, half an hour
	PHOTON_FULL=1 PHOTON_CHAOS_SECONDS=180 $(BIN)/pytest tests/integration/chaos -s --timeout 1200

demo: $(VENV)/.photon    ## join a live stream in two datacentres, lose one, verify all
	$(BIN)/photon demo

bench: install           ## catch-up of a million queries next to plain Python and DuckDB, some minutes
	$(BIN)/python -m bench quick

bench-full: install      ## everything of docs/benchmarks.md next to all peers, hours; continues where it was broken off unless FRESH=1
	$(BIN)/python -m bench full $(if $(FRESH),--fresh)

bench-counts: install    ## take the present counts of calls on the hot path as the new baseline
	$(BIN)/python -m bench.counts --accept

bench-datacentres: install  ## two datacentres: catch-up against joining, wasted joins, split
	$(BIN)/python -m bench.components.datacentres

bench-registry: install  ## conditional inserts/s next to etcd (where Go is there), also 100 ms apart
	$(BIN)/python -m bench.components.registry

service-level: install   ## HOURS of compressed days with faults, each verified; adds to docs/benchmarks/service-level.md
	$(BIN)/python -m bench.service_level run --hours $(HOURS)

overload: install        ## twice what is borne for MINUTES (10), with limits of memory; adds to the same page
	$(BIN)/python -m bench.service_level overload --minutes $(or $(MINUTES),10)

lint: $(VENV)/.lint      ## style, layers, types, stale generated code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYTHONPATH=src $(BIN)/lint-imports --no-cache
	$(BIN)/mypy

fmt: $(VENV)/.lint       ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: install           ## regenerate the protobuf code next to each .proto
	$(BIN)/python -m grpc_tools.protoc -Isrc --python_out=src --pyi_out=src \
	  src/photon/idregistry/registry.proto src/photon/idregistry/raft/peer.proto src/photon/eventstore/eventstore.proto src/photon/joiner/joiner.proto \
	  src/photon/lab/wan/wan.proto src/photon/config/metrics/metrics.proto \
	  src/photon/joiner/copies/copies.proto src/photon/fleet/explain/explain.proto \
	  src/photon/tables/timestamps/timestamps.proto

audit: install           ## known flaws in what the image is made of
	$(BIN)/pip-audit --strict --no-deps --disable-pip --progress-spinner off \
	  -r deploy/docker/requirements.txt -r deploy/docker/spark-requirements.txt

sbom: install            ## what the image is made of, as CycloneDX: build/photon.cdx.json
	@mkdir -p build
	$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --mc-type application --validate \
	  --output-reproducible -o build/photon.cdx.json deploy/docker/requirements.txt

dist: install            ## sdist and wheel, in dist/
	$(BIN)/python -m build

gate: install            ## all that must hold before anything lands, half an hour
	.ci/run

clean:           ## what the build left
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
