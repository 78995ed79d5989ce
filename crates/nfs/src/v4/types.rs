//! Types that occur in many operations: RFC 7530 2.2, RFC 8881 3.2 and 3.3, RFC 7862 3. The numbers are those of the XDR
//! descriptions RFC 7531, RFC 5662, RFC 7863 and RFC 8276 6.

use super::super::xdr::{Garbage, Reader};
use super::bitmap::Bitmap;
use super::wire::{Opaque, Xdr, XdrList, XdrOut, xdr_enum, xdr_struct, xdr_union};

/// NFS4_FHSIZE.
pub const FILE_HANDLE_BYTES_MAX: usize = 128;
/// NFS4_OPAQUE_LIMIT: owners, scopes, tags.
pub const OPAQUE_BYTES_MAX: usize = 1024;
/// Entries of an access list. A list of file systems' servers or components of a path has the same bound.
pub const ENTRIES_MAX: usize = 2048;
/// Bodies of layouts, labels and tokens of GSS: none of them is used here, each has to be stepped over.
pub const FOREIGN_BYTES_MAX: usize = 64 << 10;
/// An object identifier in DER.
const OID_BYTES_MAX: usize = 128;
/// RFC 5531 Appendix A.
const MACHINE_NAME_BYTES_MAX: usize = 255;
const GIDS_MAX: usize = 16;

pub type Verifier = [u8; 8];
pub type SessionId = [u8; 16];
pub type DeviceId = [u8; 16];
pub type Handle4<'a> = Opaque<'a, FILE_HANDLE_BYTES_MAX>;
pub type Text<'a> = Opaque<'a, OPAQUE_BYTES_MAX>;
/// A name, or the target of a link. Whatever its message holds decodes, so that one too long is NFS4ERR_NAMETOOLONG.
pub type Component<'a> = Opaque<'a, { usize::MAX }>;
pub type Foreign<'a> = Opaque<'a, FOREIGN_BYTES_MAX>;
pub type PathName<'a> = XdrList<'a, Component<'a>, ENTRIES_MAX>;
pub type Acl4<'a> = XdrList<'a, Ace4<'a>, ENTRIES_MAX>;

/// `clientid4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u64);

impl ClientId {
    /// A client of NFSv4.1 and later (`clients.ids_name_their_family`).
    pub fn has_sessions(self) -> bool {
        self.0 & 1 == 1
    }
}

impl<'a> Xdr<'a> for ClientId {
    fn get(r: &mut Reader<'a>) -> Result<Self, Garbage> {
        r.u64().map(Self)
    }

    fn put(&self, out: &mut XdrOut) {
        out.writer().u64(self.0);
    }
}

xdr_enum! {
    /// `nfsstat4`.
    NfsStat {
        Ok = 0,
        Perm = 1,
        NoEnt = 2,
        Io = 5,
        NxIo = 6,
        Access = 13,
        Exist = 17,
        XDev = 18,
        NotDir = 20,
        IsDir = 21,
        Inval = 22,
        FBig = 27,
        NoSpc = 28,
        RoFs = 30,
        MLink = 31,
        NameTooLong = 63,
        NotEmpty = 66,
        DQuot = 69,
        Stale = 70,
        BadHandle = 10001,
        BadCookie = 10003,
        NotSupp = 10004,
        TooSmall = 10005,
        ServerFault = 10006,
        BadType = 10007,
        Delay = 10008,
        Same = 10009,
        Denied = 10010,
        Expired = 10011,
        Locked = 10012,
        Grace = 10013,
        FhExpired = 10014,
        ShareDenied = 10015,
        WrongSec = 10016,
        ClidInUse = 10017,
        Resource = 10018,
        Moved = 10019,
        NoFileHandle = 10020,
        MinorVersMismatch = 10021,
        StaleClientId = 10022,
        StaleStateId = 10023,
        OldStateId = 10024,
        BadStateId = 10025,
        BadSeqId = 10026,
        NotSame = 10027,
        LockRange = 10028,
        Symlink = 10029,
        RestoreFh = 10030,
        LeaseMoved = 10031,
        AttrNotSupp = 10032,
        NoGrace = 10033,
        ReclaimBad = 10034,
        ReclaimConflict = 10035,
        BadXdr = 10036,
        LocksHeld = 10037,
        OpenMode = 10038,
        BadOwner = 10039,
        BadChar = 10040,
        BadName = 10041,
        BadRange = 10042,
        LockNotSupp = 10043,
        OpIllegal = 10044,
        Deadlock = 10045,
        FileOpen = 10046,
        AdminRevoked = 10047,
        CbPathDown = 10048,
        BadIoMode = 10049,
        BadLayout = 10050,
        BadSessionDigest = 10051,
        BadSession = 10052,
        BadSlot = 10053,
        CompleteAlready = 10054,
        ConnNotBoundToSession = 10055,
        DelegAlreadyWanted = 10056,
        BackChanBusy = 10057,
        LayoutTryLater = 10058,
        LayoutUnavailable = 10059,
        NoMatchingLayout = 10060,
        RecallConflict = 10061,
        UnknownLayoutType = 10062,
        SeqMisordered = 10063,
        SequencePos = 10064,
        ReqTooBig = 10065,
        RepTooBig = 10066,
        RepTooBigToCache = 10067,
        RetryUncachedRep = 10068,
        UnsafeCompound = 10069,
        TooManyOps = 10070,
        OpNotInSession = 10071,
        HashAlgUnsupp = 10072,
        ClientIdBusy = 10074,
        PnfsIoHole = 10075,
        SeqFalseRetry = 10076,
        BadHighSlot = 10077,
        DeadSession = 10078,
        EncrAlgUnsupp = 10079,
        PnfsNoLayout = 10080,
        NotOnlyOp = 10081,
        WrongCred = 10082,
        WrongType = 10083,
        DirDelegUnavail = 10084,
        RejectDeleg = 10085,
        ReturnConflict = 10086,
        DelegRevoked = 10087,
        PartnerNotSupp = 10088,
        PartnerNoAuth = 10089,
        UnionNotSupp = 10090,
        OffloadDenied = 10091,
        WrongLfs = 10092,
        BadLabel = 10093,
        OffloadNoReqs = 10094,
        NoXattr = 10095,
        XattrTooBig = 10096,
    }

    /// `nfs_ftype4`.
    FileType4 {
        Regular = 1,
        Directory = 2,
        Block = 3,
        Character = 4,
        Link = 5,
        Socket = 6,
        Fifo = 7,
        AttributeDirectory = 8,
        NamedAttribute = 9,
    }

    /// `stable_how4`.
    StableHow {
        Unstable = 0,
        DataSync = 1,
        FileSync = 2,
    }

    /// `layoutiomode4`.
    LayoutIoMode {
        Read = 1,
        ReadWrite = 2,
        Any = 3,
    }

    /// `fs4_status_type`.
    FsStatusKind {
        Fixed = 1,
        Updated = 2,
        Versioned = 3,
        Writable = 4,
        Referral = 5,
    }

    /// `change_attr_type4` (RFC 7862 12.2.3).
    ChangeAttrKind {
        MonotonicIncrease = 0,
        VersionCounter = 1,
        VersionCounterNoPnfs = 2,
        TimeMetadata = 3,
        Undefined = 4,
    }

    /// `nfs_lock_type4`.
    LockKind {
        Read = 1,
        Write = 2,
        ReadWait = 3,
        WriteWait = 4,
    }

    /// `data_content4` (RFC 7862 6.1.2).
    ContentKind {
        Data = 0,
        Hole = 1,
    }

    /// `rpc_gss_svc_t` (RFC 2203).
    GssService {
        None = 1,
        Integrity = 2,
        Privacy = 3,
    }
}

impl LockKind {
    pub fn is_exclusive(self) -> bool {
        matches!(self, LockKind::Write | LockKind::WriteWait)
    }

    pub fn waits(self) -> bool {
        matches!(self, LockKind::ReadWait | LockKind::WriteWait)
    }
}

xdr_struct! {
    /// `stateid4`.
    #[derive(Hash)]
    StateId {
        seqid: u32,
        other: [u8; 12],
    }

    /// `nfstime4`.
    Time4 {
        seconds: i64,
        nanoseconds: u32,
    }

    /// `fsid4`.
    FsId4 {
        major: u64,
        minor: u64,
    }

    /// `change_policy4`.
    ChangePolicy {
        major: u64,
        minor: u64,
    }

    /// `specdata4`.
    DeviceNumber {
        major: u32,
        minor: u32,
    }

    /// `nfsace4`.
    Ace4<'a> {
        kind: u32,
        flag: u32,
        access_mask: u32,
        who: Text<'a>,
    }

    /// `nfsacl41`.
    Acl41<'a> {
        flag: u32,
        aces: Acl4<'a>,
    }

    /// `mode_masked4`.
    ModeMasked {
        value: u32,
        mask: u32,
    }

    /// `fattr4`: the values are decoded by [`super::attrs`].
    Fattr<'a> {
        mask: Bitmap,
        values: Foreign<'a>,
    }

    /// `change_info4`.
    ChangeInfo {
        atomic: bool,
        before: u64,
        after: u64,
    }

    /// `netaddr4`, `clientaddr4`.
    NetAddr<'a> {
        netid: Text<'a>,
        address: Text<'a>,
    }

    /// `nfs_client_id4`, `client_owner4`.
    ClientOwner<'a> {
        verifier: Verifier,
        id: Text<'a>,
    }

    /// `cb_client4`.
    CallbackTarget<'a> {
        program: u32,
        location: NetAddr<'a>,
    }

    /// `state_owner4`: of opens and of locks.
    StateOwner<'a> {
        client: ClientId,
        owner: Text<'a>,
    }

    /// `nfs_impl_id4`.
    ImplementationId<'a> {
        domain: Text<'a>,
        name: Text<'a>,
        date: Time4,
    }

    /// `server_owner4`.
    ServerOwner<'a> {
        minor_id: u64,
        major_id: Text<'a>,
    }

    /// `fs_location4`.
    FsLocation<'a> {
        servers: XdrList<'a, Text<'a>, ENTRIES_MAX>,
        root: PathName<'a>,
    }

    /// `fs_locations4`.
    FsLocations<'a> {
        root: PathName<'a>,
        locations: XdrList<'a, FsLocation<'a>, ENTRIES_MAX>,
    }

    /// `fs_locations_server4`.
    FsLocationServer<'a> {
        currency: i32,
        info: Text<'a>,
        server: Text<'a>,
    }

    /// `fs_locations_item4`.
    FsLocationItem<'a> {
        entries: XdrList<'a, FsLocationServer<'a>, ENTRIES_MAX>,
        root: PathName<'a>,
    }

    /// `fs_locations_info4`.
    FsLocationsInfo<'a> {
        flags: u32,
        valid_for: i32,
        root: PathName<'a>,
        items: XdrList<'a, FsLocationItem<'a>, ENTRIES_MAX>,
    }

    /// `fs4_status`.
    FsStatus4<'a> {
        absent: bool,
        kind: FsStatusKind,
        source: Text<'a>,
        current: Text<'a>,
        age: i32,
        version: Time4,
    }

    /// `layouthint4`, `layoutupdate4`, `layout_content4`, `device_addr4`: a layout's type, and a body that only it knows.
    LayoutBody<'a> {
        kind: u32,
        body: Foreign<'a>,
    }

    /// `threshold_item4`.
    ThresholdItem<'a> {
        layout_kind: u32,
        hints: Bitmap,
        values: Text<'a>,
    }

    /// `retention_get4`.
    RetentionGet {
        duration: u64,
        begin: Option<Time4>,
    }

    /// `retention_set4`.
    RetentionSet {
        enable: bool,
        duration: Option<u64>,
    }

    /// `sec_label4` (RFC 7862 12.2.4).
    SecLabel<'a> {
        format: u32,
        policy: u32,
        data: Foreign<'a>,
    }

    /// `app_data_block4` (RFC 7862 8.1).
    AppDataBlock<'a> {
        offset: u64,
        block_bytes: u64,
        blocks: u64,
        block_number_offset: u64,
        block_number: u32,
        pattern_offset: u64,
        pattern: Foreign<'a>,
    }

    /// `write_response4` (RFC 7862 3.3).
    WriteResponse {
        callback: Option<StateId>,
        count: u64,
        committed: StableHow,
        verifier: Verifier,
    }

    /// `rpcsec_gss_info`.
    GssInfo<'a> {
        oid: Opaque<'a, OID_BYTES_MAX>,
        qop: u32,
        service: GssService,
    }

    /// `gss_cb_handles4`.
    GssHandles<'a> {
        service: GssService,
        from_server: Text<'a>,
        from_client: Text<'a>,
    }

    /// `authsys_parms` (RFC 5531 Appendix A).
    AuthSysParms<'a> {
        stamp: u32,
        machine: Opaque<'a, MACHINE_NAME_BYTES_MAX>,
        uid: u32,
        gid: u32,
        gids: XdrList<'a, u32, GIDS_MAX>,
    }
}

xdr_union! {
    /// `settime4`.
    SetTime4 {
        Server = 0: (),
        Client = 1: Time4,
    }

    /// `netloc4` (RFC 7862 3.1).
    NetLoc<'a> {
        Name = 1: Text<'a>,
        Url = 2: Text<'a>,
        Address = 3: NetAddr<'a>,
    }

    /// `callback_sec_parms4`: RPC's flavours are AUTH_NONE, AUTH_SYS and RPCSEC_GSS.
    CallbackSec<'a> {
        None = 0: (),
        Sys = 1: AuthSysParms<'a>,
        Gss = 6: GssHandles<'a>,
    }
}

/// `secinfo4`: a flavour, with more about it where it is RPCSEC_GSS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecInfo<'a> {
    Flavor(u32),
    Gss(GssInfo<'a>),
}

const RPCSEC_GSS: u32 = 6;

impl<'a> Xdr<'a> for SecInfo<'a> {
    fn get(r: &mut Reader<'a>) -> Result<Self, Garbage> {
        match r.u32()? {
            RPCSEC_GSS => GssInfo::get(r).map(SecInfo::Gss),
            flavor => Ok(SecInfo::Flavor(flavor)),
        }
    }

    fn put(&self, out: &mut XdrOut) {
        match self {
            SecInfo::Flavor(flavor) => out.writer().u32(*flavor),
            SecInfo::Gss(info) => {
                out.writer().u32(RPCSEC_GSS);
                info.put(out);
            }
        }
    }
}

/// The result of an operation: a value, or why there is none.
pub type OpResult<T> = Result<T, NfsStat>;

impl<'a, T: Xdr<'a>> Xdr<'a> for OpResult<T> {
    fn get(r: &mut Reader<'a>) -> Result<Self, Garbage> {
        match NfsStat::get(r)? {
            NfsStat::Ok => T::get(r).map(Ok),
            status => Ok(Err(status)),
        }
    }

    fn put(&self, out: &mut XdrOut) {
        match self {
            Ok(value) => {
                NfsStat::Ok.put(out);
                value.put(out);
            }
            Err(status) => status.put(out),
        }
    }
}

/// What every result says.
pub trait Outcome {
    fn status(&self) -> NfsStat;
    fn failed(status: NfsStat) -> Self;
}

impl<T> Outcome for OpResult<T> {
    fn status(&self) -> NfsStat {
        self.as_ref().err().copied().unwrap_or(NfsStat::Ok)
    }

    fn failed(status: NfsStat) -> Self {
        debug_assert!(status != NfsStat::Ok, "no failure");
        Err(status)
    }
}

/// The result of an operation of which one failure, the number `STATUS`, says more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetailedResult<T, D, const STATUS: u32> {
    Ok(T),
    Detailed(D),
    Err(NfsStat),
}

impl<T, D, const STATUS: u32> Outcome for DetailedResult<T, D, STATUS> {
    fn status(&self) -> NfsStat {
        match self {
            DetailedResult::Ok(_) => NfsStat::Ok,
            DetailedResult::Detailed(_) => NfsStat::from_number(STATUS).unwrap_or(NfsStat::ServerFault),
            DetailedResult::Err(status) => *status,
        }
    }

    /// The detailed failure without its details is a fault of ours.
    fn failed(status: NfsStat) -> Self {
        Self::Err(if status as u32 == STATUS { NfsStat::ServerFault } else { status })
    }
}

impl<'a, T: Xdr<'a>, D: Xdr<'a>, const STATUS: u32> Xdr<'a> for DetailedResult<T, D, STATUS> {
    fn get(r: &mut Reader<'a>) -> Result<Self, Garbage> {
        match NfsStat::get(r)? {
            NfsStat::Ok => T::get(r).map(Self::Ok),
            status if status as u32 == STATUS => D::get(r).map(Self::Detailed),
            status => Ok(Self::Err(status)),
        }
    }

    fn put(&self, out: &mut XdrOut) {
        self.status().put(out);
        match self {
            DetailedResult::Ok(value) => value.put(out),
            DetailedResult::Detailed(detail) => detail.put(out),
            // A status that promises more than there is would shift all that follows.
            DetailedResult::Err(status) => debug_assert!(*status as u32 != STATUS && *status != NfsStat::Ok),
        }
    }
}
