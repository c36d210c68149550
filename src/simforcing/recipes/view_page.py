"""The page of `simforcing view`: one Jinja template with style and script inside, no address of another place."""

from simforcing.evaluation.page import BODY, OPENING

PAGE = (
    OPENING
    + """:root { --tint: #12a594; }
main { max-width: 1180px; margin: 0 auto; padding: 32px 20px 48px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }
p { margin: 6px 0 12px; max-width: 90ch; }
.faint { color: var(--faint); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 12px; margin: 20px 0 28px; }
.tile b { display: block; font-size: 17px; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
article { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 16px;
  margin: 0 0 20px; }
article header { display: flex; flex-wrap: wrap; gap: 4px 18px; align-items: baseline; margin-bottom: 12px; }
article header b { font-size: 16px; margin-right: auto; overflow-wrap: anywhere; }
article header span { font-size: 13px; color: var(--faint); font-variant-numeric: tabular-nums; }
article header span i { font-style: normal; color: var(--ink); font-weight: 600; }
.labels { display: grid; gap: 0 8px; font-size: 13px; margin: 0 0 5px; }
.labels b { font-weight: 600; }
.labels span { color: var(--faint); overflow-wrap: anywhere; }
.labels .overlay { border-bottom: 2px solid var(--tint); justify-self: start; }
.variants { margin-top: 14px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { padding: 6px 14px 6px 0; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--faint); font-size: 13px; font-weight: 600; }
td:first-child { white-space: nowrap; }
"""
    + BODY
    + """<div class="tiles">
{% for label, value in tiles %}<div class="tile"><b>{{ value }}</b><span>{{ label }}</span></div>
{% endfor %}</div>
{% for episode in episodes %}
<article>
<header><b>{{ episode.task or "no instruction" }}</b>
<span>{{ episode.name }}</span>
{% for label, value in episode.numbers %}<span>{{ label }} <i>{{ value }}</i></span>
{% endfor %}</header>
{% for strip in episode.strips %}
<div class="strip {{ "variants" if not loop.first }}"
style="max-width: {{ [100, 100 * (strip.labels | length) / (episode.strips[0].labels | length)] | min }}%">
<div class="labels" style="grid-template-columns: repeat({{ strip.labels | length }}, 1fr)">
{% for name, note in strip.labels %}<div class="{{ name }}"><b>{{ name }}</b> <span>{{ note }}</span></div>
{% endfor %}</div>
<video src="{{ strip.uri }}" width="{{ strip.width }}" height="{{ strip.height }}"
autoplay loop muted playsinline {{ "controls" if loop.first }}></video>
</div>
{% endfor %}
</article>
{% endfor %}
{% if left_out %}<h2>Left out</h2>
<table><thead><tr><th>episode</th><th>why</th></tr></thead><tbody>
{% for name, reason in left_out %}<tr><td>{{ name }}</td><td>{{ reason }}</td></tr>
{% endfor %}</tbody></table>{% endif %}
<h2>About this data</h2>
<dl>
{% for name, value in footer %}<dt>{{ name }}</dt><dd>{{ value }}</dd>
{% endfor %}</dl>
</main>
<script>
// The strips of an episode show the same frame: the others follow the first.
for (const article of document.querySelectorAll("article")) {
  const [first, ...others] = article.querySelectorAll("video");
  const follow = () => others.forEach(video => {
    if (Math.abs(video.currentTime - first.currentTime) > 0.06) video.currentTime = first.currentTime;
    if (first.paused !== video.paused) first.paused ? video.pause() : video.play();
  });
  if (first) ["timeupdate", "seeked", "play", "pause"].forEach(name => first.addEventListener(name, follow));
}
</script>
</body>
</html>
"""
)
