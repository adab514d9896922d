"""The client of the Climate Data Store: where its key comes from, and what its refusals mean."""

import logging
import os
import stat
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cagp_dist.errors import CagpError, ConfigurationError, DataError, NotReadyError
from cagp_dist.extras import from_extra
from cagp_dist.fields.stores.cds_cache import COLLECTION
from cagp_dist.text import is_loopback, without_secrets

if TYPE_CHECKING:
    from ecmwf.datastores import Client

PROFILE = "https://cds.climate.copernicus.eu/profile"
ENDPOINT = "https://cds.climate.copernicus.eu/api"

HOW_TO_MAKE_A_KEY = (
    f"Log in at {PROFILE}, copy your personal access token, and write two lines into ~/.cdsapirc:\n  url: "
    f"{ENDPOINT}\n  key: YOUR-TOKEN\nthen run: chmod 600 ~/.cdsapirc. Or set the environment variables "
    "CDSAPI_URL and CDSAPI_KEY."
)

_LICENCE = ("licence", "license")
_TOO_LARGE = ("cost limits exceeded", "too large", "exceeds the limit")
_NOT_YET = ("available yet", "latest date available", "nodataerror", "no matching data", "access to era5t")
_RATE = ("rate limit", "too many requests", "maximum number of")
_KEY = ("authentication", "operation not allowed", "unauthorized")


def explain_cds_failure(error: Exception, *, endpoint: str, key: str) -> CagpError:
    """Turn a failure of the client into an error that says what to do.

    The store answers 403 to a licence that was not accepted and to a request that is too large alike, so
    its words are looked at before its number.
    """
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    text = " ".join(str(error).replace(key, "***").split())
    words = text.lower()
    kind: type[CagpError] = ConfigurationError
    if any(phrase in words for phrase in _LICENCE):
        page = f"{ENDPOINT.removesuffix('/api')}/datasets/{COLLECTION}?tab=download#manage-licences"
        fault = "licence"
        said = f"the licence of {COLLECTION} was not accepted yet. Accept it once, logged in, at {page}."
    elif any(phrase in words for phrase in _TOO_LARGE):
        fault, said = "too-large", "the request is too large for the store; select fewer times."
    elif any(phrase in words for phrase in _NOT_YET):
        kind, fault = NotReadyError, "not-yet"
        said = "ERA5 for these times does not exist yet; it appears about five days later. Run again then."
    elif status == 429 or any(phrase in words for phrase in _RATE):
        kind, fault = NotReadyError, "rate-limit"
        said = "the store limits the rate of requests; run again in a few minutes."
    elif status == 401 or any(phrase in words for phrase in _KEY):
        fault, said = "credentials", f"the store does not accept the key. {HOW_TO_MAKE_A_KEY}"
    elif status == 404 and "/jobs/" in text:
        kind, fault = DataError, "result-gone"
        said = "the store no longer has the result; run again to request it once more."
    elif status == 404:
        fault = "endpoint"
        said = (
            f"there is no Climate Data Store at {endpoint}; expected {ENDPOINT}. The old address ending in "
            "/api/v2 was switched off: correct url in ~/.cdsapirc."
        )
    elif status == 403:
        fault, said = "refused", "the store refused the request."
    else:
        kind, fault = DataError, "unreadable"
        said = (
            f"the Climate Data Store at {endpoint} did not deliver ({type(error).__name__}). Check the "
            "network and https://status.ecmwf.int, then run again: a queued request is resumed."
        )
    return kind(f"{said} The store said: {text}", key=fault)


logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long to wait for the store, and how often to try."""

    queue_seconds: float = 6 * 3600.0  # then NotReadyError, and the same call takes the requests up again
    poll_seconds: float = 1.0  # first pause between two looks at the queue
    poll_limit_seconds: float = 60.0  # longest one
    answer_seconds: float = 60.0  # longest wait for the answer to one message
    tries: int = 5  # how often one message is sent when the network or the store fails
    retry_seconds: float = 10.0  # pause between tries


@contextmanager
def connect_to_cds(patience: Patience) -> "Iterator[Client]":
    """Connect to the store; failures inside carry advice, and no message carries the key."""
    cdsapi = from_extra("cds", "cdsapi", "reading the Climate Data Store")
    endpoint, key = _credentials()

    def heard(level: int) -> Callable[..., None]:
        return lambda *message, **_: logger.log(level, "%s", " ".join(map(str, message)).replace(key, "***"))

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns when the store's notice board cannot be read
            client = cdsapi.Client(
                endpoint,
                key,
                progress=False,
                quiet=True,
                wait_until_complete=False,
                timeout=patience.answer_seconds,
                retry_max=patience.tries,
                sleep_max=patience.retry_seconds,
                info_callback=heard(logging.DEBUG),
                warning_callback=heard(logging.WARNING),
                error_callback=heard(logging.ERROR),
                debug_callback=lambda *message, **_: None,  # its first line is the key
            )
        with client.session:
            yield client.client
    except CagpError:
        raise
    except Exception as error:  # every layer of the client has errors of its own
        told = explain_cds_failure(error, endpoint=endpoint, key=key)
        # requests quotes a header that it cannot send, and the header is the key
        raise told from (None if key in str(error) else error)


def _credentials() -> tuple[str, str]:
    """Find the endpoint and the key, in the environment or in ``~/.cdsapirc``."""
    from cdsapi.api import get_url_key_verify

    try:
        endpoint, key, _ = get_url_key_verify(None, None, None)
        endpoint, key = endpoint.strip().rstrip("/"), key.strip()
        if not endpoint or not key:
            raise ValueError("url or key is empty")
    except Exception as error:  # the client raises a bare Exception
        raise ConfigurationError(
            f"no key for the Climate Data Store ({error}). {HOW_TO_MAKE_A_KEY}", key="credentials"
        ) from error
    parts = urlsplit(endpoint)
    if parts.scheme != "https" and not is_loopback(parts.hostname):
        shown = without_secrets(f"{parts.scheme}://{parts.hostname}", endpoint)
        raise ConfigurationError(
            f"the key would go to {shown} without encryption; expected https://, as {ENDPOINT}. Correct "
            "CDSAPI_URL, or url in ~/.cdsapirc.",
            key="plain-http",
        )
    if not (key.isascii() and key.isprintable()) or " " in key:
        # such a key cannot be sent, and the error of whoever tries would quote it
        raise ConfigurationError(
            f"the key holds blanks or other odd characters. {HOW_TO_MAKE_A_KEY}", key="credentials"
        )
    if ":" in key:
        raise ConfigurationError(
            "the key has the form UID:KEY, which the Climate Data Store no longer accepts. "
            + HOW_TO_MAKE_A_KEY,
            key="credentials",
        )
    file = Path(os.environ.get("CDSAPI_RC", "~/.cdsapirc")).expanduser()
    if file.exists() and file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        logger.warning("others can read the key in %s; run: chmod 600 %s", file, file)
    return endpoint, key
