//! Extended attributes: opaque values, with the permissions that Linux gives to each namespace.

use std::sync::Arc;

use bytes::Bytes;
use larder_fs::access::{self, S_ISVTX, touch_ctime};
use larder_fs::acl::Guarded;
use larder_fs::*;

use crate::attr::{current, guarded};
use crate::charge;
use crate::cores::Cores;
use crate::inode::Inode;
use crate::keys;
use crate::meta::{Batch, Owned};
use crate::own_records;
use crate::volume::Volume;

/// The names of one inode together: the most that a listing may return at once (XATTR_LIST_MAX).
const NAMES_BYTES_MAX: usize = 65536;
const PAGE: usize = 1024;

#[derive(Clone, Copy, PartialEq, Eq)]
enum XattrSpace {
    User,
    Trusted,
    Security,
    Acl,
}

fn space_of(name: &[u8]) -> FsResult<XattrSpace> {
    if name.len() > NAME_BYTES_MAX {
        return Err(FsError::NameTooLong);
    }
    if name.contains(&0) {
        return Err(FsError::Invalid("an attribute's name must not hold a zero byte"));
    }
    let spaces =
        [(&b"user."[..], XattrSpace::User), (b"trusted.", XattrSpace::Trusted), (b"security.", XattrSpace::Security)];
    if let Some((prefix, space)) = spaces.into_iter().find(|(prefix, _)| name.starts_with(prefix)) {
        return if name.len() > prefix.len() {
            Ok(space)
        } else {
            Err(FsError::Invalid("an attribute without a name"))
        };
    }
    match name {
        b"system.posix_acl_access" | b"system.posix_acl_default" => Ok(XattrSpace::Acl),
        _ => Err(FsError::NotSupported),
    }
}

fn may_read(of: &Guarded, cred: &Cred, space: XattrSpace) -> FsResult<()> {
    match space {
        _ if cred.checked => Ok(()),
        XattrSpace::Security | XattrSpace::Acl => Ok(()),
        XattrSpace::Trusted if cred.uid == 0 => Ok(()),
        XattrSpace::Trusted => Err(FsError::NoAttribute),
        XattrSpace::User if !bears_user(&of.attr) => Err(FsError::NoAttribute),
        XattrSpace::User => access::require(of, cred, ACCESS_READ),
    }
}

fn may_write(of: &Guarded, cred: &Cred, space: XattrSpace) -> FsResult<()> {
    let attr = &of.attr;
    let only_if = |allowed| if allowed { Ok(()) } else { Err(FsError::NotPermitted) };
    match space {
        XattrSpace::User if !bears_user(attr) => Err(FsError::NotPermitted),
        _ if cred.checked => Ok(()),
        XattrSpace::Trusted | XattrSpace::Security => only_if(cred.uid == 0),
        XattrSpace::Acl => only_if(access::owns(attr, cred)),
        XattrSpace::User => {
            let sticky = attr.kind == FileKind::Directory && attr.mode & S_ISVTX != 0;
            only_if(!sticky || access::owns(attr, cred))?;
            access::require(of, cred, ACCESS_WRITE)
        }
    }
}

/// The permission bits of links and devices do not say which user may store data on them.
fn bears_user(attr: &Attr) -> bool {
    matches!(attr.kind, FileKind::File | FileKind::Directory)
}

fn bytes_of(name: &[u8], value: Option<&Bytes>) -> u64 {
    value.map_or(0, |value| charge::attribute_bytes(name, value))
}

impl Volume {
    /// The value of an extended attribute; [`FsError::NoAttribute`] if there is none, or if `cred`
    /// may not know of it.
    pub async fn getxattr(&self, cred: &Cred, ino: Ino, name: &[u8]) -> FsResult<Bytes> {
        let space = space_of(name)?;
        let inode = self.state.inode(ino).await?;
        may_read(&guarded(&inode)?, cred, space)?;
        self.stored_xattr(&inode, name).await?.ok_or(FsError::NoAttribute)
    }

    async fn stored_xattr(&self, inode: &Arc<Inode>, name: &[u8]) -> FsResult<Option<Bytes>> {
        if inode.core.lock().xattrs == 0 {
            return Ok(None);
        }
        let key = keys::xattr_key(inode.id.ino, name);
        let value = self.state.meta.get(&key).await?;
        value.map(|value| keys::decode_xattr(&key, &value)).transpose()
    }

    /// Sets an extended attribute of at most [`XATTR_BYTES_MAX`] bytes. Names of the spaces `user`,
    /// `trusted`, `security` and the two POSIX lists are known; [`FsError::NotSupported`]
    /// otherwise.
    pub async fn setxattr(&self, cred: &Cred, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        let space = space_of(name)?;
        if value.len() > XATTR_BYTES_MAX {
            return Err(FsError::TooBig);
        }
        let state = &*self.state;
        let inode = state.changeable(ino).await?;
        may_write(&guarded(&inode)?, cred, space)?;
        state.admit_entry(self.asked_for_xattr(&inode, name, value).await?).await?;
        state.meta.admit().await?;
        let guard = inode.namespace.lock().await;
        let old = self.stored_xattr(&inode, name).await?;
        let exists = old.is_some();
        match mode {
            XattrMode::Create if exists => return Err(FsError::Exists),
            XattrMode::Replace if !exists => return Err(FsError::NoAttribute),
            _ => {}
        }
        // So few that they fit, however long their names are, are not even listed.
        let is_few = (inode.core.lock().xattrs as usize + 1) * (NAME_BYTES_MAX + 1) <= NAMES_BYTES_MAX;
        if !exists && !is_few {
            let names: usize = self.xattr_names(&inode).await?.iter().map(|name| name.len() + 1).sum();
            if names + name.len() + 1 > NAMES_BYTES_MAX {
                return Err(FsError::NoSpace("the file has too many extended attributes".into()));
            }
        }
        let others = self.xattr_bytes(&inode).await?.saturating_sub(bytes_of(name, old.as_ref()));
        let mut batch = Batch::default();
        batch.put(keys::xattr_key(ino, name), keys::encode_xattr(value));
        let bytes = others + charge::attribute_bytes(name, value);
        let ticket = self.change_xattr(&inode, batch, i64::from(!exists), bytes)?;
        drop(guard);
        state.send(|| Event::Attr { origin: self.origin, ino });
        self.await_durable(ticket).await
    }

    /// Removes an extended attribute; [`FsError::NoAttribute`] if there is none.
    pub async fn removexattr(&self, cred: &Cred, ino: Ino, name: &[u8]) -> FsResult<()> {
        let space = space_of(name)?;
        let state = &*self.state;
        let inode = state.changeable(ino).await?;
        may_write(&guarded(&inode)?, cred, space)?;
        state.meta.admit().await?;
        let guard = inode.namespace.lock().await;
        let old = self.stored_xattr(&inode, name).await?.ok_or(FsError::NoAttribute)?;
        let bytes = self.xattr_bytes(&inode).await?.saturating_sub(charge::attribute_bytes(name, &old));
        let mut batch = Batch::default();
        batch.delete(keys::xattr_key(ino, name));
        let ticket = self.change_xattr(&inode, batch, -1, bytes)?;
        drop(guard);
        state.send(|| Event::Attr { origin: self.origin, ino });
        self.await_durable(ticket).await
    }

    /// The charge for a value, as far as it is more than the one that it replaces.
    async fn asked_for_xattr(&self, inode: &Arc<Inode>, name: &[u8], value: &[u8]) -> FsResult<Owned> {
        let old = self.stored_xattr(inode, name).await?;
        let had = old.as_ref().map_or(0, |_| charge::ATTRIBUTE_BYTES) + bytes_of(name, old.as_ref());
        let has = charge::ATTRIBUTE_BYTES + charge::attribute_bytes(name, value);
        Ok(Owned { metadata_bytes: has.saturating_sub(had), ..inode.core.lock().owned_nothing() })
    }

    /// The bytes of all attributes, under the inode's `namespace`. Where a program wrote the record that did not count them,
    /// they are counted here.
    async fn xattr_bytes(&self, inode: &Arc<Inode>) -> FsResult<u64> {
        let counted = inode.core.lock().xattr_bytes;
        let mut sum = counted;
        if counted == 0 {
            self.each_xattr(inode, |name, value_bytes| sum += name.len() as u64 + value_bytes).await?;
        }
        Ok(sum)
    }

    /// `bytes`: of all attributes afterwards.
    fn change_xattr(&self, inode: &Arc<Inode>, batch: Batch, added: i64, bytes: u64) -> FsResult<crate::meta::Ticket> {
        let now = self.state.now();
        let mut cores = Cores::lock(&[inode]);
        let core = cores.of(inode);
        if core.gone {
            return Err(FsError::Stale);
        }
        core.xattrs = u32::try_from((i64::from(core.xattrs) + added).max(0)).unwrap_or(u32::MAX);
        core.xattr_bytes = bytes;
        touch_ctime(&mut core.attr, now);
        cores.submit(&*self.state.meta, batch)
    }

    /// The names of all extended attributes that `cred` may know of.
    pub async fn listxattr(&self, cred: &Cred, ino: Ino) -> FsResult<Vec<Bytes>> {
        let inode = self.state.inode(ino).await?;
        current(&inode)?;
        let mut names = self.xattr_names(&inode).await?;
        if cred.uid != 0 {
            names.retain(|name| !name.starts_with(b"trusted."));
        }
        Ok(names)
    }

    async fn xattr_names(&self, inode: &Arc<Inode>) -> FsResult<Vec<Bytes>> {
        let mut names = Vec::new();
        self.each_xattr(inode, |name, _| names.push(name)).await?;
        Ok(names)
    }

    /// The names that protocols can ask for, and the bytes of their values.
    async fn each_xattr(&self, inode: &Arc<Inode>, mut found: impl FnMut(Bytes, u64)) -> FsResult<()> {
        if inode.core.lock().xattrs == 0 {
            return Ok(());
        }
        let (mut from, to) = keys::range_of(keys::tag::XATTR, inode.id.ino);
        loop {
            let page = self.state.meta.scan(&from, &to, PAGE).await?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            // The least key after this one.
            from = [&last[..], &[0]].concat().into();
            for (key, value) in &page {
                let name = keys::rest_of(key);
                if !own_records::is_own(&name) {
                    found(name, keys::xattr_value_bytes(value));
                }
            }
        }
    }
}
