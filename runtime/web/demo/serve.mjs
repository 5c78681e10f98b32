// Serves the demo page on the loopback address: `node serve.mjs FOLDER [PORT]`.

import { resolve } from 'node:path';
import { serve } from '../test/server.mjs';

const { url } = await serve({ '.': resolve(process.argv[2]) }, Number(process.argv[3] ?? 8000));
console.log(`The demo page is at ${url} (needs WebGPU; stop with Ctrl-C)`);
