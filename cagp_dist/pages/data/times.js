// Shows the chosen time in the large maps: its picture in place of theirs, its colours for their dots.
document.addEventListener("DOMContentLoaded", () => {
  const data = JSON.parse(document.getElementById("every-time-data").textContent);
  const buttons = [...document.querySelectorAll("button.time")];
  const said = document.getElementById("shown-time");
  const choose = document.getElementById("choose-time");
  const maps = {};
  for (const name of ["mean", "std", "computational", "residual"]) {
    const picture = document.querySelector(`image[id^="${name}-image"]`);
    const dots = [...document.querySelectorAll(`[id^="${name}-PathCollection"] use`)];
    const svg = (picture || dots[0])?.closest("svg");
    if (svg) maps[name] = { picture, dots, svg, first: picture?.getAttribute("href") };
  }
  const bytes = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  const play = player(buttons.length, "time shown in the maps", show);
  let shown = 0;

  function show(index) {
    for (const [name, map] of Object.entries(maps)) {
      const source = name === "mean" && buttons[index].querySelector("img")
        ? buttons[index].querySelector("img").src : data.pictures[name]?.[index];
      if (source) {
        map.picture.setAttribute("href", index === 0 ? map.first : source);
        map.picture.setAttribute("preserveAspectRatio", "none");
        map.picture.style.imageRendering = "auto";
      }
      const coloured = data.dots[name];
      if (coloured) {
        bytes(coloured.times[index]).forEach((step, place) => {
          map.dots[place].style.fill = coloured.colours[step];
        });
      }
      if (!source && !coloured) continue;
      for (const text of map.svg.querySelectorAll("text")) {
        if (text.textContent.includes(data.stamps[shown])) {
          text.textContent = text.textContent.replace(data.stamps[shown], data.stamps[index]);
        }
      }
      map.svg.setAttribute("aria-label", `Map, ${data.stamps[index]}`);
    }
    buttons[shown].setAttribute("aria-pressed", "false");
    buttons[index].setAttribute("aria-pressed", "true");
    shown = index;
    select.selectedIndex = index;
    play.moved(index, data.stamps[index]);
    said.textContent = `The maps show time ${index + 1} of ${buttons.length}, ${data.stamps[index]}.`;
  }

  const select = document.createElement("select");
  select.setAttribute("aria-label", "time shown in the maps");
  data.stamps.forEach(stamp => select.add(new Option(stamp)));
  select.addEventListener("change", () => play.choose(select.selectedIndex));
  choose.append(play.earlier, select, play.later, ...play.elements);
  buttons.forEach((button, index) => button.addEventListener("click", () => play.choose(index)));
});
