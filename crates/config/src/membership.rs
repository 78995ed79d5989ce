//! Groups: several users under one name and one number.
//!
//! - `group.members_by_list_or_number`: the members of a group are the users that it lists, and
//!   those whose `gid` or `groups` have its number. Shares and files see the same members.
//! - `group.own_number`: a new group gets a number that no user and no group has, unless the
//!   command asks for another. Like those of users it is never given again (`next_uid`).

use larder_people::User;

use super::group::{GROUP_SIGN, GroupConfig};
use super::nearest::nearest;
use super::user::{Accounts, free_number};
use super::{Checked, Config, UserConfig, Validator, check_user_name, raw::RawGroup};

/// A new group beside the present ones (`group.own_number`).
pub fn new_group(name: &str, gid: Option<u32>, config: &Config, host: &Accounts) -> GroupConfig {
    let gid = gid.or_else(|| host.gid_of(name).filter(|gid| config.is_free(*gid)));
    let gid = gid.unwrap_or_else(|| free_number(config, host));
    GroupConfig { name: name.to_owned(), gid, members: Vec::new() }
}

/// Why a group should not be made like this, with what to type instead.
pub fn objection(group: &GroupConfig) -> Option<(String, &'static str)> {
    (group.gid == 0).then(|| {
        let name = &group.name;
        let message =
            format!("group 0 is root's: members of '{name}' could reach every file that is open to that group");
        (message, "leave --gid out for a number of its own; if you mean it, add --force")
    })
}

impl Config {
    pub fn group(&self, name: &str) -> Option<&GroupConfig> {
        self.groups.iter().find(|group| group.name == name)
    }

    pub fn user(&self, name: &str) -> Option<&UserConfig> {
        self.users.iter().find(|user| user.name == name)
    }

    /// `group.members_by_list_or_number`.
    pub fn is_member(user: &UserConfig, group: &GroupConfig) -> bool {
        group.members.contains(&user.name) || user.gid == group.gid || user.groups.contains(&group.gid)
    }

    /// The users of a group, in the order of the file.
    pub fn members(&self, group: &GroupConfig) -> Vec<String> {
        self.users.iter().filter(|user| Self::is_member(user, group)).map(|user| user.name.clone()).collect()
    }

    /// The user as the doors know it, without anything to log in with.
    pub fn person(&self, user: &UserConfig) -> User {
        let groups = self.groups.iter().filter(|group| Self::is_member(user, group));
        User {
            gids: self.gids_of(user),
            groups: groups.map(|group| group.name.clone()).collect(),
            ..User::new(&user.name, user.uid, user.gid)
        }
    }

    /// The numbers of all groups of a user but the primary one.
    pub fn gids_of(&self, user: &UserConfig) -> Vec<u32> {
        let named = self.groups.iter().filter(|group| Self::is_member(user, group)).map(|group| group.gid);
        let mut gids: Vec<u32> = Vec::new();
        for gid in user.groups.iter().copied().chain(named) {
            if gid != user.gid && !gids.contains(&gid) {
                gids.push(gid);
            }
        }
        gids
    }

    fn no_user(&self, name: &str) -> String {
        match nearest(name, self.users.iter().map(|user| user.name.as_str())) {
            Some(known) => format!("no user '{name}', did you mean '{known}'?"),
            None => format!("no user '{name}': add a [[user]] of that name"),
        }
    }

    /// Whether a list of users may name `entry`: a user, or a group behind its sign.
    pub fn check_entry(&self, entry: &str) -> Result<(), String> {
        match entry.strip_prefix(GROUP_SIGN) {
            Some(group) if self.group(group).is_some() => Ok(()),
            Some(group) => Err(match nearest(group, self.groups.iter().map(|group| group.name.as_str())) {
                Some(known) => format!("no group '{group}', did you mean '{known}'?"),
                None => format!("no group '{group}': add a [[group]] of that name"),
            }),
            None if self.user(entry).is_some() => Ok(()),
            None => Err(self.no_user(entry)),
        }
    }
}

impl Validator<'_> {
    pub(super) fn group(&self, raw: RawGroup, config: &Config) -> Checked<GroupConfig> {
        self.at(&raw.name, check_user_name(raw.name.get_ref()).map_err(|e| e.replacen("user name", "group name", 1)))?;
        if let Some(other) = config.groups.iter().find(|other| other.gid == raw.gid) {
            let name = &other.name;
            return Err(
                self.wrong(&raw.name, format!("group '{name}' has the gid {} already: choose another", raw.gid))
            );
        }
        let mut members: Vec<String> = Vec::new();
        for member in raw.members {
            let known = config.user(member.get_ref()).is_some();
            let unknown = || config.no_user(member.get_ref());
            self.at(&member, known.then_some(()).ok_or_else(unknown))?;
            members.push(member.into_inner());
        }
        Ok(GroupConfig { name: raw.name.into_inner(), gid: raw.gid, members })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;

    use super::*;

    const FILE: &str = "[[user]]\nname = \"ann\"\nuid = 1000\ngroups = [100]\n[[user]]\nname = \"bob\"\nuid = 1001\n\
                        [[user]]\nname = \"eve\"\nuid = 1002\ngid = 1500\n\
                        [[group]]\nname = \"family\"\ngid = 1500\nmembers = [\"ann\", \"bob\"]\n\
                        [[group]]\nname = \"users\"\ngid = 100\n";

    #[test]
    fn members_are_listed_or_have_the_number() {
        let config = Config::parse(FILE, Path::new("/larder.toml")).unwrap();
        let members = |name: &str| config.members(config.group(name).unwrap());
        assert_eq!(members("family"), ["ann", "bob", "eve"]);
        assert_eq!(members("users"), ["ann"]);
        let gids: Vec<Vec<u32>> = config.users.iter().map(|user| config.gids_of(user)).collect();
        assert_eq!(gids, [vec![100, 1500], vec![1500], vec![]]);
        let made = new_group("staff", None, &config, &Accounts::default());
        assert_eq!(made.gid, 1003, "neither a user nor a group has it");
        assert!(objection(&new_group("wheel", Some(0), &config, &Accounts::default())).is_some());
    }

    #[test]
    fn wrong_groups_are_named_with_their_line() {
        for (text, says) in [
            ("[[group]]\nname = \"x\"\ngid = 5\nmembers = [\"mia\"]\n", "no user 'mia'"),
            ("[[group]]\nname = \"x\"\ngid = 1500\n", "has the gid 1500 already"),
            ("[[group]]\nname = \"family\"\ngid = 7\n", "two [[group]] are named 'family'"),
            ("[[group]]\nname = \"@x\"\ngid = 7\n", "is not a group name"),
        ] {
            let failure = Config::parse(&(FILE.to_owned() + text), Path::new("/larder.toml")).unwrap_err();
            assert!(failure.message.contains(says), "{failure}");
        }
    }
}
