//! Names of pools and volumes, checked.

use std::fmt;

/// A volume of a pool, by names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeName {
    pub pool: String,
    pub volume: String,
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pool, self.volume)
    }
}

impl VolumeName {
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some((pool, volume)) = text.split_once('/') else {
            return Err(format!("'{text}' is not POOL/VOLUME, such as tank/files"));
        };
        check_name(pool)?;
        check_name(volume)?;
        Ok(Self { pool: pool.to_owned(), volume: volume.to_owned() })
    }
}

/// A name that is safe as a path component, as a share and in every protocol.
pub fn check_name(name: &str) -> Result<(), String> {
    let ok = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let inner = |c: char| ok(c) || matches!(c, '_' | '.' | '-');
    if name.is_empty() || name.len() > 64 || !name.starts_with(ok) || !name.chars().all(inner) {
        return Err(format!(
            "'{name}' is not a name: write 1 to 64 of a-z, 0-9, '_', '.' and '-', beginning with a letter or digit"
        ));
    }
    Ok(())
}
