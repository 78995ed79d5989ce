"""What people run: random load, git, a compiler, rsync. All from seeds that are printed."""

import filecmp
import os
import random
import shutil
import socket
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from waiting import wait_for


def run(*command, **options):
    options.setdefault("timeout", 150)
    # A make that `make test` runs is a user's make, not that one's child, which would report folders entered and left.
    options.setdefault("env", {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")})
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout[-4000:]}"
    return done.stdout


@pytest.mark.parametrize("shape", ["small", "large", "direct"])
def test_one_file_at_random(here, tool, seed, shape):
    options = {
        "small": ["-n", 6000, "-l", 256 << 10],
        "large": ["-n", 2500, "-l", 8 << 20],
        "direct": ["-n", 2500, "-l", 2 << 20, "-d"],
    }[shape]
    print(run(tool("fsx"), "-s", seed, *options, here / "file"))


def test_several_files_at_random_at_once(here, tool, seed):
    fsx = tool("fsx")
    with ThreadPoolExecutor(6) as pool:
        runs = [pool.submit(run, fsx, "-s", seed + n, "-n", 1500, "-l", 1 << 20, here / f"f{n}") for n in range(6)]
        for each in runs:
            print(each.result())


def test_many_processes_in_one_tree(here, tool, seed):
    print(run(tool("load"), "-s", seed, "-p", 8, "-n", 1500, here))
    assert os.listdir(here) == []


def make_project(folder, rng, modules=25):
    """A C project: modules that call one another, with a Makefile that knows their dependencies."""
    folder.mkdir()
    expected = 0
    for n in range(modules):
        constant = rng.randrange(1000)
        expected += constant
        (folder / f"m{n}.h").write_text(f"int m{n}(void);\n")
        body = "\n".join(f"// {rng.random()}" for _ in range(60))
        (folder / f"m{n}.c").write_text(f'#include "m{n}.h"\n{body}\nint m{n}(void) {{ return {constant}; }}\n')
    includes = "".join(f'#include "m{n}.h"\n' for n in range(modules))
    calls = " + ".join(f"m{n}()" for n in range(modules))
    (folder / "main.c").write_text(f'#include <stdio.h>\n{includes}int main(void) {{ printf("%d\\n", {calls}); return 0; }}\n')
    objects = " ".join(f"m{n}.o" for n in range(modules))
    (folder / "Makefile").write_text(f"sum: main.o {objects}\n\tcc -o $@ $^\nmain.o: $(wildcard *.h)\n")
    return expected


def test_git_and_a_build(here, seed):
    rng = random.Random(seed)
    expected = make_project(here / "origin", rng)
    git = ["git", "-c", "user.name=keeper", "-c", "user.email=keeper@example.org", "-c", "init.defaultBranch=main"]
    run(*git, "init", "-q", cwd=here / "origin")
    run(*git, "add", ".", cwd=here / "origin")
    run(*git, "commit", "-q", "-m", "first", cwd=here / "origin")
    for n in range(5):
        (here / "origin" / f"note{n}").write_text("x" * rng.randrange(20000))
        run(*git, "add", ".", cwd=here / "origin")
        run(*git, "commit", "-q", "-m", f"note {n}", cwd=here / "origin")
    run(*git, "clone", "-q", "--no-local", "origin", "clone", cwd=here)
    clone = here / "clone"
    run(*git, "fsck", "--full", "--strict", cwd=clone)
    run(*git, "gc", "-q", "--aggressive", cwd=clone)
    run(*git, "fsck", "--full", cwd=clone)
    run("make", "-s", "-j4", cwd=clone)
    assert run("./sum", cwd=clone).strip() == str(expected)
    assert run("make", cwd=clone).strip().endswith("up to date."), "nothing changed, so nothing is built"
    (clone / "m3.c").write_text('#include "m3.h"\nint m3(void) { return 0; }\n')
    assert "m3.c" in run("make", cwd=clone)
    assert [line[3:] for line in run(*git, "status", "--porcelain", "-uno", cwd=clone).splitlines()] == ["m3.c"]


def make_tree(top, rng):
    """Files of all sizes and kinds, odd names, links, attributes, holes, times and owners."""
    top.mkdir()
    folders = [top]
    for n in range(12):
        folder = rng.choice(folders) / f"dir {n}"
        folder.mkdir()
        folders.append(folder)
    files = []
    for n in range(120):
        path = rng.choice(folders) / rng.choice([f"file{n}", f"ü-{n}", f"with blank {n}", f".hidden{n}", f"-dash{n}", f"new\nline{n}"])
        size = rng.choice([0, 1, 100, 511, 4096, 5000, 70_000, 300_000])
        path.write_bytes(rng.randbytes(size) if rng.random() < 0.7 else b"compress me " * (size // 12))
        files.append(path)
    for n in range(15):
        os.link(rng.choice(files), rng.choice(folders) / f"hard{n}")
        os.symlink(rng.choice(["file1", "../nowhere", "/etc/hostname", "x" * 300]), rng.choice(folders) / f"soft{n}")
    for n in range(5):
        with open(rng.choice(folders) / f"sparse{n}", "wb") as f:
            for _ in range(4):
                f.seek(rng.randrange(64 << 20))
                f.write(b"island")
            f.truncate(80 << 20)
    os.mkfifo(top / "fifo", 0o620)
    os.mknod(top / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.mknod(top / "disk", stat.S_IFBLK | 0o660, os.makedev(8, 300))
    with socket.socket(socket.AF_UNIX) as sock:
        # By a relative name: a socket's path may have 108 bytes only.
        before = os.getcwd()
        os.chdir(top)
        sock.bind("socket")
        os.chdir(before)
    for path in rng.sample(files, 40):
        os.setxattr(path, "user.note", rng.randbytes(rng.randrange(200)))
        os.setxattr(path, "trusted.note", b"root's")
    for path in rng.sample(files, 60):
        os.chown(path, rng.randrange(20000), rng.randrange(20000))
        os.chmod(path, rng.choice([0o600, 0o644, 0o4755, 0o2750, 0o000, 0o1777]))
    # Of everything, links too: rsync leaves a time alone that differs by less than a second, and those of now might.
    for folder, names, others in os.walk(top, topdown=False):
        for path in [os.path.join(folder, name) for name in sorted(others + names)] + [folder] * (folder == str(top)):
            ns = rng.randrange(2**31) * 10**9 + rng.randrange(10**9)
            os.utime(path, ns=(ns, ns), follow_symlinks=False)


def describe(top):
    """All that rsync -aHAX keeps, by name."""
    found, groups = {}, {}
    for folder, dirs, files in os.walk(top):
        for name in dirs + files + ["."]:
            path = os.path.join(folder, name)
            st, key = os.lstat(path), os.path.relpath(path, top)
            kind = stat.S_IFMT(st.st_mode)
            extra = None
            if kind == stat.S_IFLNK:
                extra = os.readlink(path)
            elif kind in (stat.S_IFCHR, stat.S_IFBLK):
                extra = st.st_rdev
            elif kind == stat.S_IFREG:
                groups.setdefault((st.st_dev, st.st_ino), []).append(key)
                extra = st.st_size
            attributes = {}
            if kind in (stat.S_IFREG, stat.S_IFDIR):
                attributes = {n: os.getxattr(path, n) for n in os.listxattr(path)}
            found[key] = (st.st_mode, st.st_uid, st.st_gid, st.st_mtime_ns, extra, attributes)
    return found, sorted(sorted(names) for names in groups.values() if len(names) > 1)


def test_rsync_there_and_back(here, work, seed):
    source, back = work / "source", work / "back"
    make_tree(source, random.Random(seed))
    rsync = ["rsync", "-aHAX", "--checksum", "--sparse", "--numeric-ids"]
    run(*rsync, f"{source}/", f"{here}/there/")
    assert describe(here / "there") == describe(source)
    assert run(*rsync, "-i", f"{source}/", f"{here}/there/") == "", "a second run finds nothing to do"
    run(*rsync, f"{here}/there/", f"{back}/")
    assert describe(back) == describe(source)
    for folder, _, files in os.walk(source):
        for name in files:
            path = os.path.join(folder, name)
            if stat.S_ISREG(os.lstat(path).st_mode):
                other = os.path.join(back, os.path.relpath(path, source))
                assert filecmp.cmp(path, other, shallow=False), path
    islands = [os.path.join(f, n) for f, _, names in os.walk(here / "there") for n in names if n.startswith("sparse")]
    # What is written is accounted when it is flushed, within five seconds.
    wait_for(lambda: islands and all(os.stat(path).st_blocks * 512 < 8 << 20 for path in islands))
    shutil.rmtree(source)
    shutil.rmtree(back)


def test_ten_thousand_files(here):
    """Made by several processes, listed, stat'ed, removed."""
    per_writer, writers = 2500, 4
    pids = []
    for writer in range(writers):
        pid = os.fork()
        if pid == 0:
            for n in range(per_writer):
                os.close(os.open(f"w{writer}-{n}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            os._exit(0)
        pids.append(pid)
    assert all(os.waitpid(pid, 0)[1] == 0 for pid in pids)
    names = os.listdir(".")
    assert len(names) == len(set(names)) == per_writer * writers
    with os.scandir(".") as listing:
        assert all(entry.stat().st_size == 0 for entry in listing)
