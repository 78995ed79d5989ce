"""Random operations on one file against a copy in memory: fsx.py FILE [OPERATIONS [SEED]].

Reads, writes, truncates, holes, copies and mappings at random offsets, closed and opened again in between. What differs is printed, with
the operations before it, and the exit code says so.
"""

import mmap
import os
import random
import sys

SIZE_MAX = 1 << 20
KEPT = 40


def fallocate_hole(file, offset, length):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
    done = libc.fallocate(file, 3, ctypes.c_long(offset), ctypes.c_long(length))
    if done != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Checked:
    def __init__(self, path, seed):
        self.path, self.random, self.model, self.log = path, random.Random(seed), bytearray(), []
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        self.can_punch = self.can_copy = True

    def place(self, end=SIZE_MAX):
        offset = self.random.randrange(max(end, 1))
        return offset, self.random.randrange(1, min(65536, SIZE_MAX - offset) + 1)

    def grow(self, end):
        self.model.extend(bytes(max(0, end - len(self.model))))

    def write(self):
        offset, length = self.place()
        data = self.random.randbytes(length)
        assert os.pwrite(self.file, data, offset) == length
        self.grow(offset)
        self.model[offset:offset + length] = data
        return offset, length

    def read(self):
        offset, length = self.place()
        found, wanted = os.pread(self.file, length, offset), bytes(self.model[offset:offset + length])
        assert found == wanted, f"at {offset}: {len(found)} bytes, wanted {len(wanted)}, the first that differs is {differs(found, wanted)}"
        return offset, length

    def truncate(self):
        size = self.random.randrange(SIZE_MAX)
        os.ftruncate(self.file, size)
        del self.model[size:]
        self.grow(size)
        return size,

    def punch(self):
        offset, length = self.place()
        if not self.can_punch:
            return ()
        try:
            fallocate_hole(self.file, offset, length)
        except OSError as error:
            # Versions before 4.2 have none.
            self.can_punch = error.errno != 95
            assert not self.can_punch, error
            return ()
        end = min(offset + length, len(self.model))
        if offset < end:
            self.model[offset:end] = bytes(end - offset)
        return offset, length

    def copy(self):
        offset, length = self.place(len(self.model))
        target = self.random.randrange(SIZE_MAX - length + 1)
        length = min(length, len(self.model) - offset)
        if not self.can_copy or length <= 0 or offset < target + length and target < offset + length:
            return ()
        done = os.copy_file_range(self.file, self.file, length, offset, target)
        data = bytes(self.model[offset:offset + done])
        self.grow(target)
        self.model[target:target + done] = data
        return offset, target, done

    def map(self):
        if not self.model:
            return ()
        with mmap.mmap(self.file, len(self.model)) as mapped:
            offset = self.random.randrange(len(self.model))
            data = self.random.randbytes(min(5000, len(self.model) - offset))
            mapped[offset:offset + len(data)] = data
            self.model[offset:offset + len(data)] = data
            end = min(len(self.model), offset + 20000)
            assert mapped[offset:end] == self.model[offset:end], "a mapping"
        return offset, len(data)

    def reopen(self):
        os.close(self.file)
        self.file = os.open(self.path, os.O_RDWR)
        assert os.fstat(self.file).st_size == len(self.model), "the size"
        return ()

    def sync(self):
        os.fsync(self.file)
        return ()

    def run(self, operations):
        choices = [self.write] * 6 + [self.read] * 6 + [self.truncate, self.punch, self.punch, self.copy, self.copy, self.map, self.reopen, self.sync]
        for number in range(operations):
            what = self.random.choice(choices)
            self.log.append([number, what.__name__])
            self.log[-1].append(what())
        os.close(self.file)
        with open("/proc/sys/vm/drop_caches", "w") as drop:
            drop.write("3")
        with open(self.path, "rb") as file:
            assert file.read() == self.model, "the whole, read again"


def differs(one, other):
    return next((at for at, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))


if __name__ == "__main__":
    path, *rest = sys.argv[1:]
    operations, seed = (int(word) for word in [*rest, *("2000", "1")[len(rest):]])
    checked = Checked(path, seed)
    try:
        checked.run(operations)
    except (AssertionError, OSError) as error:
        print(f"seed {seed}: {error!r} in {checked.log[-KEPT:]}")
        sys.exit(1)
