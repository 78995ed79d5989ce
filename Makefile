# make up     a NAS on three folders in ./larder-data, in the foreground; Ctrl-C stops it
# make test   everything that is tested; installs what the tests need
# make lint   formatting, clippy, layering, licences (where cargo-deny is installed)
# make mutants   plants answers that come too early in a copy of the source, and prints how soon the simulator finds each
# make sim    simulated power cuts and broken disks, from fresh seeds, for SECONDS=600
# make bench  larder beside nfs-ganesha and smbd on this machine

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# As root we install what is missing; otherwise through sudo, if it is there.
SUDO := $(shell command -v sudo)
ELEVATE := $(shell [ "$$(id -u)" = 0 ] || command -v sudo)
# One profile for everything: building the dependencies is what takes the time.
CARGO := CARGO_INCREMENTAL=0 cargo
LARDER := target/release/larder

BUILD_PACKAGES := gcc libc6-dev make
UP_PACKAGES := $(BUILD_PACKAGES) fuse3
# What the load generators of `larder bench share` are tested against.
SERVER_PACKAGES := nfs-ganesha nfs-ganesha-vfs openssh-server openssl rclone rpcbind samba
TEST_PACKAGES := $(UP_PACKAGES) $(SERVER_PACKAGES) acl attr chromium chromium-driver e2fsprogs fdisk fio git iperf3 iproute2 \
	libnfs-dev libnfs-utils nut-server procps psmisc python3-pytest python3-pytest-timeout python3-selenium rsync samba-testsuite \
	smbclient util-linux xfsprogs
BENCH_PACKAGES := $(TEST_PACKAGES)
KERNEL_PACKAGES := busybox-static cifs-utils cpio git kmod nfs-common qemu-system-x86 rsync
# Arguments for `larder up`, as in: make up ARGS="--smb :445"
ARGS ?=

# Installs those of $(1) that are missing; needs no network when none is. With $(2) = optional it only says what is.
define install
	@missing=(); for package in $(1); do \
	  dpkg-query -W -f '$${Status}' "$$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$$package"); done; \
	if [ $${#missing[@]} -gt 0 ]; then \
	  if command -v apt-get >/dev/null && { [ "$$(id -u)" = 0 ] || [ -n "$(SUDO)" ]; }; then \
	    echo "installing $${missing[*]}"; \
	    { $(ELEVATE) apt-get update -q && \
	      $(ELEVATE) env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$${missing[@]}"; } \
	    || [ "$(2)" = optional ]; \
	  else \
	    echo "missing and not installed (that takes apt-get and root): $${missing[*]}" >&2; [ "$(2)" = optional ]; \
	  fi; \
	fi
endef

# How long `make sim` runs; `make test` takes SIM_SECONDS from the environment, 180 by default.
SECONDS ?= 600

.PHONY: help up build test unit e2e posix sim mutants kernel-clients lint bench clean check-cargo packages-up packages-test packages-bench

help:
	@sed -n 's/^# //p' Makefile | head -6

check-cargo:
	@command -v cargo >/dev/null || { echo "there is no cargo: install a Rust toolchain (1.95 or newer) from https://rustup.rs" >&2; exit 1; }

# A compiler that did not come as a package does as well; fuse3 is for mounting as an ordinary user.
packages-up:
	$(if $(shell command -v cc),,$(call install,$(BUILD_PACKAGES),))
	$(call install,fuse3,optional)

packages-test:
	$(call install,$(TEST_PACKAGES),)

packages-bench:
	$(call install,$(BENCH_PACKAGES),)

build: check-cargo
	$(CARGO) build --release --locked -p larder

# exec: Ctrl-C and SIGTERM reach larder itself.
up: packages-up build
	@exec $(LARDER) up $(ARGS)

test: packages-test check-cargo
	./.ci/suites

unit: check-cargo
	$(CARGO) test --release --locked --workspace

e2e: packages-test build
	/usr/bin/python3 -m pytest tests/e2e

posix: packages-test build
	/usr/bin/python3 -m pytest tests/posix

sim: check-cargo
	$(CARGO) build --release --locked --workspace --bin larder-sim
	target/release/larder-sim run --seconds $(SECONDS) --failures 5 $(ARGS)

mutants: check-cargo
	tests/mutants/run.py $(ARGS)

# Kernels as NFS and SMB clients, in an emulator.
kernel-clients: build
	$(call install,$(KERNEL_PACKAGES),)
	tests/kernel/run $(ARGS)

lint: check-cargo
	cargo fmt --all -- --check
	$(CARGO) clippy --release --locked --workspace --all-targets -- -D warnings
	$(CARGO) test --release --locked --workspace --test layers
	@if command -v cargo-deny >/dev/null; then cargo deny --offline check licenses bans sources; \
	else echo "NOT RUN: cargo-deny is not installed (licences were not checked)"; fi

bench: packages-bench build
	/usr/bin/python3 bench/compare.py $(ARGS)

clean:
	cargo clean
