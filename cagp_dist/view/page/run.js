// Reads a published run: its Zarr store by HTTP, every chunk compared with its checksum.
import * as zarr from "./vendor/zarrita.js";

const CACHE_BYTES = 256 * 2 ** 20; // decoded chunks that are kept
const NORMAL_95 = 1.6448536269514722; // quantile of the standard normal distribution at 0.95

const workers = Array.from(
  { length: Math.max(1, Math.min(4, (navigator.hardwareConcurrency ?? 2) - 1)) },
  () => {
    const worker = new Worker(new URL("./unpacker.js", import.meta.url), { type: "module" });
    worker.addEventListener("message", ({ data: { number, found, fault } }) => {
      const { resolve, reject } = waiting.get(number);
      waiting.delete(number);
      if (fault === undefined) resolve(found);
      else reject(new Error(fault));
    });
    return worker;
  },
);
const waiting = new Map();
let sent = 0;

function unpack(codec, bytes) {
  const own = bytes.byteLength === bytes.buffer.byteLength ? bytes : bytes.slice(); // the others may be read on
  return new Promise((resolve, reject) => {
    waiting.set(++sent, { resolve, reject });
    workers[sent % workers.length].postMessage({ number: sent, codec, bytes: own }, [own.buffer]);
  });
}

// zarrita's own crc32c does not compare, and its zstd is large
for (const codec of ["zstd", "crc32c"]) {
  const made = {
    kind: "bytes_to_bytes",
    encode: () => Promise.reject(new Error("runs are only read here")),
    decode: bytes => unpack(codec, bytes),
    ...(codec === "crc32c" && { computeEncodedSize: size => size + 4 }),
  };
  zarr.registry.set(codec, () => ({ fromConfig: () => made }));
}

// A missing chunk would read as missing values.
class WholeStore extends zarr.FetchStore {
  async get(key, options) {
    return this.#there(key, await super.get(key, options));
  }
  async getRange(key, range, options) {
    return this.#there(key, await super.getRange(key, range, options));
  }
  #there(key, found) {
    if (found === undefined && !key.endsWith("zarr.json")) {
      throw new Error(
        `${key} is missing. The run was removed, or it is damaged: reload, or see \`cagp verify\`.`,
      );
    }
    return found;
  }
}

// Arrays of one run, of which one reads slices; decoded chunks are kept as far as CACHE_BYTES allow.
class Arrays {
  #kept = new Map();
  #bytes = 0;

  constructor(root, contents) {
    this.root = root;
    this.contents = contents;
    this.open = new Map();
  }

  has(group, name) {
    return this.contents[group]?.includes(name) ?? false;
  }

  get(group, name) {
    const path = `${group}/${name}`;
    if (!this.open.has(path)) this.open.set(path, zarr.open.v3(this.root.resolve(path), { kind: "array" }));
    return this.open.get(path);
  }

  // How many values a plane has.
  async planeSize(group, name) {
    const { shape } = await this.get(group, name);
    const leading = this.#own(group, [0]).length + this.#deep(group).length;
    return shape.slice(leading).reduce((so, each) => so * each, 1);
  }

  // All values of a coordinate: numbers, or text.
  async all(group, name) {
    const array = await this.get(group, name);
    return (await zarr.get(array)).data;
  }

  async #chunk(array, coords) {
    const key = `${array.path} ${coords}`;
    let found = this.#kept.get(key);
    this.#kept.delete(key);
    if (!found) {
      found = { bytes: 0, chunk: array.getChunk(coords) };
      found.chunk.then(
        chunk => {
          found.bytes = chunk.data.byteLength;
          this.#bytes += found.bytes;
          for (const [old, { bytes }] of this.#kept) {
            if (this.#bytes <= CACHE_BYTES || old === key) break;
            this.#kept.delete(old);
            this.#bytes -= bytes;
          }
        },
        () => this.#kept.delete(key),
      );
    }
    this.#kept.set(key, found);
    return found.chunk;
  }

  // Indices of an array: of a run without time the first is none.
  #own(group, index) {
    return this.has(group, "time") ? index : index.slice(1);
  }

  // Index of the depth of a map at several, of which the first is shown.
  #deep(group) {
    return group.startsWith("map") && this.has(group, "depth") ? [0] : [];
  }

  // One value.
  async value(group, name, ...given) {
    const own = this.#own(group, given);
    const deep = this.#deep(group);
    const index = deep.length ? [...own.slice(0, -2), ...deep, ...own.slice(-2)] : own;
    const array = await this.get(group, name);
    const { data, stride } = await this.#chunk(
      array,
      index.map((i, k) => Math.floor(i / array.chunks[k])),
    );
    return data[index.reduce((so, i, k) => so + (i % array.chunks[k]) * stride[k], 0)];
  }

  // Values (rows, columns), or of points, at the leading indices.
  async plane(group, name, ...given) {
    const lead = [...this.#own(group, given), ...this.#deep(group)];
    const array = await this.get(group, name);
    const shape = array.shape.slice(lead.length);
    const [rows, columns] = shape.length > 1 ? shape : [1, shape[0]];
    const [tall, wide] = shape.length > 1 ? array.chunks.slice(lead.length) : [1, array.chunks.at(-1)];
    const out = new Float64Array(rows * columns);
    const blocks = [];
    for (let row = 0; row < rows; row += tall) {
      for (let column = 0; column < columns; column += wide) blocks.push([row, column]);
    }
    const copy = async ([row, column]) => {
      const at = shape.length > 1 ? [row / tall, column / wide] : [column / wide];
      const { data, stride } = await this.#chunk(array, [
        ...lead.map((i, k) => Math.floor(i / array.chunks[k])),
        ...at,
      ]);
      const base = lead.reduce((so, i, k) => so + (i % array.chunks[k]) * stride[k], 0);
      const down = shape.length > 1 ? stride.at(-2) : 0;
      const width = Math.min(wide, columns - column);
      for (let r = 0; r < Math.min(tall, rows - row); r++) {
        const from = base + r * down;
        out.set(data.subarray(from, from + width), (row + r) * columns + column);
      }
    };
    await Promise.all(blocks.map(copy));
    return out;
  }

  // Values of one place at all times, as [first time, values]: chunk by chunk, the nearest to a time first.
  async *along(group, name, place, near, ...between) {
    if (!this.has(group, "time")) {
      yield [0, Float64Array.of(await this.value(group, name, 0, ...between, ...place))];
      return;
    }
    const array = await this.get(group, name);
    const long = array.chunks[0];
    const firsts = Array.from({ length: Math.ceil(array.shape[0] / long) }, (_, k) => k * long);
    firsts.sort((a, b) => Math.abs(a + long / 2 - near) - Math.abs(b + long / 2 - near));
    const rest = [...between, ...this.#deep(group), ...place];
    for (const first of firsts) {
      const coords = [first / long, ...rest.map((i, k) => Math.floor(i / array.chunks[k + 1]))];
      const { data, stride } = await this.#chunk(array, coords);
      const base = rest.reduce((so, i, k) => so + (i % array.chunks[k + 1]) * stride[k + 1], 0);
      const count = Math.min(long, array.shape[0] - first);
      yield [first, Float64Array.from({ length: count }, (_, k) => data[base + k * stride[0]])];
    }
  }
}

// The axes of a latitude-longitude grid, ascending or descending, in any convention of longitudes.
export class Grid {
  constructor(latitude, longitude) {
    this.latitude = latitude;
    this.longitude = unrolled(longitude);
    this.rows = latitude.length;
    this.columns = longitude.length;
    [this.south, this.north] = edges(this.latitude).map(each => Math.min(90, Math.max(-90, each)));
    [this.west, this.east] = edges(this.longitude);
    const spacing = (this.east - this.west) / this.columns;
    this.around = this.east - this.west > 360 - 0.5 * spacing;
    if (this.around) this.east = this.west + 360;
  }

  // The cell [row, column] that a place is in, or null.
  cell(latitude, longitude) {
    const x = this.#turned(longitude);
    return latitude >= this.south && latitude <= this.north && x <= this.east
      ? this.nearest(latitude, longitude)
      : null;
  }

  // The cell that is nearest to a place.
  nearest(latitude, longitude) {
    return [nearest(this.latitude, latitude), nearest(this.longitude, this.#turned(longitude), true)];
  }

  #turned(longitude) {
    return longitude - 360 * Math.floor((longitude - this.west) / 360);
  }

  // Where a cell ends: [west, south, east, north].
  bounds([row, column]) {
    const [south, north] = between(this.latitude, row).map(each => Math.min(90, Math.max(-90, each)));
    const [west, east] = between(this.longitude, column);
    return [west, south, east, north];
  }
}

// Longitudes without a jump; they may leave [-180, 180], and the middle of the grid is within.
function unrolled(longitude) {
  const found = Float64Array.from(longitude);
  const eastward = found.length < 2 || ((found[1] - found[0] + 540) % 360) - 180 > 0;
  for (let k = 1; k < found.length; k++) {
    while (eastward && found[k] < found[k - 1]) found[k] += 360;
    while (!eastward && found[k] > found[k - 1]) found[k] -= 360;
  }
  const shift = 360 * Math.floor((0.5 * (found[0] + found.at(-1)) + 180) / 360);
  return found.map(each => each - shift);
}

function edges(axis) {
  const [first, last] = [between(axis, 0), between(axis, axis.length - 1)];
  return [Math.min(...first, ...last), Math.max(...first, ...last)];
}

function between(axis, k) {
  const before = k > 0 ? 0.5 * (axis[k] - axis[k - 1]) : NaN;
  const after = k + 1 < axis.length ? 0.5 * (axis[k + 1] - axis[k]) : NaN;
  const low = Number.isNaN(before) ? (Number.isNaN(after) ? 0.5 : after) : before;
  const high = Number.isNaN(after) ? low : after;
  return [axis[k] - low, axis[k] + high].sort((a, b) => a - b);
}

function nearest(axis, x, circular = false) {
  let best = 0;
  let least = Infinity;
  for (let k = 0; k < axis.length; k++) {
    let distance = Math.abs(axis[k] - x);
    if (circular) distance = Math.min(distance, Math.abs(distance - 360));
    if (distance < least) [best, least] = [k, distance];
  }
  return best;
}

const json = text => {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
};

// Opens a run: what it is about, its times, its map and its points.
export async function openRun(address, contents) {
  const store = await zarr.withMaybeConsolidatedMetadata(new WholeStore(address), { format: "v3" });
  const root = zarr.root(store);
  const { attrs } = await zarr.open.v3(root, { kind: "group" });
  const arrays = new Arrays(root, contents);
  const map = contents.map ? "map" : null;
  const errors = contents.map_std ? "map_std" : map;
  const first = map ?? "posterior";
  const stem = name => contents[name]?.find(each => each.endsWith("_mean"))?.slice(0, -"_mean".length);
  const variable = stem(first);
  if (!variable)
    throw new Error("this run has neither a map nor predictions at points: there is nothing to show");
  const [field, times] = await Promise.all([arrays.get(first, `${variable}_mean`), readTimes(arrays, first)]);
  if (!arrays.has(first, "time")) attrs.undated = 1;
  const grids = {};
  for (const group of new Set([map, errors].filter(Boolean))) {
    const [latitude, longitude] = await Promise.all(
      ["latitude", "longitude"].map(name => arrays.all(group, name)),
    );
    grids[group] = new Grid(latitude, longitude);
  }
  const group = errors ?? "posterior";
  const ofObservation = isOfObservation({ arrays, variable }, group);
  const errorBar = `${variable}_${ofObservation ? "predictive_std" : "std"}`;
  const units = field.attrs.units ?? "";
  const longName = String(field.attrs.long_name ?? variable).replace(/^posterior mean of /, "");
  const standard = String(field.attrs.standard_name ?? "");
  return {
    address,
    attrs,
    arrays,
    contents,
    variable,
    times,
    grids,
    map,
    errors,
    units,
    longName,
    isTemperature:
      units === "K" && /temperature/.test(`${standard} ${longName}`) && !/difference|anomaly/.test(longName),
    ofObservation,
    errorBar: arrays.has(group, errorBar) ? errorBar : null,
    ofCells: /mean over the cell/.test(longName),
    priorVariance: Number(json(attrs.prior).variance) || null,
    points: await readPoints(arrays, contents, variable),
  };
}

async function readTimes(arrays, group) {
  if (!arrays.has(group, "time")) return [0];
  const array = await arrays.get(group, "time");
  const values = await arrays.all(group, "time");
  const [, unit, since] = String(array.attrs.units).match(/^(\w+) since (.*)$/) ?? [];
  const milliseconds = {
    nanoseconds: 1e-6,
    microseconds: 1e-3,
    milliseconds: 1,
    seconds: 1e3,
    minutes: 6e4,
    hours: 36e5,
    days: 864e5,
  };
  if (!(unit in milliseconds))
    throw new Error(`times have the unit ${array.attrs.units}, which is not known here`);
  const begin = Date.parse(
    `${since.trim().replace(" ", "T").replace(/Z?$/, "")}${since.includes(":") ? "Z" : "T00:00Z"}`,
  );
  return Array.from(values, each => begin + Number(each) * milliseconds[unit]);
}

// Held-out observations, and those that were used.
async function readPoints(arrays, contents, variable) {
  const found = {};
  for (const [group, name] of [
    ["posterior", "heldOut"],
    ["observations", "used"],
  ]) {
    if (!arrays.has(group, variable)) continue;
    const [latitude, longitude, names] = await Promise.all([
      arrays.all(group, "latitude"),
      arrays.all(group, "longitude"),
      arrays.has(group, "station_name") ? arrays.all(group, "station_name") : null,
    ]);
    found[name] = { group, latitude, longitude, names };
  }
  return found;
}

// Whether error bars and ranges of a group are those of an observation, or of the field without its noise. They are
// where quantiles are published, which are of observations, and at places where something was observed.
export const isOfObservation = ({ arrays, variable }, group) =>
  arrays.has(group, `${variable}_predictive_std`) &&
  (group === "posterior" || arrays.has(group, `${variable}_quantile`));

// How the lower and the upper end of the central 90 % range are read from a group.
export async function rangeOf(run, group) {
  const { arrays, variable } = run;
  const quantiles = `${variable}_quantile`;
  const noisy = isOfObservation(run, group);
  if (arrays.has(group, quantiles)) {
    const levels = Array.from(await arrays.all(group, "quantile_level"));
    const [low, high] = [0.05, 0.95].map(level => levels.findIndex(each => Math.abs(each - level) < 1e-9));
    if (low >= 0 && high >= 0) return { quantiles, low, high, noisy };
  }
  const std = `${variable}_${noisy ? "predictive_std" : "std"}`;
  return { mean: `${variable}_mean`, std: arrays.has(group, std) ? std : null, noisy };
}

// Both ends of the range, as planes at a time.
export async function rangePlanes(run, group, time) {
  const range = await rangeOf(run, group);
  if (range.quantiles) {
    return Promise.all(
      [range.low, range.high].map(level => run.arrays.plane(group, range.quantiles, time, level)),
    );
  }
  const [mean, std] = await Promise.all(
    [range.mean, range.std].map(name => run.arrays.plane(group, name, time)),
  );
  return [mean.map((each, k) => each - NORMAL_95 * std[k]), mean.map((each, k) => each + NORMAL_95 * std[k])];
}

// Both ends about a mean at one place; the map of the mean may be finer than that of its error bars.
export async function rangeAt(run, group, time, place, mean) {
  const range = await rangeOf(run, group);
  const read = (name, ...between) => run.arrays.value(group, name, time, ...between, ...place);
  if (range.quantiles) {
    const [own, ...ends] = await Promise.all([
      read(`${run.variable}_mean`),
      read(range.quantiles, range.low),
      read(range.quantiles, range.high),
    ]);
    return ends.map(each => mean + (each - own));
  }
  if (!range.std) return null;
  const std = await read(range.std);
  return [mean - NORMAL_95 * std, mean + NORMAL_95 * std];
}

// The series at a place: mean, both ends and observations. `tell` is called as they come; null once unwanted.
export async function readSeries(run, { group, place, errors, errorPlace }, near, tell, isWanted) {
  const { arrays, variable, times } = run;
  const range = await rangeOf(run, errors);
  const sources = { mean: [group, `${variable}_mean`, place] };
  if (range.quantiles) {
    if (errors !== group) sources.own = [errors, `${variable}_mean`, errorPlace];
    sources.low = [errors, range.quantiles, errorPlace, range.low];
    sources.high = [errors, range.quantiles, errorPlace, range.high];
  } else if (range.std) sources.std = [errors, range.std, errorPlace];
  if (arrays.has(group, variable)) sources.observed = [group, variable, place];
  const found = Object.fromEntries(
    ["mean", "own", "low", "high", "std", "observed"].map(name => [name, times.map(() => NaN)]),
  );
  const walks = Object.entries(sources).map(([name, [where, array, at, ...between]]) => [
    name,
    arrays.along(where, array, at, near, ...between),
  ]);
  for (let left = walks.length; left > 0;) {
    const steps = await Promise.all(walks.map(([, walk]) => walk.next()));
    if (!isWanted()) return null;
    left = steps.filter(step => !step.done).length;
    steps.forEach(({ done, value }, k) => {
      if (!done) value[1].forEach((each, at) => (found[walks[k][0]][value[0] + at] = each));
    });
    tell(withBand(found, range, errors !== group));
  }
  return found;
}

function withBand({ mean, own, low, high, std, observed }, range, finer) {
  if (!range.quantiles)
    return {
      mean,
      observed,
      low: mean.map((each, k) => each - NORMAL_95 * std[k]),
      high: mean.map((each, k) => each + NORMAL_95 * std[k]),
    };
  const moved = ends => (finer ? ends.map((each, k) => mean[k] + (each - own[k])) : ends.slice());
  return { mean, observed, low: moved(low), high: moved(high) };
}
