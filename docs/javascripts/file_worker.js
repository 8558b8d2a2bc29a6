// Browsers refuse workers of pages that were opened from a folder (file:). There, a worker's script runs in a hidden frame, so that
// search needs no server.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const scope = this.frame.contentWindow;
      scope.postMessage = (data) => this.receive(data);
      this.ready = loadScript(scope.document, url);
    }
    postMessage(data) {
      const scope = this.frame.contentWindow;
      this.ready.then(() => scope.onmessage(new scope.MessageEvent("message", { data: scope.structuredClone(data) })));
    }
    receive(data) {
      setTimeout(() => this.onmessage?.(new MessageEvent("message", { data: structuredClone(data) })));
    }
    terminate() {
      this.frame.remove();
    }
  };
  const loadScript = (page, url) =>
    new Promise((resolve, reject) => {
      const script = page.createElement("script");
      script.src = url;
      script.onload = resolve;
      script.onerror = reject;
      page.body.append(script);
    });
}
