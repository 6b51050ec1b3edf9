// Writes golden files of the engine with llama.cpp (npm node-llama-cpp, prebuilt), one thread,
// F32 key and value cache, flash attention off.
//
//   node engine_goldens.mjs tiny   TINY.gguf OUT.json
//   node engine_goldens.mjs greedy F32.gguf OUT.json
//   node engine_goldens.mjs kl     F32.gguf QUANTISED.gguf OUT.json
//   node engine_goldens.mjs check  FOLDER OTHER_FOLDER
//
// `check` compares two folders of golden files: equal ids, log-probabilities within 1e-3, KL within
// 2 % (kernels of another processor round otherwise); answers may part only at near ties.
// NODE_LLAMA_CPP names the package's entry file when it is not installed beside this script.
// Texts and prompts are in engine_texts.json.
import fs from "node:fs";
import path from "node:path";
import crypto from "node:crypto";
import {fileURLToPath} from "node:url";

let llama;
const texts = JSON.parse(fs.readFileSync(path.join(path.dirname(fileURLToPath(import.meta.url)), "engine_texts.json")));

function sha256(file) {
    const hash = crypto.createHash("sha256");
    const fd = fs.openSync(file, "r");
    const buffer = Buffer.alloc(1 << 22);
    for (let n; (n = fs.readSync(fd, buffer)) > 0;) hash.update(buffer.subarray(0, n));
    fs.closeSync(fd);
    return hash.digest("hex");
}

async function open(file, contextSize) {
    const model = await llama.loadModel({modelPath: file});
    const context = await model.createContext({
        contextSize, sequences: 1, batchSize: 512, flashAttention: false,
        threads: Number(process.env.THREADS ?? 1),
        experimentalKvCacheKeyType: "F32", experimentalKvCacheValueType: "F32"
    });
    if (context.flashAttention) throw new Error("flash attention is on");
    return {model, sequence: context.getSequence()};
}

function logSoftmax(logits) {
    let best = -Infinity;
    for (const l of logits.values()) best = Math.max(best, l);
    let sum = 0;
    for (const l of logits.values()) sum += Math.exp(l - best);
    return best + Math.log(sum);
}

// Logits after each of the ids, as Map(id -> logit).
async function score(sequence, ids) {
    const out = await sequence.controlledEvaluate(ids.map((id) => [id, {generateNext: {logits: true}}]));
    return out.map((o) => o.next.logits);
}

const origin = (files) => ({
    made_with: {
        package: "node-llama-cpp",
        llama_cpp: llama.llamaCppRelease,
        settings: "CPU, 1 thread, F32 key and value cache, flash attention off, batches of 512"
    },
    files: files.map((file) => ({name: path.basename(file), sha256: sha256(file)}))
});

async function tiny(file, out) {
    const {model, sequence} = await open(file, 512);
    const vocab = 320;
    const ids = [];
    for (let i = 0, x = 7; i < 64; i++) {
        x = (x * 1103515245 + 12345) % 2147483648;
        ids.push(3 + (x >> 8) % (vocab - 3));
    }
    const rows = (await score(sequence, ids)).map((logits) => {
        const norm = logSoftmax(logits);
        const row = new Array(logits.size).fill(0);
        for (const [id, l] of logits) row[id] = Number((l - norm).toFixed(5));
        return row;
    });
    fs.writeFileSync(out, JSON.stringify({...origin([file]), ids, logprobs: rows}) + "\n");
}

async function greedy(file, out) {
    const {model, sequence} = await open(file, 2048);
    const prompts = [];
    for (const {name, text, tokens} of texts.prompts) {
        let ids = model.tokenize(text, true);
        if (tokens !== undefined) {
            if (ids.length < tokens) throw new Error(`${name} has only ${ids.length} tokens`);
            ids = ids.slice(0, tokens);
        }
        await sequence.clearHistory();
        if (ids.length > 1) {
            await sequence.evaluateWithoutGeneratingNewTokens(ids.slice(0, -1));
        }
        let last = ids[ids.length - 1];
        const answer = [], best_two = [];
        for (let step = 0; step < 64; step++) {
            const [logits] = await score(sequence, [last]);
            const norm = logSoftmax(logits);
            let [[first, a], [, b]] = logits.entries();
            best_two.push([a - norm, b - norm].map((l) => Number(l.toFixed(5))));
            answer.push(first);
            last = first;
        }
        console.error(name, ids.length, JSON.stringify(model.detokenize(answer, true)));
        prompts.push({name, text: tokens === undefined ? text : undefined, ids, answer, best_two});
    }
    fs.writeFileSync(out, pretty({...origin([file]), prompts}, "prompts"));
}

async function kl(exact, quantised, out) {
    const a = await open(exact, 2048), b = await open(quantised, 2048);
    const passages = [];
    for (const {name, text} of texts.passages) {
        const ids = a.model.tokenize(text, true).slice(0, 400);
        await a.sequence.clearHistory();
        await b.sequence.clearHistory();
        let sum = 0, agree = 0;
        for (let at = 0; at < ids.length; at += 32) {
            const part = ids.slice(at, at + 32);
            const exactRows = await score(a.sequence, part), ours = await score(b.sequence, part);
            for (let i = 0; i < part.length; i++) {
                const p = exactRows[i], q = ours[i], np = logSoftmax(p), nq = logSoftmax(q);
                let row = 0;
                for (const [id, l] of p) row += Math.exp(l - np) * ((l - np) - (q.get(id) - nq));
                sum += row;
                agree += p.keys().next().value === q.keys().next().value ? 1 : 0;
            }
        }
        console.error(name, ids.length, sum / ids.length, agree / ids.length);
        passages.push({name, text, ids, mean_kl: sum / ids.length, same_best: agree / ids.length});
    }
    const positions = passages.reduce((n, p) => n + p.ids.length, 0);
    const mean_kl = passages.reduce((n, p) => n + p.mean_kl * p.ids.length, 0) / positions;
    console.error("positions", positions, "mean KL", mean_kl);
    fs.writeFileSync(out, pretty({
        ...origin([exact, quantised]),
        measured: "mean over all positions of KL(P || Q) in nats; P from the F32 file, Q from the quantised file, both by llama.cpp, full vocabulary, 64-bit sums; each passage starts an empty context",
        positions, mean_kl, passages
    }, "passages"));
}

// One entry of the list a line.
function pretty(object, list) {
    const head = JSON.stringify({...object, [list]: undefined}).slice(0, -1);
    return `${head},"${list}":[\n${object[list].map((e) => JSON.stringify(e)).join(",\n")}\n]}\n`;
}

function check(folder, other) {
    const both = (name) => [folder, other].map((f) => JSON.parse(fs.readFileSync(path.join(f, name))));
    const fail = (what) => { throw new Error(`the golden files differ: ${what}`); };
    const same = (a, b, what) => { if (JSON.stringify(a) !== JSON.stringify(b)) fail(what); };
    for (const name of ["tiny.json", "greedy.json", "kl.json"]) {
        const [a, b] = both(name);
        same(a.files.map((f) => f.sha256), b.files.map((f) => f.sha256), `${name}: models`);
        if (name === "tiny.json") {
            same(a.ids, b.ids, "tiny: ids");
            a.logprobs.forEach((row, i) => row.forEach((l, j) => {
                if (Math.abs(l - b.logprobs[i][j]) > 1e-3) fail(`tiny: position ${i}, token ${j}`);
            }));
        }
        (a.prompts ?? []).forEach((p, i) => {
            same(p.ids, b.prompts[i].ids, p.name);
            const at = p.answer.findIndex((id, k) => id !== b.prompts[i].answer[k]);
            if (at >= 0 && p.best_two[at][0] - p.best_two[at][1] >= 0.05) fail(`${p.name}: answer at ${at}`);
        });
        (a.passages ?? []).forEach((p, i) => {
            same(p.ids, b.passages[i].ids, p.name);
            if (Math.abs(p.mean_kl / b.passages[i].mean_kl - 1) > 0.02) fail(`${p.name}: KL`);
        });
    }
}

const [what, ...files] = process.argv.slice(2);
if (what === "check") {
    check(...files);
} else {
    const {getLlama} = await import(process.env.NODE_LLAMA_CPP ?? "node-llama-cpp");
    llama = await getLlama({gpu: false, build: "never", logLevel: "error", maxThreads: 0});
    await {tiny, greedy, kl}[what](...files);
}
process.exit(0);
