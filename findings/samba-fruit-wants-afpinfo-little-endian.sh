#!/bin/bash
# Guess: the stream AFP_AfpInfo (60 bytes of Finder information) has its numbers big-endian, as AppleDouble around it has, so that its
#        version 0x00010000 is the bytes 00 01 00 00; or Samba's vfs_fruit takes the 60 bytes whatever is in them.
# Seen:  with Debian 12's samba 4.17 only the bytes 00 00 01 00 are taken, Apple's number as a little-endian machine writes it. With the
#        others a write fails with NT_STATUS_NOT_SUPPORTED, which says nothing of a version. What was taken is then kept in the
#        attribute user.org.netatalk.Metadata, as AppleDouble of 402 bytes, big-endian, in which that version is no more: whoever makes
#        the stream of an AppleDouble file has to know it.
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
  vfs objects = fruit streams_xattr
  ea support = yes
[share]
  path = $work/share
  read only = no
  guest ok = yes
CONF
smbd --configfile="$work/smb.conf" --foreground --debug-stdout >"$work/log" 2>&1 & smbd=$!
for _ in $(seq 100); do smbclient -p "$port" -N //127.0.0.1/share -c ls >/dev/null 2>&1 && break; sleep 0.1; done
info() { printf 'AFP\0'; printf "$1"; printf '\0\0\0\0\x80\0\0\0TEXTttxt'; head -c 36 /dev/zero; }
info '\0\1\0\0' >"$work/big"; info '\0\0\1\0' >"$work/little"; : >"$work/none"
put() { smbclient -p "$port" -N //127.0.0.1/share -c "put $work/none $1; put $work/$1 $1:AFP_AfpInfo" >"$work/said" 2>&1 && echo taken || grep -o 'NT_STATUS_[A-Z_]*' "$work/said"; }
kept() { getfattr --absolute-names --only-values -n user.org.netatalk.Metadata "$work/share/$1" 2>/dev/null || true; }
big=$(put big) little=$(put little)
echo "version   $(smbd --version)"
echo "00010000  $big, $(kept big | wc -c) bytes kept"
echo "00000100  $little, $(kept little | wc -c) bytes kept, which begin $(kept little | head -c 8 | od -An -tx1 | tr -d ' ')"
[ "$(wc -c <"$work/big")" = 60 ] && [ "$big" = NT_STATUS_NOT_SUPPORTED ] && [ "$(kept big | wc -c)" = 0 ] && [ "$little" = taken ] &&
  [ "$(kept little | wc -c)" = 402 ] && [ "$(kept little | head -c 8 | od -An -tx1 | tr -d ' ')" = 0005160700020000 ] || { echo "changed: this finding is over"; exit 1; }
