"""The files of GNOME (gvfs) as a client: WebDAV, SMB and SFTP, each mounted, copied to and from, listed."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

import pytest

from conftest import make
from trees import payload


class Session:
    """Commands in one private session bus, with its own gvfsd."""

    def __init__(self, place):
        # Short: ssh makes a socket below it, whose path may have 107 bytes, a hash and a suffix of 58 among them.
        self.runtime = Path(tempfile.mkdtemp(prefix="gio"))
        self.env = {**os.environ, "HOME": str(place), "XDG_RUNTIME_DIR": str(self.runtime), "XDG_DATA_HOME": str(place / "share"),
                    "XDG_CONFIG_HOME": str(place / "config"), "GIO_USE_VOLUME_MONITOR": "unix", "LC_ALL": "C.UTF-8"}
        for name in ("DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY"):
            self.env.pop(name, None)
        self.bus = subprocess.Popen(["dbus-daemon", "--session", "--nofork", "--print-address"], env=self.env,
                                    stdout=subprocess.PIPE, text=True)
        self.env["DBUS_SESSION_BUS_ADDRESS"] = self.bus.stdout.readline().strip()

    def gio(self, *words, typed="", check=True):
        done = subprocess.run(["gio", *map(str, words)], env=self.env, input=typed, capture_output=True, text=True,
                              timeout=60, check=False)
        assert not check or done.returncode == 0, f"gio {words}: {done.stdout}\n{done.stderr}"
        return done

    def end(self):
        self.bus.terminate()
        self.bus.wait(timeout=10)
        shutil.rmtree(self.runtime, ignore_errors=True)


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    one = Session(tmp_path_factory.mktemp("gio"))
    yield one
    one.end()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    daemon = make(tmp_path_factory.mktemp("daemon"), extra=["--sftp", "127.0.0.1:0", "--webdav", "127.0.0.1:0"]).start()
    yield daemon
    log = daemon.log()
    assert daemon.stop() == 0 and "panicked" not in log, log[-4000:]


def tree(at):
    return {str(path.relative_to(at)): path.read_bytes() for path in at.rglob("*") if path.is_file()}


@pytest.mark.parametrize("door", ["dav", "smb", "sftp"])
def test_a_desktop_mounts_copies_and_lists(daemon, session, tmp_path, door):
    port = daemon.smb_port if door == "smb" else daemon.info["webdav" if door == "dav" else "sftp"]["port"]
    url = f"{door}://{daemon.user}@127.0.0.1:{port}/{daemon.share}"
    # SMB asks for a domain first.
    typed = f"WORKGROUP\n{daemon.password}\n" if door == "smb" else f"{daemon.password}\n"
    session.gio("mount", url, typed=typed)
    files = {"empty": b"", "small": b"x" * 17, "big": payload(5_000_000, 1), "with blank & ü #%": b"odd"}
    source, back = tmp_path / "source", tmp_path / "back"
    for folder in (source, back):
        folder.mkdir()
    for name, data in files.items():
        (source / name).write_bytes(data)
    there = f"{url}/{door}"
    session.gio("mkdir", there)
    session.gio("copy", *source.iterdir(), there)
    listed = session.gio("list", there).stdout.splitlines()
    assert sorted(listed) == sorted(files), listed
    # Names in URLs are escaped.
    session.gio("copy", *(f"{there}/{quote(name)}" for name in files), back)
    assert tree(back) == files
    size = session.gio("info", "-a", "standard::size", f"{there}/big").stdout
    assert "standard::size: 5000000" in size, size
    # A file is replaced, renamed, moved and removed.
    (source / "small").write_bytes(b"replaced")
    session.gio("copy", source / "small", there)
    assert session.gio("cat", f"{there}/small").stdout == "replaced"
    session.gio("rename", f"{there}/small", "renamed")
    session.gio("mkdir", f"{there}/below")
    session.gio("move", f"{there}/renamed", f"{there}/below")
    session.gio("remove", f"{there}/empty")
    assert sorted(session.gio("list", there).stdout.splitlines()) == ["below", "big", "with blank & ü #%"]
    assert session.gio("list", f"{there}/below").stdout == "renamed\n"
    refused = session.gio("copy", source / "small", f"{there}/missing/small", check=False)
    assert refused.returncode != 0
    session.gio("mount", "-u", url)


@pytest.mark.parametrize("door", ["dav", "sftp"])
def test_a_wrong_password_mounts_nothing(daemon, session, door):
    port = daemon.info["webdav" if door == "dav" else "sftp"]["port"]
    url = f"{door}://{daemon.user}@127.0.0.1:{port}/{daemon.share}"
    assert session.gio("mount", url, typed="wrong\n", check=False).returncode != 0
    assert session.gio("list", url, check=False).returncode != 0
