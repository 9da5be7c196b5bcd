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
