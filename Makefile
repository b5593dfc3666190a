# Every target needs Go and make, nothing else.
GO      ?= go
export CGO_ENABLED := 0
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo development)
COMMIT  ?= $(shell git rev-parse --short HEAD 2>/dev/null)
PKG     := github.com/etcdctl-plus/etcdctl-plus
LDFLAGS := -s -w -X $(PKG)/commands/help.Version=$(VERSION) -X $(PKG)/commands/help.Commit=$(COMMIT)
LINT    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.PHONY: build demo test check race lint fuzz soak generate clean

build: ## the binary, and links that make it a drop-in
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/etcdctl-plus ./cmd/etcdctl-plus
	ln -sf etcdctl-plus bin/etcdctl
	ln -sf etcdctl-plus bin/etcdutl

demo: build ## decode a real Kubernetes registry, live and from a file
	@PATH="$(CURDIR)/bin:$$PATH" bash testdata/demo.sh

test: ## vet and the whole suite
	$(GO) vet ./...
	$(GO) test -timeout 20m ./...

check: lint race ## what a change must pass besides the tests: linters and the race detector

lint:
	$(GO) run $(LINT) run ./...

race: ## needs a C compiler
	CGO_ENABLED=1 $(GO) test -race -timeout 30m ./...

fuzz: ## every fuzz target for FUZZTIME
	@bash testdata/fuzz.sh $(or $(FUZZTIME),30s)

soak: ## kill tail and the members under it for MINUTES
	@bash testdata/soak.sh $(or $(MINUTES),10)

generate: ## the schema table; reads several versions of k8s.io/api through the module proxy
	$(GO) generate ./registry/...

clean:
	rm -rf bin dist
