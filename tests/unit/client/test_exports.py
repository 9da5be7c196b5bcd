from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import translane_client
from translane_client import AsyncClient, Client


@pytest.mark.parametrize("name", translane_client.__all__)
def test_exported_names_and_their_members_are_documented(name: str):
    exported = getattr(translane_client, name)
    assert exported.__module__.startswith("translane_client.")
    assert inspect.getdoc(exported)
    for member, value in vars(exported).items():
        if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
            assert inspect.getdoc(value), f"{name}.{member}"


def test_everything_public_is_exported():
    assert set(translane_client._MODULES) == set(translane_client.__all__)
    assert set(translane_client.__all__) <= set(dir(translane_client))
    with pytest.raises(AttributeError, match="Nothing"):
        _ = translane_client.Nothing


def test_the_command_starts_without_importing_grpc_first():
    program = "import sys, translane.__main__; print('grpc' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_both_clients_have_the_same_methods_and_parameters():
    def face(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(value).parameters)
            for name, value in vars(kind).items()
            if inspect.isfunction(value) and (not name.startswith("_") or name == "__init__")
        }

    assert face(Client) == face(AsyncClient)


def test_nothing_heavy_is_imported():
    program = (
        "import sys, translane_client.cli.command\n"
        "heavy = {'numpy', 'torch', 'onnxruntime', 'pydantic', 'tqdm', 'translane_server', 'translane_export'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("modules", "rooms"),
    [
        ("client aio errors options results retry translation_stream", {"bench", "cli"}),
        ("bench.benchmark bench.rate_search bench.sentences", {"cli"}),
    ],
)
def test_the_library_imports_no_room_and_the_load_generator_no_command(modules: str, rooms: set[str]):
    imports = ", ".join(f"translane_client.{module}" for module in modules.split())
    program = f"import sys, {imports}\nprint(*(name.split('.')[1] for name in sys.modules if name.count('.') == 1))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & rooms == set()
