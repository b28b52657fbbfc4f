SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

GOLANGCI_LINT_VERSION := v2.15.0
GOFUMPT_VERSION := v0.12.0

bin := $(CURDIR)/.bin
sdk := cmd/muxproxy/testdata/sdk
frps := tunnel/frp/frpstest/testdata
frpc := bench/controlplane/testdata
fuzztime ?= 10s

.PHONY: build demo test sdk-setup frps frpc sshd lint fuzz bench bench-peers bench-fairness bench-rollouts bench-recording soak clean

## build: the daemon, as ./muxproxy
build:
	CGO_ENABLED=0 go build -trimpath -o muxproxy ./cmd/muxproxy

## demo: a few rollouts against a built-in model; DEMO_FLAGS=--keep stays up
demo: build
	./muxproxy demo $(DEMO_FLAGS)

## test: everything, with all that it needs set up
test: sdk-setup frps frpc sshd
	go vet ./...
	go test -race -timeout 8m ./...
	go test ./nonblock ./proxy ./proxy/upstream ./tunnel # as it ships: counts, and system calls that the race detector takes the place of

## sdk-setup: the official SDKs that the daemon is tested against
sdk-setup: .venv/.installed $(sdk)/javascript/node_modules/.installed $(sdk)/go/checks

.venv/.installed: $(sdk)/python/requirements.txt
	test -x .venv/bin/python || python3 -m venv .venv
	.venv/bin/python -m pip install --quiet --requirement $<
	touch $@

$(sdk)/javascript/node_modules/.installed: $(sdk)/javascript/package.json $(sdk)/javascript/package-lock.json
	cd $(sdk)/javascript && npm ci --no-audit --no-fund --loglevel=error
	touch $@

$(sdk)/go/checks: $(sdk)/go/go.mod $(sdk)/go/go.sum $(wildcard $(sdk)/go/*.go)
	cd $(sdk)/go && go build -o checks .
	touch $@

## frps: the releases of frp's server that tunnels are tested against
frps: $(bin)/frps-0.66.0 $(bin)/frps-0.71.0

$(bin)/frps-%: $(frps)/frps-%/go.mod $(frps)/frps-%/go.sum
	cd $(<D) && CGO_ENABLED=0 go build -trimpath -tags noweb -o $@ github.com/fatedier/frp/cmd/frps
	touch $@

## frpc: the client that Prime's tunnels run, which their stand-in is checked with
frpc: $(bin)/frpc-0.66.0

$(bin)/frpc-%: $(frpc)/frpc-%/go.mod $(frpc)/frpc-%/go.sum
	cd $(<D) && CGO_ENABLED=0 go build -trimpath -tags noweb -o $@ github.com/fatedier/frp/cmd/frpc
	touch $@

## sshd: OpenSSH, whose server and client tunnels are tested with
sshd:
	test -x /usr/sbin/sshd && command -v ssh >/dev/null || \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openssh-server openssh-client; }

## lint: formatting, the linters, and that go.mod and the code are as the tools want them
lint: $(bin)/golangci-lint-$(GOLANGCI_LINT_VERSION) $(bin)/gofumpt-$(GOFUMPT_VERSION)
	test -z "$$($(bin)/gofumpt-$(GOFUMPT_VERSION) -l $$(git ls-files --cached --others --exclude-standard '*.go') | tee /dev/stderr)"
	$(bin)/golangci-lint-$(GOLANGCI_LINT_VERSION) config verify
	$(bin)/golangci-lint-$(GOLANGCI_LINT_VERSION) run ./...
	go mod tidy -diff
	go fix -diff ./...
	for module in $(sdk)/go bench/plot; do \
		(cd $$module && $(bin)/golangci-lint-$(GOLANGCI_LINT_VERSION) run ./... && go mod tidy -diff && go fix -diff ./...); \
	done

$(bin)/golangci-lint-%:
	GOBIN=$(bin) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$*
	mv $(bin)/golangci-lint $@

$(bin)/gofumpt-%:
	GOBIN=$(bin) go install mvdan.cc/gofumpt@$*
	mv $(bin)/gofumpt $@

## fuzz: every fuzz target for $(fuzztime)
fuzz:
	for package in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(fuzztime) -fuzzminimizetime 1s $$package; \
		done; \
	done

## bench: the proxy against its peers, see bench/
bench: build
	$(MAKE) -C bench

## bench-peers: the proxy beside what could be used instead of it, about a quarter of an hour
bench-peers: build
	$(MAKE) -C bench peers

## bench-fairness: what a bulk transfer does to the other rollouts of its tunnel
bench-fairness: build frps
	$(MAKE) -C bench fairness

## bench-rollouts: many rollouts at once on few tunnels, about ten minutes; ROLLOUTS_FLAGS="-scale 10" is quick
bench-rollouts: build frps
	$(MAKE) -C bench rollouts

## bench-recording: what it costs to record, in memory and on disk
bench-recording: build
	$(MAKE) -C bench recording

## soak: the tests of the journal at length: 500 kills, ten thousand mixed endings, a hundred long sessions
soak:
	go test -race -timeout 30m -v -run TestEveryTurnThatWasSeenSurvivesKills ./cmd/muxproxy -args -kills 500
	go test -race -timeout 30m -v -run 'TestMixedEndings|TestLongSessions' ./registry/journal -args -calls 10000 -sessions 100

## clean: what the other targets made
clean:
	rm -rf muxproxy .bin .venv $(sdk)/javascript/node_modules $(sdk)/go/checks bench/peers/*/node_modules bench/peers/*/.venv
