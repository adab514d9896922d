"""Certificates for the cluster of one user: who has the file may connect, nobody else."""

import json
import os
import subprocess
from pathlib import Path

from cagp_dist.errors import ConfigurationError

DAYS = 365  # how long a certificate is valid
RENEWAL_DAYS = 7  # a certificate that is valid for less than this is made again

_NEEDS_OPENSSL = (
    "the certificates of a cluster are made by the program openssl, which is not on PATH. Install it (on "
    "Debian and Ubuntu: apt-get install openssl), or allow connections without encryption with --insecure."
)


def make_certificates(folder: Path) -> Path:
    """Make a certificate for all roles, and the Dask configuration; one that is valid for long is kept."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    certificate = folder.resolve() / "cluster.pem"
    if not (certificate.exists() and _remains_valid(certificate)):
        unfinished = certificate.with_suffix(f".{os.getpid()}")
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", str(DAYS), "-subj", "/CN=cagp-cluster"),
            *("-keyout", str(unfinished), "-out", str(unfinished)),
        )
        unfinished.replace(certificate)
    path = json.dumps(str(certificate))  # which is YAML as well
    configuration = f"distributed:\n  comm:\n    require-encryption: true\n    tls:\n      ca-file: {path}\n"
    for role in ("scheduler", "worker", "client"):
        configuration += f"      {role}: {{cert: {path}, key: {path}}}\n"
    (folder / "dask.yaml").write_text(configuration)
    return certificate


def _remains_valid(certificate: Path) -> bool:
    seconds = RENEWAL_DAYS * 24 * 3600
    check = ["openssl", "x509", "-checkend", str(seconds), "-noout", "-in", str(certificate)]
    try:
        return subprocess.run(check, check=False, capture_output=True).returncode == 0
    except FileNotFoundError as error:
        raise ConfigurationError(_NEEDS_OPENSSL, key="certificate") from error


def _openssl(*arguments: str) -> None:
    """Run openssl; what it writes can be read by this user alone."""
    try:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, text=True, umask=0o077)
    except FileNotFoundError as error:
        raise ConfigurationError(_NEEDS_OPENSSL, key="certificate") from error
    except subprocess.CalledProcessError as error:
        raise ConfigurationError(
            f"openssl could not make a certificate: {error.stderr.strip()[-300:]}. Expected OpenSSL 1.1.1 or "
            "newer, and a folder where one may write.",
            key="certificate",
        ) from error
