//! Which files a workload needs, the same for every protocol.

use super::contents::{SEAM_BYTES, mix};
use super::error::{ClientError, Outcome};
use crate::workload::{Kind, Workload};

/// Files in one folder: enough for any server's directories, few enough to list at once.
const FOLDER_FILES: u64 = 500;
const FILES_MAX: u64 = 10_000_000;
/// Of large files: all are open at the same time, on each connection.
pub(super) const LARGE_FILES_MAX: u64 = 256;
const BLOCK_BYTES_MAX: u64 = 64 << 20;
const SLOTS_MAX: u64 = 4096;
const TREE_FOLDERS: u64 = 16;
/// Files in one folder of a tree.
const LEAF_FILES: u64 = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A few large files, used block by block.
    Large,
    /// Many of the same size.
    Small,
    /// Many of many sizes, in folders in folders.
    Tree,
}

impl Shape {
    fn name(self, file: u64) -> String {
        match self {
            Shape::Large => format!("large{file}"),
            Shape::Small => format!("small{}/f{:08x}.{file}", file / FOLDER_FILES, mix(file) >> 32),
            Shape::Tree => format!("{}/f{:08x}.{file}", tree_folder(file / LEAF_FILES), mix(file) >> 32),
        }
    }
}

fn tree_folder(number: u64) -> String {
    format!("tree/a{}/b{}", number / TREE_FOLDERS, number % TREE_FOLDERS)
}

/// Whether some layout has a file or a folder of exactly this name, below the bench's own folder.
///
/// It decides what may be removed. A share's users can put anything into a folder that has a bench's name, links to
/// other folders too, and what lies behind those has other names.
pub(super) fn is_made(path: &str, folder: bool) -> bool {
    match folder {
        true => is_made_folder(path),
        false => {
            let number = path.rsplit(['e', '.']).next().and_then(|n| n.parse().ok());
            number.is_some_and(|n| [Shape::Large, Shape::Small, Shape::Tree].iter().any(|shape| shape.name(n) == path))
        }
    }
}

fn is_made_folder(path: &str) -> bool {
    let numbered = |part: &str, name: &str| {
        let number = part.strip_prefix(name).and_then(|n| n.parse::<u64>().ok());
        number.filter(|n| format!("{name}{n}") == part)
    };
    match path.split('/').collect::<Vec<_>>()[..] {
        ["tree"] => true,
        [small] => numbered(small, "small").is_some(),
        ["tree", a] => numbered(a, "a").is_some(),
        ["tree", a, b] => numbered(a, "a").is_some() && numbered(b, "b").is_some_and(|n| n < TREE_FOLDERS),
        _ => false,
    }
}

/// Two workloads with equal layouts use the same files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub shape: Shape,
    pub files: u64,
    /// Of each file; of a tree's files on average.
    pub file_bytes: u64,
    pub compressible: bool,
}

impl Layout {
    /// Checks what a workload asks for on the way.
    pub fn of(workload: &Workload, access: &str) -> Outcome<Self> {
        use Kind::*;
        let unsupported = |reason: &str| ClientError::Unsupported { access: access.into(), reason: reason.to_owned() };
        let shape = match workload.kind {
            Read | Write | RandomRead | RandomWrite | RandomMixed | Cat => Shape::Large,
            CreateFiles | ReadFiles | StatFiles | DeleteFiles => Shape::Small,
            CopyTreeIn | CopyTreeOut => Shape::Tree,
            Copy if workload.files > 1 => Shape::Tree,
            Copy => Shape::Large,
            Scrub => return Err(unsupported("only a pool of larder is scrubbed")),
            Send | Receive | SendReceive => {
                return Err(unsupported("the wire alone is measured with `larder bench net`"));
            }
        };
        let files = workload.files.max(1);
        let files_max = if shape == Shape::Large { LARGE_FILES_MAX } else { FILES_MAX };
        if files > files_max {
            return Err(unsupported(&format!("{files} files are too many, {files_max} at most")));
        }
        let block = workload.block_bytes;
        if block == 0 || block > BLOCK_BYTES_MAX {
            return Err(unsupported(&format!("blocks of {block} bytes; 1 byte to {} MiB", BLOCK_BYTES_MAX >> 20)));
        }
        if shape == Shape::Large && !block.is_multiple_of(SEAM_BYTES) {
            return Err(unsupported(&format!("blocks of {block} bytes: a multiple of {SEAM_BYTES} is needed")));
        }
        if u64::from(workload.depth.max(1)) * u64::from(workload.jobs.max(1)) > SLOTS_MAX {
            return Err(unsupported(&format!("more than {SLOTS_MAX} requests at once")));
        }
        let file_bytes = match shape {
            Shape::Large => workload.data_bytes / files / 4096 * 4096,
            Shape::Small | Shape::Tree => workload.data_bytes / files,
        };
        if shape == Shape::Large && file_bytes < block {
            return Err(unsupported(&format!(
                "files of {file_bytes} bytes in blocks of {block}: measure with more data"
            )));
        }
        Ok(Self { shape, files, file_bytes, compressible: workload.compressible })
    }

    pub fn bytes(&self, file: u64) -> u64 {
        match self.shape {
            Shape::Large | Shape::Small => self.file_bytes,
            // Sizes spread over eight powers of two, an eighth of the files each, as in a home folder.
            Shape::Tree => {
                let power = mix(file) % 8;
                // The mean of 2^0 ... 2^7 is 255/8.
                (self.file_bytes << power) * 8 / 255
            }
        }
    }

    pub fn data_bytes(&self) -> u64 {
        match self.shape {
            Shape::Tree => (0..self.files).map(|f| self.bytes(f)).sum(),
            _ => self.files * self.file_bytes,
        }
    }

    /// Below the bench's own folder.
    pub fn name(&self, file: u64) -> String {
        self.shape.name(file)
    }

    /// All folders, parents first.
    pub fn folders(&self) -> Vec<String> {
        match self.shape {
            Shape::Large => Vec::new(),
            Shape::Small => (0..self.files.div_ceil(FOLDER_FILES)).map(|n| format!("small{n}")).collect(),
            Shape::Tree => {
                let leaves = self.files.div_ceil(LEAF_FILES);
                let mut all = vec!["tree".to_owned()];
                for n in 0..leaves {
                    if n % TREE_FOLDERS == 0 {
                        all.push(format!("tree/a{}", n / TREE_FOLDERS));
                    }
                    all.push(tree_folder(n));
                }
                all
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Caches;
    use std::collections::BTreeSet;

    pub(super) fn workload(kind: Kind, block_bytes: u64, data_bytes: u64, files: u64) -> Workload {
        Workload {
            kind,
            block_bytes,
            depth: 4,
            jobs: 1,
            data_bytes,
            files,
            caches: Caches::Unknown,
            compressible: false,
            synced: true,
        }
    }

    #[test]
    fn every_file_has_its_folder_and_a_name_of_its_own() {
        for (kind, files) in [(Kind::CreateFiles, 1201), (Kind::CopyTreeIn, 1801), (Kind::Read, 3)] {
            let layout = Layout::of(&workload(kind, 4096, 64 << 20, files), "x").unwrap();
            let folders: BTreeSet<String> = layout.folders().into_iter().collect();
            let names: BTreeSet<String> = (0..files).map(|f| layout.name(f)).collect();
            assert_eq!(names.len() as u64, files);
            for name in names.iter().chain(&folders) {
                let Some((folder, _)) = name.rsplit_once('/') else { continue };
                assert!(folders.contains(folder), "{name}");
            }
            assert!(names.iter().all(|name| is_made(name, false) && !is_made(name, true)));
            assert!(folders.iter().all(|name| is_made(name, true) && !is_made(name, false)));
        }
    }

    #[test]
    fn what_no_layout_has_is_not_ours() {
        let file = Shape::Small.name(7);
        let (_, inner) = file.split_once('/').unwrap();
        for foreign in [
            "",
            "large",
            "large+1",
            "large01",
            "large1/large1",
            "holiday.1",
            "small0/holiday.1",
            "small0/f00000000.7",
            "../large1",
            inner,
            &format!("small1/{inner}"),
            &format!("tree/{inner}"),
            &format!("tree/a0/b1/{inner}"),
        ] {
            assert!(!is_made(foreign, false), "{foreign}");
        }
        for foreign in [
            "",
            "small",
            "small00",
            "small0/small0",
            "tree1",
            "tree/b0",
            "tree/a0/b16",
            "tree/a0/b0/b0",
            "Photos",
            "tree/..",
            "small0/tree",
            "large0",
            "tree/",
        ] {
            assert!(!is_made(foreign, true), "{foreign}");
        }
    }

    #[test]
    fn a_tree_has_about_the_size_that_was_asked() {
        let layout = Layout::of(&workload(Kind::CopyTreeOut, 65536, 100 << 20, 2000), "x").unwrap();
        let bytes = layout.data_bytes() as f64 / (100 << 20) as f64;
        assert!((0.9..1.1).contains(&bytes), "{bytes}");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for bad in [
            workload(Kind::Send, 4096, 1 << 20, 1),
            workload(Kind::Read, 0, 1 << 20, 1),
            workload(Kind::Read, 4097, 1 << 20, 1),
            workload(Kind::Read, 2 << 20, 1 << 20, 1),
            workload(Kind::Read, 4096, 1 << 30, 1000),
            Workload { depth: 5000, ..workload(Kind::Read, 4096, 1 << 20, 1) },
        ] {
            assert!(matches!(Layout::of(&bad, "x"), Err(ClientError::Unsupported { .. })), "{bad:?}");
        }
    }
}
