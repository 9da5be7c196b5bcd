"""Docker Compose's file."""

import pytest
import yaml

from helpers.helm import ROOT
from translane_server.app.server import PAGE_PORT
from translane_server.settings.server_settings import ServerSettings

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
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_compose_mounts_files_that_are_there(compose):
    if not OBSERVABILITY.exists():
        pytest.skip("deploy/observability is not there")
    for service in compose["services"].values():
        for source, _ in mounts_of(service):
            if source.startswith("."):
                assert (ROOT / "deploy" / source).exists(), source
            else:
                assert source in compose["volumes"]


def test_prometheus_and_grafana_find_what_compose_mounts(compose):
    if not OBSERVABILITY.exists():
        pytest.skip("deploy/observability is not there")
    prometheus = {target for _, target in mounts_of(compose["services"]["prometheus"])}
    for rules in yaml.safe_load((ROOT / "deploy" / "prometheus.yaml").read_text())["rule_files"]:
        assert f"/etc/prometheus/{rules}" in prometheus
    grafana = [target for _, target in mounts_of(compose["services"]["grafana"])]
    (provider_file,) = (OBSERVABILITY / "grafana" / "dashboards").glob("*.yaml")
    (provider,) = yaml.safe_load(provider_file.read_text())["providers"]
    home = compose["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home in grafana
    assert home.startswith(provider["options"]["path"] + "/")
