#!/bin/bash
# Guess: the crate tikv-jemalloc-sys compiles each source file of jemalloc once, in the form that it links.
# Seen:  with 0.7.1 (jemalloc 5.3.1) its build script calls `make install_lib_static`, which makes two archives of all files, one
#        for position-independent code and one for fixed addresses. cargo is told of the first alone, so half of the compiler's
#        time, some 50 seconds of a core with the crate's own flags, makes objects that nothing links.
# Needs cargo, cc and make.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
mkdir "$work/src" && : >"$work/src/lib.rs"
cat >"$work/Cargo.toml" <<'TOML'
[package]
name = "probe"
version = "0.0.0"
edition = "2021"
[dependencies]
tikv-jemalloc-sys = "=0.7.1"
[workspace]
TOML
# Only what is compiled counts here, not how well.
(cd "$work" && CFLAGS=-O0 CARGO_TARGET_DIR="$work/target" cargo build --quiet)
out=$(dirname "$(find "$work/target" -name jemalloc.pic.o)")
linked=$(cat "$work"/target/debug/build/tikv-jemalloc-sys-*/output | grep -o '^cargo:rustc-link-lib=static=.*' | cut -d= -f3)
pic=$(find "$out" -maxdepth 1 -name '*.pic.o' | wc -l); all=$(find "$out" -maxdepth 1 -name '*.o' | wc -l); fixed=$((all - pic))
echo "version   $(sed -n '/name = "tikv-jemalloc-sys"/{n;s/version = //p}' "$work/Cargo.lock")"
echo "compiled  $pic files position-independent, $fixed for fixed addresses"
echo "linked    $linked"
[ "$pic" -gt 40 ] && [ "$pic" = "$fixed" ] && [ "$linked" = jemalloc_pic ] || { echo "changed: this finding is over"; exit 1; }
