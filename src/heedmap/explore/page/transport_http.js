/** Talk with the program over HTTP; the cookie of `/open` says who asks. */

import { BatchReader } from "./protocol.js";
import { TransportError, TROUBLES } from "./transport.js";

/**
 * Return the transport for a page that the program itself serves.
 *
 * @param {string} [below] where the paths of the map begin
 * @returns {import("./transport.js").Transport}
 */
export function httpTransport(below = "/") {
  const mediaPath = (/** @type {string} */ name) => `${below}media/${encodeURIComponent(name)}`;
  return {
    json: async (path, signal) => (await ask(`${below}${path}`, { signal })).json(),
    bytes: async (path, signal) => (await ask(`${below}${path}`, { signal })).arrayBuffer(),
    tiles: (names, onTile, signal) => askTiles(`${below}tiles`, names, onTile, signal),
    mediaUrl: async (name) => mediaPath(name),
    checkMedia: async (name) => {
      await (await ask(mediaPath(name), { headers: { Range: "bytes=0-0" } })).body?.cancel();
    },
  };
}

/**
 * @param {string} path
 * @param {import("./transport.js").TileName[]} names
 * @param {(place: number, bytes: ArrayBuffer) => void} onTile
 * @param {AbortSignal} [signal]
 */
async function askTiles(path, names, onTile, signal) {
  const response = await ask(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ tiles: names }),
    signal,
  });
  if (!response.body) {
    throw new TransportError("gone");
  }
  const batch = new BatchReader(onTile);
  const stream = response.body.getReader();
  for (;;) {
    const { done, value } = await unlessGone(stream.read(), signal);
    if (done) {
      break;
    }
    batch.push(value);
  }
  if (batch.count < names.length) {
    throw new TransportError("gone");
  }
}

/**
 * Ask the program; whatever it does not answer well is a `TransportError`.
 *
 * @param {string} path
 * @param {RequestInit} how
 * @returns {Promise<Response>}
 */
export async function ask(path, how) {
  const response = await unlessGone(
    fetch(path, { credentials: "same-origin", ...how }),
    how.signal ?? undefined,
  );
  if (response.ok) {
    return response;
  }
  const said = await response
    .json()
    .then((answer) => String(answer.error ?? ""))
    .catch(() => "");
  const wait = Number(response.headers.get("Retry-After"));
  throw new TransportError(TROUBLES[response.status] ?? "refused", said, wait || undefined);
}

/**
 * Turn the browser's own network error into ours; what was aborted stays what it is.
 *
 * @template T
 * @param {Promise<T>} answer
 * @param {AbortSignal} [signal]
 * @returns {Promise<T>}
 */
async function unlessGone(answer, signal) {
  try {
    return await answer;
  } catch (error) {
    throw signal?.aborted ? error : new TransportError("gone");
  }
}
