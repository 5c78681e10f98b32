// File server on the loopback address for tests and the demo page. It supports Range requests, and counts the bytes sent of
// each file and the start offsets of the requests.

import { createReadStream, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';

const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.mjs': 'text/javascript', '.json': 'application/json', '.css': 'text/css', '.png': 'image/png', '.jpg': 'image/jpeg' };

/**
 * Serves folders by the first component of the path; folder `.` serves all other paths. Returns the address, the counts, and
 * switches for tests.
 */
export async function serve(folders, port = 0) {
    const state = { ranges: true, sent: new Map(), starts: [], close: () => server.close() };
    const server = createServer((request, response) => {
        const path = normalize(decodeURIComponent(new URL(request.url, 'http://x').pathname)).slice(1);
        const [first, ...rest] = path.split('/');
        const file = folders[first] ? join(folders[first], ...rest) : folders['.'] && join(folders['.'], path || 'index.html');
        let size;
        try {
            size = statSync(file).size;
        } catch {
            response.writeHead(404).end();
            return;
        }
        const headers = { 'Content-Type': TYPES[extname(file)] ?? 'application/octet-stream', 'Cache-Control': 'no-cache' };
        const range = state.ranges && /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '');
        const [start, end] = range ? [Number(range[1]), Math.min(Number(range[2]), size - 1)] : [0, size - 1];
        if (range && start >= size) {
            response.writeHead(416, { 'Content-Range': `bytes */${size}` }).end();
            return;
        }
        state.sent.set(path, (state.sent.get(path) ?? 0) + end - start + 1);
        state.starts.push([path, start]);
        headers['Content-Length'] = end - start + 1;
        if (range) headers['Content-Range'] = `bytes ${start}-${end}/${size}`;
        response.writeHead(range ? 206 : 200, headers);
        if (size) createReadStream(file, { start, end }).pipe(response);
        else response.end();
    });
    await new Promise((done) => server.listen(port, '127.0.0.1', done));
    state.url = `http://127.0.0.1:${server.address().port}`;
    return state;
}
