import argparse
import builtins
import os
import sys
from collections import defaultdict
from enum import Enum
from functools import partial
from pathlib import Path

import pytest
import torch

from helpers.pickled_checkpoints import Calls, modules
from translane_export.core.errors import ExportError
from translane_export.sources.inert_pickle import Record, plain, read_inert

WHERE = Path("settings.pt")

FORMS = {"zip": {}, "before PyTorch 1.6": {"_use_new_zipfile_serialization": False}}


@pytest.fixture(params=FORMS)
def saved(request, tmp_path):
    """Saves content in either of PyTorch's formats."""

    def save(content):
        torch.save(content, tmp_path / "model.pt", **FORMS[request.param])
        return tmp_path / "model.pt"

    return save


def test_tensors_and_namespaces(saved):
    inner = argparse.Namespace(rate=0.5, names=["a"], none=None)
    content = read_inert(saved({"args": argparse.Namespace(layers=3, inner=inner), "model": {"w": torch.arange(4.0)}}))
    assert torch.equal(content["model"]["w"], torch.arange(4.0))
    assert isinstance(content["args"], Record)
    assert plain(content["args"], WHERE) == {"layers": 3, "inner": {"rate": 0.5, "names": ["a"], "none": None}}


def test_what_settings_are_made_of(saved):
    content = {"a": defaultdict(list, {"x": [1]}), "b": partial(dict, x=1), "c": Path("here"), "d": {1, 2}}
    found = read_inert(saved(content))
    assert found["a"] == {"x": [1]}
    assert found["b"].pickled_name == "functools.partial"
    assert found["c"].args == ("here",)
    assert found["d"] == {1, 2}


class _Choice(Enum):
    first = "first"


@pytest.mark.parametrize("member", [_Choice.first, Calls(getattr, _Choice, "first")], ids=["value", "CPython 3.11.2"])
def test_omegaconf_trees(saved, member):
    container, node, kind = (type(name, (), {}) for name in ("DictConfig", "AnyNode", "ContainerMetadata"))
    with modules(
        ("omegaconf.dictconfig.DictConfig", container),
        ("omegaconf.nodes.AnyNode", node),
        ("omegaconf.base.ContainerMetadata", kind),
        ("fairseq.dataclass.constants.CHOICE", _Choice),
    ):
        tree, inside, leaf, choice = container(), container(), node(), node()
        leaf.__dict__.update(_val=6, _parent=inside, _metadata=kind())
        choice.__dict__.update(_val=member, _parent=tree, _metadata=kind())
        inside.__dict__.update(_content={"layers": leaf}, _parent=tree, _metadata=kind())
        tree.__dict__.update(_content={"encoder": inside, "choice": choice}, _parent=None, _metadata=kind())
        path = saved({"cfg": tree})
    assert plain(read_inert(path)["cfg"], path) == {"encoder": {"layers": 6}, "choice": "first"}


@pytest.mark.parametrize(
    "call",
    [
        (os.system, "touch {}"),
        (builtins.eval, "open({!r}, 'w')"),
        (builtins.exec, "open({!r}, 'w')"),
        (builtins.open, "{}", "w"),
        (partial(open, mode="w"), "{}"),
        (argparse.FileType("w"), "{}"),
        (builtins.getattr, argparse.Namespace, "__init__"),
        (builtins.getattr, argparse.Namespace, "layers"),
        (builtins.getattr, torch.Tensor, "numpy"),
        (torch.load, "{}"),
    ],
    ids=lambda call: getattr(call[0], "__name__", type(call[0]).__name__),
)
def test_a_pickle_that_would_run_code_is_refused(saved, tmp_path, call):
    proof = tmp_path / "proof"
    function, *arguments = call
    filled = [argument.format(str(proof)) if isinstance(argument, str) else argument for argument in arguments]
    path = saved({"args": Calls(function, *filled), "model": {}})
    with pytest.raises(ExportError, match=rf"{path}: it is refused"):
        read_inert(path)
    assert not proof.exists()


@pytest.mark.parametrize("arguments", [("__init__",), ("first.value",), ("_name_",), ("first", None), (1,)], ids=repr)
def test_getattr_gets_nothing_but_members_of_enumerations(saved, arguments):
    with modules(("fairseq.dataclass.constants.CHOICE", _Choice)):
        path = saved({"cfg": Calls(getattr, _Choice, *arguments)})
    with pytest.raises(ExportError, match="it is refused"):
        read_inert(path)


def test_the_code_of_packages_that_settings_name_never_runs(saved, tmp_path):
    """Not even where they are installed: what a pickle calls by their names is a record."""

    class Runs:
        def __init__(self, path=None):
            if path:
                Path(path).touch()

        def __setstate__(self, state):
            Path(state).touch()

        def __reduce__(self):
            return type(self), (str(tmp_path / "proof"),), str(tmp_path / "proof")

    with modules(("fairseq.runs.Runs", Runs)):
        path = saved({"cfg": Runs()})
        content = read_inert(path)
    assert not (tmp_path / "proof").exists()
    assert content["cfg"].args == (str(tmp_path / "proof"),)
    assert content["cfg"].state == str(tmp_path / "proof")
    assert "fairseq.runs" not in sys.modules


def test_a_state_sets_no_attributes(saved):
    namespace = argparse.Namespace(args="other", state="other", pickled_name="other")
    record = read_inert(saved({"args": namespace}))["args"]
    assert (record.args, record.pickled_name) == ((), "argparse.Namespace")
    assert plain(record, WHERE) == vars(namespace)


def test_what_was_allowed_is_forgotten(saved):
    before = torch.serialization.get_safe_globals()
    read_inert(saved({"args": argparse.Namespace(a=1)}))
    assert set(torch.serialization.get_safe_globals()) == set(before)


def test_settings_that_contain_themselves(saved):
    namespace = argparse.Namespace()
    namespace.itself = namespace
    record = read_inert(saved({"args": namespace}))["args"]
    with pytest.raises(ExportError, match=r"settings\.pt: its settings are nested without end"):
        plain(record, WHERE)


def test_files_that_are_no_checkpoints(tmp_path, saved):
    path = saved([1, 2])
    with pytest.raises(ExportError, match="it holds a list, and a checkpoint is a dictionary"):
        read_inert(path)
    for content, problem in (
        (path.read_bytes()[:50], "it is cut off"),
        (path.read_bytes()[:-30], "it is cut off"),
        (b"hello, world", "it is not a PyTorch file"),
    ):
        path.write_bytes(content)
        with pytest.raises(ExportError, match=problem):
            read_inert(path)
    with pytest.raises(ExportError, match="the file is missing"):
        read_inert(tmp_path / "other.pt")
