"""SMB as smbclient sees it: trees, encryption, passwords, names, and that NFS sees the same files."""

import contextlib
import os
import random
import shutil
import socket
import struct
import subprocess
import threading

import pytest
from impacket import smb3structs as smb2
from impacket.smb3 import SessionError
from impacket.smbconnection import SMBConnection

from conftest import client, make, payload
from test_cli import restart_with, share_option


class Failed(Exception):
    """smbclient's output; NT_STATUS names are in it."""


def smb(daemon, commands, *options, user=None, password=None, share=None, cwd=None, check=True, timeout_s=120):
    login = f"{user or daemon.user}%{daemon.password if password is None else password}"
    done = subprocess.run(
        ["smbclient", f"//127.0.0.1/{share or daemon.share}", "-p", str(daemon.smb_port), "-U", login, "-m", "SMB3", *options,
         "-c", commands],
        capture_output=True, text=True, timeout=timeout_s, cwd=cwd, check=False)
    text = done.stdout + done.stderr
    if check and (done.returncode != 0 or "NT_STATUS_" in text):
        raise Failed(text)
    return text


@pytest.fixture
def here(larder, request):
    """A folder of the share for this test: its name."""
    name = request.node.name.split("[")[0]
    smb(larder, f"mkdir {name}")
    return name


def test_put_and_get(larder, here, folder):
    data = payload(24 << 20)
    (folder / "up").write_bytes(data)
    smb(larder, f"put up {here}/file; get {here}/file down", cwd=folder)
    assert (folder / "down").read_bytes() == data
    for size in (0, 1, 4095, 65_537):
        (folder / "small").write_bytes(data[:size])
        smb(larder, f"put small {here}/s{size}; get {here}/s{size} back", cwd=folder)
        assert (folder / "back").read_bytes() == data[:size]


def test_trees_there_and_back(larder, here, folder):
    rng, tree = random.Random(11), {}
    for n in range(60):
        path = "/".join([f"dir {n % 4}", f"sub{n % 3}"][: n % 3] + [f"file ä {n}.bin"])
        tree[path] = rng.randbytes(rng.choice((0, 10, 5000, 200_000)))
        (folder / "out" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "out" / path).write_bytes(tree[path])
    (folder / "in").mkdir()
    smb(larder, f"cd {here}; lcd {folder}/out; recurse on; prompt off; mput *")
    smb(larder, f"cd {here}; lcd {folder}/in; recurse on; prompt off; mget *")
    found = {str(p.relative_to(folder / "in")): p.read_bytes() for p in (folder / "in").rglob("*") if p.is_file()}
    assert found == tree
    smb(larder, f"deltree {here}/dir*")
    listing = smb(larder, f"ls {here}\\*")
    assert "dir 1" not in listing and "file" in listing


def test_rename_delete_allinfo(larder, here, folder):
    (folder / "f").write_bytes(b"hello")
    smb(larder, f"cd {here}; put f one; mkdir d; rename one d\\two; put f three", cwd=folder)
    info = smb(larder, f"allinfo {here}\\three")
    attributes = next(line for line in info.splitlines() if line.startswith("attributes:"))
    assert "A" in attributes.split(":")[1].split("(")[0], "a new file carries the archive bit"
    for field in ("create_time", "write_time", "change_time"):
        assert field in info
    assert "two" in smb(larder, f"ls {here}\\d\\*")
    smb(larder, f"cd {here}; rename three THREE")
    assert "THREE" in smb(larder, f"ls {here}\\*"), "a rename that changes only the case"
    text = smb(larder, f"cd {here}; put f x; rename d\\two x", cwd=folder, check=False)
    assert "COLLISION" in text, text
    assert "NT_STATUS_DIRECTORY_NOT_EMPTY" in smb(larder, f"rmdir {here}\\d", check=False)
    smb(larder, f"cd {here}; del d\\two; rmdir d; del THREE; del x")
    assert "NT_STATUS_NO_SUCH_FILE" in smb(larder, f"ls {here}\\t*", check=False)
    assert "NOT_FOUND" in smb(larder, f"get {here}\\three", check=False, cwd=folder)


def test_names_ignore_case(larder, here, folder):
    (folder / "f").write_bytes(b"case")
    smb(larder, f"cd {here}; put f ReadMe.TXT; mkdir Folder; put f Folder\\Ünïcode", cwd=folder)
    smb(larder, f"get {here}\\readme.txt a; get {here.upper()}\\README.txt b; get {here}\\FOLDER\\üNÏCODE c", cwd=folder)
    assert (folder / "c").read_bytes() == b"case"
    assert "COLLISION" in smb(larder, f"mkdir {here}\\FOLDER", check=False)
    assert "ReadMe.TXT" in smb(larder, f"ls {here}\\readme.*")
    names = [line.split()[0] for line in smb(larder, f"cd {here}; ls .").splitlines() if line.startswith("  ")]
    assert names == ["."], "nothing else is named so"


def test_nfs_and_smb_see_the_same_files(larder, here, folder, nfs):
    data = payload(3 << 20)
    (folder / "f").write_bytes(data)
    smb(larder, f"put f {here}/by-smb", cwd=folder)
    home = nfs.walk(here)
    assert nfs.read_all(nfs.lookup(home, "by-smb").handle) == data
    nfs.setattr(home, mode=0o777)
    file = nfs.create(home, "by-nfs", mode=0o666).handle
    nfs.write_all(file, data[::-1])
    smb(larder, f"get {here}/by-nfs g; del {here}/by-smb", cwd=folder)
    assert (folder / "g").read_bytes() == data[::-1]
    assert [e.name for e in nfs.list(home)] == [b"by-nfs"]
    nfs.write(file, 0, b"CHANGED", 2)
    smb(larder, f"get {here}/by-nfs g", cwd=folder)
    assert (folder / "g").read_bytes()[:7] == b"CHANGED"


def test_names_that_windows_cannot_write(larder, here, nfs, folder):
    """A name with : or ? made over NFS is listed, and what is listed can be read."""
    home = nfs.walk(here)
    nfs.setattr(home, mode=0o777)
    for name in ("a:b", "what?", "star*", "trailing."):
        nfs.write_all(nfs.create(home, name, mode=0o666).handle, name.encode())
    (folder / "in").mkdir()
    smb(larder, f"cd {here}; lcd {folder}/in; prompt off; mget *")
    contents = sorted(p.read_bytes() for p in (folder / "in").iterdir())
    assert contents == sorted([b"a:b", b"what?", b"star*", b"trailing."])


def test_hard_links(larder, here, folder, nfs):
    (folder / "first").write_bytes(b"one body")
    smb(larder, f"cd {here}; mkdir sub; put first; hardlink first sub\\second", cwd=folder)
    home = nfs.lookup(nfs.root, here).handle
    first = nfs.lookup(home, "first").handle
    second = nfs.lookup(nfs.lookup(home, "sub").handle, "second")
    assert nfs.getattr(second.handle).fileid == nfs.getattr(first).fileid
    assert nfs.getattr(first).nlink == 2 and nfs.read_all(second.handle) == b"one body"
    for source, name, why in (("first", "sub\\second", "OBJECT_NAME_COLLISION"), ("sub", "third", "FILE_IS_A_DIRECTORY"),
                              ("first", "gone\\x", "OBJECT_PATH_NOT_FOUND"), ("first", "SUB\\SECOND", "OBJECT_NAME_COLLISION")):
        assert why in smb(larder, f"cd {here}; hardlink {source} {name}", check=False)
    smb(larder, f"cd {here}; del first")
    assert nfs.getattr(second.handle).nlink == 1 and nfs.read_all(second.handle) == b"one body"


def test_the_oldest_dialect_and_the_oldest_greeting(larder, here):
    """Clients that begin with an SMB 1 NEGOTIATE, and end with SMB 2.0.2 or more."""
    for newest in ("SMB2_02", "SMB2_10", "SMB3"):
        smb(larder, f"cd {here}; ls", "--option=client min protocol=NT1", "-m", newest)


def test_encryption(larder, here, folder):
    data = payload(2 << 20)
    (folder / "f").write_bytes(data)
    smb(larder, f"put f {here}/f; get {here}/f g", "--client-protection=encrypt", cwd=folder)
    assert (folder / "g").read_bytes() == data
    smb(larder, f"ls {here}\\*", "--client-protection=sign")


def test_encryption_required_by_the_server(folder):
    larder = make(folder).start()
    assert larder.stop() == 0
    daemon = restart_with(larder, share_option('encrypt = "required"'))
    try:
        (folder / "f").write_bytes(b"secret")
        smb(daemon, "put f f; get f g", cwd=folder)
        assert (folder / "g").read_bytes() == b"secret"
        refused = smb(daemon, "ls", "-m", "SMB2_02", "--option=client min protocol=SMB2_02", check=False)
        assert "NT_STATUS_" in refused, refused
    finally:
        daemon.end()


class Wiretap:
    """A connection to the server through here: what the server sends, frame by frame."""

    def __init__(self, port):
        self.frames, self.server_port = [], port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.server_port))
            for source, target, keep in ((client, server, False), (server, client, True)):
                threading.Thread(target=self.pump, args=(source, target, keep), daemon=True).start()

    def pump(self, source, target, keep):
        with source.makefile("rb") as stream:
            while len(header := stream.read(4)) == 4:
                frame = stream.read(int.from_bytes(header[1:], "big"))
                if keep:
                    self.frames.append(frame)
                try:
                    target.sendall(header + frame)
                except OSError:
                    return
        try:
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def torture(daemon, *tests, port=None, options=()):
    """What of Samba's conformance tests failed."""
    address = [f"//127.0.0.1/{daemon.share}", "-p", str(port or daemon.smb_port)]
    done = subprocess.run(["smbtorture", *address, f"-U{daemon.user}%{daemon.password}", *options, *tests],
                          capture_output=True, text=True, timeout=300, check=False, errors="replace")
    results = [line for line in done.stdout.splitlines() if line.startswith(("success:", "failure:", "error:", "skip:"))]
    assert results, done.stdout + done.stderr
    return [line for line in results if not line.startswith("success:")]


needs_torture = pytest.mark.skipif(shutil.which("smbtorture") is None, reason="smbtorture is not installed")


@needs_torture
def test_breaks_are_encrypted(folder):
    larder = make(folder).start()
    assert larder.stop() == 0
    daemon = restart_with(larder, share_option('encrypt = "required"'))
    try:
        tap = Wiretap(daemon.smb_port)
        assert torture(daemon, "smb2.oplock.batch1", "smb2.lease.break_twice", port=tap.port) == []
        tap.listener.close()
        oplock_break = (0x12).to_bytes(2, "little")
        in_clear = [f for f in tap.frames if f.startswith(b"\xfeSMB") and f[12:14] == oplock_break]
        assert any(f.startswith(b"\xfdSMB") for f in tap.frames) and in_clear == []
    finally:
        daemon.end()


@needs_torture
def test_conformance(larder):
    """A sample of what docs/smb.md counts: sessions that are gone, bindings, compounds, queries."""
    assert torture(
        larder, "smb2.connect", "smb2.session-id", "smb2.tcon", "smb2.session.reconnect1", "smb2.session.reauth6",
        "smb2.session.bind_negative_smb210s", "smb2.session.bind_negative_smb3to3d", "smb2.session.bind_negative_smb3signGtoCs",
        "smb2.compound.invalid1", "smb2.compound.invalid2", "smb2.compound.invalid4", "smb2.compound.related3",
        "smb2.getinfo.fsinfo", "smb2.getinfo.granted", "smb2.read.position", "smb2.read.dir", "smb2.mkdir", "smb2.openattr",
        "smb2.oplock.batch19", "smb2.durable-open.reopen2-lease", "smb2.ioctl.copy_chunk_bad_access") == []


def test_wrong_password_guest_and_unknown_share(larder):
    assert "NT_STATUS_LOGON_FAILURE" in smb(larder, "ls", password="wrong", check=False)
    assert "NT_STATUS_LOGON_FAILURE" in smb(larder, "ls", user="nobody-here", check=False)
    for guest in (("", ""), ("guest", "")):
        text = smb(larder, "ls", user=guest[0] or "%", password=guest[1], check=False)
        assert "NT_STATUS_" in text, f"a guest got in: {text}"
    anonymous = subprocess.run(
        ["smbclient", f"//127.0.0.1/{larder.share}", "-p", str(larder.smb_port), "-N", "-c", "ls"],
        capture_output=True, text=True, timeout=60, check=False)
    assert "NT_STATUS_" in anonymous.stdout + anonymous.stderr
    assert "NT_STATUS_BAD_NETWORK_NAME" in smb(larder, "ls", share="no-such-share", check=False)
    shares = subprocess.run(
        ["smbclient", "-L", "127.0.0.1", "-p", str(larder.smb_port), "-U", f"{larder.user}%{larder.password}", "-m", "SMB3"],
        capture_output=True, text=True, timeout=60, check=False)
    assert larder.share in shares.stdout, shares.stdout + shares.stderr


def test_read_only_share(folder):
    larder = make(folder).start()
    (folder / "f").write_bytes(b"content")
    smb(larder, "put f f", cwd=folder)
    assert larder.stop() == 0
    daemon = restart_with(larder, share_option("read_only = true"))
    try:
        smb(daemon, "get f g", cwd=folder)
        assert (folder / "g").read_bytes() == b"content"
        for command in ("put f new", "del f", "mkdir d", "rename f x"):
            text = smb(daemon, command, cwd=folder, check=False)
            assert "NT_STATUS_ACCESS_DENIED" in text or "NT_STATUS_MEDIA_WRITE_PROTECTED" in text, text
    finally:
        daemon.end()


def test_data_survives_a_kill_after_the_client_flushed(fresh, folder):
    data = payload(6 << 20)
    (folder / "f").write_bytes(data)
    smb(fresh, "put f f", cwd=folder)
    with client(fresh) as nfs:
        nfs.commit(nfs.walk("f"))
    fresh.kill()
    fresh.start()
    smb(fresh, "get f g", cwd=folder)
    assert (folder / "g").read_bytes() == data


def test_garbage_on_the_port(larder, session_seed):
    rng = random.Random(session_seed)
    before = larder.rss_bytes()
    negotiate = b"\xfeSMB" + b"\x40\0" + b"\0" * 58
    for n in range(400):
        junk = rng.choice((
            rng.randbytes(rng.randrange(1, 3000)),
            (len(negotiate) + 300).to_bytes(4, "big") + negotiate + rng.randbytes(300),
            b"\x00\xff\xff\xff" + b"x" * 500,
            b"\0\0\0\0" * 500,
            b"\x00\x00\x00\x54\xffSMBr" + rng.randbytes(79),
        ))
        with socket.create_connection(("127.0.0.1", larder.smb_port), 10) as s:
            try:
                s.sendall(junk)
                s.settimeout(0.02)
                s.recv(4096)
            except (TimeoutError, ConnectionError):
                pass
    # Fewer than one address may have (test_access.py), with what is still being closed.
    idle = [socket.create_connection(("127.0.0.1", larder.smb_port), 10) for _ in range(200)]
    try:
        smb(larder, "ls")
        assert larder.rss_bytes() - before < 96 << 20
    finally:
        for s in idle:
            s.close()
    assert larder.alive() and "panicked" not in larder.log(), larder.log()[-3000:]


@contextlib.contextmanager
def logged_in(daemon, user=None, password=None):
    connection = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=daemon.smb_port)
    connection.login(user or daemon.user, password or daemon.password)
    yield connection
    connection.close()


def streams(daemon, path):
    """Name and size of each stream, as `allinfo` lists them."""
    lines = smb(daemon, f"allinfo {path}").splitlines()
    listed = [line.removeprefix("stream: [").split("], ") for line in lines if line.startswith("stream: [")]
    return {name: int(size.split()[0]) for name, size in listed}


def test_streams_of_a_file_and_of_a_folder(larder, here, folder):
    """Kept beside the data, through renames by others, as large as files; gone with the file and when it is overwritten."""
    big = payload(20 << 20)
    (folder / "data").write_bytes(b"the file itself")
    (folder / "zone").write_bytes(b"[ZoneTransfer]\r\nZoneId=3\r\n")
    (folder / "big").write_bytes(big)
    smb(larder, f"cd {here}; put data f; put zone f:Zone.Identifier; put big f:AFP_Resource; mkdir d; put zone d:icon", cwd=folder)
    expected = {"::$DATA": 15, ":Zone.Identifier:$DATA": 26, ":AFP_Resource:$DATA": len(big)}
    assert streams(larder, f"{here}\\f") == expected
    assert streams(larder, f"{here}\\d") == {":icon:$DATA": 26}
    assert "Zone" not in smb(larder, f"ls {here}\\*"), "a stream is no entry of its folder"

    nfs = client(larder)
    top = nfs.lookup(nfs.root, here.encode()).handle
    nfs.rename(top, b"f", top, b"g")
    nfs.close()
    smb(larder, f"get {here}/g:afp_resource back; get {here}/g plain", cwd=folder)
    assert (folder / "back").read_bytes() == big and (folder / "plain").read_bytes() == b"the file itself"
    with logged_in(larder) as connection:
        connection.deleteFile(larder.share, f"{here}\\g:Zone.Identifier")
    assert streams(larder, f"{here}\\g") == {"::$DATA": 15, ":AFP_Resource:$DATA": len(big)}
    smb(larder, f"put data {here}/g", cwd=folder)
    assert streams(larder, f"{here}\\g") == {"::$DATA": 15}, "who overwrites a file begins anew"

    smb(larder, f"cd {here}; put zone new:only", cwd=folder)
    assert streams(larder, f"{here}\\new") == {"::$DATA": 0, ":only:$DATA": 26}, "a stream makes its file"
    assert "OBJECT_NAME_NOT_FOUND" in smb(larder, f"get {here}/new:other x", cwd=folder, check=False)
    assert "OBJECT_NAME_INVALID" in smb(larder, f"get {here}/new:a:b x", cwd=folder, check=False)


def test_streams_outlive_a_kill_and_go_with_their_file(folder):
    daemon = make(folder / "own").start()
    try:
        with logged_in(daemon) as connection:
            tree = connection.connectTree(daemon.share)
            for path in (f"f{n}:{stream}" for n in range(20) for stream in "ab"):
                file = connection.createFile(tree, path)
                connection.writeFile(tree, file, path.encode() * 1000)
                connection.getSMBServer().flush(tree, file)
                connection.closeFile(tree, file)
        daemon.kill()
        daemon.start()
        for n in range(20):
            size = 1000 * len(f"f{n}:a")
            assert streams(daemon, f"f{n}") == {"::$DATA": 0, ":a:$DATA": size, ":b:$DATA": size}
            if n % 2:
                smb(daemon, f"del f{n}")
    finally:
        assert daemon.stop() == 0, daemon.log()[-4000:]
    checked = daemon.check("--read-data")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_extended_attributes(larder, here):
    """Those of users, as a mount's programs know them; a client reads, sets and removes them in any case of the name."""
    smb(larder, f"mkdir {here}\\d; setea {here}\\d comment red; setea {here}\\d other blue")
    listed = smb(larder, f"geteas {here}\\d")
    assert "comment" in listed and "other" in listed, listed
    smb(larder, f'setea {here}\\d COMMENT ""')
    listed = smb(larder, f"geteas {here}\\d").lower()
    assert "comment" not in listed and "other" in listed, listed


class Raw:
    """A create context as it is."""

    def __init__(self, data):
        self.data = data

    def getData(self):
        return self.data


def server_query():
    """Apple's create context that asks what the server can do."""
    asked = struct.pack("<IIQQ", 1, 0, 7, 0)
    return Raw(struct.pack("<IHHHHI", 0, 16, 4, 0, 24, len(asked)) + b"AAPL" + bytes(4) + asked)


def renamed(low, tree, path, to):
    """The status of a FileRenameInformation."""
    folder = low.create(tree, path, 0x0011_0080, 7, 0, smb2.FILE_OPEN, 0)
    name = to.encode("utf-16le")
    try:
        low.setInfo(tree, folder, fileInfoClass=10, inputBlob=struct.pack("<Q8xI", 0, len(name)) + name)
        return 0
    except SessionError as error:
        return error.get_error_code()
    finally:
        low.close(tree, folder)


def as_mac(low, tree):
    low.close(tree, low.create(tree, "", 0x80, 7, 1, smb2.FILE_OPEN, 0, createContexts=[server_query()]))


def test_macs_rename_folders_with_open_files(larder, here):
    """As Time Machine does in its first backup. The open follows; opens of others hold the rename up, as before."""
    with logged_in(larder) as mac, logged_in(larder) as other_mac, logged_in(larder) as windows:
        connections = [connection.getSMBServer() for connection in (mac, other_mac, windows)]
        trees = [low.connectTree(larder.share) for low in connections]
        (first, second, third), (first_tree, second_tree, third_tree) = connections, trees
        denied = 0xC0000022
        for folder in ("a", "a\\b", "c"):
            path = f"{here}\\{folder}"
            first.close(first_tree, first.create(first_tree, path, 0x80, 7, 1, smb2.FILE_CREATE, 0))
        opened = first.create(first_tree, f"{here}\\a\\b\\f", 0x0011_019F, 7, 0x40, smb2.FILE_CREATE, 0)
        first.write(first_tree, opened, b"before", 0, 6)
        # Not before the client has said that it is a Mac.
        assert renamed(first, first_tree, f"{here}\\a", f"{here}\\z") == denied
        as_mac(first, first_tree)
        assert renamed(first, first_tree, f"{here}\\a", f"{here}\\z") == 0
        first.write(first_tree, opened, b"after!", 6, 6)
        assert first.read(first_tree, opened, 0, 12) == b"beforeafter!"
        # By another Mac, too, over whatever depth; the file itself is then renamed by its open.
        as_mac(second, second_tree)
        assert renamed(second, second_tree, f"{here}\\z\\b", f"{here}\\c\\y") == 0
        name = f"{here}\\c\\y\\g".encode("utf-16le")
        first.setInfo(first_tree, opened, fileInfoClass=10, inputBlob=struct.pack("<Q8xI", 0, len(name)) + name)
        first.close(first_tree, opened)
        assert "12" in smb(larder, f"ls {here}\\c\\y\\g")
        # A client that is no Mac is not moved, and does not move.
        opened = third.create(third_tree, f"{here}\\c\\y\\g", 0x0012_0089, 7, 0x40, smb2.FILE_OPEN, 0)
        assert renamed(first, first_tree, f"{here}\\c", f"{here}\\x") == denied
        third.close(third_tree, opened)
        opened = first.create(first_tree, f"{here}\\c\\y\\g", 0x0012_0089, 7, 0x40, smb2.FILE_OPEN, 0)
        assert renamed(third, third_tree, f"{here}\\c", f"{here}\\x") == denied
        first.close(first_tree, opened)


def test_a_mac_is_told_that_a_flush_reaches_the_disk(larder, here):
    with logged_in(larder) as connection:
        low = connection.getSMBServer()
        tree = low.connectTree(larder.share)
        answers = []
        original = low.recvSMB
        low.recvSMB = lambda packet=None: answers.append(original(packet)) or answers[-1]
        opened = low.create(tree, here, 0x80, 7, 1, smb2.FILE_OPEN, 0x10, createContexts=[server_query()])
        low.recvSMB = original
        body = answers[-1]["Data"]
        at, length = struct.unpack_from("<II", body, 80)
        answer = body[at - 64:at - 64 + length]
        assert answer[16:20] == b"AAPL"
        (at,), (length,) = struct.unpack_from("<H", answer, 10), struct.unpack_from("<I", answer, 12)
        command, _, wanted, _, volume = struct.unpack_from("<IIQQQ", answer[at:at + length])
        assert (command, wanted) == (1, 7) and volume & 4, "F_FULLFSYNC"
        assert not volume & 2, "names match in any case"
        low.close(tree, opened)
