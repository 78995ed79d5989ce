//! Quotas of users and groups: their names, which the configuration knows, and their numbers, which a volume knows.

use std::collections::BTreeMap;

use larder_api::{Failure, VolumeChange};

use larder_config::Config;
use larder_config::user::Accounts;

/// `change` with numbers in place of the names of users and groups.
pub(super) fn numbered(change: &VolumeChange, config: &Config) -> Result<VolumeChange, Failure> {
    if change.user_quotas.is_empty() && change.group_quotas.is_empty() {
        return Ok(change.clone());
    }
    let host = Accounts::of_machine();
    let user = |name: &str| config.user(name).map(|user| user.uid).or_else(|| host.uid_of(name));
    let group = |name: &str| config.group(name).map(|group| group.gid).or_else(|| host.gid_of(name));
    Ok(VolumeChange {
        user_quotas: by_number(&change.user_quotas, "user", user)?,
        group_quotas: by_number(&change.group_quotas, "group", group)?,
        ..change.clone()
    })
}

fn by_number(
    quotas: &BTreeMap<String, u64>,
    kind: &str,
    find: impl Fn(&str) -> Option<u32>,
) -> Result<BTreeMap<String, u64>, Failure> {
    let number = |(name, bytes): (&String, &u64)| {
        let id = find(name).or_else(|| name.parse().ok()).ok_or_else(|| {
            Failure::not_found(format!("there is no {kind} '{name}'"))
                .action(format!("see who there is with: larder {kind} list; or write a number"))
        })?;
        Ok((id.to_string(), *bytes))
    };
    quotas.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_become_numbers() {
        let quotas = |pairs: &[(&str, u64)]| pairs.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect();
        let find = |name: &str| (name == "ann").then_some(1000);
        let found = by_number(&quotas(&[("ann", 5), ("1001", 6)]), "user", find).unwrap();
        assert_eq!(found, quotas(&[("1000", 5), ("1001", 6)]));
        assert!(by_number(&quotas(&[("eve", 5)]), "user", find).unwrap_err().message.contains("no user 'eve'"));
    }
}
