/** Talk with the program over a notebook's own channel, as heedmap.explore.bridge has it. */

import { BatchReader } from "./protocol.js";
import { TransportError, TROUBLES } from "./transport.js";

/**
 * What a widget's model does for us.
 *
 * @typedef {object} Model
 * @property {(message: object) => void} send
 * @property {(event: string, listener: (message: any, buffers: DataView[]) => void) => void} on
 */

/**
 * An answer as its parts come.
 *
 * @typedef {object} Listener
 * @property {(head: { status: number, type: string, retry: string }) => void} head
 * @property {(piece: Uint8Array) => void} piece
 * @property {() => void} end
 */

/**
 * Return the transport for a page in the cell of a notebook.
 *
 * @param {Model} model
 * @returns {import("./transport.js").Transport}
 */
export function notebookTransport(model) {
  /** @type {Map<string, Listener>} */
  const listeners = new Map();
  model.on("msg:custom", (message, buffers) => {
    const listener = listeners.get(message.id);
    if (!listener) {
      return;
    }
    if (message.end) {
      listeners.delete(message.id);
      listener.end();
    } else if (message.piece) {
      const view = buffers[0];
      listener.piece(new Uint8Array(view.buffer, view.byteOffset, view.byteLength).slice());
    } else {
      listener.head(message);
    }
  });

  /**
   * @param {{ method?: string, path: string, body?: string }} request
   * @param {AbortSignal | undefined} signal
   * @param {(piece: Uint8Array) => void} onPiece pieces of an answer that is no refusal
   * @returns {Promise<string>} the type of what came
   */
  function ask(request, signal, onPiece) {
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      // Another view of the same widget hears the same messages. (randomUUID wants https.)
      const id = crypto.getRandomValues(new Uint32Array(4)).join("-");
      /** @type {{ status: number, type: string, retry: string }} */
      let head = { status: 0, type: "", retry: "" };
      /** @type {Uint8Array[]} */
      const refusal = [];
      signal?.addEventListener(
        "abort",
        () => {
          if (listeners.delete(id)) {
            model.send({ id, cancel: true });
            reject(signal.reason);
          }
        },
        { once: true },
      );
      listeners.set(id, {
        head: (told) => {
          head = told;
        },
        piece: (piece) => (head.status === 200 ? onPiece(piece) : refusal.push(piece)),
        end: () => (head.status === 200 ? resolve(head.type) : reject(refused(head, refusal))),
      });
      model.send({ id, method: "GET", ...request });
    });
  }

  /**
   * @param {string} path
   * @param {AbortSignal} [signal]
   * @returns {Promise<Blob>}
   */
  async function whole(path, signal) {
    /** @type {BlobPart[]} */
    const pieces = [];
    const type = await ask({ path: `/${path}` }, signal, (piece) =>
      pieces.push(/** @type {BlobPart} */ (piece)),
    );
    return new Blob(pieces, { type });
  }

  return {
    json: async (path, signal) => JSON.parse(await (await whole(path, signal)).text()),
    bytes: async (path, signal) => (await whole(path, signal)).arrayBuffer(),
    tiles: async (names, onTile, signal) => {
      const batch = new BatchReader(onTile);
      const body = JSON.stringify({ tiles: names });
      await ask({ method: "POST", path: "/tiles", body }, signal, (piece) => batch.push(piece));
      if (batch.count < names.length) {
        throw new TransportError("gone");
      }
    },
    mediaUrl: async (name) =>
      URL.createObjectURL(await whole(`media/${encodeURIComponent(name)}`)),
    // It lies in the page since its address was asked for.
    checkMedia: async () => {},
  };
}

/**
 * @param {{ status: number, retry: string }} head
 * @param {Uint8Array[]} pieces
 */
function refused(head, pieces) {
  let said = "";
  try {
    const text = pieces.map((piece) => new TextDecoder().decode(piece)).join("");
    said = String(JSON.parse(text).error ?? "");
  } catch {
    said = `status ${head.status}`;
  }
  return new TransportError(TROUBLES[head.status] ?? "refused", said, Number(head.retry) || undefined);
}
