# make up     a NAS on three folders in ./larder-data, in the foreground; Ctrl-C stops it
# make install  the program to PREFIX/bin: sudo make install, or make install PREFIX=$HOME/.local
# make deb    a Debian package of it: target/debian/larder_VERSION_ARCH.deb; make deb ARCH=arm64 for a Raspberry Pi
# make test-arm64  the program for arm64 under qemu-user, and its checksums, parity and ciphers
# make test   everything that is tested; installs what the tests need
# make lint   formatting, clippy, layering, licences
# make top-trials  each thing that limits a transfer, ten times over each door, and how often larder top names it
# make mutants   plants answers that come too early in a copy of the source, and prints how soon the simulator finds each
# make test-deb  the package in a clean Debian: installed, run by systemd, upgraded, removed
# make test-container  the container image: built, run without rights, used, run again
# make idle   for an hour: does a box that nobody uses leave its disks alone, and sleep?
# make sim    simulated power cuts and broken disks, from fresh seeds, for SECONDS=600
# make fuzz-api  what the schema of the API allows, asked over HTTPS: no answer is a 500
# make soak   what takes hours: 20,000 simulated schedules, long runs of kills, large directories, steady load
# make false-alarms  what the guard of a share says of backups, imports and ransomware: the table of docs/alerts.md
# make bucket  a hundred owners of volumes in a bucket that end under load, and their standbys; buckets of real S3 servers
# make servers  builds those: versitygw, MinIO and Garage
# make peers  builds what bench/bucket.py compares with and Debian has not: JuiceFS
# make bench  larder beside nfs-ganesha and smbd on this machine

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# As root we install what is missing; otherwise through sudo, if it is there.
SUDO := $(shell command -v sudo)
ELEVATE := $(shell [ "$$(id -u)" = 0 ] || command -v sudo)
# One profile for everything: building the dependencies is what takes the time.
CARGO := CARGO_INCREMENTAL=0 cargo
# Where cargo builds, as everywhere.
export CARGO_TARGET_DIR ?= target
BUILT := $(CARGO_TARGET_DIR)/release
LARDER := $(BUILT)/larder

# The processor that `make deb` is for: amd64 or arm64.
ARCH ?= $(shell dpkg --print-architecture 2>/dev/null)
CROSS := $(filter arm64,$(filter-out $(shell dpkg --print-architecture 2>/dev/null),$(ARCH)))
ARM64 := aarch64-unknown-linux-gnu
ARM64_LARDER := $(CARGO_TARGET_DIR)/$(ARM64)/release/larder
ARM64_PACKAGES := gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static smbclient
ifeq ($(shell uname -m),aarch64)
# A package that is built here may be taken to a machine with larger pages.
export JEMALLOC_SYS_WITH_LG_PAGE := 16
endif
ARM64_ENV := JEMALLOC_SYS_WITH_LG_PAGE=16 CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
  CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -L /usr/aarch64-linux-gnu" \
  CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc

BUILD_PACKAGES := gcc libc6-dev make
UP_PACKAGES := $(BUILD_PACKAGES) fuse3
# What the load generators of `larder bench share` are tested against.
SERVER_PACKAGES := nfs-ganesha nfs-ganesha-vfs openssh-client openssh-server openssl rclone rpcbind samba
TEST_PACKAGES := $(UP_PACKAGES) $(SERVER_PACKAGES) acl attr borgbackup btrfs-progs cadaver chromium chromium-driver curl davfs2 dbus-daemon e2fsprogs faketime fdisk fio git gvfs-backends \
	iperf3 iproute2 libglib2.0-bin libnfs-dev libnfs-utils litmus $(if $(shell command -v npm),,npm) nut-server procps psmisc python3-impacket python3-pytest python3-pytest-timeout python3-pytest-xdist python3-selenium restic rsync samba-testsuite samba-vfs-modules sshfs \
	smbclient strace systemd util-linux xfsprogs
BENCH_PACKAGES := $(TEST_PACKAGES) apache2 bindfs redis-server s3fs
DEB_PACKAGES := binutils curl debootstrap dpkg systemd-container
CONTAINER_PACKAGES := buildah crun debootstrap netavark podman runc smbclient
IDLE_PACKAGES := e2fsprogs mount python3-impacket python3-selenium python3-pytest util-linux
KERNEL_PACKAGES := busybox-static cifs-utils cpio git kmod nfs-common qemu-system-x86 rsync
# Arguments for `larder up`, as in: make up ARGS="--smb :445"
ARGS ?=
PREFIX ?= /usr/local

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

# Builds program $(1) from the Go module $(2), and notes its version.
define go_install
	@command -v go >/dev/null || { echo "there is no go: install Go 1.26 or newer to build $(1)" >&2; exit 1; }
	GOBIN=$(S3_SERVERS) nice go install $(2)
	rm -f $(S3_SERVERS)/.$(1)-*
	touch $@
endef

# S3 servers that volumes are tried on, from the registries of Go and Rust: programs beside larder, and nothing of them in it.
S3_SERVERS ?= $(HOME)/.cache/larder/servers
VERSITYGW_VERSION := v1.8.0
# MinIO tags no versions that Go knows.
MINIO_VERSION := v0.0.0-20260212201848-7aac2a2c5b7c
GARAGE_VERSION := 2.5.0
JUICEFS_VERSION := v1.2.0
# A library of it that the Go of today compiles.
JUICEFS_GODELTAPROF := v0.1.9
JUICEFS_WITHOUT := nogateway,nowebdav,nocos,nobos,nohdfs,noibmcos,noobs,nooss,noqingstor,noscs,nosftp,noswift,noupyun,noazure,nogs,noufile,nob2,nonfs,nodragonfly,nosqlite,nomysql,nopg,notikv,nobadger,noetcd

# How long `make sim` runs; `make test` takes SIM_SECONDS from the environment, 60 by default.
SECONDS ?= 600
# How long it runs machines that fight for a bucket; `make test` takes SIM_BUCKET_SECONDS, 30 by default.
BUCKET_SECONDS ?= 60

.PHONY: help up build build-bucket bucket servers peers install deb test-deb test-container test-arm64 arm64 idle test unit e2e fuzz-api posix sim soak top-trials false-alarms mutants kernel-clients lint bench clean check-cargo packages-up packages-test packages-bench

help:
	@sed -n 's/^# //p' Makefile | head -19

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
	@[ -e $(LARDER) ] || echo "the first build compiles everything: about 29 minutes of one core, so 15 minutes on 2 and 8 on 4; later ones take seconds"
	$(if $(wildcard $(LARDER)),,packaging/first-build env )$(CARGO) build --release --locked -p larder

# Whoever built it need not be root: what is built already is not built again.
install:
	@[ -e $(LARDER) ] || { echo "nothing is built yet: make build, then: make install" >&2; exit 1; }
	install -D -m 755 $(LARDER) "$(DESTDIR)$(PREFIX)/bin/larder"
	@echo "installed $(PREFIX)/bin/larder; next: larder up"

# Manual pages and completions come from the program. For another processor than this machine's: make deb ARCH=arm64
deb: $(if $(CROSS),arm64,build)
	@packaging/debian/build $(if $(CROSS),--arch arm64 --program $(ARM64_LARDER) --generator packaging/debian/emulated)

# The program for arm64: a cross compiler of Debian's, and Rust's standard library for it. Pages of 64 KiB: the allocator takes no
# larger ones than it was built for, and a Raspberry Pi 5 has 16 KiB.
arm64: check-cargo
	$(call install,$(ARM64_PACKAGES),)
	rustup target add $(ARM64)
	$(ARM64_ENV) $(CARGO) build --release --locked -p larder --target $(ARM64)

# On this machine, by qemu-user: the program, and the unit tests of checksums, parity and ciphers.
test-arm64: arm64
	tests/arm64/run $(ARM64_LARDER)
	$(ARM64_ENV) $(CARGO) test --release --locked --target $(ARM64) -p larder-base --lib checksum
	$(ARM64_ENV) $(CARGO) test --release --locked --target $(ARM64) -p larder-pool --lib parity
	$(ARM64_ENV) $(CARGO) test --release --locked --target $(ARM64) -p larder-crypt --lib

# A clean Debian by debootstrap, and systemd in it; the package is installed nowhere else.
test-deb: deb
	$(call install,$(DEB_PACKAGES),)
	$(ELEVATE) tests/deb/run "$$(ls -t $(CARGO_TARGET_DIR)/debian/larder_*_$$(dpkg --print-architecture).deb | head -n 1)"

# The same with podman: on a base made by debootstrap, since no registry is asked.
test-container: build
	$(call install,$(CONTAINER_PACKAGES),)
	$(ELEVATE) tests/container/run

# Loop devices and mounts are made by root.
IDLE_SECONDS ?= 3600
idle: build
	$(call install,$(IDLE_PACKAGES),)
	$(ELEVATE) env LARDER=$(abspath $(LARDER)) tests/idle/run --seconds $(IDLE_SECONDS)

# exec: Ctrl-C and SIGTERM reach larder itself.
up: packages-up build
	@exec $(LARDER) up --trial $(ARGS)

test: packages-test check-cargo
	./.ci/suites

unit: check-cargo
	.ci/unit.py $(ARGS)

e2e: packages-test build build-bucket
	/usr/bin/python3 -m pytest tests/e2e

# The server that keeps the buckets of the tests.
build-bucket: check-cargo
	$(CARGO) build --release --locked -p larder -p larder-store --bin larder-test-bucket

# Owners that end or stop under load, again and again; then the same volumes in buckets of real servers.
bucket: packages-test build build-bucket servers
	LARDER_FAILOVERS=100 LARDER_HANDOVER_CUTS=100 LARDER_S3_WANTED="versitygw minio garage" LARDER_S3_SERVERS=$(S3_SERVERS) \
	  /usr/bin/python3 -m pytest tests/e2e/test_bucket.py tests/e2e/test_bucket_seats.py tests/e2e/test_bucket_servers.py --timeout 3600

# One after another: each is 3 to 15 minutes of both cores.
servers: | check-cargo
	@$(MAKE) $(S3_SERVERS)/.versitygw-$(VERSITYGW_VERSION)
	@$(MAKE) $(S3_SERVERS)/.minio-$(MINIO_VERSION)
	@$(MAKE) $(S3_SERVERS)/.garage-$(GARAGE_VERSION)

$(S3_SERVERS)/.versitygw-%:
	$(call go_install,versitygw,github.com/versity/versitygw/cmd/versitygw@$*)

$(S3_SERVERS)/.minio-%:
	$(call go_install,minio,github.com/minio/minio@$*)

$(S3_SERVERS)/.garage-%:
	@mkdir -p $(S3_SERVERS)
	CARGO_TARGET_DIR=$(S3_SERVERS)/garage-target nice env $(CARGO) install garage --version $* --locked --force \
	  --no-default-features --features bundled-libs,lmdb --root $(S3_SERVERS)/garage-root
	mv $(S3_SERVERS)/garage-root/bin/garage $(S3_SERVERS)/garage
	rm -rf $(S3_SERVERS)/garage-target $(S3_SERVERS)/garage-root $(S3_SERVERS)/.garage-*
	touch $@

# 4 minutes of both cores.
peers: packages-bench
	@$(MAKE) $(S3_SERVERS)/.juicefs-$(JUICEFS_VERSION)

# Its module replaces some that it needs, which `go install` refuses: it is built in a copy of its source.
$(S3_SERVERS)/.juicefs-%:
	@command -v go >/dev/null || { echo "there is no go: install Go 1.26 or newer to build juicefs" >&2; exit 1; }
	source=$$(mktemp -d); trap 'rm -rf "$$source"' EXIT; cd "$$source"; \
	  module=$$(go mod download -json github.com/juicedata/juicefs@$* | sed -n 's/.*"Dir": "\(.*\)".*/\1/p'); \
	  [ -d "$$module" ]; cp -r "$$module/." .; \
	  chmod -R u+w .; \
	  go get github.com/grafana/pyroscope-go/godeltaprof@$(JUICEFS_GODELTAPROF); \
	  nice go build -tags $(JUICEFS_WITHOUT) -ldflags="-s -w" -o $(S3_SERVERS)/juicefs .
	rm -f $(S3_SERVERS)/.juicefs-*
	touch $@

# Half a minute; schemathesis comes from PyPI at the first use.
fuzz-api: packages-test build
	tests/api/run.py $(ARGS)

posix: packages-test build
	/usr/bin/python3 -m pytest tests/posix

sim: check-cargo
	$(CARGO) build --release --locked -p larder -p larder-sim --bin larder-sim
	$(BUILT)/larder-sim run --seconds $(SECONDS) --failures 5 $(ARGS)
	$(BUILT)/larder-sim run --kind bucket --seconds $(BUCKET_SECONDS) --failures 5

soak: packages-test build
	$(CARGO) build --release --locked -p larder -p larder-sim --bin larder-sim
	$(BUILT)/larder-sim run --seed 3013355886 --schedules 20000 --seconds 7200
	$(BUILT)/larder-sim run --seconds 1800
	$(BUILT)/larder-sim run --kind bucket --seed 1 --schedules 20000 --seconds 3600
	$(BUILT)/larder-sim run --kind bucket --seconds 900
	LARDER_YEAR_HOURS=8760 $(CARGO) test --release --locked -p larder-volume --lib tests::year
	LARDER_KILLS=300 LARDER_ENTRIES=1000000 LARDER_PASSES=10 LARDER_SOAK_S=600 /usr/bin/python3 -m pytest tests/e2e/test_crash.py tests/e2e/test_limits.py --timeout 7200

false-alarms: packages-test build
	LARDER=$(LARDER) /usr/bin/python3 tests/e2e/guard_loads.py

top-trials: packages-test build
	LARDER_TOP_TRIALS=10 /usr/bin/python3 -m pytest tests/e2e/test_top.py -rA --timeout 3600

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
	cargo metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml >/dev/null
	.ci/circles.py
	.ci/rules.py
	.ci/wall_clock.py
	tests/mutants/run.py --places
	.ci/budgets.py
	.ci/advisories.py
	@if command -v cargo-deny >/dev/null; then cargo deny --offline check licenses bans sources; else .ci/dependencies.py; fi

bench: packages-bench build
	/usr/bin/python3 bench/compare.py $(ARGS)

clean:
	cargo clean
