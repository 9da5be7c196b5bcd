"""docs/server.md says what is so."""

import re
from pathlib import Path

import pytest

from translane.v1 import translation_pb2 as pb
from translane_server.front_ends import metrics as front_end_metrics
from translane_server.front_ends import shares
from translane_server.front_ends.metrics import ParentMetrics
from translane_server.manifest import LONGEST_MODEL_NAME
from translane_server.models import glossary_folder
from translane_server.observation import metrics_server
from translane_server.observation.metrics import Metrics
from translane_server.requests import kept_terms, limits, option_checks
from translane_server.requests.limits import TokenLimits
from translane_server.requests.option_checks import OptionLimits, ranges
from translane_server.rpc import open_calls, port, status, text_workers
from translane_server.settings import ServerSettings
from translane_server.store import downloads, fetch, transfers
from translane_server.text import glossary_files
from translane_server.text.language_tags import LONGEST_TAG
from translane_server.text.words import STEMMERS

FOLDER = Path(__file__).parents[3] / "docs"
DOCS = (FOLDER / "server.md").read_text(encoding="utf-8")


def table(heading):
    """The rows of the table under `heading`, as lists of cells without their backquotes."""
    section = DOCS.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def test_settings():
    fields = ServerSettings.model_fields
    documented = {name: (default, meaning) for name, default, meaning in table("Settings")}
    assert list(documented) == list(fields)
    for name, (default, meaning) in documented.items():
        assert meaning == fields[name].description
        if fields[name].is_required():
            assert default == "required"
        elif name == "model_settings":
            assert default == "none; in the file only"
        elif fields[name].default == ():
            assert default == "none"
        elif fields[name].default is not None:
            assert default == str(fields[name].default).lower()


def test_options():
    documented = [name for name, *_ in table("Options")]
    assert documented == [field.name for field in pb.DecodingOptions.DESCRIPTOR.fields]
    most = OptionLimits(TokenLimits(256, 256, 256), 16, alignment=True)
    described = {name: text for name, _, text, _ in table("Options")}
    for name, allowed in ranges(most).items():
        expected = str(allowed).replace("to 16", "to `max_beam_size`").replace("to 256", "to `max_target_tokens`")
        assert described[name].replace("`", "") == expected.replace("`", "")


def test_metrics():
    declared = {}
    for family in (*Metrics().registry.collect(), *ParentMetrics().collect()):
        if family.name.startswith(("grpc_", "translane_")):
            suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
            kind = "gauge" if family.type == "info" else family.type
            declared[family.name + suffix] = (kind, family.documentation)
    assert {name: (kind, meaning) for name, kind, _, meaning in table("Metrics")} == declared


def test_errors():
    declared = {error.reason: code.name for error, code in status.CODES.items()}
    declared[status.INTERNAL] = "INTERNAL"
    assert {reason: code for reason, code, _, _ in table("Errors")} == declared


def test_numbers_of_limits():
    bounds = " | ".join(cell for row in table("Limits") for cell in row)
    seconds = {f"{each:g} s" for each in (open_calls.PATIENCE, port._HANDSHAKE_TIME, metrics_server._REQUEST_TIME)}
    for text in (
        *seconds,
        f"{open_calls._PROBES} beside",
        f"{open_calls.READING}, of which a connection has {open_calls.READING // 2}",
        f"{port._WAITING_CALLS} × `max_calls",
        f"{port._METADATA_BYTES // 1024} KiB",
        f"after {port._KEEPALIVE} s the server pings; {port._KEEPALIVE_TIMEOUT} s later",
        f"one every {port._LEAST_PING_INTERVAL} s",
        f"| {metrics_server._CONNECTIONS}; {metrics_server._REQUEST_BYTES // 1024} KiB and",
        f"{text_workers._WAITING_BYTES >> 20} MiB",
    ):
        assert text in bounds


def test_numbers_of_front_ends():
    section = re.sub(r"\s+", " ", DOCS.split("\n## Front ends\n")[1].split("\n## ")[0])
    assert f"a scrape within {front_end_metrics.PATIENCE:g} seconds" in section
    divided = section.split("gets.** CPUs, ")[1].split(" are divided")[0]
    assert tuple(re.findall(r"`(\w+)`", divided)) == shares.DIVIDED


def test_numbers_of_sizes():
    sizes = dict(table("Sizes of requests"))
    phrases = f", of {limits.MAX_PHRASE_CHARACTERS} characters"
    assert LONGEST_MODEL_NAME == LONGEST_TAG
    assert sizes["model`, `source_language`, `target_language"] == f"{LONGEST_TAG} characters"
    assert sizes["target_prefix"].startswith(f"{limits.CHARACTERS_PER_TOKEN} characters for each")
    assert sizes["suppressed_phrases"] == f"{limits.MAX_SUPPRESSED_PHRASES}{phrases}"
    assert sizes["terminology"] == f"{limits.MAX_TERMS} terms{phrases} a side"
    assert sizes["glossaries"] == f"{limits.MAX_GLOSSARIES}, of {limits.MAX_GLOSSARY_NAME} characters"


def test_numbers_of_glossaries():
    page = re.sub(r"\s+", " ", (FOLDER / "glossaries.md").read_text(encoding="utf-8"))
    for text in (
        f"up to {limits.MAX_TERMS} terms",
        f"up to {limits.MAX_GLOSSARIES} of them",
        f"takes {option_checks._TERMINOLOGY_BEAMS} beams",
        f"at most {glossary_files.LONGEST_PHRASE} characters, and a line at most {glossary_files._LONGEST_LINE} bytes",
        f"| files | {glossary_folder.MOST_FILES} |",
        f"| terms of a file | {glossary_files.MOST_TERMS:,} |",
        f"| terms of all files | {glossary_folder.MOST_TERMS:,};",
        f"| size of a file | {glossary_files.MOST_BYTES >> 20} MiB |",
        f"at most {kept_terms.MAX_TERMS_OF_SENTENCE} different targets",
        f"at most {kept_terms.MAX_REPORTS_OF_TEXT} reports, and a request at most {kept_terms.MAX_REPORTS}",
        f"shares of at least {kept_terms.MAX_TERMS_OF_SENTENCE}",
    ):
        assert text in page
    assert glossary_files.LONGEST_PHRASE == limits.MAX_PHRASE_CHARACTERS
    assert set(re.findall(r"\b[a-z]{2}\b", page.split("have a stemmer:")[1].split(". In others")[0])) - {"and"} == set(
        STEMMERS
    )
    outcomes = [name.removeprefix("TERM_OUTCOME_") for name in pb.TermOutcome.keys()[1:]]
    assert sorted(re.findall(r"\| `([A-Z_]+)` \|", page)) == sorted(outcomes)


def test_numbers_of_downloads():
    page = re.sub(r"\s+", " ", (FOLDER / "models.md").read_text(encoding="utf-8"))
    patience = downloads.Patience()
    assert (downloads.ATTEMPTS, transfers._MOST_REDIRECTS, patience.beginning) == (5, 5, 60)
    for text in (
        "another attempt goes on from there, five in all",
        "five are followed",
        f"{', '.join(map(str, transfers._PASSING))}, or 500 and above | five attempts",
        f"no byte for {patience.silence:g} s; a file slower than {patience.rate / 1024:g} KiB/s, after a first minute",
        f"a manifest of more than {fetch.MOST_MANIFEST_BYTES >> 20} MiB; more than {fetch.MOST_FILES:,} files",
        f"bounds the folder**, {ServerSettings.model_fields['model_cache_bytes'].default >> 30} GiB by default",
    ):
        assert text in page


@pytest.mark.parametrize("heading", ["Settings", "Options", "Errors", "Metrics"])
def test_tables_have_no_row_twice(heading):
    names = [row[0] for row in table(heading)]
    assert len(set(names)) == len(names)
