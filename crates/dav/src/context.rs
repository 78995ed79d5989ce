//! One request: who asks, for what, and the shapes of answers.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Response, StatusCode};
use larder_base::passed;
use larder_base::traffic::Traffic;
use larder_fs::{Attr, FileKind};
use larder_people::User;

use super::civil::whole_second;
use super::conditions::{self, Item, List, Present, etag};
use super::fail::Fail;
use super::locks::FileKey;
use super::path::{Place, parent};
use super::shared::Shared;
use super::wire::Arrivals;
use larder_doors::tree::{Room, Spot, View};
use larder_doors::unread::Account;

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;
/// A response, or why there is none.
pub type Answer = Result<Response<Body>, Fail>;

/// A request by a user.
pub struct Context {
    pub(super) shared: Arc<Shared>,
    pub(super) traffic: Arc<Traffic>,
    /// The user, as the door knew the user when the request began.
    pub user: Arc<User>,
    /// The shares, as they are for the user.
    pub view: View,
    /// The method.
    pub method: Method,
    /// The headers.
    pub headers: HeaderMap,
    /// What the URL leads to.
    pub place: Place,
    /// The connection, whose account is that of what it holds.
    pub(super) arrivals: Arc<Arrivals>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    Zero,
    One,
    Infinity,
}

/// No body.
pub fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A body of these bytes.
pub fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// A response without a body.
pub fn status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(empty());
    *response.status_mut() = status;
    response
}

pub const XML_TYPE: HeaderValue = HeaderValue::from_static("application/xml; charset=utf-8");

pub fn xml(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(full(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, XML_TYPE);
    response
}

/// The file of a spot, across shares.
pub fn file_key(room: &Room, attr: &Attr) -> Option<FileKey> {
    (attr.kind == FileKind::File).then(|| (room.files().id(), attr.id.ino))
}

impl Context {
    /// Counts bytes of a file that the client is sent.
    pub fn sends(&self, bytes: usize) {
        self.shared.stats.read(bytes);
    }

    /// Counts bytes of a file that came from the client.
    pub fn receives(&self, bytes: usize) {
        self.shared.stats.written(bytes);
    }

    /// The account of what the connection holds.
    pub fn memory(&self) -> Option<Arc<Account>> {
        self.arrivals.memory()
    }

    /// What is at `path`; `None` if there is nothing.
    pub async fn look(&self, path: &Bytes) -> Result<Option<Spot>, Fail> {
        match self.view.find(path, true).await.map_err(Fail::from) {
            Ok(spot) => Ok(Some(spot)),
            Err(fail) if fail.is_not_found() => Ok(None),
            Err(fail) => Err(fail),
        }
    }

    pub fn depth(&self, usual: Depth) -> Result<Depth, Fail> {
        match self.headers.get("depth").map(|value| value.as_bytes().to_ascii_lowercase()) {
            None => Ok(usual),
            Some(word) => match word.as_slice() {
                b"0" => Ok(Depth::Zero),
                b"1" => Ok(Depth::One),
                b"infinity" => Ok(Depth::Infinity),
                _ => Err(Fail::bad_request("the Depth header is neither 0, 1 nor infinity")),
            },
        }
    }

    /// RFC 4918 10.6: T unless the header says F.
    pub fn overwrite(&self) -> Result<bool, Fail> {
        match self.headers.get("overwrite").map(HeaderValue::as_bytes) {
            None | Some(b"T" | b"t") => Ok(true),
            Some(b"F" | b"f") => Ok(false),
            Some(_) => Err(Fail::bad_request("the Overwrite header is neither T nor F")),
        }
    }

    pub fn tokens(&self) -> Result<Vec<String>, Fail> {
        Ok(conditions::tokens(conditions::parse_if(&self.headers)?.as_ref()))
    }

    /// The conditions of HTTP and of the If header, against what is there now.
    pub async fn check_conditions(&self, spot: Option<&Spot>) -> Result<(), Fail> {
        let present = match spot {
            Some(Spot::In(_, attr)) => Some(Present::of(attr)),
            Some(Spot::Top) => {
                Some(Present { etag: "\"top\"".to_owned(), modified: whole_second(self.shared.started) })
            }
            None => None,
        };
        conditions::check(&self.method, &self.headers, present.as_ref()).map_err(|_| Fail::precondition())?;
        self.check_if().await
    }

    async fn check_if(&self) -> Result<(), Fail> {
        let Some(lists) = conditions::parse_if(&self.headers)? else { return Ok(()) };
        for list in &lists {
            if self.holds(list).await? {
                return Ok(());
            }
        }
        Err(Fail::precondition())
    }

    async fn holds(&self, list: &List) -> Result<bool, Fail> {
        let place = match &list.about {
            None => Some(&self.place),
            Some(about) => about.as_ref(),
        };
        let spot = match place {
            Some(place) => self.look(&place.path).await.unwrap_or(None),
            None => None,
        };
        for condition in &list.conditions {
            let is_so = match (&condition.item, place) {
                (_, None) => false,
                (Item::Token(token), Some(place)) => {
                    let file = match &spot {
                        Some(Spot::In(room, attr)) => file_key(room, attr),
                        _ => None,
                    };
                    self.shared.locks.has_token(&place.path, file, token)
                }
                (Item::Tag(tag), Some(_)) => match &spot {
                    Some(Spot::In(_, attr)) => etag(attr) == *tag,
                    _ => false,
                },
            };
            if is_so == condition.not {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether locks let this request change what is at `path`.
    pub fn check_locks(&self, path: &[u8], spot: Option<&Spot>, tokens: &[String]) -> Result<(), Fail> {
        let file = match spot {
            Some(Spot::In(room, attr)) => file_key(room, attr),
            _ => None,
        };
        self.shared.locks.check(path, file, &self.user.name, tokens)
    }

    /// The share as it is for the user at this moment: rights may have been taken since the request
    /// began.
    pub fn room_now(&self, room: &Room) -> Result<Room, Fail> {
        const TAKEN: Fail = Fail::forbidden("the share was taken from you, or changed, while this was under way");
        let mut user = self.shared.user(&self.user.name).ok_or(TAKEN)?;
        if let Some(token) = &self.user.token {
            let is_good = self.shared.tokens().has(token) && !token.is_over(passed::latest());
            user = is_good.then(|| Arc::new(user.narrowed(Arc::clone(token)))).ok_or(TAKEN)?;
        }
        let is_it = |now: &Room| {
            now.name() == room.name() && now.files().id() == room.files().id() && now.root() == room.root()
        };
        self.shared.view(&user, self.view.address).rooms().find(is_it).ok_or(TAKEN)
    }

    /// A name comes to the folder or leaves it: the folder's locks are asked too (RFC 4918 7.4).
    pub fn check_parent_locks(&self, path: &Bytes, tokens: &[String]) -> Result<(), Fail> {
        self.shared.locks.check(&parent(path), None, &self.user.name, tokens)
    }
}
