import socketserver

import pytest


@pytest.fixture(autouse=True)
def _metrics_servers_stop_at_once(monkeypatch):
    # how often an HTTP server looks whether it is to stop; half a second otherwise
    monkeypatch.setattr(socketserver.BaseServer.serve_forever, "__defaults__", (0.01,))
