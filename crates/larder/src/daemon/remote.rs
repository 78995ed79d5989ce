//! The person or program behind a request from another machine, for the audit log.

use std::net::IpAddr;

/// Who asks from another machine, by the page or by the API over HTTPS.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    pub(crate) who: String,
    pub(crate) from: IpAddr,
    /// "page" or "api".
    pub(crate) by: &'static str,
}
