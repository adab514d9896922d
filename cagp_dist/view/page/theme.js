// Light or dark before anything is drawn: as the system has it, or as was chosen last.
const chosen = (() => {
  try {
    return localStorage.getItem("theme");
  } catch {
    return null; // storage may be forbidden
  }
})();
document.documentElement.dataset.theme =
  chosen ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
