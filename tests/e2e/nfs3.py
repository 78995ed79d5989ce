"""A raw NFS version 3 client (RFC 1813) over ONC RPC (RFC 5531): one TCP connection, XDR by hand.

It sends what it is told to, right or wrong, so that the edges of the protocol can be tested: any credential, any
handle, any count; one call at a time with `Nfs3`'s methods, or many in flight with `send` and `receive`.

    nfs = Nfs3.mount("127.0.0.1", port, "/tank")
    made = nfs.create(nfs.root, "a.txt")
    nfs.write(made.handle, 0, b"hello", FILE_SYNC)

Methods raise `NfsError` (with .status and the decoded .reply) on any status but NFS3_OK.
"""

import errno
import itertools
import os
import socket
import struct
from types import SimpleNamespace

NFS_PROGRAM, MOUNT_PROGRAM = 100003, 100005

(NULL, GETATTR, SETATTR, LOOKUP, ACCESS, READLINK, READ, WRITE, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME,
 LINK, READDIR, READDIRPLUS, FSSTAT, FSINFO, PATHCONF, COMMIT) = range(22)

UNSTABLE, DATA_SYNC, FILE_SYNC = range(3)
UNCHECKED, GUARDED, EXCLUSIVE = range(3)
REG, DIR, BLK, CHR, LNK, SOCK, FIFO = range(1, 8)

OK, PERM, NOENT, IO, NXIO, ACCES, EXIST, XDEV = 0, 1, 2, 5, 6, 13, 17, 18
NODEV, NOTDIR, ISDIR, INVAL, FBIG, NOSPC, ROFS, MLINK = 19, 20, 21, 22, 27, 28, 30, 31
NAMETOOLONG, NOTEMPTY, DQUOT, STALE = 63, 66, 69, 70
BADHANDLE, NOT_SYNC, BAD_COOKIE, NOTSUPP, TOOSMALL, SERVERFAULT, BADTYPE, JUKEBOX = range(10001, 10009)

ACCESS_READ, ACCESS_LOOKUP, ACCESS_MODIFY, ACCESS_EXTEND, ACCESS_DELETE, ACCESS_EXECUTE = 1, 2, 4, 8, 16, 32

STATUS_NAMES = {value: name for name, value in list(globals().items()) if name in (
    "OK PERM NOENT IO NXIO ACCES EXIST XDEV NODEV NOTDIR ISDIR INVAL FBIG NOSPC ROFS MLINK NAMETOOLONG NOTEMPTY DQUOT "
    "STALE BADHANDLE NOT_SYNC BAD_COOKIE NOTSUPP TOOSMALL SERVERFAULT BADTYPE JUKEBOX").split()}


class RpcError(Exception):
    """The call was not executed: denied, unknown procedure, garbage arguments."""

    def __init__(self, text, accept=None, reject=None):
        super().__init__(text)
        self.accept, self.reject = accept, reject


class Disconnected(ConnectionError):
    """The server closed the connection."""


class NfsError(Exception):
    def __init__(self, procedure, status, reply):
        super().__init__(f"procedure {procedure}: NFS3ERR_{STATUS_NAMES.get(status, status)}")
        self.status, self.reply = status, reply


# ---- XDR (RFC 4506) ----


def u32(value):
    return struct.pack(">I", value)


def u64(value):
    return struct.pack(">Q", value)


def opaque(data):
    data = data.encode() if isinstance(data, str) else bytes(data)
    return u32(len(data)) + data + b"\0" * (-len(data) % 4)


class Reader:
    """Decodes a reply in order; running off the end is an error of the server."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        if self.at + count > len(self.data):
            raise RpcError(f"reply ends after {len(self.data)} bytes, {self.at + count} expected")
        piece = self.data[self.at:self.at + count]
        self.at += count
        return piece

    def u32(self):
        return struct.unpack(">I", self.take(4))[0]

    def u64(self):
        return struct.unpack(">Q", self.take(8))[0]

    def bool(self):
        value = self.u32()
        if value > 1:
            raise RpcError(f"a boolean of {value}")
        return bool(value)

    def opaque(self):
        count = self.u32()
        data = self.take(count)
        self.take(-count % 4)
        return bytes(data)

    def time(self):
        seconds, nanoseconds = self.u32(), self.u32()
        return seconds * 1_000_000_000 + nanoseconds

    def done(self):
        if self.at != len(self.data):
            raise RpcError(f"{len(self.data) - self.at} bytes after the reply")


def fattr(r):
    a = SimpleNamespace(type=r.u32(), mode=r.u32(), nlink=r.u32(), uid=r.u32(), gid=r.u32(), size=r.u64(), used=r.u64())
    a.rdev = (r.u32(), r.u32())
    a.fsid, a.fileid = r.u64(), r.u64()
    a.atime_ns, a.mtime_ns, a.ctime_ns = r.time(), r.time(), r.time()
    return a


def post_op_attr(r):
    return fattr(r) if r.bool() else None


def post_op_handle(r):
    return r.opaque() if r.bool() else None


def wcc(r):
    before = SimpleNamespace(size=r.u64(), mtime_ns=r.time(), ctime_ns=r.time()) if r.bool() else None
    return SimpleNamespace(before=before, after=post_op_attr(r))


def sattr(mode=None, uid=None, gid=None, size=None, atime_ns=None, mtime_ns=None):
    """sattr3; a time is nanoseconds, "now" for the server's clock, or None for unchanged."""

    def optional(value, pack):
        return u32(0) if value is None else u32(1) + pack(value)

    def when(value):
        if value is None:
            return u32(0)
        if value == "now":
            return u32(1)
        return u32(2) + u32(value // 1_000_000_000) + u32(value % 1_000_000_000)

    return optional(mode, u32) + optional(uid, u32) + optional(gid, u32) + optional(size, u64) + when(atime_ns) + when(mtime_ns)


# ---- RPC ----

# Servers believe calls of AUTH_SYS from these ports alone, unless told otherwise; only root may bind them.
RESERVED_PORTS = range(512, 1024)
# Each connection has another port than those before it: a server takes equal calls from one port for retries of one call.
turns = itertools.count(int.from_bytes(os.urandom(2), "big"))
UNUSABLE = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES)


def connect(host, port, timeout_s, reserved=None, source=""):
    """A TCP connection; `reserved`: from a port below 1024 (by default, when this is root); from the address `source`."""
    if not (os.geteuid() == 0 if reserved is None else reserved):
        return socket.create_connection((host, port), timeout_s, (source, 0))
    for _ in RESERVED_PORTS:
        own = RESERVED_PORTS[next(turns) % len(RESERVED_PORTS)]
        link = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        link.settimeout(timeout_s)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            link.bind((source, own))
            link.connect((host, port))
            return link
        except OSError as error:
            link.close()
            if error.errno not in UNUSABLE:
                raise
    raise OSError(errno.EADDRINUSE, "no port below 1024 is free")


class Rpc:
    """One connection. `uid`, `gid` and `groups` become the AUTH_SYS credential of the calls that follow."""

    def __init__(self, host, port, uid=0, gid=0, groups=(), timeout_s=60, reserved=None, source=""):
        self.socket = connect(host, port, timeout_s, reserved, source)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.peer = (host, port)
        self.as_user(uid, gid, groups)
        self.xid = 0x1a0000
        self.buffer = bytearray()

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def as_user(self, uid, gid, groups=()):
        body = u32(0) + opaque("e2e") + u32(uid) + u32(gid) + u32(len(groups)) + b"".join(map(u32, groups))
        self.credential = u32(1) + opaque(body)
        return self

    def message(self, program, version, procedure, arguments, xid, credential=None):
        head = u32(xid) + u32(0) + u32(2) + u32(program) + u32(version) + u32(procedure)
        return head + (credential or self.credential) + u32(0) + u32(0) + arguments

    def send(self, program, version, procedure, arguments, xid=None):
        if xid is None:
            self.xid = xid = (self.xid + 1) & 0xFFFFFFFF
        record = self.message(program, version, procedure, arguments, xid)
        try:
            self.socket.sendall(u32(0x80000000 | len(record)) + record)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Disconnected(str(error)) from error
        return xid

    def _fill(self, count):
        while len(self.buffer) < count:
            try:
                chunk = self.socket.recv(1 << 20)
            except ConnectionResetError as error:
                raise Disconnected(str(error)) from error
            if not chunk:
                raise Disconnected("end of stream")
            self.buffer += chunk

    def record(self):
        """One whole record, its fragments joined."""
        whole = b""
        while True:
            self._fill(4)
            mark = struct.unpack(">I", self.buffer[:4])[0]
            count = mark & 0x7FFFFFFF
            self._fill(4 + count)
            whole += self.buffer[4:4 + count]
            del self.buffer[:4 + count]
            if mark & 0x80000000:
                return bytes(whole)

    def receive(self):
        """(xid, Reader of the results); the reply header must say success."""
        r = Reader(self.record())
        xid = r.u32()
        if r.u32() != 1:
            raise RpcError("not a reply")
        if r.u32() != 0:
            reject = r.u32()
            raise RpcError(f"denied: {'RPC version' if reject == 0 else 'credential'}", reject=reject)
        r.u32(), r.opaque()
        accept = r.u32()
        if accept != 0:
            names = {1: "PROG_UNAVAIL", 2: "PROG_MISMATCH", 3: "PROC_UNAVAIL", 4: "GARBAGE_ARGS", 5: "SYSTEM_ERR"}
            raise RpcError(f"not executed: {names.get(accept, accept)}", accept=accept)
        return xid, r

    def call(self, program, version, procedure, arguments, xid=None):
        sent = self.send(program, version, procedure, arguments, xid)
        got, r = self.receive()
        if got != sent:
            raise RpcError(f"reply to {got:#x} where {sent:#x} was asked")
        return r


def mount(host, port, export, **credential):
    """MNT: (root handle, accepted flavours). Raises NfsError with a mountstat3."""
    with Rpc(host, port, **credential) as rpc:
        r = rpc.call(MOUNT_PROGRAM, 3, 1, opaque(export))
        status = r.u32()
        if status:
            raise NfsError("MNT", status, None)
        return r.opaque(), [r.u32() for _ in range(r.u32())]


def exports(host, port, **options):
    with Rpc(host, port, **options) as rpc:
        r, found = rpc.call(MOUNT_PROGRAM, 3, 5, b""), []
        while r.bool():
            path, groups = r.opaque().decode(), []
            while r.bool():
                groups.append(r.opaque().decode())
            found.append((path, groups))
        return found


class Nfs3(Rpc):
    """The 22 procedures. Replies are namespaces with the fields of RFC 1813 under short names."""

    root = None

    @classmethod
    def mount(cls, host, port, export, mount_port=None, **options):
        root, _ = mount(host, mount_port or port, export, **{k: v for k, v in options.items() if k != "timeout_s"})
        nfs = cls(host, port, **options)
        nfs.root = root
        return nfs

    def nfs(self, procedure, arguments, on_ok, on_error=lambda r: SimpleNamespace(), xid=None):
        r = self.call(NFS_PROGRAM, 3, procedure, arguments, xid)
        return self.decode(procedure, r, on_ok, on_error)

    @staticmethod
    def decode(procedure, r, on_ok, on_error=lambda r: SimpleNamespace()):
        status = r.u32()
        reply = on_ok(r) if status == OK else on_error(r)
        r.done()
        if status != OK:
            raise NfsError(procedure, status, reply)
        return reply

    def null(self):
        self.call(NFS_PROGRAM, 3, NULL, b"").done()

    def getattr(self, handle):
        return self.nfs(GETATTR, opaque(handle), fattr)

    def setattr(self, handle, guard_ctime_ns=None, **what):
        guard = u32(0)
        if guard_ctime_ns is not None:
            guard = u32(1) + u32(guard_ctime_ns // 1_000_000_000) + u32(guard_ctime_ns % 1_000_000_000)
        return self.nfs(SETATTR, opaque(handle) + sattr(**what) + guard, wcc, wcc)

    def lookup(self, directory, name):
        ok = lambda r: SimpleNamespace(handle=r.opaque(), attr=post_op_attr(r), dir_attr=post_op_attr(r))
        return self.nfs(LOOKUP, opaque(directory) + opaque(name), ok, post_op_attr)

    def access(self, handle, wanted=0x3F):
        ok = lambda r: SimpleNamespace(attr=post_op_attr(r), granted=r.u32())
        return self.nfs(ACCESS, opaque(handle) + u32(wanted), ok, post_op_attr).granted

    def readlink(self, handle):
        ok = lambda r: SimpleNamespace(attr=post_op_attr(r), target=r.opaque())
        return self.nfs(READLINK, opaque(handle), ok, post_op_attr).target

    def read(self, handle, offset, count):
        def ok(r):
            reply = SimpleNamespace(attr=post_op_attr(r), count=r.u32(), eof=r.bool(), data=r.opaque())
            if reply.count != len(reply.data):
                raise RpcError(f"count {reply.count}, {len(reply.data)} bytes")
            return reply

        return self.nfs(READ, opaque(handle) + u64(offset) + u32(count), ok, post_op_attr)

    @staticmethod
    def written(r):
        return SimpleNamespace(wcc=wcc(r), count=r.u32(), committed=r.u32(), verifier=r.take(8))

    def write(self, handle, offset, data, stable=UNSTABLE, xid=None):
        arguments = opaque(handle) + u64(offset) + u32(len(data)) + u32(stable) + opaque(data)
        return self.nfs(WRITE, arguments, self.written, wcc, xid)

    def commit(self, handle, offset=0, count=0):
        ok = lambda r: SimpleNamespace(wcc=wcc(r), verifier=r.take(8))
        return self.nfs(COMMIT, opaque(handle) + u64(offset) + u32(count), ok, wcc)

    @staticmethod
    def made(r):
        return SimpleNamespace(handle=post_op_handle(r), attr=post_op_attr(r), wcc=wcc(r))

    def create(self, directory, name, how=UNCHECKED, verifier=None, xid=None, **attributes):
        if how == EXCLUSIVE:
            what = u32(EXCLUSIVE) + verifier
        else:
            what = u32(how) + sattr(**{"mode": 0o644, **attributes})
        return self.nfs(CREATE, opaque(directory) + opaque(name) + what, self.made, wcc, xid)

    def mkdir(self, directory, name, xid=None, **attributes):
        arguments = opaque(directory) + opaque(name) + sattr(**{"mode": 0o755, **attributes})
        return self.nfs(MKDIR, arguments, self.made, wcc, xid)

    def symlink(self, directory, name, target, **attributes):
        arguments = opaque(directory) + opaque(name) + sattr(**attributes) + opaque(target)
        return self.nfs(SYMLINK, arguments, self.made, wcc)

    def mknod(self, directory, name, kind, device=(0, 0), **attributes):
        arguments = opaque(directory) + opaque(name) + u32(kind)
        if kind in (BLK, CHR):
            arguments += sattr(**{"mode": 0o644, **attributes}) + u32(device[0]) + u32(device[1])
        elif kind in (SOCK, FIFO):
            arguments += sattr(**{"mode": 0o644, **attributes})
        return self.nfs(MKNOD, arguments, self.made, wcc)

    def remove(self, directory, name, xid=None):
        return self.nfs(REMOVE, opaque(directory) + opaque(name), wcc, wcc, xid)

    def rmdir(self, directory, name):
        return self.nfs(RMDIR, opaque(directory) + opaque(name), wcc, wcc)

    def rename(self, from_directory, from_name, to_directory, to_name, xid=None):
        both = lambda r: SimpleNamespace(source=wcc(r), target=wcc(r))
        arguments = opaque(from_directory) + opaque(from_name) + opaque(to_directory) + opaque(to_name)
        return self.nfs(RENAME, arguments, both, both, xid)

    def link(self, handle, directory, name):
        both = lambda r: SimpleNamespace(attr=post_op_attr(r), wcc=wcc(r))
        return self.nfs(LINK, opaque(handle) + opaque(directory) + opaque(name), both, both)

    def readdir(self, directory, cookie=0, verifier=b"\0" * 8, count=65536):
        def ok(r):
            reply = SimpleNamespace(attr=post_op_attr(r), verifier=r.take(8), entries=[])
            while r.bool():
                reply.entries.append(SimpleNamespace(fileid=r.u64(), name=r.opaque(), cookie=r.u64()))
            reply.eof = r.bool()
            return reply

        return self.nfs(READDIR, opaque(directory) + u64(cookie) + verifier + u32(count), ok, post_op_attr)

    def readdirplus(self, directory, cookie=0, verifier=b"\0" * 8, dircount=65536, maxcount=262144):
        def ok(r):
            reply = SimpleNamespace(attr=post_op_attr(r), verifier=r.take(8), entries=[], size=0)
            while r.bool():
                entry = SimpleNamespace(fileid=r.u64(), name=r.opaque(), cookie=r.u64())
                entry.attr, entry.handle = post_op_attr(r), post_op_handle(r)
                reply.entries.append(entry)
            reply.eof = r.bool()
            reply.size = len(r.data)
            return reply

        arguments = opaque(directory) + u64(cookie) + verifier + u32(dircount) + u32(maxcount)
        return self.nfs(READDIRPLUS, arguments, ok, post_op_attr)

    def fsstat(self, handle):
        def ok(r):
            reply = SimpleNamespace(attr=post_op_attr(r))
            names = "total_bytes free_bytes available_bytes total_files free_files available_files"
            for name in names.split():
                setattr(reply, name, r.u64())
            reply.invarsec = r.u32()
            return reply

        return self.nfs(FSSTAT, opaque(handle), ok, post_op_attr)

    def fsinfo(self, handle):
        def ok(r):
            reply = SimpleNamespace(attr=post_op_attr(r))
            for name in "rtmax rtpref rtmult wtmax wtpref wtmult dtpref".split():
                setattr(reply, name, r.u32())
            reply.maxfilesize, reply.time_delta_ns, reply.properties = r.u64(), r.time(), r.u32()
            return reply

        return self.nfs(FSINFO, opaque(handle), ok, post_op_attr)

    def pathconf(self, handle):
        def ok(r):
            reply = SimpleNamespace(attr=post_op_attr(r), linkmax=r.u32(), name_max=r.u32())
            for name in "no_trunc chown_restricted case_insensitive case_preserving".split():
                setattr(reply, name, r.bool())
            return reply

        return self.nfs(PATHCONF, opaque(handle), ok, post_op_attr)

    # ---- in terms of the procedures ----

    def walk(self, path, start=None):
        """The handle of a path below `start` (the root)."""
        handle = start or self.root
        for part in filter(None, path.split("/")):
            handle = self.lookup(handle, part).handle
        return handle

    def list(self, directory, plus=False, **counts):
        """Every entry but . and .., by following the cookies."""
        cookie, verifier, found = 0, b"\0" * 8, []
        while True:
            page = (self.readdirplus if plus else self.readdir)(directory, cookie, verifier, **counts)
            found += [entry for entry in page.entries if entry.name not in (b".", b"..")]
            if page.eof:
                return found
            if not page.entries:
                raise RpcError("a page without entries that is not the last")
            cookie, verifier = page.entries[-1].cookie, page.verifier

    def read_all(self, handle, chunk=1 << 20):
        data = bytearray()
        while True:
            page = self.read(handle, len(data), chunk)
            data += page.data
            if page.eof:
                return bytes(data)
            if not page.data:
                raise RpcError("READ gave nothing and no end of file")

    def write_all(self, handle, data, chunk=1 << 20, depth=8, at=0, all_taken=False):
        """Unstable writes with `depth` in flight, then COMMIT; returns the verifier. `all_taken`: a refused write is an error."""
        statuses = self.pipeline(
            [(WRITE, opaque(handle) + u64(at + o) + u32(len(data[o:o + chunk])) + u32(UNSTABLE) + opaque(data[o:o + chunk]))
             for o in range(0, len(data), chunk)],
            depth,
        )
        for status in statuses:
            if all_taken and status:
                raise NfsError(WRITE, status, None)
        return self.commit(handle).verifier

    def pipeline(self, calls, depth=32):
        """Sends (procedure, arguments) pairs with `depth` in flight; statuses in order. Replies may come in any."""
        status, waiting, calls = {}, {}, iter(enumerate(calls))
        while True:
            while len(waiting) < depth:
                call = next(calls, None)
                if call is None:
                    break
                index, (procedure, arguments) = call
                waiting[self.send(NFS_PROGRAM, 3, procedure, arguments)] = index
            if not waiting:
                return [status[n] for n in sorted(status)]
            xid, r = self.receive()
            status[waiting.pop(xid)] = r.u32()
