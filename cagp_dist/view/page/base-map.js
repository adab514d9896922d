// The map below the field: coast lines of the package, meridians and parallels, dots; no request leaves the server.
import * as maplibre from "./vendor/maplibre-gl.js";

maplibre.setWorkerUrl(new URL("./vendor/maplibre-gl-worker.js", import.meta.url).href);
maplibre.setWorkerCount(1);

const EMPTY = { type: "FeatureCollection", features: [] };
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export const collection = features => ({ type: "FeatureCollection", features });
export const feature = (type, coordinates, properties = {}) => ({
  type: "Feature",
  properties,
  geometry: { type, coordinates },
});

export function baseMap(container) {
  if (!document.createElement("canvas").getContext("webgl2")) {
    throw new Error("The map needs WebGL 2, which this browser does not have or does not allow.");
  }
  const line = (id, source, width, colour, opacity = 1) => ({
    id,
    source,
    type: "line",
    layout: { "line-join": "round" },
    paint: { "line-color": css(colour), "line-width": width, "line-opacity": opacity },
  });
  const map = new maplibre.Map({
    container,
    attributionControl: false,
    keyboard: false,
    dragRotate: false,
    pitchWithRotate: false,
    touchPitch: false,
    maxZoom: 12,
    minZoom: -2,
    fadeDuration: 0,
    canvasContextAttributes: { antialias: true },
    style: {
      version: 8,
      sources: Object.fromEntries(
        ["net", "coast", "cell", "dots"].map(name => [
          name,
          { type: "geojson", data: EMPTY, tolerance: 0.1 },
        ]),
      ),
      layers: [
        { id: "ground", type: "background", paint: { "background-color": css("--ground") } },
        line("net", "net", 0.8, "--net"),
        line("halo", "coast", 2.4, "--coast-halo", 0.35),
        line("coast", "coast", 1, "--coast", 0.85),
        {
          id: "dots",
          source: "dots",
          type: "circle",
          paint: {
            "circle-color": ["get", "colour"],
            "circle-radius": ["interpolate", ["linear"], ["zoom"], 0, 2.2, 3, 3.6, 6, 6, 10, 9],
            "circle-stroke-color": css("--coast"),
            "circle-stroke-width": 0.6,
          },
        },
        line("cell", "cell", 1.6, "--coast"),
        {
          id: "here",
          source: "cell",
          type: "circle",
          filter: ["==", ["geometry-type"], "Point"],
          paint: {
            "circle-radius": 8,
            "circle-opacity": 0,
            "circle-stroke-color": css("--coast"),
            "circle-stroke-width": 2,
          },
        },
      ],
    },
  });
  map.touchZoomRotate.disableRotation();
  map.getCanvas().setAttribute("aria-label", container.getAttribute("aria-label"));
  return map;
}

export function dress(map) {
  map.setPaintProperty("ground", "background-color", css("--ground"));
  for (const [layer, colour] of [
    ["net", "--net"],
    ["halo", "--coast-halo"],
    ["coast", "--coast"],
    ["cell", "--coast"],
  ]) {
    map.setPaintProperty(layer, "line-color", css(colour));
  }
  for (const layer of ["dots", "here"]) map.setPaintProperty(layer, "circle-stroke-color", css("--coast"));
}

export async function drawCoast(map, isFine) {
  const lines = [[]];
  const address = isFine ? "coastline-fine.npy" : "coastline.npy";
  for (const [x, y] of rowsOf(await (await fetch(address)).arrayBuffer())) {
    if (Number.isNaN(x)) {
      lines.push([]);
      continue;
    }
    const step = lines.at(-1).length ? x - lines.at(-1).at(-1)[0] : 0;
    if (Math.abs(step) > 180) {
      // over the antimeridian: on to its other side, and not back around the globe
      lines.at(-1).push([x - 360 * Math.sign(step), y]);
      lines.push([]);
    }
    lines.at(-1).push([x, y]);
  }
  map.getSource("coast").setData(
    feature(
      "MultiLineString",
      lines.filter(each => each.length > 1),
    ),
  );
  const net = [];
  const steps = (from, to, by) =>
    Array.from({ length: Math.round((to - from) / by) + 1 }, (_, k) => from + by * k);
  for (const x of steps(-180, 150, 30)) net.push(steps(-84, 84, 4).map(y => [x, y]));
  for (const y of steps(-60, 60, 30)) net.push(steps(-180, 180, 4).map(x => [x, y]));
  map.getSource("net").setData(feature("MultiLineString", net));
}

// Rows of two numbers of a .npy file of floats.
function rowsOf(buffer) {
  const view = new DataView(buffer);
  const long = view.getUint8(6) > 1;
  const start = (long ? 12 : 10) + (long ? view.getUint32(8, true) : view.getUint16(8, true));
  const header = new TextDecoder("latin1").decode(buffer.slice(0, start));
  const values = header.includes("<f8")
    ? new Float64Array(buffer.slice(start))
    : new Float32Array(buffer.slice(start));
  if (!/'descr': '<f[48]'/.test(header) || !/'fortran_order': False/.test(header))
    throw new Error("coastline.npy is not what was expected");
  return Array.from({ length: values.length / 2 }, (_, k) => [values[2 * k], values[2 * k + 1]]);
}
