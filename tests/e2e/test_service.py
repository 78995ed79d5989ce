"""larder as a service: what it tells its manager, the unit, and manual pages and completions for packages."""

import json
import os
import re
import signal
import socket
import subprocess

import larderd
from conftest import make

PACKAGING = larderd.ROOT / "packaging" / "systemd"


def states(listener, until):
    """What the manager is told, up to a state."""
    told = []
    while until not in told:
        told += listener.recv(4096).decode().split("\n")
    return told


def test_the_manager_is_told(folder):
    """An idle larder with a manager that has a watchdog, as the package starts it."""
    (folder / "data").mkdir(mode=0o700)
    (folder / "data" / "larder.toml").write_text('[listen]\nnfs = "127.0.0.1:0"\nsmb = "127.0.0.1:0"\n')
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.settimeout(60)
    listener.bind(str(folder / "notify"))
    command = [larderd.binary(), "--data", folder / "data", "serve"]
    refused = subprocess.run(command, text=True, capture_output=True, check=False, timeout=60)
    assert refused.returncode == 1 and "names no pool" in refused.stderr, refused.stderr
    env = {**os.environ, "NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": "200000"}
    daemon = subprocess.Popen([*command, "--idle"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        told = states(listener, "READY=1")
        assert "STATUS=opening pools and stores" in told
        assert states(listener, "WATCHDOG=1") and states(listener, "WATCHDOG=1")
        # A pool that comes later is served.
        disk = folder / "disk"
        larderd.run("pool", "create", "tank", disk, "--layout", "single", cwd=folder, check=True)
        larderd.run("--data", folder / "data", "pool", "import", disk, cwd=folder, check=True)
        larderd.run("--data", folder / "data", "volume", "create", "files", cwd=folder, check=True)
        assert "files" in larderd.run("--data", folder / "data", "share", "list", cwd=folder, check=True).stdout
        daemon.send_signal(signal.SIGTERM)
        assert "WATCHDOG=1" not in states(listener, "STOPPING=1")[-1:]
        assert daemon.wait(60) == 0
    finally:
        if daemon.poll() is None:
            daemon.kill()
            daemon.wait()


def test_a_log_that_nobody_takes_stops_nothing(folder):
    """Standard error is a full disk, or a pipe whose reader is gone."""
    reader, writer = os.pipe()
    os.close(reader)
    for number, stderr in enumerate([os.open("/dev/full", os.O_WRONLY), writer]):
        data = folder / f"data{number}"
        data.mkdir(mode=0o700)
        # A line that is complained about.
        (data / "larder.toml").write_text('[listen]\nnfs = "127.0.0.1:0"\nsmb = "127.0.0.1:0"\n[limits]\nconnections = 9\n')
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listener.settimeout(60)
        listener.bind(str(data / "notify"))
        env = {**os.environ, "NOTIFY_SOCKET": str(data / "notify"), "RUST_LOG": "debug"}
        daemon = subprocess.Popen([larderd.binary(), "--data", data, "serve", "--idle"], env=env, stdout=subprocess.DEVNULL, stderr=stderr)
        os.close(stderr)
        try:
            states(listener, "READY=1")
            assert larderd.run("--data", data, "pool", "list", cwd=folder).returncode == 0
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(60) == 0
        finally:
            if daemon.poll() is None:
                daemon.kill()
                daemon.wait()
            listener.close()


def test_a_service_whose_only_pool_does_not_open_goes_on_and_raises_the_alert(folder):
    larder = make(folder).start()
    assert larder.stop() == 0
    for disk in larder.disks[1:]:
        os.rename(disk, f"{disk}.away")
    command = [larderd.binary(), "--data", larder.data, "serve"]
    refused = subprocess.run(command, text=True, capture_output=True, check=False, timeout=60)
    assert refused.returncode != 0 and str(larder.disks[1]) in refused.stderr, refused.stderr
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.settimeout(60)
    listener.bind(str(folder / "notify"))
    env = {**os.environ, "NOTIFY_SOCKET": str(folder / "notify")}
    daemon = subprocess.Popen([*command, "--idle"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def run(*words, check=True):
        return larderd.run("--data", larder.data, *words, cwd=folder, check=check)

    try:
        states(listener, "READY=1")
        events = [alert["event"] for alert in json.loads(run("alerts", "--json").stdout)["open"]]
        assert "pool-unavailable" in events, events
        status = run("pool", "status", check=False).stdout
        assert "UNAVAIL" in status and str(larder.disks[1]) in status, status
        for disk in larder.disks[1:]:
            os.rename(f"{disk}.away", disk)
        run("pool", "import", *larder.disks)
        assert "ONLINE" in run("pool", "status").stdout
        events = [alert["event"] for alert in json.loads(run("alerts", "--json").stdout)["open"]]
        assert "pool-unavailable" not in events, events
        again = run("pool", "import", *larder.disks, check=False)
        assert again.returncode != 0 and "is served here already" in again.stderr, again.stderr
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(60) == 0
    finally:
        if daemon.poll() is None:
            daemon.kill()
            daemon.wait()


def test_a_port_that_is_taken_names_who_has_it(folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        daemon = make(folder, count=1, layout="single", extra=["--sftp", f"127.0.0.1:{port}"])
        try:
            daemon.start()
            raise AssertionError("it took a port that is taken")
        except larderd.StartFailed as failed:
            said = str(failed)
        finally:
            daemon.end()
    # A daemon of root keeps no right to look into other processes.
    if os.geteuid() == 0:
        assert f"has port {port}: stop it, or choose a port" in said and f"sudo ss -ltnp 'sport = :{port}'" in said, said
    else:
        assert f"(process {os.getpid()}) has port {port}: stop it with: " in said, said
    assert 'in larder.toml, under [listen]: sftp = \\":PORT\\"' in said or 'under [listen]: sftp = ":PORT"' in said, said


def test_the_unit_is_one(folder):
    unit = (PACKAGING / "larder.service").read_text().replace("/usr/bin/larder", larderd.binary())
    unit = re.sub(r"^(User|Group|Documentation)=.*\n", "", unit, flags=re.M)
    (folder / "larder.service").write_text(unit)
    found = subprocess.run(["systemd-analyze", "verify", folder / "larder.service"], text=True, capture_output=True, check=False)
    assert found.returncode == 0 and "larder.service" not in found.stderr, found.stderr
    rated = subprocess.run(["systemd-analyze", "security", "--offline=true", PACKAGING / "larder.service"], text=True, capture_output=True, check=True)
    level = float(re.search(r"exposure level for larder.service: ([0-9.]+)", rated.stdout).group(1))
    assert level <= 2.0, rated.stdout
    # The package's configuration is one, and says what it means to say.
    larderd.run("config", "check", PACKAGING / "larder.toml", cwd=folder, check=True)


def test_manual_pages_and_completions(folder):
    larderd.run("generate", folder, cwd=folder, check=True)
    pages = {page.name for page in (folder / "man").iterdir()}
    assert {"larder.1", "larder-pool.1", "larder-pool-create.1", "larder-config-apply.1"} <= pages, pages
    shown = subprocess.run(["man", "-l", "--warnings", folder / "man" / "larder-pool-create.1"], text=True, capture_output=True,
                           check=False) if os.path.exists("/usr/bin/man") else None
    assert shown is None or "larder" in shown.stdout
    assert "Make a pool from empty folders" in (folder / "man" / "larder-pool-create.1").read_text()
    completions = folder / "completions"
    done = subprocess.run(["bash", "-c", 'source "$1"; COMP_WORDS=(larder pool cr); COMP_CWORD=2; _larder larder cr pool; echo "${COMPREPLY[@]}"',
                           "-", completions / "larder.bash"], text=True, capture_output=True, check=True)
    assert done.stdout.strip() == "create", done
    assert (completions / "_larder").read_text().startswith("#compdef larder") and (completions / "larder.fish").stat().st_size > 1000


def test_reload_names_each_key_that_waits_until_the_start(folder):
    daemon = make(folder, count=1, layout="single").start()
    try:
        file = daemon.data / "larder.toml"
        issuer = '\n[page.oidc]\nissuer = "https://id.example.org"\nclient_id = "larder"\n\n[metrics]\nlisten = "127.0.0.1:0"\n'
        file.write_text(file.read_text() + issuer)
        for _ in range(2):
            read = json.loads(daemon.run("reload", "--json", check=True).stdout)
            assert read["at_next_start"] == ["[metrics]", "[page.oidc]"], read
        assert "[metrics], [page.oidc] of the file take effect at the next start" in daemon.log()
        assert daemon.stop() == 0
        daemon.start()
        assert json.loads(daemon.run("reload", "--json", check=True).stdout)["at_next_start"] == []
    finally:
        daemon.end()
