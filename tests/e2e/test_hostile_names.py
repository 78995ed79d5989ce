"""Names that steer a terminal: no command and no log passes one on, and JSON keeps its meaning.

Names of files come from any client; of shares, users, tokens and keys from whoever may make them.
"""

import json
import os
import socket
import unicodedata

import pytest

import nfs3
from conftest import make
from nfs3 import Nfs3
from test_encryption import typed

TITLE, COLOUR, LINE, TURNED = "a\x1b]0;pwned\x07b", "c\x1b[31m\x9b2J", "one\n2026-01-01 INFO forged", "gpj.\u202e\u2066exe\u200f"
NAMES = [name.encode() for name in (TITLE, COLOUR, LINE, TURNED, "tab\tand\rback\x08", "l" * 255, "\u2028\u2029\ufeff")] + [b"\xff\xfe\x80"]
MARKS = "\u061c\u200e\u200f\u2028\u2029\ufeff" + "".join(map(chr, [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]))


def steering(text, allowed="\n"):
    return sorted({hex(ord(c)) for c in text if c not in allowed and (unicodedata.category(c) == "Cc" or c in MARKS)})


def said(daemon, *words, check=True):
    """What a command prints, for people and for scripts; neither steers anything."""
    human = daemon.run(*words)
    assert not check or human.returncode == 0, human.stderr
    for text in (human.stdout, human.stderr):
        assert not steering(text), f"{words}: {steering(text)} in {text!r}"
    script = daemon.run("--json", *words)
    for text in (script.stdout, script.stderr):
        assert not steering(text), f"{words} --json: {steering(text)} in {text!r}"
    lines = script.stdout.splitlines()
    return human.stdout + human.stderr, [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    daemon = make(tmp_path_factory.mktemp("names"), extra=["--squash", "none"]).start()
    with Nfs3.mount("127.0.0.1", daemon.nfs_port, daemon.export) as nfs:
        daemon.run("snap", "create", f"{daemon.share}@before", check=True)
        for name in NAMES:
            nfs.write(nfs.create(nfs.mkdir(nfs.root, name).handle, b"in-" + name[:200]).handle, 0, b"x", nfs3.FILE_SYNC)
    yield daemon
    daemon.end()


def test_lists_and_differences(daemon):
    text, [found] = said(daemon, "snap", "diff", f"{daemon.share}@before")
    assert "\\u{1b}" in text and "\\u{202e}" in text and "\\n" in text
    paths = json.dumps(found)
    assert json.dumps(TURNED)[1:-1] in paths or "\\u202e" in paths
    for words in (("snap", "list"), ("volume", "list"), ("pool", "status"), ("pool", "list"), ("share", "list"), ("check",),
                  ("volume", "quota", daemon.share), ("pool", "history")):
        said(daemon, *words)


@pytest.mark.parametrize("name", [TITLE, COLOUR, LINE, TURNED])
def test_explanations_and_refusals(daemon, name):
    text, _ = said(daemon, "share", "explain", daemon.user, f"/{daemon.share}/{name}")
    assert "REMOVE" in text
    for words in (("share", "explain", daemon.user, f"/{name}"), ("share", "explain", name, "/x"), ("snap", "list", name),
                  ("user", "passwd", name), ("volume", "create", name), ("share", "remove", name), ("group", "add", name),
                  ("pool", "status", name), ("replicate", name), ("snap", "create", f"files@{name}"), ("token", "revoke", name),
                  ("mount", "/nowhere/" + name), ("import", "/nowhere/" + name, "files:x"), ("volume", "unlock", name)):
        said(daemon, *words, check=False)


def test_names_of_shares_users_groups_tokens_and_keys(daemon):
    password = daemon.data / "password"
    share, user = "photos\u202e2024", "ann\u2066\u200f"
    said(daemon, "share", "add", share, "--folder", "turned", check=False)
    daemon.run("user", "add", user, "--password-file", password)
    daemon.run("token", "create", daemon.user, "--name", TITLE)
    daemon.run("token", "create", daemon.user, "--name", TURNED)
    typed(daemon, "volume", "create", "vault", "--encrypt")
    typed(daemon, "volume", "key", "add", "vault", TURNED, lines=("twelve brown bottles", "another good phrase"), check=False)
    for words in (("share", "list"), ("user", "list"), ("token", "list"), ("group", "list"), ("volume", "key", "list", "vault"),
                  ("replicate", "status"), ("config", "check"), ("reload",)):
        said(daemon, *words, check=False)
    daemon.run("share", "remove", share)


def test_an_import_and_what_it_says(daemon, tmp_path):
    source = os.fsencode(tmp_path / "source")
    os.mkdir(source)
    for name in NAMES:
        with open(os.path.join(source, name), "wb") as file:
            file.write(b"y")
    # Something of that name is there, and nobody imported it: each is a fault that is named.
    with Nfs3.mount("127.0.0.1", daemon.nfs_port, daemon.export) as nfs:
        there = nfs.mkdir(nfs.root, b"imported", mode=0o777).handle
        for name in NAMES:
            nfs.create(there, name)
    said(daemon, "import", os.fsdecode(source), f"{daemon.share}:imported", check=False)


def test_the_log_has_one_line_for_each_event(daemon):
    for name in (TITLE, LINE, TURNED):
        with nfs3.Rpc("127.0.0.1", daemon.nfs_port) as rpc:
            rpc.send(nfs3.MOUNT_PROGRAM, 3, 1, nfs3.opaque(b"/" + name.encode()))
        with socket.create_connection(("127.0.0.1", daemon.smb_port), 10) as link:
            link.sendall(name.encode())
    log = daemon.log()
    assert not steering(log), (steering(log), log)
    assert not any(line.startswith("2026-01-01") for line in log.splitlines())


def test_files_that_are_recovered(daemon, tmp_path):
    assert daemon.stop() == 0
    disks = [word for disk in daemon.disks for word in ("--disk", str(disk))]
    text, _ = said(daemon, "recover", *disks, "--to", str(tmp_path / "a"), check=False)
    assert text
    for report in (tmp_path / "a").glob("*"):
        if report.is_file():
            assert not steering(report.read_text()), report
    said(daemon, "check", *disks, check=False)
