"""What work.sh does not do with commands; in the working directory."""

import mmap
import os

os.mkdir("many")
for n in range(3000):
    with open(f"many/file-{n:05}-é", "w") as f:
        f.write(str(n))
assert len(os.listdir("many")) == 3000
assert all(open(f"many/file-{n:05}-é").read() == str(n) for n in range(0, 3000, 97))
for n in range(0, 3000, 2):
    os.unlink(f"many/file-{n:05}-é")
# Deleted while they are listed: none is left out.
with os.scandir("many") as entries:
    gone = [os.unlink(entry.path) for entry in entries]
assert len(gone) == 1500 and os.listdir("many") == [], (len(gone), os.listdir("many"))
os.rmdir("many")

with open("unlinked", "w+b") as f:
    f.write(b"x" * 100_000)
    f.flush()
    os.unlink("unlinked")
    f.seek(0)
    assert f.read() == b"x" * 100_000
assert not [name for name in os.listdir(".") if name.startswith((".nfs", ".smb"))], os.listdir(".")

with open("mapped", "w+b") as f:
    f.truncate(1 << 20)
    with mmap.mmap(f.fileno(), 1 << 20) as mapped:
        mapped[5000:5005] = b"hello"
assert open("mapped", "rb").read()[4999:5006] == b"\0hello\0"

appended = os.open("appended", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
for _ in range(100):
    os.write(appended, b"line\n")
os.close(appended)
assert os.path.getsize("appended") == 500

with open("sparse", "wb") as f:
    f.seek(5 << 30)
    f.write(b"end")
assert os.path.getsize("sparse") == (5 << 30) + 3
with open("sparse", "rb") as f:
    assert f.read(4096) == bytes(4096)
    f.seek(5 << 30)
    assert f.read() == b"end"

os.rename("appended", "mapped")
assert os.path.getsize("mapped") == 500
os.utime("mapped", ns=(10**18 + 100, 2 * 10**18 + 100))
assert os.stat("mapped").st_mtime_ns == 2 * 10**18 + 100

longest = "n" * 255
open(longest, "w").close()
assert longest in os.listdir(".")
os.unlink(longest)
try:
    open("n" * 256, "w")
    raise AssertionError("a name of 256 bytes was taken")
except OSError as error:
    assert error.errno == 36, error
