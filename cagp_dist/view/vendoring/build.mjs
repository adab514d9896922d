// Copies the libraries of the page into ../page/vendor, with their licences and vendored.json, which names them.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const VENDOR = "../page/vendor";
const LOCK = JSON.parse(readFileSync("package-lock.json", "utf8")).packages;

rmSync(VENDOR, { recursive: true, force: true });
mkdirSync(VENDOR, { recursive: true });

const copies = {
  "maplibre-gl.js": "maplibre-gl/dist/maplibre-gl.mjs",
  "maplibre-gl-worker.js": "maplibre-gl/dist/maplibre-gl-worker.mjs",
  "zstddec.js": "zstddec/dist/zstddec.mjs",
};
for (const [file, source] of Object.entries(copies)) {
  const text = readFileSync(`node_modules/${source}`, "utf8").replace(
    /\n?\/\/# sourceMappingURL=.*\s*$/,
    "\n",
  );
  writeFileSync(`${VENDOR}/${file}`, text);
}
// runs are packed by zstd alone, which zstddec unpacks
const { metafile } = await build({
  entryPoints: ["zarrita"],
  outfile: `${VENDOR}/zarrita.js`,
  bundle: true,
  format: "esm",
  minify: true,
  target: "es2022",
  external: ["numcodecs/*"],
  legalComments: "none",
  metafile: true,
});
const bundled = Object.keys(metafile.inputs).map(
  path => path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//)[1],
);
const names = [...new Set(["maplibre-gl", "zstddec", ...bundled])].sort();

// MapLibre has its dependencies in its own file
const within = new Set();
const gather = name => {
  for (const each of Object.keys(LOCK[`node_modules/${name}`]?.dependencies ?? {})) {
    if (!within.has(each) && !each.startsWith("@types/")) {
      within.add(each);
      gather(each);
    }
  }
};
gather("maplibre-gl");

const licence = name => {
  for (const file of ["LICENSE", "LICENSE.txt", "LICENSE.md", "license", "LICENCE"]) {
    try {
      return readFileSync(`node_modules/${name}/${file}`, "utf8").trim();
    } catch {}
  }
  return null;
};
const described = name => {
  const { version, license, integrity } = LOCK[`node_modules/${name}`];
  return { name, version, license, integrity };
};
const all = [...new Set([...names, ...within])].sort();
writeFileSync(
  `${VENDOR}/LICENSES.txt`,
  all
    .map(name => {
      const { version, license } = described(name);
      return `${name} ${version} (${license})\n\n${licence(name) ?? "Its package brings no text of its licence."}\n`;
    })
    .join(`\n${"-".repeat(80)}\n\n`),
);
const files = Object.fromEntries(
  [...Object.keys(copies), "zarrita.js", "LICENSES.txt"].sort().map(file => [
    file,
    createHash("sha256")
      .update(readFileSync(`${VENDOR}/${file}`))
      .digest("hex"),
  ]),
);
writeFileSync(
  `${VENDOR}/vendored.json`,
  `${JSON.stringify({ libraries: all.map(described), files }, null, 2)}\n`,
);
