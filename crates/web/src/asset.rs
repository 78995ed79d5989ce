//! Style, scripts and icon, in the program. A name holds the hash of its bytes, so a browser keeps
//! an asset for good and an update is seen at once.

use std::sync::LazyLock;

use aws_lc_rs::digest;
use larder_base::hex;

use crate::base::BASE;

/// Digits of the hash in a name: accidents are what it has to tell apart.
const NAME_DIGITS: usize = 16;

pub struct Asset {
    pub stem: &'static str,
    pub kind: &'static str,
    pub bytes: &'static [u8],
    /// `/+/assets/STEM.HASH.EXTENSION`.
    pub path: String,
    /// Of RFC 9110 8.8.3, with its quotes.
    pub etag: String,
}

impl Asset {
    /// The last part of its path.
    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

fn asset(stem: &'static str, extension: &str, kind: &'static str, bytes: &'static [u8]) -> Asset {
    let mut hash = hex::encode(digest::digest(&digest::SHA256, bytes).as_ref());
    hash.truncate(NAME_DIGITS);
    Asset { stem, kind, bytes, path: format!("{BASE}{FOLDER}{stem}.{hash}.{extension}"), etag: format!("\"{hash}\"") }
}

const FOLDER: &str = "/assets/";
const SCRIPT: &str = "text/javascript; charset=utf-8";

pub static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    vec![
        asset("style", "css", "text/css; charset=utf-8", include_bytes!("../assets/style.css")),
        asset("setup", "css", "text/css; charset=utf-8", include_bytes!("../assets/setup.css")),
        asset("script", "js", SCRIPT, include_bytes!("../assets/script.js")),
        asset("files", "js", SCRIPT, include_bytes!("../assets/files.js")),
        asset("htmx", "js", SCRIPT, include_bytes!("../assets/vendor/htmx-4.0.1.min.js")),
        asset("hx-sse", "js", SCRIPT, include_bytes!("../assets/vendor/hx-sse-4.0.1.min.js")),
        asset("icon", "svg", "image/svg+xml", include_bytes!("../assets/icon.svg")),
    ]
});

/// The path of the asset of that stem.
pub fn path(stem: &str) -> &'static str {
    ASSETS.iter().find(|asset| asset.stem == stem).map_or("", |asset| asset.path.as_str())
}

/// How long browsers keep an asset.
pub const CACHED: &str = "public, max-age=31536000, immutable";

/// The asset at a whole path.
pub fn of_path(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

/// The asset behind the last part of its path.
pub fn find(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL_BYTES_MAX: usize = 250 << 10;

    /// Vendored files with their hashes as the packages have them.
    const VENDORED: &[(&str, &[u8], &str)] = &[
        (
            "htmx.org 4.0.1, dist/htmx.min.js",
            include_bytes!("../assets/vendor/htmx-4.0.1.min.js"),
            "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130",
        ),
        (
            "htmx.org 4.0.1, dist/ext/hx-sse.min.js",
            include_bytes!("../assets/vendor/hx-sse-4.0.1.min.js"),
            "18ef2761356ec1fe0bb6d92612315b37517a7c1e9856b661c5ae81fef239d103",
        ),
    ];

    #[test]
    fn vendored_files_are_as_published() {
        for (name, bytes, hash) in VENDORED {
            assert_eq!(hex::encode(digest::digest(&digest::SHA256, bytes).as_ref()), *hash, "{name}");
        }
    }

    #[test]
    fn all_assets_fit() {
        let all = ASSETS.iter().map(|asset| asset.bytes.len()).sum::<usize>();
        assert!(all <= ALL_BYTES_MAX, "{all} bytes");
    }

    #[test]
    fn assets_are_found_by_their_hashed_names_alone() {
        for asset in ASSETS.iter() {
            let name = asset.name();
            assert!(!name.is_empty());
            assert_eq!(find(name).unwrap().stem, asset.stem);
            assert_eq!(path(asset.stem), asset.path);
        }
        for name in ["", "style.css", "style.0000000000000000.css", "../style.css"] {
            assert!(find(name).is_none(), "{name}");
        }
    }
}
