"""Ports for ranks, bound from their choice on: rankd inherits the sockets, as it does of an agent, so no
other program gets such a port in between."""

import socket


class HeldPorts:
    """Holds one gang's sockets: each rank's ring address and rank 0's step address. Closed at the end of `with`."""

    def __init__(self, ranks):
        self._ring = [self._bound() for _ in range(ranks)]
        self._step = self._bound()
        self.ring = [self._address(one) for one in self._ring]
        self.step = self._address(self._step)

    @staticmethod
    def _bound():
        one = socket.socket()
        one.bind(("127.0.0.1", 0))
        return one

    @staticmethod
    def _address(one):
        return f"127.0.0.1:{one.getsockname()[1]}"

    def handed(self, rank):
        """rankd's options for `rank`, and the descriptors that it inherits."""
        options, fds = ["--ring-socket", str(self._ring[rank].fileno())], [self._ring[rank].fileno()]
        if rank == 0:
            options += ["--step-socket", str(self._step.fileno())]
            fds.append(self._step.fileno())
        return options, fds

    def release(self, rank):
        """Closes a started rank's sockets here. An engine that binds the port itself needs that."""
        for one in [self._ring[rank], *([self._step] if rank == 0 else [])]:
            one.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in [*self._ring, self._step]:
            one.close()
