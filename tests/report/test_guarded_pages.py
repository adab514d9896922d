"""Pages escape what a run brings, wherever it stands, and let a browser load and run nothing else."""

import base64
import hashlib
import json
import re
from html import unescape
from html.parser import HTMLParser

from cagp_dist.report import write_report

from .make_run import HOURS, make_run

HOSTILE = '<img src=x onerror="alert(1)"> $\\frac{'


class Tags(HTMLParser):
    """Tags with what an intruder would need: pictures from elsewhere, handlers of events."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name.startswith("on") or (name == "src" and not str(value).startswith("data:image/")):
                self.found.append(f"{tag} {name}={value}")


def test_hostile_units_are_text_in_every_figure_and_sentence(tmp_path):
    run = make_run(tmp_path, times=HOURS[:2], test_count=60, map_step=None, iterations=1, recalibrated=True)
    for file in run.glob("posterior/t2m*/zarr.json"):
        metadata = json.loads(file.read_text())
        metadata["attributes"]["units"] = HOSTILE
        file.write_text(json.dumps(metadata))
    page = write_report(run).read_text(encoding="utf-8")
    assert page.count("&lt;img src=x") > 10
    assert Tags(page).found == []


def test_the_policy_names_the_one_style_and_the_one_script(hourly_report, global_report):
    for report, scripts in ((hourly_report, 1), (global_report, 0)):
        page = report.read_text(encoding="utf-8")
        policy = unescape(re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1])
        assert policy.startswith("default-src 'none'; ")
        for kind in ("script", "style"):
            texts = re.findall(
                f"<{kind}[^>]*>(.*?)</{kind}>", re.sub("<script type.*?</script>", "", page), re.S
            )
            assert len(texts) == (scripts if kind == "script" else 1)
            digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
            allowed = " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
            assert f"; {kind}-src {allowed}; " in policy
