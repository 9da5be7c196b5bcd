"""Runs another benchmark, or any program, as on a processor with AVX2 but without AVX-512, VNNI and AMX.

    python -m benchmarks.runs.avx2 python -m benchmarks.runs.offline --quick -o runs/bench/avx2/offline.json
    python -m benchmarks.runs.avx2 translane serve models/zh-en

Processes that the program starts are hidden from these instructions, too. It takes a C compiler and objdump, and 70 MB
in runs/bench/processors.

ONNX Runtime chooses its kernels by what the cpuid instruction says, and has no setting for it. So the program gets a
copy of its package in which a trap stands for each of these instructions, and a preloaded library whose handler answers
in the processor's place: see avx2.c. /proc/cpuinfo says the same. CTranslate2, oneDNN and MKL have settings of their
own. Other libraries, NumPy's and PyTorch's among them, keep all instructions. A processor that has none of what is
hidden computes as before.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks import places

_SOURCE = Path(__file__).with_suffix(".c")
_CPUINFO = Path("/proc/cpuinfo")
_HIDDEN_FLAG = re.compile(r"\b(avx512|avx10|avx_vnni|avx_ifma|avx_ne_convert|amx_)\w*\s?")
_CPUID, _TRAP = b"\x0f\xa2", b"\xcc\x90"  # the trap is "int3; nop"
_INSTRUCTION = re.compile(rb" *([0-9a-f]+):\tcpuid")
_SETTINGS = {"CT2_FORCE_CPU_ISA": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
_READY = "ready"


class CannotHide(Exception):  # noqa: N818 - a reason, not an error
    """Why there can be no such environment here, in a sentence."""


def environment(folder: Path, outside: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a program that is to find a processor with AVX2 alone: `outside`, and what this takes.

    Args:
        folder: keeps what is made: 70 MB, which serve the same ONNX Runtime again.
        outside: variables that the program gets beside.

    Raises:
        CannotHide: the processor is none of x86-64, or a tool is missing.
    """
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        raise CannotHide("instructions are hidden on x86-64 with Linux alone")
    for tool, debian in (("cc", "gcc"), ("objdump", "binutils")):
        if not shutil.which(tool):
            raise CannotHide(f"there is no {tool} (Debian's package is {debian})")
    package = _package()
    folder = folder.resolve() / f"{package.name}-{max(library.stat().st_mtime_ns for library in _libraries(package)):x}"
    if not (folder / _READY).exists():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns("__pycache__"))
        for library in _libraries(folder / package.name):
            _replace_instructions(library)
    cpuinfo, preloaded = folder / "cpuinfo", folder / "avx2.so"
    cpuinfo.write_text(_HIDDEN_FLAG.sub("", _CPUINFO.read_text(encoding="utf-8")), encoding="utf-8")
    compiler = ("cc", "-shared", "-fPIC", "-O1", "-U_FORTIFY_SOURCE", f'-DCPUINFO="{cpuinfo}"')
    subprocess.run([*compiler, "-o", preloaded, _SOURCE, "-ldl"], check=True)
    (folder / _READY).touch()
    return {
        **outside,
        **_SETTINGS,
        "LD_PRELOAD": _joined(preloaded, outside.get("LD_PRELOAD")),
        "PYTHONPATH": _joined(folder, outside.get("PYTHONPATH")),
    }


def _package() -> Path:
    found = importlib.util.find_spec("onnxruntime")
    if found is None or not found.submodule_search_locations:
        raise CannotHide("onnxruntime is not installed")
    return Path(found.submodule_search_locations[0])


def _libraries(package: Path) -> Iterator[Path]:
    yield from sorted(package.rglob("*.so"))


def _replace_instructions(library: Path) -> None:
    """Put a trap in the place of each cpuid instruction of a library, in place.

    A disassembler finds them: the same two bytes are also parts of other instructions.
    """
    disassembler = ("objdump", "--disassemble", "--no-show-raw-insn", "--section=.text", str(library))
    with subprocess.Popen(disassembler, stdout=subprocess.PIPE) as listing:
        assert listing.stdout is not None
        found = [_INSTRUCTION.match(line) for line in listing.stdout if b"cpuid" in line]
    if listing.returncode:
        raise CannotHide(f"objdump fails on {library.name}")
    addresses = [int(match[1], 16) for match in found if match]
    if not addresses:
        return
    lister = ("objdump", "--section-headers", "--section=.text", str(library))
    headers = subprocess.run(lister, capture_output=True, check=True).stdout
    _, _, _, start, _, offset, *_ = next(line for line in headers.split(b"\n") if b" .text " in line).split()
    content = bytearray(library.read_bytes())
    for address in addresses:
        at = address - int(start, 16) + int(offset, 16)
        assert content[at : at + 2] == _CPUID, f"{library.name} at {address:#x}"
        content[at : at + 2] = _TRAP
    library.write_bytes(content)


def _joined(first: Path, rest: str | None) -> str:
    return os.pathsep.join([str(first), *([rest] if rest else [])])


def main() -> None:
    command = sys.argv[1:]
    if not command or command[0].startswith("-"):
        print(__doc__)
        sys.exit(0 if command[:1] in (["-h"], ["--help"]) else 2)
    try:
        outside = environment(places.RESULTS / "processors")
    except CannotHide as reason:
        sys.exit(f"avx2: {reason}")
    program = sys.executable if command[0] == "python" else command[0]
    try:
        os.execvpe(program, [program, *command[1:]], outside)
    except OSError as error:
        sys.exit(f"avx2: {program} does not start: {error.strerror}")


if __name__ == "__main__":
    main()
