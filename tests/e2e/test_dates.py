"""Dates from 1901 to 2446 through every door: each shows what the others set, as exactly as its protocol can."""

import datetime
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

import pytest
from impacket.smbconnection import SMBConnection

from conftest import client, make
from test_sftp import Client
from test_webdav import D, Dav

S = 1_000_000_000
# Seconds and nanoseconds since 1970.
DATES = {
    "1901, the first of 32 bits": (-(2**31), 0),
    "1901, before that": (-(2**31) - 1, 0),
    "1901, and a part of a second": (-(2**31), 123_456_700),
    "1969, half a second before 1970": (-1, 500_000_000),
    "1969, the last tick": (-1, 999_999_900),
    "1970": (0, 0),
    "1970, and a part of a second": (0, 100),
    "2000": (951_782_400, 987_654_300),
    "2038, the last of 32 bits": (2**31 - 1, 999_999_900),
    "2038, after that": (2**31, 0),
    "2106, the last unsigned one": (2**32 - 1, 0),
    "2106, after that": (2**32, 0),
    "2446": (15_032_385_535, 999_999_900),
}
U32 = 2**32 - 1
# From 1601 to 1970.
FILETIME_EPOCH = 11_644_473_600
HTTP = "%a, %d %b %Y %H:%M:%S GMT"


def date_of(text):
    """Seconds since 1970 of a date of HTTP."""
    return round((datetime.datetime.strptime(text, HTTP) - datetime.datetime(1970, 1, 1)).total_seconds())


def http_date(seconds):
    day = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
    return day.strftime("%a, %d %b ") + f"{day.year:04}" + day.strftime(" %H:%M:%S GMT")


class Doors:
    def __init__(self, place):
        self.mnt, self.ssh = place / "mnt", place / "ssh"
        self.mnt.mkdir()
        self.ssh.mkdir()
        doors = ["--mount", str(self.mnt), "--sftp", "127.0.0.1:0", "--webdav", "127.0.0.1:0", "--squash", "none"]
        self.daemon = make(place, extra=doors).start()
        os.chmod(self.mnt, 0o777)
        self.nfs = client(self.daemon)
        self.dav = Dav(self.daemon)
        sftp = Client(self.daemon, place)
        options = ["-o", "cache=no,dcache_timeout=0,attr_timeout=0"]
        sftp.run("sshfs", *sftp.options(), *options, "-p", sftp.port, sftp.at(f"/{self.daemon.share}"), self.ssh)
        self.smb = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=self.daemon.smb_port)
        self.smb.login(self.daemon.user, self.daemon.password)

    def close(self):
        self.smb.close()
        self.nfs.close()
        subprocess.run(["umount", self.ssh], check=True)
        log = self.daemon.log()
        assert self.daemon.stop() == 0 and "panicked" not in log, log[-4000:]

    def made(self, name):
        (self.mnt / name).write_bytes(b"x")
        os.chmod(self.mnt / name, 0o666)
        os.chown(self.mnt / name, *self.owner())
        return name

    def owner(self):
        """Of files that the user makes: the user may set their times."""
        if not (self.mnt / "of-the-user").exists():
            self.dav.put(f"/{self.daemon.share}/of-the-user", b"")
        found = os.stat(self.mnt / "of-the-user")
        return found.st_uid, found.st_gid

    def seen(self, name):
        """The time of modification as each door shows it: in nanoseconds, or in whole seconds."""
        at = f"/{self.daemon.share}/{name}"
        shown = self.dav("PROPFIND", at, Depth="0")
        assert shown.status == 207, shown.body
        got = self.dav("GET", at)
        assert got.status == 200, (got.status, got.body)
        [listed] = [f for f in self.smb.listPath(self.daemon.share, name)]
        filetime = listed.get_mtime()
        return {
            "mount": os.stat(self.mnt / name).st_mtime_ns,
            "NFS": self.nfs.getattr(self.nfs.lookup(self.nfs.root, name.encode()).handle).mtime_ns,
            "SFTP": int(os.stat(self.ssh / name).st_mtime),
            "SMB": filetime,
            "WebDAV": date_of(shown.xml().find(f".//{D}getlastmodified").text),
            "HTTP": date_of(got.headers["last-modified"]),
        }

    def set_by_smb(self, name, ticks):
        low = self.smb.getSMBServer()
        tree = low.connectTree(self.daemon.share)
        file = low.create(tree, name, 0x0000_0100 | 0x80, 7, 0, 1, 0)
        low.setInfo(tree, file, struct.pack("<QQQQII", 0, 0, ticks, 0, 0, 0), infoType=1, fileInfoClass=4)
        low.close(tree, file)

    def set_by_webdav(self, name, seconds):
        body = ('<propertyupdate xmlns="DAV:" xmlns:Z="urn:schemas-microsoft-com:"><set><prop>'
                f"<Z:Win32LastModifiedTime>{http_date(seconds)}</Z:Win32LastModifiedTime></prop></set></propertyupdate>")
        answer = self.dav("PROPPATCH", f"/{self.daemon.share}/{name}", body)
        assert answer.status == 207 and b"200 OK" in answer.body, answer.body


def shown_by(secs, nanos):
    """A date as each door shows it: the nearest that its protocol has."""
    unsigned = min(max(secs, 0), U32)
    return {
        "mount": secs * S + nanos,
        "NFS": unsigned * S + (nanos if secs == unsigned else 0),
        "SFTP": unsigned,
        "SMB": (secs + FILETIME_EPOCH) * 10_000_000 + nanos // 100,
        "WebDAV": secs,
        "HTTP": secs,
    }


@pytest.fixture(scope="module")
def doors():
    place = Path(tempfile.mkdtemp(prefix="larder-e2e-"))
    doors = Doors(place)
    yield doors
    doors.close()
    shutil.rmtree(place, ignore_errors=True)


@pytest.mark.parametrize("date", DATES)
def test_what_the_mount_sets_is_seen_by_all(doors, date):
    secs, nanos = DATES[date]
    name = doors.made(f"mount {date}".replace(",", ""))
    os.utime(doors.mnt / name, ns=(secs * S + nanos, secs * S + nanos))
    assert doors.seen(name) == shown_by(secs, nanos)


@pytest.mark.parametrize("date", DATES)
def test_what_webdav_sets_is_seen_by_all(doors, date):
    secs, _ = DATES[date]
    name = doors.made(f"webdav {date}".replace(",", ""))
    doors.set_by_webdav(name, secs)
    assert doors.seen(name) == shown_by(secs, 0)


@pytest.mark.parametrize("date", DATES)
def test_what_an_upload_sets_is_seen_by_all(doors, date):
    secs, nanos = DATES[date]
    name = f"upload {date}".replace(",", "")
    exact = secs * S + nanos
    sign, (whole, part) = "-" if exact < 0 else "", divmod(abs(exact), S)
    doors.dav.put(f"/{doors.daemon.share}/{name}", b"x", X_OC_Mtime=f"{sign}{whole}.{part:09}")
    assert doors.seen(name) == shown_by(secs, nanos)


@pytest.mark.parametrize("date", DATES)
def test_what_smb_sets_is_seen_by_all(doors, date):
    secs, nanos = DATES[date]
    name = doors.made(f"smb {date}".replace(",", ""))
    doors.set_by_smb(name, (secs + FILETIME_EPOCH) * 10_000_000 + nanos // 100)
    assert doors.seen(name) == shown_by(secs, nanos)


@pytest.mark.parametrize("date", [date for date, (secs, _) in DATES.items() if 0 <= secs <= U32])
def test_what_nfs_and_sftp_set_is_seen_by_all(doors, date):
    """Both have no dates before 1970 and after 2106."""
    secs, nanos = DATES[date]
    name = doors.made(f"nfs {date}".replace(",", ""))
    doors.nfs.setattr(doors.nfs.lookup(doors.nfs.root, name.encode()).handle, mtime_ns=secs * S + nanos)
    assert doors.seen(name) == shown_by(secs, nanos)
    # sshfs takes 0 for the time of now.
    if secs > 0:
        name = doors.made(f"sftp {date}".replace(",", ""))
        os.utime(doors.ssh / name, (secs, secs))
        assert doors.seen(name) == shown_by(secs, 0)


def test_conditions_know_dates_before_1970(doors):
    at = f"/{doors.daemon.share}/{doors.made('old')}"
    doors.set_by_webdav("old", -(2**31))
    for seconds, status in ((-(2**31), 304), (-(2**31) - 1, 200), (0, 304)):
        assert doors.dav("GET", at, If_Modified_Since=http_date(seconds)).status == status, seconds
    for seconds, status in ((-(2**31), 204), (-(2**31) - 1, 412)):
        doors.set_by_webdav("old", -(2**31))
        assert doors.dav("PUT", at, b"new", If_Unmodified_Since=http_date(seconds)).status == status, seconds
        doors.made("old")


def test_dates_that_are_none_are_refused(doors):
    at = f"/{doors.daemon.share}/{doors.made('none')}"
    for text in ("Thu, 29 Feb 1900 00:00:00 GMT", "Mon, 01 Jan 1970 00:00:00 GMT", "yesterday"):
        body = ('<propertyupdate xmlns="DAV:" xmlns:Z="urn:schemas-microsoft-com:"><set><prop>'
                f"<Z:Win32LastModifiedTime>{text}</Z:Win32LastModifiedTime></prop></set></propertyupdate>")
        answer = doors.dav("PROPPATCH", at, body)
        assert answer.status == 207 and b"409 Conflict" in answer.body, answer.body
