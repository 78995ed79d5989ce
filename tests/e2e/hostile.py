"""Clients that no honest program would be, for the tests of hostile behaviour: from any address of loopback."""

import base64
import http.client
import os
import resource
import socket
import struct

LOGON_FAILURE, ACCOUNT_LOCKED_OUT = 0xC000006D, 0xC0000234
MORE_PROCESSING = 0xC0000016


def lift_limits():
    """This process holds more connections than a shell lets it. Returns the limit from before."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    return before


def reach(port, source="127.0.0.1", timeout_s=10):
    return socket.create_connection(("127.0.0.1", port), timeout_s, (source, 0))


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def ask(port, user, password, source="127.0.0.1", method="PROPFIND", path="/", body=None, timeout_s=120, **headers):
    """The status of one request over a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s, source_address=(source, 0))
    try:
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body=body, headers={"Depth": "0", "Authorization": basic(user, password), **headers})
        return connection.getresponse().status
    finally:
        connection.close()


def log_in(port, user, password, source="127.0.0.1", timeout_s=120, **headers):
    """The status of a login by the page, which hashes the password each time: 303 is right."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s, source_address=(source, 0))
    try:
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        form = {"Content-Type": "application/x-www-form-urlencoded", **headers}
        connection.request("POST", "/.larder/login", body=f"name={user}&password={password}", headers=form)
        return connection.getresponse().status
    finally:
        connection.close()


class Smb:
    """SMB 2.1 by hand, as far as a wrong password."""

    def __init__(self, port, source="127.0.0.1"):
        self.socket, self.message, self.session = reach(port, source, 30), 0, 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def frame(self, command, body):
        head = struct.pack("<4sHHIHHIIQIIQ16s", b"\xfeSMB", 64, 1, 0, command, 31, 0, 0, self.message, 0, 0, self.session, b"")
        self.message += 1
        return struct.pack(">I", len(head + body)) + head + body

    def send(self, command, body):
        self.socket.sendall(self.frame(command, body))

    def receive(self):
        """(status, SessionId)"""
        size = struct.unpack(">I", self._take(4))[0]
        answer = self._take(size)
        return struct.unpack_from("<I", answer, 8)[0], struct.unpack_from("<Q", answer, 40)[0]

    def _take(self, count):
        got = b""
        while len(got) < count:
            chunk = self.socket.recv(count - len(got))
            if not chunk:
                raise ConnectionError("the server closed the connection")
            got += chunk
        return got

    def negotiate(self):
        self.send(0, struct.pack("<HHHHI16sQH", 36, 1, 1, 0, 0, os.urandom(16), 0, 0x0210))
        return self.receive()

    def _setup(self, blob):
        self.send(1, struct.pack("<HBBIIHHQ", 25, 0, 1, 0, 0, 88, len(blob), 0) + blob)

    def guess(self, user, wait=True):
        """The status of a logon with a wrong password; without `wait` nobody hears it."""
        flags, self.session = 0xE0088215, 0
        self._setup(b"NTLMSSP\0" + struct.pack("<II16s", 1, flags, b""))
        status, self.session = self.receive()
        assert status == MORE_PROCESSING, hex(status)
        name = user.encode("utf-16le")
        answer = os.urandom(16) + struct.pack("<BBHIQ8sIII", 1, 1, 0, 0, 0, os.urandom(8), 0, 0, 0)
        at, fields, payload = 88, b"", b""
        for part in (b"\0" * 24, answer, b"", name, b"", os.urandom(16)):
            fields += struct.pack("<HHI", len(part), len(part), at + len(payload))
            payload += part
        self._setup(b"NTLMSSP\0" + struct.pack("<I", 3) + fields + struct.pack("<I24s", flags, b"") + payload)
        return self.receive()[0] if wait else None
