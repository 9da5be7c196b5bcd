"""Services that ask for a key: the client's goes with every call."""

from __future__ import annotations

import pytest

from helpers.client_calls import CALLS, ask
from helpers.key_files import holder, key_file
from helpers.targets import TARGETS, running_target
from translane import Client, RetryPolicy, Unauthenticated
from translane_server.access.keys import make_token

pytestmark = [pytest.mark.slow, pytest.mark.timeout(580)]  # Ray takes minutes to start on a busy machine

KINDS = [call for call in CALLS if call.name in ("a text", "a paragraph as a stream", "scores")]


@pytest.fixture(scope="module")
def token():
    return make_token()


@pytest.fixture(scope="module", params=TARGETS)
def guarded(request, tmp_path_factory, token):
    """A service that knows one key, and the folder of the key's file."""
    folder = tmp_path_factory.mktemp("guarded")
    with running_target(request, folder, f"--keys-file={key_file(folder, ours=holder(token))}") as running:
        yield running


@pytest.mark.parametrize("call", KINDS, ids=lambda call: call.name)
def test_a_key_opens_every_method(guarded, token, expected, call):
    with Client(guarded.address, token=token) as client:
        assert ask(client, call) == expected(call)


@pytest.mark.parametrize("call", KINDS, ids=lambda call: call.name)
@pytest.mark.parametrize("reason", ["MISSING_KEY", "UNKNOWN_KEY"])
def test_another_key_opens_none(guarded, call, reason):
    token = make_token() if reason == "UNKNOWN_KEY" else None
    with Client(guarded.address, token=token, retry=RetryPolicy(attempts=1)) as client:
        with pytest.raises(Unauthenticated) as caught:
            ask(client, call)
        assert caught.value.reason == reason


def test_models_are_not_listed_without_a_key(guarded, token):
    with Client(guarded.address, token=token) as client:
        assert [model.name for model in client.models()] == ["zh-en"]
    with Client(guarded.address) as client, pytest.raises(Unauthenticated):
        client.models()
