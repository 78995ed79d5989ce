//! A share as its rules of entrance: its doors, its networks and its people.
//!
//! - `share.listed_people_only`: a share that lists people admits only these, and nobody once its
//!   lists are empty. Everybody is admitted by `users = "all"`, or if neither list is there.
//! - `share.nearest_name_decides`: a list names users, and groups as `@family`. A user's own name
//!   outranks a group, and a group outranks `"all"`. Of two names of one rank the one that may
//!   write decides.
//! - `share.nfs_needs_networks`: NFS believes its clients' user numbers. A share that lists people
//!   is exported over NFS only to networks that its configuration names; another one without named networks to this
//!   machine alone.
//! - `share.common_has_one_owner`: in a common share every user acts as the owner, so that each may
//!   change and delete the files of the others.
//! - `share.only_from_every_door`: `only_from` bounds the networks of every door. It admits nobody
//!   that a door would refuse without it.

use crate::{Door, LOOPBACK, Network, User};

/// Written before the name of a group in lists of users.
pub const GROUP_SIGN: char = '@';
/// The uid and gid of `nobody` on Debian, whom guests and squashed users become where a share names nobody else.
pub const NOBODY: u32 = 65534;

/// Whom an NFS share takes its callers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squash {
    /// Root becomes the anonymous user; everybody else stays who they are.
    Root,
    /// Everybody becomes the anonymous user.
    All,
    /// Nobody is changed: root of every client in the networks is root here.
    None,
}

impl Squash {
    /// All of them.
    pub const EACH: [Squash; 3] = [Squash::Root, Squash::All, Squash::None];

    /// As it is typed.
    pub fn word(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::All => "all",
            Self::None => "none",
        }
    }
}

/// What makes somebody else of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squashing {
    /// `share.common_has_one_owner`
    Common,
    /// `squash = "all"`
    All,
    /// `squash = "root"`, if the caller is root.
    Root,
}

/// Users who may read and write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Writers {
    /// Every user there is and will be.
    All,
    /// These, and groups behind their sign.
    Listed(Vec<String>),
}

impl Writers {
    /// The names that are listed.
    pub fn names(&self) -> &[String] {
        match self {
            Self::All => &[],
            Self::Listed(names) => names,
        }
    }
}

/// The entry of a share's lists that lets a user in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed<'a> {
    /// The user's own name, among those who write or those who read.
    Name {
        /// Which of the two lists it is.
        may_write: bool,
    },
    /// A group of theirs.
    Group {
        /// Its name.
        name: &'a str,
        /// Which of the two lists it is.
        may_write: bool,
    },
    /// The share is for all users.
    All,
    /// The share is open to guests.
    Guest,
}

impl Listed<'_> {
    /// Whether the entry lets write.
    pub fn may_write(&self) -> bool {
        match self {
            Listed::Name { may_write } | Listed::Group { may_write, .. } => *may_write,
            Listed::All | Listed::Guest => true,
        }
    }
}

/// Who may come into a share, by which doors and from where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// As clients call it.
    pub name: String,
    /// Offered over NFS, versions 3 and 4.
    pub nfs: bool,
    /// Offered over SMB.
    pub smb: bool,
    /// Offered over SFTP, where that door is open, to the users of SMB.
    pub sftp: bool,
    /// The same for WebDAV and its pages in a browser.
    pub webdav: bool,
    /// Nobody may change anything, whatever the lists say.
    pub read_only: bool,
    /// Networks in which NFS is answered; `None`: none are named.
    pub networks: Option<Vec<Network>>,
    /// NFS answers clients on ports below 1024 alone, which only root of their machine can use.
    pub secure: bool,
    /// Networks outside of which no door lets anybody in; `None`: no bound (`share.only_from_every_door`).
    pub only_from: Option<Vec<Network>>,
    /// Whom NFS takes its callers for.
    pub squash: Squash,
    /// The anonymous user of NFS, and the owner of a common share.
    pub anon_uid: u32,
    /// Their group.
    pub anon_gid: u32,
    /// Users who may read and write.
    pub users: Writers,
    /// Users who may read and not write, even where `users` is all.
    pub read_only_users: Vec<String>,
    /// SMB clients that do not encrypt are refused.
    pub encrypt: bool,
    /// SMB lets anybody in without a password.
    pub guest: bool,
    /// Every user acts as `anon_uid` (`share.common_has_one_owner`).
    pub common: bool,
}

/// The field of a setting, by its type.
pub enum Field<'a> {
    /// Yes or no.
    Switch(&'a mut bool),
    /// The number of a user or a group.
    Number(&'a mut u32),
    /// `None`: none are named.
    Networks(&'a mut Option<Vec<Network>>),
    /// Whom NFS takes its callers for.
    Squash(&'a mut Squash),
    /// Who may write.
    Writers(&'a mut Writers),
    /// Users and groups.
    Names(&'a mut Vec<String>),
}

impl Share {
    /// The field of the setting that the file calls so. Others are none of the rules of entrance.
    pub fn field(&mut self, key: &str) -> Option<Field<'_>> {
        Some(match key {
            "users" => Field::Writers(&mut self.users),
            "read_only_users" => Field::Names(&mut self.read_only_users),
            "common" => Field::Switch(&mut self.common),
            "guest" => Field::Switch(&mut self.guest),
            "read_only" => Field::Switch(&mut self.read_only),
            "nfs" => Field::Switch(&mut self.nfs),
            "networks" => Field::Networks(&mut self.networks),
            "secure" => Field::Switch(&mut self.secure),
            "only_from" => Field::Networks(&mut self.only_from),
            "squash" => Field::Squash(&mut self.squash),
            "anon_uid" => Field::Number(&mut self.anon_uid),
            "anon_gid" => Field::Number(&mut self.anon_gid),
            "smb" => Field::Switch(&mut self.smb),
            "sftp" => Field::Switch(&mut self.sftp),
            "webdav" => Field::Switch(&mut self.webdav),
            "encrypt" => Field::Switch(&mut self.encrypt),
            _ => return None,
        })
    }

    /// For all users; over NFS for root's programs on this machine alone, whose root is nobody.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            nfs: true,
            smb: true,
            sftp: true,
            webdav: true,
            read_only: false,
            networks: None,
            secure: true,
            only_from: None,
            squash: Squash::Root,
            anon_uid: NOBODY,
            anon_gid: NOBODY,
            users: Writers::All,
            read_only_users: Vec::new(),
            encrypt: false,
            guest: false,
            common: false,
        }
    }

    /// Whether it is offered at the door.
    pub fn offers(&self, door: Door) -> bool {
        match door {
            Door::Nfs { .. } => self.nfs,
            Door::Smb { .. } => self.smb,
            Door::Sftp => self.sftp,
            Door::Webdav => self.webdav,
            Door::Mount { .. } => true,
        }
    }

    /// Offers it at the door, or no longer.
    pub fn offer(&mut self, door: Door, is_open: bool) {
        match door {
            Door::Nfs { .. } => self.nfs = is_open,
            Door::Smb { .. } => self.smb = is_open,
            Door::Sftp => self.sftp = is_open,
            Door::Webdav => self.webdav = is_open,
            Door::Mount { .. } => {}
        }
    }

    /// The doors at which users log in and that it is offered at.
    pub fn doors_of_people(&self) -> Vec<&'static str> {
        let doors = [("SMB", Door::SMB), ("SFTP", Door::Sftp), ("WebDAV", Door::Webdav)];
        doors.into_iter().filter(|(_, door)| self.offers(*door)).map(|(name, _)| name).collect()
    }

    /// Whether anybody may change anything.
    pub fn is_writable(&self) -> bool {
        !self.read_only
    }

    /// Whether SMB lets anybody in without a password.
    pub fn lets_in_guests(&self) -> bool {
        self.guest
    }

    /// Whether SMB clients that do not encrypt are refused.
    pub fn requires_encryption(&self) -> bool {
        self.encrypt
    }

    /// The uid and gid of the anonymous user of NFS.
    pub fn owner(&self) -> (u32, u32) {
        (self.anon_uid, self.anon_gid)
    }

    /// The owner whom every user acts as, if it is common (`share.common_has_one_owner`).
    pub fn common_owner(&self) -> Option<(u32, u32)> {
        self.common.then(|| self.owner())
    }

    /// The users of NFS who act as the owner.
    pub(crate) fn squashing(&self) -> Option<Squashing> {
        match self.squash {
            _ if self.common => Some(Squashing::Common),
            Squash::All => Some(Squashing::All),
            Squash::Root => Some(Squashing::Root),
            Squash::None => None,
        }
    }

    /// The entries that let in to read and write, where it is not for all users.
    pub fn writers(&self) -> &[String] {
        self.users.names()
    }

    /// Whether one of its lists has the entry, a user or a group behind its sign.
    pub fn lists(&self, entry: &str) -> bool {
        self.users.names().iter().chain(&self.read_only_users).any(|name| name == entry)
    }

    /// The list with those who may write, or who may read alone, as the file calls it.
    pub fn list_key(may_write: bool) -> &'static str {
        if may_write { "users" } else { "read_only_users" }
    }

    /// The entries that let in to read alone. A name in both lists may write (`share.nearest_name_decides`).
    pub fn readers(&self) -> Vec<String> {
        let writers = self.users.names();
        self.read_only_users.iter().filter(|name| !writers.contains(name)).cloned().collect()
    }

    /// The only user of a share for one alone.
    pub fn only_user(&self) -> Option<&str> {
        match self.users.names() {
            [only] if self.read_only_users.is_empty() && !self.common => Some(only),
            _ => None,
        }
    }

    /// The machines that may come in over NFS, in words; `None`: it is not exported.
    pub fn nfs_places(&self) -> Option<String> {
        let networks = self.nfs_networks()?;
        Some(match &self.networks {
            None if self.only_from.is_none() => "this machine".to_owned(),
            _ if networks.is_empty() => "nowhere".to_owned(),
            _ => networks.iter().map(Network::to_string).collect::<Vec<_>>().join(" "),
        })
    }

    /// Whether every user may come in, or anybody.
    pub fn is_for_all(&self) -> bool {
        self.guest || self.users == Writers::All
    }

    /// Whether some people have fewer rights than others (`share.listed_people_only`).
    pub fn is_restricted(&self) -> bool {
        !self.guest && (self.users != Writers::All || !self.read_only_users.is_empty())
    }

    /// Nobody may log in to it.
    pub fn is_for_nobody(&self) -> bool {
        self.users == Writers::Listed(Vec::new()) && self.read_only_users.is_empty() && !self.guest
    }

    /// The networks whose machines NFS believes, `only_from` aside (`share.nfs_needs_networks`).
    pub(crate) fn trusted(&self) -> Option<&[Network]> {
        match &self.networks {
            Some(named) => Some(named),
            None if self.is_restricted() => None,
            None => Some(&LOOPBACK),
        }
    }

    /// The networks that it is exported to over NFS, if it is exported.
    pub fn nfs_networks(&self) -> Option<Vec<Network>> {
        let trusted = self.trusted().filter(|_| self.nfs)?;
        Some(self.only_from.as_ref().map_or_else(|| trusted.to_vec(), |bound| Network::common(trusted, bound)))
    }

    /// Exports it to more networks beside those that it has. A share for certain users, and one that is exported to no
    /// network, is opened by name alone.
    pub fn allow(&mut self, more: &[Network]) {
        let is_closed = !self.nfs || self.is_restricted() || self.networks.as_ref().is_some_and(Vec::is_empty);
        if is_closed || more.is_empty() {
            return;
        }
        let networks = self.networks.get_or_insert_with(|| LOOPBACK.to_vec());
        for network in more {
            if !networks.contains(network) {
                networks.push(*network);
            }
        }
    }

    /// The entry of the lists that decides about a user who logged in (`share.nearest_name_decides`); `None`: no entrance.
    pub(crate) fn listing(&self, user: &User) -> Option<Listed<'_>> {
        let is_in = |group: &&str| user.groups.iter().any(|own| own == group);
        let (writers, readers) = (self.users.names(), self.read_only_users.as_slice());
        for (list, may_write) in [(writers, true), (readers, false)] {
            if list.contains(&user.name) {
                return Some(Listed::Name { may_write });
            }
        }
        for (list, may_write) in [(writers, true), (readers, false)] {
            if let Some(name) = list.iter().filter_map(|entry| entry.strip_prefix(GROUP_SIGN)).find(is_in) {
                return Some(Listed::Group { name, may_write });
            }
        }
        match (&self.users, self.guest) {
            (Writers::All, _) => Some(Listed::All),
            (_, true) => Some(Listed::Guest),
            _ => None,
        }
    }

    /// Whether a user who logged in may write, by the lists and `read_only`; `None`: may not come in.
    pub fn writes_by_lists(&self, user: &User) -> Option<bool> {
        self.listing(user).map(|listed| listed.may_write() && !self.read_only)
    }

    /// Whether both list the same people.
    pub fn lists_as(&self, other: &Share) -> bool {
        (&self.users, &self.read_only_users) == (&other.users, &other.read_only_users)
    }

    /// Whether nothing but the lists differs for those who come by the door, one at which users log in.
    pub fn is_as_at(&self, other: &Share, door: Door) -> bool {
        let is_smb = matches!(door, Door::Smb { .. });
        let parts = |share: &Share| {
            (share.offers(door), share.read_only, share.guest, share.common_owner(), is_smb && share.encrypt)
        };
        parts(self) == parts(other) && (&self.name, &self.only_from) == (&other.name, &other.only_from)
    }
}
