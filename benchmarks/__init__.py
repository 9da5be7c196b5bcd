"""Measures speed; docs/benchmarks.md has the figures.

The tests' `helpers` can be imported after this package: they draw random models, and open sessions of ONNX Runtime.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
