#!/usr/bin/python3
"""WebDAV beside Apache's mod_dav, SFTP beside OpenSSH's internal-sftp, and a local mount beside bindfs.

larder runs a raidz1 pool with checksums and LZ4 on three folders; the other server has one plain folder of the same filesystem. Data does not
compress. One client, one connection; the servers take turns, and a row is the median of the turns. Run as root, beside an idle machine:

    LARDER=target/release/larder bench/doors.py [--size-mib 1024] [--reps 3] [--folder /tmp] [--only PROPFIND]
"""

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "e2e"))
from larderd import Larder  # noqa: E402
from servers import cpu_s  # noqa: E402

USER, PASSWORD = "keeper", "Pantry-Shelf-42"
PROPFIND = '<propfind xmlns="DAV:"><prop><resourcetype/><getcontentlength/><getlastmodified/><getetag/></prop></propfind>'

APACHE = """
ServerRoot {at}
ServerName 127.0.0.1
PidFile {at}/pid
Listen 127.0.0.1:{port}
Listen 127.0.0.1:{tls_port}
ErrorLog {at}/errors
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authn_core_module /usr/lib/apache2/modules/mod_authn_core.so
LoadModule authn_file_module /usr/lib/apache2/modules/mod_authn_file.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule authz_user_module /usr/lib/apache2/modules/mod_authz_user.so
LoadModule auth_basic_module /usr/lib/apache2/modules/mod_auth_basic.so
LoadModule socache_shmcb_module /usr/lib/apache2/modules/mod_socache_shmcb.so
LoadModule ssl_module /usr/lib/apache2/modules/mod_ssl.so
LoadModule dav_module /usr/lib/apache2/modules/mod_dav.so
LoadModule dav_fs_module /usr/lib/apache2/modules/mod_dav_fs.so
User nobody
DocumentRoot {at}/files
DavLockDB {at}/locks/db
<Directory {at}/files>
  Dav On
  AuthType Basic
  AuthName bench
  AuthUserFile {at}/users
  Require valid-user
</Directory>
<VirtualHost 127.0.0.1:{tls_port}>
  SSLEngine on
  SSLCertificateFile {at}/certificate.pem
  SSLCertificateKeyFile {at}/certificate.key
  DocumentRoot {at}/files
</VirtualHost>
"""

SSHD = """
Port {port}
ListenAddress 127.0.0.1
HostKey {at}/host
PidFile none
AuthorizedKeysFile {at}/key.pub
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
Subsystem sftp internal-sftp
"""


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stdout}\n{done.stderr}")
    return done.stdout


class Peer:
    """A server of the bench's own, ended by its pid."""

    def __init__(self, name, command):
        self.name = name
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1.5)
        if self.process.poll() is not None:
            raise SystemExit(f"{name} did not start")

    @property
    def pid(self):
        return self.process.pid

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)


def timed(pid, work):
    os.sync()
    before, begun = cpu_s(pid), time.monotonic()
    work()
    return time.monotonic() - begun, cpu_s(pid) - before


def webdav(url, source, out):
    """Rows of one turn: seconds, and seconds of the server's processors."""
    auth = ["curl", "-sSfk", "-u", f"{USER}:{PASSWORD}"]
    name = "WebDAV over HTTPS" if url.startswith("https:") else "WebDAV"
    rows = {
        f"{name} PUT": lambda: run(*auth, "-T", source, f"{url}big"),
        f"{name} GET": lambda: run(*auth, "-o", "/dev/null", f"{url}big"),
    }
    if name == "WebDAV":
        ask = [*auth, "-X", "PROPFIND", "-H", "Depth: 1", "-d", PROPFIND]
        rows["WebDAV PROPFIND of 10,000"] = lambda: run(*ask, "-o", out, f"{url}many/")
        # A client of its own for each counts the start of curl and the login, too.
        rows["WebDAV PROPFIND of 10,000, ten over one connection"] = lambda: run(*ask, *["-o", out, f"{url}many/"] * 10)
    return rows


def mount(folder, source, small_tar):
    """Rows of a mount: the flush at the end counts; reading comes from the disk."""
    tree = folder / "tree"

    def write():
        run("dd", f"if={source}", f"of={folder}/mounted", "bs=1M", "conv=fsync", "status=none")

    def read():
        Path("/proc/sys/vm/drop_caches").write_text("3")
        run("dd", f"if={folder}/mounted", "of=/dev/null", "bs=1M", "status=none")

    def untar():
        tree.mkdir()
        run("tar", "xf", small_tar, "-C", tree)

    return {
        "mount: sequential write": write,
        "mount: sequential read": read,
        "mount: untar": untar,
        "mount: find -ls": lambda: run("find", tree, "-ls"),
        "mount: rm -rf": lambda: run("rm", "-rf", tree),
    }


def sftp(port, user, key, base, source, small, out):
    options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-i", key,
               "-o", "IdentitiesOnly=yes", "-c", "aes128-gcm@openssh.com"]

    def batch(*lines):
        return lambda: run("sftp", "-R", "64", *options, "-P", port, "-b", "-", f"{user}@127.0.0.1", input="".join(f"{line}\n" for line in lines))

    return {
        "SFTP write": batch(f"put {source} {base}/big"),
        "SFTP read": batch(f"get {base}/big {out}"),
        "SFTP 5,000 small files up": batch(f"put -R {small} {base}/small-{time.monotonic_ns()}"),
        "SFTP 2,000 stat": batch(*[f"ls -l {base}/big" for _ in range(2000)]),
    }


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--size-mib", type=int, default=1024)
    words.add_argument("--reps", type=int, default=3)
    words.add_argument("--folder", type=Path, default=Path("/tmp"))
    words.add_argument("--only", default="", help="rows with this in their names")
    asked = words.parse_args()
    at = Path(tempfile.mkdtemp(prefix="larder-doors-", dir=asked.folder))
    started = []
    try:
        source, small = at / "source", at / "small"
        with open(source, "wb") as f:
            for _ in range(asked.size_mib):
                f.write(os.urandom(1 << 20))
        small.mkdir()
        for n in range(5000):
            (small / f"{n}").write_bytes(os.urandom(2048))
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", at / "key")
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", at / "host")
        mounted = at / "mnt"
        mounted.mkdir()
        small_tar = at / "small.tar"
        run("tar", "cf", small_tar, "-C", "/usr/share", *[d for d in ("doc", "man", "zoneinfo") if Path("/usr/share", d).exists()])
        run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-days", "9",
            "-keyout", at / "certificate.key", "-out", at / "certificate.pem")
        larder = Larder([at / f"disk{n}" for n in range(3)], at / "data",
                        extra=["--webdav", "127.0.0.1:0", "--webdavs", "127.0.0.1:0", "--sftp", "127.0.0.1:0", "--mount", str(mounted)]).start()
        started.append(larder)
        config, key = at / "data" / "larder.toml", (at / "key.pub").read_text().strip()
        config.write_text(config.read_text().replace(f'name = "{USER}"\n', f'name = "{USER}"\nssh_keys = ["{key}"]\n', 1))
        larder.run("reload", check=True)
        os.chmod(mounted, 0o1777)
        (mounted / "many").mkdir()
        for path in ["files/many", "locks", "sftp", "below", "bound"]:
            (at / path).mkdir(parents=True)
            os.chmod(at / path, 0o777)
        os.chmod(at, 0o755)
        os.chmod(at / "files", 0o777)
        for n in range(10_000):
            (mounted / f"many/{n:05}").touch()
            (at / f"files/many/{n:05}").touch()
        ports = {"apache": 18080, "tls": 18081, "ssh": 18022}
        (at / "users").write_text(f"{USER}:{run('openssl', 'passwd', '-apr1', PASSWORD)}")
        (at / "apache.conf").write_text(APACHE.format(at=at, port=ports["apache"], tls_port=ports["tls"]))
        (at / "sshd.conf").write_text(SSHD.format(at=at, port=ports["ssh"]))
        Path("/run/sshd").mkdir(exist_ok=True)
        apache = Peer("apache", ["/usr/sbin/apache2", "-DFOREGROUND", "-f", at / "apache.conf"])
        started.append(apache)
        sshd = Peer("sshd", ["/usr/sbin/sshd", "-D", "-f", at / "sshd.conf"])
        started.append(sshd)
        bindfs = Peer("bindfs", ["bindfs", "-f", "--multithreaded", at / "below", at / "bound"])
        started.append(bindfs)
        dav_port, sftp_port = larder.info["webdav"]["port"], larder.info["sftp"]["port"]
        rows = {}
        for _ in range(asked.reps):
            for name, pid, work in [
                ("peer", apache.pid, webdav(f"http://127.0.0.1:{ports['apache']}/", source, at / "out")),
                ("larder", larder.pid, webdav(f"http://127.0.0.1:{dav_port}/{larder.share}/", source, at / "out")),
                ("peer", apache.pid, webdav(f"https://127.0.0.1:{ports['tls']}/", source, at / "out")),
                ("larder", larder.pid, webdav(f"https://127.0.0.1:{larder.info['webdavs']['port']}/{larder.share}/", source, at / "out")),
                ("peer", bindfs.pid, mount(at / "bound", source, small_tar)),
                ("larder", larder.pid, mount(mounted, source, small_tar)),
                ("peer", sshd.pid, sftp(ports["ssh"], "root", at / "key", at / "sftp", source, small, at / "out")),
                ("larder", larder.pid, sftp(sftp_port, USER, at / "key", f"/{larder.share}", source, small, at / "out")),
            ]:
                for row, action in work.items():
                    if asked.only not in row:
                        continue
                    rows.setdefault(row, {"peer": [], "larder": []})[name].append(timed(pid, action))
        print("| row | peer, s | larder, s | ratio | CPU of peer, s | CPU of larder, s |\n|---|---:|---:|---:|---:|---:|")
        for row, found in rows.items():
            wall = {name: statistics.median(t for t, _ in turns) for name, turns in found.items()}
            cpu = {name: statistics.median(c for _, c in turns) for name, turns in found.items()}
            print(f"| {row} | {wall['peer']:.2f} | {wall['larder']:.2f} | {wall['peer'] / wall['larder']:.2f} | {cpu['peer']:.2f} | {cpu['larder']:.2f} |")
    finally:
        for server in reversed(started):
            server.end()
        for path in ["mnt", "bound"]:
            subprocess.run(["umount", "-l", str(at / path)], check=False, capture_output=True)
        shutil.rmtree(at, ignore_errors=True)


if __name__ == "__main__":
    main()
