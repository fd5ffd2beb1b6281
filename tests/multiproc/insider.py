"""A peer that knows the job's secret: the handshake and control messages by hand (runtime/net/README.md, runtime/wire)."""
import hashlib
import hmac
import os
import socket
import struct

from harness import Failure, descriptors

MAGIC = b"KINTSUGI"
CLIENT_LABEL = b"kintsugi handshake: the client proves itself to the server"
SECRET_BYTES = 32


def preamble(version=1):
    return MAGIC + struct.pack(">H", version)


def frame(payload):
    return struct.pack(">I", len(payload)) + payload


# ---- protobuf ------------------------------------------------------------------------------------------------------

def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def number(at, value):
    return varint(at << 3) + varint(value)


def field(at, payload):
    """A length-delimited field."""
    return varint(at << 3 | 2) + varint(len(payload)) + payload


def fields(message):
    """{number: value} of length-delimited and varint fields, the last of each."""
    found, at = {}, 0

    def read():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
    while at < len(message):
        tag = read()
        if tag & 7 == 0:
            found[tag >> 3] = read()
        else:
            size = read()
            found[tag >> 3] = message[at:at + size]
            at += size
    return found


# ---- the peer ------------------------------------------------------------------------------------------------------

def hello(job, nonce=None):
    return frame(field(1, field(1, job.encode()) + field(2, b"agent") + field(3, nonce or os.urandom(32))))


def secret_of(launcher):
    """From the launcher's memory file, which only its own user and root can read."""
    for number, target in descriptors(launcher):
        if "kintsugi-secret" in target:
            with open(f"/proc/{launcher}/fd/{number}", "rb") as file:
                return file.read(SECRET_BYTES)
    raise Failure("the launcher has no secret")


class Insider:
    """Connects and makes the handshake. `said`: every byte of its part."""

    def __init__(self, address, job, secret):
        host, port = address.rsplit(":", 1)
        self.job = job
        self.peer = socket.create_connection((host, int(port)), timeout=10)
        nonce = os.urandom(32)
        self.said = preamble() + hello(job, nonce)
        self.peer.sendall(self.said)
        self._read(len(preamble()))
        challenge = fields(fields(self.read_frame())[2])
        transcript = b"".join(struct.pack(">I", len(part)) + part for part in (
            CLIENT_LABEL, preamble(), job.encode(), b"agent", challenge[1], nonce, challenge[2], challenge[3]))
        proof = frame(field(3, field(1, hmac.new(secret, transcript, hashlib.sha256).digest())))
        self.said += proof
        self.peer.sendall(proof)
        if 4 not in fields(self.read_frame()):
            raise Failure("the handshake of one who knows the secret was refused")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.peer.close()

    def _read(self, size):
        got = b""
        while len(got) < size:
            piece = self.peer.recv(size - len(got))
            if not piece:
                raise Failure("the server ended the connection")
            got += piece
        return got

    def read_frame(self):
        return self._read(struct.unpack(">I", self._read(4))[0])

    def say(self, at, message, rank, incarnation, term=1, generation=1):
        """One Envelope with the agent's message number `at`."""
        self.peer.sendall(frame(field(1, self.job.encode()) + number(2, term) + number(3, 1) + number(4, generation) +
                                number(5, rank) + number(6, incarnation) + field(at, message)))

    def join(self, rank, incarnation, pid=4711):
        """What it is answered: (accepted, text)."""
        self.say(10, number(1, pid) + field(2, b"elsewhere"), rank, incarnation)
        reply = fields(fields(self.read_frame())[40])
        return bool(reply.get(1, 0)), reply.get(2, b"").decode()
