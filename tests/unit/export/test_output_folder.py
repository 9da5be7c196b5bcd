"""The output appears complete or not at all, and nothing but an earlier output is ever replaced."""

import pytest

from translane_export.errors import ExportError
from translane_export.output_folder import check_replaceable, staged

MARKERS = ("manifest.json",)


def write(folder, name="manifest.json", text="old"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def test_a_new_folder_takes_its_place_at_the_end(tmp_path):
    output = tmp_path / "deep" / "bundle"
    with staged(output) as folder:
        write(folder, text="new")
        assert not output.exists()
    assert (output / "manifest.json").read_text() == "new"
    assert list(output.parent.iterdir()) == [output]


def test_an_earlier_one_is_replaced_as_a_whole(tmp_path):
    output = tmp_path / "bundle"
    write(output)
    write(output, "other.bin")
    with staged(output) as folder:
        write(folder, text="new")
    assert [path.name for path in output.iterdir()] == ["manifest.json"]
    assert list(tmp_path.iterdir()) == [output]


@pytest.mark.parametrize("error", [ExportError("no"), KeyboardInterrupt(), ValueError("a bug")])
def test_after_an_error_everything_is_as_before(tmp_path, error):
    output = tmp_path / "bundle"
    write(output)

    def fail():
        with staged(output) as folder:
            write(folder, text="new")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert (output / "manifest.json").read_text() == "old"
    assert list(tmp_path.iterdir()) == [output]


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ExportError, match=r"output .*bundle: it cannot be written: "),
        staged(tmp_path / "file" / "bundle"),
    ):
        pass


def test_what_may_be_replaced(tmp_path):
    output = tmp_path / "bundle"
    check_replaceable(output, force=False, markers=MARKERS)
    output.mkdir()
    check_replaceable(output, force=False, markers=MARKERS)
    write(output)
    check_replaceable(output, force=True, markers=MARKERS)
    with pytest.raises(ExportError, match="there is a model bundle already; --force replaces it"):
        check_replaceable(output, force=False, markers=MARKERS)


@pytest.mark.parametrize("force", [False, True])
def test_other_files_are_left_alone(tmp_path, force):
    write(tmp_path / "notes", "thesis.tex")
    with pytest.raises(ExportError, match="it holds other files than a model bundle, which are left alone"):
        check_replaceable(tmp_path / "notes", force=force, markers=MARKERS)
    with pytest.raises(ExportError, match="it is not a folder"):
        check_replaceable(tmp_path / "notes" / "thesis.tex", force=force, markers=MARKERS)
    (tmp_path / "link").symlink_to(tmp_path / "notes")
    with pytest.raises(ExportError, match="it is not a folder"):
        check_replaceable(tmp_path / "link", force=force, markers=MARKERS)
