// A frame is as high as the page in it, and a table that is wider than its place can be scrolled with the keyboard.

// Pictures in a page that has no scroll bar are wider, and so higher, than in one that has.
const SPARE = 32;
addEventListener("message", (event) => {
  for (const frame of document.querySelectorAll("iframe.hero")) {
    if (event.source === frame.contentWindow && Number.isFinite(event.data.height)) {
      frame.style.height = `${Math.ceil(event.data.height) + SPARE}px`;
    }
  }
});

function markScrollers() {
  for (const wrapper of document.querySelectorAll(".table-wrapper, .highlight pre")) {
    if (wrapper.scrollWidth > wrapper.clientWidth) wrapper.tabIndex = 0;
    else wrapper.removeAttribute("tabindex");
  }
}
addEventListener("load", markScrollers);
addEventListener("resize", markScrollers);
