import sys
from pathlib import Path

# The scripts import the modules of their own folder by plain names, as Python has it for scripts.
sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
