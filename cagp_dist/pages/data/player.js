// Plays the frames of a page by buttons and a slider; show(index) puts a frame in place.
function player(count, label, show) {
  const pushed = (name, act) => {
    const made = document.createElement("button");
    Object.assign(made, { type: "button", textContent: name });
    made.addEventListener("click", act);
    return made;
  };
  const slider = document.createElement("input");
  let shown = 0;
  let timer = 0;
  const stop = () => {
    clearInterval(timer);
    timer = 0;
    button.textContent = "play";
  };
  const choose = index => {
    stop();
    show(index);
  };
  const step = by => () => choose((shown + by + count) % count);
  const button = pushed("play", () => {
    if (timer) return stop();
    button.textContent = "pause";
    timer = setInterval(() => show((shown + 1) % count), Math.min(600, Math.max(100, 15000 / count)));
  });
  Object.assign(slider, { type: "range", min: 0, max: count - 1, value: 0 });
  slider.setAttribute("aria-label", label);
  slider.addEventListener("input", () => choose(Number(slider.value)));
  return {
    earlier: pushed("earlier", step(-1)),
    later: pushed("later", step(1)),
    elements: [button, slider],
    choose,
    moved(index, said) {
      shown = index;
      slider.value = index;
      slider.setAttribute("aria-valuetext", said);
    },
  };
}
