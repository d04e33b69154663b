"""The manifests for Kubernetes fit the published schemas, and what they run is a worker of Paceline."""

import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from paceline.cli.main import app
from paceline.hosts.worker.link import check_address, host_of_token, read_token

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed; `make env` installs it")
kubernetes_validate = pytest.importorskip(
    "kubernetes_validate", reason="kubernetes-validate is not installed; `make env` installs it"
)

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "examples" / "kubernetes").glob("*.yaml"))
VERSIONS = ("1.30", "1.37")
"""The oldest version that is checked, and the newest that the package has."""


def manifests(path: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(path.read_text("utf-8")) if each is not None]


ALL = [pytest.param(each, id=f"{path.stem}-{each['kind']}") for path in FILES for each in manifests(path)]
WORKLOADS = [each for path in FILES for each in manifests(path) if each["kind"] in ("Deployment", "Job")]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", ALL)
def test_a_manifest_fits_the_published_schema(manifest: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)


def test_the_schemas_refuse_what_is_wrong() -> None:
    (deployment,) = (each for each in WORKLOADS if each["kind"] == "Deployment")
    wrong = {**deployment, "spec": {**deployment["spec"], "replica": 1}}

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda each: each["kind"])
def test_a_pod_runs_one_worker_with_a_token_from_a_file(workload: dict[str, Any]) -> None:
    host = workload["metadata"]["labels"]["app.kubernetes.io/instance"]
    pod = workload["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    program, name = container["command"]
    worker = get_command(app).commands[name]  # type: ignore[attr-defined]
    options = worker.make_context(name, list(container["args"]), resilient_parsing=True).params

    assert program == "paceline"
    assert options["name"] == host
    assert [check_address(url, insecure=False) for url in options["connect"]] == list(options["connect"])
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    token = volumes[mounts[str(options["token_file"].parent)]]["secret"]
    assert (token["secretName"], token["defaultMode"]) == (f"paceline-{host}", 0o440)
    assert not any("token" in str(variable).lower() for variable in container["env"])


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda each: each["kind"])
def test_a_pod_has_one_worker_a_home_that_stays_a_queue_and_no_rights(workload: dict[str, Any]) -> None:
    pod = workload["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert workload["spec"].get("replicas", workload["spec"].get("parallelism")) == 1
    assert workload["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "paceline"
    assert any("persistentVolumeClaim" in volume for volume in pod["volumes"])
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_the_secret_has_the_form_of_a_token_and_none_of_a_real_one() -> None:
    (secret,) = (each for path in FILES for each in manifests(path) if each["kind"] == "Secret")
    token = secret["stringData"]["token"]

    assert host_of_token(read_token(token, "the Secret")) == "pod1"
    assert re.fullmatch(r"pod1\.[A-Z-]+", token)


def test_the_page_says_that_nothing_of_it_ran_on_a_cluster() -> None:
    page = (ROOT / "docs" / "many-machines.md").read_text("utf-8")

    assert "They were never run on a cluster by this project" in page
    assert all(path.name in page for path in FILES)
