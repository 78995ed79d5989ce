"""SFTP by its real clients: sftp and scp of OpenSSH, sshfs, rclone. What they write is compared through a mount."""

import json
import os
import re
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from conftest import make
from test_access import add_user
from trees import payload

ANN = "Pantry-Shelf-43"
NAME_255 = "ä" * 127 + "x"


class Client:
    """The clients of one user: by password, or by a key file."""

    def __init__(self, daemon, folder, user="keeper", password=None, key=None):
        self.daemon, self.user, self.key = daemon, user, key
        self.port = daemon.info["sftp"]["port"]
        self.password = daemon.password if password is None else password
        self.ask = Path(tempfile.mkdtemp(dir=folder)) / "ask"
        self.ask.write_text(f"#!/bin/sh\necho '{self.password}'\n")
        self.ask.chmod(0o700)
        self.env = {**os.environ, "SSH_ASKPASS": str(self.ask), "SSH_ASKPASS_REQUIRE": "force"}

    def options(self, *more):
        common = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "NumberOfPasswordPrompts=1", *more]
        keys = ["IdentitiesOnly=yes", f"IdentityFile={self.key}"] if self.key else ["PubkeyAuthentication=no"]
        return [word for option in common + keys for word in ("-o", option)]

    def run(self, *command, check=True, timeout_s=120, **more):
        done = subprocess.run(
            [str(word) for word in command], env=self.env, capture_output=True, text=True, timeout=timeout_s,
            stdin=None if "input" in more else subprocess.DEVNULL, **more,
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}\n{self.daemon.log()[-3000:]}"
        return done

    def sftp(self, *lines, check=True, options=(), timeout_s=120):
        """Runs commands of sftp(1)."""
        batch = self.ask.with_name("batch")
        batch.write_text("".join(line + "\n" for line in lines))
        return self.run(
            "sftp", *self.options(*options), "-P", self.port, "-o", "BatchMode=no", "-b", batch, f"{self.user}@127.0.0.1",
            check=check, timeout_s=timeout_s,
        )

    def scp(self, *words, check=True, timeout_s=120):
        return self.run("scp", *self.options(), "-P", self.port, *words, check=check, timeout_s=timeout_s)

    def at(self, path):
        return f"{self.user}@127.0.0.1:{path}"

    def ssh(self, *words, check=False):
        return self.run("ssh", *self.options(), "-p", self.port, f"{self.user}@127.0.0.1", *words, check=check)

    def rclone(self, *words, check=True):
        obscured = subprocess.run(["rclone", "obscure", self.password], capture_output=True, text=True, check=True).stdout.strip()
        remote = ["--sftp-host", "127.0.0.1", "--sftp-port", self.port, "--sftp-user", self.user, "--sftp-pass", obscured,
                  "--sftp-shell-type", "none"]
        return self.run("rclone", "--config", "/dev/null", *words, *remote, check=check)


@pytest.fixture(scope="module")
def place():
    path = Path(tempfile.mkdtemp(prefix="larder-e2e-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def daemon(place):
    """One larder with SFTP and a mount, by which the tests look at what the clients did."""
    mount = place / "mnt"
    mount.mkdir()
    daemon = make(place, extra=["--sftp", "127.0.0.1:0", "--mount", str(mount)]).start()
    daemon.mounted = mount
    os.chmod(mount, 0o1777)
    yield daemon
    log = daemon.log()
    code = daemon.stop()
    assert code == 0, log[-4000:]
    assert "panicked" not in log, log[-4000:]


@pytest.fixture
def keeper(daemon, place):
    return Client(daemon, place)


def top(daemon, name):
    """A directory of the test's own, as the mount sees it, open to everybody."""
    path = daemon.mounted / name
    path.mkdir()
    os.chmod(path, 0o1777)
    return path


def tree(at):
    """Names, kinds, modes, whole seconds and contents below."""
    found = {}
    for path in sorted(at.rglob("*")):
        about = path.lstat()
        what = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        when = int(about.st_mtime) if path.is_file() and not path.is_symlink() else None
        found[str(path.relative_to(at))] = (stat.S_IFMT(about.st_mode), when, what)
    return found


def some_tree(at):
    (at / "deep/er").mkdir(parents=True)
    for n, size in enumerate([0, 1, 4096, 32_768, 32_769, 300_000, 3_000_000]):
        (at / f"file-{n}").write_bytes(payload(size, n))
        os.utime(at / f"file-{n}", (1_700_000_000 + n, 1_700_000_000 + n))
    (at / "deep/er" / NAME_255).write_text("a long name")
    (at / "deep/with blank and ü").write_text("odd")
    return at


def test_a_tree_by_sftp_and_scp_is_the_same_through_the_mount(daemon, keeper, folder):
    seen, source = top(daemon, "tree"), some_tree(folder / "source")
    share = daemon.share
    keeper.sftp(f"put -Rp {source} /{share}/tree/by-sftp")
    keeper.scp("-rp", source, keeper.at(f"/{share}/tree/by-scp"))
    expected = tree(source)
    assert tree(seen / "by-sftp") == expected and tree(seen / "by-scp") == expected
    keeper.sftp(f"get -Rp /{share}/tree/by-sftp {folder}/back-sftp")
    keeper.scp("-rp", keeper.at(f"/{share}/tree/by-scp"), folder / "back-scp")
    assert tree(folder / "back-sftp") == expected and tree(folder / "back-scp") == expected
    owner = (seen / "by-sftp/file-1").stat()
    user = next(user for user in json.loads(daemon.run("user", "list", "--json", check=True).stdout) if user["name"] == "keeper")
    assert (owner.st_uid, owner.st_gid) == (user["uid"], user["gid"])


def test_scp_keeps_all_of_a_file(daemon, keeper, folder):
    """scp truncates a file at the first answer to a write that is out of order: of twelve files, half were cut short."""
    seen = top(daemon, "whole")
    (folder / "f").write_bytes(payload(3_000_000))
    for n in range(12):
        keeper.scp("-p", folder / "f", keeper.at(f"/{daemon.share}/whole/{n}"))
    assert {path.stat().st_size for path in seen.iterdir()} == {3_000_000}


def test_the_top_is_a_read_only_list_of_shares(daemon, keeper, folder):
    listed = keeper.sftp("pwd", "ls -la", "ls -la /").stdout
    assert "Remote working directory: /" in listed and len(re.findall(rf"^d.* /?{daemon.share}$", listed, re.M)) == 2, listed
    (folder / "x").write_text("x")
    for wrong in [f"put {folder}/x /x", "mkdir /new", f"rmdir /{daemon.share}", f"rename /{daemon.share} /other"]:
        assert keeper.sftp(wrong, check=False).returncode != 0, wrong
    keeper.sftp(f"cd {daemon.share}/..", "cd /../..", f"ls {daemon.share}", "df /")


def test_names_links_and_attributes(daemon, keeper, folder):
    seen = top(daemon, "names")
    (folder / "a").write_bytes(b"one")
    at = f"/{daemon.share}/names"
    keeper.sftp(
        f"put {folder}/a {at}/a", f"mkdir {at}/d", f"ln {at}/a {at}/hard", f"ln -s a {at}/soft", f"rename {at}/a {at}/d/b",
        f"chmod 640 {at}/hard", f"put {folder}/a {at}/gone", f"rm {at}/gone", f"mkdir {at}/empty", f"rmdir {at}/empty",
        f"ln -s ../../../../etc/passwd {at}/out", f"ln -s /etc/passwd {at}/far", f"ls -l {at}", f"df {at}", f"cp {at}/hard {at}/copy",
    )
    assert sorted(p.name for p in seen.iterdir()) == ["copy", "d", "far", "hard", "out", "soft"]
    assert os.readlink(seen / "soft") == "a" and (seen / "hard").stat().st_nlink == 2
    assert stat.S_IMODE((seen / "d/b").stat().st_mode) == 0o640 and (seen / "copy").read_bytes() == b"one"
    for lost in ["soft", "out", "far"]:
        assert keeper.sftp(f"get {at}/{lost} {folder}/got", check=False).returncode != 0, lost
    done = keeper.sftp(f"rm {at}/none", check=False)
    assert done.returncode != 0 and "No such file" in done.stderr + done.stdout, done
    assert keeper.sftp(f"rmdir {at}/d", check=False).returncode != 0, "it is not empty"


def test_passwords_keys_and_their_absence(daemon, place, folder):
    good = Client(daemon, place)
    good.sftp("ls", options=("PreferredAuthentications=password",))
    good.sftp("ls", options=("PreferredAuthentications=keyboard-interactive",))
    for user, password in [("keeper", "wrong"), ("nobody-here", daemon.password), ("keeper", "")]:
        done = Client(daemon, place, user=user, password=password).sftp("ls", check=False)
        assert done.returncode != 0 and "Permission denied" in done.stderr, done
    log = daemon.log()
    assert "SFTP: 'nobody-here' from 127.0.0.1 was refused" in log and "SFTP: 'keeper' logged in" in log, log[-3000:]
    assert "wrong" not in re.sub(r"wrong name or password", "", log), "no password is in the log"

    good.sftp("ls")  # forgives the wrong ones: an address with ten of them is locked out
    key = folder / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    with_key = Client(daemon, place, password="none", key=key)
    assert with_key.sftp("ls", check=False).returncode != 0
    config = daemon.data / "larder.toml"
    text, line = config.read_text(), key.with_suffix(".pub").read_text().strip()
    config.write_text(text.replace('name = "keeper"\n', f'name = "keeper"\nssh_keys = ["{line}"]\n'))
    daemon.run("reload", check=True)
    with_key.sftp("ls")
    config.write_text(config.read_text().replace("ssh-ed25519 ", "ssh-ed25519 no-key "))
    done = daemon.run("reload")
    assert done.returncode != 0 and "not a public key" in done.stderr, done.stderr
    config.write_text(text)
    daemon.run("reload", check=True)
    assert with_key.sftp("ls", check=False).returncode != 0, "the key was taken away"
    good.sftp("ls")

    for file in ["ssh_host_ed25519_key", "secrets"]:
        assert stat.S_IMODE((daemon.data / file).stat().st_mode) == 0o600
    assert "argon2id$" in (daemon.data / "secrets").read_text()


def test_no_shell_and_what_works_instead(daemon, keeper, folder):
    for words in [(), ("ls",), ("rsync", "--server", ".")]:
        done = keeper.ssh(*words)
        assert done.returncode == 1 and "sftp, scp, sshfs or rclone" in done.stderr, done
    done = keeper.run("ssh", *keeper.options("ExitOnForwardFailure=yes"), "-p", keeper.port, "-N", "-R", "0:127.0.0.1:1",
                      f"{keeper.user}@127.0.0.1", check=False, timeout_s=20)
    assert done.returncode != 0, "no forwarding"


def test_two_users_and_a_read_only_share(folder):
    """Files belong to who made them; a share that does not list a user is not there; read-only is read-only."""
    larder = make(folder, extra=["--sftp", "127.0.0.1:0"]).start()
    try:
        add_user(larder, "ann")
        larder.run("share", "add", "anns", "--users", "ann", "--folder", "anns", check=True)
        larder.run("share", "add", "look", "--read-only", "--folder", "look", check=True)
        keeper, ann = Client(larder, folder), Client(larder, folder, "ann", ANN)
        (folder / "f").write_bytes(b"hers")
        assert "anns" in ann.sftp("ls").stdout and "anns" not in keeper.sftp("ls").stdout
        assert keeper.sftp("ls /anns", check=False).returncode != 0
        ann.sftp(f"put {folder}/f /anns/f", "chmod 600 /anns/f", "ls -ln /anns")
        ann.sftp(f"put {folder}/f /{larder.share}/anns/g", "chmod 600 /anns/g")
        done = keeper.sftp(f"get /{larder.share}/anns/g {folder}/stolen", check=False)
        assert done.returncode != 0 and not (folder / "stolen").exists(), "the mode forbids it"
        for wrong in [f"put {folder}/f /look/f", "mkdir /look/d", "rmdir /look/d"]:
            done = ann.sftp(wrong, check=False)
            assert done.returncode != 0 and "ermission denied" in done.stderr + done.stdout, done
        larder.run("share", "remove", "look", check=True)
        assert "look" not in ann.sftp("ls").stdout, "a change of shares is seen at once"
        larder.run("user", "remove", "ann", check=True)
        assert ann.sftp("ls", check=False).returncode != 0
    finally:
        larder.end()


@pytest.mark.long
def test_guessing_locks_an_address_out(folder):
    larder = make(folder, extra=["--sftp", "127.0.0.1:0"]).start()
    try:
        guess = Client(larder, folder, password="guess")
        for _ in range(10):
            guess.sftp("ls", check=False)
        assert Client(larder, folder).sftp("ls", check=False).returncode != 0, "the right password, unseen"
        assert "locked out for a minute" in larder.log()
        counted = larder.run("metrics", check=True).stdout
        assert int(re.search(r"^larder_serve_sftp_locked_out_logins_total (\d+)", counted, re.M)[1]) >= 1
        assert int(re.search(r"^larder_serve_sftp_refused_logins_total (\d+)", counted, re.M)[1]) >= 11
    finally:
        larder.end()


def test_rclone_copies_and_checks(daemon, keeper, folder):
    seen, source = top(daemon, "rclone"), some_tree(folder / "source")
    keeper.rclone("copy", source, f":sftp:/{daemon.share}/rclone/t", "--transfers", "8")
    assert tree(seen / "t") == tree(source)
    keeper.rclone("check", "--download", source, f":sftp:/{daemon.share}/rclone/t")
    (source / "file-1").unlink()
    keeper.rclone("sync", source, f":sftp:/{daemon.share}/rclone/t")
    assert not (seen / "t/file-1").exists()


def test_sshfs_is_a_filesystem(daemon, keeper, folder):
    seen, at = top(daemon, "sshfs"), folder / "mnt"
    at.mkdir()
    keeper.run("sshfs", *keeper.options(), "-p", keeper.port, keeper.at(f"/{daemon.share}/sshfs"), at)
    try:
        some_tree(at / "t")
        os.rename(at / "t/file-2", at / "t/deep/moved")
        os.symlink("deep/moved", at / "t/link")
        os.truncate(at / "t/file-5", 1000)
        with open(at / "t/file-6", "r+b") as f:
            f.seek(1_000_000)
            f.write(b"changed")
            f.flush()
            os.fsync(f.fileno())
        with open(at / "t/file-1", "ab") as f:
            f.write(b"appended")
        os.chmod(at / "t/file-0", 0o600)
        assert os.statvfs(at).f_blocks > 0
        with pytest.raises(FileExistsError):
            os.open(at / "t/file-0", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        # The mount and sshfs see one another's files.
        (seen / "by-mount").write_bytes(payload(200_000, 5))
        assert (at / "by-mount").read_bytes() == payload(200_000, 5)
        shown = tree(at / "t")
    finally:
        subprocess.run(["fusermount3", "-u", str(at)], check=True)
    assert tree(seen / "t") == shown
    assert (seen / "t/link").read_bytes() == payload(4096, 2)
    assert (seen / "t/file-6").read_bytes()[1_000_000:1_000_007] == b"changed"


def test_five_thousand_small_files(daemon, keeper, folder):
    seen, source = top(daemon, "many"), folder / "many"
    source.mkdir()
    for n in range(5000):
        (source / f"{n:04}").write_bytes(b"%d" % n * 100)
    keeper.rclone("copy", source, f":sftp:/{daemon.share}/many/t", "--transfers", "16", "--checkers", "16")
    assert tree(seen / "t") == tree(source)
    assert len(keeper.sftp(f"ls -1 /{daemon.share}/many/t").stdout.split()) >= 5000
    keeper.rclone("purge", f":sftp:/{daemon.share}/many/t")
    assert list(seen.iterdir()) == []


def test_a_file_of_more_than_four_gib(daemon, keeper, folder):
    seen, at, far = top(daemon, "large"), folder / "mnt", (4 << 30) + 12_345
    at.mkdir()
    keeper.run("sshfs", *keeper.options(), "-p", keeper.port, keeper.at(f"/{daemon.share}/large"), at)
    try:
        with open(at / "sparse", "wb") as f:
            f.seek(far)
            f.write(b"end")
        with open(at / "sparse", "rb") as f:
            f.seek(far - 5)
            assert f.read() == b"\0" * 5 + b"end"
    finally:
        subprocess.run(["fusermount3", "-u", str(at)], check=True)
    assert (seen / "sparse").stat().st_size == far + 3
    assert (seen / "sparse").stat().st_blocks < 10_000


def test_garbage_and_silence_harm_nobody(daemon, keeper):
    port = keeper.port
    held = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    for junk in [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 5000, os.urandom(5000), b"SSH-2.0-x\r\n" + os.urandom(5000), b"SSH-2.0-x\r\n" + b"\xff" * 64]:
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.settimeout(5)
            s.sendall(junk)
            try:
                while s.recv(4096):
                    pass
            except (OSError, TimeoutError):
                pass
    keeper.sftp("ls")
    for s in held:
        s.close()


def test_a_kill_under_a_copy_loses_nothing_that_was_flushed(folder):
    """`put -f` flushes each file (fsync@openssh.com): those that are there whole after `kill -9` are right."""
    larder = make(folder, extra=["--sftp", "127.0.0.1:0"]).start()
    try:
        client, source = Client(larder, folder), folder / "source"
        source.mkdir()
        for n in range(40):
            (source / f"{n}").write_bytes(payload(700_000, n))
        batch = client.ask.with_name("batch")
        batch.write_text("".join(f"put -f {source}/{n} /{larder.share}/{n}\n" for n in range(40)))
        copying = subprocess.Popen(
            ["sftp", *client.options(), "-P", str(client.port), "-o", "BatchMode=no", "-b", str(batch), f"{client.user}@127.0.0.1"],
            env=client.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
        )
        begun = []
        for line in copying.stdout:
            if line.startswith("sftp> put"):
                begun.append(line)
            if len(begun) >= 12:
                break
        larder.kill()
        copying.kill()
        copying.wait()
        larder.start()
        again = Client(larder, folder)
        # A command is echoed when the one before it is done.
        for n in range(len(begun) - 1):
            again.sftp(f"get /{larder.share}/{n} {folder}/back")
            assert (folder / "back").read_bytes() == payload(700_000, n), n
        larder.stop()
        assert larder.check().returncode == 0
    finally:
        larder.end()
