//! Who looks at the files, as their pages know that person.

use hyper::header::HeaderMap;
use larder_dav::browsers::BrowserSession;

use super::state::Files;
use crate::role::Role;
use crate::visit::{FILES_SECTION, Frame, Theme, new_nonce};

/// The list of shares, where `/` is the page's.
pub const SHARES: &str = "/?shares";

/// A user; by a link, nobody.
#[derive(Clone, Default)]
pub struct Viewer {
    pub user: String,
    /// Of the session; empty without one.
    pub csrf: String,
    pub has_session: bool,
    /// Of somebody who logged in at the page: its frame is around the files.
    pub role: Option<Role>,
    pub theme: Theme,
}

impl Viewer {
    pub fn of(files: &Files, user: &str, session: Option<&BrowserSession>, headers: &HeaderMap) -> Self {
        let csrf = session.map(|session| session.csrf.clone()).unwrap_or_default();
        let viewer = Self { user: user.to_owned(), csrf, has_session: session.is_some(), ..Self::default() };
        let page = session.filter(|session| session.is_of_guest).and(files.page());
        match page.and_then(|page| page.web.known(headers, false)) {
            Some(known) => Self { role: Some(known.role), theme: known.theme, ..viewer },
            None => viewer,
        }
    }

    pub fn frame(&self, title: &str) -> Frame {
        Frame {
            title: title.to_owned(),
            section: FILES_SECTION,
            nonce: new_nonce(),
            csrf: self.csrf.clone(),
            user: self.user.clone(),
            role: self.role,
            theme: self.theme,
            path: String::new(),
            note: None,
            files: Some(SHARES),
            proof: None,
        }
    }
}
