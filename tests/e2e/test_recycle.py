"""What is left of the past in a share: the recycle bin, and `.snapshots` in listings.

  R1  Removals over SMB and WebDAV go to `.recycle`, under their old path, with everything they had; in there they are real.
  R2  Removals over NFS, SFTP and a mount are real ones.
  R3  `share set` turns the bin on and off, and `.snapshots` into a name that every door lists.
"""

import json
import os

import pytest

from conftest import client, make, payload
from test_smb import logged_in, smb
from test_snapshots import snap
from test_webdav import Dav


@pytest.fixture
def daemon(folder):
    mount = folder / "mnt"
    mount.mkdir()
    extra = ["--webdav", "127.0.0.1:0", "--sftp", "127.0.0.1:0", "--mount", str(mount), "--squash", "none"]
    daemon = make(folder, extra=extra).start()
    daemon.mounted = mount
    os.chmod(mount, 0o1777)
    yield daemon
    log = daemon.log()
    code = daemon.stop()
    assert code == 0 and "panicked" not in log, log[-4000:]


def share(daemon, *options):
    return json.loads(daemon.run("--json", "share", "set", daemon.share, *options, check=True).stdout)


def tree(top):
    return sorted(str(path.relative_to(top)) for path in top.rglob("*"))


def test_removals_are_kept_where_they_are_to_be(daemon, folder):
    """R1, R2, R3"""
    top, bin_ = daemon.mounted, daemon.mounted / ".recycle"
    assert share(daemon, "--recycle=7")["share"]["recycle_days"] == 7
    config = (folder / "data" / "larder.toml").read_text()
    assert "recycle = { days = 7 }" in config, config
    data = payload(300_000, 4)
    (folder / "f").write_bytes(data)
    smb(daemon, "mkdir docs; mkdir docs\\deep; put f docs\\deep\\f; put f docs\\deep\\f:side; put f docs\\g", cwd=folder)
    os.setxattr(top / "docs/deep/f", "user.colour", b"red")
    os.link(top / "docs/deep/f", top / "second name")
    before = (top / "docs/deep/f").stat()
    with logged_in(daemon) as connection:
        connection.deleteFile(daemon.share, "docs\\deep\\f:side")
    assert not bin_.exists(), "a stream is no file"
    smb(daemon, "put f docs\\deep\\f:side; del docs\\deep\\f", cwd=folder)
    kept = bin_ / "docs/deep/f"
    after = kept.stat()
    same = ("st_ino", "st_uid", "st_gid", "st_mode", "st_mtime_ns", "st_size", "st_nlink")
    assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]
    assert kept.read_bytes() == data and os.getxattr(kept, "user.colour") == b"red"
    assert "side" in smb(daemon, "allinfo .recycle\\docs\\deep\\f")
    assert not (top / "docs/deep/f").exists() and (top / "second name").read_bytes() == data

    # Whole trees, by either door, and a name that is taken.
    smb(daemon, "put f docs\\deep\\f; deltree docs", cwd=folder)
    assert tree(bin_) == ["docs", "docs/deep", "docs/deep/f", "docs/deep/f (2)", "docs/g"]
    keeper = Dav(daemon)
    path = f"/{daemon.share}"
    assert keeper("MKCOL", f"{path}/web").status == 201
    keeper.put(f"{path}/web/page", b"one")
    keeper.put(f"{path}/web/other", b"two")
    assert keeper("COPY", f"{path}/web/page", Destination=keeper.url(f"{path}/web/other")).status == 204
    assert keeper("MOVE", f"{path}/web/page", Destination=keeper.url(f"{path}/web/other")).status == 204
    assert not (bin_ / "web").exists(), "copies and moves leave nothing in the bin"
    assert keeper("DELETE", f"{path}/web").status == 204
    assert (bin_ / "web/other").read_bytes() == b"one" and not (top / "web").exists()

    # Back by the user, and gone for good in the bin.
    smb(daemon, "rename .recycle\\docs\\g g")
    assert (top / "g").read_bytes() == data
    assert keeper("DELETE", f"{path}/.recycle/web").status == 204
    smb(daemon, "deltree .recycle")
    assert tree(top) == ["g", "second name"]

    # The other doors, and no door once it is off.
    with client(daemon) as nfs:
        nfs.remove(nfs.root, b"second name")
    os.unlink(top / "g")
    assert tree(top) == []
    assert share(daemon, "--recycle=no")["share"].get("recycle_days") is None
    assert "recycle" not in (folder / "data" / "larder.toml").read_text()
    smb(daemon, "put f f; del f", cwd=folder)
    assert tree(top) == []
    wrong = daemon.run("share", "set", daemon.share, "--recycle=0x")
    assert wrong.returncode != 0 and "number of days" in wrong.stderr


def test_snapshots_in_listings(daemon, folder):
    """R3"""
    top = daemon.mounted
    (top / "d").mkdir()
    (top / "f").write_text("then")
    keeper = Dav(daemon)

    def listings():
        with client(daemon) as nfs:
            by_nfs = sorted(entry.name.decode() for entry in nfs.list(nfs.root))
        by_smb = smb(daemon, "ls")
        by_web = keeper("PROPFIND", f"/{daemon.share}/", Depth=1).hrefs()
        return [".snapshots" in by_nfs, ".snapshots" in by_smb, any(".snapshots" in href for href in by_web)], by_nfs

    assert listings()[0] == [False] * 3
    share(daemon, "--snapshots-shown")
    assert listings()[0] == [False] * 3, "there are none yet"
    snap(daemon, "create", "files@one")
    shown, names = listings()
    assert shown == [True] * 3 and names == [".snapshots", "d", "f"]
    assert "one" in smb(daemon, "cd .snapshots; ls") and ".snapshots" not in smb(daemon, "cd d; ls")
    assert ".snapshots" not in os.listdir(top), "a mount has an option of its own"
    other = folder / "other"
    other.mkdir()
    daemon.run("mount", str(other), "-o", "snapshots", check=True)
    assert sorted(os.listdir(other)) == [".snapshots", "d", "f"] and os.listdir(other / "d") == []
    assert os.listdir(other / ".snapshots") == ["one"]
    daemon.run("umount", str(other), check=True)
    share(daemon, "--snapshots-shown=no")
    assert listings()[0] == [False] * 3
