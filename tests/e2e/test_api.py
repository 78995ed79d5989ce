"""The API of the daemon is what its schema says: `larder api`, and docs/api.json."""

import contextlib
import http.client
import json
import socket
from pathlib import Path

from conftest import make
from waiting import wait_for

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "api.json"
BODY_BYTES_MAX = 16 << 20


class Daemon(http.client.HTTPConnection):
    """A connection to the daemon's socket."""

    def __init__(self, socket_path):
        super().__init__("larder", timeout=60)
        self.socket_path = socket_path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.socket_path))


def ask(daemon, method, path, body=None):
    link = Daemon(daemon.data / "larder.sock")
    headers = {} if body is None else {"Content-Type": "application/json"}
    # An answer may come, and the connection end, before the body is sent.
    with contextlib.suppress(BrokenPipeError):
        link.request(method.upper(), path, body=body, headers=headers)
    answer = link.getresponse()
    status, kind, text = answer.status, answer.headers.get("Content-Type", ""), answer.read()
    link.close()
    return status, kind, text


def resolved(schema, value):
    """Follows a reference, and of alternatives the one that `value` may be."""
    while True:
        if "$ref" in schema:
            schema = SPEC["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
        elif "anyOf" in schema:
            schema = next(one for one in schema["anyOf"] if (one.get("type") == "null") == (value is None))
        else:
            return schema


def fits(schema, value, where):
    """Checks a value as far as its schema has types, properties and items."""
    schema = resolved(schema, value)
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    words = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
    kind = words[type(value)]
    assert not kinds or kind in kinds or kind == "integer" and "number" in kinds, f"{where}: {kind} is none of {kinds}"
    if isinstance(value, dict) and "properties" in schema:
        missing = set(schema.get("required", [])) - set(value)
        assert not missing, f"{where} lacks {missing}"
        for name, inner in value.items():
            assert name in schema["properties"], f"{where}.{name} is not in the schema"
            fits(schema["properties"][name], inner, f"{where}.{name}")
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for inner in value:
            fits(schema["items"], inner, f"{where}[]")


SPEC = json.loads(SCHEMA.read_text())


def test_the_daemon_answers_as_its_schema_says(folder):
    supply = folder / "supply" / "bat"
    supply.mkdir(parents=True)
    for name, text in {"type": "Battery", "status": "Full", "capacity": "77"}.items():
        (supply / name).write_text(text)
    daemon = make(folder).start()
    try:
        with open(daemon.data / "larder.toml", "a") as config:
            config.write(f'[ups]\nsource = "battery"\nfolder = "{supply.parent}"\n')
        daemon.run("reload", check=True)
        assert json.loads(daemon.run("api", check=True).stdout) == SPEC
        assert json.loads(daemon.run("api", "--json", check=True).stdout) == SPEC
        name = {"pools": "tank", "users": daemon.user, "config": "1"}
        wait_for(lambda: json.loads(ask(daemon, "get", "/v1/config/history")[2])["versions"])
        asked = 0
        for path, methods in SPEC["paths"].items():
            if "get" not in methods or path in ("/v1/benches/{name}", "/v1/keys/{name}", "/v1/receive/{name}"):
                continue
            named = path.replace("{name}", next((name[part] for part in path.split("/") if part in name), "tank/files"))
            status, kind, text = ask(daemon, "get", named)
            assert status == 200, (named, text)
            [(declared, about)] = methods["get"]["responses"]["200"]["content"].items()
            assert kind.split(";")[0] == declared, named
            if declared == "application/json":
                fits(about["schema"], json.loads(text), named)
            asked += 1
        assert asked >= 18, asked
    finally:
        daemon.stop()


def test_requests_that_make_no_sense_are_refused(folder):
    daemon = make(folder).start()
    failure = {"$ref": "#/components/schemas/Failure"}
    try:
        for method, path in (("get", "/v1/nothing"), ("get", "/v1/pair"), ("post", "/v1/pair")):
            status, _, text = ask(daemon, method, path, b"{}")
            assert status == 404 and "of another version" in json.loads(text)["message"], (path, text)
        status, kind, text = ask(daemon, "get", "/v1/pools/none/history")
        assert (status, kind) == (404, "application/json"), text
        fits(failure, json.loads(text), "failure")
        # Every endpoint that takes a body says so itself when it is none, and none reads one without an end.
        for path, methods in SPEC["paths"].items():
            for method, about in methods.items():
                if "application/json" not in about.get("requestBody", {}).get("content", {}) or path == "/v1/pair":
                    continue
                status, _, text = ask(daemon, method, path.replace("{name}", "tank"), b"{")
                assert status == 400, (method, path, status, text)
        status, _, text = ask(daemon, "post", "/v1/check", b'"' + b"x" * BODY_BYTES_MAX + b'"')
        assert status == 413, (status, text)
        status, _, text = ask(daemon, "post", "/v1/receive/tank/none?quota=1", b"")
        assert status == 400 and "quota_bytes" in json.loads(text)["message"], text
        assert json.loads(daemon.run("pool", "list", "--json", check=True).stdout)
    finally:
        daemon.stop()
