// Starts Chromium with WebGPU on its software device. Without `fast`, shaders have the same checks as for users.

import { chromium } from 'playwright-core';

const EXECUTABLES = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];

export async function launch({ fast = true, gpu = true } = {}) {
    const { existsSync } = await import('node:fs');
    const executablePath = process.env.DRIFT_CHROMIUM ?? EXECUTABLES.find(existsSync);
    const args = ['--no-sandbox', '--disable-dev-shm-usage', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];
    if (gpu) args.push('--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader');
    if (fast) args.push('--enable-dawn-features=disable_robustness,disable_workgroup_init');
    return chromium.launch({ executablePath, args });
}
