"""Streams of file data: memory is touched once, and each byte comes back from where it was received."""

import random
from pathlib import Path

from conftest import client, payload
from nfs3 import UNSTABLE

MIB = 1 << 20
FILE_BYTES = 96 * MIB
# A page of 4 KiB touched for each page written would be 262,144.
FAULTS_PER_GIB_MAX = 60_000


def faults(pid):
    """Minor page faults of a process so far."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])


def test_a_steady_stream_touches_no_fresh_memory(fresh):
    """Files that replace one another: from the third on, their memory is that of the files before."""
    data = payload(FILE_BYTES, 1)
    with client(fresh, timeout_s=120) as nfs:
        home = nfs.mkdir(nfs.root, "streams").handle
        for n in range(6):
            before = faults(fresh.pid)
            file = nfs.create(home, "file").handle
            nfs.write_all(file, data)
            assert nfs.read_all(file) == data
            rate = (faults(fresh.pid) - before) / (FILE_BYTES / (1 << 30))
            nfs.remove(home, "file")
        assert rate < FAULTS_PER_GIB_MAX, f"{rate:.0f} page faults a GiB in the last file"


def test_writes_at_any_offset_and_of_any_length(fresh, session_seed):
    """Payloads that end in the middle of records, over one another, from memory and after a restart."""
    rng = random.Random(session_seed)
    size = 6 * MIB
    want = bytearray(payload(size, 2))
    with client(fresh, timeout_s=120) as nfs:
        file = nfs.create(nfs.root, "patchwork").handle
        nfs.write_all(file, bytes(want))
        for n in range(120):
            length = rng.choice([1, 4096, 24_000, 32_768, 65_536, 100_000, 131_072, 300_000, MIB])
            at = rng.choice([0, rng.randrange(size), rng.randrange(size) // 131_072 * 131_072])
            piece = payload(min(length, size - at), n)
            nfs.write(file, at, piece, UNSTABLE)
            want[at:at + len(piece)] = piece
            if n % 20 == 0:
                nfs.commit(file)
                assert nfs.read_all(file) == want, f"seed {session_seed}, write {n}"
        nfs.commit(file)
        assert nfs.read_all(file) == want, f"seed {session_seed}"
    assert fresh.stop() == 0
    fresh.start()
    with client(fresh, timeout_s=120) as nfs:
        assert nfs.read_all(nfs.lookup(nfs.root, "patchwork").handle) == want, f"seed {session_seed}"
