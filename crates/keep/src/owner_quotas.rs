//! Quotas of users and groups, by their numbers.

use larder_api::{Failure, VolumeChange};
use larder_volume::OwnerQuotas;

/// `old` with what `change` names, by numbers.
pub fn changed(mut old: OwnerQuotas, change: &VolumeChange) -> Result<OwnerQuotas, Failure> {
    for (kind, quotas, list) in
        [("user", &change.user_quotas, &mut old.users), ("group", &change.group_quotas, &mut old.groups)]
    {
        for (text, &bytes) in quotas {
            let unknown = || {
                Failure::invalid(format!("'{text}' is not the number of a {kind}"))
                    .action("start larder, which knows names; or write a number")
            };
            OwnerQuotas::set(list, text.parse().map_err(|_| unknown())?, (bytes > 0).then_some(bytes));
        }
    }
    Ok(old)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn zero_takes_away_and_names_are_no_numbers() {
        let quotas = |pairs: &[(&str, u64)]| -> BTreeMap<String, u64> {
            pairs.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect()
        };
        let change =
            |users, groups| VolumeChange { user_quotas: users, group_quotas: groups, ..VolumeChange::default() };
        let found = quotas(&[("1000", 5), ("1001", 6)]);
        let set = changed(OwnerQuotas::default(), &change(found, quotas(&[("100", 7)]))).unwrap();
        assert_eq!((set.users.len(), OwnerQuotas::of(&set.groups, 100)), (2, Some(7)));
        let set = changed(set, &change(quotas(&[("1001", 0)]), quotas(&[]))).unwrap();
        assert_eq!((OwnerQuotas::of(&set.users, 1000), OwnerQuotas::of(&set.users, 1001)), (Some(5), None));
        assert!(changed(set, &change(quotas(&[("ann", 1)]), quotas(&[]))).is_err());
    }
}
