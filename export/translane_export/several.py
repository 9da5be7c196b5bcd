"""One checkpoint in several precisions: a folder with a bundle for each, in a folder of the precision's name."""

from __future__ import annotations

from translane_export.bundle_writer import check_output, export_checkpoint
from translane_export.errors import ExportError
from translane_export.output_folder import staged
from translane_export.settings import ExportSettings
from translane_export.trial import Log
from translane_server.bundle import Manifest


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
    manifests = []
    with staged(settings.output) as folder:
        for precision in settings.precisions:
            log(f"precision {precision}")
            test = settings.test if precision == "int8" else None
            changes = {"precision": precision, "output": folder / precision, "force": False, "test": test}
            manifests.append(export_checkpoint(settings.model_copy(update=changes), log))
    return tuple(manifests)
