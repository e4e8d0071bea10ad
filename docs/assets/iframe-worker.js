// The search of the site runs in a worker, and browsers start no workers for pages opened from the disk (file:).
// There an invisible frame takes the worker's place; served over HTTP, this does nothing.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const inside = frame.contentWindow
      const load = (source) =>
        new Promise((resolve, reject) => {
          const script = inside.document.createElement("script")
          script.src = source
          script.onload = resolve
          script.onerror = () => reject(new Error(`cannot load ${source}`))
          inside.document.body.append(script)
        })
      inside.importScripts = (...sources) => sources.reduce((done, source) => done.then(() => load(source)), Promise.resolve())
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      const ready = load(new URL(url, location.href).href)
      this.postMessage = (data) =>
        ready.then(
          () => inside.dispatchEvent(new MessageEvent("message", { data })),
          (error) => this.dispatchEvent(new ErrorEvent("error", { message: error.message })),
        )
      this.terminate = () => frame.remove()
    }
  }
}
