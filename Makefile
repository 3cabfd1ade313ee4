# Fairlead's verbs. `make help` lists them.

GOFLAGS_BUILD = -trimpath -ldflags "-s -w"
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

.DEFAULT_GOAL := help
.PHONY: help build demo demo-needs clean

help: ## list these verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/fairlead, bin/fairlead-cni and bin/cni/, a link for each plugin
	@mkdir -p bin/cni
	CGO_ENABLED=0 go build $(GOFLAGS_BUILD) -o bin/ ./cmd/fairlead ./cmd/fairlead-cni
	@find bin/cni -type l -delete
	@bin/fairlead-cni --list | while read -r name; do ln -s ../fairlead-cni "bin/cni/$$name"; done

demo: build demo-needs ## show containers on networks, in a host of their own: safe on any machine (needs root)
	@$(SUDO) bin/fairlead demo

# What the demo runs besides our own programs, from Debian's packages.
demo-needs:
	@PATH="$$PATH:/usr/sbin:/sbin"; missing=""; \
	command -v ip >/dev/null || missing="$$missing iproute2"; \
	command -v nft >/dev/null || missing="$$missing nftables"; \
	command -v ping >/dev/null || missing="$$missing iputils-ping"; \
	[ -x /usr/lib/cni/bandwidth ] || missing="$$missing containernetworking-plugins"; \
	[ -n "$$missing" ] || exit 0; \
	command -v apt-get >/dev/null || { echo "The demo needs (names of Debian's packages):$$missing"; exit 1; }; \
	echo "Installing from Debian:$$missing"; \
	log=$$($(SUDO) apt-get -qq update 2>&1 && $(SUDO) env DEBIAN_FRONTEND=noninteractive \
		apt-get -qq install -y --no-install-recommends $$missing 2>&1) || { echo "$$log"; exit 1; }

clean: ## remove what build made
	rm -rf bin
