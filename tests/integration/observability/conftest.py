import shutil
import sys
from pathlib import Path

import pytest

# The package of the benchmarks, which start a Prometheus and read the dashboard, is in the repository's folder.
sys.path.insert(0, str(Path(__file__).parents[3]))


@pytest.fixture(autouse=True, scope="session")
def _prometheus_is_there():
    missing = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (Debian's package prometheus)")
