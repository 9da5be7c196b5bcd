"""The tests on every supported CPython, and at the lowest supported versions of packages: `make matrix` runs them.

nox skips an interpreter that is not installed, and says so. `make matrix NOX_ARGS='-s tests-3.12 -- -k scheduler'` runs
some of the tests on one interpreter.
"""

from pathlib import Path

import nox
from packaging.requirements import Requirement

nox.options.default_venv_backend = "venv"
nox.options.error_on_missing_interpreters = False
nox.options.download_python = "never"

PYPROJECT = nox.project.load_toml("pyproject.toml")
EXTRAS = ("server", "export", "batch", "ray", "s3")  # of `lowest`
SHARED = ("--numprocesses", "auto", "--dist", "loadgroup", "--no-loadscope-reorder")
PYTEST = ("python", "-m", "pytest", *SHARED, "-p", "no:cacheprovider")


@nox.session(python=["3.11", "3.12", "3.13", "3.14"])
def tests(session: nox.Session) -> None:
    """All tests, at the versions of constraints.txt."""
    pins = ("-c", "constraints.txt", "--build-constraint", "constraints.txt")
    session.install(*pins, "-e", ".[all]", "--group", "dev")
    session.run(*PYTEST, *session.posargs)


@nox.session(python="3.11")
def lowest(session: nox.Session) -> None:
    """The tests of client, server and batch, at the lowest versions that pyproject.toml promises."""
    promised = lowest_versions()
    tools = {Requirement(text).name for text in PYPROJECT["dependency-groups"]["dev"]}
    tools -= {pin.partition("==")[0] for pin in promised}
    # Its releases 5 and later need newer tokenizers than Translane does.
    tools.remove("transformers")
    pins = [line for line in Path("constraints.txt").read_text().splitlines() if line.partition("==")[0] in tools]
    constraints = Path(session.create_tmp()) / "lowest.txt"
    constraints.write_text("\n".join([*pins, *promised]), encoding="utf-8")
    # A package that has no wheel of its lowest version is promised wrongly: who installs Translane has no compiler.
    binary = ("--only-binary", ":all:", "-c", str(constraints))
    session.install(*binary, "-e", f".[{','.join(EXTRAS)}]", "transformers<5", *sorted(tools))
    tested = [f"tests/unit/{package}" for package in ("client", "server", "batch")]
    session.run(*PYTEST, *(session.posargs or tested))


def lowest_versions() -> list[str]:
    """The lower bounds of the project's requirements as pins; those of CUDA are left out."""
    project = PYPROJECT["project"]
    groups = [
        project["dependencies"],
        *(project["optional-dependencies"][name] for name in ("server-base", *EXTRAS)),
    ]
    requirements = [Requirement(text) for group in groups for text in group]
    return [
        f"{requirement.name}=={bound.version}"
        for requirement in requirements
        for bound in requirement.specifier
        if bound.operator == ">="
    ]
