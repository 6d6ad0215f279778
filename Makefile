# Build, test and deploy targets. `make help` lists them.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
STATE := $(CURDIR)/.cluster
# Deploy to a cluster other than the local one: make deploy KUBECONFIG=… IMAGE=…
export KUBECONFIG ?= $(STATE)/kubeconfig
IMAGE ?=
FOCUS ?= .
CHAOS ?= 30m
SEED ?=
PLATFORMS ?= linux/amd64 linux/arm64
RELEASE_IMAGE ?= ghcr.io/holdfast-db/holdfast
# The folder that make release writes anew.
RELEASE_OUT ?= dist
# TRIAL=1: make release accepts a tree with changes, and a changelog without the version.
TRIAL ?=
# The folder of what is not part of a release: make release leaves it alone.
BUILD := $(CURDIR)/build
# The oldest supported etcd release, and the newest of two minor versions.
ETCD_VERSIONS ?= 3.5.9 3.6 3.7
# The majors of PostgreSQL that suites of Debian have.
POSTGRES_MAJORS ?= 15 17 18
# The MySQL that Debian has: others cannot be built.
MYSQL_VERSION ?= 9.7
# The minutes of calm load that make record-anomalies records. Faults take 20 more, and the certificates of the tests are valid for an hour.
RECORD ?= 24
# The minor version of Kubernetes that make cluster starts, such as 1.35: see docs/reference/versions.md.
KUBERNETES ?=
# What versions-test runs on each minor version of Kubernetes. A dollar sign would be read by make twice.
VERSION_TESTS ?= ^TestTogether\b/^(SeedManifest|EtcdSeedManifest|Failover|Scale|EtcdScale|Drift|EtcdTruth|VolumeGrows|TLS|Retain|EtcdDelete|Backups|EtcdRestores|MySQLStorePointInTime)\b
# How the page on versions calls that list.
SHORT_LIST := the short list of end-to-end tests on the real cluster (`make versions-test`)
# Leaves out the gRPC transport of Google Cloud Storage, which Holdfast does not use: it is an eighth of the binary.
TAGS := disable_grpc_modules
CLUSTER := $(CURDIR)/bin/cluster
KUBECTL = $(shell test -x $(STATE)/bin/kubernetes/kubectl && echo $(STATE)/bin/kubernetes/kubectl || echo kubectl)
TOOL := go tool -modfile=$(CURDIR)/test/tools/go.mod
TEST := GOTESTSUM='$(TOOL) gotestsum' $(CURDIR)/test/run-tests.sh
say = @printf '\033[1m==> %s\033[0m\n' "$(1)"

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-17s %s\n", $$1, $$2}'

build: ## the static binary, bin/holdfast
	$(call say,building bin/holdfast $(VERSION))
	@CGO_ENABLED=0 go build -trimpath -tags $(TAGS) -ldflags "-s -w -X main.version=$(VERSION)" -o bin/holdfast .

plugin: build ## bin/kubectl-holdfast: add bin to the PATH
	@ln -sf holdfast bin/kubectl-holdfast
	@ln -sf holdfast bin/kubectl_complete-holdfast

$(CLUSTER): $(shell find test/cluster -name '*.go' -o -name 'go.*' -o -name '*.sh' 2>/dev/null)
	$(call say,building the tool for the local cluster)
	@# With -trimpath it shares compiled packages with the programs that it builds.
	@cd test/cluster && CGO_ENABLED=0 go build -trimpath -o $(CLUSTER) .

generate: ## deep copies, CRDs and the API reference from the types, Argo CD's settings from the scripts, Grafana's dashboards, the Helm chart and the bundle for OLM from the kustomizations
	@go tool controller-gen object paths=./api/...
	@go tool controller-gen crd:maxDescLen=2000 paths=./api/... output:crd:dir=config/crd
	@# Users write map values without quotes. Whole numbers are accepted as values; other types are refused by a CEL rule with a readable message.
	@sed -i '/^ *\(parameters\|nodeSelector\|podLabels\|podAnnotations\|annotations\):$$/{n;/additionalProperties:/{n;s/type: string/x-kubernetes-int-or-string: true/}}' config/crd/*clusters.yaml config/crd/*databases.yaml
	@go tool -modfile=test/tools/apidocs/go.mod crd-ref-docs --config test/tools/apidocs/config.yaml --templates-dir test/tools/apidocs/templates \
		--source-path api/v1alpha1 --renderer markdown --output-path docs/reference/api.md --log-level ERROR --max-depth 20
	@cd test && go run ./gitops/render ../kustomize/argocd
	@cd test && go run ./dashboards/render .. && go run ./helm/render .. && go run ./olm/render ..

check-generated: generate ## fail when a generated file is stale
	@git diff --exit-code -- api config/crd config/dashboards config/helm config/olm kustomize/argocd docs/reference || { echo "generated files are stale: run make generate and commit"; exit 1; }

shape: ## print the length of functions and files and the size of types and directories
	@cd test && go run ./shape ..

lint: ## golangci-lint with the import direction (minutes when its cache is cold)
	$(call say,linting)
	@$(TOOL) golangci-lint run --allow-parallel-runners ./...
	@cd test && $(TOOL) golangci-lint run --allow-parallel-runners --build-tags e2e,soak,apiserver,promtool,prometheus,browser,notifications,olm -c ../.golangci.yml ./...
	@cd test/argocd && $(TOOL) golangci-lint run --allow-parallel-runners --build-tags apiserver -c ../../.golangci.yml ./...

unit: ## tests that need nothing but Go
	$(call say,unit tests)
	@$(TEST) unit -timeout 30m ./...
	@cd test && $(TEST) unit-tools -timeout 30m ./dashboards/... ./docs/... ./faultplan/... ./gitops/... ./helm/... ./kustomization/... ./netns/... ./olm/... ./planci/... ./podprocess/... ./prometheus/... ./recording/... ./release/... ./shape/... ./toyengine/... ./waltail/... ./writehistory/...
	@cd test/cluster && $(TEST) unit-cluster ./...

api-test: $(CLUSTER) ## tests against a real API server (builds Kubernetes once: about five minutes)
	$(call say,API server tests; the first time Kubernetes is built for them (about five minutes))
	@KUBE_CACHE_MUTATION_DETECTOR=true KUBEBUILDER_ASSETS=$$($(CLUSTER) assets) $(TEST) api-test -tags apiserver -parallel 6 -timeout 30m ./internal/apply/ ./internal/controller/ ./internal/plugin/ ./internal/agent/primarylease/
	@cd test && KUBEBUILDER_ASSETS=$$($(CLUSTER) assets) $(TEST) api-test-tools -tags apiserver -timeout 30m ./gitops/ ./toyengine/

etcd-test: $(CLUSTER) ## test the etcd agent with real etcd of ETCD_VERSIONS (a minute each; the first build takes another)
	$(call say,tests with etcd $(ETCD_VERSIONS))
	@for version in $(ETCD_VERSIONS); do \
		programs=$$($(CLUSTER) etcd $$version); \
		HOLDFAST_ETCD=$$programs $(TEST) etcd-test-$$version -tags etcd -count=1 -parallel 5 -timeout 10m -run Real ./internal/agent/etcd/ ./internal/engine/etcd/ ./internal/backup/etcd/ ./internal/restore/etcd/; \
	done

postgres-test: $(CLUSTER) ## test the PostgreSQL agent and Jobs with real PostgreSQL of POSTGRES_MAJORS (many minutes each; needs root); FOCUS=regexp for some
	@for major in $(POSTGRES_MAJORS); do \
		printf '\033[1m==> tests with PostgreSQL %s\033[0m\n' "$$major"; \
		test/run-postgres-tests.sh "$$($(CLUSTER) postgres $$major)" '$(if $(filter .,$(FOCUS)),Real,$(FOCUS))' "$$($(CLUSTER) programs prometheus-postgres-exporter)" "$$($(CLUSTER) postgres $(firstword $(POSTGRES_MAJORS)))"; \
	done

import-test: $(CLUSTER) ## those of postgres-test that import a database, into the newest of POSTGRES_MAJORS from the oldest (minutes; needs root)
	$(call say,imports into PostgreSQL $(lastword $(POSTGRES_MAJORS)))
	@test/run-postgres-tests.sh "$$($(CLUSTER) postgres $(lastword $(POSTGRES_MAJORS)))" TestRealImport "$$($(CLUSTER) programs prometheus-postgres-exporter)" "$$($(CLUSTER) postgres $(firstword $(POSTGRES_MAJORS)))"

mysql-test: $(CLUSTER) ## test MySQL's agent, its layers and its Jobs with real groups of three (about 25 minutes, and 4 GiB of memory)
	$(call say,tests with MySQL $(MYSQL_VERSION))
	@programs=$$($(CLUSTER) mysql $(MYSQL_VERSION)); \
	HOLDFAST_MYSQL=$$programs HOLDFAST_MYSQL_EXPORTER=$$($(CLUSTER) programs prometheus-mysqld-exporter) $(TEST) mysql-test -tags mysql -count=1 -p 1 -timeout 60m -run Real ./internal/agent/mysql/... ./internal/mysqlgtid/ ./internal/binlog/ ./internal/restore/mysql/ ./internal/forecast/settings/

record-anomalies: $(CLUSTER) ## internal/anomaly/testdata: what agents measure of real servers, under a load and with faults (three quarters of an hour; 2 GiB; needs root)
	$(call say,recording real servers for $(RECORD) minutes and their faults)
	@mkdir -p dist/recordings
	@test/record-anomalies.sh dist/recordings $(RECORD) "$$($(CLUSTER) postgres 17)" "$$($(CLUSTER) mysql $(MYSQL_VERSION))" "$$($(CLUSTER) etcd 3.6)"
	@cp dist/recordings/*.csv internal/anomaly/testdata/

argocd-test: $(CLUSTER) ## test with Argo CD's own health, actions, comparison and controller code (the first build takes minutes)
	$(call say,tests with the code of Argo CD)
	@cd test/argocd && KUBEBUILDER_ASSETS=$$($(CLUSTER) assets) go test -tags apiserver -timeout 30m ./...

cluster: $(CLUSTER) ## start three real nodes on this machine (ten minutes the first time, then one); KUBERNETES=1.35 for another minor version
	@$(CLUSTER) up --dir $(STATE) --kubeconfig $(STATE)/kubeconfig $(if $(KUBERNETES),--kubernetes=$(KUBERNETES))
	@$(CLUSTER) images --dir $(STATE)

cluster-down: $(CLUSTER) ## stop the local cluster and remove its state
	@$(CLUSTER) down --dir $(STATE)

deploy: build ## install the operator into holdfast-system; on another cluster set IMAGE= to a reference that it can pull
	@$(MAKE) --no-print-directory $(CLUSTER)
	@CLUSTER=$(CLUSTER) STATE=$(STATE) KUBECTL=$(KUBECTL) IMAGE=$(IMAGE) test/deploy.sh

image: $(CLUSTER) ## build/holdfast-image.tar, an OCI archive to push to your registry; PLATFORMS="linux/amd64 linux/arm64"
	$(call say,building build/holdfast-image.tar $(VERSION) for $(PLATFORMS))
	@mkdir -p $(BUILD); programs=; \
	for platform in $(PLATFORMS); do \
		CGO_ENABLED=0 GOOS=linux GOARCH=$${platform#linux/} go build -trimpath -tags $(TAGS) -ldflags "-s -w -X main.version=$(VERSION)" -o $(BUILD)/holdfast-$${platform#linux/} .; \
		programs=$$programs,$${platform#linux/}=$(BUILD)/holdfast-$${platform#linux/}; \
	done; \
	$(CLUSTER) pack --oci $${programs#,} --out $(BUILD)/holdfast-image.tar
	@echo 'build/holdfast-image.tar is an OCI archive. Push it to a registry that your nodes can pull from, for example:'
	@echo '  skopeo copy --all oci-archive:build/holdfast-image.tar docker://registry.example.com/holdfast:main'

stamp: ## name VERSION=v0.1.0 in pages, examples and manifests, before its release
	@cd test && go run ./release -version '$(VERSION)' -stamp $(CURDIR)

release: $(CLUSTER) ## dist/: every file to publish of VERSION=v0.1.0; RELEASE_IMAGE= for another repository of the image, TRIAL=1 for files that are not to be published
	$(call say,writing the release $(VERSION) into $(RELEASE_OUT))
	@# A run that fails leaves the folder as it was. Only a release is replaced.
	@test -z "$$(ls -A '$(RELEASE_OUT)' 2>/dev/null)" || test -e '$(RELEASE_OUT)/SHA256SUMS' || { echo '$(RELEASE_OUT) has files that are no release: remove them, or set RELEASE_OUT to another folder'; exit 1; }
	@rm -rf '$(RELEASE_OUT).new'
	@cd test && go run ./release $(if $(TRIAL),-trial) -version '$(VERSION)' -image '$(RELEASE_IMAGE)' -tags '$(TAGS)' -packer $(CLUSTER) -out '$(abspath $(RELEASE_OUT)).new' $(CURDIR)
	@rm -rf '$(RELEASE_OUT)' && mv '$(RELEASE_OUT).new' '$(RELEASE_OUT)'

alerts-test: ## fire and silence each alert in promtool (minutes when it is not built yet)
	$(call say,alerts in promtool)
	@cd test && go test -count=1 -timeout 30m -tags promtool -run Promtool ./gitops/

dashboards-test: $(CLUSTER) ## evaluate every panel of the dashboards in Debian's Prometheus on recorded scrapes (half a minute)
	$(call say,dashboards in Prometheus)
	@cd test && HOLDFAST_PROMETHEUS=$$($(CLUSTER) programs prometheus) go test -tags prometheus -count=1 -timeout 10m -run PanelsHaveData ./dashboards/

notifications-test: $(CLUSTER) ## Flux's own notification-controller passes on what the operator posts (the first time four minutes)
	$(call say,events in the notification-controller)
	@cd test && KUBEBUILDER_ASSETS=$$($(CLUSTER) assets) go test -tags notifications -count=1 -timeout 30m ./notificationcontroller/

olm-test: ## opm validates the catalog for OLM, and renders the same from the bundle (the first build takes minutes)
	$(call say,the catalog in opm)
	@cd test && go test -tags olm -count=1 -timeout 30m -run OPM ./olm/

ui-vendor: ## take the libraries of the pages of `kubectl holdfast ui` from npm, by the hashes of test/ui/package-lock.json
	@test/ui/vendor.sh

ui-test: ui-vendor ## the pages of `kubectl holdfast ui` in Debian's Chromium (two minutes; needs npm, and root if Chromium is to be installed)
	$(call say,pages in Chromium)
	@git diff --exit-code -- internal/plugin/web/assets/vendor || { echo "the libraries differ from npm's packages: commit what make ui-vendor wrote"; exit 1; }
	@test -x /usr/bin/chromium || { apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium fonts-dejavu-core; }
	@cd test && go test -tags browser -count=1 -timeout 10m -v ./ui/ $(if $(UPDATE),-update)
	@# The screenshots are shown in docs/guides/ui.md.
	@$(if $(UPDATE),optipng -quiet -o5 docs/images/ui-*.png,true)

site/node_modules/.package-lock.json: site/package-lock.json
	@cd site && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error

site: site/node_modules/.package-lock.json ## build/site, the pages of docs as a static site (needs npm); SITE_BASE=/path/ SITE_REPOSITORY=https://…
	$(call say,building build/site)
	@cd site && npx vitepress build

test/ui/node_modules/.package-lock.json: test/ui/package-lock.json
	@cd test/ui && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error

site-test: site test/ui/node_modules/.package-lock.json ## the site in Debian's Chromium: links, search, themes, keyboard, accessibility (two minutes; needs root if Chromium is to be installed)
	$(call say,the site in Chromium)
	@test -x /usr/bin/chromium || { apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium fonts-dejavu-core; }
	@cd test && go test -tags browser -count=1 -timeout 15m ./site/

release-test: ## build a release for every platform twice and compare the runs (half an hour when nothing is cached)
	@cd test && go test -tags release -count=1 -timeout 90m ./release/

undeploy: ## remove the operator and keep clusters, CRDs and data
	@$(KUBECTL) delete --ignore-not-found -n holdfast-system deployment/holdfast

flux: cluster ## Flux's kustomize-controller on the local cluster (the first time four minutes)
	@$(CLUSTER) flux --dir $(STATE)

etcd-images: cluster ## etcd's images for the local cluster's nodes (the first time four minutes)
	@$(CLUSTER) images --dir $(STATE) etcd

mysql-images: cluster ## MySQL's images for the local cluster's nodes (the first time two minutes)
	@$(CLUSTER) images --dir $(STATE) mysql

s3-image: cluster ## the image of the S3 store of the tests, for the local cluster's nodes (the first time two minutes)
	@$(CLUSTER) images --dir $(STATE) s3

# The prerequisites of the focused tests are built first. The linter vets these
# tests: vetting them again would take as long as compiling them.
e2e: cluster deploy $(if $(filter .,$(FOCUS))$(findstring Flux,$(FOCUS)),flux) $(if $(filter .,$(FOCUS))$(findstring Etcd,$(FOCUS)),etcd-images) $(if $(filter .,$(FOCUS))$(findstring MySQL,$(FOCUS))$(findstring Flux,$(FOCUS))$(findstring Example,$(FOCUS)),mysql-images) $(if $(filter .,$(FOCUS))$(findstring Store,$(FOCUS)),s3-image) ## tests on the real cluster; FOCUS=regexp for some of them
	$(call say,end-to-end tests)
	@FOCUS='$(FOCUS)' STATE=$(STATE) GOTESTSUM='$(TOOL) gotestsum' test/run-e2e.sh -tags e2e -timeout 60m

soak: alerts-test notifications-test olm-test ui-test site-test cluster deploy etcd-images mysql-images s3-image $(if $(filter .,$(FOCUS)),release-test import-test) ## run the long versions of the end-to-end tests, and every promise with every kind (about 14 hours; FAILOVER_RUNS=1 saves three of them)
	$(if $(filter .,$(FOCUS)),@HOLDFAST_HISTORIES=500000 HOLDFAST_SEED=$(or $(SEED),1000000) go test -count=1 -timeout 6h -run Histories ./internal/election/)
	$(if $(filter .,$(FOCUS)),@HOLDFAST_HISTORIES=20 HOLDFAST_SEED=$(or $(SEED),5000) go test -count=1 -timeout 1h -v ./internal/anomaly/)
	@FOCUS='$(if $(filter .,$(FOCUS)),TestSoak,$(FOCUS))' STATE=$(STATE) GOTESTSUM='$(TOOL) gotestsum' SEED=$(SEED) test/run-e2e.sh -tags 'e2e soak' -timeout 24h
	$(if $(filter .,$(FOCUS)),@$(MAKE) --no-print-directory versions-test)

versions-test: $(CLUSTER) ## run VERSION_TESTS on each supported minor version of Kubernetes in turn; it takes the local cluster down (about half an hour each), and records what ran in test/versions-seen.txt
	@for minor in $$($(CLUSTER) versions); do \
		$(MAKE) --no-print-directory cluster-down; \
		printf '\033[1m==> tests with Kubernetes %s\033[0m\n' "$$minor"; \
		$(MAKE) --no-print-directory e2e KUBERNETES=$$minor FOCUS='$(VERSION_TESTS)'; \
		version=$$(cat test/cluster/kube/go.mod test/cluster/kube/*/go.mod | sed -nE "s|^\tk8s\.io/kubernetes v($$minor\.[0-9]+)$$|\1|p"); \
		$(if $(filter file,$(origin VERSION_TESTS)),test/record-version.sh test/versions-seen.txt "Kubernetes $$version" '$(SHORT_LIST)';) \
	done
	@$(MAKE) --no-print-directory cluster-down
	@go test . -count=1 -run TestVersionsReference -update

chaos: cluster deploy ## random faults under load for CHAOS=30m, those of SEED=number again
	@FOCUS='$(if $(filter .,$(FOCUS)),^TestChaos$$,$(FOCUS))' STATE=$(STATE) GOTESTSUM='$(TOOL) gotestsum' CHAOS=$(CHAOS) SEED=$(SEED) test/run-e2e.sh -tags 'e2e soak' -timeout 24h

bench: cluster deploy etcd-images mysql-images ## measure and print tables (about two hours)
	$(call say,benchmarks)
	@KUBEBUILDER_ASSETS=$$($(CLUSTER) assets) TAGS="$(TAGS)" go test -tags bench -count=1 -timeout 6h -run '^TestBench' -v ./internal/bench/
	@cd test && go test -tags 'e2e soak bench' -count=1 -timeout 3h -run '^TestBench' -v ./e2e/...
	@$(MAKE) --no-print-directory bench-agent

bench-agent: $(CLUSTER) ## measure what the agent costs PostgreSQL, and its memory with each database (about 40 minutes; needs root); FOCUS=regexp for some
	$(call say,what the agent costs)
	@KUBEBUILDER_ASSETS=$$($(CLUSTER) assets) TAGS="$(TAGS)" test/run-overhead-bench.sh "$$($(CLUSTER) postgres 17)" '$(if $(filter .,$(FOCUS)),^TestBench,$(FOCUS))' "$$($(CLUSTER) mysql $(MYSQL_VERSION))" "$$($(CLUSTER) etcd 3.6)"

# Tests without the local cluster run beside the builds that it needs: those
# download, unpack and link on one core for much of their time, and give way to
# tests. Both are waited for. A tier that fails ends the run before the next one.
test: check-generated $(CLUSTER) ## run every tier, and build what the tiers need first
	@$(MAKE) --no-print-directory -j2 --output-sync=target checks builds
	@$(MAKE) --no-print-directory e2e

# The API server's tests wait for much of their time, and so do those with programs.
checks: ## the tiers that need no local cluster
	@for tier in lint unit; do \
		$(MAKE) --no-print-directory $$tier || { echo "==> $$tier FAILED"; exit 1; }; \
	done
	@$(MAKE) --no-print-directory -j2 --output-sync=recurse api-test program-test

program-test:
	@for tier in etcd-test argocd-test dashboards-test; do \
		$(MAKE) --no-print-directory $$tier || { echo "==> $$tier FAILED"; exit 1; }; \
	done

builds: $(CLUSTER) ## what the local cluster is made of, without starting it
	@nice -n 10 $(CLUSTER) build >/dev/null
	@nice -n 10 $(CLUSTER) images --build-only postgres etcd mysql s3 >/dev/null
	@nice -n 10 $(CLUSTER) flux --build-only

demo: $(CLUSTER) ## create an example cluster, change an owned object and show how it is reverted
	@CLUSTER=$(CLUSTER) STATE=$(STATE) MAKE=$(MAKE) test/demo/demo.sh

recording: ## docs/images/drift.svg, from a drift in the cluster that make demo started
	@mkdir -p $(BUILD) docs/images
	@cd test && go run ./recording record -title 'A drift is reverted' -out $(BUILD)/drift.cast -- env KUBECTL=$(KUBECTL) demo/drift.sh
	@cd test && go run ./recording render -in $(BUILD)/drift.cast -out $(CURDIR)/docs/images/drift.svg

bin/cluster: $(CLUSTER)

.PHONY: recording record-anomalies site site-test ui-test ui-vendor alerts-test notifications-test olm-test dashboards-test help build plugin generate check-generated shape lint unit api-test etcd-test postgres-test import-test mysql-test argocd-test cluster cluster-down flux etcd-images mysql-images s3-image deploy image stamp release release-test undeploy e2e soak versions-test chaos bench bench-agent test checks program-test builds demo
