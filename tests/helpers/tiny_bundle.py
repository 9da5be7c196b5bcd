"""A small int8 bundle that is there as files, for tests that want any bundle and nothing exported.

Its weights are random, and its translations have some tokens. The name of the model is "reference". It is made so::

    sizes = {"d_model": 16, "ffn_size": 32, "encoder_layers": 1, "decoder_layers": 2, "max_positions": 32}
    random_bundle(TINY, seed=4, eos_bias=0.5, export={"name": "reference", "precision": "int8"}, **sizes)
"""

import json
import shutil
from pathlib import Path

TINY = Path(__file__).parents[1] / "data" / "bundle"


def put_bundle(folder: Path, **changes: object) -> Path:
    """Write the bundle to `folder`, all at once, with changes of its manifest."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    hidden = folder.parent / f".{folder.name}"
    shutil.copytree(TINY, hidden)
    manifest = json.loads((hidden / "manifest.json").read_text(encoding="utf-8"))
    (hidden / "manifest.json").write_text(json.dumps(manifest | changes), encoding="utf-8")
    hidden.rename(folder)
    return folder
