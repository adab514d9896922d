// Colour scales, as the report has them, and round numbers along them.
const STOPS = {
  plasma:
    "0d0887 310597 4c02a1 6600a7 7e03a8 9511a1 aa2395 bc3587 cc4778 da5a6a e66c5c f0804e f89540 fdac33 fdc527 f8df25 f0f921",
  viridis:
    "440154 48186a 472d7b 424086 3b528b 33638d 2c728e 26828e 21918c 1fa088 28ae80 3fbc73 5ec962 84d44b addc30 d8e219 fde725",
  RdBu_r:
    "0a3b70 1b5a9c 2e77b5 4393c3 71b0d3 9dcbe1 c5dfec e0ecf3 f7f6f6 fbe6da fbd0b9 f6af8e e8896c d6604d bf3338 a21328 760521",
};

// 256 colours, four bytes each.
export function ramp(name) {
  const stops = STOPS[name]
    .split(" ")
    .map(hex => [0, 2, 4].map(at => Number.parseInt(hex.slice(at, at + 2), 16)));
  const found = new Uint8Array(4 * 256).fill(255);
  for (let k = 0; k < 256; k++) {
    const x = (k / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(x), stops.length - 2);
    for (let c = 0; c < 3; c++)
      found[4 * k + c] = stops[low][c] + (x - low) * (stops[low + 1][c] - stops[low][c]);
  }
  return found;
}

export function colourOf(colours, [low, high], value) {
  const k = Math.round(255 * Math.min(1, Math.max(0, (value - low) / (high - low))));
  return `rgb(${colours[4 * k]},${colours[4 * k + 1]},${colours[4 * k + 2]})`;
}

export function gradient(colours) {
  const stops = Array.from({ length: 18 }, (_, k) => colourOf(colours, [0, 17], k));
  return `linear-gradient(to right, ${stops.join(", ")})`;
}

const MOST_MEDIANS = 30; // of error bars of transformed values

// Of numbers that ascend, between neighbours in proportion.
function quantile(ascending, share) {
  const at = share * (ascending.length - 1);
  const [low, high] = [Math.floor(at), Math.ceil(at)];
  return ascending[low] + (at - low) * (ascending[high] - ascending[low]);
}

const roundStep = span => {
  const power = 10 ** Math.floor(Math.log10(span));
  return power * ([1, 2, 2.5, 5].find(each => each * power >= span) ?? 10);
};

// Limits in round numbers that hold all values but a hundredth at each end, as report and plots have them;
// symmetric about zero where colours diverge. Standard deviations of transformed values may be vast far from the data:
// their limits end at thirty medians at most.
export function limits(values, { symmetric = false, transformed = false } = {}) {
  const every = Math.max(1, Math.floor(values.length / 40000));
  const known = values.filter((value, k) => k % every === 0 && Number.isFinite(value)).sort((a, b) => a - b);
  if (known.length === 0) return [0, 1];
  const share = known.length > 50 ? 0.01 : 0;
  let [low, median, high] = [share, 0.5, 1 - share].map(at => quantile(known, at));
  if (transformed && median > 0) high = Math.min(high, MOST_MEDIANS * median);
  if (symmetric) [low, high] = [-Math.max(-low, high), Math.max(-low, high)];
  if (!(high > low))
    [low, high] = [low - Math.max(1e-6, Math.abs(low) * 1e-3), high + Math.max(1e-6, Math.abs(high) * 1e-3)];
  const step = roundStep((high - low) / 5) / 2;
  return [step * Math.floor(low / step + 1e-9), step * Math.ceil(high / step - 1e-9)];
}

// Round numbers between two limits, about so many, and their text.
export function ticks([low, high], count = 5) {
  const step = roundStep((high - low) / count);
  const digits = Math.max(
    0,
    -Math.floor(Math.log10(step) + 1e-9) +
      (Math.abs(step / 10 ** Math.floor(Math.log10(step)) - 2.5) < 1e-6 ? 1 : 0),
  );
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
  return found.map(value => ({ value, text: written(value, digits) }));
}

// A number with so many digits behind the point, and a true minus.
export function written(value, digits) {
  if (!Number.isFinite(value)) return "–";
  const text = value.toFixed(digits);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "−");
}

// Digits behind the point so that an error bar has two.
export function digitsFor(error) {
  return error > 0 && Number.isFinite(error)
    ? Math.max(0, Math.min(8, 1 - Math.floor(Math.log10(error))))
    : 2;
}
