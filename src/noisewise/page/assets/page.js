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
    if (element.disabled) return ""; // no run to explore: no budget to speak of
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
    receiveMessage(element, message) {
      element.dataset.epsilon = message.epsilon || "";
      element.disabled = !message.ready;
      show(element);
    }
    subscribe(element, callback) { $(element).on("input.noisewise", () => { show(element); callback(true); }); }
    unsubscribe(element) { $(element).off(".noisewise"); }
    getRatePolicy() { return { policy: "debounce", delay: 400 }; }
  }
  Shiny.inputBindings.register(new Range(), "noisewise.range");
})();

// The editor: kept across reloads, with undo for whatever replaced its text, and never replaced unasked after typing.
(() => {
  const KEY = "noisewise-analysis", MOST = 50;
  const editor = document.getElementById("analysis"), undo = document.getElementById("undo");
  const store = (text) => { try { sessionStorage.setItem(KEY, text); } catch (error) { /* no room: nothing is kept */ } };
  const kept = sessionStorage.getItem(KEY);
  const earlier = [];
  let last = editor.value;
  if (kept !== null) editor.value = kept;
  const fill = (text) => {
    editor.value = text;
    editor.dispatchEvent(new Event("change", { bubbles: true })); // at once: Run may be pressed next
    store(text);
    undo.disabled = earlier.length === 0;
  };
  editor.addEventListener("input", () => store(editor.value));
  undo.addEventListener("click", () => { if (earlier.length) fill(earlier.pop()); });
  Shiny.addCustomMessageHandler("noisewise-text", (message) => {
    if (message.text === editor.value) return;
    const typed = editor.value !== last && editor.value.trim() !== "";
    if (message.ask && typed && !window.confirm("Replace the analysis file that you have changed? Undo brings it back.")) return;
    earlier.push(editor.value);
    if (earlier.length > MOST) earlier.shift();
    if (message.ask) last = message.text;
    fill(message.text);
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest(".reopen");
    if (button) Shiny.setInputValue("reopen", Number(button.dataset.run), { priority: "event" });
  });
  document.addEventListener("change", (event) => {
    if (!event.target.matches(".compare")) return;
    const ticked = [...document.querySelectorAll(".compare:checked")].map((box) => Number(box.dataset.run));
    Shiny.setInputValue("compared", ticked);
  });
  $(document).on("shiny:disconnected", () => {
    document.getElementById("gone").hidden = false;
    document.documentElement.classList.add("without-server"); // nothing runs any more, and nothing can be started
  });
})();
