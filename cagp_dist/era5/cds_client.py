"""The client of the Climate Data Store: where its key comes from, and how that stays out of logs."""

import logging
import os
import stat
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cagp_dist.era5.cds_advice import HOW_TO_MAKE_A_KEY, explain_cds_failure
from cagp_dist.errors import CagpError, ConfigurationError

if TYPE_CHECKING:
    from ecmwf.datastores import Client

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
    import cdsapi

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
            f"no key for the Climate Data Store ({error}). {HOW_TO_MAKE_A_KEY}"
        ) from error
    if not (key.isascii() and key.isprintable()) or " " in key:
        # such a key cannot be sent, and the error of whoever tries would quote it
        raise ConfigurationError(f"the key holds blanks or other odd characters. {HOW_TO_MAKE_A_KEY}")
    if ":" in key:
        raise ConfigurationError(
            "the key has the form UID:KEY, which the Climate Data Store no longer accepts. "
            + HOW_TO_MAKE_A_KEY
        )
    file = Path(os.environ.get("CDSAPI_RC", "~/.cdsapirc")).expanduser()
    if file.exists() and file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        logger.warning("others can read the key in %s; run: chmod 600 %s", file, file)
    return endpoint, key
