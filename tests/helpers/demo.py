"""The bundled model, as it is and in fp32."""

from pathlib import Path

from helpers.store import stored
from translane_export.bundle_writer import export_checkpoint
from translane_export.core.settings import ExportSettings
from translane_server.bundle.bundle import read_manifest

DEMO = Path(__file__).resolve().parents[2] / "models" / "zh-en"


def demo_in_fp32() -> Path:
    """Return a bundle of the bundled model that computes in fp32, as PyTorch does. It must not be written to."""
    if read_manifest(DEMO).precision == "fp32":
        return DEMO
    return stored("the demo model in fp32", _export)


def _export(folder: Path) -> None:
    export_checkpoint(ExportSettings(checkpoint=DEMO, output=folder, precision="fp32"))
