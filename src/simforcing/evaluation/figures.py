"""Line charts as inline SVG that take text and grid colours from the page, so that light and dark both work."""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from simforcing.evaluation.intervals import Curve

INK = "#010203"  # replaced by currentColor
COLOURS = {"model": "#2f7de1", "copy": "#e07b1f", "ceiling": "#2ba36f", "alternative": "#a35bd6"}
LOG_SPAN = 1e-4  # of a logarithmic axis, below its largest value
LEGEND_CHARS, HANDLE_CHARS = 78, 6  # what fits into one line of a legend
CYCLE = ("#2f7de1", "#e07b1f", "#2ba36f", "#a35bd6", "#d2476b", "#7c8794")


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a chart; `low` and `high` draw a band."""

    label: str
    x: Float[np.ndarray, " n"]
    y: Float[np.ndarray, " n"]
    colour: str
    low: Float[np.ndarray, " n"] | None = None
    high: Float[np.ndarray, " n"] | None = None


def curve_line(label: str, x: Float[np.ndarray, " n"], curve: Curve, colour: str) -> Line:
    """A line from a bootstrap curve."""
    return Line(label=label, x=x, y=curve.mean, low=curve.low, high=curve.high, colour=colour)


def line_chart(
    name: str, lines: Sequence[Line], *, x_label: str, y_label: str, log_y: bool = False, smooth: bool = False
) -> str:
    """The chart as an SVG element.

    Args:
        name: unique on the page; SVG ids are made of it.
        log_y: logarithmic, unless a value is negative or none is positive; zeros and values below a ten-thousandth of
            the largest lie under the axis.
        smooth: draw the raw line faintly and its running mean over it (losses).
    """
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.add_subplot()
    for line in lines:
        _draw(axes, line, smooth=smooth)
    if log_y:
        _scale(axes, np.concatenate([line.y[np.isfinite(line.y)] for line in lines]))
    _style(axes, x_label, y_label)
    if len(lines) > 1:
        columns = len(lines) if sum(len(line.label) + HANDLE_CHARS for line in lines) <= LEGEND_CHARS else 2
        figure.legend(
            frameon=False, fontsize=9, labelcolor=INK, loc="outside upper left", ncols=columns, handlelength=1.4
        )
    return _inline(figure, name)


def running_mean(y: Float[np.ndarray, " n"], window: int) -> Float[np.ndarray, " n"]:
    """Mean over the last `window` values (fewer at the start)."""
    total = np.cumsum(np.concatenate([[0.0], y]))
    stop = np.arange(1, len(y) + 1)
    start = np.maximum(stop - window, 0)
    return (total[stop] - total[start]) / (stop - start)


def _draw(axes: Axes, line: Line, *, smooth: bool) -> None:
    if line.low is not None and line.high is not None:
        axes.fill_between(line.x, line.low, line.high, color=line.colour, alpha=0.16, linewidth=0)
    if smooth and len(line.y) > 20:
        axes.plot(line.x, line.y, color=line.colour, alpha=0.25, linewidth=0.8)
        averaged = running_mean(line.y, max(2, len(line.y) // 40))
        axes.plot(line.x, averaged, color=line.colour, linewidth=1.8, label=line.label)
        return
    marker = "o" if len(line.x) <= 24 else ""
    axes.plot(line.x, line.y, color=line.colour, linewidth=1.8, marker=marker, markersize=3, label=line.label)


def _scale(axes: Axes, values: Float[np.ndarray, " n"]) -> None:
    if not (values >= 0).all() or not (values > 0).any():
        return
    low, high = max(values[values > 0].min(), LOG_SPAN * values.max()), values.max()
    axes.set_yscale("log")
    axes.set_ylim(low / 1.15, high * 1.15)
    steps = (1, 1.5, 2, 3, 5, 7) if high / low < 10 else (1, 2, 5) if high / low < 300 else (1,)
    axes.yaxis.set_major_locator(LogLocator(subs=steps))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _style(axes: Axes, x_label: str, y_label: str) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(INK)
        axes.spines[side].set_alpha(0.4)
    axes.tick_params(colors=INK, labelsize=9, which="both", length=3)
    axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.8)
    axes.set_xlabel(x_label, color=INK, fontsize=9.5)
    axes.set_ylabel(y_label, color=INK, fontsize=9.5)
    axes.xaxis.set_major_locator(MaxNLocator(8))


def _inline(figure: Figure, name: str) -> str:
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "font.family": "sans-serif"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = svg.replace("xlink:href", "href")
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg).replace("url(#", f"url(#{name}-")
    svg = re.sub(r"font: [^;\"]*?(\d+(?:\.\d+)?)px[^;\"]*", r"font-size: \1px", svg)
    svg = svg.replace(INK, "currentColor")
    # The page gives the size, and HTML needs no name spaces.
    return re.sub(r'<svg [^>]*viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" role="img">', svg, count=1)
