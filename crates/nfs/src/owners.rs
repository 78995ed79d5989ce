//! Names of users and groups in owners and access lists of version 4 (RFC 8881 5.9).
//!
//! - `owners.numbers_are_taken`: a number in decimal is taken as what it is, from every client: with AUTH_SYS numbers are what
//!   both sides know.
//! - `owners.names_with_a_domain`: `user@domain` is shown and taken where a domain is configured, for users and groups that
//!   larder has. An owner without a name is shown as its number; a name that nobody has, and any other domain, is refused.

use std::collections::HashMap;

use larder_people::NOBODY;

/// Users and groups with names that are no one's in larder's configuration, if nobody there has that name or number.
const WELL_KNOWN_USERS: [(&str, u32); 2] = [("root", 0), ("nobody", NOBODY)];
const WELL_KNOWN_GROUPS: [(&str, u32); 2] = [("root", 0), ("nogroup", NOBODY)];

/// One kind of names, in both directions.
#[derive(Debug, Default)]
struct Names {
    by_id: HashMap<u32, String>,
    by_name: HashMap<String, u32>,
}

impl Names {
    fn new(named: impl IntoIterator<Item = (String, u32)>, well_known: &[(&str, u32)]) -> Self {
        let mut names = Self::default();
        let well_known = well_known.iter().map(|(name, id)| ((*name).to_owned(), *id));
        for (name, id) in named.into_iter().chain(well_known) {
            if !names.by_id.contains_key(&id) && !names.by_name.contains_key(&name) {
                names.by_id.insert(id, name.clone());
                names.by_name.insert(name, id);
            }
        }
        names
    }
}

/// Users and groups as clients of version 4 see and name them.
#[derive(Debug, Default)]
pub struct Owners {
    domain: Option<String>,
    users: Names,
    groups: Names,
}

/// A text that names nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoOwner {
    /// It is no text, or empty.
    Malformed,
    /// Nobody has that name.
    Unknown,
}

impl Owners {
    /// With names in `domain`: pairs of a name and its number.
    pub fn in_domain(
        domain: String,
        users: impl IntoIterator<Item = (String, u32)>,
        groups: impl IntoIterator<Item = (String, u32)>,
    ) -> Self {
        let (users, groups) = (Names::new(users, &WELL_KNOWN_USERS), Names::new(groups, &WELL_KNOWN_GROUPS));
        Self { domain: Some(domain), users, groups }
    }

    pub(super) fn show_user(&self, uid: u32) -> String {
        self.show(&self.users, uid)
    }

    pub(super) fn show_group(&self, gid: u32) -> String {
        self.show(&self.groups, gid)
    }

    fn show(&self, names: &Names, id: u32) -> String {
        match self.domain.as_ref().zip(names.by_id.get(&id)) {
            Some((domain, name)) => format!("{name}@{domain}"),
            None => id.to_string(),
        }
    }

    pub(super) fn user(&self, text: &[u8]) -> Result<u32, NoOwner> {
        self.number(&self.users, text)
    }

    pub(super) fn group(&self, text: &[u8]) -> Result<u32, NoOwner> {
        self.number(&self.groups, text)
    }

    fn number(&self, names: &Names, text: &[u8]) -> Result<u32, NoOwner> {
        let text = std::str::from_utf8(text).map_err(|_| NoOwner::Malformed)?;
        if text.is_empty() {
            return Err(NoOwner::Malformed);
        }
        if text.bytes().all(|digit| digit.is_ascii_digit()) {
            // The number that leaves an owner as it is has no user.
            return text.parse::<u32>().ok().filter(|number| *number != u32::MAX).ok_or(NoOwner::Unknown);
        }
        let (name, domain) = text.rsplit_once('@').ok_or(NoOwner::Unknown)?;
        let is_ours = self.domain.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(domain));
        names.by_name.get(name).copied().filter(|_| is_ours).ok_or(NoOwner::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(list: &[(&str, u32)]) -> Vec<(String, u32)> {
        list.iter().map(|(name, id)| ((*name).to_owned(), *id)).collect()
    }

    #[test]
    fn numbers_and_names_both_ways() {
        let owners = Owners::in_domain("home.lan".into(), named(&[("ann", 1000)]), named(&[("family", 2000)]));
        let cases: [(&[u8], Result<u32, NoOwner>); 13] = [
            (b"0", Ok(0)),
            (b"4294967294", Ok(4_294_967_294)),
            (b"4294967295", Err(NoOwner::Unknown)),
            (b"+5", Err(NoOwner::Unknown)),
            (b"ann@home.lan", Ok(1000)),
            (b"ann@HOME.lan", Ok(1000)),
            (b"root@home.lan", Ok(0)),
            (b"nobody@home.lan", Ok(NOBODY)),
            (b"ann@elsewhere", Err(NoOwner::Unknown)),
            (b"bob@home.lan", Err(NoOwner::Unknown)),
            (b"ann", Err(NoOwner::Unknown)),
            (b"", Err(NoOwner::Malformed)),
            (b"\xff", Err(NoOwner::Malformed)),
        ];
        for (text, wanted) in cases {
            assert_eq!(owners.user(text), wanted, "{}", String::from_utf8_lossy(text));
        }
        assert_eq!(owners.group(b"family@home.lan"), Ok(2000));
        assert_eq!(owners.group(b"ann@home.lan"), Err(NoOwner::Unknown), "users are no groups");
        assert_eq!([owners.show_user(1000), owners.show_user(7)], ["ann@home.lan", "7"]);
        assert_eq!([owners.show_group(2000), owners.show_group(1000)], ["family@home.lan", "1000"]);
    }

    #[test]
    fn without_a_domain_all_are_numbers() {
        let owners = Owners::default();
        assert_eq!((owners.show_user(0), owners.user(b"root@localdomain")), ("0".to_owned(), Err(NoOwner::Unknown)));
        assert_eq!(owners.user(b"12"), Ok(12));
    }

    #[test]
    fn a_user_of_larder_goes_before_a_well_known_one() {
        let owners = Owners::in_domain("lan".into(), named(&[("nobody", 5), ("admin", 0)]), []);
        assert_eq!([owners.show_user(0), owners.show_user(5)], ["admin@lan", "nobody@lan"]);
        assert_eq!((owners.user(b"nobody@lan"), owners.user(b"root@lan")), (Ok(5), Err(NoOwner::Unknown)));
    }
}
