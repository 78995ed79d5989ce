//! OPEN, OPEN_CONFIRM, OPEN_DOWNGRADE, CLOSE, DELEGRETURN (RFC 8881 18.2, 18.6, 18.16, 18.18; RFC 7530 16.18).
//!
//! - `opens4.judged_before_changed`: an existing file is truncated after the open was granted, never before.
//! - `opens4.owner_takes_back`: whoever takes back an open after a restart may do what it is for, or owns the file: nothing
//!   is remembered of the open but its client. The owner may have opened it before its mode forbade that.
//! - `opens4.recorded_first`: the client is in the durable record before its first open is answered.

use larder_files::{Caches, OpenInode, Uses};
use larder_fs::{
    ACCESS_EXECUTE, ACCESS_READ, ACCESS_WRITE, AccessMask, Attr, CreateMode, FileKind, FsError, Ino, NameMatch, SetAttr,
};

use super::super::asked::Asked;
use super::super::bitmap::Bitmap;
use super::super::compound::CompoundReply;
use super::super::convert::{change_of, check_file, check_name, stat_of, told_change, unchanged};
use super::super::delegation::Delegated;
use super::super::exported::{Granted, HeldOpen};
use super::super::file_key::ShareBits;
use super::super::ops::{
    ArgOp, CloseArgs, CreateHow, DelegationKind, OpNumber, OpenArgs, OpenClaim, OpenConfirmArgs, OpenDelegation,
    OpenDowngradeArgs, OpenHow, OpenOk, ReadDelegation, ResOp, SpaceLimit, WhyNoDelegation, WhyNoDelegationKind,
    WriteDelegation,
};
use super::super::place::{Object, Place};
use super::super::state::{Opened, OwnerKind};
use super::super::stateids;
use super::super::types::{Ace4, ChangeInfo, ClientId, Fattr, NfsStat, StateId, StateOwner};
use super::super::wire::Opaque;
use super::Run;
use super::attributes::set_list;
use super::names::NOTHING_SET;
use crate::truncating;

/// `OPEN4_SHARE_ACCESS_*`: what is asked for, and wishes about delegations (RFC 8881 18.16.1).
const ACCESS_BOTH: u32 = 3;
const WISHES: u32 = 0x3_ff00;
/// `OPEN4_SHARE_ACCESS_WANT_*`.
const WANT_MASK: u32 = 0xff00;
const WANT_READ: u32 = 0x0100;
const WANT_NO_DELEGATION: u32 = 0x0400;
const WANT_CANCEL: u32 = 0x0500;
/// RFC 9754: wishes that are not met and hurt nobody, in any version that has wishes.
const LATER_WISHES: u32 = 0x30_0000;
/// `OPEN4_RESULT_*`.
const RESULT_CONFIRM: u32 = 2;
const RESULT_LOCKTYPE_POSIX: u32 = 4;
const RESULT_MAY_NOTIFY_LOCK: u32 = 0x20;
/// Of a file that its maker gives no mode, as with an exclusive create until SETATTR comes.
const FILE_MODE: u32 = 0o600;

/// A file that is about to be opened.
struct Target {
    object: Object,
    attr: Attr,
    /// It was made by this OPEN: whoever makes a file may do with it what its mode forbids others.
    is_new: bool,
    change: ChangeInfo,
    set: Bitmap,
    /// The size is set to 0 when the open is granted (`opens4.judged_before_changed`).
    truncates: bool,
    /// The directory and the name, where it was opened by them.
    name: Option<(Ino, Box<[u8]>)>,
}

impl<'m> Run<'m> {
    pub(super) async fn open_operation(&mut self, op: ArgOp<'m>, reply: &mut CompoundReply) {
        match op {
            ArgOp::Open(args) => Box::pin(self.open_in_order(&args, reply)).await,
            ArgOp::OpenConfirm(args) => {
                let order = self.begin_owner(&args.stateid, args.seqid, OpNumber::OpenConfirm, reply);
                let Some(owner) = order else { return };
                let result = ResOp::OpenConfirm(self.confirm(&args));
                self.end_owner(owner, args.seqid, &result, reply);
            }
            ArgOp::OpenDowngrade(args) => {
                let order = self.begin_owner(&args.stateid, args.seqid, OpNumber::OpenDowngrade, reply);
                let Some(owner) = order else { return };
                let result = ResOp::OpenDowngrade(self.downgrade(&args));
                self.end_owner(owner, args.seqid, &result, reply);
            }
            ArgOp::Close(args) => {
                let order = self.begin_owner(&args.stateid, args.seqid, OpNumber::Close, reply);
                let Some(owner) = order else { return };
                let result = ResOp::Close(self.close(&args));
                self.end_owner(owner, args.seqid, &result, reply);
            }
            ArgOp::DelegReturn(stateid) => {
                let done = self.return_delegation(stateid);
                self.push(reply, &ResOp::DelegReturn(done));
            }
            other => self.push(reply, &ResOp::failed(other.number(), NfsStat::ServerFault)),
        }
    }

    /// In NFSv4.0 the owner's requests come one after the other (RFC 7530 9.1.7).
    async fn open_in_order(&mut self, args: &OpenArgs<'_>, reply: &mut CompoundReply) {
        Box::pin(self.make_room(self.client.unwrap_or(args.owner.client))).await;
        let owner = match self.begin_open(args, reply) {
            Ok(owner) => owner,
            Err(Some(status)) => return self.push(reply, &ResOp::Open(Err(status))),
            Err(None) => {
                // It was opened before: what follows needs its handle.
                if let OpenClaim::Null(name) = args.claim
                    && let Ok(place) = self.lookup_place(name.0).await
                {
                    self.current = Some(place);
                }
                return;
            }
        };
        let result = ResOp::Open(match self.open(args).await {
            Ok((opened, target)) => {
                // RFC 7530 16.18.5: none before the owner is confirmed.
                let delegation = match opened.must_confirm {
                    true => OpenDelegation::None(()),
                    false => self.delegate(args, &target).await,
                };
                let confirm = if opened.must_confirm { RESULT_CONFIRM } else { 0 };
                let notifies = if self.minor > 0 { RESULT_MAY_NOTIFY_LOCK } else { 0 };
                Ok(OpenOk {
                    stateid: opened.stateid,
                    change: target.change,
                    flags: RESULT_LOCKTYPE_POSIX | confirm | notifies,
                    set: target.set,
                    delegation,
                })
            }
            Err(status) => Err(status),
        });
        self.end_owner(owner, args.seqid, &result, reply);
    }

    fn client_of(&self, owner: &StateOwner<'_>) -> Result<ClientId, NfsStat> {
        if self.minor > 0 {
            // The session's, whatever the field says (RFC 8881 18.16.3).
            return self.client.ok_or(NfsStat::OpNotInSession);
        }
        self.v4.lock().clients.renew(owner.client, self.v4.now())?;
        Ok(owner.client)
    }

    async fn open(&mut self, args: &OpenArgs<'_>) -> Result<(Opened, Target), NfsStat> {
        let wishes = if self.minor == 0 { 0 } else { WISHES | LATER_WISHES };
        if args.access & !(ACCESS_BOTH | wishes) != 0 || args.deny > ACCESS_BOTH || args.access & ACCESS_BOTH == 0 {
            return Err(NfsStat::Inval);
        }
        let access = ShareBits::from_number(args.access & ACCESS_BOTH).ok_or(NfsStat::Inval)?;
        let deny = ShareBits::from_number(args.deny).ok_or(NfsStat::Inval)?;
        let client = self.client_of(&args.owner)?;
        let reclaims = matches!(args.claim, OpenClaim::Previous(_));
        if let Place::Object(object) = self.place()? {
            let volume = Box::pin(self.v4.volume(object.files())).await?;
            self.v4.lock().may_take(client, volume.book(), reclaims)?;
        }
        let target = match args.claim {
            OpenClaim::Null(name) => Box::pin(self.open_by_name(name.0, args)).await?,
            OpenClaim::Previous(_) | OpenClaim::Handle(()) => self.open_by_handle(args).await?,
            // What it opened for itself under its delegation becomes an open here.
            OpenClaim::DelegateCurrent(claim) => {
                let target = Box::pin(self.open_by_name(claim.name.0, args)).await?;
                self.delegated_to(&claim.stateid, &target.object)?;
                target
            }
            OpenClaim::DelegateCurrentHandle(stateid) => {
                let target = self.open_by_handle(args).await?;
                self.delegated_to(&stateid, &target.object)?;
                target
            }
            OpenClaim::DelegatePrevious(_) | OpenClaim::DelegatePreviousHandle(()) => return Err(NfsStat::NotSupp),
        };
        if access.has(ShareBits::WRITE) {
            target.object.may_change()?;
        }
        // `opens4.owner_takes_back`
        if !(target.is_new || reclaims && target.object.cred.uid == target.attr.uid) {
            self.check_rights(&target, access).await?;
        }
        let opened = Box::pin(self.grant(client, args.owner.owner.0, &target, access, deny)).await?;
        if target.truncates {
            let done = self.truncate(&target).await;
            if let Err(status) = done {
                let key = self.v4.lock().exported.key(target.object.files(), target.object.id.ino);
                if let Some(key) = key {
                    let _ = self.v4.lock().states.close(&opened.stateid, key, self.by());
                }
                return Err(status);
            }
        }
        self.current = Some(Place::Object(target.object.clone()));
        self.stateids.set(opened.stateid);
        Ok((opened, target))
    }

    fn delegated_to(&self, stateid: &StateId, object: &Object) -> Result<(), NfsStat> {
        let stateid = self.stateids.resolve(*stateid, self.minor)?;
        let mut state = self.v4.lock();
        let file = Self::key(&mut state, object.files(), object.id.ino)?;
        state.states.data_right(&stateid, file, false, self.by()).map(|_| ())
    }

    /// A delegation to read, where the client can be reached and nobody changes the file; to write, where nobody else has it
    /// open (`recalls.writes_are_asked_for`).
    async fn delegate(&self, args: &OpenArgs<'_>, target: &Target) -> OpenDelegation<'static> {
        let why = |why| OpenDelegation::NoneExt(WhyNoDelegation { why, comes_back: false });
        match args.access & WANT_MASK {
            WANT_NO_DELEGATION => return why(WhyNoDelegationKind::NotWanted),
            WANT_CANCEL => return why(WhyNoDelegationKind::Cancelled),
            _ => {}
        }
        // A client that writes parts of pages reads them, so an open to write alone is given none.
        let kind = match ShareBits::from_number(args.access & ACCESS_BOTH) {
            Some(ShareBits::READ) => Delegated::Read,
            // A client of NFSv4.0 that asks for attributes does not say who it is, so it could not be told from others.
            Some(ShareBits::BOTH) if args.access & WANT_MASK != WANT_READ && self.minor > 0 => Delegated::Write,
            _ => return OpenDelegation::None(()),
        };
        let is_taking = match args.claim {
            OpenClaim::Null(_) | OpenClaim::Handle(()) => true,
            OpenClaim::Previous(DelegationKind::Read) => kind == Delegated::Read,
            OpenClaim::Previous(DelegationKind::Write) => kind == Delegated::Write,
            _ => false,
        };
        let client = self.client.unwrap_or(args.owner.client);
        let granted = if is_taking { self.try_delegate(client, target, kind).await } else { None };
        let Some(stateid) = granted else { return OpenDelegation::None(()) };
        // The client asks about every other user.
        let permissions = Ace4 { kind: 0, flag: 0, access_mask: 0, who: Opaque(b"") };
        match kind {
            Delegated::Read => OpenDelegation::Read(ReadDelegation { stateid, recall: false, permissions }),
            Delegated::Write => {
                // Nothing stays unsent behind a close: no room was kept for it, and its client may die.
                let limit = SpaceLimit::Size(0);
                OpenDelegation::Write(WriteDelegation { stateid, recall: false, limit, permissions })
            }
        }
    }

    async fn try_delegate(&self, client: ClientId, target: &Target, kind: Delegated) -> Option<StateId> {
        let object = &target.object;
        let is_reachable = self.v4.lock().clients.back_channel(client).is_some() || self.v4.is_linked(client);
        if !is_reachable {
            return None;
        }
        let files = object.files();
        // Changes by another machine, and by programs of the host in its folders, come without a word.
        if files.is_followed() || files.reuses_numbers() {
            return None;
        }
        let (entry, inode) = files.open_judged(object.id, Uses::NOTHING).await.ok()?.into_parts();
        let attr = object.resolve().await.ok()?;
        let now = self.v4.now();
        let mut state = self.v4.lock();
        let state = &mut *state;
        let file = Self::key(state, object.files(), object.id.ino).ok()?;
        let by = self.slot.request();
        let granted = Some(Granted { by, change: told_change(object.files(), attr.change), size: attr.size });
        let held = HeldOpen { granted, ..self.held(inode, target) };
        let granted = state.states.delegate(client, file, kind, now, (entry, held)).ok();
        self.v4.delegations_changed(state);
        state.refresh_status(client);
        granted
    }

    /// An existing file is opened by somebody whom its mode or list lets do so.
    async fn check_rights(&self, target: &Target, access: ShareBits) -> Result<(), NfsStat> {
        let object = &target.object;
        let granted = object.files().resolve_granted(&object.cred, object.id).await;
        let (_, bits) = granted.map_err(|error| stat_of(&error))?;
        let has_any = |masks: AccessMask| bits & masks != 0;
        // Whoever may execute may read: how else would the client load a program.
        let reads = !access.has(ShareBits::READ) || has_any(ACCESS_READ | ACCESS_EXECUTE);
        let writes = !(access.has(ShareBits::WRITE) || target.truncates) || has_any(ACCESS_WRITE);
        if reads && writes { Ok(()) } else { Err(NfsStat::Access) }
    }

    async fn truncate(&self, target: &Target) -> Result<(), NfsStat> {
        let object = &target.object;
        object.may_change()?;
        let cred = truncating(&object.cred, &target.attr);
        let set = SetAttr { size: Some(0), ..SetAttr::default() };
        object.files().setattr(&cred, object.id.ino, set).await.map(|_| ()).map_err(|error| stat_of(&error))
    }

    async fn open_by_handle(&self, args: &OpenArgs<'_>) -> Result<Target, NfsStat> {
        let object = self.object(NfsStat::IsDir)?;
        if matches!(args.how, OpenHow::Create(_)) {
            return Err(NfsStat::Inval);
        }
        let attr = object.resolve().await?;
        check_file(&attr, self.minor)?;
        let change = unchanged(object.files(), &attr);
        Ok(Target { object, attr, is_new: false, change, set: NOTHING_SET, truncates: false, name: None })
    }

    async fn open_by_name(&self, name: &[u8], args: &OpenArgs<'_>) -> Result<Target, NfsStat> {
        let dir = match self.place()? {
            Place::Object(dir) => dir.clone(),
            Place::Pseudo(_) => {
                let found = self.lookup_place(name).await;
                let creates = matches!(args.how, OpenHow::Create(_));
                return Err(match found {
                    Ok(_) => NfsStat::IsDir,
                    Err(NfsStat::NoEnt) if creates => NfsStat::RoFs,
                    Err(status) => status,
                });
            }
        };
        let dir_attr = dir.dir().await?;
        check_name(name)?;
        let how = match args.how {
            OpenHow::NoCreate(()) => None,
            OpenHow::Create(how) => Some(how),
        };
        if let Some(CreateHow::ExclusiveWithAttrs(_)) = how
            && self.minor == 0
        {
            return Err(NfsStat::Inval);
        }
        let files = dir.files();
        let asked = self.asked(&dir, how.as_ref())?;
        let existing = match files.lookup(&dir.cred, dir.id.ino, name, NameMatch::Exact).await {
            Ok(attr) => Some(attr),
            Err(FsError::NotFound) => None,
            Err(error) => return Err(stat_of(&error)),
        };
        let is_exclusive = matches!(how, Some(CreateHow::Exclusive(_) | CreateHow::ExclusiveWithAttrs(_)));
        let attr = match (existing, how) {
            (None, None) => return Err(NfsStat::NoEnt),
            (Some(_), Some(CreateHow::Guarded(_))) => return Err(NfsStat::Exist),
            (Some(attr), _) if !is_exclusive => attr,
            (_, Some(how)) => return self.create_file(&dir, name, &how, asked).await,
            (Some(attr), None) => attr,
        };
        let object = self.existing(&dir, &attr).await?;
        // Of an existing file only a size of 0 is set (RFC 8881 18.16.3).
        let truncates = how.is_some() && asked.size() == Some(0);
        let set = if truncates { Bitmap::of(&[super::super::attrs::number::SIZE]) } else { NOTHING_SET };
        Ok(Target {
            object,
            attr,
            is_new: false,
            change: unchanged(dir.files(), &dir_attr),
            set,
            truncates,
            name: Some((dir.id.ino, name.into())),
        })
    }

    fn asked(&self, dir: &Object, how: Option<&CreateHow<'_>>) -> Result<Asked, NfsStat> {
        let list: Fattr<'_> = match how {
            None | Some(CreateHow::Exclusive(_)) => return Ok(Asked::default()),
            Some(CreateHow::Unchecked(list) | CreateHow::Guarded(list)) => *list,
            Some(CreateHow::ExclusiveWithAttrs(how)) => how.attrs,
        };
        let asked = Asked::parse(&list, self.minor, &dir.export.owners, true)?;
        asked.list.as_ref().map_or(Ok(()), |list| list.check(false))?;
        Ok(asked)
    }

    async fn existing(&self, dir: &Object, attr: &Attr) -> Result<Object, NfsStat> {
        match attr.kind {
            FileKind::File => dir.beside(attr.id).await,
            FileKind::Directory => Err(NfsStat::IsDir),
            FileKind::Symlink => Err(NfsStat::Symlink),
            _ if self.minor == 0 => Err(NfsStat::Symlink),
            _ => Err(NfsStat::WrongType),
        }
    }

    async fn create_file(
        &self,
        dir: &Object,
        name: &[u8],
        how: &CreateHow<'_>,
        asked: Asked,
    ) -> Result<Target, NfsStat> {
        dir.may_change()?;
        let mode = match how {
            CreateHow::Unchecked(_) => CreateMode::Unchecked,
            CreateHow::Guarded(_) => CreateMode::Guarded,
            CreateHow::Exclusive(verifier) => CreateMode::Exclusive(*verifier),
            CreateHow::ExclusiveWithAttrs(how) => CreateMode::Exclusive(how.verifier),
        };
        // Somebody may have made it in this moment: nothing of theirs is truncated here.
        let set = self.set_of_new(dir, &asked, FILE_MODE).await?;
        let made_with = SetAttr { size: set.size.filter(|size| *size > 0), ..set };
        let made = dir.files().create(&dir.cred, dir.id.ino, name, mode, made_with).await;
        let (attr, is_new, changed) = made.map_err(|error| stat_of(&error))?;
        let object = self.existing(dir, &attr).await?;
        let is_exclusive = matches!(mode, CreateMode::Exclusive(_));
        if let Some(list) = asked.list.filter(|_| is_new || is_exclusive) {
            Box::pin(set_list(&object, list)).await?;
        }
        Ok(Target {
            object,
            attr,
            // A retry of an exclusive create is its maker's alone.
            is_new: is_new || (is_exclusive && attr.uid == dir.cred.uid),
            change: change_of(dir.files(), &changed),
            set: if is_new || is_exclusive { asked.mask } else { NOTHING_SET },
            truncates: !is_new && !is_exclusive && set.size == Some(0),
            name: Some((dir.id.ino, name.into())),
        })
    }

    fn held(&self, inode: OpenInode, target: &Target) -> HeldOpen {
        HeldOpen {
            _inode: inode,
            uid: target.object.cred.uid,
            address: self.caller.peer.ip().to_canonical(),
            name: target.name.clone(),
            handle: target.object.handle(target.object.id),
            granted: None,
        }
    }

    /// Asks the table of all doors, and keeps the open.
    async fn grant(
        &self,
        client: ClientId,
        owner: &[u8],
        target: &Target,
        access: ShareBits,
        deny: ShareBits,
    ) -> Result<Opened, NfsStat> {
        let object = &target.object;
        self.v4.will_hold(object.files());
        // `opens4.recorded_first`
        let volume = Box::pin(self.v4.volume(object.files())).await?;
        Box::pin(self.v4.record(client, &volume)).await?;
        // Other doors' clients send what they cache before this is granted.
        let open = object.files().open_judged(object.id, access.uses()).await.map_err(|error| match error {
            FsError::Shared => NfsStat::ShareDenied,
            error => stat_of(&error),
        })?;
        let (entry, inode) = open.into_parts();
        let mut offered = Some((entry, self.held(inode, target)));
        let mut try_open = || -> Result<_, NfsStat> {
            let mut state = self.v4.lock();
            let file = Self::key(&mut state, object.files(), object.id.ino)?;
            if !state.is_recorded(client, volume.book()) {
                // It has just been forgotten, with all that it had.
                return Err(NfsStat::Delay);
            }
            let owner = state.states.owner(client, OwnerKind::Open, owner)?;
            let by = (object.cred.uid, self.minor);
            Ok((file, state.states.open(owner, file, (access, deny), by, &mut offered)))
        };
        let (file, mut opened) = try_open()?;
        let is_in_the_way = matches!(opened, Err(NfsStat::ShareDenied | NfsStat::Delay));
        if is_in_the_way && Box::pin(self.end_silent(file, Some(client))).await? {
            opened = try_open()?.1;
        }
        if opened == Err(NfsStat::ShareDenied) {
            object.files().recall(object.id.ino, Caches::HANDLES).await;
            opened = try_open()?.1;
        }
        if opened == Err(NfsStat::Delay) {
            self.v4.recalls_wait();
        }
        opened
    }

    fn confirm(&mut self, args: &OpenConfirmArgs) -> Result<StateId, NfsStat> {
        self.with_open(args.stateid, |run, state, stateid, object| {
            let file = Self::key(state, object.files(), object.id.ino)?;
            state.states.confirm_open(stateid, file, run.by())
        })
    }

    fn downgrade(&mut self, args: &OpenDowngradeArgs) -> Result<StateId, NfsStat> {
        let access = ShareBits::from_number(args.access & ACCESS_BOTH).filter(|_| args.access <= ACCESS_BOTH);
        let (access, deny) = (access.ok_or(NfsStat::Inval)?, ShareBits::from_number(args.deny).ok_or(NfsStat::Inval)?);
        self.with_open(args.stateid, |run, state, stateid, object| {
            let file = Self::key(state, object.files(), object.id.ino)?;
            state.states.downgrade(stateid, file, access, deny, run.by())
        })
    }

    fn close(&mut self, args: &CloseArgs) -> Result<StateId, NfsStat> {
        self.with_open(args.stateid, |run, state, stateid, object| {
            let file = Self::key(state, object.files(), object.id.ino)?;
            state.states.close(stateid, file, run.by())?;
            // RFC 8881 18.2.4: nothing can be done with what comes back.
            let again = StateId { seqid: stateids::next_seqid(stateid.seqid), ..*stateid };
            Ok(if run.minor == 0 { again } else { stateids::INVALID })
        })
    }

    fn with_open(
        &mut self,
        stateid: StateId,
        change: impl FnOnce(&Self, &mut super::super::server::V4State, &StateId, &Object) -> Result<StateId, NfsStat>,
    ) -> Result<StateId, NfsStat> {
        let object = self.object(NfsStat::BadStateId)?;
        let stateid = self.stateids.resolve(stateid, self.minor)?;
        let changed = change(self, &mut self.v4.lock(), &stateid, &object)?;
        self.stateids.set(changed);
        Ok(changed)
    }

    fn return_delegation(&mut self, stateid: StateId) -> Result<(), NfsStat> {
        let object = self.object(NfsStat::BadStateId)?;
        let stateid = self.stateids.resolve(stateid, self.minor)?;
        let now = self.v4.now();
        let mut state = self.v4.lock();
        let file = Self::key(&mut state, object.files(), object.id.ino)?;
        state.states.return_delegation(&stateid, file, self.by(), now)?;
        self.v4.delegations_changed(&state);
        if let Some(client) = self.client {
            state.refresh_status(client);
        }
        Ok(())
    }
}
