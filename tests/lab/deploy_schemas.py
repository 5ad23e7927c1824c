"""Checks conf/deploy by the platforms' own schemas: python -m tests.lab.deploy_schemas BUNDLE-SCHEMA CRD-FOLDER

BUNDLE-SCHEMA is `bundle/schema/jsonschema.json` of databricks/cli, CRD-FOLDER `config/crd/bases` of
kubeflow/spark-operator. `make test` does not run it. Needs
`pip install jsonschema regex kubernetes-validate botocore google-cloud-dataproc`.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Callable, Dict, List

import yaml

DEPLOY = Path(__file__).resolve().parents[2] / "conf" / "deploy"
Check = Callable[[Any], List[str]]


def by_schema(schema: Any) -> Check:
    """The schema's patterns are Go's, which Python's own `re` cannot read."""
    import_module("jsonschema._keywords").re = import_module("regex")  # type: ignore[attr-defined]
    validators = import_module("jsonschema.validators")
    validator = validators.validator_for(schema, default=validators.Draft202012Validator)(schema)
    return lambda document: [str(error.message)[:300] for error in validator.iter_errors(document)]


def by_crd(path: Path) -> Check:
    schema = yaml.safe_load(path.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    _close(schema)
    schema["properties"]["metadata"] = {"type": "object"}
    return by_schema(schema)


def _close(node: Any) -> None:
    """Refuse unknown keys, as the API server does with --validate=strict."""
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        _close(value)
    if isinstance(node, dict) and node.get("x-kubernetes-int-or-string"):
        node.pop("anyOf", None)
        node["type"] = ["integer", "string"]
    closed = isinstance(node, dict) and node.get("properties") and "additionalProperties" not in node
    if closed and node.get("type") == "object" and not node.get("x-kubernetes-preserve-unknown-fields"):
        node["additionalProperties"] = False


def by_kubernetes(document: Any) -> List[str]:
    module = import_module("kubernetes_validate")
    return _raised(lambda: module.validate(document, module.latest_version(), strict=True))


def by_emr(steps: Any) -> List[str]:
    """The command line's steps as the API's."""
    model = import_module("botocore.session").get_session().get_service_model("emr")
    shape = model.operation_model("AddJobFlowSteps").input_shape
    own = ("Jar", "Args")
    rest = [{key: value for key, value in step.items() if key not in (*own, "Type")} for step in steps]
    given = [{**each, "HadoopJarStep": {key: step[key] for key in own}} for each, step in zip(rest, steps)]
    report = import_module("botocore.validate").ParamValidator().validate({"JobFlowId": "j", "Steps": given}, shape)
    return [report.generate_report()] if report.has_errors() else []


def by_dataproc(document: Any) -> List[str]:
    template = import_module("google.cloud.dataproc_v1").WorkflowTemplate
    parse = import_module("google.protobuf.json_format").ParseDict
    return _raised(lambda: parse(document, template.pb(template())))


def _raised(check: Callable[[], object]) -> List[str]:
    try:
        check()
    except Exception as error:
        return [str(error)]
    return []


def run(bundle: Path, crds: Path) -> int:
    """Every document has no error, and one with a key too many has some."""
    kinds = {"spark-application": "sparkapplications", "scheduled-spark-application": "scheduledsparkapplications"}
    checks: Dict[str, Check] = {"databricks/databricks.yml": by_schema(json.loads(bundle.read_text()))}
    for name, kind in kinds.items():
        checks[f"kubernetes/{name}.yaml"] = by_crd(crds / f"sparkoperator.k8s.io_{kind}.yaml")
    checks.update({"kubernetes/base.yaml": by_kubernetes, "kubernetes/driver-service.yaml": by_kubernetes})
    checks.update({"emr/step.json": by_emr, "dataproc/workflow.yaml": by_dataproc})
    wrong = 0
    for name, check in checks.items():
        for document in yaml.safe_load_all((DEPLOY / name).read_text()):
            errors = check(document)
            place = document[0] if isinstance(document, list) else document
            # A bundle may have any key at its top.
            place = place.get("resources", {}).get("jobs", {}).get("mirror_once", place)
            place["noSuchKey"] = 1
            missed = not check(document)
            wrong += bool(errors) or missed
            print(name, document.get("kind", "") if isinstance(document, dict) else "", *(errors or ["fits"]))
            if missed:
                print(f"{name}: a key that does not exist was not seen")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), Path(sys.argv[2])))
