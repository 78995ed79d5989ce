"""Random operations of two clients on one folder: stress.py FOLDER FOLDER [OPERATIONS [SEED]].

The folders are two mounts of one folder, so that each client caches what the other renames, replaces and removes: a rename waits until the
other gives up the handle that it keeps. A process that does not come back within its time is a failure.
"""

import errno
import multiprocessing
import os
import random
import sys

NAMES = [f"name-{number}" for number in range(12)]
# An emulated processor does ten operations a second; a break of a lease that nobody answers takes 35 s.
SECONDS_MAX = 300
# EINVAL: the name leads to another file by now, and the client asks with the lease of the one before (MS-SMB2 3.3.5.9.8).
EXPECTED = {errno.EINVAL, errno.ENOENT, errno.EEXIST, errno.EACCES, errno.EBUSY, errno.ESTALE, errno.EISDIR, errno.ENOTEMPTY}


def work(folder, operations, seed):
    chance = random.Random(seed)
    for _ in range(operations):
        name, other = (os.path.join(folder, each) for each in chance.sample(NAMES, 2))
        try:
            match chance.randrange(5):
                case 0 | 1:
                    with open(name, "ab") as file:
                        file.write(chance.randbytes(3000))
                case 2:
                    with open(name, "rb") as file:
                        file.read()
                case 3:
                    os.rename(name, other)
                case _:
                    os.unlink(name)
        except OSError as error:
            if error.errno not in EXPECTED:
                raise


def main():
    folders, rest = sys.argv[1:3], [int(word) for word in sys.argv[3:]]
    operations, seed = (rest + [150, 1][len(rest):])[:2]
    workers = [
        multiprocessing.Process(target=work, args=(folder, operations, seed * 100 + number), daemon=True)
        for number, folder in enumerate(folders * 2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(SECONDS_MAX)
    stuck = [worker.pid for worker in workers if worker.is_alive()]
    if stuck:
        print("these did not come back:", stuck)
    failed = stuck or any(worker.exitcode for worker in workers)
    # A process that waits in the kernel cannot be ended, nor waited for.
    os._exit(1 if failed else 0)


main()
