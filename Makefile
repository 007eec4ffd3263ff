# `make` lists the targets. Those that need more than Go install it themselves
# where they can (test/setup.sh); tools and the test cluster are built into bin/.
#
# All builds of the programs take the same flags, so that lint, build, demo, e2e
# and bench share one set of compiled packages; only the race detector needs its
# own, and a C compiler.

.DEFAULT_GOAL := help
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X github.com/kyma-incubator/reconciler/pkg/daemon.version=$(VERSION)
GO      := CGO_ENABLED=0 go
TOOL    := cd test/tools && go build -trimpath -ldflags '-s -w'

# One cluster for all tests of a run, unless the caller brings one.
WITH_CLUSTER := $(if $(KUBECONFIG_TEST),,bin/testcluster up --)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: programs $(if $(KUBECONFIG),,bin/testcluster) ## the main job, end to end (KUBECONFIG=FILE: on that cluster; KEEP=1: leave it running)
	@$(GO) run ./test/demo

.PHONY: test
test: setup bin/testcluster ## all tests but e2e, with the race detector
	@CGO_ENABLED=1 $(WITH_CLUSTER) go test -race -timeout 20m $$(go list ./... | grep -v /e2e)

.PHONY: e2e
e2e: setup bin/testcluster ## the built programs as processes, killed and started again
	@CGO_ENABLED=0 $(WITH_CLUSTER) go test -count=1 -timeout 30m ./e2e/...

.PHONY: bench
bench: setup programs bin/testcluster bin/helm ## throughput and latency, beside a loop that does the bare steps
	@cd test/bench && $(GO) run .

.PHONY: lint
lint: bin/golangci-lint ## rules and import walls of .golangci.yml
	@CGO_ENABLED=0 bin/golangci-lint run --timeout 30m ./...

.PHONY: generate
generate: bin/oapi-codegen ## servers, clients and types from the OpenAPI documents
	@PATH="$(CURDIR)/bin:$$PATH" go generate ./api/...

.PHONY: programs
programs: ## mothership and reconciler into bin/
	@echo "building mothership and reconciler $(VERSION), some minutes the first time"
	@$(GO) build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

.PHONY: build
build: programs ## the same, and for darwin/arm64 into bin/darwin-arm64/
	@echo "building them for darwin/arm64"
	@GOOS=darwin GOARCH=arm64 $(GO) build -ldflags '$(LDFLAGS)' -o bin/darwin-arm64/ ./cmd/...

.PHONY: verify
verify: generated lint test build ## all that must pass before a merge

.PHONY: generated
generated: bin/oapi-codegen
	@sum() { find api -name '*.gen.go' -exec cksum {} + | sort; }; \
	before=$$(sum) && $(MAKE) --no-print-directory generate && after=$$(sum) && \
	if [ "$$before" != "$$after" ]; then echo "generated files were not up to date: commit what make generate wrote" >&2; exit 1; fi

.PHONY: clean
clean: ## remove what was built here
	@rm -rf bin

# A C compiler for the race detector, the programs of a PostgreSQL server.
.PHONY: setup
setup:
	@test/setup.sh cc postgresql

# Decides itself whether there is anything to build.
.PHONY: bin/testcluster
bin/testcluster:
	@cd test/cluster && go run ./build -link $(CURDIR)/$@ >/dev/null

bin/golangci-lint: test/tools/go.mod
	@echo "building golangci-lint, some minutes the first time"
	@$(TOOL) -o $(CURDIR)/$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

bin/oapi-codegen: test/tools/go.mod
	@$(TOOL) -o $(CURDIR)/$@ github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen

bin/helm: test/cluster/helm/go.mod
	@echo "building helm, about a minute the first time"
	@cd test/cluster/helm && go build -trimpath -ldflags '-s -w' -o $(CURDIR)/$@ helm.sh/helm/v3/cmd/helm
