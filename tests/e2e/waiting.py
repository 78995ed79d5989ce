"""Waiting for what can be asked for, instead of for a time."""

import errno
import selectors
import shutil
import time
from pathlib import Path


def wait_for(what, limit_s=60, told=lambda: ""):
    """What `what()` says once it is true; `told()` goes with the failure."""
    end = time.monotonic() + limit_s
    while True:
        asked = time.monotonic()
        found = what()
        if found:
            return found
        now = time.monotonic()
        assert now < end, f"it did not happen within {limit_s} s. {told()}"
        # A question that costs much, such as a command, is asked half of the time: others want the processor, too.
        time.sleep(max(0.05, now - asked))


def remove_folder(folder):
    """A disk goes away although somebody may be writing to it this moment, and removing from it."""
    while Path(folder).exists():
        try:
            shutil.rmtree(folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.ENOENT):
                raise


def family(pid):
    """A process and all that it has started, by whichever of its threads."""
    children = [int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()]
    return [pid, *(one for child in children for one in family(child))]


def listens(process, port=None):
    """Whether a process or one of its children listens on a TCP port, in whatever network namespace it is."""
    for pid in family(process.pid):
        for table in ("tcp", "tcp6"):
            try:
                rows = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
                own = {entry.readlink().name for entry in Path(f"/proc/{pid}/fd").iterdir()}
            except OSError:
                continue
            for row in rows:
                fields = row.split()
                # 0A is LISTEN; the tenth field is the socket's inode.
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in own and port in (None, int(fields[1].rsplit(":", 1)[1], 16)):
                    return True
    return False


def lines_until(pipe, words, limit_s=60):
    """What a program says until a line with `words`. The program is killed by whoever calls, should it say nothing."""
    end, said = time.monotonic() + limit_s, b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while words.encode() not in said:
            assert time.monotonic() < end, f"no {words!r} within {limit_s} s in:\n{said.decode(errors='replace')}"
            if selector.select(0.2):
                chunk = pipe.read1(65536) if hasattr(pipe, "read1") else pipe.read(65536)
                assert chunk, f"it ended without {words!r}:\n{said.decode(errors='replace')}"
                said += chunk
    return said.decode(errors="replace")
