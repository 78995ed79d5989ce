//! `[[store]]`: a store of volumes in a bucket.

use std::path::PathBuf;

use larder_base::units::ByteSize;
use larder_store::{BucketSettings, BucketUrl, CACHE_BYTES_MIN};
use serde::Deserialize;
use toml::Spanned;
use toml_edit::{InlineTable, Table, value};

use super::names::check_name;

/// Volumes in a bucket. Keys are not in here: they come from the environment, a profile or the machine's role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreConfig {
    pub(crate) name: String,
    pub(crate) bucket: BucketSettings,
    /// Another machine takes over when this one is silent, and this one waits while another has the store.
    pub(crate) standby: bool,
    pub(crate) cache: Option<CacheConfig>,
    /// The pool whose journal answers: `durability = "journal"`. Without one the bucket does.
    pub(crate) journal: Option<String>,
}

/// A cache on a local disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CacheConfig {
    pub(crate) dir: PathBuf,
    pub(crate) bytes: ByteSize,
}

/// The size of a cache that somebody wants.
pub(crate) fn parse_cache_bytes(text: &str) -> Result<ByteSize, String> {
    let bytes: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    match bytes.0 >= CACHE_BYTES_MIN {
        true => Ok(bytes),
        false => Err(format!("a cache of {bytes} is too small: give it {} or more", ByteSize(CACHE_BYTES_MIN))),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCache {
    dir: PathBuf,
    bytes: Spanned<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawStore {
    name: Spanned<String>,
    url: Spanned<String>,
    endpoint: Option<String>,
    region: Option<String>,
    #[serde(default)]
    allow_http: bool,
    #[serde(default)]
    virtual_hosted: bool,
    #[serde(default)]
    standby: bool,
    cache: Option<RawCache>,
    durability: Option<Spanned<String>>,
    journal: Option<Spanned<String>>,
}

/// What an answer waits for: the bucket, or the journal of a pool, which is the only one there is where none is named.
fn parse_journal(raw: &RawStore, pools: &[&str]) -> Result<Option<String>, (Spanned<String>, String)> {
    let known = || if pools.is_empty() { "none".to_owned() } else { pools.join(", ") };
    let durability = match &raw.durability {
        Some(durability) => durability,
        None => {
            let alone = raw.journal.clone();
            return alone.map_or(Ok(None), |place| {
                Err((place, "journal is for durability = \"journal\", which is not there".to_owned()))
            });
        }
    };
    let wrong = |what: String| Err((durability.clone(), what));
    match (durability.get_ref().as_str(), &raw.journal, pools) {
        ("bucket", None, _) => Ok(None),
        ("bucket", Some(place), _) => Err((place.clone(), "journal is for durability = \"journal\"".to_owned())),
        ("journal", ..) if raw.standby => wrong(NO_STANDBY.to_owned()),
        ("journal", Some(pool), _) if pools.contains(&pool.get_ref().as_str()) => Ok(Some(pool.get_ref().clone())),
        ("journal", Some(pool), _) => {
            Err((pool.clone(), format!("there is no pool '{}' in this file (pools: {})", pool.get_ref(), known())))
        }
        ("journal", None, [pool]) => Ok(Some((*pool).to_owned())),
        ("journal", None, _) => {
            wrong(format!("a journal lies on a pool: name it with journal = \"POOL\" (pools: {})", known()))
        }
        (other, ..) => wrong(format!("'{other}' is no durability: write \"bucket\" or \"journal\"")),
    }
}

pub(crate) const NO_STANDBY: &str = "a store with a standby cannot answer from the journal of this machine, which the standby does not \
     have: leave out standby = true, or write durability = \"bucket\"";

impl StoreConfig {
    /// What is wrong comes with its place.
    pub(super) fn parse(raw: RawStore, pools: &[&str]) -> Result<StoreConfig, (Spanned<String>, String)> {
        if let Err(what) = check_name(raw.name.get_ref()) {
            return Err((raw.name, what));
        }
        let url = match raw.url.get_ref().parse::<BucketUrl>() {
            Ok(url) => url,
            Err(error) => return Err((raw.url, error.to_string())),
        };
        let journal = parse_journal(&raw, pools)?;
        let RawStore { endpoint, region, allow_http, virtual_hosted, standby, cache, .. } = raw;
        let cache = match cache.map(|cache| (parse_cache_bytes(cache.bytes.get_ref()), cache)) {
            None => None,
            Some((Ok(bytes), cache)) => Some(CacheConfig { dir: cache.dir, bytes }),
            Some((Err(what), cache)) => return Err((cache.bytes, what)),
        };
        let bucket = BucketSettings { url, endpoint, region, allow_http, virtual_hosted };
        Ok(StoreConfig { name: raw.name.into_inner(), bucket, standby, cache, journal })
    }

    /// As the file has it.
    pub(super) fn table(&self) -> Table {
        let mut table = Table::new();
        table.insert("name", value(&self.name));
        table.insert("url", value(self.bucket.url.to_string()));
        for (name, said) in [("endpoint", &self.bucket.endpoint), ("region", &self.bucket.region)] {
            if let Some(said) = said {
                table.insert(name, value(said));
            }
        }
        let flags = [
            ("allow_http", self.bucket.allow_http),
            ("virtual_hosted", self.bucket.virtual_hosted),
            ("standby", self.standby),
        ];
        for (name, said) in flags {
            if said {
                table.insert(name, value(true));
            }
        }
        if let Some(pool) = &self.journal {
            table.insert("durability", value("journal"));
            table.insert("journal", value(pool));
        }
        if let Some(cache) = &self.cache {
            let mut inline = InlineTable::new();
            inline.insert("dir", cache.dir.display().to_string().into());
            inline.insert("bytes", cache.bytes.to_string().into());
            table.insert("cache", value(inline));
        }
        table
    }
}
