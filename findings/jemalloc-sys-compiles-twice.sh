#!/bin/bash
# Guess: the crate tikv-jemalloc-sys compiles each source file of jemalloc once, in the form that it links.
# Seen:  with 0.7.1 (jemalloc 5.3.1) its build script calls `make install_lib_static`, which makes two archives of all files, one
#        of position-independent code and one for fixed addresses. cargo is told to link the first alone, so half of what the C
#        compiler makes is linked by nothing.
# Needs cargo, cc, make and ar.
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
lib=$(dirname "$(find "$work/target" -path '*/out/lib/libjemalloc_pic.a')")
linked=$(sed -n 's/^cargo:rustc-link-lib=static=//p' "$work"/target/debug/build/tikv-jemalloc-sys-*/output)
pic=$(ar t "$lib/libjemalloc_pic.a" | wc -l); fixed=$(ar t "$lib/libjemalloc.a" | wc -l)
echo "version   $(sed -n '/name = "tikv-jemalloc-sys"/{n;s/version = //p}' "$work/Cargo.lock")"
echo "compiled  $pic files position-independent, $fixed for fixed addresses"
echo "linked    $linked"
[ "$pic" -gt 40 ] && [ "$pic" = "$fixed" ] && [ "$linked" = jemalloc_pic ] || { echo "changed: this finding is over"; exit 1; }
