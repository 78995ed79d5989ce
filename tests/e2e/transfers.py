"""Transfers with one thing wrong each, over NFS, SMB, SFTP and WebDAV: for `larder top`, which has to name it.

Run as a program it is a relay (relay SPACE SPACE DELAY LOSS), or a client: DOOR DEED HOST PORT SHARE USER PASSWORD-FILE BLOCK DEPTH PACE FILE.
DEED: read, write, or sync (each write waits until it is durable). DEPTH: requests under way at a time. PACE: bytes a second
that the client takes or gives by itself, 0 for all that it can. It goes on until it is ended.
"""

import base64
import contextlib
import ctypes
import fcntl
import heapq
import os
import random
import select
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

HERE, THERE = "10.99.8.1", "10.99.8.2"


def sh(*words):
    return subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True).stdout


@contextlib.contextmanager
def two_machines():
    """Two network namespaces with a wire between them: the daemon's and the client's."""
    names = [f"ltd{os.getpid()}", f"ltc{os.getpid()}"]
    made = []
    try:
        for name in names:
            sh("ip", "netns", "add", name)
            made.append(name)
        sh("ip", "link", "add", "lan", "netns", names[0], "type", "veth", "peer", "name", "lan", "netns", names[1])
        for name, address in zip(names, (HERE, THERE)):
            sh("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "lan")
            for link in ("lo", "lan"):
                sh("ip", "-n", name, "link", "set", link, "up")
        yield names
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False)


@contextlib.contextmanager
def shaped(space, *discipline):
    """What leaves a namespace passes this queueing discipline."""
    sh("tc", "-n", space, "qdisc", "add", "dev", "lan", "root", *discipline)
    try:
        yield
    finally:
        sh("tc", "-n", space, "qdisc", "del", "dev", "lan", "root")


def enter(space):
    """This process, in the network namespace of an open file."""
    clone_newnet = 0x40000000
    if ctypes.CDLL(None, use_errno=True).setns(space, clone_newnet) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class Relay:
    """A wire of our own between the namespaces, for kernels without netem: it delays each packet, and loses some of each way."""

    PACKET_MAX = 2048
    # More wait in a full queue, and are dropped, as by a switch.
    QUEUE_MAX = 1000

    def __init__(self, spaces, delay_s, loss):
        self.ends = [self.tap(space) for space in spaces]
        self.delay_s, self.loss = delay_s, loss

    @staticmethod
    def tap(space):
        """A network card in a namespace whose wire is the file."""
        here = os.open("/proc/self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{space}", os.O_RDONLY)
        enter(there)
        try:
            card = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            # TUNSETIFF of IFF_TUN | IFF_NO_PI
            fcntl.ioctl(card, 0x400454CA, struct.pack("16sH22x", b"relay", 0x0001 | 0x1000))
        finally:
            enter(here)
            os.close(here)
            os.close(there)
        return card

    def run(self):
        rng, waiting, count = random.Random(7), [[], []], 0
        while True:
            due = [queue[0][0] for queue in waiting if queue]
            timeout = max(min(due) - time.monotonic(), 0) if due else None
            ready, _, _ = select.select(self.ends, [], [], timeout)
            for card in ready:
                to = 1 - self.ends.index(card)
                for _ in range(64):
                    try:
                        packet = os.read(card, self.PACKET_MAX)
                    except BlockingIOError:
                        break
                    count += 1
                    if rng.random() >= self.loss and len(waiting[to]) < self.QUEUE_MAX:
                        heapq.heappush(waiting[to], (time.monotonic() + self.delay_s, count, packet))
            now = time.monotonic()
            for to, queue in enumerate(waiting):
                while queue and queue[0][0] <= now:
                    with contextlib.suppress(OSError):
                        os.write(self.ends[to], heapq.heappop(queue)[2])


@contextlib.contextmanager
def relayed(spaces, delay_s, loss=0.0):
    """The way between the namespaces leads through a relay."""
    words = ["/usr/bin/python3", __file__, "relay", *spaces, delay_s, loss]
    process = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        for space, far in zip(spaces, (THERE, HERE)):
            sh("ip", "-n", space, "link", "set", "relay", "mtu", 1500, "up")
            sh("ip", "-n", space, "route", "add", f"{far}/32", "dev", "relay", "src", HERE if far == THERE else THERE)
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextlib.contextmanager
def control_group(controller, files, pid):
    """A process in a control group with these limits, in version 2 or 1."""
    base = Path("/sys/fs/cgroup")
    unified = (base / "cgroup.controllers").exists()
    top = base if unified else base / controller
    group = top / f"larder-top-{os.getpid()}"
    if unified:
        (base / "cgroup.subtree_control").write_text("+io" if controller == "blkio" else f"+{controller}")
    group.mkdir()
    try:
        for name, text in files(unified).items():
            (group / name).write_text(text)
        (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        with contextlib.suppress(OSError):
            (top / "cgroup.procs").write_text(str(pid))
        for _ in range(50):
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.1)


def processor_part(share):
    """The limit that leaves a process this part of one core."""
    def files(unified):
        quota = int(100_000 * share)
        return {"cpu.max": f"{quota} 100000"} if unified else {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": str(quota)}
    return files


def disk_rate(device, bytes_per_s, ways=("read", "write")):
    """The limit that leaves a process so many bytes a second of a device."""
    numbers = Path(f"/sys/class/block/{Path(device).name}/dev").read_text().strip()

    def files(unified):
        if unified:
            return {"io.max": f"{numbers} " + " ".join(f"{way[0]}bps={bytes_per_s}" for way in ways)}
        return {f"blkio.throttle.{way}_bps_device": f"{numbers} {bytes_per_s}" for way in ways}
    return files


@contextlib.contextmanager
def transfer(space, daemon, door, deed, *, file, block=1 << 20, depth=8, pace=0):
    """A client in a namespace that transfers until the end of the block."""
    ports = {"nfs": daemon.nfs_port, "smb": daemon.smb_port}
    port = ports.get(door) or daemon.info[door]["port"]
    words = ["ip", "netns", "exec", space, "/usr/bin/python3", __file__, door, deed, HERE, port, daemon.share, daemon.user,
             daemon.password_file, block, depth, pace, file]
    log = open(daemon.data / f"client-{door}-{deed}.log", "w+")
    process = subprocess.Popen(list(map(str, words)), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()
        log.close()


# The client's own side.


class Pace:
    """Holds a client to its pace, in steps of a twentieth of a second."""

    def __init__(self, bytes_per_s):
        self.rate, self.begun, self.done = bytes_per_s, time.monotonic(), 0

    def took(self, count):
        self.done += count
        if self.rate:
            ahead = self.done / self.rate - (time.monotonic() - self.begun)
            if ahead > 0.05:
                time.sleep(ahead)


def nfs(deed, host, port, share, user, password, block, depth, pace, name):
    import nfs3

    client = nfs3.Nfs3.mount(host, port, f"/{share}", reserved=True)
    if pace and deed == "read":
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 128 << 10)
    if deed == "read":
        made = client.lookup(client.root, name)
    else:
        made = client.create(client.root, name)
    handle = made.handle
    data, at, xid, under_way = os.urandom(block), 0, 1, 0
    size = client.getattr(handle).size if deed == "read" else 1 << 40
    end = max(size // block, 1) * block
    wrap = end if deed == "read" else 512 << 20
    paced = Pace(pace)
    while True:
        while under_way < depth:
            xid += 1
            if deed == "read":
                client.send(nfs3.NFS_PROGRAM, 3, 6, nfs3.opaque(handle) + nfs3.u64(at) + nfs3.u32(block), xid)
            else:
                stable = 2 if deed == "sync" else 0
                arguments = nfs3.opaque(handle) + nfs3.u64(at) + nfs3.u32(block) + nfs3.u32(stable) + nfs3.opaque(data)
                client.send(nfs3.NFS_PROGRAM, 3, 7, arguments, xid)
                paced.took(block)
            at, under_way = (at + block) % wrap, under_way + 1
        client.receive()
        under_way -= 1
        if deed == "read":
            paced.took(block)


def sftp(deed, host, port, share, user, password, block, depth, pace, name):
    ask = Path(name).name + f".ask{os.getpid()}"
    ask = Path("/tmp") / ask
    ask.write_text(f"#!/bin/sh\necho '{password}'\n")
    ask.chmod(0o700)
    env = {**os.environ, "SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force"}
    limit = ["-l", str(pace * 8 // 1000)] if pace else []
    words = ["sftp", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o",
             "PubkeyAuthentication=no", "-B", str(min(block, 255 << 10)), "-R", str(depth), *limit, "-P", str(port), "-o", "BatchMode=no", "-b", "-", f"{user}@{host}"]
    source = Path("/dev/shm") / f"larder-top-{os.getpid()}"
    try:
        if deed != "read":
            with open(source, "wb") as file:
                file.write(os.urandom(1 << 20) * 64)
        line = f"get /{share}/{name} /dev/null\n" if deed == "read" else f"put {source} /{share}/{name}\n"
        while True:
            subprocess.run(words, env=env, input=line * 50, text=True, check=True)
    finally:
        ask.unlink()
        source.unlink(missing_ok=True)


def webdav(deed, host, port, share, user, password, block, depth, pace, name):
    credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
    head = f"Host: {host}\r\nAuthorization: Basic {credentials}\r\n"
    paced = Pace(pace)
    s = socket.socket()
    if pace:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 128 << 10)
    s.connect((host, port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def answer():
        head = b""
        while b"\r\n\r\n" not in head:
            head += s.recv(65536)
        head, rest = head.split(b"\r\n\r\n", 1)
        lengths = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        length = int(lengths[0].split(b":")[1]) if lengths else 0
        assert head.split(b" ")[1][:1] == b"2", head
        left = length - len(rest)
        paced.took(len(rest))
        while left > 0:
            got = len(s.recv(min(left, 65536)))
            assert got, "closed"
            left -= got
            paced.took(got)
        return length

    at = 0
    while True:
        if deed == "read":
            part = f"Range: bytes={at}-{at + block - 1}\r\n" if depth == 1 else ""
            s.sendall(f"GET /{share}/{name} HTTP/1.1\r\n{head}{part}\r\n".encode())
            answer()
            at = (at + block) % (32 << 20)
        else:
            # Small files one after another, or one large one.
            size = block if depth == 1 else 256 << 20
            s.sendall(f"PUT /{share}/{name} HTTP/1.1\r\n{head}Content-Length: {size}\r\n\r\n".encode())
            data = os.urandom(min(size, 64 << 10))
            sent = 0
            while sent < size:
                part = data[:size - sent]
                s.sendall(part)
                sent += len(part)
                paced.took(len(part))
            answer()


def smb(deed, host, port, share, user, password, block, depth, pace, name):
    """impacket asks for one thing after another; smbclient has several requests under way."""
    paced = Pace(pace)
    if depth > 1 and not (pace and deed != "read"):
        auth = Path("/tmp") / f"larder-top-auth-{os.getpid()}"
        auth.write_text(f"username={user}\npassword={password}\n")
        auth.chmod(0o600)
        source = Path("/dev/shm") / f"larder-top-{os.getpid()}"
        words = ["smbclient", f"//{host}/{share}", "-p", str(port), "-A", str(auth), "-t", "60", "-c"]
        try:
            if deed == "read" and pace:
                with subprocess.Popen([*words, f"get {name} -"], stdout=subprocess.PIPE, bufsize=0) as client:
                    while True:
                        got = client.stdout.read(64 << 10)
                        assert got, "the file is over"
                        paced.took(len(got))
            if deed != "read":
                with open(source, "wb") as file:
                    file.write(os.urandom(1 << 20) * 64)
            line = f"get {name} /dev/null" if deed == "read" else f"put {source} {name}"
            while True:
                subprocess.run([*words, "; ".join([line] * 20)], check=True)
        finally:
            auth.unlink()
            source.unlink(missing_ok=True)
    from impacket.smbconnection import SMBConnection

    client = SMBConnection(host, host, sess_port=port)
    client.login(user, password)
    tree = client.connectTree(share)
    file = client.openFile(tree, name) if deed == "read" else client.createFile(tree, name)
    at, data = 0, os.urandom(block)
    while True:
        if deed == "read":
            client.readFile(tree, file, at, block, singleCall=True)
            at = (at + block) % (32 << 20)
        else:
            client.writeFile(tree, file, data, at)
            at = (at + block) % (256 << 20)
        paced.took(block)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    if sys.argv[1] == "relay":
        relay = Relay(sys.argv[2:4], float(sys.argv[4]), float(sys.argv[5]))
        print("ready", flush=True)
        relay.run()
    door, deed, host, port, share, user, secret, block, depth, pace, name = sys.argv[1:]
    run = {"nfs": nfs, "smb": smb, "sftp": sftp, "webdav": webdav}[door]
    run(deed, host, int(port), share, user, Path(secret).read_text().strip(), int(block), int(depth), int(pace), name)
