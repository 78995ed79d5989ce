//! Extended attributes (RFC 8276): the namespace "user." of a file, whose names go without it.

use bytes::Bytes;
use larder_fs::{ACCESS_READ, ACCESS_WRITE, FsError, NAME_BYTES_MAX, XattrMode};

use super::super::compound::CompoundReply;
use super::super::convert::{stat_of, told_change};
use super::super::ops::{ArgOp, ListXattrsArgs, ListXattrsOk, ResOp, SetXattrArgs, SetXattrOption};
use super::super::place::Object;
use super::super::types::{ChangeInfo, Component, NfsStat};
use super::super::wire::{Opaque, XdrList};
use super::Run;
use crate::xdr::padding;

const NAMESPACE: &[u8] = b"user.";
/// `LISTXATTRS4resok` without names: cookie, their count, eof.
const FRAME_BYTES: usize = 8 + 4 + 4;

impl<'m> Run<'m> {
    pub(super) async fn xattr_operation(&mut self, op: ArgOp<'m>, reply: &mut CompoundReply) {
        match op {
            ArgOp::GetXattr(name) => match Box::pin(self.get_xattr(name.0)).await {
                Ok(value) => self.push(reply, &ResOp::GetXattr(Ok(Opaque(&value)))),
                Err(status) => self.push(reply, &ResOp::GetXattr(Err(status))),
            },
            ArgOp::SetXattr(args) => {
                let done = Box::pin(self.set_xattr(&args)).await;
                self.push(reply, &ResOp::SetXattr(done));
            }
            ArgOp::ListXattrs(args) => match Box::pin(self.list_xattrs(&args)).await {
                Ok((names, cookie, eof)) => {
                    let names: Vec<Component<'_>> = names.iter().map(|name| Opaque(&name[..])).collect();
                    let ok = ListXattrsOk { cookie, names: XdrList::of(&names), eof };
                    self.push(reply, &ResOp::ListXattrs(Ok(ok)));
                }
                Err(status) => self.push(reply, &ResOp::ListXattrs(Err(status))),
            },
            ArgOp::RemoveXattr(name) => {
                let done = Box::pin(self.remove_xattr(name.0)).await;
                self.push(reply, &ResOp::RemoveXattr(done));
            }
            other => self.push(reply, &ResOp::failed(other.number(), NfsStat::ServerFault)),
        }
    }

    /// An object whose attributes the caller may read, or change.
    async fn with_xattrs(&self, changes: bool) -> Result<Object, NfsStat> {
        let object = self.object(if changes { NfsStat::RoFs } else { NfsStat::NotSupp })?;
        let granted = object.files().resolve_granted(&object.cred, object.id).await;
        let (_, bits) = granted.map_err(|error| stat_of(&error))?;
        if changes {
            object.may_change()?;
        }
        let needed = if changes { ACCESS_WRITE } else { ACCESS_READ };
        if bits & needed == 0 { Err(NfsStat::Access) } else { Ok(object) }
    }

    async fn get_xattr(&self, name: &[u8]) -> Result<Bytes, NfsStat> {
        let name = full_name(name)?;
        let object = self.with_xattrs(false).await?;
        object.files().getxattr(&object.cred, object.id.ino, &name).await.map_err(|error| stat_of(&error))
    }

    async fn set_xattr(&self, args: &SetXattrArgs<'_>) -> Result<ChangeInfo, NfsStat> {
        let name = full_name(args.name.0)?;
        let object = self.with_xattrs(true).await?;
        let mode = match args.option {
            SetXattrOption::Either => XattrMode::Set,
            SetXattrOption::Create => XattrMode::Create,
            SetXattrOption::Replace => XattrMode::Replace,
        };
        self.changing_xattrs(&object, object.files().setxattr(&object.cred, object.id.ino, &name, args.value.0, mode))
            .await
    }

    async fn remove_xattr(&self, name: &[u8]) -> Result<ChangeInfo, NfsStat> {
        let name = full_name(name)?;
        let object = self.with_xattrs(true).await?;
        self.changing_xattrs(&object, object.files().removexattr(&object.cred, object.id.ino, &name)).await
    }

    async fn changing_xattrs(
        &self,
        object: &Object,
        change: impl Future<Output = Result<(), FsError>>,
    ) -> Result<ChangeInfo, NfsStat> {
        self.excluded_by_delegation(object).await?;
        let before = told_change(object.files(), object.resolve().await?.change);
        change.await.map_err(|error| stat_of(&error))?;
        // Others may have changed it in between.
        let after = told_change(object.files(), object.resolve().await?.change);
        Ok(ChangeInfo { atomic: false, before, after })
    }

    /// Names in their order, the cookie behind them, and whether they are the last. A cookie is a count: the list is
    /// short, and clients read it at once.
    async fn list_xattrs(&self, args: &ListXattrsArgs) -> Result<(Vec<Bytes>, u64, bool), NfsStat> {
        let object = self.with_xattrs(false).await?;
        let names = object.files().listxattr(&object.cred, object.id.ino).await.map_err(|error| stat_of(&error))?;
        let mut names: Vec<Bytes> = names
            .into_iter()
            .filter(|name| name.starts_with(NAMESPACE))
            .map(|name| name.slice(NAMESPACE.len()..))
            .collect();
        names.sort();
        let all = names.len();
        let first = usize::try_from(args.cookie).unwrap_or(usize::MAX);
        if first > all {
            return Err(NfsStat::BadCookie);
        }
        let mut room = (args.bytes_max as usize).checked_sub(FRAME_BYTES).ok_or(NfsStat::TooSmall)?;
        let fits = |name: &Bytes| {
            let left = room.checked_sub(4 + name.len() + padding(name.len()));
            room = left.unwrap_or(0);
            left.is_some()
        };
        let page: Vec<Bytes> = names.into_iter().skip(first).take_while(fits).collect();
        let behind = first + page.len();
        if page.is_empty() && behind < all {
            return Err(NfsStat::TooSmall);
        }
        Ok((page, behind as u64, behind == all))
    }
}

fn full_name(name: &[u8]) -> Result<Vec<u8>, NfsStat> {
    if name.is_empty() || name.contains(&0) {
        return Err(NfsStat::Inval);
    }
    if NAMESPACE.len() + name.len() > NAME_BYTES_MAX {
        return Err(NfsStat::NameTooLong);
    }
    Ok([NAMESPACE, name].concat())
}
