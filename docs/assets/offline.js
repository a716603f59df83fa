// Search where pages are opened from a folder: browsers refuse workers there, so the search's worker runs in a hidden
// frame. It needs of a worker only that messages go to and fro.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      const script = new URL(address, document.baseURI).href.replace(/"/g, "&quot;");
      frame.srcdoc = `<script>postMessage = data => parent.postMessage(data, "*")</script><script src="${script}"></script>`;
      this.ready = new Promise(resolve => frame.addEventListener("load", () => resolve(frame.contentWindow)));
      window.addEventListener("message", event => {
        if (event.source === frame.contentWindow) {
          this.dispatchEvent(new MessageEvent("message", { data: event.data }));
        }
      });
      const attach = () => document.body.appendChild(frame);
      document.body ? attach() : addEventListener("DOMContentLoaded", attach);
    }
    postMessage(data) {
      this.ready.then(frame => frame.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {}
  };
}
