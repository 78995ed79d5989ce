"""kill -9 at random moments: what was acknowledged is there afterwards.

Each worker is one client with a directory of its own and a model of it. It issues one operation at a time and
enters it into the model when it is acknowledged; the one in flight at the kill may have happened or not.

  K1  An acknowledged CREATE, MKDIR, SYMLINK, LINK, REMOVE, RMDIR, RENAME, SETATTR is there after the restart.
  K2  So is every byte of a FILE_SYNC WRITE, and of an UNSTABLE one whose COMMIT gave the same verifier.
  K3  A byte of an uncommitted WRITE is the old one or a new one, nothing else.
  K4  Whoever has uncommitted data sees another verifier after the restart.
  K5  `larder check` finds nothing.

LARDER_KILLS sets the number of kills (50), LARDER_SEED repeats a run.
"""

import os
import random
import signal
import threading
import time

import pytest

import nfs3
from conftest import client
from larderd import StartFailed
from nfs3 import FILE_SYNC, UNSTABLE, Disconnected, NfsError

KILLS = int(os.environ.get("LARDER_KILLS", "50"))
WORKERS = 4
CHECK_EVERY = 20


class File:
    """What a file may hold: `sure` is durable; `maybe` are uncommitted writes in order (K3)."""

    def __init__(self):
        self.sure = bytearray()
        self.maybe = []
        self.verifier = None

    def put(self, at, data):
        if len(self.sure) < at + len(data):
            self.sure.extend(b"\0" * (at + len(data) - len(self.sure)))
        self.sure[at:at + len(data)] = data

    def truncate(self, size):
        self.commit()
        self.sure = self.sure[:size] + b"\0" * (size - len(self.sure))

    def commit(self):
        for at, data in self.maybe:
            self.put(at, data)
        self.maybe, self.verifier = [], None

    def mismatch(self, found):
        """None, or what is wrong with the bytes found."""
        if not self.maybe:
            if found == self.sure:
                return None
            first = next((n for n, (a, b) in enumerate(zip(found, self.sure)) if a != b), min(len(found), len(self.sure)))
            return f"{len(found)} bytes, {len(self.sure)} expected, first difference at {first}"
        longest = max(at + len(data) for at, data in self.maybe)
        if not len(self.sure) <= len(found) <= max(len(self.sure), longest):
            return f"{len(found)} bytes, expected {len(self.sure)} to {longest}"
        allowed = [bytes(self.sure).ljust(len(found), b"\0")]
        for at, data in self.maybe:
            layer = bytearray(allowed[0])
            piece = data[:max(0, len(found) - at)]
            layer[at:at + len(piece)] = piece
            allowed.append(bytes(layer))
        for at in range(0, len(found), 512):
            block = found[at:at + 512]
            if any(block == layer[at:at + 512] for layer in allowed):
                continue
            for n, byte in enumerate(block, at):
                if all(byte != layer[n] for layer in allowed):
                    return f"byte {n} is {byte:#x}: neither the durable one nor one written since"
        return None


class Worker:
    """One client, its model, and the operation in flight."""

    def __init__(self, name, seed):
        self.name, self.rng = name, random.Random(f"{seed}-{name}")
        self.tree = {}  # path below the home -> File, "dir", or ("link", target)
        self.handles = {}
        self.pending = None  # (description, model after it)
        self.acknowledged = 0
        self.failure = None

    # ---- while the server lives ----

    def run(self, daemon, started):
        """Until the connection breaks."""
        try:
            with client(daemon, timeout_s=30) as nfs:
                self.home = nfs.walk(self.name)
                self.handles = {"": self.home}
                started.set()
                while True:
                    self.step(nfs)
        except (Disconnected, OSError):
            started.set()
        except Exception as error:  # told by the test
            self.failure = f"{self.name}: {self.pending and self.pending[0]}: {error!r}"
            started.set()

    def handle(self, nfs, path):
        if path not in self.handles:
            self.handles[path] = nfs.walk(path, self.home)
        return self.handles[path]

    def parent(self, nfs, path):
        folder, _, name = path.rpartition("/")
        return self.handle(nfs, folder), name

    def new_path(self):
        folders = [""] + [p + "/" for p, kind in self.tree.items() if kind == "dir" and p.count("/") < 3]
        return self.rng.choice(folders) + f"n{self.rng.randrange(1 << 30):x}"

    def pick(self, want):
        found = [p for p, kind in self.tree.items() if want(kind)]
        return self.rng.choice(found) if found else None

    def doing(self, what, undo):
        """`undo(tree)` edits a copy of the model into what it is once the operation has happened."""
        self.pending = (what, undo)

    def done(self):
        self.pending[1](self.tree)
        self.pending = None
        self.acknowledged += 1

    def step(self, nfs):
        is_file = lambda kind: isinstance(kind, File)
        kind = self.rng.choices(
            ("create", "sync", "unstable", "commit", "remove", "rename", "mkdir", "rmdir", "truncate", "symlink"),
            (14, 18, 14, 8, 7, 8, 4, 2, 3, 3))[0]
        file = self.pick(is_file)
        if len(self.tree) > 150 and file:
            kind = "remove"
        if kind in ("sync", "unstable", "commit", "remove", "rename", "truncate") and not file:
            kind = "create"
        getattr(self, "do_" + kind)(nfs, file)

    def do_create(self, nfs, _):
        path = self.new_path()
        folder, name = self.parent(nfs, path)
        self.doing(f"CREATE {path}", lambda tree: tree.__setitem__(path, File()))
        self.handles[path] = nfs.create(folder, name, how=nfs3.GUARDED).handle
        self.done()

    def do_mkdir(self, nfs, _):
        path = self.new_path()
        folder, name = self.parent(nfs, path)
        self.doing(f"MKDIR {path}", lambda tree: tree.__setitem__(path, "dir"))
        self.handles[path] = nfs.mkdir(folder, name).handle
        self.done()

    def do_symlink(self, nfs, _):
        path = self.new_path()
        folder, name = self.parent(nfs, path)
        self.doing(f"SYMLINK {path}", lambda tree: tree.__setitem__(path, ("link", b"to " + path.encode())))
        nfs.symlink(folder, name, "to " + path)
        self.done()

    def do_rmdir(self, nfs, _):
        path = self.pick(lambda kind: kind == "dir")
        if path is None or any(p.startswith(path + "/") for p in self.tree):
            return
        folder, name = self.parent(nfs, path)
        self.doing(f"RMDIR {path}", lambda tree: tree.pop(path))
        nfs.rmdir(folder, name)
        self.handles.pop(path, None)
        self.done()

    def do_remove(self, nfs, path):
        folder, name = self.parent(nfs, path)
        self.doing(f"REMOVE {path}", lambda tree: tree.pop(path))
        nfs.remove(folder, name)
        self.handles.pop(path, None)
        self.done()

    def do_rename(self, nfs, path):
        # Half of them replace another file.
        target = self.pick(lambda kind: isinstance(kind, File)) if self.rng.random() < 0.5 else self.new_path()
        if target == path:
            return
        (source_dir, source_name), (target_dir, target_name) = self.parent(nfs, path), self.parent(nfs, target)
        self.doing(f"RENAME {path} {target}", lambda tree: tree.__setitem__(target, tree.pop(path)))
        nfs.rename(source_dir, source_name, target_dir, target_name)
        self.handles.pop(target, None)
        self.handles[target] = self.handles.pop(path, None) or nfs.walk(target, self.home)
        self.done()

    def do_truncate(self, nfs, path):
        file, size = self.tree[path], self.rng.randrange(0, 100_000)
        if file.maybe:
            return  # a truncation of what is not durable yet allows too much to be worth a model
        handle = self.handle(nfs, path)
        self.doing(f"SETATTR {path} size {size}", lambda tree: tree[path].truncate(size))
        nfs.setattr(handle, size=size)
        self.done()

    def data(self):
        size = self.rng.choice((1, 100, 4096, 4096, 8192, 20_000, 140_000))
        return self.rng.randrange(0, 200_000) if self.rng.random() < 0.7 else 0, self.rng.randbytes(size)

    def do_sync(self, nfs, path):
        if self.tree[path].maybe:
            return self.do_commit(nfs, path)
        handle, (at, data) = self.handle(nfs, path), self.data()
        # Not acknowledged it may be there in part: it counts as uncommitted until the reply.
        self.doing(f"WRITE {path} {at}+{len(data)} FILE_SYNC", lambda tree: tree[path].maybe.append((at, data)))
        nfs.write(handle, at, data, FILE_SYNC)
        self.done()
        self.tree[path].commit()

    def do_unstable(self, nfs, path):
        handle, (at, data) = self.handle(nfs, path), self.data()
        self.doing(f"WRITE {path} {at}+{len(data)} UNSTABLE", lambda tree: tree[path].maybe.append((at, data)))
        reply = nfs.write(handle, at, data, UNSTABLE)
        self.done()
        file = self.tree[path]
        if reply.committed == FILE_SYNC and len(file.maybe) == 1:
            file.commit()
        else:
            assert file.verifier in (None, reply.verifier), "the verifier changed while the server lived"
            file.verifier = reply.verifier

    def do_commit(self, nfs, path):
        handle, file = self.handle(nfs, path), self.tree[path]
        self.doing(f"COMMIT {path}", lambda tree: None)
        verifier = nfs.commit(handle).verifier
        self.done()
        if file.maybe:
            assert verifier == file.verifier, "the verifier changed while the server lived"
        file.commit()

    # ---- after the restart ----

    def verify(self, nfs):
        """Compares what is there with the model, with and without the operation in flight; adopts what it finds."""
        self.home = nfs.walk(self.name)
        found = self.listing(nfs)
        problem = self.differences(nfs, found, self.tree)
        if problem and self.pending:
            self.pending[1](self.tree)
            second = self.differences(nfs, found, self.tree)
            if second:
                problem = f"without the operation in flight: {problem}; with it: {second}"
            else:
                problem = None
        assert not problem, f"{self.name}, in flight: {self.pending and self.pending[0]}: {problem}"
        for path, kind in self.tree.items():
            if isinstance(kind, File) and kind.maybe:
                assert nfs.commit(found[path].handle).verifier != kind.verifier, f"{path}: K4"
                kind.sure, kind.maybe, kind.verifier = bytearray(nfs.read_all(found[path].handle)), [], None
        self.pending = None

    def listing(self, nfs):
        found, folders = {}, [("", self.home)]
        for prefix, folder in folders:
            for entry in nfs.list(folder, plus=True):
                path = prefix + entry.name.decode()
                found[path] = entry
                if entry.attr.type == nfs3.DIR:
                    folders.append((path + "/", entry.handle))
        return found

    def differences(self, nfs, found, tree):
        missing, extra = sorted(tree.keys() - found.keys()), sorted(found.keys() - tree.keys())
        if missing or extra:
            return f"missing {missing}, not expected {extra}"
        for path, kind in tree.items():
            type_ = found[path].attr.type
            if kind == "dir":
                if type_ != nfs3.DIR:
                    return f"{path} is no directory"
            elif isinstance(kind, tuple):
                if type_ != nfs3.LNK or nfs.readlink(found[path].handle) != kind[1]:
                    return f"{path} is not the symlink it was"
            else:
                wrong = kind.mismatch(nfs.read_all(found[path].handle))
                if wrong:
                    return f"{path}: {wrong}"
        return None


def check_is_clean(daemon):
    """K5, on the disks of a daemon that is stopped."""
    result = daemon.check()
    assert result.returncode == 0, f"larder check: exit {result.returncode}\n{result.stdout}\n{result.stderr}"


def round_of_work(daemon, workers, rng):
    """Starts the workers, kills the server at a random moment, waits for them to notice."""
    started = [threading.Event() for _ in workers]
    threads = [threading.Thread(target=w.run, args=(daemon, e)) for w, e in zip(workers, started)]
    for thread in threads:
        thread.start()
    for event in started:
        event.wait(30)
    time.sleep(rng.choice((0.02, 0.1, 0.3, 0.6)) * rng.random() + 0.005)
    daemon.kill()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a client still waits for a dead server"
    assert not [w.failure for w in workers if w.failure], [w.failure for w in workers if w.failure]


def test_an_idle_volume_does_not_fill_the_journal(fresh):
    """Each opening leaves an entry of the idle volume in the journal, before all that the other one writes."""
    data = os.urandom(1 << 20)
    fresh.run("volume", "create", "idle", check=True)
    for _ in range(14):
        with client(fresh) as nfs:
            made = nfs.create(nfs.root, "busy").handle
            for at in range(40):
                nfs.write(made, at << 20, data, FILE_SYNC)
            for n in range(200):
                nfs.create(nfs.root, f"small{n}")
        fresh.kill()
        fresh.start()
    fresh.stop()
    check_is_clean(fresh)


@pytest.mark.long
def test_kill_nine(fresh, session_seed):
    rng = random.Random(session_seed)
    workers = [Worker(f"worker{n}", session_seed) for n in range(WORKERS)]
    with client(fresh) as nfs:
        for worker in workers:
            nfs.mkdir(nfs.root, worker.name)
    for kill in range(1, KILLS + 1):
        where = f"kill {kill}, LARDER_SEED={session_seed}"
        round_of_work(fresh, workers, rng)
        if kill % CHECK_EVERY == 0:
            check_is_clean(fresh)
        try:
            fresh.start()
            with client(fresh) as nfs:
                for worker in workers:
                    worker.verify(nfs)
        except (AssertionError, NfsError, StartFailed) as error:
            raise AssertionError(f"{where}: {error}") from error
        # Now and then the next crash comes before anything else happened.
        if rng.random() < 0.1:
            fresh.kill()
            fresh.start()
    print(f"{KILLS} kills, {sum(w.acknowledged for w in workers)} acknowledged operations")
    assert fresh.stop() == 0
    check_is_clean(fresh)


def test_a_larder_starts_while_the_killed_one_still_ends(fresh):
    killed = []
    for _ in range(5):
        killed.append(fresh.process)
        os.kill(fresh.pid, signal.SIGKILL)
        fresh.process = None
        fresh.start()
    for process in killed:
        assert process.wait() == -signal.SIGKILL
        process.stdout.close()
    assert fresh.stop() == 0


def test_kill_during_a_large_write(fresh, session_seed):
    """Files of several segments, killed while they are written and while they are overwritten."""
    rng = random.Random(session_seed)
    size = 24 << 20
    old = rng.randbytes(size)
    with client(fresh) as nfs:
        file = nfs.create(nfs.root, "big").handle
        nfs.write_all(file, old)
    for attempt in range(3):
        new = rng.randbytes(size)
        with client(fresh) as nfs:
            threading.Timer(rng.uniform(0.01, 0.15), fresh.process.kill).start()
            committed = False
            try:
                nfs.write_all(file, new)
                committed = True
            except (Disconnected, OSError):
                pass
        time.sleep(0.3)
        fresh.kill()
        fresh.start()
        with client(fresh) as nfs:
            found = nfs.read_all(file)
        assert len(found) == size
        for at in range(0, size, 4096):
            page = found[at:at + 4096]
            if committed:
                assert page == new[at:at + 4096], f"attempt {attempt}: committed byte lost near {at}"
            else:
                assert page in (old[at:at + 4096], new[at:at + 4096]), f"attempt {attempt}: neither old nor new at {at}"
        old = found
