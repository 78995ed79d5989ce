//! GETATTR, SETATTR, VERIFY, NVERIFY, ACCESS, READLINK (RFC 8881 18.1, 18.7, 18.15, 18.24, 18.30, 18.31).

use larder_fs::{ACCESS_EXECUTE, ACCESS_READ, ACCESS_WRITE, Attr, Cred, FileKind, FsError, SetAttr, SetTime, acl};

use super::super::access_list::{Kept, NewList};
use super::super::asked::{Asked, has_write_only};
use super::super::attrs::{FileAttrs, number};
use super::super::bitmap::Bitmap;
use super::super::compound::CompoundReply;
use super::super::convert::stat_of;
use super::super::ops::{AccessOk, ArgOp, ResOp, SetAttrArgs, SetAttrResult};
use super::super::place::{Object, Place};
use super::super::recalls::WriterAttrs;
use super::super::shown::{Texts, attrs_of, attrs_of_pseudo, supported};
use super::super::types::{Fattr, NfsStat};
use super::super::wire::Opaque;
use super::Run;
use crate::truncating;

const ACCESS4_READ: u32 = 0x01;
const ACCESS4_LOOKUP: u32 = 0x02;
const ACCESS4_MODIFY: u32 = 0x04;
const ACCESS4_EXTEND: u32 = 0x08;
const ACCESS4_DELETE: u32 = 0x10;
const ACCESS4_EXECUTE: u32 = 0x20;
/// RFC 8276 8.4.1.
const ACCESS4_XAREAD: u32 = 0x40;
const ACCESS4_XAWRITE: u32 = 0x80;
const ACCESS4_XALIST: u32 = 0x100;
const KNOWN: u32 = 0x3f;
const KNOWN_IN_2: u32 = 0x1ff;

impl<'m> Run<'m> {
    pub(super) async fn attribute_operation(&mut self, op: ArgOp<'m>, reply: &mut CompoundReply) {
        match op {
            ArgOp::GetAttr(wanted) => match self.values(&wanted).await {
                Ok((mask, values)) => {
                    self.push(reply, &ResOp::GetAttr(Ok(Fattr { mask, values: Opaque(&values) })));
                }
                Err(status) => self.push(reply, &ResOp::GetAttr(Err(status))),
            },
            ArgOp::SetAttr(args) => {
                let result = match Box::pin(self.set_attr(&args)).await {
                    Ok(set) => SetAttrResult { status: NfsStat::Ok, set },
                    Err(status) => SetAttrResult { status, set: Bitmap::EMPTY },
                };
                self.push(reply, &ResOp::SetAttr(result));
            }
            ArgOp::Verify(given) => {
                let done =
                    self.is_same(&given).await.and_then(|same| if same { Ok(()) } else { Err(NfsStat::NotSame) });
                self.push(reply, &ResOp::Verify(done));
            }
            ArgOp::NVerify(given) => {
                let done = self.is_same(&given).await.and_then(|same| if same { Err(NfsStat::Same) } else { Ok(()) });
                self.push(reply, &ResOp::NVerify(done));
            }
            ArgOp::Access(args) => {
                let done = self.access(args.access).await;
                self.push(reply, &ResOp::Access(done));
            }
            ArgOp::ReadLink(()) => match self.read_link().await {
                Ok(target) => self.push(reply, &ResOp::ReadLink(Ok(Opaque(&target)))),
                Err(status) => self.push(reply, &ResOp::ReadLink(Err(status))),
            },
            other => self.push(reply, &ResOp::failed(other.number(), NfsStat::ServerFault)),
        }
    }

    /// Those of the wanted attributes that there are, encoded.
    async fn values(&self, wanted: &Bitmap) -> Result<(Bitmap, Vec<u8>), NfsStat> {
        // RFC 8881 18.7.3: those can be set alone.
        if has_write_only(wanted) {
            return Err(NfsStat::Inval);
        }
        let (mut texts, seen);
        let wanted = wanted.common(&supported(self.minor));
        texts = Texts::default();
        let attrs = match self.place()? {
            Place::Pseudo(dir) => attrs_of_pseudo(&self.caller, dir, self.minor, &mut texts),
            Place::Object(object) => {
                // A client plans its reads by the size: those who cache writes send them first.
                let attr = match wanted.has(number::SIZE) || wanted.has(number::CHANGE) {
                    true => self.settled(object).await,
                    false => object.resolve().await,
                };
                seen = object.with_list(attr, &wanted).await?;
                attrs_of(object, (&seen.0, seen.1.as_deref()), &wanted, self.minor, &mut texts)
            }
        };
        let attrs = attrs.only_wanted(&wanted);
        Ok((attrs.mask(), attrs.encode_values()))
    }

    /// Attributes with what others have written and not yet sent: those of other doors send it, a client of this one is
    /// asked (`recalls.writes_are_asked_for`).
    async fn settled(&self, object: &Object) -> Result<Attr, NfsStat> {
        let settled = || object.files().getattr_settled(object.id);
        let holder = if self.v4.has_delegations() {
            let mut state = self.v4.lock();
            let file = Self::key(&mut state, object.files(), object.id.ino)?;
            state.states.written_under(file, self.client).map(|holder| (file, holder))
        } else {
            None
        };
        let Some((file, holder)) = holder else { return settled().await.map_err(|error| stat_of(&error)) };
        match Box::pin(self.v4.writer_attrs(holder)).await {
            Some(WriterAttrs { has_changed: false, .. }) => settled().await.map_err(|error| stat_of(&error)),
            Some(WriterAttrs { size, .. }) => {
                let now = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
                let cred = Cred { checked: true, ..object.cred.clone() };
                Box::pin(object.files().setattr(&cred, object.id.ino, now)).await.map_err(|error| stat_of(&error))?;
                Ok(Attr { size, ..settled().await.map_err(|error| stat_of(&error))? })
            }
            None => {
                // It may have returned it in this moment.
                self.v4.lock().states.conflict(file, self.client, false)?;
                self.v4.recalls_wait();
                settled().await.map_err(|error| stat_of(&error))
            }
        }
    }

    /// Whether the object has just these attributes.
    async fn is_same(&self, given: &Fattr<'_>) -> Result<bool, NfsStat> {
        if given.mask.has(number::RDATTR_ERROR) || has_write_only(&given.mask) {
            return Err(NfsStat::Inval);
        }
        self.place()?;
        if given.mask.has_unknown() || !given.mask.without(&supported(self.minor)).is_empty() {
            return Err(NfsStat::AttrNotSupp);
        }
        FileAttrs::decode(given)?;
        let (mask, values) = self.values(&given.mask).await?;
        Ok(mask == given.mask && values == given.values.0)
    }

    async fn set_attr(&mut self, args: &SetAttrArgs<'_>) -> Result<Bitmap, NfsStat> {
        let object = self.object(NfsStat::RoFs)?;
        let stateid = self.stateids.resolve(args.stateid, self.minor)?;
        let asked = Asked::parse(&args.attrs, self.minor, &object.export.owners, false)?;
        object.may_change()?;
        let mut attr = object.resolve().await?;
        if asked.needs_dos() {
            let (with_dos, _) = Box::pin(object.files().acl(attr.id.ino)).await.map_err(|error| stat_of(&error))?;
            attr.dos = with_dos.dos;
        }
        let set = asked.of_file(&attr);
        let mut cred = object.cred.clone();
        if set.size.is_some() {
            super::super::convert::check_file(&attr, self.minor)?;
            let right = self.data_right(&stateid, &object, true).await?;
            // With a mode the right is asked for: whether setgid may stay is to be checked.
            let only_size = set.uid.is_none() && set.gid.is_none() && set.mode.is_none();
            let times = set.atime.is_some() || set.mtime.is_some();
            cred = match (only_size, right.is_opener && !times) {
                (true, true) => Cred { checked: true, ..cred },
                (true, false) => truncating(&cred, &attr),
                (false, _) => cred,
            };
        } else {
            self.excluded_by_delegation(&object).await?;
        }
        if set != SetAttr::default() {
            object.files().setattr(&cred, object.id.ino, set).await.map_err(|error| stat_of(&error))?;
        }
        if let Some(list) = asked.list {
            Box::pin(set_list(&object, list)).await?;
        }
        Ok(asked.mask)
    }

    async fn access(&self, wanted: u32) -> Result<AccessOk, NfsStat> {
        let known = if self.minor < 2 { KNOWN } else { KNOWN_IN_2 };
        let object = match self.place()? {
            Place::Pseudo(_) => {
                let access = wanted & (ACCESS4_READ | ACCESS4_LOOKUP);
                return Ok(AccessOk { supported: wanted & KNOWN, access });
            }
            Place::Object(object) => object,
        };
        let files = object.files();
        let (attr, bits) = files.resolve_granted(&object.cred, object.id).await.map_err(|error| stat_of(&error))?;
        let (reads, writes) = (bits & ACCESS_READ != 0, bits & ACCESS_WRITE != 0);
        let executes = bits & ACCESS_EXECUTE != 0;
        let mut allowed = if reads { ACCESS4_READ | ACCESS4_XAREAD | ACCESS4_XALIST } else { 0 };
        let is_dir = attr.kind == FileKind::Directory;
        if is_dir && executes {
            allowed |= ACCESS4_LOOKUP;
            // A list may let somebody add to a directory and not remove from it.
            let rights = files.rights(&object.cred, object.id.ino, None).await.map_err(|error| stat_of(&error))?;
            let changes = |right, bit| if rights & right != 0 { bit } else { 0 };
            allowed |= changes(acl::WRITE_DATA, ACCESS4_MODIFY)
                | changes(acl::WRITE_DATA | acl::APPEND_DATA, ACCESS4_EXTEND)
                | changes(acl::DELETE_CHILD, ACCESS4_DELETE);
        } else if !is_dir {
            allowed |= if executes { ACCESS4_EXECUTE } else { 0 };
            allowed |= if writes { ACCESS4_MODIFY | ACCESS4_EXTEND } else { 0 };
        }
        allowed |= if writes { ACCESS4_XAWRITE } else { 0 };
        if object.read_only {
            allowed &= !(ACCESS4_MODIFY | ACCESS4_EXTEND | ACCESS4_DELETE | ACCESS4_XAWRITE);
        }
        // RFC 7530 16.1.5: bits that mean nothing for the kind of object are not supported.
        let meaningless = match is_dir {
            true => ACCESS4_EXECUTE,
            false => ACCESS4_LOOKUP | ACCESS4_DELETE,
        };
        let known = if self.minor == 0 { known & !meaningless } else { known };
        Ok(AccessOk { supported: wanted & known, access: allowed & wanted & known })
    }

    async fn read_link(&self) -> Result<bytes::Bytes, NfsStat> {
        let object = self.object(NfsStat::Inval)?;
        let attr = object.resolve().await?;
        if attr.kind != FileKind::Symlink {
            return Err(if self.minor == 0 { NfsStat::Inval } else { NfsStat::WrongType });
        }
        object.files().readlink(object.id.ino).await.map_err(|error| stat_of(&error))
    }
}

/// Replaces the list of a file by one that the caller may set.
pub(super) async fn set_list(object: &Object, list: NewList) -> Result<(), NfsStat> {
    let (files, ino) = (object.files(), object.id.ino);
    let (attr, present) = files.acl(ino).await.map_err(|error| stat_of(&error))?;
    let rights = files.rights(&object.cred, ino, None).await.map_err(|error| stat_of(&error))?;
    // An owner who is not named is refused by the volume.
    let checked = object.cred.checked || rights & acl::WRITE_DAC != 0;
    let cred = Cred { checked, ..object.cred.clone() };
    let done = match list.kept(&attr)? {
        Kept::Mode(mode) if present.is_none() && mode == attr.mode => return Ok(()),
        Kept::Mode(mode) => {
            let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
            if present.is_some() {
                files.set_acl(&cred, ino, set, None).await
            } else {
                files.setattr(&cred, ino, set).await
            }
        }
        Kept::List(list) => {
            // The bits to execute a file follow from the list as well.
            let set = SetAttr { mode: Some(attr.mode | 0o111), ..SetAttr::default() };
            files.set_acl(&cred, ino, set, Some(list)).await
        }
    };
    match done {
        Ok(_) => Ok(()),
        Err(FsError::NotSupported | FsError::TooBig) => Err(NfsStat::AttrNotSupp),
        Err(error) => Err(stat_of(&error)),
    }
}
