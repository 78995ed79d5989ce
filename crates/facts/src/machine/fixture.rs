//! Recorded machines for tests: one text file each, unpacked into a folder.
//!
//! `PATH = TEXT` is a file of one line, `PATH -> TARGET` a relative link to another path of the file, `PATH <<` a
//! file of the lines up to
//! `>>`, `@NAME = PATH` a name for the beginning of paths, and `#` begins a comment.

use std::collections::HashMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use tempfile::TempDir;

use crate::Machine;

#[allow(dead_code, reason = "included by tests of several crates, of which not all use all of it")]
pub(crate) struct Fixture {
    folder: TempDir,
    pub(crate) machine: Machine,
}

impl Fixture {
    pub(crate) fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        unpack(&root, text);
        let machine = Machine::recorded(&root).unwrap();
        Self { folder, machine }
    }

    #[allow(dead_code)]
    pub(crate) fn write(&self, path: &str, text: &str) {
        put(&inside(self.folder.path(), path), text);
    }
}

fn unpack(root: &Path, text: &str) {
    let mut names: HashMap<String, String> = HashMap::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let expanded = |path: &str| match path.strip_prefix('@') {
            Some(rest) => {
                let (name, tail) = rest.split_once('/').unwrap_or((rest, ""));
                format!("{}/{tail}", names.get(name).unwrap_or_else(|| panic!("@{name} is not defined")))
            }
            None => path.to_owned(),
        };
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(path) = line.strip_suffix(" <<") {
            let body: Vec<&str> = lines.by_ref().take_while(|l| *l != ">>").collect();
            put(&inside(root, &expanded(path)), &(body.join("\n") + "\n"));
        } else if let Some((path, target)) = line.split_once(" -> ") {
            link(root, &expanded(path), &expanded(target));
        } else if let Some((path, value)) = line.split_once(" =") {
            match path.strip_prefix('@').filter(|name| !name.contains('/')) {
                Some(name) => drop(names.insert(name.to_owned(), expanded(value.trim()))),
                None => put(&inside(root, &expanded(path)), &format!("{}\n", value.trim())),
            }
        } else {
            panic!("not understood: {line}");
        }
    }
}

fn inside(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// As many steps up as the link is deep, then down to the target: links of a copy must not leave it.
fn link(root: &Path, path: &str, target: &str) {
    let at = inside(root, path);
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    let depth = Path::new(path).parent().unwrap().components().filter(|c| matches!(c, Component::Normal(_))).count();
    let up: PathBuf = std::iter::repeat_n("..", depth).collect();
    std::os::unix::fs::symlink(up.join(target.trim_start_matches('/')), at).unwrap();
}
