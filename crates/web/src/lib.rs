//! Larder in a browser: the page, and the view of files.
//!
//! The page says and does what the command line does, by the same endpoints, and knows no other
//! type than theirs. Each page is a file in `pages` and a template; `router` has all routes, `role`
//! decides who may, `session` who asks, `ask` carries questions to the daemon. `files` is the file
//! view, on the door of WebDAV. Pages are made on the server and are whole without a script. With
//! one, a stream of fragments keeps their living parts up to date.
//!
//! - `html.all_escaped`: every value in a template passes `text::Visible`: markup is escaped, and
//!   marks that steer the text around them are written out. The filter `safe` is for templates
//!   within templates alone.
//! - `page.nothing_foreign_runs`: a page names its script and style by a nonce drawn for that
//!   answer. A name of a share, user, disk or snapshot brings no code or style into a page.
//! - `page.change_by_post`: a change needs POST, the session's second token
//!   (`browsers.token_on_each_change`), and a browser that does not call the request one of another
//!   site. GET changes nothing.
//! - `page.below_base`: each path of the page begins with [`BASE`], which no share is called. So
//!   the page, WebDAV and the file view have one server and one port, and no name of a share hides
//!   a page.
//! - `page.name_typed`: an act that destroys needs the name of its victim, typed.
#![forbid(unsafe_code)]

mod ask;
pub mod asset;
mod base;
mod edit;
mod factor;
mod files;
mod form;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod live;
mod login;
mod note;
mod oidc;
mod pages;
mod passkey;
mod role;
mod router;
mod session;
mod setup;
mod shell_words;
mod streams;
mod text;
mod ticket;
mod visit;

pub use ask::{Ask, Asker};
pub use base::BASE;
pub use factor::{FactorsEnded, without as factors_without, without_uses as factors_without_uses};
pub use files::FileView;
pub use files::links::{Link, Links, Which};
pub use login::{LogIn, Refusal, Standing};
pub use oidc::{ANSWER_BYTES_MAX, Fetch, Issuer, IssuerOptions, is_issuer_address};
pub use role::{Act, Role, may};
pub use router::{Body, Known, ROUTES, Route, Web};
pub use session::generation;
pub use setup::{SetUp, Setup};
pub use visit::{Options, Peer};
