"""Calls that come by no protocol."""

from translane_server.api.call import Call, Method
from translane_server.observation.metrics import Metrics


def make_call() -> Call:
    """Return a call that has just arrived."""
    method = Method(Metrics(), "unary", "a.Service", "Method")
    return Call(method, (), "ipv4:192.0.2.1:1234")
