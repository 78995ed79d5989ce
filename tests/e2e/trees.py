"""Trees of files for whole-pool tests: everything that a filesystem holds, and how to tell whether it is all there."""

import os
import random
from pathlib import Path


def payload(size, seed=1):
    """Bytes that do not compress, different for each seed."""
    return random.Random(seed).randbytes(size)


def fill(top, files=40, sizes=(0, 1, 900, 5000, 70_000, 300_000), big_bytes=9_000_000):
    """A tree of everything that a filesystem holds. Returns what `describe` says of it."""
    top, rng = Path(top), random.Random(7)
    top.joinpath("docs/deep/er").mkdir(parents=True)
    for n in range(files):
        size = rng.choice(sizes)
        top.joinpath(f"docs/file-{n}").write_bytes(payload(size, n))
    top.joinpath("docs/text.txt").write_bytes(b"the same line over and over\n" * 40_000)
    top.joinpath("big.bin").write_bytes(payload(big_bytes, 99))
    with open(top / "sparse", "wb") as f:
        f.seek(5 << 20)
        f.write(b"end")
    top.joinpath("docs/deep/er/name with \xc3\xa4 and \t tab").write_text("odd")
    os.symlink("docs/file-1", top / "link")
    os.link(top / "big.bin", top / "docs/deep/second-name")
    os.mkfifo(top / "pipe")
    os.setxattr(top / "docs/file-3", "user.colour", b"red")
    os.chown(top / "docs/file-4", 1234, 2345)
    os.chmod(top / "docs/file-5", 0o4751)
    os.chmod(top / "docs/deep", 0o2750)
    os.utime(top / "docs/file-6", ns=(1_000_000_001, 1_234_567_890_123_456_789))
    os.utime(top / "docs/deep", ns=(5, 981_173_106_000_000_001))
    with open(top / "docs/file-7", "r+b") as f:
        f.write(b"rewritten")
        f.flush()
        os.fsync(f.fileno())
    return describe(top)


def describe(top):
    """Everything that can be told of each name below `top`."""
    found = {}
    for path in sorted(Path(top).rglob("*")):
        stat = path.lstat()
        about = [stat.st_mode, stat.st_uid, stat.st_gid, stat.st_mtime_ns, stat.st_nlink if not path.is_dir() else 0]
        if path.is_symlink():
            about.append(os.readlink(path))
        elif path.is_file():
            about += [path.read_bytes(), {name: os.getxattr(path, name) for name in os.listxattr(path)}]
        found[str(path.relative_to(top))] = about
    return found
