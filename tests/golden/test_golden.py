"""Every request of `requests/` gets the answer that is recorded; see the package."""

import pytest

from golden.calls import answer, cases, differences
from golden.servers import FOLDER, servers

pytestmark = pytest.mark.xdist_group("golden")
FILES = sorted(file.stem for file in (FOLDER / "requests").glob("*.jsonl"))


@pytest.fixture(scope="module")
def server_of(tmp_path_factory):
    with servers(tmp_path_factory.mktemp("golden")) as started:
        yield started


@pytest.mark.parametrize("file", FILES)
def test_requests_get_the_answers_that_are_recorded(server_of, file):
    requests, recorded = cases(FOLDER / "requests" / f"{file}.jsonl"), cases(FOLDER / "answers" / f"{file}.jsonl")
    assert list(requests) == list(recorded)
    ports = server_of(file)
    found = {name: list(differences(recorded[name]["answer"], answer(ports, case))) for name, case in requests.items()}
    wrong = {name: different for name, different in found.items() if different}
    told = "\n".join(f"{name}\n    " + "\n    ".join(different[:5]) for name, different in wrong.items())
    assert not wrong, f"{len(wrong)} of {len(found)} answers are others:\n{told}"
