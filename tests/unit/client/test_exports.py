from __future__ import annotations

import inspect
import subprocess
import sys

from translane_client import AsyncClient, Client


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
        "heavy = {'numpy', 'torch', 'onnxruntime', 'pydantic', 'tqdm', 'opentelemetry'}\n"
        "heavy |= {'translane_server', 'translane_export'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
