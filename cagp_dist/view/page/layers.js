// What the map can show of a run: each layer is read as planes of the grid, or as values at points.
import { rangeOf, rangePlanes } from "./run.js";

const LEAVES_NOTHING = new Set(["exact", "solved"]); // statuses of solves
const ASKED = 12; // times
const FEW = 100_000; // values of a time

// What depends on values of large maps is asked with ofAllTimes alone, as the first picture waits for the answer.
export async function layersOf(run, { ofAllTimes = false } = {}) {
  const { arrays, variable, map, errors, points } = run;
  const transformed = Boolean(run.attrs.transform);
  const group = errors ?? "posterior"; // with error bars
  const has = name => arrays.has(group, `${variable}_${name}`);
  const of = (where, name) => ({
    group: where,
    read: time => arrays.plane(where, `${variable}_${name}`, time),
  });
  const unfinished = has("std_computational") && (await isUnfinished(run, group, ofAllTimes));
  const noisy = (await rangeOf(run, group)).noisy;
  const said = run.ofCells
    ? "of the mean over the cell"
    : noisy
      ? "of an observation, noise included"
      : "of the field itself";
  const end = k => ({ group, read: async time => (await rangePlanes(run, group, time))[k] });
  const found = [
    {
      id: "mean",
      label: "Mean",
      title: run.longName,
      absolute: true,
      colours: "plasma",
      ...of(map ?? "posterior", "mean"),
    },
  ];
  if (run.errorBar) {
    found.push(
      {
        id: "std",
        label: "Standard deviation",
        title: "standard deviation",
        note: run.ofObservation
          ? "One standard deviation of an observation, noise included."
          : "One standard deviation of the field itself, without the noise of an observation.",
        colours: "viridis",
        transformed,
        group,
        read: time => arrays.plane(group, run.errorBar, time),
      },
      ...(unfinished
        ? [
            {
              id: "computation",
              label: "Unfinished computation",
              title: "standard deviation, unfinished computation",
              note: "The part of it that more computing would take away, at most.",
              colours: "viridis",
              transformed,
              group,
              read: async time => {
                const [part, std] = await Promise.all(
                  ["std_computational", "std"].map(name => arrays.plane(group, `${variable}_${name}`, time)),
                );
                return part.map((each, k) => Math.min(each, std[k])); // a bound, which may be above the whole
              },
            },
          ]
        : []),
      {
        id: "lower",
        label: "90 % range: lower end",
        title: "lower end of the 90 % range",
        note: `5 % quantile ${said}.`,
        absolute: true,
        colours: "plasma",
        scale: "mean",
        ...end(0),
      },
      {
        id: "upper",
        label: "upper end",
        title: "upper end of the 90 % range",
        note: `95 % quantile ${said}.`,
        absolute: true,
        colours: "plasma",
        scale: "mean",
        ...end(1),
      },
      {
        id: "width",
        label: "width",
        title: "width of the 90 % range",
        note: `From 5 % to 95 %, ${said}.`,
        colours: "viridis",
        transformed,
        group,
        read: async time => {
          const [low, high] = await rangePlanes(run, group, time);
          return high.map((each, k) => each - low[k]);
        },
      },
    );
  }
  if (points.heldOut) {
    found.push({
      id: "errors",
      label: "Observed − predicted",
      title: "observed minus predicted",
      note: "At observations that were held out: the prediction did not use them.",
      colours: "RdBu_r",
      symmetric: true,
      points: true,
      group: "posterior",
      read: time => differences(run, time),
    });
  }
  if (!map) for (const each of found) each.points = true;
  return found;
}

// Whether the solve left anything to compute: of an exact one there is nothing. Asked of many times at some, evenly
// spread, the newest first; of one that cannot be read it is not known, and the layer says so.
async function isUnfinished({ arrays, attrs, variable, times }, group, ofAllTimes) {
  if (LEAVES_NOTHING.has(attrs.status)) return false;
  const name = `${variable}_std_computational`;
  const where = arrays.has("posterior", name) ? "posterior" : group;
  const isLarge = (await arrays.planeSize(where, name)) > FEW;
  if (isLarge && !ofAllTimes) return false;
  const isLeft = time =>
    arrays.plane(where, name, time).then(
      values => values.some(each => each > 0),
      () => true,
    );
  const last = times.length - 1;
  const some = new Set(Array.from({ length: ASKED }, (_, k) => Math.round(last - (k * last) / (ASKED - 1))));
  if (await isLeft(last)) return true;
  some.delete(last);
  if (!isLarge) return (await Promise.all([...some].map(isLeft))).includes(true);
  for (const time of some) if (await isLeft(time)) return true; // one in memory at once
  return false;
}

async function differences({ arrays, variable }, time) {
  const [observed, mean] = await Promise.all(
    [variable, `${variable}_mean`].map(name => arrays.plane("posterior", name, time)),
  );
  return observed.map((each, k) => each - mean[k]);
}
