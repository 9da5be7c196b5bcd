"""How Sphinx makes the site of the documents: `make docs` writes it to build/site.

The site's source is the repository itself, so every link works on the site as it works in the repository. A link to a
page or a heading that is missing fails the build.
"""

import re
import shutil
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCE = PROJECT["urls"]["Source"]

project = "Translane"
copyright = "the authors of Translane, Apache-2.0"
release = version = PROJECT["version"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "models/*/README.md", "examples/README.md"]
exclude_patterns = [".*", "build", "dist", "tests", "**/node_modules"]

myst_heading_anchors = 4

# Docstrings are text with `code`: a name in backquotes is a link where the reference has that name.
default_role = "py:obj"
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"

html_theme = "furo"
html_title = f"Translane {version}"
html_theme_options = {"source_repository": f"{SOURCE}/", "source_branch": "main", "source_directory": ""}
html_copy_source = False

CONTENTS = """

```{toctree}
:hidden:
:caption: Call a server
docs/client
docs/client-reference
docs/http
docs/documents
docs/glossaries
docs/batch
examples/README
docs/coming-from
```

```{toctree}
:hidden:
:caption: Run one
docs/server
docs/models
docs/page
docs/deployment
docs/operations
docs/access
docs/security
docs/dashboards
docs/observability
docs/scaling
docs/envoy
docs/ray-serve
```

```{toctree}
:hidden:
:caption: Have a model
docs/export
docs/bring-your-own
docs/students
docs/training
docs/distillation
docs/quality
docs/benchmarks
models/zh-en/README
```

```{toctree}
:hidden:
:caption: Learn
docs/architecture
docs/decoding
docs/attention
docs/explain
```

```{toctree}
:hidden:
:caption: Development
CONTRIBUTING
CHANGELOG
SECURITY
```
"""
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")


def prepare_page(_: Sphinx, page: str, source: list[str]) -> None:
    """Point links to files that are no pages at the repository, and add the table of contents to the first page."""

    def repository_link(match: re.Match[str]) -> str:
        target = (ROOT / page).parent / match[1]
        if not target.exists() or target.suffix in (".md", ".png", ".svg"):
            return match[0]
        return f"{SOURCE}/blob/main/{target.resolve().relative_to(ROOT)}"

    source[0] = LINK.sub(repository_link, source[0])
    if page == root_doc:
        source[0] += CONTENTS


def mark_code(_app: Sphinx, _what: str, _name: str, _object: object, _options: object, lines: list[str]) -> None:
    """Tell Sphinx that an indented paragraph after a blank line is code, as in Markdown."""
    for i in range(len(lines) - 1, 1, -1):
        if lines[i].startswith("    ") and not lines[i - 1] and lines[i - 2][:1].strip():
            lines[i - 1 : i] = ["", "::", ""]


def write_index(app: Sphinx, error: Exception | None) -> None:
    """Give the first page the name that web servers look for."""
    if error is None:
        shutil.copyfile(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", prepare_page)
    app.connect("autodoc-process-docstring", mark_code, priority=400)  # before napoleon reads the docstring
    app.connect("build-finished", write_index)
