"""What a process has mapped of a file stays, in the process and its children, whatever happens to the file."""

import mmap
import os
import sys

import pytest

from helpers.file_sizes import largest_file
from translane_server.runtime.sessions import keep_mapped

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a process has mapped")

PAGE = mmap.PAGESIZE
CONTENT = os.urandom(8 * PAGE + 5)


def mapped(path, pages, offset=0):
    """Map pages as ONNX Runtime does. Later changes of the file show in them."""
    with path.open("rb") as file:
        return mmap.mmap(
            file.fileno(), pages * PAGE, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE, offset=offset * PAGE
        )


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "some weights.bin"
    path.write_bytes(CONTENT)
    return path


@pytest.mark.parametrize("harm", ["changed", "cut"])
def test_mapped_weights_stay_what_they_were(path, tmp_path, harm):
    other = tmp_path / "other"
    other.write_bytes(CONTENT)
    parts = [mapped(path, 3, 1), mapped(path, 2, 2), mapped(path, 1, 7)]  # two graphs have the third page
    alone, of_another_file = mapped(path, 1), mapped(other, 1)
    alone.close()
    keep_mapped([path, tmp_path / "not there"])
    for each in (path, other):
        if harm == "changed":
            with each.open("r+b") as file:
                file.write(bytes(len(CONTENT)))
        else:
            os.truncate(each, 0)
    child = os.fork()
    if not child:
        os._exit(parts[0][:] != CONTENT[PAGE : 4 * PAGE])
    assert os.waitpid(child, 0)[1] == 0
    assert parts[0][:] == CONTENT[PAGE : 4 * PAGE]
    assert parts[1][:] == CONTENT[2 * PAGE : 4 * PAGE]
    assert parts[2][:] == CONTENT[7 * PAGE : 8 * PAGE]
    if harm == "changed":
        assert of_another_file[:] == bytes(PAGE), "without care, a mapping shows what is written to its file"


def test_a_file_that_is_cut_before_is_an_error_and_no_signal(path):
    part = mapped(path, 3, 2)
    os.truncate(path, PAGE)
    with pytest.raises(OSError, match="Bad address"):
        keep_mapped([path])
    part.close()


def test_a_limit_of_the_sizes_of_files_is_told(path, caplog):
    part = mapped(path, 3, 2)
    with largest_file(PAGE):
        keep_mapped([path])
    assert caplog.messages == ["the weights stay mapped from their files: File too large"]
    assert part[:] == CONTENT[2 * PAGE : 5 * PAGE]
