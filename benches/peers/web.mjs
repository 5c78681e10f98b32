// Loading and running models in Chromium, beside ONNX Runtime Web and transformers.js: `node web.mjs PACKAGES MODELS [NAME..]`.
// PACKAGES is the folder `node_modules` with the npm packages `onnxruntime-web` and `@huggingface/transformers`; MODELS has
// NAME.onnx and NAME.drift, compiled for `webgpu-baseline`, and the same ONNX file as NAME/onnx/model.onnx beside the
// NAME/config.json by which transformers.js tells the architecture.

import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { launch } from '../../runtime/web/test/chromium.mjs';
import { serve } from '../../runtime/web/test/server.mjs';
import { existsSync } from 'node:fs';
const [packages, models] = process.argv.slice(2, 4).map((path) => resolve(path));
const wanted = process.argv.slice(4);
const transformers = `${packages}/@huggingface/transformers`;
const nested = `${transformers}/node_modules/onnxruntime-web/dist`;
const ort = `${packages}/onnxruntime-web/dist`;
const server = await serve({
  '.': fileURLToPath(new URL('../../runtime/web', import.meta.url)), bench: models, ort,
  transformers: `${transformers}/dist`, 'transformers-ort': existsSync(nested) ? nested : ort,
});
const MODELS = {
  'mobilenet_v2-ts': [['image', 'float32', [1,3,224,224]]],
  'resnet50-ts': [['image', 'float32', [1,3,160,160]]],
  'bert-ts': [['input_ids','int64',[2,24]],['attention_mask','int64',[2,24]],['token_type_ids','int64',[2,24]]],
  'minilm': [['input_ids','int64',[1,32]],['attention_mask','int64',[1,32]],['token_type_ids','int64',[1,32]]],
  'text': [['x','float32',[1,3,256,512]]],
};
const chosen = Object.entries(MODELS).filter(([name]) => !wanted.length || wanted.includes(name));
for (const [name, inputs] of chosen) for (const which of ['driftc', 'ort', 'transformers']) {
  if (which === 'transformers' && !existsSync(`${models}/${name}/config.json`)) continue;
  const browser = await launch({ fast: true });
  const page = await browser.newPage();
  await page.goto(server.url + '/test/blank.html');
  server.sent.clear();
  try {
    const r = await page.evaluate(async ([name, inputs, which]) => {
      const n = (s) => s.reduce((a, b) => a * b, 1);
      const t0 = performance.now();
      let run;
      if (which === 'driftc') {
        const { Session } = await import('/dist/index.js');
        const s = await Session.load(`/bench/${name}.drift`, { cache: false });
        const given = Object.fromEntries(inputs.map(([k, t, shape]) => [k, { shape, data: t === 'int64' ? new BigInt64Array(n(shape)).fill(1n) : new Float32Array(n(shape)).fill(0.5) }]));
        run = () => s.run('main', given);
      } else if (which === 'transformers') {
        const { AutoModel, Tensor, env } = await import('/transformers/transformers.min.js');
        Object.assign(env, { allowRemoteModels: false, allowLocalModels: true, localModelPath: '/bench/', useBrowserCache: false });
        Object.assign(env.backends.onnx.wasm, { wasmPaths: '/transformers-ort/', numThreads: 1 });
        const model = await AutoModel.from_pretrained(name, { device: 'webgpu', dtype: 'fp32' });
        const given = Object.fromEntries(inputs.map(([k, t, shape]) => [k, new Tensor(t, t === 'int64' ? new BigInt64Array(n(shape)).fill(1n) : new Float32Array(n(shape)).fill(0.5), shape)]));
        run = async () => { const out = await model(given); for (const v of Object.values(out)) await v.ort_tensor.getData(); };
      } else {
        const ort = await import('/ort/ort.webgpu.bundle.min.mjs');
        ort.env.wasm.wasmPaths = '/ort/'; ort.env.wasm.numThreads = 1;
        const s = await ort.InferenceSession.create(`/bench/${name}.onnx`, { executionProviders: ['webgpu'] });
        const given = Object.fromEntries(inputs.map(([k, t, shape]) => [k, new ort.Tensor(t, t === 'int64' ? new BigInt64Array(n(shape)).fill(1n) : new Float32Array(n(shape)).fill(0.5), shape)]));
        run = async () => { const out = await s.run(given); for (const v of Object.values(out)) await v.getData(); };
      }
      await run();
      const first = performance.now() - t0;
      const times = [];
      for (let i = 0; i < 7; i++) { const t = performance.now(); await run(); times.push(performance.now() - t); }
      times.sort((a, b) => a - b);
      return [first, times[3]];
    }, [name, inputs, which]);
    const runtime = [...server.sent].filter(([k]) => ['dist', 'ort', 'transformers'].some((own) => k.startsWith(own))).reduce((a, [, v]) => a + v, 0);
    console.log(name, which, 'load to first result', r[0].toFixed(0), 'ms; run', r[1].toFixed(1), 'ms; runtime bytes', runtime);
  } catch (e) { console.log(name, which, 'ERR', String(e).slice(0, 300)); }
  await browser.close();
}
server.close();
