"""The report's page: one Jinja template with its style inside, no address of another place; and what pages share."""

OPENING = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{ title }}</title>
<style>
:root { --paper: #ffffff; --card: #f6f8fa; --ink: #1b2330; --faint: #5d6b7e; --line: #d9dfe7; }
@media (prefers-color-scheme: dark) { :root { --paper: #10151d; --card: #181f2a; --ink: #e3e9f1; --faint: #93a1b5;
  --line: #2c3644; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; }
h2 { font-size: 18px; margin: 40px 0 10px; padding-bottom: 6px; border-bottom: 1px solid var(--line); }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 16px; }
.tile span { color: var(--faint); font-size: 13px; }
video { display: block; width: 100%; height: auto; border-radius: 8px; background: #111827; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 18px; font-size: 13.5px; margin: 0; }
dt { color: var(--faint); }
dd { margin: 0; overflow-wrap: anywhere; }
"""
BODY = """</style>
</head>
<body>
<main>
<h1>{{ title }}</h1>
<p class="faint">{{ subtitle }}</p>
"""
PAGE = (
    OPENING
    + """main { max-width: 1020px; margin: 0 auto; padding: 32px 20px 48px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 4px; }
p { margin: 6px 0 12px; max-width: 78ch; }
.faint, figcaption, .note { color: var(--faint); }
.note { font-size: 13.5px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: 12px; margin: 20px 0 0; }
.tile b { display: block; font-size: 24px; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 14px; }
th, td { padding: 5px 12px 5px 0; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
td.text, th.text { text-align: left; white-space: normal; min-width: 12ch; }
th { font-weight: 600; color: var(--faint); font-size: 13px; white-space: normal; vertical-align: bottom; }
td small { color: var(--faint); display: block; }
tr.model td { font-weight: 600; }
tr.model td small { font-weight: 400; }
tr.gap td { border-top: 2px solid var(--line); }
.dot { display: inline-block; width: 10px; height: 10px; border-radius: 50%; margin-right: 8px; }
figure { margin: 0 0 18px; display: grid; gap: 8px 20px; align-items: center; }
@media (min-width: 900px) { figure { grid-template-columns: minmax(0, 780px) minmax(0, 1fr); } }
figcaption { font-size: 13.5px; }
figcaption b { display: block; color: var(--ink); font-size: 14.5px; margin-bottom: 2px; overflow-wrap: anywhere; }
figcaption table { font-size: 13px; margin-top: 8px; }
figcaption td, figcaption th { padding: 3px 6px 3px 0; }
figcaption td:first-child { white-space: normal; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr)); gap: 18px 24px; }
.charts svg { width: 100%; height: auto; display: block; }
.charts h3 { font-size: 14px; margin: 0 0 2px; }
code { font: 12.5px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
"""
    + BODY
    + """
<div class="tiles">
{% for tile in tiles %}<div class="tile"><b>{{ tile.value }}</b><span>{{ tile.label }}</span></div>
{% endfor %}</div>

<h2>Predicted videos</h2>
<p class="note">Given are the first frame, the actions, and what else the model reads (the measured
state at that frame, the instruction). Difference: largest over the channels,
doubled; black is equal.
{% if not videos %}No video was kept.{% endif %}</p>
{% for video in videos %}<figure>
<video src="{{ video.uri }}" width="{{ video.width }}" height="{{ video.height }}" 
autoplay loop muted playsinline controls></video>
<figcaption><b>{{ video.task or "no instruction" }}</b>{{ video.name }}
<table><thead><tr><th>dB</th><th>frame</th><th>moving</th></tr></thead><tbody>
{% for row in video.scores %}<tr class="{{ row.kind }}">
<td><i class="dot" style="background: {{ row.colour }}"></i>
{{- row.name }}</td><td>{{ row.psnr }}</td><td>{{ row.moving }}</td></tr>
{% endfor %}</tbody></table></figcaption>
</figure>
{% endfor %}

<h2>Scores</h2>
<p class="note">{{ counts }} Mean over clips with 95 % bootstrap interval over episodes.</p>
<div class="scroll"><table>
<thead><tr><th>row</th>{% for name in metric_names %}<th>{{ name }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in rows %}<tr class="{{ row.kind }}">
<td>{% if row.dot %}<i class="dot" style="background: {{ row.dot }}"></i>{% endif %}{{ row.label }}</td>
{% for cell in row.cells %}<td>{{ cell.mean }} <small>{{ cell.range }}</small></td>{% endfor %}
</tr>
{% endfor %}</tbody>
</table></div>
<p class="note">The copy row repeats the given frame; the ceiling row is the true video through the autoencoder alone,
above which no model on its latents can be expected. The copy row does not pass through the autoencoder: where it lies
above the ceiling, the autoencoder is too coarse for this data. Differences are paired by clip. Robot and background are
inside and outside the robot's true silhouette.
{% if robot_reason %}They are n/a: {{ robot_reason }}.{% endif %}</p>

<h2>Over time</h2>
<div class="charts">
{% for chart in charts %}<div><h3>{{ chart.title }}</h3>{{ chart.svg | safe }}</div>
{% endfor %}</div>

<h2>Does it follow the actions?</h2>
{% if following.reason %}<p>n/a: {{ following.reason }}.</p>
{% else %}<p>{{ following.summary }}</p>
<div class="scroll"><table>
<thead><tr><th>region</th><th>own actions, dB</th><th>swapped, dB</th><th>cost of swapping, dB</th></tr></thead>
<tbody>{% for row in following.rows %}<tr><td>{{ row.region }}</td><td>{{ row.own }}</td><td>{{ row.swapped }}</td>
<td>{{ row.cost.mean }} <small>{{ row.cost.range }}</small></td></tr>
{% endfor %}</tbody>
</table></div>
{% endif %}

<h2>Is the simulated robot where it should be?</h2>
{% if silhouettes.reason %}<p>n/a: {{ silhouettes.reason }}.</p>
{% else %}<p>Overlap (IoU) of the robot's silhouette in predicted simulation with the simulator's mask. The silhouette
is what differs from the background by more than {{ silhouettes.level }} of 255 in a channel: the level at which the
true simulation through the autoencoder fits the mask best.</p>
<div class="scroll"><table>
<thead><tr><th>row</th><th>IoU</th></tr></thead>
<tbody>{% for row in silhouettes.rows %}<tr><td>{{ row.label }}</td>
<td>{{ row.cell.mean }} <small>{{ row.cell.range }}</small></td></tr>
{% endfor %}</tbody>
</table></div>
{% endif %}

<h2>Does a long rollout drift?</h2>
{% if drift.reason %}<p>n/a: {{ drift.reason }}.</p>
{% else %}<p>Chunk after chunk, each from the last frames of the one before; copy is the episode's first frame.</p>
<div class="scroll"><table>
<thead><tr><th>until, s</th><th>episodes</th><th>PSNR, dB</th><th>copy</th><th>moving, dB</th><th>copy</th></tr></thead>
<tbody>{% for row in drift.rows %}<tr><td>{{ row.end }}</td><td>{{ row.count }}</td>
{% for cell in row.cells %}<td>{{ cell.mean }} <small>{{ cell.range }}</small></td>{% endfor %}</tr>
{% endfor %}</tbody>
</table></div>
{% endif %}

{% if losses %}<h2>Training</h2>
<div class="charts">
{% for chart in losses %}<div><h3>{{ chart.title }}</h3>{{ chart.svg | safe }}</div>
{% endfor %}</div>
{% endif %}

<h2>Episodes</h2>
<div class="scroll"><table>
<thead><tr><th>episode</th><th class="text">task</th><th>clips</th>
<th>PSNR, dB</th><th>copy</th><th>moving, dB</th><th>copy</th><th>SSIM</th></tr></thead>
<tbody>
{% for row in episodes %}<tr><td>{{ row.name }}</td><td class="text">{{ row.task }}</td>
{% for cell in row.cells %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</tbody>
</table></div>

<h2>How to make this again</h2>
<dl>
{% for name, value in footer %}<dt>{{ name }}</dt>
<dd>{% if name == "command" %}<code>{{ value }}</code>{% else %}{{ value }}{% endif %}</dd>
{% endfor %}</dl>
</main>
</body>
</html>
"""
)
