"""What the image says of its contents: its bill of materials, and the licences of its packages."""

import fnmatch
import hashlib
import json
import os
import re
import runpy
import subprocess
import sys
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytest.importorskip("cyclonedx_py", reason="cyclonedx-bom is not installed")
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "write-contents"
MODEL = ROOT / "models" / "zh-en"
MORE = {"ray": "ray", "batch": "pyarrow"}  # extras of images that need them, each with a module of its own


def packages_of_the_image(*more):
    """Every package that `translane[server,language-id]`, with more extras, brings, with those that these need."""
    found = set()
    extras = ["server", "language-id", *more]
    waiting = [(requirement, extras) for requirement in distribution("translane").requires or []]
    while waiting:
        text, extras = waiting.pop()
        requirement = Requirement(text)
        wanted = any(requirement.marker.evaluate({"extra": extra}) for extra in extras) if requirement.marker else True
        if not wanted or (requirement.name, *requirement.extras) in found:
            continue
        found.add((requirement.name, *requirement.extras))
        needs = distribution(requirement.name).requires or []
        waiting += [(need, ["", *requirement.extras]) for need in needs]
    return sorted({name for name, *_ in found} - {"translane"})


def package(folder, name, metadata, licence=None):
    """Install a package without modules in `folder`."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n{metadata}")
    files = ["METADATA", "RECORD"]
    if licence:
        (info / "licenses").mkdir()
        (info / "licenses" / "LICENSE").write_text(licence)
        files.append("licenses/LICENSE")
    (info / "RECORD").write_text("".join(f"{info.name}/{file},,\n" for file in files))


@pytest.fixture
def image(tmp_path):
    """An environment without packages, a command that lists Debian's, and what writes the contents of both."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    system = tmp_path / "bin" / "dpkg-query"
    system.parent.mkdir()
    system.write_text("#!/bin/sh\nprintf 'libc6\\t2.36-9+deb12u1\\tamd64\\n'\n")
    system.chmod(0o755)
    (site_packages,) = environment.glob("lib/python3*/site-packages")

    def write(model=MODEL):
        command = [sys.executable, SCRIPT, environment / "bin" / "python", model, tmp_path]
        environ = {**os.environ, "PATH": f"{system.parent}:{os.environ['PATH']}"}
        return subprocess.run(command, capture_output=True, text=True, env=environ)

    return site_packages, write


def test_every_package_of_the_image_has_a_licence():
    """And every package of the image with Ray and Parquet, where these are installed."""
    script = runpy.run_path(str(SCRIPT))
    names = packages_of_the_image(*(extra for extra, module in MORE.items() if find_spec(module)))
    assert {"grpcio", "onnxruntime", "numpy", "pydantic", "py3langid"} <= set(names)
    listed = {canonicalize_name(each["name"]): each for each in script["python_packages"](sys.executable)["components"]}
    text = script["notice"]([listed[canonicalize_name(name)] for name in names], script["licence_texts"](sys.path))
    assert all(f"\n{distribution(name).metadata['Name']} {distribution(name).version} " in text for name in names)


def test_the_notice_has_names_licences_and_texts(tmp_path, image):
    site_packages, write = image
    package(site_packages, "Bee", "License-Expression: MIT\n", "Do it.")
    package(site_packages, "ant", "Classifier: License :: OSI Approved :: BSD License\n")
    assert write().returncode == 0
    text = (tmp_path / "NOTICE").read_text()
    assert re.search(r"^ant 1\.0  BSD License\nBee 1\.0  MIT$", text, re.MULTILINE)
    assert text.endswith("Do it.\n")
    assert "Apache License" in text
    assert "CC-BY 2.0" in text


def test_every_licence_file_of_a_package_is_in_the_notice():
    texts = runpy.run_path(str(SCRIPT))["licence_texts"](sys.path)
    assert {"LICENSE", "LICENSE.APACHE", "LICENSE.BSD"} == {Path(file).name for file in texts["packaging"]}


def test_a_package_without_a_licence_is_refused(tmp_path, image):
    site_packages, write = image
    package(site_packages, "ant", "License: MIT\n")
    package(site_packages, "cat", "License: UNKNOWN\n")
    made = write()
    assert made.returncode == 1
    assert made.stderr.endswith("write-contents: no licence is known of cat\n")
    assert not (tmp_path / "NOTICE").exists()


def test_the_bill_lists_packages_interpreter_model_and_system(tmp_path, image):
    site_packages, write = image
    package(site_packages, "ant", "License-Expression: MIT\n")
    made = write()
    assert made.returncode == 0, made.stderr

    text = (tmp_path / "sbom.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    written = json.loads(text)
    assert (written["specVersion"], written["metadata"]["component"]["name"]) == ("1.6", "translane")
    components = {component["name"]: component for component in written["components"]}
    assert set(components) == {"ant", "CPython", "zh-en", "libc6"}
    assert components["ant"]["purl"] == "pkg:pypi/ant@1.0"
    assert components["libc6"]["purl"] == "pkg:deb/debian/libc6@2.36-9%2Bdeb12u1?arch=amd64"
    assert components["CPython"]["version"] == ".".join(map(str, sys.version_info[:3]))
    for file in components["zh-en"]["components"]:
        digest = hashlib.sha256((MODEL / file["name"]).read_bytes()).hexdigest()
        assert file["hashes"] == [{"alg": "SHA-256", "content": digest}]


def test_a_model_that_is_not_there_is_refused(tmp_path, image):
    made = image[1](tmp_path)
    assert made.returncode == 1
    assert "manifest.json" in made.stderr
    assert not (tmp_path / "sbom.cdx.json").exists()


def test_the_build_gets_every_file_that_the_dockerfile_copies():
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copies = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from=" not in line]
    given = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for source in (source for sources in copies for source in sources):
        within = [source, *map(str, Path(source).parents)]
        assert any(fnmatch.fnmatchcase(name, each) for name in within for each in given), source
        assert (ROOT / source).exists()
