//! What all requests of the file view share.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::HeaderMap;
use larder_base::Clock;
use larder_dav::browsers::Places;
use parking_lot::RwLock;

use super::links::Links;
use super::uploads::Uploads;
use crate::router::Web;
use crate::session::{AGE_MAX, Bounds, Sessions};

/// A bound of archives (`archive.in_turn`).
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum ArchiveKey {
    Users,
    User(String),
    UsersAt(IpAddr),
    Links,
    Link(String),
    LinksAt(IpAddr),
}

/// The page at the same address: its log-in is that of the files, too.
pub struct PageBeside {
    pub web: Web,
    /// `hosts.known_alone`
    pub is_asked_for: Box<dyn Fn(&HeaderMap) -> bool + Send + Sync>,
}

pub struct Files {
    /// Of the log-in that is here (`browsers.three_tables`).
    pub own: Sessions,
    /// Of those who knew the password of a link.
    pub visitors: Sessions,
    pub uploads: Uploads,
    pub links: Links,
    pub archives: Places<ArchiveKey>,
    clock: Arc<dyn Clock>,
    page: RwLock<Option<Arc<PageBeside>>>,
}

impl Files {
    pub fn new(links: Option<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        Self {
            own: Sessions::new(Bounds::FILES),
            visitors: Sessions::new(Bounds::FILES),
            uploads: Uploads::default(),
            links: Links::load(links),
            archives: Places::default(),
            clock,
            page: RwLock::default(),
        }
    }

    /// Monotonic, as the times of sessions are.
    pub fn now(&self) -> Duration {
        AGE_MAX + self.clock.elapsed()
    }

    pub fn page(&self) -> Option<Arc<PageBeside>> {
        self.page.read().clone()
    }

    pub fn set_page(&self, page: Option<PageBeside>) {
        *self.page.write() = page.map(Arc::new);
    }
}
