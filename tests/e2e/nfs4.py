"""A raw NFS version 4 client (RFC 7530, 8881, 7862) beside `nfs3.py`: one connection, one session, operations by hand.

    nfs = Nfs4("127.0.0.1", port).session()
    file = nfs.open(["files", "a.txt"], access=BOTH, create=UNCHECKED)
    nfs.write(file, 0, b"hello")
    nfs.close_file(file)

An operation is (number, encoded arguments, decoder of its result); `compound` sends several of them in one request and raises `Nfs4Error`
with .status and .results where one fails.
"""

import os
from types import SimpleNamespace

from nfs3 import Reader, Rpc, opaque, u32, u64

PROGRAM = 100003
READ, WRITE, BOTH = 1, 2, 3
UNCHECKED, GUARDED, EXCLUSIVE, EXCLUSIVE_WITH_ATTRS = range(4)
READ_LOCK, WRITE_LOCK, READ_LOCK_WAIT, WRITE_LOCK_WAIT = 1, 2, 3, 4
UNSTABLE, DATA_SYNC, FILE_SYNC = range(3)
DATA, HOLE = 0, 1
ANONYMOUS = bytes(16)
CURRENT = u32(1) + bytes(12)

(ACCESS, CLOSE, COMMIT, CREATE, DELEGPURGE, DELEGRETURN, GETATTR, GETFH, LINK, LOCK, LOCKT, LOCKU, LOOKUP, LOOKUPP, NVERIFY, OPEN,
 OPENATTR, OPEN_CONFIRM, OPEN_DOWNGRADE, PUTFH, PUTPUBFH, PUTROOTFH, READ_OP, READDIR, READLINK, REMOVE, RENAME, RENEW, RESTOREFH,
 SAVEFH, SECINFO, SETATTR, SETCLIENTID, SETCLIENTID_CONFIRM, VERIFY, WRITE_OP, RELEASE_LOCKOWNER, BACKCHANNEL_CTL,
 BIND_CONN_TO_SESSION, EXCHANGE_ID, CREATE_SESSION, DESTROY_SESSION, FREE_STATEID, GET_DIR_DELEGATION, GETDEVICEINFO, GETDEVICELIST,
 LAYOUTCOMMIT, LAYOUTGET, LAYOUTRETURN, SECINFO_NO_NAME, SEQUENCE, SET_SSV, TEST_STATEID, WANT_DELEGATION, DESTROY_CLIENTID,
 RECLAIM_COMPLETE, ALLOCATE, COPY, COPY_NOTIFY, DEALLOCATE, IO_ADVISE, LAYOUTERROR, LAYOUTSTATS, OFFLOAD_CANCEL, OFFLOAD_STATUS,
 READ_PLUS, SEEK, WRITE_SAME, CLONE, GETXATTR, SETXATTR, LISTXATTRS, REMOVEXATTR) = range(3, 76)

STATUS = {
    "OK": 0, "PERM": 1, "NOENT": 2, "IO": 5, "NXIO": 6, "ACCESS": 13, "EXIST": 17, "XDEV": 18, "NOTDIR": 20, "ISDIR": 21, "INVAL": 22,
    "FBIG": 27, "ROFS": 30, "NAMETOOLONG": 63, "NOTEMPTY": 66, "STALE": 70, "BADHANDLE": 10001, "BAD_COOKIE": 10003, "NOTSUPP": 10004,
    "TOOSMALL": 10005, "BADTYPE": 10007, "DELAY": 10008, "SAME": 10009, "DENIED": 10010, "EXPIRED": 10011, "LOCKED": 10012,
    "GRACE": 10013, "SHARE_DENIED": 10015, "CLID_INUSE": 10017, "RESOURCE": 10018, "NOFILEHANDLE": 10020,
    "MINOR_VERS_MISMATCH": 10021, "STALE_CLIENTID": 10022, "STALE_STATEID": 10023, "OLD_STATEID": 10024, "BAD_STATEID": 10025,
    "BAD_SEQID": 10026, "NOT_SAME": 10027, "SYMLINK": 10029, "ATTRNOTSUPP": 10032, "NO_GRACE": 10033, "RECLAIM_BAD": 10034,
    "BADXDR": 10036, "LOCKS_HELD": 10037, "OPENMODE": 10038, "BADOWNER": 10039, "BADCHAR": 10040, "BADNAME": 10041,
    "OP_ILLEGAL": 10044, "FILE_OPEN": 10046, "BADSESSION": 10052, "BADSLOT": 10053, "COMPLETE_ALREADY": 10054,
    "CONN_NOT_BOUND_TO_SESSION": 10055, "SEQ_MISORDERED": 10063, "SEQUENCE_POS": 10064, "REQ_TOO_BIG": 10065, "REP_TOO_BIG": 10066,
    "REP_TOO_BIG_TO_CACHE": 10067, "RETRY_UNCACHED_REP": 10068, "TOO_MANY_OPS": 10070, "OP_NOT_IN_SESSION": 10071,
    "CLIENTID_BUSY": 10074, "SEQ_FALSE_RETRY": 10076, "BAD_HIGH_SLOT": 10077, "NOT_ONLY_OP": 10081, "WRONG_TYPE": 10083,
    "DELEG_REVOKED": 10087, "UNION_NOTSUPP": 10090, "NOXATTR": 10095,
}
NAMES = {number: name for name, number in STATUS.items()}

# Attributes with their decoders, in the order of their numbers.
TYPE, CHANGE, SIZE, FSID, FILEID, MODE, NUMLINKS, OWNER, OWNER_GROUP, SPACE_USED, MTIME, MOUNTED_ON = (
    1, 3, 4, 8, 20, 33, 35, 36, 37, 45, 53, 55)
RDATTR_ERROR, FILEHANDLE, TIME_ACCESS_SET, TIME_MODIFY_SET, LEASE_TIME, SPACE_AVAIL = 11, 19, 48, 54, 10, 42
SUPPORTED, ACL, ACLSUPPORT, ARCHIVE, HIDDEN, SYSTEM, TIME_CREATE = 0, 12, 13, 14, 25, 46, 50
QUOTA_AVAIL_HARD, QUOTA_AVAIL_SOFT, QUOTA_USED, SPACE_TOTAL = 38, 39, 40, 44
DACL, SACL, MODE_SET_MASKED, FS_CHARSET_CAP, CLONE_BLKSIZE, MODE_UMASK = 58, 59, 74, 76, 77, 81


def ace(kind, flag, mask, who):
    return (kind, flag, mask, who.encode())


def aces(rules):
    return u32(len(rules)) + b"".join(u32(kind) + u32(flag) + u32(mask) + opaque(who) for kind, flag, mask, who in rules)


def read_aces(r):
    return [(r.u32(), r.u32(), r.u32(), r.opaque()) for _ in range(r.u32())]


ATTRIBUTES = {
    TYPE: ("type", lambda r: r.u32()), CHANGE: ("change", lambda r: r.u64()), SIZE: ("size", lambda r: r.u64()),
    FSID: ("fsid", lambda r: (r.u64(), r.u64())), LEASE_TIME: ("lease", lambda r: r.u32()),
    RDATTR_ERROR: ("error", lambda r: r.u32()), FILEHANDLE: ("handle", lambda r: r.opaque()),
    FILEID: ("fileid", lambda r: r.u64()), MODE: ("mode", lambda r: r.u32()), NUMLINKS: ("nlink", lambda r: r.u32()),
    OWNER: ("owner", lambda r: r.opaque()), OWNER_GROUP: ("group", lambda r: r.opaque()),
    SPACE_AVAIL: ("avail", lambda r: r.u64()), SPACE_USED: ("used", lambda r: r.u64()),
    MTIME: ("mtime", lambda r: (r.u64(), r.u32())), MOUNTED_ON: ("mounted_on", lambda r: r.u64()),
    SUPPORTED: ("supported", lambda r: read_bitmap(r)), ACL: ("acl", read_aces), ACLSUPPORT: ("acl_support", lambda r: r.u32()),
    ARCHIVE: ("archive", lambda r: r.bool()), HIDDEN: ("hidden", lambda r: r.bool()), SYSTEM: ("system", lambda r: r.bool()),
    TIME_CREATE: ("btime", lambda r: (r.u64(), r.u32())), QUOTA_AVAIL_HARD: ("quota_hard", lambda r: r.u64()),
    QUOTA_AVAIL_SOFT: ("quota_soft", lambda r: r.u64()), QUOTA_USED: ("quota_used", lambda r: r.u64()),
    SPACE_TOTAL: ("total", lambda r: r.u64()), DACL: ("dacl", lambda r: (r.u32(), read_aces(r))),
    SACL: ("sacl", lambda r: (r.u32(), read_aces(r))), FS_CHARSET_CAP: ("charset", lambda r: r.u32()),
    CLONE_BLKSIZE: ("clone_block", lambda r: r.u32()),
}
USUAL = (TYPE, CHANGE, SIZE, FSID, FILEID, MODE, NUMLINKS, OWNER, OWNER_GROUP, MOUNTED_ON)


class Nfs4Error(Exception):
    def __init__(self, status, results, detail=None):
        super().__init__(f"NFS4ERR_{NAMES.get(status, status)} from operation {len(results)}")
        self.status, self.results, self.detail = status, results, detail


class refused:
    """Expects `Nfs4Error` with one of these names."""

    def __init__(self, *names):
        self.names = names

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        assert kind is not None, f"succeeded, expected {self.names}"
        if kind is not Nfs4Error:
            return False
        assert NAMES.get(error.status, error.status) in self.names, f"{error}, expected {self.names}"
        self.error = error
        return True


def bitmap(numbers):
    words = [0] * (max(numbers, default=-1) // 32 + 1)
    for number in numbers:
        words[number // 32] |= 1 << (number % 32)
    return u32(len(words)) + b"".join(map(u32, words))


def read_bitmap(r):
    return [32 * word + bit for word in range(r.u32()) for value in [r.u32()] for bit in range(32) if value >> bit & 1]


# Attributes that can be set, with their encoders.
SETTABLE = {
    "size": (SIZE, u64), "acl": (ACL, aces), "archive": (ARCHIVE, u32), "hidden": (HIDDEN, u32), "mode": (MODE, u32),
    "owner": (OWNER, opaque), "group": (OWNER_GROUP, opaque), "system": (SYSTEM, u32),
    "btime": (TIME_CREATE, lambda time: u64(time[0]) + u32(time[1])), "dacl": (DACL, lambda dacl: u32(dacl[0]) + aces(dacl[1])),
    "sacl": (SACL, lambda sacl: u32(sacl[0]) + aces(sacl[1])),
    "mode_masked": (MODE_SET_MASKED, lambda both: u32(both[0]) + u32(both[1])),
    "mode_umask": (MODE_UMASK, lambda both: u32(both[0]) + u32(both[1])),
}


def fattr(**what):
    """Attributes to set; those that are None are left out."""
    given = {number: encode(what[name]) for name, (number, encode) in SETTABLE.items() if what.get(name) is not None}
    return bitmap(sorted(given)) + opaque(b"".join(given[number] for number in sorted(given)))


def read_fattr(r):
    numbers, values = read_bitmap(r), r.__class__(r.opaque())
    found = SimpleNamespace()
    for number in numbers:
        name, decode = ATTRIBUTES[number]
        setattr(found, name, decode(values))
    values.done()
    return found


def nothing(_):
    return None


def stateid(r):
    return r.take(16)


def change(r):
    return SimpleNamespace(atomic=r.bool(), before=r.u64(), after=r.u64())


def put(handle):
    return (PUTFH, opaque(handle), nothing)


ROOT = (PUTROOTFH, b"", nothing)
GET = (GETFH, b"", lambda r: r.opaque())
SAVE = (SAVEFH, b"", nothing)


def lookup(name):
    return (LOOKUP, opaque(name), nothing)


def getattr_(numbers=USUAL):
    return (GETATTR, bitmap(numbers), read_fattr)


def denied(r):
    return SimpleNamespace(offset=r.u64(), length=r.u64(), kind=r.u32(), client=r.u64(), owner=r.opaque())


def opened(r):
    found = SimpleNamespace(stateid=stateid(r), change=change(r), flags=r.u32(), set=read_bitmap(r), delegation=None)
    kind = r.u32()
    if kind in (1, 2):
        found.delegation = SimpleNamespace(kind=kind, stateid=stateid(r), recall=r.bool())
        if kind == 2:
            limit = r.u32()
            r.u64() if limit == 1 else (r.u32(), r.u32())
        r.u32(), r.u32(), r.u32(), r.opaque()
    elif kind == 3:
        found.why = r.u32()
        if found.why in (1, 2):
            r.bool()
    return found


def contents(r):
    found = SimpleNamespace(eof=r.bool(), parts=[])
    for _ in range(r.u32()):
        kind = r.u32()
        found.parts.append((kind, r.u64(), r.opaque() if kind == DATA else r.u64()))
    return found


def entries(r):
    found = SimpleNamespace(verifier=r.take(8), entries=[])
    while r.bool():
        found.entries.append(SimpleNamespace(cookie=r.u64(), name=r.opaque(), attr=read_fattr(r)))
    found.eof = r.bool()
    return found


class Nfs4(Rpc):
    """`owner`: the client's name for itself; the same one over connections and restarts is the same client."""

    def __init__(self, host, port, minor=1, owner=None, verifier=None, **options):
        super().__init__(host, port, **options)
        self.minor, self.options = minor, options
        self.owner = owner or b"e2e-" + os.urandom(8)
        self.verifier = verifier or os.urandom(8)
        self.session_id, self.slots = None, {}
        # What the server has asked back, as (stateid, handle); and what it is answered.
        self.recalled, self.callback_status = [], 0
        # Requests that recalls referred to; (change, size) of a file that it writes; owners told that a lock may be free.
        self.referred, self.writing, self.notified = [], None, []
        # Attributes that it adds to those it was asked for, encoded.
        self.writing_more = []
        # Ends of copies, as they come.
        self.offloaded = []

    def return_delegation(self, handle, stateid):
        self.compound(put(handle), (DELEGRETURN, stateid, nothing))

    def again(self):
        """Another connection of the same client and session."""
        other = Nfs4(*self.peer, minor=self.minor, owner=self.owner, verifier=self.verifier, **self.options)
        other.client, other.session_id, other.slots = self.client, self.session_id, self.slots
        return other

    # ---- the server's calls ----

    def record(self):
        """The next reply; calls of the server in between are answered."""
        while True:
            record = super().record()
            if record[4:8] != u32(0):
                return record
            self.answer(record)

    def await_recall(self, timeout_s=20):
        """The stateid and the handle of the next recall."""
        self.socket.settimeout(timeout_s)
        while not self.recalled:
            self.answer(super().record())
        return self.recalled.pop(0)

    def answer_until(self, done, timeout_s=20):
        """Answers calls of the server until `done` says so."""
        self.socket.settimeout(timeout_s)
        while not done():
            self.answer(super().record())

    def answer(self, record):
        r = Reader(record)
        xid, kind, version, program, _, procedure = (r.u32() for _ in range(6))
        assert (kind, version, program, procedure) == (0, 2, 0x40000000, 1)
        flavor, credential = r.u32(), r.opaque()
        assert flavor == 1 and credential == self.callback_credential, "call-backs name the user that was asked for"
        assert (r.u32(), r.opaque()) == (0, b"")
        tag, minor, ident, count = r.opaque(), r.u32(), r.u32(), r.u32()
        assert (minor, ident, count) == (self.minor, 0, 2)
        assert r.u32() == 11
        session, sequence, slot, highest, _ = r.take(16), r.u32(), r.u32(), r.u32(), r.bool()
        assert session == self.session_id and (slot, highest) == (0, 0)
        referred = [(r.take(16), [(r.u32(), r.u32()) for _ in range(r.u32())]) for _ in range(r.u32())]
        number = r.u32()
        result = u32(self.callback_status)
        if number == 4:
            recall = (r.take(16), (r.bool(), r.opaque())[1])
            self.referred.append(referred)
        elif number == 3:
            r.opaque()
            assert read_bitmap(r) == [CHANGE, SIZE]
            if self.callback_status == 0:
                more = [number for number, _ in self.writing_more]
                values = u64(self.writing[0]) + u64(self.writing[1]) + b"".join(value for _, value in self.writing_more)
                result += bitmap([CHANGE, SIZE, *more]) + opaque(values)
        elif number == 15:
            told = SimpleNamespace(handle=r.opaque(), stateid=r.take(16), status=r.u32(), referred=referred)
            if told.status == 0:
                assert r.u32() == 0, "no stateid in the result"
                told.count, told.committed, told.verifier = r.u64(), r.u32(), r.take(8)
            else:
                told.count = r.u64()
            self.offloaded.append(told)
        else:
            assert number == 13
            self.notified.append((r.opaque(), (r.u64(), r.opaque())[1]))
        r.done()
        results = u32(11) + u32(0) + session + u32(sequence) + u32(0) * 3 + u32(number) + result
        body = u32(self.callback_status) + opaque(tag) + u32(2) + results
        reply = u32(xid) + u32(1) + u32(0) + u32(0) + u32(0) + u32(0) + body
        self.socket.sendall(u32(0x80000000 | len(reply)) + reply)
        if number == 4:
            self.recalled.append(recall)

    # ---- requests ----

    def request(self, ops, tag=b"", count=None):
        body = opaque(tag) + u32(self.minor) + u32(len(ops) if count is None else count)
        return body + b"".join(u32(number) + arguments for number, arguments, _ in ops)

    def results(self, ops, r):
        status, results, last = r.u32(), [], 0
        r.opaque()
        for at in range(r.u32()):
            number, last = r.u32(), r.u32()
            assert number == ops[at][0] or number == 10044, (number, ops[at][0])
            if last == STATUS["DENIED"] and number in (LOCK, LOCKT):
                raise Nfs4Error(last, results, denied(r))
            if last != 0:
                break
            results.append(ops[at][2](r))
        assert status == last or not results and last == 0, f"{status} is not the last operation's {last}"
        if status != 0:
            raise Nfs4Error(status, results)
        r.done()
        return results

    def raw(self, ops, tag=b""):
        """Without a session."""
        return self.results(ops, self.call(PROGRAM, 4, 1, self.request(ops, tag)))

    def sequence_op(self, slot=0, number=None, cache=False, highest=None, session=None):
        number = self.slots.get(slot, 0) + 1 if number is None else number
        arguments = (session or self.session_id) + u32(number) + u32(slot) + u32(slot if highest is None else highest) + u32(cache)
        return (SEQUENCE, arguments, lambda r: SimpleNamespace(
            session=r.take(16), sequence=r.u32(), slot=r.u32(), highest=r.u32(), target=r.u32(), flags=r.u32()))

    def compound(self, *ops, slot=0, cache=False):
        """The results behind that of SEQUENCE; in NFSv4.0 all."""
        if self.minor == 0:
            return self.raw(ops)
        whole = [self.sequence_op(slot, cache=cache), *ops]
        try:
            done = self.raw(whole)
        except Nfs4Error as error:
            if error.results:
                self.slots[slot] = self.slots.get(slot, 0) + 1
                error.results.pop(0)
            raise
        self.slots[slot] = self.slots.get(slot, 0) + 1
        return done[1:]

    # ---- clients and sessions ----

    def exchange_id(self, flags=0, owner=None, verifier=None):
        arguments = (verifier or self.verifier) + opaque(owner or self.owner) + u32(flags) + u32(0) + u32(0)

        def ok(r):
            found = SimpleNamespace(client=r.u64(), sequence=r.u32(), flags=r.u32())
            assert r.u32() == 0
            found.minor_id, found.major, found.scope = r.u64(), r.opaque(), r.opaque()
            assert r.u32() == 0
            return found

        return self.raw([(EXCHANGE_ID, arguments, ok)])[0]

    def create_session(self, client, sequence, slots=8, cached=4096, flags=0, callback=0x40000000):
        def channel(requests):
            return u32(0) + u32(1 << 20) + u32(1 << 20) + u32(cached) + u32(16) + u32(requests) + u32(0)

        def read_channel(r):
            words = [r.u32() for _ in range(6)]
            return words, [r.u32() for _ in range(r.u32())]

        self.callback_credential = u32(7) + opaque("called") + u32(5) + u32(6) + u32(0)
        security = u32(1) + u32(1) + self.callback_credential
        arguments = u64(client) + u32(sequence) + u32(flags) + channel(slots) + channel(4) + u32(callback) + security
        return self.raw([(CREATE_SESSION, arguments, lambda r: SimpleNamespace(
            session=r.take(16), sequence=r.u32(), flags=r.u32(), fore=read_channel(r), back=read_channel(r)))])[0]

    def session(self, complete=True, **options):
        found = self.exchange_id()
        self.client = found.client
        self.server = (found.major, found.scope)
        made = self.create_session(found.client, found.sequence, **options)
        self.session_id, self.slots, self.made = made.session, {}, made
        if complete:
            self.reclaim_complete()
        return self

    def reclaim_complete(self):
        self.compound((RECLAIM_COMPLETE, u32(0), nothing))

    def leave(self):
        self.raw([(DESTROY_SESSION, self.session_id, nothing)])
        self.raw([(DESTROY_CLIENTID, u64(self.client), nothing)])

    # ---- files ----

    def walk(self, path):
        return [ROOT, *(lookup(name) for name in path)]

    def handle(self, path):
        return self.compound(*self.walk(path), GET)[-1]

    def attr(self, place, numbers=USUAL):
        where = self.walk(place) if isinstance(place, (list, tuple)) else [put(place)]
        return self.compound(*where, getattr_(numbers))[-1]

    def open_op(self, name, access=BOTH, deny=0, create=None, owner=b"owner", verifier=None, claim=None, client=None, seqid=0, **attributes):
        arguments = u32(seqid) + u32(access) + u32(deny) + u64(client if client is not None else self.client) + opaque(owner)
        if create is None:
            arguments += u32(0)
        elif create == EXCLUSIVE:
            arguments += u32(1) + u32(create) + verifier
        elif create == EXCLUSIVE_WITH_ATTRS:
            arguments += u32(1) + u32(create) + verifier + fattr(**{"mode": 0o644, **attributes})
        else:
            arguments += u32(1) + u32(create) + fattr(**{"mode": 0o644, **attributes})
        return (OPEN, arguments + (claim if claim is not None else u32(0) + opaque(name)), opened)

    def open(self, path, **how):
        """A namespace with .handle and .stateid."""
        *above, name = path
        done = self.compound(*self.walk(above), self.open_op(name, **how), GET)
        found = done[-2]
        found.handle = done[-1]
        return found

    def open_handle(self, handle, reclaim=False, **how):
        claim = u32(1) + u32(0) if reclaim else u32(4)
        found = self.compound(put(handle), self.open_op(b"", claim=claim, **how))[-1]
        found.handle = handle
        return found

    def close_file(self, file):
        return self.compound(put(file.handle), (CLOSE, u32(0) + file.stateid, stateid))[-1]

    def read(self, file, offset, count, stateid=None):
        arguments = (stateid or file.stateid) + u64(offset) + u32(count)
        return self.compound(put(file.handle), (READ_OP, arguments, lambda r: SimpleNamespace(eof=r.bool(), data=r.opaque())))[-1]

    def write(self, file, offset, data, stable=FILE_SYNC, stateid=None):
        arguments = (stateid or file.stateid) + u64(offset) + u32(stable) + opaque(data)
        ok = lambda r: SimpleNamespace(count=r.u32(), committed=r.u32(), verifier=r.take(8))
        return self.compound(put(file.handle), (WRITE_OP, arguments, ok))[-1]

    def lock(self, file, kind, offset=0, length=(1 << 64) - 1, owner=b"locker", held=None, reclaim=False):
        """The stateid of the lock; `held` is the one of the owner's locks before."""
        arguments = u32(kind) + u32(reclaim) + u64(offset) + u64(length)
        if held:
            arguments += u32(0) + held + u32(0)
        else:
            arguments += u32(1) + u32(0) + file.stateid + u32(0) + u64(self.client) + opaque(owner)
        return self.compound(put(file.handle), (LOCK, arguments, stateid))[-1]

    def test_lock(self, handle, kind, offset=0, length=(1 << 64) - 1, owner=b"tester"):
        arguments = u32(kind) + u64(offset) + u64(length) + u64(self.client) + opaque(owner)
        self.compound(put(handle), (LOCKT, arguments, nothing))

    def unlock(self, file, held, kind, offset=0, length=(1 << 64) - 1):
        arguments = u32(kind) + u32(0) + held + u64(offset) + u64(length)
        return self.compound(put(file.handle), (LOCKU, arguments, stateid))[-1]

    def mkdir(self, path, mode=0o755, **attributes):
        *above, name = path
        what = fattr(mode=mode, **attributes)
        self.compound(*self.walk(above), (CREATE, u32(2) + opaque(name) + what, lambda r: (change(r), read_bitmap(r))))

    def remove(self, path):
        *above, name = path
        return self.compound(*self.walk(above), (REMOVE, opaque(name), change))[-1]

    def rename(self, source, target):
        both = lambda r: (change(r), change(r))
        return self.compound(*self.walk(source[:-1]), SAVE, *self.walk(target[:-1]),
                             (RENAME, opaque(source[-1]) + opaque(target[-1]), both))[-1]

    def copy(self, source, target, source_at=0, target_at=0, count=0, synchronous=False):
        """A namespace with .stateid, None of a copy that is over, and .count."""
        arguments = source.stateid + target.stateid + u64(source_at) + u64(target_at) + u64(count) + u32(1) + u32(synchronous) + u32(0)

        def ok(r):
            stateids = [r.take(16) for _ in range(r.u32())]
            done = SimpleNamespace(stateid=stateids[0] if stateids else None, count=r.u64(), committed=r.u32(), verifier=r.take(8))
            assert r.u32() == 1 and r.u32() == (not stateids), "in order; at once where there is no stateid"
            return done

        return self.compound(put(source.handle), SAVE, put(target.handle), (COPY, arguments, ok))[-1]

    def offload_status(self, target, stateid):
        """Bytes copied, and the statuses of its end: none or one."""
        return self.compound(put(target.handle), (OFFLOAD_STATUS, stateid, lambda r: (r.u64(), [r.u32() for _ in range(r.u32())])))[-1]

    def offload_cancel(self, target, stateid):
        self.compound(put(target.handle), (OFFLOAD_CANCEL, stateid, nothing))

    def setattr(self, handle, stateid=ANONYMOUS, **what):
        return self.compound(put(handle), (SETATTR, stateid + fattr(**what), read_bitmap))[-1]

    def readdir(self, place, cookie=0, verifier=bytes(8), dircount=8192, maxcount=32768, numbers=(RDATTR_ERROR, FILEID)):
        where = self.walk(place) if isinstance(place, (list, tuple)) else [put(place)]
        arguments = u64(cookie) + verifier + u32(dircount) + u32(maxcount) + bitmap(numbers)
        return self.compound(*where, (READDIR, arguments, entries))[-1]

    def names(self, place, **how):
        found, cookie, verifier = [], 0, bytes(8)
        while True:
            page = self.readdir(place, cookie, verifier, **how)
            found += [entry.name for entry in page.entries]
            if page.eof:
                return found
            cookie, verifier = page.entries[-1].cookie, page.verifier

    def test_stateids(self, *stateids):
        arguments = u32(len(stateids)) + b"".join(stateids)
        return self.compound((TEST_STATEID, arguments, lambda r: [NAMES[r.u32()] for _ in range(r.u32())]))[-1]


# ---- what a client holds while its volume changes machines ----


def hold(daemon, path, owner=b"mover"):
    """A session with a file that is open, locked and half written."""
    nfs = Nfs4("127.0.0.1", daemon.nfs_port, owner=owner).session()
    file = nfs.open(path, access=BOTH, create=UNCHECKED, mode=0o666)
    file.locked = nfs.lock(file, WRITE_LOCK, 0, 100)
    nfs.write(file, 0, b"half of ", stateid=file.locked)
    return nfs, file


def take_back(daemon, path, file, owner=b"mover"):
    """What `hold` held is taken back on another machine, and nobody got it before."""
    back = Nfs4("127.0.0.1", daemon.nfs_port, owner=owner).session(complete=False)
    stranger = Nfs4("127.0.0.1", daemon.nfs_port).session()
    with refused("GRACE"):
        stranger.open(path, access=READ)
    opened_again = back.open_handle(file.handle, reclaim=True, access=BOTH)
    locked = back.lock(opened_again, WRITE_LOCK, 0, 100, reclaim=True)
    back.reclaim_complete()
    assert back.read(opened_again, 0, 100, stateid=locked).data == b"half of ", "durable where it is taken over"
    theirs = stranger.open(path, access=READ)
    with refused("DENIED"):
        stranger.test_lock(theirs.handle, READ_LOCK)
    back.write(opened_again, 8, b"the whole", stateid=locked)
    back.close_file(opened_again)
    assert stranger.read(theirs, 0, 100).data == b"half of the whole"
    stranger.close_file(theirs)
    return back, stranger
