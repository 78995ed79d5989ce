//! Attributes that a client sets (RFC 8881 5.5, 18.30; RFC 8275).
//!
//! - `asked.list_before_others`: something that is made with a list of its own is its maker's alone until it has that.

use larder_fs::{Attr, FILE_BYTES_MAX, SetAttr, SetTime};

use super::super::owners::Owners;
use super::access_list::{NewList, check_sacl};
use super::attrs::FileAttrs;
use super::bitmap::Bitmap;
use super::convert::timestamp;
use super::shown::{DOS_BITS, WRITABLE, WRITE_ONLY, owner_status, supported};
use super::types::{Fattr, NfsStat, SetTime4};

/// Attributes that a client sets, checked as far as that goes without the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Without what depends on the file: see [`Asked::of_file`].
    set: SetAttr,
    /// Their numbers, for the answer.
    pub mask: Bitmap,
    /// A list in place of the present one.
    pub list: Option<NewList>,
    /// Bits of the mode, and those of them that are set.
    masked_mode: Option<(u32, u32)>,
    umask: u32,
    /// DOS attributes, and those of them that are set.
    dos: (u32, u32),
}

impl Asked {
    /// Of SETATTR, or of an operation that makes something.
    pub fn parse(list: &Fattr<'_>, minor: u32, owners: &Owners, makes: bool) -> Result<Self, NfsStat> {
        if list.mask.has_unknown() || !list.mask.without(&supported(minor)).is_empty() {
            return Err(NfsStat::AttrNotSupp);
        }
        if !list.mask.without(&Bitmap::of(&WRITABLE)).is_empty() {
            return Err(NfsStat::Inval);
        }
        let attrs = FileAttrs::decode(list)?;
        if attrs.size.is_some_and(|size| size > FILE_BYTES_MAX) {
            return Err(NfsStat::FBig);
        }
        // RFC 8275 5: alone, and of something new.
        let modes = [attrs.mode.is_some(), attrs.mode_umask.is_some(), attrs.mode_set_masked.is_some()];
        if modes.iter().filter(|is| **is).count() > 1 || (attrs.mode_umask.is_some() && !makes) {
            return Err(NfsStat::Inval);
        }
        let mut asked =
            Self { set: set_of(&attrs, owners)?, mask: list.mask, list: new_list(&attrs, owners)?, ..Self::default() };
        if let Some(masked) = attrs.mode_set_masked {
            if (masked.value | masked.mask) > 0o7777 || masked.value & !masked.mask != 0 {
                return Err(NfsStat::Inval);
            }
            asked.masked_mode = Some((masked.mask, masked.value));
        }
        if let Some(umasked) = attrs.mode_umask {
            if umasked.mode > 0o7777 || umasked.umask > 0o777 {
                return Err(NfsStat::Inval);
            }
            (asked.set.mode, asked.umask) = (Some(umasked.mode), umasked.umask);
        }
        for (value, bit) in [attrs.hidden, attrs.system, attrs.archive].into_iter().zip(DOS_BITS) {
            if let Some(is) = value {
                asked.dos = (asked.dos.0 | bit, asked.dos.1 | if is { bit } else { 0 });
            }
        }
        Ok(asked)
    }

    pub fn size(&self) -> Option<u64> {
        self.set.size
    }

    /// The present DOS attributes of the file are needed.
    pub fn needs_dos(&self) -> bool {
        self.dos.0 != 0
    }

    /// It matters whether the directory hands rules on.
    pub fn has_umask(&self) -> bool {
        self.umask != 0
    }

    /// Of a file with these attributes.
    pub fn of_file(&self, attr: &Attr) -> SetAttr {
        let masked = self.masked_mode.map(|(mask, value)| attr.mode & 0o7777 & !mask | value);
        let dos = self.needs_dos().then_some(attr.dos & !self.dos.0 | self.dos.1);
        SetAttr { mode: self.set.mode.or(masked), dos, ..self.set }
    }

    /// Of something new in a directory that hands rules on, or not: then the umask counts (RFC 8275 5).
    pub fn of_new(&self, hands_on: bool, usual_mode: u32) -> SetAttr {
        let umask = if hands_on { 0 } else { self.umask };
        let masked = self.masked_mode.map(|(mask, value)| usual_mode & !mask | value);
        let mode = self.set.mode.map(|mode| mode & !umask).or(masked).unwrap_or(usual_mode);
        // `asked.list_before_others`
        let mode = if self.list.is_some() { mode & !0o077 } else { mode };
        SetAttr { mode: Some(mode), dos: self.needs_dos().then_some(self.dos.1), ..self.set }
    }
}

fn set_of(attrs: &FileAttrs<'_>, owners: &Owners) -> Result<SetAttr, NfsStat> {
    if attrs.mode.is_some_and(|mode| mode > 0o7777) {
        return Err(NfsStat::Inval);
    }
    let time = |time: Option<SetTime4>| match time {
        None => Ok(None),
        Some(SetTime4::Server(())) => Ok(Some(SetTime::Now)),
        Some(SetTime4::Client(time)) => timestamp(time).map(|time| Some(SetTime::To(time))),
    };
    Ok(SetAttr {
        mode: attrs.mode,
        uid: attrs.owner.map(|owner| owners.user(owner.0).map_err(owner_status)).transpose()?,
        gid: attrs.owner_group.map(|group| owners.group(group.0).map_err(owner_status)).transpose()?,
        size: attrs.size,
        atime: time(attrs.time_access_set)?,
        mtime: time(attrs.time_modify_set)?,
        btime: attrs.time_create.map(timestamp).transpose()?,
        ..SetAttr::default()
    })
}

fn new_list(attrs: &FileAttrs<'_>, owners: &Owners) -> Result<Option<NewList>, NfsStat> {
    attrs.sacl.as_ref().map_or(Ok(()), check_sacl)?;
    match (&attrs.acl, &attrs.dacl) {
        (Some(_), Some(_)) => Err(NfsStat::Inval),
        (Some(list), None) => NewList::parse(list, owners).map(Some),
        (None, Some(list)) => NewList::parse_dacl(list, owners).map(Some),
        (None, None) => Ok(None),
    }
}

/// Whether any of the attributes of a list is there, which can be read by nobody.
pub fn has_write_only(list: &Bitmap) -> bool {
    WRITE_ONLY.iter().any(|number| list.has(*number))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::attrs::ModeUmask;
    use super::super::types::{ModeMasked, Time4};
    use super::super::wire::Opaque;
    use super::*;

    fn asked(attrs: FileAttrs<'_>, makes: bool) -> Result<Asked, NfsStat> {
        let values = attrs.encode_values();
        Asked::parse(&attrs.list(&values), 2, &Owners::default(), makes)
    }

    fn given(attrs: FileAttrs<'_>) -> Result<SetAttr, NfsStat> {
        asked(attrs, false).map(|asked| asked.set)
    }

    #[test]
    fn what_may_be_set() {
        let set =
            given(FileAttrs { size: Some(5), mode: Some(0o600), owner: Some(Opaque(b"7")), ..Default::default() });
        assert_eq!(set, Ok(SetAttr { size: Some(5), mode: Some(0o600), uid: Some(7), ..SetAttr::default() }));
        let read_only = FileAttrs { file_id: Some(5), ..Default::default() };
        assert_eq!(given(read_only), Err(NfsStat::Inval));
        let unsupported = FileAttrs { mime_type: Some(Opaque(b"a/b")), ..Default::default() };
        assert_eq!(given(unsupported), Err(NfsStat::AttrNotSupp));
        let nobody = FileAttrs { owner: Some(Opaque(b"ann@home")), ..Default::default() };
        assert_eq!(given(nobody), Err(NfsStat::BadOwner));
        let time = Time4 { seconds: 1, nanoseconds: 1_000_000_000 };
        let bad_time = FileAttrs { time_modify_set: Some(SetTime4::Client(time)), ..Default::default() };
        assert_eq!(given(bad_time), Err(NfsStat::Inval));
        assert_eq!(given(FileAttrs { size: Some(u64::MAX), ..Default::default() }), Err(NfsStat::FBig));
    }

    #[test]
    fn a_mode_is_given_in_one_of_three_ways() {
        let umasked = Some(ModeUmask { mode: 0o666, umask: 0o027 });
        let of_new = asked(FileAttrs { mode_umask: umasked, ..Default::default() }, true).unwrap();
        assert_eq!([false, true].map(|hands_on| of_new.of_new(hands_on, 0o600).mode), [Some(0o640), Some(0o666)]);
        assert_eq!(given(FileAttrs { mode_umask: umasked, ..Default::default() }), Err(NfsStat::Inval));
        let twice = FileAttrs { mode_umask: umasked, mode: Some(0), ..Default::default() };
        assert_eq!(asked(twice, true), Err(NfsStat::Inval));
        let masked =
            |value, mask| FileAttrs { mode_set_masked: Some(ModeMasked { value, mask }), ..Default::default() };
        assert_eq!(asked(masked(0o020, 0o070), false).unwrap().of_new(false, 0o644).mode, Some(0o624));
        assert_eq!(given(masked(0o100, 0o070)), Err(NfsStat::Inval));
        assert_eq!(asked(FileAttrs::default(), true).unwrap().of_new(false, 0o600).mode, Some(0o600));
    }

    #[test]
    fn flags_are_set_one_by_one() {
        let flags = FileAttrs { hidden: Some(true), archive: Some(false), ..Default::default() };
        let flags = asked(flags, false).unwrap();
        assert_eq!(flags.dos, (0x22, 0x02));
        assert_eq!(flags.of_new(false, 0).dos, Some(0x02));
    }
}
