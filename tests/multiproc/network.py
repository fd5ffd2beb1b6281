"""Hosts of their own on one machine: network namespaces, and a switch in this process between them.

Each host has one tun device whose packets come through here, so that a road from one host to another can be cut in one
direction or both, or be slow. Needs root and /dev/net/tun; Skip says so where they are missing.

    with Network(3) as net:
        net.popen(0, ["kintsugi", "run", ...])
        net.cut(0, 2); net.heal()
        net.delay(0.2)
"""
import fcntl
import heapq
import os
import shutil
import signal
import struct
import subprocess
import threading
import time
from pathlib import Path

from harness import Skip

TUNSETIFF = 0x400454CA
IFF_TUN = 0x0001
IFF_NO_PI = 0x1000
MTU = 60000


def begins_connection(packet):
    """A TCP segment with SYN and without ACK."""
    flags = (packet[0] & 15) * 4 + 13
    return packet[9] == 6 and len(packet) > flags and packet[flags] & 0x12 == 0x02


class Network:
    def __init__(self, hosts, clocks=None):
        """`clocks`: how many seconds longer each host says it has been up."""
        if os.geteuid() != 0:
            raise Skip("network namespaces need root")
        if not os.path.exists("/dev/net/tun"):
            raise Skip("there is no /dev/net/tun")
        self.names = [f"kintsugi-{os.getpid()}-{host}" for host in range(hosts)]
        self.devices = []
        self.clocks = clocks
        self.cuts = set()      # (from, to)
        self.doors = set()     # (from, to): no new connection that way, as a firewall has it
        self.delay_seconds = 0.0
        self.bytes = 0         # that were handed on
        self.closing = False
        self.children = []
        self.late = []         # heap of (due, number, to, packet)
        self.late_changed = threading.Condition()
        try:
            for host, name in enumerate(self.names):
                self.devices.append(self._make(host, name))
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            raise Skip(f"no network namespaces here: {error}") from error
        self.threads = [threading.Thread(target=self._forward, args=(host,), daemon=True) for host in range(hosts)]
        self.threads.append(threading.Thread(target=self._deliver_late, daemon=True))
        for thread in self.threads:
            thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @staticmethod
    def address(host):
        return f"10.77.0.{host + 1}"

    def _make(self, host, name):
        subprocess.run(["ip", "netns", "add", name], check=True, capture_output=True)
        device = self.device(host)
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
        fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22s", device.encode(), IFF_TUN | IFF_NO_PI, b""))
        subprocess.run(["ip", "link", "set", device, "netns", name], check=True, capture_output=True)
        for line in (["addr", "add", f"{self.address(host)}/24", "dev", device], ["link", "set", device, "mtu", str(MTU), "up"],
                     ["link", "set", "lo", "up"]):
            subprocess.run(["ip", "-n", name, *line], check=True, capture_output=True)
        return fd

    # ---- roads -----------------------------------------------------------------------------------------------------

    def _forward(self, host):
        while not self.closing:
            try:
                packet = os.read(self.devices[host], MTU + 100)
            except OSError:
                return
            if len(packet) < 20 or packet[0] >> 4 != 4:
                continue  # no IPv4
            to = packet[19] - 1
            if packet[16:19] != bytes([10, 77, 0]) or not 0 <= to < len(self.devices) or (host, to) in self.cuts:
                continue
            if (host, to) in self.doors and begins_connection(packet):
                continue
            if self.delay_seconds == 0:
                self._deliver(to, packet)
                continue
            with self.late_changed:
                heapq.heappush(self.late, (time.monotonic() + self.delay_seconds, time.monotonic_ns(), to, packet))
                self.late_changed.notify()

    def _deliver(self, to, packet):
        self.bytes += len(packet)
        try:
            os.write(self.devices[to], packet)
        except OSError:
            pass  # the host is going down

    def _deliver_late(self):
        while not self.closing:
            with self.late_changed:
                wait = self.late[0][0] - time.monotonic() if self.late else 1
                if wait > 0:
                    self.late_changed.wait(wait)
                    continue
                _, _, to, packet = heapq.heappop(self.late)
            self._deliver(to, packet)

    def cut(self, source, destination, both=True):
        self.cuts.add((source, destination))
        if both:
            self.cuts.add((destination, source))

    def heal(self):
        self.cuts.clear()

    def mend(self, roads):
        """Only these."""
        self.cuts.difference_update(roads)

    def close_door(self, source, destination):
        """Packets pass, but `source` begins no connection to `destination`."""
        self.doors.add((source, destination))

    def open_door(self, source, destination):
        self.doors.discard((source, destination))

    def isolate(self, host):
        for other in range(len(self.names)):
            if other != host:
                self.cut(host, other)

    def delay(self, seconds):
        self.delay_seconds = seconds

    # ---- what a host lacks while it comes up -------------------------------------------------------------------------

    def device(self, host):
        return f"kt{os.getpid() % 100000}x{host}"

    def set_address(self, host, there):
        subprocess.run(["ip", "-n", self.names[host], "addr", "add" if there else "del", f"{self.address(host)}/24", "dev",
                        self.device(host)], check=True, capture_output=True)

    def write_hosts(self, host, text):
        """What its /etc/hosts says, for processes that start later and, once there is one, for those that run."""
        folder = Path("/etc/netns") / self.names[host]
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "hosts", "a") as file:
            file.write(text + "\n")

    # ---- processes -------------------------------------------------------------------------------------------------

    def popen(self, host, line, **options):
        seconds = str(self.clocks[host]) if self.clocks else ""
        clock = ["unshare", "--time", "--monotonic", seconds, "--boottime", seconds] if seconds else []
        child = subprocess.Popen(["ip", "netns", "exec", self.names[host], *clock, *line], start_new_session=True, **options)
        self.children.append(child)
        return child

    def close(self):
        self.closing = True
        for child in self.children:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
            shutil.rmtree(Path("/etc/netns") / name, ignore_errors=True)
        for fd in self.devices:
            os.close(fd)
        self.devices = []
