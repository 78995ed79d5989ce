#!/bin/bash
# Guess: MS-SMB2 3.3.5.5.3 has no signatures in a guest's session, so a server that demands them (`server signing = mandatory`) either
#        sends a guest's answers unsigned, or refuses the guest when the session is set up.
# Seen:  with Debian 12's samba 4.17 a user whom the server does not know becomes a guest (SMB2_SESSION_FLAG_IS_GUEST), is told so, and
#        every answer is signed all the same: SMB 2.1's HMAC-SHA256 with a key of 16 zero bytes, for the server cannot know the key of
#        the logon. smbclient knows that custom, and lists the share. impacket signs with the key of its logon, as the specification
#        derives it for every other session: TREE_CONNECT is STATUS_ACCESS_DENIED, on a share with `guest ok = yes`, and its client
#        cannot check the signature of that refusal. Without a name (a null session) both ends have one key, and impacket comes in.
# Runs smbd on loopback in a temporary folder. Needs root, for smbd; installs samba, smbclient and python3-impacket where they are missing.
set -euo pipefail
missing=(); for package in samba smbclient python3-impacket; do dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package"); done
if [ ${#missing[@]} -gt 0 ]; then apt-get update -q >/dev/null; DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null; fi
work=$(mktemp -d); trap 'kill "$smbd" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -p "$work"/{share,state,private} && chmod 777 "$work/share" && echo here >"$work/share/seen"
port=$(/usr/bin/python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat >"$work/smb.conf" <<CONF
[global]
  interfaces = 127.0.0.1
  bind interfaces only = yes
  smb ports = $port
  server signing = mandatory
  map to guest = bad user
  guest account = root
  lock directory = $work/state
  state directory = $work/state
  cache directory = $work/state
  pid directory = $work/state
  private dir = $work/private
  ncalrpc dir = $work/state/ncalrpc
[share]
  path = $work/share
  guest ok = yes
CONF
smbd --configfile="$work/smb.conf" --foreground --debug-stdout >"$work/log" 2>&1 & smbd=$!
for _ in $(seq 100); do smbclient -p "$port" -N //127.0.0.1/share -c ls >/dev/null 2>&1 && break; sleep 0.1; done
cat >"$work/enter.py" <<'PY'
import hashlib, hmac, struct, sys
import impacket.nmb
from impacket.smb3structs import SMB2_DIALECT_21
from impacket.smbconnection import SessionError, SMBConnection

port, user = int(sys.argv[1]), sys.argv[2]
answers, receive = [], impacket.nmb.NetBIOSTCPSession.recv_packet
def kept(self, *args, **options):
    packet = receive(self, *args, **options)
    answers.append(packet.get_trailer())
    return packet
impacket.nmb.NetBIOSTCPSession.recv_packet = kept
smb = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=port, preferredDialect=SMB2_DIALECT_21)
smb.login(user, "pantry" if user else "")
try:
    smb.connectTree("share")
    came = "comes in"
except SessionError as error:
    came = error.getErrorString()[0]
answer = answers[-1]
assert struct.unpack_from("<H", answer, 12) == (3,), "the answer to TREE_CONNECT"
unsigned = answer[:48] + bytes(16) + answer[64:]
keys = {"the logon's key": smb.getSessionKey(), "zeros": bytes(16)}
signer = [name for name, key in keys.items() if hmac.new(key, unsigned, hashlib.sha256).digest()[:16] == answer[48:64]]
print(f"guest {bool(smb.isGuestSession())}, {came}, signed with {' '.join(signer) or 'something else'}")
PY
guest=$(/usr/bin/python3 "$work/enter.py" "$port" nobody-here 2>/dev/null)
null=$(/usr/bin/python3 "$work/enter.py" "$port" '' 2>/dev/null)
listed=$(smbclient -p "$port" -U nobody-here%pantry //127.0.0.1/share -c ls 2>/dev/null | grep -c ' seen ' || true)
echo "version    $(smbd --version), impacket $(dpkg-query -W -f '${Version}' python3-impacket)"
echo "a guest    $guest"
echo "no name    $null"
echo "smbclient  as the guest lists $listed file"
[ "$guest" = "guest True, STATUS_ACCESS_DENIED, signed with zeros" ] && [ "$null" = "guest False, comes in, signed with the logon's key" ] &&
  [ "$listed" = 1 ] || { echo "changed: this finding is over"; exit 1; }
