"""Acting as another user: in a child process, whose answer comes back through a pipe."""

import errno
import os
import pickle
import traceback

ROOT = (0, 0, ())
ANN = (10001, 10001, ())
BOB = (10002, 10002, ())
# Ann's colleague: another user in ann's group.
CAT = (10003, 10003, (10001,))


def run_as(user, action):
    """What `action()` returned, or the name of the errno it failed with."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer = None
        try:
            uid, gid, groups = user
            os.setgroups(groups)
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            answer = ("value", action())
        except OSError as error:
            answer = ("errno", errno.errorcode.get(error.errno, str(error.errno)))
        except BaseException:  # noqa: BLE001: the parent reports it
            answer = ("crash", traceback.format_exc())
        finally:
            with os.fdopen(write_end, "wb") as pipe:
                pickle.dump(answer, pipe)
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        kind, value = pickle.load(pipe)
    os.waitpid(pid, 0)
    assert kind != "crash", value
    return value


def outcome(action):
    """As `run_as`, in this process."""
    try:
        return action()
    except OSError as error:
        return errno.errorcode[error.errno]
