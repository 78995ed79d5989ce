"""What `larder up` says to the people who start it, on machines with other networks than this one has."""

import os
import re
import selectors
import stat
import subprocess
import time

import pytest

from conftest import make

ADDRESS = "10.213.9.1"


@pytest.fixture
def box():
    """A network namespace with one network and no default route, as a box has that is wired to one machine."""
    name = f"larder-alone-{os.getpid()}"
    ip = lambda *words: subprocess.run(["ip", *words], check=True)
    ip("netns", "add", name)
    try:
        ip("-n", name, "link", "add", "lan", "type", "veth", "peer", "name", "far")
        ip("-n", name, "addr", "add", f"{ADDRESS}/24", "dev", "lan")
        for link in ("lan", "far"):
            ip("-n", name, "link", "set", link, "up")
        ip("-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


def said_until(process, what, limit_s=60):
    """What a program prints, up to and with a line."""
    text, end = b"", time.monotonic() + limit_s
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while what not in text.decode(errors="replace"):
            assert time.monotonic() < end, text.decode(errors="replace")
            if selector.select(0.2):
                piece = os.read(process.stdout.fileno(), 65536)
                assert piece, text.decode(errors="replace")
                text += piece
    return text.decode()


def test_addresses_without_a_default_route(folder, box):
    daemon = make(folder, extra=["--nfs-allow", "10.213.9.0/24", "--sftp", ":10022", "--webdavs", ":10443",
                                 "--replication", ":0"])
    words = [word for word in daemon.command() if word != "--json"]
    words[words.index("--nfs") + 1], words[words.index("--smb") + 1] = "0.0.0.0:12049", "0.0.0.0:12445"
    process = subprocess.Popen(["ip", "netns", "exec", box, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=daemon.data)
    try:
        said = said_until(process, "Stop with Ctrl-C")
        assert "127.0.0.1" not in said, said
        for what in (f"{ADDRESS}:/", f"//{ADDRESS}/", f"keeper@{ADDRESS}", f"https://{ADDRESS}:10443"):
            assert what in said, f"{what} in\n{said}"
        inside = ["ip", "netns", "exec", box, daemon.program, "--data", str(daemon.data)]
        code = subprocess.run([*inside, "replicate", "accept", "tank/copy"], capture_output=True, text=True, check=True)
        assert f"larder://{ADDRESS}" in code.stdout, code.stdout
        shown = subprocess.run(["openssl", "x509", "-noout", "-text", "-in", daemon.data / "webdav_certificate.pem"],
                               capture_output=True, text=True, check=True).stdout
        assert f"IP Address:{ADDRESS}" in shown, shown
    finally:
        process.terminate()
        assert process.wait(60) == 0


def test_everybody_may_read_the_certificate_and_nobody_the_key(folder):
    daemon = make(folder, extra=["--webdavs", "127.0.0.1:0"])
    before = os.umask(0o077)
    try:
        daemon.start()
    finally:
        os.umask(before)
    try:
        mode = lambda name: stat.S_IMODE((daemon.data / name).stat().st_mode)
        assert (mode("webdav_certificate.pem"), mode("webdav_key.pem")) == (0o644, 0o600)
    finally:
        daemon.end()


def test_a_new_volume_says_with_whom_it_is_shared(fresh):
    said = fresh.run("volume", "create", "anns", check=True).stdout
    assert said.startswith("made the volume tank/anns\n"), said
    assert "shared as 'anns': SMB, SFTP and WebDAV with all users; NFS with this machine" in said, said
    closing = re.search(r"larder (share set anns --users) NAMES", said)
    assert closing, said
    fresh.run(*closing.group(1).split(), "none", check=True)
    rows = fresh.run("share", "list", check=True).stdout
    assert re.search(r"anns.*nobody", rows), rows
    said = fresh.run("volume", "create", "alone", "--no-share", check=True).stdout
    assert said.strip() == "made the volume tank/alone", said
    assert "alone" not in fresh.run("share", "list", check=True).stdout
