"""docs/export.md and the settings say the same."""

import re
from pathlib import Path

from translane_export.settings import ExportSettings
from translane_server.settings_loader import flag_name

PAGE = Path(__file__).parents[3] / "docs" / "export.md"


def test_every_setting_is_documented_and_every_documented_one_exists():
    settings = PAGE.read_text(encoding="utf-8").partition("## Settings")[2].partition("\n## ")[0]
    first_cells = [line.split("|")[1] for line in settings.splitlines() if line.startswith("| `")]
    documented = {name for cell in first_cells for name in re.findall(r"`([^`]+)`", cell)}
    assert documented - {"-o"} == {flag_name(ExportSettings, name) for name in ExportSettings.model_fields}
