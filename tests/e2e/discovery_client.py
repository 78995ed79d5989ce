"""Asks a network who is there, as Finder and Explorer do: multicast DNS and WS-Discovery, with nothing but the standard library.

    discovery_client.py mdns ADDRESS KIND [SECONDS]     every record that answers, as JSON
    discovery_client.py wsd ADDRESS                     Hello and Bye are heard as well; one JSON line for each message
"""

import json
import re
import socket
import struct
import sys
import time
import urllib.request
import uuid

MDNS = ("224.0.0.251", 5353)
WSD = ("239.255.255.250", 3702)
TYPES = {1: "A", 12: "PTR", 16: "TXT", 28: "AAAA", 33: "SRV", 47: "NSEC"}


def name_at(packet, at):
    """The name at an offset, and the offset behind it (RFC 1035 4.1.4)."""
    labels, end = [], None
    while True:
        length = packet[at]
        if length == 0:
            return ".".join(labels), end or at + 1
        if length & 0xC0:
            end = end or at + 2
            at = struct.unpack_from(">H", packet, at)[0] & 0x3FFF
            continue
        labels.append(packet[at + 1 : at + 1 + length].decode())
        at += 1 + length


def records(packet):
    _, flags, questions, *counts = struct.unpack_from(">6H", packet)
    at = 12
    for _ in range(questions):
        _, at = name_at(packet, at)
        at += 4
    for _ in range(sum(counts) if flags & 0x8000 else 0):
        name, at = name_at(packet, at)
        kind, _, ttl, length = struct.unpack_from(">HHIH", packet, at)
        at += 10
        data = packet[at : at + length]
        if kind == 12:
            value = name_at(packet, at)[0]
        elif kind == 33:
            value = [struct.unpack_from(">H", data, 4)[0], name_at(packet, at + 6)[0]]
        elif kind == 1:
            value = socket.inet_ntoa(data)
        elif kind == 16:
            value, place = [], 0
            while place < len(data):
                value.append(data[place + 1 : place + 1 + data[place]].decode())
                place += 1 + data[place]
        else:
            value = data.hex()
        at += length
        yield {"name": name, "type": TYPES.get(kind, kind), "ttl": ttl, "value": value}


def listen(group, address):
    heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    heard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    heard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    heard.bind(("", group[1]))
    heard.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group[0]) + socket.inet_aton(address))
    heard.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
    heard.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
    return heard


def mdns(address, kind, seconds):
    heard = listen(MDNS, address)
    question = struct.pack(">6H", 0, 0, 1, 0, 0, 0)
    question += b"".join(bytes([len(part)]) + part.encode() for part in kind.split(".")) + b"\0" + struct.pack(">2H", 12, 1)
    found, end, again = [], time.monotonic() + seconds, 0
    while time.monotonic() < end:
        if time.monotonic() >= again:
            heard.sendto(question, MDNS)
            again = time.monotonic() + 1
        heard.settimeout(0.2)
        try:
            packet, sender = heard.recvfrom(9000)
        except TimeoutError:
            continue
        found += [dict(record, sender=sender[0]) for record in records(packet)]
        if any(r["type"] == "PTR" and r["name"] == kind for r in found) and seconds < 100:
            end = min(end, time.monotonic() + 1)
    print(json.dumps(found))


def envelope(action, body, to="urn:schemas-xmlsoap-org:ws:2005:04:discovery"):
    return f"""<?xml version="1.0" encoding="utf-8"?><soap:Envelope xmlns:soap="http://www.w3.org/2003/05/soap-envelope"
 xmlns:wsa="http://schemas.xmlsoap.org/ws/2004/08/addressing" xmlns:wsd="http://schemas.xmlsoap.org/ws/2005/04/discovery"
 xmlns:wsdp="http://schemas.xmlsoap.org/ws/2006/02/devprof"><soap:Header><wsa:To>{to}</wsa:To><wsa:Action>{action}</wsa:Action>
<wsa:MessageID>urn:uuid:{uuid.uuid4()}</wsa:MessageID></soap:Header><soap:Body>{body}</soap:Body></soap:Envelope>""".encode()


def wsd(address):
    """Probe, Resolve, Get; then whatever the group hears, until it ends."""
    heard = listen(WSD, address)
    asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    asking.bind((address, 0))
    asking.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
    discovery = "http://schemas.xmlsoap.org/ws/2005/04/discovery"

    def ask(action, body, limit_s=30):
        end, message = time.monotonic() + limit_s, envelope(f"{discovery}/{action}", body)
        asking.settimeout(1)
        while time.monotonic() < end:
            # The same message again, as UDP may lose it.
            asking.sendto(message, WSD)
            try:
                return asking.recvfrom(65536)[0].decode()
            except TimeoutError:
                message = envelope(f"{discovery}/{action}", body)
        sys.exit(f"no answer to {action}")

    asking.sendto(b"<soap:Envelope" * 50, WSD)
    asking.sendto(bytes(range(256)), WSD)
    probed = ask("Probe", "<wsd:Probe><wsd:Types>wsdp:Device</wsd:Types></wsd:Probe>")
    urn = re.search(r"<wsa:Address>(urn:uuid:[^<]+)</wsa:Address>", probed)[1]
    reference = f"<wsa:EndpointReference><wsa:Address>{urn}</wsa:Address></wsa:EndpointReference>"
    resolved = ask("Resolve", f"<wsd:Resolve>{reference}</wsd:Resolve>")
    place = re.search(r"<wsd:XAddrs>([^<]+)</wsd:XAddrs>", resolved)[1]
    get = envelope("http://schemas.xmlsoap.org/ws/2004/09/transfer/Get", "", to=urn)
    request = urllib.request.Request(place, data=get, headers={"Content-Type": "application/soap+xml"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        metadata = answer.read().decode()
    computer = re.search(r"<pub:Computer>([^<]+)</pub:Computer>", metadata)[1]
    print(json.dumps({"urn": urn, "place": place, "computer": computer}), flush=True)
    while True:
        message = heard.recvfrom(65536)[0].decode(errors="replace")
        action = re.search(r"<wsa:Action>[^<]*/(\w+)</wsa:Action>", message)
        if action and action[1] in ("Hello", "Bye") and urn in message:
            print(json.dumps({"action": action[1]}), flush=True)


def flood(server, seconds):
    """Half requests over HTTP, deep and wide documents and garbage by datagrams, as fast as they go."""
    end, held, sent = time.monotonic() + seconds, [], 0
    deep = b"<a>" * 2500
    wide = ('<e xmlns="u" ' + " ".join(f'a{n}=""' for n in range(900)) + "/>").encode()
    names = ("<e " + " ".join(f'xmlns:n{n}="u{n}"' for n in range(350)) + ">" + "<x/>" * 200 + "</e>").encode()
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    while time.monotonic() < end:
        for document in (deep, wide, names, bytes(range(256)) * 30):
            for port in (3702, 5353):
                datagrams.sendto(document[:8000], (server, port))
            s = socket.create_connection((server, 5357), 5)
            s.settimeout(5)
            # One byte is missing, or the answer is not read.
            head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {len(document) + sent % 2}\r\n\r\n".encode()
            try:
                s.sendall(head + document)
            except OSError:
                pass
            held.append(s)
            sent += 1
        while len(held) > 200:
            held.pop(0).close()
    print(json.dumps({"sent": sent}))


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "flood":
        flood(rest[0], float(rest[1]))
    elif what == "mdns":
        mdns(rest[0], rest[1], float(rest[2]) if rest[2:] else 30)
    else:
        wsd(rest[0])
