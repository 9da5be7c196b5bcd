"""The examples of docs/http.md run."""

import asyncio
import json
import re
import shutil
from pathlib import Path

import pytest

from fakes.serving import serving
from helpers.real_server import serving_bundle
from translane_server.bundle import load_bundle
from translane_server.http.statuses import HTTP_STATUSES

DOCS = (Path(__file__).parents[3] / "docs/http.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", DOCS, re.DOTALL)


async def run(running, *command, text):
    text = text.replace("localhost:8080", f"127.0.0.1:{running.server.http_port}")
    process = await asyncio.create_subprocess_exec(*command, text, stdout=asyncio.subprocess.PIPE)
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0
    return output.decode()


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
async def test_commands():
    assert len(blocks("sh")) == 3
    bundle = load_bundle(Path(__file__).parents[3] / "models/zh-en")
    async with serving_bundle(bundle, rows=8, http_port=0) as running:
        outputs = [
            await run(running, "bash", "-ec", text=block.replace("curl ", "curl --fail --silent "))
            for block in blocks("sh")
        ]
    assert all("{" in output for output in outputs)
    answered, shown = (json.loads(text) for text in (outputs[0], blocks("json")[0]))
    assert answered.pop("timing").keys() == shown.pop("timing").keys()
    assert answered == shown


@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")
async def test_javascript():
    (script,) = blocks("js")
    script += """
        (async () => {
          console.log(await translate(["hello", ""]));
          await stream("hello", (delta) => process.stdout.write(`<${delta}>`));
          await stream("a".repeat(99999), console.log).catch((error) => console.log(error.message));
        })();
    """
    async with serving(http_port=0) as running:
        output = await run(running, "node", "-e", text=script)
    listed, _, rest = output.partition("\n")
    assert listed == "[ 'hello', '' ]"
    assert "".join(re.findall("<(.*?)>", rest)) == "hello"
    assert "text" in rest.splitlines()[-1]


def test_the_table_of_statuses():
    rows = re.findall(r"^\| (`.*?) \| (\d+) \|$", DOCS, re.MULTILINE)
    for cell, status in rows:
        for code in re.findall("`([a-z_]+)`", cell):
            assert HTTP_STATUSES[code] == int(status)
    assert len(rows) == 8
