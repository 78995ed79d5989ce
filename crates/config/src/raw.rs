//! The configuration as it is written: names and types only. What it means is decided in the parent module.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::spanned::Spanned;

/// What larder serves: larder.toml.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawConfig {
    /// Secrets, socket and lock live here; the folder of this file when it is not named.
    pub(super) data: Option<Spanned<String>>,
    /// Kept by larder: new users get no number below, because users who were removed had them.
    pub(super) next_uid: Option<u32>,
    /// Addresses: ADDR:PORT, :PORT (0: a free one) or "off".
    #[serde(default)]
    pub(super) listen: RawListen,
    /// Names that clients of NFS see.
    #[serde(default)]
    pub(super) nfs: RawNfs,
    /// Memory and connections.
    #[serde(default)]
    pub(super) limits: RawLimits,
    /// Metrics for Prometheus.
    #[serde(default)]
    pub(super) metrics: RawMetrics,
    /// How WebDAV is kept from eavesdroppers.
    #[serde(default)]
    pub(super) webdav: RawWebdav,
    /// larder in a browser.
    #[serde(default)]
    pub(super) page: RawPage,
    /// Logins over SFTP.
    #[serde(default)]
    pub(super) sftp: RawSftp,
    /// How other machines find this one.
    #[serde(default)]
    pub(super) discovery: RawDiscovery,
    /// Disks of pools, whichever pool they belong to.
    #[serde(default)]
    pub(super) disks: RawDisks,
    /// Pools of disks.
    #[serde(default)]
    pub(super) pool: Vec<Spanned<RawPool>>,
    /// Stores of volumes in buckets.
    #[serde(default)]
    pub(super) store: Vec<Spanned<super::store::RawStore>>,
    /// Volumes with properties, keys and schedules. One that is missing is made, unless it names a key.
    #[serde(default)]
    pub(super) volume: Vec<Spanned<RawVolume>>,
    /// Shared folders.
    #[serde(default)]
    pub(super) share: Vec<Spanned<super::raw_share::RawShare>>,
    /// People who may log in. Passwords are kept elsewhere: larder user passwd NAME.
    #[serde(default)]
    pub(super) user: Vec<Spanned<RawUser>>,
    /// Groups of users, which shares name as @NAME.
    #[serde(default)]
    pub(super) group: Vec<Spanned<RawGroup>>,
    /// Local mounts that are made at every start.
    #[serde(default)]
    pub(super) mount: Vec<Spanned<RawMount>>,
    /// Volumes whose snapshots are sent as they are taken.
    #[serde(default)]
    pub(super) replicate: Vec<Spanned<super::replicate::RawReplicate>>,
    /// Replicas that other machines may send into.
    #[serde(default)]
    pub(super) replica: Vec<Spanned<super::replicate::RawReplica>>,
    /// For `larder power`; serving needs nothing of it.
    #[serde(default)]
    pub(super) power: super::power::RawPower,
    /// The battery behind this machine.
    pub(super) ups: Option<Spanned<super::ups::RawUps>>,
    /// Who is told of trouble, and how. Secrets are files or programs.
    #[serde(default)]
    pub(super) alert: Vec<Spanned<super::alert::RawAlert>>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawListen {
    /// NFS version 3 and later.
    #[cfg_attr(test, schemars(extend("default" = super::schema::from_types::listen_default(super::NFS_PORT))))]
    pub(super) nfs: Option<Spanned<String>>,
    /// SMB 2 and 3. Windows opens port 445 and no other.
    #[cfg_attr(test, schemars(extend("default" = super::schema::from_types::listen_default(super::SMB_PORT))))]
    pub(super) smb: Option<Spanned<String>>,
    /// SFTP; 10022 is usual.
    #[cfg_attr(test, schemars(extend("default" = "off")))]
    pub(super) sftp: Option<Spanned<String>>,
    /// WebDAV and pages without TLS, on loopback alone unless insecure_http; 10080 is usual.
    #[cfg_attr(test, schemars(extend("default" = "off")))]
    pub(super) webdav: Option<Spanned<String>>,
    /// WebDAV and pages for browsers over TLS; 10443 is usual.
    #[cfg_attr(test, schemars(extend("default" = "off")))]
    pub(super) webdavs: Option<Spanned<String>>,
    /// Snapshots from paired machines; 12077 is usual.
    #[cfg_attr(test, schemars(extend("default" = "off")))]
    pub(super) replication: Option<Spanned<String>>,
    /// Lets clients find NFS without port options; its port is 111.
    #[cfg_attr(test, schemars(extend("default" = "off")))]
    pub(super) portmapper: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawNfs {
    /// Clients of version 4 see owners as user@domain, as their idmapd.conf has it, such as "home.lan"; numbers otherwise.
    pub(super) domain: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawLimits {
    /// Caches and unwritten data of all volumes, such as "2GiB"; a quarter of RAM when it is not given.
    pub(super) memory: Option<Spanned<String>>,
    /// Of each protocol, at a time.
    #[cfg_attr(test, schemars(extend("default" = super::CONNECTIONS)))]
    pub(super) connections: Option<Spanned<u32>>,
    /// What connections without a login hold, of all protocols together; at least 8 MiB.
    #[cfg_attr(test, schemars(extend("default" = super::schema::from_types::strangers_default())))]
    pub(super) strangers: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawMetrics {
    /// GET /metrics, without a password; 127.0.0.1:9633 is usual.
    #[cfg_attr(test, schemars(extend("default" = "off")))]
    pub(super) listen: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawWebdav {
    /// A certificate of your own in PEM, together with its key; larder makes its own otherwise.
    pub(super) certificate: Option<Spanned<String>>,
    /// The key of the certificate, in PEM.
    pub(super) key: Option<Spanned<String>>,
    /// Passwords may cross the network in clear.
    #[serde(default)]
    pub(super) insecure_http: bool,
    /// Proxies whose X-Forwarded-For or Forwarded is believed.
    #[serde(default)]
    pub(super) trusted_proxies: Vec<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawPage {
    /// ADDRESS:PORT, a port alone, or "off". Beside WebDAV over TLS on port 10443 when absent.
    pub(super) listen: Option<Spanned<String>>,
    /// Networks and addresses whose machines may use it; loopback and private networks when absent.
    pub(super) networks: Option<Vec<Spanned<String>>>,
    /// Further names of this machine, as browsers are told.
    #[serde(default)]
    pub(super) hosts: Vec<Spanned<String>>,
    /// Owners may set keys that run programs, name files or folders outside the data folder, and renew the recovery key, from other
    /// machines: by the page and the API over HTTPS.
    #[serde(default)]
    pub(super) may_run: bool,
    /// An issuer of OpenID Connect, by which people may log in to the page.
    pub(super) oidc: Option<RawOidc>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawOidc {
    /// The address of the issuer, as it names itself.
    pub(super) issuer: Spanned<String>,
    /// The name of this box at the issuer.
    pub(super) client_id: Spanned<String>,
    /// A file with the secret of this box at the issuer; a public client has none.
    pub(super) client_secret_file: Option<Spanned<String>>,
    /// The claim that is the name of a user here; "preferred_username" when absent.
    pub(super) user_claim: Option<Spanned<String>>,
    /// On the button of the log-in; the issuer's host when absent.
    pub(super) label: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawSftp {
    /// Whoever has a certificate of these authorities comes in: lines as in authorized_keys.
    #[serde(default)]
    pub(super) ssh_ca_keys: Vec<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawDiscovery {
    /// Doors that listen beyond loopback are announced.
    #[cfg_attr(test, schemars(extend("default" = true)))]
    pub(super) enabled: Option<bool>,
    /// The name that people see; the machine's when it is not given.
    pub(super) name: Option<Spanned<String>>,
    /// All with an address of a private network when none is named.
    #[serde(default)]
    pub(super) interfaces: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawDisks {
    /// How often each disk tests its electronics and a few sectors, by its hours of running. A sleeping disk is not woken.
    #[cfg_attr(test, schemars(extend("enum" = ["off", "daily", "weekly", "monthly", "quarterly"])))]
    #[cfg_attr(test, schemars(extend("default" = "off")))]
    pub(super) short_test: Option<Spanned<String>>,
    /// The same of tests that read each sector, which takes hours.
    #[cfg_attr(test, schemars(extend("enum" = ["off", "daily", "weekly", "monthly", "quarterly"])))]
    #[cfg_attr(test, schemars(extend("default" = "off")))]
    pub(super) long_test: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawPool {
    /// As its labels say.
    pub(super) name: Spanned<String>,
    /// Their folders. Order does not matter; layout and redundancy are in the labels.
    pub(super) disks: Vec<Spanned<String>>,
    /// How often everything is read and verified.
    #[cfg_attr(test, schemars(extend("enum" = ["off", "daily", "weekly", "monthly", "quarterly"])))]
    #[cfg_attr(test, schemars(extend("default" = super::Schedule::default().word())))]
    pub(super) scrub: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawVolume {
    /// POOL/NAME.
    pub(super) name: Spanned<String>,
    /// 4K to 1M, a power of two.
    pub(super) record_size: Option<Spanned<String>>,
    /// lz4, zstd (as zstd:3), zstd:1 to zstd:19, none.
    pub(super) compression: Option<Spanned<String>>,
    /// Such as "1TiB", or "none".
    pub(super) quota: Option<Spanned<String>>,
    /// relaxed: changes are durable within 5 s; fsync and COMMIT still wait.
    #[cfg_attr(test, schemars(extend("enum" = ["standard", "relaxed"])))]
    pub(super) sync: Option<Spanned<String>>,
    /// By name or number; "none" takes one away.
    #[serde(default)]
    pub(super) user_quotas: BTreeMap<String, Spanned<String>>,
    /// By name or number; "none" takes one away.
    #[serde(default)]
    pub(super) group_quotas: BTreeMap<String, Spanned<String>>,
    /// The key that opens an encrypted volume at every start.
    pub(super) key_file: Option<Spanned<String>>,
    /// A program and its arguments, which writes that key to its standard output.
    pub(super) key_command: Option<Spanned<Vec<String>>>,
    /// Automatic snapshots: how many of each kind are kept. None are taken when this is not given.
    pub(super) snapshots: Option<Spanned<super::snapshots::RawSnapshots>>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawMount {
    /// The folder of this machine.
    pub(super) dir: Spanned<String>,
    /// POOL/NAME.
    pub(super) volume: Spanned<String>,
    /// As mount -o has them: ro, noatime, allow_other, ...
    #[serde(default)]
    pub(super) options: Vec<Spanned<String>>,
    /// A snapshot of the volume instead, read-only.
    pub(super) snapshot: Option<String>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawUser {
    /// The name of the login.
    pub(super) name: Spanned<String>,
    /// Owner of what the user makes; no two users should have the same.
    pub(super) uid: u32,
    /// The uid when it is not given.
    pub(super) gid: Option<u32>,
    /// Numbers of groups.
    #[cfg_attr(test, schemars(extend("default" = [] as [u32; 0])))]
    pub(super) groups: Option<Vec<u32>>,
    /// SFTP only: keys that let the user in, as in authorized_keys.
    #[cfg_attr(test, schemars(extend("default" = [] as [u32; 0])))]
    pub(super) ssh_keys: Option<Vec<Spanned<String>>>,
    /// On the page: "owner", "looker" or "user"; "user" when absent.
    pub(super) role: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawGroup {
    /// Shares name it as @NAME.
    pub(super) name: Spanned<String>,
    /// No two groups have the same.
    pub(super) gid: u32,
    /// Users; and everybody whose gid or groups have its number.
    #[serde(default)]
    pub(super) members: Vec<Spanned<String>>,
}
