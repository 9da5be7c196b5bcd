"""Downloads from a server that misbehaves: what is tried again, what is refused, and how long anything takes."""

import io
import re
import ssl
import threading
from functools import partial

import pytest

from helpers import file_server
from helpers.certificates import Authority
from helpers.file_server import cut, dripping, endless, other, redirect, serving_files, silent, status, wait_until
from translane_server.store import transfers
from translane_server.store.downloads import ATTEMPTS, Bounds, Patience, download
from translane_server.store.problems import DownloadError, PassingError, StoppedError
from translane_server.store.transfers import Link

CONTENT = bytes(range(256)) * 40
PATIENCE = Patience(silence=5, beginning=20, pause=0.001)


@pytest.fixture
def server():
    with serving_files({"file": CONTENT}) as running:
        yield running


SIZE = len(CONTENT)


def get(server, path="file", size=SIZE, most=SIZE, start=b"", stop=None, patience=PATIENCE, headers=()):
    file = io.BytesIO(start)
    link = Link(f"{server.url}/{path}?sig=hunter2", dict(headers))
    download("a file", lambda: link, file, Bounds(size, most), stop or threading.Event(), patience)
    return file.getvalue()


def refusal(server, *arguments, **named):
    """The message of a download that fails. It never has a secret."""
    with pytest.raises(DownloadError) as caught:
        get(server, *arguments, **named)
    assert "hunter2" not in str(caught.value)
    assert server.url not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("size", [len(CONTENT), None])
def test_a_file_arrives(server, size):
    assert get(server, size=size) == CONTENT
    assert server.headers[0]["User-Agent"].startswith("translane-server/")


def test_an_empty_file_arrives(server):
    server.files["none"] = b""
    assert get(server, "none", size=0, most=0) == b""


def test_it_goes_on_where_it_ended(server):
    server.behave("file", cut(1000), file_server.whole)
    assert get(server) == CONTENT
    assert server.headers[1]["Range"] == "bytes=1000-"


def test_it_goes_on_with_what_there_is(server):
    assert get(server, start=CONTENT[:2000]) == CONTENT
    assert server.headers[0]["Range"] == "bytes=2000-"
    assert get(server, start=CONTENT) == CONTENT
    assert len(server.asked) == 1


@pytest.mark.parametrize("start", [CONTENT[:1000], CONTENT + b"more"])
def test_it_begins_again_where_the_server_knows_no_ranges(server, start):
    server.behave("file", file_server.without_ranges)
    assert get(server, start=start) == CONTENT


def test_it_begins_again_where_a_range_is_refused(server):
    server.behave("file", status(416), file_server.whole)
    assert get(server, start=CONTENT[:1000]) == CONTENT
    assert "Range" not in server.headers[1]


def test_bytes_of_another_range_are_not_taken(server):
    wrong = file_server.Handler.answer
    server.behave("file", lambda h, c: wrong(h, 206, c[5:], Content_Range="bytes 5-9/10240"), file_server.whole)
    assert get(server, start=CONTENT[:1000]) == CONTENT


@pytest.mark.parametrize("code", [408, 429, 500, 503])
def test_a_passing_problem_is_tried_again(server, code):
    server.behave("file", status(code), status(code), file_server.whole)
    assert get(server) == CONTENT
    server.behave("file", status(code))
    assert re.fullmatch(rf"the answer is {code} [A-Z].*, {ATTEMPTS} times", refusal(server))


@pytest.mark.parametrize("code", [400, 401, 403, 404, 418, 304])
def test_a_lasting_problem_is_not(server, code):
    server.behave("file", status(code))
    assert refusal(server).startswith(f"the answer is {code}")
    assert len(server.asked) == 1


def test_an_answer_that_always_ends_too_early(server):
    server.behave("file", file_server.cut(10), lambda handler, content: handler.answer(206, b"", 5))
    assert refusal(server).endswith(f", {ATTEMPTS} times")
    server.behave("file", file_server.cut(10))
    assert refusal(server, size=None) == f"it ended after 10 of 10,240 bytes, {ATTEMPTS} times"


@pytest.mark.parametrize("length", [1, 100_000])
def test_another_size_is_refused_before_its_bytes_come(server, length):
    server.behave("file", other(bytes(length)))
    assert refusal(server) == f"it has {length:,} bytes there, and the manifest lists 10,240"
    if length > len(CONTENT):
        assert refusal(server, size=None) == f"it has {length:,} bytes there, at most 10,240 are accepted"


def test_an_endless_answer_ends(server):
    server.behave("file", endless)
    for size in (None, len(CONTENT)):
        assert refusal(server, size=size) == "it has more than 10,240 bytes there"


def test_a_silent_server_is_left(server):
    server.behave("file", silent)
    assert refusal(server, patience=Patience(silence=0.05, pause=0.001)) == "its server does not answer, 5 times"


def test_a_server_that_drips_is_left(server):
    patience = Patience(beginning=0.1, rate=1e9, pause=0.001)
    for behaviour in (dripping(100, 0.05), file_server.endless_header):  # the file would take 500 s
        server.behave("file", behaviour)
        assert refusal(server, patience=patience) == "it did not arrive within 0 seconds, 5 times"


@pytest.mark.parametrize("behaviour", [silent, dripping(100, 0.01), endless])
def test_a_download_that_nobody_wants_any_more_ends(server, behaviour):
    server.behave("file", behaviour)
    stop, ends = threading.Event(), []

    def run():
        try:
            get(server, size=None, most=1 << 40, stop=stop)
        except DownloadError as error:
            ends.append(type(error))

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: server.asked)
    stop.set()
    thread.join(10)
    assert ends == [StoppedError]
    with pytest.raises(StoppedError):
        get(server, stop=stop)


def test_no_server():
    with serving_files() as server:
        pass
    assert refusal(server) == "the connection fails: Connection refused, 5 times"


def test_redirects_are_followed(server):
    server.behave("a", redirect("/b"))
    server.behave("b", redirect(f"{server.url}/file"))
    assert get(server, "a", headers={"Authorization": "Basic x"}) == CONTENT
    assert all(headers["Authorization"] == "Basic x" for headers in server.headers)


def test_another_server_gets_no_password(server):
    with serving_files({"file": CONTENT}) as second:
        server.behave("a", redirect(f"{second.url}/file"))
        assert get(server, "a", headers={"Authorization": "Basic x"}) == CONTENT
        assert "Authorization" not in second.headers[0]


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("/a", "it redirects more than 5 times"),
        ("file:///etc/passwd", "it redirects from http to another scheme"),
        ("ftp://host/a", "it redirects from http to another scheme"),
        ("", "it redirects to no address"),
        ("http://[::1", "it redirects to no address"),
        ("/ü", "it redirects to no address"),
    ],
)
def test_redirects_that_are_refused(server, target, problem):
    server.behave("a", redirect(target))
    assert refusal(server, "a") == problem


def test_a_redirect_from_https_stays_there():
    with pytest.raises(DownloadError, match="it redirects from https to another scheme"):
        transfers._redirected("https://host/a", {}, "http://host/b")
    assert transfers._redirected("http://host/a", {}, "https://host/b") == ("https://host/b", {})


def test_without_a_digest_a_redirect_to_http_of_another_machine_is_refused(server, monkeypatch):
    asked: list[str] = []
    monkeypatch.setattr(transfers._PlainConnection, "connect", connecting_here(asked))
    for is_pinned in (False, True):
        server.behave("a", redirect("http://192.0.2.1/b"))
        link = partial(Link, f"{server.url}/a", is_pinned=is_pinned)
        with pytest.raises(DownloadError) as caught:
            download("a file", link, io.BytesIO(), Bounds(None, 1), threading.Event(), PATIENCE)
        assert ("needs a digest" in str(caught.value)) == (not is_pinned)
        assert ("192.0.2.1" in asked) == is_pinned


def connecting_here(asked):
    """A method of connections that notes all hosts, and connects to loopback alone."""
    connect = transfers._PlainConnection.connect

    def here(connection):
        asked.append(connection.host)
        if connection.host != "127.0.0.1":
            raise OSError(113, "No route to host")
        connect(connection)

    return here


def test_tls_takes_a_certificate_of_a_known_authority(tmp_path, monkeypatch):
    authority = Authority(tmp_path)
    with serving_files({"file": CONTENT}, authority.files("127.0.0.1")) as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        assert get(server) == CONTENT
        server.behave("file", dripping(100, 0.05))
        problem = refusal(server, patience=Patience(beginning=0.2, rate=1e9, pause=0.001))
        assert problem.startswith("it did not arrive within")
        monkeypatch.setenv("SSL_CERT_FILE", str(Authority(tmp_path, "other").file))
        assert refusal(server).startswith("the certificate of its server is refused: ")


def test_a_certificate_that_is_refused_is_a_lasting_problem():
    error = ssl.SSLCertVerificationError(1, "x")
    error.verify_message = "self-signed certificate"
    problem = transfers._problem(error)
    assert not isinstance(problem, PassingError)
    assert str(problem) == "the certificate of its server is refused: self-signed certificate"


def test_links_are_made_anew_for_each_attempt(server):
    server.behave("file", status(503), file_server.whole)
    made = []

    def link(name):
        made.append(name)
        return Link(f"{server.url}/{name}")

    download("a file", partial(link, "file"), io.BytesIO(), Bounds(None, 1 << 20), threading.Event(), PATIENCE)
    assert made == ["file", "file"]


def test_a_proxy_of_the_environment_is_asked(server, monkeypatch):
    server.behave("http://models.test/file", other(CONTENT))  # the path in the request to a proxy
    monkeypatch.setenv("http_proxy", server.url)
    file = io.BytesIO()
    download(
        "a file", lambda: Link("http://models.test/file"), file, Bounds(None, 1 << 20), threading.Event(), PATIENCE
    )
    assert file.getvalue() == CONTENT


def test_a_proxy_is_not_asked_for_what_is_on_this_machine(server, monkeypatch):
    with serving_files({}) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert get(server, headers={"Authorization": "Basic x"}) == CONTENT
        assert proxy.asked == []
