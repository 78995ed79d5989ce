//! PUT (RFC 9110 9.3.4): a file that becomes visible when all of it has arrived.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use larder_base::Timestamp;
use larder_base::traffic::{self, Wait};
use larder_files::Uses;
use larder_fs::{ACCESS_WRITE, Attr, FileKind, FsError, Ino, NameMatch};

use super::conditions::{etag, text};
use super::context::{Answer, Context, status};
use super::fail::Fail;
use super::locks::is_locked_elsewhere;
use super::upload::{PAUSE, Upload};
use larder_doors::tree::{Entry, LOOKS_MAX, Room, ShareState, Spot};

/// A client that sends nothing for so long is given up.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// A file on its way to a name, and what was found there when it began.
///
/// - `put.rights_at_both_ends`: the user needs the right to write when the file begins to arrive and when
///   it gets its name. Conditions and locks are looked at both times too.
pub struct Arriving {
    pub upload: Upload,
    room: Room,
    dir: Ino,
    name: Bytes,
    path: Bytes,
    spot: Option<Spot>,
    tokens: Vec<String>,
    mtime: Option<Timestamp>,
    is_conditional: bool,
}

pub async fn put(context: &Context, body: &mut Incoming) -> Answer {
    // Parts of files cannot be sent (RFC 9110 14.5).
    if context.headers.contains_key(header::CONTENT_RANGE) {
        return Err(Fail::bad_request("Content-Range has no meaning in a PUT"));
    }
    // RFC 9112 6.1: what was coded otherwise would be stored as it came.
    let is_plain =
        |codings: &HeaderValue| codings.to_str().is_ok_and(|codings| codings.trim().eq_ignore_ascii_case("chunked"));
    if !context.headers.get_all(header::TRANSFER_ENCODING).iter().all(is_plain) {
        return Err(Fail::new(StatusCode::NOT_IMPLEMENTED, "the only transfer coding that is understood is chunked"));
    }
    if context.headers.get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        return Err(Fail::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "files are kept as they are sent, not decoded"));
    }
    let mut arriving = Arriving::begin(context).await?;
    receive(context, body, &mut arriving.upload).await?;
    arriving.finish(context).await
}

impl Arriving {
    pub async fn begin(context: &Context) -> Result<Self, Fail> {
        for _ in 1..LOOKS_MAX {
            match Self::begin_once(context).await {
                // The file that it replaces was replaced meanwhile (`tree.names_are_always_there`).
                Err(fail) if fail.is_stale => {}
                begun => return begun,
            }
        }
        Self::begin_once(context).await
    }

    async fn begin_once(context: &Context) -> Result<Self, Fail> {
        if context.place.is_top() || context.place.slash {
            return Err(Fail::new(StatusCode::METHOD_NOT_ALLOWED, "a folder cannot be put: use MKCOL"));
        }
        let path = &context.place.path;
        let spot = context.look(path).await?;
        let Entry { room, dir, name } = context.view.entry(path).await.map_err(|e| Fail::from(e).of_parent())?;
        room.to_change()?;
        if matches!(&spot, Some(Spot::In(_, attr)) if attr.kind == FileKind::Directory) {
            return Err(Fail::new(StatusCode::METHOD_NOT_ALLOWED, "it is a folder"));
        }
        context.check_conditions(spot.as_ref()).await?;
        let tokens = context.tokens()?;
        context.check_locks(path, spot.as_ref(), &tokens)?;
        if spot.is_none() {
            context.check_parent_locks(path, &tokens)?;
        }
        // The name itself: a symbolic link is replaced, not followed.
        let old = match room.files().lookup(&room.cred, dir, &name, NameMatch::Exact).await {
            Ok(old) => Some(old),
            Err(FsError::NotFound) => None,
            Err(error) => return Err(error.into()),
        };
        let old = old.filter(|old| old.kind == FileKind::File);
        if let Some(old) = &old {
            room.files().access(&room.cred, old.id.ino, ACCESS_WRITE).await?;
            // Before the content is sent in vain. The end looks again.
            let replaces = Uses::WRITE.and(Uses::DELETE);
            if is_locked_elsewhere(room.files(), old.id.ino)
                || room.files().is_denied_elsewhere(old.id.ino, replaces).await
            {
                return Err(Fail::locked_elsewhere());
            }
        }
        let mut upload = Upload::begin(&room, dir, old.as_ref()).await?;
        upload.comes_by(context.arrivals.memory());
        let is_conditional = context.headers.contains_key(header::IF_MATCH)
            || context.headers.contains_key(header::IF_NONE_MATCH)
            || context.headers.contains_key(header::IF_UNMODIFIED_SINCE);
        let (path, mtime) = (path.clone(), client_mtime(context));
        Ok(Self { upload, room, dir, name, path, spot, tokens, mtime, is_conditional })
    }

    /// The state of the share that it goes to.
    pub fn share(&self) -> &Arc<ShareState> {
        &self.room.state
    }

    /// All of it is there: it becomes durable and gets its name (`upload.whole_or_not`).
    pub async fn finish(mut self, context: &Context) -> Answer {
        self.upload.settle().await?;
        if let Some(mtime) = self.mtime {
            self.upload.set_mtime(mtime).await?;
        }
        // `put.rights_at_both_ends`.
        let now = context.room_now(&self.room)?;
        now.to_change()?;
        self.upload.act_as(now);
        let was = self.spot.as_ref().and_then(|spot| match spot {
            Spot::In(_, attr) => Some(etag(attr)),
            Spot::Top => None,
        });
        let may_replace = |now: Option<&Attr>| {
            let is_same = now.map(etag) == was || now.is_some_and(|now| now.kind == FileKind::Symlink);
            if self.is_conditional && !is_same {
                return Err(Fail::precondition());
            }
            context.check_locks(&self.path, self.spot.as_ref(), &self.tokens)
        };
        let published = self.upload.publish(self.dir, &self.name, &context.shared.locks, may_replace).await?;
        let code = if published.is_new { StatusCode::CREATED } else { StatusCode::NO_CONTENT };
        let mut response = status(code);
        if let Ok(tag) = HeaderValue::from_str(&etag(&published.attr)) {
            response.headers_mut().insert(header::ETAG, tag);
        }
        if self.mtime.is_some() {
            response.headers_mut().insert("x-oc-mtime", HeaderValue::from_static("accepted"));
        }
        Ok(response)
    }
}

async fn receive(context: &Context, body: &mut Incoming, upload: &mut Upload) -> Result<(), Fail> {
    const SILENT: Fail = Fail::new(StatusCode::REQUEST_TIMEOUT, "no data came for a minute");
    const BROKEN: Fail = Fail::bad_request("the body ended early or is malformed");
    loop {
        let frame = tokio::select! {
            frame = traffic::waiting(Wait::Client, tokio::time::timeout(SILENCE_MAX, body.frame())) => frame.map_err(|_| SILENT)?,
            done = upload.progress() => {
                done?;
                continue;
            }
            () = tokio::time::sleep(PAUSE), if upload.has_gathered() => {
                upload.pauses().await?;
                continue;
            }
        };
        match frame {
            None => break,
            Some(Err(_)) => return Err(BROKEN),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data()
                    && !data.is_empty()
                {
                    context.shared.stats.written(data.len());
                    upload.push(data).await?;
                }
            }
        }
    }
    // A body of a length that was said and is not there is broken, whatever the layers below say.
    let said = text(&context.headers, header::CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    match said {
        Some(said) if said != upload.bytes() => Err(BROKEN),
        _ => Ok(()),
    }
}

/// ownCloud's header, which rclone and others send: seconds since 1970, perhaps with a fraction.
pub fn client_mtime(context: &Context) -> Option<Timestamp> {
    let value = context.headers.get("x-oc-mtime")?.to_str().ok()?;
    let (secs, fraction) = value.split_once('.').unwrap_or((value, ""));
    let nanos: u32 = format!("{fraction:0<9}").get(..9).and_then(|nanos| nanos.parse().ok())?;
    let whole: i64 = secs.parse().ok()?;
    // A fraction of a second before 1970 counts from the second before.
    match secs.starts_with('-') && nanos > 0 {
        true => Some(Timestamp::new(whole.checked_sub(1)?, 1_000_000_000_u32.checked_sub(nanos)?)),
        false => Some(Timestamp::new(whole, nanos)),
    }
}
