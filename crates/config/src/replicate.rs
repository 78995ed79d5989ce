//! Volumes that are replicated, `[[replicate]]`, and replicas that other machines may send into, `[[replica]]`.

use std::fmt;

use super::spanned::Spanned;
use larder_api::SnapshotCounts;
use larder_base::units::ByteSize;
use serde::Deserialize;

use super::snapshots::RawSnapshots;
use larder_keep::VolumeName;

pub const REPLICATION_PORT: u16 = 12077;

/// A slower stream would seem to have been cut off.
const LIMIT_MIN: ByteSize = ByteSize(64 << 10);
/// Why a copy as files goes to no other machine.
pub const FILES_STAY_HERE: &str = "files are copied between pools of one machine: leave --as-files out, and another machine gets the snapshots as they \
     lie in the store";
pub(super) const LATE_AFTER_HOURS: u32 = 48;
pub(super) const HOURS_MAX: u32 = 24 * 366;
/// SHA-256 of a certificate, in hexadecimal digits.
const FINGERPRINT_DIGITS: usize = 64;

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawReplicate {
    /// POOL/NAME.
    pub(super) volume: Spanned<String>,
    /// POOL/NAME of this larder, larder://HOST[:PORT]/POOL/NAME or ssh://[USER@]HOST[:PORT]/POOL/NAME.
    pub(super) to: Spanned<String>,
    /// Bytes a second at most, such as "10MiB".
    pub(super) limit: Option<Spanned<String>>,
    /// The other machine's certificate; larder replicate add writes it.
    pub(super) machine: Option<Spanned<String>>,
    /// An older newest snapshot is called late.
    #[cfg_attr(test, schemars(extend("default" = LATE_AFTER_HOURS)))]
    pub(super) late_after_hours: Option<Spanned<u32>>,
    /// Copy files into a volume with properties of its own.
    #[cfg_attr(test, schemars(extend("default" = false)))]
    pub(super) as_files: Option<Spanned<bool>>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawReplica {
    /// POOL/NAME.
    pub(super) name: Spanned<String>,
    /// Automatic snapshots that stay; all of them when it is not given.
    pub(super) keep: Option<Spanned<RawSnapshots>>,
    /// Bytes that it may take up, before redundancy.
    pub(super) quota: Option<Spanned<String>>,
    /// Certificates of the machines that may send; pairing writes them.
    #[serde(default)]
    pub(super) from: Vec<Spanned<String>>,
}

/// A volume whose snapshots are sent as they are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicateConfig {
    pub volume: VolumeName,
    pub to: Place,
    /// Bytes a second at most.
    pub limit: Option<ByteSize>,
    /// The fingerprint of the machine at [`Place::Machine`].
    pub machine: Option<String>,
    /// A newest snapshot older than this is too old, if there are newer ones to send.
    pub late_after_hours: u32,
    /// Files are copied into a volume with properties of its own.
    pub as_files: bool,
}

/// A replica, and who may send into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaConfig {
    pub name: VolumeName,
    /// How many automatic snapshots of each kind stay; all of them where nothing is said.
    pub keep: Option<SnapshotCounts>,
    /// The most bytes of the store that it may take up, before redundancy.
    pub quota_bytes: Option<u64>,
    /// Fingerprints of machines.
    pub from: Vec<String>,
}

/// The place of a replica.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// `POOL/NAME` of this larder.
    Here(VolumeName),
    /// `ssh://[USER@]HOST[:PORT]/POOL/NAME`: `larder` is started there by ssh.
    Ssh { login: String, port: Option<u16>, replica: VolumeName },
    /// `larder://HOST[:PORT]/POOL/NAME`: the daemon of another machine.
    Machine { host: String, port: u16, replica: VolumeName },
}

impl Place {
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' is no place for a replica: write POOL/NAME, ssh://[USER@]HOST[:PORT]/POOL/NAME or \
                 larder://HOST[:PORT]/POOL/NAME"
            )
        };
        let Some((scheme, rest)) = text.split_once("://") else {
            return VolumeName::parse(text).map(Self::Here).map_err(|why| format!("{}: {why}", wrong()));
        };
        let (at, replica) = rest.split_once('/').ok_or_else(wrong)?;
        let replica = VolumeName::parse(replica)?;
        let (host, port) = split_port(at).ok_or_else(wrong)?;
        // A host that begins with a dash would be an option of ssh.
        let is_word = |byte: u8| byte.is_ascii_graphic() && !b"'\"\\/?#%".contains(&byte);
        if host.is_empty() || host.starts_with('-') || !host.bytes().all(is_word) {
            return Err(wrong());
        }
        match scheme {
            "ssh" => Ok(Self::Ssh { login: host.to_owned(), port, replica }),
            "larder" => Ok(Self::Machine { host: host.to_owned(), port: port.unwrap_or(REPLICATION_PORT), replica }),
            _ => Err(wrong()),
        }
    }
}

/// `HOST[:PORT]`; an IPv6 address stands in brackets, which the host is returned without.
fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        return match port.strip_prefix(':') {
            Some(port) => Some((host, Some(port.parse().ok()?))),
            None => port.is_empty().then_some((host, None)),
        };
    }
    match text.split_once(':') {
        Some((host, port)) => Some((host, Some(port.parse().ok()?))),
        None => Some((text, None)),
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bracketed = |host: &str| if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        match self {
            Self::Here(name) => write!(f, "{name}"),
            Self::Ssh { login, port: Some(port), replica } => write!(f, "ssh://{}:{port}/{replica}", bracketed(login)),
            Self::Ssh { login, port: None, replica } => write!(f, "ssh://{}/{replica}", bracketed(login)),
            Self::Machine { host, port: REPLICATION_PORT, replica } => {
                write!(f, "larder://{}/{replica}", bracketed(host))
            }
            Self::Machine { host, port, replica } => write!(f, "larder://{}:{port}/{replica}", bracketed(host)),
        }
    }
}

pub fn parse_limit(text: &str) -> Result<ByteSize, String> {
    let limit: ByteSize = text.parse().map_err(|error: larder_base::units::ParseSizeError| error.to_string())?;
    if limit < LIMIT_MIN {
        return Err(format!("{limit} a second is too slow: give at least {LIMIT_MIN}"));
    }
    Ok(limit)
}

pub(super) fn check_fingerprint(text: &str) -> Result<(), String> {
    if text.len() == FINGERPRINT_DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return Ok(());
    }
    Err(format!("'{text}' is no fingerprint of a machine: pair the two with larder replicate accept and add"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_written() {
        for text in [
            "cold/photos",
            "ssh://nas2/cold/photos",
            "ssh://backup@nas2.local:2222/cold/photos",
            "larder://nas2/cold/photos",
            "larder://nas2:999/cold/photos",
            "larder://[fe80::1]:999/cold/photos",
            "ssh://[fe80::1]/cold/photos",
        ] {
            assert_eq!(Place::parse(text).map(|place| place.to_string()).as_deref(), Ok(text));
        }
        for wrong in [
            "photos",
            "ssh://nas2/photos",
            "ssh:///cold/photos",
            "ssh://-oProxyCommand=x/cold/photos",
            "ssh://a b/cold/photos",
            "larder://nas2:x/cold/photos",
            "larder://[::1/cold/photos",
            "s3://bucket/cold/photos",
        ] {
            assert!(Place::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn limits_have_a_least() {
        assert_eq!(parse_limit("1MiB"), Ok(ByteSize(1 << 20)));
        assert!(parse_limit("1K").is_err() && parse_limit("x").is_err());
    }
}
