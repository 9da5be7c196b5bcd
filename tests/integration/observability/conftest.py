import shutil

import pytest


@pytest.fixture(autouse=True, scope="session")
def _prometheus_is_there():
    missing = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (Debian's package prometheus)")
