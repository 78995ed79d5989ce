"""Alerts and the audit log, with receivers of a test's own: each thing is told once, in order, over restarts and outages.

The daemon looks when somebody asks for alerts; so nothing here waits for a clock.
"""

import json
import os
import re
import shutil
import socket
import subprocess

import pytest

from conftest import client, make, payload
from hostile import ask
from larderd import Larder
from nfs3 import FILE_SYNC
from receivers import Mailbox, Receiver, self_signed
from test_api import ask as api
from waiting import remove_folder, wait_for


# What the machine of the tests may bring with it: full or worn disks below the pool.
OF_THE_MACHINE = {"pool-filling", "disk-health", "disk-hot", "disk-worn"}


def alerts(larder, of_the_machine=False):
    found = json.loads(larder.run("alerts", "--json", check=True).stdout)
    own = [alert for alert in found["open"] if of_the_machine or alert["event"] not in OF_THE_MACHINE]
    return {**found, "open": own}


def configure(larder, text):
    """Adds to larder.toml, and has it read."""
    with open(larder.data / "larder.toml", "a") as file:
        file.write(text)
    larder.run("reload", check=True)


def kinds(messages):
    return [(message["kind"], message["event"]) for message in messages if message["event"] not in OF_THE_MACHINE]


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.close()


def test_a_disk_that_goes_and_comes_is_told_once_each(folder, receiver):
    larder = make(folder).start()
    try:
        configure(larder, f'[[alert]]\nkind = "webhook"\nurl = "{receiver.url}"\n')
        with client(larder) as nfs:
            nfs.write_all(nfs.create(nfs.root, "a").handle, payload(4 << 20))
        assert alerts(larder)["open"] == []
        gone = larder.disks[1]
        os.rename(gone, f"{gone}.away")
        assert larder.status()["state"] == "DEGRADED"
        [alert] = alerts(larder)["open"]
        assert (alert["event"], alert["severity"]) == ("disk-missing", "critical")
        assert str(gone) in alert["subject"] and "larder pool" in alert["action"]
        receiver.wait(1)
        for _ in range(3):
            assert len(alerts(larder)["open"]) == 1
        # A restart in the middle repeats nothing; a kill is told by itself.
        assert larder.stop() == 0
        larder.start()
        assert [one["id"] for one in alerts(larder)["open"]] == [alert["id"]]
        larder.kill()
        larder.start()
        assert [one["id"] for one in alerts(larder)["open"]] == [alert["id"]]
        receiver.wait(2)
        assert larder.stop() == 0
        shutil.rmtree(gone, ignore_errors=True)
        os.rename(f"{gone}.away", gone)
        larder.start()
        wait_for(lambda: larder.status()["state"] == "ONLINE")
        wait_for(lambda: alerts(larder)["open"] == [])
        receiver.wait(3)
        assert kinds(receiver.messages) == [("raised", "disk-missing"), ("noted", "restarted"), ("cleared", "disk-missing")]
        numbers = [message["number"] for message in receiver.messages]
        assert numbers == sorted(set(numbers))
        text = larder.run("alerts", "list", "--all", check=True).stdout
        assert "OVER" in text and "disk-missing" in text, text
    finally:
        larder.end()


@pytest.mark.long
def test_a_disk_emptied_frozen_filled_and_returned(loop_disks, folder, receiver):
    disks = loop_disks(160, 160, 160)
    larder = Larder([disk.folder for disk in disks], folder / "data").start()
    wanted = []

    def told(*news):
        """Waits until the alerts are as told; in between each is told once."""
        wanted.extend(news)
        wait_for(lambda: alerts(larder) and len(messages()) >= len(wanted), told=lambda: f"{messages()} {larder.status()}")
        assert messages() == wanted

    def messages():
        return [(one["kind"], one["event"]) for one in receiver.messages if not one["event"].startswith("disk-h")]

    try:
        configure(larder, f'[[alert]]\nkind = "webhook"\nurl = "{receiver.url}"\n')
        with client(larder, timeout_s=120) as nfs:
            # Filled.
            names = []
            while not [one for one in alerts(larder, of_the_machine=True)["open"] if one["event"] == "pool-filling"]:
                names.append(f"fill{len(names)}")
                nfs.write_all(nfs.create(nfs.root, names[-1]).handle, payload(16 << 20, len(names)))
                assert len(names) < 40, larder.status()
            told(("raised", "pool-filling"))
            for name in names:
                nfs.remove(nfs.root, name)
            told(("cleared", "pool-filling"))
            # Emptied, and put back as an empty disk.
            remove_folder(disks[1].folder)
            larder.status()
            told(("raised", "disk-missing"))
            disks[1].folder.mkdir()
            larder.run("pool", "replace", str(disks[1].folder), check=True)
            wait_for(lambda: larder.status()["state"] == "ONLINE")
            told(("cleared", "disk-missing"))
            # Frozen: no call that writes returns, and it is given up after 30 s.
            subprocess.run(["fsfreeze", "-f", str(disks[2].mount)], check=True)
            try:
                nfs.write(nfs.create(nfs.root, "late").handle, 0, payload(5000), FILE_SYNC)
                wait_for(lambda: larder.status()["state"] == "DEGRADED")
                told(("raised", "disk-failed"))
            finally:
                subprocess.run(["fsfreeze", "-u", str(disks[2].mount)], check=True)
        wait_for(lambda: larder.run("pool", "online", larder.status()["name"], str(disks[2].folder)).returncode == 0)
        wait_for(lambda: larder.status()["state"] == "ONLINE")
        # What it could not write is counted until somebody says that it is mended.
        told(("raised", "disk-errors"), ("cleared", "disk-failed"))
        # A restart mends nothing, and its counters begin at zero.
        larder.kill()
        larder.start()
        wait_for(lambda: larder.status()["state"] == "ONLINE")
        told(("noted", "restarted"))
        assert "disk-errors" in [one["event"] for one in alerts(larder)["open"]]
        larder.run("pool", "clear", larder.status()["name"], check=True)
        told(("cleared", "disk-errors"))
    finally:
        larder.end()


def test_nothing_is_lost_while_the_network_is_away_and_nobody_waits_for_a_dead_receiver(folder, receiver):
    larder = make(folder).start()
    hole = socket.create_server(("127.0.0.1", 0))  # accepts and never answers
    try:
        configure(
            larder,
            f'[[alert]]\nkind = "webhook"\nname = "late"\nurl = "{receiver.url}"\n'
            f'[[alert]]\nkind = "webhook"\nname = "dead"\nurl = "http://127.0.0.1:{hole.getsockname()[1]}/"\n'
            f'[[alert]]\nkind = "command"\ncommand = ["/bin/sh", "-c", "cat >> {folder}/told; echo >> {folder}/told"]\n',
        )
        receiver.close()
        os.rename(larder.disks[0], f"{larder.disks[0]}.away")
        larder.status()
        assert len(alerts(larder)["open"]) == 1
        told = folder / "told"
        wait_for(lambda: told.exists() and told.read_text().endswith("\n"))
        assert json.loads(told.read_text())["event"] == "disk-missing"
        late = wait_for(lambda: next((one for one in alerts(larder)["receivers"] if one["name"] == "late" and one.get("fault")), None))
        assert late["waiting"] == 1
        assert larder.stop() == 0, "a dead receiver holds up no stop"
        receiver.open_again()
        larder.start()
        receiver.wait(1)
        assert kinds(receiver.messages) == [("raised", "disk-missing")]
        wait_for(lambda: all(one["waiting"] == 0 for one in alerts(larder)["receivers"] if one["name"] != "dead"))
        assert told.read_text().count("raised") == 1
    finally:
        hole.close()
        larder.end()


def test_mail_ntfy_and_a_test_message(folder, receiver):
    certificate, key = self_signed(folder)
    mailbox, larder = Mailbox((certificate, key)), make(folder)
    larder.start(env={"SSL_CERT_FILE": str(certificate)})
    secret = folder / "password"
    secret.write_text("Mail-Shelf-17\n")
    try:
        configure(
            larder,
            f'[[alert]]\nkind = "mail"\nto = ["ann@example.org"]\nfrom = "box@example.org"\nserver = "localhost"\nport = {mailbox.port}\n'
            f'user = "box"\npassword_file = "{secret}"\n'
            f'[[alert]]\nkind = "ntfy"\nurl = "{receiver.url}"\ntoken_file = "{secret}"\n'
            f'[[alert]]\nping = "{receiver.url}ping"\n',
        )
        tested = json.loads(larder.run("alerts", "test", "--json", check=True).stdout)
        assert [(one["name"], one.get("fault")) for one in tested] == [("mail", None), ("ntfy", None), ("ping", None)]
        [letter] = mailbox.wait(1)
        assert "Subject: " in letter and "a test message of larder" in letter and "To: ann@example.org" in letter
        assert mailbox.logins == [("box", "Mail-Shelf-17")]
        told = next(one for one in receiver.requests if one["method"] == "POST")
        assert told["headers"]["Authorization"] == "Bearer Mail-Shelf-17" and "test message" in told["headers"]["Title"]
        assert wait_for(lambda: [one for one in receiver.requests if one["path"] == "/ping"])
        # A server that somebody else has put in its place gets nothing.
        assert larder.stop() == 0
        larder.start()
        done = larder.run("alerts", "test")
        assert done.returncode == 1 and "mail: NOT delivered" in done.stdout and "certificate" in done.stdout, done.stdout
        assert len(mailbox.letters) == 1 and len(mailbox.logins) == 1
        # One that does not take it is named, and the exit code says so.
        mailbox.close()
        done = larder.run("alerts", "test")
        assert done.returncode == 1 and "mail: NOT delivered" in done.stdout and "ntfy: delivered" in done.stdout
        assert "Mail-Shelf-17" not in larder.log() + done.stdout + (larder.data / "watch/state").read_text()
    finally:
        mailbox.close()
        larder.end()


def test_acknowledged_silenced_and_a_configuration_that_does_not_load(fresh):
    file = fresh.data / "larder.toml"
    good = file.read_text()
    file.write_text(good + '\n[[alert]]\nkind = "pigeon"\n')
    assert fresh.run("reload").returncode != 0
    [alert] = alerts(fresh)["open"]
    assert alert["event"] == "config-invalid" and "pigeon" in alert["text"]
    fresh.run("alerts", "ack", str(alert["id"]), check=True)
    fresh.run("alerts", "silence", str(alert["id"]), "--for", "8h", check=True)
    [alert] = alerts(fresh)["open"]
    assert alert["acknowledged"] and alert["silent_until_ms"] > alert["since_ms"]
    assert fresh.run("alerts", "ack", "999").returncode != 0
    file.write_text(good)
    fresh.run("reload", check=True)
    assert alerts(fresh)["open"] == []


@pytest.mark.long
def test_a_mount_that_cannot_be_made_is_told_and_made_once_it_can_be(fresh):
    at = fresh.data.parent / "mounted"
    configure(fresh, f'\n[[mount]]\ndir = "{at}"\nvolume = "tank/files"\n')
    found = wait_for(lambda: alerts(fresh)["open"], limit_s=100)
    assert [(alert["event"], alert["subject"]) for alert in found] == [("mount-down", str(at))], found
    assert found[0]["text"] == f"cannot mount on {at}: no such file or directory" and "larder reload" in found[0]["action"], found
    at.mkdir()
    fresh.run("reload", check=True)
    assert os.path.ismount(at)
    wait_for(lambda: not alerts(fresh)["open"])


def test_dry_runs_are_no_acts_and_each_act_is_one_record(fresh):
    acts = lambda: [(one["what"], one["result"]) for one in map(json.loads, fresh.run("audit", "--json", check=True).stdout.splitlines()) if one["kind"] == "act"]  # noqa: E731
    fresh.run("snap", "create", "files@one", check=True)
    disk = fresh.disks[0].parent / "disk9"
    disk.mkdir()
    before = acts()
    fresh.run("pool", "add", "tank", disk, "--spare", "--dry-run", "--force", check=True)
    fresh.run("snap", "destroy", "files@one", "--dry-run", check=True)
    fresh.run("import", "/etc/skel", "files", "--dry-run", check=True)
    assert acts() == before, "a dry run changes nothing"
    fresh.run("snap", "destroy", "files@one", check=True)
    fresh.run("import", "/etc/skel", "files", check=True)
    fresh.run("pool", "add", "tank", disk, "--spare", "--force", check=True)
    assert acts()[len(before):] == [("ChangeSnapshots", "done"), ("ImportFolder", "done"), ("ChangePool", "done")]
    # The word means something where there are dry runs, and nothing elsewhere.
    status, _, text = api(fresh, "POST", "/v1/groups", json.dumps({"name": "family", "members": [], "dry_run": True}))
    assert (status, acts()[-1]) == (200, ("AddGroup", "done")), text


def test_the_audit_log_has_acts_logins_and_refusals_and_no_secret(folder):
    larder = make(folder, extra=["--webdav", "127.0.0.1:0"]).start()
    try:
        with_password = subprocess.run(
            [larder.program, "--data", str(larder.data), "user", "add", "ann"], input="Secret-Shelf-99\n", text=True, capture_output=True
        )
        assert with_password.returncode == 0, with_password.stderr
        assert larder.run("volume", "create", "tank/films").returncode == 0
        assert larder.run("volume", "create", "tank/films").returncode != 0
        port = larder.info["webdav"]["port"]
        assert ask(port, "keeper", larder.password) == 207
        assert ask(port, "keeper", "wrong") == 401
        lines = wait_for(lambda: [line for line in larder.run("audit", "--syslog", check=True).stdout.splitlines() if " refusal " in line])
        form = re.compile(r"<(108|110)>1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [!-~]+ larder - (act|login|refusal|config) - (\{.*\})")
        for line in larder.run("audit", "--syslog", check=True).stdout.splitlines():
            assert form.fullmatch(line) and json.loads(form.fullmatch(line).group(3))["at_ms"], line
        assert lines[0].startswith("<108>") and "Secret-Shelf-99" not in "".join(lines)
        larder.run("volume", "list", check=True)

        def records(*options):
            lines = larder.run("audit", "--json", *options, check=True).stdout.splitlines()
            return [json.loads(line) for line in lines]

        wait_for(lambda: {"login", "refusal"} <= {one["kind"] for one in records()})
        acts = [(one["what"], one.get("target", ""), one["result"]) for one in records() if one["kind"] == "act"]
        assert ("AddUser", "name=ann", "done") in acts
        created = [act for act in acts if act[0] == "CreateVolume"]
        assert [act[2] for act in created] == ["done", "refused: conflict"] and "name=films" in created[0][1]
        assert not [act for act in acts if act[0] == "GetVolumes"], "questions are no acts"
        add = next(one for one in records() if one["what"] == "AddUser")
        assert (add["who"], add["by"], add["from"]) == ("root", "command", "local")
        assert [one["who"] for one in records() if one["kind"] == "login"] == ["keeper"]
        assert "Secret-Shelf-99" not in (larder.data / "watch/audit.jsonl").read_text()
        count = len(records())
        assert larder.stop() == 0
        assert len(records()) == count, "it is read without a daemon, too"
        larder.start()
        larder.run("user", "remove", "ann", check=True)
        numbers = [one["number"] for one in records("--since", "1h")]
        assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) == count + 1
    finally:
        larder.end()
