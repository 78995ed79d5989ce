"""A client of NLM version 4 and NSM (XNFS, chapters 10, 11 and 14): a machine with an address of its own on loopback.

Its calls leave from that address. Its port mapper, lock manager and status monitor answer the server's calls there:

    with Machine("127.0.0.2", daemon) as one:
        one.lock(handle, 0, 10)                 # a status
        one.lock(handle, 0, 10, process=2, waits=True)
        one.granted                             # calls of the server, as they come
"""

import itertools
import os
import queue
import socket
import struct
import threading
from types import SimpleNamespace

from nfs3 import RESERVED_PORTS, UNUSABLE, Reader, Rpc, opaque, turns, u32, u64

NLM, NSM, MAPPER = 100021, 100024, 100000
TEST, LOCK, CANCEL, UNLOCK, GRANTED = 1, 2, 3, 4, 5
TEST_MSG, LOCK_MSG, CANCEL_MSG, UNLOCK_MSG = 6, 7, 8, 9
TEST_RES, LOCK_RES, CANCEL_RES, UNLOCK_RES = 11, 12, 13, 14
SHARE, UNSHARE, NM_LOCK, FREE_ALL = 20, 21, 22, 23
OK, DENIED, NOLOCKS, BLOCKED, GRACE, DEADLOCK, ROFS, STALE, FBIG, FAILED = range(10)
NOTIFY = 6


class Programs:
    """What answers at a machine's address: its port mapper, on port 111, and its lock manager and status monitor."""

    def __init__(self, address):
        self.address = address
        self.granted, self.notified, self.results = queue.Queue(), queue.Queue(), queue.Queue()
        # What GRANTED is answered with; None: nothing.
        self.answer = OK
        self.links, self.listeners, self.is_open = [], [], True
        self.port = self.listen(0)
        self.listen(111)

    def listen(self, port):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((self.address, port))
        listener.listen(64)
        self.listeners.append(listener)
        threading.Thread(target=self.accept, args=(listener,), daemon=True).start()
        return listener.getsockname()[1]

    def accept(self, listener):
        while self.is_open:
            try:
                link, _ = listener.accept()
            except OSError:
                return
            self.links.append(link)
            threading.Thread(target=self.serve, args=(link,), daemon=True).start()

    def serve(self, link):
        try:
            with link, link.makefile("rb") as stream:
                while head := stream.read(4):
                    record = stream.read(struct.unpack(">I", head)[0] & 0x7FFFFFFF)
                    answer = self.call(Reader(record), link.getpeername()[0])
                    if answer is not None:
                        reply = record[:4] + u32(1) + bytes(4 * 4) + answer
                        link.sendall(u32(0x80000000 | len(reply)) + reply)
        except OSError:
            pass

    def call(self, r, caller):
        r.u32()
        assert (r.u32(), r.u32()) == (0, 2)
        program, version, procedure = r.u32(), r.u32(), r.u32()
        r.u32(), r.opaque(), r.u32(), r.opaque()
        if program == MAPPER:
            wanted, _, protocol, _ = r.u32(), r.u32(), r.u32(), r.u32()
            return u32(self.port if wanted in (NLM, NSM) and protocol == 6 else 0)
        if (program, procedure) == (NSM, NOTIFY):
            self.notified.put((r.opaque().decode(), r.u32()))
            return b""
        if (program, version, procedure) == (NLM, 4, GRANTED):
            call = SimpleNamespace(caller=caller, cookie=r.opaque(), exclusive=r.bool(), name=r.opaque(), handle=r.opaque(),
                                   owner=r.opaque(), process=r.u32(), start=r.u64(), length=r.u64())
            r.done()
            self.granted.put(call)
            return None if self.answer is None else opaque(call.cookie) + u32(self.answer)
        assert program == NLM and 11 <= procedure <= 15
        self.results.put((procedure, r.opaque(), r.u32()))
        return b""

    def close(self):
        self.is_open = False
        for listener in self.listeners:
            # A thread that accepts keeps the socket.
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for link in self.links:
            link.close()


class Machine(Rpc):
    """`programs`: whether it answers the server's calls; its address may have other names for itself."""

    def __init__(self, address, daemon, name=None, programs=True, **options):
        self.address, self.daemon, self.name, self.options = address, daemon, name or f"machine-{address}", options
        self.programs = Programs(address) if programs else None
        self.life, self.cookies = 1, itertools.count(1)
        super().__init__("127.0.0.1", daemon.nfs_port, source=address, **options)

    def connect_again(self):
        """After a restart of the server."""
        self.close_link()
        super().__init__("127.0.0.1", self.daemon.nfs_port, source=self.address, **self.options)

    def close_link(self):
        super().close()

    def close(self):
        super().close()
        if self.programs:
            self.programs.close()

    @property
    def granted(self):
        return self.programs.granted

    @property
    def notified(self):
        return self.programs.notified

    # ---- calls ----

    def file(self, handle, process, owner, start, length):
        owner = owner or f"{process}@{self.name}"
        return opaque(self.name) + opaque(handle) + opaque(owner) + u32(process) + u64(start) + u64(length)

    def cookie(self):
        return opaque(u32(next(self.cookies)))

    def nlm(self, procedure, arguments):
        return self.call(NLM, 4, procedure, arguments)

    def stat(self, procedure, arguments):
        cookie = self.cookie()
        r = self.nlm(procedure, cookie + arguments)
        assert opaque(r.opaque()) == cookie
        stat = r.u32()
        if procedure not in (SHARE, UNSHARE):
            r.done()
        return stat

    def lock_arguments(self, handle, start, length, exclusive, process, owner, waits, reclaim):
        file = self.file(handle, process, owner, start, length)
        return u32(waits) + u32(exclusive) + file + u32(reclaim) + u32(self.life)

    def lock(self, handle, start=0, length=0, exclusive=True, process=1, owner=None, waits=False, reclaim=False, procedure=LOCK):
        return self.stat(procedure, self.lock_arguments(handle, start, length, exclusive, process, owner, waits, reclaim))

    def test(self, handle, start=0, length=0, exclusive=True, process=1, owner=None):
        """(status, the lock in the way)"""
        cookie = self.cookie()
        r = self.nlm(TEST, cookie + u32(exclusive) + self.file(handle, process, owner, start, length))
        assert opaque(r.opaque()) == cookie
        stat, holder = r.u32(), None
        if stat == DENIED:
            holder = SimpleNamespace(exclusive=r.bool(), process=r.u32(), owner=r.opaque(), start=r.u64(), length=r.u64())
        r.done()
        return stat, holder

    def unlock(self, handle, start=0, length=0, process=1, owner=None):
        return self.stat(UNLOCK, self.file(handle, process, owner, start, length))

    def cancel(self, handle, start=0, length=0, exclusive=True, process=1, owner=None):
        return self.stat(CANCEL, u32(1) + u32(exclusive) + self.file(handle, process, owner, start, length))

    def share(self, handle, mode, access, owner="share", procedure=SHARE, reclaim=False):
        arguments = opaque(self.name) + opaque(handle) + opaque(owner) + u32(mode) + u32(access) + u32(reclaim)
        return self.stat(procedure, arguments)

    def free_all(self, name=None, life=0):
        self.nlm(FREE_ALL, opaque(name or self.name) + u32(life)).done()

    def ask_by_message(self, procedure, arguments):
        """A call that is answered by a call: (procedure, cookie, status) of that."""
        cookie = self.cookie()
        self.nlm(procedure, cookie + arguments).done()
        answered, got, stat = self.programs.results.get(timeout=20)
        assert opaque(got) == cookie
        return answered, stat

    def restarted(self, life=3, name=None, reserved=True):
        """SM_NOTIFY over UDP, as Linux sends it; waits for the answer."""
        notify = self.message(NSM, 1, NOTIFY, opaque(name or self.name) + u32(life), 0x77)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
            bind(link, self.address, reserved)
            link.settimeout(10)
            link.sendto(notify, ("127.0.0.1", self.daemon.nfs_port))
            reply = Reader(link.recv(1000))
        assert (reply.u32(), reply.u32()) == (0x77, 1)
        self.life = life
        return reply.u32() == 0


def bind(link, address, reserved):
    for _ in RESERVED_PORTS:
        try:
            return link.bind((address, RESERVED_PORTS[next(turns) % len(RESERVED_PORTS)] if reserved else 0))
        except OSError as error:
            if error.errno not in UNUSABLE:
                raise
    raise OSError(f"no port below 1024 is free at {address}, process {os.getpid()}")
