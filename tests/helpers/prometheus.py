"""A real Prometheus on a free port, and the queries and rules that are shipped."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "observability"

_STARTING_TIME = 30.0  # [seconds]
_ANSWER_TIME = 30.0  # [seconds]

_CONFIGURATION = """\
global: {{scrape_interval: {interval}, scrape_timeout: {timeout}, evaluation_interval: {interval}}}
rule_files: [{rules}]
scrape_configs:
  - job_name: servers
    file_sd_configs: [{{files: [{targets}], refresh_interval: 1s}}]
"""

Series = Mapping[str, Any]
"""A time series as the HTTP API gives it: `metric`, its labels; and `value`, or `values`, of time and value."""


class Prometheus:
    """A running Prometheus; a `with` statement ends it. https://prometheus.io/docs/prometheus/latest/querying/api/

    Args:
        folder: an existing folder for its files; nobody else uses it.
        seconds: time between two scrapes, and between two evaluations of the rules.
        rules: files of rules.

    Raises:
        RuntimeError: it does not start.
    """

    def __init__(self, folder: Path, seconds: float, rules: Sequence[Path] = ()) -> None:
        self._targets = folder / "targets.json"
        self.watch({})
        interval = f"{round(1000 * seconds)}ms"
        files = {"rules": ", ".join(map(str, rules)), "targets": self._targets}
        configuration = folder / "prometheus.yaml"
        configuration.write_text(_CONFIGURATION.format(interval=interval, timeout=interval, **files), encoding="utf-8")
        self._log = folder / "log"
        command = [
            "prometheus",
            f"--config.file={configuration}",
            f"--storage.tsdb.path={folder / 'data'}",
            "--web.listen-address=127.0.0.1:0",
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            self._address = self._wait_until_it_is_ready()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Prometheus:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def watch(self, jobs: Mapping[str, Mapping[str, str]]) -> None:
        """Scrape the instances of each job, whose addresses are HOST:PORT, and no others."""
        groups = [
            {"targets": [address], "labels": {"job": job, "instance": instance}}
            for job, instances in jobs.items()
            for instance, address in instances.items()
        ]
        written = self._targets.with_suffix(".new")
        written.write_text(json.dumps(groups), encoding="utf-8")
        written.rename(self._targets)  # it never reads half a file

    def query(self, query: str) -> list[Series]:
        """The series that `query` gives now.

        Raises:
            urllib.error.HTTPError: it is no query.
        """
        found: list[Series] = self._get("query", query=query)["result"]
        return found

    def alerts(self) -> list[Mapping[str, Any]]:
        """The alerts that are pending or fire: `state`, `labels` and `annotations` of each."""
        found: list[Mapping[str, Any]] = self._get("alerts")["alerts"]
        return found

    def rules(self) -> list[Mapping[str, Any]]:
        """All rules: `name`, `type`, `query`, `health`, and `lastError` where there is one."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _get(self, place: str, **arguments: object) -> Any:
        url = f"http://{self._address}/api/v1/{place}?{urlencode(arguments)}"
        with urlopen(url, timeout=_ANSWER_TIME) as response:
            return json.load(response)["data"]

    def _wait_until_it_is_ready(self) -> str:
        end = time.monotonic() + _STARTING_TIME
        while time.monotonic() < end and self._process.poll() is None:
            said = self._log.read_text(encoding="utf-8", errors="replace")
            found = re.search(r'"?Listening on"? addr(?:ess)?=(\S+)', said)
            if found and "ready to receive web requests" in said:
                return found[1]
            time.sleep(0.02)
        raise RuntimeError(f"Prometheus does not start; it said:\n{self._log.read_text(errors='replace')[-2000:]}")


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
