// Shows the frame that is chosen or played.
document.addEventListener("DOMContentLoaded", () => {
  const frames = JSON.parse(document.getElementById("frames-data").textContent);
  const picture = document.getElementById("frame");
  const said = document.getElementById("shown-time");
  const play = player(frames.length, "time shown", show);

  function show(index) {
    picture.src = frames[index].picture;
    said.textContent = frames[index].stamp;
    play.moved(index, frames[index].stamp);
  }

  document.getElementById("choose-time").append(play.earlier, play.later, ...play.elements);
  document.querySelector("noscript")?.remove();
});
