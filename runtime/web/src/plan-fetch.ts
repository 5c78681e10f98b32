// Plans what loading fetches: the sections that a variant needs, and what is done with their bytes.

import type { Bundle, Section } from './bundle.js';
import type { Variant } from './decode.js';
import { fail, messageOf } from './errors.js';
import { rowBytes, type Memory } from './memory.js';

/**
 * Lists the sections that a variant needs, with an action for each: create a pipeline, or fill memory. Calls `onCreated` for each
 * created pipeline.
 */
export function planFetch(bundle: Bundle, device: GPUDevice, variant: Variant, memory: Memory, onCreated: () => void) {
    const { chunks, artifacts } = bundle.manifest;
    const actions = new Map<string, ((bytes: Uint8Array) => void)[]>();
    const sections: Section[] = [];
    const request = (name: string, section: Omit<Section, 'name'>, action: (bytes: Uint8Array) => void) => {
        const known = actions.get(name);
        if (known) return void known.push(action);
        actions.set(name, [action]);
        sections.push({ ...section, name });
    };
    const created: Promise<GPUComputePipeline>[] = [];
    variant.pipelines.forEach(({ name, artifact, entry }, index) => {
        request(`artifact ${artifact}`, artifacts[artifact]!, (bytes) => {
            const module = device.createShaderModule({ label: name, code: new TextDecoder().decode(bytes) });
            const pipeline = device.createComputePipelineAsync({ label: name, layout: memory.layouts[index]!, compute: { module, entryPoint: entry } });
            pipeline.then(onCreated, () => undefined);
            created[index] = pipeline;
        });
    });
    for (const { chunk, slot, offset } of variant.placements) {
        request(`chunk ${chunk}`, chunks[chunk]!, (bytes) => {
            const rest = bytes.length % 4;
            const padded = rest ? new Uint8Array(bytes.length + 4 - rest) : bytes;
            if (rest) padded.set(bytes);
            device.queue.writeBuffer(memory.weights[slot]!, offset, padded as BufferSource);
        });
    }
    for (const [image, texture] of memory.constants) {
        request(`chunk ${image.chunk}`, chunks[image.chunk!]!, (bytes) => {
            const layout = { bytesPerRow: rowBytes(image), rowsPerImage: image.extent[1]! };
            device.queue.writeTexture({ texture }, bytes as BufferSource, layout, image.extent);
        });
    }
    const take = (section: Section, bytes: Uint8Array) => actions.get(section.name)!.forEach((action) => action(bytes));
    const pipelines = () =>
        Promise.all(
            created.map((pipeline, index) =>
                pipeline.catch((error) => fail('Gpu', `the driver failed in creating pipeline \`${variant.pipelines[index]!.name}\`: ${messageOf(error)}`, error)),
            ),
        );
    return { sections, take, pipelines };
}
