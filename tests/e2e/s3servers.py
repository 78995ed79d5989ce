"""S3 servers of other makes on loopback, for the tests and the bench: versitygw, MinIO and Garage, whichever are installed.

`make servers` builds them into $LARDER_S3_SERVERS (~/.cache/larder/servers); nothing of them is linked into larder. Each keeps its
objects in a folder of the test's own and is ended by its pid.
"""

import base64
import hashlib
import hmac
import http.client
import os
import subprocess
import time
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import quote

from others import Process, free_port, wait_for_port

FOLDER = Path(os.environ.get("LARDER_S3_SERVERS") or Path.home() / ".cache/larder/servers")
# Garage takes no other form of keys.
ACCESS, SECRET, REGION = "GK0123456789abcdef01234567", "5a" * 32, "us-east-1"


class Refused(Exception):
    """The server said no; the text is what it said."""


def signed(method, endpoint, path, query="", body=b"", headers=None):
    """One request with a signature of version 4, and what was answered: (status, headers, body)."""
    host = endpoint.split("//", 1)[1]
    now = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    digest = hashlib.sha256(body).hexdigest()
    sent = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": now}
    sent |= {name.lower(): value for name, value in (headers or {}).items()}
    names = ";".join(sorted(sent))
    canonical = "\n".join(
        [method, quote(path), query, *(f"{name}:{sent[name].strip()}" for name in sorted(sent)), "", names, digest]
    )
    scope = f"{now[:8]}/{REGION}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{SECRET}".encode()
    for word in scope.split("/"):
        key = hmac.new(key, word.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    sent["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={ACCESS}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    connection = http.client.HTTPConnection(host, timeout=30)
    try:
        connection.request(method, quote(path) + (f"?{query}" if query else ""), body=body, headers=sent)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


class S3Server(Process):
    """`folder` has its logs and settings, `export` its objects."""

    program = "?"
    # Kinds of buckets it can make.
    kinds = ("plain",)

    @classmethod
    def path(cls):
        return FOLDER / cls.program

    @classmethod
    def is_built(cls):
        return cls.path().exists()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def env(self):
        """What a client of it finds in its environment."""
        return {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION}

    def spawn(self, *command):
        with open(self.folder / "output.log", "ab") as log:
            env = {**os.environ, **self.settings()}
            return subprocess.Popen([str(c) for c in command], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=env)

    def settings(self):
        return {}

    def ask(self, method, path, query="", body=b"", headers=None):
        status, _, said = signed(method, self.endpoint, path, query, body, headers)
        if status >= 300:
            raise Refused(f"{self.name}: {method} {path}?{query}: {status} {said.decode(errors='replace')[:500]}")
        return said

    def make_bucket(self, name, kind="plain"):
        """`plain`, `versioned`, `locked` (object lock) or `retained` (object lock that keeps each object for a day)."""
        lock = {"x-amz-bucket-object-lock-enabled": "true"} if kind in ("locked", "retained") else {}
        # A port that listens is not yet a server that is ready.
        end = time.monotonic() + 30
        while True:
            try:
                self.ask("PUT", f"/{name}", headers=lock)
                break
            except (Refused, OSError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.3)
        if kind == "versioned":
            body = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
            self.ask("PUT", f"/{name}", "versioning=", body, self.md5(body))
        if kind == "retained":
            body = (
                b"<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention>"
                b"<Mode>GOVERNANCE</Mode><Days>1</Days></DefaultRetention></Rule></ObjectLockConfiguration>"
            )
            self.ask("PUT", f"/{name}", "object-lock=", body, self.md5(body))

    @staticmethod
    def md5(body):
        return {"content-md5": base64.b64encode(hashlib.md5(body).digest()).decode()}

    @classmethod
    def version(cls):
        """As `make servers` noted it."""
        noted = sorted(FOLDER.glob(f".{cls.program}-*"))
        return noted[-1].name.removeprefix(f".{cls.program}-") if noted else "of an unknown version"


class VersityGw(S3Server):
    name = program = "versitygw"
    kinds = ("plain", "versioned", "locked", "retained")

    def settings(self):
        return {"ROOT_ACCESS_KEY_ID": ACCESS, "ROOT_SECRET_ACCESS_KEY": SECRET}

    def start(self):
        objects, versions = self.export / "objects", self.export / "versions"
        objects.mkdir(exist_ok=True)
        versions.mkdir(exist_ok=True)
        self.serve(self.path(), "--port", f"127.0.0.1:{self.port}", "--region", REGION, "--quiet",
                   "--keep-alive", "posix", "--versioning-dir", versions, objects)


class Minio(S3Server):
    name = program = "minio"
    kinds = ("plain", "versioned", "locked", "retained")

    def settings(self):
        return {"MINIO_ROOT_USER": ACCESS, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_BROWSER": "off", "MINIO_UPDATE": "off"}

    def start(self):
        self.serve(self.path(), "server", "--quiet", "--address", f"127.0.0.1:{self.port}", self.export)


class Garage(S3Server):
    """One node that keeps one copy."""

    name = program = "garage"

    def settings(self):
        return {"RUST_LOG": "garage=info"}

    def start(self):
        self.rpc_port = free_port()
        self.config = self.folder / "garage.toml"
        self.config.write_text(
            f'metadata_dir = "{self.export}/meta"\ndata_dir = "{self.export}/data"\ndb_engine = "lmdb"\nreplication_factor = 1\n'
            f'rpc_bind_addr = "127.0.0.1:{self.rpc_port}"\nrpc_public_addr = "127.0.0.1:{self.rpc_port}"\nrpc_secret = "{"17" * 32}"\n'
            f'[s3_api]\ns3_region = "{REGION}"\napi_bind_addr = "127.0.0.1:{self.port}"\nroot_domain = ".s3.garage"\n'
        )
        fresh = not (self.export / "meta").exists()
        self.serve(self.path(), "-c", self.config, "server")
        wait_for_port(self.rpc_port, self.process)
        if fresh:
            node = self.tell("node", "id", "-q").split("@")[0]
            self.tell("layout", "assign", "-z", "here", "-c", "100G", node)
            self.tell("layout", "apply", "--version", "1")
            self.tell("key", "import", "--yes", "-n", "larder", ACCESS, SECRET)

    def tell(self, *words):
        done = subprocess.run([self.path(), "-c", self.config, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Refused(f"garage {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout.strip()

    def make_bucket(self, name, kind="plain"):
        assert kind == "plain", f"garage has no buckets that are {kind}"
        self.tell("bucket", "create", name)
        self.tell("bucket", "allow", "--read", "--write", "--owner", name, "--key", ACCESS)


SERVERS = [VersityGw, Minio, Garage]
