import sys
from pathlib import Path

# Benchmarks are run from the folder of the repository, which is where their package is.
sys.path.insert(0, str(Path(__file__).parents[3]))
