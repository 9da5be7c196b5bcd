"""Which pages of other origins may call."""

from translane_server.http.origins import Origins

ALLOW = b"access-control-allow-origin"


def test_by_default_no_page_of_another_origin_may_call():
    assert Origins([]).headers(b"https://a.example") == []
    assert Origins([]).preflight(b"https://a.example") == []


def test_a_listed_origin_may_call_and_no_other():
    origins = Origins(["https://a.example", "http://localhost:8080"])
    assert dict(origins.headers(b"http://localhost:8080"))[ALLOW] == b"http://localhost:8080"
    assert origins.headers(b"https://a.example.org") == [(b"vary", b"Origin")]
    assert origins.preflight(b"null") == [(b"vary", b"Origin")]
    assert origins.headers(None) == [(b"vary", b"Origin")]


def test_a_star_is_every_origin():
    headers = dict(Origins(["*"]).preflight(b"https://a.example"))
    assert headers[ALLOW] == b"*"
    assert b"authorization" in headers[b"access-control-allow-headers"]
    assert b"access-control-allow-credentials" not in headers
