#!/bin/bash
# Guess: Samba's streams_xattr keeps a stream's bytes as the value of the attribute user.DosStream.NAME:$DATA, byte for byte, so
#        a backup program can take the value for the stream.
# Seen:  with Debian 12's samba 4.17 the value is one byte longer: a zero follows the stream. A stream of no bytes is a value of
#        one byte. Whoever copies attributes between a folder that Samba served and a store of streams has to take the byte off,
#        and to put it there on the way back, or the stream loses its last byte when Samba reads it.
# Runs smbd on loopback in a temporary folder. Needs root, for smbd; installs samba, its modules, smbclient and attr where they are missing.
set -euo pipefail
missing=(); for package in samba samba-vfs-modules smbclient attr; do dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package"); done
if [ ${#missing[@]} -gt 0 ]; then apt-get update -q >/dev/null; DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null; fi
work=$(mktemp -d); trap 'kill "$smbd" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -p "$work"/{share,state,private} && chmod 777 "$work/share"
port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat >"$work/smb.conf" <<CONF
[global]
  interfaces = 127.0.0.1
  bind interfaces only = yes
  smb ports = $port
  map to guest = bad user
  guest account = root
  lock directory = $work/state
  state directory = $work/state
  cache directory = $work/state
  pid directory = $work/state
  private dir = $work/private
  ncalrpc dir = $work/state/ncalrpc
  vfs objects = streams_xattr
[share]
  path = $work/share
  read only = no
  guest ok = yes
CONF
smbd --configfile="$work/smb.conf" --foreground --debug-stdout >"$work/log" 2>&1 & smbd=$!
for _ in $(seq 100); do smbclient -p "$port" -N //127.0.0.1/share -c ls >/dev/null 2>&1 && break; sleep 0.1; done
printf 'twelve bytes' >"$work/twelve"; : >"$work/none"
smbclient -p "$port" -N //127.0.0.1/share -c "put $work/none file; put $work/twelve file:note; put $work/none file:empty; get file:note $work/back" >"$work/client" 2>&1 || { cat "$work/client" "$work/log"; exit 1; }
size() { getfattr --absolute-names --only-values -n "$1" "$work/share/file" 2>/dev/null | wc -c; }
echo "version   $(smbd --version)"
echo "stream    $(wc -c <"$work/back") bytes by SMB, $(size 'user.DosStream.note:$DATA') in the attribute, the last $(getfattr --absolute-names --only-values -n 'user.DosStream.note:$DATA' "$work/share/file" | tail -c1 | od -An -tx1 | tr -d ' ')"
echo "empty     $(size 'user.DosStream.empty:$DATA') in the attribute"
[ "$(wc -c <"$work/back")" = 12 ] && [ "$(size 'user.DosStream.note:$DATA')" = 13 ] && [ "$(size 'user.DosStream.empty:$DATA')" = 1 ] || { echo "changed: this finding is over"; exit 1; }
