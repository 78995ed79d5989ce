//! An option of the linker that makes the program 2 MiB smaller: addresses that the loader has to correct are packed.

use std::process::Command;

/// The first C library whose loader reads packed addresses.
const GLIBC_MIN: (u32, u32) = (2, 36);

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let of = |name: &str| std::env::var(name).unwrap_or_default();
    // Of another machine nothing is known; linkers that rustc does not bring along learnt it later on other processors.
    let is_native = of("HOST") == of("TARGET") && of("TARGET") == "x86_64-unknown-linux-gnu";
    if is_native && glibc().is_some_and(|version| version >= GLIBC_MIN) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// `glibc 2.36`, as getconf(1) says it.
fn glibc() -> Option<(u32, u32)> {
    let said = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(said.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
