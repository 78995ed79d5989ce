//! Folders of the host, imported into a volume in memory.
#![allow(clippy::unwrap_used)]
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_base::{SystemClock, Timestamp};
use larder_files::Files;
use larder_fs::{Attr, Cred, FileKind, Ino, NameMatch, SeekTo, SetAttr};
use larder_volume::{Backing, MemoryBudget, Properties, Registry, Space, SyncMode};
use object_store::memory::InMemory;
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps};

use crate::{Failed, Options, Progress, Report, run};

struct Plenty;

impl Space for Plenty {
    fn space(&self) -> (u64, u64) {
        (1 << 40, 1 << 40)
    }
}

/// A folder, and a volume in memory to import it into.
struct Fixture {
    folder: tempfile::TempDir,
    files: Files,
    _registry: Registry,
}

impl Fixture {
    async fn new() -> Self {
        let backing = Backing {
            store: Arc::new(InMemory::new()),
            log: None,
            space: Arc::new(Plenty),
            clock: Arc::new(SystemClock::default()),
        };
        let registry = Registry::open(backing, MemoryBudget { total_bytes: 64 << 20 }).await.unwrap();
        registry.create("v", Properties { sync: SyncMode::Relaxed, ..Properties::default() }).await.unwrap();
        let files = Files::alone(registry.volume("v").await.unwrap());
        files.mkdir(&Cred::root(), Ino::ROOT, b"to", SetAttr::default()).await.unwrap();
        Self { folder: tempfile::tempdir().unwrap(), files, _registry: registry }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn to(&self) -> Ino {
        self.at("to").await.unwrap().id.ino
    }

    /// The inode of a path from the top of the volume.
    async fn at(&self, path: impl AsRef<[u8]>) -> Option<Attr> {
        let mut at = self.files.getattr(Ino::ROOT).await.unwrap();
        for name in path.as_ref().split(|byte| *byte == b'/') {
            at = self.files.lookup(&Cred::root(), at.id.ino, name, NameMatch::Exact).await.ok()?;
        }
        Some(at)
    }

    async fn contents(&self, path: &str) -> Vec<u8> {
        let attr = self.at(path).await.unwrap();
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < attr.size {
            let read = self.files.read(attr.id.ino, bytes.len() as u64, 1 << 20).await.unwrap();
            read.chunks.iter().for_each(|chunk| bytes.extend_from_slice(chunk));
        }
        bytes
    }

    async fn import(&self, options: Options) -> Result<Report, Failed> {
        let (from, files, to) = (self.folder.path().to_owned(), self.files.clone(), Some(self.to().await));
        tokio::task::spawn_blocking(move || run(&from, files, to, options, &Arc::<Progress>::default())).await.unwrap()
    }

    /// Imports without a fault.
    async fn imported(&self, options: Options) -> Report {
        let report = self.import(options).await.unwrap();
        assert_eq!((report.faults_total, &report.faults[..]), (0, &[][..]));
        report
    }
}

fn set_times(path: &Path, seconds: i64) {
    let at = |tv_nsec| Timespec { tv_sec: seconds, tv_nsec };
    let times = Timestamps { last_access: at(5), last_modification: at(123_456_789) };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn verified() -> Options {
    Options { verify: true, ..Options::default() }
}

/// A folder with one of everything.
fn fill(fixture: &Fixture) {
    fs::create_dir_all(fixture.path("dir/below")).unwrap();
    fs::write(fixture.path("dir/file"), b"contents").unwrap();
    fs::set_permissions(fixture.path("dir/file"), fs::Permissions::from_mode(0o640)).unwrap();
    rustix::fs::setxattr(fixture.path("dir/file"), "user.note", b"value", rustix::fs::XattrFlags::empty()).unwrap();
    fs::write(fixture.path("dir/below/empty"), b"").unwrap();
    fs::hard_link(fixture.path("dir/file"), fixture.path("dir/below/other name")).unwrap();
    symlink("../nowhere", fixture.path("link")).unwrap();
    symlink("/", fixture.path("dir/to the top")).unwrap();
    rustix::fs::mknodat(CWD, fixture.path("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    fs::write(fixture.folder.path().join(std::ffi::OsStr::from_bytes(b"odd \xff\n")), b"odd").unwrap();
    let sparse = fs::File::create(fixture.path("sparse")).unwrap();
    sparse.write_all_at(b"middle", 8 << 20).unwrap();
    sparse.set_len(64 << 20).unwrap();
    fs::write(fixture.path("large"), (0..3_000_001u32).map(|n| (n % 251) as u8).collect::<Vec<_>>()).unwrap();
    for (path, seconds) in [("link", -5), ("dir/file", 1_000_000_000), ("dir/below", 7), ("dir", 99), ("sparse", 3)] {
        set_times(&fixture.path(path), seconds);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_as_in_the_folder() {
    let fixture = Fixture::new().await;
    fill(&fixture);
    let report = fixture.imported(verified()).await;
    assert_eq!((report.copied_files, report.links, report.symlinks, report.specials), (5, 1, 2, 1));
    assert_eq!((report.directories, report.unchanged), (3, 0));
    assert_eq!(report.verified_files, 9);

    assert_eq!(fixture.contents("to/dir/file").await, b"contents");
    assert_eq!(fixture.contents("to/large").await, fs::read(fixture.path("large")).unwrap());
    assert_eq!(fixture.at(b"to/odd \xff\n").await.unwrap().size, 3);
    let (file, other) =
        (fixture.at("to/dir/file").await.unwrap(), fixture.at("to/dir/below/other name").await.unwrap());
    assert_eq!((file.id, file.nlink, file.mode), (other.id, 2, 0o640));
    let note = fixture.files.getxattr(&Cred::root(), file.id.ino, b"user.note").await.unwrap();
    assert_eq!(&note[..], b"value");
    for (path, seconds) in [("link", -5), ("dir/file", 1_000_000_000), ("dir/below", 7), ("dir", 99)] {
        let attr = fixture.at(format!("to/{path}")).await.unwrap();
        assert_eq!(attr.mtime, Timestamp::new(seconds, 123_456_789), "{path}");
        let there = fs::symlink_metadata(fixture.path(path)).unwrap();
        assert_eq!((attr.uid, attr.gid), (there.uid(), there.gid()), "{path}");
    }
    let link = fixture.at("to/dir/to the top").await.unwrap();
    assert_eq!((link.kind, &fixture.files.readlink(link.id.ino).await.unwrap()[..]), (FileKind::Symlink, &b"/"[..]));
    assert_eq!(fixture.at("to/pipe").await.unwrap().kind, FileKind::Fifo);
    let sparse = fixture.at("to/sparse").await.unwrap();
    assert_eq!(sparse.size, 64 << 20);
    let data = fixture.files.seek(sparse.id.ino, 0, SeekTo::Data).await.unwrap();
    assert!(data > 0 && data <= 8 << 20 && sparse.allocated < 1 << 20, "{data} {}", sparse.allocated);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_run_brings_only_what_changed() {
    let fixture = Fixture::new().await;
    fill(&fixture);
    fixture.imported(Options::default()).await;
    let first = fixture.at("to/dir/file").await.unwrap();
    let report = fixture.imported(verified()).await;
    assert_eq!((report.copied_files, report.symlinks, report.specials, report.attributes), (0, 0, 0, 0));
    assert_eq!((report.links, report.unchanged), (0, 9));
    assert_eq!(fixture.at("to/dir/file").await.unwrap(), first, "nothing was written");

    // Same size, and a time that was set back: only ctime tells.
    fs::write(fixture.path("dir/file"), b"CONTENTS").unwrap();
    set_times(&fixture.path("dir/file"), 1_000_000_000);
    // Attributes alone.
    fs::set_permissions(fixture.path("large"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(fixture.path("dir/below/new"), b"new").unwrap();
    set_times(&fixture.path("dir/below"), 8);
    let report = fixture.imported(verified()).await;
    assert_eq!((report.copied_files, report.attributes, report.links), (2, 1, 1));
    assert_eq!(fixture.contents("to/dir/below/other name").await, b"CONTENTS");
    assert_eq!(fixture.at("to/large").await.unwrap().mode, 0o600);
    let below = fixture.at("to/dir/below").await.unwrap();
    assert_eq!(below.mtime, Timestamp::new(8, 123_456_789));
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_part_here_part_there() {
    let fixture = Fixture::new().await;
    for name in ["a", "b", "c"] {
        fs::write(fixture.path(name), b"same").unwrap();
        set_times(&fixture.path(name), 50);
    }
    fixture.imported(Options::default()).await;
    fs::remove_file(fixture.path("b")).unwrap();
    fs::hard_link(fixture.path("a"), fixture.path("b")).unwrap();
    fixture.imported(verified()).await;
    let ino = async |path: &str| fixture.at(path).await.unwrap().id.ino;
    assert_eq!(ino("to/a").await, ino("to/b").await);
    assert_ne!(ino("to/a").await, ino("to/c").await);
    let first = ino("to/a").await;
    fs::remove_file(fixture.path("b")).unwrap();
    fs::write(fixture.path("b"), b"same").unwrap();
    set_times(&fixture.path("b"), 50);
    assert_eq!(fixture.imported(verified()).await.copied_files, 1);
    assert_ne!(ino("to/a").await, ino("to/b").await);
    assert_eq!(ino("to/a").await, first);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_others_is_replaced_or_removed() {
    let fixture = Fixture::new().await;
    fs::create_dir(fixture.path("dir")).unwrap();
    for name in ["changed", "dir/old", "kept"] {
        fs::write(fixture.path(name), b"1").unwrap();
    }
    fixture.imported(Options::default()).await;
    let root = Cred::root();
    let write = async |path: &str| {
        let attr = fixture.at(path).await.unwrap();
        let stable = larder_fs::Stability::FileSync;
        fixture.files.write(&root, attr.id.ino, 0, vec![b"users"[..].into()], stable).await.unwrap();
    };
    write("to/changed").await;
    write("to/kept").await;
    let dir = fixture.at("to/dir").await.unwrap().id.ino;
    let mode = larder_fs::CreateMode::Guarded;
    fixture.files.create(&root, dir, b"own", mode, SetAttr::default()).await.unwrap();
    fs::write(fixture.path("changed"), b"22").unwrap();
    fs::remove_dir_all(fixture.path("dir")).unwrap();
    fs::remove_file(fixture.path("kept")).unwrap();

    let delete = Options { delete: true, ..Options::default() };
    let dry = fixture.import(Options { dry_run: true, ..delete.clone() }).await.unwrap();
    assert_eq!((dry.removed, dry.faults_total), (1, 1));
    assert!(fixture.at("to/dir/old").await.is_some());

    let report = fixture.import(delete.clone()).await.unwrap();
    assert_eq!((report.removed, report.faults_total, report.copied_files), (1, 1, 0));
    assert_eq!(report.faults[0].path, Path::new("changed"));
    let mut left: Vec<_> = report.left_out.iter().map(|fault| fault.path.to_str().unwrap()).collect();
    left.sort_unstable();
    assert_eq!(left, ["dir/own", "kept"]);
    assert_eq!(fixture.contents("to/changed").await, b"users");
    assert!(fixture.at("to/dir/old").await.is_none() && fixture.at("to/dir/own").await.is_some());

    let report = fixture.imported(Options { overwrite: true, verify: true, ..Options::default() }).await;
    assert_eq!(report.copied_files, 1);
    assert_eq!(fixture.contents("to/changed").await, b"22");

    fs::remove_file(fixture.path("changed")).unwrap();
    assert!(matches!(fixture.import(delete).await, Err(Failed::Empty)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comparison_finds_what_differs() {
    let fixture = Fixture::new().await;
    fs::write(fixture.path("file"), vec![7; 2 << 20]).unwrap();
    fixture.imported(verified()).await;
    // As if a bit had turned: contents differ, and no time says so.
    let attr = fixture.at("to/file").await.unwrap();
    let root = Cred::root();
    let byte = vec![b"x"[..].into()];
    fixture.files.write(&root, attr.id.ino, 1_500_000, byte, larder_fs::Stability::FileSync).await.unwrap();
    let times = SetAttr { mtime: Some(larder_fs::SetTime::To(attr.mtime)), ..SetAttr::default() };
    fixture.files.setattr(&root, attr.id.ino, times).await.unwrap();
    let report = fixture.import(verified()).await.unwrap();
    assert_eq!(report.faults.iter().map(|fault| fault.why.as_str()).collect::<Vec<_>>(), ["its contents differ"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_changes_nothing_and_counts_what_a_run_does() {
    let fixture = Fixture::new().await;
    fill(&fixture);
    let dry = fixture.imported(Options { dry_run: true, ..Options::default() }).await;
    let to = fixture.files.readdir(&Cred::root(), fixture.to().await, 0, 10, false).await.unwrap();
    assert!(to.entries.is_empty());
    // It knows no links: each name is counted as a file.
    assert_eq!((dry.copied_files, dry.symlinks, dry.specials, dry.directories), (6, 2, 1, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_import_leaves_whole_files_and_goes_on() {
    let fixture = Fixture::new().await;
    let mut contents = BTreeMap::new();
    for n in 0..3000usize {
        let name = format!("file {n}");
        let bytes = vec![n as u8; 1 + n % 100];
        fs::write(fixture.path(&name), &bytes).unwrap();
        contents.insert(name, bytes);
    }
    let progress = Arc::<Progress>::default();
    let (from, files, to) = (fixture.folder.path().to_owned(), fixture.files.clone(), Some(fixture.to().await));
    let watched = Arc::clone(&progress);
    let task = tokio::task::spawn_blocking(move || run(&from, files, to, Options::default(), &watched));
    while progress.look().copied.0 < 1200 && !task.is_finished() {
        tokio::task::yield_now().await;
    }
    progress.stop();
    let ended = task.await.unwrap();
    let page = fixture.files.readdir(&Cred::root(), fixture.to().await, 0, 5000, true).await.unwrap();
    for entry in &page.entries {
        let name = std::str::from_utf8(&entry.name).unwrap();
        assert_eq!(entry.attr.unwrap().size, contents[name].len() as u64, "{name} is not whole");
    }
    assert!(matches!(ended, Err(Failed::Stopped)) && page.entries.len() < 3000, "{}", page.entries.len());
    let report = fixture.imported(verified()).await;
    assert_eq!((report.copied_files + report.unchanged, report.verified_files), (3000, 3000));
    assert_eq!(report.unchanged, page.entries.len() as u64);
}

/// Whoever looks at any moment, as a kill does, finds no link or pipe without its time.
#[tokio::test(flavor = "multi_thread")]
async fn links_and_pipes_have_a_name_only_when_they_are_whole() {
    let fixture = Fixture::new().await;
    for n in 0..300 {
        let path = fixture.path(&format!("link {n}"));
        symlink(format!("to/{n}"), &path).unwrap();
        set_times(&path, n);
        let pipe = fixture.path(&format!("pipe {n}"));
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        set_times(&pipe, -n);
    }
    let looked = {
        let (files, to) = (fixture.files.clone(), fixture.to().await);
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let looking = tokio::spawn(async move {
            let (mut looks, mut seen) = (0, 0);
            while !stopped.load(std::sync::atomic::Ordering::Relaxed) || looks == 0 {
                looks += 1;
                let page = files.readdir(&Cred::root(), to, 0, 5000, true).await.unwrap();
                for entry in page.entries {
                    let name = String::from_utf8(entry.name.to_vec()).unwrap();
                    let number: i64 = name.rsplit(' ').next().unwrap().parse().unwrap();
                    let wanted = if name.starts_with("link") { number } else { -number };
                    // Of one that was replaced just now there are none.
                    let Some(attr) = entry.attr else { continue };
                    assert_eq!(attr.mtime.secs, wanted, "{name} has a name before its time");
                    seen += 1;
                }
                tokio::task::yield_now().await;
            }
            (looks, seen)
        });
        for run in 0..3 {
            fixture.imported(verified()).await;
            // The next run replaces every one of them.
            for n in 0..300 {
                let path = fixture.path(&format!("link {n}"));
                fs::remove_file(&path).unwrap();
                symlink(format!("elsewhere/{run}/{n}"), &path).unwrap();
                set_times(&path, n);
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        looking.await.unwrap()
    };
    assert!(looked.1 > 0, "{looked:?}");
    let report = fixture.imported(verified()).await;
    assert_eq!((report.symlinks + report.unchanged, report.specials), (600, 0));
}

/// Streams of a file or folder, by the door's way.
async fn streams(files: &Files, ino: Ino) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let Some(dir) = files.named_dir(ino, false).await.unwrap() else { return BTreeMap::new() };
    let mut all = BTreeMap::new();
    for entry in files.readdir(&Cred::root(), dir, 0, 100, true).await.unwrap().entries {
        let attr = files.lookup(&Cred::root(), dir, &entry.name, NameMatch::Exact).await.unwrap();
        let data = files.read(attr.id.ino, 0, attr.size as usize).await.unwrap().chunks.concat();
        all.insert(entry.name.to_vec(), data);
    }
    all
}

/// The bytes of `user.DOSATTRIB`: librpc/idl/xattr.idl of Samba.
fn dos_attribute(version: u16, attributes: u32, created: u64) -> Vec<u8> {
    let mut out = vec![0, 0];
    out.extend([version.to_le_bytes(), version.to_le_bytes()].concat());
    out.extend([0, 0]);
    // Attributes and time of creation are valid.
    out.extend(0x11u32.to_le_bytes());
    out.extend(attributes.to_le_bytes());
    match version {
        3 => out.extend(
            [[0; 4].to_vec(), [0; 8].to_vec(), [0; 8].to_vec(), created.to_le_bytes().to_vec(), [0; 8].to_vec()]
                .concat(),
        ),
        4 => out.extend([[0; 8], created.to_le_bytes()].concat()),
        _ => out.extend(created.to_le_bytes()),
    }
    out
}

/// `import.samba_kept`: a folder that Samba served, and one that larder served, which keeps the same.
#[tokio::test(flavor = "multi_thread")]
async fn what_samba_kept_is_kept() {
    let fixture = Fixture::new().await;
    let set = |path: &str, name: &str, value: &[u8]| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(fixture.path(path), name, value, flags).unwrap();
    };
    fs::create_dir(fixture.path("dir")).unwrap();
    // 2001-09-09 01:46:40, and half a second.
    let created = (1_000_000_000 + 11_644_473_600) * 10_000_000 + 5_000_000;
    for (path, version) in [("v3", 3), ("v4", 4), ("v5", 5), ("dir", 4)] {
        if path != "dir" {
            fs::write(fixture.path(path), b"contents").unwrap();
        }
        set(path, "user.DOSATTRIB", &dos_attribute(version, 0x2 | 0x4 | 0x10, created));
        set(path, "user.DosStream.AFP_AfpInfo:$DATA", &[&[7; 60][..], &[0]].concat());
        set(path, "user.DosStream.Zone.Identifier:$DATA", b"[ZoneTransfer]\r\nZoneId=3\0");
        set(path, "user.DosStream.empty:$DATA", b"\0");
        set(path, "user.note", b"value");
    }
    fs::write(fixture.path("odd"), b"contents").unwrap();
    let odd = [
        ("user.DOSATTRIB", &b"\0\0\x09\0\x09\0"[..]),
        ("user.DosStream.:$DATA", b"x"),
        ("user.DosStream.a/b:$DATA", b"y"),
    ];
    odd.iter().for_each(|(name, value)| set("odd", name, value));
    let before = Timestamp::new(1_000_000_000, 500_000_000);
    let host = larder_files::folders::Folders::default().open(fixture.folder.path()).unwrap();

    fixture.imported(verified()).await;
    for path in ["v3", "v4", "v5", "dir"] {
        let attr = fixture.at(format!("to/{path}")).await.unwrap();
        assert_eq!((attr.dos & 0x27, attr.btime), (0x6, before), "{path}");
        let there = host.files.lookup(&Cred::root(), host.top, path.as_bytes(), NameMatch::Exact).await.unwrap();
        let (ours, theirs) = (streams(&fixture.files, attr.id.ino).await, streams(&host.files, there.id.ino).await);
        assert_eq!(ours, theirs, "{path}: as a shared folder shows them");
        assert_eq!(ours.get(&b"AFP_AfpInfo"[..]).map(Vec::len), Some(60));
        assert_eq!(ours.get(&b"empty"[..]).map(Vec::len), Some(0));
        let names = fixture.files.listxattr(&Cred::root(), attr.id.ino).await.unwrap();
        assert!(
            !names.iter().any(|name| name.starts_with(b"user.D")) && names.iter().any(|name| &name[..] == b"user.note")
        );
    }
    // Nothing that means nothing is lost.
    let attr = fixture.at("to/odd").await.unwrap();
    for (name, value) in odd {
        let kept = fixture.files.getxattr(&Cred::root(), attr.id.ino, name.as_bytes()).await.unwrap();
        assert_eq!(&kept[..], value, "{name}");
    }
    let again = fixture.imported(verified()).await;
    assert_eq!((again.copied_files, again.unchanged), (0, 4));
    // A stream that another program changed is told, and brought.
    let stream = fixture.files.named_dir(fixture.at("to/v4").await.unwrap().id.ino, false).await.unwrap().unwrap();
    let info = fixture.files.lookup(&Cred::root(), stream, b"AFP_AfpInfo", NameMatch::Exact).await.unwrap();
    let bytes = vec![bytes::Bytes::from_static(b"other")];
    fixture.files.write(&Cred::root(), info.id.ino, 0, bytes, larder_fs::Stability::FileSync).await.unwrap();
    let report = fixture.import(verified()).await.unwrap();
    assert_eq!(report.faults_total, 1, "{:?}", report.faults);
}

/// `import.samba_kept`: what a Mac wrote beside its files, where streams cannot be kept.
#[tokio::test(flavor = "multi_thread")]
async fn apple_double_is_part_of_its_file() {
    let (fixture, mut changes) = (Fixture::new().await, None);
    let double = |note: &[u8]| crate::apple::tests::double([3; 32], &[("note", note)], b"a fork");
    let write = |path: &str, data: &[u8]| fs::write(fixture.path(path), data).unwrap();
    fs::create_dir(fixture.path("dir")).unwrap();
    for path in ["photo", "dir/deep"] {
        write(path, b"contents");
    }
    write("._photo", &double(b"one"));
    write("._dir", &double(b"of a folder"));
    write("dir/._deep", &double(b"deep"));
    // Not beside a file, and no such file.
    write("._alone", &double(b"alone"));
    write("odd", b"contents");
    write("._odd", b"only a name");

    let report = fixture.imported(verified()).await;
    assert_eq!(report.copied_files, 5, "photo, deep, odd and what is no part of another");
    for (path, note) in [("photo", "one"), ("dir", "of a folder"), ("dir/deep", "deep")] {
        let attr = fixture.at(format!("to/{path}")).await.unwrap();
        let streams = streams(&fixture.files, attr.id.ino).await;
        assert_eq!(streams.keys().collect::<Vec<_>>(), [&b"AFP_AfpInfo"[..], b"AFP_Resource", b"note"], "{path}");
        assert_eq!((&streams[&b"note"[..]][..], &streams[&b"AFP_Resource"[..]][..]), (note.as_bytes(), &b"a fork"[..]));
    }
    for (path, is_there) in
        [("._photo", false), ("._dir", false), ("dir/._deep", false), ("._alone", true), ("._odd", true)]
    {
        assert_eq!(fixture.at(format!("to/{path}")).await.is_some(), is_there, "{path}");
    }
    let again = fixture.imported(Options { delete: true, ..verified() }).await;
    assert_eq!((again.copied_files, again.unchanged, again.removed), (0, 5, 0));
    // A fork as large as Macs have them, twice: it is compared, and not written again.
    let fork: Vec<u8> = (0..16u32 << 20).map(|n| (n % 251) as u8).collect();
    write("._odd", &crate::apple::tests::double([0; 32], &[], &fork));
    for options in [Options::default(), verified()] {
        fixture.imported(options).await;
        let attr = fixture.at("to/odd".to_owned()).await.unwrap();
        let dir = fixture.files.named_dir(attr.id.ino, false).await.unwrap().unwrap();
        let stream = fixture.files.lookup(&Cred::root(), dir, b"AFP_Resource", NameMatch::Exact).await.unwrap();
        assert_eq!((stream.size, stream.change), (fork.len() as u64, *changes.get_or_insert(stream.change)));
    }
    // One that changed alone is told, and brought.
    write("._photo", &double(b"two"));
    fixture.imported(Options::default()).await;
    let attr = fixture.at("to/photo".to_owned()).await.unwrap();
    assert_eq!(streams(&fixture.files, attr.id.ino).await[&b"note"[..]], b"two");
    let dir = fixture.files.named_dir(attr.id.ino, false).await.unwrap().unwrap();
    fixture.files.unlink(&Cred::root(), dir, b"note").await.unwrap();
    let before = fixture.at("to/odd".to_owned()).await.unwrap();
    let checked = fixture.import(verified()).await.unwrap();
    assert_eq!((checked.faults_total, fixture.at("to/odd".to_owned()).await.unwrap().ctime), (0, before.ctime));
    assert_eq!(streams(&fixture.files, attr.id.ino).await[&b"note"[..]], b"two", "an import mends it");
}
