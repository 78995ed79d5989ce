#!/usr/bin/python3
"""The API over HTTPS, asked by schemathesis what its own schema allows. A 500 fails; so does a panic.

    tests/api/run.py [EXAMPLES]     requests of each operation [default: 20]

schemathesis comes from PyPI at the first use, into a folder of the cache of whoever runs this.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
from conftest import make  # noqa: E402

VERSION = "4.32.5"
PLACE = Path.home() / ".cache" / "larder" / f"schemathesis-{VERSION}"
# They destroy or close what other requests use, or touch folders of this machine.
SPARED = [
    "AddShare", "ApplyConfig", "ChangePool", "DestroyPool", "ExportPool", "ImportPool", "MountVolume", "ReloadConfig", "SetShare", "UnmountVolume",
]


def program():
    done = PLACE / "done"
    if not done.exists():
        venv.create(PLACE, with_pip=True, clear=True)
        subprocess.run([PLACE / "bin" / "pip", "install", "--quiet", f"schemathesis=={VERSION}"], check=True, timeout=600)
        done.touch()
    return PLACE / "bin" / "schemathesis"


def main():
    examples = sys.argv[1] if len(sys.argv) > 1 else "20"
    asker, path = program(), Path(tempfile.mkdtemp(prefix="larder-api-"))
    daemon = make(path, extra=["--page", "127.0.0.1:0"])
    try:
        daemon.start()
        token = json.loads(daemon.run("token", "create", "keeper", "--scope", "admin", "--json", check=True).stdout)["token"]
        asked = subprocess.run(
            [
                asker, "--config-file", HERE / "schemathesis.toml", "run", f"{daemon.info['page']['url']}api/openapi.json", "--tls-verify=false",
                "--header", f"Authorization: Bearer {token}", "--checks", "not_a_server_error", "--phases", "examples,fuzzing",
                "--max-examples", examples, "--request-timeout", "30", "--suppress-health-check", "all", "--no-color",
                "--exclude-operation-id-regex", f"^({'|'.join(SPARED)})$",
            ],
            timeout=1800, cwd=path,
        )
        log, is_alive = daemon.log(), daemon.alive()
        if asked.returncode or "panicked" in log or not is_alive:
            sys.exit(f"the API failed (schemathesis: {asked.returncode}, daemon running: {is_alive})\n{log[-4000:]}")
    finally:
        daemon.end()
        shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main()
