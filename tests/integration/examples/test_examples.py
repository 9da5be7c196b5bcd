"""The examples in other languages answer as the Python client does: over plain text, and over TLS with a key."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from helpers.certificates import Authority
from helpers.key_files import holder, key_file
from helpers.real_server import serving_bundle
from translane import AsyncClient
from translane_server.access.keys import make_token
from translane_server.bundle.bundle import load_bundle

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
BIN = Path(sys.executable).parent
TEXTS = ["我有一只猫。", "谢谢", "他说：“你好！”"]
SECONDS = 500  # compiling gRPC for the Go example takes minutes on a busy machine


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory):
    """The translations, and what callers must know of a server of plain text and of one that wants TLS and a key."""
    folder = tmp_path_factory.mktemp("secrets")
    authority = Authority(folder)
    files = authority.files("localhost", stem="server")
    token = make_token()
    keys = key_file(folder, caller=holder(token))
    bundle = load_bundle(ROOT / "models/zh-en")
    secret: dict[str, Any] = {"tls_cert": files.cert, "tls_key": files.key, "keys_file": keys}
    shown = {"TRANSLANE_CLIENT_CA": str(authority.file), "TRANSLANE_CLIENT_TOKEN": token}
    async with AsyncExitStack() as opened:
        plain = (await opened.enter_async_context(serving_bundle(bundle, max_batch_size=8, http_port=0))).server
        secured = (
            await opened.enter_async_context(serving_bundle(bundle, max_batch_size=8, http_port=0, **secret))
        ).server
        async with AsyncClient(f"localhost:{plain.port}") as client:
            expected = [translation.text for translation in await client.translate(TEXTS)]

        def place(server, scheme, **variables):
            variables["TRANSLANE_CLIENT_SERVER"] = f"localhost:{server.port}"
            variables["TRANSLANE_HTTP"] = f"{scheme}://localhost:{server.http_port}"
            return variables

        yield expected, {"plain": place(plain, "http"), "secured": place(secured, "https", **shown)}


@pytest.fixture
def expected(served):
    return served[0]


@pytest.fixture(params=["plain", "secured"])
def place(request, served):
    return served[1][request.param]


@pytest.fixture
def without_key(served):
    return {name: value for name, value in served[1]["secured"].items() if name != "TRANSLANE_CLIENT_TOKEN"}


async def run(*command, variables):
    """What a command prints to both streams, and its exit code."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRANSLANE_")}
    environment["PATH"] = f"{BIN}{os.pathsep}{environment['PATH']}"
    given: Any = {"cwd": ROOT, "env": environment | variables, "encoding": "utf-8", "timeout": SECONDS}
    streams: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = await asyncio.to_thread(lambda: subprocess.run(command, **given, **streams))
    return done.stdout, done.returncode


# Where Debian's packages put the libraries of Go.
GO_LIBRARIES = Path("/usr/share/gocode")
GO_TOOLS = ("go", "protoc", "protoc-gen-go", "protoc-gen-go-grpc")


@pytest.fixture(scope="module")
def go_program(tmp_path_factory):
    """The Go example, generated and compiled with the packages of Debian, which need no network."""
    for tool in GO_TOOLS:
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed")
    for library in ("google.golang.org/grpc", "google.golang.org/protobuf", "github.com/golang/protobuf/proto"):
        if not (GO_LIBRARIES / "src" / library).is_dir():
            pytest.skip(f"{library} is not installed in {GO_LIBRARIES}")
    sources = tmp_path_factory.mktemp("go") / "src"
    folder = sources / "example.org/translate"
    shutil.copytree(EXAMPLES / "go", folder, ignore=shutil.ignore_patterns("translane"))
    (sources / "protos").symlink_to(ROOT / "protos")
    variables = {"GO111MODULE": "off", "GOPATH": f"{sources.parent}:{GO_LIBRARIES}", "GOFLAGS": "-p=1"}
    program = sources.parent / "translate"
    for command in (["generate"], ["vet", "."], ["build", "-o", program]):
        done = subprocess.run(["go", *command], env=os.environ | variables, cwd=folder, capture_output=True, text=True)
        assert (done.stdout + done.stderr, done.returncode) == ("", 0)
    return program


@pytest.fixture(params=["python", "node", "go"])
def program(request):
    """The command that runs an example."""
    if request.param == "go":
        return [request.getfixturevalue("go_program")]
    if request.param == "python":
        return [sys.executable, EXAMPLES / "python/translate.py"]
    if not shutil.which("node"):
        pytest.skip("node is not installed")
    if not (EXAMPLES / "node/node_modules/@grpc/grpc-js").is_dir():
        pytest.skip("the packages of examples/node are not installed: npm ci")
    return ["node", EXAMPLES / "node/translate.js"]


async def test_programs_translate_and_stream(program, place, expected):
    output, code = await run(*program, *TEXTS, variables=place)
    assert output.splitlines() == [*expected, expected[0]]
    assert code == 0


async def test_programs_without_a_key(program, without_key):
    output, code = await run(*program, *TEXTS, variables=without_key)
    assert "UNAUTHENTICATED" in output.upper()
    assert code == 1


@pytest.mark.parametrize(
    ("name", "tool", "told"),
    [
        ("curl.sh", "curl", "MISSING_KEY"),
        ("buf-curl.sh", "buf", "failed to find service"),  # buf says no more when reflection is refused
        ("grpcurl.sh", "grpcurl", "Unauthenticated"),
    ],
)
async def test_scripts(name, tool, told, place, expected, without_key):
    if not shutil.which(tool, path=f"{BIN}{os.pathsep}{os.environ['PATH']}"):
        pytest.skip(f"{tool} is not installed")
    script = EXAMPLES / "shell" / name
    request = json.dumps({"texts": TEXTS})
    output, code = await run(script, request, variables=place)
    assert code == 0, output
    translations = json.loads(output)["translations"]
    assert [translation["hypotheses"][0]["text"] for translation in translations] == expected
    output, _ = await run(script, variables=without_key)
    assert told in output
