"""One file is the configuration: applied as a whole or not at all, live, and disturbing no client that it does not concern."""

import contextlib
import http.client
import json
import os
import random
import threading
import time

import pytest
from impacket import smb3structs as smb2
from impacket.smbconnection import SMBConnection

from conftest import client, make
from test_api import ask

# A restart with the file follows after so many accepted ones (the full campaign: 1).
RESTART_EVERY = int(os.environ.get("LARDER_RESTART_EVERY", "20"))
FILES = 200
# kill -9 so often while a file is applied (the full campaign: 200).
KILLS = int(os.environ.get("LARDER_APPLY_KILLS", "8"))
STATE = ["shares", "users", "groups", "volumes", "snapshot-schedules", "mounts", "replications"]
# Measured anew at each question.
MEASURED = {"used_bytes", "stored_bytes", "compression_ratio", "available_bytes", "kept", "newest", "next_ms", "changed"}


def without_measures(value):
    if isinstance(value, dict):
        return {key: without_measures(inner) for key, inner in value.items() if key not in MEASURED}
    return [without_measures(inner) for inner in value] if isinstance(value, list) else value


def state(daemon):
    """What the daemon has and serves, as its API tells it."""
    found = {}
    for part in STATE:
        status, _, text = ask(daemon, "GET", f"/v1/{part}")
        assert status == 200, (part, text)
        found[part] = without_measures(json.loads(text))
    return found


def call(daemon, what, **request):
    status, _, text = ask(daemon, "POST", f"/v1/config/{what}", json.dumps(request))
    return status, json.loads(text)


def apply(daemon, text, **options):
    """Plans and applies: the status of the last step, and its answer."""
    status, plan = call(daemon, "plan", text=text)
    return (status, plan) if status != 200 else call(daemon, "apply", text=text, base=plan["base"], **options)


def config(daemon):
    return daemon.data / "larder.toml"


def valid(base, rng, keeper):
    """A file with any users, groups, volumes and shares."""
    text = base
    users = [f"u{n}" for n in range(6) if rng.random() < 0.6]
    text += keeper
    for user in users:
        text += f'\n[[user]]\nname = "{user}"\nuid = {3000 + int(user[1])}\n'
        if rng.random() < 0.3:
            text += f"groups = [{rng.randrange(2000, 2004)}]\n"
    groups = [f"g{n}" for n in range(3) if rng.random() < 0.5]
    for group in groups:
        members = json.dumps(rng.sample(users, rng.randrange(len(users) + 1)))
        text += f'\n[[group]]  # of {group}\nname = "{group}"\ngid = {2000 + int(group[1])}\nmembers = {members}\n'
    volumes = ["files", *(f"v{n}" for n in range(3) if rng.random() < 0.7)]
    for volume in volumes:
        text += f'\n[[volume]]\nname = "tank/{volume}"\n'
        for key, values in [("quota", ["1GiB", "2TB", "none"]), ("compression", ["lz4", "zstd:3", "none"]), ("sync", ["standard", "relaxed"])]:
            text += f'{key} = "{rng.choice(values)}"\n'
        if rng.random() < 0.3:
            text += f"snapshots = {{ daily = {rng.randrange(1, 30)} }}\n"
    for number in range(rng.randrange(5)):
        text += f'\n[[share]]\nname = "s{number}"\nvolume = "tank/{rng.choice(volumes)}"\n'
        for key in ["nfs", "smb", "sftp", "webdav", "read_only", "common", "secure", "normalize", "snapshots_shown", "recycle"]:
            if rng.random() < 0.3:
                text += f"{key} = {rng.choice(['true', 'false'])}\n"
        if rng.random() < 0.5:
            names = [*users, *(f"@{group}" for group in groups)]
            text += f"users = {json.dumps(rng.sample(names, rng.randrange(len(names) + 1)))}\n"
        if rng.random() < 0.4:
            text += f"networks = [\"10.{rng.randrange(256)}.0.0/16\"]\nsquash = \"{rng.choice(['root', 'all', 'none'])}\"\n"
    return text


def spoiled(text, rng):
    """The same with one mistake, and a word of the complaint about it."""
    mistakes = {
        "a misspelt key": lambda t: (t + '\n[[share]]\nname = "x"\nvalume = "tank/files"\n', "did you mean `volume`?"),
        "a wrong type": lambda t: (t + '\n[[user]]\nname = "x"\nuid = "one"\n', "invalid type"),
        "a missing key": lambda t: (t + '\n[[user]]\nname = "x"\n', "`uid` is missing"),
        "an unknown user": lambda t: (t + '\n[[share]]\nname = "x"\nvolume = "tank/files"\nusers = ["kepeer"]\n', "did you mean 'keeper'?"),
        "an unknown pool": lambda t: (t + '\n[[volume]]\nname = "tnak/x"\n', "did you mean 'tank'?"),
        "a name twice": lambda t: (t + '\n[[user]]\nname = "KEEPER"\nuid = 7\n', "are named 'keeper'"),
        "no TOML": lambda t: (t + "\n[[share\n", ""),
        "a cut": lambda t: (t + '\nname = "', ""),
        "a volume that is not there": lambda t: (t + '\n[[share]]\nname = "x"\nvolume = "tank/none"\n', "there is no volume tank/none"),
        "a folder that is not there": lambda t: (t + '\n[[share]]\nname = "x"\nvolume = "tank/files"\nfolder = "none"\n', "there is no folder 'none'"),
        "a folder of the machine that is not there": lambda t: (t + '\n[[share]]\nname = "x"\nfolder = "/nowhere/x"\n', "no folder /nowhere/x"),
        "a new volume, and a mount that fails": lambda t: (
            t + '\n[[volume]]\nname = "tank/extra"\n\n[[mount]]\ndir = "/nowhere/x"\nvolume = "tank/extra"\n', "cannot mount on /nowhere/x"),
        "a key that is not there": lambda t: (
            t.replace('name = "tank/files"\n', 'name = "tank/files"\nkey_file = "/nowhere/key"\n') + '\n[[volume]]\nname = "tank/w"\nkey_file = "/nowhere/key"\n', ""),
        "another pool": lambda t: (t + '\n[[pool]]\nname = "other"\ndisks = ["/nowhere/disk"]\n', "larder pool import /nowhere/disk"),
        "fewer disks": lambda t: (t.replace('disks = ["', 'disks = ["/nowhere/disk", "', 1), "larder pool add tank /nowhere/disk"),
        "other limits": lambda t: (t.replace("[limits]", "[limits]\nconnections = 77", 1), "--at-next-start"),
    }
    name = rng.choice(sorted(mistakes))
    return name, *mistakes[name](text)


@pytest.fixture
def pantry(folder):
    daemon = make(folder, layout="mirror", count=2).start()
    yield daemon
    daemon.end()


def test_any_file_is_applied_as_a_whole_or_not_at_all(pantry, session_seed):
    rng = random.Random(session_seed)
    whole = config(pantry).read_text()
    base = whole[:whole.index("[[volume]]")]
    keeper = "\n[[user]]" + whole.split("[[user]]")[1]
    accepted = 0
    for number in range(FILES):
        text = valid(base, rng, keeper)
        mistake = None
        if rng.random() < 0.5:
            mistake, text, word = spoiled(text, rng)
        told = f"seed {session_seed}, file {number}, {mistake or 'valid'}:\n{text}"
        before, bytes_before = state(pantry), config(pantry).read_bytes()
        status, answer = apply(pantry, text)
        if mistake is None:
            assert status == 200, f"{answer}\n{told}"
            accepted += 1
            written = config(pantry).read_text()
            # The number that is kept from new users is larder's; all else is the person's.
            kept = [line for line in written.splitlines() if line and not line.startswith("next_uid")]
            assert kept == [line for line in text.splitlines() if line], told
            now = state(pantry)
            faults = [share for share in now["shares"] if share.get("fault")]
            assert not faults, f"{faults}\n{told}"
            if accepted % RESTART_EVERY == 1:
                assert pantry.stop() == 0
                pantry.start()
                assert state(pantry) == now, told
        else:
            said = json.dumps(answer, ensure_ascii=False)
            assert status != 200 and word in said, f"{said}\n{told}"
            assert config(pantry).read_bytes() == bytes_before, told
            assert state(pantry) == before, told
    assert accepted > FILES // 4
    assert "panicked" not in pantry.log()


def said(text):
    """A file without the numbers that larder keeps in it."""
    return [line for line in text.splitlines() if line and not line.startswith("next_uid")]


def test_a_kill_while_a_file_is_applied_leaves_the_one_before_or_the_new_one(pantry, session_seed):
    rng = random.Random(session_seed)
    whole = config(pantry).read_text()
    base, keeper = whole[:whole.index("[[volume]]")], "\n[[user]]" + whole.split("[[user]]")[1]

    def applied_quietly(text):
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            apply(pantry, text)

    for number in range(KILLS):
        before, text = config(pantry).read_text(), valid(base, rng, keeper)
        told = f"seed {session_seed}, kill {number}:\n{text}"
        applying = threading.Thread(target=applied_quietly, args=[text])
        applying.start()
        time.sleep(rng.uniform(0, 0.15))
        pantry.kill()
        applying.join()
        left = said(config(pantry).read_text())
        assert left in (said(before), said(text)), told
        pantry.start()
        found = state(pantry)
        assert not [share for share in found["shares"] if share.get("fault")], told
        assert pantry.stop() == 0
        pantry.start()
        assert state(pantry) == found, told
        # The one that was cut off is applied by whoever asks again.
        assert apply(pantry, text)[0] == 200, told
    assert "panicked" not in pantry.log()


def test_clients_of_other_shares_go_on(pantry):
    text = config(pantry).read_text()
    more = text + '\n[[user]]\nname = "eve"\nuid = 3001\n\n[[share]]\nname = "more"\nvolume = "tank/files"\nusers = ["eve"]\n'
    smb = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=pantry.smb_port, preferredDialect=smb2.SMB2_DIALECT_21)
    smb.login(pantry.user, pantry.password)
    low = smb.getSMBServer()
    tree = low.connectTree(pantry.share)
    file = low.create(tree, "copy", 0x0012_019F, 7, 0x40, smb2.FILE_OVERWRITE_IF, 0x80)
    with client(pantry) as nfs:
        handle = nfs.create(nfs.root, "copied").handle

        def go_on(at):
            assert low.write(tree, file, b"s" * 4096, at * 4096, 4096) == 4096
            nfs.write(handle, at * 4096, b"n" * 4096)

        go_on(0)
        plan = call(pantry, "plan", text=more)[1]
        assert [change["entry"] for change in plan["changes"]] == ["[[user]] eve", "[[share]] more"], plan
        assert not any("interrupts" in change for change in plan["changes"]), plan
        assert apply(pantry, more)[0] == 200
        go_on(1)
        less = more.replace('users = ["eve"]', 'users = ["keeper"]\nread_only = true')
        assert apply(pantry, less)[0] == 200
        go_on(2)
        assert apply(pantry, text)[0] == 200
        go_on(3)
        # One that concerns them ends what they do, and says so first.
        closed = text.replace('name = "files"', 'name = "files"\nread_only = true', 1) if 'name = "files"' in text else text
        plan = call(pantry, "plan", text=closed)[1]
        said = [line for change in plan["changes"] for line in change.get("interrupts", [])]
        assert "SMB clients of 'files' are disconnected, and connect again" in said, plan
        assert apply(pantry, closed)[0] == 200
        with pytest.raises(Exception):
            low.write(tree, file, b"s" * 4096, 5 * 4096, 4096)
    smb.close()


def test_the_commands(pantry, folder):
    """Check, show, diff and apply as a person types them."""
    text = config(pantry).read_text()
    file = folder / "new.toml"

    file.write_text(text + '\n[[share]]\nname = "x"\nvalume = "tank/files"\n')
    for command in ("check", "diff", "apply"):
        said = pantry.run("config", command, file)
        line = text.count("\n") + 4
        assert said.returncode == 1 and f"{file}:{line}:1: unknown key `valume`, did you mean `volume`?" in said.stderr, said.stderr

    schema = json.loads(pantry.run("config", "schema", check=True).stdout)
    assert schema["properties"]["share"]["items"]["properties"]["squash"]["enum"] == ["root", "all", "none"]
    shown = pantry.run("config", "show", "--defaults", check=True).stdout
    assert 'secure = true # default' in shown
    file.write_text(shown)
    assert pantry.run("config", "diff", file, check=True).stdout.startswith("nothing differs")

    file.write_text(text + '\n[[share]]\nname = "more"\nvolume = "tank/files"\n')
    said = pantry.run("config", "diff", file, check=True).stdout
    assert said.startswith('+ [[share]] more\n  + volume = "tank/files"\n'), said
    assert pantry.run("config", "apply", file, check=True).stdout.endswith("applied\n")
    assert "more" in pantry.run("share", "list", check=True).stdout
    again = pantry.run("config", "apply", file, check=True).stdout
    assert again == "nothing differs\napplied\n" or again.startswith("nothing differs\n"), again

    file.write_text(text)
    said = pantry.run("config", "apply", file)
    assert said.returncode == 1 and "clients of the share 'more' lose it" in said.stderr and "--yes" in said.stderr, said.stderr
    assert "more" in pantry.run("share", "list", check=True).stdout
    pantry.run("config", "apply", file, "--yes", check=True)
    assert "more" not in pantry.run("share", "list", check=True).stdout

    mount = folder / "mounted"
    mount.mkdir()
    mounts = text + f'\n[[mount]]\ndir = "{mount}"\nvolume = "tank/files"\n'
    file.write_text(mounts)
    pantry.run("config", "apply", file, check=True)
    assert os.path.ismount(mount)
    file.write_text(text)
    with open(mount / "busy", "w"):
        said = pantry.run("config", "apply", file, "--yes")
        assert said.returncode == 1 and "in use" in said.stderr, said.stderr
        assert os.path.ismount(mount) and config(pantry).read_text() == mounts
    pantry.run("config", "apply", file, "--yes", check=True)
    assert not os.path.ismount(mount)

    # A plan is for the file that it was made for.
    plan = call(pantry, "plan", text=mounts)[1]
    pantry.run("share", "set", "files", "--read-only", check=True)
    status, answer = call(pantry, "apply", text=mounts, base=plan["base"])
    assert status != 200 and "was changed meanwhile" in answer["message"], answer

    # Without a daemon the file is written for the next start.
    assert pantry.stop() == 0
    said = pantry.run("config", "apply", file, check=True).stdout
    assert "the next start reads the file" in said and config(pantry).read_text() == text
    pantry.start()


def test_the_file_is_kept_as_it_was_saved(pantry, folder):
    """A link stays a link, and lines end as they did."""
    file, elsewhere = config(pantry), folder / "kept" / "nas.toml"
    elsewhere.parent.mkdir()
    text = "# mine\n" + file.read_text()
    elsewhere.write_bytes(text.replace("\n", "\r\n").encode())
    file.unlink()
    file.symlink_to(elsewhere)
    pantry.run("reload", check=True)
    pantry.run("group", "add", "linked", check=True)
    assert file.is_symlink()
    now = elsewhere.read_bytes()
    assert b"linked" in now and now.startswith(b"# mine\r\n") and now.count(b"\n") == now.count(b"\r\n")
    wanted = folder / "wanted.toml"
    wanted.write_bytes(now + b"# applied\r\n")
    pantry.run("config", "apply", wanted, "--yes", check=True)
    assert file.is_symlink() and elsewhere.read_bytes().endswith(b"# applied\r\n")


def test_complaints_about_files_that_are_none(pantry, folder):
    file = folder / "wanted.toml"

    def check(text, *words):
        file.write_bytes(text)
        before = config(pantry).read_bytes()
        for command in (["config", "check", file], ["config", "apply", file, "--yes"]):
            refused = pantry.run(*command)
            assert refused.returncode == 1 and len(refused.stderr) < 1000, refused.stderr
            assert all(word in refused.stderr for word in words), refused.stderr
        assert config(pantry).read_bytes() == before
    base = config(pantry).read_bytes()
    check(base.decode().encode("utf-16"), "wanted.toml:1:1", "UTF-8")
    check(base + b"# m\xe4\n", f"wanted.toml:{base.count(b'%c' % 10) + 1}:4", "UTF-8")
    check(b"x" * 5000 + b" = =\n", "wanted.toml:1:", "...")
    check(base + b"# " + b"x" * (1 << 20), "too large")
    check(base + b'[[user]]\nname = "u"\nuid = "x"\n', "whole number from 0 to 4294967295")
    check(base + b'[[user]]\nname = "u"\npassword = "x"\n', "larder user passwd")


def test_a_change_that_an_option_outranks_is_told(pantry, folder):
    """`larder up --nfs` is more than `nfs` of the file."""
    file = folder / "wanted.toml"
    text = config(pantry).read_text()
    file.write_text(text.replace('nfs = "127.0.0.1:0"', 'nfs = "127.0.0.1:12049"'))
    assert file.read_text() != text
    assert "[listen] of this file counts once" in pantry.run("config", "diff", file, check=True).stdout
