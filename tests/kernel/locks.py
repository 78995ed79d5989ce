"""Locks of two mounts: locks.py NEAR FAR, without a file with holes `locks NEAR FAR`, or `hold FILE` and `held FILE PROCESS` for one that outlives a server.

What goes wrong is printed, and the exit code says so.
"""

import fcntl
import multiprocessing
import os
import signal
import sqlite3
import sys
import time
from pathlib import Path


def is_locked(path, how, start=0, length=0):
    """Whether another client is in the way of a lock."""
    with open(path, "r+b") as file:
        try:
            how(file, start, length)
        except BlockingIOError:
            return True
    return False


def by_range(file, start, length):
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)


def whole(file, _start, _length):
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def count(path, rounds):
    link = sqlite3.connect(path, timeout=120, isolation_level=None)
    for _ in range(rounds):
        link.execute("begin immediate")
        link.execute("update counter set value = value + 1")
        link.execute("commit")
    link.close()


def two_clients(near, far):
    (near / "f").write_bytes(bytes(100))
    with open(near / "f", "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX, 10, 10)
        assert is_locked(far / "f", by_range, 15, 1), "a range locked by the other client"
        assert not is_locked(far / "f", by_range, 20, 5), "a range beside it"
        fcntl.lockf(file, fcntl.LOCK_UN, 10, 10)
        assert not is_locked(far / "f", by_range, 15, 1), "after the unlock"
        fcntl.flock(file, fcntl.LOCK_EX)
        assert is_locked(far / "f", whole), "flock of the other client"
    assert not is_locked(far / "f", whole), "after the close"
    with open(far / "f", "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        pid = os.fork()
        if pid == 0:
            with open(near / "f", "r+b") as waiting:
                fcntl.lockf(waiting, fcntl.LOCK_EX)
                waiting.write(b"mine")
            os._exit(0)
        time.sleep(1)
        assert os.waitpid(pid, os.WNOHANG) == (0, 0), "who waits for a lock waits"
        fcntl.lockf(file, fcntl.LOCK_UN)
        os.waitpid(pid, 0)
    assert (far / "f").read_bytes()[:4] == b"mine", "and then has it, with what was written before"
    link = sqlite3.connect(near / "db", isolation_level=None)
    link.execute("create table counter (value integer)")
    link.execute("insert into counter values (0)")
    link.close()
    workers = [multiprocessing.Process(target=count, args=(folder / "db", 60)) for folder in (near, far, near, far)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0, "a transaction failed"
    link = sqlite3.connect(far / "db")
    assert link.execute("select value from counter").fetchone() == (240,), "no transaction is lost"
    assert link.execute("pragma integrity_check").fetchone() == ("ok",)
    link.close()


def holes(near):
    with open(near / "sparse", "wb") as file:
        file.seek(8 << 20)
        file.write(b"behind a hole")
    with open(near / "sparse", "rb") as file:
        assert os.lseek(file.fileno(), 0, os.SEEK_DATA) > 0, "a hole is seen as one"


def hold(path):
    """Keeps a lock until it is told to end."""
    with open(path, "wb") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        file.write(b"held")
        file.flush()
        os.fsync(file.fileno())
        signal.sigwait({signal.SIGTERM})


def held(path, process):
    """The lock is there still, and goes with its process."""
    with open(path, "r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            raise AssertionError("the lock is gone")
        except BlockingIOError:
            pass
        os.kill(process, signal.SIGTERM)
        fcntl.lockf(file, fcntl.LOCK_EX)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["hold", path]:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            hold(path)
        case ["held", path, process]:
            held(path, int(process))
        case ["locks", near, far]:
            two_clients(Path(near), Path(far))
        case [near, far]:
            two_clients(Path(near), Path(far))
            holes(Path(near))
