// The series at a place as a small drawing: band of the 90 % range, mean, observations, the time shown.
import { ticks } from "./colours.js";

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [340, 150, 40, 8, 8, 22];
const SVG = "http://www.w3.org/2000/svg";

export function drawSeries(figure, { times, series, offset, shown, stampOf, choose }) {
  const shift = values => values.map(each => each + offset);
  const [mean, low, high, observed] = [series.mean, series.low, series.high, series.observed].map(shift);
  const all = [...mean, ...low, ...high, ...observed].filter(Number.isFinite);
  if (all.length === 0) return;
  const span = Math.max(...all) - Math.min(...all) || 1;
  const range = [Math.min(...all) - 0.04 * span, Math.max(...all) + 0.04 * span];
  const x = k => LEFT + ((times[k] - times[0]) / (times.at(-1) - times[0] || 1)) * (WIDTH - LEFT - RIGHT);
  const y = value => HEIGHT - BOTTOM - ((value - range[0]) / (range[1] - range[0])) * (HEIGHT - TOP - BOTTOM);
  const svg = document.createElementNS(SVG, "svg");
  const draw = (name, attributes, text) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, each] of Object.entries(attributes)) made.setAttribute(key, each);
    if (text !== undefined) made.textContent = text;
    return svg.appendChild(made);
  };
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `Series from ${stampOf(0)} to ${stampOf(times.length - 1)}`);
  for (const { value, text } of ticks(range, 4)) {
    draw("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) });
    draw("text", { class: "label", x: LEFT - 5, y: y(value) + 3.5, "text-anchor": "end" }, text);
  }
  draw("text", { class: "label", x: LEFT, y: HEIGHT - 6 }, stampOf(0));
  draw(
    "text",
    { class: "label", x: WIDTH - RIGHT, y: HEIGHT - 6, "text-anchor": "end" },
    stampOf(times.length - 1),
  );
  for (const run of stretches(low.map((each, k) => each + high[k]))) {
    const [there, back] = [
      run.map(k => `${x(k)},${y(high[k])}`),
      run.map(k => `${x(k)},${y(low[k])}`).reverse(),
    ];
    if (run.length > 1) draw("polygon", { class: "band", points: [...there, ...back].join(" ") });
    else
      draw("line", { class: "bar", x1: x(run[0]), x2: x(run[0]), y1: y(low[run[0]]), y2: y(high[run[0]]) });
  }
  for (const run of stretches(mean)) {
    draw("polyline", { class: "mean", points: run.map(k => `${x(k)},${y(mean[k])}`).join(" ") });
    if (run.length === 1) draw("circle", { class: "dot", cx: x(run[0]), cy: y(mean[run[0]]), r: 2 });
  }
  observed.forEach(
    (each, k) =>
      Number.isFinite(each) &&
      draw("circle", { class: "seen", cx: x(k), cy: y(each), r: times.length > 100 ? 1.4 : 2.4 }),
  );
  draw("line", { class: "now", x1: x(shown), x2: x(shown), y1: TOP, y2: HEIGHT - BOTTOM });
  if (Number.isFinite(mean[shown]))
    draw("circle", { class: "here", cx: x(shown), cy: y(mean[shown]), r: 3.4 });
  svg.addEventListener("click", event => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * WIDTH;
    choose(times.reduce((best, _, k) => (Math.abs(x(k) - at) < Math.abs(x(best) - at) ? k : best), 0));
  });
  figure.querySelector("svg")?.remove();
  figure.prepend(svg);
}

// Runs of neighbouring indices whose values are known.
function stretches(values) {
  const found = [];
  values.forEach((each, k) => {
    if (!Number.isFinite(each)) return;
    if (found.at(-1)?.at(-1) === k - 1) found.at(-1).push(k);
    else found.push([k]);
  });
  return found;
}
