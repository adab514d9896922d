"""Words of categories that change what a value is: bad measurements, forecasts, extremes, scenarios.

A column of the words SYNOP and METAR, or land and sea, tells measurements of one quantity apart. One of the
words observed and forecast, mean and maximum, or valid and rejected, has others among them.
"""

import re
from collections.abc import Sequence
from typing import Any

from cagp_dist.fields.column_names import plain

_BAD = re.compile(
    r"(is_)?(probably_|possibly_)?(bad|reject(ed)?|invalid|not_(valid|ok|good|accepted)|suspect(ed)?|suspicious|"
    r"dubious|doubtful|erroneous|error|fail(ed|ure)?|wrong|flagged|spurious|outliers?|spikes?|questionable|"
    r"unreliable|unusable|discard(ed)?|excluded?|removed|faulty|defect(ive)?|malfunction|corrupt(ed)?|"
    r"contaminated|incorrect|inconsistent|quarantined?|do_not_use|verworfen|fehlerhaft)"
    r"(_(data|values?|measurements?|quality))?"
)
_GOOD = re.compile(
    r"(is_)?(probably_)?(good|ok(ay)?|valid(ated)?|accept(ed|able)?|approved|pass(ed)?|correct|verified|best|"
    r"nominal|final|clean|reliable|usable|used?|included?|keep|kept|released|normal)(_(data|values?|measurements?|quality))?"
)
_TRUE, _FALSE = {"true", "t", "yes", "y", "1"}, {"false", "f", "no", "n", "0"}
_BAD_CODES = {"3", "4"}  # of Argo, IODE, GTSPP and QARTOD: probably bad or suspect, and bad
_CODED = re.compile(r"(.*_)?(q[cf]|flags?|quality_(code|flag)|q[cf]_(flag|code))")

_EACH = (
    r"((daily|hourly|weekly|monthly|seasonal|annual|yearly|absolute|air|temp(erature)?|t|\d+_?h(ours?)?)_?)?"
)
_OF = r"(_(values?|data|temp(erature)?|statistics?|rows?|\d+_?h(ours?)?))?"
_MEANINGS = {
    "forecast": r"forecast(ed|s)?|fcst|fc|progno(sis|stic|se)|predict(ed|ions?)?|project(ed|ions?)|nowcast|"
    r"hindcast|outlook|vorhersage|pronostico|prevision|forecast_\w+",
    "model": r"model(l?ed)?|simulat(ed|ions?)|synthetic|re_?analysis|first_guess|hypothetical|planned|target",
    "filled": r"estimated?|imputed|interpolat(ed|ion)|gap_?fill(ed)?|in_?filled|filled|extrapolated|"
    r"reconstruct(ed|ion)|climatolog(y|ical)|long_term_mean",
    "maximum": rf"{_EACH}(max(imum|ima)?|highest|tmax|tx)",
    "minimum": rf"{_EACH}(min(imum|ima)?|lowest|tmin|tn)",
    "mean": rf"{_EACH}(mean|avg|average|tavg|tmean|tm|mittel(wert)?)",
    "median": rf"{_EACH}median",
    "sum": rf"{_EACH}(sum|total|accumulat(ed|ion)|cumulative)",
    "spread": rf"{_EACH}(std(dev|ev)?|sd|standard_deviation|variance|var|range|amplitude|iqr|rmse)",
    "count": r"count|n_?obs|number_of_\w+",
    "bound": r"(lower|upper)_(bound|limit|ci)|ci_?(low(er)?|high|upper)|[pq]_?\d\d?|\d\d?(th)?_?percentile",
    "anomaly": r"anomal(y|ies)|departures?|differences?|delta|normali[sz]ed|standardi[sz]ed|percent_of_\w+",
    "raw": r"raw|un_?(corrected|adjusted|calibrated|processed)",
    "trial": r"test|calibration|calibrating|blank|field_blank|maintenance|simulation_test",
}  # fmt: skip
_PATTERNS = {meaning: re.compile(f"({pattern}){_OF}") for meaning, pattern in _MEANINGS.items()}
_SCENARIO = re.compile(r"(ssp|rcp)_?\d.*|pi_?control|hist_?nat|abrupt.*|1pct_?co2|sres.*|a1b|a1fi")
_TELLS = re.compile(
    r"(.*_)?(scenarios?|ssp|rcp|pathway|statistics?|stat|cell_?methods?|"
    r"aggregat(e|ion)(_?(type|method|function))?|basis|baseline|(base|reference|normals?)_period|"
    r"members?|ensemble(_members?)?|realization|"
    r"(is_)?((bias_|gauge_|height_|wind_)?corrected|adjusted|homogeni[sz]ed|detrended|(reduced|corrected)_to_\w+))"
    r"(_(id|name|code|type))?"
)
"""Columns whose texts and numbers always tell quantities apart."""

_PRESSURE = re.compile(r"qnh|qfe|qff|qne")  # at sea level, of the station, and reduced in other ways
_MOIST = re.compile(r"(wet|dry)([_ ](bulb|basis|weight|matter))?", re.IGNORECASE)
_SAYS_KIND = re.compile(r"(.*_)?(type|kind|method|bulb|weight|thermometer|art|tipo)")

_NEGATIVE = re.compile(r"(is_)?(neg(ative)?|minus|below_zero)")
_MINUS = {"-", "\u2212", "minus", "neg", "negative", "below"}
_PLUS = {"+", "plus", "pos", "positive", "above", ""}


def meaning_of(cell: str) -> str:
    """Say what a word of a category makes of a value, such as a forecast; empty of what was measured."""
    spelled = plain(cell)
    if _PRESSURE.fullmatch(spelled) or _SCENARIO.fullmatch(spelled):
        return spelled.replace("_", "")
    return next((meaning for meaning, held in _PATTERNS.items() if held.fullmatch(spelled)), "")


def may_tell(name: str) -> bool:
    """Whether numbers of a column change what values are by its name, such as ``rcp`` and ``is_forecast``."""
    spelled = plain(name)
    return any(map(re.Pattern.fullmatch, (_TELLS, _NEGATIVE), (spelled, spelled))) or bool(
        _meaning_of_truth(name)
    )


def _meaning_of_truth(name: str) -> str:
    """Say what values are for which a column is true, by its name."""
    return meaning_of(re.sub(r"^(is|was|has)_|_flag$", "", plain(name)))


def mixes_quantities(name: str, cells: Sequence[Any]) -> bool:
    """Whether different cells of a column, empty ones among them, say that values are different things."""
    if _TELLS.fullmatch(plain(name)):
        return len([cell for cell in cells if cell != ""]) > 1
    moist = {found[1].lower() for cell in cells if (found := _MOIST.fullmatch(str(cell)))}
    if len(moist) > 1 and _SAYS_KIND.fullmatch(plain(name)):
        return True
    if _are_truths(cells):  # is_forecast
        return len(cells) > 1 and bool(_meaning_of_truth(name))
    return len({meaning_of(cell) for cell in cells if isinstance(cell, str)}) > 1


def measured_first(name: str, cells: Sequence[Any]) -> list[Any]:
    """Put what was measured, and is good as far as that is said, before the rest."""
    if plain(name).endswith("qa_value"):  # of TROPOMI, from 0 to 1
        return sorted(cells, reverse=True)
    truths = _are_truths(cells) and bool(_meaning_of_truth(name))

    def rank(cell: Any) -> int:
        if is_bad(name, cell):
            return 3
        if truths:
            return 2 if str(cell).lower() in _TRUE else 0
        if _CODED.fullmatch(plain(name)) and _code(cell) in _BAD_CODES:
            return 2
        return 0 if _GOOD.fullmatch(plain(str(cell))) else 2 if meaning_of(str(cell)) else 1

    return sorted(cells, key=rank)


def is_bad(name: str, cell: Any) -> bool:
    """Whether a cell says that a value is bad: by its word, or by its truth where the name has the word."""
    word, spelled = plain(name).removesuffix("_flag"), str(cell).strip().lower()
    if spelled in _TRUE or _code(cell) == "1":
        return any(map(_BAD.fullmatch, (word, word.rpartition("_")[2])))
    if spelled in _FALSE or _code(cell) == "0":
        return any(map(_GOOD.fullmatch, (word, word.rpartition("_")[2])))
    return isinstance(cell, str) and _BAD.fullmatch(plain(cell)) is not None


def may_be_bad(name: str, cell: Any) -> bool:
    """Whether the code of a flag is bad in the schemes that most oceanographers use, though not in all."""
    return bool(_CODED.fullmatch(plain(name))) and _code(cell) in _BAD_CODES


def is_sign(name: str, cells: Sequence[Any]) -> bool:
    """Whether cells, as they are written, are signs of values, some of them below zero."""
    words, named = {str(cell).lower() for cell in cells}, re.fullmatch(r"(.*_)?sign", plain(name)) is not None
    if named:
        words = {
            {"-1": "-", "1": "+", "+1": "+", "0": ""}.get(word.removesuffix(".0"), word) for word in words
        }
    both = bool(words & _MINUS) and (named or bool(words & _PLUS - {""}))
    negative = _NEGATIVE.fullmatch(plain(name)) is not None and _are_truths(cells) and bool(words & _TRUE)
    return negative or (both and words <= _MINUS | _PLUS)


def _are_truths(cells: Sequence[Any]) -> bool:
    spelled = {str(cell).strip().lower().removesuffix(".0") for cell in cells if cell != ""}
    return bool(spelled) and spelled <= _TRUE | _FALSE


def _code(cell: Any) -> str:
    return str(cell).strip().removesuffix(".0")
