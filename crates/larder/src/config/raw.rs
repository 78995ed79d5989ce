//! The configuration as it is written: names and types only. What it means is decided in the parent module.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawConfig {
    pub(super) data: Option<Spanned<String>>,
    pub(super) next_uid: Option<u32>,
    #[serde(default)]
    pub(super) listen: RawListen,
    #[serde(default)]
    pub(super) limits: RawLimits,
    #[serde(default)]
    pub(super) metrics: RawMetrics,
    #[serde(default)]
    pub(super) webdav: RawWebdav,
    #[serde(default)]
    pub(super) sftp: RawSftp,
    #[serde(default)]
    pub(super) discovery: RawDiscovery,
    #[serde(default)]
    pub(super) pool: Vec<Spanned<RawPool>>,
    #[serde(default)]
    pub(super) store: Vec<Spanned<super::store::RawStore>>,
    #[serde(default)]
    pub(super) volume: Vec<Spanned<RawVolume>>,
    #[serde(default)]
    pub(super) share: Vec<Spanned<RawShare>>,
    #[serde(default)]
    pub(super) user: Vec<Spanned<RawUser>>,
    #[serde(default)]
    pub(super) group: Vec<Spanned<RawGroup>>,
    #[serde(default)]
    pub(super) mount: Vec<Spanned<RawMount>>,
    #[serde(default)]
    pub(super) replicate: Vec<Spanned<super::replicate::RawReplicate>>,
    #[serde(default)]
    pub(super) replica: Vec<Spanned<super::replicate::RawReplica>>,
    #[serde(default)]
    pub(super) power: super::power::RawPower,
    #[serde(default)]
    pub(super) alert: Vec<Spanned<super::alert::RawAlert>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawListen {
    pub(super) nfs: Option<Spanned<String>>,
    pub(super) smb: Option<Spanned<String>>,
    pub(super) sftp: Option<Spanned<String>>,
    pub(super) webdav: Option<Spanned<String>>,
    pub(super) webdavs: Option<Spanned<String>>,
    pub(super) replication: Option<Spanned<String>>,
    pub(super) portmapper: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLimits {
    pub(super) memory: Option<Spanned<String>>,
    pub(super) connections: Option<Spanned<u32>>,
    pub(super) strangers: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMetrics {
    pub(super) listen: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawWebdav {
    pub(super) certificate: Option<Spanned<String>>,
    pub(super) key: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) insecure_http: bool,
    #[serde(default)]
    pub(super) trusted_proxies: Vec<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSftp {
    #[serde(default)]
    pub(super) ssh_ca_keys: Vec<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDiscovery {
    pub(super) enabled: Option<bool>,
    pub(super) name: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) interfaces: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPool {
    pub(super) name: Spanned<String>,
    pub(super) disks: Vec<Spanned<String>>,
    pub(super) scrub: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawVolume {
    pub(super) name: Spanned<String>,
    pub(super) record_size: Option<Spanned<String>>,
    pub(super) compression: Option<Spanned<String>>,
    pub(super) quota: Option<Spanned<String>>,
    pub(super) sync: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) user_quotas: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    pub(super) group_quotas: BTreeMap<String, Spanned<String>>,
    pub(super) key_file: Option<Spanned<String>>,
    pub(super) key_command: Option<Spanned<Vec<String>>>,
    pub(super) snapshots: Option<Spanned<super::snapshots::RawSnapshots>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMount {
    pub(super) dir: String,
    pub(super) volume: Spanned<String>,
    #[serde(default)]
    pub(super) options: Vec<Spanned<String>>,
    pub(super) snapshot: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawShare {
    pub(super) name: Spanned<String>,
    pub(super) volume: Option<Spanned<String>>,
    pub(super) folder: Option<Spanned<String>>,
    pub(super) nfs: Option<bool>,
    pub(super) smb: Option<bool>,
    pub(super) sftp: Option<bool>,
    pub(super) webdav: Option<bool>,
    pub(super) read_only: Option<bool>,
    pub(super) networks: Option<Vec<Spanned<String>>>,
    pub(super) secure: Option<bool>,
    pub(super) only_from: Option<Vec<Spanned<String>>>,
    pub(super) squash: Option<Spanned<String>>,
    pub(super) anon_uid: Option<u32>,
    pub(super) anon_gid: Option<u32>,
    pub(super) users: Option<Spanned<RawUsers>>,
    pub(super) read_only_users: Option<Vec<Spanned<String>>>,
    pub(super) encrypt: Option<Spanned<String>>,
    pub(super) guest: Option<bool>,
    pub(super) common: Option<bool>,
    pub(super) recycle: Option<Spanned<RawRecycle>>,
    pub(super) snapshots_shown: Option<bool>,
    pub(super) normalize: Option<bool>,
}

/// `true`, or `{ days = 30 }`.
#[derive(Debug)]
pub(super) enum RawRecycle {
    Word(bool),
    Days(u32),
}

impl<'de> Deserialize<'de> for RawRecycle {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            days: u32,
        }
        struct Either;
        impl<'de> serde::de::Visitor<'de> for Either {
            type Value = RawRecycle;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("true, false or { days = 30 }")
            }

            fn visit_bool<E>(self, word: bool) -> Result<RawRecycle, E> {
                Ok(RawRecycle::Word(word))
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<RawRecycle, A::Error> {
                let table = Table::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                Ok(RawRecycle::Days(table.days))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// `"all"`, or a list of names.
#[derive(Debug)]
pub(super) enum RawUsers {
    Word(String),
    List(Vec<Spanned<String>>),
}

impl<'de> Deserialize<'de> for RawUsers {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> serde::de::Visitor<'de> for Either {
            type Value = RawUsers;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("\"all\" or a list of users, such as [\"ann\"]")
            }

            fn visit_str<E>(self, word: &str) -> Result<RawUsers, E> {
                Ok(RawUsers::Word(word.to_owned()))
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<RawUsers, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = list.next_element()? {
                    names.push(name);
                }
                Ok(RawUsers::List(names))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawUser {
    pub(super) name: Spanned<String>,
    pub(super) uid: u32,
    pub(super) gid: Option<u32>,
    pub(super) groups: Option<Vec<u32>>,
    pub(super) ssh_keys: Option<Vec<Spanned<String>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGroup {
    pub(super) name: Spanned<String>,
    pub(super) gid: u32,
    #[serde(default)]
    pub(super) members: Vec<Spanned<String>>,
}
