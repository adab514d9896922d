// Lets a reader choose among the versions that ../versions.js names; without that file the version is text.
(() => {
  const versions = window.documentedVersions ?? [];
  const [here, select] = document.querySelectorAll(".version-choice > *");
  if (versions.length < 2) return;
  for (const version of versions) {
    select.add(new Option(version, version, false, version === here.textContent));
  }
  const root = new URL(document.documentElement.dataset.content_root, location.href);
  select.addEventListener("change", () => location.assign(new URL(`../${select.value}/index.html`, root)));
  [here.hidden, select.hidden] = [true, false];
})();
