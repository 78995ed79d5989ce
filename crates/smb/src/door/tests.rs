#![allow(clippy::unwrap_used)]

//! The store as the protocol uses it, over a volume in memory.

use bytes::Bytes;
use larder_base::{Clock, SystemClock};
use larder_fs::{Ino, SetAttr, Stability, acl};
use larder_people::Share as Rules;
use larder_volume::{Registry, Volume};

use super::handle::FileHandle;
use super::open_name::EntryName;
use super::*;
use crate::error::{SmbError, SmbResult};
use crate::tests::store::{core_of, volume};
use crate::words::{FileTimes, OpenAction, OpenIntent, OpenOptions};
use larder_smb_wire::path::SmbPath;
use larder_smb_wire::wildcard::Pattern;

struct Fixture {
    volume: Volume,
    core: Arc<Core>,
    _registry: Registry,
}

impl Fixture {
    async fn new() -> Self {
        let (volume, registry) = volume().await;
        let core = Arc::new(core_of(&volume, Ino::ROOT));
        Self { volume, core, _registry: registry }
    }

    /// A share of the directory `root` instead of the whole volume.
    fn share_folder(&mut self, root: Ino) {
        self.core = Arc::new(core_of(&self.volume, root));
    }

    /// The component that leads to the snapshot, which is the only one of its second.
    async fn snapshot(&self, name: &str) -> String {
        let newest = || self.volume.snapshots().last().map_or(0, |newest| newest.created.secs);
        while newest() == SystemClock::default().now().secs {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        let created = self.volume.snapshot(name).await.unwrap().created;
        larder_smb_wire::moment::Moment::new(created.secs).unwrap().label()
    }

    fn tree(&self, user: &str) -> VisitedShare {
        self.visit(Rules::new("s"), Some(user), HERE).and_then(|admitted| admitted.view).unwrap()
    }

    /// What a visitor gets of the share with these rules; its users are ann and bob.
    fn visit(&self, rules: Rules, user: Option<&str>, address: Option<IpAddr>) -> Option<Admitted> {
        let directory = Directory::default();
        let users = [("ann", 1000), ("bob", 1001)].map(|(name, id)| Arc::new(User::new(name, id, id)));
        directory.set(users.into_iter().map(|user| (user.name.clone(), user)).collect());
        let admits = admitting(Arc::clone(&self.core), Arc::new(Doorkeeper::new(directory, Arc::new(rules))));
        admits(&Visitor { user, address, encrypts: false })
    }
}

const HERE: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));

fn path(text: &str) -> SmbPath {
    text.parse().unwrap()
}

fn opts(intent: OpenIntent, access: u32) -> OpenOptions {
    OpenOptions { intent, access, ..OpenOptions::default() }
}

type Opened = SmbResult<(Box<FileHandle>, OpenAction)>;

async fn open(tree: &VisitedShare, name: &str, intent: OpenIntent, access: u32) -> Opened {
    tree.open(&path(name), opts(intent, access)).await
}

/// The name of an open of `name`, which stays open no longer.
async fn name_of(tree: &VisitedShare, name: &str) -> Arc<EntryName> {
    open(tree, name, OpenIntent::Open, 0).await.unwrap().0.name()
}

async fn rename(tree: &VisitedShare, from: &str, to: &str, replace: bool) -> SmbResult<()> {
    name_of(tree, from).await.rename(&path(to), replace).await
}

async fn make(tree: &VisitedShare, name: &str, data: &str) -> u64 {
    let (handle, action) = open(tree, name, OpenIntent::Create, rights::WRITE_DATA).await.unwrap();
    assert_eq!(action, OpenAction::Created);
    handle.write_bytes(0, Bytes::copy_from_slice(data.as_bytes())).await.unwrap();
    handle.stat().await.unwrap().file_index
}

async fn mkdir(tree: &VisitedShare, name: &str) -> Box<FileHandle> {
    let opts = OpenOptions { directory: true, ..opts(OpenIntent::OpenOrCreate, 0) };
    tree.open(&path(name), opts).await.unwrap().0
}

async fn content(tree: &VisitedShare, name: &str) -> String {
    let (handle, _) = open(tree, name, OpenIntent::Open, rights::READ_DATA).await.unwrap();
    String::from_utf8(read(&handle).await).unwrap()
}

async fn read(handle: &FileHandle) -> Vec<u8> {
    handle.read_chunks(0, 100).await.unwrap().concat()
}

async fn listing(dir: &FileHandle) -> Vec<String> {
    dir.list_page(0, 100).await.unwrap().entries.into_iter().map(|e| e.info.name).collect()
}

#[track_caller]
fn refused(opened: Opened, status: SmbError) {
    match opened {
        Ok(_) => panic!("opened, not {status:?}"),
        Err(e) => assert_eq!(e.to_nt_status(), status.to_nt_status()),
    }
}

#[tokio::test]
async fn names_match_in_any_case_and_are_kept_as_made() {
    let f = Fixture::new().await;
    let ann = f.tree("ann");
    let dir = mkdir(&ann, "Photos").await;
    make(&ann, "photos\\Été.JPG", "x").await;
    assert_eq!(content(&ann, "PHOTOS\\éTÉ.jpg").await, "x");
    assert_eq!(listing(&dir).await, ["Été.JPG"]);
    refused(open(&ann, "photos\\ÉTÉ.jpg", OpenIntent::Create, 0).await, SmbError::Exists);
    refused(open(&ann, "photos\\no", OpenIntent::Open, 0).await, SmbError::NotFound);
    refused(open(&ann, "no\\no", OpenIntent::Open, 0).await, SmbError::PathNotFound);
    refused(open(&ann, "photos\\été.jpg\\no", OpenIntent::Open, 0).await, SmbError::PathNotFound);
    assert!(dir.list_one("éTÉ.jpg").await.unwrap().is_some());
}

#[tokio::test]
async fn posix_names_are_shown_in_windows_letters_and_found_again() {
    let f = Fixture::new().await;
    let ann = f.tree("ann");
    for name in [&b"a:b"[..], b"tail.", b"\xff\xfe", "kept \u{f022}".as_bytes()] {
        let set = SetAttr { mode: Some(0o666), ..SetAttr::default() };
        let made = f.volume.create(&Cred::root(), Ino::ROOT, name, larder_fs::CreateMode::Guarded, set).await;
        let ino = made.unwrap().0.id.ino;
        let data = vec![Bytes::copy_from_slice(name)];
        f.volume.write(&Cred::root(), ino, 0, data, Stability::Unstable).await.unwrap();
    }
    let root = mkdir(&ann, "").await;
    let shown = listing(&root).await;
    assert_eq!(shown.len(), 4);
    for name in shown {
        let (handle, _) = open(&ann, &name, OpenIntent::Open, rights::READ_DATA).await.unwrap();
        let stored = read(&handle).await;
        assert_eq!(names::shown(&stored), name);
    }
}

#[tokio::test]
async fn permissions_are_those_of_posix() {
    let f = Fixture::new().await;
    let (ann, bob) = (f.tree("ann"), f.tree("bob"));
    make(&ann, "file", "x").await;
    assert_eq!(content(&bob, "file").await, "x");
    refused(open(&bob, "file", OpenIntent::Open, rights::WRITE_DATA).await, SmbError::AccessDenied);
    refused(open(&bob, "file", OpenIntent::OverwriteOrCreate, 0).await, SmbError::AccessDenied);
    let (handle, _) = open(&bob, "file", OpenIntent::Open, rights::READ_DATA).await.unwrap();
    assert_eq!(handle.maximal_access() & rights::WRITE_DATA, 0);
    let dir = mkdir(&ann, "private").await;
    drop(dir);
    refused(open(&bob, "private\\new", OpenIntent::Create, 0).await, SmbError::AccessDenied);
}

#[tokio::test]
async fn visitors_get_what_the_rules_say() {
    let f = Fixture::new().await;
    let guests = Rules { guest: true, ..Rules::new("s") };
    let guest = |rules: Rules| f.visit(rules, None, HERE);
    assert!(guest(Rules::new("s")).is_none(), "nobody comes in without logging in");
    let tree = guest(guests.clone()).and_then(|admitted| admitted.view).unwrap();
    make(&tree, "of a guest", "x").await;
    let reads = guest(Rules { read_only: true, ..guests.clone() }).unwrap();
    assert_eq!(reads.access, Access::Read);
    refused(open(&reads.view.unwrap(), "x", OpenIntent::Create, 0).await, SmbError::AccessDenied);
    assert!(f.visit(guests.clone(), Some("mia"), HERE).is_none(), "a user who is there no longer");
    assert!(f.visit(guests, Some("ann"), None).is_none(), "an address that cannot be looked at");
}

#[tokio::test]
async fn new_files_carry_archive_and_attributes_and_times_are_kept() {
    let f = Fixture::new().await;
    let ann = f.tree("ann");
    let (handle, _) = open(&ann, "f", OpenIntent::Create, rights::WRITE_DATA).await.unwrap();
    assert_eq!(handle.stat().await.unwrap().attributes(), rights::DOS_ARCHIVE);
    handle.set_attributes(0x7).await.unwrap();
    let times = FileTimes { creation_time: Some(123_456_789_012_345_678), ..Default::default() };
    handle.set_times(times).await.unwrap();
    let info = handle.stat().await.unwrap();
    assert_eq!((info.attributes(), info.creation_time), (0x7, 123_456_789_012_345_678));
    refused(open(&ann, "f", OpenIntent::Open, rights::WRITE_DATA).await, SmbError::AccessDenied);
    handle.write_bytes(0, Bytes::from_static(b"an open keeps its rights")).await.unwrap();
}

#[tokio::test]
async fn hidden_and_system_files_are_overwritten_only_by_their_like() {
    let f = Fixture::new().await;
    let ann = f.tree("ann");
    make(&ann, "f", "old").await;
    let (handle, _) = open(&ann, "f", OpenIntent::Open, rights::WRITE_ATTRIBUTES).await.unwrap();
    handle.set_attributes(0x2).await.unwrap();
    for intent in [OpenIntent::Truncate, OpenIntent::OverwriteOrCreate] {
        refused(open(&ann, "f", intent, rights::WRITE_DATA).await, SmbError::AccessDenied);
    }
    assert_eq!(content(&ann, "f").await, "old");
    let same = OpenOptions { attributes: 0x2, ..opts(OpenIntent::Truncate, rights::WRITE_DATA) };
    assert_eq!(ann.open(&path("f"), same).await.unwrap().1, OpenAction::Overwritten);
}

#[tokio::test]
async fn renames_replace_only_when_told_and_change_case() {
    let f = Fixture::new().await;
    let ann = f.tree("ann");
    make(&ann, "a", "a").await;
    make(&ann, "B", "b").await;
    let root = mkdir(&ann, "").await;
    assert!(matches!(rename(&ann, "a", "b", false).await, Err(SmbError::Exists)));
    rename(&ann, "a", "A", false).await.unwrap();
    assert_eq!(listing(&root).await.len(), 2);
    assert!(listing(&root).await.contains(&"A".to_owned()));
    rename(&ann, "A", "b", true).await.unwrap();
    assert_eq!(listing(&root).await, ["b"]);
    assert_eq!(content(&ann, "b").await, "a");
    mkdir(&ann, "dir").await;
    assert!(matches!(rename(&ann, "b", "DIR", true).await, Err(SmbError::AccessDenied)));
    let (handle, _) = open(&ann, "b", OpenIntent::Open, 0).await.unwrap();
    let ino = Ino(handle.stat().await.unwrap().file_index);
    f.volume.link(&Cred::root(), ino, Ino::ROOT, b"c").await.unwrap();
    rename(&ann, "b", "c", true).await.unwrap();
    assert!(!listing(&root).await.contains(&"b".to_owned()));
}

#[tokio::test]
async fn a_delete_spares_another_file_that_took_the_name_and_follows_its_own() {
    let f = Fixture::new().await;
    let ann = f.tree("ann");
    let root = mkdir(&ann, "").await;
    mkdir(&ann, "d").await;
    let dir = f.volume.lookup(&Cred::root(), Ino::ROOT, b"d", larder_fs::NameMatch::Exact).await.unwrap().id.ino;
    make(&ann, "File", "old").await;
    let opened = name_of(&ann, "fILE").await;
    let rename = async |from: Ino, name: &[u8], to: Ino, new: &[u8]| {
        f.volume.rename(&Cred::root(), from, name, to, new, larder_fs::RenameMode::Replace).await.unwrap();
    };
    rename(Ino::ROOT, b"File", Ino::ROOT, b"g").await;
    rename(Ino::ROOT, b"g", dir, b"h").await;
    make(&ann, "f", "other").await;
    make(&ann, "FILE", "new").await;
    // A second name is not the one that was opened.
    let linked = make(&ann, "one", "kept").await;
    f.volume.link(&Cred::root(), Ino(linked), Ino::ROOT, b"two").await.unwrap();
    let one = name_of(&ann, "one").await;
    f.volume.unlink(&Cred::root(), Ino::ROOT, b"one").await.unwrap();
    opened.remove().await.unwrap();
    assert!(opened.remove().await.is_err());
    assert!(one.remove().await.is_err());
    assert_eq!((content(&ann, "file").await, content(&ann, "f").await), ("new".to_owned(), "other".to_owned()));
    assert_eq!(content(&ann, "two").await, "kept");
    refused(open(&ann, "d\\h", OpenIntent::Open, 0).await, SmbError::NotFound);
    drop(root);
}

#[tokio::test]
async fn a_delete_finds_its_file_below_folders_that_others_renamed() {
    let f = Fixture::new().await;
    let ann = f.tree("ann");
    let root = mkdir(&ann, "").await;
    for folder in ["a", "a\\b", "z"] {
        mkdir(&ann, folder).await;
    }
    make(&ann, "a\\b\\file", "old").await;
    let opened = name_of(&ann, "A\\b\\File").await;
    let ino = async |dir: Ino, name: &[u8]| {
        f.volume.lookup(&Cred::root(), dir, name, larder_fs::NameMatch::Exact).await.unwrap().id.ino
    };
    let rename = async |from: Ino, name: &[u8], to: Ino, new: &[u8]| {
        f.volume.rename(&Cred::root(), from, name, to, new, larder_fs::RenameMode::NoReplace).await.unwrap();
    };
    let (a, z) = (ino(Ino::ROOT, b"a").await, ino(Ino::ROOT, b"z").await);
    rename(a, b"b", z, b"c").await;
    rename(Ino::ROOT, b"a", Ino::ROOT, b"x").await;
    rename(ino(z, b"c").await, b"file", z, b"elsewhere").await;
    // Others that took the old path are not what was opened.
    mkdir(&ann, "a").await;
    mkdir(&ann, "a\\b").await;
    make(&ann, "a\\b\\file", "new").await;
    assert_eq!(opened.path().await.unwrap(), path("z\\elsewhere"));
    opened.remove().await.unwrap();
    refused(open(&ann, "z\\elsewhere", OpenIntent::Open, 0).await, SmbError::NotFound);
    assert_eq!(content(&ann, "a\\b\\file").await, "new");
    drop(root);
}

#[tokio::test]
async fn links_are_followed_within_the_volume() {
    let f = Fixture::new().await;
    let ann = f.tree("ann");
    mkdir(&ann, "d").await;
    make(&ann, "d\\f", "x").await;
    for (name, target) in
        [("l", "d/f"), ("up", "../../d/./f"), ("dir", "d"), ("loop", "loop"), ("out", "/d/f"), ("gone", "nothing")]
    {
        let root = Cred::root();
        f.volume.symlink(&root, Ino::ROOT, name.as_bytes(), target.as_bytes(), SetAttr::default()).await.unwrap();
    }
    assert_eq!(content(&ann, "l").await, "x");
    assert_eq!(content(&ann, "up").await, "x");
    assert_eq!(content(&ann, "dir\\F").await, "x");
    for name in ["loop", "out", "gone"] {
        refused(open(&ann, name, OpenIntent::Open, 0).await, SmbError::NotFound);
    }
    let mut shown = listing(&*mkdir(&ann, "").await).await;
    shown.sort();
    assert_eq!(shown, ["d", "dir", "l", "up"]);
}

#[tokio::test]
async fn large_directories_come_in_pages() {
    let f = Fixture::new().await;
    let ann = f.tree("ann");
    let dir = mkdir(&ann, "many").await;
    let ino = Ino(dir.stat().await.unwrap().file_index);
    for n in 0..2500 {
        let name = format!("file{n:04}");
        f.volume
            .create(&Cred::root(), ino, name.as_bytes(), larder_fs::CreateMode::Guarded, SetAttr::default())
            .await
            .unwrap();
    }
    let mut seen = std::collections::BTreeSet::new();
    let (mut after, mut pages) = (0, 0);
    loop {
        let page = dir.list_page(after, 1000).await.unwrap();
        assert!(page.entries.len() <= 1000);
        pages += 1;
        seen.extend(page.entries.into_iter().map(|e| e.info.name));
        if page.end {
            break;
        }
        after = page.next;
    }
    assert_eq!(seen.len(), 2500);
    assert!(pages >= 3);
    let pattern = Pattern::new("FILE24??", true);
    assert_eq!(seen.iter().filter(|name| pattern.matches(name)).count(), 100);
    assert!(!dir.dir_is_empty().await.unwrap());
}

const ADDED: u32 = 1;
const REMOVED: u32 = 2;
const MODIFIED: u32 = 3;
const OLD_NAME: u32 = 4;
const NEW_NAME: u32 = 5;
const ENUM_DIR: u32 = 0x10C;
const DELETE_PENDING: u32 = 0xC000_0056;

async fn observe(tree: &VisitedShare, dir: &str, below: bool) -> crate::files::Observed {
    let handle = mkdir(tree, dir).await;
    let ino = handle.stat().await.unwrap().file_index;
    tree.watches().observe(handle.watch().await, ino, below).unwrap()
}

/// What the watch hears is exactly this, so far.
async fn heard(watch: &mut crate::files::Observed, wanted: &[(u32, &str)]) {
    let mut all = Vec::new();
    while all.len() < wanted.len() {
        let changes = tokio::time::timeout(std::time::Duration::from_secs(5), watch.next()).await;
        all.extend(changes.unwrap_or_else(|_| panic!("{wanted:?} is not heard, but {all:?}")).unwrap());
    }
    let wanted: Vec<_> = wanted.iter().map(|(action, name)| (*action, (*name).to_owned())).collect();
    assert_eq!(all, wanted);
}

#[tokio::test]
async fn watchers_hear_of_the_share_itself_and_of_others_in_order() {
    let f = Fixture::new().await;
    let ann = f.tree("ann");
    make(&ann, "before", "").await;
    let mut watch = observe(&ann, "", false).await;
    make(&ann, "own", "").await;
    let guarded = larder_fs::CreateMode::Guarded;
    f.volume.create(&Cred::root(), Ino::ROOT, b"other", guarded, SetAttr::default()).await.unwrap();
    // Under the name as it is stored.
    ann.modified(&path("OWN"), 0x10).await;
    heard(&mut watch, &[(ADDED, "own"), (ADDED, "other"), (MODIFIED, "own")]).await;
    ann.settle_notices().await;
}

#[tokio::test]
async fn renames_are_told_as_windows_tells_them() {
    let f = Fixture::new().await;
    let ann = f.tree("ann");
    for name in ["a", "t.txt", "x"] {
        make(&ann, name, "").await;
    }
    mkdir(&ann, "d").await;
    let mut watch = observe(&ann, "", true).await;
    rename(&ann, "a", "t.txt", true).await.unwrap();
    heard(&mut watch, &[(REMOVED, "t.txt"), (OLD_NAME, "a"), (NEW_NAME, "t.txt")]).await;
    rename(&ann, "x", "X", false).await.unwrap();
    heard(&mut watch, &[(REMOVED, "x"), (OLD_NAME, "x"), (NEW_NAME, "X")]).await;
    rename(&ann, "X", "d\\X", false).await.unwrap();
    heard(&mut watch, &[(REMOVED, "X"), (ADDED, "d\\X")]).await;
}

#[tokio::test]
async fn a_watch_of_a_tree_hears_of_everybody_at_any_depth() {
    let f = Fixture::new().await;
    let (ann, cred) = (f.tree("ann"), Cred::root());
    for dir in ["top", "top\\a", "top\\a\\b", "top\\c", "beside"] {
        mkdir(&ann, dir).await;
    }
    let ino = async |path: &str| {
        let mut at = Ino::ROOT;
        for name in path.split('/') {
            at = f.volume.lookup(&cred, at, name.as_bytes(), larder_fs::NameMatch::Exact).await.unwrap().id.ino;
        }
        at
    };
    let mut watch = observe(&ann, "top", true).await;
    let mut root = observe(&ann, "", true).await;
    let (top, a, b, c) = (ino("top").await, ino("top/a").await, ino("top/a/b").await, ino("top/c").await);
    let beside = ino("beside").await;
    let create = async |dir, name: &[u8]| {
        let guarded = larder_fs::CreateMode::Guarded;
        f.volume.create(&cred, dir, name, guarded, SetAttr::default()).await.unwrap();
    };
    let rename = async |from, from_name: &[u8], to, to_name: &[u8]| {
        let mode = larder_fs::RenameMode::Replace;
        f.volume.rename(&cred, from, from_name, to, to_name, mode).await.unwrap();
    };
    make(&ann, "top\\a\\b\\own", "").await;
    create(beside, b"outside").await;
    create(b, b"deep").await;
    heard(&mut watch, &[(ADDED, r"a\b\own"), (ADDED, r"a\b\deep")]).await;
    heard(&mut root, &[(ADDED, r"top\a\b\own"), (ADDED, r"beside\outside"), (ADDED, r"top\a\b\deep")]).await;
    rename(b, b"deep", b, b"deeper").await;
    heard(&mut watch, &[(OLD_NAME, r"a\b\deep"), (NEW_NAME, r"a\b\deeper")]).await;
    rename(a, b"b", c, b"d").await;
    heard(&mut watch, &[(REMOVED, r"a\b"), (ADDED, r"c\d")]).await;
    create(b, b"moved").await;
    f.volume.unlink(&cred, b, b"moved").await.unwrap();
    heard(&mut watch, &[(ADDED, r"c\d\moved"), (REMOVED, r"c\d\moved")]).await;
    name_of(&ann, "top\\c").await.rename(&path("top\\e"), false).await.unwrap();
    let (made, _) = f.volume.mkdir(&cred, b, b"new", SetAttr::default()).await.unwrap();
    create(made.id.ino, b"in").await;
    heard(&mut watch, &[(OLD_NAME, "c"), (NEW_NAME, "e"), (ADDED, r"e\d\new"), (ADDED, r"e\d\new\in")]).await;
    rename(c, b"d", beside, b"gone").await;
    create(b, b"unheard").await;
    create(top, b"last").await;
    heard(&mut watch, &[(REMOVED, r"e\d"), (ADDED, "last")]).await;
    f.volume.unlink(&cred, top, b"last").await.unwrap();
    heard(&mut watch, &[(REMOVED, "last")]).await;
    for (dir, name) in [(top, "a"), (top, "e")] {
        f.volume.rmdir(&cred, dir, name.as_bytes()).await.unwrap();
    }
    heard(&mut watch, &[(REMOVED, "a"), (REMOVED, "e")]).await;
    f.volume.rmdir(&cred, Ino::ROOT, b"top").await.unwrap();
    assert_eq!(watch.next().await, Err(DELETE_PENDING));
}

#[tokio::test]
async fn a_watcher_that_falls_behind_hears_that_changes_are_lost() {
    let f = Fixture::new().await;
    let ann = f.tree("ann");
    mkdir(&ann, "d").await;
    let mut watch = observe(&ann, "", true).await;
    let dir = f.volume.lookup(&Cred::root(), Ino::ROOT, b"d", larder_fs::NameMatch::Exact).await.unwrap().id.ino;
    let create = async |name: String| {
        let guarded = larder_fs::CreateMode::Guarded;
        f.volume.create(&Cred::root(), dir, name.as_bytes(), guarded, SetAttr::default()).await.unwrap();
    };
    for n in 0..9000 {
        create(format!("f{n}")).await;
    }
    ann.settle_notices().await;
    assert_eq!(watch.next().await, Err(ENUM_DIR));
    create("after".to_owned()).await;
    heard(&mut watch, &[(ADDED, "d\\after")]).await;
}

#[tokio::test]
async fn sparse_files_tell_their_ranges_and_give_storage_back() {
    const CHUNK: u64 = 1 << 20;
    let f = Fixture::new().await;
    let ann = f.tree("ann");
    let (handle, _) = open(&ann, "f", OpenIntent::Create, rights::WRITE_DATA).await.unwrap();
    handle.set_sparse(true).await.unwrap();
    handle.set_attributes(rights::DOS_ARCHIVE).await.unwrap();
    assert_eq!(handle.stat().await.unwrap().attributes(), rights::DOS_ARCHIVE | rights::DOS_SPARSE);
    let data = Bytes::from(vec![1; CHUNK as usize]);
    for at in [0, 4 * CHUNK] {
        handle.write_bytes(at, data.clone()).await.unwrap();
    }
    let all = 0..5 * CHUNK;
    let both = [0..CHUNK, 4 * CHUNK..5 * CHUNK];
    assert_eq!(handle.allocated_ranges(all.clone(), 10).await.unwrap(), both);
    assert_eq!(handle.allocated_ranges(all.clone(), 1).await.unwrap(), both[..1]);
    let inner = handle.allocated_ranges(100..4 * CHUNK + 100, 10).await.unwrap();
    assert_eq!(inner, [100..CHUNK, 4 * CHUNK..4 * CHUNK + 100]);
    handle.zero_range(0..2 * CHUNK).await.unwrap();
    assert_eq!(handle.allocated_ranges(all, 10).await.unwrap(), both[1..]);
    assert_eq!(read(&handle).await[..10], [0; 10]);
    handle.zero_range(4 * CHUNK..u64::MAX >> 1).await.unwrap();
    assert_eq!(handle.stat().await.unwrap().end_of_file, 5 * CHUNK, "the size stays");
}

#[tokio::test]
async fn owners_alone_change_the_security_of_a_file() {
    let f = Fixture::new().await;
    let (ann, bob) = (f.tree("ann"), f.tree("bob"));
    make(&ann, "f", "x").await;
    let (own, _) = open(&ann, "f", OpenIntent::Open, rights::READ_DATA).await.unwrap();
    let (other, _) = open(&bob, "f", OpenIntent::Open, rights::READ_DATA).await.unwrap();
    // The server asks before it lets an open change them.
    let changing = acl::WRITE_DAC | acl::WRITE_OWNER;
    assert_eq!([own.maximal_access() & changing, other.maximal_access() & changing], [changing, 0]);
    let mut descriptor = own.security().await.unwrap();
    assert_eq!(descriptor.owner, Some(larder_smb_wire::security::Sid::new(22, &[1, 1000])));
    descriptor.dacl = Some(larder_smb_wire::security::Dacl::Rules(Vec::new()));
    own.set_security(descriptor.clone()).await.unwrap();
    refused(open(&bob, "f", OpenIntent::Open, rights::READ_DATA).await, SmbError::AccessDenied);
    descriptor.owner = Some(larder_smb_wire::security::Sid::new(22, &[1, 1001]));
    assert!(own.set_security(descriptor).await.is_err(), "files are not given away");
}

#[tokio::test]
async fn a_moment_leads_to_the_share_as_it_was() {
    let f = Fixture::new().await;
    let ann = f.tree("ann");
    assert!(ann.moments().is_empty());
    mkdir(&ann, "d").await;
    make(&ann, "d\\f", "then").await;
    let one = f.snapshot("one").await;
    let (handle, _) = open(&ann, "d\\f", OpenIntent::Open, rights::WRITE_DATA).await.unwrap();
    handle.write_bytes(0, Bytes::from_static(b"now!")).await.unwrap();
    make(&ann, "d\\later", "x").await;
    let two = f.snapshot("two").await;
    let labels: Vec<String> = ann.moments().into_iter().map(larder_smb_wire::moment::Moment::label).collect();
    assert_eq!(labels, [two.as_str(), one.as_str()]);
    for name in [format!("{one}\\d\\f"), format!("d\\{one}\\F"), format!("d\\f\\{one}")] {
        assert_eq!(content(&ann, &name).await, "then", "{name}");
    }
    assert_eq!(content(&ann, &format!("{two}\\d\\f")).await, "now!");
    assert_eq!(listing(&*mkdir(&ann, &one).await).await, ["d"]);
    assert_eq!(listing(&*mkdir(&ann, &format!("d\\{one}")).await).await, ["f"]);
    refused(open(&ann, &format!("{one}\\d\\later"), OpenIntent::Open, 0).await, SmbError::NotFound);
    refused(open(&ann, "@GMT-2001.02.03-04.05.06\\d\\f", OpenIntent::Open, 0).await, SmbError::NotFound);
    refused(open(&ann, "@GMT-2001.02.03-04.05.06", OpenIntent::OpenOrCreate, 0).await, SmbError::NotFound);
}

#[tokio::test]
async fn nothing_changes_in_the_past() {
    let f = Fixture::new().await;
    let ann = f.tree("ann");
    make(&ann, "f", "then").await;
    let one = f.snapshot("one").await;
    let name = format!("{one}\\f");
    let protected = || SmbError::Status(0xC000_00A2);
    // Programs that open everything for writing may read.
    let (handle, _) = open(&ann, &name, OpenIntent::Open, rights::READ_DATA | rights::WRITE_DATA).await.unwrap();
    let written = handle.write_bytes(0, Bytes::from_static(b"x")).await.unwrap_err();
    assert_eq!(written.to_nt_status(), protected().to_nt_status());
    assert_eq!(handle.truncate(0).await.unwrap_err().to_nt_status(), protected().to_nt_status());
    assert!(handle.is_past() && handle.stat().await.unwrap().read_only);
    refused(open(&ann, &name, OpenIntent::Truncate, rights::WRITE_DATA).await, protected());
    refused(open(&ann, &name, OpenIntent::OverwriteOrCreate, rights::WRITE_DATA).await, protected());
    refused(open(&ann, &format!("{one}\\new"), OpenIntent::Create, rights::WRITE_DATA).await, protected());
    let (past, new) = (path(&name), path("new"));
    let (of_past, of_today) = (handle.name(), name_of(&ann, "f").await);
    for outcome in [
        of_past.remove().await,
        of_past.rename(&new, false).await,
        of_today.rename(&past, true).await,
        of_today.link(&past, false).await,
        of_past.link(&new, false).await,
    ] {
        assert_eq!(outcome.unwrap_err().to_nt_status(), protected().to_nt_status());
    }
    assert_eq!(content(&ann, &name).await, "then");
    assert_eq!(content(&ann, "f").await, "then");
    // Whoever may not search the share today does not search its past.
    f.volume.setattr(&Cred::root(), Ino::ROOT, SetAttr { mode: Some(0o700), ..SetAttr::default() }).await.unwrap();
    refused(open(&ann, &name, OpenIntent::Open, 0).await, SmbError::AccessDenied);
}

#[tokio::test]
async fn the_past_of_a_shared_folder_is_found_by_number_and_ends_at_it() {
    let mut f = Fixture::new().await;
    let whole = f.tree("ann");
    make(&whole, "secret", "secret").await;
    let before = f.snapshot("before").await;
    mkdir(&whole, "old name").await;
    mkdir(&whole, "old name\\sub").await;
    mkdir(&whole, "moved in").await;
    make(&whole, "old name\\f", "then").await;
    let root = Cred::root();
    let folder = f.volume.lookup(&root, Ino::ROOT, b"old name", larder_fs::NameMatch::Exact).await.unwrap().id.ino;
    let sub = f.volume.lookup(&root, folder, b"sub", larder_fs::NameMatch::Exact).await.unwrap().id.ino;
    for (dir, name, target) in [
        (folder, "up", "../secret"),
        (sub, "far", "../../secret"),
        (sub, "in", "../f"),
        (sub, "top", "../../../f"),
        (folder, "past", "moved in/.snapshots/one/../secret"),
    ] {
        f.volume.symlink(&root, dir, name.as_bytes(), target.as_bytes(), SetAttr::default()).await.unwrap();
    }
    let one = f.snapshot("one").await;
    rename(&whole, "old name", "new name", false).await.unwrap();
    rename(&whole, "moved in", "new name\\moved in", false).await.unwrap();
    f.share_folder(folder);
    let ann = f.tree("ann");
    assert_eq!(ann.moments().len(), 1, "the folder is younger than the first snapshot");
    refused(open(&ann, &before, OpenIntent::Open, 0).await, SmbError::NotFound);
    assert_eq!(content(&ann, &format!("{one}\\f")).await, "then");
    for name in ["in", "top"] {
        assert_eq!(content(&ann, &format!("{one}\\sub\\{name}")).await, "then", "{name}");
        assert_eq!(content(&ann, &format!("sub\\{name}")).await, "then", "{name}");
        assert_eq!(content(&ann, &format!(".snapshots\\one\\sub\\{name}")).await, "then", "{name}");
    }
    for at in [format!("{one}\\"), ".snapshots\\one\\".to_owned(), String::new()] {
        for name in ["up", "sub\\far", "past"] {
            refused(open(&ann, &format!("{at}{name}"), OpenIntent::Open, 0).await, SmbError::NotFound);
        }
    }
}
