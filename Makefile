# Thin front of meson: the names a newcomer tries first.
BUILD ?= build
MESON_FLAGS ?=

.PHONY: all daytona-snapshot-create daytona-snapshot-check daytona-child-snapshot-create daytona-child-snapshot-check deps demo test test-unit test-e2e test-real test-vm bench check clean help

all: $(BUILD)/build.ninja ## build $(BUILD)/brig
	@echo "building $(BUILD)/brig"
	@ninja -C $(BUILD) src/cmd/brig >$(BUILD)/make.log 2>&1 || { cat $(BUILD)/make.log; exit 1; }
	@ln -sf src/cmd/brig $(BUILD)/brig
	@echo "built $(BUILD)/brig"

$(BUILD)/build.ninja:
	@tools/install-deps.sh build
	@meson setup $(BUILD) $(MESON_FLAGS) >$(BUILD).log 2>&1 && rm $(BUILD).log || { cat $(BUILD).log; rm -f $(BUILD).log; exit 1; }

deps: ## install the packages that building, testing and measuring need
	@tools/install-deps.sh all

demo: all ## score three patches of a small library, from an empty machine
	@tools/install-deps.sh build
	@BRIG=$(BUILD)/brig tools/demo.sh

test: deps all check ## every test; the last line says how many passed
	@tools/run-tests.py --build $(BUILD)

test-unit: deps all ## cmocka programs and replayed fuzz corpora
	@tools/run-tests.py --build $(BUILD) unit

test-e2e: deps all ## pytest against the real daemon
	@tools/run-tests.py --build $(BUILD) e2e

test-real: deps all ## tasks made from releases of well-known packages
	@tools/run-tests.py --build $(BUILD) real

test-vm: all ## kernel 6.1 and pure cgroup v2, under emulation
	@tools/install-deps.sh vm
	@BRIG=$(BUILD)/brig tests/vm/run.sh

bench: deps all ## measure, and write docs/benchmarks.md
	@bench/run.py --build $(BUILD)

daytona-snapshot-create: all ## make the RLM runtime's snapshot, unless it is there (FROM=IMAGE: of that, not of host)
	@BRIG=$(BUILD)/brig tools/with-daemon.sh snapshot create --profile session $(if $(FROM),--from $(FROM))

daytona-snapshot-check: all ## see whether it is what its manifest says
	@BRIG=$(BUILD)/brig tools/with-daemon.sh snapshot check --profile session

daytona-child-snapshot-create: all ## the same of the snapshot for children
	@BRIG=$(BUILD)/brig tools/with-daemon.sh snapshot create --profile semantic-child $(if $(FROM),--from $(FROM))

daytona-child-snapshot-check: all ## the same of the snapshot for children
	@BRIG=$(BUILD)/brig tools/with-daemon.sh snapshot check --profile semantic-child

check: ## rules of the source that no compiler checks
	@tools/check-includes.py

clean: ## remove $(BUILD)
	@rm -rf $(BUILD)

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' Makefile | sed 's/:.*## /\t/'
