"""Strangers on the controller's port while a run goes on: refused, counted, and no bit of the run changes."""
import hashlib
import hmac
import random
import socket
import struct
import sys

from harness import SMALL, Failure, must_be_same, reference, script
from insider import Insider, field, frame, hello, number, preamble, secret_of
from live_run import LiveRun, wait_until

LONG = ["--steps", "40", "--step-delay-us", "100000", *SMALL]  # outlasts the deadline of a handshake, 2 s
SILENT = 100


def refused(status):
    return sum(status["connections"]["refused"].values())


def connect(address):
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=10)


def read_all(peer):
    """Everything the other side says until it closes; a reset is an end too."""
    got = b""
    try:
        while piece := peer.recv(4096):
            got += piece
    except ConnectionResetError:
        pass
    return got


def say(address, data):
    """Says the bytes, reads to the end; the server must end the connection by itself."""
    with connect(address) as peer:
        try:
            peer.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return b""
        return read_all(peer)


def visited(*visits):
    """A run that is called on in mid-training, by one after the other: `visit(address, status)`, how many of its connections are refused at
    least, and as what they are counted. They share a run: each has to find it whole."""
    def test(runner):
        with LiveRun(runner, [], LONG) as run:
            for visit, refusals_min, counter in visits:
                before = run.wait_step(3)
                visit(before["address"], before)
                after = run.wait_status(lambda s: refused(s) >= refused(before) + refusals_min, f"{refusals_min} refusals of {visit.__name__}")
                if counter and after["connections"]["refused"][counter] <= before["connections"]["refused"][counter]:
                    raise Failure(f"{visit.__name__} is not counted as '{counter}': {after['connections']}")
            summary, log = run.finish()
        must_be_same(reference(runner.bin, LONG), summary, log)
        if summary["incidents"]:
            raise Failure(f"strangers caused incidents: {summary['incidents']}")
        if "peer_refused" not in log:
            raise Failure("the log does not tell of the refusal")
    return test


# ---- visits --------------------------------------------------------------------------------------------------------

def garbage(address, _):
    chance = random.Random(7)
    for size in (1, 3, 8, 64, 1000, 100_000):
        with connect(address) as peer:
            try:
                peer.sendall(chance.randbytes(size))
                peer.shutdown(socket.SHUT_WR)
                read_all(peer)
            except OSError:
                pass  # the server may have ended it before all was said


def http(address, _):
    say(address, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")


def foreign_version(address, _):
    say(address, preamble(version=99))


def half_a_frame(address, status):
    whole = preamble() + hello(status["job"])
    for size in (2, 8, 10, len(whole) - 1):
        with connect(address) as peer:
            peer.sendall(whole[:size])
            peer.shutdown(socket.SHUT_WR)
            read_all(peer)


def oversized_frame(address, _):
    say(address, preamble() + struct.pack(">I", 0xFFFFFFF0) + b"x" * 1000)


def wrong_job(address, _):
    say(address, preamble() + hello("another-job"))


def wrong_secret(address, status):
    with connect(address) as peer:
        peer.sendall(preamble() + hello(status["job"]))
        peer.recv(4096)  # the challenge
        proof = hmac.new(b"\0" * 32, b"transcript", hashlib.sha256).digest()
        peer.sendall(frame(field(3, field(1, proof))))
        read_all(peer)


def silence(address, _):
    """A hundred callers that say nothing are all shown out; nobody else has to wait for that."""
    peers = [connect(address) for _ in range(SILENT)]
    try:
        for peer in peers:
            read_all(peer)
    finally:
        for peer in peers:
            peer.close()


def strangers_during_an_incident(runner):
    """A rank is lost and replaced while a hundred strangers hold connections open."""
    with LiveRun(runner, ["--inject", "kill:2@12:update"], LONG) as run:
        address = run.wait_step(4)["address"]
        peers = [connect(address) for _ in range(SILENT)]
        try:
            wait_until(lambda: run.process.poll() is not None, "the end of the run")
        finally:
            for peer in peers:
                peer.close()
        summary, log = run.finish()
    must_be_same(reference(runner.bin, LONG), summary, log)
    if len(summary["incidents"]) != 1:
        raise Failure(f"{len(summary['incidents'])} incidents, one kill")


# ---- those who know the secret ---------------------------------------------------------------------------------------

def replayed_handshake(runner):
    """Every byte of a genuine client's part, once more and in another order of pieces: the server's nonce is another."""
    with LiveRun(runner, [], LONG) as run:
        status = run.wait_step(3)
        with Insider(status["address"], status["job"], secret_of(run.pid)) as genuine:
            recorded = genuine.said
        for _ in range(3):
            say(status["address"], recorded)
        run.wait_status(lambda s: s["connections"]["refused"]["secret"] >= 3, "three refusals for the secret")
        summary, log = run.finish()
    must_be_same(reference(runner.bin, LONG), summary, log)
    if summary["incidents"]:
        raise Failure(f"a replay caused incidents: {summary['incidents']}")


def liars(runner):
    """They have made the handshake, and are not who they say."""
    with LiveRun(runner, [], LONG) as run:
        status = run.wait_step(3)
        address, job, secret = status["address"], status["job"], secret_of(run.pid)
        lives = [rank["incarnation"] for rank in status["ranks"]]
        for rank, incarnation, said in ((1, lives[1], "is rank 1 already"), (1, lives[1] + 1, "was not started by this launcher"),
                                        (2, 0, "given up"), (3, 2**64 - 1, "was not started by this launcher")):
            with Insider(address, job, secret) as liar:
                accepted, text = liar.join(rank, incarnation)
                if accepted or said not in text:
                    raise Failure(f"joined as rank {rank}, incarnation {incarnation}: accepted {accepted}, '{text}'")
        for rank, at, message in ((1, 18, number(1, 9)), (2, 13, number(1, 3) + field(2, b"not mine")), (9, 10, number(1, 1)),
                                  (0, 25, number(1, 2**60)), (0, 24, number(1, 5) + field(2, b"/nowhere"))):
            with Insider(address, job, secret) as liar:
                liar.say(at, message, rank, lives[min(rank, 3)])
                read_all(liar.peer)  # shown out
        after = run.wait_status(lambda s: s["refused_frames"] >= 5, "five refused frames")
        if after["dropped_messages"] < 4:
            raise Failure(f"four false joins, {after['dropped_messages']} dropped messages")
        summary, log = run.finish()
    must_be_same(reference(runner.bin, LONG), summary, log)
    if summary["incidents"]:
        raise Failure(f"liars caused incidents: {summary['incidents']}")


if __name__ == "__main__":
    sys.exit(script(__doc__, [
        ("strangers of every kind", visited(
            (garbage, 6, None), (http, 1, "magic"), (foreign_version, 1, "version"), (half_a_frame, 4, None), (oversized_frame, 1, "frame"),
            (wrong_job, 1, "job"), (wrong_secret, 1, "secret"), (silence, SILENT, None))),
        ("a replayed handshake", replayed_handshake),
        ("peers that lie about their rank or life", liars),
        ("a hundred silent callers during an incident", strangers_during_an_incident),
    ]))
