//! The file view: the shares as pages, at the addresses of WebDAV.
//!
//! A page's script changes files by WebDAV's own methods, with their rights, conditions and locks.
//! What is here beside pages are resumable uploads (`uploads`, `upload_ops`), archives (`archive`,
//! `zip`), links (`links`, `link_pages`) and the past (`versions`). `answers` is the way of a
//! request, `entrance` knows sessions and the log-in where no page is at the same address, `shelf`
//! is what surrounds each page.
//!
//! - `html.nothing_foreign_runs`: a page loads its script and its style by a number that each
//!   answer draws anew (a nonce of Content Security Policy 3), and no others. So neither a name nor
//!   a stored file can bring code or style into a page.

mod answers;
mod archive;
mod entrance;
mod link_pages;
pub mod links;
mod listing;
mod search;
mod shelf;
mod state;
pub mod upload_ops;
mod uploads;
mod versions;
mod view;
mod viewer;
mod visit;
pub mod zip;

pub use answers::FileView;
