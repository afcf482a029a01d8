"""Storage options of delta-rs from the environment and from the Hadoop settings of a Spark session.

Executors may lack the driver's environment, so the options are collected once and travel with the location.
"""

from __future__ import annotations

from collections.abc import Mapping

_PREFIXES = {"s3": ("AWS_",), "gs": ("GOOGLE_",), "abfs": ("AZURE_",), "abfss": ("AZURE_",)}
_S3A = {
    "access.key": "AWS_ACCESS_KEY_ID",
    "secret.key": "AWS_SECRET_ACCESS_KEY",
    "session.token": "AWS_SESSION_TOKEN",
    "endpoint.region": "AWS_REGION",
}
_DEFAULT_REGION = "us-east-1"  # what S3-compatible servers expect when no region is set


def from_environment(uri: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that delta-rs reads for this kind of store."""
    prefixes = _PREFIXES.get(uri.partition(":")[0], ())
    found = {name: value for name, value in environment.items() if name.startswith(prefixes)} if prefixes else {}
    return _plain_http(found)


def from_hadoop(uri: str, hadoop: Mapping[str, str]) -> dict[str, str]:
    """What the settings of a Spark session (`fs.s3a.*`, `fs.azure.*`, `google.*`) say about this store."""
    scheme, _, rest = uri.partition("://")
    host = rest.partition("/")[0]
    if scheme == "s3":
        return _from_s3a(host, hadoop)
    if scheme == "gs":
        key_file = hadoop.get("google.cloud.auth.service.account.json.keyfile")
        return {"GOOGLE_SERVICE_ACCOUNT": key_file} if key_file else {}
    if scheme in ("abfs", "abfss"):
        return _from_azure(host.rpartition("@")[2], hadoop)
    return {}


def _from_s3a(bucket: str, hadoop: Mapping[str, str]) -> dict[str, str]:
    def setting(name: str) -> str | None:
        return hadoop.get(f"fs.s3a.bucket.{bucket}.{name}") or hadoop.get(f"fs.s3a.{name}")

    found = {option: value for name, option in _S3A.items() if (value := setting(name))}
    endpoint = setting("endpoint")
    if endpoint and not endpoint.endswith("amazonaws.com"):
        encrypted = (setting("connection.ssl.enabled") or "true").lower() != "false"
        whole = endpoint if "://" in endpoint else f"{'https' if encrypted else 'http'}://{endpoint}"
        found["AWS_ENDPOINT_URL"] = whole
        found.setdefault("AWS_REGION", _DEFAULT_REGION)
    path_style = setting("path.style.access")
    if path_style:
        found["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = "false" if path_style.lower() == "true" else "true"
    return _plain_http(found)


def _from_azure(account: str, hadoop: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}

    def setting(name: str) -> str | None:
        return hadoop.get(f"fs.azure.{name}.{account}") or hadoop.get(f"fs.azure.{name}")

    for name, option in (
        ("account.key", "AZURE_STORAGE_ACCOUNT_KEY"),
        ("account.oauth2.client.id", "AZURE_STORAGE_CLIENT_ID"),
        ("account.oauth2.client.secret", "AZURE_STORAGE_CLIENT_SECRET"),
        ("sas.fixed.token", "AZURE_STORAGE_SAS_TOKEN"),
    ):
        value = setting(name)
        if value:
            found[option] = value
    endpoint = setting("account.oauth2.client.endpoint")  # https://login.microsoftonline.com/TENANT/oauth2/token
    if endpoint and "/oauth2" in endpoint:
        found["AZURE_STORAGE_TENANT_ID"] = endpoint.partition("/oauth2")[0].rpartition("/")[2]
    return found


def _plain_http(found: dict[str, str]) -> dict[str, str]:
    """delta-rs refuses an endpoint without TLS unless it is allowed; to name one is to allow it."""
    if found.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        found.setdefault("AWS_ALLOW_HTTP", "true")
    return found
