"""What a client of NFS version 4 sees and saves: views.py NEAR FAR, two mounts of one share by two clients; FAR is the folder `locks`.

What goes wrong is printed, and the exit code says so.
"""

import os
import struct
import subprocess
import sys
from pathlib import Path

LIST = "system.nfs4_acl"


def calls(mount, operation):
    """Requests with this operation so far, by the kernel's count."""
    text = Path("/proc/self/mountstats").read_text()
    part = next(part for part in text.split("\ndevice ") if f" mounted on {mount} " in part)
    line = next(line for line in part.splitlines() if line.strip().startswith(f"{operation}:"))
    return int(line.split()[1])


def delegations(near, far):
    (near / "locks" / "delegated").write_text("one")
    name = far / "delegated"
    read = lambda: name.read_text()
    assert read() == "one"
    before = calls(far, "OPEN") + calls(far, "OPEN_NOATTR")
    for _ in range(50):
        assert read() == "one"
    opens = calls(far, "OPEN") + calls(far, "OPEN_NOATTR") - before
    assert opens <= 5, f"{opens} opens of 50 went to the server"
    # The other client changes it: the delegation is recalled, and the change is seen at once.
    (near / "locks" / "delegated").write_text("another")
    assert read() == "another"


def packed(rules):
    def one(kind, flag, mask, who):
        return struct.pack(">4I", kind, flag, mask, len(who)) + who + bytes(-len(who) % 4)

    return struct.pack(">I", len(rules)) + b"".join(one(*rule) for rule in rules)


def lists(near):
    path = near / "listed"
    path.write_text("x")
    os.chmod(path, 0o640)
    assert b"OWNER@" in os.getxattr(path, LIST) and b"EVERYONE@" in os.getxattr(path, LIST)
    rules = packed([(0, 0, 0x1F01DF, b"OWNER@"), (0, 0, 0x120081, b"1234")])
    os.setxattr(path, LIST, rules)
    assert os.getxattr(path, LIST) == rules
    pid = os.fork()
    if pid == 0:
        os.setgid(1234)
        os.setuid(1234)
        os._exit(0 if path.read_text() == "x" else 1)
    assert os.waitpid(pid, 0)[1] == 0, "a user whom the list names reads"
    path.unlink()


def snapshots(near):
    then = near / ".snapshots" / "before"
    assert list(then.iterdir()) is not None
    assert os.lstat(near).st_dev != os.lstat(then).st_dev, "snapshots are a file system of their own"
    names = lambda *more: subprocess.run(["find", str(near), *more], check=True, capture_output=True, text=True).stdout.split("\n")
    within = lambda found: [name for name in found if name.startswith(f"{near}/.snapshots/")]
    assert str(near / ".snapshots") in names("-xdev") and within(names()) and not within(names("-xdev"))
    subprocess.run(["rsync", "-rx", f"{near}/", "/tmp/copied-x/"], check=True)
    assert not list(Path("/tmp/copied-x/.snapshots").iterdir()), "rsync -x stays out"


if __name__ == "__main__":
    near, far = map(Path, sys.argv[1:])
    delegations(near, far)
    lists(near)
    snapshots(near)
