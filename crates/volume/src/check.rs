//! `larder check`: every invariant of the namespace, from the records themselves.
//!
//! Memory is bounded by the number of inodes, not of entries: of a directory's entries only sums of
//! hashes are kept per table; where the sums of two tables differ the directory is compared name by
//! name.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use larder_base::checksum::checksum;
use larder_fs::*;

use crate::charge;
use crate::inode_core;
use crate::keys::{self, Entry, tag};
use crate::meta::Meta;
use crate::own_records;
use crate::state::State;

const PAGE: usize = 4096;
/// More sentences help no reader.
const PROBLEMS_MAX: usize = 1000;
/// A volume that changes during the check is checked again, this many times at most; what is found each time is wrong.
const RUNS_MAX: usize = 3;
const DEPTH_MAX: usize = 256;
/// Of more snapshots than these, evenly spread ones are read whole.
const SNAPSHOTS_MAX: usize = 100;

/// The result of [`crate::Registry::check`].
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CheckReport {
    /// Inodes that exist.
    pub inodes: u64,
    /// Names in directories.
    pub entries: u64,
    /// Extents of files.
    pub extents: u64,
    /// Segment objects in the table.
    pub segments: u64,
    /// Bytes of file data, holes left out.
    pub data_bytes: u64,
    /// One sentence each, naming the inode (and a path where one is known), what is wrong and what
    /// it means.
    pub problems: Vec<String>,
    /// Which of the problems begin with the number of an inode whose path is not in them yet.
    #[serde(skip)]
    pub(crate) of_inodes: Vec<(usize, Ino)>,
}

/// The content of an inode's record, and the findings in other tables about it.
struct Seen {
    kind: FileKind,
    nlink: u32,
    entries: u64,
    next_cookie: u64,
    parent: Ino,
    xattrs: u32,
    /// 0: not counted by the program that wrote the record.
    xattr_bytes: u64,
    found: Found,
}

#[derive(Default)]
struct Found {
    names: u32,
    holder: Holder,
    entries: u64,
    subdirs: u32,
    xattrs: u32,
    xattr_bytes: u64,
    orphan: bool,
    by_name: u64,
    by_cookie: u64,
    folded_due: u64,
    folded: u64,
}

impl Found {
    fn attribute(&mut self, name: &[u8], value: &[u8]) {
        self.xattrs += 1;
        if !own_records::is_own(name) {
            self.xattr_bytes += charge::attribute_bytes(name, value);
        }
    }
}

/// A number that may be none.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Holder(u64);

pub(crate) fn check(state: &Arc<State>, read_data: bool) -> BoxFuture<'_, FsResult<CheckReport>> {
    Box::pin(async move {
        let mut runs = 0;
        let mut earlier: Option<HashSet<String>> = None;
        loop {
            runs += 1;
            // Dirty data would change records while they are compared.
            state.data.sync_all().await?;
            let before = state.meta.newest();
            let mut run =
                Run { state, seen: HashMap::new(), allocated: HashSet::new(), report: CheckReport::default() };
            run.all().await?;
            let allocated = std::mem::take(&mut run.allocated);
            state.data.check(read_data, allocated, &mut run.report).await?;
            run.snapshots(read_data).await?;
            run.name_inodes().await?;
            let problems = &mut run.report.problems;
            if problems.is_empty() || state.meta.newest() == before {
                return Ok(run.report);
            }
            // A change by another client looks like a contradiction, once. What is wrong is found again.
            if let Some(earlier) = &earlier {
                problems.retain(|problem| earlier.contains(problem));
            }
            if runs == RUNS_MAX || (runs > 1 && problems.is_empty()) {
                return Ok(run.report);
            }
            earlier = Some(problems.drain(..).collect());
        }
    })
}

struct Run<'a> {
    state: &'a Arc<State>,
    seen: HashMap<u64, Seen>,
    /// Inodes whose records say that they take up room.
    allocated: HashSet<u64>,
    report: CheckReport,
}

impl Run<'_> {
    async fn all(&mut self) -> FsResult<()> {
        self.inodes().await?;
        if self.state.is_copying().await? {
            // Names and links of a half are not those of a whole.
            return self.counters().await;
        }
        self.entries().await?;
        self.cookies().await?;
        self.folded().await?;
        self.xattrs().await?;
        self.orphans().await?;
        self.judge().await?;
        self.counters().await
    }

    /// Each snapshot can be read; with `read_data` its extents lie in segments that are kept for it.
    async fn snapshots(&mut self, read_data: bool) -> FsResult<()> {
        let all = self.state.catalog.names();
        let step = all.len().div_ceil(SNAPSHOTS_MAX).max(1);
        for (at, (number, name)) in all.iter().enumerate() {
            let outcome = match self.state.catalog.view(*number).await {
                Ok(view) if read_data && at % step == 0 => {
                    self.state.data.check_snapshot((*number, name), &view, &mut self.report).await
                }
                other => other.map(drop),
            };
            match outcome {
                // Destroyed meanwhile.
                Err(FsError::Stale) | Ok(()) => {}
                Err(error) => self.problem(format!("snapshot {name} cannot be read: {error}")),
            }
        }
        Ok(())
    }

    fn meta(&self) -> &dyn Meta {
        &*self.state.meta
    }

    fn problem(&mut self, text: String) {
        if self.report.problems.len() < PROBLEMS_MAX {
            self.report.problems.push(text);
        }
    }

    /// A record that does not decode is a problem to report, not the end of the check.
    fn decoded<T>(&mut self, result: FsResult<T>) -> FsResult<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(FsError::Io(why)) => {
                self.problem(why.to_string());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn inodes(&mut self) -> FsResult<()> {
        let mut pages = Pages::of(tag::INODE);
        while let Some(page) = pages.next(self.meta()).await? {
            for (key, value) in page {
                let decoded = keys::ino_of(&key).and_then(|ino| Ok((ino, keys::decode_inode(ino, &value)?)));
                let Some((ino, core)) = self.decoded(decoded)? else { continue };
                self.report.inodes += 1;
                if core.stored_bytes > 0 {
                    self.allocated.insert(ino.0);
                }
                let seen = Seen {
                    kind: core.attr.kind,
                    nlink: core.attr.nlink,
                    entries: core.entries,
                    next_cookie: core.next_cookie,
                    parent: core.parent,
                    xattrs: core.xattrs,
                    xattr_bytes: core.xattr_bytes,
                    found: Found::default(),
                };
                self.seen.insert(ino.0, seen);
            }
        }
        Ok(())
    }

    async fn entries(&mut self) -> FsResult<()> {
        let mut pages = Pages::of(tag::ENTRY);
        while let Some(page) = pages.next(self.meta()).await? {
            for (key, value) in page {
                let decoded = keys::ino_of(&key).and_then(|dir| Ok((dir, keys::decode_entry(&key, &value)?)));
                let Some((dir, entry)) = self.decoded(decoded)? else { continue };
                self.report.entries += 1;
                self.entry(dir, &keys::rest_of(&key), entry);
            }
        }
        Ok(())
    }

    fn entry(&mut self, dir: Ino, name: &[u8], entry: Entry) {
        let shown = String::from_utf8_lossy(name).into_owned();
        let folded = larder_fs::judge::fold(name);
        let Some(holder) = self.seen.get_mut(&dir.0).filter(|seen| seen.kind == FileKind::Directory) else {
            return self
                .problem(format!("'{shown}' lies in inode {}, which is no directory: it cannot be reached", dir.0));
        };
        holder.found.entries += 1;
        holder.found.by_name = holder.found.by_name.wrapping_add(entry_hash(name, entry));
        if folded != name {
            holder.found.folded_due = holder.found.folded_due.wrapping_add(checksum(0, name));
        }
        if entry.kind == FileKind::Directory {
            holder.found.subdirs += 1;
        }
        let past = entry.cookie >= holder.next_cookie || entry.cookie < inode_core::FIRST_COOKIE;
        if past {
            self.problem(format!(
                "'{shown}' in directory {} has cookie {}, which is not given out yet",
                dir.0, entry.cookie
            ));
        }
        match self.seen.get_mut(&entry.ino.0) {
            None => self.problem(format!(
                "'{shown}' in directory {} leads to inode {}, which does not exist: the name cannot be opened",
                dir.0, entry.ino.0
            )),
            Some(target) => {
                target.found.names += 1;
                target.found.holder = Holder(dir.0);
                if target.kind != entry.kind {
                    self.problem(format!("'{shown}' in directory {} and inode {} differ in type", dir.0, entry.ino.0));
                }
            }
        }
    }

    async fn cookies(&mut self) -> FsResult<()> {
        let mut pages = Pages::of(tag::COOKIE);
        while let Some(page) = pages.next(self.meta()).await? {
            for (key, value) in page {
                let decoded = keys::ino_of(&key).and_then(|dir| Ok((dir, keys::decode_cookie(&key, &value)?)));
                let Some((dir, listed)) = self.decoded(decoded)? else { continue };
                let entry = Entry { ino: listed.ino, kind: listed.kind, cookie: listed.cookie };
                match self.seen.get_mut(&dir.0) {
                    Some(seen) => {
                        seen.found.by_cookie = seen.found.by_cookie.wrapping_add(entry_hash(&listed.name, entry))
                    }
                    None => {
                        self.problem(format!("a listing record belongs to directory {}, which does not exist", dir.0))
                    }
                }
            }
        }
        Ok(())
    }

    async fn folded(&mut self) -> FsResult<()> {
        let mut pages = Pages::of(tag::FOLDED);
        while let Some(page) = pages.next(self.meta()).await? {
            for (key, _) in page {
                let Some(dir) = self.decoded(keys::ino_of(&key))? else { continue };
                let rest = keys::rest_of(&key);
                let mut parts = rest.splitn(2, |&byte| byte == 0);
                let (folded, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                if larder_fs::judge::fold(name) != folded {
                    self.problem(format!("a case-folded name in directory {} does not fold as it should", dir.0));
                }
                match self.seen.get_mut(&dir.0) {
                    Some(seen) => seen.found.folded = seen.found.folded.wrapping_add(checksum(0, name)),
                    None => {
                        self.problem(format!("a case-folded name belongs to directory {}, which does not exist", dir.0))
                    }
                }
            }
        }
        Ok(())
    }

    async fn xattrs(&mut self) -> FsResult<()> {
        let mut pages = Pages::of(tag::XATTR);
        while let Some(page) = pages.next(self.meta()).await? {
            for (key, value) in page {
                let decoded = keys::ino_of(&key).and_then(|ino| Ok((ino, keys::decode_xattr(&key, &value)?)));
                let Some((ino, value)) = self.decoded(decoded)? else { continue };
                let name = keys::rest_of(&key);
                if let Some(dir) = own_records::directory_in(&name, &value) {
                    self.named_dir(ino, dir);
                }
                match self.seen.get_mut(&ino.0) {
                    Some(seen) => seen.found.attribute(&name, &value),
                    None => {
                        self.problem(format!("an extended attribute belongs to inode {}, which does not exist", ino.0))
                    }
                }
            }
        }
        Ok(())
    }

    /// A directory of named attributes lies in its owner as others lie in their parent.
    fn named_dir(&mut self, owner: Ino, dir: Ino) {
        match self.seen.get_mut(&dir.0).filter(|seen| seen.kind == FileKind::Directory) {
            Some(seen) => {
                seen.found.names += 1;
                seen.found.holder = Holder(owner.0);
            }
            None => self.problem(format!(
                "the named attributes of inode {} should lie in directory {}, which does not exist",
                owner.0, dir.0
            )),
        }
    }

    async fn orphans(&mut self) -> FsResult<()> {
        let mut pages = Pages::of(tag::ORPHAN);
        while let Some(page) = pages.next(self.meta()).await? {
            for (key, _) in page {
                let Some(ino) = self.decoded(keys::ino_of(&key))? else { continue };
                match self.seen.get_mut(&ino.0) {
                    Some(seen) => seen.found.orphan = true,
                    None => self.problem(format!("inode {} is marked as orphan and does not exist", ino.0)),
                }
            }
        }
        Ok(())
    }

    async fn judge(&mut self) -> FsResult<()> {
        let mut differing = Vec::new();
        let mut problems = Vec::new();
        for (&ino, seen) in &self.seen {
            let mut say = |text: String| problems.push((ino, text));
            judge_links(ino, seen, &mut say);
            if seen.found.xattrs != seen.xattrs {
                say(format!("says that it has {} extended attributes and has {}", seen.xattrs, seen.found.xattrs));
            }
            if seen.xattr_bytes != 0 && seen.found.xattr_bytes != seen.xattr_bytes {
                let (has, says) = (seen.found.xattr_bytes, seen.xattr_bytes);
                say(format!(
                    "says that its extended attributes have {says} bytes and they have {has}: quotas count it wrongly"
                ));
            }
            if seen.kind == FileKind::Directory {
                judge_directory(ino, seen, &mut say);
                if seen.found.by_name != seen.found.by_cookie {
                    differing.push(Ino(ino));
                }
                if !self.reaches_root(ino) && seen.nlink > 0 {
                    say("cannot be reached from the root directory".into());
                }
            }
        }
        problems.sort();
        for (ino, text) in problems {
            let path = self.path_of(Ino(ino)).await?;
            self.problem(format!("inode {ino}{path} {text}"));
        }
        for dir in differing {
            self.compare(dir).await?;
        }
        Ok(())
    }

    /// A problem that begins with `inode N` is told with the path.
    async fn name_inodes(&mut self) -> FsResult<()> {
        for (at, ino) in std::mem::take(&mut self.report.of_inodes) {
            let path = self.path_of(ino).await?;
            let behind = format!("inode {}", ino.0).len();
            if let Some(text) = self.report.problems.get_mut(at) {
                text.insert_str(behind, &path);
            }
        }
        Ok(())
    }

    fn reaches_root(&self, mut ino: u64) -> bool {
        // A loop of directories is longer than any path.
        for _ in 0..1 << 16 {
            if ino == Ino::ROOT.0 {
                return true;
            }
            match self.seen.get(&ino) {
                // Named attributes of a file that is open without a name.
                Some(seen) if seen.found.orphan => return true,
                Some(seen) if seen.found.holder != Holder(0) => ino = seen.found.holder.0,
                _ => return false,
            }
        }
        false
    }

    /// Says which entries differ between the tables by name and by cookie.
    async fn compare(&mut self, dir: Ino) -> FsResult<()> {
        let mut by_cookie = HashMap::new();
        let mut pages = Pages::within(tag::COOKIE, dir);
        while let Some(page) = pages.next(self.meta()).await? {
            for (key, value) in page {
                let Some(listed) = self.decoded(keys::decode_cookie(&key, &value))? else { continue };
                by_cookie.insert(listed.name.clone(), (listed.ino, listed.kind, listed.cookie));
            }
        }
        let path = self.path_of(dir).await?;
        let mut pages = Pages::within(tag::ENTRY, dir);
        while let Some(page) = pages.next(self.meta()).await? {
            for (key, value) in page {
                let name = keys::rest_of(&key);
                let Some(entry) = self.decoded(keys::decode_entry(&key, &value))? else { continue };
                let listed = by_cookie.remove(&name);
                if listed != Some((entry.ino, entry.kind, entry.cookie)) {
                    let name = String::from_utf8_lossy(&name);
                    self.problem(format!(
                        "'{name}' in directory {}{path} can be opened but is not listed as it should",
                        dir.0
                    ));
                }
            }
        }
        for name in by_cookie.into_keys() {
            let name = String::from_utf8_lossy(&name);
            self.problem(format!("'{name}' in directory {}{path} is listed but does not exist", dir.0));
        }
        Ok(())
    }

    /// ` (/path)`, or nothing where none is known.
    async fn path_of(&self, ino: Ino) -> FsResult<String> {
        let mut parts: Vec<String> = Vec::new();
        let mut at = ino;
        while at != Ino::ROOT && parts.len() < DEPTH_MAX {
            let Some(holder) = self.seen.get(&at.0).map(|seen| seen.found.holder.0).filter(|&holder| holder != 0)
            else {
                return Ok(String::new());
            };
            let Some(name) = self.name_in(Ino(holder), at).await? else { return Ok(String::new()) };
            parts.push(String::from_utf8_lossy(&name).into_owned());
            at = Ino(holder);
        }
        parts.reverse();
        Ok(format!(" (/{})", parts.join("/")))
    }

    async fn name_in(&self, dir: Ino, ino: Ino) -> FsResult<Option<Bytes>> {
        let mut pages = Pages::within(tag::ENTRY, dir);
        while let Some(page) = pages.next(self.meta()).await? {
            for (key, value) in page {
                if keys::decode_entry(&key, &value).is_ok_and(|entry| entry.ino == ino) {
                    return Ok(Some(keys::rest_of(&key)));
                }
            }
        }
        Ok(None)
    }

    async fn counters(&mut self) -> FsResult<()> {
        let counted = self.state.meta.usage().inodes;
        let inodes = self.report.inodes;
        if counted != inodes as i64 {
            self.problem(format!("the volume counts {counted} inodes and has {inodes}: statfs tells a wrong number"));
        }
        if !self.seen.contains_key(&Ino::ROOT.0) {
            self.problem("the root directory is missing: nothing can be reached".into());
        }
        let next = match self.meta().get(keys::NEXT_INO_KEY).await? {
            Some(value) => self.decoded(keys::decode_next_ino(&value))?.unwrap_or(u64::MAX),
            None => 0,
        };
        if let Some(&newest) = self.seen.keys().max()
            && newest >= next
        {
            self.problem(format!(
                "inode {newest} is beyond the counter of numbers ({next}): it could be given out twice"
            ));
        }
        Ok(())
    }
}

fn judge_links(ino: u64, seen: &Seen, say: &mut impl FnMut(String)) {
    let found = &seen.found;
    if seen.nlink == 0 {
        if found.names > 0 {
            say(format!("has no links and {} names", found.names));
        }
        if !found.orphan {
            say("has no links and is not marked as orphan: its space is never freed".into());
        }
        return;
    }
    if found.orphan {
        say(format!("is marked as orphan and has {} links: it would be deleted", seen.nlink));
    }
    let links_due = match seen.kind {
        FileKind::Directory => 2 + found.subdirs,
        _ => found.names,
    };
    if seen.nlink != links_due {
        say(format!("has a link count of {}, and {links_due} were found", seen.nlink));
    }
    let names_due = u32::from(ino != Ino::ROOT.0);
    if seen.kind == FileKind::Directory && found.names != names_due {
        say(format!("is a directory with {} names", found.names));
    }
}

fn judge_directory(ino: u64, seen: &Seen, say: &mut impl FnMut(String)) {
    let found = &seen.found;
    if found.entries != seen.entries {
        say(format!("says that it has {} entries and has {}", seen.entries, found.entries));
    }
    if found.folded != found.folded_due {
        say("has case-folded names that do not agree with its entries: SMB may not find some".into());
    }
    if ino != Ino::ROOT.0 && found.names == 1 && found.holder.0 != seen.parent.0 {
        say(format!("takes directory {} for its parent and lies in {}", seen.parent.0, found.holder.0));
    }
}

fn entry_hash(name: &[u8], entry: Entry) -> u64 {
    checksum(entry.ino.0 ^ entry.cookie.rotate_left(32) ^ (entry.kind as u64) << 56, name)
}

/// A table, page by page.
pub(crate) struct Pages {
    from: Bytes,
    to: Bytes,
}

impl Pages {
    pub(crate) fn of(tag: u8) -> Self {
        let (from, to) = keys::table_range(tag);
        Self { from, to }
    }

    pub(crate) fn within(tag: u8, ino: Ino) -> Self {
        let (from, to) = keys::range_of(tag, ino);
        Self { from, to }
    }

    pub(crate) async fn next(&mut self, meta: &dyn Meta) -> FsResult<Option<Vec<(Bytes, Bytes)>>> {
        let page = meta.scan(&self.from, &self.to, PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(None) };
        // The least key after this one.
        self.from = [&last[..], &[0]].concat().into();
        Ok(Some(page))
    }
}
