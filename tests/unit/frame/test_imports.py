"""Imports go one way: client → protos ← server ← export, and batch and plan → client and server."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = {
    "translane": "protos",
    "translane_client": "client",
    "translane_server": "server",
    "translane_batch": "batch",
    "translane_export": "export",
}

# What each package may import of the others, and the extras of pyproject.toml that hold what else it may import.
FIRST_PARTY = {
    "translane": set(),
    "translane_client": {"translane"},
    "translane_server": {"translane"},
    "translane_batch": {"translane", "translane_client", "translane_server"},
    "translane_export": {"translane", "translane_server"},
}
EXTRAS = {
    "translane": [],
    "translane_client": ["otel"],
    "translane_server": ["server-base", "server", "language-id", "otel", "ray", "s3"],
    "translane_batch": ["server-base", "batch", "ray"],
    "translane_export": ["server-base", "server", "export"],
}
# What no extra has, and a sentence asks for where it is missing.
OPTIONAL = {"translane_client": {"polib"}}
# What a distribution is imported as, where that is not its name.
MODULES = {
    "grpcio": {"grpc"},
    "protobuf": {"google.protobuf"},
    "googleapis-common-protos": {"google.rpc"},
    "grpcio-status": {"grpc_status"},
    "grpcio-health-checking": {"grpc_health"},
    "grpcio-reflection": {"grpc_reflection"},
    "prometheus-client": {"prometheus_client"},
    "google-re2": {"re2"},
    "pystemmer": {"Stemmer"},
    "pydantic": {"pydantic", "pydantic_core"},  # pydantic pins its core exactly
    "markdown-it-py": {"markdown_it"},
    "onnx-ir": {"onnx_ir"},
    "opentelemetry-sdk": {"opentelemetry"},
    "opentelemetry-exporter-otlp-proto-grpc": {"opentelemetry"},
    "protobuf-py": {"protobuf"},
    "pyyaml": {"yaml"},
}
# The rooms of each package: what each may import, of the package itself, beside its own modules. A room that is not
# listed for another one is closed to it; "" is the package's root. The first row that fits a module counts.
ROOMS = {
    "translane_server": {
        "arrays": set(),
        "printable": set(),
        "files": set(),
        "file_changes": set(),
        "whole_files": set(),
        "errors": {"printable"},
        "budget": set(),
        "vocabulary": set(),
        "measurements": set(),
        "observation": {"measurements", "sentence"},
        "priority_queue": set(),
        "cpus": set(),
        "options": set(),
        "quality_estimate": set(),
        "suspect_pairs": set(),
        "manifest": {"printable"},
        "sentence": {"options"},
        "backend": {"arrays"},
        "bundle": {"errors", "files", "manifest"},
        "shortlist": {"arrays", "bundle", "errors", "files"},
        "model_urls": set(),
        "model_places": {"manifest", "model_urls", "settings_loader"},
        "settings": {"manifest", "model_places", "settings_loader"},
        "settings_loader": {"errors", "files", "printable"},
        "devices": {"errors", "manifest"},
        "bundle_choice": {"bundle", "devices", "errors"},
        "descriptors": {"observation"},
        "access": {"errors", "file_changes", "files", "observation", "settings"},
        "check": {"access", "cpus", "errors", "front_ends", "models", "observation", "settings", "store"},
        "store": {
            "bundle", "errors", "files", "manifest", "model_places", "model_urls", "printable", "settings",
            "whole_files",
        },
        "healthcheck": set(),
        "text.markup": {"text.marks"},
        "text": {"budget", "bundle", "errors", "files", "manifest", "printable"},
        "requests": {
            "text", "budget", "cpus", "errors", "manifest", "options", "printable", "quality_estimate", "sentence",
        },
        "decoding": {"arrays", "options", "sentence"},
        "batch": {"decoding", "arrays", "backend", "options", "sentence", "vocabulary"},
        "runtime": {"arrays", "backend", "bundle", "cpus", "devices", "errors", "manifest", "shortlist"},
        "replica.messages": {"replica.interface", "measurements", "sentence"},
        "replica.interface": {"measurements", "sentence"},
        "replica.fork_messages": set(),
        "replica.setup": {"bundle", "devices", "vocabulary"},
        "replica.__main__": {"replica", "runtime", "errors", "observation"},
        "replica": {
            "replica.messages", "replica.fork_messages", "replica.interface", "replica.setup", "batch",
            "backend", "errors", "measurements", "priority_queue", "sentence", "vocabulary",
        },
        "dispatch": {
            "replica.messages", "replica.fork_messages", "replica.interface", "replica.setup",
            "cpus", "devices", "errors", "measurements", "sentence", "settings",
        },
        "models": {
            "dispatch", "replica.setup", "requests", "text", "bundle", "bundle_choice", "devices", "errors",
            "file_changes", "files", "observation", "manifest", "model_places", "printable", "settings", "store",
            "vocabulary",
        },
        "rpc.port": {"rpc", "access", "observation", "settings"},
        "forwarding": {"errors"},
        "http.port": {"http", "forwarding", "access", "errors", "observation", "settings"},
        "http": {"rpc.callers", "rpc.forwarded", "rpc.status", "errors", "forwarding", "observation.load"},
        "rpc": {
            "access", "models", "requests", "dispatch", "text", "budget", "errors", "listening", "observation",
            "sentence",
        },
        "local": {"dispatch", "replica", "backend", "measurements", "sentence", "vocabulary"},
        "listening": {"errors", "settings"},
        "operator_ports": {"rpc", "access", "listening", "observation", "settings"},
        "server": {
            "http", "rpc", "access", "models", "descriptors", "forwarding", "listening", "observation",
            "operator_ports", "settings",
        },
        "embedded": {"access", "forwarding", "models", "observation", "rpc.forwarded", "server", "settings"},
        "ray_serve.autoscaling": {"observation.load"},
        "ray_serve.calls": {"errors", "rpc.status"},
        "ray_serve.groups": {"manifest", "models.choice", "text.language_tags"},
        "ray_serve.proxy": {"ray_serve.calls", "errors", "rpc.status"},
        "ray_serve.settings": {"errors", "model_places", "settings", "settings_loader"},
        "ray_serve": {
            "ray_serve.autoscaling", "ray_serve.calls", "ray_serve.groups", "ray_serve.settings", "embedded", "errors",
            "listening", "manifest", "model_places", "models.folders", "observation", "requests", "rpc.port",
            "rpc.service", "settings", "settings_loader", "standard_output",
        },
        "front_ends.front_end": {
            "access", "front_ends.messages", "front_ends.parent_connection", "models", "replica.messages",
            "rpc.model_service", "errors", "observation", "server",
        },
        "front_ends.parent_connection": {"replica.messages"},
        "front_ends.__main__": {"front_ends.front_end", "front_ends.parent_connection", "errors", "observation"},
        "front_ends": {
            "access", "dispatch", "rpc", "cpus", "errors", "file_changes", "listening", "observation",
            "operator_ports", "settings", "settings_loader",
        },
        "service_manager": set(),
        "standard_output": set(),
        "serving": {
            "access", "check", "front_ends.parent", "models", "server", "observation", "service_manager",
            "settings",
        },
        "command": {"errors", "model_places", "rpc.text_workers", "serving", "settings", "settings_loader"},
    },
    "translane_batch": {
        "errors": set(),
        "answers": set(),
        "tasks": set(),
        "progress": set(),
        "summary": set(),
        "records": {"answers", "errors"},
        "settings": {"records"},
        "corpus": {"errors", "records", "settings"},
        "work_folder": {"errors", "summary", "tasks"},
        "output_files": {"errors", "settings", "work_folder"},
        "reading": {"answers", "corpus", "errors", "tasks", "work_folder"},
        "writing": {"records", "answers", "corpus", "errors", "output_files", "reading", "tasks", "work_folder"},
        "server_settings": {"settings"},
        "model_downloads": {"server_settings", "settings"},
        "model_identity": {"settings"},
        "filters": {"answers", "errors", "model_identity", "settings"},
        "translator": {"answers", "errors", "filters", "settings"},
        "worker": {
            "answers", "errors", "filters", "model_identity", "reading", "server_settings", "settings", "tasks",
            "translator", "work_folder",
        },
        "workers": {"errors", "settings", "tasks", "work_folder", "worker"},
        "ray_workers": {"errors", "model_identity", "settings", "tasks", "work_folder", "worker", "workers"},
        "run": {
            "corpus", "errors", "model_downloads", "model_identity", "output_files", "progress", "ray_workers",
            "reading", "settings", "summary", "tasks", "work_folder", "worker", "workers", "writing",
        },
        "command": {"corpus", "errors", "run", "settings", "summary"},
    },
    "translane_client": {"bench": {""}, "cli": {"bench", ""}, "": set()},
    "translane_export": {
        "errors": set(),
        "memory": set(),
        "ranges": set(),
        "supervision": set(),
        "weights": {"errors"},
        "languages": {"errors"},
        "broken_files": {"errors"},
        "file_readers": {"errors", "broken_files"},
        "decoding_defaults": set(),
        "settings": {"decoding_defaults", "languages"},
        "tokenizer_files": {"errors", "model"},
        "checkpoint": {"model", "errors", "file_readers", "ranges", "tokenizer_files", "weights"},
        "model": set(),
        "graphs": {"model", "errors", "settings"},
        "checks": {"graphs", "model", "errors", "settings"},
        "explain": {
            "model", "sources", "errors", "memory", "output_folder", "torch_model",
        },
        "train": {"graphs", "model", "checkpoint", "errors", "file_readers", "languages"},
        "distill": {"checks", "model", "sources", "train", "bundle_writer", "checkpoint", "settings"},
        "int8": {"checks", "graphs", "model", "train", "errors", "memory", "ranges"},
        "sources": {
            "graphs.head_padding", "graphs.relative_graph", "int8.dequantize", "int8.keys_values", "model",
            "broken_files", "checkpoint", "errors", "file_readers", "ranges", "tokenizer_files", "weights",
        },
        "narrowing": {"checkpoint", "errors", "settings", "tokenizer_files"},
        "shortlists": {"sources", "train", "checkpoint", "errors"},
        "command": {
            "errors", "explain", "model_card", "settings", "several_precisions", "shortlists", "supervision",
        },
        "inspection": {"model", "sources"},
        "": {
            "model", "graphs", "checks", "train", "int8", "narrowing", "shortlists", "sources",
            "checkpoint", "errors", "file_readers", "languages", "memory", "settings", "weights",
        },
    },
}  # fmt: skip
# Policy knows neither the clock nor gRPC nor ONNX Runtime, and neither does anything that it imports.
PURE = ["sentence", "priority_queue", "backend", "batch", "decoding", "runtime.cache"]
IMPURE = {"time", "datetime", "asyncio", "threading", "socket", "grpc", "google", "onnxruntime", "prometheus_client"}


def imports(source, module, *, is_package=False):
    """The full names that a module's source imports anywhere in it, as {(line, name)}."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {(node.lineno, alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".") if is_package else module.split(".")[:-1]
                parents = parents[: len(parents) - node.level + 1]
                base = ".".join([*parents, *filter(None, [base])])
            found |= {(node.lineno, f"{base}.{alias.name}") for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "importlib.import_module",
            "import_module",
            "__import__",
        ):
            name = node.args[0] if node.args else None
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                found.add((node.lineno, name.value))
    return found


def is_in(name, roots):
    return any(name == root or name.startswith(f"{root}.") for root in roots)


def violations(source, package, module, allowed, *, is_package=False):
    """The imports of a module of `package` that are neither its own, nor Python's, nor in `allowed`."""
    return sorted(
        f"{module}:{line} imports {name}"
        for line, name in imports(source, module, is_package=is_package)
        if not is_in(name, {package, *allowed} | sys.stdlib_module_names)
    )


def modules(package):
    """Name → path of every module of a package."""
    folder = ROOT / FOLDERS[package]
    found = {}
    for path in sorted((folder / package).rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def violations_of(package, allowed):
    return [
        violation
        for module, path in modules(package).items()
        for violation in violations(
            path.read_text(encoding="utf-8"), package, module, allowed, is_package=path.name == "__init__.py"
        )
    ]


def declared(package):
    """The modules of what pyproject.toml has a package's extras install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = list(project["dependencies"])
    for extra in EXTRAS[package]:
        requirements += project["optional-dependencies"][extra]
    names = {re.split(r"[\[<>=!~; ]", requirement)[0].lower() for requirement in requirements} - {"translane"}
    return set().union(*(MODULES.get(name, {name}) for name in names))


@pytest.mark.parametrize("package", FOLDERS)
def test_a_package_imports_what_it_may(package):
    assert len(modules(package)) > 1
    allowed = FIRST_PARTY[package] | declared(package) | OPTIONAL.get(package, set())
    assert violations_of(package, allowed) == []


def test_nothing_but_export_can_import_torch():
    assert "torch" in declared("translane_export")
    packages = ("translane", "translane_client", "translane_server", "translane_batch")
    for package in packages:
        assert not declared(package) & {"torch", "onnx", "onnxscript"}


def test_the_client_can_import_grpc_and_protobuf_alone_but_for_optional_parts():
    optional = {
        "opentelemetry": {"translane_client._tracing"},
    }
    assert declared("translane_client") == {"grpc", "grpc_status", "google.protobuf", "google.rpc", *optional}
    for package, modules_that_import in optional.items():
        users = {
            name
            for name, path in modules("translane_client").items()
            if any(is_in(wanted, {package}) for _, wanted in imports(path.read_text(encoding="utf-8"), name))
        }
        assert users == modules_that_import


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("translane_server", "import torch"),
        ("translane_server", "def late():\n    from torch import nn"),
        ("translane_server", "from translane_export.model import Transformer"),
        ("translane_server", "import translane_client"),
        ("translane_server", "import importlib\nimportlib.import_module('translane_export')"),
        ("translane_server", "import google.cloud"),
        ("translane_client", "from numpy import typing"),
        ("translane_client", "from translane_server import errors"),
        ("translane_client", "from google.api import http_pb2"),
        ("translane", "import translane_client"),
        ("translane_export", "import translane_client"),
        ("translane_export", "import requests"),
        ("translane_batch", "import torch"),
        ("translane_server", "import translane_batch"),
    ],
)
def test_a_violation_is_found(package, source):
    assert violations(source, package, f"{package}.made_up", FIRST_PARTY[package] | declared(package))


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("translane_server", "from __future__ import annotations\nimport os.path\nimport numpy as np"),
        ("translane_server", "from google.protobuf import message\nfrom . import errors\nfrom .decoding import greedy"),
        ("translane_client", "import grpc.aio\nfrom translane.v1 import translation_pb2"),
        ("translane_export", "import torch.nn.functional as F\nfrom translane_server.runtime.ort import OrtBackend"),
    ],
)
def test_what_is_allowed_is_not_a_violation(package, source):
    assert (
        violations(
            source,
            package,
            f"{package}.made_up",
            FIRST_PARTY[package] | declared(package) | OPTIONAL.get(package, set()),
        )
        == []
    )


def test_relative_imports_are_resolved():
    assert imports("from . import a\nfrom .b import c\nfrom ..d import e", "p.q.r") == {
        (1, "p.q.a"),
        (2, "p.q.b.c"),
        (3, "p.d.e"),
    }
    assert imports("from .b import c", "p.q", is_package=True) == {(1, "p.q.b.c")}


def test_only_the_sessions_import_onnxruntime():
    """Tests and benchmarks take sessions from the server, or from the helper whose sessions compute as the server's."""
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in (*FOLDERS.values(), "tests", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        if any(is_in(name, {"onnxruntime"}) for _, name in imports(path.read_text(encoding="utf-8"), path.stem))
    }
    assert found == {
        "server/translane_server/runtime/sessions.py",
        "tests/helpers/sessions.py",
        "tests/rehearsal/operators.py",  # asks where ONNX Runtime puts nodes, and runs nothing
    }


def test_only_the_application_and_workers_of_corpora_import_ray():
    """Whoever has no Ray uses everything else."""
    users = {
        module
        for package in FOLDERS
        for module, path in modules(package).items()
        if any(is_in(name, {"ray"}) for _, name in imports(path.read_text(encoding="utf-8"), module))
    }
    application = {name for name in modules("translane_server") if is_in(name, {"translane_server.ray_serve"})}
    assert users <= application | {"translane_batch.ray_workers"}
    assert "translane_server.ray_serve.command" not in users  # it writes a file, on any machine


def reached(start, sources):
    """Every name that the modules of `start` import, directly or by way of modules in `sources`."""
    waiting, seen, names = [module for module in sources if is_in(module, start)], set(), set()
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        found = {name for _, name in imports(sources[module], module)}
        names |= found
        waiting += [other for other in sources if any(name == other or name.startswith(f"{other}.") for name in found)]
    return names


def row_of(module, rooms):
    """The first of `rooms` that a module of a package, named within it, is in; the root is what no other row has."""
    return next((room for room in rooms if room and is_in(module, {room})), "")


def trespasses(package, sources, rooms):
    """The imports of a package's own modules, by their names within it, that the table of its rooms does not allow."""
    found = []
    for module, source in sources.items():
        room = row_of(module, rooms)
        for line, name in sorted(imports(source, f"{package}.{module}")):
            if not is_in(name, {package}):
                continue
            wanted = name.removeprefix(package).removeprefix(".")
            target = next((other for other in sources if is_in(wanted, {other})), wanted)
            same_room = row_of(target, rooms) == room
            if not (same_room or is_in(wanted, rooms[room]) or ("" in rooms[room] and not row_of(wanted, rooms))):
                found.append(f"{module}:{line} imports {wanted}")
    return found


def sources_of(package):
    """The source of each module of a package, by its name within it, but for the package's own and its rooms'."""
    named = {name.removeprefix(package).removeprefix("."): path for name, path in modules(package).items()}
    return {
        name: path.read_text(encoding="utf-8") for name, path in named.items() if name and path.name != "__init__.py"
    }


@pytest.mark.parametrize("package", ROOMS)
def test_rooms_import_what_the_table_allows(package):
    assert trespasses(package, sources_of(package), ROOMS[package]) == []


def test_the_table_has_every_room_and_nothing_else():
    for package, rooms in ROOMS.items():
        sources = sources_of(package)
        unused = [room for room in rooms if room and not any(is_in(module, {room}) for module in sources)]
        assert unused == []
        if "" not in rooms:
            assert [module for module in sources if not row_of(module, rooms)] == []


def rights_used(package, sources, rooms):
    """What the modules of each room import of the other rooms, as the table of the package's rooms names it."""
    used: dict[str, set[str]] = {room: set() for room in rooms}
    for module, source in sources.items():
        room = row_of(module, rooms)
        for _, name in imports(source, f"{package}.{module}"):
            wanted = name.removeprefix(package).removeprefix(".")
            if is_in(name, {package}) and row_of(wanted, rooms) != room:
                used[room] |= {right for right in rooms[room] if is_in(wanted, {right})}
                used[room] |= {""} & rooms[room] if not row_of(wanted, rooms) else set()
    return used


@pytest.mark.parametrize("package", ROOMS)
def test_the_table_allows_nothing_that_no_module_imports(package):
    used = rights_used(package, sources_of(package), ROOMS[package])
    assert {room: rights - used[room] for room, rights in ROOMS[package].items() if rights - used[room]} == {}


def test_a_right_that_is_not_used_is_found():
    rooms = {"a": {"b", "c"}, "b": set(), "c": set()}
    assert rights_used("p", {"a.x": "from p.b import y"}, rooms) == {"a": {"b"}, "b": set(), "c": set()}


@pytest.mark.parametrize(
    ("module", "source", "found"),
    [
        ("batch.running", "from p.runtime.ort import OrtBackend", ["batch.running:1 imports runtime.ort.OrtBackend"]),
        ("batch.running", "from p.decoding.beam import x\nfrom p import sentence", []),
        ("dispatch.plan", "import p.replica.loop", ["dispatch.plan:1 imports replica.loop"]),
        ("replica.loop", "from p.runtime import ort", ["replica.loop:1 imports runtime.ort"]),
        ("replica.__main__", "from p.runtime import ort", []),
    ],
)
def test_a_trespass_is_found(module, source, found):
    assert trespasses("p", {module: source, "runtime.ort": ""}, ROOMS["translane_server"]) == found


def test_rooms_say_in_their_docstring_what_they_are():
    for package in ROOMS:
        for path in modules(package).values():
            if path.name == "__init__.py":
                assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path


def test_policy_reaches_no_clock_no_grpc_and_no_onnxruntime():
    sources = {name: path.read_text(encoding="utf-8") for name, path in modules("translane_server").items()}
    for noun in PURE:
        starts = {name for name in sources if is_in(name, {f"translane_server.{noun}"})}
        assert starts
        assert {name for name in reached(starts, sources) if is_in(name, IMPURE)} == set(), noun


def test_a_detour_to_the_clock_is_found():
    sources = {
        "p.policy": "from p import helper",
        "p.helper": "from p.watch import now",
        "p.watch": "from time import monotonic as now",
    }
    assert "time.monotonic" in reached({"p.policy"}, sources)


def test_only_entry_points_read_the_command_line_and_the_environment():
    readers = {
        module
        for package in FOLDERS
        for module, path in modules(package).items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.getenv", "sys.argv")
    }
    # healthcheck and cuda_probe are programs, and Ray starts the engine as one; sessions sets a variable that
    # onnxruntime reads when it is imported.
    allowed = {
        "translane_batch.command",  # sets a variable that Ray reads when it is imported
        "translane_server.healthcheck",
        "translane_server.ray_serve.engine",
        "translane_server.runtime.cuda.probe",
        "translane_server.runtime.sessions",
    }
    assert {module for module in readers if not module.endswith(".__main__")} <= allowed
