//! Names of this machine, checked. Those of pools and volumes: `larder-keep`.

/// A name of this machine as DNS has it, without a domain.
pub fn check_label(name: &str) -> Result<String, String> {
    let inner = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if name.is_empty() || name.len() > 63 || name.starts_with('-') || name.ends_with('-') || !name.chars().all(inner) {
        return Err(format!("'{name}' is not a name of a machine: write 1 to 63 letters, digits and '-'"));
    }
    Ok(name.to_owned())
}

/// The domain of owners over NFS.
pub fn check_domain(name: &str) -> Result<String, String> {
    let is_domain = name.len() <= 253 && name.split('.').all(|label| check_label(label).is_ok());
    if is_domain { Ok(name.to_owned()) } else { Err(format!("'{name}' is not a domain: write one such as home.lan")) }
}
