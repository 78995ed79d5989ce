//! MKCOL, DELETE, COPY and MOVE (RFC 4918 9.3, 9.6, 9.8, 9.9).
//!
//! - `moves.replaced_last`: what is overwritten stays whole until its successor is: a copy is made beside
//!   it under a hidden name, and the two change places in one step. Only then the old one is removed.
//! - `moves.errors_are_named`: what could not be copied or removed is named in a multi-status, and an
//!   error leaves what it concerns as it was.
//! - `moves.by_inode`: whether one end lies in the other is asked of inodes, because symbolic links, shares over one folder
//!   and spellings give one folder many paths.
//! - `moves.rename_within_a_tree`: a move within a volume, or a filesystem of the host, is a rename, also between shares. Elsewhere
//!   it is a copy with everything that the source has (`copy.keeps_everything`), and then a removal of what did not change
//!   since. A copy that is not whole is taken back.
//! - `moves.copies_end_with_their_client`: a copy whose client has left ends and is taken back. A rename or a removal that has
//!   begun goes on to its end.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use hyper::header::HeaderValue;
use hyper::{Response, StatusCode};
use larder_base::Timestamp;
use larder_files::copy::{Copying, Keep};
use larder_files::{Report, Stop};
use larder_fs::{Attr, FileKind, FsError, Ino, NameMatch, RenameMode, SetAttr, SetTime};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::conditions;
use super::context::{Answer, Body, Context, Depth, file_key, status, xml as xml_answer};
use super::fail::Fail;
use super::locks::Held;
use super::path::{Place, join, push_href};
use super::put::client_mtime;
use super::upload::{UMASK, Upload};
use larder_doors::tree::{Entry, Room, Spot};

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

pub async fn delete(context: &Context, left: &CancellationToken) -> Answer {
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
    let _turn = turn(context, left).await?;
    let mut failures = context.shared.locks.locked_below(path, &context.user.name, &context.tokens()?);
    if failures.is_empty() {
        let Entry { room, dir, name } = &entry;
        let doomed = Doomed { room, dir: *dir, name, attr, keeps: true, unchanged_since: None };
        remove_tree(doomed, path, &mut failures).await;
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
struct Doomed<'d> {
    room: &'d Room,
    dir: Ino,
    name: &'d Bytes,
    attr: Attr,
    /// Into the bin of the share, if it has one: not what a copy or a move leaves over.
    keeps: bool,
    /// A file that changed later stays.
    unchanged_since: Option<Timestamp>,
}

/// Removes what has the name. What fails stays, and so do the folders around it.
async fn remove_tree(doomed: Doomed<'_>, path: &Bytes, failures: &mut Failures) {
    let Doomed { room, dir, name, attr, keeps, unchanged_since } = doomed;
    let files = match room.to_change() {
        Ok(files) if keeps => files.clone(),
        Ok(files) => files.outright(),
        Err(no_way) => return failures.push((path.clone(), no_way.into())),
    };
    let report = files.remove_tree(&room.cred, (dir, name), &attr, unchanged_since, &|| false).await;
    note(report, path, failures);
}

/// Names failures by their paths.
fn note(report: Report, path: &Bytes, failures: &mut Failures) {
    let of = |(below, error): (Bytes, FsError)| match below.is_empty() {
        true => (path.clone(), error.into()),
        false => (join(path, &below), error.into()),
    };
    failures.extend(report.failures.into_iter().map(of).filter(|(_, fail): &(_, Fail)| !fail.is_not_found()));
}

/// Both ends of a COPY or MOVE, looked at and allowed.
struct Ends {
    source: Attr,
    /// The source, or what it leads to if it is a symbolic link that is copied.
    copied: Attr,
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
    // A link that is copied by its name is copied as what it leads to; it is moved itself.
    let copied = match source.kind {
        FileKind::Symlink if !moves => match context.view.find(path, true).await? {
            Spot::In(_, attr) => attr,
            Spot::Top => return Err(Fail::not_found()),
        },
        _ => source,
    };
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
    check_apart(&from, &copied, &to, old.as_ref()).await?;
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
        None => Ok(Ends { source, copied, from, to, to_place, old }),
    }
}

/// `moves.by_inode`
async fn check_apart(from: &Entry, source: &Attr, to: &Entry, old: Option<&Attr>) -> Result<(), Fail> {
    const SAME: Fail = Fail::forbidden("source and destination are the same");
    let (files, target) = (from.room.files(), to.room.files());
    if files.id() != target.id() {
        return Ok(());
    }
    if old.is_some_and(|old| old.id == source.id) {
        return Err(SAME);
    }
    if source.kind == FileKind::Directory && files.lies_within(to.dir, source.id.ino).await? {
        return Err(Fail::forbidden("the destination is inside of the source"));
    }
    if let Some(old) = old
        && old.kind == FileKind::Directory
        && (files.lies_within(from.dir, old.id.ino).await?
            || source.kind == FileKind::Directory && files.lies_within(source.id.ino, old.id.ino).await?)
    {
        return Err(Fail::forbidden("the source is inside of what would be replaced"));
    }
    Ok(())
}

fn done(old: Option<Attr>) -> StatusCode {
    if old.is_some() { StatusCode::NO_CONTENT } else { StatusCode::CREATED }
}

pub async fn copy(context: &Context, left: &CancellationToken) -> Answer {
    let depth = context.depth(Depth::Infinity)?;
    if depth == Depth::One {
        return Err(Fail::bad_request("a copy has depth 0 or infinity"));
    }
    let ends = ends(context, false).await?;
    let _turn = turn(context, left).await?;
    let copying = copying(context, &ends, Keep::Possible, depth == Depth::Zero);
    let failures = copy_all(context, &ends, &copying, left).await?;
    Ok(with_mtime(&copying, outcome(&ends.to_place.path, failures, done(ends.old))?))
}

/// One of the walks through trees that a user may have at once: others wait for their turn, and end with their client.
async fn turn(context: &Context, left: &CancellationToken) -> Result<OwnedSemaphorePermit, Fail> {
    let turns = context.shared.walks.of(&context.user.name);
    tokio::select! {
        turn = turns.acquire_owned() => turn.map_err(|_| Fail::not_found()),
        () = left.cancelled() => Err(LEFT),
    }
}

const LEFT: Fail = Fail::new(StatusCode::SERVICE_UNAVAILABLE, "the client has left");

fn copying(context: &Context, ends: &Ends, keep: Keep, is_shallow: bool) -> Copying {
    let (from, to) = (&ends.from.room, &ends.to.room);
    Copying {
        from: from.files().clone(),
        reader: from.cred.clone(),
        to: to.files().clone(),
        writer: to.cred.clone(),
        keep,
        heir: None,
        is_shallow,
        mtime: client_mtime(context),
    }
}

/// ownCloud's answer to its header.
fn with_mtime(copying: &Copying, mut response: Response<Body>) -> Response<Body> {
    if copying.mtime.is_some() && response.status().is_success() && response.status() != StatusCode::MULTI_STATUS {
        response.headers_mut().insert("x-oc-mtime", HeaderValue::from_static("accepted"));
    }
    response
}

/// Copies to the destination; what was there is replaced if all went well (`moves.replaced_last`).
async fn copy_all(
    context: &Context,
    ends: &Ends,
    copying: &Copying,
    left: &CancellationToken,
) -> Result<Failures, Fail> {
    let Ends { copied: source, from, to, to_place, old, .. } = ends;
    let is_folder = |attr: &Attr| attr.kind == FileKind::Directory;
    let target = &to_place.path;
    // `moves.copies_end_with_their_client`, and a copy ends with the rights to it.
    let is_over = || {
        let may_write = || context.room_now(&to.room).is_ok_and(|room| room.may_write);
        left.is_cancelled() || context.room_now(&from.room).is_err() || !may_write()
    };
    if let Some(old) = old
        && old.kind == FileKind::File
        && source.kind == FileKind::File
        && copying.keep == Keep::Possible
    {
        return replace_file(context, ends, copying, old, &is_over).await.map(|()| Vec::new());
    }
    let mut failures = Vec::new();
    let hidden = Bytes::from(format!(".larder-copy-{}", uuid::Uuid::new_v4().simple()));
    let name = if old.is_some() { &hidden } else { &to.name };
    let (report, made) = copying.tree(source, (to.dir, name), &is_over).await;
    let takes_back = report.is_cut || copying.keep == Keep::Everything && !report.is_whole();
    let is_whole = report.is_whole();
    note(report, target, &mut failures);
    if failures.is_empty() && takes_back {
        let why = if left.is_cancelled() { LEFT } else { Fail::forbidden("the share was taken from you meanwhile") };
        failures.push((target.clone(), why));
    }
    let Some(made) = made else { return Ok(failures) };
    if takes_back || old.is_some() && !is_whole {
        note(copying.undo((to.dir, name), &made).await, target, &mut failures);
        return Ok(failures);
    }
    let Some(old) = old else { return Ok(failures) };
    let (files, cred) = (to.room.to_change()?, &to.room.cred);
    if let Err(error) = files.rename(cred, to.dir, &hidden, to.dir, &to.name, RenameMode::Exchange).await {
        failures.push((target.clone(), error.into()));
        note(copying.undo((to.dir, &hidden), &made).await, target, &mut failures);
        return Ok(failures);
    }
    match is_folder(old) == is_folder(source) {
        true => context.shared.locks.forget_below(target),
        false => context.shared.locks.forget(target),
    }
    // Nobody knows the hidden name, so failures below it have the other one.
    let (room, dir) = (&to.room, to.dir);
    let left = Doomed { room, dir, name: &hidden, attr: *old, keeps: false, unchanged_since: None };
    remove_tree(left, target, &mut failures).await;
    Ok(failures)
}

/// A file over a file, whose rules stay (`upload.replaced_keeps_its_rules`).
async fn replace_file(
    context: &Context,
    ends: &Ends,
    copying: &Copying,
    old: &Attr,
    stop: Stop<'_>,
) -> Result<(), Fail> {
    let (to, source) = (&ends.to, &ends.copied);
    to.room.files().access(&to.room.cred, old.id.ino, larder_fs::ACCESS_WRITE).await?;
    let copying = Copying { heir: Some((old.uid, old.gid)), ..copying.clone() };
    let copied = copying.file(source, to.dir, stop).await?;
    let upload = Upload::of_copy(&to.room, copied)?;
    upload.publish(to.dir, &to.name, &context.shared.locks, |_| Ok(())).await?;
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

pub async fn move_(context: &Context, left: &CancellationToken) -> Answer {
    if context.depth(Depth::Infinity)? != Depth::Infinity {
        return Err(Fail::bad_request("a move has depth infinity alone"));
    }
    let ends = ends(context, true).await?;
    let _turn = turn(context, left).await?;
    let Ends { source, from, to, old, .. } = &ends;
    let path = &context.place.path;
    let mut failures = Vec::new();
    let copying = copying(context, &ends, Keep::Everything, false);
    let (room, dir, name) = (&from.room, from.dir, &from.name);
    // `moves.rename_within_a_tree`: by one user, who is the same at both ends.
    if from.room.files().id() != to.room.files().id() || from.room.cred != to.room.cred {
        let begun = Timestamp::from(SystemTime::now());
        failures = copy_all(context, &ends, &copying, left).await?;
        if !failures.is_empty() {
            return outcome(&ends.to_place.path, failures, done(*old));
        }
        let gone = Doomed { room, dir, name, attr: *source, keeps: false, unchanged_since: Some(begun) };
        remove_tree(gone, path, &mut failures).await;
        // The copy has seen to the locks of the destination.
        if failures.is_empty() {
            context.shared.locks.forget(path);
        }
        return Ok(with_mtime(&copying, outcome(path, failures, done(*old))?));
    }
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
        let gone = Doomed { room, dir, name, attr: *old, keeps: false, unchanged_since: None };
        remove_tree(gone, path, &mut failures).await;
    }
    if let Some(mtime) = copying.mtime {
        let set = SetAttr { mtime: Some(SetTime::To(mtime)), ..SetAttr::default() };
        to.room.to_change()?.setattr(&to.room.cred, source.id.ino, set).await?;
    }
    after_move(context, &ends).await;
    Ok(with_mtime(&copying, outcome(path, failures, done(*old))?))
}
