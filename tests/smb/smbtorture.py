#!/usr/bin/env python3
"""How far larder's SMB server gets in Samba's own conformance suites, beside smbd.

Runs Debian's smbtorture, suite by suite, against a larder given by its address, or one that this starts,
and against an smbd that this starts on a temporary folder, and prints the table of docs/smb.md:

    tests/smb/smbtorture.py [--server HOST:PORT/SHARE --user USER%PASSWORD] [--larder PATH] [--only GLOB] [--json FILE]

Needs root (smbd does), samba, samba-testsuite; samba-vfs-modules for smbd's streams. Nothing leaves the loopback.
"""

import argparse
import fnmatch
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

SUITE_SECONDS = 60
# Needs another machine, another kernel's features or hours; smbd itself does not run these by default.
LEFT_OUT = {
    "smb2.bench", "smb2.hold-oplock", "smb2.hold-sharemode", "smb2.check-sharemode", "smb2.scan",
    "smb2.kernel-oplocks", "smb2.aio_delay", "smb2.durable-v2-delay", "smb2.change_notify_disabled",
    "smb2.notify-inotify", "smb2.async_dosmode", "smb2.acls_non_canonical", "smb2.maxfid",
    "smb2.samba3misc", "smb2.set-sparse-ioctl", "smb2.zero-data-ioctl", "smb2.ioctl-on-stream",
    "smb2.create_no_streams", "smb2.delete-on-close-perms", "smb2.ea", "smb2.timestamp_resolution",
}
PASS, FAIL, SKIP = "success", "failure", "skip"
RESULT = re.compile(r"^(success|failure|error|skip):\s*([^\s\[]+)", re.MULTILINE)


def suites(pattern):
    listed = subprocess.run(["smbtorture", "--list-suites"], capture_output=True, text=True).stdout.split()
    names = [name for name in listed if name.startswith("smb2.") and name not in LEFT_OUT]
    return [name for name in names if fnmatch.fnmatch(name, pattern)]


def run_suite(server, user, suite, seconds):
    """Results by test; those that did not come before the time was up are missing."""
    host, port, share = server
    command = ["timeout", "-k", "2", str(seconds), "smbtorture", f"//{host}/{share}", "-p", str(port),
               f"-U{user}", "--option=torture:sharedelay=100000", suite]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    results = {}
    for outcome, test in RESULT.findall(done.stdout):
        results[test.removeprefix(suite + ".")] = FAIL if outcome == "error" else outcome
    return {"results": results, "timed_out": done.returncode in (124, 137)}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(port, process):
    for _ in range(200):
        if process.poll() is not None:
            sys.exit(f"the server stopped with {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    sys.exit("the server does not answer")


def start_smbd(folder):
    """smbd with its own state under `folder`, and one user `user` with the password `pass`."""
    root, port = pathlib.Path(folder), free_port()
    for name in ("state", "share"):
        (root / name).mkdir()
    (root / "share").chmod(0o777)
    state = root / "state"
    conf = root / "smb.conf"
    conf.write_text(f"""[global]
        server role = standalone server
        smb ports = {port}
        bind interfaces only = yes
        interfaces = lo
        private dir = {state}
        state directory = {state}
        cache directory = {state}
        lock directory = {state}
        pid directory = {state}
        ncalrpc dir = {state}/ncalrpc
        log file = {state}/log
        passdb backend = tdbsam:{state}/passdb.tdb
        disable spoolss = yes
        load printers = no
        map to guest = never
[share]
        path = {root}/share
        read only = no
        force user = root
        store dos attributes = yes
        {"vfs objects = acl_xattr streams_xattr" if any(pathlib.Path("/usr/lib").glob("*/samba/vfs/streams_xattr.so")) else ""}
""")
    subprocess.run(["smbpasswd", "-c", conf, "-a", "-s", "root"], input="pass\npass\n", text=True, check=True,
                   stdout=subprocess.DEVNULL)
    process = subprocess.Popen(["smbd", "-F", "--no-process-group", "-s", conf], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    wait_for(port, process)
    return process, ("127.0.0.1", port, "share"), "root%pass"


def start_larder(binary, folder):
    disks = [os.path.join(folder, f"disk{n}") for n in (1, 2, 3)]
    process = subprocess.Popen([binary, "up", "--json", "--nfs", "127.0.0.1:0", "--smb", "127.0.0.1:0", *disks],
                               stdout=subprocess.PIPE, text=True)
    ready = json.loads(process.stdout.readline())
    smb = ready["smb"]
    return process, (smb["host"], smb["port"], smb["share"]), f"{ready['user']}%{ready['password']}"


def stop(process):
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()


def count(run):
    outcomes = list(run["results"].values())
    text = f"{outcomes.count(PASS)}/{len(outcomes) - outcomes.count(SKIP)}"
    return text + (" (time)" if run["timed_out"] else "")


def table(ours, theirs):
    lines = ["| suite | larder | smbd | fails here alone |", "|---|---|---|---|"]
    for suite, run in ours.items():
        other = theirs.get(suite, {"results": {}, "timed_out": False})
        alone = [t for t, outcome in run["results"].items()
                 if outcome == FAIL and other["results"].get(t) == PASS]
        lines.append(f"| {suite} | {count(run)} | {count(other)} | {', '.join(alone)} |")
    sums = []
    for runs in (ours, theirs):
        outcomes = [o for run in runs.values() for o in run["results"].values() if o != SKIP]
        sums.append(f"{outcomes.count(PASS)}/{len(outcomes)}")
    lines.append(f"| **all** | **{sums[0]}** | **{sums[1]}** | |")
    return "\n".join(lines)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--server", help="HOST:PORT/SHARE of a server that runs already")
    options.add_argument("--user", default="user%pass", help="USER%%PASSWORD there")
    options.add_argument("--larder", default=os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), "release/larder"), help="binary to start otherwise")
    options.add_argument("--only", default="*", help="suites, as a shell pattern")
    options.add_argument("--seconds", type=int, default=SUITE_SECONDS, help="time for a suite")
    options.add_argument("--json", help="keep the results here; the smbd column is taken from it if it is there")
    options = options.parse_args()

    known = {}
    if options.json and os.path.exists(options.json):
        known = json.loads(pathlib.Path(options.json).read_text())
    folder = tempfile.mkdtemp(prefix="smbtorture-")
    processes = []
    try:
        if options.server:
            host, port, share = re.fullmatch(r"(.+):(\d+)/(.+)", options.server).groups()
            server, user = (host, int(port), share), options.user
        else:
            process, server, user = start_larder(options.larder, folder)
            processes.append(process)
        theirs = known.get("smbd", {})
        ours = known.get("larder", {})
        names = suites(options.only)
        if any(name not in theirs for name in names):
            smbd_folder = os.path.join(folder, "smbd")
            os.mkdir(smbd_folder)
            process, smbd, smbd_user = start_smbd(smbd_folder)
            processes.append(process)
        for name in names:
            ours[name] = run_suite(server, user, name, options.seconds)
            if name not in theirs:
                theirs[name] = run_suite(smbd, smbd_user, name, options.seconds)
            print(f"{name}: {count(ours[name])}, smbd {count(theirs[name])}", file=sys.stderr, flush=True)
            if options.json:
                pathlib.Path(options.json).write_text(json.dumps({"larder": ours, "smbd": theirs}, indent=1))
        print(table({name: ours[name] for name in sorted(ours)}, theirs))
    finally:
        for process in processes:
            stop(process)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
