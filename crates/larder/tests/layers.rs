//! Dependencies point one way, down: the table of layers, enforced.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::process::Command;

/// Which crates of this workspace each may use. A crate that is not in the table fails the test: put it there
/// deliberately, or not at all.
const ALLOWED: &[(&str, &[&str])] = &[
    ("larder-base", &[]),
    ("larder-pool", &["larder-base"]),
    ("larder-fs", &["larder-base"]),
    ("larder-folder", &["larder-base", "larder-fs"]),
    ("larder-volume", &["larder-base", "larder-fs"]),
    ("larder-crypt", &["larder-base"]),
    ("larder-store", &["larder-base"]),
    ("larder-opens", &["larder-base", "larder-fs"]),
    ("larder-files", &["larder-base", "larder-fs", "larder-folder", "larder-opens", "larder-volume"]),
    ("larder-import", &["larder-base", "larder-fs", "larder-files"]),
    ("larder-people", &["larder-base", "larder-fs"]),
    ("larder-doors", &["larder-base", "larder-fs", "larder-files", "larder-people"]),
    ("larder-nfs", &["larder-base", "larder-fs", "larder-opens", "larder-files", "larder-people", "larder-doors"]),
    ("larder-smb-wire", &[]),
    (
        "larder-smb",
        &[
            "larder-base",
            "larder-fs",
            "larder-opens",
            "larder-files",
            "larder-people",
            "larder-doors",
            "larder-smb-wire",
        ],
    ),
    ("larder-sftp", &["larder-base", "larder-fs", "larder-files", "larder-people", "larder-doors"]),
    ("larder-dav", &["larder-base", "larder-fs", "larder-files", "larder-people", "larder-doors"]),
    ("larder-fuse", &["larder-base", "larder-fs", "larder-files", "larder-doors"]),
    ("larder-facts", &["larder-base"]),
    ("larder-watch", &["larder-base", "larder-facts"]),
    ("larder-discovery", &[]),
    ("larder-load", &["larder-base", "larder-facts", "larder-smb-wire"]),
    ("larder-measure", &["larder-base", "larder-facts", "larder-load"]),
    ("larder-api", &["larder-base"]),
    (
        "larder-web",
        &["larder-base", "larder-api", "larder-fs", "larder-files", "larder-people", "larder-doors", "larder-dav"],
    ),
    (
        "larder-keep",
        &[
            "larder-base",
            "larder-fs",
            "larder-crypt",
            "larder-pool",
            "larder-volume",
            "larder-files",
            "larder-import",
            "larder-store",
            "larder-api",
        ],
    ),
    ("larder-sim", &["larder-base", "larder-crypt", "larder-fs", "larder-pool", "larder-store", "larder-volume"]),
    (
        "larder-config",
        &[
            "larder-api",
            "larder-base",
            "larder-discovery",
            "larder-doors",
            "larder-facts",
            "larder-files",
            "larder-fuse",
            "larder-keep",
            "larder-people",
            "larder-sftp",
            "larder-store",
            "larder-volume",
            "larder-watch",
            "larder-web",
        ],
    ),
    (
        "larder-daemon",
        &[
            "larder-base",
            "larder-fs",
            "larder-crypt",
            "larder-pool",
            "larder-volume",
            "larder-files",
            "larder-people",
            "larder-keep",
            "larder-import",
            "larder-discovery",
            "larder-doors",
            "larder-nfs",
            "larder-smb",
            "larder-sftp",
            "larder-dav",
            "larder-fuse",
            "larder-api",
            "larder-config",
            "larder-web",
            "larder-facts",
            "larder-load",
            "larder-measure",
            "larder-store",
            "larder-watch",
        ],
    ),
    (
        "larder",
        &[
            "larder-base",
            "larder-fs",
            "larder-crypt",
            "larder-pool",
            "larder-volume",
            "larder-files",
            "larder-import",
            "larder-people",
            "larder-keep",
            "larder-doors",
            "larder-nfs",
            "larder-smb",
            "larder-sftp",
            "larder-dav",
            "larder-fuse",
            "larder-facts",
            "larder-discovery",
            "larder-load",
            "larder-measure",
            "larder-store",
            "larder-api",
            "larder-web",
            "larder-watch",
            "larder-config",
            "larder-daemon",
        ],
    ),
];

/// Only the metadata engine knows SlateDB, and only servers know their protocols' libraries.
const OUTSIDE: &[(&str, &[&str])] = &[
    ("slatedb", &["larder-volume"]),
    ("fuser", &["larder-fuse"]),
    ("axum", &["larder-daemon"]),
    ("askama", &["larder-web"]),
    ("lettre", &["larder-watch"]),
];

#[test]
fn dependencies_point_down() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline", "--manifest-path", manifest])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let Some((_, allowed)) = ALLOWED.iter().find(|(crate_name, _)| *crate_name == name) else {
            wrong.push(format!("{name} is not in the table of layers"));
            continue;
        };
        for dependency in package["dependencies"].as_array().unwrap() {
            let used = dependency["name"].as_str().unwrap();
            // Tests may look further up: what ships may not.
            if dependency["kind"].as_str() == Some("dev") {
                continue;
            }
            if used.starts_with("larder") && !allowed.contains(&used) {
                wrong.push(format!("{name} must not use {used}"));
            }
            if OUTSIDE.iter().any(|(library, users)| *library == used && !users.contains(&name)) {
                wrong.push(format!("{name} must not use {used}: that is hidden in another layer"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Packages with their features, as cargo builds them for `selection`, from its `edges`.
fn built(selection: &[&str], edges: &str) -> BTreeSet<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--locked", "--offline", "--prefix", "none", "--format", "{p} [{f}]", "--edges", edges])
        .args(selection)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).filter(|line| !line.is_empty()).collect()
}

/// A feature that a test alone asks for makes another library of it: everything above is compiled twice, for the program
/// and for the tests. Cargo.toml names all features, whoever needs them.
#[test]
fn the_tests_build_on_the_libraries_of_the_program() {
    let program = built(&["-p", "larder", "-p", "larder-store"], "normal,build");
    let tests = built(&["--workspace"], "normal,build,dev");
    let twice: Vec<&String> = program.difference(&tests).collect();
    assert!(twice.is_empty(), "with fewer features in the program than in the tests: {twice:?}");
    assert!(program.len() > 300 && tests.len() > program.len(), "{} and {} packages", program.len(), tests.len());
}
