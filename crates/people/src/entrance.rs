//! The decision who may come into a share: [`Share::entrance`].
//!
//! ```text
//!   door offered? -> network? -> NFS: port?                             -> whom files take the caller for
//!                             -> SMB: encrypts?  -> lists, token, guest -> whether anything may be changed
//! ```
//!
//! Each step that says no ends the way. Each step that bounds or opens it is remembered as a [`Reason`], which is data: what
//! makes sentences of it is elsewhere.
//!
//! A client of NFS proves nothing but its address, so a machine comes in there, not a user. Squashing is what it may call its
//! users ([`Rights::cred`]).

use std::net::IpAddr;
use std::sync::Arc;

use larder_fs::Cred;

use crate::{Door, Listed, NOBODY, Network, Share, Squash, Squashing, User};

/// Ports below this one need root on the client (IPPORT_RESERVED of netinet/in.h).
const RESERVED_PORTS_END: u16 = 1024;
/// More than any way through [`Share::entrance`] has.
const REASONS_MAX: usize = 8;

/// A caller at a door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who<'a> {
    /// A user who logged in.
    User(&'a User),
    /// Somebody who did not.
    Guest,
    /// A machine that names its users itself.
    Machine,
}

/// The answer of [`Share::entrance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entrance<'a> {
    /// `None`: shut out.
    pub rights: Option<Rights>,
    /// The rules that decided, in the order in which they were looked at.
    pub why: Why<'a>,
}

/// The rights of a caller who came in, above the permissions of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Whether anything may be changed.
    pub may_write: bool,
    squash: Squash,
    anon_uid: u32,
    anon_gid: u32,
}

impl Rights {
    /// Whom files take a caller with these numbers for: uid, gid and further groups. `None`: the caller names nobody.
    pub fn cred(&self, caller: Option<(u32, u32, impl Iterator<Item = u32>)>) -> Cred {
        let anonymous = || Cred::new(self.anon_uid, self.anon_gid, []);
        match (self.squash, caller) {
            (Squash::All, _) | (_, None) => anonymous(),
            (Squash::None, Some((uid, gid, gids))) => Cred::new(uid, gid, gids.collect::<Arc<[u32]>>()),
            (Squash::Root, Some((uid, gid, gids))) => {
                let map = |gid: u32| if gid == 0 { self.anon_gid } else { gid };
                let uid = if uid == 0 { self.anon_uid } else { uid };
                Cred::new(uid, map(gid), gids.map(map).collect::<Arc<[u32]>>())
            }
        }
    }

    /// The same of a user; `None`: a guest.
    pub fn cred_of(&self, user: Option<&User>) -> Cred {
        self.cred(user.map(|user| (user.uid, user.gid, user.gids.iter().copied())))
    }
}

/// One rule that shut out, bounded the way or let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason<'a> {
    /// Shut out: the share is not offered at this door.
    DoorClosed,
    /// Shut out: it is for certain users and names no networks (`share.nfs_needs_networks`).
    NoNetworks,
    /// Shut out: the address is in none of the networks whose machines NFS believes, or outside of `only_from`.
    Untrusted,
    /// Shut out: the address is outside of `only_from`.
    Outside,
    /// Shut out: the port needs no privilege (`entrance.reserved_ports`).
    Port(u16),
    /// Shut out: the client does not encrypt.
    Unencrypted,
    /// Shut out: nobody logged in, and the share is not open to guests.
    NoGuests,
    /// Shut out: the app token is for that share.
    OtherShare(&'a str),
    /// Shut out: the lists name neither the user nor a group of theirs.
    NotListed,
    /// Shut out: the mount is for that uid alone.
    Private(u32),
    /// Bound: from the networks whose machines NFS believes, within `only_from`.
    FromTrusted,
    /// Bound: from `only_from`.
    FromInside,
    /// Bound: from ports below 1024.
    ReservedPorts,
    /// Bound: clients encrypt.
    Encrypted,
    /// Let in by the lists.
    Listed(Listed<'a>),
    /// Bound: that entry lets read alone.
    ReaderByList,
    /// Bound: the share, or the mount, is read-only.
    ReadOnly,
    /// Bound: the app token lets read alone.
    ReaderByToken,
    /// Bound: the caller may become somebody else.
    ActsAs(Squashing),
}

impl Reason<'_> {
    /// Whether it shut the caller out.
    pub fn shuts_out(&self) -> bool {
        use Reason::{
            DoorClosed, NoGuests, NoNetworks, NotListed, OtherShare, Outside, Port, Private, Unencrypted, Untrusted,
        };
        matches!(
            self,
            DoorClosed
                | NoNetworks
                | Untrusted
                | Outside
                | Port(_)
                | Unencrypted
                | NoGuests
                | OtherShare(_)
                | NotListed
                | Private(_)
        )
    }
}

/// Reasons in their order. Bounded and without memory of its own: NFS asks with each call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Why<'a>([Option<Reason<'a>>; REASONS_MAX]);

impl<'a> Why<'a> {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Reason<'a>> {
        self.0.into_iter().flatten()
    }

    /// The reason that shut the caller out.
    pub fn shut_out(&self) -> Option<Reason<'a>> {
        self.iter().find(Reason::shuts_out)
    }

    fn push(&mut self, reason: Reason<'a>) {
        let place = self.0.iter_mut().find(|place| place.is_none());
        debug_assert!(place.is_some(), "REASONS_MAX is too small");
        if let Some(place) = place {
            *place = Some(reason);
        }
    }

    fn push_if(&mut self, is_so: bool, reason: Reason<'a>) {
        if is_so {
            self.push(reason);
        }
    }
}

/// Whether an address is in one of the networks. `None`: a place that is, if there is any.
fn is_in(networks: &[Network], from: Option<IpAddr>) -> bool {
    match from {
        Some(from) => networks.iter().any(|network| network.contains(from)),
        None => !networks.is_empty(),
    }
}

impl Share {
    /// Whether `who` may come in at `from` by `door`, with which rights, and why (`entrance.decided_once`). `None` as the
    /// address asks for a place that may come in: it is for questions, never for a client.
    ///
    /// - `entrance.reserved_ports`: a share with `secure` answers NFS from ports below 1024 alone. Only root binds these on a
    ///   client, so its kernel speaks, not a program of an ordinary user.
    pub fn entrance<'a>(&'a self, who: Who<'a>, from: Option<IpAddr>, door: Door) -> Entrance<'a> {
        let mut why = Why::default();
        let rights = self.judge(who, from, door, &mut why);
        if let Err(reason) = rights {
            why.push(reason);
        }
        Entrance { rights: rights.ok(), why }
    }

    fn judge<'a>(
        &'a self,
        who: Who<'a>,
        from: Option<IpAddr>,
        door: Door,
        why: &mut Why<'a>,
    ) -> Result<Rights, Reason<'a>> {
        if !self.offers(door) {
            return Err(Reason::DoorClosed);
        }
        match (door, who) {
            (Door::Nfs { port }, _) => self.of_machine(from, port, why),
            (Door::Mount { private_to }, Who::User(user)) => self.of_mount(user, private_to, why),
            (Door::Smb { encrypts: false }, _) if self.requires_encryption() => Err(Reason::Unencrypted),
            (_, Who::User(user)) => {
                self.place_of_people(from, door, why)?;
                self.of_user(user, why)
            }
            (Door::Smb { .. }, Who::Guest) if self.guest => {
                self.place_of_people(from, door, why)?;
                why.push(Reason::Listed(Listed::Guest));
                Ok(self.rights_of_people(true, why))
            }
            (_, Who::Guest | Who::Machine) => Err(Reason::NoGuests),
        }
    }

    /// NFS: the machine by its address and port.
    fn of_machine<'a>(
        &'a self,
        from: Option<IpAddr>,
        port: Option<u16>,
        why: &mut Why<'a>,
    ) -> Result<Rights, Reason<'a>> {
        let trusted = self.trusted().ok_or(Reason::NoNetworks)?;
        let is_open = match (&self.only_from, from) {
            (None, from) => is_in(trusted, from),
            (Some(bound), Some(_)) => is_in(trusted, from) && is_in(bound, from),
            (Some(bound), None) => !Network::common(trusted, bound).is_empty(),
        };
        if !is_open {
            return Err(Reason::Untrusted);
        }
        why.push(Reason::FromTrusted);
        if let Some(port) = port.filter(|port| self.secure && *port >= RESERVED_PORTS_END) {
            return Err(Reason::Port(port));
        }
        why.push_if(self.secure, Reason::ReservedPorts);
        why.push_if(!self.is_writable(), Reason::ReadOnly);
        let squash = match self.squashing() {
            Some(Squashing::Common | Squashing::All) => Squash::All,
            Some(Squashing::Root) => Squash::Root,
            None => Squash::None,
        };
        if let Some(squashing) = self.squashing() {
            why.push(Reason::ActsAs(squashing));
        }
        let (anon_uid, anon_gid) = self.owner();
        Ok(Rights { may_write: self.is_writable(), squash, anon_uid, anon_gid })
    }

    fn of_mount<'a>(&'a self, user: &User, private_to: Option<u32>, why: &mut Why<'a>) -> Result<Rights, Reason<'a>> {
        if let Some(owner) = private_to.filter(|owner| *owner != user.uid) {
            return Err(Reason::Private(owner));
        }
        why.push_if(!self.is_writable(), Reason::ReadOnly);
        Ok(Rights { may_write: self.is_writable(), squash: Squash::None, anon_uid: NOBODY, anon_gid: NOBODY })
    }

    /// The bounds of doors at which users log in, whoever comes.
    fn place_of_people<'a>(&'a self, from: Option<IpAddr>, door: Door, why: &mut Why<'a>) -> Result<(), Reason<'a>> {
        why.push_if(self.requires_encryption() && matches!(door, Door::Smb { .. }), Reason::Encrypted);
        match &self.only_from {
            Some(bound) if !is_in(bound, from) => return Err(Reason::Outside),
            Some(_) => why.push(Reason::FromInside),
            None => {}
        }
        Ok(())
    }

    fn of_user<'a>(&'a self, user: &'a User, why: &mut Why<'a>) -> Result<Rights, Reason<'a>> {
        let token = user.token.as_deref();
        if let Some(share) = token.and_then(|token| token.share.as_deref()).filter(|share| *share != self.name) {
            return Err(Reason::OtherShare(share));
        }
        let listed = self.listing(user).ok_or(Reason::NotListed)?;
        let by_list = listed.may_write();
        let by_token = !token.is_some_and(|token| token.read_only);
        why.push(Reason::Listed(listed));
        why.push_if(!by_list, Reason::ReaderByList);
        why.push_if(!by_token, Reason::ReaderByToken);
        Ok(self.rights_of_people(by_list && by_token, why))
    }

    fn rights_of_people<'a>(&'a self, may_write: bool, why: &mut Why<'a>) -> Rights {
        why.push_if(!self.is_writable(), Reason::ReadOnly);
        let owner = self.common_owner();
        why.push_if(owner.is_some(), Reason::ActsAs(Squashing::Common));
        let squash = if owner.is_some() { Squash::All } else { Squash::None };
        let (anon_uid, anon_gid) = owner.unwrap_or((NOBODY, NOBODY));
        Rights { may_write: may_write && self.is_writable(), squash, anon_uid, anon_gid }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use Reason::*;

    use super::*;
    use crate::Writers;
    use crate::token::Token;

    const NFS: Door = Door::Nfs { port: None };
    const SMB: Door = Door::Smb { encrypts: true };

    fn listed(writers: &[&str], readers: &[&str]) -> Share {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
        Share { users: Writers::Listed(names(writers)), read_only_users: names(readers), ..Share::new("s") }
    }

    fn ann() -> User {
        User { gids: vec![7], groups: vec!["family".into()], ..User::new("ann", 1000, 100) }
    }

    /// Whether the caller may come in, and write; and the reasons.
    #[track_caller]
    fn check(share: &Share, who: Who<'_>, from: &str, door: Door, may_write: Option<bool>, reasons: &[Reason<'_>]) {
        let found = share.entrance(who, from.parse().ok(), door);
        assert_eq!(found.rights.map(|rights| rights.may_write), may_write);
        assert_eq!(found.why.iter().collect::<Vec<_>>(), reasons);
        assert_eq!(found.why.shut_out().is_some(), may_write.is_none());
    }

    #[test]
    fn the_nearest_name_decides() {
        let ann = ann();
        let user = Who::User(&ann);
        let (yes, no) = (Some(true), Some(false));
        let group = |may_write| Listed(super::Listed::Group { name: "family", may_write });
        let name = |may_write| Listed(super::Listed::Name { may_write });
        let (all, guest) = (Listed(super::Listed::All), Listed(super::Listed::Guest));
        for door in [SMB, Door::Sftp, Door::Webdav] {
            check(&Share::new("s"), user, "", door, yes, &[all]);
            check(&listed(&["ann"], &["@family"]), user, "", door, yes, &[name(true)]);
            check(&listed(&["@family"], &["ann"]), user, "", door, no, &[name(false), ReaderByList]);
            check(&listed(&["bob", "@family"], &["@family"]), user, "", door, yes, &[group(true)]);
            check(&listed(&["@staff"], &["@family"]), user, "", door, no, &[group(false), ReaderByList]);
            check(&listed(&["bob", "@staff"], &[]), user, "", door, None, &[NotListed]);
            check(&Share { guest: true, ..listed(&["bob"], &[]) }, user, "", door, yes, &[guest]);
            let readers = Share { users: Writers::All, ..listed(&[], &["ann"]) };
            check(&readers, user, "", door, no, &[name(false), ReaderByList]);
        }
    }

    #[test]
    fn every_bound_is_named() {
        let ann = ann();
        let user = Who::User(&ann);
        let all = Listed(super::Listed::All);
        let near = Share { only_from: Some(vec!["10.0.0.0/8".parse().unwrap()]), ..Share::new("s") };
        check(&near, user, "10.1.2.3", Door::Sftp, Some(true), &[FromInside, all]);
        check(&near, user, "", Door::Sftp, Some(true), &[FromInside, all]);
        check(&near, user, "192.0.2.1", Door::Sftp, None, &[Outside]);
        check(&Share { only_from: Some(vec![]), ..Share::new("s") }, user, "", Door::Webdav, None, &[Outside]);
        let closed = Share { webdav: false, read_only: true, encrypt: true, common: true, ..Share::new("s") };
        check(&closed, user, "", Door::Webdav, None, &[DoorClosed]);
        check(&closed, user, "", Door::Smb { encrypts: false }, None, &[Unencrypted]);
        let common = ActsAs(Squashing::Common);
        check(&closed, user, "", SMB, Some(false), &[Encrypted, all, ReadOnly, common]);
        check(&closed, user, "", Door::Sftp, Some(false), &[all, ReadOnly, common]);
        for door in [SMB, Door::Sftp, Door::Webdav] {
            check(&Share::new("s"), Who::Guest, "", door, None, &[NoGuests]);
            check(&Share::new("s"), Who::Machine, "", door, None, &[NoGuests]);
        }
        let guests = Share { guest: true, ..listed(&[], &[]) };
        check(&guests, Who::Guest, "", SMB, Some(true), &[Listed(super::Listed::Guest)]);
        check(&guests, Who::Guest, "", Door::Sftp, None, &[NoGuests]);
        check(&Share { encrypt: true, ..guests }, Who::Guest, "", Door::Smb { encrypts: false }, None, &[Unencrypted]);
    }

    #[test]
    fn a_token_narrows() {
        let token = |share: Option<&str>, read_only| Token {
            tag: [0; 32],
            id: "1".into(),
            user: "ann".into(),
            share: share.map(str::to_owned),
            read_only,
            expires: None,
        };
        let narrowed = |share, read_only| ann().narrowed(Arc::new(token(share, read_only)));
        let all = Listed(super::Listed::All);
        let share = Share::new("s");
        check(&share, Who::User(&narrowed(None, true)), "", Door::Sftp, Some(false), &[all, ReaderByToken]);
        check(&share, Who::User(&narrowed(Some("s"), false)), "", Door::Sftp, Some(true), &[all]);
        check(&share, Who::User(&narrowed(Some("o"), false)), "", Door::Sftp, None, &[OtherShare("o")]);
        check(&listed(&[], &[]), Who::User(&narrowed(None, false)), "", Door::Sftp, None, &[NotListed]);
    }

    #[test]
    fn nfs_believes_machines_that_are_named() {
        let machine = Who::Machine;
        let root = ActsAs(Squashing::Root);
        check(&Share::new("s"), machine, "127.0.0.1", NFS, Some(true), &[FromTrusted, ReservedPorts, root]);
        check(&Share::new("s"), machine, "10.0.0.1", NFS, None, &[Untrusted]);
        check(&listed(&["ann"], &[]), machine, "127.0.0.1", NFS, None, &[NoNetworks]);
        let lan = || Some(vec!["10.0.0.0/8".parse().unwrap()]);
        let named = Share { networks: lan(), squash: Squash::None, ..listed(&["ann"], &[]) };
        check(&named, machine, "10.0.0.1", NFS, Some(true), &[FromTrusted, ReservedPorts]);
        let far = Share { only_from: Some(vec!["192.0.2.0/24".parse().unwrap()]), ..named.clone() };
        check(&far, machine, "10.0.0.1", NFS, None, &[Untrusted]);
        check(&far, machine, "", NFS, None, &[Untrusted]);
        let at = |secure, port| {
            Share { secure, ..named.clone() }.entrance(machine, None, Door::Nfs { port: Some(port) }).rights
        };
        assert!(at(true, 1023).is_some() && at(true, 1024).is_none() && at(false, 40_000).is_some());
        check(&named, machine, "10.0.0.1", Door::Nfs { port: Some(2000) }, None, &[FromTrusted, Port(2000)]);
        let all = Share { squash: Squash::All, read_only: true, secure: false, ..named };
        check(&all, machine, "", NFS, Some(false), &[FromTrusted, ReadOnly, ActsAs(Squashing::All)]);
    }

    #[test]
    fn a_private_mount_is_for_its_owner() {
        let ann = ann();
        let mount = Share { read_only: true, ..Share::new("tank/files") };
        let door = |private_to| Door::Mount { private_to };
        check(&mount, Who::User(&ann), "", door(None), Some(false), &[ReadOnly]);
        check(&mount, Who::User(&ann), "", door(Some(1000)), Some(false), &[ReadOnly]);
        check(&mount, Who::User(&ann), "", door(Some(0)), None, &[Private(0)]);
    }
}
