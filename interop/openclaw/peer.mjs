// What the checks share: the real client with a device of its own, a report of one line a check, and waiting.
import crypto from "node:crypto";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const need = (name) => process.env[name] ?? (() => { throw new Error(`${name} is not set`); })();
export const url = need("GATEWAY_URL");
export const token = need("GATEWAY_TOKEN");
export const agentToken = need("AGENT_TOKEN");

// The client is installed beside the cache's package.json, not beside this file.
const resolve = createRequire(need("PEERS")).resolve;
const { GatewayClient } = await import(pathToFileURL(resolve("@openclaw/gateway-client")).href);

const base64url = (bytes) => Buffer.from(bytes).toString("base64url");
const rawKey = (key) => key.export({ type: "spki", format: "der" }).subarray(-32);

export function newDevice() {
  const { publicKey, privateKey } = crypto.generateKeyPairSync("ed25519");
  return {
    deviceId: crypto.createHash("sha256").update(rawKey(publicKey)).digest("hex"),
    publicKeyPem: publicKey.export({ type: "spki", format: "pem" }),
    privateKeyPem: privateKey.export({ type: "pkcs8", format: "pem" }),
  };
}

// The tokens that devices were given, as an application would keep them.
export const deviceTokens = new Map();
const hostDeps = {
  signDevicePayload: (pem, payload) => base64url(crypto.sign(null, Buffer.from(payload, "utf8"), crypto.createPrivateKey(pem))),
  publicKeyRawBase64UrlFromPem: (pem) => base64url(rawKey(crypto.createPublicKey(pem))),
  loadDeviceAuthToken: ({ deviceId, role }) => deviceTokens.get(`${deviceId} ${role}`) ?? null,
  storeDeviceAuthToken: (given) => deviceTokens.set(`${given.deviceId} ${given.role}`, given),
  clearDeviceAuthToken: ({ deviceId, role }) => deviceTokens.delete(`${deviceId} ${role}`),
  logDebug: () => {},
  logError: (message) => console.error(message),
};

/** Connects the real client. Resolves with `{client, hello, events, gaps}` once hello has come. */
export function connect(options) {
  const events = [];
  const gaps = [];
  return new Promise((done, failed) => {
    const client = new GatewayClient({
      url,
      role: "operator",
      hostDeps,
      deviceIdentity: null,
      clientVersion: "0.0.1",
      onHelloOk: (hello) => { clearTimeout(timer); done({ client, hello, events, gaps }); },
      onConnectError: (error) => { clearTimeout(timer); failed(error); client.stop(); },
      onEvent: (event) => events.push(event),
      onGap: (gap) => gaps.push(gap),
      ...options,
    });
    const timer = setTimeout(() => { client.stop(); failed(new Error("no hello in 10 s")); }, 10_000);
    client.start();
  });
}

/** Waits until `look` answers something true, at most 5 s. */
export async function until(look) {
  for (let i = 0; i < 500; i++) {
    const found = look();
    if (found) return found;
    await new Promise((later) => setTimeout(later, 10));
  }
  throw new Error(`waited in vain for ${look}`);
}

/** Runs one check and reports it. What it answers is passed on; a check that fails answers nothing. */
export async function check(name, run) {
  try {
    const value = await run();
    console.log(`ok ${name}`);
    return value;
  } catch (error) {
    console.log(`not ok ${name}: ${String(error?.message ?? error).split("\n").slice(0, 12).join("\n  ")}`);
    return undefined;
  }
}

/** Ends the program, whatever is still open. `run` counts what was reported; another exit says that it was not all. */
export const finish = () => process.exit(0);
