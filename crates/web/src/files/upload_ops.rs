//! Resumable uploads, in the manner of tus: POST of a file's URL begins one, PATCH adds bytes at an
//! offset, HEAD says how many there are, DELETE gives it up.

use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use larder_base::task;
use larder_base::traffic::{self, Wait};
use larder_dav::browsers::{Answer, Arriving, Body, Context, Fail, PAUSE, status, text};
use larder_fs::FILE_BYTES_MAX;

use super::entrance::OWN;
use super::state::Files;
use super::uploads::{Held, Stage};

const SILENCE_MAX: Duration = Duration::from_secs(60);
const LENGTH: HeaderName = HeaderName::from_static("upload-length");
const OFFSET: HeaderName = HeaderName::from_static("upload-offset");

pub fn number(headers: &HeaderMap, name: HeaderName) -> Result<u64, Fail> {
    const BAD: Fail = Fail::bad_request("Upload-Length and Upload-Offset are counts of bytes");
    let value = text(headers, name).filter(|value| value.bytes().all(|byte| byte.is_ascii_digit())).ok_or(BAD)?;
    value.parse().map_err(|_| BAD)
}

fn at(code: StatusCode, offset: u64) -> Response<Body> {
    let mut response = status(code);
    response.headers_mut().insert(OFFSET, HeaderValue::from(offset));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

pub async fn begin(files: &Files, context: &Context) -> Answer {
    let length = number(&context.headers, LENGTH)?;
    if length > FILE_BYTES_MAX {
        return Err(Fail::new(StatusCode::PAYLOAD_TOO_LARGE, "the file is too large"));
    }
    // Before the next one, those that nobody goes on with make room (`uploads.silent_bounded`).
    files.uploads.expire(Instant::now());
    let arriving = Arriving::begin(context).await?;
    let id = files.uploads.add(&context.user, arriving, length)?;
    let mut response = at(StatusCode::CREATED, 0);
    if let Ok(url) = HeaderValue::from_str(&format!("{OWN}upload/{id}")) {
        response.headers_mut().insert(header::LOCATION, url);
    }
    Ok(response)
}

/// A request for the upload `id`.
pub async fn go_on(files: &Files, context: Context, id: &str, body: &mut Incoming) -> Answer {
    let entry = files.uploads.find(id, &context.user)?;
    match context.method.as_str() {
        "HEAD" => {
            let held = entry.hold().await?;
            match &*held.stage {
                Stage::Arriving(arriving) => Ok(at(StatusCode::OK, arriving.upload.bytes())),
                Stage::Done => Ok(at(StatusCode::OK, entry.length)),
                Stage::Failed(fail) => Err(fail.clone()),
            }
        }
        "PATCH" => append(files, context, id, entry.hold().await?, body).await,
        "DELETE" => {
            files.uploads.remove(id);
            let _ = entry.hold().await;
            Ok(status(StatusCode::NO_CONTENT))
        }
        _ => Err(Fail::new(StatusCode::METHOD_NOT_ALLOWED, "an upload takes HEAD, PATCH and DELETE")),
    }
}

async fn append(files: &Files, context: Context, id: &str, mut held: Held, body: &mut Incoming) -> Answer {
    let offset = number(&context.headers, OFFSET)?;
    let length = held.entry.length;
    match &*held.stage {
        Stage::Done => return Ok(at(StatusCode::NO_CONTENT, length)),
        Stage::Failed(fail) => return Err(fail.clone()),
        Stage::Arriving(arriving) if arriving.upload.bytes() != offset => {
            return Err(Fail::conflict("the upload is at another offset: ask for it with HEAD"));
        }
        Stage::Arriving(_) => {}
    }
    if let Err(fail) = receive(&context, &mut held, body).await {
        // A client that went may come again; a file that could not be written cannot go on.
        if !matches!(fail.status, StatusCode::BAD_REQUEST | StatusCode::REQUEST_TIMEOUT) {
            *held.stage = Stage::Failed(fail.clone());
            files.uploads.remove(id);
        }
        if fail.status == StatusCode::INSUFFICIENT_STORAGE {
            // Those that nobody goes on with make room.
            files.uploads.expire(Instant::now());
        }
        return Err(fail);
    }
    files.uploads.expire(Instant::now());
    let reached = match &*held.stage {
        Stage::Arriving(arriving) => arriving.upload.bytes(),
        _ => length,
    };
    if reached < length {
        return Ok(at(StatusCode::NO_CONTENT, reached));
    }
    // What has begun goes on to its end, also if the client leaves.
    let ending = task::spawn_for(async move {
        let stage = std::mem::replace(&mut *held.stage, Stage::Done);
        let Stage::Arriving(arriving) = stage else { return Ok(status(StatusCode::NO_CONTENT)) };
        let done = arriving.finish(&context).await;
        if let Err(fail) = &done {
            *held.stage = Stage::Failed(fail.clone());
        }
        done
    });
    let mut response =
        ending.await.unwrap_or(Err(Fail::new(StatusCode::INTERNAL_SERVER_ERROR, "the upload failed")))?;
    response.headers_mut().insert(OFFSET, HeaderValue::from(length));
    Ok(response)
}

async fn receive(context: &Context, held: &mut Held, body: &mut Incoming) -> Result<(), Fail> {
    const SILENT: Fail = Fail::new(StatusCode::REQUEST_TIMEOUT, "no data came for a minute");
    const BROKEN: Fail = Fail::bad_request("the body ended early or is malformed");
    const SUPERSEDED: Fail = Fail::bad_request("another request goes on with this upload");
    const TOO_LONG: Fail = Fail::bad_request("more bytes came than Upload-Length says");
    let Held { entry, stage, superseded } = held;
    let Stage::Arriving(arriving) = &mut **stage else { return Ok(()) };
    let (length, upload) = (entry.length, &mut arriving.upload);
    upload.comes_by(context.memory());
    loop {
        let next = tokio::select! {
            next = traffic::waiting(Wait::Client, tokio::time::timeout(SILENCE_MAX, body.frame())) => next.map_err(|_| SILENT)?,
            done = upload.progress() => {
                done?;
                continue;
            }
            () = tokio::time::sleep(PAUSE), if upload.has_gathered() => {
                upload.pauses().await?;
                continue;
            }
            _ = superseded.changed() => return Err(SUPERSEDED),
        };
        match next {
            None => return Ok(()),
            Some(Err(_)) => return Err(BROKEN),
            Some(Ok(frame)) => {
                let Ok(data) = frame.into_data() else { continue };
                if upload.bytes() + data.len() as u64 > length {
                    return Err(TOO_LONG);
                }
                context.receives(data.len());
                entry.came(upload.bytes() + data.len() as u64);
                if !data.is_empty() {
                    upload.push(data).await?;
                }
            }
        }
    }
}
