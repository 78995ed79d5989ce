//! The person or program behind a request from another machine, for the audit log.

use std::net::IpAddr;

/// Who asks from another machine, by the page or by the API over HTTPS.
#[derive(Clone, Debug)]
pub struct Remote {
    pub who: String,
    pub from: IpAddr,
    /// "page" or "api".
    pub by: &'static str,
}
