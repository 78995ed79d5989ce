"""Receivers of alerts: a webhook, which is ntfy and a dead man's switch as well, and a mail server."""

import base64
import json
import socketserver
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from waiting import wait_for


class Receiver:
    """Takes every request. `messages` are the bodies of those that are JSON."""

    def __init__(self):
        self.requests, self.messages, self.port = [], [], 0
        self.open_again()

    def open_again(self):
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def take(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                receiver.requests.append({"method": self.command, "path": self.path, "headers": self.headers, "body": body})
                if self.headers.get("Content-Type") == "application/json":
                    receiver.messages.append(json.loads(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_POST = take

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        if self.server:
            self.server.shutdown()
            self.server.server_close()
            self.server = None

    def wait(self, count):
        """The messages, once there are so many; more are found by the caller's comparison."""
        wait_for(lambda: len(self.messages) >= count, told=lambda: str(self.messages))
        return self.messages


class Mailbox:
    """A mail server (RFC 5321) over TLS from the first byte, that wants a login (AUTH PLAIN) and keeps letters."""

    def __init__(self, certificate):
        self.letters, self.logins = [], []
        mailbox, context = self, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)

        class Handler(socketserver.StreamRequestHandler):
            def say(self, text):
                self.wfile.write(text.encode() + b"\r\n")

            def handle(self):
                self.say("220 mailbox ESMTP")
                while line := self.rfile.readline():
                    word, _, rest = line.decode().strip().partition(" ")
                    if word.upper() == "EHLO":
                        self.say("250-mailbox")
                        self.say("250 AUTH PLAIN")
                    elif word.upper() == "AUTH":
                        _, user, password = base64.b64decode(rest.split(" ", 1)[1]).decode().split("\0")
                        mailbox.logins.append((user, password))
                        self.say("235 welcome")
                    elif word.upper() == "DATA":
                        self.say("354 go on")
                        lines = []
                        while (line := self.rfile.readline()) not in (b".\r\n", b""):
                            lines.append(line.decode())
                        mailbox.letters.append("".join(lines))
                        self.say("250 kept")
                    elif word.upper() == "QUIT":
                        self.say("221 bye")
                        return
                    else:
                        self.say("250 fine")

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = allow_reuse_address = True

            def get_request(self):
                connection, address = self.socket.accept()
                # The handshake is made by the thread of the connection, at its first read.
                return context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

            def handle_error(self, *_):
                """A client that does not trust us goes away."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def wait(self, count):
        wait_for(lambda: len(self.letters) >= count)
        return self.letters

    def close(self):
        if self.server:
            self.server.shutdown()
            self.server.server_close()
            self.server = None


def self_signed(folder):
    """A certificate of localhost, and its key."""
    certificate, key = folder / "mail.pem", folder / "mail.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE", "-out", str(certificate), "-keyout", str(key)],
        check=True, capture_output=True,
    )
    return certificate, key
