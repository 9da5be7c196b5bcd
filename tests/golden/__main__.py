"""Records the answers anew: of all files of `requests/`, or of those that are named."""

import json
import sys
import tempfile
from pathlib import Path

from golden.calls import answer, cases
from golden.servers import FOLDER, servers
from helpers.store import ROOT, opened


def main() -> None:
    kept = opened(ROOT / ".pytest_cache" / "d" / "models")  # as the tests keep them
    with kept, tempfile.TemporaryDirectory() as folder, servers(Path(folder)) as server_of:
        for file in sorted((FOLDER / "requests").glob("*.jsonl")):
            if sys.argv[1:] and file.stem not in sys.argv[1:]:
                continue
            ports = server_of(file.stem)
            lines = [
                json.dumps({"name": name, "answer": answer(ports, case)}, ensure_ascii=False)
                for name, case in cases(file).items()
            ]
            (FOLDER / "answers" / file.name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            print(f"{file.stem}: {len(lines)}")


if __name__ == "__main__":
    main()
