"""The Helm chart: what it renders is valid Kubernetes, and says what the values say. Wrong values are refused."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers import helm
from helpers.helm import CHART, EXAMPLES, container_of, manifests, of_kind, refusals
from translane.v1 import translation_pb2
from translane_server.settings.loader import load_settings
from translane_server.settings.model_sources import read_places
from translane_server.settings.server_settings import ServerSettings

pytest.importorskip("helm_python", reason="helm-python-sdk is not installed")
kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")

# Kinds of Prometheus Operator, of which Kubernetes itself has no schema.
OF_PROMETHEUS = {"PodMonitor", "PrometheusRule"}
# Nor has it one of these: the fields that the chart writes, so that a misspelt one is found.
# https://gateway-api.sigs.k8s.io/reference/spec/
ROUTE = "parentRefs.name parentRefs.namespace parentRefs.sectionName hostnames rules.backendRefs.name"
ROUTE += " rules.backendRefs.port rules.matches"
# https://keda.sh/docs/latest/reference/scaledobject-spec/ and https://keda.sh/docs/latest/scalers/prometheus/
TRIGGER = "triggers.metadata."
FIELDS = {
    "gateway.networking.k8s.io/v1 GRPCRoute": f"{ROUTE}.method.service",
    "gateway.networking.k8s.io/v1 HTTPRoute": f"{ROUTE}.path.type rules.matches.path.value rules.timeouts.request",
    "keda.sh/v1alpha1 ScaledObject": "scaleTargetRef.name minReplicaCount maxReplicaCount triggers.type triggers.name"
    f" triggers.metricType {TRIGGER}serverAddress {TRIGGER}query {TRIGGER}threshold {TRIGGER}ignoreNullValues",
}
BEHAVIOR = "advanced.horizontalPodAutoscalerConfig.behavior."  # that of Kubernetes's own autoscaler
# The oldest and the newest Kubernetes. Image volumes are younger than the oldest.
VERSIONS = ("1.27", "1.37")
SETS = {"default": {}} | {path.stem: yaml.safe_load(path.read_text()) for path in sorted(EXAMPLES.glob("*.yaml"))}


@pytest.fixture(scope="module")
def found():
    """The manifests and the findings of each set."""
    return dict(zip(SETS, helm.rendered(list(SETS.values())), strict=True))


@pytest.fixture(scope="module")
def rendered(found):
    return {name: documents for name, (documents, _) in found.items()}


def variables(documents):
    return {entry["name"]: entry.get("value") for entry in container_of(documents)["env"]}


def pod_of(documents):
    return of_kind(documents, "Deployment")["spec"]["template"]["spec"]


def models_in(entries):
    """The volume or the mount that is called `models`."""
    (found,) = [each for each in entries if each["name"] == "models"]
    return found


def fields_of(value, path=""):
    """The paths of all fields that hold no others."""
    if isinstance(value, dict):
        return {field for name, each in value.items() for field in fields_of(each, f"{path}.{name}".lstrip("."))}
    return {field for each in value for field in fields_of(each, path)} if isinstance(value, list) else {path}


def settings_of(environ):
    return load_settings(ServerSettings, [], environ, prog="x", env_prefix="TRANSLANE_")


def test_the_chart_has_no_findings(found):
    assert {name: findings for name, (_, findings) in found.items() if findings} == {}


@pytest.mark.parametrize("name", SETS)
def test_every_manifest_follows_the_schema_of_kubernetes(rendered, name):
    versions = VERSIONS if name != "gpu" else VERSIONS[1:]
    for document in rendered[name]:
        if fields := FIELDS.get(f"{document['apiVersion']} {document['kind']}"):
            unknown = fields_of(document["spec"]) - set(fields.split())
            assert [field for field in unknown if not field.startswith(BEHAVIOR)] == []
        elif document["kind"] not in OF_PROMETHEUS:
            for version in versions:
                kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("name", SETS)
def test_pods_meet_the_restricted_standard(rendered, name):
    # https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
    pod = pod_of(rendered[name])
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"] + pod.get("initContainers", []):
        own = container["securityContext"]
        assert own["allowPrivilegeEscalation"] is False
        assert own["readOnlyRootFilesystem"] is True
        assert own["capabilities"] == {"drop": ["ALL"]}
    allowed = {"configMap", "emptyDir", "persistentVolumeClaim", "secret", "image"}
    assert {kind for volume in pod["volumes"] for kind in volume if kind != "name"} <= allowed
    assert pod["automountServiceAccountToken"] is False
    assert of_kind(rendered[name], "ServiceAccount")["automountServiceAccountToken"] is False


@pytest.mark.parametrize("name", SETS)
def test_pods_outlast_the_grace_period(rendered, name):
    pod = pod_of(rendered[name])
    pause = float(container_of(rendered[name])["lifecycle"]["preStop"]["exec"]["command"][1])
    settings = tomllib.loads(of_kind(rendered[name], "ConfigMap")["data"]["translane.toml"])
    grace = settings.get("grace_period", ServerSettings.model_fields["grace_period"].default)
    assert pod["terminationGracePeriodSeconds"] >= pause + grace + 10
    assert pod["enableServiceLinks"] is False


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        ({"settings": {"drain_delay": 59.5}}, 5 + 60 + 30 + 10),
        ({"settings": {"grace_period": 0}, "preStopSeconds": 0}, 10),
    ],
)
def test_pods_outlast_the_delay_too_and_a_grace_period_of_nothing(values, seconds):
    assert pod_of(manifests(values))["terminationGracePeriodSeconds"] == seconds


@pytest.mark.parametrize("name", SETS)
def test_selectors_find_the_pods(rendered, name):
    documents = rendered[name]
    labels = of_kind(documents, "Deployment")["spec"]["template"]["metadata"]["labels"]
    selectors = [of_kind(documents, "Deployment")["spec"]["selector"]["matchLabels"]]
    selectors += [of_kind(documents, "Service")["spec"]["selector"]]
    selectors += [of_kind(documents, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"]]
    selectors += [of_kind(documents, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"]]
    selectors += [each["labelSelector"]["matchLabels"] for each in pod_of(documents)["topologySpreadConstraints"]]
    assert all(selector.items() <= labels.items() for selector in selectors)


@pytest.mark.parametrize("name", SETS)
def test_every_mounted_volume_is_there_and_every_volume_is_mounted(rendered, name):
    pod = pod_of(rendered[name])
    mounted = {
        mount["name"] for each in pod["containers"] + pod.get("initContainers", []) for mount in each["volumeMounts"]
    }
    assert mounted == {volume["name"] for volume in pod["volumes"]}


@pytest.mark.parametrize("name", SETS)
def test_ports_are_those_of_the_container(rendered, name):
    documents = rendered[name]
    ports = {port["name"]: port["containerPort"] for port in container_of(documents)["ports"]}
    assert ports["grpc"] == ServerSettings.model_fields["port"].default
    assert ports["metrics"] == ServerSettings.model_fields["metrics_port"].default
    for port in of_kind(documents, "Service")["spec"]["ports"]:
        assert ports[port["targetPort"]] == port["port"]
    policy = of_kind(documents, "NetworkPolicy")["spec"]
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == set(ports) - {"health"}


def test_the_settings_file_is_one_of_the_server(rendered, tmp_path):
    values = {
        "max_batch_size": 128, "max_queue_size": 2**31 - 1, "caller_share": 0.25, "log_texts": True,
        "caller_header": "x-caller",
        "request_timeout": 12.5, "glossaries": '/a "quoted"\\ é', "max_bytes_in_flight": 2**33,
        "model_settings": {"zh-en": {"replicas": 2, "decoding_defaults": False}, "a.b": {"max_batch_size": 32}},
    }  # fmt: skip
    text = of_kind(manifests({"settings": values}), "ConfigMap")["data"]["translane.toml"]
    file = tmp_path / "translane.toml"
    file.write_text(text)
    settings = settings_of({"TRANSLANE_CONFIG": str(file), "TRANSLANE_MODEL": "/m"})
    for name, value in values.items():
        assert getattr(settings, name) == (Path(str(value)) if name == "glossaries" else value)


def test_new_settings_are_new_pods(rendered):
    def checksum(values):
        annotations = of_kind(manifests(values), "Deployment")["spec"]["template"]["metadata"]["annotations"]
        return annotations["checksum/settings"]

    assert checksum({}) == checksum({"replicaCount": 5})
    assert checksum({}) != checksum({"settings": {"max_batch_size": 3}})


def test_tls_and_keys_come_from_secrets(rendered):
    documents = rendered["everything"]
    assert (
        variables(documents).items()
        >= {
            "TRANSLANE_TLS_CERT": "/etc/translane/tls/tls.crt",
            "TRANSLANE_TLS_KEY": "/etc/translane/tls/tls.key",
            "TRANSLANE_TLS_CLIENT_CA": "/etc/translane/tls/ca.crt",
            "TRANSLANE_METRICS_TLS": "true",
            "TRANSLANE_KEYS_FILE": "/etc/translane/keys/callers.toml",
        }.items()
    )
    secrets = {volume["name"]: volume["secret"] for volume in pod_of(documents)["volumes"] if "secret" in volume}
    assert {name: secret["secretName"] for name, secret in secrets.items()} == {
        "tls": "translane-tls",
        "keys": "translane-keys",
    }
    assert all(secret["defaultMode"] == 0o440 for secret in secrets.values())
    # A file that is mounted by itself (subPath) would never be renewed.
    assert not any("subPath" in mount for mount in container_of(documents)["volumeMounts"])
    # Without names of secrets, and with the bundled model, no variable leads to what is not mounted.
    assert not re.search("TLS|KEYS|TRANSLANE_MODEL", " ".join(variables(rendered["default"])))


@pytest.mark.parametrize("name", SETS)
def test_probes_speak_what_the_server_speaks(rendered, name):
    container = container_of(rendered[name])
    probes = [container[f"{probe}Probe"] for probe in ("startup", "readiness", "liveness")]
    port = 50053 if SETS[name].get("tls") else 50051  # Kubernetes speaks no TLS in gRPC probes
    assert {probe["grpc"]["port"] for probe in probes} == {port}
    assert probes[1]["grpc"]["service"] == "translane.v1.TranslationService"
    assert variables(rendered[name]).get("TRANSLANE_HEALTH_PORT", "50051") == str(port)


@pytest.mark.parametrize(
    ("name", "volume", "folder"),
    [
        ("models-claim", {"persistentVolumeClaim": {"claimName": "translane-models", "readOnly": True}}, "/library"),
        ("gpu", {"image": {"reference": "registry.example/models:7", "pullPolicy": "IfNotPresent"}}, "/library"),
        ("everything", {"emptyDir": {"sizeLimit": "4Gi"}}, "/library"),
    ],
)
def test_models_come_from_a_volume(rendered, name, volume, folder):
    assert models_in(pod_of(rendered[name])["volumes"]) == {"name": "models"} | volume
    assert variables(rendered[name])["TRANSLANE_MODEL"] == ""  # the image's own model stays out
    assert str(variables(rendered[name])["TRANSLANE_MODELS"]).startswith(folder)
    mount = models_in(container_of(rendered[name])["volumeMounts"])
    assert mount == {"name": "models", "mountPath": folder, "readOnly": True}


def test_models_come_from_urls_through_a_cache(rendered):
    documents, url = rendered["models-url"], SETS["models-url"]["models"]["url"]
    given = variables(documents)
    assert given["TRANSLANE_MODEL"] == url["urls"][0]
    assert "TRANSLANE_MODELS" not in given
    settings = settings_of({name: value for name, value in given.items() if name.startswith("TRANSLANE_MODEL")})
    assert settings.model == read_places(url["urls"])
    assert settings.model_cache_bytes == 10 * 966_367_641 < 10 << 30  # else the pod is ended before the cache is full
    assert models_in(pod_of(documents)["volumes"])["emptyDir"] == {"sizeLimit": "10Gi"}
    mount = models_in(container_of(documents)["volumeMounts"])
    assert mount == {"name": "models", "mountPath": str(settings.model_cache)}
    assert container_of(documents)["envFrom"] == [{"secretRef": {"name": "models-reader"}}]
    assert "envFrom" not in container_of(rendered["default"])


def test_a_pod_has_time_for_its_downloads(rendered):
    def patience(documents):
        probe = container_of(documents)["startupProbe"]
        return probe["failureThreshold"] * probe["periodSeconds"]

    assert patience(rendered["default"]) == 240
    assert patience(rendered["models-url"]) == 240 + 1800
    assert of_kind(rendered["models-url"], "Deployment")["spec"]["progressDeadlineSeconds"] == 600 + 1800
    assert "progressDeadlineSeconds" not in of_kind(rendered["default"], "Deployment")["spec"]


def test_several_urls_and_a_claim_for_their_cache():
    urls = ["zh-en=https://models.example/zh-en", f"de=s3://models/de@sha256:{'0' * 64}"]
    documents = manifests(
        {"models": {"source": "url", "url": {"urls": urls, "claim": "mine"}}, "networkPolicy": {"enabled": False}}
    )
    settings = settings_of({"TRANSLANE_MODEL": variables(documents)["TRANSLANE_MODEL"]})
    assert settings.model == read_places(urls)
    assert models_in(pod_of(documents)["volumes"])["persistentVolumeClaim"] == {"claimName": "mine"}


def test_a_secret_may_have_the_url():
    url = {"source": "url", "url": {"secretName": "models-reader"}}
    documents = manifests({"models": url, "networkPolicy": {"enabled": False}})
    (entry,) = [each for each in container_of(documents)["env"] if each["name"] == "TRANSLANE_MODEL"]
    assert entry["valueFrom"] == {"secretKeyRef": {"name": "models-reader", "key": "TRANSLANE_MODEL"}}
    assert container_of(documents)["envFrom"] == [{"secretRef": {"name": "models-reader"}}]


def test_a_claim_that_exists_is_not_made_again():
    documents = manifests({"models": {"source": "claim", "claim": {"name": "mine"}}})
    assert "PersistentVolumeClaim" not in {document["kind"] for document in documents}
    assert models_in(pod_of(documents)["volumes"])["persistentVolumeClaim"]["claimName"] == "mine"


def test_gpus_take_an_image_a_device_and_a_toleration(rendered):
    container = container_of(rendered["gpu"])
    assert container["image"] == f"translane:{yaml.safe_load((CHART / 'Chart.yaml').read_text())['appVersion']}-cuda"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert variables(rendered["gpu"])["TRANSLANE_DEVICE"] == "cuda"
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod_of(rendered["gpu"])[
        "tolerations"
    ]
    assert pod_of(rendered["everything"])["runtimeClassName"] == "nvidia"


def test_a_digest_goes_before_a_tag(rendered):
    digest = SETS["everything"]["image"]["digest"]
    assert container_of(rendered["everything"])["image"] == f"registry.example/translane@{digest}"


def test_the_autoscaler_counts_the_pods(rendered):
    autoscaler = of_kind(rendered["autoscaled"], "HorizontalPodAutoscaler")["spec"]
    deployment = of_kind(rendered["autoscaled"], "Deployment")
    assert autoscaler["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert "replicas" not in deployment["spec"]  # an upgrade leaves the autoscaler's number
    targets = {each["pods"]["metric"]["name"]: each["pods"]["target"] for each in autoscaler["metrics"]}
    assert targets == {
        "translane_sentences_waiting": {"type": "AverageValue", "averageValue": "32"},
        "translane_busy_rows": {"type": "AverageValue", "averageValue": "750m"},
    }


def test_keda_takes_the_place_of_the_autoscaler(rendered):
    documents = rendered["keda"]
    assert "HorizontalPodAutoscaler" not in {document["kind"] for document in documents}
    assert "replicas" not in of_kind(documents, "Deployment")["spec"]
    scaled = of_kind(documents, "ScaledObject")["spec"]
    assert scaled["scaleTargetRef"]["name"] == of_kind(documents, "Deployment")["metadata"]["name"]
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (4, 40)
    metadata = [trigger["metadata"] for trigger in scaled["triggers"]]
    assert [each["threshold"] for each in metadata] == ["64", "0.75"]
    # By default KEDA takes missing series for 0, and a Prometheus without targets would end pods under load.
    assert all(each["ignoreNullValues"] == "false" for each in metadata)
    assert {each["serverAddress"] for each in metadata} == {"http://prometheus-operated.monitoring:9090"}


def test_one_pod_ends_only_when_another_serves(rendered):
    deployment = of_kind(rendered["default"], "Deployment")["spec"]
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert deployment["minReadySeconds"] == 10
    assert of_kind(rendered["everything"], "Deployment")["spec"]["minReadySeconds"] == 20
    for constraint in pod_of(rendered["default"])["topologySpreadConstraints"]:
        assert constraint["matchLabelKeys"] == ["pod-template-hash"]  # old pods do not move new ones to one side


def test_routes_lead_to_the_ports_of_the_service(rendered):
    for name in ("gateway", "everything"):
        documents = rendered[name]
        service = of_kind(documents, "Service")
        ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
        for kind, port in (("GRPCRoute", "grpc"), ("HTTPRoute", "http")):
            (rule,) = of_kind(documents, kind)["spec"]["rules"]
            assert rule["backendRefs"] == [{"name": service["metadata"]["name"], "port": ports[port]}]
    route = of_kind(rendered["gateway"], "GRPCRoute")["spec"]
    services = [match["method"]["service"] for rule in route["rules"] for match in rule["matches"]]
    assert services == [translation_pb2.DESCRIPTOR.services_by_name["TranslationService"].full_name]
    (rule,) = of_kind(rendered["gateway"], "HTTPRoute")["spec"]["rules"]
    (match,) = rule["matches"]
    paths = json.loads((helm.ROOT / "server/translane_server/http/openapi.json").read_text())["paths"]
    assert match["path"]["type"] == "PathPrefix"
    assert [path for path in paths if not path.startswith(match["path"]["value"])] == ["/healthz"]


def test_a_route_of_grpc_alone():
    kinds = {each["kind"] for each in manifests({"gateway": {"enabled": True, "parentRefs": [{"name": "public"}]}})}
    assert "GRPCRoute" in kinds
    assert "HTTPRoute" not in kinds


def test_a_gateway_waits_longer_than_the_server(rendered):
    default = ServerSettings.model_fields["request_timeout"].default
    (rule,) = of_kind(rendered["gateway"], "HTTPRoute")["spec"]["rules"]
    assert rule["timeouts"] == {"request": f"{default + 10:.0f}s"}
    changed = SETS["gateway"] | {"settings": {"request_timeout": 12.5}}
    (rule,) = of_kind(manifests(changed), "HTTPRoute")["spec"]["rules"]
    assert rule["timeouts"] == {"request": "23s"}


def test_the_service_shows_the_pods_unless_it_has_an_address(rendered):
    assert of_kind(rendered["default"], "Service")["spec"]["clusterIP"] == "None"
    balanced = of_kind(rendered["everything"], "Service")["spec"]
    assert "clusterIP" not in balanced
    assert balanced["type"] == "LoadBalancer"
    assert "metrics" not in {port["name"] for port in balanced["ports"]}  # these are for Prometheus alone


def test_the_network_policy_lets_nothing_out(rendered):
    policy = of_kind(rendered["default"], "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["egress"] == []
    assert of_kind(rendered["everything"], "NetworkPolicy")["spec"]["egress"] != []


@pytest.mark.parametrize(
    ("clients", "metrics", "ports"),
    [([], [{}], [["metrics"]]), ([{}], [], [["grpc"]]), ([], [], [])],
)
def test_an_empty_list_of_the_network_policy_admits_nobody(clients, metrics, ports):
    documents = manifests({"networkPolicy": {"clients": clients, "metrics": metrics}})
    rules = of_kind(documents, "NetworkPolicy")["spec"]["ingress"]
    assert [[port["port"] for port in rule["ports"]] for rule in rules] == ports


def test_prometheus_scrapes_over_tls_where_the_metrics_have_it(rendered):
    (plain,) = of_kind(rendered["autoscaled"], "PodMonitor")["spec"]["podMetricsEndpoints"]
    (secured,) = of_kind(rendered["everything"], "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert "scheme" not in plain
    assert secured["scheme"] == "https"
    assert secured["tlsConfig"]["serverName"] == "translane.example"


def test_the_alerts_are_those_of_the_project(rendered):
    rule = of_kind(rendered["everything"], "PrometheusRule")["spec"]
    rules = (CHART / "files" / "rules.yaml").read_text()
    assert rule == yaml.safe_load(rules.replace('job=~".*translane.*"', 'job="translation/translane"'))


def test_what_an_operator_changes_goes_through():
    changed = manifests(
        {
            "args": ["--ready=any"],
            "startupSeconds": 600,
            "probes": {"readiness": {"periodSeconds": 1}, "liveness": {"failureThreshold": 9}},
            "podMonitor": {"enabled": True, "endpoint": {"scrapeTimeout": "9s"}},
            "prometheusRule": {"enabled": True, "job": "mine", "errorBudget": 0.01},
        }
    )
    container = container_of(changed)
    assert container["args"] == ["--ready=any"]
    assert container["startupProbe"]["failureThreshold"] * container["startupProbe"]["periodSeconds"] == 600
    grpc = {"port": 50051, "service": "translane.v1.TranslationService"}
    assert container["readinessProbe"] == {"grpc": grpc, "timeoutSeconds": 5, "periodSeconds": 1}
    assert container["livenessProbe"]["failureThreshold"] == 9
    (endpoint,) = of_kind(changed, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert endpoint["scrapeTimeout"] == "9s"
    rules = yaml.safe_dump(of_kind(changed, "PrometheusRule")["spec"])
    assert 'job="mine"' in rules
    assert ("* 0.01" in rules, "* 0.001" in rules, ".*translane.*" in rules) == (True, False, False)


def test_two_releases_of_a_namespace_do_not_meet():
    first, second = (manifests(SETS["everything"] | {"serviceAccount": {}}, release) for release in ("one", "two"))
    names = [{(each["kind"], each["metadata"]["name"]) for each in release} for release in (first, second)]
    assert not names[0] & names[1]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown value": ({"replicas": 3}, "'replicas' not allowed"),
    "text for a number": ({"replicaCount": "two"}, "at '/replicaCount': got string, want integer"),
    "a threshold of no alert": (
        {"prometheusRule": {"enabled": True, "thresholds": {"TranslaneX": 1}}},
        "there is no alert TranslaneX",
    ),
    "a threshold of an alert that has a budget": (
        {"prometheusRule": {"enabled": True, "thresholds": {"TranslaneErrorBudget": 0.05}}},
        "TranslaneErrorBudget takes prometheusRule.errorBudget",
    ),
    "a threshold of an alert that has none": (
        {"prometheusRule": {"enabled": True, "thresholds": {"TranslaneNoServer": 3}}},
        "TranslaneNoServer has no threshold",
    ),
    "an unknown setting": ({"settings": {"row": 3}}, "at '/settings': additional properties 'row' not allowed"),
    "a setting out of its range": ({"settings": {"max_batch_size": 0}}, "at '/settings/max_batch_size': minimum"),
    "a setting of the chart": ({"settings": {"port": 1}}, "'port' not allowed"),
    "a wrong setting of a model": ({"settings": {"model_settings": {"a": {"host": "b"}}}}, "'host' not allowed"),
    "an image without a name": ({"models": {"source": "image"}}, "models.image.reference: name the image"),
    "a container without an image": ({"models": {"source": "container"}}, "models.container.image: name the image"),
    "no URL": ({"models": {"source": "url"}}, "models.url.urls: name a model"),
    "a password in a URL": ({"models": {"url": {"urls": ["https://a:b@c/d"]}}}, "at '/models/url/urls/0'"),
    "a query in a URL": ({"models": {"url": {"urls": ["https://c/d?e"]}}}, "at '/models/url/urls/0'"),
    "a folder for a URL": ({"models": {"url": {"urls": ["/models/d"]}}}, "at '/models/url/urls/0'"),
    "models without names": (
        {"models": {"source": "url", "url": {"urls": ["a=https://c/a", "https://c/d"]}}},
        "models.url.urls: give each of several models a name: NAME=https://c/d",
    ),
    "downloads that nothing lets out": (
        {"models": {"source": "url", "url": {"urls": ["https://c/d"]}}},
        "models.source url takes networkPolicy.egress",
    ),
    "a folder for downloads of any size": ({"models": {"url": {"size": "500Mi"}}}, "at '/models/url/size'"),
    "a cache of downloads elsewhere": ({"settings": {"model_cache": "/tmp"}}, "'model_cache' not allowed"),
    "a client CA without TLS": ({"tls": {"clientCa": True}}, "tls.clientCa takes tls.secretName"),
    "TLS for metrics alone": ({"tls": {"metrics": True}}, "tls.metrics takes tls.secretName"),
    "the bundled model on GPUs": ({"gpu": {"enabled": True}}, "the bundled model is int8"),
    "a headless balancer": ({"service": {"type": "LoadBalancer"}}, "takes service.headless=false"),
    "no pod can be replaced": ({"strategy": {"maxSurge": 0, "maxUnavailable": 0}}, "no pod could ever be replaced"),
    "fewest above most": ({"autoscaling": {"minReplicas": 11}}, "minReplicas must be at most"),
    "a name that pods cannot have": (
        {"fullnameOverride": "x" * 47, "autoscaling": {"enabled": True, "kedaPrometheus": "http://prometheus:9090"}},
        "to 46 characters",
    ),
    "a gateway without a name": ({"gateway": {"enabled": True}}, "gateway.parentRefs: name a gateway"),
    "a name for HTTP without HTTP": (
        {"gateway": {"hostnames": ["a.example"], "httpHostnames": ["b.example"]}},
        "gateway.httpHostnames takes http.enabled",
    ),
    "all names for gRPC and one for HTTP": (
        {"http": {"enabled": True}, "gateway": {"httpHostnames": ["b.example"]}},
        "gateway.httpHostnames takes gateway.hostnames",
    ),
    "a name for both": (
        {"http": {"enabled": True}, "gateway": {"hostnames": ["a.example"], "httpHostnames": ["a.example"]}},
        "a.example is a name for gRPC",
    ),
}


@pytest.fixture(scope="module")
def said():
    return dict(zip(WRONG, refusals([values for values, _ in WRONG.values()]), strict=True))


@pytest.mark.parametrize("name", WRONG)
def test_wrong_values_are_refused_with_their_place(said, name):
    assert WRONG[name][1] in said[name]
