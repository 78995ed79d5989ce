"""Groups, keys, certificates and app tokens: given and taken while larder runs, by the clients that people have."""

import json
import re
import shutil
import stat
import subprocess
import tempfile
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path

import pytest

from conftest import make
from larderd import run
from test_access import add_user, as_, listed, share
from test_sftp import Client

ANN = "Pantry-Shelf-43"
KEYS_ALONE = ["PreferredAuthentications=publickey"]


@pytest.fixture(scope="module")
def place():
    path = Path(tempfile.mkdtemp(prefix="larder-e2e-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def house(place):
    """keeper, ann, bob and eve; one authority that may sign certificates."""
    data = place / "data"
    data.mkdir()
    ca = keygen(place / "ca", "-C", "the house")
    doors = ["--sftp", "127.0.0.1:0", "--webdav", "127.0.0.1:0"]
    daemon = make(place, extra=doors).start()
    for name in ("ann", "bob", "eve"):
        add_user(daemon, name)
    daemon.ca = ca
    yield daemon
    log = daemon.log()
    assert daemon.stop() == 0, log[-4000:]
    assert "panicked" not in log and not re.search("larder_[0-9a-f]{16}", log), "no token is in the log"


def keygen(file, *options):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file, *options], check=True)
    return file


def larder(daemon, *words, **options):
    done = daemon.run(*words, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(daemon, *words):
    done = daemon.run(*words)
    assert done.returncode == 1, done.stdout
    return done.stderr


def get(daemon, path, authorization, method="GET", body=None):
    """The status and the body of a request over WebDAV."""
    url = f"http://127.0.0.1:{daemon.info['webdav']['port']}/{path}"
    request = urllib.request.Request(url, method=method, data=body, headers={"Authorization": authorization})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def basic(user, password):
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def test_a_group_opens_a_share_at_every_door(house, place):
    larder(house, "group", "add", "family", "--member", "ann")
    share(house, "add", "album", "--folder", "album", "--users", "@family")
    group = json.loads(larder(house, "group", "list", "--json"))[0]
    assert (group["name"], group["members"], group["shares"]) == ("family", ["ann"], ["album"])
    file = place / "f"
    file.write_bytes(b"a picture")

    def doors(user):
        smb = "ACCESS_DENIED" not in as_(house, user, "ls", share="album", check=False)
        sftp = Client(house, place, user=user, password=ANN).sftp("ls /album", check=False).returncode == 0
        return smb, sftp, get(house, "album/", basic(user, ANN))[0] == 200

    assert (doors("ann"), doors("bob")) == ((True,) * 3, (False,) * 3)
    larder(house, "group", "add-member", "family", "bob", "eve")
    assert doors("bob") == (True,) * 3
    # Members reach each other's files by the group: it is in what every door tells the volume.
    as_(house, "ann", "put f shared", share="album", cwd=place)
    mine = {user["name"]: user for user in json.loads(larder(house, "user", "list", "--json"))}
    assert mine["bob"]["group_names"] == ["family"] and group["gid"] in mine["bob"]["groups"]
    client = Client(house, place, user="ann", password=ANN)
    client.sftp(f"chgrp {group['gid']} /album/shared", "chmod 660 /album/shared")
    assert get(house, "album/shared", basic("bob", ANN)) == (200, b"a picture")
    Client(house, place, user="bob", password=ANN).sftp(f"put {file} /album/shared")
    # A user's own name is nearer than the group.
    share(house, "set", "album", "--read-only-users", "eve")
    assert get(house, "album/shared", basic("eve", ANN), "PUT", b"x")[0] == 403
    assert get(house, "album/shared", basic("bob", ANN), "PUT", b"x")[0] in (200, 204)

    larder(house, "group", "remove-member", "family", "bob")
    assert doors("bob") == (False,) * 3
    assert "not in the group" in refused(house, "group", "remove-member", "family", "bob")
    assert "there is no group 'famly'" in refused(house, "share", "set", "album", "--users", "@famly")
    larder(house, "user", "remove", "eve")
    assert json.loads(larder(house, "group", "list", "--json"))[0]["members"] == ["ann"]
    assert "nobody may use the share 'album'" in larder(house, "group", "remove", "family")
    assert listed(house)["album"]["users"] == []
    assert doors("ann") == (False,) * 3
    larder(house, "group", "add", "family")
    assert json.loads(larder(house, "group", "list", "--json"))[0]["gid"] != group["gid"], "numbers are not given again"


def test_keys_come_and_go(house, place):
    key = keygen(place / "laptop", "-C", "ann@laptop")
    client = Client(house, place, user="ann", key=key)
    assert client.sftp("ls", check=False, options=KEYS_ALONE).returncode != 0
    assert "stays where it is" in refused(house, "user", "key", "add", "ann", key)
    added = larder(house, "user", "key", "add", "ann", f"{key}.pub")
    print_ = subprocess.run(["ssh-keygen", "-l", "-f", key], capture_output=True, text=True, check=True).stdout.split()[1]
    assert print_ in added and "ann@laptop" in added
    client.sftp("ls")
    assert "has this key already" in refused(house, "user", "key", "add", "ann", Path(f"{key}.pub").read_text().strip())
    larder(house, "user", "key", "remove", "ann", print_)
    assert client.sftp("ls", check=False, options=KEYS_ALONE).returncode != 0
    assert json.loads(larder(house, "user", "key", "list", "ann", "--json")) == []


def test_certificates_are_judged_by_all_that_is_in_them(house, place):
    config = house.data / "larder.toml"
    plain = config.read_text()
    config.write_text(plain + f'\n[sftp]\nssh_ca_keys = ["{Path(f"{house.ca}.pub").read_text().strip()}"]\n')
    larder(house, "reload")
    stranger = keygen(place / "other-ca")
    count = iter(range(100))

    def signed(*options, ca=house.ca, user="ann"):
        key = keygen(place / f"key{next(count)}")
        subprocess.run(["ssh-keygen", "-q", "-s", ca, "-I", "ann's laptop", *options, f"{key}.pub"], check=True)
        client = Client(house, place, user=user, key=key)
        done = client.sftp("ls", check=False, options=[*KEYS_ALONE, f"CertificateFile={key}-cert.pub"])
        return done.returncode == 0

    now = ("-V", "-1m:+1h")
    assert signed("-n", "ann", *now)
    assert signed("-n", "bob,ann", *now, "-O", "source-address=127.0.0.0/8")
    for why, options in {
        "it is for other users: bob": ("-n", "bob", *now),
        "source-address": ("-n", "ann", *now, "-O", "source-address=10.0.0.0/8"),
        "moon@example.com": ("-n", "ann", *now, "-O", "critical:moon@example.com=full"),
    }.items():
        assert not signed(*options), why
        assert why in house.log(), house.log()[-1500:]
    assert not signed("-n", "ann", "-V", "-2h:-1h"), "over"
    assert not signed("-n", "ann", *now, ca=stranger) and "no authority" in house.log()
    assert not signed("-n", "nobody", *now, user="nobody"), "there is no such user"
    config.write_text(plain)
    larder(house, "reload")
    assert not signed("-n", "ann", *now), "the authority is named no longer"


def test_tokens_narrow_and_end_at_once(house, place):
    share(house, "add", "phone", "--folder", "phone")
    made = json.loads(larder(house, "token", "create", "ann", "--name", "camera", "--share", "phone", "--json"))
    token, bearer = made["token"], f"Bearer {made['token']}"
    kept = house.data / "tokens"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600 and token[8:] not in kept.read_text()
    assert token not in larder(house, "token", "list", "--json")
    assert get(house, "phone/p1", bearer, "PUT", b"1")[0] == 201
    assert get(house, "phone/p1", basic("ann", token)) == (200, b"1")
    assert get(house, "phone/p1", basic("bob", token))[0] == 401, "it is ann's"
    assert get(house, f"{house.share}/", bearer)[0] == 404, "it is for one share"
    client = Client(house, place, user="ann", password=token)
    assert "phone" in client.sftp("ls /").stdout and house.share not in client.sftp("ls /").stdout

    reader = json.loads(larder(house, "token", "create", "ann", "--read-only", "--expires", "1h", "--json"))
    assert get(house, "phone/p1", f"Bearer {reader['token']}")[0] == 200
    assert get(house, "phone/p1", f"Bearer {reader['token']}", "PUT", b"2")[0] == 403
    assert Client(house, place, user="ann", password=reader["token"]).sftp("rm /phone/p1", check=False).returncode != 0

    # An open connection ends with its token.
    open_ = subprocess.Popen(
        ["sftp", *client.options(), "-P", str(client.port), "-o", "BatchMode=no", "ann@127.0.0.1"],
        env=client.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1,
    )
    open_.stdin.write("pwd\nls /phone\n")
    while "p1" not in (line := open_.stdout.readline()):
        assert line, "the connection ended too early"
    larder(house, "token", "revoke", "camera")
    assert get(house, "phone/p1", bearer)[0] == 401
    out, _ = open_.communicate("ls /phone\n", timeout=30)
    assert open_.returncode != 0, out
    assert client.sftp("ls", check=False).returncode != 0
    assert get(house, "phone/p1", f"Bearer {reader['token']}")[0] == 200, "others stay"
    assert get(house, "phone/p1", basic("ann", ANN))[0] == 200
    larder(house, "user", "remove", "ann")
    assert json.loads(larder(house, "token", "list", "--json")) == []
    add_user(house, "ann")


def test_no_door_lets_in_from_elsewhere(house, place):
    """`--only-from` bounds every door; the same share lets the same user in once the bound is gone."""
    share(house, "add", "near", "--folder", "near", "--only-from", "192.0.2.0/24")

    def doors():
        smb = "ACCESS_DENIED" not in as_(house, "bob", "ls", share="near", check=False)
        sftp = Client(house, place, user="bob", password=ANN).sftp("ls /near", check=False).returncode == 0
        return smb, sftp, get(house, "near/", basic("bob", ANN))[0] == 200

    near = listed(house)["near"]
    assert near["networks"] == [] and near["options"] == ["only from 192.0.2.0/24"]
    assert doors() == (False,) * 3
    share(house, "set", "near", "--only-from", "127.0.0.0/8")
    assert doors() == (True,) * 3 and listed(house)["near"]["networks"] == ["127.0.0.0/8"]
    share(house, "set", "near", "--only-from", "anywhere", "--sftp=no", "--webdav=no", "--anon-uid", "4242")
    assert doors() == (True, False, False)
    text = (house.data / "larder.toml").read_text()
    assert "only_from" not in text and "anon_uid = 4242" in text
    lines = larder(house, "share", "list").splitlines()
    at = {line.index("  " + word) for word, line in (("ALSO", lines[0]), ("-  ", next(l for l in lines if l.startswith("near"))))}
    assert at, lines


def test_without_a_daemon_the_files_are_changed(folder):
    daemon = make(folder).start()
    add_user(daemon, "ann")
    assert daemon.stop() == 0
    words = ("--data", daemon.data)
    for command in (("group", "add", "staff", "--member", "ann"), ("token", "create", "ann", "--name", "job"),
                    ("user", "key", "add", "ann", f"{keygen(folder / 'key')}.pub")):
        run(*words, *command, check=True)
    text = (daemon.data / "larder.toml").read_text()
    assert "[[group]]" in text and "ssh-ed25519" in text
    assert "job" in run(*words, "token", "list", check=True).stdout
    run(*words, "user", "remove", "ann", check=True)
    assert "no tokens" in run(*words, "token", "list", check=True).stdout
