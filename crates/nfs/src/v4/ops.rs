//! Arguments and results of all operations: RFC 7530 16, RFC 8881 18, RFC 7862 15, RFC 8276 8.4.

use super::super::xdr::{Garbage, Reader};
use super::bitmap::Bitmap;
use super::types::{
    Ace4, AppDataBlock, CallbackSec, CallbackTarget, ChangeInfo, ClientId, ClientOwner, Component, DetailedResult,
    DeviceId, DeviceNumber, ENTRIES_MAX, FOREIGN_BYTES_MAX, Fattr, FileType4, Foreign, Handle4, ImplementationId,
    LayoutBody, LayoutIoMode, LockKind, NetAddr, NetLoc, NfsStat, OpResult, Outcome, SecInfo, ServerOwner, SessionId,
    StableHow, StateId, StateOwner, Text, Time4, Verifier, WriteResponse,
};
use super::wire::{FileData, Opaque, Xdr, XdrChain, XdrList, XdrOut, xdr_enum, xdr_struct, xdr_union};

/// Stateids of one TEST_STATEID, names of one LISTXATTRS, errors of one LAYOUTERROR.
pub const LIST_MAX: usize = 64 << 10;
/// Contents of one READ_PLUS: data and holes by turns.
pub const CONTENTS_MAX: usize = 64 << 10;
const OID_BYTES_MAX: usize = 128;
const GSS_MAX: usize = 64;

xdr_enum! {
    /// `why_no_delegation4`.
    WhyNoDelegationKind {
        NotWanted = 0,
        Contention = 1,
        Resource = 2,
        NotSuppFileType = 3,
        WriteNotSuppFileType = 4,
        NotSuppUpgrade = 5,
        NotSuppDowngrade = 6,
        Cancelled = 7,
        IsDirectory = 8,
    }

    /// `open_delegation_type4`.
    DelegationKind {
        None = 0,
        Read = 1,
        Write = 2,
        NoneExt = 3,
    }

    /// `channel_dir_from_client4`.
    ChannelFromClient {
        Fore = 1,
        Back = 2,
        ForeOrBoth = 3,
        BackOrBoth = 7,
    }

    /// `channel_dir_from_server4`.
    ChannelFromServer {
        Fore = 1,
        Back = 2,
        Both = 3,
    }

    /// `secinfo_style4`.
    SecInfoStyle {
        Current = 0,
        Parent = 1,
    }

    /// `setxattr_option4` (RFC 8276 8.4.2).
    SetXattrOption {
        Either = 0,
        Create = 1,
        Replace = 2,
    }
}

xdr_union! {
    /// `createhow4`.
    CreateHow<'a> {
        Unchecked = 0: Fattr<'a>,
        Guarded = 1: Fattr<'a>,
        Exclusive = 2: Verifier,
        ExclusiveWithAttrs = 3: CreateVerifierAttrs<'a>,
    }

    /// `openflag4`.
    OpenHow<'a> {
        NoCreate = 0: (),
        Create = 1: CreateHow<'a>,
    }

    /// `open_claim4`.
    OpenClaim<'a> {
        Null = 0: Component<'a>,
        Previous = 1: DelegationKind,
        DelegateCurrent = 2: ClaimDelegateCurrent<'a>,
        DelegatePrevious = 3: Component<'a>,
        Handle = 4: (),
        DelegateCurrentHandle = 5: StateId,
        DelegatePreviousHandle = 6: (),
    }

    /// `deleg_claim4`.
    DelegationClaim {
        Previous = 1: DelegationKind,
        Handle = 4: (),
        DelegatePreviousHandle = 6: (),
    }

    /// `locker4`.
    Locker<'a> {
        Existing = 0: ExistingLockOwner,
        New = 1: NewLockOwner<'a>,
    }

    /// `nfs_space_limit4`.
    SpaceLimit {
        Size = 1: u64,
        Blocks = 2: BlockLimit,
    }

    /// `open_delegation4`.
    OpenDelegation<'a> {
        None = 0: (),
        Read = 1: ReadDelegation<'a>,
        Write = 2: WriteDelegation<'a>,
        NoneExt = 3: WhyNoDelegation,
    }

    /// `state_protect4_a`.
    ProtectAsked<'a> {
        None = 0: (),
        MachineCred = 1: ProtectOps,
        Ssv = 2: SsvAsked<'a>,
    }

    /// `state_protect4_r`.
    ProtectGiven<'a> {
        None = 0: (),
        MachineCred = 1: ProtectOps,
        Ssv = 2: SsvGiven<'a>,
    }

    /// `layoutreturn4`.
    LayoutReturned<'a> {
        File = 1: LayoutReturnFile<'a>,
        FileSystem = 2: (),
        All = 3: (),
    }

    /// `GET_DIR_DELEGATION4res_non_fatal`.
    DirDelegation {
        Ok = 0: DirDelegationOk,
        Unavailable = 1: bool,
    }

    /// `read_plus_content` (RFC 7862 15.10).
    ReadContent<'a> {
        Data = 0: ContentData<'a>,
        Hole = 1: ContentHole,
    }
}

/// `createtype4`: what no server makes decodes too, for NFS4ERR_BADTYPE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateKind<'a> {
    Link(Component<'a>),
    Device(FileType4, DeviceNumber),
    Plain(FileType4),
    Other(u32),
}

impl<'a> Xdr<'a> for CreateKind<'a> {
    fn get(r: &mut Reader<'a>) -> Result<Self, Garbage> {
        let number = r.u32()?;
        Ok(match FileType4::from_number(number) {
            Some(FileType4::Link) => CreateKind::Link(Xdr::get(r)?),
            Some(kind @ (FileType4::Block | FileType4::Character)) => CreateKind::Device(kind, Xdr::get(r)?),
            Some(kind) => CreateKind::Plain(kind),
            None => CreateKind::Other(number),
        })
    }

    fn put(&self, out: &mut XdrOut) {
        match self {
            CreateKind::Link(target) => {
                FileType4::Link.put(out);
                target.put(out);
            }
            CreateKind::Device(kind, number) => {
                kind.put(out);
                number.put(out);
            }
            CreateKind::Plain(kind) => kind.put(out),
            CreateKind::Other(number) => out.writer().u32(*number),
        }
    }
}

/// `open_none_delegation4`: two reasons say whether the server will come back to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WhyNoDelegation {
    pub why: WhyNoDelegationKind,
    /// Of a contention: the server will push a delegation. Of a lack of resources: it will signal their return.
    pub comes_back: bool,
}

impl<'a> Xdr<'a> for WhyNoDelegation {
    fn get(r: &mut Reader<'a>) -> Result<Self, Garbage> {
        let why = WhyNoDelegationKind::get(r)?;
        Ok(Self { why, comes_back: if why.says_more() { r.bool()? } else { false } })
    }

    fn put(&self, out: &mut XdrOut) {
        self.why.put(out);
        if self.why.says_more() {
            out.writer().bool(self.comes_back);
        }
    }
}

impl WhyNoDelegationKind {
    fn says_more(self) -> bool {
        matches!(self, WhyNoDelegationKind::Contention | WhyNoDelegationKind::Resource)
    }
}

xdr_struct! {
    AccessArgs { access: u32, }
    AccessOk { supported: u32, access: u32, }
    CloneArgs { source: StateId, target: StateId, source_offset: u64, target_offset: u64, count: u64, }
    CloseArgs { seqid: u32, stateid: StateId, }
    CommitArgs { offset: u64, count: u32, }
    CreateArgs<'a> { kind: CreateKind<'a>, name: Component<'a>, attrs: Fattr<'a>, }
    CreateOk { change: ChangeInfo, set: Bitmap, }
    NewLockOwner<'a> { open_seqid: u32, open_stateid: StateId, lock_seqid: u32, owner: StateOwner<'a>, }
    ExistingLockOwner { stateid: StateId, seqid: u32, }
    LockArgs<'a> { kind: LockKind, reclaim: bool, offset: u64, length: u64, locker: Locker<'a>, }
    LockDenied<'a> { offset: u64, length: u64, kind: LockKind, owner: StateOwner<'a>, }
    LockTestArgs<'a> { kind: LockKind, offset: u64, length: u64, owner: StateOwner<'a>, }
    UnlockArgs { kind: LockKind, seqid: u32, stateid: StateId, offset: u64, length: u64, }
    CreateVerifierAttrs<'a> { verifier: Verifier, attrs: Fattr<'a>, }
    ClaimDelegateCurrent<'a> { stateid: StateId, name: Component<'a>, }
    OpenArgs<'a> {
        seqid: u32,
        access: u32,
        deny: u32,
        owner: StateOwner<'a>,
        how: OpenHow<'a>,
        claim: OpenClaim<'a>,
    }
    BlockLimit { blocks: u32, block_bytes: u32, }
    ReadDelegation<'a> { stateid: StateId, recall: bool, permissions: Ace4<'a>, }
    WriteDelegation<'a> { stateid: StateId, recall: bool, limit: SpaceLimit, permissions: Ace4<'a>, }
    OpenOk<'a> { stateid: StateId, change: ChangeInfo, flags: u32, set: Bitmap, delegation: OpenDelegation<'a>, }
    OpenConfirmArgs { stateid: StateId, seqid: u32, }
    OpenDowngradeArgs { stateid: StateId, seqid: u32, access: u32, deny: u32, }
    /// READ, READ_PLUS.
    ReadArgs { stateid: StateId, offset: u64, count: u32, }
    ReadOk<'a> { eof: bool, data: FileData<'a>, }
    ReadDirArgs { cookie: u64, verifier: Verifier, entry_bytes: u32, bytes_max: u32, wanted: Bitmap, }
    DirEntry4<'a> { cookie: u64, name: Component<'a>, attrs: Fattr<'a>, }
    ReadDirOk<'a> { verifier: Verifier, entries: XdrChain<'a, DirEntry4<'a>>, eof: bool, }
    RenameArgs<'a> { from: Component<'a>, to: Component<'a>, }
    RenameOk { source: ChangeInfo, target: ChangeInfo, }
    SetAttrArgs<'a> { stateid: StateId, attrs: Fattr<'a>, }
    SetAttrResult { status: NfsStat, set: Bitmap, }
    SetClientIdArgs<'a> { client: ClientOwner<'a>, callback: CallbackTarget<'a>, callback_ident: u32, }
    /// The result of SETCLIENTID, and the arguments of SETCLIENTID_CONFIRM.
    ClientIdVerifier { client: ClientId, confirm: Verifier, }
    WriteArgs<'a> { stateid: StateId, offset: u64, stable: StableHow, data: FileData<'a>, }
    WriteOk { count: u32, committed: StableHow, verifier: Verifier, }
    BackchannelCtlArgs<'a> { program: u32, security: XdrList<'a, CallbackSec<'a>, GSS_MAX>, }
    BindConnArgs { session: SessionId, direction: ChannelFromClient, rdma: bool, }
    BindConnOk { session: SessionId, direction: ChannelFromServer, rdma: bool, }
    ProtectOps { must_enforce: Bitmap, must_allow: Bitmap, }
    SsvAsked<'a> {
        ops: ProtectOps,
        hashes: XdrList<'a, Opaque<'a, OID_BYTES_MAX>, GSS_MAX>,
        ciphers: XdrList<'a, Opaque<'a, OID_BYTES_MAX>, GSS_MAX>,
        window: u32,
        handles: u32,
    }
    SsvGiven<'a> {
        ops: ProtectOps,
        hash: u32,
        cipher: u32,
        ssv_bytes: u32,
        window: u32,
        handles: XdrList<'a, Text<'a>, GSS_MAX>,
    }
    ExchangeIdArgs<'a> {
        owner: ClientOwner<'a>,
        flags: u32,
        protect: ProtectAsked<'a>,
        implementation: Option<ImplementationId<'a>>,
    }
    ExchangeIdOk<'a> {
        client: ClientId,
        sequence: u32,
        flags: u32,
        protect: ProtectGiven<'a>,
        server: ServerOwner<'a>,
        scope: Text<'a>,
        implementation: Option<ImplementationId<'a>>,
    }
    /// `channel_attrs4`.
    ChannelAttrs {
        header_pad: u32,
        request_bytes: u32,
        reply_bytes: u32,
        cached_reply_bytes: u32,
        operations: u32,
        requests: u32,
        rdma_ird: Option<u32>,
    }
    CreateSessionArgs<'a> {
        client: ClientId,
        sequence: u32,
        flags: u32,
        fore: ChannelAttrs,
        back: ChannelAttrs,
        callback_program: u32,
        security: XdrList<'a, CallbackSec<'a>, GSS_MAX>,
    }
    CreateSessionOk { session: SessionId, sequence: u32, flags: u32, fore: ChannelAttrs, back: ChannelAttrs, }
    GetDirDelegationArgs {
        signal: bool,
        notifications: Bitmap,
        child_delay: Time4,
        dir_delay: Time4,
        child_attrs: Bitmap,
        dir_attrs: Bitmap,
    }
    DirDelegationOk {
        verifier: Verifier,
        stateid: StateId,
        notifications: Bitmap,
        child_attrs: Bitmap,
        dir_attrs: Bitmap,
    }
    GetDeviceInfoArgs { device: DeviceId, layout_kind: u32, bytes_max: u32, notifications: Bitmap, }
    GetDeviceInfoOk<'a> { address: LayoutBody<'a>, notifications: Bitmap, }
    GetDeviceListArgs { layout_kind: u32, devices_max: u32, cookie: u64, verifier: Verifier, }
    GetDeviceListOk<'a> {
        cookie: u64,
        verifier: Verifier,
        devices: XdrList<'a, DeviceId, ENTRIES_MAX>,
        eof: bool,
    }
    LayoutCommitArgs<'a> {
        offset: u64,
        length: u64,
        reclaim: bool,
        stateid: StateId,
        last_write: Option<u64>,
        time_modify: Option<Time4>,
        update: LayoutBody<'a>,
    }
    LayoutGetArgs {
        signal: bool,
        layout_kind: u32,
        mode: LayoutIoMode,
        offset: u64,
        length: u64,
        length_min: u64,
        stateid: StateId,
        bytes_max: u32,
    }
    /// `layout4`.
    Layout4<'a> { offset: u64, length: u64, mode: LayoutIoMode, content: LayoutBody<'a>, }
    LayoutGetOk<'a> { return_on_close: bool, stateid: StateId, layouts: XdrList<'a, Layout4<'a>, ENTRIES_MAX>, }
    LayoutReturnFile<'a> { offset: u64, length: u64, stateid: StateId, body: Foreign<'a>, }
    LayoutReturnArgs<'a> { reclaim: bool, layout_kind: u32, mode: LayoutIoMode, returned: LayoutReturned<'a>, }
    SequenceArgs { session: SessionId, sequence: u32, slot: u32, highest_slot: u32, cache_this: bool, }
    SequenceOk {
        session: SessionId,
        sequence: u32,
        slot: u32,
        highest_slot: u32,
        target_highest_slot: u32,
        status_flags: u32,
    }
    SetSsvArgs<'a> { ssv: Text<'a>, digest: Text<'a>, }
    WantDelegationArgs { want: u32, claim: DelegationClaim, }
    /// ALLOCATE, DEALLOCATE.
    AllocateArgs { stateid: StateId, offset: u64, length: u64, }
    CopyArgs<'a> {
        source: StateId,
        target: StateId,
        source_offset: u64,
        target_offset: u64,
        count: u64,
        consecutive: bool,
        synchronous: bool,
        servers: XdrList<'a, NetLoc<'a>, ENTRIES_MAX>,
    }
    CopyRequirements { consecutive: bool, synchronous: bool, }
    CopyOk { response: WriteResponse, requirements: CopyRequirements, }
    CopyNotifyArgs<'a> { source: StateId, target_server: NetLoc<'a>, }
    CopyNotifyOk<'a> { lease: Time4, stateid: StateId, servers: XdrList<'a, NetLoc<'a>, ENTRIES_MAX>, }
    OffloadStatusOk { count: u64, complete: Option<NfsStat>, }
    IoAdviseArgs { stateid: StateId, offset: u64, count: u64, hints: Bitmap, }
    DeviceError { device: DeviceId, status: NfsStat, operation: u32, }
    LayoutErrorArgs<'a> { offset: u64, length: u64, stateid: StateId, errors: XdrList<'a, DeviceError, LIST_MAX>, }
    IoInfo { count: u64, bytes: u64, }
    LayoutStatsArgs<'a> {
        offset: u64,
        length: u64,
        stateid: StateId,
        read: IoInfo,
        write: IoInfo,
        device: DeviceId,
        update: LayoutBody<'a>,
    }
    ContentData<'a> { offset: u64, data: FileData<'a>, }
    ContentHole { offset: u64, length: u64, }
    ReadPlusOk<'a> { eof: bool, contents: XdrList<'a, ReadContent<'a>, CONTENTS_MAX>, }
    /// `what` is a number: one that is no [`super::types::ContentKind`] has a status of its own.
    SeekArgs { stateid: StateId, offset: u64, what: u32, }
    SeekOk { eof: bool, offset: u64, }
    WriteSameArgs<'a> { stateid: StateId, stable: StableHow, block: AppDataBlock<'a>, }
    SetXattrArgs<'a> { option: SetXattrOption, name: Component<'a>, value: Opaque<'a, XATTR_BYTES_MAX>, }
    ListXattrsArgs { cookie: u64, bytes_max: u32, }
    ListXattrsOk<'a> { cookie: u64, names: XdrList<'a, Component<'a>, LIST_MAX>, eof: bool, }
}

/// A longer value decodes to nothing that could be answered with NFS4ERR_XATTR2BIG, so the bound is far above any volume's.
pub const XATTR_BYTES_MAX: usize = 1 << 20;

const DENIED: u32 = NfsStat::Denied as u32;
const CLID_IN_USE: u32 = NfsStat::ClidInUse as u32;
const TOO_SMALL: u32 = NfsStat::TooSmall as u32;
const TRY_LATER: u32 = NfsStat::LayoutTryLater as u32;
const NO_REQS: u32 = NfsStat::OffloadNoReqs as u32;

/// Whether a minor version has what came with `since`.
pub fn knows(minor: u32, since: u32) -> bool {
    minor >= since
}

impl Outcome for SetAttrResult {
    fn status(&self) -> NfsStat {
        self.status
    }

    fn failed(status: NfsStat) -> Self {
        Self { status, set: Bitmap::EMPTY }
    }
}

/// Defines the numbers of operations, their arguments and their results. `since` is the first minor version that knows the
/// operation.
macro_rules! operations {
    ($numbers:ident $args:ident $results:ident (
        $($name:ident = $number:literal since $since:literal: $arg:ty => $result:ty;)*
    )) => {
        /// The number of an operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum $numbers {
            $($name = $number,)*
            Illegal = 10044,
        }

        #[allow(dead_code, reason = "call-backs have numbers for tests alone")]
        impl $numbers {
            pub const ALL: &'static [$numbers] = &[$($numbers::$name,)*];

            pub fn name(self) -> &'static str {
                match self {
                    $($numbers::$name => stringify!($name),)*
                    $numbers::Illegal => "Illegal",
                }
            }

            /// `None` where the minor version has no such operation: it is answered as illegal.
            pub fn from_number(number: u32, minor: u32) -> Option<Self> {
                match number {
                    $($number if $crate::v4::ops::knows(minor, $since) => Some($numbers::$name),)*
                    _ => None,
                }
            }

            pub fn number(self) -> u32 {
                self as u32
            }
        }

        /// An operation with its arguments.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $args<'a> {
            $($name($arg),)*
        }

        impl<'a> $args<'a> {
            pub fn number(&self) -> $numbers {
                match self {
                    $($args::$name(_) => $numbers::$name,)*
                }
            }

            /// The arguments behind the operation's number.
            pub fn get_arguments(number: $numbers, r: &mut Reader<'a>) -> Result<Self, Garbage> {
                match number {
                    $($numbers::$name => Xdr::get(r).map($args::$name),)*
                    $numbers::Illegal => Err(Garbage),
                }
            }
        }

        impl<'a> Xdr<'a> for $args<'a> {
            /// Of any minor version.
            fn get(r: &mut Reader<'a>) -> Result<Self, Garbage> {
                let number = $numbers::from_number(r.u32()?, u32::MAX).ok_or(Garbage)?;
                Self::get_arguments(number, r)
            }

            fn put(&self, out: &mut XdrOut) {
                out.writer().u32(self.number().number());
                match self {
                    $($args::$name(args) => args.put(out),)*
                }
            }
        }

        #[cfg(test)]
        impl<'a> $args<'a> {
            /// One of each.
            pub fn samples(chance: &mut $crate::v4::sample::Sampler) -> Vec<Self> {
                vec![$($args::$name($crate::v4::sample::Sample::sample(chance)),)*]
            }
        }

        #[cfg(test)]
        impl<'a> $results<'a> {
            /// One of each.
            pub fn samples(chance: &mut $crate::v4::sample::Sampler) -> Vec<Self> {
                vec![$results::Illegal, $($results::$name($crate::v4::sample::Sample::sample(chance)),)*]
            }
        }

        /// An operation's result.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $results<'a> {
            $($name($result),)*
            /// An operation that there is not.
            Illegal,
        }

        #[allow(dead_code, reason = "the server makes no results of call-backs")]
        impl<'a> $results<'a> {
            pub fn number(&self) -> $numbers {
                match self {
                    $($results::$name(_) => $numbers::$name,)*
                    $results::Illegal => $numbers::Illegal,
                }
            }

            pub fn status(&self) -> NfsStat {
                match self {
                    $($results::$name(result) => result.status(),)*
                    $results::Illegal => NfsStat::OpIllegal,
                }
            }

            /// The result of an operation that failed so.
            pub fn failed(number: $numbers, status: NfsStat) -> Self {
                match number {
                    $($numbers::$name => $results::$name(Outcome::failed(status)),)*
                    $numbers::Illegal => $results::Illegal,
                }
            }
        }

        impl<'a> Xdr<'a> for $results<'a> {
            fn get(r: &mut Reader<'a>) -> Result<Self, Garbage> {
                match r.u32()? {
                    $($number => Xdr::get(r).map($results::$name),)*
                    10044 if NfsStat::get(r)? == NfsStat::OpIllegal => Ok($results::Illegal),
                    _ => Err(Garbage),
                }
            }

            fn put(&self, out: &mut XdrOut) {
                out.writer().u32(self.number().number());
                match self {
                    $($results::$name(result) => result.put(out),)*
                    $results::Illegal => NfsStat::OpIllegal.put(out),
                }
            }
        }
    };
}

pub(super) use operations;

operations! {
    OpNumber ArgOp ResOp (
        Access = 3 since 0: AccessArgs => OpResult<AccessOk>;
        Close = 4 since 0: CloseArgs => OpResult<StateId>;
        Commit = 5 since 0: CommitArgs => OpResult<Verifier>;
        Create = 6 since 0: CreateArgs<'a> => OpResult<CreateOk>;
        DelegPurge = 7 since 0: ClientId => OpResult<()>;
        DelegReturn = 8 since 0: StateId => OpResult<()>;
        GetAttr = 9 since 0: Bitmap => OpResult<Fattr<'a>>;
        GetFh = 10 since 0: () => OpResult<Handle4<'a>>;
        Link = 11 since 0: Component<'a> => OpResult<ChangeInfo>;
        Lock = 12 since 0: LockArgs<'a> => DetailedResult<StateId, LockDenied<'a>, DENIED>;
        LockTest = 13 since 0: LockTestArgs<'a> => DetailedResult<(), LockDenied<'a>, DENIED>;
        Unlock = 14 since 0: UnlockArgs => OpResult<StateId>;
        Lookup = 15 since 0: Component<'a> => OpResult<()>;
        LookupParent = 16 since 0: () => OpResult<()>;
        NVerify = 17 since 0: Fattr<'a> => OpResult<()>;
        Open = 18 since 0: OpenArgs<'a> => OpResult<OpenOk<'a>>;
        OpenAttr = 19 since 0: bool => OpResult<()>;
        OpenConfirm = 20 since 0: OpenConfirmArgs => OpResult<StateId>;
        OpenDowngrade = 21 since 0: OpenDowngradeArgs => OpResult<StateId>;
        PutFh = 22 since 0: Handle4<'a> => OpResult<()>;
        PutPubFh = 23 since 0: () => OpResult<()>;
        PutRootFh = 24 since 0: () => OpResult<()>;
        Read = 25 since 0: ReadArgs => OpResult<ReadOk<'a>>;
        ReadDir = 26 since 0: ReadDirArgs => OpResult<ReadDirOk<'a>>;
        ReadLink = 27 since 0: () => OpResult<Foreign<'a>>;
        Remove = 28 since 0: Component<'a> => OpResult<ChangeInfo>;
        Rename = 29 since 0: RenameArgs<'a> => OpResult<RenameOk>;
        Renew = 30 since 0: ClientId => OpResult<()>;
        RestoreFh = 31 since 0: () => OpResult<()>;
        SaveFh = 32 since 0: () => OpResult<()>;
        SecInfo = 33 since 0: Component<'a> => OpResult<XdrList<'a, SecInfo<'a>, ENTRIES_MAX>>;
        SetAttr = 34 since 0: SetAttrArgs<'a> => SetAttrResult;
        SetClientId = 35 since 0: SetClientIdArgs<'a> => DetailedResult<ClientIdVerifier, NetAddr<'a>, CLID_IN_USE>;
        SetClientIdConfirm = 36 since 0: ClientIdVerifier => OpResult<()>;
        Verify = 37 since 0: Fattr<'a> => OpResult<()>;
        Write = 38 since 0: WriteArgs<'a> => OpResult<WriteOk>;
        ReleaseLockOwner = 39 since 0: StateOwner<'a> => OpResult<()>;
        BackchannelCtl = 40 since 1: BackchannelCtlArgs<'a> => OpResult<()>;
        BindConnToSession = 41 since 1: BindConnArgs => OpResult<BindConnOk>;
        ExchangeId = 42 since 1: ExchangeIdArgs<'a> => OpResult<ExchangeIdOk<'a>>;
        CreateSession = 43 since 1: CreateSessionArgs<'a> => OpResult<CreateSessionOk>;
        DestroySession = 44 since 1: SessionId => OpResult<()>;
        FreeStateId = 45 since 1: StateId => OpResult<()>;
        GetDirDelegation = 46 since 1: GetDirDelegationArgs => OpResult<DirDelegation>;
        GetDeviceInfo = 47 since 1: GetDeviceInfoArgs => DetailedResult<GetDeviceInfoOk<'a>, u32, TOO_SMALL>;
        GetDeviceList = 48 since 1: GetDeviceListArgs => OpResult<GetDeviceListOk<'a>>;
        LayoutCommit = 49 since 1: LayoutCommitArgs<'a> => OpResult<Option<u64>>;
        LayoutGet = 50 since 1: LayoutGetArgs => DetailedResult<LayoutGetOk<'a>, bool, TRY_LATER>;
        LayoutReturn = 51 since 1: LayoutReturnArgs<'a> => OpResult<Option<StateId>>;
        SecInfoNoName = 52 since 1: SecInfoStyle => OpResult<XdrList<'a, SecInfo<'a>, ENTRIES_MAX>>;
        Sequence = 53 since 1: SequenceArgs => OpResult<SequenceOk>;
        SetSsv = 54 since 1: SetSsvArgs<'a> => OpResult<Text<'a>>;
        TestStateId = 55 since 1: XdrList<'a, StateId, LIST_MAX> => OpResult<XdrList<'a, NfsStat, LIST_MAX>>;
        WantDelegation = 56 since 1: WantDelegationArgs => OpResult<OpenDelegation<'a>>;
        DestroyClientId = 57 since 1: ClientId => OpResult<()>;
        ReclaimComplete = 58 since 1: bool => OpResult<()>;
        Allocate = 59 since 2: AllocateArgs => OpResult<()>;
        Copy = 60 since 2: CopyArgs<'a> => DetailedResult<CopyOk, CopyRequirements, NO_REQS>;
        CopyNotify = 61 since 2: CopyNotifyArgs<'a> => OpResult<CopyNotifyOk<'a>>;
        Deallocate = 62 since 2: AllocateArgs => OpResult<()>;
        IoAdvise = 63 since 2: IoAdviseArgs => OpResult<Bitmap>;
        LayoutError = 64 since 2: LayoutErrorArgs<'a> => OpResult<()>;
        LayoutStats = 65 since 2: LayoutStatsArgs<'a> => OpResult<()>;
        OffloadCancel = 66 since 2: StateId => OpResult<()>;
        OffloadStatus = 67 since 2: StateId => OpResult<OffloadStatusOk>;
        ReadPlus = 68 since 2: ReadArgs => OpResult<ReadPlusOk<'a>>;
        Seek = 69 since 2: SeekArgs => OpResult<SeekOk>;
        WriteSame = 70 since 2: WriteSameArgs<'a> => OpResult<WriteResponse>;
        Clone = 71 since 2: CloneArgs => OpResult<()>;
        GetXattr = 72 since 2: Component<'a> => OpResult<Opaque<'a, XATTR_BYTES_MAX>>;
        SetXattr = 73 since 2: SetXattrArgs<'a> => OpResult<ChangeInfo>;
        ListXattrs = 74 since 2: ListXattrsArgs => OpResult<ListXattrsOk<'a>>;
        RemoveXattr = 75 since 2: Component<'a> => OpResult<ChangeInfo>;
    )
}

const _: () = assert!(XATTR_BYTES_MAX > FOREIGN_BYTES_MAX, "a volume's longest value fits");
