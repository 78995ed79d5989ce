"""Who may do what: users, shares for some of them, and each door's rule. One larder for all that can share it."""

import json
import socket
import time

import pytest

import nfs3
from conftest import client, make
from nfs3 import NfsError
from test_cli import restart_with, share_option
from test_smb import smb


def add_user(daemon, name, *options, password="Pantry-Shelf-43"):
    file = daemon.data / f"password-{name}"
    file.write_text(password + "\n")
    done = daemon.run("user", "add", name, "--password-file", file, *options)
    assert done.returncode == 0, done.stderr
    return done


def nfs_status(daemon, export):
    try:
        nfs3.mount("127.0.0.1", daemon.nfs_port, export)
    except NfsError as error:
        return error.status
    return 0


def listed(daemon):
    return {share["name"]: share for share in json.loads(daemon.run("share", "list", "--json", check=True).stdout)}


def test_a_private_share_stays_private(folder):
    """Nobody else comes in by NFS, and nobody at all when its only user is removed."""
    larder = make(folder).start()
    add_user(larder, "ann")
    daemon = restart_with(larder, share_option('users = ["ann"]'))
    daemon.password = larder.password
    try:
        files = daemon.share
        smb(daemon, "ls", user="ann", password="Pantry-Shelf-43")
        assert "ACCESS_DENIED" in smb(daemon, "ls", check=False)
        assert nfs_status(daemon, f"/{files}") == 2, "there is no such export"
        assert nfs3.exports("127.0.0.1", daemon.nfs_port) == []
        assert "not exported over NFS" in daemon.log()
        assert listed(daemon)[files]["nfs"] is None
        done = daemon.run("user", "remove", "ann", check=True)
        assert "ACCESS_DENIED" in smb(daemon, "ls", check=False), "the list is empty: nobody, not everybody"
        assert files in done.stdout, "whoever removes the last user of a share is told"
        assert nfs_status(daemon, f"/{files}") == 2
        text = daemon.run("share", "list", check=True).stdout
        assert "nobody" in text and "no: it is for certain users" in text, text
    finally:
        daemon.end()


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A family: keeper, who runs it, ann and bob."""
    daemon = make(tmp_path_factory.mktemp("house")).start()
    for name in ("ann", "bob"):
        add_user(daemon, name)
    yield daemon
    code = daemon.stop()
    assert code == 0 and "panicked" not in daemon.log()


def as_(daemon, user, commands, **options):
    return smb(daemon, commands, user=user, password="Pantry-Shelf-43", **options)


def share(daemon, *words):
    done = daemon.run("share", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_user_is_somebody_else(house, folder):
    users = {user["name"]: user for user in json.loads(house.run("user", "list", "--json", check=True).stdout)}
    uids = [user["uid"] for user in users.values()]
    assert len(set(uids)) == 3 and all(user["uid"] == user["gid"] for name, user in users.items() if name != "keeper"), users
    (folder / "f").write_bytes(b"ann's")
    as_(house, "ann", "put f by-ann; mkdir album; put f album/photo", cwd=folder)
    for attempt in ("del by-ann", "del album/photo", "put f album/more", "rename by-ann mine"):
        assert "ACCESS_DENIED" in as_(house, "bob", attempt, cwd=folder, check=False), attempt
    as_(house, "bob", "get by-ann back", cwd=folder)
    as_(house, "ann", "del by-ann", cwd=folder)


def test_who_would_be_root_or_guessed_has_to_be_meant(house):
    file = house.data / "short"
    for password, options, words in (("x", (), "one character"), ("", (), "empty"), ("Pantry-Shelf-44", ("--uid", "0"), "root"),
                                     ("Pantry-Shelf-44", ("--group", "0"), "root")):
        file.write_text(password + "\n")
        done = house.run("user", "add", "eve", "--password-file", file, *options)
        assert done.returncode == 1 and words in done.stderr and "--force" in done.stderr, done.stderr
    assert "eve" not in house.run("user", "list").stdout
    file.write_text("x\n")
    done = house.run("user", "add", "eve", "--password-file", file, "--force", "--uid", "1000", check=True)
    assert "keeper" in done.stdout, "whose uid it is"
    assert house.run("user", "passwd", "eve", "--password-file", file).returncode == 1
    house.run("user", "remove", "eve", check=True)


def test_numbers_of_those_who_left_are_not_given_again(house):
    def uid():
        return json.loads(house.run("user", "add", "guest1", "--json", "--password-file", house.data / "password", check=True).stdout)["user"]["uid"]

    first = uid()
    house.run("user", "remove", "guest1", check=True)
    assert uid() > first
    house.run("user", "remove", "guest1", check=True)


def test_a_common_folder(house, folder):
    """One option: everybody changes and deletes what another made, over both doors."""
    share(house, "add", "common", "--folder", "common", "--common")
    (folder / "f").write_bytes(b"1")
    as_(house, "ann", "put f one; mkdir dir; put f dir/two", share="common", cwd=folder)
    as_(house, "bob", "put f dir/three; put f one; del one; del dir/two; del dir/three; rmdir dir", share="common", cwd=folder)
    with nfs3.Nfs3.mount("127.0.0.1", house.nfs_port, "/common", uid=4321, gid=4321) as nfs:
        made = nfs.create(nfs.root, "by-nfs", mode=0o600)
        assert made.attr.uid == 1000
    as_(house, "bob", "get by-nfs g; del by-nfs", share="common", cwd=folder)
    share(house, "remove", "common")
    assert "BAD_NETWORK_NAME" in as_(house, "bob", "ls", share="common", check=False)
    as_(house, "bob", "cd common", share=house.share)


def test_a_share_of_a_folder_ends_at_the_folder(house, folder):
    share(house, "add", "Family photos", "--folder", "photos/family")
    share(house, "add", "photos", "--folder", "photos")
    with client(house) as nfs:
        secret = nfs.create(nfs.root, "outside", mode=0o666)
        nfs.write_all(secret.handle, b"secret")
        outside = nfs.lookup(nfs.root, "outside").handle
    with nfs3.Nfs3.mount("127.0.0.1", house.nfs_port, "/photos") as nfs:
        assert [entry.name for entry in nfs.list(nfs.root)] == [b"family"]
        up = nfs.lookup(nfs.root, "..")
        assert nfs.getattr(up.handle).fileid == nfs.getattr(nfs.root).fileid
        below = nfs.walk("family")
        assert nfs.getattr(nfs.lookup(below, "..").handle).fileid == nfs.getattr(nfs.root).fileid
        # Handles of the whole volume, and such that are made up of both.
        made_up = nfs.root[:4] + outside[4:20] + nfs.root[20:28] + outside[28:44] + nfs.root[44:]
        for handle in (outside[:20] + nfs.root[20:28] + outside[28:], made_up):
            with pytest.raises(NfsError) as error:
                nfs.getattr(handle)
            assert error.value.status == 10001, "BADHANDLE"
        for name, target in (("up", "../outside"), ("far", "../../outside"), ("in", "family")):
            nfs.symlink(nfs.root, name, target)
    for name in ("up", "far"):
        assert "NT_STATUS_" in as_(house, "ann", f"get {name} g", share="photos", cwd=folder, check=False)
    as_(house, "ann", "cd in", share="photos")
    as_(house, "ann", "mkdir x; cd x", share="Family photos")
    assert "x" in as_(house, "ann", "ls family/*", share="photos")
    text = house.run("share", "set", "Family photos", "--users", "ann", check=True).stdout
    assert "'photos'" in text and house.share in text, "the same files are open through these"
    assert "ACCESS_DENIED" in as_(house, "bob", "ls", share="Family photos", check=False)
    share(house, "set", "Family photos", "--add-user", "bob")
    as_(house, "bob", "ls", share="Family photos")
    for name in ("Family photos", "photos"):
        share(house, "remove", name)


def test_the_configuration_is_checked_and_read_again(house):
    file = house.data / "larder.toml"
    before = file.read_text()
    assert "is valid" in house.run("config", "check", check=True).stdout
    file.write_text(before + '\n[[share]]\nname = "new"\nvolume = "tank/files"\nusers = []\n')
    assert "users = " in house.run("config", "check", check=True).stdout
    assert "nobody" in house.run("reload", check=True).stdout
    assert listed(house)["new"]["smb_rule"] == "nobody"
    file.write_text(before.replace("[[share]]", "[[shares]]"))
    for words in (("config", "check"), ("reload",)):
        done = house.run(*words)
        assert done.returncode == 1 and "larder.toml:" in done.stderr, done.stderr
    file.write_text(before)
    house.run("reload", check=True)
    assert "new" not in listed(house)


def test_the_log_names_who_came_and_who_was_refused(house):
    share(house, "add", "only-ann", "--folder", "only-ann", "--users", "ann")
    as_(house, "ann", "ls")
    as_(house, "bob", "ls", share="only-ann", check=False)
    nfs_status(house, f"/{house.share}")
    assert nfs_status(house, "/nowhere\x1b[31m") == 2
    share(house, "set", "only-ann", "--network", "192.0.2.0/24")
    assert nfs_status(house, "/only-ann") == 13
    for words in ("'ann' logged in from 127.0.0.1", "'bob' from 127.0.0.1 may not use the share 'only-ann'",
                  f"NFS: 127.0.0.1 mounted /{house.share}", "may not mount /nowhere\\u{1b}[31m: there is no such export",
                  "may not mount /only-ann: its address is in none of the networks"):
        assert words in house.log(), f"{words}\n{house.log()[-4000:]}"
    share(house, "remove", "only-ann")


def test_guessing_is_slow_and_does_not_fill_the_log(folder):
    larder = make(folder).start()
    try:
        took = []
        for n in range(6):
            began = time.monotonic()
            assert "LOGON_FAILURE" in smb(larder, "ls", user=f"nobody{n}", password="wrong", check=False)
            took.append(time.monotonic() - began)
        assert took[5] >= 1.0 and took[4] >= 0.5, f"{took}: the answers wait the longer the more fail"
        assert larder.log().count("wrong name or password") == 6
        for n in range(30):
            nfs_status_quick(larder, f"/nowhere{n}")
        assert larder.log().count("there is no such export") <= 10
    finally:
        larder.end()


def nfs_status_quick(daemon, export):
    """Asks and does not wait for the answer, which is delayed."""
    with nfs3.Rpc("127.0.0.1", daemon.nfs_port) as rpc:
        rpc.send(nfs3.MOUNT_PROGRAM, 3, 1, nfs3.opaque(export))


def test_strangers_do_not_take_all_connections(fresh):
    """One address has 256 connections that have shown nothing. The oldest makes room for a newcomer."""
    for port in (fresh.nfs_port, fresh.smb_port):
        held = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
        for connection in held[:44]:
            connection.settimeout(30)
            assert connection.recv(1) == b""
        smb(fresh, "ls")
        with client(fresh) as nfs:
            nfs.list(nfs.root)
        for connection in held:
            connection.close()


def test_destroying_a_pool_says_what_goes_and_empties_its_disks(fresh):
    done = fresh.run("pool", "destroy", "tank")
    assert done.returncode == 1 and "tank/files" in done.stderr and str(fresh.disks[2]) in done.stderr and "--yes" in done.stderr
    assert fresh.status()["state"] == "ONLINE"
    (fresh.disks[0] / "mine").write_text("not larder's")
    done = fresh.run("pool", "destroy", "tank", "--yes", "--json", check=True)
    assert len(json.loads(done.stdout)["erased"]) == 3
    assert [[f.name for f in disk.iterdir()] for disk in fresh.disks] == [["mine"], [], []]
    assert fresh.run("pool", "status").stdout.strip() == "no pools"
    assert listed(fresh) == {}
