"""A real Prometheus on a free port, and the queries and rules that are shipped."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from helpers.file_server import wait_until
from helpers.ports import free_port

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "observability"

_PATIENCE = 30.0  # [seconds]

_CONFIGURATION = """\
global: {{scrape_interval: {interval}, scrape_timeout: {timeout}, evaluation_interval: {interval}}}
rule_files: [{rules}]
scrape_configs:
  - job_name: servers
    file_sd_configs: [{{files: [{targets}], refresh_interval: 1s}}]
"""

Series = Mapping[str, Any]
"""A time series as the HTTP API gives it: `metric`, its labels; and `value`, or `values`, of time and value."""


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus. https://prometheus.io/docs/prometheus/latest/querying/api/"""

    address: str
    targets: Path

    def watch(self, jobs: Mapping[str, str]) -> None:
        """Scrape the server of each job, HOST:PORT, and no others."""
        groups = [{"targets": [address], "labels": {"job": job, "instance": "one"}} for job, address in jobs.items()]
        written = self.targets.with_suffix(".new")
        written.write_text(json.dumps(groups), encoding="utf-8")
        written.rename(self.targets)  # it never reads half a file

    def query(self, query: str) -> list[Series]:
        """The series that `query` gives now. urllib.error.HTTPError: it is no query."""
        found: list[Series] = self._get("query", query=query)["result"]
        return found

    def alerts(self) -> list[Mapping[str, Any]]:
        """The alerts that are pending or fire: `state`, `labels` and `annotations` of each."""
        found: list[Mapping[str, Any]] = self._get("alerts")["alerts"]
        return found

    def rules(self) -> list[Mapping[str, Any]]:
        """All rules: `name`, `type`, `query`, `health`, and `lastError` where there is one."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, place: str, **arguments: object) -> Any:
        with urlopen(f"http://{self.address}/api/v1/{place}?{urlencode(arguments)}", timeout=_PATIENCE) as response:
            return json.load(response)["data"]


@contextmanager
def running_prometheus(folder: Path, seconds: float, rules: Path) -> Iterator[Prometheus]:
    """Start Prometheus with its files in `folder`; it scrapes, and evaluates `rules`, every so many seconds."""
    running = Prometheus(f"127.0.0.1:{free_port()}", folder / "targets.json")
    running.watch({})
    interval = f"{round(1000 * seconds)}ms"
    configuration = folder / "prometheus.yaml"
    text = _CONFIGURATION.format(interval=interval, timeout=interval, rules=rules, targets=running.targets)
    configuration.write_text(text, encoding="utf-8")
    flags = [f"--config.file={configuration}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ["prometheus", *flags, f"--web.listen-address={running.address}"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(lambda: process.poll() is not None or _is_ready(running.address), _PATIENCE)
        assert process.poll() is None, (folder / "log").read_text(errors="replace")[-2000:]
        yield running
    finally:
        process.kill()
        process.wait()


def _is_ready(address: str) -> bool:
    try:
        with urlopen(f"http://{address}/-/ready", timeout=_PATIENCE) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


# The variables of the dashboard where everything is chosen.
_EVERYTHING = ("$job", "$instance", "$model")

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_RANGE = re.compile(r"\[(\d+)([smhd])\]")
_DURATION = re.compile(r"(\d+)([smhd])")


def queries(interval: str) -> list[str]:
    """PromQL of all panels, for all servers and models, with rates over `interval`, such as 1m."""
    panels = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))["panels"]
    texts = [
        target["expr"].replace("$__rate_interval", interval) for panel in panels for target in panel.get("targets", ())
    ]
    for variable in _EVERYTHING:
        texts = [text.replace(variable, ".*") for text in texts]
    return texts


def hasty_rules(rules: Path, times: int) -> str:
    """The YAML of `rules`, whose ranges and `for` are `times` shorter: minutes pass in seconds. No threshold changes.

    Raises:
        ValueError: a duration is not a number and one of s, m, h and d.
    """
    content: dict[str, Any] = yaml.safe_load(rules.read_text(encoding="utf-8"))
    for rule in (rule for group in content["groups"] for rule in group["rules"]):
        rule["expr"] = _RANGE.sub(lambda found: f"[{_shorter(found[1] + found[2], times)}]", rule["expr"])
        if "for" in rule:
            rule["for"] = _shorter(rule["for"], times)
    return yaml.safe_dump(content, allow_unicode=True)


def _shorter(duration: str, times: int) -> str:
    found = _DURATION.fullmatch(duration)
    if not found:
        raise ValueError(f"{duration} is not a number and a unit")
    return f"{1000 * int(found[1]) * _SECONDS[found[2]] // times}ms"
