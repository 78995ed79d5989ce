"""axe-core, the checks of accessibility, on the pages of a browser.

It comes from npm at its first use, and is kept in the cache of whoever runs the tests; its hash is written here.
"""

import hashlib
import io
import subprocess
import tarfile
import tempfile
from pathlib import Path

VERSION = "4.11.1"
SHA256 = "7dbfabdfc6062936d79c873ddbb5f811a1219fca3928bd8cc9dd81f1e65f4720"
CACHE = Path.home() / ".cache" / "larder" / f"axe-{VERSION}.min.js"

RUN = """
const done = arguments[arguments.length - 1];
axe.run(document).then(
  (result) => done(result.passes.length < 10 ? ["axe-core looked at next to nothing"] : result.violations.map((v) => `${v.id} (${v.impact}): ${v.nodes.map((n) => n.target.join(" ") + ": " + n.failureSummary).join("; ")}`)),
  (error) => done([String(error)]));
"""


def source():
    if not CACHE.exists():
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["npm", "pack", "--silent", f"axe-core@{VERSION}"], cwd=folder, check=True, capture_output=True, timeout=120)
            package = (Path(folder) / f"axe-core-{VERSION}.tgz").read_bytes()
        with tarfile.open(fileobj=io.BytesIO(package)) as files:
            script = files.extractfile("package/axe.min.js").read()
        CACHE.parent.mkdir(parents=True, exist_ok=True)
        CACHE.write_bytes(script)
    script = CACHE.read_bytes()
    assert hashlib.sha256(script).hexdigest() == SHA256, f"{CACHE} is not axe-core {VERSION} as published"
    return script.decode()


def violations(browser):
    """What axe-core finds on the page that is open. Its script comes from outside of the page, past its policy."""
    browser.driver.execute_script(source())
    return browser.driver.execute_async_script(RUN)
