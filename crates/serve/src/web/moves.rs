//! MKCOL, DELETE, COPY and MOVE (RFC 4918 9.3, 9.6, 9.8, 9.9).
//!
//! - `moves.replaced_last`: what is overwritten stays whole until its successor is: a copy is made beside
//!   it under a hidden name, and the two change places in one step. Only then the old one is removed.
//! - `moves.errors_are_named`: what could not be copied or removed is named in a multi-status, and an
//!   error leaves what it concerns as it was.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use hyper::StatusCode;
use larder_volume::{Attr, FileKind, FsError, Ino, NameMatch, RenameMode, SetAttr};

use super::conditions;
use super::context::{Answer, Context, Depth, file_key, status, xml as xml_answer};
use super::fail::Fail;
use super::locks::Held;
use super::path::{Place, is_within, join, push_href};
use super::upload::{UMASK, Upload};
use crate::tree::{Entry, Room, Spot};

/// Failures that one answer names; of more there is no use.
const FAILURES_MAX: usize = 100;
const ENTRIES_AT_ONCE: usize = 128;
const COPY_BYTES: usize = 1 << 20;

/// Paths, and what went wrong at each.
type Failures = Vec<(Bytes, Fail)>;

pub async fn mkcol(context: &Context, body: &[u8]) -> Answer {
    if !body.is_empty() {
        return Err(Fail::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "a folder is made without a body"));
    }
    let path = &context.place.path;
    let spot = context.look(path).await?;
    if spot.is_some() {
        return Err(Fail::new(StatusCode::METHOD_NOT_ALLOWED, "it exists already"));
    }
    let Entry { room, dir, name } = context.view.entry(path).await.map_err(|e| Fail::from(e).of_parent())?;
    context.check_conditions(None).await?;
    let tokens = context.tokens()?;
    context.check_locks(path, None, &tokens)?;
    context.check_parent_locks(path, &tokens)?;
    let set = SetAttr { mode: Some(0o777 & !UMASK), ..SetAttr::default() };
    match room.to_change()?.mkdir(&room.cred, dir, &name, set).await {
        Ok(_) => Ok(status(StatusCode::CREATED)),
        Err(FsError::Exists) => Err(Fail::new(StatusCode::METHOD_NOT_ALLOWED, "it exists already")),
        Err(error) => Err(error.into()),
    }
}

/// The name itself, not what a symbolic link of that name leads to.
async fn named(context: &Context, path: &Bytes) -> Result<(Entry, Attr), Fail> {
    let entry = context.view.entry(path).await?;
    let attr = entry.room.files().lookup(&entry.room.cred, entry.dir, &entry.name, NameMatch::Exact).await?;
    Ok((entry, attr))
}

pub async fn delete(context: &Context) -> Answer {
    let path = &context.place.path;
    let (entry, attr) = named(context, path).await?;
    if context.place.slash && attr.kind == FileKind::File {
        return Err(Fail::not_found());
    }
    if attr.kind == FileKind::Directory && context.depth(Depth::Infinity)? != Depth::Infinity {
        return Err(Fail::bad_request("a folder is removed with depth infinity alone"));
    }
    let spot = Spot::In(entry.room.clone(), attr);
    context.check_conditions(Some(&spot)).await?;
    may_remove(context, path, &spot)?;
    entry.room.to_change()?;
    let mut failures = context.shared.locks.locked_below(path, &context.user.name, &context.tokens()?);
    if failures.is_empty() {
        let doomed = Doomed { kind: attr.kind, room: entry.room, dir: entry.dir, name: entry.name, keeps: true };
        remove_tree(doomed, path.clone(), &mut failures).await;
    }
    if failures.is_empty() {
        context.shared.locks.forget(path);
    }
    outcome(path, failures, StatusCode::NO_CONTENT)
}

/// Locks of it and of the folder that it leaves.
fn may_remove(context: &Context, path: &Bytes, spot: &Spot) -> Result<(), Fail> {
    let tokens = context.tokens()?;
    context.check_locks(path, Some(spot), &tokens)?;
    context.check_parent_locks(path, &tokens)
}

/// One failure of the resource itself is the status; others are named one by one (RFC 4918 9.6.1).
fn outcome(path: &Bytes, mut failures: Failures, done: StatusCode) -> Answer {
    if failures.is_empty() {
        return Ok(status(done));
    }
    if let [(at, _)] = failures.as_slice()
        && at == path
        && let Some((_, fail)) = failures.pop()
    {
        return Err(fail);
    }
    let mut out = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\">".to_owned();
    for (path, fail) in &failures {
        out.push_str("<D:response><D:href>");
        push_href(&mut out, path, false);
        out.push_str(&format!("</D:href><D:status>HTTP/1.1 {}</D:status>", fail.status));
        if let Some(condition) = &fail.condition {
            out.push_str(&format!("<D:error>{condition}</D:error>"));
        }
        out.push_str("</D:response>");
    }
    out.push_str("</D:multistatus>");
    Ok(xml_answer(StatusCode::MULTI_STATUS, out))
}

/// A name that is to be removed, with everything below it.
#[derive(Clone)]
struct Doomed {
    room: Room,
    dir: Ino,
    name: Bytes,
    kind: FileKind,
    /// Into the bin of the share, if it has one: not what a copy or a move leaves over.
    keeps: bool,
}

/// Removes what has the name. What fails stays, and so do the folders around it.
fn remove_tree(doomed: Doomed, path: Bytes, failures: &mut Failures) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let Doomed { room, dir, name, kind, keeps } = &doomed;
        let before = failures.len();
        if *kind == FileKind::Directory
            && let Err(fail) = remove_entries(&doomed, &path, failures).await
        {
            failures.push((path.clone(), fail));
        }
        if failures.len() > before {
            return;
        }
        let files = room.to_change().map(|files| if *keeps { files.clone() } else { files.outright() });
        let done = match (files, kind) {
            (Err(no_way), _) => Err(no_way.into()),
            (Ok(files), FileKind::Directory) => files.rmdir(&room.cred, *dir, name).await.map(drop).map_err(Fail::from),
            (Ok(files), _) => files.unlink(&room.cred, *dir, name).await.map(drop).map_err(Fail::from),
        };
        match done {
            Err(fail) if !fail.is_not_found() && failures.len() < FAILURES_MAX => failures.push((path, fail)),
            _ => {}
        }
    })
}

async fn remove_entries(doomed: &Doomed, path: &Bytes, failures: &mut Failures) -> Result<(), Fail> {
    let room = &doomed.room;
    let files = room.files();
    let top = files.lookup(&room.cred, doomed.dir, &doomed.name, NameMatch::Exact).await?.id.ino;
    let mut cookie = 0;
    loop {
        let listing = files.readdir(&room.cred, top, cookie, ENTRIES_AT_ONCE, false).await?;
        for entry in &listing.entries {
            cookie = entry.cookie;
            let below = join(path, &entry.name);
            let entry = Doomed { dir: top, name: entry.name.clone(), kind: entry.kind, ..doomed.clone() };
            remove_tree(entry, below, failures).await;
            if failures.len() >= FAILURES_MAX {
                return Ok(());
            }
        }
        if listing.eof {
            return Ok(());
        }
    }
}

/// Both ends of a COPY or MOVE, looked at and allowed.
struct Ends {
    source: Attr,
    from: Entry,
    to: Entry,
    to_place: Place,
    /// What has the name of the destination now.
    old: Option<Attr>,
}

/// What COPY and MOVE have in common: where to, whether it may be there, and whether locks are in the way.
async fn ends(context: &Context, moves: bool) -> Result<Ends, Fail> {
    let to_place = conditions::destination(&context.headers)?;
    let (path, target) = (&context.place.path, &to_place.path);
    if context.place.is_top() || to_place.is_top() {
        return Err(Fail::forbidden("the list of shares is neither copied nor replaced"));
    }
    let (from, source) = named(context, path).await?;
    let spot = Spot::In(from.room.clone(), source);
    context.check_conditions(Some(&spot)).await?;
    if path == target {
        return Err(Fail::forbidden("source and destination are the same"));
    }
    if is_within(target, path) && source.kind == FileKind::Directory {
        return Err(Fail::forbidden("the destination is inside of the source"));
    }
    if is_within(path, target) {
        return Err(Fail::forbidden("the source is inside of what would be replaced"));
    }
    let overwrite = context.overwrite()?;
    let to = context.view.entry(target).await.map_err(|e| Fail::from(e).of_parent())?;
    let old = match to.room.files().lookup(&to.room.cred, to.dir, &to.name, NameMatch::Exact).await {
        Ok(old) => Some(old),
        Err(FsError::NotFound) => None,
        Err(error) => return Err(Fail::from(error).of_parent()),
    };
    if old.is_some() && !overwrite {
        return Err(Fail::new(StatusCode::PRECONDITION_FAILED, "the destination exists"));
    }
    if old.is_some_and(|old| old.id == source.id) && source.kind == FileKind::File {
        return Err(Fail::forbidden("source and destination are the same file"));
    }
    to.room.to_change()?;
    let tokens = context.tokens()?;
    if moves {
        from.room.to_change()?;
        may_remove(context, path, &spot)?;
    }
    let old_spot = old.map(|old| Spot::In(to.room.clone(), old));
    context.check_locks(target, old_spot.as_ref(), &tokens)?;
    context.check_parent_locks(target, &tokens)?;
    let user = &context.user.name;
    let mut locked = context.shared.locks.locked_below(target, user, &tokens);
    if moves {
        locked.extend(context.shared.locks.locked_below(path, user, &tokens));
    }
    match locked.into_iter().next() {
        Some((_, fail)) => Err(fail),
        None => Ok(Ends { source, from, to, to_place, old }),
    }
}

fn done(old: Option<Attr>) -> StatusCode {
    if old.is_some() { StatusCode::NO_CONTENT } else { StatusCode::CREATED }
}

pub async fn copy(context: &Context) -> Answer {
    let depth = context.depth(Depth::Infinity)?;
    if depth == Depth::One {
        return Err(Fail::bad_request("a copy has depth 0 or infinity"));
    }
    let ends = ends(context, false).await?;
    let failures = copy_all(context, &ends, depth).await?;
    outcome(&ends.to_place.path, failures, done(ends.old))
}

/// Copies to the destination; what was there is replaced if all went well (`moves.replaced_last`).
async fn copy_all(context: &Context, ends: &Ends, depth: Depth) -> Result<Failures, Fail> {
    let Ends { source, from, to, to_place, old } = ends;
    let mut failures = Vec::new();
    let target = &to_place.path;
    // A link that is copied by its name is copied as what it leads to.
    let source = match source.kind {
        FileKind::Symlink => match context.view.find(&context.place.path, true).await? {
            Spot::In(_, attr) => attr,
            Spot::Top => return Err(Fail::not_found()),
        },
        _ => *source,
    };
    let is_folder = source.kind == FileKind::Directory;
    if !is_folder && old.is_none_or(|old| old.kind != FileKind::Directory) {
        copy_file(context, &from.room, &source, &to.room, to.dir, &to.name).await?;
        return Ok(failures);
    }
    let Some(old) = old else {
        let copying = Copying { context, from: &from.room, to: &to.room, depth };
        copying.copy(source, to.dir, to.name.clone(), target.clone(), &mut failures).await;
        return Ok(failures);
    };
    let files = to.room.to_change()?;
    let hidden = Bytes::from(format!(".larder-copy-{}", uuid::Uuid::new_v4().simple()));
    let beside = join(&super::path::parent(target), &hidden);
    let copying = Copying { context, from: &from.room, to: &to.room, depth };
    copying.copy(source, to.dir, hidden.clone(), beside.clone(), &mut failures).await;
    let mut left_kind = source.kind;
    if failures.is_empty() {
        let changed = files.rename(&to.room.cred, to.dir, &hidden, to.dir, &to.name, RenameMode::Exchange).await;
        match changed {
            Ok(_) => {
                left_kind = old.kind;
                let is_folder = |kind| kind == FileKind::Directory;
                match is_folder(old.kind) == is_folder(source.kind) {
                    true => context.shared.locks.forget_below(target),
                    false => context.shared.locks.forget(target),
                }
            }
            Err(error) => failures.push((target.clone(), error.into())),
        }
    }
    let left = Doomed { room: to.room.clone(), dir: to.dir, name: hidden, kind: left_kind, keeps: false };
    remove_tree(left, beside.clone(), &mut failures).await;
    // Nobody knows the hidden name.
    for (path, _) in &mut failures {
        if let Some(rest) = path.strip_prefix(&beside[..]) {
            *path = Bytes::from([&target[..], rest].concat());
        }
    }
    Ok(failures)
}

struct Copying<'c> {
    context: &'c Context,
    from: &'c Room,
    to: &'c Room,
    depth: Depth,
}

impl Copying<'_> {
    fn copy<'a>(
        &'a self,
        source: Attr,
        dir: Ino,
        name: Bytes,
        path: Bytes,
        failures: &'a mut Failures,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let done = match source.kind {
                FileKind::Directory => self.copy_folder(source, dir, &name, &path, failures).await,
                FileKind::File => copy_file(self.context, self.from, &source, self.to, dir, &name).await,
                FileKind::Symlink => self.copy_link(&source, dir, &name).await,
                _ => Ok(()),
            };
            if let Err(fail) = done
                && failures.len() < FAILURES_MAX
            {
                failures.push((path, fail));
            }
        })
    }

    async fn copy_folder(
        &self,
        source: Attr,
        dir: Ino,
        name: &Bytes,
        path: &Bytes,
        failures: &mut Failures,
    ) -> Result<(), Fail> {
        let set = SetAttr { mode: Some(source.mode & 0o777 | 0o700), ..SetAttr::default() };
        let (made, _) = self.to.to_change()?.mkdir(&self.to.cred, dir, name, set).await?;
        super::upload::copy_xattrs(
            self.from.files(),
            &self.from.cred,
            source.id.ino,
            self.to.files(),
            made.id.ino,
            |name| name.starts_with(b"user."),
        )
        .await?;
        if self.depth == Depth::Zero {
            return Ok(());
        }
        let mut cookie = 0;
        loop {
            let listing =
                self.from.files().readdir(&self.from.cred, source.id.ino, cookie, ENTRIES_AT_ONCE, true).await?;
            for entry in &listing.entries {
                cookie = entry.cookie;
                let Some(attr) = entry.attr else { continue };
                self.copy(attr, made.id.ino, entry.name.clone(), join(path, &entry.name), failures).await;
                if failures.len() >= FAILURES_MAX {
                    return Ok(());
                }
            }
            if listing.eof {
                return Ok(());
            }
        }
    }

    /// Inside of a folder a link stays a link.
    async fn copy_link(&self, source: &Attr, dir: Ino, name: &Bytes) -> Result<(), Fail> {
        let target = self.from.files().readlink(source.id.ino).await?;
        let set = SetAttr { mode: Some(0o777), ..SetAttr::default() };
        self.to.to_change()?.symlink(&self.to.cred, dir, name, &target, set).await?;
        Ok(())
    }
}

async fn copy_file(
    context: &Context,
    from: &Room,
    source: &Attr,
    to: &Room,
    dir: Ino,
    name: &Bytes,
) -> Result<(), Fail> {
    let files = from.files();
    files.access(&from.cred, source.id.ino, larder_volume::ACCESS_READ).await?;
    let _open = files.open_judged(source.id, larder_files::Uses::READ).await?;
    let old = match to.files().lookup(&to.cred, dir, name, NameMatch::Exact).await {
        Ok(old) if old.kind == FileKind::File => {
            to.files().access(&to.cred, old.id.ino, larder_volume::ACCESS_WRITE).await?;
            Some(old)
        }
        Ok(_) | Err(FsError::NotFound) => None,
        Err(error) => return Err(error.into()),
    };
    let mut upload = Upload::begin(to, dir, old.as_ref()).await?;
    let mut offset = 0;
    loop {
        let read = files.read(source.id.ino, offset, COPY_BYTES).await?;
        if read.is_empty() {
            break;
        }
        offset += read.len() as u64;
        for chunk in read.chunks {
            upload.push(chunk).await?;
        }
    }
    upload.settle().await?;
    upload.take_after(from, source).await?;
    upload.publish(dir, name, &context.shared.locks, |_| Ok(())).await?;
    Ok(())
}

/// A lock does not go with what is moved; a lock of the destination covers what has come there (RFC 4918 7.6). It may be
/// another client's, shared with the one that moves.
async fn after_move(context: &Context, ends: &Ends) {
    let (path, target) = (&context.place.path, &ends.to_place.path);
    let locks = &context.shared.locks;
    let Some(old) = ends.old else { return locks.forget(path) };
    let old_key = file_key(&ends.to.room, &old);
    let new_key = file_key(&ends.to.room, &ends.source);
    let own = new_key.and_then(|key| locks.held(key));
    locks.forget(path);
    locks.forget_below(target);
    match (old_key, new_key) {
        (None, None) => {}
        (Some(old_key), Some(new_key)) => {
            let Some(exclusive) = locks.of_file(old_key) else { return };
            let held = match own {
                Some(held) => Ok(held),
                None => Held::take(ends.to.room.files(), new_key.1, exclusive).await.map(Arc::new),
            };
            match held {
                Ok(held) => locks.replaced(old_key, new_key, held),
                // A client of another door uses what has come: the lock cannot be kept from it.
                Err(_) => locks.forget(target),
            }
        }
        // A folder where a file was, or the other way round.
        _ => locks.forget(target),
    }
}

/// What a move leaves at its old place.
fn left_over(from: &Entry, kind: FileKind) -> Doomed {
    Doomed { room: from.room.clone(), dir: from.dir, name: from.name.clone(), kind, keeps: false }
}

pub async fn move_(context: &Context) -> Answer {
    if context.depth(Depth::Infinity)? != Depth::Infinity {
        return Err(Fail::bad_request("a move has depth infinity alone"));
    }
    let ends = ends(context, true).await?;
    let Ends { source, from, to, old, .. } = &ends;
    let path = &context.place.path;
    let mut failures = Vec::new();
    if !Arc::ptr_eq(&from.room.state, &to.room.state) {
        // Another share may be another volume, with other rules: a copy, and then a removal.
        failures = copy_all(context, &ends, Depth::Infinity).await?;
        if failures.is_empty() {
            remove_tree(left_over(from, source.kind), path.clone(), &mut failures).await;
        }
        // The copy has seen to the locks of the destination.
        context.shared.locks.forget(path);
        return outcome(path, failures, done(*old));
    } else {
        let files = from.room.to_change()?;
        let folder = |attr: &Attr| attr.kind == FileKind::Directory;
        let mode = match old {
            None => RenameMode::NoReplace,
            Some(old) if !folder(old) && !folder(source) => RenameMode::Replace,
            Some(_) => RenameMode::Exchange,
        };
        let renamed = files.rename(&from.room.cred, from.dir, &from.name, to.dir, &to.name, mode).await;
        renamed.map_err(|error| match error {
            FsError::Exists => Fail::precondition(),
            error => error.into(),
        })?;
        if let (RenameMode::Exchange, Some(old)) = (mode, old) {
            // The old destination has the name of the source now.
            remove_tree(left_over(from, old.kind), path.clone(), &mut failures).await;
        }
    }
    after_move(context, &ends).await;
    outcome(path, failures, done(*old))
}
