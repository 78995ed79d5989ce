"""Who may do what: users, shares for some of them, and each door's rule. One larder for all that can share it."""

import json
import subprocess

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
