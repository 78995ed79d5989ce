#!/bin/bash
# Guess: nfs-ganesha with `Bind_addr = 127.0.0.1` starts on a machine whose network is down: a numeric address needs no resolver.
# Seen:  4.3 of Debian 12 ends with status 2 and "No IP address found for 127.0.0.1 because:Name or service not known" where
#        loopback has the only address: it asks getaddrinfo with AI_ADDRCONFIG, which leaves out IPv4 where no other address is
#        configured. With any other address, even one of lo, it starts. A server that is started before its network, or a test
#        in a network namespace, needs one.
# Runs in network namespaces of its own. Needs root; installs nfs-ganesha, nfs-ganesha-vfs and rpcbind where they are missing.
set -euo pipefail
missing=(); for package in nfs-ganesha nfs-ganesha-vfs rpcbind; do dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package"); done
if [ ${#missing[@]} -gt 0 ]; then apt-get update -q >/dev/null; DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null; fi
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
mkdir "$work/x"
cat >"$work/conf" <<CONF
NFS_CORE_PARAM { Protocols = 4; NFS_Port = 12049; Enable_NLM = false; Enable_RQUOTA = false; Bind_addr = 127.0.0.1; }
EXPORT { Export_Id = 1; Path = $work/x; Pseudo = /x; Protocols = 4; FSAL { Name = VFS; } }
NFSv4 { Graceless = true; RecoveryBackend = fs; RecoveryRoot = $work; }
CONF
# starts ADDRESS...: whether it serves within 10 s where lo has these addresses beside its own.
starts() {
  work=$work addresses="$*" unshare -n -m bash -c '
    ip link set lo up; for address in $addresses; do ip addr add "$address" dev lo; done
    mount -t tmpfs none /run; mkdir -p /run/ganesha
    rpcbind -f & rpcbind=$!; sleep 1
    ganesha.nfsd -F -f "$work/conf" -L "$work/log" -p "$work/pid" >/dev/null 2>&1 & server=$!
    for _ in $(seq 100); do
      (exec 3<>/dev/tcp/127.0.0.1/12049) 2>/dev/null && { echo serves; break; }
      kill -0 $server 2>/dev/null || { status=0; wait $server || status=$?; echo "ends with $status"; break; }
      sleep 0.1
    done
    kill $server $rpcbind 2>/dev/null; wait'
}
ganesha.nfsd -v | head -1
alone=$(starts) || true
why=$(grep -o 'No IP address found for 127.0.0.1.*' "$work/log" | head -1)
: >"$work/log"
beside=$(starts 192.0.2.1/32) || true
echo "loopback alone: $alone: $why"
echo "beside 192.0.2.1: $beside"
[ "$alone" = "ends with 2" ] && [ -n "$why" ] && [ "$beside" = serves ] || { echo "changed: this finding is over"; exit 1; }
