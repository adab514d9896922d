// Plays the frames of a page by a button and a slider; show(index) puts a frame in place.
function player(count, label, show) {
  const button = document.createElement("button");
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
  button.type = "button";
  button.addEventListener("click", () => {
    if (timer) return stop();
    button.textContent = "pause";
    timer = setInterval(() => show((shown + 1) % count), Math.min(600, Math.max(100, 15000 / count)));
  });
  Object.assign(slider, { type: "range", min: 0, max: count - 1, value: 0 });
  slider.setAttribute("aria-label", label);
  slider.addEventListener("input", () => choose(Number(slider.value)));
  stop();
  return {
    elements: [button, slider],
    choose,
    moved(index, said) {
      shown = index;
      slider.value = index;
      slider.setAttribute("aria-valuetext", said);
    },
  };
}
