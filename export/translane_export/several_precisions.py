"""One checkpoint in several precisions: a folder with a bundle for each, in a folder of the precision's name."""

from __future__ import annotations

from pathlib import Path

from translane_export.bundle_writer import check_output, export_checkpoint
from translane_export.checks.trial import Log
from translane_export.combinations import check_settings
from translane_export.errors import ExportError
from translane_export.int8.stage import read_test_set
from translane_export.output_folder import staged
from translane_export.settings import ExportSettings
from translane_server.bundle.manifest import Manifest, Precision


def export_precisions(settings: ExportSettings, log: Log = lambda _line: None) -> tuple[Manifest, ...]:
    """Export a checkpoint in each precision of `settings`; return the manifests of the bundles that are now there.

    One precision makes a bundle. Of several, each makes a bundle inside the output folder, which appears once all of
    them are complete.

    Raises:
        ExportError: see `export_checkpoint`; whatever was at the output before is untouched.
    """
    if len(settings.precisions) == 1:
        return (export_checkpoint(settings, log),)
    if settings.test and "int8" not in settings.precisions:
        raise ExportError("--test is for precision int8, whose translations it scores")
    check_output(settings)
    with staged(settings.output) as folder:
        exports = [_one(settings, precision, folder / precision) for precision in settings.precisions]
        for export in exports:  # before the first takes minutes
            check_settings(export)
        if settings.test:
            read_test_set(settings.test)
        manifests = []
        for export in exports:
            log(f"precision {export.precision}")
            manifests.append(export_checkpoint(export, log))
    return tuple(manifests)


def _one(settings: ExportSettings, precision: Precision, output: Path) -> ExportSettings:
    """The settings of one of several exports; a set to score translations with is for int8 alone."""
    test = settings.test if precision == "int8" else None
    changes = {"precision": precision, "output": output, "force": False, "test": test}
    return settings.model_copy(update=changes)
