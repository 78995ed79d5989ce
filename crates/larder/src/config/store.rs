//! `[[store]]`: a store of volumes in a bucket.

use larder_store::{BucketSettings, BucketUrl};
use serde::Deserialize;
use toml::Spanned;
use toml_edit::{Table, value};

use super::names::check_name;

/// Volumes in a bucket. Keys are not in here: they come from the environment, a profile or the machine's role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreConfig {
    pub(crate) name: String,
    pub(crate) bucket: BucketSettings,
    /// Another machine takes over when this one is silent, and this one waits while another has the store.
    pub(crate) standby: bool,
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
}

impl StoreConfig {
    /// What is wrong comes with its place.
    pub(super) fn parse(raw: RawStore) -> Result<StoreConfig, (Spanned<String>, String)> {
        if let Err(what) = check_name(raw.name.get_ref()) {
            return Err((raw.name, what));
        }
        let url = match raw.url.get_ref().parse::<BucketUrl>() {
            Ok(url) => url,
            Err(error) => return Err((raw.url, error.to_string())),
        };
        let RawStore { endpoint, region, allow_http, virtual_hosted, standby, .. } = raw;
        let bucket = BucketSettings { url, endpoint, region, allow_http, virtual_hosted };
        Ok(StoreConfig { name: raw.name.into_inner(), bucket, standby })
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
        table
    }
}
