# Everything that is done to this tree. Each target says what it does.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
STATE := $(CURDIR)/.cluster
# Another cluster than the local one: make deploy KUBECONFIG=… IMAGE=…
export KUBECONFIG ?= $(STATE)/kubeconfig
IMAGE ?=
FOCUS ?= .
PLATFORMS ?= linux/amd64 linux/arm64
# The oldest that the agent knows all about, and the newest of two lines.
ETCD_VERSIONS ?= 3.5.9 3.6 3.7
# Without the way to Google's storage that nobody takes: an eighth of the binary.
TAGS := disable_grpc_modules
CLUSTER := $(CURDIR)/bin/cluster
KUBECTL = $(shell test -x $(STATE)/bin/kubernetes/kubectl && echo $(STATE)/bin/kubernetes/kubectl || echo kubectl)
TOOL := go tool -modfile=$(CURDIR)/test/tools/go.mod
say = @printf '\033[1m==> %s\033[0m\n' "$(1)"

help: ## show this
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-17s %s\n", $$1, $$2}'

build: ## the static binary, bin/holdfast
	$(call say,building bin/holdfast $(VERSION))
	@CGO_ENABLED=0 go build -trimpath -tags $(TAGS) -ldflags "-s -w -X main.version=$(VERSION)" -o bin/holdfast .

plugin: build ## bin/kubectl-holdfast: put bin, or that file, into the PATH
	@ln -sf holdfast bin/kubectl-holdfast
	@ln -sf holdfast bin/kubectl_complete-holdfast

$(CLUSTER): $(shell find test/cluster -name '*.go' -o -name 'go.*' -o -name '*.sh' 2>/dev/null)
	$(call say,building the tool for the local cluster)
	@cd test/cluster && CGO_ENABLED=0 go build -o $(CLUSTER) .

generate: ## deep copies and CRDs from the types, Argo CD's settings from the scripts
	@go tool controller-gen object paths=./api/...
	@go tool controller-gen crd:maxDescLen=2000 paths=./api/... output:crd:dir=config/crd
	@# A parameter without quotes is a number to YAML. It is refused by a rule with words, not by the type.
	@sed -i '/^ *parameters:$$/{n;/additionalProperties:/{n;s/type: string/x-kubernetes-int-or-string: true/}}' config/crd/*clusters.yaml
	@cd test && go run ./gitops/render ../kustomize/argocd

check-generated: generate ## fail when a generated file is stale
	@git diff --exit-code -- api config/crd kustomize/argocd || { echo "generated files are stale: run make generate and commit"; exit 1; }

lint: ## golangci-lint with the import direction (minutes when its cache is cold)
	$(call say,linting)
	@$(TOOL) golangci-lint run --allow-parallel-runners ./...
	@cd test && $(TOOL) golangci-lint run --allow-parallel-runners --build-tags e2e,apiserver -c ../.golangci.yml ./...
	@cd test/argocd && $(TOOL) golangci-lint run --allow-parallel-runners --build-tags apiserver -c ../../.golangci.yml ./...

unit: ## tests that need nothing but Go
	$(call say,unit tests)
	@go test ./...
	@cd test && go test ./gitops/... ./docs/...
	@cd test/cluster && go test ./...

api-test: $(CLUSTER) ## tests against a real API server (builds Kubernetes once: about five minutes)
	$(call say,API server tests; the first time Kubernetes is built for them (about five minutes))
	@KUBE_CACHE_MUTATION_DETECTOR=true KUBEBUILDER_ASSETS=$$($(CLUSTER) assets) go test -tags apiserver -timeout 20m ./internal/apply/ ./internal/controller/ ./internal/plugin/
	@cd test && KUBEBUILDER_ASSETS=$$($(CLUSTER) assets) go test -tags apiserver -timeout 20m ./gitops/

etcd-test: $(CLUSTER) ## etcd's agent with real etcd of ETCD_VERSIONS (a minute each; the first time each is built, another)
	$(call say,tests with etcd $(ETCD_VERSIONS))
	@for version in $(ETCD_VERSIONS); do \
		programs=$$($(CLUSTER) etcd $$version); \
		HOLDFAST_ETCD=$$programs go test -tags etcd -count=1 -parallel 5 -timeout 10m -run Real ./internal/member/etcd/ ./internal/engine/etcd/ ./internal/backup/etcd/ ./internal/restore/etcd/; \
	done

argocd-test: $(CLUSTER) ## Argo CD's own health, actions, comparison and controller (the first time it is compiled: minutes)
	$(call say,tests with the code of Argo CD)
	@cd test/argocd && KUBEBUILDER_ASSETS=$$($(CLUSTER) assets) go test -tags apiserver -timeout 20m ./...

cluster: $(CLUSTER) ## three real nodes on this machine (the first time ten minutes, later one)
	@$(CLUSTER) up --dir $(STATE) --kubeconfig $(STATE)/kubeconfig
	@$(CLUSTER) images --dir $(STATE)

cluster-down: $(CLUSTER) ## stop the local cluster and remove its state
	@$(CLUSTER) down --dir $(STATE)

deploy: build ## the operator into holdfast-system; on another cluster with IMAGE= a reference it can pull
	@$(MAKE) --no-print-directory $(CLUSTER)
	@CLUSTER=$(CLUSTER) STATE=$(STATE) KUBECTL=$(KUBECTL) IMAGE=$(IMAGE) test/deploy.sh

image: $(CLUSTER) ## dist/holdfast-image.tar, an OCI archive to push with a tool of yours; PLATFORMS="linux/amd64 linux/arm64"
	$(call say,building dist/holdfast-image.tar $(VERSION) for $(PLATFORMS))
	@mkdir -p dist; programs=; \
	for platform in $(PLATFORMS); do \
		CGO_ENABLED=0 GOOS=linux GOARCH=$${platform#linux/} go build -trimpath -tags $(TAGS) -ldflags "-s -w -X main.version=$(VERSION)" -o dist/holdfast-$${platform#linux/} .; \
		programs=$$programs,$${platform#linux/}=dist/holdfast-$${platform#linux/}; \
	done; \
	$(CLUSTER) pack --oci $${programs#,} --out dist/holdfast-image.tar
	@echo 'dist/holdfast-image.tar is an OCI archive. Push it where your nodes can pull it, such as:'
	@echo '  skopeo copy --all oci-archive:dist/holdfast-image.tar docker://registry.example.com/holdfast:main'

undeploy: ## remove the operator and keep clusters, CRDs and data
	@$(KUBECTL) delete --ignore-not-found -n holdfast-system deployment/holdfast

flux: cluster ## Flux's kustomize-controller on the local cluster (the first time four minutes)
	@$(CLUSTER) flux --dir $(STATE)

etcd-images: cluster ## etcd's images for the local cluster's nodes (the first time four minutes)
	@$(CLUSTER) images --dir $(STATE) etcd

s3-image: cluster ## the image of the S3 store of the tests, for the local cluster's nodes (the first time two minutes)
	@$(CLUSTER) images --dir $(STATE) s3

# Built before the tests rather than by them, when the focus may be on them. Each
# test is told of when it ends; at the end stands what could not be tested.
e2e: cluster deploy $(if $(filter .,$(FOCUS))$(findstring Flux,$(FOCUS)),flux) $(if $(filter .,$(FOCUS))$(findstring Etcd,$(FOCUS)),etcd-images) $(if $(filter .,$(FOCUS))$(findstring Store,$(FOCUS)),s3-image) ## tests on the real cluster; FOCUS=regexp for some of them
	$(call say,end-to-end tests)
	@cd test/e2e && go test -tags e2e -count=1 -v -timeout 60m -run '$(FOCUS)'

soak: cluster deploy etcd-images ## the long versions of the end-to-end tests (two hours)
	@cd test/e2e && go test -tags 'e2e soak' -count=1 -v -timeout 180m -run '$(if $(filter .,$(FOCUS)),TestSoak,$(FOCUS))'

bench: cluster deploy etcd-images ## measure and print a table (about a quarter of an hour)
	$(call say,benchmarks)
	@KUBEBUILDER_ASSETS=$$($(CLUSTER) assets) go test -tags bench -count=1 -timeout 40m -run '^TestBench' -v ./internal/bench/
	@cd test && go test -tags 'e2e bench' -count=1 -timeout 40m -run '^TestBench' -v ./e2e/...

test: check-generated lint unit api-test etcd-test argocd-test e2e ## every tier, and all that it needs

demo: cluster deploy plugin ## an example, Ready, with a drift reverted before your eyes
	@KUBECTL=$(KUBECTL) test/demo/demo.sh

bin/cluster: $(CLUSTER)

.PHONY: help build plugin generate check-generated lint unit api-test etcd-test argocd-test cluster cluster-down flux etcd-images s3-image deploy image undeploy e2e soak bench test demo
