//! The place of the page on its server.

/// Each path of the page begins with it. No share has such a name, so the shares keep the paths that WebDAV gives them.
pub const BASE: &str = "/+";
