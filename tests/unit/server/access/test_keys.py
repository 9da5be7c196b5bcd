from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.refusals import refusal
from translane_server.access.keys import (
    MOST_HOLDERS,
    Key,
    KeyHolder,
    is_token,
    load_keys,
    make_token,
    parse_keys,
    write_keys,
)
from translane_server.core.errors import KeysError

HASH = "ab" * 32


def test_tokens_are_32_random_bytes_with_a_prefix():
    tokens = {make_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(is_token(token) and token.startswith("tl_") and len(token) == 3 + 64 for token in tokens)
    assert len(bytes.fromhex(make_token().removeprefix("tl_"))) == 32


times = st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2900, 1, 1), timezones=st.just(UTC))
keys = st.builds(Key, sha256=st.text("0123456789abcdef", min_size=64, max_size=64), expires=st.none() | times)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True).filter(lambda name: "tl_" not in name)
notes = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


@given(
    st.dictionaries(
        names,
        st.builds(
            KeyHolder,
            keys=st.lists(keys, max_size=3).map(tuple),
            sentences_in_flight=st.none() | st.integers(1, 2**31 - 1),
            sentences_per_second=st.none() | st.floats(1e-3, 1e9),
            note=notes,
        ),
        max_size=4,
    )
)
def test_what_is_written_is_read_again(holders):
    hashes = [key.sha256 for holder in holders.values() for key in holder.keys]
    if len(set(hashes)) == len(hashes):
        assert parse_keys(write_keys(holders).encode()) == holders


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\xff", "it is not UTF-8"),
        (b"[a", "it is not TOML"),
        (b"a = 1", "a: input should be a valid dictionary"),
        (b"[a]\nkey = 1", "a.key: extra inputs are not permitted"),
        (b"[a]\nkeys = [{ sha256 = 'AB' }]", "a.keys.0.sha256: string should match pattern"),
        (b"[a]\nkeys = [{ sha256 = '%b', expires = 2030-01-01 }]" % HASH.encode(), "a.keys.0.expires: "),
        (b"[a]\nkeys = [{ sha256 = '%b', expires = 2030-01-01T00:00:00 }]" % HASH.encode(), "timezone"),
        (b"[a]\nsentences_in_flight = 0", "a.sentences_in_flight: input should be greater than or equal to 1"),
        (b"[a]\nsentences_in_flight = true", "a.sentences_in_flight: "),
        (b"[a]\nsentences_per_second = 0", "a.sentences_per_second: input should be greater than 0"),
        (b"[a]\nkeys = [{ sha256 = '%b', expires = 9999-12-31T23:00:00-12:00 }]" % HASH.encode(), "a.keys.0.expires: "),
        (b"[a]\nsentences_per_second = true", "a.sentences_per_second: "),
        (b"[a]\nsentences_per_second = nan", "a.sentences_per_second: "),
        (b"['a b']", "'a b' is no name of a holder"),
        (b"['']", "'' is no name of a holder"),
        (b"[a]\nkeys = [{ sha256 = '%b' }, { sha256 = '%b' }]" % (HASH.encode(), HASH.encode()), "the same key"),
        (b"\n".join(b"[n%d]" % n for n in range(MOST_HOLDERS + 1)), "it has 1,001 holders"),
        (b"a = " + b"[" * 5000, "it is not TOML"),
    ],
)
def test_a_wrong_file_is_refused(content, problem):
    message = refusal(KeysError, parse_keys, content)
    assert problem in message
    assert len(message) < 300


@pytest.mark.parametrize(
    "content",
    ["[{0}]", "{0} = 1", "[a]\n{0} = 1", "[a]\nkeys = [{{ sha256 = '{0}' }}]", "[a]\nkeys = '{0}'", "[a\n{0}"],
)
def test_a_token_at_the_wrong_place_is_never_shown(content, tmp_path):
    token = make_token()
    path = tmp_path / "keys.toml"
    path.write_text(content.format(token))
    assert token[:20] not in refusal(KeysError, load_keys, path)
