"""The report stands alone, is well-formed HTML, and lets no text of the data act as markup."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from simforcing.evaluation.following import CounterfactualGroup, cost_of_swapped_actions, not_applicable
from simforcing.evaluation.protocols import protocol_named
from simforcing.evaluation.report import report_html, write_report
from simforcing.evaluation.result import EvaluationSettings, Provenance
from simforcing.evaluation.scoring import evaluate
from simforcing.types import Rejected

FREE = protocol_named("predicted-frames")
EVIL = "<script>alert('x')</script> & \"stir\""
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Outline(HTMLParser):
    """Checks that tags nest, and collects tags, attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> does not close the last tag"

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def outline(page: str) -> Outline:
    parser = Outline()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


@pytest.fixture
def result(world, clips, reconstruct):
    provenance = Provenance(
        run="runs/tabletop",
        command="simforcing evaluate runs/tabletop",
        data="data/tabletop",
        data_fingerprint="0123abcd",
        sampler={"solver": "euler", "num_steps": 10},
        rejected=(Rejected(name="episode 77", reason="NaN in action row 3"),),
    )
    clips = [replace(clip, task=EVIL) for clip in clips]
    settings = EvaluationSettings(num_videos=2, seed=11, num_resamples=200)
    return replace(evaluate(clips, world.obedient, reconstruct, FREE, settings=settings), provenance=provenance)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    records = [{"step": i, "loss": 1 / i, "terms": {}, "lr": 1e-3, "grad_norm": 1.0} for i in range(1, 60)]
    records[30]["validation"] = {"loss": 0.2}
    path.write_text("".join(json.dumps(record) + "\n" for record in records) + '{"step": 60, "lo')
    return path


def test_the_page_is_well_formed_and_its_ids_are_unique(result, log: Path) -> None:
    page = outline(report_html(result, title="Held out", logs={"autoencoder": log, "world model": log}))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert ids
    assert sum(tag == "svg" for tag, _ in page.tags) == 5
    assert sum(tag == "video" for tag, _ in page.tags) == 2


def test_the_page_refers_to_no_other_place(result, log: Path) -> None:
    html = report_html(result, title="Held out", logs={"world model": log})
    assert "http://" not in html
    assert "https://" not in html
    assert not re.search(r"@import|<link|<iframe|<script", html)
    for _, attributes in outline(html).tags:
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith(("data:video/mp4;base64,", "#"))


def test_every_reference_inside_a_chart_finds_its_target(result) -> None:
    html = report_html(result, title="Held out")
    ids = set(re.findall(r'id="([^"]+)"', html))
    targets = set(re.findall(r'href="#([^"]+)"', html)) | set(re.findall(r"url\(#([^)]+)\)", html))
    assert targets
    assert targets <= ids


def test_the_task_s_text_cannot_act(result) -> None:
    html = report_html(result, title=EVIL)
    page = outline(html)
    assert "script" not in {tag for tag, _ in page.tags}
    assert any(EVIL in text for text in page.text)


def test_the_page_carries_where_it_comes_from(result) -> None:
    text = " ".join(outline(report_html(result, title="Held out")).text)
    for expected in (
        "simforcing evaluate runs/tabletop",
        "0123abcd",
        "predicted-frames",
        "seed 11 + i",
        "num_steps 10",
        "episode 77: NaN in action row 3",
        "torch",
        "copy of the given frame",
        "autoencoder ceiling",
    ):
        assert expected in text


def test_the_numbers_of_the_table_are_those_of_the_result(result) -> None:
    text = " ".join(outline(report_html(result, title="Held out")).text)
    for row in result.rows:
        interval = result.interval(row, "psnr")
        assert f"{interval.mean:.2f}" in text
        assert f"[{interval.low:.2f}, {interval.high:.2f}]" in text


def test_swapped_actions_are_a_table_or_a_reason(result, world) -> None:
    steps = np.array([[2.0, 0.0], [-2.0, 0.0]])
    branches = tuple(world.clip(f"b{i}", (20, 20), np.repeat(s[None], 8, axis=0)) for i, s in enumerate(steps))
    following = cost_of_swapped_actions([CounterfactualGroup(start="s", clips=branches)], world.obedient, FREE)
    measured = report_html(result, title="a", following=following)
    assert f"{following.cost(moving=False).mean:+.2f}" in measured
    assert "n/a: only one branch was recorded." in report_html(
        result, title="a", following=not_applicable("only one branch was recorded")
    )


def test_missing_or_broken_logs_leave_the_page_whole(result, tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text("not json\n")
    page = outline(report_html(result, title="a", logs={"gone": tmp_path / "none.jsonl", "broken": broken}))
    assert "Training" not in page.text


def test_writing_leaves_one_complete_file(result, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(path, result, title="Held out")
    assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")
    assert [item.name for item in tmp_path.iterdir()] == ["report.html"]
