"""What the guard of a share must know apart: programs that ruin files, and programs that only look like it.

`python3 tests/e2e/guard_loads.py` runs all of them at full size on a share over SFTP and prints the table of docs/alerts.md
(`make false-alarms`). `test_guard.py` runs them small. Each load gets a folder of the share, and a folder of a disk for its
own things; what others made before, they made through `there`, a local mount of the same folder.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

TEXT = b"Dear Ann, these are the words of a letter that somebody can read, line after line.\n"


def run(*command, **more):
    env = {**os.environ, "RESTIC_PASSWORD": "x", "BORG_PASSPHRASE": "x", "BORG_RELOCATED_REPO_ACCESS_IS_OK": "yes",
           "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes", "HOME": str(more.get("cwd", "/tmp")),
           "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=1800, env=env, check=False, **more)
    assert done.returncode == 0, (command, done.stdout[-1000:], done.stderr[-2000:])


def jpeg(rng, size):
    head = bytes.fromhex("ffd8ffe000104a46494600010100000100010000ffdb004300") + bytes(range(16, 80))
    return head + rng.randbytes(size - len(head))


def open_to_all(tree):
    for path in [tree, *tree.rglob("*")]:
        path.chmod(0o777 if path.is_dir() else 0o666)


def letters(top, there, rng, count, each=8):
    """Files that somebody needs, over `count / each` folders: letters and photos."""
    made = []
    for n in range(count):
        folder = f"folder{n // each}"
        (there / folder).mkdir(exist_ok=True)
        path = f"{folder}/letter{n}.txt" if n % 2 else f"{folder}/photo{n}.jpg"
        (there / path).write_bytes(TEXT * rng.randint(50, 100) if n % 2 else jpeg(rng, rng.randint(4000, 40_000)))
        made.append(top / path)
    open_to_all(there)
    return made


def source(own, rng, size):
    """A tree to back up: `size` is the number of files."""
    tree = own / "source"
    tree.mkdir(exist_ok=True)
    for n in range(size):
        folder = tree / f"d{n % 17}"
        folder.mkdir(exist_ok=True)
        (folder / f"f{n}").write_bytes(rng.randbytes(rng.randint(1000, 200_000)))
    return tree


def photo_import(top, there, own, rng, size):
    """New files under a temporary name, renamed; then the dates of half of them are corrected within the files."""
    for n in range(size * 4):
        part = top / f"IMG_{n}.jpg.part"
        part.write_bytes(jpeg(rng, rng.randint(20_000, 200_000)))
        part.rename(top / f"IMG_{n}.jpg")
    for n in range(0, size * 4, 2):
        with open(top / f"IMG_{n}.jpg", "r+b") as photo:
            photo.seek(60)
            photo.write(b"2026:11:27 10:00:00\0" * 20)


def video_export(top, there, own, rng, size):
    """One large file, whose index is written to its beginning in the end; ten times."""
    for n in range(10):
        with open(top / f"film{n}.mp4", "w+b") as film:
            film.write(b"\0\0\0\x08wide" + bytes(4096))
            for _ in range(size // 10):
                film.write(rng.randbytes(1 << 20))
            film.seek(0)
            film.write(b"\0\0\0\x20ftypisom" + bytes(200) + rng.randbytes(3000))


def restic(top, there, own, rng, size):
    """Three backups into an encrypted repository, and all but one pruned."""
    run("restic", "-q", "-r", top / "repo", "init", cwd=own)
    for _ in range(3):
        run("restic", "-q", "-r", top / "repo", "backup", source(own, rng, size * 2), cwd=own)
    run("restic", "-q", "-r", top / "repo", "forget", "--keep-last", "1", "--prune", "--max-unused", "0", cwd=own)


def borg(top, there, own, rng, size):
    """The same with borg, small segments, and compaction."""
    run("borg", "init", "-e", "repokey", top / "repo", cwd=own)
    run("borg", "config", top / "repo", "max_segment_size", "1000000", cwd=own)
    for n in range(3):
        run("borg", "create", f"{top / 'repo'}::a{n}", source(own, rng, size * 2), cwd=own)
    run("borg", "delete", top / "repo", "a0", "a1", cwd=own)
    run("borg", "compact", "--threshold", "0", top / "repo", cwd=own)


def git_gc(top, there, own, rng, size):
    """Many loose objects that become a pack."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "gc.auto=0", "-C", top]
    run(*git, "init", "-q")
    for n in range(4):
        for m in range(size):
            (top / f"file{m}").write_bytes(b"%d %d " % (n, m) * rng.randint(10, 300))
        run(*git, "add", "-A")
        run(*git, "commit", "-q", "-m", f"{n}")
    run(*git, "gc", "-q", "--aggressive", "--prune=now")


def torrent(top, there, own, rng, size):
    """Files of reserved length whose pieces come in any order, each verified, some twice."""
    piece, files = 64 << 10, []
    for n in range(size):
        path, pieces = top / f"part{n}.bin", rng.randint(2, 12)
        with open(path, "wb") as file:
            file.truncate(pieces * piece)
        files += [(path, at) for at in range(pieces)]
    rng.shuffle(files)
    for path, at in files + files[:100]:
        with open(path, "r+b") as file:
            file.seek(at * piece)
            file.write(rng.randbytes(piece))
    for path in {path for path, _ in files}:
        path.rename(path.with_suffix(".zip"))


def container(top, there, own, rng, size):
    """An encrypted container in use, and one in bands of 1 MiB, as a Mac's sparse bundle has them: made before, rewritten in part."""
    bands = [top / f"band{n:x}" for n in range(size)]
    for band in bands:
        (there / band.name).write_bytes(rng.randbytes(1 << 20))
    (there / "container.img").write_bytes(rng.randbytes(16 << 20))
    open_to_all(there)
    with open(top / "container.img", "r+b") as image:
        for n in range(size * 10):
            image.seek(0 if n % 10 == 0 else rng.randrange(4096) * 4096)
            image.write(rng.randbytes(4096))
    for band in bands * 2:
        with open(band, "r+b") as file:
            file.write(rng.randbytes(64 << 10))


def removed_tree(top, there, own, rng, size):
    """`rm -r` of folders with many files."""
    letters(top, there, rng, size * 6, each=10)
    run("rm", "-r", *top.iterdir())


def edited(top, there, own, rng, size):
    """Every file of a project rewritten by a formatter: emptied and written, or replaced."""
    files = letters(top, there, rng, size * 2)
    for n, path in enumerate(files):
        if n % 4 < 2:
            path.write_bytes(TEXT.upper() * 60)
        else:
            new = path.with_suffix(".new")
            new.write_bytes(jpeg(rng, 9000))
            new.replace(path)


def encrypt_in_place(top, there, own, rng, size):
    """Ransomware: each file overwritten where it is, then renamed."""
    for path in letters(top, there, rng, size * 2):
        yield
        with open(path, "r+b") as file:
            file.write(rng.randbytes(path.stat().st_size))
        path.rename(f"{path}.locked")


def encrypt_beside(top, there, own, rng, size):
    """Ransomware: an encrypted copy beside each file, which is removed."""
    for path in letters(top, there, rng, size * 2):
        yield
        Path(f"{path}.locked").write_bytes(rng.randbytes(5000))
        path.unlink()


def encrypt_replacing(top, there, own, rng, size):
    """Ransomware: an encrypted file takes the name of each."""
    for path in letters(top, there, rng, size * 2):
        yield
        (top / "tmp").write_bytes(rng.randbytes(5000))
        (top / "tmp").replace(path)


def wiper(top, there, own, rng, size):
    """All files of very many folders are removed; the folders stay."""
    for path in letters(top, there, rng, max(700, size * 4)):
        yield
        path.unlink()


HARMLESS = [photo_import, video_export, restic, borg, git_gc, torrent, container, removed_tree, edited]
HARMFUL = [encrypt_in_place, encrypt_beside, encrypt_replacing, wiper]


def told(daemon):
    found = json.loads(daemon.run("alerts", "--json", check=True).stdout)
    return [alert for alert in found["open"] if alert["event"] == "files-ruined"]


def answer(daemon):
    for alert in told(daemon):
        daemon.run("alerts", "release", str(alert["id"]), check=True)


def attack(load, top, there, own, rng, size):
    """Runs a harmful load until it is done, or refused: the files that it got to."""
    done = 0
    try:
        for done, _ in enumerate(load(top, there, own, rng, size)):
            pass
    except PermissionError:
        pass
    return done


def call(load, *arguments):
    load(*arguments)


def places(daemon, mount, load, folder):
    """The folders of a load."""
    own, there, top = Path(folder) / f"own-{load.__name__}", daemon.mounted / load.__name__, mount / load.__name__
    own.mkdir()
    there.mkdir()
    there.chmod(0o777)
    return top, there, own


def main():
    sys.path.insert(0, str(Path(__file__).parent))
    from test_guard import served  # pylint: disable=import-outside-toplevel

    size, wrong = int(os.environ.get("SIZE", "200")), 0
    print("| load | alarm |\n|---|---|")
    for load in HARMLESS + HARMFUL:
        with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as (daemon, mount):
            run_it, rng = attack if load in HARMFUL else call, random.Random(7)
            run_it(load, *places(daemon, mount, load, folder), rng, size)
            alarms = told(daemon)
            wrong += (load in HARMFUL) != bool(alarms)
            said = alarms[0]["text"].split(" in the share")[0].split(" has ", 1)[1] if alarms else "none"
            print(f"| {load.__doc__.splitlines()[0]} | {said} |", flush=True)
    sys.exit(wrong)


if __name__ == "__main__":
    main()
