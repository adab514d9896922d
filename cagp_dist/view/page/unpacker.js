// A worker that unpacks chunks, so that the page stays quick: zstd, and the comparison of checksums.
import { ZSTDDecoder } from "./vendor/zstddec.js";

const TABLES = (() => {
  const tables = Array.from({ length: 8 }, () => new Uint32Array(256));
  for (let byte = 0; byte < 256; byte++) {
    let rest = byte;
    for (let bit = 0; bit < 8; bit++) rest = rest & 1 ? (rest >>> 1) ^ 0x82f63b78 : rest >>> 1;
    tables[0][byte] = rest;
  }
  for (let byte = 0; byte < 256; byte++) {
    for (let k = 1; k < 8; k++) {
      const before = tables[k - 1][byte];
      tables[k][byte] = (before >>> 8) ^ tables[0][before & 255];
    }
  }
  return tables;
})();

// CRC-32C (Castagnoli) of the first bytes, eight at a time.
function crc32c(bytes, end = bytes.length) {
  const [t0, t1, t2, t3, t4, t5, t6, t7] = TABLES;
  let sum = 0xffffffff;
  let at = 0;
  for (; at + 8 <= end; at += 8) {
    sum ^= bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16) | (bytes[at + 3] << 24);
    sum =
      t7[sum & 255] ^
      t6[(sum >>> 8) & 255] ^
      t5[(sum >>> 16) & 255] ^
      t4[sum >>> 24] ^
      t3[bytes[at + 4]] ^
      t2[bytes[at + 5]] ^
      t1[bytes[at + 6]] ^
      t0[bytes[at + 7]];
  }
  for (; at < end; at++) sum = (sum >>> 8) ^ t0[(sum ^ bytes[at]) & 255];
  return ~sum >>> 0;
}

function compared(bytes) {
  const end = bytes.length - 4;
  const stated = new DataView(bytes.buffer, bytes.byteOffset + end, 4).getUint32(0, true);
  if (crc32c(bytes, end) !== stated)
    throw new Error("A chunk differs from its checksum: `cagp verify` names it.");
  return bytes.subarray(0, end);
}

const zstd = new ZSTDDecoder();
const ready = zstd.init();

self.addEventListener("message", async ({ data: { number, codec, bytes } }) => {
  try {
    await ready;
    const found = codec === "crc32c" ? compared(bytes) : zstd.decode(bytes);
    self.postMessage({ number, found }, [found.buffer]);
  } catch (error) {
    self.postMessage({ number, fault: error.message });
  }
});
