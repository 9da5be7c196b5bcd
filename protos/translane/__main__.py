"""The command `translane`: a table of commands, each of which is imported when it is asked for.

Only this module reads the command line and the environment. A command is a function of both, and returns the exit code:
0 done, 1 failed, 2 wrong usage, 130 interrupted, 141 nobody reads the output.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import NamedTuple

from translane.command_error import CommandError, PackageError, end_at_once, escaped, packages_load

_INTERRUPTED = 130  # 128 + SIGINT
_BROKEN_PIPE = 141  # 128 + SIGPIPE


class _Command(NamedTuple):
    name: str
    function: str
    """The module and the name of the function, with a colon between them."""
    help: str
    extras: str
    """What has to be installed beside the client."""


_COMMANDS = (
    _Command("serve", "translane_server.app.command:serve", "serve models over gRPC and HTTP", "server"),
    _Command("translate", "translane_client.cli.command:translate", "translate texts, or the lines of a file", ""),
    _Command("score", "translane_client.cli.command:score", "score given translations", ""),
    _Command("models", "translane_client.cli.command:models", "list a server's models and limits", ""),
    _Command("bench", "translane_client.cli.command:bench", "put load on a server and measure its latency", ""),
    _Command("export", "translane_export.command:export", "make a model bundle of a checkpoint", "export"),
    _Command("inspect", "translane_export.inspection:inspect", "tell what a bundle or a checkpoint is", "server"),
    _Command("explain", "translane_export.command:explain", "show what a bundle computes for a text", "export"),
    _Command("shortlist", "translane_export.command:shortlist", "find which pieces translate which", "export"),
    _Command("train", "translane_export.train.command:train", "train a model on parallel text", "export"),
    _Command("distill", "translane_export.distill.command:distill", "make a smaller model of a large one", "export"),
    _Command("batch", "translane_batch.command:batch", "translate a corpus, through kills", "server,batch"),
    _Command("keys", "translane_server.access.key_command:keys", "make and change the keys of callers", "server"),
    _Command("ray", "translane_server.ray_serve.command:ray", "write the configuration of Ray Serve", "server,ray"),
)

# Packages that another extra has than those of the command. ONNX Runtime is a choice: one package is for GPUs.
_EXTRAS = {
    "onnxruntime": "server",
    "onnx": "export",
    "torch": "export",
    "safetensors": "export",
    "pyarrow": "batch",
    "ray": "ray",
}


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> int:
    """Run a command, and return its exit code.

    Args:
        argv: command-line arguments, without the name of the program; None: those of the process.
        environ: environment variables; None: those of the process.
    """
    # gRPC reads this variable when it is imported. Its own log lines would stand among the command's.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    argv = sys.argv[1:] if argv is None else argv
    if sys.stderr is None:  # the descriptor was closed before the start; a file opened later would take its place
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    try:
        code = _run(argv, os.environ if environ is None else environ)
        _flush(code)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        _forget_unwritten()
        return _BROKEN_PIPE
    except OSError as error:  # a full disk under standard output, or a path that cannot be looked at
        _forget_unwritten()
        place = f"{escaped(str(error.filename))}: " if error.filename else ""
        print(f"translane: {place}{error.strerror or error}", file=sys.stderr)
        return 1
    return code


def _flush(code: int) -> None:
    try:
        if sys.stdout:  # None if the descriptor was closed before the start
            sys.stdout.flush()
    except OSError:
        if not code:
            raise
        _forget_unwritten()  # a command that failed has told why


def _forget_unwritten() -> None:
    """Keep Python from a second failure as it ends, when it would flush standard output again."""
    if sys.stdout:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    name = argv[0] if argv else ""
    command = next((each for each in _COMMANDS if each.name == name), None)
    if command is None:
        return _without_command(name)
    module, _, function = command.function.partition(":")
    try:
        with packages_load():
            run = getattr(import_module(module), function)
        code: int = run(argv[1:], environ)
    except SystemExit as ended:  # of argparse
        return ended.code if isinstance(ended.code, int) else 0
    except ModuleNotFoundError as error:
        package = (error.name or "translane").partition(".")[0]
        if package.startswith("translane"):
            raise
        return _fail(name, _missing(command, package), 1)
    except PackageError as error:
        end_at_once(_fail(name, str(error), error.exit_code))
    except CommandError as error:
        return _fail(name, str(error), error.exit_code)
    return code


def _without_command(name: str) -> int:
    if name in ("-h", "--help"):
        print(_help())
        return 0
    if name in ("-V", "--version"):
        from importlib.metadata import version

        print(f"translane {version('translane')}")
        return 0
    if not name:
        print(_help(), file=sys.stderr)
        return 2
    near = get_close_matches(name, [each.name for each in _COMMANDS], n=1)
    meant = f"did you mean {near[0]}?" if near else "translane --help lists the commands"
    print(f"translane: there is no command {name!r}; {meant}", file=sys.stderr)
    return 2


def _help() -> str:
    rows = (f"  {each.name:11}{each.help}" + (f" [{each.extras}]" if each.extras else "") for each in _COMMANDS)
    return "\n".join(
        (
            "usage: translane COMMAND ...\n",
            *rows,
            "\ntranslane COMMAND --help tells more. A command with [EXTRA] needs pip install 'translane[EXTRA]'.",
        )
    )


def _missing(command: _Command, package: str) -> str:
    extras = _EXTRAS.get(package, command.extras)
    if package == "yaml" and command.name == "inspect":  # it reads Marian's files as the exporter does
        extras = "export"
    if not extras:
        return f"{package} is not installed; install translane with its dependencies"
    gpus = ", or 'translane[server-cuda]' for GPUs" if extras == "server" else ""
    return f"{package} is not installed: pip install 'translane[{extras}]'{gpus}"


def _fail(name: str, sentence: str, code: int) -> int:
    print(f"translane {name}: {sentence}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
