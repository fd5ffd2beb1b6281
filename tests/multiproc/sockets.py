"""TCP connections of other processes: found in /proc, and shut from outside.

A connection is taken with pidfd_getfd(2) and shut with shutdown(2), which works on the connection and not on one process's
descriptor: both ends see it end, as if the network had lost it. Needs the right to trace the process, which root has, and
its ancestors where the system allows tracing at all; Forbidden says so where it is missing.
"""
import ctypes
import errno
import os
import socket

SYS_PIDFD_GETFD = 438  # the same number on every architecture
ESTABLISHED, LISTENING = "01", "0A"


class Forbidden(Exception):
    """The system does not let one process take another's descriptors."""


def _table(pid):
    """inode -> (state, local port, remote port) of all TCP sockets of the process's network."""
    found = {}
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{name}") as file:
                lines = file.readlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            found[words[9]] = (words[3], int(words[1].rsplit(":", 1)[1], 16), int(words[2].rsplit(":", 1)[1], 16))
    return found


def _descriptors(pid):
    """(descriptor, inode) of the process's sockets."""
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                target = os.readlink(f"/proc/{pid}/fd/{name}")
            except OSError:
                continue
            if target.startswith("socket:["):
                yield int(name), target[len("socket:["):-1]
    except OSError:
        return


def listening_ports(pid):
    table = _table(pid)
    return {table[inode][1] for _, inode in _descriptors(pid) if table.get(inode, ("",))[0] == LISTENING}


def connections(pid):
    """(descriptor, local port, remote port) of the process's established TCP connections, in a stable order."""
    table = _table(pid)
    return sorted((fd, *table[inode][1:]) for fd, inode in _descriptors(pid)
                  if table.get(inode, ("",))[0] == ESTABLISHED)


def shut(pid, descriptor):
    """False: the process or its connection has gone meanwhile."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        taken = ctypes.CDLL(None, use_errno=True).syscall(SYS_PIDFD_GETFD, process, descriptor, 0)
        if taken < 0:
            number = ctypes.get_errno()
            if number in (errno.EPERM, errno.ENOSYS):
                raise Forbidden(f"pidfd_getfd: {os.strerror(number)}: needs Linux 5.6 and the right to trace the ranks")
            return False
        with socket.socket(fileno=taken) as connection:
            connection.shutdown(socket.SHUT_RDWR)
        return True
    except OSError:
        return False
    finally:
        os.close(process)
