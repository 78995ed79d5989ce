#!/bin/bash
# Guess: libfaketime moves the wall clock of a whole program, so a test under it sees one time everywhere.
# Seen:  with libfaketime 0.9.10 a Rust program has two wall clocks: std::time::SystemTime, which asks libc, is a year ahead;
#        rustix 1.1, whose default backend on Linux asks the kernel's vDSO without libc, is not. A hook for the clock in the
#        program itself is what moves all of it.
# Builds a program of twelve lines in a temporary folder. Needs cargo; installs faketime where it is missing (root).
set -euo pipefail
dpkg -s faketime >/dev/null 2>&1 || { apt-get update -q >/dev/null; DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends faketime >/dev/null 2>&1; }
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
mkdir "$work/src"
cat >"$work/Cargo.toml" <<'TOML'
[package]
name = "clocks"
version = "0.0.0"
edition = "2021"
[dependencies]
rustix = { version = "=1.1.2", default-features = false, features = ["std", "time"] }
[workspace]
TOML
cat >"$work/src/main.rs" <<'RS'
use std::time::{SystemTime, UNIX_EPOCH};
fn main() {
    let by_libc = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    let by_kernel = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec;
    println!("{}", (by_libc - by_kernel) / 86_400);
}
RS
unset CARGO_TARGET_DIR
(cd "$work" && cargo build -q)
plain=$("$work/target/debug/clocks")
moved=$(faketime -f +365d "$work/target/debug/clocks")
echo "version   libfaketime $(dpkg-query -W -f '${Version}' faketime), rustix 1.1.2"
echo "plain     the clocks are $plain days apart"
echo "+365d     the clocks are $moved days apart"
[ "$plain" = 0 ] && [ "$moved" -ge 364 ] || { echo "changed: this finding is over"; exit 1; }
