//! Security descriptors (MS-DTYP 2.4): the parts a store gives and takes,
//! and their self-relative form on the wire.

/// Most sub-authorities a SID may have (MS-DTYP 2.4.2).
const SUB_AUTHORITIES_MAX: usize = 15;
/// Most entries of an ACL that is read. Windows allows as many as fit 64 KiB.
const ACES_MAX: usize = 1024;

/// SECURITY_DESCRIPTOR Control bits (MS-DTYP 2.4.6).
const SE_DACL_PRESENT: u16 = 0x0004;
const SE_DACL_AUTO_INHERIT_REQ: u16 = 0x0100;
const SE_DACL_AUTO_INHERITED: u16 = 0x0400;
const SE_DACL_PROTECTED: u16 = 0x1000;
const SE_SELF_RELATIVE: u16 = 0x8000;
const ACL_REVISION: u8 = 2;
const DESCRIPTOR_BYTES: usize = 20;
const ACL_HEADER_BYTES: usize = 8;
/// AceType, AceFlags, AceSize, Mask.
const ACE_HEADER_BYTES: usize = 8;

const ACCESS_ALLOWED_ACE_TYPE: u8 = 0;
const ACCESS_DENIED_ACE_TYPE: u8 = 1;

/// Who a rule is about: a user, a group, or everyone (MS-DTYP 2.4.2).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sid {
    authority: u64,
    sub_authorities: Vec<u32>,
}

impl Sid {
    /// The SID S-1-`authority`-`sub_authorities`..., of which the first 15
    /// count.
    pub fn new(authority: u64, sub_authorities: &[u32]) -> Self {
        let kept = sub_authorities.len().min(SUB_AUTHORITIES_MAX);
        Self { authority: authority & 0xFFFF_FFFF_FFFF, sub_authorities: sub_authorities[..kept].to_vec() }
    }

    /// Everyone, S-1-1-0.
    pub fn everyone() -> Self {
        Self::new(1, &[0])
    }

    pub fn authority(&self) -> u64 {
        self.authority
    }

    pub fn sub_authorities(&self) -> &[u32] {
        &self.sub_authorities
    }

    /// The binary form (MS-DTYP 2.4.2.2).
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }

    /// The SID of `bytes`, which hold nothing else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::parse(bytes).filter(|sid| bytes.len() == 8 + 4 * sid.sub_authorities.len())
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(1);
        out.push(self.sub_authorities.len() as u8);
        out.extend_from_slice(&self.authority.to_be_bytes()[2..]);
        for sub in &self.sub_authorities {
            out.extend_from_slice(&sub.to_le_bytes());
        }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (&[revision, count], rest) = bytes.split_first_chunk()?;
        let count = usize::from(count);
        if revision != 1 || count > SUB_AUTHORITIES_MAX {
            return None;
        }
        let mut authority = [0; 8];
        authority[2..].copy_from_slice(rest.get(..6)?);
        let subs = rest.get(6..6 + 4 * count)?;
        Some(Self {
            authority: u64::from_be_bytes(authority),
            sub_authorities: subs.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        })
    }
}

/// A rule of a DACL. Rules of other types than these two, which a file
/// server does not evaluate, are not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ace {
    pub allow: bool,
    /// AceFlags (MS-DTYP 2.4.4.1): inheritance.
    pub flags: u8,
    pub mask: u32,
    pub sid: Sid,
}

impl Ace {
    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.push(match self.allow {
            true => ACCESS_ALLOWED_ACE_TYPE,
            false => ACCESS_DENIED_ACE_TYPE,
        });
        out.push(self.flags);
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&self.mask.to_le_bytes());
        self.sid.encode(out);
        let size = (out.len() - start) as u16;
        out[start + 2..start + 4].copy_from_slice(&size.to_le_bytes());
    }

    /// The rule at the start of `bytes`, and its size.
    fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let header = bytes.get(..ACE_HEADER_BYTES)?;
        let size = usize::from(u16::from_le_bytes([header[2], header[3]]));
        let ace = Self {
            allow: match header[0] {
                ACCESS_ALLOWED_ACE_TYPE => true,
                ACCESS_DENIED_ACE_TYPE => false,
                _ => return None,
            },
            flags: header[1],
            mask: u32::from_le_bytes([header[4], header[5], header[6], header[7]]),
            sid: Sid::parse(bytes.get(ACE_HEADER_BYTES..size)?)?,
        };
        Some((ace, size))
    }
}

/// Who owns a file and who may do what with it. A part that is `None` was
/// not asked for, or is not to be changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SecurityDescriptor {
    pub owner: Option<Sid>,
    pub group: Option<Sid>,
    pub dacl: Option<Dacl>,
    /// SE_DACL_PROTECTED: the DACL stays as it is when the rules of the directory
    /// above change.
    pub is_protected: bool,
    /// SE_DACL_AUTO_INHERITED: inherited rules are marked as such. Of what is
    /// set, that SE_DACL_AUTO_INHERIT_REQ asks for it (MS-DTYP 2.5.3.4.1).
    pub marks_inherited: bool,
}

/// A discretionary ACL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dacl {
    /// A NULL DACL: everybody may everything.
    Null,
    Rules(Vec<Ace>),
}

/// The parts of a descriptor a request is about (MS-SMB2 2.2.37
/// AdditionalInformation).
#[derive(Debug, Clone, Copy)]
pub struct Parts(pub u32);

impl Parts {
    pub const OWNER: u32 = 0x1;
    pub const GROUP: u32 = 0x2;
    pub const DACL: u32 = 0x4;
    pub const SACL: u32 = 0x8;

    pub fn has(self, part: u32) -> bool {
        self.0 & part != 0
    }
}

impl SecurityDescriptor {
    /// The `parts` of the descriptor in self-relative form (MS-DTYP 2.4.6).
    pub fn encode(&self, parts: Parts) -> Vec<u8> {
        let mut out = vec![0; DESCRIPTOR_BYTES];
        out[0] = 1;
        let mut control = SE_SELF_RELATIVE;
        let place = |out: &mut Vec<u8>, at: usize| {
            let offset = out.len() as u32;
            out[at..at + 4].copy_from_slice(&offset.to_le_bytes());
        };
        if let Some(owner) = self.owner.as_ref().filter(|_| parts.has(Parts::OWNER)) {
            place(&mut out, 4);
            owner.encode(&mut out);
        }
        if let Some(group) = self.group.as_ref().filter(|_| parts.has(Parts::GROUP)) {
            place(&mut out, 8);
            group.encode(&mut out);
        }
        match self.dacl.as_ref().filter(|_| parts.has(Parts::DACL)) {
            None => {}
            Some(Dacl::Null) => control |= SE_DACL_PRESENT,
            Some(Dacl::Rules(rules)) => {
                control |= SE_DACL_PRESENT;
                place(&mut out, 16);
                encode_acl(rules, &mut out);
            }
        }
        if parts.has(Parts::DACL) {
            control |= if self.is_protected { SE_DACL_PROTECTED } else { 0 };
            control |= if self.marks_inherited { SE_DACL_AUTO_INHERITED } else { 0 };
        }
        out[2..4].copy_from_slice(&control.to_le_bytes());
        out
    }

    /// The `parts` of a descriptor in self-relative form. `None` when it is
    /// malformed or has rules that are not understood.
    pub fn parse(bytes: &[u8], parts: Parts) -> Option<Self> {
        let header = bytes.get(..DESCRIPTOR_BYTES)?;
        let control = u16::from_le_bytes([header[2], header[3]]);
        if header[0] != 1 || control & SE_SELF_RELATIVE == 0 {
            return None;
        }
        let at = |field: usize| {
            let offset = u32::from_le_bytes(header[field..field + 4].try_into().ok()?);
            match offset {
                0 => Some(None),
                offset => bytes.get(offset as usize..).map(Some),
            }
        };
        let sid = |part, field| match at(field)? {
            Some(bytes) if parts.has(part) => Sid::parse(bytes).map(Some),
            _ => Some(None),
        };
        let dacl = match at(16)? {
            _ if !parts.has(Parts::DACL) => None,
            Some(bytes) if control & SE_DACL_PRESENT != 0 => Some(Dacl::Rules(parse_acl(bytes)?)),
            _ => Some(Dacl::Null),
        };
        let flag = |bits| dacl.is_some() && control & bits == bits;
        Some(Self {
            owner: sid(Parts::OWNER, 4)?,
            group: sid(Parts::GROUP, 8)?,
            is_protected: flag(SE_DACL_PROTECTED),
            marks_inherited: flag(SE_DACL_AUTO_INHERITED | SE_DACL_AUTO_INHERIT_REQ),
            dacl,
        })
    }

    /// What the SMB2_CREATE_SD_BUFFER context brings (MS-SMB2 2.2.13.2.2): the
    /// parts that are there.
    pub fn parse_present(bytes: &[u8]) -> Option<Self> {
        let control = u16::from_le_bytes([*bytes.get(2)?, *bytes.get(3)?]);
        let dacl = if control & SE_DACL_PRESENT != 0 { Parts::DACL } else { 0 };
        Self::parse(bytes, Parts(Parts::OWNER | Parts::GROUP | dacl))
    }
}

fn encode_acl(rules: &[Ace], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[ACL_REVISION, 0, 0, 0]);
    out.extend_from_slice(&(rules.len() as u16).to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    for rule in rules {
        rule.encode(out);
    }
    let size = (out.len() - start) as u16;
    out[start + 2..start + 4].copy_from_slice(&size.to_le_bytes());
}

fn parse_acl(bytes: &[u8]) -> Option<Vec<Ace>> {
    let header = bytes.get(..ACL_HEADER_BYTES)?;
    let size = usize::from(u16::from_le_bytes([header[2], header[3]]));
    let count = usize::from(u16::from_le_bytes([header[4], header[5]]));
    if count > ACES_MAX {
        return None;
    }
    let mut rest = bytes.get(ACL_HEADER_BYTES..size)?;
    let mut rules = Vec::with_capacity(count);
    for _ in 0..count {
        let (rule, size) = Ace::parse(rest)?;
        rules.push(rule);
        rest = rest.get(size..)?;
    }
    Some(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Parts = Parts(7);

    fn descriptor() -> SecurityDescriptor {
        let rule = |allow, mask, sid| Ace { allow, flags: 0, mask, sid };
        SecurityDescriptor {
            owner: Some(Sid::new(22, &[1, 1000])),
            group: Some(Sid::new(22, &[2, 100])),
            dacl: Some(Dacl::Rules(vec![
                rule(true, 0x001F_01FF, Sid::new(22, &[1, 1000])),
                rule(false, 0x2, Sid::everyone()),
            ])),
            is_protected: true,
            marks_inherited: false,
        }
    }

    #[test]
    fn descriptors_round_trip_by_part() {
        let full = descriptor();
        assert_eq!(SecurityDescriptor::parse(&full.encode(ALL), ALL), Some(full.clone()));
        for part in [Parts::OWNER, Parts::GROUP, Parts::DACL] {
            let some = SecurityDescriptor::parse(&full.encode(ALL), Parts(part)).unwrap();
            assert_eq!(some.owner.is_some(), part == Parts::OWNER);
            assert_eq!(some.group.is_some(), part == Parts::GROUP);
            assert_eq!(some.dacl.is_some(), part == Parts::DACL);
            assert_eq!(SecurityDescriptor::parse(&full.encode(Parts(part)), Parts(part)), Some(some));
        }
        let open = SecurityDescriptor { dacl: Some(Dacl::Null), ..SecurityDescriptor::default() };
        assert_eq!(SecurityDescriptor::parse(&open.encode(ALL), ALL), Some(open));
    }

    #[test]
    fn a_sid_is_encoded_as_ms_dtyp_has_it() {
        let mut out = Vec::new();
        Sid::everyone().encode(&mut out);
        assert_eq!(out, [1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn what_is_cut_short_or_changed_is_refused_without_a_panic() {
        let full = descriptor().encode(ALL);
        for len in 0..full.len() {
            assert_eq!(SecurityDescriptor::parse(&full[..len], ALL), None, "{len}");
        }
        for at in 0..full.len() {
            for value in [0, 1, 0x7F, 0xFF] {
                let mut changed = full.clone();
                changed[at] = value;
                let _ = SecurityDescriptor::parse(&changed, ALL);
            }
        }
    }
}
