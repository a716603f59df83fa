// Light or dark, as the reader's system asks, now and when it changes.
(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const follow = () => document.documentElement.setAttribute("data-bs-theme", dark.matches ? "dark" : "light");
  dark.addEventListener("change", follow);
  follow();
})();
// Shiny's own slider cannot be read by screen readers; this binds the browser's. Moving it is reported when it rests.
(() => {
  const spoken = (element) => {
    const factor = Math.pow(2, Number(element.value));
    const epsilon = Number(element.dataset.epsilon);
    const short = (number) => String(Number(number.toPrecision(3)));
    return epsilon > 0 ? `epsilon ${short(epsilon * factor)}` : `${short(factor)} times the budget`;
  };
  const show = (element) => {
    const text = spoken(element);
    element.setAttribute("aria-valuetext", text);
    document.getElementById(element.id + "_text").textContent = text;
  };
  class Range extends Shiny.InputBinding {
    find(scope) { return $(scope).find("input.noisewise-range"); }
    initialize(element) { show(element); }
    getValue(element) { return Number(element.value); }
    setValue(element, value) { element.value = value; show(element); }
    receiveMessage(element, message) { element.dataset.epsilon = message.epsilon || ""; show(element); }
    subscribe(element, callback) { $(element).on("input.noisewise", () => { show(element); callback(true); }); }
    unsubscribe(element) { $(element).off(".noisewise"); }
    getRatePolicy() { return { policy: "debounce", delay: 400 }; }
  }
  Shiny.inputBindings.register(new Range(), "noisewise.range");
})();
