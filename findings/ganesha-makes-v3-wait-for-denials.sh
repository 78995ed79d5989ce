#!/bin/bash
# Guess: an NFSv4 open that denies writing (OPEN4_SHARE_DENY_WRITE, RFC 7530 9.9) is nothing to NFSv3 clients of the same server,
#        which have no opens; or a WRITE of theirs is refused (NFS3ERR_ACCES).
# Seen:  nfs-ganesha 4.3 of Debian 12 answers WRITE, and SETATTR of the size, with NFS3ERR_JUKEBOX, "try again later": a kernel's
#        client repeats them until the NFSv4 client closes the file, so its program hangs and hears of no error. REMOVE of the
#        same file goes on at once. Whoever moves clients of v3 to a server with v4 clients from Windows has to expect that.
# Runs rpcbind and ganesha in a network namespace of their own. Needs root; installs nfs-ganesha, nfs-ganesha-vfs and rpcbind
# where they are missing.
set -euo pipefail
missing=(); for package in nfs-ganesha nfs-ganesha-vfs rpcbind; do dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package"); done
if [ ${#missing[@]} -gt 0 ]; then apt-get update -q >/dev/null; DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null; fi
# Ganesha takes no numeric address where there are loopback addresses alone.
if [ -z "${INSIDE:-}" ]; then INSIDE=1 exec unshare -n -m bash -c 'ip link set lo up; ip addr add 192.0.2.1/32 dev lo; mount -t tmpfs none /run; mkdir -p /run/ganesha; exec "$0"' "$0"; fi
work=$(mktemp -d); trap 'kill $(jobs -p) 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"' EXIT
mkdir "$work/x"; echo 0123456789 >"$work/x/f"
cat >"$work/conf" <<CONF
NFS_CORE_PARAM { Protocols = 3, 4; NFS_Port = 12049; MNT_Port = 12050; Enable_NLM = false; Enable_RQUOTA = false; Bind_addr = 127.0.0.1; }
EXPORT { Export_Id = 1; Path = $work/x; Pseudo = /x; Access_Type = RW; Squash = No_Root_Squash; SecType = sys; Transports = TCP; Protocols = 3, 4; FSAL { Name = VFS; } }
NFSv4 { Graceless = true; RecoveryBackend = fs; RecoveryRoot = $work; }
CONF
rpcbind -f & sleep 1
ganesha.nfsd -F -f "$work/conf" -L "$work/log" -p "$work/pid" &
for _ in $(seq 100); do (exec 3<>/dev/tcp/127.0.0.1/12050) 2>/dev/null && break; sleep 0.1; done
ganesha.nfsd -v | head -1
python3 - "$work/x" <<'PY' >"$work/seen" || { tail "$work/log"; exit 1; }
import socket, struct, sys
u32, u64 = struct.Struct(">I").pack, struct.Struct(">Q").pack
opaque = lambda data: u32(len(data)) + data + bytes(-len(data) % 4)

class Link:
    def __init__(self, port):
        self.link, self.xid = socket.create_connection(("127.0.0.1", port)), 0

    def __call__(self, program, version, procedure, arguments):
        self.xid += 1
        auth = opaque(u32(0) + opaque(b"client") + u32(0) + u32(0) + u32(0))
        call = u32(self.xid) + u32(0) + u32(2) + u32(program) + u32(version) + u32(procedure) + u32(1) + auth + bytes(8) + arguments
        self.link.sendall(u32(0x8000_0000 | len(call)) + call)
        size = struct.unpack(">I", self.link.recv(4, socket.MSG_WAITALL))[0] & 0x7FFF_FFFF
        return self.link.recv(size, socket.MSG_WAITALL)[24:]

nfs, mount = Link(12049), Link(12050)

def compound(*ops):
    reply = nfs(100003, 4, 1, opaque(b"") + u32(0) + u32(len(ops)) + b"".join(ops))
    assert reply[:4] == bytes(4), reply.hex()
    return reply[12:]

client = compound(u32(35) + b"verifier" + opaque(b"one") + u32(0x4000_0000) + opaque(b"tcp") + opaque(b"127.0.0.1.0.1") + u32(1))[8:]
compound(u32(36) + client[:16])
# OPEN to read (1) that denies writing (2); the results of PUTROOTFH and LOOKUP stand before its own.
reply = compound(u32(24), u32(15) + opaque(b"x"), u32(18) + u32(0) + u32(1) + u32(2) + client[:8] + opaque(b"owner") + u32(0) + u32(0) + opaque(b"f"), u32(10))[24:]
stateid, confirms = reply[:16], struct.unpack(">I", reply[36:40])[0] & 2
size = struct.unpack(">I", reply[40:44])[0]
handle4 = reply[44 + 4 * size + 12:]
if confirms:
    compound(u32(22) + handle4, u32(20) + stateid + u32(1))
root = mount(100005, 3, 1, opaque(sys.argv[1].encode()))[4:]
root = root[:4 + struct.unpack(">I", root[:4])[0]]
found = nfs(100003, 3, 3, root + opaque(b"f"))[4:]
handle = found[:4 + struct.unpack(">I", found[:4])[0]]
status = lambda procedure, arguments: struct.unpack(">I", nfs(100003, 3, procedure, arguments)[:4])[0]
print("WRITE", status(7, handle + u64(0) + u32(1) + u32(2) + opaque(b"x")))
print("SETATTR", status(2, handle + bytes(12) + u32(1) + u64(5) + bytes(8) + u32(0)))
print("REMOVE", status(12, root + opaque(b"f")))
PY
cat "$work/seen"
[ "$(tr '\n' ' ' <"$work/seen")" = "WRITE 10008 SETATTR 10008 REMOVE 0 " ] || { echo "changed: this finding is over"; exit 1; }
