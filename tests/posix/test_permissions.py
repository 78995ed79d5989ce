"""Who may do what: mode bits, ownership, setuid, setgid, umask."""

import os
import stat
import time

import pytest
from users import ANN, BOB, CAT, ROOT, run_as

NOBODY_ELSE = (10009, 10009, ())


def make(path, mode, owner=ANN, content=b"x"):
    with open(path, "wb") as f:
        f.write(content)
    os.chown(path, owner[0], owner[1])
    os.chmod(path, mode)


def mode_of(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def bits_for(user, mode):
    """The three bits of `mode` that apply to `user` for a file of ann's."""
    if user == ROOT:
        return 0o7 if mode & 0o111 else 0o6
    if user == ANN:
        return mode >> 6 & 7
    if user == CAT:
        return mode >> 3 & 7
    return mode & 7


@pytest.mark.parametrize("user", [ROOT, ANN, CAT, BOB])
def test_open_and_access_follow_the_mode(here, user):
    def probe():
        answers = {}
        for name in names:
            for flag, bit in ((os.O_RDONLY, 4), (os.O_WRONLY, 2), (os.O_RDWR, 6)):
                try:
                    os.close(os.open(name, flag))
                    answers[name, bit, "open"] = True
                except PermissionError:
                    answers[name, bit, "open"] = False
            for bit in (4, 2, 1):
                answers[name, bit, "access"] = os.access(name, bit)
        return answers

    names = []
    for mode in (0o000, 0o400, 0o200, 0o100, 0o040, 0o020, 0o010, 0o004, 0o002, 0o001, 0o644, 0o070, 0o007, 0o755):
        names.append(f"f{mode:04o}")
        make(names[-1], mode)
    wrong = []
    for (name, bit, how), got in run_as(user, probe).items():
        expected = bits_for(user, int(name[1:], 8)) & bit == bit
        if got != expected:
            wrong.append(f"{how} {bit} of {name}: {got}")
    assert not wrong, "\n".join(wrong)


def test_directories_need_search_and_write(here):
    os.mkdir("d")
    make("d/f", 0o644)
    os.chown("d", ANN[0], ANN[1])
    table = [
        # mode, stat inside, list, create inside
        (0o700, "EACCES", "EACCES", "EACCES"),
        (0o701, None, "EACCES", "EACCES"),
        (0o704, "EACCES", None, "EACCES"),
        (0o705, None, None, "EACCES"),
        (0o702, "EACCES", "EACCES", "EACCES"),
        (0o703, None, "EACCES", None),
        (0o707, None, None, None),
    ]
    for mode, inside, listing, creation in table:
        os.chmod("d", mode)
        assert run_as(BOB, lambda: os.stat("d/f") and None) == inside, oct(mode)
        assert run_as(BOB, lambda: os.listdir("d") and None) == listing, oct(mode)
        assert run_as(BOB, lambda: os.close(os.open("d/new", os.O_CREAT | os.O_WRONLY))) == creation, oct(mode)
        assert run_as(BOB, lambda: os.unlink("d/f") if creation else os.unlink("d/new")) == creation, oct(mode)


def test_changes_need_ownership(here):
    make("f", 0o644)
    os.mkdir("d")
    os.chown("d", ANN[0], ANN[1])
    table = [
        (lambda: os.chmod("f", 0o600), {ROOT: None, ANN: None, CAT: "EPERM", BOB: "EPERM"}),
        (lambda: os.chmod("d", 0o711), {ROOT: None, ANN: None, CAT: "EPERM", BOB: "EPERM"}),
        (lambda: os.chown("f", BOB[0], -1), {ROOT: None, ANN: "EPERM", CAT: "EPERM", BOB: "EPERM"}),
        (lambda: os.chown("f", -1, BOB[1]), {ROOT: None, ANN: "EPERM", CAT: "EPERM", BOB: "EPERM"}),
        (lambda: os.utime("f", (1, 1)), {ROOT: None, ANN: None, CAT: "EPERM", BOB: "EPERM"}),
        (lambda: os.utime("f"), {ROOT: None, ANN: None, CAT: "EACCES", BOB: "EACCES"}),
        (lambda: os.truncate("f", 0), {ROOT: None, ANN: None, CAT: "EACCES", BOB: "EACCES"}),
    ]
    wrong = []
    for number, (action, expected) in enumerate(table):
        for user, outcome in expected.items():
            make("f", 0o644)
            os.chmod("d", 0o755)
            got = run_as(user, action)
            if got != outcome:
                wrong.append(f"row {number} as {user[0]}: {got}, not {outcome}")
    assert not wrong, "\n".join(wrong)
    make("f", 0o666)
    assert run_as(BOB, lambda: os.utime("f")) is None
    assert run_as(BOB, lambda: os.utime("f", (1, 1))) == "EPERM"


def test_owner_gives_a_file_to_a_group_of_theirs(here):
    make("f", 0o644, owner=CAT)
    assert run_as(CAT, lambda: os.chown("f", -1, ANN[1])) is None
    assert os.stat("f").st_gid == ANN[1]
    assert run_as(CAT, lambda: os.chown("f", -1, BOB[1])) == "EPERM"


def test_link_needs_nothing_of_the_file_but_write_of_the_directory(here):
    make("f", 0o600)
    os.mkdir("d")
    os.chmod("d", 0o755)
    assert run_as(BOB, lambda: os.link("f", "d/l")) in ("EACCES", "EPERM")
    assert run_as(BOB, lambda: os.symlink("f", "d/s")) == "EACCES"
    assert run_as(BOB, lambda: os.mkdir("d/e")) == "EACCES"


def test_new_files_belong_to_their_maker(here):
    os.chmod(".", 0o777)
    run_as(ANN, lambda: os.close(os.open("f", os.O_CREAT | os.O_WRONLY, 0o666)))
    run_as(ANN, lambda: os.mkdir("d"))
    run_as(ANN, lambda: os.symlink("x", "s"))
    for name in ("f", "d", "s"):
        st = os.lstat(name)
        assert (st.st_uid, st.st_gid) == ANN[:2], name
    assert mode_of("f") == 0o644 and mode_of("d") == 0o755

    def masked():
        os.umask(0o077)
        os.close(os.open("g", os.O_CREAT | os.O_WRONLY, 0o666))
        os.mkdir("e", 0o777)

    run_as(ANN, masked)
    assert mode_of("g") == 0o600 and mode_of("e") == 0o700
    # A file may be made without the right to write it, and written through the descriptor that made it.
    fd = os.open("h", os.O_CREAT | os.O_RDWR, 0o000)
    os.write(fd, b"x")
    os.close(fd)


def test_setgid_directories_pass_their_group_on(here):
    os.mkdir("d")
    os.chown("d", 0, CAT[1])
    os.chmod("d", 0o2777)
    run_as(ANN, lambda: os.close(os.open("d/f", os.O_CREAT | os.O_WRONLY)))
    run_as(ANN, lambda: os.mkdir("d/sub"))
    run_as(ANN, lambda: os.symlink("x", "d/s"))
    assert os.stat("d/f").st_gid == CAT[1] and os.lstat("d/s").st_gid == CAT[1]
    assert os.stat("d/sub").st_gid == CAT[1] and mode_of("d/sub") & stat.S_ISGID
    assert not mode_of("d/f") & stat.S_ISGID


def test_setgid_is_refused_to_those_outside_of_the_group(here):
    make("f", 0o644)
    os.chown("f", ANN[0], BOB[1])
    assert run_as(ANN, lambda: os.chmod("f", 0o2755)) is None
    assert mode_of("f") == 0o755
    os.chown("f", ANN[0], ANN[1])
    run_as(ANN, lambda: os.chmod("f", 0o6755))
    assert mode_of("f") == 0o6755
    # A member by a supplementary group may.
    make("g", 0o644, owner=CAT)
    os.chown("g", CAT[0], ANN[1])
    run_as(CAT, lambda: os.chmod("g", 0o2755))
    assert mode_of("g") == 0o2755


def overwrite(path):
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, b"y")
    os.close(fd)


@pytest.mark.parametrize("mode,after", [(0o6777, 0o777), (0o4777, 0o777), (0o2777, 0o777)])
def test_writing_drops_setuid_and_setgid(here, mode, after):
    for action in (lambda: overwrite("f"), lambda: os.truncate("f", 0), lambda: os.close(os.open("f", os.O_WRONLY | os.O_TRUNC))):
        make("f", mode, content=b"content")
        assert run_as(BOB, action) is None
        assert mode_of("f") == after
        make("f", mode, content=b"content")
        assert run_as(ROOT, action) is None
        assert mode_of("f") == mode, "root keeps them"


def test_a_setgid_bit_that_nobody_executes_stays_with_members_of_the_group(here):
    actions = (lambda: overwrite("f"), lambda: os.truncate("f", 1), lambda: os.close(os.open("f", os.O_WRONLY | os.O_TRUNC)))
    for action in actions:
        for user, after in ((ANN, 0o2666), (CAT, 0o2666), (BOB, 0o666), (ROOT, 0o2666)):
            make("f", 0o2666, owner=(10009, ANN[1], ()), content=b"content")
            assert run_as(user, action) is None
            assert mode_of("f") == after, user


def test_chown_drops_setuid_and_setgid(here):
    make("f", 0o6755, owner=CAT)
    assert run_as(CAT, lambda: os.chown("f", -1, ANN[1])) is None
    assert mode_of("f") == 0o755
    os.mkdir("d")
    os.chown("d", CAT[0], CAT[1])
    os.chmod("d", 0o2755)
    run_as(CAT, lambda: os.chown("d", -1, ANN[1]))
    assert mode_of("d") == 0o2755, "a directory's setgid bit is about inheritance"


def test_mode_changes_take_effect_at_once(here):
    make("f", 0o600)
    assert run_as(BOB, lambda: os.close(os.open("f", os.O_RDONLY))) == "EACCES"
    os.chmod("f", 0o644)
    assert run_as(BOB, lambda: os.close(os.open("f", os.O_RDONLY))) is None
    os.chmod("f", 0o600)
    assert run_as(BOB, lambda: os.close(os.open("f", os.O_RDONLY))) == "EACCES"


def test_all_mode_bits_are_kept(here):
    make("f", 0o644)
    for mode in range(0, 0o10000, 0o111):
        os.chmod("f", mode)
        assert mode_of("f") == mode
    before = os.stat("f").st_ctime_ns
    time.sleep(0.01)
    os.chmod("f", mode_of("f"))
    assert os.stat("f").st_ctime_ns > before


def test_execution(here):
    with open("script", "w") as f:
        f.write("#!/bin/sh\nexit 7\n")
    os.chmod("script", 0o755)
    assert run_as(BOB, lambda: os.spawnv(os.P_WAIT, "./script", ["script"])) == 7
    os.chmod("script", 0o644)
    assert run_as(ROOT, lambda: os.execv("./script", ["script"])) == "EACCES"
