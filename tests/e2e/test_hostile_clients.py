"""Slow and hostile clients on the ports of SFTP and WebDAV, plain and behind TLS. Honest clients go on meanwhile.

And clients with a right who take all places of a door, of SMB and NFS too.
"""

import contextlib
import http.client
import os
import resource
import select
import shutil
import socket
import ssl
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from impacket.smbconnection import SMBConnection

import nfs3
from conftest import client, make
from hostile import basic
from test_access import add_user
from test_sftp import Client
from test_webdav import Dav
from trees import payload
from waiting import wait_for

DOORS = ("sftp", "webdav", "webdavs")
# As in crates/doors/src/door.rs and the servers' settings.
STRANGERS_MAX = 256
CONNECTIONS_MAX = 4096
LONG_BYTES = 64 << 20
ANN = "Pantry-Shelf-43"


@pytest.fixture(scope="module")
def daemon():
    place = Path(tempfile.mkdtemp(prefix="larder-e2e-"))
    daemon = make(place, extra=["--sftp", "127.0.0.1:0", "--webdav", "127.0.0.1:0", "--webdavs", "127.0.0.1:0"]).start()
    Dav(daemon).put(f"/{daemon.share}/long", payload(LONG_BYTES, 1))
    yield daemon
    log, code = daemon.log(), daemon.stop()
    shutil.rmtree(place, ignore_errors=True)
    assert code == 0 and "panicked" not in log, log[-4000:]


@pytest.fixture
def many_files():
    """This process holds more connections than a shell lets it."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextlib.contextmanager
def closing():
    """A list of sockets, closed in the end."""
    held = []
    try:
        yield held
    finally:
        for one in held:
            one.close()


def reach(daemon, door):
    return socket.create_connection(("127.0.0.1", daemon.info[door]["port"]), timeout=10)


def writable(s, limit_s=10):
    # Not select(), which takes no descriptor above 1,023.
    poll = select.poll()
    poll.register(s, select.POLLOUT)
    return poll.poll(limit_s * 1000)


def reach_many(daemon, door, source, count):
    """Connections that say nothing, from one address: some at a time, fewer than the least queue of a listener."""
    made = []
    while len(made) < count:
        some = [socket.socket() for _ in range(min(64, count - len(made)))]
        for s in some:
            s.setblocking(False)
            s.bind((source, 0))
            s.connect_ex(("127.0.0.1", daemon.info[door]["port"]))
        made += some
        for s in some:
            assert writable(s), "no connection"
    return made


def is_open(s):
    """Whether the server keeps the connection. Bytes that it sent do not matter."""
    s.setblocking(False)
    try:
        while s.recv(65536):
            pass
        return False
    except (BlockingIOError, ssl.SSLWantReadError):
        return True
    except OSError:
        return False


def honest(daemon, folder):
    """A new client of each door, with a limit of its time; each is answered."""
    began = time.monotonic()
    path = f"/{daemon.share}/honest"
    Dav(daemon).put(path, b"fine")
    done = subprocess.run(
        ["curl", "-sSfk", "-m", "10", "-u", f"{daemon.user}:{daemon.password}", f"https://127.0.0.1:{daemon.info['webdavs']['port']}{path}"],
        capture_output=True, text=True, check=False,
    )
    assert done.stdout == "fine", done.stderr
    Client(daemon, folder).sftp(f"get {path} {folder}/honest", timeout_s=10)
    assert (folder / "honest").read_bytes() == b"fine"
    assert time.monotonic() - began < 10, "honest clients wait for hostile ones"


def head(daemon, method, name, *more):
    lines = [f"{method} /{daemon.share}/{name} HTTP/1.1", "Host: x", f"Authorization: {Dav(daemon).authorization}", *more]
    return "\r\n".join(lines).encode()


def test_idle_connections_of_one_address_make_room_for_its_newcomers(daemon, folder):
    for door in DOORS:
        with closing() as held:
            held += reach_many(daemon, door, "127.0.0.1", STRANGERS_MAX + 40)
            honest(daemon, folder)
            kept = wait_for(lambda: (kept := [is_open(s) for s in held]) and sum(kept) <= STRANGERS_MAX and kept, 10)
            # The honest client was a stranger for a moment, and took a place too.
            assert sum(kept) >= STRANGERS_MAX - 5, f"{door}: {sum(kept)} are left"
            assert not any(kept[:40]) and all(kept[-200:]), f"{door}: others than the oldest ended"


@pytest.mark.parametrize("door", DOORS[:2])
def test_a_full_server_lets_people_in(daemon, folder, many_files, door):
    before, addresses = daemon.rss_bytes(), CONNECTIONS_MAX // STRANGERS_MAX + 1
    with closing() as held:
        for n in range(addresses):
            held += reach_many(daemon, door, f"127.0.1.{n + 1}", STRANGERS_MAX)
        # Evicted ones end first: newcomers beside more than 256 that are ending are refused.
        assert wait_for(lambda: sum(map(is_open, held)) <= CONNECTIONS_MAX, 10)
        honest(daemon, folder)
        grown = daemon.rss_bytes() - before
        print(f"{door}: {grown >> 20} MiB for {sum(map(is_open, held))} idle connections")
        assert grown < 512 << 20, f"{grown >> 20} MiB"
    wait_for(lambda: f"larder_serve_{door}_connections 0\n" in daemon.run("metrics", check=True).stdout, 10)


def test_heads_and_bodies_that_stall_and_readers_that_do_not_read(daemon, folder):
    before = daemon.rss_bytes()
    with closing() as held:
        for n in range(30):
            # A head that comes in drops, a body that stops, an answer that nobody takes, many requests and no ear.
            for text in (head(daemon, "GET", "long")[: 40 + n], head(daemon, "PUT", f"stalled-{n}", "Content-Length: 9000000", "", "x" * 100_000),
                         head(daemon, "GET", "long", "", ""), head(daemon, "GET", "long", "", "") * 50,
                         head(daemon, "PROPFIND", "", "Transfer-Encoding: chunked", "", "5\r\n<a")):
                held.append(reach(daemon, "webdav"))
                held[-1].sendall(text)
        for _ in range(3):
            for s in held[::5]:
                s.send(b"a")
            honest(daemon, folder)
        assert daemon.rss_bytes() - before < 400 << 20, f"{(daemon.rss_bytes() - before) >> 20} MiB"
    # What was not sent whole is not there.
    listed = Dav(daemon)("PROPFIND", f"/{daemon.share}/", Depth="1").hrefs()
    assert not [name for name in listed if "stalled" in name], listed


def test_an_sftp_client_that_asks_and_does_not_read(daemon, folder):
    keeper = Client(daemon, folder)

    def packet(kind, *fields):
        body = bytes([kind]) + b"".join(struct.pack(">I", f) if isinstance(f, int) else struct.pack(">I", len(f)) + f for f in fields)
        return struct.pack(">I", len(body)) + body

    command = ["ssh", *keeper.options(), "-p", str(keeper.port), "keeper@127.0.0.1", "-s", "sftp"]
    before = daemon.rss_bytes()
    ssh = subprocess.Popen(command, env=keeper.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        ssh.stdin.write(packet(1, 3) + packet(3, 1, f"/{daemon.share}/long".encode(), 1, 0))
        ssh.stdin.flush()
        version = os.read(ssh.stdout.fileno(), 4)
        os.read(ssh.stdout.fileno(), struct.unpack(">I", version)[0])
        _, _, _, handle_length = struct.unpack(">IBII", os.read(ssh.stdout.fileno(), 13))
        handle = os.read(ssh.stdout.fileno(), handle_length)
        # Reads of the whole file, again and again, until nobody takes more requests.
        reads = b"".join(packet(5, n, handle, 0, n % 200 * 262_144, 262_144) for n in range(2000))
        os.set_blocking(ssh.stdin.fileno(), False)
        sent, end = 0, time.monotonic() + 3
        while time.monotonic() < end and ssh.poll() is None:
            if select.select([], [ssh.stdin], [], 0.2)[1]:
                with contextlib.suppress(BlockingIOError, BrokenPipeError):
                    sent += os.write(ssh.stdin.fileno(), reads[sent % len(reads):][:65536])
        assert sent > 100_000
        honest(daemon, folder)
        assert daemon.rss_bytes() - before < 200 << 20, f"{(daemon.rss_bytes() - before) >> 20} MiB"
    finally:
        ssh.kill()
        ssh.wait()
        ssh.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            ssh.stdin.close()


def test_many_sftp_channels_that_ask_and_do_not_read(daemon, folder):
    """A user's connections hold little together: those that hold most end."""
    keeper = Client(daemon, folder)

    def packet(kind, *fields):
        body = bytes([kind]) + b"".join(struct.pack(">I", f) if isinstance(f, int) else struct.pack(">I", len(f)) + f for f in fields)
        return struct.pack(">I", len(body)) + body

    def whole(channel, count):
        got = b""
        while len(got) < count:
            got += (more := os.read(channel.stdout.fileno(), count - len(got)))
            assert more, "the channel ended"
        return got

    def answer(channel):
        return whole(channel, struct.unpack(">I", whole(channel, 4))[0])

    ssh = ["ssh", *keeper.options(), "-p", str(keeper.port)]
    before, masters, channels = daemon.rss_bytes(), [], []
    try:
        for n in range(4):
            path = folder / f"master{n}"
            masters.append(subprocess.Popen([*ssh, "-M", "-S", path, "-N", "keeper@127.0.0.1"], env=keeper.env, stderr=subprocess.DEVNULL))
            assert wait_for(path.exists, 20)
            for _ in range(10):
                channel = subprocess.Popen([*ssh, "-S", path, "-s", "keeper@127.0.0.1", "sftp"], env=keeper.env, stdin=subprocess.PIPE,
                                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0)
                channels.append(channel)
                channel.stdin.write(packet(1, 3) + packet(3, 1, f"/{daemon.share}/long".encode(), 1, 0))
                answer(channel)
                handle = answer(channel)[9:]
                # A write to a file that is open to read: it waits behind reads whose answers nobody takes.
                reads = b"".join(packet(5, n, handle, 0, n % 16 * 262_144, 262_144) for n in range(200))
                channel.todo = [memoryview(reads)] + [memoryview(packet(6, 9, handle, 0, 0, bytes(250_000)))] * 62
                os.set_blocking(channel.stdin.fileno(), False)
        most, end = 0, time.monotonic() + 20
        while time.monotonic() < end and any(channel.todo for channel in channels):
            for channel in channels:
                try:
                    while channel.todo:
                        channel.todo[0] = channel.todo[0][os.write(channel.stdin.fileno(), channel.todo[0]):]
                        if not channel.todo[0]:
                            del channel.todo[0]
                except BlockingIOError:
                    pass
                except BrokenPipeError:
                    channel.todo = []
            most = max(most, daemon.rss_bytes() - before)
            time.sleep(0.01)
        honest(daemon, folder)
        most = max(most, daemon.rss_bytes() - before)
        # 1.1 GiB, were each channel bounded by itself.
        assert most < 640 << 20, f"{most >> 20} MiB"
        assert any(master.poll() is not None for master in masters), "no connection ended"
    finally:
        for process in channels + masters:
            process.kill()
            process.wait()
        for channel in channels:
            channel.stdout.close()
            with contextlib.suppress(BrokenPipeError):
                channel.stdin.close()


def test_garbage_and_half_handshakes(daemon, folder):
    hello = bytes.fromhex("160301 0200 010001fc 0303".replace(" ", "")) + os.urandom(32)
    junk = {
        "webdavs": [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", os.urandom(20_000), b"\x16\x03\x01\xff\xff" + b"\0" * 70_000, hello + b"\xff" * 600,
                    b"\x15\x03\x03\x00\x02\x02\x28", b"\x16\x03\x01\x00\x00" * 2000],
        "webdav": [b"\0" * 5000, os.urandom(50_000), b"\x16\x03\x01\x02\x00" + os.urandom(512)],
        "sftp": [b"\x16\x03\x01\x02\x00" + os.urandom(512), b"SSH-2.0-x\r\n\xff\xff\xff\xff" + os.urandom(5000), b"SSH-1.5-x\r\n",
                 b"SSH-2.0-" + b"x" * 100_000, b"SSH-2.0-x\r\n\0\0\0\x0c\x0a\x14" + b"\0" * 10],
    }
    before = daemon.rss_bytes()
    with closing() as held:
        for door, texts in junk.items():
            for text in texts * 5:
                held.append(reach(daemon, door))
                with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                    held[-1].sendall(text)
        # The first bytes of a handshake, and then nothing.
        for part in (hello[:3], hello[:20], hello):
            held.append(reach(daemon, "webdavs"))
            held[-1].sendall(part)
        honest(daemon, folder)
        assert daemon.rss_bytes() - before < 100 << 20
    honest(daemon, folder)


@pytest.mark.long
def test_an_idle_login_makes_room_where_everybody_has_logged_in(tmp_path):
    """Of SFTP: the one that was used longest ago ends, not one with a file open. WebDAV ends idle connections by itself."""
    limit = 16
    daemon = make(tmp_path, extra=["--sftp", "127.0.0.1:0"])
    daemon.start().stop()
    config = daemon.data / "larder.toml"
    config.write_text(config.read_text().replace("\n[limits]\n", f"\n[limits]\nconnections = {limit}\n"))
    daemon.start()
    keeper, held = Client(daemon, tmp_path), []

    def packet(kind, *fields):
        body = bytes([kind]) + b"".join(struct.pack(">I", f) if isinstance(f, int) else struct.pack(">I", len(f)) + f for f in fields)
        return struct.pack(">I", len(body)) + body

    def ask(ssh, request):
        ssh.stdin.write(request)
        ssh.stdin.flush()
        return os.read(ssh.stdout.fileno(), 4096)

    def log_in():
        command = ["ssh", *keeper.options(), "-p", str(keeper.port), "keeper@127.0.0.1", "-s", "sftp"]
        ssh = subprocess.Popen(command, env=keeper.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        held.append(ssh)
        return ssh if ask(ssh, packet(1, 3)) else None

    try:
        keeper.sftp(f"put {keeper.ask} /{daemon.share}/file")
        for _ in range(limit):
            assert log_in()
        assert ask(held[0], packet(3, 1, f"/{daemon.share}/file".encode(), 1, 0))[4] == 102, "a handle"
        assert not log_in(), "everybody was at work a moment ago"
        time.sleep(62)
        for ssh in held[3:limit]:
            assert ask(ssh, packet(16, 1, b"/"))
        assert log_in()
        assert wait_for(lambda: held[1].poll() is not None, 10)
        assert all(held[n].poll() is None for n in (0, *range(2, limit))), "others than the idle one ended"
        assert ask(held[0], packet(17, 2, f"/{daemon.share}/file".encode()))
    finally:
        for ssh in held:
            ssh.kill()
            ssh.wait()
        log = daemon.log()
        assert daemon.stop() == 0 and "panicked" not in log, log[-4000:]


class FullDoors:
    """A larder with few places at each door, and ways to take them: each returns a connection that has come in."""

    LIMIT = 64

    def __init__(self, place):
        self.place = place
        self.daemon = make(place, extra=["--sftp", "127.0.0.1:0", "--webdav", "127.0.0.1:0", "--webdavs", "127.0.0.1:0"])
        self.daemon.start().stop()
        config = self.daemon.data / "larder.toml"
        config.write_text(config.read_text().replace("\n[limits]\n", f"\n[limits]\nconnections = {self.LIMIT}\n"))
        self.daemon.start()
        add_user(self.daemon, "ann", password=ANN)
        self.daemon.run("share", "set", self.daemon.share, "--guest=yes", check=True)
        self.passwords = {"ann": ANN, "keeper": (self.daemon.data / "password").read_text().strip()}
        # What would close its socket if it were dropped.
        self.kept, self.children = [], []

    def webdav(self, user):
        s = reach(self.daemon, "webdav")
        request = f"OPTIONS / HTTP/1.1\r\nHost: x\r\nAuthorization: {basic(user, self.passwords[user])}\r\n\r\n"
        s.sendall(request.encode())
        return s if s.recv(4096).startswith(b"HTTP/1.1 200") else s.close()

    def page(self, user):
        """A login by the file view and a page after it, over TLS."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        http_ = http.client.HTTPSConnection("127.0.0.1", self.daemon.info["webdavs"]["port"], timeout=10, context=context)
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        http_.request("POST", "/.larder/login", body=f"name={user}&password={self.passwords[user]}", headers=form)
        answer = http_.getresponse()
        answer.read()
        assert answer.status == 303
        cookie = answer.headers["Set-Cookie"].split(";")[0]
        http_.request("GET", "/?shares", headers={"Cookie": cookie, "Accept": "text/html"})
        return http_.sock if http_.getresponse().status == 200 else http_.close()

    def smb(self, user):
        """`guest` has no password."""
        try:
            c = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=self.daemon.smb_port, timeout=10)
            c.login(user, self.passwords.get(user, ""))
            c.connectTree(self.daemon.share)
        except Exception:  # noqa: BLE001 - impacket raises what it likes where a connection ends
            return None
        self.kept.append(c)
        return c.getSMBServer().get_socket()

    def nfs(self, source):
        try:
            nfs = nfs3.Nfs3("127.0.0.1", self.daemon.nfs_port, source=source, timeout_s=10)
            nfs.getattr(self.root)
        except (OSError, EOFError, struct.error):
            return None
        return nfs.socket

    def sftp(self, user):
        keeper = Client(self.daemon, self.place, user, self.passwords[user])
        command = ["ssh", *keeper.options(), "-p", str(keeper.port), f"{user}@127.0.0.1", "-s", "sftp"]
        ssh = subprocess.Popen(command, env=keeper.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        ssh.stdin.write(struct.pack(">IBI", 5, 1, 3))
        ssh.stdin.flush()
        self.children.append(ssh)
        return ssh if os.read(ssh.stdout.fileno(), 4096) else None


@pytest.fixture(scope="module")
def full_doors():
    place = Path(tempfile.mkdtemp(prefix="larder-e2e-"))
    doors = FullDoors(place)
    yield doors
    log, code = doors.daemon.log(), doors.daemon.stop()
    shutil.rmtree(place, ignore_errors=True)
    assert code == 0 and "panicked" not in log, log[-4000:]


@pytest.mark.parametrize(
    ("take", "greedy", "others"),
    [("webdav", "ann", ("webdav", "page")), ("smb", "guest", ("smb",)), ("smb", "ann", ("smb",)), ("nfs", "127.0.0.1", ("nfs",))],
)
def test_nobody_takes_all_places_of_a_door(full_doors, take, greedy, others):
    """A newcomer of another party takes the place of the newest one. One more of the same is refused itself."""
    newcomer = "127.0.0.9" if take == "nfs" else "keeper"
    if take == "nfs":
        with client(full_doors.daemon) as one:
            full_doors.root = one.root
    with closing() as held:
        for n in range(full_doors.LIMIT):
            held.append(getattr(full_doors, take)(greedy))
            assert held[-1], f"{n} came in"
        assert not getattr(full_doors, take)(greedy), "more than there are places"
        assert all(map(is_open, held)), "it took the place of its own"
        came = [getattr(full_doors, door)(newcomer) for door in others for _ in range(8)]
        assert all(came), f"{sum(map(bool, came))} of {len(came)} came in"
        assert wait_for(lambda: [is_open(s) for s in held] == [True] * (len(held) - len(came)) + [False] * len(came), 10)
        assert not getattr(full_doors, take)(greedy)
        held += came
        assert all(map(is_open, came))


def test_a_user_takes_not_all_places_of_sftp(full_doors):
    try:
        held = [full_doors.sftp("ann") for _ in range(full_doors.LIMIT)]
        assert all(held) and not full_doors.sftp("ann")
        assert full_doors.sftp("keeper") and wait_for(lambda: held[-1].poll() is not None, 10)
        assert all(ssh.poll() is None for ssh in held[:-1])
    finally:
        for ssh in full_doors.children:
            ssh.kill()
            ssh.wait()
