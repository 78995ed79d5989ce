"""A box comes back from its disks: users, shares, keys and links, on another machine (another data folder).

  R1  What makes the box is written when it changes, and by nothing else; at most 50 versions are kept.
  R2  The disks, wherever they lie and in whatever order, and one of them missing, make another data folder that box.
  R3  A password, a recovery key, and neither; a pool that another machine has open.
  R4  kill -9 at any moment of an import or of a write leaves nothing, or all.
  R5  A version of before is restored, as a whole or not at all.
  R6  Disks of several boxes: the box takes its own pools alone. Folders and pools that stay out are named.
"""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path

import pytest

from conftest import client, make
from larderd import Larder, StartFailed, run
from test_access import add_user
from test_bucket import Bucket
from test_file_view import Person, link_to
from waiting import wait_for

pytestmark = pytest.mark.usefixtures("small_machine")

OWNER = "Pantry-Shelf-42"
ANN = "Pantry-Shelf-43"
KEPT = ["larder.toml", "secrets", "secrets.key", "tokens", "links", "ssh_host_ed25519_key", "webdav_certificate.pem", "webdav_key.pem"]
DOORS = ["--sftp", "127.0.0.1:0", "--webdavs", "127.0.0.1:0", "--webdav", "127.0.0.1:0"]


def history(daemon):
    return json.loads(daemon.run("config", "history", "--json", check=True).stdout)


def numbers(daemon):
    return [one["number"] for one in history(daemon)["versions"]]


def wait_until_kept(daemon, *words):
    """Until the newest version has these words in its configuration, and an owner's password opens it."""
    def is_kept():
        now = history(daemon)
        if not now["versions"] or "the password of keeper" not in now["opens_with"]:
            return False
        newest = daemon.run("config", "show", str(now["versions"][0]["number"]))
        return newest.returncode == 0 and all(word in newest.stdout for word in words)
    wait_for(is_kept, 60)
    return numbers(daemon)[0]


def wait_until_quiet(daemon):
    """Until no version is written any more: the last change was a while ago."""
    last, since = None, time.monotonic()
    while time.monotonic() < since + 8:
        now = numbers(daemon)
        if now != last:
            last, since = now, time.monotonic()
        time.sleep(0.5)
    return last


class Reborn(Larder):
    """`larder up --import` on another data folder."""

    def __init__(self, disks, data, *options, password=OWNER, program=None):
        super().__init__(disks, data, password=password, program=program)
        self.password_file = self.data / f"password-{password}"
        self.password_file.write_text(password + "\n")
        self.password_file.chmod(0o600)
        self.options = options or ("--password-file", str(self.password_file))

    def command(self):
        return [self.program, "up", "--import", *map(str, self.disks), "--data", str(self.data), "--yes", "--json", *self.options]

    def later(self):
        """The same box, started again as any other."""
        again = Larder([], self.data)
        again.command = lambda: [self.program, "up", "--data", str(self.data), "--json"]
        return again


def files(data):
    return {name: (Path(data) / name).read_bytes() for name in KEPT if (Path(data) / name).exists()}


def move(disks, folder):
    """Other paths, another order."""
    moved = []
    for at, disk in enumerate(reversed(disks)):
        to = folder / f"shelf-{at}" / "b"
        to.parent.mkdir(parents=True)
        os.rename(disk, to)
        moved.append(to)
    return moved[1:] + moved[:1]


def host_key(port):
    found = subprocess.run(["ssh-keyscan", "-T", "20", "-p", str(port), "127.0.0.1"], text=True, capture_output=True, check=False).stdout
    return {line.split(maxsplit=1)[1] for line in found.splitlines() if line and not line.startswith("#")}


def certificate(port):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), 20) as plain, context.wrap_socket(plain) as tls:
        return tls.getpeercert(binary_form=True)


def dav(daemon, path, name, password):
    url = f"http://127.0.0.1:{daemon.info['webdav']['port']}/{path}"
    basic = "Basic " + b64encode(f"{name}:{password}".encode()).decode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Authorization": basic}), timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.fixture
def box(folder):
    """keeper, ann, bob; two shares; a token, a link, an alert with a secret; a file."""
    daemon = make(folder, extra=[*DOORS, "--squash", "none"]).start()
    for name in ("ann", "bob"):
        add_user(daemon, name)
    daemon.run("volume", "create", "tank/photos", check=True)
    daemon.run("share", "set", "photos", "--users", "ann", check=True)
    daemon.token = json.loads(daemon.run("token", "create", "ann", "--name", "phone", "--json", check=True).stdout)["token"]
    (daemon.data / "topic").write_text("s3cret-topic\n")
    with open(daemon.data / "larder.toml", "a", encoding="utf-8") as f:
        f.write('\n# who is told\n[[alert]]\nkind = "ntfy"\nname = "mine"\nurl = "http://127.0.0.1:9/x"\ntoken_file = "topic"\nmin = "critical"\n')
    daemon.run("reload", check=True)
    with client(daemon) as nfs:
        daemon.handle = nfs.create(nfs.root, "kept.txt").handle
        nfs.write(daemon.handle, 0, b"as before", stable=2)
    person = Person(daemon)
    person.log_in("keeper", OWNER)
    daemon.link = link_to(person, f"/{daemon.share}/kept.txt", days=7)
    daemon.recovery = daemon.info["recovery_key"]
    wait_until_kept(daemon, 'name = "bob"', "# who is told")
    wait_until_quiet(daemon)
    yield daemon
    daemon.end()


def is_that_box(reborn, box, before, host, tls):
    after = files(reborn.data)
    same = [name for name in KEPT if name != "larder.toml"]
    assert {name: after.get(name) for name in same} == {name: before.get(name) for name in same}
    with client(reborn) as nfs:
        assert nfs.read(box.handle, 0, 100).data == b"as before", "a handle of before"
    assert host_key(reborn.info["sftp"]["port"]) == host and certificate(reborn.info["webdavs"]["port"]) == tls
    for name, password in (("keeper", OWNER), ("ann", ANN), ("ann", box.token)):
        assert dav(reborn, "photos/" if name == "ann" else f"{box.share}/kept.txt", name, password)[0] in (200, 207), name
    assert dav(reborn, f"{box.share}/kept.txt", "keeper", "wrong-password")[0] == 401
    nobody = Person(reborn)
    assert b"as before" in nobody("GET", box.link + "?download")[1]
    users = {user["name"]: user["role"] for user in json.loads(reborn.run("user", "list", "--json", check=True).stdout)}
    assert users == {"keeper": "owner", "ann": "user", "bob": "user"}
    shares = {share["name"] for share in json.loads(reborn.run("share", "list", "--json", check=True).stdout)}
    assert shares == {box.share, "photos"}
    text = (reborn.data / "larder.toml").read_text()
    assert "# who is told" in text
    secret = re.search(r'token_file = "([^"]+)"', text)[1]
    assert Path(reborn.data, secret).read_text() == "s3cret-topic\n"


def test_a_box_comes_back_from_its_disks_on_another_machine(box, folder):
    before, host, tls = files(box.data), host_key(box.info["sftp"]["port"]), certificate(box.info["webdavs"]["port"])
    assert host
    hashes = [before["secrets"][:400], b"s3cret-topic"]
    on_disks = b"".join(file.read_bytes() for file in folder.glob("disk*/**/*") if file.is_file() and file.stat().st_size < 4 << 20)
    assert not any(secret in on_disks for secret in hashes), "sealed"
    life = history(box)
    box.kill()
    disks = move(box.disks, folder)
    wrong = Reborn(disks, folder / "second", password="Not-The-Shelf-1")
    with pytest.raises(StartFailed, match="does not open with this pass"):
        wrong.start()
    assert not (folder / "second/larder.toml").exists() and not (folder / "second/secrets").exists()
    second = Reborn(disks, folder / "second").start()
    try:
        is_that_box(second, box, before, host, tls)
        assert {disk["path"] for disk in second.status()["disks"]} == set(map(str, disks))
        again = history(second)
        assert (again["box_id"], again["life"]) == (life["box_id"], 2) and life["life"] == 1
        assert {one["number"] for one in life["versions"]} <= {one["number"] for one in again["versions"]}, "the history goes on"
    finally:
        second.end()
    # Killed again: an ordinary start, and a third machine, with one disk less, by the recovery key.
    later = second.later().start()
    assert later.stop() == 0
    key = folder / "key"
    key.write_text(box.recovery.lower().replace("-", " ") + "\n")
    key.chmod(0o600)
    # Labels name the place where it was.
    os.rename(disks[2], folder / "dead")
    third = Reborn(disks[:2], folder / "third", "--recovery-key-file", str(key)).start()
    try:
        is_that_box(third, box, before, host, tls)
        assert history(third)["life"] == 3
        assert third.status()["state"] == "DEGRADED"
    finally:
        third.end()


def test_a_password_that_changes_opens_from_then_on_and_the_one_before_does_not(box, folder):
    new = folder / "new"
    new.write_text("Another-Shelf-44\n")
    new.chmod(0o600)
    box.run("user", "passwd", "keeper", "--password-file", new, check=True)
    box.run("user", "set", "ann", "--role", "owner", check=True)
    wait_until_kept(box, 'role = "owner"')
    wait_until_quiet(box)
    box.kill()
    with pytest.raises(StartFailed, match="does not open"):
        Reborn(box.disks, folder / "second").start()
    # Without a running larder the slot changes, too.
    (box.data / "third").write_text("A-Third-Shelf-45\n")
    (box.data / "third").chmod(0o600)
    box.run("user", "passwd", "keeper", "--password-file", box.data / "third", check=True)
    later = Larder([], box.data)
    later.command = lambda: [box.program, "up", "--data", str(box.data), "--json", "--page", "off"]
    later.start()
    wait_until_quiet(later)
    assert later.stop() == 0
    with pytest.raises(StartFailed, match="does not open"):
        Reborn(box.disks, folder / "second", password="Another-Shelf-44").start()
    second = Reborn(box.disks, folder / "fourth", password="A-Third-Shelf-45").start()
    assert second.stop() == 0


def test_a_pool_that_runs_elsewhere_is_refused_and_so_are_other_wishes(box, folder):
    with pytest.raises(StartFailed) as refused:
        Reborn(box.disks, folder / "second").start()
    assert re.search(r"is open on '.+' since 20\d\d-", str(refused.value)), refused.value
    assert box.run("user", "list").returncode == 0, "it goes on"
    box.kill()
    empty = folder / "empty"
    empty.mkdir()
    with pytest.raises(StartFailed, match="none of these folders"):
        Reborn([empty], folder / "second").start()
    with pytest.raises(StartFailed, match="is that of a box already"):
        Reborn(box.disks, box.data).start()
    bare = run("--data", folder / "second", "up", "--import", *box.disks, "--json", program=box.program)
    assert bare.returncode != 0 and "--recovery-key-file" in bare.stderr
    unasked = run("--data", folder / "second", "up", "--import", *box.disks, "--password-file", box.password_file, program=box.program)
    assert unasked.returncode != 0 and "--yes" in unasked.stderr and "ann" in unasked.stdout and "photos" in unasked.stdout
    assert not (folder / "second/larder.toml").exists()
    # Another machine had it open: its label says so.
    inside = f"mount --bind {folder / 'machine-id'} /etc/machine-id && exec \"$@\""
    (folder / "machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    elsewhere = Reborn(box.disks, folder / "elsewhere")
    plain = elsewhere.command
    elsewhere.command = lambda: ["unshare", "-m", "sh", "-c", inside, "sh", *plain()]
    with pytest.raises(StartFailed, match=r"was last used by host .*is open on .* since 20"):
        elsewhere.start()
    elsewhere.options = (*elsewhere.options, "--force")
    elsewhere.start()
    assert history(elsewhere)["life"] == 2
    elsewhere.end()


def test_of_the_disks_of_two_boxes_each_takes_its_own(folder):
    """Both have a pool of the same name, which is the usual one."""
    boxes, handles = {}, {}
    for name, password in (("one", "Pantry-Shelf-51"), ("two", "Pantry-Shelf-52")):
        daemon = Larder([folder / name / "a", folder / name / "b"], folder / name / "data", layout="mirror", password=password, extra=["--nfs-any-port"]).start()
        with client(daemon) as nfs:
            handles[name] = nfs.create(nfs.root, "whose.txt").handle
            nfs.write(handles[name], 0, name.encode(), stable=2)
        wait_until_kept(daemon)
        daemon.kill()
        boxes[name] = daemon
    both = [boxes["one"].disks[0], boxes["two"].disks[1], boxes["two"].disks[0], boxes["one"].disks[1]]
    copy = folder / "copy"
    subprocess.run(["cp", "-a", str(boxes["two"].disks[0]), str(copy)], check=True)
    (folder / "empty").mkdir()
    for name, other in (("one", "two"), ("two", "one")):
        shown = run("--data", folder / f"look-{name}", "up", "--import", *both, copy, folder / "empty", "--password-file", boxes[name].password_file)
        assert "belongs to another box" in shown.stdout and "empty: no larder disk" in shown.stdout, shown.stdout
        assert ("is a copy of disk" in shown.stdout or "copies of one disk" in shown.stdout) == (name == "two"), shown.stdout
        reborn = Reborn(both, folder / f"again-{name}", "--password-file", str(boxes[name].password_file)).start()
        try:
            with client(reborn) as nfs:
                assert nfs.read(handles[name], 0, 100).data == name.encode()
            assert {disk["path"] for disk in reborn.status()["disks"]} == set(map(str, boxes[name].disks))
            assert f"/{other}/" not in (reborn.data / "larder.toml").read_text()
            wait_for(lambda: "the box came back, life 2" in json.dumps(history(reborn)), 30)
        finally:
            reborn.end()
    # A disk of the other box alone, the rest of which is away: none of this box's business.
    os.rename(boxes["two"].disks[1], folder / "dead")
    lonely = Reborn([*boxes["one"].disks, boxes["two"].disks[0]], folder / "third", "--password-file", str(boxes["one"].password_file)).start()
    lonely.end()
    # The box's own pool without a disk that had everything: the message says what this command wants.
    with pytest.raises(StartFailed, match="up --import --degraded"):
        Reborn([boxes["two"].disks[0]], folder / "fourth", "--password-file", str(boxes["two"].password_file)).start()
    wrong = run("--data", folder / "fifth", "up", "--import", *boxes["one"].disks, "--password-file", boxes["one"].password_file, "--user", "eve", "--yes")
    assert wrong.returncode == 2 and "--user" in wrong.stderr, wrong.stderr


def test_kill_9_in_the_middle_of_an_import_leaves_nothing_or_all(box, folder):
    before = files(box.data)
    box.kill()
    outcomes = set()
    for round in range(12):
        data = folder / f"try-{round}"
        attempt = Reborn(box.disks, data)
        log = open(attempt.log_path, "ab")
        process = subprocess.Popen(attempt.command(), stdout=subprocess.DEVNULL, stderr=log, stdin=subprocess.DEVNULL, cwd=data)
        # The first half dies anywhere, the others as soon as the data folder begins to be the box.
        if round < 4:
            time.sleep(0.2 + 0.4 * round)
        else:
            watched = [data / "box-restore.json", data / "secrets", data / "larder.toml"][round % 3]
            end = time.monotonic() + 60
            while not watched.exists() and process.poll() is None and time.monotonic() < end:
                time.sleep(0.0005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        log.close()
        is_all = (data / "box-restore.json").exists() or (data / "larder.toml").exists()
        outcomes.add(is_all)
        if is_all:
            later = attempt.later().start()
        else:
            assert not any((data / name).exists() for name in KEPT), os.listdir(data)
            later = attempt.start()
        try:
            after = files(data)
            assert {name: after.get(name) for name in KEPT[1:]} == {name: before.get(name) for name in KEPT[1:]}
            assert not (data / "box-restore.json").exists()
            assert dav(later, f"{box.share}/kept.txt", "keeper", OWNER) == (200, b"as before")
        finally:
            later.kill()
    assert outcomes == {True, False}


@pytest.mark.long
def test_versions_are_written_by_changes_alone_and_fifty_are_kept(folder):
    daemon = make(folder, layout="mirror", count=2).start()
    try:
        wait_until_kept(daemon)
        still = wait_until_quiet(daemon)
        pids = {p: p.stat().st_mtime_ns for p in folder.glob("disk*/**/*")}
        time.sleep(8)
        assert numbers(daemon) == still
        assert {p: p.stat().st_mtime_ns for p in folder.glob("disk*/**/*") if p in pids} == pids, "idle is idle"
        # A restart is no change.
        assert daemon.stop() == 0
        daemon.start()
        assert wait_until_quiet(daemon) == still
        # A write that is killed is there or not; the next start has what the data folder says.
        for round in range(8):
            password = daemon.data / "p"
            password.write_text(ANN)
            password.chmod(0o600)
            daemon.run("user", "add", f"u{round}", "--password-file", password, check=True)
            time.sleep(0.9 + 0.05 * round)
            daemon.kill()
            daemon.start()
        wait_until_kept(daemon, *(f'name = "u{round}"' for round in range(8)))
        assert history(daemon)["notes"] == []
        # An edit by hand counts; comments, too. Written often, one by one.
        file = daemon.data / "larder.toml"
        assert daemon.stop() == 0
        start = max(numbers_of(folder))
        for round in range(55):
            text = re.sub(r"# round \d+\n", "", file.read_text())
            file.write_text(f"# round {round}\n" + text)
            daemon.start()
            assert daemon.stop() == 0
        daemon.start()
        all_ = wait_until_quiet(daemon)
        assert len(all_) == 50 and all_[0] >= start + 55, all_
        assert "# round 54" in daemon.run("config", "show", str(all_[0]), check=True).stdout
        assert daemon.run("config", "show", str(all_[-1] - 1)).returncode != 0
    finally:
        daemon.end()


def numbers_of(folder):
    """Of a box that does not run, from its data folder."""
    return [json.loads((folder / "data/box.json").read_text())["newest"]]


def test_a_version_is_restored_as_a_whole_or_not_at_all(box, folder):
    first = numbers(box)[0]
    box.run("user", "remove", "bob", check=True)
    box.run("share", "remove", "photos", check=True)
    box.run("token", "revoke", "phone", check=True)
    new = folder / "new"
    new.write_text("Another-Shelf-44\n")
    new.chmod(0o600)
    box.run("user", "passwd", "ann", "--password-file", new, check=True)
    with open(box.data / "larder.toml", "a", encoding="utf-8") as f:
        f.write("\n# later\n")
    wait_until_kept(box, "# later")
    wait_until_quiet(box)
    changes = json.dumps(history(box)["versions"][0])
    assert "passwords" in json.dumps(history(box)["versions"]), changes
    shown = box.run("config", "show", str(first), check=True).stdout
    assert 'name = "bob"' in shown and OWNER not in shown
    now = files(box.data)
    refused = box.run("config", "restore", "99999", "--yes")
    assert refused.returncode != 0 and "no version 99999" in refused.stderr and files(box.data) == now
    restored = box.run("config", "restore", str(first), "--yes", check=True)
    assert "restored" in restored.stdout
    names = {user["name"] for user in json.loads(box.run("user", "list", "--json", check=True).stdout)}
    assert names == {"keeper", "ann", "bob"}
    assert dav(box, "photos/", "ann", ANN)[0] in (200, 207) and dav(box, "photos/", "ann", box.token)[0] in (200, 207)
    assert dav(box, "photos/", "ann", "Another-Shelf-44")[0] == 401
    written = (box.data / "larder.toml").read_text()
    # The number that bob had is kept from new users.
    assert [line for line in written.splitlines() if not line.startswith("next_uid") and line] == [line for line in shown.splitlines() if not line.startswith("next_uid") and line]
    assert not (box.data / "box-restore.json").exists()
    wait_until_quiet(box)
    back = numbers(box)[0]
    assert back > first, "going back is a version of its own"
    # A version that cannot be: its volume is gone. Nothing of it is restored.
    box.run("share", "remove", "photos", check=True)
    box.run("user", "passwd", "ann", "--password-file", new, check=True)
    box.run("volume", "destroy", "tank/photos", "--yes", check=True)
    wait_until_quiet(box)
    now = files(box.data)
    refused = box.run("config", "restore", str(back), "--yes")
    assert refused.returncode != 0 and "there is no volume tank/photos" in refused.stderr, refused.stderr
    assert files(box.data) == now and not (box.data / "box-restore.json").exists()
    assert dav(box, f"{box.share}/kept.txt", "ann", "Another-Shelf-44")[0] in (200, 403, 404)
    assert dav(box, f"{box.share}/kept.txt", "ann", ANN)[0] == 401


def test_a_box_comes_back_from_its_bucket(folder):
    bucket = Bucket()
    data = folder / "data"
    daemon = bucket.larder(data, "--webdav", "127.0.0.1:0")
    second = None
    try:
        add_user(daemon, "ann")
        with client(daemon) as nfs:
            handle = nfs.create(nfs.root, "kept.txt").handle
            nfs.write(handle, 0, b"as before", stable=2)
        wait_until_kept(daemon, 'name = "ann"')
        wait_until_quiet(daemon)
        asked = bucket.requests()
        time.sleep(6)
        assert bucket.requests() == asked, "idle is idle"
        before = files(data)
        daemon.kill()
        second = Reborn([], folder / "second", "--password-file", str(daemon.password_file))
        plain = second.command
        second.command = lambda: [*plain(), "--store", bucket.url, "--endpoint", bucket.endpoint]
        with pytest.raises(StartFailed, match="--force"):
            second.start(env=bucket.env)
        assert not (folder / "second/secrets").exists()
        second.options = (*second.options, "--force")
        second.start(env=bucket.env)
        assert {name: files(second.data).get(name) for name in KEPT[1:]} == {name: before.get(name) for name in KEPT[1:]}
        with client(second) as nfs:
            assert nfs.read(handle, 0, 100).data == b"as before"
        assert dav(second, f"{second.share}/kept.txt", "keeper", OWNER) == (200, b"as before")
        assert history(second)["life"] == 2
    finally:
        daemon.end()
        if second:
            second.end()
        bucket.end()


def test_a_replica_brings_the_box_back_without_any_disk_of_it(folder):
    near = make(folder / "near", extra=["--webdav", "127.0.0.1:0", "--sftp", "127.0.0.1:0"]).start()
    far = make(folder / "far", extra=["--replication", "127.0.0.1:0", "--webdav", "127.0.0.1:0", "--sftp", "127.0.0.1:0"]).start()
    try:
        add_user(near, "ann")
        with client(near) as nfs:
            nfs.write(nfs.create(nfs.root, "kept.txt").handle, 0, b"as before", stable=2)
        wait_until_kept(near, 'name = "ann"')
        answer = json.loads(far.run("--json", "replicate", "accept", "tank/copy", check=True).stdout)
        place = f"larder://{answer['addr']}/tank/copy"
        near.run("replicate", "add", "files", place, "--code", answer["code"], check=True)
        near.run("snap", "create", "files@a", check=True)
        password, key = folder / "password", folder / "key"
        password.write_text(OWNER + "\n")
        key.write_text(json.loads(near.run("--json", "config", "recovery-key", check=True).stdout)["recovery_key"] + "\n")
        [file.chmod(0o600) for file in (password, key)]

        def restore(*words):
            return far.run("config", "restore", "--from", "tank/copy", "--yes", *words)
        wait_until_quiet(near)
        # `sent.recovery_key_alone`: a password opens nothing there.
        wait_for(lambda: "no box has sent" not in far.run("config", "restore", "--from", "tank/copy", "--recovery-key-file", key).stderr, 90)
        near.kill()
        refused = restore("--password-file", password)
        assert refused.returncode != 0 and "does not open" in refused.stderr and not (far.data / "box-restore.json").exists()
        done = restore("--recovery-key-file", key)
        assert done.returncode == 0 and "restart larder" in done.stdout, done.stderr
        host = (near.data / "ssh_host_ed25519_key").read_bytes()
        assert (far.data / "ssh_host_ed25519_key").read_bytes() != host, "at the next start"
        far.run("volume", "promote", "tank/copy", check=True)
        far.kill()
        far.command = lambda: [far.program, "up", "--data", str(far.data), "--json", "--page", "off"]
        far.start()
        assert (far.data / "ssh_host_ed25519_key").read_bytes() == host
        assert dav(far, f"{near.share}/kept.txt", "ann", ANN) == (200, b"as before")
        assert history(far)["life"] == 2 and history(far)["box_id"] == json.loads((near.data / "box.json").read_text())["id"]
    finally:
        near.end()
        far.end()
