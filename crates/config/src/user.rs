//! People who may log in, and the numbers that files store for them.
//!
//! - `user.own_numbers`: every user gets a uid and a group that no other user has, unless the
//!   command asks for others. Two users with one uid may read, change and delete each other's
//!   files.
//! - `user.numbers_never_reused`: the number of a removed user is not given to another user
//!   (`next_uid`), since files still have it.

use std::collections::HashSet;

use larder_api::UserRole;

use super::{Config, NOBODY};
use crate::machine;

/// The first number that ordinary users get, here as on every Linux.
const UID_MIN: u32 = 1000;
/// Shorter passwords are taken from those alone who insist.
const PASSWORD_CHARS_MIN: usize = 2;
/// Shorter ones are guessed soon.
const PASSWORD_CHARS_GOOD: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserConfig {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    /// Public keys that let the user in over SFTP: lines as in authorized_keys.
    pub ssh_keys: Vec<String>,
    /// On the page.
    pub role: UserRole,
}

/// The requested properties of a new user; larder chooses the missing ones.
#[derive(Clone, Debug, Default)]
pub struct NewUser {
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub groups: Vec<u32>,
    pub role: UserRole,
}

/// The first user, as `up` makes it: whoever runs larder, and owns the box on the page.
pub fn first_user(name: &str) -> UserConfig {
    let (uid, gid) = machine::owner();
    let (groups, ssh_keys) = (Vec::new(), Vec::new());
    UserConfig { name: name.to_owned(), uid, gid, groups, ssh_keys, role: UserRole::Owner }
}

/// A new user beside the present ones (`user.own_numbers`, `user.numbers_never_reused`).
pub fn new_user(name: &str, asked: NewUser, config: &Config, host: &Accounts) -> UserConfig {
    let uid = asked.uid.unwrap_or_else(|| free_id(name, config, host));
    let gid = asked.gid.unwrap_or(uid);
    let NewUser { groups, role, .. } = asked;
    UserConfig { name: name.to_owned(), uid, gid, groups, ssh_keys: Vec::new(), role }
}

/// The uid of the account of that name on this machine, if nobody here has it; else the next that is free.
fn free_id(name: &str, config: &Config, host: &Accounts) -> u32 {
    let own = host.uid_of(name).filter(|uid| config.is_free(*uid));
    own.unwrap_or_else(|| free_number(config, host))
}

/// The next number that no user, group, share or account of this machine has.
pub(super) fn free_number(config: &Config, host: &Accounts) -> u32 {
    let (taken, from) = (config.numbers(), config.next_uid.max(UID_MIN));
    (from..u32::MAX).find(|id| !taken.contains(id) && !host.ids.contains(id)).unwrap_or(NOBODY)
}

impl Config {
    /// The numbers that users, groups and shares have.
    fn numbers(&self) -> HashSet<u32> {
        let users = self.users.iter().flat_map(|u| [u.uid, u.gid].into_iter().chain(u.groups.iter().copied()));
        let groups = self.groups.iter().map(|group| group.gid);
        let owners = self.shares.iter().flat_map(|share| <[u32; 2]>::from(share.owner()));
        users.chain(groups).chain(owners).chain([NOBODY, u32::MAX]).collect()
    }

    /// Whether a new user or group may have the number.
    pub(super) fn is_free(&self, id: u32) -> bool {
        id >= UID_MIN && !self.numbers().contains(&id)
    }
}

/// The accounts and groups of this machine.
#[derive(Default)]
pub struct Accounts {
    names: Vec<(String, u32)>,
    groups: Vec<(String, u32)>,
    ids: HashSet<u32>,
}

impl Accounts {
    pub fn of_machine() -> Self {
        let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
        Self::parse(&read("/etc/passwd"), &read("/etc/group"))
    }

    /// passwd(5) and group(5): `name:password:id:...`.
    fn parse(passwd: &str, groups: &str) -> Self {
        let entry = |line: &str| {
            let mut fields = line.split(':');
            let (name, id) = (fields.next()?, fields.nth(1)?.parse().ok()?);
            Some((name.to_owned(), id))
        };
        let names: Vec<(String, u32)> = passwd.lines().filter_map(entry).collect();
        let groups: Vec<(String, u32)> = groups.lines().filter_map(entry).collect();
        let ids = names.iter().chain(&groups).map(|(_, id)| *id).collect();
        Self { names, groups, ids }
    }

    pub fn gid_of(&self, name: &str) -> Option<u32> {
        self.groups.iter().find(|(known, _)| known == name).map(|(_, gid)| *gid)
    }

    pub fn uid_of(&self, name: &str) -> Option<u32> {
        self.names.iter().find(|(known, _)| known == name).map(|(_, uid)| *uid)
    }

    pub fn name_of_user(&self, uid: u32) -> Option<String> {
        self.names.iter().find(|(_, known)| *known == uid).map(|(name, _)| name.clone())
    }

    pub fn name_of_group(&self, gid: u32) -> Option<String> {
        self.groups.iter().find(|(_, known)| *known == gid).map(|(name, _)| name.clone())
    }
}

/// Why a user should not be made like this, with what to type instead; `None`: all is well.
pub fn objection(user: &UserConfig) -> Option<(String, &'static str)> {
    let name = &user.name;
    if user.uid == 0 {
        let message = format!("uid 0 is root: '{name}' could read, change and delete every file of everybody");
        return Some((message, "leave --uid out for a number of their own; if you mean it, add --force"));
    }
    if user.gid == 0 || user.groups.contains(&0) {
        let message = format!("group 0 is root's: '{name}' could reach every file that is open to that group");
        return Some((message, "leave the group out; if you mean it, add --force"));
    }
    None
}

pub fn password_objection(password: &str) -> Option<(String, &'static str)> {
    let message = match password.chars().count() {
        0 => "the password is empty: anybody could log in".to_owned(),
        n if n < PASSWORD_CHARS_MIN => "a password of one character is guessed at once".to_owned(),
        _ => return None,
    };
    Some((message, "choose a longer one; if you mean it, add --force"))
}

/// Remarks for the person who made a user.
pub fn remarks(user: &UserConfig, config: &Config, password: &str) -> Vec<String> {
    let mut remarks = Vec::new();
    let others = config.users.iter().filter(|other| other.name != user.name && other.uid == user.uid);
    let others: Vec<&str> = others.map(|other| other.name.as_str()).collect();
    if !others.is_empty() {
        remarks.push(format!(
            "'{}' has the uid of {}, {}: to every file they are one person",
            user.name,
            others.join(", "),
            user.uid
        ));
    }
    if password.chars().count() < PASSWORD_CHARS_GOOD {
        remarks.push(format!("the password has fewer than {PASSWORD_CHARS_GOOD} characters and may be guessed"));
    }
    remarks
}

/// Users of an existing file who share a uid.
pub(super) fn notes(users: &[UserConfig]) -> Vec<String> {
    let pairs = users.iter().enumerate().filter_map(|(at, user)| {
        let first = users.get(..at)?.iter().find(|other| other.uid == user.uid)?;
        Some(format!(
            "users '{}' and '{}' have the same uid {}: to every file they are one person, who may read, change and \
             delete what either has made; if that is not meant, give '{}' another uid",
            first.name, user.name, user.uid, user.name
        ))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;

    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(text, Path::new("/larder.toml")).unwrap()
    }

    #[test]
    fn everybody_gets_numbers_of_their_own() {
        let host = Accounts::parse(
            "root:x:0:0::/:\nmia:x:1003:1003::/:\nx:x:1001:100::/:\n",
            "users:x:100:\ngames:x:1002:mia\n",
        );
        let check = |text: &str, name: &str, uid: u32| {
            let made = new_user(name, NewUser::default(), &config(text), &host);
            assert_eq!((made.uid, made.gid), (uid, uid), "{text}");
        };
        let user = |name: &str, uid: u32| format!("[[user]]\nname = \"{name}\"\nuid = {uid}\n");
        check("", "ann", 1000);
        check(&user("keeper", 1000), "ann", 1004);
        check(&user("keeper", 1000), "mia", 1003);
        check(&user("keeper", 1003), "mia", 1000);
        check(&user("keeper", 1000), "root", 1004);
        check(&(user("keeper", 1000) + &user("ann", 1004)), "bob", 1005);
        check(&(user("keeper", 1000) + "gid = 1004\ngroups = [1005]\n"), "bob", 1006);
        check(&("next_uid = 1010\n".to_owned() + &user("keeper", 1000)), "bob", 1010);
        let pool = "[[pool]]\nname = \"t\"\ndisks = [\"a\"]\n[[share]]\nname = \"s\"\nvolume = \"t/v\"\nanon_uid = 1000\nanon_gid = 1004\n";
        check(pool, "ann", 1005);
        let asked = NewUser { uid: Some(1000), ..NewUser::default() };
        let made = new_user("ann", asked, &config(&user("keeper", 1000)), &host);
        assert_eq!((made.uid, made.gid), (1000, 1000));
        assert_eq!(remarks(&made, &config(&user("keeper", 1000)), "long enough").len(), 1);
    }

    #[test]
    fn root_and_bad_passwords_are_objected_to() {
        let user = |uid, gid, groups: &[u32]| UserConfig {
            name: "ann".into(),
            uid,
            gid,
            groups: groups.to_vec(),
            ssh_keys: Vec::new(),
            role: UserRole::User,
        };
        for (user, bad) in
            [(user(0, 5, &[]), true), (user(5, 0, &[]), true), (user(5, 5, &[7, 0]), true), (user(5, 5, &[7]), false)]
        {
            assert_eq!(objection(&user).is_some(), bad, "{user:?}");
        }
        for (password, bad) in [("", true), ("x", true), ("ä", true), ("xy", false)] {
            assert_eq!(password_objection(password).is_some(), bad, "{password}");
        }
    }

    #[test]
    fn users_who_share_a_uid_are_named() {
        let text = "[[user]]\nname = \"a\"\nuid = 1000\n[[user]]\nname = \"b\"\nuid = 1000\n[[user]]\nname = \"c\"\nuid = 1001\n";
        let notes = config(text).notes();
        assert_eq!(notes.len(), 1);
        assert!(notes[0].contains("users 'a' and 'b'"), "{notes:?}");
    }
}
