# The development tasks of fedhttp. `make` alone lists them.
#
# Every folder with a go.mod is a module of its own and is found by that file,
# so a new module takes part without a change here. Modules under tools/ serve
# development: they are vetted and kept tidy, but are no part of the library.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c

# Each module stands on its own go.mod, whatever go.work a developer keeps.
export GOWORK := off

FUZZTIME  ?= 10s
STRESSTIME ?= 30s
BENCH     ?=
BENCHTIME ?= 1s
BENCHFLAGS ?=
TESTFLAGS ?=

FIND_MODULES := find . -name go.mod -not -path './.git/*' -not -path './bin/*' -not -path '*/testdata/*'
# "." is the root module and comes first.
ALL_MODULES  := $(sort $(patsubst %/go.mod,%,$(shell $(FIND_MODULES))))
MODULES      := $(filter-out ./tools/%,$(ALL_MODULES))
# tools/lint, tools/jaeger and tools/spire only name a tool: they have no Go file
# that vet could look at.
VET_MODULES  := $(filter-out ./tools/lint ./tools/jaeger ./tools/spire,$(ALL_MODULES))
# SPIRE is not part of CI, which need not download its 340 modules to look at one
# go.mod: test-spire does.
TIDY_MODULES := $(filter-out ./tools/spire,$(ALL_MODULES))

BIN      := $(CURDIR)/bin
GOLANGCI := $(BIN)/golangci-lint
JAEGER   := $(BIN)/jaeger
SPIRE    := $(BIN)/spire

.DEFAULT_GOAL := help
.PHONY: help test lint fmt-check vet tidy-check golangci gates bench-check fuzz stress bench bench-quick bench-compare cover tools-check example-check observability-check jaeger test-jaeger test-spire vuln clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-19s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo "modules: $(MODULES)"

# realtest is about other programs, and its libraries take minutes to compile once
# more for the race detector.
test: ## run the tests of every module under the race detector (TESTFLAGS=...)
	@failed=(); for m in $(MODULES); do \
		echo "== test $$m"; race=-race; [[ "$$m" != ./realtest ]] || race=; \
		CGO_ENABLED=1 go test -C "$$m" $$race $(TESTFLAGS) ./... || failed+=("$$m"); \
	done; \
	if (( $${#failed[@]} )); then echo "tests failed in: $${failed[*]}" >&2; exit 1; fi

lint: fmt-check vet golangci ## gofmt, go vet and golangci-lint, for every module

fmt-check: ## fail on files that gofmt would change
	@echo "== gofmt"
	@unformatted="$$("$$(go env GOROOT)/bin/gofmt" -s -l .)"; \
	if [[ -n "$$unformatted" ]]; then \
		printf 'not formatted, run gofmt -s -w on:\n%s\n' "$$unformatted" >&2; exit 1; \
	fi

vet: ## go vet, for every module
	@for m in $(VET_MODULES); do echo "== vet $$m"; go vet -C "$$m" ./...; done

tidy-check: ## fail where go mod tidy would change a go.mod or go.sum
	@for m in $(TIDY_MODULES); do echo "== tidy $$m"; go mod tidy -C "$$m" -diff; done

golangci: $(GOLANGCI) ## golangci-lint alone, every module under the root's settings
	@for m in $(MODULES); do \
		echo "== golangci-lint $$m"; \
		(cd "$$m" && "$(GOLANGCI)" run --config "$(CURDIR)/.golangci.yml" ./...); \
	done

$(GOLANGCI): tools/lint/go.mod tools/lint/go.sum
	@echo "== building golangci-lint $$(go list -C tools/lint -m -f '{{.Version}}' github.com/golangci/golangci-lint/v2) from source (minutes the first time)"
	@mkdir -p "$(BIN)"
	@CGO_ENABLED=0 go build -C tools/lint -trimpath -o "$@" github.com/golangci/golangci-lint/v2/cmd/golangci-lint & build=$$!; \
	start=$$SECONDS; \
	while sleep 1; kill -0 "$$build" 2>/dev/null; do \
		took=$$(( SECONDS - start )); \
		if (( took % 20 == 0 )); then echo "   still building after $$took s"; fi; \
	done; \
	wait "$$build"
	@touch "$@"

gates: ## the exact allocation counts and the memory of held tasks, which the race detector would change
	@go test -count=1 -run 'Allocs|HeldMemory' .

bench-check: ## what fedhttp costs beside otelhttp and what one builds today, in pairs (about 2 min)
	@go run -C bench ./cmd/measure gate

fuzz: ## run each fuzz target of each package for FUZZTIME (10s)
	@FUZZTIME="$(FUZZTIME)" .ci/fuzz $(MODULES)

stress: ## the fence and a soak under faults, each for STRESSTIME (30s)
	@echo "== the fence for $(STRESSTIME)"
	@GOMAXPROCS=8 CGO_ENABLED=1 go test -race -count=1 -v -timeout 60m -run '^TestFenceStress$$' . -fence.for=$(STRESSTIME)
	@echo "== the soak for $(STRESSTIME)"
	@CGO_ENABLED=1 go test -race -count=1 -v -timeout 60m -run '^TestSoak$$' . -soak.for=$(STRESSTIME)

# Alone on the machine, or the figures are those of whoever else was there.
bench: ## run every benchmark (about 35 min) and write docs/benchmarks.md; BENCH=regexp BENCHTIME=1s: those, and write nothing
	@if [[ -z '$(BENCH)' ]]; then \
		go run -C bench ./cmd/all $(BENCHFLAGS); \
		go run -C bench ./cmd/report; \
	else \
		for m in . ./bench; do \
			echo "== bench $$m"; \
			go test -C "$$m" -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem .; \
		done; \
	fi

bench-quick: ## see whether every benchmark works (about 3 min): the figures are worth nothing
	@go run -C bench ./cmd/all -quick -out ../bin/bench-quick
	@mkdir -p "$(BIN)/bench-quick/docs"
	@go run -C bench ./cmd/report -in ../bin/bench-quick/results.txt -out ../bin/bench-quick/docs

bench-compare: ## compare the last two runs of make bench with benchstat
	@go tool -C bench benchstat -table pkg ../bin/bench/previous.txt ../bin/bench/results.txt

cover: ## test coverage of each module, profiles in bin/cover
	@mkdir -p "$(BIN)/cover"
	@for m in $(MODULES); do \
		name="$${m#./}"; name="$${name//\//-}"; [[ "$$name" != . ]] || name=root; \
		profile="$(BIN)/cover/$$name.out"; \
		echo "== cover $$m"; \
		go test -C "$$m" -coverpkg=./... -coverprofile="$$profile" ./...; \
		go tool -C "$$m" cover -func="$$profile" | tail -n 1; \
	done

tools-check: ## test the tools that check the others
	@for m in ./tools/figures ./tools/vuln; do echo "== test $$m"; go test -C "$$m" ./...; done

# The database is a Go module of a fixed version, so this needs nothing else
# from the network and gives the same answer on every machine.
vuln: ## known vulnerabilities that the code of a module can reach
	@mkdir -p "$(BIN)"
	@echo "== building govulncheck and its database from source (a minute the first time)"
	@go build -C tools/vuln -o "$(BIN)/" golang.org/x/vuln/cmd/govulncheck golang.org/x/vulndb/cmd/indexdb .
	@rm -rf "$(BIN)/vulndb"
	@"$(BIN)/indexdb" -vulns "$$(go list -C tools/vuln -m -f '{{.Dir}}' golang.org/x/vulndb)/data/osv" -out "$(BIN)/vulndb"
	@echo "== scanning"
	@"$(BIN)/vuln" "$(BIN)/vulndb" $(VET_MODULES)

example-check: ## run the example with -json and check its figures
	@if [[ ! -f example/go.mod ]]; then echo "example/ is missing: there is nothing to check" >&2; exit 1; fi
	@echo "== example: build"
	@mkdir -p "$(BIN)"
	@go build -C example -o "$(BIN)/example" .
	@go build -C tools/figures -o "$(BIN)/figures" .
	@echo "== example: run and check the figures"
	@"$(BIN)/figures" "$(BIN)/example" -json
	@"$(BIN)/example" -tls -json
	@"$(BIN)/example" -fleet 3 -json

observability-check: ## look up what the dashboard and the alerts name in the example's metrics
	@echo "== test ./tools/observability"
	@go test -C tools/observability -count=1 ./...

jaeger: $(JAEGER) ## run Jaeger, in memory and on loopback (the first build takes 8 to 14 CPU-minutes)
	@go build -C tools/jaegertest -o "$(BIN)/jaegertest" .
	@exec "$(BIN)/jaegertest" "$(JAEGER)"

test-jaeger: $(JAEGER) ## send the example's traces to a Jaeger and check what it makes of them
	@echo "== test ./tools/jaegertest"
	@CGO_ENABLED=1 go test -C tools/jaegertest -race -count=1 -v -timeout 10m . -jaeger "$(JAEGER)"

$(JAEGER): tools/jaeger/go.mod tools/jaeger/go.sum tools/jaeger/build
	@tools/jaeger/build "$@"

test-spire: $(SPIRE)/spire-server ## rotate an authority of a real SPIRE (the first build takes 11 CPU-minutes or more)
	@echo "== tidy ./tools/spire"
	@go mod tidy -C tools/spire -diff
	@echo "== test ./tools/spiretest"
	@CGO_ENABLED=1 go test -C tools/spiretest -race -count=1 -v -timeout 15m . -spire "$(SPIRE)"

# The agent comes with the server.
$(SPIRE)/spire-server: tools/spire/go.mod tools/spire/go.sum tools/spire/build
	@tools/spire/build "$(SPIRE)"

clean: ## remove what the other targets built
	@rm -rf "$(BIN)"
