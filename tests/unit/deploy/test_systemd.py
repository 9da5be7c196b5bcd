"""The units of systemd and the file of Docker Compose: they are valid, and their settings are the server's."""

import re
import shutil
import subprocess
import tomllib

import pytest
import yaml

from helpers.helm import ROOT
from translane_server.app.server import PAGE_PORT
from translane_server.settings.loader import load_settings
from translane_server.settings.server_settings import ServerSettings

SYSTEMD = ROOT / "deploy" / "systemd"
UNIT = SYSTEMD / "translane.service"
TEMPLATE, SEVERAL = SYSTEMD / "translane@.service", SYSTEMD / "drop-in" / "several.conf"
DROP_INS = sorted(set((SYSTEMD / "drop-in").glob("*.conf")) - {SEVERAL})
# What `systemd-analyze security` finds; 0 is least exposed, 10 most. The guide for operators has the number.
EXPOSURE = 1.2

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def service_of(path):
    """The keys of a unit, each with all its values."""
    values: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            values.setdefault(key, []).append(value)
    return values


def test_several_servers_have_ports_of_their_own():
    (line,) = service_of(SEVERAL)["Environment"]
    taken = []
    for number in range(1, 100):
        environ = dict(each.split("=") for each in line.replace("%i", f"{number:02}").split())
        settings = load_settings(ServerSettings, ["--models", "x"], environ, prog="x", env_prefix="TRANSLANE_")
        taken += [settings.port, settings.metrics_port]
    assert len(set(taken)) == len(taken)


@needs_systemd
@pytest.mark.parametrize(
    ("unit", "drop_in"),
    [(UNIT, None), *((UNIT, drop_in) for drop_in in DROP_INS), (TEMPLATE, SEVERAL)],
    ids=lambda path: path.name if path else "none",
)
def test_a_unit_is_valid(tmp_path, unit, drop_in):
    text, replaced = re.subn(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text(), flags=re.MULTILINE)
    assert replaced == 1  # by a program that is on this machine
    copy = tmp_path / unit.name
    copy.write_text(text)
    if drop_in:
        folder = tmp_path / f"{unit.name}.d"
        folder.mkdir()
        shutil.copy(drop_in, folder)
    checked = subprocess.run(["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")


@needs_systemd
def test_the_unit_exposes_little():
    # The score changes a little with systemd's version; a protection that is taken away changes it more.
    threshold = str(round(EXPOSURE * 10) + 3)
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", f"--threshold={threshold}", str(UNIT)]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_the_unit_outlasts_the_grace_period():
    service = service_of(UNIT)
    grace = ServerSettings.model_fields["grace_period"].default
    assert float(service["TimeoutStopSec"][0]) > grace
    settings = tomllib.loads((SYSTEMD / "translane.toml").read_text())
    assert settings["grace_period"] == grace


def test_the_settings_file_is_one_of_the_server():
    settings = tomllib.loads((SYSTEMD / "translane.toml").read_text())
    assert ServerSettings.model_validate(settings).models is not None


def test_wrong_settings_are_not_tried_again():
    from translane_server.core.errors import SettingsError

    assert service_of(UNIT)["RestartPreventExitStatus"] == [str(SettingsError("").exit_code)]


def test_secrets_are_handed_over_as_files():
    service = service_of(SYSTEMD / "drop-in" / "secrets.conf")
    given = {line.partition(":")[0] for line in service["LoadCredential"]}
    used = {line.rpartition("%d/")[2] for line in service["Environment"]}
    assert given == used == {"tls.crt", "tls.key", "keys.toml"}


# Docker Compose's file.


FIELDS = ServerSettings.model_fields
OBSERVABILITY = ROOT / "deploy" / "observability"


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())


def mounts_of(service):
    """The host's path and the container's path of each mount."""
    return [mount.split(":")[:2] for mount in service.get("volumes", [])]


def test_compose_outlasts_the_grace_period(compose):
    grace = FIELDS["grace_period"].default
    assert float(compose["services"]["translane"]["stop_grace_period"].removesuffix("s")) > grace


def test_compose_uses_the_servers_ports(compose):
    port, metrics = (FIELDS[name].default for name in ("port", "metrics_port"))
    assert compose["services"]["translane"]["ports"] == [f"127.0.0.1:{each}:{each}" for each in (port, PAGE_PORT)]
    prometheus = yaml.safe_load((ROOT / "deploy" / "prometheus.yaml").read_text())
    ((scraped,),) = (job["dns_sd_configs"] for job in prometheus["scrape_configs"])
    assert (scraped["names"], scraped["port"]) == (["translane"], metrics)


def test_no_service_of_compose_may_write_or_gain_rights(compose):
    for service in compose["services"].values():
        assert service["read_only"] is True
        assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_compose_mounts_files_that_are_there(compose):
    for service in compose["services"].values():
        for source, _ in mounts_of(service):
            if source.startswith("."):
                assert (ROOT / "deploy" / source).exists(), source
            else:
                assert source in compose["volumes"]


def test_prometheus_and_grafana_find_what_compose_mounts(compose):
    prometheus = {target for _, target in mounts_of(compose["services"]["prometheus"])}
    for rules in yaml.safe_load((ROOT / "deploy" / "prometheus.yaml").read_text())["rule_files"]:
        assert f"/etc/prometheus/{rules}" in prometheus
    grafana = [target for _, target in mounts_of(compose["services"]["grafana"])]
    (provider_file,) = (OBSERVABILITY / "grafana" / "dashboards").glob("*.yaml")
    (provider,) = yaml.safe_load(provider_file.read_text())["providers"]
    home = compose["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home in grafana
    assert home.startswith(provider["options"]["path"] + "/")
