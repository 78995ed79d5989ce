//! What a door whose clients name shares by path is told of them. SFTP and WebDAV are such doors.

use std::net::IpAddr;

use larder_files::Files;
use larder_fs::{Cred, Ino};

use crate::login::DoorUser;
use crate::nfs::Network;

/// A user's access to a share, within the permissions of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading alone.
    Read,
    /// Reading and changing.
    ReadWrite,
}

/// A folder offered to clients.
#[derive(Clone)]
pub struct DoorShare {
    /// The name at the top.
    pub name: String,
    /// The service of its volume, as this door.
    pub files: Files,
    /// The directory that is shared: [`Ino::ROOT`] for the whole volume.
    pub root: Ino,
    /// Everybody is this uid and gid here, so that all files are everybody's.
    pub act_as: Option<(u32, u32)>,
    /// The users that may come in, each with its access.
    pub users: Vec<(String, Access)>,
    /// Nobody may change anything, whatever `users` says.
    pub read_only: bool,
    /// The networks outside of which nobody comes in; `None`: no bound.
    pub only_from: Option<Vec<Network>>,
}

/// The reason why a share is closed to a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The client's address is outside of the networks of the share.
    Network,
    /// The share does not list the user.
    NotListed,
    /// The app token is for another share.
    Token,
}

/// Whether a client's address is within the bounds of a share. `None` as the address asks for no place in particular.
pub(crate) fn is_within(bound: Option<&[Network]>, address: Option<IpAddr>) -> bool {
    match (bound, address) {
        (Some(networks), Some(address)) => networks.iter().any(|network| network.contains(address)),
        _ => true,
    }
}

impl DoorShare {
    /// The access of `user` from `address`, within the permissions of the files. `None` as the
    /// address: from a place that may come in.
    pub fn entrance(&self, user: &DoorUser, address: Option<IpAddr>) -> Result<Access, Closed> {
        if !is_within(self.only_from.as_deref(), address) {
            return Err(Closed::Network);
        }
        let token = user.token.as_deref();
        if token.and_then(|token| token.share.as_ref()).is_some_and(|share| *share != self.name) {
            return Err(Closed::Token);
        }
        let listed = self.users.iter().find(|(name, _)| *name == user.name).map(|(_, access)| *access);
        match listed.ok_or(Closed::NotListed)? {
            Access::ReadWrite if !self.read_only && !token.is_some_and(|token| token.read_only) => {
                Ok(Access::ReadWrite)
            }
            _ => Ok(Access::Read),
        }
    }

    /// The identity that `user` acts under.
    pub fn acts_as(&self, user: &DoorUser) -> Cred {
        self.act_as.map_or_else(|| user.cred(), |(uid, gid)| Cred::new(uid, gid, []))
    }

    pub(crate) fn same_as(&self, other: &DoorShare) -> bool {
        self.name == other.name
            && self.files.id() == other.files.id()
            && self.files.verifier() == other.files.verifier()
            && self.root == other.root
            && self.act_as == other.act_as
            && self.files.is_as_in(&other.files)
            && self.users == other.users
            && self.read_only == other.read_only
            && self.only_from == other.only_from
    }
}
