# Thin front of meson: the names a newcomer tries first.
BUILD ?= build
MESON_FLAGS ?=

.PHONY: all deps
all: $(BUILD)/build.ninja
	@ninja -C $(BUILD) src/cmd/brig
	@ln -sf src/cmd/brig $(BUILD)/brig

$(BUILD)/build.ninja:
	@meson setup $(BUILD) $(MESON_FLAGS)

deps:
	@tools/install-deps.sh
