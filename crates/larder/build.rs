//! Options of the linker that make the program smaller. Each is used where it is known to work.

use std::io::Write;
use std::process::{Command, Stdio};

/// The first C library whose loader reads packed addresses.
const GLIBC_MIN: (u32, u32) = (2, 36);

/// Functions with the same instructions are kept once. Rust promises no distinct addresses for functions, and nothing
/// in the program compares them.
const FOLD: &str = "-Wl,--icf=all";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Addresses that the loader has to correct are packed: 2 MiB. Of another machine nothing is known; linkers that rustc
    // does not bring along learnt it later on other processors.
    let is_native = variable("HOST") == variable("TARGET") && variable("TARGET") == "x86_64-unknown-linux-gnu";
    if is_native && glibc().is_some_and(|version| version >= GLIBC_MIN) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    // A profiler needs each function's own name.
    if variable("PROFILE") == "release" && variable("DEBUG") == "false" && links(FOLD) == Some(true) {
        println!("cargo::rustc-link-arg-bins={FOLD}");
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// `glibc 2.36`, as getconf(1) says it.
fn glibc() -> Option<(u32, u32)> {
    let said = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(said.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Links an empty program with `option`: lld and gold fold, the linker of binutils does not know the word.
fn links(option: &str) -> Option<bool> {
    let mut rustc = Command::new(std::env::var_os("RUSTC")?);
    rustc.args(["--crate-name=probe", "--crate-type=bin"]).arg(format!("--target={}", variable("TARGET")));
    rustc.arg("--out-dir").arg(std::env::var_os("OUT_DIR")?);
    rustc.args(variable("CARGO_ENCODED_RUSTFLAGS").split('\x1f').filter(|flag| !flag.is_empty()));
    if let Ok(linker) = std::env::var("RUSTC_LINKER") {
        rustc.arg(format!("-Clinker={linker}"));
    }
    rustc.args([&format!("-Clink-arg={option}"), "-"]);
    let mut child = rustc.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
    child.stdin.take()?.write_all(b"fn main() {}\n").ok()?;
    Some(child.wait().ok()?.success())
}
