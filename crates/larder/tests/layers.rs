//! Dependencies point one way, down: the table of layers, enforced.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

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
    ("larder-opens", &["larder-fs"]),
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
            "larder-doors",
            "larder-files",
            "larder-fs",
            "larder-opens",
            "larder-people",
            "larder-smb-wire",
        ],
    ),
    ("larder-sftp", &["larder-base", "larder-fs", "larder-files", "larder-people", "larder-doors"]),
    ("larder-dav", &["larder-base", "larder-fs", "larder-files", "larder-people", "larder-doors"]),
    ("larder-fuse", &["larder-base", "larder-fs", "larder-files", "larder-doors"]),
    ("larder-facts", &["larder-base"]),
    ("larder-alerts", &["larder-base", "larder-facts"]),
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
            "larder-alerts",
            "larder-api",
            "larder-base",
            "larder-discovery",
            "larder-doors",
            "larder-facts",
            "larder-fuse",
            "larder-keep",
            "larder-people",
            "larder-sftp",
            "larder-store",
            "larder-volume",
            "larder-web",
        ],
    ),
    (
        "larder-document",
        &[
            "larder-alerts",
            "larder-api",
            "larder-base",
            "larder-config",
            "larder-keep",
            "larder-people",
            "larder-pool",
            "larder-smb-wire",
        ],
    ),
    (
        "larder-servers",
        &[
            "larder-api",
            "larder-base",
            "larder-config",
            "larder-crypt",
            "larder-dav",
            "larder-document",
            "larder-doors",
            "larder-files",
            "larder-fuse",
            "larder-keep",
            "larder-nfs",
            "larder-people",
            "larder-sftp",
            "larder-smb",
            "larder-web",
        ],
    ),
    (
        "larder-copies",
        &[
            "larder-api",
            "larder-base",
            "larder-config",
            "larder-crypt",
            "larder-document",
            "larder-doors",
            "larder-fs",
            "larder-keep",
            "larder-people",
            "larder-pool",
            "larder-servers",
            "larder-store",
            "larder-volume",
            "larder-web",
        ],
    ),
    (
        "larder-watch",
        &[
            "larder-alerts",
            "larder-api",
            "larder-base",
            "larder-config",
            "larder-document",
            "larder-doors",
            "larder-facts",
            "larder-files",
            "larder-fs",
            "larder-keep",
            "larder-pool",
            "larder-servers",
            "larder-volume",
        ],
    ),
    (
        "larder-daemon",
        &[
            "larder-alerts",
            "larder-api",
            "larder-base",
            "larder-config",
            "larder-copies",
            "larder-crypt",
            "larder-discovery",
            "larder-document",
            "larder-doors",
            "larder-facts",
            "larder-files",
            "larder-fs",
            "larder-import",
            "larder-keep",
            "larder-load",
            "larder-measure",
            "larder-nfs",
            "larder-people",
            "larder-pool",
            "larder-servers",
            "larder-smb",
            "larder-volume",
            "larder-watch",
            "larder-web",
        ],
    ),
    (
        "larder",
        &[
            "larder-api",
            "larder-base",
            "larder-config",
            "larder-copies",
            "larder-crypt",
            "larder-daemon",
            "larder-dav",
            "larder-document",
            "larder-doors",
            "larder-facts",
            "larder-fs",
            "larder-fuse",
            "larder-keep",
            "larder-load",
            "larder-measure",
            "larder-people",
            "larder-pool",
            "larder-servers",
            "larder-smb",
            "larder-store",
            "larder-volume",
            "larder-web",
            "larder-watch",
        ],
    ),
];

/// Only the metadata engine knows SlateDB, and only servers know their protocols' libraries.
const OUTSIDE: &[(&str, &[&str])] = &[
    ("slatedb", &["larder-volume"]),
    ("fuser", &["larder-fuse"]),
    ("axum", &["larder-copies", "larder-daemon", "larder-servers"]),
    ("askama", &["larder-web"]),
    ("lettre", &["larder-alerts"]),
];

/// Dependencies that a crate names for their features, and does not call.
const FEATURES_ALONE: &[(&str, &[&str])] = &[("larder", &["fastrand", "log"])];

/// The packages of this workspace, as cargo tells them.
fn packages() -> Vec<Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline", "--manifest-path", manifest])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// The names of a package's dependencies, and whether each is of its tests alone.
fn dependencies(package: &Value) -> impl Iterator<Item = (&str, bool)> {
    let all = package["dependencies"].as_array().unwrap().iter();
    all.map(|one| (one["name"].as_str().unwrap(), one["kind"].as_str() == Some("dev")))
}

#[test]
fn dependencies_point_down() {
    let mut wrong = Vec::new();
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        let Some((_, allowed)) = ALLOWED.iter().find(|(crate_name, _)| *crate_name == name) else {
            wrong.push(format!("{name} is not in the table of layers"));
            continue;
        };
        // Tests may look further up: what ships may not.
        let used: BTreeSet<&str> = dependencies(&package).filter(|(_, is_dev)| !is_dev).map(|(used, _)| used).collect();
        for used in &used {
            if used.starts_with("larder") && !allowed.contains(used) {
                wrong.push(format!("{name} must not use {used}"));
            }
            if OUTSIDE.iter().any(|(library, users)| library == used && !users.contains(&name)) {
                wrong.push(format!("{name} must not use {used}: that is hidden in another layer"));
            }
        }
        wrong.extend(allowed.iter().filter(|one| !used.contains(*one)).map(|one| format!("{name} does not use {one}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// crates/README.md: a crate uses those that stand below it.
#[test]
fn the_map_has_every_crate_above_those_that_it_uses() {
    let map = include_str!("../../README.md");
    let rows: Vec<&str> = map.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let place = |name: &str| rows.iter().position(|row| *row == name.strip_prefix("larder-").unwrap_or(name));
    let mut wrong = Vec::new();
    for (name, used) in ALLOWED {
        let own = place(name);
        let above = used.iter().filter(|used| own.is_none() || place(used) <= own);
        wrong.extend(above.map(|used| format!("{name} uses {used}, which does not stand below it")));
    }
    assert!(wrong.is_empty() && rows.len() == ALLOWED.len(), "{} rows\n{}", rows.len(), wrong.join("\n"));
}

/// The compiler knows no dependency that nobody uses.
#[test]
fn every_dependency_is_used() {
    let mut unused = Vec::new();
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
        let code: String = sources(folder).iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
        let words: BTreeSet<&str> = code.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let excepted = FEATURES_ALONE.iter().find(|(of, _)| *of == name).map_or(&[][..], |(_, names)| names);
        for (used, _) in dependencies(&package) {
            // md-5 calls its library md5.
            let is_named =
                words.contains(used.replace('-', "_").as_str()) || words.contains(used.replace('-', "").as_str());
            if !is_named && !excepted.contains(&used) {
                unused.push(format!("{name} does not use {used}"));
            }
        }
    }
    assert!(unused.is_empty(), "{}", unused.join("\n"));
}

/// The files of Rust below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.fold(Vec::new(), |mut found, path| {
        match path.is_dir() {
            true => found.append(&mut sources(&path)),
            false if path.extension().is_some_and(|ending| ending == "rs") => found.push(path),
            false => {}
        }
        found
    })
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
