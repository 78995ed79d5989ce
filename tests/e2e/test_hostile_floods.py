"""Floods from eight addresses at every door at once: memory is bounded, others go on, a right login is quick."""

import contextlib
import http.client
import json
import multiprocessing
import os
import shutil
import socket
import ssl
import struct
import tempfile
import threading
import time
from pathlib import Path

import pytest

import nfs3
from conftest import client, make
from hostile import Smb, ask, lift_limits, log_in, reach
from test_access import add_user
from waiting import wait_for

SOURCES = [f"127.0.3.{n}" for n in range(1, 9)]
# Connections of each address at each door, of each kind of attack.
EACH = int(os.environ.get("LARDER_FLOOD", "64"))
FLOOD_S = float(os.environ.get("LARDER_FLOOD_S", "6"))
GROWTH_BYTES_MAX = 128 << 20
# What is promised of a machine that has nothing else to do, and what a loaded one is let off.
GETATTR_S, LOGIN_S, LOADED = 0.05, 2, 5
ANN = "Pantry-Shelf-43"


@pytest.fixture(scope="module")
def daemon():
    place = Path(tempfile.mkdtemp(prefix="larder-e2e-"))
    lift_limits()
    with socket.socket() as free, socket.socket() as another:
        for one in (free, another):
            one.bind(("127.0.0.1", 0))
        replication, metrics = free.getsockname()[1], another.getsockname()[1]
    doors = [word for door in ("sftp", "webdav", "webdavs") for word in (f"--{door}", "127.0.0.1:0")]
    daemon = make(place, extra=[*doors, "--replication", f"127.0.0.1:{replication}"]).start()
    daemon.stop()
    with open(daemon.data / "larder.toml", "a") as config:
        config.write(f'\n[metrics]\nlisten = "127.0.0.1:{metrics}"\n')
    daemon.start()
    daemon.ports = {"smb": daemon.smb_port, "nfs": daemon.nfs_port, "replication": replication, "metrics": metrics}
    daemon.ports |= {door: daemon.info[door]["port"] for door in ("webdav", "webdavs", "sftp")}
    add_user(daemon, "ann", password=ANN)
    made = daemon.run("token", "create", "ann", "--read-only", "--json", check=True)
    daemon.token = json.loads(made.stdout)["token"]
    yield daemon
    log, code = daemon.log(), daemon.stop()
    shutil.rmtree(place, ignore_errors=True)
    assert code == 0 and "panicked" not in log, log[-4000:]


# Each takes a connection and sends what a flood sends; it is kept open.


def smb_frame(s):
    """A request of 4 MiB of which the end never comes, without a session."""
    connection = Smb.__new__(Smb)
    connection.socket, connection.message, connection.session = s, 0, 0
    connection.negotiate()
    s.sendall(struct.pack(">I", 4 << 20) + b"\xfeSMB" + b"x" * ((4 << 20) - 100))


def nfs_write(s):
    rpc = nfs3.Rpc.__new__(nfs3.Rpc)
    rpc.as_user(1000, 1000)
    arguments = nfs3.opaque(b"h" * 52) + nfs3.u64(0) + nfs3.u32(1 << 20) + nfs3.u32(0) + nfs3.opaque(b"x" * (1 << 20))
    record = rpc.message(nfs3.NFS_PROGRAM, 3, nfs3.WRITE, arguments, 7)
    s.sendall(nfs3.u32(0x80000000 | len(record)) + record[:-100])


def slow_form(s):
    s.sendall(b"POST /.larder/login HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 999_900)


def huge_head(s):
    s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 500_000)


def tls_form(s):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    s = context.wrap_socket(s)
    slow_form(s)
    return s


def ssh_packet(s):
    s.sendall(b"SSH-2.0-flood\r\n" + struct.pack(">IB", 200_000, 4) + b"\x14" + b"x" * 199_000)


def scrapes(s):
    """Many requests in one piece, of which nobody reads the answers."""
    s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 200)


def idle(s):
    pass


KINDS = {
    "smb": [smb_frame, idle],
    "nfs": [nfs_write, idle],
    "webdav": [slow_form, huge_head],
    "webdavs": [tls_form, idle],
    "sftp": [ssh_packet, idle],
    "replication": [idle],
    "metrics": [scrapes, huge_head],
}


def flood(ports, stop):
    """Opens connections of all kinds from all addresses, and others for those that end."""
    lift_limits()
    os.nice(19)  # It stands for other machines, which take no processor from this one.
    held = []

    def attack(door, kind, source):
        mine = []
        while not stop.is_set():
            with contextlib.suppress(OSError):
                s = reach(ports[door], source, 2)
                mine.append(s)
                mine.append(kind(s) or s)
            stop.wait(0.005)
            if len(mine) > 2 * EACH:
                for s in mine[:EACH]:
                    s.close()
                del mine[:EACH]
                stop.wait(0.1)
        held.extend(mine)

    kinds = [(door, kind, source) for door, some in KINDS.items() for kind in some for source in SOURCES]
    threads = [threading.Thread(target=attack, args=one) for one in kinds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for s in held:
        s.close()


def guess(port, stop):
    """Wrong passwords, from each address as many at once as it can."""
    os.nice(19)

    def one(source, number):
        tries = 0
        while not stop.is_set():
            tries += 1
            with contextlib.suppress(OSError, http.client.HTTPException):
                ask(port, "ann", f"wrong{number}-{tries}", source, timeout_s=3)

    threads = [threading.Thread(target=one, args=(source, n)) for source in SOURCES for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def xml(port, token, share, stop):
    """PROPFIND of a token that may read alone, with attributes and namespaces that take long to compare."""
    os.nice(19)
    attributes = " ".join(f'a{n}=""' for n in range(30_000))
    spaces = " ".join(f'xmlns:n{n}="u{n}"' for n in range(3000))
    bodies = [
        f'<propfind xmlns="DAV:"><prop><x {attributes}/></prop></propfind>',
        f'<propfind xmlns="DAV:"><prop {spaces}>{"<x/>" * 4000}</prop></propfind>',
        f'<propfind xmlns="DAV:"><prop {" ".join(spaces.split()[:60])}>{"<x/>" * 9000}</prop></propfind>',
    ]

    def one(source, body):
        while not stop.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                ask(port, "ann", token, source, path=f"/{share}/", body=body, timeout_s=3)

    threads = [threading.Thread(target=one, args=(source, bodies[n % 3])) for n, source in enumerate(SOURCES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def p99(times):
    return sorted(times)[int(len(times) * 0.99)]


@pytest.mark.alone
def test_floods_from_eight_addresses_are_borne(daemon):
    ports, share = daemon.ports, daemon.share
    ask(ports["webdav"], "ann", ANN, "127.0.0.9")
    before = daemon.rss_bytes()
    context = multiprocessing.get_context("fork")
    stop = context.Event()
    jobs = [(flood, (ports, stop)), (guess, (ports["webdav"], stop)), (xml, (ports["webdav"], daemon.token, share, stop))]
    attackers = [context.Process(target=run, args=args, daemon=True) for run, args in jobs]
    getattrs, logins, resident = [], [], []
    with client(daemon) as nfs:
        for attacker in attackers:
            attacker.start()
        try:
            end = time.monotonic() + FLOOD_S
            while time.monotonic() < end:
                for _ in range(20):
                    began = time.monotonic()
                    nfs.getattr(nfs.root)
                    getattrs.append(time.monotonic() - began)
                    time.sleep(0.002)
                resident.append(daemon.rss_bytes())
                if len(resident) % 10 == 5:
                    began = time.monotonic()
                    assert log_in(ports["webdav"], "ann", ANN, "127.0.0.9") == 303
                    logins.append(time.monotonic() - began)
        finally:
            stop.set()
            for attacker in attackers:
                attacker.join(20)
                if attacker.is_alive():
                    attacker.kill()
                attacker.join()
    growth = max(resident) - before
    print(f"\nflood: RSS {before >> 20} + {growth >> 20} MiB; GETATTR p99 {p99(getattrs) * 1000:.1f} ms of {len(getattrs)}, "
          f"worst {max(getattrs) * 1000:.0f} ms; logins {[round(took, 2) for took in logins]} s")
    assert daemon.alive() and logins
    assert growth < GROWTH_BYTES_MAX, f"{growth >> 20} MiB more are resident"
    assert p99(getattrs) < GETATTR_S * LOADED
    assert max(logins) < LOGIN_S * LOADED
    wait_for(lambda: daemon.rss_bytes() < before + GROWTH_BYTES_MAX / 2, 30, lambda: f"{daemon.rss_bytes() >> 20} MiB stay resident")


@pytest.mark.alone
def test_wrong_passwords_of_four_addresses_delay_no_right_one(daemon):
    port, stop = daemon.info["webdav"]["port"], threading.Event()

    def one(source, number):
        with contextlib.suppress(OSError, http.client.HTTPException):
            ask(port, "ann", f"wrong{number}", source, timeout_s=30)

    threads = [threading.Thread(target=one, args=(f"127.0.4.{n % 4 + 1}", n), daemon=True) for n in range(250)]
    for thread in threads:
        thread.start()
    began = time.monotonic()
    assert log_in(port, "ann", ANN, "127.0.0.10") == 303
    took = time.monotonic() - began
    stop.set()
    for thread in threads:
        thread.join()
    print(f"\n250 wrong passwords of four addresses at once: a right one took {took:.2f} s")
    assert took < LOGIN_S * LOADED / 2


def test_idle_connections_keep_no_machine_out_of_replication(daemon):
    port = daemon.ports["replication"]
    held = [reach(port, "127.0.0.11") for _ in range(100)]
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with reach(port, "127.0.0.12") as plain, context.wrap_socket(plain) as shaken:
            # It is asked for a certificate, which is more than a closed connection says.
            assert shaken.version() == "TLSv1.3"
    finally:
        for s in held:
            s.close()
