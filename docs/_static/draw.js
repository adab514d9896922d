// Draw the formulas of a page; `formulas.py` wrote them as LaTeX.
document.addEventListener("DOMContentLoaded", () => {
  for (const place of document.querySelectorAll("span.math, div.math-display")) {
    const displayMode = place.tagName === "DIV";
    katex.render(place.textContent, place, { displayMode, throwOnError: false });
  }
});
