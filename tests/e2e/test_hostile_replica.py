"""A machine that sends into a replica is taken over. It says all that it can say, and the replica has what it had (docs/guide.md, "A copy on another machine").

  H1  Snapshots of any name and number displace none that came before; the receiver's own time counts.
  H2  At the door for machines there is one replica to ask about and to send into, and nothing else.
  H3  Streams with forged names, numbers, paths, counts and properties are refused. What is printed of them does not steer a terminal; a refused first one leaves nothing.
  H4  A replica takes up no more than its quota, and both ends say so.
  H5  A stream that never ends does not keep the owner from the replica.
  H6  The keys of an encrypted replica stay those that came with its first snapshot.
"""

import ctypes
import datetime
import http.client
import json
import os
import socket
import ssl
import struct

import pytest

from test_encryption import PASSPHRASE, typed, volumes
from test_replica import called, mounted, sent, snap, snapshots
from test_replicate import accepted, pair, replicate, status, up_to_date  # noqa: F401
from waiting import wait_for

pytestmark = pytest.mark.usefixtures("small_machine")

XXH = ctypes.CDLL("libxxhash.so.0")
XXH.XXH3_64bits_withSeed.restype = ctypes.c_uint64
XXH.XXH3_64bits_withSeed.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]
HEADER, OBJECT, DATA, END = 1, 2, 3, 4


def frames(stream):
    """The frames of a stream: kind and body (FORMAT.md)."""
    assert stream.startswith(b"LARDSEND")
    at, out = 16, []
    while at < len(stream):
        kind, length = struct.unpack_from(">BI", stream, at)
        out.append((kind, stream[at + 5 : at + 5 + length]))
        at += 5 + length + 8
    return out


def stream(parts):
    out = [b"LARDSEND" + struct.pack(">II", 1, 0)]
    for number, (kind, body) in enumerate(parts):
        total = XXH.XXH3_64bits_withSeed(body, len(body), number << 8 | kind)
        out += [struct.pack(">BI", kind, len(body)), body, struct.pack(">Q", total)]
    return b"".join(out)


def changed(parts, kind, change):
    """The frames with the JSON of one kind changed."""
    out = []
    for own, body in parts:
        if own == kind:
            value = json.loads(body)
            change(value)
            body = json.dumps(value).encode()
        out.append((own, body))
    return out


def named(parts, name):
    return changed(parts, HEADER, lambda header: header["to"].update(name=name))


def obj(path, length):
    return OBJECT, struct.pack(">Q", length) + path.encode()


class Door:
    """What somebody with the key of a paired machine can say at the door for machines."""

    def __init__(self, near, place, folder):
        host = place.split("://")[1].split("/")[0]
        self.address = (host.rsplit(":", 1)[0], int(host.rsplit(":", 1)[1]))
        known = json.loads((near.data / "machine.json").read_text())
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE
        (folder / "certificate").write_text(ssl.DER_cert_to_PEM_cert(bytes.fromhex(known["certificate"])))
        key = ssl.DER_cert_to_PEM_cert(bytes.fromhex(known["key"])).replace("CERTIFICATE", "PRIVATE KEY")
        (folder / "key").write_text(key)
        self.context.load_cert_chain(folder / "certificate", folder / "key")

    def connect(self):
        return self.context.wrap_socket(socket.create_connection(self.address, timeout=60))

    def __call__(self, method, path, body=None):
        connection = http.client.HTTPConnection(*self.address)
        connection.sock = self.connect()
        try:
            connection.request(method, path, body=body, headers={} if body is None else {"Content-Type": "application/octet-stream"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()


def paired(near, far, folder, *words):
    """The machines know each other; the replica has three snapshots of the schedule, and the photo is in each."""
    top = mounted(near, "files", "mnt")
    (top / "photo.jpg").write_bytes(b"the only copy")
    place, code = accepted(far, "tank/copy", *words)
    replicate(near, "add", "files", place, "--code", code)
    names = [at(days=-days) for days in (3, 2, 1)]
    for number, name in enumerate(names):
        (top / "note").write_text(str(number))
        snap(near, "files", name)
        up_to_date(near, name)
    assert snapshots(far, "copy") == names
    return top, names, Door(near, place, folder)


def at(**ago):
    """A name of the schedule, so long from now."""
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(**ago)).strftime("auto-%Y-%m-%d_%H-%MZ")


def looked_into(far, name, into):
    """What a clone of a snapshot of the replica has."""
    far.run("snap", "clone", f"copy@{name}", into, check=True)
    return (mounted(far, into, into) / "photo.jpg").read_bytes()


def test_a_sender_that_was_taken_over_displaces_nothing(pair, folder):
    """H1"""
    near, far = pair
    top, names, door = paired(near, far, folder, "--keep", "hourly=2,daily=3")
    # As it always could: through its own daemon, with names of any time.
    (top / "photo.jpg").unlink()
    hostile = ["auto-2030-01-01_00-00Z", "auto-2030-01-02_00-00Z", at(minutes=1), at(hours=-5), at(hours=-4), at(days=-1, minutes=1), "auto-1971-01-01_00-00Z"]
    for number, name in enumerate(hostile):
        (top / "note").write_text(f"hostile {number}")
        snap(near, "files", name)
    replicate(near, "files", "--no-snapshot")
    assert snapshots(far, "copy") == names + hostile
    replicate(near, "remove", "files")
    # With forged frames: numbers far ahead, and names that are taken.
    (top / "note").write_text("forged")
    snap(near, "files", "z")
    parts = frames(sent(near, "files@z", "--from", hostile[-1]))
    for number, name in enumerate([names[0], at(minutes=5), at(minutes=6)]):
        def forge(header, number=number, name=name):
            header["to"].update(name=name, number=header["to"]["number"] + 1000 * number, created_ns=-number)
        forged = changed(parts, HEADER, forge)
        # The image is of one number: the object moves with it.
        wanted = json.loads(forged[0][1])["to"]["number"]
        forged = [(kind, body[:8] + f"snap/{wanted:016x}".encode()) if kind == OBJECT and body[8:].startswith(b"snap/") else (kind, body) for kind, body in forged]
        code, answer = door("POST", "/v1/receive/tank/copy", stream(forged))
        assert code == 200, answer
    assert snapshots(far, "copy")[:3] == names and snapshots(far, "copy").count(names[0]) == 1
    for number, name in enumerate(names):
        assert looked_into(far, name, f"look{number}") == b"the only copy"
    # Nor by a clock that jumps: the time is the replica's own, durably.
    kept = far.run("snap", "list", "copy", "--json", check=True).stdout
    for at_far in far.mounts:
        far.run("umount", str(at_far), check=True)
    far.mounts.clear()
    far.stop()
    far.extra[-1] = f"127.0.0.1:{door.address[1]}"
    far.start()
    assert json.loads(far.run("snap", "list", "copy", "--json", check=True).stdout) == json.loads(kept)


def test_the_door_for_machines_does_one_thing(pair, folder):
    """H2"""
    near, far = pair
    _, names, door = paired(near, far, folder)
    replicate(near, "remove", "files")
    code, answer = door("GET", "/v1/receive/tank/copy")
    assert code == 200 and [one["name"] for one in json.loads(answer)["snapshots"]] == names
    far.run("volume", "create", "private", "--no-share", check=True)
    before = volumes(far).keys()
    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
        for path in (
            "/", "/v1/receive/tank/private", "/v1/receive/tank/files", "/v1/receive/tank/copy/", "/v1/receive/tank/../tank/private",
            "/v1/receive/tank%2Fcopy", "/v1/receive/copy", "//v1/receive/tank/copy", "/v1/send/tank/copy", "/v1/export/tank/copy", "/v1/volumes",
            "/v1/volumes/tank/copy", "/v1/snapshots/tank/copy", "/v1/promote/tank/copy", "/v1/rollback/tank/copy", "/v1/accept", "/v1/users",
            "/v1/tokens", "/v1/links", "/v1/replications", "/v1/replicate", "/v1/reload", "/v1/shutdown",
        ):
            code, answer = door(method, path, b'{"names":"*"}' if method not in ("GET", "HEAD") else None)
            assert 400 <= code < 500, (method, path, code, answer)
    for method in ("PUT", "PATCH", "DELETE"):
        assert door(method, "/v1/receive/tank/copy", b"{}")[0] == 404
    code, answer = door("POST", "/v1/pair", json.dumps({"secret": "00" * 16, "replica": "tank/private"}))
    assert 400 <= code < 500 and "not good" in answer
    # A quota that the sender names is none of the owner's.
    assert door("GET", "/v1/receive/tank/copy?quota_bytes=0")[0] == 200
    assert snapshots(far, "copy") == names
    assert volumes(far).keys() == before


def test_forged_streams_are_refused_and_print_nothing(pair, folder):
    """H3"""
    near, far = pair
    top, names, door = paired(near, far, folder)
    replicate(near, "remove", "files")
    (top / "note").write_text("more")
    snap(near, "files", "z")
    whole, part = frames(sent(near, "files@z")), frames(sent(near, "files@z", "--from", names[-1]))
    escapes = "evil\x1b]0;pwned\x07\x1b[31m/../../x\nauto"

    def header(parts, **values):
        return changed(parts, HEADER, lambda value: value.update(values))

    def to(parts, **values):
        return changed(parts, HEADER, lambda value: value["to"].update(values))

    def properties(parts, **values):
        return changed(parts, HEADER, lambda value: value["properties"].update(values))

    def end(parts, **values):
        return changed(parts, END, lambda value: value.update(values))

    def all_of(parts):
        yield from (named(parts, name) for name in (escapes, "../../x", "..", ".", "", "a/b", "a\nb", "a\x00b", "a\u202eb", "\u2066x", "x" * 201, "a@b"))
        yield from (header(parts, volume=name) for name in (escapes, "../files", ""))
        yield from (header(parts, features=names) for names in ([escapes], ["snapshots"] * 100_000, ["sealing"], ["unheard-of"]))
        yield header(parts, sealed=True)
        yield header(parts, bytes=-1)
        yield from (to(parts, number=number) for number in (1 << 48, (1 << 64) - 1, -1))
        yield to(parts, created_ns=1 << 70)
        yield from (properties(parts, record_bytes=size) for size in (0, 1, 3000, 1 << 30, 1 << 31))
        yield properties(parts, compression=escapes)
        yield properties(parts, sync="never")
        yield properties(parts, user_quotas=[{"id": 0, "bytes": 1}])
        yield properties(parts, user_quotas=[{"id": id, "bytes": 1} for id in range(1, 20_000)])
        yield from (end(parts, segments=ranges) for ranges in ([[0, (1 << 64) - 1]], [[0, 1 << 28]], [[1 << 50, 1 << 20]], [[1, 1]] * 10, [[-1, 5]]))
        yield from (end(parts, tables=tables) for tables in (["../../registry.json"], ["keyring.json"], [escapes]))
        yield end(parts, objects=1 << 60)
        yield from ([parts[0], obj(path, 3), (DATA, b"abc")] for path in (
            "../../registry.json", "registry.json", "replica.json", "keyring.json", "seg/../../x", "seg/0", "seg/000000000000000G", "snap/0000000000000000",
            "meta/manifest/1.manifest", "meta/compacted/x.sst", "", "/etc/passwd", "seg/" + "0" * 300))
        yield from ([parts[0], obj("seg/00000000000fffff", length)] for length in (0, 1 << 37, (1 << 64) - 1))
        yield [parts[0], (DATA, b"of nothing")]
        yield [parts[0], parts[0]]
        yield [parts[0], (9, b"")]
        yield [(END, parts[-1][1])]

    there = volumes(far).keys()
    for number, forged in enumerate(all_of(part)):
        code, answer = door("POST", "/v1/receive/tank/copy", stream(forged))
        assert 400 <= code < 600, (number, code, answer)
        text = "".join(json.loads(answer).get(key) or "" for key in ("message", "action"))
        assert text.isprintable(), (number, text)
        assert snapshots(far, "copy") == names, number
    for number, forged in enumerate(all_of(whole)):
        refused = called(far, "receive", "fresh", data=stream(forged), check=False)
        assert refused.returncode != 0, number
        assert all(line.isprintable() for line in refused.stderr.decode().splitlines()), (number, refused.stderr)
        assert volumes(far).keys() == there, (number, refused.stderr)
    # Another history, and the whole one anew.
    for forged in (whole, header(part, source="00000000-0000-0000-0000-000000000007"), changed(part, HEADER, lambda value: value["from"].update(created_ns=7))):
        assert door("POST", "/v1/receive/tank/copy", stream(forged))[0] >= 400
    assert snapshots(far, "copy") == names
    assert looked_into(far, names[0], "look") == b"the only copy"
    assert far.run("check").returncode == 0


def test_a_quota_and_a_stream_that_never_ends(pair, folder):
    """H4, H5"""
    near, far = pair
    top, names, door = paired(near, far, folder, "--quota", "4MiB")
    assert 'quota = "4MiB"' in (far.data / "larder.toml").read_text()
    (top / "much").write_bytes(os.urandom(8 << 20))
    snap(near, "files", "much")
    wait_for(lambda: "quota" in (status(near)[0].get("fault") or ""), told=lambda: str(status(near)))
    assert "quota of 4194304" in far.log(), "the receiver's owner is told, too"
    assert snapshots(far, "copy") == names
    # Tiny ones are charged, too.
    parts = frames(sent(near, "files@much", "--from", names[-1]))
    tiny = [parts[0]]
    for number in range(0x1000, 0x1400):
        tiny += [obj(f"seg/{number:016x}", 1), (DATA, b"x")]
    code, answer = door("POST", "/v1/receive/tank/copy", stream(tiny))
    assert code >= 400 and "quota" in answer, answer
    # More room, by the owner; then a stream that is begun and goes no further.
    accepted(far, "tank/copy", "--quota", "none")
    assert "quota" not in (far.data / "larder.toml").read_text()
    replicate(near, "files", "--no-snapshot")
    assert snapshots(far, "copy") == [*names, "much"]
    replicate(near, "remove", "files")
    (top / "note").write_text("endless")
    snap(near, "files", "endless")
    beginning = stream(frames(sent(near, "files@endless", "--from", "much"))[:1])
    with door.connect() as hung:
        head = f"POST /v1/receive/tank/copy HTTP/1.1\r\nHost: x\r\nContent-Length: {1 << 40}\r\n\r\n"
        hung.sendall(head.encode() + beginning)
        wait_for(lambda: json.loads(door("GET", "/v1/receive/tank/copy")[1]).get("snapshot") == "endless")
        far.run("snap", "hold", f"copy@{names[0]}", "mine", check=True)
        assert "owner" in hung.recv(4096).decode()
    with door.connect() as hung:
        hung.sendall(head.encode() + beginning)
        far.run("snap", "destroy", f"copy@{names[1]}", check=True)
        far.run("volume", "promote", "copy", check=True)


def test_the_keys_of_a_replica_stay(pair, folder):
    """H6"""
    near, far = pair
    typed(near, "volume", "create", "safe", "--encrypt", "--no-recovery-key")
    top = mounted(near, "safe", "safe")
    (top / "photo.jpg").write_bytes(b"the only copy")
    snap(near, "safe", "a")
    whole = frames(sent(near, "safe@a"))
    # Without its keyring nobody could unlock it, and with another's only somebody else could.
    at_keyring = next(n for n, (kind, body) in enumerate(whole) if kind == OBJECT and body[8:] == b"keyring.json")
    bare = whole[:at_keyring] + whole[at_keyring + 2 :]
    bare = changed(bare, END, lambda end: end.update(objects=end["objects"] - 1))
    refused = called(far, "receive", "copy", data=stream(bare), check=False)
    assert refused.returncode != 0 and b"keyring" in refused.stderr
    called(far, "receive", "copy", data=stream(whole))
    (top / "note").write_text("more")
    snap(near, "safe", "b")
    part = frames(sent(near, "safe@b", "--from", "a"))
    keyring = [obj("keyring.json", 2), (DATA, b"{}")]
    at_keyring = next(n for n, (kind, body) in enumerate(part) if kind == OBJECT and body[8:] == b"keyring.json")
    for forged in (part[:at_keyring] + keyring + part[at_keyring + 2 :], changed(part[:1], HEADER, lambda header: header.update({"from": None})) + keyring, whole):
        assert called(far, "receive", "copy", data=stream(forged), check=False).returncode != 0
    called(far, "receive", "copy", data=stream(part))
    assert snapshots(far, "copy") == ["a", "b"]
    typed(far, "volume", "unlock", "copy", lines=[PASSPHRASE])
    far.run("volume", "promote", "copy", check=True)
    assert (mounted(far, "copy", "copy") / "photo.jpg").read_bytes() == b"the only copy"
