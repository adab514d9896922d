"""What the Climate Data Store means by its refusals, and what to do about each."""

from cagp_dist.era5.cds_requests import COLLECTION
from cagp_dist.errors import CagpError, ConfigurationError, DataError, NotReadyError

PROFILE = "https://cds.climate.copernicus.eu/profile"
ENDPOINT = "https://cds.climate.copernicus.eu/api"

HOW_TO_MAKE_A_KEY = (
    f"Log in at {PROFILE}, copy your personal access token, and write two lines into ~/.cdsapirc:\n"
    f"  url: {ENDPOINT}\n"
    "  key: YOUR-TOKEN\n"
    "then run: chmod 600 ~/.cdsapirc. Or set the environment variables CDSAPI_URL and CDSAPI_KEY."
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
    said = f"The store said: {text}"
    if any(phrase in words for phrase in _LICENCE):
        return ConfigurationError(
            f"the licence of {COLLECTION} was not accepted yet. Accept it once, logged in, at "
            f"{ENDPOINT.removesuffix('/api')}/datasets/{COLLECTION}?tab=download#manage-licences. {said}"
        )
    if any(phrase in words for phrase in _TOO_LARGE):
        return ConfigurationError(f"the request is too large for the store; select fewer times. {said}")
    if any(phrase in words for phrase in _NOT_YET):
        return NotReadyError(
            "ERA5 for these times does not exist yet; it appears about five days later. Run again then. "
            + said
        )
    if status == 429 or any(phrase in words for phrase in _RATE):
        return NotReadyError(f"the store limits the rate of requests; run again in a few minutes. {said}")
    if status == 401 or any(phrase in words for phrase in _KEY):
        return ConfigurationError(f"the store does not accept the key. {HOW_TO_MAKE_A_KEY} {said}")
    if status == 404 and "/jobs/" in text:
        return DataError(f"the store no longer has the result; run again to request it anew. {said}")
    if status == 404:
        return ConfigurationError(
            f"there is no Climate Data Store at {endpoint}; expected {ENDPOINT}. The old address ending in "
            f"/api/v2 was switched off: correct url in ~/.cdsapirc. {said}"
        )
    if status == 403:
        return ConfigurationError(f"the store refused the request. {said}")
    return DataError(
        f"the Climate Data Store at {endpoint} did not deliver ({type(error).__name__}). Check the network "
        f"and https://status.ecmwf.int, then run again: a queued request is resumed. {said}"
    )
