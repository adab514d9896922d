// Lets a reader choose among the versions that ../versions.js names; without that file nothing is shown.
(() => {
  const versions = window.documentedVersions ?? [];
  const label = document.querySelector(".version-choice label");
  const select = label.querySelector("select");
  const here = document.querySelector(".version-choice .caption-text").textContent.replace("Version ", "");
  if (versions.length < 2) return;
  for (const version of versions) select.add(new Option(version, version, false, version === here));
  const root = new URL(document.documentElement.dataset.content_root, location.href);
  select.addEventListener("change", () => location.assign(new URL(`../${select.value}/index.html`, root)));
  label.hidden = false;
})();
