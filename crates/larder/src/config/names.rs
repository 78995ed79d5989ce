//! Names of pools, volumes, shares and users, checked.

use std::fmt;

/// A volume of a pool, by names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct VolumeName {
    pub(crate) pool: String,
    pub(crate) volume: String,
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pool, self.volume)
    }
}

impl VolumeName {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let Some((pool, volume)) = text.split_once('/') else {
            return Err(format!("'{text}' is not POOL/VOLUME, such as tank/files"));
        };
        check_name(pool)?;
        check_name(volume)?;
        Ok(Self { pool: pool.to_owned(), volume: volume.to_owned() })
    }
}

/// A name of this machine as DNS has it, without a domain.
pub(crate) fn check_label(name: &str) -> Result<String, String> {
    let inner = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if name.is_empty() || name.len() > 63 || name.starts_with('-') || name.ends_with('-') || !name.chars().all(inner) {
        return Err(format!("'{name}' is not a name of a machine: write 1 to 63 letters, digits and '-'"));
    }
    Ok(name.to_owned())
}

/// The domain of owners over NFS.
pub(crate) fn check_domain(name: &str) -> Result<String, String> {
    let is_domain = name.len() <= 253 && name.split('.').all(|label| check_label(label).is_ok());
    if is_domain { Ok(name.to_owned()) } else { Err(format!("'{name}' is not a domain: write one such as home.lan")) }
}

/// A name that is safe as a path component, as a share and in every protocol.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let ok = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let inner = |c: char| ok(c) || matches!(c, '_' | '.' | '-');
    if name.is_empty() || name.len() > 64 || !name.starts_with(ok) || !name.chars().all(inner) {
        return Err(format!(
            "'{name}' is not a name: write 1 to 64 of a-z, 0-9, '_', '.' and '-', beginning with a letter or digit"
        ));
    }
    Ok(())
}
