"""The client's collectives: through a hub of the test's (mindio_world.py), and broken by its stop handler."""
import json
import socket
import threading


class Hub:
    """Collectives that a stop handler can break, as a device's are broken."""

    def __init__(self, rank, port):
        self.rank, self.port = rank, port
        self.lock = threading.Lock()
        self.stopped = False
        self.sockets = {}

    def _socket(self, lane):
        with self.lock:
            if self.stopped:
                raise RuntimeError("FORCE STOP, the device is stopped")
            if lane not in self.sockets:
                self.sockets[lane] = socket.create_connection(("127.0.0.1", self.port))
            return self.sockets[lane]

    def ask(self, lane, **what):
        connection = self._socket(lane)
        try:
            connection.sendall((json.dumps({"rank": self.rank, **what}) + "\n").encode())
            line = b""
            while not line.endswith(b"\n"):
                got = connection.recv(65536)
                if not got:
                    raise OSError("closed")
                line += got
        except OSError as error:
            raise RuntimeError(f"FORCE STOP, the collective was broken: {error}") from error
        return json.loads(line)["value"]

    def stop(self):
        with self.lock:
            self.stopped = True
            for connection in self.sockets.values():
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                connection.close()
            self.sockets.clear()

    def restart(self):
        with self.lock:
            self.stopped = False
