// The page of `cagp view`: state, controls and what belongs together.
import { baseMap, collection, drawCoast, dress, feature } from "./base-map.js";
import { colourOf, digitsFor, gradient, limits, ramp, ticks, written } from "./colours.js";
import { FieldLayer } from "./field-layer.js";
import { layersOf } from "./layers.js";
import { isOfObservation, openRun, rangeAt, readSeries } from "./run.js";
import { drawSeries } from "./series.js";

const CELSIUS = -273.15;
const SECONDS_BETWEEN_LOOKS = 60;
const MILLISECONDS_BETWEEN_DRAWINGS = 150;
const LONGEST_BEFORE_THE_MAP = 600; // milliseconds
const NARROW = 720; // pixels, as in style.css
const $ = id => document.getElementById(id);
const pause = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds));

const state = { layer: null, time: 0, chosen: null, dots: false, globe: false };
const scales = new Map(); // limits of colours by layer
const field = new FieldLayer();
let run, layers, map, shown, shownErrors;
let wanted = 0; // counts what was asked for: what comes late is dropped
let pictured = false; // whether there was a first picture

// --- words and numbers

const offsetOf = layer => (layer.absolute && run.isTemperature ? CELSIUS : 0);
const raised = power => power.replace(/[-\d]/g, sign => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(sign)]);
const unitOf = absolute =>
  (run.isTemperature && absolute) || run.units === "degC"
    ? "°C"
    : run.units === "1"
      ? ""
      : run.units
          .replace(/\*\*/g, "")
          .replace(/\bu(?=(?:g|m|s|l|L|mol|Pa|V|W|Sv|Gy|Bq)(?:-?\d+)?\b)/g, "µ")
          .replace(/(?<=[A-Za-z])-?\d+\b/g, raised);
const withUnit = (text, absolute) => `${text} ${unitOf(absolute)}`.trim();

function stampOf(k) {
  if (run.attrs.undated) return "";
  const text = new Date(run.times[k]).toISOString();
  return run.times.every(each => each % 864e5 === 0)
    ? text.slice(0, 10)
    : `${text.slice(0, 10)} ${text.slice(11, 16)} UTC`;
}

function placeText(latitude, longitude) {
  const x = ((longitude + 540) % 360) - 180;
  const degrees = (value, [positive, negative]) =>
    `${Math.abs(value)
      .toFixed(4)
      .replace(/\.?0+$/, "")}° ${value < 0 ? negative : positive}`;
  return `${degrees(latitude, "NS")}, ${degrees(x, "EW")}`;
}

// What an error bar or a range of a group is of.
const ofWhat = group =>
  isOfObservation(run, group) ? "an observation" : run.ofCells ? "the mean over the cell" : "the field";

// --- drawing

const layerNamed = id => layers.find(each => each.id === id) ?? layers[0];

function scaleOf(layer, values) {
  const key = layer.scale ?? layer.id;
  if (!scales.has(key))
    scales.set(
      key,
      limits(
        values.map(each => each + offsetOf(layer)),
        { symmetric: layer.symmetric, transformed: layer.transformed },
      ),
    );
  return scales.get(key);
}

async function show() {
  const turn = ++wanted;
  const layer = layerNamed(state.layer);
  $("progress").hidden = false;
  try {
    const base = layer.scale && !scales.has(layer.scale) ? layerNamed(layer.scale) : null;
    const [values, first] = await Promise.all([layer.read(state.time), base?.read(state.time)]);
    if (turn !== wanted) return;
    if (base) scaleOf(base, first);
    else scaleOf(layer, values);
    shown = { layer, values, grid: layer.points ? null : run.grids[layer.group] };
    await paint(turn);
    if (turn !== wanted) return;
    $("failure").hidden = true;
    describe();
    await Promise.all([inspect(), markErrors(turn)]);
    if (turn === wanted) ahead();
  } catch (error) {
    if (turn === wanted) fail(error);
  } finally {
    if (turn === wanted) $("progress").hidden = true;
  }
}

async function paint(turn) {
  const { layer, values, grid } = shown;
  const range = scaleOf(layer, values);
  field.range = range.map(each => each - offsetOf(layer));
  field.smooth = $("smooth").checked;
  if (grid) {
    field.colour(ramp(layer.colours));
    const marked = marksErrors() && layer.absolute && shownErrors;
    field.told = marked ? 1 / shownErrors.scale : 0;
    field.fade = $("fade").checked;
    field.hatch = $("hatch").checked;
    field.show(values, grid, marked ? shownErrors.values : null, marked ? shownErrors.grid : null);
  } else field.hide();
  await drawDots(turn, layer, values, range);
  legend(layer, range);
}

const marksErrors = () => $("fade").checked || $("hatch").checked;

// Where the standard deviation is large beside what the field varies by, colours are hatched, or fade.
async function markErrors(turn) {
  const { layer } = shown;
  if (
    !layer.absolute ||
    layer.points ||
    !run.errorBar ||
    !marksErrors() ||
    shownErrors?.time === state.time
  )
    return;
  const values = await run.arrays.plane(run.errors, run.errorBar, state.time);
  if (turn !== wanted) return;
  shownErrors = {
    time: state.time,
    values,
    grid: run.grids[run.errors],
    scale: shownErrors?.scale ?? Math.sqrt(run.priorVariance ?? spread(shown.values, values)),
  };
  await paint(turn);
}

function spread(values, errors) {
  let [count, sum, squares, error] = [0, 0, 0, 0];
  values.forEach(each => Number.isFinite(each) && ((count += 1), (sum += each), (squares += each * each)));
  errors.forEach(each => Number.isFinite(each) && (error = Math.max(error, each * each)));
  return Math.max(error, squares / count - (sum / count) ** 2) || 1;
}

async function drawDots(turn, layer, values, range) {
  const features = [];
  const colours = ramp(layer.colours);
  const offset = offsetOf(layer);
  const add = (kind, at) => {
    const { latitude, longitude } = run.points[kind] ?? {};
    at.forEach((value, k) => {
      if (Number.isFinite(value))
        features.push(
          feature("Point", [longitude[k], latitude[k]], {
            kind,
            k,
            colour: colourOf(colours, range, value + offset),
          }),
        );
    });
  };
  if (layer.points) add("heldOut", values);
  else if (state.dots && layer.absolute) {
    for (const [kind, { group }] of Object.entries(run.points))
      add(kind, await run.arrays.plane(group, run.variable, state.time));
  }
  if (turn !== wanted) return;
  const size = features.length < 300 ? 2 : features.length < 3000 ? 1.4 : 1;
  map.setPaintProperty("dots", "circle-radius", [
    "interpolate",
    ["linear"],
    ["zoom"],
    0,
    2.2 * size,
    3,
    3.2 * size,
    10,
    7 * size,
  ]);
  map.getSource("dots").setData(collection(features));
}

function legend(layer, range) {
  const unit = unitOf(layer.absolute);
  $("legend-title").textContent =
    `${layer.title[0].toUpperCase()}${layer.title.slice(1)}${unit ? ` [${unit}]` : ""}`;
  $("ramp").style.background = gradient(ramp(layer.colours));
  const marked = field.told > 0 && shown.grid !== null;
  const fading = marked && field.fade;
  $("bar").classList.toggle("fading", fading);
  $("bar").dataset.range = range.join(" ");
  const beyond = beyondScale(shown.values, field.range);
  $("bar").dataset.beyond = beyond.join(" ");
  const ends = beyond.length ? `; some values are ${beyond.join(", others ")}` : "";
  $("bar").setAttribute("aria-label", `Colours from ${range.join(" to ")}${ends}`);
  $("ticks").replaceChildren(
    ...ticks(range).map(({ value, text }) => {
      const made = Object.assign(document.createElement("span"), { textContent: text });
      made.style.left = `${(100 * (value - range[0])) / (range[1] - range[0])}%`;
      return made;
    }),
  );
  const marks = [field.hatch && "Hatched: the observations leave more than half of the variance there.",
    field.fade && "Faded: the observations tell little there."];
  const notes = [layer.note, ...(marked ? marks : [])];
  $("legend-note").textContent = notes.filter(Boolean).join(" ");
}

// At which ends of the colours there are values beyond.
function beyondScale(values, [low, high]) {
  let [smaller, larger] = [false, false];
  for (let k = 0; k < values.length; k++) {
    if (values[k] < low) smaller = true;
    if (values[k] > high) larger = true;
  }
  return [smaller && "smaller", larger && "larger"].filter(Boolean);
}

function describe() {
  $("subtitle").textContent =
    stampOf(state.time) + (run.times.length > 1 ? ` · ${state.time + 1} of ${run.times.length}` : "");
  $("stamp").textContent = stampOf(state.time);
  $("slider").value = state.time;
  $("slider").setAttribute("aria-valuetext", stampOf(state.time));
  for (const each of $("layers").children) {
    const checked = each.value === shown.layer.id;
    each.setAttribute("aria-checked", checked);
    each.tabIndex = checked ? 0 : -1;
    if (checked) $("layers").scrollLeft = each.offsetLeft - 20; // a row on phones
  }
  const parts = [
    `layer=${shown.layer.id}`,
    `time=${new Date(run.times[state.time]).toISOString().slice(0, 16)}`,
  ];
  if (state.chosen) parts.push(`at=${state.chosen.latitude},${state.chosen.longitude}`);
  history.replaceState(null, "", `#${parts.join("&")}`);
  document.documentElement.dataset.shown = `${shown.layer.id} ${state.time}`;
}

// The chunks of the next time, or of the first one after the last, are read while this one is looked at.
function ahead() {
  if (pictured && run.times.length > 1) shown.layer.read((state.time + 1) % run.times.length).catch(() => {});
}

// --- the value at a place

function chooseNothing() {
  state.chosen = null;
  inspect().then(describe).catch(fail);
}

function choose(latitude, longitude, dot = null) {
  const group = dot ? run.points[dot.kind].group : (run.map ?? null);
  if (dot) {
    const { latitude: y, longitude: x, names } = run.points[dot.kind];
    state.chosen = {
      latitude: y[dot.k],
      longitude: x[dot.k],
      group,
      place: [dot.k],
      kind: dot.kind,
      name: names?.[dot.k],
    };
  } else {
    const grid = group && run.grids[group];
    const cell = grid?.cell(latitude, longitude);
    state.chosen = cell
      ? { latitude: grid.latitude[cell[0]], longitude: grid.longitude[cell[1]], group, place: cell }
      : null;
  }
  if (state.chosen) {
    // error bars may have a coarser grid
    const coarse = group === "map" && run.errors !== "map";
    state.chosen.errors = coarse ? run.errors : group;
    state.chosen.errorPlace = coarse
      ? run.grids[run.errors].nearest(state.chosen.latitude, state.chosen.longitude)
      : state.chosen.place;
  }
  inspect().then(describe).then(uncover).catch(fail);
}

// On a phone the place that was chosen is moved out from under its value.
function uncover() {
  if (!state.chosen || innerWidth > NARROW) return;
  const { y } = map.project([state.chosen.longitude, state.chosen.latitude]);
  const [above, below] = [$("panel").getBoundingClientRect().bottom, $("inspector").getBoundingClientRect().top];
  if (y < above + 24 || y > below - 24) map.panBy([0, y - (above + below) / 2]);
}

async function inspect() {
  const { chosen } = state;
  outline(chosen);
  if (!chosen) return ($("inspector").hidden = true);
  const turn = wanted;
  const facts = await factsAt(chosen);
  if (turn !== wanted || chosen !== state.chosen) return;
  $("place").textContent =
    `${chosen.name ? `${chosen.name}, ` : ""}${placeText(chosen.latitude, chosen.longitude)}`;
  const ofObservation = isOfObservation(run, chosen.errors);
  const bar = ofObservation ? facts.noisy : facts.std;
  const digits = digitsFor(bar);
  const main = written(facts.mean + (run.isTemperature ? CELSIUS : 0), digits);
  const missing = !Number.isFinite(facts.mean);
  $("value").replaceChildren(
    missing ? "No value here" : main,
    ...(missing
      ? []
      : [small(`${Number.isFinite(bar) ? ` ± ${written(bar, digits)}` : ""} ${unitOf(true)}`)]),
  );
  $("bar-of").hidden = missing || !Number.isFinite(bar);
  $("bar-of").textContent = `± one standard deviation of ${ofWhat(chosen.errors)}${ofObservation ? ", noise included" : ""}`;
  $("facts").replaceChildren(
    ...(missing ? [] : factLines(facts, digits, chosen.errors)).flatMap(([term, text]) => [
      Object.assign(document.createElement("dt"), { textContent: term }),
      Object.assign(document.createElement("dd"), { textContent: text }),
    ]),
  );
  $("inspector").hidden = false;
  if (chosen.series) drawSeriesOf(chosen);
  else await readSeriesOf(chosen);
}

const small = text => Object.assign(document.createElement("small"), { textContent: text });

async function factsAt(chosen) {
  const { group, place } = chosen;
  const { arrays, variable } = run;
  const read = async (where, at, name) =>
    arrays.has(where, name) ? arrays.value(where, name, state.time, ...at) : undefined;
  const { errors: where, errorPlace: at } = chosen;
  const [mean, std, noisy, part, observed] = await Promise.all([
    read(group, place, `${variable}_mean`),
    read(where, at, `${variable}_std`),
    read(where, at, `${variable}_predictive_std`),
    read(where, at, `${variable}_std_computational`),
    read(group, place, variable),
  ]);
  const range = mean === undefined ? null : await rangeAt(run, where, state.time, at, mean);
  return { mean: mean ?? observed, predicted: mean !== undefined, std, noisy, part, observed, range };
}

// What stands below the value and its error bar: the range of the same, and the other error bar.
function factLines({ mean, predicted, std, noisy, part, observed, range }, digits, group) {
  const [of, ofObservation] = [ofWhat(group), isOfObservation(run, group)];
  const shift = run.isTemperature ? CELSIUS : 0;
  if (!predicted) return [["An observation that was used", ""]];
  const lines = [];
  if (range)
    lines.push([
      `90 % range of ${of}`,
      withUnit(`${written(range[0] + shift, digits)} to ${written(range[1] + shift, digits)}`, true),
    ]);
  const [other, what] = ofObservation ? [std, "the field"] : [noisy, "an observation, noise included"];
  const bars = other === undefined ? [] : [[`± of ${what}`, withUnit(written(other, digits), false)]];
  if (part > 0) {
    const most = Math.min(part, std ?? part); // a bound, which may be above what it is a part of
    bars.splice(ofObservation ? bars.length : 0, 0, [
      "± from unfinished computation, at most",
      withUnit(written(most, Math.max(digits, digitsFor(most))), false),
    ]);
  }
  lines.push(...bars);
  if (observed !== undefined) {
    lines.push(["Observed, held out", withUnit(written(observed + shift, digits), true)]);
    if (Number.isFinite(observed))
      lines.push(["Observed − predicted", withUnit(written(observed - mean, digits), false)]);
  }
  return lines;
}

async function readSeriesOf(chosen) {
  $("series").hidden = run.times.length < 2;
  if (run.times.length < 2 || !run.arrays.has(chosen.group, `${run.variable}_mean`))
    return ($("series").hidden = true);
  const isWanted = () => state.chosen === chosen;
  let drawn = 0;
  const tell = series => {
    chosen.series = series;
    if (performance.now() - drawn < MILLISECONDS_BETWEEN_DRAWINGS) return;
    drawSeriesOf(chosen);
    drawn = performance.now();
  };
  if (await readSeries(run, chosen, state.time, tell, isWanted)) drawSeriesOf(chosen);
}

function drawSeriesOf(chosen) {
  if (!chosen.series) return;
  drawSeries($("series"), {
    times: run.times,
    series: chosen.series,
    offset: run.isTemperature ? CELSIUS : 0,
    shown: state.time,
    stampOf,
    choose: goTo,
  });
  $("series").querySelector("figcaption").textContent =
    `Mean and 90 % range of ${ofWhat(chosen.errors)}${unitOf(true) ? `, ${unitOf(true)}` : ""}${chosen.kind === "heldOut" ? "; circles: observed" : ""}`;
}

function outline(chosen) {
  const features = chosen ? [feature("Point", [chosen.longitude, chosen.latitude])] : [];
  if (chosen && chosen.kind === undefined) {
    const [west, south, east, north] = run.grids[chosen.group].bounds(chosen.place);
    features.push(
      feature("LineString", [
        [west, south],
        [east, south],
        [east, north],
        [west, north],
        [west, south],
      ]),
    );
  }
  map.getSource("cell").setData(collection(features));
}

function pick(point, lngLat) {
  const box = [
    [point.x - 7, point.y - 7],
    [point.x + 7, point.y + 7],
  ];
  const [dot] = map.queryRenderedFeatures(box, { layers: ["dots"] });
  choose(lngLat.lat, lngLat.lng, dot?.properties ?? null);
}

function hover({ lngLat }) {
  const cell = shown?.grid?.cell(lngLat.lat, lngLat.lng);
  const value = cell ? shown.values[cell[0] * shown.grid.columns + cell[1]] + offsetOf(shown.layer) : NaN;
  const known = Number.isFinite(value);
  $("readout").hidden = $("needle").hidden = !known;
  if (!known) return;
  const [low, high] = scaleOf(shown.layer, shown.values);
  $("needle").style.left = `${100 * Math.min(1, Math.max(0, (value - low) / (high - low)))}%`;
  $("readout").textContent =
    `${placeText(shown.grid.latitude[cell[0]], shown.grid.longitude[cell[1]])}   ${withUnit(written(value, digitsFor((high - low) / 100)), shown.layer.absolute)}`;
}

// --- view

function home(animate = true) {
  const narrow = innerWidth <= NARROW;
  const padding = narrow
    ? { left: 10, right: 10, top: 150, bottom: 90 }
    : { left: 345, right: 20, top: 20, bottom: run.times.length > 1 ? 90 : 40 };
  const grid = run.grids[run.map];
  const [west, south, east, north] = grid
    ? [grid.west, grid.south, grid.east, grid.north]
    : extentOf(run.points.heldOut);
  const world = east - west > 300;
  if (state.globe && world) {
    const across = Math.min(
      innerWidth - padding.left - padding.right,
      innerHeight - padding.top - padding.bottom,
    );
    const center = state.center ?? [0, 20];
    const zoom = Math.log2((1.15 * across * Math.PI * Math.cos((center[1] * Math.PI) / 180)) / 512);
    map[animate ? "easeTo" : "jumpTo"]({ center, zoom, padding });
  } else {
    const [low, high] = world ? [-62, 78] : [Math.max(-84, south), Math.min(84, north)];
    const box = world
      ? [
          [-180, low],
          [180, high],
        ]
      : [
          [west, low],
          [east, high],
        ];
    map.fitBounds(box, { padding, animate, maxZoom: 9 });
  }
}

function extentOf({ latitude, longitude }) {
  const x = Array.from(longitude, each => ((each + 540) % 360) - 180);
  const ends = values => [Math.min(...values), Math.max(...values)];
  const [[west, east], [south, north]] = [ends(x), ends(Array.from(latitude))];
  return [west - 1, south - 1, east + 1, north + 1];
}

function project() {
  map.setProjection({ type: state.globe ? "globe" : "mercator" });
  $("globe").checked = state.globe;
}

// --- controls

function goTo(time) {
  const next = Math.min(run.times.length - 1, Math.max(0, time));
  if (next === state.time) return;
  state.time = next;
  $("slider").value = next;
  $("stamp").textContent = stampOf(next);
  return show();
}

let playing = null;

function play(on) {
  const token = (playing = on ? {} : null);
  $("play").textContent = on ? "❚❚" : "▶";
  $("play").setAttribute("aria-label", on ? "pause" : "play");
  const step = async () => {
    if (playing !== token || !token) return;
    const begun = performance.now();
    await goTo((state.time + 1) % run.times.length);
    setTimeout(step, Math.max(60, 350 - (performance.now() - begun)));
  };
  if (on) step();
}

function takeKey(event) {
  const { key, shiftKey, target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const side = { ArrowLeft: -1, ArrowRight: 1 }[key];
  const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
  if (target.closest("#layers") && move) {
    const turn = move[0] + move[1];
    const next =
      target.parentElement.children[
        (layers.indexOf(layerNamed(target.value)) + turn + layers.length) % layers.length
      ];
    next.focus();
    next.click();
  } else if (shiftKey && move) map.panBy(move.map(each => 120 * each));
  else if (target === $("slider")) return;
  else if (side) goTo(state.time + side);
  else if (key === "Home") goTo(0);
  else if (key === "End") goTo(run.times.length - 1);
  else if (key === "+" || key === "=") map.zoomIn();
  else if (key === "-") map.zoomOut();
  else if (key === "Escape") chooseNothing();
  else if (key === "Enter" && target === map.getCanvas()) {
    const { lat, lng } = map.getCenter();
    pick(map.project([lng, lat]), { lat, lng });
  } else return;
  event.preventDefault();
}

function buttonOf({ id, label, title }) {
  const made = Object.assign(document.createElement("button"), {
    type: "button",
    value: id,
    textContent: label,
    title,
    tabIndex: -1,
  });
  made.setAttribute("role", "radio");
  made.setAttribute("aria-checked", false); // else by describe()
  made.setAttribute("aria-label", title);
  made.addEventListener("click", () => {
    state.layer = id;
    show();
  });
  return made;
}

// A layer that depends on the values of large maps is found after the first picture.
async function findLayersOfValues() {
  const found = await layersOf(run, { ofAllTimes: true });
  found.forEach((each, k) => {
    if (layers.some(({ id }) => id === each.id)) return;
    layers.splice(k, 0, each);
    $("layers").insertBefore(buttonOf(each), $("layers").children[k] ?? null);
  });
}

function wire() {
  $("layers").replaceChildren(...layers.map(buttonOf));
  const repaint = () => show();
  for (const id of ["hatch", "fade"]) $(id).addEventListener("change", repaint);
  $("smooth").addEventListener("change", repaint);
  $("dots").addEventListener("change", event => ((state.dots = event.target.checked), repaint()));
  $("globe").addEventListener("change", event => {
    state.globe = event.target.checked;
    project();
    home();
  });
  $("fit").addEventListener("click", () => {
    scales.delete(shown.layer.scale ?? shown.layer.id);
    scaleOf(shown.layer, shown.values);
    show();
  });
  $("theme").addEventListener("click", () => {
    const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem("theme", theme);
    } catch {}
    dress(map);
  });
  const folded = on => {
    $("panel").classList.toggle("folded", on);
    $("fold").textContent = on ? "☰" : "✕";
    $("fold").setAttribute("aria-expanded", !on);
  };
  folded(true);
  $("fold").addEventListener("click", () => folded(!$("panel").classList.contains("folded")));
  $("close").addEventListener("click", () => chooseNothing());
  $("slider").max = run.times.length - 1;
  $("slider").addEventListener("input", event => goTo(Number(event.target.value)));
  $("time").hidden = run.times.length < 2;
  $("play").addEventListener("click", () => play(playing === null));
  $("earlier").addEventListener("click", () => goTo(state.time - 1));
  $("later").addEventListener("click", () => goTo(state.time + 1));
  $("in").addEventListener("click", () => map.zoomIn());
  $("out").addEventListener("click", () => map.zoomOut());
  $("home").addEventListener("click", () => home());
  document.addEventListener("keydown", takeKey);
  map.on("click", ({ point, lngLat }) => pick(point, lngLat));
  map.on("mousemove", hover);
  map.on("mouseout", () => ($("readout").hidden = $("needle").hidden = true));
  if (!layers.some(each => each.absolute && !each.points) || !Object.keys(run.points).length)
    $("dots").closest("label").hidden = true;
  if (!run.map) for (const id of ["hatch", "fade", "smooth"]) $(id).closest("label").hidden = true;
}

function introduce() {
  const heading = run.longName[0].toUpperCase() + run.longName.slice(1);
  $("title").textContent = heading;
  document.title = `${heading} – cagp view`;
  const said = {
    Run: run.attrs.run_key,
    Calibration: run.attrs.calibration_statement,
    Solver: run.attrs.solver,
    Status: run.attrs.status_advice,
    Observations: run.attrs.train_count?.toLocaleString("en"),
    Created: run.attrs.date_created,
    Source: run.attrs.title,
  };
  $("about")
    .querySelector("dl")
    .replaceChildren(
      ...Object.entries(said)
        .filter(([, text]) => text)
        .flatMap(([term, text]) => [
          Object.assign(document.createElement("dt"), { textContent: term }),
          Object.assign(document.createElement("dd"), { textContent: text }),
        ]),
    );
  if (!run.map) {
    $("note").hidden = false;
    $("note").textContent =
      "This run has no map: its job asked for none. The points are the observations that were held out, and what was predicted there.";
  }
}

function fail(error) {
  console.error(error);
  $("progress").hidden = true;
  $("failure").hidden = false;
  $("failure").textContent = (error.cause ?? error).message;
}

// --- start

async function about() {
  const answer = await fetch("view.json", { cache: "no-store" });
  if (!answer.ok) throw new Error(`the server answered ${answer.status} ${answer.statusText}`);
  return answer.json();
}

// The run that is asked for: the current one, or the series of all days of a daily job.
const asked = told =>
  new URLSearchParams(location.search).has("series") && told.series ? told.series : told;

function offerSeries(told) {
  if (!told.series) return;
  const here = asked(told) === told.series;
  const link = Object.assign(document.createElement("a"), {
    href: here ? location.pathname : "?series",
    textContent: here ? "The current run alone" : "All days of the series",
  });
  $("subtitle").after(link);
}

function lookForNewer(path) {
  const look = async () => {
    const now = await about().catch(() => null);
    $("newer").hidden = !now || asked(now).path === path;
  };
  setInterval(look, 1000 * SECONDS_BETWEEN_LOOKS);
  document.addEventListener("visibilitychange", look); // one comes back to the page
  $("newer")
    .querySelector("button")
    .addEventListener("click", () => location.reload());
}

function fromAddress() {
  const stated = new URLSearchParams(location.hash.slice(1));
  state.layer = layerNamed(stated.get("layer")).id;
  const time = run.times.indexOf(Date.parse(`${stated.get("time")}Z`));
  state.time = time >= 0 ? time : run.times.length - 1; // else the newest
  const [latitude, longitude] = (stated.get("at") ?? "").split(",").map(Number);
  return stated.has("at") && Number.isFinite(latitude) && Number.isFinite(longitude)
    ? [latitude, longitude]
    : null;
}

// What the first picture shows, into the chunks that are kept: making the map holds up what is asked meanwhile.
function readAhead() {
  const layer = layerNamed(state.layer);
  const marked = layer.absolute && !layer.points && run.errorBar && marksErrors();
  return Promise.allSettled([
    layer.read(state.time),
    marked && run.arrays.plane(run.errors, run.errorBar, state.time),
  ]);
}

async function start() {
  const told = await about();
  const { path, contents } = asked(told);
  run = await openRun(new URL(path, location.href).href, contents);
  const stated = new URLSearchParams(location.hash.slice(1)).get("layer");
  layers = await layersOf(run);
  if (stated && layerNamed(stated).id !== stated) layers = await layersOf(run, { ofAllTimes: true });
  const at = fromAddress();
  await Promise.race([readAhead(), pause(LONGEST_BEFORE_THE_MAP)]);
  map = baseMap($("map"));
  $("map").map = map; // for those who embed the page
  const loaded = new Promise(resolve => map.once("style.load", resolve));
  const grid = run.grids[run.map];
  const [west, south, east, north] = grid
    ? [grid.west, grid.south, grid.east, grid.north]
    : extentOf(run.points.heldOut);
  state.globe = east - west > 300 && north - south > 120;
  await loaded;
  map.addLayer(field, "net");
  introduce();
  wire();
  project();
  home(false);
  const isFine = Math.max(east - west, north - south) < 10; // degrees, as in maps of reports
  drawCoast(map, isFine).catch(fail);
  await show();
  if (at) choose(...at);
  offerSeries(told);
  if (told.live) lookForNewer(path);
  // a time that cannot be read says so where it is looked at
  map.once("render", () => {
    pictured = true;
    ahead();
    findLayersOfValues().catch(() => {});
  });
  map.triggerRepaint();
}

start().catch(fail);
